//! The data of the lab: experiment files, `results.json`, the simulated target, cores. No processes, no network.

pub mod experiment;
pub mod topology;
pub mod published;
pub mod results;
pub mod search;
pub mod simulated;

/// Each of `all` once, where it first stands.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for of in all {
        if !seen.contains(&of) {
            seen.push(of);
        }
    }
    seen
}
