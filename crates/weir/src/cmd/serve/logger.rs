//! The log of a server: lines with their time on standard error, written by a thread of their own.
//!
//! Nobody waits to log. If standard error is not read, lines wait in a queue; those that find it full are counted.

use kv::Error;
use log::{Log, Metadata, Record};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// Most lines in the queue.
const LINES_MAX: usize = 1000;
/// How long [`Logger::flush`] waits for standard error.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Those whose lines are shown; of other libraries only errors are.
const LOGGED_CRATES: [&str; 3] = ["weir", "server", "store"];

static LOGGER: Logger = Logger {
    queue: Mutex::new(Queue { lines: VecDeque::new(), dropped: 0, is_writing: false }),
    changed: Condvar::new(),
};

struct Logger {
    queue: Mutex<Queue>,
    changed: Condvar,
}

struct Queue {
    lines: VecDeque<String>,
    /// Lines that found it full, since the last that did not.
    dropped: u64,
    /// Whether lines that were taken out are not written yet.
    is_writing: bool,
}

/// Lets the crates below be heard on standard error.
pub(super) fn start() -> Result<(), Error> {
    // It fails only if there is a logger already.
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
        let thread = std::thread::Builder::new().name("weir-log".to_owned());
        let started = thread.spawn(|| LOGGER.write_lines(&mut io::stderr()));
        started.map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
    }
    Ok(())
}

impl Logger {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut queue = self.lock();
        if queue.dropped > 0 || queue.lines.len() >= LINES_MAX {
            queue.dropped += 1;
        } else {
            queue.lines.push_back(line);
        }
        self.changed.notify_all();
    }

    /// Writes what is in the queue, for as long as the process lives.
    fn write_lines(&self, output: &mut impl Write) {
        loop {
            let mut queue = self.lock();
            queue.is_writing = false;
            self.changed.notify_all();
            let is_empty = |queue: &mut Queue| queue.lines.is_empty();
            let mut queue = self.changed.wait_while(queue, is_empty).unwrap_or_else(PoisonError::into_inner);
            queue.is_writing = true;
            let lines = std::mem::take(&mut queue.lines);
            let dropped = std::mem::take(&mut queue.dropped);
            drop(queue);
            let said = (dropped > 0).then(|| {
                line("warn", format_args!("{dropped} lines of the log found its queue full and are lost"))
            });
            for line in lines.into_iter().chain(said) {
                // There is nowhere to say that it failed.
                let _ = output.write_all(line.as_bytes());
            }
        }
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let crate_name = metadata.target().split("::").next().unwrap_or_default();
        LOGGED_CRATES.contains(&crate_name) || metadata.level() == log::Level::Error
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.push(line(&record.level().as_str().to_lowercase(), *record.args()));
        }
    }

    /// Waits until all lines are written, but not for a reader that does not read.
    fn flush(&self) {
        let is_behind = |queue: &mut Queue| queue.is_writing || !queue.lines.is_empty();
        let _ = self.changed.wait_timeout_while(self.lock(), FLUSH_MAX, is_behind);
    }
}

/// `2026-01-31T23:59:59.123Z warn: what happened`.
fn line(level: &str, what: std::fmt::Arguments<'_>) -> String {
    format!("{} {level}: {what}\n", humantime::format_rfc3339_millis(SystemTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_what_comes_and_counts_it() {
        let queue = Queue { lines: VecDeque::new(), dropped: 0, is_writing: false };
        let logger = Logger { queue: Mutex::new(queue), changed: Condvar::new() };
        for number in 0..LINES_MAX + 7 {
            logger.push(format!("{number}\n"));
        }
        let queue = logger.lock();
        assert_eq!((queue.lines.len(), queue.dropped), (LINES_MAX, 7));
        assert_eq!(queue.lines.back().unwrap(), &format!("{}\n", LINES_MAX - 1));
    }

    #[test]
    fn a_line_has_its_time() {
        let line = line("warn", format_args!("what"));
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok() && rest == "warn: what\n", "{line}");
    }
}
