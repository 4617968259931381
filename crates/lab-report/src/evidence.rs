//! What speaks for the limit that is named: the table of candidates, and the interventions.

use super::document::{Block, Table};
use super::format::{self, finite, latency, number, percent};
use super::sentences::{self, how_slowed, slowed};
use kv::units::short;
use lab_analysis::rows::SATURATED;
use lab_analysis::{Bound, Effect, Estimate, Evidence, Grade, Shown, WorkloadFindings};
use lab_data::results::ResourceKind;

/// Why this limit and no other.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    if sentences::is_open(found) || found.rows.iter().all(|row| row.runs == 0) {
        return Vec::new();
    }
    let bottleneck = &found.bottleneck;
    let heading = match bottleneck.grade {
        Grade::Confirmed | Grade::Supported | Grade::Suspected => {
            let be = if bottleneck.named.len() == 1 { "is" } else { "are" };
            format!("Why {} {be} named", sentences::limits(&bottleneck.named))
        }
        _ => "What the resources show".to_owned(),
    };
    let mut page = vec![Block::Part(heading), Block::Notes(sentences::evidence(found))];
    let candidates = candidates(found);
    if !candidates.is_empty() {
        let is_grey = |(of, _): &Candidate| !is_named(found, of) && !bottleneck.named.is_empty();
        page.push(Block::Table(Table::of(&candidates, CANDIDATES, is_grey)));
        let levels = format::levels(&bottleneck.levels);
        let growth = bottleneck
            .growth_levels
            .map_or_else(String::new, |(low, high)| format!(" Queue growth: from {low} to {high} clients."));
        page.push(Block::Notes(vec![format!(
            "Utilization and busy time: means over {levels}, by which the limit is determined.{growth} “Full at” is calculated from the level with the highest goodput, not from these means: where ± is large, “full at” does not follow from the busy time."
        )]));
    }
    if !found.effects.is_empty() {
        page.push(Block::Part("Goodput lost when one resource is slowed".to_owned()));
        page.push(Block::Table(Table::of(&found.effects, INTERVENTIONS, |_| false)));
    }
    page
}

/// What could be the limit of a workload, and what it is found to be.
type Candidate<'a> = (&'a Evidence, Option<String>);

/// Heading and cell; `None` where a candidate has nothing of the kind.
const CANDIDATES: &[(&str, fn(&Candidate) -> Option<String>)] = &[
    ("<resource", |(of, _)| match &of.waiting {
        Some(waiting) => Some(format!("{} sessions", waiting.parts.join(" + "))),
        None => Some(of.resource.clone()),
    }),
    ("<verdict", |(_, verdict)| verdict.clone()),
    ("utilization", |(of, _)| {
        // A number of sessions or threads is no utilization.
        let is_count = of.waiting.is_some() || of.blocked.is_some() && of.utilization == 0.0;
        (!is_count).then(|| percent(of.utilization, 0))
    }),
    ("busy time, per request", |(of, _)| {
        let varies = finite(of.demand_variation).map(|share| format!(" ±{}", percent(share, 0)));
        Some(latency(Some(of.demand_us?)) + &varies.unwrap_or_default())
    }),
    ("full at, req/s", |(of, _)| {
        of.ceiling().map(|at| {
            let bound = match at.bound.filter(|_| of.utilization < SATURATED) {
                Some(Bound::AtLeast) => "≥ ",
                Some(Bound::AtMost) => "≤ ",
                None => "",
            };
            format!("{bound}{}", short(at.rps))
        })
    }),
    ("queue growth", |(of, _)| {
        // Where those who serve the clients never wait for it, there is no queue.
        let is_none = |growth: &f64| growth.abs() < 0.005 && !of.within.is_empty();
        finite(of.queue_growth).filter(|growth| !is_none(growth)).map(|growth| number(growth, 2))
    }),
];

/// All that could be the limit, what is named first; what was never busy is left out.
fn candidates(found: &WorkloadFindings) -> Vec<Candidate<'_>> {
    let is_other = |of: &&Evidence| !is_named(found, of) && of.ceiling().is_some();
    let mut others: Vec<&Evidence> = found.bottleneck.candidates.iter().filter(is_other).collect();
    others.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
    let all = found.bottleneck.named.iter().chain(others);
    all.map(|of| (of, verdict(found, of))).collect()
}

fn is_named(found: &WorkloadFindings, of: &Evidence) -> bool {
    found.bottleneck.named.iter().any(|named| named.resource == of.resource)
}

/// With the name of the limit, where its resource has another.
fn named(is: &str, of: &Evidence) -> String {
    let name = sentences::limit(of);
    if name == of.resource { is.to_owned() } else { format!("{is}: {name}") }
}

/// What a resource is found to be; `None` where nothing is known.
fn verdict(found: &WorkloadFindings, of: &Evidence) -> Option<String> {
    let bottleneck = &found.bottleneck;
    let is_in = |all: &[Evidence]| all.iter().any(|other| other.resource == of.resource);
    if is_named(found, of) {
        let is = match bottleneck.grade {
            Grade::Delay => "a delay",
            Grade::Suspected => "perhaps the limit",
            _ => "the limit",
        };
        return Some(named(is, of));
    }
    let said = match () {
        () if bottleneck.named.iter().any(|limit| of.waits_for(limit)) => "needs the limit",
        () if of.kind == ResourceKind::Generator => "not in the target",
        () if bottleneck.next.iter().any(|next| next.resource == of.resource) => {
            return Some(named("next limit", of));
        }
        () if is_in(&bottleneck.load_dependent) => "busy, but batches grow with load",
        () if of.waiting.is_none() && of.utilization < SATURATED => "not full",
        () => return None,
    };
    Some(said.to_owned())
}

/// Heading and cell; nothing is expected of a control.
const INTERVENTIONS: &[(&str, fn(&Effect) -> Option<String>)] = &[
    ("<slowed", |of| Some(slowed(of))),
    ("<by", |of| Some(how_slowed(of))),
    ("clients", |of| Some(of.level.to_string())),
    ("rounds", |of| Some(of.rounds.to_string())),
    ("expected loss, if it is the limit", |of| (!is_control(of)).then(|| percent(of.expected_loss, 1))),
    ("measured loss, interval", |of| Some(measured(of, &of.loss, |share| percent(share, 1)))),
    // It is about 1 at the limit, so it needs two decimals and no suffix.
    ("measured ÷ expected", |of| {
        (!is_control(of)).then(|| measured(of, &of.elasticity, |of| number(of, 2)))
    }),
    ("<behaves like the limit", |of| {
        let is_like = match of.shown {
            Shown::Limit => "yes",
            Shown::NotLimit => "no",
            Shown::Undecided => "unclear",
        };
        (!is_control(of)).then(|| is_like.to_owned())
    }),
];

/// With its interval; in words where that holds more than all goodput.
fn measured(of: &Effect, estimate: &Estimate, say: impl Fn(f64) -> String) -> String {
    if of.loss.high - of.loss.low > 1.0 { "too noisy".to_owned() } else { format::with_ends(estimate, say) }
}

fn is_control(of: &Effect) -> bool {
    of.change.raises.is_empty()
}

#[cfg(test)]
mod tests;
