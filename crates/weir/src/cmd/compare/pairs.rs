//! Two services measured in turns, A B B A, until the verdicts are known or the time is over.

use crate::cmd::given::{Length, Service, experiment};
use crate::cmd::lab::{options, results_dir};
use crate::cmd::{counted, note};
use kv::Error;
use kv::units::Span;
use lab_analysis::compare::{Gate, gate};
use lab_analysis::{Comparison, compare};
use lab_data::results::{Results, Trial};
use lab_report::compare::gate_headline;
use lab_run::harness::{self, Options, Planned, Progress};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// More pairs are not measured.
const PAIRS_MAX: u32 = 1000;

/// After so many pairs in which nothing of the base counts, nothing is expected of more.
const PAIRS_LEAST: u32 = 3;

/// Two services to be measured.
#[derive(clap::Args)]
pub(super) struct Pairs {
    /// Command that starts a service; a free port takes the place of {port} in it. Give it twice, BASE first
    #[arg(long, value_name = "COMMAND", help_heading = "Measuring two services")]
    pub(super) command: Vec<String>,
    /// URL of a running service; give it twice, BASE first. With --command: path to request, as in /orders. Where no path is given, the services must have
    /// weir's API
    #[arg(long, value_name = "URL|PATH", help_heading = "Measuring two services")]
    pub(super) url: Vec<String>,
    /// Maximum time to measure
    #[arg(long = "for", value_name = "TIME", default_value = "5m", help_heading = "Measuring two services")]
    time: Span,
    /// Clients, each with one request in flight
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = "Measuring two services")]
    clients: u32,
    /// Time to run before each measured window
    #[arg(long, default_value = "500ms", help_heading = "Measuring two services")]
    warmup: Span,
    /// Length of each measured window
    #[arg(long, default_value = "2s", help_heading = "Measuring two services")]
    window: Span,
    /// Flags for `weir load`, as in -- --workload mixed
    #[arg(last = true, value_name = "FLAGS", help_heading = "Measuring two services")]
    flags: Vec<String>,
}

impl Pairs {
    /// Whether there are services to be measured.
    pub(super) fn is_asked(&self) -> bool {
        !self.command.is_empty() || !self.url.is_empty()
    }

    /// The two services.
    fn services(&self) -> Result<Vec<Service>, Error> {
        let names = [Some("base"), Some("new")];
        let not_two = |flag: &str, count: usize| {
            let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
            Err(Error::input(format_args!("{flag} is given {times}; two services are compared"))
                .hint("give the flag twice: the base first, the new one last"))
        };
        match (self.command.as_slice(), self.url.as_slice()) {
            ([], [a, b]) => {
                [a, b].into_iter().zip(names).map(|(url, name)| Service::of_url(name, url)).collect()
            }
            ([], urls) => not_two("--url", urls.len()),
            ([a, b], [] | [_]) => {
                let path = self.url.first().map(String::as_str);
                let services = [a, b].into_iter().zip(names);
                services.map(|(command, name)| Service::of_command(name, command, path)).collect()
            }
            ([_, _], _) => Err(Error::input("--url is given more than once beside --command")
                .hint("name one path, which is requested of both")),
            (commands, _) => not_two("--command", commands.len()),
        }
    }

    /// Measures them; what was measured is in the directory `out`, or in a new one.
    pub(super) fn run(&self, out: Option<&PathBuf>, margin: f64) -> Result<(Comparison, PathBuf), Error> {
        let services = self.services()?;
        let length = Length {
            levels: &[self.clients],
            repetitions: PAIRS_MAX,
            warmup: self.warmup.to_string(),
            window: self.window.to_string(),
            is_checked: false,
            quota: None,
        };
        let experiment = experiment("compare", &services, &length, &self.flags)?;
        let dir = results_dir(out.map(PathBuf::as_path), "compare")?;
        let options = Options { sequential: true, ..options(&dir)? };
        note(format_args!("pairs of trials for at most {}; results in {}", self.time, dir.display()));
        let mut watch = Watch { begun: Instant::now(), most: self.time.0, margin, pairs: 0 };
        let mut results = Vec::new();
        harness::run(&experiment, &options, &mut watch, &mut results)?;
        // Of a pair that was interrupted one half is there.
        let paired = results.iter().map(|of| of.trials.len()).min().unwrap_or_default() as u32;
        for of in &mut results {
            of.trials.retain(|trial| trial.repetition < paired);
            of.repetitions = paired;
            harness::save(of, &harness::dir_of(&dir, of.measured.as_ref()))?;
        }
        if paired == 0 {
            return Err(Error::new("interrupted before a pair was measured"));
        }
        if options.stop.load(Ordering::Relaxed) {
            note(format_args!(
                "interrupted after {}; the verdicts are over these",
                counted(paired.into(), "pair")
            ));
        }
        Ok((compare(&results.iter().collect::<Vec<_>>())?, dir))
    }
}

/// Shows how the verdicts stand after each pair, and ends the run.
struct Watch {
    begun: Instant,
    most: Duration,
    margin: f64,
    pairs: u32,
}

impl Watch {
    fn verdicts(&self, results: &[Results]) -> Option<Gate> {
        Some(gate(&compare(&results.iter().collect::<Vec<_>>()).ok()?, self.margin))
    }
}

impl Progress for Watch {
    fn ended(&mut self, target: Option<&str>, _: &Planned, trial: &Trial) {
        if let Some(why) = &trial.failure {
            note(format_args!("{} failed: {why}", target.unwrap_or_default()));
        }
    }

    fn repeated(&mut self, results: &[Results]) -> bool {
        self.pairs += 1;
        let taken = self.begun.elapsed();
        let Some(gate) = self.verdicts(results) else { return true };
        note(format_args!("pair {}, {:.0} s: {}", self.pairs, taken.as_secs_f64(), gate_headline(&gate)));
        let is_hopeless = gate.verdicts.is_empty() && self.pairs >= PAIRS_LEAST;
        // Not one more pair than there is time for.
        let is_over = taken + taken / self.pairs > self.most;
        is_hopeless || gate.is_decided() || is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_with_which_every_trial_would_fail_are_refused_before_the_first() {
        let services =
            ["base", "new"].map(|name| Service::of_url(Some(name), "http://127.0.0.1:1/x").unwrap());
        let (warmup, window) = ("1s".to_owned(), "1s".to_owned());
        let length = Length { levels: &[1], repetitions: 1, warmup, window, is_checked: false, quota: None };
        let planned = |flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            experiment("compare", &services, &length, &flags).map(drop)
        };
        for (flags, told) in [
            (&["--stages", "1s:5/s"][..], "cannot be used with"),
            (&["--json"], "cannot be used with"),
            (&["--duration", "5s"], "is set for each trial"),
        ] {
            let error = planned(flags).unwrap_err();
            assert!(error.is_input() && error.to_string().contains(told), "{flags:?}: {error}");
        }
        for flags in [&["--rate", "5"][..], &["--threads", "2"]] {
            planned(flags).unwrap_or_else(|error| panic!("{flags:?}: {error}"));
        }
    }
}
