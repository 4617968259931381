//! Horizontal bars: what each is called on the left, its figure on the right. They begin at zero, so that lengths may be compared.

use super::axis::{Axis, Scale};
use crate::format::shortened;
use crate::svg::{Anchor, Colour, Svg};

/// Bars on one axis.
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Above the figures on the right.
    pub(crate) said: &'static str,
    /// How a tick is written.
    pub(crate) tick: fn(f64) -> String,
    pub(crate) bars: Vec<Bar>,
}

/// A bar.
pub(crate) struct Bar {
    pub(crate) name: String,
    /// In small letters below the name.
    pub(crate) below: String,
    pub(crate) colour: Colour,
    pub(crate) value: f64,
    /// The interval of the value, where it is known.
    pub(crate) interval: Option<(f64, f64)>,
    /// Where it should end.
    pub(crate) expected: Option<f64>,
    /// How solid it is, 0–1.
    pub(crate) opacity: f64,
    /// To the right of it.
    pub(crate) said: String,
}

const WIDTH: f64 = 840.0;
/// Left of it stand the names, right of it the figures.
const LEFT: f64 = 250.0;
const RIGHT: f64 = WIDTH - 190.0;
const HEAD: f64 = 34.0;
const LINE: f64 = 28.0;
const FOOT: f64 = 32.0;

/// The groups, one below the other.
pub(crate) fn drawn(groups: &[Bars]) -> Svg {
    let ends = groups.iter().scan(0.0, |end, of| {
        *end += HEAD + LINE * of.bars.len() as f64 + FOOT;
        Some(*end)
    });
    let ends: Vec<f64> = ends.collect();
    let mut svg = Svg::new(WIDTH, ends.last().copied().unwrap_or_default());
    for (of, end) in groups.iter().zip(ends) {
        draw(&mut svg, of, end - FOOT);
    }
    svg
}

/// Draws a group whose last bar ends at `last`.
fn draw(svg: &mut Svg, of: &Bars, last: f64) {
    let first = last - LINE * of.bars.len() as f64;
    let ends = |bar: &Bar| {
        let interval = bar.interval.into_iter().flat_map(|(low, high)| [low, high]);
        interval.chain([bar.value]).chain(bar.expected).collect::<Vec<_>>()
    };
    let x = Axis::of(Scale::Linear(0.0), of.bars.iter().flat_map(ends), (LEFT, RIGHT));
    svg.text(&of.title, (0.0, first - 20.0), 13.0, Colour::Ink, Anchor::Start);
    svg.text(of.said, (RIGHT + 12.0, first - 20.0), 13.0, Colour::Ink, Anchor::Start);
    for tick in &x.ticks {
        let at = x.at(*tick);
        svg.line(&[(at, first), (at, last)], if *tick == 0.0 { Colour::Ink } else { Colour::Grid }, 1.0);
        svg.text(&(of.tick)(*tick), (at, last + 12.0), 12.0, Colour::Ink, Anchor::Middle);
    }
    for (i, bar) in of.bars.iter().enumerate() {
        let (y, colour) = (first + LINE * (i as f64 + 0.5), bar.colour);
        let name_y = if bar.below.is_empty() { y } else { y - 5.0 };
        svg.text(&shortened(&bar.name, 34), (LEFT - 10.0, name_y), 12.0, colour, Anchor::End);
        svg.text(&bar.below, (LEFT - 10.0, y + 7.0), 10.0, Colour::Soft, Anchor::End);
        let (zero, end) = (x.at(0.0), x.at(bar.value));
        svg.area(&[(zero, y - 7.0), (end, y - 7.0), (end, y + 7.0), (zero, y + 7.0)], colour, bar.opacity);
        if let Some((low, high)) = bar.interval {
            svg.line(&[(x.at(low), y), (x.at(high), y)], colour, 1.5);
        }
        if let Some(at) = bar.expected.map(|value| x.at(value)) {
            svg.line(&[(at, y - 11.0), (at, y + 11.0)], Colour::Ink, 2.5);
        }
        svg.text(&bar.said, (RIGHT + 12.0, y), 12.0, colour, Anchor::Start);
    }
}
