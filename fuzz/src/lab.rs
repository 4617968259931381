//! The files of the lab: experiments, results and published tables.

use lab_data::experiment::Experiment;
use lab_data::figure::Figure;
use lab_data::published;
use lab_data::results::Results;
use std::path::Path;
use std::str;

/// An experiment file: it is refused in one line, or can be asked everything that the lab asks.
pub fn experiment(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let mut experiment = match Experiment::parse(text) {
        Ok(experiment) => experiment,
        Err(why) => return one_line(&why),
    };
    assert_eq!(experiment.toml, text);
    experiment.find_dialects_in(Path::new("directory"));
    experiment.slows_servers();
    let trials: usize = experiment
        .subjects
        .iter()
        .map(|subject| {
            experiment.is_reference(subject);
            let _ = (subject.target.databases(), subject.target.quota(), subject.target.link());
            let workloads = experiment.workloads_of(subject);
            workloads.iter().map(|workload| experiment.levels_of(workload).len()).sum::<usize>()
        })
        .sum();
    assert_eq!(experiment.trials(), trials * experiment.repetitions as usize);
    let mut narrowed = experiment.clone();
    let first = experiment.workloads.first().map(|workload| workload.name.clone());
    if let Some(name) = first {
        narrowed.keep(&[name]).expect("there is such a workload");
    }
    narrowed.scale(0.05);
    narrowed.trials();
    if let Some(name) = experiment.subjects.first().and_then(|subject| subject.name.clone()) {
        experiment.keep_targets(&[name]).expect("there is such a target");
    }
}

/// Results: what is read is written again as it was, and a report can be made of it.
pub fn results(data: &[u8]) {
    let Ok(results) = serde_json::from_slice::<Results>(data) else { return };
    let written = serde_json::to_vec(&results).expect("what was read can be written");
    let again: Results = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(again, results);
    lab_report::render(&results);
}

/// A published table: it is refused in one line, or each row is audited.
pub fn audit(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let table = match published::parse(text) {
        Ok(table) => table,
        Err(why) => return one_line(&why),
    };
    let audit = lab_analysis::audit(&table.rows);
    let rows: usize = audit.sweeps.iter().map(|sweep| sweep.rows.len()).sum();
    assert_eq!(rows, table.rows.len());
    assert!(audit.off <= audit.checked && audit.checked as usize <= rows);
    for row in &table.rows {
        // A figure with all its digits is read as the same number.
        for figure in [row.throughput_rps, row.p50_ms, row.p99_ms].into_iter().flatten() {
            let again = Figure::parse(&figure.to_string()).expect("it is a number");
            assert!(
                (again.value - figure.value).abs() <= figure.half_unit() + figure.value * 1e-12,
                "{figure}"
            );
        }
    }
    serde_json::to_vec(&audit).expect("it can be written");
}

fn one_line(why: &impl ToString) {
    let why = why.to_string();
    assert!(!why.is_empty() && !why.contains('\n'), "{why}");
}
