//! What limits a workload, and how sure that is (docs/method.md, Bottleneck).
//!
//! Four kinds of evidence, each a number: how busy a resource is and what it takes of each request (E1), for what the clients
//! wait (E2), where the databases' sessions are (E4), and what happens when it is made slower (E5). [`RULES`] name a resource, or
//! nothing at all where the numbers do not carry a name.

mod evidence;
mod grade;
mod queues;
mod rules;
#[cfg(test)]
mod tests;

pub use rules::{Case, Conclusion, RULES, Rule};

use super::capacity::{Capacity, Knee};
use super::interventions::Effect;
use super::rows::{Row, Standing};
use super::stats::Estimate;
use super::waits::Waiting;
use crate::lab::results::{Limit, Resource, ResourceKind};
use queues::Queues;
use serde::Serialize;

/// Busy enough to be the limit: U ≥ 0.95.
pub const SATURATED: f64 = 0.95;
/// Constant enough to be a service demand: standard deviation over mean ≤ 10 %.
const CONSTANT: f64 = 0.10;
/// A resource that is busy already at this share of the capacity can do more than it looks.
const EARLY: f64 = 0.7;
/// Goodput that stays above this share of the best, while the clients double, no longer rises as it should.
const SHOULDER: f64 = 0.85;
/// An imposed cap is named if it was reached at so many levels, the best one among them: one alone may be chance.
const CAP_LEVELS_MIN: usize = 3;
/// A demand that falls by more than this factor over such levels is no constant.
const SHOULDER_FALL: f64 = 1.05;

/// What limits a workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// How sure.
    pub grade: Grade,
    /// The resources named; several share the load. Empty where none is.
    pub named: Vec<Evidence>,
    /// The next busiest that could be a limit, named or not the winner: relaxing the winner brings at most its ceiling.
    pub runner_up: Option<Evidence>,
    /// Resources that look saturated but do more per busy second the more is asked of them.
    pub load_dependent: Vec<Evidence>,
    /// The levels all this was read at, ascending.
    pub levels: Vec<u32>,
    /// What speaks for it, and what does not: a sentence for each kind of evidence, with its figures.
    pub because: Vec<String>,
    /// What goodput would be limited by if the first of the named had no limit: the next ceiling, in requests per second.
    pub next_ceiling_rps: Option<f64>,
}

/// How sure a bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// Utilization, queue and waits carry it, and making it slower had the effect it must have.
    Confirmed,
    /// The same without the last.
    Supported,
    /// Nothing is: clients spend their time in a delay that any number of them can be in at once.
    Delay,
    /// Failures answer faster than successes: what looks like throughput is none.
    FastFail,
    /// The load generator is the limit or cannot be excluded.
    Generator,
    /// Nothing measured carries a name.
    NotIdentified,
}

/// A resource at the levels that decide.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// The resource's name.
    pub resource: String,
    /// What may be concluded from it.
    pub kind: ResourceKind,
    /// Busy share, 0–1, mean over the levels.
    pub utilization: f64,
    /// Busy time per attempt, mean over the levels.
    pub demand_us: Option<f64>,
    /// Standard deviation over mean of that demand over the levels; `None` of fewer than two levels.
    pub demand_variation: Option<f64>,
    /// What it could carry at most, in requests per second: m / D.
    pub ceiling_rps: Option<f64>,
    /// Whether its demand falls as load grows: batching, or a figure that is no utilization.
    pub load_dependent: bool,
    /// At how many of all usable levels it was saturated.
    pub reached_at: usize,
    /// Set where this is no resource but a class of database waits; `utilization` is then the share it holds.
    pub waiting: Option<Waiting>,
    /// What it is called as a bottleneck.
    pub limit: Option<Limit>,
    /// The resources that may be held meanwhile.
    pub within: Vec<String>,
    /// Of each client more, how many wait for it: dQ/dN over the levels that decide.
    pub queue_growth: Option<f64>,
    /// What making it slower did, over what that must do to a limit.
    pub elasticity: Option<Estimate>,
}

impl Evidence {
    /// Whether the utilization law says that it is a limit.
    fn limits(&self) -> bool {
        let carries = match self.kind {
            ResourceKind::Cap => self.reached_at >= CAP_LEVELS_MIN,
            _ => !self.load_dependent && self.constant(),
        };
        self.can_limit() && self.saturated() && carries
    }

    fn can_limit(&self) -> bool {
        matches!(self.kind, ResourceKind::Station | ResourceKind::Pool | ResourceKind::Cap)
    }

    fn saturated(&self) -> bool {
        self.utilization >= SATURATED
    }

    fn constant(&self) -> bool {
        self.demand_variation.is_some_and(|variation| variation <= CONSTANT)
    }

    /// Whether at full use nothing more goes through, whoever holds it and whatever for: cores, quotas, rates.
    fn is_hard(&self) -> bool {
        use Limit::{Bandwidth, DatabaseCpu, DatabaseQuota, Network, ServerCpu, ServerQuota};
        let hard = [ServerCpu, ServerQuota, DatabaseCpu, DatabaseQuota, Bandwidth, Network];
        self.limit.is_some_and(|limit| hard.contains(&limit))
    }
}

/// What the levels of a workload say together: see [`bottleneck`].
pub(super) struct Seen<'a> {
    /// Every level, ascending.
    pub(super) rows: &'a [Row],
    pub(super) capacity: &'a Capacity,
    pub(super) knee: Option<&'a Knee>,
    /// In the order of the rows'.
    pub(super) resources: &'a [Resource],
    pub(super) effects: &'a [Effect],
    /// Whether the generator has no cores of its own.
    pub(super) generator_shares: bool,
}

/// Applies [`RULES`] to the levels at and above twice the knee that belong to the plateau; to the whole plateau where
/// those are fewer than two. Without a plateau it is the shoulder that decides: neighbouring levels over which the clients
/// at least double and goodput stays within 15 % of the best. Where there is none either, nothing limits yet, and the best
/// level shows the highest utilization. Of a generator without cores of its own nothing is concluded, not even a runner-up.
///
/// Source: the utilization law and the bottleneck analysis of Denning & Buzen (1978); Lazowska et al., Quantitative
/// System Performance (1984), chapter 5.
pub(super) fn bottleneck(seen: &Seen) -> Bottleneck {
    let Seen { rows, capacity, knee, resources, effects, generator_shares } = *seen;
    let deciding = evidence::deciding(rows, capacity, knee);
    let queues = Queues::of(rows, &deciding);
    let mut all: Vec<Evidence> = resources
        .iter()
        .enumerate()
        .filter_map(|(i, of)| evidence::evidence(i, of, &deciding, rows, capacity))
        .collect();
    all.extend(evidence::wait(&deciding));
    for of in &mut all {
        of.queue_growth = queues.as_ref().and_then(|queues| queues.waiting(&of.resource));
        of.elasticity = grade::elasticity(of, effects);
    }
    let case = Case {
        evidence: all,
        queues,
        generator_limited: deciding.iter().any(|row| row.standing == Standing::GeneratorLimited),
        generator_shares,
        fails_fast: fails_fast(rows),
        is_open: matches!(capacity, Capacity::Offered { .. }),
    };
    let ruled = RULES.iter().find_map(|rule| (rule.apply)(&case));
    let ruled = ruled.unwrap_or_else(|| Conclusion::of(Grade::NotIdentified, Vec::new()));
    let Conclusion { grade, named, because } = grade::graded(&case, ruled, effects);
    let evidence = &case.evidence;
    // A pool that waits for the database has no ceiling of its own, nor have workers that wait for a core.
    let is_held = |of: &Evidence| {
        named.iter().any(|i| {
            let winner = &evidence[*i];
            winner.within.contains(&of.resource) || winner.waiting.is_some() && of.kind == ResourceKind::Pool
        })
    };
    let others = || {
        let others = evidence.iter().enumerate().filter(|(i, _)| !named.contains(i) && !generator_shares);
        others.map(|(_, of)| of).filter(|of| {
            !is_held(of) && of.kind != ResourceKind::Indication && !of.load_dependent && of.waiting.is_none()
        })
    };
    Bottleneck {
        grade,
        runner_up: others().max_by(|a, b| a.utilization.total_cmp(&b.utilization)).cloned(),
        next_ceiling_rps: others().filter_map(|of| of.ceiling_rps).min_by(f64::total_cmp),
        named: named.iter().map(|i| evidence[*i].clone()).collect(),
        load_dependent: evidence
            .iter()
            .filter(|of| of.can_limit() && of.saturated() && of.load_dependent)
            .cloned()
            .collect(),
        levels: deciding.iter().map(|row| row.level).collect(),
        because,
    }
}

/// What the gate for errors says of the highest level that failed fast, where no level above it was usable.
fn fails_fast(rows: &[Row]) -> Option<String> {
    let ran = || rows.iter().rev().filter(|row| row.runs > 0);
    let failing = ran().take_while(|row| !row.usable());
    let whys = failing.flat_map(|row| row.checks.iter().filter(|of| of.id == "G4").filter_map(|of| of.why()));
    whys.filter(|why| why.contains("fast-fail")).map(str::to_owned).next()
}
