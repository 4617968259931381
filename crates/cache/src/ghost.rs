//! Ghosts: what other policies would do with the same requests, simulated beside the cache.
//!
//! A ghost is a shard that holds hashes and sizes instead of rows. It has the limits of the shard it stands beside, hears
//! of the same reads and writes under the same lock, and counts how often it would have had the row. It decides nothing.
//!
//! A read that a ghost misses is filled at once: by what the cache had, or by what came from the store. Two keys of
//! equal hash are one to it; with 64 bits that is as good as never.
//!
//! **Sampling.** A ghost costs 30 to 60 bytes for each row it holds, and each request it hears costs it about what it
//! costs the cache. When it holds more than its bound, it gives up half of the hash space, its keys and its limits alike,
//! and simulates a cache of half the size on half the keys (spatial sampling: Waldspurger, Park, Garthwaite and Ahmad,
//! Efficient MRC Construction with SHARDS, FAST 2015; for policies other than LRU: Waldspurger, Saemundsson, Ahmad and
//! Park, Cache Modeling and Optimization using Miniature Simulations, ATC 2017). A miss then stands for two, four, eight …
//! misses, and every read that is not accounted for by misses is a hit. That is SHARDS's correction: whether one of the few
//! hottest keys is in the sample would otherwise decide the ratio.

use super::policy::PolicyRow;
use super::shard::{Held, Shard};
use super::{Limits, SHARD_ENTRIES_MIN};
use foldhash::fast::SeedableRandomState;
use std::num::NonZeroU32;

/// Rows that a ghost holds over all shards before it begins to sample.
const ROWS_MAX: usize = 1 << 16;

/// The same for one shard, where there are many: fewer tell too little.
const SHARD_ROWS_MIN: usize = 4 * SHARD_ENTRIES_MIN;

/// How a ghost would have served the reads so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GhostCounts {
    /// Its policy's name.
    pub policy: &'static str,
    /// Reads it would have answered.
    pub hits: u64,
    /// Reads it would have asked the store for.
    pub misses: u64,
}

/// The ghosts beside one shard.
pub(super) struct Ghosts {
    /// Reads that the real cache was asked for.
    reads: u64,
    ghosts: Vec<Ghost>,
}

struct Ghost {
    policy: &'static str,
    shard: Shard<Shadow>,
    /// What the shard would be limited to without sampling.
    limits: Limits,
    rows_max: usize,
    /// How often it gave up half of the hash space.
    halvings: u32,
    /// Each sampled one counted as often as it stands for.
    misses: u64,
    /// What was last said of the hits: a counter must not fall when a miss turns out to stand for several.
    hits_told: u64,
}

/// What stands for a row.
struct Shadow {
    hash: u64,
    /// Never zero, so that an empty slot costs nothing more.
    cost: NonZeroU32,
}

impl Shadow {
    fn new(hash: u64, cost: usize) -> Shadow {
        let cost = u32::try_from(cost).ok().and_then(NonZeroU32::new);
        Shadow { hash, cost: cost.unwrap_or(NonZeroU32::MAX) }
    }
}

impl Held for Shadow {
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

impl Ghosts {
    /// Ghosts beside one of `shards` shards with `limits` each.
    pub(super) fn new(
        policies: &[&'static PolicyRow],
        limits: Limits,
        shards: usize,
        hash_state: &SeedableRandomState,
    ) -> Ghosts {
        let rows_max = (ROWS_MAX / shards).max(SHARD_ROWS_MIN);
        let ghost = |row: &&'static PolicyRow| Ghost {
            policy: row.name,
            shard: Shard::new(limits, (row.new)(), hash_state.clone()),
            limits,
            rows_max,
            halvings: 0,
            misses: 0,
            hits_told: 0,
        };
        Ghosts { reads: 0, ghosts: policies.iter().map(ghost).collect() }
    }

    /// The cache answered a read with a row of this cost.
    pub(super) fn hit(&mut self, hash: u64, cost: usize) {
        self.reads += 1;
        self.each(hash, |ghost| {
            if !ghost.read(hash) {
                ghost.insert(hash, cost);
            }
        });
    }

    /// The cache could not answer a read. What it brings is told by [`Self::filled`], if anything.
    pub(super) fn missed(&mut self, hash: u64) {
        self.reads += 1;
        self.each(hash, |ghost| {
            ghost.read(hash);
        });
    }

    /// A read brought a row from the store. Whoever has it already would not have asked.
    pub(super) fn filled(&mut self, hash: u64, cost: usize) {
        self.each(hash, |ghost| {
            if ghost.shard.peek(hash, &hash).is_none() {
                ghost.insert(hash, cost);
            }
        });
    }

    /// A row was written.
    pub(super) fn written(&mut self, hash: u64, cost: usize) {
        self.each(hash, |ghost| ghost.insert(hash, cost));
    }

    /// A row was deleted, or must not be served any more.
    pub(super) fn removed(&mut self, hash: u64) {
        self.each(hash, |ghost| {
            ghost.shard.remove(hash, &hash);
        });
    }

    /// All rows were.
    pub(super) fn cleared(&mut self) {
        self.ghosts.iter_mut().for_each(|ghost| ghost.shard.clear());
    }

    /// What each ghost counted.
    pub(super) fn counts(&mut self) -> impl Iterator<Item = GhostCounts> {
        let reads = self.reads;
        self.ghosts.iter_mut().map(move |ghost| {
            ghost.hits_told = ghost.hits_told.max(reads.saturating_sub(ghost.misses));
            GhostCounts { policy: ghost.policy, hits: ghost.hits_told, misses: ghost.misses }
        })
    }

    fn each(&mut self, hash: u64, act: impl Fn(&mut Ghost)) {
        self.ghosts.iter_mut().filter(|ghost| is_sampled(hash, ghost.halvings)).for_each(act);
    }
}

impl Ghost {
    /// Whether it would have had the row.
    fn read(&mut self, hash: u64) -> bool {
        let is_held = self.shard.get(hash, &hash).is_some();
        if !is_held {
            self.misses += 1 << self.halvings;
        }
        is_held
    }

    fn insert(&mut self, hash: u64, cost: usize) {
        self.shard.insert(hash, Shadow::new(hash, cost));
        while self.shard.counts().entries > self.rows_max {
            self.halvings += 1;
            let halvings = self.halvings;
            let limits =
                Limits { entries: self.limits.entries >> halvings, bytes: self.limits.bytes >> halvings };
            self.shard.shrink(limits, |shadow| is_sampled(shadow.hash, halvings));
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

    fn ghosts(limits: Limits, shards: usize) -> Ghosts {
        let state = SeedableRandomState::with_seed(0, SharedSeed::global_fixed());
        Ghosts::new(&POLICIES.iter().collect::<Vec<_>>(), limits, shards, &state)
    }

    #[test]
    fn a_sampled_ghost_is_bounded_and_says_about_what_a_whole_one_says() {
        let limits = Limits { entries: 4000, bytes: usize::MAX };
        // Beside one of 64 shards a ghost holds 1024 rows, a quarter of what the limits allow.
        let (mut whole, mut sampled) = (ghosts(limits, 1), ghosts(limits, 64));
        let mut told = (0, 0);
        for (i, key) in zipf(40_000, 0.9, 5).take(150_000).enumerate() {
            whole.hit(hash(key), 100);
            sampled.hit(hash(key), 100);
            if i % 100 == 0 {
                let lru = sampled.counts().next().unwrap();
                assert!(lru.hits >= told.0 && lru.misses >= told.1, "a counter fell: {lru:?} after {told:?}");
                told = (lru.hits, lru.misses);
            }
        }
        for (whole, (sampled, ghost)) in
            whole.counts().zip(sampled.counts().collect::<Vec<_>>().iter().zip(&sampled.ghosts))
        {
            let ratio = |of: &GhostCounts| of.hits as f64 / (of.hits + of.misses) as f64;
            let off = ratio(sampled) - ratio(&whole);
            assert!(off.abs() < 0.02, "{}: {off:+.3}", whole.policy);
            assert!(
                (600..=1024).contains(&ghost.shard.counts().entries) && ghost.halvings == 2,
                "{}",
                ghost.halvings
            );
        }
    }

    #[test]
    fn a_slot_of_a_ghost_is_small() {
        assert_eq!(size_of::<Option<Shadow>>(), 16);
    }

    #[test]
    fn a_ghost_fills_what_it_misses_and_only_that() {
        let mut ghosts = ghosts(Limits { entries: 2, bytes: usize::MAX }, 1);
        let lru = |ghosts: &mut Ghosts| ghosts.counts().next().map(|of| (of.hits, of.misses)).unwrap();
        ghosts.written(1, 100);
        ghosts.written(2, 100);
        // The real cache did not have 1, the ghost did: what the store brings does not touch it again.
        ghosts.missed(1);
        assert_eq!(lru(&mut ghosts), (1, 0));
        ghosts.hit(2, 100);
        ghosts.filled(1, 100);
        assert_eq!(lru(&mut ghosts), (2, 0));
        // 1 is the oldest now and makes room for 3, which the real cache has and the ghost has not.
        ghosts.hit(3, 100);
        ghosts.missed(1);
        assert_eq!(lru(&mut ghosts), (2, 2));
        ghosts.removed(2);
        ghosts.missed(2);
        ghosts.cleared();
        ghosts.hit(3, 100);
        assert_eq!(lru(&mut ghosts), (2, 4));
    }
}
