//! What is in a segment of the log: a preamble, and batches of entries. Bytes only, no files.
//!
//! ```text
//! preamble  "weirlog1", number of the store (8)
//! batch     magic (4), checksum (4), number (8), bytes of the entries (4), how many (4), entries
//! entry     checksum (4), version (8), bytes of extra and value (4), of the key (2), of the content type (1), kind (1),
//!           key, content type, extra (only in entries of kind 4), value
//! extra     its bytes behind this one (1), when the row expires in milliseconds since 1970, or 0 (8), content coding
//! ```
//!
//! Numbers are little endian, checksums CRC-32. An entry's is of what follows it. A batch's is of the store's number, of what
//! follows it in the header, and of the checksums of its entries: no value that a client sends can contain a valid batch.

use crate::EventBlock;
use crc32fast::Hasher;
use kv::{Attributes, KEY_BYTES_MAX, Key, Row, Timestamp, Version};
use std::ops::Range;

pub(super) const PREAMBLE_BYTES: usize = 16;
const PREAMBLE: [u8; 8] = *b"weirlog1";
const MAGIC: [u8; 4] = *b"\xF7wb\x01";
pub(super) const BATCH_HEADER_BYTES: usize = 24;
const ENTRY_HEADER_BYTES: usize = 20;

/// More entries are in no batch: the largest are 26,000 small ones that the cleaner writes anew.
const ENTRIES_MAX: usize = 1 << 16;

/// Bytes of what a segment begins with, the entry that describes the store, and more.
pub(super) const META_BYTES: u64 = 1024;

/// What [`Meta::first`] is in the segments of a repair that has not ended: nobody knows yet. No segment has this number.
pub(super) const UNFINISHED: u64 = u32::MAX as u64;

/// What an entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// Creates or replaces a row.
    Put = 1,
    /// Removes one.
    Delete = 2,
    /// Says something of the store itself, in its value.
    Meta = 3,
    /// Creates or replaces a row with attributes that most do not have.
    PutWithExtra = 4,
    /// A block of events: its id is the version, its value when it was made, in milliseconds since 1970 (8), and its body.
    Events = 5,
    /// Forgets the blocks of events up to the one whose id is the version.
    TrimEvents = 6,
}

/// By their numbers, which begin with 1.
const KINDS: [EntryKind; 6] = {
    use EntryKind::{Delete, Events, Meta, Put, PutWithExtra, TrimEvents};
    [Put, Delete, Meta, PutWithExtra, Events, TrimEvents]
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub kind: EntryKind,
    pub version: u64,
    pub key: &'a [u8],
    pub content_type: &'a [u8],
    /// [`Row::extra`]; empty but for [`EntryKind::PutWithExtra`].
    pub extra: &'a [u8],
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// When the row expires, if it does.
    pub(super) fn expires(&self) -> Option<Timestamp> {
        Attributes::of(b"", self.extra).expires
    }

    /// The row without its value.
    pub(super) fn row(&self, key: &Key, value: &[u8]) -> Row {
        Row::with(key, Attributes::of(self.content_type, self.extra), value, Version(self.version))
    }

    /// The byte that says how long [`Entry::extra`] is, where there is one.
    fn extra_length(&self) -> Option<u8> {
        (self.kind == EntryKind::PutWithExtra).then_some(self.extra.len() as u8)
    }
}

/// What the log says of itself, at the beginning of each segment and when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Meta {
    pub epoch: u64,
    /// Where the segment before this one ends.
    pub previous_end: u64,
    /// The oldest segment that counts, or [`UNFINISHED`].
    pub first: u64,
    /// [`crate::Part::map`].
    pub map: String,
}

impl Meta {
    pub(super) fn encode(&self) -> Vec<u8> {
        let numbers = [self.epoch, self.previous_end, self.first];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend_from_slice(self.map.as_bytes());
        bytes
    }

    /// `None` for what [`Meta::encode`] cannot have written.
    fn decode(bytes: &[u8]) -> Option<Meta> {
        let (numbers, map) = bytes.split_at_checked(24)?;
        let mut numbers = numbers.chunks_exact(8).filter_map(|bytes| bytes.first_chunk().copied());
        let mut next = || numbers.next().map(u64::from_le_bytes);
        let (epoch, previous_end, first) = (next()?, next()?, next()?);
        // Segments have shorter numbers.
        u32::try_from(first).ok()?;
        Some(Meta { epoch, previous_end, first, map: String::from_utf8(map.to_vec()).ok()? })
    }

    /// What the segment that begins with `bytes`, of the store `store`, says first.
    pub(super) fn first_of(bytes: &[u8], store: u64) -> Option<Meta> {
        Meta::of_entry(&bytes[batch(bytes, PREAMBLE_BYTES, store)?.entries.first()?.clone()])
    }

    /// What the entry that is all of `bytes` says of the log, if it says anything.
    pub(super) fn of_entry(bytes: &[u8]) -> Option<Meta> {
        Meta::decode(entry(bytes).filter(|entry| entry.kind == EntryKind::Meta)?.value)
    }
}

/// An entry without a key.
pub(super) fn keyless(kind: EntryKind, version: u64, value: &[u8]) -> Entry<'_> {
    Entry { kind, version, key: b"", content_type: b"", extra: b"", value }
}

/// The value of an entry with a block of events.
pub(super) fn events_value(block: &EventBlock) -> Vec<u8> {
    [&block.at.0.to_le_bytes(), &*block.body].concat()
}

/// The block of events that an entry has.
pub(super) fn events_of(entry: &Entry) -> Option<EventBlock> {
    let (at, body) = entry.value.split_first_chunk()?;
    let is_one = entry.kind == EntryKind::Events;
    is_one.then(|| EventBlock {
        id: entry.version,
        at: Timestamp(u64::from_le_bytes(*at)),
        body: body.into(),
    })
}

/// What a segment of the store `store` begins with.
pub(super) fn preamble(store: u64) -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(&PREAMBLE);
    bytes[8..].copy_from_slice(&store.to_le_bytes());
    bytes
}

/// The number of the store that `segment` belongs to. `None`: it is no segment.
pub(super) fn store_of(segment: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*segment.strip_prefix(&PREAMBLE)?.first_chunk()?))
}

/// How long a batch of `entries` is.
pub(super) fn batch_bytes(entries: &[Entry]) -> usize {
    let bytes = |entry: &Entry| {
        let Entry { key, content_type, extra, value, .. } = entry;
        let extra = entry.extra_length().map_or(0, |_| 1 + extra.len());
        ENTRY_HEADER_BYTES + key.len() + content_type.len() + extra + value.len()
    };
    BATCH_HEADER_BYTES + entries.iter().map(bytes).sum::<usize>()
}

/// The `number`-th batch of the store, of `entries`, and where in it each of them is.
pub(super) fn encode(store: u64, number: u64, entries: &[Entry]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut bytes = Vec::with_capacity(batch_bytes(entries));
    bytes.resize(BATCH_HEADER_BYTES, 0);
    let mut checksums = Vec::new();
    let add = |entry: &Entry| {
        let Entry { kind, version, key, content_type, extra, value } = *entry;
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&version.to_le_bytes());
        let extra_length = entry.extra_length();
        let value_bytes = extra_length.map_or(0, |bytes| 1 + usize::from(bytes)) + value.len();
        bytes.extend_from_slice(&(value_bytes as u32).to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&[content_type.len() as u8, kind as u8]);
        for part in [key, content_type, extra_length.as_slice(), extra, value] {
            bytes.extend_from_slice(part);
        }
        let checksum = crc32fast::hash(&bytes[start + 4..]).to_le_bytes();
        bytes[start..start + 4].copy_from_slice(&checksum);
        checksums.extend_from_slice(&checksum);
        start..bytes.len()
    };
    let ranges = entries.iter().map(add).collect();
    seal(&mut bytes, store, number, &checksums);
    (bytes, ranges)
}

/// Writes the header of the batch that is all of `bytes`, whose entries have these checksums.
pub(super) fn seal(bytes: &mut [u8], store: u64, number: u64, checksums: &[u8]) {
    let entries_bytes = (bytes.len() - BATCH_HEADER_BYTES) as u32;
    let entries = (checksums.len() / 4) as u32;
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..20].copy_from_slice(&entries_bytes.to_le_bytes());
    bytes[20..24].copy_from_slice(&entries.to_le_bytes());
    let checksum = batch_checksum(store, &bytes[8..BATCH_HEADER_BYTES], checksums);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

fn batch_checksum(store: u64, header: &[u8], checksums: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    for part in [&store.to_le_bytes(), header, checksums] {
        hasher.update(part);
    }
    hasher.finalize()
}

/// A batch whose checksums are right.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub number: u64,
    /// Where in the segment it is.
    pub range: Range<usize>,
    /// Where its entries are.
    pub entries: Vec<Range<usize>>,
}

/// The batch at `at` of a segment of the store `store`; `None` where there is none, or not all of it.
pub(super) fn batch(segment: &[u8], at: usize, store: u64) -> Option<Batch> {
    let rest = segment.get(at..)?.strip_prefix(&MAGIC)?;
    let (checksum, rest) = rest.split_first_chunk()?;
    let header = rest.get(..BATCH_HEADER_BYTES - 8)?;
    let number = u64::from_le_bytes(*header.first_chunk()?);
    let [entries_bytes, count] = [8, 12].map(|at| u32_at(header, at).map_or(0, |number| number as usize));
    let end = at.checked_add(BATCH_HEADER_BYTES + entries_bytes)?;
    if count > ENTRIES_MAX {
        return None;
    }
    let (mut entries, mut checksums) = (Vec::new(), Vec::new());
    let mut next = at + BATCH_HEADER_BYTES;
    while next < end && entries.len() < count {
        let range = next..entry_end(segment, next)?;
        checksums.extend_from_slice(segment.get(next..next + 4)?);
        next = range.end;
        entries.push(range);
    }
    // Only then their content: of what a client sends any number of places may look like batches, but none passes this.
    let is_batch = next == end
        && entries.len() == count
        && batch_checksum(store, header, &checksums) == u32::from_le_bytes(*checksum);
    let is_right =
        is_batch && entries.iter().all(|range| segment.get(range.clone()).and_then(entry).is_some());
    is_right.then_some(Batch { number, range: at..end, entries })
}

/// The first batch from `from` on. One behind other bytes counts only if its number can follow `before`, that of the batch which ends at
/// `from`: for each batch in between these bytes need room. No client can guess the numbers of a store that began at a random one, so a
/// value full of heads of batches takes no time.
pub(super) fn next_batch(segment: &[u8], from: usize, store: u64, before: Option<u64>) -> Option<Batch> {
    let is_next = |at: usize| {
        let number = segment.get(at + 8..)?.first_chunk().copied().map(u64::from_le_bytes)?;
        let between = before.map_or(Some(0), |before| number.checked_sub(before)?.checked_sub(1))?;
        Some(between <= ((at - from) / BATCH_HEADER_BYTES) as u64)
    };
    batch(segment, from, store).or_else(|| {
        let mut candidates = memchr::memmem::find_iter(segment.get(from..)?, &MAGIC).map(|at| from + at);
        candidates.find_map(|at| is_next(at)?.then(|| batch(segment, at, store))?)
    })
}

/// What is left of damaged batches.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Salvaged {
    /// Entries that can be read.
    pub entries: Vec<Range<usize>>,
    /// Bytes of entries that cannot be read; with a key where they are of one entry, whose lengths seem to be right.
    pub lost: Vec<(Range<usize>, Option<Range<usize>>)>,
}

/// What can be read in `range` of a segment, where a batch should begin and none that is valid does.
pub(super) fn salvage(segment: &[u8], range: Range<usize>) -> Salvaged {
    let content = &segment[..range.end.min(segment.len())];
    let is_batch = |at: usize| content.get(at..).is_some_and(|rest| rest.starts_with(&MAGIC));
    let mut salvaged = Salvaged::default();
    // Where the bytes begin of which nothing is known.
    let mut unknown = None;
    let mut at = (range.start + BATCH_HEADER_BYTES).min(range.end);
    while at < content.len() {
        let readable = entry_at(content, at);
        let is_header =
            is_batch(at) && (unknown.is_none() || entry_at(content, at + BATCH_HEADER_BYTES).is_some());
        if readable.is_some() || is_header {
            salvaged.lost.extend(unknown.take().map(|begin| (begin..at, None)));
        }
        if let Some(entry) = readable {
            at = entry.end;
            salvaged.entries.push(entry);
        } else if is_header {
            at += BATCH_HEADER_BYTES;
        } else if let Some(end) = entry_end(content, at).filter(|end| {
            unknown.is_none() && (*end == range.end || is_batch(*end) || entry_at(content, *end).is_some())
        }) {
            // Its content is damaged, but not its lengths.
            let key_bytes = usize::from(u16::from_le_bytes([content[at + 16], content[at + 17]]));
            let key = at + ENTRY_HEADER_BYTES..at + ENTRY_HEADER_BYTES + key_bytes;
            salvaged.lost.push((at..end, Some(key)));
            at = end;
        } else {
            unknown.get_or_insert(at);
            at += 1;
        }
    }
    let unknown = unknown.or((at < range.end).then_some(at));
    salvaged.lost.extend(unknown.map(|begin| (begin..range.end, None)));
    salvaged
}

/// Where the entry at `at` is, if there is one.
fn entry_at(segment: &[u8], at: usize) -> Option<Range<usize>> {
    let range = at..entry_end(segment, at)?;
    entry(&segment[range.clone()]).map(|_| range)
}

/// Where what may be an entry at `at` ends.
fn entry_end(segment: &[u8], at: usize) -> Option<usize> {
    let header = segment.get(at..at + ENTRY_HEADER_BYTES)?;
    let key_bytes = usize::from(u16::from_le_bytes([header[16], header[17]]));
    let is_possible = (1..=KINDS.len()).contains(&usize::from(header[19])) && key_bytes <= KEY_BYTES_MAX;
    let end = at + entry_bytes(header)?;
    (is_possible && end <= segment.len()).then_some(end)
}

/// The entry that is all of `bytes`; `None` if its checksum is wrong.
pub(super) fn entry(bytes: &[u8]) -> Option<Entry<'_>> {
    if entry_bytes(bytes)? != bytes.len() || crc32fast::hash(&bytes[4..]) != u32_at(bytes, 0)? {
        return None;
    }
    begun_entry(bytes)
}

/// A row's entry without its value, and how long that is, from what an entry begins with: at most [`OUTLINE_BYTES_MAX`] bytes of it.
/// Its checksum is not looked at.
pub(super) fn outline(bytes: &[u8]) -> Option<(Entry<'_>, u64)> {
    let entry = begun_entry(bytes)?;
    let is_row = matches!(entry.kind, EntryKind::Put | EntryKind::PutWithExtra);
    let extra_bytes = entry.extra_length().map_or(0, |bytes| 1 + u32::from(bytes));
    let value_bytes = u32_at(bytes, 12)?.checked_sub(extra_bytes)?;
    is_row.then_some((Entry { value: b"", ..entry }, u64::from(value_bytes)))
}

/// The entry that `bytes` begin with, with as much of its value as they have.
fn begun_entry(bytes: &[u8]) -> Option<Entry<'_>> {
    let (header, rest) = bytes.split_at_checked(ENTRY_HEADER_BYTES)?;
    let kind = *KINDS.get(usize::from(header[19]).checked_sub(1)?)?;
    let version = u64::from_le_bytes(*header[4..].first_chunk()?);
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes([header[16], header[17]])))?;
    let (content_type, rest) = rest.split_at_checked(usize::from(header[18]))?;
    let (extra, value) = split_extra(kind, rest)?;
    Some(Entry { kind, version, key, content_type, extra, value })
}

/// [`Entry::extra`], and what follows it.
fn split_extra(kind: EntryKind, rest: &[u8]) -> Option<(&[u8], &[u8])> {
    match kind {
        EntryKind::PutWithExtra => {
            let (length, rest) = rest.split_first()?;
            rest.split_at_checked(usize::from(*length))
        }
        _ => Some((&[], rest)),
    }
}

/// As much of an entry as everything but its value may take.
pub(super) const OUTLINE_BYTES_MAX: usize = ENTRY_HEADER_BYTES + KEY_BYTES_MAX + 255 + 256;

/// How long the entry is that `bytes` begin with.
pub(super) fn entry_bytes(bytes: &[u8]) -> Option<usize> {
    let lengths = bytes.get(12..ENTRY_HEADER_BYTES)?;
    let key = usize::from(u16::from_le_bytes([lengths[4], lengths[5]]));
    Some(ENTRY_HEADER_BYTES + u32_at(lengths, 0)? as usize + key + usize::from(lengths[6]))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: u64 = 7;

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Entry<'a> {
        Entry { kind: EntryKind::Put, version: 1 << 40, key, content_type: b"text/plain", extra: b"", value }
    }

    /// A segment with a batch of two entries and one of one.
    fn segment() -> (Vec<u8>, [Range<usize>; 2]) {
        let delete = Entry { key: b"b", ..keyless(EntryKind::Delete, 9, b"") };
        let first = encode(STORE, 1, &[put(b"a", &[0; 600]), delete]);
        let second = encode(STORE, 2, &[put(b"c", b"3")]);
        let mut bytes = preamble(STORE).to_vec();
        let [first, second] = [first, second].map(|(batch, _)| {
            let start = bytes.len();
            bytes.extend(batch);
            start..bytes.len()
        });
        bytes.extend([0; 1000]);
        (bytes, [first, second])
    }

    #[test]
    fn what_was_encoded_is_read_again() {
        let (bytes, [first, second]) = segment();
        assert_eq!(store_of(&bytes), Some(STORE));
        let read = batch(&bytes, first.start, STORE).unwrap();
        assert_eq!((read.number, &read.range, read.entries.len()), (1, &first, 2));
        assert_eq!(entry(&bytes[read.entries[0].clone()]).unwrap(), put(b"a", &[0; 600]));
        assert_eq!(entry(&bytes[read.entries[1].clone()]).unwrap().kind, EntryKind::Delete);
        assert_eq!(batch(&bytes, second.start, STORE).unwrap().number, 2);
        assert_eq!(batch(&bytes, second.end, STORE), None);
        assert_eq!(next_batch(&bytes, PREAMBLE_BYTES, STORE, None), Some(read));
        assert_eq!(next_batch(&bytes, PREAMBLE_BYTES + 1, STORE, None).unwrap().range, second);
        assert_eq!(next_batch(&bytes, second.start + 1, STORE, None), None);
    }

    #[test]
    fn entries_of_a_damaged_batch_are_found() {
        let values: Vec<([u8; 1], [u8; 50])> = (0..9).map(|number| ([b'a' + number], [number; 50])).collect();
        let puts: Vec<Entry> = values.iter().map(|(key, value)| put(key, value)).collect();
        let (batch, ranges) = encode(STORE, 1, &puts);
        let behind = |range: Range<usize>| range.start + PREAMBLE_BYTES..range.end + PREAMBLE_BYTES;
        let mut entries: Vec<Range<usize>> = ranges.into_iter().map(behind).collect();
        let mut bytes = preamble(STORE).to_vec();
        bytes.extend(batch);
        let range = PREAMBLE_BYTES..bytes.len();
        // Its header: all entries are there.
        for at in range.start..range.start + BATCH_HEADER_BYTES {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            assert_eq!(salvage(&damaged, range.clone()), Salvaged { entries: entries.clone(), lost: vec![] });
        }
        // One entry, the first, the last or another: the others are there.
        for number in [0, 4, 8] {
            let broken = entries.remove(number);
            let lengths = broken.start + 12..broken.start + 20;
            for at in broken.clone() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x40;
                let salvaged = salvage(&damaged, range.clone());
                assert_eq!(salvaged.entries, entries, "byte {at}");
                let [(lost, key)] = &salvaged.lost[..] else { panic!("{salvaged:?}") };
                assert_eq!((lost, key.is_some()), (&broken, !lengths.contains(&at)), "byte {at}");
            }
            entries.insert(number, broken);
        }
    }

    #[test]
    fn every_changed_or_missing_byte_is_seen() {
        let (bytes, [first, _]) = segment();
        for at in first.clone() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x10;
            assert_eq!(batch(&changed, first.start, STORE), None, "byte {at}");
        }
        for end in first.clone() {
            assert_eq!(batch(&bytes[..end], first.start, STORE), None, "cut at {end}");
        }
    }

    /// Each of them was read to its end: of a value of 4 MiB with such batches for minutes.
    #[test]
    fn a_batch_whose_number_cannot_be_the_next_is_not_read() {
        let (bytes, [_, second]) = segment();
        let from = second.start - 2 * BATCH_HEADER_BYTES;
        for (before, is_next) in [(None, true), (Some(1), true), (Some(0), true), (Some(2), false)] {
            assert_eq!(next_batch(&bytes, from, STORE, before).is_some(), is_next, "{before:?}");
        }
        let mut bytes = bytes[..second.start].to_vec();
        bytes.extend(encode(STORE, 9, &[put(b"c", b"3")]).0);
        for (before, is_next) in [(5, false), (6, true), (8, true), (9, false)] {
            assert_eq!(next_batch(&bytes, from, STORE, Some(before)).is_some(), is_next, "{before}");
        }
        // Right behind the one before it is one that follows a missing one.
        assert!(next_batch(&bytes, second.start, STORE, Some(5)).is_some());
    }

    #[test]
    fn a_batch_of_another_store_is_none() {
        let (bytes, [first, _]) = segment();
        assert_eq!(batch(&bytes, first.start, STORE + 1), None);
        assert_eq!(next_batch(&bytes, 0, STORE + 1, None), None);
    }
}
