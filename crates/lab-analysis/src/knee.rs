//! Where more clients stop paying, by four methods.
//!
//! Works on rows alone, sorted by clients, like [`super::capacity`].

use super::capacity::{Capacity, LEVELS};
use super::rows::{Row, usable};
use stats::{Estimate, mean, range};

/// Where more clients stop paying, by four methods that should agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The headline, in clients: capacity × (the latency at the lowest level + think time), where the two asymptotic bounds cross.
    ///
    /// Source: Denning & Buzen, The Operational Analysis of Queueing Network Models (1978).
    pub clients: f64,
    /// Between which it lies, by the intervals of capacity and cycle; with fewer than three runs these are from the least to the most.
    ///
    /// Source: Zou & Donner, Construction of confidence limits about effect measures: a general approach (Statistics in Medicine 27,
    /// 2008), for the logarithm of the product.
    pub ends: (f64, f64),
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
    /// The first and last level the methods saw.
    pub swept: (u32, u32),
    /// Whether all four lie within a factor of two; where not, there is no sharp knee.
    pub sharp: bool,
    /// The valid level nearest to the knee, on a scale of ratios.
    pub nearest_level: u32,
}

/// At the lowest level, where that is more than one client, goodput is at most this share of the capacity: nobody waits there yet.
const UNLOADED: f64 = 0.5;

/// Where more clients stop paying. `None` while goodput still rises at the highest level, where fewer than three levels were measured, or
/// the lowest has too many clients to tell how long a request takes without a queue.
pub fn knee(rows: &[Row], capacity: &Capacity) -> Option<Knee> {
    let (Capacity::Reached { rps, .. } | Capacity::NotReached { rps, rising: false, .. }) = capacity else {
        return None;
    };
    let usable: Vec<&Row> = usable(rows).collect();
    let known: Vec<&Row> = usable.iter().copied().filter(|row| row.goodput_rps.is_some()).collect();
    let alone = known.first().filter(|_| known.len() >= LEVELS)?;
    if alone.level > 1 && alone.rps() > UNLOADED * rps.mean {
        return None;
    }
    let clients = Some(rps.mean * alone.cycle_us()? / 1e6).filter(|clients| *clients > 0.0)?;
    let (broken_stick, power, kneedle) = (broken_stick(&known), power(&known), kneedle(&known));
    let (least, most) = range([Some(clients), broken_stick, power, kneedle].into_iter().flatten())?;
    let distance = |row: &Row| (f64::from(row.level) / clients).ln().abs();
    let nearest = usable.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    Some(Knee {
        clients,
        ends: ends(clients, rps, alone),
        broken_stick,
        power,
        kneedle,
        swept: (usable.first()?.level, usable.last()?.level),
        sharp: most <= 2.0 * least,
        nearest_level: nearest.level,
    })
}

/// Between which the knee at `clients` lies, which is the product of the goodput `rps` and the cycle `alone`.
fn ends(clients: f64, rps: &Estimate, alone: &Row) -> (f64, f64) {
    let cycles: Vec<f64> = alone.of_runs.iter().map(|of| of.latency_us_mean + of.think_us_mean).collect();
    // Of one run each, levels may differ, and no spread is known.
    let known = [Some(*rps), Estimate::of(&cycles)].into_iter().flatten().filter(|of| of.runs > 1);
    let factors: Vec<Estimate> = known.collect();
    let away = |end: fn(&Estimate) -> f64| {
        let logs = factors.iter().map(|of| (end(of) / of.mean).max(0.0).ln());
        logs.map(|log| log.powi(2)).sum::<f64>().sqrt().exp()
    };
    (clients / away(|of| of.low), clients * away(|of| of.high))
}

fn clients(row: &Row) -> f64 {
    f64::from(row.level)
}

/// Fits X = min(aN, C) in ratios and gives C / a.
fn broken_stick(rows: &[&Row]) -> Option<f64> {
    if rows.iter().any(|row| row.rps() <= 0.0) {
        return None;
    }
    let fit = |split: usize| {
        let slope = mean(rows[..split].iter().map(|row| (row.rps() / clients(row)).ln()))?;
        let ceiling = mean(rows[split..].iter().map(|row| row.rps().ln()))?;
        let miss = |row: &&Row| (row.rps().ln() - (slope + clients(row).ln()).min(ceiling)).powi(2);
        Some((rows.iter().map(miss).sum::<f64>(), (ceiling - slope).exp()))
    };
    (1..rows.len()).filter_map(fit).min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, clients)| clients)
}

fn power(rows: &[&Row]) -> Option<f64> {
    let power = |row: &Row| Some(row.rps() / row.latency_us_mean.filter(|us| *us > 0.0)?);
    let powers = rows.iter().filter_map(|row| Some((clients(row), power(row)?)));
    powers.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(clients, _)| clients)
}

fn kneedle(rows: &[&Row]) -> Option<f64> {
    let (first, last) = (clients(rows.first()?), clients(rows.last()?));
    let (least, most) = range(rows.iter().map(|row| row.rps())).filter(|(least, most)| most > least)?;
    let above = |row: &Row| (row.rps() - least) / (most - least) - (clients(row) - first) / (last - first);
    rows.iter().max_by(|a, b| above(a).total_cmp(&above(b))).map(|row| clients(row))
}
