//! The curves of a workload: what each panel of the plots shows, as points with a name and a colour.
//!
//! How they are drawn is the business of [`super::plots`].

use super::published::latency_us;
use super::svg::Colour;
use kv::units::short;
use lab_analysis::rows::Use;
use lab_analysis::{AuditedRow, Capacity, Estimate, Row, TimeSeries, WorkloadFindings};
use lab_data::results::ResourceKind;
use std::collections::BTreeSet;
use std::iter;

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
    /// A band between the ends of the points' intervals.
    Band,
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
    /// A series.
    pub fn new(label: impl Into<String>, colour: Colour, kind: Kind, points: Vec<Point>) -> Series {
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
    /// A valid point without an interval.
    pub fn new(at: f64, value: f64) -> Point {
        Point { at, value, interval: None, usable: true }
    }

    fn of(row: &Row, value: f64) -> Point {
        Point { usable: row.usable(), ..Point::new(row.level.into(), value) }
    }

    /// A figure of a row, with its interval.
    pub(super) fn over_runs(row: &Row, of: &Estimate) -> Point {
        let interval = (of.low < of.high).then_some((of.low.max(0.0), of.high));
        Point { interval, ..Point::of(row, of.mean) }
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
        all.push(Series::new(label, Colour::Soft, Kind::Band, band));
    }
    let colour = Colour::Series(0);
    let points = found.rows.iter().filter_map(|row| Some(Point::over_runs(row, row.goodput_rps.as_ref()?)));
    all.push(Series::new("goodput", colour, Kind::Measured, points.collect()));
    all.extend(published(found, "published", colour, |row| Some(row.printed.throughput_rps?.value)));
    // One far above all that was measured is left out, so that it does not press the curves down.
    const CEILING_MAX: f64 = 1.6;
    let ends = all.iter().flat_map(|of| &of.points).map(|of| of.interval.map_or(of.value, |(_, high)| high));
    let most = ends.fold(0.0, f64::max);
    let levels = levels(found);
    let candidates = found.bottleneck.candidates.iter();
    let ceilings = candidates.filter_map(|of| Some((&of.resource, found.bottleneck.full_at(of)?)));
    let ceilings = ceilings.filter(|(_, rps)| *rps <= CEILING_MAX * most).map(|(name, rps)| {
        Series::new(format!("{name} 100 %"), Colour::Soft, Kind::Thin, across(&levels, rps))
    });
    ceilings.chain(all).collect()
}

/// Percentiles; where somebody published means, also the mean and theirs.
pub(super) fn latency(found: &WorkloadFindings) -> Vec<Series> {
    const RANKS: [(&str, Colour, fn(&Row) -> Option<f64>); 4] = [
        ("p50", Colour::Series(0), |row| row.latency_us_p50),
        ("p99", Colour::Series(1), |row| row.latency_us_p99),
        ("p99.9", Colour::Series(3), |row| row.latency_us_p999),
        ("mean", Colour::Series(2), |row| row.latency_us_mean),
    ];
    let shown = if found.printed.is_some() { &RANKS[..] } else { &RANKS[..3] };
    let measured = shown.iter().map(|(label, colour, read)| Series::measured(found, *label, *colour, read));
    measured.chain(published(found, "published mean", RANKS[3].1, latency_us)).collect()
}

/// What is never busier than this is a line on the ground: the table has it.
const SHOWN_MIN: f64 = 0.02;

/// A line for each resource that is busy at all.
pub(super) fn utilization(found: &WorkloadFindings) -> Vec<Series> {
    let resources = found.rows.first().map_or(&[][..], |row| &row.resources);
    let of_resource = |(i, resource): (usize, &Use)| {
        // The colour of a resource is that of its index in the results.
        let (label, colour) = match resource.kind {
            ResourceKind::Indication => (format!("({})", resource.name), Colour::Soft),
            ResourceKind::Generator => (resource.name.clone(), Colour::Soft),
            ResourceKind::Station | ResourceKind::Pool | ResourceKind::Cap => {
                (resource.name.clone(), Colour::Series(i))
            }
        };
        let read = |row: &Row| row.resources.get(i)?.utilization;
        let is_busy = |row: &Row| row.uses(i) && read(row) >= Some(SHOWN_MIN);
        let is_shown = found.rows.iter().any(is_busy);
        is_shown.then(|| Series::measured(found, label, colour, read))
    };
    let cpu = |row: &AuditedRow| Some(row.printed.server_cpu_pct?.value / 100.0);
    let disk = |row: &AuditedRow| Some(row.printed.disk_util_pct?.value / 100.0);
    let mut all: Vec<Series> = resources.iter().enumerate().filter_map(of_resource).collect();
    all.extend(published(found, "published CPU", Colour::Series(4), cpu));
    all.extend(published(found, "published disk", Colour::Series(5), disk));
    all
}

pub(super) fn goodput_by_second(found: &WorkloadFindings) -> Vec<Series> {
    by_second(found, "goodput", Colour::Series(0), |of, bin| of.goodput_rps.get(bin).copied())
}

pub(super) fn latency_by_second(found: &WorkloadFindings) -> Vec<Series> {
    by_second(found, "mean", Colour::Series(2), |of, bin| *of.latency_us_mean.get(bin)?)
}

/// A figure at the middle of every bin.
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
    let curve = Series::new(label, colour, Kind::Published, curve.collect());
    let levels = levels(found);
    let peaks = sweep.rows.iter().filter(|row| row.printed.clients.is_none()).filter_map(read);
    let peaks = peaks.map(|value| Series::new(label, colour, Kind::PublishedPeak, across(&levels, value)));
    iter::once(curve).chain(peaks).collect()
}

/// All levels, published ones too, ascending.
pub(super) fn levels(found: &WorkloadFindings) -> Vec<u32> {
    let printed = found.printed.iter().flat_map(|sweep| &sweep.rows).filter_map(|row| row.printed.clients);
    let all: BTreeSet<u32> = found.rows.iter().map(|row| row.level).chain(printed).collect();
    all.into_iter().filter(|level| *level > 0).collect()
}
