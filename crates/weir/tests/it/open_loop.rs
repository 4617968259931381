//! The generator in open loops and with think time: what it says when a server freezes, cannot keep up, or can.

use super::load::{Reply, Server, plan, run, run_for};
use super::support::{self, weir};
use kv::proto::LoadReport;
use kv::units::Rate;
use load::{Arrivals, Pacing, Plan, Think};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

fn open(rate: f64, arrivals: Arrivals) -> Pacing {
    Pacing { rate: Some(Rate(rate)), arrivals, ..Pacing::default() }
}

/// How many samples of a histogram are longer than `ms`.
fn longer(report: &LoadReport, histogram: &str, ms: u64) -> u64 {
    report.histograms[histogram]
        .iter()
        .filter(|[from, ..]| *from > ms * 1_000_000)
        .map(|[.., count]| count)
        .sum()
}

/// Answers at once, but for one request: until that is answered nobody is, for 400 ms.
fn freezing() -> Server {
    Server::start(|number| {
        if number == 500 {
            thread::sleep(Duration::from_millis(400));
        }
        Reply::Value
    })
}

#[test]
fn a_stall_delays_all_that_was_due_in_it_and_only_an_open_loop_says_so() {
    let window = Duration::from_millis(1500);
    let freezes = freezing();
    let paced = Plan {
        clients: 4,
        window,
        pacing: open(2000.0, Arrivals::Constant),
        histogram: true,
        ..plan(freezes.address, "get_popular")
    };
    let report = run(&paced);
    // In the first 300 ms of the stall 600 requests were due, and none was answered for 100 ms more.
    let (delayed, seen_late) = (longer(&report, "all", 95), longer(&report, "service", 95));
    assert!(delayed >= 590, "{delayed} of {}", report.attempts);
    // Four connections, so that no more than four could be sent before the answers stopped.
    assert!(seen_late >= 1 && seen_late * 10 < delayed, "{seen_late} {delayed}");
    let schedule = report.schedule.as_ref().unwrap();
    assert_eq!(schedule.due, 3000);
    assert!(schedule.waited >= 590 && schedule.waited_secs > 0.0, "{schedule:?}");
    assert!(report.latency.us_max >= 390e3 && report.latency.us_mean > report.service.unwrap().us_mean);

    let freezes = freezing();
    let closed = Plan {
        pacing: Pacing::default(),
        ..Plan { urls: plan(freezes.address, "get_popular").urls, ..paced }
    };
    let report = run(&closed);
    assert!((1..60).contains(&longer(&report, "all", 95)), "{report:?}");
    assert!(report.schedule.is_none() && report.service.is_none());
}

#[test]
fn a_stall_that_lasts_to_the_end_of_the_window_delays_all_that_was_due_in_it() {
    // About 600 requests are answered at once, the others never; the window ends before the first timeout.
    let stops = Server::start(|number| if number < 600 { Reply::Value } else { Reply::Silence });
    let report = run(&Plan {
        clients: 4,
        warmup: Duration::ZERO,
        window: Duration::from_millis(1500),
        pacing: open(1000.0, Arrivals::Constant),
        histogram: true,
        ..plan(stops.address, "get_popular")
    });
    let schedule = report.schedule.as_ref().unwrap();
    // What was due more than 95 ms before the end; a machine that stalls answers fewer of the others.
    assert!(longer(&report, "all", 95) >= 790, "{schedule:?} {:?}", report.latency);
    assert!(report.latency.us_p90 > 500e3 && report.latency.us_max > 850e3, "{:?}", report.latency);
    assert_eq!((schedule.due, report.latency.count), (1500, report.attempts + schedule.unfinished));
    // Four connections, each with a request that was never answered.
    assert!(schedule.over_capacity && report.error_ratio < 0.01, "{schedule:?}");
    // Neither enters the account of time: no such request has ended.
    assert_eq!(report.service.unwrap().count, report.attempts);
    assert!(report.little_residual().unwrap().abs() < 0.001, "{report:?}");
}

#[test]
fn of_two_servers_one_that_stalls_delays_all_that_was_due_to_it() {
    for threads in [1, 2] {
        let stops = Server::start(|number| if number < 100 { Reply::Value } else { Reply::Silence });
        let answers = Server::start(|_| Reply::Value);
        let report = run(&Plan {
            urls: [&stops, &answers].map(|server| plan(server.address, "get_popular").urls).concat(),
            clients: 8,
            threads,
            window: Duration::from_millis(1500),
            pacing: open(1000.0, Arrivals::Constant),
            histogram: true,
            ..plan(stops.address, "get_popular")
        });
        // Each is to get 500 in a second, so that one stops after 200 ms.
        let delayed = longer(&report, "all", 95);
        assert!(delayed >= 590, "{threads} threads: {delayed} {:?}", report.latency);
    }
}

#[test]
fn more_than_the_server_can_do_is_called_so() {
    // One at a time, each for 5 ms: no more than 200 in a second.
    let slow = Server::start(|_| {
        thread::sleep(Duration::from_millis(5));
        Reply::Value
    });
    let report = run(&Plan {
        clients: 2,
        window: Duration::from_millis(1000),
        pacing: open(1000.0, Arrivals::Constant),
        ..plan(slow.address, "get_popular")
    });
    let schedule = report.schedule.as_ref().unwrap();
    assert!(schedule.over_capacity && schedule.due == 1000 && schedule.sent <= 210, "{schedule:?}");
    assert!(schedule.behind_secs_at_end > 0.5 && schedule.behind_secs_at_start < 0.5, "{schedule:?}");
    assert_eq!(report.in_flight_at_end, 2);
    let service = report.service.unwrap();
    assert!(report.latency.us_mean > 10.0 * service.us_mean, "{report:?}");
    assert!(report.little_residual().unwrap().abs() < 0.001, "{report:?}");
}

#[test]
fn what_a_server_can_do_is_sent_as_it_was_asked_for() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        for threads in [1, 3] {
            let server = Server::start(|_| Reply::Value);
            let report = run(&Plan {
                clients: 8,
                threads,
                warmup: Duration::from_millis(250),
                // Over capacity is a tenth that is not sent: a machine that stalls at the end keeps 300 ms of it from being sent.
                window: Duration::from_secs(3),
                pacing: open(400.0, arrivals),
                ..plan(server.address, "get_popular")
            });
            let schedule = report.schedule.as_ref().unwrap();
            assert!(schedule.sent <= schedule.due && !schedule.over_capacity, "{schedule:?}");
            match arrivals {
                Arrivals::Constant => assert_eq!(schedule.due, 1200),
                // Five standard deviations.
                Arrivals::Poisson => assert!((1025..1375).contains(&schedule.due), "{schedule:?}"),
            }
            assert!(report.little_residual().unwrap().abs() < 0.001, "{report:?}");
            let told: u64 = report.seconds.iter().map(|second| second.attempts).sum();
            assert_eq!((report.seconds.len(), told), (3, report.attempts));
        }
    }
}

#[test]
fn a_client_that_thinks_is_not_in_a_request() {
    const THINK: Duration = Duration::from_millis(100);
    for exponential in [false, true] {
        let server = Server::start(|_| Reply::Value);
        let think = Think { mean: THINK, exponential };
        let pacing = Pacing { think, ..Pacing::default() };
        let report = run_for(30, &Plan { clients: 4, pacing, ..plan(server.address, "get_popular") });
        if !exponential {
            let most = 4.0 * (report.window_secs / THINK.as_secs_f64() + 1.0);
            assert!(report.attempts as f64 <= most, "{report:?}");
        }
        assert!(report.think_secs > 0.0 && report.latency.us_p50 < 100e3);
        assert!(report.little_residual().unwrap().abs() < 0.001, "{report:?}");
    }
}

/// What the generator took until it came to a client was called thinking, and was in no latency.
#[test]
fn a_client_thinks_no_longer_than_asked_for_however_busy_the_generator_is() {
    let server = Server::start(|_| Reply::Value);
    let pacing = Pacing { think: "1ms".parse().unwrap(), ..Pacing::default() };
    let (clients, added_cpu) = (40, Duration::from_millis(1));
    let plan = Plan { clients, added_cpu, pacing, ..plan(server.address, "get_popular") };
    let report = run_for(1000, &plan);
    let think_secs = report.think_secs / report.attempts as f64;
    assert!((0.0009..0.0011).contains(&think_secs), "{report:?}");
    assert!(report.latency.us_p50 > 20e3 && report.little_residual().unwrap().abs() < 0.001, "{report:?}");
}

/// The most memory of its own that a `weir load` of this length had, in KiB.
///
/// What it has mapped of files is left out: how much of the program is resident is the page cache's affair, and differs by half a mebibyte
/// between two runs of one length. Huge pages are off: with them memory grows in steps of two mebibytes, in which a leak would hide.
fn peak_kib(url: &str, window: &str, pacing: &[&str]) -> u64 {
    let mut command = weir();
    command
        .args([
            "load",
            url,
            "--workload",
            "get_popular",
            "--clients",
            "8",
            "--warmup",
            "200ms",
            "--window",
            window,
        ])
        .args(pacing);
    command.env("MIMALLOC_ALLOW_THP", "0").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let maps = format!("/proc/{}/smaps_rollup", child.id());
    let mut peak = 0;
    let deadline = Instant::now() + Duration::from_secs(120);
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        let text = std::fs::read_to_string(&maps).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("Anonymous:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(kib.unwrap_or(0));
        thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    peak
}

#[test]
fn a_run_ten_times_as_long_needs_no_more_memory() {
    let serve = support::Server::start("memory:", &[]);
    let url = format!("http://{}", serve.address);
    // A closed loop, an open one, and one with a queue that only grows.
    for pacing in [&[][..], &["--rate", "20k"], &["--rate", "1M"]] {
        let long = peak_kib(&url, "3s", pacing);
        // The peak of a short run may fall between two looks of a machine that stalls, and is the highest of several then.
        let mut short = 0;
        for _ in 0..5 {
            short = peak_kib(&url, "300ms", pacing).max(short);
            if long < short + 192 {
                break;
            }
        }
        // Eight bytes for each request would be more where there are 9,000 a second; two more seconds of the course are not, nor are
        // latencies up to ten times as long in several histograms.
        assert!(short > 0 && long < short + 192, "{long} KiB, after {short} KiB, with {pacing:?}");
    }
}

/// A request fails once its time-out has passed, and windows are shorter: nothing had failed of a server that did not answer.
#[test]
fn requests_that_are_not_answered_are_failures_before_they_time_out() {
    let server = Server::start(|number| if number % 50 == 49 { Reply::Silence } else { Reply::Value });
    let paced = Plan {
        clients: 64,
        window: Duration::from_secs(2),
        pacing: open(500.0, Arrivals::Constant),
        ..plan(server.address, "get_popular")
    };
    let report = run(&paced);
    // Those of the first second have waited for long enough.
    assert!(report.unanswered >= 5 && report.errors.is_empty(), "{report:?}");
    assert!((0.005..0.02).contains(&report.error_ratio), "{report:?}");
}
