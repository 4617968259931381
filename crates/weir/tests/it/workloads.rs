//! What the workloads of the load generator ask for, seen from the server.
//!
//! The servers are those of `load`.

use super::load::{Reply, Server, ok, plan, run, run_for, status, streams_of};
use kv::proto::{Latency, LoadEvent};
use load::{self, Plan, WORKLOADS};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;
use std::time::Duration;

#[test]
fn each_workload_runs_without_errors_over_its_own_operations() {
    let mut told = Vec::new();
    for (workload, operations, absent) in [
        ("get_popular", &["get"][..], false),
        ("get_all", &["get"], false),
        ("put_all", &["put", "delete"], false),
        ("mixed", &["get", "put", "delete"], true),
        ("get_popular_1000", &["get"], false),
        ("get_zipfian", &["get"], false),
        ("get_hotspot", &["get"], false),
        ("get_scan", &["get"], false),
        ("put_sequential", &["put"], false),
        ("put_delete_67_33", &["put", "delete"], false),
        ("put_only", &["put"], false),
        ("put_all_big", &["put"], false),
        ("put_key_1", &["put"], false),
        ("delete_all", &["delete"], false),
        ("mixed_thirds", &["get", "put", "delete"], true),
        ("mixed_70_20_10", &["get", "put", "delete"], true),
        ("mixed_40_30_30", &["get", "put"], true),
        ("compute_prime", &["compute_prime"], false),
        ("compute_hash", &["compute_hash"], false),
        ("compute_mixed", &["compute_hash", "compute_prime"], false),
        ("ycsb_a", &["get", "put"], false),
        ("ycsb_b", &["get", "put"], false),
        ("ycsb_c", &["get"], false),
        ("ycsb_d", &["get", "put"], false),
        ("ycsb_f", &["get", "put"], false),
    ] {
        told.push(workload);
        let server = Server::start(|_| Reply::Store);
        // More keys than the popular ones, so that where only those are preloaded some reads find nothing.
        let plan =
            Plan { clients: 4, threads: 2, keys: Some(50), preload: true, ..plan(server.address, workload) };
        let mut events = Vec::new();
        // On a machine that is busy otherwise, the shortest window may pass before anything comes back.
        let windows = [100, 1000, 10_000].map(Duration::from_millis).into_iter();
        let reports = windows.map(|window| {
            events.clear();
            let report = load::run(&Plan { window, ..plan.clone() }, &mut |event| {
                if !matches!(event, LoadEvent::Preloading { .. } | LoadEvent::Second { .. }) {
                    events.push(event);
                }
            });
            report.unwrap()
        });
        let report = reports.into_iter().find(|report| report.attempts >= 100).expect(workload);
        assert_eq!((report.attempts, report.errors.len()), (report.successes, 0), "{report:?}");
        assert_eq!((report.workload.as_str(), report.clients, report.threads), (workload, 4, 2));
        let seen: Vec<&str> = report.operations.iter().map(|row| row.operation.as_str()).collect();
        assert_eq!(seen, operations);
        assert_eq!(report.operations.iter().map(|row| row.attempts).sum::<u64>(), report.attempts);
        assert_eq!(report.operations[0].absent > 0, absent);
        let Latency { us_mean, us_min, us_p50, us_p90, us_p99, us_p999, us_max, clipped, .. } =
            report.latency;
        assert!([us_min, us_p50, us_p90, us_p99, us_p999, us_max].is_sorted() && us_mean <= us_max);
        assert!(us_min > 0.0 && clipped == 0 && report.cpu_secs > 0.0, "{report:?}");
        let preloaded = events.iter().find_map(|event| match event {
            LoadEvent::Preloaded { keys, .. } => Some(*keys),
            _ => None,
        });
        let keys = match workload {
            "mixed_70_20_10" => Some(20),
            "mixed_40_30_30" => Some(10),
            _ => operations.contains(&"get").then_some(50),
        };
        assert_eq!(preloaded, keys);
        // The report says what was asked, and what was observed is that.
        assert_eq!(
            (report.about.as_str(), report.mix.len()),
            (plan.workload().about.as_str(), operations.len())
        );
        let keyed = !workload.starts_with("compute");
        assert_eq!((report.keys, report.distribution.is_empty()), (if keyed { 50 } else { 0 }, !keyed));
        assert_eq!(report.value_bytes, if keyed { "100" } else { "" });
        for row in &report.operations {
            let share = report.mix[&row.operation];
            let expected = report.attempts as f64 * share;
            // Six sigma: a machine that is right fails this once in a thousand million runs.
            let slack = 6.0 * (expected * (1.0 - share)).sqrt() + 4.0;
            assert!((row.attempts as f64 - expected).abs() <= slack, "{row:?} of {}", report.attempts);
        }
        assert_eq!(events[events.len() - 2..], [LoadEvent::WindowStart, LoadEvent::WindowEnd]);
    }
    told.sort_unstable();
    let mut all: Vec<&str> = WORKLOADS.iter().map(|row| row.name.as_str()).collect();
    all.sort_unstable();
    assert_eq!(told, all, "every workload is tried");
}

#[test]
fn a_workload_of_ones_own_is_what_was_stated() {
    let server = Server::start(|_| Reply::Store);
    let plan = Plan {
        preload: true,
        clients: 3,
        keys: Some(40),
        mix: Some("get=2,put=1,delete=1".parse().unwrap()),
        distribution: Some("single".parse().unwrap()),
        value_size: Some("20-60".parse().unwrap()),
        ..plan(server.address, "get_all")
    };
    let report = run(&plan);
    assert_eq!((report.attempts, report.errors.len()), (report.successes, 0), "{report:?}");
    let mix = [("delete".into(), 0.25), ("get".into(), 0.5), ("put".into(), 0.25)];
    assert_eq!(report.mix, BTreeMap::from(mix));
    assert_eq!(
        (report.distribution.as_str(), report.keys, report.value_bytes.as_str()),
        ("single", 40, "20-60")
    );
    let state = server.state.lock().unwrap();
    // Behind the preload, which knows all forty keys, everything is about the first.
    for lines in state.lines.iter().filter(|lines| lines.len() > 200) {
        assert!(lines[100..].iter().all(|line| line.contains("/kv/all_0 ")), "{lines:?}");
    }
    let lengths: Vec<usize> = state.values.values().map(Vec::len).collect();
    assert!(lengths.iter().all(|length| (20..=60).contains(length)), "{lengths:?}");
    assert!(lengths.iter().any(|length| *length != lengths[0]), "{lengths:?}");
}

#[test]
fn a_wrong_computation_is_a_wrong_value_and_a_missing_route_a_failure() {
    for (workload, answer, class) in [
        ("compute_prime", "{\"count\":99,\"primes\":[]}", "wrong_value"),
        ("compute_hash", "{\"hash\":\"none\"}", "wrong_value"),
        ("compute_mixed", "", "http_4xx"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = if answer.is_empty() { status(404) } else { ok(answer.as_bytes()) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, answer) = (stream.unwrap(), answer.clone());
                thread::spawn(move || {
                    while stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0) {
                        let _ = stream.write_all(&answer);
                    }
                });
            }
        });
        let report = run_for(10, &plan(address, workload));
        assert_eq!(report.successes, 0);
        assert_eq!(report.errors, BTreeMap::from([(class.into(), report.attempts)]), "{workload}");
    }
}

#[test]
fn values_of_any_size_pass_the_read_back() {
    for (value_size, lengths) in [
        ("0", 0..=0),
        ("1", 1..=1),
        ("9", 9..=9),
        ("10", 10..=10),
        ("1000000", 1_000_000..=1_000_000),
        ("0-5000", 0..=5000),
        ("zipfian:1-100000", 1..=100_000),
    ] {
        let server = Server::start(|_| Reply::Store);
        let plan = Plan {
            preload: true,
            value_size: Some(value_size.parse().unwrap()),
            ..plan(server.address, "get_popular")
        };
        let report = run_for(10, &plan);
        assert_eq!(report.attempts, report.successes, "{value_size}");
        let state = server.state.lock().unwrap();
        assert!(
            state.values.len() == 10 && state.values.values().all(|value| lengths.contains(&value.len()))
        );
    }
}

#[test]
fn the_same_seed_asks_for_the_same_with_any_number_of_threads() {
    const LENGTH: usize = 30;
    let streams = |workload: &str, seed, threads| {
        let server = Server::start(|_| Reply::Store);
        let plan = Plan { clients: 7, threads, seed, keys: Some(1000), ..plan(server.address, workload) };
        streams_of(&plan, &server, LENGTH)
    };
    for workload in ["mixed", "put_all", "ycsb_d", "ycsb_f", "put_delete_67_33"] {
        let one = streams(workload, 7, 1);
        assert_eq!(one, streams(workload, 7, 2));
        assert_eq!(one, streams(workload, 7, 7));
        // A pattern without chance in it is the same for every seed.
        assert_eq!(one == streams(workload, 8, 1), workload == "put_delete_67_33");
    }
}
