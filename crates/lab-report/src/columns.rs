//! The columns of the level table, the same in HTML, Markdown and CSV.
//!
//! A column is a row of [`COLUMNS`]: what a person reads and what a program reads, from the same row.

use super::format::{self, finite, percent};
use Read::{EachResource, Open, Row};
use kv::units::{micros, short};
use lab_analysis::rows::Use;
use lab_analysis::{Excluded, Outcome, Row as LevelRow};
use lab_data::results::Results;

/// A column.
pub struct Column {
    /// In the header of the CSV, unit last.
    pub name: &'static str,
    /// What a person reads above it, and the unit behind a comma; empty of a column for programs alone.
    heading: &'static str,
    read: Read,
}

/// Where a column's cells come from.
enum Read {
    /// One cell of a row.
    Row(fn(&LevelRow) -> Cell),
    /// One column for each resource, named after it.
    EachResource(fn(&Use) -> Cell),
    /// One cell of a row of an open loop; no column where no trial was of one.
    Open(fn(&LevelRow) -> Cell),
}

/// What stands in a cell.
pub(super) struct Cell {
    /// For people; `None` where nothing is known.
    pub(super) text: Option<String>,
    /// For programs: a plain number or word, empty where nothing is known.
    pub(super) value: String,
}

const fn column(name: &'static str, heading: &'static str, read: Read) -> Column {
    Column { name, heading, read }
}

/// The columns, in order.
pub const COLUMNS: &[Column] = &[
    column("clients", "clients", Row(|row| word(row.level.to_string()))),
    column("runs", "", Row(|row| word(row.runs.to_string()))),
    column("offered_rps", "offered, req/s", Open(|row| cell(row.offered_rps, short))),
    column("goodput_rps", "goodput, req/s", Row(goodput)),
    column("goodput_low_rps", "", Row(|row| number(row.goodput_rps.map(|of| of.low)))),
    column("goodput_high_rps", "", Row(|row| number(row.goodput_rps.map(|of| of.high)))),
    column("attempts_rps", "", Row(|row| number(row.attempts_rps))),
    column("latency_us_mean", "mean latency", Row(|row| cell(row.latency_us_mean, micros))),
    column("latency_us_p50", "p50 latency", Row(|row| cell(row.latency_us_p50, micros))),
    column("latency_us_p99", "p99 latency", Row(|row| cell(row.latency_us_p99, micros))),
    column("latency_us_p999", "p99.9 latency", Row(|row| cell(row.latency_us_p999, micros))),
    column("service_us_mean", "mean service time", Open(|row| cell(row.service_us_mean, micros))),
    column("send_lag_us_p99", "p99 send lag", Open(|row| cell(row.send_lag_us_p99, micros))),
    column("error_ratio", "error rate", Row(|row| cell(row.error_ratio, |of| percent(of, 2)))),
    column("little_residual_ratio", "", Row(|row| number(row.little_residual))),
    column("checks_failed", "failed checks of the level", Row(checks_failed)),
    column("checks_not_checked", "", Row(|row| word(ids(row, Outcome::NotChecked)))),
    column("excluded", "", Row(|row| word(row.excluded.map(format::name).unwrap_or_default()))),
    column("utilization", "utilization", EachResource(|of| cell(of.utilization, |of| percent(of, 0)))),
    column("demand_us", "", EachResource(|of| number(of.demand_us))),
];

/// A column of the table of one run.
pub(super) struct Bound {
    /// In the CSV.
    pub(super) name: String,
    /// For people; empty of a column for programs alone.
    pub(super) heading: String,
    /// The cell of a row.
    pub(super) cell: Box<dyn Fn(&LevelRow) -> Cell>,
    /// Of a column of a resource, its index.
    pub(super) resource: Option<usize>,
}

/// [`COLUMNS`] for these results, with one for each resource.
pub(super) fn columns(results: &Results) -> Vec<Bound> {
    let mut loads = results.trials.iter().filter_map(|trial| trial.load.as_ref());
    let is_open = loads.any(|load| load.schedule.is_some());
    let mut all = Vec::new();
    for Column { name, heading, read } in COLUMNS {
        let cell: Box<dyn Fn(&LevelRow) -> Cell> = match *read {
            Open(_) if !is_open => continue,
            Row(read) | Open(read) => Box::new(read),
            EachResource(read) => {
                all.extend(results.resources.iter().enumerate().map(|(i, of)| Bound {
                    name: format!("{}_{name}", of.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_")),
                    heading: if heading.is_empty() { String::new() } else { of.name.clone() },
                    cell: Box::new(move |row| row.resources.get(i).map_or_else(|| number(None), read)),
                    resource: Some(i),
                }));
                continue;
            }
        };
        all.push(Bound { name: (*name).to_owned(), heading: (*heading).to_owned(), cell, resource: None });
    }
    all
}

fn goodput(row: &LevelRow) -> Cell {
    Cell { text: row.goodput_rps.as_ref().map(format::spread), ..number(row.goodput_rps.map(|of| of.mean)) }
}

/// Names for people, ids for programs.
fn checks_failed(row: &LevelRow) -> Cell {
    Cell { text: Some(failed_checks(row)), ..word(ids(row, Outcome::Fail)) }
}

/// The names of the checks that the row failed.
pub(super) fn failed_checks(row: &LevelRow) -> String {
    let failed: Vec<&str> = row.checks.iter().filter(|of| of.failed()).map(|of| of.check().name).collect();
    match row.excluded {
        Some(Excluded::NoNumbers) => "no trial".to_owned(),
        _ if failed.is_empty() => "none".to_owned(),
        _ => failed.join(", "),
    }
}

/// The ids of the checks that came out so.
pub(super) fn ids(row: &LevelRow, outcome: Outcome) -> String {
    let ids = row.checks.iter().filter(|of| of.outcome == outcome).map(|of| of.id);
    ids.collect::<Vec<_>>().join(" ")
}

fn cell(value: Option<f64>, say: impl Fn(f64) -> String) -> Cell {
    Cell { text: finite(value).map(say), ..number(value) }
}

fn number(value: Option<f64>) -> Cell {
    word(finite(value).map(|value| value.to_string()).unwrap_or_default())
}

fn word(text: String) -> Cell {
    Cell { text: Some(text.clone()), value: text }
}
