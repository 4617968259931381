//! Checks a directory of the embedded store that no server uses, and repairs it: a new log of what can be read, and the old one
//! beside it.

use super::end::{self, End};
use super::files;
use super::index::Place;
use super::log::{Log, Purpose, Writer, cannot_open};
use super::replay::{Damage, Replayed};
use super::segment::{self, EntryKind, Meta};
use crate::{Error, Kind, Part};
use kv::Version;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is in a directory of the embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The directory.
    pub directory: PathBuf,
    /// Segments of the log.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Writes that the log holds, also those that later ones replaced.
    pub records: u64,
    /// Rows that there are.
    pub rows: usize,
    /// Their bytes in the log.
    pub row_bytes: u64,
    /// In the order of the log. Where there is any, a server does not open the store.
    pub damage: Vec<Damage>,
    /// What stands behind the last whole batch: a write that was not acknowledged. A server cuts it off.
    pub torn: Option<(PathBuf, Range<u64>)>,
}

/// What was done to a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// What was in it before.
    pub before: Checked,
    /// Where its old segments are now. `None`: nothing was damaged, and nothing was done.
    pub set_aside: Option<PathBuf>,
    /// Whether it was read which part of the keys the store holds. If not, it is now one that holds all.
    pub has_map: bool,
}

/// Reads the store in `directory` and changes nothing.
pub(super) fn check(directory: &Path) -> Result<Checked, Error> {
    let _lock = files::lock_for_reading(directory).map_err(|error| unusable(directory, error))?;
    Ok(checked(directory, &read(directory)?))
}

/// Writes all rows of a damaged store that can be read anew, and then puts its old segments aside.
pub(super) fn repair(directory: &Path, segment_bytes_max: Option<u64>) -> Result<Repaired, Error> {
    // Before the lock is made in what is no store.
    read(directory)?;
    let lock = files::lock(directory).map_err(|error| unusable(directory, error))?;
    let repaired = repair_locked(directory, segment_bytes_max, lock);
    let given = files::give_to_owner(directory);
    repaired.and_then(|repaired| match given {
        Ok(()) => Ok(repaired),
        Err(error) => {
            let done = match &repaired.set_aside {
                Some(aside) => format!("is repaired, and its old files are in {}", aside.display()),
                None => "is not damaged".to_owned(),
            };
            let what = format!("the store in {} {done}", directory.display());
            let what = format!("{what}, but its files cannot be given to its owner: {error}");
            Err(Error::new(Kind::Refused, format!("{what}; give them to the user of the server, as root")))
        }
    })
}

fn repair_locked(directory: &Path, segment_bytes_max: Option<u64>, lock: File) -> Result<Repaired, Error> {
    let unusable = |error| unusable(directory, error);
    let replayed = read(directory)?;
    let before = checked(directory, &replayed);
    let has_map = replayed.meta.is_some();
    if before.damage.is_empty() {
        return Ok(Repaired { before, set_aside: None, has_map });
    }
    let old = files::segments(directory).map_err(unusable)?;
    if old.is_empty() {
        let what = format!("nothing of the store in {} is left", directory.display());
        return Err(Error::new(Kind::Config, format!("{what}; restore a backup of the directory")));
    }
    let (log, last) = behind(directory, segment_bytes_max, lock, replayed).map_err(unusable)?;
    // As long as the newest segment does not say that the log begins behind them, the old ones count.
    let set_aside = log
        .rewrite_all()
        .and_then(|()| files::set_aside(directory, &old).map_err(unusable))
        .inspect_err(|_| {
            let made = files::segments(directory).unwrap_or_default();
            made.iter()
                .rev()
                .filter(|number| **number > last)
                .for_each(|number| files::remove(&log.path(*number)));
        })?;
    log.begin_at(&mut log.writer.lock(), last + 1)?;
    // What it says is of the old ones.
    End::remove(directory).map_err(unusable)?;
    old.iter().for_each(|number| files::remove(&log.path(*number)));
    match read(directory)?.damage.first() {
        None => Ok(Repaired { before, set_aside: Some(set_aside), has_map }),
        Some(damage) => {
            let what = format!("the repaired store is damaged again: {damage}; the old files are in");
            Err(Error::new(Kind::Config, format!("{what} {}", set_aside.display())))
        }
    }
}

/// The log that what was read becomes, and the number of its last segment. The next ones show that they are a repair's.
fn behind(
    directory: &Path,
    segment_bytes_max: Option<u64>,
    lock: File,
    replayed: Replayed,
) -> io::Result<(Log, u32)> {
    let Replayed { store, index, meta, end, batch, version_max, at_rest, .. } = replayed;
    let newest = files::segments(directory)?.last().copied().unwrap_or_default();
    // Numbers of segments that are missing stay a gap.
    let last = at_rest.map_or(newest, |end| newest.max(end.segment));
    let meta = meta.unwrap_or(Meta { map: Part::WHOLE.map(), ..Meta::default() });
    // What is lost may have had any epoch behind it.
    let epoch = meta.epoch.max(Version(version_max).epoch()).saturating_add(end::gap());
    let meta = Meta { epoch, first: segment::UNFINISHED, ..meta };
    // Not for writing: it stays as it is.
    let file = Arc::new(File::open(files::path(directory, newest))?);
    let writer = Writer::behind(file, last, end, batch, meta);
    Ok((Log::new(directory, segment_bytes_max, store, index, writer, lock), last))
}

impl Log {
    /// Writes all rows anew, and no events: some may be missing.
    fn rewrite_all(&self) -> Result<(), Error> {
        let mut rows: Vec<Place> = self.index.read().rows.values().copied().collect();
        // In the order of the log, one segment after the other.
        rows.sort_unstable_by_key(|place| (place.segment, place.offset));
        for rows in rows.chunk_by(|one, next| one.segment == next.segment) {
            let read = File::open(self.path(rows[0].segment)).and_then(|file| files::read(&file));
            let (bytes, _) = read.map_err(|error| unusable(&self.directory, error))?;
            self.rewrite(&bytes, rows, &|| false)?;
        }
        Ok(())
    }

    /// From now on the segment `first` is the oldest that counts.
    pub(super) fn begin_at(&self, writer: &mut Writer, first: u32) -> Result<(), Error> {
        let before = std::mem::replace(&mut writer.meta.first, u64::from(first));
        let meta = writer.meta.encode();
        let appended = self.append(writer, Purpose::Free, &[segment::keyless(EntryKind::Meta, 0, &meta)]);
        appended.map(drop).inspect_err(|_| writer.meta.first = before)
    }
}

fn read(directory: &Path) -> Result<Replayed, Error> {
    let replayed = Replayed::read(directory).map_err(|error| unusable(directory, error))?;
    if replayed.index.segments.is_empty() && replayed.damage.is_empty() {
        return Err(no_store_in(directory));
    }
    Ok(replayed)
}

fn checked(directory: &Path, replayed: &Replayed) -> Checked {
    let Replayed { index, records, damage, torn, .. } = replayed;
    Checked {
        directory: directory.to_owned(),
        segments: index.segments.len(),
        bytes: index.bytes,
        records: *records,
        rows: index.rows.len(),
        row_bytes: index.rows.values().map(|place| u64::from(place.bytes)).sum(),
        damage: damage.clone(),
        torn: torn.clone(),
    }
}

pub(super) fn no_store_in(directory: &Path) -> Error {
    let what = format!("there is no store in {}", directory.display());
    Error::new(Kind::Config, format!("{what}; name a directory with files like 0000000001.log"))
}

fn unusable(directory: &Path, error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let what = format!("a server holds the store file:{}", directory.display());
            Error::new(Kind::Taken, format!("{what}; stop it first"))
        }
        _ => cannot_open(directory, &error),
    }
}

#[cfg(test)]
mod tests;
