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
        .about("the generator is slowed a little; goodput must fall by less than half of what it would fall if the generator were the limit (details: docs/method.md)"),
    check("little", "Little’s law", Low, Test::Row(row::little))
        .about("the residual of Little’s law is at most 2 %, of the number of clients or, in an open loop, of requests in flight (details: docs/method.md)"),
    check("percentiles", "order of percentiles", Low, Test::Row(row::percentiles))
        .about("min ≤ p50 ≤ p90 ≤ p99 ≤ p99.9 ≤ max, mean ≤ max, and no latency is above 60 s"),
    check("errors", "errors", Medium, Test::Row(row::errors))
        .about("at most 0.1 % of the attempts fail (levels with more do not count for throughput and knee), and every client has an answer in the window"),
    check("machine", "other load on the machine", Medium, Test::Row(row::machine))
        .about("little else runs: other virtual machines take at most 0.5 % of the cores (steal), other processes at most 5 %, and nothing is swapped"),
    check("on_time", "generator delay", Medium, Test::Row(row::on_time))
        .about("at most 1 % of the sum of all latencies is time in which threads of the generator waited for a core or sent late. Time in which answers waited to be read is part of the latencies too, but is not counted here; whether it lowers goodput, the check of generator headroom says"),
    check("steady", "steady state", Medium, Test::Row(steady::check))
        .about("goodput and latency have no trend in the window, and an open loop is not over capacity; needs a window long enough to show a trend"),
    check("mix", "requested mix", Medium, Test::Row(row::mix))
        .about("the observed mix of operations is the requested one"),
    check("checkpoints", "checkpoints", Medium, Test::Row(row::checkpoints))
        .about("the window holds no checkpoint of the database, or at least two: with exactly one, results depend on when it came"),
    check("complete", "complete trials", Medium, Test::Workload(run::complete))
        .about("no planned trial failed"),
    check("repetitions", "repetitions", Medium, Test::Workload(run::repetitions))
        .about("every level was measured at least three times"),
    check("precision", "width of the throughput’s interval", Medium, Test::Workload(run::precision))
        .about("the 95 % interval of the throughput is at most ±20 % of it"),
    check("values", "verified values", Low, Test::Workload(run::values))
        .about("values read under load were compared with those written, and none was wrong or stale"),
    check("accuracy", "generator accuracy", Low, Test::Run(run::accuracy))
        .about("the load generator passed its accuracy test on this machine"),
    check("cores", "cores of the generator", Low, Test::Run(run::cores))
        .about("the load generator shares no core and no CPU quota with what it measures"),
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
///
/// Where clients are left without an answer, or nothing succeeds, the service no longer does its work: what the others saw is not all.
pub(super) fn trust<'a>(rows: &'a [Row], others: impl Iterator<Item = &'a Checked>) -> Trust {
    let of_rows = rows.iter().filter(|row| row.usable()).flat_map(|row| &row.checks);
    let stops = rows.iter().any(|row| row.unanswered > 0 || row.is_silent());
    let failed: Vec<&Checked> = of_rows.chain(others).filter(|of| of.failed()).collect();
    let has_failed =
        |check: &Check| failed.iter().any(|of| of.id == check.id) || stops && check.id == "errors";
    let lowering = || CHECKS.iter().filter(|check| check.leaves < High && has_failed(check));
    let is_low = stops || failed.iter().any(|of| of.is_grave);
    Trust {
        confidence: if is_low { Low } else { lowering().map(|check| check.leaves).min().unwrap_or(High) },
        lowered_by: lowering().map(|check| check.id).collect(),
    }
}

#[cfg(test)]
mod tests;
