//! What is known of an experiment before it runs: which limit was put into which of its targets.
//!
//! Only the shape and its checks. What it is compared with, and how that is scored, is decided elsewhere.

use super::Experiment;
use super::check::{Checked, is_one_of};
use crate::ensure;
use crate::results::Limit;
use kv::Error;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;

/// `[truth]`: the cases that findings are to be compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truth {
    /// In the file's order.
    #[serde(rename = "case", default)]
    pub cases: Vec<Case>,
}

/// What limits a target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The target's name.
    pub target: String,
    /// The workload's; `None` where the file has only one.
    pub workload: Option<String>,
    /// What is to be found, in the words of [`LimitVerdict::parse`].
    pub expect: String,
    /// How severe the limit is, in the file's words: `5ms`.
    #[serde(default)]
    pub severity: String,
    /// What the case may be used for.
    pub split: Split,
    /// The target without the limit: where that is not clearly faster, the limit does not bind. `None` of cases in which nothing is
    /// to bind.
    pub reference: Option<String>,
}

/// What a case may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Split {
    /// For choosing rules and their constants.
    Tune,
    /// Only for judging them.
    HeldOut,
}

/// What limits a target, without figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitVerdict {
    /// No limit: the time is a delay that grows with nothing.
    Nothing,
    /// No limit of goodput: requests fail fast.
    FastFail,
    /// One limit, or several that share the load; empty where none is identified.
    Limits(BTreeSet<Limit>),
}

impl LimitVerdict {
    /// Of `none`, `fast-fail`, a limit's name (`commit path`), or `shared: server CPU + connection pool`. The error says what may
    /// stand there.
    pub fn parse(text: &str) -> Result<LimitVerdict, Error> {
        let words = text.trim();
        let shared = words.strip_prefix("shared:");
        let names: Vec<&str> = shared.unwrap_or(words).split('+').map(str::trim).collect();
        let limits: BTreeSet<Limit> = Limit::all().filter(|limit| names.contains(&limit.name())).collect();
        match words {
            "none" => Ok(LimitVerdict::Nothing),
            "fast-fail" => Ok(LimitVerdict::FastFail),
            // Each name is that of a limit, and none is given twice.
            _ if limits.len() == names.len() && shared.is_some() == (names.len() > 1) => {
                Ok(LimitVerdict::Limits(limits))
            }
            _ => {
                let names: Vec<&str> = Limit::all().map(Limit::name).collect();
                Err(Error::input(format_args!("expect `{text}` is nothing that can be found")).hint(
                    format_args!("use none, fast-fail, {}, or shared: A + B of these", names.join(", ")),
                ))
            }
        }
    }
}

impl fmt::Display for LimitVerdict {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        match self {
            LimitVerdict::Nothing => out.write_str("none"),
            LimitVerdict::FastFail => out.write_str("fast-fail"),
            LimitVerdict::Limits(limits) if limits.is_empty() => out.write_str("not identified"),
            LimitVerdict::Limits(limits) => {
                let names: Vec<&str> = limits.iter().map(|limit| limit.name()).collect();
                write!(out, "{}{}", if names.len() > 1 { "shared: " } else { "" }, names.join(" + "))
            }
        }
    }
}

impl Truth {
    /// Whether every case speaks of targets and workloads that there are. One line, with the remedy.
    pub(super) fn check(&self, experiment: &Experiment) -> Checked {
        let hint = "add a [[truth.case]], or remove the section";
        ensure(!self.cases.is_empty(), "truth: there is no case", hint)?;
        let has_names = experiment.subjects.iter().any(|subject| subject.name.is_some());
        ensure(has_names, "truth: the one target has no name", "write [[target]], and a name")?;
        self.cases.iter().enumerate().try_for_each(|(index, case)| {
            case.check(experiment).map_err(|why| why.at(format_args!("truth.case {}", index + 1)))
        })
    }

    /// Leaves the cases that speak only of what `experiment` has still; whether there are any.
    pub(super) fn narrow(&mut self, experiment: &Experiment) -> bool {
        self.cases.retain(|case| case.check(experiment).is_ok());
        !self.cases.is_empty()
    }
}

impl Case {
    fn check(&self, experiment: &Experiment) -> Checked {
        let targets: Vec<&str> = experiment.subjects.iter().filter_map(|of| of.name.as_deref()).collect();
        let workloads_of = |key: &str, target: &str| -> Result<Vec<String>, Error> {
            is_one_of(key, target, &targets)?;
            let subject = experiment.subjects.iter().filter(|of| of.name.as_deref() == Some(target));
            let workloads = subject.flat_map(|of| experiment.workloads_of(of));
            Ok(workloads.map(|workload| workload.name).collect())
        };
        let own = workloads_of("target", &self.target)?;
        let workload = match (&self.workload, own.as_slice()) {
            (Some(name), _) => name,
            (None, [only]) => only,
            (None, _) => {
                return Err(Error::input(format_args!("target `{}` has several workloads", self.target))
                    .hint(format_args!("say workload = one of {}", own.join(", "))));
            }
        };
        let names: Vec<&str> = own.iter().map(String::as_str).collect();
        is_one_of("workload", workload, &names)?;
        LimitVerdict::parse(&self.expect)?;
        let Some(reference) = &self.reference else { return Ok(()) };
        let itself = format!("reference `{reference}` is the target itself");
        ensure(*reference != self.target, itself, "name the one without the limit")?;
        // A cap is the workload's own: without it, it is another workload, the only one of its target.
        let is_capped = experiment.workloads.iter().any(|of| of.name == *workload && of.write_cap.is_some());
        let others = workloads_of("reference", reference)?;
        let takes_part = others.contains(workload) || is_capped && others.len() == 1;
        let what = format!("reference `{reference}` takes no part in workload `{workload}`");
        ensure(takes_part, what, "name another, or add it there")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits<const N: usize>(limits: [Limit; N]) -> LimitVerdict {
        LimitVerdict::Limits(limits.into())
    }

    #[test]
    fn what_is_expected_is_a_limits_name_or_one_of_the_other_words() {
        for (text, expected) in [
            ("none", LimitVerdict::Nothing),
            ("fast-fail", LimitVerdict::FastFail),
            ("generator", limits([Limit::Generator])),
            ("server CPU (quota)", limits([Limit::ServerQuota])),
            ("shared: server CPU + commit path", limits([Limit::ServerCpu, Limit::CommitPath])),
        ] {
            assert_eq!(expected.to_string(), text);
            assert_eq!(LimitVerdict::parse(text), Ok(expected));
        }
        for limit in Limit::all() {
            assert_eq!(LimitVerdict::parse(limit.name()), Ok(limits([limit])));
        }
        for wrong in [
            "",
            "disk",
            "Commit path",
            "shared: commit path",
            "shared: network + network",
            "shared:",
            "network + pool",
        ] {
            let why = LimitVerdict::parse(wrong).unwrap_err().to_string();
            assert!(why.contains("; hint: use none, fast-fail, server CPU, "), "{why}");
        }
    }
}
