//! The delay check: a known delay is reported as long as it is.
//!
//! One client in a closed loop against a responder that waits for a known time before each answer. What the network adds is
//! known from a responder that does not wait, and that from a second client that shares no code with the load generator.

use super::cores::{beside, keep_awake, on_core};
use super::responder::{self, Record};
use super::{Setup, add, judge, passing, probe, record, require};
use kv::proto::AccuracyCheck;
use kv::units::Span;
use std::time::Duration;

/// Name, delay in µs, window in ms, and window of the short form. The first is the floor of the others.
const CASES: &[(&str, u64, u64, Option<u64>)] = &[
    ("0ms", 0, 400, Some(200)),
    ("0.1ms", 100, 400, None),
    ("1ms", 1000, 700, None),
    ("10ms", 10_000, 600, Some(300)),
    ("100ms", 100_000, 1800, None),
];
const WARMUP: Duration = Duration::from_millis(50);
/// What a median may be off by, in microseconds or as a share of the delay.
const BOUND_US: f64 = 5.0;
const BOUND_SHARE: f64 = 0.005;
/// What a mean may be longer by, in microseconds or as a share of the delay: other work on the machine makes outliers, but
/// within limits.
const MEAN_BOUND_US: f64 = 50.0;
const MEAN_BOUND_SHARE: f64 = 0.2;
const BOUND: &str =
    "median off by 5 µs or 0.5 %, mean too low by as much, too high by 50 µs or 20 %; of two, the larger";

pub(super) fn run(setup: &Setup) -> Result<AccuracyCheck, String> {
    beside(setup.options.cores, keep_awake, || checked(setup)).0
}

fn checked(setup: &Setup) -> Result<AccuracyCheck, String> {
    let mut check = passing(BOUND);
    let mut measured = Vec::new();
    // What is right without a delay says the other client. It has outliers of its own, so its mean is no lower limit; its median
    // is one. What is right with a delay says the case without.
    let mut floor = probe_floor(setup)?;
    let mut mean_least_us = floor.median_us;
    add(&mut check, [("probe_floor_us", floor.median_us)]);
    for (name, delay_us, window_ms, window_short_ms) in CASES {
        let Some(window_ms) = (if setup.options.short { *window_short_ms } else { Some(*window_ms) }) else {
            continue;
        };
        let delay = Duration::from_micros(*delay_us);
        let (of, agrees) = excess(setup, delay, Duration::from_millis(window_ms))?;
        // The mean is compared twice: what it must not be above, and what it must not be below.
        let (error_us, mean_error_us) = (of.median_us - floor.median_us, of.mean_us - floor.mean_us);
        let mean_lower_us = of.mean_us - mean_least_us;
        if delay.is_zero() {
            add(&mut check, [("floor_us", of.median_us)]);
            (mean_least_us, floor) = (of.mean_us, of);
        }
        let delay_us = *delay_us as f64;
        let bound_us = BOUND_US.max(delay_us * BOUND_SHARE);
        let mean_bound_us = MEAN_BOUND_US.max(delay_us * MEAN_BOUND_SHARE);
        // Latencies that are cut make the mean too short.
        let mean_fits = mean_lower_us >= -bound_us && mean_error_us <= mean_bound_us;
        require(&mut check, error_us.abs() <= bound_us && mean_fits && agrees);
        add(
            &mut check,
            [(&*format!("error_{name}_us"), error_us), (&*format!("mean_error_{name}_us"), mean_error_us)],
        );
        let agreement = if agrees { "" } else { " (percentiles are not those of the histogram)" };
        let name = if delay.is_zero() { "no delay".to_owned() } else { format!("delay {}", Span(delay)) };
        measured.push(format!("{name}: median {error_us:+.1} µs, mean {mean_error_us:+.1} µs{agreement}"));
    }
    check.measured = measured.join("; ");
    Ok(check)
}

/// What a client sees beyond the time that the responder took.
struct Excess {
    median_us: f64,
    mean_us: f64,
}

impl Excess {
    fn new(median_us: f64, mean_us: f64, record: &mut Record) -> Excess {
        Excess {
            median_us: median_us - judge::median(&mut record.delays_ns) / 1e3,
            mean_us: mean_us - judge::mean(&record.delays_ns) / 1e3,
        }
    }
}

/// That of the load generator, and whether the report's percentiles are those of its histogram.
fn excess(setup: &Setup, delay: Duration, window: Duration) -> Result<(Excess, bool), String> {
    let options = responder::Options { delay, ..Default::default() };
    let (report, mut record) = setup.load(options, [WARMUP, window], "--clients 1 --histogram")?;
    let all = judge::histogram(&report, "all")?;
    let latency = &report.latency;
    Ok((Excess::new(latency.us_p50, latency.us_mean, &mut record), judge::agrees(latency, all)))
}

/// That of the simplest client there is, without delay, on the load generator's core.
fn probe_floor(setup: &Setup) -> Result<Excess, String> {
    let responder = setup.responder(responder::Options::default())?;
    let mut trips_ns = on_core(setup.options.cores.map(|cores| cores.generator), || {
        probe::round_trips(responder.address, responder.certificate.as_ref(), setup.options.http2)
    })
    .map_err(|error| format!("the probe gets no answer: {error}"))?;
    let (median_us, mean_us) = (judge::median(&mut trips_ns) / 1e3, judge::mean(&trips_ns) / 1e3);
    Ok(Excess::new(median_us, mean_us, &mut record(responder)?))
}
