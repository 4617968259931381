//! A MySQL or MariaDB server as the store: one table, one short transaction per batch.
//!
//! Ownership. The connection of the owner thread holds a user lock (`GET_LOCK`), which keeps a second server out and names the
//! first. Writes rely on a row: every write transaction begins by reading the epoch in `weir_owner` under a shared row lock, and
//! stops if the epoch is not its own. A new lease raises that epoch: its `UPDATE` waits for every transaction that holds the
//! row, and every later one sees the newer number. So when a lease is granted, nothing sent under an earlier one can take
//! effect any more, whether its connection lives or not. A session that reads asks for the epoch once a second, which is more often
//! than the two seconds that a new owner waits before it serves.
//!
//! There are no shared user locks, so the way of PostgreSQL is not possible, and `KILL` of the old connections alone would need
//! to find all of them. `KILL` only shortens the wait: each session marks itself with a user lock of its own.
//!
//! The SQL is what MariaDB 10.11 and MySQL 8 have in common. All columns are bytes, so collations do not matter.

mod commits;
mod script;
mod session;
mod tls;
mod user_session;
mod user_table;

use super::password::Password;
use super::sql::{
    self, Failure, Meaning, OWNER_SILENCE_MAX, Setup, Step, ending, foreign_table, more_connections,
    overtaken, taken,
};
use super::store_url::StoreUrl;
use super::tables::{ROWS, TablesThere};
use super::user_table::{PARAMETERS, RowsTable, Seen, UserTable, VERSIONS, refuse};
use super::{Answer, Capabilities, Error, Kind, Lease, Owner, Part, Session, Store, Workers, redacted};
use async_trait::async_trait;
use commits::Commits;
use kv::clock::boot_time;
use kv::{Key, Timestamp, Version, one_line};
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, FromRowError, Opts, OptsBuilder, Row, from_row_opt};
use parking_lot::Mutex;
use session::{LOCK_WAIT, MysqlSession, PREPARED_MAX};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tls::Tls;
use user_session::UserTableSession;
use user_table::{Statements, VERSIONS_TABLE};

/// Most bytes of a packet from the server: the most that `max_allowed_packet` can be.
const ANSWER_BYTES_MAX: usize = 1 << 30;
/// How long a connection may take with its login. The server speaks first, and at once: what is silent is something else.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// How often a lease ends lingering sessions before it gives up for this time; it waits a second after each.
const TERMINATIONS_MAX: usize = 10;

/// Alike in all connections, whatever the server's defaults are. A 0 is a number, also where `AUTO_INCREMENT` would take it for
/// the next one; in literals only `'` is written as two; and no limit leaves rows out.
const SETTINGS: &str = "SET SESSION autocommit = 1, completion_type = 0,
        sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,NO_BACKSLASH_ESCAPES',
        sql_select_limit = 18446744073709551615, sql_safe_updates = 0, sql_big_selects = 1;
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// A lease looks for lingering sessions after a lock wait of one second, the shortest possible. The first limit is of rows, the second
/// of tables and of the locks that backups take.
const OWNER_SETTINGS: &str = "SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 1";
/// Sessions may idle for a year, the most there is; they wait for locks as writes do. `binary`: parameters and literals are bytes and
/// are not converted.
const SESSION_SETTINGS: &str = "SET SESSION wait_timeout = 31536000, innodb_lock_wait_timeout = 2, lock_wait_timeout = 2; SET NAMES binary";

/// A table: its name and its columns.
type Table = (&'static str, &'static str);

const ROWS_TABLE: Table = (
    ROWS,
    "`key` VARBINARY(1024) NOT NULL PRIMARY KEY, value LONGBLOB NOT NULL, content_type VARBINARY(255) NOT NULL,
    version BIGINT NOT NULL, content_encoding VARBINARY(64) NOT NULL DEFAULT '', expires BIGINT,
    INDEX weir_kv_expires (expires)",
);
/// Beside that of the rows, or of their versions.
const OTHER_TABLES: [Table; 4] = [
    ("weir_owner", "one TINYINT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL"),
    ("weir_map", "one TINYINT NOT NULL PRIMARY KEY, map VARCHAR(64) CHARACTER SET ascii NOT NULL"),
    (
        "weir_events",
        "id BIGINT UNSIGNED NOT NULL PRIMARY KEY, at BIGINT UNSIGNED NOT NULL, body LONGBLOB NOT NULL",
    ),
    ("weir_release", "one TINYINT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL"),
];
/// Where `weir_owner` is empty, the first epoch is above them.
const FORGET_EVENTS: &str = "DELETE FROM weir_events WHERE EXISTS (SELECT 1 FROM weir_owner)";
/// Whether events are of a table of others, and that they are not.
const IS_MARKED: &str = "EXISTS (SELECT 1 FROM weir_versions WHERE `key` = '' AND version = 0)";
const UNMARK: &str = "UPDATE weir_versions SET version = 1 WHERE `key` = '' AND version = 0";

const RAISE: &str = "UPDATE weir_owner SET epoch = epoch + 1 WHERE one = 1";
/// Where `weir_owner` is empty; rows may be there all the same, of a dump without that table; else any. One statement, so that it takes
/// effect also if it lasts longer than the setup may.
const FIRST_EPOCH: &str = "INSERT INTO weir_owner (one, epoch) SELECT 1, COALESCE(NULLIF(GREATEST(
        COALESCE(MAX(version), 0), COALESCE((SELECT MAX(id) FROM weir_events), 0)) >> ?, 0), ?) + 1 FROM weir_kv";
/// What the lease says of time. Not by local time, which has an hour twice; and the session keeps its time zone, because defaults
/// and triggers of a table of others may use it.
const TIME: &str =
    "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS SIGNED),
    EXISTS (SELECT 1 FROM weir_kv WHERE expires IS NOT NULL)";
/// Written by the server of the newest epoch when it answers no more hits.
const RELEASE: &str = "REPLACE INTO weir_release (one, epoch) VALUES (1, ?)";
const IS_RELEASED: &str = "SELECT EXISTS (SELECT 1 FROM weir_release JOIN weir_owner USING (epoch))";
const EPOCH: &str = "SELECT epoch FROM weir_owner WHERE one = 1";

/// Why there is no connection after [`CONNECT_MAX`].
const SILENT: &str = "no connection within 5 s; MySQL and MariaDB speak at once, so check host and port, and what listens there";

pub(super) struct Mysql {
    /// Without the password.
    options: Opts,
    password: Password,
    tls: Tls,
    rows: RowsTable<Statements>,
    /// For messages, without the password.
    shown: Arc<str>,
    warned: AtomicBool,
    /// Of the lease in force.
    commits: Mutex<Arc<Commits>>,
}

impl Mysql {
    pub(super) fn open(url: &str) -> Result<Mysql, Error> {
        let shown: Arc<str> = redacted(url).into();
        let wrong = |why: String| Error::new(Kind::Config, format!("{shown} is no MySQL URL: {why}"));
        let form = "write mysql://user:password@127.0.0.1:3306/database";
        let mut url = StoreUrl::parse(url).map_err(wrong)?;
        let user = url.user.take().ok_or_else(|| wrong(format!("it names no user; {form}")))?;
        let database = url.database.take().ok_or_else(|| wrong(format!("it names no database; {form}")))?;
        let place = url.only_place().map_err(wrong)?;
        let socket = url.take("socket");
        let tls = Tls::of(&mut url, socket.is_some()).map_err(wrong)?;
        let password = Password::of_url(url.password.take(), url.take("password-file")).map_err(wrong)?;
        let rows = RowsTable::of(&mut url).map_err(wrong)?;
        let known = [&tls::PARAMETERS[..], &["password-file", "socket"], &PARAMETERS].concat();
        url.finish(&known).map_err(wrong)?;
        let options = OptsBuilder::default()
            .ip_or_hostname(place.host.unwrap_or("127.0.0.1".into()))
            .tcp_port(place.port.unwrap_or(3306))
            .user(Some(user))
            .db_name(Some(database))
            .socket(socket)
            // The address that is given, not a socket that the server says is the same.
            .prefer_socket(false)
            .tcp_keepalive(Some(Duration::from_secs(10)))
            // Of answers. A row may be larger than what the server takes today; of what is sent, see `check_fit`.
            .max_allowed_packet(Some(ANSWER_BYTES_MAX))
            .stmt_cache_size(PREPARED_MAX);
        Ok(Mysql {
            options: options.into(),
            password: password.or_else(|| Password::of_variable("MYSQL_PWD")).unwrap_or(Password::None),
            tls,
            rows,
            shown,
            warned: AtomicBool::new(false),
            commits: Mutex::default(),
        })
    }

    /// Connects with TLS or without, as the URL says.
    async fn connect(&self) -> Setup<Conn> {
        let password = self.password.read()?;
        let tries = self.tls.tries();
        let failed = |why| {
            Failure::from(Error::new(Kind::Config, format!("cannot reach store {}: {why}", self.shown)))
        };
        let mut tries = VecDeque::from(tries.map_err(failed)?);
        let mut first_failure = None;
        while let Some(tls) = tries.pop_front() {
            let options = OptsBuilder::from_opts(self.options.clone()).pass(password.clone());
            let connecting = Conn::new(options.ssl_opts(tls.clone()));
            let error = match tokio::time::timeout(CONNECT_MAX, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => error,
                Err(_) => return Err(Failure::Database(Meaning::Ended, SILENT.to_owned())),
            };
            if let Some(named) = tls.and_then(|tls| self.tls.with_name_of(tls, &error)) {
                tries.push_front(Some(named));
                continue;
            }
            // Without TLS only its own failures may go away.
            let Some(why) = self.tls.explain(&error) else { return Err(error.into()) };
            first_failure.get_or_insert(Failure::Database(Meaning::Login, one_line(&why)));
        }
        Err(first_failure.unwrap_or_else(|| failed("there is no way to connect".into())))
    }

    /// Connects; the second part is what the names of this database's user locks begin with.
    async fn dial(&self, settings: &str) -> Setup<(Conn, String)> {
        let mut connection = self.connect().await?;
        // User locks belong to the whole server. Their names have at most 64 characters, and so do those of databases.
        let hash: Option<String> =
            connection.query_first("SELECT LEFT(SHA2(LOWER(DATABASE()), 256), 32)").await?;
        connection.query_drop(SETTINGS).await?;
        connection.query_drop(settings).await?;
        Ok((connection, format!("weir.{}.", hash.unwrap_or_default())))
    }

    async fn take(&self, part: Part) -> Setup<Lease> {
        let (mut owner, prefix) = self.dial(OWNER_SETTINGS).await?;
        owner.query_drop(format!("SET SESSION wait_timeout = {}", OWNER_SILENCE_MAX.as_secs())).await?;
        let lock = format!("{prefix}owner");
        let locked: Option<Option<i64>> = owner.query_first(format!("SELECT GET_LOCK('{lock}', 0)")).await?;
        if locked.flatten() != Some(1) {
            return Err(self.taken(&mut owner, &lock).await.into());
        }
        // Where the versions are, and where the rows.
        let (versions, rows) = match &self.rows.names {
            None => (ROWS_TABLE, ROWS.to_owned()),
            Some(names) => {
                let table = UserTable::examine(&mut owner, names).await?;
                let name = table.table.clone();
                self.rows.examined(table);
                (VERSIONS_TABLE, name)
            }
        };
        self.make_tables(&mut owner, &[&[versions], &OTHER_TABLES[..]].concat()).await?;
        let (versions, _) = versions;
        if let Some(table) = self.rows.known() {
            table.check_versions(&mut owner, &self.shown).await?;
        }
        // The map: which part of the keys this database holds.
        let what = format!("SELECT (SELECT map FROM weir_map), EXISTS (SELECT 1 FROM {rows})");
        let found: Option<(Option<String>, bool)> = first(&mut owner, &what).await?;
        let (recorded, in_use) = found.unwrap_or_default();
        if part.admit(recorded.as_deref(), in_use, &self.shown)? {
            owner.exec_drop("INSERT INTO weir_map (one, map) VALUES (1, ?)", (part.map(),)).await?;
        }
        let is_released: bool = first(&mut owner, IS_RELEASED).await?.unwrap_or_default();
        let is_first = self.outlast_earlier_writes(&mut owner, &prefix, versions).await?;
        // Now no session of a lease before can add any.
        self.forget_other_events(&mut owner).await?;
        let epoch: i64 = first(&mut owner, EPOCH).await?.unwrap_or_default();
        self.warn_of_losses(&mut owner).await?;
        let (now, may_expire): (i64, bool) =
            first(&mut owner, &TIME.replace(ROWS, versions)).await?.unwrap_or_default();
        let now = Timestamp(now as u64);
        // The commit of the new epoch has flushed what is before it in the log, too.
        *self.commits.lock() = Arc::default();
        let question =
            format!("SELECT epoch, IS_USED_LOCK('{lock}') <=> CONNECTION_ID() FROM weir_owner WHERE one = 1");
        let owner = MysqlOwner { connection: owner, question, epoch, shown: Arc::clone(&self.shown) };
        Ok(Lease {
            epoch: epoch as u64,
            now,
            may_expire,
            was_released: is_first || is_released,
            // An idle connection does not notice its end.
            lost: Box::pin(std::future::pending()),
            owner: Some(Box::new(owner)),
        })
    }

    /// Forgets the events of rows that are served no more: a write could count as done before that is not. Whose they are, the mark of
    /// `weir_versions` says.
    async fn forget_other_events(&self, owner: &mut Conn) -> Setup<()> {
        if let Some(table) = self.rows.known() {
            return table.take_versions(owner).await;
        }
        let is_there = "SELECT EXISTS (SELECT 1 FROM information_schema.tables
            WHERE table_schema = DATABASE() AND table_name = 'weir_versions')";
        if first(owner, is_there).await?.unwrap_or_default() {
            // In this order: the process may end in between.
            owner.query_drop(format!("DELETE FROM weir_events WHERE {IS_MARKED}")).await?;
            owner.query_drop(UNMARK).await?;
        }
        Ok(())
    }

    /// Makes those of `tables` that do not exist; the first one has the rows, or their versions.
    async fn make_tables(&self, owner: &mut Conn, tables: &[Table]) -> Setup<()> {
        let names = tables.iter().map(|(name, _)| *name).chain([ROWS, VERSIONS]);
        let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
        let weirs = format!("table_schema = DATABASE() AND table_name IN ({})", names.join(", "));
        let other = format!(
            "SELECT table_name, engine FROM information_schema.tables WHERE {weirs} AND engine <> 'InnoDB'"
        );
        if let Some((name, engine)) = first::<(String, String)>(owner, &other).await? {
            let shown = &self.shown;
            return refuse(format!(
                "{name} in {shown} has the engine {engine}, without transactions; run ALTER TABLE {name} ENGINE = InnoDB"
            ));
        }
        let there = format!("SELECT table_name, column_name FROM information_schema.columns WHERE {weirs}");
        let there = TablesThere(owner.query(there).await?);
        for (name, definition) in tables {
            there.check_own(name, definition, &self.shown, "use another database")?;
        }
        let missing: Vec<&Table> = tables.iter().filter(|(name, _)| !there.has(name)).collect();
        let (Some((rows, _)), Some((first_missing, _))) = (tables.first(), missing.first()) else {
            return Ok(());
        };
        let is_used = there.has("weir_map")
            && first::<bool>(owner, "SELECT EXISTS (SELECT 1 FROM weir_map)").await?.unwrap_or_default();
        there.check_rows(rows, is_used, &self.shown)?;
        // Of rows that are gone. Else a write could count as done before that is not.
        if *first_missing == ROWS && ["weir_events", "weir_owner"].iter().all(|table| there.has(table)) {
            owner.query_drop(FORGET_EVENTS).await?;
        }
        for (name, columns) in missing {
            let engine = "ENGINE = InnoDB ROW_FORMAT = DYNAMIC";
            owner.query_drop(format!("CREATE TABLE IF NOT EXISTS {name} ({columns}) {engine}")).await?;
        }
        Ok(())
    }

    /// Raises the epoch, which waits for every write of an earlier lease that is in flight. Whether there was none before.
    async fn outlast_earlier_writes(&self, owner: &mut Conn, prefix: &str, versions: &str) -> Setup<bool> {
        for _ in 0..TERMINATIONS_MAX {
            match owner.query_drop(RAISE).await {
                Ok(()) if owner.affected_rows() > 0 => return Ok(false),
                Ok(()) => {
                    let first = FIRST_EPOCH.replace(ROWS, versions);
                    owner.exec_drop(first, (Version::COUNTER_BITS, crate::any_epoch())).await?;
                    return Ok(true);
                }
                Err(error) if matches!(meaning(&error), Meaning::TimedOut | Meaning::RolledBack) => {}
                Err(error) => return Err(error.into()),
            }
            // A write waits for rows that somebody else locks, or its server stopped in the middle.
            let lingering = format!(
                "SELECT id FROM information_schema.processlist
                WHERE id <> CONNECTION_ID() AND IS_USED_LOCK(CONCAT('{prefix}', id)) = id"
            );
            for id in owner.query::<u64, _>(lingering).await? {
                // It may have ended by itself, or belong to another user. The epoch decides.
                if let Err(error) = owner.query_drop(format!("KILL {id}")).await {
                    log::debug!("cannot end connection {id} of {}: {}", self.shown, cause(&error));
                }
            }
        }
        let what = format!("another connection has locked the table weir_owner of {}", self.shown);
        let whose = "that of an earlier server, or of a dump";
        let message = format!("{what}: {whose}; wait until it has ended, or end it with KILL");
        Err(Error::new(Kind::Unavailable, message).into())
    }

    /// An acknowledged write is durable only if the server flushes at each commit; that is not ours to set.
    async fn warn_of_losses(&self, owner: &mut Conn) -> Setup<()> {
        let settings =
            "SELECT @@GLOBAL.innodb_flush_log_at_trx_commit, @@GLOBAL.log_bin, @@GLOBAL.sync_binlog";
        let settings: Option<(i64, i64, i64)> = owner.query_first(settings).await?;
        let (flush, with_binlog, sync_binlog) = settings.unwrap_or((1, 0, 1));
        let wrong = match () {
            // MariaDB's 3 flushes as well.
            _ if flush != 1 && flush != 3 => format!("innodb_flush_log_at_trx_commit = {flush}"),
            // With a binary log that is what a commit rests on.
            _ if with_binlog != 0 && sync_binlog != 1 => format!("sync_binlog = {sync_binlog}"),
            _ => return Ok(()),
        };
        if !self.warned.swap(true, Relaxed) {
            log::warn!(
                "the store {} runs with {wrong}: if its machine fails, acknowledged writes are lost; set it to 1",
                self.shown
            );
        }
        Ok(())
    }

    /// The error of a store that another connection owns; names that connection.
    async fn taken(&self, owner: &mut Conn, lock: &str) -> Error {
        // A server that starts for the first time may not have made the tables yet.
        if let Ok(Some(true)) = first(owner, IS_RELEASED).await {
            return ending(&self.shown);
        }
        let who = format!(
            "SELECT used.id, there.user, there.host FROM (SELECT IS_USED_LOCK('{lock}') AS id) AS used
            LEFT JOIN information_schema.processlist AS there ON there.id = used.id WHERE used.id IS NOT NULL"
        );
        type Holder = (u64, Option<String>, Option<String>);
        let holder = match owner.query_first::<Holder, _>(who).await {
            Ok(Some((id, Some(user), Some(host)))) => format!(" (connection {id} of {user} from {host})"),
            Ok(Some((id, ..))) => format!(" (connection {id})"),
            // It has been released meanwhile.
            Ok(None) => return ending(&self.shown),
            Err(_) => String::new(),
        };
        taken(&self.shown, &holder)
    }

    async fn session(&self, epoch: u64) -> Setup<Box<dyn Session>> {
        let (mut connection, prefix) = self.dial(SESSION_SETTINGS).await?;
        let tag = format!("SELECT GET_LOCK('{prefix}{}', 0), @@SESSION.max_allowed_packet", connection.id());
        let tagged: Option<(Option<i64>, u64)> = connection.query_first(tag).await?;
        let asked = boot_time();
        let current: Option<i64> = first(&mut connection, EPOCH).await?;
        if current != Some(epoch as i64) {
            return Err(overtaken(&self.shown).into());
        }
        let base = MysqlSession {
            shown: Arc::clone(&self.shown),
            connection,
            epoch,
            asked,
            commits: Arc::clone(&self.commits.lock()),
            packet_bytes_max: tagged.map_or(0, |(_, bytes)| bytes) as usize,
            timed_out: false,
            lock_wait: LOCK_WAIT,
            rows: self.rows.known().map_or(ROWS, |table| &table.shown).to_owned(),
        };
        match self.rows.known() {
            None => Ok(Box::new(base)),
            Some(table) => {
                Ok(Box::new(UserTableSession { base, table: Arc::clone(table), seen: Seen::default() }))
            }
        }
    }
}

#[async_trait]
impl Store for Mysql {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        sql::setup(&self.shown, "set up the tables", self.take(part)).await
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        sql::setup(&self.shown, "start a session", self.session(epoch)).await
    }

    fn workers(&self) -> Workers {
        // Half as many batches of writes that are twice as large cost less; see docs/decisions/0004.
        Workers { read: 2, write: 1 }
    }

    fn capabilities(&self) -> Capabilities {
        self.rows.capabilities()
    }

    fn allow_foreign_writers(&mut self) -> bool {
        self.rows.allow_foreign_writers()
    }

    fn refuses(&self, key: &Key, row: Option<&kv::Row>) -> Option<Error> {
        self.rows.refuses(key, row)
    }
}

struct MysqlOwner {
    connection: Conn,
    /// The epoch, and whether the user lock is still ours.
    question: String,
    epoch: i64,
    shown: Arc<str>,
}

#[async_trait]
impl Owner for MysqlOwner {
    async fn confirm(&mut self) -> Answer<()> {
        match first::<(i64, i64)>(&mut self.connection, &self.question).await {
            Ok(Some((epoch, 1))) if epoch == self.epoch => Ok(()),
            Ok(_) => Err(overtaken(&self.shown)),
            Err(failure) => Err(failure.of(&self.shown, Step::Read)),
        }
    }

    async fn release(&mut self) -> Answer<()> {
        let released = self.connection.exec_drop(RELEASE, (self.epoch,)).await;
        released.map_err(|error| Failure::from(error).of(&self.shown, Step::Write))
    }
}

/// The first row of an answer. Where its columns have other types than `T`, the driver's own would panic.
async fn first<T: FromRow>(connection: &mut Conn, question: &str) -> Setup<Option<T>> {
    let row: Option<Row> = connection.query_first(question).await?;
    row.map(from_row_opt).transpose().map_err(of_another_type)
}

fn of_another_type(error: FromRowError) -> Failure {
    // What the row holds must not be shown.
    let FromRowError(row) = error;
    let columns = row.columns_ref().iter().map(|column| column.name_str().into_owned());
    foreign_table(&format!("the type of {}", columns.collect::<Vec<_>>().join(" or ")))
}

impl From<mysql_async::Error> for Failure {
    fn from(error: mysql_async::Error) -> Failure {
        Failure::Database(meaning(&error), cause(&error))
    }
}

fn meaning(error: &mysql_async::Error) -> Meaning {
    use mysql_async::DriverError::{CleartextPluginDisabled, MysqlOldPasswordDisabled, UnknownAuthPlugin};
    let refusal = match error {
        mysql_async::Error::Server(refusal) => refusal,
        // A login method that the driver does not know.
        mysql_async::Error::Driver(
            UnknownAuthPlugin { .. } | MysqlOldPasswordDisabled | CleartextPluginDisabled,
        ) => return Meaning::Login,
        _ => return Meaning::Ended,
    };
    match (refusal.code, refusal.state.get(..2)) {
        // Wrong password or unknown user (class 28), unknown database, host not allowed, password expired, account locked,
        // TLS required.
        (1044 | 1049 | 1130 | 1251 | 1862 | 3118 | 3159 | 4151, _) | (_, Some("28")) => Meaning::Login,
        // Too many connections; a host that is blocked for a while; shut down, killed, cut off, timed out for idling.
        (
            1040 | 1129 | 1203 | 1226 | 1053 | 1077 | 1079 | 1152 | 1158..=1161 | 1184 | 1927 | 3169 | 4031,
            _,
        ) => Meaning::Ended,
        (1290 | 1792 | 1836, _) => Meaning::ReadOnly,
        // Lock wait, interrupted, out of time.
        (1205 | 1317 | 1969 | 3024 | 3572, _) => Meaning::TimedOut,
        // A deadlock; the nodes of a cluster that disagree when one commits.
        (1213 | 3101, _) | (_, Some("40")) => Meaning::RolledBack,
        // A packet, a row or a blob too large for a setting; a check; a trigger; no partition for it.
        (1048 | 1118 | 1153 | 1301 | 1364 | 1366 | 1526 | 1591 | 1644 | 1748 | 3819 | 4025, _)
        | (_, Some("22" | "23" | "44" | "45")) => Meaning::Unfit,
        // A disk or a table that is full or cannot be written; memory and threads; an error of the engine.
        (1003 | 1021 | 1026 | 1030 | 1037 | 1038 | 1041 | 1114 | 1135 | 1878, _) => Meaning::Faulty,
        _ => Meaning::Refused,
    }
}

/// The reason, on one line.
fn cause(error: &mysql_async::Error) -> String {
    one_line(&match error {
        mysql_async::Error::Server(refusal) => {
            let remedy = match refusal.code {
                1040 => more_connections("its max_connections"),
                1203 | 1226 => more_connections("max_user_connections"),
                _ => String::new(),
            };
            format!("{} ({}){remedy}", refusal.message, refusal.code)
        }
        mysql_async::Error::Io(mysql_async::IoError::Io(error)) => error.to_string(),
        mysql_async::Error::Driver(error) => error.to_string(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_user_host_and_database() {
        for (url, why) in [
            ("mysql://[", "no `]`"),
            ("mysql://127.0.0.1/db", "names no user"),
            ("mysql://u:secret@127.0.0.1:3306", "names no database"),
            ("mysql://u:secret@a,b/db", "names several hosts"),
            ("mysql://u:se?cret@127.0.0.1/db", "%3F"),
            ("mysql://u:secret@127.0.0.1/db?compress=zlib", "`compress` is not known; known are ssl-mode, "),
            ("mariadb://u:secret@127.0.0.1/db?password-file=/x", "a password and a password-file"),
        ] {
            let error = Mysql::open(url).err().unwrap();
            assert_eq!(error.kind(), Kind::Config, "{url}");
            let said = error.to_string();
            assert!(said.contains(why) && !said.contains("cret") && !said.contains('\n'), "{url}: {said}");
        }
        let odd = Mysql::open("mysql://u:a%40%2Fb@127.0.0.1:3307/db").unwrap();
        assert_eq!((odd.password.read().unwrap().as_deref(), odd.options.tcp_port()), (Some("a@/b"), 3307));
        assert_eq!(&*odd.shown, "mysql://u@127.0.0.1:3307/db");
    }

    #[test]
    fn an_error_says_what_follows() {
        let kind = |code, state: &str| {
            let refusal = mysql_async::ServerError { code, state: state.into(), message: String::new() };
            meaning(&mysql_async::Error::Server(refusal))
        };
        assert!(matches!(kind(1213, "40001"), Meaning::RolledBack), "deadlock");
        assert!(matches!(kind(1045, "28000"), Meaning::Login), "wrong password");
        assert!(matches!(kind(1205, "HY000"), Meaning::TimedOut), "lock wait");
        assert!(matches!(kind(1406, "22001"), Meaning::Unfit), "too long");
        assert!(matches!(kind(1644, "45000"), Meaning::Unfit), "a trigger");
        assert!(matches!(kind(30001, "45000"), Meaning::Unfit), "a trigger with a number of its own");
        assert!(matches!(kind(1526, "HY000"), Meaning::Unfit), "no partition");
        assert!(matches!(kind(1021, "HY000"), Meaning::Faulty), "disk full");
        assert!(matches!(kind(1290, "HY000"), Meaning::ReadOnly), "read only");
        assert!(matches!(kind(1927, "70100"), Meaning::Ended), "killed");
        assert!(matches!(kind(1040, "08004"), Meaning::Ended), "too many connections");
        let lost = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(matches!(meaning(&lost.into()), Meaning::Ended));
    }
}
