//! What is foretold of networks whose truth is known: solved state by state, simulated, or made up.

use super::demands::Demand;
use super::mva::{Network, Service, Station, cycle_us};
use super::*;
use crate::lab::analysis::findings;
use crate::lab::results::{Resource, ResourceKind, Trial};
use crate::lab::simulated::tests::{model, sweep};
use crate::proto::ScheduleReport;

fn queue(demand_us: f64, servers: f64) -> Station {
    Station { demand_us, service: Service::Queue { servers } }
}

fn rps(network: &Network, clients: u32) -> f64 {
    f64::from(clients) / cycle_us(network, clients) * 1e6
}

/// Every way to put `clients` into `places`.
fn states(clients: u32, places: usize) -> Vec<Vec<u32>> {
    if places == 1 {
        return vec![vec![clients]];
    }
    let with = |here: u32| {
        states(clients - here, places - 1).into_iter().map(move |rest| [vec![here], rest].concat())
    };
    (0..=clients).flat_map(with).collect()
}

/// Throughput per second of a cycle of stations, from the balance of its Markov chain: nothing of mean value analysis is in it.
fn markov_rps(stations: &[(f64, f64)], clients: u32) -> f64 {
    let states = states(clients, stations.len());
    let rate = |state: &[u32], i: usize| f64::from(state[i]).min(stations[i].1) / stations[i].0;
    let fastest: f64 =
        1.1 * stations.iter().map(|(us, servers)| servers.min(f64::from(clients)) / us).sum::<f64>();
    let mut shares = vec![1.0 / states.len() as f64; states.len()];
    for _ in 0..20_000 {
        let mut next = shares.clone();
        for (from, state) in states.iter().enumerate() {
            for i in (0..stations.len()).filter(|i| state[*i] > 0) {
                let mut moved = state.clone();
                moved[i] -= 1;
                moved[(i + 1) % stations.len()] += 1;
                let flow = shares[from] * rate(state, i) / fastest;
                next[from] -= flow;
                next[states.iter().position(|of| *of == moved).unwrap()] += flow;
            }
        }
        shares = next;
    }
    states.iter().zip(&shares).map(|(state, share)| share * rate(state, 0)).sum::<f64>() * 1e6
}

#[test]
fn throughput_is_that_of_the_networks_markov_chain() {
    // The last is a delay: it has a server for everyone.
    for (stations, clients) in [
        (vec![(10.0, 1.0), (5.0, 1.0)], 4),
        (vec![(10.0, 2.0), (6.0, 1.0), (30.0, 9.0)], 5),
        (vec![(40.0, 3.0), (7.0, 2.0), (5.0, 9.0)], 6),
    ] {
        let places = stations.len() - usize::from(stations.len() > 2);
        let delay_us = stations.get(2).map_or(0.0, |delay| delay.0);
        let network = Network {
            stations: stations[..places].iter().map(|(us, servers)| queue(*us, *servers)).collect(),
            delay_us,
        };
        let (exact, foretold) = (markov_rps(&stations, clients), rps(&network, clients));
        assert!((foretold / exact - 1.0).abs() < 1e-6, "{stations:?}: {foretold} instead of {exact}");
    }
}

#[test]
fn equal_stations_have_the_throughput_of_the_closed_form() {
    let network = Network { stations: vec![queue(100.0, 1.0); 3], delay_us: 0.0 };
    for clients in [1, 2, 10, 1000] {
        let exact = f64::from(clients) / (f64::from(clients) + 2.0) * 1e4;
        assert!((rps(&network, clients) / exact - 1.0).abs() < 1e-9);
    }
}

#[test]
fn half_a_processor_is_a_slower_one() {
    let network = |servers| Network { stations: vec![queue(50.0 * servers, servers)], delay_us: 500.0 };
    assert!((rps(&network(0.5), 20) / rps(&network(1.0), 20) - 1.0).abs() < 1e-9);
}

#[test]
fn a_lane_that_gathers_has_no_limit_but_takes_up_to_half_a_batch_longer() {
    let lane = Station { demand_us: 1000.0, service: Service::Gathers { lanes: 1.0 } };
    let network = Network { stations: vec![lane], delay_us: 10.0 };
    assert!((cycle_us(&network, 1) - 1010.0).abs() < 1e-9);
    assert!((cycle_us(&network, 64) - 1510.0).abs() < 1.0);
    let lanes = Station { service: Service::Gathers { lanes: 64.0 }, ..lane };
    assert!(cycle_us(&Network { stations: vec![lanes], ..network }, 2) < 1020.0);
}

/// The predictions of the only workload of a simulated sweep, each beside what was measured.
fn beside(stations: &str, levels: &[u32]) -> Vec<Foretold> {
    let mut results = sweep(&model(stations), &["w"], levels, 1, "60s");
    register(&mut results);
    findings(&results).workloads.remove(0).foretold
}

/// Writes down what is foretold, as if it had been when only the levels it is made of were measured.
fn register(results: &mut Results) {
    let from = foretold_from(&results.levels);
    results.trials.sort_by_key(|trial| from.iter().position(|level| *level == trial.level).unwrap_or(9));
    let made = predictions(results, "w").into_iter().zip([1, 3]).map(|(made, after_trials)| {
        let said = serde_json::to_string(&made).unwrap();
        Registered {
            workload: "w".into(),
            method: made.method,
            at: "2026-01-02T03:04:05Z".into(),
            after_trials,
            sha256: sha256(&said),
            said,
        }
    });
    results.predictions = made.collect();
}

#[test]
fn a_sweep_of_a_network_is_foretold_from_its_lone_client() {
    for stations in
        ["cpu 1 1ms, disk 1 0.6ms, net 0 4ms", "cpu 2 2ms, disk 1 0.5ms, generator 1 0.7ms, net 0 3ms"]
    {
        let foretold = beside(stations, &[1, 2, 4, 8, 16, 32]);
        assert_eq!(foretold.len(), 2);
        for of in &foretold {
            let capacity = of.capacity_error.unwrap();
            assert!(of.intact && of.moved.is_none() && capacity.abs() < 0.02, "{stations}: {of:?}");
            assert!(of.errors.iter().all(|(_, error)| error.abs() < 0.02), "{stations}: {:?}", of.errors);
            let kept = |at: &PredictedLevel| {
                at.rps <= at.rps_bound * 1.02 && at.latency_us >= at.latency_us_bound * 0.98
            };
            assert!(of.prediction.levels.iter().all(kept), "{:?}", of.prediction.levels);
        }
        assert_eq!(foretold[0].errors.iter().map(|(level, _)| *level).collect::<Vec<_>>(), [2, 4, 8, 16, 32]);
        assert_eq!(foretold[1].prediction.from_levels, [1, 4, 32]);
    }
}

/// A sweep of which each level is of a model of its own: the demand depends on the level.
fn shifting(levels: &[u32], stations: impl Fn(u32) -> String) -> Results {
    let mut results = sweep(&model(&stations(1)), &["w"], levels, 1, "100ms");
    results.trials = levels
        .iter()
        .flat_map(|level| sweep(&model(&stations(*level)), &["w"], &[*level], 1, "60s").trials)
        .collect();
    register(&mut results);
    results
}

#[test]
fn a_demand_that_falls_is_named_where_it_was_taken_for_constant_and_foretold_from_three_levels() {
    let levels = [1, 2, 4, 8, 16, 32, 64];
    let results = shifting(&levels, |level| format!("cpu 1 {}us, net 0 500us", 100 + 900 / level));
    let foretold = findings(&results).workloads.remove(0).foretold;
    let [one, three] = foretold.as_slice() else { panic!("{foretold:?}") };
    assert!(one.capacity_error.unwrap() < -0.8, "{one:?}");
    let moved = one.moved.as_deref().unwrap();
    assert!(moved.contains("of the cpu at 1 client and 11") && moved.ends_with("at 64 clients."), "{moved}");
    assert!(three.capacity_error.unwrap().abs() < 0.02 && three.moved.is_none(), "{three:?}");
    assert!(three.errors.iter().all(|(_, error)| error.abs() < 0.03), "{:?}", three.errors);
}

/// A capacity that was measured to foretell it was once right to the per cent.
#[test]
fn a_capacity_is_judged_by_levels_that_nothing_was_made_from_and_that_are_valid() {
    let judged = |of: &[Foretold]| of.iter().map(|of| of.judged).collect::<Vec<_>>();
    // 64 is the best level, and one of the three.
    let results = shifting(&[1, 2, 4, 8, 16, 32, 64], |level| format!("cpu 1 {}us", 100 + 900 / level));
    assert_eq!(judged(&findings(&results).workloads[0].foretold), [true, false]);
    // Past its knee it is one in between.
    let results =
        shifting(&[1, 2, 4, 8, 16, 32, 64], |level| format!("cpu 1 {}us, net 0 2ms", 200 + 2 * level));
    assert_eq!(judged(&findings(&results).workloads[0].foretold), [true, true]);
    // What is foretold of levels that were not measured is held against nothing.
    let mut results = shifting(&[1, 4, 16], |_| "cpu 1 1ms, net 0 100ms".to_owned());
    results.trials.retain(|trial| trial.level == 1);
    let foretold = findings(&results).workloads.remove(0).foretold;
    assert!(foretold[0].capacity_error.unwrap().abs() < 0.02 && !foretold[0].judged, "{foretold:?}");
}

#[test]
fn a_prediction_that_was_changed_or_came_late_is_not_intact() {
    let intact = |results: &Results| {
        findings(results).workloads[0].foretold.iter().map(|of| of.intact).collect::<Vec<_>>()
    };
    let mut results = sweep(&model("cpu 1 1ms"), &["w"], &[1, 2, 4, 8], 1, "1s");
    register(&mut results);
    assert_eq!(intact(&results), [true, true]);
    results.predictions[0].said = results.predictions[0].said.replacen("1", "2", 1);
    results.predictions[1].after_trials = 4;
    assert_eq!(intact(&results), [false, false]);
}

#[test]
fn nothing_is_foretold_without_a_lone_client_or_of_an_open_loop() {
    let results = sweep(&model("cpu 1 1ms"), &["w"], &[2, 4], 1, "1s");
    assert_eq!(predictions(&results, "w"), []);
    assert_eq!(predictions(&results, "unknown"), []);
    let mut results = sweep(&model("cpu 1 1ms"), &["w"], &[1, 4], 1, "1s");
    assert_eq!(predictions(&results, "w").len(), 1);
    for trial in &mut results.trials {
        trial.load.as_mut().unwrap().schedule = Some(ScheduleReport::default());
    }
    assert_eq!(predictions(&results, "w"), []);
}

/// A second of a lone client with 1000 requests, and the busy seconds of each resource in it.
fn counted(resources: Vec<(Resource, f64)>) -> (Results, Trial) {
    let mut results = sweep(&model("cpu 1 1ms"), &["w"], &[1], 1, "1s");
    let mut trial = results.trials.remove(0);
    let load = trial.load.as_mut().unwrap();
    (load.attempts, load.window_secs, trial.elapsed_secs) = (1000, 1.0, 1.0);
    for (resource, secs) in &resources {
        trial.opened.counters.insert(resource.busy[0].clone(), 0.0);
        trial.closed.counters.insert(resource.busy[0].clone(), *secs);
    }
    results.resources = resources.into_iter().map(|(resource, _)| resource).collect();
    (results, trial)
}

fn resource(name: &str, kind: ResourceKind, within: &[&str]) -> Resource {
    Resource {
        name: name.into(),
        busy: vec![format!("{name}.busy_secs")],
        servers: 1.0,
        kind,
        within: within.iter().map(|name| (*name).to_owned()).collect(),
        ..Resource::default()
    }
}

fn own(demands: &[Demand]) -> Vec<(&str, f64, bool)> {
    demands.iter().map(|of| (of.name.as_str(), of.own_us.round(), of.gathers)).collect()
}

#[test]
fn what_is_used_while_something_else_is_held_counts_once() {
    use ResourceKind::{Indication, Pool, Station};
    let lanes = "store write lanes";
    let (results, trial) = counted(vec![
        (resource("server CPU", Station, &[lanes, "server lock"]), 0.1),
        (resource("server lock", Station, &[]), 0.8),
        (resource(lanes, Pool, &["server lock"]), 0.7),
        (resource("store flush", Station, &[lanes, "server lock"]), 0.5),
        (resource("disk", Indication, &[]), 0.9),
    ]);
    let point = demands::point(&results, &trial).unwrap();
    assert_eq!(
        own(&point.demands),
        [
            ("server CPU", 100.0, false),
            ("server lock", 0.0, false),
            (lanes, 100.0, true),
            ("store flush", 500.0, false)
        ]
    );
    assert_eq!(point.cycle_us, 1000.0);
    // It is held all the while, so it limits all the same.
    let curve = curve(ONE_POINT, &[point], &[1, 64]);
    assert!((curve.capacity_rps - 1250.0).abs() < 1.0, "{curve:?}");
}

#[test]
fn where_nobody_says_what_sessions_hold_it_is_the_processors() {
    use ResourceKind::{Generator, Pool, Station};
    let (mut results, trial) = counted(vec![
        (resource("server CPU", Station, &[]), 0.2),
        (resource("store write lanes", Pool, &[]), 0.5),
        (resource("generator CPU", Generator, &[]), 0.1),
    ]);
    let found = demands::point(&results, &trial).unwrap().demands;
    assert_eq!(
        own(&found),
        [("server CPU", 200.0, false), ("store write lanes", 300.0, true), ("generator CPU", 100.0, false)]
    );
    // Without batches a lane serves one at a time.
    results.experiment_toml = "[target]\nargs = [\"--lab\", \"--batching\", \"off\"]".into();
    assert!(demands::point(&results, &trial).unwrap().demands.iter().all(|of| !of.gathers));
    results.experiment_toml = "[target]\n[[workload]]\nname = \"w\"\nserve = [\"--batching=off\"]".into();
    assert!(demands::point(&results, &trial).unwrap().demands.iter().all(|of| !of.gathers));
    // What the generator answers for on shared cores is no second station.
    results.resources[2].busy.push("server CPU.busy_secs".into());
    let found = demands::point(&results, &trial).unwrap().demands;
    assert_eq!(own(&found), [("store write lanes", 500.0, false), ("generator CPU", 300.0, false)]);
}

#[test]
fn nothing_is_foretold_from_a_trial_that_failed_nor_from_levels_that_know_different_resources() {
    let results = sweep(&model("cpu 1 1ms\ndisk 1 2ms"), &["w"], &[1, 4, 16], 1, "1s");
    let methods = |results: &Results| -> Vec<String> {
        predictions(results, "w").into_iter().map(|prediction| prediction.method).collect()
    };
    assert_eq!(methods(&results), [ONE_POINT, THREE_POINT]);
    let busy = results.resources[0].busy[0].clone();
    let at = |level: u32| results.trials.iter().position(|trial| trial.level == level).unwrap();
    let mut silent = results.clone();
    silent.trials[at(4)].closed.counters.remove(&busy);
    assert_eq!(methods(&silent), [ONE_POINT]);
    let mut failed = results.clone();
    failed.trials[at(16)].failure = Some("the server ended during the trial".into());
    assert_eq!(methods(&failed), [ONE_POINT]);
    failed.trials[at(1)].failure = Some("the server ended during the trial".into());
    assert_eq!(methods(&failed), [""; 0]);
}

#[test]
fn the_levels_a_sweep_is_foretold_from_are_its_ends_and_its_middle() {
    assert_eq!(foretold_from(&[1, 4, 16, 32, 64, 128, 256]), [1, 16, 256]);
    assert_eq!(foretold_from(&[1, 100]), [1, 100]);
    assert_eq!(foretold_from(&[1]), [1]);
    assert_eq!(foretold_from(&[2, 4]), [0u32; 0]);
    assert_eq!(foretold_from(&[]), [0u32; 0]);
}
