//! What is known of an experiment before it runs: which limit was put into which of its targets.
//!
//! Only the shape and its checks. What it is compared with, and how that is scored, is decided elsewhere.

use super::Experiment;
use super::check::{Checked, is_one_of};
use crate::results::Limit;
use crate::{distinct, ensure};
use kv::Error;
use serde::Deserialize;

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
    /// What is to be found, in the words of [`Expected::parse`].
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

/// What is to be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No limit: the time is a delay that grows with nothing.
    Nothing,
    /// No limit of goodput: requests fail fast.
    FastFail,
    /// One limit, or several that share the blame, in the file's order.
    Limits(Vec<Limit>),
}

impl Expected {
    /// Of `none`, `fast-fail`, a limit's name (`commit path`), or `shared: server CPU + connection pool`. The error says what may
    /// stand there.
    pub fn parse(text: &str) -> Result<Expected, Error> {
        let limits = |names: &str| -> Option<Vec<Limit>> {
            names.split('+').map(|name| Limit::all().find(|limit| limit.name() == name.trim())).collect()
        };
        let found = match (text.trim(), text.trim().strip_prefix("shared:")) {
            ("none", _) => Some(Expected::Nothing),
            ("fast-fail", _) => Some(Expected::FastFail),
            (name, None) => limits(name).filter(|limits| limits.len() == 1).map(Expected::Limits),
            (_, Some(names)) => limits(names)
                .filter(|limits| limits.len() > 1 && distinct(limits).len() == limits.len())
                .map(Expected::Limits),
        };
        found.ok_or_else(|| {
            let names: Vec<&str> = Limit::all().map(Limit::name).collect();
            Error::input(format_args!("expect `{text}` is nothing that can be found"))
                .hint(format_args!("use none, fast-fail, {}, or shared: A + B of these", names.join(", ")))
        })
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
        Expected::parse(&self.expect)?;
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

    #[test]
    fn what_is_expected_is_a_limits_name_or_one_of_the_other_words() {
        for (text, expected) in [
            ("none", Expected::Nothing),
            ("fast-fail", Expected::FastFail),
            ("generator", Expected::Limits(vec![Limit::Generator])),
            ("server CPU (quota)", Expected::Limits(vec![Limit::ServerQuota])),
            ("shared: server CPU + commit path", Expected::Limits(vec![Limit::ServerCpu, Limit::CommitPath])),
        ] {
            assert_eq!(Expected::parse(text), Ok(expected));
        }
        for limit in Limit::all() {
            assert_eq!(Expected::parse(limit.name()), Ok(Expected::Limits(vec![limit])));
        }
        for wrong in
            ["", "disk", "Commit path", "shared: commit path", "shared: network + network", "shared:"]
        {
            let why = Expected::parse(wrong).unwrap_err().to_string();
            assert!(why.contains("; hint: use none, fast-fail, server CPU, "), "{why}");
        }
    }
}
