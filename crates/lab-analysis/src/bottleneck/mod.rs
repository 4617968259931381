//! What limits a workload, and how sure that is (docs/method.md, Limit).
//!
//! Five kinds of evidence, each a number: how busy a resource is and what it takes of each request, for what the clients
//! wait, whom the kernel holds back, where the databases' sessions are, and what happens when it is made slower. [`RULES`] name a resource, or
//! nothing at all where the numbers do not carry a name.

mod blocked;
mod evidence;
mod grade;
mod help;
mod queues;
mod reason;
mod rules;
#[cfg(test)]
mod tests;

pub use blocked::Blocked;
pub use help::Help;
pub use reason::{Growth, Reason};
pub use rules::{Case, Conclusion, RULES, Rule};

use super::capacity::Capacity;
use super::compare::Bound;
use super::interventions::{Effect, Shown, headroom};
use super::knee::Knee;
use super::rows::{FastFail, Row, SATURATED};
use super::waiting::Waiting;
use lab_data::results::{Limit, Resource, ResourceKind};
use queues::Queues;

/// Constant enough to be a service demand: standard deviation over mean ≤ 10 %.
const CONSTANT: f64 = 0.10;
/// A resource that is busy already at this share of the capacity can do more than it looks.
const EARLY: f64 = 0.7;
/// So many of the clients added leave no doubt that the queue never empties …
const NEARLY_ALL: f64 = 0.8;
/// … and then this much of the time is all of it.
const HANDED_ON: f64 = 0.85;
/// An imposed cap is named if it was reached at so many levels, the best one among them: one alone may be chance.
const CAP_LEVELS_MIN: usize = 3;
/// With the most clients a request needs clearly more if it needs so many times as much.
const RISES: f64 = 1.25;
/// A demand that falls by more than this factor over such levels is no constant.
const SHOULDER_FALL: f64 = 1.05;
/// What several servers write at the same time.
pub const CONFLICTS: &str = "conflicts over the same keys";
/// A resource that is hardly busy has a ceiling that is mostly noise.
const BUSY_MIN: f64 = 0.02;

/// What limits a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// How sure.
    pub grade: Grade,
    /// The resources named; several share the load. Empty where none is.
    pub named: Vec<Evidence>,
    /// All resources of which something is known at these levels, those named among them.
    pub candidates: Vec<Evidence>,
    /// What would limit next, if nothing that is named did: never below what is named, nor below the capacity.
    pub next: Option<Evidence>,
    /// What would follow if what is named took half of its time.
    pub help: Option<Help>,
    /// Resources that look saturated but do more per busy second the more is asked of them.
    pub load_dependent: Vec<Evidence>,
    /// The levels all this was read at, ascending.
    pub levels: Vec<u32>,
    /// From and to which level queues grow, where clients were counted.
    pub growth_levels: Option<(u32, u32)>,
    /// What led to it, beside the figures of the resources.
    pub because: Vec<Reason>,
}

impl Bottleneck {
    /// The throughput at which a resource would be busy all the time; `None` where only a bound of it is known, but for what is named.
    pub fn full_at(&self, of: &Evidence) -> Option<f64> {
        let is_named = || self.named.iter().any(|named| named.resource == of.resource);
        of.ceiling().filter(|at| at.bound.is_none() || is_named()).map(|at| at.rps)
    }
}

/// How sure a bottleneck is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// A queue that grows and a demand that stays the same carry it, and making it slower had the effect it must have, with its interval.
    Confirmed,
    /// The same without the last.
    Supported,
    /// Nothing carries it at the levels that decide, but with the most clients it is a processor, quota or rate that is saturated, and no
    /// queue speaks against it; or it is weak evidence from outside, or [`CONFLICTS`].
    Suspected,
    /// Nothing is: clients spend their time in a delay that any number of them can be in at once.
    Delay,
    /// Failures answer faster than successes: what looks like throughput is none.
    FastFail,
    /// The load generator is the limit or cannot be excluded.
    Generator,
    /// Nothing measured carries a name.
    NotIdentified,
}

/// The throughput at which a resource is busy all the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Requests per second.
    pub rps: f64,
    /// Set where the demand changes with the load: it falls, and this is the least; or it rises, and this is the most.
    pub bound: Option<Bound>,
}

/// A resource at the levels that decide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// What it is shown as: the resource's name, or of cores that several parts share the one that has nearly all of their time.
    pub resource: String,
    /// The resource's name in the results.
    pub id: String,
    /// Whether at full use nothing more goes through, whoever holds it and whatever for: cores, quotas, rates.
    pub is_hard: bool,
    /// What may be concluded from it.
    pub kind: ResourceKind,
    /// Busy share, 0–1, mean over the levels.
    pub utilization: f64,
    /// Busy time per attempt, mean over the levels.
    pub demand_us: Option<f64>,
    /// Standard deviation over mean of that demand over the levels; `None` of fewer than two levels.
    pub demand_variation: Option<f64>,
    /// How many it can serve at once: cores, places of a pool.
    pub servers: f64,
    /// What it could carry at most, in requests per second: m / D.
    pub ceiling_rps: Option<f64>,
    /// The same by its use at the level with the most goodput, so never less than that: where demand falls with load, it can carry
    /// at least that.
    pub least_rps: Option<f64>,
    /// Whether its demand falls as load grows: batching, or a figure that is no utilization.
    pub load_dependent: bool,
    /// Whether its demand with the most clients is clearly above that at the level with the most goodput.
    pub rises: bool,
    /// The most clients, and its busy share with so many; `None` where goodput has collapsed there.
    pub at_most_clients: Option<(u32, f64)>,
    /// At how many of all usable levels it was saturated.
    pub reached_at: usize,
    /// Set where this is no resource but a class of database waits; `utilization` is then the share it holds.
    pub waiting: Option<Waiting>,
    /// Of the time that it was busy, the share in which its own threads computed or waited for a core; `None` where it has none, or
    /// they were not read.
    pub computing: Option<f64>,
    /// What it is called as a bottleneck.
    pub limit: Option<Limit>,
    /// The resources that may be held meanwhile.
    pub within: Vec<String>,
    /// Of each client more, how many wait for it: dQ/dN over the levels that decide.
    pub queue_growth: Option<f64>,
    /// Of a quota, the share of the time in which it held its part back; `None` of others, and where the kernel does not count it.
    pub throttled: Option<f64>,
    /// What follows from making it slower.
    pub slowed: Option<Shown>,
    /// Set where this is no resource but where the clients of a service are that is only seen from outside.
    pub blocked: Option<Blocked>,
}

impl Evidence {
    /// Whether a change raised the demand of this resource, and of none that is fuller.
    pub fn is_slowed_by(&self, effect: &Effect) -> bool {
        match (&self.waiting, &effect.of) {
            (None, Some(fullest)) => *fullest == self.id,
            // The log's flush is a resource; sessions that wait for it are a class of waits.
            (Some(_), _) => effect.change.name == "commit" && self.limit == Some(Limit::CommitPath),
            (None, None) => false,
        }
    }

    /// Whether it is no limit of its own beside this one: a pool waits for the database, workers wait for a core.
    pub fn waits_for(&self, limit: &Evidence) -> bool {
        limit.within.contains(&self.id) || limit.waiting.is_some() && self.kind == ResourceKind::Pool
    }

    /// The throughput at which it would be busy all the time; `None` where its demand is mostly noise.
    pub fn ceiling(&self) -> Option<Ceiling> {
        let is_known = self.kind != ResourceKind::Indication && self.utilization >= BUSY_MIN;
        let bound = match (self.rises, self.load_dependent) {
            (true, _) => Some(Bound::AtMost),
            (_, true) => Some(Bound::AtLeast),
            _ => None,
        };
        self.least_rps.or(self.ceiling_rps).filter(|_| is_known).map(|rps| Ceiling { rps, bound })
    }

    /// Whether the utilization law says that it is a limit.
    fn limits(&self) -> bool {
        self.saturated() && self.carries()
    }

    /// The same of what is handed on from one to the next: where nearly all clients that are added wait for it, it is never free,
    /// and what it lacks of its time is how long it takes to wake the next.
    fn limits_with_queue(&self) -> bool {
        let handed_on = matches!(self.limit, Some(Limit::ServerLock | Limit::Pool));
        let queued = self.queue_growth >= Some(NEARLY_ALL) && self.utilization >= HANDED_ON;
        (self.saturated() || handed_on && queued) && self.carries()
    }

    /// The same of one that is held up now and then by another with the same limit.
    fn nearly_limits(&self) -> bool {
        self.utilization >= HANDED_ON && self.carries()
    }

    fn carries(&self) -> bool {
        let demand = match self.kind {
            ResourceKind::Cap => self.reached_at >= CAP_LEVELS_MIN,
            _ => !self.load_dependent && self.constant(),
        };
        self.can_limit() && demand
    }

    /// Whether all threads of the server together have no more than one core.
    fn is_one_core(&self) -> bool {
        self.limit == Some(Limit::ServerCpu) && self.servers <= 1.0
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
}

/// Applies [`RULES`] to the levels at and above twice the knee that belong to the plateau; to the whole plateau where
/// those are fewer than two. Without a plateau all levels with at least twice the clients of the best decide, where these are three
/// or more; else the shoulder: neighbouring levels over which the clients at least double and goodput stays within 15 % of the
/// best. Where there is none either, nothing limits yet, and the best level shows the highest utilization.
///
/// Source: the utilization law and the bottleneck analysis of Denning & Buzen (1978); Lazowska et al., Quantitative
/// System Performance (1984), chapter 5.
///
/// The rows are of every level, ascending; the resources are in the order of theirs.
pub(super) fn bottleneck(
    rows: &[Row],
    capacity: &Capacity,
    knee: Option<&Knee>,
    resources: &[Resource],
    effects: &[Effect],
) -> Bottleneck {
    let deciding = evidence::deciding(rows, capacity, knee);
    let levels: Vec<u32> = deciding.iter().map(|row| row.level).collect();
    let queues = Queues::of(rows, &deciding);
    let mut all: Vec<Evidence> = resources
        .iter()
        .enumerate()
        .filter_map(|(i, of)| evidence::evidence(i, of, &deciding, rows, capacity))
        .collect();
    let upper = evidence::upper(rows);
    // One level decides nothing by itself, but with the queues read the upper ones show where clients pile up.
    all.extend(
        evidence::wait(&deciding).or_else(|| evidence::wait(upper.as_ref().filter(|_| queues.is_some())?)),
    );
    all.extend(blocked::evidence(rows, &all));
    all.extend(evidence::conflicts(rows));
    for of in &mut all {
        of.throttled = of.limit.and_then(|limit| evidence::throttled(limit, &deciding));
        of.queue_growth = queues.as_ref().and_then(|queues| queues.waiting(&of.id));
        of.slowed = grade::effect(of, effects, &levels).map(|of| of.shown);
    }
    let case = Case {
        evidence: all,
        queues,
        headroom: headroom(effects).map(|of| of.shown),
        fails_fast: fails_fast(rows),
        is_open: matches!(capacity, Capacity::Offered { .. }),
        is_alone: rows.iter().all(|row| row.level == 1),
    };
    let Conclusion { grade, named, because, .. } = grade::graded(&case, case.conclude(), effects, &levels);
    let evidence = &case.evidence;
    let growth_levels = case.queues.as_ref().map(|of| (of.low, of.high));
    let because = because.into_iter().chain(Reason::seen(rows)).chain(Reason::conflicts(rows)).collect();
    let next = capacity.rps().and_then(|rps| next(evidence, &named, rps.mean));
    let winners: Vec<&Evidence> = named.iter().map(|i| &evidence[*i]).collect();
    let help = help::help(grade, &winners, next.as_ref(), capacity.rps().map(|rps| rps.mean), rows);
    let is_batching = |of: &&Evidence| of.can_limit() && of.saturated() && of.load_dependent;
    Bottleneck {
        grade,
        next,
        help,
        named: named.iter().map(|i| evidence[*i].clone()).collect(),
        load_dependent: evidence.iter().filter(is_batching).cloned().collect(),
        levels,
        growth_levels,
        because,
        candidates: case.evidence,
    }
}

/// What would limit next, if nothing that is `named` did: of the others that can limit the one with the lowest ceiling, but none
/// below the capacity, or below what is named. A ceiling that may be higher counts where no other is known.
fn next(evidence: &[Evidence], named: &[usize], capacity_rps: f64) -> Option<Evidence> {
    let winners: Vec<&Evidence> = named.iter().map(|i| &evidence[*i]).collect();
    let of_winners = winners.iter().filter_map(|of| Some(of.ceiling()?.rps)).reduce(f64::max);
    // What is seen from outside may be a resource that is counted, too.
    let is_same = |of: &Evidence, winner: &Evidence| {
        let has_its_core = winner.limit == Some(Limit::OneThread) && of.is_one_core();
        winner.blocked.is_some() && (winner.limit == of.limit || has_its_core)
    };
    let is_out = |of: &Evidence| winners.iter().any(|winner| of.waits_for(winner) || is_same(of, winner));
    let may = |of: &Evidence| of.can_limit() && !is_out(of);
    let others = evidence.iter().enumerate().filter(|(i, of)| !named.contains(i) && may(of));
    let ceilings = others.filter_map(|(_, of)| Some((of.ceiling()?, of)));
    let above = ceilings.filter(|(at, _)| at.rps > capacity_rps && Some(at.rps) >= of_winners);
    let may_be_higher = |at: &Ceiling| at.bound == Some(Bound::AtLeast);
    let lowest =
        above.min_by(|(a, _), (b, _)| may_be_higher(a).cmp(&may_be_higher(b)).then(a.rps.total_cmp(&b.rps)));
    lowest.map(|(_, of)| of.clone()).filter(|_| !named.is_empty())
}

/// Of the highest level that failed fast, where no level above it was usable.
fn fails_fast(rows: &[Row]) -> Option<FastFail> {
    let ran = || rows.iter().rev().filter(|row| row.runs > 0);
    ran().take_while(|row| !row.usable()).find_map(|row| row.fast_fail)
}
