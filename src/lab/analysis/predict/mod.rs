//! What was foretold of a sweep before it ran, and how far off it was (docs/method.md, section 7).

use crate::lab::results::Results;
use serde::{Deserialize, Serialize};

/// A curve, foretold from one level or from three.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// `one-point` or `three-point`.
    pub method: String,
    /// The levels it was made from.
    pub from_levels: Vec<u32>,
    /// What it was made of, in the order of a request's way.
    pub demands: Vec<PredictedDemand>,
    /// What no resource accounts for of a lone client's cycle: a delay, in microseconds.
    pub delay_us: f64,
    /// One for each level of the sweep.
    pub levels: Vec<PredictedLevel>,
    /// What it says the workload gets through at most at these levels, in requests per second.
    pub capacity_rps: f64,
}

/// A resource in a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedDemand {
    /// Its name.
    pub resource: String,
    /// How many requests it works on at once.
    pub servers: f64,
    /// Busy time per request at each of the levels it was made from.
    pub us: Vec<f64>,
}

/// What is foretold of one level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedLevel {
    /// Clients.
    pub level: u32,
    /// Requests per second.
    pub rps: f64,
    /// Mean latency.
    pub latency_us: f64,
    /// What throughput cannot exceed, if the demands stay as they are: min(N / (R(1) + Z), min m/D).
    pub rps_bound: f64,
    /// What latency cannot fall below: max(R(1), N·D/m − Z).
    pub latency_us_bound: f64,
}

/// A prediction beside what came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Foretold {
    /// What was foretold.
    pub prediction: Prediction,
    /// When it was written down, as RFC 3339 in UTC.
    pub at: String,
    /// The SHA-256 it was written down with.
    pub sha256: String,
    /// Whether it still has that hash.
    pub intact: bool,
    /// What was measured at its levels: level, and predicted over measured goodput less one. Levels it was made from are left out.
    pub errors: Vec<(u32, f64)>,
    /// Predicted over measured capacity, less one; `None` where the capacity was not reached.
    pub capacity_error: Option<f64>,
    /// Of a miss, the demand that moved most between the levels it was made from and the plateau, as a sentence.
    pub moved: Option<String>,
}

/// All that was foretold of `workload`, in the order it was written down.
pub(super) fn foretold(_results: &Results, _workload: &str) -> Vec<Foretold> {
    Vec::new()
}
