//! What the measurements say: rows, checks, capacity, knee, bottleneck.
//!
//! A pure function of the results: no clock, no `/proc`, no network and no randomness. Methods and limits are those of docs/method.md.

pub mod audit;
pub mod bottleneck;
pub mod capacity;
pub mod checks;
pub mod compare;
pub mod hits;
pub mod figures;
pub mod interventions;
pub mod rate_search;
pub mod knee;
pub mod outside;
mod parts;
pub mod population;
pub mod rows;
pub mod steady;
pub mod waits;
mod waiting;

pub use audit::{AuditStanding, AuditedRow, CAUSES, PublishedSweep, audit};
pub use bottleneck::{Blocked, Bottleneck, CONFLICTS, Ceiling, Evidence, Grade, Growth, Help, RULES, Reason};
pub use capacity::{Capacity, Decline};
pub use checks::{CHECKS, Check, Checked, Confidence, Outcome, Trust};
pub use compare::{Bound, Comparison, MEASURES, compare};
pub use figures::{FIGURES, Figure, Figured, Group, How};
pub use hits::HitRatio;
pub use interventions::{Effect, Shown, headroom_is_decided};
pub use knee::Knee;
pub use outside::Outside;
pub use population::{Place, Population};
pub use rate_search::{Searched, Tried, UnderLimit};
pub use rows::{ERRORS_MAX, Excluded, FastFail, OfRun, Row, Use};
pub use stats::{Estimate, Interval};
pub use steady::time_series::TimeSeries;
pub use waiting::{Dominant, Waiting};
pub use waits::{WAITS, Wait, WaitKind, Whereabouts};

use checks::{OfRow, OfWorkload, Test};
use lab_data::results::{Results, Run, Trial, WorkloadPlan};
use std::collections::BTreeSet;

/// Everything concluded from one run of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// One for each workload, in the experiment's order.
    pub workloads: Vec<WorkloadFindings>,
    /// What the checks of the whole run say.
    pub checks: Vec<Checked>,
    /// Trials planned.
    pub planned: u32,
    /// Trials that delivered numbers.
    pub ran: u32,
}

/// What is concluded of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadFindings {
    /// Its name.
    pub name: String,
    /// One sentence: what it asks of the target.
    pub about: String,
    /// When its clients sent, as `weir load` says it; `None` of a closed loop without think time, and of older results.
    pub pacing: Option<String>,
    /// Every planned level, ascending, also those that failed.
    pub rows: Vec<Row>,
    /// What the checks of workloads say.
    pub checks: Vec<Checked>,
    /// How far capacity, knee and bottleneck may be believed.
    pub trust: Trust,
    /// What it gets through.
    pub capacity: Capacity,
    /// Where more clients stop paying.
    pub knee: Option<Knee>,
    /// What it gets through under a limit on latency; `None` where that was not searched for.
    pub under_limit: Option<UnderLimit>,
    /// How far goodput falls past the peak.
    pub decline: Option<Decline>,
    /// What limits it.
    pub bottleneck: Bottleneck,
    /// How its reads were served by the cache, and would have been by the policies simulated beside it.
    pub hit_ratios: Vec<HitRatio>,
    /// What somebody printed of the same workload, at their levels, and what the audit says of it.
    pub printed: Option<PublishedSweep>,
    /// What became of it when single resources were made slower; empty where nothing was.
    pub effects: Vec<Effect>,
    /// What held the sessions of each database at the levels that decide; empty where nothing was sampled.
    pub waits: Vec<Dominant>,
    /// How a run near the knee went second by second; `None` where its window has too few of them.
    pub time_series: Option<TimeSeries>,
}

impl WorkloadFindings {
    /// Whether goodput follows the generator when it is made slower; where that was not tried or is not clear, whether the verdict
    /// names it.
    pub fn generator_limited(&self) -> bool {
        match interventions::headroom(&self.effects).map(|of| of.shown) {
            Some(Shown::Undecided) | None => self.bottleneck.grade == Grade::Generator,
            Some(shown) => shown == Shown::Limit,
        }
    }
}

/// Concludes all that can be concluded from `results`.
pub fn findings(results: &Results) -> Findings {
    let of_run = checks::asked(|test| if let Test::Run(test) = test { Some(test(results)) } else { None });
    let workloads: Vec<WorkloadFindings> =
        results.workloads.iter().map(|workload| of_workload(results, workload, &of_run)).collect();
    let rows = || workloads.iter().flat_map(|workload| &workload.rows);
    Findings {
        checks: of_run,
        planned: rows().map(|row| row.planned).sum(),
        ran: rows().map(|row| row.runs).sum(),
        workloads,
    }
}

/// Of a level no more repetitions that were planned and did not run are told of: a file may say any number.
const NOT_RUN_MAX: u32 = 100;

/// Merges the runs of `workload` at `level`: all of them, or the one asked for; and asks every check of rows.
///
/// `below` are the rows of lower levels, ascending: checks compare with them.
pub fn row(results: &Results, workload: &str, level: u32, only: Option<u32>, below: &[Row]) -> Row {
    let at_level = results.trials_of(workload).filter(|trial| trial.level == level);
    let trials = at_level.filter(|trial| only.is_none_or(|repetition| trial.repetition == repetition));
    let trials: Vec<&Trial> = trials.collect();
    let ran: Vec<Run> = trials.iter().filter_map(|trial| Some((*trial, trial.numbers()?))).collect();
    let repetitions = results.repetitions.min(results.trials.len() as u32 + NOT_RUN_MAX);
    let planned = only.map_or(repetitions, |_| 1);
    let mut row = rows::merged(results, level, &trials, &ran, planned, below.last());
    if !ran.is_empty() {
        let case = OfRow { results, ran: &ran, row: &row, below };
        row.checks = checks::asked(|test| if let Test::Row(test) = test { Some(test(&case)) } else { None });
    }
    row
}

/// The level with the highest goodput of those of `workload` that count; `None` where there is none.
pub fn best_level(results: &Results, workload: &str) -> Option<u32> {
    let levels: BTreeSet<u32> = results.trials_of(workload).map(|trial| trial.level).collect();
    let rows: Vec<Row> = levels.into_iter().map(|level| row(results, workload, level, None, &[])).collect();
    rows::best(rows::usable(&rows)).map(|row| row.level)
}

fn of_workload(results: &Results, workload: &WorkloadPlan, of_run: &[Checked]) -> WorkloadFindings {
    let mut levels = workload.levels.clone().unwrap_or_else(|| results.levels.clone());
    levels.sort_unstable();
    levels.dedup();
    let mut rows: Vec<Row> = Vec::new();
    for level in levels {
        let row = row(results, &workload.name, level, None, &rows);
        rows.push(row);
    }
    let capacity = capacity::capacity(&rows);
    let knee = knee::knee(&rows, &capacity);
    let effects = interventions::effects(results, &workload.name);
    let headroom = interventions::headroom(&effects);
    let bottleneck = bottleneck::bottleneck(&rows, &capacity, knee.as_ref(), &results.resources, &effects);
    let case = OfWorkload { results, workload: &workload.name, rows: &rows, capacity: &capacity, headroom };
    let checks = checks::asked(|test| if let Test::Workload(test) = test { Some(test(&case)) } else { None });
    WorkloadFindings {
        name: workload.name.clone(),
        about: workload.about.clone(),
        pacing: pacing(results, &workload.name),
        time_series: steady::time_series::time_series(results, &workload.name, &rows, knee.as_ref()),
        decline: capacity::decline(&rows, &capacity),
        hit_ratios: hits::hit_ratios(results, &workload.name),
        printed: published_sweep(results, workload),
        waits: waiting::dominant(&rows, &bottleneck.levels),
        under_limit: rate_search::under_limit(results, &workload.name),
        trust: checks::trust(&rows, checks.iter().chain(of_run)),
        effects,
        checks,
        bottleneck,
        rows,
        capacity,
        knee,
    }
}

/// All that is published of a workload. `None` where nothing is.
fn published_sweep(results: &Results, workload: &WorkloadPlan) -> Option<PublishedSweep> {
    let name = workload.published.as_ref().unwrap_or(&workload.name);
    // The rows of the other workloads are evidence, too: the audit sees them all.
    audit(&results.published).sweeps.into_iter().find(|sweep| sweep.workload == *name)
}

/// `1 client`, `2 clients`.
pub fn count(n: u32, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// How the trials of `workload` were paced, where that needs saying.
fn pacing(results: &Results, workload: &str) -> Option<String> {
    let loads = results.trials_of(workload).filter_map(|trial| trial.load.as_ref());
    let told = loads.map(|load| load.pacing.as_str());
    told.filter(|pacing| !matches!(*pacing, "" | "closed")).map(str::to_owned).next()
}

#[cfg(test)]
mod tests;
