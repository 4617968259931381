//! What is said of a lease in the store.

use super::*;
use crate::Owner;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A store that another server owns at first, and that was not released when it is free.
struct Abandoned {
    store: Scripted,
    attempts: AtomicUsize,
    is_released: Arc<AtomicBool>,
    confirms: bool,
}

/// Its lease is confirmed at once, or never.
struct Releases {
    is_released: Arc<AtomicBool>,
    confirms: bool,
}

#[async_trait]
impl Owner for Releases {
    async fn confirm(&mut self) -> Answer<()> {
        match self.confirms {
            true => Ok(()),
            false => std::future::pending().await,
        }
    }

    async fn release(&mut self) -> Answer<()> {
        self.is_released.store(true, Relaxed);
        Ok(())
    }
}

#[async_trait]
impl Store for Abandoned {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        if self.attempts.fetch_add(1, Relaxed) == 0 {
            return Err(Error::new(Kind::Taken, "another server owns it"));
        }
        let (is_released, confirms) = (Arc::clone(&self.is_released), self.confirms);
        let owner = Some(Box::new(Releases { is_released, confirms }) as Box<dyn Owner>);
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
        // A test that is late finds it waiting all the same.
        let confirms = !ends_early;
        let store = Abandoned { store, attempts, is_released: Arc::clone(&is_released), confirms };
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
