//! Pictures of one family with the plots of the reports: panels stacked on one axis, series named where they end,
//! colours that follow light and dark.

use lab_report::{Anchor, Colour, Svg, apart};

/// Panels over one axis.
pub(crate) struct Picture {
    /// Of its file.
    pub(crate) name: &'static str,
    /// For those who do not see it.
    pub(crate) about: &'static str,
    /// What grows from left to right.
    pub(crate) axis: &'static str,
    /// Where along the axis, and what is written there.
    pub(crate) levels: Vec<(f64, String)>,
    pub(crate) panels: Vec<Panel>,
}

/// One of them.
pub(crate) struct Panel {
    pub(crate) heading: String,
    pub(crate) is_log: bool,
    /// How a value is written beside its axis.
    pub(crate) tick: fn(f64) -> String,
    pub(crate) lines: Vec<Line>,
}

/// A series.
pub(crate) struct Line {
    pub(crate) label: &'static str,
    pub(crate) points: Vec<Point>,
}

/// A figure; hollow where a check failed.
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) is_valid: bool,
}

const WIDTH: f64 = 840.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = WIDTH - 170.0;
/// Above each panel, for its heading.
const HEAD: f64 = 46.0;
const HEIGHT: f64 = 150.0;
const FOOT: f64 = 34.0;

/// A file that stands alone.
pub(crate) fn svg(picture: &Picture) -> String {
    let bottom = picture.panels.len() as f64 * (HEAD + HEIGHT);
    let mut svg = Svg::new(WIDTH, bottom + FOOT);
    let ends = |fold: fn(f64, f64) -> f64, from| picture.levels.iter().map(|(at, _)| *at).fold(from, fold);
    let (first, last) = (ends(f64::min, f64::MAX), ends(f64::max, f64::MIN));
    let air = ((last - first) * 0.04).max(0.1);
    let x = |at: f64| LEFT + (at - first + air) / (last - first + 2.0 * air) * (RIGHT - LEFT);
    for (index, panel) in picture.panels.iter().enumerate() {
        draw_panel(&mut svg, panel, index as f64 * (HEAD + HEIGHT), &x);
    }
    for (at, label) in &picture.levels {
        let at = x(*at);
        svg.line(&[(at, bottom), (at, bottom + 4.0)], Colour::Ink, 1.0);
        svg.text(label, (at, bottom + 14.0), 12.0, Colour::Ink, Anchor::Middle);
    }
    svg.text(picture.axis, (0.0, bottom + 14.0), 12.0, Colour::Ink, Anchor::Start);
    svg.file(picture.about)
}

fn draw_panel(svg: &mut Svg, panel: &Panel, top: f64, x: &dyn Fn(f64) -> f64) {
    svg.text(&panel.heading, (0.0, top + 24.0), 13.0, Colour::Ink, Anchor::Start);
    let values: Vec<f64> = panel.lines.iter().flat_map(|line| &line.points).map(|point| point.y).collect();
    let (least, most, ticks) = if panel.is_log { by_powers(&values) } else { from_zero(&values) };
    let (high, low) = (top + HEAD, top + HEAD + HEIGHT);
    let scaled = |value: f64| if panel.is_log { value.log10() } else { value };
    let y = |value: f64| low - (low - high) * (scaled(value) - least) / (most - least);
    for tick in ticks {
        let at = y(tick);
        svg.line(&[(LEFT, at), (RIGHT, at)], Colour::Grid, 1.0);
        svg.text(&(panel.tick)(tick), (LEFT - 8.0, at), 12.0, Colour::Ink, Anchor::End);
    }
    let mut labels = Vec::new();
    for (index, line) in panel.lines.iter().enumerate() {
        let colour = Colour::Series(index);
        let places: Vec<(f64, f64)> = line.points.iter().map(|point| (x(point.x), y(point.y))).collect();
        svg.line(&places, colour, 1.5);
        for (place, point) in places.iter().zip(&line.points) {
            svg.dot(*place, 3.0, colour, !point.is_valid);
        }
        labels.extend(places.last().map(|(_, y)| (*y, index)));
    }
    for (y, index) in apart(labels, high, low) {
        let label = panel.lines[index].label;
        svg.text(label, (RIGHT + 12.0, y), 12.0, Colour::Series(index), Anchor::Start);
    }
}

/// From zero to a little above the largest value, with round ticks.
fn from_zero(values: &[f64]) -> (f64, f64, Vec<f64>) {
    let most = values.iter().copied().fold(0.0, f64::max) * 1.12;
    let most = if most > 0.0 { most } else { 1.0 };
    let magnitude = 10f64.powf((most / 4.0).log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|of| of * magnitude);
    let step = step.into_iter().find(|step| most / step < 5.0).unwrap_or(most);
    (0.0, most, (0..=5).map(|i| f64::from(i) * step).filter(|tick| *tick <= most).collect())
}

/// By powers of ten; the ends are logarithms, the ticks are not.
fn by_powers(values: &[f64]) -> (f64, f64, Vec<f64>) {
    let logs: Vec<f64> = values.iter().filter(|value| **value > 0.0).map(|value| value.log10()).collect();
    let least = logs.iter().copied().fold(f64::MAX, f64::min).min(9.0) - 0.12;
    let most = logs.iter().copied().fold(f64::MIN, f64::max).max(least + 0.3) + 0.12;
    let steps: &[f64] = match most - least {
        ..0.8 => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
        ..2.5 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    let decades = least.floor() as i32..=most.ceil() as i32;
    let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10f64.powi(decade)));
    (least, most, ticks.filter(|tick| (least..=most).contains(&tick.log10())).collect())
}
