//! A bounded map from keys to rows, in shards, with a choice of eviction policies.
//!
//! Knows no store, no HTTP, no clock and no async: it never waits and never does I/O. What may enter is decided
//! above, in `tiered`.

pub mod policy;
mod shadow;
mod shard;

pub use shadow::ShadowCounts;

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use kv::{Row, Version};
use parking_lot::{Mutex, MutexGuard};
use policy::PolicyRow;
use shadow::ShadowPolicies;
use shard::{Held, Shard};
use std::hash::{BuildHasher, Hasher};

/// What a cached row costs beyond its key, content type and value, in bytes: its slot, its index entry, what the policy
/// keeps for it, the header of its allocation and what the allocator rounds up. Counted against [`Limits::bytes`].
///
/// That of the policy that needs most, as resident memory of a million rows of 116 bytes: 85 with `w-tinylfu` and with
/// `s3fifo`, 58 to 63 with the others.
pub const ENTRY_OVERHEAD_BYTES: usize = 88;

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

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(all: I) -> Counts {
        all.fold(Counts::default(), |sum, one| Counts {
            entries: sum.entries + one.entries,
            bytes: sum.bytes + one.bytes,
            evictions: sum.evictions + one.evictions,
        })
    }
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
    shards: Box<[LockedShard]>,
    hash_state: SeedableRandomState,
    /// Of each shard.
    limits: Limits,
    has_shadows: bool,
}

/// A shard with its lock, in cache lines of its own.
#[repr(align(64))]
struct LockedShard(Mutex<ShardState>);

#[repr(C)]
struct ShardState {
    rows: Shard<Row>,
    shadows: Option<Box<ShadowPolicies>>,
}

impl Held for Row {
    type Key = [u8];

    fn key(&self) -> &[u8] {
        Row::key(self)
    }

    fn hash(&self, state: &SeedableRandomState) -> u64 {
        hash_of(state, Row::key(self))
    }

    fn cost(&self) -> usize {
        self.bytes() + ENTRY_OVERHEAD_BYTES
    }
}

impl Cache {
    /// An empty cache that shares `limits` evenly among `shards` (rounded up to a power of two; fewer when a shard
    /// would hold under [`SHARD_ENTRIES_MIN`] rows).
    ///
    /// The policy rules each shard on its own: with one shard, evictions follow it exactly.
    pub fn new(limits: Limits, shards: usize, policy: &PolicyRow) -> Cache {
        let most = (limits.entries / SHARD_ENTRIES_MIN).max(1);
        let count = shards.clamp(1, 1 << 16).next_power_of_two().min(1 << most.ilog2());
        let limits = Limits { entries: limits.entries / count, bytes: limits.bytes / count };
        // Seeded at random per process: a client cannot aim at one shard or one bucket.
        let hash_state = SeedableRandomState::with_seed(random_seed(), SharedSeed::global_random());
        Cache {
            shards: (0..count)
                .map(|_| Shard::new(limits, (policy.new)(), hash_state.clone()))
                .map(|rows| LockedShard(Mutex::new(ShardState { rows, shadows: None })))
                .collect(),
            hash_state,
            limits,
            has_shadows: false,
        }
    }

    /// The same, still empty, with these shadow policies: [`Cache::shadow_counts`].
    pub fn with_shadow_policies(mut self, policies: &[&'static PolicyRow]) -> Cache {
        self.has_shadows = !policies.is_empty();
        let count = self.shards.len();
        for shard in &mut self.shards {
            let shadows = ShadowPolicies::new(policies, self.limits, count, &self.hash_state);
            shard.0.get_mut().shadows = self.has_shadows.then(|| Box::new(shadows));
        }
        self
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
        self.look(place, key, |row| Some(row.clone()))
    }

    /// What `look` makes of the row under `key`, and a mark for the policy as in [`Cache::get`]. Cheaper by what it costs
    /// to share the row; but `look` runs under the shard's lock, so it must be short and must not come back here. Of a row of which it
    /// makes nothing no policy learns.
    pub fn look<R>(&self, place: Place, key: &[u8], look: impl FnOnce(&Row) -> Option<R>) -> Option<R> {
        let mut state = self.lock(place.shard);
        let ShardState { rows, shadows } = &mut *state;
        rows.look(place.hash, key, |row| {
            let seen = look(row)?;
            if let Some(shadows) = shadows {
                shadows.hit(place.hash, row.cost());
            }
            Some(seen)
        })
    }

    /// Reports a read that goes to the store to the shadow policies. [`Cache::get`] does not: a reader may call it more than
    /// once before it goes to the store.
    pub fn missed(&self, place: Place) {
        // Without shadow policies there is no need to lock.
        if self.has_shadows
            && let Some(shadows) = &mut self.lock(place.shard).shadows
        {
            shadows.missed(place.hash);
        }
    }

    /// The version of the row under `key`, without the policy learning of it.
    pub fn version(&self, place: Place, key: &[u8]) -> Option<Version> {
        self.peek(place, key, Row::version)
    }

    /// What `look` makes of the row under `key`, without the policy learning of it.
    pub fn peek<R>(&self, place: Place, key: &[u8], look: impl FnOnce(&Row) -> R) -> Option<R> {
        self.lock(place.shard).rows.peek(place.hash, key).map(look)
    }

    /// Puts a row in that was written, in place of any other under its key, and pushes out what the limits ask for.
    /// Whether it is there now. It is not where there is no room for it at all: it is larger than a shard's share of the
    /// bytes, or that of the entries is 0; nor where it replaced a smaller one and the policy then chose it to leave.
    pub fn insert(&self, place: Place, row: Row) -> bool {
        self.enter(place, row, ShadowPolicies::written)
    }

    /// The same with a row that was read.
    pub fn fill(&self, place: Place, row: Row) -> bool {
        self.enter(place, row, ShadowPolicies::filled)
    }

    fn enter(&self, place: Place, row: Row, report: impl FnOnce(&mut ShadowPolicies, u64, usize)) -> bool {
        let mut state = self.lock(place.shard);
        if let Some(shadows) = &mut state.shadows {
            report(shadows, place.hash, row.cost());
        }
        state.rows.insert(place.hash, row)
    }

    /// Takes the row under `key` out. Whether there was one.
    pub fn remove(&self, place: Place, key: &[u8]) -> bool {
        let mut state = self.lock(place.shard);
        if let Some(shadows) = &mut state.shadows {
            shadows.removed(place.hash);
        }
        state.rows.remove(place.hash, key)
    }

    /// Takes every row of a shard out.
    pub fn clear_shard(&self, shard: usize) {
        let mut state = self.lock(shard);
        state.rows.clear();
        if let Some(shadows) = &mut state.shadows {
            shadows.cleared();
        }
    }

    /// The most it may hold. What did not divide evenly among the shards is not in it.
    pub fn limits(&self) -> Limits {
        let Limits { entries, bytes } = self.limits;
        Limits { entries: entries * self.shards.len(), bytes: bytes * self.shards.len() }
    }

    /// Sums over the shards, taken one after the other.
    pub fn counts(&self) -> Counts {
        self.shards.iter().map(|shard| shard.0.lock().rows.counts()).sum()
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, ShardState> {
        self.shards[shard].0.lock()
    }

    /// The counts of the shadow policies, in the order given; sums as in [`Cache::counts`].
    pub fn shadow_counts(&self) -> Vec<ShadowCounts> {
        let mut sums: Vec<ShadowCounts> = Vec::new();
        for shard in self.shards.iter().filter(|_| self.has_shadows) {
            for (i, one) in shard.0.lock().shadows.iter_mut().flat_map(|shadows| shadows.counts()).enumerate()
            {
                match sums.get_mut(i) {
                    Some(sum) => (sum.hits, sum.misses) = (sum.hits + one.hits, sum.misses + one.misses),
                    None => sums.push(one),
                }
            }
        }
        sums
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
    use kv::Key;

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
        assert!(cache.remove(cache.place(b"a"), b"a"));
        assert_eq!(value(&cache, "a"), None);
        assert_eq!(cache.counts(), Counts::default());
    }

    #[test]
    fn a_look_finds_what_a_get_finds_and_the_policy_learns_of_it() {
        let cache = cache(2, 1 << 20, 1);
        put(&cache, row("a", b"1", 1));
        put(&cache, row("b", b"2", 2));
        let look = |key: &str| {
            cache.look(cache.place(key.as_bytes()), key.as_bytes(), |row| {
                Some((row.value().to_vec(), row.version()))
            })
        };
        assert_eq!(look("a"), Some((b"1".to_vec(), Version(1))));
        assert_eq!(look("c"), None);
        put(&cache, row("c", b"3", 3));
        assert_eq!((look("a").is_some(), look("b").is_some()), (true, false), "a was asked for later than b");
    }

    #[test]
    fn one_shard_of_lru_is_exactly_lru() {
        let cache = cache(20, 1 << 20, 1);
        // Youngest last.
        let mut expected: Vec<u64> = Vec::new();
        let mut random = 1u64;
        for step in 0..20_000u64 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(step);
            // Long runs of hits and short ones between changes.
            let (key, act) = (random >> 33 & 31, random >> 50 & 63);
            let name = key.to_string();
            let place = cache.place(name.as_bytes());
            let at = expected.iter().position(|other| *other == key);
            match act {
                0..4 => {
                    assert_eq!(cache.remove(place, name.as_bytes()), at.is_some(), "{step}");
                    at.map(|at| expected.remove(at));
                }
                4..10 => {
                    put(&cache, row(&name, b"v", step));
                    at.map(|at| expected.remove(at));
                    expected.push(key);
                    if expected.len() > 20 {
                        expected.remove(0);
                    }
                }
                10 => assert_eq!(cache.version(place, name.as_bytes()).is_some(), at.is_some(), "{step}"),
                _ => {
                    assert_eq!(cache.get(place, name.as_bytes()).is_some(), at.is_some(), "{step}");
                    let hit = at.map(|at| expected.remove(at));
                    expected.extend(hit);
                }
            }
        }
        assert!(cache.counts().evictions > 100, "{:?}", cache.counts());
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

    // insert said true for a row that its policy had sent away again: FIFO does not mind that a row was just replaced.
    #[test]
    fn a_replaced_row_that_has_to_leave_for_its_size_is_not_said_to_be_there() {
        let mut kept = Vec::new();
        for row_of in policy::POLICIES {
            let cache = Cache::new(Limits { entries: 10, bytes: 1000 }, 1, row_of);
            let insert = |row: Row| cache.insert(cache.place(row.key()), row);
            assert!(insert(row("a", &[0; 300], 1)) && insert(row("b", &[0; 300], 2)));
            let stays = insert(row("a", &[0; 700], 3));
            assert_eq!(value(&cache, "a").is_some(), stays, "{}", row_of.name);
            assert!(cache.counts().bytes <= 1000);
            kept.extend(stays.then_some(row_of.name));
        }
        assert_eq!(kept, ["lru", "clock", "sieve", "w-tinylfu"]);
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
