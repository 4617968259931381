//! T2: what takes so long is said to take so long.
//!
//! One client in a closed loop against a responder that waits for a known time before each answer. What the way there and
//! back takes is known from a responder that does not wait, and that from a second client that has nothing in common with the
//! load generator.

use super::children::{self, Awake, Responder};
use super::{Bench, Outcome};
use crate::units::Span;
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
    case("0ms", 0, 400, Some(250)),
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
const BOUND: &str = "5 µs or 0.5 %";

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
        let Over { median_us, mean_us } = over(bench, case.delay, window)?;
        let delay_us = case.delay.as_secs_f64() * 1e6;
        let (error_us, mean_error_us) = match floor {
            // Without a delay, all there is to compare with is what the other client sees.
            None => {
                let probed_us = probe_floor(bench)?;
                outcome.figure("floor_us", median_us);
                outcome.figure("probe_floor_us", probed_us);
                floor = Some(Over { median_us, mean_us });
                (median_us - probed_us, 0.0)
            }
            Some(Over { median_us: floor_us, mean_us: mean_floor_us }) => {
                (median_us - floor_us, mean_us - mean_floor_us)
            }
        };
        let bound_us = BOUND_US.max(delay_us * BOUND_SHARE);
        // Latencies that are cut make the mean too short. One that a neighbour made longer is no fault of the generator.
        outcome.holds(error_us.abs() <= bound_us && mean_error_us >= -bound_us);
        outcome.figure(&format!("error_{}_us", case.name), error_us);
        outcome.figure(&format!("mean_error_{}_us", case.name), mean_error_us);
        told.push(format!("{} {error_us:+.1} µs", Span(case.delay)));
    }
    outcome.measured = format!("median off by: {}", told.join(", "));
    Ok(outcome)
}

/// What the load generator sees beyond what the responder says it took.
#[derive(Clone, Copy)]
struct Over {
    median_us: f64,
    mean_us: f64,
}

fn over(bench: &Bench, delay: Duration, window: Duration) -> Result<Over, String> {
    let responder = start(bench, delay)?;
    let flags =
        format!("--clients 1 --threads 1 --no-preload --warmup {} --window {}", Span(WARMUP), Span(window));
    let report = bench.load(&responder, WARMUP + window, &flags)?;
    let truth = responder.truth()?;
    Ok(Over {
        median_us: report.latency.us_p50 - truth.delay.us_p50,
        mean_us: report.latency.us_mean - truth.delay.us_mean,
    })
}

fn start(bench: &Bench, delay: Duration) -> Result<Responder, String> {
    Responder::start(&bench.programs, &["--delay".to_owned(), Span(delay).to_string()])
}

/// What the simplest client there is sees of an answer without delay, where the load generator would run.
fn probe_floor(bench: &Bench) -> Result<f64, String> {
    let responder = start(bench, Duration::ZERO)?;
    let address = responder.address;
    let core = bench.programs.cores.map(|cores| cores.generator);
    let trip_us = children::on_core(core, || probe(address))
        .and_then(|probed| probed)
        .map_err(|error| format!("the probe gets no answer: {error}"))?;
    Ok(trip_us - responder.truth()?.delay.us_p50)
}

/// The median round trip in microseconds.
fn probe(address: SocketAddr) -> io::Result<f64> {
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
    Ok(trips_us[trips_us.len() / 2])
}
