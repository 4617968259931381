//! What a benchmark may be accused of, and what these results say to it: each accusation is decided by the data.
//!
//! Sources: Heiser, Systems Benchmarking Crimes (2010–); van der Kouwe et al., Benchmarking Crimes: An Emerging Threat in
//! Systems Security (2018).

use super::checks::{CHECKS, Checked};
use super::{Capacity, Findings, Row};
use kv::proto::CheckOutcome;
use lab_data::results::{Results, Selftest, Trial};
use serde::Serialize;
use std::collections::BTreeSet;

/// Something a benchmark must do, so that it cannot be accused of the contrary.
pub struct Crime {
    /// A few words.
    pub name: &'static str,
    /// What must hold, in one sentence.
    pub about: &'static str,
    /// Decides from the results.
    pub judge: fn(&Case) -> Plea,
}

/// What a rule sees.
pub struct Case<'a> {
    /// What was measured.
    pub results: &'a Results,
    /// What was concluded from it.
    pub findings: &'a Findings,
}

/// What the results say to an accusation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plea {
    /// It was done: by which figures.
    Held(String),
    /// It was not: where.
    Broken(String),
    /// The results do not say: why.
    NotChecked(String),
}

use Plea::{Broken, Held, NotChecked};

/// A rule with its answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The [`Crime::name`].
    pub name: &'static str,
    /// The [`Crime::about`].
    pub about: &'static str,
    /// What the results say.
    pub plea: Plea,
}

/// The rules, in the order of the report.
pub const CRIMES: &[Crime] = &[
    Crime {
        name: "nothing left out",
        about: "every planned level of every workload is shown, whatever came of it",
        judge: nothing_left_out,
    },
    Crime {
        name: "spread given",
        about: "every level was run at least three times, so that each mean has an interval",
        judge: spread_given,
    },
    Crime {
        name: "random order",
        about: "levels ran in an order that does not follow their size, so that drift does not pass for their effect",
        judge: random_order,
    },
    Crime {
        name: "generator proven",
        about: "the load generator passed its accuracy checks on this machine before the first trial",
        judge: generator_proven,
    },
    Crime {
        name: "generator apart",
        about: "the load generator shared no core with what it measures",
        judge: generator_apart,
    },
    Crime {
        name: "generator not the limit",
        about: "the load generator had room left at every level (gate G3)",
        judge: |case| gate(case, "G3"),
    },
    Crime {
        name: "time accounted for",
        about: "throughput and latency belong to the same requests, by Little’s law (gate G1)",
        judge: |case| gate(case, "G1"),
    },
    Crime {
        name: "failures are no throughput",
        about: "goodput counts successes only, and no level with failures above the limit enters a capacity (gate G4)",
        judge: failures_excluded,
    },
    Crime {
        name: "steady",
        about: "the warm-up is cut off and the window judged steady at every level (gate G5)",
        judge: |case| gate(case, "G5"),
    },
    Crime {
        name: "machine quiet",
        about: "neither neighbours nor other processes took of our cores (gate G6)",
        judge: |case| gate(case, "G6"),
    },
    Crime {
        name: "asked as said",
        about: "the requests observed are the mix that the workload promises (gate G7)",
        judge: |case| gate(case, "G7"),
    },
    Crime {
        name: "answers checked under load",
        about: "values that were read while loaded were compared with those written",
        judge: answers_checked,
    },
    Crime {
        name: "decline only where certain",
        about: "a fall past the peak is claimed only where the intervals do not touch",
        judge: decline_certain,
    },
    Crime {
        name: "same durability",
        about: "targets that are set beside each other acknowledge a write at the same moment",
        judge: same_durability,
    },
    Crime {
        name: "absolute beside relative",
        about: "wherever a share or a ratio stands, the figure it is of stands as well",
        judge: absolute_beside_relative,
    },
    Crime {
        name: "in full length",
        about: "warm-ups and windows are as long as the experiment says",
        judge: |case| match case.results.scale {
            None => Held("not scaled down".into()),
            Some(share) => Broken(format!("durations are shortened to {share} of the file’s")),
        },
    },
    Crime {
        name: "optimized build",
        about: "what is measured was built as it would be used",
        judge: |case| match fact(case.results, "build") {
            Some("release") => Held("a release build".into()),
            Some(other) => Broken(format!("a {other} build")),
            None => NotChecked("the environment does not say".into()),
        },
    },
    Crime {
        name: "can be repeated",
        about: "command, experiment, seed, versions, machine and the hash of the binary are all in the results",
        judge: can_be_repeated,
    },
];

/// What the results say to every rule of [`CRIMES`].
pub fn crimes(results: &Results, findings: &Findings) -> Vec<Judged> {
    let case = Case { results, findings };
    let judged = |crime: &Crime| Judged { name: crime.name, about: crime.about, plea: (crime.judge)(&case) };
    CRIMES.iter().map(judged).collect()
}

fn rows<'a>(case: &'a Case) -> impl Iterator<Item = (&'a str, &'a Row)> {
    case.findings.workloads.iter().flat_map(|found| found.rows.iter().map(|row| (found.name.as_str(), row)))
}

fn nothing_left_out(case: &Case) -> Plea {
    let printed: BTreeSet<(&str, u32)> = rows(case).map(|(workload, row)| (workload, row.level)).collect();
    if printed.is_empty() {
        return NotChecked("nothing was planned".into());
    }
    let measured = case.results.trials.iter().map(|trial| (trial.workload.as_str(), trial.level));
    let absent: BTreeSet<(&str, u32)> = measured.filter(|place| !printed.contains(place)).collect();
    if let Some((workload, level)) = absent.first() {
        return Broken(format!(
            "{} measured and not shown, {workload} at {level} first",
            count(absent.len(), "level")
        ));
    }
    let lost = case.findings.planned.saturating_sub(case.findings.ran);
    let lost = match lost {
        0 => "every planned run delivered numbers".to_owned(),
        _ => format!("{} delivered no numbers, shown with the reason", count(lost as usize, "run")),
    };
    Held(format!("all {} are shown; {lost}", count(printed.len(), "level")))
}

fn spread_given(case: &Case) -> Plea {
    const RUNS_MIN: u32 = 3;
    let runs: Vec<u32> = rows(case).map(|(_, row)| row.runs).collect();
    let Some(least) = runs.iter().min() else { return NotChecked("nothing was measured".into()) };
    let few = runs.iter().filter(|runs| **runs < RUNS_MIN).count();
    match few {
        0 => Held(format!("at least {} of each level, with a 95 % interval", count(*least as usize, "run"))),
        _ => Broken(format!(
            "{few} of {} have fewer than {RUNS_MIN} runs: lowest to highest of two, nothing of one",
            count(runs.len(), "level")
        )),
    }
}

fn random_order(case: &Case) -> Plea {
    let mut sweeps = 0;
    let mut in_order = 0;
    for workload in &case.results.workloads {
        let repetitions: BTreeSet<u32> =
            of_workload(case, &workload.name).map(|trial| trial.repetition).collect();
        for repetition in repetitions {
            let of_it = of_workload(case, &workload.name).filter(|trial| trial.repetition == repetition);
            let levels: Vec<u32> = of_it.map(|trial| trial.level).collect();
            // Two levels are in order every other time.
            if levels.len() > 2 {
                sweeps += 1;
                in_order += usize::from(levels.is_sorted() || levels.iter().rev().is_sorted());
            }
        }
    }
    match (sweeps, in_order) {
        (0, _) => NotChecked("too few levels to have an order".into()),
        (_, 0) => Held(format!("none of {} goes up or down level by level", count(sweeps, "sweep"))),
        // By chance alone a few levels come in order now and then.
        (_, some) if 2 * some < sweeps => Held(format!(
            "{some} of {} go up or down level by level, as chance has it",
            count(sweeps, "sweep")
        )),
        (_, some) => Broken(format!("{some} of {} go up or down level by level", count(sweeps, "sweep"))),
    }
}

fn of_workload<'a>(case: &'a Case, workload: &'a str) -> impl Iterator<Item = &'a Trial> {
    case.results.trials.iter().filter(move |trial| trial.workload == workload)
}

fn generator_proven(case: &Case) -> Plea {
    match &case.results.selftest {
        None => NotChecked("the results are older than the selftest".into()),
        Some(Selftest::Skipped) => NotChecked("the selftest was not run, as asked".into()),
        Some(Selftest::Simulated) => Held("nothing to prove: the generator is simulated".into()),
        Some(Selftest::Broke(why)) => NotChecked(format!("the selftest could not be run: {why}")),
        Some(Selftest::Ran(report)) if report.checks.is_empty() => {
            NotChecked("the selftest made no check".into())
        }
        Some(selftest @ Selftest::Ran(report)) => match selftest.failed().as_slice() {
            [] if !report.passed() => {
                NotChecked(format!("not checked: {}", report.with(CheckOutcome::NotChecked).join(", ")))
            }
            [] => Held(format!("{} pass", count(report.checks.len(), "check"))),
            failed => Broken(format!("failed: {}", failed.join(", "))),
        },
    }
}

fn generator_apart(case: &Case) -> Plea {
    let generators: Vec<_> =
        case.results.placements.iter().filter(|placed| placed.part == "generator").collect();
    let sharing: BTreeSet<&str> =
        generators.iter().flat_map(|placed| placed.shares_with.iter().map(String::as_str)).collect();
    match (generators.is_empty(), sharing.is_empty()) {
        (true, _) if matches!(case.results.selftest, Some(Selftest::Simulated)) => {
            Held("the generator is simulated and needs no core".into())
        }
        (true, _) => NotChecked("nothing was pinned to a core".into()),
        (false, true) => Held("it had its cores alone".into()),
        (false, false) => Broken(format!("it shared a core with {}", Vec::from_iter(sharing).join(", "))),
    }
}

/// What a gate said of all levels together.
fn gate(case: &Case, id: &str) -> Plea {
    let Some(of) = case.findings.gates.iter().find(|of| of.id == id) else {
        return NotChecked(format!("there is no gate {id}"));
    };
    let all = of.passed + of.partly + of.failed + of.not_checked;
    let levels = count(all as usize, "level");
    let missing = of.missing.as_deref().unwrap_or("not read");
    match (of.failed, of.not_checked, of.partly) {
        _ if all == 0 => NotChecked("no level has numbers".into()),
        (0, unread, _) if unread == all => NotChecked(missing.to_owned()),
        (0, 0, 0) => Held(format!("at all {levels}")),
        (0, 0, _) => Held(format!("as far as it could be read, at all {levels}; {missing}")),
        (0, unread, _) => Held(format!("wherever it could be read, all but {unread} of {levels}; {missing}")),
        (failed, ..) => {
            let at = CHECKS.iter().position(|check| check.id == id);
            let is_at =
                |row: &&(&str, &Row)| at.is_some_and(|i| row.1.checks.get(i).is_some_and(Checked::failed));
            let rows: Vec<(&str, &Row)> = rows(case).collect();
            let first =
                rows.iter().find(is_at).map(|(workload, row)| format!(", {workload} at {} first", row.level));
            Broken(format!("not at {failed} of {levels}{}", first.unwrap_or_default()))
        }
    }
}

fn failures_excluded(case: &Case) -> Plea {
    let at = CHECKS.iter().position(|check| check.id == "G4");
    let is_failed = |row: &Row| at.is_some_and(|i| row.checks.get(i).is_some_and(Checked::failed));
    for found in &case.findings.workloads {
        let counted = match &found.capacity {
            Capacity::NotReached { level, .. } => std::slice::from_ref(level),
            capacity => capacity.plateau(),
        };
        if let Some(row) = found.rows.iter().find(|row| counted.contains(&row.level) && is_failed(row)) {
            return Broken(format!("{} at {} counts, and it fails too often", found.name, row.level));
        }
    }
    let numbers = rows(case).filter(|(_, row)| row.runs > 0).count();
    match (numbers, rows(case).filter(|(_, row)| is_failed(row)).count()) {
        (0, _) => NotChecked("no level has numbers".into()),
        (_, 0) => Held("no level fails above the limit".into()),
        (_, some) => Held(format!("{} above the limit, in no capacity", count(some, "level"))),
    }
}

fn answers_checked(case: &Case) -> Plea {
    let loads: Vec<_> = case.results.trials.iter().filter_map(|trial| trial.numbers()).collect();
    if matches!(case.results.selftest, Some(Selftest::Simulated)) {
        return NotChecked("a simulated target has no values".into());
    }
    let reads: u64 = (loads.iter())
        .flat_map(|load| &load.operations)
        .filter(|of| of.operation == "get")
        .map(|of| of.successes - of.absent.min(of.successes))
        .sum();
    let wrong: u64 = (loads.iter())
        .flat_map(|load| {
            ["wrong_value", "stale_value"].map(|class| load.errors.get(class).copied().unwrap_or(0))
        })
        .sum();
    let verified: u64 = loads.iter().map(|load| load.verified).sum();
    match (reads, verified, wrong) {
        (_, _, 1..) => Broken(format!("{wrong} of the answers were wrong or stale")),
        (0, 0, _) => NotChecked("no workload reads a value".into()),
        (_, 0, _) => NotChecked("no read was compared, as none was asked for".into()),
        (reads, verified, _) => {
            let share = (verified as f64 / reads.max(1) as f64).min(1.0) * 100.0;
            Held(format!(
                "{verified} reads compared to the last byte ({share:.2} % of them), none wrong or stale"
            ))
        }
    }
}

fn decline_certain(case: &Case) -> Plea {
    let mut claimed = 0;
    for found in &case.findings.workloads {
        let Some((decline, peak)) = found.decline.as_ref().zip(found.capacity.rps()) else { continue };
        claimed += 1;
        if decline.rps.high >= peak.low {
            return Broken(format!("{}: the intervals of peak and decline touch", found.name));
        }
    }
    Held(match claimed {
        0 => "none is claimed".to_owned(),
        _ => format!("{} claimed, each with its intervals apart", count(claimed, "decline")),
    })
}

fn same_durability(case: &Case) -> Plea {
    match &case.results.measured {
        Some(of) if of.among.len() > 1 => NotChecked(format!(
            "each target has results of its own (here: {}); weir compare sets them beside each other",
            if of.durability.is_empty() { "nothing is said" } else { &of.durability }
        )),
        _ => Held("one target, compared with no other".into()),
    }
}

/// Shares are given of goodput lost: the goodput must be there.
fn absolute_beside_relative(case: &Case) -> Plea {
    let mut relative = 0;
    for found in &case.findings.workloads {
        let of_effects = found.effects.iter().map(|effect| effect.level);
        for level in of_effects {
            relative += 1;
            let row = found.rows.iter().find(|row| row.level == level);
            if row.and_then(|row| row.goodput_rps).is_none() {
                return Broken(format!("{} at {level} has a share, and no goodput", found.name));
            }
        }
    }
    Held(match relative {
        0 => "every level has its goodput in requests per second".to_owned(),
        _ => format!("{}, each with the goodput of its level", count(relative, "share")),
    })
}

fn fact<'a>(results: &'a Results, name: &str) -> Option<&'a str> {
    results.environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn can_be_repeated(case: &Case) -> Plea {
    let results = case.results;
    let hash = fact(results, "binary").is_some_and(|binary| binary.contains("SHA-256"));
    let parts = [
        ("the command", !results.command.is_empty()),
        ("the experiment", !results.experiment_toml.is_empty()),
        ("the version of weir", !results.weir_version.is_empty()),
        ("the processor", fact(results, "cpu").is_some()),
        ("the kernel", fact(results, "kernel").is_some()),
        ("the hash of the binary", hash),
    ];
    let absent: Vec<&str> = parts.iter().filter(|(_, there)| !there).map(|(name, _)| *name).collect();
    match absent.as_slice() {
        [] => Held(format!("all of it, and seed {}", results.seed)),
        absent => Broken(format!("missing: {}", absent.join(", "))),
    }
}

/// `1 level`, `2 levels`.
fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
