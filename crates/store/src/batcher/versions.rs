//! The versions that writes get.

use kv::{Timestamp, Version};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Of a version where several servers write a store: milliseconds, versions of one millisecond, the server.
const COUNTER_BITS: u32 = 6;
const SERVER_BITS: u32 = u16::BITS;

/// Gives versions, each greater than all that it gave before.
#[derive(Debug)]
pub(super) struct Versions {
    last: AtomicU64,
    /// Drawn at the start: tells the servers of a store apart.
    server: u16,
}

impl Default for Versions {
    fn default() -> Versions {
        Versions { last: AtomicU64::new(0), server: RandomState::new().hash_one(()) as u16 }
    }
}

impl Versions {
    /// Begins with the versions of an epoch.
    pub(super) fn begin(&self, epoch: u64) {
        self.last.store(Version::first_of(epoch).0, Relaxed);
    }

    /// Goes on behind a version that another server gave.
    pub(super) fn pass(&self, other: Version) {
        self.last.fetch_max(other.0, Relaxed);
    }

    /// The next one where nobody else gives any.
    pub(super) fn next(&self) -> Version {
        Version(self.last.fetch_add(1, Relaxed) + 1)
    }

    /// The next one where other servers give versions, too: no other server gives the same one, unless it drew the same number.
    pub(super) fn next_at(&self, now: Timestamp) -> Version {
        let next = |last: u64| {
            let count = (now.0 << COUNTER_BITS).max((last >> SERVER_BITS) + 1);
            count << SERVER_BITS | u64::from(self.server)
        };
        let last = self.last.fetch_update(Relaxed, Relaxed, |last| Some(next(last)));
        // The closure never refuses, so both hold what was there before.
        Version(next(last.unwrap_or_else(|last| last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn servers_give_no_version_twice_and_pass_those_of_others() {
        let [one, other] = [1, 2].map(|server| Versions { server, ..Versions::default() });
        let mut seen = HashSet::new();
        for now in [1, 1, 1, 2, 1].into_iter().cycle().take(1000).map(Timestamp) {
            let given = [one.next_at(now), other.next_at(now)];
            assert!(given.into_iter().all(|version| seen.insert(version)), "{given:?}");
            one.pass(given[1]);
            assert!(one.next_at(now) > given[1]);
        }
    }

    #[test]
    fn versions_of_this_century_fit_into_a_signed_number() {
        let year_2039 = Timestamp(69 * 365 * 24 * 3_600_000);
        assert!(Versions::default().next_at(year_2039).0 <= i64::MAX as u64);
    }
}
