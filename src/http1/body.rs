//! Message bodies: by length, in chunks, or until the connection closes.

use super::Reject;
use std::ops::Range;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes; zero for no body.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// With the connection (responses only).
    UntilClose,
}

/// Takes a body out of a byte stream. Feed it what has arrived; it says what of that is data.
#[derive(Clone, Debug)]
pub struct Decoder {}

/// What [`Decoder::decode`] made of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which part of the input is body data (may be empty).
    pub data: Range<usize>,
    /// How many bytes of the input are used up, framing included. Zero: more input is needed, or the body is complete.
    pub consumed: usize,
}

impl Decoder {
    /// A decoder for a body of at most `limit_bytes` of data; 413 at once if its length is known to be more.
    pub fn new(framing: Framing, limit_bytes: u64) -> Result<Decoder, Reject> {
        todo!()
    }

    /// Consumes from the front of `input`. 400 for bad chunks, 413 above the limit.
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, Reject> {
        todo!()
    }

    /// Whether the whole body has been decoded. Never true of [`Framing::UntilClose`].
    pub fn is_done(&self) -> bool {
        todo!()
    }
}
