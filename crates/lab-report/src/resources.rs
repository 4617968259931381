//! Three parts of a workload's section: where the clients were, where the databases' sessions were, and what the resources did.

use super::document::{Block, Column, Table, column};
use super::format::{known, number, percent, trimmed};
use super::sentences;
use kv::units::short;
use lab_analysis::waits::class_of;
use lab_analysis::{FIGURES, Figure, Place, Population, Row, WaitKind, Whereabouts, WorkloadFindings};
use std::collections::{BTreeMap, BTreeSet};

/// As many figures stand beside each other.
const FIGURES_MAX: usize = 12;
/// A place or a state in which there is never this much of a client or a session has no column.
const SHOWN_MIN: f64 = 0.05;

/// The parts, each only where something was read.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    [clients(found), sessions(found), figures(found)].into_iter().flatten().collect()
}

/// A table of levels.
fn by_level<'a>(found: &'a WorkloadFindings, columns: impl IntoIterator<Item = Column<'a, Row>>) -> Block {
    let clients = column("clients", |row: &Row| Some(row.level.to_string()));
    let columns: Vec<Column<Row>> = [clients].into_iter().chain(columns).collect();
    Block::Table(Table::of(&found.rows, &columns, |row| !row.usable()))
}

/// Of each level its clients: at the resources in the order of a request's way, then all others.
fn clients(found: &WorkloadFindings) -> Vec<Block> {
    type Read<'a> = Box<dyn Fn(&Population) -> f64 + 'a>;
    let counted = || found.rows.iter().filter_map(|row| row.population.as_ref());
    let Some(first) = counted().next() else { return Vec::new() };
    let mut all: Vec<(String, Read)> = vec![("thinking or backing off".to_owned(), Box::new(|of| of.away))];
    let kinds: [(&str, fn(&Place) -> Option<f64>); 2] =
        [("waiting", |place| place.waiting), ("served", |place| place.serving)];
    for Place { resource, .. } in first.places.iter().filter(|place| !place.inner) {
        all.extend(kinds.map(|(kind, read)| -> (String, Read) {
            let place =
                move |of: &Population| of.places.iter().find(|of| of.resource == *resource).and_then(read);
            (format!("{resource}, {kind}"), Box::new(move |of| place(of).unwrap_or(0.0)))
        }));
    }
    all.push(("unaccounted".to_owned(), Box::new(|of| of.unaccounted)));
    all.retain(|(_, read)| counted().any(|of| read(of).abs() >= SHOWN_MIN));
    let columns = all.into_iter().map(|(heading, read)| {
        column(heading, move |row: &Row| Some(number(read(row.population.as_ref()?), 1)))
    });
    let late = "Sockets were sampled late, without real-time priority (ulimit -r), so the split of waiting clients between server and \
        generator is less certain.";
    let notes = if counted().any(|of| of.is_late) { vec![late.to_owned()] } else { Vec::new() };
    vec![Block::Part("Where the clients are".to_owned()), by_level(found, columns), Block::Notes(notes)]
}

fn sessions(found: &WorkloadFindings) -> Vec<Block> {
    let all = || found.rows.iter().flat_map(|row| &row.waits);
    let parts: BTreeSet<&str> = all().map(|of| of.part.as_str()).collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let mut page = vec![Block::Part("Where the database’s sessions were".to_owned())];
    page.extend(found.waits.iter().map(|of| Block::Text(sentences::sessions(of))));
    page.extend(parts.into_iter().filter_map(|part| states(found, part)));
    let least = known(all().map(|of| of.samples).reduce(f64::min), |least| number(least, 0));
    let cost = known(all().filter_map(|of| of.cost_ratio).reduce(f64::max), |share| percent(share, 1));
    page.push(Block::Notes(vec![format!(
        "Mean number of sessions in each state, over at least {least} samples a trial; sampling took at most {cost} of a core; \
         the database’s CPU time includes it."
    )]));
    page
}

/// Levels by states, the most frequent first and idleness last; nothing of a database that never did anything.
fn states<'a>(found: &'a WorkloadFindings, part: &'a str) -> Option<Block> {
    let is_idle = |state: &str| class_of(state).kind == WaitKind::Idle;
    let of = move |row: &'a Row| row.waits.iter().find(|of| of.part == part);
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for (state, count) in found.rows.iter().filter_map(of).flat_map(|of| &of.sessions) {
        let most = most.entry(state).or_default();
        *most = most.max(*count);
    }
    most.retain(|_, count| *count >= SHOWN_MIN);
    let mut states: Vec<(&str, f64)> = most.into_iter().collect();
    states.sort_by(|a, b| is_idle(a.0).cmp(&is_idle(b.0)).then(b.1.total_cmp(&a.1)));
    let is_working = states.first().is_some_and(|(state, _)| !is_idle(state));
    let sum = move |row: &Row, among: &dyn Fn(&str) -> bool| {
        let of: &Whereabouts = row.waits.iter().find(|of| of.part == part)?;
        Some(number(of.sum(among), 2))
    };
    let of_states = states.into_iter().map(|(state, _)| {
        let heading = match state.split_once(':') {
            Some((kind, event)) => format!("{event}, {kind}"),
            None => state.replace('_', " "),
        };
        column(heading, move |row: &Row| sum(row, &|of| of == state))
    });
    let all = column(format!("sessions, {part}"), move |row: &Row| sum(row, &|_| true));
    is_working.then(|| by_level(found, of_states.chain([all])))
}

/// Levels by figures, in tables that fit a page. A figure that is 0 at every level has no column.
fn figures(found: &WorkloadFindings) -> Vec<Block> {
    let all = || found.rows.iter().flat_map(|row| &row.figures);
    let owners = |figure: &Figure| -> BTreeSet<&str> {
        let of_figure = all().filter(|of| of.figure == figure.name && of.value != 0.0);
        of_figure.map(|of| of.of.as_str()).collect()
    };
    let shown: Vec<(&Figure, &str)> = FIGURES
        .iter()
        .flat_map(|figure| owners(figure).into_iter().map(move |owner| (figure, owner)))
        .collect();
    if shown.is_empty() {
        return Vec::new();
    }
    let figure = |(figure, owner): &(&'static Figure, _)| {
        let (name, owner): (_, String) = (figure.name, String::from(*owner));
        column(format!("{owner}: {}, {}", figure.heading.0, figure.heading.1), move |row: &Row| {
            let value = row.figures.iter().find(|of| of.figure == name && of.of == owner)?.value;
            let text = short(value);
            Some(if value.fract() == 0.0 { trimmed(&text) } else { text })
        })
    };
    let groups = shown.chunk_by(|(a, _), (b, _)| a.group == b.group);
    let tables = groups.flat_map(|group| group.chunks(FIGURES_MAX));
    // What has to be known of several figures is said once.
    let mut notes: Vec<&str> = shown.iter().filter_map(|(figure, _)| figure.note).collect();
    notes.dedup();
    let mut page = vec![Block::Part("Resource usage".to_owned())];
    page.extend(tables.map(|of| by_level(found, of.iter().map(figure))));
    page.push(Block::Notes(notes.into_iter().map(str::to_owned).collect()));
    page
}
