//! How often the name is right: verdicts on targets whose limit was imposed, against what was imposed.
//!
//! Knows results and verdicts only. Which cases a run has is told by its experiment file; whoever calls has read it.

mod class;

pub use class::Class;

use super::bottleneck::Grade;
use super::{Findings, Row, WorkloadFindings, findings};
use lab_data::results::{NOT_IMPOSED, Results, Trial};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// A limit that is imposed must cost so much: without it goodput is at least so many times as high. Less, and it is not
/// known that it is what limits.
pub const BINDING: f64 = 1.3;

/// The share of the held-out cases that has to be right.
pub const GOAL: f64 = 0.9;

/// A target with an imposed limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Imposed {
    /// The target's name.
    pub target: String,
    /// The workload; `None` where the target has only one.
    pub workload: Option<String>,
    /// What the verdict has to be.
    pub expect: Class,
    /// How much was imposed, in the file's words: `5ms`.
    pub severity: String,
    /// What the case may be used for.
    pub split: Split,
    /// The target that lacks what was imposed; `None` where what is imposed limits nothing.
    pub reference: Option<String>,
}

/// What a case may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// The thresholds were chosen with it: how often these are right says little.
    Tune,
    /// Nobody looked at it when the thresholds were chosen.
    HeldOut,
}

impl Split {
    /// As in experiment files: `held-out`.
    pub fn name(self) -> &'static str {
        match self {
            Split::Tune => "tune",
            Split::HeldOut => "held-out",
        }
    }
}

/// A run of an experiment whose targets are cases.
#[derive(Clone, Debug)]
pub struct Run {
    /// The experiment's name.
    pub name: String,
    /// Its cases, in the file's order.
    pub cases: Vec<Imposed>,
    /// What was measured, one for each target that was.
    pub results: Vec<Results>,
}

/// What came of the cases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// Every case, in the order of runs and files.
    pub cases: Vec<Case>,
    /// Verdicts on held-out cases.
    pub held_out: Tally,
    /// Verdicts on the cases that thresholds were chosen with.
    pub tune: Tally,
    /// The same held-out cases, by the highest utilization.
    pub baseline_held_out: Tally,
    /// The same tuned cases, by the highest utilization.
    pub baseline_tune: Tally,
    /// How often which verdict came where what was expected, over both splits.
    pub confusion: Vec<Confusion>,
}

/// A case and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Case {
    /// The experiment.
    pub experiment: String,
    /// The target.
    pub target: String,
    /// The workload, where it is known.
    pub workload: Option<String>,
    /// How much was imposed.
    pub severity: String,
    /// What it may be used for.
    pub split: Split,
    /// What was imposed.
    #[serde(serialize_with = "spelled")]
    pub expected: Class,
    /// What the verdict was; `None` where there is none.
    #[serde(serialize_with = "spelled_where_known")]
    pub said: Option<Class>,
    /// How sure it was.
    pub grade: Option<Grade>,
    /// Goodput of the reference over goodput here, at the highest level that both have; `None` without a reference.
    pub binding: Option<f64>,
    /// What the highest utilization says.
    pub baseline: Option<Baseline>,
    /// Whether the verdict is right, or why it does not count.
    pub outcome: Outcome,
}

/// Whether a verdict is right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "why")]
pub enum Outcome {
    /// It says what was imposed.
    Right,
    /// It says something else.
    Wrong,
    /// It says nothing: counted among the cases, not among the right ones.
    Abstained,
    /// What was imposed limits nothing, or was not measured: counted nowhere.
    Discarded(String),
    /// The machine refused to impose it: counted nowhere.
    NotImposed(String),
}

impl Outcome {
    /// Whether the case is counted.
    pub fn counts(&self) -> bool {
        matches!(self, Outcome::Right | Outcome::Wrong | Outcome::Abstained)
    }
}

/// The resource with the highest utilization.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Baseline {
    /// Its name.
    pub resource: String,
    /// Busy share, 0–1.
    pub utilization: f64,
    /// Whether to name it would have been right.
    pub right: bool,
}

/// How many of some cases were right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// Cases that count.
    pub cases: u32,
    /// Right ones.
    pub right: u32,
    /// Of the right ones those where nothing limits and no answer was given: to know nothing is not to know that.
    pub right_without_answer: u32,
    /// Cases without an answer that were not right.
    pub abstained: u32,
    /// The share of the right ones, lower and upper end of Wilson's 95 % interval; `None` of no cases.
    pub interval: Option<(f64, f64)>,
}

/// A cell of the confusion matrix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Confusion {
    /// What was imposed.
    #[serde(serialize_with = "spelled")]
    pub expected: Class,
    /// What the verdict was.
    #[serde(serialize_with = "spelled")]
    pub said: Class,
    /// In how many cases.
    pub cases: u32,
}

impl Score {
    /// The cases in which a confirmed verdict is wrong.
    pub fn wrong_but_confirmed(&self) -> impl Iterator<Item = &Case> {
        let confirmed = |case: &&Case| case.grade == Some(Grade::Confirmed);
        self.cases.iter().filter(|case| case.outcome == Outcome::Wrong).filter(confirmed)
    }

    /// What speaks against the verdicts, in a line each; empty where nothing does.
    pub fn shortcomings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let wrong = self.wrong_but_confirmed().count();
        if wrong > 0 {
            lines.push(format!("{wrong} confirmed and wrong"));
        }
        match self.held_out.share() {
            None => lines.push("no held-out case was scored".to_owned()),
            Some(share) if share < GOAL => {
                let Tally { right, cases, .. } = self.held_out;
                lines.push(format!(
                    "{right} of {cases} held-out cases right, fewer than {:.0} %",
                    GOAL * 100.0
                ));
            }
            Some(_) => {}
        }
        lines
    }

    /// Experiments with cases that count, and how many severities of each do.
    pub fn kinds(&self) -> BTreeMap<&str, usize> {
        let mut severities: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
        for case in self.cases.iter().filter(|case| case.outcome.counts()) {
            severities.entry(&case.experiment).or_default().insert((&case.target, &case.severity));
        }
        severities.into_iter().map(|(kind, of)| (kind, of.len())).collect()
    }
}

impl Tally {
    /// The share of the right ones; `None` of no cases.
    pub fn share(&self) -> Option<f64> {
        (self.cases > 0).then(|| f64::from(self.right) / f64::from(self.cases))
    }
}

/// Scores the verdicts on all cases of `runs`.
pub fn score(runs: &[Run]) -> Score {
    let mut cases = Vec::new();
    for run in runs {
        let found: Vec<Findings> = run.results.iter().map(findings).collect();
        cases.extend(run.cases.iter().map(|imposed| judge(run, &found, imposed)));
    }
    let of = |split: Split| cases.iter().filter(move |case: &&Case| case.split == split);
    let mut counts: BTreeMap<(Class, Class), u32> = BTreeMap::new();
    for case in cases.iter().filter(|case| case.outcome.counts()) {
        if let Some(said) = &case.said {
            *counts.entry((case.expected.clone(), said.clone())).or_default() += 1;
        }
    }
    Score {
        held_out: tally(of(Split::HeldOut), verdict),
        tune: tally(of(Split::Tune), verdict),
        baseline_held_out: tally(of(Split::HeldOut), baseline_verdict),
        baseline_tune: tally(of(Split::Tune), baseline_verdict),
        confusion: counts
            .into_iter()
            .map(|((expected, said), cases)| Confusion { expected, said, cases })
            .collect(),
        cases,
    }
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
        let mut own = self.results.trials.iter().filter(|trial| trial.workload == self.found.name);
        let first: &Trial = own.clone().next()?;
        own.all(|trial| trial.numbers().is_none())
            .then(|| first.failure.as_deref().unwrap_or("no reason given"))
    }

    /// The rows that have a goodput, ascending.
    fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.found.rows.iter().filter(|row| row.goodput_rps.is_some())
    }
}

fn judge(run: &Run, found: &[Findings], imposed: &Imposed) -> Case {
    let measured = |target: &str, workload: Option<&str>| {
        let is_it = |results: &Results| results.measured.as_ref().is_none_or(|of| of.target == target);
        let at = run.results.iter().position(is_it)?;
        let all = &found[at].workloads;
        // A workload with a limit of its own has another name in the target without it.
        let named = all.iter().find(|of| Some(of.name.as_str()) == workload);
        let found = named.or_else(|| all.first().filter(|_| all.len() == 1))?;
        Some(Measured { results: &run.results[at], found })
    };
    let own = measured(&imposed.target, imposed.workload.as_deref());
    let mut case = Case {
        experiment: run.name.clone(),
        target: imposed.target.clone(),
        workload: own.map(|of| of.found.name.clone()).or_else(|| imposed.workload.clone()),
        severity: imposed.severity.clone(),
        split: imposed.split,
        expected: imposed.expect.clone(),
        said: None,
        grade: None,
        binding: None,
        baseline: None,
        outcome: Outcome::Discarded("it did not run".to_owned()),
    };
    let Some(own) = own else { return case };
    if let Some(why) = own.failure() {
        // Anything else that went wrong is no property of the machine.
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
    case.outcome = match () {
        () if imposed.expect.is_met_by(&said) => Outcome::Right,
        () if said == Class::NotIdentified => Outcome::Abstained,
        () => Outcome::Wrong,
    };
    case.said = Some(said);
    if let Some(reference) = &imposed.reference {
        let reference_of = measured(reference, imposed.workload.as_deref());
        case.binding = reference_of.and_then(|reference| ratio(reference, own));
        case.outcome = match case.binding {
            None => Outcome::Discarded(format!("`{reference}`, without what was imposed, did not run")),
            Some(ratio) if ratio < BINDING => Outcome::Discarded(format!(
                "not binding: without what was imposed goodput is {ratio:.2} × as high, not {BINDING} ×"
            )),
            Some(_) => case.outcome,
        };
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

/// The busiest resource of the highest usable level, of the highest one where none is: pools, disks and the generator
/// included, as reports argue that look at utilizations alone.
fn baseline(of: Measured, expected: &Class) -> Option<Baseline> {
    let row = of.rows().rev().find(|row| row.usable()).or_else(|| of.rows().next_back())?;
    let uses = row.resources.iter().zip(&of.results.resources);
    let (busiest, resource) = uses
        .filter(|(of, _)| of.utilization.is_some())
        .max_by(|(a, _), (b, _)| a.utilization.unwrap_or(0.0).total_cmp(&b.utilization.unwrap_or(0.0)))?;
    let classes = class::generous(resource.kind, resource.limit, &resource.busy);
    Some(Baseline {
        resource: busiest.name.clone(),
        utilization: busiest.utilization?,
        right: classes.contains(expected),
    })
}

fn verdict(case: &Case) -> Outcome {
    case.outcome.clone()
}

/// The baseline's on the same case: it always names something.
fn baseline_verdict(case: &Case) -> Outcome {
    match (&case.outcome, &case.baseline) {
        (of, _) if !of.counts() => of.clone(),
        (_, Some(Baseline { right: true, .. })) => Outcome::Right,
        (_, Some(_)) => Outcome::Wrong,
        (_, None) => Outcome::Abstained,
    }
}

fn tally<'a>(cases: impl Iterator<Item = &'a Case>, verdict: fn(&Case) -> Outcome) -> Tally {
    let mut tally = Tally::default();
    for case in cases {
        let outcome = verdict(case);
        tally.cases += u32::from(outcome.counts());
        tally.right += u32::from(outcome == Outcome::Right);
        tally.abstained += u32::from(outcome == Outcome::Abstained);
        let silent = case.expected == Class::None && case.said == Some(Class::NotIdentified);
        tally.right_without_answer += u32::from(outcome == Outcome::Right && silent);
    }
    tally.interval = wilson(tally.right, tally.cases);
    tally
}

/// The 95 % interval of a share of which `right` of `cases` were drawn; `None` of none.
///
/// Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference (1927).
fn wilson(right: u32, cases: u32) -> Option<(f64, f64)> {
    const Z: f64 = 1.959_964;
    let n = f64::from(cases);
    let p = f64::from(right) / n;
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (cases > 0).then(|| (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)))
}

fn spelled<S: Serializer>(class: &Class, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(class)
}

fn spelled_where_known<S: Serializer>(class: &Option<Class>, serializer: S) -> Result<S::Ok, S::Error> {
    match class {
        Some(class) => serializer.collect_str(class),
        None => serializer.serialize_none(),
    }
}

#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(test), allow(dead_code, missing_docs, unused_imports))]
pub mod tests;
