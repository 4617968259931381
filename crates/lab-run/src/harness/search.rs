//! Has the highest rate searched for under a limit on latency: runs the tries that [`lab_data::search`] asks for.

use super::{Progress, Runner, save};
use kv::units::{Rate, Span, micros};
use lab_data::experiment::{LatencyLimit, Workload};
use lab_data::results::{Results, Search, SearchPlan, SearchTrial};
use lab_data::search::{self, Next};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Where the first try is, as a share of the most that the closed loop got through: latency rises before that is reached.
const BELOW_CAPACITY: f64 = 0.7;

/// An open loop of one try.
#[derive(Clone, Debug)]
pub(super) struct Offered {
    /// Requests per second.
    pub(super) rate_rps: f64,
    /// How they are spread over time.
    pub(super) arrivals: String,
    /// Connections.
    pub(super) clients: u32,
    /// The unmeasured part.
    pub(super) warmup: Span,
    /// The measured part.
    pub(super) window: Span,
}

impl Offered {
    /// For `weir load`.
    pub(super) fn flags(&self) -> [String; 4] {
        let rate = Rate(self.rate_rps).to_string();
        ["--rate".to_owned(), rate, "--arrivals".to_owned(), self.arrivals.clone()]
    }
}

/// Searches for the highest rate of `workload` in one repetition; every try is kept in `results`, which are saved after it.
pub(super) fn search<'a>(
    runner: &mut (dyn Runner<'a> + 'a),
    workload: &'a Workload,
    repetition: u32,
    results: &mut Results,
    dir: &Path,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<(), String> {
    let Some(plan) = workload.limit.as_ref().map(LatencyLimit::plan) else { return Ok(()) };
    let mut search = search::Search::new(plan.clone(), first_rps(results, &workload.name));
    let name = workload.name.clone();
    results.searches.push(Search { workload: name, repetition, plan, trials: Vec::new(), ended: None });
    loop {
        let ours = results.searches.len() - 1;
        let (rate_rps, warmup_secs, window_secs) = match search.next() {
            Next::Try { rate_rps, warmup_secs, window_secs } => (rate_rps, warmup_secs, window_secs),
            Next::End(end) => {
                results.searches[ours].ended = Some(end);
                return save(results, dir);
            }
        };
        let plan = &results.searches[ours].plan;
        progress.preparing(&said(workload, plan, rate_rps));
        let offered = Offered {
            rate_rps: whole(rate_rps),
            arrivals: plan.arrivals.clone(),
            clients: plan.clients,
            warmup: span(warmup_secs),
            window: span(window_secs),
        };
        let begun = Instant::now();
        let trial = runner.offered(workload, &offered, repetition);
        // An interrupted trial is no failure of the target.
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let tried = SearchTrial { rate_rps, window_secs, trial };
        let outcome = search::judge(plan, &tried);
        search.take(rate_rps, window_secs, &outcome, begun.elapsed().as_secs_f64());
        results.searches[ours].trials.push(tried);
        save(results, dir)?;
    }
}

/// Where to begin: below the most that any trial of the workload got through.
fn first_rps(results: &Results, workload: &str) -> Option<f64> {
    let of_it = results.trials.iter().filter(|trial| trial.workload == workload);
    let goodput = of_it.filter_map(|trial| Some(trial.load.as_ref()?.goodput_rps));
    goodput.max_by(f64::total_cmp).map(|most| BELOW_CAPACITY * most)
}

fn said(workload: &Workload, plan: &SearchPlan, rate_rps: f64) -> String {
    let rate = kv::units::short(rate_rps);
    format!("{}, {rate} req/s, p99 ≤ {}?", workload.name, micros(plan.p99_us))
}

/// A tenth of a request in a second is more than anybody reads.
fn whole(rate_rps: f64) -> f64 {
    (rate_rps * 10.0).round() / 10.0
}

/// Whole milliseconds, as a person would write them.
fn span(secs: f64) -> Span {
    Span(Duration::from_millis((secs * 1e3).round() as u64))
}
