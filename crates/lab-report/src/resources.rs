//! Two parts of a workload's section: where the databases' sessions were, and what the resources did.

use super::page::{Block, Table};
use super::words;
use kv::units::short;
use lab_analysis::waits::class_of;
use lab_analysis::{Dominant, FIGURES, Figure, Group, Row, WaitKind, Whereabouts, WorkloadFindings};

/// As many states have a column of their own; the others are summed.
const STATES_MAX: usize = 7;
/// A state in which there is never this much of a session has no column.
const SESSIONS_MIN: f64 = 0.01;

/// Both parts, each only where something was read.
pub(super) fn parts(found: &WorkloadFindings) -> Vec<Block> {
    let mut page = Vec::new();
    sessions(found, &mut page);
    let groups = [Group::Disk, Group::Databases, Group::Processes];
    let tables: Vec<Table> = groups.iter().flat_map(|group| figures(found, *group)).collect();
    if !tables.is_empty() {
        page.push(Block::Part("What the resources did".to_owned()));
        page.extend(tables.into_iter().map(Block::Table));
        page.push(Block::Notes(notes(found)));
    }
    page
}

fn sessions(found: &WorkloadFindings, page: &mut Vec<Block>) {
    let mut parts: Vec<&str> =
        found.rows.iter().flat_map(|row| row.waits.iter().map(|of| of.part.as_str())).collect();
    parts.sort_unstable();
    parts.dedup();
    if parts.is_empty() {
        return;
    }
    page.push(Block::Part("Where the database’s sessions were".to_owned()));
    let (idle, busy): (Vec<&Dominant>, Vec<&Dominant>) = found.waits.iter().partition(|of| of.idle);
    let said = busy.into_iter().map(sentence).chain(idle_sentence(&idle)).collect::<Vec<_>>().join(" ");
    if !said.is_empty() {
        page.push(Block::Text(said));
    }
    // Who never did anything needs no table to say so.
    let worked = |part: &&&str| {
        let mut of = found.rows.iter().flat_map(|row| &row.waits).filter(|of| of.part == **part);
        of.any(|of| of.sum(|state| class_of(state).kind != WaitKind::Idle) >= SESSIONS_MIN)
    };
    page.extend(parts.iter().filter(worked).map(|part| Block::Table(table(found, part))));
    let samples = found.rows.iter().flat_map(|row| &row.waits).map(|of| of.samples);
    let cost =
        found.rows.iter().flat_map(|row| &row.waits).filter_map(|of| of.cost_ratio).max_by(f64::total_cmp);
    let cost = cost.map_or(String::new(), |share| {
        format!(
            "; the asking took at most {:.1} % of a core, and that is in the database’s own processor time",
            share * 100.0
        )
    });
    page.push(Block::Notes(vec![format!(
        "Mean number of sessions in each state, over at least {} looks a run{cost}.",
        words::known(samples.min_by(f64::total_cmp), |least| format!("{least:.0}"))
    )]));
}

/// The databases that waited for work, in one sentence.
fn idle_sentence(of: &[&Dominant]) -> Option<String> {
    let first = of.first()?;
    let parts: Vec<&str> = of.iter().map(|of| of.part.as_str()).collect();
    Some(format!(
        "At {} the sessions of {} were idle, with {:.1} at work on average. This means: {}.",
        words::levels(&first.levels),
        words::listed(&parts),
        of.iter().map(|of| of.at_work).sum::<f64>(),
        words::means(first.class)
    ))
}

/// What held the sessions at the levels that decide, and what it means.
fn sentence(of: &Dominant) -> String {
    format!(
        "At {} {} had on average {:.1} sessions, {:.1} of them at work, most of these in {}: {:.1} ({}). This means: {}.",
        words::levels(&of.levels),
        of.part,
        of.sessions,
        of.at_work,
        of.class,
        of.in_class,
        words::states(&of.states),
        words::means(of.class)
    )
}

/// Levels by states, the most frequent first and idleness last.
fn table(found: &WorkloadFindings, part: &str) -> Table {
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
    let idle = |state: &str| class_of(state).kind == WaitKind::Idle;
    let (idle, work): (Vec<String>, Vec<String>) =
        states.into_iter().map(|(state, _)| state).partition(|s| idle(s));
    let summed = work.len() > STATES_MAX;
    let named: Vec<String> = work.iter().take(STATES_MAX).chain(&idle).cloned().collect();
    let mut table = Table::new(&["clients"]);
    let heading = |state: &String| match state.split_once(':') {
        Some((kind, event)) => (event.to_owned(), kind.to_owned()),
        None => (state.replace('_', " "), String::new()),
    };
    table.head.extend(named.iter().map(heading));
    if summed {
        table.head.push(("others".to_owned(), String::new()));
    }
    table.head.push(("sessions".to_owned(), part.to_owned()));
    table.words = vec![false; table.head.len()];
    for (row, of) in at {
        let said = |value: Option<f64>| words::known(value, |value| format!("{value:.2}"));
        let cells = named.iter().map(|state| said(of.as_ref().map(|of| of.sum(|known| known == state))));
        let others = of.as_ref().map(|of| of.sum(|state| !named.iter().any(|known| known == state)));
        let others = summed.then(|| said(others));
        let all = said(of.as_ref().map(|of| of.sum(|_| true)));
        let cells: Vec<String> =
            std::iter::once(row.level.to_string()).chain(cells).chain(others).chain([all]).collect();
        table.rows.push((cells, !row.usable()));
    }
    table
}

/// Levels by figures of one group. Of several databases each has a table of its own: side by side they would not fit a
/// page. A figure that is 0 at every level has no column.
fn figures(found: &WorkloadFindings, group: Group) -> Vec<Table> {
    let mut columns: Vec<(&Figure, &str)> = Vec::new();
    for figure in FIGURES.iter().filter(|figure| figure.group == group) {
        let mut owners: Vec<&str> = (found.rows.iter())
            .flat_map(|row| row.figures.iter().filter(|of| of.figure == figure.name && of.value != 0.0))
            .map(|of| of.of.as_str())
            .collect();
        owners.sort_unstable();
        owners.dedup();
        columns.extend(owners.into_iter().map(|owner| (figure, owner)));
    }
    let mut owners: Vec<&str> = columns.iter().map(|(_, owner)| *owner).collect();
    owners.sort_unstable();
    owners.dedup();
    match group {
        Group::Databases if owners.len() > 1 => owners
            .iter()
            .map(|owner| {
                let own: Vec<_> = columns.iter().copied().filter(|(_, of)| of == owner).collect();
                figure_table(found, &own, Some(owner))
            })
            .collect(),
        _ if columns.is_empty() => Vec::new(),
        _ => vec![figure_table(found, &columns, None)],
    }
}

/// A column for each figure; its owner stands above the levels where it is the same for all.
fn figure_table(found: &WorkloadFindings, columns: &[(&Figure, &str)], owner: Option<&str>) -> Table {
    let mut table = Table::new(&["clients"]);
    table.head[0].1 = owner.unwrap_or_default().to_owned();
    let heading = |(figure, of): &(&Figure, &str)| match owner {
        Some(_) => figure.heading.0.to_owned(),
        None => format!("{of} {}", figure.heading.0),
    };
    table.head.extend(columns.iter().map(|column| (heading(column), column.0.heading.1.to_owned())));
    table.words = vec![false; table.head.len()];
    for row in &found.rows {
        let cell = |(figure, owner): &(&Figure, &str)| {
            let figured = row.figures.iter().find(|of| of.figure == figure.name && of.of == *owner);
            words::known(figured.map(|of| of.value), short)
        };
        let cells = std::iter::once(row.level.to_string()).chain(columns.iter().map(cell)).collect();
        table.rows.push((cells, !row.usable()));
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
