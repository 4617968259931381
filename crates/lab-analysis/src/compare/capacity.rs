//! The ratio of capacities: one for each workload and other side.

use super::{Conclusion, Input, Kind, Obstacle, Ratio, over_runs};
use crate::rows::usable;
use crate::{Capacity, WorkloadFindings};
use lab_data::results::Run;
use serde::Serialize;
use stats::ratio::Quotient;
use std::collections::BTreeSet;

/// From this corrected p-value on no difference is shown.
const SIGNIFICANT: f64 = 0.05;

/// How a side's capacity compares with that of the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapacityRatio {
    /// The level at which goodput is compared instead, because a side has no capacity: the highest that both have.
    pub at_clients: Option<u32>,
    /// The ratio. Its conclusion takes all ratios of capacities in the comparison into account.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// The p-value, corrected for the number of these ratios.
    pub p_holm: Option<f64>,
}

/// Compares a workload of two sides; `None` where one does not have it. [`correct`] is still to be applied.
pub(super) fn ratio(sides: [&Input; 2], workload: &str) -> Option<CapacityRatio> {
    let found = [sides[0].workload(workload)?, sides[1].workload(workload)?];
    let (at_clients, quotient) = match (found.map(|of| &of.capacity), common(found)) {
        ([Capacity::Reached { levels: a, .. }, Capacity::Reached { levels: b, .. }], _) => {
            (None, quotient(sides, workload, [a, b]))
        }
        (_, Some(level)) => (Some(level), quotient(sides, workload, [&[level], &[level]])),
        (_, None) => (None, Err(Obstacle::NothingInCommon)),
    };
    let limited = found.map(WorkloadFindings::generator_limited);
    let ratio = super::ratio(quotient, Kind::Rate, limited, false);
    Some(CapacityRatio { at_clients, ratio, p_holm: None })
}

/// The quotient of goodput at some levels of either side.
fn quotient(sides: [&Input; 2], workload: &str, levels: [&[u32]; 2]) -> Result<Quotient, Obstacle> {
    let [first, other] = [0, 1].map(|i| runs(sides[i], workload, levels[i]));
    over_runs([&first, &other], sides, 0.0)
}

/// Applies Holm's correction to all ratios of capacities: among many, one would often show a difference by chance.
pub(super) fn correct<'a>(all: impl Iterator<Item = &'a mut CapacityRatio>) {
    let tested = all.filter(|of| of.ratio.conclusion != Conclusion::NotComparable);
    let (p, tested): (Vec<f64>, Vec<_>) = tested.filter_map(|of| Some((of.ratio.quotient?.p?, of))).unzip();
    for (p, of) in stats::ratio::holm(&p).into_iter().zip(tested) {
        of.p_holm = Some(p);
        // A corrected p-value is never below its own, which said the same as the interval.
        if p >= SIGNIFICANT {
            of.ratio.conclusion = Conclusion::NotShown;
        }
    }
}

/// The highest level at which both have a usable row.
fn common([first, other]: [&WorkloadFindings; 2]) -> Option<u32> {
    let is_common = |level: &u32| usable(&other.rows).any(|row| row.level == *level);
    usable(&first.rows).map(|row| row.level).filter(is_common).max()
}

/// Goodput of each repetition that has all `levels`, mean over them.
fn runs(of: &Input, workload: &str, levels: &[u32]) -> Vec<(u32, f64)> {
    let mean = |repetition: u32| {
        let at = |level: &u32| {
            let is_it = |(trial, _): &Run| (trial.level, trial.repetition) == (*level, repetition);
            Some(of.results.runs_of(workload).find(is_it)?.1.goodput_with_parts_rps())
        };
        let sum = levels.iter().map(at).sum::<Option<f64>>()?;
        Some((repetition, sum / levels.len() as f64))
    };
    // Not by what was planned: a file may say any number.
    let ran: BTreeSet<u32> = of.results.runs_of(workload).map(|(trial, _)| trial.repetition).collect();
    ran.into_iter().filter_map(mean).collect()
}
