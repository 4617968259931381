//! The drawing: processor time per request of each target by clients, workload by workload.

use crate::document::{Block, Drawing};
use crate::plots::{Panel, Scale, WIDE, XAxis, stacked, time};
use crate::series::{Kind, Point, Series};
use crate::svg::Colour;
use lab_analysis::compare::{ComparedWorkload, Side};
use lab_analysis::{Comparison, MEASURES};
use std::collections::BTreeSet;

/// What is drawn.
const TITLE: &str = "Processor time per request";
const MEASURE: &str = "cpu_us_per_attempt";

const CAPTION: &str = "Processor time per request, all parts of a target but the generator. Mean over the repetitions; whiskers: its \
    95 % interval, of two repetitions their range. Hollow: too many errors, or over capacity.";

/// The drawing; `None` where no side has the figure.
pub(super) fn figure(comparison: &Comparison) -> Option<Block> {
    let panels: Vec<Panel> = comparison.workloads.iter().filter_map(|of| panel(comparison, of)).collect();
    let levels = comparison.workloads.iter().flat_map(|of| &of.levels).map(|level| level.clients);
    let x = XAxis::of_clients(levels.collect::<BTreeSet<u32>>());
    panels.iter().any(|panel| panel.series.iter().any(|of| !of.points.is_empty())).then(|| {
        let svg = stacked(&x, panels, WIDE);
        Block::figure(Drawing { file: "compare.svg".to_owned(), label: TITLE.to_owned(), svg }, CAPTION)
    })
}

/// A line for each side.
fn panel(comparison: &Comparison, workload: &ComparedWorkload) -> Option<Panel> {
    let measure = MEASURES.iter().position(|measure| measure.name == MEASURE)?;
    let line = |(side, of): (usize, &Side)| {
        let points = workload.levels.iter().filter_map(|level| {
            let at = level.sides[side].as_ref()?;
            Some(Point::over_runs(&at.row, at.figures[measure].as_ref()?.estimate.as_ref()?))
        });
        Series::new(&of.name, Colour::Series(side), Kind::Measured, points.collect())
    };
    let series = comparison.sides.iter().enumerate().map(line).collect();
    Some(Panel {
        title: format!("{TITLE}: {}", workload.name),
        scale: Scale::Linear(0.0),
        tick: time,
        series,
    })
}
