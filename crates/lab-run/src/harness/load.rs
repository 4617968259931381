//! One run of the load generator, with a reading of all counters at either end of its window.

use super::process::Process;
use super::runner::{Length, Planned};
use super::{BIN, Options};
use crate::sampler::{Context, Samplers};
use kv::Error;
use kv::proto::{LoadEvent, LoadReport, SecondReport};
use kv::units::Span;
use lab_data::experiment::GENERATOR;
use lab_data::results::{Reading, SLOWER_GENERATOR, Trial};
use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a generator may take before it is killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// For writing and reading back every key.
    pub(super) preload: Duration,
    /// Beyond warm-up and window: requests in flight time out, the report is made.
    pub(super) grace: Duration,
}

/// When to give one up.
const LIMITS: Limits = Limits { preload: Duration::from_secs(120), grace: Duration::from_secs(60) };

/// How long a generator that has reported may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);
/// In which bins it is told when the target did not answer.
const FAULT_BIN: Span = Span(Duration::from_millis(20));
/// What ends the window of a generator.
const END: &str = "end";
/// What to run.
pub(super) struct Run<'a> {
    pub(super) options: &'a Options,
    pub(super) planned: &'a Planned<'a>,
    /// The target; of several servers the clients take each in turn.
    pub(super) urls: &'a [String],
    /// Of the operation streams.
    pub(super) seed: u64,
    /// Whether every key of the workload is in the target: else they are written first.
    pub(super) is_filled: Cell<bool>,
    /// Where the generator runs; it gets as many threads.
    pub(super) cores: &'a [usize],
    /// What is sampled beside the generator.
    pub(super) context: &'a Context,
    /// Told its process id as soon as it runs; an error ends the run.
    pub(super) started: &'a dyn Fn(u32) -> Result<(), Error>,
    /// Told once every key is written and the warm-up begins, where none has to be once the window does; an error ends the run.
    pub(super) filled: &'a dyn Fn() -> Result<(), Error>,
    /// Whether the operations are judged at the end.
    pub(super) is_judged: bool,
    /// Told when the window opens.
    pub(super) opened: &'a dyn Fn(),
    /// When to give it up.
    pub(super) limits: Limits,
}

impl<'a> Run<'a> {
    /// One that writes all keys first and tells nobody anything.
    pub(super) fn new(
        options: &'a Options,
        planned: &'a Planned<'a>,
        urls: &'a [String],
        seed: u64,
        cores: &'a [usize],
        context: &'a Context,
    ) -> Run<'a> {
        Run {
            options,
            planned,
            urls,
            seed,
            is_filled: Cell::new(false),
            cores,
            context,
            started: &|_| Ok(()),
            filled: &|| Ok(()),
            is_judged: false,
            opened: &|| {},
            limits: LIMITS,
        }
    }

    /// Runs it to its end, to its time limit, or until the run is stopped: the generator's report or why there is none, and the readings
    /// around its window if that closed.
    pub(super) fn run(&self) -> Trial {
        let mut trial = self.planned.trial();
        match self.follow(&mut trial) {
            Ok(report) => trial.load = Some(report),
            Err(why) => trial.failure = Some(why.into()),
        }
        trial
    }

    fn follow(&self, trial: &mut Trial) -> Result<LoadReport, Error> {
        let Run { options, limits, .. } = *self;
        let mut process = Process::weir(&mut self.command(), self.cores, &options.dir.join("load.log"))?;
        (self.started)(process.pid())?;
        let lines = process.lines();
        let mut context = self.context.clone();
        // First, because it is the one that will be gone.
        context.parts.insert(0, (GENERATOR.to_owned(), process.pid()));
        let mut samplers = Samplers::new(&context);
        let measured = self.planned.length.warmup.0 + self.window().0;
        let mut deadline =
            Instant::now() + measured + if self.is_filled.get() { limits.grace } else { limits.preload };
        let (mut bins, mut opened, mut is_closed) = (Vec::new(), None::<(Instant, Reading)>, false);
        loop {
            let limit = if self.is_filled.get() { "its time limit" } else { "the time limit of preloading" };
            let late = format_args!("exceeded {limit} and was killed");
            let Some(line) = process.hear(&lines, deadline, late, &options.stop)? else {
                let ended = process.wait(EXIT_TIMEOUT);
                let ended = ended.map_or("did not end".into(), |status| format!("ended with {status}"));
                return Err(process.failed(format_args!("{ended} without a report")));
            };
            let event = parse(&line)?;
            // Who only writes says nothing of keys.
            let is_written = matches!(event, LoadEvent::Preloaded { .. } | LoadEvent::WindowStart);
            if is_written && !self.is_filled.replace(true) {
                (self.filled)()?;
            }
            match event {
                LoadEvent::Preloaded { .. } => deadline = Instant::now() + measured + limits.grace,
                LoadEvent::WindowStart => {
                    (self.opened)();
                    opened = Some((Instant::now(), samplers.read()));
                    deadline = Instant::now() + self.window().0 + limits.grace;
                }
                LoadEvent::Preloading { .. } | LoadEvent::Second { .. } => {}
                LoadEvent::Bin { report, .. } => {
                    bins.push(report);
                    if !is_closed && self.is_enough(&bins) {
                        process.tell(END);
                    }
                }
                LoadEvent::WindowEnd => {
                    if let Some((start, reading)) = opened.take() {
                        trial.elapsed_secs = start.elapsed().as_secs_f64();
                        (trial.opened, trial.closed, is_closed) = (reading, samplers.read(), true);
                    }
                }
                LoadEvent::Report(_) if !is_closed => {
                    return Err(process.failed("reported without opening and closing its window"));
                }
                LoadEvent::Report(report) => {
                    process.wait(EXIT_TIMEOUT);
                    return Ok(*report);
                }
            }
        }
    }

    /// The measured part, at most.
    fn window(&self) -> Span {
        let Length { window, adaptive, .. } = self.planned.length;
        adaptive.map_or(window, |adaptive| adaptive.most)
    }

    /// Whether a window of no fixed length may end after these bins of [`BIN`].
    fn is_enough(&self, bins: &[SecondReport]) -> bool {
        let Planned { workload, length, .. } = self.planned;
        let (least, is_open) = (length.window.0, workload.is_open());
        length.adaptive.is_some_and(|adaptive| (self.options.enough)(least, &adaptive, is_open, bins))
    }

    fn command(&self) -> Command {
        let Planned { workload, level, length, change, .. } = *self.planned;
        let mut command = Command::new(&self.options.program);
        let threads = (self.cores.len() as u64).clamp(1, u64::from(level));
        let (level, threads, seed) = (level.to_string(), threads.to_string(), self.seed.to_string());
        let (warmup, window) = (length.warmup.to_string(), self.window().to_string());
        command.args(workload.asks(self.urls, &[level, threads, warmup, window, seed]));
        if length.adaptive.is_some() {
            command.args(["--bin", &BIN.to_string()]);
        }
        if self.is_judged {
            command.args(["--check", "linearizability", "--bin", &FAULT_BIN.to_string()]);
        }
        if self.is_filled.get() && workload.url.is_none() {
            command.arg("--no-preload");
        }
        if let Some(slower) = change.filter(|change| change.name == SLOWER_GENERATOR) {
            command.args(["--inject", &format!("cpu={:.3}us", slower.added_us)]);
        }
        command.arg("--until-stdin-ends").args(&workload.args);
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
    use lab_data::experiment::{Adaptive, Workload};
    use std::sync::Arc;

    const REPORT: &str = r#"{"event":"report","format":1,"workload":"w","clients":2,"threads":1,"seed":7,"warmup_secs":0.1,"window_secs":0.1,"attempts":10,"successes":10,"goodput_rps":100.0,"error_ratio":0.0,"latency":{"count":0,"us_mean":0,"us_min":0,"us_p50":0,"us_p90":0,"us_p99":0,"us_p999":0,"us_max":0,"clipped":0},"operations":[],"errors":{},"backoff_secs":0,"cpu_secs":0,"seconds":[]}"#;

    /// Runs a shell script in the generator's place; what came of it, and whether the keys are written.
    fn outcome(script: &str, preload: bool, stop: bool) -> (Trial, bool) {
        outcome_within(LIMITS, None, script, preload, stop)
    }

    /// With `adaptive` three bins are enough.
    fn outcome_within(
        limits: Limits,
        adaptive: Option<Adaptive>,
        script: &str,
        preload: bool,
        stop: bool,
    ) -> (Trial, bool) {
        let dir = tempfile::tempdir().unwrap();
        let program = super::super::files::script(dir.path(), script);
        let options = Options { stop: Arc::new(stop.into()), ..Options::of(program, dir.path()) };
        let args = vec!["--keys".into(), "5".into()];
        let workload = Workload { name: "w".into(), args, ..Workload::default() };
        let short = Span(Duration::from_millis(100));
        let planned = Planned::unchanged(&workload, 2, 0, Length { warmup: short, window: short, adaptive });
        let (urls, context) = (["http://127.0.0.1:1".to_owned()], Context::default());
        let own = Run::new(&options, &planned, &urls, 7, &[], &context);
        let run = Run { is_filled: Cell::new(!preload), limits, ..own };
        (run.run(), run.is_filled.get())
    }

    #[test]
    fn a_run_is_read_at_both_ends_of_its_window() {
        let script = format!(
            "echo '{{\"event\":\"preloaded\",\"keys\":5,\"secs\":0.1}}'\n\
             echo '{{\"event\":\"window_start\"}}'\necho '{{\"event\":\"window_end\"}}'\necho '{REPORT}'"
        );
        let (trial, is_filled) = outcome(&script, true, false);
        let Trial { failure, load, elapsed_secs, opened, closed, .. } = trial;
        assert_eq!(failure, None);
        assert!(is_filled);
        assert_eq!(load.unwrap().attempts, 10);
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
        let adaptive = Adaptive { most: Span(Duration::from_secs(3)), goodput: 0.01 };
        let (trial, _) = outcome_within(LIMITS, Some(adaptive), &script, false, false);
        assert_eq!(trial.failure, None);
        assert!(trial.load.is_some());
    }

    #[test]
    fn the_generator_is_told_everything() {
        let (trial, _) = outcome("echo \"$@\" >&2; exit 3", false, false);
        let told = "load ended with exit status: 3 without a report: load http://127.0.0.1:1 --workload w --events \
             --clients 2 --threads 1 --warmup 100ms --window 100ms --seed 7 --no-preload --until-stdin-ends --keys 5; hint: see ";
        let why = trial.failure.unwrap();
        assert!(why.starts_with(told), "{why}");
    }

    #[test]
    fn what_fails_says_how() {
        for (script, failure) in [
            ("echo hello", "load said `hello`, which is no event"),
            (&*format!("echo '{REPORT}'"), "load reported without opening and closing its window"),
            ("echo 'error: refused' >&2; exit 1", "without a report: error: refused"),
        ] {
            let (trial, is_filled) = outcome(script, true, false);
            assert!(!is_filled && trial.load.is_none());
            let said = trial.failure.unwrap();
            assert!(said.contains(failure), "{said}");
        }
    }

    #[test]
    fn a_generator_that_does_not_come_to_an_end_is_killed() {
        let limits = Limits { preload: Duration::ZERO, grace: Duration::ZERO };
        for (preload, limit) in [(true, "the time limit of preloading"), (false, "its time limit")] {
            let (trial, _) = outcome_within(limits, None, "echo busy >&2; exec sleep 1000", preload, false);
            let said = trial.failure.unwrap();
            assert!(
                said.starts_with(&format!("load exceeded {limit} and was killed: busy; hint: ")),
                "{said}"
            );
        }
    }

    #[test]
    fn a_stopped_run_does_not_wait_for_the_generator() {
        assert_eq!(outcome("exec sleep 1000", true, true).0.failure.unwrap(), "interrupted");
    }
}
