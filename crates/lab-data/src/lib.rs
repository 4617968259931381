//! The data of the lab: experiment files, `results.json`, the simulated target, cores. No processes, no network.

pub mod experiment;
pub mod topology;
pub mod published;
pub mod results;
pub mod search;
pub mod simulated;
