//! The page of a comparison: what is on it, in which order.

use super::sentences::{self, conclusion, failed, front, ratio};
use super::{Line, lines, plot};
use crate::columns::failed_checks;
use crate::document::{Block, Column, Document, Table, column};
use crate::format::{self, UNKNOWN};
use lab_analysis::compare::{ComparedWorkload, Figure, Kind, Measure, Ratio, Side};
use lab_analysis::{Comparison, MEASURES};
use std::collections::BTreeMap;

/// The figures of each table of a workload.
const TABLES: &[&[&str]] = &[
    &["goodput_rps"],
    &["cpu_us_per_attempt", "cores_used"],
    &["successes_per_core_sec"],
    &["latency_us_p50", "latency_us_p99"],
];

/// The title of the page.
fn title(comparison: &Comparison) -> String {
    if comparison.interleaved {
        return comparison.sides[0].title.clone();
    }
    let name = |side: &Side| format!("{} ({})", side.name, side.experiment);
    comparison.sides.iter().map(name).collect::<Vec<_>>().join(" and ")
}

/// The whole page.
pub(super) fn page(comparison: &Comparison) -> Document {
    let Side { weir_version, experiment, started, .. } = &comparison.sides[0];
    let above = match comparison.interleaved {
        true => format!("weir {weir_version} · {experiment} · {started} · targets compared"),
        false => "two runs compared".to_owned(),
    };
    let answers = front(comparison).into_iter().map(|(workload, said)| [workload, said]).collect();
    let mut blocks = vec![Block::Table(Table::new(["<workload", "<in short"], answers))];
    blocks.extend(plot::figure(comparison));
    let mut section = |title: &str, inner| blocks.push(Block::Section(title.to_owned(), inner));
    for of in &comparison.workloads {
        section(&of.name, workload(comparison, of));
    }
    let absent: Vec<&str> = comparison.absent.iter().map(String::as_str).collect();
    let absent = format!("Targets without results: {}.", format::listed(&absent));
    let absent = if comparison.absent.is_empty() { Vec::new() } else { vec![absent] };
    let sides = Block::Table(Table::of(&comparison.sides, SIDES, |_| false));
    section("What is compared", vec![sides, Block::Notes(absent)]);
    if !comparison.circumstances.is_empty() {
        section("What else differs", vec![Block::Table(circumstances(comparison))]);
    }
    section("How to read it", vec![Block::Notes(sentences::reading(comparison))]);
    Document { title: title(comparison), above, blocks }
}

fn workload(comparison: &Comparison, of: &ComparedWorkload) -> Vec<Block> {
    let about = Some(of.about.clone()).filter(|about| !about.is_empty());
    let words = about.into_iter().chain(sentences::durability(comparison, of)).map(Block::Text);
    let tables = TABLES.iter().map(|measures| Block::Table(table(comparison, of, measures)));
    words.chain(tables).chain([Block::Notes(sentences::notes(comparison, of))]).collect()
}

const SIDES: &[(&str, fn(&Side) -> Option<String>)] = &[
    ("<", |side| Some(side.name.clone())),
    ("<experiment", |side| Some(side.experiment.clone())),
    ("<target", |side| side.target.clone()),
    ("<started", |side| Some(side.started.clone())),
    ("<weir", |side| Some(side.weir_version.clone())),
    ("<processor time of", |side| (!side.parts.is_empty()).then(|| side.parts.join(", "))),
    ("<acknowledges a write", |side| Some(sentences::acknowledges(side).to_owned())),
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

/// The measures of these names, at every level and of every side.
fn table(comparison: &Comparison, workload: &ComparedWorkload, names: &[&str]) -> Table {
    let lines = lines(comparison, workload);
    let mut columns: Vec<Column<Line>> = vec![
        column("clients", |line: &Line| Some(line.clients.to_string())),
        column("<target", |line: &Line| Some(line.target())),
    ];
    for (i, measure) in MEASURES.iter().enumerate().filter(|(_, of)| names.contains(&of.name)) {
        columns.push(column(format!("{}, {}", measure.heading, measure.unit), move |line: &Line| {
            figure(measure, line.of.figures[i].as_ref()?)
        }));
        if measure.compared {
            let first = &comparison.sides[0].name;
            columns.push(column(format!("ratio, to {first}, 95 %"), move |line: &Line| match line.side {
                0 => Some("1".to_owned()),
                _ => Some(ratio(line.of.ratios[i].as_ref()?)),
            }));
            columns.push(column("<difference", move |line: &Line| match line.side {
                0 => Some(String::new()),
                _ => Some(difference(comparison, line.side, line.of.ratios[i].as_ref()?)),
            }));
        }
    }
    if names.contains(&"goodput_rps") {
        columns.push(column("<checks failed", |line: &Line| Some(failed_checks(&line.of.row))));
    }
    Table::of(&lines, &columns, |line| !line.of.row.usable())
}

fn figure(measure: &Measure, of: &Figure) -> Option<String> {
    match measure.kind {
        Kind::Latency => Some(format::latency(Some(of.value))),
        // Cores vary with the load; an interval says nothing.
        _ if !measure.compared => Some(format!("{:.2}", of.value)),
        _ => of.estimate.as_ref().map(format::spread),
    }
}

/// What a ratio says, and the checks that failed.
fn difference(comparison: &Comparison, other: usize, of: &Ratio) -> String {
    let (said, failed) = (conclusion(comparison, other, of), failed(of));
    if failed.is_empty() { said } else { format!("{said}; {failed}") }
}
