//! A target of which the truth is known: a closed queueing network, simulated in virtual time.
//!
//! It yields the same trials as a real target, in milliseconds instead of minutes, so that what the analysis finds
//! can be compared with what was put in. Touches no clock; the same seed gives the same trial.

use super::results::{Reading, Resource, ResourceKind, Trial};
use crate::proto::{FORMAT, Latency, LoadReport, OperationReport, SecondReport};
use crate::units::Span;
use hdrhistogram::Histogram;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashSet, VecDeque};

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
    pub fn check(&self) -> Result<(), String> {
        if self.stations.is_empty() {
            return Err("a simulated target has at least one station".into());
        }
        let mut names = HashSet::new();
        for station in &self.stations {
            let name = &station.name;
            if name.is_empty() || !names.insert(name) {
                return Err(format!("every station has a name of its own, and {name:?} is not one"));
            }
            if station.demand.secs() > 3600.0 {
                return Err(format!("the demand of station {name:?} is more than an hour"));
            }
        }
        // Below this the clock of the simulation, in nanoseconds, hardly advances between two requests.
        if self.stations.iter().map(|station| station.demand.secs()).sum::<f64>() < 1e-6 {
            return Err("the demands of a simulated target add up to less than 1us".into());
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
            busy: vec![counter(station)],
            servers: f64::from(station.servers),
            kind: match station.name.as_str() {
                GENERATOR => ResourceKind::Generator,
                _ => ResourceKind::Station,
            },
            ..Resource::default()
        })
        .collect()
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
        return failed(why);
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
    waiting: VecDeque<u32>,
    working: u32,
    busy_before_window: u64,
    busy_until_close: u64,
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
            self.queues[station].waiting.push_back(client);
        } else {
            self.queues[station].working += 1;
            self.serve(client, station, now);
        }
    }

    fn serve(&mut self, client: u32, station: usize, now: u64) {
        let ends = now + draw(&self.model.stations[station], &mut self.random);
        let queue = &mut self.queues[station];
        queue.busy_before_window += ends.min(self.opens) - now.min(self.opens);
        queue.busy_until_close += ends.min(self.closes) - now.min(self.closes);
        self.sequence += 1;
        self.agenda.push(Reverse((ends, self.sequence, client)));
    }

    fn leave(&mut self, station: usize, now: u64) {
        match self.queues[station].waiting.pop_front() {
            Some(next) => self.serve(next, station, now),
            None => self.queues[station].working -= 1,
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
        let reading = |busy: fn(&Queue) -> u64| {
            let limited =
                self.model.stations.iter().zip(&self.queues).filter(|(station, _)| station.servers > 0);
            let counters =
                limited.map(|(station, queue)| (counter(station), busy(queue) as f64 / 1e9)).collect();
            Reading { counters, gauges: BTreeMap::new() }
        };
        let generator = self.model.stations.iter().position(|of| of.name == GENERATOR && of.servers > 0);
        let cpu = generator.map(|i| self.queues[i].busy_until_close - self.queues[i].busy_before_window);
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
            opened: reading(|queue| queue.busy_before_window),
            closed: reading(|queue| queue.busy_until_close),
        }
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

fn counter(station: &Station) -> String {
    format!("station.{}.busy_secs", station.name)
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lab::results::{Results, Selftest, WorkloadPlan};

    /// `name servers demand`, exponential, comma-separated; a `=` before the demand makes it deterministic.
    pub(crate) fn model(text: &str) -> Model {
        let station = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            let exact = words[2].strip_prefix('=');
            Station {
                name: words[0].to_owned(),
                servers: words[1].parse().unwrap(),
                demand: exact.unwrap_or(words[2]).parse().unwrap(),
                service: if exact.is_some() { Service::Deterministic } else { Service::Exponential },
            }
        };
        Model { stations: text.split(", ").map(station).collect() }
    }

    /// A whole experiment on a simulated target: `workload` at every level, `repetitions` times.
    pub(crate) fn sweep(
        model: &Model,
        workloads: &[&str],
        levels: &[u32],
        repetitions: u32,
        secs: &str,
    ) -> Results {
        let mut trials = Vec::new();
        for repetition in 0..repetitions {
            for workload in workloads {
                for level in levels {
                    let (warmup, window) = ("500ms".parse().unwrap(), secs.parse().unwrap());
                    trials.push(trial(model, workload, *level, repetition, 7, warmup, window));
                }
            }
        }
        Results {
            format: FORMAT,
            weir_version: "0.1.0".into(),
            name: "simulated".into(),
            title: "A simulated target".into(),
            experiment_toml: "name = \"simulated\"\n".into(),
            command: "weir lab simulated --seed 7".into(),
            started: "2026-01-02T03:04:05Z".into(),
            scale: None,
            measured: None,
            seed: 7,
            environment: vec![("cpu".into(), "virtual".into())],
            placements: Vec::new(),
            selftest: Some(Selftest::Simulated),
            selftest_cores: None,
            resources: resources(model),
            workloads: workloads
                .iter()
                .map(|name| WorkloadPlan {
                    name: (*name).to_owned(),
                    about: "One request after the other.".into(),
                    levels: None,
                    printed: None,
                })
                .collect(),
            levels: levels.to_vec(),
            repetitions,
            printed: Vec::new(),
            trials,
            interventions: Vec::new(),
            predictions: Vec::new(),
            searches: Vec::new(),
        }
    }

    /// Exact mean value analysis of single-server and delay stations: throughput per second.
    /// Source: Reiser & Lavenberg, Mean-Value Analysis of Closed Multichain Queuing Networks (1980).
    fn mva(model: &Model, clients: u32) -> f64 {
        let mut queued = vec![0.0; model.stations.len()];
        let mut throughput = 0.0;
        for n in 1..=clients {
            let residence: Vec<f64> = (model.stations.iter().zip(&queued))
                .map(|(station, queued)| match station.servers {
                    0 => station.demand.secs(),
                    _ => station.demand.secs() * (1.0 + queued),
                })
                .collect();
            throughput = f64::from(n) / residence.iter().sum::<f64>();
            queued = residence.iter().map(|secs| throughput * secs).collect();
        }
        throughput
    }

    fn load(model: &Model, level: u32, window: &str) -> (Trial, LoadReport) {
        let trial = trial(model, "w", level, 0, 1, "1s".parse().unwrap(), window.parse().unwrap());
        let load = trial.load.clone().unwrap();
        (trial, load)
    }

    #[test]
    fn throughput_is_that_of_mean_value_analysis() {
        for (text, level) in [
            ("cpu 1 1ms", 1),
            ("cpu 1 1ms, disk 1 0.5ms", 2),
            ("cpu 1 1ms, disk 1 1ms, net 0 3ms", 6),
            ("cpu 1 2ms, disk 1 1ms, net 0 10ms", 20),
        ] {
            let model = model(text);
            let (exact, seen) = (mva(&model, level), load(&model, level, "40s").1.goodput_rps);
            assert!((seen / exact - 1.0).abs() < 0.02, "{text}, {level} clients: {seen} instead of {exact}");
        }
    }

    #[test]
    fn many_servers_work_side_by_side() {
        let (trial, load) = load(&model("cpu 4 =10ms"), 3, "2s");
        assert!((load.goodput_rps - 300.0).abs() <= 3.0, "{}", load.goodput_rps);
        let utilization = trial.utilization(&resources(&model("cpu 4 =10ms"))[0]).unwrap();
        assert!((utilization - 0.75).abs() < 1e-9, "{utilization}");
    }

    #[test]
    fn a_report_is_complete_and_keeps_littles_law() {
        let (_, load) = load(&model("cpu 1 1ms, net 0 4ms"), 8, "2500ms");
        assert_eq!((load.seconds.len(), load.operations.len(), load.clients), (2, 1, 8));
        let latency = load.latency;
        let ranks =
            [latency.us_min, latency.us_p50, latency.us_p90, latency.us_p99, latency.us_p999, latency.us_max];
        assert!(ranks.is_sorted() && latency.us_mean < latency.us_max);
        let client_secs = load.attempts as f64 * latency.us_mean / 1e6 + load.edge_secs;
        let residual = client_secs / load.window_secs / 8.0 - 1.0;
        assert!(residual.abs() < 1e-9, "{residual}");
        assert_eq!((load.in_flight_mean, load.in_flight_at_end), (Some(8.0), 8));
    }

    #[test]
    fn the_seed_decides_and_repetitions_differ() {
        let model = model("cpu 1 1ms");
        let of = |seed, repetition| {
            let (warmup, window) = ("0s".parse().unwrap(), "200ms".parse().unwrap());
            trial(&model, "w", 2, repetition, seed, warmup, window).load.unwrap().latency
        };
        assert_eq!(of(1, 0), of(1, 0));
        assert_ne!(of(1, 0), of(1, 1));
        assert_ne!(of(1, 0), of(2, 0));
    }

    #[test]
    fn a_model_that_would_not_move_is_refused() {
        assert!(Model { stations: vec![] }.check().is_err());
        for (text, word) in [("a 1 0s", "1us"), ("a 1 1ms, a 1 1ms", "name"), ("a 1 2h", "hour")] {
            let why = model(text).check().unwrap_err();
            assert!(why.contains(word), "{why}");
            let span: Span = "1s".parse().unwrap();
            assert_eq!(trial(&model(text), "w", 1, 0, 1, span, span).failure, Some(why));
        }
        let toml = "[[stations]]\nname = \"cpu\"\nservers = 1\ndemand = \"1ms\"\nservice = \"deterministic\"";
        assert_eq!(toml::from_str::<Model>(toml).unwrap(), model("cpu 1 =1ms"));
        assert!(toml::from_str::<Model>(&toml.replace("servers", "servants")).is_err());
    }
}
