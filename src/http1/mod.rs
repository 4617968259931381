//! HTTP/1.1 without sockets: bytes in, messages out, for both ends of a connection.
//!
//! Sans-I/O: nothing here waits, reads a clock or knows a route. The server parses requests and writes responses,
//! the load generator the other way round, both from and into plain byte buffers. The tokenizer is `httparse`;
//! the rules on top (what smuggles is refused, limits, framing, keep-alive) are here.

mod body;
pub mod request;
pub mod response;

pub use body::{Decoder, Framing, Step};

/// Most header fields a message may have.
pub const FIELDS_MAX: usize = 64;

/// What a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request target, in bytes; above it 414.
    pub target_bytes: usize,
    /// Longest head (start line and fields), in bytes; above it 431.
    pub head_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { target_bytes: 8 << 10, head_bytes: 16 << 10 }
    }
}

/// A message refused. Its sender's framing is not to be trusted: answer with `status`, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status to answer with: 400, 408, 413, 414, 431, 501 or 505.
    pub status: u16,
    /// What is wrong, for the answer's detail.
    pub detail: &'static str,
}

/// Room for the fields of one head, so that parsing allocates nothing.
pub struct Slots<'b>(pub(crate) [std::mem::MaybeUninit<httparse::Header<'b>>; FIELDS_MAX]);

impl Default for Slots<'_> {
    fn default() -> Self {
        Slots([const { std::mem::MaybeUninit::uninit() }; FIELDS_MAX])
    }
}
