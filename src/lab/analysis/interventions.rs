//! What happened when one resource was made a little slower (E5 of docs/method.md, section 6).
//!
//! If a resource is the limit, goodput falls as its demand grows; if it is not, hardly anything happens.

use super::stats::Estimate;
use crate::lab::results::{Change, Results};
use serde::Serialize;

/// What a change did, over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// What was done.
    pub change: Change,
    /// The clients it was done at.
    pub level: u32,
    /// Rounds in which both the change and its counterpart were measured.
    pub rounds: u32,
    /// The share of goodput that had to be lost if the resource were the limit, 0–1.
    pub expected_loss: f64,
    /// The share that was lost, a mean over the rounds.
    pub loss: Estimate,
    /// Lost over expected: about 1 at the limit, about 0 elsewhere.
    pub elasticity: Estimate,
}

/// The effects of all changes made to `workload`, in the order in which they were first made.
pub(super) fn effects(_results: &Results, _workload: &str) -> Vec<Effect> {
    Vec::new()
}
