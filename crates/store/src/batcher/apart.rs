//! Requests to a store that several servers share: each key is asked, decided and answered for itself.
//!
//! No commit holds for several keys there, so one that waits for a slow node holds up no other key of its batch, and what becomes
//! of it says nothing about the store. The requests of a key that share a batch are still one write: no server contends with itself.

use super::batch::{self, Group};
use super::replies::answer_batch;
use super::{Batching, ReadRequest, Shared};
use crate::{Error, Found, Kind, Session};
use futures_util::future::join_all;
use kv::{Key, Row, Version};
use std::collections::VecDeque;
use std::slice;
use std::time::Instant;

/// Reads the keys of a batch and answers its requests; how many bytes that were.
pub(super) async fn read(mut batch: Vec<ReadRequest>, shared: &Shared) -> usize {
    batch.sort_by(|a, b| a.key.cmp(&b.key));
    let read = batch.chunk_by_mut(|a, b| a.key == b.key).map(async |requests| {
        let row = read_one(requests[0].key.clone(), shared).await;
        let bytes = row.as_ref().map_or(0, |row| row.as_ref().map_or(0, Row::bytes));
        answer_batch(|| requests.iter_mut().for_each(|request| request.reply.give(row.clone())));
        bytes
    });
    join_all(read).await.into_iter().sum()
}

async fn read_one(key: Key, shared: &Shared) -> Result<Option<Row>, Error> {
    let rows = session(shared).await?.read(&[key]).await?;
    Ok(rows.into_iter().next().flatten().filter(|row| !row.is_expired(&shared.clock)))
}

/// A session for one key: where nobody owns the store it is not more than a handle.
async fn session(shared: &Shared) -> Result<Box<dyn Session>, Error> {
    // Bound first: a borrow of the watched value must not live across an await.
    let epoch = shared.status.borrow().epoch()?;
    shared.store.connect(epoch).await
}

/// Writes the keys of a batch and answers its requests.
pub(super) async fn write(groups: Vec<Group>, shared: &Shared) {
    let written = groups.into_iter().map(async |group| match session(shared).await {
        Ok(mut session) => commit(session.as_mut(), group, shared).await,
        Err(error) => group.fail(&error),
    });
    join_all(written).await;
}

/// Writes a key and answers its requests; one by one if the store refuses something of them.
async fn commit(session: &mut dyn Session, group: Group, shared: &Shared) {
    let mut left = VecDeque::from([group]);
    while let Some(mut group) = left.pop_front() {
        match write_one(session, &mut group, shared).await {
            Ok(found) => drop(answer_batch(|| batch::answer(vec![group], &found, Batching::On))),
            Err(error) if matches!(error.kind(), Kind::Rejected | Kind::Unfit) => {
                match batch::divide(vec![group]) {
                    // In their order, before the rest.
                    Ok(parts) => parts.into_iter().rev().for_each(|part| left.push_front(part)),
                    Err(whole) => whole.into_iter().for_each(|group| group.fail(&error)),
                }
            }
            Err(error) => drop(answer_batch(|| group.fail(&error))),
        }
    }
}

/// Decides the preconditions and writes, again and again while other servers are faster, for as long as a request may wait in a
/// queue. There are no events: nobody sees the writes of all servers.
async fn write_one(
    session: &mut dyn Session,
    group: &mut Group,
    shared: &Shared,
) -> Result<Vec<Found>, Error> {
    let until = Instant::now() + shared.config.queue_wait_max;
    // Without a condition the store looks itself; but what it has must be known if that is not older than our version.
    let mut is_read = group.is_conditional();
    loop {
        session.begin_decision(false, slice::from_ref(group.key()));
        let stored = if is_read {
            let rows = session.read(slice::from_ref(group.key())).await?;
            let stored = rows.into_iter().next().flatten();
            shared.versions.pass(stored.as_ref().map_or(Version(0), Row::version));
            Some(stored)
        } else {
            None
        };
        group.decide(stored, &shared.clock, |_| None, || shared.next_version());
        match session.write(&batch::writes(slice::from_ref(group))).await {
            Ok(found) if !found.contains(&Found::Newer) => return Ok(found),
            Err(error) if error.kind() != Kind::Retry => return Err(error),
            _ if Instant::now() > until => {
                return Err(Error::new(Kind::Retry, "other servers write this key all the time"));
            }
            Ok(_) => is_read = true,
            Err(_) => {}
        }
    }
}
