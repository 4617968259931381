//! How sure a verdict is: what the evidence says in sentences, and what interventions add to it or take from it (E5).

use super::rules::{Case, Conclusion};
use super::{Evidence, Grade, Pressed, Pressure};
use crate::interventions::Effect;

/// A limit that is made slower loses at least so much of what it must lose …
const CONFIRMS: f64 = 0.7;
/// … and no more than this: what collapses was not made a little slower.
const COLLAPSES: f64 = 1.5;
/// What is no limit loses at most so much.
const REFUTES: f64 = 0.3;
/// One round may be chance.
const ROUNDS_MIN: u32 = 2;

/// The change that tells something of `of`: one that raises its demand, made where clients pile up.
pub(super) fn effect<'a>(of: &Evidence, effects: &'a [Effect], levels: &[u32]) -> Option<&'a Effect> {
    let loaded = |effect: &&Effect| levels.first().is_some_and(|lowest| effect.level >= *lowest);
    // Those that the experiment asks for come last, with longer windows.
    effects.iter().filter(loaded).rfind(|effect| of.is_slowed_by(effect))
}

/// The conclusion with its grade, after all evidence; and every piece of evidence in a sentence.
pub(super) fn graded(case: &Case, ruled: Conclusion, effects: &[Effect], levels: &[u32]) -> Conclusion {
    let Conclusion { mut grade, mut named, because, is_firm } = ruled;
    let mut said: Vec<String> = Vec::new();
    if grade == Grade::Supported {
        said.extend(named.iter().filter_map(|i| used(&case.evidence[*i])));
    }
    said.extend(because);
    if grade == Grade::Supported {
        said.extend(named.iter().filter_map(|i| pressed(&case.evidence[*i])));
        said.extend(named.iter().filter_map(|i| held(&case.evidence[*i])));
        let control = effects.iter().find(|effect| effect.change.raises.is_empty());
        let slowed: Vec<(&Evidence, &Effect)> = named
            .iter()
            .filter_map(|i| Some((&case.evidence[*i], effect(&case.evidence[*i], effects, levels)?)))
            .collect();
        said.extend(slowed.iter().map(|(of, effect)| slower(of, effect)));
        said.extend(control.filter(|_| !slowed.is_empty()).map(|effect| {
            format!(
                "A delay of {:.0} µs that holds nothing cost {:.0} % of goodput (mean of {} rounds).",
                effect.change.added_us,
                effect.loss.mean * 100.0,
                effect.rounds
            )
        }));
        let quiet = control.is_some_and(|effect| effect.elasticity.mean <= REFUTES);
        // Of several that share the load each has to cost what a limit costs.
        let all_confirm = slowed.iter().all(|(of, effect)| allows(of) && confirms(effect));
        if is_firm && quiet && !slowed.is_empty() && slowed.len() == named.len() && all_confirm {
            grade = Grade::Confirmed;
        }
        // A flush that is delayed takes more with it: PostgreSQL then gets more through, not less.
        if let [(of, effect)] = slowed[..]
            && named.len() == 1
            && of.waiting.is_none()
            && refutes(effect)
        {
            said.push("So it is not what limits, whatever else speaks for it.".to_owned());
            (grade, named) = (Grade::NotIdentified, Vec::new());
        }
    }
    Conclusion { grade, named, because: said, is_firm }
}

/// In every round, and not because any delay of that length would have cost as much.
fn confirms(effect: &Effect) -> bool {
    let lost = effect.elasticity;
    let as_much = (CONFIRMS..=COLLAPSES).contains(&lost.mean) && lost.low > REFUTES;
    effect.rounds >= ROUNDS_MIN && as_much && effect.as_delay <= REFUTES
}

fn refutes(effect: &Effect) -> bool {
    let lost = effect.elasticity;
    effect.rounds >= ROUNDS_MIN && lost.mean <= REFUTES && lost.high < CONFIRMS
}

/// E1.
fn used(of: &Evidence) -> Option<String> {
    if of.waiting.is_some() {
        return None;
    }
    let demand = of.demand_us.map(|us| format!(", {us:.1} µs of it for each request")).unwrap_or_default();
    let spread = of.demand_variation.map(|by| format!(" (± {:.0} % over the levels)", by * 100.0));
    Some(format!(
        "{} is busy for {:.0} % of the time{demand}{}.",
        of.resource,
        of.utilization * 100.0,
        spread.unwrap_or_default()
    ))
}

/// E3.
fn pressed(of: &Evidence) -> Option<String> {
    let Pressure { of: pressed, share } = of.pressure?;
    let share = share * 100.0;
    Some(match pressed {
        Pressed::Cpu => format!("For {share:.0} % of the time some thread waited for a core."),
        Pressed::Io => format!("For {share:.0} % of the time some thread waited for a disk."),
        Pressed::Quota => format!("Its quota held it back for {share:.0} % of the time."),
    })
}

fn allows(of: &Evidence) -> bool {
    of.pressure.is_none_or(|pressure| pressure.allows())
}

/// E4.
fn held(of: &Evidence) -> Option<String> {
    let waiting = of.waiting.as_ref()?;
    let states: Vec<&str> = waiting.states.iter().take(2).map(|(state, _)| state.as_str()).collect();
    Some(format!(
        "At {} clients {:.1} sessions of {:.0} are there, in {}.",
        waiting.level,
        waiting.sessions,
        waiting.places,
        states.join(" and ")
    ))
}

/// E5.
fn slower(of: &Evidence, effect: &Effect) -> String {
    let lost = effect.elasticity;
    format!(
        "Made slower, {} cost {:.2} of the goodput that a limit must cost ({:.2} to {:.2} over {} rounds).",
        of.resource, lost.mean, lost.low, lost.high, lost.runs
    )
}
