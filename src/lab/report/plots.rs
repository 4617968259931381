//! The plots: small panels of one workload, stacked on one shared axis, the knee drawn through those over clients.
//!
//! A panel is a row of [`PLOTS`]. Series are labelled where they end, not in a legend. Colours are a few fixed values
//! that a style sheet replaces, so that the same drawing suits light and dark.

use super::html::escape;
use super::series::{
    Colour, Kind, Point, Series, goodput_course, latency, latency_course, levels, throughput, utilization,
};
use crate::lab::analysis::WorkloadFindings;
use crate::units::{micros, short};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::fmt::Write;

/// A panel.
pub struct Plot {
    /// In links and tests: `throughput`.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// The axis it shares with others.
    pub over: Over,
    /// The unit of its vertical axis.
    pub unit: &'static str,
    /// How that axis runs.
    pub scale: Scale,
    /// How a tick is written.
    pub tick: fn(f64) -> String,
    /// What is drawn.
    pub series: fn(&WorkloadFindings) -> Vec<Series>,
}

/// What panels share an axis of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Clients, by powers of two.
    Clients,
    /// Seconds of a window.
    Seconds,
}

/// How a vertical axis runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// From zero to a little above the largest value.
    Linear,
    /// From 0 to 1.
    Share,
    /// By powers of ten; values that are not positive are left out.
    Log,
}

/// The panels, from top to bottom.
pub const PLOTS: &[Plot] = &[
    Plot {
        name: "throughput",
        title: "Goodput",
        over: Over::Clients,
        unit: "req/s",
        scale: Scale::Linear,
        tick: |rps| trimmed(&short(rps)),
        series: throughput,
    },
    Plot {
        name: "latency",
        title: "Latency",
        over: Over::Clients,
        unit: "of all attempts, logarithmic",
        scale: Scale::Log,
        tick: |us| trimmed(&micros(us)),
        series: latency,
    },
    Plot {
        name: "utilization",
        title: "Utilization",
        over: Over::Clients,
        unit: "busy share, 0–1",
        scale: Scale::Share,
        tick: |share| trimmed(&format!("{share:.2}")),
        series: utilization,
    },
    Plot {
        name: "goodput by second",
        title: "Goodput, second by second",
        over: Over::Seconds,
        unit: "req/s",
        scale: Scale::Linear,
        tick: |rps| trimmed(&short(rps)),
        series: goodput_course,
    },
    Plot {
        name: "latency by second",
        title: "Mean latency, second by second",
        over: Over::Seconds,
        unit: "of all attempts",
        scale: Scale::Linear,
        tick: |us| trimmed(&micros(us)),
        series: latency_course,
    },
];

/// The colours as drawn, on light paper, on dark paper. The series are those of Okabe & Ito, Color Universal Design
/// (2008), darkened or lightened where text in them would be hard to read.
const PALETTE: &[(Colour, RGBColor, &str, &str)] = &[
    (Colour::Ink, RGBColor(0x33, 0x33, 0x33), "#1c1b19", "#e4e1d8"),
    (Colour::Soft, RGBColor(0x80, 0x80, 0x80), "#6f6c66", "#a09c92"),
    (Colour::Grid, RGBColor(0xdd, 0xdd, 0xdd), "#e4e1d6", "#33312d"),
    (Colour::Paper, RGBColor(0xff, 0xff, 0xff), "#fffff8", "#161614"),
    (Colour::Series(0), RGBColor(0x00, 0x72, 0xb2), "#0072b2", "#56b4e9"),
    (Colour::Series(1), RGBColor(0xd5, 0x5e, 0x00), "#c95700", "#ff9350"),
    (Colour::Series(2), RGBColor(0x00, 0x9e, 0x73), "#008763", "#35c79d"),
    (Colour::Series(3), RGBColor(0xcc, 0x79, 0xa7), "#b4588c", "#e6a0c8"),
    (Colour::Series(4), RGBColor(0xe6, 0x9f, 0x00), "#a37100", "#f0b73a"),
    (Colour::Series(5), RGBColor(0x56, 0xb4, 0xe9), "#3a87b5", "#a3d2f0"),
];

/// Drawn twice as large as shown: the backend knows whole units only, and a hairline is half of one.
pub(super) const ZOOM: i32 = 2;
pub(super) const WIDTH: i32 = 840;
pub(super) const LEFT: i32 = 64;
pub(super) const RIGHT: i32 = 170;
/// Above every panel, for its title.
pub(super) const HEAD: i32 = 46;
/// Within it, where the title begins.
const TITLE: i32 = 17;
const HEIGHT: i32 = 165;
/// Below the last panel, for the axis and the name of the line through all.
pub(super) const FOOT: i32 = 50;

/// The style sheet that gives a drawing its colours.
pub(super) fn style() -> String {
    let mut css = String::new();
    for (scheme, open, close) in [(0, "", ""), (1, "@media (prefers-color-scheme: dark) {", " }")] {
        let colours: Vec<String> = (PALETTE.iter().enumerate())
            .map(|(i, (_, _, light, dark))| format!("--plot-{i}: {}", if scheme == 0 { light } else { dark }))
            .collect();
        let _ = writeln!(css, "{open}:root {{ {}; }}{close}", colours.join("; "));
    }
    let light: Vec<String> =
        PALETTE.iter().enumerate().map(|(i, (_, _, light, _))| format!("--plot-{i}: {light}")).collect();
    let _ = writeln!(css, "@media print {{:root {{ {}; }} }}", light.join("; "));
    for (i, (_, RGBColor(r, g, b), _, _)) in PALETTE.iter().enumerate() {
        for attribute in ["stroke", "fill"] {
            let _ = writeln!(
                css,
                "svg [{attribute}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {attribute}: var(--plot-{i}); }}"
            );
        }
    }
    css
}

/// The panels of a workload as an SVG element without a style of its own. `None` where nothing was measured.
pub(super) fn figure(found: &WorkloadFindings) -> Option<String> {
    if found.rows.iter().all(|row| row.runs == 0) {
        return None;
    }
    let height = height(Over::Clients);
    let mut svg = String::new();
    draw(&mut svg, found, height).expect("writing into a string does not fail");
    Some(element(
        &svg,
        height,
        &format!("{}: goodput, latency and utilization by number of clients", found.name),
    ))
}

/// The panels over an axis, from top to bottom.
pub(super) fn panels(over: Over) -> impl Iterator<Item = &'static Plot> {
    PLOTS.iter().filter(move |plot| plot.over == over)
}

/// How high the figure of these panels is.
pub(super) fn height(over: Over) -> i32 {
    panels(over).count() as i32 * (HEAD + HEIGHT) + FOOT
}

/// The figure as a file that stands alone.
pub(super) fn file(figure: &str) -> String {
    alone(figure, height(Over::Clients))
}

/// What the backend drew as an element without a style of its own, and with words for those who cannot see it.
pub(super) fn element(drawn: &str, height: i32, label: &str) -> String {
    // The backend's own head says how large it drew; the page decides how large it shows.
    let body = drawn.split_once('>').map_or("", |(_, body)| body);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{body}",
        WIDTH * ZOOM,
        height * ZOOM,
        escape(label),
    )
}

/// An element of this height as a file that stands alone.
pub(super) fn alone(figure: &str, height: i32) -> String {
    let head = format!("<svg width=\"{WIDTH}\" height=\"{height}\" ");
    let svg = figure.replacen("<svg ", &head, 1);
    // On its own the drawing also decides over the sheet it lies on.
    svg.replacen('>', &format!(">\n<style>\n:root {{ color-scheme: light dark; }}\n{}</style>", style()), 1)
}

/// An axis with the ticks we choose; the library's own choice knows neither levels nor 1-2-5.
struct Axis {
    ends: (f64, f64),
    ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        low + (f64::from(high - low) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// The shared axis: its ends, and where on it a point lies.
#[derive(Clone, Copy)]
pub(super) struct Shared {
    pub(super) ends: (f64, f64),
    pub(super) place: fn(f64) -> f64,
}

impl Shared {
    /// Where in the drawing a point lies.
    pub(super) fn x(&self, at: f64) -> i32 {
        let width = f64::from((WIDTH - LEFT - RIGHT) * ZOOM);
        LEFT * ZOOM + (((self.place)(at) - self.ends.0) / (self.ends.1 - self.ends.0) * width).round() as i32
    }
}

type Panel<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;
pub(super) type Done = Result<(), Box<dyn Error>>;

fn draw(svg: &mut String, found: &WorkloadFindings, height: i32) -> Done {
    let size = ((WIDTH * ZOOM) as u32, (height * ZOOM) as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    let levels: Vec<f64> = levels(found).into_iter().map(f64::from).collect();
    let panels: Vec<Drawn> = panels(Over::Clients).map(|plot| drawn(plot, found)).collect();
    let (first, last) = (levels.first().copied().unwrap_or(1.0), levels.last().copied().unwrap_or(1.0));
    // Half an octave of air, so that a single level has a place too.
    let shared = Shared { ends: (first.log2() - 0.25, last.log2() + 0.25), place: f64::log2 };
    let x = |clients: f64| shared.x(clients);

    let within = shared.ends.0..shared.ends.1;
    let knee = found.knee.as_ref().map(|knee| knee.clients).filter(|at| within.contains(&at.log2()));
    let bottom = (height - FOOT) * ZOOM;
    if let Some(knee) = knee {
        upright(&root, &panels, x(knee), bottom)?;
    }
    for (i, drawn) in panels.iter().enumerate() {
        panel(&root, drawn, i, shared)?;
    }

    let mut free = i32::MIN;
    for level in levels {
        let (at, label) = (x(level), format!("{level}"));
        root.draw(&PathElement::new(vec![(at, bottom), (at, bottom + 4 * ZOOM)], colour(Colour::Ink)))?;
        let half = label.len() as i32 * 4 * ZOOM;
        if at - half > free {
            text(&root, &label, (at, bottom + 7 * ZOOM), 12, Colour::Ink, (HPos::Center, VPos::Top))?;
            free = at + half + 4 * ZOOM;
        }
    }
    text(&root, "clients", (0, bottom + 7 * ZOOM), 12, Colour::Ink, (HPos::Left, VPos::Top))?;
    if let Some(knee) = knee {
        let label = format!("knee {}", super::words::clients(knee));
        text(&root, &label, (x(knee), bottom + 24 * ZOOM), 12, Colour::Soft, (HPos::Center, VPos::Top))?;
    }
    root.present()?;
    Ok(())
}

/// A dashed line through all panels.
pub(super) fn upright(root: &DrawingArea<SVGBackend, Shift>, panels: &[Drawn], at: i32, bottom: i32) -> Done {
    let style = colour(Colour::Soft).stroke_width(2);
    // The line pauses where it would strike through a title.
    let behind_title = |y: i32| {
        let (panel, within) = (y / ZOOM / (HEAD + HEIGHT), y / ZOOM % (HEAD + HEIGHT));
        let title = panels.get(panel as usize).map_or(0, |panel| panel.heading.len() as i32 * 7 * ZOOM);
        at < title && (TITLE - 6..TITLE + 18).contains(&within)
    };
    let dashes = (HEAD * ZOOM..bottom).step_by(16);
    for y in dashes.filter(|y| !behind_title(*y)) {
        root.draw(&PathElement::new(vec![(at, y), (at, y + 8)], style))?;
    }
    Ok(())
}

/// A panel of a workload.
pub(super) struct Drawn {
    heading: String,
    scale: Scale,
    tick: fn(f64) -> String,
    series: Vec<Series>,
}

pub(super) fn drawn(plot: &Plot, found: &WorkloadFindings) -> Drawn {
    let series = (plot.series)(found);
    let most = |printed: bool| {
        let of = series.iter().filter(|of| of.kind != Kind::Bound && (of.kind != Kind::Measured) == printed);
        of.flat_map(|of| &of.points).map(|point| point.value).fold(0.0, f64::max)
    };
    let ratio = most(false) / most(true);
    // On a linear axis a curve ten times as low as the other is a line on the ground.
    let apart = ratio.is_finite() && ratio > 0.0 && !(0.1..=10.0).contains(&ratio);
    match plot.scale == Scale::Linear && apart {
        true => Drawn {
            heading: format!("{}, {}, logarithmic", plot.title, plot.unit),
            scale: Scale::Log,
            tick: plot.tick,
            series,
        },
        false => Drawn {
            heading: format!("{}, {}", plot.title, plot.unit),
            scale: plot.scale,
            tick: plot.tick,
            series,
        },
    }
}

/// The panel that stands at this place from the top.
pub(super) fn panel(
    root: &DrawingArea<SVGBackend, Shift>,
    drawn: &Drawn,
    place: usize,
    shared: Shared,
) -> Done {
    let top = place as i32 * (HEAD + HEIGHT) * ZOOM;
    let Drawn { heading, scale, tick, series } = drawn;
    text(root, heading, (0, top + TITLE * ZOOM), 13, Colour::Ink, (HPos::Left, VPos::Top))?;
    let area = root.clone().shrink((0, top + HEAD * ZOOM), (WIDTH * ZOOM, HEIGHT * ZOOM));
    let (least, most, ticks) = vertical(*scale, series);
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
    let lowest = top + (HEAD + HEIGHT) * ZOOM;
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
    match series.kind {
        Kind::Measured => chart.draw_series([PathElement::new(line, style.stroke_width(3))]).map(drop)?,
        Kind::Bound | Kind::Course => {
            chart.draw_series([PathElement::new(line, style.stroke_width(2))]).map(drop)?;
        }
        Kind::Printed | Kind::PrintedPeak => {
            let style = style.stroke_width(3);
            chart
                .draw_series(DashedLineSeries::new(line, 6 * ZOOM as u32, 4 * ZOOM as u32, style))
                .map(drop)?;
        }
    }
    for (x, y, point) in &placed {
        let dot = |style: ShapeStyle| Circle::new((*x, *y), 3 * ZOOM, style);
        let square = |style: ShapeStyle| {
            let half = 3 * ZOOM;
            EmptyElement::at((*x, *y)) + Rectangle::new([(-half, -half), (half, half)], style)
        };
        let (paper, edge) = (colour(Colour::Paper).filled(), style.stroke_width(2));
        if let Some((low, high)) = point.interval {
            let ends = [to_axis(low).clamp(least, most), to_axis(high).clamp(least, most)];
            let whisker = vec![(*x, ends[0]), (*x, ends[1])];
            chart.draw_series([PathElement::new(whisker, style.stroke_width(2))])?;
        }
        match (series.kind, point.usable) {
            (Kind::Measured, true) => chart.draw_series([dot(style.filled())]).map(drop)?,
            (Kind::Measured, false) => chart.draw_series([dot(paper), dot(edge)]).map(drop)?,
            (Kind::Printed, true) => chart.draw_series([square(style.filled())]).map(drop)?,
            (Kind::Printed, false) => chart.draw_series([square(paper), square(edge)]).map(drop)?,
            (Kind::PrintedPeak | Kind::Bound | Kind::Course, _) => {}
        }
    }
    Ok(placed.last().map(|(x, y, _)| chart.backend_coord(&(*x, *y))))
}

/// The ends of a vertical axis and its ticks, as coordinates of that axis.
pub(super) fn vertical(scale: Scale, series: &[Series]) -> (f64, f64, Vec<f64>) {
    // A bound may shoot far above all that was measured; the axis follows the measurements.
    let measured = series.iter().filter(|series| series.kind != Kind::Bound);
    let values: Vec<f64> = measured
        .flat_map(|series| &series.points)
        .flat_map(|point| [Some(point.value), point.interval.map(|(_, high)| high)])
        .flatten()
        .filter(|value| value.is_finite())
        .collect();
    match scale {
        // A figure above 1 is an error of a sampler; it must be seen.
        Scale::Share => {
            let most = values.iter().copied().fold(1.0, f64::max);
            (0.0, most * 1.04, vec![0.0, 0.25, 0.5, 0.75, 1.0])
        }
        Scale::Linear => {
            let most = values.iter().copied().fold(0.0, f64::max);
            let most = if most > 0.0 { most * 1.12 } else { 1.0 };
            let step = step(most);
            (0.0, most, (0..=5).map(|i| f64::from(i) * step).filter(|tick| *tick <= most).collect())
        }
        Scale::Log => {
            let positive: Vec<f64> =
                values.into_iter().filter(|value| *value > 0.0).map(f64::log10).collect();
            if positive.is_empty() {
                return (0.0, 1.0, vec![0.0, 1.0]);
            }
            let least = positive.iter().copied().fold(f64::MAX, f64::min) - 0.12;
            let most = positive.iter().copied().fold(f64::MIN, f64::max) + 0.12;
            let steps: &[f64] = if most - least < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let ticks = (least.floor() as i32..=most.ceil() as i32)
                .flat_map(|decade| steps.iter().map(move |step| f64::from(decade) + step.log10()))
                .filter(|tick| (least..=most).contains(tick))
                .collect();
            (least, most, ticks)
        }
    }
}

/// Between the ticks of an axis from zero to `most`, at most five of them: 1, 2, 2.5 or 5 times a power of ten.
pub(super) fn step(most: f64) -> f64 {
    let magnitude = 10f64.powf((most / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|of| of * magnitude);
    steps.into_iter().find(|step| most / step < 5.0).unwrap_or(most)
}

/// Moves labels apart so that none covers another, between `top` and `bottom`, in their order.
fn apart<T>(mut labels: Vec<(i32, T)>, top: i32, bottom: i32) -> Vec<(i32, T)> {
    const LINE: i32 = 15 * ZOOM;
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

/// Words at a place of the drawing, `size` in units of the page.
pub(super) fn text(
    root: &DrawingArea<SVGBackend, Shift>,
    words: &str,
    at: (i32, i32),
    size: i32,
    of: Colour,
    (h, v): (HPos, VPos),
) -> Done {
    root.draw(&Text::new(words.to_owned(), at, font(size, of).pos(Pos::new(h, v))))?;
    Ok(())
}

/// Sans-serif, `size` in units of the page.
fn font(size: i32, of: Colour) -> TextStyle<'static> {
    // The backend divides by 1.24, to get from a line's height to a letter's.
    ("sans-serif", f64::from(size * ZOOM) * 1.24).into_font().color(&colour(of))
}

/// A colour as drawn; the style sheet replaces it.
pub(super) fn colour(of: Colour) -> RGBColor {
    let series = PALETTE.iter().filter(|(colour, ..)| matches!(colour, Colour::Series(_))).count();
    let of = if let Colour::Series(i) = of { Colour::Series(i % series) } else { of };
    PALETTE.iter().find(|(colour, ..)| *colour == of).map_or(BLACK, |(_, drawn, ..)| *drawn)
}

/// A name that fits beside the panel.
pub(super) fn shortened(label: &str) -> String {
    const FITS: usize = 24;
    match label.chars().count() > FITS {
        true => label.chars().take(FITS - 1).chain(['…']).collect(),
        false => label.to_owned(),
    }
}

/// A tick without the digits that only say how exact it is: `5.00k` is `5k`.
pub(super) fn trimmed(tick: &str) -> String {
    let end = tick.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tick.len());
    let (number, unit) = tick.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => tick.to_owned(),
    }
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

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        let ticks = |scale, values: &[f64]| {
            let point = |value: &f64| Point { at: 1.0, value: *value, interval: None, usable: true };
            let points = values.iter().map(point).collect();
            let series = Series { label: String::new(), colour: Colour::Ink, kind: Kind::Measured, points };
            let (least, most, ticks) = vertical(scale, &[series]);
            assert!(ticks.iter().all(|tick| (least..=most).contains(tick)) && least < most);
            ticks
        };
        assert_eq!(ticks(Scale::Linear, &[920.0]), [0.0, 250.0, 500.0, 750.0, 1000.0]);
        assert_eq!(ticks(Scale::Linear, &[]), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(Scale::Log, &[100.0, 100_000.0]), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(Scale::Share, &[0.2]).len(), 5);
        assert!(!ticks(Scale::Log, &[0.0, f64::NAN]).is_empty());
        assert_eq!(
            (trimmed("5.00k"), trimmed("1.50 ms"), trimmed("100 µs")),
            ("5k".into(), "1.5 ms".into(), "100 µs".into())
        );
    }
}
