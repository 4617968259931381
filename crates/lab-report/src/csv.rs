//! `results.csv`: one line for each planned trial, for further calculation.
//!
//! RFC 4180; the unit stands last in every name. Columns that begin with `level_` repeat, on every trial's line, what
//! its level says over all runs.

use super::columns::{Bound, columns};
use lab_analysis::{Findings, row};
use lab_data::results::Results;

/// The table.
pub(super) fn write(results: &Results, findings: &Findings) -> String {
    let columns = columns(results);
    let of_level: Vec<&Bound> = columns.iter().filter(|column| column.name != "clients").collect();
    let mut text = String::new();
    let names = ["workload", "repetition", "failure"].into_iter().map(str::to_owned);
    let names = names.chain(columns.iter().map(|column| column.name.clone()));
    line(&mut text, names.chain(of_level.iter().map(|column| format!("level_{}", column.name))));
    for found in &findings.workloads {
        for level in &found.rows {
            for repetition in 0..level.planned {
                let trial = row(results, &found.name, level.level, Some(repetition), None);
                let failure: Vec<&str> = trial.failures.keys().map(String::as_str).collect();
                let head = [found.name.clone(), repetition.to_string(), failure.join("; ")];
                let trial = columns.iter().map(|column| column.cell(&trial).value);
                let level = of_level.iter().map(|column| column.cell(level).value);
                line(&mut text, head.into_iter().chain(trial).chain(level));
            }
        }
    }
    text
}

/// A line of cells, quoted where they must be.
pub(super) fn line(text: &mut String, cells: impl Iterator<Item = String>) {
    let quoted = |cell: String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell,
    };
    text.push_str(&cells.map(quoted).collect::<Vec<_>>().join(","));
    text.push_str("\r\n");
}
