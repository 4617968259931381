//! What stands behind the name of a bottleneck: sentences, the table of candidates, and interventions.

use super::page::{Block, Table};
use super::plots::effects;
use super::words::{self, UNKNOWN};
use kv::units::short;
use lab_analysis::bottleneck::pressure;
use lab_analysis::{Effect, Estimate, Evidence, Grade, Interval, Row, Use, WorkloadFindings};
use lab_data::results::{Limit, ResourceKind};

/// The numbers behind knee and bottleneck, as sentences.
pub(super) fn sentences(found: &WorkloadFindings) -> String {
    let mut said = Vec::new();
    if let Some(knee) = &found.knee {
        let spread = &knee.spread;
        let other = |value: Option<f64>, ends: Option<(f64, f64)>| {
            let said = words::known(value, words::clients);
            match ends.map(|(low, high)| (words::clients(low), words::clients(high))) {
                Some((low, high)) if low != high && said != UNKNOWN => format!("{said} ({low}–{high})"),
                _ => said,
            }
        };
        said.push(format!(
            "Knee, in clients: {} where the bounds cross, {} by a broken stick, {} by Kleinrock’s power, {} by Kneedle \
             (swept {}–{}){}.{}",
            other(Some(knee.clients), Some(spread.clients)),
            other(knee.broken_stick, spread.broken_stick),
            other(knee.power, spread.power),
            other(knee.kneedle, spread.kneedle),
            knee.swept.0,
            knee.swept.1,
            if knee.sharp { "" } else { "; they differ by more than 2×, so there is no sharp knee" },
            words::of_knee(spread),
        ));
    }
    let bottleneck = &found.bottleneck;
    said.extend(
        bottleneck.named.iter().filter_map(|of| Some(words::waiting(&of.resource, of.waiting.as_ref()?))),
    );
    if bottleneck.because.is_empty() {
        for of in bottleneck.named.iter().chain(&bottleneck.load_dependent) {
            if of.waiting.is_some() {
                continue;
            }
            let demand = words::latency(of.demand_us);
            let varies = words::known(of.demand_variation, |share| format!("±{:.1} %", share * 100.0));
            let ceiling = words::known(of.ceiling_rps, short);
            said.push(format!(
                "At {} {} is busy for {:.1} % of the time and takes {demand} per request ({varies} over these levels), \
                 a ceiling of {ceiling} req/s{}.",
                words::levels(&bottleneck.levels),
                of.resource,
                of.utilization * 100.0,
                if of.load_dependent { "; load-dependent (batching), so it is not named" } else { "" },
            ));
        }
    }
    if let Some(next) = &bottleneck.next {
        said.push(format!(
            "Without that limit {} would be next, at {} req/s.",
            next.resource,
            short(next.ceiling_rps)
        ));
    }
    if said.is_empty() {
        said.push(format!("{}.", words::capitalized(&words::capacity(found))));
    }
    said.join(" ")
}

/// Why this bottleneck and no other: what speaks for it, the candidates, and what became of interventions. `figure` is the
/// drawing of the last.
pub(super) fn blocks(found: &WorkloadFindings, figure: Option<usize>) -> Vec<Block> {
    if words::is_open(found) || found.rows.iter().all(|row| row.runs == 0) {
        return Vec::new();
    }
    let mut page = vec![Block::Part(heading(found))];
    page.push(Block::Notes(found.bottleneck.because.iter().map(|said| words::capitalized(said)).collect()));
    let table = candidates(found);
    if !table.rows.is_empty() {
        page.push(Block::Table(table));
        page.push(Block::Notes(vec![format!(
            "At {}. Demand: busy time per request, ± its standard deviation over these levels. Queue growth: of each client \
             more, how many wait there. Elasticity: goodput lost over what a limit would lose.",
            words::levels(&found.bottleneck.levels)
        )]));
    }
    if let Some(index) = figure {
        page.push(Block::Figure { index, caption: effects_caption(found) });
        page.push(Block::Table(interventions(found)));
    }
    page
}

fn heading(found: &WorkloadFindings) -> String {
    let named = &found.bottleneck.named;
    match found.bottleneck.grade {
        Grade::Confirmed | Grade::Supported => format!("Why {}", words::limits(named)),
        _ => "What the resources say".to_owned(),
    }
}

/// A candidate as the table shows it.
struct Candidate {
    name: String,
    called: String,
    utilization: Option<f64>,
    demand_us: Option<f64>,
    demand_variation: Option<f64>,
    ceiling_rps: Option<f64>,
    queue_growth: Option<f64>,
    waits: String,
    limit: Option<Limit>,
    elasticity: Option<Estimate>,
}

/// All that could be the limit, the winner first; what was never busy is left out.
fn candidates(found: &WorkloadFindings) -> Table {
    /// Less than this is no candidate.
    const SHOWN_MIN: f64 = 0.02;
    let bottleneck = &found.bottleneck;
    let mut all: Vec<Candidate> = Vec::new();
    let known = bottleneck.named.iter().chain(&bottleneck.load_dependent);
    for of in known {
        if all.iter().all(|known| known.name != of.resource) {
            all.push(of_evidence(found, of));
        }
    }
    let winners = bottleneck.named.len();
    let deciding: Vec<&Row> =
        found.rows.iter().filter(|row| bottleneck.levels.contains(&row.level)).collect();
    let resources = deciding.first().map_or(0, |row| row.resources.len());
    let others = (0..resources).filter_map(|i| of_use(found, &deciding, i));
    let busy = |of: &Candidate| of.utilization.is_some_and(|share| share >= SHOWN_MIN);
    for of in others.filter(busy) {
        if all.iter().all(|known| known.name != of.name) {
            all.push(of);
        }
    }
    let others = all.split_off(winners.min(all.len()));
    let mut others = others;
    others.sort_by(|a, b| b.utilization.unwrap_or(0.0).total_cmp(&a.utilization.unwrap_or(0.0)));
    all.extend(others);

    type Column = (&'static str, fn(&Candidate) -> Option<String>);
    let columns: [Column; 8] = [
        ("utilization", |of| of.utilization.map(|share| format!("{share:.2}"))),
        ("demand", |of| {
            let varies = words::known(of.demand_variation, |share| format!(" ±{:.0} %", share * 100.0));
            let varies = if varies == UNKNOWN { String::new() } else { varies };
            Some(format!("{}{varies}", words::latency(Some(of.demand_us?))))
        }),
        ("ceiling, req/s", |of| of.ceiling_rps.map(short)),
        ("queue growth", |of| of.queue_growth.map(|growth| format!("{growth:.2}").replace('-', "−"))),
        ("elasticity", |of| of.elasticity.as_ref().map(effects::elasticity)),
        ("<waits", |of| Some(of.waits.clone()).filter(|waits| !waits.is_empty())),
        ("<pressure", |_| None),
        ("<called", |of| Some(of.called.clone()).filter(|called| !called.is_empty())),
    ];
    let pressures: Vec<Option<String>> = all.iter().map(|of| pressed(of, &deciding)).collect();
    let cell = |column: &Column, i: usize| match column.0 {
        "<pressure" => pressures[i].clone(),
        _ => (column.1)(&all[i]),
    };
    // A column of dashes says nothing.
    let shown: Vec<&Column> =
        columns.iter().filter(|column| (0..all.len()).any(|i| cell(column, i).is_some())).collect();
    let head: Vec<&str> = std::iter::once("<candidate").chain(shown.iter().map(|column| column.0)).collect();
    let mut table = Table::new(&head);
    for (i, of) in all.iter().enumerate() {
        let name = if i < winners { format!("{} (named)", of.name) } else { of.name.clone() };
        let cells = shown.iter().map(|column| cell(column, i).unwrap_or_else(|| UNKNOWN.to_owned()));
        table.rows.push((std::iter::once(name).chain(cells).collect(), winners > 0 && i >= winners));
    }
    table
}

fn of_evidence(found: &WorkloadFindings, of: &Evidence) -> Candidate {
    Candidate {
        name: of.resource.clone(),
        called: called(of.limit, &of.resource),
        utilization: Some(of.utilization).filter(|_| of.waiting.is_none()),
        demand_us: of.demand_us,
        demand_variation: of.demand_variation,
        ceiling_rps: of.ceiling_rps,
        queue_growth: of.queue_growth,
        waits: of.waiting.as_ref().map_or_else(String::new, words::held),
        limit: of.limit,
        elasticity: of.elasticity.or_else(|| elasticity(found, &of.resource)),
    }
}

/// A resource of which nothing was concluded: its means over the levels that decide.
fn of_use(found: &WorkloadFindings, deciding: &[&Row], i: usize) -> Option<Candidate> {
    let first = &deciding.first()?.resources[i];
    if matches!(first.kind, ResourceKind::Indication) {
        return None;
    }
    // As in the evidence: cores that parts share are named after the one that uses them, where there is one.
    let part = first.mostly.as_ref();
    let part = part.filter(|part| deciding.iter().all(|row| row.resources[i].mostly.as_ref() == Some(part)));
    let name = part.map_or_else(|| first.name.clone(), |part| format!("{part} CPU"));
    let mean = |read: fn(&Use) -> Option<f64>| {
        let all: Option<Vec<f64>> = deciding.iter().map(|row| read(row.resources.get(i)?)).collect();
        all.map(|all| all.iter().sum::<f64>() / all.len() as f64)
    };
    let demand_us = mean(|of| of.demand_us);
    let places = || found.rows.iter().filter_map(|row| row.population.as_ref()).flat_map(|of| &of.places);
    let limit = places().find(|place| place.resource == first.name).and_then(|place| place.limit);
    Some(Candidate {
        called: called(limit, &name),
        utilization: mean(|of| of.utilization),
        demand_us,
        demand_variation: None,
        ceiling_rps: demand_us.filter(|us| *us > 0.0).map(|us| first.servers * 1e6 / us),
        queue_growth: None,
        waits: String::new(),
        limit,
        elasticity: elasticity(found, &first.name),
        name,
    })
}

/// What a resource is called as a bottleneck, where that is another name.
fn called(limit: Option<Limit>, name: &str) -> String {
    let called = limit.filter(|limit| *limit != Limit::Other).map(Limit::name);
    called.filter(|called| *called != name).unwrap_or_default().to_owned()
}

fn elasticity(found: &WorkloadFindings, resource: &str) -> Option<Estimate> {
    let of_it = |effect: &&Effect| effect.change.raises.iter().any(|raised| raised == resource);
    found.effects.iter().find(of_it).map(|effect| effect.elasticity)
}

/// The pressure that belongs to a limit: `cpu: some wait 48 %`.
fn pressed(of: &Candidate, deciding: &[&Row]) -> Option<String> {
    let found = pressure(of.limit?, deciding)?;
    Some(format!("{} {}", found.of.name(), words::percent(found.share)))
}

fn effects_caption(found: &WorkloadFindings) -> String {
    let named = found.effects.iter().any(|effect| effects::is_named(found, effect));
    let named = if named { " Filled stronger and thicker: the resource that is named." } else { "" };
    format!(
        "Bar and whisker: the share of goodput lost, with its interval over the rounds. Upright tick: what had to be lost if \
         the resource were the limit.{named}"
    )
}

fn interventions(found: &WorkloadFindings) -> Table {
    let mut table =
        Table::new(&["<made slower", "<by", "clients", "rounds", "a limit loses", "lost", "elasticity"]);
    let percent = |share: f64| {
        words::known(Some(share), |share| format!("{:.1} %", share * 100.0 + 0.0).replace('-', "−"))
    };
    for effect in &found.effects {
        let control = effect.change.raises.is_empty();
        let loss = &effect.loss;
        table.push([
            effects::subject(effect),
            effects::how(effect),
            effect.level.to_string(),
            effect.rounds.to_string(),
            if control { UNKNOWN.to_owned() } else { percent(effect.expected_loss) },
            match loss.interval {
                Interval::Single => percent(loss.mean),
                _ => format!("{} ({} to {})", percent(loss.mean), percent(loss.low), percent(loss.high)),
            },
            if control { UNKNOWN.to_owned() } else { effects::elasticity(&effect.elasticity) },
        ]);
    }
    table
}

#[cfg(test)]
mod tests;
