//! Is the load generator the limit? It was made slower by a known time per request, and goodput followed or did not.

use super::{Checked, OfWorkload};
use crate::capacity::Capacity;
use crate::interventions::{Effect, Shown};
use crate::rows::{Row, best, usable};
use lab_data::results::ResourceKind;
use stats::Interval;

/// A target that is busier than this is near its limit …
const TARGET_BUSY: f64 = 0.9;
/// … and a generator that is less busy than this is not near its own.
const GENERATOR_IDLE: f64 = 0.5;

pub(super) fn check(case: &OfWorkload) -> Checked {
    let Some(best) = best(usable(case.rows)) else { return Checked::not_checked("no level is valid") };
    let own = busiest(best, |kind| kind == ResourceKind::Generator);
    let busy =
        own.map_or_else(String::new, |(_, share)| format!("; the generator was {:.0} % busy", share * 100.0));
    if let Some(effect) = case.headroom {
        return by_experiment(effect, &busy);
    }
    let target = busiest(best, |kind| matches!(kind, ResourceKind::Station | ResourceKind::Cap));
    // One level alone has nothing to level off from.
    let levelled_off = usable(case.rows).nth(1).is_some()
        && matches!(case.capacity, Capacity::Reached { .. } | Capacity::NotReached { rising: false, .. });
    match own.zip(target) {
        Some(((_, own), (name, share))) if levelled_off && own < GENERATOR_IDLE && share > TARGET_BUSY => {
            Checked::pass(format!(
                "by utilization: goodput has levelled off with {name} {:.0} % busy and the generator {:.0} %",
                share * 100.0,
                own * 100.0
            ))
        }
        _ => Checked::not_checked(format!("the generator was not made slower{busy}")),
    }
}

fn by_experiment(of: &Effect, busy: &str) -> Checked {
    let [mean, low, high, half] =
        [of.loss.mean, of.loss.low, of.loss.high, of.expected_loss / 2.0].map(|share| share * 100.0);
    let spread = if of.loss.interval == Interval::StudentT { "95 % interval" } else { "range" };
    let seen = format!(
        "with the generator slowed, goodput fell by {mean:.1} % ({spread} {low:.1} % to {high:.1} %); half of what it would fall at a limit is {half:.1} %{busy}"
    )
    .replace(" -", " −");
    match of.shown {
        Shown::NotLimit => Checked::pass(seen),
        Shown::Limit => Checked::fail(
            seen,
            "Give the generator more cores, with [cores] in the experiment, or more machines, with --worker in the workload’s args.",
        ),
        Shown::Undecided => Checked::not_checked(format!(
            "the result is not clear: {seen}. Give the generator more cores, or repeat on a machine with less other load."
        )),
    }
}

/// The busiest resource of these kinds, and how busy it is.
fn busiest(row: &Row, among: impl Fn(ResourceKind) -> bool) -> Option<(&str, f64)> {
    let known = row.resources.iter().filter(|of| among(of.kind));
    let shares = known.filter_map(|of| Some((of.name.as_str(), of.utilization?)));
    shares.max_by(|(_, a), (_, b)| a.total_cmp(b))
}
