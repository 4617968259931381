//! Removes rows that have expired, and old events. Readers do not see them any more; this gives their space back.

use super::queue::{NO_LIMIT, Queues};
use super::{Batching, Intent, LongRequest, Observer, Reply, Shared, Status, WriteRequest, Written};
use crate::{Answer, Listing};
use kv::{Key, Precondition, Timestamp};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two looks for them, if the last one found all.
const PAUSE: Duration = Duration::from_secs(1);
/// Most that are removed at once.
const LIMIT: usize = 1000;

/// Removes them as long as the store is owned.
pub(super) async fn remove_expired(
    long: Queues<LongRequest>,
    writes: Queues<WriteRequest>,
    shared: Arc<Shared>,
    observer: Arc<dyn Observer>,
) {
    loop {
        let is_up = matches!(*shared.status.borrow(), Status::Up(_));
        let looks = is_up
            && shared.may_expire.load(Relaxed)
            && shared.config.batching == Batching::On
            && shared.store.capabilities().no_lists.is_none()
            && long.count() > 0;
        if is_up && let Some(until) = shared.events.trim(shared.clock.now()) {
            push(&long, 0, LongRequest::TrimEvents { until });
        }
        let has_more = looks && remove_some(&long, &writes, &shared, &observer).await;
        if !has_more {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Removes some; whether it has, and there are more.
async fn remove_some(
    long: &Queues<LongRequest>,
    writes: &Queues<WriteRequest>,
    shared: &Shared,
    observer: &Arc<dyn Observer>,
) -> bool {
    let listing = Listing { from: vec![], until: None, limit: LIMIT, now: Timestamp(0), expired: true };
    let (send, listed) = oneshot::channel();
    let reply = Reply::new(move |listed, _| drop(send.send(listed)));
    push(long, 0, LongRequest::List { listing, with_values: false, reply });
    let Ok(Ok(page)) = listed.await else { return false };
    let (mut pending, mut removed) = (VecDeque::new(), 0);
    let count = |was_removed: Result<bool, _>| u64::from(was_removed == Ok(true));
    // Half of a queue is left to clients.
    let most = ((shared.config.queue_requests / 2).max(1), usize::MAX);
    // Each is read before: a page of such rows ends by their bytes.
    for key in page.rows.iter().filter_map(|listed| Key::new(listed.row.key())) {
        let (send, was_removed) = oneshot::channel();
        let (observer, clock, removed_key) = (Arc::clone(observer), Arc::clone(&shared.clock), key.clone());
        let reply = Reply::new(move |written: Answer<Written>, _| {
            let was_removed = matches!(written, Ok(Written::Applied { .. }));
            if was_removed {
                observer.expired(&removed_key, clock.now());
            }
            let _ = send.send(was_removed);
        });
        let queue = super::queue_index(&key, writes.count());
        let (intent, condition, idempotency) = (Intent::RemoveExpired, Precondition::None, None);
        let mut request = WriteRequest { key, intent, condition, idempotency, reply };
        loop {
            match writes.push(queue, request, 0, most) {
                Ok(()) => break pending.push_back(was_removed),
                Err(given_back) => request = given_back,
            }
            // Where clients alone fill it, the row stays for the next time.
            let Some(oldest) = pending.pop_front() else { break };
            removed += count(oldest.await);
        }
    }
    for was_removed in pending {
        removed += count(was_removed.await);
    }
    shared.meters.expired.add(removed);
    // One that cannot be removed does not hold up the others.
    removed > 0 && page.next.is_some()
}

fn push<R>(queues: &Queues<R>, index: usize, request: R) {
    // Nothing is given back where there is no limit.
    drop(queues.push(index, request, 0, NO_LIMIT));
}
