//! What a check says.

use serde::Serialize;

/// How far a finding may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A check failed without which the figure may be wrong.
    Low,
    /// A check failed; the figure is right as far as known, but may be another the next time.
    Medium,
    /// No check failed that concerns it.
    High,
}

/// What a check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The rule holds.
    Pass,
    /// The rule is broken.
    Fail,
    /// What it needs was not read.
    NotChecked,
}

/// A check and what it says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The [`Check::id`].
    pub id: &'static str,
    /// What it says.
    pub outcome: Outcome,
    /// What was seen, with its figures; of what was not checked, what is missing. Empty where there is nothing to add.
    pub seen: String,
    /// What to do about it; empty unless it failed.
    pub remedy: String,
}

impl Checked {
    pub(crate) fn pass(seen: impl Into<String>) -> Checked {
        Checked { id: "", outcome: Outcome::Pass, seen: seen.into(), remedy: String::new() }
    }

    pub(crate) fn fail(seen: impl Into<String>, remedy: impl Into<String>) -> Checked {
        Checked { id: "", outcome: Outcome::Fail, seen: seen.into(), remedy: remedy.into() }
    }

    pub(crate) fn not_checked(missing: impl Into<String>) -> Checked {
        Checked { id: "", outcome: Outcome::NotChecked, seen: missing.into(), remedy: String::new() }
    }

    /// Whether the rule is broken.
    pub fn failed(&self) -> bool {
        self.outcome == Outcome::Fail
    }
}
