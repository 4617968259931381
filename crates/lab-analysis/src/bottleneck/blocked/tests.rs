//! Services whose limit is known, by what they showed (crates/weir/tests/it/services), and some that are less clear.

use super::*;
use crate::{Reason, findings};
use kv::proto::LoadReport;
use lab_data::results::{Placement, Resource, Results, Trial, WorkloadPlan};

/// What was seen at a level: clients, goodput, median latency in milliseconds, threads and connections by what they wait for.
type Level<'l> = (u32, f64, f64, &'l [(&'l str, f64)]);

fn results(levels: &[Level], busiest_thread: f64, cpu: f64) -> Results {
    let trial = |(level, rps, ms, waiting): &Level| {
        let mut trial =
            Trial { workload: "requests".into(), level: *level, elapsed_secs: 1.0, ..Trial::default() };
        let mut load = LoadReport { window_secs: 1.0, goodput_rps: *rps, ..LoadReport::default() };
        (load.attempts, load.successes, load.latency.count) = (*rps as u64, *rps as u64, *rps as u64);
        (load.latency.us_p50, load.latency.us_mean) = (ms * 1e3, f64::from(*level) / rps * 1e6);
        trial.load = Some(load);
        let mut count = |name: String, secs: f64| {
            trial.opened.counters.insert(name.clone(), 0.0);
            trial.closed.counters.insert(name, secs);
        };
        waiting.iter().for_each(|(name, mean)| count(format!("outside.{name}_secs"), *mean));
        count("outside.observed_secs".into(), 1.0);
        count("server.cpu_secs".into(), cpu);
        for (name, value) in [("busiest_thread", busiest_thread), ("may_read", 1.0)] {
            trial.closed.gauges.insert(format!("outside.{name}"), value);
        }
        trial
    };
    let cpu = Resource {
        name: "server CPU".into(),
        busy: vec!["server.cpu_secs".into()],
        servers: 1.0,
        limit: Some(Limit::ServerCpu),
        ..Resource::default()
    };
    Results {
        workloads: vec![WorkloadPlan {
            name: "requests".into(),
            about: String::new(),
            levels: None,
            published: None,
        }],
        levels: levels.iter().map(|level| level.0).collect(),
        repetitions: 1,
        resources: vec![cpu],
        placements: vec![Placement { part: "server".into(), cores: vec![0], ..Placement::default() }],
        trials: levels.iter().map(trial).collect(),
        ..Results::default()
    }
}

fn verdict(levels: &[Level], busiest_thread: f64, cpu: f64) -> (Grade, String) {
    let found = findings(&results(levels, busiest_thread, cpu));
    let bottleneck = &found.workloads[0].bottleneck;
    (bottleneck.grade, bottleneck.named.first().map(|of| of.resource.clone()).unwrap_or_default())
}

#[test]
fn services_in_python_and_node_are_named_by_what_they_showed() {
    use Grade::{Delay, Supported, Suspected};
    let of = |level, rps, ms, waiting| -> Level { (level, rps, ms, waiting) };
    let cases: &[(&str, [Level; 2], Grade, &str)] = &[
        (
            "lock",
            [of(1, 178.0, 5.4, &[("sleep", 0.7)]), of(32, 191.0, 167.0, &[("lock", 30.5), ("sleep", 0.6)])],
            Supported,
            "server lock",
        ),
        (
            "pool",
            [
                of(1, 48.0, 20.8, &[("lock", 4.0), ("sleep", 1.0)]),
                of(32, 196.0, 162.0, &[("lock", 32.0), ("sleep", 3.8)]),
            ],
            Suspected,
            "a pool of 4",
        ),
        // It was called a pool of 3, for sure.
        (
            "a lock for a quarter of the time",
            [
                of(1, 124.0, 8.1, &[("sleep", 1.0)]),
                of(32, 488.0, 65.0, &[("lock", 28.1), ("mutex", 26.0), ("sleep", 3.4)]),
            ],
            Supported,
            "server lock",
        ),
        (
            "sleep",
            [of(1, 32.0, 30.8, &[("sleep", 1.0)]), of(32, 1045.0, 30.5, &[("sleep", 30.6)])],
            Delay,
            "sleep or timer",
        ),
        (
            "delayed",
            [of(1, 22.0, 44.0, &[("held", 1.0)]), of(32, 695.0, 47.5, &[("held", 29.9)])],
            Delay,
            "delayed acknowledgement",
        ),
        (
            "accept",
            [
                of(1, 128.0, 6.4, &[("sleep", 0.6)]),
                of(32, 162.0, 197.0, &[("accept_queue", 31.0), ("sleep", 0.9)]),
            ],
            Supported,
            "accept queue",
        ),
        (
            "disk",
            [of(1, 69.0, 15.0, &[("disk", 0.3)]), of(16, 199.0, 84.0, &[("lock", 14.7), ("disk", 0.7)])],
            Supported,
            "disk",
        ),
        (
            "downstream",
            [
                of(1, 32.0, 30.9, &[("downstream_threads", 1.0)]),
                of(32, 1000.0, 31.0, &[("downstream_threads", 30.0)]),
            ],
            Delay,
            "downstream service",
        ),
        (
            "downstream at its limit",
            [
                of(1, 32.0, 30.9, &[("downstream_threads", 1.0)]),
                of(32, 64.0, 500.0, &[("downstream_threads", 30.0)]),
            ],
            Supported,
            "downstream service",
        ),
        (
            "link",
            [of(1, 50.0, 20.0, &[("sending", 1.0)]), of(32, 52.0, 640.0, &[("sending", 31.0)])],
            Supported,
            "network",
        ),
        (
            "node timer",
            [of(1, 28.0, 33.9, &[("lock", 5.0)]), of(32, 866.0, 34.8, &[("lock", 4.7)])],
            Delay,
            "sleep or timer",
        ),
        (
            "node pool",
            [of(1, 43.0, 22.3, &[("lock", 5.0)]), of(32, 138.0, 232.0, &[("lock", 4.9)])],
            Suspected,
            "a pool of 3",
        ),
        (
            "go lock",
            [of(1, 117.0, 6.2, &[("lock", 2.7)]), of(32, 178.0, 180.0, &[("lock", 2.6)])],
            Suspected,
            "server lock",
        ),
    ];
    for (name, levels, grade, resource) in cases {
        assert_eq!(verdict(levels, 0.1, 0.05), (*grade, (*resource).to_owned()), "{name}");
    }
}

#[test]
fn a_thread_that_computes_all_of_the_time_is_named_and_a_saturated_processor_before_all_else() {
    let levels: [Level; 3] = [(1, 400.0, 2.4, &[]), (16, 430.0, 34.0, &[]), (32, 431.0, 64.0, &[])];
    assert_eq!(verdict(&levels, 1.0, 0.7), (Grade::Supported, "one thread".to_owned()));
    // Its cores are full: with more of them, other threads may compute beside it.
    assert_eq!(verdict(&levels, 1.0, 0.99), (Grade::Supported, "server CPU".to_owned()));
    let lock: [Level; 3] =
        [(1, 400.0, 2.4, &[]), (16, 430.0, 34.0, &[("lock", 14.0)]), (32, 431.0, 64.0, &[("lock", 30.0)])];
    assert_eq!(verdict(&lock, 0.1, 0.99), (Grade::Supported, "server CPU".to_owned()));
    // Noise took some of its time: it is still the best guess.
    assert_eq!(verdict(&lock, 0.1, 0.87), (Grade::Suspected, "server CPU".to_owned()));
}

/// 32 threads that wait for one core were called one thread.
#[test]
fn threads_that_compute_together_are_not_one_thread() {
    let levels: [Level; 3] = [(1, 600.0, 1.5, &[]), (16, 640.0, 24.0, &[]), (32, 650.0, 48.0, &[])];
    let named = |computing: f64, cpu: f64| {
        let mut all = results(&levels, 1.0, cpu);
        for trial in &mut all.trials {
            trial.closed.gauges.insert("outside.computing".into(), computing);
        }
        let bottleneck = findings(&all).workloads[0].bottleneck.clone();
        (bottleneck.grade, bottleneck.named[0].resource.clone())
    };
    assert_eq!(named(30.0, 0.67), (Grade::Suspected, "server CPU".to_owned()));
    assert_eq!(named(30.0, 0.88), (Grade::Suspected, "server CPU".to_owned()));
    assert_eq!(named(30.0, 0.99), (Grade::Supported, "server CPU".to_owned()));
    assert_eq!(named(1.2, 0.67), (Grade::Supported, "one thread".to_owned()));
}

/// A processor that 30 threads wanted was called 100 % busy where it was 67 %.
#[test]
fn how_many_threads_want_a_core_is_not_how_busy_it_is() {
    let levels: [Level; 3] = [(1, 600.0, 1.5, &[]), (16, 640.0, 24.0, &[]), (32, 650.0, 48.0, &[])];
    let mut all = results(&levels, 1.0, 0.67);
    for trial in &mut all.trials {
        trial.closed.gauges.insert("outside.computing".into(), 30.0);
    }
    let named = findings(&all).workloads[0].bottleneck.named.remove(0);
    assert_eq!(named.blocked.and_then(|of| of.count), Some(30.0));
    assert!((named.utilization - 0.67).abs() < 1e-9, "{}", named.utilization);
}

#[test]
fn one_client_waits_for_nobody_whatever_is_seen_of_it() {
    let results = results(&[(1, 163.0, 6.1, &[("sleep", 0.8)])], 0.1, 0.05);
    let bottleneck = &findings(&results).workloads[0].bottleneck;
    assert_eq!((bottleneck.grade, &bottleneck.named[..]), (Grade::Delay, &[][..]));
    assert!(bottleneck.because.contains(&Reason::OneClient), "{:?}", bottleneck.because);
}

/// Threads that wait for an answer of redis wait for its core, if that has no more to give.
#[test]
fn a_saturated_processor_of_another_part_is_named_before_what_is_seen_from_outside() {
    let levels: [Level; 3] =
        [(1, 400.0, 2.4, &[]), (16, 430.0, 34.0, &[("lock", 14.0)]), (32, 431.0, 64.0, &[("lock", 30.0)])];
    let named = |busy: f64| {
        let mut all = results(&levels, 0.1, 0.3);
        all.resources.push(Resource {
            name: "redis CPU".into(),
            busy: vec!["redis.cpu_secs".into()],
            limit: Some(Limit::Other),
            ..all.resources[0].clone()
        });
        for trial in &mut all.trials {
            trial.opened.counters.insert("redis.cpu_secs".into(), 0.0);
            trial.closed.counters.insert("redis.cpu_secs".into(), busy);
        }
        let bottleneck = findings(&all).workloads[0].bottleneck.clone();
        (bottleneck.grade, bottleneck.named[0].resource.clone())
    };
    assert_eq!(named(0.99), (Grade::Supported, "redis CPU".to_owned()));
    assert_eq!(named(0.5).1, "server lock");
}

#[test]
fn connections_that_wait_for_a_thread_that_computes_are_its_queue() {
    let levels: [Level; 2] = [
        (1, 332.0, 2.9, &[("running", 0.9)]),
        (64, 346.0, 93.0, &[("accept_queue", 31.0), ("running", 1.0)]),
    ];
    assert_eq!(verdict(&levels, 1.0, 0.7), (Grade::Supported, "one thread".to_owned()));
    // Others compute on its core.
    assert_eq!(verdict(&levels, 1.0, 0.38), (Grade::Suspected, "one thread".to_owned()));
    assert_eq!(verdict(&levels, 0.2, 0.1), (Grade::Suspected, "accept queue".to_owned()));
    // Several threads in turns, as with a global lock.
    let mut all = results(&levels, 0.2, 0.3);
    for trial in &mut all.trials {
        trial.closed.gauges.insert("outside.computing".into(), 1.5);
    }
    let bottleneck = &findings(&all).workloads[0].bottleneck;
    assert_eq!((bottleneck.grade, &*bottleneck.named[0].resource), (Grade::Suspected, "server CPU"));
}

#[test]
fn a_loop_that_only_waits_for_a_core_is_not_called_busy() {
    let seen = [("lock", 4.9)];
    let levels: [Level; 2] = [(1, 43.0, 22.3, &[("lock", 5.0)]), (32, 138.0, 232.0, &seen)];
    assert_eq!(verdict(&levels, 0.99, 0.1), (Grade::Suspected, "a pool of 3".to_owned()));
    assert_eq!(verdict(&levels, 0.99, 0.38), (Grade::Suspected, "one thread".to_owned()));
}

#[test]
fn a_quota_is_named_before_a_thread_that_it_does_not_let_onto_a_core() {
    let levels: [Level; 3] = [(1, 235.0, 4.2, &[]), (4, 234.0, 17.0, &[]), (16, 234.0, 65.0, &[])];
    let mut all = results(&levels, 0.99, 0.99);
    all.resources[0].limit = Some(Limit::ServerQuota);
    let bottleneck = &findings(&all).workloads[0].bottleneck;
    assert_eq!((bottleneck.grade, &*bottleneck.named[0].resource), (Grade::Supported, "server CPU"));
    // Other programs take the cores for some of the time, and the service has less than its quota.
    for (throttled, named) in [(0.4, "server CPU"), (0.1, "one thread")] {
        let mut all = results(&levels, 0.99, 0.8);
        all.resources[0].limit = Some(Limit::ServerQuota);
        for trial in &mut all.trials {
            let secs = throttled * trial.elapsed_secs;
            trial.opened.counters.insert("server.throttled_secs".into(), 0.0);
            trial.closed.counters.insert("server.throttled_secs".into(), secs);
        }
        let bottleneck = &findings(&all).workloads[0].bottleneck;
        assert_eq!(bottleneck.named[0].resource, named, "{throttled}");
    }
}

#[test]
fn a_loop_that_waits_for_a_disk_is_named_by_it() {
    let seen = |share| [("disk", share)];
    let (alone, many) = (seen(0.7), seen(0.9));
    let levels: [Level; 2] = [(1, 1100.0, 0.9, &alone), (64, 1300.0, 49.0, &many)];
    assert_eq!(verdict(&levels, 0.3, 0.3), (Grade::Supported, "disk".to_owned()));
    // Hardly ever seen there, it is something else.
    let few = seen(0.1);
    let levels: [Level; 2] = [(1, 1100.0, 0.9, &few), (64, 1300.0, 49.0, &few)];
    assert_eq!(verdict(&levels, 0.3, 0.3), (Grade::Suspected, "server lock".to_owned()));
}

#[test]
fn a_pool_is_supported_where_as_many_are_seen_at_work() {
    let pool = |at_work: f64| {
        // A thread of the language's own sleeps at all levels.
        let seen = [("lock", 11.0), ("sleep", 0.9 + at_work)];
        verdict(&[(1, 60.0, 16.0, &[("lock", 10.0), ("sleep", 1.9)]), (64, 190.0, 330.0, &seen)], 0.1, 0.05)
    };
    assert_eq!(pool(3.0), (Grade::Supported, "a pool of 3".to_owned()));
    assert_eq!(pool(2.4), (Grade::Supported, "a pool of 3".to_owned()));
    // What sleeps may be a thread of the language's own.
    assert_eq!(pool(1.0), (Grade::Suspected, "a pool of 3".to_owned()));
    let seen = [("downstream", 2.0)];
    let levels: [Level; 2] = [(1, 43.0, 22.0, &[("downstream", 1.0)]), (64, 90.0, 700.0, &seen)];
    assert_eq!(verdict(&levels, 0.1, 0.05), (Grade::Supported, "a pool of 2".to_owned()));
}

/// Of nginx with limit_req the stacks of its threads were said to show where they wait.
#[test]
fn a_rate_limit_is_among_what_one_request_at_a_time_may_be() {
    let seen = |waiting: &[(&str, f64)]| {
        let all = results(&[(1, 298.0, 3.3, &[]), (32, 300.0, 106.0, waiting)], 0.1, 0.05);
        let named = findings(&all).workloads[0].bottleneck.named[0].clone();
        let blocked = named.blocked.unwrap();
        assert_eq!(named.resource, "server lock");
        (blocked.grade, blocked.in_threads, blocked.seen.contains("a rate limit"))
    };
    assert_eq!(seen(&[]), (Grade::Suspected, false, true));
    assert_eq!(seen(&[("lock", 30.0)]), (Grade::Supported, true, false));
}

/// Both a delay of 5 ms without any limit and a pool of 3 were called a server lock.
#[test]
fn without_a_level_of_one_client_no_lock_is_named_where_it_may_be_a_pool_or_a_delay() {
    let unclear = |levels: &[Level]| {
        let bottleneck = findings(&results(levels, 0.1, 0.05)).workloads[0].bottleneck.clone();
        assert_eq!((bottleneck.grade, bottleneck.named.len()), (Grade::NotIdentified, 0), "{levels:?}");
        let [Reason::Blocked(of)] = &bottleneck.because[..] else { panic!("{:?}", bottleneck.because) };
        (of.grade, of.at_once)
    };
    let (threads, of_loop) = ([("lock", 31.0)], [("lock", 4.9)]);
    for seen in [&threads, &of_loop] {
        let pool: [Level; 2] = [(8, 138.0, 58.0, &[("lock", 4.9)]), (32, 138.0, 232.0, seen)];
        assert_eq!(unclear(&pool), (Grade::NotIdentified, None));
        assert_eq!(unclear(&pool[1..]), (Grade::NotIdentified, None));
    }
    // Where more clients get more it is a delay, whatever one alone gets.
    let delay: [Level; 2] = [(8, 230.0, 34.0, &of_loop), (32, 900.0, 35.0, &of_loop)];
    assert_eq!(verdict(&delay, 0.1, 0.05), (Grade::Delay, "sleep or timer".to_owned()));
    // What is seen says enough.
    let named = |seen: &[(&str, f64)]| verdict(&[(8, 138.0, 58.0, &[]), (32, 138.0, 232.0, seen)], 0.1, 0.05);
    assert_eq!(named(&[("lock", 29.0), ("sleep", 3.0)]), (Grade::Suspected, "a pool of 3".to_owned()));
    assert_eq!(named(&[("lock", 30.0), ("sleep", 1.0)]), (Grade::Supported, "server lock".to_owned()));
    assert_eq!(named(&[("lock", 30.0), ("mutex", 28.0)]), (Grade::Supported, "server lock".to_owned()));
    assert_eq!(named(&[("disk", 1.0)]), (Grade::Suspected, "disk".to_owned()));
}

// A service that only computes was called a delay: on a busy machine more clients get more of the cores, and its idle threads wait for
// each other.
#[test]
fn a_service_that_computes_is_no_delay() {
    for seen in [&[("lock", 3.9)][..], &[]] {
        let levels: [Level; 2] = [(1, 11_000.0, 0.06, &[("lock", 1.0)]), (4, 44_000.0, 0.06, seen)];
        assert_eq!(verdict(&levels, 0.5, 0.76).0, Grade::NotIdentified);
        assert_eq!(verdict(&levels, 0.2, 0.2), (Grade::Delay, "sleep or timer".to_owned()));
    }
}

// Whether the core or its only thread was named hung on a few per cent, and the two predictions were twice apart.
#[test]
fn a_thread_that_fills_the_only_core_is_the_core() {
    let levels: [Level; 3] = [(1, 4400.0, 0.2, &[]), (4, 4600.0, 0.9, &[]), (16, 4700.0, 3.4, &[])];
    for cpu in [0.88, 0.99] {
        let bottleneck = &findings(&results(&levels, 1.0, cpu)).workloads[0].bottleneck;
        assert_eq!(
            (bottleneck.grade, &*bottleneck.named[0].resource),
            (Grade::Supported, "server CPU"),
            "{cpu}"
        );
        assert_eq!(bottleneck.help.as_ref().map(|of| of.rps.round()), Some(9400.0), "{cpu}");
    }
    let bottleneck = &findings(&results(&levels, 1.0, 0.7)).workloads[0].bottleneck;
    let (named, next) = (&*bottleneck.named[0].resource, bottleneck.next.as_ref().map(|of| &*of.resource));
    assert_eq!((named, next), ("one thread", None), "the core is no limit of its own");
}

#[test]
fn a_collector_that_stops_all_threads_is_named_before_the_thread_it_is() {
    let with = |collector: f64, silent: f64| {
        let seen = [("lock", 72.0), ("silent_50", 0.9), ("silent_400", silent)];
        let mut all = results(&[(1, 26.0, 2.6, &[]), (64, 32.0, 1030.0, &seen)], 0.95, 0.55);
        for trial in &mut all.trials {
            trial.closed.gauges.insert("outside.collector".into(), collector);
        }
        let bottleneck = findings(&all).workloads[0].bottleneck.clone();
        (bottleneck.grade, bottleneck.named[0].resource.clone())
    };
    assert_eq!(with(0.95, 0.6), (Grade::Supported, "pauses of all threads".to_owned()));
    assert_eq!(with(0.95, 0.0), (Grade::Suspected, "pauses of all threads".to_owned()));
    assert_eq!(with(0.2, 0.0).1, "server lock");
}

#[test]
fn gaps_without_any_answer_are_pauses_unless_requests_take_as_long() {
    let with = |alone_ms: f64, silent: &str| {
        let seen = [("lock", 62.0), (silent, 0.75)];
        verdict(&[(1, 200.0, alone_ms, &[]), (64, 210.0, 60.0, &seen)], 0.1, 0.3)
    };
    // All threads wait for the one that keeps the lock of the interpreter.
    assert_eq!(with(1.0, "silent_100"), (Grade::Suspected, "pauses of all threads".to_owned()));
    // Others have the cores.
    let mut all = results(&[(1, 200.0, 1.0, &[]), (64, 210.0, 60.0, &[("silent_100", 0.75)])], 1.0, 0.4);
    all.trials[1].closed.gauges.insert("outside.computing".into(), 40.0);
    assert_eq!(findings(&all).workloads[0].bottleneck.named[0].resource, "server CPU");
    // A pool whose places are all taken and given back at once.
    assert_eq!(with(100.0, "silent_100").1, "a pool of 21");
}

#[test]
fn half_of_a_delay_lets_the_clients_come_back_sooner() {
    let levels: [Level; 2] = [(1, 32.0, 30.8, &[("sleep", 1.0)]), (32, 1000.0, 30.5, &[("sleep", 32.0)])];
    let help = findings(&results(&levels, 0.1, 0.05)).workloads[0].bottleneck.help.clone().unwrap();
    assert_eq!((help.rps, help.clients), (2000.0, Some(32)));
}

#[test]
fn a_lock_is_one_also_where_noise_doubled_the_time_of_one_client() {
    let seen = [("lock", 14.5), ("sleep", 0.9)];
    let levels: [Level; 2] = [(1, 85.0, 11.8, &[("sleep", 0.5)]), (16, 169.0, 94.0, &seen)];
    assert_eq!(verdict(&levels, 0.1, 0.05), (Grade::Supported, "server lock".to_owned()));
}

/// Of a service with a quota, on a machine so busy that the level with more clients did not count.
#[test]
fn one_client_alone_waits_for_no_other() {
    let mut results =
        results(&[(1, 40.0, 22.0, &[("lock", 0.9)]), (4, 0.1, 2.0, &[("lock", 3.0)])], 0.1, 0.2);
    results.trials[1].load.as_mut().unwrap().error_ratio = 0.5;
    let bottleneck = &findings(&results).workloads[0].bottleneck;
    assert!(bottleneck.named.is_empty(), "{:?}", bottleneck.named);
}

/// It is counted over all connections: of 32 it was 320 % of the time.
#[test]
fn a_closed_window_is_a_share_of_the_time_of_one_client() {
    let with = |closed: f64| {
        let seen = [("lock", 30.0), ("window_closed", closed)];
        let mut all = findings(&results(&[(1, 178.0, 5.4, &[]), (32, 191.0, 167.0, &seen)], 0.1, 0.05));
        let found = all.workloads.remove(0);
        let share = found.rows[1].outside.as_ref().unwrap().at("window_closed");
        (share, found.bottleneck.because.iter().any(|of| matches!(of, Reason::Seen(_))))
    };
    assert_eq!((with(16.0), with(1.6)), ((0.5, true), (0.05, false)));
}

#[test]
fn noise_lowers_the_grade() {
    let with = |waiting: f64| {
        let seen = [("lock", waiting), ("sleep", 0.7)];
        verdict(&[(1, 178.0, 5.4, &[("sleep", 0.7)]), (32, 191.0, 167.0, &seen)], 0.1, 0.05)
    };
    for (waiting, grade) in [(30.0, Grade::Supported), (12.0, Grade::Suspected), (2.0, Grade::Suspected)] {
        assert_eq!(with(waiting), (grade, "server lock".to_owned()), "{waiting}");
    }
}

#[test]
fn nobody_is_named_where_nobody_looked() {
    let mut all = results(&[(1, 178.0, 5.4, &[]), (32, 191.0, 167.0, &[("lock", 30.0)])], 0.1, 0.05);
    for trial in &mut all.trials {
        trial.closed.counters.retain(|name, _| !name.starts_with("outside."));
    }
    assert_eq!(findings(&all).workloads[0].bottleneck.named, []);
}

/// Behind a rate limiter, on four cores of which they wanted a third: it was called `server CPU`.
#[test]
fn threads_want_all_cores_before_the_processor_is_full() {
    let levels: [Level; 2] = [(1, 400.0, 2.4, &[]), (64, 423.0, 150.0, &[])];
    let with = |cores: f64, wanted: f64| {
        let mut all = results(&levels, 0.4, 0.3 * cores);
        all.resources[0].servers = cores;
        for trial in &mut all.trials {
            trial.closed.gauges.insert("outside.computing".into(), wanted);
        }
        let bottleneck = findings(&all).workloads.remove(0).bottleneck;
        (bottleneck.grade, bottleneck.named.first().and_then(|of| of.limit))
    };
    assert_eq!(with(4.0, 1.2), (Grade::Suspected, Some(Limit::ServerLock)));
    assert_eq!(with(4.0, 3.7), (Grade::Suspected, Some(Limit::ServerCpu)));
    assert_eq!(with(1.0, 1.2), (Grade::Suspected, Some(Limit::ServerCpu)));
}

/// Two of them on four cores: that was an accept queue, for sure.
#[test]
fn workers_that_compute_and_accept_are_a_pool() {
    let levels: [Level; 2] = [(1, 100.0, 10.0, &[]), (64, 200.0, 320.0, &[("accept_queue", 62.0)])];
    let mut all = results(&levels, 0.99, 2.0);
    all.resources[0].servers = 4.0;
    for trial in &mut all.trials {
        trial.closed.gauges.insert("outside.computing".into(), 2.0);
    }
    let bottleneck = findings(&all).workloads.remove(0).bottleneck;
    assert_eq!((bottleneck.grade, &*bottleneck.named[0].resource), (Grade::Suspected, "a pool of 2"));
}

/// They were in a delay of the service, and with a plateau behind its lock.
#[test]
fn clients_that_think_are_not_in_the_service() {
    let with = |think_ms: f64, seen| {
        // What takes a millisecond, and four at most are at it.
        let at = |level: u32| f64::from(level) / (1.0 + think_ms) * 1e3;
        let mut all = results(&[(1, at(1), 1.0, &[]), (4, at(4), 1.0, seen)], 0.1, 0.05);
        for trial in &mut all.trials {
            let load = trial.load.as_mut().unwrap();
            load.latency.us_mean = 1e3;
            load.think_secs = think_ms / 1e3 * load.attempts as f64;
        }
        let bottleneck = findings(&all).workloads.remove(0).bottleneck;
        let blocked = bottleneck.named.first().and_then(|of| of.blocked.clone());
        (bottleneck.grade, blocked.and_then(|of| of.count).map(f64::round))
    };
    assert_eq!(with(0.0, &[]), (Grade::Delay, Some(4.0)));
    assert_eq!(with(1.0, &[]), (Grade::Delay, Some(2.0)));
    assert_eq!(with(50.0, &[]).1, None);
    assert_eq!(with(50.0, &[("sleep", 0.1)]).1, None);
    // One thread that has no more to give has not, wherever they are.
    let mut all = results(&[(1, 19.6, 1.0, &[]), (64, 984.0, 13.0, &[])], 0.99, 1.0);
    all.resources[0].servers = 2.0;
    for trial in &mut all.trials {
        let load = trial.load.as_mut().unwrap();
        load.latency.us_mean = if trial.level == 1 { 1e3 } else { 15e3 };
        load.think_secs = 0.05 * load.attempts as f64;
        trial.closed.gauges.insert("outside.computing".into(), 1.0);
    }
    let limit = |all: &Results| {
        let bottleneck = findings(all).workloads.remove(0).bottleneck;
        bottleneck.named.first().and_then(|of| of.limit)
    };
    assert_eq!(limit(&all), Some(Limit::OneThread));
    // Beside it, all clients are served as one is: it computes for nobody.
    let load = all.trials[1].load.as_mut().unwrap();
    (load.goodput_rps, load.attempts, load.successes) = (1250.0, 1250, 1250);
    (load.latency.count, load.latency.us_mean, load.think_secs) = (1250, 1.2e3, 0.05 * 1250.0);
    assert_eq!(limit(&all), None);
}

/// Of eight cores it uses an eighth, and it was a lock.
#[test]
fn one_thread_is_one_on_any_number_of_cores() {
    for cores in [1.0, 2.0, 4.0, 8.0] {
        let mut all = results(&[(1, 900.0, 1.0, &[]), (64, 990.0, 64.0, &[])], 1.0, 0.8);
        all.resources[0].servers = cores;
        for trial in &mut all.trials {
            trial.closed.gauges.insert("outside.computing".into(), 1.0);
        }
        let bottleneck = findings(&all).workloads.remove(0).bottleneck;
        let found = (bottleneck.grade, bottleneck.named.first().and_then(|of| of.limit));
        assert_eq!(found, (Grade::Supported, Some(Limit::OneThread)), "{cores}");
    }
}

/// Fewer than fit into a pool were served because the others thought, and it was a lock.
#[test]
fn a_pool_is_one_also_where_clients_think() {
    let level = |level: u32, rps: f64, ms: f64, waiting| -> Level<'_> { (level, rps, ms, waiting) };
    let levels = [
        level(1, 50.0, 10.0, &[("sleep", 0.5)]),
        level(8, 400.0, 10.0, &[("sleep", 4.0)]),
        level(64, 800.0, 70.0, &[("sleep", 8.0), ("lock", 48.0)]),
    ];
    let mut all = results(&levels, 0.1, 0.05);
    for trial in &mut all.trials {
        let load = trial.load.as_mut().unwrap();
        load.latency.us_mean = if trial.level == 64 { 70e3 } else { 10e3 };
        load.think_secs = 0.01 * load.attempts as f64;
    }
    let bottleneck = findings(&all).workloads.remove(0).bottleneck;
    assert_eq!(bottleneck.named[0].resource, "a pool of 8");
}
