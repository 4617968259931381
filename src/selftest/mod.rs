//! The load generator's claims about itself, tested on this machine.
//!
//! Knows a command line and JSON: `weir load` is judged by what it says of a `weir responder` that keeps an account of its own.
//! A claim is a row of [`CLAIMS`]. Prints nothing.

mod children;
mod judge;
mod delay;
mod stall;
mod rate;
mod faults;

pub use children::{Cores, Programs};

use crate::proto::{Claim, FORMAT, LoadReport, SelftestReport};
use crate::units::Span;
use children::Responder;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often a claim about time is tried. What else the machine does may spoil one run, not three.
const TRIES: u32 = 3;

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
}

impl Bench {
    /// Puts load on `responder`, for about `length`; `flags` have blanks between them.
    fn load(&self, responder: &Responder, length: Duration, flags: &str) -> Result<LoadReport, String> {
        let flags: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        children::load(&self.programs, responder, length, &flags)
    }

    /// What so many clients in a closed loop get out of a responder that has nothing to do.
    fn ceiling(&self, clients: u32, window: Duration) -> Result<LoadReport, String> {
        let responder = Responder::start(&self.programs, &[])?;
        let flags =
            format!("--clients {clients} --threads 1 --no-preload --warmup 100ms --window {}", Span(window));
        self.load(&responder, window, &flags)
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

/// Tests the claims, one after the other; `heard` is told of each at once.
pub fn run(options: &Options, heard: &mut dyn FnMut(&Claim)) -> SelftestReport {
    let begun = Instant::now();
    let asked_for = |row: &&ClaimRow| {
        options.claims.is_empty() || options.claims.iter().any(|id| id.eq_ignore_ascii_case(row.id))
    };
    let mut claims = Vec::new();
    for row in CLAIMS.iter().filter(asked_for) {
        let claim = test(row, options);
        heard(&claim);
        claims.push(claim);
    }
    SelftestReport { format: FORMAT, short: options.short, secs: begun.elapsed().as_secs_f64(), claims }
}

/// Tests a claim, as often as it may be.
fn test(row: &ClaimRow, options: &Options) -> Claim {
    let tries = if row.is_of_time { TRIES } else { 1 };
    let mut bench = Bench { programs: options.programs.clone(), short: options.short, attempt: 1 };
    loop {
        let outcome = (row.run)(&bench).unwrap_or_else(|why| Outcome {
            measured: format!("nothing: {why}"),
            bound: row.about.to_owned(),
            ..Outcome::default()
        });
        if outcome.passed || bench.attempt == tries {
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
