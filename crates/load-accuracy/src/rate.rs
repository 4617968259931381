//! T4: what is to be sent is sent when it is to be, by the responder's clock.
//!
//! At a constant rate the responder counts as many requests in a second as were asked for, at a low rate and near the
//! ceiling. As a Poisson process the gaps it sees are exponentially distributed.

use super::{Bench, Outcome, judge};
use kv::proto::{LoadReport, Truth};
use kv::units::{self, Span};
use std::time::Duration;

const CLIENTS: u32 = 16;
/// What is not looked at: connecting, and whatever else is new.
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
/// What the number of requests that the responder counts may be off by beside that: what is under way at the window's ends.
const EDGES: f64 = 2.0;
/// From which busy share of its thread on the generator is what limits the pair.
const BUSY: f64 = 0.9;

/// Of the Poisson process: low enough that what the way adds to a gap does not matter.
const POISSON_RPS: f64 = 500.0;
const POISSON_WINDOW: Duration = Duration::from_secs(4);
/// What its number of requests may be off by, in standard deviations.
const DEVIATIONS_MAX: f64 = 3.0;

const BOUND: &str = "rate and counts 0.1 %, up to 80 % of what the pair does; gaps A² 1.959 (1 %), rate 3 σ";
const BOUND_SHORT: &str = "rate and counts 0.1 %";

/// Runs it.
pub(super) fn run(bench: &Bench) -> Result<Outcome, String> {
    if bench.short {
        let mut outcome = Outcome::new(BOUND_SHORT);
        outcome.measured = constant(bench, &mut outcome, "low", LOW_RPS, CONSTANT_WINDOW_SHORT)?;
        // No part of the claim here: the lab holds it against what it measures.
        ceiling(bench, &mut outcome)?;
        return Ok(outcome);
    }
    let mut outcome = Outcome::new(BOUND);
    let low = constant(bench, &mut outcome, "low", LOW_RPS, CONSTANT_WINDOW)?;
    let (ceiling_rps, busy) = ceiling(bench, &mut outcome)?;
    let high_rps = (ceiling_rps * HIGH_SHARE).round();
    let high = constant(bench, &mut outcome, "high", high_rps, CONSTANT_WINDOW)?;
    let poisson = poisson(bench, &mut outcome)?;
    let limit = if busy >= BUSY { "the generator" } else { "the responder" };
    let why = format!(
        "80 % of what {limit} does, which limits the pair: the generator is {:.0} % busy",
        busy * 100.0
    );
    outcome.measured = format!("{low}, {high} ({why}); {poisson}");
    Ok(outcome)
}

/// What the pair does at most, in requests per second, and how busy the generator's thread is then. Closed, its clients ask as
/// fast as they are answered; how fast that is the responder says.
fn ceiling(bench: &Bench, outcome: &mut Outcome) -> Result<(f64, f64), String> {
    let (ceiling, truth) = load(bench, CEILING_WINDOW, "")?;
    let busy = ceiling.cpu_secs / ceiling.window_secs;
    let ceiling_rps = judge::rate(after_warmup(&truth)).ok_or("hardly a request came")?;
    outcome.figure("ceiling_rps", ceiling_rps);
    outcome.figure("ceiling_said_rps", ceiling.goodput_rps);
    outcome.figure("generator_busy", busy);
    Ok((ceiling_rps, busy))
}

/// Asks for a constant rate, and says what it was.
fn constant(
    bench: &Bench,
    outcome: &mut Outcome,
    name: &str,
    rate_rps: f64,
    window: Duration,
) -> Result<String, String> {
    let (report, truth) = load(bench, window, &format!("--rate {rate_rps}"))?;
    let off = judge::rate(after_warmup(&truth)).ok_or("hardly a request came")? / rate_rps - 1.0;
    // What the generator says of itself must be so, too. Of what it counts one more or less may fall into the window.
    let said_off = report.attempts as f64 / report.window_secs / rate_rps - 1.0;
    let expected = rate_rps * report.window_secs;
    let grain = 1.5 / expected;
    outcome.holds(off.abs() <= OFF_MAX && said_off.abs() <= OFF_MAX.max(grain));
    // What was due is arithmetic, whatever the machine does meanwhile.
    let due_off = report.schedule.as_ref().map_or(0.0, |schedule| schedule.due as f64) - expected;
    outcome.holds(due_off.abs() <= 1.0);
    let count_off = counts(outcome, name, &report, &truth);
    let edges = EDGES + report.in_flight_at_end.min(u64::from(CLIENTS)) as f64;
    outcome.holds(count_off.abs() <= edges + expected * OFF_MAX);
    outcome.figure(&format!("{name}_due_off_count"), due_off);
    outcome.figure(&format!("{name}_rps"), rate_rps);
    outcome.figure(&format!("{name}_off_share"), off);
    outcome.figure(&format!("{name}_said_off_share"), said_off);
    Ok(format!("{}/s off by {:+.3} %", units::short(rate_rps), off * 100.0))
}

/// By how much the number of requests that the generator says is more than what the responder counts by its own clock, in as
/// long a time that ends with the last request: the generator sends none after its window.
fn counts(outcome: &mut Outcome, name: &str, report: &LoadReport, truth: &Truth) -> f64 {
    let last_ns = truth.arrivals_ns.last().copied().unwrap_or(0) as f64;
    let before = truth.arrivals_ns.partition_point(|at| (*at as f64) <= last_ns - report.window_secs * 1e9);
    let counted = (truth.arrivals_ns.len() - before) as f64;
    outcome.figure(&format!("{name}_counted"), counted);
    outcome.figure(&format!("{name}_said"), report.attempts as f64);
    report.attempts as f64 - counted
}

/// Asks for a Poisson process, and says what it was.
fn poisson(bench: &Bench, outcome: &mut Outcome) -> Result<String, String> {
    // Chance alone fails one in a hundred, so another try is another sample.
    let flags = format!("--rate {POISSON_RPS} --arrivals poisson --seed {}", bench.attempt);
    let (report, truth) = load(bench, POISSON_WINDOW, &flags)?;
    // Some are due between the last and the window's end by chance, and their place at its beginning is another's.
    let count_off = counts(outcome, "poisson", &report, &truth);
    outcome.holds(count_off.abs() <= f64::from(CLIENTS));
    let arrivals = after_warmup(&truth);
    let squared =
        judge::anderson_darling_exponential(&judge::gaps(arrivals)).ok_or("hardly a request came")?;
    let rate_rps = judge::rate(arrivals).ok_or("hardly a request came")?;
    let deviations = (rate_rps / POISSON_RPS - 1.0) * (arrivals.len() as f64).sqrt();
    outcome.holds(squared <= judge::ANDERSON_DARLING_1_PERCENT && deviations.abs() <= DEVIATIONS_MAX);
    outcome.figure("poisson_anderson_darling", squared);
    outcome.figure("poisson_rate_deviations", deviations);
    outcome.figure("poisson_gaps", arrivals.len() as f64 - 1.0);
    Ok(format!("Poisson: A² {squared:.2}, rate {deviations:+.1} σ"))
}

fn load(bench: &Bench, window: Duration, flags: &str) -> Result<(LoadReport, Truth), String> {
    let responder = bench.responder(&["--arrivals".to_owned()])?;
    let flags = format!(
        "{flags} --clients {CLIENTS} --threads 1 --no-preload --warmup {} --window {}",
        Span(WARMUP),
        Span(window)
    );
    let report = bench.load(&responder, WARMUP + window, &flags)?;
    Ok((report, responder.truth()?))
}

fn after_warmup(truth: &Truth) -> &[u64] {
    let first = truth.arrivals_ns.partition_point(|at| u128::from(*at) < WARMUP.as_nanos());
    &truth.arrivals_ns[first..]
}
