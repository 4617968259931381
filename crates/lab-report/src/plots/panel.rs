//! One panel: its title, its lines, dots and bands, and their names beside it.

use super::axis::{Axis, Scale};
use crate::format::shortened;
use crate::series::{Kind, Point, Series};
use crate::svg::{Anchor, Colour, Place, SERIES, Svg};
use lab_analysis::WorkloadFindings;

/// A panel of a figure.
pub struct Plot {
    /// In tests and the reference: `goodput`.
    pub name: &'static str,
    /// What it shows, and the unit.
    pub title: &'static str,
    /// The figure it is part of.
    pub figure: Figure,
    /// How its vertical axis runs.
    pub scale: Scale,
    /// How a tick is written.
    pub tick: fn(f64) -> String,
    /// What is drawn.
    pub series: fn(&WorkloadFindings) -> Vec<Series>,
}

/// A figure: panels, one below the other, that share a horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// How fast, over clients: for the beginning of the page.
    Overview,
    /// Latency and what the resources did, over clients.
    Resources,
    /// A run, over seconds.
    TimeSeries,
}

/// Above every panel, for its title.
const HEAD: f64 = 34.0;
/// How high a panel is without its title; higher where more lines have to be named.
const HEIGHT: f64 = 105.0;
/// Between two names beside a panel.
const LINE: f64 = 15.0;

/// Draws a panel below what ends at `above`, with an upright line at `mark`; gives where it ends. Nothing where nothing was read.
pub(super) fn draw(
    svg: &mut Svg,
    plot: &Plot,
    found: &WorkloadFindings,
    x: &Axis,
    mark: Option<f64>,
    above: f64,
) -> f64 {
    let mut series = (plot.series)(found);
    series.retain(|series| !series.points.is_empty());
    if series.is_empty() {
        return above;
    }
    let most = |kinds: &[Kind]| {
        let points = series.iter().filter(|of| kinds.contains(&of.kind)).flat_map(|of| &of.points);
        points.map(|point| point.value).fold(0.0, f64::max)
    };
    let ratio = most(&[Kind::Measured]) / most(&[Kind::Published, Kind::PublishedPeak]);
    // On a linear axis a curve ten times as low as the other is a line on the ground.
    let is_apart = ratio.is_finite() && ratio > 0.0 && !(0.1..=10.0).contains(&ratio);
    let (scale, how) = match plot.scale {
        Scale::Linear(_) if is_apart => (Scale::Log, ", logarithmic"),
        scale => (scale, ""),
    };
    let points = series.iter().flat_map(|of| &of.points);
    let values = points.flat_map(|of| of.interval.map_or([of.value; 2], |(low, high)| [low, high]));
    let top = above + HEAD;
    // All names must fit beside it.
    let bottom = top + HEIGHT.max(series.len() as f64 * LINE);
    let y = Axis::of(scale, values, (bottom, top));
    let (left, right) = x.places;
    if let Some(at) = mark.map(|at| x.at(at)) {
        svg.dashed(&[(at, top), (at, bottom)], Colour::Soft, 1.0, "4 4");
    }
    // Several of these are beside each other.
    let is_overview = plot.figure == Figure::Overview;
    let name = if is_overview { shortened(&found.name, 32) + ": " } else { String::new() };
    let title = format!("{name}{}{how}", plot.title);
    svg.text(&title, (0.0, top - 14.0), 13.0, Colour::Ink, Anchor::Start);
    for tick in &y.ticks {
        let at = y.at(*tick);
        svg.line(&[(left, at), (right, at)], Colour::Grid, 1.0);
        svg.text(&(plot.tick)(*tick), (left - 8.0, at), 12.0, Colour::Ink, Anchor::End);
    }
    let named = series.iter().filter_map(|of| Some((draw_series(svg, x, &y, of)?, of)));
    for (y, of) in apart(named.collect(), top, bottom) {
        let fits = ((svg.width - right - 12.0) / 6.4) as usize;
        svg.text(&shortened(&of.label, fits), (right + 10.0, y), 12.0, of.colour, Anchor::Start);
    }
    bottom
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
        Kind::Area(opacity) => {
            let lower = points.iter().rev().map(|point| place(point, low(point)));
            svg.area(&line.iter().copied().chain(lower).collect::<Vec<_>>(), colour, opacity);
            // A line of paper keeps neighbours apart where no colour is printed.
            svg.line(&line, Colour::Paper, 1.0);
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
    Some(if matches!(of.kind, Kind::Area(_)) { (y.at(low(last)) + end) / 2.0 } else { end })
}

/// Moves names apart so that none covers another, between `top` and `bottom`, in their order.
pub fn apart<T>(mut names: Vec<(f64, T)>, top: f64, bottom: f64) -> Vec<(f64, T)> {
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
