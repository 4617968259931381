//! A cluster of the lab's own, whichever it is.

use super::{CassandraCluster, Cluster, Options, part_of};
use crate::harness::process::Process;
use crate::sampler::{Database, Node};
use kv::Error;
use lab_data::experiment::{self, Engine};
use std::path::Path;

/// A cluster and what is to be done with it.
#[derive(Debug)]
pub(in crate::harness) enum Nodes {
    Cassandra(CassandraCluster),
    Patroni(Box<Cluster>),
}

impl Nodes {
    /// Starts one.
    pub(in crate::harness) fn start(kind: experiment::Cluster, options: Options) -> Result<Nodes, Error> {
        Ok(match kind {
            experiment::Cluster::Cassandra => {
                Nodes::Cassandra(CassandraCluster::start(experiment::Cluster::NODES as u8, options)?)
            }
            experiment::Cluster::Patroni => Nodes::Patroni(Box::new(Cluster::start(options, true)?)),
        })
    }

    /// The processes that run.
    pub(in crate::harness) fn processes(&mut self) -> Box<dyn Iterator<Item = &mut Process> + '_> {
        match self {
            Nodes::Cassandra(cluster) => Box::new(cluster.processes()),
            Nodes::Patroni(cluster) => Box::new(cluster.processes()),
        }
    }

    /// Waits until all nodes serve, and makes an empty database.
    pub(in crate::harness) fn make(&mut self, database: &str) -> Result<(), Error> {
        match self {
            Nodes::Cassandra(cluster) => {
                cluster.settle()?;
                cluster.keyspace(database).map(drop)
            }
            Nodes::Patroni(cluster) => {
                let leader = cluster.settle()?;
                cluster.query(leader, "postgres", &format!("CREATE DATABASE {database}")).map(drop)
            }
        }
    }

    /// The URL of a database, with all nodes.
    pub(in crate::harness) fn url(&self, database: &str) -> String {
        match self {
            Nodes::Cassandra(cluster) => cluster.url(database),
            Nodes::Patroni(cluster) => cluster.url_of(database),
        }
    }

    /// Each node as a PostgreSQL that can be asked what it does.
    pub(in crate::harness) fn databases(&self, database: &str) -> Vec<Database> {
        let Nodes::Patroni(cluster) = self else { return Vec::new() };
        let of = |node| Database {
            part: part_of(node),
            engine: Engine::Postgres,
            url: cluster.url_on(node, database),
        };
        (0..experiment::Cluster::NODES).map(of).collect()
    }

    /// Each node as a Cassandra.
    pub(in crate::harness) fn cassandra(&self) -> Vec<Node> {
        let Nodes::Cassandra(cluster) = self else { return Vec::new() };
        let of = |node| Node { part: part_of(node), address: cluster.address(node) };
        (0..experiment::Cluster::NODES).map(of).collect()
    }

    /// What it is, for the report.
    pub(in crate::harness) fn describe(&self) -> String {
        let nodes = experiment::Cluster::NODES;
        let first = |rows: Result<Vec<Vec<String>>, Error>| rows.unwrap_or_default().concat().concat();
        match self {
            Nodes::Cassandra(cluster) => {
                let version = first(cluster.query(0, "SELECT release_version FROM system.local"));
                format!(
                    "Cassandra {version}, {nodes} nodes, paxos_variant=v2 commitlog_sync=batch heap 512 MiB"
                )
            }
            Nodes::Patroni(cluster) => {
                let version = first(cluster.query(0, "postgres", "SHOW server_version"));
                format!("PostgreSQL {version}, {nodes} nodes of Patroni, synchronous_mode_strict=true ttl=6")
            }
        }
    }

    /// Where the data of all nodes is.
    pub(in crate::harness) fn dir(&self) -> &Path {
        match self {
            Nodes::Cassandra(cluster) => cluster.dir(),
            Nodes::Patroni(cluster) => cluster.dir(),
        }
    }
}
