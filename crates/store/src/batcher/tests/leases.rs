//! What is said of a lease in the store.

use super::*;
use crate::Owner;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize};

/// A store that another server owns at first, and that was not released when it is free.
struct Abandoned {
    store: Scripted,
    attempts: AtomicUsize,
    is_released: Arc<AtomicBool>,
    /// Where the lease is confirmed only to a server that ends: what that is.
    ends: Option<Ends>,
}

type Ends = Arc<OnceLock<watch::Receiver<Status>>>;

struct Releases {
    is_released: Arc<AtomicBool>,
    ends: Option<Ends>,
}

#[async_trait]
impl Owner for Releases {
    async fn confirm(&mut self) -> Answer<()> {
        let stopped = |ends: &Ends| ends.get().is_some_and(|status| *status.borrow() == Status::Stopped);
        match self.ends.as_ref().is_none_or(stopped) {
            true => Ok(()),
            // So that a test that is late finds a server that waits, as well.
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
        let (is_released, ends) = (Arc::clone(&self.is_released), self.ends.clone());
        let owner = Some(Box::new(Releases { is_released, ends }) as Box<dyn Owner>);
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
        let ends = Ends::default();
        let store = Abandoned {
            store,
            attempts,
            is_released: Arc::clone(&is_released),
            ends: ends_early.then(|| Arc::clone(&ends)),
        };
        let config = Config { is_standby: true, ..Config::default() };
        let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
        ends.set(batcher.shared.status.subscribe()).unwrap();
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
