//! The curves of a workload: what each panel of the plots shows, as points with a name and a colour.
//!
//! How they are drawn is the business of [`super::plots`].

use super::published::{disk, latency_us, server_cpu};
use super::svg::Colour;
use kv::units::short;
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, Capacity, FIGURES, Group, Place, Population, Row, WorkloadFindings};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Measured: a thick line with dots.
    Measured,
    /// Published by somebody: dashed, with squares.
    Published,
    /// Published without a number of clients: dashed, from side to side.
    PublishedPeak,
    /// Computed: a thin line, left out where it is far above all that was measured.
    Ceiling,
    /// Measured second by second: a line without dots.
    TimeSeries,
    /// Measured: a band between the ends of its points' intervals.
    Area(Fill),
    /// Measured: dots alone.
    Dots,
}

/// How a band is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Clients that wait.
    Full,
    /// Clients that are served.
    Light,
    /// Background, and what is unaccounted for.
    Pale,
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
        all.push(Series::new(label, Colour::Soft, Kind::Area(Fill::Light), band));
    }
    let levels = levels(found);
    all.extend(found.ceilings.iter().map(|of| {
        let points = across(&levels, of.ceiling_rps);
        Series::new(format!("{} full", of.resource), Colour::Soft, Kind::Ceiling, points)
    }));
    let colour = Colour::Series(0);
    let points = found.rows.iter().filter_map(|row| {
        let of = row.goodput_rps?;
        Some(Point { interval: (of.low < of.high).then_some((of.low, of.high)), ..Point::of(row, of.mean) })
    });
    all.push(Series::new("goodput", colour, Kind::Measured, points.collect()));
    all.extend(published(found, "published", colour, |row| Some(row.printed.throughput_rps?.value)));
    all
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

/// The colour of every resource, the same in all panels.
fn colours(row: &Row) -> Vec<Colour> {
    let mut counted = 0..;
    let colour = |of: &Use| match of.kind {
        ResourceKind::Station | ResourceKind::Pool | ResourceKind::Cap => {
            Colour::Series(counted.next().unwrap_or(0))
        }
        ResourceKind::Generator | ResourceKind::Indication => Colour::Soft,
    };
    row.resources.iter().map(colour).collect()
}

/// A line for each resource that is busy at all, by one of its figures.
fn by_resource(found: &WorkloadFindings, read: fn(&Use) -> Option<f64>) -> Vec<Series> {
    let Some(first) = found.rows.first() else { return Vec::new() };
    let is_busy = |row: &Row, i: usize| row.uses(i) && row.resources[i].utilization >= Some(SHOWN_MIN);
    let of_resource = |(i, (resource, colour)): (usize, (&Use, Colour))| {
        let label = match resource.kind {
            ResourceKind::Indication => format!("({})", resource.name),
            _ => resource.name.clone(),
        };
        let is_shown = found.rows.iter().any(|row| is_busy(row, i));
        Series::measured(found, label, colour, |row| read(row.resources.get(i).filter(|_| is_shown)?))
    };
    first.resources.iter().zip(colours(first)).enumerate().map(of_resource).collect()
}

pub(super) fn demand(found: &WorkloadFindings) -> Vec<Series> {
    by_resource(found, |of| of.demand_us.filter(|us| *us > 0.0))
}

pub(super) fn utilization(found: &WorkloadFindings) -> Vec<Series> {
    let Some(first) = found.rows.first() else { return Vec::new() };
    let mut all = by_resource(found, |of| of.utilization);
    // A published figure has the colour of the measured one.
    let beside = |of: Option<&Use>| {
        let i = of.and_then(|of| first.resources.iter().position(|other| other.name == of.name));
        i.map_or(Colour::Series(4), |i| all[i].colour)
    };
    let (cpu, disk) = (beside(server_cpu(first)), beside(disk(first)));
    all.extend(published(found, "published CPU", cpu, |row| Some(row.printed.server_cpu_pct?.value / 100.0)));
    all.extend(published(found, "published disk", disk, |row| {
        Some(row.printed.disk_util_pct?.value / 100.0)
    }));
    all.retain(|series| !series.points.is_empty());
    all
}

/// A share of the clients: those that wait for a resource, or that it serves.
struct Band {
    label: String,
    colour: Colour,
    fill: Fill,
    /// 0–1, at every level.
    shares: Vec<f64>,
}

impl Band {
    /// Whether it is wide enough at some level to be named.
    fn is_wide(&self) -> bool {
        const WIDE_MIN: f64 = 0.02;
        self.shares.iter().any(|share| *share >= WIDE_MIN)
    }
}

/// Bands that add up to all clients: those at the resources, in the order of a request's way, then all others.
pub(super) fn clients(found: &WorkloadFindings) -> Vec<Series> {
    let counted: Vec<(&Row, &Population)> =
        found.rows.iter().filter_map(|row| Some((row, row.population.as_ref()?))).collect();
    let Some((first, of_first)) = counted.first() else { return Vec::new() };
    let band = |label: String, colour, fill, read: &dyn Fn(&Population) -> f64| {
        let shares = counted.iter().map(|(_, of)| (read(of) / of.clients).max(0.0)).collect();
        Band { label, colour, fill, shares }
    };
    let colours = colours(first);
    let mut bands = Vec::new();
    for place in of_first.places.iter().filter(|place| !place.inner) {
        let name = &place.resource;
        let known = first.resources.iter().position(|of| of.name == *name);
        let colour = known.map_or(Colour::Soft, |i| colours[i]);
        let at = |of: &Population, read: fn(&Place) -> Option<f64>| {
            of.places.iter().find(|place| place.resource == *name).and_then(read).unwrap_or(0.0)
        };
        bands.push(band(format!("before {name}"), colour, Fill::Full, &|of| at(of, |place| place.waiting)));
        bands.push(band(format!("in {name}"), colour, Fill::Light, &|of| at(of, |place| place.serving)));
    }
    bands.push(band("thinking or resting".into(), Colour::Soft, Fill::Light, &|of| of.away));
    let (mut bands, narrow): (Vec<Band>, Vec<Band>) = bands.into_iter().partition(Band::is_wide);
    let sum = |level: usize| narrow.iter().map(|of| of.shares[level]).sum();
    let (colour, fill) = (Colour::Soft, Fill::Light);
    bands.push(Band {
        label: "elsewhere".into(),
        colour,
        fill,
        shares: (0..counted.len()).map(sum).collect(),
    });
    bands.push(band("unaccounted".into(), Colour::Soft, Fill::Pale, &|of| of.unaccounted));

    let mut ground = vec![0.0; counted.len()];
    let stacked = bands.into_iter().filter_map(|band| {
        let mut points = Vec::new();
        for (((row, _), ground), share) in counted.iter().zip(&mut ground).zip(&band.shares) {
            let low = *ground;
            *ground += share;
            points.push(Point { interval: Some((low, *ground)), ..Point::of(row, *ground) });
        }
        let is_wide = band.is_wide();
        is_wide.then(|| Series::new(band.label, band.colour, Kind::Area(band.fill), points))
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
    let allowed = Series::new("±2 %", Colour::Soft, Kind::Area(Fill::Pale), band);
    vec![allowed, Series { kind: Kind::Dots, ..residual }]
}

pub(super) fn goodput_by_second(found: &WorkloadFindings) -> Vec<Series> {
    let values = found.time_series.iter().flat_map(|series| series.goodput_rps.iter().copied().map(Some));
    vec![by_second(found, "goodput", Colour::Series(0), values)]
}

pub(super) fn latency_by_second(found: &WorkloadFindings) -> Vec<Series> {
    let values = found.time_series.iter().flat_map(|series| series.latency_us_mean.iter().copied());
    vec![by_second(found, "mean", Colour::Series(2), values)]
}

/// A figure at the middle of every second.
fn by_second(
    found: &WorkloadFindings,
    label: &str,
    colour: Colour,
    values: impl Iterator<Item = Option<f64>>,
) -> Series {
    let secs = found.time_series.as_ref().map_or(1.0, |series| series.bin_secs);
    let points =
        values.enumerate().filter_map(|(bin, value)| Some(Point::new((bin as f64 + 0.5) * secs, value?)));
    Series::new(label, colour, Kind::TimeSeries, points.collect())
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
