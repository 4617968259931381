//! A private PostgreSQL: made for one run, on a free port, pinned, durable, and gone with its owner.
//!
//! Knows the server's programs and its settings, nothing of what is stored. Durability stays on: `fsync` and the rest
//! are the server's own defaults unless the settings say otherwise; of its clocks the log's is on. Tests use it, too, to kill a database and see what
//! survives.

use super::database::{Options, PATIENCE, Private, USER, answer_of};
use super::process::look_until;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// Where packages put the programs that are not for every user's PATH.
const PACKAGED: &[(&str, &str)] = &[("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/usr/local", "pgsql")];
/// What the lab sets where the settings say nothing, with the first version that knows it. The clock of the log is two looks at
/// the time for each write and each flush of it, and says how long commits wait for the disk.
const DEFAULTS: &[(u32, &str, &str)] = &[(14, "track_wal_io_timing", "on")];

/// How long it may take until settings are loaded.
const RELOAD_MAX: Duration = Duration::from_secs(5);

/// A running server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct Postgres {
    private: Private,
    programs: PathBuf,
}

impl Postgres {
    /// Makes a server and waits until it answers.
    pub fn start(options: Options) -> Result<Postgres, String> {
        let programs = programs()?;
        // SIGINT is the fast shutdown: sessions are cut, everything is written.
        let private = Private::new("postgres", &["postgres", "nobody"], Signal::INT, options)?;
        let mut initdb = private.command(&programs.join("initdb"));
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
        initdb.arg(format!("--username={USER}")).arg("-D").arg(cluster(&private));
        private.prepare(initdb)?;
        let mut postgres = Postgres { private, programs };
        let program = postgres.programs.join("postgres");
        postgres.private.take_port(|private| run(private, &program))?;
        Ok(postgres)
    }

    /// The URL of the database that every server has.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.private.port())
    }

    /// The process id of the server, root of its tree; `None` while it is stopped.
    pub fn pid(&self) -> Option<u32> {
        self.private.pid()
    }

    /// Whether it runs: started, and not ended by itself since.
    pub fn lives(&mut self) -> bool {
        self.private.lives()
    }

    /// Where its data is.
    pub fn data(&self) -> &Path {
        self.private.dir()
    }

    /// What it said last.
    pub fn log(&self) -> &Path {
        self.private.log()
    }

    /// Runs `sql` in `database` and gives the rows as text.
    pub fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
        query(self.private.port(), self.private.log(), database, sql)
    }

    /// Has every commit wait so many microseconds before it flushes the log, whoever else commits; 0 makes both settings again what
    /// the server was started with. Returns when it is so.
    pub fn delay_commits(&self, us: u64) -> Result<(), String> {
        let change = match us {
            0 => ["RESET commit_delay".to_owned(), "RESET commit_siblings".to_owned()],
            _ => [format!("SET commit_delay = {us}"), "SET commit_siblings = 0".to_owned()],
        };
        for what in change {
            self.query("postgres", &format!("ALTER SYSTEM {what}"))?;
        }
        self.query("postgres", "SELECT pg_reload_conf()")?;
        // Asked in a session of its own each time: what a new one has is what is in force.
        let sql = match us {
            0 => "SELECT count(*) = 0 FROM pg_settings WHERE name IN ('commit_delay', 'commit_siblings')
                  AND sourcefile LIKE '%postgresql.auto.conf'"
                .to_owned(),
            _ => format!(
                "SELECT current_setting('commit_delay') = '{us}' AND current_setting('commit_siblings') = '0'"
            ),
        };
        let in_force = || {
            let rows = self.query("postgres", &sql)?;
            Ok(rows.iter().flatten().any(|cell| cell == "t").then_some(()))
        };
        look_until(RELOAD_MAX, &AtomicBool::new(false), in_force)?.ok_or_else(|| {
            "PostgreSQL does not take commit_delay; leave it and commit_siblings out of [postgres]".to_owned()
        })
    }

    /// Shuts it down in order; the data stays.
    pub fn stop(&mut self) {
        self.private.stop();
    }

    /// Kills it and all its processes at once, as a crash would; the data stays.
    pub fn kill(&mut self) {
        self.private.kill();
    }

    /// Starts it again on the same data and port, after [`Postgres::stop`], [`Postgres::kill`] or while it runs.
    pub fn restart(&mut self) -> Result<(), String> {
        self.stop();
        run(&mut self.private, &self.programs.join("postgres"))
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

fn cluster(private: &Private) -> PathBuf {
    private.dir().join("data")
}

/// Starts the server on its data and port and waits until it answers.
fn run(private: &mut Private, program: &Path) -> Result<(), String> {
    let (port, log, cluster) = (private.port(), private.log().to_owned(), cluster(private));
    let mut command = private.command(program);
    command.arg("-D").arg(&cluster);
    let own = [
        ("listen_addresses", "127.0.0.1"),
        ("port", &port.to_string()),
        // No socket file: its path may be too long, its folder not ours, and nobody needs it.
        ("unix_socket_directories", ""),
    ];
    // Of a setting that is there twice the last one holds.
    let defaults = defaults(&fs::read_to_string(cluster.join("PG_VERSION")).unwrap_or_default());
    for (name, value) in defaults.into_iter().chain(private.settings()).chain(own) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    private.run(command, || {
        let rows = query(port, &log, "postgres", "SHOW data_directory")?;
        Ok(rows.iter().flatten().any(|dir| Path::new(dir) == cluster))
    })
}

/// The defaults of the version that made the data: `15`, or before there were round numbers `9.6`.
fn defaults<'a>(version: &str) -> Vec<(&'a str, &'a str)> {
    let major = version.trim().split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
    DEFAULTS.iter().filter(|(since, ..)| major >= *since).map(|(_, name, value)| (*name, *value)).collect()
}

fn query(port: u16, log: &Path, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let answered = answer_of(async {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(port).user(USER).dbname(database);
        config.connect_timeout(PATIENCE);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.simple_query(sql).await
    })?;
    let rows =
        answered.ok_or_else(|| format!("PostgreSQL: `{sql}` is not answered; see {}", log.display()))?;
    let rows = rows.map_err(|error| {
        let cause = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
        format!("PostgreSQL: `{sql}` failed: {cause}; see {}", log.display())
    })?;
    let text = |row: SimpleQueryMessage| match row {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).unwrap_or("").to_owned()).collect())
        }
        _ => None,
    };
    Ok(rows.into_iter().filter_map(text).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
