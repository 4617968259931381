//! A PostgreSQL server as the store: one table, one multi-row statement per batch.
//!
//! Ownership. The session of the owner thread holds an advisory lock, and every session that reads or writes holds a second
//! one, shared. A new lease takes the first lock, and then the second one exclusively. That succeeds only when no session of an
//! earlier lease is left, so no statement sent under one can take effect any more. Sessions that stay are terminated. Under both
//! locks it raises the epoch in the table `weir_owner`, and then releases the second one. A session that starts late finds a
//! newer epoch and fails. So a write of a dead server can neither overwrite nor restore anything. Under the first lock a lease
//! also compares the table `weir_map`, which says which shard the database is, with the shard that it was given as.

pub mod replica;
mod session;
mod tls;

use super::password::{Passfile, Password, default_passfile};
use super::sql::{self, Failure, Meaning, Setup, foreign_table, one_line, overtaken, taken};
use super::store_url::StoreUrl;
use super::{Answer, Error, Kind, Lease, Part, Session, Store, Workers, redacted};
use kv::{Timestamp, Version};
use session::PostgresSession;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tls::Tls;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{WasNull, WrongType};
use tokio_postgres::{Client, Config, Connection, Socket};

/// The first half of the advisory locks' keys: `weir` in ASCII.
const LOCK_SPACE: i32 = 0x7765_6972;
/// Held by the one server that owns the store.
const LOCK_OWNER: i32 = 1;
/// Held, shared, by every session that reads or writes.
const LOCK_SESSIONS: i32 = 2;

/// How long a lease waits for sessions of an earlier one before it terminates them.
const LINGER_MS: u32 = 500;
/// How often it does so before it gives up.
const TERMINATIONS_MAX: usize = 10;

/// The tables, each made once, in a transaction of its own. An `ALTER TABLE` on every start would wait for every
/// open transaction on the table.
const TABLES: [(&str, &str); 3] = [
    (ROWS, ROWS_TABLE),
    (
        "weir_owner",
        "CREATE TABLE weir_owner (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            epoch bigint NOT NULL
        )",
    ),
    (
        "weir_map",
        "CREATE TABLE weir_map (
            one boolean PRIMARY KEY DEFAULT true CHECK (one),
            map text NOT NULL
        )",
    ),
];
const ROWS: &str = "weir_kv";
const ROWS_TABLE: &str = "CREATE TABLE weir_kv (
        key bytea PRIMARY KEY,
        value bytea NOT NULL,
        content_type text NOT NULL,
        version bigint NOT NULL,
        content_encoding text NOT NULL DEFAULT '',
        expires bigint
    );
    CREATE INDEX weir_kv_expires ON weir_kv (expires) WHERE expires IS NOT NULL;
    ALTER TABLE weir_kv ALTER COLUMN value SET STORAGE EXTERNAL";

const RAISE: &str = "UPDATE weir_owner SET epoch = epoch + 1 RETURNING epoch";
/// Where `weir_owner` is empty: rows may be there all the same, of a dump without that table or of a replica. One statement, so
/// that it takes effect also if it lasts longer than the setup may.
const FIRST_EPOCH: &str = "INSERT INTO weir_owner (epoch)
    SELECT coalesce(max(version) >> $1, 0) + 1 FROM weir_kv RETURNING epoch";

/// What the lease says of time.
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    EXISTS (SELECT FROM weir_kv WHERE expires IS NOT NULL)";

/// Tells this process's sessions from those of others, in `pg_stat_activity`.
static PROCESS: LazyLock<u64> =
    LazyLock::new(|| std::collections::hash_map::RandomState::new().build_hasher().finish());
/// Stores opened by this process.
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// The parameters of a URL that the driver knows what to do with.
const DRIVER_PARAMETERS: [&str; 11] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "dbname",
    "options",
    "channel_binding",
    "sslnegotiation",
    "target_session_attrs",
    "keepalives",
    "load_balance_hosts",
];

pub(super) struct Postgres {
    /// Without the password.
    config: Config,
    password: Password,
    tls: Tls,
    /// Tells its owner's sessions from those of the process's other stores.
    number: usize,
    /// For messages, without the password.
    shown: Arc<str>,
}

impl Postgres {
    pub(super) fn open(url: &str) -> Result<Postgres, Error> {
        let shown: Arc<str> = redacted(url).into();
        let wrong = |why: String| Error::new(Kind::Config, format!("{shown} is no PostgreSQL URL: {why}"));
        let mut url = StoreUrl::parse(url).map_err(wrong)?;
        let (given, file) = (url.take("password").or(url.password.take()), url.take("password-file"));
        let passfile = url.take("passfile");
        // Both are for weir to say.
        for ignored in ["application_name", "connect_timeout"] {
            url.take(ignored);
        }
        let mut fields: BTreeMap<&str, String> =
            DRIVER_PARAMETERS.into_iter().filter_map(|name| Some((name, url.take(name)?))).collect();
        let is_named_twice = url.host.is_some() && fields.contains_key("host");
        let port = url.port.unwrap_or(5432).to_string();
        let parts = [
            ("host", url.host.take()),
            ("user", url.user.take()),
            ("dbname", url.database.take()),
            ("port", Some(port)),
        ];
        for (name, value) in parts {
            value.map(|value| fields.entry(name).or_insert(value));
        }
        let places = ["host", "hostaddr"].map(|name| fields.get(name).cloned());
        // Each session would take the first one that answers: some the primary, some a standby, which is behind.
        if is_named_twice || places.iter().flatten().any(|place| place.contains(',')) {
            return Err(wrong("it names several hosts; name the primary alone".into()));
        }
        let [host, address] = places;
        let host = host.or(address);
        let is_local = host.as_ref().is_some_and(|host| host.starts_with('/'));
        let tls = Tls::of(&mut url, is_local).map_err(wrong)?;
        let tls_parameters = tls::PARAMETERS.map(|(name, _)| name);
        let known = [&tls_parameters[..], &DRIVER_PARAMETERS, &["password-file", "passfile"]].concat();
        url.finish(&known).map_err(wrong)?;
        // The name in a certificate is compared with it.
        host.clone().map(|host| fields.entry("host").or_insert(host));
        let text: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        let mut config: Config = text.join(" ").parse().map_err(|error| wrong(cause(&error)))?;
        config.connect_timeout(Duration::from_secs(5)).keepalives_idle(Duration::from_secs(10));
        // A peer that vanished must not hold a worker for the kernel's 15 minutes, and the cache must not be served for long
        // while another server may own the store.
        config.keepalives_interval(Duration::from_secs(2)).keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(15));
        let user =
            config.get_user().map(str::to_owned).or_else(|| std::env::var("USER").ok()).unwrap_or_default();
        let database = config.get_dbname().map_or_else(|| user.clone(), str::to_owned);
        let port = config.get_ports().first().map_or(String::new(), u16::to_string);
        let known =
            Password::of_url(given, file).map_err(wrong)?.or_else(|| Password::of_variable("PGPASSWORD"));
        let password = known.unwrap_or_else(|| {
            let path = passfile
                .or_else(|| std::env::var("PGPASSFILE").ok())
                .map(Into::into)
                .or_else(default_passfile);
            // As libpq calls the usual directory of its sockets.
            let host = host
                .filter(|host| host != "/var/run/postgresql" && host != "/tmp")
                .unwrap_or("localhost".into());
            let wanted = [host, port, database, user];
            path.map_or(Password::None, |path| {
                Password::Passfile(Passfile { path, wanted, has_warned: AtomicBool::new(false) })
            })
        });
        Ok(Postgres { config, password, tls, number: OPENED.fetch_add(1, Relaxed), shown })
    }

    /// Connects. The second part ends with the connection, and says why.
    async fn dial(&self, purpose: &str) -> Setup<(Client, JoinHandle<String>)> {
        let mut config = self.config.clone();
        config.application_name(format!("weir {purpose}"));
        if let Some(password) = self.password.read()? {
            config.password(password);
        }
        let (client, connection) = self.connect(config).await?;
        let ended = tokio::spawn(async move {
            match connection.await {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => cause(&error),
            }
        });
        // The server has to notice when we are gone, because it holds our locks until then; and it must not end idle sessions.
        let settings = "SELECT set_config(name, CASE name
                WHEN 'tcp_keepalives_idle' THEN '10' WHEN 'tcp_keepalives_interval' THEN '2'
                WHEN 'tcp_keepalives_count' THEN '3' ELSE '0' END, false)
            FROM pg_settings WHERE name IN ('tcp_keepalives_idle', 'tcp_keepalives_interval',
                'tcp_keepalives_count', 'idle_session_timeout')";
        client.query(settings, &[]).await?;
        Ok((client, ended))
    }

    /// Connects with TLS or without, as the URL says.
    async fn connect(&self, mut config: Config) -> Setup<(Client, Connection<Socket, tls::Stream>)> {
        let failed = |why| Error::new(Kind::Config, format!("cannot reach store {}: {why}", self.shown));
        let connector = self.tls.connector().map_err(failed)?;
        let mut first_failure = None;
        for attempt in self.tls.tries() {
            config.ssl_mode(attempt.mode);
            let error = match config.connect(connector.clone()).await {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            let explained = self.tls.explain(&error);
            // What another way to connect may change: what the server says, and what became of TLS.
            let may_differ = error.as_db_error().is_some() || explained.is_some();
            let offers_none = explained.as_ref().is_some_and(|why| why.contains(tls::OFFERS_NONE));
            let failure = match explained {
                Some(why) => Failure::Database(Meaning::Login, one_line(&why)),
                None => error.into(),
            };
            match first_failure.take() {
                None if attempt.may_fail && may_differ => first_failure = Some(failure),
                // What failed with TLS says more, unless there is none.
                Some(first) if attempt.mode == SslMode::Disable || offers_none => return Err(first),
                _ => return Err(failure),
            }
        }
        Err(failed("there is no way to connect".into()).into())
    }

    /// Runs a step of the setup in limited time; `what` it does is for the message.
    async fn setup<T>(&self, what: &str, step: impl Future<Output = Setup<T>>) -> Result<T, Error> {
        sql::setup(&self.shown, what, step).await
    }

    async fn take(&self, part: Part) -> Setup<Lease> {
        let (client, ended) = self.dial(&format!("owner {:016x} {}", *PROCESS, self.number)).await?;
        let lock = client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&LOCK_SPACE, &LOCK_OWNER]);
        if !lock.await?.get::<_, bool>(0) {
            return Err(self.taken(&client).await.into());
        }
        make_tables(&client, &TABLES).await?;
        if self.admits(&client, part).await? {
            client.execute("INSERT INTO weir_map (map) VALUES ($1)", &[&part.map()]).await?;
        }
        self.end_earlier_sessions(&client).await?;
        let raised = match client.query_opt(RAISE, &[]).await? {
            Some(raised) => raised,
            None => client.query_one(FIRST_EPOCH, &[&(Version::COUNTER_BITS as i32)]).await?,
        };
        let epoch: i64 = raised.try_get(0)?;
        let time = client.query_one(TIME, &[]).await?;
        let (now, may_expire) = (Timestamp(time.try_get::<_, i64>(0)? as u64), time.try_get(1)?);
        let release = format!("SELECT pg_advisory_unlock({LOCK_SPACE}, {LOCK_SESSIONS})");
        client.batch_execute(&release).await?;
        Ok(lease(epoch as u64, now, may_expire, client, ended))
    }

    /// Whether this database may be used as `part`; `Ok(true)`: the map is not written yet. The tables exist.
    async fn admits(&self, client: &Client, part: Part) -> Setup<bool> {
        let what = "SELECT (SELECT map FROM weir_map), EXISTS (SELECT FROM weir_kv),
            EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = 'weir_kv'::regclass)";
        let row = client.query_one(what, &[]).await?;
        if row.get(2) {
            return refuse(format!(
                "{} is a replica: a subscription writes its table weir_kv; drop that before it is served",
                self.shown
            ));
        }
        Ok(part.admit(row.try_get(0)?, row.get(1), &self.shown)?)
    }

    /// Takes the sessions lock exclusively: no session of an earlier lease is left then, and none can start.
    async fn end_earlier_sessions(&self, client: &Client) -> Setup<()> {
        client.batch_execute(&format!("SET lock_timeout = {LINGER_MS}")).await?;
        for _ in 0..TERMINATIONS_MAX {
            let wait = format!("SELECT pg_advisory_lock({LOCK_SPACE}, {LOCK_SESSIONS})");
            match client.batch_execute(&wait).await {
                Ok(()) => return Ok(client.batch_execute("SET lock_timeout = 0").await?),
                Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {}
                Err(error) => return Err(error.into()),
            }
            let terminate = "SELECT pg_terminate_backend(pid) FROM pg_locks
                WHERE locktype = 'advisory' AND granted AND pid <> pg_backend_pid()
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND classid::bigint = $1 AND objid::bigint = $2";
            client.query(terminate, &[&i64::from(LOCK_SPACE), &i64::from(LOCK_SESSIONS)]).await?;
        }
        let message = format!(
            "sessions of an earlier server linger in {}; end them with pg_terminate_backend",
            self.shown
        );
        Err(Error::new(Kind::Unavailable, message).into())
    }

    /// The error of a store that another session owns; names that session.
    async fn taken(&self, client: &Client) -> Error {
        let who = "SELECT a.pid, coalesce(host(a.client_addr), 'a local socket'), a.backend_start::text,
                coalesce(a.application_name <> current_setting('application_name')
                    AND split_part(a.application_name, ' ', 3)
                      = split_part(current_setting('application_name'), ' ', 3), false)
            FROM pg_locks l JOIN pg_stat_activity a USING (pid)
            WHERE l.locktype = 'advisory' AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid::bigint = $1 AND l.objid::bigint = $2 LIMIT 1";
        let row = client.query_opt(who, &[&i64::from(LOCK_SPACE), &i64::from(LOCK_OWNER)]).await;
        let Ok(Some(row)) = row else { return taken(&self.shown, "") };
        if row.get(3) {
            let message =
                format!("the store {} is given twice; every shard is a database of its own", self.shown);
            return Error::new(Kind::Config, message);
        }
        let (pid, host, since): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
        taken(&self.shown, &format!(" (backend {pid} from {host}, since {since})"))
    }

    async fn session(&self, epoch: u64) -> Setup<Box<dyn Session>> {
        let (client, ended) = self.dial("session").await?;
        let hold = format!("SELECT pg_advisory_lock_shared({LOCK_SPACE}, {LOCK_SESSIONS})");
        client.batch_execute(&hold).await?;
        let current: i64 = client.query_one("SELECT epoch FROM weir_owner", &[]).await?.try_get(0)?;
        if current as u64 != epoch {
            return Err(overtaken(&self.shown).into());
        }
        // An acknowledged write is durable, whatever the default of the database is.
        let durable = "SELECT set_config('synchronous_commit', 'on', false)
            WHERE current_setting('synchronous_commit') = 'off'";
        client.query(durable, &[]).await?;
        // The plan by the primary key is always right, however long the list is and however small the table was when it was
        // made; and planning again costs as much as reading a few rows.
        let plans =
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off";
        client.batch_execute(plans).await?;
        self.prepared(client, ended).await
    }

    /// The session on a connection that lacks only its statements.
    async fn prepared(&self, client: Client, ended: JoinHandle<String>) -> Setup<Box<dyn Session>> {
        Ok(Box::new(PostgresSession::prepare(Arc::clone(&self.shown), client, ended).await?))
    }
}

/// A value as it stands in the text of settings that libpq and the driver read.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A lease that lasts as long as a connection, which `ended` says. Locks are held as long as the session lives, and the session
/// as long as its client.
fn lease(epoch: u64, now: Timestamp, may_expire: bool, client: Client, ended: JoinHandle<String>) -> Lease {
    let lost = async move {
        let _held = client;
        ended.await.unwrap_or_else(|_| "the connection was dropped".to_owned())
    };
    Lease { epoch, now, may_expire, lost: Box::pin(lost) }
}

fn refuse<T>(message: String) -> Setup<T> {
    Err(Error::new(Kind::Config, message).into())
}

/// Makes those of `tables` that do not exist.
async fn make_tables(client: &Client, tables: &[(&str, &str)]) -> Setup<()> {
    for (name, make) in tables {
        let there = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[name]).await?;
        if !there.get::<_, bool>(0) {
            client.batch_execute(&format!("BEGIN; {make}; COMMIT")).await?;
        }
    }
    Ok(())
}

impl Store for Postgres {
    fn acquire(&self, part: Part) -> Answer<'_, Lease> {
        Box::pin(self.setup("set up the tables", self.take(part)))
    }

    fn connect(&self, epoch: u64) -> Answer<'_, Box<dyn Session>> {
        Box::pin(self.setup("start a session", self.session(epoch)))
    }

    fn workers(&self) -> Workers {
        // Two batches in flight keep a backend busy while the other waits for its flush; see docs/decisions/0004.
        Workers { read: 2, write: 2 }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        let cause = cause(&error);
        if std::error::Error::source(&error).is_some_and(is_of_another_type) {
            return foreign_table(&cause);
        }
        let Some(refusal) = error.as_db_error() else {
            let is_login = cause.contains("invalid configuration");
            return Failure::Database(if is_login { Meaning::Login } else { Meaning::Ended }, cause);
        };
        use tokio_postgres::error::Severity::{Fatal, Panic};
        let code = refusal.code();
        let meaning = match code.code().get(..2) {
            // Wrong password, unknown role or database.
            Some("28") => Meaning::Login,
            _ if code == &SqlState::INVALID_CATALOG_NAME => Meaning::Login,
            // The server is shut down or crashed, and may say so after a commit; or it lost sight of a write.
            _ if matches!(refusal.parsed_severity(), Some(Fatal | Panic)) => Meaning::Ended,
            _ if code.code().starts_with("57P") => Meaning::Ended,
            _ if code == &SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN => Meaning::Ended,
            _ if code == &SqlState::READ_ONLY_SQL_TRANSACTION => Meaning::ReadOnly,
            Some("40") => Meaning::RolledBack,
            // The values, the table's own rules, or a size: one row may be at fault for all.
            Some("22" | "23" | "54") => Meaning::Unfit,
            _ => Meaning::Refused,
        };
        Failure::Database(meaning, cause)
    }
}

/// Whether a value is not of the type that the tables of weir have.
fn is_of_another_type(cause: &(dyn std::error::Error + 'static)) -> bool {
    cause.is::<WrongType>() || cause.is::<WasNull>() || cause.is::<std::str::Utf8Error>()
}

/// The innermost reason, on one line.
fn cause(error: &tokio_postgres::Error) -> String {
    one_line(&match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(refusal), _) => format!("{} ({})", refusal.message(), refusal.code().code()),
        (None, Some(source)) => source.to_string(),
        (None, None) => error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_are_refused() {
        for url in [
            "postgres://u@a,b/d",
            "postgres://u@a:5432,b:5433/d",
            "postgres://u@a/d?host=b",
            "postgres:///d?host=a,b",
            "postgres://u@a/d?hostaddr=127.0.0.1,127.0.0.2",
        ] {
            let error = Postgres::open(url).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(error.kind(), Kind::Config, "{url}");
            assert!(error.to_string().ends_with("names several hosts; name the primary alone"), "{error}");
        }
        for url in ["postgres://u@a/d", "postgres:///d?host=a", "postgres://u@a/d?hostaddr=127.0.0.1"] {
            assert!(Postgres::open(url).is_ok(), "{url}");
        }
    }
}
