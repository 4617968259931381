//! Printed beside measured: the table that holds somebody's printed rows against ours, and what is said around it.
//!
//! All levels of either side are listed. What one side does not have is a dash.

use super::page::{Block, Table};
use super::words::{self, UNKNOWN};
use kv::units::short;
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, PrintedSweep, Row, WorkloadFindings};
use lab_data::printed::Figure;

/// A line of the table: what both sides have of one level.
struct Pair<'a> {
    clients: u32,
    printed: Option<&'a AuditedRow>,
    measured: Option<&'a Row>,
}

/// A cell; `None` where that side does not have it.
type Cell = fn(&Pair) -> Option<String>;

/// A figure that both sides may have: its heading, what is printed and what is measured, and further columns of it.
struct Figures {
    name: &'static str,
    printed: Cell,
    measured: Cell,
    ratio: Option<Cell>,
}

const FIGURES: &[Figures] = &[
    Figures {
        name: "req/s",
        printed: |pair| Some(short(pair.printed?.printed.throughput_rps?.value)),
        measured: |pair| Some(short(pair.measured?.goodput_rps?.mean)),
        ratio: Some(|pair| {
            let printed = pair.printed?.printed.throughput_rps?.value;
            let ratio = pair.measured?.goodput_rps?.mean / printed;
            ratio.is_finite().then(|| format!("{}×", short(ratio)))
        }),
    },
    Figures {
        name: "latency",
        printed: |pair| Some(words::latency(Some(latency_us(pair.printed?)?))),
        measured: |pair| Some(words::latency(Some(pair.measured?.latency_us_mean?))),
        ratio: None,
    },
    Figures {
        name: "server CPU",
        printed: |pair| Some(percent(pair.printed?.printed.server_cpu_pct?)),
        measured: |pair| share(server_cpu(pair.measured?)?.utilization?),
        ratio: None,
    },
    Figures {
        name: "disk busy",
        printed: |pair| Some(percent(pair.printed?.printed.disk_util_pct?)),
        measured: |pair| share(disk(pair.measured?)?.utilization?),
        ratio: None,
    },
    Figures {
        name: "success",
        printed: |pair| share(pair.printed?.printed.success_share?.value),
        measured: |pair| share(1.0 - pair.measured?.error_ratio?),
        ratio: None,
    },
    Figures {
        name: "Little",
        printed: |pair| Some(words::residual(pair.printed?.residual?.value)),
        measured: |pair| Some(words::residual(pair.measured?.little_residual?)),
        ratio: None,
    },
];

/// What stands on the page of a workload that has printed rows; nothing of one that has none.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let mut blocks =
        vec![Block::Part("Printed beside measured".to_owned()), Block::Text(words::audited(sweep))];
    let pairs = pairs(sweep, &found.rows);
    // Without a single level printed the table would be the one of levels again, and so would a figure that is not.
    let (shown, absent): (Vec<&Figures>, Vec<&Figures>) =
        FIGURES.iter().partition(|of| pairs.iter().any(|pair| (of.printed)(pair).is_some()));
    if pairs.iter().any(|pair| pair.printed.is_some()) {
        blocks.push(Block::Table(table(&pairs, &shown)));
    }
    blocks.push(Block::Notes(notes(sweep, &pairs, &absent)));
    blocks
}

fn table(pairs: &[Pair], figures: &[&Figures]) -> Table {
    let mut columns: Vec<(&str, &str, Cell)> = vec![("clients", "", |pair| Some(pair.clients.to_string()))];
    for Figures { name, printed, measured, ratio } in figures {
        columns.extend([(*name, "printed", *printed), (*name, "measured", *measured)]);
        columns.extend(ratio.map(|cell| (*name, "ratio", cell)));
    }
    let line = |pair: &Pair| {
        columns.iter().map(|(.., cell)| cell(pair).unwrap_or_else(|| UNKNOWN.to_owned())).collect()
    };
    let off = |pair: &Pair| pair.printed.is_some_and(AuditedRow::off);
    Table {
        head: columns.iter().map(|(name, below, _)| ((*name).to_owned(), (*below).to_owned())).collect(),
        words: vec![false; columns.len()],
        rows: pairs.iter().map(|pair| (line(pair), off(pair))).collect(),
    }
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

fn notes(sweep: &PrintedSweep, pairs: &[Pair], absent: &[&Figures]) -> Vec<String> {
    let mut notes = Vec::new();
    if sweep.checked() > 0 {
        let ours =
            |of: fn(&Row) -> Option<&Use>| pairs.iter().find_map(|pair| Some(&*of(pair.measured?)?.name));
        let beside = [("server CPU", ours(server_cpu)), ("disk busy", ours(disk))];
        let shown = |what: &str| absent.iter().all(|of| of.name != what);
        let beside = (beside.iter().filter(|(what, _)| shown(what)))
            .filter_map(|(what, name)| Some(format!(" Measured “{what}” is that of {}.", (*name)?)));
        let absent: Vec<&str> = absent.iter().map(|of| of.name).collect();
        let absent =
            if absent.is_empty() { String::new() } else { format!(" Not printed: {}.", absent.join(", ")) };
        notes.push(format!(
            "Throughput is as printed, beside goodput; the ratio is measured over printed. Set back: printed rows that \
             miss Little’s law by more than 5 %.{absent}{}",
            beside.collect::<String>()
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
