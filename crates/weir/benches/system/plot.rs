//! Pictures of one family with the plots of the reports: panels stacked on one axis, series named where they end,
//! colours that follow light and dark.

use lab_report::apart;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;
use std::fmt::Write;

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

/// As drawn, on light and on dark paper: ink, grid, paper, then the series. The values are those of the reports.
const PALETTE: &[(RGBColor, &str, &str)] = &[
    (RGBColor(0x33, 0x33, 0x33), "#1c1b19", "#e4e1d8"),
    (RGBColor(0xdd, 0xdd, 0xdd), "#e4e1d6", "#33312d"),
    (RGBColor(0xff, 0xff, 0xff), "#fffff8", "#161614"),
    (RGBColor(0x00, 0x72, 0xb2), "#0072b2", "#56b4e9"),
    (RGBColor(0xd5, 0x5e, 0x00), "#c95700", "#ff9350"),
    (RGBColor(0x00, 0x9e, 0x73), "#008763", "#35c79d"),
];
const INK: usize = 0;
const GRID: usize = 1;
const PAPER: usize = 2;
const SERIES: usize = 3;

/// Drawn twice as large as shown: the backend knows whole units only.
const ZOOM: i32 = 2;
const WIDTH: i32 = 840;
const LEFT: i32 = 64;
const RIGHT: i32 = 170;
const HEAD: i32 = 46;
const TITLE: i32 = 17;
const HEIGHT: i32 = 150;
const FOOT: i32 = 34;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Done = Result<(), Box<dyn Error>>;

/// A file that stands alone.
pub(crate) fn svg(picture: &Picture) -> String {
    let height = picture.panels.len() as i32 * (HEAD + HEIGHT) + FOOT;
    let mut drawn = String::new();
    draw(&mut drawn, picture, height).expect("writing into a string does not fail");
    // The backend's own head says how large it drew.
    let body = drawn.split_once('>').map_or("", |(_, body)| body);
    let (wide, high) = (WIDTH * ZOOM, height * ZOOM);
    let about = picture.about;
    format!(
        "<svg width=\"{WIDTH}\" height=\"{height}\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" \
         role=\"img\" aria-label=\"{about}\">\n<style>\n{}</style>{body}",
        style()
    )
}

fn style() -> String {
    let mut css = String::from(":root { color-scheme: light dark; }\n");
    let all = |of: fn(&(RGBColor, &'static str, &'static str)) -> &'static str| -> String {
        PALETTE.iter().enumerate().map(|(i, row)| format!("--plot-{i}: {}; ", of(row))).collect()
    };
    let (light, dark) = (all(|row| row.1), all(|row| row.2));
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(css, ":root {{ {light}}}\n@media (prefers-color-scheme: dark) {{:root {{ {dark}}} }}");
    for (i, (RGBColor(r, g, b), ..)) in PALETTE.iter().enumerate() {
        for attribute in ["stroke", "fill"] {
            let _ = writeln!(
                css,
                "svg [{attribute}=\"#{r:02X}{g:02X}{b:02X}\"] {{ {attribute}: var(--plot-{i}); }}"
            );
        }
    }
    // Without it a dark page shines through.
    let _ = writeln!(css, "svg {{ background: var(--plot-{PAPER}); }}");
    css
}

fn draw(svg: &mut String, picture: &Picture, height: i32) -> Done {
    let root = SVGBackend::with_string(svg, ((WIDTH * ZOOM) as u32, (height * ZOOM) as u32));
    let root = root.into_drawing_area();
    let ends = |fold: fn(f64, f64) -> f64, from| picture.levels.iter().map(|(at, _)| *at).fold(from, fold);
    let (first, last) = (ends(f64::min, f64::MAX), ends(f64::max, f64::MIN));
    let air = ((last - first) * 0.04).max(0.1);
    let x = |at: f64| {
        let share = (at - first + air) / (last - first + 2.0 * air);
        LEFT * ZOOM + (f64::from((WIDTH - LEFT - RIGHT) * ZOOM) * share).round() as i32
    };
    for (index, panel) in picture.panels.iter().enumerate() {
        draw_panel(&root, panel, index as i32 * (HEAD + HEIGHT) * ZOOM, &x)?;
    }
    let bottom = (height - FOOT) * ZOOM;
    for (at, label) in &picture.levels {
        let at = x(*at);
        root.draw(&PathElement::new(vec![(at, bottom), (at, bottom + 4 * ZOOM)], PALETTE[INK].0))?;
        text(&root, label, (at, bottom + 7 * ZOOM), 12, INK, (HPos::Center, VPos::Top))?;
    }
    text(&root, picture.axis, (0, bottom + 7 * ZOOM), 12, INK, (HPos::Left, VPos::Top))?;
    root.present()?;
    Ok(())
}

fn draw_panel(root: &Area<'_>, panel: &Panel, top: i32, x: &dyn Fn(f64) -> i32) -> Done {
    text(root, &panel.heading, (0, top + TITLE * ZOOM), 13, INK, (HPos::Left, VPos::Top))?;
    let values: Vec<f64> = panel.lines.iter().flat_map(|line| &line.points).map(|point| point.y).collect();
    let (least, most, ticks) = if panel.is_log { by_powers(&values) } else { from_zero(&values) };
    let (high, low) = (top + HEAD * ZOOM, top + (HEAD + HEIGHT) * ZOOM);
    let scaled = |value: f64| if panel.is_log { value.log10() } else { value };
    let y =
        |value: f64| low - (f64::from(low - high) * (scaled(value) - least) / (most - least)).round() as i32;
    for tick in ticks {
        let at = y(tick);
        let line = vec![(LEFT * ZOOM, at), ((WIDTH - RIGHT) * ZOOM, at)];
        root.draw(&PathElement::new(line, PALETTE[GRID].0.stroke_width(2)))?;
        let place = ((LEFT - 8) * ZOOM, at);
        text(root, &(panel.tick)(tick), place, 12, INK, (HPos::Right, VPos::Center))?;
    }
    let mut labels = Vec::new();
    for (index, line) in panel.lines.iter().enumerate() {
        let colour = PALETTE[SERIES + index % (PALETTE.len() - SERIES)].0;
        let places: Vec<(i32, i32)> = line.points.iter().map(|point| (x(point.x), y(point.y))).collect();
        root.draw(&PathElement::new(places.clone(), colour.stroke_width(3)))?;
        for (place, point) in places.iter().zip(&line.points) {
            let filled = if point.is_valid { colour } else { PALETTE[PAPER].0 };
            root.draw(&Circle::new(*place, 3 * ZOOM, filled.filled()))?;
            root.draw(&Circle::new(*place, 3 * ZOOM, colour.stroke_width(2)))?;
        }
        labels.extend(places.last().map(|(_, y)| (*y, index)));
    }
    for (y, index) in apart(labels, high, low) {
        let place = ((WIDTH - RIGHT + 12) * ZOOM, y);
        let of = SERIES + index % (PALETTE.len() - SERIES);
        text(root, panel.lines[index].label, place, 12, of, (HPos::Left, VPos::Center))?;
    }
    Ok(())
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

fn text(root: &Area<'_>, words: &str, at: (i32, i32), size: i32, of: usize, (h, v): (HPos, VPos)) -> Done {
    // The backend divides by 1.24, to get from a line's height to a letter's.
    let font = ("sans-serif", f64::from(size * ZOOM) * 1.24).into_font().color(&PALETTE[of].0);
    root.draw(&Text::new(words.to_owned(), at, font.pos(Pos::new(h, v))))?;
    Ok(())
}
