//! The simulated target against mean value analysis and its own laws; and the models other tests are made of.

use super::*;
use crate::results::{Intervention, Results, Selftest, WorkloadPlan};

/// `name servers demand`, exponential, comma-separated; a `=` before the demand makes it deterministic.
pub fn model(text: &str) -> Model {
    let station = |text: &str| {
        let words: Vec<&str> = text.split_whitespace().collect();
        let exact = words[2].strip_prefix('=');
        Station {
            name: words[0].to_owned(),
            servers: words[1].parse().unwrap(),
            demand: exact.unwrap_or(words[2]).parse().unwrap(),
            service: if exact.is_some() { Service::Deterministic } else { Service::Exponential },
            limit: None,
        }
    };
    Model { stations: text.split(", ").map(station).collect() }
}

/// A whole experiment on a simulated target: `workload` at every level, `repetitions` times.
pub fn sweep(model: &Model, workloads: &[&str], levels: &[u32], repetitions: u32, secs: &str) -> Results {
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
        selftest_at: None,
        selftest_cores: None,
        resources: resources(model),
        workloads: workloads
            .iter()
            .map(|name| WorkloadPlan {
                name: (*name).to_owned(),
                about: "One request after the other.".into(),
                levels: None,
                published: None,
            })
            .collect(),
        levels: levels.to_vec(),
        repetitions,
        sequential: false,
        published: Vec::new(),
        trials,
        interventions: Vec::new(),
        searches: Vec::new(),
    }
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
fn every_client_is_somewhere_at_every_instant() {
    let text = "cpu 2 =1ms, disk 1 1ms, net 0 3ms";
    for window in ["1s", "1234567us"] {
        let (trial, load) = load(&model(text), 12, window);
        let of = |station: &str, what: &str| trial.growth(&format!("station.{station}.{what}_secs"));
        let located: f64 = ["cpu", "disk", "net"]
            .iter()
            .map(|station| of(station, "waiting").unwrap() + of(station, "serving").unwrap())
            .sum();
        assert!((located / load.window_secs - 12.0).abs() < 1e-6, "{located}");
        assert_eq!(of("net", "waiting"), Some(0.0));
        assert_eq!((of("net", "busy"), of("disk", "busy")), (None, of("disk", "serving")));
        assert!(of("disk", "waiting") > of("cpu", "waiting"), "the queue is in front of the slowest");
    }
}

#[test]
fn a_station_is_called_what_its_model_says() {
    let mut model = model("generator 1 1ms, disk 1 1ms, cpu 1 1ms, net 0 1ms");
    model.stations[1].limit = Some(Limit::CommitPath);
    let limits: Vec<_> = resources(&model).into_iter().map(|of| (of.name, of.limit.unwrap())).collect();
    let expected = [("generator", Limit::Generator), ("disk", Limit::CommitPath), ("cpu", Limit::Other)];
    assert_eq!(limits, expected.map(|(name, limit)| (name.to_owned(), limit)));
    let toml = "name = \"disk\"\nservers = 1\ndemand = \"1ms\"\nlimit = \"commit_path\"";
    assert_eq!(toml::from_str::<Station>(toml).unwrap(), model.stations[1]);
}

#[test]
fn only_the_slowest_station_costs_goodput_when_it_is_made_slower() {
    let model = model("cpu 2 1ms, disk 1 2ms, net 0 3ms");
    let wanted = Interventions { level: 40, rounds: 2, strength: 0.3 };
    let done = interventions(&model, wanted, "w", 5, "1s".parse().unwrap(), "100s".parse().unwrap());
    let names = |round: u32| {
        let of = done.iter().filter(|one| one.trial.repetition == round);
        of.map(|one| one.change.as_ref().map(|change| change.name.as_str())).collect::<Vec<_>>()
    };
    for round in 0..2 {
        let mut names = names(round);
        assert_eq!(names.first(), Some(&None), "each round begins with the counterpart");
        names.sort_unstable();
        assert_eq!(names, [None, Some("cpu"), Some("disk"), Some("net")]);
    }
    let goodput = |one: &Intervention| one.trial.load.as_ref().unwrap().goodput_rps;
    for one in &done {
        let base = done.iter().find(|base| base.trial.repetition == one.trial.repetition).map(goodput);
        let (share, change) = (goodput(one) / base.unwrap(), one.change.as_ref());
        let Some(change) = change else { continue };
        match change.name.as_str() {
            "disk" => assert!((share - 1.0 / 1.3).abs() < 0.03, "{share}"),
            _ => assert!((share - 1.0).abs() < 0.03, "{}: {share}", change.name),
        }
        let raised = if change.name == "net" { vec![] } else { vec![change.name.clone()] };
        assert_eq!(change.raises, raised);
        let servers = if change.name == "cpu" { 2.0 } else { 1.0 };
        assert!((change.added_us - 0.3 * servers / base.unwrap() * 1e6).abs() < 1e-6);
    }
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
        let why = model(text).check().unwrap_err().to_string();
        assert!(why.contains(word), "{why}");
    }
    let toml = "[[station]]\nname = \"cpu\"\nservers = 1\ndemand = \"1ms\"\nservice = \"deterministic\"";
    assert_eq!(toml::from_str::<Model>(toml).unwrap(), model("cpu 1 =1ms"));
    assert!(toml::from_str::<Model>(&toml.replace("servers", "servants")).is_err());
}
