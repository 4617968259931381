//! The report of `weir selftest`, as JSON.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one run of `weir selftest` found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelftestReport {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Whether it was the short form: fewer and shorter runs.
    #[serde(default)]
    pub short: bool,
    /// How long all of it took.
    pub secs: f64,
    /// Each check, in their order.
    pub checks: Vec<AccuracyCheck>,
}

impl SelftestReport {
    /// Names of the checks with this outcome.
    pub fn with(&self, outcome: CheckOutcome) -> Vec<&str> {
        self.checks.iter().filter(|check| check.outcome == outcome).map(|check| check.name.as_str()).collect()
    }

    /// Whether every check passed.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.outcome == CheckOutcome::Pass)
    }
}

crate::named_enum! {
    /// How a check ended.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CheckOutcome {
        /// What was measured is within the bound.
        Pass = "pass",
        /// It is not.
        Fail = "fail",
        /// Nothing could be measured, or it does not count.
        #[default]
        NotChecked = "not checked",
    }
}

/// One check of the load generator's accuracy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AccuracyCheck {
    /// `delay`, `stall`, `rate` or `faults`.
    pub name: String,
    /// How it ended.
    pub outcome: CheckOutcome,
    /// What was measured, for people; where nothing was, why.
    pub measured: String,
    /// What it may be, for people.
    pub bound: String,
    /// The figures behind it, by name.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
}

impl AccuracyCheck {
    /// ` (at try N)`, or ` (all N tries)` of one that failed, where it took more than one, nothing else: goes behind the outcome.
    pub fn at_try(&self) -> String {
        match self.figures.get("tries") {
            Some(tries) if *tries > 1.0 && self.outcome == CheckOutcome::Fail => {
                format!(" (all {tries} tries)")
            }
            Some(tries) if *tries > 1.0 => format!(" (at try {tries})"),
            _ => String::new(),
        }
    }
}
