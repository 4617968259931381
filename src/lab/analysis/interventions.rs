//! What happened when one resource was made a little slower (E5 of docs/method.md, Bottleneck).
//!
//! If a resource is the limit, goodput falls as its demand grows: X′ = X·D/(D + δ). If it is not, hardly anything happens. What is
//! compared ran within one round, on the same server, one after the other.

use super::stats::{Estimate, mean};
use crate::lab::results::{Change, Intervention, Resource, Results, Trial};
use serde::Serialize;

/// What a change did, over its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// What was done, in the first round.
    pub change: Change,
    /// The clients it was done at.
    pub level: u32,
    /// Rounds in which both the change and its counterpart were measured.
    pub rounds: u32,
    /// The share of goodput that had to be lost if the resource were the limit, 0–1; of a control, if it were one server.
    pub expected_loss: f64,
    /// The share that was lost, a mean over the rounds.
    pub loss: Estimate,
    /// Lost over expected: about 1 at the limit, about 0 elsewhere.
    pub elasticity: Estimate,
}

/// Where the server counts batches: the busy time of a resource, and how many batches that were.
const BATCHES: &[(&str, &str)] = &[
    ("stats.weir_store_busy_seconds_total", "stats.weir_store_duration_seconds_count"),
    ("stats.weir_flush_busy_seconds_total", "stats.weir_flushes_total"),
    ("database.wal_sync_secs", "database.wal_syncs"),
];

/// The effects of all changes made to `workload`, in the order in which they were first made.
pub(super) fn effects(results: &Results, workload: &str) -> Vec<Effect> {
    let made: Vec<&Intervention> =
        results.interventions.iter().filter(|made| made.trial.workload == workload).collect();
    let mut knobs: Vec<&str> = Vec::new();
    for change in made.iter().filter_map(|made| made.change.as_ref()) {
        if !knobs.contains(&change.knob.as_str()) {
            knobs.push(&change.knob);
        }
    }
    knobs.into_iter().filter_map(|knob| effect(&results.resources, &made, knob)).collect()
}

fn effect(resources: &[Resource], made: &[&Intervention], knob: &str) -> Option<Effect> {
    let changed: Vec<(&Change, &Trial)> = made
        .iter()
        .filter_map(|made| Some((made.change.as_ref()?, &made.trial)))
        .filter(|(change, _)| change.knob == knob)
        .collect();
    let base_of = |trial: &Trial| {
        let same = |of: &&&Intervention| {
            of.change.is_none() && (of.trial.repetition, of.trial.level) == (trial.repetition, trial.level)
        };
        made.iter().find(same).map(|of| &of.trial)
    };
    let mut expected = Vec::new();
    let mut losses = Vec::new();
    let mut ratios = Vec::new();
    for (change, trial) in &changed {
        let Some((base, before)) = base_of(trial).and_then(|base| Some((base, goodput(base)?))) else {
            continue;
        };
        let (Some(after), Some(due)) = (goodput(trial), loss_of_a_limit(resources, change, base)) else {
            continue;
        };
        let loss = 1.0 - after / before;
        expected.push(due);
        losses.push(loss);
        ratios.push(loss / due);
    }
    let (change, trial) = changed.first()?;
    Some(Effect {
        change: (*change).clone(),
        level: trial.level,
        rounds: losses.len() as u32,
        expected_loss: mean(&expected)?,
        loss: Estimate::of(&losses)?,
        elasticity: Estimate::of(&ratios)?,
    })
}

/// Successes per second; `None` of a trial that failed or brought nothing.
fn goodput(trial: &Trial) -> Option<f64> {
    trial.load.as_ref().map(|load| load.goodput_rps).filter(|rps| *rps > 0.0)
}

/// The share of goodput that `change` takes from a resource that is the limit of `base`.
fn loss_of_a_limit(resources: &[Resource], change: &Change, base: &Trial) -> Option<f64> {
    if let Some(factor) = change.factor {
        return Some(1.0 - 1.0 / factor).filter(|loss| *loss > 0.0);
    }
    let raised = change.raises.first().and_then(|name| resources.iter().find(|of| of.name == *name));
    let servers = raised.map_or(1.0, |of| base.servers(of));
    // A limit is busy all the time: what it takes of each request, or of each batch, follows from how many there were.
    let done = raised.and_then(|of| batches(of, base));
    let load = base.load.as_ref()?;
    let per_sec = match done {
        Some(batches) => batches / base.elapsed_secs,
        None => load.attempts as f64 / load.window_secs,
    };
    let demand_us = servers / per_sec * 1e6;
    Some(change.added_us / (demand_us + change.added_us)).filter(|loss| loss.is_finite() && *loss > 0.0)
}

/// How many batches a resource did; `None` of one that takes single requests.
fn batches(of: &Resource, trial: &Trial) -> Option<f64> {
    let counts = of.busy.iter().filter_map(|busy| {
        let (from, to) = BATCHES.iter().find(|(from, _)| busy.starts_with(from))?;
        trial.growth(&busy.replacen(from, to, 1)).filter(|batches| *batches > 0.0)
    });
    counts.reduce(|sum, batches| sum + batches)
}
