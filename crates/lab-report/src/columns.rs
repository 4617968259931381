//! The columns of the level table, the same in HTML, Markdown and CSV.
//!
//! A column is a row of [`COLUMNS`]: what a person reads and what a program reads, from the same row.

use super::words::{self, UNKNOWN};
use super::{beside, slug};
use kv::units::short;
use lab_analysis::{AuditedRow, Excluded, Outcome, Row};
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
    Row(fn(&Row) -> Cell),
    /// One column for each resource, named after it.
    EachResource(fn(&Row, usize) -> Cell),
    /// One cell of a row of an open loop; no column where no trial was of one.
    Open(fn(&Row) -> Cell),
    /// A figure somebody printed; no column where the results hold no printed rows.
    Printed(fn(&AuditedRow) -> Option<f64>),
}

/// What stands in a cell.
pub struct Cell {
    /// For people.
    pub text: String,
    /// For programs: a plain number or word, empty where nothing is known.
    pub value: String,
}

/// The columns, in order.
pub const COLUMNS: &[Column] = &[
    Column {
        name: "clients",
        heading: Some(("clients", "")),
        read: Read::Row(|row| cell(Some(f64::from(row.level)), |_| row.level.to_string())),
    },
    Column { name: "runs", heading: None, read: Read::Row(|row| number(Some(f64::from(row.runs)))) },
    Column {
        name: "offered_rps",
        heading: Some(("offered", "req/s")),
        read: Read::Open(|row| cell(row.offered_rps, short)),
    },
    Column {
        name: "goodput_rps",
        heading: Some(("goodput", "req/s")),
        read: Read::Row(|row| Cell {
            text: row.goodput_rps.as_ref().map_or(UNKNOWN.to_owned(), words::spread),
            value: number(row.goodput_rps.map(|of| of.mean)).value,
        }),
    },
    Column {
        name: "goodput_low_rps",
        heading: None,
        read: Read::Row(|row| number(row.goodput_rps.map(|of| of.low))),
    },
    Column {
        name: "goodput_high_rps",
        heading: None,
        read: Read::Row(|row| number(row.goodput_rps.map(|of| of.high))),
    },
    Column { name: "attempts_rps", heading: None, read: Read::Row(|row| number(row.attempts_rps)) },
    Column {
        name: "latency_us_mean",
        heading: Some(("mean", "latency")),
        read: Read::Row(|row| latency(row.latency_us_mean)),
    },
    Column {
        name: "latency_us_p50",
        heading: Some(("p50", "latency")),
        read: Read::Row(|row| latency(row.latency_us_p50)),
    },
    Column {
        name: "latency_us_p99",
        heading: Some(("p99", "latency")),
        read: Read::Row(|row| latency(row.latency_us_p99)),
    },
    Column {
        name: "latency_us_p999",
        heading: Some(("p99.9", "latency")),
        read: Read::Row(|row| latency(row.latency_us_p999)),
    },
    Column {
        name: "service_us_mean",
        heading: Some(("mean", "service")),
        read: Read::Open(|row| latency(row.service_us_mean)),
    },
    Column {
        name: "send_lag_us_p99",
        heading: Some(("p99", "send lag")),
        read: Read::Open(|row| latency(row.send_lag_us_p99)),
    },
    Column {
        name: "error_ratio",
        heading: Some(("errors", "ratio")),
        read: Read::Row(|row| cell(row.error_ratio, |share| format!("{:.2} %", share * 100.0))),
    },
    Column {
        name: "little_residual_ratio",
        heading: Some(("Little", "residual")),
        read: Read::Row(|row| cell(row.little_residual, words::residual)),
    },
    Column {
        name: "checks_failed",
        heading: Some(("checks", "failed")),
        read: Read::Row(|row| {
            let failed: Vec<_> = row.checks.iter().filter(|of| of.failed()).collect();
            let names: Vec<&str> = failed.iter().map(|of| of.check().name).collect();
            let ids: Vec<&str> = failed.iter().map(|of| of.id).collect();
            let text = match (row.excluded, failed.is_empty()) {
                (Some(Excluded::NoNumbers), _) => "no run".to_owned(),
                (_, true) => "none".to_owned(),
                (_, false) => names.join(", "),
            };
            Cell { text, value: ids.join(" ") }
        }),
    },
    Column {
        name: "checks_not_checked",
        heading: None,
        read: Read::Row(|row| {
            let unread = row.checks.iter().filter(|of| of.outcome == Outcome::NotChecked);
            let ids: Vec<&str> = unread.map(|of| of.id).collect();
            Cell { text: ids.join(" "), value: ids.join(" ") }
        }),
    },
    Column {
        name: "excluded",
        heading: None,
        read: Read::Row(|row| {
            let word = match row.excluded {
                None => "",
                Some(Excluded::NoNumbers) => "no_numbers",
                Some(Excluded::Errors) => "errors",
                Some(Excluded::OverCapacity) => "over_capacity",
            };
            Cell { text: word.to_owned(), value: word.to_owned() }
        }),
    },
    Column {
        name: "utilization",
        heading: Some(("", "busy")),
        read: Read::EachResource(|row, i| {
            cell(row.resources.get(i).and_then(|of| of.utilization), |share| format!("{share:.2}"))
        }),
    },
    Column {
        name: "demand_us",
        heading: None,
        read: Read::EachResource(|row, i| number(row.resources.get(i).and_then(|of| of.demand_us))),
    },
    Column {
        name: "printed_throughput_rps",
        heading: None,
        read: Read::Printed(|row| Some(row.printed.throughput_rps?.value)),
    },
    Column { name: "printed_latency_us_mean", heading: None, read: Read::Printed(beside::latency_us) },
    Column {
        name: "printed_server_cpu_pct",
        heading: None,
        read: Read::Printed(|row| Some(row.printed.server_cpu_pct?.value)),
    },
    Column {
        name: "printed_disk_util_pct",
        heading: None,
        read: Read::Printed(|row| Some(row.printed.disk_util_pct?.value)),
    },
    Column {
        name: "printed_success_ratio",
        heading: None,
        read: Read::Printed(|row| Some(row.printed.success_share?.value)),
    },
    Column {
        name: "printed_little_residual_ratio",
        heading: None,
        read: Read::Printed(|row| Some(row.residual?.value)),
    },
];

/// A column of a concrete table: its names and its cell of a row.
pub(super) struct Bound {
    /// In the CSV.
    pub(super) name: String,
    /// For people: heading and unit.
    pub(super) heading: Option<(String, String)>,
    read: &'static Read,
    resource: usize,
}

impl Bound {
    /// The resource it belongs to, by its index.
    pub(super) fn resource(&self) -> Option<usize> {
        matches!(self.read, Read::EachResource(_)).then_some(self.resource)
    }

    /// The cell of `row`.
    pub(super) fn cell(&self, row: &Row) -> Cell {
        match self.read {
            Read::Row(read) | Read::Open(read) => read(row),
            Read::EachResource(read) => read(row, self.resource),
            Read::Printed(read) => number(row.printed.as_ref().and_then(read)),
        }
    }
}

/// [`COLUMNS`] for these results, those of each resource written out.
pub(super) fn columns(results: &Results) -> Vec<Bound> {
    let owned = |(heading, unit): (&str, &str)| (heading.to_owned(), unit.to_owned());
    let loads = results.trials.iter().filter_map(|trial| trial.load.as_ref());
    let is_open = loads.clone().any(|load| load.schedule.is_some());
    let bind = |column: &'static Column| -> Vec<Bound> {
        match &column.read {
            Read::Printed(_) if results.printed.is_empty() => Vec::new(),
            Read::Open(_) if !is_open => Vec::new(),
            read @ (Read::Row(_) | Read::Open(_) | Read::Printed(_)) => {
                let (name, heading) = (column.name.to_owned(), column.heading.map(owned));
                vec![Bound { name, heading, read, resource: 0 }]
            }
            read @ Read::EachResource(_) => (results.resources.iter().enumerate())
                .map(|(resource, of)| Bound {
                    name: format!("{}_{}", slug(&of.name), column.name),
                    heading: column.heading.map(|(_, unit)| (of.name.clone(), unit.to_owned())),
                    read,
                    resource,
                })
                .collect(),
        }
    };
    COLUMNS.iter().flat_map(bind).collect()
}

fn cell(value: Option<f64>, say: impl Fn(f64) -> String) -> Cell {
    Cell { text: words::known(value, say), value: number(value).value }
}

fn latency(us: Option<f64>) -> Cell {
    cell(us, |us| words::latency(Some(us)))
}

fn number(value: Option<f64>) -> Cell {
    let text = value.filter(|value| value.is_finite()).map(|value| format!("{value}")).unwrap_or_default();
    Cell { text: text.clone(), value: text }
}
