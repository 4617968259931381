//! What the embedded store has in memory: where each row is in the log.

use super::segment::{Entry, EntryKind};
use kv::{Key, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::sync::Arc;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub segment: u32,
    pub offset: u32,
    pub bytes: u32,
}

/// A segment that counts.
pub(super) struct Segment {
    pub file: Arc<File>,
    pub bytes: u64,
}

/// What is in memory.
#[derive(Default)]
pub(super) struct Index {
    pub rows: BTreeMap<Key, Place>,
    /// Of the rows that expire: when, and the same in the order of time.
    expires: HashMap<Key, Timestamp>,
    by_expiry: BTreeSet<(Timestamp, Key)>,
    /// Blocks of events, by their id.
    pub events: BTreeMap<u64, Place>,
    /// By number; the last is appended to.
    pub segments: BTreeMap<u32, Segment>,
    /// Bytes of all segments, and of the entries that `rows` and `events` point to.
    pub bytes: u64,
    pub live: u64,
}

impl Index {
    pub(super) fn put(&mut self, key: Key, place: Place, expires: Option<Timestamp>) -> bool {
        self.live += u64::from(place.bytes);
        self.set_expiry(&key, expires);
        let old = self.rows.insert(key, place);
        self.live -= old.map_or(0, |old| u64::from(old.bytes));
        old.is_some()
    }

    pub(super) fn delete(&mut self, key: &Key) -> bool {
        self.set_expiry(key, None);
        let old = self.rows.remove(key);
        self.live -= old.map_or(0, |old| u64::from(old.bytes));
        old.is_some()
    }

    pub(super) fn add_events(&mut self, id: u64, place: Place) {
        self.live += u64::from(place.bytes);
        let old = self.events.insert(id, place);
        self.live -= old.map_or(0, |old| u64::from(old.bytes));
    }

    fn trim_events(&mut self, until: u64) {
        while let Some(oldest) = self.events.first_entry().filter(|oldest| *oldest.key() <= until) {
            self.live -= u64::from(oldest.remove().bytes);
        }
    }

    /// Whether an entry is in force that is at `place`.
    pub(super) fn holds(&self, entry: &Entry, place: &Place) -> bool {
        match entry.kind {
            EntryKind::Put | EntryKind::PutWithExtra => self.rows.get(entry.key) == Some(place),
            EntryKind::Events => self.events.get(&entry.version) == Some(place),
            EntryKind::Delete | EntryKind::Meta | EntryKind::TrimEvents => false,
        }
    }

    /// All that is in force in a segment, in its order.
    pub(super) fn places_in(&self, segment: u32) -> Vec<Place> {
        let all = self.rows.values().chain(self.events.values()).copied();
        let mut places: Vec<Place> = all.filter(|place| place.segment == segment).collect();
        places.sort_unstable_by_key(|place| place.offset);
        places
    }

    fn set_expiry(&mut self, key: &Key, expires: Option<Timestamp>) {
        let old = match expires {
            // Most stores have none that expire.
            None if self.expires.is_empty() => None,
            None => self.expires.remove(key),
            Some(at) => self.expires.insert(key.clone(), at),
        };
        old.map(|old| self.by_expiry.remove(&(old, key.clone())));
        self.by_expiry.extend(expires.map(|at| (at, key.clone())));
    }

    /// When the row under `key` expires, if it does.
    pub(super) fn expires(&self, key: &Key) -> Option<Timestamp> {
        if self.expires.is_empty() { None } else { self.expires.get(key).copied() }
    }

    /// The keys of rows that have expired.
    pub(super) fn expired(&self, now: Timestamp) -> impl Iterator<Item = &Key> {
        self.by_expiry.iter().take_while(move |(at, _)| *at <= now).map(|(_, key)| key)
    }

    /// Whether there are rows that expire.
    pub(super) fn may_expire(&self) -> bool {
        !self.expires.is_empty()
    }

    /// Removes all rows.
    pub(super) fn clear(&mut self) {
        self.rows.clear();
        self.expires.clear();
        self.by_expiry.clear();
        self.events.clear();
        self.live = 0;
    }

    pub(super) fn grow(&mut self, number: u32, bytes: u64) {
        self.bytes += bytes;
        self.segments.entry(number).and_modify(|segment| segment.bytes += bytes);
    }

    /// Puts and removes what `entries` say, which are in `places` now.
    pub(super) fn apply(&mut self, entries: &[Entry], places: &[Place]) {
        for (entry, place) in entries.iter().zip(places) {
            match (entry.kind, Key::new(entry.key)) {
                (EntryKind::Put | EntryKind::PutWithExtra, Some(key)) => {
                    self.put(key, *place, entry.expires());
                }
                (EntryKind::Delete, Some(key)) => {
                    self.delete(&key);
                }
                (EntryKind::Events, _) => self.add_events(entry.version, *place),
                (EntryKind::TrimEvents, _) => self.trim_events(entry.version),
                (EntryKind::Put | EntryKind::PutWithExtra | EntryKind::Delete, None) => {}
                (EntryKind::Meta, _) => {}
            }
        }
    }

    pub(super) fn remove_segment(&mut self, number: u32) {
        self.bytes -= self.segments.remove(&number).map_or(0, |segment| segment.bytes);
    }
}
