//! `compare.csv`: one line for each figure of each side at each level. The unit stands last in the figure's name.

use super::page::{conclusion, failed};
use crate::csv;
use lab_analysis::compare::{ComparedWorkload, Figure, Measure, Ratio, SideOfLevel};
use lab_analysis::{Comparison, MEASURES};

/// A figure of a side at a level of a workload.
struct Line<'a> {
    comparison: &'a Comparison,
    workload: &'a ComparedWorkload,
    clients: u32,
    side: usize,
    of: &'a SideOfLevel,
    measure: &'a Measure,
    figure: Option<&'a Figure>,
    ratio: Option<&'a Ratio>,
}

/// Heading and cell; `None` is an empty one.
type Column = (&'static str, fn(&Line) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("workload", |line| Some(line.workload.name.clone())),
    ("clients", |line| Some(line.clients.to_string())),
    ("target", |line| Some(line.comparison.sides[line.side].name.clone())),
    ("figure", |line| Some(line.measure.name.to_owned())),
    ("value", |line| number(line.figure?.value)),
    ("low", |line| number(line.figure?.estimate?.low)),
    ("high", |line| number(line.figure?.estimate?.high)),
    ("runs", |line| Some(line.figure.map_or(0, |of| of.of_runs.len()).to_string())),
    ("compared_with", |line| line.ratio.map(|_| line.comparison.sides[0].name.clone())),
    ("ratio", |line| number(line.ratio?.quotient?.ratio)),
    ("ratio_low", |line| number(line.ratio?.quotient?.interval?.0)),
    ("ratio_high", |line| number(line.ratio?.quotient?.interval?.1)),
    ("ratio_runs", |line| Some(line.ratio?.quotient?.runs.to_string())),
    ("ratio_method", |line| csv::name(serde_json::to_value(line.ratio?.quotient?.method))),
    ("difference", |line| Some(conclusion(line.comparison, line.side, line.ratio?))),
    ("bound", |line| csv::name(serde_json::to_value(line.ratio?.bound?))),
    ("ratio_failed_checks", |line| Some(failed(line.ratio?))),
    ("failed_checks", |line| Some(line.of.failed().map(|checked| checked.id).collect::<Vec<_>>().join(" "))),
    ("acknowledges_a_write", |line| {
        line.comparison.sides[line.side].durability.clone().filter(|_| line.workload.writes)
    }),
];

/// The table.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut records = vec![COLUMNS.iter().map(|(name, _)| (*name).to_owned()).collect()];
    for workload in &comparison.workloads {
        for level in &workload.levels {
            for (side, of) in level.sides.iter().enumerate() {
                let Some(of) = of else { continue };
                for (index, measure) in MEASURES.iter().enumerate() {
                    let (figure, ratio) = (of.figures[index].as_ref(), of.ratios[index].as_ref());
                    let clients = level.clients;
                    let line = Line { comparison, workload, clients, side, of, measure, figure, ratio };
                    records.push(COLUMNS.iter().map(|(_, cell)| cell(&line).unwrap_or_default()).collect());
                }
            }
        }
    }
    csv::text(records)
}

fn number(value: f64) -> Option<String> {
    value.is_finite().then(|| value.to_string())
}
