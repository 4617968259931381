//! Comparisons as sentences, for all formats.

use crate::checks::lines;
use crate::format::{UNKNOWN, count, each_level};
use crate::sentences::failures;
use Conclusion::{FirstMore, NoInterval, NotComparable, NotShown, OtherMore};
use kv::units::short;
use lab_analysis::compare::{
    Bound, CapacityRatio, ComparedWorkload, Conclusion, Lacking, Measure, Method, Ratio, Side,
};
use lab_analysis::{Checked, Comparison, MEASURES, Row};
use std::collections::BTreeMap;

/// The figures in the sentences at the top.
const IN_SHORT: &[&str] = &["goodput_rps", "cpu_us_per_attempt", "latency_us_p50"];

/// When a side acknowledges a write.
pub(super) fn acknowledges(side: &Side) -> &str {
    side.durability.as_deref().unwrap_or("not stated")
}

/// When each side acknowledges a write, where the workload writes and the sides differ in it.
pub(super) fn durability(comparison: &Comparison, workload: &ComparedWorkload) -> Option<String> {
    let is_there = |i: usize| workload.levels.iter().any(|level| level.sides[i].is_some());
    let sides = comparison.sides.iter().enumerate().filter(|(i, _)| is_there(*i)).map(|(_, side)| side);
    let first = sides.clone().map(acknowledges).next();
    let differ = sides.clone().any(|side| Some(acknowledges(side)) != first);
    let each: Vec<String> = sides.map(|side| format!("{}: {}", side.name, acknowledges(side))).collect();
    (workload.writes && differ).then(|| {
        format!(
            "The sides acknowledge a write at different times. {}. Their figures are not for the same guarantee.",
            each.join("; ")
        )
    })
}

/// A ratio and its interval; in brackets where it is not comparable.
pub(super) fn ratio(of: &Ratio) -> String {
    match &of.quotient {
        None => "no ratio".to_owned(),
        Some(quotient) if of.conclusion == NotComparable => {
            format!("[{}{}]", bound(of), times(quotient.ratio))
        }
        Some(quotient) => {
            let ends = |(low, high)| format!("{}–{}", times(low), times(high));
            format!("{} ({})", times(quotient.ratio), quotient.interval.map_or(UNKNOWN.to_owned(), ends))
        }
    }
}

/// The checks that failed, and on which side: `errors nginx, machine both`.
pub(super) fn failed(of: &Ratio) -> String {
    let mut checks: BTreeMap<&str, &str> = BTreeMap::new();
    for (check, side) in &of.failed {
        checks.entry(check).and_modify(|side| *side = "both").or_insert(side);
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
        r if r >= 9.9995 => short(r),
        r if r >= 0.1 => format!("{r:.3}"),
        r => format!("{r:.5}"),
    }
}

/// What a ratio says, and why there is none.
pub(super) fn conclusion(comparison: &Comparison, other: usize, of: &Ratio) -> String {
    let said = verdict(comparison, other, of.conclusion);
    match &of.lacking {
        Some(Lacking::Zero { run, side }) => format!("{said}: 0 in repetition {run} of {side}"),
        Some(Lacking::NoCommonRun) => format!("{said}: no repetition in common"),
        Some(Lacking::NoCommonLevel) => format!("{said}: no level is valid on both sides"),
        None => said,
    }
}

fn verdict(comparison: &Comparison, other: usize, conclusion: Conclusion) -> String {
    match conclusion {
        FirstMore => format!("{} more", comparison.sides[0].name),
        OtherMore => format!("{} more", comparison.sides[other].name),
        NotShown => "no difference shown".to_owned(),
        NoInterval => "no interval".to_owned(),
        NotComparable => "not comparable".to_owned(),
    }
}

/// For each workload and other side: the workload and a sentence.
pub(super) fn front(comparison: &Comparison) -> Vec<(String, String)> {
    let of_workload = |workload: &ComparedWorkload| -> Vec<(String, String)> {
        let others = 1..comparison.sides.len();
        others.map(|other| (workload.name.clone(), sentence(comparison, workload, other))).collect()
    };
    comparison.workloads.iter().flat_map(of_workload).collect()
}

/// What is said of one other side.
fn sentence(comparison: &Comparison, workload: &ComparedWorkload, other: usize) -> String {
    let sides: Vec<_> = workload.levels.iter().filter_map(|level| level.sides[other].as_ref()).collect();
    let capacity = workload.capacities[other].as_ref().map(|of| capacity(comparison, of, other));
    let figures = MEASURES.iter().enumerate().filter(|(_, of)| IN_SHORT.contains(&of.name));
    let figures = figures.filter_map(|(i, measure)| {
        let ratios: Vec<&Ratio> = sides.iter().filter_map(|side| side.ratios[i].as_ref()).collect();
        (!ratios.is_empty()).then(|| in_short(comparison, other, measure, &ratios))
    });
    let clauses: Vec<String> = capacity.into_iter().chain(figures).collect();
    let said = if clauses.is_empty() { "not measured on both".to_owned() } else { clauses.join("; ") };
    format!("{} against {}: {said}.", comparison.sides[other].name, comparison.sides[0].name)
}

/// `capacity 0.502× (0.490–0.515), weir more, p 0.003`.
fn capacity(comparison: &Comparison, of: &CapacityRatio, other: usize) -> String {
    let at = of.at_clients.map(|clients| format!("goodput at {}", count(clients, "client")));
    let what = at.unwrap_or_else(|| "capacity".to_owned());
    let said = conclusion(comparison, other, &of.ratio);
    let Some(quotient) = &of.ratio.quotient else { return format!("{what} {said}") };
    let said = match (of.ratio.conclusion, quotient.interval) {
        (NotComparable, _) => format!(", {said}: the generator was the limit"),
        (_, None) => {
            format!(", {said}: it takes two repetitions on either side, or ten steady seconds in each")
        }
        (_, Some((low, high))) => {
            let p = match of.p_holm {
                None => String::new(),
                Some(p) if p < 0.001 => ", p < 0.001".to_owned(),
                Some(p) => format!(", p {p:.3}"),
            };
            let within = match quotient.method {
                Method::Within => ", within one repetition: differences between repetitions are not in it",
                _ => "",
            };
            format!(" ({}–{}), {said}{p}{within}", times(low), times(high))
        }
    };
    format!("{what} {}{}×{said}", bound(&of.ratio), times(quotient.ratio))
}

/// `goodput 1.10–1.32× (nginx more at 3 of 4 levels, not comparable at 1)`.
fn in_short(comparison: &Comparison, other: usize, measure: &Measure, ratios: &[&Ratio]) -> String {
    let usable = ratios.iter().filter(|of| of.conclusion != NotComparable);
    let usable = usable.filter_map(|of| Some(of.quotient?.ratio));
    // Two decimals are enough for a sentence.
    let rounded = |r: f64| if (0.095..99.95).contains(&r) { format!("{r:.2}") } else { times(r) };
    let range = match stats::range(usable).map(|(low, high)| (rounded(low), rounded(high))) {
        None => String::new(),
        Some((low, high)) if low == high => format!(" {low}×"),
        Some((low, high)) => format!(" {low}–{high}×"),
    };
    let clause = |conclusion| {
        let levels = ratios.iter().filter(|of| of.conclusion == conclusion).count();
        (levels > 0).then(|| format!("{} at {levels}", verdict(comparison, other, conclusion)))
    };
    let all = [OtherMore, FirstMore, NotShown, NoInterval, NotComparable];
    let mut clauses: Vec<String> = all.into_iter().filter_map(clause).collect();
    clauses[0] += &format!(" of {}", count(ratios.len() as u32, "level"));
    format!("{}{range} ({})", measure.label, clauses.join(", "))
}

/// Failed checks with their remedies, failed trials, and what only one side has.
pub(super) fn notes(comparison: &Comparison, workload: &ComparedWorkload) -> Vec<String> {
    let mut notes = Vec::new();
    for (i, side) in comparison.sides.iter().enumerate() {
        let levels = workload.levels.iter();
        let rows: Vec<&Row> = levels.filter_map(|level| Some(&level.sides[i].as_ref()?.row)).collect();
        let checked = rows.iter().flat_map(|row| row.checks.iter().map(|of| (of, row.level)));
        let failed: Vec<(&Checked, u32)> = checked.filter(|(of, _)| of.failed()).collect();
        notes.extend(lines(&failed).iter().map(|line| {
            format!("{}: {} at {}: {}", side.name, line.check.name, each_level(&line.places), line.seen())
        }));
        notes.extend(failures(&rows).into_iter().map(|said| format!("{}: {said}", side.name)));
        let alone = workload.alone.iter().filter(|(_, name)| *name == side.name);
        let alone: Vec<u32> = alone.map(|(clients, _)| *clients).collect();
        if !alone.is_empty() {
            notes.push(format!("Only {} has {}.", side.name, each_level(&alone)));
        } else if rows.is_empty() {
            notes.push(format!("Not measured on {}.", side.name));
        }
    }
    notes
}

/// How to read the tables.
pub(super) fn reading(comparison: &Comparison) -> Vec<String> {
    let tested = match comparison.tested {
        0 => "No ratio was tested: none is comparable and has an interval.".to_owned(),
        n => format!(
            "{} tested for a difference, each at 95 %. Without any difference about {:.1} of them would show one by chance.",
            count(n, "ratio"),
            f64::from(n) * 0.05
        ),
    };
    let ratio = format!(
        "A ratio is the other’s figure over that of {}, of geometric means over repetitions, with its 95 % interval. \
         An interval that contains 1 shows no difference; there may be one.",
        comparison.sides[0].name
    );
    [ratio, tested].into_iter().chain(READING.iter().map(|note| (*note).to_owned())).collect()
}

const READING: &[&str] = &[
    "Targets of one run are measured in turns: Student’s t on the logarithms of their ratios, repetition by repetition. Two runs \
     are not: Welch’s t on the logarithms of the repetitions; what changed on the machine in between is in the ratio and not in its \
     interval.",
    "The sentences at the top compare capacities: the mean over the levels of the plateau, or goodput at the highest level \
     that both have. p is corrected by Holm’s method for the number of these sentences; below 0.05 there is a difference. With \
     fewer than three repetitions the interval is that of the seconds within them.",
    "CPU is the processor time of all parts of a target without the generator, over all requests, failed ones included. \
     Successes per core-second are over the same time. Work of the kernel outside of these processes (interrupts, flushing, \
     journal) is in neither. Latency is that of all attempts, median over repetitions.",
    "A ratio in square brackets is not comparable: a check failed, or the generator was the limit. Then goodput is a lower \
     bound, and latency contains the generator’s own waiting; processor time stays comparable.",
    "– was not read, or has too few repetitions for an interval.",
];
