//! The tables of docs/performance.md: written between marks, so that the words around them stay.

use super::load::WINDOWS;
use super::row::{COLUMNS, Row};
use std::fs;

/// A table and the series in it.
const TABLES: &[(&str, &[&str])] = &[
    ("entries", &["cache", "store_alone", "get_by_entries"]),
    ("idle", &["get_beside_idle"]),
    ("clients", &["get_by_clients"]),
    ("values", &["get_by_value", "put_memory_by_value", "put_embedded_by_value"]),
];

/// `page` with the tables of these rows, and a word on the machine.
pub(super) fn with(page: &str, rows: &[Row], date: &str) -> String {
    let mut page = put(page, "machine", &machine(date));
    for (name, series) in TABLES {
        let mut told = Vec::new();
        series.iter().for_each(|name| told.extend(rows.iter().filter(|row| row.series == *name)));
        page = put(&page, name, &table(&told));
    }
    page
}

/// Puts `text` between the marks of `name`.
fn put(page: &str, name: &str, text: &str) -> String {
    const END: &str = "<!-- end -->";
    let begin = format!("<!-- scale: {name} -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page lacks {begin}"));
    let (_, after) = rest.split_once(END).unwrap_or_else(|| panic!("the page lacks {END} behind {begin}"));
    format!("{before}{begin}{text}{END}{after}")
}

/// Markdown; a column that none of the rows has is left out.
fn table(rows: &[&Row]) -> String {
    let columns = COLUMNS.iter().filter(|column| rows.iter().any(|row| !column.cell(row).is_empty()));
    let columns: Vec<_> = columns.filter(|column| column.in_page).collect();
    let mut text = "| series | level |".to_owned();
    columns.iter().for_each(|column| text += &format!(" {} |", column.head));
    text += &format!(" checks |\n|---|--:|{}---|\n", "--:|".repeat(columns.len()));
    for row in rows {
        text += &format!("| `{}` | {} |", row.series, row.level);
        columns.iter().for_each(|column| text += &format!(" {} |", column.cell(row)));
        text += &format!(" {} |\n", row.standing().unwrap_or("no load"));
    }
    text
}

/// What it was measured on.
fn machine(date: &str) -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    // Not those of this process: it is pinned.
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release: Vec<&str> = release.trim().split('.').take(2).collect();
    format!(
        "Measured {date} on {cores} cores ({}), the server with one worker on the first, the load on the second; Linux {}, \
         weir {}. Medians of {WINDOWS} windows.\n",
        model.trim_start_matches([' ', '\t', ':']),
        release.join("."),
        env!("CARGO_PKG_VERSION"),
    )
}
