//! Verdicts and expectations in the same few words, and when a verdict is right.

use lab_analysis::{Bottleneck, Evidence, Grade};
use lab_data::experiment::Expected;
use lab_data::results::{Limit, ResourceKind};
use std::collections::BTreeSet;
use std::fmt;

/// A verdict without its figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// These limit it; several share the load. Never empty.
    Limited(BTreeSet<Limit>),
    /// Nothing limits it: clients are in a delay, or too few.
    None,
    /// Requests fail fast.
    FastFail,
    /// The load generator is the limit.
    Generator,
    /// No answer.
    NotIdentified,
}

impl Class {
    /// What an experiment file expects.
    pub(crate) fn expected(expected: Expected) -> Class {
        match expected {
            Expected::Nothing => Class::None,
            Expected::FastFail => Class::FastFail,
            Expected::Limits(limits) => Class::of_limits(limits),
        }
    }

    /// These limit it. The generator alone is no limit of the target.
    pub(crate) fn of_limits(limits: impl IntoIterator<Item = Limit>) -> Class {
        let limits: BTreeSet<Limit> = limits.into_iter().collect();
        match limits.first() {
            None => Class::NotIdentified,
            Some(Limit::Generator) if limits.len() == 1 => Class::Generator,
            Some(_) => Class::Limited(limits),
        }
    }

    /// What the lab says.
    pub(crate) fn said(bottleneck: &Bottleneck) -> Class {
        let limit = |of: &Evidence| of.limit.unwrap_or(Limit::Other);
        match bottleneck.grade {
            Grade::Confirmed | Grade::Supported => Class::of_limits(bottleneck.named.iter().map(limit)),
            Grade::Delay => Class::None,
            Grade::FastFail => Class::FastFail,
            Grade::Generator => Class::Generator,
            Grade::NotIdentified => Class::NotIdentified,
        }
    }

    /// Whether `said` is right where `self` is expected. Of a shared limit all must be named; one more is allowed. Where nothing
    /// limits, no answer is right.
    pub(crate) fn is_met_by(&self, said: &Class) -> bool {
        match (self, said) {
            (Class::Limited(expected), Class::Limited(said)) if expected.len() > 1 => {
                expected.is_subset(said)
            }
            (Class::None, Class::NotIdentified) => true,
            _ => self == said,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Class::Limited(limits) => {
                let names: Vec<&str> = limits.iter().map(|limit| limit.name()).collect();
                out.write_str(if names.len() > 1 { "shared: " } else { "" })?;
                out.write_str(&names.join(" + "))
            }
            Class::None => out.write_str("none"),
            Class::FastFail => out.write_str("fast-fail"),
            Class::Generator => out.write_str("generator"),
            Class::NotIdentified => out.write_str("not identified"),
        }
    }
}

/// The classes that a resource may stand for if only utilizations are read; each counts as right. A busy disk stands for every
/// limit of a disk, cores that two parts share for the processor of either.
pub(crate) fn of_resource(kind: ResourceKind, limit: Option<Limit>, busy: &[String]) -> Vec<Class> {
    let one = |limit: Limit| Class::Limited([limit].into());
    let has =
        |part: &str| busy.iter().any(|counter| counter.starts_with(part) && counter.ends_with(".cpu_secs"));
    if kind == ResourceKind::Generator {
        return vec![Class::Generator];
    }
    let mut limits = Vec::new();
    if busy.iter().any(|counter| counter.starts_with("disk.")) {
        limits.extend([Limit::CommitPath, Limit::Bandwidth, Limit::Reads]);
    } else {
        limits.extend(has("server").then_some([Limit::ServerCpu, Limit::ServerQuota]).into_iter().flatten());
        let database = has("database").then_some([Limit::DatabaseCpu, Limit::DatabaseQuota]);
        limits.extend(database.into_iter().flatten());
    }
    if limits.is_empty() {
        limits.push(limit.unwrap_or(Limit::Other));
    }
    limits.into_iter().map(one).collect()
}
