//! The drawing: processor time per request of each target, workload by workload, with its interval.

use crate::document::{Block, Drawing};
use crate::format::{self, count};
use crate::plots::bars::{Bar, Bars, drawn};
use crate::plots::rps;
use crate::svg::Colour;
use lab_analysis::compare::{ComparedLevel, ComparedWorkload, SideOfLevel};
use lab_analysis::{Comparison, MEASURES};
use stats::Interval;

/// What is drawn.
const TITLE: &str = "Processor time per request";
const MEASURE: &str = "cpu_us_per_attempt";
/// How solid a bar is, and one with a failed check.
const SOLID: f64 = 0.45;
const PALE: f64 = 0.1;

/// The drawing; `None` where fewer than two sides have the figure anywhere.
pub(super) fn figure(comparison: &Comparison) -> Option<Block> {
    let groups: Vec<Bars> = comparison.workloads.iter().filter_map(|of| bars(comparison, of)).collect();
    let caption = format!(
        "{TITLE}, all parts of a target but the generator, at the highest level the targets have in common. Mean over \
         the runs; whiskers: the interval over them. Pale: a check failed."
    );
    let drawing = || Drawing { file: "compare.svg".to_owned(), label: TITLE.to_owned(), svg: drawn(&groups) };
    (!groups.is_empty()).then(|| Block::figure(drawing(), caption))
}

/// A bar for each side that has the figure, at one level.
fn bars(comparison: &Comparison, workload: &ComparedWorkload) -> Option<Bars> {
    let measure = MEASURES.iter().position(|measure| measure.name == MEASURE)?;
    let figures = |level: &ComparedLevel| {
        level.sides.iter().flatten().filter(|of| of.figures[measure].is_some()).count()
    };
    // Of the levels that most sides have the last one; `max_by_key` gives the last of several.
    let level = workload.levels.iter().max_by_key(|level| figures(level))?;
    let bar = |(side, of): (usize, &Option<SideOfLevel>)| {
        let of = of.as_ref()?;
        let figure = of.figures[measure].as_ref()?;
        let estimate = figure.estimate.filter(|of| of.interval != Interval::Single);
        Some(Bar {
            name: comparison.sides[side].name.clone(),
            below: String::new(),
            colour: Colour::Series(side),
            value: figure.value,
            interval: estimate.map(|of| (of.low, of.high)),
            expected: None,
            opacity: if of.row.usable() { SOLID } else { PALE },
            said: figure.estimate.as_ref().map_or_else(String::new, format::spread),
        })
    };
    let bars: Vec<Bar> = level.sides.iter().enumerate().filter_map(bar).collect();
    let title = format!("{}, {}, µs", workload.name, count(level.clients, "client"));
    (bars.len() > 1).then_some(Bars { title, said: "", tick: rps, bars })
}
