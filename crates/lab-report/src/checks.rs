//! The checks: a table of those that did not pass, and the confidence that follows for a workload.

use super::document::{Answer, Block, Table};
use super::format::{capitalized, count, each_level};
use lab_analysis::checks::Test;
use lab_analysis::{
    CHECKS, Check, Checked, Confidence, Effect, Findings, Outcome, Row, Shown, WorkloadFindings,
};
use lab_data::results::{Results, SLOWER_GENERATOR};

/// A check, and the places where it came out so for the same cause.
pub(super) struct Line<P> {
    pub(super) check: &'static Check,
    pub(super) places: Vec<P>,
    outcome: Outcome,
    /// What was seen at each; the same but for numbers.
    seen: Vec<String>,
    /// In how many places it was asked.
    asked: usize,
}

/// A workload, and a level of a check of levels.
type Place<'a> = (&'a str, Option<u32>);

const COLUMNS: &[(&str, fn(&Line<Place>) -> Option<String>)] = &[
    ("<check", |line| Some(capitalized(line.check.name))),
    ("<rule", |line| Some(line.check.about.to_owned())),
    ("<where", |line| Some(places(line))),
    ("<outcome", |line| Some(line.outcome.name().to_owned())),
    ("<seen, and what to do", |line| Some(line.seen())),
];

/// The section on them.
pub(super) fn blocks(results: &Results, findings: &Findings) -> Vec<Block> {
    let mut all: Vec<(&Checked, Place)> = findings.checks.iter().map(|of| (of, ("the run", None))).collect();
    for found in &findings.workloads {
        all.extend(found.checks.iter().map(|of| (of, (found.name.as_str(), None))));
        for row in &found.rows {
            all.extend(row.checks.iter().map(|of| (of, (found.name.as_str(), Some(row.level)))));
        }
    }
    let (passed, others): (Vec<_>, Vec<_>) =
        lines(&all).into_iter().partition(|line| line.outcome == Outcome::Pass);
    let table = Table::of(&others, COLUMNS, |line| line.outcome == Outcome::NotChecked);
    let (ran, repetitions) = (count(findings.ran, "trial"), count(results.repetitions, "repetition"));
    let summary = format!(
        "{ran} of {} gave a result ({repetitions} of each level). Not checked: the check could not be made, or its result is not clear.",
        findings.planned
    );
    let passed = Table::of(&passed, &COLUMNS[..3], |_| false);
    vec![Block::Text(summary), Block::Table(table), Block::Text("Passed:".to_owned()), Block::Table(passed)]
}

/// How all checks came out: what failed first, and for each cause one line.
pub(super) fn lines<P: Copy>(all: &[(&Checked, P)]) -> Vec<Line<P>> {
    let mut lines: Vec<Line<P>> = Vec::new();
    for outcome in [Outcome::Fail, Outcome::NotChecked, Outcome::Pass] {
        for check in CHECKS {
            let asked: Vec<_> = all.iter().filter(|(of, _)| of.id == check.id).collect();
            let first = lines.len();
            for (of, place) in asked.iter().filter(|(of, _)| of.outcome == outcome) {
                // What was seen where all is well interests nobody.
                let seen = match outcome {
                    Outcome::Fail => capitalized(format!("{}. {}", of.seen, of.remedy).trim_end()),
                    Outcome::NotChecked => capitalized(&of.seen),
                    Outcome::Pass => String::new(),
                };
                let cause = without_digits(&seen);
                match lines[first..].iter_mut().find(|line| without_digits(&line.seen[0]) == cause) {
                    Some(line) => {
                        line.places.push(*place);
                        line.seen.push(seen);
                    }
                    None => lines.push(Line {
                        check,
                        outcome,
                        seen: vec![seen],
                        places: vec![*place],
                        asked: asked.len(),
                    }),
                }
            }
        }
    }
    lines
}

/// A word that begins with a letter is a name, whatever digits it has: `http_429`.
fn without_digits(text: &str) -> String {
    let is_name = |word: &str| word.chars().find(|c| c.is_alphanumeric()).is_some_and(char::is_alphabetic);
    let cut = |word: &str| match is_name(word) {
        true => word.to_owned(),
        false => word.replace(|c: char| c.is_ascii_digit(), ""),
    };
    text.split(' ').map(cut).collect::<Vec<_>>().join(" ")
}

impl<P> Line<P> {
    /// What was seen at all places, numbers that differ as a range: `2.10–6.00 % of the attempts failed`.
    pub(super) fn seen(&self) -> String {
        let is_other = |c: char| !c.is_ascii_digit();
        let is_negative = |word: &str| word.trim_start_matches('(').starts_with(['-', '−']);
        let number = |word: &str| {
            let size: f64 = word.trim_matches(is_other).parse().unwrap_or(0.0);
            if is_negative(word) { -size } else { size }
        };
        let texts: Vec<Vec<&str>> = self.seen.iter().map(|text| text.split(' ').collect()).collect();
        // What holds everywhere is the least of what is advised, and no range.
        let is_least = |i: usize| texts[0].get(i + 1..i + 4) == Some(&["clients", "or", "fewer"][..]);
        let word = |i: usize| {
            let mut all: Vec<&str> = texts.iter().map(|words| words[i]).collect();
            all.sort_by(|a, b| f64::total_cmp(&number(a), &number(b)));
            match (all[0], all[all.len() - 1]) {
                (low, high) if low == high || is_least(i) => low.to_owned(),
                (low, high) if is_negative(low) => {
                    format!("{} to {}", low.trim_end_matches(is_other), high.trim_start_matches('('))
                }
                (low, high) => {
                    format!("{}–{}", low.trim_end_matches(is_other), high.trim_start_matches(is_other))
                }
            }
        };
        (0..texts[0].len()).map(word).collect::<Vec<_>>().join(" ")
    }
}

/// The places by name; all of them in two words.
fn places(line: &Line<Place>) -> String {
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

/// How far the answers for a workload may be believed, and why no further.
pub(super) fn confidence(found: &WorkloadFindings) -> Answer {
    let (said, class) = match found.trust.confidence {
        _ if !found.rows.iter().any(Row::usable) => ("low", "stop"),
        Confidence::Low => ("low", "stop"),
        Confidence::Medium => ("medium", "care"),
        Confidence::High => ("high", ""),
    };
    let is_lowering = |check: &&Check| found.trust.lowered_by.contains(&check.id);
    let mut failed: Vec<&Check> = CHECKS.iter().filter(is_lowering).collect();
    let levels = |which: fn(&&Row) -> bool| {
        let levels: Vec<u32> = found.rows.iter().filter(which).map(|row| row.level).collect();
        (!levels.is_empty()).then(|| each_level(&levels))
    };
    let nothing = levels(|row| row.is_silent()).map(|at| format!("nothing succeeded at {at}"));
    let some = levels(|row| row.unanswered > 0 && !row.is_silent());
    let some = some.map(|at| format!("not every client was answered at {at}"));
    // The gravest first: on the terminal there may be no room for all.
    failed.sort_by_key(|check| check.leaves);
    let mut details: Vec<String> = failed.iter().map(|check| check.name.to_owned()).collect();
    match details.first_mut() {
        Some(first) => first.insert_str(0, "failed checks: "),
        None => details.push("no check failed".to_owned()),
    }
    details.splice(0..0, [nothing, some].into_iter().flatten());
    let is_unclear = |of: &&Effect| of.change.name == SLOWER_GENERATOR && of.shown == Shown::Undecided;
    if found.effects.iter().any(|of| is_unclear(&of)) {
        details.push("not clear: generator headroom".to_owned());
    }
    Answer { label: "confidence", said: said.to_owned(), details, class }
}

#[cfg(test)]
mod tests {
    use super::{CHECKS, Line, Outcome, without_digits};
    use lab_data::results::Results;
    use lab_data::simulated::tests::{model, sweep};

    /// Of two clients it was "stay at 1 clients or fewer", which fail as well, and of no request "No attempt failed".
    #[test]
    fn where_every_level_fails_no_fewer_clients_are_advised() {
        let mut results = sweep(&model("cpu 1 =2ms"), &["get"], &[1, 2], 3, "1s");
        let page = |results: &Results| {
            let files = crate::render(results);
            let page = files.into_iter().find(|file| file.name == "report.md").unwrap();
            page.text.replace('\u{a0}', " ")
        };
        for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
            (load.successes, load.error_ratio) = (0, 1.0);
            load.errors = [("timeout".into(), load.attempts)].into();
        }
        let text = page(&results);
        assert!(text.contains("Remove the cause. |") && !text.contains("(--levels)"), "{text}");
        assert!(text.contains("up to 100 % of the attempts failed, most with timeout"), "{text}");
        for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
            (load.errors, load.error_ratio, load.attempts) = ([].into(), 0.0, 0);
        }
        let text = page(&results);
        assert!(text.contains("No request completed") && !text.contains("No attempt failed"), "{text}");
    }

    /// Of a service that leaks: "6 trials of 6 succeeded", and the lowest level, of which nothing completed, had over half of the capacity.
    #[test]
    fn levels_at_which_clients_are_left_without_an_answer_are_named_in_the_answers() {
        let mut results = sweep(&model("cpu 1 1ms"), &["get"], &[1, 16, 32, 64, 128], 3, "300ms");
        for trial in &mut results.trials {
            let load = trial.load.as_mut().unwrap();
            match trial.level {
                1 => (load.attempts, load.successes, load.goodput_rps, load.unanswered) = (0, 0, 0.0, 1),
                128 => load.unanswered = 10,
                _ => {}
            }
        }
        let files = crate::render(&results);
        let page = files.into_iter().find(|file| file.name == "report.md").unwrap();
        let text = page.text.replace('\u{a0}', " ");
        for said in [
            "| low; nothing succeeded at 1 client; not every client was answered at 128 clients; failed checks: errors",
            "| unknown; the lowest valid level already has over half of the capacity |",
            "15 trials of 15 gave a result",
        ] {
            assert!(text.contains(said), "{said:?} is missing in {text}");
        }
    }

    #[test]
    fn a_range_of_negative_numbers_keeps_their_signs() {
        let seen = |texts: [&str; 2]| {
            let seen = texts.map(str::to_owned).into();
            Line::<()> { check: &CHECKS[0], places: Vec::new(), outcome: Outcome::Fail, seen, asked: 2 }
                .seen()
        };
        assert_eq!(seen(["by -1.2 %", "by -3.4 %"]), "by -3.4 to -1.2 %");
        assert_eq!(seen(["(−0.5 % to 10.1 %)", "(−3.2 % to 12.0 %)"]), "(−3.2 to −0.5 % to 10.1–12.0 %)");
        assert_eq!(seen(["±23.9 %", "±27.8 %"]), "±23.9–27.8 %");
    }

    #[test]
    fn names_are_no_numbers() {
        let cause = |share: u32, class: &str| {
            without_digits(&format!("{share}.0 % failed. Most ({share}) are `{class}`."))
        };
        assert_eq!(cause(8, "http_429"), cause(16, "http_429"));
        assert_ne!(cause(8, "http_429"), cause(8, "http_504"));
    }
}
