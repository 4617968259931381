//! How sure a verdict is: what the evidence says in sentences, and what interventions add to it or take from it (E5).

use super::rules::{Case, Conclusion};
use super::{Evidence, Grade};
use crate::lab::analysis::interventions::Effect;
use crate::lab::analysis::stats::Estimate;

/// A limit that is made slower loses at least so much of what it must lose.
const CONFIRMS: f64 = 0.7;
/// What is no limit loses at most so much.
const REFUTES: f64 = 0.3;

/// What making `of` slower did over what that must do to a limit; of several changes that raise its demand the first. A change
/// that raises others, too, says nothing of it alone.
pub(super) fn elasticity(of: &Evidence, effects: &[Effect]) -> Option<Estimate> {
    let raises = |effect: &&Effect| match &of.waiting {
        None => effect.change.raises.contains(&of.resource),
        // The log's flush is a resource; sessions that wait for it are a class of waits.
        Some(_) => effect.change.knob == "commit" && of.limit == Some(crate::lab::results::Limit::CommitPath),
    };
    effects.iter().find(raises).map(|effect| effect.elasticity)
}

/// The conclusion with its grade, after all evidence; and every piece of evidence in a sentence.
pub(super) fn graded(case: &Case, ruled: Conclusion, effects: &[Effect]) -> Conclusion {
    let Conclusion { mut grade, mut named, because } = ruled;
    let mut said: Vec<String> = Vec::new();
    if grade == Grade::Supported {
        said.extend(named.iter().filter_map(|i| used(&case.evidence[*i])));
    }
    said.extend(because);
    if grade == Grade::Supported {
        said.extend(named.iter().filter_map(|i| held(&case.evidence[*i])));
        let control = effects.iter().find(|effect| effect.change.raises.is_empty());
        let slowed: Vec<(&Evidence, Estimate)> =
            named.iter().filter_map(|i| Some((&case.evidence[*i], case.evidence[*i].elasticity?))).collect();
        said.extend(slowed.iter().map(|(of, lost)| slower(of, *lost)));
        said.extend(control.map(|effect| {
            format!(
                "A delay that holds nothing, as long as that, lost {:.0} % of goodput ({} rounds).",
                effect.loss.mean * 100.0,
                effect.rounds
            )
        }));
        let quiet = control.is_none_or(|effect| effect.elasticity.mean <= REFUTES);
        match slowed.as_slice() {
            [(_, lost)] if named.len() == 1 && lost.mean >= CONFIRMS && quiet => grade = Grade::Confirmed,
            [(_, lost)] if named.len() == 1 && lost.mean <= REFUTES => {
                said.push("So it is not what limits, whatever else speaks for it.".to_owned());
                (grade, named) = (Grade::NotIdentified, Vec::new());
            }
            _ => {}
        }
    }
    Conclusion { grade, named, because: said }
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
fn slower(of: &Evidence, lost: Estimate) -> String {
    format!(
        "Made slower, {} cost {:.2} of the goodput that a limit must cost ({:.2} to {:.2} over {} rounds).",
        of.resource, lost.mean, lost.low, lost.high, lost.runs
    )
}
