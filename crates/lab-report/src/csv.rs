//! `results.csv`: one line for each planned trial, for further calculation. And how CSV is written.
//!
//! The unit stands last in every name. Columns that begin with `level_` repeat, on every trial's line, what
//! its level says over all runs.

use super::columns::{Bound, columns};
use lab_analysis::{Findings, row};
use lab_data::results::Results;

/// The table.
pub(super) fn write(results: &Results, findings: &Findings) -> String {
    let columns = columns(results);
    let of_level: Vec<&Bound> = columns.iter().filter(|column| column.name != "clients").collect();
    let names = ["workload", "repetition", "failure"].into_iter().map(str::to_owned);
    let names = names.chain(columns.iter().map(|column| column.name.clone()));
    let names = names.chain(of_level.iter().map(|column| format!("level_{}", column.name)));
    let mut records = vec![names.collect()];
    for found in &findings.workloads {
        for level in &found.rows {
            for repetition in 0..level.planned {
                let trial = row(results, &found.name, level.level, Some(repetition), None);
                let failure: Vec<&str> = trial.failures.keys().map(String::as_str).collect();
                let head = [found.name.clone(), repetition.to_string(), failure.join("; ")];
                let trial = columns.iter().map(|column| column.cell(&trial).value);
                let level = of_level.iter().map(|column| column.cell(level).value);
                records.push(head.into_iter().chain(trial).chain(level).collect());
            }
        }
    }
    text(records)
}

/// The records as text, by RFC 4180. All have the same number of cells.
pub(super) fn text(records: Vec<Vec<String>>) -> String {
    let mut writer = ::csv::WriterBuilder::new().terminator(::csv::Terminator::CRLF).from_writer(Vec::new());
    for record in records {
        writer.write_record(record).expect("memory takes every record");
    }
    String::from_utf8(writer.into_inner().expect("memory takes every record")).expect("cells are text")
}

/// The name of a variant, as in JSON.
pub(super) fn name(of: serde_json::Result<serde_json::Value>) -> Option<String> {
    of.ok()?.as_str().map(str::to_owned)
}
