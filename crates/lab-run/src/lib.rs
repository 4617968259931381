//! Runs an experiment: processes, cores, databases, samplers, trials. An experiment in, results out.

mod cql;
pub mod harness;
mod http;
pub mod link;
pub mod sampler;
mod session;
