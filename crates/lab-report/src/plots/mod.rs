//! The plots: panels of one workload, one below the other, on a shared axis.
//!
//! A panel is a row of [`PLOTS`]. Series are named where they end, not in a legend.

mod across;
mod axis;
pub(super) mod interventions;
mod panel;

use super::document::Drawing;
use super::format::{self, shortened, trimmed};
use super::series::{self, Series};
use super::svg::{Anchor, Colour, Svg};
use Figure::{Overview, Resources, TimeSeries};
use Scale::{Around, Linear, Log, Share};
use across::Across;
pub(super) use axis::Axis;
pub use axis::Scale;
use kv::units::{micros, short};
use lab_analysis::WorkloadFindings;
use panel::Panel;
pub use panel::{Figure, Plot, apart};

/// The panels, from top to bottom.
pub const PLOTS: &[Plot] = &[
    plot("goodput", "Goodput, req/s", Overview, Linear, 130.0, rps, series::goodput),
    plot("p50 and p99", "Latency, logarithmic", Overview, Log, 90.0, time, series::latency_overview),
    plot("latency", "Latency of all requests, logarithmic", Resources, Log, 135.0, time, series::latency),
    plot("utilization", "Utilization, 0–1", Resources, Share, 105.0, share, series::utilization),
    plot("demand", "Busy time per request, logarithmic", Resources, Log, 100.0, time, series::demand),
    plot("clients", "Where the clients are, 0–1", Resources, Share, 120.0, share, series::clients),
    plot("pressure", "Pressure, share of the time, 0–1", Resources, Share, 60.0, share, series::pressure),
    plot("Little’s law", LITTLE, Resources, Around(0.02), 56.0, residual, series::residuals),
    plot("goodput by second", "Goodput, req/s", TimeSeries, Linear, 150.0, rps, series::goodput_by_second),
    plot("latency by second", "Mean latency", TimeSeries, Linear, 150.0, time, series::latency_by_second),
];

const LITTLE: &str = "Little’s law: clients accounted for, less those there, %";

const fn plot(
    name: &'static str,
    title: &'static str,
    figure: Figure,
    scale: Scale,
    height: f64,
    tick: fn(f64) -> String,
    series: fn(&WorkloadFindings) -> Vec<Series>,
) -> Plot {
    Plot { name, title, figure, scale, height, tick, series }
}

fn rps(value: f64) -> String {
    trimmed(&short(value))
}

fn time(us: f64) -> String {
    trimmed(&micros(us))
}

fn share(value: f64) -> String {
    trimmed(&format!("{value:.2}"))
}

fn residual(share: f64) -> String {
    format!("{:+.0}", share * 100.0).replace('-', "−").replace("+0", "0")
}

/// Below the last panel: the ticks, their name and that of the vertical line.
const FOOT: f64 = 46.0;

/// A figure of a workload, whose file is named after `slug`. `None` where nothing was measured.
pub(super) fn figure(of: Figure, found: &WorkloadFindings, slug: &str) -> Option<Drawing> {
    if found.rows.iter().all(|row| row.runs == 0) {
        return None;
    }
    let levels = || series::levels(found).into_iter().map(f64::from);
    let bins = || found.time_series.as_ref();
    let (end, label, across) = match of {
        Overview => ("", "goodput and latency by clients", Across::clients(480.0, 132.0, levels())),
        Resources => {
            (".resources", "latency and resources by clients", Across::clients(840.0, 170.0, levels()))
        }
        TimeSeries => {
            let seconds = bins()?.goodput_rps.len() as f64 * bins()?.bin_secs;
            (".seconds", "goodput and latency in the window", Across::seconds(840.0, 170.0, seconds))
        }
    };
    let mut panels: Vec<Panel> = Vec::new();
    for plot in PLOTS.iter().filter(|plot| plot.figure == of) {
        panels.extend(Panel::of(plot, found, panels.last().map_or(0.0, |above| above.bottom)));
    }
    if of == Overview {
        // Several of them are beside each other.
        panels.first_mut()?.title = format!("{}: {}", shortened(&found.name, 32), panels.first()?.title);
    }
    let bottom = panels.last()?.bottom;
    let mut svg = Svg::new(across.width, bottom + FOOT);
    let mark = match of {
        TimeSeries => bins()
            .filter(|of| of.cut_secs > 0.0)
            .map(|of| (of.cut_secs, format!("warm-up {} s", (of.cut_secs * 10.0).round() / 10.0))),
        _ => {
            found.knee.as_ref().map(|knee| (knee.clients, format!("knee {}", format::clients(knee.clients))))
        }
    };
    if let Some((at, name)) = mark.filter(|(at, _)| (across.ends.0..=across.ends.1).contains(at)) {
        let x = across.x(at);
        for panel in &panels {
            svg.dashed(&[(x, panel.top), (x, panel.bottom)], Colour::Soft, 1.0, "4 4");
        }
        svg.text(&name, (x, bottom + 32.0), 12.0, Colour::Soft, Anchor::Middle);
    }
    panels.iter().for_each(|panel| panel.draw(&mut svg, &across));
    across.draw(&mut svg, bottom);
    Some(Drawing { file: format!("plots/{slug}{end}.svg"), label: format!("{}: {label}", found.name), svg })
}
