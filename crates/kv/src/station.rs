//! A station: a place where whoever comes waits for a turn, and how long all waited and were served.
//!
//! Counts, and makes nobody wait: that is done by the lock that it stands beside. What it says is exact at every instant, also
//! of those who wait or are served just then.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// What goes on at one place.
#[derive(Debug)]
pub struct Station(Mutex<Scene>);

#[derive(Debug)]
struct Scene {
    /// Until when `visits` has all.
    at: Instant,
    waiting: u32,
    served: u32,
    visits: Visits,
}

/// What went on so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// Turns that were taken.
    pub count: u64,
    /// Time in turns, summed over those who had them.
    pub busy: Duration,
    /// Time before turns, summed over those who waited.
    pub waited: Duration,
}

/// Somebody at the station: first waits, then is served; gone when dropped.
#[derive(Debug)]
pub struct Visit<'s> {
    station: &'s Station,
    is_served: bool,
}

impl Default for Station {
    fn default() -> Station {
        let visits = Visits::default();
        Station(Mutex::new(Scene { at: Instant::now(), waiting: 0, served: 0, visits }))
    }
}

impl Station {
    /// Comes to wait.
    pub fn come(&self) -> Visit<'_> {
        self.scene(|scene| scene.waiting += 1);
        Visit { station: self, is_served: false }
    }

    /// What went on up to now.
    pub fn visits(&self) -> Visits {
        self.scene(|scene| scene.visits)
    }

    /// Brings the sums up to now; then something changes, or is read.
    fn scene<R>(&self, then: impl FnOnce(&mut Scene) -> R) -> R {
        let mut scene = self.0.lock();
        // Read under the lock, so that time never goes back.
        let now = Instant::now();
        let passed = now.saturating_duration_since(scene.at);
        scene.at = now;
        let (served, waiting) = (passed * scene.served, passed * scene.waiting);
        scene.visits.busy += served;
        scene.visits.waited += waiting;
        then(&mut scene)
    }
}

impl Visit<'_> {
    /// Its turn has come.
    pub fn serve(&mut self) {
        self.is_served = true;
        self.station.scene(|scene| {
            scene.waiting -= 1;
            scene.served += 1;
            scene.visits.count += 1;
        });
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.station.scene(|scene| match self.is_served {
            true => scene.served -= 1,
            false => scene.waiting -= 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn who_waits_and_who_is_served_counts_at_every_instant() {
        let station = Station::default();
        let mut first = station.come();
        first.serve();
        let second = station.come();
        let before = station.visits();
        pass(Duration::from_millis(2));
        let after = station.visits();
        let (busy, waited) = (after.busy - before.busy, after.waited - before.waited);
        assert_eq!((busy, after.count), (waited, 1));
        assert!(busy >= Duration::from_millis(2));
        // Who gives up was not served.
        drop(second);
        drop(first);
        let end = station.visits();
        pass(Duration::from_millis(1));
        assert_eq!((station.visits(), end.count), (end, 1), "nobody is there");
    }
}
