//! The load generator's claims about itself, tested on this machine.
//!
//! Knows a command line and JSON: `weir load` is judged by what it says of a `weir responder` that keeps an account of its own.
//! A claim is a row of [`CLAIMS`]. Prints nothing.

pub mod responder;
mod children;
mod judge;
mod delay;
mod stall;
mod rate;
mod faults;

pub use children::{Cores, Programs};

use children::{OUT_OF_TIME, Responder};
use kv::proto::{Claim, FORMAT, LoadReport, SelftestReport};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a claim about time is tried. What else the machine does may spoil one run, not three.
const TRIES: u32 = 3;
/// How long all claims together may take. The short form has to be over before the lab gives it up.
const LIMIT: Duration = Duration::from_secs(100);
const LIMIT_SHORT: Duration = Duration::from_secs(15);
/// How what was measured begins where nothing was.
const NOT_TESTED: &str = "could not be tested: ";

/// A row of [`CLAIMS`].
#[derive(Debug)]
pub struct ClaimRow {
    /// As the method calls it.
    pub id: &'static str,
    /// In a few words.
    pub name: &'static str,
    /// What holds if it does, in one sentence.
    pub about: &'static str,
    /// Whether a neighbour on the machine can spoil it, so that it may be tried again.
    is_of_time: bool,
    run: fn(&Bench) -> Result<Outcome, String>,
}

/// Every claim, in the order of the method.
pub static CLAIMS: &[ClaimRow] = &[
    ClaimRow {
        id: "T2",
        name: "delay",
        about: "An imposed delay is seen as long as it is.",
        is_of_time: true,
        run: delay::run,
    },
    ClaimRow {
        id: "T3",
        name: "stall",
        about: "In an open loop a stall is seen by all requests that were due in it.",
        is_of_time: true,
        run: stall::run,
    },
    ClaimRow {
        id: "T4",
        name: "rate",
        about: "In an open loop requests are sent at the rate and with the gaps asked for.",
        is_of_time: true,
        run: rate::run,
    },
    ClaimRow {
        id: "T5",
        name: "faults",
        about: "Every fault falls into its class, and every good answer is counted.",
        is_of_time: false,
        run: faults::run,
    },
];

/// What to test, with what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The two programs.
    pub programs: Programs,
    /// Fewer and shorter runs.
    pub short: bool,
    /// The ids of the claims to test; empty for all.
    pub claims: Vec<String>,
}

/// What a claim's test is given.
struct Bench {
    programs: Programs,
    short: bool,
    /// Which try it is, from 1.
    attempt: u32,
    /// When all has to be over.
    deadline: Instant,
}

impl Bench {
    /// Starts a responder that does what `flags` say.
    fn responder(&self, flags: &[String]) -> Result<Responder, String> {
        Responder::start(&self.programs, self.deadline, flags)
    }

    /// Puts load on `responder`, for about `length`; `flags` have blanks between them.
    fn load(&self, responder: &Responder, length: Duration, flags: &str) -> Result<LoadReport, String> {
        let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        children::load(&self.programs, responder, length, &flags)
    }
}

/// What a claim's test found.
#[derive(Clone, Debug, Default)]
struct Outcome {
    passed: bool,
    measured: String,
    bound: String,
    figures: BTreeMap<String, f64>,
}

impl Outcome {
    /// Nothing measured yet, and nothing that does not hold.
    fn new(bound: &str) -> Outcome {
        Outcome { passed: true, bound: bound.to_owned(), ..Outcome::default() }
    }

    /// Notes whether a part of it holds.
    fn holds(&mut self, part: bool) {
        self.passed &= part;
    }

    fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }
}

/// What to do about a claim that does not hold.
pub fn remedy(claim: &Claim) -> &'static str {
    let is_of_time = CLAIMS.iter().any(|row| row.id == claim.id && row.is_of_time);
    match claim.measured.strip_prefix(NOT_TESTED) {
        Some(OUT_OF_TIME) => {
            "let nothing else run on the machine, or test fewer claims at once with --claims"
        }
        Some(_) => "remove the cause that the claim's line names, and try again",
        None if is_of_time => "let nothing else run on the machine, or name two idle cores with --cores",
        None => "that is a fault of the generator: please report it with this output",
    }
}

/// Tests the claims, one after the other; `heard` is told of each at once.
///
/// Claims that are not reached in the time there is for all together are reported as not holding.
pub fn run(options: &Options, heard: &mut dyn FnMut(&Claim)) -> SelftestReport {
    let begun = Instant::now();
    let asked_for = |row: &&ClaimRow| {
        options.claims.is_empty() || options.claims.iter().any(|id| id.eq_ignore_ascii_case(row.id))
    };
    let deadline = begun + if options.short { LIMIT_SHORT } else { LIMIT };
    let mut claims = Vec::new();
    for row in CLAIMS.iter().filter(asked_for) {
        let claim = test(row, options, deadline);
        heard(&claim);
        claims.push(claim);
    }
    SelftestReport { format: FORMAT, short: options.short, secs: begun.elapsed().as_secs_f64(), claims }
}

/// Tests a claim, as often as it may be.
fn test(row: &ClaimRow, options: &Options, deadline: Instant) -> Claim {
    let tries = if row.is_of_time { TRIES } else { 1 };
    let mut bench = Bench { programs: options.programs.clone(), short: options.short, attempt: 1, deadline };
    loop {
        let in_time = || Instant::now() < deadline;
        let found = if in_time() { (row.run)(&bench) } else { Err(OUT_OF_TIME.to_owned()) };
        let outcome = found.unwrap_or_else(|why| Outcome {
            measured: format!("{NOT_TESTED}{why}"),
            bound: row.about.to_owned(),
            ..Outcome::default()
        });
        // A try that failed says more than one that ran out of time.
        if outcome.passed || bench.attempt == tries || !in_time() {
            let Outcome { passed, measured, bound, mut figures } = outcome;
            figures.insert("tries".to_owned(), f64::from(bench.attempt));
            return Claim {
                id: row.id.to_owned(),
                name: row.name.to_owned(),
                passed,
                measured,
                bound,
                figures,
            };
        }
        bench.attempt += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_is_not_reached_in_time_is_reported_all_the_same() {
        let nowhere = Programs { weir: "/nowhere".into(), load: "/nowhere".into(), cores: None };
        let options = Options { programs: nowhere, short: true, claims: Vec::new() };
        let claim = test(&CLAIMS[0], &options, Instant::now());
        assert!(!claim.passed);
        assert_eq!(claim.measured, "could not be tested: out of time");
        assert!(remedy(&claim).contains("--claims"));
    }

    #[test]
    fn the_remedy_is_that_of_the_cause() {
        for (id, measured, part) in [
            ("T2", "median off by 9 µs", "--cores"),
            ("T5", "of 9 faults 1 misclassified", "please report it"),
            (
                "T5",
                "could not be tested: cannot start x: no such file",
                "the cause that the claim's line names",
            ),
        ] {
            let claim = Claim { id: id.to_owned(), measured: measured.to_owned(), ..Claim::default() };
            assert!(remedy(&claim).contains(part), "{measured}: {}", remedy(&claim));
        }
    }
}
