//! What the generator proved of itself before the first trial: for the front, for its own section, for the terminal.

use super::page::{Block, Table, section};
use super::words;
use kv::proto::{Claim, SelftestReport};
use lab_data::results::{Results, Selftest};

/// What stands on the front where the generator is not to be believed on its word; `None` where there is nothing to warn of.
pub(super) fn warning(results: &Results) -> Option<String> {
    match results.selftest.as_ref()? {
        Selftest::Ran(report) if report.claims.is_empty() => {
            Some("Warning: the generator’s selftest made no claim, so nothing is proved of it.".to_owned())
        }
        Selftest::Ran(report) => {
            let failed = report.claims.iter().filter(|claim| !claim.passed);
            let failed: Vec<String> = failed.map(|claim| format!("{} ({})", claim.id, claim.name)).collect();
            // With their figures they stand in a section of their own.
            (!failed.is_empty()).then(|| {
                format!(
                    "Warning: on this machine the generator failed its selftest at {}: figures that rest on it may be untrue.",
                    failed.join(", ")
                )
            })
        }
        Selftest::Broke(why) => Some(format!(
            "Warning: the generator’s selftest could not be run, so nothing is proved of it: {}.",
            bare(why)
        )),
        Selftest::Skipped | Selftest::Simulated => None,
    }
}

/// Without a full stop: one follows.
fn bare(why: &str) -> &str {
    why.trim_end_matches('.')
}

/// What came of it, for the terminal: one line where all holds or there was nothing to hold, else one for each claim.
pub fn selftest_lines(selftest: &Selftest) -> Vec<String> {
    match selftest {
        Selftest::Ran(report) if report.claims.iter().all(|claim| claim.passed) => {
            vec![format!("generator selftest: {}", held(report))]
        }
        Selftest::Ran(report) => {
            let line = |claim: &Claim| {
                let Claim { id, name, passed, measured, bound, .. } = claim;
                let verdict = if *passed { "held" } else { "FAILED" };
                let tries = claim.at_try();
                format!("generator selftest: {id} {name} {verdict}{tries}: {measured}; bound: {bound}")
            };
            report.claims.iter().map(line).collect()
        }
        Selftest::Broke(why) => vec![format!("generator selftest could not be run: {why}")],
        Selftest::Skipped => vec!["generator selftest: not run, as asked".to_owned()],
        Selftest::Simulated => {
            vec!["generator selftest: nothing to prove, the target is simulated".to_owned()]
        }
    }
}

/// `all 4 claims held in 6.2 s (T2, T3 at try 2, T4, T5)`.
fn held(report: &SelftestReport) -> String {
    let mut ids: Vec<String> =
        report.claims.iter().map(|claim| format!("{}{}", claim.id, claim.at_try())).collect();
    ids.dedup();
    let count = words::count(report.claims.len() as u32, "claim");
    match ids.is_empty() {
        true => "it made no claim".to_owned(),
        false => format!("all {count} held in {:.1} s ({})", report.secs, ids.join(", ")),
    }
}

/// *May we believe the generator?*
pub(super) fn blocks(results: &Results) -> Vec<Block> {
    let mut blocks = vec![section("May we believe the generator?", "generator")];
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
    blocks.push(Block::Text(said));
    if let Some(Selftest::Ran(report)) = &results.selftest {
        let mut table = Table::new(&["<claim", "<", "<measured", "<bound", "<"]);
        for claim in &report.claims {
            let verdict = if claim.passed { "held" } else { "failed" };
            table.push(
                [&claim.id, &claim.name, &claim.measured, &claim.bound]
                    .map(String::clone)
                    .into_iter()
                    .chain([format!("{verdict}{}", claim.at_try())]),
            );
        }
        blocks.push(Block::Table(table));
        blocks.push(Block::Notes(vec![
            "An independent responder, a process of its own that shares no code with the generator or the server, imposed \
             known delays, stalls and faults; the generator had to report them. What it claims is in docs/method.md of weir."
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
    let failed = report.claims.iter().filter(|claim| !claim.passed).count() as u32;
    let outcome = match failed {
        0 => held(report),
        _ => format!(
            "{} of {} failed in {:.1} s; what rests on them below may be untrue",
            failed,
            words::count(report.claims.len() as u32, "claim"),
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
