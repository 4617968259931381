//! The plots of a workload: which panels there are, in which figure, over which axis.
//!
//! A panel is a row of [`PLOTS`].

mod axis;
mod panel;

use super::document::Drawing;
use super::format::{self, percent, shortened, slug, trimmed};
use super::series::{self, Series};
use Figure::{Overview, Resources, TimeSeries};
use Scale::{Linear, Log};
pub use axis::Scale;
use kv::units::{micros, short};
use lab_analysis::WorkloadFindings;
pub use panel::{Panel, WIDE, XAxis, stacked};

/// A panel of a workload's figures.
pub struct Plot {
    /// In the reference: `goodput`.
    pub name: &'static str,
    title: &'static str,
    figure: Figure,
    scale: Scale,
    tick: fn(f64) -> String,
    series: fn(&WorkloadFindings) -> Vec<Series>,
}

/// Panels that share an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Figure {
    /// How fast, by clients: for the beginning of the page.
    Overview,
    /// What the resources did, by clients.
    Resources,
    /// A trial, by seconds.
    TimeSeries,
}

/// The panels, from top to bottom.
pub const PLOTS: &[Plot] = &[
    plot("goodput", "Goodput, req/s", Overview, Linear(0.0), rps, series::goodput),
    plot("latency", "Latency, logarithmic", Overview, Log, time, series::latency),
    plot("utilization", "Utilization", Resources, Linear(1.0), share, series::utilization),
    plot("goodput by second", "Goodput, req/s", TimeSeries, Linear(0.0), rps, series::goodput_by_second),
    plot("latency by second", "Mean latency", TimeSeries, Linear(0.0), time, series::latency_by_second),
];

const fn plot(
    name: &'static str,
    title: &'static str,
    figure: Figure,
    scale: Scale,
    tick: fn(f64) -> String,
    series: fn(&WorkloadFindings) -> Vec<Series>,
) -> Plot {
    Plot { name, title, figure, scale, tick, series }
}

fn rps(value: f64) -> String {
    trimmed(&short(value))
}

/// A tick in microseconds.
pub(super) fn time(us: f64) -> String {
    trimmed(&micros(us))
}

fn share(value: f64) -> String {
    percent(value, 0)
}

/// So wide are two figures beside each other: the whole, and where the lines end. `server + database CPU 100 %` fits beside them.
const NARROW: (f64, f64) = (520.0, 334.0);

/// A figure of a workload, `None` where nothing was measured.
pub(super) fn figure(of: Figure, found: &WorkloadFindings) -> Option<Drawing> {
    if found.rows.iter().all(|row| row.runs == 0 || row.level == 0) {
        return None;
    }
    // Several overviews are beside each other.
    let (end, label, size, name) = match of {
        Overview => ("", "goodput and latency by clients", NARROW, shortened(&found.name, 32) + ": "),
        Resources => (".resources", "utilization by clients", WIDE, String::new()),
        TimeSeries => (".seconds", "goodput and latency in the window", WIDE, String::new()),
    };
    let x = if of == TimeSeries { seconds(found)? } else { clients(found) };
    let panels =
        PLOTS.iter().filter(|plot| plot.figure == of).map(|Plot { title, scale, tick, series, .. }| Panel {
            title: format!("{name}{title}"),
            scale: *scale,
            tick: *tick,
            series: series(found),
        });
    let svg = stacked(&x, panels.collect(), size);
    let file = format!("plots/{}{end}.svg", slug(&found.name));
    Some(Drawing { file, label: format!("{}: {label}", found.name), svg })
}

/// The axis of all levels, with the knee.
fn clients(found: &WorkloadFindings) -> XAxis {
    let knee = found.knee.as_ref().map(|knee| knee.clients);
    let mark = knee.map(|clients| (clients, format!("knee {}", format::clients(clients))));
    XAxis { mark, ..XAxis::of_clients(series::levels(found)) }
}

/// The axis of the window, with the end of its warm-up.
fn seconds(found: &WorkloadFindings) -> Option<XAxis> {
    let bins = found.time_series.as_ref()?;
    let length = bins.goodput_rps.len() as f64 * bins.bin_secs;
    let cut = Some(bins.cut_secs).filter(|secs| *secs > 0.0);
    let mark = cut.map(|secs| (secs, format!("warm-up {} s", (secs * 10.0).round() / 10.0)));
    Some(XAxis { unit: "seconds", scale: Linear(length), ticks: Vec::new(), mark })
}
