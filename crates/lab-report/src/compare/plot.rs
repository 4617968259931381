//! The drawing: processor time per request of each target, workload by workload, with its interval.
//!
//! All axes begin at zero, so that lengths may be compared.

use crate::plots::{Done, Scale, WIDTH, ZOOM, alone, colour, element, shortened, text, trimmed, vertical};
use crate::series::{Colour, Kind, Point, Series};
use crate::words;
use kv::units::short;
use lab_analysis::compare::{ComparedLevel, ComparedWorkload, Merge};
use lab_analysis::{Comparison, MEASURES};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use stats::Interval;

/// What is drawn.
pub(super) const TITLE: &str = "Processor time per request";
const MEASURE: &str = "cpu_us_per_attempt";

/// Left of it stand the names, right of it the figures.
const LEFT: i32 = 170;
const RIGHT: i32 = 150;
/// Above each workload, for its title.
const HEAD: i32 = 34;
/// For each target.
const LINE: i32 = 23;
/// Below each workload, for the ticks.
const FOOT: i32 = 26;

/// A drawing.
pub(super) struct Figure {
    /// As an element of a page.
    pub(super) element: String,
    /// What stands below it.
    pub(super) caption: String,
    height: i32,
}

impl Figure {
    /// As a file that stands alone.
    pub(super) fn file(&self) -> String {
        alone(&self.element, self.height)
    }
}

/// A workload at the level that is drawn: its title, and a bar for each side that has the figure.
struct Group<'a> {
    title: String,
    bars: Vec<Bar<'a>>,
}

struct Bar<'a> {
    side: usize,
    name: &'a str,
    of: &'a Merge,
    usable: bool,
}

/// The drawing; `None` where fewer than two sides have the figure anywhere.
pub(super) fn figure(comparison: &Comparison) -> Option<Figure> {
    let groups: Vec<Group> =
        comparison.workloads.iter().filter_map(|workload| group(comparison, workload)).collect();
    if groups.is_empty() {
        return None;
    }
    let height: i32 = groups.iter().map(|of| HEAD + FOOT + LINE * of.bars.len() as i32).sum();
    let mut svg = String::new();
    draw(&mut svg, &groups, height).expect("writing into a string does not fail");
    let hollow = groups.iter().flat_map(|of| &of.bars).any(|bar| !bar.usable);
    Some(Figure {
        element: element(&svg, height, TITLE),
        caption: format!(
            "{TITLE}, all parts of a target but the generator, at the highest level the targets have in common. Mean over \
             the runs; whiskers: the interval over them.{}",
            if hollow { " Hollow: a gate failed." } else { "" }
        ),
        height,
    })
}

fn group<'a>(comparison: &'a Comparison, workload: &'a ComparedWorkload) -> Option<Group<'a>> {
    let measure = MEASURES.iter().position(|measure| measure.name == MEASURE)?;
    let bars = |level: &'a ComparedLevel| -> Vec<Bar<'a>> {
        let of = |(side, of): (usize, &'a Option<_>)| {
            let of: &lab_analysis::compare::SideOfLevel = of.as_ref()?;
            Some(Bar {
                side,
                name: &comparison.sides[side].name,
                of: of.figures[measure].as_ref()?,
                usable: of.excluded.is_none(),
            })
        };
        level.sides.iter().enumerate().filter_map(of).collect()
    };
    // Of the levels that most sides have the last one; `max_by_key` gives the last of several.
    let level = workload.levels.iter().max_by_key(|level| bars(level).len())?;
    let bars = bars(level);
    let title = format!("{}, {}, µs", workload.name, words::count(level.clients, "client"));
    (bars.len() > 1).then_some(Group { title, bars })
}

fn draw(svg: &mut String, groups: &[Group], height: i32) -> Done {
    let root =
        SVGBackend::with_string(svg, ((WIDTH * ZOOM) as u32, (height * ZOOM) as u32)).into_drawing_area();
    let mut top = 0;
    for of in groups {
        draw_group(&root, of, top)?;
        top += HEAD + FOOT + LINE * of.bars.len() as i32;
    }
    root.present()?;
    Ok(())
}

fn draw_group(root: &DrawingArea<SVGBackend, Shift>, of: &Group, top: i32) -> Done {
    let point =
        |bar: &Bar| Point { at: 1.0, value: bar.of.value, interval: interval(bar.of), usable: bar.usable };
    let points = of.bars.iter().map(point).collect();
    let series = Series { label: String::new(), colour: Colour::Ink, kind: Kind::Measured, points };
    let (_, most, ticks) = vertical(Scale::Linear, &[series]);
    let x = |value: f64| {
        let width = f64::from((WIDTH - LEFT - RIGHT) * ZOOM);
        LEFT * ZOOM + (value.clamp(0.0, most) / most * width).round() as i32
    };
    let (first, last) = ((top + HEAD) * ZOOM, (top + HEAD + LINE * of.bars.len() as i32) * ZOOM);
    text(root, &of.title, (0, (top + 8) * ZOOM), 13, Colour::Ink, (HPos::Left, VPos::Top))?;
    for tick in ticks {
        let line = vec![(x(tick), first), (x(tick), last)];
        root.draw(&PathElement::new(line, colour(Colour::Grid).stroke_width(2)))?;
        let place = (x(tick), last + 4 * ZOOM);
        text(root, &trimmed(&short(tick)), place, 12, Colour::Ink, (HPos::Center, VPos::Top))?;
    }
    for (i, bar) in of.bars.iter().enumerate() {
        let y = first + (LINE * i as i32 + LINE / 2) * ZOOM;
        let (colour_of, at) = (Colour::Series(bar.side), x(bar.of.value));
        let style = colour(colour_of);
        text(
            root,
            &shortened(bar.name),
            ((LEFT - 10) * ZOOM, y),
            12,
            Colour::Ink,
            (HPos::Right, VPos::Center),
        )?;
        root.draw(&PathElement::new(vec![(x(0.0), y), (at, y)], style.stroke_width(3)))?;
        if let Some((low, high)) = interval(bar.of) {
            for end in [low, high] {
                let cap = vec![(x(end), y - 4 * ZOOM), (x(end), y + 4 * ZOOM)];
                root.draw(&PathElement::new(cap, style.stroke_width(2)))?;
            }
            root.draw(&PathElement::new(vec![(x(low), y), (x(high), y)], style.stroke_width(2)))?;
        }
        match bar.usable {
            true => root.draw(&Circle::new((at, y), 4 * ZOOM, style.filled()))?,
            false => {
                root.draw(&Circle::new((at, y), 4 * ZOOM, colour(Colour::Paper).filled()))?;
                root.draw(&Circle::new((at, y), 4 * ZOOM, style.stroke_width(2)))?;
            }
        }
        let figure = bar.of.estimate.as_ref().map_or_else(String::new, words::spread);
        let place = ((WIDTH - RIGHT + 12) * ZOOM, y);
        text(root, &figure, place, 12, colour_of, (HPos::Left, VPos::Center))?;
    }
    Ok(())
}

/// Both ends, where more than one run knows them.
fn interval(of: &Merge) -> Option<(f64, f64)> {
    let estimate = of.estimate.as_ref().filter(|of| of.interval != Interval::Single)?;
    Some((estimate.low, estimate.high))
}
