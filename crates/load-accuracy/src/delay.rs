//! T2: what takes so long is said to take so long.
//!
//! One client in a closed loop against a responder that waits for a known time before each answer. What the way there and
//! back takes is known from a responder that does not wait, and that from a second client that has nothing in common with the
//! load generator.

use super::children::{self, Awake, Responder};
use super::{Bench, Outcome, judge};
use kv::units::Span;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A delay, and how long it is looked at.
struct Case {
    /// In figures.
    name: &'static str,
    delay: Duration,
    window: Duration,
    /// In the short form, if it is part of it.
    window_short: Option<Duration>,
}

const fn case(name: &'static str, delay_us: u64, window_ms: u64, window_short_ms: Option<u64>) -> Case {
    let window_short = match window_short_ms {
        Some(ms) => Some(Duration::from_millis(ms)),
        None => None,
    };
    Case {
        name,
        delay: Duration::from_micros(delay_us),
        window: Duration::from_millis(window_ms),
        window_short,
    }
}

/// The first is the floor of the others.
const CASES: &[Case] = &[
    case("0ms", 0, 400, Some(200)),
    case("0.1ms", 100, 400, None),
    case("1ms", 1000, 700, None),
    case("10ms", 10_000, 600, Some(300)),
    case("100ms", 100_000, 1800, None),
];
const WARMUP: Duration = Duration::from_millis(50);
/// What a median may be off by, in microseconds,
const BOUND_US: f64 = 5.0;
/// or as a share of the delay.
const BOUND_SHARE: f64 = 0.005;
const BOUND: &str = "median 5 µs or 0.5 %; mean the same below, 50 µs or 20 % above";
/// What a mean may be longer by, in microseconds or as a share of the delay: a neighbour's outliers are no fault of the
/// generator, but there is an end to them.
const MEAN_BOUND_US: f64 = 50.0;
const MEAN_BOUND_SHARE: f64 = 0.2;

/// Round trips of the probe, and how many before they count.
const PROBES: usize = 3000;
const PROBES_BEFORE: usize = 300;
/// How long the probe waits for an answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs it.
pub(super) fn run(bench: &Bench) -> Result<Outcome, String> {
    let _awake = Awake::keep(bench.programs.cores);
    let mut outcome = Outcome::new(BOUND);
    let mut told = Vec::new();
    let mut floor = None;
    for case in CASES {
        let window = if bench.short { case.window_short } else { Some(case.window) };
        let Some(window) = window else { continue };
        let (Over { median_us, mean_us }, agrees) = over(bench, case.delay, window)?;
        let delay_us = case.delay.as_secs_f64() * 1e6;
        // The mean's error is taken twice: what it must not be below, and what it must not be above.
        let (error_us, mean_error_us, mean_lower_us) = match floor {
            // Without a delay, all there is to compare with is what the other client sees.
            None => {
                let probed = probe_floor(bench)?;
                outcome.figure("floor_us", median_us);
                outcome.figure("probe_floor_us", probed.median_us);
                floor = Some(Over { median_us, mean_us });
                // The probe has outliers of its own; a mean that is below its median has none, and lacks some.
                (median_us - probed.median_us, mean_us - probed.mean_us, mean_us - probed.median_us)
            }
            Some(Over { median_us: floor_us, mean_us: mean_floor_us }) => {
                let error_us = mean_us - mean_floor_us;
                (median_us - floor_us, error_us, error_us)
            }
        };
        let bound_us = BOUND_US.max(delay_us * BOUND_SHARE);
        let mean_bound_us = MEAN_BOUND_US.max(delay_us * MEAN_BOUND_SHARE);
        outcome.holds(error_us.abs() <= bound_us && agrees);
        // Latencies that are cut make the mean too short.
        outcome.holds(mean_lower_us >= -bound_us && mean_error_us <= mean_bound_us);
        outcome.figure(&format!("error_{}_us", case.name), error_us);
        outcome.figure(&format!("mean_error_{}_us", case.name), mean_error_us);
        let agreement = if agrees { "" } else { " (percentiles are not those of the histogram)" };
        told.push(format!("{} {error_us:+.1} µs, mean {mean_error_us:+.1} µs{agreement}", Span(case.delay)));
    }
    outcome.measured = format!("median off by: {}", told.join("; "));
    Ok(outcome)
}

/// What the load generator sees beyond what the responder says it took.
#[derive(Clone, Copy)]
struct Over {
    median_us: f64,
    mean_us: f64,
}

/// That, and whether the report's percentiles are those of its histogram.
fn over(bench: &Bench, delay: Duration, window: Duration) -> Result<(Over, bool), String> {
    let responder = start(bench, delay)?;
    let flags = format!(
        "--clients 1 --threads 1 --no-preload --warmup {} --window {} --histogram",
        Span(WARMUP),
        Span(window)
    );
    let report = bench.load(&responder, WARMUP + window, &flags)?;
    let truth = responder.truth()?;
    let all = report.histograms.get("all").ok_or("the load generator's report has no histogram \"all\"")?;
    let over = Over {
        median_us: report.latency.us_p50 - truth.delay.us_p50,
        mean_us: report.latency.us_mean - truth.delay.us_mean,
    };
    Ok((over, judge::agrees(&report.latency, all)))
}

fn start(bench: &Bench, delay: Duration) -> Result<Responder, String> {
    bench.responder(&["--delay".to_owned(), Span(delay).to_string()])
}

/// What the simplest client there is sees of an answer without delay, where the load generator would run.
fn probe_floor(bench: &Bench) -> Result<Over, String> {
    let responder = start(bench, Duration::ZERO)?;
    let address = responder.address;
    let core = bench.programs.cores.map(|cores| cores.generator);
    let trip = children::on_core(core, || probe(address))
        .and_then(|probed| probed)
        .map_err(|error| format!("the probe gets no answer: {error}"))?;
    let delay = responder.truth()?.delay;
    Ok(Over { median_us: trip.median_us - delay.us_p50, mean_us: trip.mean_us - delay.us_mean })
}

/// Its round trips.
fn probe(address: SocketAddr) -> io::Result<Over> {
    // As long as the load generator's, so that it takes as long to send.
    const QUESTION: &[u8] = b"GET /kv/popular_0 HTTP/1.1\r\nHost: 127.0.0.1:65535\r\n\r\n";
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    let mut buffer = [0; 1024];
    let mut trips_us = Vec::with_capacity(PROBES);
    for trip in 0..PROBES + PROBES_BEFORE {
        let sent = Instant::now();
        stream.write_all(QUESTION)?;
        // The answer is short and sent at once, so that it comes in one piece.
        if stream.read(&mut buffer)? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if trip >= PROBES_BEFORE {
            trips_us.push(sent.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    trips_us.sort_by(f64::total_cmp);
    let mean_us = trips_us.iter().sum::<f64>() / trips_us.len() as f64;
    Ok(Over { median_us: trips_us[trips_us.len() / 2], mean_us })
}
