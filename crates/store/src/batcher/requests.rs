//! How a batch of reads, or of writes, is done in a session.

use super::events::Ticket;
use super::replies::answer_batch;
use super::worker::{BATCH_BYTES_MAX, RETRIES_MAX, Ran, Request};
use super::{Batching, Intent, ReadRequest, Shared, WorkerMeters, WriteRequest, held_up};
use super::{apart, batch};
use crate::{Answer, Error, EventBlock, Found, Idempotency, Kind, Session};
use kv::{Key, Row};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

impl Request for ReadRequest {
    const FLUSHES: bool = false;
    // 64 in the first batch; if values turn out to be small, each batch may be twice as large as the one before.
    const ANSWER_BYTES_GUESS: usize = BATCH_BYTES_MAX / 64;

    fn bytes(&self) -> usize {
        self.key.as_bytes().len()
    }

    fn is_own(&self) -> bool {
        false
    }

    fn set_queued(&mut self, waited: Duration) {
        self.reply.queued = waited;
    }

    fn fail(mut self, error: Error) {
        self.reply.give(Err(error));
    }

    fn meters(shared: &Shared) -> &WorkerMeters {
        &shared.meters.read
    }

    async fn run(session: &mut dyn Session, mut batch: Vec<Self>, shared: &Shared) -> Answer<Ran> {
        if shared.is_shared() {
            let bytes = apart::read(batch, shared).await;
            return Ok(Ran { bytes, answered: Instant::now() });
        }
        batch.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        let distinct: Vec<Key> =
            batch.chunk_by(|a, b| a.key == b.key).map(|same| same[0].key.clone()).collect();
        let mut groups = batch.chunk_by_mut(|a, b| a.key == b.key);
        let (mut keys, mut bytes) = (&distinct[..], 0);
        // One by one once the store refuses to read one of them, for as long as a request may wait.
        let (mut most, until) = (keys.len(), Instant::now() + shared.config.queue_wait_max);
        loop {
            let rows = match session.read(&keys[..most.min(keys.len())]).await {
                Ok(rows) => rows,
                Err(error) => {
                    let is_of_one = matches!(error.kind(), Kind::Rejected | Kind::Unfit)
                        && keys.len() > 1
                        && Instant::now() < until;
                    if is_of_one && most > 1 {
                        most = 1;
                        continue;
                    }
                    let failed = groups.by_ref().take(if is_of_one { 1 } else { keys.len() }).flatten();
                    let fail = |request: &mut ReadRequest| request.reply.give(Err(error.clone()));
                    let answered = answer_batch(|| failed.for_each(fail));
                    if is_of_one {
                        keys = &keys[1..];
                        continue;
                    }
                    let ends = error.kind().ends_session();
                    return if ends { Err(error) } else { Ok(Ran { answered, bytes }) };
                }
            };
            bytes += rows.iter().flatten().map(Row::bytes).sum::<usize>();
            keys = &keys[rows.len()..];
            let answered = answer_batch(|| {
                for (row, group) in rows.into_iter().zip(groups.by_ref()) {
                    let row = row.filter(|row| !row.is_expired(&shared.clock));
                    group.iter_mut().for_each(|request| request.reply.give(Ok(row.clone())));
                }
            });
            if keys.is_empty() {
                return Ok(Ran { answered, bytes });
            }
        }
    }
}

impl Request for WriteRequest {
    const FLUSHES: bool = true;
    const ANSWER_BYTES_GUESS: usize = 0;

    fn bytes(&self) -> usize {
        let value_bytes = if let Intent::Put(row) = &self.intent { row.value().len() } else { 0 };
        self.key.as_bytes().len() + value_bytes
    }

    fn is_own(&self) -> bool {
        self.intent == Intent::RemoveExpired
    }

    fn set_queued(&mut self, waited: Duration) {
        self.reply.queued = waited;
    }

    fn fail(mut self, error: Error) {
        self.reply.give(Err(error));
    }

    fn meters(shared: &Shared) -> &WorkerMeters {
        &shared.meters.write
    }

    async fn run(session: &mut dyn Session, batch: Vec<Self>, shared: &Shared) -> Answer<Ran> {
        let waited = batch.iter().map(|request| request.reply.queued).max().unwrap_or_default();
        let until = tokio::time::Instant::now() + shared.config.queue_wait_max.saturating_sub(waited);
        let groups = batch::group(batch);
        if shared.is_shared() {
            apart::write(groups, shared).await;
            return Ok(Ran { answered: Instant::now(), bytes: 0 });
        }
        // Each part may wait for locks, and what is not sent in time would be answered as unknown.
        let parts_until = until + shared.config.queue_wait_max / 2;
        let (mut left, mut outcome) = (VecDeque::from([groups]), Ok(Instant::now()));
        let mut is_part = false;
        while let Some(groups) = left.pop_front() {
            match &outcome {
                _ if is_part && tokio::time::Instant::now() > parts_until => {
                    hold_up(groups, shared);
                }
                Ok(_) => outcome = commit(session, groups, is_part, shared, until, &mut left).await,
                // The session went meanwhile, and these were not sent.
                Err(lost) => fail(groups, &Error::new(Kind::Unavailable, lost.to_string())),
            }
            is_part = true;
        }
        outcome.map(|answered| Ran { answered, bytes: 0 })
    }
}

fn fail(groups: Vec<batch::Group>, error: &Error) {
    groups.into_iter().for_each(|group| group.fail(error));
}

/// Refuses what other writes hold up.
fn hold_up(groups: Vec<batch::Group>, shared: &Shared) {
    shared.meters.write.shed.add(groups.iter().map(batch::Group::of_clients).sum::<usize>() as u64);
    fail(groups, &held_up("this one"));
}

/// Commits the groups, one per key, together and answers their requests; says when. They wait until `until` for an atomic batch or
/// a clear to end. `is_part`: they are the rest of a batch, or a part of one that was refused.
///
/// What is to be sent after them goes unanswered to the front of `left`: what the rows that are written again leave no room for;
/// and, if the store refuses one request, or others write its key all the time, each key on its own, and then each request. The
/// others must not suffer for it.
async fn commit(
    session: &mut dyn Session,
    mut groups: Vec<batch::Group>,
    is_part: bool,
    shared: &Shared,
    until: tokio::time::Instant,
    left: &mut VecDeque<Vec<batch::Group>>,
) -> Result<Instant, Error> {
    // Until the answers: what an atomic batch writes is newer, in the cache too; and a clear would remove the rows that decide.
    let Ok(_not_alone) = tokio::time::timeout_at(until, shared.writing.read()).await else {
        return Ok(answer_batch(|| hold_up(groups, shared)));
    };
    let written = write(session, &mut groups, is_part, shared, left).await;
    let error = match written {
        Ok((found, events)) => {
            let answered = answer_batch(|| batch::answer(groups, &found, shared.config.batching));
            // After the answers: who is told finds the row.
            if let Some((ticket, stored, told)) = events {
                ticket.end_with(stored, told);
            }
            return Ok(answered);
        }
        Err(error) => error,
    };
    if matches!(error.kind(), Kind::Rejected | Kind::Unfit | Kind::Retry) || error.is_divisible() {
        match batch::divide(groups) {
            Ok(parts) => {
                // In their order: they may be of one key.
                parts.into_iter().rev().for_each(|part| left.push_front(vec![part]));
                return Ok(Instant::now());
            }
            Err(whole) => groups = whole,
        }
    }
    shared.lose_if_unknown(Some(&error)).await;
    let answered = answer_batch(|| fail(groups, &error));
    if error.kind().ends_session() { Err(error) } else { Ok(answered) }
}

/// What writes found; and their place among the events, with the block that the store keeps and the one that is told.
type Sent<'s> = (Vec<Found>, Option<(Ticket<'s>, Option<EventBlock>, Option<EventBlock>)>);

/// Decides the preconditions, reading the keys that have any, gives every write its version, and sends what is to be written.
///
/// Memory holds what one read answers, and the rows that are written again. Once these are a batch, the other groups go to the
/// front of `left`.
async fn write<'s>(
    session: &mut dyn Session,
    groups: &mut Vec<batch::Group>,
    is_part: bool,
    shared: &'s Shared,
    left: &mut VecDeque<Vec<batch::Group>>,
) -> Result<Sent<'s>, Error> {
    // What a row that has expired was replaced by has created it.
    let may_expire = shared.may_expire.load(Relaxed) && shared.config.batching == Batching::On;
    let keeps_events = shared.events.keeps_all();
    let is_stored = keeps_events || groups.iter().any(batch::Group::is_idempotent);
    let must_be_read = |group: &batch::Group| group.is_conditional() || group.asks_if_present(keeps_events);
    let is_read = |group: &&batch::Group| may_expire || must_be_read(group);
    let is_alone = groups.len() == 1;
    let asked_for: Vec<Key> = groups.iter().filter(is_read).map(|group| group.key().clone()).collect();
    // Whether a row had expired matters to the answer alone.
    let deciding = groups.iter().filter(|group| must_be_read(group)).map(|group| group.key().clone());
    let deciding: Vec<Key> = deciding.collect();
    // What was waited for may have been given up, and happen yet.
    shared.status.borrow().epoch()?;
    let mut tries = 0;
    loop {
        session.begin_decision(is_part, &deciding);
        let (mut rows, mut unread) = (Vec::new().into_iter(), &asked_for[..]);
        let (mut decided, mut again_bytes) = (0, 0);
        for group in &mut *groups {
            if is_read(&&*group) && rows.len() == 0 {
                rows = match session.read(unread).await {
                    Ok(read) => {
                        unread = &unread[read.len()..];
                        Vec::from_iter(read.into_iter().map(Some)).into_iter()
                    }
                    // What is damaged can be replaced: whether it had expired matters to the answer alone.
                    Err(error) if is_alone && !must_be_read(group) && error.kind() == Kind::Rejected => {
                        vec![None].into_iter()
                    }
                    // Nothing was sent to be written.
                    Err(error) if error.kind() == Kind::Unknown => {
                        return Err(Error::new(Kind::Unavailable, error.to_string()));
                    }
                    Err(error) => return Err(error),
                };
            }
            let stored = if is_read(&&*group) { rows.next().flatten() } else { None };
            let repeat = |idempotency: &Idempotency| shared.events.repeat(&idempotency.id);
            group.decide(stored, &shared.clock, repeat, || shared.next_version());
            decided += 1;
            again_bytes += group.bytes_again();
            if again_bytes >= BATCH_BYTES_MAX {
                break;
            }
        }
        if decided < groups.len() {
            left.push_front(groups.split_off(decided));
        }
        let writes = batch::writes(groups);
        if shared.config.batching == Batching::Off {
            // Writes have no order, and so no events.
            let written = session.write(&writes).await;
            shared.note_write(&writes, &written);
            return Ok((written?, None));
        }
        let ticket = shared.events.begin(|| shared.next_version());
        let body = is_stored.then(|| batch::record(groups, None, keeps_events));
        let stored = body.and_then(|body| ticket.block(shared.clock.now(), body));
        let written = session.write_with(&writes, stored.as_ref()).await;
        shared.note_write(&writes, &written);
        match written {
            Ok(found) => {
                let told = match keeps_events {
                    true => stored.clone(),
                    false if ticket.gathers => {
                        ticket.block(shared.clock.now(), batch::record(groups, Some(&found), true))
                    }
                    false => None,
                };
                return Ok((found, Some((ticket, stored, told))));
            }
            // It may happen, also later.
            Err(error) if error.kind() == Kind::Unknown => return Err(error),
            Err(error) => {
                ticket.end_without();
                if error.kind() != Kind::Retry || tries == RETRIES_MAX {
                    return Err(error);
                }
                tries += 1;
            }
        }
    }
}
