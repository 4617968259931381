//! Published beside measured: somebody's published rows and ours in one table.
//!
//! All levels of either side are listed. What one side does not have is a dash.

use super::document::{Block, Column, Table, column};
use super::format::{self, latency};
use super::sentences;
use kv::units::short;
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, Findings, PublishedSweep, Row, WorkloadFindings};

/// What both sides have of one level.
struct Pair<'a> {
    clients: u32,
    published: Option<&'a AuditedRow>,
    measured: Option<&'a Row>,
}

/// A figure that both sides may have: its heading, what is published and what is measured.
type Figures = (&'static str, fn(&AuditedRow) -> Option<String>, fn(&Row) -> Option<String>);

const FIGURES: &[Figures] = &[
    ("req/s", |row| Some(short(row.printed.throughput_rps?.value)), |row| Some(short(row.goodput_rps?.mean))),
    ("latency", |row| Some(latency(Some(latency_us(row)?))), |row| Some(latency(Some(row.latency_us_mean?)))),
    (
        "server CPU",
        |row| Some(format!("{} %", row.printed.server_cpu_pct?)),
        |row| share(server_cpu(row)?.utilization?),
    ),
    (
        "disk busy",
        |row| Some(format!("{} %", row.printed.disk_util_pct?)),
        |row| share(disk(row)?.utilization?),
    ),
    ("success", |row| share(row.printed.success_share?.value), |row| share(1.0 - row.error_ratio?)),
    (
        "Little",
        |row| Some(format::residual(row.residual?.value)),
        |row| Some(format::residual(row.little_residual?)),
    ),
];

/// Measured throughput over published.
fn ratio(measured: Option<f64>, published: Option<f64>) -> Option<String> {
    format::finite(Some(measured? / published?)).map(|ratio| format!("{}×", short(ratio)))
}

/// A workload that has published rows.
type Published<'a> = (&'a WorkloadFindings, &'a PublishedSweep);

fn most_published((_, sweep): &Published) -> Option<f64> {
    sweep.rows.iter().filter_map(|row| Some(row.printed.throughput_rps?.value)).max_by(f64::total_cmp)
}

const FRONT: &[(&str, fn(&Published) -> Option<String>)] = &[
    ("<workload", |(found, _)| Some(found.name.clone())),
    ("published, req/s", |of| most_published(of).map(short)),
    ("measured, req/s", |(found, _)| sentences::most_completed(found).map(short)),
    ("ratio", |of| ratio(sentences::most_completed(of.0), most_published(of))),
    ("break Little’s law", |(_, sweep)| Some(format!("{} of {}", sweep.off(), sweep.checked()))),
];

/// The beginning of the page: the most that was published of each workload beside the most that was measured. Nothing
/// where nothing was published.
pub(super) fn front(findings: &Findings) -> Vec<Block> {
    let sweeps: Vec<Published> =
        findings.workloads.iter().filter_map(|found| Some((found, found.printed.as_ref()?))).collect();
    if sweeps.is_empty() {
        return Vec::new();
    }
    let off: u32 = sweeps.iter().map(|(_, sweep)| sweep.off()).sum();
    let said = match sweeps.iter().map(|(_, sweep)| sweep.checked()).sum::<u32>() {
        0 => "No published row can be checked by Little’s law.".to_owned(),
        checked => format!("{off} of {checked} published rows break Little’s law by more than 5 %."),
    };
    vec![
        Block::Text(format!("Published beside measured, each at its best level. {said}")),
        Block::Table(Table::of(&sweeps, FRONT, |_| false)),
    ]
}

/// What stands on the page of a workload that has published rows; nothing of one that has none.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let mut blocks =
        vec![Block::Part("Published beside measured".to_owned()), Block::Text(sentences::published(sweep))];
    let published = sweep.rows.iter().filter_map(|row| Some((row.printed.clients?, Some(row))));
    let is_alone = |row: &&Row| sweep.rows.iter().all(|of| of.printed.clients != Some(row.level));
    let alone = found.rows.iter().filter(is_alone).map(|row| (row.level, None));
    let pair = |(clients, published)| {
        let measured = found.rows.iter().find(|row| row.level == clients);
        Pair { clients, published, measured }
    };
    let mut pairs: Vec<Pair> = published.chain(alone).map(pair).collect();
    pairs.sort_by_key(|pair| pair.clients);
    let is_published = |of: &&Figures| pairs.iter().any(|pair| pair.published.and_then(of.1).is_some());
    let (shown, absent): (Vec<&Figures>, Vec<&Figures>) = FIGURES.iter().partition(is_published);
    // Without a published level the table would be that of the levels again.
    if pairs.iter().any(|pair| pair.published.is_some()) {
        blocks.push(Block::Table(table(&pairs, &shown)));
    }
    blocks.push(Block::Notes(notes(sweep, &pairs, &absent)));
    blocks
}

fn table(pairs: &[Pair], figures: &[&Figures]) -> Table {
    let mut columns: Vec<Column<Pair>> =
        vec![column("clients", |pair: &Pair| Some(pair.clients.to_string()))];
    for (name, published, measured) in figures {
        columns.push(column(format!("{name}, published"), |pair: &Pair| published(pair.published?)));
        columns.push(column(format!("{name}, measured"), |pair: &Pair| measured(pair.measured?)));
    }
    columns.push(column("req/s, ratio", |pair: &Pair| {
        ratio(Some(pair.measured?.goodput_rps?.mean), Some(pair.published?.printed.throughput_rps?.value))
    }));
    Table::of(pairs, &columns, |pair| pair.published.is_some_and(AuditedRow::off))
}

/// Mean latency of a published row, in the unit of ours.
pub(super) fn latency_us(row: &AuditedRow) -> Option<f64> {
    Some(row.printed.latency_ms?.value * 1e3)
}

/// The processor that a published server CPU is compared with: the one the server runs on.
pub(super) fn server_cpu(row: &Row) -> Option<&Use> {
    row.resources.iter().find(|of| of.name.starts_with("server") && of.name.ends_with("CPU"))
}

/// The disk that a published one is compared with.
pub(super) fn disk(row: &Row) -> Option<&Use> {
    row.resources.iter().find(|of| of.name.starts_with("disk"))
}

fn notes(sweep: &PublishedSweep, pairs: &[Pair], absent: &[&Figures]) -> Vec<String> {
    let mut notes = Vec::new();
    if sweep.checked() > 0 {
        let absent: Vec<&str> = absent.iter().map(|of| of.0).collect();
        let mut note = "Published throughput is beside measured goodput; the ratio is measured over published. Grey: published \
                        rows that break Little’s law by more than 5 %."
            .to_owned();
        if !absent.is_empty() {
            note += &format!(" Not published: {}.", absent.join(", "));
        }
        let beside: [(&str, fn(&Row) -> Option<&Use>); 2] = [("server CPU", server_cpu), ("disk busy", disk)];
        for (what, ours) in beside.iter().filter(|(what, _)| !absent.contains(what)) {
            let ours = pairs.iter().find_map(|pair| ours(pair.measured?));
            note +=
                &ours.map_or_else(String::new, |of| format!(" Measured “{what}” is that of {}.", of.name));
        }
        notes.push(note);
    }
    notes.extend(sweep.remarks.iter().map(|remark| format!("Published: {remark}")));
    for row in sweep.rows.iter().filter(|row| !row.printed.note.is_empty()) {
        let Some(clients) = row.printed.clients else { continue };
        let (at, note) = (format::count(clients, "client"), row.printed.note.trim_end_matches('.'));
        notes.push(format!("Published at {at}: {note}."));
    }
    notes
}

fn share(of: f64) -> Option<String> {
    of.is_finite().then(|| format!("{:.1} %", of * 100.0))
}
