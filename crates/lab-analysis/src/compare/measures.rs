//! What is compared: figures of one run, each a row of [`MEASURES`].

use crate::parts::of_target;
use Kind::{Latency, ProcessorTime, Rate};
use kv::proto::Latency as Percentiles;
use lab_data::results::{Results, Run};

/// A figure that both sides have.
pub struct Measure {
    /// In JSON and CSV, unit last.
    pub name: &'static str,
    /// In a sentence and above its column.
    pub label: &'static str,
    /// Below that; empty where every value has its own.
    pub unit: &'static str,
    /// What it measures.
    pub kind: Kind,
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

impl Measure {
    /// The relative resolution of the figure: a percentile is the end of a bucket of a histogram of three digits.
    pub(super) fn resolution(&self) -> f64 {
        if self.kind == Latency { 1e-3 } else { 0.0 }
    }
}

/// The figures, in the order of the tables.
pub const MEASURES: &[Measure] = &[
    measure("goodput_rps", "goodput", "req/s", Rate, |_, (_, load)| Some(load.goodput_with_parts_rps())),
    measure("cpu_us_per_attempt", "CPU per request", "µs", ProcessorTime, cpu_us_per_attempt),
    measure("latency_us_p50", "p50 latency", "", Latency, |_, run| latency(run, |of| of.us_p50)),
    measure("latency_us_p99", "p99 latency", "", Latency, |_, run| latency(run, |of| of.us_p99)),
];

/// The figure of one run; `None` where it was not read.
type Read = fn(&Results, Run) -> Option<f64>;

const fn measure(
    name: &'static str,
    label: &'static str,
    unit: &'static str,
    kind: Kind,
    read: Read,
) -> Measure {
    Measure { name, label, unit, kind, read }
}

fn latency((_, load): Run, percentile: fn(&Percentiles) -> f64) -> Option<f64> {
    (load.latency.count > 0).then(|| percentile(&load.latency))
}

/// The parts of the target, in the order of the placements.
pub(super) fn parts(results: &Results) -> Vec<String> {
    of_target(results).map(|placed| placed.part.clone()).collect()
}

/// Processor time of all parts of the target over all requests, in microseconds. `None` where one of the parts was not read: the
/// sum would be too small.
///
/// Whole requests count: what an edge of the window cuts of those of clients in step is waiting. The readings lie a little further apart than the window is long, so requests are counted over the time between them.
fn cpu_us_per_attempt(results: &Results, (trial, load): Run) -> Option<f64> {
    let parts = parts(results);
    let growth = |part: &String| trial.growth(&format!("{part}.cpu_secs"));
    let secs = parts.iter().map(growth).sum::<Option<f64>>().filter(|_| !parts.is_empty())?;
    let attempts = load.attempts as f64 * trial.elapsed_secs / load.window_secs;
    Some(secs / attempts * 1e6)
}
