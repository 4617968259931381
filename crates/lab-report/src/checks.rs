//! The checks: a table of how they came out, and the confidence that follows for a workload.

use super::document::{Answer, Block, Table};
use super::format::{self, UNKNOWN, capitalized, count, each_level};
use lab_analysis::checks::Test;
use lab_analysis::{CHECKS, Check, Checked, Confidence, Findings, Outcome, Row, Spot, WorkloadFindings};
use lab_data::results::Results;

/// A check, and the places where it came out so and the same was seen: workloads, and the levels of a check of levels.
struct Line<'a> {
    check: &'static Check,
    outcome: Outcome,
    seen: String,
    places: Vec<Place<'a>>,
    /// In how many places it was asked.
    asked: usize,
}

/// A workload, and a level of a check of levels.
type Place<'a> = (&'a str, Option<u32>);

const COLUMNS: &[(&str, fn(&Line) -> Option<String>)] = &[
    ("<check", |line| Some(capitalized(line.check.name))),
    ("<rule", |line| Some(line.check.about.to_owned())),
    ("<scope", |line| Some(scope(line))),
    ("<outcome", |line| Some(format::name(line.outcome).replace('_', " "))),
    ("<seen and remedy", |line| Some(line.seen.clone())),
];

/// The section on them.
pub(super) fn blocks(results: &Results, findings: &Findings) -> Vec<Block> {
    let table = Table::of(&lines(findings), COLUMNS, |line| line.outcome == Outcome::NotChecked);
    vec![Block::Text(summary(results, findings)), Block::Table(table)]
}

/// How all checks came out.
fn lines(findings: &Findings) -> Vec<Line<'_>> {
    let mut all: Vec<(&Checked, Place)> = findings.checks.iter().map(|of| (of, ("the run", None))).collect();
    for found in &findings.workloads {
        all.extend(found.checks.iter().map(|of| (of, (found.name.as_str(), None))));
        for row in &found.rows {
            all.extend(row.checks.iter().map(|of| (of, (found.name.as_str(), Some(row.level)))));
        }
    }
    let mut lines: Vec<Line> = Vec::new();
    // What failed is read first.
    for outcome in [Outcome::Fail, Outcome::NotChecked, Outcome::Pass] {
        for check in CHECKS {
            let asked: Vec<_> = all.iter().filter(|(of, _)| of.id == check.id).collect();
            let first = lines.len();
            for (of, place) in asked.iter().filter(|(of, _)| of.outcome == outcome) {
                // What was seen where all is well differs from level to level and interests nobody.
                let seen = match outcome {
                    Outcome::Fail => capitalized(format!("{}. {}", of.seen, of.remedy).trim_end()),
                    Outcome::NotChecked => capitalized(&of.seen),
                    Outcome::Pass => String::new(),
                };
                match lines[first..].iter_mut().find(|line| line.seen == seen) {
                    Some(line) => line.places.push(*place),
                    None => {
                        lines.push(Line { check, outcome, seen, places: vec![*place], asked: asked.len() });
                    }
                }
            }
        }
    }
    lines
}

/// The places by name; all of them in two words.
fn scope(line: &Line) -> String {
    let of_workload = |places: &[Place]| {
        let levels: Vec<u32> = places.iter().filter_map(|(_, level)| *level).collect();
        let at = if levels.is_empty() { String::new() } else { format!(", {}", each_level(&levels)) };
        format!("{}{at}", places[0].0)
    };
    let is_everywhere = line.places.len() == line.asked;
    match line.check.test {
        Test::Run(_) => "the run".to_owned(),
        Test::Row(_) if is_everywhere => "every level".to_owned(),
        Test::Workload(_) if is_everywhere => "every workload".to_owned(),
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
        "{trials} of {planned} succeeded ({runs} of each workload at each level). The level furthest from Little’s law is off by \
         {little}. The load generator used at most {generator} of its cores."
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
