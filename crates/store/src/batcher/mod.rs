//! Makes batches of single requests, and keeps the ownership of the store.
//!
//! A key's hash chooses its *queue*. A *store worker* is a thread and a session, and serves its own queue; while flushes are
//! slow the first worker serves all. One worker serves a queue at a time, so a key's writes are committed in the order they
//! queued, a key is in at most one batch in flight, and workers cannot deadlock in the store. A batch is whatever queued
//! while the one before was in flight. The *owner* thread acquires the lease of the store, and again whenever the lease or any
//! session is lost; in between every request fails at once.

mod apart;
mod batch;
mod config;
mod confirmed;
mod events;
mod expiry;
mod hand_over;
mod hit_lease;
mod long;
mod meters;
mod ownership;
mod worker;
mod replies;
mod requests;
mod status;
mod queue;
mod versions;

pub use config::{Batching, Config};
pub use events::{Event, EventLog, Next, Watch, Watched};
pub use long::{AtomicAnswer, AtomicOperation, AtomicOutcome, LIST_BYTES_MAX, LIST_TIME_MAX};
pub use meters::{Meters, WorkerMeters};
pub use replies::{Receiver, Reply, Sender, channel};
pub use status::{LastError, Status};

use super::{
    Answer, Capabilities, Conflicts, Error, Flush, Idempotency, Kind, Listed, Listing, Position, Role, Store,
    Workers, Writers,
};
use events::Events;
use hand_over::{KNOWN_FOR, Leaving};
use hit_lease::HitLease;
use kv::{Change, Clock, Key, Precondition, Row, Timestamp, Version, Write};
use long::LongRequest;
use parking_lot::Mutex;
use queue::Queues;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, RwLock, mpsc, watch};
use versions::Versions;

/// Something to write, and what to do when it is known whether it was.
pub struct WriteRequest {
    /// Whose row changes.
    pub key: Key,
    /// What becomes of it.
    pub intent: Intent,
    /// What must hold of the key just before.
    pub condition: Precondition,
    /// What it is known by if it comes again.
    pub idempotency: Option<Idempotency>,
    /// The requests of a key are answered in the order they were committed.
    pub reply: Reply<Written>,
}

/// What a write request does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Creates or replaces the row; the worker gives it its version.
    Put(Row),
    /// Removes the row; removing an absent one succeeds.
    Delete,
    /// Gives the row another end, and leaves value and version; of an absent one the condition fails.
    Touch(Option<Timestamp>),
    /// Removes the row if it has expired; else the condition fails.
    RemoveExpired,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The rows, in the order of their keys.
    pub rows: Vec<Listed>,
    /// Where the list goes on: [`Listing::from`] of the next page. `None`: here it ends.
    pub next: Option<Vec<u8>>,
}

/// How a write request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is durable.
    Applied {
        /// The version it was given.
        version: Version,
        /// Whether the key was there before.
        existed: bool,
        /// The row that the store now holds because of it; `None` after a delete.
        row: Option<Row>,
        /// Whether a later write of the key in the same commit has already replaced it.
        superseded: bool,
    },
    /// Its precondition did not hold; the key's version then.
    ConditionFailed(Option<Version>),
    /// Another request was made before with its `Idempotency-Key`.
    OtherRequest,
}

/// Is notified when the store is owned and when it is lost, on the owner thread, and of rows that the store's workers remove by
/// themselves. `()` ignores it.
pub trait Observer: Send + Sync {
    /// The server owns the store and no earlier statement can take effect any more; requests will be served from now on.
    fn store_up(&self) {}
    /// The store is lost; it may be another's, or change, from now on.
    fn store_down(&self) {}
    /// The row under `key` had expired by `now`, and was removed.
    fn expired(&self, _key: &Key, _now: Timestamp) {}
}

impl Observer for () {}

/// A store behind workers. Dropping it answers what is queued, then releases the store.
pub struct Batcher {
    shared: Arc<Shared>,
    reads: Queues<ReadRequest>,
    long: Queues<LongRequest>,
    writes: Queues<WriteRequest>,
    /// Each batch under way has one; `None`: new ones are refused.
    batches: Mutex<Option<Arc<()>>>,
    /// The store workers' and, last, the owner's.
    threads: Vec<JoinHandle<()>>,
}

struct ReadRequest {
    key: Key,
    reply: Reply<Option<Row>>,
}

/// What the owner thread and the workers share.
struct Shared {
    store: Box<dyn Store>,
    config: Config,
    status: watch::Sender<Status>,
    /// The epoch of the lease for which the workers have to have sessions. They open them before the store counts as up.
    claimed: watch::Sender<Option<u64>>,
    /// How many of them have theirs.
    opened: watch::Sender<usize>,
    /// Where a worker tells the owner thread that it lost the session of an epoch, or got none, and why.
    lost: mpsc::UnboundedSender<(u64, Error)>,
    /// Sessions open now, or being opened: a new lease waits until the old ones are gone.
    sessions: AtomicUsize,
    versions: Versions,
    /// The store's.
    clock: Arc<Clock>,
    /// Whether there may be rows that expire. Else nothing has to be read to know that a row has not.
    may_expire: AtomicBool,
    /// Until when rows may be answered without asking the store.
    hit_lease: HitLease,
    leaving: watch::Sender<Leaving>,
    /// Whether new requests are refused, because another server takes over.
    refuses: AtomicBool,
    /// Held by a clear or an atomic batch alone, and shared by all other writes from the look at their preconditions to their
    /// answers. After an unknown outcome it is kept until the store counts as lost.
    writing: RwLock<()>,
    /// Whether the last batch of writes was refused whatever was in it.
    refuses_writes: AtomicBool,
    events: Arc<Events>,
    last_error: Mutex<Option<LastError>>,
    meters: Arc<Meters>,
}

impl Batcher {
    /// Acquires the store and starts its workers. The first lease's failure is the caller's, unless it is a replica's that
    /// cannot be reached; later ones are tried again.
    pub fn start(
        store: Box<dyn Store>,
        config: Config,
        observer: Arc<dyn Observer>,
    ) -> Result<Batcher, Error> {
        let workers = config.workers.unwrap_or_else(|| store.workers());
        if let (Some(flush), Some(faults)) = (store.flush(), &config.faults) {
            flush.inject(Arc::clone(faults));
        }
        let events = Arc::new(Events::new(config.event_log));
        let (status, _) = watch::channel(Status::Down("ownership is not acquired yet".into()));
        let (lost, lost_receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            clock: store.clock(),
            store,
            config,
            status,
            claimed: watch::channel(None).0,
            opened: watch::channel(0).0,
            lost,
            sessions: AtomicUsize::new(0),
            versions: Versions::default(),
            may_expire: AtomicBool::new(false),
            hit_lease: HitLease::default(),
            leaving: watch::channel(Leaving::No).0,
            refuses: AtomicBool::new(false),
            writing: RwLock::default(),
            refuses_writes: AtomicBool::new(false),
            events,
            last_error: Mutex::default(),
            meters: Arc::default(),
        });
        let started = Batcher::start_threads(&shared, workers, observer, lost_receiver);
        if started.is_err() {
            // The threads that were started end.
            shared.status.send_replace(Status::Stopped);
        }
        started
    }

    fn start_threads(
        shared: &Arc<Shared>,
        workers: Workers,
        observer: Arc<dyn Observer>,
        lost: mpsc::UnboundedReceiver<(u64, Error)>,
    ) -> Result<Batcher, Error> {
        let of_store = |count: usize| if shared.config.role == Role::Replica { 0 } else { count.max(1) };
        let (reads, read_threads) = worker::spawn::<ReadRequest>("weir-read", workers.read.max(1), shared)?;
        let (writes, write_threads) = worker::spawn("weir-write", of_store(workers.write), shared)?;
        let (long, long_threads) = worker::spawn("weir-long", of_store(1), shared)?;
        let late_long = worker::refuse_late(long.clone(), Arc::clone(shared));
        let sweep =
            expiry::remove_expired(long.clone(), writes.clone(), Arc::clone(shared), Arc::clone(&observer));
        let late_reads = worker::refuse_late(reads.clone(), Arc::clone(shared));
        let late_writes = worker::refuse_late(writes.clone(), Arc::clone(shared));
        let beside = async { tokio::join!(late_reads, late_writes, late_long, sweep).0 };
        let mut threads: Vec<_> = read_threads.into_iter().chain(long_threads).chain(write_threads).collect();
        threads.push(ownership::spawn(shared, observer, lost, threads.len(), beside)?);
        let batches = Mutex::new(Some(Arc::default()));
        Ok(Batcher { shared: Arc::clone(shared), reads, long, writes, batches, threads })
    }

    /// Reads the row under `key`, `None` if absent.
    pub fn read(&self, key: Key, mut reply: Reply<Option<Row>>) {
        if let Some(error) = self.shared.store.refuses(&key, None) {
            return reply.give(Err(error));
        }
        self.push(&self.reads, self.queue_of(&self.reads, &key), ReadRequest { key, reply });
    }

    /// Writes, durably.
    pub fn write(&self, mut request: WriteRequest) {
        if self.writes.count() == 0 {
            return request.reply.give(Err(Error::new(Kind::Rejected, "a replica is only read")));
        }
        let row = if let Intent::Put(row) = &request.intent { Some(row) } else { None };
        if let Some(error) = self.shared.store.refuses(&request.key, row) {
            return request.reply.give(Err(error));
        }
        if request.idempotency.is_some() && !self.has_events() {
            let what = "this store does not keep Idempotency-Keys; send the request without one";
            return request.reply.give(Err(Error::new(Kind::Unfit, what)));
        }
        // A touch writes what it has read.
        let is_by_row = request.condition != Precondition::None || matches!(request.intent, Intent::Touch(_));
        if self.shared.config.batching == Batching::Off && is_by_row {
            let what = "with batching off writes have no order, so touches and conditional ones are refused";
            return request.reply.give(Err(Error::new(Kind::Rejected, what)));
        }
        if matches!(&request.intent, Intent::Put(row) if row.attributes().expires.is_some())
            || matches!(request.intent, Intent::Touch(Some(_)))
        {
            self.shared.may_expire.store(true, Relaxed);
        }
        let request = if self.shared.config.acknowledge_early { self.acknowledge(request) } else { request };
        self.push(&self.writes, self.queue_of(&self.writes, &request.key), request);
    }

    /// Lists rows, with their values if that is wanted. A page ends with [`Listing::limit`] rows, with 4 MiB, or after 2 s.
    pub fn list(&self, listing: Listing, with_values: bool, mut reply: Reply<Page>) {
        if let Some(why) = self.capabilities().no_lists {
            return reply.give(Err(Error::new(Kind::Unsupported, why)));
        }
        self.push_long(LongRequest::List { listing, with_values, reply });
    }

    /// Performs all `operations` in one commit, or none. The kind of an error says whether it may have happened, and holds for all.
    pub fn write_atomically(&self, operations: Vec<AtomicOperation>, mut reply: Reply<AtomicOutcome>) {
        if let Some(why) = self.capabilities().no_atomic_batches {
            return reply.give(Err(Error::new(Kind::Unsupported, why)));
        }
        let refused = operations.iter().find_map(|AtomicOperation { key, intent, .. }| {
            let row = if let Some(Intent::Put(row)) = intent { Some(row) } else { None };
            self.shared.store.refuses(key, row)
        });
        if let Some(error) = refused {
            return reply.give(Err(error));
        }
        let expires = |operation: &AtomicOperation| matches!(&operation.intent, Some(Intent::Put(row)) if row.attributes().expires.is_some());
        if operations.iter().any(expires) {
            self.shared.may_expire.store(true, Relaxed);
        }
        self.push_long(LongRequest::Atomic { operations, reply });
    }

    /// Watches keys from behind `since`, or from now on. `news` is notified when there is something to be had.
    pub fn watch(&self, watched: Watched, since: Option<Position>, news: &Arc<Notify>) -> Watch {
        Watch::new(&self.shared.events, watched, since, news)
    }

    /// How many bytes of events the store keeps.
    pub fn stored_event_bytes(&self) -> u64 {
        self.shared.events.stored_bytes()
    }

    /// Whether every write is told as an event. Without batches writes have no order.
    pub fn has_events(&self) -> bool {
        self.shared.config.batching == Batching::On && self.capabilities().has_events()
    }

    /// What the store can do.
    pub fn capabilities(&self) -> Capabilities {
        self.shared.store.capabilities()
    }

    /// The time of the store. Before its first lease nobody knows it: this waits for it, or fails as a request does.
    pub async fn time(&self) -> Result<Timestamp, Error> {
        let asked = Instant::now();
        let mut status = self.shared.status.subscribe();
        while !self.shared.clock.is_set() {
            let away = status.borrow_and_update().clone();
            let is_held = match &away {
                Status::Up(_) | Status::Starting => true,
                Status::Standby { since, .. } => asked > *since + KNOWN_FOR,
                Status::Down(_) | Status::Stopped => false,
            };
            if let (false, Err(error)) = (is_held, away.epoch()) {
                return Err(error);
            }
            if status.changed().await.is_err() {
                return Err(Error::new(Kind::Unavailable, "the server ends"));
            }
        }
        Ok(self.shared.clock.now())
    }

    /// The clock of the store.
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Removes every row, durably. Rows that are written meanwhile may be removed or not. Waits for the writes under way as long as a
    /// request waits in a queue. Lists and atomic batches wait for it likewise.
    pub fn clear(&self, mut reply: Reply<()>) {
        if let Some(why) = self.capabilities().no_clear {
            return reply.give(Err(Error::new(Kind::Unsupported, why)));
        }
        self.push_long(LongRequest::Clear { reply });
    }

    /// How long a request waits in a queue at most.
    pub fn queue_wait_max(&self) -> Duration {
        self.shared.config.queue_wait_max
    }

    /// Answers a write as if it were committed; see [`Config::acknowledge_early`].
    fn acknowledge(&self, mut request: WriteRequest) -> WriteRequest {
        let version = self.shared.next_version();
        let row = match &request.intent {
            Intent::Put(row) => Some(row.clone().with_version(version)),
            _ => None,
        };
        request.reply.give(Ok(Written::Applied { version, existed: false, row, superseded: false }));
        WriteRequest { reply: Reply::new(|_, _| {}), ..request }
    }

    /// The queue for `key`: always the same one, whatever it is asked for; with batching off that of the idlest worker.
    fn queue_of<R>(&self, queues: &Queues<R>, key: &Key) -> usize {
        if self.shared.config.batching == Batching::Off
            && let Some(idlest) = queues.idlest()
        {
            return idlest;
        }
        queue_index(key, queues.count())
    }

    fn push_long(&self, request: LongRequest) {
        if self.long.count() == 0 {
            let what = "a replica only answers reads of single keys";
            return worker::Request::fail(request, Error::new(Kind::Rejected, what));
        }
        self.push(&self.long, 0, request);
    }

    fn push<R: worker::Request>(&self, queues: &Queues<R>, index: usize, request: R) {
        let Config { queue_requests, queue_bytes, .. } = self.shared.config;
        if self.shared.refuses.load(Relaxed) {
            return request.fail(hand_over::refused());
        }
        let bytes = request.bytes();
        if let Err(refused) = queues.push(index, request, bytes, (queue_requests, queue_bytes)) {
            R::meters(&self.shared).shed.add(1);
            refused.fail(overloaded(None));
        }
    }

    /// Whether rows that were read or written before may be answered without asking the store.
    pub fn hits_are_valid(&self) -> bool {
        self.shared.hit_lease.is_valid()
    }

    /// Whether requests can be served now.
    pub fn status(&self) -> Status {
        self.shared.status.borrow().clone()
    }

    /// Whether the store, which is owned, refuses all writes for now, as with a full disk. The next write may find that it no longer does.
    pub fn refuses_writes(&self) -> bool {
        matches!(self.status(), Status::Up(_)) && self.shared.refuses_writes.load(Relaxed)
    }

    /// Why the store was lost, could not be acquired, or began to refuse writes, the last time that it happened.
    pub fn last_error(&self) -> Option<LastError> {
        self.shared.last_error.lock().clone()
    }

    /// Most requests that may wait in one queue.
    pub fn queue_limit(&self) -> usize {
        self.shared.config.queue_requests
    }

    /// What the workers counted so far.
    pub fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.shared.meters)
    }

    /// The store's flush, where the store is embedded.
    pub fn flush(&self) -> Option<Arc<Flush>> {
        self.shared.store.flush()
    }

    /// The store's [`Store::conflicts`].
    pub fn conflicts(&self) -> Option<Arc<Conflicts>> {
        self.shared.store.conflicts()
    }

    /// How many workers there are.
    pub fn workers(&self) -> Workers {
        Workers { read: self.reads.count(), write: self.writes.count() }
    }

    /// Requests that wait in the read and the write workers.
    pub fn queued(&self) -> Workers {
        Workers { read: self.reads.len(), write: self.writes.len() }
    }
}

impl Drop for Batcher {
    fn drop(&mut self) {
        // Workers end when their queue is closed and empty; the owner thread, which holds the lease, ends after them.
        self.reads.close();
        self.long.close();
        self.writes.close();
        let workers = self.threads.len().saturating_sub(1);
        if !have_ended(&self.threads[..workers]) {
            log::warn!("the store does not answer; requests in flight are dropped");
        }
        self.shared.status.send_replace(Status::Stopped);
        if !have_ended(&self.threads) {
            log::warn!("the store does not answer; its threads are abandoned");
        }
    }
}

/// Which of `count` queues is the one of `key`.
fn queue_index(key: &Key, count: usize) -> usize {
    let hash = foldhash::fast::FixedState::default().hash_one(key.as_bytes());
    (hash >> 32) as usize % count
}

/// Starts a thread with a runtime of its own.
pub(super) fn start_thread(
    name: &str,
    run: impl FnOnce(Runtime) + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let cannot = |error| {
        let remedy =
            "raise `ulimit -n` and `ulimit -u`, or lower --store-read-workers or --store-write-workers";
        Error::new(Kind::Config, format!("cannot start the thread {name}: {error}; {remedy}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    std::thread::Builder::new().name(name.to_owned()).spawn(move || run(runtime)).map_err(cannot)
}

/// How long the threads may take to end by themselves.
const ENDING_MAX: Duration = Duration::from_secs(5);

/// Waits for that; whether they have.
fn have_ended(threads: &[JoinHandle<()>]) -> bool {
    let deadline = Instant::now() + ENDING_MAX;
    while !threads.iter().all(JoinHandle::is_finished) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

impl Shared {
    /// Remembers why the store cannot be used.
    fn failed(&self, what: String) {
        *self.last_error.lock() = Some(LastError { at: SystemTime::now(), what });
    }

    /// Remembers whether the store refuses writes, by what became of these. Removals are taken by a full disk, too.
    fn note_write<T>(&self, writes: &[Write], written: &Answer<T>) {
        match written {
            // Of one that is divided, the parts say it.
            Err(error) if error.is_divisible() => {}
            Err(error) if error.kind() == Kind::Refused && !self.refuses_writes.swap(true, Relaxed) => {
                self.failed(error.to_string());
            }
            Ok(_) if writes.iter().any(|of| matches!(of.change, Change::Put(_))) => {
                self.refuses_writes.store(false, Relaxed);
            }
            _ => {}
        }
    }

    /// Tells the owner thread that the store of `epoch` is lost, and waits until nothing is served from it. The owner thread may have
    /// gone first, at the very end.
    async fn lose(&self, epoch: u64, error: &Error) {
        let _ = self.lost.send((epoch, error.clone()));
        let _ = self.status.subscribe().wait_for(|status| *status != Status::Up(epoch)).await;
    }

    /// The same if something may have happened or may happen yet: whatever is decided meanwhile would not know of it.
    async fn lose_if_unknown(&self, error: Option<&Error>) {
        let epoch = self.status.borrow().epoch();
        if let (Some(error), Ok(epoch)) = (error.filter(|error| error.kind() == Kind::Unknown), epoch) {
            self.lose(epoch, error).await;
        }
    }

    /// A version greater than all before it.
    fn next_version(&self) -> Version {
        match self.is_shared() {
            true => self.versions.next_at(self.clock.now()),
            false => self.versions.next(),
        }
    }

    /// Whether other servers write the store, and nobody owns it.
    fn is_shared(&self) -> bool {
        self.store.capabilities().writers == Writers::Servers
    }
}

/// Why a request that waited too long, or behind too many, is refused.
fn overloaded(waited: Option<Duration>) -> Error {
    let message = match waited {
        Some(waited) => {
            format!("the request waited {} ms for the store; it was not sent", waited.as_millis())
        }
        None => "too many requests wait for the store; this one was not sent".to_owned(),
    };
    Error::new(Kind::Overloaded, message)
}

/// Why a request that waited too long for other writes to end is refused. Others would wait behind it.
fn held_up(what: &str) -> Error {
    Error::new(Kind::Overloaded, format!("a write that is under way holds {what} up"))
}

#[cfg(test)]
mod tests;
