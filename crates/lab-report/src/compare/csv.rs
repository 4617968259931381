//! `compare.csv`: one line for each figure of each side at each level. The unit stands last in the figure's name.

use super::{Line, lines};
use crate::columns::ids;
use crate::{csv, format};
use lab_analysis::{Comparison, MEASURES, Outcome};

/// Heading and cell; `None` is an empty one.
const COLUMNS: &[(&str, fn(&Line) -> Option<String>)] = &[
    ("workload", |line| Some(line.workload.name.clone())),
    ("clients", |line| Some(line.clients.to_string())),
    ("target", |line| line.target()),
    ("figure", |line| Some(MEASURES[line.measure].name.to_owned())),
    ("value", |line| Some(line.figure?.value.to_string())),
    ("low", |line| Some(line.figure?.estimate?.low.to_string())),
    ("high", |line| Some(line.figure?.estimate?.high.to_string())),
    ("runs", |line| Some(line.figure.map_or(0, |of| of.of_runs.len()).to_string())),
    ("compared_with", |line| line.ratio.map(|_| line.comparison.sides[0].name.clone())),
    ("ratio", |line| Some(line.ratio?.quotient?.ratio.to_string())),
    ("ratio_low", |line| Some(line.ratio?.quotient?.interval?.0.to_string())),
    ("ratio_high", |line| Some(line.ratio?.quotient?.interval?.1.to_string())),
    ("ratio_runs", |line| Some(line.ratio?.quotient?.runs.to_string())),
    ("ratio_method", |line| Some(format::name(line.ratio?.quotient?.method))),
    ("difference", |line| line.conclusion()),
    ("bound", |line| Some(format::name(line.ratio?.bound?))),
    ("failed_checks", |line| Some(ids(line.row, Outcome::Fail))),
];

/// The table.
pub(super) fn table(comparison: &Comparison) -> String {
    let of_workload =
        |workload| (0..MEASURES.len()).flat_map(move |measure| lines(comparison, workload, measure));
    let lines: Vec<Line> = comparison.workloads.iter().flat_map(of_workload).collect();
    csv::text(&lines, COLUMNS)
}
