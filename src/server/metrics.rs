//! What the server counts, and how it shows it: Prometheus text at `/metrics`, flat JSON at `/stats`.
//!
//! Every worker has counters of its own, merged when they are read.

use super::compute;
use crate::counters::{Counter, Distribution, Histogram};
use crate::http1::request::Method;
use crate::tiered::{GhostCounts, Kind, LaneMeters, Status, Tiered};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The counters of one worker.
#[derive(Debug, Default)]
pub(super) struct WorkerMetrics {
    /// By method and status, see [`METHODS`] and [`STATUSES`].
    requests: [[Counter; STATUSES.len()]; METHODS.len()],
    /// From the last byte of the head to the last byte of the answer handed to the socket, in microseconds.
    duration: Histogram,
    /// Reads answered from the cache.
    pub(super) hits: Counter,
    /// Connections accepted.
    pub(super) connections: Counter,
    /// Connections refused because too many were open.
    pub(super) shed_connections: Counter,
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
const STATUSES: [u16; 21] =
    [200, 201, 204, 304, 400, 404, 405, 408, 412, 413, 414, 417, 431, 500, 501, 503, 504, 505, 403, 429, 0];

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
    /// Counts one answered request; `method` is `None` where its head could not be parsed.
    pub(super) fn answered(&self, method: Option<Method>, status: u16, took: Duration) {
        let status = STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len() - 1);
        self.requests[method_index(method)][status].add(1);
        self.duration.record_duration(took);
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
    fn collect(&self, tiered: &Tiered, draining: bool) -> Page {
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

        let tier = tiered.tier_meters();
        let reads = page.family("weir_cache_requests_total", "counter", "Reads, by how they were served.");
        reads.number("{result=\"hit\"}", self.sum(|worker| &worker.hits) as f64);
        reads.number("{result=\"miss\"}", tier.misses.get().saturating_sub(tier.collapsed.get()) as f64);
        reads.number("{result=\"collapsed\"}", tier.collapsed.get() as f64);
        let ghosts = tiered.ghost_counts();
        if !ghosts.is_empty() {
            let about = "Reads, by how another policy would have served them.";
            let family = page.family("weir_ghost_requests_total", "counter", about);
            for GhostCounts { policy, hits, misses } in ghosts {
                for (result, count) in [("hit", hits), ("miss", misses)] {
                    family.number(&format!("{{policy=\"{policy}\",result=\"{result}\"}}"), count as f64);
                }
            }
        }
        let cache = tiered.cache_counts();
        page.one("weir_cache_entries", "gauge", "Rows in the cache.", cache.entries as f64);
        page.one("weir_cache_bytes", "gauge", "Bytes the cache counts.", cache.bytes as f64);
        page.one(
            "weir_cache_evictions_total",
            "counter",
            "Rows pushed out by others.",
            cache.evictions as f64,
        );
        page.one(
            "weir_cache_drops_total",
            "counter",
            "Times the cache was dropped whole.",
            tier.drops.get() as f64,
        );

        let store = tiered.store_meters();
        let lanes = [("read", &store.read), ("write", &store.write)];
        let labels = lanes.map(|(lane, _)| format!("{{lane=\"{lane}\"}}"));
        let (there, queued) = (tiered.lanes(), tiered.queued());
        let gauge = |page: &mut Page, name, about, values: [usize; 2]| {
            let family = page.family(name, "gauge", about);
            labels.iter().zip(values).for_each(|(label, value)| family.number(label, value as f64));
        };
        gauge(&mut page, "weir_store_lanes", "Lanes: sessions of the store.", [there.read, there.write]);
        gauge(
            &mut page,
            "weir_store_queued",
            "Requests that wait in the lanes.",
            [queued.read, queued.write],
        );
        let busy = page.family("weir_store_busy_seconds_total", "counter", "Time with a batch in the store.");
        for (label, (_, meters)) in labels.iter().zip(lanes) {
            busy.number(label, meters.busy_nanos.get() as f64 * 1e-9);
        }
        for (name, about, per_unit, pick) in [
            (
                "weir_store_batch_size",
                "Requests in a batch.",
                1.0,
                (|m| &m.batch_size) as fn(&LaneMeters) -> &Histogram,
            ),
            ("weir_store_duration_seconds", "A batch in the store.", 1e6, |m| &m.duration),
            ("weir_store_queue_seconds", "A request in its lane's queue.", 1e6, |m| &m.queued),
        ] {
            let family = page.family(name, "histogram", about);
            for (lane, meters) in lanes {
                let mut total = Distribution::default();
                pick(meters).add_to(&mut total);
                family.histogram(&format!("lane=\"{lane}\""), &total, per_unit);
            }
        }
        page.one(
            "weir_store_claims_total",
            "counter",
            "Times the store was claimed.",
            store.claims.get() as f64,
        );
        let is_up = matches!(tiered.status(), Status::Up(_));
        page.one("weir_store_up", "gauge", "Whether the store is claimed.", f64::from(u8::from(is_up)));
        let shed = page.family("weir_shed_total", "counter", "What was refused for want of room.");
        shed.number("{reason=\"connections\"}", self.sum(|worker| &worker.shed_connections) as f64);
        shed.number("{reason=\"queue\"}", (store.read.shed.get() + store.write.shed.get()) as f64);
        if let Some(compute) = &self.compute {
            shed.number("{reason=\"compute\"}", compute.shed.get() as f64);
            collect_compute(&mut page, compute);
        }
        page.one(
            "weir_draining",
            "gauge",
            "Whether the server is shutting down.",
            f64::from(u8::from(draining)),
        );
        page.one("weir_uptime_seconds", "gauge", "Since the start.", self.started.elapsed().as_secs_f64());
        page
    }

    /// Prometheus text, version 0.0.4.
    pub(super) fn prometheus(&self, tiered: &Tiered, draining: bool) -> String {
        self.collect(tiered, draining).prometheus()
    }

    /// One flat JSON object: name with labels → number; histograms by their `_sum` and `_count`.
    pub(super) fn json(&self, tiered: &Tiered, draining: bool) -> String {
        self.collect(tiered, draining).json()
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

/// Why the server cannot serve now; `None` if it can.
pub(super) fn not_ready(tiered: &Tiered) -> Option<crate::tiered::Error> {
    match tiered.status() {
        Status::Up(_) => None,
        Status::Down(reason) => {
            Some(crate::tiered::Error::new(Kind::Unavailable, format!("the store is away: {reason}")))
        }
        Status::Stopped => Some(crate::tiered::Error::new(Kind::Unavailable, "the store was given back")),
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
