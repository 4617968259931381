//! `results.csv`: one line for each planned trial, for further calculation.
//!
//! The unit stands last in every name. Columns that begin with `level_` repeat, on every trial's line, what
//! its level says over all runs.

use super::columns::columns;
use lab_analysis::{Findings, row};
use lab_data::results::Results;

/// The table.
pub(super) fn write(results: &Results, findings: &Findings) -> String {
    let figures = columns(results);
    let of_level = || figures.iter().filter(|of| of.name != "clients");
    // By RFC 4180.
    let mut writer = ::csv::WriterBuilder::new().terminator(::csv::Terminator::CRLF).from_writer(Vec::new());
    let mut write = |record: Vec<String>| writer.write_record(record).expect("memory takes every record");
    let own = ["workload", "repetition", "failure"].map(str::to_owned).into_iter();
    let names = own.chain(figures.iter().map(|of| of.name.clone()));
    write(names.chain(of_level().map(|of| format!("level_{}", of.name))).collect());
    for found in &findings.workloads {
        for level in &found.rows {
            for repetition in 0..level.planned {
                let trial = row(results, &found.name, level.level, Some(repetition), &[]);
                let failures = trial.failures.keys().cloned().collect::<Vec<_>>().join("; ");
                let own = [found.name.clone(), repetition.to_string(), failures].into_iter();
                let of_trial = figures.iter().map(|of| (of.cell)(&trial).value);
                write(own.chain(of_trial).chain(of_level().map(|of| (of.cell)(level).value)).collect());
            }
        }
    }
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
