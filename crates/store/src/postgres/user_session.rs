//! A session with PostgreSQL over a table that others made.

use super::session::{ADD_EVENTS, Base, Columns, by_key, clear_of, rows_of};
use super::user_table::{LEFT_OUT, Statements};
use crate::sql::{Failure, Meaning, Setup, Step};
use crate::user_table::{self, FORGOTTEN_AT_ONCE, Seen, UserTable, VERSIONS, no_order, refused_by};
use crate::{Answer, Error, EventBlock, Found, Listed, Listing, Session};
use async_trait::async_trait;
use kv::{Change, Key, Row, Write};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

pub(super) struct UserTableSession {
    base: Base,
    table: Arc<UserTable<Statements>>,
    read: Statement,
    value_bytes: Statement,
    look: Statement,
    write: Statement,
    list: Option<Statement>,
    list_expired: Statement,
    forget_expired: Statement,
    seen: Seen,
}

impl UserTableSession {
    /// A session on a connection that lacks only its statements.
    pub(super) async fn prepare(
        table: Arc<UserTable<Statements>>,
        shown: Arc<str>,
        client: Client,
        ended: JoinHandle<String>,
    ) -> Setup<UserTableSession> {
        let Statements { read, value_bytes, look, write, list, list_expired, forget_expired } =
            &table.statements;
        // It costs more than the statements, each of which is of few rows.
        client.batch_execute("SET jit = off").await?;
        Ok(UserTableSession {
            read: client.prepare(read).await?,
            value_bytes: client.prepare(value_bytes).await?,
            look: client.prepare(look).await?,
            write: client.prepare(write).await?,
            list: match list {
                Some(list) => Some(client.prepare(list).await?),
                None => None,
            },
            list_expired: client.prepare(list_expired).await?,
            forget_expired: client.prepare(forget_expired).await?,
            base: Base::new(shown, client, ended, &table.shown),
            table,
            seen: Seen::default(),
        })
    }

    async fn read_now(&mut self, mut keys: &[Key]) -> Result<Vec<Option<Row>>, tokio_postgres::Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let found = loop {
            let bytes: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
            match (self.base.client.query(&self.read, &[&bytes]).await, keys) {
                // A database that has not all characters has no row with such a key. The others are asked for alone.
                (Err(error), [first, rest @ ..])
                    if error.code() == Some(&SqlState::UNTRANSLATABLE_CHARACTER) =>
                {
                    if rest.is_empty() {
                        break Vec::new();
                    }
                    keys = std::slice::from_ref(first);
                }
                (found, _) => break found?,
            }
        };
        let rows = rows_of(keys, &found)?;
        self.seen.note(keys, &rows);
        Ok(rows)
    }

    /// Locks what the writes were decided by. The keys of the rows that there are, also without a value; `None`: something has changed.
    async fn lock_seen(&self) -> Result<Option<HashSet<Vec<u8>>>, tokio_postgres::Error> {
        let keys: Vec<&[u8]> = self.seen.keys().map(Key::as_bytes).collect();
        let found = self.base.client.query(&self.look, &[&keys]).await?;
        let found = by_key(&found)?;
        for key in self.seen.keys() {
            let now = match found.get(key.as_bytes()) {
                Some(row) => row.try_get::<_, Option<&[u8]>>(1)?,
                None => None,
            };
            if !self.seen.is_as(key, now) {
                return Ok(None);
            }
        }
        Ok(Some(found.keys().map(|key| key.to_vec()).collect()))
    }

    async fn write_now(
        &mut self,
        writes: &[Write],
        events: Option<&EventBlock>,
    ) -> Result<Vec<Found>, Error> {
        self.base.check_open()?;
        let failed = |error: tokio_postgres::Error| self.base.failure(error, Step::Write);
        if self.seen.is_empty() && events.is_none() {
            return self.apply(writes, Step::Commit).await;
        }
        self.base.client.batch_execute("BEGIN").await.map_err(failed)?;
        let written = async {
            if let Some(EventBlock { id, at, body }) = events {
                let add = format!("{ADD_EVENTS} VALUES ($1, $2, $3)");
                let block: [&(dyn ToSql + Sync); 3] = [&(*id as i64), &(at.0 as i64), &&**body];
                self.base.client.execute(&add, &block).await.map_err(failed)?;
            }
            self.apply(writes, Step::Write).await
        };
        match written.await {
            Ok(found) => {
                let done = self.base.client.batch_execute("COMMIT").await;
                // A commit that the database refuses, for a constraint that it checks last, is rolled back.
                done.map_err(|error| self.failure(error, Step::Commit))?;
                Ok(found)
            }
            Err(error) if error.kind().ends_session() => Err(error),
            Err(error) => {
                let done = self.base.client.batch_execute("ROLLBACK").await;
                done.map_err(|error| Failure::from(error).and_ended().of(&self.base.shown, Step::Write))?;
                Err(error)
            }
        }
    }

    /// The statement that writes; what decided the writes comes first. With [`Step::Write`] a commit has to follow.
    async fn apply(&self, writes: &[Write], step: Step<'_>) -> Result<Vec<Found>, Error> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |error: tokio_postgres::Error| self.failure(error, step);
        let changed_since = || user_table::changed_since().of(&self.base.shown, Step::Write);
        let mut locked = HashSet::new();
        if !self.seen.is_empty() {
            locked = self.lock_seen().await.map_err(failed)?.ok_or_else(changed_since)?;
        }
        // What is not there cannot be locked: another program may make it yet, and then it is not to be replaced.
        let absent: Vec<&[u8]> =
            self.seen.keys().map(Key::as_bytes).filter(|key| !locked.contains(*key)).collect();
        let columns = Columns::of(writes);
        let all = [&columns.puts()[..], &[&columns.gone, &absent]].concat();
        let changed = self.base.client.query(&self.write, &all).await.map_err(failed)?;
        let changed =
            by_key(&changed).map_err(|error| Failure::from(error).and_ended().of(&self.base.shown, step))?;
        let is_left_out = |write: &&Write| {
            matches!(write.change, Change::Put(_)) && !changed.contains_key(write.key.as_bytes())
        };
        let left_out: Vec<&[u8]> =
            writes.iter().filter(is_left_out).map(|write| write.key.as_bytes()).collect();
        if !left_out.is_empty() {
            let there = self.base.client.query(&self.look, &[&left_out]).await.map_err(failed)?;
            let by_trigger = || refused_by(&self.table.shown, LEFT_OUT).of(&self.base.shown, Step::Write);
            return Err(if there.is_empty() { by_trigger() } else { changed_since() });
        }
        let is_present =
            |write: &Write| changed.get(write.key.as_bytes()).is_some_and(|row| row.get::<_, bool>(1));
        Ok(writes.iter().map(|write| Found::present(is_present(write))).collect())
    }

    /// What a failed write means.
    fn failure(&self, error: tokio_postgres::Error, step: Step) -> Error {
        let refusal =
            error.as_db_error().map(|refusal| (refusal.message().to_owned(), refusal.code().clone()));
        let failure = match (self.base.noted(error), refusal) {
            (Failure::Database(Meaning::Unfit, _), Some((why, _))) => refused_by(&self.table.shown, &why),
            // A trigger says what it likes.
            (Failure::Database(Meaning::Refused, _), Some((why, code))) if !is_of_server(&code) => {
                refused_by(&self.table.shown, &why)
            }
            (failure, _) => failure,
        };
        failure.of(&self.base.shown, step)
    }
}

/// Whether an error says something of the server, the connection or the schema, whatever the row is.
fn is_of_server(code: &SqlState) -> bool {
    let classes = ["08", "25", "28", "42", "55", "57", "72"];
    classes.iter().any(|class| code.code().starts_with(class))
}

#[async_trait]
impl Session for UserTableSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        self.table.check(keys.iter().map(|key| (key, None)))?;
        self.base.limit_lock_wait_of_read().await;
        let rows = self.read_now(keys).await;
        rows.map_err(|error| self.base.failure(error, Step::Read))
    }

    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64> {
        self.table.check(keys.iter().map(|key| (key, None)))?;
        self.base.value_bytes(&self.value_bytes, keys).await
    }

    fn begin_decision(&mut self, is_part: bool, by: &[Key]) {
        self.base.begin_write(is_part);
        self.seen.begin(by);
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        self.table.check(writes.iter().map(|write| (&write.key, write.row())))?;
        self.base.limit_lock_wait().await;
        let found = self.write_now(writes, events).await;
        self.seen.end();
        found
    }

    async fn events(&mut self, behind: u64) -> Answer<Vec<EventBlock>> {
        self.base.events(behind).await
    }

    async fn trim_events(&mut self, until: u64) -> Answer<()> {
        self.base.trim_events(until).await
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        // What its values are read for decides no write.
        self.seen.end();
        let statement = match &self.list {
            // In any order.
            _ if listing.expired => &self.list_expired,
            Some(list) => list,
            None => return Err(no_order(&self.table.key, "bytea")),
        };
        if listing.expired {
            // What others write later has no lifetime, also if it is the same value again.
            let (now, limit) = (listing.now.0 as i64, FORGOTTEN_AT_ONCE as i64);
            let forgotten = self.base.client.execute(&self.forget_expired, &[&now, &limit]).await;
            forgotten.map_err(|error| self.base.failure(error, Step::Read))?;
        }
        let rows = self.base.list(listing, statement).await;
        rows.map_err(|error| self.base.failure(error, Step::Read))
    }

    async fn clear(&mut self) -> Answer<()> {
        let both = clear_of(&[&format!("{VERSIONS} WHERE key <> ''"), &self.table.table]);
        self.base.limit_lock_wait().await;
        let cleared = self.base.client.batch_execute(&both).await;
        cleared.map_err(|error| self.base.failure(error, Step::Commit))
    }
}
