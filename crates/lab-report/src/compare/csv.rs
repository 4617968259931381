//! `compare.csv`: one line for each figure of each side at each level. The unit stands last in the figure's name.

use super::sentences::{conclusion, failed};
use crate::csv;
use crate::format::finite;
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
    ("ratio_method", |line| Some(csv::name(line.ratio?.quotient?.method))),
    ("difference", |line| Some(conclusion(line.comparison, line.side, line.ratio?))),
    ("bound", |line| Some(csv::name(line.ratio?.bound?))),
    ("ratio_failed_checks", |line| Some(failed(line.ratio?))),
    ("failed_checks", |line| Some(line.of.failed().map(|checked| checked.id).collect::<Vec<_>>().join(" "))),
    ("acknowledges_a_write", |line| {
        line.comparison.sides[line.side].durability.clone().filter(|_| line.workload.writes)
    }),
];

/// The table.
pub(super) fn table(comparison: &Comparison) -> String {
    let mut lines = Vec::new();
    for workload in &comparison.workloads {
        for level in &workload.levels {
            let sides = level.sides.iter().enumerate().filter_map(|(side, of)| Some((side, of.as_ref()?)));
            for (side, of) in sides {
                lines.extend(MEASURES.iter().enumerate().map(|(i, measure)| {
                    let (figure, ratio) = (of.figures[i].as_ref(), of.ratios[i].as_ref());
                    Line { comparison, workload, clients: level.clients, side, of, measure, figure, ratio }
                }));
            }
        }
    }
    csv::text(&lines, COLUMNS)
}

fn number(value: f64) -> Option<String> {
    finite(Some(value)).map(|value| value.to_string())
}
