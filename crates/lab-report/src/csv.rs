//! `results.csv`: one line for each planned trial, for further calculation.
//!
//! The unit stands last in every name. Columns that begin with `level_` repeat, on every trial's line, what
//! its level says over all runs.

use super::columns::columns;
use super::document::{Column, column};
use lab_analysis::{Findings, Row, row};
use lab_data::results::Results;

/// A planned trial and its level.
struct Line<'a> {
    workload: &'a str,
    repetition: u32,
    trial: Row,
    level: &'a Row,
}

/// The table.
pub(super) fn write(results: &Results, findings: &Findings) -> String {
    let mut lines = Vec::new();
    for found in &findings.workloads {
        for level in &found.rows {
            lines.extend((0..level.planned).map(|repetition| Line {
                workload: &found.name,
                repetition,
                trial: row(results, &found.name, level.level, Some(repetition), None),
                level,
            }));
        }
    }
    let figures = columns(results);
    let failures = |line: &Line| line.trial.failures.keys().cloned().collect::<Vec<_>>().join("; ");
    let mut columns: Vec<Column<Line>> = vec![
        column("workload", |line: &Line| Some(line.workload.to_owned())),
        column("repetition", |line: &Line| Some(line.repetition.to_string())),
        column("failure", move |line: &Line| Some(failures(line))),
    ];
    columns.extend(figures.iter().map(|of| column(&of.name, |line: &Line| (of.cell)(&line.trial).value)));
    let of_level = figures.iter().filter(|of| of.name != "clients");
    columns.extend(
        of_level.map(|of| column(format!("level_{}", of.name), |line: &Line| (of.cell)(line.level).value)),
    );
    let names = columns.iter().map(|(name, _)| name.clone()).collect();
    let cells =
        lines.iter().map(|line| columns.iter().map(|(_, cell)| cell(line).unwrap_or_default()).collect());
    // By RFC 4180.
    let mut writer = ::csv::WriterBuilder::new().terminator(::csv::Terminator::CRLF).from_writer(Vec::new());
    let records = std::iter::once(names).chain(cells);
    records.for_each(|record: Vec<String>| writer.write_record(record).expect("memory takes every record"));
    String::from_utf8(writer.into_inner().expect("memory takes every record")).expect("cells are text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::simulated::tests::{model, sweep};

    #[test]
    fn of_any_number_of_planned_trials_those_that_ran_have_a_line_and_some_more() {
        let mut results = sweep(&model("cpu 1 =2ms"), &["get"], &[1, 2], 3, "1s");
        results.repetitions = u32::MAX;
        let table = write(&results, &lab_analysis::findings(&results));
        assert!((2 * 100..2 * 200).contains(&table.lines().count()));
    }
}
