//! One line of the level table: what the runs of a workload at one level say together.
//!
//! Merges and derives; judging is the business of [`super::checks`].

use super::checks::Checked;
use super::figures::{self, Figured};
use super::hits::growth;
use super::outside::{self, Outside};
use super::population::{self, Population};
use super::waits::{self, Whereabouts};
use kv::proto::{Latency, LoadReport};
use lab_data::results::{Resource, ResourceKind, Results, Run, Trial};
use lab_data::sums;
use serde::Serialize;
use stats::{Estimate, mean, median};
use std::collections::BTreeMap;

/// A pool that is never busier than this is not used by the workload.
pub(super) const POOL_SEEN: f64 = 0.005;

/// A workload at one level, merged over its repetitions. What no run could tell is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Clients; of an open loop, its connections.
    pub level: u32,
    /// Requests per second that an open loop asked for; `None` of a closed one.
    pub offered_rps: Option<f64>,
    /// What was to be sent of it in the windows: with random arrivals a little more or less.
    pub due_rps: Option<f64>,
    /// Whether in some run that was more than went through: latency is then a queue's length.
    pub over_capacity: bool,
    /// Runs planned.
    pub planned: u32,
    /// Runs that delivered numbers.
    pub runs: u32,
    /// Why the others did not, each with its number of runs.
    pub failures: BTreeMap<String, u32>,
    /// Clients that were left without an answer, in the run with most of them.
    pub unanswered: u64,
    /// Why it enters neither capacity nor knee nor bottleneck; `None` of one that does.
    pub excluded: Option<Excluded>,
    /// Whether what rises is failures.
    pub fast_fail: Option<FastFail>,
    /// Successes per second of each run, in the order of the repetitions.
    pub goodput_rps_of_runs: Vec<f64>,
    /// What every run saw beside, in the same order.
    pub of_runs: Vec<OfRun>,
    /// Mean of the goodput over the runs.
    pub goodput_rps: Option<Estimate>,
    /// Requests per second, failed ones included, mean over the runs.
    pub attempts_rps: Option<f64>,
    /// Mean of all attempts of all runs.
    pub latency_us_mean: Option<f64>,
    /// What a client of a closed loop thought between two requests, mean of all attempts; 0 where none does.
    pub think_us_mean: Option<f64>,
    /// Mean of all attempts from the instant each was sent; `None` of a closed loop.
    pub service_us_mean: Option<f64>,
    /// How late the generator of an open loop sent, 99th percentile, median over the runs.
    pub send_lag_us_p99: Option<f64>,
    /// Median over the runs of the median.
    pub latency_us_p50: Option<f64>,
    /// Median over the runs of the 99th percentile.
    pub latency_us_p99: Option<f64>,
    /// Median over the runs of the 99.9th percentile.
    pub latency_us_p999: Option<f64>,
    /// Of the statements of several servers that write one store, those that were in each other's way, 0–1, mean over the runs.
    pub conflicts: Option<f64>,
    /// Failed attempts over attempts, 0–1, of all runs together; in an open loop what was left without an answer is among both.
    pub error_ratio: Option<f64>,
    /// Failed attempts by class, of all runs together.
    pub errors: BTreeMap<String, u64>,
    /// Of the run that is furthest off: how much more (or less) than the `level` clients, or in an open loop than its
    /// requests in flight, its own throughput and times account for, as a share of them. See [`LoadReport::little_residual`].
    pub little_residual: Option<f64>,
    /// How busy every resource was, in the order of the results.
    pub resources: Vec<Use>,
    /// Where the clients were; `None` where nobody could tell, and of an open loop.
    pub population: Option<Population>,
    /// Resource usage, in the order of [`figures::FIGURES`]; what was not read is not in it.
    pub figures: Vec<Figured>,
    /// Where the sessions of each database were; empty where nothing was sampled.
    pub waits: Vec<Whereabouts>,
    /// What the service shows from outside; `None` of one that counts itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside: Option<Outside>,
    /// What the checks of rows say, in the order of [`checks::CHECKS`]; empty without numbers.
    pub checks: Vec<Checked>,
}

/// One run of a row.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfRun {
    /// Which repetition it is of, from 0.
    pub repetition: u32,
    /// Requests, failed ones included.
    pub attempts: u64,
    /// Mean latency of all of them.
    pub latency_us_mean: f64,
    /// What a client thought between two of them, mean.
    pub think_us_mean: f64,
}

/// Why a row enters neither capacity nor knee nor bottleneck; of several reasons the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Excluded {
    /// No run delivered numbers.
    NoNumbers,
    /// Too many attempts failed, or none was made.
    Errors,
    /// Clients were left without an answer; of single runs that are compared.
    Unanswered,
    /// More was offered than went through.
    OverCapacity,
}

/// Refusals so cheap that they flatter throughput and mean latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FastFail {
    /// An error is answered in less than half the time of a success.
    Sooner {
        /// Mean time of an error.
        error_us: f64,
        /// Mean time of a success.
        success_us: f64,
    },
    /// Attempts rose from the level below while goodput fell.
    MoreAttempts,
}

/// Busy enough to be the limit: U ≥ 0.95.
pub const SATURATED: f64 = 0.95;
/// Of the attempts of a run, how many may fail.
pub const ERRORS_MAX: f64 = 0.001;

/// Why a row of these runs does not count.
fn excluded(ran: &[Run]) -> Option<Excluded> {
    if ran.is_empty() {
        return Some(Excluded::NoNumbers);
    }
    ran.iter().filter_map(|(trial, _)| excluded_run(trial)).min()
}

/// Why a single run does not count.
pub(super) fn excluded_run(trial: &Trial) -> Option<Excluded> {
    let Some(load) = trial.numbers() else { return Some(Excluded::NoNumbers) };
    let is_over = load.schedule.as_ref().is_some_and(|of| of.over_capacity);
    match () {
        () if load.attempts == 0 || load.error_ratio > ERRORS_MAX => Some(Excluded::Errors),
        () => is_over.then_some(Excluded::OverCapacity),
    }
}

/// How many clients of a closed loop were left without an answer.
pub(super) fn unanswered(load: &LoadReport) -> u64 {
    if load.is_open() { 0 } else { load.unanswered }
}

/// Whether the run that fails most fails fast.
fn fast_fail(ran: &[Run], below: Option<&Row>) -> Option<FastFail> {
    let (_, load) = ran.iter().max_by(|(_, a), (_, b)| a.error_ratio.total_cmp(&b.error_ratio))?;
    if load.error_ratio <= ERRORS_MAX {
        return None;
    }
    let spent_us = |of: &Latency| of.us_mean * of.count as f64;
    let answered: u64 = load.operations.iter().map(|of| of.latency.count).sum();
    let answered_us: f64 = load.operations.iter().map(|of| spent_us(&of.latency)).sum();
    let failed = load.latency.count.saturating_sub(answered);
    let success_us = answered_us / answered as f64;
    let error_us = (spent_us(&load.latency) - answered_us) / failed as f64;
    if load.error_ratio > 0.01 && answered > 0 && failed > 0 && error_us < success_us / 2.0 {
        return Some(FastFail::Sooner { error_us, success_us });
    }
    if answered > 0 && failed > 0 && error_us > success_us {
        return None;
    }
    let attempts = mean(ran.iter().map(|(_, load)| rate(load)))?;
    let goodput = mean(ran.iter().map(|(_, load)| load.goodput_rps))?;
    let apart = attempts > below?.attempts_rps? && goodput < below?.goodput_rps?.mean;
    apart.then_some(FastFail::MoreAttempts)
}

/// How busy a resource was at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Use {
    /// Its name.
    pub name: String,
    /// What may be concluded from it.
    pub kind: ResourceKind,
    /// How many requests it works on at once.
    pub servers: f64,
    /// Of a resource that several parts share, the one that has nearly all of its use.
    pub mostly: Option<String>,
    /// Busy share, 0–1, mean over the runs.
    pub utilization: Option<f64>,
    /// Of the time that it was busy, the share in which its own threads computed or waited for a core, mean over the runs.
    pub computing: Option<f64>,
    /// Service demand: its busy time per attempt, D = U·m / X, mean over the runs.
    /// Source: the utilization law, Denning & Buzen, The Operational Analysis of Queueing Network Models (1978).
    pub demand_us: Option<f64>,
    /// Attempts per batch, mean over the runs; `None` of a resource whose batches are not counted.
    pub per_batch: Option<f64>,
}

/// The rows that enter capacity, knee and bottleneck.
pub(super) fn usable(rows: &[Row]) -> impl DoubleEndedIterator<Item = &Row> {
    rows.iter().filter(|row| row.usable())
}

/// The row with the most goodput, of several the last.
pub(super) fn best<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.max_by(|a, b| a.rps().total_cmp(&b.rps()))
}

impl Row {
    /// Whether the row enters capacity, knee and bottleneck.
    pub fn usable(&self) -> bool {
        self.excluded.is_none()
    }

    /// Whether it ran, and nothing succeeded.
    pub fn is_silent(&self) -> bool {
        self.runs > 0 && self.rps() == 0.0
    }

    /// Mean goodput; 0 without numbers.
    pub(super) fn rps(&self) -> f64 {
        self.goodput_rps.map_or(0.0, |rps| rps.mean)
    }

    /// From one request of a client to its next: latency and think time, R + Z.
    pub fn cycle_us(&self) -> Option<f64> {
        Some(self.latency_us_mean? + self.think_us_mean?)
    }

    /// Whether resource `i` has anything to say here: its runs could tell how busy it was, and a pool was not idle.
    pub fn uses(&self, i: usize) -> bool {
        self.resources.get(i).is_some_and(|of| {
            of.utilization.is_some_and(|share| of.kind != ResourceKind::Pool || share >= POOL_SEEN)
        })
    }
}

/// Merges `trials` of a workload at `level`, of which so many were `planned` and those in `ran` have numbers. Checks are still to be
/// asked.
///
/// `below` is the row of the next lower level.
pub(super) fn merged(
    results: &Results,
    level: u32,
    trials: &[&Trial],
    ran: &[Run],
    planned: u32,
    below: Option<&Row>,
) -> Row {
    let planned = planned.max(trials.len() as u32);
    let loads = || ran.iter().map(|(_, load)| *load);
    let schedules = || loads().filter_map(|load| load.schedule.as_ref());
    let latencies = || loads().map(|load| &load.latency).filter(|latency| latency.count > 0);
    let goodput: Vec<f64> = loads().map(|load| load.goodput_rps).collect();
    let made: u64 = loads().map(|load| load.attempts).sum();
    let succeeded: u64 = loads().map(|load| load.successes).sum();
    let left: u64 = loads().filter(|load| load.is_open()).map(|load| load.unanswered).sum();
    let (asked, failed) = (made + left, made.saturating_sub(succeeded) + left);
    let thought_secs: f64 = loads().map(|load| load.think_secs).sum();
    Row {
        level,
        offered_rps: mean(schedules().map(|of| of.offered_rps)),
        due_rps: mean(loads().filter_map(|load| Some(load.schedule.as_ref()?.due as f64 / load.window_secs))),
        over_capacity: schedules().any(|of| of.over_capacity),
        planned,
        runs: ran.len() as u32,
        failures: failures(trials, planned),
        unanswered: loads().map(unanswered).max().unwrap_or(0),
        excluded: excluded(ran),
        fast_fail: fast_fail(ran, below),
        of_runs: ran.iter().map(of_run).collect(),
        goodput_rps: Estimate::of(&goodput),
        goodput_rps_of_runs: goodput,
        attempts_rps: mean(loads().map(rate)),
        latency_us_mean: attempts_mean_us(loads().map(|load| load.latency)),
        think_us_mean: (made > 0).then(|| thought_secs / made as f64 * 1e6),
        service_us_mean: attempts_mean_us(loads().filter_map(|load| load.service)),
        send_lag_us_p99: median(schedules().map(|of| of.send_lag.us_p99)),
        latency_us_p50: median(latencies().map(|latency| latency.us_p50)),
        latency_us_p99: median(latencies().map(|latency| latency.us_p99)),
        latency_us_p999: median(latencies().map(|latency| latency.us_p999)),
        conflicts: mean(ran.iter().filter_map(|(trial, _)| conflicts(trial))),
        error_ratio: (asked > 0).then(|| failed as f64 / asked as f64),
        errors: sums(loads().flat_map(|load| load.errors.clone()).filter(|(_, count)| *count > 0)),
        little_residual: ran
            .iter()
            .filter_map(|(_, load)| load.little_residual())
            .max_by(|a, b| a.abs().total_cmp(&b.abs())),
        resources: results.resources.iter().map(|resource| of_resource(resource, ran)).collect(),
        population: population::population(results, ran).filter(|_| schedules().next().is_none()),
        figures: figures::figures(ran),
        waits: waits::whereabouts(&ran.iter().map(|(trial, _)| *trial).collect::<Vec<_>>()),
        outside: outside::outside(ran),
        checks: Vec::new(),
    }
}

fn conflicts(trial: &Trial) -> Option<f64> {
    let all = growth(trial, "stats.weir_store_conditional_writes_total").filter(|all| *all > 0.0)?;
    Some(growth(trial, "stats.weir_store_conflicts_total")? / all)
}

/// Mean latency of all attempts of all runs, so that X · R = N holds for the row as it does for its runs. A mean or a
/// median over runs would not: runs of unequal throughput count unequally.
fn attempts_mean_us(of_runs: impl Iterator<Item = Latency>) -> Option<f64> {
    let add = |(count, us), of: Latency| (count + of.count, us + of.us_mean * of.count as f64);
    let (attempts, total_us) = of_runs.fold((0, 0.0), add);
    (attempts > 0).then(|| total_us / attempts as f64)
}

fn of_run((trial, load): &Run) -> OfRun {
    OfRun {
        repetition: trial.repetition,
        attempts: load.attempts,
        latency_us_mean: load.latency.us_mean,
        think_us_mean: load.think_secs / load.attempts.max(1) as f64 * 1e6,
    }
}

/// Attempts per second; not finite where there was no window.
fn rate(load: &LoadReport) -> f64 {
    load.attempts as f64 / load.window_secs
}

/// Among the failures: a trial that was planned only.
pub const DID_NOT_RUN: &str = "did not run";

fn failures(trials: &[&Trial], planned: u32) -> BTreeMap<String, u32> {
    let failed = trials.iter().filter(|trial| trial.numbers().is_none());
    let why = failed.map(|trial| trial.failure.clone().unwrap_or_else(|| "no reason given".to_owned()));
    let unrun = planned - trials.len() as u32;
    let unrun = (unrun > 0).then(|| (DID_NOT_RUN.to_owned(), unrun));
    sums(why.map(|why| (why, 1)).chain(unrun))
}

/// Whose processor time a shared resource's use is, but for a tenth at most.
fn mostly(resource: &Resource, ran: &[Run]) -> Option<String> {
    const NEARLY_ALL: f64 = 0.9;
    let grown = |name: &String| ran.iter().map(|(trial, _)| trial.growth(name)).sum::<Option<f64>>();
    let secs: Vec<f64> = resource.busy.iter().map(grown).collect::<Option<_>>()?;
    let all: f64 = secs.iter().sum();
    let nearly_all = secs.iter().position(|secs| *secs >= NEARLY_ALL * all && all > 0.0)?;
    let part = resource.busy[nearly_all].strip_suffix(".cpu_secs").filter(|_| secs.len() > 1);
    part.map(str::to_owned)
}

/// Of the time that `resource` was busy, the share in which its threads computed or waited for a core.
fn computing(resource: &Resource, trial: &Trial) -> Option<f64> {
    let secs = resource.computing.iter().map(|name| trial.per_sec(name)).sum::<Option<f64>>()?;
    let share = secs / (trial.utilization(resource)? * trial.servers(resource));
    (share.is_finite() && !resource.computing.is_empty()).then_some(share)
}

/// Where batches are counted: what the name of a resource's busy time holds, and what that of their number holds in its place.
const BATCHES: &[(&str, &str)] = &[
    ("stats.weir_store_busy_seconds_total", "stats.weir_store_duration_seconds_count"),
    ("stats.weir_flush_busy_seconds_total", "stats.weir_flushes_total"),
    (".wal_sync_secs", ".wal_syncs"),
];

/// How many batches a resource did per second; `None` of one that takes single requests.
pub(super) fn batches(of: &Resource, trial: &Trial) -> Option<f64> {
    let counts = of.busy.iter().filter_map(|busy| {
        let (from, to) = BATCHES.iter().find(|(from, _)| busy.contains(from))?;
        trial.per_sec(&busy.replacen(from, to, 1)).filter(|batches| *batches > 0.0)
    });
    counts.reduce(|sum, batches| sum + batches)
}

/// Means are over the runs that could be read, so that one unreadable run does not hide the others.
fn of_resource(resource: &Resource, ran: &[Run]) -> Use {
    let seen: Vec<(f64, f64, f64)> = ran
        .iter()
        .filter_map(|(trial, load)| Some((trial.utilization(resource)?, rate(load), trial.servers(resource))))
        .filter(|(utilization, ..)| utilization.is_finite())
        .collect();
    Use {
        name: resource.name.clone(),
        kind: resource.kind,
        servers: seen.first().map_or(resource.servers, |(.., servers)| *servers),
        mostly: mostly(resource, ran),
        utilization: mean(seen.iter().map(|(utilization, ..)| utilization)),
        computing: mean(ran.iter().filter_map(|(trial, _)| computing(resource, trial))),
        demand_us: mean(seen.iter().map(|(utilization, x, servers)| utilization * servers / x * 1e6)),
        per_batch: mean(ran.iter().filter_map(|(trial, load)| Some(rate(load) / batches(resource, trial)?))),
    }
}
