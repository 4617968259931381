//! `weir load`: flags in, a table, a JSON document or a line per event out.
//!
//! The flags become a plan here; `live` shows how it goes, `text` is the report for people, `files` writes percentile
//! distributions and seconds, `metrics` serves and sends figures.

mod exports;
mod files;
#[cfg(feature = "lab")]
mod find;
mod live;
mod metrics;
mod text;

use super::{check_writable, complain, counted, say, say_json};
use kv::Error;
use kv::proto::{LOAD_REPORT_SCHEMA, LinearizabilityReport, LoadEvent, LoadReport};
use live::Live;
use load::{self, Conditions, DIALECTS, DISTRIBUTIONS, EarlyEnd, Plan, WORKLOADS};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::fmt::Write;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// What a line on standard input says that ends the window.
const END: &[u8] = b"end";

/// Send load to an HTTP service and report throughput, latencies and failures.
///
/// As in: weir load http://127.0.0.1:8080/orders/1 -c 32 --rate 500
#[derive(clap::Args)]
// Short also as --help: the reference has the rest.
#[command(override_usage = "weir load [OPTIONS] URL...", disable_help_flag = true)]
pub(crate) struct Args {
    /// Absent only with --schema or --list.
    #[command(flatten)]
    plan: Option<Plan>,

    /// Command that starts a process for a share of the load, as in 'ssh host weir load-worker'. Repeatable
    #[arg(long = "worker", value_name = "COMMAND", help_heading = "Load")]
    workers: Vec<String>,

    /// Exit with 3 if one of these holds, as in 'p99>20ms,errors>0.1%,rate<1000/s'; rate: successes per second
    #[arg(long, value_name = "CONDITIONS", help_heading = "Result")]
    fail_if: Option<Conditions>,

    /// Find the highest rate at which these hold, as in 'p99<20ms,errors<0.1%'
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "CONDITIONS", value_parser = load::wanted, groups = ["open", "search"], conflicts_with_all = ["rate", "stages", "think", "window", "workers", "fail_if", "events", "hdr", "seconds", "histogram", "bin", "check_for", "junit", "k6_summary", "prometheus", "prometheus_listen", "otlp"], help_heading = "Result")]
    find_rate: Option<Conditions>,

    /// Find the highest throughput, and the number of clients beyond which latency grows (the knee)
    #[cfg(feature = "lab")]
    #[arg(long, group = "search", conflicts_with_all = ["find_rate", "rate", "stages", "warmup", "window", "workers", "fail_if", "events", "hdr", "seconds", "histogram", "bin", "check_for", "junit", "k6_summary", "prometheus", "prometheus_listen", "otlp"], help_heading = "Result")]
    find_capacity: bool,

    /// Maximum time of --find-rate or --find-capacity
    #[cfg(feature = "lab")]
    #[arg(long, value_name = "TIME", value_parser = load::span, default_value = "60s", requires = "search", help_heading = "Result")]
    within: Duration,

    /// Print the report as one JSON document
    #[arg(long, conflicts_with = "events", help_heading = "Output")]
    json: bool,

    /// Print what happens as JSON lines while it runs (each second, the end of the warm-up, …); the last line is the report
    #[arg(long, help_heading = "Output")]
    events: bool,

    /// Write latency percentiles for the plotter of HdrHistogram to PREFIX.hgrm and, by operation, PREFIX-get.hgrm …
    #[arg(long, value_name = "PREFIX", help_heading = "Output")]
    hdr: Option<String>,

    /// Write the figures of each second as CSV
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    seconds: Option<String>,

    /// Write the outcome of --fail-if and --check as JUnit tests
    #[arg(long, value_name = "FILE.xml", help_heading = "Output")]
    junit: Option<String>,

    /// Write the results in the format of k6's summary
    #[arg(long, value_name = "FILE.json", help_heading = "Output")]
    k6_summary: Option<String>,

    /// Write metrics in the text format of Prometheus
    #[arg(long, value_name = "FILE.prom", help_heading = "Output")]
    prometheus: Option<String>,

    /// Serve the same metrics at http://ADDRESS:PORT/metrics while it runs
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Output")]
    prometheus_listen: Option<SocketAddr>,

    /// Send the same metrics at the end to an OpenTelemetry collector, such as http://127.0.0.1:4318
    #[arg(long, value_name = "URL", help_heading = "Output")]
    otlp: Option<metrics::Collector>,

    /// Time between two updates on the terminal; 0s shows none [default: 1s, or 10s if the output is no terminal]
    #[arg(long, value_name = "TIME", value_parser = load::span, conflicts_with = "events", help_heading = "Output")]
    interval: Option<Duration>,

    /// Show nothing while it runs
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,

    /// End without a report when standard input ends: the process that started this is gone then. A line `end` on it ends the
    /// window and nothing else
    #[arg(long, hide = true)]
    until_stdin_ends: bool,

    /// Print the JSON schema of the report, and do nothing else
    #[arg(long, exclusive = true, help_heading = "Output")]
    schema: bool,

    /// Print help
    #[arg(long, short, action = clap::ArgAction::HelpShort, help_heading = "Output")]
    help: Option<bool>,

    /// List workloads, dialects and distributions of keys, and do nothing else
    #[arg(long, exclusive = true, help_heading = "Key-value workloads")]
    list: bool,
}

#[cfg(feature = "lab")]
impl Args {
    /// Whether a load of these flags could begin.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.plan.as_ref().map_or(Ok(()), Plan::check)
    }
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    match args.until_stdin_ends {
        true => until_stdin_ends(args),
        false => {
            let early_end = Arc::new(EarlyEnd::at_failures());
            let ends_at_once = Arc::new(AtomicBool::new(true));
            if args.workers.is_empty() {
                end_at_interrupt(&early_end, &ends_at_once)?;
            }
            carry_out(args, &early_end, &ends_at_once)
        }
    }
}

/// Ends with the run or with standard input, whichever is first: even who is killed at once closes what it held. Workers end
/// with their own standard input.
fn until_stdin_ends(args: Args) -> Result<(), Error> {
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
        // The receiver is gone if the run is over, and then the process ends.
        let _ = input.send(Err(Error::new("the process that started weir load has ended")));
    });
    let ends_at_once = Arc::default();
    thread::spawn(move || sender.send(carry_out(args, &early_end, &ends_at_once)));
    first.recv().unwrap_or_else(|_| Err(Error::new("the run broke off")))
}

/// Has Ctrl-C and SIGTERM end the window, so that there is a report; they end the process where none can be, and the second time.
fn end_at_interrupt(early_end: &Arc<EarlyEnd>, ends_at_once: &Arc<AtomicBool>) -> Result<(), Error> {
    /// As a shell has it for a process that Ctrl-C ended.
    const INTERRUPTED: i32 = 130;
    let failed = |error| Error::new(format_args!("cannot wait for signals: {error}"));
    flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(ends_at_once)).map_err(failed)?;
    flag::register_conditional_default(SIGTERM, Arc::clone(ends_at_once)).map_err(failed)?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    let (early_end, ends_at_once) = (Arc::clone(early_end), Arc::clone(ends_at_once));
    thread::spawn(move || {
        for _ in signals.forever() {
            early_end.request();
            thread::sleep(super::SAME_SIGNAL);
            ends_at_once.store(true, Ordering::SeqCst);
        }
    });
    Ok(())
}

fn carry_out(args: Args, early_end: &EarlyEnd, ends_at_once: &AtomicBool) -> Result<(), Error> {
    let Some(mut plan) = args.plan else {
        match args.list {
            true => say(list()),
            false => say(LOAD_REPORT_SCHEMA.trim_end()),
        }
        return Ok(());
    };
    #[cfg(feature = "lab")]
    {
        let shown = (args.json, args.quiet);
        // There is no report so far.
        ends_at_once.store(true, Ordering::SeqCst);
        if let Some(wanted) = &args.find_rate {
            return find::rate(&plan, wanted, args.within, shown);
        }
        if args.find_capacity {
            return find::capacity(&plan, args.within, shown);
        }
    }
    if let Some(stages) = &plan.pacing.stages {
        (plan.warmup, plan.window) = (Duration::ZERO, Duration::from_secs_f64(stages.secs()));
    }
    plan.warmup = load::full_warmup(&plan);
    let wants_histograms = plan.histogram;
    let shown_as_json = [("--histogram", wants_histograms), ("--bin", plan.bin != Duration::from_secs(1))];
    if let Some((flag, _)) =
        shown_as_json.iter().find(|(_, is_given)| *is_given && !args.json && !args.events)
    {
        return Err(Error::input(format_args!("{flag} adds to --json or --events, and neither is given"))
            .hint(format_args!("add --json, or leave {flag} out")));
    }
    if let Some(prefix) = &args.hdr {
        plan.histogram = true;
        files::check_prefix(prefix, &plan.histogram_names())?;
    }
    if args.workers.len() > plan.clients as usize {
        let what = format!("--clients {} are too few for {} workers", plan.clients, args.workers.len());
        return Err(Error::input(what).hint("use at least one client for each --worker"));
    }
    // With --events nothing else is written to the terminal.
    let interval = if args.quiet || args.events { Some(Duration::ZERO) } else { args.interval };
    let page = args.prometheus_listen.map(|address| metrics::Page::serve(address, &plan));
    let mut page = page.transpose()?;
    // Last: this makes the files.
    let paths = [&args.seconds, &args.junit, &args.k6_summary, &args.prometheus];
    paths.into_iter().flatten().try_for_each(|path| check_writable(path.as_ref()))?;
    let mut live = Live::start(&plan, interval);
    let mut has_begun = false;
    let mut observer = |event| {
        live.hear(&event);
        if let Some(page) = &mut page {
            page.hear(&event);
        }
        // Once: Ctrl-C sets it, so that the second one ends the process.
        if !has_begun && !matches!(event, LoadEvent::Preloading { .. }) {
            has_begun = true;
            ends_at_once.store(false, Ordering::SeqCst);
        }
        let is_shown_only = matches!(
            event,
            LoadEvent::Preloading { .. }
                | LoadEvent::Second { second: ..0, .. }
                | LoadEvent::Bin { bin: ..0, .. }
        );
        if args.events && !is_shown_only {
            // Such an event is plain numbers, which nothing keeps from being written.
            let _ = say_json(&event);
        }
    };
    let report = match args.workers.is_empty() {
        true => load::run_until(&plan, early_end, &mut observer),
        false => load::workers::run(&plan, &args.workers, &mut observer),
    };
    live.end();
    let mut report = report.inspect_err(|why| {
        // What a run before wrote would be taken for its outcome.
        let file = args.junit.as_ref().map(|path| (path.clone(), exports::junit_of_error(&plan, why)));
        files::write(file.as_slice()).iter().for_each(complain);
    })?;
    // The last one decides the exit code: a failure of the run or of a file is 1 also where a condition holds.
    let mut failures = Vec::from_iter(gates(args.fail_if.as_ref(), &report));
    failures.extend(early_end.failure());
    let mut files = args.hdr.map_or_else(Vec::new, |prefix| files::distributions(&prefix, &report));
    files.extend(args.seconds.map(|path| (path, files::table(&report.seconds))));
    files.extend(args.junit.map(|path| (path, exports::junit(&plan, args.fail_if.as_ref(), &report))));
    files.extend(args.k6_summary.map(|path| (path, format!("{}\n", exports::k6_summary(&report)))));
    files.extend(args.prometheus.map(|path| (path, metrics::prometheus(&report))));
    failures.extend(files::write(&files));
    failures.extend(args.otlp.as_ref().and_then(|collector| collector.send(&plan, &report)));
    if !wants_histograms {
        report.histograms.clear();
    }
    let checked = report.linearizability.as_ref();
    failures.extend(checked.and_then(not_linearizable));
    match (args.json, args.events) {
        (true, _) => say_json(&report)?,
        (_, true) => say_json(&LoadEvent::Report(Box::new(report)))?,
        _ => say(text::table(&plan, &report).trim_end()),
    }
    // Said last: the figures are there although a file is not.
    let last = failures.pop();
    failures.iter().for_each(complain);
    last.map_or(Ok(()), Err)
}

/// Why what was measured is a failure: nothing succeeded, the server went away, a condition holds, or none can be judged.
fn gates(fail_if: Option<&Conditions>, report: &LoadReport) -> Option<Error> {
    let is_unusable = load::nothing_succeeded(report).or_else(|| load::server_is_gone(report));
    is_unusable.or_else(|| {
        let met = fail_if?.met(report);
        match met.is_empty() {
            false => Some(Error::unmet(format_args!("--fail-if: {}", met.join("; ")))),
            true => load::left_out(report).map(|why| why.at("--fail-if cannot be judged")),
        }
    })
}

/// Why a run fails whose operations were checked: keys with a violation, and those that could not be decided or read at the end.
pub(crate) fn not_linearizable(of: &LinearizabilityReport) -> Option<Error> {
    let LinearizabilityReport { violations, not_decided, unread, .. } = *of;
    match (violations, not_decided, unread) {
        (0, 0, 0) => None,
        (0, 0, _) => Some(
            Error::new(format_args!("{} could not be read at the end", counted(unread, "key")))
                .hint("lost writes of them were not seen: the server has to answer after the window, too; if it did, use fewer --keys or a shorter --window"),
        ),
        (0, ..) => Some(
            Error::new(format_args!("{} could not be checked", counted(not_decided, "key")))
                .hint("too many operations of one key overlap: use fewer clients or more keys"),
        ),
        _ => Some(
            Error::new(format_args!("linearizability is violated on {}", counted(violations, "key")))
                .hint("the report has operations of one of them that no order explains"),
        ),
    }
}

/// What --list prints.
fn list() -> String {
    let mut text = String::from("Workloads:");
    for row in WORKLOADS.iter() {
        let _ = write!(text, "\n  {:<16} {}", row.name, row.about);
        let steps = row.mix.entries.iter().flat_map(|entry| entry.steps);
        if steps.into_iter().any(|step| step.operation.has_key()) {
            let _ = write!(text, " [{} keys, {} B]", row.keys, row.value_size);
        }
    }
    text.push_str("\n\nDistributions:");
    for row in DISTRIBUTIONS {
        let _ = write!(text, "\n  {:<26} {}", row.shape, row.about);
    }
    text.push_str("\n\nDialects:");
    for row in DIALECTS.iter() {
        let _ = write!(text, "\n  {:<16} {}", row.name, row.about);
    }
    text
}
