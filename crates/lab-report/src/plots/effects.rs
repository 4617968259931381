//! What interventions did: a bar of goodput lost for each, beside what a limit would have had to lose.

use super::ink::{Done, Drawing, WIDTH, ZOOM, colour, shortened, text, trimmed};
use super::{Scale, vertical};
use crate::series::{Colour, Kind, Point, Series};
use crate::words;
use lab_analysis::{Effect, Estimate, Interval, WorkloadFindings};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::ops::RangeInclusive;

/// Left of it stands what was made slower, right of it the elasticity.
const LEFT: i32 = 250;
const RIGHT: i32 = 190;
const HEAD: i32 = 34;
const LINE: i32 = 28;
const FOOT: i32 = 32;

/// The bars; `None` where nothing was made slower.
pub(crate) fn figure(found: &WorkloadFindings) -> Option<Drawing> {
    if found.effects.is_empty() {
        return None;
    }
    let height = HEAD + LINE * found.effects.len() as i32 + FOOT;
    let mut svg = String::new();
    draw(&mut svg, found, height).expect("writing into a string does not fail");
    let label = format!("{}: goodput lost when one resource was made slower", found.name);
    Some(Drawing::new(&svg, height, &label))
}

/// Whether this effect is of a resource that is named as the limit.
pub(crate) fn is_named(found: &WorkloadFindings, effect: &Effect) -> bool {
    found.bottleneck.named.iter().any(|of| of.is_slowed_by(effect))
}

/// What was made slower: the resources, or that it is the control.
pub(crate) fn subject(effect: &Effect) -> String {
    let resources: Vec<&str> = effect.change.raises.iter().map(String::as_str).collect();
    if resources.is_empty() { "nothing: the control".to_owned() } else { words::listed(&resources) }
}

fn draw(svg: &mut String, found: &WorkloadFindings, height: i32) -> Done {
    let root =
        SVGBackend::with_string(svg, ((WIDTH * ZOOM) as u32, (height * ZOOM) as u32)).into_drawing_area();
    let ends = |effect: &Effect| [effect.loss.low, effect.loss.high, effect.loss.mean, effect.expected_loss];
    let all: Vec<f64> = found.effects.iter().flat_map(ends).filter(|share| share.is_finite()).collect();
    let point = |value: &f64| Point { at: 1.0, value: *value, interval: None, usable: true };
    let points = all.iter().map(point).collect();
    let series = Series { label: String::new(), colour: Colour::Ink, kind: Kind::Measured, points };
    let (_, most, ticks) = vertical(Scale::Linear, &[series]);
    // More than all cannot be lost. A gain lies left of zero; of more than a sixth of the axis it is cut off.
    let most = most.min(1.0);
    let least = all.iter().copied().fold(0.0, f64::min).max(-most / 6.0) * 1.1;
    let x = |share: f64| {
        let width = f64::from((WIDTH - LEFT - RIGHT) * ZOOM);
        LEFT * ZOOM + ((share.clamp(least, most) - least) / (most - least) * width).round() as i32
    };
    let (first, last) = (HEAD * ZOOM, (height - FOOT) * ZOOM);
    let clients = found.effects.first().map_or(0, |effect| effect.level);
    let title =
        format!("Goodput lost when one resource is made slower, at {}", words::count(clients, "client"));
    text(&root, &title, (0, 8 * ZOOM), 13, Colour::Ink, (HPos::Left, VPos::Top))?;
    let elasticity = ((WIDTH - RIGHT + 12) * ZOOM, 8 * ZOOM);
    text(&root, "elasticity", elasticity, 13, Colour::Ink, (HPos::Left, VPos::Top))?;
    for tick in ticks.into_iter().filter(|tick| *tick <= most) {
        let line = vec![(x(tick), first), (x(tick), last)];
        root.draw(&PathElement::new(line, colour(Colour::Grid).stroke_width(2)))?;
        let said = trimmed(&format!("{:.1} %", tick * 100.0));
        text(&root, &said, (x(tick), last + 5 * ZOOM), 12, Colour::Ink, (HPos::Center, VPos::Top))?;
    }
    root.draw(&PathElement::new(vec![(x(0.0), first), (x(0.0), last)], colour(Colour::Ink).stroke_width(2)))?;
    for (i, effect) in found.effects.iter().enumerate() {
        let y = first + (LINE * i as i32 + LINE / 2) * ZOOM;
        bar(&root, found, effect, y, &(least..=most), &x)?;
    }
    root.present()?;
    Ok(())
}

/// A bar, its whisker, the tick where it would have to end, and the words on both sides.
fn bar(
    root: &DrawingArea<SVGBackend, Shift>,
    found: &WorkloadFindings,
    effect: &Effect,
    y: i32,
    axis: &RangeInclusive<f64>,
    x: &dyn Fn(f64) -> i32,
) -> Done {
    let of = match (is_named(found, effect), effect.change.raises.is_empty()) {
        (true, _) => Colour::Series(1),
        (false, true) => Colour::Soft,
        (false, false) => Colour::Series(0),
    };
    let thick = if is_named(found, effect) { 8 } else { 6 };
    let name = shortened(&subject(effect));
    text(root, &name, ((LEFT - 10) * ZOOM, y - 5 * ZOOM), 12, of, (HPos::Right, VPos::Center))?;
    let how = how(effect);
    text(root, &how, ((LEFT - 10) * ZOOM, y + 7 * ZOOM), 10, Colour::Soft, (HPos::Right, VPos::Center))?;
    let style = colour(of);
    let (zero, end) = (x(0.0), x(effect.loss.mean));
    let corners = [(zero.min(end), y - thick * ZOOM), (zero.max(end), y + thick * ZOOM)];
    root.draw(&Rectangle::new(corners, style.mix(0.45).filled()))?;
    root.draw(&Rectangle::new(corners, style.stroke_width(2)))?;
    if effect.loss.interval != Interval::Single {
        let ends = [effect.loss.low, effect.loss.high];
        root.draw(&PathElement::new(ends.map(|end| (x(end), y)).to_vec(), style.stroke_width(3)))?;
        // One that is cut off has no end to be seen.
        for end in ends.into_iter().filter(|end| axis.contains(end)).map(x) {
            let cap = vec![(end, y - 4 * ZOOM), (end, y + 4 * ZOOM)];
            root.draw(&PathElement::new(cap, style.stroke_width(3)))?;
        }
    }
    // Of a control nothing is expected.
    if !effect.change.raises.is_empty() {
        let at = x(effect.expected_loss);
        let tick = vec![(at, y - 11 * ZOOM), (at, y + 11 * ZOOM)];
        root.draw(&PathElement::new(tick, colour(Colour::Ink).stroke_width(5)))?;
    }
    let place = ((WIDTH - RIGHT + 12) * ZOOM, y);
    text(root, &verdict(found, effect), place, 12, of, (HPos::Left, VPos::Center))
}

/// `cpu, +250 µs per request`.
pub(crate) fn how(effect: &Effect) -> String {
    let change = &effect.change;
    match change.factor {
        Some(factor) => format!("{}, demand × {}", change.knob, trimmed(&format!("{factor:.2}"))),
        None => format!("{}, +{}", change.knob, words::latency(Some(change.added_us))),
    }
}

/// The elasticity, and what it is of.
fn verdict(found: &WorkloadFindings, effect: &Effect) -> String {
    if effect.change.raises.is_empty() {
        return "control".to_owned();
    }
    let said = elasticity(&effect.elasticity);
    if is_named(found, effect) { format!("{said}, named") } else { said }
}

/// `0.93 ± 0.05`: an elasticity is about 1 at the limit, so it needs two decimals and no suffix.
pub(crate) fn elasticity(of: &Estimate) -> String {
    let said = |value: f64| format!("{:.2}", value + 0.0).replace('-', "−");
    match of.interval {
        _ if ![of.mean, of.low, of.high].iter().all(|value| value.is_finite()) => words::UNKNOWN.to_owned(),
        Interval::Single => said(of.mean),
        Interval::Range => format!("{} ({} to {})", said(of.mean), said(of.low), said(of.high)),
        Interval::StudentT | Interval::Bootstrap => {
            format!("{} ± {}", said(of.mean), said((of.high - of.mean).max(of.mean - of.low)))
        }
    }
}
