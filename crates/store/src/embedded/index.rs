//! What the embedded store has in memory: where each row is in the log.

use super::segment::{Entry, EntryKind};
use kv::Key;
use std::collections::BTreeMap;
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
    /// By number; the last is appended to.
    pub segments: BTreeMap<u32, Segment>,
    /// Bytes of all segments, and of the entries that `rows` points to.
    pub bytes: u64,
    pub live: u64,
}

impl Index {
    pub(super) fn put(&mut self, key: Key, place: Place) -> bool {
        self.live += u64::from(place.bytes);
        let old = self.rows.insert(key, place);
        self.live -= old.map_or(0, |old| u64::from(old.bytes));
        old.is_some()
    }

    pub(super) fn delete(&mut self, key: &Key) -> bool {
        let old = self.rows.remove(key);
        self.live -= old.map_or(0, |old| u64::from(old.bytes));
        old.is_some()
    }

    pub(super) fn grow(&mut self, number: u32, bytes: u64) {
        self.bytes += bytes;
        self.segments.entry(number).and_modify(|segment| segment.bytes += bytes);
    }

    /// Puts and removes what `entries` say, which are in `places` now.
    pub(super) fn apply(&mut self, entries: &[Entry], places: &[Place]) {
        for (entry, place) in entries.iter().zip(places) {
            let Some(key) = Key::new(entry.key) else { continue };
            match entry.kind {
                EntryKind::Put => drop(self.put(key, *place)),
                EntryKind::Delete => drop(self.delete(&key)),
                EntryKind::Meta => {}
            }
        }
    }

    pub(super) fn remove_segment(&mut self, number: u32) {
        self.bytes -= self.segments.remove(&number).map_or(0, |segment| segment.bytes);
    }
}
