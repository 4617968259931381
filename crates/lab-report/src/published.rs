//! Published beside measured: somebody's published rows and ours in one table.
//!
//! All rows of either side are listed. What one side does not have is a dash.

use super::document::{Answer, Block, Table};
use super::format::{finite, known, percent, residual};
use super::sentences;
use kv::units::{micros, short};
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, PublishedSweep, Row, WorkloadFindings};

/// What both sides have of one level; published rows need not say which.
struct Pair<'a> {
    clients: Option<u32>,
    published: Option<&'a AuditedRow>,
    measured: Option<&'a Row>,
}

/// Heading and cell.
const PAIRS: &[(&str, fn(&Pair) -> Option<String>)] = &[
    ("clients", |pair| Some(pair.clients?.to_string())),
    ("req/s, published", |pair| Some(short(pair.published?.printed.throughput_rps?.value))),
    ("req/s, measured", |pair| Some(short(pair.measured?.goodput_rps?.mean))),
    ("req/s, ratio", |pair| {
        ratio(Some(pair.measured?.goodput_rps?.mean), Some(pair.published?.printed.throughput_rps?.value))
    }),
    ("latency, published", |pair| latency_us(pair.published?).map(micros)),
    ("latency, measured", |pair| pair.measured?.latency_us_mean.map(micros)),
    ("server CPU, published", |pair| Some(format!("{} %", pair.published?.printed.server_cpu_pct?))),
    ("server CPU, measured", |pair| share(server_cpu(pair.measured?)?.utilization?)),
    ("disk utilization, published", |pair| Some(format!("{} %", pair.published?.printed.disk_util_pct?))),
    ("disk utilization, measured", |pair| share(disk(pair.measured?)?.utilization?)),
    ("success, published", |pair| share(pair.published?.printed.success_share?.value)),
    ("success, measured", |pair| share(1.0 - pair.measured?.error_ratio?)),
    ("Little, published", |pair| pair.published?.residual.map(|of| residual(of.value))),
    ("Little, measured", |pair| pair.measured?.little_residual.map(residual)),
    ("<published note", |pair| {
        pair.published.map(|row| row.printed.note.clone()).filter(|note| !note.is_empty())
    }),
];

/// Measured throughput over published.
fn ratio(measured: Option<f64>, published: Option<f64>) -> Option<String> {
    finite(Some(measured? / published?)).map(|ratio| format!("{}×", short(ratio)))
}

/// The most that was published, beside the most that was measured; `None` where nothing was published.
pub(super) fn answer(found: &WorkloadFindings) -> Option<Answer> {
    let sweep = found.printed.as_ref()?;
    let published = sweep.rows.iter().filter_map(|row| Some(row.printed.throughput_rps?.value));
    let published = published.max_by(f64::total_cmp);
    let ratio = ratio(sentences::most_completed(found), published).map(|ratio| format!("measured {ratio}"));
    let details = ratio.into_iter().chain([sentences::deviating(sweep)]).collect();
    Some(Answer { label: "published", said: known(published, short) + " req/s", details, class: "" })
}

/// What stands on the page of a workload that has published rows; nothing of one that has none.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let mut blocks =
        vec![Block::Part("Published beside measured".to_owned()), Block::Text(sentences::published(sweep))];
    let published = sweep.rows.iter().map(|row| (row.printed.clients, Some(row)));
    let is_alone = |row: &&Row| sweep.rows.iter().all(|of| of.printed.clients != Some(row.level));
    let alone = found.rows.iter().filter(is_alone).map(|row| (Some(row.level), None));
    let pair = |(clients, published)| {
        let measured = found.rows.iter().find(|row| Some(row.level) == clients);
        Pair { clients, published, measured }
    };
    let mut pairs: Vec<Pair> = published.chain(alone).map(pair).collect();
    pairs.sort_by_key(|pair| pair.clients.unwrap_or(u32::MAX));
    let is_off = |pair: &Pair| pair.published.is_some_and(AuditedRow::off);
    blocks.push(Block::Table(Table::of(&pairs, PAIRS, is_off)));
    blocks.push(Block::Notes(notes(sweep, found)));
    blocks
}

/// Mean latency of a published row, in the unit of ours.
pub(super) fn latency_us(row: &AuditedRow) -> Option<f64> {
    Some(row.printed.latency_ms?.value * 1e3)
}

/// The processor that a published server CPU is compared with: the one the server runs on.
fn server_cpu(row: &Row) -> Option<&Use> {
    row.resources.iter().find(|of| of.name.starts_with("server") && of.name.ends_with("CPU"))
}

/// The disk that a published one is compared with.
fn disk(row: &Row) -> Option<&Use> {
    row.resources.iter().find(|of| of.name.starts_with("disk"))
}

fn notes(sweep: &PublishedSweep, found: &WorkloadFindings) -> Vec<String> {
    let mut notes = Vec::new();
    if sweep.checked() > 0 {
        let ours =
            |read: fn(&Row) -> Option<&Use>| found.rows.iter().find_map(read).map_or("none", |of| &of.name);
        notes.push(format!(
            "Published throughput is beside measured goodput; the ratio is measured over published. Grey, and hollow on \
             the dashed curves of the plots: published rows that deviate from Little’s law by more than 5 %. The processor measured is {}, the disk {}.",
            ours(server_cpu),
            ours(disk)
        ));
    }
    notes.extend(sweep.remarks.iter().map(|remark| format!("Published: {remark}")));
    notes
}

fn share(of: f64) -> Option<String> {
    finite(Some(of)).map(|share| percent(share, 1))
}
