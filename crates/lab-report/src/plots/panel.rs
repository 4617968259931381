//! One panel: its title, its lines, dots and bands, and their names beside it.

use super::across::Across;
use super::axis::{Axis, Scale};
use crate::format::shortened;
use crate::series::{Fill, Kind, Point, Series};
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
    /// How high it is without its title; higher where more lines have to be named.
    pub height: f64,
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
/// Between two names beside a panel.
const LINE: f64 = 15.0;

/// A panel of a workload, with its place.
pub(super) struct Panel {
    /// What it shows, and the unit.
    pub(super) title: String,
    /// The y of its upper end, without the title.
    pub(super) top: f64,
    /// The y of its lower end.
    pub(super) bottom: f64,
    axis: Axis,
    tick: fn(f64) -> String,
    series: Vec<Series>,
}

impl Panel {
    /// The panel below what ends at `top`; `None` where nothing was read.
    pub(super) fn of(plot: &Plot, found: &WorkloadFindings, top: f64) -> Option<Panel> {
        let mut series = (plot.series)(found);
        series.retain(|series| !series.points.is_empty());
        let most = |is_of: fn(Kind) -> bool| {
            let points = series.iter().filter(|of| is_of(of.kind)).flat_map(|of| &of.points);
            points.map(|point| point.value).fold(0.0, f64::max)
        };
        let measured = most(|kind| kind == Kind::Measured);
        let ratio = measured / most(|kind| matches!(kind, Kind::Published | Kind::PublishedPeak));
        // On a linear axis a curve ten times as low as the other is a line on the ground.
        let apart = ratio.is_finite() && ratio > 0.0 && !(0.1..=10.0).contains(&ratio);
        let (scale, how) = match plot.scale {
            Scale::Linear if apart => (Scale::Log, ", logarithmic"),
            scale => (scale, ""),
        };
        let top = top + HEAD;
        (!series.is_empty()).then(|| Panel {
            title: format!("{}{how}", plot.title),
            top,
            // All names must fit beside it.
            bottom: top + plot.height.max(series.len() as f64 * LINE),
            axis: Axis::of(scale, &series),
            tick: plot.tick,
            series,
        })
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.axis.share(value) * (self.bottom - self.top)
    }

    /// Draws it.
    pub(super) fn draw(&self, svg: &mut Svg, across: &Across) {
        let (left, right) = across.sides();
        svg.text(&self.title, (0.0, self.top - 14.0), 13.0, Colour::Ink, Anchor::Start);
        let room = (self.bottom - self.top) / LINE;
        // In a low panel every other tick is enough.
        let every = if self.axis.ticks.len() as f64 > room { 2 } else { 1 };
        for tick in self.axis.ticks.iter().step_by(every) {
            let y = self.y(*tick);
            svg.line(&[(left, y), (right, y)], Colour::Grid, 1.0);
            let words = (self.tick)(*tick);
            svg.text(&words, (left - 8.0, y), 12.0, Colour::Ink, Anchor::End);
        }
        let named = self.series.iter().filter_map(|of| Some((self.draw_series(svg, across, of)?, of)));
        for (y, of) in apart(named.collect(), self.top, self.bottom) {
            let fits = ((across.right - 12.0) / 6.4) as usize;
            svg.text(&shortened(&of.label, fits), (right + 10.0, y), 12.0, of.colour, Anchor::Start);
        }
    }

    /// Draws a series; gives the y of its name.
    fn draw_series(&self, svg: &mut Svg, across: &Across, of: &Series) -> Option<f64> {
        let colour = of.colour;
        let placed: Vec<(Place, &Point)> = (of.points.iter())
            .filter(|point| self.axis.shows(point.value))
            .map(|point| ((across.x(point.at), self.y(point.value)), point))
            .collect();
        let line: Vec<Place> = placed.iter().map(|(place, _)| *place).collect();
        let ends = |point: &Point| point.interval.map(|(low, high)| (self.y(low), self.y(high)));
        match of.kind {
            // A colour that comes again is told apart by its line.
            Kind::Measured if matches!(colour, Colour::Series(i) if i >= SERIES) => {
                svg.dashed(&line, colour, 1.5, "9 3");
            }
            Kind::Measured => svg.line(&line, colour, 1.5),
            Kind::Ceiling | Kind::TimeSeries => svg.line(&line, colour, 1.0),
            Kind::Published | Kind::PublishedPeak => svg.dashed(&line, colour, 1.5, "6 4"),
            Kind::Area(fill) => {
                let of_point =
                    |(place, point): &(Place, &Point)| (place.0, ends(point).unwrap_or((place.1, place.1)));
                let bands: Vec<(f64, (f64, f64))> = placed.iter().map(of_point).collect();
                let upper: Vec<Place> = bands.iter().map(|(x, (_, high))| (*x, *high)).collect();
                let lower = bands.iter().rev().map(|(x, (low, _))| (*x, *low));
                let opacity = match fill {
                    Fill::Full => 0.85,
                    Fill::Light => 0.4,
                    Fill::Pale => 0.15,
                };
                svg.area(&upper.iter().copied().chain(lower).collect::<Vec<_>>(), colour, opacity);
                // A line of paper keeps neighbours apart where no colour is printed.
                svg.line(&upper, Colour::Paper, 1.0);
            }
            Kind::Dots => {}
        }
        for ((x, y), point) in &placed {
            if let (Kind::Measured, Some((low, high))) = (of.kind, ends(point)) {
                svg.line(&[(*x, low), (*x, high)], colour, 1.0);
            }
            match of.kind {
                Kind::Measured | Kind::Dots => svg.dot((*x, *y), 3.0, colour, !point.usable),
                Kind::Published => svg.square((*x, *y), 3.0, colour, !point.usable),
                Kind::PublishedPeak | Kind::Ceiling | Kind::TimeSeries | Kind::Area(_) => {}
            }
        }
        // A band is named at its middle, everything else at its end.
        let ((_, y), last) = placed.last()?;
        Some(match (of.kind, ends(last)) {
            (Kind::Area(_), Some((low, high))) => (low + high) / 2.0,
            _ => *y,
        })
    }
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
