//! What `weir selftest` reports, as JSON: the generator's own proof, claim by claim.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of the selftest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SelftestReport {
    /// [`super::FORMAT`].
    pub format: u32,
    /// Whether it was the short form.
    #[serde(default)]
    pub short: bool,
    /// How long it took.
    pub secs: f64,
    /// What was claimed and measured, in the order it was.
    pub claims: Vec<Claim>,
}

/// Something the generator claims of itself, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Its number in docs/method.md: `T2`.
    pub id: String,
    /// What is claimed, in a few words.
    pub name: String,
    /// Whether it held.
    pub passed: bool,
    /// What was measured, with its unit.
    pub measured: String,
    /// Up to what it would have held.
    pub bound: String,
    /// The figures behind it, by name with the unit last.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
}
