//! The checks: one list of what must hold before a figure is believed.
//!
//! A check is a row of [`CHECKS`]: what it is asked of, the function that answers from the data, and what confidence its failure leaves.
//! What this machine cannot read is "not checked", never "passed" and never "failed".

mod case;
mod headroom;
mod outcome;
mod row;
mod run;

pub use case::{OfRow, OfWorkload};
pub use outcome::{Checked, Confidence, Outcome};

use Confidence::{High, Low, Medium};

use super::rows::Row;
use super::steady;
use lab_data::results::Results;

/// A check.
pub struct Check {
    /// For programs: `little`.
    pub id: &'static str,
    /// For people: `Little’s law`.
    pub name: &'static str,
    /// The rule in one sentence.
    pub about: &'static str,
    /// The confidence that is left in what it concerns where it fails.
    pub leaves: Confidence,
    /// What it is asked of.
    pub test: Test,
}

/// What a check is asked of, and the function that answers.
pub enum Test {
    /// The runs of one workload at one level.
    Row(fn(&OfRow) -> Checked),
    /// One workload at all its levels.
    Workload(fn(&OfWorkload) -> Checked),
    /// The whole run of the experiment.
    Run(fn(&Results) -> Checked),
}

/// Every check, in the order of the report.
pub const CHECKS: &[Check] = &[
    check("headroom", "generator headroom", Low, Test::Workload(headroom::check))
        .about("slowing the generator must cost little: the 95 % interval of the measured loss is below half of the expected loss (what it would cost if the generator were the limit), or contains 0 while the generator is less than 70 % busy. If the generator was not slowed (--no-headroom): goodput no longer rises, the target is over 90 % busy and the generator less than 50 %"),
    check("little", "Little’s law", Low, Test::Row(row::little))
        .about("attempts per second × (latency + think time) is within 2 % of the number of clients; in an open loop, attempts per second × service time is within 2 % of the number of requests in flight"),
    check("percentiles", "order of percentiles", Low, Test::Row(row::percentiles))
        .about("min ≤ p50 ≤ p90 ≤ p99 ≤ p99.9 ≤ max, mean ≤ max, no latency above 60 s, where the histogram ends"),
    check("errors", "errors", Medium, Test::Row(row::errors))
        .about("at most 0.1 % of the attempts fail; a level with more does not count for throughput and knee"),
    check("on_time", "generator delay", Medium, Test::Row(row::on_time))
        .about("delays in the load generator (its threads wait for a core, or send late) are at most 1 % of the sum of all latencies. Waiting counts only above 5 % of the threads’ time, late sending only if its p99 is above 50 µs"),
    check("steady", "steady state", Medium, Test::Row(steady::check))
        .about("goodput and latency have no trend in the window; in an open loop, all offered requests also complete. Not checked if the mean of a window is known less precisely than ±1 % (goodput) or ±2 % (latency), because a trend may be hidden"),
    check("machine", "other load on the machine", Medium, Test::Row(row::machine))
        .about("other virtual machines take at most 0.5 % of the cores of server and generator (steal); other processes, if the lab started the target, at most 5 % plus the error with which the kernel counts them (1.4 % in a window of 10 s on two cores, 6 % in one of 0.6 s); no swap"),
    check("mix", "requested mix", Medium, Test::Row(row::mix))
        .about("the observed mix of operations is the requested one"),
    check("checkpoints", "checkpoints", Medium, Test::Row(row::checkpoints))
        .about("the window holds no checkpoint of the database, or at least two: a single one would distort the mean"),
    check("complete", "complete trials", Medium, Test::Workload(run::complete))
        .about("no planned trial failed"),
    check("repetitions", "repetitions", Medium, Test::Workload(run::repetitions))
        .about("every level was measured in at least three repetitions, so that each mean has an interval"),
    check("precision", "width of the throughput’s interval", Medium, Test::Workload(run::precision))
        .about("the 95 % interval of the throughput is at most ±20 % of it"),
    check("values", "verified values", Low, Test::Workload(run::values))
        .about("values read under load were compared with those written, and none was wrong or stale"),
    check("accuracy", "generator accuracy", Low, Test::Run(run::accuracy))
        .about("the load generator passed its accuracy test on this machine"),
    check("cores", "cores of the generator", Low, Test::Run(run::cores))
        .about("the load generator shares no core, no physical core (by hyperthreads) and no CPU quota (cgroup) with what it measures. A shared quota is allowed if it is at least the number of cores of both together"),
    check("full_length", "full length", Medium, Test::Run(run::full_length))
        .about("durations were not shortened by --scale"),
    check("build", "optimized build", Low, Test::Run(run::build))
        .about("what is measured is a release build"),
];

impl Checked {
    /// The check.
    pub fn check(&self) -> &'static Check {
        CHECKS.iter().find(|check| check.id == self.id).expect("every check is in the table")
    }
}

/// Asks the checks that are made of what `ask` knows.
pub(super) fn asked(ask: impl Fn(&Test) -> Option<Checked>) -> Vec<Checked> {
    CHECKS.iter().filter_map(|check| Some(Checked { id: check.id, ..ask(&check.test)? })).collect()
}

const fn check(id: &'static str, name: &'static str, leaves: Confidence, test: Test) -> Check {
    Check { id, name, about: "", leaves, test }
}

impl Check {
    const fn about(mut self, about: &'static str) -> Check {
        self.about = about;
        self
    }
}

/// How far what is concluded of a workload may be believed, and why no further.
#[derive(Clone, Debug, PartialEq)]
pub struct Trust {
    /// How far.
    pub confidence: Confidence,
    /// The [`Check::id`]s of the failed checks that lowered it, in the order of [`CHECKS`].
    pub lowered_by: Vec<&'static str>,
}

/// How far findings may be believed that come from the valid rows among `rows`; `others` are checks of the workload and the run.
pub(super) fn trust<'a>(rows: &'a [Row], others: impl Iterator<Item = &'a Checked>) -> Trust {
    let of_rows = rows.iter().filter(|row| row.usable()).flat_map(|row| &row.checks);
    let failed: Vec<&str> = of_rows.chain(others).filter(|of| of.failed()).map(|of| of.id).collect();
    let lowering = || CHECKS.iter().filter(|check| check.leaves < High && failed.contains(&check.id));
    Trust {
        confidence: lowering().map(|check| check.leaves).min().unwrap_or(High),
        lowered_by: lowering().map(|check| check.id).collect(),
    }
}

#[cfg(test)]
mod tests;
