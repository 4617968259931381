//! Reads and writes of single keys.

use crate::VERSION_STAYS;
use crate::config::Reads;
use crate::failure::{Failed, Meaning};
use async_trait::async_trait;
use kv::{Attributes, Change, Clock, Key, Row, Timestamp, Version, Write};
use scylla::client::session::Session as Driver;
use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row as CqlRow};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use store::{Answer, Conflicts, Error, EventBlock, Found, Kind, Listed, Listing, Session};

/// A row that never ends.
const NEVER: i64 = i64::MAX;
/// What ends later is left to the rows' own times: the engine takes 20 years at most.
const TTL_MAX: u64 = 600_000_000;
/// The engine removes a value so much later than it ends: the clocks of nodes and servers differ.
const TTL_MARGIN: Duration = Duration::from_secs(60);
/// The engine refuses a TTL that ends later, in seconds since 1970, if its files have a format of Cassandra 4: those hold no end after
/// 2038-01-19. Five days earlier, as the clocks of nodes and servers differ.
const TTL_END_MAX: u64 = 2_147_000_000;

/// How often a row is asked whether a statement was applied.
const TRIES_MAX: usize = 4;

const READ: &str =
    "SELECT version, expires, content_type, content_encoding, value FROM weir_rows WHERE key = ?";

/// The statements that are prepared once. A write has two forms: one where something is thought to be there, which must be older and
/// live, and one where it is known what is there.
pub(crate) struct Statements {
    read: PreparedStatement,
    /// For what decides a write.
    read_serial: PreparedStatement,
    put: Forms,
    /// With a TTL for the value and a longer one for the version.
    put_for: Forms,
    delete: Forms,
}

struct Forms {
    if_older: PreparedStatement,
    if_same: PreparedStatement,
}

impl Statements {
    pub(crate) async fn prepare(driver: &Driver, reads: Reads) -> Result<Statements, Failed> {
        let read = async |consistency: Consistency| {
            let mut read = driver.prepare(READ).await?;
            read.set_consistency(consistency);
            read.set_is_idempotent(true);
            Ok::<_, Failed>(read)
        };
        let write = async |condition: &str, text: &str| {
            let mut write = driver.prepare(text.replace("CONDITION", condition)).await?;
            write.set_serial_consistency(Some(SerialConsistency::Serial));
            write.set_consistency(Consistency::Quorum);
            Ok::<_, Failed>(write)
        };
        let forms = async |text: &str| {
            Ok::<_, Failed>(Forms {
                if_older: write("version < ? AND expires > ?", text).await?,
                if_same: write("version = ? AND expires = ?", text).await?,
            })
        };
        Ok(Statements {
            read: read(reads.consistency()).await?,
            read_serial: read(Consistency::Serial).await?,
            put: forms(
                "UPDATE weir_rows SET version = ?, expires = ?, content_type = ?, content_encoding = ?, value = ?
                WHERE key = ? IF CONDITION",
            )
            .await?,
            put_for: forms(
                "BEGIN BATCH
                UPDATE weir_rows USING TTL ? SET version = ?, expires = ? WHERE key = ? IF CONDITION;
                UPDATE weir_rows USING TTL ? SET content_type = ?, content_encoding = ?, value = ? WHERE key = ?;
                APPLY BATCH",
            )
            .await?,
            delete: forms(
                "UPDATE weir_rows USING TTL ? SET version = ?, expires = null, content_type = null,
                content_encoding = null, value = null WHERE key = ? IF CONDITION",
            )
            .await?,
        })
    }
}

impl Forms {
    /// The form that has this condition, and its two values.
    fn with(&self, condition: Condition, version: i64) -> (&PreparedStatement, Option<i64>, Option<i64>) {
        match condition {
            Condition::Older(now) => (&self.if_older, Some(version), Some(now)),
            Condition::Same(seen) => (&self.if_same, seen.version, seen.expires),
        }
    }
}

/// Version, end, content type, content encoding, value.
type Columns = (Option<i64>, Option<i64>, Option<String>, Option<String>, Option<Vec<u8>>);

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// `None`: there is not even the version of a row that is gone.
    version: Option<i64>,
    /// When the row ends; `None` if it was removed.
    expires: Option<i64>,
}

impl Known {
    fn is_live(&self, now: i64) -> bool {
        self.expires.is_some_and(|at| at > now)
    }
}

/// The condition of a write.
#[derive(Clone, Copy)]
enum Condition {
    /// There is a row, it is older, and it lives at this time.
    Older(i64),
    /// What is there is this, or nothing. A touch changes the end alone.
    Same(Known),
}

/// What all sessions share.
pub(crate) struct Connected {
    pub(crate) driver: Driver,
    pub(crate) statements: Statements,
    /// The cluster's.
    pub(crate) clock: Arc<Clock>,
    pub(crate) shown: Arc<str>,
    pub(crate) conflicts: Arc<Conflicts>,
}

pub(crate) struct CassandraSession {
    pub(crate) connected: Arc<Connected>,
    /// What the next write is decided by, once that has begun.
    pub(crate) seen: Option<HashMap<Key, Known>>,
}

impl CassandraSession {
    async fn ask(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, Failed> {
        let found = self.connected.driver.execute_unpaged(statement, values).await?;
        found.into_rows_result().map_err(|error| Failed::odd(&error))
    }

    /// What is there; all of it is empty where nothing is.
    async fn columns(&self, statement: &PreparedStatement, key: &Key) -> Result<Columns, Failed> {
        let rows = self.ask(statement, (key.as_bytes(),)).await?;
        let row = rows.maybe_first_row::<Columns>().map_err(|error| Failed::odd(&error))?;
        Ok(row.unwrap_or_default())
    }

    async fn read_one(&mut self, key: &Key) -> Result<Option<Row>, Error> {
        let decides = self.seen.is_some();
        let statement =
            if decides { &self.connected.statements.read_serial } else { &self.connected.statements.read };
        let found = self.columns(statement, key).await;
        let (version, expires, content_type, content_encoding, value) =
            found.map_err(|Failed { cause, .. }| {
                Error::new(
                    Kind::Unavailable,
                    format!("the store {} was not read: {cause}", self.connected.shown),
                )
            })?;
        if let Some(seen) = &mut self.seen {
            seen.insert(key.clone(), Known { version, expires });
        }
        let Some(version) = version else { return Ok(None) };
        let (expires, value) = match (expires, value) {
            (Some(NEVER), Some(value)) => (None, value),
            (Some(at), Some(value)) => (Some(Timestamp(at as u64)), value),
            // It is gone, and its version decides yet. Zero would be no end.
            _ if decides => (Some(Timestamp(1)), Vec::new()),
            _ => return Ok(None),
        };
        let attributes = Attributes {
            content_type: content_type.as_deref().unwrap_or_default(),
            content_encoding: content_encoding.as_deref().unwrap_or_default(),
            expires,
        };
        Ok(Some(Row::with(key, attributes, &value, Version(version as u64))))
    }

    /// Whether it was applied; else what is there instead.
    async fn apply(&self, write: &Write, condition: Condition) -> Result<Result<(), Known>, Failed> {
        self.connected.conflicts.statements.add(1);
        let (key, version) = (write.key.as_bytes(), write.version.0 as i64);
        let stays = VERSION_STAYS.as_secs() as i32;
        let rows = match &write.change {
            Change::Delete => {
                let (statement, than, end) = self.connected.statements.delete.with(condition, version);
                self.ask(statement, (stays, version, key, than, end)).await?
            }
            Change::Put(row) => {
                let Attributes { content_type, content_encoding, expires } = row.attributes();
                let (kind, coding) = (content_type, content_encoding);
                let (until, value) = (ending(row), row.value());
                match expires.and_then(|at| ttl(at, self.connected.clock.now())) {
                    None => {
                        let (statement, than, end) = self.connected.statements.put.with(condition, version);
                        let values = (version, until, kind, coding, value, key, than, end);
                        self.ask(statement, values).await?
                    }
                    Some(left) => {
                        let (statement, than, end) =
                            self.connected.statements.put_for.with(condition, version);
                        let (left, stays) = (left as i32, left as i32 + stays);
                        let values = (stays, version, until, key, than, end, left, kind, coding, value, key);
                        self.ask(statement, values).await?
                    }
                }
            }
        };
        outcome(&rows)
    }

    /// The same, and if nobody says whether it was applied, the row is asked, and what it was when the write was sent again is given.
    async fn apply_for_sure(
        &self,
        write: &Write,
        condition: Condition,
    ) -> Result<Result<Option<Known>, Known>, Failed> {
        match self.apply(write, condition).await {
            Err(failed) if failed.meaning == Meaning::Unknown => self.settle(write, condition, failed).await,
            answered => {
                let answered = answered?;
                // The blind one is an attempt: nothing may be there to replace.
                if answered.is_err() && matches!(condition, Condition::Same(_)) {
                    self.connected.conflicts.lost.add(1);
                }
                Ok(answered.map(|()| None))
            }
        }
    }

    /// Whether a statement was applied of which nobody knows. No version is given twice: the row has this one if it was. If the row's is
    /// lower, it was not, and it is tried again where only what is there now can be replaced: then what was sent before comes too late.
    /// What has a greater version may have replaced this write, or have come before it: that stays unknown.
    async fn settle(
        &self,
        write: &Write,
        mut condition: Condition,
        unknown: Failed,
    ) -> Result<Result<Option<Known>, Known>, Failed> {
        let is_blind = matches!(condition, Condition::Older(_));
        // Whether a row that has the version may have taken the place of nothing: then nobody knows whether the key was there.
        let mut may_be_new = false;
        let lost = || self.connected.conflicts.lost.add(1);
        lost();
        for _ in 0..TRIES_MAX {
            // Reads, too, get into the way of each other.
            let Ok(columns) = self.columns(&self.connected.statements.read_serial, &write.key).await else {
                continue;
            };
            let known = Known { version: columns.0, expires: columns.1 };
            match known.version.cmp(&Some(write.version.0 as i64)) {
                Ordering::Equal if is_of(&columns, &write.change) && !may_be_new => return Ok(Ok(None)),
                Ordering::Less => {}
                _ => break,
            }
            condition = match condition {
                // What it was to replace never comes back.
                Condition::Same(seen) if !is_blind && known.version != seen.version => return Ok(Err(known)),
                // The same version may get its end again, and then what was sent before takes effect.
                Condition::Same(seen) if !is_blind && known != seen => break,
                _ => Condition::Same(known),
            };
            match self.apply(write, condition).await {
                Ok(Ok(())) => return Ok(Ok(Some(known))),
                Ok(Err(_)) => lost(),
                Err(failed) if failed.meaning == Meaning::Unknown => {
                    lost();
                    may_be_new |= is_blind && !known.is_live(self.connected.clock.now().0 as i64);
                }
                Err(_) => break,
            }
        }
        Err(unknown)
    }

    /// Puts a row in the place of what is there, or removes it.
    async fn write_blind(&self, write: &Write) -> Result<Result<Found, Known>, Failed> {
        let now = self.connected.clock.now().0 as i64;
        let version = write.version.0 as i64;
        let known = match self.apply_for_sure(write, Condition::Older(now)).await? {
            Ok(replaced) => return Ok(Ok(Found::present(replaced.is_none_or(|known| known.is_live(now))))),
            Err(known) => known,
        };
        if !known.is_live(now) && write.change == Change::Delete {
            return Ok(Ok(Found::Absent));
        }
        if known.version.is_some_and(|known| known >= version) {
            return Ok(Ok(Found::Newer));
        }
        // Nothing is there, or only the version of what is gone.
        let applied = self.apply_for_sure(write, Condition::Same(known)).await?;
        Ok(applied.map(|_| Found::Absent))
    }

    /// Writes what was decided by `known`, if that is still so.
    async fn write_decided(&self, write: &Write, known: Known) -> Result<Result<Found, Known>, Failed> {
        let is_there = known.expires.is_some();
        if !is_there && write.change == Change::Delete {
            return Ok(Ok(Found::Absent));
        }
        let applied = self.apply_for_sure(write, Condition::Same(known)).await?;
        Ok(applied.map(|_| Found::present(is_there)))
    }

    async fn write_one(&self, write: &Write) -> Result<Found, Error> {
        let seen = self.seen.as_ref().and_then(|seen| seen.get(&write.key));
        let written = match seen {
            Some(known) => self.write_decided(write, *known).await,
            None => self.write_blind(write).await,
        };
        let shown = &self.connected.shown;
        match written {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(_)) => {
                Err(Error::new(Kind::Retry, format!("another server wrote a key of {shown} meanwhile")))
            }
            Err(Failed { meaning, cause }) => {
                let (kind, what) = match meaning {
                    Meaning::NotBegun => (Kind::Unavailable, "was not written"),
                    Meaning::Refused => (Kind::Rejected, "refused a write"),
                    Meaning::Unknown => (Kind::Unknown, "may or may not have written"),
                };
                Err(Error::new(kind, format!("the store {shown} {what}: {cause}")))
            }
        }
    }
}

/// The engine's own TTL for a value, in seconds; `None` if the row's own time is all that ends it.
fn ttl(expires: Timestamp, now: Timestamp) -> Option<u64> {
    let left = (expires.since(now) + TTL_MARGIN).as_secs();
    let end = now.after(Duration::from_secs(left) + VERSION_STAYS).0 / 1000;
    (left < TTL_MAX && end <= TTL_END_MAX).then_some(left)
}

/// The column `expires` of a row.
fn ending(row: &Row) -> i64 {
    row.attributes().expires.map_or(NEVER, |at| at.0.min(NEVER as u64) as i64)
}

/// Whether a change leaves this behind.
fn is_of((_, expires, content_type, content_encoding, value): &Columns, change: &Change) -> bool {
    let Change::Put(row) = change else { return expires.is_none() };
    let of = row.attributes();
    let same = |text: &Option<String>, of: &str| text.as_deref().unwrap_or_default() == of;
    // A touch keeps the version.
    *expires == Some(ending(row))
        && same(content_type, of.content_type)
        && same(content_encoding, of.content_encoding)
        && value.as_deref() == Some(row.value())
}

/// What the answer to a conditional statement says. Its columns are those of the condition, and there are none without a row.
fn outcome(rows: &QueryRowsResult) -> Result<Result<(), Known>, Failed> {
    let row = rows.first_row::<CqlRow>().map_err(|error| Failed::odd(&error))?;
    let column = |name: &str| {
        let (index, _) = rows.column_specs().get_by_name(name)?;
        row.columns.get(index)?.as_ref()
    };
    let number = |name: &str| column(name).and_then(CqlValue::as_bigint);
    match column("[applied]").and_then(CqlValue::as_boolean) {
        Some(true) => Ok(Ok(())),
        Some(false) => Ok(Err(Known { version: number("version"), expires: number("expires") })),
        None => Err(Failed::odd(&"the answer does not say whether it was applied")),
    }
}

#[async_trait]
impl Session for CassandraSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            rows.push(self.read_one(key).await?);
        }
        Ok(rows)
    }

    /// Of atomic batches, which it lacks.
    async fn value_bytes(&mut self, _keys: &[Key]) -> Answer<u64> {
        Ok(0)
    }

    fn begin_decision(&mut self, _is_part: bool, _by: &[Key]) {
        self.seen = Some(HashMap::new());
    }

    async fn write_with(&mut self, writes: &[Write], _events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        let mut found = Vec::with_capacity(writes.len());
        for write in writes {
            let written = self.write_one(write).await;
            // The error holds for all of them, and some were written.
            found.push(written.map_err(|error| match found.is_empty() {
                true => error,
                false => Error::new(Kind::Unknown, error.to_string()),
            })?);
        }
        self.seen = None;
        Ok(found)
    }

    async fn list(&mut self, _listing: &Listing) -> Answer<Vec<Listed>> {
        Err(Error::new(Kind::Unsupported, "it cannot list"))
    }

    async fn clear(&mut self) -> Answer<()> {
        Err(Error::new(Kind::Unsupported, "it cannot be cleared"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::Timestamp;

    #[test]
    fn no_ttl_ends_later_than_the_engine_takes() {
        let at = |second: u64| Timestamp(second * 1000);
        let (now, stays) = (at(1_800_000_000), VERSION_STAYS.as_secs());
        assert_eq!(ttl(at(1_800_000_010), now), Some(70));
        assert_eq!(ttl(at(1_799_999_999), now), Some(60));
        let last = TTL_END_MAX - stays - 60;
        assert_eq!(ttl(at(last), now), Some(last - 1_800_000_000 + 60));
        assert_eq!(ttl(at(last + 1), now), None);
        assert_eq!(ttl(Timestamp(u64::MAX), now), None);
        // 20 years, from a time that is early enough.
        assert_eq!(ttl(at(TTL_MAX - 61), at(0)), Some(TTL_MAX - 1));
        assert_eq!(ttl(at(TTL_MAX - 60), at(0)), None);
    }

    #[test]
    fn a_touch_whose_outcome_is_unknown_is_not_taken_for_made_by_its_version_and_value() {
        let key = Key::new(b"a").unwrap();
        let row =
            |expires| Row::with(&key, Attributes { expires, ..Attributes::default() }, b"value", Version(7));
        let columns =
            |row: &Row| (Some(7), Some(ending(row)), Some(String::new()), None, Some(row.value().to_vec()));
        let [early, late, never] = [Some(Timestamp(5)), Some(Timestamp(9)), None].map(row);
        for (stored, asked) in [(&early, &late), (&early, &never), (&never, &late)] {
            assert!(is_of(&columns(stored), &Change::Put(stored.clone())));
            assert!(!is_of(&columns(stored), &Change::Put(asked.clone())));
        }
    }
}
