//! One panel: its title, its lines, dots and bands, and their names beside it.

use super::Plot;
use super::Scale;
use super::axis::{Axis, Shared, vertical};
use super::ink::{Done, HEAD, LEFT, RIGHT, SERIES, TITLE, WIDTH, ZOOM, colour, font, shortened, text};
use crate::series::{Colour, Fill, Kind, Point, Series};
use lab_analysis::WorkloadFindings;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::error::Error;

type Panel<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Between two names beside a panel.
const LINE: i32 = 15;

/// A panel of a workload, with its place.
pub(crate) struct Drawn {
    /// Where it begins, its head included, in units of the page.
    top: i32,
    /// How high it is without its head.
    height: i32,
    heading: String,
    scale: Scale,
    tick: fn(f64) -> String,
    series: Vec<Series>,
}

impl Drawn {
    /// Where it ends.
    pub(crate) fn bottom(&self) -> i32 {
        self.top + HEAD + self.height
    }

    /// Whether words stand in its head at this place of the drawing.
    pub(crate) fn is_titled(&self, (x, y): (i32, i32)) -> bool {
        let title = self.heading.chars().count() as i32 * 7 * ZOOM;
        x < title && ((self.top + TITLE - 6) * ZOOM..(self.top + TITLE + 18) * ZOOM).contains(&y)
    }
}

/// A panel below what ends at `top`; `None` where nothing was read.
pub(super) fn drawn(plot: &Plot, found: &WorkloadFindings, top: i32) -> Option<Drawn> {
    let mut series = (plot.series)(found);
    series.retain(|series| !series.points.is_empty());
    if series.is_empty() {
        return None;
    }
    let most = |kind: fn(Kind) -> bool| {
        let of = series.iter().filter(|of| kind(of.kind)).flat_map(|of| &of.points);
        of.map(|point| point.value).fold(0.0, f64::max)
    };
    let ratio =
        most(|of| matches!(of, Kind::Measured)) / most(|of| matches!(of, Kind::Printed | Kind::PrintedPeak));
    // On a linear axis a curve ten times as low as the other is a line on the ground.
    let apart = ratio.is_finite() && ratio > 0.0 && !(0.1..=10.0).contains(&ratio);
    let (scale, how) = match plot.scale == Scale::Linear && apart {
        true => (Scale::Log, ", logarithmic"),
        false => (plot.scale, ""),
    };
    Some(Drawn {
        top,
        // As many names as there are must fit beside it.
        height: plot.height.max(series.len() as i32 * LINE),
        heading: format!("{}, {}{how}", plot.title, plot.unit),
        scale,
        tick: plot.tick,
        series,
    })
}

/// Draws a panel.
pub(crate) fn panel(root: &DrawingArea<SVGBackend, Shift>, drawn: &Drawn, shared: Shared) -> Done {
    let Drawn { top, height, heading, scale, tick, series } = drawn;
    let top = top * ZOOM;
    text(root, heading, (0, top + TITLE * ZOOM), 13, Colour::Ink, (HPos::Left, VPos::Top))?;
    let area = root.clone().shrink((0, top + HEAD * ZOOM), (WIDTH * ZOOM, height * ZOOM));
    let (least, most, mut ticks) = vertical(*scale, series);
    // In a low panel every other tick is enough, of those that lie evenly from a first one.
    while *scale != Scale::Log
        && ticks.len() > 3
        && ticks.len() % 2 == 1
        && height / (ticks.len() as i32 - 1) <= LINE
    {
        ticks = ticks.into_iter().step_by(2).collect();
    }
    let mut chart = ChartBuilder::on(&area)
        .margin_right(RIGHT * ZOOM)
        .set_label_area_size(LabelAreaPosition::Left, LEFT * ZOOM)
        .build_cartesian_2d(
            Axis { ends: shared.ends, ticks: Vec::new() },
            Axis { ends: (least, most), ticks: ticks.clone() },
        )?;
    let from_axis = |y: f64| if *scale == Scale::Log { 10f64.powf(y) } else { y };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .max_light_lines(0)
        .light_line_style(TRANSPARENT)
        .bold_line_style(colour(Colour::Grid).stroke_width(2))
        .axis_style(TRANSPARENT)
        .y_labels(ticks.len().max(1))
        .y_label_style(font(12, Colour::Ink))
        .y_label_formatter(&|y| tick(from_axis(*y)))
        .draw()?;

    let mut labels = Vec::new();
    for line in series {
        let Some((x, y)) = draw_series(&mut chart, shared, *scale, line, (least, most))? else { continue };
        // A bound that leaves the panel at the top is named where it leaves; all others end at the right.
        if line.kind == Kind::Bound && x < (WIDTH - RIGHT - 80) * ZOOM {
            text(root, &line.label, (x + 6 * ZOOM, y), 12, line.colour, (HPos::Left, VPos::Center))?;
        } else {
            labels.push((y, line));
        }
    }
    let lowest = top + (HEAD + height) * ZOOM;
    for (y, line) in apart(labels, top + HEAD * ZOOM, lowest) {
        let at = ((WIDTH - RIGHT + 12) * ZOOM, y);
        text(root, &shortened(&line.label), at, 12, line.colour, (HPos::Left, VPos::Center))?;
    }
    Ok(())
}

/// Draws a line with its points and whiskers; gives the place of its last point in units of the drawing.
fn draw_series(
    chart: &mut Panel,
    shared: Shared,
    scale: Scale,
    series: &Series,
    (least, most): (f64, f64),
) -> Result<Option<(i32, i32)>, Box<dyn Error>> {
    let to_axis = |value: f64| if scale == Scale::Log { value.log10() } else { value };
    let placed: Vec<(f64, f64, &Point)> = (series.points.iter())
        .map(|point| ((shared.place)(point.at), to_axis(point.value), point))
        .filter(|(x, y, _)| x.is_finite() && y.is_finite() && (least..=most).contains(y))
        .collect();
    let style = colour(series.colour);
    let line: Vec<(f64, f64)> = placed.iter().map(|(x, y, _)| (*x, *y)).collect();
    let dashed = |chart: &mut Panel, width: u32, on: i32, off: i32| {
        let style = style.stroke_width(width);
        let line = DashedLineSeries::new(line.clone(), (on * ZOOM) as u32, (off * ZOOM) as u32, style);
        chart.draw_series(line).map(drop)
    };
    match series.kind {
        // A colour that comes round again is told apart by its line.
        Kind::Measured if matches!(series.colour, Colour::Series(i) if i >= SERIES) => {
            dashed(chart, 3, 9, 3)?;
        }
        Kind::Measured => chart.draw_series([PathElement::new(line, style.stroke_width(3))]).map(drop)?,
        Kind::Bound | Kind::Course => {
            chart.draw_series([PathElement::new(line, style.stroke_width(2))]).map(drop)?;
        }
        Kind::Printed | Kind::PrintedPeak => dashed(chart, 3, 6, 4)?,
        Kind::Area(fill) => area(chart, &placed, fill, style)?,
        Kind::Dots => {}
    }
    for (x, y, point) in &placed {
        let dot = |style: ShapeStyle| Circle::new((*x, *y), 3 * ZOOM, style);
        let square = |style: ShapeStyle| {
            let half = 3 * ZOOM;
            EmptyElement::at((*x, *y)) + Rectangle::new([(-half, -half), (half, half)], style)
        };
        let (paper, edge) = (colour(Colour::Paper).filled(), style.stroke_width(2));
        if let (Some((low, high)), false) = (point.interval, matches!(series.kind, Kind::Area(_))) {
            let ends = [to_axis(low).clamp(least, most), to_axis(high).clamp(least, most)];
            let whisker = vec![(*x, ends[0]), (*x, ends[1])];
            chart.draw_series([PathElement::new(whisker, style.stroke_width(2))])?;
        }
        match (series.kind, point.usable) {
            (Kind::Measured | Kind::Dots, true) => chart.draw_series([dot(style.filled())]).map(drop)?,
            (Kind::Measured | Kind::Dots, false) => chart.draw_series([dot(paper), dot(edge)]).map(drop)?,
            (Kind::Printed, true) => chart.draw_series([square(style.filled())]).map(drop)?,
            (Kind::Printed, false) => chart.draw_series([square(paper), square(edge)]).map(drop)?,
            (Kind::PrintedPeak | Kind::Bound | Kind::Course | Kind::Area(_), _) => {}
        }
    }
    // A band is named at its middle, everything else at its end.
    let end = |(x, y, point): &(f64, f64, &Point)| match (series.kind, point.interval) {
        (Kind::Area(_), Some((low, high))) => (*x, (to_axis(low) + to_axis(high)) / 2.0),
        _ => (*x, *y),
    };
    Ok(placed.last().map(|last| chart.backend_coord(&end(last))))
}

/// Fills what lies between the ends of the points' intervals, on an axis that is not logarithmic.
fn area(
    chart: &mut Panel,
    placed: &[(f64, f64, &Point)],
    fill: Fill,
    style: RGBColor,
) -> Result<(), Box<dyn Error>> {
    let ends = |(x, y, point): &(f64, f64, &Point)| {
        let (low, high) = point.interval.unwrap_or((*y, *y));
        (*x, low, high)
    };
    let ends: Vec<(f64, f64, f64)> = placed.iter().map(ends).collect();
    let upper = ends.iter().map(|(x, _, high)| (*x, *high));
    let lower = ends.iter().rev().map(|(x, low, _)| (*x, *low));
    let outline: Vec<(f64, f64)> = upper.clone().chain(lower).collect();
    let alpha = match fill {
        Fill::Full => 0.85,
        Fill::Light => 0.4,
        Fill::Pale => 0.15,
        Fill::Hatched => 0.0,
    };
    chart.draw_series([Polygon::new(outline, style.mix(alpha).filled())])?;
    if fill == Fill::Hatched {
        for pair in ends.windows(2) {
            let [(from, low_from, high_from), (to, low_to, high_to)] = [pair[0], pair[1]];
            const STROKES: i32 = 12;
            for i in 0..=STROKES {
                let share = f64::from(i) / f64::from(STROKES);
                let at = |a: f64, b: f64| a + (b - a) * share;
                let (x, low, high) = (at(from, to), at(low_from, low_to), at(high_from, high_to));
                chart.draw_series([PathElement::new(vec![(x, low), (x, high)], style.stroke_width(2))])?;
            }
        }
    }
    // A line of paper keeps neighbours apart where no colour is printed.
    chart
        .draw_series([PathElement::new(upper.collect::<Vec<_>>(), colour(Colour::Paper).stroke_width(3))])?;
    Ok(())
}

/// Moves names apart so that none covers another, between `top` and `bottom`, in their order; all in units of a drawing,
/// two to a unit of the page.
pub fn apart<T>(mut labels: Vec<(i32, T)>, top: i32, bottom: i32) -> Vec<(i32, T)> {
    const LINE: i32 = self::LINE * ZOOM;
    labels.sort_by_key(|(y, _)| *y);
    let mut free = top;
    for (y, _) in &mut labels {
        *y = (*y).max(free);
        free = *y + LINE;
    }
    let mut free = bottom;
    for (y, _) in labels.iter_mut().rev() {
        *y = (*y).min(free);
        free = *y - LINE;
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_keep_their_order_and_their_distance() {
        let ys = |labels: &[i32]| -> Vec<i32> {
            apart(labels.iter().map(|y| (*y, ())).collect(), 0, 200).into_iter().map(|(y, ())| y).collect()
        };
        assert_eq!(ys(&[100, 10]), [10, 100]);
        assert_eq!(ys(&[50, 50, 55]), [50, 80, 110]);
        assert_eq!(ys(&[195, 199]), [170, 200]);
    }
}
