//! Verdicts on targets with an imposed limit, and whether they are right.

use super::truth::{self, LimitVerdict, Split};
use lab_analysis::{Bottleneck, Findings, Grade, Row, WorkloadFindings, findings};
use lab_data::results::{Limit, NOT_IMPOSED, Resource, ResourceKind, Results};

/// Without an imposed limit goodput is at least this many times as high. If it is less, the limit may be another one.
pub(crate) const BINDING: f64 = 1.3;

/// The share of the held-out cases that has to be right.
pub(crate) const GOAL: f64 = 0.9;

/// A run of an experiment that has cases.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The experiment's name.
    pub(crate) name: String,
    /// Its cases, in the file's order.
    pub(crate) cases: Vec<truth::Case>,
    /// What was measured, one for each target that was.
    pub(crate) results: Vec<Results>,
}

/// A case and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// The experiment.
    pub(crate) experiment: String,
    /// What was imposed.
    pub(crate) imposed: truth::Case,
    /// The verdict; `None` where there is none.
    pub(crate) said: Option<LimitVerdict>,
    /// Its grade.
    pub(crate) grade: Option<Grade>,
    /// Goodput of the reference over goodput here, at the highest level that both have; `None` without a reference.
    pub(crate) binding: Option<f64>,
    /// What the highest utilization says.
    pub(crate) baseline: Option<Baseline>,
    /// Whether the verdict is right.
    pub(crate) outcome: Outcome,
    /// Why it is not counted; empty of a case that is.
    pub(crate) why: String,
}

/// Whether a verdict is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It names what was imposed.
    Right,
    /// It names something else.
    Wrong,
    /// It names nothing, which is not right.
    NoAnswer,
    /// What was imposed limits nothing, or was not measured: not counted.
    Discarded,
    /// The machine refused to impose it: not counted.
    NotImposed,
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

/// Whether an answer to a case is right; `None` where there is none.
pub(crate) type IsRight = fn(&Case) -> Option<bool>;

impl Case {
    /// Whether it is counted.
    fn counts(&self) -> bool {
        !matches!(self.outcome, Outcome::Discarded | Outcome::NotImposed)
    }

    /// Whether the lab is right; `None` where it says nothing.
    pub(crate) fn is_right(&self) -> Option<bool> {
        (self.outcome != Outcome::NoAnswer).then_some(self.outcome == Outcome::Right)
    }

    /// The same of the highest utilization.
    pub(crate) fn is_baseline_right(&self) -> Option<bool> {
        self.baseline.as_ref().map(|of| of.right)
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
    match tally(cases, Split::HeldOut, Case::is_right) {
        Tally { cases: 0, .. } => lines.push("no held-out case was scored".to_owned()),
        Tally { right, cases, .. } if f64::from(right) < GOAL * f64::from(cases) => {
            lines.push(format!("{right} of {cases} held-out cases right, fewer than {:.0} %", GOAL * 100.0));
        }
        _ => {}
    }
    lines
}

/// Counts what `is_right` says of the cases of a split.
pub(crate) fn tally(cases: &[Case], split: Split, is_right: IsRight) -> Tally {
    let mut tally = Tally::default();
    for case in cases.iter().filter(|case| case.imposed.split == split && case.counts()) {
        let is_right = is_right(case);
        tally.cases += 1;
        tally.right += u32::from(is_right == Some(true));
        tally.abstained += u32::from(is_right.is_none());
    }
    tally
}

/// Judges the verdicts on all cases of `runs`, in their order.
pub(crate) fn judge(runs: &[Run]) -> Vec<Case> {
    let judge_run = |run: &Run| {
        let found: Vec<Findings> = run.results.iter().map(findings).collect();
        run.cases.iter().map(|imposed| judge_case(run, &found, imposed)).collect::<Vec<_>>()
    };
    runs.iter().flat_map(judge_run).collect()
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
        let own = || self.results.trials_of(&self.found.name);
        let first = own().next()?;
        let none_ran = own().all(|trial| trial.numbers().is_none());
        none_ran.then(|| first.failure.as_deref().unwrap_or("no reason given"))
    }

    /// The rows that have a goodput, ascending.
    fn rows(&self) -> impl DoubleEndedIterator<Item = &Row> {
        self.found.rows.iter().filter(|row| row.goodput_rps.is_some())
    }
}

fn judge_case(run: &Run, found: &[Findings], imposed: &truth::Case) -> Case {
    let measured = |target: &str| {
        let is_it = |results: &Results| results.measured.as_ref().is_none_or(|of| of.target == target);
        let at = run.results.iter().position(is_it)?;
        let all = &found[at].workloads;
        // A workload with a limit of its own has another name in the target without it.
        let named = all.iter().find(|of| Some(&of.name) == imposed.workload.as_ref());
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
        outcome: Outcome::Discarded,
        why: "it did not run".to_owned(),
    };
    let Some(own) = measured(&imposed.target) else { return case };
    if let Some(why) = own.failure() {
        (case.outcome, case.why) = match why.strip_prefix(NOT_IMPOSED) {
            Some(why) => (Outcome::NotImposed, why.to_owned()),
            None => (Outcome::Discarded, format!("every trial failed: {why}")),
        };
        return case;
    }
    if own.rows().next().is_none() {
        return case;
    }
    let said = verdict(&own.found.bottleneck);
    case.grade = Some(own.found.bottleneck.grade);
    case.baseline = baseline(own, &imposed.expect);
    let reference = imposed.reference.as_deref();
    case.binding = reference.and_then(measured).and_then(|reference| ratio(reference, own));
    case.why = match (reference, case.binding) {
        (Some(reference), None) => format!("`{reference}`, without the imposed limit, did not run"),
        (_, Some(ratio)) if ratio < BINDING => {
            format!("no effect: without the imposed limit goodput is {ratio:.2} × as high, not {BINDING} ×")
        }
        _ => String::new(),
    };
    case.outcome = match &said {
        _ if !case.why.is_empty() => Outcome::Discarded,
        said if is_right(&imposed.expect, said) => Outcome::Right,
        LimitVerdict::Limits(none) if none.is_empty() => Outcome::NoAnswer,
        _ => Outcome::Wrong,
    };
    case.said = Some(said);
    case
}

/// What the lab says, without figures.
pub(crate) fn verdict(bottleneck: &Bottleneck) -> LimitVerdict {
    let named = || bottleneck.named.iter().map(|of| of.limit.unwrap_or(Limit::Other));
    match bottleneck.grade {
        Grade::Confirmed | Grade::Supported | Grade::Suspected => LimitVerdict::Limits(named().collect()),
        Grade::Delay => LimitVerdict::Nothing,
        Grade::FastFail => LimitVerdict::FastFail,
        Grade::Generator => LimitVerdict::Limits([Limit::Generator].into()),
        Grade::NotIdentified => LimitVerdict::Limits([].into()),
    }
}

/// Whether `said` is right. Of a shared limit all must be named; one more is allowed. Where nothing limits, no answer is right.
pub(crate) fn is_right(expected: &LimitVerdict, said: &LimitVerdict) -> bool {
    match (expected, said) {
        (LimitVerdict::Limits(expected), LimitVerdict::Limits(said)) if expected.len() > 1 => {
            expected.is_subset(said)
        }
        (LimitVerdict::Nothing, LimitVerdict::Limits(said)) => said.is_empty(),
        _ => expected == said,
    }
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
fn baseline(of: Measured, expected: &LimitVerdict) -> Option<Baseline> {
    let row = of.rows().rev().find(|row| row.usable()).or_else(|| of.rows().next_back())?;
    let known = row.resources.iter().zip(&of.results.resources);
    let known = known.filter_map(|(of, resource)| Some((of.utilization?, resource)));
    let (utilization, resource) = known.max_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let is_it = |limit: Limit| *expected == LimitVerdict::Limits([limit].into());
    let right = limits_of(resource).into_iter().any(is_it);
    Some(Baseline { resource: resource.name.clone(), utilization, right })
}

/// The limits that a resource may stand for if only utilizations are read; each counts as right. A busy disk stands for every
/// limit of a disk, cores that two parts share for the processor of either.
fn limits_of(resource: &Resource) -> Vec<Limit> {
    const PARTS: [(&str, &str, &[Limit]); 3] = [
        ("disk.", "", &[Limit::CommitPath, Limit::Bandwidth, Limit::Reads]),
        ("server", ".cpu_secs", &[Limit::ServerCpu, Limit::ServerQuota]),
        ("database", ".cpu_secs", &[Limit::DatabaseCpu, Limit::DatabaseQuota]),
    ];
    if resource.kind == ResourceKind::Generator {
        return vec![Limit::Generator];
    }
    let has = |begin: &str, end: &str| {
        resource.busy.iter().any(|counter| counter.starts_with(begin) && counter.ends_with(end))
    };
    let parts = PARTS.iter().filter(|(begin, end, _)| has(begin, end));
    let limits: Vec<Limit> = parts.flat_map(|(.., limits)| *limits).copied().collect();
    if limits.is_empty() { vec![resource.limit.unwrap_or(Limit::Other)] } else { limits }
}
