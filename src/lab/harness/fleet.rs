//! The lab's own databases: started and pinned, limited, made fresh for each repetition, and fed into a replica.

use super::limits::{Limits, Wanted};
use super::postgres::{Options as PostgresOptions, Postgres};
use super::process::blind;
use crate::lab::experiment::{Database, Engine, Experiment};
use crate::lab::results::Placement;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a replica needs of the servers it follows, and of itself: room for the slots of every shard.
const FOLLOWED: &[(&str, &str)] = &[("wal_level", "logical")];

/// The databases of a run, and what they may use.
pub(super) struct Fleet {
    plan: Vec<Database>,
    settings: Settings,
    /// In the order of `plan`; before the limits, whose groups must be empty when they go.
    servers: Vec<Server>,
    limits: Option<Limits>,
    /// Databases made so far: each start of the target has one of its own.
    fresh: u32,
    /// The database in use.
    current: String,
}

/// How the servers are set up.
struct Settings {
    postgres: BTreeMap<String, String>,
    cores: Vec<Vec<usize>>,
    dir: PathBuf,
    program: PathBuf,
}

/// A running server of either kind.
pub(super) enum Server {
    /// See [`Engine::Postgres`].
    Postgres(Postgres),
}

/// Where the target finds its stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Urls {
    /// By the store's place in the experiment.
    pub(super) stores: BTreeMap<usize, String>,
    /// The replica's.
    pub(super) replica: Option<String>,
}

impl Fleet {
    /// Nothing is started yet.
    pub(super) fn new(
        experiment: &Experiment,
        placements: &[Placement],
        dir: &Path,
        program: &Path,
    ) -> Result<Fleet, String> {
        let plan = experiment.databases();
        let mut postgres = experiment.postgres.clone().unwrap_or_default().settings;
        if plan.iter().any(|database| database.store.is_none()) {
            let needed = FOLLOWED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            postgres.extend(needed);
        }
        let cores_of = |database: &Database| {
            let placement = placements.iter().find(|placement| placement.part == database.part);
            placement.map(|placement| placement.cores.clone()).unwrap_or_default()
        };
        // Without a database it is the server that writes.
        let parts: Vec<String> = match plan.is_empty() {
            true => vec![crate::lab::experiment::SERVER.to_owned()],
            false => plan.iter().map(|database| database.part.clone()).collect(),
        };
        let wanted = Wanted {
            memory: experiment.limits.memory.map(|size| size.0),
            write_cap: experiment.workloads.iter().any(|workload| workload.write_cap.is_some()),
        };
        Ok(Fleet {
            settings: Settings {
                postgres,
                cores: plan.iter().map(cores_of).collect(),
                dir: dir.to_owned(),
                program: program.to_owned(),
            },
            plan,
            servers: Vec::new(),
            limits: Limits::new(&parts, wanted)?,
            fresh: 0,
            current: String::new(),
        })
    }

    /// Makes sure that every server runs, with an empty database each, and the replica follows.
    pub(super) fn refresh(&mut self) -> Result<Urls, String> {
        let followed = self.plan.iter().any(|database| database.store.is_none());
        // The slots of a replica belong to its servers, not to a database: with one, all are made anew.
        if followed || !self.servers.iter_mut().all(Server::lives) {
            self.servers.clear();
        }
        for index in self.servers.len()..self.plan.len() {
            let server = self.settings.start(&self.plan[index], index)?;
            if let Some((limits, pid)) = self.limits.as_ref().zip(server.pid()) {
                limits.take(index, pid)?;
            }
            self.servers.push(server);
        }
        self.current = format!("block_{}", self.fresh);
        self.fresh += 1;
        let mut urls = Urls::default();
        for (database, server) in self.plan.iter().zip(&self.servers) {
            server.create(&self.current)?;
            let url = server.url_of(&self.current);
            match database.store {
                Some(index) => drop(urls.stores.insert(index, url)),
                None => urls.replica = Some(url),
            }
        }
        if let Some(replica) = &urls.replica {
            self.settings.follow(replica, urls.stores.values())?;
        }
        Ok(urls)
    }

    /// Puts the target's server under the limits, where there is no database to be limited.
    pub(super) fn take_server(&self, pid: u32) -> Result<(), String> {
        match &self.limits {
            Some(limits) if self.plan.is_empty() => limits.take(0, pid),
            _ => Ok(()),
        }
    }

    /// Every database with its server.
    pub(super) fn members(&self) -> impl Iterator<Item = (&Database, &Server)> {
        self.plan.iter().zip(&self.servers)
    }

    /// The URL of the database in use on `server`.
    pub(super) fn url(&self, server: &Server) -> String {
        server.url_of(&self.current)
    }

    /// Where the first of them keeps its data.
    pub(super) fn data(&self) -> Option<&Path> {
        self.servers.first().map(Server::data)
    }

    /// What is limited, where anything is.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }
}

impl Settings {
    fn start(&self, database: &Database, index: usize) -> Result<Server, String> {
        let log = self.dir.join(format!("{}.log", database.part));
        match database.engine {
            Engine::Postgres => Postgres::start(PostgresOptions {
                cores: self.cores[index].clone(),
                settings: self.postgres.clone(),
                parents: vec![self.dir.clone()],
                log: Some(log),
            })
            .map(Server::Postgres),
            Engine::MariaDb => Err("MariaDB cannot be started yet; use postgres".into()),
        }
    }

    /// Has the replica follow the stores, in their order.
    fn follow<'a>(&self, replica: &str, stores: impl Iterator<Item = &'a String>) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        blind(&mut command);
        command.args(["replica", "init", "--replica", replica]).stdin(Stdio::null());
        command.args(stores.flat_map(|store| ["--store", store]));
        let output = command.output().map_err(|error| {
            format!("cannot start {}: {error}; is it still where it was?", self.program.display())
        })?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let said = String::from_utf8_lossy(&output.stderr);
                Err(format!("weir replica init failed: {}", said.lines().last().unwrap_or("it said nothing")))
            }
        }
    }
}

impl Server {
    /// The root of its processes; `None` while it is stopped.
    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Server::Postgres(server) => server.pid(),
        }
    }

    fn lives(&mut self) -> bool {
        match self {
            Server::Postgres(server) => server.lives(),
        }
    }

    fn create(&self, database: &str) -> Result<(), String> {
        let statement = format!("CREATE DATABASE {database}");
        match self {
            Server::Postgres(server) => server.query("postgres", &statement).map(drop),
        }
    }

    fn url_of(&self, database: &str) -> String {
        match self {
            Server::Postgres(server) => server.url_of(database),
        }
    }

    fn data(&self) -> &Path {
        match self {
            Server::Postgres(server) => server.data(),
        }
    }

    /// The first cell of what `sql` gives; `None` where it gives nothing or fails.
    pub(super) fn ask(&self, sql: &str) -> Option<String> {
        let rows = match self {
            Server::Postgres(server) => server.query("postgres", sql),
        };
        rows.ok()?.into_iter().next()?.into_iter().next_back()
    }

    /// What it is called.
    pub(super) fn product(&self) -> &'static str {
        match self {
            Server::Postgres(_) => "PostgreSQL",
        }
    }
}
