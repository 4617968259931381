//! Connections of the samplers to a database: asked from a plain thread, given up where nothing answers.
//!
//! They stand apart from what they look at: in PostgreSQL under a name of their own and in the database that every
//! server has, in MariaDB and MySQL in `information_schema`. So neither the counts nor the sessions of the database
//! in use contain them.

use super::{Context, Database, Engine, Sampler};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder};
use std::fmt::Display;
use std::time::Duration;
use std::{fs, io};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

/// How the lab's sessions call themselves in PostgreSQL.
pub(super) const APPLICATION: &str = "weir lab";
/// Where the lab's sessions stand in MariaDB and MySQL.
pub(super) const SCHEMA: &str = "information_schema";

/// Longer than any healthy answer; a database that takes longer has no counters in this reading.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A sampler that reads every database of `engine` with what `open` makes of it; `None` where none can be asked.
pub(super) fn each_database(
    context: &Context,
    engine: Engine,
    open: impl Fn(&Database) -> io::Result<Sampler>,
) -> Option<Sampler> {
    let opened = |database: &Database| match open(database) {
        Ok(sampler) => Some((database.part.clone(), sampler)),
        Err(error) => {
            log::debug!("{}: {error}", database.part);
            None
        }
    };
    let of_engine = context.databases.iter().filter(|database| database.engine == engine);
    let samplers: Vec<(String, Sampler)> = of_engine.filter_map(opened).collect();
    let mut samplers = Some(samplers).filter(|samplers| !samplers.is_empty())?;
    Some(Box::new(move |into| {
        // One that is gone does not hide the others.
        let read = samplers.iter_mut().map(|(part, read)| read(into).map_err(|error| of_part(part, error)));
        read.collect::<Vec<_>>().into_iter().collect()
    }))
}

/// A session in PostgreSQL.
pub(super) struct PostgresSession {
    runtime: Runtime,
    client: Client,
    database: String,
}

impl PostgresSession {
    /// Connects to the server of `url`.
    pub(super) fn open(url: &str) -> io::Result<PostgresSession> {
        let runtime = runtime()?;
        let mut config: Config = url.parse().map_err(postgres_error)?;
        let database = config.get_dbname().or(config.get_user()).unwrap_or_default().to_owned();
        config.dbname("postgres").application_name(APPLICATION);
        let connected = in_time(&runtime, async {
            let (client, connection) = config.connect(NoTls).await.map_err(postgres_error)?;
            tokio::spawn(connection);
            Ok(client)
        });
        Ok(PostgresSession { client: connected?, runtime, database })
    }

    /// The database in use: that of the URL, where this session is not.
    pub(super) fn database(&self) -> &str {
        &self.database
    }

    /// Prepares a statement, so that asking again costs the server neither parsing nor planning.
    pub(super) fn prepare(&self, sql: &str) -> io::Result<Statement> {
        in_time(&self.runtime, async { self.client.prepare(sql).await.map_err(postgres_error) })
    }

    /// The rows of a prepared statement.
    pub(super) fn query(
        &self,
        statement: &Statement,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> io::Result<Vec<Row>> {
        in_time(&self.runtime, async {
            self.client.query(statement, parameters).await.map_err(postgres_error)
        })
    }
}

/// A session in MariaDB or MySQL.
pub(super) struct MysqlSession {
    runtime: Runtime,
    /// There until it is closed.
    conn: Option<Conn>,
}

impl MysqlSession {
    /// Connects to the server of `url`.
    pub(super) fn open(url: &str) -> io::Result<MysqlSession> {
        let runtime = runtime()?;
        let opts = Opts::from_url(url).map_err(io::Error::other)?;
        let opts = OptsBuilder::from_opts(opts).db_name(Some(SCHEMA)).prefer_socket(false);
        let conn = in_time(&runtime, async { Conn::new(opts).await.map_err(io::Error::other) })?;
        Ok(MysqlSession { runtime, conn: Some(conn) })
    }

    /// The rows of `sql`.
    pub(super) fn query<R: FromRow + Send + 'static>(&mut self, sql: &str) -> io::Result<Vec<R>> {
        let conn = self.conn.as_mut().ok_or_else(|| io::Error::other("the session is closed"))?;
        in_time(&self.runtime, async { conn.query(sql).await.map_err(io::Error::other) })
    }
}

impl Drop for MysqlSession {
    fn drop(&mut self) {
        // A connection that just ends is a line in the server's log.
        if let Some(conn) = self.conn.take() {
            let _ = in_time(&self.runtime, async { conn.disconnect().await.map_err(io::Error::other) });
        }
    }
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// The error's own words stand in its cause where the server spoke.
fn postgres_error(error: tokio_postgres::Error) -> io::Error {
    match error.as_db_error() {
        Some(said) => io::Error::other(said.message().to_owned()),
        None => io::Error::other(error),
    }
}

fn in_time<T>(runtime: &Runtime, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    runtime.block_on(async {
        tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| {
            Err(io::Error::other(format!("the database does not answer within {} s", TIMEOUT.as_secs())))
        })
    })
}

/// Processor time of the process or thread of `root`'s that serves a session. `None` where it is not one of them: the
/// server may run on another machine, and this one's process of that number be somebody else's.
pub(super) fn cpu_secs_of(worker: u32, root: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{worker}/status")).ok()?;
    let is_root = |key: &str| super::value_of(&status, key) == Some(f64::from(root));
    let schedstat = fs::read_to_string(format!("/proc/{worker}/schedstat")).ok()?;
    let nanos: f64 = schedstat.split(' ').next()?.parse().ok()?;
    (is_root("PPid") || is_root("Tgid")).then_some(nanos / 1e9)
}

/// What went wrong with one of several databases.
pub(super) fn of_part(part: &str, error: impl Display) -> io::Error {
    io::Error::other(format!("{part}: {error}"))
}
