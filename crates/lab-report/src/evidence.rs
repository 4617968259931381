//! What speaks for the limit that is named: the table of candidates, and the interventions.

use super::document::{Block, Drawing, Table};
use super::format::{self, UNKNOWN, finite, known, latency, percent};
use super::sentences::{self, how_slowed, slowed};
use kv::units::short;
use lab_analysis::{Effect, Evidence, Grade, Interval, WorkloadFindings};
use lab_data::results::{Limit, ResourceKind};

/// Why this limit and no other. `drawing` is that of the interventions.
pub(super) fn blocks(found: &WorkloadFindings, drawing: Option<Drawing>) -> Vec<Block> {
    if sentences::is_open(found) || found.rows.iter().all(|row| row.runs == 0) {
        return Vec::new();
    }
    let bottleneck = &found.bottleneck;
    let heading = match bottleneck.grade {
        Grade::Confirmed | Grade::Supported => format!("Why {}", sentences::limits(&bottleneck.named)),
        _ => "What the resources show".to_owned(),
    };
    let mut page = vec![Block::Part(heading), Block::Notes(sentences::evidence(found))];
    let table = candidates(found);
    if !table.rows.is_empty() {
        page.push(Block::Table(table));
        page.push(Block::Notes(vec![format!(
            "At {}. Demand: busy time per request, ± its standard deviation over these levels. Full at: the throughput at \
             which the resource would be busy all the time. Queue growth: of each client more, how many wait there. \
             Elasticity: goodput lost over what a limit would lose.",
            format::levels(&bottleneck.levels)
        )]));
    }
    if let Some(drawing) = drawing {
        page.push(Block::Figure {
            drawing,
            caption: "Bar and whisker: the share of goodput lost, with its interval over the rounds. Upright line: what would \
                      be lost if the resource were the limit. Thicker: the resource that is named."
                .to_owned(),
        });
        page.push(Block::Table(interventions(found)));
    }
    page
}

/// A column of the candidates; `None` where a candidate has nothing of the kind.
type Column = (&'static str, fn(&WorkloadFindings, &Evidence) -> Option<String>);

const CANDIDATES: &[Column] = &[
    ("utilization", |_, of| of.waiting.is_none().then(|| format!("{:.2}", of.utilization))),
    ("demand", |_, of| {
        let varies = finite(of.demand_variation).map(|share| format!(" ±{:.0} %", share * 100.0));
        Some(latency(Some(of.demand_us?)) + &varies.unwrap_or_default())
    }),
    ("full at, req/s", |_, of| finite(of.ceiling_rps).map(short)),
    ("queue growth", |_, of| Some(format!("{:.2}", finite(of.queue_growth)?).replace('-', "−"))),
    ("elasticity", |found, of| {
        let raised = |effect: &&Effect| effect.change.raises.contains(&of.id);
        let effect = || found.effects.iter().find(raised).map(|effect| effect.elasticity);
        of.elasticity.or_else(effect).as_ref().map(format::elasticity)
    }),
    ("<waits", |_, of| of.waiting.as_ref().map(sentences::waiting_of)),
    ("<pressure", |_, of| of.pressure.map(|of| format!("{} {}", of.of.name(), percent(of.share)))),
    ("<called", |_, of| {
        let called = of.limit.filter(|limit| *limit != Limit::Other).map(Limit::name)?;
        (called != of.resource).then(|| called.to_owned())
    }),
];

/// All that could be the limit, what is named first; what was never busy is left out.
fn candidates(found: &WorkloadFindings) -> Table {
    /// Less than this is no candidate.
    const SHOWN_MIN: f64 = 0.02;
    let named = &found.bottleneck.named;
    let is_other = |of: &&Evidence| {
        let is_named = named.iter().any(|known| known.resource == of.resource);
        !is_named && of.kind != ResourceKind::Indication && of.utilization >= SHOWN_MIN
    };
    let mut others: Vec<&Evidence> = found.bottleneck.candidates.iter().filter(is_other).collect();
    others.sort_by(|a, b| b.utilization.total_cmp(&a.utilization));
    let all: Vec<&Evidence> = named.iter().chain(others).collect();
    // A column of dashes says nothing.
    let is_known = |column: &&Column| all.iter().any(|of| (column.1)(found, of).is_some());
    let shown: Vec<&Column> = CANDIDATES.iter().filter(is_known).collect();
    let headings: Vec<&str> =
        std::iter::once("<candidate").chain(shown.iter().map(|column| column.0)).collect();
    let mut table = Table::new(&headings);
    for (i, of) in all.iter().enumerate() {
        let is_named = i < named.len();
        let name = if is_named { format!("{} (named)", of.resource) } else { of.resource.clone() };
        let cells = shown.iter().map(|column| (column.1)(found, of).unwrap_or_else(|| UNKNOWN.to_owned()));
        table.push_row(std::iter::once(name).chain(cells), !is_named && !named.is_empty());
    }
    table
}

fn interventions(found: &WorkloadFindings) -> Table {
    let mut table =
        Table::new(&["<made slower", "<by", "clients", "rounds", "a limit loses", "lost", "elasticity"]);
    let percent =
        |share: f64| known(Some(share), |share| format!("{:.1} %", share * 100.0 + 0.0).replace('-', "−"));
    for effect in &found.effects {
        let loss = &effect.loss;
        let lost = match loss.interval {
            Interval::Single => percent(loss.mean),
            _ => format!("{} ({} to {})", percent(loss.mean), percent(loss.low), percent(loss.high)),
        };
        let (expected, elasticity) = match effect.change.raises.is_empty() {
            true => (UNKNOWN.to_owned(), UNKNOWN.to_owned()),
            false => (percent(effect.expected_loss), format::elasticity(&effect.elasticity)),
        };
        let (level, rounds) = (effect.level.to_string(), effect.rounds.to_string());
        table.push([slowed(effect), how_slowed(effect), level, rounds, expected, lost, elasticity]);
    }
    table
}

#[cfg(test)]
mod tests;
