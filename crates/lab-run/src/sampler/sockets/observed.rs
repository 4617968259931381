//! What samples add up to: connection-seconds in each place, and what samples cost.

use crate::sampler::Reading;
use std::time::{Duration, Instant};

/// Between two samples on average, where a sample is cheap enough. What costs is not the sample but that a thread wakes up for it.
pub(super) const PERIOD_MIN: Duration = Duration::from_millis(50);
/// However expensive it is.
pub(super) const PERIOD_MAX: Duration = Duration::from_secs(1);
/// Of one core's time, for samples.
pub(super) const COST_MAX_RATIO: f64 = 0.002;
/// No sample counts for more towards that.
const SAMPLE_SECS_MAX: Duration = Duration::from_millis(1);
/// How many samples a mean over the last ones is taken over.
const MEMORY: f64 = 8.0;

/// How many connections are in each place; one is in one place only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Places {
    pub(super) server_unread: f64,
    pub(super) generator_unread: f64,
    /// All.
    pub(super) connections: f64,
}

impl Places {
    /// Adds `other` times `factor`.
    pub(super) fn add(&mut self, other: Places, factor: f64) {
        self.server_unread += other.server_unread * factor;
        self.generator_unread += other.generator_unread * factor;
        self.connections += other.connections * factor;
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// What the last sample showed, and until when it has been counted; `None` where it showed nothing.
    last: Option<Places>,
    until: Option<Instant>,
    /// Whether both ends of any connection were ever seen.
    pub(super) live: bool,
    /// Whether samples come when they are due.
    pub(super) prompt: bool,
    samples: f64,
    /// The share of samples that met none of the connections they asked for: a mean that forgets.
    missed_ratio: f64,
    observed_secs: f64,
    /// Connection-seconds.
    secs: Places,
    /// Processor time of a sample: a mean that forgets.
    sample_secs: f64,
    /// And of all that the thread does.
    pub(super) cost_secs: f64,
}

impl Observed {
    /// What the last sample showed stands until `now`.
    pub(super) fn stand(&mut self, now: Instant) {
        if let (Some(last), Some(until)) = (self.last, self.until) {
            let secs = now.saturating_duration_since(until).as_secs_f64();
            self.observed_secs += secs;
            self.secs.add(last, secs);
        }
        self.until = self.until.max(Some(now));
    }

    /// A sample met nobody: until the next one nothing is known.
    pub(super) fn miss(&mut self, now: Instant) {
        self.stand(now);
        self.last = None;
        self.missed_ratio += (1.0 - self.missed_ratio) / MEMORY;
    }

    /// Whether connections are gone before they can be sampled, so that what is seen of them says nothing.
    pub(super) fn is_too_late(&self) -> bool {
        self.missed_ratio > 0.5
    }

    pub(super) fn sample(&mut self, now: Instant, places: Places, sample_secs: f64) {
        self.stand(now);
        self.last = Some(places);
        self.missed_ratio -= self.missed_ratio / MEMORY;
        self.live |= places.connections > 0.0;
        self.samples += 1.0;
        // A virtual core that was taken away counts as used: such a sample says nothing of the next.
        let change = sample_secs.min(SAMPLE_SECS_MAX.as_secs_f64()) - self.sample_secs;
        self.sample_secs += change / if self.samples == 1.0 { 1.0 } else { MEMORY };
    }

    pub(super) fn show(&self, into: &mut Reading) {
        for (name, value) in [
            ("samples", self.samples),
            ("observed_secs", self.observed_secs),
            ("server_unread_secs", self.secs.server_unread),
            ("generator_unread_secs", self.secs.generator_unread),
            ("cost_secs", self.cost_secs),
        ] {
            into.count(format!("sockets.{name}"), value);
        }
        into.gauge("sockets.prompt", f64::from(u8::from(self.prompt)));
    }

    /// How long to leave between samples that cost what they did so far.
    pub(super) fn period(&self) -> Duration {
        let affordable_secs = self.sample_secs / COST_MAX_RATIO;
        Duration::from_secs_f64(affordable_secs.min(PERIOD_MAX.as_secs_f64())).max(PERIOD_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_before_a_look_is_not_counted_as_nowhere() {
        let began = Instant::now();
        let at = |secs: u64| began + Duration::from_secs(secs);
        let mut seen = Observed::default();
        let queue = Places { server_unread: 3.0, connections: 4.0, ..Places::default() };
        seen.sample(at(1), queue, 1e-5);
        seen.miss(at(2));
        seen.sample(at(5), queue, 1e-5);
        seen.stand(at(6));
        assert_eq!((seen.observed_secs, seen.secs.server_unread), (2.0, 6.0));
        assert!(!seen.is_too_late());
        // Between two trials the connections of the first are gone, and those of the second not yet listed.
        (7..10).for_each(|secs| seen.miss(at(secs)));
        assert!(!seen.is_too_late());
        (10..20).for_each(|secs| seen.miss(at(secs)));
        assert!(seen.is_too_late());
        (20..30).for_each(|secs| seen.sample(at(secs), queue, 1e-5));
        assert!(!seen.is_too_late());
    }

    #[test]
    fn what_was_seen_stands_until_the_next_look_and_for_every_reading() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut seen = Observed::default();
        let waiting = |server_unread| Places { server_unread, connections: 4.0, ..Places::default() };
        seen.sample(after(0), waiting(4.0), 0.0);
        seen.sample(after(250), waiting(2.0), 0.0);
        seen.stand(after(750));
        assert_eq!((seen.secs.server_unread, seen.observed_secs), (2.0, 0.75));
        // A sample that was taken before the reading and comes after it.
        seen.sample(after(700), waiting(1.0), 0.0);
        seen.stand(after(1000));
        assert_eq!((seen.secs.server_unread, seen.observed_secs, seen.samples), (2.25, 1.0, 3.0));
    }

    #[test]
    fn looks_that_cost_more_are_rarer() {
        let mut seen = Observed::default();
        let mut period_after = |cost_secs, times| {
            (0..times).for_each(|_| seen.sample(Instant::now(), Places::default(), cost_secs));
            seen.period()
        };
        assert_eq!(period_after(0.00003, 1), PERIOD_MIN);
        let near = |period: Duration, secs: f64| (period.as_secs_f64() - secs).abs() < 0.001;
        // A five-hundredth of 50 ms is 100 us.
        assert!(near(period_after(0.0001, 100), 0.05));
        // One that was stolen from makes the next ones rarer, and is forgotten.
        assert!(period_after(0.5, 1) < 5 * PERIOD_MIN * 2);
        assert!(near(period_after(0.0001, 100), 0.05));
        assert!(near(period_after(1.0, 100), 0.5));
    }
}
