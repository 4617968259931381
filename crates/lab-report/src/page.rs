//! The page of a run: what is on it, in which order.

use super::accuracy;
use super::answers::answers;
use super::checks;
use super::columns::{Bound, columns};
use super::document::{Block, Card, Column, Document, Figure, Table, column};
use super::evidence;
use super::format::{self, known, percent, tally};
use super::plots::{self, figure};
use super::published;
use super::resources;
use super::search;
use super::sentences;
use kv::units::short;
use lab_analysis::{Findings, HitRatio, Knee, Row, WorkloadFindings};
use lab_data::results::{Placement, Results};
use std::collections::BTreeSet;

/// The page.
pub(super) fn document(results: &Results, findings: &Findings) -> Document {
    let mut blocks: Vec<Block> = accuracy::warning(results).map(Block::Warning).into_iter().collect();
    let overview = |found| figure(plots::Figure::Overview, found);
    blocks.push(Block::Front {
        cards: cards(findings),
        figure: Figure {
            drawings: findings.workloads.iter().filter_map(overview).collect(),
            caption: sentences::overview(&findings.workloads),
        },
    });
    let mut section = |title: &str, inner| blocks.push(Block::Section(title.to_owned(), inner));
    section("Checks", checks::blocks(results, findings));
    section("Accuracy of the load generator", accuracy::blocks(results));
    if findings.workloads.iter().any(|found| !found.hit_ratios.is_empty()) {
        section("Hit ratio by policy", hit_ratios(findings));
    }
    section("How to read the tables", vec![Block::Table(terms(results))]);
    for found in &findings.workloads {
        section(&found.name, workload(results, found));
    }
    section("Environment, and how to repeat it", environment(results));
    Document {
        title: results.title.clone(),
        above: format!("weir {} · {} · started {}", results.weir_version, results.name, results.started),
        blocks,
    }
}

/// The answers for every workload.
pub(super) fn cards(findings: &Findings) -> Vec<Card> {
    let card = |found: &WorkloadFindings| Card { name: found.name.clone(), answers: answers(found) };
    findings.workloads.iter().map(card).collect()
}

/// Heading and cell of a hit ratio and its workload.
const HIT_RATIOS: &[(&str, fn(&(&str, &HitRatio)) -> Option<String>)] = &[
    ("<workload", |(workload, _)| Some((*workload).to_owned())),
    ("<policy", |(_, of)| Some(of.policy.clone().unwrap_or_else(|| "the cache".to_owned()))),
    ("reads", |(_, of)| Some(short(of.reads))),
    ("hit ratio", |(_, of)| Some(percent(of.hit_ratio, 1))),
];

/// The cache beside the policies that the target simulated.
fn hit_ratios(findings: &Findings) -> Vec<Block> {
    let all: Vec<(&str, &HitRatio)> = (findings.workloads.iter())
        .flat_map(|found| found.hit_ratios.iter().map(|of| (found.name.as_str(), of)))
        .collect();
    let note = "Hits over reads, in the windows of all trials of the workload. The cache itself has the policy it was \
                started with. The others were simulated beside it on the same requests and limits, with a hash and the size of each row instead of the row (--shadow-policies).";
    vec![Block::Table(Table::of(&all, HIT_RATIOS, |_| false)), Block::Notes(vec![note.to_owned()])]
}

/// What the words in the tables of a workload mean. Those of weir's server are only there if some resource is called like the term.
const TERMS: &[(bool, &str, &str)] = &[
    (false, "goodput", "successful requests per second; ±: 95 % interval over the repetitions"),
    (false, "p50, p99, p99.9", "latency, median over the repetitions; the mean is over all attempts"),
    (true, "server workers", "the server’s threads that serve connections"),
    (
        true,
        "store read workers",
        "the server’s threads that read from the store, a batch of requests at a time",
    ),
    (
        true,
        "store write workers",
        "the server’s threads that write to the store, a batch of requests at a time",
    ),
    (
        true,
        "store flush",
        "the flush of the log to disk for which a write waits, from the call to its return: the work of the file system and waiting for a processor are part of it, but it counts as a resource of its own; as a limit it is called commit path",
    ),
    (
        false,
        "utilization",
        "share of the window in which the resource was busy; of several threads or cores, the mean over them",
    ),
    (
        false,
        "CPU",
        "processor time of the process, also in the kernel for it (network, waking threads); with few clients this may be more than its threads are busy with requests",
    ),
    (
        false,
        "levels by which the limit is determined",
        "those whose goodput is about the highest: within 3 % if three or more levels are, else within 15 %; of these the ones with at least twice the clients of the knee, if there are several",
    ),
    (
        false,
        "busy time per request",
        "for how long one request keeps the resource busy; ±: standard deviation over the levels",
    ),
    (
        false,
        "full at",
        "the goodput at which the resource would be 100 % busy: the highest measured goodput ÷ the utilization at that level; ≥: or more, because a request needs clearly less of it when the load is higher. Where a request needs more at a higher load, it is full earlier",
    ),
    (
        false,
        "queue growth",
        "how many more requests wait there for each client added; –: its queue cannot be seen",
    ),
    (false, "needs the limit", "its threads use the limit or wait for it, and count as busy in both cases"),
    (false, "not in the target", "a resource of the load generator"),
    (
        false,
        "next limit",
        "the limit if the present one were removed: the lowest “full at” above the measured goodput, except the generator’s and that of what needs the limit",
    ),
    (false, "rounds", "how often trials with and without the change were made, in random order"),
    (
        false,
        "expected loss",
        "added time ÷ (busy time per request + added time); this busy time is measured anew in the same round",
    ),
    (false, "measured loss", "mean over the rounds; negative: goodput rose"),
    (false, "measured ÷ expected", "mean over the rounds of their ratios"),
    (
        false,
        "behaves like the limit",
        "yes: the interval of the measured loss is above half of the expected loss, or includes the expected loss while the resource is at least 95 % busy; no: it is below half, or includes 0 while the resource is less than 70 % busy; unclear: neither",
    ),
    (
        false,
        "waiting, served",
        "mean number of clients that wait for a resource or are served by it; left out are columns with only zeros, and what is used while another resource serves the client, such as server CPU and store flush. Those who wait in sockets are found by sampling these. While a thread waits for a processor, it is busy, but its client waits",
    ),
    (
        false,
        "generator CPU, waiting",
        "clients whose answer has arrived and is not yet read, because a thread reads others or has to wake up; this is part of the latency",
    ),
    (
        false,
        "unaccounted",
        "clients in no other column, such as those that the samples miss; negative: some are in two",
    ),
    (
        false,
        "resource usage",
        "means over the repetitions; columns with only zeros are left out. Of a disk: what all processes of the machine write and read; its queue is the mean number of operations in progress, its utilization the share of the time with any, both as the kernel counts them",
    ),
    (false, "threads", "all threads of the process"),
    (
        false,
        "sampling by the lab",
        "processor time of the lab’s own process, which reads the state of the sockets; counted in no other column",
    ),
    (
        false,
        "pressure",
        "share of the time in which some thread of the machine, or all of them, waited (Linux PSI)",
    ),
];

fn terms(results: &Results) -> Table {
    let is_known =
        |of_weir: bool, term: &str| !of_weir || results.resources.iter().any(|of| of.name.contains(term));
    let shown = TERMS.iter().filter(|(of_weir, term, _)| is_known(*of_weir, term));
    Table::new(
        ["<in the tables", "<meaning"],
        shown.map(|(_, term, means)| [term, means].map(|of| (*of).to_owned())).collect(),
    )
}

fn workload(results: &Results, found: &WorkloadFindings) -> Vec<Block> {
    let about = Some(found.about.clone()).filter(|about| !about.is_empty());
    let mut page: Vec<Block> = about.into_iter().chain(sentences::pacing(found)).map(Block::Text).collect();
    page.push(Block::Part("Goodput and latency".to_owned()));
    page.push(Block::Table(levels(results, found, false)));
    let mut notes = sentences::failures(&found.rows.iter().collect::<Vec<_>>());
    let failed: Vec<&Row> = found.rows.iter().filter(|row| !row.errors.is_empty()).collect();
    if failed.is_empty() && found.rows.iter().any(|row| row.runs > 0) {
        notes.push("No attempt failed at any level.".to_owned());
    }
    page.push(Block::Notes(notes));
    if !failed.is_empty() {
        page.push(Block::Part("Failed attempts by class".to_owned()));
        page.push(Block::Table(errors(&failed)));
    }
    page.extend(search::blocks(found));
    page.extend(published::blocks(found));
    page.extend(found.knee.iter().flat_map(|of| knee(of, found)));
    page.extend(evidence::blocks(found));
    if let Some(drawing) = figure(plots::Figure::Resources, found) {
        page.push(Block::Part("Utilization".to_owned()));
        page.push(Block::figure(drawing, sentences::UTILIZATION));
        page.push(Block::Table(levels(results, found, true)));
    }
    page.extend(resources::blocks(found));
    if let Some((of, drawing)) = found.time_series.as_ref().zip(figure(plots::Figure::TimeSeries, found)) {
        page.push(Block::Part("A trial near the knee".to_owned()));
        page.push(Block::figure(drawing, sentences::time_series_caption(of)));
    }
    page
}

/// What the clients saw at each level, or how busy the resources were.
fn levels(results: &Results, found: &WorkloadFindings, of_resources: bool) -> Table {
    let is_clients = |of: &Bound| of.name == "clients";
    let is_shown = |of: &Bound| match of.resource {
        // A resource that no trial of this workload uses is not shown.
        Some(i) => of_resources && found.rows.iter().any(|row| row.uses(i)),
        None => is_clients(of) || !of_resources && !is_quiet(found, of),
    };
    let shown = columns(results).into_iter().filter(|of| !of.heading.is_empty() && is_shown(of));
    let columns: Vec<_> = shown.map(|of| (of.heading, move |row: &Row| (of.cell)(row).text)).collect();
    Table::of(&found.rows, &columns, |row| !row.usable())
}

/// Whether a column says of each level that nothing went wrong.
fn is_quiet(found: &WorkloadFindings, of: &Bound) -> bool {
    let is_quiet = |row| matches!((of.cell)(row).text.as_deref(), Some("none" | "0.00 %"));
    found.rows.iter().all(is_quiet)
}

/// The knee by four methods.
fn knee(of: &Knee, found: &WorkloadFindings) -> Vec<Block> {
    let other = |method: &str, value: Option<f64>| [method.to_owned(), known(value, format::clients)];
    let clients = format::clients(of.clients) + &sentences::between_clients(of.ends);
    let rows = vec![
        [
            "highest throughput × (mean latency at the lowest level + pause between requests)".to_owned(),
            clients,
        ],
        other("broken stick: where two straight lines fitted to the goodput meet", of.broken_stick),
        other("Kleinrock’s power: level with the highest goodput ÷ latency", of.power),
        other(
            "Kneedle: level that is furthest above a straight line between the ends of the curve",
            of.kneedle,
        ),
    ];
    let (low, high) = of.swept;
    let blunt =
        (!of.sharp).then_some("The methods differ by more than a factor of 2, so the knee is uncertain.");
    let methods =
        format!("The first is the answer; the others are calculated from all levels, {low}–{high}.");
    let notes = [blunt, sentences::knee_brackets(of, found)].into_iter().flatten().map(str::to_owned);
    vec![
        Block::Part("Knee, by four methods".to_owned()),
        Block::Table(Table::new(["<method", "clients"], rows)),
        Block::Notes([methods].into_iter().chain(notes).collect()),
    ]
}

/// Failed attempts by level and class, of all runs together.
fn errors(rows: &[&Row]) -> Table {
    let classes: BTreeSet<&String> = rows.iter().flat_map(|row| row.errors.keys()).collect();
    let mut columns: Vec<Column<&Row>> = vec![column("clients", |row: &&Row| Some(row.level.to_string()))];
    columns.extend(classes.into_iter().map(|class| {
        column(class, move |row: &&Row| Some(tally(row.errors.get(class).copied().unwrap_or(0))))
    }));
    Table::of(rows, &columns, |_| false)
}

const PINNING: &[(&str, fn(&Placement) -> Option<String>)] = &[
    ("<part", |of| Some(of.part.clone())),
    ("<cores", |of| Some(of.cores.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))),
    ("<shares cores with", |of| (!of.shares_with.is_empty()).then(|| of.shares_with.join(", "))),
    ("<shares physical cores with", |of| (!of.siblings_with.is_empty()).then(|| of.siblings_with.join(", "))),
];

/// Where it was measured and how to do it again.
fn environment(results: &Results) -> Vec<Block> {
    let known = results.environment.iter().map(|(name, value)| [name.clone(), value.clone()]);
    let environment = known.chain([["seed".to_owned(), results.seed.to_string()]]).collect();
    let mut page = vec![Block::Table(Table::new(["<environment", "<"], environment))];
    page.push(match results.placements.is_empty() {
        true => Block::Text("Nothing was pinned to a core.".to_owned()),
        false => Block::Table(Table::of(&results.placements, PINNING, |_| false)),
    });
    page.push(Block::Part("The experiment".to_owned()));
    page.extend(sentences::lengths(results).map(Block::Text));
    page.push(Block::Verbatim(results.experiment_toml.clone()));
    page.push(Block::Part("To repeat".to_owned()));
    page.push(Block::Verbatim(results.command.clone()));
    page
}
