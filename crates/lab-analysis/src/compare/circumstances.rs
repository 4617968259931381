//! What else differs between the sides, as far as the results tell.

use kv::proto::LoadReport;
use lab_data::distinct;
use lab_data::results::{Placement, Results};
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Something in which the sides differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// `kernel`; what belongs to a workload has its name in front.
    pub what: String,
    /// What it was, side by side in their order; `None` where it was not recorded.
    pub of: Vec<Option<String>>,
}

/// Names and values of one side; empty where nothing is known.
type Values = Vec<(String, String)>;

/// What differs: first of the runs, then of the `workloads` they have in common.
pub(super) fn differences(all: &[&Results], workloads: &[&str]) -> Vec<Difference> {
    let of_runs = side_by_side(all, of_run).into_iter().filter(|of| distinct(&of.of).len() > 1);
    // A side without the workload differs in nothing but that.
    let differs = |of: &Difference| distinct(of.of.iter().flatten()).len() > 1;
    let of_workloads =
        workloads.iter().flat_map(|name| side_by_side(all, |results| of_workload(results, name)));
    of_runs.chain(of_workloads.filter(differs)).collect()
}

fn of_run(results: &Results) -> Values {
    let of_loads = |read: fn(&LoadReport) -> String| of_trials(results, None, read);
    let part = |of: &Placement| format!("{} on {}", of.part, joined(&of.cores, " "));
    let parts: Vec<String> = results.placements.iter().map(part).collect();
    let failed = results.selftest.as_ref().map(|of| of.failed().join(" "));
    let toml = &results.experiment_toml;
    let mut hasher = DefaultHasher::new();
    toml.hash(&mut hasher);
    let values = [
        ("experiment file", format!("{} lines, hash {:016x}", toml.lines().count(), hasher.finish())),
        ("scale", results.scale.map_or("in full".to_owned(), |share| format!("scaled to {share}"))),
        ("seed", results.seed.to_string()),
        ("repetitions", results.repetitions.to_string()),
        // Rounded, as no two windows are equally long.
        ("warm-up", of_loads(|load| format!("{:.1} s", load.warmup_secs))),
        ("window", of_loads(|load| format!("{:.1} s", load.window_secs))),
        ("generator threads", of_loads(|load| load.threads.to_string())),
        ("failed accuracy checks", failed.unwrap_or_default()),
        ("placement", if parts.is_empty() { "nothing pinned".to_owned() } else { parts.join(", ") }),
    ];
    let values = values.map(|(what, value)| (what.to_owned(), value));
    values.into_iter().chain(results.environment.iter().cloned()).collect()
}

fn of_workload(results: &Results, workload: &str) -> Values {
    let Some(plan) = results.workloads.iter().find(|plan| plan.name == workload) else { return Vec::new() };
    let value = |read: fn(&LoadReport) -> String| of_trials(results, Some(workload), read);
    let mix = |load: &LoadReport| {
        let shares: Vec<String> = load.mix.iter().map(|(name, share)| format!("{name} {share}")).collect();
        shares.join(", ")
    };
    let values = [
        ("clients", joined(plan.levels.as_ref().unwrap_or(&results.levels), ", ")),
        ("mix", value(mix)),
        ("distribution", value(|load| load.distribution.clone())),
        ("keys", value(|load| if load.keys > 0 { load.keys.to_string() } else { String::new() })),
        // Older reports do not say so: they are of a closed loop.
        ("pacing", value(|load| if load.pacing.is_empty() { "closed".into() } else { load.pacing.clone() })),
        ("value bytes", value(|load| load.value_bytes.clone())),
    ];
    values.map(|(what, value)| (format!("{workload}: {what}"), value)).into()
}

/// Everything that is in one of the sides' lists, in their order.
fn side_by_side(all: &[&Results], values: impl Fn(&Results) -> Values) -> Vec<Difference> {
    let sides: Vec<Values> = all.iter().map(|results| values(results)).collect();
    let difference = |what: &String| {
        let value =
            |side: &Values| side.iter().find(|(name, _)| name == what).map(|(_, value)| value.clone());
        let of = sides.iter().map(|side| value(side).filter(|value| !value.is_empty()));
        Difference { what: what.clone(), of: of.collect() }
    };
    distinct(sides.iter().flatten().map(|(what, _)| what)).into_iter().map(difference).collect()
}

/// The values that occur in the trials, of one workload or of all, each once and in their order.
fn of_trials(results: &Results, workload: Option<&str>, read: fn(&LoadReport) -> String) -> String {
    let trials = results.trials.iter().filter(|trial| workload.is_none_or(|name| trial.workload == name));
    let values = trials.filter_map(|trial| trial.load.as_ref()).map(read);
    distinct(values.filter(|value| !value.is_empty())).join(" or ")
}

fn joined(all: &[impl ToString], between: &str) -> String {
    all.iter().map(ToString::to_string).collect::<Vec<_>>().join(between)
}
