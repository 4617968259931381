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
        Selftest::Broke(why) => format!("the generator’s accuracy test could not be run ({})", bare(why)),
        Selftest::Skipped | Selftest::Simulated => return None,
    };
    Some(format!("Warning: {why}, so its figures may be wrong."))
}

/// Without a full stop: one follows.
fn bare(why: &str) -> &str {
    why.trim_end_matches('.')
}

/// What came of it, for the terminal: one line where all checks pass or there was nothing to check, else one for each check.
pub fn selftest_lines(selftest: &Selftest) -> Vec<String> {
    match selftest {
        Selftest::Ran(report) if report.passed() => {
            vec![format!("generator selftest: {}", held(report))]
        }
        Selftest::Ran(report) => {
            let line = |check: &AccuracyCheck| {
                let AccuracyCheck { name, outcome, measured, bound, .. } = check;
                let (outcome, tries) = (outcome.name(), check.at_try());
                format!("generator selftest: {name} {outcome}{tries}: {measured}; bound: {bound}")
            };
            report.checks.iter().map(line).collect()
        }
        Selftest::Broke(why) => vec![format!("generator selftest could not be run: {why}")],
        Selftest::Skipped => vec!["generator selftest: not run, as asked".to_owned()],
        Selftest::Simulated => {
            vec!["generator selftest: nothing to prove, the target is simulated".to_owned()]
        }
    }
}

/// `all 4 checks pass in 6.2 s (delay, stall at try 2, rate, faults)`.
fn held(report: &SelftestReport) -> String {
    let names: Vec<String> =
        report.checks.iter().map(|check| format!("{}{}", check.name, check.at_try())).collect();
    let checks = count(report.checks.len() as u32, "check");
    match names.is_empty() {
        true => "it made no check".to_owned(),
        false => format!("all {checks} pass in {:.1} s ({})", report.secs, names.join(", ")),
    }
}

/// The section on it.
pub(super) fn blocks(results: &Results) -> Vec<Block> {
    let said = match &results.selftest {
        None => "Not known: these results are older than the selftest.".to_owned(),
        Some(Selftest::Skipped) => {
            "Its selftest was not run: the experiment or the command asked for none.".to_owned()
        }
        Some(Selftest::Simulated) => {
            "Nothing to prove: the target is simulated, and so is the generator.".to_owned()
        }
        Some(Selftest::Broke(why)) => format!("Its selftest could not be run: {}.", bare(why)),
        Some(Selftest::Ran(report)) => ran(report, results),
    };
    let mut blocks = vec![Block::Text(said)];
    if let Some(Selftest::Ran(report)) = &results.selftest {
        let mut table = Table::new(&["<check", "<measured", "<bound", "<outcome"]);
        for check in &report.checks {
            let outcome = format!("{}{}", check.outcome.name(), check.at_try());
            table.push([&check.name, &check.measured, &check.bound, &outcome].map(String::clone));
        }
        blocks.push(Block::Table(table));
        blocks.push(Block::Notes(vec![
            "A test server that shares no code with the generator or the server imposed known delays, stalls and faults. The \
             generator had to report them."
                .to_owned(),
        ]));
    }
    blocks
}

fn ran(report: &SelftestReport, results: &Results) -> String {
    let form = if report.short { "weir selftest --short" } else { "weir selftest" };
    let in_trials = |core: &usize| {
        results.placements.iter().any(|placed| placed.part == "generator" && placed.cores.contains(core))
    };
    let all = count(report.checks.len() as u32, "check");
    let outcome =
        match (report.with(CheckOutcome::Fail).len(), report.with(CheckOutcome::NotChecked).join(", ")) {
            (0, unchecked) if unchecked.is_empty() => held(report),
            (0, unchecked) => format!("of {all} some could not be made ({unchecked})"),
            (failed, _) => format!(
                "{failed} of {all} failed in {:.1} s; what rests on them below may be untrue",
                report.secs
            ),
        };
    let on = match results.selftest_cores {
        Some([generator, responder]) => {
            let as_there = if in_trials(&generator) { ", where it is in the trials," } else { "" };
            format!(
                ", with the generator on core {generator}{as_there} and the responder on core {responder}"
            )
        }
        None => String::new(),
    };
    format!("{form} ran on this machine before the first trial{on}: {outcome}.")
}
