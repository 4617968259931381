//! Several sets of results side by side: figures, ratios with intervals, and the failed checks that limit their use.
//!
//! The first side is what the others are compared with. Everything that both sides planned is shown: what a failed check makes
//! unusable is marked. Method and limits are those of docs/method.md, *Comparing*.

mod capacity;
mod circumstances;
mod verdicts;
mod measures;

pub use capacity::CapacityRatio;
pub use circumstances::Difference;
pub use measures::{Kind, MEASURES, Measure};
pub use stats::ratio::{Method, Quotient};
pub use verdicts::{Gate, NotCompared, Standing, Subject, Verdict, gate};

use super::rows::{Excluded, Row, excluded_run, unanswered};
use super::{Findings, WorkloadFindings, findings};
use kv::Error;
use kv::proto::OperationReport;
use lab_data::results::{Results, Trial};
use lab_data::{distinct, ensure};
use serde::Serialize;
use stats::{Estimate, median};
use std::collections::BTreeSet;

/// Several sets of results side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Whose results they are. The others are compared with the first.
    pub sides: Vec<Side>,
    /// Whether one run measured all of them in turns, repetition by repetition.
    pub interleaved: bool,
    /// Whether that run ended when it had seen enough, so that its intervals hold at any number of repetitions.
    pub sequential: bool,
    /// What else differs between the sides, as far as it is recorded.
    pub circumstances: Vec<Difference>,
    /// The workloads that at least two sides have at some level, in the order of the first side that has them.
    pub workloads: Vec<ComparedWorkload>,
    /// How many ratios of figures were tested for a difference.
    pub tested: u32,
    /// Targets of the same run that left no results.
    pub absent: Vec<String>,
}

/// Whose results they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Its target's name, or `A` and `B` where names do not tell the sides apart.
    pub name: String,
    /// Its experiment: `quick`.
    pub experiment: String,
    /// When its run started.
    pub started: String,
    /// Version of weir that measured.
    pub weir_version: String,
    /// When it acknowledges a write, in the experiment's words; `None` where they do not say.
    pub durability: Option<String>,
    /// The parts whose processor time is counted: all but the generator.
    pub parts: Vec<String>,
}

/// One workload on all sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedWorkload {
    /// Its name.
    pub name: String,
    /// One sentence: what it asks of the target.
    pub about: String,
    /// Whether it writes, so that durability matters.
    pub writes: bool,
    /// The ratios of capacities, by side; `None` of the first, and where a side does not have the workload.
    pub capacities: Vec<Option<CapacityRatio>>,
    /// The levels that at least two sides planned, ascending.
    pub levels: Vec<ComparedLevel>,
}

/// One level of a workload on all sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedLevel {
    /// Clients.
    pub clients: u32,
    /// By side; `None` where it did not plan the level.
    pub sides: Vec<Option<SideOfLevel>>,
}

/// What one side has at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideOfLevel {
    /// What was found of its runs.
    pub row: Row,
    /// Each run that was begun: its repetition, and why it does not count.
    #[serde(skip)]
    pub runs: Vec<(u32, Option<Excluded>)>,
    /// Whether the generator was the limit of the workload on this side.
    pub generator_limited: bool,
    /// Its figures, in the order of [`MEASURES`].
    #[serde(serialize_with = "by_name")]
    pub figures: Vec<Option<Figure>>,
    /// Their ratios to those of the first side, in the order of [`MEASURES`]; `None` on the first side, and where a figure is
    /// missing on either.
    #[serde(serialize_with = "by_name")]
    pub ratios: Vec<Option<Ratio>>,
}

/// Writes each under the name of its measure.
fn by_name<T: Serialize, S: serde::Serializer>(of: &[Option<T>], into: S) -> Result<S::Ok, S::Error> {
    into.collect_map(MEASURES.iter().map(|measure| measure.name).zip(of))
}

/// A figure over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Mean over the runs, of latencies the median.
    pub value: f64,
    /// Mean and interval; `None` of a median.
    pub estimate: Option<Estimate>,
    /// Each run in which it was read: repetition and value.
    pub of_runs: Vec<(u32, f64)>,
}

/// A ratio and what follows from it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The other's figure over the first's.
    pub quotient: Option<Quotient>,
    /// Whether there is a difference.
    pub conclusion: Conclusion,
    /// Why the figures are not comparable.
    pub obstacle: Option<Obstacle>,
    /// On which side of the true ratio it lies, if the generator was the limit on one side only.
    pub bound: Option<Bound>,
}

/// Why figures are not comparable. The first two also mean that there is no ratio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// A figure is zero.
    Zero {
        /// In this repetition, counted from 1.
        run: u32,
        /// On the side of this name.
        side: String,
    },
    /// No level is valid on both sides, or no repetition of it.
    NothingInCommon,
    /// A row does not count: it failed a check.
    Invalid,
    /// The load generator was the limit.
    GeneratorLimited,
}

/// What a ratio says at 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// The first side has more.
    FirstMore,
    /// The other side has more.
    OtherMore,
    /// The interval contains 1.
    NotShown,
    /// There are too few runs for an interval.
    NoInterval,
    /// There is an obstacle.
    NotComparable,
}

/// Where the true ratio lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// It is at least this.
    AtLeast,
    /// It is at most this.
    AtMost,
}

/// How improbable it is that an interval misses what it is of.
const ALPHA: f64 = 0.05;

/// Compares `all` with the first of them. The error says in one line why that is not possible.
pub fn compare(all: &[&Results]) -> Result<Comparison, Error> {
    ensure(all.len() > 1, "there is nothing to compare with", "name a second results directory")?;
    let is_twice = (1..all.len()).any(|i| all[..i].contains(&all[i]));
    ensure(!is_twice, "these are the same results twice", "name those of another target or run")?;
    let sides = all.iter().zip(names(all));
    let inputs: Vec<Input> =
        sides.map(|(results, name)| Input { name, results, found: findings(results) }).collect();
    let planned = all.iter().flat_map(|results| &results.workloads).map(|plan| plan.name.as_str());
    let workloads = distinct(planned).into_iter().map(|name| workload(&inputs, name));
    let mut workloads: Vec<ComparedWorkload> = workloads.filter(|of| !of.levels.is_empty()).collect();
    let hint = "compare runs that measured at least one workload at the same number of clients";
    ensure(!workloads.is_empty(), "the results have no workload and level in common", hint)?;
    capacity::correct(workloads.iter_mut().flat_map(|workload| workload.capacities.iter_mut().flatten()));
    let common: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let circumstances = circumstances::differences(all, &common);
    let sides = workloads.iter().flat_map(|workload| &workload.levels).flat_map(|level| &level.sides);
    let ratios = sides.flatten().flat_map(|side| side.ratios.iter().flatten());
    let is_tested = |of: &&Ratio| of.obstacle.is_none() && of.conclusion != Conclusion::NoInterval;
    Ok(Comparison {
        sides: inputs.iter().map(Input::side).collect(),
        interleaved: all[1..].iter().all(|other| are_interleaved(all[0], other)),
        sequential: all.iter().any(|of| of.sequential),
        circumstances,
        tested: ratios.filter(is_tested).count() as u32,
        workloads,
        absent: Vec::new(),
    })
}

/// Whether both are targets of one run, which measured them in turns. A target has no turns with itself.
fn are_interleaved(a: &Results, b: &Results) -> bool {
    let (Some(of_a), Some(of_b)) = (&a.measured, &b.measured) else { return false };
    of_a.among == of_b.among && of_a.target != of_b.target && (&a.started, &a.name) == (&b.started, &b.name)
}

/// The targets' names where they tell the sides apart, letters elsewhere.
fn names(all: &[&Results]) -> Vec<String> {
    let targets = all.iter().filter_map(|results| Some(results.measured.as_ref()?.target.clone()));
    let targets = distinct(targets.filter(|name| !name.is_empty()));
    if targets.len() == all.len() {
        return targets;
    }
    // More than two come from one run, and have names.
    ('A'..='Z').cycle().take(all.len()).map(String::from).collect()
}

/// One side while it is compared.
struct Input<'a> {
    name: String,
    results: &'a Results,
    found: Findings,
}

impl Input<'_> {
    fn workload(&self, name: &str) -> Option<&WorkloadFindings> {
        self.found.workloads.iter().find(|workload| workload.name == name)
    }

    fn side(&self) -> Side {
        let (results, measured) = (self.results, self.results.measured.as_ref());
        Side {
            name: self.name.clone(),
            experiment: results.name.clone(),
            started: results.started.clone(),
            weir_version: results.weir_version.clone(),
            durability: measured.map(|of| of.durability.trim().to_owned()).filter(|text| !text.is_empty()),
            parts: measures::parts(results),
        }
    }
}

fn workload(inputs: &[Input], name: &str) -> ComparedWorkload {
    let found = || inputs.iter().filter_map(|input| input.workload(name));
    let clients: BTreeSet<u32> = found().flat_map(|found| &found.rows).map(|row| row.level).collect();
    let levels = clients.into_iter().map(|clients| level(inputs, name, clients));
    let runs = inputs.iter().flat_map(|input| input.results.runs_of(name));
    let is_write = |of: &OperationReport| matches!(&*of.operation, "put" | "delete") && of.attempts > 0;
    let capacity = |i| if i == 0 { None } else { capacity::ratio([&inputs[0], &inputs[i]], name) };
    ComparedWorkload {
        name: name.to_owned(),
        about: found().map(|found| found.about.clone()).find(|about| !about.is_empty()).unwrap_or_default(),
        writes: runs.flat_map(|(_, load)| &load.operations).any(is_write),
        capacities: (0..inputs.len()).map(capacity).collect(),
        levels: levels.filter(|level| level.sides.iter().flatten().count() > 1).collect(),
    }
}

fn level(inputs: &[Input], workload: &str, clients: u32) -> ComparedLevel {
    let mut sides: Vec<Option<SideOfLevel>> =
        inputs.iter().map(|input| side_of_level(input, workload, clients)).collect();
    if let Some((Some(first), others)) = sides.split_first_mut() {
        for (other, input) in others.iter_mut().zip(&inputs[1..]) {
            let Some(other) = other else { continue };
            other.ratios = ratios([first, other], [&inputs[0], input]);
        }
    }
    ComparedLevel { clients, sides }
}

fn side_of_level(input: &Input, workload: &str, clients: u32) -> Option<SideOfLevel> {
    let found = input.workload(workload)?;
    let figure = |measure: &Measure| {
        let runs = input.results.runs_of(workload).filter(|(trial, _)| trial.level == clients);
        let of_runs: Vec<(u32, f64)> = runs
            .filter_map(|run| Some((run.0.repetition, (measure.read)(input.results, run)?)))
            .filter(|(_, value)| value.is_finite())
            .collect();
        let values: Vec<f64> = of_runs.iter().map(|(_, value)| *value).collect();
        let estimate = Estimate::of(&values).filter(|_| measure.kind != Kind::Latency);
        Some(Figure { value: estimate.map(|of| of.mean).or_else(|| median(&values))?, estimate, of_runs })
    };
    let begun = input.results.trials_of(workload).filter(|trial| trial.level == clients);
    // The figures are of the clients that were answered: a side that leaves others out may look faster.
    let excluded = |trial: &Trial| {
        let left = trial.numbers().is_some_and(|load| unanswered(load) > 0);
        excluded_run(trial).or_else(|| left.then_some(Excluded::Unanswered))
    };
    Some(SideOfLevel {
        row: found.rows.iter().find(|row| row.level == clients)?.clone(),
        runs: begun.map(|trial| (trial.repetition, excluded(trial))).collect(),
        generator_limited: found.generator_limited(),
        figures: MEASURES.iter().map(figure).collect(),
        ratios: vec![None; MEASURES.len()],
    })
}

/// The ratios of the figures at one level of two sides.
fn ratios(at: [&SideOfLevel; 2], sides: [&Input; 2]) -> Vec<Option<Ratio>> {
    let is_invalid = at.iter().any(|at| at.row.excluded.is_some());
    let ratio = |((a, b), measure): ((&Option<Figure>, &Option<Figure>), &Measure)| {
        let quotient = over_runs([&a.as_ref()?.of_runs, &b.as_ref()?.of_runs], sides, measure.resolution());
        Some(ratio(quotient, measure.kind, at.map(|at| at.generator_limited), is_invalid))
    };
    at[0].figures.iter().zip(&at[1].figures).zip(MEASURES).map(ratio).collect()
}

/// What follows from a quotient, if the generator was the limit on the sides that are `limited`.
fn ratio(quotient: Result<Quotient, Obstacle>, kind: Kind, limited: [bool; 2], is_invalid: bool) -> Ratio {
    let is_limited = limited.contains(&true) && kind != Kind::ProcessorTime;
    let obstacle = match &quotient {
        Err(why) => Some(why.clone()),
        Ok(_) if is_invalid => Some(Obstacle::Invalid),
        Ok(_) => is_limited.then_some(Obstacle::GeneratorLimited),
    };
    let bound = match (&obstacle, kind, limited) {
        (Some(Obstacle::GeneratorLimited), Kind::Rate, [false, true]) => Some(Bound::AtLeast),
        (Some(Obstacle::GeneratorLimited), Kind::Rate, [true, false]) => Some(Bound::AtMost),
        _ => None,
    };
    let quotient = quotient.ok();
    let conclusion = match quotient.and_then(|of| of.interval) {
        _ if obstacle.is_some() => Conclusion::NotComparable,
        None => Conclusion::NoInterval,
        Some((low, _)) if low > 1.0 => Conclusion::OtherMore,
        Some((_, high)) if high < 1.0 => Conclusion::FirstMore,
        Some(_) => Conclusion::NotShown,
    };
    Ratio { quotient, conclusion, obstacle, bound }
}

/// The quotient of two sides' runs, each with its repetition: paired if they were measured in turns.
fn over_runs(runs: [&[(u32, f64)]; 2], sides: [&Input; 2], resolution: f64) -> Result<Quotient, Obstacle> {
    for (runs, side) in runs.into_iter().zip(sides) {
        if let Some((repetition, _)) = runs.iter().find(|(_, value)| *value <= 0.0) {
            return Err(Obstacle::Zero { run: repetition + 1, side: side.name.clone() });
        }
    }
    let [first, other] = sides.map(|side| side.results);
    let method = method(are_interleaved(first, other), first.sequential || other.sequential);
    quotient(runs, method, resolution, ALPHA).ok_or(Obstacle::NothingInCommon)
}

/// How runs are compared.
fn method(interleaved: bool, sequential: bool) -> Method {
    match (interleaved, sequential) {
        (false, _) => Method::Welch,
        (true, false) => Method::Paired,
        (true, true) => Method::Sequential,
    }
}

/// The quotient of the runs of two sides, each with its repetition.
fn quotient(runs: [&[(u32, f64)]; 2], method: Method, resolution: f64, alpha: f64) -> Option<Quotient> {
    let [first, other] = runs;
    if method == Method::Welch {
        let values = runs.map(|runs| runs.iter().map(|(_, value)| *value).collect::<Vec<f64>>());
        return stats::ratio::welch(&values[0], &values[1], resolution, alpha);
    }
    let partner = |run: u32| other.iter().find(|(of, _)| *of == run).map(|(_, value)| *value);
    let pairs = first.iter().filter_map(|(run, value)| Some((*value, partner(*run)?)));
    stats::ratio::paired(&pairs.collect::<Vec<_>>(), method, resolution, alpha)
}

#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(test), allow(dead_code, missing_docs, unused_imports))]
pub mod tests;
