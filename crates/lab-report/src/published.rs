//! Published beside measured: somebody's published rows and ours in one table.
//!
//! All levels of either side are listed. What one side does not have is a dash.

use super::document::{Block, Table, TableColumn};
use super::format::{self, UNKNOWN};
use super::sentences;
use kv::units::short;
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, Findings, PublishedSweep, Row, WorkloadFindings};

/// A line of the table: what both sides have of one level.
struct Pair<'a> {
    clients: u32,
    published: Option<&'a AuditedRow>,
    measured: Option<&'a Row>,
}

/// A cell; `None` where that side does not have it.
type Cell = fn(&Pair) -> Option<String>;

/// A figure that both sides may have: its heading, what is published and what is measured.
type Figures = (&'static str, Cell, Cell);

const THROUGHPUT: &str = "req/s";

const FIGURES: &[Figures] = &[
    (
        THROUGHPUT,
        |pair| Some(short(pair.published?.printed.throughput_rps?.value)),
        |pair| Some(short(pair.measured?.goodput_rps?.mean)),
    ),
    (
        "latency",
        |pair| Some(format::latency(Some(latency_us(pair.published?)?))),
        |pair| Some(format::latency(Some(pair.measured?.latency_us_mean?))),
    ),
    (
        "server CPU",
        |pair| Some(format!("{} %", pair.published?.printed.server_cpu_pct?)),
        |pair| share(server_cpu(pair.measured?)?.utilization?),
    ),
    (
        "disk busy",
        |pair| Some(format!("{} %", pair.published?.printed.disk_util_pct?)),
        |pair| share(disk(pair.measured?)?.utilization?),
    ),
    (
        "success",
        |pair| share(pair.published?.printed.success_share?.value),
        |pair| share(1.0 - pair.measured?.error_ratio?),
    ),
    (
        "Little",
        |pair| Some(format::residual(pair.published?.residual?.value)),
        |pair| Some(format::residual(pair.measured?.little_residual?)),
    ),
];

/// Measured throughput over published.
fn ratio(pair: &Pair) -> Option<String> {
    let ratio = pair.measured?.goodput_rps?.mean / pair.published?.printed.throughput_rps?.value;
    ratio.is_finite().then(|| format!("{}×", short(ratio)))
}

/// The beginning of the page: the most that was published of each workload beside the most that was measured. Nothing
/// where nothing was published.
pub(super) fn front(findings: &Findings) -> Vec<Block> {
    let sweeps: Vec<(&WorkloadFindings, &PublishedSweep)> =
        findings.workloads.iter().filter_map(|found| Some((found, found.printed.as_ref()?))).collect();
    if sweeps.is_empty() {
        return Vec::new();
    }
    let (off, checked) =
        sweeps.iter().fold((0, 0), |(off, all), (_, of)| (off + of.off(), all + of.checked()));
    let said = match checked {
        0 => "No published row can be checked by Little’s law.".to_owned(),
        _ => format!("{off} of {checked} published rows break Little’s law by more than 5 %."),
    };
    let mut table =
        Table::new(&["<workload", "published, req/s", "measured, req/s", "ratio", "break Little’s law"]);
    for (found, sweep) in sweeps {
        let most = |values: &mut dyn Iterator<Item = f64>| values.max_by(f64::total_cmp);
        let published =
            most(&mut sweep.rows.iter().filter_map(|row| Some(row.printed.throughput_rps?.value)));
        let measured = most(&mut found.rows.iter().filter_map(|row| Some(row.goodput_rps?.mean)));
        let ratio = measured.zip(published).map(|(measured, published)| measured / published);
        let breaking = format!("{} of {}", sweep.off(), sweep.checked());
        let [published, measured] = [published, measured].map(|rps| format::known(rps, short));
        let ratio = format::known(ratio, |ratio| format!("{}×", short(ratio)));
        table.push([found.name.clone(), published, measured, ratio, breaking]);
    }
    vec![
        Block::Text(format!("Published beside measured, each at its best level. {said}")),
        Block::Table(table),
    ]
}

/// What stands on the page of a workload that has published rows; nothing of one that has none.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let mut blocks =
        vec![Block::Part("Published beside measured".to_owned()), Block::Text(sentences::published(sweep))];
    let pairs = pairs(sweep, &found.rows);
    // Without a published level the table would be that of the levels again.
    let (shown, absent): (Vec<&Figures>, Vec<&Figures>) =
        FIGURES.iter().partition(|of| pairs.iter().any(|pair| (of.1)(pair).is_some()));
    if pairs.iter().any(|pair| pair.published.is_some()) {
        blocks.push(Block::Table(table(&pairs, &shown)));
    }
    blocks.push(Block::Notes(notes(sweep, &pairs, &absent)));
    blocks
}

fn table(pairs: &[Pair], figures: &[&Figures]) -> Table {
    let mut columns: Vec<(&str, &str, Cell)> = vec![("clients", "", |pair| Some(pair.clients.to_string()))];
    for (name, published, measured) in figures {
        columns.extend([(*name, "published", *published), (*name, "measured", *measured)]);
        columns.extend((*name == THROUGHPUT).then_some((*name, "ratio", ratio as Cell)));
    }
    let mut table =
        Table::of(columns.iter().map(|(name, unit, _)| TableColumn::figures(*name, *unit)).collect());
    for pair in pairs {
        let cells = columns.iter().map(|(.., cell)| cell(pair).unwrap_or_else(|| UNKNOWN.to_owned()));
        table.push_row(cells, pair.published.is_some_and(AuditedRow::off));
    }
    table
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

fn pairs<'a>(sweep: &'a PublishedSweep, rows: &'a [Row]) -> Vec<Pair<'a>> {
    let published = sweep.rows.iter().filter_map(|row| Some((row.printed.clients?, row)));
    let mut pairs: Vec<Pair> =
        published.map(|(clients, row)| Pair { clients, published: Some(row), measured: None }).collect();
    for row in rows {
        match pairs.iter_mut().find(|pair| pair.clients == row.level) {
            Some(pair) => pair.measured = Some(row),
            None => pairs.push(Pair { clients: row.level, published: None, measured: Some(row) }),
        }
    }
    pairs.sort_by_key(|pair| pair.clients);
    pairs
}

fn notes(sweep: &PublishedSweep, pairs: &[Pair], absent: &[&Figures]) -> Vec<String> {
    let mut notes = Vec::new();
    if sweep.checked() > 0 {
        let ours =
            |of: fn(&Row) -> Option<&Use>| pairs.iter().find_map(|pair| Some(&*of(pair.measured?)?.name));
        let beside = [("server CPU", ours(server_cpu)), ("disk busy", ours(disk))];
        let shown = |what: &str| absent.iter().all(|of| of.0 != what);
        let beside = (beside.iter().filter(|(what, _)| shown(what)))
            .filter_map(|(what, name)| Some(format!(" Measured “{what}” is that of {}.", (*name)?)));
        let absent: Vec<&str> = absent.iter().map(|of| of.0).collect();
        let absent =
            if absent.is_empty() { String::new() } else { format!(" Not published: {}.", absent.join(", ")) };
        notes.push(format!(
            "Published throughput is beside measured goodput; the ratio is measured over published. Grey: published rows that \
             break Little’s law by more than 5 %.{absent}{}",
            beside.collect::<String>()
        ));
    }
    notes.extend(sweep.remarks.iter().map(|remark| format!("Published: {remark}")));
    for row in sweep.rows.iter().filter(|row| !row.printed.note.is_empty() && row.printed.clients.is_some()) {
        let at = format::count(row.printed.clients.unwrap_or_default(), "client");
        notes.push(format!("Published at {at}: {}.", row.printed.note.trim_end_matches('.')));
    }
    notes
}

fn share(of: f64) -> Option<String> {
    of.is_finite().then(|| format!("{:.1} %", of * 100.0))
}
