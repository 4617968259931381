//! What `Last-Modified` says: the earliest time at which this server knows that a value was there.
//!
//! A version orders writes, but has no time. Of each store the server remembers when it had first seen which version: every lower
//! one is as old at least. So an answer is never too early, and right to a second for what was written through the S3 API.

use kv::Version;
use parking_lot::Mutex;
use std::time::{Duration, SystemTime};

/// Most times that are remembered of a store. Of more, every second one is forgotten, and what was written before it is told to be
/// as old as the one behind it.
const TIMES_MAX: usize = 1 << 16;
/// How exact the times are that clients get.
const SECOND: Duration = Duration::from_secs(1);

/// Of all addresses of the API.
pub(crate) struct Times {
    pub(super) started: SystemTime,
    shards: Box<[Mutex<Seen>]>,
}

/// When which version was seen first, both growing.
type Seen = Vec<(Version, SystemTime)>;

impl Times {
    /// Of stores that were acquired `now`, with these epochs. What has an earlier epoch was written before.
    pub(crate) fn new(epochs: impl Iterator<Item = u64>, now: SystemTime) -> Times {
        let first = |epoch| Mutex::new(vec![(Version(Version::first_of(epoch).0.saturating_sub(1)), now)]);
        Times { started: now, shards: epochs.map(first).collect() }
    }

    /// Since when a value of this version was there at the latest; it is there `now`.
    pub(super) fn of(&self, shard: usize, version: Version, now: SystemTime) -> SystemTime {
        // Of a table that others write: such versions are hashes, without an order.
        if version.epoch() == 0 {
            return now;
        }
        let mut times = self.shards[shard].lock();
        // The clock was ahead and was set back: until it is there again, all that changes would have one time. Another worker's time
        // may be a little later than `now`.
        for (_, time) in times.iter_mut().rev().take_while(|(_, time)| *time > now + SECOND) {
            *time = now;
        }
        let at = times.partition_point(|(seen, _)| *seen < version);
        if let Some((_, time)) = times.get(at) {
            return *time;
        }
        match times.last_mut() {
            // Later ones of a second that has begun since would be told to be too old.
            Some((seen, time)) if *time > now || whole_seconds(*time) == whole_seconds(now) => {
                *seen = version;
                *time
            }
            _ => {
                if times.len() >= TIMES_MAX {
                    let mut index = 0;
                    times.retain(|_| {
                        index += 1;
                        index % 2 == 0
                    });
                }
                times.push((version, now));
                now
            }
        }
    }
}

fn whole_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_as_old_as_the_first_that_was_seen_behind_it() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_millis((seconds * 1000.0) as u64);
        let version = |epoch, count| Version(Version::first_of(epoch).0 + count);
        let times = Times::new([3, 9].into_iter(), at(100.0));
        for (shard, seen, now, expected) in [
            (0, version(2, 7), 500.0, 100.0),
            (0, version(3, 5), 500.0, 500.0),
            (0, version(3, 5), 600.0, 500.0),
            (0, version(3, 1), 601.0, 500.0),
            (0, version(3, 6), 602.0, 602.0),
            // Within a second.
            (0, version(3, 9), 602.5, 602.0),
            // In the next one.
            (1, version(9, 1), 300.9, 300.9),
            (1, version(9, 2), 301.1, 301.1),
            (0, version(3, 8), 700.0, 602.0),
            (0, version(3, 10), 700.0, 700.0),
            // Set back.
            (0, version(3, 11), 650.0, 650.0),
            (0, version(3, 10), 660.0, 650.0),
            (0, version(3, 8), 660.0, 602.0),
            (0, version(3, 12), 670.0, 670.0),
            // Another server was there, and this one came back.
            (0, version(5, 1), 800.0, 800.0),
            (0, version(4, 1), 900.0, 800.0),
            (1, version(3, 5), 900.0, 100.0),
            // The hash of a value that others wrote.
            (0, Version(77), 900.0, 900.0),
        ] {
            assert_eq!(times.of(shard, seen, at(now)), at(expected), "{seen} of {shard} at {now}");
        }
    }

    #[test]
    fn what_is_forgotten_is_told_younger_and_never_older() {
        let start = SystemTime::UNIX_EPOCH;
        let times = Times::new([1].into_iter(), start);
        let at = |count: u64| start + Duration::from_secs(2 * count);
        let version = |count| Version(Version::first_of(1).0 + count);
        let last = TIMES_MAX as u64 + 10;
        for count in 1..=last {
            assert_eq!(times.of(0, version(count), at(count)), at(count));
        }
        assert!(times.shards[0].lock().len() < TIMES_MAX);
        for count in [1, 2, 1000, last - 1, last] {
            let told = times.of(0, version(count), at(last));
            assert!((at(count)..=at(count + 1)).contains(&told), "{count}");
        }
    }
}
