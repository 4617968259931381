//! The checks: a table of how they came out, and the confidence that follows for a workload.

use super::csv;
use super::document::{Answer, Block, Table};
use super::format::{UNKNOWN, capitalized, count, each_level};
use lab_analysis::{CHECKS, Check, Confidence, Findings, Outcome, Row, Scope, Spot, WorkloadFindings};
use lab_data::results::Results;

/// A check, and the places where it came out so and the same was seen: workloads, and the levels of a check of levels.
struct Line<'a> {
    check: &'static Check,
    outcome: Outcome,
    seen: String,
    places: Vec<(&'a str, Option<u32>)>,
    /// In how many places it was asked.
    asked: u32,
}

const COLUMNS: &[(&str, fn(&Line) -> Option<String>)] = &[
    ("<check", |line| Some(capitalized(line.check.name))),
    ("<rule", |line| Some(line.check.about.to_owned())),
    ("<scope", |line| Some(scope(line))),
    ("<outcome", |line| Some(csv::name(line.outcome).replace('_', " "))),
    ("<seen and remedy", |line| Some(line.seen.clone())),
];

/// The section on them.
pub(super) fn blocks(results: &Results, findings: &Findings) -> Vec<Block> {
    // What failed is read first.
    let order = [Outcome::Fail, Outcome::NotChecked, Outcome::Pass];
    let lines: Vec<Line> = order.iter().flat_map(|outcome| lines(findings, *outcome)).collect();
    let table = Table::of(&lines, COLUMNS, |line| line.outcome == Outcome::NotChecked);
    vec![Block::Text(summary(results, findings)), Block::Table(table)]
}

/// The checks that came out so.
fn lines(findings: &Findings, outcome: Outcome) -> Vec<Line<'_>> {
    let mut lines: Vec<Line> = Vec::new();
    for (check, of_check) in CHECKS.iter().zip(&findings.checks) {
        let all = findings.workloads.iter().flat_map(|found| {
            let of_rows = found.rows.iter().flat_map(|row| row.checks.iter().map(|of| (of, Some(row.level))));
            let of_workload = found.checks.iter().map(|of| (of, None)).chain(of_rows);
            of_workload
                .map(|(of, level)| (of.id, of.outcome, &of.seen, &of.remedy, (found.name.as_str(), level)))
        });
        let of_run = (of_check.scope == Scope::Run).then(|| {
            let (outcome, seen) = match (of_check.failed, of_check.passed) {
                (1.., _) => (Outcome::Fail, &of_check.seen),
                (0, 1..) => (Outcome::Pass, &of_check.seen),
                (0, 0) => (Outcome::NotChecked, &of_check.missing),
            };
            (of_check.id, outcome, seen, &of_check.remedy, ("the run", None))
        });
        let first = lines.len();
        for (_, _, seen, remedy, place) in
            all.chain(of_run).filter(|(id, out, ..)| *id == check.id && *out == outcome)
        {
            // What was seen where all is well differs from level to level and interests nobody.
            let seen = match outcome {
                Outcome::Fail => capitalized(format!("{seen}. {remedy}").trim_end()),
                Outcome::NotChecked => capitalized(seen),
                Outcome::Pass => String::new(),
            };
            match lines[first..].iter_mut().find(|line| line.seen == seen) {
                Some(line) => line.places.push(place),
                None => {
                    let asked = of_check.passed + of_check.failed + of_check.not_checked;
                    lines.push(Line { check, outcome, seen, places: vec![place], asked });
                }
            }
        }
    }
    lines
}

/// The places by name; all of them in two words.
fn scope(line: &Line) -> String {
    let of_workload = |places: &[(&str, Option<u32>)]| {
        let levels: Vec<u32> = places.iter().filter_map(|(_, level)| *level).collect();
        let at = if levels.is_empty() { String::new() } else { format!(", {}", each_level(&levels)) };
        format!("{}{at}", places[0].0)
    };
    let is_everywhere = line.places.len() == line.asked as usize;
    match line.check.scope() {
        Scope::Run => "the run".to_owned(),
        Scope::Row if is_everywhere => "every level".to_owned(),
        Scope::Workload if is_everywhere => "every workload".to_owned(),
        _ if line.outcome == Outcome::Pass => "all others".to_owned(),
        _ => line.places.chunk_by(|a, b| a.0 == b.0).map(of_workload).collect::<Vec<_>>().join("; "),
    }
}

/// How much was measured, and how far it is from what would be wrong.
fn summary(results: &Results, findings: &Findings) -> String {
    let spot = |of: &Option<Spot>, digits: usize| match of {
        Some(of) => {
            let (share, clients) = (of.value.abs() * 100.0, count(of.level, "client"));
            format!("{share:.digits$} % ({}, {clients})", of.workload)
        }
        None => UNKNOWN.to_owned(),
    };
    let (little, generator) = (spot(&findings.worst_little, 2), spot(&findings.busiest_generator, 0));
    let (trials, runs) = (count(findings.ran, "trial"), count(results.repetitions, "run"));
    let planned = findings.planned;
    format!(
        "{trials} of {planned} planned delivered numbers ({runs} of each workload at each level). The row furthest from Little’s \
         law is off by {little}. The load generator used at most {generator} of its cores."
    )
}

/// How far the answers for a workload may be believed, and why no further.
pub(super) fn confidence(found: &WorkloadFindings) -> Answer {
    let (said, class) = match found.trust.least() {
        _ if !found.rows.iter().any(Row::usable) => ("low", "stop"),
        Confidence::Low => ("low", "stop"),
        Confidence::Medium => ("medium", "care"),
        Confidence::High => ("high", ""),
    };
    let trust = [&found.trust.capacity, &found.trust.knee, &found.trust.bottleneck];
    // The gravest first: on the terminal there may be no room for all.
    let is_lowered =
        |check: &&Check| trust.iter().flat_map(|of| &of.lowered_by).any(|of| of.check == check.id);
    let mut failed: Vec<&Check> = CHECKS.iter().filter(is_lowered).collect();
    failed.sort_by_key(|check| check.leaves);
    let mut details: Vec<String> = failed.iter().map(|check| check.name.to_owned()).collect();
    match details.first_mut() {
        Some(first) => first.insert_str(0, "failed: "),
        None => details.push("no check that concerns it failed".to_owned()),
    }
    Answer { label: "confidence", said: said.to_owned(), details, class }
}
