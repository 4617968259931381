//! The lab's own databases: started and pinned, limited, made fresh for each repetition, and fed into a replica.

use super::TargetRun;
use super::database::{CassandraCluster, Cluster, DatabaseServer, Nodes, Options};
use super::limits::{Limits, Part};
use super::process::{Process, complete, poll_until};
use crate::sampler;
use kv::Error;
use lab_data::experiment::{self, DATABASE, Database, ETCD, Engine, GENERATOR};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// How long a replica may take to catch up before a trial is begun without it.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// A replica never has all: the servers log some bytes even when nothing happens.
const LAG_SETTLED_BYTES: u64 = 1 << 20;

/// The databases of a run, and what they may use.
pub(super) struct Fleet<'a> {
    target_run: &'a TargetRun<'a>,
    plan: Vec<Database>,
    /// In the order of `plan`; before the limits, whose groups must be empty when they go.
    servers: Vec<DatabaseServer>,
    /// The cluster, where the store is one.
    pub(super) nodes: Option<Box<dyn Nodes>>,
    pub(super) limits: Limits,
    /// Databases made so far: each start of the target has one of its own.
    fresh: u32,
    /// The database in use.
    current: String,
}

impl<'a> Fleet<'a> {
    /// The databases of a target. Nothing is started yet.
    pub(super) fn new(target_run: &'a TargetRun) -> Result<Fleet<'a>, Error> {
        let plan = target_run.subject.target.databases();
        let parts = limited(target_run, &plan);
        let workloads = &target_run.workloads;
        let limits = Limits::new(parts, workloads.iter().any(|workload| workload.write_cap.is_some()))?;
        Ok(Fleet {
            target_run,
            plan,
            servers: Vec::new(),
            nodes: None,
            limits,
            fresh: 0,
            current: String::new(),
        })
    }

    /// Makes sure that every server runs, with an empty database each, and the replica follows.
    pub(super) fn refresh(&mut self) -> Result<(), Error> {
        // The slots of a replica belong to its servers, not to a database: with one, all are made anew.
        if self.has_replica() || self.processes().any(|process| process.ended().is_some()) {
            self.servers.clear();
            self.nodes = None;
        }
        if let Some(kind) = self.target_run.subject.target.cluster().filter(|_| self.nodes.is_none()) {
            let options = self.node_options();
            self.nodes = Some(match kind {
                experiment::Cluster::Cassandra => {
                    Box::new(CassandraCluster::start(experiment::Cluster::NODES as u8, options)?)
                }
                experiment::Cluster::Patroni => Box::new(Cluster::start(options, true)?),
            });
        }
        for database in self.plan.iter().skip(self.servers.len()) {
            let server = self.start(database)?;
            server.pid().map_or(Ok(()), |pid| self.limits.take(&database.part, pid))?;
            self.servers.push(server);
        }
        self.current = format!("block_{}", self.fresh);
        self.fresh += 1;
        self.nodes.iter_mut().try_for_each(|nodes| nodes.make(&self.current))?;
        for server in &self.servers {
            server.ask(&format!("CREATE DATABASE {}", self.current))?;
        }
        self.url_of(None).map_or(Ok(()), |replica| self.follow(&replica))
    }

    fn start(&self, database: &Database) -> Result<DatabaseServer, Error> {
        let TargetRun { experiment, subject, options, .. } = self.target_run;
        let settings = match database.engine {
            Engine::Postgres => &experiment.postgres,
            Engine::MariaDb => &experiment.mariadb,
        };
        let mut settings = settings.clone().unwrap_or_default().settings;
        if self.has_replica() && database.engine == Engine::Postgres {
            // What it needs of the servers it follows, and of itself: room for the slots of every shard.
            settings.insert("wal_level".to_owned(), "logical".to_owned());
        }
        let options = Options {
            cores: self.target_run.cores_of(&database.part).to_vec(),
            node_cores: Vec::new(),
            settings,
            flush_delay: subject.target.flush_delay().map(|delay| delay.0),
            is_disk_broken: experiment.breaks_disk(&database.part),
            parents: vec![options.dir.clone()],
            log: Some(options.dir.join(format!("{}.log", database.part))),
            stop: Arc::clone(&options.stop),
        };
        DatabaseServer::start(database.engine, options)
    }

    /// How the nodes of a cluster are started.
    fn node_options(&self) -> Options {
        let TargetRun { subject, options, .. } = self.target_run;
        let parts = subject.target.parts();
        let nodes = parts.iter().filter(|part| part.starts_with(DATABASE));
        Options {
            cores: self.target_run.cores_of(ETCD).to_vec(),
            node_cores: nodes.map(|part| self.target_run.cores_of(part).to_vec()).collect(),
            parents: vec![options.dir.clone()],
            log: Some(options.dir.clone()),
            stop: Arc::clone(&options.stop),
            ..Options::default()
        }
    }

    /// Has the replica follow the stores, in their order.
    fn follow(&self, replica: &str) -> Result<(), Error> {
        let mut command = Command::new(&self.target_run.options.program);
        command.args(["replica", "init", "--replica", replica]);
        let stores = self.plan.iter().filter(|database| database.store.is_some());
        let stores = stores.filter_map(|database| self.url_of(database.store));
        command.args(stores.flat_map(|store| ["--store".to_owned(), store]));
        complete(&mut command, "the replica does not follow")
    }

    /// The process of every server.
    pub(super) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let nodes = self.nodes.iter_mut().flat_map(|nodes| nodes.processes());
        self.servers.iter_mut().filter_map(DatabaseServer::process).chain(nodes)
    }

    /// The part that is the store in this place of the experiment, if that is a database of ours.
    pub(super) fn part_of(&self, store: usize) -> Option<&str> {
        self.plan.iter().find(|database| database.store == Some(store)).map(|database| &*database.part)
    }

    /// The URL of the store in this place of the experiment, if that is a database of ours; without a place, of the replica.
    pub(super) fn url_of(&self, store: Option<usize>) -> Option<String> {
        let of_nodes =
            || self.nodes.as_ref().filter(|_| store.is_some()).map(|nodes| nodes.url(&self.current));
        let member = self.members().find(|(database, _)| database.store == store);
        member.map(|(_, server)| self.url(server)).or_else(of_nodes)
    }

    fn has_replica(&self) -> bool {
        self.plan.iter().any(|database| database.store.is_none())
    }

    /// Has the databases write out what they owe to their disks and to the replica, so that a write cap meets only what is
    /// written from now on.
    pub(super) fn settle(&self) -> Result<(), Error> {
        // A MariaDB writes its dirty pages all the time, and has no replica.
        let postgres =
            || self.members().filter(|(of, _)| of.engine == Engine::Postgres).map(|(_, server)| server);
        for server in postgres() {
            server.ask("CHECKPOINT")?;
        }
        let is_followed = || Ok((!postgres().any(is_followed_late)).then_some(()));
        poll_until(SETTLE_MAX, &self.target_run.options.stop, is_followed)?;
        rustix::fs::sync();
        Ok(())
    }

    /// Has every commit of the PostgreSQL servers that are stores wait so many microseconds before it flushes; 0 is none.
    pub(super) fn delay_commits(&self, us: u64) -> Result<(), Error> {
        let is_meant = |of: &Database| of.store.is_some() && of.engine == Engine::Postgres;
        let mut stores = self.members().filter(|(database, _)| is_meant(database));
        stores.try_for_each(|(_, server)| server.delay_commits(us))
    }

    /// What can be asked what it does.
    pub(super) fn databases(&self) -> Vec<sampler::Database> {
        let of = |(database, server): (&Database, &DatabaseServer)| sampler::Database {
            part: database.part.clone(),
            engine: database.engine,
            url: self.url(server),
        };
        let nodes = self.nodes.iter().flat_map(|nodes| nodes.databases(&self.current));
        self.members().map(of).chain(nodes).collect()
    }

    /// Every database with its server.
    pub(super) fn members(&self) -> impl Iterator<Item = (&Database, &DatabaseServer)> {
        self.plan.iter().zip(&self.servers)
    }

    /// The URL of the database in use on `server`.
    pub(super) fn url(&self, server: &DatabaseServer) -> String {
        server.url_of(&self.current)
    }

    /// Where the first of them keeps its data.
    pub(super) fn data(&self) -> Option<&Path> {
        self.servers.first().map(DatabaseServer::dir).or(self.nodes.as_ref().map(|nodes| nodes.dir()))
    }
}

/// The parts of a target that are limited, with the databases of `plan`.
fn limited(target_run: &TargetRun, plan: &[Database]) -> Vec<Part> {
    let TargetRun { experiment, subject, .. } = target_run;
    let quota = subject.target.quota();
    let databases = plan.iter().map(|database| Part {
        name: database.part.clone(),
        // The replica is not in the way of a write, and its pace is nobody's.
        capped: database.store.is_some(),
        memory: experiment.limits.memory.map(|size| size.0),
        quota: quota.database,
        ..Part::default()
    });
    let part = |name: &str, capped, quota| Part { name: name.to_owned(), capped, quota, ..Part::default() };
    let servers = subject.target.servers();
    // Without a database it is the servers that write.
    let servers = servers.iter().map(|name| part(name, plan.is_empty(), quota.server));
    let own = servers.chain([part(GENERATOR, false, quota.generator)]);
    databases.chain(own.filter(|part| part.capped || part.quota.is_some())).collect()
}

/// Whether a replica has not taken in all that a server has sent it.
fn is_followed_late(server: &DatabaseServer) -> bool {
    const LAG: &str =
        "SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0)::bigint
            FROM pg_replication_slots";
    let lag = server.ask(LAG).ok().and_then(|rows| rows.concat().first()?.parse::<u64>().ok());
    lag.is_some_and(|bytes| bytes > LAG_SETTLED_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::experiment::Experiment;

    /// The others had no quota at all.
    #[test]
    fn a_quota_of_the_server_is_one_of_each_of_them() {
        let experiment = Experiment::parse(
            "name = \"m\"\ntitle = \"m\"\nlevels = [8]\nrepetitions = 1\nwarmup = \"1s\"\nwindow = \"1s\"\n\
             [target]\nkind = \"weir\"\nstore = \"cassandra\"\nservers = 2\nquota = { server = 0.5 }\n\
             [[workload]]\nname = \"w\"\n",
        );
        let experiment = experiment.unwrap();
        let options = super::super::Options::of("weir".into(), Path::new("."));
        let target_run = TargetRun::new(&experiment, &experiment.subjects[0], &options, &[0]).unwrap();
        let parts = limited(&target_run, &[]);
        let quotas: Vec<_> = parts.iter().map(|part| (part.name.as_str(), part.quota)).collect();
        assert_eq!(quotas, [("server", Some(0.5)), ("server-2", Some(0.5))]);
    }
}
