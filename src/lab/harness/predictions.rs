//! Which trials come first, so that the others can be foretold, and what was foretold: written down before any of them runs.
//!
//! Knows nothing of how one foretells: that is handed in.

use super::Utc;
use crate::lab::experiment::Workload;
use crate::lab::results::{Registered, Results, foretold_from};
use sha2::{Digest, Sha256};
use std::time::SystemTime;

/// What can be foretold of a workload from the trials there are: methods, and what they say as JSON text.
pub type Foretell = fn(&Results, &str) -> Vec<(String, String)>;

/// Puts the trials that predictions are made from in front: the lone clients of all workloads, then the next levels of each. The
/// rest keep their order.
pub(super) fn first_what_foretells<'w>(
    order: &mut [(&'w Workload, u32)],
    levels_of: impl Fn(&'w Workload) -> &'w [u32],
) {
    order.sort_by_key(|(workload, level)| {
        let mut levels = levels_of(workload).to_vec();
        levels.sort_unstable();
        levels.dedup();
        let from = foretold_from(&levels);
        from.iter().position(|of| of == level).unwrap_or(usize::MAX)
    });
}

/// Writes down what is foretold of `workload` now and was not before.
pub(super) fn register(results: &mut Results, workload: &str, foretell: Foretell) {
    for (method, said) in foretell(results, workload) {
        let known = |of: &Registered| of.workload == workload && of.method == method;
        if !results.predictions.iter().any(known) {
            results.predictions.push(Registered {
                workload: workload.to_owned(),
                method,
                at: Utc::at(SystemTime::now()).to_string(),
                after_trials: results.trials.len(),
                sha256: Sha256::digest(&said).iter().map(|byte| format!("{byte:02x}")).collect(),
                said,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::simulated::tests::{model, sweep};

    #[test]
    fn a_prediction_is_written_down_once_with_its_hash() {
        let mut results = sweep(&model("cpu 1 1ms"), &["w"], &[1, 2], 1, "100ms");
        let foretell: Foretell = |results, workload| {
            vec![("guess".to_owned(), format!("{workload} after {}", results.trials.len()))]
        };
        results.trials.pop();
        register(&mut results, "w", foretell);
        results.trials.clear();
        register(&mut results, "w", foretell);
        let [registered] = results.predictions.as_slice() else { panic!("{:?}", results.predictions) };
        assert_eq!((registered.said.as_str(), registered.after_trials), ("w after 1", 1));
        // As sha256sum has it.
        assert_eq!(registered.sha256, "865e21b685280896ea869ec4f31a5b0e0e9dfcdef25fb2a84c1d10d7b3a63411");
    }
}
