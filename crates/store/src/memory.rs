//! A store in this process's memory: what the lab measures the tiers above with, and the model in tests.

use super::{Answer, Error, EventBlock, Found, Kind, Lease, Listed, Listing, Part, Session, Store, Workers};
use async_trait::async_trait;
use kv::{Change, Key, Row, Timestamp, Write};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::pending;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Memory {
    rows: Arc<Mutex<BTreeMap<Key, Row>>>,
    epoch: AtomicU64,
}

impl Memory {
    pub(super) fn open(url: &str) -> Result<Memory, Error> {
        match url {
            "memory:" => Ok(Memory { epoch: AtomicU64::new(crate::any_epoch()), ..Memory::default() }),
            _ => Err(Error::new(Kind::Config, "memory: takes nothing behind it; write memory:")),
        }
    }
}

#[async_trait]
impl Store for Memory {
    async fn acquire(&self, _part: Part) -> Answer<Lease> {
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let now = Timestamp::of_this_machine();
        // Else every write reads before, and all rows are looked through for those that have expired once a second.
        let may_expire = self.rows.lock().values().any(|row| row.attributes().expires.is_some());
        let lost = Box::pin(pending());
        Ok(Lease { epoch, now, may_expire, was_released: true, lost, owner: None })
    }

    async fn connect(&self, _epoch: u64) -> Answer<Box<dyn Session>> {
        // No statement outlives the call that makes it, so sessions of an earlier lease do no harm.
        Ok(Box::new(MemorySession(Arc::clone(&self.rows))) as Box<dyn Session>)
    }

    fn workers(&self) -> Workers {
        Workers { read: 1, write: 1 }
    }
}

struct MemorySession(Arc<Mutex<BTreeMap<Key, Row>>>);

#[async_trait]
impl Session for MemorySession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        let rows = self.0.lock();
        Ok(keys.iter().map(|key| rows.get(key).cloned()).collect())
    }

    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64> {
        let rows = self.0.lock();
        Ok(keys.iter().filter_map(|key| rows.get(key)).map(|row| row.value().len() as u64).sum())
    }

    /// Events are not kept: no lease begins with what was there before.
    async fn write_with(&mut self, writes: &[Write], _events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        let mut rows = self.0.lock();
        let found = writes
            .iter()
            .map(|write| match &write.change {
                Change::Put(row) => rows.insert(write.key.clone(), row.clone()).is_some(),
                Change::Delete => rows.remove(&write.key).is_some(),
            })
            .map(Found::present)
            .collect();
        Ok(found)
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        Ok(list(&self.0.lock(), listing))
    }

    async fn clear(&mut self) -> Answer<()> {
        self.0.lock().clear();
        Ok(())
    }
}

/// What [`Session::list`] gives of `rows`.
pub(super) fn list(rows: &BTreeMap<Key, Row>, listing: &Listing) -> Vec<Listed> {
    let is_expired = |row: &Row| row.attributes().expires.is_some_and(|at| at <= listing.now);
    let listed = |(key, row): (&Key, &Row)| Listed {
        row: Row::with(key, row.attributes(), b"", row.version()),
        value_bytes: row.value().len() as u64,
    };
    let rows = rows.range::<[u8], _>((Bound::Included(listing.from.as_slice()), Bound::Unbounded));
    let wanted = rows.take_while(|(key, _)| key.as_bytes() < listing.end());
    wanted.filter(|(_, row)| is_expired(row) == listing.expired).take(listing.limit).map(listed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Attributes, Version};

    #[tokio::test]
    async fn the_memory_store_keeps_the_contract() {
        super::super::contract::all(super::super::open("memory:").unwrap().as_ref()).await;
    }

    #[tokio::test]
    async fn the_next_process_gives_other_versions() {
        let epoch = async || super::super::open("memory:").unwrap().acquire(Part::WHOLE).await.unwrap().epoch;
        assert_ne!([epoch().await, epoch().await], [epoch().await, epoch().await]);
    }

    /// Each write read before, and all rows were looked through once a second.
    #[tokio::test]
    async fn only_a_row_that_expires_makes_it_look_for_such_rows() {
        let store = super::super::open("memory:").unwrap();
        let may_expire = async || store.acquire(Part::WHOLE).await.unwrap().may_expire;
        assert!(!may_expire().await);
        let mut session = store.connect(1).await.unwrap();
        let (key, version) = (Key::new(b"key").unwrap(), Version(1));
        for (expires, expected) in [(None, false), (Some(Timestamp(1)), true)] {
            let row = Row::with(&key, Attributes { expires, ..Attributes::default() }, b"", version);
            session.write(&[Write { key: key.clone(), version, change: Change::Put(row) }]).await.unwrap();
            assert_eq!(may_expire().await, expected);
        }
    }
}
