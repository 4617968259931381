//! Printed beside measured: the table that holds somebody's printed rows against ours, and what is said around it.
//!
//! All levels of either side are listed. What one side does not have is a dash.

use super::page::{Block, Table};
use super::words::{self, UNKNOWN};
use crate::lab::analysis::rows::Use;
use crate::lab::analysis::{AuditedRow, PrintedSweep, Row, WorkloadFindings};
use crate::lab::printed::Figure;
use crate::units::short;

/// A line of the table: what both sides have of one level.
struct Pair<'a> {
    clients: u32,
    printed: Option<&'a AuditedRow>,
    measured: Option<&'a Row>,
}

/// A column: heading, what stands below that, and its cell.
type Column = (&'static str, &'static str, fn(&Pair) -> Option<String>);

const COLUMNS: &[Column] = &[
    ("clients", "", |pair| Some(pair.clients.to_string())),
    ("req/s", "printed", |pair| Some(short(pair.printed?.printed.throughput_rps?.value))),
    ("goodput", "measured", |pair| Some(short(pair.measured?.goodput_rps?.mean))),
    ("ratio", "", |pair| {
        let printed = pair.printed?.printed.throughput_rps?.value;
        let ratio = pair.measured?.goodput_rps?.mean / printed;
        ratio.is_finite().then(|| format!("{}×", short(ratio)))
    }),
    ("latency", "printed", |pair| Some(words::latency(Some(latency_us(pair.printed?)?)))),
    ("latency", "measured", |pair| Some(words::latency(Some(pair.measured?.latency_us_mean?)))),
    ("CPU", "printed", |pair| Some(percent(pair.printed?.printed.server_cpu_pct?))),
    ("CPU", "measured", |pair| share(server_cpu(pair.measured?)?.utilization?)),
    ("disk", "printed", |pair| Some(percent(pair.printed?.printed.disk_util_pct?))),
    ("disk", "measured", |pair| share(disk(pair.measured?)?.utilization?)),
    ("success", "printed", |pair| share(pair.printed?.printed.success_share?.value)),
    ("success", "measured", |pair| share(1.0 - pair.measured?.error_ratio?)),
    ("Little", "printed", |pair| Some(words::residual(pair.printed?.residual?.value))),
    ("Little", "measured", |pair| Some(words::residual(pair.measured?.little_residual?))),
];

/// What stands on the page of a workload that has printed rows; nothing of one that has none.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let mut blocks =
        vec![Block::Part("Printed beside measured".to_owned()), Block::Text(words::audited(sweep))];
    let pairs = pairs(sweep, &found.rows);
    // Without a single level printed the table would be the one of levels again.
    if pairs.iter().any(|pair| pair.printed.is_some()) {
        let off = |pair: &Pair| pair.printed.is_some_and(AuditedRow::off);
        let line = |pair: &Pair| {
            let cell = |column: &Column| (column.2)(pair).unwrap_or_else(|| UNKNOWN.to_owned());
            COLUMNS.iter().map(cell).collect::<Vec<String>>()
        };
        blocks.push(Block::Table(Table {
            head: COLUMNS.iter().map(|(name, below, _)| ((*name).to_owned(), (*below).to_owned())).collect(),
            words: vec![false; COLUMNS.len()],
            rows: pairs.iter().map(|pair| (line(pair), off(pair))).collect(),
        }));
    }
    blocks.push(Block::Notes(notes(sweep, &pairs)));
    blocks
}

/// Mean latency of a printed row, in the unit of ours.
pub(super) fn latency_us(row: &AuditedRow) -> Option<f64> {
    Some(row.printed.latency_ms?.value * 1e3)
}

/// The processor that a printed server CPU stands beside: the one the server runs on.
pub(super) fn server_cpu(row: &Row) -> Option<&Use> {
    row.resources.iter().find(|of| of.name.starts_with("server") && of.name.ends_with("CPU"))
}

/// The disk that a printed one stands beside.
pub(super) fn disk(row: &Row) -> Option<&Use> {
    row.resources.iter().find(|of| of.name.starts_with("disk"))
}

fn pairs<'a>(sweep: &'a PrintedSweep, rows: &'a [Row]) -> Vec<Pair<'a>> {
    let printed = sweep.rows.iter().filter_map(|row| Some((row.printed.clients?, row)));
    let mut pairs: Vec<Pair> =
        printed.map(|(clients, row)| Pair { clients, printed: Some(row), measured: None }).collect();
    for row in rows {
        match pairs.iter_mut().find(|pair| pair.clients == row.level) {
            Some(pair) => pair.measured = Some(row),
            None => pairs.push(Pair { clients: row.level, printed: None, measured: Some(row) }),
        }
    }
    pairs.sort_by_key(|pair| pair.clients);
    pairs
}

fn notes(sweep: &PrintedSweep, pairs: &[Pair]) -> Vec<String> {
    let mut notes = Vec::new();
    let ours =
        |of: fn(&Row) -> Option<&Use>| pairs.iter().find_map(|pair| Some(of(pair.measured?)?.name.as_str()));
    let beside = [("CPU", ours(server_cpu)), ("disk", ours(disk))];
    let beside: Vec<String> = beside
        .iter()
        .filter_map(|(column, name)| Some(format!("{column} is that of {}", (*name)?)))
        .collect();
    let measured =
        if beside.is_empty() { String::new() } else { format!(" Measured {}.", beside.join(", ")) };
    if sweep.checked() > 0 {
        notes.push(format!(
            "Set back are printed rows that miss Little’s law by more than 5 %. The ratio is measured over printed.{measured}"
        ));
    }
    notes.extend(sweep.remarks.iter().map(|remark| format!("Printed: {remark}")));
    for row in sweep.rows.iter().filter(|row| !row.printed.note.is_empty() && row.printed.clients.is_some()) {
        let at = words::count(row.printed.clients.unwrap_or_default(), "client");
        notes.push(format!("Printed at {at}: {}.", row.printed.note.trim_end_matches('.')));
    }
    notes
}

/// As printed, with its unit.
fn percent(figure: Figure) -> String {
    format!("{figure} %")
}

fn share(of: f64) -> Option<String> {
    of.is_finite().then(|| format!("{:.1} %", of * 100.0))
}
