//! Removes rows that have expired, and old events. Readers do not see them any more; this gives their space back.

use super::queue::Waiting;
use super::{Batching, Intent, LongRequest, Reply, Shared, Status, WriteRequest, Written};
use crate::Listing;
use kv::{Key, Precondition, Timestamp};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two looks for them, if the last one found few.
const PAUSE: Duration = Duration::from_secs(1);
/// Most that are removed at once.
const LIMIT: usize = 1000;

/// Removes them as long as the store is owned.
pub(super) async fn remove_expired(
    long: Waiting<LongRequest>,
    writes: Waiting<WriteRequest>,
    shared: Arc<Shared>,
) {
    loop {
        let is_up = matches!(*shared.status.borrow(), Status::Up(_));
        let looks = is_up
            && shared.may_expire.load(Relaxed)
            && shared.config.batching == Batching::On
            && shared.store.capabilities().no_lists.is_none()
            && long.count() > 0;
        if let Status::Up(_) = *shared.status.borrow()
            && let Some(until) = shared.events.trim(shared.clock.now())
        {
            long.push(0, LongRequest::TrimEvents { until });
        }
        let removed = if looks { remove_some(&long, &writes, &shared).await } else { 0 };
        if removed < LIMIT {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Removes at most [`LIMIT`]; how many it has.
async fn remove_some(long: &Waiting<LongRequest>, writes: &Waiting<WriteRequest>, shared: &Shared) -> usize {
    let listing = Listing { from: vec![], until: None, limit: LIMIT, now: Timestamp(0), expired: true };
    let (send, listed) = oneshot::channel();
    let reply = Reply::new(move |listed, _| drop(send.send(listed)));
    long.push(0, LongRequest::List { listing, with_values: false, reply });
    let Ok(Ok(page)) = listed.await else { return 0 };
    let mut pending = Vec::with_capacity(page.rows.len());
    for key in page.rows.iter().filter_map(|listed| Key::new(listed.row.key())) {
        let (send, written) = oneshot::channel();
        let reply = Reply::new(move |written, _| drop(send.send(written)));
        let queue = super::queue_index(&key, writes.count());
        let (intent, condition, idempotency) = (Intent::RemoveExpired, Precondition::None, None);
        writes.push(queue, WriteRequest { key, intent, condition, idempotency, reply });
        pending.push(written);
    }
    let mut removed = 0;
    for written in pending {
        removed += usize::from(matches!(written.await, Ok(Ok(Written::Applied { .. }))));
    }
    shared.meters.expired.add(removed as u64);
    removed
}
