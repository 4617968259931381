//! Comparisons as sentences, for all formats.

use crate::format::{UNKNOWN, count, number};
use crate::sentences::failures;
use Conclusion::{FirstMore, NoInterval, NotComparable, NotShown, OtherMore};
use kv::units::short;
use lab_analysis::compare::{
    Bound, CapacityRatio, ComparedWorkload, Conclusion, Method, Obstacle, Quotient, Ratio, Side,
};
use lab_analysis::{Comparison, MEASURES, Row};
use lab_data::distinct;
use std::iter::once;

/// When each side acknowledges a write, where the workload writes and the sides differ in it.
pub(super) fn durability(comparison: &Comparison, workload: &ComparedWorkload) -> Option<String> {
    let is_there = |(i, _): &(usize, &Side)| workload.levels.iter().any(|level| level.sides[*i].is_some());
    let sides = comparison.sides.iter().enumerate().filter(is_there);
    let sides = sides.map(|(_, of)| (&of.name, of.durability.as_deref().unwrap_or("not stated")));
    let (names, when): (Vec<&String>, Vec<&str>) = sides.unzip();
    let each: Vec<String> = names.iter().zip(&when).map(|(name, when)| format!("{name}: {when}")).collect();
    (workload.writes && distinct(when).len() > 1).then(|| {
        format!(
            "The sides acknowledge a write at different times. {}. Their figures are not for the same guarantee.",
            each.join("; ")
        )
    })
}

/// A ratio and its interval; in brackets where it is not comparable.
pub(super) fn ratio(of: &Ratio) -> String {
    let Some(quotient) = &of.quotient else { return "no ratio".to_owned() };
    let ratio = times(quotient.ratio) + "×";
    match (of.bound, quotient.interval) {
        (Some(Bound::AtLeast), _) => format!("[≥ {ratio}]"),
        (Some(Bound::AtMost), _) => format!("[≤ {ratio}]"),
        _ if of.obstacle.is_some() => format!("[{ratio}]"),
        (None, _) => ratio_of(quotient),
    }
}

/// A ratio and its interval.
pub(super) fn ratio_of(Quotient { ratio, interval, .. }: &Quotient) -> String {
    match interval {
        None => format!("{}× ({UNKNOWN})", times(*ratio)),
        Some((low, high)) => format!("{}× ({}–{})", times(*ratio), times(*low), times(*high)),
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

/// What a ratio says, and why it says nothing.
pub(super) fn conclusion(comparison: &Comparison, other: usize, of: &Ratio) -> String {
    let why = match &of.obstacle {
        None => String::new(),
        Some(Obstacle::Zero { run, side }) => format!(": 0 in repetition {run} of {side}"),
        Some(Obstacle::NothingInCommon) => ": no level or repetition is valid on both sides".to_owned(),
        Some(Obstacle::Invalid) => ": a level does not count".to_owned(),
        Some(Obstacle::GeneratorLimited) => ": limited by the generator".to_owned(),
    };
    verdict(comparison, other, of.conclusion) + &why
}

fn verdict(comparison: &Comparison, other: usize, conclusion: Conclusion) -> String {
    match conclusion {
        FirstMore => format!("higher on {}", comparison.sides[0].name),
        OtherMore => format!("higher on {}", comparison.sides[other].name),
        NotShown => "no difference shown".to_owned(),
        NoInterval => "no interval".to_owned(),
        NotComparable => "not comparable".to_owned(),
    }
}

/// For each workload and other side: the workload and a sentence. What was not planned on both needs none.
pub(super) fn front(comparison: &Comparison) -> Vec<[String; 2]> {
    let mut front = Vec::new();
    for workload in &comparison.workloads {
        for (other, of) in workload.capacities.iter().enumerate() {
            let Some(of) = of else { continue };
            let figures = (0..MEASURES.len()).filter_map(|i| in_short(comparison, workload, other, i));
            let said: Vec<String> = once(capacity(comparison, of, other)).chain(figures).collect();
            let [first, other] = [0, other].map(|side| &comparison.sides[side].name);
            front.push([workload.name.clone(), format!("{other} against {first}: {}.", said.join("; "))]);
        }
    }
    front
}

pub(super) fn p_value(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_owned() } else { number(p, 3) }
}

/// `capacity 0.502× (0.490–0.515), higher on weir, p 0.003`.
fn capacity(comparison: &Comparison, of: &CapacityRatio, other: usize) -> String {
    let at = of.at_clients.map(|clients| format!("goodput at {}", count(clients, "client")));
    let said = conclusion(comparison, other, &of.ratio);
    let p = of.p_holm.map_or_else(String::new, |p| format!(", p {}", p_value(p)));
    let is_sequential = of.ratio.quotient.is_some_and(|quotient| quotient.method == Method::Sequential);
    let interval = of.ratio.quotient.and_then(|quotient| quotient.interval);
    let remark = match of.ratio.conclusion {
        NoInterval if is_sequential => ": at least five pairs are needed",
        NoInterval => ": each side needs at least two repetitions",
        NotShown if interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0) => {
            " (p is corrected for the number of these sentences; the interval and the verdicts at single levels are not)"
        }
        _ => "",
    };
    format!("{} {}, {said}{p}{remark}", at.as_deref().unwrap_or("capacity"), ratio(&of.ratio))
}

/// `goodput 1.100–1.321× (higher on nginx at 3 of 4 levels, not comparable at 1)`; nothing where no level has a ratio.
fn in_short(comparison: &Comparison, of: &ComparedWorkload, other: usize, measure: usize) -> Option<String> {
    let sides = of.levels.iter().filter_map(|level| level.sides[other].as_ref());
    let ratios: Vec<&Ratio> = sides.filter_map(|side| side.ratios[measure].as_ref()).collect();
    let usable = ratios.iter().filter(|of| of.conclusion != NotComparable);
    let range = stats::range(usable.filter_map(|of| Some(of.quotient?.ratio)));
    let range = match range.map(|(low, high)| (times(low), times(high))) {
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
    *clauses.first_mut()? += &format!(" of {}", count(ratios.len() as u32, "level"));
    Some(format!("{}{range} ({})", MEASURES[measure].label, clauses.join(", ")))
}

/// Failed trials, and where the workload was not measured.
pub(super) fn notes(comparison: &Comparison, workload: &ComparedWorkload) -> Vec<String> {
    let mut notes = Vec::new();
    for (i, Side { name, .. }) in comparison.sides.iter().enumerate() {
        let sides = workload.levels.iter().filter_map(|level| level.sides[i].as_ref());
        let rows: Vec<&Row> = sides.map(|side| &side.row).collect();
        notes.extend(failures(&rows).into_iter().map(|said| format!("{name}: {said}")));
        notes.extend(rows.is_empty().then(|| format!("Not measured on {name}.")));
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
    let method = match comparison.interleaved {
        true if comparison.sequential => {
            "The interval is computed from the ratios of single repetitions, in which the targets were measured in turns. It is valid at \
             any number of repetitions, so the run could end as soon as the verdicts were known."
        }
        true => {
            "The interval is computed from the ratios of single repetitions, in which the targets were measured in turns (Student’s t)."
        }
        false => "The interval (Welch’s t) does not include changes of the machine between the runs.",
    };
    let ratio = format!(
        "A ratio is the other’s figure over that of {}, of geometric means over repetitions, with its 95 % interval. {method} \
         An interval that contains 1 shows no difference; there may be one.",
        comparison.sides[0].name
    );
    [ratio, tested].into_iter().chain(READING.iter().map(|note| (*note).to_owned())).collect()
}

const READING: &[&str] = &[
    "The sentences at the top compare capacities: the mean over the levels of the plateau, or goodput at the highest level \
     that both have. p is corrected by Holm’s method for the number of these sentences; below 0.05 there is a difference. The intervals are not corrected.",
    "CPU is the processor time of the target’s processes divided by all requests, failed ones included. The generator and kernel work \
     outside these processes are not counted. Latency is that of all attempts, median over repetitions.",
    "A ratio in square brackets is not comparable. Where the generator was the limit, goodput is a lower bound, and latency \
     contains the generator’s own waiting; processor time stays comparable. “–”: not measured, or too few repetitions.",
];
