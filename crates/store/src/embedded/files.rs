//! The files of the embedded store's directory: what they are called, locked by, allocated and removed.

use rustix::fs::{FallocateFlags, fallocate, syncfs};
use rustix::io::Errno;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};

/// Locked as long as a server uses the directory.
const LOCK: &str = "lock";
const SUFFIX: &str = ".log";
/// Says where the log ends.
pub(super) const END: &str = "end";
/// With a number behind it, a directory of damaged segments.
const ASIDE: &str = "damaged-";

/// So much of a file is allocated at once, and read at once where it cannot be read as a whole.
pub(super) const BLOCK_BYTES: usize = 4096;
/// What is in the place of bytes that cannot be read: not what the log has where nothing is written, nor often a whole block of a value.
const UNREAD: u8 = 0xA5;

/// The file with `bytes` allocated; shorter ones become longer, and longer ones shorter.
pub(super) fn allocate(path: &Path, bytes: u64) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    resize(&file, bytes).map(|()| file)
}

/// The same of an open file.
pub(super) fn resize(file: &File, bytes: u64) -> io::Result<()> {
    let length = file.metadata()?.len();
    if length >= bytes {
        return if length > bytes { file.set_len(bytes) } else { Ok(()) };
    }
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        // A file system that cannot: writes say when it is full.
        Err(Errno::OPNOTSUPP) => file.set_len(bytes),
        done => Ok(done?),
    }
}

/// All of `file`, and which parts of it the disk cannot read: [`UNREAD`] is there instead.
pub(super) fn read(mut file: &File) -> io::Result<(Vec<u8>, Vec<Range<usize>>)> {
    let is_unread = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::IO);
    let (mut bytes, mut unread) = (Vec::new(), Vec::new());
    file.rewind()?;
    match file.read_to_end(&mut bytes) {
        Err(error) if is_unread(&error) => {}
        read => return read.map(|_| (bytes, unread)),
    }
    bytes = vec![0; file.metadata()?.len() as usize];
    for (number, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
        let at = number * BLOCK_BYTES;
        match file.read_exact_at(block, at as u64) {
            Err(error) if is_unread(&error) => {
                block.fill(UNREAD);
                unread.push(at..at + block.len());
            }
            read => read?,
        }
    }
    Ok((bytes, unread))
}

/// Has the name of a directory on disk. Where the directory above must not be read, all of the file system is flushed for it.
pub(super) fn sync_name(directory: &Path) -> io::Result<()> {
    match File::open(directory.join("..")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(syncfs(File::open(directory)?)?),
        parent => parent?.sync_all(),
    }
}

pub(super) fn remove_if_there(path: &Path) -> io::Result<()> {
    fs::remove_file(path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// An error of kind `WouldBlock`: somebody else has it.
pub(super) fn lock(directory: &Path) -> io::Result<File> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(directory.join(LOCK))?;
    file.try_lock()?;
    // What the one before noted.
    file.set_len(0)?;
    Ok(file)
}

/// Whether `directory` is still the one in which this `lock` was taken: somebody may have moved it and put another in its place.
pub(super) fn is_locked_by(directory: &Path, lock: &File) -> bool {
    let place = |of: fs::Metadata| (of.dev(), of.ino());
    let [here, own] = [fs::metadata(directory.join(LOCK)), lock.metadata()].map(|of| of.map(place));
    matches!((here, own), (Ok(here), Ok(own)) if here == own)
}

/// Notes in the locked `file` that who has it ends soon.
pub(super) fn note_end(mut file: &File) -> io::Result<()> {
    file.write_all(b"ends")
}

/// Whether who has the lock of `directory` has noted that.
pub(super) fn ends(directory: &Path) -> bool {
    fs::metadata(directory.join(LOCK)).is_ok_and(|file| file.len() > 0)
}

/// For readers only, without making anything. `None`: nobody has used the directory since it was copied. An error of kind
/// `WouldBlock`: a server has it.
pub(super) fn lock_for_reading(directory: &Path) -> io::Result<Option<File>> {
    let file = match File::open(directory.join(LOCK)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    file.try_lock_shared()?;
    Ok(Some(file))
}

pub(super) fn path(directory: &Path, segment: u32) -> PathBuf {
    directory.join(format!("{segment:010}{SUFFIX}"))
}

/// The numbers of all segments in `directory`, ascending.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    for file in fs::read_dir(directory)? {
        let name = file?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(SUFFIX)?.parse::<u32>().ok());
        // Others may be called `2026.log`.
        numbers.extend(number.filter(|number| path(Path::new(""), *number) == Path::new(&name)));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes a segment that no longer counts. If it cannot be, only space is lost, until the store is opened again.
pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        log::warn!("cannot remove {}: {error}", path.display());
    }
}

/// Gives what others made in `directory` to its owner: what root made, the server of another user could not open.
pub(super) fn give_to_owner(directory: &Path) -> io::Result<()> {
    let owner = fs::metadata(directory)?;
    for file in fs::read_dir(directory)? {
        let file = file?;
        let found = file.metadata()?;
        let is_ours = found.is_file() || file.file_name().to_string_lossy().starts_with(ASIDE);
        if is_ours && found.uid() != owner.uid() {
            lchown(file.path(), Some(owner.uid()), Some(owner.gid()))?;
        }
    }
    Ok(())
}

/// Gives `segments` a second name each in a new directory `damaged-NUMBER`, which it gives.
pub(super) fn set_aside(directory: &Path, segments: &[u32]) -> io::Result<PathBuf> {
    let mut number = 1;
    let aside = loop {
        let aside = directory.join(format!("{ASIDE}{number}"));
        match DirBuilder::new().mode(0o700).create(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => break made.map(|()| aside)?,
        }
    };
    for segment in segments {
        fs::hard_link(path(directory, *segment), path(&aside, *segment))?;
    }
    let [end, end_aside] = [directory, &aside].map(|directory| directory.join(END));
    if end.exists() {
        fs::hard_link(end, end_aside)?;
    }
    File::open(&aside)?.sync_all()?;
    File::open(directory)?.sync_all()?;
    Ok(aside)
}
