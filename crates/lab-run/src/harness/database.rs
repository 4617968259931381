//! A private database server: a user, a directory, a free port, a process that is gone with its owner. Tests use it, too, to kill a
//! database and see what survives.
//!
//! What differs between products is a [`Product`]. Durability stays on: each commit is flushed, as is the servers' own default, unless
//! the settings say otherwise.

use super::process::{Log, Process, blind, kill_rest, poll_until};
use super::{mariadb, postgres, slow_flush};
use crate::sampler::descendants;
use lab_data::experiment::Engine;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// How long a server may take until it answers; recovery after a crash is part of it.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// What both say of a port that somebody has.
const PORT_TAKEN: &str = "Address already in use";
/// The account of every private server; it may do everything, has no password, and gets in from 127.0.0.1 only.
pub(super) const USER: &str = "weir";

/// How to start one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where it runs; empty: wherever we may.
    pub cores: Vec<usize>,
    /// Server settings by name.
    pub settings: BTreeMap<String, String>,
    /// By how much every flush to its disk takes longer than it does here.
    pub flush_delay: Option<Duration>,
    /// Folders to make its data directory in; the first that its user can reach is taken, after them the temporary one.
    pub parents: Vec<PathBuf>,
    /// Where it says what goes wrong; by default a file in its directory, which is gone with it.
    pub log: Option<PathBuf>,
}

/// Runs a statement in a database of the server on this port.
type Query = fn(port: u16, database: &str, sql: &str) -> Result<Option<Vec<Vec<String>>>, String>;

/// What differs between products.
#[derive(Debug)]
pub(super) struct Product {
    /// What it calls itself.
    pub(super) name: &'static str,
    /// What its files and processes are called.
    pub(super) short: &'static str,
    pub(super) scheme: &'static str,
    /// Whom it runs as if we are root, who may not run databases: the first there is.
    pub(super) users: &'static [&'static str],
    /// The signal that has it write out what it must, and nothing more.
    pub(super) ends_with: Signal,
    /// The database that every server has.
    pub(super) database: &'static str,
    /// What answers with the data directory.
    pub(super) data_directory: &'static str,
    /// What makes the data directory.
    pub(super) install: fn(&DatabaseServer) -> Result<Command, String>,
    /// What serves the data on the port.
    pub(super) serve: fn(&DatabaseServer) -> Result<Command, String>,
    /// The rows of a statement as text.
    pub(super) query: Query,
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
    pub fn start(engine: Engine, options: Options) -> Result<DatabaseServer, String> {
        let product = match engine {
            Engine::Postgres => &postgres::PRODUCT,
            Engine::MariaDb => &mariadb::PRODUCT,
        };
        let account = account(product)?;
        let dir = private_dir(product.short, &options.parents, account.as_ref())?;
        let log = options.log.clone().unwrap_or_else(|| dir.path().join(format!("{}.log", product.short)));
        let mut server = DatabaseServer { process: None, dir, account, options, log, port: 0, product };
        to_its_end((product.install)(&server)?, server.dir.path())?;
        // Between finding a free port and taking it another process may be quicker.
        let mut tried = 0;
        loop {
            tried += 1;
            server.port = free_port()?;
            match server.run() {
                Err(why) if why.contains(PORT_TAKEN) && tried < 5 => {}
                done => return done.map(|()| server),
            }
        }
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

    /// Its port on 127.0.0.1.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Where its data is.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The part of it that its programs make.
    pub(super) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it said last.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Settings by name, as the options have them.
    pub(super) fn settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The root of its processes; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Whether it runs: started, and not ended by itself since.
    pub fn lives(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Runs `sql` in `database` and gives the rows as text; NULL is empty.
    pub fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
        let (name, log) = (self.product.name, self.log.display());
        match (self.product.query)(self.port, database, sql) {
            Ok(Some(rows)) => Ok(rows),
            Ok(None) => Err(format!("{name}: `{sql}` is not answered; see {log}")),
            Err(why) => Err(format!("{name}: `{sql}` failed: {why}; see {log}")),
        }
    }

    /// The same in the database that every server has.
    pub fn ask(&self, sql: &str) -> Result<Vec<Vec<String>>, String> {
        self.query(self.product.database, sql)
    }

    /// One of its programs, as its user, in its directory, blind to our own variables.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        blind(&mut command);
        // The folder we are in may be closed to that user.
        command.current_dir(self.dir.path());
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Writes a file in its directory that its user can read.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.dir.path().join(name);
        let own = |account: &Account| chown(&path, Some(account.uid), Some(account.gid));
        fs::write(&path, text)
            .and_then(|()| self.account.as_ref().map_or(Ok(()), own))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }

    /// Starts it on its data and port and waits until it is the one that answers there.
    fn run(&mut self) -> Result<(), String> {
        let mut command = (self.product.serve)(self)?;
        let (log, file) = Log::append(&self.log)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        if let Some(delay) = self.options.flush_delay {
            slow_flush::preload(&mut command, delay, self.dir.path())?;
        }
        let Product { short, data_directory, ends_with, .. } = *self.product;
        let mut process = Process::spawn(&mut command, &self.options.cores)
            .and_then(|process| process.guarded(ends_with, self.dir.path()))
            .map_err(|error| format!("cannot start {short}: {error}"))?;
        let mut last = String::new();
        let answered = poll_until(TIMEOUT, &AtomicBool::new(false), || {
            if let Some(status) = process.ended() {
                // It says more after that, of which only the end is told.
                let taken = if log.says(PORT_TAKEN) { format!(" ({PORT_TAKEN})") } else { String::new() };
                return Err(format!("{short} ended with {status}{taken}: {}", log.tail()));
            }
            // Somebody else may have taken the port before us.
            match self.ask(data_directory) {
                Ok(rows) if rows.iter().flatten().any(|dir| Path::new(dir) == self.data()) => {
                    return Ok(Some(()));
                }
                Ok(_) => last = format!("another server answers on port {}", self.port),
                Err(why) => last = why,
            }
            Ok(None)
        })?;
        let process = self.process.insert(process);
        answered.ok_or_else(|| format!("{short} did not answer within {} s: {last}", TIMEOUT.as_secs()))?;
        self.options.flush_delay.map_or(Ok(()), |_| slow_flush::verify(process.pid()))
    }

    /// Shuts it down in order; the data stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end(self.product.ends_with);
        }
    }

    /// Kills it and all its processes at once, as a crash would; the data stays.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let tree = descendants(process.pid());
        // The root first, so that it does not start anew what it sees dying.
        process.kill();
        kill_rest(&tree);
    }

    /// Starts it again on the same data and port, after [`DatabaseServer::stop`], [`DatabaseServer::kill`] or while it runs.
    pub fn restart(&mut self) -> Result<(), String> {
        self.stop();
        self.run()
    }
}

impl Drop for DatabaseServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Runs a program that makes the data directory in `dir`, to its end.
fn to_its_end(mut command: Command, dir: &Path) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    let output = command.output().map_err(|error| format!("cannot start {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = said[said.len().saturating_sub(2)..].join(" / ");
    let last = if last.is_empty() { "it said nothing" } else { &last };
    Err(format!("{program} failed in {}: {last}", dir.display()))
}

/// Runs `ask` to its end, for at most [`TIMEOUT`]: a server that is stopped takes a question and says nothing.
/// `None` if that was not enough.
pub(super) fn answer_of<T>(ask: impl Future<Output = T>) -> Result<Option<T>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot make a runtime: {error}"))?;
    Ok(runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask).await }).ok())
}

fn free_port() -> Result<u16, String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("no free port on 127.0.0.1: {error}"))
}

/// Whom the server runs as. `None`: as we are.
fn account(Product { short, users, .. }: &Product) -> Result<Option<Account>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let known = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    users.iter().find_map(|user| find_account(&known, user)).map(Some).ok_or_else(|| {
        let users = users.join(" or ");
        format!("{short} does not run as root, and there is no user {users}; run this as another user")
    })
}

/// A line of passwd: `postgres:x:106:110:…`.
fn find_account(users: &str, name: &str) -> Option<Account> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some(Account { uid: fields.nth(1)?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    })
}

/// A new directory, its user's own, in the first folder that this user can reach.
fn private_dir(name: &str, parents: &[PathBuf], account: Option<&Account>) -> Result<TempDir, String> {
    // /var/tmp before /tmp: the latter is often memory, where a durable write costs nothing.
    let fallbacks = [PathBuf::from("/var/tmp"), std::env::temp_dir()];
    let reachable = |parent: &&PathBuf| account.is_none_or(|account| reaches(account, parent));
    let made = parents.iter().chain(&fallbacks).filter(reachable).find_map(|parent| {
        let dir = tempfile::Builder::new().prefix(&format!("weir-{name}-")).tempdir_in(parent).ok()?;
        if let Some(account) = account {
            chown(dir.path(), Some(account.uid), Some(account.gid)).ok()?;
        }
        Some(dir)
    });
    made.ok_or_else(|| format!("no folder for the data of {name}; make /var/tmp writable or set TMPDIR"))
}

/// Whether this user may pass through every folder down to `path`.
fn reaches(account: &Account, path: &Path) -> bool {
    let Ok(path) = fs::canonicalize(path) else { return false };
    path.ancestors().all(|folder| {
        fs::metadata(folder).is_ok_and(|meta| {
            let bit = match () {
                _ if meta.uid() == account.uid => 0o100,
                _ if meta.gid() == account.gid => 0o010,
                _ => 0o001,
            };
            meta.mode() & bit != 0
        })
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
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let owner = fs::metadata(dir.path()).unwrap().uid();
        let stranger = Account { uid: owner + 4321, gid: 4321 };
        assert!(!reaches(&stranger, &inner));
        assert!(reaches(&Account { uid: owner, gid: 4321 }, &inner));
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        assert!(reaches(&stranger, &inner));
    }
}
