//! The drawing: processor time per request of each target, workload by workload, with its interval.
//!
//! All axes begin at zero, so that lengths may be compared.

use crate::document::{Block, Drawing};
use crate::format::{self, shortened, trimmed};
use crate::plots::{Axis, Scale};
use crate::svg::{Anchor, Colour, Svg};
use kv::units::short;
use lab_analysis::compare::{ComparedLevel, ComparedWorkload, Figure, SideOfLevel};
use lab_analysis::{Comparison, MEASURES};
use stats::Interval;

/// What is drawn.
const TITLE: &str = "Processor time per request";
const MEASURE: &str = "cpu_us_per_attempt";

const WIDTH: f64 = 840.0;
/// Left of it stand the names, right of it the figures.
const LEFT: f64 = 170.0;
const RIGHT: f64 = WIDTH - 150.0;
/// Above each workload, for its title.
const HEAD: f64 = 34.0;
/// For each target.
const LINE: f64 = 23.0;
/// Below each workload, for the ticks.
const FOOT: f64 = 26.0;

/// A workload at the level that is drawn: its title, and a bar for each side that has the figure.
struct Group<'a> {
    title: String,
    bars: Vec<Bar<'a>>,
}

struct Bar<'a> {
    side: usize,
    name: &'a str,
    of: &'a Figure,
    usable: bool,
}

/// The drawing; `None` where fewer than two sides have the figure anywhere.
pub(super) fn figure(comparison: &Comparison) -> Option<Block> {
    let groups: Vec<Group> =
        comparison.workloads.iter().filter_map(|workload| group(comparison, workload)).collect();
    if groups.is_empty() {
        return None;
    }
    let height = |of: &Group| HEAD + FOOT + LINE * of.bars.len() as f64;
    let mut svg = Svg::new(WIDTH, groups.iter().map(height).sum());
    let mut top = 0.0;
    for of in &groups {
        draw(&mut svg, of, top);
        top += height(of);
    }
    let hollow = groups.iter().flat_map(|of| &of.bars).any(|bar| !bar.usable);
    let caption = format!(
        "{TITLE}, all parts of a target but the generator, at the highest level the targets have in common. Mean over \
         the runs; whiskers: the interval over them.{}",
        if hollow { " Hollow: a check failed." } else { "" }
    );
    Some(Block::Figure {
        drawing: Drawing { file: "compare.svg".to_owned(), label: TITLE.to_owned(), svg },
        caption,
    })
}

fn group<'a>(comparison: &'a Comparison, workload: &'a ComparedWorkload) -> Option<Group<'a>> {
    let measure = MEASURES.iter().position(|measure| measure.name == MEASURE)?;
    let bars = |level: &'a ComparedLevel| -> Vec<Bar<'a>> {
        let of = |(side, of): (usize, &'a Option<SideOfLevel>)| {
            let of = of.as_ref()?;
            Some(Bar {
                side,
                name: &comparison.sides[side].name,
                of: of.figures[measure].as_ref()?,
                usable: of.row.excluded.is_none(),
            })
        };
        level.sides.iter().enumerate().filter_map(of).collect()
    };
    // Of the levels that most sides have the last one; `max_by_key` gives the last of several.
    let level = workload.levels.iter().max_by_key(|level| bars(level).len())?;
    let bars = bars(level);
    let title = format!("{}, {}, µs", workload.name, format::count(level.clients, "client"));
    (bars.len() > 1).then_some(Group { title, bars })
}

fn draw(svg: &mut Svg, of: &Group, top: f64) {
    let ends = |bar: &Bar| [bar.of.value, interval(bar.of).map_or(0.0, |(_, high)| high)];
    let axis = Axis::of_values(Scale::Linear, &of.bars.iter().flat_map(ends).collect::<Vec<_>>());
    let x = |value: f64| LEFT + axis.share(value) * (RIGHT - LEFT);
    let (first, last) = (top + HEAD, top + HEAD + LINE * of.bars.len() as f64);
    svg.text(&of.title, (0.0, top + 14.0), 13.0, Colour::Ink, Anchor::Start);
    for tick in &axis.ticks {
        svg.line(&[(x(*tick), first), (x(*tick), last)], Colour::Grid, 1.0);
        svg.text(&trimmed(&short(*tick)), (x(*tick), last + 10.0), 12.0, Colour::Ink, Anchor::Middle);
    }
    for (i, bar) in of.bars.iter().enumerate() {
        let y = first + LINE * (i as f64 + 0.5);
        let (colour, at) = (Colour::Series(bar.side), x(bar.of.value));
        svg.text(&shortened(bar.name, 24), (LEFT - 10.0, y), 12.0, Colour::Ink, Anchor::End);
        svg.line(&[(x(0.0), y), (at, y)], colour, 1.5);
        if let Some((low, high)) = interval(bar.of) {
            for end in [low, high] {
                svg.line(&[(x(end), y - 4.0), (x(end), y + 4.0)], colour, 1.0);
            }
            svg.line(&[(x(low), y), (x(high), y)], colour, 1.0);
        }
        svg.dot((at, y), 4.0, colour, !bar.usable);
        let figure = bar.of.estimate.as_ref().map_or_else(String::new, format::spread);
        svg.text(&figure, (RIGHT + 12.0, y), 12.0, colour, Anchor::Start);
    }
}

/// Both ends, where more than one run knows them.
fn interval(of: &Figure) -> Option<(f64, f64)> {
    let estimate = of.estimate.as_ref().filter(|of| of.interval != Interval::Single)?;
    Some((estimate.low, estimate.high))
}
