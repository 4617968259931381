//! What is in a directory when the embedded store is opened: all segments that count, read from the first to the last batch.

use super::files;
use super::index::{Index, Place, Segment};
use super::segment::{self, Batch, Meta, PREAMBLE_BYTES};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What is in a directory.
pub(super) struct Replayed {
    pub store: u64,
    /// Without the last batch.
    pub index: Index,
    pub meta: Meta,
    /// The last segment's bytes, and where in them the last batch begins, which may not be on disk.
    pub bytes: Vec<u8>,
    pub end: u64,
    pub carried: Vec<Range<usize>>,
    /// The number of the batch before.
    pub batch: u64,
}

pub(super) enum Unreadable {
    Io(io::Error),
    /// Where.
    Damaged(String),
}

impl From<io::Error> for Unreadable {
    fn from(error: io::Error) -> Unreadable {
        Unreadable::Io(error)
    }
}

impl Replayed {
    pub(super) fn read(directory: &Path) -> Result<Replayed, Unreadable> {
        let numbers = files::segments(directory)?;
        let mut replayed = Replayed {
            store: RandomState::new().hash_one(directory),
            index: Index::default(),
            meta: Meta { first: 1, ..Meta::default() },
            bytes: Vec::new(),
            end: 0,
            carried: Vec::new(),
            batch: 0,
        };
        let Some(last) = numbers.last().copied() else { return Ok(replayed) };
        let damaged = |number: u32, at: usize| {
            Unreadable::Damaged(format!("{} at {at}", files::path(directory, number).display()))
        };
        let read = |number: u32| -> Result<(File, Vec<u8>, u64, Meta), Unreadable> {
            let path = files::path(directory, number);
            if !path.exists() {
                return Err(Unreadable::Damaged(format!("{} is missing", path.display())));
            }
            // Written to once more: the last is cut where it ends.
            let file = OpenOptions::new().read(true).write(true).open(&path)?;
            let bytes = fs::read(&path)?;
            let store = segment::store_of(&bytes).ok_or_else(|| damaged(number, 0))?;
            let batch = segment::batch(&bytes, PREAMBLE_BYTES, store);
            let meta = batch.and_then(|batch| Meta::of_batch(&bytes, &batch));
            let meta = meta.ok_or_else(|| damaged(number, PREAMBLE_BYTES))?;
            Ok((file, bytes, store, meta))
        };
        // What the newest says first decides from which segment on all have to be there.
        let (_, bytes, store, meta) = read(last)?;
        replayed.store = store;
        let in_last = scan(&bytes, store, None).map_err(|at| damaged(last, at))?;
        replayed.meta = in_last.iter().rev().find_map(|batch| Meta::of_batch(&bytes, batch)).unwrap_or(meta);
        let first = replayed.meta.first as u32;
        let mut next = Some(read(first)?);
        for number in first..=last {
            let Some((file, bytes, of, _)) = next.take() else { break };
            let end = if number < last {
                let after = read(number + 1)?;
                let end = after.3.previous_end as usize;
                next = Some(after);
                Some(end)
            } else {
                None
            };
            let mut batches = scan(&bytes, store, end).map_err(|at| damaged(number, at))?;
            let follows = replayed.batch == 0
                || batches.first().is_some_and(|batch| batch.number == replayed.batch + 1);
            if of != store || !follows {
                return Err(damaged(number, 0));
            }
            let in_doubt = if number == last && batches.len() > 1 { batches.pop() } else { None };
            let bytes_used = batches.last().map_or(0, |batch| batch.range.end);
            replayed.batch = batches.last().map_or(0, |batch| batch.number);
            replayed.end = bytes_used as u64;
            replayed.index.segments.insert(number, Segment { file: Arc::new(file), bytes: 0 });
            replayed.index.grow(number, bytes_used as u64);
            for range in batches.into_iter().flat_map(|batch| batch.entries) {
                if let Some(entry) = segment::entry(&bytes[range.clone()]) {
                    let place =
                        Place { segment: number, offset: range.start as u32, bytes: range.len() as u32 };
                    replayed.index.apply(&[entry], &[place]);
                }
            }
            if number == last {
                replayed.carried = in_doubt.map_or(Vec::new(), |batch| batch.entries);
                replayed.bytes = bytes;
            }
        }
        Ok(replayed)
    }
}

/// The batches of a segment up to `end`; of the last one up to what is no batch. The error: where it is damaged.
fn scan(bytes: &[u8], store: u64, end: Option<usize>) -> Result<Vec<Batch>, usize> {
    let mut batches: Vec<Batch> = Vec::new();
    let mut at = PREAMBLE_BYTES;
    while end.is_none_or(|end| at < end) {
        let Some(batch) = segment::batch(bytes, at, store) else { break };
        if batches.last().is_some_and(|before| before.number + 1 != batch.number) {
            break;
        }
        at = batch.range.end;
        batches.push(batch);
    }
    let is_whole = match end {
        Some(end) => at == end,
        None => segment::next_batch(bytes, at, store).is_none(),
    };
    if is_whole { Ok(batches) } else { Err(at) }
}
