//! What takes the store longer than a read or a write, and is done one at a time on a session of its own: lists, atomic batches, and
//! the removal of every row.

use super::events::Ticket;
use super::replies::answer_batch;
use super::worker::{RETRIES_MAX, Ran, Request};
use super::{Intent, Page, Reply, Shared, WorkerMeters, Written, held_up};
use crate::events::{self, EventKind, Record};
use crate::{Answer, Error, EventBlock, Found, Kind, Listed, Listing, Session};
use kv::{Change, Key, Precondition, Row, Version, Write};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use tokio::sync::RwLockWriteGuard;

/// A page of a list with values ends with so many bytes.
pub const LIST_BYTES_MAX: usize = 4 << 20;
/// So many rows a store is asked for first.
const LIST_ROWS_FIRST: usize = 4;
/// Then for so many that their values have about so many bytes.
const STATEMENT_BYTES_MAX: u64 = 64 << 20;
/// A page ends after that time, too. Other lists and atomic batches wait meanwhile.
pub const LIST_TIME_MAX: Duration = Duration::from_secs(2);
/// Most bytes of the rows that an atomic batch reads and replaces, unless it is one.
const ATOMIC_BYTES_MAX: usize = 64 << 20;
/// More rows are not read before it is known how large they are.
const UNASKED_ROWS_MAX: usize = 8;

pub(super) enum LongRequest {
    List { listing: Listing, with_values: bool, reply: Reply<Page> },
    Atomic { operations: Vec<AtomicOperation>, reply: Reply<AtomicOutcome> },
    Clear { reply: Reply<()> },
    TrimEvents { until: u64 },
}

/// A part of an atomic batch.
#[derive(Clone, Debug)]
pub struct AtomicOperation {
    /// Whose row.
    pub key: Key,
    /// What must hold of the key, after the operations before this one.
    pub condition: Precondition,
    /// What becomes of the row; `None`: it is only read.
    pub intent: Option<Intent>,
}

/// How an atomic batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtomicOutcome {
    /// All of it is durable; of each operation, the row that it read, or what was written.
    Applied(Vec<AtomicAnswer>),
    /// The condition of the operation with this index did not hold, and nothing was written; the key's version then.
    ConditionFailed(usize, Option<Version>),
}

/// What came of an operation of an atomic batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtomicAnswer {
    /// It read this row.
    Read(Option<Row>),
    /// It read a row that whoever asked has no room for; no store answers this.
    Dropped,
    /// It wrote; never [`Written::ConditionFailed`].
    Written(Written),
}

impl Request for LongRequest {
    const FLUSHES: bool = false;
    const ANSWER_BYTES_GUESS: usize = 0;
    // They are done one after the other: what waits for another one is not sent, and may be refused.
    const BATCH_REQUESTS_MAX: usize = 1;

    fn bytes(&self) -> usize {
        match self {
            LongRequest::List { listing, .. } => listing.from.len(),
            LongRequest::Atomic { operations, .. } => operations.iter().map(AtomicOperation::bytes).sum(),
            LongRequest::Clear { .. } | LongRequest::TrimEvents { .. } => 0,
        }
    }

    fn is_own(&self) -> bool {
        matches!(self, LongRequest::TrimEvents { .. })
            || matches!(self, LongRequest::List { listing, .. } if listing.expired)
    }

    fn set_queued(&mut self, waited: Duration) {
        match self {
            LongRequest::List { reply, .. } => reply.queued = waited,
            LongRequest::Atomic { reply, .. } => reply.queued = waited,
            LongRequest::Clear { reply } => reply.queued = waited,
            LongRequest::TrimEvents { .. } => {}
        }
    }

    fn fail(self, error: Error) {
        match self {
            LongRequest::List { mut reply, .. } => reply.give(Err(error)),
            LongRequest::Atomic { mut reply, .. } => reply.give(Err(error)),
            LongRequest::Clear { mut reply } => reply.give(Err(error)),
            // The next lease begins with what is there.
            LongRequest::TrimEvents { .. } => {}
        }
    }

    fn meters(shared: &Shared) -> &WorkerMeters {
        &shared.meters.long
    }

    async fn run(session: &mut dyn Session, batch: Vec<Self>, shared: &Shared) -> Answer<Ran> {
        for request in batch {
            let failure = match request {
                LongRequest::List { mut listing, with_values, mut reply } => {
                    // What has expired by now is not listed.
                    listing.now = shared.clock.now();
                    let listed = async {
                        let page = list(session, &listing, with_values).await?;
                        // What has expired is read again before it is removed.
                        if !listing.expired {
                            answered(shared).await?;
                        }
                        Ok::<_, Error>(page)
                    };
                    let page = listed.await;
                    let failure = page.as_ref().err().cloned();
                    answer_batch(|| reply.give(page));
                    failure
                }
                LongRequest::Atomic { operations, mut reply } => {
                    // Until the answer: what a later write of these keys puts into the cache is newer.
                    let _alone = match alone(shared, reply.queued, "the batch").await {
                        Ok(alone) => alone,
                        Err(error) => {
                            reply.give(Err(error));
                            continue;
                        }
                    };
                    let mut tries = 0;
                    let done = loop {
                        match apply(session, &operations, shared).await {
                            Err(error) if error.kind() == Kind::Retry && tries < RETRIES_MAX => {
                                tries += 1;
                            }
                            done => break done,
                        }
                    };
                    let failure = done.as_ref().err().cloned();
                    shared.lose_if_unknown(failure.as_ref()).await;
                    let (done, events) = match done {
                        Ok((outcome, events)) => (Ok(outcome), events),
                        Err(error) => (Err(error), None),
                    };
                    answer_batch(|| reply.give(done));
                    if let Some((ticket, block)) = events {
                        let stored = shared.events.keeps_all().then(|| block.clone());
                        ticket.end_with(stored, Some(block));
                    }
                    failure
                }
                LongRequest::Clear { mut reply } => {
                    let cleared = clear(session, shared, reply.queued).await;
                    let failure = cleared.as_ref().map_or_else(Some, Option::as_ref).cloned();
                    reply.give(cleared.map(drop));
                    failure
                }
                LongRequest::TrimEvents { until } => session.trim_events(until).await.err(),
            };
            if let Some(error) = failure.filter(|error| error.kind().ends_session()) {
                return Err(error);
            }
        }
        Ok(Ran { answered: Instant::now(), bytes: 0 })
    }
}

impl AtomicOperation {
    fn bytes(&self) -> usize {
        let value_bytes = if let Some(Intent::Put(row)) = &self.intent { row.value().len() } else { 0 };
        self.key.as_bytes().len() + value_bytes
    }
}

/// Keeps other writes out, once those under way have ended; for no longer than a request waits in a queue, where it `waited`.
async fn alone<'s>(
    shared: &'s Shared,
    waited: Duration,
    what: &str,
) -> Result<RwLockWriteGuard<'s, ()>, Error> {
    let left = shared.config.queue_wait_max.saturating_sub(waited);
    tokio::time::timeout(left, shared.writing.write()).await.map_err(|_| {
        shared.meters.long.shed.add(1);
        held_up(what)
    })
}

/// Removes every row and all events, with no other write under way. Everyone who watches begins anew. The answer is what failed when
/// that was done.
async fn clear(session: &mut dyn Session, shared: &Shared, waited: Duration) -> Result<Option<Error>, Error> {
    let _alone = alone(shared, waited, "the clear").await?;
    // What was waited for may have been given up, and happen yet.
    shared.status.borrow().epoch()?;
    let cleared = session.clear().await;
    // It may happen yet: nothing may be served until a new lease has outlasted it.
    shared.lose_if_unknown(cleared.as_ref().err()).await;
    cleared?;
    let id = shared.next_version().0;
    let marker = shared.events.mark(&[], id, shared.clock.now());
    // Whatever was read before does not decide it.
    session.begin_decision(false, &[]);
    let stored = match &marker {
        Some(marker) => session.write_with(&[], Some(marker)).await.map(drop),
        None => Ok(()),
    };
    shared.events.cleared(id, marker.as_ref().filter(|_| stored.is_ok()));
    shared.lose_if_unknown(stored.as_ref().err()).await;
    Ok(stored.err())
}

/// What a list has seen may not be in the cache yet, nor answered: the next read would find what was there before. So the writes
/// under way are waited for, but no longer than a request waits in a queue.
async fn answered(shared: &Shared) -> Result<(), Error> {
    let (begun, until) = (shared.events.begun(), Instant::now() + shared.config.queue_wait_max);
    while shared.events.is_under_way(begun) && shared.status.borrow().epoch().is_ok() {
        if Instant::now() > until {
            shared.meters.long.shed.add(1);
            return Err(held_up("the list"));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// A page of rows, with their values if that is wanted; then it ends once it has so many bytes, but not before its first row.
async fn list(session: &mut dyn Session, listing: &Listing, with_values: bool) -> Result<Page, Error> {
    let Page { rows: listed, mut next } = outline(session, listing, with_values).await?;
    if !with_values {
        return Ok(Page { rows: listed, next });
    }
    let keys: Vec<Key> = listed.iter().filter_map(|listed| Key::new(listed.row.key())).collect();
    let rows = read(session, &keys, LIST_BYTES_MAX).await?;
    // Some may be larger by now.
    if let Some(behind) = keys.get(rows.len()) {
        next = Some(behind.as_bytes().to_vec());
    }
    // What was removed since is not listed.
    let now = listing.now;
    let live = rows.into_iter().flatten().filter(|row| row.attributes().expires.is_none_or(|at| at > now));
    let rows = live.map(|row| Listed { value_bytes: row.value().len() as u64, row }).collect();
    Ok(Page { rows, next })
}

/// The same without values. Some stores read each value for its length: they are asked for few rows first, and then for as many
/// as there is room for.
async fn outline(session: &mut dyn Session, listing: &Listing, with_values: bool) -> Result<Page, Error> {
    let bytes_max = if with_values || listing.expired { LIST_BYTES_MAX as u64 } else { u64::MAX };
    let (mut asked, started) = (listing.clone(), Instant::now());
    let (mut page, mut bytes, mut count) = (Page { rows: Vec::new(), next: None }, 0, LIST_ROWS_FIRST);
    let mut was_rejected = false;
    loop {
        // One more shows whether it goes on.
        asked.limit = count.min(listing.limit - page.rows.len()) + 1;
        let found = match session.list(&asked).await {
            // As if it took too long: fewer may not.
            Err(error) if error.kind() == Kind::Rejected && count > LIST_ROWS_FIRST => {
                (count, was_rejected) = (LIST_ROWS_FIRST, true);
                continue;
            }
            found => found?,
        };
        let has_more = found.len() == asked.limit;
        for listed in found {
            bytes += listed.row.bytes() as u64 + listed.value_bytes;
            let is_full = page.rows.len() == listing.limit || !page.rows.is_empty() && bytes > bytes_max;
            if is_full {
                page.next = Some(listed.row.key().to_vec());
                return Ok(page);
            }
            page.rows.push(listed);
        }
        let Some(last) = page.rows.last().filter(|_| has_more) else { return Ok(page) };
        // What is behind the last row.
        let behind = [last.row.key(), b"\0"].concat();
        if started.elapsed() > LIST_TIME_MAX || was_rejected && listing.expired {
            page.next = Some(behind);
            return Ok(page);
        }
        let room = (bytes_max - bytes.min(bytes_max)).min(STATEMENT_BYTES_MAX);
        let mean = (bytes / page.rows.len() as u64).max(1);
        count = usize::try_from(room / mean).unwrap_or(usize::MAX).clamp(1, 16 * count);
        if listing.expired {
            // In any order: these are found again.
            count += page.rows.len();
            (page.rows, bytes) = (Vec::new(), 0);
        } else {
            asked.from = behind;
        }
    }
}

/// The rows under `keys` in their order, or under the first of them, once they have more than `bytes_max`.
async fn read(session: &mut dyn Session, keys: &[Key], bytes_max: usize) -> Result<Vec<Option<Row>>, Error> {
    let (mut rows, mut bytes) = (Vec::with_capacity(keys.len()), 0);
    while rows.len() < keys.len() && bytes <= bytes_max {
        let read = session.read(&keys[rows.len()..]).await?;
        bytes += read.iter().flatten().map(Row::bytes).sum::<usize>();
        rows.extend(read);
    }
    Ok(rows)
}

/// Decides all operations, one after the other, and writes what comes of them in one commit. No other write is under way.
async fn apply<'s>(
    session: &mut dyn Session,
    operations: &[AtomicOperation],
    shared: &'s Shared,
) -> Result<(AtomicOutcome, Option<(Ticket<'s>, EventBlock)>), Error> {
    // What was waited for may have been given up, and happen yet.
    shared.status.borrow().epoch()?;
    let mut rows: BTreeMap<&Key, Option<Row>> =
        operations.iter().map(|operation| (&operation.key, None)).collect();
    let keys: Vec<Key> = rows.keys().map(|key| (*key).clone()).collect();
    session.begin_decision(false, &keys);
    // Nothing was sent to be written.
    let not_read = |error: Error| match error.kind() {
        Kind::Unknown => Error::new(Kind::Unavailable, error.to_string()),
        _ => error,
    };
    let is_asked = keys.len() > UNASKED_ROWS_MAX;
    let bytes = if is_asked { session.value_bytes(&keys).await.map_err(not_read)? } else { 0 };
    let keys_max = if bytes > ATOMIC_BYTES_MAX as u64 { 0 } else { keys.len() };
    let stored = read(session, &keys[..keys_max], ATOMIC_BYTES_MAX).await.map_err(not_read)?;
    if stored.len() < keys.len() {
        let what =
            format!("the rows that the batch reads and replaces have more than {ATOMIC_BYTES_MAX} bytes");
        return Err(Error::new(Kind::Unfit, what));
    }
    let mut expired: BTreeSet<Key> = BTreeSet::new();
    for ((key, row), stored) in rows.iter_mut().zip(stored) {
        expired.extend(stored.as_ref().filter(|row| row.is_expired(&shared.clock)).map(|_| (*key).clone()));
        *row = stored.filter(|_| !expired.contains(*key));
    }
    let mut answers = Vec::with_capacity(operations.len());
    let mut writes: BTreeMap<&Key, (Write, usize)> = BTreeMap::new();
    let mut body = events::body(shared.events.keeps_all());
    for (index, AtomicOperation { key, condition, intent }) in operations.iter().enumerate() {
        let now = rows.entry(key).or_default();
        let current = now.as_ref().map(Row::version);
        if !condition.holds(current) {
            return Ok((AtomicOutcome::ConditionFailed(index, current), None));
        }
        let (version, row) = match intent {
            None => {
                answers.push(AtomicAnswer::Read(now.clone()));
                continue;
            }
            Some(Intent::Put(row)) => {
                let version = shared.next_version();
                (version, Some(row.clone().with_version(version)))
            }
            Some(Intent::Delete) => (shared.next_version(), None),
            Some(Intent::Touch(_) | Intent::RemoveExpired) => {
                return Err(Error::new(Kind::Rejected, "an atomic batch gets, puts and deletes"));
            }
        };
        let change = row.clone().map_or(Change::Delete, Change::Put);
        // Its end may be past: for those behind it the key is absent.
        let has_ended = row.as_ref().is_some_and(|row| row.is_expired(&shared.clock));
        let existed = std::mem::replace(now, row.clone().filter(|_| !has_ended)).is_some();
        let event = match &row {
            Some(_) => Some(EventKind::Put),
            None => existed.then_some(EventKind::Delete),
        };
        if expired.remove(key) {
            let event = Some(EventKind::Expire);
            Record { event, key: key.as_bytes(), version, existed: true, idempotency: None }
                .add_to(&mut body);
        }
        if event.is_some() {
            Record { event, key: key.as_bytes(), version, existed, idempotency: None }.add_to(&mut body);
        }
        if has_ended {
            expired.insert(key.clone());
        }
        if let Some((_, before)) = writes.insert(key, (Write { key: key.clone(), version, change }, index))
            && let AtomicAnswer::Written(Written::Applied { superseded, .. }) = &mut answers[before]
        {
            *superseded = true;
        }
        answers.push(AtomicAnswer::Written(Written::Applied { version, existed, row, superseded: false }));
    }
    let writes: Vec<Write> = writes.into_values().map(|(write, _)| write).collect();
    let ticket = shared.events.begin(|| shared.next_version());
    let block = ticket.block(shared.clock.now(), body);
    let stored = block.as_ref().filter(|_| shared.events.keeps_all());
    let written = session.write_with(&writes, stored).await.map_err(Error::whole);
    shared.note_write(&writes, &written);
    let found = match written {
        Ok(found) => found,
        Err(error) => {
            if error.kind() != Kind::Unknown {
                ticket.end_without();
            }
            return Err(error);
        }
    };
    if found.contains(&Found::Newer) {
        // Somebody else writes the store, and part of this is in it.
        return Err(Error::newer(Kind::Unknown));
    }
    let Some(block) = block else {
        ticket.end_without();
        return Ok((AtomicOutcome::Applied(answers), None));
    };
    Ok((AtomicOutcome::Applied(answers), Some((ticket, block))))
}
