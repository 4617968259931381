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

/// What there is, each with its value.
type Values = Vec<(String, Option<String>)>;

/// What differs: first of the runs, then of the `workloads` they have in common.
pub(super) fn differences(all: &[&Results], workloads: &[&str]) -> Vec<Difference> {
    let of_runs = side_by_side(all, of_run).into_iter().filter(|of| differ(&of.of));
    let of_workload = |name: &&str| {
        let all = side_by_side(all, |results| of_workload(results, name)).into_iter();
        // A side without the workload differs in nothing but that.
        all.filter(|of| differ(of.of.iter().flatten()))
    };
    of_runs.chain(workloads.iter().flat_map(of_workload)).collect()
}

fn of_run(results: &Results) -> Values {
    let of_loads = |read: fn(&LoadReport) -> String| of_trials(results, None, read);
    let part = |placed: &Placement| {
        let cores: Vec<String> = placed.cores.iter().map(usize::to_string).collect();
        format!("{} on {}", placed.part, cores.join(" "))
    };
    let parts: Vec<String> = results.placements.iter().map(part).collect();
    let toml = &results.experiment_toml;
    let failed = results.selftest.as_ref().map(|of| of.failed().join(" "));
    let mut hasher = DefaultHasher::new();
    toml.hash(&mut hasher);
    let values = [
        ("experiment", Some(results.name.clone())),
        ("experiment file", Some(format!("{} lines, hash {:016x}", toml.lines().count(), hasher.finish()))),
        ("scale", Some(results.scale.map_or("in full".to_owned(), |share| format!("scaled to {share}")))),
        ("weir version", Some(results.weir_version.clone())),
        ("seed", Some(results.seed.to_string())),
        ("repetitions", Some(results.repetitions.to_string())),
        // Rounded, as no two windows are equally long.
        ("warm-up", of_loads(|load| format!("{:.1} s", load.warmup_secs))),
        ("window", of_loads(|load| format!("{:.1} s", load.window_secs))),
        ("generator threads", of_loads(|load| load.threads.to_string())),
        ("generator’s selftest", failed.filter(|ids| !ids.is_empty()).map(|ids| format!("failed {ids}"))),
        ("placement", Some(if parts.is_empty() { "nothing pinned".to_owned() } else { parts.join(", ") })),
    ];
    let values = values.map(|(what, value)| (what.to_owned(), value));
    // The version of weir stands above.
    let of_machine = results.environment.iter().filter(|(what, _)| what != "weir");
    values.into_iter().chain(of_machine.map(|(what, value)| (what.clone(), Some(value.clone())))).collect()
}

fn of_workload(results: &Results, workload: &str) -> Values {
    let value = |read: fn(&LoadReport) -> String| of_trials(results, Some(workload), read);
    let mix = |load: &LoadReport| {
        let shares: Vec<String> = load.mix.iter().map(|(name, share)| format!("{name} {share}")).collect();
        shares.join(", ")
    };
    let values = [
        ("mix", value(mix)),
        ("distribution", value(|load| load.distribution.clone())),
        ("keys", value(|load| if load.keys > 0 { load.keys.to_string() } else { String::new() })),
        // Older reports do not say so: they are of a closed loop.
        ("pacing", value(|load| if load.pacing.is_empty() { "closed".into() } else { load.pacing.clone() })),
        ("value bytes", value(|load| load.value_bytes.clone())),
    ];
    values.into_iter().map(|(what, value)| (format!("{workload}: {what}"), value)).collect()
}

/// Everything that is in one of the sides' lists, in their order.
fn side_by_side(all: &[&Results], values: impl Fn(&Results) -> Values) -> Vec<Difference> {
    let sides: Vec<Values> = all.iter().map(|results| values(results)).collect();
    let difference = |what: &String| {
        let value = |side: &Values| side.iter().find(|(name, _)| name == what)?.1.clone();
        Difference { what: what.clone(), of: sides.iter().map(value).collect() }
    };
    distinct(sides.iter().flatten().map(|(what, _)| what)).into_iter().map(difference).collect()
}

fn differ<T: PartialEq>(values: impl IntoIterator<Item = T>) -> bool {
    distinct(values).len() > 1
}

/// The values that occur in the trials, of one workload or of all, each once and in their order.
fn of_trials(results: &Results, workload: Option<&str>, read: fn(&LoadReport) -> String) -> Option<String> {
    let trials = results.trials.iter().filter(|trial| workload.is_none_or(|name| trial.workload == name));
    let values = trials.filter_map(|trial| trial.load.as_ref()).map(read);
    let values = distinct(values.filter(|value| !value.is_empty()));
    (!values.is_empty()).then(|| values.join(" or "))
}
