//! The page of a run: what is on it, in which order.

use super::accuracy;
use super::answers::answers;
use super::checks;
use super::columns::{Bound, columns};
use super::document::{Block, Card, Column, Document, Figure, Table, column};
use super::evidence;
use super::format::{self, known, percent, tally};
use super::plots::{self, figure};
use super::published;
use super::resources;
use super::search;
use super::sentences;
use kv::units::short;
use lab_analysis::{Findings, HitRatio, Knee, Row, WorkloadFindings};
use lab_data::results::{Placement, Results};
use std::collections::BTreeSet;

/// The page.
pub(super) fn document(results: &Results, findings: &Findings) -> Document {
    let mut blocks: Vec<Block> = accuracy::warning(results).map(Block::Warning).into_iter().collect();
    let overview = |found| figure(plots::Figure::Overview, found);
    blocks.push(Block::Front {
        cards: cards(findings),
        figure: Figure {
            drawings: findings.workloads.iter().filter_map(overview).collect(),
            caption: sentences::overview(&findings.workloads),
        },
    });
    let mut section = |title: &str, inner| blocks.push(Block::Section(title.to_owned(), inner));
    section("Checks", checks::blocks(results, findings));
    section("Accuracy of the load generator", accuracy::blocks(results));
    if findings.workloads.iter().any(|found| !found.hit_ratios.is_empty()) {
        section("Hit ratio by policy", hit_ratios(findings));
    }
    section("How to read the tables", vec![Block::Table(terms(results))]);
    for found in &findings.workloads {
        section(&found.name, workload(results, found));
    }
    section("Environment, and how to repeat it", environment(results));
    Document {
        title: results.title.clone(),
        above: format!("weir {} · {} · started {}", results.weir_version, results.name, results.started),
        blocks,
    }
}

/// The answers for every workload.
pub(super) fn cards(findings: &Findings) -> Vec<Card> {
    let card = |found: &WorkloadFindings| Card { name: found.name.clone(), answers: answers(found) };
    findings.workloads.iter().map(card).collect()
}

/// Heading and cell of a hit ratio and its workload.
const HIT_RATIOS: &[(&str, fn(&(&str, &HitRatio)) -> Option<String>)] = &[
    ("<workload", |(workload, _)| Some((*workload).to_owned())),
    ("<policy", |(_, of)| Some(of.policy.clone().unwrap_or_else(|| "the cache".to_owned()))),
    ("reads", |(_, of)| Some(short(of.reads))),
    ("hit ratio", |(_, of)| Some(percent(of.hit_ratio, 1))),
];

/// The cache beside the policies that the target simulated.
fn hit_ratios(findings: &Findings) -> Vec<Block> {
    let all: Vec<(&str, &HitRatio)> = (findings.workloads.iter())
        .flat_map(|found| found.hit_ratios.iter().map(|of| (found.name.as_str(), of)))
        .collect();
    let note = "Hits over reads, in the windows of all trials of the workload. The cache itself has the policy it was \
                started with. The others were simulated beside it on the same requests and limits, with a hash and the size of each row instead of the row (--shadow-policies).";
    vec![Block::Table(Table::of(&all, HIT_RATIOS, |_| false)), Block::Notes(vec![note.to_owned()])]
}

/// What the words in the tables of a workload mean: `term: meaning`. What begins with `?` is only there if some resource is called so.
const TERMS: &str = include_str!("terms.txt");

fn terms(results: &Results) -> Table {
    let is_known = |term: &str| {
        let of_some = term.strip_prefix('?');
        of_some.is_none_or(|term| results.resources.iter().any(|of| of.name.contains(term)))
    };
    let all = TERMS.lines().filter_map(|line| line.split_once(": "));
    let shown = all.filter(|(term, _)| is_known(term));
    let rows = shown.map(|(term, means)| [term.trim_start_matches('?'), means].map(str::to_owned));
    Table::new(["<in the tables", "<meaning"], rows.collect())
}

fn workload(results: &Results, found: &WorkloadFindings) -> Vec<Block> {
    let about = Some(found.about.clone()).filter(|about| !about.is_empty());
    let mut page: Vec<Block> = about.into_iter().chain(sentences::pacing(found)).map(Block::Text).collect();
    page.push(Block::Part("Goodput and latency".to_owned()));
    page.push(Block::Table(levels(results, found, false)));
    let mut notes = sentences::failures(&found.rows.iter().collect::<Vec<_>>());
    let failed: Vec<&Row> = found.rows.iter().filter(|row| !row.errors.is_empty()).collect();
    if found.rows.iter().all(|row| row.error_ratio.is_none_or(|ratio| ratio == 0.0))
        && found.rows.iter().any(|row| row.attempts_rps > Some(0.0))
    {
        notes.push("No attempt failed at any level.".to_owned());
    }
    page.push(Block::Notes(notes));
    if !failed.is_empty() {
        page.push(Block::Part("Failed attempts by class".to_owned()));
        page.push(Block::Table(errors(&failed)));
    }
    page.extend(search::blocks(found));
    page.extend(published::blocks(found));
    page.extend(found.knee.iter().flat_map(|of| knee(of, found)));
    page.extend(evidence::blocks(found));
    if let Some(drawing) = figure(plots::Figure::Resources, found) {
        page.push(Block::Part("Utilization".to_owned()));
        page.push(Block::figure(drawing, sentences::UTILIZATION));
        page.push(Block::Table(levels(results, found, true)));
    }
    page.extend(resources::blocks(found));
    if let Some((of, drawing)) = found.time_series.as_ref().zip(figure(plots::Figure::TimeSeries, found)) {
        page.push(Block::Part("A trial near the knee".to_owned()));
        page.push(Block::figure(drawing, sentences::time_series_caption(of)));
    }
    page
}

/// What the clients saw at each level, or how busy the resources were.
fn levels(results: &Results, found: &WorkloadFindings, of_resources: bool) -> Table {
    let is_clients = |of: &Bound| of.name == "clients";
    let is_shown = |of: &Bound| match of.resource {
        // A resource that no trial of this workload uses is not shown.
        Some(i) => of_resources && found.rows.iter().any(|row| row.uses(i)),
        None => is_clients(of) || !of_resources && !is_quiet(found, of),
    };
    let shown = columns(results).into_iter().filter(|of| !of.heading.is_empty() && is_shown(of));
    let columns: Vec<_> = shown.map(|of| (of.heading, move |row: &Row| (of.cell)(row).text)).collect();
    Table::of(&found.rows, &columns, |row| !row.usable())
}

/// Whether a column says of each level that nothing went wrong.
fn is_quiet(found: &WorkloadFindings, of: &Bound) -> bool {
    let is_quiet = |row| matches!((of.cell)(row).text.as_deref(), Some("none" | "0.00 %"));
    found.rows.iter().all(is_quiet)
}

/// The knee by four methods.
fn knee(of: &Knee, found: &WorkloadFindings) -> Vec<Block> {
    let other = |method: &str, value: Option<f64>| [method.to_owned(), known(value, format::clients)];
    let clients = format::clients(of.clients) + &sentences::between_clients(of.ends);
    let rows = vec![
        ["highest throughput × (mean latency at the lowest level + think time)".to_owned(), clients],
        other("broken stick: where two straight lines fitted to the goodput meet", of.broken_stick),
        other("Kleinrock’s power: level with the highest goodput ÷ latency", of.power),
        other(
            "Kneedle: level that is furthest above a straight line between the ends of the curve",
            of.kneedle,
        ),
    ];
    let (low, high) = of.swept;
    let blunt =
        (!of.sharp).then_some("The methods differ by more than a factor of 2, so the knee is uncertain.");
    let methods =
        format!("The first is the answer; the others are calculated from all levels, {low}–{high}.");
    let notes = [blunt, sentences::knee_brackets(of, found)].into_iter().flatten().map(str::to_owned);
    vec![
        Block::Part("Knee, by four methods".to_owned()),
        Block::Table(Table::new(["<method", "clients"], rows)),
        Block::Notes([methods].into_iter().chain(notes).collect()),
    ]
}

/// Failed attempts by level and class, of all runs together.
fn errors(rows: &[&Row]) -> Table {
    let classes: BTreeSet<&String> = rows.iter().flat_map(|row| row.errors.keys()).collect();
    let mut columns: Vec<Column<&Row>> = vec![column("clients", |row: &&Row| Some(row.level.to_string()))];
    columns.extend(classes.into_iter().map(|class| {
        column(class, move |row: &&Row| Some(tally(row.errors.get(class).copied().unwrap_or(0))))
    }));
    Table::of(rows, &columns, |_| false)
}

const PINNING: &[(&str, fn(&Placement) -> Option<String>)] = &[
    ("<part", |of| Some(of.part.clone())),
    ("<cores", |of| Some(of.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))),
    ("<shares cores with", |of| (!of.shares_with.is_empty()).then(|| of.shares_with.join(", "))),
    ("<shares physical cores with", |of| (!of.siblings_with.is_empty()).then(|| of.siblings_with.join(", "))),
];

/// Where it was measured and how to do it again.
fn environment(results: &Results) -> Vec<Block> {
    let known = results.environment.iter().map(|(name, value)| [name.clone(), value.clone()]);
    let environment = known.chain([["seed".to_owned(), results.seed.to_string()]]).collect();
    let mut page = vec![Block::Table(Table::new(["<environment", "<"], environment))];
    page.push(match results.placements.is_empty() {
        true => Block::Text("Nothing was pinned to a core.".to_owned()),
        false => Block::Table(Table::of(&results.placements, PINNING, |_| false)),
    });
    page.push(Block::Part("The experiment".to_owned()));
    page.extend(sentences::lengths(results).map(Block::Text));
    page.push(Block::Verbatim(results.experiment_toml.clone()));
    page.push(Block::Part("To repeat".to_owned()));
    page.push(Block::Verbatim(results.command.clone()));
    page
}
