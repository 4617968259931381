//! What gets through under a limit on latency: between which two rates the truth lies, as a search saw it.

use lab_data::distinct;
use lab_data::results::{Results, Search, SearchEnd, SearchPlan, SearchTrial};
use lab_data::search::{self, Outcome, Tally};

/// What the searches of one workload found, one on each fresh target.
#[derive(Clone, Debug, PartialEq)]
pub struct UnderLimit {
    /// What was asked of all of them.
    pub plan: SearchPlan,
    /// The lowest of the searches' lower bounds, in requests per second: the limit holds there. `None` where a search has none.
    pub holds_rps: Option<f64>,
    /// The highest of their upper bounds: the limit breaks there. `None` where a search has none.
    pub breaks_rps: Option<f64>,
    /// Each of them, in the order they ran.
    pub searches: Vec<Searched>,
}

/// One search.
#[derive(Clone, Debug, PartialEq)]
pub struct Searched {
    /// In which repetition.
    pub repetition: u32,
    /// The highest rate at which enough trials agree that the limit holds.
    pub holds_rps: Option<f64>,
    /// The lowest at which enough agree that it breaks.
    pub breaks_rps: Option<f64>,
    /// Why it ended; `None` where it was interrupted.
    pub ended: Option<SearchEnd>,
    /// The rates that had trials of full length, ascending.
    pub rates: Vec<Tried>,
    /// Why trials were spoiled or without numbers, each reason once.
    pub reasons: Vec<String>,
}

/// One rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// How its trials of full length came out.
    pub tally: Tally,
    /// The lowest and the highest 99th percentile among them, in microseconds.
    pub latency_us_p99: Option<(f64, f64)>,
}

/// What was found of `workload`; `None` where nothing was searched for.
pub fn under_limit(results: &Results, workload: &str) -> Option<UnderLimit> {
    let of_it: Vec<_> = results.searches.iter().filter(|search| search.workload == workload).collect();
    let plan = of_it.first()?.plan.clone();
    let searched = |search: &Search| {
        let Search { repetition, plan, trials, ended, .. } = search;
        let tallies = search::tallies(plan, trials);
        let (holds, breaks) = search::bounds(&tallies);
        Searched {
            repetition: *repetition,
            holds_rps: holds.map(|of| of.rate_rps),
            breaks_rps: breaks.map(|of| of.rate_rps),
            ended: *ended,
            rates: tallies.iter().filter_map(|tally| tried(plan, tally, trials)).collect(),
            reasons: reasons(plan, trials),
        }
    };
    let searches: Vec<Searched> = of_it.into_iter().map(searched).collect();
    let all = |bound: fn(&Searched) -> Option<f64>| searches.iter().map(bound).collect::<Option<Vec<f64>>>();
    let holds_rps = all(|of| of.holds_rps).and_then(|of| of.into_iter().min_by(f64::total_cmp));
    let breaks_rps = all(|of| of.breaks_rps).and_then(|of| of.into_iter().max_by(f64::total_cmp));
    Some(UnderLimit { plan, holds_rps, breaks_rps, searches })
}

/// `None` of a rate that had short trials only.
fn tried(plan: &SearchPlan, tally: &Tally, trials: &[SearchTrial]) -> Option<Tried> {
    let full =
        trials.iter().filter(|of| of.rate_rps == tally.rate_rps && search::is_full(plan, of.window_secs));
    let loads = full.filter_map(|of| of.trial.numbers()).filter(|load| load.latency.count > 0);
    (tally.passed + tally.failed + tally.spoiled > 0)
        .then(|| Tried { tally: *tally, latency_us_p99: stats::range(loads.map(|load| load.latency.us_p99)) })
}

fn reasons(plan: &SearchPlan, trials: &[SearchTrial]) -> Vec<String> {
    distinct(trials.iter().filter_map(|of| match search::judge(plan, of) {
        Outcome::Spoiled(why) | Outcome::Missing(why) => Some(why),
        Outcome::Passed | Outcome::Failed => None,
    }))
}
