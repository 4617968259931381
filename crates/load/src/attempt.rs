//! A request from the moment it is sent to its end, for those who count.

use super::answer::Outcome;
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
    /// What it is counted as.
    pub(super) kind: usize,
    /// The place of its server.
    pub(super) server: usize,
    pub(super) result: Outcome,
    /// Of the answer; zero when it had no complete head.
    pub(super) status: u16,
    /// Whether all of the answer came, be it good or bad.
    pub(super) is_complete: bool,
    /// When it was to be sent; in a closed loop, when the client was free to.
    pub(super) since: Instant,
    /// When it was sent; in a closed loop the same, but for a client that has thought and waited for the generator.
    pub(super) sent: Instant,
    /// When the first of its answer came, where that did not come as a whole.
    pub(super) first_byte: Option<Instant>,
    /// When it was over.
    pub(super) until: Instant,
    pub(super) connection: Connection,
    /// Whether the value it brought was compared as a whole.
    pub(super) verified: bool,
}

impl Attempt {
    /// Whether the server answered, be it with an error.
    pub(super) fn is_answered(&self) -> bool {
        self.result.map_or_else(|fault| !fault.is_of_connection(), |_| true)
    }
}

/// What a run left undone.
pub(super) struct Unfinished {
    /// The server of each request in flight, when it was due and when it was sent.
    pub(super) in_flight: Vec<(usize, [Instant; 2])>,
    /// Since when each client that asks has had no answer.
    pub(super) asking: Vec<Instant>,
    /// With what was due and not sent.
    pub(super) schedule: Schedule,
}
