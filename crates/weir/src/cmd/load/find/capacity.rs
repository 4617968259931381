//! The highest throughput in a closed loop, and the knee.

use super::{attempt, needs_success, run};
use crate::cmd::{counted, note, say, say_document};
use kv::Error;
use kv::proto::LoadReport;
use kv::units::{micros, short};
use lab_analysis::{ERRORS_MAX, Estimate, Interval};
use load::{self, Plan};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A search has so many rounds over all levels.
const ROUNDS: usize = 3;
/// It warms up for this share of a window.
const WARMUP: f64 = 0.25;
/// A level is the last one if twice the clients bring less than this more.
const GAIN_LEAST: f64 = 1.03;

/// What `--find-capacity` says as JSON.
#[derive(Serialize)]
struct Capacity {
    /// `None` if no level counts.
    capacity_rps: Option<f64>,
    /// Half the width of its 95 % confidence interval; `None` with fewer than three rounds.
    plus_minus_rps: Option<f64>,
    clients: Option<u32>,
    /// `None` if the capacity may not be reached, or one client's level does not count.
    knee_clients: Option<f64>,
    levels: Vec<Level>,
}

/// A number of clients.
#[derive(Serialize)]
struct Level {
    clients: u32,
    goodput_rps: Vec<f64>,
    latency_us_mean: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    /// Of the round with most, as are the clients left without an answer.
    error_ratio: f64,
    unanswered: u64,
    /// The mean latency of successes.
    #[serde(skip)]
    success_us_mean: f64,
}

/// Finds the highest goodput in a closed loop, and the number of clients from which more only wait.
pub(in crate::cmd::load) fn capacity(
    plan: &Plan,
    within: Duration,
    (json, quiet): (bool, bool),
) -> Result<(), Error> {
    let begun = Instant::now();
    let runs = ROUNDS as f64 * f64::from(plan.clients.ilog2() + 1);
    let window = (within.as_secs_f64() / runs / (1.0 + WARMUP)).clamp(0.25, 30.0);
    let plan = Plan {
        window: Duration::from_secs_f64(window),
        warmup: Duration::from_secs_f64(window * WARMUP),
        ..plan.clone()
    };
    let mut reports = Vec::new();
    let ended = rounds(&plan, quiet, &mut reports);
    let levels: Vec<Level> = reports.iter().map(|of_level| Level::of(of_level)).collect();
    let Some(first) = levels.first() else { return ended };
    let counting = levels.iter().filter(|level| level.why_not().is_none());
    let estimates = counting.filter_map(|level| Some((Estimate::of(&level.goodput_rps)?, level.clients)));
    let best = estimates.max_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    // A request more or less in each window is no difference.
    let request_rps = 1.0 / window;
    let not_reached = best.and_then(|(_, clients)| not_reached(&levels, clients));
    let knee = best.filter(|_| not_reached.is_none() && first.why_not().is_none());
    let knee_clients = knee.map(|(estimate, _)| knee_clients(estimate.mean, first, plan.pacing.think.mean));
    let outcome = ended.and_then(|()| match (best, first.why_not()) {
        (None, Some(why)) => {
            Err(Error::unmet(format_args!("no number of clients counts: with one client {why}"))
                .hint("without --find-capacity the report says why requests fail"))
        }
        _ => Ok(()),
    });
    if json {
        let capacity_rps = best.map(|(estimate, _)| estimate.mean);
        let plus_minus_rps = best.and_then(|(estimate, _)| plus_minus(&estimate, request_rps));
        let clients = best.map(|(_, clients)| clients);
        say_document(&Capacity { capacity_rps, plus_minus_rps, clients, knee_clients, levels })?;
        return outcome;
    }
    let capacity = best.map_or("–".to_owned(), |(estimate, clients)| {
        let doubt = not_reached.map_or_else(String::new, |why| format!("; {why}"));
        format!("{} with {}{doubt}", in_words(&estimate, request_rps), counted(clients.into(), "client"))
    });
    say(format!("capacity    {capacity}"));
    say(knee_clients.map_or("knee        –".to_owned(), |clients| {
        format!(
            "knee        {} clients: capacity × (mean latency of one client + think time); with more, requests wait for each other",
            short(clients)
        )
    }));
    say(String::new());
    say(format!("{:>7} {:>10} {:>10} {:>10} {:>8}", "clients", "req/s", "p50", "p99", "errors"));
    for level in &levels {
        let (p50, p99) = (micros(level.latency_us_p50), micros(level.latency_us_p99));
        let errors = format!("{} %", short(level.error_ratio * 100.0));
        let rps = Estimate::of(&level.goodput_rps).map_or_else(String::new, |of| short(of.mean));
        let why_not = level.why_not().map_or_else(String::new, |why| format!("  does not count: {why}"));
        say(format!("{:>7} {rps:>10} {p50:>10} {p99:>10} {errors:>8}{why_not}", level.clients));
    }
    say(format!("took {:.0} s", begun.elapsed().as_secs_f64()));
    outcome
}

/// Measures 1, 2, 4, … clients in rounds, and appends the report of each to those of its level. An error is why that ended early.
fn rounds(plan: &Plan, quiet: bool, reports: &mut Vec<Vec<LoadReport>>) -> Result<(), Error> {
    let most = plan.clients;
    let mut plan = plan.clone();
    for round in 0..ROUNDS {
        for place in 0.. {
            let clients = 1 << place;
            let is_last = round > 0 && place == reports.len();
            if is_last || clients > most {
                break;
            }
            plan.clients = clients;
            // As above: each run asks for something else.
            plan.seed = plan.seed.wrapping_add(1);
            let report = if reports.is_empty() { run(&plan)? } else { attempt(&plan)? };
            if let Err(why) = needs_success(&report) {
                // What was measured with fewer clients stays.
                if reports.is_empty() {
                    return Err(why);
                }
                note(format_args!("{clients} clients: {why}"));
                break;
            }
            // The keys are there now.
            plan.preload = !plan.is_key_value();
            if !quiet {
                let (p50, p99) = (micros(report.latency.us_p50), micros(report.latency.us_p99));
                note(format!(
                    "round {} of {ROUNDS}  {clients:>5} clients  {:>6} req/s  p50 {p50}  p99 {p99}",
                    round + 1,
                    short(report.goodput_with_parts_rps()),
                ));
            }
            match reports.get_mut(place) {
                Some(of_level) => of_level.push(report),
                None => reports.push(vec![report]),
            }
            // Two doublings without a gain.
            let goodput = |back: usize| {
                reports.len().checked_sub(back).map(|place| reports[place][0].goodput_with_parts_rps())
            };
            if round == 0
                && let (Some(last), Some(before)) = (goodput(1), goodput(3))
                && last < before * GAIN_LEAST
            {
                break;
            }
        }
    }
    Ok(())
}

/// Why more than `best` clients, who had the highest goodput, may get more; `None` if fewer doublings than two are left that may bring a
/// gain.
fn not_reached(levels: &[Level], best: u32) -> Option<&'static str> {
    let counting: Vec<&Level> = levels.iter().filter(|level| level.why_not().is_none()).collect();
    let rps =
        |back: usize| Some(Estimate::of(&counting.get(counting.len().checked_sub(back)?)?.goodput_rps)?.mean);
    let is_level = rps(1).zip(rps(3)).is_some_and(|(last, before)| last < before * GAIN_LEAST);
    let is_last = counting.last().is_some_and(|last| last.clients == best);
    let has_more = levels.last().is_some_and(|last| last.clients > best);
    let why = if has_more { "no level with more clients counts" } else { "it was still rising" };
    (is_last && !is_level).then_some(why)
}

/// Half the width of a 95 % confidence interval, at least `least`; `None` where there is none.
fn plus_minus(of: &Estimate, least: f64) -> Option<f64> {
    (of.interval == Interval::StudentT).then_some((of.high - of.mean).max(least))
}

/// `12.3k ± 210 req/s`.
fn in_words(of: &Estimate, least: f64) -> String {
    let mean = short(of.mean);
    match (plus_minus(of, least), of.interval) {
        (Some(half), _) => format!("{mean} ± {} req/s", short(half)),
        (None, Interval::Single) => format!("{mean} req/s (one round)"),
        (None, _) => format!("{mean} req/s ({} to {} in two rounds)", short(of.low), short(of.high)),
    }
}

/// Asymptotic bounds: from so many clients on, they cannot all be served at once.
fn knee_clients(capacity_rps: f64, alone: &Level, think: Duration) -> f64 {
    capacity_rps * (alone.success_us_mean / 1e6 + think.as_secs_f64())
}

impl Level {
    /// Of at least one round; of latencies the mean of the rounds is kept.
    fn of(reports: &[LoadReport]) -> Level {
        let all = |figure: fn(&LoadReport) -> f64| reports.iter().map(figure);
        let mean = |figure: fn(&LoadReport) -> f64| all(figure).sum::<f64>() / reports.len() as f64;
        Level {
            clients: reports[0].clients,
            goodput_rps: all(LoadReport::goodput_with_parts_rps).collect(),
            latency_us_mean: mean(|report| report.latency.us_mean),
            latency_us_p50: mean(|report| report.latency.us_p50),
            latency_us_p99: mean(|report| report.latency.us_p99),
            error_ratio: all(|report| report.error_ratio).fold(0.0, f64::max),
            unanswered: reports.iter().map(|report| report.unanswered).max().unwrap_or_default(),
            success_us_mean: mean(success_us_mean),
        }
    }

    /// Why it counts neither for the capacity nor for the knee, as a level of the lab.
    fn why_not(&self) -> Option<String> {
        let Level { unanswered, clients, error_ratio, .. } = self;
        match () {
            () if *error_ratio > ERRORS_MAX => {
                Some(format!("{} % of the attempts failed", short(error_ratio * 100.0)))
            }
            () if *unanswered > 0 => {
                Some(format!("{unanswered} of {clients} clients were left without an answer"))
            }
            () => None,
        }
    }
}

/// The mean latency of successes.
fn success_us_mean(report: &LoadReport) -> f64 {
    let all = || report.operations.iter().map(|operation| &operation.latency);
    let sum: f64 = all().map(|latency| latency.us_mean * latency.count as f64).sum();
    sum / all().map(|latency| latency.count).sum::<u64>().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::{Latency, OperationReport};

    /// A level that fails in the second round has one round, which once read as ± 0.
    #[test]
    fn a_capacity_has_an_interval_from_three_rounds_on() {
        for (rounds, said) in [
            (&[100.0][..], "100 req/s (one round)"),
            (&[100.0, 120.0], "110 req/s (100 to 120 in two rounds)"),
            (&[100.0, 110.0, 120.0], "110 ± 24.8 req/s"),
            // 42 requests in each window.
            (&[96.8, 96.8, 96.8], "96.8 ± 2.30 req/s"),
        ] {
            assert_eq!(in_words(&Estimate::of(rounds).unwrap(), 2.3), said);
        }
    }

    /// Of equal levels the last may be the best by chance, which once read as rising.
    #[test]
    fn a_capacity_is_reached_if_the_last_doublings_that_count_brought_no_gain() {
        const RISING: Option<&str> = Some("it was still rising");
        const NO_MORE: Option<&str> = Some("no level with more clients counts");
        // From so many clients on some have no answer, or requests fail.
        for (rps, best, unanswered_from, failed_from, why) in [
            (&[100.0, 200.0, 201.0, 203.0][..], 8, 99, 99, None),
            (&[100.0, 200.0, 390.0, 700.0], 8, 99, 99, RISING),
            (&[100.0, 200.0, 390.0, 380.0], 4, 99, 99, None),
            (&[100.0, 190.0], 2, 99, 99, RISING),
            (&[100.0, 99.0, 101.0], 1, 2, 99, NO_MORE),
            (&[100.0, 200.0, 390.0, 700.0], 4, 99, 8, NO_MORE),
            (&[100.0, 200.0, 201.0, 202.0, 150.0], 8, 99, 16, None),
        ] {
            let report = |(place, rps): (u32, &f64)| LoadReport {
                clients: 1 << place,
                goodput_rps: *rps,
                unanswered: u64::from(1 << place >= unanswered_from),
                error_ratio: if 1 << place >= failed_from { 0.002 } else { 0.001 },
                ..LoadReport::default()
            };
            let levels: Vec<Level> = (0..).zip(rps).map(|of| Level::of(&[report(of)])).collect();
            assert_eq!(not_reached(&levels, best), why, "{rps:?}");
        }
    }

    #[test]
    fn the_knee_is_capacity_times_mean_latency_and_think_time() {
        // Nine of ten requests take 1 ms and the others 11 ms; a client thinks for 8 ms.
        let of = |us_mean, count| OperationReport {
            latency: Latency { us_mean, count, ..Latency::default() },
            ..OperationReport::default()
        };
        // A failed attempt of 5 s, in the mean latency of all, is none of it.
        let latency = Latency { us_mean: 7000.0, count: 1001, ..Latency::default() };
        let operations = vec![of(1000.0, 900), of(11_000.0, 100)];
        let report =
            LoadReport { clients: 1, goodput_rps: 100.0, latency, operations, ..LoadReport::default() };
        let alone = Level::of(&[report]);
        assert_eq!(knee_clients(5000.0, &alone, Duration::from_millis(8)), 50.0);
        assert_eq!(knee_clients(5000.0, &alone, Duration::ZERO), 10.0);
    }
}
