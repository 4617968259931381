//! What is compared: figures of one run of the load, each a row of [`MEASURES`].

use kv::proto::LoadReport;
use lab_data::results::{Results, Trial};

/// A figure that both sides have.
pub struct Measure {
    /// For programs, unit last.
    pub name: &'static str,
    /// What it is called in a sentence.
    pub said: &'static str,
    /// What a person reads above it, and the unit below.
    pub heading: (&'static str, &'static str),
    /// Behind its number in a sentence.
    pub unit: &'static str,
    /// The figure of one run; `None` where it was not read.
    pub read: fn(&Results, &Trial, &LoadReport) -> Option<f64>,
    /// How several runs are one figure.
    pub merged: Merged,
    /// What becomes of it where the generator was the limit.
    pub busy_generator: BusyGenerator,
    /// Whether its ratio is formed and tested.
    pub compared: bool,
    /// How exactly one run knows it, as a share: a ratio is known no better.
    pub resolution: f64,
}

/// How runs are merged, as in the table of levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Their mean with its interval.
    Mean,
    /// Their median.
    Median,
}

/// What a generator that fails its gate does to a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyGenerator {
    /// The target may do better: the figure is a lower bound.
    Caps,
    /// The generator's own waiting is in it.
    Blurs,
    /// It is counted on the target's side.
    Spares,
}

/// A percentile is the end of a bucket of a histogram of three digits.
const BUCKET: f64 = 1e-3;

/// The figures, in the order of the tables.
pub const MEASURES: &[Measure] = &[
    Measure {
        name: "goodput_rps",
        said: "goodput",
        heading: ("goodput", "req/s"),
        unit: "req/s",
        read: |_, _, load| Some(load.goodput_rps),
        merged: Merged::Mean,
        busy_generator: BusyGenerator::Caps,
        compared: true,
        resolution: 0.0,
    },
    Measure {
        name: "cpu_us_per_attempt",
        said: "CPU per request",
        heading: ("CPU", "µs/request"),
        unit: "µs/request",
        read: |results, trial, load| {
            Some(cores_busy(results, trial)? / (load.attempts as f64 / load.window_secs) * 1e6)
        },
        merged: Merged::Mean,
        busy_generator: BusyGenerator::Spares,
        compared: true,
        resolution: 0.0,
    },
    Measure {
        name: "successes_per_core_sec",
        said: "successes per core-second",
        heading: ("successes", "per core-second"),
        unit: "successes/core-second",
        read: |results, trial, load| {
            Some(load.successes as f64 / load.window_secs / cores_busy(results, trial)?)
        },
        merged: Merged::Mean,
        busy_generator: BusyGenerator::Spares,
        compared: true,
        resolution: 0.0,
    },
    Measure {
        name: "latency_us_p50",
        said: "median latency",
        heading: ("p50", "latency"),
        unit: "µs",
        read: |_, _, load| (load.latency.count > 0).then_some(load.latency.us_p50),
        merged: Merged::Median,
        busy_generator: BusyGenerator::Blurs,
        compared: true,
        resolution: BUCKET,
    },
    Measure {
        name: "latency_us_p99",
        said: "99th percentile",
        heading: ("p99", "latency"),
        unit: "µs",
        read: |_, _, load| (load.latency.count > 0).then_some(load.latency.us_p99),
        merged: Merged::Median,
        busy_generator: BusyGenerator::Blurs,
        compared: false,
        resolution: BUCKET,
    },
    Measure {
        name: "cores_used",
        said: "cores used",
        heading: ("cores used", "mean"),
        unit: "cores",
        read: |results, trial, _| cores_busy(results, trial),
        merged: Merged::Mean,
        busy_generator: BusyGenerator::Spares,
        compared: false,
        resolution: 0.0,
    },
];

/// The parts whose processor time is nobody's but the lab's.
const OWN_PARTS: [&str; 2] = ["generator", "link"];

/// The parts of the target, in the order of the placements.
pub(super) fn parts(results: &Results) -> Vec<String> {
    let parts = results.placements.iter().map(|placed| placed.part.clone());
    parts.filter(|part| !OWN_PARTS.contains(&part.as_str())).collect()
}

/// Mean number of cores that all parts of the target together kept busy. `None` where one of them was not read: a sum
/// without it would flatter.
///
/// The readings lie a little further apart than the window is long, so that time goes by the one, requests by the other.
fn cores_busy(results: &Results, trial: &Trial) -> Option<f64> {
    let parts = parts(results);
    let secs = (parts.iter())
        .map(|part| trial.growth(&format!("{part}.cpu_secs")))
        .sum::<Option<f64>>()
        .filter(|_| !parts.is_empty())?;
    Some(secs / trial.elapsed_secs)
}
