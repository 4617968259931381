//! The replica: read while a store is unavailable; its rows are never cached.
//!
//! It has workers and an owner thread of its own, so reads of it are gathered too and a lost one comes back by itself. It lags:
//! what it says may be older than what was acknowledged, so nothing of it enters a cache or a flight.

use super::{Error, Kind, Read, Served, Status};
use kv::counters::Counter;
use kv::{Key, Row};
use std::sync::Arc;
use std::time::Duration;
use store::replica::Lag;
use store::{Batcher, Config, Reply, Role, Store, channel};

/// A store that follows the others and is only read.
pub struct Replica {
    batcher: Batcher,
    /// What it has not confirmed of each shard's log.
    pub lag: Lag,
    /// Reads that it answered.
    pub reads: Counter,
    deadline: Duration,
}

impl Replica {
    /// Starts to keep it; one that cannot be reached is tried again. No read waits longer than `deadline` for it.
    pub fn start(
        store: Box<dyn Store>,
        lag: Lag,
        config: Config,
        deadline: Duration,
    ) -> Result<Replica, Error> {
        let config = Config { role: Role::Replica, ..config };
        // There is nothing above that would have to learn of the replica's coming and going.
        let batcher = Batcher::start(store, config, Arc::new(()))?;
        Ok(Replica { batcher, lag, reads: Counter::default(), deadline })
    }

    /// The row under `key` as the replica has it now.
    pub(super) async fn read(&self, key: &Key) -> Result<Read, Error> {
        let (sender, receiver) = channel();
        let reply = Reply::new(move |result: Result<Option<Row>, Error>, queued| {
            sender.send(result.map(|row| Read { row, served: Served::Replica, queued }));
        });
        self.batcher.read(key.clone(), reply);
        match tokio::time::timeout(self.deadline, receiver).await {
            Ok(Some((Ok(read), _))) => {
                self.reads.add(1);
                Ok(read)
            }
            Ok(Some((Err(error), _))) => Err(error),
            Ok(None) | Err(_) => Err(Error::new(Kind::Unknown, "the replica did not answer")),
        }
    }

    /// Whether it can be asked.
    pub fn is_up(&self) -> bool {
        matches!(self.batcher.status(), Status::Up(_))
    }
}
