//! One run of the load generator, with a reading of all counters at either end of its window.

use super::BIN;
use super::process::Process;
use crate::sampler::{Context, Samplers};
use kv::Error;
use kv::proto::{LoadEvent, LoadReport, SecondReport};
use kv::units::Span;
use lab_data::experiment::{GENERATOR, Workload};
use lab_data::results::Reading;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// How long a generator may take before it is killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For writing and reading back every key.
    pub(super) preload: Duration,
    /// Beyond warm-up and window: requests in flight time out, the report is made.
    pub(super) grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { preload: Duration::from_secs(120), grace: Duration::from_secs(30) }
    }
}

/// How long a generator that has reported may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// What ends the window of a generator.
const END: &str = "end";
/// How often the stop flag is checked.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Whether a window with these bins of [`BIN`] is long enough.
pub(super) type Enough<'a> = dyn Fn(&[SecondReport]) -> bool + 'a;

/// What to run.
pub(super) struct Run<'a> {
    /// The weir binary.
    pub(super) program: &'a Path,
    /// The target.
    pub(super) url: &'a str,
    /// The workload.
    pub(super) workload: &'a Workload,
    /// Clients.
    pub(super) level: u32,
    /// Of the operation streams.
    pub(super) seed: u64,
    /// The unmeasured part.
    pub(super) warmup: Span,
    /// The measured part, at most.
    pub(super) window: Span,
    /// Whether the measured part may end already, after each of its bins; `None` where it has a fixed length.
    pub(super) enough: Option<&'a Enough<'a>>,
    /// Whether the keys must be written first.
    pub(super) preload: bool,
    /// By how much each request costs the generator more processor time than it has to, in microseconds.
    pub(super) added_cpu_us: Option<f64>,
    /// Where the generator runs; it gets as many threads.
    pub(super) cores: &'a [usize],
    /// What is sampled beside the generator.
    pub(super) context: &'a Context,
    /// Where the generator says what goes wrong.
    pub(super) log: &'a Path,
    /// Told its process id as soon as it runs; an error ends the run.
    pub(super) started: &'a dyn Fn(u32) -> Result<(), Error>,
    /// Told once every key is written and the warm-up begins, where none has to be once the window does; an error ends the run.
    pub(super) filled: &'a dyn Fn() -> Result<(), Error>,
    /// When to give it up.
    pub(super) limits: Limits,
}

/// What came of a run.
#[derive(Default)]
pub(super) struct Outcome {
    /// Whether every key of the workload is in the target now.
    pub(super) preloaded: bool,
    /// The generator's report, and the readings around its window.
    pub(super) report: Option<LoadReport>,
    /// Why there is no report.
    pub(super) failure: Option<String>,
    opened: Option<(Instant, Reading)>,
    closed: Option<(Instant, Reading)>,
}

impl Outcome {
    /// Time between the readings, and both; nothing of a window that did not close.
    pub(super) fn readings(self) -> (f64, Reading, Reading) {
        match (self.opened, self.closed) {
            (Some((start, opened)), Some((end, closed))) => ((end - start).as_secs_f64(), opened, closed),
            _ => Default::default(),
        }
    }
}

impl Run<'_> {
    /// Runs it to its end, to its time limit, or until `stop` is set.
    pub(super) fn run(&self, stop: &AtomicBool) -> Outcome {
        let mut outcome = Outcome { preloaded: !self.preload, ..Outcome::default() };
        if let Err(why) = self.follow(&mut outcome, stop) {
            outcome.report = None;
            outcome.failure = Some(why.into());
        }
        outcome
    }

    fn follow(&self, outcome: &mut Outcome, stop: &AtomicBool) -> Result<(), Error> {
        let limits = self.limits;
        let mut process = Process::weir(&mut self.command(), self.cores, self.log)?;
        (self.started)(process.pid())?;
        let lines = process.lines();
        let mut context = self.context.clone();
        // First, because it is the one that will be gone.
        context.parts.insert(0, (GENERATOR.to_owned(), process.pid()));
        let mut samplers = Samplers::new(&context);
        let measured = self.warmup.0 + self.window.0;
        let mut deadline =
            Instant::now() + measured + if self.preload { limits.preload } else { limits.grace };
        let mut bins = Vec::new();
        loop {
            let line = match lines.recv_timeout(POLL_EVERY) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    return Err(Error::new("interrupted"));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    process.kill();
                    let limit =
                        if outcome.preloaded { "its time limit" } else { "the time limit of preloading" };
                    return Err(process.failed(format_args!("exceeded {limit} and was killed")));
                }
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    let ended = process.wait(EXIT_TIMEOUT);
                    let ended = ended.map_or("did not end".into(), |status| format!("ended with {status}"));
                    return Err(process.failed(format_args!("{ended} without a report")));
                }
            };
            match parse(&line)? {
                LoadEvent::Preloaded { .. } => {
                    outcome.preloaded = true;
                    (self.filled)()?;
                    deadline = Instant::now() + measured + limits.grace;
                }
                LoadEvent::WindowStart => {
                    // Who only writes says nothing of keys.
                    if !outcome.preloaded {
                        outcome.preloaded = true;
                        (self.filled)()?;
                    }
                    outcome.opened = Some((Instant::now(), samplers.read()));
                    deadline = Instant::now() + self.window.0 + limits.grace;
                }
                LoadEvent::Preloading { .. } | LoadEvent::Second { .. } => {}
                LoadEvent::Bin { report, .. } => {
                    bins.push(report);
                    if outcome.closed.is_none() && self.enough.is_some_and(|enough| enough(&bins)) {
                        process.tell(END);
                    }
                }
                LoadEvent::WindowEnd => outcome.closed = Some((Instant::now(), samplers.read())),
                LoadEvent::Report(_) if outcome.closed.is_none() || outcome.opened.is_none() => {
                    return Err(process.failed("reported without opening and closing its window"));
                }
                LoadEvent::Report(report) => {
                    outcome.report = Some(*report);
                    process.wait(EXIT_TIMEOUT);
                    return Ok(());
                }
            }
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(["load", self.url, "--workload", self.workload.of_load(), "--events"]);
        let threads = (self.cores.len() as u64).clamp(1, u64::from(self.level));
        for (flag, value) in [
            ("--clients", self.level.to_string()),
            ("--threads", threads.to_string()),
            ("--warmup", self.warmup.to_string()),
            ("--window", self.window.to_string()),
            ("--seed", self.seed.to_string()),
        ] {
            if !self.workload.args.iter().any(|arg| arg.split('=').next() == Some(flag)) {
                command.args([flag, &value]);
            }
        }
        if self.enough.is_some() {
            command.args(["--bin", &BIN.to_string()]);
        }
        if !self.preload {
            command.arg("--no-preload");
        }
        if let Some(us) = self.added_cpu_us {
            command.args(["--inject", &format!("cpu={us:.3}us")]);
        }
        command.arg("--until-stdin-ends").args(&self.workload.args);
        command
    }
}

fn parse(line: &str) -> Result<LoadEvent, Error> {
    serde_json::from_str(line).map_err(|error| {
        let start: String = line.chars().take(80).collect();
        Error::new(format_args!("load said `{start}`, which is no event ({error})"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const REPORT: &str = r#"{"event":"report","format":1,"workload":"w","clients":2,"threads":1,"seed":7,"warmup_secs":0.1,"window_secs":0.1,"attempts":10,"successes":10,"goodput_rps":100.0,"error_ratio":0.0,"latency":{"count":0,"us_mean":0,"us_min":0,"us_p50":0,"us_p90":0,"us_p99":0,"us_p999":0,"us_max":0,"clipped":0},"operations":[],"errors":{},"backoff_secs":0,"cpu_secs":0,"seconds":[]}"#;

    /// Runs a shell script in the generator's place.
    fn outcome(script: &str, preload: bool, stop: bool) -> Outcome {
        outcome_within(Limits::default(), script, preload, stop)
    }

    fn outcome_within(limits: Limits, script: &str, preload: bool, stop: bool) -> Outcome {
        outcome_until(None, limits, script, preload, stop)
    }

    fn outcome_until(
        enough: Option<&Enough>,
        limits: Limits,
        script: &str,
        preload: bool,
        stop: bool,
    ) -> Outcome {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("weir");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let short = Span(Duration::from_millis(100));
        let run = Run {
            program: &program,
            url: "http://127.0.0.1:1",
            workload: &Workload {
                name: "w".into(),
                args: vec!["--keys".into(), "5".into()],
                ..Workload::default()
            },
            level: 2,
            seed: 7,
            warmup: short,
            window: short,
            enough,
            preload,
            added_cpu_us: None,
            cores: &[],
            context: &Context::default(),
            log: &dir.path().join("load.log"),
            started: &|_| Ok(()),
            filled: &|| Ok(()),
            limits,
        };
        run.run(&AtomicBool::new(stop))
    }

    #[test]
    fn a_run_is_read_at_both_ends_of_its_window() {
        let script = format!(
            "echo '{{\"event\":\"preloaded\",\"keys\":5,\"secs\":0.1}}'\n\
             echo '{{\"event\":\"window_start\"}}'\necho '{{\"event\":\"window_end\"}}'\necho '{REPORT}'"
        );
        let outcome = outcome(&script, true, false);
        assert_eq!(outcome.failure, None);
        assert!(outcome.preloaded);
        assert_eq!(outcome.report.as_ref().unwrap().attempts, 10);
        let (elapsed_secs, opened, closed) = outcome.readings();
        assert!(elapsed_secs > 0.0);
        assert!(opened.counters.contains_key("generator.cpu_secs"), "{opened:?}");
        assert!(closed.counters.contains_key("memory.swap_in_pages"));
    }

    #[test]
    fn a_generator_whose_bins_are_enough_is_told_to_end() {
        let bin = serde_json::to_string(&LoadEvent::Bin { bin: 0, report: SecondReport::default() }).unwrap();
        // It waits until it is told.
        let script = format!(
            "case \"$*\" in *'--bin 100ms'*) ;; *) exit 1;; esac\n\
             echo '{{\"event\":\"window_start\"}}'\n\
             for i in 1 2 3; do echo '{bin}'; done\nread -r line\n\
             echo '{{\"event\":\"window_end\"}}'\n\
             if [ \"$line\" = end ]; then echo '{REPORT}'; else exit 1; fi"
        );
        let third = |bins: &[SecondReport]| bins.len() == 3;
        let outcome = outcome_until(Some(&third), Limits::default(), &script, false, false);
        assert_eq!(outcome.failure, None);
        assert!(outcome.report.is_some());
    }

    #[test]
    fn the_generator_is_told_everything() {
        let outcome = outcome("echo \"$@\" >&2; exit 3", false, false);
        let told = "load ended with exit status: 3 without a report: load http://127.0.0.1:1 --workload w --events \
             --clients 2 --threads 1 --warmup 100ms --window 100ms --seed 7 --no-preload --until-stdin-ends --keys 5; hint: see ";
        let why = outcome.failure.unwrap();
        assert!(why.starts_with(told), "{why}");
    }

    #[test]
    fn what_fails_says_how() {
        for (script, failure) in [
            ("echo hello", "load said `hello`, which is no event"),
            (&*format!("echo '{REPORT}'"), "load reported without opening and closing its window"),
            ("echo 'error: refused' >&2; exit 1", "without a report: error: refused"),
        ] {
            let outcome = outcome(script, true, false);
            assert!(!outcome.preloaded && outcome.report.is_none());
            let said = outcome.failure.unwrap();
            assert!(said.contains(failure), "{said}");
        }
    }

    #[test]
    fn a_generator_that_does_not_come_to_an_end_is_killed() {
        let limits = Limits { preload: Duration::ZERO, grace: Duration::ZERO };
        for (preload, limit) in [(true, "the time limit of preloading"), (false, "its time limit")] {
            let outcome = outcome_within(limits, "echo busy >&2; exec sleep 1000", preload, false);
            let said = outcome.failure.unwrap();
            assert!(
                said.starts_with(&format!("load exceeded {limit} and was killed: busy; hint: ")),
                "{said}"
            );
        }
    }

    #[test]
    fn a_stopped_run_does_not_wait_for_the_generator() {
        assert_eq!(outcome("exec sleep 1000", true, true).failure.unwrap(), "interrupted");
    }
}
