//! A PostgreSQL server as the store: one table, one multi-row statement per batch.
//!
//! Ownership. The session of the owner thread holds an advisory lock, and every session that reads or writes holds a second
//! one, shared. A new lease takes the first lock, and then the second one exclusively. That succeeds only when no session of an
//! earlier lease is left, so no statement sent under one can take effect any more. Sessions that stay are terminated. Under both
//! locks it raises the epoch in the table `weir_owner`, and then releases the second one. A session that starts late finds a
//! newer epoch and fails. So a write of a dead server can neither overwrite nor restore anything. Under the first lock a lease
//! also compares the table `weir_map`, which says which shard the database is, with the shard that it was given as.

mod connect;
mod failover;
pub mod replica;
mod session;
mod tls;
mod user_session;
mod user_table;

use super::password::Password;
use super::sql::{
    self, Failure, Meaning, OWNER_SILENCE_MAX, Setup, Step, ending, foreign_table, more_connections,
    overtaken, taken,
};
use super::tables::{ROWS, TablesThere};
use super::user_table::{RowsTable, UserTable, VERSIONS, refuse};
use super::{Answer, Capabilities, Error, Kind, Lease, Owner, Part, Session, Store, Workers};
use async_trait::async_trait;
use failover::{CONFIRM, SERVER, waits_for_all};
use kv::{Key, Row, Timestamp, Version, one_line};
use parking_lot::Mutex;
use session::PostgresSession;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, LazyLock};
use tls::Tls;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{WasNull, WrongType};
use tokio_postgres::{Client, Config};
use user_session::UserTableSession;
use user_table::{Statements, VERSIONS_TABLE};

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

/// A table: its name, its columns, and what else is done when it is made.
type Table = (&'static str, &'static str, &'static str);

const ROWS_TABLE: Table = (
    ROWS,
    "key bytea PRIMARY KEY, value bytea NOT NULL, content_type text NOT NULL, version bigint NOT NULL,
    content_encoding text NOT NULL DEFAULT '', expires bigint",
    "CREATE INDEX weir_kv_expires ON weir_kv (expires) WHERE expires IS NOT NULL;
    ALTER TABLE weir_kv ALTER COLUMN value SET STORAGE EXTERNAL",
);
/// Beside that of the rows, or of their versions.
const OTHER_TABLES: [Table; 4] = [
    ("weir_owner", "one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch bigint NOT NULL", ""),
    ("weir_map", "one boolean PRIMARY KEY DEFAULT true CHECK (one), map text NOT NULL", ""),
    ("weir_events", "id bigint PRIMARY KEY, at bigint NOT NULL, body bytea NOT NULL", ""),
    ("weir_release", "one boolean PRIMARY KEY DEFAULT true CHECK (one), epoch bigint NOT NULL", ""),
];

/// Above the last epoch of this server: a failover may have lost that one.
const RAISE: &str = "UPDATE weir_owner SET epoch = greatest(epoch, $1) + 1 RETURNING epoch";
/// Where `weir_owner` is empty: rows may be there all the same, of a dump without that table or of a replica; else any. One statement, so
/// that it takes effect also if it lasts longer than the setup may.
const FIRST_EPOCH: &str = "INSERT INTO weir_owner (epoch)
    SELECT coalesce(nullif(greatest(max(version), (SELECT max(id) FROM weir_events)) >> $1, 0), $2) + 1 FROM weir_kv
    RETURNING epoch";

/// Written by the server of the newest epoch when it answers no more hits.
const RELEASE: &str =
    "INSERT INTO weir_release (epoch) VALUES ($1) ON CONFLICT (one) DO UPDATE SET epoch = $1";
const IS_RELEASED: &str = "SELECT EXISTS (SELECT FROM weir_release JOIN weir_owner USING (epoch))";

/// Where `weir_owner` is empty, the first epoch is above them.
const FORGET_EVENTS: &str = "DELETE FROM weir_events WHERE EXISTS (SELECT FROM weir_owner)";
/// Whether events are of a table of others, and that they are not.
const IS_MARKED: &str = "EXISTS (SELECT FROM weir_versions WHERE key = '' AND version = 0)";
const UNMARK: &str = "UPDATE weir_versions SET version = 1 WHERE key = '' AND version = 0";

/// What the lease says of time. The least is in the index; for any other an EXISTS might read the whole table, where the database
/// has no statistics of it.
const TIME: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    (SELECT min(expires) FROM weir_kv WHERE expires IS NOT NULL) IS NOT NULL";

/// Tells this process's sessions from those of others, in `pg_stat_activity`.
static PROCESS: LazyLock<u64> =
    LazyLock::new(|| std::collections::hash_map::RandomState::new().build_hasher().finish());
/// Stores opened by this process.
static OPENED: AtomicUsize = AtomicUsize::new(0);

pub(super) struct Postgres {
    /// At least one.
    hosts: Vec<Host>,
    tls: Tls,
    rows: RowsTable<Statements>,
    /// Several hosts are the store also if a failover loses acknowledged writes.
    allows_asynchronous_failover: bool,
    /// Tells its owner's sessions from those of the process's other stores.
    number: usize,
    /// For messages, without the password.
    shown: Arc<str>,
    leased: Mutex<Leased>,
}

/// Settings of libpq's by their names.
type Fields = BTreeMap<&'static str, String>;

/// One of the servers that may be the store.
struct Host {
    /// Without the password.
    fields: Fields,
    /// The same for the driver.
    config: Config,
    password: Password,
}

/// What the last lease was of.
#[derive(Clone, Default)]
struct Leased {
    host: usize,
    /// See [`failover::SERVER`].
    server: String,
    epoch: i64,
}

impl Postgres {
    /// Runs a step of the setup in limited time; `what` it does is for the message.
    async fn setup<T>(&self, what: &str, step: impl Future<Output = Setup<T>>) -> Result<T, Error> {
        sql::setup(&self.shown, what, step).await
    }

    async fn take(&self, part: Part) -> Setup<Lease> {
        let purpose = format!("owner {:016x} {}", *PROCESS, self.number);
        let (host, client, ended) = self.dial_writable(&purpose).await?;
        let lock = client.query_one("SELECT pg_try_advisory_lock($1, $2)", &[&LOCK_SPACE, &LOCK_OWNER]);
        if !lock.await?.get::<_, bool>(0) {
            return Err(self.taken(&client).await.into());
        }
        self.check_standby(&client).await?;
        // A server that does not even ask whether it is the owner has stopped, or is cut off. What the owner itself does takes its
        // time, whatever the limit of other statements is.
        let limits = "SELECT set_config(name, CASE name WHEN 'idle_session_timeout' THEN $1 ELSE '0' END, false)
            FROM pg_settings WHERE name IN ('idle_session_timeout', 'statement_timeout', 'transaction_timeout')";
        client.query(limits, &[&OWNER_SILENCE_MAX.as_millis().to_string()]).await?;
        let (rows, table) = match &self.rows.names {
            None => (ROWS_TABLE, ROWS.to_owned()),
            Some(names) => {
                let table = UserTable::examine(&client, names, self.rows.others_write).await?;
                let name = table.table.clone();
                self.rows.examined(table);
                (VERSIONS_TABLE, name)
            }
        };
        make_tables(&client, &[&[rows], &OTHER_TABLES[..]].concat(), &self.shown).await?;
        if let Some(table) = self.rows.known() {
            table.check_versions(&client, &self.shown).await?;
        }
        let (rows, ..) = rows;
        if self.admits(&client, part, &table).await? {
            client.execute("INSERT INTO weir_map (map) VALUES ($1)", &[&part.map()]).await?;
        }
        self.end_earlier_sessions(&client).await?;
        let is_released: bool = client.query_one(IS_RELEASED, &[]).await?.get(0);
        let last = self.leased.lock().epoch;
        let (raised, was_released) = match client.query_opt(RAISE, &[&last]).await? {
            Some(raised) => (raised, is_released),
            None => {
                let first = FIRST_EPOCH.replace(ROWS, rows);
                let any = crate::any_epoch() as i64;
                (client.query_one(&first, &[&(Version::COUNTER_BITS as i32), &any]).await?, true)
            }
        };
        let epoch: i64 = raised.try_get(0)?;
        // Now no session of a lease before can add any.
        self.forget_other_events(&client).await?;
        let time = client.query_one(&TIME.replace(ROWS, rows), &[]).await?;
        let (now, may_expire) = (Timestamp(time.try_get::<_, i64>(0)? as u64), time.try_get(1)?);
        let release = format!("SELECT pg_advisory_unlock({LOCK_SPACE}, {LOCK_SESSIONS})");
        client.batch_execute(&release).await?;
        let server = client.query_one(&format!("SELECT {SERVER}"), &[]).await?.try_get(0)?;
        *self.leased.lock() = Leased { host, server, epoch };
        let no_standby = self.needs_standby().then(|| self.no_standby());
        let owner = PostgresOwner { client, epoch, shown: Arc::clone(&self.shown), no_standby };
        Ok(Lease {
            epoch: epoch as u64,
            now,
            may_expire,
            was_released,
            lost: Box::pin(until_closed(ended)),
            owner: Some(Box::new(owner)),
        })
    }

    /// Forgets the events of rows that are served no more: a write could count as done before that is not. Whose they are, the mark of
    /// `weir_versions` says.
    async fn forget_other_events(&self, client: &Client) -> Setup<()> {
        if let Some(table) = self.rows.known() {
            return table.take_versions(client).await;
        }
        // It may not be there, or be of a role that serves another table.
        let is_own =
            "SELECT coalesce(bool_and(has_table_privilege(to_regclass('weir_versions'), needed)), false)
            FROM unnest(ARRAY['SELECT', 'UPDATE']) needed";
        if client.query_one(is_own, &[]).await?.get(0) {
            let forget = format!("BEGIN; DELETE FROM weir_events WHERE {IS_MARKED}; {UNMARK}; COMMIT");
            client.batch_execute(&forget).await?;
        }
        Ok(())
    }

    /// Whether this database may be used as `part`; `Ok(true)`: the map is not written yet. The tables exist.
    async fn admits(&self, client: &Client, part: Part, table: &str) -> Setup<bool> {
        let what = "SELECT (SELECT map FROM weir_map), EXISTS (SELECT FROM weir_kv),
            EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = to_regclass($1))";
        let row = client.query_one(&what.replace(ROWS, table), &[&table]).await?;
        if row.get(2) {
            return refuse(format!(
                "{} is a replica: a subscription writes its table {table}; drop that before it is served",
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
        // Of another role the database tells neither from where it came nor when.
        let who = "SELECT a.pid, coalesce(host(a.client_addr),
                    CASE WHEN a.backend_start IS NULL THEN 'an address that this role may not see' ELSE 'a local socket' END),
                coalesce(', since ' || a.backend_start, ''),
                coalesce(a.application_name <> current_setting('application_name')
                    AND split_part(a.application_name, ' ', 3)
                      = split_part(current_setting('application_name'), ' ', 3), false),
                coalesce(a.application_name = current_setting('application_name'), false)
            FROM pg_locks l JOIN pg_stat_activity a USING (pid)
            WHERE l.locktype = 'advisory' AND l.granted
              AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
              AND l.classid::bigint = $1 AND l.objid::bigint = $2 LIMIT 1";
        let row = client.query_opt(who, &[&i64::from(LOCK_SPACE), &i64::from(LOCK_OWNER)]).await;
        let row = match row {
            Ok(Some(row)) => row,
            // It has been released meanwhile.
            Ok(None) => return ending(&self.shown),
            Err(_) => return taken(&self.shown, ""),
        };
        // A server that starts for the first time may not have made the tables yet.
        if client.query_one(IS_RELEASED, &[]).await.is_ok_and(|row| row.get(0)) {
            return ending(&self.shown);
        }
        if row.get(3) {
            let message =
                format!("the store {} is given twice; every shard is a database of its own", self.shown);
            return Error::new(Kind::Config, message);
        }
        let (pid, host, since): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
        if row.get(4) {
            let what = format!("an earlier session of this server still holds the store {}", self.shown);
            let remedy = format!("end it there with pg_terminate_backend({pid})");
            return Error::new(Kind::Taken, format!("{what} (backend {pid}{since}); if it lasts, {remedy}"));
        }
        taken(&self.shown, &format!(" (backend {pid} from {host}{since})"))
    }

    async fn session(&self, epoch: u64) -> Setup<Box<dyn Session>> {
        let Leased { host, server, .. } = self.leased.lock().clone();
        let (client, ended) = self.dial(&self.hosts[host], "session").await?;
        let hold = format!("SELECT pg_advisory_lock_shared({LOCK_SPACE}, {LOCK_SESSIONS})");
        client.batch_execute(&hold).await?;
        let current = client.query_one(&format!("SELECT epoch, {SERVER} FROM weir_owner"), &[]).await?;
        // Behind one address there may be another server than the owner has its locks in.
        if current.try_get::<_, i64>(0)? as u64 != epoch || current.try_get::<_, &str>(1)? != server {
            return Err(overtaken(&self.shown).into());
        }
        // The plan by the primary key is always right, however long the list is and however small the table was when it was
        // made; and planning again costs as much as reading a few rows.
        let plans =
            "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off";
        client.batch_execute(plans).await?;
        match self.rows.known() {
            None => Ok(Box::new(PostgresSession::prepare(Arc::clone(&self.shown), client, ended).await?)),
            Some(table) => {
                let (table, shown) = (Arc::clone(table), Arc::clone(&self.shown));
                Ok(Box::new(UserTableSession::prepare(table, shown, client, ended).await?))
            }
        }
    }
}

/// Why a connection was closed, when it is.
async fn until_closed(ended: JoinHandle<String>) -> String {
    ended.await.unwrap_or_else(|_| "the connection was dropped".to_owned())
}

/// Its locks are held as long as the session lives, and the session as long as its client.
struct PostgresOwner {
    client: Client,
    epoch: i64,
    shown: Arc<str>,
    /// What is wrong if no commit has to wait for a standby, where that is needed.
    no_standby: Option<String>,
}

#[async_trait]
impl Owner for PostgresOwner {
    async fn confirm(&mut self) -> Answer<()> {
        let failed = |error| Failure::from(error).of(&self.shown, Step::Read);
        if let Some(no_standby) = &self.no_standby {
            let standbys = self.client.query_one(CONFIRM, &[]).await.map_err(failed)?;
            return match standbys.get::<_, &str>(0) {
                standbys if waits_for_all(standbys) => Ok(()),
                _ => Err(Error::new(Kind::Unavailable, no_standby)),
            };
        }
        let found = self.client.query_opt("SELECT epoch FROM weir_owner", &[]).await.map_err(failed)?;
        let epoch: Option<i64> = found.map(|row| row.try_get(0)).transpose().map_err(failed)?;
        if epoch == Some(self.epoch) { Ok(()) } else { Err(overtaken(&self.shown)) }
    }

    async fn release(&mut self) -> Answer<()> {
        let released = self.client.execute(RELEASE, &[&self.epoch]).await;
        released.map(drop).map_err(|error| Failure::from(error).of(&self.shown, Step::Write))
    }
}

/// Makes those of `tables` that do not exist, all or none; the first one has the rows of the store `shown`, or their versions. An
/// `ALTER TABLE` on every start would wait for every open transaction on the table.
async fn make_tables(client: &Client, tables: &[Table], shown: &str) -> Setup<()> {
    let there = "SELECT name, attname::text FROM unnest($1::text[]) name
        JOIN pg_attribute ON attrelid = to_regclass(name) AND attnum > 0 AND NOT attisdropped";
    let names: Vec<&str> = tables.iter().map(|(name, ..)| *name).chain([ROWS, VERSIONS]).collect();
    let there = client.query(there, &[&names]).await?;
    let there = TablesThere(there.iter().map(|row| (row.get(0), row.get(1))).collect());
    for (name, definition, _) in tables {
        let remedy = "use another database, or another schema by ?options=-c%20search_path%3DSCHEMA";
        there.check_own(name, definition, shown, remedy)?;
    }
    let unlogged = "SELECT name FROM unnest($1::text[]) name JOIN pg_class ON oid = to_regclass(name) WHERE relpersistence = 'u'";
    if let Some(unlogged) = client.query(unlogged, &[&names]).await?.first() {
        let name: &str = unlogged.get(0);
        return refuse(format!(
            "{name} in {shown} is UNLOGGED, and empty after a crash of the database; run ALTER TABLE {name} SET LOGGED"
        ));
    }
    let missing: Vec<&Table> = tables.iter().filter(|(name, ..)| !there.has(name)).collect();
    let (Some((rows, ..)), Some((first, ..))) = (tables.first(), missing.first()) else { return Ok(()) };
    let is_used = there.has("weir_map")
        && client.query_one("SELECT EXISTS (SELECT FROM weir_map)", &[]).await?.get::<_, bool>(0);
    there.check_rows(rows, is_used, shown)?;
    let right = "SELECT current_schema()::text, current_user::text,
        coalesce(has_schema_privilege(current_schema(), 'CREATE'), false)";
    let right = client.query_one(right, &[]).await?;
    let (schema, user): (Option<&str>, &str) = (right.get(0), right.get(1));
    if !right.get::<_, bool>(2) {
        let schema = schema.unwrap_or("public");
        let grant = format!("GRANT CREATE ON SCHEMA \"{schema}\" TO \"{user}\"");
        return refuse(format!("{user} may not make the table {first} in the schema {schema}; run {grant}"));
    }
    let make = |(name, columns, also): &&Table| format!("CREATE TABLE {name} ({columns}); {also};");
    let make: String = missing.iter().map(make).collect();
    // Of rows that are gone. Else a write could count as done before that is not.
    let has_past = ["weir_events", "weir_owner"].iter().all(|table| there.has(table));
    let forget = if *first == ROWS && has_past { FORGET_EVENTS } else { "" };
    Ok(client.batch_execute(&format!("BEGIN; {make} {forget}; COMMIT")).await?)
}

#[async_trait]
impl Store for Postgres {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        self.setup("set up the tables", self.take(part)).await
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.setup("start a session", self.session(epoch)).await
    }

    fn sessions_may_outlive_lease(&self) -> bool {
        // Two servers may take themselves for the leader, and each grants a lease.
        self.needs_standby()
    }

    fn workers(&self) -> Workers {
        // Two batches in flight keep a backend busy while the other waits for its flush; see docs/decisions/0004.
        Workers { read: 2, write: 2 }
    }

    fn allow_foreign_writers(&mut self) -> bool {
        self.rows.allow_foreign_writers()
    }

    fn allow_asynchronous_failover(&mut self) -> bool {
        self.allows_asynchronous_failover = true;
        self.has_several_hosts()
    }

    fn capabilities(&self) -> Capabilities {
        self.rows.capabilities()
    }

    fn refuses(&self, key: &Key, row: Option<&Row>) -> Option<Error> {
        self.rows.refuses(key, row)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        let mut cause = cause(&error);
        if std::error::Error::source(&error).is_some_and(is_of_another_type) {
            return foreign_table(&cause);
        }
        let Some(refusal) = error.as_db_error() else {
            let is_login = cause.contains("invalid configuration");
            return Failure::Database(if is_login { Meaning::Login } else { Meaning::Ended }, cause);
        };
        use tokio_postgres::error::Severity::{Fatal, Panic};
        let code = refusal.code();
        if code == &SqlState::TOO_MANY_CONNECTIONS {
            // The message may be in any language.
            cause.push_str(&more_connections(match refusal.routine() {
                Some("InitializeSessionUserId") => "the CONNECTION LIMIT of the role",
                Some("CheckMyDatabase") => "the CONNECTION LIMIT of the database",
                _ => "its max_connections",
            }));
        }
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
            // `lock_timeout`; `statement_timeout`, or a cancel. Nothing has happened: during a commit both are put off.
            _ if [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED].contains(code) => Meaning::TimedOut,
            // The values, the table's own rules or triggers, or a size: one row may be at fault for all.
            Some("22" | "23" | "44" | "54" | "P0") => Meaning::Unfit,
            // Insufficient resources, as of disk or memory; errors of the system and within the server.
            Some("53" | "58" | "XX") => Meaning::Faulty,
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
