//! A session with a PostgreSQL server: its statements.

use super::super::{Answer, Error, EventBlock, Found, Kind, Listed, Listing, Session};
use crate::sql::{self, Failure, Meaning, Setup, Step};
use crate::tables::ROWS;
use async_trait::async_trait;
use kv::{Attributes, Change, Key, Row, Timestamp, Version, Write};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement};

const READ: &str =
    "SELECT key, value, content_type, version, content_encoding, expires FROM weir_kv WHERE key";
const VALUE_BYTES: &str =
    "SELECT coalesce(sum(octet_length(value)), 0)::bigint FROM weir_kv WHERE key = ANY($1)";
// An index of the rows that expire has no others in it.
const LIST: &str =
    "SELECT key, octet_length(value), content_type, version, content_encoding, expires FROM weir_kv
    WHERE key >= $1 AND key < $2 AND (expires IS NULL OR expires > $3) ORDER BY key LIMIT $4";
const LIST_EXPIRED: &str = "SELECT key, octet_length(value), content_type, version, content_encoding, expires
    FROM weir_kv WHERE expires <= $1 AND expires IS NOT NULL LIMIT $2";

// `xmax` of a row just inserted is 0; of one just updated it is not.
const PUT: &str = "INSERT INTO weir_kv AS old (key, value, content_type, version, content_encoding, expires)";
const PUT_OVER: &str = "ON CONFLICT (key) DO UPDATE
        SET value = excluded.value, content_type = excluded.content_type, version = excluded.version,
            content_encoding = excluded.content_encoding, expires = excluded.expires
        WHERE old.version <= excluded.version
    RETURNING key, xmax <> 0 AS present";
const ONE: &str = "VALUES ($1, $2, $3, $4, $5, $6)";
const MANY: &str =
    "SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])";
// In the same statement as the writes, so that there is one transaction and one round trip. The number is that of its parameters.
pub(super) const ADD_EVENTS: &str = "INSERT INTO weir_events (id, at, body)";
/// By this the statement divides: it fails where a newer row stays, of which the events say that it was replaced.
const ALL_CAME: &str = "SELECT (count(*) = cardinality($1::bytea[]))::int FROM came";
const EVENTS: &str = "SELECT id, at, body FROM weir_events WHERE id > $1 ORDER BY id LIMIT 8192";
const TRIM_EVENTS: &str = "DELETE FROM weir_events WHERE id <= $1";
const DELETE: &str = "DELETE FROM weir_kv WHERE key = ANY($1) RETURNING key, true AS present";

/// How long writes wait for locks, unless the database or the URL says it: a row that another program keeps locked must not hold
/// up the writes of all other keys.
const LOCK_WAIT: &str = "RESET lock_timeout;
    SELECT set_config('lock_timeout', '2s', false) WHERE current_setting('lock_timeout') = '0'";
/// A write that timed out is sent again key by key. What it was of has waited for locks once, and hardly waits again: else a batch
/// would take as many timeouts as it has locked rows.
const LOCK_WAIT_AGAIN: &str = "SET lock_timeout = 10";

/// What a session over any table has: its connection.
pub(super) struct Base {
    pub(super) shown: Arc<str>,
    pub(super) client: Client,
    ended: JoinHandle<String>,
    /// The table of the rows, for messages.
    rows: String,
    /// Whether a timeout of the database has cut this write short, or the one that it is a part of.
    timed_out: AtomicBool,
    /// What was set last of [`LOCK_WAIT`] and [`LOCK_WAIT_AGAIN`]. Neither in a session that only reads.
    lock_wait: &'static str,
    /// Whether a write has begun: from then on reads decide writes, and wait for locks as these do.
    writes: bool,
}

impl Base {
    pub(super) fn new(shown: Arc<str>, client: Client, ended: JoinHandle<String>, rows: &str) -> Base {
        let (rows, timed_out) = (rows.to_owned(), AtomicBool::new(false));
        Base { shown, client, ended, rows, timed_out, lock_wait: "", writes: false }
    }

    /// Begins a write. `is_part`: of the one before.
    pub(super) fn begin_write(&mut self, is_part: bool) {
        *self.timed_out.get_mut() &= is_part;
        self.writes = true;
    }

    /// Sets how long a read for a write waits for locks: that of the table.
    pub(super) async fn limit_lock_wait_of_read(&mut self) {
        if self.writes {
            self.limit_lock_wait().await;
        }
    }

    /// Sets how long a write waits for locks.
    pub(super) async fn limit_lock_wait(&mut self) {
        let wanted = if *self.timed_out.get_mut() { LOCK_WAIT_AGAIN } else { LOCK_WAIT };
        // Should that fail, it waits as long as before; or the connection is gone, which is noticed next.
        if self.lock_wait != wanted && self.client.batch_execute(wanted).await.is_ok() {
            self.lock_wait = wanted;
        }
    }

    /// What [`Session::value_bytes`] gives, by its statement.
    pub(super) async fn value_bytes(&mut self, statement: &Statement, keys: &[Key]) -> Answer<u64> {
        self.limit_lock_wait_of_read().await;
        let keys: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        let sum = self.client.query_one(statement, &[&keys]).await;
        match sum.and_then(|sum| sum.try_get::<_, i64>(0)) {
            Ok(bytes) => Ok(bytes as u64),
            // A key that the database has no characters for is read alone.
            Err(error) if error.code() == Some(&SqlState::UNTRANSLATABLE_CHARACTER) => Ok(0),
            Err(error) => Err(self.failure(error, Step::Read)),
        }
    }

    /// Lists by the statement for rows that have not expired, or by that for those that have.
    pub(super) async fn list(
        &self,
        listing: &Listing,
        statement: &Statement,
    ) -> Result<Vec<Listed>, tokio_postgres::Error> {
        let (now, limit) = (listing.now.0 as i64, listing.limit as i64);
        let found = if listing.expired {
            self.client.query(statement, &[&now, &limit]).await?
        } else {
            self.client.query(statement, &[&listing.from, &listing.end(), &now, &limit]).await?
        };
        let mut listed = Vec::with_capacity(found.len());
        for row in &found {
            // One that is no key of weir's is not listed.
            let Some(key) = Key::new(row.try_get(0)?) else { continue };
            let value_bytes = row.try_get::<_, i32>(1)? as u64;
            listed.push(Listed { row: row_of(&key, b"", row)?, value_bytes });
        }
        Ok(listed)
    }

    /// See [`Session::events`]. A step of acquiring the store: it has to answer as soon as in the others.
    pub(super) async fn events(&self, behind: u64) -> Result<Vec<EventBlock>, Error> {
        let page = async {
            let found = self.client.query_typed(EVENTS, &[(&(behind as i64), Type::INT8)]).await?;
            Ok::<_, Failure>(found.iter().map(block_of).collect::<Result<_, _>>()?)
        };
        sql::setup(&self.shown, "read the events", page).await
    }

    /// See [`Session::trim_events`].
    pub(super) async fn trim_events(&self, until: u64) -> Result<(), Error> {
        let trimmed = self.client.execute(TRIM_EVENTS, &[&(until as i64)]).await;
        // Done twice it does no harm, and done later neither.
        trimmed.map(drop).map_err(|error| self.failure(error, Step::Read))
    }

    /// Says that nothing can be sent any more, if that is known: then a write has not happened.
    pub(super) fn check_open(&self) -> Result<(), Error> {
        match self.client.is_closed() {
            true => {
                let what = format!("the store {} closed the connection", self.shown);
                Err(Error::new(Kind::Unavailable, what))
            }
            false => Ok(()),
        }
    }

    /// What a failure at `step` means.
    pub(super) fn failure(&self, error: tokio_postgres::Error, step: Step<'_>) -> Error {
        self.noted(error).of(&self.shown, step)
    }

    /// The same, before it is known at which step.
    pub(super) fn noted(&self, error: tokio_postgres::Error) -> Failure {
        let is_locked = error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE);
        let failure = Failure::from(error);
        if matches!(failure, Failure::Database(Meaning::TimedOut, _)) {
            self.timed_out.store(true, Relaxed);
        }
        if is_locked { failure.locked(&self.rows) } else { failure }
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // Dropping the client says goodbye; should the server not listen, the socket must close all the same.
        self.ended.abort();
    }
}

/// Writes as columns: those of the rows that are put, and the keys that are deleted.
#[derive(Default)]
pub(super) struct Columns<'w> {
    keys: Vec<&'w [u8]>,
    values: Vec<&'w [u8]>,
    types: Vec<&'w str>,
    versions: Vec<i64>,
    encodings: Vec<&'w str>,
    ends: Vec<Option<i64>>,
    pub(super) gone: Vec<&'w [u8]>,
}

impl<'w> Columns<'w> {
    pub(super) fn of(writes: &'w [Write]) -> Columns<'w> {
        let mut columns = Columns::default();
        for write in writes {
            match &write.change {
                Change::Put(row) => {
                    let attributes = row.attributes();
                    columns.keys.push(write.key.as_bytes());
                    columns.values.push(row.value());
                    columns.types.push(attributes.content_type);
                    columns.versions.push(write.version.0 as i64);
                    columns.encodings.push(attributes.content_encoding);
                    columns.ends.push(attributes.expires.map(|at| at.0 as i64));
                }
                Change::Delete => columns.gone.push(write.key.as_bytes()),
            }
        }
        columns
    }

    pub(super) fn puts(&self) -> [&(dyn ToSql + Sync); 6] {
        [&self.keys, &self.values, &self.types, &self.versions, &self.encodings, &self.ends]
    }
}

pub(super) struct PostgresSession {
    base: Base,
    read_one: Statement,
    read_many: Statement,
    value_bytes: Statement,
    list: Statement,
    list_expired: Statement,
    put_one: Statement,
    put: Statement,
    delete: Statement,
    put_and_delete: Statement,
    /// The same with events, once there are any, also where nothing is put or deleted.
    with_events: Option<Statement>,
}

impl PostgresSession {
    /// Prepares the statements on a connection that holds its locks.
    pub(super) async fn prepare(
        shown: Arc<str>,
        client: Client,
        ended: JoinHandle<String>,
    ) -> Setup<PostgresSession> {
        let both = put_and_delete();
        Ok(PostgresSession {
            read_one: client.prepare(&format!("{READ} = $1")).await?,
            read_many: client.prepare(&format!("{READ} = ANY($1)")).await?,
            value_bytes: client.prepare(VALUE_BYTES).await?,
            list: client.prepare(LIST).await?,
            list_expired: client.prepare(LIST_EXPIRED).await?,
            put_one: client.prepare(&put(ONE)).await?,
            put: client.prepare(&put(MANY)).await?,
            delete: client.prepare(DELETE).await?,
            put_and_delete: client.prepare(&both).await?,
            with_events: None,
            base: Base::new(shown, client, ended, ROWS),
        })
    }

    /// What a failure at `step` means. What it means that a table is missing is found out when the store is acquired.
    fn failure(&self, error: tokio_postgres::Error, step: Step<'_>) -> Error {
        match error.code() {
            // The statement has changed nothing, and committed nothing.
            Some(&SqlState::UNDEFINED_TABLE) => {
                let step = if matches!(step, Step::Read) { step } else { Step::Write };
                Failure::from(error).and_ended().of(&self.base.shown, step)
            }
            Some(&SqlState::DIVISION_BY_ZERO) => Error::newer(Kind::Rejected),
            _ => self.base.failure(error, step),
        }
    }

    async fn read_now(&self, keys: &[Key]) -> Result<Vec<Option<Row>>, tokio_postgres::Error> {
        let found = match keys {
            [] => return Ok(Vec::new()),
            // The plan for one key is cheaper than the one for an array of one.
            [key] => self.base.client.query(&self.read_one, &[&key.as_bytes()]).await?,
            keys => {
                let keys: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
                self.base.client.query(&self.read_many, &[&keys]).await?
            }
        };
        rows_of(keys, &found)
    }

    /// Prepares the statement that keeps events.
    async fn prepare_events(&mut self) -> Result<(), tokio_postgres::Error> {
        if self.with_events.is_none() {
            let kept =
                format!("kept AS ({ADD_EVENTS} SELECT $8::bigint / ({ALL_CAME}), $9::bigint, $10::bytea)");
            let statement = put_and_delete().replacen(" TABLE gone", &format!(", {kept} TABLE gone"), 1);
            self.with_events = Some(self.base.client.prepare(&statement).await?);
        }
        Ok(())
    }

    async fn write_now(
        &mut self,
        writes: &[Write],
        events: Option<&EventBlock>,
    ) -> Result<Vec<Found>, Error> {
        self.base.check_open()?;
        if events.is_some() {
            let prepared = self.prepare_events().await;
            prepared.map_err(|error| self.failure(error, Step::Write))?;
        }
        let columns = Columns::of(writes);
        let (puts, Columns { keys, gone, .. }) = (columns.puts(), &columns);
        let block = events.map(|block| (block.id as i64, block.at.0 as i64, &*block.body));
        let changed = match (keys.is_empty(), gone.is_empty()) {
            _ if let (Some((id, at, body)), Some(with_events)) = (&block, &self.with_events) => {
                let all = [&puts[..], &[gone as &(dyn ToSql + Sync), id, at, body]].concat();
                self.base.client.query(with_events, &all).await
            }
            (true, true) => return Ok(Vec::new()),
            // Cheaper than arrays of one.
            (false, true) if keys.len() == 1 => {
                let Columns { values, types, versions, encodings, ends, .. } = &columns;
                let put: [&(dyn ToSql + Sync); 6] =
                    [&keys[0], &values[0], &types[0], &versions[0], &encodings[0], &ends[0]];
                self.base.client.query(&self.put_one, &put).await
            }
            (false, true) => self.base.client.query(&self.put, &puts).await,
            (true, false) => self.base.client.query(&self.delete, &[gone]).await,
            (false, false) => {
                let gone: &(dyn ToSql + Sync) = gone;
                self.base.client.query(&self.put_and_delete, &[&puts[..], &[gone]].concat()).await
            }
        };
        // A statement is a transaction of its own.
        let changed = changed.map_err(|error| self.failure(error, Step::Commit))?;
        let changed = by_key(&changed)
            .map_err(|error| Failure::from(error).and_ended().of(&self.base.shown, Step::Commit))?;
        let found = |write: &Write| match (changed.get(write.key.as_bytes()), &write.change) {
            (Some(row), _) => Found::present(row.get(1)),
            (None, Change::Delete) => Found::Absent,
            (None, Change::Put(_)) => Found::Newer,
        };
        Ok(writes.iter().map(found).collect())
    }
}

#[async_trait]
impl Session for PostgresSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        self.base.limit_lock_wait_of_read().await;
        let rows = self.read_now(keys).await;
        rows.map_err(|error| self.failure(error, Step::Read))
    }

    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64> {
        self.base.value_bytes(&self.value_bytes, keys).await
    }

    fn begin_decision(&mut self, is_part: bool, _by: &[Key]) {
        self.base.begin_write(is_part);
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        self.base.limit_lock_wait().await;
        self.write_now(writes, events).await
    }

    async fn events(&mut self, behind: u64) -> Answer<Vec<EventBlock>> {
        self.base.events(behind).await
    }

    async fn trim_events(&mut self, until: u64) -> Answer<()> {
        self.base.trim_events(until).await
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        let statement = if listing.expired { &self.list_expired } else { &self.list };
        let rows = self.base.list(listing, statement).await;
        rows.map_err(|error| self.failure(error, Step::Read))
    }

    async fn clear(&mut self) -> Answer<()> {
        // Not TRUNCATE: a replica would empty the whole table that it keeps for all shards, and the lock it takes waits for
        // every reader.
        self.base.limit_lock_wait().await;
        let cleared = self.base.client.batch_execute(&clear_of(&["weir_kv"])).await;
        cleared.map_err(|error| self.failure(error, Step::Commit))
    }
}

/// Removes everything in `tables` and all events. If that fails, the session goes on as before: it is one transaction.
pub(super) fn clear_of(tables: &[&str]) -> String {
    let delete: String = tables.iter().map(|table| format!("DELETE FROM {table}; ")).collect();
    format!("SET enable_seqscan = on; {delete}DELETE FROM weir_events; SET enable_seqscan = off")
}

fn put_and_delete() -> String {
    let (delete, put) = (DELETE.replace("$1", "$7"), put(MANY));
    format!("WITH gone AS ({delete}), came AS ({put}) TABLE gone UNION ALL TABLE came")
}

fn put(rows: &str) -> String {
    format!("{PUT} {rows} {PUT_OVER}")
}

fn block_of(row: &tokio_postgres::Row) -> Result<EventBlock, tokio_postgres::Error> {
    let (id, at, body) = (row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?, row.try_get::<_, &[u8]>(2)?);
    Ok(EventBlock { id: id as u64, at: Timestamp(at as u64), body: body.into() })
}

/// The rows under `keys`, of those that were found.
pub(super) fn rows_of(
    keys: &[Key],
    found: &[tokio_postgres::Row],
) -> Result<Vec<Option<Row>>, tokio_postgres::Error> {
    let rows = by_key(found)?;
    let row = |key: &Key| {
        let Some(row) = rows.get(key.as_bytes()) else { return Ok(None) };
        row_of(key, row.try_get(1)?, row).map(Some)
    };
    keys.iter().map(row).collect()
}

/// The row under `key`, of columns in the order of [`READ`].
fn row_of(key: &Key, value: &[u8], row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    let expires = row.try_get::<_, Option<i64>>(5)?.map(|at| Timestamp(at as u64));
    let (content_type, content_encoding) = (row.try_get(2)?, row.try_get(4)?);
    let version = Version(row.try_get::<_, i64>(3)? as u64);
    Ok(Row::with(key, Attributes { content_type, content_encoding, expires }, value, version))
}

/// Rows by their first column, the key.
pub(super) type ByKey<'r> = HashMap<&'r [u8], &'r tokio_postgres::Row, foldhash::fast::RandomState>;

pub(super) fn by_key(rows: &[tokio_postgres::Row]) -> Result<ByKey<'_>, tokio_postgres::Error> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row))).collect()
}
