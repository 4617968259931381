//! What the fuzzer calls with bytes of its own: a log that was written and then damaged, and segments with any contents.
//!
//! Directories are in memory where the machine has such a file system: nothing here is about power losses.

use super::files;
use super::log::Log;
use super::repair;
use super::segment::{self, BATCH_HEADER_BYTES, PREAMBLE_BYTES};
use crate::{Error, Kind};
use kv::{Change, Key, Row, Version, Write};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// So short that a few writes fill one.
const SEGMENT_BYTES: u64 = 2 << 10;
const KEYS: u8 = 5;
/// Longest history of writes.
const STEPS_MAX: usize = 40;

/// The rows of a log.
type Rows = BTreeMap<Vec<u8>, (u64, Vec<u8>)>;

/// Writes, clears, cleans and opens a log as `data` says, damages it, and opens it again.
///
/// It is refused as damaged, or has the rows that were there after one of the writes. Without damage these are the last ones,
/// and with one changed byte at most the last batch is missing: it may have been torn. What was refused can be repaired, and
/// each row has a value then that it once had.
pub fn log(data: &[u8]) {
    let mut data = data.iter().copied();
    let directory = directory();
    let mut log = open(directory.path()).expect("an empty directory can be opened");
    let mut rows = Rows::new();
    let mut history = vec![rows.clone()];
    let mut version = 0;
    for _ in 0..STEPS_MAX {
        let Some(step) = data.next() else { break };
        match step {
            0..128 => {
                let mut keys = [(step & 31) % KEYS, (step >> 5) % KEYS];
                keys.sort_unstable();
                let keys = &keys[..if keys[0] == keys[1] { 1 } else { 2 }];
                let writes: Vec<Write> = keys.iter().map(|key| put(*key, &mut version, &mut data)).collect();
                write(&log, &writes, &mut rows);
            }
            128..160 => {
                version += 1;
                let (key, version) = (name(step % KEYS), Version(version));
                write(&log, &[Write { key, version, change: Change::Delete }], &mut rows);
            }
            160..176 => {
                log.clear().expect("there is room");
                rows.clear();
            }
            176..208 => {
                log.clean(&|| false).expect("there is room");
            }
            208..240 => {
                let epoch = log.epoch();
                drop(log);
                log = open(directory.path()).expect("nothing is damaged");
                assert_eq!(log.epoch(), epoch + 1);
                assert_eq!(rows_of(&log).expect("nothing is damaged"), rows);
            }
            240.. => break,
        }
        if history.last() != Some(&rows) {
            history.push(rows.clone());
        }
    }
    assert_eq!(rows_of(&log).expect("nothing is damaged"), rows);
    drop(log);
    let damage = damage(directory.path(), &mut data);
    match open(directory.path()) {
        Ok(log) => {
            let mut found = rows_of(&log).expect("what is damaged was refused");
            let missing = history.iter().rev().position(|rows| *rows == found);
            let missing_max = match damage {
                Damage::Nothing => 0,
                Damage::OneByte => 1,
                Damage::More => history.len(),
            };
            assert!(missing.is_some_and(|missing| missing <= missing_max), "{damage:?}: {found:?}");
            // Nor is anything wrong with what is written from now on.
            write(&log, &[put(KEYS, &mut version, &mut data)], &mut found);
            drop(log);
            let again = open(directory.path()).expect("nothing is damaged");
            assert_eq!(rows_of(&again).expect("nothing is damaged"), found);
        }
        Err(error) => {
            assert!(damage != Damage::Nothing && is_damaged(&error), "{damage:?}: {error}");
            let kept = rows_of(&repaired(directory.path())).expect("it was repaired");
            let was_there = |row: (&Vec<u8>, &_)| history.iter().any(|rows| rows.get(row.0) == Some(row.1));
            assert!(kept.iter().all(was_there), "{damage:?}: {kept:?}");
        }
    }
}

/// The damaged log in `directory`, repaired.
fn repaired(directory: &Path) -> Log {
    let checked = repair::check(directory).expect("it can be read");
    assert!(!checked.damage.is_empty());
    let repaired = repair::repair(directory, Some(SEGMENT_BYTES)).expect("there is room");
    assert_eq!(repaired.before, checked);
    open(directory).expect("it was repaired")
}

/// How much of a log was damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Nothing,
    OneByte,
    More,
}

/// Damages a segment, or another file, as `data` says.
fn damage(directory: &Path, data: &mut impl Iterator<Item = u8>) -> Damage {
    let numbers = files::segments(directory).expect("it can be read");
    let mut next = || data.next().map(usize::from);
    let (Some(kind), Some(which)) = (next(), next()) else { return Damage::Nothing };
    let path = |which: usize| files::path(directory, numbers[which % numbers.len()]);
    let file = path(which);
    let before = fs::read(&file).expect("it is there");
    let mut bytes = before.clone();
    let [low, high, value] = [(); 3].map(|()| next().unwrap_or_default());
    // Most of the newest segment is empty.
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 40).min(bytes.len());
    let at = (low | high << 8) % used.max(1);
    let mut damage = Damage::More;
    match kind % 9 {
        0 => {
            bytes[at] ^= value as u8;
            damage = Damage::OneByte;
        }
        1 => bytes.truncate(at),
        2 => bytes[at..].fill(0),
        3 => {
            let sector = at & !511;
            let end = bytes.len().min(sector + 512);
            bytes[sector..end].fill(value as u8);
        }
        4 => bytes.extend(data),
        5 => bytes = fs::read(path(value)).expect("it is there"),
        6 => {
            // A part of it, where it does not belong.
            let end = bytes.len().min(at + value);
            let part = bytes[at..end].to_vec();
            bytes.splice(at..at, part);
        }
        7 => {
            fs::remove_file(&file).expect("it is there");
            return Damage::More;
        }
        // Files that no rows are in.
        _ => {
            for name in ["next", "reserve"] {
                fs::write(directory.join(name), [value as u8; 100]).expect("there is room");
            }
            return Damage::Nothing;
        }
    }
    if bytes == before {
        return Damage::Nothing;
    }
    fs::write(&file, bytes).expect("there is room");
    damage
}

/// Segments with any contents. The first byte says how many there are, and whether they get the checksums that make them
/// valid: then the log is opened as it was made up.
///
/// Opening never panics, and whatever can be read has a valid checksum.
pub fn segments(data: &[u8]) {
    const STORE: u64 = 7;
    let Some((choice, data)) = data.split_first() else { return };
    let count = usize::from(choice >> 1 & 3) + 1;
    let is_sealed = choice & 1 == 0;
    let first = u32::from(choice >> 3 & 3) + 1;
    let directory = directory();
    let mut batches = 0;
    for (number, part) in (first..).zip(data.chunks(data.len().div_ceil(count).max(1))) {
        let mut bytes = segment::preamble(STORE).to_vec();
        bytes.extend_from_slice(part);
        if is_sealed {
            seal(&mut bytes, STORE, &mut batches);
        }
        fs::write(files::path(directory.path(), number), bytes).expect("there is room");
    }
    match open(directory.path()) {
        Ok(log) => {
            let mut rows = Rows::new();
            let keys: Vec<Key> = log.index.read().rows.keys().cloned().collect();
            for key in keys {
                // A content type may be no text. All else that is wrong was refused.
                match log.read(&key) {
                    Ok(row) => rows.extend(row.map(|row| shown(&key, &row))),
                    Err(error) => is_no_text(error),
                }
            }
            let mut version = 0;
            write(&log, &[put(KEYS, &mut version, &mut [9].into_iter())], &mut rows);
            while log.clean(&|| false).expect("what is damaged was refused") {
                if log.index.read().segments.len() < 3 {
                    break;
                }
            }
            let epoch = log.epoch();
            drop(log);
            let log = open(directory.path()).expect("nothing is damaged");
            assert!(log.epoch() > epoch || epoch == u64::MAX);
            for (key, row) in rows {
                let key = Key::new(&key).expect("it was one");
                let found = log.read(&key).expect("nothing is damaged").map(|row| shown(&key, &row));
                assert_eq!(found, Some((key.as_bytes().to_vec(), row)));
            }
        }
        Err(error) => {
            assert!(is_damaged(&error), "{error}");
            rows_of(&repaired(directory.path())).map_or_else(is_no_text, drop);
        }
    }
}

/// Writes magic, number, count and checksums of the batches that `bytes` are read as, and the checksums of their entries.
/// `batches` there were before.
fn seal(bytes: &mut [u8], store: u64, batches: &mut u64) {
    let mut at = PREAMBLE_BYTES;
    while let Some(header) = bytes.get(at..at + BATCH_HEADER_BYTES) {
        let end = at + BATCH_HEADER_BYTES + segment::u32_at(header, 16).unwrap_or_default() as usize;
        let mut next = at + BATCH_HEADER_BYTES;
        let mut checksums = Vec::new();
        while let Some(length) = bytes.get(next..).and_then(segment::entry_bytes) {
            let Some(entry) = bytes.get_mut(next..next + length).filter(|_| next < end) else { break };
            let checksum = crc32fast::hash(&entry[4..]).to_le_bytes();
            entry[..4].copy_from_slice(&checksum);
            checksums.extend_from_slice(&checksum);
            next += length;
        }
        *batches += 1;
        segment::seal(&mut bytes[at..next], store, *batches, &checksums);
        at = next;
    }
}

fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("there is room")
}

fn open(directory: &Path) -> Result<Log, Error> {
    Log::open(directory, Some(SEGMENT_BYTES), |_, _| Ok(String::new()))
}

/// Checks that only the content type of a row was wrong.
fn is_no_text(error: Error) {
    assert!(error.to_string().contains("utf-8"), "{error}");
}

fn is_damaged(error: &Error) -> bool {
    error.kind() == Kind::Config && error.to_string().contains("is damaged: ")
}

fn name(key: u8) -> Key {
    Key::new(&[b'k', key]).expect("it is short enough")
}

/// A PUT of a value that depends on what comes next.
fn put(key: u8, version: &mut u64, data: &mut impl Iterator<Item = u8>) -> Write {
    let length = data.next().unwrap_or_default();
    *version += 1;
    let value = vec![length ^ key ^ *version as u8; usize::from(length) * 3];
    let (key, version) = (name(key), Version(*version));
    let row = Row::new(&key, "text/plain", &value, version);
    Write { key, version, change: Change::Put(row) }
}

fn write(log: &Log, writes: &[Write], rows: &mut Rows) {
    log.write(writes).expect("there is room");
    for write in writes {
        match &write.change {
            Change::Put(row) => rows.extend([shown(&write.key, row)]),
            Change::Delete => drop(rows.remove(write.key.as_bytes())),
        }
    }
}

fn rows_of(log: &Log) -> Result<Rows, Error> {
    let keys: Vec<Key> = log.index.read().rows.keys().cloned().collect();
    let rows = keys.iter().map(|key| Ok(log.read(key)?.map(|row| shown(key, &row))));
    Ok(rows.collect::<Result<Vec<_>, Error>>()?.into_iter().flatten().collect())
}

fn shown(key: &Key, row: &Row) -> (Vec<u8>, (u64, Vec<u8>)) {
    (key.as_bytes().to_vec(), (row.version().0, row.value().to_vec()))
}
