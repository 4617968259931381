//! When a client may send its next request.
//!
//! A value, not a second loop: the reactor asks it once per request and knows no more.

use std::time::Instant;

/// What decides when a client sends again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pacing {
    /// Closed loop without think time: a client is free the instant its previous request is over.
    #[default]
    Closed,
}

impl Pacing {
    /// The instant from which the request after one that was over at `over` is counted.
    pub fn free_at(self, over: Instant) -> Instant {
        match self {
            Pacing::Closed => over,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_leaves_no_time_between_two_requests() {
        let over = Instant::now();
        assert_eq!(Pacing::Closed.free_at(over), over);
    }
}
