//! A private PostgreSQL: made for one run, on a free port, pinned, durable, and gone with its owner.
//!
//! Knows the server's programs and its log, nothing of what is stored. Durability stays on: `fsync` and the rest are
//! the server's own defaults unless the settings say otherwise. Tests use it, too, to kill a database and see what
//! survives.

use super::process::{Log, Process, blind, look_until};
use crate::lab::sampler::descendants;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// How long a server may take until it answers; recovery after a crash is part of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// The superuser of every private server; it has no password and listens on 127.0.0.1 only.
const USER: &str = "weir";
/// Where packages put the programs that are not for every user's PATH.
const PACKAGED: &[(&str, &str)] = &[("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/usr/local", "pgsql")];

/// How to start one.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where it runs; empty: wherever we may.
    pub cores: Vec<usize>,
    /// Server settings by name.
    pub settings: BTreeMap<String, String>,
    /// Folders to make its data directory in; the first that its user can reach is taken, after them the temporary one.
    pub parents: Vec<PathBuf>,
    /// Where it says what goes wrong; by default a file in its directory, which is gone with it.
    pub log: Option<PathBuf>,
}

/// A running server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Postgres {
    // Before the directory: fields are dropped in order, and the process must be gone first.
    process: Option<Process>,
    dir: TempDir,
    programs: PathBuf,
    account: Option<Account>,
    options: Options,
    log: PathBuf,
    port: u16,
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Account {
    uid: u32,
    gid: u32,
}

impl Postgres {
    /// Makes a server and waits until it answers.
    pub fn start(options: Options) -> Result<Postgres, String> {
        let programs = programs()?;
        let account = account()?;
        let dir = private_dir(&options.parents, account.as_ref())?;
        let log = options.log.clone().unwrap_or_else(|| dir.path().join("postgres.log"));
        let mut postgres = Postgres { process: None, dir, programs, account, options, log, port: 0 };
        postgres.initialize()?;
        // Between finding a free port and taking it another process may be quicker.
        let mut tried = 0;
        loop {
            tried += 1;
            postgres.port = free_port()?;
            match postgres.run() {
                Err(why) if why.contains("Address already in use") && tried < 5 => {}
                done => return done.map(|()| postgres),
            }
        }
    }

    /// The URL of the database that every server has.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The process id of the server, root of its tree; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// Whether it runs: started, and not ended by itself since.
    pub fn lives(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// Where its data is.
    pub fn data(&self) -> &Path {
        self.dir.path()
    }

    /// What it said last.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Runs `sql` in `database` and gives the rows as text.
    pub fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("cannot make a runtime: {error}"))?;
        let asked = async {
            let mut config = tokio_postgres::Config::new();
            config.host("127.0.0.1").port(self.port).user(USER).dbname(database);
            config.connect_timeout(PATIENCE);
            let (client, connection) = config.connect(NoTls).await?;
            tokio::spawn(connection);
            client.simple_query(sql).await
        };
        // A server that is stopped takes the question and says nothing.
        let answered = runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await });
        let rows = answered
            .map_err(|_| format!("PostgreSQL: `{sql}` is not answered; see {}", self.log.display()))?;
        let rows = rows.map_err(|error| {
            let cause = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
            format!("PostgreSQL: `{sql}` failed: {cause}; see {}", self.log.display())
        })?;
        let text = |row: SimpleQueryMessage| match row {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|column| row.get(column).unwrap_or("").to_owned()).collect())
            }
            _ => None,
        };
        Ok(rows.into_iter().filter_map(text).collect())
    }

    /// Shuts it down in order; the data stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            // SIGINT is the fast shutdown: sessions are cut, everything is written.
            process.end(Signal::INT);
        }
    }

    /// Kills it and all its processes at once, as a crash would; the data stays.
    pub fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let tree = descendants(process.pid());
        // The root first, so that it does not start anew what it sees dying.
        process.kill();
        let below = &tree[1.min(tree.len())..];
        for pid in below.iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            // Those that noticed the death of the root are gone already.
            let _ = kill_process(pid, Signal::KILL);
        }
        let gone = || Ok(below.iter().all(|pid| is_gone(*pid)).then_some(()));
        let _ = look_until(Duration::from_secs(10), &AtomicBool::new(false), gone);
    }

    /// Starts it again on the same data and port, after [`Postgres::stop`], [`Postgres::kill`] or while it runs.
    pub fn restart(&mut self) -> Result<(), String> {
        self.stop();
        self.run()
    }

    fn cluster(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn initialize(&self) -> Result<(), String> {
        let mut command = self.command("initdb");
        command.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        command.arg(format!("--username={USER}")).arg("-D").arg(self.cluster());
        let output = command.output().map_err(|error| format!("cannot start initdb: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        Err(format!("initdb failed in {}: {last}", self.dir.path().display()))
    }

    /// Starts the server on its data and port and waits until it answers.
    fn run(&mut self) -> Result<(), String> {
        let (log, file) = Log::append(&self.log)?;
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.cluster());
        let own = [
            ("listen_addresses", "127.0.0.1"),
            ("port", &self.port.to_string()),
            // No socket file: its path may be too long, its folder not ours, and nobody needs it.
            ("unix_socket_directories", ""),
        ];
        let theirs = self.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in theirs.chain(own) {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut process = Process::spawn(&mut command, &self.options.cores)
            .map_err(|error| format!("cannot start postgres: {error}"))?;
        let mut last = String::new();
        let answered = look_until(PATIENCE, &AtomicBool::new(false), || {
            if let Some(status) = process.ended() {
                return Err(format!("postgres ended with {status}: {}", log.tail()));
            }
            // Somebody else may have taken the port before us: ours is the one on our data.
            match self.query("postgres", "SHOW data_directory") {
                Ok(rows) if rows.iter().flatten().any(|dir| Path::new(dir) == self.cluster()) => Ok(Some(())),
                Ok(_) => {
                    last = format!("another server answers on port {}", self.port);
                    Ok(None)
                }
                Err(why) => {
                    last = why;
                    Ok(None)
                }
            }
        })?;
        self.process = Some(process);
        answered.ok_or_else(|| format!("postgres did not answer within {} s: {last}", PATIENCE.as_secs()))
    }

    /// One of its programs, as its user, in its directory, blind to our own variables.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        blind(&mut command);
        // The folder we are in may be closed to that user.
        command.current_dir(self.dir.path());
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
        }
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Gone, or dead and not yet collected by whoever inherited it.
fn is_gone(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

fn free_port() -> Result<u16, String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.port()).map_err(|error| format!("no free port on 127.0.0.1: {error}"))
}

/// The folder that holds `initdb` and `postgres`: the PATH's, else the highest version installed.
fn programs() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let complete = |dir: &PathBuf| ["initdb", "postgres"].iter().all(|name| dir.join(name).is_file());
    if let Some(dir) = std::env::split_paths(&path).find(complete) {
        return Ok(dir);
    }
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (folder, prefix) in PACKAGED {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let version = version_in(&entry.file_name(), prefix);
            let dir = entry.path().join("bin");
            found.extend(version.filter(|_| complete(&dir)).map(|version| (version, dir)));
        }
    }
    found.into_iter().max().map(|(_, dir)| dir).ok_or_else(|| {
        "PostgreSQL is not installed (no initdb and postgres in PATH or /usr/lib/postgresql); \
         run apt-get install postgresql"
            .into()
    })
}

/// The version in a folder's name: 15 of `15` or `pgsql-15`, 0 of a bare `pgsql`.
fn version_in(name: &OsStr, prefix: &str) -> Option<u32> {
    match name.to_str()?.strip_prefix(prefix)? {
        "" => Some(0),
        // Before version 10 a version had two parts; 9.6 counts as 9.
        rest => rest.split('.').next()?.parse().ok(),
    }
}

/// Whom the server runs as: it refuses to be root. `None`: as we are.
fn account() -> Result<Option<Account>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| format!("/etc/passwd: {error}"))?;
    ["postgres", "nobody"].iter().find_map(|name| find_account(&users, name)).map(Some).ok_or_else(|| {
        "PostgreSQL does not run as root, and there is no user postgres or nobody; run this as another user".into()
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
fn private_dir(parents: &[PathBuf], account: Option<&Account>) -> Result<TempDir, String> {
    // /var/tmp before /tmp: the latter is often memory, where a durable write costs nothing.
    let fallbacks = [PathBuf::from("/var/tmp"), std::env::temp_dir()];
    let reachable = |parent: &&PathBuf| account.is_none_or(|account| reaches(account, parent));
    let made = parents.iter().chain(&fallbacks).filter(reachable).find_map(|parent| {
        let dir = tempfile::Builder::new().prefix("weir-postgres-").tempdir_in(parent).ok()?;
        if let Some(account) = account {
            chown(dir.path(), Some(account.uid), Some(account.gid)).ok()?;
        }
        Some(dir)
    });
    made.ok_or_else(|| "no folder for PostgreSQL's data; make /var/tmp writable or set TMPDIR".into())
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
    fn a_version_stands_in_the_folders_name() {
        for (name, prefix, version) in [
            ("15", "", Some(15)),
            ("9.6", "", Some(9)),
            ("pgsql-16", "pgsql-", Some(16)),
            ("pgsql", "pgsql", Some(0)),
            ("share", "", None),
            ("lib", "pgsql-", None),
        ] {
            assert_eq!(version_in(OsStr::new(name), prefix), version, "{name}");
        }
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
