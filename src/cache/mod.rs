//! A bounded map from keys to rows, in shards, with a choice of who leaves when it is full.
//!
//! Knows no store, no HTTP, no clock and no async: it never waits and never does I/O. What may enter is decided
//! above, in `tiered`.

pub mod policy;
mod shard;

use crate::kv::{Row, Version};
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use parking_lot::Mutex;
use policy::PolicyRow;
use shard::Shard;
use std::hash::{BuildHasher, Hasher};

/// What a cached row costs beyond its key, content type and value, in bytes: its slot, its index entry, its links in
/// the policy and the header of its allocation. Counted against [`Limits::bytes`].
pub const ENTRY_OVERHEAD_BYTES: usize = 80;

/// A smaller shard would evict rows that the whole cache has room for: keys do not spread evenly over few slots.
pub const SHARD_ENTRIES_MIN: usize = 64;

/// How much a cache may hold; whichever is reached first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Rows.
    pub entries: usize,
    /// Bytes of keys, content types and values, plus [`ENTRY_OVERHEAD_BYTES`] each.
    pub bytes: usize,
}

/// What a cache holds, and how many rows had to leave it for others since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows in it now.
    pub entries: usize,
    /// Bytes they are counted with.
    pub bytes: usize,
    /// Rows pushed out by others.
    pub evictions: u64,
}

/// Where a key lives: its hash, computed once per operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    hash: u64,
    /// The shard, `0..shard_count`.
    pub shard: usize,
}

/// The cache. All methods may be called from any thread; each takes one shard's lock for a few hundred nanoseconds.
pub struct Cache {
    shards: Box<[Mutex<Shard>]>,
    hash_state: SeedableRandomState,
}

impl Cache {
    /// An empty cache that shares `limits` evenly among `shards` (rounded up to a power of two; fewer when a shard
    /// would hold under [`SHARD_ENTRIES_MIN`] rows).
    ///
    /// The policy rules each shard on its own: with one shard, evictions follow it exactly.
    pub fn new(limits: Limits, shards: usize, policy: &PolicyRow) -> Cache {
        let most = (limits.entries / SHARD_ENTRIES_MIN).max(1);
        let count = shards.clamp(1, 1 << 16).next_power_of_two().min(1 << most.ilog2());
        let per_shard = Limits { entries: limits.entries / count, bytes: limits.bytes / count };
        // Seeded at random per process: whoever sends the keys cannot aim at one shard or one bucket.
        let hash_state = SeedableRandomState::with_seed(random_seed(), SharedSeed::global_random());
        Cache {
            shards: (0..count)
                .map(|_| Mutex::new(Shard::new(per_shard, (policy.new)(), hash_state.clone())))
                .collect(),
            hash_state,
        }
    }

    /// A power of two.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Where `key` lives in this cache.
    pub fn place(&self, key: &[u8]) -> Place {
        let hash = hash_of(&self.hash_state, key);
        // The index inside a shard uses the lowest and the highest bits.
        Place { hash, shard: (hash >> 32) as usize & (self.shards.len() - 1) }
    }

    /// The row under `key`, and a mark for the policy that it was asked for.
    pub fn get(&self, place: Place, key: &[u8]) -> Option<Row> {
        self.shards[place.shard].lock().get(place.hash, key)
    }

    /// The version of the row under `key`, without the policy learning of it.
    pub fn version(&self, place: Place, key: &[u8]) -> Option<Version> {
        self.shards[place.shard].lock().peek(place.hash, key).map(Row::version)
    }

    /// Puts a row in, in place of any other under its key, and pushes out what the limits ask for. `false`
    /// where there is no room for it at all: it is larger than a shard's share of the bytes, or that of the entries is 0.
    pub fn insert(&self, place: Place, row: Row) -> bool {
        self.shards[place.shard].lock().insert(place.hash, row)
    }

    /// Takes the row under `key` out, if there is one, and gives it back.
    pub fn remove(&self, place: Place, key: &[u8]) -> Option<Row> {
        self.shards[place.shard].lock().remove(place.hash, key)
    }

    /// Takes every row of a shard out.
    pub fn clear_shard(&self, shard: usize) {
        self.shards[shard].lock().clear();
    }

    /// Sums over the shards, taken one after the other.
    pub fn counts(&self) -> Counts {
        self.shards.iter().map(|shard| shard.lock().counts()).fold(Counts::default(), |sum, one| Counts {
            entries: sum.entries + one.entries,
            bytes: sum.bytes + one.bytes,
            evictions: sum.evictions + one.evictions,
        })
    }
}

/// A number that differs between runs of the program.
fn random_seed() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

fn hash_of(state: &SeedableRandomState, key: &[u8]) -> u64 {
    let mut hasher = state.build_hasher();
    hasher.write(key);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Key;

    fn row(key: &str, value: &[u8], version: u64) -> Row {
        Row::new(&Key::new(key.as_bytes()).unwrap(), "", value, Version(version))
    }

    fn cache(entries: usize, bytes: usize, shards: usize) -> Cache {
        Cache::new(Limits { entries, bytes }, shards, policy::find("lru").unwrap())
    }

    fn put(cache: &Cache, row: Row) {
        let place = cache.place(row.key());
        cache.insert(place, row);
    }

    fn value(cache: &Cache, key: &str) -> Option<Vec<u8>> {
        cache.get(cache.place(key.as_bytes()), key.as_bytes()).map(|row| row.value().to_vec())
    }

    #[test]
    fn an_inserted_row_is_found_until_it_is_removed() {
        let cache = cache(100, 1 << 20, 4);
        put(&cache, row("a", b"1", 1));
        put(&cache, row("a", b"2", 2));
        assert_eq!(value(&cache, "a"), Some(b"2".to_vec()));
        assert_eq!(cache.counts().entries, 1);
        assert_eq!(cache.remove(cache.place(b"a"), b"a").map(|row| row.version()), Some(Version(2)));
        assert_eq!(value(&cache, "a"), None);
        assert_eq!(cache.counts(), Counts::default());
    }

    #[test]
    fn neither_limit_is_ever_passed() {
        for (entries, bytes, shards) in [(64, 16_000, 1), (10, 5_000, 16), (300, 30_000, 4)] {
            let cache = cache(entries, bytes, shards);
            for i in 0..10_000u64 {
                put(&cache, row(&format!("key{}", i * 7919 % 500), &vec![0; (i % 300) as usize], i));
                let counts = cache.counts();
                assert!(counts.entries <= entries && counts.bytes <= bytes, "{counts:?}");
            }
            assert!(cache.counts().evictions > 1000);
        }
    }

    #[test]
    fn a_row_too_large_for_the_cache_replaces_and_displaces_nothing_else() {
        let cache = cache(10, 1000, 1);
        put(&cache, row("small", b"1", 1));
        put(&cache, row("big", b"1", 2));
        put(&cache, row("big", &[0; 2000], 3));
        assert_eq!(value(&cache, "small"), Some(b"1".to_vec()));
        assert_eq!(value(&cache, "big"), None, "the older row must not outlive the newer one");
    }

    #[test]
    fn a_cleared_shard_is_empty_and_usable() {
        let cache = cache(10, 100_000, 1);
        put(&cache, row("a", b"1", 1));
        cache.clear_shard(0);
        assert_eq!(value(&cache, "a"), None);
        put(&cache, row("b", b"2", 2));
        assert_eq!((cache.counts().entries, value(&cache, "b")), (1, Some(b"2".to_vec())));
    }
}
