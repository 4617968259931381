//! What speaks for the limit that is named: the table of candidates, and the interventions.

use super::document::{Block, Drawing, Table};
use super::format::{self, count, elasticity, finite, latency, loss, percent, slug, trimmed};
use super::plots::bars::{Bar, Bars, drawn};
use super::sentences::{self, how_slowed, slowed};
use super::svg::Colour;
use kv::units::short;
use lab_analysis::{Effect, Evidence, Grade, Interval, WorkloadFindings};
use lab_data::results::ResourceKind;

/// Why this limit and no other.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    if sentences::is_open(found) || found.rows.iter().all(|row| row.runs == 0) {
        return Vec::new();
    }
    let bottleneck = &found.bottleneck;
    let heading = match bottleneck.grade {
        Grade::Confirmed | Grade::Supported => format!("Why {}", sentences::limits(&bottleneck.named)),
        _ => "What the resources show".to_owned(),
    };
    let mut page = vec![Block::Part(heading), Block::Notes(sentences::evidence(found))];
    let candidates = candidates(found);
    if !candidates.is_empty() {
        let is_grey = |row: &Candidate| !row.is_named && !bottleneck.named.is_empty();
        page.push(Block::Table(Table::of(&candidates, CANDIDATES, is_grey)));
        page.push(Block::Notes(vec![format!(
            "At {}. Demand: busy time per request, ± its standard deviation over these levels. At 100 % busy: the throughput at \
             which the resource would be busy all the time. Queue growth: of each client more, how many wait there. \
             Elasticity: measured loss of goodput divided by the loss expected of a limit.",
            format::levels(&bottleneck.levels)
        )]));
    }
    if let Some(first) = found.effects.first() {
        let caption = "Bar and whisker: the share of goodput lost, with its confidence interval. Vertical line: what would \
                       be lost if the resource were the limit. Grey: the control.";
        page.push(Block::figure(drawing(found, first), caption));
        page.push(Block::Table(Table::of(&found.effects, INTERVENTIONS, |_| false)));
    }
    page
}

/// What could be the limit of a workload.
struct Candidate<'a> {
    found: &'a WorkloadFindings,
    of: &'a Evidence,
    is_named: bool,
}

/// Heading and cell; `None` where a candidate has nothing of the kind.
const CANDIDATES: &[(&str, fn(&Candidate) -> Option<String>)] = &[
    ("<candidate", |row| Some(format!("{}{}", row.of.resource, if row.is_named { " (named)" } else { "" }))),
    ("utilization", |row| row.of.waiting.is_none().then(|| format!("{:.2}", row.of.utilization))),
    ("demand", |row| {
        let varies = finite(row.of.demand_variation).map(|share| format!(" ±{:.0} %", share * 100.0));
        Some(latency(Some(row.of.demand_us?)) + &varies.unwrap_or_default())
    }),
    ("at 100 % busy, req/s", |row| finite(row.of.ceiling_rps).map(short)),
    ("queue growth", |row| Some(format!("{:.2}", finite(row.of.queue_growth)?).replace('-', "−"))),
    ("elasticity", |row| {
        let raised = |effect: &&Effect| effect.change.raises.contains(&row.of.id);
        let effect = || row.found.effects.iter().find(raised).map(|effect| effect.elasticity);
        row.of.elasticity.or_else(effect).as_ref().map(elasticity)
    }),
    ("<waits", |row| row.of.waiting.as_ref().map(sentences::waiting_of)),
    ("<pressure", |row| row.of.pressure.map(|of| format!("{} {}", of.of.name(), percent(of.share)))),
    ("<called", |row| {
        Some(sentences::limit(row.of)).filter(|name| *name != row.of.resource).map(str::to_owned)
    }),
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
    let candidate = |(i, of)| Candidate { found, of, is_named: i < named.len() };
    named.iter().chain(others).enumerate().map(candidate).collect()
}

/// Heading and cell; nothing is expected of a control.
const INTERVENTIONS: &[(&str, fn(&Effect) -> Option<String>)] = &[
    ("<slowed", |of| Some(slowed(of))),
    ("<by", |of| Some(how_slowed(of))),
    ("clients", |of| Some(of.level.to_string())),
    ("rounds", |of| Some(of.rounds.to_string())),
    ("expected loss of a limit", |of| (!is_control(of)).then(|| loss(of.expected_loss))),
    ("measured loss", |of| Some(format::with_ends(&of.loss, loss))),
    ("elasticity", |of| (!is_control(of)).then(|| elasticity(&of.elasticity))),
];

fn is_control(of: &Effect) -> bool {
    of.change.raises.is_empty()
}

/// A bar of goodput lost for each intervention, beside what a limit would have had to lose.
fn drawing(found: &WorkloadFindings, first: &Effect) -> Drawing {
    let bar = |of: &Effect| {
        let is_named = found.bottleneck.named.iter().any(|named| named.is_slowed_by(of));
        let (colour, said) = match (is_control(of), is_named) {
            (true, _) => (Colour::Soft, "control".to_owned()),
            (_, true) => (Colour::Series(1), elasticity(&of.elasticity) + ", named"),
            (_, false) => (Colour::Series(0), elasticity(&of.elasticity)),
        };
        Bar {
            name: slowed(of),
            below: how_slowed(of),
            colour,
            value: of.loss.mean,
            interval: (of.loss.interval != Interval::Single).then_some((of.loss.low, of.loss.high)),
            expected: (!is_control(of)).then_some(of.expected_loss),
            opacity: 0.45,
            said,
        }
    };
    let bars = Bars {
        title: format!("Goodput lost when one resource is made slower, at {}", count(first.level, "client")),
        said: "elasticity",
        tick: |share| trimmed(&format!("{:.1} %", share * 100.0)),
        bars: found.effects.iter().map(bar).collect(),
    };
    Drawing {
        file: format!("plots/{}.interventions.svg", slug(&found.name)),
        label: format!("{}: goodput lost when one resource was made slower", found.name),
        svg: drawn(&[bars]),
    }
}

#[cfg(test)]
mod tests;
