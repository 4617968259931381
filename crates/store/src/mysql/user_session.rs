//! A session with MySQL or MariaDB over a table that others made.
//!
//! Every write locks the rows that it is about and those that it was decided by, looks whether they are as they were, and then
//! writes them and `weir_versions` in the same transaction. A row that is not there cannot be locked: it is inserted, which fails
//! if another program was faster.

use super::commits::Traced;
use super::session::{MysqlSession, OVERHEAD_BYTES, in_limits, over, values};
use super::user_table::Statements;
use crate::sql::{Failure, Meaning, Step};
use crate::user_table::{
    FORGOTTEN_AT_ONCE, Seen, Type, UserTable, VERSIONS, changed_since, digest, no_order, refused_by,
};
use crate::{Answer, Error, EventBlock, Found, Listed, Listing, Session};
use async_trait::async_trait;
use kv::{Change, Key, Row, Write};
use mysql_async::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Most keys in one statement, and most bytes, unless one row has more.
const STATEMENT_KEYS_MAX: usize = 128;
const STATEMENT_BYTES_MAX: usize = 4 << 20;
/// Of each row, besides its bytes: its place in the statement, and how long its parts are.
const ROW_OVERHEAD_BYTES: usize = 128;

const ADD_EVENTS: &str = "INSERT INTO weir_events (id, at, body) VALUES (?, ?, ?)";
const NOTE: &str =
    "INSERT INTO weir_versions (`key`, digest, version, content_type, content_encoding, expires) VALUES ";
const NOTE_ROW: &str = "(?, ?, ?, ?, ?, ?)";
const NOTE_OVER: &str = " ON DUPLICATE KEY UPDATE digest = VALUES(digest), version = VALUES(version),
    content_type = VALUES(content_type), content_encoding = VALUES(content_encoding), expires = VALUES(expires)";
const FORGET: &str = "DELETE FROM weir_versions WHERE `key`";
// Only what was seen: a write may have come between.
const FORGET_EXPIRED: &str = "DELETE FROM weir_versions WHERE `key` = ? AND version = ? AND expires <= ?";

pub(super) struct UserTableSession {
    pub(super) base: MysqlSession,
    pub(super) table: Arc<UserTable<Statements>>,
    pub(super) seen: Seen,
}

impl UserTableSession {
    /// Removes what is kept of values that others have removed, once their lifetimes have ended: what others write later has no
    /// lifetime, also if it is the same value again.
    async fn forget_expired(&mut self, listing: &Listing) -> Result<(), Error> {
        let UserTableSession { base, table, .. } = self;
        let (now, list) = (listing.now.0 as i64, in_limits(&table.statements.list_forgotten));
        let found = base.ask::<(Vec<u8>, i64)>(&list, (now, FORGOTTEN_AT_ONCE)).await;
        let found = found.map_err(|failure| failure.of(&base.shown, Step::Read))?;
        if found.is_empty() {
            return Ok(());
        }
        let forget = async {
            base.begin().await?;
            for (key, version) in found {
                base.count(FORGET_EXPIRED, (key, version, now)).await?;
            }
            Ok::<_, Failure>(())
        };
        let forgotten = forget.await;
        base.end(forgotten, Some(Vec::new())).await
    }

    async fn write_now(
        &mut self,
        writes: &[Write],
        events: Option<&EventBlock>,
    ) -> Result<Vec<Found>, Error> {
        if writes.is_empty() && events.is_none() {
            return Ok(Vec::new());
        }
        let of_events = events.map(|block| block.body.len());
        self.base.check_fit(writes.iter().map(Write::bytes).chain(of_events).max().unwrap_or_default())?;
        self.base.limit_lock_wait().await?;
        let changes = writes.iter().map(Traced::by_any_version).collect();
        let done = match self.transact(writes, events).await {
            Ok(found) => self.base.commit(Some(changes)).await.map(|()| found),
            Err(Failure::Database(Meaning::Unfit, why)) => {
                Err(refused_by(&self.table.shown, &why).of(&self.base.shown, Step::Write))
            }
            Err(failure) => Err(self.base.write_failed(failure)),
        };
        self.base.end_failed(done).await
    }

    /// Everything but the commit.
    async fn transact(
        &mut self,
        writes: &[Write],
        events: Option<&EventBlock>,
    ) -> Result<Vec<Found>, Failure> {
        let table = Arc::clone(&self.table);
        let Statements { look, replace, delete, key, .. } = &table.statements;
        self.base.begin().await?;
        if let Some(EventBlock { id, at, body }) = events {
            self.base.count(ADD_EVENTS, (*id, at.0, &**body)).await?;
        }
        let mut keys: Vec<&Key> = self.seen.keys().chain(writes.iter().map(|write| &write.key)).collect();
        // Always in the same order.
        keys.sort_unstable();
        keys.dedup();
        let mut there: HashMap<Vec<u8>, Option<Vec<u8>>> = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(STATEMENT_KEYS_MAX) {
            let look = over(key, look, keys.len()) + " FOR UPDATE";
            there.extend(
                self.base.ask::<(Vec<u8>, Option<Vec<u8>>)>(&look, values(keys.iter().copied())).await?,
            );
        }
        let is_as_seen =
            |key: &Key| self.seen.is_as(key, there.get(key.as_bytes()).and_then(Option::as_deref));
        if !self.seen.keys().all(is_as_seen) {
            return Err(changed_since());
        }
        let is_there = |key: &Key| there.contains_key(key.as_bytes());
        let puts = writes.iter().filter_map(|write| Some((write, write.row()?)));
        let (old, new): (Vec<_>, Vec<_>) = puts.partition(|(write, _)| is_there(&write.key));
        self.put(&new, "").await.map_err(|failure| match failure {
            // By its own means, another program made one of them.
            Failure::Database(Meaning::Unfit, why) if why.ends_with("(1062)") => changed_since(),
            other => other,
        })?;
        self.put(&old, replace).await?;
        let gone = writes.iter().filter(|write| matches!(write.change, Change::Delete));
        let gone: Vec<&Key> = gone.map(|write| &write.key).collect();
        // Of no others: a collation may take them as equal to a key that is there.
        let removed: Vec<&Key> = gone.iter().copied().filter(|key| is_there(key)).collect();
        for keys in removed.chunks(STATEMENT_KEYS_MAX) {
            let delete = over(key, delete, keys.len());
            self.base.count(&delete, values(keys.iter().copied())).await?;
        }
        for keys in gone.chunks(STATEMENT_KEYS_MAX) {
            let forget = over("?", FORGET, keys.len());
            self.base.count(&forget, values(keys.iter().copied())).await?;
        }
        let has_value = |write: &Write| there.get(write.key.as_bytes()).is_some_and(Option::is_some);
        Ok(writes.iter().map(|write| Found::present(has_value(write))).collect())
    }

    /// Writes rows that are all there, or all not, and what belongs to them.
    async fn put(&mut self, rows: &[(&Write, &Row)], over: &str) -> Result<(), Failure> {
        let mut rest = rows;
        while !rest.is_empty() {
            // The server ends a connection that sends a longer packet.
            let most = STATEMENT_BYTES_MAX.min(self.base.packet_bytes_max.saturating_sub(OVERHEAD_BYTES));
            let mut bytes = 0;
            let fit = rest.iter().take(STATEMENT_KEYS_MAX).take_while(|(write, row)| {
                let is_first = bytes == 0;
                bytes += write.key.as_bytes().len() + row.bytes() + ROW_OVERHEAD_BYTES;
                is_first || bytes <= most
            });
            let (now, later) = rest.split_at(fit.count());
            rest = later;
            let statement = |start: &str, row: &str, over: &str| {
                format!("{start}{}{over}", vec![row; now.len()].join(", "))
            };
            let statements = &self.table.statements;
            let insert = statement(&statements.insert, &statements.insert_row, over);
            let values = now.iter().flat_map(|(write, row)| {
                [Value::Bytes(write.key.as_bytes().to_vec()), Value::Bytes(row.value().to_vec())]
            });
            self.base.count(&insert, values.collect::<Vec<_>>()).await?;
            let values = now.iter().flat_map(|(write, row)| {
                let attributes = row.attributes();
                [
                    Value::Bytes(write.key.as_bytes().to_vec()),
                    Value::Bytes(digest(row.value())),
                    Value::Int(write.version.0 as i64),
                    Value::Bytes(attributes.content_type.into()),
                    Value::Bytes(attributes.content_encoding.into()),
                    attributes.expires.map_or(Value::NULL, |at| Value::Int(at.0 as i64)),
                ]
            });
            let note = statement(NOTE, NOTE_ROW, NOTE_OVER);
            self.base.count(&note, values.collect::<Vec<_>>()).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Session for UserTableSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        let UserTableSession { base, table, seen } = self;
        table.check(keys.iter().map(|key| (key, None)))?;
        let Statements { read, key, .. } = &table.statements;
        let statement = |length| over(key, read, length);
        let rows = base.read_by(keys, STATEMENT_KEYS_MAX, statement).await;
        let rows = rows.map_err(|failure| failure.of(&base.shown, Step::Read))?;
        seen.note(keys, &rows);
        Ok(rows)
    }

    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64> {
        self.table.check(keys.iter().map(|key| (key, None)))?;
        let Statements { value_bytes, key, .. } = &self.table.statements;
        self.base.value_bytes_by(keys, |length| over(key, value_bytes, length)).await
    }

    fn begin_decision(&mut self, is_part: bool, by: &[Key]) {
        self.base.begin_decision(is_part, by);
        self.seen.begin(by);
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        self.table.check(writes.iter().map(|write| (&write.key, write.row())))?;
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
        // Those that have expired come in any order.
        if listing.expired {
            self.forget_expired(listing).await?;
        } else if self.table.key.kind != Type::Bytes {
            return Err(no_order(&self.table.key, "varbinary"));
        }
        let Statements { list, list_expired, .. } = &self.table.statements;
        let rows = self.base.list_by(listing, list, list_expired).await;
        rows.map_err(|failure| failure.of(&self.base.shown, Step::Read))
    }

    async fn clear(&mut self) -> Answer<()> {
        let versions = format!("DELETE FROM {VERSIONS} WHERE `key` <> ''");
        let both = format!("{versions}; DELETE FROM weir_events; DELETE FROM {}", self.table.table);
        self.base.clear_by(&both).await
    }
}
