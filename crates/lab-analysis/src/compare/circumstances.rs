//! What was not the same on both sides, as far as the results tell.

use kv::proto::LoadReport;
use lab_data::results::Results;
use serde::Serialize;

/// A circumstance in which the sides differ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// `kernel`; what belongs to a workload has its name in front.
    pub what: String,
    /// What it was, side by side in their order; `None` where it was not recorded.
    pub of: Vec<Option<String>>,
}

/// A circumstance of the whole run.
type OfRun = (&'static str, fn(&Results) -> Option<String>);

const OF_RUN: &[OfRun] = &[
    ("experiment", |results| Some(results.name.clone())),
    ("experiment file", |results| {
        let text = &results.experiment_toml;
        Some(format!("{} lines, FNV-1a {:016x}", text.lines().count(), fnv1a(text.as_bytes())))
    }),
    ("scale", |results| {
        Some(results.scale.map_or_else(|| "in full".to_owned(), |share| format!("scaled to {share}")))
    }),
    ("weir version", |results| Some(results.weir_version.clone())),
    ("seed", |results| Some(results.seed.to_string())),
    ("repetitions", |results| Some(results.repetitions.to_string())),
    ("warm-up", |results| spans(results, |load| load.warmup_secs)),
    ("window", |results| spans(results, |load| load.window_secs)),
    ("generator threads", |results| {
        each(results.trials.iter().filter_map(|trial| Some(trial.load.as_ref()?.threads.to_string())))
    }),
    // Only where it speaks against a side.
    ("generator’s selftest", |results| {
        let failed = results.selftest.as_ref()?.failed().join(" ");
        (!failed.is_empty()).then(|| format!("failed {failed}"))
    }),
    ("placement", |results| {
        let part = |placed: &lab_data::results::Placement| {
            let cores: Vec<String> = placed.cores.iter().map(usize::to_string).collect();
            format!("{} on {}", placed.part, cores.join(" "))
        };
        let parts: Vec<String> = results.placements.iter().map(part).collect();
        Some(if parts.is_empty() { "nothing pinned".to_owned() } else { parts.join(", ") })
    }),
];

/// A circumstance of one workload.
type OfWorkload = (&'static str, fn(&LoadReport) -> Option<String>);

const OF_WORKLOAD: &[OfWorkload] = &[
    ("mix", |load| {
        let shares: Vec<String> = load.mix.iter().map(|(name, share)| format!("{name} {share}")).collect();
        (!shares.is_empty()).then(|| shares.join(", "))
    }),
    ("distribution", |load| (!load.distribution.is_empty()).then(|| load.distribution.clone())),
    ("keys", |load| (load.keys > 0).then(|| load.keys.to_string())),
    // Older reports do not say so: they are of a closed loop.
    ("pacing", |load| Some(if load.pacing.is_empty() { "closed" } else { &load.pacing }.to_owned())),
    ("value bytes", |load| (!load.value_bytes.is_empty()).then(|| load.value_bytes.clone())),
];

/// All that differs, of the runs first, then of the `workloads` they have in common.
pub(super) fn differences(all: &[&Results], workloads: &[&str]) -> Vec<Difference> {
    let side_by_side = |what: String, read: &dyn Fn(&Results) -> Option<String>| Difference {
        what,
        of: all.iter().map(|results| read(results)).collect(),
    };
    let of_run = OF_RUN.iter().map(|(what, read)| side_by_side((*what).to_owned(), read));
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in all.iter().flat_map(|results| &results.environment) {
        // The version stands among the circumstances of the run already.
        if !keys.contains(&key.as_str()) && key != "weir" {
            keys.push(key);
        }
    }
    let of_machine = keys.iter().map(|key| {
        side_by_side((*key).to_owned(), &|results| {
            results.environment.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
        })
    });
    let of_workload = workloads.iter().flat_map(|workload| {
        OF_WORKLOAD.iter().map(move |(what, read)| {
            side_by_side(format!("{workload}: {what}"), &|results| {
                let of_it = results.trials.iter().filter(|trial| trial.workload == *workload);
                each(of_it.filter_map(|trial| read(trial.load.as_ref()?)))
            })
        })
    });
    let of_runs = of_run.chain(of_machine).filter(|difference| differ(difference.of.iter()));
    // A side without the workload differs in nothing but that.
    let of_workloads =
        of_workload.filter(|difference| differ(difference.of.iter().filter(|value| value.is_some())));
    of_runs.chain(of_workloads).collect()
}

fn differ<'a>(mut values: impl Iterator<Item = &'a Option<String>>) -> bool {
    let first = values.next();
    values.any(|value| Some(value) != first)
}

/// The values that occur, each once, in their order.
fn each(values: impl Iterator<Item = String>) -> Option<String> {
    let mut seen: Vec<String> = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    (!seen.is_empty()).then(|| seen.join(" or "))
}

/// By the clock no two windows are alike; to a tenth of a second they are.
fn spans(results: &Results, read: fn(&LoadReport) -> f64) -> Option<String> {
    each(results.trials.iter().filter_map(|trial| Some(format!("{:.1} s", read(trial.load.as_ref()?)))))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
