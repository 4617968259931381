//! The accuracy of the load generator, as tested before the first trial: a warning, lines for the terminal, a section.

use super::document::{Block, Table};
use super::format::count;
use kv::proto::{AccuracyCheck, CheckOutcome, SelftestReport};
use lab_data::results::{Results, Selftest};

/// A reason not to believe the generator, for the beginning of the page; `None` where there is none.
pub(super) fn warning(results: &Results) -> Option<String> {
    let why = match results.selftest.as_ref()? {
        Selftest::Ran(report) if report.checks.is_empty() => {
            "the generator’s accuracy test made no check".to_owned()
        }
        Selftest::Ran(report) => match report.with(CheckOutcome::Fail).join(", ") {
            failed if failed.is_empty() => return None,
            failed => format!("the generator failed its accuracy test ({failed})"),
        },
        Selftest::Broke(why) => {
            format!("the generator’s accuracy test could not be run ({})", why.trim_end_matches('.'))
        }
        Selftest::Skipped | Selftest::Simulated => return None,
    };
    Some(format!("Warning: {why}, so its figures may be wrong."))
}

/// What came of it, for the terminal: one line where all checks pass or there was nothing to check, else one for each check.
pub fn selftest_lines(selftest: &Selftest) -> Vec<String> {
    let lines = match selftest {
        Selftest::Ran(report) if !report.passed() => {
            let line = |of: &AccuracyCheck| {
                format!("{} {}: {}; bound: {}", of.name, outcome(of), of.measured, of.bound)
            };
            report.checks.iter().map(line).collect()
        }
        other => vec![said(other)],
    };
    lines.iter().map(|line| format!("generator selftest: {line}")).collect()
}

/// What came of it in one sentence, without a full stop.
fn said(selftest: &Selftest) -> String {
    match selftest {
        Selftest::Ran(SelftestReport { checks, secs, .. }) => {
            let passed = checks.iter().filter(|check| check.outcome == CheckOutcome::Pass);
            let passed: Vec<String> = passed.map(|check| check.name.clone() + &check.at_try()).collect();
            let all = count(checks.len() as u32, "check");
            let names = if passed.is_empty() { String::new() } else { format!(": {}", passed.join(", ")) };
            format!("{} of {all} passed in {secs:.1} s{names}", passed.len())
        }
        Selftest::Broke(why) => format!("could not be run: {}", why.trim_end_matches('.')),
        Selftest::Skipped => "skipped (--no-selftest, or selftest = false)".to_owned(),
        Selftest::Simulated => "not needed, the target is simulated".to_owned(),
    }
}

/// `pass`, `fail (all 3 tries)`.
fn outcome(check: &AccuracyCheck) -> String {
    check.outcome.name().to_owned() + &check.at_try()
}

const COLUMNS: &[(&str, fn(&AccuracyCheck) -> Option<String>)] = &[
    ("<check", |check| Some(check.name.clone())),
    ("<measured", |check| Some(check.measured.replace(" -", " −"))),
    ("<bound", |check| Some(check.bound.clone())),
    ("<outcome", |check| Some(outcome(check))),
];

/// The section on it.
pub(super) fn blocks(results: &Results) -> Vec<Block> {
    let Some(selftest) = &results.selftest else {
        return vec![Block::Text(
            "Not known: these results were recorded before weir had this test.".to_owned(),
        )];
    };
    let cores = results.selftest_cores.map_or_else(String::new, |[generator, responder]| {
        format!(" with the generator on core {generator} and the test server on core {responder}")
    });
    // Passed once, it is not repeated with the same binary.
    let at = results.selftest_at.as_ref().map_or_else(String::new, |at| format!(" and ended on {at},"));
    let said = said(selftest);
    let Selftest::Ran(report) = selftest else { return vec![Block::Text(format!("Selftest: {said}."))] };
    let note = "A test server added known delays, a stall (it answers nothing for a known time) and faults, and the generator had to report them. The server shares no code with it. Delays are compared with what a second, simpler client measures, because network and kernel add to them.";
    vec![
        Block::Text(format!("weir selftest --short ran on this machine{at}{cores}: {said}.")),
        Block::Notes(vec![note.to_owned()]),
        Block::Table(Table::of(&report.checks, COLUMNS, |_| false)),
    ]
}
