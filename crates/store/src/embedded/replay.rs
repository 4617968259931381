//! What is in a directory of the embedded store: all segments that count, read from the first to the last batch, and what of them
//! is damaged.

use super::end::{End, EndFile};
use super::files;
use super::index::{Index, Place, Segment};
use super::segment::{self, Batch, EntryKind, META_BYTES, Meta, PREAMBLE_BYTES, UNFINISHED};
use kv::{Key, Version};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is in a directory.
#[derive(Default)]
pub(super) struct Replayed {
    pub store: u64,
    /// What is readable of damaged batches is in it.
    pub index: Index,
    /// `None`: there is none, or none that can be read.
    pub meta: Option<Meta>,
    /// Where the last batch of the last segment ends.
    pub end: u64,
    /// Its bytes, if they may not be on disk.
    pub last_batch: Vec<u8>,
    /// Its number.
    pub batch: u64,
    /// Entries of rows that can be read, and the greatest of their versions.
    pub records: u64,
    pub version_max: u64,
    /// In the order of the log. Where there is any, the store is not to be opened.
    pub damage: Vec<Damage>,
    /// The bytes of the last segment behind the last whole batch. They are of one that was not acknowledged.
    pub torn: Option<(PathBuf, Range<u64>)>,
    /// Where the log ended when it came to rest, if it has not been used since.
    pub at_rest: Option<End>,
}

/// Of missing segments no more are named: it would help nobody.
const MISSING_MAX: usize = 100;

/// A part of the log that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The segment.
    pub path: PathBuf,
    /// Which bytes of it. `None`: the file is missing.
    pub range: Option<Range<u64>>,
    /// The first byte of it that the disk cannot read. `None`: it reads all of them, and they are not what was written.
    pub unread: Option<u64>,
    /// How many records in it can be read nevertheless.
    pub readable: u64,
    /// What in it cannot be read. Empty: only bytes that describe records.
    pub lost: Vec<Lost>,
    /// Whether the segment, whole or not, and those behind it are of a repair that was cut off. They do not count.
    pub is_of_repair: bool,
}

/// Bytes of records that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where in the segment.
    pub range: Range<u64>,
    /// They are of one record, probably of this key. `None`: of any number of records.
    pub key: Option<Key>,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.range {
            _ if self.is_of_repair => write!(f, "{} is of a repair that was cut off", self.path.display())?,
            Some(range) => write!(f, "{} at {}", self.path.display(), range.start)?,
            None => write!(f, "{} is missing", self.path.display())?,
        }
        self.unread.map_or(Ok(()), |at| write!(f, " (the disk cannot read it at {at})"))
    }
}

/// What the segment with these bytes says last of the log.
pub(super) fn last_meta(bytes: &[u8], store: u64) -> Option<Meta> {
    let said = Walk::through(bytes, store, None, true).into_entries(bytes, u64::MAX);
    let said: Vec<Meta> = said.iter().filter_map(|range| Meta::of_entry(&bytes[range.clone()])).collect();
    // All such entries of a segment have the same epoch. One with another is part of a damaged value, written by a client.
    said.iter().rfind(|meta| meta.epoch == said[0].epoch).cloned()
}

impl Replayed {
    pub(super) fn read(directory: &Path) -> io::Result<Replayed> {
        Replayed::read_before(directory, u32::MAX)
    }

    /// Reads the log as if only segments with lower numbers than `limit` were there.
    fn read_before(directory: &Path, limit: u32) -> io::Result<Replayed> {
        let mut numbers = files::segments(directory)?;
        numbers.retain(|number| *number < limit);
        let said = End::read(directory)?;
        let store = match said {
            EndFile::Whole(end) => end.store,
            EndFile::Absent | EndFile::Damaged { .. } => RandomState::new().hash_one(directory),
        };
        // What batches of a new store are counted from is as secret as its number.
        let batch = RandomState::new().hash_one(directory) >> 2;
        let mut replayed = Replayed { store, batch, ..Replayed::default() };
        let Some(last) = numbers.last().copied() else {
            // All that there was is gone.
            if let EndFile::Whole(end) = said {
                let missing = (end.first..=end.segment).take(MISSING_MAX);
                replayed.damage.extend(missing.map(|number| missing_at(files::path(directory, number))));
            }
            return Ok(replayed);
        };
        let path = |number: u32| files::path(directory, number);
        let missing = |number| missing_at(path(number));
        if let EndFile::Damaged { bytes } = said {
            let path = directory.join(files::END);
            replayed.damage.push(Damage { range: Some(0..bytes), ..missing_at(path) });
        }
        let read = |number: u32| {
            let read = File::open(path(number)).and_then(|file| files::read(&file));
            read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path(number).display())))
        };
        // A preamble may be damaged. With a wrong number no batch is valid.
        for number in numbers.iter().rev() {
            let (bytes, _) = read(*number)?;
            let Some(store) = segment::store_of(&bytes) else { continue };
            replayed.store = store;
            if segment::batch(&bytes, PREAMBLE_BYTES, store).is_some() {
                break;
            }
        }
        let store = replayed.store;
        let at_rest = said.at_rest(store, last).filter(|end| end.segment < limit);
        replayed.at_rest = at_rest;
        // What the newest says first decides from which segment on all have to be there.
        for number in numbers.iter().rev() {
            let (bytes, _) = read(*number)?;
            if let Some(meta) = last_meta(&bytes, store) {
                // Each start begins at least one segment.
                let epoch = meta.epoch.saturating_add(u64::from(last - number));
                replayed.meta = Some(Meta { epoch, ..meta });
                break;
            }
        }
        let mut said = replayed.meta.as_ref().map_or(numbers[0], |meta| meta.first as u32);
        if u64::from(said) == UNFINISHED {
            let is_of_repair = |number: &u32| is_of_repair(&path(*number), store);
            let newest_first = numbers.iter().rev().copied().skip_while(|number| !is_of_repair(number));
            let made = newest_first.take_while(is_of_repair).last().unwrap_or(numbers[0]);
            let damage = Damage { is_of_repair: true, range: Some(0..0), ..missing(made) };
            if made > numbers[0] {
                // Its rows are old ones, behind newer ones that could not be read, and now can be perhaps.
                let mut replayed = Replayed::read_before(directory, made)?;
                replayed.damage.push(damage);
                return Ok(replayed);
            }
            // Nothing else is left.
            replayed.damage.push(damage);
            said = made;
        }
        // The newest segment, which knows best, may be missing.
        let first = at_rest.map_or(said, |end| said.max(end.first));
        let mut expected = first;
        if first > last {
            // A log does not begin behind the segment that says so. What is there is read for a repair.
            replayed.damage.push(missing(first));
            expected = numbers[0];
        }
        numbers.retain(|number| *number >= expected);
        let mut next = numbers.first().map(|number| read(*number)).transpose()?;
        for (at, number) in numbers.iter().copied().enumerate() {
            let Some((bytes, unread)) = next.take() else { break };
            replayed.damage.extend((expected..number).take(MISSING_MAX).map(missing));
            expected = number.saturating_add(1);
            next = numbers.get(at + 1).map(|number| read(*number)).transpose()?;
            // The next segment says where this one ends.
            let after = next.as_ref().filter(|_| numbers[at + 1] == expected);
            let meta = after.and_then(|(after, _)| Meta::first_of(after, store));
            let end = meta.map(|meta| meta.previous_end as usize);
            let end = end.or(at_rest.filter(|end| end.segment == number).map(|end| end.bytes as usize));
            let mut walk = Walk::through(&bytes, store, end, number == last);
            let begins = walk.first.is_none_or(|number| number.checked_sub(1) == Some(replayed.batch));
            let is_whole = walk.damaged.is_empty() && replayed.damage.is_empty();
            if segment::store_of(&bytes) != Some(store) {
                walk.damaged.insert(0, 0..PREAMBLE_BYTES);
            } else if !begins && at > 0 && is_whole {
                // A part of the log was removed, and nothing says where.
                walk.damaged.push(PREAMBLE_BYTES..PREAMBLE_BYTES);
            }
            // Whether it was written there is not known.
            walk.damaged
                .extend(walk.torn.take_if(|torn| unread.iter().any(|unread| unread.end > torn.start)));
            let damaged = walk.damaged.iter().map(|range| damage(path(number), &bytes, range, &unread));
            replayed.damage.extend(damaged);
            replayed.torn = walk.torn.take().map(|torn| (path(number), torn.start as u64..torn.end as u64));
            let file = Arc::new(File::open(path(number))?);
            replayed.index.segments.insert(number, Segment { file, bytes: 0 });
            let end = walk.last.as_ref().map_or(PREAMBLE_BYTES, |last| last.range.end);
            replayed.batch = walk.last.as_ref().map_or(replayed.batch, |last| last.number);
            replayed.end = end as u64;
            replayed.index.grow(number, end as u64);
            let epoch = replayed.meta.as_ref().map_or(u64::MAX, |meta| meta.epoch);
            // The first one was flushed before the segment had its name.
            if let Some(Batch { range, number: batch, .. }) = &walk.last
                && walk.first != Some(*batch)
                && number == last
                && at_rest.is_none()
            {
                replayed.last_batch = bytes[range.clone()].to_vec();
            }
            for range in walk.into_entries(&bytes, epoch) {
                replayed.apply(number, &bytes, range);
            }
        }
        let behind = at_rest.map_or(last, |end| end.segment).saturating_add(1);
        // A repair begins right behind the segments that were there.
        let behind = if limit < u32::MAX { limit } else { behind };
        replayed.damage.extend((last.saturating_add(1)..behind).take(MISSING_MAX).map(missing));
        Ok(replayed)
    }

    fn apply(&mut self, segment: u32, bytes: &[u8], range: Range<usize>) {
        let Some(entry) = segment::entry(&bytes[range.clone()]) else { return };
        let is_row = !matches!(entry.kind, EntryKind::Meta | EntryKind::Events | EntryKind::TrimEvents);
        self.records += u64::from(is_row);
        self.version_max = self.version_max.max(entry.version);
        let place = Place { segment, offset: range.start as u32, bytes: range.len() as u32 };
        self.index.apply(&[entry], &[place]);
    }
}

/// Whether the segment was begun by a repair. If it cannot be read, that is told where all of it is.
fn is_of_repair(path: &Path, store: u64) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(META_BYTES).read_to_end(&mut bytes));
    read.is_ok() && Meta::first_of(&bytes, store).is_some_and(|meta| meta.first == UNFINISHED)
}

fn missing_at(path: PathBuf) -> Damage {
    Damage { path, range: None, unread: None, readable: 0, lost: vec![], is_of_repair: false }
}

fn damage(path: PathBuf, bytes: &[u8], range: &Range<usize>, unread: &[Range<usize>]) -> Damage {
    let unread = unread.iter().find(|unread| unread.start < range.end && range.start < unread.end);
    let salvaged = segment::salvage(bytes, range.clone());
    let is_row = |range: &&Range<usize>| Meta::of_entry(&bytes[(*range).clone()]).is_none();
    // What describes the store has no key.
    let is_of_rows =
        |(_, key): &(Range<usize>, Option<Range<usize>>)| key.as_ref().is_none_or(|key| !key.is_empty());
    let lost = salvaged.lost.into_iter().filter(is_of_rows).map(|(range, key)| {
        let key = key.and_then(|key| Key::new(&bytes[key]));
        Lost { range: range.start as u64..range.end as u64, key }
    });
    let range = range.start as u64..range.end as u64;
    // Nothing says how much should be there.
    let all = range.is_empty().then(|| Lost { range: range.clone(), key: None });
    Damage {
        path,
        lost: lost.chain(all).collect(),
        range: Some(range),
        unread: unread.map(|unread| unread.start as u64),
        readable: salvaged.entries.iter().filter(is_row).count() as u64,
        is_of_repair: false,
    }
}

/// Where the zeros at the end begin: space that was allocated ahead.
fn written(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let is_blank = |block: &&[u8]| **block == ZEROS[..block.len()];
    let blank: usize = bytes.rchunks(ZEROS.len()).take_while(is_blank).map(<[u8]>::len).sum();
    bytes[..bytes.len() - blank].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
}

/// What is in a segment.
struct Walk {
    /// The number of the first valid batch.
    first: Option<u64>,
    /// The last one, without its entries.
    last: Option<Batch>,
    /// Those of all valid batches, in their order.
    entries: Vec<Range<usize>>,
    /// What should be batches and is not.
    damaged: Vec<Range<usize>>,
    /// What is written behind the last batch of the log.
    torn: Option<Range<usize>>,
}

impl Walk {
    /// Reads a segment to its `end`; if that is not known, to the last batch.
    fn through(bytes: &[u8], store: u64, end: Option<usize>, is_last: bool) -> Walk {
        let content = &bytes[..end.unwrap_or(bytes.len()).min(bytes.len())];
        let mut walk = Walk { first: None, last: None, entries: Vec::new(), damaged: Vec::new(), torn: None };
        let (mut at, mut before) = (PREAMBLE_BYTES, None);
        while let Some(mut batch) = segment::next_batch(content, at, store, before) {
            if batch.range.start > at || before.is_some_and(|before| before + 1 != batch.number) {
                walk.damaged.push(at..batch.range.start);
            }
            at = batch.range.end;
            if before.is_none_or(|before| before < batch.number) {
                before = Some(batch.number);
                walk.first = walk.first.or(before);
                walk.entries.append(&mut batch.entries);
                walk.last = Some(batch);
            }
        }
        let rest = at..end.unwrap_or_else(|| written(bytes));
        match () {
            () if rest.is_empty() && walk.last.is_some() => {}
            // It has had its first batch since it has its name.
            () if is_last && end.is_none() && walk.last.is_some() => walk.torn = Some(rest),
            () => walk.damaged.push(rest.start..rest.end.max(rest.start)),
        }
        walk
    }

    /// All entries that can be read, in their order. Those in damaged batches are left out if their epoch is later than `epoch` and than that
    /// of all whole batches: a client may have written them in a value.
    fn into_entries(self, bytes: &[u8], epoch: u64) -> Vec<Range<usize>> {
        let mut entries = self.entries;
        if self.damaged.is_empty() {
            return entries;
        }
        let epoch_of = |range: &Range<usize>| {
            segment::entry(&bytes[range.clone()]).map_or(0, |entry| Version(entry.version).epoch())
        };
        let epoch = entries.iter().map(epoch_of).max().unwrap_or(0).max(epoch);
        let salvaged = self.damaged.iter().flat_map(|range| segment::salvage(bytes, range.clone()).entries);
        entries.extend(salvaged.filter(|range| epoch_of(range) <= epoch));
        entries.sort_unstable_by_key(|range| range.start);
        entries
    }
}
