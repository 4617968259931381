//! Read-through, write-through: the cache in front of a store.
//!
//! Knows nothing of HTTP. The one rule: a value enters the cache only if no write of its key overlapped the store
//! call that produced it.
//!
//! Every key is linearizable (docs/consistency.md). A hit answers the last committed row and waits for nothing. The cache is
//! updated on the threads of the store workers, in the order of the commits, also when the request was given up meanwhile.

mod flight;
mod replica;
mod shards;

pub use cache::{Counts as CacheCounts, ShadowCounts};
pub(crate) use flight::RowReservation;
pub use replica::Replica;
pub use shards::{Shard, Tiers};
pub use store::{Error, Flush, Kind, LastError, Meters, SHARDS_MAX, Status, WorkerMeters, Workers};

use crate::budget::{Budget, Full, Reservation, UNCOUNTED_BYTES_MAX};
use cache::{Cache, Place};
use flight::{Counted, Flight, Flights};
use kv::counters::Counter;
use kv::{Clock, Key, Precondition, Row, Timestamp, Version};
use parking_lot::Mutex;
use std::cmp::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{
    AtomicAnswer, AtomicOperation, AtomicOutcome, Batcher, Capabilities, Config, Idempotency, Intent,
    Listing, Observer, Page, Receiver, Reply, Store, WriteRequest, Written, channel,
};

/// The cache and the store behind it.
pub struct Tiered {
    tier: Arc<Tier>,
    batcher: Batcher,
    deadline: Duration,
}

/// What callers and store workers share.
struct Tier {
    cache: Cache,
    /// One for each shard of the cache, whose lock is only ever taken under this one's.
    flights: Box<[Mutex<Flights>]>,
    /// Where rows are counted on their way from the store to the requests.
    budget: OnceLock<Arc<Budget>>,
    meters: TierMeters,
    /// The consistency of the store's reads, if they are not linearizable.
    weak_reads: Option<&'static str>,
}

/// What the tier counts.
#[derive(Debug, Default)]
pub struct TierMeters {
    /// Reads that the cache could not answer, collapsed ones included. The caller counts hits, in a counter that no other
    /// thread writes.
    pub misses: Counter,
    /// Reads that waited for another's read of the same key.
    pub collapsed: Counter,
    /// Times the whole cache was dropped because the store was lost.
    pub drops: Counter,
    /// Nanoseconds between the answer of the store and its use by the request, summed over requests.
    pub answer_nanos: Counter,
}

/// How a read was served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// From the cache.
    Hit,
    /// From the store.
    Miss {
        /// Whether the row is in the cache now.
        stored: bool,
    },
    /// From the store, by another's read that was under way.
    Collapsed,
    /// From the store, whose reads have this consistency: the row may be older than what was acknowledged.
    Weak(&'static str),
    /// From the replica, because the store is unavailable: it may be older than what was acknowledged.
    Replica,
}

/// Why a write was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// Another request was made before with its `Idempotency-Key`.
    OtherRequest,
    /// Its precondition did not hold; the key's version then.
    ConditionFailed(Option<Version>),
    /// The store failed; the kind says whether the write happened.
    Store(Error),
}

/// What must hold for a write to be made. Made of a precondition alone, it may be made twice if it is sent twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteTerms {
    /// What must hold of the key just before.
    pub condition: Precondition,
    /// What it is known by if it comes again.
    pub idempotency: Option<Idempotency>,
}

impl From<Precondition> for WriteTerms {
    fn from(condition: Precondition) -> WriteTerms {
        WriteTerms { condition, idempotency: None }
    }
}

/// A read that was served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// `None`: the key is absent.
    pub row: Option<Row>,
    /// How it was served.
    pub served: Served,
    /// How long it waited for its batch.
    pub queued: Duration,
}

/// A write that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// How long it waited for its batch.
    pub queued: Duration,
    /// The version it was given.
    pub version: Version,
    /// Whether the key was there before.
    pub existed: bool,
}

impl Tiered {
    /// Acquires the store and starts. No request waits longer than `deadline` for the store.
    pub fn start(
        cache: Cache,
        store: Box<dyn Store>,
        config: Config,
        deadline: Duration,
    ) -> Result<Tiered, Error> {
        let Capabilities { writers, weak_reads, .. } = store.capabilities();
        let flights = || Mutex::new(Flights::new(config.batching, writers));
        let flights = (0..cache.shard_count()).map(|_| flights()).collect();
        let (budget, meters) = (OnceLock::new(), TierMeters::default());
        let tier = Arc::new(Tier { cache, flights, budget, meters, weak_reads });
        let batcher = Batcher::start(store, config, Arc::clone(&tier) as Arc<dyn Observer>)?;
        Ok(Tiered { tier, batcher, deadline })
    }

    /// What `look` makes of the row under `key`, if the cache holds it. Never waits; `look` runs under a lock of the cache, as
    /// [`Cache::look`] says.
    pub fn cached<R>(&self, key: &[u8], look: impl FnOnce(&Row) -> R) -> Option<R> {
        // Asked with the row at hand: until now nobody else can have written it.
        let live =
            |row: &Row| (self.batcher.hits_are_valid() && !row.is_expired(self.clock())).then(|| look(row));
        self.tier.cache.look(self.tier.cache.place(key), key, live)
    }

    /// The clock of the store, by which rows expire.
    pub fn clock(&self) -> &Clock {
        self.batcher.clock()
    }

    /// Whether the cache holds `key`, without the policy learning that anybody asked.
    pub fn is_cached(&self, key: &[u8]) -> bool {
        let is_live = |row: &Row| !row.is_expired(self.clock());
        self.tier.cache.peek(self.tier.cache.place(key), key, is_live) == Some(true)
    }

    /// The row under `key`, from the cache or the store.
    pub async fn get(&self, key: &Key) -> Result<Read, Error> {
        let place = self.tier.cache.place(key.as_bytes());
        let (receiver, flight) = {
            let mut flights = self.tier.flights[place.shard].lock();
            // A flight of this key may have completed since the caller looked.
            let mut is_expired = false; // told by the look that finds no row to answer with
            let live = |row: &Row| {
                is_expired = row.is_expired(self.clock());
                (!is_expired && self.batcher.hits_are_valid()).then(|| row.clone())
            };
            if let Some(row) = self.tier.cache.look(place, key.as_bytes(), live) {
                return Ok(Read { row: Some(row), served: Served::Hit, queued: Duration::ZERO });
            }
            if is_expired {
                self.tier.cache.remove(place, key.as_bytes());
            }
            if flights.has_unknown_outcome(key) {
                let what = "the outcome of an earlier write of this key is unknown until the store is back";
                return Err(Error::new(Kind::Unavailable, what));
            }
            self.tier.cache.missed(place);
            // Another server may own the store by now, and have acknowledged a write after an earlier read saw the row.
            match flights.join(key).filter(|_| self.batcher.hits_are_valid()) {
                Some(receiver) => (receiver, None),
                None => {
                    let (flight, receiver) = flights.start(key);
                    (receiver, Some(flight))
                }
            }
        };
        self.tier.meters.misses.add(1);
        let Some(flight) = flight else {
            self.tier.meters.collapsed.add(1);
            return self.answer(receiver).await?.0.map(|read| Read { served: Served::Collapsed, ..read });
        };
        let (tier, key_read) = (Arc::clone(&self.tier), key.clone());
        let complete = move |result, queued| tier.complete(place, &key_read, &flight, result, queued);
        self.batcher.read(key.clone(), Reply::new(complete));
        self.answer(receiver).await?.0
    }

    /// When a value ends that is written now.
    pub async fn end_after(&self, ttl: Duration) -> Result<Timestamp, WriteError> {
        let now = tokio::time::timeout(self.deadline, self.batcher.time()).await;
        let what = || format!("the store was not acquired within {} ms", self.deadline.as_millis());
        let now =
            now.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, what()))).map_err(WriteError::Store)?;
        Ok(now.after(ttl))
    }

    /// Makes any write. One of [`Intent::Touch`] leaves value and version as they are, and its condition fails if the row is absent.
    pub async fn write(
        &self,
        key: &Key,
        intent: Intent,
        WriteTerms { condition, idempotency }: WriteTerms,
        fill: Fill,
    ) -> Result<Made, WriteError> {
        let place = self.tier.cache.place(key.as_bytes());
        let generation = self.tier.begin_write(place, key);
        let (sender, receiver) = channel();
        let (tier, key_written) = (Arc::clone(&self.tier), key.clone());
        let reply = Reply::new(move |result: Result<Written, Error>, queued| {
            tier.end_write(place, &key_written, generation, &result, fill);
            sender.send(result.map(|written| (written, queued)));
        });
        self.batcher.write(WriteRequest { key: key.clone(), intent, condition, idempotency, reply });
        match self.answer(receiver).await.and_then(|result| result).map_err(WriteError::Store)? {
            (Written::Applied { version, existed, .. }, queued) => Ok(Made { queued, version, existed }),
            (Written::ConditionFailed(current), _) => Err(WriteError::ConditionFailed(current)),
            (Written::OtherRequest, _) => Err(WriteError::OtherRequest),
        }
    }

    /// Performs all `operations` in one commit, or none. With the outcome comes the memory that is reserved for its rows.
    pub(crate) async fn write_atomically(
        &self,
        operations: Vec<AtomicOperation>,
    ) -> Result<(AtomicOutcome, RowReservation), Error> {
        let written: Vec<Option<(Place, Key, u64)>> = operations
            .iter()
            .map(|AtomicOperation { key, intent, .. }| {
                intent.as_ref()?;
                let place = self.tier.cache.place(key.as_bytes());
                Some((place, key.clone(), self.tier.begin_write(place, key)))
            })
            .collect();
        let (sender, receiver) = channel();
        let tier = Arc::clone(&self.tier);
        let reply = Reply::new(move |mut outcome: Result<AtomicOutcome, Error>, _| {
            for (index, (place, key, generation)) in
                written.iter().enumerate().filter_map(|(index, written)| Some((index, written.as_ref()?)))
            {
                let not_written = || Err(Error::new(Kind::Refused, "a condition of the batch failed"));
                let result = match &outcome {
                    Ok(AtomicOutcome::Applied(answers)) => match &answers[index] {
                        AtomicAnswer::Written(written) => Ok(written.clone()),
                        _ => not_written(),
                    },
                    Ok(AtomicOutcome::ConditionFailed(of, current)) if *of == index => {
                        Ok(Written::ConditionFailed(*current))
                    }
                    Ok(AtomicOutcome::ConditionFailed(..)) => not_written(),
                    Err(error) => Err(error.clone()),
                };
                tier.end_write(*place, key, *generation, &result, Fill::IfAllowed);
            }
            let reservation = tier.count_answers(&mut outcome);
            sender.send(outcome.map(|outcome| (outcome, reservation)));
        });
        self.batcher.write_atomically(operations, reply);
        self.answer(receiver).await?
    }

    /// A part of a list, as the store has it.
    pub async fn list(&self, listing: Listing, with_values: bool) -> Result<Page, Error> {
        let (sender, receiver) = channel();
        let tier = Arc::clone(&self.tier);
        let reply = Reply::new(move |page: Result<Page, Error>, _| {
            let bytes = |page: &Page| page.rows.iter().map(|listed| listed.row.bytes()).sum();
            sender.send(tier.count(page, bytes));
        });
        self.batcher.list(listing, with_values, reply);
        self.answer(receiver).await?.0
    }

    /// Creates or replaces a row in the store, and leaves the key out of the cache.
    pub async fn preload(&self, key: &Key, content_type: &str, value: Vec<u8>) -> Result<Made, WriteError> {
        let row = Row::new(key, content_type, &value, Version::default());
        drop(value);
        self.write(key, Intent::Put(row), WriteTerms::default(), Fill::Never).await
    }

    /// Removes every row. Writes under way at the same time may come before or after it.
    pub async fn clear(&self) -> Result<(), Error> {
        self.tier.begin_clear();
        let (sender, receiver) = channel();
        let tier = Arc::clone(&self.tier);
        self.batcher.clear(Reply::new(move |result, _| {
            tier.end_clear();
            sender.send(result);
        }));
        self.answer(receiver).await?
    }

    async fn answer<T>(&self, receiver: Receiver<T>) -> Result<T, Error> {
        match tokio::time::timeout(self.deadline, receiver).await {
            Ok(Some((answer, waited))) => {
                self.tier.meters.answer_nanos.add(waited.as_nanos() as u64);
                Ok(answer)
            }
            Ok(None) => Err(Error::new(Kind::Unknown, "the store worker ended")),
            Err(_) => {
                let what = format!("the store did not answer within {} ms", self.deadline.as_millis());
                Err(Error::new(Kind::Unknown, what))
            }
        }
    }

    /// The store behind its batcher.
    pub fn store(&self) -> &Batcher {
        &self.batcher
    }

    /// What the cache holds.
    pub fn cache(&self) -> &Cache {
        &self.tier.cache
    }

    /// What the tier counted so far.
    pub fn meters(&self) -> &TierMeters {
        &self.tier.meters
    }
}

/// Whether a written row goes into the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// If the one rule allows it.
    IfAllowed,
    /// Never.
    Never,
}

impl Tier {
    /// The store answered a read: fills the cache if the one rule allows it, then answers the requests that wait.
    fn complete(
        &self,
        place: Place,
        key: &Key,
        flight: &Arc<Flight>,
        result: Result<Option<Row>, Error>,
        queued: Duration,
    ) {
        let stored = {
            // Ask about overlap and insert under one lock. Between the two a whole PUT could come and go, and this
            // older row would then sit in the cache until evicted.
            let mut flights = self.flights[place.shard].lock();
            let may_fill = flights.complete(key, flight);
            match &result {
                Ok(Some(row)) if may_fill => self.cache.fill(place, row.clone()),
                // A shadow policy may hold a row that has expired since.
                Ok(None) if may_fill => {
                    self.cache.remove(place, key.as_bytes());
                    false
                }
                Ok(found) if !may_fill => {
                    self.forget_if_older(place, key, found.as_ref());
                    false
                }
                _ => false,
            }
        };
        let served = self.weak_reads.map_or(Served::Miss { stored }, Served::Weak);
        let read = result.map(|row| Read { row, served, queued });
        flight.answer(&self.count(read, |read| read.row.as_ref().map_or(0, |row| row.value().len())));
    }

    /// Reserves memory for rows of so many bytes until the request has them. Without room they are dropped.
    fn count<T>(
        &self,
        result: Result<T, Error>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Counted<Result<T, Error>> {
        match result.as_ref().map(|found| self.reserve(bytes(found))) {
            Ok(Ok(reservation)) => (result, reservation),
            Ok(Err(Full)) => (Err(Error::new(Kind::Overloaded, Full::WHAT)), None),
            Err(_) => (result, None),
        }
    }

    /// The same for the rows that an atomic batch read. What it wrote is answered anyway.
    fn count_answers(&self, outcome: &mut Result<AtomicOutcome, Error>) -> RowReservation {
        let Ok(AtomicOutcome::Applied(answers)) = outcome else { return None };
        let bytes = answers.iter().map(|answer| match answer {
            AtomicAnswer::Read(Some(row)) => row.bytes(),
            _ => 0,
        });
        let reserved = self.reserve(bytes.sum());
        if reserved.is_err() {
            for answer in answers.iter_mut().filter(|answer| matches!(answer, AtomicAnswer::Read(Some(_)))) {
                *answer = AtomicAnswer::Dropped;
            }
        }
        reserved.ok().flatten()
    }

    /// Small rows are not counted.
    fn reserve(&self, bytes: usize) -> Result<RowReservation, Full> {
        let budget = self.budget.get().filter(|_| bytes > UNCOUNTED_BYTES_MAX);
        budget.map(|budget| Reservation::of(Arc::clone(budget), bytes).map(Arc::new)).transpose()
    }

    /// A read that overlapped a write may have seen its commit before the cache was updated. Requests that wait for the read
    /// get the new row now, so no request may get the old one after that.
    fn forget_if_older(&self, place: Place, key: &Key, found: Option<&Row>) {
        let is_older = |cached: &Row| {
            found.is_none_or(|found| match found.version().cmp(&cached.version()) {
                // A touch changes the expiry and keeps the version.
                Ordering::Equal => found.attributes() != cached.attributes(),
                other => other.is_gt(),
            })
        };
        if self.cache.peek(place, key.as_bytes(), is_older) == Some(true) {
            self.cache.remove(place, key.as_bytes());
        }
    }

    /// From here until [`Tier::end_clear`] nothing enters the cache, and nothing that began before that ever does.
    fn begin_clear(&self) {
        for (shard, flights) in self.flights.iter().enumerate() {
            let mut flights = flights.lock();
            flights.suspend();
            self.cache.clear_shard(shard);
        }
    }

    fn end_clear(&self) {
        for flights in &self.flights {
            flights.lock().resume();
        }
    }

    fn begin_write(&self, place: Place, key: &Key) -> u64 {
        self.flights[place.shard].lock().begin_write(key)
    }

    fn end_write(
        &self,
        place: Place,
        key: &Key,
        generation: u64,
        result: &Result<Written, Error>,
        fill: Fill,
    ) {
        // The cache learns of the commit, and later readers lose sight of flights that began before it, in one step.
        let mut flights = self.flights[place.shard].lock();
        let unknown_outcome = matches!(result, Err(error) if error.kind() == Kind::Unknown);
        let may_fill = flights.end_write(key, generation, unknown_outcome) && fill == Fill::IfAllowed;
        match result {
            // Of one that is superseded, the successor in the same commit comes right after. The cached row is older than both,
            // and must not be served after this write was acknowledged.
            Ok(Written::Applied { row: Some(row), superseded: false, .. }) if may_fill => {
                self.cache.insert(place, row.clone());
            }
            Ok(Written::Applied { .. }) => {
                self.cache.remove(place, key.as_bytes());
            }
            Err(_) if unknown_outcome => {
                self.cache.remove(place, key.as_bytes());
            }
            // Another program may have written a table of its own: whoever reads now must get what decided the condition.
            Ok(Written::ConditionFailed(current)) => {
                if self.cache.version(place, key.as_bytes()).is_some_and(|cached| Some(cached) != *current) {
                    self.cache.remove(place, key.as_bytes());
                }
            }
            Ok(Written::OtherRequest) | Err(_) => {}
        }
    }
}

impl Observer for Tier {
    fn store_up(&self) {
        for flights in &self.flights {
            flights.lock().open();
        }
    }

    fn store_down(&self) {
        self.meters.drops.add(1);
        for (shard, flights) in self.flights.iter().enumerate() {
            let mut flights = flights.lock();
            flights.close();
            self.cache.clear_shard(shard);
        }
    }

    fn expired(&self, key: &Key, now: Timestamp) {
        let place = self.cache.place(key.as_bytes());
        // Until then nobody writes another one into the cache.
        let _flights = self.flights[place.shard].lock();
        let is_live = |row: &Row| row.attributes().expires.is_none_or(|expires| expires > now);
        if self.cache.peek(place, key.as_bytes(), is_live) != Some(true) {
            // Also from shadow policies, which may hold more than the cache.
            self.cache.remove(place, key.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
