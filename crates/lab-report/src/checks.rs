//! The checks: a table of how they came out, and the confidence that follows for a workload.

use super::document::{Answer, Block, Table, Tone};
use super::format::{capitalized, count, each_level, percent};
use super::sentences;
use lab_analysis::{
    CHECKS, Check, CheckCount, Confidence, Findings, Outcome, Row, Scope, Spot, WorkloadFindings,
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

/// The places where the same was seen: workloads, and the levels of a check of levels.
struct Places<'a> {
    seen: String,
    of: Vec<(&'a str, Vec<u32>)>,
}

/// Where a check came out so, and what was seen there: once for all places where it was the same.
fn came_out(
    check: &Check,
    counts: &CheckCount,
    findings: &Findings,
    outcome: Outcome,
) -> Vec<(String, String)> {
    // What was seen where all is well differs from level to level and interests nobody.
    let said = |seen: &str, remedy: &str| match outcome {
        Outcome::Fail => capitalized(format!("{seen}. {remedy}").trim_end()),
        Outcome::NotChecked => capitalized(seen),
        Outcome::Pass => String::new(),
    };
    let [passed, failed, unknown] = [counts.passed, counts.failed, counts.not_checked];
    if counts.scope == Scope::Run {
        let number = match outcome {
            Outcome::Pass => passed,
            Outcome::Fail => failed,
            Outcome::NotChecked => unknown,
        };
        let row = || ("the run".to_owned(), said(&counts.seen, &counts.remedy));
        return (number > 0).then(row).into_iter().collect();
    }
    let mut all: Vec<Places> = Vec::new();
    for found in &findings.workloads {
        let of_rows = found.rows.iter().flat_map(|row| row.checks.iter().map(|of| (of, Some(row.level))));
        let of_workload = found.checks.iter().map(|of| (of, None)).chain(of_rows);
        for (of, level) in of_workload.filter(|(of, _)| of.id == check.id && of.outcome == outcome) {
            let seen = said(&of.seen, &of.remedy);
            let i = all.iter().position(|known| known.seen == seen).unwrap_or(all.len());
            if i == all.len() {
                all.push(Places { seen, of: Vec::new() });
            }
            let places = &mut all[i].of;
            match places.last_mut().filter(|(workload, _)| *workload == found.name) {
                Some((_, levels)) => levels.extend(level),
                None => places.push((&found.name, level.into_iter().collect())),
            }
        }
    }
    let row = |places: Places| (scope(&places, counts, outcome), places.seen);
    all.into_iter().map(row).collect()
}

/// The places by name; all of them in two words.
fn scope(places: &Places, counts: &CheckCount, outcome: Outcome) -> String {
    let number: u32 = places.of.iter().map(|(_, levels)| levels.len().max(1) as u32).sum();
    let place = |(workload, levels): &(&str, Vec<u32>)| match levels.as_slice() {
        [] => (*workload).to_owned(),
        levels => format!("{workload}, {}", each_level(levels)),
    };
    match counts.scope {
        _ if number < counts.passed + counts.failed + counts.not_checked => match outcome {
            Outcome::Pass => "all others".to_owned(),
            _ => places.of.iter().map(place).collect::<Vec<_>>().join("; "),
        },
        Scope::Row => "every level".to_owned(),
        Scope::Workload | Scope::Run => "every workload".to_owned(),
    }
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
        _ if !found.rows.iter().any(Row::usable) => ("low", Tone::Stop),
        Confidence::Low => ("low", Tone::Stop),
        Confidence::Medium => ("medium", Tone::Care),
        Confidence::High => ("high", Tone::Plain),
    };
    let trust = [&found.trust.capacity, &found.trust.knee, &found.trust.bottleneck];
    // The gravest first: on the terminal there may be no room for all.
    let is_lowered =
        |check: &&Check| trust.iter().flat_map(|of| &of.lowered_by).any(|of| of.check == check.id);
    let mut failed: Vec<&Check> = CHECKS.iter().filter(is_lowered).collect();
    failed.sort_by_key(|check| check.leaves);
    let mut details: Vec<String> = failed.iter().map(|check| check.name.to_owned()).collect();
    if let Some(first) = details.first_mut() {
        first.insert_str(0, "failed: ");
    }
    if details.is_empty() {
        let [passed, unknown, failed] = [Outcome::Pass, Outcome::NotChecked, Outcome::Fail].map(|outcome| {
            let checks = findings.checks.iter().filter(|of| worst(of, found) == Some(outcome));
            checks.count() as u32
        });
        details.push(match failed {
            0 => format!("all {passed} checks passed"),
            _ => format!(
                "{passed} of {} passed, none failed that concerns it",
                count(passed + failed, "check")
            ),
        });
        details.extend((unknown > 0).then(|| format!("{unknown} not checked")));
    }
    Answer { label: "confidence", said: said.to_owned(), details, tone }
}

/// The worst outcome of a check of a workload.
fn worst(counts: &CheckCount, found: &WorkloadFindings) -> Option<Outcome> {
    let of_workload = || found.checks.iter().chain(found.rows.iter().flat_map(|row| &row.checks));
    let has = |outcome| match (counts.scope, outcome) {
        (Scope::Run, Outcome::Fail) => counts.failed > 0,
        (Scope::Run, Outcome::Pass) => counts.passed > 0,
        (Scope::Run, Outcome::NotChecked) => counts.not_checked > 0,
        _ => of_workload().any(|of| of.id == counts.id && of.outcome == outcome),
    };
    [Outcome::Fail, Outcome::Pass, Outcome::NotChecked].into_iter().find(|outcome| has(*outcome))
}
