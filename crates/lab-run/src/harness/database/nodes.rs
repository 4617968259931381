//! A cluster of the lab's own, whichever it is.

use super::{CassandraCluster, Cluster, Options, part_of};
use crate::harness::process::{Process, poll_until};
use crate::sampler::{Database, Node};
use kv::Error;
use lab_data::experiment::{self, Engine};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long it may take until somebody leads.
const LEADER_MAX: Duration = Duration::from_secs(90);

/// A cluster and what is to be done with it.
#[derive(Debug)]
pub(in crate::harness) struct Nodes {
    cluster: Kind,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Kind {
    Cassandra(CassandraCluster),
    Patroni(Box<Cluster>),
}

impl Nodes {
    /// Starts one.
    pub(in crate::harness) fn start(kind: experiment::Cluster, options: Options) -> Result<Nodes, Error> {
        let stop = Arc::clone(&options.stop);
        let cluster = match kind {
            experiment::Cluster::Cassandra => {
                Kind::Cassandra(CassandraCluster::start(experiment::Cluster::NODES as u8, options)?)
            }
            experiment::Cluster::Patroni => Kind::Patroni(Box::new(Cluster::start(options, true)?)),
        };
        Ok(Nodes { cluster, stop })
    }

    /// The processes that run.
    pub(in crate::harness) fn processes(&mut self) -> Box<dyn Iterator<Item = &mut Process> + '_> {
        match &mut self.cluster {
            Kind::Cassandra(cluster) => Box::new(cluster.processes()),
            Kind::Patroni(cluster) => Box::new(cluster.processes()),
        }
    }

    /// Waits until all nodes serve, and makes an empty database.
    pub(in crate::harness) fn make(&mut self, database: &str) -> Result<(), Error> {
        match &mut self.cluster {
            Kind::Cassandra(cluster) => {
                cluster.settle()?;
                cluster.keyspace(database).map(drop)
            }
            Kind::Patroni(cluster) => {
                cluster.settle()?;
                let leader = poll_until(LEADER_MAX, &self.stop, || Ok(cluster.leader()))?;
                let leader = leader.ok_or_else(|| Error::new("no node of the PostgreSQL cluster leads"))?;
                cluster.query(leader, "postgres", &format!("CREATE DATABASE {database}")).map(drop)
            }
        }
    }

    /// The URL of a database, with all nodes.
    pub(in crate::harness) fn url(&self, database: &str) -> String {
        match &self.cluster {
            Kind::Cassandra(cluster) => cluster.url(database),
            Kind::Patroni(cluster) => cluster.url_of(database),
        }
    }

    /// Each node as a PostgreSQL that can be asked what it does.
    pub(in crate::harness) fn databases(&self, database: &str) -> Vec<Database> {
        let Kind::Patroni(cluster) = &self.cluster else { return Vec::new() };
        let of = |node| Database {
            part: part_of(node),
            engine: Engine::Postgres,
            url: cluster.url_on(node, database),
        };
        (0..experiment::Cluster::NODES).map(of).collect()
    }

    /// Each node as a Cassandra.
    pub(in crate::harness) fn cassandra(&self) -> Vec<Node> {
        let Kind::Cassandra(cluster) = &self.cluster else { return Vec::new() };
        let of = |node| Node { part: part_of(node), address: cluster.address(node) };
        (0..experiment::Cluster::NODES).map(of).collect()
    }

    /// What it is, for the report.
    pub(in crate::harness) fn describe(&self) -> String {
        let nodes = experiment::Cluster::NODES;
        let first = |rows: Result<Vec<Vec<String>>, Error>| rows.unwrap_or_default().concat().concat();
        match &self.cluster {
            Kind::Cassandra(cluster) => {
                let version = first(cluster.query(0, "SELECT release_version FROM system.local"));
                format!(
                    "Cassandra {version}, {nodes} nodes, paxos_variant=v2 commitlog_sync=batch heap 512 MiB"
                )
            }
            Kind::Patroni(cluster) => {
                let version = first(cluster.query(0, "postgres", "SHOW server_version"));
                format!("PostgreSQL {version}, {nodes} nodes of Patroni, synchronous_mode_strict=true ttl=6")
            }
        }
    }

    /// Where the data of all nodes is.
    pub(in crate::harness) fn dir(&self) -> &Path {
        match &self.cluster {
            Kind::Cassandra(cluster) => cluster.dir(),
            Kind::Patroni(cluster) => cluster.dir(),
        }
    }
}
