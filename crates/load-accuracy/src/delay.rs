//! The delay check: a known delay is reported as long as it is.
//!
//! One client in a closed loop against a responder that waits for a known time before each answer. What the machine adds to that
//! is known from a second client that shares no code with the load generator. The two take turns: what the machine adds
//! differs from one delay to another, as cores that slept longer wake up later, and changes from second to second.

use super::cores::{beside, keep_awake};
use super::responder::{self, Record};
use super::{Setup, add, judge, passing, probe, record, require};
use kv::cores::on;
use kv::proto::AccuracyCheck;
use kv::units::Span;
use std::time::Duration;

/// Name, delay in µs, window of each turn in ms, and whether the short form has it.
const CASES: &[(&str, u64, u64, bool)] = &[
    ("0ms", 0, 80, true),
    ("0.1ms", 100, 80, false),
    ("1ms", 1000, 100, false),
    ("10ms", 10_000, 120, true),
    ("100ms", 100_000, 250, false),
];
const WARMUP: Duration = Duration::from_millis(50);
/// How often the two clients take turns. The figure of a case is the median over them.
const ROUNDS: usize = 5;
/// What a median may be off by, in microseconds or as a share of the delay.
const BOUND_US: f64 = 5.0;
const BOUND_SHARE: f64 = 0.005;
/// What a mean may be longer by, in microseconds or as a share of the delay: other work on the machine makes outliers, but
/// within limits.
const MEAN_BOUND_US: f64 = 50.0;
const MEAN_BOUND_SHARE: f64 = 0.2;
const BOUND: &str =
    "median: ± max(5 µs, 0.5 % of the delay); mean: from − max(5 µs, 0.5 %) to + max(50 µs, 20 %)";

pub(super) fn run(setup: &Setup) -> Result<AccuracyCheck, String> {
    beside(setup.options.cores, keep_awake, || checked(setup)).0
}

fn checked(setup: &Setup) -> Result<AccuracyCheck, String> {
    let mut check = passing(BOUND);
    let mut measured = Vec::new();
    for &(name, delay_us, window_ms, is_short) in CASES {
        if setup.options.short && !is_short {
            continue;
        }
        let (delay, window) = (Duration::from_micros(delay_us), Duration::from_millis(window_ms));
        let (mut errors_us, mut mean_errors_us, mut least_us) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_agree = true;
        for _ in 0..ROUNDS {
            let right = probed(setup, delay, window)?;
            let (said, agrees) = generated(setup, delay, window)?;
            errors_us.push(said.median_us - right.median_us);
            mean_errors_us.push(said.mean_us - right.mean_us);
            // The other client has outliers of its own, so its mean is no lower limit; its median is one.
            least_us.push(said.mean_us - right.median_us);
            all_agree &= agrees;
        }
        let [error_us, mean_error_us, mean_lower_us] =
            [errors_us, mean_errors_us, least_us].map(judge::median);
        let delay_us = delay_us as f64;
        let bound_us = BOUND_US.max(delay_us * BOUND_SHARE);
        let mean_bound_us = MEAN_BOUND_US.max(delay_us * MEAN_BOUND_SHARE);
        // Latencies that are cut make the mean too short.
        let mean_fits = mean_lower_us >= -bound_us && mean_error_us <= mean_bound_us;
        require(&mut check, error_us.abs() <= bound_us && mean_fits && all_agree);
        add(
            &mut check,
            [(&*format!("error_{name}_us"), error_us), (&*format!("mean_error_{name}_us"), mean_error_us)],
        );
        let agreement = if all_agree { "" } else { " (percentiles are not those of the histogram)" };
        let name = if delay.is_zero() { "delay 0".to_owned() } else { format!("delay {}", Span(delay)) };
        measured.push(format!("{name}: median {error_us:+.1} µs, mean {mean_error_us:+.1} µs{agreement}"));
    }
    check.measured = format!("difference to what a second, simpler client measures: {}", measured.join("; "));
    Ok(check)
}

/// What a client sees beyond the time that the responder took.
struct Excess {
    median_us: f64,
    mean_us: f64,
}

impl Excess {
    fn new(median_us: f64, mean_us: f64, record: &Record) -> Excess {
        let delays_ns = &record.delays_ns;
        Excess {
            median_us: median_us - judge::median(delays_ns.iter().map(|ns| *ns as f64)) / 1e3,
            mean_us: mean_us - judge::mean(delays_ns) / 1e3,
        }
    }
}

/// That of the load generator, and whether the report's percentiles are those of its histogram.
fn generated(setup: &Setup, delay: Duration, window: Duration) -> Result<(Excess, bool), String> {
    let options = responder::Options { delay, ..Default::default() };
    let (report, record) = setup.load(options, [WARMUP, window], "--clients 1 --histogram")?;
    let all = judge::histogram(&report, "all")?;
    let latency = &report.latency;
    Ok((Excess::new(latency.us_p50, latency.us_mean, &record), judge::agrees(latency, all)))
}

/// That of the simplest client there is, on the load generator's core.
fn probed(setup: &Setup, delay: Duration, window: Duration) -> Result<Excess, String> {
    let responder = setup.responder(responder::Options { delay, ..Default::default() })?;
    let core = setup.options.cores.map(|cores| cores.generator);
    let trips_ns = on(core.as_slice(), || {
        let certificate = responder.certificate.as_ref();
        probe::round_trips(responder.address, certificate, setup.options.http2, [WARMUP, window])
    })
    .map_err(|error| format!("the probe gets no answer: {error}"))?;
    let median_us = judge::median(trips_ns.iter().map(|ns| *ns as f64)) / 1e3;
    Ok(Excess::new(median_us, judge::mean(&trips_ns) / 1e3, &record(responder)?))
}
