//! What two sides get through at most, as one ratio for each workload: the line that is read first.

use super::ratio::{self, Known};
use super::{Bound, Quotient, Says, loads};
use crate::steady::window::Window;
use crate::steady::{GOODPUT, LATENCY, Verdict, judge};
use crate::{Capacity, WorkloadFindings};
use lab_data::results::Results;
use serde::Serialize;
use stats::RUNS_LEAST;

/// What a ratio must not reach to be called a difference.
const SIGNIFICANT: f64 = 0.05;

/// How the most that one side gets through compares with that of the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CapacityRatio {
    /// The level at which goodput is compared instead, because a side has no capacity: the highest that both have.
    pub at_clients: Option<u32>,
    /// The other's over the first's; `None` where there is none, for the reason in `lacking`.
    pub quotient: Option<Quotient>,
    /// Why there is no quotient, or no interval.
    pub lacking: Option<String>,
    /// What is said, all ratios of this kind in the comparison considered.
    pub says: Says,
    /// Where the generator was the limit on one side only: on which side of the truth the ratio lies.
    pub bound: Option<Bound>,
    /// How likely so much were by chance if there were no difference, times what Holm's method makes of it where several are
    /// tested; at most 1.
    pub p_holm: Option<f64>,
}

/// One side of the ratio.
pub(super) struct Of<'a> {
    pub(super) results: &'a Results,
    pub(super) found: &'a WorkloadFindings,
}

/// Compares `other` with `first`; `interleaved` where they were measured in turns. What is said still lacks Holm's view.
pub(super) fn capacity_ratio(first: &Of, other: &Of, interleaved: bool) -> CapacityRatio {
    let none = |why: String| CapacityRatio {
        at_clients: None,
        quotient: None,
        lacking: Some(why),
        says: Says::NotComparable,
        bound: None,
        p_holm: None,
    };
    let plateaus = [first, other].map(|of| match &of.found.capacity {
        Capacity::Reached { levels, .. } => levels.clone(),
        _ => Vec::new(),
    });
    let at_clients = plateaus.iter().any(Vec::is_empty).then(|| common(first, other));
    let levels = match at_clients {
        None => plateaus,
        Some(Some(level)) => [vec![level], vec![level]],
        Some(None) => return none("no level is valid on both sides".to_owned()),
    };
    let (of_first, of_other) = (runs(first, &levels[0]), runs(other, &levels[1]));
    let over_runs = || match interleaved {
        true => {
            let partner = |run: u32| of_other.iter().find(|(of, _)| *of == run).map(|(_, value)| *value);
            let pairs = of_first.iter().filter_map(|(run, value)| Some((*value, partner(*run)?)));
            ratio::paired(&pairs.collect::<Vec<_>>(), 0.0)
        }
        false => ratio::welch(&values(&of_first), &values(&of_other), 0.0),
    };
    let few = of_first.len() < RUNS_LEAST || of_other.len() < RUNS_LEAST;
    let seconds = || Some((seconds(first, &levels[0])?, seconds(other, &levels[1])?));
    // Two runs know next to nothing of their spread, but more than runs without ten steady seconds do.
    let quotient = match few.then(seconds).flatten() {
        Some((a, b)) => ratio::within(&a, &b),
        None => over_runs(),
    };
    let at_clients = at_clients.flatten();
    let Some(quotient) = quotient else {
        return CapacityRatio { at_clients, ..none("no run of one side got anything through".to_owned()) };
    };
    let limited = [first, other].map(|of| of.found.generator_limited());
    let bound = match limited {
        [false, true] => Some(Bound::AtLeast),
        [true, false] => Some(Bound::AtMost),
        _ => None,
    };
    let says = match (limited.contains(&true), quotient.interval) {
        (true, _) => Says::NotComparable,
        (false, None) => Says::NoInterval,
        (false, Some(_)) => Says::NotShown,
    };
    let lacking = match says {
        Says::NotComparable => Some("the generator was the limit".to_owned()),
        Says::NoInterval => {
            Some("it takes two runs on either side, or ten steady seconds in each".to_owned())
        }
        _ => None,
    };
    CapacityRatio { at_clients, quotient: Some(quotient), lacking, says, bound, p_holm: None }
}

/// Says of which ratios there is a difference, by Holm's step-down method: as many are tested, so often one would show a
/// difference by chance, and nobody reads them one by one.
/// Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure (1979).
pub(super) fn holm<'a>(all: impl Iterator<Item = &'a mut CapacityRatio>) {
    let mut tested: Vec<(f64, &mut CapacityRatio)> =
        all.filter(|of| of.says == Says::NotShown).filter_map(|of| Some((of.quotient?.p?, of))).collect();
    tested.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let (count, mut so_far) = (tested.len(), 0.0_f64);
    for (i, (p, of)) in tested.into_iter().enumerate() {
        so_far = so_far.max(p * (count - i) as f64).min(1.0);
        of.p_holm = Some(so_far);
        of.says = match of.quotient {
            Some(quotient) if so_far < SIGNIFICANT && quotient.ratio > 1.0 => Says::OtherMore,
            Some(_) if so_far < SIGNIFICANT => Says::FirstMore,
            _ => Says::NotShown,
        };
    }
}

/// The highest level at which both have a usable row.
fn common(first: &Of, other: &Of) -> Option<u32> {
    let usable = |of: &Of, level: u32| of.found.rows.iter().any(|row| row.level == level && row.usable());
    let levels = first.found.rows.iter().map(|row| row.level);
    levels.filter(|level| usable(first, *level) && usable(other, *level)).max()
}

/// The mean over `levels` of each repetition that has them all.
fn runs(of: &Of, levels: &[u32]) -> Vec<(u32, f64)> {
    let at = |level: u32, repetition: u32| {
        let mut trials = loads(of.results, &of.found.name, Some(level));
        trials.find(|(trial, _)| trial.repetition == repetition).map(|(_, load)| load.goodput_rps)
    };
    let mean = |repetition: u32| {
        let all: Option<Vec<f64>> = levels.iter().map(|level| at(*level, repetition)).collect();
        Some((repetition, all?.iter().sum::<f64>() / levels.len() as f64))
    };
    (0..of.results.repetitions).filter_map(mean).collect()
}

fn values(runs: &[(u32, f64)]) -> Vec<f64> {
    runs.iter().map(|(_, value)| *value).collect()
}

/// How well the seconds of every run at `levels` know its mean; `None` where one of them is not steady, or too short.
fn seconds(of: &Of, levels: &[u32]) -> Option<Vec<Known>> {
    let trials = || levels.iter().flat_map(|level| loads(of.results, &of.found.name, Some(*level)));
    trials().next()?;
    trials()
        .map(|(_, load)| {
            let window = Window::of(load);
            let bins = &window.goodput_rps;
            match window.judged(false, (GOODPUT, LATENCY), |both| judge(&both[..1])) {
                Verdict::Steady(reached) | Verdict::TooShort { reached, .. } => {
                    let known = reached.figures.first()?;
                    Some(Known::of(&bins[reached.cut..], known.effective))
                }
                Verdict::NotSteady { .. } | Verdict::TooFew => None,
            }
        })
        .collect()
}
