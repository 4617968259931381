//! The section `[truth]` of an experiment file: which limit was imposed on which of its targets.

use kv::Error;
use lab_data::results::Limit;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;

/// What an experiment file says of limits; the rest of it may be of another version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    truth: Truth,
}

/// `[truth]`: the cases that findings are to be compared with.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Truth {
    /// In the file's order.
    case: Vec<Case>,
}

/// The cases of an experiment file.
pub(super) fn cases(experiment: &str) -> Result<Vec<Case>, Error> {
    let file: File = toml::from_str(experiment).map_err(|error| Error::input(error.message()))?;
    Ok(file.truth.case)
}

/// What limits a target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// The target's name.
    pub(super) target: String,
    /// The workload's; `None` where the file has only one.
    pub(super) workload: Option<String>,
    /// What is to be found.
    pub(super) expect: LimitVerdict,
    /// How severe the limit is, in the file's words: `5ms`.
    #[serde(default)]
    pub(super) severity: String,
    /// What the case may be used for.
    pub(super) split: Split,
    /// The target without the limit: where that is not clearly faster, the limit does not bind. `None` of cases in which nothing is
    /// to bind.
    pub(super) reference: Option<String>,
}

/// What a case may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Split {
    /// For choosing rules and their constants.
    Tune,
    /// Only for judging them.
    HeldOut,
}

/// What limits a target, without figures.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum LimitVerdict {
    /// No limit: the time is a delay that grows with nothing.
    Nothing,
    /// No limit of goodput: requests fail fast.
    FastFail,
    /// One limit, or several that share the load; empty where none is identified.
    Limits(BTreeSet<Limit>),
}

impl TryFrom<String> for LimitVerdict {
    type Error = Error;

    /// Of `none`, `fast-fail`, a limit's name (`commit path`), or `shared: server CPU + connection pool`. The error says what may
    /// stand there.
    fn try_from(text: String) -> Result<LimitVerdict, Error> {
        let words = text.trim();
        let shared = words.strip_prefix("shared:");
        let names: Vec<&str> = shared.unwrap_or(words).split('+').map(str::trim).collect();
        let limits: BTreeSet<Limit> =
            Limit::ALL.into_iter().filter(|limit| names.contains(&limit.name())).collect();
        match words {
            "none" => Ok(LimitVerdict::Nothing),
            "fast-fail" => Ok(LimitVerdict::FastFail),
            // Each name is that of a limit, and none is given twice.
            _ if limits.len() == names.len() && shared.is_some() == (names.len() > 1) => {
                Ok(LimitVerdict::Limits(limits))
            }
            _ => {
                let names: Vec<&str> = Limit::ALL.iter().map(|limit| limit.name()).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::experiment::{Experiment, Workload};
    use std::collections::BTreeMap;

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
            assert_eq!(LimitVerdict::try_from(text.to_owned()), Ok(expected));
        }
        for limit in Limit::ALL {
            assert_eq!(LimitVerdict::try_from(limit.name().to_owned()), Ok(limits([limit])));
        }
        for wrong in [
            "",
            "tape",
            "Commit path",
            "shared: commit path",
            "shared: network + network",
            "shared:",
            "network + pool",
        ] {
            let why = LimitVerdict::try_from(wrong.to_owned()).unwrap_err().to_string();
            assert!(why.contains("; hint: use none, fast-fail, server CPU, "), "{why}");
        }
    }

    fn cases_of(section: &str) -> Result<Vec<Case>, String> {
        cases(&format!("no_longer_known = 1\n{section}")).map_err(|why| why.to_string())
    }

    #[test]
    fn a_case_has_a_target_an_expected_verdict_and_a_split() {
        const CASE: &str =
            "[[truth.case]]\ntarget = \"ours\"\nexpect = \"commit path\"\nsplit = \"held-out\"";
        let case = &cases_of(CASE).unwrap()[0];
        assert_eq!((case.target.as_str(), case.split), ("ours", Split::HeldOut));
        assert_eq!(case.expect, limits([Limit::CommitPath]));
        for (from, to, complaint) in [
            ("\"commit path\"", "\"tape\"", "expect `tape` is nothing that can be found; hint: use none"),
            ("\"held-out\"", "\"heldout\"", "unknown variant `heldout`, expected `tune` or `held-out`"),
            ("target", "tarket", "unknown field `tarket`"),
        ] {
            let why = cases_of(&CASE.replacen(from, to, 1)).unwrap_err();
            assert!(why.contains(complaint), "{to}: {why}");
        }
        assert_eq!(cases_of(""), Ok(Vec::new()));
    }

    /// A case is of a workload that its target takes part in, and so does its reference. A write cap is the workload's own: without
    /// it, it is another workload, the only one of its target.
    #[test]
    fn the_cases_of_our_experiments_name_targets_and_workloads_that_there_are() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../experiments/truth");
        for path in crate::files_below(folder.as_ref()).unwrap() {
            let text = std::fs::read_to_string(&path).unwrap();
            let experiment = Experiment::parse(&text).unwrap();
            let targets: BTreeMap<Option<&str>, Vec<Workload>> = (experiment.subjects.iter())
                .map(|subject| (subject.name.as_deref(), experiment.workloads_of(subject)))
                .collect();
            let cases = cases(&text).unwrap();
            assert!(!cases.is_empty(), "{}", path.display());
            for case in cases {
                let at = format!("{}: {case:?}", path.display());
                let own = targets.get(&Some(case.target.as_str())).expect(&at);
                let is_it = |of: &&Workload| case.workload.as_ref().is_none_or(|name| of.name == *name);
                let own: Vec<&Workload> = own.iter().filter(is_it).collect();
                let [workload] = own[..] else { panic!("{at}") };
                let Some(reference) = &case.reference else { continue };
                assert_ne!(case.target, *reference, "{at}");
                let others = targets.get(&Some(reference.as_str())).expect(&at);
                let is_there = others.iter().any(|other| other.name == workload.name);
                assert!(is_there || workload.write_cap.is_some() && others.len() == 1, "{at}");
            }
        }
    }
}
