//! Verdicts on targets with an imposed limit, and whether they are right.

use super::class::{Class, of_resource};
use lab_analysis::{Findings, Grade, Row, WorkloadFindings, findings};
use lab_data::experiment::{self, Split};
use lab_data::results::{NOT_IMPOSED, Results};

/// Without an imposed limit goodput is at least this many times as high. If it is less, the limit may be another one.
pub(crate) const BINDING: f64 = 1.3;

/// The share of the held-out cases that has to be right.
const GOAL: f64 = 0.9;

/// A target with an imposed limit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Imposed {
    /// As in the experiment file.
    pub(crate) case: experiment::Case,
    /// What the verdict has to be.
    pub(crate) expect: Class,
}

/// A run of an experiment that has cases.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The experiment's name.
    pub(crate) name: String,
    /// Its cases, in the file's order.
    pub(crate) cases: Vec<Imposed>,
    /// What was measured, one for each target that was.
    pub(crate) results: Vec<Results>,
}

/// A case and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The experiment.
    pub(crate) experiment: String,
    /// What was imposed.
    pub(crate) imposed: Imposed,
    /// The verdict; `None` where there is none.
    pub(crate) said: Option<Class>,
    /// Its grade.
    pub(crate) grade: Option<Grade>,
    /// Goodput of the reference over goodput here, at the highest level that both have; `None` without a reference.
    pub(crate) binding: Option<f64>,
    /// What the highest utilization says.
    pub(crate) baseline: Option<Baseline>,
    /// Whether the verdict is right.
    pub(crate) outcome: Outcome,
}

/// Whether a verdict is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It names what was imposed.
    Right,
    /// It names something else.
    Wrong,
    /// It names nothing, which is not right.
    Abstained,
    /// What was imposed limits nothing, or was not measured: not counted.
    Discarded(String),
    /// The machine refused to impose it: not counted.
    NotImposed(String),
}

/// The resource with the highest utilization.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Baseline {
    /// Its name.
    pub(crate) resource: String,
    /// Busy share, 0–1.
    pub(crate) utilization: f64,
    /// Whether naming it would be right.
    pub(crate) right: bool,
}

/// How many of some cases are right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    /// Cases that count.
    pub(crate) cases: u32,
    /// Right ones.
    pub(crate) right: u32,
    /// Cases without an answer that are not right.
    pub(crate) abstained: u32,
}

impl Case {
    /// Whether it is counted.
    pub(crate) fn counts(&self) -> bool {
        matches!(self.outcome, Outcome::Right | Outcome::Wrong | Outcome::Abstained)
    }

    /// Whether it is wrong although it was confirmed.
    pub(crate) fn is_confirmed_and_wrong(&self) -> bool {
        self.outcome == Outcome::Wrong && self.grade == Some(Grade::Confirmed)
    }
}

/// What speaks against the verdicts, in a line each.
pub(crate) fn shortcomings(cases: &[Case]) -> Vec<String> {
    let mut lines = Vec::new();
    let wrong = cases.iter().filter(|case| case.is_confirmed_and_wrong()).count();
    if wrong > 0 {
        lines.push(format!("{wrong} confirmed and wrong"));
    }
    match tally(cases, Split::HeldOut) {
        Tally { cases: 0, .. } => lines.push("no held-out case was scored".to_owned()),
        Tally { right, cases, .. } if f64::from(right) < GOAL * f64::from(cases) => {
            lines.push(format!("{right} of {cases} held-out cases right, fewer than {:.0} %", GOAL * 100.0));
        }
        _ => {}
    }
    lines
}

/// Counts the verdicts of the lab on the cases of a split.
pub(crate) fn tally(cases: &[Case], split: Split) -> Tally {
    count(cases, split, |case| (case.outcome == Outcome::Right, case.outcome == Outcome::Abstained))
}

/// Counts what the highest utilization says of the same cases.
pub(crate) fn tally_of_baseline(cases: &[Case], split: Split) -> Tally {
    count(cases, split, |case| (case.baseline.as_ref().is_some_and(|of| of.right), case.baseline.is_none()))
}

/// `verdict` tells whether a case is right, and whether there is no answer.
fn count(cases: &[Case], split: Split, verdict: fn(&Case) -> (bool, bool)) -> Tally {
    let mut tally = Tally::default();
    for case in cases.iter().filter(|case| case.imposed.case.split == split && case.counts()) {
        let (right, abstained) = verdict(case);
        tally.cases += 1;
        tally.right += u32::from(right);
        tally.abstained += u32::from(abstained);
    }
    tally
}

/// Judges the verdicts on all cases of `runs`, in their order.
pub(crate) fn judge(runs: &[Run]) -> Vec<Case> {
    let mut cases = Vec::new();
    for run in runs {
        let found: Vec<Findings> = run.results.iter().map(findings).collect();
        cases.extend(run.cases.iter().map(|imposed| judge_case(run, &found, imposed)));
    }
    cases
}

/// A target's results and what was found of one of its workloads.
#[derive(Clone, Copy)]
struct Measured<'a> {
    results: &'a Results,
    found: &'a WorkloadFindings,
}

impl Measured<'_> {
    /// Why none of its trials ran; `None` where one did.
    fn failure(&self) -> Option<&str> {
        let own = || self.results.trials.iter().filter(|trial| trial.workload == self.found.name);
        let first = own().next()?;
        let none_ran = own().all(|trial| trial.numbers().is_none());
        none_ran.then(|| first.failure.as_deref().unwrap_or("no reason given"))
    }

    /// The rows that have a goodput, ascending.
    fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.found.rows.iter().filter(|row| row.goodput_rps.is_some())
    }
}

fn judge_case(run: &Run, found: &[Findings], imposed: &Imposed) -> Case {
    let experiment::Case { target, workload, reference, .. } = &imposed.case;
    let measured = |target: &str| {
        let is_it = |results: &Results| results.measured.as_ref().is_none_or(|of| of.target == target);
        let at = run.results.iter().position(is_it)?;
        let all = &found[at].workloads;
        // A workload with a limit of its own has another name in the target without it.
        let named = all.iter().find(|of| Some(&of.name) == workload.as_ref());
        let found = named.or_else(|| all.first().filter(|_| all.len() == 1))?;
        Some(Measured { results: &run.results[at], found })
    };
    let mut case = Case {
        experiment: run.name.clone(),
        imposed: imposed.clone(),
        said: None,
        grade: None,
        binding: None,
        baseline: None,
        outcome: Outcome::Discarded("it did not run".to_owned()),
    };
    let Some(own) = measured(target) else { return case };
    if let Some(why) = own.failure() {
        case.outcome = match why.strip_prefix(NOT_IMPOSED) {
            Some(why) => Outcome::NotImposed(why.to_owned()),
            None => Outcome::Discarded(format!("every trial failed: {why}")),
        };
        return case;
    }
    if own.rows().next().is_none() {
        return case;
    }
    let said = Class::said(&own.found.bottleneck);
    case.grade = Some(own.found.bottleneck.grade);
    case.baseline = baseline(own, &imposed.expect);
    case.outcome = match said {
        _ if imposed.expect.is_met_by(&said) => Outcome::Right,
        Class::NotIdentified => Outcome::Abstained,
        _ => Outcome::Wrong,
    };
    case.said = Some(said);
    if let Some(reference) = reference {
        case.binding = measured(reference).and_then(|reference| ratio(reference, own));
        match case.binding {
            None => {
                let why = format!("`{reference}`, without what was imposed, did not run");
                case.outcome = Outcome::Discarded(why);
            }
            Some(ratio) if ratio < BINDING => {
                case.outcome = Outcome::Discarded(format!(
                    "not binding: without what was imposed goodput is {ratio:.2} × as high, not {BINDING} ×"
                ));
            }
            Some(_) => {}
        }
    }
    case
}

/// Goodput of `reference` over that of `own`, at the highest level that both have.
fn ratio(reference: Measured, own: Measured) -> Option<f64> {
    own.rows().rev().find_map(|row| {
        let other = reference.rows().find(|other| other.level == row.level)?;
        let (own, other) = (row.goodput_rps?.mean, other.goodput_rps?.mean);
        (other > 0.0 && own > 0.0).then_some(other / own)
    })
}

/// The busiest resource of the highest usable level, or of the highest one if none is usable. Pools, disks and the generator are
/// included.
fn baseline(of: Measured, expected: &Class) -> Option<Baseline> {
    let row = of.rows().rev().find(|row| row.usable()).or_else(|| of.rows().next_back())?;
    let known = row.resources.iter().zip(&of.results.resources);
    let known = known.filter_map(|(of, resource)| Some((of.utilization?, resource)));
    let (utilization, resource) = known.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let classes = of_resource(resource.kind, resource.limit, &resource.busy);
    Some(Baseline { resource: resource.name.clone(), utilization, right: classes.contains(expected) })
}
