//! The page of a run: what is on it, in which order.

use super::accuracy;
use super::answers::answers;
use super::checks;
use super::columns::{Bound, columns};
use super::document::{Block, Card, Document, Table, TableColumn, fold};
use super::evidence;
use super::format::{UNKNOWN, known, slug, tally};
use super::plots::{Figure, figure, interventions};
use super::published;
use super::resources;
use super::search;
use super::sentences;
use kv::units::short;
use lab_analysis::{Findings, Row, WorkloadFindings};
use lab_data::results::Results;

/// The page.
pub(super) fn document(results: &Results, findings: &Findings) -> Document {
    let slugs = slugs(findings);
    let workloads = || findings.workloads.iter().zip(&slugs);
    let mut blocks: Vec<Block> = accuracy::warning(results).map(Block::Warning).into_iter().collect();
    blocks.extend(published::front(findings));
    let rows: Vec<&Row> = findings.workloads.iter().flat_map(|found| &found.rows).collect();
    blocks.push(Block::Front {
        cards: cards(findings),
        drawings: workloads().filter_map(|(found, slug)| figure(Figure::Overview, found, slug)).collect(),
        caption: sentences::overview_caption(&rows),
    });
    blocks.push(fold("Checks", "checks", checks::blocks(results, findings)));
    blocks.push(fold("Accuracy of the load generator", "accuracy", accuracy::blocks(results)));
    blocks.extend(hit_ratios(findings).map(|blocks| fold("Hit ratio by policy", "hits", blocks)));
    for (found, slug) in workloads() {
        blocks.push(fold(&found.name, slug, workload(results, found, slug)));
    }
    blocks.push(fold("Environment, and how to repeat it", "environment", environment(results)));
    Document {
        title: results.title.clone(),
        above: format!("weir {} · {} · {}", results.weir_version, results.name, results.started),
        blocks,
    }
}

/// The answers for every workload.
pub(super) fn cards(findings: &Findings) -> Vec<Card> {
    let card = |(found, anchor): (&WorkloadFindings, String)| Card {
        name: found.name.clone(),
        anchor,
        answers: answers(found, findings),
    };
    findings.workloads.iter().zip(slugs(findings)).map(card).collect()
}

/// The name of every workload in links and file names.
fn slugs(findings: &Findings) -> Vec<String> {
    let mut slugs: Vec<String> = Vec::new();
    for found in &findings.workloads {
        let slug = slug(&found.name);
        // Two names may differ only in what a file name cannot hold.
        let slug = if slugs.contains(&slug) { format!("{slug}-{}", slugs.len() + 1) } else { slug };
        slugs.push(slug);
    }
    slugs
}

/// Policies beside each other, where the target simulated some.
fn hit_ratios(findings: &Findings) -> Option<Vec<Block>> {
    let workloads = &findings.workloads;
    let mut policies: Vec<&str> =
        workloads.iter().flat_map(|found| &found.hit_ratios).filter_map(|of| of.policy.as_deref()).collect();
    policies.sort_unstable();
    policies.dedup();
    if policies.is_empty() {
        return None;
    }
    let mut table = Table::new(&[&["<workload", "reads", "the cache"], policies.as_slice()].concat());
    for found in workloads.iter().filter(|found| !found.hit_ratios.is_empty()) {
        let of = |policy: Option<&str>| found.hit_ratios.iter().find(|of| of.policy.as_deref() == policy);
        let ratio = |policy| known(of(policy).map(|of| of.hit_ratio), |ratio| format!("{ratio:.3}"));
        let reads = known(of(None).map(|of| of.reads), short);
        let cells = policies.iter().map(|policy| ratio(Some(*policy)));
        table.push([found.name.clone(), reads, ratio(None)].into_iter().chain(cells));
    }
    let note = "Hits over reads, 0 to 1, in the windows of all trials of the workload. The cache itself has the policy it was \
                started with. The others were simulated beside it on the same requests and limits, without rows (--shadow-policies).";
    Some(vec![Block::Table(table), Block::Notes(vec![note.to_owned()])])
}

fn workload(results: &Results, found: &WorkloadFindings, slug: &str) -> Vec<Block> {
    let mut page = Vec::new();
    if !found.about.is_empty() {
        page.push(Block::Text(found.about.clone()));
    }
    page.extend(sentences::pacing(found).map(Block::Text));
    page.push(Block::Part("Every level".to_owned()));
    page.push(Block::Table(levels(results, found)));
    let mut notes = sentences::failures(found);
    let errors = errors(found);
    if errors.is_none() && found.rows.iter().any(|row| row.runs > 0) {
        notes.push("No attempt failed at any level.".to_owned());
    }
    page.push(Block::Notes(notes));
    if let Some(errors) = errors {
        page.push(Block::Part("Failed attempts by class".to_owned()));
        page.push(Block::Table(errors));
    }
    page.extend(search::blocks(found));
    page.extend(published::blocks(found));
    page.extend(evidence::blocks(found, interventions::figure(found, slug)));
    if let Some(drawing) = figure(Figure::Resources, found, slug) {
        page.push(Block::Part("Latency and resources by clients".to_owned()));
        page.push(Block::Figure { drawing, caption: sentences::plots_caption(found) });
    }
    page.extend(resources::blocks(found));
    if let Some((of, drawing)) = found.time_series.as_ref().zip(figure(Figure::TimeSeries, found, slug)) {
        page.push(Block::Part("A run near the knee".to_owned()));
        page.push(Block::Figure { drawing, caption: sentences::time_series_caption(of) });
    }
    page
}

fn levels(results: &Results, found: &WorkloadFindings) -> Table {
    let columns = columns(results);
    // A resource that no trial of this workload has is not shown as a column of dashes.
    let is_read = |column: &&Bound| column.resource.is_none_or(|i| found.rows.iter().any(|row| row.uses(i)));
    let (shown, heads): (Vec<&Bound>, Vec<TableColumn>) = (columns.iter().filter(is_read))
        .filter_map(|column| {
            let (heading, unit) = column.heading.clone()?;
            Some((column, TableColumn::figures(heading, unit)))
        })
        .unzip();
    let mut table = Table::of(heads);
    for row in &found.rows {
        table.push_row(shown.iter().map(|column| column.cell(row).text), !row.usable());
    }
    table
}

/// Failed attempts by level and class, of all runs together. `None` where none failed.
fn errors(found: &WorkloadFindings) -> Option<Table> {
    let mut classes: Vec<&str> =
        found.rows.iter().flat_map(|row| row.errors.keys().map(String::as_str)).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut table = Table::new(&[&["clients"], classes.as_slice()].concat());
    for row in found.rows.iter().filter(|row| !row.errors.is_empty()) {
        let counts = classes.iter().map(|class| tally(row.errors.get(*class).copied().unwrap_or(0)));
        table.push(std::iter::once(row.level.to_string()).chain(counts));
    }
    (!classes.is_empty()).then_some(table)
}

/// Where it was measured and how to do it again.
fn environment(results: &Results) -> Vec<Block> {
    let mut environment = Table::new(&["<environment", "<"]);
    for (name, value) in &results.environment {
        environment.push([name.clone(), value.clone()]);
    }
    environment.push(["seed".to_owned(), results.seed.to_string()]);
    let mut page = vec![Block::Table(environment)];
    if !results.placements.is_empty() {
        let mut pinning = Table::new(&["<part", "<cores", "<shares them with"]);
        for part in &results.placements {
            let cores: Vec<String> = part.cores.iter().map(usize::to_string).collect();
            let with =
                if part.shares_with.is_empty() { UNKNOWN.to_owned() } else { part.shares_with.join(", ") };
            pinning.push([part.part.clone(), cores.join(", "), with]);
        }
        page.push(Block::Table(pinning));
    }
    page.extend([
        Block::Part("The experiment".to_owned()),
        Block::Text(sentences::as_run(results)),
        Block::Verbatim(results.experiment_toml.clone()),
        Block::Part("To do it again".to_owned()),
        Block::Verbatim(results.command.clone()),
    ]);
    page
}
