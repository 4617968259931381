//! The log of the embedded store: segments on disk, and in memory where each row is in them.
//!
//! A write appends one batch to the newest segment and flushes it. At most one batch is not flushed at any time, so that what is
//! broken at the log's end was never acknowledged, and what is broken anywhere else is damage. After a failed write or flush a
//! segment is never appended to again: the next one says where it ends.
//!
//! The oldest segment goes once its rows have been written anew at the log's end. So an entry that removes a row is never older
//! than one that creates it.

use super::end::{self, End};
use super::files::{self, BLOCK_BYTES};
use super::index::{Index, Place, Segment};
use super::replay::Replayed;
use super::segment::{self, Entry, EntryKind, META_BYTES, Meta, PREAMBLE_BYTES};
use crate::sql::ending;
use crate::{Error, EventBlock, Found, Kind, Listed, Listing};
use kv::{Change, Key, Row, Version, Write};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{Access, access, statvfs};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{Bound, Range};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The next segment, before it is one.
const NEXT: &str = "next";
/// Space for what may be written although the disk is full.
const RESERVE: &str = "reserve";

/// What stays of it for those who open the log: on a full disk it could not even be read.
const OPENING_BYTES: u64 = 64 << 10;

/// How long segments are: a share of the space there is, within these bounds.
const SEGMENT_BYTES: [u64; 2] = [1 << 20, 64 << 20];
/// No segment is longer, however large the store: places in it have 32 bits.
const LONGEST: u64 = 1 << 30;
pub(super) const SEGMENTS: u64 = 64;
/// Blocks of events that are read at once.
const EVENT_BLOCKS: usize = 1024;

/// The end of the log.
pub(super) struct Writer {
    file: Arc<File>,
    segment: u32,
    offset: u64,
    /// Bytes of the file that are allocated.
    pub room: u64,
    /// Of the last batch.
    batch: u64,
    pub meta: Meta,
    /// After a failure nothing more is appended to this segment.
    is_spoiled: bool,
    /// Nor to any other: what is on disk is known only after opening it again.
    is_lost: bool,
    /// Bytes of the reserve. 0: it is gone, or shorter than it has to be.
    pub reserve: u64,
    /// There was no space for more data.
    pub is_full: bool,
}

impl Writer {
    /// At an offset of a segment, with no room yet.
    fn at(file: Arc<File>, segment: u32, offset: u64, batch: u64, meta: Meta) -> Writer {
        Writer {
            file,
            segment,
            offset,
            room: 0,
            batch,
            meta,
            is_spoiled: false,
            is_lost: false,
            reserve: 0,
            is_full: false,
        }
    }

    /// Behind what counts of a segment. Nothing more is appended to that segment.
    pub(super) fn behind(file: Arc<File>, segment: u32, offset: u64, batch: u64, meta: Meta) -> Writer {
        Writer { is_spoiled: true, ..Writer::at(file, segment, offset, batch, meta) }
    }

    /// Gives back what is allocated and not used. If it cannot be, there is only less space.
    fn trim(&self) {
        let _ = self.file.set_len(self.offset);
    }
}

/// What a batch is written for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// More data: the reserve stays.
    Store,
    /// Less data, sooner or later: of the reserve only [`OPENING_BYTES`] stay.
    Free,
    /// An epoch, or a log without rows.
    Begin,
}

pub(super) struct Log {
    pub(super) directory: PathBuf,
    segment_bytes_max: Option<u64>,
    /// A random number in every checksum.
    pub(super) store: u64,
    pub(super) index: RwLock<Index>,
    pub(super) writer: Mutex<Writer>,
    lock: File,
}

impl Log {
    /// Opens the log in `directory`, which is made if it is absent, and begins an epoch. `admit` is told of the map and whether
    /// there are rows, and gives the map to write.
    ///
    /// After a crash the last batch is written again in its place: its flush may have failed, and what the page cache says then is not
    /// what the disk says. All segments are flushed: they may have been copied here a moment ago.
    pub(super) fn open(
        directory: &Path,
        segment_bytes_max: Option<u64>,
        admit: impl FnOnce(Option<&str>, bool) -> Result<String, Error>,
    ) -> Result<Log, Error> {
        let cannot = |cause: io::Error| cannot_open(directory, &cause);
        let is_new = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made: Vec<&Path> = directory.ancestors().skip(1).take_while(is_new).collect();
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(cannot)?;
        // Else only the first write would say so, without its place.
        access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| cannot(error.into()))?;
        // The directory's own name has to be on disk, too, and those of the directories above that were made with it.
        for named in [directory].into_iter().chain(made) {
            files::sync_name(named).map_err(cannot)?;
        }
        let lock = files::lock(directory).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock if files::ends(directory) => {
                ending(&format!("file:{}", directory.display()))
            }
            io::ErrorKind::WouldBlock => {
                let what = format!("another server holds the store file:{}", directory.display());
                Error::new(Kind::Taken, format!("{what}; stop it, or use another directory"))
            }
            _ => cannot(error),
        })?;
        let replayed = Replayed::read(directory).map_err(cannot)?;
        if let Some(damage) = replayed.damage.first() {
            let store = format!("file:{}", directory.display());
            let rest = match replayed.index.segments.is_empty() {
                true => ": nothing of the store is left".to_owned(),
                false => format!(
                    ", or: `weir store check {store}` lists all damage, `weir store repair {store}` keeps what can be read"
                ),
            };
            let what = format!("the store {store} is damaged: {damage}; restore a backup of the directory");
            return Err(Error::new(Kind::Config, what + &rest));
        }
        let Replayed { store, index, meta, end, last_batch, batch, at_rest, .. } = replayed;
        let map = admit(meta.as_ref().map(|meta| meta.map.as_str()), !index.rows.is_empty())?;
        let meta = meta.unwrap_or_else(|| Meta { first: 1, epoch: crate::any_epoch(), ..Meta::default() });
        let (segment, file) = match index.segments.last_key_value() {
            // To be cut where it ends.
            Some((number, _)) => {
                (*number, OpenOptions::new().write(true).open(files::path(directory, *number)))
            }
            None => (0, lock.try_clone()),
        };
        let file = file.map_err(cannot)?;
        let mut flushed = file.write_all_at(&last_batch, end - last_batch.len() as u64);
        for segment in index.segments.values() {
            flushed = flushed.and_then(|()| segment.file.sync_all());
        }
        flushed.map_err(cannot)?;
        let first = meta.first;
        // Epochs end far below: then no server may own the store.
        let skipped = if at_rest.is_some_and(|end| end.is_copy) { end::gap() } else { 0 };
        let meta = Meta { epoch: meta.epoch.saturating_add(1 + skipped), map, ..meta };
        let writer = Writer::behind(Arc::new(file), segment, end, batch, meta);
        let log = Log::new(directory, segment_bytes_max, store, index, writer, lock);
        let mut writer = log.writer.lock();
        log.roll(&mut writer, Purpose::Begin, 0)?;
        // It says nothing any more: there is a later segment.
        End::remove(&log.directory).map_err(cannot)?;
        for number in files::segments(&log.directory).map_err(cannot)? {
            if u64::from(number) < first {
                files::remove(&log.path(number));
            }
        }
        drop(writer);
        Ok(log)
    }

    /// A log whose next segment is still to be begun.
    pub(super) fn new(
        directory: &Path,
        segment_bytes_max: Option<u64>,
        store: u64,
        index: Index,
        writer: Writer,
        lock: File,
    ) -> Log {
        let (directory, index, writer) = (directory.to_owned(), RwLock::new(index), Mutex::new(writer));
        Log { directory, segment_bytes_max, store, index, writer, lock }
    }

    /// Says where the log ends, for who opens it after this; nothing of one of which a write or a flush failed.
    pub(super) fn say_end(&self) -> io::Result<()> {
        let writer = self.writer.lock();
        let (segment, bytes) = (writer.segment, writer.offset);
        let is_known = !writer.is_spoiled && !writer.is_lost;
        let end = End { store: self.store, first: writer.meta.first as u32, segment, bytes, is_copy: false };
        if !is_known {
            return Ok(());
        }
        self.check_place().map_err(io::Error::other)?;
        end.write(&self.directory)
    }

    /// Fails if another directory is in the place of the log's own: its files are not ours.
    pub(super) fn check_place(&self) -> Result<(), Error> {
        if files::is_locked_by(&self.directory, &self.lock) {
            return Ok(());
        }
        let directory = self.directory.display();
        let what =
            format!("the directory {directory} was moved, replaced or removed while this server used it");
        Err(Error::new(Kind::Refused, format!("{what}; stop the server, and see which of them it is to use")))
    }

    /// Says to who waits for the lock that this server ends soon.
    pub(super) fn note_end(&self) {
        // Who does not see it refuses requests until it has the lock.
        if let Err(error) = files::note_end(&self.lock) {
            log::debug!("cannot note the end: {error}");
        }
    }

    /// Which epoch this is.
    pub(super) fn epoch(&self) -> u64 {
        self.writer.lock().meta.epoch
    }

    /// The row under `key`. An error: it cannot be read, or is damaged.
    pub(super) fn read(&self, key: &Key) -> Result<Option<Row>, Error> {
        let index = self.index.read();
        let Some(place) = index.rows.get(key).copied() else { return Ok(None) };
        let file = Arc::clone(&index.segments[&place.segment].file);
        drop(index);
        let bytes = self.bytes_at(&place, &file, place.bytes as usize)?;
        let entry = segment::entry(&bytes).filter(|entry| entry.key == key.as_bytes());
        let entry = entry.ok_or_else(|| self.unread(&place, &"the row is damaged"))?;
        Ok(Some(entry.row(key, entry.value)))
    }

    /// The rows that [`Session::list`] gives.
    pub(super) fn list(&self, listing: &Listing) -> Result<Vec<Listed>, Error> {
        let index = self.index.read();
        let found: Vec<(Key, Place, Arc<File>)> = {
            let place = |key: &Key, place: &Place| {
                (key.clone(), *place, Arc::clone(&index.segments[&place.segment].file))
            };
            if listing.expired {
                let keys = index.expired(listing.now).take(listing.limit);
                keys.filter_map(|key| Some(place(key, index.rows.get(key)?))).collect()
            } else if listing.from.as_slice() >= listing.end() {
                Vec::new()
            } else {
                let bounds = (Bound::Included(listing.from.as_slice()), Bound::Excluded(listing.end()));
                let rows = index.rows.range::<[u8], _>(bounds);
                let live = rows.filter(|(key, _)| index.expires(key).is_none_or(|at| at > listing.now));
                live.take(listing.limit).map(|(key, at)| place(key, at)).collect()
            }
        };
        drop(index);
        let listed = |(key, place, file): (Key, Place, Arc<File>)| {
            let length = (place.bytes as usize).min(segment::OUTLINE_BYTES_MAX);
            let bytes = self.bytes_at(&place, &file, length)?;
            let outline = segment::outline(&bytes).filter(|(entry, _)| entry.key == key.as_bytes());
            let (entry, value_bytes) = outline.ok_or_else(|| self.unread(&place, &"the row is damaged"))?;
            Ok(Listed { row: entry.row(&key, b""), value_bytes })
        };
        // Those that are to be removed are not held up by one that cannot be read.
        let unread = |key: &Key| Listed { row: Row::new(key, "", b"", Version(0)), value_bytes: 0 };
        let listed_too = |of: (Key, Place, Arc<File>)| {
            let instead = listing.expired.then(|| unread(&of.0));
            listed(of).or_else(|error| instead.ok_or(error))
        };
        found.into_iter().map(listed_too).collect()
    }

    /// Makes `writes`, whose keys are distinct, durable, and says what each found.
    #[cfg(any(test, feature = "test-support"))]
    pub(super) fn write(&self, writes: &[Write]) -> Result<Vec<Found>, Error> {
        self.write_with(writes, None)
    }

    /// The same, with a block of events.
    pub(super) fn write_with(
        &self,
        writes: &[Write],
        events: Option<&EventBlock>,
    ) -> Result<Vec<Found>, Error> {
        if writes.is_empty() && events.is_none() {
            return Ok(Vec::new());
        }
        let event_value = events.map(segment::events_value).unwrap_or_default();
        let event_entry = events.map(|block| segment::keyless(EntryKind::Events, block.id, &event_value));
        let entries: Vec<Entry> = writes.iter().map(entry_of).chain(event_entry).collect();
        let puts = writes.iter().filter(|write| matches!(write.change, Change::Put(_))).count();
        let purpose = if puts == 0 { Purpose::Free } else { Purpose::Store };
        // Whether others need less space: the reserve has to be no shorter than this.
        let is_long = || segment::batch_bytes(&entries) as u64 > self.segment_bytes(0) / 2;
        let mut writer = self.writer.lock();
        let places = self.append(&mut writer, purpose, &entries).map_err(|error| match error.kind() {
            // Alone, what only removes may go, and what is small beside what is large.
            Kind::Refused if (1..writes.len()).contains(&puts) || writes.len() > 1 && is_long() => {
                error.divisible()
            }
            _ => error,
        })?;
        let mut index = self.index.write();
        if let (Some(block), Some(place)) = (events, places.last()) {
            index.add_events(block.id, *place);
        }
        let made = writes.iter().zip(places).map(|(write, place)| match write.change {
            Change::Put(ref row) => index.put(write.key.clone(), place, row.attributes().expires),
            Change::Delete => index.delete(&write.key),
        });
        Ok(made.map(Found::present).collect())
    }

    /// The first blocks of events behind the one with the id `behind`.
    pub(super) fn events(&self, behind: u64) -> Result<Vec<EventBlock>, Error> {
        let index = self.index.read();
        let blocks = index.events.range((Bound::Excluded(behind), Bound::Unbounded)).take(EVENT_BLOCKS);
        let blocks: Vec<(Place, Arc<File>)> =
            blocks.map(|(_, place)| (*place, Arc::clone(&index.segments[&place.segment].file))).collect();
        drop(index);
        let block = |(place, file): (Place, Arc<File>)| {
            let bytes = self.bytes_at(&place, &file, place.bytes as usize)?;
            let block = segment::entry(&bytes).and_then(|entry| segment::events_of(&entry));
            block.ok_or_else(|| self.unread(&place, &"the events are damaged"))
        };
        blocks.into_iter().map(block).collect()
    }

    /// Forgets the blocks of events up to `until`.
    pub(super) fn trim_events(&self, until: u64) -> Result<(), Error> {
        let entries = [segment::keyless(EntryKind::TrimEvents, until, b"")];
        let mut writer = self.writer.lock();
        let places = self.append(&mut writer, Purpose::Free, &entries)?;
        self.index.write().apply(&entries, &places);
        Ok(())
    }

    fn bytes_at(&self, place: &Place, file: &File, length: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, u64::from(place.offset))
            .map_err(|error| self.unread(place, &error))?;
        Ok(bytes)
    }

    fn unread(&self, place: &Place, cause: &dyn std::fmt::Display) -> Error {
        let (path, offset) = (self.path(place.segment), place.offset);
        let what = format!("the embedded store cannot read {} at {offset}: {cause}", path.display());
        Error::new(Kind::Rejected, what)
    }

    /// Removes all rows.
    pub(super) fn clear(&self) -> Result<(), Error> {
        let mut writer = self.writer.lock();
        let before = writer.meta.clone();
        let first = u64::from(writer.segment) + 1;
        writer.meta.first = first;
        if let Err(error) = self.roll(&mut writer, Purpose::Begin, 0) {
            writer.meta = before;
            let is_unknown = writer.is_lost || writer.is_spoiled;
            return Err(if is_unknown { Error::new(Kind::Unknown, error.to_string()) } else { error });
        }
        let mut index = self.index.write();
        index.clear();
        let old: Vec<u32> =
            index.segments.keys().copied().filter(|number| u64::from(*number) < first).collect();
        for number in old {
            index.remove_segment(number);
            files::remove(&self.path(number));
        }
        Ok(())
    }

    /// Appends a batch of `entries` and flushes it; after a failure in the next segment. The error's kind says whether it may be
    /// in the log.
    pub(super) fn append(
        &self,
        writer: &mut Writer,
        purpose: Purpose,
        entries: &[Entry],
    ) -> Result<Vec<Place>, Error> {
        if writer.is_lost {
            return Err(Error::new(Kind::Unavailable, "the embedded store has to be opened anew"));
        }
        let bytes = segment::batch_bytes(entries) as u64;
        // What does not fit into the reserve could not be moved on a full disk.
        if purpose == Purpose::Store && writer.reserve < META_BYTES + bytes {
            self.reserve(writer, META_BYTES + bytes);
            if writer.reserve == 0 {
                writer.is_full = true;
                return Err(self.full());
            }
        }
        let mut failed = None;
        // Once more: what failed is written anew elsewhere.
        for _ in 0..2 {
            let is_short = writer.offset + bytes > writer.room;
            if writer.is_spoiled || is_short && !self.lengthen(writer, writer.offset + bytes) {
                // From then on the batch that failed is not in the log.
                self.roll(writer, purpose, bytes).map_err(|error| failed.take().unwrap_or(error))?;
            }
            let (batch, places) = self.encode(writer, entries);
            match append_at(&writer.file, &batch, writer.offset) {
                Ok(()) => {
                    writer.offset += bytes;
                    writer.batch += 1;
                    self.index.write().grow(writer.segment, bytes);
                    return Ok(places);
                }
                Err(error) => {
                    writer.is_spoiled = true;
                    failed = Some(error);
                }
            }
        }
        Err(failed.unwrap_or_else(|| self.full()))
    }

    /// Makes a segment longer that was begun on a full disk, so that it has `least` bytes. `false`: it was not made longer.
    fn lengthen(&self, writer: &mut Writer, least: u64) -> bool {
        let suits = self.segment_bytes(0);
        let is_shorter = writer.room < suits / 2 && least <= suits;
        let room =
            [suits, least].into_iter().find(|room| is_shorter && files::resize(&writer.file, *room).is_ok());
        writer.room = room.unwrap_or(writer.room);
        room.is_some()
    }

    /// The next batch, for the writer's place, and where its entries will be.
    fn encode(&self, writer: &Writer, entries: &[Entry]) -> (Vec<u8>, Vec<Place>) {
        let (batch, ranges) = segment::encode(self.store, writer.batch + 1, entries);
        let place = |range: Range<usize>| Place {
            segment: writer.segment,
            offset: writer.offset as u32 + range.start as u32,
            bytes: range.len() as u32,
        };
        (batch, ranges.into_iter().map(place).collect())
    }

    /// Begins the next segment, with room for `least` bytes. The segment before ends where the writer is.
    fn roll(&self, writer: &mut Writer, purpose: Purpose, least: u64) -> Result<(), Error> {
        let (file, room) = self.next_file(writer, META_BYTES + least, purpose)?;
        let meta = Meta { previous_end: writer.offset, ..writer.meta.clone() };
        let segment = writer.segment + 1;
        let begin = Writer::at(Arc::new(file), segment, PREAMBLE_BYTES as u64, writer.batch, meta);
        let mut next = Writer { room, is_full: writer.is_full && purpose != Purpose::Store, ..begin };
        let meta = next.meta.encode();
        let (batch, _) = self.encode(&next, &[segment::keyless(EntryKind::Meta, 0, &meta)]);
        let bytes = [&segment::preamble(self.store)[..], &batch].concat();
        next.offset = bytes.len() as u64;
        next.batch += 1;
        let refused = |error| Error::new(Kind::Refused, not_written(&error).to_string());
        next.file.write_all_at(&bytes, 0).and_then(|()| next.file.sync_all()).map_err(refused)?;
        // Only under its name it counts, and only after this.
        fs::rename(self.directory.join(NEXT), self.path(next.segment)).map_err(|error| {
            // A network file system may have renamed it all the same. That segment says that this one ends here.
            writer.is_spoiled = true;
            refused(error)
        })?;
        if let Err(error) = File::open(&self.directory).and_then(|directory| directory.sync_all()) {
            writer.is_lost = true;
            return Err(Error::new(Kind::Unavailable, not_written(&error).to_string()));
        }
        writer.trim();
        *writer = next;
        let segment = Segment { file: Arc::clone(&writer.file), bytes: 0 };
        let mut index = self.index.write();
        index.segments.insert(writer.segment, segment);
        index.grow(writer.segment, writer.offset);
        drop(index);
        self.reserve(writer, META_BYTES + least);
        Ok(())
    }

    /// A file for the next segment, of at least `least` allocated bytes, and how many they are. Where nothing else is left and
    /// `purpose` may have it, it is the reserve.
    fn next_file(&self, writer: &mut Writer, least: u64, purpose: Purpose) -> Result<(File, u64), Error> {
        self.check_place()?;
        let (next, reserve) = (self.directory.join(NEXT), self.directory.join(RESERVE));
        // What an attempt that failed has written would follow what is written now.
        let absent = files::remove_if_there(&next);
        let mut file = absent.and_then(|()| files::allocate(&next, self.segment_bytes(least)));
        if file.is_err() && purpose != Purpose::Store {
            // Nothing more is written to the last segment.
            writer.trim();
            writer.room = writer.offset;
            let reserve_bytes = || fs::metadata(&reserve).map_or(0, |of_file| of_file.len());
            if purpose == Purpose::Begin {
                // No more than it needs: others may take what became free, and what is not needed of the reserve.
                file = files::allocate(&next, least).or_else(|_| {
                    writer.reserve = 0;
                    let shorter = reserve_bytes().saturating_sub(least.next_multiple_of(BLOCK_BYTES as u64));
                    files::allocate(&reserve, shorter).and_then(|_| files::allocate(&next, least))
                });
            }
            let spare = reserve_bytes().saturating_sub(OPENING_BYTES);
            let had = writer.reserve;
            let is_reserve = file.is_err()
                && (purpose == Purpose::Begin || spare >= least)
                && fs::rename(&reserve, &next).is_ok();
            writer.reserve = if is_reserve { 0 } else { had };
            // If the reserve is too short, the rest is allocated; if it is too long, the next one gets it.
            if file.is_err() {
                file = files::allocate(&next, self.segment_bytes(least).min(spare).max(least));
            }
            if file.is_err() && is_reserve && fs::rename(&next, &reserve).is_ok() {
                writer.reserve = had;
            }
        }
        let file = file.and_then(|file| file.metadata().map(|of_file| (file, of_file.len())));
        file.map_err(|error| match files::is_full(&error) {
            true => {
                writer.is_full = true;
                self.full()
            }
            false => Error::new(Kind::Refused, not_written(&error).to_string()),
        })
    }

    /// Makes the reserve, or makes it longer: as long as any segment, whose rows have to fit into it, and half a segment for what
    /// removes rows meanwhile; and no shorter than `least`.
    pub(super) fn reserve(&self, writer: &mut Writer, least: u64) {
        let longest = self.index.read().segments.values().map(|segment| segment.bytes).max().unwrap_or(0);
        let bytes = self.segment_bytes(least.max(longest + self.segment_bytes(0) / 2));
        let path = self.directory.join(RESERVE);
        let is_whole = files::allocate(&path, bytes).is_ok();
        writer.reserve = if is_whole { bytes } else { 0 };
        if !is_whole && fs::metadata(&path).is_ok_and(|of_file| of_file.len() < OPENING_BYTES) {
            // If there is no room for this either, it may stay as it is.
            let _ = files::allocate(&path, OPENING_BYTES);
        }
    }

    /// How long the next segment is, which is to hold `least` bytes.
    fn segment_bytes(&self, least: u64) -> u64 {
        let free = statvfs(&self.directory).map_or(u64::MAX, |space| space.f_bavail * space.f_frsize);
        let bytes = self.index.read().bytes;
        let [low, high] = SEGMENT_BYTES;
        // Of a large store they are longer, so that there are not too many.
        let suits =
            (free.saturating_add(bytes) / SEGMENTS).clamp(low, high).max(bytes / (4 * SEGMENTS)).min(LONGEST);
        self.segment_bytes_max.map_or(suits, |most| most.min(suits)).max(least)
    }

    fn full(&self) -> Error {
        let store = self.directory.display();
        let what =
            format!("the disk of the embedded store {store} is full, or `ulimit -f` allows no longer file");
        Error::new(Kind::Refused, format!("{what}; make room: a server uses it as soon as it is there"))
    }

    pub(super) fn path(&self, segment: u32) -> PathBuf {
        files::path(&self.directory, segment)
    }
}

fn entry_of(write: &Write) -> Entry<'_> {
    let (key, version) = (write.key.as_bytes(), write.version.0);
    match &write.change {
        Change::Put(row) => {
            let (content_type, extra, value) = (row.content_type(), row.extra(), row.value());
            let kind = if extra.is_empty() { EntryKind::Put } else { EntryKind::PutWithExtra };
            Entry { kind, version, key, content_type, extra, value }
        }
        Change::Delete => Entry { key, ..segment::keyless(EntryKind::Delete, version, b"") },
    }
}

/// Writes and flushes. Refused: not all was written, so it is no batch. Unknown: the flush failed, or what was not written are zeros,
/// which are there already, or it cannot be read back.
fn append_at(file: &File, bytes: &[u8], offset: u64) -> Result<(), Error> {
    file.write_all_at(bytes, offset).map_err(|error| {
        let mut found = vec![0; bytes.len()];
        let is_absent = match file.read_exact_at(&mut found, offset) {
            Ok(()) => found != bytes,
            Err(error) => error.kind() == io::ErrorKind::UnexpectedEof,
        };
        let kind = if is_absent { Kind::Refused } else { Kind::Unknown };
        Error::new(kind, not_written(&error).to_string())
    })?;
    file.sync_data().map_err(|error| not_written(&error))
}

pub(super) fn cannot_open(directory: &Path, cause: &io::Error) -> Error {
    let what = format!("cannot open the store file:{}: {cause}", directory.display());
    let remedy = match cause.raw_os_error() {
        Some(code) if code == Errno::MFILE.raw_os_error() => "raise `ulimit -n`",
        Some(code) if code == Errno::NOENT.raw_os_error() => "name a directory that is there",
        _ if files::is_full(cause) => "make room",
        _ => "name a directory that can be read and written",
    };
    // These may pass.
    let passing = [Errno::MFILE, Errno::NFILE, Errno::IO, Errno::STALE];
    let passes = files::is_full(cause) || Errno::from_io_error(cause).is_some_and(|of| passing.contains(&of));
    let kind = if passes { Kind::Unavailable } else { Kind::Config };
    Error::new(kind, format!("{what}; {remedy}"))
}

pub(super) fn not_written(error: &io::Error) -> Error {
    Error::new(Kind::Unknown, format!("the embedded store cannot write: {error}"))
}
