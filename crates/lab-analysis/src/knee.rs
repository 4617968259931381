//! Where more clients stop paying, by four methods.
//!
//! Works on rows alone, sorted by clients, like [`super::capacity`].

use super::capacity::{Capacity, LEVELS};
use super::rows::{OfRun, Row, usable};
use stats::{DRAWS, Draws, Interval, RUNS_LEAST, mean, percentiles, range, widened};

/// Where more clients stop paying, by four methods that should agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The headline, in clients: capacity × (the latency at the lowest level + think time), where the two asymptotic bounds cross.
    ///
    /// Source: Denning & Buzen, The Operational Analysis of Queueing Network Models (1978).
    pub clients: f64,
    /// Where a line through the origin and a flat one, fitted together, meet: X = min(aN, C).
    pub broken_stick: Option<f64>,
    /// The level with the most goodput per latency, X / R.
    ///
    /// Source: Kleinrock, Power and Deterministic Rules of Thumb for Probabilistic Problems (1979).
    pub power: Option<f64>,
    /// The level that is furthest above the diagonal of the swept range; it moves with that range.
    ///
    /// Source: Satopää et al., Finding a “Kneedle” in a Haystack (2011).
    pub kneedle: Option<f64>,
    /// How far other runs would have moved them.
    pub spread: KneeSpread,
    /// The first and last level the methods saw.
    pub swept: (u32, u32),
    /// Whether all four lie within a factor of two; where not, there is no sharp knee.
    pub sharp: bool,
    /// The valid level nearest to the knee, on a scale of ratios; what is said of latency at the knee was measured there.
    pub nearest_level: u32,
}

/// Between which the four estimates of a knee lie, in clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KneeSpread {
    /// What the ends are. A range is that of the knees of single runs, each run number of all levels together.
    pub interval: Interval,
    /// Of the headline.
    pub clients: (f64, f64),
    /// Of the broken stick.
    pub broken_stick: Option<(f64, f64)>,
    /// Of the power.
    pub power: Option<(f64, f64)>,
    /// Of Kneedle.
    pub kneedle: Option<(f64, f64)>,
}

/// At the lowest level, where that is more than one client, goodput is at most this share of the capacity: nobody waits there yet.
const UNLOADED: f64 = 0.5;

/// Where more clients stop paying. `None` while goodput still rises at the highest level, where fewer than three levels were measured, or
/// the lowest has too many clients to tell how long a request takes without a queue.
///
/// `seed` draws the bootstrap: the same draws as those of the capacity.
pub fn knee(rows: &[Row], capacity: &Capacity, seed: u64) -> Option<Knee> {
    let (Capacity::Reached { rps, .. } | Capacity::NotReached { rps, rising: false, .. }) = capacity else {
        return None;
    };
    let levels = capacity.levels();
    let usable: Vec<&Row> = usable(rows).collect();
    let points: Vec<Point> = usable.iter().filter_map(|row| Point::of(row)).collect();
    let Estimates { broken_stick, power, kneedle, .. } = Estimates::of(&points, levels);
    let alone = points.first().filter(|_| points.len() >= LEVELS)?;
    if alone.clients > 1.0 && alone.goodput_rps > UNLOADED * rps.mean {
        return None;
    }
    let clients = Some(rps.mean * alone.cycle_us / 1e6).filter(|clients| *clients > 0.0)?;
    let (least, most) = range([Some(clients), broken_stick, power, kneedle].into_iter().flatten())?;
    let distance = |row: &Row| (f64::from(row.level) / clients).ln().abs();
    let nearest = usable.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some(Knee {
        clients,
        broken_stick,
        power,
        kneedle,
        spread: spread(&usable, levels, clients, broken_stick, seed),
        swept: (usable.first()?.level, usable.last()?.level),
        sharp: most <= 2.0 * least,
        nearest_level: nearest.level,
    })
}

/// The four estimates again, of runs drawn anew; of fewer than three, of single ones.
fn spread(
    usable: &[&Row],
    plateau: &[u32],
    clients: f64,
    broken_stick: Option<f64>,
    seed: u64,
) -> KneeSpread {
    let there: Vec<&&Row> = usable.iter().filter(|row| !row.of_runs.is_empty()).collect();
    let runs = |row: &&&Row| row.of_runs.len();
    let (least, most) =
        (there.iter().map(runs).min().unwrap_or(0), there.iter().map(runs).max().unwrap_or(0));
    let of = |drawn: &dyn Fn(usize, &Row) -> Option<Point>| {
        let points = there.iter().enumerate().filter_map(|(i, row)| drawn(i, row));
        Estimates::of(&points.collect::<Vec<_>>(), plateau)
    };
    let (interval, all): (Interval, Vec<Estimates>) = if least < RUNS_LEAST {
        let single = |k: usize| of(&|_, row| Point::drawn(row, &[k % row.of_runs.len()]));
        let interval = if most < 2 { Interval::Single } else { Interval::Range };
        (interval, (0..most).map(single).collect())
    } else {
        let draws: Vec<Draws> =
            there.iter().map(|row| Draws::of(seed, row.level, row.of_runs.len())).collect();
        let drawn = |k: usize| of(&|i, row| Point::drawn(row, draws[i].drawn(k)));
        (Interval::Bootstrap, (0..DRAWS).map(drawn).collect())
    };
    let ends = |read: fn(&Estimates) -> Option<f64>| {
        let values = all.iter().filter_map(read);
        if interval == Interval::Bootstrap { percentiles(values.collect()) } else { range(values) }
    };
    // What is read off a straight line or a mean is widened as a mean is; a level is one that was measured.
    let freedom = |row: &&&Row| {
        if plateau.contains(&row.level) || row.level == usable[0].level { runs(row) - 1 } else { 0 }
    };
    let freedom: usize = there.iter().map(freedom).sum();
    let widened = |middle: f64, ends: (f64, f64)| match interval {
        Interval::Bootstrap => {
            let (low, high) = widened(middle, ends, least, freedom);
            (low.max(0.0), high)
        }
        _ => ends,
    };
    KneeSpread {
        interval,
        clients: ends(|of| of.clients).map_or((clients, clients), |ends| widened(clients, ends)),
        broken_stick: broken_stick.and_then(|at| Some(widened(at, ends(|of| of.broken_stick)?))),
        power: ends(|of| of.power),
        kneedle: ends(|of| of.kneedle),
    }
}

/// A level as the estimates see it.
struct Point {
    clients: f64,
    goodput_rps: f64,
    latency_us: Option<f64>,
    cycle_us: f64,
}

impl Point {
    /// Of all runs of a row.
    fn of(row: &Row) -> Option<Point> {
        Some(Point {
            clients: f64::from(row.level),
            goodput_rps: row.goodput_rps?.mean,
            latency_us: row.latency_us_mean,
            cycle_us: row.cycle_us().unwrap_or(f64::NAN),
        })
    }

    /// Of some of them, by their places.
    fn drawn(row: &Row, runs: &[usize]) -> Option<Point> {
        let goodput: Vec<f64> = runs.iter().map(|run| row.goodput_rps_of_runs[*run]).collect();
        let attempts: u64 = runs.iter().map(|run| row.of_runs[*run].attempts).sum();
        // As in the row: over all attempts of all runs.
        let over_all = |figure: fn(&OfRun) -> f64| {
            let total: f64 =
                runs.iter().map(|run| &row.of_runs[*run]).map(|of| figure(of) * of.attempts as f64).sum();
            total / attempts as f64
        };
        let latency_us = over_all(|of| of.latency_us_mean);
        Some(Point {
            clients: f64::from(row.level),
            goodput_rps: mean(&goodput)?,
            latency_us: Some(latency_us).filter(|us| us.is_finite()),
            cycle_us: latency_us + over_all(|of| of.think_us_mean),
        })
    }
}

/// The knee of one set of points, four times.
struct Estimates {
    clients: Option<f64>,
    broken_stick: Option<f64>,
    power: Option<f64>,
    kneedle: Option<f64>,
}

impl Estimates {
    fn of(points: &[Point], plateau: &[u32]) -> Estimates {
        let on_it =
            points.iter().filter(|point| plateau.iter().any(|level| f64::from(*level) == point.clients));
        let capacity = mean(on_it.map(|point| point.goodput_rps));
        let alone = points.first();
        let clients = capacity.zip(alone).map(|(rps, alone)| rps * alone.cycle_us / 1e6);
        let swept: Vec<(f64, f64)> = points.iter().map(|point| (point.clients, point.goodput_rps)).collect();
        Estimates {
            clients: clients.filter(|clients| clients.is_finite()),
            broken_stick: broken_stick(&swept),
            power: power(points),
            kneedle: kneedle(&swept),
        }
    }
}

/// Fits X = min(aN, C) in ratios and gives C / a. `None` of fewer than three points.
fn broken_stick(points: &[(f64, f64)]) -> Option<f64> {
    if points.len() < 3 || points.iter().any(|(_, x)| *x <= 0.0) {
        return None;
    }
    let fit = |split: usize| {
        let slopes: Vec<f64> = points[..split].iter().map(|(n, x)| (x / n).ln()).collect();
        let ceilings: Vec<f64> = points[split..].iter().map(|(_, x)| x.ln()).collect();
        let (slope, ceiling) = (mean(&slopes)?, mean(&ceilings)?);
        let miss = |(n, x): &(f64, f64)| (x.ln() - (slope + n.ln()).min(ceiling)).powi(2);
        Some((points.iter().map(miss).sum::<f64>(), (ceiling - slope).exp()))
    };
    (1..points.len()).filter_map(fit).min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, clients)| clients)
}

fn power(points: &[Point]) -> Option<f64> {
    let power = |point: &Point| Some(point.goodput_rps / point.latency_us.filter(|us| *us > 0.0)?);
    let powers = points.iter().filter_map(|point| Some((point.clients, power(point)?)));
    powers.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(clients, _)| clients)
}

fn kneedle(points: &[(f64, f64)]) -> Option<f64> {
    let (first, last) = (points.first()?.0, points.last()?.0);
    let (least, most) = range(points.iter().map(|(_, x)| *x))?;
    if points.len() < 3 || most <= least {
        return None;
    }
    let above = |(n, x): &(f64, f64)| (x - least) / (most - least) - (n - first) / (last - first);
    points.iter().max_by(|a, b| above(a).total_cmp(&above(b))).map(|(n, _)| *n)
}
