//! Two parts of a workload's section: where the databases' sessions were, and what the resources did.

use super::document::{Block, Column, Table, column};
use super::format::known;
use super::sentences;
use kv::units::short;
use lab_analysis::waits::class_of;
use lab_analysis::{FIGURES, Figure, Group, Row, WaitKind, Whereabouts, WorkloadFindings};
use std::collections::{BTreeMap, BTreeSet};

/// As many states have a column, beside idleness and the sum of all.
const STATES_MAX: usize = 7;
/// As many figures stand beside each other.
const FIGURES_MAX: usize = 12;
/// A state in which there is never this much of a session has no column.
const SESSIONS_MIN: f64 = 0.01;

/// Both parts, each only where something was read.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let mut page = sessions(found);
    let tables = figures(found);
    if !tables.is_empty() {
        page.push(Block::Part("Resource usage".to_owned()));
        page.extend(tables.into_iter().map(Block::Table));
        page.push(Block::Notes(notes(found)));
    }
    page
}

fn sessions(found: &WorkloadFindings) -> Vec<Block> {
    let all = || found.rows.iter().flat_map(|row| &row.waits);
    let parts: BTreeSet<&str> = all().map(|of| of.part.as_str()).collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let mut page = vec![Block::Part("Where the database’s sessions were".to_owned())];
    page.extend(found.waits.iter().map(|of| Block::Text(sentences::sessions(of))));
    // A database that never did anything needs no table to say so.
    let works = |of: &Whereabouts| of.sum(|state| !is_idle(state)) >= SESSIONS_MIN;
    let working = parts.into_iter().filter(|part| all().any(|of| of.part == *part && works(of)));
    page.extend(working.map(|part| Block::Table(states(found, part))));
    let cost =
        all().filter_map(|of| of.cost_ratio).max_by(f64::total_cmp).map_or_else(String::new, |share| {
            let percent = share * 100.0;
            format!(
                "; sampling took at most {percent:.1} % of a core, which is in the database’s own CPU time"
            )
        });
    let least = known(all().map(|of| of.samples).min_by(f64::total_cmp), |least| format!("{least:.0}"));
    page.push(Block::Notes(vec![format!(
        "Mean number of sessions in each state, over at least {least} samples a run{cost}."
    )]));
    page
}

fn is_idle(state: &str) -> bool {
    class_of(state).kind == WaitKind::Idle
}

/// Levels by states, the most frequent first and idleness last.
fn states(found: &WorkloadFindings, part: &str) -> Table {
    fn of<'a>(row: &'a Row, part: &str) -> Option<&'a Whereabouts> {
        row.waits.iter().find(|of| of.part == part)
    }
    // The most there ever were in a state decides whether it has a column.
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    let all = found.rows.iter().filter_map(|row| of(row, part));
    for (state, count) in all.flat_map(|of| &of.sessions).filter(|(_, count)| *count >= SESSIONS_MIN) {
        let most = most.entry(state).or_default();
        *most = most.max(*count);
    }
    let mut states: Vec<(&str, f64)> = most.into_iter().collect();
    states.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (idle, work): (Vec<&str>, Vec<&str>) =
        states.into_iter().map(|(state, _)| state).partition(|state| is_idle(state));
    let named = work.into_iter().take(STATES_MAX).chain(idle);
    let sum = |row: &Row, among: &dyn Fn(&str) -> bool| Some(format!("{:.2}", of(row, part)?.sum(among)));
    let mut columns: Vec<Column<Row>> = vec![column("clients", |row: &Row| Some(row.level.to_string()))];
    columns.extend(named.map(|state| {
        let heading = match state.split_once(':') {
            Some((kind, event)) => format!("{event}, {kind}"),
            None => state.replace('_', " "),
        };
        column(heading, move |row: &Row| sum(row, &|of| of == state))
    }));
    columns.push(column(format!("sessions, {part}"), |row: &Row| sum(row, &|_| true)));
    Table::of(&found.rows, &columns, |row| !row.usable())
}

/// Levels by figures, in tables that fit a page. A figure that is 0 at every level has no column.
fn figures(found: &WorkloadFindings) -> Vec<Table> {
    let shown: Vec<(&Figure, &str)> = (FIGURES.iter().filter(|figure| figure.group != Group::Pressure))
        .flat_map(|figure| {
            let all = found.rows.iter().flat_map(|row| &row.figures);
            let of_figure = all.filter(|of| of.figure == figure.name && of.value != 0.0);
            let owners: BTreeSet<&str> = of_figure.map(|of| of.of.as_str()).collect();
            owners.into_iter().map(move |owner| (figure, owner))
        })
        .collect();
    let table = |figures: &[(&Figure, &str)]| {
        let mut columns: Vec<Column<Row>> = vec![column("clients", |row: &Row| Some(row.level.to_string()))];
        columns.extend(figures.iter().map(|(figure, owner)| {
            let heading = format!("{owner} {}, {}", figure.heading.0, figure.heading.1);
            column(heading, |row: &Row| {
                let of = row.figures.iter().find(|of| of.figure == figure.name && of.of == *owner);
                Some(short(of?.value))
            })
        }));
        Table::of(&found.rows, &columns, |row| !row.usable())
    };
    let groups = shown.chunk_by(|(a, _), (b, _)| a.group == b.group);
    groups.flat_map(|group| group.chunks(FIGURES_MAX)).map(table).collect()
}

/// What has to be known of the figures shown, each once.
fn notes(found: &WorkloadFindings) -> Vec<String> {
    let shown =
        |figure: &&Figure| found.rows.iter().flat_map(|row| &row.figures).any(|of| of.figure == figure.name);
    let mut notes: Vec<&str> = FIGURES.iter().filter(shown).filter_map(|figure| figure.note).collect();
    notes.dedup();
    notes.push(
        "Means over runs. Queue lengths and other states are time averages. Columns with only zeros are \
         omitted.",
    );
    notes.into_iter().map(str::to_owned).collect()
}
