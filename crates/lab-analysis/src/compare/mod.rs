//! Several sets of results side by side: figures, ratios with intervals, and the failed checks that limit their use.
//!
//! The first side is what the others are compared with. Everything that both sides planned is shown: what a failed check makes
//! unusable is marked. Method and limits are those of docs/method.md, *Comparing*.

mod capacity;
mod circumstances;
mod measures;

pub use capacity::CapacityRatio;
pub use circumstances::Difference;
pub use measures::{Kind, MEASURES, Measure};
pub use stats::ratio::{Method, Quotient};

use super::checks::Checked;
use super::rows::Row;
use super::{Findings, WorkloadFindings, findings};
use kv::Error;
use kv::proto::LoadReport;
use lab_data::results::{Results, Run};
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
    /// Which of an experiment's targets it is.
    pub target: Option<String>,
    /// The title of its experiment.
    pub title: String,
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
    /// Levels that only one side planned, each with that side's name.
    pub alone: Vec<(u32, String)>,
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
    /// Whether the generator was the limit of the workload on this side.
    pub generator_limited: bool,
    /// Its figures, in the order of [`MEASURES`].
    #[serde(serialize_with = "by_name")]
    pub figures: Vec<Option<Figure>>,
    /// Their ratios to those of the first side, in the order of [`MEASURES`]; `None` on the first side, where a figure is
    /// missing on either, and where no ratio is formed.
    #[serde(serialize_with = "by_name")]
    pub ratios: Vec<Option<Ratio>>,
}

impl SideOfLevel {
    /// The checks that its row failed.
    pub fn failed(&self) -> impl Iterator<Item = &Checked> {
        self.row.checks.iter().filter(|checked| checked.failed())
    }
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
    /// Why there is no quotient.
    pub lacking: Option<Lacking>,
    /// Whether there is a difference.
    pub conclusion: Conclusion,
    /// On which side of the true ratio it lies, if the generator was the limit on one side only.
    pub bound: Option<Bound>,
    /// The checks that failed on either side: their ids, and the side's name.
    pub failed: Vec<(&'static str, String)>,
}

/// Why there is no ratio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lacking {
    /// A figure is zero.
    Zero {
        /// In this repetition, counted from 1.
        run: u32,
        /// On the side of this name.
        side: String,
    },
    /// The sides have no repetition in common.
    NoCommonRun,
    /// No level is valid on both sides.
    NoCommonLevel,
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
    /// There is no ratio, or a failed check makes it unusable.
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

/// Compares `all` with the first of them. The error says in one line why that is not possible.
pub fn compare(all: &[&Results]) -> Result<Comparison, Error> {
    ensure(all.len() > 1, "there is nothing to compare with", "name a second results directory")?;
    let is_twice = (1..all.len()).any(|i| all[..i].contains(&all[i]));
    ensure(!is_twice, "these are the same results twice", "name those of another target or run")?;
    let inputs: Vec<Input> = (all.iter().zip(names(all)))
        .map(|(results, name)| Input {
            name,
            results,
            found: findings(results),
            interleaved: are_interleaved(all[0], results),
        })
        .collect();
    let planned = inputs.iter().flat_map(|input| &input.found.workloads);
    let planned = distinct(planned.map(|workload| workload.name.as_str()));
    let mut workloads: Vec<ComparedWorkload> =
        planned.iter().map(|name| workload(&inputs, name)).filter(|of| !of.levels.is_empty()).collect();
    let hint = "compare runs that measured at least one workload at the same number of clients";
    ensure(!workloads.is_empty(), "the results have no workload and level in common", hint)?;
    capacity::correct(workloads.iter_mut().flat_map(|workload| workload.capacities.iter_mut().flatten()));
    let common: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    let circumstances = circumstances::differences(all, &common);
    let is_tested =
        |of: &&Ratio| !matches!(of.conclusion, Conclusion::NoInterval | Conclusion::NotComparable);
    Ok(Comparison {
        sides: inputs.iter().map(Input::side).collect(),
        interleaved: inputs[1..].iter().all(|input| input.interleaved),
        circumstances,
        tested: ratios(&workloads).filter(is_tested).count() as u32,
        workloads,
        absent: Vec::new(),
    })
}

/// All ratios of figures.
pub fn ratios(workloads: &[ComparedWorkload]) -> impl Iterator<Item = &Ratio> {
    (workloads.iter())
        .flat_map(|workload| &workload.levels)
        .flat_map(|level| level.sides.iter().flatten())
        .flat_map(|side| side.ratios.iter().flatten())
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
    /// Whether it was measured in turns with the first side.
    interleaved: bool,
}

impl Input<'_> {
    fn workload(&self, name: &str) -> Option<&WorkloadFindings> {
        self.found.workloads.iter().find(|workload| workload.name == name)
    }

    /// The runs of a workload that delivered numbers.
    fn loads(&self, workload: &str) -> impl Iterator<Item = Run<'_>> {
        let trials = self.results.trials.iter().filter(move |trial| trial.workload == workload);
        trials.filter_map(|trial| Some((trial, trial.numbers()?)))
    }

    fn side(&self) -> Side {
        let (results, measured) = (self.results, self.results.measured.as_ref());
        Side {
            name: self.name.clone(),
            experiment: results.name.clone(),
            target: measured.map(|of| of.target.clone()),
            title: results.title.clone(),
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
    let (levels, alone): (Vec<_>, Vec<_>) =
        levels.partition(|level| level.sides.iter().flatten().count() > 1);
    let only = |level: ComparedLevel| {
        let side = level.sides.iter().position(Option::is_some)?;
        Some((level.clients, inputs[side].name.clone()))
    };
    let capacity = |i| if i == 0 { None } else { capacity::ratio([&inputs[0], &inputs[i]], name) };
    ComparedWorkload {
        name: name.to_owned(),
        about: found().map(|found| found.about.clone()).find(|about| !about.is_empty()).unwrap_or_default(),
        writes: inputs.iter().flat_map(|input| input.loads(name)).any(|(_, load)| writes(load)),
        capacities: (0..inputs.len()).map(capacity).collect(),
        levels,
        alone: alone.into_iter().filter_map(only).collect(),
    }
}

/// Whether requests of this run changed anything.
fn writes(load: &LoadReport) -> bool {
    let is_write = |name: &str| matches!(name, "put" | "delete");
    load.operations.iter().any(|of| is_write(&of.operation) && of.attempts > 0)
        || load.mix.iter().any(|(name, share)| is_write(name) && *share > 0.0)
}

fn level(inputs: &[Input], workload: &str, clients: u32) -> ComparedLevel {
    let mut sides: Vec<Option<SideOfLevel>> =
        inputs.iter().map(|input| side_of_level(input, workload, clients)).collect();
    if let Some((Some(first), others)) = sides.split_first_mut() {
        for (other, input) in others.iter_mut().zip(&inputs[1..]) {
            let Some(other) = other else { continue };
            let ratio = |i| ratio_of_figures(i, [first, other], [&inputs[0], input]);
            other.ratios = (0..MEASURES.len()).map(ratio).collect();
        }
    }
    ComparedLevel { clients, sides }
}

fn side_of_level(input: &Input, workload: &str, clients: u32) -> Option<SideOfLevel> {
    let found = input.workload(workload)?;
    let figure = |measure: &Measure| {
        let runs = input.loads(workload).filter(|(trial, _)| trial.level == clients);
        let of_runs: Vec<(u32, f64)> = runs
            .filter_map(|run| Some((run.0.repetition, (measure.read)(input.results, run)?)))
            .filter(|(_, value)| value.is_finite())
            .collect();
        let values: Vec<f64> = of_runs.iter().map(|(_, value)| *value).collect();
        let estimate = Estimate::of(&values).filter(|_| measure.kind != Kind::Latency);
        Some(Figure { value: estimate.map(|of| of.mean).or_else(|| median(&values))?, estimate, of_runs })
    };
    Some(SideOfLevel {
        row: found.rows.iter().find(|row| row.level == clients)?.clone(),
        generator_limited: found.generator_limited(),
        figures: MEASURES.iter().map(figure).collect(),
        ratios: vec![None; MEASURES.len()],
    })
}

/// The ratio of one figure at one level of two sides.
fn ratio_of_figures(measure: usize, at: [&SideOfLevel; 2], sides: [&Input; 2]) -> Option<Ratio> {
    let Measure { compared: true, kind, .. } = MEASURES[measure] else { return None };
    let [a, b] = at.map(|at| at.figures[measure].as_ref());
    let quotient = over_runs([&a?.of_runs, &b?.of_runs], sides, kind.resolution());
    let failed = (at.into_iter().zip(sides))
        .flat_map(|(at, side)| at.failed().map(|checked| (checked.id, side.name.clone())));
    let invalid = at.iter().any(|at| at.row.excluded.is_some());
    Some(Ratio {
        failed: failed.collect(),
        ..ratio(quotient, kind, at.map(|at| at.generator_limited), invalid)
    })
}

/// What follows from a quotient, if the generator was the limit on the sides that are `limited`.
fn ratio(quotient: Result<Quotient, Lacking>, kind: Kind, limited: [bool; 2], invalid: bool) -> Ratio {
    let unusable = invalid || quotient.is_err();
    let bound = match (kind, limited) {
        (Kind::Rate, [false, true]) if !unusable => Some(Bound::AtLeast),
        (Kind::Rate, [true, false]) if !unusable => Some(Bound::AtMost),
        _ => None,
    };
    let has_limit = limited.contains(&true) && kind != Kind::ProcessorTime;
    let conclusion = match quotient.as_ref().ok().and_then(|of| of.interval) {
        _ if unusable || has_limit => Conclusion::NotComparable,
        None => Conclusion::NoInterval,
        Some((low, _)) if low > 1.0 => Conclusion::OtherMore,
        Some((_, high)) if high < 1.0 => Conclusion::FirstMore,
        Some(_) => Conclusion::NotShown,
    };
    Ratio {
        lacking: quotient.as_ref().err().cloned(),
        quotient: quotient.ok(),
        conclusion,
        bound,
        failed: Vec::new(),
    }
}

/// The quotient of two sides' runs, each with its repetition: paired if they were measured in turns.
fn over_runs(runs: [&[(u32, f64)]; 2], sides: [&Input; 2], resolution: f64) -> Result<Quotient, Lacking> {
    let [first, other] = runs;
    let quotient = if sides[1].interleaved {
        let partner = |run: u32| other.iter().find(|(of, _)| *of == run).map(|(_, value)| *value);
        let pairs = first.iter().filter_map(|(run, value)| Some((*value, partner(*run)?)));
        stats::ratio::paired(&pairs.collect::<Vec<_>>(), resolution)
    } else {
        let values = |runs: &[(u32, f64)]| runs.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
        stats::ratio::welch(&values(first), &values(other), resolution)
    };
    quotient.ok_or_else(|| {
        let zero = runs.into_iter().zip(sides).find_map(|(runs, side)| {
            let (repetition, _) = runs.iter().find(|(_, value)| *value <= 0.0)?;
            Some(Lacking::Zero { run: repetition + 1, side: side.name.clone() })
        });
        zero.unwrap_or(Lacking::NoCommonRun)
    })
}

#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(test), allow(dead_code, missing_docs, unused_imports))]
pub mod tests;
