//! The curves of a workload: what each panel of the plots shows, as points with a name and a colour.
//!
//! How they are drawn is the business of [`super::plots`].

use super::beside;
use crate::lab::analysis::rows::Use;
use crate::lab::analysis::{AuditedRow, Capacity, Row, WorkloadFindings};
use crate::lab::results::ResourceKind;
use crate::units::short;
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
    /// Printed by somebody: dashed, with squares.
    Printed,
    /// Printed without a number of clients: dashed, from side to side.
    PrintedPeak,
    /// Computed: a thin line that the axis does not follow.
    Bound,
    /// Measured second by second: a line without dots.
    Course,
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

/// A colour by what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Axes and their text.
    Ink,
    /// What was not measured: bounds, the knee, the generator.
    Soft,
    /// Lines of the grid.
    Grid,
    /// What is under the drawing; it fills hollow points.
    Paper,
    /// Series, counted from 0; after the last the first again.
    Series(usize),
}

pub(super) fn throughput(found: &WorkloadFindings) -> Vec<Series> {
    let goodput = (found.rows.iter())
        .filter_map(|row| {
            let of = row.goodput_rps?;
            let interval = (of.low < of.high).then_some((of.low, of.high));
            Some(Point { interval, ..point(row, of.mean) })
        })
        .collect();
    let mut all = Vec::new();
    let ends = found.rows.first().zip(found.rows.last());
    if let Some(((first, last), rps)) = ends.zip(found.capacity.rps()) {
        let thin = |clients: f64, value: f64| Point { at: clients, value, interval: None, usable: true };
        let (first, last) = (f64::from(first.level), f64::from(last.level));
        if let Some(us) = found.cycle_us_alone().filter(|us| *us > 0.0) {
            // A straight line through the origin is a curve on an axis of ratios.
            let steps = 64;
            let at = |i: i32| first.max(0.5) * (last / first.max(0.5)).powf(f64::from(i) / f64::from(steps));
            let bound = (0..=steps).map(|i| thin(at(i), at(i) / us * 1e6)).collect();
            all.push(Series {
                label: "N / R(1)".into(),
                colour: Colour::Soft,
                kind: Kind::Bound,
                points: bound,
            });
        }
        if matches!(found.capacity, Capacity::Reached { .. }) {
            let points = vec![thin(first, rps.mean), thin(last, rps.mean)];
            let label = format!("capacity {}", short(rps.mean));
            all.push(Series { label, colour: Colour::Soft, kind: Kind::Bound, points });
        }
    }
    let colour = Colour::Series(0);
    all.push(Series { label: "goodput".into(), colour, kind: Kind::Measured, points: goodput });
    all.extend(printed(found, "printed", colour, |row| Some(row.printed.throughput_rps?.value)));
    all
}

/// A line of the latency panel: its name, its colour, and its figure of a row.
type Rank = (&'static str, Colour, fn(&Row) -> Option<f64>);

pub(super) fn latency(found: &WorkloadFindings) -> Vec<Series> {
    const RANKS: [Rank; 4] = [
        ("mean", Colour::Series(2), |row| row.latency_us_mean),
        ("p50", Colour::Series(0), |row| row.latency_us_p50),
        ("p99", Colour::Series(1), |row| row.latency_us_p99),
        ("p99.9", Colour::Series(3), |row| row.latency_us_p999),
    ];
    let series = |(label, colour, read): &Rank| Series {
        label: (*label).to_owned(),
        colour: *colour,
        kind: Kind::Measured,
        points: found.rows.iter().filter_map(|row| Some(point(row, read(row)?))).collect(),
    };
    let mut all: Vec<Series> = RANKS.iter().map(series).collect();
    all.extend(printed(found, "printed mean", RANKS[0].1, beside::latency_us));
    all
}

pub(super) fn utilization(found: &WorkloadFindings) -> Vec<Series> {
    let Some(first) = found.rows.first() else { return Vec::new() };
    let mut colours = 0..;
    let used = |i: usize| found.rows.iter().any(|row| row.uses(i));
    let mut all: Vec<Series> = (first.resources.iter().enumerate())
        .map(|(i, resource)| Series {
            label: match resource.kind {
                ResourceKind::Indication => format!("({})", resource.name),
                ResourceKind::Station | ResourceKind::Pool | ResourceKind::Cap | ResourceKind::Generator => {
                    resource.name.clone()
                }
            },
            colour: match resource.kind {
                ResourceKind::Station | ResourceKind::Pool | ResourceKind::Cap => {
                    Colour::Series(colours.next().unwrap_or(0))
                }
                ResourceKind::Generator | ResourceKind::Indication => Colour::Soft,
            },
            kind: Kind::Measured,
            points: (found.rows.iter())
                .filter(|_| used(i))
                .filter_map(|row| Some(point(row, row.resources.get(i)?.utilization?)))
                .collect(),
        })
        .collect();
    // A printed use has the colour of what it stands beside; the last one where we measure no such thing.
    let beside = |of: Option<&Use>| {
        let i = of.and_then(|of| first.resources.iter().position(|other| other.name == of.name));
        i.map_or(Colour::Series(4), |i| all[i].colour)
    };
    let (cpu, disk) = (beside(beside::server_cpu(first)), beside(beside::disk(first)));
    all.extend(printed(found, "printed CPU", cpu, |row| Some(row.printed.server_cpu_pct?.value / 100.0)));
    all.extend(printed(found, "printed disk", disk, |row| Some(row.printed.disk_util_pct?.value / 100.0)));
    all.retain(|series| !series.points.is_empty());
    all
}

pub(super) fn goodput_course(found: &WorkloadFindings) -> Vec<Series> {
    let values = found.course.iter().flat_map(|course| course.goodput_rps.iter().copied().map(Some));
    vec![course("goodput", Colour::Series(0), values)]
}

pub(super) fn latency_course(found: &WorkloadFindings) -> Vec<Series> {
    let values = found.course.iter().flat_map(|course| course.latency_us_mean.iter().copied());
    vec![course("mean", Colour::Series(2), values)]
}

/// A figure at the middle of every second.
fn course(label: &str, colour: Colour, values: impl Iterator<Item = Option<f64>>) -> Series {
    let point = |(second, value): (usize, Option<f64>)| {
        Some(Point { at: second as f64 + 0.5, value: value?, interval: None, usable: true })
    };
    let points = values.enumerate().filter_map(point).collect();
    Series { label: label.to_owned(), colour, kind: Kind::Course, points }
}

/// What is printed of one figure: a curve, and a line from side to side for each row without clients.
fn printed(
    found: &WorkloadFindings,
    label: &str,
    colour: Colour,
    read: fn(&AuditedRow) -> Option<f64>,
) -> Vec<Series> {
    let Some(sweep) = &found.printed else { return Vec::new() };
    let place = |clients: u32, value: f64, usable: bool| Point {
        at: f64::from(clients),
        value,
        interval: None,
        usable,
    };
    let curve = (sweep.rows.iter())
        .filter_map(|row| Some(place(row.printed.clients?, read(row)?, !row.off())))
        .collect();
    let mut all = vec![Series { label: label.to_owned(), colour, kind: Kind::Printed, points: curve }];
    let levels = levels(found);
    if let (Some(first), Some(last)) = (levels.first(), levels.last()) {
        let peaks = sweep.rows.iter().filter(|row| row.printed.clients.is_none()).filter_map(read);
        all.extend(peaks.map(|value| Series {
            label: label.to_owned(),
            colour,
            kind: Kind::PrintedPeak,
            points: vec![place(*first, value, true), place(*last, value, true)],
        }));
    }
    all.retain(|series| !series.points.is_empty());
    all
}

/// All levels, printed ones too, ascending.
pub(super) fn levels(found: &WorkloadFindings) -> Vec<u32> {
    let printed = found.printed.iter().flat_map(|sweep| &sweep.rows).filter_map(|row| row.printed.clients);
    let all: BTreeSet<u32> = found.rows.iter().map(|row| row.level).chain(printed).collect();
    all.into_iter().filter(|level| *level > 0).collect()
}

fn point(row: &Row, value: f64) -> Point {
    Point { at: f64::from(row.level), value, interval: None, usable: row.usable() }
}
