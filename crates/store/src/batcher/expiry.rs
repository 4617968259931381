//! Removes rows that have expired, and old events. Readers do not see them any more; this gives their space back.

use super::queue::{NO_LIMIT, Queues};
use super::{Batching, Intent, LongRequest, Reply, Shared, Status, WriteRequest, Written};
use crate::Listing;
use kv::{Key, Precondition, Timestamp};
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
        let has_more = looks && remove_some(&long, &writes, &shared).await;
        if !has_more {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Removes some; whether it has, and there are more.
async fn remove_some(long: &Queues<LongRequest>, writes: &Queues<WriteRequest>, shared: &Shared) -> bool {
    let listing = Listing { from: vec![], until: None, limit: LIMIT, now: Timestamp(0), expired: true };
    let (send, listed) = oneshot::channel();
    let reply = Reply::new(move |listed, _| drop(send.send(listed)));
    push(long, 0, LongRequest::List { listing, with_values: false, reply });
    let Ok(Ok(page)) = listed.await else { return false };
    let (mut pending, mut is_cut) = (Vec::with_capacity(page.rows.len()), false);
    // Each is read before: a page of such rows ends by their bytes.
    for key in page.rows.iter().filter_map(|listed| Key::new(listed.row.key())) {
        let (send, written) = oneshot::channel();
        let reply = Reply::new(move |written, _| drop(send.send(written)));
        let queue = super::queue_index(&key, writes.count());
        let (intent, condition, idempotency) = (Intent::RemoveExpired, Precondition::None, None);
        let request = WriteRequest { key, intent, condition, idempotency, reply };
        // Half of a queue is left to clients.
        if writes.push(queue, request, 0, ((shared.config.queue_requests / 2).max(1), usize::MAX)).is_err() {
            is_cut = true;
            break;
        }
        pending.push(written);
    }
    let mut removed = 0;
    for written in pending {
        removed += usize::from(matches!(written.await, Ok(Ok(Written::Applied { .. }))));
    }
    shared.meters.expired.add(removed as u64);
    // One that cannot be removed does not hold up the others.
    removed > 0 && (is_cut || page.next.is_some())
}

fn push<R>(queues: &Queues<R>, index: usize, request: R) {
    // Nothing is given back where there is no limit.
    drop(queues.push(index, request, 0, NO_LIMIT));
}
