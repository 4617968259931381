//! `weir load`: flags in, a table, a JSON document or a line per event out.

use super::{Failure, note, say};
use crate::load::{
    self, Connect, DIALECTS, DISTRIBUTIONS, Dialect, Distribution, Error, Mix, Notice, Pacing, Plan, Target,
    ValueSize, WORKLOADS, Workload,
};
use crate::proto::{Latency, LoadEvent, LoadReport};
use crate::units::{self, Span};
use clap::builder::ValueParser;
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Write;
use std::io::{ErrorKind, IsTerminal};
use std::path::Path;
use std::time::Duration;

/// Longest warm-up, window or time-out: what is longer is a slip of the keyboard.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Put load on an HTTP key-value server and report what its clients saw.
///
/// A closed loop: each client is one connection with one request in flight, and sends the next one as soon as the
/// answer is there. Any server that speaks GET, PUT and DELETE on /kv/{key} will do; with others, name a dialect.
#[derive(clap::Args)]
#[command(after_help = workloads_help())]
pub(crate) struct Args {
    /// The server, as http://host:port
    #[arg(value_name = "URL")]
    target: Target,

    /// What to ask for; the workloads are listed below
    #[arg(long, value_name = "NAME", default_value = "get_popular", value_parser = workload)]
    workload: &'static Workload,

    /// In which words to ask: a dialect listed below, or a file that describes one
    #[arg(long, value_name = "NAME|FILE.toml", default_value = Dialect::usual().name.as_str(), value_parser = dialect)]
    dialect: &'static Dialect,

    /// Connections, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = up_to(100_000))]
    clients: u32,

    /// Threads that drive the clients; one is enough up to about 100k requests per second
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(1024))]
    threads: u32,

    /// Time to run before anything counts
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span)]
    warmup: Span,

    /// Time to measure
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = span_not_zero)]
    window: Span,

    /// What the clients' requests are drawn from: same seed, same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many keys there are [default: the workload's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,

    /// What is asked in which shares, as in get=50,put=30,delete=20 [default: the workload's]
    #[arg(long, value_name = "WEIGHTS")]
    mix: Option<Mix>,

    /// Which keys are asked for; the distributions are listed below [default: the workload's]
    #[arg(long, value_name = "NAME")]
    distribution: Option<Distribution>,

    /// How long the values are, as in 100, 100-1000 or zipfian:100-100000 [default: the workload's]
    #[arg(long, value_name = "SIZE")]
    value_size: Option<ValueSize>,

    /// When a client connects: once, or for each request anew
    #[arg(long, value_name = "WHEN", default_value = "once", value_parser = connect)]
    connect: Connect,

    /// When to give a request up
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span_not_zero)]
    timeout: Span,

    /// Do not write and read back all keys before a workload that reads
    #[arg(long)]
    no_preload: bool,

    /// Print the report as one JSON document
    #[arg(long, conflicts_with = "events")]
    json: bool,

    /// Print what happens as JSON lines, at the moment it does; the report is the last one
    #[arg(long)]
    events: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let plan = Plan {
        target: args.target,
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
        pacing: Pacing::Closed,
        connect: args.connect,
    };
    let bar = progress_bar();
    let report = load::run(&plan, &mut |notice| {
        show(&bar, &notice);
        if let (true, Notice::Event(event)) = (args.events, &notice) {
            say_json(event);
        }
    });
    bar.finish_and_clear();
    let report = report.map_err(|error| failure(error, plan.dialect))?;
    match (args.json, args.events) {
        (true, _) => say_json(&report),
        (_, true) => say_json(&LoadEvent::Report(Box::new(report))),
        _ => {
            say(table(&plan, &report).trim_end());
            if report.successes == 0 {
                note("warning: not one request succeeded in the window");
            }
        }
    }
    Ok(())
}

/// What to do about each kind of failure.
fn failure(error: Error, dialect: &Dialect) -> Failure {
    let hint = match &error {
        Error::Unspoken { preload: true, .. } => {
            return Failure::input(error).hint(
                "Add it to a file of your own for --dialect, or use --no-preload on keys that are there.",
            );
        }
        Error::Unspoken { .. } => {
            return Failure::input(error).hint(
                "Add it to a file of your own for --dialect, or leave it out with --mix, as in --mix get=1.",
            );
        }
        Error::ShortValues { .. } => return Failure::input(error).hint("Take a longer --value-size."),
        Error::Unreachable { .. } => {
            "Start it with `weir serve`, or give the URL of another HTTP key-value server."
        }
        Error::Preload { .. } if dialect.name != Dialect::usual().name => {
            "The server must store values and give them back as the dialect says; try its requests with `curl -i`."
        }
        Error::Preload { .. } => "The server must store values under /kv/{key}; try one with `curl -T FILE`.",
        Error::Machine(cause) if cause.kind() == ErrorKind::AddrNotAvailable => {
            "All local ports are taken by connections that ended just now: use --connect once, a shorter --window, or widen net.ipv4.ip_local_port_range."
        }
        Error::Machine(_) => "Take fewer --clients, or raise the limit of open files with `ulimit -n`.",
    };
    Failure::run(error).hint(hint)
}

/// One line of JSON. Standard output is flushed at every line's end, so that whoever reads a pipe hears it at once.
fn say_json(value: &impl serde::Serialize) {
    match serde_json::to_string(value) {
        Ok(line) => say(line),
        Err(error) => note(format_args!("error: cannot write the report as JSON: {error}")),
    }
}

/// A bar on standard error, or none where nobody looks at it.
fn progress_bar() -> ProgressBar {
    const STYLE: &str = "{bar:30} {percent:>3} % {msg}";
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(STYLE).expect("the template is a constant that parses");
    ProgressBar::new(1).with_style(style)
}

fn show(bar: &ProgressBar, notice: &Notice) {
    match notice {
        Notice::Preloading { requests, of } => {
            bar.set_length(*of);
            bar.set_position(*requests);
            bar.set_message("writing and reading back the keys");
        }
        Notice::Running { elapsed, of, successes } => {
            bar.set_length(of.as_millis() as u64);
            bar.set_position(elapsed.as_millis() as u64);
            bar.set_message(format!("{} requests succeeded", units::short(*successes as f64)));
        }
        Notice::Second { .. } | Notice::Event(_) => {}
    }
}

/// The report for people.
fn table(plan: &Plan, report: &LoadReport) -> String {
    let mut out = String::new();
    for (name, value) in figures(plan, report) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{name:<11} {value}");
    }
    out.push('\n');
    let header = ["count", "absent", "mean", "p50", "p99", "p99.9", "max"];
    line(&mut out, "latency of", header.map(String::from));
    for operation in &report.operations {
        let name = format!("{} successes", operation.operation);
        line(&mut out, &name, cells(&operation.absent.to_string(), &operation.latency));
    }
    if report.operations.len() > 1 || report.attempts > report.successes {
        line(&mut out, "all attempts", cells("", &report.latency));
    }
    if report.latency.clipped > 0 {
        let _ =
            writeln!(out, "{} latencies are above 60 s, where the percentiles end", report.latency.clipped);
    }
    out
}

/// What there is to say besides the latencies.
fn figures<'r>(plan: &Plan, report: &'r LoadReport) -> Vec<(&'r str, String)> {
    let LoadReport { attempts, successes, clients, threads, seed, .. } = report;
    let mut figures = vec![
        ("workload", asked(plan, report)),
        (
            "load",
            format!(
                "{}, {}, window {} after {} of warm-up, seed {seed}",
                counted(*clients, "client"),
                counted(*threads, "thread"),
                Span(plan.window),
                Span(plan.warmup),
            ),
        ),
        ("goodput", format!("{} req/s", units::short(report.goodput_rps))),
        (
            "attempts",
            format!(
                "{attempts}, of which {} failed ({} %)",
                attempts - successes,
                percent(report.error_ratio)
            ),
        ),
    ];
    figures.extend(report.errors.iter().map(|(class, count)| (class.as_str(), format!("{count} failed"))));
    if report.backoff_secs > 0.0 {
        figures.push(("back-off", format!("{:.2} s over all clients", report.backoff_secs)));
    }
    if let Some(residual) = load::little_residual(report) {
        // Rounded first, and zero added, so that no figure reads −0.00.
        let residual = (residual * 1e4).round() / 100.0 + 0.0;
        let law = "req/s × (latency + back-off) against the number of clients; true figures give about 0";
        figures.push(("Little", format!("{residual:+.2} % ({law})")));
        let cpu_us = units::micros(report.cpu_secs * 1e6 / *attempts as f64);
        let busy = percent(report.cpu_secs / report.window_secs / f64::from(*threads));
        figures.push(("generator", format!("{cpu_us} of CPU per request; its threads were {busy} % busy")));
    }
    figures
}

/// The workload, and what was stated in its place.
fn asked(plan: &Plan, report: &LoadReport) -> String {
    let mut text = format!("{} on {}", report.workload, plan.target);
    if plan.names_keys() {
        let _ = write!(text, ", {} keys of {} B", plan.keys, plan.value_size);
    }
    if plan.distribution.is_some() {
        let _ = write!(text, ", {}", report.distribution);
    }
    if plan.mix.is_some() {
        for (operation, share) in &report.mix {
            let _ = write!(text, ", {} % {operation}", percent(*share));
        }
    }
    if report.dialect != Dialect::usual().name {
        let _ = write!(text, ", dialect {}", report.dialect);
    }
    if plan.connect == Connect::Each {
        text.push_str(", a connection for each request");
    }
    text
}

fn cells(absent: &str, latency: &Latency) -> [String; 7] {
    let shown = |us: f64| if latency.count == 0 { "–".to_owned() } else { units::micros(us) };
    [
        latency.count.to_string(),
        absent.to_owned(),
        shown(latency.us_mean),
        shown(latency.us_p50),
        shown(latency.us_p99),
        shown(latency.us_p999),
        shown(latency.us_max),
    ]
}

fn line(out: &mut String, name: &str, cells: [String; 7]) {
    let _ = write!(out, "{name:<16}");
    for cell in cells {
        let _ = write!(out, " {cell:>10}");
    }
    out.push('\n');
}

fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A share as per cent, with enough digits to tell few from none.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".into(),
        percent if percent < 0.01 => "<0.01".into(),
        percent => units::short(percent),
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
        format!("known are {}", known.join(", "))
    })
}

/// A dialect of the table, or of a file: whatever looks like one.
pub(super) fn dialect(name: &str) -> Result<&'static Dialect, String> {
    if let Some(dialect) = Dialect::named(name) {
        return Ok(dialect);
    }
    if !name.ends_with(".toml") && !name.contains('/') {
        let known: Vec<&str> = DIALECTS.iter().map(|row| row.name).collect();
        return Err(format!("known are {}, or name a FILE.toml", known.join(", ")));
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("cannot read it: {error}"))?;
    // Its own name is enough for the report: where it lies is nobody else's concern.
    let own = Path::new(name).file_name().map_or(name.into(), |own| own.to_string_lossy());
    Dialect::of_file(&own, &text)
}

/// More is no load test but a slip of the keyboard, or more than one machine's ports.
fn up_to(most: i64) -> ValueParser {
    clap::value_parser!(u32).range(1..=most).into()
}

fn span(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0 > SPAN_MAX {
        return Err("no more than 24h makes sense here".into());
    }
    Ok(span)
}

fn span_not_zero(text: &str) -> Result<Span, String> {
    let span = span(text)?;
    if span.0.is_zero() {
        return Err("it must be longer than nothing".into());
    }
    Ok(span)
}

fn connect(text: &str) -> Result<Connect, String> {
    match text {
        "once" => Ok(Connect::Once),
        "each" => Ok(Connect::Each),
        _ => Err("known are once, each".into()),
    }
}
