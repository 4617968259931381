//! The server's counters and how they are shown: Prometheus text at `/metrics`, flat JSON at `/stats`.
//!
//! Every worker has counters of its own, which are added up when they are read.

use super::busy::Busy;
use super::compat::S3Credentials;
use super::compute::Pool;
use super::dashboard;
use super::faults::Faults;
use super::prefixes::PrefixSampler;
use super::reload::Reloadable;
use super::reply::{Answer, HTML, JSON, TEXT};
use super::tls::{HANDSHAKES, Tls};
use super::tokens::Tokens;
use super::{Listen, Options, Shared, Worker};
use crate::tiered::{LastError, SHARDS_MAX, ShadowCounts, Status, Tiered, Tiers};
use http1::request::Method;
use kv::counters::{Counter, Distribution, Histogram, micros};
use kv::proto;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

/// The counters of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerMetrics {
    /// By method and status, see [`Method::NAMES`] and [`STATUSES`].
    requests: [[Counter; STATUSES.len()]; Method::NAMES.len()],
    /// From when the request came, or could be begun, to when it was answered, in microseconds.
    duration: Histogram,
    /// Reads answered from the cache, by shard. In place: on a heap of their own, two workers' might share a cache line.
    pub(super) hits: [Counter; SHARDS_MAX],
    /// Connections accepted.
    pub(super) connections: Counter,
    /// Connections refused because too many were open.
    pub(super) shed_connections: Counter,
    /// Which prefixes its keys have.
    pub(super) prefixes: PrefixSampler,
    /// Times it checked the timeouts.
    pub(super) checks: Counter,
    /// How long it did not wait for events.
    pub(super) busy: Busy,
    /// TLS handshakes, by [`HANDSHAKES`].
    pub(super) handshakes: [Counter; HANDSHAKES.len()],
}

/// The counters of all workers, and what else is shown.
pub(super) struct Metrics {
    pub(super) workers: Box<[Arc<WorkerMetrics>]>,
    /// Connections open now.
    pub(super) open_connections: AtomicUsize,
    /// Connections to which events are told.
    pub(super) watchers: AtomicUsize,
    pub(super) started: Instant,
}

/// Every status the server answers with; the last stands for any other.
const STATUSES: [u16; 28] = [
    200, 201, 204, 304, 400, 404, 405, 408, 412, 413, 414, 417, 431, 500, 501, 503, 504, 505, 403, 409, 429,
    411, 415, 206, 416, 401, 422, 0,
];

impl WorkerMetrics {
    /// Counts one answered request, whose time follows; `method` is `None` where its head could not be parsed.
    pub(super) fn counted(&self, method: Option<Method>, status: u16) {
        let status = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        self.requests[method.unwrap_or(Method::Other) as usize][status].add(1);
    }

    /// Counts the time that each of `requests` took.
    pub(super) fn took(&self, took: Duration, requests: u64) {
        if requests > 0 {
            self.duration.record_many(micros(took), requests);
        }
    }
}

impl Metrics {
    pub(super) fn new(workers: usize) -> Metrics {
        Metrics {
            workers: (0..workers).map(|_| Arc::default()).collect(),
            open_connections: AtomicUsize::new(0),
            watchers: AtomicUsize::new(0),
            started: Instant::now(),
        }
    }

    fn sum(&self, pick: impl Fn(&WorkerMetrics) -> &Counter) -> f64 {
        self.workers.iter().map(|worker| pick(worker).get()).sum::<u64>() as f64
    }
}

/// The samples of all metrics, now.
fn collect(worker: &Worker) -> Samples {
    let Shared { metrics, tiers, compute, faults, budget, options, .. } = &*worker.shared;
    let mut page = Samples::default();
    page.number("weir_build_info", concat!("version=\"", env!("CARGO_PKG_VERSION"), "\""), 1.0);
    for (m, method) in Method::NAMES.iter().enumerate() {
        for (s, status) in STATUSES.iter().enumerate() {
            let count = metrics.sum(|worker| &worker.requests[m][s]);
            // What begins with the first failures has no growth yet, and an alert misses them.
            let is_expected = m < Method::Other as usize && matches!(status, 500 | 503 | 504);
            if count > 0.0 || is_expected {
                let labels = format!("method=\"{method}\",code=\"{status}\"");
                page.number("weir_http_requests_total", &labels, count);
            }
        }
    }
    let durations = metrics.workers.iter().map(|worker| &worker.duration);
    page.histogram("weir_http_request_duration_seconds", "", durations, 1e6);
    page.number("weir_http_connections", "", metrics.open_connections.load(Relaxed) as f64);
    page.number("weir_watchers", "", metrics.watchers.load(Relaxed) as f64);
    page.number("weir_http_connections_limit", "", worker.shared.connections as f64);
    page.number("weir_http_connections_total", "", metrics.sum(|worker| &worker.connections));
    if let Some(Tls(files)) = worker.shared.options.tls.as_deref() {
        for (index, result) in HANDSHAKES.iter().enumerate() {
            let count: u64 = metrics.workers.iter().map(|worker| worker.handshakes[index].get()).sum();
            page.number("weir_tls_handshakes_total", &format!("result=\"{result}\""), count as f64);
        }
        if let Some(end) = files.current().end {
            let since = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            page.number("weir_tls_certificate_expiry_timestamp_seconds", "", since.as_secs_f64());
        }
        reloads(&mut page, files);
    }
    if let Some(Tokens(files)) = worker.shared.options.tokens.as_deref() {
        reloads(&mut page, files);
    }
    if let Some(S3Credentials(files)) = worker.shared.options.s3_credentials.as_deref() {
        reloads(&mut page, files);
    }
    page.number("weir_workers", "", metrics.workers.len() as f64);
    let busy: Duration = metrics.workers.iter().map(|worker| worker.busy.so_far()).sum();
    page.number("weir_worker_busy_seconds_total", "", busy.as_secs_f64());
    let answers = tiers.shards.iter().map(|tiered| secs(&tiered.meters().answer_nanos)).sum();
    page.number("weir_worker_queue_seconds_total", "", answers);
    page.number(SHED, "reason=\"connections\"", metrics.sum(|worker| &worker.shed_connections));
    page.number(SHED, "reason=\"memory\"", budget.shed.get() as f64);
    page.number("weir_memory_budget_bytes", "", budget.bytes as f64);
    page.number("weir_memory_reserved_bytes", "", budget.reserved() as f64);
    for (prefix, requests) in most_asked(metrics) {
        page.number("weir_prefix_requests", &format!("prefix=\"{}\"", escape(&prefix)), requests as f64);
    }
    if let Some(lock) = faults.as_ref().and_then(Faults::lock_totals) {
        page.number("weir_lock_busy_seconds_total", "lock=\"commit\"", lock.busy.as_secs_f64());
        page.number("weir_lock_queue_seconds_total", "lock=\"commit\"", lock.waited.as_secs_f64());
    }
    if let Some(Pool { meters, .. }) = compute {
        page.number(SHED, "reason=\"compute\"", meters.shed.get() as f64);
        page.number("weir_compute_threads", "", meters.threads as f64);
        page.number("weir_compute_queued", "", meters.queued.load(Relaxed) as f64);
        page.number("weir_compute_busy_seconds_total", "", secs(&meters.busy_nanos));
        page.histogram("weir_compute_queue_seconds", "", [&meters.waited], 1e6);
    }
    if let Some(replica) = &tiers.replica {
        page.number("weir_replica_up", "", f64::from(replica.is_up()));
        page.number("weir_replica_reads_total", "", replica.reads.get() as f64);
        for shard in 0..tiers.shards.len() {
            if let Some(bytes) = replica.lag.bytes(shard) {
                page.number("weir_replica_lag_bytes", &format!("shard=\"{shard}\""), bytes as f64);
            }
        }
    }
    // They name hosts and users: not for anybody who can reach the server.
    let Options { listen, tokens, ops_listen, .. } = &worker.shared.options;
    let pages = if ops_listen.is_empty() { listen } else { ops_listen };
    let shows_reasons = tokens.is_some() || pages.iter().all(Listen::is_local);
    for (index, tiered) in tiers.shards.iter().enumerate() {
        if tiers.shards.len() > 1 {
            page.shard = format!("shard=\"{index}\"");
        }
        let kind = options.stores.get(index).map_or("", String::as_str);
        page.number("weir_store_info", &format!("kind=\"{kind}\""), 1.0);
        collect_shard(&mut page, tiered, metrics.sum(|worker| &worker.hits[index]), shows_reasons);
    }
    page.shard.clear();
    if let Some(log) = &options.access_log {
        page.number("weir_access_log_lines_total", "", log.lines.get() as f64);
        page.number("weir_access_log_dropped_total", "", log.dropped.get() as f64);
    }
    page.number("weir_store_asynchronous_failover", "", f64::from(options.asynchronous_failover));
    page.number("weir_draining", "", f64::from(worker.is_draining()));
    page.number("weir_uptime_seconds", "", metrics.started.elapsed().as_secs_f64());
    page
}

fn reloads<T>(page: &mut Samples, files: &Reloadable<T>) {
    let label = format!("files=\"{}\"", files.name);
    page.number("weir_reloads_total", &label, files.generation() as f64);
    page.number("weir_reload_failed", &label, f64::from(files.fails()));
}

fn collect_shard(page: &mut Samples, tiered: &Tiered, hits: f64, shows_reasons: bool) {
    let (tier, store, cache) = (tiered.meters(), tiered.store().meters(), tiered.cache().counts());
    let collapsed = tier.collapsed.get();
    let misses = tier.misses.get().saturating_sub(collapsed);
    for (result, count) in [("hit", hits), ("miss", misses as f64), ("collapsed", collapsed as f64)] {
        page.number("weir_cache_requests_total", &format!("result=\"{result}\""), count);
    }
    for ShadowCounts { policy, hits, misses } in tiered.cache().shadow_counts() {
        for (result, count) in [("hit", hits), ("miss", misses)] {
            let labels = format!("policy=\"{policy}\",result=\"{result}\"");
            page.number("weir_shadow_requests_total", &labels, count as f64);
        }
    }
    page.number("weir_cache_entries", "", cache.entries as f64);
    page.number("weir_cache_bytes", "", cache.bytes as f64);
    let most = tiered.cache().limits();
    page.number("weir_cache_limit_entries", "", most.entries as f64);
    page.number("weir_cache_limit_bytes", "", most.bytes as f64);
    page.number("weir_cache_evictions_total", "", cache.evictions as f64);
    page.number("weir_cache_drops_total", "", tier.drops.get() as f64);
    let (workers, queued) = (tiered.store().workers(), tiered.store().queued());
    for (operation, meters, workers, queued) in [
        ("operation=\"read\"", &store.read, workers.read, queued.read),
        ("operation=\"write\"", &store.write, workers.write, queued.write),
    ] {
        page.number("weir_store_workers", operation, workers as f64);
        page.number("weir_store_queued", operation, queued as f64);
        // Each worker has a queue.
        page.number("weir_store_queue_limit", operation, (tiered.store().queue_limit() * workers) as f64);
        page.number("weir_store_busy_seconds_total", operation, secs(&meters.busy_nanos));
        page.number("weir_store_request_seconds_total", operation, secs(&meters.request_nanos));
        page.histogram("weir_store_batch_size", operation, [&meters.batch_size], 1.0);
        page.histogram("weir_store_duration_seconds", operation, [&meters.duration], 1e6);
        page.histogram("weir_store_queue_seconds", operation, [&meters.queued], 1e6);
    }
    if let Some(flush) = tiered.store().flush() {
        let totals = flush.totals();
        page.number("weir_flushes_total", "", totals.count as f64);
        page.number("weir_flush_busy_seconds_total", "", totals.busy.as_secs_f64());
        page.number("weir_flush_queue_seconds_total", "", totals.waited.as_secs_f64());
    }
    if let Some(conflicts) = tiered.store().conflicts() {
        page.number("weir_store_conditional_writes_total", "", conflicts.statements.get() as f64);
        page.number("weir_store_conflicts_total", "", conflicts.lost.get() as f64);
    }
    page.number("weir_store_leases_total", "", store.leases.get() as f64);
    page.number("weir_store_expired_total", "", store.expired.get() as f64);
    page.number("weir_store_event_log_bytes", "", tiered.store().stored_event_bytes() as f64);
    let status = tiered.store().status();
    page.number("weir_store_standby", "", f64::from(matches!(status, Status::Standby { .. })));
    let epoch = status.epoch();
    page.number("weir_store_up", "", f64::from(epoch.is_ok()));
    if let Ok(epoch) = epoch {
        page.number("weir_store_epoch", "", epoch as f64);
    }
    page.number("weir_store_refuses_writes", "", f64::from(tiered.store().refuses_writes()));
    if let Some(LastError { at, what }) = tiered.store().last_error() {
        let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let what = if shows_reasons { what } else { "the server's log says why".to_owned() };
        let reason = format!("reason=\"{}\"", escape(&what));
        page.number("weir_store_last_error_timestamp_seconds", &reason, at.as_secs_f64());
    }
    let shed: u64 = [&store.read, &store.write, &store.long].map(|meters| meters.shed.get()).iter().sum();
    page.number(SHED, "reason=\"queue\"", shed as f64);
}

fn secs(nanos: &Counter) -> f64 {
    nanos.get() as f64 * 1e-9
}

/// The prefixes that were asked for most, and at least how often.
fn most_asked(metrics: &Metrics) -> Vec<(String, u64)> {
    let mut total = BTreeMap::new();
    metrics.workers.iter().for_each(|worker| worker.prefixes.add_to(&mut total));
    let mut most: Vec<(String, u64)> = total.into_iter().collect();
    most.sort_by_key(|(_, requests)| std::cmp::Reverse(*requests));
    most.truncate(PREFIXES_MAX);
    most
}

/// The value of a label, which may be anything.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A page about the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) path: &'static str,
    pub(super) show: fn(&Worker) -> Answer,
    /// What somebody without a token gets, where others need one. `None`: the page needs one, and the verb `admin`.
    pub(super) public: Option<fn(&Worker) -> Answer>,
    /// Whether it is also where values are, if pages have addresses of their own.
    pub(super) is_everywhere: bool,
}

pub(super) const PAGES: &[Page] = &[
    Page { path: proto::HEALTHZ, show: alive, public: Some(alive), is_everywhere: true },
    Page { path: proto::READYZ, show: readiness, public: Some(brief_readiness), is_everywhere: true },
    Page {
        path: proto::METRICS,
        show: |worker| Answer::page(200, "text/plain; version=0.0.4", collect(worker).prometheus()),
        public: None,
        is_everywhere: false,
    },
    Page {
        path: proto::STATS,
        show: |worker| Answer::page(200, JSON, collect(worker).json()),
        public: None,
        is_everywhere: false,
    },
    Page { path: "/openapi.json", show: openapi, public: Some(openapi), is_everywhere: true },
    // It has no figures: it asks for a token, and with that for /stats. A browser sends none for a page.
    Page { path: proto::DASHBOARD, show: show_dashboard, public: Some(show_dashboard), is_everywhere: false },
];

fn show_dashboard(_: &Worker) -> Answer {
    Answer::page(200, HTML, dashboard::DASHBOARD.page.as_str())
}

fn alive(_: &Worker) -> Answer {
    Answer::page(200, TEXT, "alive\n")
}

fn readiness(worker: &Worker) -> Answer {
    match not_ready(&worker.shared.tiers) {
        _ if worker.is_draining() => Answer::page(503, TEXT, "draining\n"),
        None if worker.shared.tiers.shards.iter().any(|tier| tier.store().refuses_writes()) => Answer::page(
            200,
            TEXT,
            "ready to read; the store refuses writes for now, and the server's log says why\n",
        ),
        None => Answer::page(200, TEXT, "ready\n"),
        Some(why) => Answer::page(503, TEXT, why + "\n"),
    }
}

fn openapi(_: &Worker) -> Answer {
    let document = include_str!("openapi.json").replacen("VERSION", env!("CARGO_PKG_VERSION"), 1);
    Answer::page(200, JSON, document)
}

fn brief_readiness(worker: &Worker) -> Answer {
    if worker.is_draining() || not_ready(&worker.shared.tiers).is_some() {
        return Answer::page(503, TEXT, "not ready\n");
    }
    Answer::page(200, TEXT, "ready\n")
}

/// Which keys the server cannot serve now; `None` if it can serve all. Anybody may ask: why is for the log, as it names
/// hosts and users.
fn not_ready(tiers: &Tiers) -> Option<String> {
    let of = tiers.shards.len();
    let away = tiers.statuses().enumerate().filter_map(|(index, status)| {
        let name = if of == 1 { "the store".to_owned() } else { format!("shard {} of {of}", index + 1) };
        match status {
            Status::Up(_) => None,
            Status::Starting => Some(format!("{name} is being acquired")),
            Status::Standby { .. } => {
                Some(format!("standby: another server owns {name}; this one takes over when that one ends"))
            }
            Status::Down(_) => Some(format!("{name} is unavailable")),
            Status::Stopped => Some(format!("{name} was released")),
        }
    });
    let away: Vec<String> = away.collect();
    (!away.is_empty()).then(|| away.join("; ") + "; the server's log says why")
}

/// Prefixes that `/stats` shows.
const PREFIXES_MAX: usize = 20;

const SHED: &str = "weir_shed_total";

/// Every metric and its help text, in the order shown. One that ends in `_total` is a counter.
const HELP: &[(&str, &str)] = &[
    ("weir_build_info", "The version, as a label."),
    ("weir_http_requests_total", "Requests answered. Of 500, 503 and 504 also while there was none."),
    ("weir_http_request_duration_seconds", "From head to answer."),
    ("weir_http_connections", "Connections open."),
    ("weir_watchers", "Connections to which events are told."),
    ("weir_http_connections_limit", "Most connections."),
    ("weir_http_connections_total", "Connections accepted."),
    (
        "weir_tls_certificate_expiry_timestamp_seconds",
        "When the first of the server's certificates ends, in seconds since 1970.",
    ),
    ("weir_tls_handshakes_total", "TLS handshakes, by result."),
    ("weir_reloads_total", "Times that files were read again and are in use since."),
    ("weir_reload_failed", "Whether files changed and cannot be used; what was read before stays in use."),
    ("weir_workers", "Threads that serve connections."),
    ("weir_worker_busy_seconds_total", "Time in which workers did not wait for events, over all workers."),
    (
        "weir_worker_queue_seconds_total",
        "Time that answers of the store waited for their worker, over answers.",
    ),
    ("weir_cache_requests_total", "Reads, by how they were served."),
    ("weir_cache_limit_entries", "Most rows in the cache."),
    ("weir_cache_limit_bytes", "Most bytes the cache counts."),
    ("weir_prefix_requests", "Requests for keys of a prefix, at least."),
    ("weir_shadow_requests_total", "Reads, by how another policy would have served them."),
    ("weir_cache_entries", "Rows in the cache."),
    ("weir_cache_bytes", "Bytes the cache counts."),
    ("weir_cache_evictions_total", "Rows evicted."),
    ("weir_cache_drops_total", "Times the whole cache was dropped."),
    ("weir_store_info", "The kind of the store, as a label."),
    (
        "weir_store_asynchronous_failover",
        "Whether a failover of a store may lose acknowledged writes (--allow-asynchronous-failover).",
    ),
    ("weir_store_workers", "Threads with a session of the store."),
    ("weir_store_queued", "Requests that wait for a store worker."),
    ("weir_store_queue_limit", "Most requests that wait for a store worker."),
    ("weir_store_busy_seconds_total", "Time with a batch in the store."),
    ("weir_store_request_seconds_total", "Time in the store, over requests."),
    ("weir_store_batch_size", "Requests in a batch."),
    ("weir_store_duration_seconds", "A batch in the store."),
    ("weir_store_queue_seconds", "A request in its queue."),
    ("weir_flushes_total", "Flushes of the embedded store for commits."),
    ("weir_flush_busy_seconds_total", "Time in flushes."),
    ("weir_flush_queue_seconds_total", "Time that store workers waited to flush."),
    ("weir_lock_busy_seconds_total", "Time in which a write held the lock."),
    ("weir_lock_queue_seconds_total", "Time that writes waited for the lock."),
    ("weir_store_conditional_writes_total", "Writes sent to a store that other servers write, too."),
    (
        "weir_store_conflicts_total",
        "Those of them that did not get through: another server wrote the same key, or a node was lost.",
    ),
    ("weir_store_leases_total", "Times the server took ownership of the store."),
    ("weir_store_event_log_bytes", "Bytes of the events that the store keeps."),
    ("weir_store_expired_total", "Rows that had expired and were removed from the store."),
    ("weir_store_up", "Whether the server owns the store."),
    ("weir_store_standby", "Whether another server owns the store and this one stands by."),
    ("weir_store_epoch", "The number of the lease, while the server owns the store."),
    (
        "weir_store_refuses_writes",
        "Whether the store refuses writes, whatever is in them. It does until it has taken a PUT.",
    ),
    ("weir_store_last_error_timestamp_seconds", "When the store failed last, and the reason as a label."),
    ("weir_replica_up", "Whether the replica can be read."),
    ("weir_replica_reads_total", "Reads that the replica answered."),
    ("weir_replica_lag_bytes", "Log the replica has not confirmed."),
    (SHED, "Requests and connections refused because a limit was reached."),
    ("weir_memory_budget_bytes", "Most bytes of request bodies and values on their way."),
    ("weir_memory_reserved_bytes", "Bytes of request bodies and values on their way."),
    ("weir_compute_threads", "Threads that compute."),
    ("weir_compute_queued", "Computations that wait for a thread."),
    ("weir_compute_busy_seconds_total", "Time in computations, over all threads."),
    ("weir_compute_queue_seconds", "A computation in the queue."),
    ("weir_access_log_lines_total", "Lines handed to the writer of the access log."),
    (
        "weir_access_log_dropped_total",
        "Lines that are not in the access log: too many, or they could not be written.",
    ),
    ("weir_draining", "Whether the server is shutting down."),
    ("weir_uptime_seconds", "Since the start."),
];

/// Shown by `/stats` alone: their labels have values without end.
const NOT_IN_PROMETHEUS: [&str; 2] = ["weir_prefix_requests", "weir_store_last_error_timestamp_seconds"];

/// The suffix of a bucket of a histogram.
const BUCKET: &str = "_bucket";

/// The histogram whose buckets `/stats` shows.
const IN_BUCKETS: &str = "weir_http_request_duration_seconds";

/// The samples of all metrics.
#[derive(Default)]
struct Samples {
    list: Vec<Sample>,
    /// A label that samples get after their own; empty for none.
    shard: String,
}

struct Sample {
    name: &'static str,
    /// Of a sample of a histogram: `_bucket`, `_sum` or `_count`.
    suffix: &'static str,
    /// In braces; empty for none.
    labels: String,
    value: f64,
}

impl Samples {
    fn number(&mut self, name: &'static str, labels: &str, value: f64) {
        self.add(name, "", labels, "", value);
    }

    /// The sum of `histograms`. `per_unit` is how many of their units make one of the metric's.
    fn histogram<'h>(
        &mut self,
        name: &'static str,
        labels: &str,
        histograms: impl IntoIterator<Item = &'h Histogram>,
        per_unit: f64,
    ) {
        let mut total = Distribution::default();
        histograms.into_iter().for_each(|histogram| histogram.add_to(&mut total));
        for (bound, below) in total.cumulative() {
            let bound = format!("le=\"{}\"", bound as f64 / per_unit);
            self.add(name, BUCKET, labels, &bound, below as f64);
        }
        let count = total.count() as f64;
        self.add(name, BUCKET, labels, "le=\"+Inf\"", count);
        self.add(name, "_sum", labels, "", total.sum as f64 / per_unit);
        self.add(name, "_count", labels, "", count);
    }

    fn add(&mut self, name: &'static str, suffix: &'static str, labels: &str, bound: &str, value: f64) {
        debug_assert!(HELP.iter().any(|(known, _)| *known == name), "{name} has no help");
        let labels = [labels, &self.shard, bound].into_iter().filter(|label| !label.is_empty());
        let labels = labels.collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        self.list.push(Sample { name, suffix, labels, value });
    }

    /// Prometheus text, version 0.0.4.
    fn prometheus(&self) -> String {
        let mut text = String::new();
        for (name, help) in HELP.iter().filter(|(name, _)| !NOT_IN_PROMETHEUS.contains(name)) {
            let mut samples = self.list.iter().filter(|sample| sample.name == *name).peekable();
            let Some(first) = samples.peek() else { continue };
            let kind = match first.suffix {
                "" if name.ends_with("_total") => "counter",
                "" => "gauge",
                _ => "histogram",
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for Sample { suffix, labels, value, .. } in samples {
                let _ = writeln!(text, "{name}{suffix}{labels} {value}");
            }
        }
        text
    }

    /// One flat JSON object: name with labels → number; histograms by their `_sum` and `_count`, and one by its buckets.
    fn json(&self) -> String {
        let shown = self.list.iter().filter(|sample| sample.suffix != BUCKET || sample.name == IN_BUCKETS);
        let entry = |Sample { name, suffix, labels, value }: &Sample| {
            (format!("{name}{suffix}{labels}"), (*value).into())
        };
        let object: serde_json::Map<String, serde_json::Value> = shown.map(entry).collect();
        format!("{:#}\n", serde_json::Value::from(object))
    }
}
