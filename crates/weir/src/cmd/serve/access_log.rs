//! The thread that writes the access log, to a file or to standard output.
//!
//! A file that was moved away or deleted is opened again under its name, so that logrotate needs no signal. What cannot be
//! written is counted and dropped.

use kv::Error;
use server::AccessLog;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// How often the thread looks whether the file is still there, at least.
const LOOK: Duration = Duration::from_secs(1);
/// How long the end of the server waits for a reader of standard output that does not read.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// A running thread.
pub(super) struct Writer {
    log: Arc<AccessLog>,
    /// Disconnected when all is written.
    done: Receiver<()>,
}

enum Target {
    Output,
    File { path: PathBuf, file: File },
}

/// Starts to write `log` to `path`; `-` is standard output.
pub(super) fn start(log: &Arc<AccessLog>, path: &Path) -> Result<Writer, Error> {
    let target = match path.as_os_str() == "-" {
        true => Target::Output,
        false => {
            let failed = |error| {
                Error::input(format!("cannot write --access-log {}: {error}", path.display()))
                    .hint("name a file in a directory that this user may write to, or - for standard output")
            };
            Target::File { path: path.to_owned(), file: open(path).map_err(failed)? }
        }
    };
    let (running, done) = mpsc::channel();
    let thread = std::thread::Builder::new().name("weir-access-log".to_owned());
    let from = Arc::clone(log);
    let write = move || {
        write(&from, target);
        drop(running);
    };
    thread.spawn(write).map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
    Ok(Writer { log: Arc::clone(log), done })
}

impl Writer {
    /// Waits until the lines of a server that has ended are written.
    pub(super) fn finish(self) {
        self.log.close();
        // An error says that the thread is done, too.
        let _ = self.done.recv_timeout(FLUSH_MAX);
    }
}

/// Keys may be personal data: others may not read them.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

fn write(log: &AccessLog, mut target: Target) {
    // Whether the last thing written was a part of a line, and whether that was said.
    let (mut is_torn, mut is_failing) = (false, false);
    loop {
        let taken = log.take(LOOK);
        let mut written = target.reopen();
        let mut write = |part: &[u8]| {
            let newline = if is_torn { &b"\n"[..] } else { b"" };
            let done = target.write(newline).and_then(|()| target.write(part));
            is_torn = done.is_err() && !matches!(target, Target::Output);
            done
        };
        for part in taken.iter().flatten() {
            written = written.and_then(|()| write(part));
            if written.is_err() {
                log.not_written(part.iter().filter(|&&byte| byte == b'\n').count() as u64);
            }
        }
        // After the lines: those that were dropped just now count, and it has to be written itself.
        written = written.and_then(|()| log.report_dropped(&mut write));
        let Some(parts) = taken else { return };
        match written {
            Err(error) if !is_failing => {
                log::warn!(
                    "cannot write the access log; its lines are dropped and counted until it can be: {error}"
                );
                is_failing = true;
            }
            Err(_) => {}
            Ok(()) if parts.is_empty() => {}
            Ok(()) => is_failing = false,
        }
    }
}

impl Target {
    /// Opens the file under its name, if that is another one or none.
    fn reopen(&mut self) -> io::Result<()> {
        let Target::File { path, file } = self else { return Ok(()) };
        let is_same = match (std::fs::metadata(&*path), file.metadata()) {
            (Ok(named), Ok(open)) => (named.dev(), named.ino()) == (open.dev(), open.ino()),
            _ => false,
        };
        if !is_same {
            *file = open(path)?;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::Output => {
                let mut output = io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
            Target::File { file, .. } => file.write_all(bytes),
        }
    }
}
