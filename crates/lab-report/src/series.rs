//! The curves of a workload: what each panel of the plots shows, as points with a name and a colour.
//!
//! How they are drawn is the business of [`super::plots`].

use super::published::latency_us;
use super::svg::Colour;
use kv::units::short;
use lab_analysis::rows::Use;
use lab_analysis::{
    AuditedRow, Capacity, FIGURES, Group, Place, Population, Row, TimeSeries, WorkloadFindings,
};
use lab_data::results::ResourceKind;
use std::collections::BTreeSet;

/// A line with its name at its end.
pub struct Series {
    /// At the end of the line.
    pub label: String,
    /// Its colour.
    pub colour: Colour,
    /// Where it comes from; that decides how it is drawn.
    pub kind: Kind,
    /// From left to right.
    pub points: Vec<Point>,
}

/// Where a series comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Measured: a line with dots.
    Measured,
    /// Published by somebody: dashed, with dots.
    Published,
    /// Published without a number of clients: dashed, from side to side.
    PublishedPeak,
    /// Computed, or measured second by second: a thin line.
    Thin,
    /// A band of this opacity, between a point's value and the lower end of its interval.
    Area(f64),
}

/// A point of a series.
pub struct Point {
    /// Where on the panels' shared axis: clients, of which a bound may have a fraction, or seconds.
    pub at: f64,
    /// In the unit of the panel.
    pub value: f64,
    /// The interval over runs, where there is one.
    pub interval: Option<(f64, f64)>,
    /// Whether its row is valid; others are drawn hollow.
    pub usable: bool,
}

impl Series {
    fn new(label: impl Into<String>, colour: Colour, kind: Kind, points: Vec<Point>) -> Series {
        Series { label: label.into(), colour, kind, points }
    }

    /// A figure of every level that has it.
    fn measured(
        found: &WorkloadFindings,
        label: impl Into<String>,
        colour: Colour,
        read: impl Fn(&Row) -> Option<f64>,
    ) -> Series {
        let points = found.rows.iter().filter_map(|row| Some(Point::of(row, read(row)?)));
        Series::new(label, colour, Kind::Measured, points.collect())
    }
}

impl Point {
    fn new(at: f64, value: f64) -> Point {
        Point { at, value, interval: None, usable: true }
    }

    fn of(row: &Row, value: f64) -> Point {
        Point { usable: row.usable(), ..Point::new(row.level.into(), value) }
    }
}

/// How bands are filled: clients that wait, clients that are served, and what is unaccounted for or background.
pub(super) const FULL: f64 = 0.85;
const LIGHT: f64 = 0.4;
pub(super) const PALE: f64 = 0.15;

/// A value from the first to the last of some levels.
fn across(levels: &[u32], value: f64) -> Vec<Point> {
    let ends = [levels.first(), levels.last()].into_iter().flatten();
    ends.map(|level| Point::new((*level).into(), value)).collect()
}

pub(super) fn goodput(found: &WorkloadFindings) -> Vec<Series> {
    let mut all = Vec::new();
    if let Capacity::Reached { rps, levels } = &found.capacity {
        let mut band = across(levels, rps.high);
        band.iter_mut().for_each(|point| point.interval = Some((rps.low, rps.high)));
        let label = format!("capacity {}", short(rps.mean));
        all.push(Series::new(label, Colour::Soft, Kind::Area(LIGHT), band));
    }
    let colour = Colour::Series(0);
    let points = found.rows.iter().filter_map(|row| {
        let of = row.goodput_rps?;
        let interval = (of.low < of.high).then_some((of.low.max(0.0), of.high));
        Some(Point { interval, ..Point::of(row, of.mean) })
    });
    all.push(Series::new("goodput", colour, Kind::Measured, points.collect()));
    all.extend(published(found, "published", colour, |row| Some(row.printed.throughput_rps?.value)));
    // One far above all that was measured is left out, so that it does not press the curves down.
    const CEILING_MAX: f64 = 1.6;
    let ends = all.iter().flat_map(|of| &of.points).map(|of| of.interval.map_or(of.value, |(_, high)| high));
    let most = ends.fold(0.0, f64::max);
    let levels = levels(found);
    let ceilings = found.ceilings.iter().filter(|of| of.ceiling_rps <= CEILING_MAX * most).map(|of| {
        let points = across(&levels, of.ceiling_rps);
        Series::new(format!("{} full", of.resource), Colour::Soft, Kind::Thin, points)
    });
    ceilings.chain(all).collect()
}

/// A line of the latency panel: its name, its colour, and its figure of a row.
type Rank = (&'static str, Colour, fn(&Row) -> Option<f64>);

const RANKS: [Rank; 4] = [
    ("p50", Colour::Series(0), |row| row.latency_us_p50),
    ("p99", Colour::Series(1), |row| row.latency_us_p99),
    ("p99.9", Colour::Series(3), |row| row.latency_us_p999),
    ("mean", Colour::Series(2), |row| row.latency_us_mean),
];

/// The two latencies that most readers ask for.
pub(super) fn latency_overview(found: &WorkloadFindings) -> Vec<Series> {
    ranks(found, &RANKS[..2])
}

pub(super) fn latency(found: &WorkloadFindings) -> Vec<Series> {
    let mut all = ranks(found, &RANKS);
    all.extend(published(found, "published mean", RANKS[3].1, latency_us));
    all
}

fn ranks(found: &WorkloadFindings, ranks: &[Rank]) -> Vec<Series> {
    ranks.iter().map(|(label, colour, read)| Series::measured(found, *label, *colour, read)).collect()
}

/// What is never busier than this is a line on the ground: the table has it.
const SHOWN_MIN: f64 = 0.02;

/// The colour of a resource by its index, the same in all panels.
fn colour(i: usize, of: &Use) -> Colour {
    match of.kind {
        ResourceKind::Station | ResourceKind::Pool | ResourceKind::Cap => Colour::Series(i),
        ResourceKind::Generator | ResourceKind::Indication => Colour::Soft,
    }
}

/// A line for each resource that is busy at all, by one of its figures.
fn by_resource(found: &WorkloadFindings, read: fn(&Use) -> Option<f64>) -> Vec<Series> {
    let Some(first) = found.rows.first() else { return Vec::new() };
    let is_busy = |row: &Row, i: usize| row.uses(i) && row.resources[i].utilization >= Some(SHOWN_MIN);
    let of_resource = |(i, resource): (usize, &Use)| {
        let label = match resource.kind {
            ResourceKind::Indication => format!("({})", resource.name),
            _ => resource.name.clone(),
        };
        let is_shown = found.rows.iter().any(|row| is_busy(row, i));
        Series::measured(found, label, colour(i, resource), |row| {
            read(row.resources.get(i).filter(|_| is_shown)?)
        })
    };
    first.resources.iter().enumerate().map(of_resource).collect()
}

pub(super) fn demand(found: &WorkloadFindings) -> Vec<Series> {
    by_resource(found, |of| of.demand_us.filter(|us| *us > 0.0))
}

pub(super) fn utilization(found: &WorkloadFindings) -> Vec<Series> {
    let mut all = by_resource(found, |of| of.utilization);
    let cpu = |row: &AuditedRow| Some(row.printed.server_cpu_pct?.value / 100.0);
    let disk = |row: &AuditedRow| Some(row.printed.disk_util_pct?.value / 100.0);
    all.extend(published(found, "published CPU", Colour::Series(4), cpu));
    all.extend(published(found, "published disk", Colour::Series(5), disk));
    all
}

/// Bands that add up to all clients: those at the resources, in the order of a request's way, then all others.
pub(super) fn clients(found: &WorkloadFindings) -> Vec<Series> {
    let counted: Vec<(&Row, &Population)> =
        found.rows.iter().filter_map(|row| Some((row, row.population.as_ref()?))).collect();
    let Some((first, of_first)) = counted.first() else { return Vec::new() };
    // The shares of the clients, 0–1, at every level.
    let shares = |read: &dyn Fn(&Population) -> f64| -> Vec<f64> {
        counted.iter().map(|(_, of)| (read(of) / of.clients).max(0.0)).collect()
    };
    let mut bands = Vec::new();
    for place in of_first.places.iter().filter(|place| !place.inner) {
        let name = &place.resource;
        let known = first.resources.iter().enumerate().find(|(_, of)| of.name == *name);
        let colour = known.map_or(Colour::Soft, |(i, of)| colour(i, of));
        let at = |of: &Population, read: fn(&Place) -> Option<f64>| {
            of.places.iter().find(|place| place.resource == *name).and_then(read).unwrap_or(0.0)
        };
        bands.push((
            format!("waiting for {name}"),
            colour,
            FULL,
            shares(&|of| at(of, |place| place.waiting)),
        ));
        bands.push((format!("served by {name}"), colour, LIGHT, shares(&|of| at(of, |place| place.serving))));
    }
    bands.push(("thinking or resting".to_owned(), Colour::Soft, LIGHT, shares(&|of| of.away)));
    // Whether a band is wide enough at some level to be named.
    let is_wide = |shares: &[f64]| shares.iter().any(|share| *share >= SHOWN_MIN);
    let (mut bands, narrow): (Vec<_>, Vec<_>) = bands.into_iter().partition(|(.., shares)| is_wide(shares));
    let elsewhere = (0..counted.len()).map(|level| narrow.iter().map(|(.., of)| of[level]).sum());
    bands.push(("elsewhere".to_owned(), Colour::Soft, LIGHT, elsewhere.collect()));
    bands.push(("unaccounted".to_owned(), Colour::Soft, PALE, shares(&|of| of.unaccounted)));
    let mut ground = vec![0.0; counted.len()];
    let stacked = bands.into_iter().filter_map(|(label, colour, opacity, shares)| {
        let point = |(((row, _), ground), share): ((&(&Row, _), &mut f64), &f64)| {
            let low = *ground;
            *ground += share;
            Point { interval: Some((low, *ground)), ..Point::of(row, *ground) }
        };
        let points = counted.iter().zip(&mut ground).zip(&shares).map(point).collect();
        is_wide(&shares).then(|| Series::new(label, colour, Kind::Area(opacity), points))
    });
    stacked.collect()
}

/// Time in which something waited for the machine or was held back by a quota or a cap.
pub(super) fn pressure(found: &WorkloadFindings) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for figure in FIGURES.iter().filter(|figure| figure.group == Group::Pressure) {
        let of_figure = found.rows.iter().flat_map(|row| &row.figures).filter(|of| of.figure == figure.name);
        let owners: BTreeSet<&str> = of_figure.map(|of| of.of.as_str()).collect();
        for owner in owners {
            let label = format!("{}: {}", owner.trim_start_matches("pressure "), figure.heading.0);
            all.push(Series::measured(found, label, Colour::Series(all.len()), |row| {
                let of = row.figures.iter().find(|of| of.figure == figure.name && of.of == owner)?;
                Some(of.value)
            }));
        }
    }
    all.retain(|series| series.points.iter().any(|point| point.value >= SHOWN_MIN));
    all
}

/// How far every row is from Little's law, on the band that the check allows.
pub(super) fn residuals(found: &WorkloadFindings) -> Vec<Series> {
    const ALLOWED: f64 = 0.02;
    let residual = Series::measured(found, "residual", Colour::Series(0), |row| row.little_residual);
    let band = |of: &Point| Point { interval: Some((-ALLOWED, ALLOWED)), ..Point::new(of.at, ALLOWED) };
    let band = residual.points.iter().map(band).collect();
    let allowed = Series::new("±2 %", Colour::Soft, Kind::Area(PALE), band);
    vec![allowed, residual]
}

pub(super) fn goodput_by_second(found: &WorkloadFindings) -> Vec<Series> {
    by_second(found, "goodput", Colour::Series(0), |of, bin| of.goodput_rps.get(bin).copied())
}

pub(super) fn latency_by_second(found: &WorkloadFindings) -> Vec<Series> {
    by_second(found, "mean", Colour::Series(2), |of, bin| *of.latency_us_mean.get(bin)?)
}

/// A figure at the middle of every second.
fn by_second(
    found: &WorkloadFindings,
    label: &str,
    colour: Colour,
    read: fn(&TimeSeries, usize) -> Option<f64>,
) -> Vec<Series> {
    let Some(of) = &found.time_series else { return Vec::new() };
    let point = |bin| Some(Point::new((bin as f64 + 0.5) * of.bin_secs, read(of, bin)?));
    let points = (0..of.goodput_rps.len()).filter_map(point).collect();
    vec![Series::new(label, colour, Kind::Thin, points)]
}

/// What was published of one figure: a curve, and a line from side to side for each row without clients.
fn published(
    found: &WorkloadFindings,
    label: &str,
    colour: Colour,
    read: fn(&AuditedRow) -> Option<f64>,
) -> Vec<Series> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let curve = sweep.rows.iter().filter_map(|row| {
        Some(Point { usable: !row.off(), ..Point::new(row.printed.clients?.into(), read(row)?) })
    });
    let mut all = vec![Series::new(label, colour, Kind::Published, curve.collect())];
    let levels = levels(found);
    let peaks = sweep.rows.iter().filter(|row| row.printed.clients.is_none()).filter_map(read);
    all.extend(peaks.map(|value| Series::new(label, colour, Kind::PublishedPeak, across(&levels, value))));
    all.retain(|series| !series.points.is_empty());
    all
}

/// All levels, published ones too, ascending.
pub(super) fn levels(found: &WorkloadFindings) -> Vec<u32> {
    let printed = found.printed.iter().flat_map(|sweep| &sweep.rows).filter_map(|row| row.printed.clients);
    let all: BTreeSet<u32> = found.rows.iter().map(|row| row.level).chain(printed).collect();
    all.into_iter().filter(|level| *level > 0).collect()
}
