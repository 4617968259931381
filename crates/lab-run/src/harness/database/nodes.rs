//! A cluster of the lab's own, whichever it is.

use crate::harness::process::Process;
use crate::sampler::{Database, Node};
use kv::Error;
use std::path::Path;

/// What is to be done with a cluster. Dropping it ends it.
pub(in crate::harness) trait Nodes {
    /// The processes that run, each called like the part it is.
    fn processes(&mut self) -> Box<dyn Iterator<Item = &mut Process> + '_>;

    /// Waits until all nodes serve, and makes an empty database.
    fn make(&mut self, database: &str) -> Result<(), Error>;

    /// The URL of a database, with all nodes.
    fn url(&self, database: &str) -> String;

    /// Each node as a PostgreSQL that can be asked what it does.
    fn databases(&self, _database: &str) -> Vec<Database> {
        Vec::new()
    }

    /// Each node as a Cassandra.
    fn cassandra(&self) -> Vec<Node> {
        Vec::new()
    }

    /// What it is, for the report.
    fn describe(&self) -> String;

    /// Where the data of all nodes is.
    fn dir(&self) -> &Path;
}
