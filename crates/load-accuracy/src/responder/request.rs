//! A request that the responder has read.

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The last part of the path.
    pub(super) key: String,
    /// Whether the client wants the connection closed after the answer.
    pub(super) closes: bool,
}
