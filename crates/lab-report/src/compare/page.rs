//! The page of a comparison: its blocks and sentences.

use super::plot;
use crate::document::{Block, Document, Table, TableColumn, section};
use crate::format::{self, UNKNOWN, slug};
use kv::units::short;
use lab_analysis::compare::{
    Bound, CapacityRatio, ComparedWorkload, Conclusion, Figure, Kind, Lacking, Measure, Method, Ratio, Side,
    SideOfLevel, ratios,
};
use lab_analysis::{Checked, Comparison, MEASURES};
use std::collections::BTreeSet;

/// The figures of each table of a workload.
const TABLES: &[&[&str]] = &[
    &["goodput_rps"],
    &["cpu_us_per_attempt", "cores_used"],
    &["successes_per_core_sec"],
    &["latency_us_p50", "latency_us_p99"],
];

/// The figures in the sentences at the top.
const IN_SHORT: &[&str] = &["goodput_rps", "cpu_us_per_attempt", "latency_us_p50"];

const NOT_STATED: &str = "not stated";

/// The title of the page.
fn title(comparison: &Comparison) -> String {
    if comparison.interleaved {
        return comparison.sides[0].title.clone();
    }
    let name = |side: &Side| match &side.target {
        Some(target) if *target == side.name => target.clone(),
        _ => format!("{} ({})", side.name, side.experiment),
    };
    let names: Vec<String> = comparison.sides.iter().map(name).collect();
    format::listed(&names.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The whole page.
pub(super) fn page(comparison: &Comparison) -> Document {
    let Side { weir_version, experiment, started, .. } = &comparison.sides[0];
    let above = match comparison.interleaved {
        true => format!("weir {weir_version} · {experiment} · {started} · targets compared"),
        false => "two runs compared".to_owned(),
    };
    let mut answers = Table::new(&["<workload", "<in short"]);
    front(comparison).into_iter().for_each(|(workload, said)| answers.push([workload, said]));
    let mut page = vec![Block::Table(answers)];
    page.extend(plot::figure(comparison));
    page.push(section("What is compared", "sides"));
    page.push(Block::Table(sides(comparison)));
    if !comparison.absent.is_empty() {
        let absent: Vec<&str> = comparison.absent.iter().map(String::as_str).collect();
        page.push(Block::Notes(vec![format!("Targets without results: {}.", format::listed(&absent))]));
    }
    if !comparison.circumstances.is_empty() {
        page.push(section("What else differs", "circumstances"));
        page.push(Block::Table(circumstances(comparison)));
    }
    for of in &comparison.workloads {
        page.push(section(&of.name, &slug(&of.name)));
        if !of.about.is_empty() {
            page.push(Block::Text(of.about.clone()));
        }
        page.extend(durability(comparison, of).map(Block::Text));
        page.extend(TABLES.iter().map(|measures| Block::Table(table(comparison, of, measures))));
        page.push(Block::Notes(notes(comparison, of)));
    }
    page.push(section("How to read it", "reading"));
    page.push(Block::Notes(reading(comparison)));
    Document { title: title(comparison), above, blocks: page }
}

fn sides(comparison: &Comparison) -> Table {
    // What targets of one run have in common stands at the head of the page.
    let of_run: &[&str] = &["<experiment", "<target", "<started", "<weir"];
    let of_run = if comparison.interleaved { &[] } else { of_run };
    let mut table = Table::new(&[&["<"], of_run, &["<processor time of", "<acknowledges a write"]].concat());
    for side in &comparison.sides {
        let mut cells = vec![side.name.clone()];
        if !comparison.interleaved {
            let target = side.target.clone().unwrap_or_else(|| UNKNOWN.to_owned());
            cells.extend([side.experiment.clone(), target, side.started.clone(), side.weir_version.clone()]);
        }
        let parts: Vec<&str> = side.parts.iter().map(String::as_str).collect();
        cells.extend([format::listed(&parts), acknowledges(side).to_owned()]);
        table.push(cells);
    }
    table
}

fn acknowledges(side: &Side) -> &str {
    side.durability.as_deref().unwrap_or(NOT_STATED)
}

/// A line for each value of each circumstance.
fn circumstances(comparison: &Comparison) -> Table {
    let mut table = Table::new(&["<", "<of", "<is"]);
    for difference in &comparison.circumstances {
        let mut what = difference.what.clone();
        for (i, value) in difference.of.iter().enumerate() {
            if difference.of[..i].contains(value) {
                continue;
            }
            let same = comparison.sides.iter().zip(&difference.of).filter(|(_, other)| *other == value);
            let names: Vec<&str> = same.map(|(side, _)| side.name.as_str()).collect();
            let value = value.clone().unwrap_or_else(|| UNKNOWN.to_owned());
            table.push([std::mem::take(&mut what), format::listed(&names), value]);
        }
    }
    table
}

/// When each side acknowledges a write, where the workload writes and the sides differ in it.
fn durability(comparison: &Comparison, workload: &ComparedWorkload) -> Option<String> {
    let is_there = |i: usize| workload.levels.iter().any(|level| level.sides[i].is_some());
    let sides = comparison.sides.iter().enumerate().filter(|(i, _)| is_there(*i));
    let each: Vec<(&str, &str)> = sides.map(|(_, side)| (side.name.as_str(), acknowledges(side))).collect();
    let differ = each.iter().any(|(_, text)| *text != each[0].1);
    let each: Vec<String> = each.iter().map(|(name, text)| format!("{name}: {text}")).collect();
    (workload.writes && differ).then(|| {
        format!(
            "The sides acknowledge a write at different times. {}. Their figures are not for the same guarantee.",
            each.join("; ")
        )
    })
}

fn table(comparison: &Comparison, workload: &ComparedWorkload, names: &[&str]) -> Table {
    let with_checks = names.contains(&"goodput_rps");
    let chosen: Vec<(usize, &Measure)> =
        MEASURES.iter().enumerate().filter(|(_, measure)| names.contains(&measure.name)).collect();
    let words = |heading: &str| TableColumn { is_words: true, ..TableColumn::figures(heading, "") };
    let mut columns = vec![TableColumn::figures("clients", ""), words("target")];
    for (_, measure) in &chosen {
        columns.push(TableColumn::figures(measure.heading, measure.unit));
        if measure.compared {
            columns.push(TableColumn::figures("ratio", format!("to {}, 95 %", comparison.sides[0].name)));
            columns.push(words("difference"));
        }
    }
    columns.extend(with_checks.then(|| words("checks failed")));
    let mut table = Table::of(columns);
    for level in &workload.levels {
        let mut clients = level.clients.to_string();
        for (i, side) in level.sides.iter().enumerate() {
            let Some(side) = side else { continue };
            let mut cells = vec![std::mem::take(&mut clients), comparison.sides[i].name.clone()];
            for (index, measure) in &chosen {
                cells.push(figure(measure, side.figures[*index].as_ref()));
                if measure.compared {
                    cells.extend(match i {
                        0 => ["1".to_owned(), String::new()],
                        _ => ratio_cells(comparison, i, side.ratios[*index].as_ref()),
                    });
                }
            }
            cells.extend(with_checks.then(|| failed_checks(side)));
            table.push_row(cells, side.row.excluded.is_some());
        }
    }
    table
}

fn figure(measure: &Measure, of: Option<&Figure>) -> String {
    match of {
        None => UNKNOWN.to_owned(),
        Some(of) if measure.kind == Kind::Latency => format::latency(Some(of.value)),
        // Cores vary with the load; an interval says nothing.
        Some(of) if !measure.compared => format!("{:.2}", of.value),
        Some(of) => of.estimate.as_ref().map_or_else(|| UNKNOWN.to_owned(), format::spread),
    }
}

fn failed_checks(of: &SideOfLevel) -> String {
    let failed: Vec<&str> = of.failed().map(|checked| checked.check().name).collect();
    match of.row.runs {
        0 => "no run".to_owned(),
        _ if failed.is_empty() => "none".to_owned(),
        _ => failed.join(", "),
    }
}

/// The ratio, and what it says.
fn ratio_cells(comparison: &Comparison, other: usize, of: Option<&Ratio>) -> [String; 2] {
    let Some(of) = of else { return [UNKNOWN.to_owned(), UNKNOWN.to_owned()] };
    let ratio = match &of.quotient {
        None => "no ratio".to_owned(),
        Some(quotient) if of.conclusion == Conclusion::NotComparable => {
            format!("[{}{}]", bound(of), times(quotient.ratio))
        }
        Some(quotient) => match quotient.interval {
            Some((low, high)) => format!("{} ({}–{})", times(quotient.ratio), times(low), times(high)),
            None => format!("{} ({UNKNOWN})", times(quotient.ratio)),
        },
    };
    let said = match of.conclusion {
        // The heading says what there is none of.
        Conclusion::NotShown => "none shown".to_owned(),
        _ => conclusion(comparison, other, of),
    };
    let failed = failed(of);
    [ratio, if failed.is_empty() { said } else { format!("{said}; {failed}") }]
}

/// The checks that failed, and on which side: `errors nginx, machine both`.
pub(super) fn failed(of: &Ratio) -> String {
    let mut checks: Vec<(&str, &str)> = Vec::new();
    for (check, side) in &of.failed {
        match checks.iter_mut().find(|(id, _)| id == check) {
            Some((_, whose)) => *whose = "both",
            None => checks.push((check, side)),
        }
    }
    checks.iter().map(|(check, side)| format!("{check} {side}")).collect::<Vec<_>>().join(", ")
}

fn bound(of: &Ratio) -> &'static str {
    match of.bound {
        Some(Bound::AtLeast) => "≥ ",
        Some(Bound::AtMost) => "≤ ",
        None => "",
    }
}

/// A ratio with as many digits as a quiet run knows.
fn times(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() => UNKNOWN.to_owned(),
        r if r >= 99.95 => short(r),
        r if r >= 9.9995 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.3}"),
        r => format!("{r:.5}"),
    }
}

/// What a ratio says, and why there is none.
pub(super) fn conclusion(comparison: &Comparison, other: usize, of: &Ratio) -> String {
    let said = verdict(comparison, other, of.conclusion);
    match &of.lacking {
        Some(Lacking::Zero { run, side }) => format!("{said}: 0 in run {run} of {side}"),
        Some(Lacking::NoCommonRun) => format!("{said}: no repetition in common"),
        Some(Lacking::NoCommonLevel) => format!("{said}: no level is valid on both sides"),
        None => said,
    }
}

fn verdict(comparison: &Comparison, other: usize, conclusion: Conclusion) -> String {
    match conclusion {
        Conclusion::FirstMore => format!("{} more", comparison.sides[0].name),
        Conclusion::OtherMore => format!("{} more", comparison.sides[other].name),
        Conclusion::NotShown => "no difference shown".to_owned(),
        Conclusion::NoInterval => "no interval".to_owned(),
        Conclusion::NotComparable => "not comparable".to_owned(),
    }
}

/// For each workload and other side: the workload and a sentence.
pub(super) fn front(comparison: &Comparison) -> Vec<(String, String)> {
    let mut front = Vec::new();
    for workload in &comparison.workloads {
        let others = 1..comparison.sides.len();
        let mut sentences: Vec<String> =
            others.filter_map(|other| sentence(comparison, workload, other)).collect();
        if sentences.is_empty() {
            sentences.push(format!("Not measured on {}: no ratios.", comparison.sides[0].name));
        }
        front.extend(sentences.into_iter().map(|sentence| (workload.name.clone(), sentence)));
    }
    front
}

/// What is said of one other side; `None` where it or the first does not have the workload.
fn sentence(comparison: &Comparison, workload: &ComparedWorkload, other: usize) -> Option<String> {
    let levels = workload.levels.iter().filter(|level| level.sides[0].is_some());
    let both: Vec<&SideOfLevel> = levels.filter_map(|level| level.sides[other].as_ref()).collect();
    let mut clauses: Vec<String> = Vec::new();
    clauses.extend(workload.capacities[other].as_ref().map(|of| capacity(comparison, of, other)));
    for (index, measure) in MEASURES.iter().enumerate().filter(|(_, of)| IN_SHORT.contains(&of.name)) {
        let ratios: Vec<&Ratio> = both.iter().filter_map(|side| side.ratios[index].as_ref()).collect();
        clauses.extend((!ratios.is_empty()).then(|| in_short(comparison, other, measure, &ratios)));
    }
    let said = if clauses.is_empty() { "nothing to compare".to_owned() } else { clauses.join("; ") };
    let (name, first) = (&comparison.sides[other].name, &comparison.sides[0].name);
    (!both.is_empty()).then(|| format!("{name} against {first}: {said}."))
}

/// `capacity 0.502× (0.490–0.515), weir more, p 0.003`.
fn capacity(comparison: &Comparison, of: &CapacityRatio, other: usize) -> String {
    let what = match of.at_clients {
        None => "capacity".to_owned(),
        Some(clients) => format!("goodput at {}", format::count(clients, "client")),
    };
    let said = conclusion(comparison, other, &of.ratio);
    let Some(quotient) = &of.ratio.quotient else { return format!("{what} {said}") };
    let ratio = format!("{what} {}{}×", bound(&of.ratio), times(quotient.ratio));
    let (low, high) = match (of.ratio.conclusion, quotient.interval) {
        (Conclusion::NotComparable, _) => return format!("{ratio}, {said}: the generator was the limit"),
        (_, None) => {
            return format!(
                "{ratio}, {said}: it takes two runs on either side, or ten steady seconds in each"
            );
        }
        (_, Some(interval)) => interval,
    };
    let p = match of.p_holm {
        None => String::new(),
        Some(p) if p < 0.001 => ", p < 0.001".to_owned(),
        Some(p) if p < 0.1 => format!(", p {p:.3}"),
        Some(p) => format!(", p {p:.2}"),
    };
    let within = match quotient.method {
        Method::Within => ", within one run: differences between runs are not in it",
        Method::Paired | Method::Welch => "",
    };
    format!("{ratio} ({}–{}), {said}{p}{within}", times(low), times(high))
}

/// `goodput 1.10–1.32× (nginx more at 3 of 4 levels, not comparable at 1)`.
fn in_short(comparison: &Comparison, other: usize, measure: &Measure, ratios: &[&Ratio]) -> String {
    let usable = ratios.iter().filter(|of| of.conclusion != Conclusion::NotComparable);
    let usable: Vec<f64> = usable.filter_map(|of| Some(of.quotient?.ratio)).collect();
    // Two decimals are enough for a sentence.
    let rounded = |r: f64| if (0.095..99.95).contains(&r) { format!("{r:.2}") } else { times(r) };
    let (low, high) = stats::range(&usable);
    let range = match (rounded(low), rounded(high)) {
        _ if usable.is_empty() => String::new(),
        (low, high) if low == high => format!(" {low}×"),
        (low, high) => format!(" {low}–{high}×"),
    };
    let mut counts: Vec<(usize, Conclusion)> = Vec::new();
    for of in ratios {
        match counts.iter_mut().find(|(_, conclusion)| *conclusion == of.conclusion) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, of.conclusion)),
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let of_all = format!(" of {}", format::count(ratios.len() as u32, "level"));
    let clause = |(i, (count, conclusion)): (usize, &(usize, Conclusion))| {
        let of_all = if i == 0 { of_all.as_str() } else { "" };
        format!("{} at {count}{of_all}", verdict(comparison, other, *conclusion))
    };
    let counts: Vec<String> = counts.iter().enumerate().map(clause).collect();
    format!("{}{range} ({})", measure.label, counts.join(", "))
}

/// Failed checks with their remedies, failed runs, and what only one side has.
fn notes(comparison: &Comparison, workload: &ComparedWorkload) -> Vec<String> {
    let mut notes = Vec::new();
    for (i, side) in comparison.sides.iter().enumerate() {
        let levels = workload.levels.iter();
        let levels: Vec<(String, &SideOfLevel)> = levels
            .filter_map(|level| Some((format::each_level(&[level.clients]), level.sides[i].as_ref()?)))
            .collect();
        let failed = || levels.iter().flat_map(|(at, of)| of.failed().map(move |checked| (at, checked)));
        for id in failed().map(|(_, checked)| checked.id).collect::<BTreeSet<_>>() {
            let of_check: Vec<_> = failed().filter(|(_, checked)| checked.id == id).collect();
            let clauses: Vec<String> =
                of_check.iter().map(|(at, checked)| format!("at {at}: {}", checked.seen)).collect();
            let Checked { remedy, .. } = of_check[0].1;
            let name = of_check[0].1.check().name;
            notes.push(format!("{}: {name} {}. {remedy}", side.name, clauses.join("; ")));
        }
        for (at, SideOfLevel { row, .. }) in &levels {
            if row.runs < row.planned {
                let (missing, planned) = (row.planned - row.runs, format::count(row.planned, "run"));
                let why: Vec<&str> = row.failures.keys().map(String::as_str).collect();
                notes.push(format!(
                    "{}: {missing} of {planned} at {at} left out: {}.",
                    side.name,
                    why.join("; ")
                ));
            }
        }
        let alone = workload.alone.iter().filter(|(_, name)| *name == side.name);
        let alone: Vec<u32> = alone.map(|(clients, _)| *clients).collect();
        if !alone.is_empty() {
            notes.push(format!("Only {} has {}.", side.name, format::each_level(&alone)));
        } else if levels.is_empty() {
            notes.push(format!("Not measured on {}.", side.name));
        }
    }
    notes
}

/// How to read the tables.
fn reading(comparison: &Comparison) -> Vec<String> {
    let has = |wanted: fn(&Ratio) -> bool| ratios(&comparison.workloads).any(wanted);
    let tested = match comparison.tested {
        0 if !has(|_| true) => "No ratio was tested: there is none.".to_owned(),
        0 if !has(|of| of.conclusion == Conclusion::NoInterval) => {
            "No ratio was tested: none is comparable. The failed checks stand beside each.".to_owned()
        }
        0 => "No ratio was tested: an interval takes two runs on either side.".to_owned(),
        n => format!(
            "{} tested for a difference, each at 95 %. Without any difference about {:.1} of them would show one by chance.",
            if n == 1 { "1 ratio was".to_owned() } else { format!("{n} ratios were") },
            f64::from(n) * 0.05
        ),
    };
    let mut notes = vec![
        format!(
            "A ratio is the other’s figure over that of {}, of geometric means over runs, with its 95 % interval. \
             An interval that contains 1 shows no difference; there may be one.",
            comparison.sides[0].name
        ),
        tested,
    ];
    if has(|of| of.quotient.is_some_and(|of| of.method == Method::Paired)) {
        notes.push("The targets were measured in turns: Student’s t on the logarithms of their ratios, repetition by repetition.".to_owned());
    }
    if has(|of| of.quotient.is_some_and(|of| of.method == Method::Welch)) {
        notes.push("The sides were not measured in turns: Welch’s t on the logarithms of the runs. What changed on the machine in \
             between is in the ratio and not in its interval.".to_owned());
    }
    notes.extend(READING.iter().map(|note| (*note).to_owned()));
    notes
}

const READING: &[&str] = &[
    "The sentences at the top compare capacities: the mean over the levels of the plateau, or goodput at the highest level \
     that both have. p is corrected by Holm’s method for the number of these sentences; below 0.05 there is a difference. With \
     fewer than three runs the interval is that of the seconds within the runs.",
    "CPU is the processor time of all parts of a target without the generator, over all requests, failed ones included. \
     Successes per core-second are over the same time. Work of the kernel outside of these processes (interrupts, flushing, \
     journal) is in neither. Latency is that of all attempts, median over runs.",
    "A ratio in square brackets is not comparable: a check failed, or the generator was the limit. Then goodput is a lower \
     bound, and latency contains the generator’s own waiting; processor time stays comparable.",
    "– was not read, or has too few runs for an interval.",
];
