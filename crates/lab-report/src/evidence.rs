//! What speaks for the limit that is named: the table of candidates, and the interventions.

use super::document::{Block, Table};
use super::format::{self, finite, latency, number, percent};
use super::sentences::{self, how_slowed, slowed};
use kv::units::short;
use lab_analysis::{Effect, Estimate, Evidence, Grade, WorkloadFindings};
use lab_data::results::ResourceKind;

/// Why this limit and no other.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    if sentences::is_open(found) || found.rows.iter().all(|row| row.runs == 0) {
        return Vec::new();
    }
    let bottleneck = &found.bottleneck;
    let heading = match bottleneck.grade {
        Grade::Confirmed | Grade::Supported | Grade::Suspected => {
            format!("Why {} is named", sentences::limits(&bottleneck.named))
        }
        _ => "What the resources show".to_owned(),
    };
    let mut page = vec![Block::Part(heading), Block::Notes(sentences::evidence(found))];
    let candidates = candidates(found);
    if !candidates.is_empty() {
        let is_grey = |(_, part): &Candidate| *part != NAMED && !bottleneck.named.is_empty();
        page.push(Block::Table(Table::of(&candidates, CANDIDATES, is_grey)));
        page.push(Block::Notes(vec![format!(
            "The limit is determined at {}. Utilization: mean over these levels. Demand: busy time per request, ± its standard deviation over these levels. \
             100 % busy at: the goodput at which the resource would be fully used, from its utilization at the level with the highest goodput; ≥: or more, because a request needs less of it when the load is \
             higher. The next limit has the lowest of these above the measured goodput and not below that of the named limit; the generator and those delayed by the named limit do not count, and those with \
             ≥ only if there are no others. Queue growth: by how many requests the queue there grows with each added client. Pressure: share of the time in which some thread \
             of the machine waited for a CPU or for I/O (Linux PSI), or a quota stopped it. Commit path: what a write waits for until it is durable.",
            format::levels(&bottleneck.levels)
        )]));
    }
    if !found.effects.is_empty() {
        page.push(Block::Part("Goodput lost when one resource is changed".to_owned()));
        page.push(Block::Table(Table::of(&found.effects, INTERVENTIONS, |_| false)));
        let control = found.effects.iter().any(is_control).then_some(CONTROL);
        page.push(Block::Notes([ELASTICITY].into_iter().chain(control).map(str::to_owned).collect()));
    }
    page
}

/// How to read the table of interventions.
const ELASTICITY: &str = "In each round, trials with and without each change run in random order. By: how much time was added to each request, batch or flush, \
    or by which factor the demand changed, and the name of the change. Expected: the loss if this resource were the limit. Elasticity: measured loss divided by expected loss, round by round; a mean of 0.7 to 1.5 \
    speaks for the limit, one up to 0.3 against it. In brackets: 95 % intervals over the rounds. Rules: docs/method.md";
const CONTROL: &str = "The control is a pause in each request, which uses no resource.";

/// What could be the limit of a workload, and its part in that, as [`NAMED`].
type Candidate<'a> = (&'a Evidence, &'static str);
const NAMED: &str = " (named)";
const WAITS: &str = " (delayed by the named limit)";

/// Heading and cell; `None` where a candidate has nothing of the kind.
const CANDIDATES: &[(&str, fn(&Candidate) -> Option<String>)] = &[
    ("<resource", |(of, _)| match &of.waiting {
        Some(waiting) => Some(format!("{} sessions", waiting.parts.join(" + "))),
        None => Some(of.resource.clone()),
    }),
    ("<kind", |(of, part)| Some(format!("{}{part}", sentences::limit(of)))),
    ("utilization", |(of, _)| of.waiting.is_none().then(|| percent(of.utilization, 0))),
    ("demand", |(of, _)| {
        let varies = finite(of.demand_variation).map(|share| format!(" ±{}", percent(share, 0)));
        Some(latency(Some(of.demand_us?)) + &varies.unwrap_or_default())
    }),
    ("100 % busy at, req/s", |(of, _)| {
        of.ceiling().map(|at| if at.or_more { format!("≥ {}", short(at.rps)) } else { short(at.rps) })
    }),
    ("queue growth", |(of, _)| finite(of.queue_growth).map(|growth| number(growth, 2))),
    ("<pressure", |(of, _)| of.pressure.map(|of| format!("{} {}", of.of, percent(of.share, 0)))),
];

/// All that could be the limit, what is named first; what was never busy is left out.
fn candidates(found: &WorkloadFindings) -> Vec<Candidate<'_>> {
    /// Less than this is no candidate.
    const SHOWN_MIN: f64 = 0.02;
    let named = &found.bottleneck.named;
    let is_other = |of: &&Evidence| {
        let is_named = named.iter().any(|known| known.resource == of.resource);
        !is_named && of.kind != ResourceKind::Indication && of.utilization >= SHOWN_MIN
    };
    let mut others: Vec<&Evidence> = found.bottleneck.candidates.iter().filter(is_other).collect();
    others.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
    let part = |of: &Evidence| if named.iter().any(|limit| of.waits_for(limit)) { WAITS } else { "" };
    let others = others.into_iter().map(|of| (of, part(of)));
    named.iter().map(|of| (of, NAMED)).chain(others).collect()
}

/// Heading and cell; nothing is expected of a control.
const INTERVENTIONS: &[(&str, fn(&Effect) -> Option<String>)] = &[
    ("<changed", |of| Some(slowed(of))),
    ("<by", |of| Some(how_slowed(of))),
    ("clients", |of| Some(of.level.to_string())),
    ("rounds", |of| Some(of.rounds.to_string())),
    ("loss, expected", |of| (!is_control(of)).then(|| percent(of.expected_loss, 1))),
    ("loss, measured", |of| Some(measured(of, &of.loss, |share| percent(share, 1)))),
    // It is about 1 at the limit, so it needs two decimals and no suffix.
    ("elasticity", |of| (!is_control(of)).then(|| measured(of, &of.elasticity, |of| number(of, 2)))),
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
