//! One shard: an index of 32-bit slots over a slab of entries.
//!
//! Everything here runs under the shard's lock. The entries are rows, or in a shadow policy their hashes and
//! sizes. Both use this code, so that a shadow policy does what the cache would do.

use super::policy::{Policy, Slot};
use super::{Counts, Limits};
use foldhash::fast::SeedableRandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// What a shard holds.
pub(super) trait Held {
    /// By what it is found.
    type Key: PartialEq + ?Sized;
    /// Its own.
    fn key(&self) -> &Self::Key;
    /// The hash of its key.
    fn hash(&self, state: &SeedableRandomState) -> u64;
    /// Bytes it is counted with.
    fn cost(&self) -> usize;
}

/// Laid out as written: beside its lock, what a hit writes fills one cache line, and what it only reads begins the next.
#[repr(C)]
pub(super) struct Shard<T> {
    recent: Recent,
    index: HashTable<Slot>,
    entries: Vec<Option<T>>,
    free: Vec<Slot>,
    policy: Box<dyn Policy>,
    hash_state: SeedableRandomState,
    limits: Limits,
    bytes: usize,
    evictions: u64,
}

/// Hits that are not reported to the policy yet, in their order. They are reported before anything else happens, so that the
/// policy decides as if they had been reported at once.
struct Recent {
    count: u32,
    slots: [Slot; 13],
}

impl<T: Held> Shard<T> {
    pub(super) fn new(limits: Limits, policy: Box<dyn Policy>, hash_state: SeedableRandomState) -> Shard<T> {
        Shard {
            recent: Recent { count: 0, slots: [0; _] },
            index: HashTable::new(),
            entries: Vec::new(),
            free: Vec::new(),
            policy,
            hash_state,
            limits,
            bytes: 0,
            evictions: 0,
        }
    }

    /// What `look` makes of what is held under `key`; if that is anything, the policy learns that it was asked for.
    pub(super) fn look<R>(
        &mut self,
        hash: u64,
        key: &T::Key,
        look: impl FnOnce(&T) -> Option<R>,
    ) -> Option<R> {
        let slot = *self.index.find(hash, |&slot| holds(&self.entries, slot, key))?;
        let seen = look(self.entries[slot as usize].as_ref()?)?;
        self.recent.slots[self.recent.count as usize] = slot;
        self.recent.count += 1;
        if self.recent.count as usize == self.recent.slots.len() {
            self.catch_up();
        }
        Some(seen)
    }

    /// Reports the pending hits to the policy.
    #[inline(never)]
    fn catch_up(&mut self) {
        let count = std::mem::take(&mut self.recent.count) as usize;
        self.policy.on_hits(&self.recent.slots[..count]);
    }

    /// The same without the policy learning of it.
    pub(super) fn peek(&self, hash: u64, key: &T::Key) -> Option<&T> {
        let slot = *self.index.find(hash, |&slot| holds(&self.entries, slot, key))?;
        self.entries[slot as usize].as_ref()
    }

    /// Whether the entry is in the shard now; see [`super::Cache::insert`].
    pub(super) fn insert(&mut self, hash: u64, new: T) -> bool {
        self.catch_up();
        let cost = new.cost();
        if cost > self.limits.bytes || self.limits.entries == 0 {
            self.remove(hash, new.key());
            return false;
        }
        let (entries, state) = (&self.entries, &self.hash_state);
        let hash_of_slot = |&slot: &Slot| entries[slot as usize].as_ref().map_or(0, |held| held.hash(state));
        match self.index.entry(hash, |&slot| holds(entries, slot, new.key()), hash_of_slot) {
            Entry::Occupied(entry) => {
                let slot = *entry.get();
                self.policy.on_hit(slot);
                if let Some(old) = self.entries[slot as usize].replace(new) {
                    self.bytes = self.bytes - old.cost() + cost;
                }
                // It may have grown, and then the policy may choose it itself.
                let mut stays = true;
                while self.over(0) {
                    stays &= self.evict() != slot;
                }
                stays
            }
            Entry::Vacant(entry) => {
                let slot = self.free.pop().unwrap_or(self.entries.len() as Slot);
                entry.insert(slot);
                if slot as usize == self.entries.len() {
                    self.entries.push(Some(new));
                } else {
                    self.entries[slot as usize] = Some(new);
                }
                self.bytes += cost;
                // Room is made before the policy learns of the new one, so that this is never its own victim.
                while self.over(1) {
                    self.evict();
                }
                self.policy.on_insert(slot, hash);
                true
            }
        }
    }

    /// Whether it held anything under `key`.
    pub(super) fn remove(&mut self, hash: u64, key: &T::Key) -> bool {
        self.catch_up();
        let found = self.index.find(hash, |&slot| holds(&self.entries, slot, key)).copied();
        found.inspect(|slot| self.release(*slot)).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.catch_up();
        self.index.drain().for_each(|slot| self.policy.on_remove(slot));
        self.entries.clear();
        self.free.clear();
        self.bytes = 0;
    }

    /// Takes out what `keep` does not want, and what passes the new limits then.
    pub(super) fn shrink(&mut self, limits: Limits, keep: impl Fn(&T) -> bool) {
        self.catch_up();
        self.limits = limits;
        for slot in 0..self.entries.len() as Slot {
            if self.entries[slot as usize].as_ref().is_some_and(|held| !keep(held)) {
                self.release(slot);
            }
        }
        while self.over(0) {
            self.evict();
        }
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { entries: self.index.len(), bytes: self.bytes, evictions: self.evictions }
    }

    /// Whether a limit is passed while the policy knows of all entries but `unknown`.
    fn over(&self, unknown: usize) -> bool {
        let known = self.index.len() - unknown;
        known > 0 && (self.index.len() > self.limits.entries || self.bytes > self.limits.bytes)
    }

    /// Evicts a row; its slot.
    fn evict(&mut self) -> Slot {
        let slot = self.policy.victim();
        self.release(slot);
        self.evictions += 1;
        slot
    }

    fn release(&mut self, slot: Slot) {
        let Some(held) = self.entries[slot as usize].take() else { return };
        if let Ok(entry) = self.index.find_entry(held.hash(&self.hash_state), |&other| other == slot) {
            entry.remove();
        }
        self.policy.on_remove(slot);
        self.free.push(slot);
        self.bytes -= held.cost();
    }
}

fn holds<T: Held>(entries: &[Option<T>], slot: Slot, key: &T::Key) -> bool {
    entries[slot as usize].as_ref().is_some_and(|held| held.key() == key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use foldhash::SharedSeed;
    use parking_lot::Mutex;
    use std::sync::Arc;

    impl Held for u64 {
        type Key = u64;

        fn key(&self) -> &u64 {
            self
        }

        fn hash(&self, _state: &SeedableRandomState) -> u64 {
            self << 57 | self
        }

        fn cost(&self) -> usize {
            1
        }
    }

    /// Writes down what it is told; the lowest slot leaves.
    struct Told(Arc<Mutex<Vec<String>>>, Vec<Slot>);

    impl Told {
        fn note(&self, what: &str, slot: Slot) {
            self.0.lock().push(format!("{what}{slot}"));
        }
    }

    impl Policy for Told {
        fn on_insert(&mut self, slot: Slot, _hash: u64) {
            self.note("+", slot);
            self.1.push(slot);
        }

        fn on_hit(&mut self, slot: Slot) {
            self.note("", slot);
        }

        fn on_remove(&mut self, slot: Slot) {
            self.note("-", slot);
            self.1.retain(|other| *other != slot);
        }

        fn victim(&mut self) -> Slot {
            let slot = self.1.iter().min().copied().unwrap();
            self.note("?", slot);
            slot
        }
    }

    #[test]
    fn a_shard_tells_its_policy_all_that_happened_in_order() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let state = SeedableRandomState::with_seed(0, SharedSeed::global_fixed());
        let limits = Limits { entries: 2, bytes: 100 };
        let mut shard = Shard::new(limits, Box::new(Told(Arc::clone(&told), Vec::new())), state.clone());
        let check = |expected: &str| assert_eq!(std::mem::take(&mut *told.lock()).join(" "), expected);
        let hash = |key: u64| key.hash(&state);
        let hit = |shard: &mut Shard<u64>, key| assert!(shard.look(hash(key), &key, |_| Some(())).is_some());
        shard.insert(hash(7), 7);
        shard.insert(hash(8), 8);
        check("+0 +1");
        hit(&mut shard, 8);
        hit(&mut shard, 7);
        shard.insert(hash(9), 9);
        check("1 0 ?0 -0 +2");
        hit(&mut shard, 9);
        assert!(shard.look(hash(7), &7, |_| Some(())).is_none() && shard.peek(hash(8), &8).is_some());
        shard.insert(hash(8), 8);
        check("2 1");
        hit(&mut shard, 8);
        shard.remove(hash(8), &8);
        check("1 -1");
        hit(&mut shard, 9);
        shard.shrink(limits, |_| false);
        check("2 -2");
        shard.insert(hash(9), 9);
        hit(&mut shard, 9);
        shard.clear();
        check("+2 2 -2");
        // Many in a row do not wait for ever.
        shard.insert(hash(7), 7);
        (0..100).for_each(|_| hit(&mut shard, 7));
        assert!(told.lock().len() > 50);
    }

    #[test]
    fn what_a_hit_writes_is_in_the_cache_line_of_the_lock() {
        // A lock takes eight bytes in front.
        assert_eq!(
            (std::mem::offset_of!(Shard<u64>, recent), std::mem::offset_of!(Shard<u64>, index)),
            (0, RECENT_BYTES)
        );
        assert_eq!((RECENT_BYTES + 8) % 64, 0);
        const RECENT_BYTES: usize = size_of::<Recent>();
    }
}
