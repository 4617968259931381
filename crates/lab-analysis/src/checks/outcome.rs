//! What a check says.

pub use kv::proto::CheckOutcome as Outcome;
use serde::Serialize;

/// How far a finding may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// A check failed without which the figure may be wrong.
    Low,
    /// A check failed; the figure is right as far as known, but may be another the next time.
    Medium,
    /// No check failed that concerns it.
    High,
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
    /// Whether it failed by so much that the confidence is low, whatever the check leaves.
    #[serde(skip)]
    pub is_grave: bool,
}

impl Checked {
    fn of(outcome: Outcome, seen: impl Into<String>, remedy: impl Into<String>) -> Checked {
        Checked { id: "", outcome, seen: seen.into(), remedy: remedy.into(), is_grave: false }
    }

    pub(crate) fn grave(self, is_grave: bool) -> Checked {
        Checked { is_grave, ..self }
    }

    pub(crate) fn pass(seen: impl Into<String>) -> Checked {
        Checked::of(Outcome::Pass, seen, "")
    }

    pub(crate) fn fail(seen: impl Into<String>, remedy: impl Into<String>) -> Checked {
        Checked::of(Outcome::Fail, seen, remedy)
    }

    pub(crate) fn not_checked(missing: impl Into<String>) -> Checked {
        Checked::of(Outcome::NotChecked, missing, "")
    }

    /// Passed or failed, where the same is seen.
    pub(crate) fn judged(passes: bool, seen: impl Into<String>, remedy: &str) -> Checked {
        if passes { Checked::pass(seen) } else { Checked::fail(seen, remedy) }
    }

    /// Passed unless there is something `wrong`.
    pub(crate) fn unless(wrong: Option<String>, remedy: &str) -> Checked {
        wrong.map_or(Checked::pass(""), |seen| Checked::fail(seen, remedy))
    }

    /// Whether the rule is broken.
    pub fn failed(&self) -> bool {
        self.outcome == Outcome::Fail
    }
}
