//! One shard: an index of 32-bit slots over a slab of rows.
//!
//! Everything here runs under the shard's lock.

use super::policy::{Policy, Slot};
use super::{Counts, ENTRY_OVERHEAD_BYTES, Limits, hash_of};
use crate::kv::Row;
use foldhash::fast::SeedableRandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

pub(super) struct Shard {
    index: HashTable<Slot>,
    rows: Vec<Option<Row>>,
    free: Vec<Slot>,
    policy: Box<dyn Policy>,
    hash_state: SeedableRandomState,
    limits: Limits,
    bytes: usize,
    evictions: u64,
}

impl Shard {
    pub(super) fn new(limits: Limits, policy: Box<dyn Policy>, hash_state: SeedableRandomState) -> Shard {
        Shard {
            index: HashTable::new(),
            rows: Vec::new(),
            free: Vec::new(),
            policy,
            hash_state,
            limits,
            bytes: 0,
            evictions: 0,
        }
    }

    pub(super) fn get(&mut self, hash: u64, key: &[u8]) -> Option<Row> {
        let slot = *self.index.find(hash, |&slot| holds(&self.rows, slot, key))?;
        self.policy.on_hit(slot);
        self.rows[slot as usize].clone()
    }

    pub(super) fn peek(&self, hash: u64, key: &[u8]) -> Option<&Row> {
        let slot = *self.index.find(hash, |&slot| holds(&self.rows, slot, key))?;
        self.rows[slot as usize].as_ref()
    }

    /// Whether the row came in; see [`super::Cache::insert`].
    pub(super) fn insert(&mut self, hash: u64, row: Row) -> bool {
        let cost = cost(&row);
        if cost > self.limits.bytes || self.limits.entries == 0 {
            self.remove(hash, row.key());
            return false;
        }
        let (rows, state) = (&self.rows, &self.hash_state);
        let hash_of_slot =
            |&slot: &Slot| rows[slot as usize].as_ref().map_or(0, |row| hash_of(state, row.key()));
        match self.index.entry(hash, |&slot| holds(rows, slot, row.key()), hash_of_slot) {
            Entry::Occupied(entry) => {
                let slot = *entry.get();
                self.policy.on_hit(slot);
                if let Some(old) = self.rows[slot as usize].replace(row) {
                    self.bytes = self.bytes - self::cost(&old) + cost;
                }
            }
            Entry::Vacant(entry) => {
                let slot = self.free.pop().unwrap_or(self.rows.len() as Slot);
                entry.insert(slot);
                if slot as usize == self.rows.len() {
                    self.rows.push(Some(row));
                } else {
                    self.rows[slot as usize] = Some(row);
                }
                self.bytes += cost;
                // Room is made before the policy learns of the new row, so that the new row is never its own victim.
                while self.over(1) {
                    self.evict();
                }
                self.policy.on_insert(slot, hash);
            }
        }
        while self.over(0) {
            self.evict();
        }
        true
    }

    pub(super) fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Row> {
        let entry = self.index.find_entry(hash, |&slot| holds(&self.rows, slot, key)).ok()?;
        let (slot, _) = entry.remove();
        self.policy.on_remove(slot);
        self.take(slot)
    }

    pub(super) fn clear(&mut self) {
        let rows = &mut self.rows;
        self.index.drain().for_each(|slot| {
            self.policy.on_remove(slot);
            rows[slot as usize] = None;
        });
        self.rows.clear();
        self.free.clear();
        self.bytes = 0;
    }

    pub(super) fn counts(&self) -> Counts {
        Counts { entries: self.index.len(), bytes: self.bytes, evictions: self.evictions }
    }

    /// Whether a limit is passed while the policy knows of all rows but `unknown`.
    fn over(&self, unknown: usize) -> bool {
        let known = self.index.len() - unknown;
        known > 0 && (self.index.len() > self.limits.entries || self.bytes > self.limits.bytes)
    }

    fn evict(&mut self) {
        let slot = self.policy.victim();
        let hash = self.rows[slot as usize].as_ref().map_or(0, |row| hash_of(&self.hash_state, row.key()));
        if let Ok(entry) = self.index.find_entry(hash, |&other| other == slot) {
            entry.remove();
        }
        self.policy.on_remove(slot);
        self.take(slot);
        self.evictions += 1;
    }

    fn take(&mut self, slot: Slot) -> Option<Row> {
        let row = self.rows[slot as usize].take()?;
        self.free.push(slot);
        self.bytes -= cost(&row);
        Some(row)
    }
}

fn holds(rows: &[Option<Row>], slot: Slot, key: &[u8]) -> bool {
    rows[slot as usize].as_ref().is_some_and(|row| row.key() == key)
}

fn cost(row: &Row) -> usize {
    row.bytes() + ENTRY_OVERHEAD_BYTES
}
