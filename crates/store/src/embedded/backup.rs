//! Copies an embedded store, also while a server writes it.
//!
//! The log is only appended to, what was acknowledged is never cut off, and at any moment its directory is what a crash would leave at that moment. So it is enough to take
//! hold of all segments of one moment, which are then there even if the cleaner removes them, and of the newest as much as is
//! whole. What was acknowledged before that moment is in it.

use super::end::{End, EndFile};
use super::files;
use super::repair::{self, Checked};
use super::replay::last_meta;
use super::segment::{self, PREAMBLE_BYTES};
use crate::{Error, Kind};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The end of a segment is read so often at most, if it is written at the same time.
const READS_MAX: usize = 100;

/// Copies the store in `directory` to `destination`, a new directory, and reads the copy.
pub(super) fn backup(directory: &Path, destination: &Path) -> Result<Checked, Error> {
    // With a `/` at its end the copy would begin inside of it.
    let destination = &*destination.components().collect::<PathBuf>();
    let is_free = fs::read_dir(destination)
        .map_or_else(|error| error.kind() == io::ErrorKind::NotFound, |mut files| files.next().is_none());
    if !is_free {
        let what = format!("{} is there already", destination.display());
        return Err(Error::new(Kind::Config, format!("{what}; name a directory that is not")));
    }
    let parent = destination.parent().filter(|parent| parent.as_os_str() != "").unwrap_or(Path::new("."));
    let is_elsewhere = |found: fs::Metadata| {
        found.is_symlink() || fs::metadata(parent).is_ok_and(|parent| parent.dev() != found.dev())
    };
    // The copy begins beside it, and could not get its name.
    if fs::symlink_metadata(destination).is_ok_and(is_elsewhere) {
        let what = format!("{} is a link, or where a file system is mounted", destination.display());
        return Err(Error::new(Kind::Config, format!("{what}; name a directory in it")));
    }
    let unread = |error: io::Error| {
        let what = format!("cannot read the store in {}: {error}", directory.display());
        let (kind, hint) = match Errno::from_io_error(&error) {
            Some(Errno::IO) => (Kind::Rejected, "`weir store check` lists what the disk cannot read"),
            _ => (Kind::Config, "name its directory, as a user who may read it"),
        };
        Error::new(kind, format!("{what}; {hint}"))
    };
    let (segments, said) = segments(directory).map_err(unread)?;
    let Some((number, file)) = segments.last() else { return Err(repair::no_store_in(directory)) };
    let newest_bytes = newest(file).map_err(unread)?;
    if let Some(what) = shorter(directory, *number, &newest_bytes, said) {
        let what = format!("the store is damaged: {what}");
        return Err(Error::new(Kind::Rejected, format!("{what}; `weir store check` lists all damage")));
    }
    let mut name = OsString::from(destination);
    name.push(".partial");
    let partial = PathBuf::from(name);
    let unwritten = |error: io::Error| {
        let what = format!("cannot write the copy in {}: {error}", partial.display());
        Error::new(Kind::Refused, format!("{what}; check free space and permissions"))
    };
    // Until the copy has its name, no other backup may write it.
    let _lock = locked(&partial).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let what = format!("another backup writes {}", partial.display());
            Error::new(Kind::Config, format!("{what}; wait until it has ended, or name another directory"))
        }
        _ => unwritten(error),
    })?;
    copy(&segments, &newest_bytes, &partial).map_err(|error| {
        let _ = clear(&partial).and_then(|()| fs::remove_dir(&partial));
        if Errno::from_io_error(&error) == Some(Errno::IO) { unread(error) } else { unwritten(error) }
    })?;
    let checked = repair::check(&partial)?;
    if let Some(damage) = checked.damage.first() {
        let what = format!("the store is damaged, and so is its copy: {damage}");
        return Err(Error::new(
            Kind::Rejected,
            format!("{what}; `weir store check` of the copy lists all damage"),
        ));
    }
    // Under its name it is complete.
    fs::rename(&partial, destination).and_then(|()| files::sync_name(destination)).map_err(unwritten)?;
    Ok(Checked { directory: destination.to_owned(), ..checked })
}

/// The segments of one moment, open, and what is said of their end.
fn segments(directory: &Path) -> io::Result<(Vec<(u32, File)>, EndFile)> {
    let mut tries = 0;
    loop {
        let numbers = files::segments(directory)?;
        let open = numbers.iter().map(|number| Ok((*number, File::open(files::path(directory, *number))?)));
        let opened = open.collect::<io::Result<Vec<_>>>();
        let said = End::read(directory)?;
        tries += 1;
        // The server may have begun a segment and ended. If it is not there the next time, it is missing.
        let is_behind = matches!(said, EndFile::Whole(end) if Some(&end.segment) > numbers.last());
        // Otherwise one was begun or removed meanwhile.
        if files::segments(directory)? == numbers && (!is_behind || tries >= READS_MAX) {
            return Ok((opened?, said));
        }
    }
}

/// Why the log ends before it should, if it does: with the segment `newest`, of which these bytes are whole.
fn shorter(directory: &Path, newest: u32, bytes: &[u8], said: EndFile) -> Option<String> {
    if let EndFile::Damaged { .. } = said {
        return Some(format!("{} cannot be read", directory.join(files::END).display()));
    }
    let end = said.at_rest(segment::store_of(bytes)?, newest)?;
    let (path, bytes) = (files::path(directory, end.segment), bytes.len() as u64);
    match end.segment > newest {
        true => Some(format!("{} is missing", path.display())),
        false => (bytes < end.bytes)
            .then(|| format!("{} ends at {bytes} and not at {}", path.display(), end.bytes)),
    }
}

/// The directory of the copy, made if it is not there, for one backup alone. An error of kind `WouldBlock`: another one has it.
fn locked(partial: &Path) -> io::Result<File> {
    match DirBuilder::new().mode(0o700).create(partial) {
        // Of a backup that was cut short, or that is still running.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let directory = File::open(partial)?;
    directory.try_lock()?;
    Ok(directory)
}

fn copy(segments: &[(u32, File)], newest_bytes: &[u8], partial: &Path) -> io::Result<()> {
    clear(partial)?;
    // Before what it tells of, so that a copy of the copy that is cut short has it.
    if let (Some((oldest, _)), Some((segment, _)), Some(store)) =
        (segments.first(), segments.last(), segment::store_of(newest_bytes))
    {
        let bytes = newest_bytes.len() as u64;
        // Not the oldest that is there: of a damaged log others before it may be missing.
        let first = last_meta(newest_bytes, store).map_or(*oldest, |meta| meta.first as u32);
        End { store, first, segment: *segment, bytes, is_copy: true }.write(partial)?;
    }
    for (at, (number, file)) in segments.iter().enumerate() {
        let path = files::path(partial, *number);
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        if at + 1 < segments.len() {
            io::copy(&mut &*file, &mut to)?;
        } else {
            to.write_all(newest_bytes)?;
        }
        to.sync_all()?;
    }
    File::open(partial)?.sync_all()
}

/// What is in the newest segment, without a batch at its end that is being written.
fn newest(mut file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for _ in 0..READS_MAX {
        bytes.clear();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        let Some(store) = segment::store_of(&bytes) else { break };
        let (mut end, mut before) = (PREAMBLE_BYTES, None);
        while let Some(batch) = segment::batch(&bytes, end, store) {
            (end, before) = (batch.range.end, Some(batch.number));
        }
        // Else that batch became whole, and others followed it, while this was read: or the segment is damaged.
        if segment::next_batch(&bytes, end, store, before).is_none() {
            bytes.truncate(end);
            break;
        }
    }
    Ok(bytes)
}

/// Removes what is in a copy.
fn clear(partial: &Path) -> io::Result<()> {
    End::remove(partial)?;
    files::segments(partial)?.into_iter().try_for_each(|number| fs::remove_file(files::path(partial, number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;
    use crate::embedded::log::Log;
    use kv::{Change, Key, Row, Version, Write};

    fn opened(directory: &Path) -> Result<Log, Error> {
        let admit =
            |map: Option<&str>, in_use| Part::WHOLE.admit(map, in_use, "it").map(|_| Part::WHOLE.map());
        Log::open(directory, Some(1 << 16), admit)
    }

    fn put(log: &Log, key: &Key, round: u64) {
        let version = Version::first_of(1 + round);
        let row = Row::new(key, "", &round.to_le_bytes().repeat(100), version);
        log.write(&[Write { key: key.clone(), version, change: Change::Put(row) }]).unwrap();
    }

    #[test]
    fn a_copy_is_what_was_there_at_each_step_of_the_log() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let key = Key::new(b"key").unwrap();
        let log = opened(&directory).unwrap();
        for round in 0..400 {
            put(&log, &key, round);
            if round % 10 > 0 {
                continue;
            }
            if log.is_wasteful() {
                log.clean(&|| false).unwrap();
            }
            // With and without a `/` at its end.
            let copy = place.path().join(format!("{round}{}", if round == 0 { "/" } else { "" }));
            assert_eq!(backup(&directory, &copy).unwrap().rows, 1);
            let row = opened(&copy).unwrap().read(&key).unwrap().unwrap();
            assert_eq!(row.value(), round.to_le_bytes().repeat(100));
        }
    }

    #[test]
    fn of_two_backups_to_one_directory_the_second_is_refused_and_touches_nothing() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        put(&opened(&directory).unwrap(), &Key::new(b"key").unwrap(), 0);
        let first = locked(&place.path().join("copy.partial")).unwrap();
        let half = files::path(&place.path().join("copy.partial"), 7);
        fs::write(&half, "half").unwrap();
        let error = backup(&directory, &place.path().join("copy")).unwrap_err();
        assert!(error.to_string().contains("another backup writes"), "{error}");
        assert!(half.exists());
        drop(first);
        assert_eq!(backup(&directory, &place.path().join("copy")).unwrap().rows, 1);
    }

    #[test]
    fn a_batch_at_the_end_that_is_not_whole_is_left_out_and_damage_is_not() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("store");
        let log = opened(&directory).unwrap();
        for round in 0..3 {
            put(&log, &Key::new(&[round as u8]).unwrap(), round);
        }
        drop(log);
        let file = files::path(&directory, 1);
        let whole = fs::read(&file).unwrap();
        let end = whole.iter().rposition(|byte| *byte != 0).unwrap();
        let change = |at: usize, to: &str| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            fs::write(&file, bytes).unwrap();
            backup(&directory, &place.path().join(to))
        };
        assert_eq!(change(end, "torn").unwrap().rows, 2);
        let error = change(end - 1500, "damaged").unwrap_err();
        assert!(error.to_string().contains("damaged"), "{error}");
        assert!(place.path().join("damaged.partial").exists() && !place.path().join("damaged").exists());
    }
}
