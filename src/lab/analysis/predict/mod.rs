//! What was foretold of a sweep before it ran, and how far off it was (docs/method.md, section 7).
//!
//! Two curves: one from a lone client, whose demands are taken for constant, and one from three levels, between which they are
//! interpolated. Both are mean value analysis of a closed network of which the generator is a station, too.
//!
//! Sources: Denning & Buzen (1978) for demands and bounds; Reiser & Lavenberg (1980) for the analysis; Kattepur & Nambiar,
//! Performance Modeling of Multi-tiered Web Applications with Varying Service Demands (2015), for demands that vary with load.

mod demands;
mod mva;

use super::capacity::Capacity;
use super::rows::Row;
use crate::lab::results::{Registered, Results, foretold_from};
use demands::{Demand, Point};
use mva::Network;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The method of a prediction from a lone client.
pub const ONE_POINT: &str = "one-point";

/// The method of a prediction from the lowest, a middle and the highest level.
pub const THREE_POINT: &str = "three-point";

/// A capacity foretold worse than this is a miss, and is explained.
const MISS: f64 = 0.15;

/// A curve, foretold from one level or from three.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// `one-point` or `three-point`.
    pub method: String,
    /// The levels it was made from.
    pub from_levels: Vec<u32>,
    /// What it was made of, in the order of the results.
    pub demands: Vec<PredictedDemand>,
    /// What no resource accounts for of a lone client's cycle: a delay, in microseconds.
    pub delay_us: f64,
    /// One for each level of the sweep.
    pub levels: Vec<PredictedLevel>,
    /// What it says the workload gets through at most at these levels, in requests per second.
    pub capacity_rps: f64,
}

/// A resource in a prediction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedDemand {
    /// Its name.
    pub resource: String,
    /// How many requests it works on at once.
    pub servers: f64,
    /// Busy time per request at each of the levels it was made from.
    pub us: Vec<f64>,
}

/// What is foretold of one level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedLevel {
    /// Clients.
    pub level: u32,
    /// Requests per second.
    pub rps: f64,
    /// Mean latency.
    pub latency_us: f64,
    /// What throughput cannot exceed, if the demands are as foretold: min(N / (R(1) + Z), min m/D). With three points the time
    /// served stands in place of R(1), because that may fall.
    pub rps_bound: f64,
    /// What latency cannot fall below: max(R(1), N·D/m − Z), in the same way.
    pub latency_us_bound: f64,
}

/// A prediction beside what came.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Foretold {
    /// What was foretold.
    pub prediction: Prediction,
    /// When it was written down, as RFC 3339 in UTC.
    pub at: String,
    /// The SHA-256 it was written down with.
    pub sha256: String,
    /// Whether it still has that hash, and stands before every trial it speaks of.
    pub intact: bool,
    /// What was measured at its levels: level, and predicted over measured goodput less one. Levels it was made from are left out.
    pub errors: Vec<(u32, f64)>,
    /// Predicted over measured capacity, less one: the highest goodput foretold of the levels whose rows are valid, over the capacity, or
    /// where that was not reached, over what it is at least. `None` where no row is valid.
    pub capacity_error: Option<f64>,
    /// Whether that says anything: not where the level with the highest goodput, foretold or measured, is one it was made from.
    pub judged: bool,
    /// Of a miss by more than 15 %, the demand it is due to, at the nearest level it was made from and at the best one, as a sentence.
    pub moved: Option<String>,
}

/// What can be foretold of `workload` from the trials there are: nothing before a lone client was measured, nothing of an open
/// loop. Each with its method.
pub fn predictions(results: &Results, workload: &str) -> Vec<Prediction> {
    let Some(plan) = results.workloads.iter().find(|plan| plan.name == workload) else { return Vec::new() };
    let mut levels = plan.levels.clone().unwrap_or_else(|| results.levels.clone());
    levels.sort_unstable();
    levels.dedup();
    let from = foretold_from(&levels);
    let measured: Vec<Point> = from.iter().map_while(|level| at_level(results, workload, *level)).collect();
    let mut made = Vec::new();
    if let Some(alone) = measured.first() {
        made.push(curve(ONE_POINT, std::slice::from_ref(alone), &levels));
    }
    if measured.len() == 3 && measured.iter().all(|point| point.names().eq(measured[0].names())) {
        let mut points = measured;
        points.sort_by_key(|point| point.level);
        made.push(curve(THREE_POINT, &points, &levels));
    }
    made
}

/// The first trial at `level`, as far as it says anything.
fn at_level(results: &Results, workload: &str, level: u32) -> Option<Point> {
    let mut trials = results.trials.iter();
    let trial = trials.find(|trial| trial.workload == workload && trial.level == level)?;
    demands::point(results, trial)
}

/// The curve that `points` give, ascending and the first of them of a lone client. All know the demands of the same resources: what a
/// counter did not answer for at one level cannot be told from what it is at others.
///
/// Of one point the demands are taken for constant. Of three, the demand at a level in between is that of its neighbours, linear
/// in 1/N: what a batch or a wake-up costs is shared by those who come together, and they become more as clients do. What the
/// model leaves over of the cycle at the levels measured is added, linear in the logarithm of N.
fn curve(method: &str, points: &[Point], levels: &[u32]) -> Prediction {
    let alone = &points[0];
    let served: f64 = alone.demands.iter().map(|demand| demand.own_us / demand.servers.min(1.0)).sum();
    let delay_us = (alone.cycle_us - served).max(0.0);
    let demands: Vec<PredictedDemand> = (alone.demands.iter().enumerate())
        .map(|(i, demand)| PredictedDemand {
            resource: demand.name.clone(),
            servers: demand.servers,
            us: points.iter().map(|point| point.demands[i].us).collect(),
        })
        .collect();
    let own = |i: usize, level: u32| {
        // A batch takes its time however many share it: what falls per request is no faster store.
        let of = |point: &Point| match alone.demands[i].is_held() {
            true => alone.demands[i].own_us,
            false => point.demands[i].own_us,
        };
        between(points, level, share_of_a_batch, of)
    };
    let modelled_us = |level: u32| {
        let station = |(i, demand): (usize, &Demand)| demand.station(own(i, level));
        let stations = alone.demands.iter().enumerate().map(station).collect();
        mva::cycle_us(&Network { stations, delay_us }, level)
    };
    let left: Vec<f64> = points.iter().map(|point| point.cycle_us - modelled_us(point.level)).collect();
    let left_us = |point: &Point| {
        let index = points.iter().position(|of| of.level == point.level);
        index.map_or(0.0, |index| left[index])
    };
    let predicted = |level: u32| {
        let clients = f64::from(level);
        let slowest =
            alone.demands.iter().enumerate().filter(|(_, demand)| !demand.gathers).map(|(i, demand)| {
                // What is held while others work limits by all the time that it is held, but not by their queues.
                let us = match demand.is_held() {
                    true => demands[i].us.iter().copied().fold(f64::INFINITY, f64::min),
                    false => own(i, level),
                };
                us / demand.servers
            });
        let queued_us = clients * slowest.fold(0.0, f64::max);
        let left = if points.len() > 1 { between(points, level, doublings, left_us) } else { 0.0 };
        let away_us = alone.away_us;
        // With one point a lone client's cycle; with three what is served of it: its delay was seen to change.
        let least_us = match points.len() {
            1 => alone.cycle_us,
            _ => {
                let outright = (0..demands.len()).filter(|i| !alone.demands[*i].is_held());
                away_us + outright.map(|i| own(i, level)).sum::<f64>()
            }
        };
        let least_us = least_us.max(queued_us);
        let cycle_us = (modelled_us(level) + left).max(least_us);
        PredictedLevel {
            level,
            rps: clients / cycle_us * 1e6,
            latency_us: cycle_us - away_us,
            rps_bound: clients / least_us * 1e6,
            latency_us_bound: least_us - away_us,
        }
    };
    let levels: Vec<PredictedLevel> = levels.iter().map(|level| predicted(*level)).collect();
    Prediction {
        method: method.to_owned(),
        from_levels: points.iter().map(|point| point.level).collect(),
        capacity_rps: levels.iter().map(|of| of.rps).fold(0.0, f64::max),
        demands,
        delay_us,
        levels,
    }
}

fn share_of_a_batch(level: u32) -> f64 {
    1.0 / f64::from(level)
}

fn doublings(level: u32) -> f64 {
    f64::from(level).log2()
}

/// The figure at `level` from those at its neighbours among `points`, linear on `scale`; beyond them that of the nearest.
fn between(points: &[Point], level: u32, scale: fn(u32) -> f64, figure: impl Fn(&Point) -> f64) -> f64 {
    let above = points.iter().position(|point| point.level >= level).unwrap_or(points.len() - 1);
    let (high, low) = (&points[above], &points[above.saturating_sub(1)]);
    if high.level <= level || above == 0 {
        return figure(high);
    }
    let share = (scale(level) - scale(low.level)) / (scale(high.level) - scale(low.level));
    figure(low) * (1.0 - share) + figure(high) * share
}

/// All that was foretold of `workload`, in the order it was written down, beside its `rows` and their `capacity`.
pub(super) fn foretold(
    results: &Results,
    workload: &str,
    rows: &[Row],
    capacity: &Capacity,
) -> Vec<Foretold> {
    let gathered = demands::gathered(results, workload);
    let registered = results.predictions.iter().filter(|registered| registered.workload == workload);
    registered
        .filter_map(|registered| {
            let prediction: Prediction = serde_json::from_str(&registered.said).ok()?;
            let of_measured =
                |predicted: f64, measured: f64| (measured > 0.0).then(|| predicted / measured - 1.0);
            let error = |row: &Row| {
                let at = prediction.levels.iter().find(|at| at.level == row.level)?;
                Some((row.level, of_measured(at.rps, row.goodput_rps?.mean)?))
            };
            let foretold = |row: &&Row| row.usable() && !prediction.from_levels.contains(&row.level);
            let usable = || rows.iter().filter(|row| row.usable());
            let most = |goodput: &dyn Fn(&Row) -> Option<f64>| {
                let of_rows = usable().filter_map(|row| Some((row.level, goodput(row)?)));
                of_rows.max_by(|a, b| a.1.total_cmp(&b.1))
            };
            let best = most(&|row| Some(row.goodput_rps?.mean));
            let foretold_best =
                most(&|row| Some(prediction.levels.iter().find(|at| at.level == row.level)?.rps));
            let capacity_error = capacity
                .rps()
                .zip(foretold_best)
                .and_then(|(measured, (_, foretold))| of_measured(foretold, measured.mean));
            let judged = [best, foretold_best]
                .iter()
                .flatten()
                .all(|(level, _)| !prediction.from_levels.contains(level));
            Some(Foretold {
                at: registered.at.clone(),
                sha256: registered.sha256.clone(),
                intact: sha256(&registered.said) == registered.sha256
                    && came_first(results, registered, &prediction),
                errors: rows.iter().filter(foretold).filter_map(error).collect(),
                moved: capacity_error
                    .filter(|error| judged && error.abs() > MISS)
                    .and_then(|error| moved(&prediction, error, rows, &gathered)),
                capacity_error,
                judged,
                prediction,
            })
        })
        .collect()
}

/// Whether no trial that a prediction speaks of had been measured when it was written down.
fn came_first(results: &Results, registered: &Registered, prediction: &Prediction) -> bool {
    let before = results.trials.iter().take(registered.after_trials);
    let mut of_it = before.filter(|trial| trial.workload == registered.workload);
    of_it.all(|trial| prediction.from_levels.contains(&trial.level))
}

/// The demand to which a miss of the capacity is due, as a sentence: where too little was foretold, the one that was to limit and
/// fell; where too much was, the one that rose and limits. What gathers does neither: that less of it falls to each request the
/// more there are is foretold.
fn moved(prediction: &Prediction, error: f64, rows: &[Row], gathered: &[String]) -> Option<String> {
    const WORTH_NAMING: f64 = 0.1;
    let goodput = |row: &Row| row.goodput_rps.map(|rps| rps.mean).unwrap_or_default();
    let best = rows.iter().filter(|row| row.usable()).max_by(|a, b| goodput(a).total_cmp(&goodput(b)))?;
    let from = &prediction.from_levels;
    let nearest = (0..from.len()).min_by_key(|i| from[*i].abs_diff(best.level))?;
    let seen = |demand: &PredictedDemand| {
        let there = best.resources.iter().find(|of| of.name == demand.resource)?.demand_us?;
        let then = *demand.us.get(nearest)?;
        let limits = if error < 0.0 { then } else { there } / demand.servers;
        Some((demand.resource.clone(), then, there, limits))
    };
    let limiting = prediction.demands.iter().filter(|demand| !gathered.contains(&demand.resource));
    let slowest = limiting.filter_map(seen).max_by(|a, b| a.3.total_cmp(&b.3));
    // It is the reason only if it fell where too little was foretold, and rose where too much was.
    let moved = |then: f64, there: f64| (there - then) * error.signum() > WORTH_NAMING * then.max(there);
    let Some((resource, then, there, _)) = slowest.filter(|(_, then, there, _)| moved(*then, *there)) else {
        return Some(format!(
            "The demand that limits did not move by more than {:.0} %: it is the waiting that was foretold wrong.",
            WORTH_NAMING * 100.0
        ));
    };
    let clients = |level: u32| if level == 1 { "1 client".to_owned() } else { format!("{level} clients") };
    Some(format!(
        "A request took {} µs of the {resource} at {} and {} µs at {}.",
        figures(then),
        clients(from[nearest]),
        figures(there),
        clients(best.level)
    ))
}

/// Three digits, as far as they say anything.
fn figures(us: f64) -> String {
    match us {
        us if us < 10.0 => format!("{us:.2}"),
        us if us < 100.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// The SHA-256 of a text, in hexadecimal digits.
fn sha256(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
