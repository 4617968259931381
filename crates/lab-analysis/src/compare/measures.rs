//! What is compared: figures of one run, each a row of [`MEASURES`].

use kv::proto::LoadReport;
use lab_data::results::{Results, Trial};

/// A figure that both sides have.
pub struct Measure {
    /// In JSON and CSV, unit last.
    pub name: &'static str,
    /// In a sentence.
    pub label: &'static str,
    /// Above its column.
    pub heading: &'static str,
    /// Below that.
    pub unit: &'static str,
    /// What it measures.
    pub kind: Kind,
    /// Whether its ratio is formed and tested.
    pub compared: bool,
    /// The figure of one run; `None` where it was not read.
    pub read: fn(&Results, &Trial, &LoadReport) -> Option<f64>,
}

/// What a figure measures, and so what a generator at its limit does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Requests per second. The target may do better: it is a lower bound.
    Rate,
    /// Processor time. It is counted on the target's side and stays comparable.
    ProcessorTime,
    /// Latency, merged over runs by the median. It contains the generator's own waiting.
    Latency,
}

impl Kind {
    /// The relative resolution of one run: a percentile is the end of a bucket of a histogram of three digits.
    pub fn resolution(self) -> f64 {
        if self == Kind::Latency { 1e-3 } else { 0.0 }
    }
}

/// The figures, in the order of the tables.
pub const MEASURES: &[Measure] = &[
    Measure {
        name: "goodput_rps",
        label: "goodput",
        heading: "goodput",
        unit: "req/s",
        kind: Kind::Rate,
        compared: true,
        read: |_, _, load| Some(load.goodput_rps),
    },
    Measure {
        name: "cpu_us_per_attempt",
        label: "CPU per request",
        heading: "CPU",
        unit: "µs/request",
        kind: Kind::ProcessorTime,
        compared: true,
        read: |results, trial, load| {
            Some(cores_busy(results, trial)? * load.window_secs / load.attempts as f64 * 1e6)
        },
    },
    Measure {
        name: "successes_per_core_sec",
        label: "successes per core-second",
        heading: "successes",
        unit: "per core-second",
        kind: Kind::ProcessorTime,
        compared: true,
        read: |results, trial, load| {
            Some(load.successes as f64 / load.window_secs / cores_busy(results, trial)?)
        },
    },
    Measure {
        name: "latency_us_p50",
        label: "median latency",
        heading: "p50",
        unit: "latency",
        kind: Kind::Latency,
        compared: true,
        read: |_, _, load| (load.latency.count > 0).then_some(load.latency.us_p50),
    },
    Measure {
        name: "latency_us_p99",
        label: "99th percentile",
        heading: "p99",
        unit: "latency",
        kind: Kind::Latency,
        compared: false,
        read: |_, _, load| (load.latency.count > 0).then_some(load.latency.us_p99),
    },
    Measure {
        name: "cores_used",
        label: "cores used",
        heading: "cores used",
        unit: "mean",
        kind: Kind::ProcessorTime,
        compared: false,
        read: |results, trial, _| cores_busy(results, trial),
    },
];

/// The parts of the lab itself.
const OWN_PARTS: [&str; 2] = ["generator", "link"];

/// The parts of the target, in the order of the placements.
pub(super) fn parts(results: &Results) -> Vec<String> {
    let parts = results.placements.iter().map(|placed| placed.part.clone());
    parts.filter(|part| !OWN_PARTS.contains(&part.as_str())).collect()
}

/// Mean number of cores that all parts of the target together kept busy. `None` where one of them was not read: the sum
/// would be too small.
///
/// The readings lie a little further apart than the window is long, so this is over the time between them.
fn cores_busy(results: &Results, trial: &Trial) -> Option<f64> {
    let parts = parts(results);
    let growth = |part: &String| trial.growth(&format!("{part}.cpu_secs"));
    let secs = parts.iter().map(growth).sum::<Option<f64>>().filter(|_| !parts.is_empty())?;
    Some(secs / trial.elapsed_secs)
}
