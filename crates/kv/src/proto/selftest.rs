//! What `weir selftest` says, and what its responder says it did, as JSON.

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
    /// Each claim that was tested, in their order.
    pub claims: Vec<Claim>,
}

impl SelftestReport {
    /// Whether every claim that was tested holds.
    pub fn passed(&self) -> bool {
        self.claims.iter().all(|claim| claim.passed)
    }
}

/// A claim of the load generator about itself, tested.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// As the method calls it: `T2`.
    pub id: String,
    /// In a few words.
    pub name: String,
    /// Whether it holds here.
    pub passed: bool,
    /// What was measured, for people.
    pub measured: String,
    /// What it may be, for people.
    pub bound: String,
    /// The figures behind it, by name.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
}

impl Claim {
    /// ` at try N` where it took more than one, nothing else: to stand behind the verdict.
    pub fn at_try(&self) -> String {
        match self.figures.get("tries") {
            Some(tries) if *tries > 1.0 => format!(" at try {tries}"),
            _ => String::new(),
        }
    }
}

/// What `weir responder` really did, by its own account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// [`super::FORMAT`].
    pub format: u32,
    /// From the first request to the end of the account.
    pub secs: f64,
    /// Connections on which at least one request came.
    pub connections: u64,
    /// Requests read to their end.
    pub requests: u64,
    /// What became of them, by kind.
    pub answers: BTreeMap<String, u64>,
    /// Requests that the clients' own counts say were made before the last one read of each client, and that never came. Only
    /// where the clients count in their keys.
    pub never_came: u64,
    /// From the first request until every fault of the schedule had happened; `None` if some never did.
    pub schedule_secs: Option<f64>,
    /// From having read a request to having written its answer, of all that were answered.
    pub delay: Delay,
    /// When it froze, after the first request, and for how long.
    pub stall_secs: Option<[f64; 2]>,
    /// When each request had been read, after the first, where that was asked for.
    #[serde(default)]
    pub arrivals_ns: Vec<u64>,
}

/// How long answers really took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Delay {
    /// How many; the first million at most.
    pub count: u64,
    /// Shortest.
    pub us_min: f64,
    /// Mean.
    pub us_mean: f64,
    /// Median.
    pub us_p50: f64,
    /// Longest.
    pub us_max: f64,
}
