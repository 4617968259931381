//! A request from the moment it is sent to its end, for those who count.

use super::answer::{Fault, Success};
use super::mix::Operation;
use super::schedule::Schedule;
use std::time::{Duration, Instant};

/// The connection that a request went over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Connection {
    /// It was there already.
    #[default]
    Kept,
    /// It was begun for this request, and never made.
    Begun,
    /// It was made for this request, and that took so long.
    Made(Duration),
}

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) operation: Operation,
    pub(super) result: Result<Success, Fault>,
    /// Of the answer; zero when none was complete.
    pub(super) status: u16,
    /// When it was to be sent; in a closed loop, when the client was free to.
    pub(super) since: Instant,
    /// When it was sent; the same in a closed loop.
    pub(super) sent: Instant,
    /// When it was over.
    pub(super) until: Instant,
    pub(super) connection: Connection,
    /// Whether the value it brought was compared as a whole.
    pub(super) verified: bool,
}

/// A request of an open loop at the moment it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    /// When it was due.
    pub(super) intended: Instant,
    /// Since when the connection that carries it was free.
    pub(super) free_since: Instant,
    /// When it is sent.
    pub(super) sent: Instant,
}

/// What is unfinished when a run has ended.
#[derive(Debug)]
pub(super) struct Unfinished {
    /// When each request in flight was sent.
    pub(super) in_flight: Vec<Instant>,
    /// With what was due and not sent.
    pub(super) schedule: Schedule,
}
