//! Where more clients stop paying, by four methods.
//!
//! Works on rows alone, sorted by clients, like [`super::capacity`].

use super::capacity::{Capacity, LEVELS};
use super::rows::{Row, usable};
use stats::{DRAWS, Draws, RUNS_LEAST, mean, percentiles, range, widened};

/// Where more clients stop paying, by four methods that should agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Knee {
    /// The headline, in clients: capacity × (the latency at the lowest level + think time), where the two asymptotic bounds cross.
    ///
    /// Source: Denning & Buzen, The Operational Analysis of Queueing Network Models (1978).
    pub clients: f64,
    /// Between which it lies: an interval over runs drawn anew; with fewer than three, from the least to the most of single runs, each
    /// run number of all levels together.
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
    /// The valid level nearest to the knee, on a scale of ratios; what is said of latency at the knee was measured there.
    pub nearest_level: u32,
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
        ends: spread(&usable, capacity.levels(), clients, seed),
        broken_stick,
        power,
        kneedle,
        swept: (usable.first()?.level, usable.last()?.level),
        sharp: most <= 2.0 * least,
        nearest_level: nearest.level,
    })
}

/// Between which the knee lies at `clients`: those of runs drawn anew; of fewer than three, those of single ones.
fn spread(usable: &[&Row], plateau: &[u32], clients: f64, seed: u64) -> (f64, f64) {
    // Capacity is read off the plateau, the cycle off the lowest level.
    let matters = |row: &&Row| plateau.contains(&row.level) || row.level == usable[0].level;
    let known = usable.iter().copied().filter(|row| !row.of_runs.is_empty());
    let there: Vec<&Row> = known.filter(matters).collect();
    let knee = |runs_of: &dyn Fn(usize) -> Vec<usize>| {
        let on_plateau = (0..there.len()).filter(|i| plateau.contains(&there[*i].level));
        let goodput = |i: usize| {
            mean(runs_of(i).iter().map(|run| there[i].goodput_rps_of_runs[*run])).unwrap_or(f64::NAN)
        };
        let knee = mean(on_plateau.map(goodput))? * cycle_us(there[0], &runs_of(0)) / 1e6;
        Some(knee).filter(|clients| clients.is_finite())
    };
    let runs = || there.iter().map(|row| row.of_runs.len());
    let (least, most) = (runs().min().unwrap_or(0), runs().max().unwrap_or(0));
    let ends = if least < RUNS_LEAST {
        range((0..most).filter_map(|k| knee(&|i| vec![k % there[i].of_runs.len()])))
    } else {
        let draws: Vec<Draws> =
            there.iter().map(|row| Draws::of(seed, row.level, row.of_runs.len())).collect();
        let drawn = (0..DRAWS).filter_map(|k| knee(&|i| draws[i].drawn(k).to_vec()));
        let freedom = runs().map(|runs| runs - 1).sum();
        percentiles(drawn.collect()).map(|ends| widened(clients, ends, least, freedom))
    };
    ends.map_or((clients, clients), |(low, high)| (low.max(0.0), high))
}

/// The time from one request of a client to its next, in these runs of a row; as in the row, over all attempts.
fn cycle_us(row: &Row, runs: &[usize]) -> f64 {
    let chosen = || runs.iter().map(|run| &row.of_runs[*run]);
    let attempts: u64 = chosen().map(|of| of.attempts).sum();
    let spent = chosen().map(|of| (of.latency_us_mean + of.think_us_mean) * of.attempts as f64);
    spent.sum::<f64>() / attempts as f64
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
