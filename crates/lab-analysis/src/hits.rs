//! Hit ratios: how the target's cache served the reads of a workload, and how other policies would have.
//!
//! Read from what the target counts itself, over the windows of all trials of the workload; a server without such
//! counters has none.

use lab_data::results::{Results, Trial};
use std::collections::BTreeSet;

/// How reads were served.
#[derive(Clone, Debug, PartialEq)]
pub struct HitRatio {
    /// The policy that was simulated; `None` for the cache itself.
    pub policy: Option<String>,
    /// Hits over reads, 0–1.
    pub hit_ratio: f64,
    /// Reads it is made of.
    pub reads: f64,
}

const CACHE: &str = "stats.weir_cache_requests_total{";
const SHADOW: &str = "stats.weir_shadow_requests_total{policy=\"";

/// The cache's hit ratio under `workload`, then that of each policy simulated beside it, by name. Empty where none was:
/// the table is a comparison.
pub fn hit_ratios(results: &Results, workload: &str) -> Vec<HitRatio> {
    let trials: Vec<&Trial> = results.trials_of(workload).collect();
    let names = trials.iter().flat_map(|trial| trial.closed.counters.keys());
    let policies: BTreeSet<&str> =
        names.filter_map(|name| Some(name.strip_prefix(SHADOW)?.split_once('"')?.0)).collect();
    if policies.is_empty() {
        return Vec::new();
    }
    let shadows = policies.into_iter().map(|policy| {
        let shadow = |result: &str| format!("{SHADOW}{policy}\",result=\"{result}\"");
        ratio(&trials, Some(policy.to_owned()), &shadow("hit"), &[shadow("miss")])
    });
    let cache = |result: &str| format!("{CACHE}result=\"{result}\"");
    let real = ratio(&trials, None, &cache("hit"), &[cache("miss"), cache("collapsed")]);
    std::iter::once(real).chain(shadows).flatten().collect()
}

/// `None` where nothing was read, or the counters were not.
fn ratio(trials: &[&Trial], policy: Option<String>, hit: &str, others: &[String]) -> Option<HitRatio> {
    // Hits and misses of a trial count together or not at all.
    let of_trial = |trial: &&Trial| {
        Some((growth(trial, hit)?, others.iter().map(|name| growth(trial, name)).sum::<Option<f64>>()?))
    };
    let (hits, misses): (Vec<f64>, Vec<f64>) = trials.iter().filter_map(of_trial).unzip();
    let (hits, misses) = (hits.iter().sum::<f64>(), misses.iter().sum::<f64>());
    let reads = hits + misses;
    (reads > 0.0).then(|| HitRatio { policy, hit_ratio: hits / reads, reads })
}

/// How much the counters that begin so grew together: several shards have one each.
pub(super) fn growth(trial: &Trial, start: &str) -> Option<f64> {
    let names: Vec<&String> = trial.closed.counters.keys().filter(|name| name.starts_with(start)).collect();
    if names.is_empty() { None } else { names.into_iter().map(|name| trial.growth(name)).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::simulated::tests::{model, sweep};

    fn results() -> Results {
        sweep(&model("cpu 1 =1ms"), &["get", "put"], &[1, 2], 2, "100ms")
    }

    #[test]
    fn hits_and_reads_are_summed_over_the_trials_of_a_workload() {
        let mut results = results();
        for (i, trial) in results.trials.iter_mut().filter(|trial| trial.workload == "get").enumerate() {
            for (name, from, to) in [
                ("stats.weir_cache_requests_total{result=\"hit\"}", 5.0, 10.0),
                ("stats.weir_cache_requests_total{result=\"miss\"}", 1.0, 4.0),
                ("stats.weir_cache_requests_total{result=\"collapsed\"}", 0.0, 2.0),
                ("stats.weir_shadow_requests_total{policy=\"w-tinylfu\",result=\"hit\"}", 0.0, 9.0),
                ("stats.weir_shadow_requests_total{policy=\"w-tinylfu\",result=\"miss\"}", 7.0, 8.0),
                ("stats.weir_shadow_requests_total{policy=\"fifo\",result=\"hit\"}", 0.0, 0.0),
                ("stats.weir_shadow_requests_total{policy=\"fifo\",result=\"miss\"}", 0.0, 10.0),
            ] {
                trial.opened.counters.insert(name.into(), from);
                // A trial of which one half was not read says nothing.
                if i > 0 || !name.ends_with("\"hit\"}") {
                    trial.closed.counters.insert(name.into(), to);
                }
            }
        }
        let seen: Vec<_> = (hit_ratios(&results, "get").into_iter())
            .map(|of| (of.policy.unwrap_or_default(), of.hit_ratio, of.reads))
            .collect();
        let expected = [("", 0.5, 30.0), ("fifo", 0.0, 30.0), ("w-tinylfu", 0.9, 30.0)];
        assert_eq!(seen, expected.map(|(policy, ratio, reads)| (policy.to_owned(), ratio, reads)));
        assert_eq!(hit_ratios(&results, "put"), []);
    }

    #[test]
    fn without_shadow_policies_there_is_nothing_to_compare() {
        let mut results = results();
        for trial in &mut results.trials {
            trial.closed.counters.insert("stats.weir_cache_requests_total{result=\"hit\"}".into(), 1.0);
        }
        assert_eq!(hit_ratios(&results, "get"), []);
    }
}
