//! What happens often, in one line of the log a second.

use std::time::{Duration, Instant};

/// What is logged once a second at most.
#[derive(Default)]
pub(super) struct Throttle {
    logged: Option<Instant>,
    /// How often it happened since then.
    count: u64,
}

impl Throttle {
    /// Counts one more; if it is to be logged now, how many there were.
    pub(super) fn count(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now - logged < Duration::from_secs(1)) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_often_is_logged_once_a_second_with_its_count() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        for (millis, expected) in
            [(0, Some(1)), (0, None), (999, None), (1000, Some(3)), (1001, None), (9000, Some(2))]
        {
            assert_eq!(throttle.count(start + Duration::from_millis(millis)), expected, "at {millis} ms");
        }
    }
}
