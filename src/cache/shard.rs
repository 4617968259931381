//! One shard: an index of 32-bit slots over a slab of entries.
//!
//! Everything here runs under the shard's lock. The entries are rows, or in a ghost what stands for them: both live by
//! the same code, so that a ghost cannot do otherwise than the cache would.

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

pub(super) struct Shard<T> {
    index: HashTable<Slot>,
    entries: Vec<Option<T>>,
    free: Vec<Slot>,
    policy: Box<dyn Policy>,
    hash_state: SeedableRandomState,
    limits: Limits,
    bytes: usize,
    evictions: u64,
}

impl<T: Held> Shard<T> {
    pub(super) fn new(limits: Limits, policy: Box<dyn Policy>, hash_state: SeedableRandomState) -> Shard<T> {
        Shard {
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

    /// What is held under `key`; the policy learns that it was asked for.
    pub(super) fn get(&mut self, hash: u64, key: &T::Key) -> Option<&T> {
        let slot = *self.index.find(hash, |&slot| holds(&self.entries, slot, key))?;
        self.policy.on_hit(slot);
        self.entries[slot as usize].as_ref()
    }

    /// The same without the policy learning of it.
    pub(super) fn peek(&self, hash: u64, key: &T::Key) -> Option<&T> {
        let slot = *self.index.find(hash, |&slot| holds(&self.entries, slot, key))?;
        self.entries[slot as usize].as_ref()
    }

    /// Whether the entry is in the shard now; see [`super::Cache::insert`].
    pub(super) fn insert(&mut self, hash: u64, new: T) -> bool {
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

    pub(super) fn remove(&mut self, hash: u64, key: &T::Key) -> Option<T> {
        let entry = self.index.find_entry(hash, |&slot| holds(&self.entries, slot, key)).ok()?;
        let (slot, _) = entry.remove();
        self.policy.on_remove(slot);
        self.take(slot)
    }

    pub(super) fn clear(&mut self) {
        let entries = &mut self.entries;
        self.index.drain().for_each(|slot| {
            self.policy.on_remove(slot);
            entries[slot as usize] = None;
        });
        self.entries.clear();
        self.free.clear();
        self.bytes = 0;
    }

    /// Takes out what `keep` does not want, and what passes the new limits then.
    pub(super) fn shrink(&mut self, limits: Limits, keep: impl Fn(&T) -> bool) {
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

    /// Whom the policy sent away.
    fn evict(&mut self) -> Slot {
        let slot = self.policy.victim();
        self.release(slot);
        self.evictions += 1;
        slot
    }

    fn release(&mut self, slot: Slot) {
        let hash = self.entries[slot as usize].as_ref().map_or(0, |held| held.hash(&self.hash_state));
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.policy.on_remove(slot);
        self.take(slot);
    }

    fn take(&mut self, slot: Slot) -> Option<T> {
        let held = self.entries[slot as usize].take()?;
        self.free.push(slot);
        self.bytes -= held.cost();
        Some(held)
    }
}

fn holds<T: Held>(entries: &[Option<T>], slot: Slot, key: &T::Key) -> bool {
    entries[slot as usize].as_ref().is_some_and(|held| held.key() == key)
}
