//! The page of a comparison, before it is spelled: what stands on it, in which order.

use super::{capacity, plot};
use crate::document::{Block, Document, Table, TableColumn, section};
use crate::format::{self, UNKNOWN, slug};
use kv::units::short;
use lab_analysis::compare::{
    Bound, ComparedWorkload, Measure, Merge, Merged, Method, Quotient, Ratio, Says, Side, SideOfLevel,
};
use lab_analysis::rows::Excluded;
use lab_analysis::{Comparison, MEASURES};

/// The figures of each table, and what stands behind them. More would be wider than the page.
const TABLES: &[(&[&str], Behind)] = &[
    (&["goodput_rps"], Behind::Gates),
    (&["cpu_us_per_attempt", "cores_used"], Behind::Nothing),
    (&["successes_per_core_sec"], Behind::Nothing),
    (&["latency_us_p50", "latency_us_p99"], Behind::Promise),
];

/// What stands at the end of a table's rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// The gates that failed.
    Gates,
    /// When a write is acknowledged, where the workload writes.
    Promise,
    Nothing,
}

/// The figures a sentence is made of.
const IN_SHORT: &[&str] = &["goodput_rps", "cpu_us_per_attempt", "latency_us_p50"];

const NOT_STATED: &str = "not stated";

/// What stands at the head.
pub(super) fn title(comparison: &Comparison) -> String {
    let first = &comparison.sides[0];
    if comparison.interleaved {
        return first.title.clone();
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
    let first = &comparison.sides[0];
    let above = match comparison.interleaved {
        true => format!(
            "weir {} · {} · {} · targets compared",
            first.weir_version, first.experiment, first.started
        ),
        false => "two runs compared".to_owned(),
    };
    let mut answers = Table::new(&["<workload", "<in short"]);
    for (workload, said) in front(comparison) {
        answers.push([workload, said]);
    }
    let mut page = vec![Block::Table(answers)];
    page.extend(plot::figure(comparison));
    page.push(section("What is compared", "sides"));
    page.push(Block::Table(sides(comparison)));
    if !comparison.absent.is_empty() {
        let absent: Vec<&str> = comparison.absent.iter().map(String::as_str).collect();
        page.push(Block::Notes(vec![format!(
            "Of the same run, but without results: {}.",
            format::listed(&absent)
        )]));
    }
    circumstances(comparison, &mut page);
    for of in &comparison.workloads {
        page.push(section(&of.name, &slug(&of.name)));
        if !of.about.is_empty() {
            page.push(Block::Text(of.about.clone()));
        }
        page.extend(promises(comparison, of).map(Block::Text));
        for (measures, behind) in TABLES {
            page.push(Block::Table(table(comparison, of, measures, *behind)));
        }
        page.push(Block::Notes(notes(comparison, of)));
    }
    page.push(section("How to read it", "reading"));
    page.push(Block::Notes(reading(comparison)));
    Document { title: title(comparison), above, blocks: page }
}

/// Who the sides are. What targets of one run have in common stands at the head of the page already.
fn sides(comparison: &Comparison) -> Table {
    let of_runs: &[&str] = &["<experiment", "<target", "<started", "<weir"];
    let of_runs = if comparison.interleaved { &[] } else { of_runs };
    let mut table =
        Table::new(&[&["<"], of_runs, &["<processor time is that of", "<acknowledges a write"]].concat());
    for side in &comparison.sides {
        let target = side.target.clone().unwrap_or_else(|| UNKNOWN.to_owned());
        let mut cells = vec![side.name.clone()];
        if !comparison.interleaved {
            cells.extend([side.experiment.clone(), target, side.started.clone(), side.weir_version.clone()]);
        }
        let parts: Vec<&str> = side.parts.iter().map(String::as_str).collect();
        cells.extend([format::listed(&parts), promise(side)]);
        table.push(cells);
    }
    table
}

/// When a side acknowledges a write.
fn promise(side: &Side) -> String {
    side.durability.clone().unwrap_or_else(|| NOT_STATED.to_owned())
}

/// What was not the same, where anything was not.
fn circumstances(comparison: &Comparison, page: &mut Vec<Block>) {
    if comparison.circumstances.is_empty() {
        return;
    }
    page.push(section("What else differs", "circumstances"));
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| UNKNOWN.to_owned());
    // Of two sides, a column each. Commands of more would have no room beside each other: a line for each value.
    let mut table;
    if comparison.sides.len() == 2 {
        let names = comparison.sides.iter().map(|side| format!("<{}", side.name));
        let head: Vec<String> = std::iter::once("<".to_owned()).chain(names).collect();
        table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
        for difference in &comparison.circumstances {
            table.push(std::iter::once(difference.what.clone()).chain(difference.of.iter().map(known)));
        }
    } else {
        table = Table::new(&["<", "<of", "<is"]);
        for difference in &comparison.circumstances {
            let mut what = difference.what.clone();
            let mut values: Vec<(&Option<String>, Vec<&str>)> = Vec::new();
            for (value, side) in difference.of.iter().zip(&comparison.sides) {
                match values.iter_mut().find(|(seen, _)| *seen == value) {
                    Some((_, names)) => names.push(&side.name),
                    None => values.push((value, vec![&side.name])),
                }
            }
            for (value, names) in values {
                table.push([std::mem::take(&mut what), format::listed(&names), known(value)]);
            }
        }
    }
    page.push(Block::Table(table));
}

/// When each side acknowledges a write, in words, where they differ in it.
fn promises(comparison: &Comparison, workload: &ComparedWorkload) -> Option<String> {
    let there = comparison
        .sides
        .iter()
        .enumerate()
        .filter(|(i, _)| workload.levels.iter().any(|level| level.sides[*i].is_some()));
    let told: Vec<(&str, &str)> = there
        .map(|(_, side)| (side.name.as_str(), side.durability.as_deref().unwrap_or(NOT_STATED)))
        .collect();
    let differ = told.iter().any(|(_, text)| *text != told[0].1);
    (workload.writes && differ).then(|| {
        let each: Vec<String> = told.iter().map(|(name, text)| format!("{name}: {text}")).collect();
        format!(
            "The sides promise different things when they acknowledge a write. {}. Their figures are the price of \
             different goods.",
            each.join("; ")
        )
    })
}

fn table(comparison: &Comparison, workload: &ComparedWorkload, measures: &[&str], behind: Behind) -> Table {
    let (gated, promised) = (behind == Behind::Gates, behind == Behind::Promise && workload.writes);
    let base = &comparison.sides[0].name;
    let words = |heading: &str| TableColumn { is_words: true, ..TableColumn::figures(heading, "") };
    let mut columns = vec![TableColumn::figures("clients", ""), words("target")];
    let chosen: Vec<(usize, &Measure)> =
        MEASURES.iter().enumerate().filter(|(_, measure)| measures.contains(&measure.name)).collect();
    for (_, measure) in &chosen {
        let (heading, unit) = measure.heading;
        columns.push(TableColumn::figures(heading, unit));
        if measure.compared {
            columns.push(TableColumn::figures("ratio", format!("to {base}, 95 %")));
            columns.push(words("difference"));
        }
    }
    if gated {
        columns.push(words("checks failed"));
    }
    if promised {
        columns.push(words("acknowledges a write"));
    }
    let mut table = Table::of(columns);
    for level in &workload.levels {
        let mut clients = level.clients.to_string();
        for (i, side) in level.sides.iter().enumerate() {
            let Some(of) = side else { continue };
            let mut cells = vec![std::mem::take(&mut clients), comparison.sides[i].name.clone()];
            for (index, measure) in &chosen {
                cells.push(figure(measure, of.figures[*index].as_ref()));
                if measure.compared {
                    cells.extend(match i {
                        0 => ["1".to_owned(), String::new()],
                        _ => compared(comparison, i, of.ratios[*index].as_ref()),
                    });
                }
            }
            if gated {
                cells.push(gates(of));
            }
            if promised {
                cells.push(promise(&comparison.sides[i]));
            }
            let usable = of.excluded.is_none();
            table.push_row(cells, !usable);
        }
    }
    table
}

fn figure(measure: &Measure, of: Option<&Merge>) -> String {
    let Some(of) = of else { return UNKNOWN.to_owned() };
    match measure.merged {
        // Their spread is that of the load; it would say nothing.
        Merged::Mean if measure.unit == "cores" => format!("{:.2}", of.value),
        Merged::Mean => of.estimate.as_ref().map_or_else(|| UNKNOWN.to_owned(), format::spread),
        Merged::Median => format::latency(Some(of.value)),
    }
}

fn gates(of: &SideOfLevel) -> String {
    let failed: Vec<&str> = of.failed.iter().map(|of| of.check().name).collect();
    match (of.excluded, failed.is_empty()) {
        (Some(Excluded::NoNumbers), _) => "no run".to_owned(),
        (_, true) => "none".to_owned(),
        (_, false) => failed.join(", "),
    }
}

/// The cells of a ratio: the figure, and what it says.
fn compared(comparison: &Comparison, other: usize, of: Option<&Ratio>) -> [String; 2] {
    let Some(of) = of else { return [UNKNOWN.to_owned(), UNKNOWN.to_owned()] };
    let ratio = match (&of.quotient, of.says) {
        (None, _) => "no ratio".to_owned(),
        (Some(quotient), Says::NotComparable) => {
            let bound = match of.bound {
                Some(Bound::AtLeast) => "≥ ",
                Some(Bound::AtMost) => "≤ ",
                None => "",
            };
            format!("[{bound}{}]", times(quotient.ratio))
        }
        (Some(of), _) => quotient(of),
    };
    // The heading says what there is none of.
    let said = match of.says {
        Says::NotShown => "none shown".to_owned(),
        _ => said(comparison, other, of),
    };
    let remarks = remarks(of);
    [ratio, if remarks.is_empty() { said } else { format!("{said}; {remarks}") }]
}

/// The gates that failed and where: `G3 nginx, G6 both`.
pub(super) fn remarks(of: &Ratio) -> String {
    let mut gates: Vec<(&str, Vec<&str>)> = Vec::new();
    for (gate, side) in &of.remarks {
        match gates.iter_mut().find(|(id, _)| id == gate) {
            Some((_, sides)) => sides.push(side),
            None => gates.push((gate, vec![side])),
        }
    }
    let each = gates.iter().map(|(gate, sides)| match sides.as_slice() {
        [only] => format!("{gate} {only}"),
        _ => format!("{gate} both"),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// `1.143 (1.121–1.165)`, and `1.143 (–)` without an interval.
pub(super) fn quotient(of: &Quotient) -> String {
    match of.interval {
        Some((low, high)) => format!("{} ({}–{})", times(of.ratio), times(low), times(high)),
        None => format!("{} ({UNKNOWN})", times(of.ratio)),
    }
}

/// A ratio with as many digits as the interval of a quiet run deserves.
pub(super) fn times(ratio: f64) -> String {
    match ratio {
        r if !r.is_finite() => UNKNOWN.to_owned(),
        r if r >= 99.95 => short(r),
        r if r >= 9.9995 => format!("{r:.1}"),
        r if r >= 0.1 => format!("{r:.3}"),
        r => format!("{r:.5}"),
    }
}

/// What is said of a ratio, and why there is none.
pub(super) fn said(comparison: &Comparison, other: usize, of: &Ratio) -> String {
    let verdict = verdict(comparison, other, of.says);
    match &of.lacking {
        Some(why) => format!("{verdict}: {why}"),
        None => verdict,
    }
}

/// What is said, with the side's name.
pub(super) fn verdict(comparison: &Comparison, other: usize, says: Says) -> String {
    match says {
        Says::FirstMore => format!("{} more", comparison.sides[0].name),
        Says::OtherMore => format!("{} more", comparison.sides[other].name),
        Says::NotShown => "no difference shown".to_owned(),
        Says::NoInterval => "no interval".to_owned(),
        Says::NotComparable => "not comparable".to_owned(),
    }
}

/// What the comparison says: for each workload and other side its name and a sentence.
pub(super) fn front(comparison: &Comparison) -> Vec<(String, String)> {
    let entry = |workload: &ComparedWorkload, sentence| (workload.name.clone(), sentence);
    let of_workload = |workload| {
        let said: Vec<_> = (1..comparison.sides.len())
            .filter_map(|other| Some(entry(workload, sentence(comparison, workload, other)?)))
            .collect();
        match said.is_empty() {
            true => {
                let without = format!("not measured on {}: no ratios.", comparison.sides[0].name);
                vec![entry(workload, format::capitalized(&without))]
            }
            false => said,
        }
    };
    comparison.workloads.iter().flat_map(of_workload).collect()
}

/// What is said of one other side; `None` where it or the first does not have the workload.
fn sentence(comparison: &Comparison, workload: &ComparedWorkload, other: usize) -> Option<String> {
    let levels = workload.levels.iter().filter(|level| level.sides[0].is_some());
    let both: Vec<&SideOfLevel> = levels.filter_map(|level| level.sides[other].as_ref()).collect();
    let measures = (MEASURES.iter().enumerate())
        .filter(|(_, measure)| IN_SHORT.contains(&measure.name))
        .filter_map(|(index, measure)| in_short(comparison, other, measure, index, &both));
    let said: Vec<String> =
        capacity::clause(comparison, workload, other).into_iter().chain(measures).collect();
    let said = if said.is_empty() { "nothing to compare".to_owned() } else { said.join("; ") };
    let (name, first) = (&comparison.sides[other].name, &comparison.sides[0].name);
    (!both.is_empty()).then(|| format!("{name} against {first}: {said}."))
}

/// `goodput 1.10–1.32× (nginx more at 3 of 4 levels, not comparable at 1)`.
fn in_short(
    comparison: &Comparison,
    other: usize,
    measure: &Measure,
    index: usize,
    both: &[&SideOfLevel],
) -> Option<String> {
    let ratios: Vec<&Ratio> = both.iter().filter_map(|side| side.ratios[index].as_ref()).collect();
    let believed = ratios.iter().filter(|of| of.says != Says::NotComparable);
    let believed: Vec<f64> = believed.filter_map(|of| Some(of.quotient?.ratio)).collect();
    let (least, most) =
        believed.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), x| (low.min(*x), high.max(*x)));
    let range = match believed.len() {
        0 => String::new(),
        _ if rounded(least) == rounded(most) => format!(" {}×", rounded(least)),
        _ => format!(" {}–{}×", rounded(least), rounded(most)),
    };
    let order = [Says::FirstMore, Says::OtherMore, Says::NotShown, Says::NoInterval, Says::NotComparable];
    let mut counts: Vec<(usize, Says)> = (order.iter())
        .map(|says| (ratios.iter().filter(|of| of.says == *says).count(), *says))
        .filter(|(count, _)| *count > 0)
        .collect();
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let at = |i: usize, count: usize| match (ratios.len(), count) {
        (1, _) => "at the only level".to_owned(),
        (2, 2) => "at both levels".to_owned(),
        (all, count) if all == count => format!("at all {all} levels"),
        (all, count) if i == 0 => format!("at {count} of {all} levels"),
        _ => format!("at {count}"),
    };
    let counts: Vec<String> = (counts.iter().enumerate())
        .map(|(i, (count, says))| format!("{} {}", verdict(comparison, other, *says), at(i, *count)))
        .collect();
    (!counts.is_empty()).then(|| format!("{}{range} ({})", measure.said, counts.join(", ")))
}

/// Two decimals are enough for a sentence.
fn rounded(ratio: f64) -> String {
    if (0.095..99.95).contains(&ratio) { format!("{ratio:.2}") } else { times(ratio) }
}

/// What is wrong on which side at which levels, and what to do about it; then what only one side has.
fn notes(comparison: &Comparison, workload: &ComparedWorkload) -> Vec<String> {
    let mut notes = Vec::new();
    for (i, side) in comparison.sides.iter().enumerate() {
        let rows: Vec<(u32, &SideOfLevel)> = workload
            .levels
            .iter()
            .filter_map(|level| Some((level.clients, level.sides[i].as_ref()?)))
            .collect();
        let mut ids: Vec<&str> =
            rows.iter().flat_map(|(_, of)| of.failed.iter().map(|gate| gate.id)).collect();
        ids.sort_unstable();
        ids.dedup();
        for id in ids {
            let gates = rows
                .iter()
                .filter_map(|(clients, of)| Some((*clients, of.failed.iter().find(|gate| gate.id == id)?)));
            let gates: Vec<_> = gates.collect();
            let clauses: Vec<String> = (gates.iter())
                .map(|(clients, gate)| format!("at {}: {}", format::each_level(&[*clients]), gate.seen))
                .collect();
            let gate = gates[gates.len() - 1].1;
            notes.push(format!(
                "{}: {} {}. {}",
                side.name,
                gate.check().name,
                clauses.join("; "),
                gate.remedy
            ));
        }
        for (clients, of) in rows {
            let (missing, planned) = (of.planned - of.runs.min(of.planned), format::count(of.planned, "run"));
            if missing > 0 {
                notes.push(format!(
                    "{}: {missing} of {planned} at {} left out: {}.",
                    side.name,
                    format::each_level(&[clients]),
                    of.failures.join("; ")
                ));
            }
        }
        let alone: Vec<u32> = workload
            .alone
            .iter()
            .filter(|(_, name)| *name == side.name)
            .map(|(clients, _)| *clients)
            .collect();
        if !alone.is_empty() {
            notes.push(format!("Only {} has {}.", side.name, format::each_level(&alone)));
        }
    }
    if comparison.sides.len() > 2 {
        let without: Vec<&str> = (comparison.sides.iter().enumerate())
            .filter(|(i, _)| workload.levels.iter().all(|level| level.sides[*i].is_none()))
            .map(|(_, side)| side.name.as_str())
            .collect();
        if !without.is_empty() {
            notes.push(format!("Not measured on {}.", format::listed(&without)));
        }
    }
    notes
}

/// What a reader has to know of all the tables.
fn reading(comparison: &Comparison) -> Vec<String> {
    let ratios: Vec<&Ratio> = (comparison.workloads.iter())
        .flat_map(|workload| &workload.levels)
        .flat_map(|level| level.sides.iter().flatten())
        .flat_map(|side| side.ratios.iter().flatten())
        .collect();
    let methods = |wanted: Method| ratios.iter().any(|of| of.quotient.is_some_and(|of| of.method == wanted));
    let barred = |of: &&Ratio| of.says == Says::NotComparable;
    let first = &comparison.sides[0].name;
    let mut notes = vec![format!(
        "A ratio is the other’s figure over that of {first}, of geometric means over runs, with its 95 % interval in \
         round brackets. “More” is said where the interval lies on one side of 1; where it holds 1 no difference is shown, which does not mean that there is none."
    )];
    notes.push(capacity::note());
    if methods(Method::Paired) {
        notes.push(
            "The targets were measured in turns, so that ratios are formed repetition by repetition: mean of the \
             logarithms, Student’s t over the repetitions. What slowed both down alike is not in them."
                .to_owned(),
        );
    }
    if methods(Method::Welch) {
        notes.push(
            "The sides were not measured in turns: Welch’s t over the logarithms of the runs. What changed on the \
             machine in between is in the ratio and not in its interval."
                .to_owned(),
        );
    }
    notes.push(match comparison.tested {
        0 if ratios.is_empty() => "No ratio was tested: there is none.".to_owned(),
        0 if ratios.iter().all(barred) => {
            "No ratio was tested: none is comparable. What stands in the way is beside each.".to_owned()
        }
        0 if ratios.iter().any(barred) => "No ratio was tested: some are not comparable, and for the others an interval \
             takes two runs on either side."
            .to_owned(),
        0 => "No ratio was tested: an interval takes two runs on either side.".to_owned(),
        n => format!(
            "{} tested for a difference, each at 95 %. Were there no difference anywhere, about {:.1} of them would \
             still show one by chance.",
            if n == 1 { "1 ratio was".to_owned() } else { format!("{n} ratios were") },
            f64::from(n) * 0.05
        ),
    });
    notes.push(
        "CPU is the processor time of all parts of a target, the generator’s left out, over all requests, failed ones \
         included; successes per core-second are requests that succeeded over the same time, and cores used that time over the window. What the kernel does \
         outside of the parts’ processes (interrupts, flushing, journal) is in neither. Latency is that of all attempts; \
         of several runs the median stands in the table."
            .to_owned(),
    );
    notes.push(
        "Gates that failed stand behind a ratio with the side. One in square brackets is not to be believed: a gate forbids it. \
         Where the generator was the limit (G3) a target may have more to give, so that goodput is a lower bound and \
         latency has the generator’s own waiting in it. The target’s processor time is counted on its own side and is \
         compared; but it also depends on how many requests a wake-up finds, and they are fewer when the generator is the \
         slower one: look at the cores used."
            .to_owned(),
    );
    notes.push(format!("{UNKNOWN} was not read, or has fewer than two runs to make an interval of."));
    notes
}
