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
    let said = match selftest {
        Selftest::Ran(report) if report.passed() => vec![passed(report)],
        Selftest::Ran(report) => {
            let line = |of: &AccuracyCheck| {
                format!("{} {}: {}; bound: {}", of.name, outcome(of), of.measured, of.bound)
            };
            report.checks.iter().map(line).collect()
        }
        Selftest::Broke(why) => vec![format!("could not be run: {why}")],
        Selftest::Skipped => vec!["not run, as asked".to_owned()],
        Selftest::Simulated => vec!["nothing to prove, the target is simulated".to_owned()],
    };
    said.iter().map(|said| format!("generator selftest: {said}")).collect()
}

/// `pass`, `fail at try 3`.
fn outcome(check: &AccuracyCheck) -> String {
    check.outcome.name().to_owned() + &check.at_try()
}

/// `all 4 checks pass in 6.2 s (delay, stall at try 2, rate, faults)`.
fn passed(report: &SelftestReport) -> String {
    let names: Vec<String> =
        report.checks.iter().map(|check| format!("{}{}", check.name, check.at_try())).collect();
    let checks = count(report.checks.len() as u32, "check");
    match names.is_empty() {
        true => "it made no check".to_owned(),
        false => format!("all {checks} pass in {:.1} s ({})", report.secs, names.join(", ")),
    }
}

const COLUMNS: &[(&str, fn(&AccuracyCheck) -> Option<String>)] = &[
    ("<check", |check| Some(check.name.clone())),
    ("<measured", |check| Some(check.measured.clone())),
    ("<bound", |check| Some(check.bound.clone())),
    ("<outcome", |check| Some(outcome(check))),
];

/// The section on it.
pub(super) fn blocks(results: &Results) -> Vec<Block> {
    let said = match &results.selftest {
        None => "Not known: these results are older than the selftest.".to_owned(),
        Some(Selftest::Skipped) => "It was not run: the experiment or the command asked for none.".to_owned(),
        Some(Selftest::Simulated) => {
            "Nothing to prove: the target is simulated, and so is the generator.".to_owned()
        }
        Some(Selftest::Broke(why)) => format!("It could not be run: {}.", why.trim_end_matches('.')),
        Some(Selftest::Ran(report)) => {
            let note = "A test server that shares no code with the generator or the server imposed known delays, stalls and faults. \
                        The generator had to report them.";
            let table = Table::of(&report.checks, COLUMNS, |_| false);
            return vec![
                Block::Text(ran(report, results)),
                Block::Table(table),
                Block::Notes(vec![note.to_owned()]),
            ];
        }
    };
    vec![Block::Text(said)]
}

fn ran(report: &SelftestReport, results: &Results) -> String {
    let form = if report.short { "weir selftest --short" } else { "weir selftest" };
    let all = count(report.checks.len() as u32, "check");
    let outcome =
        match (report.with(CheckOutcome::Fail).len(), report.with(CheckOutcome::NotChecked).join(", ")) {
            (0, unchecked) if unchecked.is_empty() => passed(report),
            (0, unchecked) => format!("of {all} some could not be made ({unchecked})"),
            (failed, _) => {
                format!(
                    "{failed} of {all} failed in {:.1} s; what rests on them below may be untrue",
                    report.secs
                )
            }
        };
    let on = results.selftest_cores.map_or_else(String::new, |[generator, responder]| {
        let mut placed = results.placements.iter().filter(|placed| placed.part == "generator");
        let is_same = placed.any(|placed| placed.cores.contains(&generator));
        let as_there = if is_same { ", where it is in the trials," } else { "" };
        format!(", with the generator on core {generator}{as_there} and the responder on core {responder}")
    });
    format!("{form} ran on this machine before the first trial{on}: {outcome}.")
}
