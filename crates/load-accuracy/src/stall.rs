//! The stall check: a server that freezes delays all requests that were due meanwhile.
//!
//! An open loop against a responder that freezes once, for S seconds. A request due t seconds later waits S − t, and what
//! arrives while the queue empties waits as well: of requests at utilization ρ, S/(1 − ρ) seconds' worth are delayed, by
//! times that are uniform between 0 and S. So P(L > x) = (S − x) / ((1 − ρ)·T) in a window of T.
//! If the window ends in the stall, S is what passed of it: nothing is answered and no queue empties, so that ρ is 0.

use super::{Setup, judge, passing, require};
use crate::responder::{Options, Record};
use kv::proto::{AccuracyCheck, Bucket, CheckOutcome, Latency, LoadReport};
use std::time::Duration;

/// Requests per second: few enough that ρ is small, and so matters little.
const RATE: f64 = 1000.0;
/// One connection is the hardest case: a generator without correction sees one delayed request.
const CLIENTS: &[u32] = &[1, 16];
const CLIENTS_SHORT: &[u32] = &[1];
/// Shorter delays are ignored, as a share of the stall: they may have other causes.
const FROM_SHARE: f64 = 0.01;
const DISTANCE_MAX: f64 = 0.02;
const COUNT_OFF_MAX: f64 = 0.01;
/// What a percentile of the report may be off by, as a share of the stall.
const PERCENTILE_OFF_MAX: f64 = 0.02;
const BOUND: &str =
    "at most: distribution 0.02, number of delayed requests 1 %, percentiles 2 % of the length of the stall";
/// A responder that is busier than this is too slow for the rate: its own record would decide the check.
const UTILIZATION_MAX: f64 = 0.2;
/// The percentiles from here up are those of the stall.
const QUANTILE_MIN: f64 = 0.99;

/// When to freeze, for how long, and the window, in milliseconds: a stall within it, and one that lasts beyond its end.
const TIMES_MS: [[u64; 3]; 2] = [[500, 1000, 2500], [500, 1000, 1400]];
const TIMES_SHORT_MS: [[u64; 3]; 2] = [[50, 400, 700], [50, 600, 550]];

pub(super) fn run(setup: &Setup) -> Result<AccuracyCheck, String> {
    let short = setup.options.short;
    let (all, times) = if short { (CLIENTS_SHORT, TIMES_SHORT_MS) } else { (CLIENTS, TIMES_MS) };
    let mut check = passing(BOUND);
    let mut measured = Vec::new();
    for (clients, times) in all.iter().flat_map(|clients| times.map(|times| (clients, times))) {
        let [at, stall, window] = times.map(Duration::from_millis);
        let flags = format!("--rate {RATE} {} --timeout 10s --histogram", setup.clients(*clients));
        let options = Options { stall: Some([at, stall]), ..Options::default() };
        let (report, record) = setup.load(options, [Duration::ZERO, window], &flags)?;
        measured.push(compare(&report, &record, *clients, &mut check)?);
    }
    if check.outcome != CheckOutcome::NotChecked {
        check.measured = measured.join("; ");
    }
    Ok(check)
}

/// Compares the report of a run with the theory, and says what it found.
fn compare(
    report: &LoadReport,
    record: &Record,
    clients: u32,
    check: &mut AccuracyCheck,
) -> Result<String, String> {
    let [at_secs, stall_secs] = record.stall_secs.ok_or("the test server never froze")?;
    let is_at_end = at_secs + stall_secs >= report.window_secs;
    let stall_secs = stall_secs.min(report.window_secs - at_secs);
    // How fast the queue empties: half of it is enough to tell, and all of it may be more than there was.
    let thawed = record.arrivals_ns.partition_point(|ns| *ns as f64 / 1e9 < at_secs + stall_secs);
    let end = record.arrivals_ns.len().min(thawed + (RATE * stall_secs / 2.0) as usize);
    let utilization = if is_at_end { 0.0 } else { RATE / judge::rate(&record.arrivals_ns[thawed..end])? };
    if utilization > UTILIZATION_MAX {
        check.outcome = CheckOutcome::NotChecked;
        check.measured =
            format!("the test server's utilization is {utilization:.2}, above {UTILIZATION_MAX}");
    }
    let (all, service) = (judge::histogram(report, "all")?, judge::histogram(report, "service")?);
    let from_ns = stall_secs * 1e9 * FROM_SHARE;
    let longer = |buckets: &[Bucket]| judge::longer_than(buckets, from_ns as u64) as f64;
    let (delayed, uncorrected) = (longer(all), longer(service));
    let expected = RATE * (stall_secs - from_ns / 1e9) / (1.0 - utilization);
    let count_off = delayed / expected - 1.0;
    let distance = judge::distance_from_uniform(all, from_ns, stall_secs * 1e9);
    // All requests that end succeed, so that the one operation's latencies are those of all; what has not ended is of no operation.
    let operations = report.operations.iter().filter(|_| !is_at_end).map(|operation| &operation.latency);
    let latencies: Vec<&Latency> = [&report.latency].into_iter().chain(operations).collect();
    let off = |latency: &&Latency| {
        let window_secs = latency.count as f64 / RATE;
        let off = move |(q, us): (f64, f64)| {
            let expected_secs = stall_secs - (1.0 - q) * (1.0 - utilization) * window_secs;
            (us / 1e6 - expected_secs).abs() / stall_secs
        };
        let of_stall = judge::percentiles(latency).into_iter().filter(|(q, _)| *q >= QUANTILE_MIN);
        of_stall.map(off).fold(0.0, f64::max)
    };
    let percentile_off = latencies.iter().map(off).fold(0.0, f64::max);
    let agrees = latencies.iter().all(|latency| judge::agrees(latency, all));

    require(check, distance <= DISTANCE_MAX && count_off.abs() <= COUNT_OFF_MAX);
    require(check, percentile_off <= PERCENTILE_OFF_MAX && agrees);
    let figures = [
        ("utilization", utilization),
        ("distance", distance),
        ("delayed", delayed),
        ("expected", expected),
        ("percentile_off_share", percentile_off),
        // If latency were counted from the sending, as a generator without correction does.
        ("uncorrected_delayed", uncorrected),
    ];
    let at_end = if is_at_end { "_at_end" } else { "" };
    check.figures.extend(figures.map(|(name, value)| (format!("{name}_{clients}_clients{at_end}"), value)));
    let agreement =
        if agrees { "" } else { "; the percentiles disagree with the histogram, which fails the check" };
    Ok(format!(
        "{clients} client{} at a fixed rate{}: the distribution of latencies differs from the calculated one by {distance:.4} (Kolmogorov–Smirnov distance, 0 to 1), the number of delayed requests by {:+.2} %, and p99 and higher percentiles by {:.2} % of the length of the stall{agreement}",
        if clients == 1 { "" } else { "s" },
        if is_at_end { ", stall to the end of the window" } else { "" },
        count_off * 100.0,
        percentile_off * 100.0,
    ))
}
