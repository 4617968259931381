//! How one run of a workload went, second by second: the one that decides over the steady state near the knee.

use super::{BINS_LEAST, Verdict, gate};
use crate::lab::analysis::capacity::Knee;
use crate::lab::analysis::checks;
use crate::lab::analysis::rows::Row;
use crate::lab::results::Results;
use crate::proto::LoadReport;
use serde::Serialize;

/// A window in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Course {
    /// At how many clients.
    pub level: u32,
    /// Which run, counted from 0.
    pub repetition: u32,
    /// Successes in every second.
    pub goodput_rps: Vec<f64>,
    /// Mean latency of the attempts that ended in it; `None` where none did.
    pub latency_us_mean: Vec<Option<f64>>,
    /// Seconds at the beginning that look like warm-up.
    pub cut_secs: usize,
    /// What is said of it, in one sentence.
    pub said: String,
}

/// At the level nearest to the knee, or where there is none at the one with the most goodput. `None` where a window has too
/// few seconds to say anything.
pub fn course(results: &Results, workload: &str, rows: &[Row], knee: Option<&Knee>) -> Option<Course> {
    let goodput = |row: &&Row| row.goodput_rps.map_or(0.0, |rps| rps.mean);
    let fastest = || rows.iter().max_by(|a, b| goodput(a).total_cmp(&goodput(b))).map(|row| row.level);
    let level = knee.map(|knee| knee.nearest_level).or_else(fastest)?;
    let trials = results.trials.iter().filter(|trial| trial.workload == workload && trial.level == level);
    let runs = trials.filter_map(|trial| Some((trial, trial.load.as_ref()?)));
    let judged = runs
        .filter(|(_, load)| load.seconds.len() >= BINS_LEAST)
        .map(|(trial, load)| (trial, load, gate::verdict(load)));
    // Of several that are as bad the first.
    let (trial, load, verdict) = judged
        .reduce(|worst, next| if gate::gravity(&next.2) > gate::gravity(&worst.2) { next } else { worst })?;
    Some(Course {
        level,
        repetition: trial.repetition,
        goodput_rps: load.seconds.iter().map(|second| second.successes as f64).collect(),
        latency_us_mean: (load.seconds.iter())
            .map(|second| (second.attempts > 0).then_some(second.latency_us_mean))
            .collect(),
        cut_secs: match &verdict {
            Verdict::Steady(reached) | Verdict::TooShort { reached, .. } => reached.cut,
            Verdict::NotSteady { change: super::Change::Settles { at }, .. } => *at,
            Verdict::NotSteady { .. } | Verdict::TooFew => 0,
        },
        said: said(&verdict, load),
    })
}

fn said(verdict: &Verdict, load: &LoadReport) -> String {
    match (gate::in_words(verdict, load), verdict) {
        (checks::Verdict::Passed, Verdict::Steady(reached)) => {
            let known = reached.figures.iter().map(|known| {
                format!(
                    "{} is known to ±{:.1} %, as by {:.0} independent seconds, and a trend of more than {:.1} % within \
                     the window is ruled out",
                    known.name,
                    known.interval * 100.0,
                    known.effective,
                    (known.trend.abs() + known.trend_interval) * 100.0
                )
            });
            format!("Steady: {}.", known.collect::<Vec<_>>().join("; "))
        }
        (checks::Verdict::Passed, _) => "Steady.".to_owned(),
        (checks::Verdict::Partly { holds, missing }, _) => {
            format!("Not long enough: {holds}, but {missing}.")
        }
        (checks::Verdict::Failed { why, .. }, _) => format!("Not steady: {why}."),
        (checks::Verdict::NotChecked(why), _) => format!("Not checked: {why}."),
    }
}
