//! What interventions did: a bar of goodput lost for each, beside what a limit would have had to lose.

use super::axis::{Axis, Scale};
use crate::document::Drawing;
use crate::format::{self, shortened, trimmed};
use crate::sentences::{how_slowed, is_named, slowed};
use crate::svg::{Anchor, Colour, Svg};
use lab_analysis::{Effect, Interval, WorkloadFindings};

const WIDTH: f64 = 840.0;
/// Left of it stands what was made slower, right of it the elasticity.
const LEFT: f64 = 250.0;
const RIGHT: f64 = WIDTH - 190.0;
const HEAD: f64 = 34.0;
const LINE: f64 = 28.0;
const FOOT: f64 = 32.0;

/// The bars; `None` where nothing was made slower.
pub(crate) fn figure(found: &WorkloadFindings, slug: &str) -> Option<Drawing> {
    let level = found.effects.first()?.level;
    let ends = |effect: &Effect| [effect.loss.low, effect.loss.high, effect.loss.mean, effect.expected_loss];
    let shares: Vec<f64> = found.effects.iter().flat_map(ends).filter(|share| share.is_finite()).collect();
    let positive =
        Axis::of_values(Scale::Linear, &shares.iter().map(|share| share.max(0.0)).collect::<Vec<_>>());
    let least = shares.iter().copied().fold(0.0, f64::min) * 1.12;
    let most = shares.iter().copied().fold(0.0, f64::max).max(0.01) * 1.12;
    let x = |share: f64| LEFT + (share.clamp(least, most) - least) / (most - least) * (RIGHT - LEFT);

    let last = HEAD + LINE * found.effects.len() as f64;
    let mut svg = Svg::new(WIDTH, last + FOOT);
    let clients = format::count(level, "client");
    let title = format!("Goodput lost when one resource is made slower, at {clients}");
    svg.text(&title, (0.0, 14.0), 13.0, Colour::Ink, Anchor::Start);
    svg.text("elasticity", (RIGHT + 12.0, 14.0), 13.0, Colour::Ink, Anchor::Start);
    for tick in positive.ticks.iter().filter(|tick| **tick <= most) {
        svg.line(&[(x(*tick), HEAD), (x(*tick), last)], Colour::Grid, 1.0);
        let words = trimmed(&format!("{:.1} %", tick * 100.0));
        svg.text(&words, (x(*tick), last + 12.0), 12.0, Colour::Ink, Anchor::Middle);
    }
    svg.line(&[(x(0.0), HEAD), (x(0.0), last)], Colour::Ink, 1.0);
    for (i, effect) in found.effects.iter().enumerate() {
        let y = HEAD + LINE * (i as f64 + 0.5);
        bar(&mut svg, effect, is_named(found, effect), y, &x);
    }
    let label = format!("{}: goodput lost when one resource was made slower", found.name);
    Some(Drawing { file: format!("plots/{slug}.interventions.svg"), label, svg })
}

/// A bar, its whisker, the tick where it would have to end, and the words on both sides.
fn bar(svg: &mut Svg, effect: &Effect, is_named: bool, y: f64, x: &dyn Fn(f64) -> f64) {
    let is_control = effect.change.raises.is_empty();
    let (colour, half) = match (is_named, is_control) {
        (true, _) => (Colour::Series(1), 8.0),
        (false, true) => (Colour::Soft, 6.0),
        (false, false) => (Colour::Series(0), 6.0),
    };
    svg.text(&shortened(&slowed(effect), 34), (LEFT - 10.0, y - 5.0), 12.0, colour, Anchor::End);
    svg.text(&how_slowed(effect), (LEFT - 10.0, y + 7.0), 10.0, Colour::Soft, Anchor::End);
    let (zero, end) = (x(0.0), x(effect.loss.mean));
    let corners = [(zero, y - half), (end, y - half), (end, y + half), (zero, y + half)];
    svg.area(&corners, colour, 0.45);
    if effect.loss.interval != Interval::Single {
        svg.line(&[(x(effect.loss.low), y), (x(effect.loss.high), y)], colour, 1.5);
    }
    let said = match (is_named, is_control) {
        (_, true) => "control".to_owned(),
        (true, _) => format!("{}, named", format::elasticity(&effect.elasticity)),
        (false, _) => format::elasticity(&effect.elasticity),
    };
    svg.text(&said, (RIGHT + 12.0, y), 12.0, colour, Anchor::Start);
    // Nothing is expected of a control.
    if !is_control {
        let x = x(effect.expected_loss);
        svg.line(&[(x, y - 11.0), (x, y + 11.0)], Colour::Ink, 2.5);
    }
}
