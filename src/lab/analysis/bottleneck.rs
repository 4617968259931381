//! What limits a workload, by the utilization law and by where databases' sessions wait (E1 and E4 of docs/method.md,
//! section 6).
//!
//! Names a resource only with numbers, and nothing at all where the numbers do not carry it.

use super::capacity::{Capacity, Knee};
use super::rows::{POOL_SEEN, Row, Standing, Use};
use super::stats::{Estimate, mean, variation};
use super::waits::{Waiting, holding};
use crate::lab::results::{Limit, ResourceKind};
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

/// A rule that may name the bottleneck.
pub struct Rule {
    /// A few words.
    pub name: &'static str,
    /// When it applies, in one sentence.
    pub about: &'static str,
    /// Concludes from the case; `None` where the rule does not apply.
    pub apply: fn(&Case) -> Option<Conclusion>,
}

/// How sure it is, and the resources named, as indices into the evidence.
pub type Conclusion = (Grade, Vec<usize>);

/// The rules in the order they are asked; the first that applies decides.
pub const RULES: &[Rule] = &[
    Rule {
        name: "shared cores",
        about: "the generator shares its cores with what it measures: what either would do alone is not known",
        apply: |case| case.generator_shares.then(|| (Grade::Generator, Vec::new())),
    },
    Rule {
        name: "generator",
        about: "the generator is saturated, or fails its gate with nothing else saturated: nothing is known of the target",
        apply: |case| {
            let busiest = case.busiest(|of| of.kind == ResourceKind::Generator);
            let saturated = busiest.is_some_and(|i| case.evidence[i].saturated());
            let target_saturated = case.evidence.iter().any(|of| of.can_limit() && of.saturated());
            let alone = case.generator_limited && !target_saturated;
            (saturated || alone).then(|| (Grade::Generator, Vec::from_iter(busiest)))
        },
    },
    Rule {
        name: "generator not excluded",
        about: "something else is saturated, but the generator fails its gate: either may be the limit, so none is named",
        apply: |case| case.generator_limited.then_some((Grade::NotIdentified, Vec::new())),
    },
    Rule {
        name: "database wait",
        about: "nothing is saturated but pools of sessions, and one class of database wait (row lock, commit path, …) holds at \
                least half of the clients, or of a full pool’s sessions, at every one of these levels",
        apply: |case| {
            let firm = |of: &Evidence| matches!(of.kind, ResourceKind::Station | ResourceKind::Cap);
            let saturated = |of: &Evidence| firm(of) && of.saturated();
            let wait = case.evidence.iter().position(|of| of.waiting.is_some());
            wait.filter(|_| !case.evidence.iter().any(saturated)).map(|i| (Grade::Supported, vec![i]))
        },
    },
    Rule {
        name: "one or more saturated",
        about: "busy for at least 95 % of the time on average, with the same demand per request at every one of these levels; an \
                imposed cap if it was reached at three levels, whatever a request takes of it",
        apply: |case| {
            let named: Vec<usize> = (0..case.evidence.len()).filter(|i| case.evidence[*i].limits()).collect();
            (!named.is_empty()).then_some((Grade::Supported, named))
        },
    },
    Rule {
        name: "none",
        about: "no resource that was read carries the throughput: a delay, a lock, or something nobody samples",
        apply: |_| Some((Grade::NotIdentified, Vec::new())),
    },
];

/// What a rule sees.
pub struct Case {
    /// Every resource that could be read at the levels in question, and last the class of database waits that holds most
    /// of the clients, where one does.
    pub evidence: Vec<Evidence>,
    /// Whether a row among them is limited by the generator.
    pub generator_limited: bool,
    /// Whether the generator has no cores of its own.
    pub generator_shares: bool,
}

impl Case {
    fn busiest(&self, among: impl Fn(&Evidence) -> bool) -> Option<usize> {
        (0..self.evidence.len())
            .filter(|i| among(&self.evidence[*i]))
            .max_by(|a, b| self.evidence[*a].utilization.total_cmp(&self.evidence[*b].utilization))
    }
}

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
}

/// Applies [`RULES`] to the levels at and above twice the knee that belong to the plateau; to the whole plateau where
/// those are fewer than two. Without a plateau it is the shoulder that decides: neighbouring levels over which the clients
/// at least double and goodput stays within 15 % of the best. Where there is none either, nothing limits yet, and the best
/// level shows the highest utilization. Of a generator without cores of its own nothing is concluded, not even a runner-up.
///
/// Source: the utilization law and the bottleneck analysis of Denning & Buzen (1978); Lazowska et al., Quantitative
/// System Performance (1984), chapter 5.
pub fn bottleneck(
    rows: &[Row],
    capacity: &Capacity,
    knee: Option<&Knee>,
    generator_shares: bool,
) -> Bottleneck {
    let deciding = deciding(rows, capacity, knee);
    let resources = deciding.first().map_or(0, |row| row.resources.len());
    let mut evidence: Vec<Evidence> =
        (0..resources).filter_map(|i| evidence(i, &deciding, rows, capacity)).collect();
    evidence.extend(wait(&deciding));
    let generator_limited = deciding.iter().any(|row| row.standing == Standing::GeneratorLimited);
    let case = Case { evidence, generator_limited, generator_shares };
    let (grade, named) =
        RULES.iter().find_map(|rule| (rule.apply)(&case)).unwrap_or((Grade::NotIdentified, vec![]));
    // A pool that waits for the database has no ceiling of its own.
    let held = named.iter().any(|i| case.evidence[*i].waiting.is_some());
    let runner_up = (0..case.evidence.len())
        .filter(|i| !named.contains(i) && !generator_shares)
        .filter(|i| !(held && case.evidence[*i].kind == ResourceKind::Pool))
        .filter(|i| case.evidence[*i].kind != ResourceKind::Indication && !case.evidence[*i].load_dependent)
        .max_by(|a, b| case.evidence[*a].utilization.total_cmp(&case.evidence[*b].utilization));
    Bottleneck {
        grade,
        named: named.iter().map(|i| case.evidence[*i].clone()).collect(),
        runner_up: runner_up.map(|i| case.evidence[i].clone()),
        load_dependent: case
            .evidence
            .iter()
            .filter(|of| of.can_limit() && of.saturated() && of.load_dependent)
            .cloned()
            .collect(),
        levels: deciding.iter().map(|row| row.level).collect(),
        because: Vec::new(),
        next_ceiling_rps: None,
    }
}

/// The rows that decide, ascending.
fn deciding<'a>(rows: &'a [Row], capacity: &Capacity, knee: Option<&Knee>) -> Vec<&'a Row> {
    let on_plateau: Vec<&Row> =
        rows.iter().filter(|row| row.usable() && capacity.plateau().contains(&row.level)).collect();
    if let Capacity::NotReached { level, .. } = capacity {
        return shoulder(rows, *level);
    }
    let past_knee: Vec<&Row> = on_plateau
        .iter()
        .filter(|row| knee.is_some_and(|knee| f64::from(row.level) >= 2.0 * knee.clients))
        .copied()
        .collect();
    if past_knee.len() >= 2 { past_knee } else { on_plateau }
}

/// The usable levels around the best one whose goodput is hardly less than its; only that level where the clients do not
/// double over them, since then too little was asked of the target to tell.
fn shoulder(rows: &[Row], best: u32) -> Vec<&Row> {
    let goodput = |row: &Row| row.goodput_rps.map_or(0.0, |of| of.mean);
    let Some(at) = rows.iter().position(|row| row.level == best) else { return Vec::new() };
    let near = |row: &&Row| row.usable() && goodput(row) >= SHOULDER * goodput(&rows[at]);
    let below = rows[..at].iter().rev().take_while(near).count();
    let above = rows[at + 1..].iter().take_while(near).count();
    let around = &rows[at - below..=at + above];
    match around {
        [first, .., last] if last.level >= 2 * first.level => around.iter().collect(),
        _ => vec![&rows[at]],
    }
}

/// Resource `i` over the `deciding` rows. `None` where its utilization was not read at one of them.
fn evidence(i: usize, deciding: &[&Row], rows: &[Row], capacity: &Capacity) -> Option<Evidence> {
    let uses: Vec<&Use> = deciding.iter().map(|row| &row.resources[i]).collect();
    let first = uses.first()?;
    let utilizations: Vec<f64> = uses.iter().map(|of| of.utilization).collect::<Option<_>>()?;
    let demands: Option<Vec<f64>> = uses.iter().map(|of| of.demand_us).collect();
    let demands = demands.unwrap_or_default();
    let demand_us = mean(&demands);
    let demand_variation = variation(&demands);
    let ends = demands.first().zip(demands.last());
    // Without a plateau goodput rises a little over these levels: at full use that is a demand which falls.
    let rises = matches!(capacity, Capacity::NotReached { .. })
        && ends.is_some_and(|(first, last)| *first > SHOULDER_FALL * last);
    let falls = rises
        || demand_variation.is_some_and(|variation| variation > CONSTANT)
            && ends.is_some_and(|(first, last)| first > last);
    // U = X·D: saturated long before the capacity is reached means that D was larger there.
    let early = capacity.rps().is_some_and(|rps| {
        let up_to = deciding.iter().map(|row| row.level).min().unwrap_or(0);
        // Past the plateau a saturated resource may well do less: that is thrashing, not batching.
        rows.iter().filter(|row| row.usable() && row.level < up_to).any(|row| {
            row.goodput_rps.is_some_and(|goodput| goodput.mean < EARLY * rps.mean)
                && row.resources[i].utilization.is_some_and(|utilization| utilization >= SATURATED)
        })
    });
    // Cores that parts share are named after the part that uses them, where there is one.
    let alone = first.mostly.as_ref().filter(|part| uses.iter().all(|of| of.mostly.as_ref() == Some(part)));
    Some(Evidence {
        resource: alone.map_or_else(|| first.name.clone(), |part| format!("{part} CPU")),
        kind: first.kind,
        utilization: mean(&utilizations)?,
        demand_us,
        demand_variation,
        ceiling_rps: demand_us.filter(|us| *us > 0.0).map(|us| first.servers * 1e6 / us),
        load_dependent: first.kind != ResourceKind::Cap && (falls || early),
        reached_at: rows
            .iter()
            .filter(|row| row.usable() && row.resources[i].utilization >= Some(SATURATED))
            .count(),
        waiting: None,
        limit: None,
        queue_growth: None,
        elasticity: None,
    })
}

/// The class of database waits that holds most of those who can be there at every one of the `deciding` rows.
fn wait(deciding: &[&Row]) -> Option<Evidence> {
    let places = |row: &Row| {
        let full =
            |of: &&Use| of.kind == ResourceKind::Pool && of.utilization.is_some_and(|u| u >= SATURATED);
        let used =
            |of: &&Use| of.kind == ResourceKind::Pool && of.utilization.is_some_and(|u| u >= POOL_SEEN);
        let clients = f64::from(row.level);
        // Waits are counted over the sessions of all pools, so these are the places once one pool is full.
        match row.resources.iter().any(|of| full(&of)) {
            true => clients.min(row.resources.iter().filter(used).map(|of| of.servers).sum()),
            false => clients,
        }
    };
    // At a single level it is a delay and nobody's limit.
    if deciding.len() < 2 {
        return None;
    }
    let deciding: Vec<(&Row, f64)> = deciding.iter().map(|row| (*row, places(row))).collect();
    let waiting = holding(&deciding)?;
    Some(Evidence {
        resource: format!("{} {}", waiting.parts.join(" + "), waiting.class),
        // The utilization law says nothing of it; only the rule for waits may name it.
        kind: ResourceKind::Indication,
        utilization: waiting.share,
        demand_us: None,
        demand_variation: None,
        ceiling_rps: None,
        load_dependent: false,
        reached_at: 0,
        waiting: Some(waiting),
        limit: None,
        queue_growth: None,
        elasticity: None,
    })
}
