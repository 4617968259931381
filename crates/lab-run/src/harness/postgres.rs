//! PostgreSQL as a private server: its programs, its settings, and how long its commits wait.

use super::database::{DatabaseServer, Product, TIMEOUT, USER, answer_of};
use super::process::poll_until;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio_postgres::{NoTls, SimpleQueryMessage};

pub(super) const PRODUCT: Product = Product {
    name: "PostgreSQL",
    short: "postgres",
    scheme: "postgres",
    users: &["postgres", "nobody"],
    // The fast shutdown: sessions are cut, everything is written.
    ends_with: Signal::INT,
    database: "postgres",
    data_directory: "SHOW data_directory",
    install,
    serve,
    query,
};

/// Where packages put the programs that are not for every user's PATH.
const PACKAGED: &[(&str, &str)] = &[("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/usr/local", "pgsql")];
/// What the lab sets where the settings say nothing, with the first version that knows it. The clock of the log is two readings of
/// the time for each write and each flush of it, and says how long commits wait for the disk.
const DEFAULTS: &[(u32, &str, &str)] = &[(14, "track_wal_io_timing", "on")];

/// How long it may take until settings are loaded.
const RELOAD_MAX: Duration = Duration::from_secs(5);

impl DatabaseServer {
    /// Has every commit wait so many microseconds before it flushes the log, whoever else commits; 0 makes both settings again what
    /// the server was started with. Returns when it is so.
    pub fn delay_commits(&self, us: u64) -> Result<(), String> {
        let change = match us {
            0 => ["RESET commit_delay".to_owned(), "RESET commit_siblings".to_owned()],
            _ => [format!("SET commit_delay = {us}"), "SET commit_siblings = 0".to_owned()],
        };
        for what in change {
            self.ask(&format!("ALTER SYSTEM {what}"))?;
        }
        self.ask("SELECT pg_reload_conf()")?;
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
            let rows = self.ask(&sql)?;
            Ok(rows.iter().flatten().any(|cell| cell == "t").then_some(()))
        };
        poll_until(RELOAD_MAX, &AtomicBool::new(false), in_force)?.ok_or_else(|| {
            "PostgreSQL does not take commit_delay; leave it and commit_siblings out of [postgres]".to_owned()
        })
    }
}

fn install(server: &DatabaseServer) -> Result<Command, String> {
    let mut initdb = server.command(&programs()?.join("initdb"));
    initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
    initdb.arg(format!("--username={USER}")).arg("-D").arg(server.data());
    Ok(initdb)
}

fn serve(server: &DatabaseServer) -> Result<Command, String> {
    let mut command = server.command(&programs()?.join("postgres"));
    command.arg("-D").arg(server.data());
    let own = [
        ("listen_addresses", "127.0.0.1"),
        ("port", &server.port().to_string()),
        // No socket file: its path may be too long, its folder not ours, and nobody needs it.
        ("unix_socket_directories", ""),
    ];
    // Of a setting that is there twice the last one holds.
    let defaults = defaults(&fs::read_to_string(server.data().join("PG_VERSION")).unwrap_or_default());
    for (name, value) in defaults.into_iter().chain(server.settings()).chain(own) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    Ok(command)
}

/// The defaults of the version that made the data: `15`, or before there were round numbers `9.6`.
fn defaults<'a>(version: &str) -> Vec<(&'a str, &'a str)> {
    let major = version.trim().split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
    DEFAULTS.iter().filter(|(since, ..)| major >= *since).map(|(_, name, value)| (*name, *value)).collect()
}

fn query(port: u16, database: &str, sql: &str) -> Result<Option<Vec<Vec<String>>>, String> {
    let answered = answer_of(async {
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(port).user(USER).dbname(database);
        config.connect_timeout(TIMEOUT);
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.simple_query(sql).await
    })?;
    let Some(rows) = answered else { return Ok(None) };
    let said = |error: tokio_postgres::Error| {
        error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned())
    };
    let text = |row: SimpleQueryMessage| match row {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).unwrap_or("").to_owned()).collect())
        }
        _ => None,
    };
    Ok(Some(rows.map_err(said)?.into_iter().filter_map(text).collect()))
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
