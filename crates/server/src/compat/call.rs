//! A request to a compatibility API, and the operations on the tiers that it may ask for.

use super::statistics::Counts;
use super::{CompatState, Reply};
use crate::Worker;
use crate::change::Change;
use crate::compute::{self, Full};
use crate::error::Failure;
use crate::query::Params;
use crate::tiered::{Kind, Served, Tiered, WriteError};
use http1::request::Method;
use kv::{Key, Precondition, Row};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The content type of values, where the plain interface reads them.
const CONTENT_TYPE: &str = "text/plain";
/// Attempts of an exchange under the condition that no other write comes between; the last is made without. Of two writers each
/// loses half of the races, of many writers on one key most.
const EXCHANGES_MAX: usize = 64;

/// Hashes that are remembered: as many as the original system keeps.
const HASHES_MAX: usize = 500;

/// A request and its server.
pub(super) struct Call {
    pub(super) worker: Rc<Worker>,
    pub(super) state: Arc<CompatState>,
    /// HEAD is routed like GET.
    pub(super) method: Method,
    /// Decoded.
    pub(super) path: Vec<u8>,
    /// Of the query, then of the form.
    pub(super) params: Params,
    /// Whether the body is a form.
    pub(super) is_form: bool,
    pub(super) body: Vec<u8>,
}

impl Call {
    pub(super) fn count(&self, add: impl FnOnce(&mut Counts)) {
        add(&mut self.state.statistics.counts.lock());
    }

    /// The row, and how it was served.
    pub(super) async fn get(&self, key: &Key) -> Result<(Option<Row>, Served), Failure> {
        self.count(|counts| counts.gets += 1);
        let since = Instant::now();
        let (row, served) = self.worker.read(key).await?;
        self.count(|counts| match served {
            Served::Hit => counts.hits += 1,
            _ => {
                counts.misses += 1;
                counts.store_reads.add(since.elapsed());
            }
        });
        Ok((row, served))
    }

    /// Puts a value; whether the key was in the cache before.
    pub(super) async fn put(&self, key: &Key, value: Vec<u8>) -> Result<bool, Failure> {
        self.count(|counts| counts.puts += 1);
        self.change(key, put(value)).await
    }

    /// Deletes a key; whether it was in the cache before.
    pub(super) async fn delete(&self, key: &Key) -> Result<bool, Failure> {
        self.count(|counts| counts.deletes += 1);
        self.change(key, Change::Delete).await
    }

    async fn change(&self, key: &Key, change: Change) -> Result<bool, Failure> {
        let (since, was_cached) = (Instant::now(), self.tier(key).is_cached(key.as_bytes()));
        self.worker.write(key, change, Precondition::None).await.map_err(Failure::of_write)?;
        self.count(|counts| counts.store_writes.add(since.elapsed()));
        Ok(was_cached)
    }

    /// Puts a value; the row that it replaced.
    pub(super) async fn exchange(&self, key: &Key, value: &[u8]) -> Result<Option<Row>, Failure> {
        self.count(|counts| counts.puts += 1);
        let since = Instant::now();
        let mut attempt = 1;
        let old = loop {
            let (old, _) = self.worker.read(key).await?;
            let condition = match &old {
                // Another value may have been there for a moment, as in the original system.
                _ if attempt == EXCHANGES_MAX => Precondition::None,
                None => Precondition::Absent,
                Some(row) => Precondition::VersionIn(vec![row.version()]),
            };
            let conditional = condition != Precondition::None;
            attempt = match self.worker.write(key, put(value.to_vec()), condition).await {
                Ok(_) => break old,
                Err(WriteError::ConditionFailed(_)) => attempt + 1,
                // Without batches there are no conditions.
                Err(WriteError::Store(error)) if error.kind() == Kind::Rejected && conditional => {
                    EXCHANGES_MAX
                }
                Err(error) => return Err(Failure::of_write(error)),
            };
        };
        self.count(|counts| counts.store_writes.add(since.elapsed()));
        Ok(old)
    }

    fn tier(&self, key: &Key) -> &Tiered {
        self.worker.shared.tiers.tier_of(key)
    }

    /// Puts a value into the store and not into the cache.
    pub(super) async fn preload(&self, key: &Key, value: Vec<u8>) -> Result<(), Failure> {
        let put = self.tier(key).preload(key, CONTENT_TYPE, value).await;
        put.map(|_| ()).map_err(Failure::of_write)
    }

    /// Removes every row, and resets the counts.
    pub(super) async fn clear(&self) -> Result<(), Failure> {
        let cleared = self.worker.shared.tiers.clear().await;
        cleared.map_err(|error| Failure::of_write(WriteError::Store(error)))?;
        self.count(|counts| *counts = Counts::default());
        Ok(())
    }

    /// The hash of a text, and whether it was remembered.
    pub(super) async fn hash(&self, text: &[u8]) -> Result<(u32, bool), Full> {
        if let Some(hash) = self.state.statistics.hashes.lock().get(text).copied() {
            self.count(|counts| counts.hash_hits += 1);
            return Ok((hash, true));
        }
        self.count(|counts| counts.hash_misses += 1);
        let text = text.to_vec();
        let (hash, text) = self.worker.shared.compute(move || (compute::hash(&text), text)).await?;
        let mut hashes = self.state.statistics.hashes.lock();
        hashes.put(text, hash);
        if hashes.len() > HASHES_MAX {
            hashes.pop_lru();
            self.count(|counts| counts.hash_evictions += 1);
        }
        Ok((hash, false))
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> Counts {
        *self.state.statistics.counts.lock()
    }
}

fn put(value: Vec<u8>) -> Change {
    Change::Put {
        content_type: CONTENT_TYPE.to_owned(),
        content_encoding: String::new(),
        expiry: None,
        value,
    }
}

/// The key, or the reply to one that is empty or too long.
pub(super) fn key(bytes: &[u8]) -> Result<Key, Reply> {
    Key::new(bytes).ok_or(Reply::empty(400))
}
