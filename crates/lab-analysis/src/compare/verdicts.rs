//! Whether sides are slower than the first: one verdict for each workload and figure, over all levels that both sides have.
//!
//! A figure of a repetition is the geometric mean over these levels. The intervals hold all together with 95 %: each has an equal share of
//! the 5 % (Bonferroni). So of comparisons of a build with itself, at most one in twenty has any difference, and one in forty a loss. In
//! another one in forty at most a level is a regression because of the runs that do not count.

use super::{
    ALPHA, ComparedLevel, ComparedWorkload, Comparison, Kind, MEASURES, Measure, Quotient, SideOfLevel,
    method,
};
use crate::rows::Excluded;
use serde::Serialize;
use stats::failures;

/// The verdicts on all sides but the first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gate {
    /// By how much a side may be slower, as a share of the first's figure: 0.05.
    pub margin: f64,
    /// How many figures share the 5 %.
    pub tested: u32,
    /// Workload by workload, side by side, figure by figure.
    pub verdicts: Vec<Verdict>,
    /// The workloads of which nothing can be said.
    pub not_compared: Vec<NotCompared>,
}

/// A workload of a side of which no figure has an interval, and which is no regression.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotCompared {
    /// The workload.
    pub workload: String,
    /// The side's name.
    pub side: String,
    /// Whether there are figures, of too few repetitions or pairs.
    pub too_few_runs: bool,
    /// Why most runs do not count of those that do not: the first's, the side's; `None` where all count.
    pub excluded: [Option<Excluded>; 2],
}

/// What is said of one figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The workload.
    pub workload: String,
    /// The side's name.
    pub side: String,
    /// What was compared.
    #[serde(flatten)]
    pub subject: Subject,
    /// The result.
    pub standing: Standing,
}

/// What a verdict is about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Subject {
    /// One of [`MEASURES`].
    Figure {
        /// Its name.
        figure: &'static str,
        /// Geometric means over runs and levels: the first's, the side's.
        values: [f64; 2],
        /// The side's figure over the first's, with an interval that holds together with all others.
        quotient: Quotient,
        /// How many more runs, on each side, will probably decide it; `None` where it is decided, or nothing can be said.
        more_runs: Option<u32>,
    },
    /// A level at which more runs of the other side do not count.
    Level {
        /// Clients.
        clients: u32,
        /// Why most of them do not.
        excluded: Excluded,
        /// How many were begun on each side.
        runs: u32,
        /// How many of them do not count: the first's, the side's.
        excluded_runs: [u32; 2],
        /// The share of failed requests: the first's, the side's.
        error_ratios: [Option<f64>; 2],
    },
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is slower, and the margin is not excluded.
    Regression,
    /// It is slower by less than the margin.
    Worse,
    /// It is faster.
    Better,
    /// No difference is shown, and it is not slower by the margin.
    WithinMargin,
    /// It may be slower by the margin or not at all.
    Undecided,
    /// The load generator was the limit.
    NotComparable,
}

impl Gate {
    /// Those that are slower.
    pub fn regressions(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|of| of.standing == Standing::Regression)
    }

    /// Whether a figure was compared, or a regression found without one.
    pub fn says_something(&self) -> bool {
        let is_figure = |of: &Verdict| {
            matches!(of.subject, Subject::Figure { .. }) && of.standing != Standing::NotComparable
        };
        self.regressions().next().is_some() || self.verdicts.iter().any(is_figure)
    }

    /// Whether more runs can change nothing of what the gate says.
    pub fn is_decided(&self) -> bool {
        let is_open = |of: &Verdict| of.standing == Standing::Undecided;
        self.regressions().next().is_some() || !self.verdicts.is_empty() && !self.verdicts.iter().any(is_open)
    }
}

/// A figure of two sides, to be judged.
struct Pair<'c> {
    workload: &'c ComparedWorkload,
    side: usize,
    measure: &'static Measure,
    runs: [Vec<(u32, f64)>; 2],
    is_comparable: bool,
}

/// Judges all sides of a comparison but the first, of which none may be slower by `margin`.
pub fn gate(comparison: &Comparison, margin: f64) -> Gate {
    let sides = |workload| (1..comparison.sides.len()).map(move |side| (workload, side));
    let all: Vec<(&ComparedWorkload, usize)> = comparison.workloads.iter().flat_map(sides).collect();
    let pairs: Vec<Pair> = all.iter().flat_map(|(workload, side)| pairs(workload, *side)).collect();
    let alpha = ALPHA / pairs.len().max(1) as f64;
    let figures = pairs.iter().filter_map(|pair| judged(comparison, pair, margin, alpha));
    let failures = failures(comparison, &all).into_iter();
    let verdicts: Vec<Verdict> = failures.chain(figures).collect();
    let not_compared = all.iter().filter_map(|(workload, side)| {
        NotCompared::of(workload, *side, &comparison.sides[*side].name, &verdicts)
    });
    Gate { margin, tested: pairs.len() as u32, not_compared: not_compared.collect(), verdicts }
}

impl NotCompared {
    /// `None` where something can be said.
    fn of(workload: &ComparedWorkload, side: usize, name: &str, verdicts: &[Verdict]) -> Option<NotCompared> {
        let own = || verdicts.iter().filter(|of| of.workload == workload.name && of.side == name);
        let figures = || own().filter(|of| matches!(of.subject, Subject::Figure { .. }));
        let says = |of: &Verdict| match of.subject {
            Subject::Figure { quotient, .. } => {
                quotient.interval.is_some() || of.standing == Standing::NotComparable
            }
            Subject::Level { .. } => of.standing == Standing::Regression,
        };
        let both: Vec<[&SideOfLevel; 2]> = workload.levels.iter().filter_map(|of| of.both(side)).collect();
        let excluded = |of: usize| most(both.iter().flat_map(|both| &both[of].runs).filter_map(|run| run.1));
        (!own().any(says)).then(|| NotCompared {
            workload: workload.name.clone(),
            side: name.to_owned(),
            too_few_runs: figures().next().is_some(),
            excluded: [0, 1].map(excluded),
        })
    }
}

/// The most frequent reason.
fn most(reasons: impl Iterator<Item = Excluded> + Clone) -> Option<Excluded> {
    reasons.clone().max_by_key(|why| reasons.clone().filter(|other| other == why).count())
}

/// The figures of a workload that both sides have, over the levels at which most runs count.
fn pairs<'c>(workload: &'c ComparedWorkload, side: usize) -> impl Iterator<Item = Pair<'c>> {
    let both = workload.levels.iter().filter_map(|of| of.both(side));
    let levels: Vec<[&SideOfLevel; 2]> =
        both.filter(|both| both.iter().all(|of| of.counting() >= MOST)).collect();
    let is_limited = levels.iter().flatten().any(|of| of.generator_limited);
    (0..MEASURES.len()).filter_map(move |i| {
        let runs = [0, 1].map(|of| over_levels(levels.iter().map(|both| both[of]), i));
        let measure = &MEASURES[i];
        let is_comparable = !is_limited || measure.kind == Kind::ProcessorTime;
        let is_known = runs.iter().all(|runs| !runs.is_empty());
        is_known.then_some(Pair { workload, side, measure, runs, is_comparable })
    })
}

/// A level is compared if more than half of its runs count.
const MOST: f64 = 0.5 + f64::EPSILON;

impl ComparedLevel {
    /// The first side and another one, if both have the level.
    fn both(&self, side: usize) -> Option<[&SideOfLevel; 2]> {
        Some([self.sides[0].as_ref()?, self.sides[side].as_ref()?])
    }
}

impl SideOfLevel {
    /// The share of the runs that count.
    fn counting(&self) -> f64 {
        let counting = self.runs.iter().filter(|(_, excluded)| excluded.is_none()).count();
        counting as f64 / self.runs.len().max(1) as f64
    }

    /// Why a run does not count; `None` if it was not begun.
    fn excluded(&self, repetition: u32) -> Option<Option<Excluded>> {
        self.runs.iter().find(|(of, _)| *of == repetition).map(|(_, excluded)| *excluded)
    }
}

/// Measure `i` of each repetition that has it, and counts, at all `levels`: its geometric mean over them.
fn over_levels<'c>(levels: impl Iterator<Item = &'c SideOfLevel> + Clone, i: usize) -> Vec<(u32, f64)> {
    let Some(first) = levels.clone().next().and_then(|of| of.figures[i].as_ref()) else { return Vec::new() };
    let mean = |repetition: u32| {
        let at = |of: &SideOfLevel| {
            let runs = &of.figures[i].as_ref()?.of_runs;
            let run = runs.iter().find(|(run, _)| *run == repetition && of.excluded(*run) == Some(None));
            run.map(|(_, value)| value.ln())
        };
        let logs = levels.clone().map(at).collect::<Option<Vec<f64>>>()?;
        Some((repetition, stats::mean(logs)?.exp()))
    };
    first.of_runs.iter().filter_map(|(repetition, _)| mean(*repetition)).collect()
}

fn judged(comparison: &Comparison, pair: &Pair, margin: f64, alpha: f64) -> Option<Verdict> {
    let Pair { workload, side, measure, runs, is_comparable } = pair;
    let method = method(comparison.interleaved, comparison.sequential);
    let [first, other] = runs;
    let quotient = super::quotient([first, other], method, measure.resolution(), alpha)?;
    // On the scale of logarithms, so that half as fast is as far as twice as fast; above 0 it is slower.
    let slower = |ratio: f64| if measure.kind == Kind::Rate { -ratio.ln() } else { ratio.ln() };
    let limit = (1.0 + margin).ln();
    let standing = match quotient.interval.map(|(low, high)| (slower(low), slower(high))) {
        _ if !is_comparable => Standing::NotComparable,
        None => Standing::Undecided,
        Some((a, b)) => standing(a.min(b), a.max(b), limit),
    };
    // The interval has to leave out either no loss or the limit, whichever is further from the ratio.
    let loss = slower(quotient.ratio);
    let more_runs =
        (standing == Standing::Undecided).then(|| quotient.runs_until(loss.max(limit - loss), alpha));
    let mean = |runs: &Vec<(u32, f64)>| stats::mean(runs.iter().map(|(_, value)| value.ln())).map(f64::exp);
    let subject = Subject::Figure {
        figure: measure.name,
        values: [mean(first)?, mean(other)?],
        quotient,
        more_runs: more_runs.flatten(),
    };
    Some(Verdict {
        workload: workload.name.clone(),
        side: comparison.sides[*side].name.clone(),
        subject,
        standing,
    })
}

/// What follows from the interval of a loss, where a loss of `limit` is not allowed.
fn standing(low: f64, high: f64, limit: f64) -> Standing {
    match () {
        () if low > 0.0 && high >= limit => Standing::Regression,
        () if low > 0.0 => Standing::Worse,
        () if high < 0.0 => Standing::Better,
        () if high < limit => Standing::WithinMargin,
        () => Standing::Undecided,
    }
}

/// The levels at which clearly more runs of a side do not count than of the first one, or perhaps so.
fn failures(comparison: &Comparison, all: &[(&ComparedWorkload, usize)]) -> Vec<Verdict> {
    let levels = all.iter().flat_map(|(workload, side)| {
        let level = |level| Failing::of(level, *side).map(|failing| (*workload, *side, failing));
        workload.levels.iter().filter_map(level)
    });
    let levels: Vec<(&ComparedWorkload, usize, Failing)> = levels.collect();
    let p: Vec<f64> = levels.iter().map(|(.., of)| of.p).collect();
    let limit = failures::largest_small(&p, ALPHA / 2.0);
    let verdict = |(workload, side, of): &(&ComparedWorkload, usize, Failing)| {
        let standing = if limit.is_some_and(|limit| of.p <= limit) {
            Standing::Regression
        } else {
            of.is_suspected.then_some(Standing::Undecided)?
        };
        let (workload, side) = (workload.name.clone(), comparison.sides[*side].name.clone());
        Some(Verdict { workload, side, subject: of.subject.clone()?, standing })
    };
    levels.iter().filter_map(verdict).collect()
}

/// A level at which some run of two sides does not count.
struct Failing {
    subject: Option<Subject>,
    p: f64,
    /// Whether it may be that more of the other side do not: one disturbed run is no reason to go on.
    is_suspected: bool,
}

impl Failing {
    /// `None` where all runs count: that level cannot raise a false alarm.
    fn of(level: &ComparedLevel, side: usize) -> Option<Failing> {
        let both = level.both(side)?;
        let [first, other] = both;
        let pair =
            |(run, of): &(u32, Option<Excluded>)| Some([first.excluded(*run)?.is_some(), of.is_some()]);
        let pairs: Vec<[bool; 2]> = other.runs.iter().filter_map(pair).collect();
        let excluded_runs = [0, 1].map(|of| pairs.iter().filter(|pair| pair[of]).count() as u32);
        let most = most(other.runs.iter().filter_map(|(_, excluded)| *excluded));
        let subject = most.map(|excluded| Subject::Level {
            clients: level.clients,
            excluded,
            runs: pairs.len() as u32,
            excluded_runs,
            error_ratios: both.map(|of| of.row.error_ratio),
        });
        let [base, new] = excluded_runs;
        let is_suspected = new >= base + 2 || first.counting() >= MOST && other.counting() < MOST;
        (base + new > 0).then(|| Failing { subject, p: failures::p(&pairs), is_suspected })
    }
}

#[cfg(test)]
mod tests;
