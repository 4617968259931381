//! Two or more sets of results beside each other: figures, ratios with intervals, and what stands in the way of them.
//!
//! The first is what the others are compared with. Nothing is left out that both sides planned: what a gate forbids to
//! believe is shown and marked. Method and limits are those of docs/method.md, *Comparing*.

mod capacity;
mod circumstances;
mod measures;
mod ratio;

pub use capacity::CapacityRatio;
pub use circumstances::Difference;
pub use measures::{BusyGenerator, MEASURES, Measure, Merged};
pub use ratio::{Method, Quotient};

use super::checks::Checked;
use super::rows::{Excluded, Row};
use super::{Findings, findings};
use kv::Error;
use kv::proto::LoadReport;
use lab_data::results::{Results, Trial};
use serde::Serialize;
use stats::{Estimate, median};

/// All that is said of several sets of results beside each other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Who is compared; the others with the first.
    pub sides: Vec<Side>,
    /// Whether all were measured in turns by one run, repetition by repetition.
    pub interleaved: bool,
    /// What was not the same; empty where nothing that is recorded differs.
    pub circumstances: Vec<Difference>,
    /// The workloads that at least two sides have at some level, in the order of the first side that has them.
    pub workloads: Vec<ComparedWorkload>,
    /// How many ratios were tested for a difference.
    pub tested: u32,
    /// Targets of the same run that left no results to compare.
    pub absent: Vec<String>,
}

/// Whose results they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// What it is called here: its target's name, or `A` and `B` where that does not tell them apart.
    pub name: String,
    /// Its experiment: `quick`.
    pub experiment: String,
    /// Which of an experiment's targets it is.
    pub target: Option<String>,
    /// The line at the head of its report.
    pub title: String,
    /// When its run started.
    pub started: String,
    /// Version of weir that measured.
    pub weir_version: String,
    /// When it acknowledges a write, in the experiment's words; `None` where they do not say.
    pub durability: Option<String>,
    /// Whose processor time is counted: all parts but the generator.
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
    /// How what each side gets through at most compares with the first's, side by side in their order; `None` of the first, and
    /// where a side does not have the workload.
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
    /// Side by side in their order; `None` where a side did not plan it.
    pub sides: Vec<Option<SideOfLevel>>,
}

/// What one side has at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SideOfLevel {
    /// Runs planned.
    pub planned: u32,
    /// Runs that delivered numbers and did not fail.
    pub runs: u32,
    /// Why the others did not, or what became of them.
    pub failures: Vec<String>,
    /// Why its row may not be compared; `None` of one that may.
    pub excluded: Option<Excluded>,
    /// Whether the generator was the limit, or shared its cores with the target.
    pub generator_limited: bool,
    /// The checks its row failed.
    pub failed: Vec<Checked>,
    /// Its figures, in the order of [`MEASURES`].
    #[serde(serialize_with = "by_name")]
    pub figures: Vec<Option<Merge>>,
    /// Their ratios to those of the first side, in the order of [`MEASURES`]; `None` on the first side itself, where a
    /// figure is missing on either, and where none is formed.
    #[serde(serialize_with = "by_name")]
    pub ratios: Vec<Option<Ratio>>,
}

/// For programs, which count no columns: each under the name of its measure.
fn by_name<T: Serialize, S: serde::Serializer>(of: &[Option<T>], into: S) -> Result<S::Ok, S::Error> {
    into.collect_map(MEASURES.iter().map(|measure| measure.name).zip(of))
}

/// A figure over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Merge {
    /// Mean or median, as [`Measure::merged`] says.
    pub value: f64,
    /// Mean and interval; `None` of a median.
    pub estimate: Option<Estimate>,
    /// The runs in which it could be read, each with its repetition.
    pub of_runs: Vec<(u32, f64)>,
}

/// A ratio and what may be said of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// The other's figure over the first's; `None` where there is none, for the reason in `lacking`.
    pub quotient: Option<Quotient>,
    /// Why there is no quotient: `0 req/s in run 2 of nginx`.
    pub lacking: Option<String>,
    /// What is said.
    pub says: Says,
    /// Where the generator was the limit on one side only, and no gate makes either invalid: on which side of the truth
    /// the ratio lies.
    pub bound: Option<Bound>,
    /// The checks that failed on either side, each with that side's name.
    pub remarks: Vec<(&'static str, String)>,
}

/// What a ratio says, at 95 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// The first side has more.
    FirstMore,
    /// The other side has more.
    OtherMore,
    /// The interval contains 1.
    NotShown,
    /// Too few runs for an interval.
    NoInterval,
    /// A gate forbids to believe it, or there is none.
    NotComparable,
}

/// Where the truth lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The true ratio is at least this.
    AtLeast,
    /// The true ratio is at most this.
    AtMost,
}

/// Compares `all` with the first of them. The error says, in one line, why that cannot be.
pub fn compare(all: &[&Results]) -> Result<Comparison, Error> {
    if all.len() < 2 {
        return Err(Error::input("there is nothing to compare with").hint("name a second results directory"));
    }
    if (1..all.len()).any(|i| all[..i].contains(&all[i])) {
        return Err(
            Error::input("these are the same results twice").hint("name those of another target or run")
        );
    }
    let names = names(all);
    let found: Vec<Findings> = all.iter().map(|results| findings(results)).collect();
    let mut planned: Vec<&str> = Vec::new();
    for workload in found.iter().flat_map(|found| &found.workloads) {
        if !planned.contains(&workload.name.as_str()) {
            planned.push(&workload.name);
        }
    }
    let sides = Sides { all, names: &names, found: &found };
    let mut workloads: Vec<ComparedWorkload> = (planned.iter())
        .map(|name| sides.workload(name))
        .filter(|workload| !workload.levels.is_empty())
        .collect();
    if workloads.is_empty() {
        return Err(Error::input("the results have no workload and level in common")
            .hint("compare runs that measured at least one workload at the same number of clients"));
    }
    capacity::holm(workloads.iter_mut().flat_map(|workload| workload.capacities.iter_mut().flatten()));
    let ratios = (workloads.iter())
        .flat_map(|workload| &workload.levels)
        .flat_map(|level| level.sides.iter().flatten())
        .flat_map(|side| side.ratios.iter().flatten());
    let tested =
        ratios.filter(|of| !matches!(of.says, Says::NoInterval | Says::NotComparable)).count() as u32;
    let common: Vec<&str> = workloads.iter().map(|workload| workload.name.as_str()).collect();
    Ok(Comparison {
        sides: all.iter().zip(&names).map(|(results, name)| side(results, name)).collect(),
        interleaved: all.iter().skip(1).all(|other| interleaved(all[0], other)),
        circumstances: circumstances::differences(all, &common),
        workloads,
        tested,
        absent: Vec::new(),
    })
}

/// Whether both are targets of one run, which measured them in turns: different ones, as no target has turns with itself.
fn interleaved(a: &Results, b: &Results) -> bool {
    let (Some(of_a), Some(of_b)) = (&a.measured, &b.measured) else { return false };
    of_a.among == of_b.among && of_a.target != of_b.target && (&a.started, &a.name) == (&b.started, &b.name)
}

/// The targets' names where they tell the sides apart, letters elsewhere.
fn names(all: &[&Results]) -> Vec<String> {
    let targets: Vec<String> = (all.iter())
        .filter_map(|results| Some(results.measured.as_ref()?.target.clone()))
        .filter(|name| !name.is_empty())
        .collect();
    let alone = |name: &String| targets.iter().filter(|other| *other == name).count() == 1;
    if targets.len() == all.len() && targets.iter().all(alone) {
        return targets;
    }
    // More than two come from one run, and have names.
    (0..all.len()).map(|i| char::from(b'A' + (i % 26) as u8).to_string()).collect()
}

fn side(results: &Results, name: &str) -> Side {
    let measured = results.measured.as_ref();
    Side {
        name: name.to_owned(),
        experiment: results.name.clone(),
        target: measured.map(|of| of.target.clone()),
        title: results.title.clone(),
        started: results.started.clone(),
        weir_version: results.weir_version.clone(),
        durability: measured.map(|of| of.durability.trim().to_owned()).filter(|text| !text.is_empty()),
        parts: measures::parts(results),
    }
}

/// The sides while they are put together.
struct Sides<'a> {
    all: &'a [&'a Results],
    names: &'a [String],
    found: &'a [Findings],
}

impl Sides<'_> {
    fn workload(&self, name: &str) -> ComparedWorkload {
        let of_side: Vec<Option<_>> = (self.found.iter())
            .map(|found| found.workloads.iter().find(|workload| workload.name == name))
            .collect();
        let mut clients: Vec<u32> =
            of_side.iter().flatten().flat_map(|found| found.rows.iter().map(|row| row.level)).collect();
        clients.sort_unstable();
        clients.dedup();
        let (mut levels, mut alone) = (Vec::new(), Vec::new());
        for clients in clients {
            let rows: Vec<Option<&Row>> = of_side
                .iter()
                .map(|of| of.and_then(|of| of.rows.iter().find(|row| row.level == clients)))
                .collect();
            match rows.iter().filter(|row| row.is_some()).count() {
                1 => {
                    let whose = rows.iter().position(Option::is_some).unwrap_or_default();
                    alone.push((clients, self.names[whose].clone()));
                }
                _ => levels.push(self.level(name, clients, &rows)),
            }
        }
        let about = of_side.iter().flatten().map(|found| found.about.clone()).find(|about| !about.is_empty());
        ComparedWorkload {
            name: name.to_owned(),
            about: about.unwrap_or_default(),
            writes: self.all.iter().any(|results| loads(results, name, None).any(|(_, load)| writes(load))),
            capacities: self.capacities(name),
            levels,
            alone,
        }
    }

    fn capacities(&self, workload: &str) -> Vec<Option<CapacityRatio>> {
        let of = |i: usize| {
            let found = self.found[i].workloads.iter().find(|found| found.name == workload)?;
            Some(capacity::Of { results: self.all[i], found })
        };
        let ratio = |i: usize| {
            let (first, other) = (of(0)?, of(i)?);
            Some(capacity::capacity_ratio(&first, &other, interleaved(self.all[0], self.all[i])))
        };
        (0..self.all.len()).map(|i| if i == 0 { None } else { ratio(i) }).collect()
    }

    fn level(&self, workload: &str, clients: u32, rows: &[Option<&Row>]) -> ComparedLevel {
        let is_limited = |found: &Findings| {
            found.workloads.iter().any(|found| found.name == workload && found.generator_limited())
        };
        let mut sides: Vec<Option<SideOfLevel>> = (rows.iter().zip(self.all).zip(self.found))
            .map(|((row, results), found)| {
                let side = of_level(row.as_ref()?, results, workload, clients);
                Some(SideOfLevel { generator_limited: is_limited(found), ..side })
            })
            .collect();
        let Some((Some(first), others)) = sides.split_first_mut() else {
            return ComparedLevel { clients, sides };
        };
        for (i, other) in others.iter_mut().enumerate() {
            let Some(other) = other else { continue };
            let names = [self.names[0].as_str(), self.names[i + 1].as_str()];
            let pairs = interleaved(self.all[0], self.all[i + 1]);
            other.ratios =
                (0..MEASURES.len()).map(|measure| ratio(measure, first, other, names, pairs)).collect();
        }
        ComparedLevel { clients, sides }
    }
}

/// The runs of a workload that delivered numbers: at one level, or at all.
fn loads<'a>(
    results: &'a Results,
    workload: &'a str,
    clients: Option<u32>,
) -> impl Iterator<Item = (&'a Trial, &'a LoadReport)> {
    (results.trials.iter())
        .filter(move |trial| trial.workload == workload && clients.is_none_or(|level| trial.level == level))
        .filter_map(|trial| Some((trial, trial.numbers()?)))
}

/// Whether requests of this run changed anything.
fn writes(load: &LoadReport) -> bool {
    let is_write = |name: &str| matches!(name, "put" | "delete");
    load.operations.iter().any(|of| is_write(&of.operation) && of.attempts > 0)
        || load.mix.iter().any(|(name, share)| is_write(name) && *share > 0.0)
}

fn of_level(row: &Row, results: &Results, workload: &str, clients: u32) -> SideOfLevel {
    let figure = |measure: &Measure| {
        let of_runs: Vec<(u32, f64)> = loads(results, workload, Some(clients))
            .filter_map(|(trial, load)| Some((trial.repetition, (measure.read)(results, trial, load)?)))
            .filter(|(_, value)| value.is_finite())
            .collect();
        let values: Vec<f64> = of_runs.iter().map(|(_, value)| *value).collect();
        let estimate = Estimate::of(&values).filter(|_| measure.merged == Merged::Mean);
        Some(Merge { value: estimate.map(|of| of.mean).or_else(|| median(&values))?, estimate, of_runs })
    };
    let failed = row.checks.iter().filter(|checked| checked.failed()).cloned();
    SideOfLevel {
        planned: row.planned,
        runs: row.runs,
        failures: row.failures.keys().cloned().collect(),
        excluded: row.excluded,
        generator_limited: false,
        failed: failed.collect(),
        figures: MEASURES.iter().map(figure).collect(),
        ratios: vec![None; MEASURES.len()],
    }
}

/// The ratio of one figure and what may be said of it; `names` are those of the first and of the other side.
fn ratio(
    measure: usize,
    first: &SideOfLevel,
    other: &SideOfLevel,
    names: [&str; 2],
    interleaved: bool,
) -> Option<Ratio> {
    let Measure { compared: true, busy_generator, resolution, unit, .. } = MEASURES[measure] else {
        return None;
    };
    let (a, b) = (first.figures[measure].as_ref()?, other.figures[measure].as_ref()?);
    let partner = |repetition| b.of_runs.iter().find(|(of, _)| *of == repetition).map(|(_, value)| *value);
    let pairs: Vec<(f64, f64)> =
        (a.of_runs.iter()).filter_map(|(repetition, value)| Some((*value, partner(*repetition)?))).collect();
    let quotient = if interleaved {
        ratio::paired(&pairs, resolution)
    } else {
        let values = |of: &Merge| of.of_runs.iter().map(|(_, value)| *value).collect::<Vec<f64>>();
        ratio::welch(&values(a), &values(b), resolution)
    };
    let zero = [a, b].into_iter().zip(names).find_map(|(of, name)| {
        let (repetition, _) = of.of_runs.iter().find(|(_, value)| *value <= 0.0)?;
        Some(format!("0 {unit} in run {} of {name}", repetition + 1))
    });
    let lacking = match quotient {
        Some(_) => None,
        None => Some(zero.unwrap_or_else(|| "no repetition in common".to_owned())),
    };
    let remarks = [first, other]
        .into_iter()
        .zip(names)
        .flat_map(|(side, name)| side.failed.iter().map(move |of| (of.id, name.to_owned())));
    let limited = [first, other].map(|side| side.generator_limited);
    let invalid = [first, other].iter().any(|side| side.excluded.is_some());
    let barred =
        invalid || quotient.is_none() || limited.contains(&true) && busy_generator != BusyGenerator::Spares;
    let bound = match (busy_generator, limited) {
        _ if invalid || quotient.is_none() => None,
        (BusyGenerator::Caps, [false, true]) => Some(Bound::AtLeast),
        (BusyGenerator::Caps, [true, false]) => Some(Bound::AtMost),
        _ => None,
    };
    let says = match quotient.and_then(|of| of.interval) {
        _ if barred => Says::NotComparable,
        None => Says::NoInterval,
        Some((low, _)) if low > 1.0 => Says::OtherMore,
        Some((_, high)) if high < 1.0 => Says::FirstMore,
        Some(_) => Says::NotShown,
    };
    Some(Ratio { quotient, lacking, says, bound, remarks: remarks.collect() })
}

#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(test), allow(dead_code, missing_docs, unused_imports))]
pub mod tests;
