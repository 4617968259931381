//! The lab's own databases: started and pinned, limited, made fresh for each repetition, and fed into a replica.

use super::database::{DatabaseServer, Options};
use super::limits::{Limits, Part};
use super::process::blind;
use lab_data::experiment::{Database, Engine, Experiment, GENERATOR, SERVER, Target, Workload};
use lab_data::results::Placement;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a replica needs of the servers it follows, and of itself: room for the slots of every shard.
const FOLLOWED: &[(&str, &str)] = &[("wal_level", "logical")];

/// How long a replica may take to catch up before a trial is begun without it.
const SETTLE_MAX: Duration = Duration::from_secs(30);
/// How often it is checked.
const SETTLE_POLL_EVERY: Duration = Duration::from_millis(20);
/// A replica never has all: the servers log some bytes even when nothing happens.
const LAG_SETTLED_BYTES: u64 = 1 << 20;

/// The databases of a run, and what they may use.
pub(super) struct Fleet {
    plan: Vec<Database>,
    settings: Settings,
    /// In the order of `plan`; before the limits, whose groups must be empty when they go.
    servers: Vec<DatabaseServer>,
    limits: Option<Limits>,
    /// Databases made so far: each start of the target has one of its own.
    fresh: u32,
    /// The database in use.
    current: String,
}

/// How the servers are set up.
struct Settings {
    postgres: BTreeMap<String, String>,
    mariadb: BTreeMap<String, String>,
    cores: Vec<Vec<usize>>,
    flush_delay: Option<Duration>,
    dir: PathBuf,
    program: PathBuf,
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
    /// The databases of `target`, which is asked `workloads`. Nothing is started yet.
    pub(super) fn new(
        experiment: &Experiment,
        target: &Target,
        workloads: &[Workload],
        placements: &[Placement],
        dir: &Path,
        program: &Path,
    ) -> Result<Fleet, String> {
        let plan = target.databases();
        let mut postgres = experiment.postgres.clone().unwrap_or_default().settings;
        if plan.iter().any(|database| database.store.is_none()) {
            let needed = FOLLOWED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            postgres.extend(needed);
        }
        let cores_of = |database: &Database| {
            let placement = placements.iter().find(|placement| placement.part == database.part);
            placement.map(|placement| placement.cores.clone()).unwrap_or_default()
        };
        let quota = target.quota();
        let databases = plan.iter().map(|database| Part {
            name: database.part.clone(),
            // The replica is not in the way of a write, and its pace is nobody's.
            capped: database.store.is_some(),
            memory: experiment.limits.memory.map(|size| size.0),
            quota: quota.database,
        });
        let part = |name: &str, capped, quota| Part { name: name.to_owned(), capped, memory: None, quota };
        // Without a database it is the server that writes.
        let own = [part(SERVER, plan.is_empty(), quota.server), part(GENERATOR, false, quota.generator)];
        let own = own.into_iter().filter(|part| part.capped || part.quota.is_some());
        let parts: Vec<Part> = databases.chain(own).collect();
        let write_cap = workloads.iter().any(|workload| workload.write_cap.is_some());
        Ok(Fleet {
            settings: Settings {
                postgres,
                mariadb: experiment.mariadb.clone().unwrap_or_default().settings,
                cores: plan.iter().map(cores_of).collect(),
                flush_delay: target.flush_delay().map(|delay| delay.0),
                dir: dir.to_owned(),
                program: program.to_owned(),
            },
            plan,
            servers: Vec::new(),
            limits: Limits::new(&parts, write_cap)?,
            fresh: 0,
            current: String::new(),
        })
    }

    /// Makes sure that every server runs, with an empty database each, and the replica follows.
    pub(super) fn refresh(&mut self) -> Result<Urls, String> {
        let followed = self.plan.iter().any(|database| database.store.is_none());
        // The slots of a replica belong to its servers, not to a database: with one, all are made anew.
        if followed || !self.lives() {
            self.servers.clear();
        }
        for index in self.servers.len()..self.plan.len() {
            let server = self.settings.start(&self.plan[index], index)?;
            if let Some((limits, pid)) = self.limits.as_ref().zip(server.pid()) {
                limits.take(&self.plan[index].part, pid)?;
            }
            self.servers.push(server);
        }
        self.current = format!("block_{}", self.fresh);
        self.fresh += 1;
        let mut urls = Urls::default();
        for (database, server) in self.plan.iter().zip(&self.servers) {
            server.ask(&format!("CREATE DATABASE {}", self.current))?;
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

    /// Whether every server that was started still runs.
    pub(super) fn lives(&mut self) -> bool {
        self.servers.iter_mut().all(DatabaseServer::lives)
    }

    /// What is said of the first database that is no longer there; `None` while all run.
    pub(super) fn ended(&mut self) -> Option<String> {
        let mut servers = self.plan.iter().zip(&mut self.servers);
        let (database, _) = servers.find_map(|(of, server)| (!server.lives()).then_some((of, server)))?;
        Some(format!("the {part} ended during the trial; {part}.log says why", part = database.part))
    }

    /// Has the databases write out what they owe to their disks and to the replica, so that a write cap meets only what is
    /// written from now on.
    pub(super) fn settle(&self) -> Result<(), String> {
        let start = Instant::now();
        for (database, server) in self.members() {
            write_out(server, database.engine)?;
        }
        let may_lag = |(of, _): &(&Database, &DatabaseServer)| of.engine == Engine::Postgres;
        let is_late = || self.members().filter(may_lag).any(|(_, server)| is_followed_late(server));
        while start.elapsed() < SETTLE_MAX && is_late() {
            thread::sleep(SETTLE_POLL_EVERY);
        }
        rustix::fs::sync();
        Ok(())
    }

    /// Puts a process that is no database under the limits of its part, where that has any.
    pub(super) fn take(&self, part: &str, pid: u32) -> Result<(), String> {
        self.limits.as_ref().map_or(Ok(()), |limits| limits.take(part, pid))
    }

    /// Has every commit of the PostgreSQL servers that are stores wait so many microseconds before it flushes; 0 is none.
    pub(super) fn delay_commits(&self, us: u64) -> Result<(), String> {
        let is_meant = |of: &Database| of.store.is_some() && of.engine == Engine::Postgres;
        let mut stores = self.members().filter(|(database, _)| is_meant(database));
        stores.try_for_each(|(_, server)| server.delay_commits(us))
    }

    /// Whether a store is a PostgreSQL.
    pub(super) fn has_postgres(&self) -> bool {
        self.plan.iter().any(|of| of.store.is_some() && of.engine == Engine::Postgres)
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
        self.servers.first().map(DatabaseServer::dir)
    }

    /// What is limited, where anything is.
    pub(super) fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }
}

impl Settings {
    fn start(&self, database: &Database, index: usize) -> Result<DatabaseServer, String> {
        let settings = match database.engine {
            Engine::Postgres => &self.postgres,
            Engine::MariaDb => &self.mariadb,
        };
        let options = Options {
            cores: self.cores[index].clone(),
            settings: settings.clone(),
            flush_delay: self.flush_delay,
            parents: vec![self.dir.clone()],
            log: Some(self.dir.join(format!("{}.log", database.part))),
        };
        DatabaseServer::start(database.engine, options)
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

/// Writes every dirty page; a MariaDB does that all the time.
fn write_out(server: &DatabaseServer, engine: Engine) -> Result<(), String> {
    match engine {
        Engine::Postgres => server.ask("CHECKPOINT").map(drop),
        Engine::MariaDb => Ok(()),
    }
}

/// Whether a replica has not taken in all that a server has sent it; a MariaDB has none.
fn is_followed_late(server: &DatabaseServer) -> bool {
    const LAG: &str =
        "SELECT coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)), 0)::bigint
            FROM pg_replication_slots";
    let lag = server.ask(LAG).ok().and_then(|rows| rows.concat().first()?.parse::<u64>().ok());
    lag.is_some_and(|bytes| bytes > LAG_SETTLED_BYTES)
}
