//! The load generator: many clients in a closed or an open loop against any HTTP server, and what they saw.
//!
//! Knows a URL and a dialect, not our server; prints nothing. A [`Plan`] goes in, a
//! [`LoadReport`] comes out. Read on in this order: `plan`, `workload` and `keys` (with `mix`, `distribution` and `value_size`)
//! say what is asked for of keys and values, `http_request` (with `variables`, `values` and `statuses`) of a URL, `dialect`, `request` and `answer` what that is on the wire, `client` (of HTTP/2 `http2`) and `reactor` move it, `verify`,
//! `staleness` and `linearizability` look at what was read, `recorder` counts, `measure` holds the window, `read_back` reads what was written in a checked run; `workers` divides it all among several processes.

mod plan;
mod workload;
mod mix;
mod distribution;
mod value_size;
mod draw;
mod keys;
mod stages;
mod pacing;
mod schedule;
mod target;
mod tls;
mod stream;
mod statuses;
mod values;
mod variables;
mod header;
mod targets;
mod http_request;
mod dialect;
mod encode;
mod piece;
mod pieces;
mod verify;
mod history;
pub mod linearizability;
mod request;
mod fault;
mod answer;
mod attempt;
mod client;
mod http2;
mod timer;
mod reactor;
mod status_counts;
mod seconds;
mod samples;
mod recorder;
mod tally;
mod staleness;
mod preload;
mod read_back;
mod early_end;
mod failure;
mod conditions;
mod measure;
pub mod workers;
#[cfg(feature = "test-support")]
#[path = "../tests/fuzz/mod.rs"]
pub mod fuzz;

pub use conditions::{Conditions, left_out, nothing_succeeded, server_is_gone, wanted};
pub use dialect::{DIALECTS, Dialect};
pub use distribution::{DISTRIBUTIONS, Distribution, DistributionRow};
pub use early_end::EarlyEnd;
pub use fault::Fault;
pub use header::Header;
pub use http_request::{Body, RequestFlags};
pub use keys::key_numbers;
pub use measure::full_warmup;
pub use mix::{MIX_ENTRIES, Mix, MixEntry, Operation, Step};
pub use pacing::{Arrivals, Pacing, Think};
pub use plan::{Check, Connect, Kind, Plan, span};
pub use samples::Samples;
pub use stages::Stages;
pub use statuses::Statuses;
pub use target::{Address, Target};
pub use targets::Targets;
pub use tls::Tls;
pub use value_size::ValueSize;
pub use values::Values;
pub use verify::Verify;
pub use workload::{WORKLOADS, Workload};

use kv::Error;
use kv::proto::{LoadEvent, LoadReport};
use kv::units::Span;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use stream::Endpoint;

/// File descriptors kept for everything that is not a client.
const FILES_SPARE: u64 = 64;

/// Hears what happens while a load runs, in the thread that started it. The report is not among it: it is what comes back.
pub type Observer<'a> = &'a mut dyn FnMut(LoadEvent);

/// Carries out `plan` and says what its clients saw in the window.
///
/// Blocks for the warm-up and the window, and before them for the preload. A server that fails later than at the
/// first connection fails requests, not the run.
pub fn run(plan: &Plan, observer: Observer<'_>) -> Result<LoadReport, Error> {
    run_until(plan, &EarlyEnd::default(), observer)
}

/// As [`run`]; its window is over when `early_end` says so, and then was as long as the report's `window_secs`.
pub fn run_until(plan: &Plan, early_end: &EarlyEnd, observer: Observer<'_>) -> Result<LoadReport, Error> {
    plan.check()?;
    let verify = if plan.check_for.is_some() { Verify::all() } else { plan.verify.anew() };
    let plan = &Plan { verify, warmup: full_warmup(plan), ..plan.clone() };
    let endpoints = reach(plan)?;
    allow_files(u64::from(plan.clients) + FILES_SPARE);
    if plan.preload_keys() > 0 {
        preload::preload(plan, &endpoints, observer)?;
    }
    measure::measure(plan, &endpoints, early_end, observer)
}

/// Why the generator may have been the limit, so that the target can do more than was seen; `None` where it was not.
///
/// It may have been if its threads used over 70 % of a core each, or if the requests of a closed loop spent over 10 % of their
/// time waiting for the generator to get a core.
pub fn generator_limit(report: &LoadReport) -> Option<String> {
    const BUSY_MAX: f64 = 0.7;
    const DELAY_MAX: f64 = 0.1;
    let all = ("the generator’s threads".to_owned(), report.cpu_secs, report.threads);
    // The mean over several workers hides the one that can do no more.
    let each = (report.workers.iter())
        .map(|of| (format!("the threads of worker `{}`", of.command), of.cpu_secs, of.threads));
    for (name, cpu_secs, threads) in [all].into_iter().chain(each) {
        let busy = cpu_secs / report.window_secs / f64::from(threads);
        if busy > BUSY_MAX {
            return Some(format!("{name} were {:.0} % busy", busy * 100.0));
        }
    }
    let delayed = generator_delay(report).filter(|delayed| *delayed > DELAY_MAX)?;
    Some(format!("the generator waited for a core for {:.0} % of the latency", delayed * 100.0))
}

/// How much of the latencies of a closed loop the generator waited for a core, 0–1; `None` where that is not known. They are too
/// high by this share at least: several requests may wait at once.
pub fn generator_delay(report: &LoadReport) -> Option<f64> {
    let in_flight_secs = report.request_secs();
    let delayed = report.run_delay_secs? / in_flight_secs;
    // Where nothing succeeded, clients mostly back off, and what failed says nothing of latencies.
    let is_measured = report.schedule.is_none() && in_flight_secs > 0.0 && report.successes > 0;
    is_measured.then_some(delayed)
}

/// The servers of the plan. Of the addresses of each, the first one at which someone accepts a connection.
fn reach(plan: &Plan) -> Result<Arc<[Endpoint]>, Error> {
    let is_tls = plan.urls.iter().any(|target| target.tls_host().is_some());
    if let Some(flag) = plan.tls.first_flag().filter(|_| !is_tls) {
        return Err(Error::input(format_args!("{flag} is only for https, and {} is not", plan.urls[0]))
            .hint(format_args!("write https://…, or leave {flag} out")));
    }
    // Where each request has a connection of its own, the cost of connecting is what is measured.
    let config =
        if is_tls { Some(plan.tls.config(plan.http2, plan.connect == Connect::Once)?) } else { None };
    let reached = plan.urls.iter().map(|target| {
        let tls = target.tls_host().zip(config.as_ref());
        let tls = tls.map(|(host, config)| Ok::<_, Error>((Arc::clone(config), tls::server_name(host)?)));
        reach_one(plan, target, tls.transpose()?)
    });
    reached.collect()
}

fn reach_one(
    plan: &Plan,
    target: &Target,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
) -> Result<Endpoint, Error> {
    let first = target.first_of(|address| {
        match &address {
            Address::Unix(path) => drop(UnixStream::connect(path)?),
            Address::Tcp(socket) => {
                let mut tcp = TcpStream::connect_timeout(socket, plan.timeout)?;
                if let Some((config, name)) = &tls {
                    tcp.set_read_timeout(Some(plan.timeout))?;
                    let session = ClientConnection::new(Arc::clone(config), name.clone());
                    let mut session = session.map_err(io::Error::other)?;
                    while session.is_handshaking() {
                        session.complete_io(&mut tcp)?;
                    }
                    if plan.http2 && session.alpn_protocol() != Some(tls::HTTP2) {
                        return Err(io::Error::new(ErrorKind::Unsupported, tls::NO_HTTP2));
                    }
                } else if plan.http2 {
                    tcp.set_read_timeout(Some(plan.timeout))?;
                    http2::try_out(&mut tcp)?;
                }
            }
        }
        Ok(address)
    });
    let address = first.map_err(|error| {
        if let Some(why) = tls::failure(&error) {
            return Error::new(format_args!("cannot reach {target}: {why}"));
        }
        let hint = match error.kind() {
            ErrorKind::ConnectionRefused => "start the server, or correct the port",
            ErrorKind::Unsupported => "leave --http2 out",
            ErrorKind::NotFound => "start the server, or correct the path of the socket",
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::WouldBlock
                if tls.is_some() =>
            {
                "is this the port for https? Try http://"
            }
            _ => "check the host and the port; try it with curl",
        };
        let why = match error.kind() {
            // As a socket says it whose time to read is over.
            ErrorKind::WouldBlock => format!("no answer in {}", Span(plan.timeout)),
            _ => plain_cause(&error),
        };
        Error::new(format_args!("cannot reach {target}: {why}")).hint(hint)
    })?;
    Ok(Endpoint { address, tls })
}

/// This machine has no more sockets, file descriptors or memory for clients that connect so.
fn machine_error(error: io::Error, connect: Connect) -> Error {
    let hint = match (error.kind(), connect) {
        (ErrorKind::AddrNotAvailable, Connect::Each) => {
            "all local ports are taken by connections that ended just now: use --connect once, a shorter --window, or widen net.ipv4.ip_local_port_range"
        }
        (ErrorKind::AddrNotAvailable, Connect::Once) => {
            "all local ports are taken by connections that the server ended: have it keep them open, use a shorter --window, or widen net.ipv4.ip_local_port_range"
        }
        _ => "take fewer --clients or more workers, or raise the limit of open files with `ulimit -n`",
    };
    Error::new(format_args!("cannot run the clients: {}", plain_cause(&error))).hint(hint)
}

/// Raises this process's limit of open files as far as it may, if it is below `files`. The default of 1024 is older
/// than load tests; where the limit stays too low, connecting will say so.
fn allow_files(files: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let current = limit.maximum.map_or(files, |maximum| maximum.min(files));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}

/// A system error in the middle of a sentence: without its number and its capital letter.
fn plain_cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::WorkerReport;

    /// What `plan` is for the worker that reads it.
    fn as_read_by_a_worker(plan: &Plan) -> Plan {
        serde_json::from_str(&serde_json::to_string(plan).unwrap()).unwrap()
    }

    #[test]
    fn a_plan_arrives_at_a_worker_as_it_was() {
        for pacing in [&["--rate", "333.3", "--arrivals", "poisson"][..], &["--think", "exponential:12.5us"]]
        {
            let flags = "--clients 7 --warmup 1.5s --seed 18446744073709551615 --mix get=50,put_put_delete=3 --workload mixed \
                --distribution hotspot:90/10 --value-size zipfian:100-100000 --connect each --bin 250ms --no-preload";
            let flags: Vec<&str> = flags.split_whitespace().chain(pacing.iter().copied()).collect();
            let plan = Plan::of_flags(&flags);
            assert_eq!(format!("{:?}", as_read_by_a_worker(&plan)), format!("{plan:?}"));
        }
        let verified = Plan::of_flags(&["--verify", "12.5%"]);
        assert_eq!(as_read_by_a_worker(&verified).verify.to_string(), "12.5%");
        let text = "[get]\npath = \"/{key}\"\n";
        let plan = Plan { dialect: Some(Dialect::of_file("my.toml", text).unwrap()), ..Plan::of_flags(&[]) };
        assert_eq!(format!("{:?}", as_read_by_a_worker(&plan).dialect), format!("{:?}", plan.dialect));
    }

    #[test]
    fn without_local_ports_the_remedy_fits_the_plan() {
        let told = |connect| machine_error(ErrorKind::AddrNotAvailable.into(), connect).to_string();
        assert!(told(Connect::Each).contains("use --connect once"));
        assert!(
            !told(Connect::Once).contains("--connect") && told(Connect::Once).contains("the server ended")
        );
    }

    #[test]
    fn system_errors_fit_into_a_sentence() {
        for (error, expected) in [
            (io::Error::from_raw_os_error(111), "connection refused"),
            (io::Error::other("no such name"), "no such name"),
            (io::Error::other(""), ""),
        ] {
            assert_eq!(plain_cause(&error), expected);
        }
    }

    #[test]
    fn a_generator_is_the_limit_when_it_is_busy_or_waits_long_for_a_core() {
        let report = LoadReport {
            window_secs: 10.0,
            threads: 2,
            cpu_secs: 14.0,
            edge_secs: 40.0,
            run_delay_secs: Some(0.4),
            successes: 1,
            ..LoadReport::default()
        };
        assert_eq!(generator_limit(&report), None);
        let busy = generator_limit(&LoadReport { cpu_secs: 16.0, ..report.clone() });
        assert_eq!(busy.as_deref(), Some("the generator’s threads were 80 % busy"));
        let worker = |command: &str, cpu_secs| WorkerReport {
            command: command.to_owned(),
            threads: 1,
            cpu_secs,
            ..WorkerReport::default()
        };
        let workers = vec![worker("ssh a w", 5.0), worker("ssh b w", 9.0)];
        let why = generator_limit(&LoadReport { workers, ..report.clone() });
        assert_eq!(why.as_deref(), Some("the threads of worker `ssh b w` were 90 % busy"));
        let late = LoadReport { run_delay_secs: Some(1.6), ..report.clone() };
        assert_eq!((generator_limit(&late), generator_delay(&late)), (None, Some(0.04)));
        let waits = LoadReport { run_delay_secs: Some(6.0), ..report };
        let why = generator_limit(&waits).unwrap();
        assert_eq!(why, "the generator waited for a core for 15 % of the latency");
        // Of clients that mostly back off there is hardly any latency to compare with.
        assert_eq!(generator_limit(&LoadReport { successes: 0, ..waits.clone() }), None);
        // An open loop has its own account of that: the send lag.
        let schedule = Some(kv::proto::ScheduleReport::default());
        let open = LoadReport { schedule, ..waits };
        assert_eq!((generator_limit(&open), generator_delay(&open)), (None, None));
    }
}
