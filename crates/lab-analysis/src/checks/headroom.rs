//! Is the load generator the limit? It was made slower by a known time per request, and goodput followed or did not.
//!
//! If the generator is the limit, X = m / c: with δ more for each request goodput falls by δ / (c + δ), where c is its time per request at
//! full use of its m cores. If it is not, it only uses more of the time that it has left.

use super::{Checked, OfWorkload};
use crate::capacity::Capacity;
use crate::interventions::Effect;
use crate::rows::Row;
use lab_data::results::{ResourceKind, SLOWER_GENERATOR};
use serde::Serialize;
use stats::Interval;

/// What slowing the generator shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Headroom {
    /// What follows.
    pub shown: Shown,
    /// The clients it was done at.
    pub level: u32,
    /// Rounds in which it was measured.
    pub rounds: u32,
    /// The share of goodput that had to be lost if the generator were the limit.
    pub expected_loss: f64,
    /// The share that was lost: mean, and the ends of its 95 % interval.
    pub loss: [f64; 3],
}

/// What follows from slowing the generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// Goodput follows the generator: it is the limit.
    Limit,
    /// Goodput does not: it is not.
    NotLimit,
    /// The interval holds both.
    Undecided,
}

/// A limit loses what it must; what loses less than this share of that is none.
const HALF: f64 = 0.5;

/// What slowing the generator shows; `None` where it was not made slower.
pub fn headroom(effects: &[Effect]) -> Option<Headroom> {
    let slowed = effects.iter().filter(|effect| effect.change.knob == SLOWER_GENERATOR);
    let effect = slowed.max_by_key(|effect| effect.rounds)?;
    let Effect { level, rounds, expected_loss, as_delay, loss, .. } = effect;
    let half = HALF * expected_loss;
    let is_interval = loss.interval == Interval::StudentT;
    let shown = match is_interval {
        true if loss.high < half => Shown::NotLimit,
        // So few clients that any delay of that length costs as much tell nothing.
        true if *as_delay >= HALF => Shown::Undecided,
        true if loss.low > 0.0 && (loss.low >= half || loss.high >= *expected_loss) => Shown::Limit,
        _ => Shown::Undecided,
    };
    let (level, rounds, expected_loss) = (*level, *rounds, *expected_loss);
    Some(Headroom { shown, level, rounds, expected_loss, loss: [loss.mean, loss.low, loss.high] })
}

/// A target that is busier than this is near its limit …
const TARGET_BUSY: f64 = 0.9;
/// … and a generator that is less busy than this is not near its own.
const GENERATOR_IDLE: f64 = 0.5;

pub(super) fn check(case: &OfWorkload) -> Checked {
    let best = case.rows.iter().filter(|row| row.usable()).max_by(|a, b| goodput(a).total_cmp(&goodput(b)));
    let Some(best) = best else { return Checked::not_checked("no level has numbers") };
    let own = busiest(best, |kind| kind == ResourceKind::Generator);
    let busy =
        own.map_or_else(String::new, |(_, share)| format!("; it uses {:.0} % of its cores", share * 100.0));
    if let Some(of) = case.headroom {
        return by_experiment(of, &busy);
    }
    let target = busiest(best, |kind| matches!(kind, ResourceKind::Station | ResourceKind::Cap));
    let levelled_off =
        matches!(case.capacity, Capacity::Reached { .. } | Capacity::NotReached { rising: false, .. });
    match (own, target) {
        (Some((_, own)), Some((name, share)))
            if levelled_off && own < GENERATOR_IDLE && share > TARGET_BUSY =>
        {
            Checked::pass(format!(
                "by utilization: goodput has levelled off with {name} {:.0} % busy and the generator {:.0} %",
                share * 100.0,
                own * 100.0
            ))
        }
        _ => Checked::not_checked(format!("the generator was not made slower{busy}")),
    }
}

fn by_experiment(of: &Headroom, busy: &str) -> Checked {
    let [mean, low, high] = of.loss.map(|share| share * 100.0);
    let seen = format!(
        "with the generator slowed, {mean:.1} % of goodput was lost ({low:.1} to {high:.1}) where a limit loses {:.1} %{busy}",
        of.expected_loss * 100.0
    );
    match of.shown {
        Shown::NotLimit => Checked::pass(seen),
        Shown::Limit => Checked::fail(
            seen,
            "Give the generator more cores, with [cores] in the experiment, or more machines, with --worker in the workload’s args.",
        ),
        Shown::Undecided => {
            Checked::not_checked(format!("{seen}: more rounds or longer windows would decide it"))
        }
    }
}

fn goodput(row: &Row) -> f64 {
    row.goodput_rps.map_or(0.0, |rps| rps.mean)
}

/// The busiest resource of these kinds, and how busy it is.
fn busiest(row: &Row, among: impl Fn(ResourceKind) -> bool) -> Option<(&str, f64)> {
    let known = row.resources.iter().filter(|of| among(of.kind));
    let shares = known.filter_map(|of| Some((of.name.as_str(), of.utilization?)));
    shares.max_by(|(_, a), (_, b)| a.total_cmp(b))
}
