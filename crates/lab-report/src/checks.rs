//! The checks: a table of how they came out, and the confidence that follows for a workload.

use super::document::{Answer, Block, Table, Tone};
use super::format::{capitalized, count, each_level, percent};
use super::sentences;
use lab_analysis::{
    CHECKS, Check, CheckCount, Checked, Confidence, Findings, Outcome, Scope, Spot, WorkloadFindings,
};
use lab_data::results::Results;

/// The section on them.
pub(super) fn blocks(results: &Results, findings: &Findings) -> Vec<Block> {
    let mut table = Table::new(&["<check", "<rule", "<scope", "<outcome", "<seen, and what to do"]);
    // What failed is read first.
    for outcome in [Outcome::Fail, Outcome::NotChecked, Outcome::Pass] {
        for (check, counts) in CHECKS.iter().zip(&findings.checks) {
            for (scope, seen) in came_out(check, counts, findings, outcome) {
                let word = match outcome {
                    Outcome::Fail => "fail",
                    Outcome::NotChecked => "not checked",
                    Outcome::Pass => "pass",
                };
                let (name, rule) = (capitalized(check.name), check.about.to_owned());
                table.push_row([name, rule, scope, word.to_owned(), seen], outcome == Outcome::NotChecked);
            }
        }
    }
    vec![Block::Text(summary(results, findings)), Block::Table(table)]
}

/// Where a check came out so, and what was seen there: once for all places where it was the same.
fn came_out(
    check: &Check,
    counts: &CheckCount,
    findings: &Findings,
    outcome: Outcome,
) -> Vec<(String, String)> {
    let is_meant = |of: &&Checked| of.id == check.id && of.outcome == outcome;
    // Where single levels pass or fail alike is of interest; all that was seen where they pass is not.
    let said = |of: &Checked| match outcome {
        Outcome::Fail => capitalized(format!("{}. {}", of.seen, of.remedy).trim_end()),
        Outcome::NotChecked => capitalized(&of.seen),
        Outcome::Pass => String::new(),
    };
    let mut all: Vec<(String, Vec<(&str, Vec<u32>)>)> = Vec::new();
    let mut add = |of: &Checked, workload, level: Option<u32>| {
        let said = said(of);
        let same = all.iter().position(|(known, _)| *known == said);
        let i = same.unwrap_or(all.len());
        if same.is_none() {
            all.push((said, Vec::new()));
        }
        let places = &mut all[i].1;
        match places.last_mut().filter(|(known, _)| *known == workload) {
            Some((_, levels)) => levels.extend(level),
            None => places.push((workload, level.into_iter().collect())),
        }
    };
    for found in &findings.workloads {
        found.checks.iter().filter(is_meant).for_each(|of| add(of, &found.name, None));
        for row in &found.rows {
            row.checks.iter().filter(is_meant).for_each(|of| add(of, &found.name, Some(row.level)));
        }
    }
    let asked = counts.passed + counts.failed + counts.not_checked;
    let scope = |places: &[(&str, Vec<u32>)]| {
        let number: u32 = places.iter().map(|(_, levels)| levels.len().max(1) as u32).sum();
        let place = |(workload, levels): &(&str, Vec<u32>)| match levels.as_slice() {
            [] => (*workload).to_owned(),
            levels => format!("{workload}, {}", each_level(levels)),
        };
        match (counts.scope, number == asked) {
            (Scope::Row, true) => "every level".to_owned(),
            (Scope::Workload, true) => "every workload".to_owned(),
            _ => places.iter().map(place).collect::<Vec<_>>().join("; "),
        }
    };
    let mut rows: Vec<(String, String)> =
        all.into_iter().map(|(said, places)| (scope(&places), said)).collect();
    let of_run = match outcome {
        Outcome::Fail => counts.failed,
        Outcome::NotChecked => counts.not_checked,
        Outcome::Pass => counts.passed,
    };
    if counts.scope == Scope::Run && of_run > 0 {
        let remedy = if outcome == Outcome::Fail { format!(". {}", counts.remedy) } else { String::new() };
        rows.push(("the run".to_owned(), capitalized(&counts.seen) + &remedy));
    }
    rows
}

/// How much was measured, and how far it is from what would be wrong.
fn summary(results: &Results, findings: &Findings) -> String {
    let place = |spot: &Spot| format!("{}, {}", spot.workload, count(spot.level, "client"));
    let little = findings.worst_little.as_ref().map_or_else(
        || "Little’s law could not be checked anywhere.".to_owned(),
        |spot| {
            let off = spot.value.abs() * 100.0;
            format!("The row furthest from Little’s law is off by {off:.2} % ({}).", place(spot))
        },
    );
    let generator = findings.busiest_generator.as_ref().map_or_else(
        || "How busy the load generator’s cores were was not read.".to_owned(),
        |spot| {
            format!("The load generator used at most {} of its cores ({}).", percent(spot.value), place(spot))
        },
    );
    format!(
        "{} of {} planned delivered numbers ({} of each workload at each level). {little} {generator} {}",
        count(findings.ran, "trial"),
        findings.planned,
        count(results.repetitions, "run"),
        sentences::sharing(&results.placements)
    )
}

/// How far the answers for a workload may be believed, and why no further.
pub(super) fn confidence(found: &WorkloadFindings, findings: &Findings) -> Answer {
    let (said, tone) = match found.trust.least() {
        _ if !found.rows.iter().any(|row| row.usable()) => ("low", Tone::Stop),
        Confidence::Low => ("low", Tone::Stop),
        Confidence::Medium => ("medium", Tone::Care),
        Confidence::High => ("high", Tone::Plain),
    };
    let trust = [&found.trust.capacity, &found.trust.knee, &found.trust.bottleneck];
    let mut details: Vec<String> = Vec::new();
    for check in CHECKS {
        let lowered: Vec<_> =
            trust.iter().flat_map(|of| &of.lowered_by).filter(|of| of.check == check.id).collect();
        let mut levels: Vec<u32> = lowered.iter().flat_map(|of| of.levels.iter().copied()).collect();
        levels.sort_unstable();
        levels.dedup();
        match (lowered.is_empty(), levels.is_empty()) {
            (true, _) => {}
            (_, true) => details.push(format!("failed: {}", check.name)),
            (_, false) => details.push(format!("failed: {} at {}", check.name, each_level(&levels))),
        }
    }
    if details.is_empty() {
        let [passed, unknown] = [Outcome::Pass, Outcome::NotChecked].map(|of| number(found, findings, of));
        details.push(format!("all {passed} checks passed"));
        details.extend((unknown > 0).then(|| format!("{unknown} not checked")));
    }
    Answer { label: "confidence", said: said.to_owned(), details, tone }
}

/// How many checks of a workload came out so, each by the worst of its outcomes.
fn number(found: &WorkloadFindings, findings: &Findings, outcome: Outcome) -> usize {
    let of_workload = || found.checks.iter().chain(found.rows.iter().flat_map(|row| &row.checks));
    let worst = |counts: &CheckCount| match counts.scope {
        Scope::Run if counts.failed > 0 => Some(Outcome::Fail),
        Scope::Run => Some(if counts.passed > 0 { Outcome::Pass } else { Outcome::NotChecked }),
        Scope::Row | Scope::Workload => {
            let has = |outcome| of_workload().any(|of| of.id == counts.id && of.outcome == outcome);
            [Outcome::Fail, Outcome::Pass, Outcome::NotChecked].into_iter().find(|outcome| has(*outcome))
        }
    };
    findings.checks.iter().filter(|counts| worst(counts) == Some(outcome)).count()
}
