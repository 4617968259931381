//! PostgreSQL as a private server: its programs and its settings.

use super::{DatabaseServer, Product, USER, program};
use kv::Error;
use lab_data::experiment::Engine;
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub(super) const PRODUCT: Product = Product {
    engine: Engine::Postgres,
    name: "PostgreSQL",
    scheme: "postgres",
    users: &["postgres", "nobody"],
    // The fast shutdown: sessions are cut, everything is written.
    ends_with: Signal::INT,
    database: "postgres",
    data_directory: "SHOW data_directory",
    show: "SHOW {name}",
    settings: &[
        "fsync",
        "synchronous_commit",
        "full_page_writes",
        "wal_level",
        "shared_buffers",
        "max_wal_size",
    ],
    install,
    serve,
};

/// Where packages put the programs that are not for every user's PATH.
const PACKAGED: &[(&str, &str)] = &[("/usr/lib/postgresql", ""), ("/usr", "pgsql-"), ("/usr/local", "pgsql")];

fn install(server: &DatabaseServer) -> Result<Command, Error> {
    let mut initdb = server.command(&programs()?.join("initdb"));
    initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]);
    initdb.arg(format!("--username={USER}")).arg("-D").arg(server.data());
    Ok(initdb)
}

fn serve(server: &DatabaseServer) -> Result<Command, Error> {
    let mut command = server.command(&programs()?.join("postgres"));
    command.arg("-D").arg(server.data());
    let own = [
        ("listen_addresses", "127.0.0.1"),
        ("port", &server.port.to_string()),
        // No socket file: its path may be too long, its folder not ours, and nobody needs it.
        ("unix_socket_directories", ""),
    ];
    // The clock of the log is two readings of the time for each write and each flush of it, and says how long commits wait for the disk.
    let version = fs::read_to_string(server.data().join("PG_VERSION")).unwrap_or_default();
    let clock = version_in(version.trim(), "").filter(|version| *version >= 14);
    let clock = clock.map(|_| ("track_wal_io_timing", "on"));
    let settings = server.options.settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    // Of a setting that is there twice the last one holds.
    for (name, value) in clock.into_iter().chain(settings).chain(own) {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    Ok(command)
}

fn programs() -> Result<PathBuf, Error> {
    programs_with(&["initdb", "postgres"])
}

/// The folder that holds these and `initdb`: the PATH's, else the highest version installed.
pub(super) fn programs_with(names: &[&str]) -> Result<PathBuf, Error> {
    let complete = |dir: &PathBuf| names.iter().all(|name| dir.join(name).is_file());
    let in_path = program(&["initdb"]).and_then(|initdb| Some(initdb.parent()?.to_owned()));
    if let Some(dir) = in_path.filter(complete) {
        return Ok(dir);
    }
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for (folder, prefix) in PACKAGED {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let version = version_in(&entry.file_name().to_string_lossy(), prefix);
            let dir = entry.path().join("bin");
            found.extend(version.filter(|_| complete(&dir)).map(|version| (version, dir)));
        }
    }
    found.into_iter().max().map(|(_, dir)| dir).ok_or_else(|| {
        Error::new("PostgreSQL is not installed (no initdb and postgres in PATH or /usr/lib/postgresql)")
            .hint("run apt-get install postgresql")
    })
}

/// The version in a folder's name: 15 of `15` or `pgsql-15`, 0 of a bare `pgsql`.
fn version_in(name: &str, prefix: &str) -> Option<u32> {
    match name.strip_prefix(prefix)? {
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
            assert_eq!(version_in(name, prefix), version, "{name}");
        }
    }
}
