//! A private database server: a user, a directory, a free port, a process that is gone with its owner. Tests use it, too, to kill a
//! database and see what survives.
//!
//! What differs between products is a [`Product`]. Durability stays on: each commit is flushed, as is the servers' own default, unless
//! the settings say otherwise.

mod cassandra;
mod cluster;
mod mariadb;
mod nodes;
mod postgres;

pub use cassandra::CassandraCluster;
pub use cluster::Cluster;
pub(super) use nodes::Nodes;

use super::disk;
use super::files::{cannot_write, program};
use super::ports::{free_ports, on_free_ports};
use super::process::{Process, blind, complete, poll_until, wait_ready};
use crate::session::{Patience, Session};
use kv::Error;
use lab_data::experiment::{DATABASE, Engine};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// How long a server may take until it answers; recovery after a crash is part of it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long it may take until settings are loaded.
const RELOAD_MAX: Duration = Duration::from_secs(5);
/// The account of every private server; it may do everything, has no password, and gets in from 127.0.0.1 only.
const USER: &str = "weir";

/// How to start one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where it runs; empty: wherever we may.
    pub cores: Vec<usize>,
    /// Of a cluster, where each node runs; of those that are not here: as above.
    pub node_cores: Vec<Vec<usize>>,
    /// Server settings by name.
    pub settings: BTreeMap<String, String>,
    /// By how much every flush to its disk takes longer than it does here.
    pub flush_delay: Option<Duration>,
    /// Whether its disk can be broken while it runs.
    pub is_disk_broken: bool,
    /// Folders to make its data directory in; the first that its user can reach is taken, after them the temporary one.
    pub parents: Vec<PathBuf>,
    /// Where it says what goes wrong; of a cluster a folder. By default in its directory, which is gone with it.
    pub log: Option<PathBuf>,
    /// Set, it is not waited for any more.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    fn cores_of(&self, node: usize) -> &[usize] {
        self.node_cores.get(node).unwrap_or(&self.cores)
    }

    /// The file where a process of a cluster says what goes wrong.
    fn log_of(&self, dir: &Path, part: &str) -> PathBuf {
        self.log.as_deref().unwrap_or(dir).join(format!("{part}.log"))
    }
}

/// The part that a node of a cluster is.
fn part_of(node: usize) -> String {
    format!("{DATABASE}-{}", node + 1)
}

/// What differs between products.
#[derive(Debug)]
struct Product {
    engine: Engine,
    /// What it calls itself; its files and processes are called so, too.
    name: &'static str,
    scheme: &'static str,
    /// Whom it runs as if we are root, who may not run databases: the first there is.
    users: &'static [&'static str],
    /// The signal that has it write out what it must, and nothing more.
    ends_with: Signal,
    /// The database that every server has.
    database: &'static str,
    /// What answers with the data directory.
    data_directory: &'static str,
    /// What answers with the setting `{name}`, last.
    show: &'static str,
    /// The settings that decide what a write costs.
    settings: &'static [&'static str],
    /// What makes the data directory.
    install: fn(&DatabaseServer) -> Result<Command, Error>,
    /// What serves the data on the port.
    serve: fn(&DatabaseServer) -> Result<Command, Error>,
}

/// A private database server, whichever it is. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct DatabaseServer {
    // Before the directory: fields are dropped in order, and the process must be gone first.
    process: Option<Process>,
    dir: TempDir,
    account: Option<Account>,
    options: Options,
    log: PathBuf,
    port: u16,
    product: &'static Product,
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
}

impl DatabaseServer {
    /// Makes a server and waits until it answers.
    pub fn start(engine: Engine, options: Options) -> Result<DatabaseServer, Error> {
        let product = match engine {
            Engine::Postgres => &postgres::PRODUCT,
            Engine::MariaDb => &mariadb::PRODUCT,
        };
        let account = account(product)?;
        let dir = private_dir(product.name, &options.parents, account.as_ref())?;
        let log = options.log.clone().unwrap_or_else(|| dir.path().join(format!("{}.log", product.name)));
        let mut server = DatabaseServer { process: None, dir, account, options, log, port: 0, product };
        complete(&mut (product.install)(&server)?, "cannot make a data directory")?;
        on_free_ports(|| {
            server.port = free_ports(1)?[0];
            server.run()
        })?;
        Ok(server)
    }

    /// What it calls itself: `PostgreSQL`.
    pub fn product(&self) -> &'static str {
        self.product.name
    }

    /// The URL of the database that every server has.
    pub fn url(&self) -> String {
        self.url_of(self.product.database)
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("{}://{USER}@127.0.0.1:{}/{database}", self.product.scheme, self.port)
    }

    /// Where its data is.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The part of it that its programs make.
    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The root of its processes; `None` while it is stopped.
    pub(super) fn process(&mut self) -> Option<&mut Process> {
        self.process.as_mut()
    }

    /// Its process id; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Runs `sql` in `database` and gives the rows as text; NULL is empty.
    pub fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, Error> {
        let patience = Patience { timeout: TIMEOUT, stop: Arc::clone(&self.options.stop) };
        let session = Session::open(self.product.engine, &self.url(), database, patience);
        session.and_then(|mut session| session.query(sql)).map_err(|why| {
            Error::new(format_args!("{}: `{sql}` failed: {why}", self.product.name))
                .hint(format_args!("see {}", self.log.display()))
        })
    }

    /// The same in the database that every server has.
    pub fn ask(&self, sql: &str) -> Result<Vec<Vec<String>>, Error> {
        self.query(self.product.database, sql)
    }

    /// Its settings that decide what a write costs, and their values in force.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.product.settings.iter().filter_map(|name| {
            let rows = self.ask(&self.product.show.replace("{name}", name)).ok()?;
            Some((*name, rows.into_iter().next()?.pop()?))
        })
    }

    /// Has every commit of a PostgreSQL wait so many microseconds before it flushes the log, whoever else commits; 0 makes both
    /// settings again what the server was started with. Returns when it is so.
    pub fn delay_commits(&self, us: u64) -> Result<(), Error> {
        for (name, value) in [("commit_delay", us), ("commit_siblings", 0)] {
            let change = if us == 0 { format!("RESET {name}") } else { format!("SET {name} = {value}") };
            self.ask(&format!("ALTER SYSTEM {change}"))?;
        }
        self.ask("SELECT pg_reload_conf()")?;
        // Asked in a session of its own each time: what a new one has is what is in force.
        let sql = match us {
            0 => "sourcefile LIKE '%postgresql.auto.conf'".to_owned(),
            _ => format!("setting <> CASE name WHEN 'commit_delay' THEN '{us}' ELSE '0' END"),
        };
        let others = format!(
            "SELECT name FROM pg_settings WHERE name IN ('commit_delay', 'commit_siblings') AND {sql}"
        );
        let in_force = || Ok(self.ask(&others)?.is_empty().then_some(()));
        poll_until(RELOAD_MAX, &self.options.stop, in_force)?.ok_or_else(|| {
            Error::new("PostgreSQL does not take commit_delay")
                .hint("leave it and commit_siblings out of [postgres]")
        })
    }

    /// One of its programs, as its user, in its directory, blind to our own variables.
    fn command(&self, program: &Path) -> Command {
        command(program, self.dir.path(), self.account.as_ref())
    }

    /// Writes a file in its directory that its user can read.
    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.dir.path().join(name);
        write(&path, text, self.account.as_ref()).map(|()| path)
    }

    /// Starts it on its data and port and waits until it is the one that answers there.
    fn run(&mut self) -> Result<(), Error> {
        let Product { ends_with, data_directory, .. } = *self.product;
        let mut command = (self.product.serve)(self)?;
        let Options { flush_delay, is_disk_broken, .. } = self.options;
        disk::preload(&mut command, flush_delay, is_disk_broken, self.dir.path())?;
        let (cores, dir) = (&self.options.cores, self.dir.path());
        let mut process = Process::guarded(&mut command, cores, &self.log, ends_with, dir)?;
        wait_ready(slice::from_mut(&mut process), TIMEOUT, &self.options.stop, || {
            // Somebody else may have taken the port before us.
            match self.ask(data_directory) {
                Ok(rows) if rows.iter().flatten().any(|dir| Path::new(dir) == self.data()) => Ok(()),
                Ok(_) => Err(format!("another server answers on port {}", self.port)),
                Err(why) => Err(why.to_string()),
            }
        })?;
        disk::verify(self.process.insert(process))
    }

    /// Shuts it down in order; the data stays.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Kills it and all its processes at once, as a crash would; the data stays.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end_tree(Signal::KILL);
        }
    }

    /// Starts it again on the same data and port, after [`DatabaseServer::stop`], [`DatabaseServer::kill`] or while it runs.
    pub fn restart(&mut self) -> Result<(), Error> {
        self.stop();
        self.run()
    }
}

/// A program that runs as `account` in `dir`, blind to our own variables.
fn command(program: &Path, dir: &Path, account: Option<&Account>) -> Command {
    let mut command = Command::new(program);
    blind(&mut command);
    // The folder we are in may be closed to that user, and so may our home, where a PostgreSQL that follows another one looks
    // for certificates.
    command.current_dir(dir).env("HOME", dir);
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

/// Writes a file that `account` can read.
fn write(path: &Path, text: &str, account: Option<&Account>) -> Result<(), Error> {
    let own = |account: &Account| chown(path, Some(account.uid), Some(account.gid));
    let written = fs::write(path, text).and_then(|()| account.map_or(Ok(()), own));
    written.map_err(|error| cannot_write(path, error))
}

/// Whom the server runs as. `None`: as we are.
fn account(Product { name, users, .. }: &Product) -> Result<Option<Account>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let known = fs::read_to_string("/etc/passwd")
        .map_err(|error| Error::new(format_args!("cannot read /etc/passwd: {error}")))?;
    users.iter().find_map(|user| find_account(&known, user)).map(Some).ok_or_else(|| {
        let users = users.join(" or ");
        Error::new(format_args!("{name} does not run as root, and there is no user {users}"))
            .hint("run this as another user")
    })
}

/// A line of passwd: `postgres:x:106:110:…`.
fn find_account(users: &str, name: &str) -> Option<Account> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|fields| fields[0] == name)?;
    Some(Account { uid: line.get(2)?.parse().ok()?, gid: line.get(3)?.parse().ok()? })
}

/// A new directory, its user's own, in the first folder that this user can reach.
fn private_dir(name: &str, parents: &[PathBuf], account: Option<&Account>) -> Result<TempDir, Error> {
    // /var/tmp before /tmp: the latter is often memory, where a durable write costs nothing.
    let fallbacks = [PathBuf::from("/var/tmp"), std::env::temp_dir()];
    let made = parents.iter().chain(&fallbacks).find_map(|parent| {
        let dir = tempfile::Builder::new().prefix(&format!("weir-{name}-")).tempdir_in(parent).ok()?;
        chown(dir.path(), account.map(|of| of.uid), account.map(|of| of.gid)).ok()?;
        // A folder above may be closed to that user.
        let tried = command(Path::new("true"), dir.path(), account).status();
        tried.is_ok_and(|status| status.success()).then_some(dir)
    });
    made.ok_or_else(|| {
        Error::new(format_args!("no folder for the data of {name}"))
            .hint("make /var/tmp writable or set TMPDIR")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "postgresql:x:1:1::/:\npostgres:x:106:110:PostgreSQL,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(find_account(users, "postgres"), Some(Account { uid: 106, gid: 110 }));
        assert_eq!(find_account(users, "nobody"), None);
    }

    #[test]
    fn a_closed_folder_is_not_reached_by_others() {
        // Only root may make a directory that is somebody else's.
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let is_inside = |uid| {
            let account = Account { uid, gid: 4321 };
            let made = private_dir("test", slice::from_ref(&inner), Some(&account)).unwrap();
            made.path().starts_with(&inner)
        };
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!((is_inside(4321), is_inside(0)), (false, true));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(is_inside(4321));
    }
}
