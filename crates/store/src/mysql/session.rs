//! A session with a MySQL or MariaDB server: reads, and one short transaction for each batch of writes.
//!
//! A transaction begins with the row that guards ownership; see the module above. Nothing it did has happened before
//! its commit, so only what was sent with a commit and is not answered leaves a doubt.

use super::super::{Answer, Error, EventBlock, Found, Kind, Listed, Listing, Session};
use super::commits::{Commits, Traced};
use super::script::{Answers, STATEMENT_KEYS_MAX, Script, begin};
use super::{EPOCH, of_another_type};
use crate::sql::{Failure, Meaning, Step, overtaken};
use async_trait::async_trait;
use kv::clock::boot_time;
use kv::{Attributes, Change, Key, Row, Timestamp, Version, Write};
use mysql_async::consts::StatusFlags;
use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, OkPacket, Params, Value, from_row_opt};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a statement may take. A store worker that waits longer waits for a server that is gone.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// The same of a list, which the server is to end: without an answer to anything else the session is over, and the lease with it.
/// MariaDB takes the first as a part of the statement, MySQL the second.
const LIST_LIMITS: [&str; 2] =
    ["/*M! SET STATEMENT max_statement_time = 10 FOR */ SELECT", " /*+ MAX_EXECUTION_TIME(10000) */"];

/// For how long after it was asked for the epoch a session takes that for the newest. The server of the next one waits longer before
/// it serves, unless this one has ended.
const EPOCH_LASTS: Duration = Duration::from_secs(1);

/// How long writes wait for locks, in seconds. Workers never wait for each other, so rows that stay locked are another client's, and
/// must not hold up the writes of all other keys.
pub(super) const LOCK_WAIT: &str = "2";
/// The same of a part of a write that timed out: not at all in MariaDB, as short as it can be in MySQL.
const LOCK_WAIT_AGAIN: &str = "1 /*M! - 1 */";

// With a long list the optimizer may think that reading the whole table is cheaper. It never is.
const READ: &str = "SELECT `key`, value, content_type, version, content_encoding, expires
    FROM weir_kv FORCE INDEX (PRIMARY) WHERE `key`";
const VALUE_BYTES: &str = "SELECT CAST(COALESCE(SUM(LENGTH(value)), 0) AS UNSIGNED)
    FROM weir_kv FORCE INDEX (PRIMARY) WHERE `key`";
const LIST: &str = "SELECT `key`, LENGTH(value), content_type, version, content_encoding, expires
    FROM weir_kv FORCE INDEX (PRIMARY)
    WHERE `key` >= ? AND `key` < ? AND (expires IS NULL OR expires > ?) ORDER BY `key` LIMIT ?";
const LIST_EXPIRED: &str = "SELECT `key`, LENGTH(value), content_type, version, content_encoding, expires
    FROM weir_kv FORCE INDEX (weir_kv_expires) WHERE expires <= ? LIMIT ?";
const EVENTS: &str = "SELECT id, at, body FROM weir_events WHERE id > ? ORDER BY id LIMIT 8192";
/// In parts: of all that has been left, as while no server ran, one statement might take longer than any may.
const TRIM_EVENTS: &str = "DELETE FROM weir_events WHERE id <= ? ORDER BY id LIMIT ?";
const TRIM_PART: u64 = 10_000;
/// Then lists and atomic batches have their turn. What is left goes with what is trimmed next.
const TRIM_MAX: Duration = Duration::from_secs(4);
const CLEAR: &str = "DELETE FROM weir_kv; DELETE FROM weir_events";

/// What a statement adds to the bytes of one row at most.
pub(super) const OVERHEAD_BYTES: usize = 1024;
/// More than there are lengths of lists, for each kind of statement.
pub(super) const PREPARED_MAX: usize = 80;

pub(super) struct MysqlSession {
    pub(super) shown: Arc<str>,
    pub(super) connection: Conn,
    /// Of the lease that it belongs to.
    pub(super) epoch: u64,
    /// When it last asked whether that is the newest, by [`boot_time`].
    pub(super) asked: Duration,
    /// Of the same lease.
    pub(super) commits: Arc<Commits>,
    /// The server's `max_allowed_packet`.
    pub(super) packet_bytes_max: usize,
    /// Whether a timeout of the database has cut this write short, or the one that it is a part of.
    pub(super) timed_out: bool,
    /// What was set last of [`LOCK_WAIT`] and [`LOCK_WAIT_AGAIN`].
    pub(super) lock_wait: &'static str,
    /// The table of the rows, for messages.
    pub(super) rows: String,
}

/// A row as it is read: key, value or its length, content type, version, content coding, end.
type Fields<V> = (Vec<u8>, V, Vec<u8>, i64, Vec<u8>, Option<i64>);

fn row_of<V>(key: &Key, value: &[u8], (_, _, kind, version, encoding, expires): &Fields<V>) -> Row {
    let attributes = Attributes {
        content_type: std::str::from_utf8(kind).unwrap_or_default(),
        content_encoding: std::str::from_utf8(encoding).unwrap_or_default(),
        expires: expires.map(|at| Timestamp(at as u64)),
    };
    Row::with(key, attributes, value, Version(*version as u64))
}

impl MysqlSession {
    /// Reads the rows under `keys`, at most `keys_max` with one statement; `statement` makes one for a list of that length.
    pub(super) async fn read_by(
        &mut self,
        keys: &[Key],
        keys_max: usize,
        statement: impl Fn(usize) -> String,
    ) -> Result<Vec<Option<Row>>, Failure> {
        let mut rows = HashMap::with_capacity(keys.len());
        for keys in keys.chunks(keys_max) {
            let found: Vec<Fields<Vec<u8>>> = self.ask(&statement(keys.len()), values(keys)).await?;
            rows.extend(found.into_iter().map(|mut fields| (std::mem::take(&mut fields.0), fields)));
        }
        let row = |key: &Key| {
            let fields = rows.remove(key.as_bytes())?;
            Some(row_of(key, &fields.1, &fields))
        };
        let rows: Vec<Option<Row>> = keys.iter().map(row).collect();
        let versions = rows.iter().map(|row| row.as_ref().map(Row::version));
        self.outlast(&keys.iter().zip(versions).collect::<Vec<_>>(), false).await?;
        Ok(rows)
    }

    /// What [`Session::value_bytes`] gives, with statements as those of [`MysqlSession::read_by`].
    pub(super) async fn value_bytes_by(
        &mut self,
        keys: &[Key],
        statement: impl Fn(usize) -> String,
    ) -> Answer<u64> {
        let mut bytes = 0;
        for keys in keys.chunks(STATEMENT_KEYS_MAX) {
            let sums = self.ask::<(u64,)>(&statement(keys.len()), values(keys)).await;
            let sums = sums.map_err(|failure| failure.of(&self.shown, Step::Read))?;
            bytes += sums.iter().map(|(sum,)| sum).sum::<u64>();
        }
        Ok(bytes)
    }

    /// Lists with the statement for rows that have not expired, or with that for those that have.
    pub(super) async fn list_by(
        &mut self,
        listing: &Listing,
        list: &str,
        list_expired: &str,
    ) -> Result<Vec<Listed>, Failure> {
        let (now, limit) = (listing.now.0 as i64, listing.limit as u64);
        let found: Vec<Fields<u64>> = if listing.expired {
            self.ask(&in_limits(list_expired), (now, limit)).await?
        } else {
            self.ask(&in_limits(list), (listing.from.as_slice(), listing.end(), now, limit)).await?
        };
        let listed = |fields: Fields<u64>| {
            // One that is no key of weir's is not listed.
            let key = Key::new(&fields.0)?;
            Some(Listed { row: row_of(&key, b"", &fields), value_bytes: fields.1 })
        };
        let rows: Vec<Listed> = found.into_iter().filter_map(listed).collect();
        let keys: Vec<Key> = rows.iter().filter_map(|listed| Key::new(listed.row.key())).collect();
        let versions = rows.iter().map(|listed| Some(listed.row.version()));
        self.outlast(&keys.iter().zip(versions).collect::<Vec<_>>(), true).await?;
        Ok(rows)
    }

    /// Waits for the commits that a read may have seen; see [`Commits::outlast`]. Those of a later lease are not known, so there must
    /// not be one.
    async fn outlast(&mut self, found: &[(&Key, Option<Version>)], is_list: bool) -> Result<(), Failure> {
        if !self.commits.outlast(found, is_list).await {
            let why = "a commit that this read may have seen was lost".to_owned();
            return Err(Failure::Database(Meaning::Ended, why));
        }
        let now = boot_time();
        if now.saturating_sub(self.asked) > EPOCH_LASTS {
            let epoch = self.ask::<i64>(EPOCH, ()).await?;
            self.check(&epoch)?;
            self.asked = now;
        }
        Ok(())
    }

    /// Says that the epoch in the store is that of this lease.
    fn check(&self, epoch: &[i64]) -> Result<(), Failure> {
        if epoch == [self.epoch as i64] { Ok(()) } else { Err(overtaken(&self.shown).into()) }
    }

    /// Sets how long a write waits for locks. If that fails, the connection is of no more use, and nothing was written.
    pub(super) async fn limit_lock_wait(&mut self) -> Result<(), Error> {
        let wanted = if self.timed_out { LOCK_WAIT_AGAIN } else { LOCK_WAIT };
        if self.lock_wait != wanted {
            let set =
                format!("SET SESSION innodb_lock_wait_timeout = {wanted}, lock_wait_timeout = {wanted}");
            let set = in_time(self.connection.query_drop(set)).await;
            set.map_err(|failure| failure.and_ended().of(&self.shown, Step::Write))?;
            self.lock_wait = wanted;
        }
        Ok(())
    }

    /// What it means that a write failed before its commit.
    pub(super) fn write_failed(&mut self, failure: Failure) -> Error {
        let failure = without_table(failure);
        self.timed_out |= matches!(failure, Failure::Database(Meaning::TimedOut, _));
        let failure =
            if failure.to_string().ends_with("(1205)") { failure.locked(&self.rows) } else { failure };
        failure.of(&self.shown, Step::Write)
    }

    /// Ends the transaction of writes that failed, if the connection goes on.
    pub(super) async fn end_failed<T>(&mut self, done: Result<T, Error>) -> Result<T, Error> {
        match done {
            // The next transaction would commit what this one left: it ends here, or with its connection.
            Err(error) if !error.kind().ends_session() => {
                let ended = in_time(self.connection.query_drop("ROLLBACK")).await;
                ended.map_err(|failure| failure.and_ended().of(&self.shown, Step::Write))?;
                Err(error)
            }
            done => done,
        }
    }

    async fn transact(&mut self, script: Script<'_>, writes: &[Write]) -> Result<Vec<Found>, Error> {
        let Answers { there, changed } = self.run(script, writes).await?;
        if let [write] = writes {
            // The count of one row says what a look would: 1 inserted, 2 replaced, 0 left as it is. A write of the same version
            // has another end than the row.
            return Ok(vec![match (&write.change, changed) {
                (Change::Put(_), 0) => Found::Newer,
                (Change::Put(_), changed) => Found::present(changed == 2),
                (Change::Delete, changed) => Found::present(changed > 0),
            }]);
        }
        // It is done.
        let unknown = |failure: Failure| failure.and_ended().of(&self.shown, Step::Commit);
        let there = there.into_iter().map(from_row_opt::<(Vec<u8>, i64)>).collect::<Result<_, _>>();
        let there: HashMap<_, _> = there.map_err(|error| unknown(of_another_type(error)))?;
        let found: Vec<Found> = writes
            .iter()
            .map(|write| match (there.get(write.key.as_bytes()), &write.change) {
                (Some(version), Change::Put(_)) if *version > write.version.0 as i64 => Found::Newer,
                (version, _) => Found::present(version.is_some()),
            })
            .collect();
        let changes = |(write, found): (&Write, &Found)| match (&write.change, found) {
            (_, Found::Newer) | (Change::Delete, Found::Absent) => 0,
            (Change::Put(_), Found::Absent) | (Change::Delete, Found::Present) => 1,
            (Change::Put(_), Found::Present) => 2,
        };
        let expected: u64 = writes.iter().zip(&found).map(changes).sum();
        if changed != expected {
            // The look holds no locks, so that workers cannot hold each other up.
            let why = "something else writes its table".to_owned();
            return Err(unknown(Failure::Database(Meaning::Ended, why)));
        }
        Ok(found)
    }

    /// Sends a transaction with its commit.
    async fn run(&mut self, script: Script<'_>, writes: &[Write]) -> Result<Answers, Error> {
        let (now, mut answers) = (boot_time(), Answers::default());
        let commit = self.commits.begin(Some(writes.iter().map(Traced::of).collect()));
        for packet in script {
            let mut answered = 0;
            let sent = in_time(packet.send(&mut self.connection, &mut answered, &mut answers)).await;
            let Err(failure) = sent else { continue };
            let has_ended = matches!(failure, Failure::Database(Meaning::Ended, _));
            let error = if packet.is_last && has_ended || packet.commits_after(answered) {
                self.commit_failed(failure)
            } else {
                let is_overtaken = packet.begins_after(answered);
                let what = if is_overtaken { overtaken(&self.shown) } else { Error::newer(Kind::Rejected) };
                self.write_failed(out_of_range_as(what, failure))
            };
            if error.kind() != Kind::Unknown {
                commit.end();
            }
            return Err(error);
        }
        // Whoever answers fewer statements than were sent has not answered the commit.
        let is_open = |ok: &OkPacket<'_>| ok.status_flags().contains(StatusFlags::SERVER_STATUS_IN_TRANS);
        if self.connection.last_ok_packet().is_none_or(is_open) {
            return Err(self.commit_failed(Failure::Database(Meaning::Ended, "there was no answer".into())));
        }
        commit.end();
        self.asked = now;
        Ok(answers)
    }

    /// Begins a transaction that no later lease can come before.
    pub(super) async fn begin(&mut self) -> Result<(), Failure> {
        let now = boot_time();
        let begun = in_time(self.connection.query_drop(begin(self.epoch).join(";"))).await;
        begun.map_err(|failure| out_of_range_as(overtaken(&self.shown), failure))?;
        self.asked = now;
        Ok(())
    }

    /// Runs a statement; its rows.
    pub(super) async fn ask<T: FromRow + Send + 'static>(
        &mut self,
        statement: &str,
        values: impl Into<Params> + Send,
    ) -> Result<Vec<T>, Failure> {
        let rows = in_time(async {
            self.connection.exec_iter(statement, values).await?.try_collect_and_drop::<T>().await
        });
        let rows = rows.await.map_err(without_table)?;
        rows.into_iter().collect::<Result<_, _>>().map_err(of_another_type)
    }

    /// Runs a statement; how many rows it changed.
    pub(super) async fn count(
        &mut self,
        statement: &str,
        values: impl Into<Params> + Send,
    ) -> Result<u64, Failure> {
        let run = async {
            let answer = self.connection.exec_iter(statement, values).await?;
            let changed = answer.affected_rows();
            answer.drop_result().await?;
            Ok(changed)
        };
        in_time(run).await
    }

    /// Commits the transaction, which made these changes (`None`: of all keys).
    pub(super) async fn commit(&mut self, changes: Option<Vec<Traced>>) -> Result<(), Error> {
        let commit = self.commits.begin(changes);
        let done = in_time(self.connection.query_drop("COMMIT")).await;
        let done = done.map_err(|failure| self.commit_failed(failure));
        if !matches!(&done, Err(error) if error.kind() == Kind::Unknown) {
            commit.end();
        }
        done
    }

    fn commit_failed(&mut self, failure: Failure) -> Error {
        let failure = match failure {
            // It waited for a lock that keeps all commits back, as backups take it, and was rolled back.
            late @ Failure::Database(Meaning::TimedOut, _) if late.to_string().ends_with("(1205)") => {
                return self.write_failed(late);
            }
            known @ Failure::Database(Meaning::RolledBack | Meaning::ReadOnly, _) => known,
            // The outcome of any other failed commit is unknown.
            other => other.and_ended(),
        };
        failure.of(&self.shown, Step::Commit)
    }

    /// Ends the transaction in which this was done (`changes` as in [`MysqlSession::commit`]), or failed.
    pub(super) async fn end<T>(
        &mut self,
        done: Result<T, Failure>,
        changes: Option<Vec<Traced>>,
    ) -> Result<T, Error> {
        let done = match done {
            Ok(done) => self.commit(changes).await.map(|()| done),
            Err(failure) => Err(failure.of(&self.shown, Step::Write)),
        };
        self.end_failed(done).await
    }

    /// Runs these statements in one transaction.
    pub(super) async fn clear_by(&mut self, statements: &str) -> Result<(), Error> {
        let gone = async {
            self.begin().await?;
            // It takes its time where there are many rows. If the server is gone, the owner notices.
            Ok::<_, Failure>(self.connection.query_drop(statements).await?)
        };
        let gone = gone.await;
        self.end(gone, None).await
    }

    /// Whether so many bytes of one row fit into one packet: the server ends a connection that sends more.
    pub(super) fn check_fit(&self, bytes: usize) -> Result<(), Error> {
        if bytes + OVERHEAD_BYTES <= self.packet_bytes_max {
            return Ok(());
        }
        // Clients read it, so it names no host.
        let limit = self.packet_bytes_max;
        let message = format!(
            "the row is too large for the store: {bytes} bytes as SQL, and its max_allowed_packet is {limit}; raise it there"
        );
        Err(Error::new(Kind::Unfit, message))
    }
}

#[async_trait]
impl Session for MysqlSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        let rows = self.read_by(keys, STATEMENT_KEYS_MAX, |length| over("?", READ, length)).await;
        rows.map_err(|failure| failure.of(&self.shown, Step::Read))
    }

    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64> {
        self.value_bytes_by(keys, |length| over("?", VALUE_BYTES, length)).await
    }

    fn begin_decision(&mut self, is_part: bool, _by: &[Key]) {
        self.timed_out &= is_part;
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        if writes.is_empty() && events.is_none() {
            return Ok(Vec::new());
        }
        self.limit_lock_wait().await?;
        let script = Script::new(self.epoch, writes, events, self.packet_bytes_max);
        self.check_fit(script.row_bytes())?;
        let done = self.transact(script, writes).await;
        self.end_failed(done).await
    }

    async fn events(&mut self, behind: u64) -> Answer<Vec<EventBlock>> {
        let found = self.ask::<(u64, u64, Vec<u8>)>(EVENTS, (behind,)).await;
        let found = found.map_err(|failure| failure.of(&self.shown, Step::Read))?;
        let block =
            |(id, at, body): (u64, u64, Vec<u8>)| EventBlock { id, at: Timestamp(at), body: body.into() };
        Ok(found.into_iter().map(block).collect())
    }

    async fn trim_events(&mut self, until: u64) -> Answer<()> {
        let begun = boot_time();
        loop {
            let trimmed = async {
                self.begin().await?;
                self.count(TRIM_EVENTS, (until, TRIM_PART)).await
            };
            let trimmed = trimmed.await;
            let trimmed = self.end(trimmed, Some(Vec::new())).await?;
            if trimmed < TRIM_PART || boot_time().saturating_sub(begun) > TRIM_MAX {
                return Ok(());
            }
        }
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        let rows = self.list_by(listing, LIST, LIST_EXPIRED).await;
        rows.map_err(|failure| failure.of(&self.shown, Step::Read))
    }

    async fn clear(&mut self) -> Answer<()> {
        // Not TRUNCATE: that ends the transaction, and with it what keeps a later lease out.
        self.clear_by(CLEAR).await
    }
}

/// What it means that a sum is out of range, as those in [`begin`] and of a write that finds a newer row.
fn out_of_range_as(what: Error, failure: Failure) -> Failure {
    match failure {
        Failure::Database(_, why) if why.ends_with("(1690)") => what.into(),
        other => other,
    }
}

/// What `failure` means if a table of weir is missing: that is found out when the store is acquired.
fn without_table(failure: Failure) -> Failure {
    match failure {
        Failure::Database(_, ref why) if why.contains(".weir_") && why.ends_with("(1146)") => {
            failure.and_ended()
        }
        other => other,
    }
}

async fn in_time<T>(step: impl Future<Output = Result<T, mysql_async::Error>>) -> Result<T, Failure> {
    let too_late = |_| {
        let why = format!("it did not answer within {} s", ANSWER_MAX.as_secs());
        Failure::Database(Meaning::Ended, why)
    };
    Ok(tokio::time::timeout(ANSWER_MAX, step).await.map_err(too_late)??)
}

/// A list that does not take longer than one may.
pub(super) fn in_limits(list: &str) -> String {
    list.replacen("SELECT", &LIST_LIMITS.concat(), 1)
}

/// How long a list is made, so that there are few statements to prepare: 1, 2, 3, 4, 6, 8, 12, 16, … keys.
fn padded(length: usize) -> usize {
    let power = length.next_power_of_two();
    if length <= power / 4 * 3 { power / 4 * 3 } else { power }
}

/// `statement` over so many keys, each made by `key`.
pub(super) fn over(key: &str, statement: &str, keys: usize) -> String {
    format!("{statement} IN ({})", vec![key; padded(keys)].join(", "))
}

/// The keys as parameters of such a list; the last one again and again where the list is longer.
pub(super) fn values<'k>(keys: impl IntoIterator<Item = &'k Key>) -> Params {
    let mut values: Vec<Value> = keys.into_iter().map(|key| Value::Bytes(key.as_bytes().to_vec())).collect();
    if let Some(last) = values.last().cloned() {
        values.resize(padded(values.len()), last);
    }
    Params::Positional(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_have_few_lengths_and_are_never_too_short() {
        let lengths: std::collections::BTreeSet<usize> = (1..=STATEMENT_KEYS_MAX)
            .map(|length| {
                assert!(padded(length) >= length && 2 * padded(length) < 3 * length + 2, "{length}");
                padded(length)
            })
            .collect();
        assert_eq!(lengths.last(), Some(&STATEMENT_KEYS_MAX));
        // Of weir's table only reading; of others also looking, forgetting and deleting.
        assert!(lengths.len() * 4 < PREPARED_MAX, "{}", lengths.len());
    }
}
