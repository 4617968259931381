//! What is compared: figures of one run, each a row of [`MEASURES`].

use Kind::{Latency, ProcessorTime, Rate};
use lab_data::results::{Results, Run};

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
    pub read: Read,
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
        if self == Latency { 1e-3 } else { 0.0 }
    }
}

/// The figures, in the order of the tables.
pub const MEASURES: &[Measure] = &[
    measure("goodput_rps", "goodput", ["goodput", "req/s"], Rate, true, |_, (_, load)| {
        Some(load.goodput_rps)
    }),
    measure(
        "cpu_us_per_attempt",
        "CPU per request",
        ["CPU", "µs/request"],
        ProcessorTime,
        true,
        |of, run| Some(cores_busy(of, run)? * run.1.window_secs / run.1.attempts as f64 * 1e6),
    ),
    measure(
        "successes_per_core_sec",
        "successes per core-second",
        ["successes", "per core-second"],
        ProcessorTime,
        true,
        |of, run| Some(run.1.successes as f64 / run.1.window_secs / cores_busy(of, run)?),
    ),
    measure("latency_us_p50", "median latency", ["p50", "latency"], Latency, true, |_, (_, load)| {
        (load.latency.count > 0).then_some(load.latency.us_p50)
    }),
    measure("latency_us_p99", "99th percentile", ["p99", "latency"], Latency, false, |_, (_, load)| {
        (load.latency.count > 0).then_some(load.latency.us_p99)
    }),
    measure("cores_used", "cores used", ["cores used", "mean"], ProcessorTime, false, cores_busy),
];

/// The figure of one run; `None` where it was not read.
type Read = fn(&Results, Run) -> Option<f64>;

const fn measure(
    name: &'static str,
    label: &'static str,
    [heading, unit]: [&'static str; 2],
    kind: Kind,
    compared: bool,
    read: Read,
) -> Measure {
    Measure { name, label, heading, unit, kind, compared, read }
}

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
fn cores_busy(results: &Results, (trial, _): Run) -> Option<f64> {
    let parts = parts(results);
    let growth = |part: &String| trial.growth(&format!("{part}.cpu_secs"));
    let secs = parts.iter().map(growth).sum::<Option<f64>>().filter(|_| !parts.is_empty())?;
    Some(secs / trial.elapsed_secs)
}
