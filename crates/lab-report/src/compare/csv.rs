//! `compare.csv`: one line for each figure of each side at each level. The unit stands last in the figure's name.

use super::sentences::{conclusion, failed};
use super::{Line, lines};
use crate::format::finite;
use crate::{csv, format};
use lab_analysis::compare::{Figure, Quotient, Ratio};
use lab_analysis::{Comparison, MEASURES};

/// A side at a level, and the index of a measure.
type Cell<'a> = (Line<'a>, usize);

/// Heading and cell; `None` is an empty one.
const COLUMNS: &[(&str, fn(&Cell) -> Option<String>)] = &[
    ("workload", |(line, _)| Some(line.workload.name.clone())),
    ("clients", |(line, _)| Some(line.clients.to_string())),
    ("target", |(line, _)| Some(line.target())),
    ("figure", |(_, i)| Some(MEASURES[*i].name.to_owned())),
    ("value", |cell| number(figure(cell)?.value)),
    ("low", |cell| number(figure(cell)?.estimate?.low)),
    ("high", |cell| number(figure(cell)?.estimate?.high)),
    ("runs", |cell| Some(figure(cell).map_or(0, |of| of.of_runs.len()).to_string())),
    ("compared_with", |cell| ratio(cell).map(|_| cell.0.comparison.sides[0].name.clone())),
    ("ratio", |cell| number(quotient(cell)?.ratio)),
    ("ratio_low", |cell| number(quotient(cell)?.interval?.0)),
    ("ratio_high", |cell| number(quotient(cell)?.interval?.1)),
    ("ratio_runs", |cell| Some(quotient(cell)?.runs.to_string())),
    ("ratio_method", |cell| Some(format::name(quotient(cell)?.method))),
    ("difference", |cell| Some(conclusion(cell.0.comparison, cell.0.side, ratio(cell)?))),
    ("bound", |cell| Some(format::name(ratio(cell)?.bound?))),
    ("ratio_failed_checks", |cell| Some(failed(ratio(cell)?))),
    ("failed_checks", |(line, _)| Some(line.of.failed().map(|of| of.id).collect::<Vec<_>>().join(" "))),
    ("acknowledges_a_write", |(line, _)| {
        line.comparison.sides[line.side].durability.clone().filter(|_| line.workload.writes)
    }),
];

fn figure<'a>((line, i): &Cell<'a>) -> Option<&'a Figure> {
    line.of.figures[*i].as_ref()
}

fn ratio<'a>((line, i): &Cell<'a>) -> Option<&'a Ratio> {
    line.of.ratios[*i].as_ref()
}

fn quotient(cell: &Cell) -> Option<Quotient> {
    ratio(cell)?.quotient
}

/// The table.
pub(super) fn table(comparison: &Comparison) -> String {
    let lines = comparison.workloads.iter().flat_map(|workload| lines(comparison, workload));
    let cells: Vec<Cell> = lines.flat_map(|line| (0..MEASURES.len()).map(move |i| (line, i))).collect();
    csv::text(&cells, COLUMNS)
}

fn number(value: f64) -> Option<String> {
    finite(Some(value)).map(|value| value.to_string())
}
