//! How much a workload gets through.
//!
//! Works on rows alone, sorted by clients; which of them count is decided by [`super::checks`].

use super::rows::{Row, best as best_of, usable};
use stats::{Estimate, Interval, mean, range};
use std::collections::BTreeSet;

/// What a workload gets through.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// Goodput stays within ±3 % over at least three adjacent levels that contain the maximum.
    Reached {
        /// Mean over those levels; its interval is over the repetitions.
        rps: Estimate,
        /// The levels, ascending.
        levels: Vec<u32>,
    },
    /// There are no such levels: this is the goodput of the best level.
    NotReached {
        /// Goodput of the best level.
        rps: Estimate,
        /// The best level.
        level: u32,
        /// Whether it is the highest level, and goodput grows there by more than 15 % as clients double: more clients may get more.
        rising: bool,
    },
    /// The loop was open: so much was asked for, whatever the target could do, and nothing follows for its capacity.
    Offered {
        /// Requests per second, mean over the levels.
        rps: f64,
        /// The valid levels (connections), ascending: all of it went through.
        kept: Vec<u32>,
        /// Those at which it did not, ascending.
        over: Vec<u32>,
    },
    /// No row is valid.
    Unknown,
}

impl Capacity {
    /// The goodput it speaks of, in requests per second, be it the capacity or what it is at least.
    pub fn rps(&self) -> Option<Estimate> {
        match self {
            Capacity::Reached { rps, .. } | Capacity::NotReached { rps, .. } => Some(*rps),
            Capacity::Offered { .. } | Capacity::Unknown => None,
        }
    }

    /// The levels it is the mean of, ascending.
    pub fn levels(&self) -> &[u32] {
        match self {
            Capacity::Reached { levels, .. } => levels,
            Capacity::NotReached { level, .. } => std::slice::from_ref(level),
            Capacity::Offered { .. } | Capacity::Unknown => &[],
        }
    }
}

/// Goodput falling past the peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decline {
    /// The level at which it is lowest.
    pub level: u32,
    /// Goodput there.
    pub rps: Estimate,
    /// How much of the peak is lost, 0–1.
    pub share: f64,
}

/// Levels are equal if their goodput differs from their middle by no more than this.
const HALF_WIDTH: f64 = 0.03;
/// Goodput that stays above this share of the best, while the clients double, no longer rises as it should.
pub(super) const SHOULDER: f64 = 0.85;
/// Goodput that grows by more than this factor as the clients double still rises.
const RISES: f64 = 1.15;
/// So many of them make a plateau, and so many a knee.
pub const LEVELS: usize = 3;

/// The largest run of at least three adjacent valid levels that contains the maximum and lies within ±3 %.
///
/// A level that is not valid ends a run.
pub fn capacity(rows: &[Row]) -> Capacity {
    if let Some(offered) = offered(rows) {
        return offered;
    }
    let by_goodput = |a: &usize, b: &usize| rows[*a].rps().total_cmp(&rows[*b].rps());
    let best = (0..rows.len()).filter(|i| rows[*i].usable()).max_by(by_goodput);
    let Some(best) = best else { return Capacity::Unknown };

    let is_flat = |rows: &[Row]| {
        let ends = range(rows.iter().map(Row::rps));
        rows.iter().all(Row::usable)
            && ends.is_some_and(|(least, most)| most - least <= HALF_WIDTH * (most + least))
    };
    let plateau = (0..=best)
        .flat_map(|first| (best..rows.len()).map(move |last| first..=last))
        .filter(|levels| levels.clone().count() >= LEVELS && is_flat(&rows[levels.clone()]))
        // Of equally long ones the later: saturation shows best where there are the most clients.
        .max_by_key(|levels| (levels.clone().count(), *levels.end()));

    let Some(plateau) = plateau.map(|levels| &rows[levels]) else { return not_reached(rows, best) };
    let levels: Vec<u32> = plateau.iter().map(|row| row.level).collect();
    Estimate::of(&of_repetitions(plateau)).map_or(Capacity::Unknown, |rps| Capacity::Reached { rps, levels })
}

/// The goodput of each repetition, mean over those of the levels `rows` at which it was measured. They have one target, so what makes it
/// slower makes all of them slower: together they are one observation.
fn of_repetitions(rows: &[Row]) -> Vec<f64> {
    let runs = || rows.iter().flat_map(|row| row.of_runs.iter().zip(&row.goodput_rps_of_runs));
    let repetitions: BTreeSet<u32> = runs().map(|(of, _)| of.repetition).collect();
    let of = |repetition| mean(runs().filter(|(of, _)| of.repetition == repetition).map(|(_, rps)| rps));
    repetitions.into_iter().filter_map(of).collect()
}

/// The capacity of a sweep without a plateau, whose best row is `rows[best]`.
fn not_reached(rows: &[Row], best: usize) -> Capacity {
    let Some(rps) = rows[best].goodput_rps else { return Capacity::Unknown };
    let level = rows[best].level;
    // Not the next lower level: one that was disturbed makes no rise.
    let more = best_of(usable(&rows[..best])).is_some_and(|below| {
        let doublings = (f64::from(level) / f64::from(below.level)).log2();
        rps.mean > RISES.powf(doublings) * below.rps()
    });
    let rising = more && !rows[best + 1..].iter().any(Row::usable);
    Capacity::NotReached { rps, level, rising }
}

/// What became of the rate an open loop asked for; `None` of a closed loop.
fn offered(rows: &[Row]) -> Option<Capacity> {
    let asked: Vec<f64> = rows.iter().filter_map(|row| row.offered_rps).collect();
    let levels =
        |which: fn(&Row) -> bool| rows.iter().filter(|row| which(row)).map(|row| row.level).collect();
    Some(Capacity::Offered {
        rps: mean(&asked)?,
        kept: levels(|row| row.usable() && !row.over_capacity),
        over: levels(|row| row.over_capacity),
    })
}

/// How far goodput falls behind its peak at a higher level. `None` unless both were measured three times or more and their
/// intervals are apart.
pub fn decline(rows: &[Row], capacity: &Capacity) -> Option<Decline> {
    // Two runs fall apart by chance too often to speak of a decline.
    let is_known = |of: &Estimate| of.interval == Interval::StudentT;
    let peak = capacity.rps().filter(is_known)?;
    let last_of_peak = *capacity.levels().last()?;
    let below_peak = |rps: &Estimate| is_known(rps) && rps.high < peak.low;
    usable(rows)
        .filter(|row| row.level > last_of_peak)
        .filter_map(|row| Some((row.level, row.goodput_rps.filter(below_peak)?)))
        .min_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean))
        .map(|(level, rps)| Decline { level, rps, share: 1.0 - rps.mean / peak.mean })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings;
    use lab_data::simulated::tests::{model, sweep};

    /// Four equal levels once counted as four runs: the interval was a quarter as wide.
    #[test]
    fn the_levels_of_a_repetition_are_one_observation() {
        let of = |repetitions: u32, missing: Option<(u32, u32)>| {
            let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1, 2, 4, 8], repetitions, "1s");
            for trial in &mut results.trials {
                let load = trial.load.as_mut().unwrap();
                load.goodput_rps = 970.0 + 30.0 * f64::from(trial.repetition);
            }
            results.trials.retain(|trial| missing != Some((trial.level, trial.repetition)));
            let found = findings(&results).workloads.remove(0);
            assert_eq!(found.capacity.levels(), [1, 2, 4, 8]);
            found.capacity.rps().unwrap()
        };
        let complete = Estimate::of(&[970.0, 1000.0, 1030.0]).unwrap();
        assert_eq!(of(3, None), complete);
        assert_eq!(of(3, Some((4, 2))), complete, "the levels that it has speak for a repetition");
        assert_eq!((of(2, None).low, of(2, None).interval), (970.0, Interval::Range));
        assert_eq!((of(1, None).high, of(1, None).interval), (970.0, Interval::Single));
    }
}
