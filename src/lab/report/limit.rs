//! What gets through under a limit on latency: the sentence, and the table of the rates that were tried.

use super::page::{Block, Table};
use super::words::{self, UNKNOWN};
use crate::lab::analysis::{Searched, Tried, UnderLimit, WorkloadFindings};
use crate::lab::results::{SearchEnd, SearchPlan};
use crate::lab::search::Says;
use crate::units::{micros, short};

/// `with p99 ≤ 5.00 ms and errors ≤ 0.1 %: between 8.10k and 8.26k req/s`.
pub(super) fn sentence(found: &WorkloadFindings) -> Option<String> {
    let of = found.under_limit.as_ref()?;
    Some(format!("with {}: {}", asked(&of.plan), between(of)))
}

fn asked(plan: &SearchPlan) -> String {
    format!("p99 ≤ {} and errors ≤ {} %", micros(plan.p99_us), (plan.error_ratio * 1e6).round() / 1e4)
}

fn between(of: &UnderLimit) -> String {
    let ended = |end| of.searches.iter().any(|search| search.ended == Some(end));
    match (of.holds_rps, of.breaks_rps) {
        (Some(holds), Some(breaks)) => format!("between {} and {} req/s", rate(holds), rate(breaks)),
        (Some(holds), None) if ended(SearchEnd::Generator) => {
            format!("at least {} req/s; more the generator could not offer", rate(holds))
        }
        (Some(holds), None) => format!("at least {} req/s; where it ends was not decided", rate(holds)),
        (None, Some(breaks)) => format!("less than {} req/s; where it begins was not decided", rate(breaks)),
        (None, None) if ended(SearchEnd::Broken) => "unknown: trials delivered no numbers".to_owned(),
        (None, None) => "unknown: no rate was decided in the time given".to_owned(),
    }
}

/// With four digits: two rates that are 2 % apart must not read alike.
fn rate(rps: f64) -> String {
    match rps {
        rps if rps >= 1e6 => format!("{:.3}M", rps / 1e6),
        rps if rps >= 1e5 => format!("{:.1}k", rps / 1e3),
        rps if rps >= 1e3 => format!("{:.2}k", rps / 1e3),
        rps => format!("{rps:.0}"),
    }
}

/// The part of a workload's section: every rate that had trials of full length.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(of) = &found.under_limit else { return Vec::new() };
    let several = of.searches.len() > 1;
    let head: &[&str] = &["offered, req/s", "passed", "failed", "spoiled", "p99 of them", "<the limit"];
    let head = if several { [&["repetition"], head].concat() } else { head.to_vec() };
    let mut table = Table::new(&head);
    for search in &of.searches {
        for tried in &search.rates {
            let number = several.then(|| (search.repetition + 1).to_string());
            table.rows.push((number.into_iter().chain(cells(tried)).collect(), !is_decided(tried)));
        }
    }
    let plan = &of.plan;
    let mut notes = vec![format!(
        "Open loop of {} arrivals on {}, trials of {} s; latency counts from the instant a request was due. A rate is decided \
         where five trials agree, or seven of eight. Shorter trials only showed the way and are not counted here.",
        plan.arrivals,
        words::count(plan.clients, "connection"),
        plan.trial_secs,
    )];
    notes.extend(of.searches.iter().map(|search| ended(search, plan, several)));
    vec![
        Block::Part(format!("Highest rate with {}", asked(plan))),
        Block::Text(words::capitalized(&format!("{}.", between(of)))),
        Block::Table(table),
        Block::Notes(notes),
    ]
}

fn is_decided(tried: &Tried) -> bool {
    matches!(tried.says, Says::Holds | Says::Breaks)
}

fn cells(tried: &Tried) -> [String; 6] {
    let count = |n: u32| if n == 0 { "·".to_owned() } else { n.to_string() };
    let p99 = match tried.latency_us_p99 {
        None => UNKNOWN.to_owned(),
        Some((least, most)) if micros(least) == micros(most) => micros(most),
        Some((least, most)) => format!("{}–{}", micros(least), micros(most)),
    };
    let says = match tried.says {
        Says::Holds => "holds",
        Says::Breaks => "breaks",
        Says::Mixed => "trials disagree",
        Says::Spoiled => "the generator is in the way",
        Says::Open => "not decided",
    };
    let tally = &tried.tally;
    let [passed, failed, spoiled] = [tally.passed, tally.failed, tally.spoiled].map(count);
    [rate(tally.rate_rps), passed, failed, spoiled, p99, says.to_owned()]
}

fn ended(search: &Searched, plan: &SearchPlan, several: bool) -> String {
    let of = if several { format!(" of repetition {}", search.repetition + 1) } else { String::new() };
    let why = match search.ended {
        Some(SearchEnd::Reached) => "ended with both bounds".to_owned(),
        Some(SearchEnd::Time) => format!("ended with its time, {} s", short(plan.most_secs)),
        Some(SearchEnd::TooLow) => "ended where rates are too low to be measured".to_owned(),
        Some(SearchEnd::Generator) => "ended at what the generator can offer".to_owned(),
        Some(SearchEnd::Broken) => "ended after several trials without numbers".to_owned(),
        None => "was interrupted".to_owned(),
    };
    let spoiled = match search.reasons.as_slice() {
        [] => String::new(),
        reasons => format!(" Spoiled: {}.", reasons.iter().take(3).cloned().collect::<Vec<_>>().join("; ")),
    };
    format!("The search{of} {why}, after {}.{spoiled}", words::count(search.trials, "trial"))
}
