//! Which rows are drawn where.

use super::load::Loaded;
use super::row::Row;
use crate::plot::{Line, Picture, panel};
use kv::units::{micros, short};
use lab_report::{Point, Scale};

/// A figure of a row, where it has one.
type Figure = fn(&Row) -> Option<f64>;

const BESIDE_IDLE: &str = "get_beside_idle";
const BY_CLIENTS: &str = "get_by_clients";
const BY_ENTRIES: &str = "get_by_entries";
const BY_VALUE: &[(&str, &str)] = &[
    ("GET, cached", "get_by_value"),
    ("PUT, memory", "put_memory_by_value"),
    ("PUT, embedded", "put_embedded_by_value"),
];

const LINEAR: Scale = Scale::Linear(0.0);

const CPU: Figure = |row| loaded(row, |load| load.cpu_us);
const P50: Figure = |row| loaded(row, |load| load.us_p50);
const P99: Figure = |row| loaded(row, |load| load.us_p99);
const GOODPUT: Figure = |row| loaded(row, |load| load.goodput_rps);
const MB_PER_SEC: Figure = |row| loaded(row, |load| load.mb_per_sec);
const KERNEL_SHARE: Figure = |row| loaded(row, |load| load.kernel_share);

/// All of them.
pub(super) fn all(rows: &[Row]) -> Vec<Picture> {
    let time = |us: f64| trimmed(&micros(us));
    let count = |value: f64| trimmed(&short(value));
    let share = |value: f64| trimmed(&format!("{value:.2}"));
    let cpu = "Processor time of the server for a request";
    // Nothing has no logarithm: it stands one power to the left.
    let or_nothing = |level: u64| if level == 0 { 100.0 } else { level as f64 };
    let entries = Lines { rows, place: |level| level as f64 };
    let idle = Lines { rows, place: or_nothing };
    let values = Lines { rows, place: |level| level as f64 };
    let by_value =
        |figure: Figure| BY_VALUE.iter().map(|(label, name)| values.of(label, name, figure)).collect();
    let by_value_of_both =
        |figure: Figure| BY_VALUE.iter().map(|(label, name)| values.of_both(label, name, figure)).collect();
    let bytes = |bytes: f64| match bytes {
        1_048_576.0 => "1 MiB".to_owned(),
        1e3.. => format!("{:.0} kB", bytes / 1e3),
        _ => format!("{bytes:.0} B"),
    };
    vec![
        Picture {
            name: "entries",
            about: "memory for each row, processor time and latency of a cached GET by rows in the cache",
            axis: "rows",
            levels: entries.levels(BY_ENTRIES, count),
            panels: vec![
                panel(
                    "Memory for a row beyond its key and value, B".into(),
                    LINEAR,
                    count,
                    vec![
                        entries.of("cache", "cache", |row| row.memory_bytes),
                        entries.of("cache + memory store", BY_ENTRIES, |row| row.memory_bytes),
                    ],
                ),
                panel(format!("{cpu}, cached GET"), LINEAR, time, vec![entries.of("GET", BY_ENTRIES, CPU)]),
                panel(
                    "Latency of a cached GET, 64 clients, logarithmic".into(),
                    Scale::Log,
                    time,
                    vec![entries.of_both("p50", BY_ENTRIES, P50), entries.of_both("p99", BY_ENTRIES, P99)],
                ),
            ],
        },
        Picture {
            name: "idle",
            about: "memory for each idle connection, and processor time of a cached GET beside idle connections",
            axis: "idle",
            levels: idle.levels(BESIDE_IDLE, count),
            panels: vec![
                panel(
                    "Memory for an idle connection, B".into(),
                    LINEAR,
                    count,
                    vec![
                        idle.of("server", BESIDE_IDLE, |row| row.memory_bytes),
                        idle.of("kernel, both ends", BESIDE_IDLE, |row| row.kernel_bytes),
                    ],
                ),
                panel(format!("{cpu}, cached GET"), LINEAR, time, vec![idle.of("64 busy", BESIDE_IDLE, CPU)]),
                panel(
                    "Latency of 64 busy clients, logarithmic".into(),
                    Scale::Log,
                    time,
                    vec![idle.of_both("p50", BESIDE_IDLE, P50), idle.of_both("p99", BESIDE_IDLE, P99)],
                ),
            ],
        },
        Picture {
            name: "clients",
            about: "goodput, processor time and latency of a cached GET by busy connections",
            axis: "busy",
            levels: entries.levels(BY_CLIENTS, count),
            panels: vec![
                panel(
                    "Goodput, req/s".into(),
                    LINEAR,
                    count,
                    vec![entries.of_both("GET", BY_CLIENTS, GOODPUT)],
                ),
                panel(format!("{cpu}, cached GET"), LINEAR, time, vec![entries.of("GET", BY_CLIENTS, CPU)]),
                panel(
                    "Latency, logarithmic".into(),
                    Scale::Log,
                    time,
                    vec![entries.of_both("p50", BY_CLIENTS, P50), entries.of_both("p99", BY_CLIENTS, P99)],
                ),
            ],
        },
        Picture {
            name: "values",
            about: "processor time, throughput and the kernel's share by length of the values",
            axis: "values",
            levels: values.levels(BY_VALUE[0].1, bytes),
            panels: vec![
                panel(format!("{cpu}, logarithmic"), Scale::Log, time, by_value(CPU)),
                panel("Values, MB/s, logarithmic".into(), Scale::Log, count, by_value_of_both(MB_PER_SEC)),
                panel("Share of that time in the kernel".into(), LINEAR, share, by_value(KERNEL_SHARE)),
            ],
        },
    ]
}

fn loaded(row: &Row, figure: fn(&Loaded) -> f64) -> Option<f64> {
    row.load.as_ref().map(figure)
}

/// Turns rows of a series into a line.
struct Lines<'a> {
    rows: &'a [Row],
    /// Where a level stands on the axis.
    place: fn(u64) -> f64,
}

impl Lines<'_> {
    fn of(&self, label: &'static str, series: &str, figure: Figure) -> Line {
        self.line(label, series, figure, &["invalid"])
    }

    /// Of a figure that says as much of the generator as of the server, where that one was busy.
    fn of_both(&self, label: &'static str, series: &str, figure: Figure) -> Line {
        self.line(label, series, figure, &["invalid", "generator-limited"])
    }

    fn line(&self, label: &'static str, series: &str, figure: Figure, hollow: &[&str]) -> Line {
        let rows = self.rows.iter().filter(|row| row.series == series);
        let points = rows.filter_map(|row| {
            let is_valid = row.standing().is_none_or(|standing| !hollow.contains(&standing));
            Some(Point { usable: is_valid, ..Point::new((self.place)(row.level), figure(row)?) })
        });
        (label, points.collect())
    }

    fn levels(&self, series: &str, told: fn(f64) -> String) -> Vec<(f64, String)> {
        let rows = self.rows.iter().filter(|row| row.series == series);
        rows.map(|row| ((self.place)(row.level), told(row.level as f64))).collect()
    }
}

/// A number without the digits that only say how exact it is: `5.00k` is `5k`.
fn trimmed(text: &str) -> String {
    let end = text.find(|sign: char| !sign.is_ascii_digit() && sign != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => text.to_owned(),
    }
}
