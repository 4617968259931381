//! A private MariaDB: made for one run, on a free port, pinned, durable, and gone with its owner.
//!
//! Knows the server's programs and its settings, nothing of what is stored. Durability stays on: each commit is
//! flushed, as is the server's own default, unless the settings say otherwise.

use super::database::{Options, Private, USER, answer_of};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Value};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The database that every server has.
const DATABASE: &str = "weir";
/// The program's names: MariaDB's own, and the one from before the fork.
const SERVERS: &[&str] = &["mariadbd", "mysqld"];
const INSTALLERS: &[&str] = &["mariadb-install-db", "mysql_install_db"];
/// Where packages put the programs that are not in every user's PATH.
const PACKAGED: &[&str] = &["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// A running server. Dropping it stops it and removes its data.
#[derive(Debug)]
pub struct MariaDb {
    private: Private,
    program: PathBuf,
}

impl MariaDb {
    /// Makes a server and waits until it answers.
    pub fn start(options: Options) -> Result<MariaDb, String> {
        let (program, installer) = (program(SERVERS)?, program(INSTALLERS)?);
        let private = Private::new("mariadb", &["mysql", "nobody"], Signal::TERM, options)?;
        let mut install = command(&private, &installer);
        install.arg(format!("--datadir={}", data(&private).display()));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
        private.prepare(install)?;
        let mut mariadb = MariaDb { private, program };
        let program = mariadb.program.clone();
        mariadb.private.take_port(|private| run(private, &program))?;
        Ok(mariadb)
    }

    /// The URL of the database that every server has.
    pub fn url(&self) -> String {
        self.url_of(DATABASE)
    }

    /// The URL of a database.
    pub fn url_of(&self, database: &str) -> String {
        format!("mysql://{USER}@127.0.0.1:{}/{database}", self.private.port())
    }

    /// The process id of the server; `None` while it is stopped.
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

    /// Runs `sql` in `database` and gives the rows as text; NULL is empty.
    pub fn query(&self, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
        query(self.private.port(), self.private.log(), database, sql)
    }

    /// Shuts it down in order; the data stays.
    pub fn stop(&mut self) {
        self.private.stop();
    }

    /// Kills it at once, as a crash would; the data stays.
    pub fn kill(&mut self) {
        self.private.kill();
    }

    /// Starts it again on the same data and port, after [`MariaDb::stop`], [`MariaDb::kill`] or while it runs.
    pub fn restart(&mut self) -> Result<(), String> {
        self.stop();
        run(&mut self.private, &self.program)
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.stop();
    }
}

fn data(private: &Private) -> PathBuf {
    private.dir().join("data")
}

/// One of its programs, with none of this machine's settings: `--no-defaults` has to stand first.
fn command(private: &Private, program: &Path) -> Command {
    let mut command = private.command(program);
    // A server that starts removes what it takes for its own leftovers there, and so its neighbour's tables.
    command.arg("--no-defaults").env("TMPDIR", private.dir());
    command
}

/// Starts the server on its data and port and waits until it answers.
fn run(private: &mut Private, program: &Path) -> Result<(), String> {
    let (port, log, data) = (private.port(), private.log().to_owned(), data(private));
    // Read before the first connection is taken, at each start.
    let account = format!(
        "CREATE DATABASE IF NOT EXISTS {DATABASE};\n\
         CREATE USER IF NOT EXISTS {USER}@'127.0.0.1';\n\
         GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
    );
    let account = private.write("account.sql", &account)?;
    let mut command = command(private, program);
    for (name, value) in private.settings() {
        command.arg(format!("--{name}={value}"));
    }
    command.arg(format!("--datadir={}", data.display()));
    command.arg(format!("--init-file={}", account.display()));
    command.arg(format!("--pid-file={}", private.dir().join("pid").display()));
    command.arg(format!("--port={port}")).args(["--bind-address=127.0.0.1", "--skip-name-resolve"]);
    // No socket file: its path may be too long, its folder not ours, and nobody needs it.
    command.arg("--socket=");
    private.run(command, || {
        let rows = query(port, &log, DATABASE, "SELECT @@datadir")?;
        Ok(rows.iter().flatten().any(|dir| Path::new(dir) == data))
    })
}

fn query(port: u16, log: &Path, database: &str, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some(USER))
        .db_name(Some(database))
        .prefer_socket(false);
    let answered = answer_of(async {
        let mut connection = Conn::new(options).await?;
        let rows: Vec<mysql_async::Row> = connection.query(sql).await?;
        // The next question should not find this connection still there.
        connection.disconnect().await?;
        Ok(rows)
    })?;
    let rows = answered.ok_or_else(|| format!("MariaDB: `{sql}` is not answered; see {}", log.display()))?;
    let rows = rows.map_err(|error: mysql_async::Error| {
        format!("MariaDB: `{sql}` failed: {error}; see {}", log.display())
    })?;
    let text = |value: Value| match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // Nothing else comes in answers to plain text.
        _ => String::new(),
    };
    Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
}

/// The first of the programs called so: in the PATH, else where packages put it.
fn program(names: &[&str]) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(PACKAGED.iter().map(PathBuf::from)).collect();
    let there = |name: &&str| folders.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    names.iter().find_map(there).ok_or_else(|| {
        format!(
            "MariaDB is not installed (no {} in PATH, /usr/sbin or /usr/bin); run apt-get install mariadb-server",
            names.join(" or ")
        )
    })
}
