//! Has the highest rate searched for under a limit on latency: runs the tries that [`lab_data::search`] asks for.

use super::Block;
use super::runner::{Length, Planned, Runner};
use kv::Error;
use kv::units::{Rate, Span, micros};
use lab_data::experiment::{LatencyLimit, Workload};
use lab_data::results::{Results, Search, SearchTrial};
use lab_data::search::{self, Try};
use std::time::{Duration, Instant};

/// Where the first try is, as a share of the most that the closed loop got through: latency rises before that is reached.
const BELOW_CAPACITY: f64 = 0.7;

impl Block<'_> {
    /// Searches for the highest rate of `workload`; every try is kept in the results, which are saved after it.
    pub(super) fn search(&mut self, runner: &mut dyn Runner, workload: &Workload) -> Result<(), Error> {
        let Some(plan) = workload.limit.as_ref().map(LatencyLimit::plan) else { return Ok(()) };
        let mut search = search::Search::new(plan.clone(), first_rps(self.results, &workload.name));
        let (ours, repetition) = (self.results.searches.len(), self.repetition);
        let empty = Search { workload: workload.name.clone(), repetition, ..Search::default() };
        self.results.searches.push(Search { plan: plan.clone(), ..empty });
        loop {
            let Try { rate_rps, warmup_secs, window_secs } = match search.next() {
                Ok(next) => next,
                Err(end) => {
                    self.results.searches[ours].ended = Some(end);
                    return self.save();
                }
            };
            let (rate, p99) = (kv::units::short(rate_rps), micros(plan.p99_us));
            self.progress.preparing(&format!("{}, {rate} req/s, p99 ≤ {p99}?", workload.name));
            let mut paced = workload.clone();
            // A tenth of a request in a second is more than anybody reads.
            let rate = Rate((rate_rps * 10.0).round() / 10.0).to_string();
            paced.args.extend(["--rate".to_owned(), rate, "--arrivals".to_owned(), plan.arrivals.clone()]);
            let length = Length { warmup: span(warmup_secs), window: span(window_secs), adaptive: None };
            let begun = Instant::now();
            let trial = runner.trial(&Planned::unchanged(&paced, plan.clients, repetition, length));
            // An interrupted trial is no failure of the target.
            if self.target_run.options.is_stopped() {
                return Ok(());
            }
            let tried = SearchTrial { rate_rps, window_secs, trial };
            let outcome = search::judge(&plan, &tried);
            search.take(rate_rps, window_secs, &outcome, begun.elapsed().as_secs_f64());
            self.results.searches[ours].trials.push(tried);
            self.save()?;
        }
    }
}

/// Where to begin: below the most that any trial of the workload got through.
fn first_rps(results: &Results, workload: &str) -> Option<f64> {
    let goodput = results.trials_of(workload).filter_map(|trial| Some(trial.load.as_ref()?.goodput_rps));
    goodput.max_by(f64::total_cmp).map(|most| BELOW_CAPACITY * most)
}

/// Whole milliseconds, as a person would write them.
fn span(secs: f64) -> Span {
    Span(Duration::from_millis((secs * 1e3).round() as u64))
}
