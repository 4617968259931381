//! The drawing: processor time per request of each target by clients, workload by workload.

use crate::document::{Block, Drawing};
use crate::plots::{Panel, Scale, WIDE, XAxis, stacked, time};
use crate::series::{Kind, Point, Series};
use crate::svg::Colour;
use lab_analysis::compare::ComparedWorkload;
use lab_analysis::{Comparison, MEASURES};
use stats::Interval;
use std::collections::BTreeSet;

/// What is drawn.
const TITLE: &str = "Processor time per request";
const MEASURE: &str = "cpu_us_per_attempt";

/// The drawing; `None` where fewer than two sides have the figure anywhere.
pub(super) fn figure(comparison: &Comparison) -> Option<Block> {
    let panels: Vec<Panel> = comparison.workloads.iter().filter_map(|of| panel(comparison, of)).collect();
    let levels: BTreeSet<u32> =
        comparison.workloads.iter().flat_map(|of| &of.levels).map(|level| level.clients).collect();
    let caption = format!(
        "{TITLE}, all parts of a target but the generator. Mean over the repetitions; whiskers: its interval. Hollow: a check \
         failed."
    );
    (!panels.is_empty()).then(|| {
        let svg = stacked(&XAxis::of_clients(levels), panels, WIDE);
        Block::figure(Drawing { file: "compare.svg".to_owned(), label: TITLE.to_owned(), svg }, caption)
    })
}

/// A line for each side that has the figure.
fn panel(comparison: &Comparison, workload: &ComparedWorkload) -> Option<Panel> {
    let measure = MEASURES.iter().position(|measure| measure.name == MEASURE)?;
    let line = |side: usize| {
        let points = workload.levels.iter().filter_map(|level| {
            let of = level.sides[side].as_ref()?;
            let figure = of.figures[measure].as_ref()?;
            let estimate = figure.estimate.filter(|of| of.interval != Interval::Single);
            let interval = estimate.map(|of| (of.low, of.high));
            Some(Point {
                interval,
                usable: of.row.usable(),
                ..Point::new(level.clients.into(), figure.value)
            })
        });
        let name = &comparison.sides[side].name;
        Series::new(name, Colour::Series(side), Kind::Measured, points.collect())
    };
    let mut series: Vec<Series> = (0..comparison.sides.len()).map(line).collect();
    series.retain(|series| !series.points.is_empty());
    let title = format!("{TITLE}: {}", workload.name);
    (series.len() > 1).then_some(Panel { title, scale: Scale::Linear(0.0), tick: time, series })
}
