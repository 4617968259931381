//! The rate check: requests are sent when they are due, by the responder's clock.
//!
//! At a constant rate the responder counts as many requests in a second as were asked for, at a low rate and near the
//! ceiling. As a Poisson process the gaps it sees are exponentially distributed.

use super::cores::{beside, keep_awake};
use super::{Setup, add, judge, passing, require};
use crate::responder::{Options, Record};
use kv::proto::{AccuracyCheck, LoadReport};
use kv::units;
use std::time::Duration;

const CLIENTS: u32 = 16;
/// Connecting and the first requests do not count.
const WARMUP: Duration = Duration::from_millis(200);

/// The low rate.
const LOW_RPS: f64 = 1000.0;
/// The high one, as a share of what this pair does at most.
const HIGH_SHARE: f64 = 0.8;
const CONSTANT_WINDOW: Duration = Duration::from_millis(2500);
const CONSTANT_WINDOW_SHORT: Duration = Duration::from_millis(1500);
const CEILING_WINDOW: Duration = Duration::from_millis(500);
/// What the rate may be off by.
const OFF_MAX: f64 = 0.001;
/// What the number of requests may be off by beside that: what is under way at the window's ends.
const EDGES: f64 = 2.0;
/// From this busy share of its thread on the generator limits the pair.
const BUSY: f64 = 0.9;

/// Of the Poisson process: low enough that what the network adds to a gap does not matter.
const POISSON_RPS: f64 = 500.0;
const POISSON_WINDOW: Duration = Duration::from_secs(4);
/// What its number of requests may be off by, in standard deviations.
const DEVIATIONS_MAX: f64 = 3.0;

const BOUND: &str = "at most 0.1 % off; Poisson: Anderson–Darling A² at most 1.959 (1 %), rate at most 3 standard deviations off";
const BOUND_SHORT: &str = "at most 0.1 % off";

pub(super) fn run(setup: &Setup) -> Result<AccuracyCheck, String> {
    let short = setup.options.short;
    let (bound, window) = if short { (BOUND_SHORT, CONSTANT_WINDOW_SHORT) } else { (BOUND, CONSTANT_WINDOW) };
    let mut check = passing(bound);
    let low = constant(setup, &mut check, "low", LOW_RPS, window)?;
    // Not part of the short check: the lab compares it with what it measures.
    let (ceiling_rps, busy) = ceiling(setup, &mut check)?;
    if short {
        check.measured = low;
        return Ok(check);
    }
    let high_rps = (ceiling_rps * HIGH_SHARE).round();
    let high = constant(setup, &mut check, "high", high_rps, CONSTANT_WINDOW)?;
    let poisson = poisson(setup, &mut check)?;
    let limit = if busy >= BUSY { "the generator" } else { "the test server" };
    check.measured = format!("{low}, {high} (80 % of the highest rate, limited by {limit}); {poisson}");
    Ok(check)
}

/// The most that the pair does in a closed loop, in requests per second by the responder's clock, and how busy the
/// generator's thread is then.
fn ceiling(setup: &Setup, check: &mut AccuracyCheck) -> Result<(f64, f64), String> {
    let (report, record) = load(setup, CEILING_WINDOW, "")?;
    let busy = report.cpu_secs / report.window_secs;
    let ceiling_rps = judge::rate(after_warmup(&record))?;
    let said_rps = report.goodput_rps;
    add(check, [("ceiling_rps", ceiling_rps), ("ceiling_said_rps", said_rps), ("generator_busy", busy)]);
    Ok((ceiling_rps, busy))
}

/// Asks for a constant rate, and says what it was.
fn constant(
    setup: &Setup,
    check: &mut AccuracyCheck,
    name: &str,
    rate_rps: f64,
    window: Duration,
) -> Result<String, String> {
    let (report, record) = load(setup, window, &format!("--rate {rate_rps}"))?;
    let off = judge::rate(after_warmup(&record))? / rate_rps - 1.0;
    // The generator's own report must say the same. One request more or less may fall into the window.
    let said_off = report.attempts as f64 / report.window_secs / rate_rps - 1.0;
    let expected = rate_rps * report.window_secs;
    let grain = 1.5 / expected;
    require(check, off.abs() <= OFF_MAX && said_off.abs() <= OFF_MAX.max(grain));
    // What was due is arithmetic, whatever the machine does meanwhile.
    let due_off = report.schedule.as_ref().map_or(0.0, |schedule| schedule.due as f64) - expected;
    require(check, due_off.abs() <= 1.0);
    let count_off = counts(check, name, &report, &record);
    let edges = EDGES + report.in_flight_at_end.min(u64::from(CLIENTS)) as f64;
    require(check, count_off.abs() <= edges + expected * OFF_MAX);
    let figures =
        [("due_off_count", due_off), ("rps", rate_rps), ("off_share", off), ("said_off_share", said_off)];
    check.figures.extend(figures.map(|(figure, value)| (format!("{name}_{figure}"), value)));
    Ok(format!("at {} req/s the rate is off by {:+.3} %", units::short(rate_rps), off * 100.0))
}

/// How many requests more the generator reports than the responder counts by its own clock, in a time as long as the window
/// that ends with the last request: the generator sends none after its window.
fn counts(check: &mut AccuracyCheck, name: &str, report: &LoadReport, record: &Record) -> f64 {
    let last_ns = record.arrivals_ns.last().copied().unwrap_or(0) as f64;
    let before = record.arrivals_ns.partition_point(|at| (*at as f64) <= last_ns - report.window_secs * 1e9);
    let counted = (record.arrivals_ns.len() - before) as f64;
    let said = report.attempts as f64;
    add(check, [(&*format!("{name}_counted"), counted), (&*format!("{name}_said"), said)]);
    said - counted
}

/// Asks for a Poisson process, and says what it was.
fn poisson(setup: &Setup, check: &mut AccuracyCheck) -> Result<String, String> {
    // Chance alone fails one in a hundred, so another try is another sample.
    let flags = format!("--rate {POISSON_RPS} --arrivals poisson --seed {}", setup.attempt);
    // The test server sees a request when its core has woken up: short gaps would be longer, and others shorter.
    // Requests that share a connection may be read together, and then there is no gap between them.
    let flags = format!("{flags} --clients {CLIENTS}");
    let loaded = || setup.load(Options::default(), [WARMUP, POISSON_WINDOW], &flags);
    let (report, record) = beside(setup.options.cores, keep_awake, loaded).0?;
    // By chance some are due between the last request and the window's end, and others before its beginning.
    let count_off = counts(check, "poisson", &report, &record);
    require(check, count_off.abs() <= f64::from(CLIENTS));
    let arrivals = after_warmup(&record);
    let rate_rps = judge::rate(arrivals)?;
    let squared = judge::anderson_darling_exponential(&judge::gaps(arrivals)).ok_or(judge::TOO_FEW)?;
    let deviations = (rate_rps / POISSON_RPS - 1.0) * (arrivals.len() as f64).sqrt();
    require(check, squared <= judge::ANDERSON_DARLING_1_PERCENT && deviations.abs() <= DEVIATIONS_MAX);
    add(check, [("poisson_anderson_darling", squared), ("poisson_rate_deviations", deviations)]);
    add(check, [("poisson_gaps", arrivals.len() as f64 - 1.0)]);
    Ok(format!("Poisson: A² {squared:.2}, rate off by {deviations:+.1} standard deviations"))
}

fn load(setup: &Setup, window: Duration, flags: &str) -> Result<(LoadReport, Record), String> {
    setup.load(Options::default(), [WARMUP, window], &format!("{flags} {}", setup.clients(CLIENTS)))
}

fn after_warmup(record: &Record) -> &[u64] {
    let first = record.arrivals_ns.partition_point(|at| u128::from(*at) < WARMUP.as_nanos());
    &record.arrivals_ns[first..]
}
