//! The curves of a workload: what each panel of the plots shows, as points with a name and a colour.
//!
//! How they are drawn is the business of [`super::plots`].

use super::beside;
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
    /// Printed by somebody: dashed, with squares.
    Printed,
    /// Printed without a number of clients: dashed, from side to side.
    PrintedPeak,
    /// Computed: a thin line that the axis does not follow.
    Bound,
    /// Measured second by second: a line without dots.
    Course,
    /// Measured: a band between the ends of its points' intervals.
    Area(Fill),
    /// Measured: dots alone.
    Dots,
}

/// How a band is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Who waits.
    Full,
    /// Who is served.
    Light,
    /// What is only background.
    Pale,
    /// What nobody can tell.
    Hatched,
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
    let is_shown = |i: usize| {
        found
            .rows
            .iter()
            .any(|row| row.uses(i) && row.resources[i].utilization.is_some_and(|u| u >= SHOWN_MIN))
    };
    (first.resources.iter().zip(colours(first)).enumerate())
        .map(|(i, (resource, colour))| Series {
            label: match resource.kind {
                ResourceKind::Indication => format!("({})", resource.name),
                _ => resource.name.clone(),
            },
            colour,
            kind: Kind::Measured,
            points: (found.rows.iter())
                .filter(|_| is_shown(i))
                .filter_map(|row| Some(point(row, read(row.resources.get(i)?)?)))
                .collect(),
        })
        .collect()
}

pub(super) fn demand(found: &WorkloadFindings) -> Vec<Series> {
    by_resource(found, |of| of.demand_us.filter(|us| *us > 0.0))
}

pub(super) fn utilization(found: &WorkloadFindings) -> Vec<Series> {
    let Some(first) = found.rows.first() else { return Vec::new() };
    let mut all = by_resource(found, |of| of.utilization);
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

/// A share of the clients: who waits in front of a resource or is in it, and how the band is filled.
struct Share {
    label: String,
    colour: Colour,
    fill: Fill,
    read: Box<dyn Fn(&Population) -> f64>,
}

/// A band that is never wider than this is one with the others.
const BAND_MIN: f64 = 0.02;

/// Bands that add up to all clients, those in places first, in the order of a request's way.
pub(super) fn places(found: &WorkloadFindings) -> Vec<Series> {
    let told: Vec<(&Row, &Population)> =
        found.rows.iter().filter_map(|row| Some((row, row.population.as_ref()?))).collect();
    let Some((first, of_first)) = told.first() else { return Vec::new() };
    let colours = colours(first);
    let mut shares: Vec<Share> = Vec::new();
    for place in of_first.places.iter().filter(|place| !place.inner) {
        let name = &place.resource;
        let known = first.resources.iter().position(|of| of.name == *name);
        let colour = known.map_or(Colour::Soft, |i| colours[i]);
        let part = |of: fn(&Place) -> Option<f64>| {
            let name = name.clone();
            Box::new(move |population: &Population| {
                let place = population.places.iter().find(|place| place.resource == name);
                place.and_then(of).unwrap_or(0.0).max(0.0)
            })
        };
        let (before, within) = (format!("before {name}"), format!("in {name}"));
        shares.push(Share { label: before, colour, fill: Fill::Full, read: part(|of| of.waiting) });
        shares.push(Share { label: within, colour, fill: Fill::Light, read: part(|of| of.serving) });
    }
    shares.push(Share {
        label: "thinking or resting".into(),
        colour: Colour::Soft,
        fill: Fill::Light,
        read: Box::new(|population| population.away.max(0.0)),
    });
    let share = |population: &Population, of: &Share| (of.read)(population) / population.clients;
    let wide = |of: &&Share| told.iter().any(|(_, population)| share(population, of) >= BAND_MIN);
    let (wide, narrow): (Vec<&Share>, Vec<&Share>) = shares.iter().partition(wide);

    let mut all: Vec<Series> = Vec::new();
    let mut ground = vec![0.0; told.len()];
    let mut band = |label: &str, colour: Colour, fill: Fill, of_row: &dyn Fn(&Population) -> f64| {
        let mut points = Vec::new();
        for ((row, population), ground) in told.iter().zip(&mut ground) {
            let (low, high) = (*ground, *ground + of_row(population));
            points.push(Point { interval: Some((low, high)), ..point(row, high) });
            *ground = high;
        }
        // What is nowhere more than a line needs no name.
        let is_seen =
            points.iter().any(|point| point.interval.is_some_and(|(low, high)| high - low >= BAND_MIN));
        if is_seen {
            all.push(Series { label: label.to_owned(), colour, kind: Kind::Area(fill), points });
        }
    };
    for of in wide {
        band(&of.label, of.colour, of.fill, &|population| share(population, of));
    }
    let rest = |population: &Population| narrow.iter().map(|of| share(population, of)).sum();
    band("elsewhere", Colour::Soft, Fill::Light, &rest);
    let unlocated = |population: &Population| (population.unlocated / population.clients).max(0.0);
    band("not located", Colour::Soft, Fill::Hatched, &unlocated);
    all
}

/// Time in which something waited for the machine or was held back by a quota or a cap.
pub(super) fn pressure(found: &WorkloadFindings) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for figure in FIGURES.iter().filter(|figure| figure.group == Group::Pressure) {
        let of_figure = found.rows.iter().flat_map(|row| &row.figures).filter(|of| of.figure == figure.name);
        let owners: BTreeSet<&str> = of_figure.map(|of| of.of.as_str()).collect();
        for owner in owners {
            let read = |row: &Row| {
                let of = row.figures.iter().find(|of| of.figure == figure.name && of.of == owner)?;
                Some(point(row, of.value))
            };
            let name = owner.trim_start_matches("pressure ");
            all.push(Series {
                label: format!("{name}: {}", figure.heading.0),
                colour: Colour::Series(all.len()),
                kind: Kind::Measured,
                points: found.rows.iter().filter_map(read).collect(),
            });
        }
    }
    all.retain(|series| series.points.iter().any(|point| point.value >= SHOWN_MIN));
    all
}

/// How far every row is from Little's law, on the band that gate G1 allows.
pub(super) fn residuals(found: &WorkloadFindings) -> Vec<Series> {
    const ALLOWED: f64 = 0.02;
    let points: Vec<Point> =
        found.rows.iter().filter_map(|row| Some(point(row, row.little_residual?))).collect();
    let band =
        |at: &Point| Point { at: at.at, value: ALLOWED, interval: Some((-ALLOWED, ALLOWED)), usable: true };
    let allowed = Series {
        label: "±2 %".into(),
        colour: Colour::Soft,
        kind: Kind::Area(Fill::Pale),
        points: points.iter().map(band).collect(),
    };
    vec![allowed, Series { label: "residual".into(), colour: Colour::Series(0), kind: Kind::Dots, points }]
}

pub(super) fn goodput_course(found: &WorkloadFindings) -> Vec<Series> {
    let values = found.course.iter().flat_map(|course| course.goodput_rps.iter().copied().map(Some));
    vec![course(found, "goodput", Colour::Series(0), values)]
}

pub(super) fn latency_course(found: &WorkloadFindings) -> Vec<Series> {
    let values = found.course.iter().flat_map(|course| course.latency_us_mean.iter().copied());
    vec![course(found, "mean", Colour::Series(2), values)]
}

/// A figure at the middle of every second.
fn course(
    found: &WorkloadFindings,
    label: &str,
    colour: Colour,
    values: impl Iterator<Item = Option<f64>>,
) -> Series {
    let secs = found.course.as_ref().map_or(1.0, |course| course.bin_secs);
    let point = |(bin, value): (usize, Option<f64>)| {
        Some(Point { at: (bin as f64 + 0.5) * secs, value: value?, interval: None, usable: true })
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
