//! Sessions of a store whose sessions may outlive the lease: with a database that was replaced and does not know it.
//!
//! What such a database answers was right if its server still owned the store when it was asked. A confirmation of the lease
//! shows that, an earlier one for as long as hits last. Writes wait, too: a database may acknowledge at once what changes
//! nothing, as the removal of a key that is absent.

use super::Shared;
use crate::{Answer, Error, EventBlock, Found, Listed, Listing, Session, Write};
use async_trait::async_trait;
use kv::{Key, Row};
use std::sync::Arc;

struct Confirmed {
    session: Box<dyn Session>,
    shared: Arc<Shared>,
}

/// Opens a session under the lease that began `epoch`.
pub(super) async fn connect(shared: &Arc<Shared>, epoch: u64) -> Result<Box<dyn Session>, Error> {
    let session = shared.store.connect(epoch).await?;
    if shared.store.sessions_may_outlive_lease() {
        return Ok(Box::new(Confirmed { session, shared: Arc::clone(shared) }));
    }
    Ok(session)
}

/// What `answer` is, once the lease is confirmed. If that is lost, whoever waits gives the session up.
async fn confirmed<T>(shared: &Shared, answer: impl Future<Output = Answer<T>>) -> Answer<T> {
    let answered = answer.await?;
    shared.hit_lease.until_valid().await;
    Ok(answered)
}

#[async_trait]
impl Session for Confirmed {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        confirmed(&self.shared, self.session.read(keys)).await
    }

    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64> {
        confirmed(&self.shared, self.session.value_bytes(keys)).await
    }

    fn begin_decision(&mut self, is_part: bool, by: &[Key]) {
        self.session.begin_decision(is_part, by);
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        confirmed(&self.shared, self.session.write_with(writes, events)).await
    }

    async fn events(&mut self, behind: u64) -> Answer<Vec<EventBlock>> {
        confirmed(&self.shared, self.session.events(behind)).await
    }

    async fn trim_events(&mut self, until: u64) -> Answer<()> {
        confirmed(&self.shared, self.session.trim_events(until)).await
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        confirmed(&self.shared, self.session.list(listing)).await
    }

    async fn clear(&mut self) -> Answer<()> {
        confirmed(&self.shared, self.session.clear()).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batcher, Config, Intent, Reply, WriteRequest};
    use crate::contract::scripted::{Act, Scripted};
    use crate::{Answer, Error, Kind, Lease, Owner, Part, Session, Store, Workers};
    use async_trait::async_trait;
    use kv::{Key, Precondition};
    use std::sync::{Arc, mpsc};
    use std::time::Duration;
    use tokio::sync::{Semaphore, SemaphorePermit};

    /// A store that confirms its lease as often as there are permits, and says that it is lost when there can be no more.
    struct Doubtful {
        store: Scripted,
        confirmations: Arc<Semaphore>,
    }

    struct DoubtfulOwner(Arc<Semaphore>);

    #[async_trait]
    impl Owner for DoubtfulOwner {
        async fn confirm(&mut self) -> Answer<()> {
            let permit = self.0.acquire().await;
            permit.map(SemaphorePermit::forget).map_err(|_| Error::new(Kind::Unavailable, "it is lost"))
        }

        async fn release(&mut self) -> Answer<()> {
            Ok(())
        }
    }

    #[async_trait]
    impl Store for Doubtful {
        async fn acquire(&self, part: Part) -> Answer<Lease> {
            let owner = Some(Box::new(DoubtfulOwner(Arc::clone(&self.confirmations))) as Box<dyn Owner>);
            Ok(Lease { owner, ..self.store.acquire(part).await? })
        }

        async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
            self.store.connect(epoch).await
        }

        fn sessions_may_outlive_lease(&self) -> bool {
            true
        }

        fn workers(&self) -> Workers {
            Workers { read: 1, write: 1 }
        }
    }

    /// What became of a read and of a removal that the database answered when the lease had not been confirmed for too long:
    /// then `afterwards` happened.
    fn answered_in_doubt(afterwards: impl FnOnce(&Semaphore)) -> [Result<(), Kind>; 2] {
        let confirmations = Arc::new(Semaphore::new(1));
        let (store, stage) = Scripted::new();
        let store = Doubtful { store, confirmations: Arc::clone(&confirmations) };
        let batcher = Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap();
        while batcher.hits_are_valid() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ((read, was_read), (write, was_written)) = (mpsc::channel(), mpsc::channel());
        let key = Key::new(b"a").unwrap();
        let answer = Reply::new(move |row: Result<_, Error>, _| drop(read.send(row)));
        batcher.read(key.clone(), answer);
        stage.next().act(Act::Answer);
        let reply = Reply::new(move |written: Result<_, Error>, _| drop(write.send(written)));
        let (intent, condition) = (Intent::Delete, Precondition::None);
        batcher.write(WriteRequest { key, intent, condition, idempotency: None, reply });
        stage.next().act(Act::Answer);
        afterwards(&confirmations);
        let read = was_read.recv().unwrap().map(drop).map_err(|error| error.kind());
        [read, was_written.recv().unwrap().map(drop).map_err(|error| error.kind())]
    }

    #[test]
    fn what_a_replaced_database_says_is_not_answered() {
        let answers = answered_in_doubt(Semaphore::close);
        assert_eq!(answers, [Err(Kind::Unknown), Err(Kind::Unknown)]);
    }

    #[test]
    fn answers_wait_for_a_late_confirmation() {
        assert_eq!(answered_in_doubt(|confirmations| confirmations.add_permits(2)), [Ok(()), Ok(())]);
    }
}
