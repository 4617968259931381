//! The accuracy checks of the load generator: `weir load` is run against a responder that records what it really did, and its
//! report is compared with that record.
//!
//! A check is a row of [`CHECKS`]. Prints nothing.

pub mod responder;
mod cores;
mod generator;
mod judge;
mod delay;
mod probe;
mod stall;
mod rate;
mod faults;

pub use cores::Cores;

use kv::proto::{AccuracyCheck, CheckOutcome, FORMAT, LoadReport, SelftestReport};
use kv::units::Span;
use responder::{Record, Responder};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a check of times is tried. What else the machine does may spoil one run, not three.
const TRIES: u32 = 3;
/// How long all checks together may take; see [`Options::times`]. The lab ends the short form after 30 s.
const LIMIT: Duration = Duration::from_secs(100);
const LIMIT_SHORT: Duration = Duration::from_secs(15);
/// Why a check was not made when that time is over.
const OUT_OF_TIME: &str = "out of time";

/// How many clients share a connection of HTTP/2.
const STREAMS: u32 = 4;

/// A row of [`CHECKS`].
#[derive(Debug)]
pub struct CheckRow {
    /// What flags, report and results call it.
    pub name: &'static str,
    /// What is so if it passes, in one sentence.
    pub about: &'static str,
    /// Whether other work on the machine can spoil it, so that it is tried again.
    is_of_time: bool,
    /// What it measures; why it could not.
    run: fn(&Setup) -> Result<AccuracyCheck, String>,
}

/// Every check, in the order they are made.
pub static CHECKS: &[CheckRow] = &[
    check("delay", true, delay::run, "A known delay is reported with its true length."),
    check("stall", true, stall::run, "A stall is reported as a delay of every request due during it."),
    check(
        "rate",
        true,
        rate::run,
        "In an open loop requests are sent at the requested rate and with the requested distribution of gaps.",
    ),
    check(
        "faults",
        false,
        faults::run,
        "Every fault is counted in its error class, and every good answer as a success.",
    ),
];

const fn check(
    name: &'static str,
    is_of_time: bool,
    run: fn(&Setup) -> Result<AccuracyCheck, String>,
    about: &'static str,
) -> CheckRow {
    CheckRow { name, about, is_of_time, run }
}

/// What to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// The load generator: its first argument is `load`.
    pub load: PathBuf,
    /// Where it and the responder run; `None`: wherever the kernel puts them.
    pub cores: Option<Cores>,
    /// Fewer and shorter runs.
    pub short: bool,
    /// Over TLS.
    pub tls: bool,
    /// Over HTTP/2 instead of HTTP/1.1.
    pub http2: bool,
    /// Names of the checks to make; empty for all.
    pub checks: Vec<String>,
}

impl Options {
    /// How many times as long something may take: handshakes and frames take time, too.
    fn times(&self) -> u32 {
        if self.tls || self.http2 { 2 } else { 1 }
    }
}

/// What a check is given.
struct Setup<'a> {
    options: &'a Options,
    /// Which try it is, from 1.
    attempt: u32,
    /// When all checks have to be over.
    deadline: Instant,
}

impl Setup<'_> {
    fn responder(&self, options: responder::Options) -> Result<Responder, String> {
        let Options { tls, http2, .. } = *self.options;
        let options = responder::Options { tls, http2, ..options };
        Responder::start(options, self.options.cores.map(|cores| cores.responder))
            .map_err(|error| format!("cannot start the test server: {error}"))
    }

    /// Flags of `clients`: with HTTP/2, some of them share a connection.
    fn clients(&self, clients: u32) -> String {
        let streams = if self.options.http2 && clients >= STREAMS {
            format!(" --streams {STREAMS}")
        } else {
            String::new()
        };
        format!("--clients {clients}{streams}")
    }

    /// Puts load on a responder, for this warm-up and window; what the generator reports and what the responder did.
    fn load(
        &self,
        options: responder::Options,
        [warmup, window]: [Duration; 2],
        flags: &str,
    ) -> Result<(LoadReport, Record), String> {
        let times = format!("--warmup {} --window {}", Span(warmup), Span(window));
        let flags = format!("{flags} --threads 1 --no-preload {times}");
        let responder = self.responder(options)?;
        let report = generator::load(self, responder.address, warmup + window, &flags)?;
        Ok((report, record(responder)?))
    }
}

fn record(responder: Responder) -> Result<Record, String> {
    responder.stop().map_err(|error| format!("the test server failed: {error}"))
}

/// A check with this bound that has passed so far.
fn passing(bound: &str) -> AccuracyCheck {
    AccuracyCheck { outcome: CheckOutcome::Pass, bound: bound.to_owned(), ..AccuracyCheck::default() }
}

/// A check that has passed so far fails unless this holds.
fn require(check: &mut AccuracyCheck, holds: bool) {
    if !holds && check.outcome == CheckOutcome::Pass {
        check.outcome = CheckOutcome::Fail;
    }
}

/// Adds figures to a check.
fn add<const N: usize>(check: &mut AccuracyCheck, figures: [(&str, f64); N]) {
    check.figures.extend(figures.map(|(name, value)| (name.to_owned(), value)));
}

/// What to do about a check that did not pass.
pub fn remedy(check: &AccuracyCheck) -> &'static str {
    let is_of_time = CHECKS.iter().any(|row| row.name == check.name && row.is_of_time);
    match check.outcome {
        CheckOutcome::Pass => "",
        CheckOutcome::NotChecked => "remove the cause that its line names, and run it again",
        CheckOutcome::Fail if is_of_time => {
            "let nothing else run on the machine, or name two idle cores with --cores"
        }
        CheckOutcome::Fail => "that is a fault of the generator: please report it with this output",
    }
}

/// Makes the checks, one after the other; `done` is called with each at once.
pub fn run(options: &Options, done: &mut dyn FnMut(&AccuracyCheck)) -> SelftestReport {
    let begun = Instant::now();
    let deadline = begun + options.times() * if options.short { LIMIT_SHORT } else { LIMIT };
    let is_asked =
        |row: &&CheckRow| options.checks.is_empty() || options.checks.iter().any(|name| name == row.name);
    let checks =
        CHECKS.iter().filter(is_asked).map(|row| tried(row, options, deadline)).inspect(done).collect();
    SelftestReport { format: FORMAT, short: options.short, secs: begun.elapsed().as_secs_f64(), checks }
}

/// Makes one check, as often as it may be tried.
fn tried(row: &CheckRow, options: &Options, deadline: Instant) -> AccuracyCheck {
    let tries = if row.is_of_time { TRIES } else { 1 };
    let mut setup = Setup { options, attempt: 1, deadline };
    loop {
        let in_time = || Instant::now() < deadline;
        let made = if in_time() { (row.run)(&setup) } else { Err(OUT_OF_TIME.to_owned()) };
        let mut check = made.unwrap_or_else(|why| AccuracyCheck {
            measured: why,
            bound: row.about.to_owned(),
            ..AccuracyCheck::default()
        });
        // A try that failed says more than one that ran out of time.
        if check.outcome == CheckOutcome::Pass || setup.attempt == tries || !in_time() {
            check.name = row.name.to_owned();
            add(&mut check, [("tries", f64::from(setup.attempt))]);
            return check;
        }
        setup.attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_not_reached_in_time_is_not_checked() {
        let options = Options {
            load: "/nowhere".into(),
            cores: None,
            short: true,
            tls: false,
            http2: false,
            checks: Vec::new(),
        };
        let check = tried(&CHECKS[0], &options, Instant::now());
        assert_eq!((check.outcome, &*check.measured), (CheckOutcome::NotChecked, "out of time"));
        assert!(remedy(&check).contains("the cause"));
    }

    #[test]
    fn the_remedy_is_that_of_the_cause() {
        for (name, outcome, part) in [
            ("delay", CheckOutcome::Fail, "--cores"),
            ("faults", CheckOutcome::Fail, "please report it"),
            ("faults", CheckOutcome::NotChecked, "the cause that its line names"),
        ] {
            let check = AccuracyCheck { name: name.to_owned(), outcome, ..AccuracyCheck::default() };
            assert!(remedy(&check).contains(part), "{name}: {}", remedy(&check));
        }
    }
}
