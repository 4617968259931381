//! The embedded store: a directory with a log of all writes, and in memory where the rows are in it.
//!
//! One batch is one write to the log and one flush. A row is readable after the flush.

mod backup;
mod cleaner;
mod end;
mod files;
#[cfg(feature = "test-support")]
#[path = "../../tests/fuzz/mod.rs"]
pub mod fuzz;
mod index;
mod log;
mod repair;
mod replay;
mod segment;

pub use self::repair::{Checked, Repaired};
pub use self::replay::{Damage, Lost};

use self::log::Log;
use super::{
    Answer, Error, EventBlock, Flush, Found, Kind, Lease, Listed, Listing, Part, SCHEMES, Session, Store,
    Workers, redacted,
};
use async_trait::async_trait;
use kv::{Key, Row, Timestamp, Write};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the cleaner waits after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// A read of several keys ends with the row with which it has so many bytes.
const READ_BYTES_MAX: usize = 4 << 20;

pub(super) struct Embedded {
    directory: PathBuf,
    /// How long segments are at most; `None` for what suits the disk.
    segment_bytes: Option<u64>,
    /// The log of the lease in force, which holds it open together with its sessions; sessions of an earlier one are refused.
    owned: Mutex<Option<(u64, Weak<Opened>)>>,
    flush: Arc<Flush>,
}

/// Reads the embedded store at `place`, its directory or URL, and changes nothing.
pub fn check(place: &str) -> Result<Checked, Error> {
    repair::check(&Embedded::offline(place)?.directory)
}

/// Writes what can be read of the embedded store at `place` anew if it is damaged, and puts its old files aside.
///
/// A record that cannot be read may have replaced or removed a row: that row is there again.
pub fn repair(place: &str) -> Result<Repaired, Error> {
    let Embedded { directory, segment_bytes, .. } = Embedded::offline(place)?;
    repair::repair(&directory, segment_bytes)
}

/// Copies the embedded store at `place`, its directory or URL, to `destination`, a new directory, also while a server uses it; what
/// is in the copy. It has every write that was acknowledged before.
pub fn backup(place: &str, destination: &std::path::Path) -> Result<Checked, Error> {
    backup::backup(&Embedded::offline(place)?.directory, destination)
}

/// The open log, and the thread that gives back its space.
struct Opened {
    log: Arc<Log>,
    is_stopped: Arc<AtomicBool>,
    /// `None` after it ended.
    cleaner: Option<JoinHandle<()>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.is_stopped.store(true, Relaxed);
        if let Some(cleaner) = self.cleaner.take() {
            cleaner.thread().unpark();
            // It panics in no case that a caller could do anything about.
            let _ = cleaner.join();
        }
        // Without it the log is opened as after a crash.
        if let Err(error) = self.log.say_end() {
            ::log::warn!(
                "cannot write the file `end` of the embedded store: {error}; nothing is lost, and the next start opens it as after a crash"
            );
        }
    }
}

impl Embedded {
    pub(super) fn open(url: &str) -> Result<Embedded, Error> {
        let refused = |what, hint| Error::new(Kind::Config, format!("{} {what}; {hint}", redacted(url)));
        let wrong = |what| refused(what, "write file:./weir-data");
        let place = url.strip_prefix("file:").unwrap_or_default();
        let (directory, parameter) = match place.split_once('?') {
            Some((directory, parameter)) => (directory, Some(parameter)),
            None => (place, None),
        };
        let segment = parameter.and_then(|parameter| parameter.strip_prefix("segment="));
        let segment_bytes = segment.map(|bytes| bytes.parse::<kv::units::Size>().map(|size| size.0));
        match segment_bytes.transpose() {
            _ if directory.is_empty() => Err(wrong("names no directory")),
            _ if directory.contains(",file:") => Err(refused("names several stores", "give each a --store")),
            _ if parameter.is_some() && segment.is_none() => {
                Err(refused("has an unknown parameter", "expected: segment"))
            }
            // Else it were a directory in the root of the machine.
            _ if directory.starts_with("//") && !directory.starts_with("///") => {
                Err(wrong("names a host, which a directory has not"))
            }
            Err(_) => Err(wrong("has a wrong length of segments, as in ?segment=1MiB")),
            Ok(segment_bytes) => {
                let (owned, flush) = (Mutex::new(None), Arc::default());
                Ok(Embedded { directory: directory.into(), segment_bytes, owned, flush })
            }
        }
    }

    /// The store in a directory, or at a URL, that no server uses.
    fn offline(place: &str) -> Result<Embedded, Error> {
        match SCHEMES.iter().find(|scheme| place.starts_with(scheme.prefix)) {
            Some(scheme) if scheme.prefix == "file:" => Embedded::open(place),
            None if !place.contains("://") => Embedded::open(&format!("file:{place}")),
            _ => {
                let what = format!("{} is no embedded store; name its directory", redacted(place));
                Err(Error::new(Kind::Config, format!("{what}: a database has tools of its own")))
            }
        }
    }
}

/// Gives back space whenever it is woken up and there is too much waste, until `is_stopped`.
fn clean(log: &Log, is_stopped: &dyn Fn() -> bool) {
    // Every change wakes it up: it says so once.
    let mut failure = None;
    while !is_stopped() {
        match log.is_wasteful().then(|| log.clean(is_stopped)) {
            Some(Ok(true)) => failure = None,
            Some(Ok(false)) | None => thread::park(),
            Some(Err(error)) => {
                if failure.as_ref() != Some(&error) {
                    ::log::warn!("the space of old rows cannot be given back: {error}");
                    failure = Some(error);
                }
                // Changes wake it up, and each attempt reads a segment.
                let until = Instant::now() + PAUSE;
                while let (false, Some(rest)) = (is_stopped(), until.checked_duration_since(Instant::now())) {
                    thread::park_timeout(rest);
                }
            }
        }
    }
}

#[async_trait]
impl Store for Embedded {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        let (directory, segment_bytes) = (self.directory.clone(), self.segment_bytes);
        // A long log takes long, and requests that wait for it are to be answered meanwhile.
        let opened = tokio::task::spawn_blocking(move || {
            let shown = redacted(&format!("file:{}", directory.display()));
            let admit = |map: Option<&str>, in_use| part.admit(map, in_use, &shown).map(|_| part.map());
            Log::open(&directory, segment_bytes, admit)
        });
        let opened = opened.await.map_err(|error| Error::new(Kind::Config, error.to_string()))?;
        let log = Arc::new(opened?);
        let (epoch, may_expire) = (log.epoch(), log.index.read().may_expire());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let cleaner = {
            let (log, is_stopped) = (Arc::clone(&log), Arc::clone(&is_stopped));
            let cleaner = thread::Builder::new().name("store-clean".into());
            cleaner.spawn(move || clean(&log, &|| is_stopped.load(Relaxed)))
        };
        let cleaner = cleaner.map_err(|error| {
            Error::new(
                Kind::Config,
                format!("cannot start the thread store-clean: {error}; raise `ulimit -u`"),
            )
        })?;
        let opened = Arc::new(Opened { log, is_stopped, cleaner: Some(cleaner) });
        *self.owned.lock() = Some((epoch, Arc::downgrade(&opened)));
        // It is never lost. Once it ends, another server may open the log.
        let lost = Box::pin(async move {
            let _opened = opened;
            std::future::pending().await
        });
        let now = Timestamp::of_this_machine();
        Ok(Lease { epoch, now, may_expire, was_released: true, lost, owner: None })
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        let owned = self.owned.lock();
        let current = owned.as_ref().filter(|(current, _)| *current == epoch);
        match current.and_then(|(_, opened)| opened.upgrade()) {
            Some(opened) => Ok(Box::new(EmbeddedSession { opened, flush: Arc::clone(&self.flush) })),
            None => Err(Error::new(Kind::Unavailable, "the embedded store is being opened anew")),
        }
    }

    fn note_end(&self) {
        if let Some(opened) = self.owned.lock().as_ref().and_then(|(_, opened)| opened.upgrade()) {
            opened.log.note_end();
        }
    }

    fn workers(&self) -> Workers {
        // There is one log: a second write worker would only halve the batches.
        Workers { read: 1, write: 1 }
    }

    fn flush(&self) -> Option<Arc<Flush>> {
        Some(Arc::clone(&self.flush))
    }
}

struct EmbeddedSession {
    opened: Arc<Opened>,
    flush: Arc<Flush>,
}

impl EmbeddedSession {
    /// Changes the log in turn, and wakes the cleaner up if it has become worth it.
    fn change<T>(&self, change: impl FnOnce(&Log) -> Result<T, Error>) -> Result<T, Error> {
        let Opened { log, cleaner, .. } = &*self.opened;
        let changed = self.flush.in_turn(|| change(log));
        if log.is_wasteful() {
            cleaner.iter().for_each(|cleaner| cleaner.thread().unpark());
        }
        changed
    }
}

#[async_trait]
impl Session for EmbeddedSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        let mut room = READ_BYTES_MAX;
        let rows = keys.iter().map_while(|key| {
            (room > 0).then(|| {
                let row = self.opened.log.read(key)?;
                room = room.saturating_sub(row.as_ref().map_or(0, Row::bytes));
                Ok(row)
            })
        });
        rows.collect()
    }

    async fn value_bytes(&mut self, _keys: &[Key]) -> Answer<u64> {
        Ok(0)
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        self.change(|log| log.write_with(writes, events))
    }

    async fn events(&mut self, behind: u64) -> Answer<Vec<EventBlock>> {
        self.opened.log.events(behind)
    }

    async fn trim_events(&mut self, until: u64) -> Answer<()> {
        self.change(|log| log.trim_events(until))
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        self.opened.log.list(listing)
    }

    async fn clear(&mut self) -> Answer<()> {
        self.change(Log::clear)
    }
}

#[cfg(test)]
mod tests;
