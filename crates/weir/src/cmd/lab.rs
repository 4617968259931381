//! `weir lab`: runs an experiment and writes its report.
//!
//! Reads the file and the flags, shows how far the run is, and tells at its end what was found and what failed.

use super::given::{self, Length, Service};
use super::load::not_linearizable;
use super::serve::is_ignored;
use super::usage::{check_commands, of_target};
use super::{compare, counted, note, read_text, report, say};
use indicatif::{ProgressBar, ProgressStyle};
use kv::proto::{LinearizabilityReport, SecondReport};
use kv::units::Span;
use kv::{Error, one_line};
use lab_analysis::steady::{Goal, long_enough};
use lab_analysis::{best_level, headroom_is_decided};
use lab_data::distinct;
use lab_data::experiment::{Adaptive, Experiment, PublishedSource};
use lab_data::published::{self, PublishedRow};
use lab_data::results::{Measured, Results, Selftest, Trial};
use lab_report::{faults, headline, selftest_lines};
use lab_run::harness::{self, Options, Planned, Progress};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Measure servers with more and more clients, find what limits them, and write a report.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Experiment: a TOML file that says what to measure, as in experiments/
    #[arg(required_unless_present_any = ["command", "url"], conflicts_with_all = ["command", "url"])]
    experiment: Option<PathBuf>,
    /// Instead of a file: command that starts a service; a free port takes the place of {port} in it
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
    /// Instead of a file: URL of a running service; with --command: path to request, as in /orders. Where no path is given, the service must have weir's API
    #[arg(long, value_name = "URL|PATH")]
    url: Option<String>,
    /// With --command: CPU limit of the service in cores, as in 0.5
    #[arg(long, value_name = "CORES", requires = "command", conflicts_with = "experiment")]
    quota: Option<f64>,
    /// New directory for the results [default: weir-results/NAME-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the random numbers
    #[arg(long)]
    seed: Option<u64>,
    /// How often each level is measured
    #[arg(long)]
    repetitions: Option<u32>,
    /// Numbers of clients, as in 1,2,4
    #[arg(long, value_delimiter = ',', value_name = "CLIENTS,…")]
    levels: Option<Vec<u32>>,
    /// Only these workloads of the file, as in get_popular,put_all
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    workloads: Option<Vec<String>>,
    /// Only these targets of the file, as in weir,nginx
    #[arg(long, value_delimiter = ',', value_name = "NAME,…")]
    targets: Option<Vec<String>>,
    /// Time to run before each measured window
    #[arg(long)]
    warmup: Option<Span>,
    /// Length of each measured window
    #[arg(long)]
    window: Option<Span>,
    /// Shorten the durations of the file to this share, as in 0.1, for a quick look
    #[arg(long, value_name = "SHARE", value_parser = share)]
    scale: Option<f64>,
    /// Skip the accuracy test of the load generator
    #[arg(long)]
    no_selftest: bool,
    /// Skip the test whether the load generator is the bottleneck. The test also slows the server: without it there is less evidence on whether the server's CPU is the bottleneck
    #[arg(long)]
    no_headroom: bool,
    /// Flags for `weir load`, as in -- -H 'Accept: text/html'; only with --command or --url
    #[arg(last = true, value_name = "FLAGS", conflicts_with = "experiment")]
    flags: Vec<String>,
}

/// Clients at each level, of what no file says.
const LEVELS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

fn share(text: &str) -> Result<f64, Error> {
    match text.parse() {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(share),
        _ => Err(Error::input("a share is above 0, up to 1").hint("write it as in 0.1")),
    }
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let experiment = read(&args)?;
    let published = args.experiment.as_ref().map_or(Ok(Vec::new()), |file| {
        // Of workloads that the flags leave out the table may have rows.
        published_rows(file, &experiment, args.workloads.is_none() && args.targets.is_none())
    })?;
    let dir = results_dir(args.out.as_deref(), &experiment.name)?;
    // A share of 1 shortens nothing.
    let scale = args.scale.filter(|share| *share < 1.0);
    let options = Options { scale, published, ..options(&dir)? };
    let planned = experiment.trials();
    note(format_args!("{}; results in {}", counted(planned as u64, "trial"), dir.display()));
    let mut shown = Shown::new();
    let mut results = Vec::new();
    let ran = harness::run(&experiment, &options, &mut shown, &mut results);
    shown.bar.finish_and_clear();
    conclude(&dir, &results, ran, planned, options.stop.load(Ordering::Relaxed))
}

/// How to run an experiment whose results go to `dir`, in full length and without published results.
pub(super) fn options(dir: &Path) -> Result<Options, Error> {
    let program = std::env::current_exe()
        .map_err(|error| Error::new(format_args!("cannot find the weir binary to start: {error}")))?;
    // It fails only if there is a logger already.
    if log::set_logger(&Warnings).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
    Ok(Options {
        program,
        // As the kernel and PostgreSQL name it: without `..` and links.
        dir: dir.canonicalize().unwrap_or_else(|_| dir.to_owned()),
        command: command_line(),
        scale: None,
        sequential: false,
        published: Vec::new(),
        enough,
        best_level,
        is_decided: headroom_is_decided,
        stop: stop_on_signal()?,
    })
}

/// Whether a trial has seen enough: the harness measures, the analysis judges, and neither knows the other.
fn enough(least: Duration, adaptive: &Adaptive, is_open: bool, bins: &[SecondReport]) -> bool {
    let least_secs = least.max(Adaptive::LEAST.0).as_secs_f64();
    let goal = Goal { least_secs, goodput: adaptive.goodput, latency: 2.0 * adaptive.goodput, is_open };
    long_enough(bins, harness::BIN.secs(), &goal)
}

/// Writes and tells what was found of each target; fails if not all of it was measured.
fn conclude(
    dir: &Path,
    results: &[Results],
    ran: Result<(), Error>,
    planned: usize,
    interrupted: bool,
) -> Result<(), Error> {
    let targets: Vec<&Results> = results.iter().filter(|results| !results.trials.is_empty()).collect();
    let measured: usize = targets.iter().map(|results| results.trials.len()).sum();
    let mut unwritten = None;
    for results in &targets {
        let dir = harness::dir_of(dir, results.measured.as_ref());
        if let Some(target) = &results.measured {
            say(format_args!("{}:", target.target));
        }
        let path = report::write(&dir, results);
        match faults(results) {
            Some(text) => say(text.trim_end()),
            None => say(headline(results)),
        }
        match path {
            Ok(path) => say(format_args!("report: {}", path.display())),
            Err(why) => {
                unwritten.get_or_insert(
                    why.hint(format_args!("make room, then run weir report {}", dir.display())),
                );
            }
        }
    }
    let has_faults = targets.iter().any(|results| faults(results).is_some());
    // Whether targets can be set beside each other says nothing of whether they were measured.
    if targets.len() > 1
        && !has_faults
        && let Err(failure) = compare_targets(dir)
    {
        note(format_args!("no comparison: {failure}"));
    }
    let trials =
        targets.iter().flat_map(|of| of.trials.iter().map(move |trial| (of.measured.as_ref(), trial)));
    let failures = trials.filter_map(|(of, trial)| Some((of, trial, trial.failure.as_ref()?)));
    let failures: Vec<(Option<&Measured>, &Trial, &String)> = failures.collect();
    match failures.first() {
        _ if interrupted && measured == 0 => Err(Error::new("interrupted before anything was measured")),
        _ if interrupted => {
            // What comes after the trials is in no plan.
            let rest = if measured == planned { ", in what follows them" } else { "" };
            Err(Error::new(format_args!(
                "interrupted after {measured} of {planned} trials{rest}; the report is over what was measured"
            )))
        }
        _ if let Err(why) = ran => {
            if measured > 0 {
                let of_these = if unwritten.is_none() { "; the report is over these" } else { "" };
                note(format_args!("ended after {measured} of {planned} trials{of_these}"));
            }
            Err(why)
        }
        _ if let Some(why) = unwritten => Err(why),
        Some((target, first, why)) => Err(Error::new(format_args!(
            "{} of {planned} trials failed, the first {} at {}: {why}",
            failures.len(),
            of_target(target.map(|of| &*of.target), &first.workload),
            counted(first.level.into(), "client"),
        ))
        .hint(format_args!("the logs are in {}", dir.display()))),
        None => linearizable(&targets).and_then(|()| succeeded(&targets)),
    }
}

/// Fails if operations were judged and not all of them can be explained.
fn linearizable(targets: &[&Results]) -> Result<(), Error> {
    let loads = targets.iter().flat_map(|results| &results.trials).filter_map(|trial| trial.load.as_ref());
    let mut all = LinearizabilityReport::default();
    for judged in loads.filter_map(|load| load.linearizability.as_ref()) {
        all.violations += judged.violations;
        all.not_decided += judged.not_decided;
        all.unread += judged.unread;
    }
    not_linearizable(&all).map_or(Ok(()), Err)
}

/// Fails as `weir load` does where nothing succeeded, if that is so of every trial.
fn succeeded(targets: &[&Results]) -> Result<(), Error> {
    let loads = targets.iter().flat_map(|results| &results.trials).filter_map(|trial| trial.load.as_ref());
    let failures: Option<Vec<Error>> = loads.map(load::nothing_succeeded).collect();
    match failures.unwrap_or_default().into_iter().next() {
        Some(first) => Err(first.at("no request succeeded in any trial; in the first")),
        None => Ok(()),
    }
}

/// Writes and tells how the targets of the run in `dir` stand beside each other.
fn compare_targets(dir: &Path) -> Result<(), Error> {
    let comparison = compare::of_run(dir)?;
    let path = compare::write(&comparison, dir)?;
    say(lab_report::compare::headline(&comparison));
    say(format_args!("comparison: {}", path.display()));
    Ok(())
}

/// The experiment of the file, or of a service that the flags name.
fn given(args: &Args) -> Result<Experiment, Error> {
    if let Some(file) = &args.experiment {
        let text = read_text(file, "the experiment ", "name a TOML file, as in experiments/quick.toml")?;
        let mut experiment = Experiment::parse(&text).map_err(|why| why.at(file.display()))?;
        experiment.find_dialects_in(file.parent().unwrap_or(Path::new("")));
        return Ok(experiment);
    }
    let url = args.url.as_deref();
    let service = match &args.command {
        Some(command) => Service::of_command(None, command, url)?,
        None => Service::of_url(None, url.unwrap_or_default())?,
    };
    let (warmup, window) = ("500ms".to_owned(), "2s".to_owned());
    let length =
        Length { levels: LEVELS, repetitions: 3, warmup, window, is_checked: true, quota: args.quota };
    given::experiment("service", &[service], &length, &args.flags)
}

/// The experiment, with the flags in place of what they replace.
fn read(args: &Args) -> Result<Experiment, Error> {
    let mut experiment = given(args)?;
    let Args { seed, repetitions, levels, workloads, targets, warmup, window, scale, .. } = args;
    targets.iter().try_for_each(|names| experiment.keep_targets(names))?;
    workloads.iter().try_for_each(|names| experiment.keep(names))?;
    if let Some(share) = scale {
        experiment.scale(*share);
    }
    experiment.selftest &= !args.no_selftest;
    experiment.headroom &= !args.no_headroom;
    experiment.seed = seed.unwrap_or(experiment.seed);
    experiment.repetitions = repetitions.unwrap_or(experiment.repetitions);
    experiment.warmup = warmup.unwrap_or(experiment.warmup);
    experiment.window = window.unwrap_or(experiment.window);
    if let Some(levels) = levels {
        experiment.levels.clone_from(levels);
        // For all workloads: who names levels on the command line means these.
        experiment.workloads.iter_mut().for_each(|workload| workload.levels = None);
    }
    experiment.check()?;
    check_commands(&experiment).map_err(|why| match &args.experiment {
        Some(file) => why.at(file.display()),
        None => why,
    })?;
    Ok(experiment)
}

/// The published results that the experiment names. They are read before anything starts, so that a slip costs no run. Where it `is_whole`,
/// the experiment has all its workloads, one of which at least must have a row.
fn published_rows(file: &Path, experiment: &Experiment, is_whole: bool) -> Result<Vec<PublishedRow>, Error> {
    let Some(PublishedSource { file: table, report }) = &experiment.published else { return Ok(Vec::new()) };
    let path = file.parent().unwrap_or(Path::new("")).join(table);
    let shown = path.display();
    let hint = "name a CSV file in published.file, relative to the experiment file";
    let text = read_text(&path, "the published results ", hint)?;
    let table = published::parse(&text).map_err(|why| why.at(format_args!("{shown}")))?;
    let (all, wanted) = (table.rows, experiment.workloads.iter());
    let rows: Vec<PublishedRow> = all.iter().filter(|row| row.report == *report).cloned().collect();
    if rows.is_empty() {
        let reports = listed(all.iter().map(|row| &row.report));
        return Err(Error::input(format_args!("{shown} has no row of report `{report}`")).hint(
            format_args!("write in published.report what stands in the table's column report: {reports}"),
        ));
    }
    let has_row = |name: &String| rows.iter().any(|row| row.workload == *name);
    let workloads = listed(rows.iter().map(|row| &row.workload));
    // A workload whose name the table does not have is no slip: it may be new. One that names another is.
    let mut named = wanted.clone().filter_map(|workload| workload.published.as_ref());
    if let Some(name) = named.find(|name| !has_row(name)) {
        return Err(Error::input(format_args!("{shown} has no workload `{name}` of report `{report}`"))
            .hint(format_args!(
                "write in workload.published what stands in the table's column workload: {workloads}"
            )));
    }
    // A table of which nothing is used is a slip, too.
    if is_whole && !wanted.clone().any(|of| has_row(of.published.as_ref().unwrap_or(&of.name))) {
        let own = listed(wanted.map(|workload| &workload.name));
        let what = format!(
            "{shown} has no row of a workload of the experiment: the experiment has {own}, the rows {workloads}"
        );
        return Err(Error::input(what).hint(
            "write the same name in the table's column workload, or the table's name in workload.published",
        ));
    }
    Ok(rows)
}

/// Each name once: `` `put_all`, `get_all` ``.
fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names = distinct(names.filter(|name| !name.is_empty()));
    let names = names.into_iter().map(|name| format!("`{}`", one_line(name)));
    names.reduce(|all, name| format!("{all}, {name}")).unwrap_or_else(|| "none".to_owned())
}

/// Makes the results directory; an earlier run's is never written to.
pub(super) fn results_dir(out: Option<&Path>, name: &str) -> Result<PathBuf, Error> {
    let cannot = |dir: &Path, error: io::Error| {
        Error::new(format_args!("cannot make {}: {error}", dir.display()))
            .hint("name a new directory with --out, where files may be written")
    };
    let Some(dir) = out else {
        let all = Path::new("weir-results");
        fs::create_dir_all(all).map_err(|error| cannot(all, error))?;
        // `2026-01-31T23:59:59Z` as `20260131-235959`.
        let stamp = harness::now().replace(['-', ':', 'Z'], "").replace('T', "-");
        let name = format!("{name}-{stamp}");
        let (mut dir, mut number) = (all.join(&name), 1);
        return loop {
            match fs::create_dir(&dir) {
                // Another run began in the same second.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => break made.map_err(|error| cannot(&dir, error)).map(|()| dir),
            }
            dir = all.join(format!("{name}-{number}"));
        };
    };
    fs::create_dir_all(dir).map_err(|error| cannot(dir, error))?;
    match has_results(dir).map_err(|error| cannot(dir, error))? {
        true => Err(Error::input(format_args!("{} is not empty", dir.display()))
            .hint("name a new directory with --out, or empty this one")),
        false => Ok(dir.to_owned()),
    }
}

/// Whether there is anything in `dir` but the logs of a start that failed.
fn has_results(dir: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        if path.is_dir() && has_results(&path)? || !path.is_dir() && !is_log {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The command as it was typed, fit to be typed again: without `--out`, whose directory is taken now.
fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+@%".contains(c);
    let quoted = |arg: String| match !arg.is_empty() && arg.chars().all(plain) {
        true => arg,
        false => format!("'{}'", arg.replace('\'', r"'\''")),
    };
    let mut words = vec!["weir".to_owned()];
    let mut args = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--out" => drop(args.next()),
            joined if joined.starts_with("--out=") => {}
            _ => words.push(quoted(arg)),
        }
    }
    words.join(" ")
}

/// Notes what the lab warns of while it runs, as of a process that had to be killed.
struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, of: &log::Metadata<'_>) -> bool {
        of.level() <= log::Level::Warn && of.target().starts_with("lab_run")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            note(format_args!("warning: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

/// A flag that SIGINT, SIGTERM and SIGHUP set: the run then ends its children and reports what it has. A later SIGINT or SIGTERM ends
/// this process at once; what was started ends even then.
fn stop_on_signal() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let register = || -> io::Result<()> {
        let ends_at_once = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_default(signal, Arc::clone(&ends_at_once))?;
        }
        // Of a terminal that was closed. Who started us with nohup wants us to stay.
        let closed = Some(SIGHUP).filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(closed))?;
        let stop = Arc::clone(&stop);
        std::thread::Builder::new().spawn(move || {
            for _ in signals.forever() {
                stop.store(true, Ordering::Relaxed);
                std::thread::sleep(super::SAME_SIGNAL);
                ends_at_once.store(true, Ordering::Relaxed);
            }
        })?;
        Ok(())
    };
    register().map_err(|error| Error::new(format_args!("cannot listen for Ctrl-C: {error}")))?;
    Ok(stop)
}

/// The run on standard error: a bar where that is a terminal, lines for what went wrong everywhere.
struct Shown {
    bar: ProgressBar,
}

impl Shown {
    fn new() -> Shown {
        let bar = ProgressBar::no_length().with_style(style("{spinner} {msg}"));
        // Trials are longer than a person likes to wait for a sign of life.
        bar.enable_steady_tick(Duration::from_millis(250));
        Shown { bar }
    }

    /// Trial `number` of `total` of its kind begins, of which `what` says what it is.
    fn goes_on(&self, number: usize, total: usize, what: String) {
        // How long they take is known from those that are over.
        match number {
            1 => {
                self.bar.set_style(style("{bar:28} {pos}/{len}  {msg}"));
                self.bar.reset();
            }
            2 => self.bar.set_style(style("{bar:28} {pos}/{len}  {msg}  {eta} left")),
            _ => {}
        }
        self.bar.set_length(total as u64);
        self.bar.set_position(number as u64 - 1);
        self.bar.set_message(what);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Progress for Shown {
    fn preparing(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn proved(&mut self, selftest: &Selftest, at: Option<&str>) {
        let when = at.map(|at| format!(" ({at})")).unwrap_or_default();
        let lines = selftest_lines(selftest).into_iter().map(|line| line + &when);
        self.bar.suspend(|| lines.for_each(note));
    }

    fn begins(&mut self, number: usize, total: usize, target: Option<&str>, planned: &Planned) {
        let workload = of_target(target, &planned.workload.name);
        let clients = counted(planned.level.into(), "client");
        let what = match planned.change.map(|change| change.name.as_str()) {
            None if !planned.in_round => format!("{workload}, {clients}"),
            None => format!("interventions: {workload}, nothing changed"),
            Some("server_quota") => format!("interventions: {workload}, server_quota raised"),
            Some(name) => format!("interventions: {workload}, {name} slower"),
        };
        self.goes_on(number, total, what);
    }

    fn ended(&mut self, target: Option<&str>, planned: &Planned, trial: &Trial) {
        let Some(why) = &trial.failure else { return };
        let workload = of_target(target, &planned.workload.name);
        let with = planned.change.map_or("nothing changed", |change| &change.name);
        let what = match planned.in_round {
            true => format!("intervention on {workload} ({with})"),
            false => format!("{workload} at {}", counted(planned.level.into(), "client")),
        };
        self.bar.suspend(|| note(format_args!("{what} failed: {why}")));
    }
}
