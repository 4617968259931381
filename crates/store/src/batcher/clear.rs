//! Removing every row, on a session and a thread of its own.

use super::worker::given_up;
use super::{Reply, Shared, confirmed, held_up, start_thread};
use crate::{Error, Kind, Session};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Clears the store and answers when it is done or has failed. One at a time: another is refused.
pub(super) fn clear(shared: &Arc<Shared>, mut reply: Reply<()>) {
    if shared.clearing.swap(true, Relaxed) {
        return reply.give(Err(Error::new(Kind::Overloaded, "the store is being cleared already")));
    }
    let for_thread = Arc::clone(shared);
    // A thread that cannot be started drops the reply, which answers it.
    let started = start_thread("weir-clear", move |runtime| {
        let done = runtime.block_on(clear_now(&for_thread));
        for_thread.clearing.store(false, Relaxed);
        reply.give(done);
    });
    if let Err(error) = started {
        shared.clearing.store(false, Relaxed);
        log::warn!("the store is not cleared: {error}");
    }
}

async fn clear_now(shared: &Arc<Shared>) -> Result<(), Error> {
    let epoch = shared.status.borrow().epoch()?;
    // Counted like a worker's: the next lease waits for this session.
    shared.sessions.fetch_add(1, Relaxed);
    let cleared = async {
        let mut session = confirmed::connect(shared, epoch).await?;
        let alone = shared.writing.write();
        let Ok(_alone) = tokio::time::timeout(shared.config.queue_wait_max, alone).await else {
            return Err(held_up("the clear"));
        };
        // What was waited for may have been given up, and happen yet.
        shared.status.borrow().epoch()?;
        let done = session.clear().await;
        if done.is_ok() {
            events_cleared(session.as_mut(), shared).await;
        }
        if let Err(error) = &done
            && error.kind() == Kind::Unknown
        {
            // It may happen yet: nothing may be served until a new lease has outlasted it.
            shared.lose(epoch, error).await;
        }
        done
    };
    let done = tokio::select! {
        biased;
        done = cleared => done,
        () = given_up(shared.status.subscribe(), epoch) => {
            Err(Error::new(Kind::Unknown, "the clearing was given up because the store is lost"))
        }
    };
    shared.sessions.fetch_sub(1, Relaxed);
    done
}

/// Everyone who watches begins anew; and so do the events that the store keeps.
async fn events_cleared(session: &mut dyn Session, shared: &Shared) {
    let id = shared.next_version().0;
    let marker = shared.events.mark(&[], id, shared.clock.now());
    let is_stored = match &marker {
        Some(marker) => session.write_with(&[], Some(marker)).await.is_ok(),
        None => false,
    };
    shared.events.cleared(id, marker.as_ref().filter(|_| is_stored));
}
