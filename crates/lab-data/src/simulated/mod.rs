//! A target of which the truth is known: a closed queueing network, simulated in virtual time.
//!
//! It yields the same trials as a real target, in milliseconds instead of minutes, so that what the analysis finds
//! can be compared with what was put in. Touches no clock; the same seed gives the same trial.

use super::results::{Change, Limit, Reading, Resource, ResourceKind, Trial};
use crate::ensure;
use hdrhistogram::Histogram;
use kv::Error;
use kv::proto::{FORMAT, Latency, LoadReport, OperationReport, SecondReport};
use kv::units::Span;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

/// The station that plays the load generator, where a model has one: a limit there is no limit of the target.
pub const GENERATOR: &str = "generator";

/// A closed network: every request visits the stations in order, and the client then sends the next.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// In the order of a request's way.
    #[serde(rename = "station")]
    pub stations: Vec<Station>,
}

/// Something a request waits for, first come, first served.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Station {
    /// Its name in the report; [`GENERATOR`] plays the load generator.
    pub name: String,
    /// How many requests it works on at once; 0 is a pure delay, which works on any number.
    pub servers: u32,
    /// Mean service time of a request.
    pub demand: Span,
    /// How service times spread around that mean.
    #[serde(default)]
    pub service: Service,
    /// What it is called as a bottleneck: `commit_path`; [`Limit::Other`] where nothing is said.
    pub limit: Option<Limit>,
}

/// How service times spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// Exponentially: the assumption under which mean value analysis is exact.
    #[default]
    Exponential,
    /// Not at all.
    Deterministic,
}

impl Model {
    /// Whether it can be simulated; the error says what cannot, in one line.
    pub fn check(&self) -> Result<(), Error> {
        ensure(!self.stations.is_empty(), "a simulated target has no station", "add a [[target.station]]")?;
        let mut names = HashSet::new();
        for Station { name, demand, .. } in &self.stations {
            let is_new = !name.is_empty() && names.insert(name);
            ensure(is_new, format_args!("name {name:?} is empty or stands twice"), "rename the station")?;
            let hour = format_args!("the demand of station {name:?} is more than an hour");
            ensure(demand.secs() <= 3600.0, hour, "shorten it")?;
        }
        // Below this the clock of the simulation, in nanoseconds, hardly advances between two requests.
        let demand_secs: f64 = self.stations.iter().map(|station| station.demand.secs()).sum();
        ensure(demand_secs >= 1e-6, "the demands of all stations add up to less than 1us", "lengthen one")
    }
}

/// The resources of a model, in its order: every station but the pure delays, which have no limit.
pub fn resources(model: &Model) -> Vec<Resource> {
    let limited = model.stations.iter().filter(|station| station.servers > 0);
    limited
        .map(|station| {
            let (kind, limit) = match station.name.as_str() {
                GENERATOR => (ResourceKind::Generator, Limit::Generator),
                _ => (ResourceKind::Station, station.limit.unwrap_or(Limit::Other)),
            };
            Resource {
                name: station.name.clone(),
                busy: vec![counter(station, "busy")],
                servers: f64::from(station.servers),
                kind,
                limit: Some(limit),
                waiting: vec![counter(station, "waiting")],
                serving: vec![counter(station, "serving")],
                ..Resource::default()
            }
        })
        .collect()
}

/// What can be made slower in `model`: every station, in its order, by `strength` × servers / `goodput_rps`. A pure delay has no
/// servers to be short of: it takes the part of the control, which raises no resource.
pub fn changes(model: &Model, strength: f64, goodput_rps: f64) -> Vec<Change> {
    let change = |station: &Station| Change {
        name: station.name.clone(),
        raises: (station.servers > 0).then(|| station.name.clone()).into_iter().collect(),
        added_us: strength * f64::from(station.servers.max(1)) / goodput_rps * 1e6,
        factor: None,
    };
    model.stations.iter().map(change).collect()
}

/// `model` with the demand of one station raised as `change` says; a change of no station of it changes nothing.
pub fn changed(model: &Model, change: &Change) -> Model {
    let mut model = model.clone();
    if let Some(station) = model.stations.iter_mut().find(|station| station.name == change.name) {
        let secs = station.demand.secs() * change.factor.unwrap_or(1.0) + change.added_us / 1e6;
        station.demand = Span(Duration::from_secs_f64(secs));
    }
    model
}

/// What the trials with `change` are drawn from: no trial repeats the draws of another.
pub fn seed_of(seed: u64, change: Option<&Change>) -> u64 {
    mix(seed, change.map_or("nothing is changed", |change| &change.name), 0, 0)
}

/// Simulates `level` clients for `warmup` and then `window` of virtual time. [`Model::check`] has taken the model.
///
/// Repetitions, levels and workloads draw from streams of their own, all of them from `seed`.
pub fn trial(
    model: &Model,
    workload: &str,
    level: u32,
    repetition: u32,
    seed: u64,
    warmup: Span,
    window: Span,
) -> Trial {
    let mut network = Network {
        model,
        random: Xoshiro256PlusPlus::seed_from_u64(mix(seed, workload, level, repetition)),
        opens: nanos(warmup),
        agenda: BinaryHeap::new(),
        sequence: 0,
        clients: vec![Client { station: 0, sent: 0 }; level as usize],
        queues: vec![Queue::default(); model.stations.len()],
        latencies: Histogram::new(3).expect("three digits are allowed"),
        latency_sum: 0,
        seconds: vec![SecondReport::default(); window.0.as_secs() as usize],
    };
    (0..level as usize).for_each(|client| network.arrive(client, 0, 0));
    let opened = network.run(nanos(warmup));
    let closed = network.run(nanos(warmup) + nanos(window));
    let (workload, elapsed_secs) = (workload.to_owned(), window.secs());
    let mut trial = Trial { workload, level, repetition, elapsed_secs, opened, closed, ..Trial::default() };
    let generator = model.stations.iter().find(|of| of.name == GENERATOR && of.servers > 0);
    let latency = network.latency();
    trial.load = Some(LoadReport {
        format: FORMAT,
        workload: trial.workload.clone(),
        clients: level,
        pacing: "closed".to_owned(),
        threads: generator.map_or(1, |station| station.servers),
        seed,
        warmup_secs: warmup.secs(),
        window_secs: window.secs(),
        attempts: latency.count,
        successes: latency.count,
        goodput_rps: latency.count as f64 / window.secs(),
        latency,
        operations: vec![OperationReport {
            operation: "get".to_owned(),
            attempts: latency.count,
            successes: latency.count,
            absent: 0,
            latency,
        }],
        // Nobody thinks or rests: every client is always in a request.
        in_flight_mean: Some(f64::from(level)),
        in_flight_at_end: u64::from(level),
        edge_secs: (f64::from(level) * nanos(window) as f64 - network.latency_sum as f64) / 1e9,
        cpu_secs: generator.and_then(|station| trial.growth(&counter(station, "busy"))).unwrap_or(0.0),
        seconds: network.seconds,
        ..LoadReport::default()
    });
    trial
}

/// The network in motion. Instants are nanoseconds of virtual time.
struct Network<'a> {
    model: &'a Model,
    random: Xoshiro256PlusPlus,
    /// When the window opens.
    opens: u64,
    /// What happens next: a client's service ends. The number in the middle keeps ties in the order they arose.
    agenda: BinaryHeap<Reverse<(u64, u64, usize)>>,
    sequence: u64,
    clients: Vec<Client>,
    queues: Vec<Queue>,
    latencies: Histogram<u64>,
    latency_sum: u64,
    seconds: Vec<SecondReport>,
}

#[derive(Clone, Copy)]
struct Client {
    station: usize,
    sent: u64,
}

#[derive(Clone, Default)]
struct Queue {
    waiting: VecDeque<usize>,
    working: u32,
    /// Up to when the times below are counted.
    counted: u64,
    /// Client-time in service. A server serves one client, so it is the time in which servers were busy, too.
    served: u64,
    /// Client-time of those who waited.
    waited: u64,
}

impl Queue {
    /// Counts time up to `now`; to be called before anybody comes or leaves.
    fn count(&mut self, now: u64) {
        let passed = now - std::mem::replace(&mut self.counted, now);
        self.served += passed * u64::from(self.working);
        self.waited += passed * self.waiting.len() as u64;
    }
}

impl Network<'_> {
    /// Lets pass what comes before `until`; the counters at that instant.
    fn run(&mut self, until: u64) -> Reading {
        while let Some(&Reverse((now, _, client))) = self.agenda.peek()
            && now < until
        {
            self.agenda.pop();
            let station = self.clients[client].station;
            self.leave(station, now);
            if station + 1 < self.queues.len() {
                self.arrive(client, station + 1, now);
            } else {
                self.complete(client, now);
                self.arrive(client, 0, now);
            }
        }
        let mut reading = Reading::default();
        for (station, queue) in self.model.stations.iter().zip(&mut self.queues) {
            queue.count(until);
            let (served_secs, waited_secs) = (queue.served as f64 / 1e9, queue.waited as f64 / 1e9);
            if station.servers > 0 {
                reading.count(counter(station, "busy"), served_secs);
            }
            reading.count(counter(station, "serving"), served_secs);
            reading.count(counter(station, "waiting"), waited_secs);
        }
        reading
    }

    fn arrive(&mut self, client: usize, station: usize, now: u64) {
        self.clients[client].station = station;
        let servers = self.model.stations[station].servers;
        let queue = &mut self.queues[station];
        queue.count(now);
        if servers > 0 && queue.working == servers {
            queue.waiting.push_back(client);
        } else {
            queue.working += 1;
            self.serve(client, station, now);
        }
    }

    fn serve(&mut self, client: usize, station: usize, now: u64) {
        let ends = now + draw(&self.model.stations[station], &mut self.random);
        self.sequence += 1;
        self.agenda.push(Reverse((ends, self.sequence, client)));
    }

    fn leave(&mut self, station: usize, now: u64) {
        let queue = &mut self.queues[station];
        queue.count(now);
        match queue.waiting.pop_front() {
            Some(next) => self.serve(next, station, now),
            None => queue.working -= 1,
        }
    }

    fn complete(&mut self, client: usize, now: u64) {
        let latency = now - std::mem::replace(&mut self.clients[client].sent, now);
        let Some(since) = now.checked_sub(self.opens) else { return };
        self.latencies.record(latency).expect("the histogram grows as needed");
        self.latency_sum += latency;
        if let Some(second) = self.seconds.get_mut((since / 1_000_000_000) as usize) {
            let sum_us = second.latency_us_mean * second.attempts as f64 + latency as f64 / 1e3;
            second.attempts += 1;
            second.successes += 1;
            second.latency_us_mean = sum_us / second.attempts as f64;
        }
    }

    fn latency(&self) -> Latency {
        let count = self.latencies.len();
        if count == 0 {
            return Latency::default();
        }
        let quantile = |q: f64| self.latencies.value_at_quantile(q) as f64 / 1e3;
        Latency {
            count,
            us_mean: self.latency_sum as f64 / count as f64 / 1e3,
            us_min: self.latencies.min() as f64 / 1e3,
            us_p50: quantile(0.5),
            us_p90: quantile(0.9),
            us_p95: quantile(0.95),
            us_p99: quantile(0.99),
            us_p999: quantile(0.999),
            us_max: self.latencies.max() as f64 / 1e3,
            clipped: 0,
        }
    }
}

/// A service time in nanoseconds, by inverse transform.
fn draw(station: &Station, random: &mut Xoshiro256PlusPlus) -> u64 {
    let mean = nanos(station.demand);
    match station.service {
        Service::Deterministic => mean,
        Service::Exponential => {
            // Uniform on (0, 1]: the logarithm of 0 would be a service without end.
            let uniform = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            (-uniform.ln() * mean as f64).round() as u64
        }
    }
}

/// `what` is `busy`, `waiting` or `serving`.
fn counter(station: &Station, what: &str) -> String {
    format!("station.{}.{what}_secs", station.name)
}

fn nanos(span: Span) -> u64 {
    span.0.as_nanos() as u64
}

/// One seed for each trial: FNV-1a over all that tells trials apart.
fn mix(seed: u64, workload: &str, level: u32, repetition: u32) -> u64 {
    let numbers = [seed, u64::from(level), u64::from(repetition)].map(u64::to_le_bytes).concat();
    workload.bytes().chain(numbers).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(any(test, feature = "test-support"))]
#[cfg_attr(not(test), allow(dead_code, missing_docs, unused_imports))]
pub mod tests;
