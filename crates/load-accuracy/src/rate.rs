//! The rate check: requests are sent when they are due, by the responder's clock.
//!
//! At a constant rate the responder counts as many requests in a second as were asked for, at a low rate and near the
//! ceiling. As a Poisson process the gaps it sees are exponentially distributed.

use super::{Findings, Setup, judge};
use crate::responder::{Options, Record};
use kv::proto::LoadReport;
use kv::units::{self, Span};
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

const BOUND: &str = "rate and counts 0.1 %, up to 80 % of what the pair does; gaps A² 1.959 (1 %), rate 3 σ";
const BOUND_SHORT: &str = "rate and counts 0.1 %";

pub(super) fn run(setup: &Setup) -> Result<Findings, String> {
    if setup.short {
        let mut findings = Findings::new(BOUND_SHORT);
        findings.measured = constant(setup, &mut findings, "low", LOW_RPS, CONSTANT_WINDOW_SHORT)?;
        // Not part of the check here: the lab compares it with what it measures.
        ceiling(setup, &mut findings)?;
        return Ok(findings);
    }
    let mut findings = Findings::new(BOUND);
    let low = constant(setup, &mut findings, "low", LOW_RPS, CONSTANT_WINDOW)?;
    let (ceiling_rps, busy) = ceiling(setup, &mut findings)?;
    let high_rps = (ceiling_rps * HIGH_SHARE).round();
    let high = constant(setup, &mut findings, "high", high_rps, CONSTANT_WINDOW)?;
    let poisson = poisson(setup, &mut findings)?;
    let limit = if busy >= BUSY { "the generator" } else { "the responder" };
    let why = format!(
        "80 % of what {limit} does, which limits the pair: the generator is {:.0} % busy",
        busy * 100.0
    );
    findings.measured = format!("{low}, {high} ({why}); {poisson}");
    Ok(findings)
}

/// The most that the pair does in a closed loop, in requests per second by the responder's clock, and how busy the
/// generator's thread is then.
fn ceiling(setup: &Setup, findings: &mut Findings) -> Result<(f64, f64), String> {
    let (report, record) = load(setup, CEILING_WINDOW, "")?;
    let busy = report.cpu_secs / report.window_secs;
    let ceiling_rps = judge::rate(after_warmup(&record))?;
    findings.figure("ceiling_rps", ceiling_rps);
    findings.figure("ceiling_said_rps", report.goodput_rps);
    findings.figure("generator_busy", busy);
    Ok((ceiling_rps, busy))
}

/// Asks for a constant rate, and says what it was.
fn constant(
    setup: &Setup,
    findings: &mut Findings,
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
    findings.require(off.abs() <= OFF_MAX && said_off.abs() <= OFF_MAX.max(grain));
    // What was due is arithmetic, whatever the machine does meanwhile.
    let due_off = report.schedule.as_ref().map_or(0.0, |schedule| schedule.due as f64) - expected;
    findings.require(due_off.abs() <= 1.0);
    let count_off = counts(findings, name, &report, &record);
    let edges = EDGES + report.in_flight_at_end.min(u64::from(CLIENTS)) as f64;
    findings.require(count_off.abs() <= edges + expected * OFF_MAX);
    findings.figure(format!("{name}_due_off_count"), due_off);
    findings.figure(format!("{name}_rps"), rate_rps);
    findings.figure(format!("{name}_off_share"), off);
    findings.figure(format!("{name}_said_off_share"), said_off);
    Ok(format!("{}/s off by {:+.3} %", units::short(rate_rps), off * 100.0))
}

/// How many requests more the generator reports than the responder counts by its own clock, in a time as long as the window
/// that ends with the last request: the generator sends none after its window.
fn counts(findings: &mut Findings, name: &str, report: &LoadReport, record: &Record) -> f64 {
    let last_ns = record.arrivals_ns.last().copied().unwrap_or(0) as f64;
    let before = record.arrivals_ns.partition_point(|at| (*at as f64) <= last_ns - report.window_secs * 1e9);
    let counted = (record.arrivals_ns.len() - before) as f64;
    findings.figure(format!("{name}_counted"), counted);
    findings.figure(format!("{name}_said"), report.attempts as f64);
    report.attempts as f64 - counted
}

/// Asks for a Poisson process, and says what it was.
fn poisson(setup: &Setup, findings: &mut Findings) -> Result<String, String> {
    // Chance alone fails one in a hundred, so another try is another sample.
    let flags = format!("--rate {POISSON_RPS} --arrivals poisson --seed {}", setup.attempt);
    let (report, record) = load(setup, POISSON_WINDOW, &flags)?;
    // By chance some are due between the last request and the window's end, and others before its beginning.
    let count_off = counts(findings, "poisson", &report, &record);
    findings.require(count_off.abs() <= f64::from(CLIENTS));
    let arrivals = after_warmup(&record);
    let rate_rps = judge::rate(arrivals)?;
    let squared = judge::anderson_darling_exponential(&judge::gaps(arrivals)).ok_or(judge::TOO_FEW)?;
    let deviations = (rate_rps / POISSON_RPS - 1.0) * (arrivals.len() as f64).sqrt();
    findings.require(squared <= judge::ANDERSON_DARLING_1_PERCENT && deviations.abs() <= DEVIATIONS_MAX);
    findings.figure("poisson_anderson_darling", squared);
    findings.figure("poisson_rate_deviations", deviations);
    findings.figure("poisson_gaps", arrivals.len() as f64 - 1.0);
    Ok(format!("Poisson: A² {squared:.2}, rate {deviations:+.1} σ"))
}

fn load(setup: &Setup, window: Duration, flags: &str) -> Result<(LoadReport, Record), String> {
    let flags = format!(
        "{flags} --clients {CLIENTS} --threads 1 --no-preload --warmup {} --window {}",
        Span(WARMUP),
        Span(window)
    );
    setup.load(Options::default(), WARMUP + window, &flags)
}

fn after_warmup(record: &Record) -> &[u64] {
    let first = record.arrivals_ns.partition_point(|at| u128::from(*at) < WARMUP.as_nanos());
    &record.arrivals_ns[first..]
}
