//! Gives back the space of rows that were replaced or removed: the oldest segment goes once its rows are at the log's end.

use super::files;
use super::index::Place;
use super::log::{Log, Purpose, SEGMENTS, not_written};
use super::segment::{self, Batch, Entry, PREAMBLE_BYTES};
use crate::{Error, Kind};
use std::sync::Arc;

/// What is written anew in one batch, unless one row is larger.
const MOVE_BYTES: u32 = 1 << 19;

impl Log {
    /// Whether the oldest segment should go: there is more waste than data, or waste is all there is to be had.
    pub(super) fn is_wasteful(&self) -> bool {
        let (room, is_full) = {
            let writer = self.writer.lock();
            (writer.room, writer.is_full || writer.reserve == 0)
        };
        let index = self.index.read();
        let waste = index.bytes - index.live;
        // Rows that are written one behind the other fill more than half of each segment: cleaning ends.
        let many = 2 * SEGMENTS + 2 * index.bytes / room.max(1);
        waste > index.live.max(2 * room) || index.segments.len() as u64 > many || is_full && waste > room / 4
    }

    /// Writes the rows of the oldest segment anew and removes it. `false`: `is_stopped` said so, or it is the only one.
    pub(super) fn clean(&self, is_stopped: &dyn Fn() -> bool) -> Result<bool, Error> {
        let index = self.index.read();
        let mut segments = index
            .segments
            .iter()
            .map(|(number, segment)| (*number, Arc::clone(&segment.file), segment.bytes));
        let (Some((number, file, end)), Some(_)) = (segments.next(), segments.next()) else {
            return Ok(false);
        };
        drop(segments);
        drop(index);
        let (mut bytes, _) = files::read(&file).map_err(|error| not_written(&error))?;
        bytes.truncate(end as usize);
        let mut at = PREAMBLE_BYTES;
        let mut moving: Vec<Place> = Vec::new();
        // A file may be shorter than it was.
        while at < end as usize {
            let Some(Batch { range, entries, .. }) = segment::batch(&bytes, at, self.store) else {
                // Damage of what nobody needs keeps no space.
                moving = self.index.read().places_in(number);
                break;
            };
            at = range.end;
            for range in entries {
                let Some(entry) = segment::entry(&bytes[range.clone()]) else { continue };
                let place = Place { segment: number, offset: range.start as u32, bytes: range.len() as u32 };
                if self.index.read().holds(&entry, &place) {
                    moving.push(place);
                }
            }
        }
        if !self.rewrite(&bytes, &moving, is_stopped)? {
            return Ok(false);
        }
        let mut writer = self.writer.lock();
        if !self.index.read().segments.contains_key(&number) {
            // All was cleared meanwhile.
            return Ok(true);
        }
        self.begin_at(&mut writer, number + 1)?;
        self.index.write().remove_segment(number);
        self.check_place()?;
        files::remove(&self.path(number));
        self.reserve(&mut writer, 0);
        Ok(true)
    }

    /// Writes those entries of a segment with the contents `bytes` anew that are still where they were, in their order, a part at a
    /// time. `false`: `is_stopped` said so before all were.
    pub(super) fn rewrite(
        &self,
        bytes: &[u8],
        mut moving: &[Place],
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<bool, Error> {
        while !moving.is_empty() {
            if is_stopped() {
                return Ok(false);
            }
            let mut part_bytes = 0;
            let fits = moving.iter().take_while(|place| {
                let is_first = part_bytes == 0;
                part_bytes += place.bytes;
                is_first || part_bytes <= MOVE_BYTES
            });
            let (part, rest) = moving.split_at(fits.count());
            self.rewrite_part(bytes, part)?;
            moving = rest;
        }
        Ok(true)
    }

    fn rewrite_part(&self, bytes: &[u8], moving: &[Place]) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        let index = self.index.read();
        let mut entries: Vec<Entry> = Vec::with_capacity(moving.len());
        for place in moving {
            let begin = place.offset as usize;
            let entry = bytes.get(begin..begin + place.bytes as usize).and_then(segment::entry);
            // Left out, it would be lost with the segment.
            let entry = entry.ok_or_else(|| self.damaged(place.segment, begin))?;
            if index.holds(&entry, place) {
                entries.push(entry);
            }
        }
        drop(index);
        if entries.is_empty() {
            return Ok(());
        }
        let places = self.append(&mut writer, Purpose::Free, &entries)?;
        self.index.write().apply(&entries, &places);
        Ok(())
    }

    fn damaged(&self, segment: u32, at: usize) -> Error {
        let path = self.path(segment);
        let what = format!("{} is damaged at {at}, and no more space is given back", path.display());
        Error::new(Kind::Rejected, what + "; stop the server, and run `weir store repair`")
    }
}
