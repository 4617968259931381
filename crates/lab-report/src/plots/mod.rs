//! The plots: panels of one workload, one below the other, on a shared axis; and bars.
//!
//! A panel is a row of [`PLOTS`]. Series are named where they end, not in a legend.

mod axis;
pub(super) mod bars;
mod panel;

use super::document::Drawing;
use super::format::{self, slug, trimmed};
use super::series::{self, Series};
use super::svg::{Anchor, Colour, Svg};
use Figure::{Overview, Resources, TimeSeries};
use Scale::{Linear, Log};
use axis::{Axis, Scale};
use kv::units::{micros, short};
use lab_analysis::WorkloadFindings;
pub use panel::apart;
pub(super) use panel::{Figure, Plot};

/// The panels, from top to bottom.
pub const PLOTS: &[Plot] = &[
    plot("goodput", "Goodput, req/s", Overview, Linear(0.0), rps, series::goodput),
    plot("p50 and p99", "Latency, logarithmic", Overview, Log, time, series::latency_overview),
    plot("latency", "Latency of all requests, logarithmic", Resources, Log, time, series::latency),
    plot("utilization", "Utilization, 0–1", Resources, Linear(1.0), share, series::utilization),
    plot("demand", "Busy time per request, logarithmic", Resources, Log, time, series::demand),
    plot("clients", "Where the clients are, 0–1", Resources, Linear(1.0), share, series::clients),
    plot("pressure", "Pressure, share of the time, 0–1", Resources, Linear(1.0), share, series::pressure),
    plot("Little’s law", "Little’s law, residual", Resources, Linear(0.0), share, series::residuals),
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

pub(super) fn rps(value: f64) -> String {
    trimmed(&short(value))
}

fn time(us: f64) -> String {
    trimmed(&micros(us))
}

fn share(value: f64) -> String {
    trimmed(&format!("{value:.2}"))
}

/// Left of the panels, for their ticks.
const LEFT: f64 = 60.0;
/// Below the last panel: the ticks, their name and that of the vertical line.
const FOOT: f64 = 46.0;

/// A figure of a workload, `None` where nothing was measured.
pub(super) fn figure(of: Figure, found: &WorkloadFindings) -> Option<Drawing> {
    if found.rows.iter().all(|row| row.runs == 0 || row.level == 0) {
        return None;
    }
    let (end, label, width, right) = match of {
        Overview => ("", "goodput and latency by clients", 480.0, 348.0),
        Resources => (".resources", "latency and resources by clients", 840.0, 670.0),
        TimeSeries => (".seconds", "goodput and latency in the window", 840.0, 670.0),
    };
    let (x, unit, mark) = match of {
        TimeSeries => {
            let bins = found.time_series.as_ref()?;
            let seconds = bins.goodput_rps.len() as f64 * bins.bin_secs;
            let x = Axis::of(Linear(0.0), [seconds].into_iter(), (LEFT, right));
            let cut = Some(bins.cut_secs).filter(|secs| *secs > 0.0);
            (x, "seconds", cut.map(|secs| (secs, format!("warm-up {} s", (secs * 10.0).round() / 10.0))))
        }
        _ => {
            let knee = found.knee.as_ref().map(|knee| knee.clients);
            let knee = knee.map(|clients| (clients, format!("knee {}", format::clients(clients))));
            (Axis::clients(&series::levels(found), (LEFT, right)), "clients", knee)
        }
    };
    let mark = mark.filter(|(at, _)| x.shows(*at));
    let mut svg = Svg::new(width, FOOT);
    for plot in PLOTS.iter().filter(|plot| plot.figure == of) {
        let bottom = svg.height - FOOT;
        svg.height = FOOT + panel::draw(&mut svg, plot, found, &x, mark.as_ref().map(|of| of.0), bottom);
    }
    let bottom = svg.height - FOOT;
    if let Some((at, name)) = mark {
        svg.text(&name, (x.at(at), bottom + 32.0), 12.0, Colour::Soft, Anchor::Middle);
    }
    let mut free = f64::MIN;
    for tick in &x.ticks {
        let (at, words) = (x.at(*tick), tick.to_string());
        svg.line(&[(at, bottom), (at, bottom + 4.0)], Colour::Ink, 1.0);
        let half = words.len() as f64 * 4.0;
        // One without room for its words keeps its line.
        if at - half > free {
            svg.text(&words, (at, bottom + 14.0), 12.0, Colour::Ink, Anchor::Middle);
            free = at + half + 4.0;
        }
    }
    svg.text(unit, (0.0, bottom + 14.0), 12.0, Colour::Ink, Anchor::Start);
    let file = format!("plots/{}{end}.svg", slug(&found.name));
    Some(Drawing { file, label: format!("{}: {label}", found.name), svg })
}
