//! The time series of one run of a workload: of those near the knee the one that decides whether it is steady.

use super::Judged;
use crate::checks::Outcome;
use crate::knee::Knee;
use crate::rows::{Row, best};
use lab_data::results::Results;
use stats::steady::{BINS_LEAST, Change, Known, Verdict};

/// A window in bins.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSeries {
    /// At how many clients.
    pub level: u32,
    /// Which run, counted from 0.
    pub repetition: u32,
    /// Length of a bin in seconds.
    pub bin_secs: f64,
    /// Successes per second in every bin.
    pub goodput_rps: Vec<f64>,
    /// Mean latency of the attempts that ended in it; `None` where none did.
    pub latency_us_mean: Vec<Option<f64>>,
    /// Seconds at the beginning that look like warm-up.
    pub cut_secs: f64,
    /// Whether it is steady, in one sentence.
    pub said: String,
}

/// At the level nearest to the knee, or where there is none at the one with the most goodput. `None` where its windows have too
/// few seconds to be judged.
pub fn time_series(
    results: &Results,
    workload: &str,
    rows: &[Row],
    knee: Option<&Knee>,
) -> Option<TimeSeries> {
    let level = knee.map(|knee| knee.nearest_level).or_else(|| Some(best(rows.iter())?.level))?;
    let judged = results
        .runs_of(workload)
        .filter(|(trial, _)| trial.level == level)
        .map(|(trial, load)| (trial, Judged::of(load)))
        .filter(|(_, judged)| judged.window.goodput_rps.len() >= BINS_LEAST);
    // Of several that are as bad the first.
    let (trial, judged) =
        judged.reduce(|worst, next| if next.1.severity() > worst.1.severity() { next } else { worst })?;
    let cut = match &judged.verdict {
        Verdict::Steady(reached) | Verdict::TooShort { reached, .. } => reached.cut,
        Verdict::NotSteady { change: Change::LateWarmUp { at }, .. } => *at,
        Verdict::NotSteady { .. } | Verdict::TooFew => 0,
    };
    let said = said(&judged);
    let window = judged.window;
    Some(TimeSeries {
        level,
        repetition: trial.repetition,
        bin_secs: window.secs,
        cut_secs: cut as f64 * window.secs,
        goodput_rps: window.goodput_rps,
        latency_us_mean: window.latency_us,
        said,
    })
}

fn said(judged: &Judged) -> String {
    let checked = judged.as_check();
    match (checked.outcome, &judged.verdict) {
        (Outcome::Pass, Verdict::Steady(reached)) => {
            let known = reached.figures.iter().map(|Known { name, interval, drift, drift_interval, .. }| {
                let (percent, most) = (interval * 100.0, (drift.abs() + drift_interval) * 100.0);
                format!(
                    "{name} is known to ±{percent:.1} %, and a drift of more than {most:.1} % within the window is ruled out"
                )
            });
            format!("Steady: {}.", known.collect::<Vec<_>>().join("; "))
        }
        (Outcome::Pass, _) => "Steady.".to_owned(),
        (Outcome::Fail, _) => format!("Not steady: {}.", checked.seen),
        (Outcome::NotChecked, _) => format!("Not checked: {}.", checked.seen),
    }
}
