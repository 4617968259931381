//! A target of which the truth is known: a closed queueing network, simulated in virtual time.
//!
//! It yields the same trials as a real target, in milliseconds instead of minutes, so that what the analysis finds
//! can be compared with what was put in. Touches no clock; the same seed gives the same trial.

use super::results::{Change, Intervention, Limit, Reading, Resource, ResourceKind, Trial};
use hdrhistogram::Histogram;
use kv::Error;
use kv::proto::{FORMAT, Latency, LoadReport, OperationReport, SecondReport};
use kv::units::Span;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

/// The station that plays the load generator, where a model has one: a limit there is no limit of the target.
pub const GENERATOR: &str = "generator";

/// A closed network: every request visits the stations in order, and the client then sends the next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// In the order of a request's way.
    pub stations: Vec<Station>,
}

/// Something a request waits for, first come, first served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// How service times spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        if self.stations.is_empty() {
            return Err(Error::input("a simulated target has at least one station"));
        }
        let mut names = HashSet::new();
        for station in &self.stations {
            let name = &station.name;
            if name.is_empty() || !names.insert(name) {
                return Err(Error::input(format_args!(
                    "every station has a name of its own, and {name:?} is not one"
                )));
            }
            if station.demand.secs() > 3600.0 {
                return Err(Error::input(format_args!(
                    "the demand of station {name:?} is more than an hour"
                )));
            }
        }
        // Below this the clock of the simulation, in nanoseconds, hardly advances between two requests.
        if self.stations.iter().map(|station| station.demand.secs()).sum::<f64>() < 1e-6 {
            return Err(Error::input("the demands of a simulated target add up to less than 1us"));
        }
        Ok(())
    }
}

/// The resources of a model, in its order: every station but the pure delays, which have no limit.
pub fn resources(model: &Model) -> Vec<Resource> {
    let limited = model.stations.iter().filter(|station| station.servers > 0);
    limited
        .map(|station| Resource {
            name: station.name.clone(),
            busy: vec![counter(station, "busy")],
            servers: f64::from(station.servers),
            kind: match station.name.as_str() {
                GENERATOR => ResourceKind::Generator,
                _ => ResourceKind::Station,
            },
            limit: Some(match station.name.as_str() {
                GENERATOR => Limit::Generator,
                _ => station.limit.unwrap_or(Limit::Other),
            }),
            waiting: vec![counter(station, "waiting")],
            serving: vec![counter(station, "serving")],
            ..Resource::default()
        })
        .collect()
}

/// How large interventions are and how often they are repeated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interventions {
    /// Clients of every trial.
    pub level: u32,
    /// How often each station is made slower, and how many counterparts there are.
    pub rounds: u32,
    /// The demand that is added, as a share of a station's servers / goodput.
    pub strength: f64,
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

/// Makes each station of `model` slower in turn, as the lab does with a real target: rounds of the model as it is and then of every
/// change, in random order. A round whose counterpart fails has no more than that.
pub fn interventions(
    model: &Model,
    wanted: Interventions,
    workload: &str,
    seed: u64,
    warmup: Span,
    window: Span,
) -> Vec<Intervention> {
    let Interventions { level, rounds, strength } = wanted;
    let mut done = Vec::new();
    for round in 0..rounds {
        let run = |model: &Model, change: Option<&Change>| {
            trial(model, workload, level, round, seed_of(seed, change), warmup, window)
        };
        let base = run(model, None);
        let goodput = base.load.as_ref().map_or(0.0, |load| load.goodput_rps);
        done.push(Intervention { change: None, trial: base });
        if goodput <= 0.0 {
            continue;
        }
        let mut turns = changes(model, strength, goodput);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(mix(seed, workload, level, round));
        for i in (1..turns.len()).rev() {
            turns.swap(i, (random.next_u64() % (i as u64 + 1)) as usize);
        }
        done.extend(turns.into_iter().map(|change| {
            let trial = run(&changed(model, &change), Some(&change));
            Intervention { change: Some(change), trial }
        }));
    }
    done
}

/// Simulates `level` clients for `warmup` and then `window` of virtual time. A model that [`Model::check`] refuses
/// gives a failed trial.
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
    let failed = |why: String| Trial {
        workload: workload.to_owned(),
        level,
        repetition,
        load: None,
        failure: Some(why),
        elapsed_secs: 0.0,
        opened: Reading::default(),
        closed: Reading::default(),
    };
    if let Err(why) = model.check() {
        return failed(why.to_string());
    }
    if window.secs() < 1e-3 {
        return failed("the window of a simulated trial is shorter than 1ms".into());
    }
    let random = Xoshiro256PlusPlus::seed_from_u64(mix(seed, workload, level, repetition));
    let mut network = Network::new(model, level, random, nanos(warmup), nanos(warmup) + nanos(window));
    network.run();
    network.trial(workload, level, repetition, seed, warmup, window)
}

/// The network in motion. Instants are nanoseconds of virtual time.
struct Network<'a> {
    model: &'a Model,
    random: Xoshiro256PlusPlus,
    opens: u64,
    closes: u64,
    /// What happens next: a client's service ends. The number in the middle keeps ties in the order they arose.
    agenda: BinaryHeap<Reverse<(u64, u64, u32)>>,
    sequence: u64,
    clients: Vec<Client>,
    queues: Vec<Queue>,
    latencies: Histogram<u64>,
    latency_sum: u128,
    /// Of the requests counted, the time before the window in which they began.
    before_window: u128,
    seconds: Vec<(u64, u128)>,
}

#[derive(Clone, Copy)]
struct Client {
    station: usize,
    sent: u64,
}

#[derive(Clone, Default)]
struct Queue {
    /// Who waits, and since when.
    waiting: VecDeque<(u32, u64)>,
    working: u32,
    /// Client-time in service. A server serves one client, so it is the time in which servers were busy, too.
    served: Spent,
    /// Client-time of those who waited, without those who still do.
    waited: Spent,
}

/// Time that was spent somewhere, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Spent {
    before_window: u64,
    until_close: u64,
}

impl Spent {
    fn add(&mut self, from: u64, to: u64, opens: u64, closes: u64) {
        self.before_window += to.min(opens) - from.min(opens);
        self.until_close += to.min(closes) - from.min(closes);
    }
}

impl<'a> Network<'a> {
    fn new(model: &'a Model, level: u32, random: Xoshiro256PlusPlus, opens: u64, closes: u64) -> Network<'a> {
        let whole_seconds = (closes - opens) / 1_000_000_000;
        Network {
            model,
            random,
            opens,
            closes,
            agenda: BinaryHeap::new(),
            sequence: 0,
            clients: vec![Client { station: 0, sent: 0 }; level as usize],
            queues: vec![Queue::default(); model.stations.len()],
            latencies: Histogram::new(3).expect("three digits are allowed"),
            latency_sum: 0,
            before_window: 0,
            seconds: vec![(0, 0); whole_seconds as usize],
        }
    }

    fn run(&mut self) {
        for client in 0..self.clients.len() as u32 {
            self.arrive(client, 0, 0);
        }
        while let Some(Reverse((now, _, client))) = self.agenda.pop() {
            if now >= self.closes {
                break;
            }
            let station = self.clients[client as usize].station;
            self.leave(station, now);
            if station + 1 < self.queues.len() {
                self.arrive(client, station + 1, now);
            } else {
                self.complete(client, now);
                self.arrive(client, 0, now);
            }
        }
    }

    fn arrive(&mut self, client: u32, station: usize, now: u64) {
        self.clients[client as usize].station = station;
        let servers = self.model.stations[station].servers;
        if servers > 0 && self.queues[station].working == servers {
            self.queues[station].waiting.push_back((client, now));
        } else {
            self.queues[station].working += 1;
            self.serve(client, station, now);
        }
    }

    fn serve(&mut self, client: u32, station: usize, now: u64) {
        let ends = now + draw(&self.model.stations[station], &mut self.random);
        let queue = &mut self.queues[station];
        queue.served.add(now, ends, self.opens, self.closes);
        self.sequence += 1;
        self.agenda.push(Reverse((ends, self.sequence, client)));
    }

    fn leave(&mut self, station: usize, now: u64) {
        let queue = &mut self.queues[station];
        match queue.waiting.pop_front() {
            Some((next, since)) => {
                queue.waited.add(since, now, self.opens, self.closes);
                self.serve(next, station, now);
            }
            None => queue.working -= 1,
        }
    }

    fn complete(&mut self, client: u32, now: u64) {
        let client = &mut self.clients[client as usize];
        let sent = std::mem::replace(&mut client.sent, now);
        let latency = now - sent;
        if now < self.opens {
            return;
        }
        self.before_window += u128::from(self.opens.saturating_sub(sent));
        self.latencies.record(latency).expect("the histogram grows as needed");
        self.latency_sum += u128::from(latency);
        if let Some((count, sum)) = self.seconds.get_mut(((now - self.opens) / 1_000_000_000) as usize) {
            *count += 1;
            *sum += u128::from(latency);
        }
    }

    fn trial(
        &self,
        workload: &str,
        level: u32,
        repetition: u32,
        seed: u64,
        warmup: Span,
        window: Span,
    ) -> Trial {
        let reading = |at: fn(&Spent) -> u64| {
            let counters = self.model.stations.iter().zip(&self.queues).flat_map(|(station, queue)| {
                let [served, waited] =
                    [queue.served, self.waited(queue)].map(|spent| at(&spent) as f64 / 1e9);
                let busy = (station.servers > 0).then_some(("busy", served));
                let counted = busy.into_iter().chain([("serving", served), ("waiting", waited)]);
                counted.map(|(what, secs)| (counter(station, what), secs))
            });
            Reading { counters: counters.collect(), gauges: BTreeMap::new() }
        };
        let generator = self.model.stations.iter().position(|of| of.name == GENERATOR && of.servers > 0);
        let cpu = generator.map(|i| self.queues[i].served.until_close - self.queues[i].served.before_window);
        let latency = self.latency();
        let load = LoadReport {
            format: FORMAT,
            workload: workload.to_owned(),
            clients: level,
            pacing: "closed".to_owned(),
            threads: generator.map_or(1, |i| self.model.stations[i].servers),
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
            edge_secs: self.edge_secs(),
            cpu_secs: cpu.unwrap_or(0) as f64 / 1e9,
            seconds: self
                .seconds
                .iter()
                .map(|(count, sum)| SecondReport {
                    attempts: *count,
                    successes: *count,
                    latency_us_mean: if *count == 0 { 0.0 } else { *sum as f64 / *count as f64 / 1e3 },
                    ..SecondReport::default()
                })
                .collect(),
            ..LoadReport::default()
        };
        Trial {
            workload: workload.to_owned(),
            level,
            repetition,
            load: Some(load),
            failure: None,
            elapsed_secs: window.secs(),
            opened: reading(|spent| spent.before_window),
            closed: reading(|spent| spent.until_close),
        }
    }

    /// What was waited in a queue, those included who wait when the window closes.
    fn waited(&self, queue: &Queue) -> Spent {
        let mut waited = queue.waited;
        for (_, since) in &queue.waiting {
            waited.add(*since, self.closes, self.opens, self.closes);
        }
        waited
    }

    /// What the latencies lack of the time in the window: [`LoadReport::edge_secs`].
    fn edge_secs(&self) -> f64 {
        let within = |client: &Client| u128::from(self.closes - client.sent.max(self.opens));
        let in_flight: u128 = self.clients.iter().map(within).sum();
        (in_flight as f64 - self.before_window as f64) / 1e9
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
