//! The page of a comparison: what is on it, in which order.

use super::plot;
use super::sentences::{self, front, ratio};
use crate::columns::failed_checks;
use crate::document::{Block, Column, Document, Table, column};
use crate::format::{self, UNKNOWN, latency};
use lab_analysis::compare::{ComparedWorkload, Figure, Measure, Side, SideOfLevel};
use lab_analysis::{Comparison, MEASURES};
use std::collections::BTreeMap;

/// The whole page.
pub(super) fn page(comparison: &Comparison) -> Document {
    let Side { weir_version, experiment, started, .. } = &comparison.sides[0];
    let above = match comparison.interleaved {
        true => format!("weir {weir_version} · {experiment} · {started} · targets compared"),
        false => "two runs compared".to_owned(),
    };
    let names: Vec<&str> = comparison.sides.iter().map(|side| side.name.as_str()).collect();
    let mut blocks = vec![Block::Table(Table::new(["<workload", "<in short"], front(comparison)))];
    blocks.extend(plot::figure(comparison));
    let mut section = |title: &str, inner| blocks.push(Block::Section(title.to_owned(), inner));
    for of in &comparison.workloads {
        section(&of.name, workload(comparison, of));
    }
    let sides = Block::Table(Table::of(&comparison.sides, SIDES, |_| false));
    let absent = format!("Targets without results: {}.", format::listed(&comparison.absent));
    let absent = (!comparison.absent.is_empty()).then_some(Block::Text(absent));
    section("What is compared", [sides].into_iter().chain(absent).collect());
    if !comparison.circumstances.is_empty() {
        section("What else differs", vec![Block::Table(circumstances(comparison))]);
    }
    section("How to read it", vec![Block::Notes(sentences::reading(comparison))]);
    Document { title: format::listed(&names), above, blocks }
}

fn workload(comparison: &Comparison, of: &ComparedWorkload) -> Vec<Block> {
    let about = (!of.about.is_empty()).then(|| of.about.clone());
    let words = about.into_iter().chain(sentences::durability(comparison, of)).map(Block::Text);
    let is_known = |measure: &usize| {
        of.levels.iter().flat_map(|level| &level.sides).flatten().any(|side| side.figures[*measure].is_some())
    };
    let known = (0..MEASURES.len()).filter(is_known);
    let tables = known.map(|measure| Block::Table(table(comparison, of, measure)));
    words.chain(tables).chain([Block::Notes(sentences::notes(comparison, of))]).collect()
}

const SIDES: &[(&str, fn(&Side) -> Option<String>)] = &[
    ("<", |side| Some(side.name.clone())),
    ("<experiment", |side| Some(side.experiment.clone())),
    ("<started", |side| Some(side.started.clone())),
    ("<processor time of", |side| (!side.parts.is_empty()).then(|| side.parts.join(", "))),
    ("<acknowledges a write", |side| side.durability.clone()),
];

/// A line for each value of each circumstance.
fn circumstances(comparison: &Comparison) -> Table {
    let mut rows = Vec::new();
    for difference in &comparison.circumstances {
        let mut sides: BTreeMap<&Option<String>, Vec<&str>> = BTreeMap::new();
        for (side, value) in comparison.sides.iter().zip(&difference.of) {
            sides.entry(value).or_default().push(&side.name);
        }
        rows.extend(sides.into_iter().map(|(value, names)| {
            let value = value.clone().unwrap_or_else(|| UNKNOWN.to_owned());
            [difference.what.clone(), format::listed(&names), value]
        }));
    }
    Table::new(["<", "<of", "<is"], rows)
}

/// The clients of a level, the index of a side, and what that has at the level.
type Line<'a> = (u32, usize, &'a SideOfLevel);

/// A measure at every level and of every side.
fn table(comparison: &Comparison, workload: &ComparedWorkload, measure: usize) -> Table {
    let Measure { label, unit, .. } = MEASURES[measure];
    let lines = workload.levels.iter().flat_map(|level| {
        let sides = level.sides.iter().enumerate();
        sides.filter_map(|(side, of)| Some((level.clients, side, of.as_ref()?)))
    });
    let of_first = |side: &usize, said: &str| (*side == 0).then(|| said.to_owned());
    let difference = |side: &usize, of: &SideOfLevel| {
        of.ratios[measure].as_ref().map(|of| sentences::conclusion(comparison, *side, of))
    };
    let columns: Vec<Column<Line>> = vec![
        column("clients", |(clients, ..): &Line| Some(clients.to_string())),
        column("<target", |(_, side, _): &Line| Some(comparison.sides[*side].name.clone())),
        column(format!("{label}, {unit}"), |(.., of): &Line| of.figures[measure].as_ref().map(figure)),
        column(format!("ratio, to {}, 95 %", comparison.sides[0].name), |(_, side, of): &Line| {
            of.ratios[measure].as_ref().map(ratio).or_else(|| of_first(side, "1"))
        }),
        column("<difference", |(_, side, of): &Line| difference(side, of).or_else(|| of_first(side, ""))),
        column("<failed checks", |(.., of): &Line| Some(failed_checks(&of.row))),
    ];
    Table::of(&lines.collect::<Vec<Line>>(), &columns, |(.., of)| !of.row.usable())
}

/// A mean with its interval, or a median.
fn figure(of: &Figure) -> String {
    of.estimate.as_ref().map_or_else(|| latency(Some(of.value)), format::spread)
}
