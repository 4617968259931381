//! The log of a server: lines with their time on standard error, written by a thread of their own.
//!
//! Nobody waits to log. If standard error is not read, lines wait in a queue; those that find it full are counted.

use kv::Error;
use log::{Log, Metadata, Record};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

/// Most lines in the queue.
const LINES_MAX: usize = 1000;
/// How long [`Logger::flush`] waits for standard error.
const FLUSH_MAX: Duration = Duration::from_secs(1);
/// Those whose lines are shown; of other libraries only errors are.
const LOGGED_CRATES: [&str; 3] = ["weir", "server", "store"];

static LOGGER: OnceLock<Logger> = OnceLock::new();

struct Logger {
    queue: SyncSender<String>,
    /// Lines that are in the queue or being written.
    waiting: AtomicU64,
    /// Lines that found it full, and of which the log does not tell yet.
    dropped: AtomicU64,
}

/// Lets the crates below be heard on standard error.
pub(super) fn start() -> Result<(), Error> {
    let (logger, lines) = Logger::new();
    let logger = LOGGER.get_or_init(|| logger);
    // It fails only if there is a logger already.
    if log::set_logger(logger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
        let thread = std::thread::Builder::new().name("weir-log".to_owned());
        let started = thread.spawn(move || logger.write_lines(lines, &mut io::stderr()));
        started.map_err(|error| Error::new(format!("cannot start a thread: {error}")))?;
    }
    Ok(())
}

impl Logger {
    fn new() -> (Logger, Receiver<String>) {
        let (queue, lines) = sync_channel(LINES_MAX);
        (Logger { queue, waiting: AtomicU64::new(0), dropped: AtomicU64::new(0) }, lines)
    }

    fn push(&self, line: String) {
        self.waiting.fetch_add(1, Relaxed);
        if self.queue.try_send(line).is_err() {
            self.waiting.fetch_sub(1, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Writes what is in the queue, for as long as the process lives.
    fn write_lines(&self, lines: Receiver<String>, output: &mut impl Write) {
        for written in lines {
            // There is nowhere to say that it failed, here and below.
            let _ = output.write_all(written.as_bytes());
            // Once the queue is empty: what was lost came after all that was in it.
            let is_last = self.waiting.load(Relaxed) == 1;
            let dropped = if is_last { self.dropped.swap(0, Relaxed) } else { 0 };
            if dropped > 0 {
                let what = format_args!("{dropped} lines of the log found its queue full and are lost");
                let _ = output.write_all(line("warn", what).as_bytes());
            }
            self.waiting.fetch_sub(1, Relaxed);
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
        let begun = Instant::now();
        while self.waiting.load(Relaxed) > 0 && begun.elapsed() < FLUSH_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
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
        let (logger, lines) = Logger::new();
        for number in 0..LINES_MAX + 7 {
            logger.push(format!("{number}\n"));
        }
        assert_eq!(logger.dropped.load(Relaxed), 7);
        let queue: Vec<String> = lines.try_iter().collect();
        assert_eq!(queue.len(), LINES_MAX);
        assert_eq!(queue.last().unwrap(), &format!("{}\n", LINES_MAX - 1));
    }

    #[test]
    fn a_line_has_its_time() {
        let line = line("warn", format_args!("what"));
        let (time, rest) = line.split_once(' ').unwrap();
        assert!(humantime::parse_rfc3339(time).is_ok() && rest == "warn: what\n", "{line}");
    }
}
