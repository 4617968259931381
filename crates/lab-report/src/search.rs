//! The search for the highest rate under a limit on latency: the table of the rates that were tried.

use super::document::{Block, Table};
use super::format::{capitalized, count, tally};
use super::sentences::{asked, between};
use kv::units::{micros, short};
use lab_analysis::{Searched, Tried, WorkloadFindings};
use lab_data::search::Says;
use std::collections::BTreeSet;

/// A rate, and the repetition of its search where there are several.
type Line<'a> = (Option<u32>, &'a Tried);

const COLUMNS: &[(&str, fn(&Line) -> Option<String>)] = &[
    ("repetition", |(repetition, _)| Some((*repetition)?.to_string())),
    ("offered, req/s", |(_, of)| Some(short(of.tally.rate_rps))),
    ("passed", |(_, of)| Some(tally(of.tally.passed.into()))),
    ("failed", |(_, of)| Some(tally(of.tally.failed.into()))),
    ("discarded", |(_, of)| Some(tally(of.tally.spoiled.into()))),
    ("p99 of these trials", |(_, of)| {
        let (least, most) = of.latency_us_p99.map(|(least, most)| (micros(least), micros(most)))?;
        Some(if least == most { most } else { format!("{least}–{most}") })
    }),
    ("<p99 and errors", |(_, of)| {
        let says = match of.tally.says() {
            Says::Holds => "kept",
            Says::Breaks => "exceeded",
            Says::Mixed => "trials disagree",
            Says::Spoiled => "the generator is the limit",
            Says::Open => "not decided",
        };
        Some(says.to_owned())
    }),
];

/// The part of a workload's section: every rate that had trials of full length.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(of) = &found.under_limit else { return Vec::new() };
    let repetition = |search: &Searched| (of.searches.len() > 1).then_some(search.repetition + 1);
    let lines: Vec<Line> = (of.searches.iter())
        .flat_map(|search| search.rates.iter().map(move |tried| (repetition(search), tried)))
        .collect();
    let is_open = |(_, of): &Line| !matches!(of.tally.says(), Says::Holds | Says::Breaks);
    let plan = &of.plan;
    let mut notes = vec![format!(
        "Open loop of {} arrivals on {}, trials of {} s; latency counts from the instant a request was due. A rate is decided \
         where five trials agree, or seven of eight. Shorter trials only narrow the range and are not counted here.",
        plan.arrivals,
        count(plan.clients, "connection"),
        plan.trial_secs,
    )];
    let discarded: BTreeSet<&str> =
        of.searches.iter().flat_map(|search| &search.reasons).map(String::as_str).collect();
    notes.extend(discarded.iter().take(3).map(|why| format!("Discarded: {why}.")));
    vec![
        Block::Part(format!("Highest rate with {}", asked(plan))),
        Block::Text(capitalized(&format!("{}.", between(of)))),
        Block::Table(Table::of(&lines, COLUMNS, is_open)),
        Block::Notes(notes),
    ]
}

#[cfg(test)]
mod tests {
    use crate::{render, sentences};
    use lab_analysis::findings;
    use lab_data::results::{Results, Search, SearchEnd, SearchPlan, SearchTrial};
    use lab_data::simulated::tests::{model, sweep};

    /// A search with five trials of 2 s at each rate, whose p99 is given in microseconds, and which then ended so.
    fn searched(p99: &[(f64, f64)], ended: SearchEnd) -> Results {
        let mut results = sweep(&model("cpu 1 1ms"), &["get"], &[1, 4], 1, "2s");
        let plan = SearchPlan {
            p99_us: 5000.0,
            error_ratio: 0.001,
            clients: 64,
            arrivals: "poisson".into(),
            trial_secs: 2.0,
            most_secs: 120.0,
            goal: 0.02,
        };
        let mut trials = Vec::new();
        for (rate_rps, us) in p99.iter().flat_map(|of| [*of; 5]) {
            let mut trial = results.trials[0].clone();
            trial.load.as_mut().unwrap().latency.us_p99 = us;
            trials.push(SearchTrial { rate_rps, window_secs: 2.0, trial });
        }
        let ended = Some(ended);
        results.searches.push(Search { workload: "get".into(), repetition: 0, plan, trials, ended });
        results
    }

    fn said(results: &Results) -> String {
        sentences::under_limit(findings(results).workloads[0].under_limit.as_ref().unwrap())
    }

    #[test]
    fn the_sentence_says_between_what_the_truth_lies_or_what_is_missing() {
        let both = searched(&[(8100.0, 3000.0), (8260.0, 6000.0)], SearchEnd::Reached);
        assert_eq!(said(&both), "with p99 ≤ 5.00 ms and errors ≤ 0.1 %: between 8.10k and 8.26k req/s");
        let low = searched(&[(8100.0, 3000.0)], SearchEnd::Generator);
        assert!(said(&low).ends_with("at least 8.10k req/s; the generator could not offer more"));
        let high = searched(&[(8260.0, 6000.0)], SearchEnd::Time);
        assert!(said(&high).ends_with("less than 8.26k req/s; the lower end was not decided"));
        for (ended, why) in [
            (SearchEnd::Broken, "several trials in a row gave no figures"),
            (SearchEnd::Generator, "the generator was the limit before any rate was decided"),
            (SearchEnd::TooLow, "no lower rate can be measured in this time"),
            (SearchEnd::Time, "no rate was decided in the time given"),
        ] {
            let said = said(&searched(&[], ended));
            assert!(said.ends_with(&format!(": unknown: {why}")), "{ended:?}: {said}");
        }
        let mut interrupted = searched(&[], SearchEnd::Time);
        interrupted.searches[0].ended = None;
        assert!(said(&interrupted).ends_with("the search was interrupted before any rate was decided"));
        // Of two repetitions the outer bounds.
        let mut two = both.clone();
        two.searches.extend(searched(&[(7900.0, 3000.0), (8200.0, 6000.0)], SearchEnd::Reached).searches);
        assert!(said(&two).ends_with("between 7.90k and 8.26k req/s"));
    }

    #[test]
    fn every_rate_that_counted_stands_in_the_table() {
        let results = searched(&[(8100.0, 3000.0), (8260.0, 6000.0)], SearchEnd::Reached);
        let page = render(&results).into_iter().find(|file| file.name == "report.md").unwrap();
        let page = page.text.clone();
        assert!(page.contains("| 8.10k | 5 | · | · | 3.00 ms | kept |"), "{page}");
        assert!(page.contains("| 8.26k | · | 5 | · | 6.00 ms | exceeded |"), "{page}");
    }
}
