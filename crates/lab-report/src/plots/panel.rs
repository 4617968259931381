//! Panels, one below the other, on a shared axis: titles, lines, dots and bands, and their names beside them.
//!
//! Series are named where they end, not in a legend.

use super::axis::{Axis, Scale};
use crate::format::shortened;
use crate::series::{Kind, Point, Series};
use crate::svg::{Anchor, Colour, Place, SERIES, Svg};

/// A panel.
pub struct Panel {
    /// What it shows, and the unit.
    pub title: String,
    /// How its vertical axis runs.
    pub scale: Scale,
    /// How a tick is written.
    pub tick: fn(f64) -> String,
    /// What is drawn.
    pub series: Vec<Series>,
}

/// The axis that panels share.
pub struct XAxis {
    /// What grows from left to right.
    pub unit: &'static str,
    /// How it runs.
    pub scale: Scale,
    /// The values with a tick, and what is written there; empty if the axis chooses them.
    pub ticks: Vec<(f64, String)>,
    /// A value with a vertical line through all panels, and the name of the line.
    pub mark: Option<(f64, String)>,
}

impl XAxis {
    /// Numbers of clients.
    pub(crate) fn of_clients(levels: impl IntoIterator<Item = u32>) -> XAxis {
        let ticks = levels.into_iter().map(|level| (level.into(), level.to_string())).collect();
        XAxis { unit: "clients", scale: Scale::Log, ticks, mark: None }
    }
}

/// So wide is a figure alone: the whole, and where its lines end.
pub const WIDE: (f64, f64) = (840.0, 670.0);
/// Left of the panels, for their ticks.
const LEFT: f64 = 60.0;
/// Above every panel, for its title.
const HEAD: f64 = 38.0;
/// How high a panel is without its title; higher where more lines have to be named.
const HEIGHT: f64 = 105.0;
/// Below the last panel: the ticks, their name and that of the vertical line.
const FOOT: f64 = 46.0;
/// How solid a band is.
const BAND: f64 = 0.4;
/// Between two names beside a panel.
const LINE: f64 = 15.0;

/// The panels in which there is something, one below the other.
pub fn stacked(shared: &XAxis, panels: Vec<Panel>, (width, right): (f64, f64)) -> Svg {
    let ends: Vec<f64> = shared.ticks.iter().map(|(at, _)| *at).collect();
    let mut x = Axis::of(shared.scale, ends.into_iter(), (LEFT, right), |tick| tick.to_string());
    if !shared.ticks.is_empty() {
        x.ticks.clone_from(&shared.ticks);
    }
    let mark = shared.mark.as_ref().filter(|(at, _)| x.shows(*at)).map(|(at, name)| (x.at(*at), name));
    let mut svg = Svg::new(width, 0.0);
    for mut panel in panels {
        panel.series.retain(|series| !series.points.is_empty());
        if !panel.series.is_empty() {
            draw(&mut svg, &panel, &x, mark.map(|(at, _)| at));
        }
    }
    let bottom = svg.height;
    svg.height += FOOT;
    if let Some((at, name)) = mark {
        svg.text(name, (at, bottom + 32.0), 12.0, Colour::Soft, Anchor::Middle);
    }
    let mut free = f64::MIN;
    for (tick, words) in &x.ticks {
        let at = x.at(*tick);
        svg.line(&[(at, bottom), (at, bottom + 4.0)], Colour::Ink, 1.0);
        let half = words.len() as f64 * 4.0;
        // One without room for its words keeps its line.
        if at - half > free {
            svg.text(words, (at, bottom + 14.0), 12.0, Colour::Ink, Anchor::Middle);
            free = at + half + 4.0;
        }
    }
    svg.text(shared.unit, (0.0, bottom + 14.0), 12.0, Colour::Ink, Anchor::Start);
    svg
}

/// Draws a panel below all that is drawn, with a vertical line at `mark`.
fn draw(svg: &mut Svg, panel: &Panel, x: &Axis, mark: Option<f64>) {
    let series = &panel.series;
    let most = |kinds: &[Kind]| {
        let points = series.iter().filter(|of| kinds.contains(&of.kind)).flat_map(|of| &of.points);
        points.map(|point| point.value).fold(0.0, f64::max)
    };
    let ratio = most(&[Kind::Measured]) / most(&[Kind::Published, Kind::PublishedPeak]);
    // On a linear axis a curve ten times as low as the other is a line on the ground.
    let is_apart = ratio.is_finite() && ratio > 0.0 && !(0.1..=10.0).contains(&ratio);
    let (scale, how) = match panel.scale {
        Scale::Linear(_) if is_apart => (Scale::Log, ", logarithmic"),
        scale => (scale, ""),
    };
    let points = series.iter().flat_map(|of| &of.points);
    let values = points.flat_map(|of| of.interval.map_or([of.value; 2], |(low, high)| [low, high]));
    let top = svg.height + HEAD;
    // All names must fit beside it.
    let bottom = top + HEIGHT.max(series.len() as f64 * LINE);
    svg.height = bottom;
    let y = Axis::of(scale, values, (bottom, top), panel.tick);
    let (left, right) = x.places;
    if let Some(at) = mark {
        svg.dashed(&[(at, top), (at, bottom)], Colour::Soft, 1.0, "4 4");
    }
    let title = format!("{}{how}", panel.title);
    svg.text(&title, (0.0, top - 18.0), 13.0, Colour::Ink, Anchor::Start);
    for (tick, words) in &y.ticks {
        let at = y.at(*tick);
        svg.line(&[(left, at), (right, at)], Colour::Grid, 1.0);
        svg.text(words, (left - 8.0, at), 12.0, Colour::Ink, Anchor::End);
    }
    let ends = series.iter().filter_map(|of| draw_series(svg, x, &y, of).map(|end| (end, (end, of))));
    for (y, (end, of)) in apart(ends.collect(), top, bottom) {
        // Leads from the line to its name, which may be above or below it.
        svg.line(&[(right, end), (right + 8.0, y)], of.colour, 1.0);
        let fits = ((svg.width - right - 12.0) / 6.4) as usize;
        svg.text(&shortened(&of.label, fits), (right + 10.0, y), 12.0, of.colour, Anchor::Start);
    }
}

/// Draws a series; gives the y of its name.
fn draw_series(svg: &mut Svg, x: &Axis, y: &Axis, of: &Series) -> Option<f64> {
    let colour = of.colour;
    let points: Vec<&Point> = of.points.iter().filter(|point| y.shows(point.value)).collect();
    let place = |point: &Point, value| (x.at(point.at), y.at(value));
    let line: Vec<Place> = points.iter().map(|point| place(point, point.value)).collect();
    let low = |point: &Point| point.interval.map_or(point.value, |(low, _)| low);
    match of.kind {
        // A colour that comes again is told apart by its line.
        Kind::Measured if matches!(colour, Colour::Series(i) if i >= SERIES) => {
            svg.dashed(&line, colour, 1.5, "9 3");
        }
        Kind::Measured => svg.line(&line, colour, 1.5),
        Kind::Thin => svg.line(&line, colour, 1.0),
        Kind::Published | Kind::PublishedPeak => svg.dashed(&line, colour, 1.5, "6 4"),
        Kind::Band => {
            let lower = points.iter().rev().map(|point| place(point, low(point)));
            svg.area(&line.iter().copied().chain(lower).collect::<Vec<_>>(), colour, BAND);
        }
    }
    for point in &points {
        if let (Kind::Measured, Some((low, high))) = (of.kind, point.interval) {
            svg.line(&[place(point, low), place(point, high)], colour, 1.0);
        }
        if matches!(of.kind, Kind::Measured | Kind::Published) {
            svg.dot(place(point, point.value), 3.0, colour, !point.usable);
        }
    }
    // A band is named at its middle, everything else at its end.
    let last = points.last()?;
    let end = y.at(last.value);
    Some(if of.kind == Kind::Band { (y.at(low(last)) + end) / 2.0 } else { end })
}

/// Moves names apart so that none covers another, between `top` and `bottom`, in their order.
fn apart<T>(mut names: Vec<(f64, T)>, top: f64, bottom: f64) -> Vec<(f64, T)> {
    names.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut free = top;
    for (y, _) in &mut names {
        *y = y.max(free);
        free = *y + LINE;
    }
    let mut free = bottom;
    for (y, _) in names.iter_mut().rev() {
        *y = y.min(free);
        free = *y - LINE;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_order_and_their_distance() {
        let ys = |names: &[f64]| -> Vec<f64> {
            apart(names.iter().map(|y| (*y, ())).collect(), 0.0, 100.0).into_iter().map(|(y, ())| y).collect()
        };
        assert_eq!(ys(&[50.0, 5.0]), [5.0, 50.0]);
        assert_eq!(ys(&[25.0, 25.0, 27.5]), [25.0, 40.0, 55.0]);
        assert_eq!(ys(&[97.5, 99.5]), [85.0, 100.0]);
    }
}
