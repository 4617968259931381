//! The gates: what must hold before a row is believed.
//!
//! A gate is a row of [`CHECKS`]. One that cannot be read on this machine says "not checked", never "passed".
//! Rules and limits are those of docs/method.md, section 3.

use super::little::{is_open, little_residual};
use super::rows::{Row, Standing};
use super::{generator, steady};
use kv::proto::{Latency, LoadReport};
use lab_data::results::{Results, Trial};
use serde::Serialize;

/// A gate.
pub struct Check {
    /// Its number in docs/method.md: `G1`.
    pub id: &'static str,
    /// One or two words.
    pub name: &'static str,
    /// The rule in one sentence.
    pub about: &'static str,
    /// What becomes of a row that fails.
    pub failed: fn(&Seen) -> Standing,
    /// Judges all runs of a row; the worst of them decides.
    pub judge: fn(&Seen) -> Verdict,
}

/// Every gate, in the order of the report.
pub const CHECKS: &[Check] = &[
    Check {
        id: "G1",
        name: "Little’s law",
        about: "throughput × time accounts within 2 % for the clients of a closed loop, for the requests in flight of an open one",
        failed: |_| Standing::Invalid,
        judge: little,
    },
    Check {
        id: "G2",
        name: "order",
        about: "min ≤ p50 ≤ p90 ≤ p99 ≤ p99.9 ≤ max, mean ≤ max, no sample beyond the histogram",
        failed: |_| Standing::Invalid,
        judge: order,
    },
    Check {
        id: "G3",
        name: "generator",
        about: "the generator’s cores are its own, it uses at most 70 % of them and is not late, and against memory it makes 3× the requests",
        failed: |_| Standing::GeneratorLimited,
        judge: generator::judge,
    },
    Check {
        id: "G4",
        name: "errors",
        about: "at most 0.1 % of the attempts fail",
        failed: |_| Standing::Invalid,
        judge: errors,
    },
    Check {
        id: "G5",
        name: "steady",
        about: "neither goodput nor latency moves in the window, they are known to ±1 % and ±2 %, and what an open loop offers goes through",
        failed: steady::gate::failed,
        judge: steady::gate::judge,
    },
    Check {
        id: "G6",
        name: "machine",
        about: "steal ≤ 0.5 %, no swap, foreign CPU on our cores ≤ 5 %, frequency drift ≤ 2 %",
        failed: |_| Standing::Valid,
        judge: machine,
    },
    Check {
        id: "G7",
        name: "workload",
        about: "the operations observed are the mix that was asked for",
        failed: |_| Standing::Valid,
        judge: workload,
    },
    Check {
        id: "G8",
        name: "store",
        about: "the window holds no checkpoint, or at least two",
        failed: |_| Standing::Valid,
        judge: checkpoints,
    },
];

/// What a gate sees: the runs of one workload at one level, and the row one level below.
pub struct Seen<'a> {
    /// Everything measured: resources and placements.
    pub results: &'a Results,
    /// The runs that delivered numbers; never empty.
    pub ran: &'a [(&'a Trial, &'a LoadReport)],
    /// The row of the next lower level, where there is one.
    pub below: Option<&'a Row>,
}

/// What a gate says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The rule holds, and all of it could be read.
    Passed,
    /// The part of the rule that could be read holds.
    Partly {
        /// That part, with its number.
        holds: String,
        /// The part that could not be read.
        missing: String,
    },
    /// The rule is broken.
    Failed {
        /// What was seen, with its number.
        why: String,
        /// What to do about it.
        remedy: String,
    },
    /// It could not be read: why.
    NotChecked(String),
}

/// A gate's verdict on a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checked {
    /// The gate's [`Check::id`].
    pub id: &'static str,
    /// What it says.
    pub verdict: Verdict,
    /// What that alone leaves of the row: [`Standing::Valid`] unless the rule is broken.
    pub leaves: Standing,
}

impl Checked {
    /// Whether the rule is broken.
    pub fn failed(&self) -> bool {
        self.why().is_some()
    }

    /// What was seen where the rule is broken.
    pub fn why(&self) -> Option<&str> {
        match &self.verdict {
            Verdict::Failed { why, .. } => Some(why),
            _ => None,
        }
    }
}

/// Asks every gate about the runs of one row.
pub fn checked(results: &Results, ran: &[(&Trial, &LoadReport)], below: Option<&Row>) -> Vec<Checked> {
    let seen = Seen { results, ran, below };
    let asked = |check: &Check| {
        let verdict = (check.judge)(&seen);
        let leaves = match verdict {
            Verdict::Failed { .. } => (check.failed)(&seen),
            _ => Standing::Valid,
        };
        Checked { id: check.id, verdict, leaves }
    };
    CHECKS.iter().map(asked).collect()
}

/// What the verdicts leave of a row that has numbers: the gravest consequence of a failed gate.
pub fn standing(checked: &[Checked]) -> Standing {
    [Standing::Invalid, Standing::GeneratorLimited]
        .into_iter()
        .find(|standing| checked.iter().any(|checked| checked.leaves == *standing))
        .unwrap_or(Standing::Valid)
}

/// Why a row is no more than a lower bound, in the words of the gate; `None` of one that is not.
pub(super) fn limited_by(row: &Row) -> Option<&str> {
    let limits = row.checks.iter().filter(|checked| checked.leaves == Standing::GeneratorLimited);
    limits.filter_map(Checked::why).next()
}

fn little(seen: &Seen) -> Verdict {
    const LIMIT: f64 = 0.02;
    let residuals: Option<Vec<(f64, &LoadReport)>> =
        seen.ran.iter().map(|(trial, load)| Some((little_residual(trial.level, load)?, *load))).collect();
    let Some(residuals) = residuals else {
        return Verdict::NotChecked(
            "a run has no clients, no window, or no count of requests in flight".into(),
        );
    };
    match residuals.into_iter().max_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs())) {
        Some((worst, load)) if worst.abs() > LIMIT => {
            let more = if worst < 0.0 { "fewer" } else { "more" };
            let off = format!("accounts for {:.1} % {more}", worst.abs() * 100.0);
            let why = match (is_open(load), load.in_flight_mean) {
                (true, Some(mean)) => {
                    format!("throughput × service time {off} requests in flight than the {mean:.3} counted")
                }
                _ => format!("throughput × latency {off} clients than there were"),
            };
            match load.in_flight_mean {
                Some(_) => failed(
                    why,
                    "All time in the window is accounted for, so figures are wrong: please report it.",
                ),
                // Of before edges were kept.
                None => failed(
                    why,
                    "A stall at an edge of the window does this: use a longer one. If it stays, figures are wrong: please report it.",
                ),
            }
        }
        _ => Verdict::Passed,
    }
}

fn order(seen: &Seen) -> Verdict {
    let mut empty = true;
    for (_, load) in seen.ran {
        let operations = load.operations.iter().map(|of| (of.operation.as_str(), &of.latency));
        for (name, latency) in std::iter::once(("all attempts", &load.latency)).chain(operations) {
            if latency.count == 0 {
                continue;
            }
            empty = false;
            if let Some(why) = disorder(latency) {
                return failed(
                    format!("latency of {name}: {why}"),
                    "The histogram is wrong or too short: please report it with results.json.",
                );
            }
        }
    }
    if empty { Verdict::NotChecked("no request completed".into()) } else { Verdict::Passed }
}

/// What is out of order in a distribution.
fn disorder(latency: &Latency) -> Option<String> {
    // A percentile is the end of a bucket that holds three digits, while mean, min and max may be exact.
    const BUCKET: f64 = 1.001;
    if latency.clipped > 0 {
        return Some(format!("{} samples lie beyond the histogram", latency.clipped));
    }
    let ranks = [
        ("min", latency.us_min),
        ("p50", latency.us_p50),
        ("p90", latency.us_p90),
        ("p99", latency.us_p99),
        ("p99.9", latency.us_p999),
        ("max", latency.us_max),
    ];
    let pairs = ranks.windows(2).map(|pair| (pair[0], pair[1]));
    pairs
        .chain([(("mean", latency.us_mean), ("max", latency.us_max))])
        .find(|((_, low), (_, high))| *low > high * BUCKET)
        .map(|((a, low), (b, high))| format!("{a} {low:.1} µs > {b} {high:.1} µs"))
}

fn errors(seen: &Seen) -> Verdict {
    const LIMIT: f64 = 0.001;
    let worst = seen.ran.iter().map(|(_, load)| load).max_by(|a, b| a.error_ratio.total_cmp(&b.error_ratio));
    let Some(load) = worst else { return Verdict::NotChecked("no run".into()) };
    if load.attempts == 0 {
        return failed("no request completed", "See what the target waits for, or take a longer --window.");
    }
    if load.error_ratio <= LIMIT {
        return Verdict::Passed;
    }
    let mut why = format!("{:.2} % of the attempts failed", load.error_ratio * 100.0);
    if let Some(quick) = fast_failure(seen, load) {
        why = format!("{why}; {quick}");
    }
    let class = load.errors.iter().max_by_key(|(_, count)| **count);
    let class = class.map_or_else(String::new, |(class, count)| format!("Most, {count}, are `{class}`. "));
    let below = match seen.below {
        Some(below) => format!("stay at {} clients or fewer (--levels)", below.level),
        None => "begin with fewer clients (--levels)".to_owned(),
    };
    failed(
        why,
        &format!("{class}Look its cause up in docs/method.md; {below}, or give the target what it lacks."),
    )
}

/// Failing fast: refusals so cheap that they flatter throughput and mean latency.
fn fast_failure(seen: &Seen, load: &LoadReport) -> Option<String> {
    let answered: u64 = load.operations.iter().map(|of| of.latency.count).sum();
    let answered_us: f64 =
        load.operations.iter().map(|of| of.latency.us_mean * of.latency.count as f64).sum();
    let failed = load.latency.count.saturating_sub(answered);
    let failed_us = load.latency.us_mean * load.latency.count as f64 - answered_us;
    if load.error_ratio > 0.01 && answered > 0 && failed > 0 {
        let (success_us, error_us) = (answered_us / answered as f64, failed_us / failed as f64);
        if error_us < success_us / 2.0 {
            return Some(format!("fast-fail: an error takes {error_us:.0} µs, a success {success_us:.0} µs"));
        }
    }
    let below = seen.below?;
    let rates: Vec<f64> = seen.ran.iter().map(|(_, load)| load.attempts as f64 / load.window_secs).collect();
    let goodput: Vec<f64> = seen.ran.iter().map(|(_, load)| load.goodput_rps).collect();
    let (attempts, goodput) = (stats::mean(&rates)?, stats::mean(&goodput)?);
    let apart = attempts > below.attempts_rps? && goodput < below.goodput_rps?.mean;
    apart.then(|| "fast-fail: attempts rose while goodput fell".to_owned())
}

/// The kernel counts processor time of cores in ticks of 10 ms: less than a few of them is no finding.
const TICKS_SECS: f64 = 0.03;

fn machine(seen: &Seen) -> Verdict {
    const STEAL_LIMIT: f64 = 0.005;
    // Of the difference 1–3 % are kernel threads that flush and journal for the target itself, seen on an otherwise idle
    // machine with every durable write: they are in no process of ours, and no disturbance.
    const FOREIGN_LIMIT: f64 = 0.05;
    let mut cores: Vec<usize> = seen.results.placements.iter().flat_map(|part| part.cores.clone()).collect();
    cores.sort_unstable();
    cores.dedup();
    // The most in any run, as busy seconds of all our cores and as a share of them.
    let most = |secs: &dyn Fn(&Trial) -> Option<f64>| {
        let of_run = |(trial, _): &(&Trial, &LoadReport)| {
            let secs = secs(trial)?;
            let share = secs / (trial.elapsed_secs * cores.len() as f64);
            share.is_finite().then_some((secs, share))
        };
        let runs: Option<Vec<(f64, f64)>> = seen.ran.iter().map(of_run).collect();
        runs?.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let of_cores = |trial: &Trial, what: &str| {
        cores.iter().map(|core| trial.growth(&format!("core.{core}.{what}_secs"))).sum::<Option<f64>>()
    };
    let parts: Vec<&str> = seen.results.placements.iter().map(|part| part.part.as_str()).collect();
    let ours = |trial: &Trial| {
        parts.iter().map(|part| trial.growth(&format!("{part}.cpu_secs"))).sum::<Option<f64>>()
    };
    let swapped = |trial: &Trial| {
        let pages = ["memory.swap_in_pages", "memory.swap_out_pages"].map(|name| trial.growth(name));
        Some(pages[0]? + pages[1]?)
    };

    let steal = most(&|trial| of_cores(trial, "steal"));
    let foreign = most(&|trial| Some(of_cores(trial, "busy")? - ours(trial)?));
    let swap = most(&swapped);
    let Some((stolen_secs, stolen)) = steal else {
        return Verdict::NotChecked("steal of our cores was not read".into());
    };
    if stolen > STEAL_LIMIT && stolen_secs >= TICKS_SECS {
        return failed(
            format!("the hypervisor took {:.2} % of our cores", stolen * 100.0),
            "Repeat when the neighbours are quiet, or on a machine without any.",
        );
    }
    if let Some((secs, share)) = foreign
        && share > FOREIGN_LIMIT
        && secs >= TICKS_SECS * cores.len() as f64
    {
        return failed(
            format!("processes that are not ours used {:.0} % of our cores", share * 100.0),
            "Stop what else runs on this machine, and repeat.",
        );
    }
    if swap.is_some_and(|(pages, _)| pages > 0.0) {
        return failed("the machine swapped", "Give it more memory, or the target less to keep.");
    }
    let read = [("foreign CPU", foreign.is_some()), ("swap", swap.is_some()), ("frequency", false)];
    let unread: Vec<&str> = read.iter().filter(|(_, read)| !read).map(|(name, _)| *name).collect();
    Verdict::Partly {
        holds: format!("steal {:.2} %", stolen * 100.0),
        missing: format!("not read: {}", unread.join(", ")),
    }
}

fn workload(seen: &Seen) -> Verdict {
    const SIGMAS: f64 = 3.0;
    if seen.ran.iter().any(|(_, load)| load.mix.is_empty()) {
        return Verdict::NotChecked("the results do not yet say which mix was asked for".into());
    }
    if seen.ran.iter().all(|(_, load)| load.attempts == 0) {
        return Verdict::NotChecked("no request completed".into());
    }
    for (_, load) in seen.ran {
        let attempts = load.attempts as f64;
        let observed = |name: &str| {
            load.operations.iter().filter(|of| of.operation == name).map(|of| of.attempts).sum::<u64>() as f64
        };
        // What nobody asked for is asked for with a share of nothing.
        let strangers = (load.operations.iter().map(|of| of.operation.as_str()))
            .filter(|name| !load.mix.contains_key(*name))
            .map(|name| (name, 0.0));
        for (name, share) in load.mix.iter().map(|(name, share)| (name.as_str(), *share)).chain(strangers) {
            // Requests that follow each other in a fixed pattern scatter less than drawn ones, but every client is cut
            // off somewhere within its pattern, and its slowest request is the likeliest to straddle an edge of the
            // window: that is up to one request of each.
            let sigma = (attempts * share * (1.0 - share)).sqrt();
            let slack = if share == 0.0 { 0.0 } else { f64::from(load.clients) };
            let seen = observed(name);
            if (seen - attempts * share).abs() > SIGMAS * sigma + slack {
                return failed(
                    format!(
                        "{:.1} % of the requests were {name}, {:.1} % were asked for",
                        seen / attempts * 100.0,
                        share * 100.0
                    ),
                    "By chance alone one row in a few hundred does this: repeat it. If it stays, some operations wait longer than the window.",
                );
            }
        }
    }
    Verdict::Passed
}

/// What a server counts whose store is part of it.
const EMBEDDED: &str = "stats.weir_flushes_total";

/// A checkpoint is the database's tide: of several the mean is fair, of one the window shows some part.
fn checkpoints(seen: &Seen) -> Verdict {
    let of_run = |(trial, _): &(&Trial, &LoadReport)| {
        let names = trial.closed.counters.keys().filter(|name| name.ends_with(".checkpoints"));
        let grown: Option<Vec<f64>> = names.map(|name| trial.growth(name)).collect();
        grown.filter(|grown| !grown.is_empty())
    };
    let runs: Option<Vec<Vec<f64>>> = seen.ran.iter().map(of_run).collect();
    let Some(runs) = runs else {
        let is_embedded = |name: &String| name.starts_with(EMBEDDED);
        return Verdict::NotChecked(
            match seen.ran.iter().any(|(trial, _)| trial.closed.counters.keys().any(is_embedded)) {
                true => {
                    "the embedded store counts its compactions only behind interfaces that may change any day"
                }
                false => "no checkpoints of the store were read",
            }
            .into(),
        );
    };
    // Counters of whole numbers; anything else would be two readings of different servers.
    let one = runs.iter().filter(|grown| grown.iter().any(|count| count.round() == 1.0)).count();
    match one {
        0 => Verdict::Passed,
        _ => failed(
            format!("a single checkpoint fell into the window of {one} of {} runs", runs.len()),
            "Take a longer --window, so that it holds several, or raise max_wal_size and checkpoint_timeout in [postgres] settings, so that it holds none.",
        ),
    }
}

pub(super) fn failed(why: impl Into<String>, remedy: &str) -> Verdict {
    Verdict::Failed { why: why.into(), remedy: remedy.to_owned() }
}
