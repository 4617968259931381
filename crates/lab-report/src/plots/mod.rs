//! The plots: small panels of one workload, stacked on one shared axis, the knee drawn through those over clients.
//!
//! A panel is a row of [`PLOTS`]. Series are named where they end, not in a legend. Colours are a few fixed values
//! that a style sheet replaces, so that the same drawing suits light and dark.

mod axis;
pub(super) mod effects;
mod ink;
mod panel;

use super::series::{
    Colour, Series, demand, goodput_course, latency, latency_course, levels, places, pressure, residuals,
    throughput, utilization,
};
use kv::units::{micros, short};
use lab_analysis::WorkloadFindings;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

pub(super) use axis::{Shared, step, vertical};
use ink::HEAD;
pub(super) use ink::{
    Done, Drawing, FOOT, WIDTH, ZOOM, alone, colour, element, shortened, style, text, trimmed,
};
pub use panel::apart;
pub(super) use panel::{Drawn, panel};

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
    /// How high it is, without its head, in units of the page; higher where more lines have to be named.
    pub height: i32,
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From zero to a little above the largest value.
    Linear,
    /// From 0 to 1.
    Share,
    /// By powers of ten; values that are not positive are left out.
    Log,
    /// As far below zero as above it, and at least so far.
    Around(f64),
}

/// The panels, from top to bottom.
pub const PLOTS: &[Plot] = &[
    Plot {
        name: "throughput",
        title: "Goodput",
        over: Over::Clients,
        unit: "req/s",
        scale: Scale::Linear,
        height: 150,
        tick: |rps| trimmed(&short(rps)),
        series: throughput,
    },
    Plot {
        name: "latency",
        title: "Latency",
        over: Over::Clients,
        unit: "of all attempts, logarithmic",
        scale: Scale::Log,
        height: 135,
        tick: |us| trimmed(&micros(us)),
        series: latency,
    },
    Plot {
        name: "utilization",
        title: "Utilization",
        over: Over::Clients,
        unit: "busy share, 0–1",
        scale: Scale::Share,
        height: 105,
        tick: |share| trimmed(&format!("{share:.2}")),
        series: utilization,
    },
    Plot {
        name: "demand",
        title: "Demand",
        over: Over::Clients,
        unit: "busy time per request, logarithmic; what falls is shared by more requests at once (batching)",
        scale: Scale::Log,
        height: 100,
        tick: |us| trimmed(&micros(us)),
        series: demand,
    },
    Plot {
        name: "population",
        title: "Where the clients are",
        over: Over::Clients,
        unit: "share of them, 0–1",
        scale: Scale::Share,
        height: 120,
        tick: |share| trimmed(&format!("{share:.2}")),
        series: places,
    },
    Plot {
        name: "pressure",
        title: "Pressure",
        over: Over::Clients,
        unit: "share of the time, 0–1",
        scale: Scale::Share,
        height: 60,
        tick: |share| trimmed(&format!("{share:.2}")),
        series: pressure,
    },
    Plot {
        name: "little",
        title: "Little’s law",
        over: Over::Clients,
        unit: "clients accounted for, less those there, %",
        scale: Scale::Around(0.02),
        height: 56,
        tick: |share| format!("{:+.0}", share * 100.0).replace('-', "−").replace("+0", "0"),
        series: residuals,
    },
    Plot {
        name: "goodput by second",
        title: "Goodput in the window",
        over: Over::Seconds,
        unit: "req/s",
        scale: Scale::Linear,
        height: 150,
        tick: |rps| trimmed(&short(rps)),
        series: goodput_course,
    },
    Plot {
        name: "latency by second",
        title: "Mean latency in the window",
        over: Over::Seconds,
        unit: "of all attempts",
        scale: Scale::Linear,
        height: 150,
        tick: |us| trimmed(&micros(us)),
        series: latency_course,
    },
];

/// The panels of a workload. `None` where nothing was measured.
pub(super) fn figure(found: &WorkloadFindings) -> Option<Drawing> {
    if found.rows.iter().all(|row| row.runs == 0) {
        return None;
    }
    let panels = panels(Over::Clients, found);
    let height = height(&panels);
    let mut svg = String::new();
    draw(&mut svg, found, &panels, height).expect("writing into a string does not fail");
    let label = format!("{}: goodput, latency, and what the resources did, by number of clients", found.name);
    Some(Drawing::new(&svg, height, &label))
}

fn draw(svg: &mut String, found: &WorkloadFindings, panels: &[Drawn], height: i32) -> Done {
    let size = ((WIDTH * ZOOM) as u32, (height * ZOOM) as u32);
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    let levels: Vec<f64> = levels(found).into_iter().map(f64::from).collect();
    let (first, last) = (levels.first().copied().unwrap_or(1.0), levels.last().copied().unwrap_or(1.0));
    // Half an octave of air, so that a single level has a place too.
    let shared = Shared { ends: (first.log2() - 0.25, last.log2() + 0.25), place: f64::log2 };
    let x = |clients: f64| shared.x(clients);

    let within = shared.ends.0..shared.ends.1;
    let knee = found.knee.as_ref().map(|knee| knee.clients).filter(|at| within.contains(&at.log2()));
    let bottom = (height - FOOT) * ZOOM;
    if let Some(knee) = knee {
        upright(&root, panels, x(knee), bottom)?;
    }
    for drawn in panels {
        panel(&root, drawn, shared)?;
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
        let centre = (HPos::Center, VPos::Top);
        text(&root, &label, (x(knee), bottom + 24 * ZOOM), 12, Colour::Soft, centre)?;
        // Once more at its upper end, unless a title stands there.
        let above = (x(knee), (HEAD - 18) * ZOOM);
        let half = label.len() as i32 * 4 * ZOOM;
        if !panels.iter().any(|panel| panel.is_titled((above.0 - half, above.1))) {
            text(&root, &label, above, 12, Colour::Soft, centre)?;
        }
    }
    root.present()?;
    Ok(())
}

/// A dashed line through all panels.
pub(super) fn upright(root: &DrawingArea<SVGBackend, Shift>, panels: &[Drawn], at: i32, bottom: i32) -> Done {
    let style = colour(Colour::Soft).stroke_width(2);
    // The line pauses where it would strike through a title.
    let dashes = (HEAD * ZOOM..bottom).step_by(16);
    for y in dashes.filter(|y| !panels.iter().any(|panel| panel.is_titled((at, *y)))) {
        root.draw(&PathElement::new(vec![(at, y), (at, y + 8)], style))?;
    }
    Ok(())
}

/// The panels over an axis, one below the other; those of which nothing was read are left out.
pub(super) fn panels(over: Over, found: &WorkloadFindings) -> Vec<Drawn> {
    let mut all: Vec<Drawn> = Vec::new();
    for plot in PLOTS.iter().filter(|plot| plot.over == over) {
        let top = all.last().map_or(0, Drawn::bottom);
        all.extend(panel::drawn(plot, found, top));
    }
    all
}

/// How high the figure of these panels is.
pub(super) fn height(panels: &[Drawn]) -> i32 {
    panels.last().map_or(0, Drawn::bottom) + FOOT
}
