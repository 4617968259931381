//! The checks of a workload at all its levels, and of the whole run.

use super::{Checked, OfWorkload};
use crate::count;
use crate::parts::of_target;
use crate::rows::{DID_NOT_RUN, Row};
use kv::proto::CheckOutcome;
use lab_data::experiment::{GENERATOR, LINK};
use lab_data::results::{Results, Selftest, Trial};
use stats::{Estimate, Interval};
use std::collections::BTreeSet;

pub(super) fn complete(case: &OfWorkload) -> Checked {
    let planned: u32 = case.rows.iter().map(|row| row.planned).sum();
    let trials = count(planned, "trial");
    let unrun = |row: &Row| row.failures.get(DID_NOT_RUN).copied().unwrap_or(0);
    let failed = |row: &Row| row.planned - row.runs - unrun(row);
    let at_first = |is_one: &dyn Fn(&Row) -> bool| {
        let first = case.rows.iter().find(|row| is_one(row));
        first.map(|row| format!("the first at {}", count(row.level, "client")))
    };
    let sum = |of: &dyn Fn(&Row) -> u32| case.rows.iter().map(of).sum::<u32>();
    match (at_first(&|row| failed(row) > 0), at_first(&|row| unrun(row) > 0)) {
        _ if planned == 0 => Checked::not_checked("nothing was planned"),
        (Some(first), _) => Checked::fail(
            format!("{} of {trials} failed, {first}", sum(&failed)),
            "The cause is below the table of levels; fix it and run the experiment again.",
        ),
        (None, Some(first)) => Checked::fail(
            format!("{} of {trials} did not run, {first}", sum(&unrun)),
            "Run the experiment to its end.",
        ),
        (None, None) => Checked::pass(trials),
    }
}

pub(super) fn repetitions(case: &OfWorkload) -> Checked {
    const RUNS_MIN: u32 = 3;
    let runs = || case.rows.iter().map(|row| row.runs).filter(|runs| *runs > 0);
    let Some(least) = runs().min() else { return Checked::not_checked("nothing was measured") };
    let (few, all) = (runs().filter(|runs| *runs < RUNS_MIN).count(), count(runs().count() as u32, "level"));
    let seen = match few {
        0 => format!("at least {} of each level", count(least, "repetition")),
        _ => format!("{few} of {all} have fewer than {RUNS_MIN} repetitions"),
    };
    Checked::judged(few == 0, seen, "Repeat each level three times or more, with --repetitions.")
}

pub(super) fn precision(case: &OfWorkload) -> Checked {
    const SHARE_MAX: f64 = 0.2;
    let is_known = |rps: &Estimate| rps.interval == Interval::StudentT;
    let Some(rps) = case.capacity.rps().filter(is_known) else {
        return Checked::not_checked("the throughput has no interval");
    };
    let share = (rps.high - rps.low) / 2.0 / rps.mean;
    let remedy = "Use longer windows (--window), more repetitions (--repetitions), or a machine that shares disk and processors with nobody.";
    Checked::judged(share <= SHARE_MAX, format!("±{:.1} %", share * 100.0), remedy)
}

pub(super) fn values(case: &OfWorkload) -> Checked {
    if matches!(case.results.selftest, Some(Selftest::Simulated)) {
        return Checked::not_checked("a simulated target has no values");
    }
    let loads: Vec<_> = case.results.runs_of(case.workload).map(|(_, load)| load).collect();
    let gets = || loads.iter().flat_map(|load| &load.operations).filter(|of| of.operation == "get");
    let reads: u64 = gets().map(|of| of.successes.saturating_sub(of.absent)).sum();
    let classes = ["wrong_value", "stale_value"];
    let wrong: u64 =
        loads.iter().flat_map(|load| classes.iter().filter_map(|class| load.errors.get(*class))).sum();
    let verified: u64 = loads.iter().map(|load| load.verified).sum();
    match (reads, verified, wrong) {
        (_, _, 1..) => Checked::fail(
            format!("{wrong} of the answers were wrong or stale"),
            "Find out why the answers are wrong before you compare its speed.",
        ),
        _ if loads.is_empty() => Checked::not_checked("no trial has figures"),
        (0, 0, _) if gets().any(|of| of.attempts > of.absent) => Checked::not_checked("no read succeeded"),
        (0, 0, _) => Checked::not_checked("the workload reads no values"),
        (_, 0, _) => Checked::not_checked(
            r#"only the beginning of each value was compared; args = ["--verify", "all"] in [[workload]] compares them in full"#,
        ),
        (reads, verified, _) => {
            let share = (verified as f64 / reads.max(1) as f64).min(1.0) * 100.0;
            Checked::pass(format!("{verified} reads compared ({share:.2} % of all), none wrong or stale"))
        }
    }
}

pub(super) fn accuracy(results: &Results) -> Checked {
    match &results.selftest {
        None => Checked::not_checked("the results do not say"),
        Some(Selftest::Skipped) => Checked::not_checked("skipped (--no-selftest, or selftest = false)"),
        Some(Selftest::Simulated) => Checked::pass("the generator is simulated"),
        Some(Selftest::Broke(why)) => Checked::not_checked(format!("the test could not be run: {why}")),
        Some(Selftest::Ran(report)) if report.checks.is_empty() => {
            Checked::not_checked("the test measured nothing")
        }
        Some(Selftest::Ran(report)) => {
            let not_checked = report.with(CheckOutcome::NotChecked).join(", ");
            match report.with(CheckOutcome::Fail).as_slice() {
                [] if !report.passed() => Checked::not_checked(format!("not checked: {not_checked}")),
                [] => Checked::pass(format!("{} passed", count(report.checks.len() as u32, "part"))),
                failed => Checked::fail(
                    format!("failed: {}", failed.join(", ")),
                    "Repeat weir selftest while nothing else runs. If a check fails again, the generator cannot measure that accurately on this machine.",
                ),
            }
        }
    }
}

pub(super) fn cores(results: &Results) -> Checked {
    let generator = results.placements.iter().find(|placed| placed.part == GENERATOR);
    let Some(generator) = generator else {
        return match results.selftest {
            Some(Selftest::Simulated) => Checked::pass("the generator is simulated"),
            _ => Checked::not_checked("nothing was pinned to a core"),
        };
    };
    if of_target(results).next().is_none() {
        return Checked::not_checked("the lab did not start the target, whose cores are not known");
    }
    // The link's work counts with the generator's.
    if let Some(quota) = shared_quota(results) {
        return Checked::fail(
            format!("it shares a quota of {quota} cores with what it measures"),
            "Measure where no quota holds for both, or raise it to the number of cores.",
        );
    }
    let shared = |parts: &[String], what: &str| {
        let others: Vec<&str> = parts.iter().map(String::as_str).filter(|part| *part != LINK).collect();
        (!others.is_empty()).then(|| format!("it shares {what} with {}", others.join(", ")))
    };
    Checked::unless(
        shared(&generator.shares_with, "a core")
            .or_else(|| shared(&generator.siblings_with, "a physical core (hyperthreads)")),
        "Give the generator cores of its own, with [cores] in the experiment, or other machines.",
    )
}

/// A quota that holds for the generator and a part of the target together, and is less than the cores they are on.
fn shared_quota(results: &Results) -> Option<f64> {
    let cores: BTreeSet<usize> =
        results.placements.iter().flat_map(|placed| &placed.cores).copied().collect();
    let of_trial = |trial: &Trial| {
        let gauge = |name: &str| trial.closed.gauges.get(&format!("{GENERATOR}.{name}")).copied();
        gauge("quota_shared").and(gauge("quota_cores"))
    };
    results.trials.iter().find_map(of_trial).filter(|quota| *quota < cores.len() as f64)
}

pub(super) fn full_length(results: &Results) -> Checked {
    let shortened = results.scale.map(|share| format!("durations are shortened to {share} of the file’s"));
    Checked::unless(shortened, "Run it without --scale.")
}

pub(super) fn build(results: &Results) -> Checked {
    let Some((_, build)) = results.environment.iter().find(|(name, _)| name == "build") else {
        return Checked::not_checked("the environment does not say");
    };
    let other = (build != "release").then(|| format!("a {build} build"));
    Checked::unless(other, "Build with cargo build --release.")
}
