//! The lab: runs an experiment, checks it, names what limits it, and writes the report.
//!
//! Four nouns, three arrows: Experiment → Results → Findings → Report. Measuring ([`harness`]) touches processes,
//! `/proc` and HTTP; everything after [`results`] is a pure function of the results file.

pub mod experiment;
pub mod topology;
pub mod sampler;
pub mod harness;
pub mod simulated;
pub mod printed;
pub mod results;
pub mod search;
pub mod analysis;
pub mod report;
