//! What is said of a lease in the store.

use super::*;
use crate::Owner;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A store that another server owns at first, and that was not released when it is free.
struct Abandoned {
    store: Scripted,
    attempts: AtomicUsize,
    is_released: Arc<AtomicBool>,
}

struct Releases(Arc<AtomicBool>);

#[async_trait]
impl Owner for Releases {
    async fn confirm(&mut self) -> Answer<()> {
        Ok(())
    }

    async fn release(&mut self) -> Answer<()> {
        self.0.store(true, Relaxed);
        Ok(())
    }
}

#[async_trait]
impl Store for Abandoned {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        if self.attempts.fetch_add(1, Relaxed) == 0 {
            return Err(Error::new(Kind::Taken, "another server owns it"));
        }
        let owner = Some(Box::new(Releases(Arc::clone(&self.is_released))) as Box<dyn Owner>);
        Ok(Lease { was_released: false, owner, ..self.store.acquire(part).await? })
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.store.connect(epoch).await
    }

    fn workers(&self) -> Workers {
        self.store.workers()
    }
}

/// It said so, and the next server did not wait: a server that had been paused answered an old value after a new one was acknowledged.
#[test]
fn a_server_that_ends_while_it_waits_for_hits_does_not_say_that_they_have_ended() {
    for ends_early in [true, false] {
        let is_released = Arc::new(AtomicBool::new(false));
        let (attempts, store) = (AtomicUsize::new(0), Scripted::new().0);
        let store = Abandoned { store, attempts, is_released: Arc::clone(&is_released) };
        let config = Config { is_standby: true, ..Config::default() };
        let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
        let is_there = |status: &Status| match status {
            Status::Starting => ends_early,
            other => *other == Status::Up(1),
        };
        while !is_there(&batcher.status()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(batcher);
        assert_eq!(is_released.load(Relaxed), !ends_early);
    }
}
