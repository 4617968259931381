//! Runs an experiment: processes, cores, databases, samplers, trials. An experiment in, results out.

pub mod harness;
pub mod link;
pub mod sampler;
