//! Files that are read again while the server runs: when they change, and on request.
//!
//! What was read last and made sense stays in use until something else does: a file that is half written changes nothing.

use super::Options;
use kv::Error;
use parking_lot::{Mutex, RwLock};
use std::fmt::{self, Debug};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Time between two looks at files that may change.
const RELOAD_INTERVAL: Duration = Duration::from_secs(2);

/// What was read from files.
pub(super) struct Reloadable<T> {
    /// What they have, for the log and the metrics.
    pub(super) name: &'static str,
    files: Vec<PathBuf>,
    read: fn(&[PathBuf], Option<&T>) -> Result<T, Error>,
    current: RwLock<Arc<T>>,
    generation: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// Of the files as they were found last.
    seen: Vec<Option<Stamp>>,
    /// Of the files as they were read last.
    read: Vec<Option<Stamp>>,
    /// Why that failed.
    failure: Option<String>,
}

/// By which a changed file is known: device, inode, length, and when content and inode changed last.
type Stamp = (u64, u64, u64, [i64; 4]);

impl<T> Reloadable<T> {
    /// Reads the files. `read` may also have what was read before.
    pub(super) fn new(
        name: &'static str,
        files: Vec<PathBuf>,
        read: fn(&[PathBuf], Option<&T>) -> Result<T, Error>,
    ) -> Result<Reloadable<T>, Error> {
        // Before the content: what is written in between is noticed later.
        let stamps = stamps(&files);
        let current = RwLock::new(Arc::new(read(&files, None)?));
        let state = Mutex::new(State { seen: stamps.clone(), read: stamps, failure: None });
        Ok(Reloadable { name, files, read, current, generation: AtomicU64::new(0), state })
    }

    /// What is in use.
    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.current.read())
    }

    /// How often it was replaced.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Whether the files could not be used the last time.
    pub(super) fn fails(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// Reads the files if this `is_asked_for`. Else only if they have changed, or could not be used, and are as they were at the
    /// last call: somebody may be writing them.
    pub(super) fn refresh(&self, is_asked_for: bool) {
        let mut state = self.state.lock();
        let found = stamps(&self.files);
        let is_settled = found == state.seen;
        let is_new = found != state.read || state.failure.is_some();
        state.seen.clone_from(&found);
        let is_due = is_asked_for || is_settled && is_new;
        if !is_due {
            return;
        }
        state.read = found;
        let before = self.current();
        match (self.read)(&self.files, Some(&before)) {
            Ok(read) => {
                *self.current.write() = Arc::new(read);
                self.generation.fetch_add(1, Release);
                state.failure = None;
                log::info!("{}: read again", self.name);
            }
            Err(error) => {
                let failure = error.to_string();
                if state.failure.as_ref() != Some(&failure) || is_asked_for {
                    log::error!("{}: what was read before stays in use: {failure}", self.name);
                }
                state.failure = Some(failure);
            }
        }
    }
}

impl<T> Debug for Reloadable<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Reloadable").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Reads the files of `options` again from time to time, and when asked to, until the sender is dropped.
pub(super) fn start(options: &Options) -> io::Result<mpsc::Sender<()>> {
    let (ask, asked) = mpsc::channel();
    if !options.has_files() {
        return Ok(ask);
    }
    let Options { tls, tokens, s3_credentials, .. } = options.clone();
    let thread = std::thread::Builder::new().name("weir-reload".to_owned());
    thread.spawn(move || {
        loop {
            let is_asked_for = match asked.recv_timeout(RELOAD_INTERVAL) {
                Ok(()) => true,
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            tls.iter().for_each(|tls| tls.0.refresh(is_asked_for));
            tokens.iter().for_each(|tokens| tokens.0.refresh(is_asked_for));
            s3_credentials.iter().for_each(|credentials| credentials.0.refresh(is_asked_for));
        }
    })?;
    Ok(ask)
}

/// Of every file that can be looked at.
fn stamps(files: &[PathBuf]) -> Vec<Option<Stamp>> {
    let stamp = |file: &PathBuf| {
        let found = fs::metadata(file).ok()?;
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Some((found.dev(), found.ino(), found.len(), times))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(files: &[PathBuf], before: Option<&i32>) -> Result<i32, Error> {
        let text = fs::read_to_string(&files[0]).map_err(Error::new)?;
        let number: i32 = text.parse().map_err(|_| Error::new(format_args!("{text:?} is no number")))?;
        Ok(number + before.copied().unwrap_or(0))
    }

    #[test]
    fn only_what_makes_sense_replaces_what_was_read_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("number");
        let files = vec![file.clone()];
        assert!(Reloadable::new("n", files.clone(), number).is_err());
        fs::write(&file, "1").unwrap();
        let read = Reloadable::new("n", files, number).unwrap();
        let check = |is_asked_for, expected| {
            read.refresh(is_asked_for);
            assert_eq!((*read.current(), read.generation(), read.fails()), expected);
        };
        check(false, (1, 0, false));
        check(true, (2, 1, false));
        fs::write(&file, "-").unwrap();
        check(false, (2, 1, false));
        check(false, (2, 1, true));
        check(false, (2, 1, true));
        fs::remove_file(&file).unwrap();
        check(true, (2, 1, true));
        fs::write(&file, "4").unwrap();
        check(false, (2, 1, true));
        fs::write(&file, "40").unwrap();
        check(false, (2, 1, true));
        check(false, (42, 2, false));
        check(false, (42, 2, false));
    }
}
