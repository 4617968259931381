//! T3: a server that stands still is seen by all who would have asked it meanwhile.
//!
//! An open loop against a responder that freezes once, for S seconds. A request due t seconds later waits S − t, and what
//! comes while the queue empties waits as well: of requests at utilization ρ, S/(1 − ρ) seconds' worth are delayed, by times
//! that are uniform between 0 and S. So P(L > x) = (S − x) / ((1 − ρ)·T) in a window of T.

use super::{Bench, Outcome, judge};
use kv::proto::{Bucket, Latency};
use kv::units::Span;
use std::time::Duration;

/// Requests per second: few enough that ρ is small, and so matters little.
const RATE: f64 = 1000.0;
/// One connection is where it is hardest: what is uncorrected sees one delayed request.
const CLIENTS: &[u32] = &[1, 16];
const CLIENTS_SHORT: &[u32] = &[1];
/// Shorter delays are not looked at, as a share of the stall: they may be anything's.
const FROM_SHARE: f64 = 0.01;
const DISTANCE_MAX: f64 = 0.02;
const COUNT_OFF_MAX: f64 = 0.01;
/// What a percentile of the report may be off by, as a share of the stall.
const PERCENTILE_OFF_MAX: f64 = 0.02;
const BOUND: &str = "distance 0.02, count 1 %, percentiles 2 % of the stall";
/// A responder that is busier than this is too slow for the rate: what it says of itself would decide the claim.
const UTILIZATION_MAX: f64 = 0.2;
/// The percentiles that are of the stall: of the others the theory says nothing.
const QUANTILE_MIN: f64 = 0.99;

/// When and how long, in a window of how long.
struct Times {
    at: Duration,
    stall: Duration,
    window: Duration,
}

const TIMES: Times = Times {
    at: Duration::from_millis(500),
    stall: Duration::from_secs(1),
    window: Duration::from_millis(2500),
};
const TIMES_SHORT: Times = Times {
    at: Duration::from_millis(50),
    stall: Duration::from_millis(400),
    window: Duration::from_millis(700),
};

/// Runs it.
pub(super) fn run(bench: &Bench) -> Result<Outcome, String> {
    let (all, times) = if bench.short { (CLIENTS_SHORT, TIMES_SHORT) } else { (CLIENTS, TIMES) };
    let mut outcome = Outcome::new(BOUND);
    let mut told = Vec::new();
    for clients in all {
        let seen = look(bench, *clients, &times)?;
        let count_off = seen.delayed / seen.expected - 1.0;
        outcome.holds(seen.distance <= DISTANCE_MAX && count_off.abs() <= COUNT_OFF_MAX);
        outcome.holds(seen.percentile_off <= PERCENTILE_OFF_MAX && seen.agrees);
        outcome.holds(seen.utilization <= UTILIZATION_MAX);
        for (name, value) in [
            ("utilization", seen.utilization),
            ("distance", seen.distance),
            ("delayed", seen.delayed),
            ("expected", seen.expected),
            ("p99_ms", seen.p99_ms),
            ("percentile_off_share", seen.percentile_off),
            ("uncorrected_delayed", seen.uncorrected),
            ("uncorrected_p99_ms", seen.uncorrected_p99_ms),
        ] {
            outcome.figure(&format!("{name}_{clients}_clients"), value);
        }
        told.push(format!(
            "{clients} client{}: distance {:.4}, {} delayed ({:+.2} %), percentiles off by {:.2} %, uncorrected {}{}{}",
            if *clients == 1 { "" } else { "s" },
            seen.distance,
            seen.delayed,
            count_off * 100.0,
            seen.percentile_off * 100.0,
            seen.uncorrected,
            if seen.agrees { "" } else { ", percentiles are not those of the histogram" },
            match seen.utilization <= UTILIZATION_MAX {
                true => String::new(),
                false => format!(
                    ", could not be tested: the responder's utilization is {:.2}, {UTILIZATION_MAX} is the most",
                    seen.utilization
                ),
            },
        ));
    }
    outcome.measured = told.join("; ");
    Ok(outcome)
}

/// What was seen of a stall.
struct Seen {
    /// By the responder's account.
    utilization: f64,
    /// From the theory.
    distance: f64,
    delayed: f64,
    expected: f64,
    p99_ms: f64,
    /// By how much the farthest percentile of the report is off, as a share of the stall.
    percentile_off: f64,
    /// Whether the percentiles are those of the histogram.
    agrees: bool,
    /// How many are delayed if latency is counted from the sending, as a generator without correction has it.
    uncorrected: f64,
    uncorrected_p99_ms: f64,
}

fn look(bench: &Bench, clients: u32, times: &Times) -> Result<Seen, String> {
    let stall = format!("{}:{}", Span(times.at), Span(times.stall));
    let flags = ["--arrivals".to_owned(), "--stall".to_owned(), stall];
    let responder = bench.responder(&flags)?;
    let flags = format!(
        "--rate {RATE} --clients {clients} --threads 1 --no-preload --warmup 0s --window {} --timeout 10s --histogram",
        Span(times.window),
    );
    let report = bench.load(&responder, times.window, &flags)?;
    let truth = responder.truth()?;
    let [at_secs, stall_secs] = truth.stall_secs.ok_or("the responder never froze")?;
    // How fast the queue empties: half of it is enough to tell, and all of it may be more than there was.
    let thawed = truth.arrivals_ns.partition_point(|ns| *ns as f64 / 1e9 < at_secs + stall_secs);
    let queue = truth.arrivals_ns.iter().skip(thawed).take((RATE * stall_secs / 2.0) as usize);
    let queue: Vec<u64> = queue.copied().collect();
    let utilization = RATE / judge::rate(&queue).ok_or("hardly a request came")?;
    let buckets = |name: &str| -> Result<&Vec<Bucket>, String> {
        report.histograms.get(name).ok_or(format!("the load generator's report has no histogram {name:?}"))
    };
    let (all, service) = (buckets("all")?, buckets("service")?);
    let from_ns = stall_secs * 1e9 * FROM_SHARE;
    // All requests succeed, so that the one operation's latencies are those of all.
    let latencies: Vec<&Latency> = [&report.latency]
        .into_iter()
        .chain(report.operations.iter().map(|operation| &operation.latency))
        .collect();
    let off = |latency: &&Latency| {
        let window_secs = latency.count as f64 / RATE;
        let of_stall = |(q, _): &(f64, f64)| *q >= QUANTILE_MIN;
        let off = move |(q, us): (f64, f64)| {
            let expected_secs = stall_secs - (1.0 - q) * (1.0 - utilization) * window_secs;
            (us / 1e6 - expected_secs).abs() / stall_secs
        };
        judge::percentiles(latency).into_iter().filter(of_stall).map(off).fold(0.0, f64::max)
    };
    let longer = |buckets: &[Bucket]| judge::longer_than(buckets, from_ns as u64) as f64;
    Ok(Seen {
        utilization,
        distance: judge::distance_from_uniform(all, from_ns, stall_secs * 1e9),
        delayed: longer(all),
        expected: RATE * (stall_secs - from_ns / 1e9) / (1.0 - utilization),
        p99_ms: judge::quantile_ns(all, 0.99) / 1e6,
        percentile_off: latencies.iter().map(off).fold(0.0, f64::max),
        agrees: latencies.iter().all(|latency| judge::agrees(latency, all)),
        uncorrected: longer(service),
        uncorrected_p99_ms: judge::quantile_ns(service, 0.99) / 1e6,
    })
}
