//! What a verdict says and what a case expects, in the same few words, and when the one is right of the other.

use super::super::bottleneck::{Bottleneck, Evidence, Grade};
use lab_data::results::{Limit, ResourceKind};
use std::collections::BTreeSet;
use std::fmt;

/// How it begins if several limits share the load; there is ` + ` between them.
const SHARED: &str = "shared: ";

/// A verdict without its figures.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// These limit it; several share the load. Never empty.
    Limited(BTreeSet<Limit>),
    /// Nothing does: clients are in a delay, or too few.
    None,
    /// Failures pass for throughput.
    FastFail,
    /// The load generator is the limit.
    Generator,
    /// No answer.
    NotIdentified,
}

impl Class {
    /// These limit it: the generator by itself is no limit of the target.
    pub fn of_limits(limits: impl IntoIterator<Item = Limit>) -> Class {
        let limits: BTreeSet<Limit> = limits.into_iter().collect();
        match limits.first() {
            None => Class::NotIdentified,
            Some(Limit::Generator) if limits.len() == 1 => Class::Generator,
            Some(_) => Class::Limited(limits),
        }
    }

    /// What `bottleneck` says.
    pub fn said(bottleneck: &Bottleneck) -> Class {
        // A resource without a name of its own as a limit is at least none of those that have one.
        let limit = |of: &Evidence| of.limit.unwrap_or(Limit::Other);
        match bottleneck.grade {
            Grade::Confirmed | Grade::Supported => Class::of_limits(bottleneck.named.iter().map(limit)),
            Grade::Delay => Class::None,
            Grade::FastFail => Class::FastFail,
            Grade::Generator => Class::Generator,
            Grade::NotIdentified => Class::NotIdentified,
        }
    }

    /// Whether a verdict that `said` so is right where `self` is expected. Of a shared limit all must be named; one more
    /// does no harm. Where nothing limits, not to name anything is right.
    pub fn is_met_by(&self, said: &Class) -> bool {
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
                out.write_str(if names.len() > 1 { SHARED } else { "" })?;
                out.write_str(&names.join(" + "))
            }
            Class::None => out.write_str("none"),
            Class::FastFail => out.write_str("fast-fail"),
            Class::Generator => out.write_str("generator"),
            Class::NotIdentified => out.write_str("not identified"),
        }
    }
}

/// What a resource may be taken for by somebody who looks at utilizations alone: each of these counts as right. A busy disk
/// stands for whatever there is of disks, and cores that two parts share for the processor of either.
pub(super) fn generous(kind: ResourceKind, limit: Option<Limit>, busy: &[String]) -> BTreeSet<Class> {
    let one = |limit: Limit| Class::Limited([limit].into());
    let has =
        |part: &str| busy.iter().any(|counter| counter.starts_with(part) && counter.ends_with(".cpu_secs"));
    if kind == ResourceKind::Generator {
        return [Class::Generator].into();
    }
    if busy.iter().any(|counter| counter.starts_with("disk.")) {
        return [Limit::CommitPath, Limit::Bandwidth, Limit::Reads].map(one).into();
    }
    let processors = [
        (has("server"), [Limit::ServerCpu, Limit::ServerQuota]),
        (has("database"), [Limit::DatabaseCpu, Limit::DatabaseQuota]),
    ];
    let mut classes: BTreeSet<Class> =
        processors.into_iter().filter(|(used, _)| *used).flat_map(|(_, limits)| limits.map(one)).collect();
    if classes.is_empty() {
        classes.insert(one(limit.unwrap_or(Limit::Other)));
    }
    classes
}
