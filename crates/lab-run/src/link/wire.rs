//! The arithmetic of one direction: when bytes that come now have gone through.
//!
//! A bucket of tokens that holds no more than one chunk, seen as a schedule: a chunk is sent when all before it are, for its
//! bytes over the rate, and is through when its last byte is. So by any instant no more has gone through than the rate
//! allows, however late who carries it out wakes. Instants are times since the link began; touches no clock.

use std::collections::VecDeque;
use std::time::Duration;

/// Longest a chunk may take to be sent: who comes behind it waits for so long at least.
const CHUNK_MAX: Duration = Duration::from_millis(10);
/// A chunk is no shorter than what one packet carries, nor longer than one read.
const CHUNK_BYTES: (usize, usize) = (1_500, 64 << 10);

/// One direction, shared by all connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Wire {
    /// Bytes a second; `None`: no limit.
    rate: Option<f64>,
    delay: Duration,
    /// When everything that came so far has been sent.
    free_at: Duration,
    /// That came.
    pub(super) bytes: u64,
    busy: Duration,
    /// Chunks that are not through, in the order in which they will be.
    under_way: VecDeque<Passage>,
    /// Of those that are.
    spent: Spent,
}

/// A chunk's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passage {
    /// When it came.
    came: Duration,
    /// When its first byte is sent.
    begins: Duration,
    /// When its last byte is through.
    through: Duration,
    /// When the connection's chunk before it is through: until then that one's time is counted.
    free: Duration,
}

impl Wire {
    pub(super) fn new(rate: Option<f64>, delay: Duration) -> Wire {
        Wire { rate, delay, ..Wire::default() }
    }

    /// The most bytes that one chunk may have.
    pub(super) fn chunk_bytes(&self) -> usize {
        let (least, most) = CHUNK_BYTES;
        self.rate.map_or(most, |rate| ((rate * CHUNK_MAX.as_secs_f64()) as usize).clamp(least, most))
    }

    /// Takes in a chunk that comes `now`, and says when it is through. The connection's chunk before it is through at `free`.
    pub(super) fn take(&mut self, now: Duration, bytes: usize, free: Duration) -> Duration {
        let begins = now.max(self.free_at);
        let sending = self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(bytes as f64 / rate));
        self.free_at = begins + sending;
        self.bytes += bytes as u64;
        self.busy += sending;
        let through = self.free_at + self.delay;
        self.settle(now);
        self.under_way.push_back(Passage { came: now, begins, through, free });
        through
    }

    /// For how long it has been sending by `now`: what came without what is still to be sent. Something may have come after `now`,
    /// before it was asked.
    pub(super) fn busy(&self, now: Duration) -> Duration {
        self.busy.saturating_sub(self.free_at.saturating_sub(now))
    }

    /// What its connections have spent by `now`.
    pub(super) fn spent(&mut self, now: Duration) -> Spent {
        self.settle(now);
        let mut spent = self.spent;
        self.under_way.iter().for_each(|passage| spent.add(passage, now));
        spent
    }

    fn settle(&mut self, now: Duration) {
        while let Some(passage) = self.under_way.pop_front_if(|passage| passage.through <= now) {
            self.spent.add(&passage, passage.through);
        }
    }
}

/// The time of connections, of which each instant counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spent {
    /// With bytes that wait and none under way.
    pub(super) waiting: Duration,
    /// With bytes under way.
    pub(super) serving: Duration,
}

impl Spent {
    /// Adds what a chunk spends until `until`.
    fn add(&mut self, passage: &Passage, until: Duration) {
        let Passage { came, begins, through, free } = *passage;
        let within = |from: Duration, to: Duration| to.min(until).saturating_sub(from.max(free).min(until));
        self.waiting += within(came, begins);
        self.serving += within(begins, through);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: Duration = Duration::ZERO;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn chunks_are_sent_one_after_the_other_and_then_delayed() {
        let mut wire = Wire::new(Some(1e6), ms(20));
        assert_eq!(wire.take(ms(100), 5_000, BEGAN), ms(125));
        assert_eq!(wire.take(ms(101), 5_000, BEGAN), ms(130));
        assert_eq!(wire.take(ms(150), 1_000, BEGAN), ms(171), "time in which nothing came is lost");
        assert_eq!(wire.bytes, 11_000);
        for (now, busy) in [(150, 10), (151, 11), (999, 11)] {
            assert_eq!(wire.busy(ms(now)), ms(busy), "{now}");
        }
    }

    #[test]
    fn what_is_busy_grows_with_the_clock_and_not_with_what_comes() {
        let mut wire = Wire::new(Some(1e6), Duration::ZERO);
        wire.take(ms(10), 30_000, BEGAN);
        assert_eq!([10, 25, 40, 90].map(|now| wire.busy(ms(now))), [0, 15, 30, 30].map(ms));
        assert_eq!(wire.busy(ms(9)), BEGAN, "it came after the question");
    }

    #[test]
    fn by_no_instant_more_is_through_than_the_rate_allows() {
        let mut wire = Wire::new(Some(125_000.0), ms(3));
        let mut through: Vec<(Duration, usize)> = Vec::new();
        for step in 0..2_000u64 {
            let bytes = (step as usize * 7_919) % wire.chunk_bytes() + 1;
            through.push((wire.take(ms(step), bytes, BEGAN), bytes));
        }
        assert!(through.is_sorted_by_key(|(at, _)| *at));
        let mut sum = 0;
        for (at, bytes) in through {
            sum += bytes;
            assert!(sum as f64 <= at.as_secs_f64() * 125_000.0 + 1.0, "{sum} bytes by {at:?}");
        }
    }

    #[test]
    fn without_a_rate_only_the_delay_is_added() {
        let mut wire = Wire::new(None, ms(5));
        assert_eq!(wire.take(ms(1), 1 << 20, BEGAN), ms(6));
        assert_eq!(wire.take(ms(1), 1 << 20, BEGAN), ms(6));
        assert_eq!((wire.busy(ms(9)), wire.chunk_bytes()), (Duration::ZERO, 64 << 10));
    }

    #[test]
    fn a_chunk_is_at_most_ten_milliseconds_long_and_at_least_a_packet() {
        let chunk = |rate: f64| Wire::new(Some(rate), Duration::ZERO).chunk_bytes();
        assert_eq!([12_500.0, 1.25e6, 125e6].map(chunk), [1_500, 12_500, 64 << 10]);
    }

    #[test]
    fn each_instant_of_a_connection_counts_once() {
        // 10 ms of another connection's bytes, then three chunks of one, sent for 20, 10 and 10 ms; all are delayed by 10.
        let spent = |until: u64| {
            let mut wire = Wire::new(Some(1e6), ms(10));
            wire.take(ms(0), 10_000, BEGAN);
            let mut free = BEGAN;
            for (came, bytes) in
                [(0, 20_000), (5, 10_000), (60, 10_000)].into_iter().filter(|of| of.0 <= until)
            {
                free = wire.take(ms(came), bytes, free);
            }
            let Spent { waiting, serving } = wire.spent(ms(until));
            (waiting, serving - ms(20).min(ms(until)))
        };
        assert_eq!(spent(1_000), (ms(10), ms(60)), "the second waits while the first is under way");
        assert_eq!(spent(4), (ms(4), ms(0)));
        assert_eq!(spent(45), (ms(10), ms(35)));
    }
}
