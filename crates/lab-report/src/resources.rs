//! Two parts of a workload's section: where the databases' sessions were, and what the resources did.

use super::document::{Block, Table, TableColumn};
use super::format::known;
use super::sentences;
use kv::units::short;
use lab_analysis::waits::class_of;
use lab_analysis::{FIGURES, Figure, Group, Row, WaitKind, Whereabouts, WorkloadFindings};
use std::collections::BTreeSet;

/// As many states have a column of their own; the others are summed.
const STATES_MAX: usize = 7;
/// A state in which there is never this much of a session has no column.
const SESSIONS_MIN: f64 = 0.01;

/// Both parts, each only where something was read.
pub(super) fn blocks(found: &WorkloadFindings) -> Vec<Block> {
    let mut page = sessions(found);
    let groups = [Group::Disk, Group::Databases, Group::Processes];
    let tables: Vec<Table> = groups.iter().flat_map(|group| figures(found, *group)).collect();
    if !tables.is_empty() {
        page.push(Block::Part("What the resources did".to_owned()));
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
    page.extend(sentences::sessions(&found.waits).into_iter().map(Block::Text));
    // A database that never did anything needs no table to say so.
    let worked = |part: &&&str| {
        let at_work = |of: &Whereabouts| of.sum(|state| class_of(state).kind != WaitKind::Idle);
        all().filter(|of| of.part == **part).any(|of| at_work(of) >= SESSIONS_MIN)
    };
    page.extend(parts.iter().filter(worked).map(|part| Block::Table(states(found, part))));
    let cost = all().filter_map(|of| of.cost_ratio).max_by(f64::total_cmp).map_or(String::new(), |share| {
        format!(
            "; sampling took at most {:.1} % of a core, which is in the database’s own CPU time",
            share * 100.0
        )
    });
    let least = all().map(|of| of.samples).min_by(f64::total_cmp);
    page.push(Block::Notes(vec![format!(
        "Mean number of sessions in each state, over at least {} samples a run{cost}.",
        known(least, |least| format!("{least:.0}"))
    )]));
    page
}

/// Levels by states, the most frequent first and idleness last.
fn states(found: &WorkloadFindings, part: &str) -> Table {
    let of_row = |row: &Row| -> Option<Whereabouts> { row.waits.iter().find(|of| of.part == part).cloned() };
    let at: Vec<(&Row, Option<Whereabouts>)> = found.rows.iter().map(|row| (row, of_row(row))).collect();
    // The most there ever were in a state decides whether it has a column.
    let mut states: Vec<(String, f64)> = Vec::new();
    for (state, count) in at.iter().filter_map(|(_, of)| of.as_ref()).flat_map(|of| &of.sessions) {
        match states.iter_mut().find(|(known, _)| known == state) {
            Some((_, most)) => *most = most.max(*count),
            None => states.push((state.clone(), *count)),
        }
    }
    states.retain(|(_, most)| *most >= SESSIONS_MIN);
    states.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let names = states.into_iter().map(|(state, _)| state);
    let (idle, work): (Vec<String>, Vec<String>) =
        names.partition(|state| class_of(state).kind == WaitKind::Idle);
    let has_others = work.len() > STATES_MAX;
    let named: Vec<String> = work.iter().take(STATES_MAX).chain(&idle).cloned().collect();
    let column = |state: &String| match state.split_once(':') {
        Some((kind, event)) => TableColumn::figures(event, kind),
        None => TableColumn::figures(state.replace('_', " "), ""),
    };
    let mut columns = vec![TableColumn::figures("clients", "")];
    columns.extend(named.iter().map(column));
    columns.extend(has_others.then(|| TableColumn::figures("others", "")));
    columns.push(TableColumn::figures("sessions", part));
    let mut table = Table::of(columns);
    for (row, of) in at {
        let sum = |among: &dyn Fn(&str) -> bool| {
            known(of.as_ref().map(|of| of.sum(among)), |value| format!("{value:.2}"))
        };
        let mut cells = vec![row.level.to_string()];
        cells.extend(named.iter().map(|state| sum(&|known| known == state)));
        cells.extend(has_others.then(|| sum(&|state| !named.iter().any(|known| known == state))));
        cells.push(sum(&|_| true));
        table.push_row(cells, !row.usable());
    }
    table
}

/// Levels by figures of one group. Of several databases each has a table of its own: side by side they would not fit a
/// page. A figure that is 0 at every level has no column.
fn figures(found: &WorkloadFindings, group: Group) -> Vec<Table> {
    let mut columns: Vec<(&Figure, &str)> = Vec::new();
    for figure in FIGURES.iter().filter(|figure| figure.group == group) {
        let all = found.rows.iter().flat_map(|row| &row.figures);
        let owners: BTreeSet<&str> =
            all.filter(|of| of.figure == figure.name && of.value != 0.0).map(|of| of.of.as_str()).collect();
        columns.extend(owners.into_iter().map(|owner| (figure, owner)));
    }
    let owners: BTreeSet<&str> = columns.iter().map(|(_, owner)| *owner).collect();
    if group == Group::Databases && owners.len() > 1 {
        let own = |owner| columns.iter().copied().filter(|(_, of)| *of == owner).collect::<Vec<_>>();
        return owners.into_iter().map(|owner| figure_table(found, &own(owner), Some(owner))).collect();
    }
    (!columns.is_empty()).then(|| figure_table(found, &columns, None)).into_iter().collect()
}

/// A column for each figure; its owner stands above the levels where it is the same for all.
fn figure_table(found: &WorkloadFindings, figures: &[(&Figure, &str)], owner: Option<&str>) -> Table {
    let mut columns = vec![TableColumn::figures("clients", owner.unwrap_or_default())];
    columns.extend(figures.iter().map(|(figure, of)| {
        let (heading, unit) = figure.heading;
        let heading = if owner.is_some() { heading.to_owned() } else { format!("{of} {heading}") };
        TableColumn::figures(heading, unit)
    }));
    let mut table = Table::of(columns);
    for row in &found.rows {
        let cells = figures.iter().map(|(figure, owner)| {
            let of = row.figures.iter().find(|of| of.figure == figure.name && of.of == *owner);
            known(of.map(|of| of.value), short)
        });
        table.push_row(std::iter::once(row.level.to_string()).chain(cells), !row.usable());
    }
    table
}

/// What has to be known of the figures shown, each once.
fn notes(found: &WorkloadFindings) -> Vec<String> {
    let shown =
        |figure: &&Figure| found.rows.iter().any(|row| row.figures.iter().any(|of| of.figure == figure.name));
    let mut notes: Vec<String> =
        FIGURES.iter().filter(shown).filter_map(|figure| figure.note).map(str::to_owned).collect();
    notes.dedup();
    notes.push(
        "Means over runs. A queue, in log sync and the like are mean numbers at any instant. What is 0 at every level has \
         no column."
            .to_owned(),
    );
    notes
}
