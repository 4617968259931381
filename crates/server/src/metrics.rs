//! What the server counts, and how it shows it: Prometheus text at `/metrics`, flat JSON at `/stats`.
//!
//! Every worker has counters of its own, merged when they are read.

use super::busy::Busy;
use super::compute;
use super::faults::Faults;
use crate::tiered::{SHARDS_MAX, ShadowCounts, Status, Tiered, Tiers, WorkerMeters, Workers};
use http1::request::Method;
use kv::counters::{Counter, Distribution, Histogram, micros};
use kv::queue_meter::QueueTotals;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The counters of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerMetrics {
    /// By method and status, see [`METHODS`] and [`STATUSES`].
    requests: [[Counter; STATUSES.len()]; METHODS.len()],
    /// From when the request came, or could be begun, to when it was answered, in microseconds.
    duration: Histogram,
    /// Reads answered from the cache, by shard. In place: on a heap of their own, two workers' might share a cache line.
    pub(super) hits: [Counter; SHARDS_MAX],
    /// Connections accepted.
    pub(super) connections: Counter,
    /// Connections refused because too many were open.
    pub(super) shed_connections: Counter,
    /// How long it did not wait for events.
    pub(super) busy: Busy,
}

/// The counters of all workers, and what else is shown.
pub(super) struct Metrics {
    pub(super) workers: Box<[Arc<WorkerMetrics>]>,
    /// Connections open now.
    pub(super) open_connections: AtomicUsize,
    /// Of the pool that computes, where there is one.
    compute: Option<Arc<compute::Meters>>,
    started: Instant,
}

const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "other"];
/// Every status the server answers with; the last stands for any other.
const STATUSES: [u16; 22] = [
    200, 201, 204, 304, 400, 404, 405, 408, 412, 413, 414, 417, 431, 500, 501, 503, 504, 505, 403, 409, 429,
    0,
];

fn method_index(method: Option<Method>) -> usize {
    match method {
        Some(Method::Get) => 0,
        Some(Method::Head) => 1,
        Some(Method::Put) => 2,
        Some(Method::Post) => 3,
        Some(Method::Delete) => 4,
        Some(Method::Options) => 5,
        Some(Method::Other) | None => 6,
    }
}

impl WorkerMetrics {
    /// Counts one answered request and its time; `method` is `None` where its head could not be parsed.
    pub(super) fn answered(&self, method: Option<Method>, status: u16, took: Duration) {
        self.counted(method, status);
        self.took(took, 1);
    }

    /// Counts one answered request whose time follows.
    pub(super) fn counted(&self, method: Option<Method>, status: u16) {
        let status = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        self.requests[method_index(method)][status].add(1);
    }

    /// Counts the time that each of `requests` took.
    pub(super) fn took(&self, took: Duration, requests: u64) {
        if requests > 0 {
            self.duration.record_many(micros(took), requests);
        }
    }
}

impl Metrics {
    pub(super) fn new(workers: usize, compute: Option<Arc<compute::Meters>>) -> Metrics {
        Metrics {
            workers: (0..workers).map(|_| Arc::default()).collect(),
            open_connections: AtomicUsize::new(0),
            compute,
            started: Instant::now(),
        }
    }

    fn sum(&self, pick: impl Fn(&WorkerMetrics) -> &Counter) -> u64 {
        self.workers.iter().map(|worker| pick(worker).get()).sum()
    }

    /// Everything there is to show, in one order.
    fn collect(&self, tiers: &Tiers, faults: Option<&Faults>, draining: bool) -> Page {
        let mut page = Page::default();
        let requests = page.family("weir_http_requests_total", "counter", "Requests answered.");
        for (m, method) in METHODS.iter().enumerate() {
            for (s, status) in STATUSES.iter().enumerate() {
                let count = self.sum(|worker| &worker.requests[m][s]);
                if count > 0 {
                    requests.number(&format!("{{method=\"{method}\",code=\"{status}\"}}"), count as f64);
                }
            }
        }
        let mut durations = Distribution::default();
        self.workers.iter().for_each(|worker| worker.duration.add_to(&mut durations));
        page.family("weir_http_request_duration_seconds", "histogram", "From head to answer.")
            .histogram("", &durations, 1e6);
        page.one(
            "weir_http_connections",
            "gauge",
            "Connections open.",
            self.open_connections.load(Relaxed) as f64,
        );
        let accepted = self.sum(|worker| &worker.connections) as f64;
        page.one("weir_http_connections_total", "counter", "Connections accepted.", accepted);
        page.one("weir_workers", "gauge", "Threads that serve connections.", self.workers.len() as f64);
        let busy: Duration = self.workers.iter().map(|worker| worker.busy.so_far()).sum();
        let about = "Time in which workers did not wait for events, over all workers.";
        page.one("weir_worker_busy_seconds_total", "counter", about, busy.as_secs_f64());
        let answers: u64 = tiers.shards().iter().map(|tiered| tiered.tier_meters().answer_nanos.get()).sum();
        let about = "Time in which answers of the store waited for their worker, summed over answers.";
        page.one("weir_worker_queue_seconds_total", "counter", about, answers as f64 * 1e-9);

        let shards = labelled(tiers);
        let reads = page.family("weir_cache_requests_total", "counter", "Reads, by how they were served.");
        for (index, (label, tiered)) in shards.iter().enumerate() {
            let tier = tiered.tier_meters();
            let collapsed = tier.collapsed.get();
            for (result, count) in [
                ("hit", self.sum(|worker| &worker.hits[index])),
                ("miss", tier.misses.get().saturating_sub(collapsed)),
                ("collapsed", collapsed),
            ] {
                reads.number(&braced(&format!("result=\"{result}\""), label), count as f64);
            }
        }
        if shards.iter().any(|(_, tiered)| !tiered.shadow_counts().is_empty()) {
            let about = "Reads, by how another policy would have served them.";
            let family = page.family("weir_shadow_requests_total", "counter", about);
            for (label, tiered) in &shards {
                for ShadowCounts { policy, hits, misses } in tiered.shadow_counts() {
                    for (result, count) in [("hit", hits), ("miss", misses)] {
                        let own = format!("policy=\"{policy}\",result=\"{result}\"");
                        family.number(&braced(&own, label), count as f64);
                    }
                }
            }
        }
        for (name, kind, about, value) in [
            (
                "weir_cache_entries",
                "gauge",
                "Rows in the cache.",
                (|tiered| tiered.cache_counts().entries as f64) as fn(&Tiered) -> f64,
            ),
            ("weir_cache_bytes", "gauge", "Bytes the cache counts.", |tiered| {
                tiered.cache_counts().bytes as f64
            }),
            ("weir_cache_evictions_total", "counter", "Rows pushed out by others.", |tiered| {
                tiered.cache_counts().evictions as f64
            }),
            ("weir_cache_drops_total", "counter", "Times the cache was dropped whole.", |tiered| {
                tiered.tier_meters().drops.get() as f64
            }),
        ] {
            page.each(name, kind, about, &shards, value);
        }

        for (name, kind, about, pick) in [
            (
                "weir_store_workers",
                "gauge",
                "Threads with a session of the store.",
                (|tiered| both(tiered.workers())) as fn(&Tiered) -> [f64; 2],
            ),
            ("weir_store_queued", "gauge", "Requests that wait for a store worker.", |tiered| {
                both(tiered.queued())
            }),
            ("weir_store_busy_seconds_total", "counter", "Time with a batch in the store.", |tiered| {
                let store = tiered.store_meters();
                [&store.read, &store.write].map(|worker| worker.busy_nanos.get() as f64 * 1e-9)
            }),
            ("weir_store_request_seconds_total", "counter", "Time in the store, over requests.", |tiered| {
                let store = tiered.store_meters();
                [&store.read, &store.write].map(|worker| worker.request_nanos.get() as f64 * 1e-9)
            }),
        ] {
            let family = page.family(name, kind, about);
            for (label, tiered) in &shards {
                for (worker, value) in OPERATIONS.iter().zip(pick(tiered)) {
                    family.number(&braced(worker, label), value);
                }
            }
        }
        for (name, about, per_unit, pick) in [
            (
                "weir_store_batch_size",
                "Requests in a batch.",
                1.0,
                (|m| &m.batch_size) as fn(&WorkerMeters) -> &Histogram,
            ),
            ("weir_store_duration_seconds", "A batch in the store.", 1e6, |m| &m.duration),
            ("weir_store_queue_seconds", "A request in its queue.", 1e6, |m| &m.queued),
        ] {
            let family = page.family(name, "histogram", about);
            for (label, tiered) in &shards {
                let store = tiered.store_meters();
                for (worker, meters) in OPERATIONS.iter().zip([&store.read, &store.write]) {
                    let mut total = Distribution::default();
                    pick(meters).add_to(&mut total);
                    family.histogram(&joined(worker, label), &total, per_unit);
                }
            }
        }
        let flush = |(label, tiered): &(String, &Tiered)| Some((braced("", label), tiered.flush()?.totals()));
        page.queues(FLUSHES, &shards.iter().filter_map(flush).collect::<Vec<_>>());
        if let Some(lock) = faults.and_then(Faults::lock_totals) {
            page.queues(LOCK, &[("{lock=\"commit\"}".to_owned(), lock)]);
        }
        page.each(
            "weir_store_leases_total",
            "counter",
            "Times the server took ownership of the store.",
            &shards,
            |tiered| tiered.store_meters().leases.get() as f64,
        );
        page.each("weir_store_up", "gauge", "Whether the server owns the store.", &shards, |tiered| {
            truth(matches!(tiered.status(), Status::Up(_)))
        });
        if let Some(replica) = tiers.replica() {
            page.one("weir_replica_up", "gauge", "Whether the replica can be asked.", truth(replica.is_up()));
            page.one(
                "weir_replica_reads_total",
                "counter",
                "Reads that the replica answered.",
                replica.reads() as f64,
            );
            let lag = page.family("weir_replica_lag_bytes", "gauge", "Log the replica has not confirmed.");
            for (shard, bytes) in
                (0..shards.len()).filter_map(|shard| Some((shard, replica.lag_bytes(shard)?)))
            {
                lag.number(&format!("{{shard=\"{shard}\"}}"), bytes as f64);
            }
        }
        let shed = page.family("weir_shed_total", "counter", "What was refused for want of room.");
        shed.number("{reason=\"connections\"}", self.sum(|worker| &worker.shed_connections) as f64);
        for (label, tiered) in &shards {
            let store = tiered.store_meters();
            let count = store.read.shed.get() + store.write.shed.get();
            shed.number(&braced("reason=\"queue\"", label), count as f64);
        }
        if let Some(compute) = &self.compute {
            shed.number("{reason=\"compute\"}", compute.shed.get() as f64);
            collect_compute(&mut page, compute);
        }
        page.one("weir_draining", "gauge", "Whether the server is shutting down.", truth(draining));
        page.one("weir_uptime_seconds", "gauge", "Since the start.", self.started.elapsed().as_secs_f64());
        page
    }

    /// Prometheus text, version 0.0.4.
    pub(super) fn prometheus(&self, tiers: &Tiers, faults: Option<&Faults>, draining: bool) -> String {
        self.collect(tiers, faults, draining).prometheus()
    }

    /// One flat JSON object: name with labels → number; histograms by their `_sum` and `_count`.
    pub(super) fn json(&self, tiers: &Tiers, faults: Option<&Faults>, draining: bool) -> String {
        self.collect(tiers, faults, draining).json()
    }
}

fn collect_compute(page: &mut Page, meters: &compute::Meters) {
    page.one("weir_compute_threads", "gauge", "Threads that compute.", meters.threads as f64);
    let queued = meters.queued.load(Relaxed) as f64;
    page.one("weir_compute_queued", "gauge", "Computations that wait for a thread.", queued);
    let busy = meters.busy_nanos.get() as f64 * 1e-9;
    page.one("weir_compute_busy_seconds_total", "counter", "Time in computations, over all threads.", busy);
    let mut waited = Distribution::default();
    meters.waited.add_to(&mut waited);
    page.family("weir_compute_queue_seconds", "histogram", "A computation in the queue.")
        .histogram("", &waited, 1e6);
}

/// Why the server cannot serve every key now; `None` if it can.
pub(super) fn not_ready(tiers: &Tiers) -> Option<String> {
    let of = tiers.shards().len();
    let away = tiers.shards().iter().enumerate().filter_map(|(index, tiered)| {
        let name = if of == 1 { "the store".to_owned() } else { format!("shard {} of {of}", index + 1) };
        match tiered.status() {
            Status::Up(_) => None,
            Status::Down(reason) => Some(format!("{name} is away: {reason}")),
            Status::Stopped => Some(format!("{name} was given back")),
        }
    });
    let away: Vec<String> = away.collect();
    (!away.is_empty()).then(|| away.join("; "))
}

/// The metrics of a queue meter: name, help and value.
type QueueMetrics = [(&'static str, &'static str, fn(&QueueTotals) -> f64)];

const FLUSHES: &QueueMetrics = &[
    ("weir_flushes_total", "Flushes of the embedded store.", |totals| totals.count as f64),
    ("weir_flush_busy_seconds_total", "Time in flushes.", |totals| totals.busy.as_secs_f64()),
    ("weir_flush_queue_seconds_total", "Time that store workers waited to flush.", |totals| {
        totals.waited.as_secs_f64()
    }),
];

const LOCK: &QueueMetrics = &[
    ("weir_lock_busy_seconds_total", "Time in which a write held the lock.", |totals| {
        totals.busy.as_secs_f64()
    }),
    ("weir_lock_queue_seconds_total", "Time that writes waited for the lock.", |totals| {
        totals.waited.as_secs_f64()
    }),
];

/// The store workers' labels, as in [`both`].
const OPERATIONS: [&str; 2] = ["operation=\"read\"", "operation=\"write\""];

fn both(workers: Workers) -> [f64; 2] {
    [workers.read as f64, workers.write as f64]
}

fn truth(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// The shards, each with the label that its samples carry behind their own: none where there is only one.
fn labelled(tiers: &Tiers) -> Vec<(String, &Tiered)> {
    let label = |index| match tiers.shards().len() {
        1 => String::new(),
        _ => format!("shard=\"{index}\""),
    };
    tiers.shards().iter().enumerate().map(|(index, tiered)| (label(index), tiered)).collect()
}

fn joined(own: &str, shard: &str) -> String {
    let comma = if own.is_empty() || shard.is_empty() { "" } else { "," };
    format!("{own}{comma}{shard}")
}

fn braced(own: &str, shard: &str) -> String {
    match joined(own, shard).as_str() {
        "" => String::new(),
        labels => format!("{{{labels}}}"),
    }
}

/// A page of numbers.
#[derive(Default)]
struct Page(Vec<Family>);

struct Family {
    name: &'static str,
    kind: &'static str,
    about: &'static str,
    /// Suffix and labels, value, and whether `/stats` shows it.
    samples: Vec<(String, f64, bool)>,
}

impl Page {
    fn family(&mut self, name: &'static str, kind: &'static str, about: &'static str) -> &mut Family {
        self.0.push(Family { name, kind, about, samples: Vec::new() });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    fn one(&mut self, name: &'static str, kind: &'static str, about: &'static str, value: f64) {
        self.family(name, kind, about).number("", value);
    }

    /// One number of every shard.
    fn each(
        &mut self,
        name: &'static str,
        kind: &'static str,
        about: &'static str,
        shards: &[(String, &Tiered)],
        value: fn(&Tiered) -> f64,
    ) {
        let family = self.family(name, kind, about);
        for (label, tiered) in shards {
            family.number(&braced("", label), value(tiered));
        }
    }

    /// The totals of queue meters of one kind, each with its labels.
    fn queues(&mut self, shown: &QueueMetrics, queues: &[(String, QueueTotals)]) {
        if queues.is_empty() {
            return;
        }
        for (name, about, value) in shown {
            let family = self.family(name, "counter", about);
            for (labels, totals) in queues {
                family.number(labels, value(totals));
            }
        }
    }

    fn prometheus(&self) -> String {
        let mut text = String::new();
        for Family { name, kind, about, samples } in &self.0 {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} {kind}");
            for (suffix, value, _) in samples {
                let _ = writeln!(text, "{name}{suffix} {value}");
            }
        }
        text
    }

    fn json(&self) -> String {
        let shown = self.0.iter().flat_map(|family| {
            let samples = family.samples.iter().filter(|(_, _, shown)| *shown);
            samples.map(|(suffix, value, _)| {
                (format!("{}{suffix}", family.name), serde_json::Value::from(*value))
            })
        });
        let object: serde_json::Map<String, serde_json::Value> = shown.collect();
        format!("{:#}\n", serde_json::Value::from(object))
    }
}

impl Family {
    fn number(&mut self, labels: &str, value: f64) {
        self.samples.push((labels.to_owned(), value, true));
    }

    /// `per_unit` is how many of the samples' unit make one of the metric's base unit.
    fn histogram(&mut self, labels: &str, distribution: &Distribution, per_unit: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        for (bound, below) in distribution.cumulative() {
            let bound = bound as f64 / per_unit;
            self.samples.push((format!("_bucket{{{labels}{comma}le=\"{bound}\"}}"), below as f64, false));
        }
        let count = distribution.count() as f64;
        self.samples.push((format!("_bucket{{{labels}{comma}le=\"+Inf\"}}"), count, false));
        self.samples.push((format!("_sum{braced}"), distribution.sum as f64 / per_unit, true));
        self.samples.push((format!("_count{braced}"), count, true));
    }
}
