//! The HTTP server: listeners, workers, limits, drain.
//!
//! Knows neither which store nor which policy it serves. Each worker is a thread with a runtime and a listening socket
//! of its own on the same port; the kernel spreads the connections over them, and a connection stays where it is.

pub mod tiered;
mod accept;
mod access_log;
mod connection;
mod routes;
mod change;
mod list;
mod batch;
mod data;
mod json;
mod head;
mod idempotency;
mod hosts;
mod listen;
mod tls;
mod tokens;
mod access;
mod rate;
mod open_files;
mod reload;
mod lab;
mod compute;
mod compat;
mod events;
mod watch_query;
mod wire;
mod throttle;
mod timeouts;
mod budget;
mod faults;
mod pauses;
mod busy;
mod reply;
mod query;
mod error;
mod metrics;
mod prefixes;
mod dashboard;

pub use access_log::AccessLog;
#[cfg(feature = "test-support")]
pub use compat::fuzz;
pub use compat::{COMPAT_APIS, CompatApi, CompatListener, S3Credentials};
pub use listen::{Address, Listen, PassedSocket};
pub use tls::Tls;
pub use tokens::{Tokens, VERBS, check_tokens, random_token, token_hash};

use crate::error::Failure;
use crate::tiered::{Read, Served, Tiers};
use access_log::{Bytes, Entry, Recorder};
use budget::Budget;
use compat::{CompatState, S3State, Statistics, Times};
use compute::{Full, Pool};
use faults::Faults;
use hosts::Hosts;
use http1::request::Head;
use kv::faults::FaultInjector;
use kv::{Key, Row, VALUE_BYTES_MAX};
use listen::{Bound, SocketFile};
use metrics::{Metrics, WorkerMetrics};
use parking_lot::Mutex;
use pauses::Pauses;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use throttle::Throttle;
use timeouts::TimeoutChecker;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Semaphore, watch};
use wire::Spare;

/// Most connections, unless another number is given.
pub const CONNECTIONS_MAX: usize = 20_000;

/// Most memory of a connection that is not part of [`Options::memory_budget`]: of a head, a small body, and answers.
pub const CONNECTION_BYTES_MAX: usize = 128 << 10;

/// Most reads of batches that are under way, over all connections and shards.
const BATCH_READS_MAX: usize = 1024;

/// How the server serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// What is spoken at addresses of `listen` that are no Unix sockets; without it plain HTTP.
    pub tls: Option<Arc<Tls>>,
    /// Who may do what; without it everybody may do everything.
    pub tokens: Option<Arc<Tokens>>,
    /// Where pages about the server are. Only the shortest of them are at `listen` then. At an address of this machine they are
    /// there for everybody, and without TLS.
    pub ops_listen: Vec<Listen>,
    /// Compatibility APIs over the same tiers, each on a listener of its own. They know no tokens, and speak plain HTTP, but for
    /// `s3`.
    pub compat: Vec<CompatListener>,
    /// Who may use `s3`; without them it is not served.
    pub s3_credentials: Option<Arc<S3Credentials>>,
    /// What kinds of stores it serves, by shard: the schemes of their URLs.
    pub stores: Vec<String>,
    /// A failover of theirs may lose acknowledged writes.
    pub asynchronous_failover: bool,
    /// Names that `Host` and `Origin` of requests may have, besides those of loopback. On a loopback address, and where any
    /// is given, other requests are refused.
    pub hosts: Vec<String>,
    /// Injected faults, which may change while it serves. With them it is a server for measurements: anybody may clear the store
    /// and make the server compute.
    pub faults: Option<Arc<FaultInjector>>,
    /// Most rows the cache may hold, for an API that reports it.
    pub cache_entries: usize,
    /// Threads, at least one.
    pub workers: usize,
    /// Longest value, in bytes; at most [`VALUE_BYTES_MAX`].
    pub value_bytes: usize,
    /// Most bytes of request bodies and of values that are on their way, over all connections; what does not fit is answered
    /// 503.
    pub memory_budget: usize,
    /// Most connections; more are answered 503 and closed. Fewer where the limit of open files leaves no room for them. Unless given,
    /// as many as fit, up to [`CONNECTIONS_MAX`].
    pub connections: Option<usize>,
    /// Where requests are logged.
    pub access_log: Option<Arc<AccessLog>>,
    /// Whether every answer carries `Server-Timing`.
    pub timing: bool,
    /// How long a drain waits for what is in flight.
    pub drain: Duration,
    /// Whether the stores are handed over to another server then.
    pub standby: bool,
    /// How long the server waits for the next request of a connection.
    pub idle_timeout: Duration,
    /// How long it waits for a head, from its first byte; for a body, over which time the slowest tolerated rate counts; and for
    /// a client that does not take its answer, before that counts.
    pub head_timeout: Duration,
}

impl Options {
    /// Whether there are files that are read again.
    pub fn has_files(&self) -> bool {
        self.tls.is_some() || self.tokens.is_some() || self.s3_credentials.is_some()
    }

    /// What is where.
    fn places(&self) -> impl Iterator<Item = (Place, &Listen)> {
        let values = self.listen.iter().map(|at| (Place::Values, at));
        let compat = self.compat.iter().map(|CompatListener { api, listen }| (Place::Compat(api), listen));
        let operations = self.ops_listen.iter().map(|at| (Place::Operations, at));
        values.chain(compat).chain(operations)
    }
}

/// A running server.
pub struct Server {
    /// Where it listens.
    pub addresses: Vec<(Place, Address)>,
    /// The most connections that are open at once.
    pub connections: usize,
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Asks for files to be read again; dropped when the server ends.
    reload: mpsc::Sender<()>,
    /// Removed when it begins to end.
    socket_files: Vec<SocketFile>,
}

/// What is at an address of a server.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// The plain interface.
    Values,
    /// A compatibility API.
    Compat(&'static CompatApi),
    /// Pages about the server, if they have addresses of their own.
    Operations,
}

/// Sockets bound to the addresses of a server, one per worker each, by [`Options::places`]. They do not listen yet: what is wrong with
/// an address is known before a store is acquired, and clients that come too early are refused.
pub struct Sockets(Vec<Vec<Bound>>);

/// What all workers share.
struct Shared {
    options: Options,
    /// The most that are open at once.
    connections: usize,
    tiers: Tiers,
    /// What `s3` answers as `Last-Modified`.
    times: Times,
    metrics: Metrics,
    budget: Arc<Budget>,
    /// For each read of a batch, by shard. Those of small rows are not counted in the budget before they are answered.
    batch_reads: Box<[Semaphore]>,
    /// Where there is something to compute.
    compute: Option<Pool>,
    /// Connections that were refused and are still open.
    refused_connections: AtomicUsize,
    accept_failures: Mutex<Throttle>,
    handshake_failures: Mutex<Throttle>,
    /// In a server for measurements.
    faults: Option<Faults>,
    /// Becomes true when the server drains: for tasks that wait for it.
    draining: watch::Sender<bool>,
    /// The same, to be read with every answer.
    drains: AtomicBool,
}

/// A listening socket, and what is served there.
struct Listener {
    socket: OwnedFd,
    /// What it speaks, if not plain HTTP.
    tls: Option<Arc<Tls>>,
    interface: Interface,
}

/// What is served at an address.
#[derive(Clone)]
enum Interface {
    Plain(Arc<PlainState>),
    Compat(Arc<CompatState>),
    S3(Arc<S3State>),
}

impl Interface {
    /// What `place` is at an `address` that was bound for `at`. All addresses of a compatibility API have its `statistics`.
    fn of(
        place: Place,
        at: &Listen,
        address: &Address,
        options: &Options,
        statistics: &HashMap<&str, Arc<Statistics>>,
    ) -> Interface {
        let hosts = Hosts::of(address, at.name.as_deref(), &options.hosts);
        match (place, &options.s3_credentials) {
            (Place::Compat(api), Some(credentials)) if api.is_s3 => {
                Interface::S3(Arc::new(S3State { credentials: Arc::clone(credentials), hosts }))
            }
            (Place::Compat(api), _) => {
                let statistics = Arc::clone(&statistics[api.name]);
                Interface::Compat(Arc::new(CompatState { api, statistics, hosts }))
            }
            (Place::Values | Place::Operations, _) => {
                let has_values = matches!(place, Place::Values);
                let has_pages = !has_values || options.ops_listen.is_empty();
                let is_open = !has_values && address.is_local();
                let tokens = options.tokens.clone().filter(|_| !is_open);
                let is_restricted = tokens.is_some() || !(has_values && has_pages);
                Interface::Plain(Arc::new(PlainState { hosts, has_values, has_pages, tokens, is_restricted }))
            }
        }
    }

    /// What is spoken there, if not plain HTTP.
    fn tls(place: Place, address: &Address, options: &Options) -> Option<Arc<Tls>> {
        let may_be = match place {
            Place::Values => true,
            Place::Compat(api) => api.is_s3,
            Place::Operations => !address.is_local(),
        };
        options.tls.clone().filter(|_| may_be && matches!(address, Address::Tcp(_)))
    }
}

/// What the connections of an address have in common, in the plain interface.
struct PlainState {
    /// Those that it answers for.
    hosts: Option<Hosts>,
    /// Whether it has the routes that are no pages.
    has_values: bool,
    /// Whether it has all pages, and not only those that are everywhere.
    has_pages: bool,
    /// Where not everybody may do everything.
    tokens: Option<Arc<Tokens>>,
    /// Whether one of the last three has to be looked at.
    is_restricted: bool,
}

/// What the connections of one worker share.
struct Worker {
    shared: Arc<Shared>,
    metrics: Arc<WorkerMetrics>,
    timeouts: Rc<TimeoutChecker>,
    spare: Spare,
    pauses: Pauses,
    recorder: Option<Recorder>,
}

impl Sockets {
    /// Binds them to the addresses of `options`. What was `passed` for one of them is taken instead; the others stay there.
    pub fn bind(options: &Options, passed: &mut Vec<PassedSocket>) -> io::Result<Sockets> {
        let workers = options.workers.max(1);
        options
            .places()
            .map(|(_, at)| listen::bind(at, workers, passed))
            .collect::<io::Result<_>>()
            .map(Sockets)
    }
}

impl Server {
    /// Listens on the sockets of `options` and serves.
    pub fn start(options: Options, sockets: Sockets, tiers: Tiers) -> io::Result<Server> {
        debug_assert!(options.value_bytes <= VALUE_BYTES_MAX);
        let workers = options.workers.max(1);
        let mut listeners: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::new()).collect();
        let (mut addresses, mut socket_files) = (Vec::new(), Vec::new());
        let statistics = options.compat.iter().map(|at| (at.api.name, Arc::new(Statistics::new()))).collect();
        for ((place, at), bound) in options.places().zip(sockets.0) {
            for bound in bound {
                let tls = Interface::tls(place, &bound.address, &options);
                let interface = Interface::of(place, at, &bound.address, &options, &statistics);
                bound.listen()?;
                for (listeners, socket) in listeners.iter_mut().zip(bound.sockets) {
                    listeners.push(Listener { socket, tls: tls.clone(), interface: interface.clone() });
                }
                socket_files.extend(bound.file);
                addresses.push((place, bound.address));
            }
        }
        // After listening: a port that is taken is all there is to say then.
        let connections = open_files::make_room(options.connections, tiers.shards.len());
        let computes = options.faults.is_some() || options.compat.iter().any(|at| at.api.computes);
        let compute = computes.then(|| Pool::start(workers, compute::QUEUE_JOBS_MAX)).transpose()?;
        let budget = Arc::new(Budget::new(options.memory_budget));
        tiers.count_in(&budget);
        let shards = tiers.shards.len();
        let epochs = tiers.statuses().map(|status| status.epoch().unwrap_or_default());
        let shared = Arc::new(Shared {
            connections,
            times: Times::new(epochs, SystemTime::now()),
            tiers,
            metrics: Metrics::new(workers),
            budget,
            batch_reads: (0..shards).map(|_| Semaphore::new(BATCH_READS_MAX / shards)).collect(),
            compute,
            refused_connections: AtomicUsize::new(0),
            accept_failures: Mutex::default(),
            handshake_failures: Mutex::default(),
            faults: options.faults.clone().map(Faults::new),
            draining: watch::channel(false).0,
            drains: AtomicBool::new(false),
            options,
        });
        let mut workers = Vec::new();
        for (index, (listeners, metrics)) in listeners.into_iter().zip(&shared.metrics.workers).enumerate() {
            let (shared, metrics) = (Arc::clone(&shared), Arc::clone(metrics));
            let (failed, failure) = mpsc::channel();
            let thread = std::thread::Builder::new().name(format!("weir-worker-{index}"));
            workers.push(thread.spawn(move || {
                // A local runtime stays in its thread, and its tasks need not be `Send`.
                match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                    Ok(runtime) => {
                        drop(failed);
                        metrics.busy.begin(runtime.metrics());
                        runtime.block_on(accept::serve(Rc::new(Worker::new(shared, metrics)), listeners));
                    }
                    Err(error) => failed.send(error).unwrap_or_default(),
                }
            })?);
            // The sender is dropped without an error: the worker runs.
            failure.recv().map_or(Ok(()), Err)?;
        }
        let reload = reload::start(&shared.options)?;
        Ok(Server { addresses, connections, shared, workers, reload, socket_files })
    }

    /// Reads the files of certificates, tokens and credentials again, now; false if there are none.
    pub fn reload(&self) -> bool {
        self.shared.options.has_files() && self.reload.send(()).is_ok()
    }

    /// How often each worker has checked its timeouts, which it does several times a second.
    pub fn worker_checks(&self) -> impl Fn() -> Vec<u64> + Send + use<> {
        let workers = self.shared.metrics.workers.clone();
        move || workers.iter().map(|worker| worker.checks.get()).collect()
    }

    /// Hands the store over to a standby if there may be one, stops accepting, ends kept-alive connections with their next answer,
    /// finishes what is in flight (for as long as [`Options::drain`]), gives the store back.
    pub fn drain(self) {
        self.shared.drains.store(true, Relaxed);
        if self.shared.options.standby {
            // While this server still listens: what it refuses can be sent to the other one.
            self.shared.tiers.hand_over(self.shared.options.drain);
        }
        // Before another server may have made new ones.
        drop(self.socket_files);
        self.shared.draining.send_replace(true);
        for worker in self.workers {
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Runs `work` in the compute pool, where there is one.
    async fn compute<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Full> {
        self.compute.as_ref().ok_or(Full)?.run(work).await
    }
}

impl Worker {
    fn new(shared: Arc<Shared>, metrics: Arc<WorkerMetrics>) -> Worker {
        let shortest = shared.options.idle_timeout.min(shared.options.head_timeout);
        let timeouts = Rc::new(TimeoutChecker::new(shortest));
        let recorder = shared.options.access_log.clone().map(Recorder::new);
        Worker { shared, metrics, timeouts, spare: Spare::default(), pauses: Pauses::default(), recorder }
    }

    /// What the access log, where there is one, needs of a request.
    fn entry(&self, head: &Head<'_, '_>, before: Bytes) -> Option<Box<Entry>> {
        self.recorder.as_ref().map(|recorder| recorder.entry(head, recorder.samples(), before))
    }

    fn is_draining(&self) -> bool {
        self.shared.drains.load(Relaxed)
    }

    /// The row, of the cache or the store, and how it was served.
    async fn read(&self, key: &Key) -> Result<(Option<Row>, Served), Failure> {
        let tiers = &self.shared.tiers;
        if let Some((row, shard)) = tiers.cached(key.as_bytes(), Row::clone) {
            self.metrics.hits[shard].add(1);
            return Ok((Some(row), Served::Hit));
        }
        let read = self.get(key).await?;
        Ok((read.row, read.served))
    }

    /// The row, which the cache did not have just before.
    async fn get(&self, key: &Key) -> Result<Read, Failure> {
        self.counted(key, self.shared.tiers.get(key).await)
    }

    /// Counts it as a hit if the row came into the cache after the first look.
    fn counted(&self, key: &Key, read: Result<Read, tiered::Error>) -> Result<Read, Failure> {
        let read = read.map_err(|error| Failure::of_read(&error))?;
        if read.served == Served::Hit {
            self.metrics.hits[self.shared.tiers.shard_of(key.as_bytes())].add(1);
        }
        Ok(read)
    }
}
