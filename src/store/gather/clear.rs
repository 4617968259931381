//! Removing every row: on a session and a thread of its own, beside the lanes.

use super::{Reply, Shared, Status};
use crate::store::{Error, Kind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Clears the store and answers when it is done or has failed.
pub(super) fn clear(shared: &Arc<Shared>, reply: Reply<()>) {
    let shared = Arc::clone(shared);
    let thread = std::thread::Builder::new().name("weir-clear".into());
    // A thread that cannot be started drops the reply, which answers it.
    let started = thread.spawn(move || {
        // Counted like a lane's: whoever claims the store anew waits for this session.
        shared.sessions.fetch_add(1, Relaxed);
        let done = clear_now(&shared);
        shared.sessions.fetch_sub(1, Relaxed);
        reply.give(done);
    });
    if let Err(error) = started {
        log::warn!("cannot start a thread to clear the store: {error}");
    }
}

fn clear_now(shared: &Shared) -> Result<(), Error> {
    // Bound first: a borrow of the watched value must not live across an await.
    let status = shared.status.borrow().clone();
    let epoch = match status {
        Status::Up(epoch) => epoch,
        Status::Down(reason) => {
            return Err(Error::new(Kind::Unavailable, format!("the store is away: {reason}")));
        }
        Status::Stopped => return Err(Error::new(Kind::Unavailable, "the store was given back")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Error::new(Kind::Unavailable, format!("cannot make a runtime: {error}")))?;
    runtime.block_on(async { shared.store.connect(epoch).await?.clear().await })
}
