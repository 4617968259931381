//! Fault injection: each fault loads the resource it names, shows in its counters, and ends when it is removed.
//!
//! Times are only ever compared from below: a slow machine makes nothing fail.

use crate::support::{Client, Server, until, weir};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const MEMORY: &str = "memory:";

fn with_faults(store: &str, faults: &str) -> Server {
    Server::start(store, &["--lab", "--inject", faults])
}

/// What a counter says.
fn stat(server: &Server, name: &str) -> f64 {
    let stats = server.client().stats();
    stats[name].as_f64().unwrap_or_else(|| panic!("{name} is not in {stats}"))
}

/// How much a counter has grown, and how long the clients took.
fn growth(server: &Server, name: &str, work: impl FnOnce()) -> (f64, f64) {
    let (before, began) = (stat(server, name), Instant::now());
    work();
    let took = began.elapsed().as_secs_f64();
    (stat(server, name) - before, took)
}

/// A request of each of so many clients, all at once.
fn at_once(server: &Server, clients: usize, ask: impl Fn(usize, &mut Client) + Sync) {
    let ready = Barrier::new(clients);
    std::thread::scope(|scope| {
        for index in 0..clients {
            let (ready, ask) = (&ready, &ask);
            scope.spawn(move || {
                let mut client = server.client();
                ready.wait();
                ask(index, &mut client);
            });
        }
    });
}

fn set(server: &Server, query: &str) {
    let answer = server.client().ask("PUT", &format!("/inject?{query}"), &[], b"").unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (204, ""), "{query}");
}

/// Processor time of a whole process, in seconds.
fn processor_secs(server: &Server) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid())).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

#[test]
fn cpu_takes_processor_time_of_the_worker_also_for_hits() {
    let server = with_faults(MEMORY, "cpu=5ms");
    let mut client = server.client();
    client.put("/kv/a", b"1");
    let before = processor_secs(&server);
    let (busy, took) = growth(&server, "weir_worker_busy_seconds_total", || {
        for _ in 0..20 {
            assert_eq!(client.get("/kv/a").header("cache-status"), Some("weir; hit"));
        }
    });
    // The kernel counts in ticks of a hundredth of a second.
    assert!(processor_secs(&server) - before >= 0.08, "{}", processor_secs(&server) - before);
    assert!(busy >= 0.1 && took >= 0.1, "{busy} {took}");
}

#[test]
fn worker_blocks_the_worker_and_not_what_asks_about_the_server() {
    let server = with_faults(MEMORY, "worker=5ms");
    let mut client = server.client();
    let (busy, took) = growth(&server, "weir_worker_busy_seconds_total", || {
        for key in 0..20 {
            assert_eq!(client.get(&format!("/kv/{key}")).status, 404);
        }
    });
    // A sleep that is too long shortens the next, by up to a millisecond.
    assert!(busy >= 0.099 && took >= 0.099, "{busy} {took}");
    assert_eq!(stat(&server, "weir_workers"), 2.0);
    set(&server, "worker=9s");
    for path in ["/healthz", "/readyz", "/metrics", "/stats"] {
        let began = Instant::now();
        assert_eq!(client.get(path).status, 200);
        assert!(began.elapsed() < Duration::from_secs(9), "{path}");
    }
}

/// Both workers sleep in one poll each; as soon as one of them can answer, it has to say so.
#[test]
fn a_worker_in_one_long_request_does_not_look_idle() {
    let server = with_faults(MEMORY, "worker=300ms");
    let (busy, _) = growth(&server, "weir_worker_busy_seconds_total", || {
        let mut client = server.client();
        client.send(b"GET /kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        // Asked while the other worker sleeps, or after this one has slept: either way the time is there.
        until("the time of the long request is counted", || {
            stat(&server, "weir_worker_busy_seconds_total") >= 0.1
        });
        assert_eq!(client.answer(false).unwrap().status, 404);
    });
    assert!(busy >= 0.299, "{busy}");
}

#[test]
fn answers_wait_for_a_worker_that_is_busy_with_other_requests() {
    let server = with_faults(MEMORY, "worker=20ms");
    let waited = || stat(&server, "weir_worker_queue_seconds_total");
    let before = waited();
    // What the store says to the first is there while the worker sleeps for the second.
    until("an answer waits", || {
        at_once(&server, 8, |index, client| {
            assert_eq!(client.get(&format!("/kv/{index}")).status, 404);
        });
        waited() - before >= 0.02
    });
}

#[test]
fn delay_does_not_block_workers() {
    let server = with_faults(MEMORY, "delay=400ms");
    let (clients, delay) = (30, 0.4);
    let (busy, _) = growth(&server, "weir_worker_busy_seconds_total", || {
        at_once(&server, clients, |index, client| {
            let began = Instant::now();
            assert_eq!(client.put(&format!("/kv/{index}"), b"1").status, 201);
            assert!(began.elapsed().as_secs_f64() >= delay);
        });
    });
    assert!(busy < clients as f64 * delay / 2.0, "{busy}");
}

/// The timer of the runtime would round a pause of 300 µs up to a millisecond.
#[test]
fn a_delay_can_be_shorter_than_a_millisecond() {
    let server = with_faults(MEMORY, "delay=300us");
    let mut client = server.client();
    until("a delay ends within a millisecond", || {
        let began = Instant::now();
        assert_eq!(client.get("/kv/a").status, 404);
        let took = began.elapsed();
        assert!(took >= Duration::from_micros(300), "{took:?}");
        took < Duration::from_millis(1)
    });
}

#[test]
fn lock_lets_one_write_in_at_a_time() {
    let server = with_faults(MEMORY, "lock=20ms");
    let (busy, took) = growth(&server, "weir_lock_busy_seconds_total{lock=\"commit\"}", || {
        at_once(&server, 4, |index, client| {
            let path = format!("/kv/{index}");
            let status = if index == 0 {
                client.ask("DELETE", &path, &[], b"").unwrap().status
            } else {
                client.put(&path, b"1").status
            };
            assert_eq!(status, if index == 0 { 204 } else { 201 });
        });
    });
    assert!(busy >= 0.08 && took >= 0.08, "{busy} {took}");
}

#[test]
fn who_waits_for_the_lock_counts_before_the_wait_is_over_and_reads_pass() {
    let server = with_faults(MEMORY, "lock=10s");
    let put = |key: &str| {
        let mut client = server.client();
        let head = format!("PUT /kv/{key} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1");
        client.send(head.as_bytes()).unwrap();
        client
    };
    let (_first, _second) = (put("a"), put("b"));
    until("somebody waits", || stat(&server, "weir_lock_queue_seconds_total{lock=\"commit\"}") > 0.001);
    let busy = stat(&server, "weir_lock_busy_seconds_total{lock=\"commit\"}");
    assert!(busy > 0.0 && busy < 10.0, "{busy}");
    assert_eq!(server.client().get("/kv/z").status, 404);
}

#[test]
fn store_worker_holds_the_session_for_each_batch() {
    let server = with_faults(MEMORY, "store_worker=20ms");
    let mut client = server.client();
    for (operation, method) in [("write", "PUT"), ("read", "GET")] {
        let names = ["busy", "request"]
            .map(|what| format!("weir_store_{what}_seconds_total{{operation=\"{operation}\"}}"));
        let before = names.each_ref().map(|name| stat(&server, name));
        let began = Instant::now();
        for key in 0..3 {
            client.ask(method, &format!("/kv/{method}-{key}"), &[], b"").unwrap();
        }
        assert!(began.elapsed().as_secs_f64() >= 0.059, "{operation}: {:?}", began.elapsed());
        for (name, before) in names.iter().zip(before) {
            // Clients are answered just before the batch is counted.
            until(name, || stat(&server, name) - before >= 0.059);
        }
    }
}

#[test]
fn flush_takes_longer_one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().join("store").display());
    let server = Server::start(&store, &["--lab", "--store-write-workers", "2", "--inject", "flush=20ms"]);
    let (flushes, _) = growth(&server, "weir_flushes_total", || {
        let (busy, took) = growth(&server, "weir_flush_busy_seconds_total", || {
            let mut client = server.client();
            for key in 0..3 {
                assert_eq!(client.put(&format!("/kv/{key}"), b"1").status, 201);
            }
        });
        assert!(busy >= 0.059 && took >= 0.059, "{busy} {took}");
    });
    assert_eq!(flushes, 3.0);
    // Of two store workers one has to wait for the flush of the other.
    set(&server, "flush=200ms");
    let queue = || stat(&server, "weir_flush_queue_seconds_total");
    let before = queue();
    let keys: Vec<String> = (0..64).map(|key| format!("/kv/{key}")).collect();
    until("a store worker waits to flush", || {
        at_once(&server, 8, |index, client| {
            client.put(&keys[index], b"2");
        });
        queue() - before > 0.0005
    });
}

#[test]
fn flushes_are_counted_without_any_fault_where_the_store_is_embedded() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().join("store").display());
    let server = Server::start(&store, &[]);
    server.client().put("/kv/a", b"1");
    server.client().put("/kv/a", b"2");
    assert_eq!(stat(&server, "weir_flushes_total"), 2.0);
    assert!(stat(&server, "weir_flush_busy_seconds_total") > 0.0);
    let stats = Server::start(MEMORY, &["--lab"]).client().stats();
    let names: Vec<&String> = stats.as_object().unwrap().keys().collect();
    assert!(!names.iter().any(|name| name.contains("flush") || name.contains("_lock_")), "{names:?}");
}

#[test]
fn fail_answers_every_tenth_of_a_crowd_and_works_on_none_of_them() {
    let server = with_faults(MEMORY, "fail=0");
    let mut client = server.client();
    for round in 0..3 {
        for turn in 1..=10 {
            let path = format!("/kv/{round}-{turn}");
            let answer = client.put(&path, b"1");
            if turn == 10 {
                assert_eq!(answer.status, 500);
                assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
                assert_eq!(answer.problem()["code"], "injected");
            } else {
                assert_eq!(answer.status, 201, "{path}");
            }
        }
    }
    let counted =
        |code: u16| stat(&server, &format!("weir_http_requests_total{{method=\"PUT\",code=\"{code}\"}}"));
    assert_eq!((counted(201), counted(500)), (27.0, 3.0));
    // Taken to its own lower count, the stricter of the two holds.
    set(&server, "fail=100");
    let statuses: Vec<u16> = (0..10).map(|_| client.get("/kv/0-10").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 500).count(), 1);
    assert_eq!(statuses.iter().filter(|status| **status == 404).count(), 9, "what failed was not written");
}

#[test]
fn what_was_added_is_replaced_and_removed() {
    let server = Server::start(MEMORY, &["--lab"]);
    let mut client = server.client();
    let mut failures = || (0..30).filter(|_| client.get("/kv/a").status == 500).count();
    assert_eq!(failures(), 0);
    set(&server, "fail=0");
    assert_eq!(failures(), 3);
    set(&server, "cpu=1us");
    assert_eq!(failures(), 0, "replaced");
    set(&server, "fail=0&cpu=1us");
    assert_eq!(failures(), 3);
    for _ in 0..2 {
        assert_eq!(server.client().ask("DELETE", "/inject", &[], b"").unwrap().status, 204);
        assert_eq!(failures(), 0, "removed");
    }
}

#[test]
fn a_server_that_is_not_the_labs_takes_none() {
    let mut command = weir();
    command.args(["serve", "--store", MEMORY, "--listen", "127.0.0.1:0", "--inject", "cpu=1ms"]);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
    assert!(error.contains("--inject is for measurements only; hint: add --lab"), "{error}");
    let server = Server::start(MEMORY, &[]);
    for method in ["PUT", "DELETE"] {
        let answer = server.client().ask(method, "/inject?cpu=1ms", &[], b"").unwrap();
        assert_eq!((answer.status, answer.problem()["code"].as_str()), (404, Some("no_route")));
    }
}

#[test]
fn wrong_faults_change_nothing_and_say_what_would_be_right() {
    let server = with_faults(MEMORY, "fail=1000");
    let mut client = server.client();
    for (method, target, status, part) in [
        (
            "PUT",
            "/inject",
            400,
            "write ?NAME=VALUE&NAME=VALUE with any of cpu, worker, delay, lock, store_worker, flush, fail",
        ),
        ("PUT", "/inject?", 400, "write ?NAME=VALUE"),
        (
            "PUT",
            "/inject?disk=1ms",
            400,
            "unknown fault \"disk\"; hint: expected one of: cpu, worker, delay, lock, store_worker, flush, fail",
        ),
        (
            "PUT",
            "/inject?fail=0&cpu=5",
            400,
            "cpu=5: a duration is a number with us, ms, s, m or h; hint: write it as in 500ms",
        ),
        ("PUT", "/inject?fail=0&cpu", 400, "cpu=: a duration"),
        ("PUT", "/inject?fail=0&worker=-1ms", 400, "worker=-1ms: a duration"),
        ("PUT", "/inject?fail=0&store_worker=1h", 400, "store_worker=1h is too long; hint: at most 10s"),
        ("PUT", "/inject?fail=few", 400, "fail=few: a count is a whole number, as in fail=40"),
        ("PUT", "/inject?fail=0&fail=0", 400, "fail is given twice"),
        ("PUT", "/inject?fail=0&cpu=%zz", 400, "the query has a %"),
        (
            "PUT",
            "/inject?fail=0&lock=1ms",
            409,
            "no lock to hold longer; hint: start it with --inject lock=0s",
        ),
        (
            "PUT",
            "/inject?fail=0&flush=1ms",
            409,
            "only the embedded store flushes in this process; hint: use",
        ),
        ("DELETE", "/inject?cpu=1ms", 400, "leave the query out"),
        ("POST", "/inject?fail=0", 405, "this route takes PUT, DELETE"),
        ("GET", "/inject", 405, "this route takes PUT, DELETE"),
    ] {
        let answer = client.ask(method, target, &[], b"").unwrap();
        let problem = answer.problem();
        assert_eq!(answer.status, status, "{method} {target}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(part), "{method} {target}: {problem}");
        if method != "GET" {
            assert_eq!(problem["outcome"], "not-applied", "{method} {target}");
        }
        assert!((0..10).all(|_| client.get("/kv/a").status == 404), "{method} {target} changed something");
    }
}
