//! Sessions in databases: asked from a plain thread, given up where nothing answers.

use lab_data::experiment::Engine;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Value};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

/// How the lab's sessions call themselves in PostgreSQL.
pub(crate) const APPLICATION: &str = "weir lab";

/// How often the stop flag is checked.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// How long to wait for an answer: a server that is stopped takes a question and says nothing.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    pub(crate) timeout: Duration,
    /// Set, nothing is waited for.
    pub(crate) stop: Arc<AtomicBool>,
}

/// A session in a PostgreSQL, a MariaDB or a MySQL.
pub(crate) struct Session {
    // Before the runtime that it needs.
    client: Client,
    runtime: Runtime,
    patience: Patience,
}

enum Client {
    Postgres(tokio_postgres::Client),
    Mysql(Conn),
}

impl Session {
    /// Connects to the server of `url`, whatever database that names, in `database`.
    pub(crate) fn open(engine: Engine, url: &str, database: &str, patience: Patience) -> io::Result<Session> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let connect = async {
            Ok(match engine {
                Engine::Postgres => {
                    let mut config: Config = url.parse().map_err(postgres_error)?;
                    config.dbname(database).application_name(APPLICATION);
                    let (client, connection) = config.connect(NoTls).await.map_err(postgres_error)?;
                    tokio::spawn(connection);
                    Client::Postgres(client)
                }
                Engine::MariaDb => {
                    let options = OptsBuilder::from_opts(Opts::from_url(url).map_err(io::Error::other)?);
                    let options = options.db_name(Some(database)).prefer_socket(false);
                    Client::Mysql(Conn::new(options).await.map_err(io::Error::other)?)
                }
            })
        };
        let client = in_time(&runtime, &patience, connect)?;
        Ok(Session { client, runtime, patience })
    }

    /// The rows of a statement as text; NULL is empty.
    pub(crate) fn query(&mut self, sql: &str) -> io::Result<Vec<Vec<String>>> {
        let ask = async {
            match &mut self.client {
                Client::Postgres(client) => {
                    let rows = client.simple_query(sql).await.map_err(postgres_error)?;
                    let text = |message| match message {
                        SimpleQueryMessage::Row(row) => Some(
                            (0..row.len()).map(|at| row.get(at).unwrap_or_default().to_owned()).collect(),
                        ),
                        _ => None,
                    };
                    Ok(rows.into_iter().filter_map(text).collect())
                }
                Client::Mysql(conn) => {
                    let rows: Vec<mysql_async::Row> = conn.query(sql).await.map_err(io::Error::other)?;
                    let text = |value: Value| match value {
                        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                        // Nothing else comes in answers to plain text.
                        _ => String::new(),
                    };
                    Ok(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect())
                }
            }
        };
        in_time(&self.runtime, &self.patience, ask)
    }
}

/// The error's own words stand in its cause where the server spoke.
fn postgres_error(error: tokio_postgres::Error) -> io::Error {
    match error.as_db_error() {
        Some(said) => io::Error::other(said.message().to_owned()),
        None => io::Error::other(error),
    }
}

fn in_time<T>(
    runtime: &Runtime,
    patience: &Patience,
    work: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    let stopped = async {
        while !patience.stop.load(Ordering::Relaxed) {
            sleep(POLL_EVERY).await;
        }
    };
    let either = async {
        tokio::select! {
            // What is there already is taken also after a stop.
            biased;
            done = work => done,
            () = stopped => Err(io::Error::other("interrupted")),
        }
    };
    runtime.block_on(async {
        timeout(patience.timeout, either).await.unwrap_or_else(|_| {
            let secs = patience.timeout.as_secs();
            Err(io::Error::other(format!("the database does not answer within {secs} s")))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;
    use std::time::Instant;

    #[test]
    fn a_server_that_says_nothing_is_given_up_in_time_or_when_stopped() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgres://weir@{}/weir", silent.local_addr().unwrap());
        let open = |timeout, stop: &Arc<AtomicBool>| {
            let patience = Patience { timeout, stop: Arc::clone(stop) };
            Session::open(Engine::Postgres, &url, "postgres", patience).err().unwrap().to_string()
        };
        let stop = Arc::new(AtomicBool::new(false));
        let why = open(Duration::from_millis(10), &stop);
        assert!(why.starts_with("the database does not answer within"), "{why}");
        let begun = Instant::now();
        let waiting = {
            let (stop, open) = (&stop, &open);
            thread::scope(|scope| {
                let waiting = scope.spawn(move || open(Duration::from_secs(600), stop));
                thread::sleep(Duration::from_millis(20));
                stop.store(true, Ordering::Relaxed);
                waiting.join().unwrap()
            })
        };
        assert_eq!(waiting, "interrupted");
        assert!(begun.elapsed() < Duration::from_secs(300));
    }
}
