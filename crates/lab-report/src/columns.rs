//! The columns of the level table, the same in HTML, Markdown and CSV.
//!
//! A column is a row of [`COLUMNS`]: what a person reads and what a program reads, from the same row.

use super::format::{self, UNKNOWN, residual, slug};
use super::published::latency_us;
use Read::{EachResource, Open, Published, Row};
use kv::units::{micros, short};
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, Excluded, Outcome, Row as LevelRow};
use lab_data::results::Results;

/// A column.
pub struct Column {
    /// In the header of the CSV, unit last.
    pub name: &'static str,
    /// What a person reads above it, and the unit below that; `None` keeps the column to the CSV.
    pub heading: Option<(&'static str, &'static str)>,
    /// What stands in it.
    pub read: Read,
}

/// Where a column's cells come from.
pub enum Read {
    /// One cell of a row.
    Row(fn(&LevelRow) -> Cell),
    /// One column for each resource, named after it.
    EachResource(fn(&Use) -> Cell),
    /// One cell of a row of an open loop; no column where no trial was of one.
    Open(fn(&LevelRow) -> Cell),
    /// A figure somebody published; no column where the results hold no published rows.
    Published(fn(&AuditedRow) -> Option<f64>),
}

/// What stands in a cell.
pub struct Cell {
    /// For people.
    pub text: String,
    /// For programs: a plain number or word, empty where nothing is known.
    pub value: String,
}

/// A column for people and programs.
const fn shown(name: &'static str, heading: (&'static str, &'static str), read: Read) -> Column {
    Column { name, heading: Some(heading), read }
}

/// A column for programs alone.
const fn data(name: &'static str, read: Read) -> Column {
    Column { name, heading: None, read }
}

/// The columns, in order.
pub const COLUMNS: &[Column] = &[
    shown("clients", ("clients", ""), Row(|row| cell(Some(row.level.into()), |_| row.level.to_string()))),
    data("runs", Row(|row| number(Some(row.runs.into())))),
    shown("offered_rps", ("offered", "req/s"), Open(|row| cell(row.offered_rps, short))),
    shown("goodput_rps", ("goodput", "req/s"), Row(goodput)),
    data("goodput_low_rps", Row(|row| number(row.goodput_rps.map(|of| of.low)))),
    data("goodput_high_rps", Row(|row| number(row.goodput_rps.map(|of| of.high)))),
    data("attempts_rps", Row(|row| number(row.attempts_rps))),
    shown("latency_us_mean", ("mean", "latency"), Row(|row| cell(row.latency_us_mean, micros))),
    shown("latency_us_p50", ("p50", "latency"), Row(|row| cell(row.latency_us_p50, micros))),
    shown("latency_us_p99", ("p99", "latency"), Row(|row| cell(row.latency_us_p99, micros))),
    shown("latency_us_p999", ("p99.9", "latency"), Row(|row| cell(row.latency_us_p999, micros))),
    shown("service_us_mean", ("mean", "service"), Open(|row| cell(row.service_us_mean, micros))),
    shown("send_lag_us_p99", ("p99", "send lag"), Open(|row| cell(row.send_lag_us_p99, micros))),
    shown("error_ratio", ("errors", "ratio"), Row(|row| cell(row.error_ratio, error_percent))),
    shown("little_residual_ratio", ("Little", "residual"), Row(|row| cell(row.little_residual, residual))),
    shown("checks_failed", ("checks", "failed"), Row(checks_failed)),
    data("checks_not_checked", Row(checks_not_checked)),
    data("excluded", Row(excluded)),
    shown("utilization", ("", "busy"), EachResource(|of| cell(of.utilization, |of| format!("{of:.2}")))),
    data("demand_us", EachResource(|of| number(of.demand_us))),
    data("published_throughput_rps", Published(|row| Some(row.printed.throughput_rps?.value))),
    data("published_latency_us_mean", Published(latency_us)),
    data("published_server_cpu_pct", Published(|row| Some(row.printed.server_cpu_pct?.value))),
    data("published_disk_util_pct", Published(|row| Some(row.printed.disk_util_pct?.value))),
    data("published_success_ratio", Published(|row| Some(row.printed.success_share?.value))),
    data("published_little_residual_ratio", Published(|row| Some(row.residual?.value))),
];

/// A column of a concrete table.
pub(super) struct Bound {
    /// In the CSV.
    pub(super) name: String,
    /// For people: heading and unit.
    pub(super) heading: Option<(String, String)>,
    read: &'static Read,
    /// Of a column of a resource, its index.
    pub(super) resource: Option<usize>,
}

impl Bound {
    /// The cell of `row`.
    pub(super) fn cell(&self, row: &LevelRow) -> Cell {
        match self.read {
            Row(read) | Open(read) => read(row),
            EachResource(read) => {
                self.resource.and_then(|i| row.resources.get(i)).map_or_else(|| number(None), read)
            }
            Published(read) => number(row.printed.as_ref().and_then(read)),
        }
    }
}

/// [`COLUMNS`] for these results, with one for each resource.
pub(super) fn columns(results: &Results) -> Vec<Bound> {
    let owned = |(heading, unit): (&str, &str)| (heading.to_owned(), unit.to_owned());
    let is_open =
        results.trials.iter().filter_map(|trial| trial.load.as_ref()).any(|load| load.schedule.is_some());
    let bind = |column: &'static Column| -> Vec<Bound> {
        let read = &column.read;
        match read {
            Published(_) if results.published.is_empty() => Vec::new(),
            Open(_) if !is_open => Vec::new(),
            Row(_) | Open(_) | Published(_) => {
                let (name, heading) = (column.name.to_owned(), column.heading.map(owned));
                vec![Bound { name, heading, read, resource: None }]
            }
            EachResource(_) => (results.resources.iter().enumerate())
                .map(|(resource, of)| Bound {
                    name: format!("{}_{}", slug(&of.name), column.name),
                    heading: column.heading.map(|(_, unit)| (of.name.clone(), unit.to_owned())),
                    read,
                    resource: Some(resource),
                })
                .collect(),
        }
    };
    COLUMNS.iter().flat_map(bind).collect()
}

fn goodput(row: &LevelRow) -> Cell {
    let text = row.goodput_rps.as_ref().map_or(UNKNOWN.to_owned(), format::spread);
    Cell { text, ..number(row.goodput_rps.map(|of| of.mean)) }
}

fn error_percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Names for people, ids for programs.
fn checks_failed(row: &LevelRow) -> Cell {
    let failed = || row.checks.iter().filter(|of| of.failed());
    let text = match row.excluded {
        Some(Excluded::NoNumbers) => "no run".to_owned(),
        _ if failed().next().is_none() => "none".to_owned(),
        _ => failed().map(|of| of.check().name).collect::<Vec<_>>().join(", "),
    };
    Cell { text, value: failed().map(|of| of.id).collect::<Vec<_>>().join(" ") }
}

fn checks_not_checked(row: &LevelRow) -> Cell {
    let unknown = row.checks.iter().filter(|of| of.outcome == Outcome::NotChecked);
    word(&unknown.map(|of| of.id).collect::<Vec<_>>().join(" "))
}

fn excluded(row: &LevelRow) -> Cell {
    word(match row.excluded {
        None => "",
        Some(Excluded::NoNumbers) => "no_numbers",
        Some(Excluded::Errors) => "errors",
        Some(Excluded::OverCapacity) => "over_capacity",
    })
}

fn cell(value: Option<f64>, say: impl Fn(f64) -> String) -> Cell {
    Cell { text: format::known(value, say), ..number(value) }
}

fn number(value: Option<f64>) -> Cell {
    word(&format::finite(value).map(|value| value.to_string()).unwrap_or_default())
}

fn word(text: &str) -> Cell {
    Cell { text: text.to_owned(), value: text.to_owned() }
}
