//! How sure a verdict is: what interventions add to it or take from it.

use super::rules::{Case, Conclusion};
use super::{Evidence, Grade, Reason};
use crate::interventions::Effect;
use stats::Interval;

/// A limit that is made slower loses at least so much of what it must lose …
const CONFIRMS: f64 = 0.7;
/// … and no more than this: what collapses was not made a little slower.
const COLLAPSES: f64 = 1.5;
/// What is no limit loses at most so much of it, and so does the control.
const REFUTES: f64 = 0.3;
/// One round may be chance. To lose a name takes less than to confirm it.
const REFUTING_ROUNDS_MIN: u32 = 2;

/// The change that tells something of `of`: one that raises its demand, made where clients pile up.
pub(super) fn effect<'a>(of: &Evidence, effects: &'a [Effect], levels: &[u32]) -> Option<&'a Effect> {
    let loaded = |effect: &&Effect| levels.first().is_some_and(|lowest| effect.level >= *lowest);
    // Those that the experiment asks for come last, with longer windows.
    effects.iter().filter(loaded).rfind(|effect| of.is_slowed_by(effect))
}

/// The conclusion with its grade, after all evidence.
pub(super) fn graded(case: &Case, ruled: Conclusion, effects: &[Effect], levels: &[u32]) -> Conclusion {
    if ruled.grade != Grade::Supported {
        return ruled;
    }
    let named = || ruled.named.iter().map(|i| &case.evidence[*i]);
    let slowed: Vec<(&Evidence, &Effect)> =
        named().filter_map(|of| Some((of, effect(of, effects, levels)?))).collect();
    let control = effects.iter().find(|effect| effect.change.raises.is_empty());
    // Its pause is as long as what `cpu` adds for all cores of the server: what it cost is much or little beside the loss of a limit only.
    let is_quiet =
        |effect: &Effect| control.is_some_and(|of| of.loss.mean <= REFUTES * effect.expected_loss.abs());
    // Of several that share the load each has to cost what a limit costs.
    let all_confirm = slowed.iter().all(|(of, effect)| allows(of) && confirms(effect) && is_quiet(effect));
    if ruled.is_firm && !slowed.is_empty() && slowed.len() == ruled.named.len() && all_confirm {
        return Conclusion { grade: Grade::Confirmed, ..ruled };
    }
    // A flush that is delayed takes more with it: PostgreSQL then gets more through, not less.
    match slowed[..] {
        [(of, effect)] if ruled.named.len() == 1 && of.waiting.is_none() && refutes(effect) => {
            let why = Reason::NotFollowed(of.clone());
            let refuted = Conclusion { grade: Grade::NotIdentified, named: Vec::new(), ..ruled };
            refuted.why(why)
        }
        _ => ruled,
    }
}

/// With an interval, which takes three rounds, and not because any delay of that length would have cost as much.
fn confirms(effect: &Effect) -> bool {
    let lost = effect.elasticity;
    let as_much = (CONFIRMS..=COLLAPSES).contains(&lost.mean) && lost.low > REFUTES;
    lost.interval == Interval::StudentT && as_much && effect.as_delay <= REFUTES
}

/// Whoever gets more and gains little may have met the next limit: a raise refutes nothing.
fn refutes(effect: &Effect) -> bool {
    let lost = effect.elasticity;
    effect.expected_loss > 0.0
        && effect.rounds >= REFUTING_ROUNDS_MIN
        && lost.mean <= REFUTES
        && lost.high < CONFIRMS
}

/// Less than this of the time is the end of a period, and not a limit.
const HELD_BACK: f64 = 0.05;

/// A quota that never held anybody back was no limit.
fn allows(of: &Evidence) -> bool {
    of.throttled.is_none_or(|share| share >= HELD_BACK)
}

#[cfg(test)]
mod tests;
