//! Values: what their length costs, read from the cache and written to a store.

use super::load::{Loaded, WINDOWS, Window, window_of};
use super::row::Row;
use crate::support::Server;

/// Bytes.
const LEVELS: &[u64] = &[100, 1_000, 20_000, 100_000, 1 << 20];
/// So few that all of the longest are in the cache.
const KEYS: &str = "64";
const CLIENTS: &str = "16";

/// What is asked for.
struct Series {
    name: &'static str,
    workload: &'static str,
    is_durable: bool,
}

const SERIES: &[Series] = &[
    Series { name: "get_by_value", workload: "get_all", is_durable: false },
    Series { name: "put_memory_by_value", workload: "put_only", is_durable: false },
    Series { name: "put_embedded_by_value", workload: "put_only", is_durable: true },
];

/// Every length of every series in turn.
pub(super) fn all(rows: &mut Vec<Row>) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let cache = ["--cache-bytes", "4GiB"];
    let memory = Server::start(&[&["--store", "memory:"][..], &cache].concat());
    let url = format!("file:{}", directory.path().join("data").display());
    let embedded = Server::start(&[&["--store", url.as_str()][..], &cache].concat());
    let mut windows: Vec<(&Series, u64, Vec<Window>)> = Vec::new();
    for series in SERIES {
        windows.extend(LEVELS.iter().map(|level| (series, *level, Vec::new())));
    }
    for _ in 0..WINDOWS {
        for (series, level, windows) in &mut windows {
            let server = if series.is_durable { &embedded } else { &memory };
            let size = level.to_string();
            let args = ["--workload", series.workload, "--clients", CLIENTS, "--keys", KEYS];
            // A tenth of a second each, these are.
            let length = if series.is_durable && *level > 100_000 { "4s" } else { "1s" };
            windows.push(window_of(server, length, &[&args[..], &["--value-size", &size]].concat()));
        }
    }
    rows.extend(windows.into_iter().map(|(series, level, windows)| Row {
        series: series.name,
        level,
        load: Some(Loaded::of(&windows, level)),
        ..Row::default()
    }));
}
