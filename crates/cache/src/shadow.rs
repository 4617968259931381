//! Shadow policies: the hit ratios that other policies would have on the same requests, simulated beside the cache.
//!
//! A shadow policy (in the literature: a shadow cache) is a shard that holds hashes and sizes instead of rows. It has the limits of
//! the shard beside it, sees the same reads and writes under the same lock, and counts the reads it would have answered.
//!
//! A read that a shadow policy misses is filled at once: with what the cache had, or with what came from the store. Two keys with
//! the same 64-bit hash are one key to it; that practically never happens.
//!
//! **Sampling.** A shadow policy costs 30 to 60 bytes per row, and as much work per request as the cache. When it holds more rows
//! than its bound, it drops half of the hash space, its keys and its limits alike, and simulates a cache of half the size on half
//! the keys (spatial sampling: Waldspurger, Park, Garthwaite and Ahmad, Efficient MRC Construction with SHARDS, FAST 2015; for
//! policies other than LRU: Waldspurger, Saemundsson, Ahmad and Park, Cache Modeling and Optimization using Miniature
//! Simulations, ATC 2017). A miss then counts as two, four, eight … misses, and all other reads as hits. That is the correction
//! of SHARDS: otherwise the ratio would depend on whether one of the few hottest keys is in the sample.

use super::policy::PolicyRow;
use super::shard::{Held, Shard};
use super::{Limits, SHARD_ENTRIES_MIN};
use foldhash::fast::SeedableRandomState;
use std::num::NonZeroU32;

/// Rows that a shadow policy holds over all shards before it samples.
const ROWS_MAX: usize = 1 << 16;

/// The same for one of many shards: fewer rows are too small a sample.
const SHARD_ROWS_MIN: usize = 4 * SHARD_ENTRIES_MIN;

/// Hits and misses that a shadow policy would have had so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowCounts {
    /// Its policy's name.
    pub policy: &'static str,
    /// Reads it would have answered.
    pub hits: u64,
    /// Reads it would have asked the store for.
    pub misses: u64,
}

/// The shadow policies beside one shard.
pub(super) struct ShadowPolicies {
    /// Reads of the cache.
    reads: u64,
    policies: Vec<ShadowPolicy>,
}

struct ShadowPolicy {
    name: &'static str,
    shard: Shard<ShadowRow>,
    /// What the shard would be limited to without sampling.
    limits: Limits,
    rows_max: usize,
    /// How often it dropped half of the hash space.
    halvings: u32,
    /// Each sampled miss counts `1 << halvings` times.
    misses: u64,
    /// The hits reported last: a counter must not fall when a miss counts several times.
    hits_reported: u64,
}

/// The hash and the size of a row.
struct ShadowRow {
    hash: u64,
    /// Never zero, so that an empty slot costs nothing more.
    cost: NonZeroU32,
}

impl ShadowRow {
    fn new(hash: u64, cost: usize) -> ShadowRow {
        let cost = u32::try_from(cost).ok().and_then(NonZeroU32::new);
        ShadowRow { hash, cost: cost.unwrap_or(NonZeroU32::MAX) }
    }
}

impl Held for ShadowRow {
    type Key = u64;

    fn key(&self) -> &u64 {
        &self.hash
    }

    fn hash(&self, _state: &SeedableRandomState) -> u64 {
        self.hash
    }

    fn cost(&self) -> usize {
        self.cost.get() as usize
    }
}

impl ShadowPolicies {
    /// Shadow policies beside one of `shards` shards with `limits` each.
    pub(super) fn new(
        policies: &[&'static PolicyRow],
        limits: Limits,
        shards: usize,
        hash_state: &SeedableRandomState,
    ) -> ShadowPolicies {
        let rows_max = (ROWS_MAX / shards).max(SHARD_ROWS_MIN);
        let shadow = |row: &&'static PolicyRow| ShadowPolicy {
            name: row.name,
            shard: Shard::new(limits, (row.new)(), hash_state.clone()),
            limits,
            rows_max,
            halvings: 0,
            misses: 0,
            hits_reported: 0,
        };
        ShadowPolicies { reads: 0, policies: policies.iter().map(shadow).collect() }
    }

    /// The cache answered a read with a row of this cost.
    pub(super) fn hit(&mut self, hash: u64, cost: usize) {
        self.reads += 1;
        self.each(hash, |shadow| {
            if !shadow.read(hash) {
                shadow.insert(hash, cost);
            }
        });
    }

    /// The cache missed a read. [`Self::filled`] follows if the store has the row.
    pub(super) fn missed(&mut self, hash: u64) {
        self.reads += 1;
        self.each(hash, |shadow| {
            shadow.read(hash);
        });
    }

    /// A read brought a row from the store. A policy that holds it already would not have read it.
    pub(super) fn filled(&mut self, hash: u64, cost: usize) {
        self.each(hash, |shadow| {
            if shadow.shard.peek(hash, &hash).is_none() {
                shadow.insert(hash, cost);
            }
        });
    }

    /// A row was written.
    pub(super) fn written(&mut self, hash: u64, cost: usize) {
        self.each(hash, |shadow| shadow.insert(hash, cost));
    }

    /// A row was deleted, or must not be served any more.
    pub(super) fn removed(&mut self, hash: u64) {
        self.each(hash, |shadow| {
            shadow.shard.remove(hash, &hash);
        });
    }

    /// All rows were.
    pub(super) fn cleared(&mut self) {
        self.policies.iter_mut().for_each(|shadow| shadow.shard.clear());
    }

    /// The counts of each policy.
    pub(super) fn counts(&mut self) -> impl Iterator<Item = ShadowCounts> {
        let reads = self.reads;
        self.policies.iter_mut().map(move |shadow| {
            shadow.hits_reported = shadow.hits_reported.max(reads.saturating_sub(shadow.misses));
            ShadowCounts { policy: shadow.name, hits: shadow.hits_reported, misses: shadow.misses }
        })
    }

    fn each(&mut self, hash: u64, act: impl Fn(&mut ShadowPolicy)) {
        self.policies.iter_mut().filter(|shadow| is_sampled(hash, shadow.halvings)).for_each(act);
    }
}

impl ShadowPolicy {
    /// Whether it would have had the row.
    fn read(&mut self, hash: u64) -> bool {
        let is_held = self.shard.look(hash, &hash, |_| Some(())).is_some();
        if !is_held {
            self.misses += 1 << self.halvings;
        }
        is_held
    }

    fn insert(&mut self, hash: u64, cost: usize) {
        self.shard.insert(hash, ShadowRow::new(hash, cost));
        while self.shard.counts().entries > self.rows_max {
            self.halvings += 1;
            let halvings = self.halvings;
            let limits =
                Limits { entries: self.limits.entries >> halvings, bytes: self.limits.bytes >> halvings };
            self.shard.shrink(limits, |row| is_sampled(row.hash, halvings));
        }
    }
}

/// Whether a hash is in the part of the hash space that is left after so many halvings. The product's upper bits
/// depend on all bits of the hash, so neither the shard nor the place in an index is a sample of its own.
fn is_sampled(hash: u64, halvings: u32) -> bool {
    hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) <= u64::MAX >> halvings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::POLICIES;
    use crate::policy::tests::{hash, zipf};
    use foldhash::SharedSeed;

    fn shadows(limits: Limits, shards: usize) -> ShadowPolicies {
        let state = SeedableRandomState::with_seed(0, SharedSeed::global_fixed());
        ShadowPolicies::new(&POLICIES.iter().collect::<Vec<_>>(), limits, shards, &state)
    }

    #[test]
    fn a_sampled_shadow_policy_is_bounded_and_close_to_an_unsampled_one() {
        let limits = Limits { entries: 4000, bytes: usize::MAX };
        // Beside one of 64 shards a shadow policy holds 1024 rows, a quarter of what the limits allow.
        let (mut whole, mut sampled) = (shadows(limits, 1), shadows(limits, 64));
        let mut last = (0, 0);
        for (i, key) in zipf(40_000, 0.9, 5).take(150_000).enumerate() {
            whole.hit(hash(key), 100);
            sampled.hit(hash(key), 100);
            if i % 100 == 0 {
                let lru = sampled.counts().next().unwrap();
                assert!(lru.hits >= last.0 && lru.misses >= last.1, "a counter fell: {lru:?} after {last:?}");
                last = (lru.hits, lru.misses);
            }
        }
        for (whole, (sampled, shadow)) in
            whole.counts().zip(sampled.counts().collect::<Vec<_>>().iter().zip(&sampled.policies))
        {
            let ratio = |of: &ShadowCounts| of.hits as f64 / (of.hits + of.misses) as f64;
            let off = ratio(sampled) - ratio(&whole);
            assert!(off.abs() < 0.02, "{}: {off:+.3}", whole.policy);
            assert!(
                (600..=1024).contains(&shadow.shard.counts().entries) && shadow.halvings == 2,
                "{}",
                shadow.halvings
            );
        }
    }

    #[test]
    fn a_slot_of_a_shadow_policy_is_small() {
        assert_eq!(size_of::<Option<ShadowRow>>(), 16);
    }

    #[test]
    fn a_shadow_policy_fills_what_it_misses_and_only_that() {
        let mut shadows = shadows(Limits { entries: 2, bytes: usize::MAX }, 1);
        let lru =
            |shadows: &mut ShadowPolicies| shadows.counts().next().map(|of| (of.hits, of.misses)).unwrap();
        shadows.written(1, 100);
        shadows.written(2, 100);
        // The real cache did not have 1, the shadow policy did: what the store brings does not touch it again.
        shadows.missed(1);
        assert_eq!(lru(&mut shadows), (1, 0));
        shadows.hit(2, 100);
        shadows.filled(1, 100);
        assert_eq!(lru(&mut shadows), (2, 0));
        // 1 is the oldest now and makes room for 3, which the real cache has and the shadow policy has not.
        shadows.hit(3, 100);
        shadows.missed(1);
        assert_eq!(lru(&mut shadows), (2, 2));
        shadows.removed(2);
        shadows.missed(2);
        shadows.cleared();
        shadows.hit(3, 100);
        assert_eq!(lru(&mut shadows), (2, 4));
    }
}
