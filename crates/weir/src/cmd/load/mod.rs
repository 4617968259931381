//! `weir load`: flags in, a table, a JSON document or a line per event out.
//!
//! The flags become a plan here; `live` shows how it goes, `text` is the report for people, `files` has it written.

mod files;
mod live;
mod text;

use super::{complain, note, say};
use clap::builder::ValueParser;
use files::Files;
use kv::faults::TIME_MAX;
use kv::proto::{LOAD_REPORT_SCHEMA, LoadEvent};
use kv::units::{Rate, Span};
use live::Live;
use load::{
    self, Arrivals, Connect, DIALECTS, DISTRIBUTIONS, Dialect, Distribution, EarlyEnd, Error, Mix, Notice,
    Pacing, Plan, Target, Think, ValueSize, Verify, WORKLOADS, Workload,
};
use std::fmt::Write;
use std::io::{self, BufRead, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Longest warm-up, window or time-out: what is longer is a mistyped number.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What a line on standard input says that ends the window.
const END: &[u8] = b"end";

/// Send load to an HTTP key-value server and report throughput, latencies and failures.
///
/// A closed loop unless --rate is given: each client is one connection with one request in flight, and sends the next one as
/// soon as the answer has arrived. The server must answer GET, PUT and DELETE on /kv/{key}; for other servers, name a dialect.
#[derive(clap::Args)]
#[command(after_help = workloads_help(), override_usage = "weir load [OPTIONS] URL")]
pub(crate) struct Args {
    /// The server, as http://host:port
    #[arg(value_name = "URL", required_unless_present = "schema")]
    target: Option<Target>,

    /// Operations, keys and values; the workloads are listed below
    #[arg(long, value_name = "NAME", default_value = "get_popular", value_parser = workload, help_heading = "Load")]
    workload: &'static Workload,

    /// How requests look: a dialect listed below, or a file that describes one
    #[arg(long, value_name = "NAME|FILE.toml", default_value = Dialect::default_dialect().name.as_str(), value_parser = dialect, help_heading = "Load")]
    dialect: &'static Dialect,

    /// Send this many requests per second, all clients together, without waiting for answers: an open loop
    #[arg(long, value_name = "N", conflicts_with = "think", help_heading = "Pacing")]
    rate: Option<Rate>,

    /// Gaps between the requests of an open loop: constant, or poisson for random ones
    #[arg(long, value_name = "HOW", default_value = "constant", requires = "rate", help_heading = "Pacing")]
    arrivals: Arrivals,

    /// Let clients wait between an answer and the next request, as in 10ms or exponential:10ms
    #[arg(
        long,
        value_name = "TIME",
        default_value = "0s",
        hide_default_value = true,
        help_heading = "Pacing"
    )]
    think: Think,

    /// Connections, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = up_to(100_000), help_heading = "Load")]
    clients: u32,

    /// Threads that drive the clients; one is enough for about 150k requests per second with short values
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(1024), help_heading = "Load")]
    threads: u32,

    /// Time to run before the measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span, help_heading = "Load")]
    warmup: Span,

    /// Time to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span_not_zero, help_heading = "Load")]
    window: Span,

    /// What the clients' requests are drawn from: same seed, same requests
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    seed: u64,

    /// How many keys there are [default: the workload's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Keys and values")]
    keys: Option<u64>,

    /// Operations and their shares, as in get=50,put=30,delete=20 [default: the workload's]
    #[arg(long, value_name = "WEIGHTS", help_heading = "Load")]
    mix: Option<Mix>,

    /// How keys are chosen; the distributions are listed below [default: the workload's]
    #[arg(long, value_name = "NAME", help_heading = "Keys and values")]
    distribution: Option<Distribution>,

    /// How long the values are, as in 100, 100-1000 or zipfian:100-100000 [default: the workload's]
    #[arg(long, value_name = "SIZE", help_heading = "Keys and values")]
    value_size: Option<ValueSize>,

    /// When a client connects: once, or each, for a new connection with each request
    #[arg(long, value_name = "WHEN", default_value = "once", help_heading = "Connections")]
    connect: Connect,

    /// When to give a request up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span_not_zero, help_heading = "Connections")]
    timeout: Span,

    /// Do not write and read back all keys before a workload that reads
    #[arg(long, help_heading = "Load")]
    no_preload: bool,

    /// Which reads to check for a complete value that is not stale: none, all, or a share as in 1%
    #[arg(long, value_name = "WHICH", default_value = "none", help_heading = "Keys and values")]
    verify: Verify,

    /// Command of a process that sends a share of the load, as in 'ssh host weir load-worker'; repeatable
    #[arg(long = "worker", value_name = "COMMAND", help_heading = "Load")]
    workers: Vec<String>,

    /// Add the latency histograms to --json and --events
    #[arg(long, help_heading = "Output")]
    histogram: bool,

    /// Print the report as one JSON document
    #[arg(long, conflicts_with = "events", help_heading = "Output")]
    json: bool,

    /// Print events as JSON lines when they happen; the report is the last one
    #[arg(long, help_heading = "Output")]
    events: bool,

    /// Write percentile distributions for HdrHistogram's plotters: PREFIX.hgrm, PREFIX-get.hgrm and so on
    #[arg(long, value_name = "PREFIX", help_heading = "Output")]
    hdr: Option<String>,

    /// Write the figures of each second of the window as a table
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    seconds: Option<PathBuf>,

    /// Add figures for bins of this length, as in 100ms, to --json and --events
    #[arg(long, value_name = "TIME", value_parser = bin, help_heading = "Output")]
    bin: Option<Span>,

    /// Time between two updates while it runs; 0s shows nothing [default: 1s on a terminal, else 10s]
    #[arg(long, value_name = "TIME", value_parser = span, conflicts_with = "events", help_heading = "Output")]
    interval: Option<Span>,

    /// Show nothing while it runs
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,

    /// End without a report when standard input ends: the process that started this is gone then. A line `end` on it ends the
    /// window and nothing else
    #[arg(long, hide = true)]
    until_stdin_ends: bool,

    /// Add processor time to each request, as in cpu=2us: to see whether the generator is the limit
    #[arg(long, value_name = "FAULT", value_parser = added_cpu, hide = true)]
    inject: Option<Span>,

    /// Print the JSON schema of the report, and do nothing else
    #[arg(long, exclusive = true, help_heading = "Output")]
    schema: bool,
}

pub(crate) fn run(args: Args) -> Result<(), kv::Error> {
    match args.until_stdin_ends {
        true => until_stdin_ends(args),
        false => carry_out(args, &EarlyEnd::default()),
    }
}

/// Ends with the run or with standard input, whichever is first: even who is killed at once closes what it held. Workers end
/// with their own standard input.
fn until_stdin_ends(args: Args) -> Result<(), kv::Error> {
    let (sender, first) = mpsc::channel();
    let input = sender.clone();
    let early_end = Arc::new(EarlyEnd::default());
    let hears = Arc::clone(&early_end);
    thread::spawn(move || {
        for line in io::stdin().lock().split(b'\n').map_while(Result::ok) {
            if line.trim_ascii() == END {
                hears.request();
            }
        }
        // The receiver is gone if the run is over, and then the process ends; likewise below.
        let _ = input.send(Err(kv::Error::new("whoever started this is gone")));
    });
    thread::spawn(move || {
        let ran = thread::spawn(move || carry_out(args, &early_end)).join();
        let _ = sender.send(ran.unwrap_or_else(|_| Err(kv::Error::new("the run broke off"))));
    });
    first.recv().unwrap_or_else(|_| Err(kv::Error::new("the run broke off")))
}

fn carry_out(args: Args, early_end: &EarlyEnd) -> Result<(), kv::Error> {
    // Without a target there is nothing to do but this.
    let Some(target) = args.target else {
        say(LOAD_REPORT_SCHEMA.trim_end());
        return Ok(());
    };
    let plan = Plan {
        target,
        dialect: args.dialect,
        workload: args.workload,
        clients: args.clients,
        threads: args.threads,
        warmup: args.warmup.0,
        window: args.window.0,
        seed: args.seed,
        mix: args.mix,
        distribution: args.distribution,
        keys: args.keys.unwrap_or(args.workload.keys_default),
        value_size: args.value_size.unwrap_or(args.workload.value_size_default),
        timeout: args.timeout.0,
        preload: !args.no_preload,
        pacing: match args.rate {
            Some(rate) => Pacing::Open { rate, arrivals: args.arrivals },
            None => Pacing::Closed { think: args.think },
        },
        connect: args.connect,
        verify: args.verify,
        histogram: args.histogram || args.hdr.is_some(),
        bin: args.bin.map_or(Duration::from_secs(1), |bin| bin.0),
        added_cpu: args.inject.map_or(Duration::ZERO, |added| added.0),
    };
    let files = Files::new(args.hdr, args.seconds, &plan.histogram_names())?;
    check_workers(&args.workers, plan.clients)?;
    // With --events nothing else is written to the terminal.
    let mut live = match args.quiet || args.events {
        true => Live::silent(),
        false => Live::start(&plan, args.interval.map(|interval| interval.0)),
    };
    let mut observer = |notice| {
        live.hear(&notice);
        match notice {
            Notice::Event(event) if args.events => say_json(&event),
            Notice::Second { second, report } if args.events && second >= 0 => {
                say_json(&LoadEvent::Second { second: second.unsigned_abs(), report });
            }
            Notice::Bin { bin, report } if args.events && bin >= 0 => {
                say_json(&LoadEvent::Bin { bin: bin.unsigned_abs(), report });
            }
            _ => {}
        }
    };
    let report = match args.workers.is_empty() {
        true => load::run_until(&plan, early_end, &mut observer),
        false => load::workers::run(&plan, &args.workers, &mut observer),
    };
    live.end();
    let mut report = report.map_err(|error| failure(error, plan.dialect))?;
    let mut failures = files.write(&report);
    if !args.histogram {
        report.histograms.clear();
    }
    match (args.json, args.events) {
        (true, _) => say_json(&report),
        (_, true) => say_json(&LoadEvent::Report(Box::new(report))),
        _ => {
            say(text::table(&plan, &report).trim_end());
            if report.successes == 0 {
                note("warning: not one request succeeded in the window");
            }
        }
    }
    // Told last: the figures are there although a file is not.
    let last = failures.pop();
    failures.iter().for_each(complain);
    last.map_or(Ok(()), Err)
}

fn check_workers(commands: &[String], clients: u32) -> Result<(), kv::Error> {
    if commands.len() > clients as usize {
        let what = format!("--clients {clients} are too few for {} workers", commands.len());
        return Err(kv::Error::input(what).hint("use at least one client for each --worker"));
    }
    Ok(())
}

/// What to do about each kind of failure.
fn failure(error: Error, dialect: &Dialect) -> kv::Error {
    let hint = match &error {
        Error::Unsupported { preload: true, .. } => {
            return kv::Error::input(error).hint(
                "add it to a file of your own for --dialect, or use --no-preload on keys that are there",
            );
        }
        Error::Unsupported { .. } => {
            return kv::Error::input(error).hint(
                "add it to a file of your own for --dialect, or leave it out with --mix, as in --mix get=1",
            );
        }
        Error::ShortValues { .. } => return kv::Error::input(error).hint("take a longer --value-size"),
        Error::Unreachable { .. } => {
            "start it with `weir serve`, or give the URL of another HTTP key-value server"
        }
        Error::Preload { .. } if dialect.name != Dialect::default_dialect().name => {
            "the server must store values and give them back as the dialect says; try its requests with `curl -i`"
        }
        Error::Preload { .. } => "the server must store values under /kv/{key}; try one with `curl -T FILE`",
        // The remedy is in the cause, as only the one who found it knows it.
        Error::Worker { .. } => return kv::Error::new(error),
        Error::Machine(cause) if cause.kind() == ErrorKind::AddrNotAvailable => {
            "all local ports are taken by connections that ended just now: use --connect once, a shorter --window, or widen net.ipv4.ip_local_port_range"
        }
        Error::Machine(_) => "take fewer --clients, or raise the limit of open files with `ulimit -n`",
    };
    kv::Error::new(error).hint(hint)
}

/// Prints one line of JSON. Standard output is flushed at the end of every line, so that it passes a pipe at once.
fn say_json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => say(line),
        Err(error) => note(format_args!("error: cannot write the report as JSON: {error}")),
    }
}

fn workloads_help() -> String {
    let mut text = String::from("Workloads:");
    for row in WORKLOADS {
        let _ = write!(text, "\n  {:<16} {}", row.name, row.about);
        let has_keys = row.mix.iter().flat_map(|turn| turn.steps).any(|step| step.operation.has_key());
        if has_keys {
            let _ = write!(text, " [{} keys, {} B]", row.keys_default, row.value_size_default);
        }
    }
    text.push_str("\n\nDistributions:");
    for row in DISTRIBUTIONS {
        let _ = write!(text, "\n  {:<26} {}", row.shape, row.about);
    }
    text.push_str("\n\nDialects:");
    for row in DIALECTS {
        let _ = write!(text, "\n  {:<16} {}", row.name, row.about);
    }
    text
}

fn workload(name: &str) -> Result<&'static Workload, String> {
    Workload::named(name).ok_or_else(|| {
        let known: Vec<&str> = WORKLOADS.iter().map(|row| row.name).collect();
        format!("expected one of: {}", known.join(", "))
    })
}

/// A dialect of the table, or of a file: whatever looks like one.
pub(super) fn dialect(name: &str) -> Result<&'static Dialect, String> {
    if let Some(dialect) = Dialect::named(name) {
        return Ok(dialect);
    }
    if !name.ends_with(".toml") && !name.contains('/') {
        let known: Vec<&str> = DIALECTS.iter().map(|row| row.name).collect();
        return Err(format!("expected one of: {}, or the path of a FILE.toml", known.join(", ")));
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("cannot read it: {error}"))?;
    // The report has the name of the file without its folders.
    let own = Path::new(name).file_name().map_or(name.into(), |own| own.to_string_lossy());
    Dialect::of_file(&own, &text)
}

/// More is no load test but a mistyped number, or more than one machine's ports.
fn up_to(most: i64) -> ValueParser {
    clap::value_parser!(u32).range(1..=most).into()
}

fn added_cpu(text: &str) -> Result<Span, String> {
    let time = text
        .strip_prefix("cpu=")
        .ok_or("the generator has one fault; hint: write cpu=TIME, as in cpu=2us")?;
    let time: Span = time.parse()?;
    if time.0 > TIME_MAX {
        return Err(format!("the most is {} a request", Span(TIME_MAX)));
    }
    Ok(time)
}

fn span(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 > SPAN_MAX {
        return Err("the most is 24h".into());
    }
    Ok(span)
}

/// Seconds are put together from them.
fn bin(text: &str) -> Result<Span, String> {
    match span(text)? {
        bin if load::is_bin(bin.0) => Ok(bin),
        _ => Err("a second is not a multiple of it, or it is shorter than 10ms; hint: write 100ms, 200ms, 250ms or 500ms".into()),
    }
}

fn span_not_zero(text: &str) -> Result<Span, String> {
    let span = span(text)?;
    if span.0.is_zero() {
        return Err("it must be longer than 0s".into());
    }
    Ok(span)
}
