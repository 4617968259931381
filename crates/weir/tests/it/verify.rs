//! Reads that are verified: what a server got wrong is found and counted, and what it got right is never called wrong.

use super::load::{Reply, Server, plan, run, run_for, streams_of, weir_load};
use super::support;
use kv::proto::LoadReport;
use kv::units::Rate;
use load::{Arrivals, Connect, Pacing, Plan, Verify};
use std::collections::BTreeMap;
use std::time::Duration;

/// One client that reads and writes one key, for which it expects `reads` of what the server did.
fn one_key(server: &Server, verify: Verify) -> LoadReport {
    let plan = Plan {
        mix: Some("get=2,put=1".parse().unwrap()),
        distribution: Some("single".parse().unwrap()),
        verify,
        ..plan(server.address, "mixed")
    };
    run_for(200, &plan)
}

/// How many of the first `attempts` requests read the key after it was written so often.
fn reads_behind(server: &Server, attempts: u64, writes: usize) -> u64 {
    let stream = server.streams(attempts as usize).swap_remove(0);
    let mut written = 0;
    let mut reads = 0;
    for line in stream {
        written += usize::from(line.starts_with("PUT"));
        reads += u64::from(line.starts_with("GET") && written >= writes);
    }
    reads
}

#[test]
fn a_value_that_was_overwritten_is_stale_and_so_is_every_one_of_them() {
    let server = Server::start(|_| Reply::Older);
    let report = one_key(&server, Verify::all());
    // Before the second write there is nothing older than the latest.
    let stale = reads_behind(&server, report.attempts, 2);
    assert!(stale > 0);
    assert_eq!(report.errors, BTreeMap::from([("stale_value".into(), stale)]));
    assert_eq!(report.verified, reads_behind(&server, report.attempts, 1));
    assert_eq!(report.successes, report.attempts - stale);
    assert_eq!(report.verify, "all");
    // The example shows the value, where once it had a status and nothing received.
    let example = report.failures.iter().find(|example| example.class == "stale_value").unwrap();
    assert!(example.status == 200 && example.received.len() > 50, "{example:?}");

    // Every single one can be missed by a beginning that is the same in all of them.
    let server = Server::start(|_| Reply::Older);
    let report = one_key(&server, Verify::NONE);
    assert_eq!((report.errors.len(), report.verified), (0, 0));
    assert_eq!(report.verify, "none");
}

#[test]
fn an_older_value_of_another_client_is_stale_too() {
    for threads in [1, 3] {
        let server = Server::start(|_| Reply::Older);
        let plan = Plan {
            clients: 6,
            threads,
            keys: Some(3),
            verify: Verify::all(),
            ..plan(server.address, "mixed")
        };
        let report = run_for(300, &plan);
        let stale = report.errors.get("stale_value").copied().unwrap_or(0);
        assert!(stale > 0, "{report:?}");
        assert_eq!((stale, report.errors.len()), (report.attempts - report.successes, 1));
    }
}

#[test]
fn a_byte_that_is_wrong_makes_the_value_wrong_wherever_it_is() {
    let server = Server::start(|_| Reply::BadTail);
    let report = one_key(&server, Verify::all());
    let wrong = reads_behind(&server, report.attempts, 1);
    assert!(wrong > 0);
    assert_eq!(report.errors, BTreeMap::from([("wrong_value".into(), wrong)]));
    assert_eq!(report.verified, wrong);

    // Of a sample those of the sample are found.
    let server = Server::start(|_| Reply::BadTail);
    let report = one_key(&server, "40%".parse().unwrap());
    let read = reads_behind(&server, report.attempts, 1);
    assert_eq!(report.errors, BTreeMap::from([("wrong_value".into(), report.verified)]));
    assert!((read / 4..read / 2 + 10).contains(&report.verified), "{} of {read}", report.verified);
    assert_eq!(report.verify, "40%");
}

/// What was read was right.
fn check(report: &LoadReport) {
    let bad = |class: &&str| report.errors.contains_key(*class);
    assert_eq!(["wrong_value", "stale_value"].iter().find(|class| bad(class)), None, "{report:?}");
}

#[test]
fn a_server_that_does_as_it_should_is_never_accused() {
    let dir = tempfile::tempdir().unwrap();
    let store = format!("file:{}", dir.path().display());
    // A cache too small for the keys, so that reads come from both tiers.
    for (store, flags) in [(store.as_str(), &["--cache-entries", "16"][..]), ("memory:", &[])] {
        let server = support::Server::start(store, flags);
        let busy = Plan {
            clients: 16,
            threads: 2,
            keys: Some(40),
            preload: true,
            verify: Verify::all(),
            window: Duration::from_millis(600),
            ..plan(server.address, "mixed_thirds")
        };
        let open = Pacing { rate: Some(Rate(4000.0)), arrivals: Arrivals::Poisson, ..Pacing::default() };
        for plan in [
            busy.clone(),
            Plan { keys: Some(2), ..busy.clone() },
            // Values of the runs before this one, all of the same length: of others not even the beginning would do.
            Plan { preload: false, verify: "30%".parse().unwrap(), ..busy.clone() },
            Plan { value_size: Some("1-5000".parse().unwrap()), ..busy.clone() },
            // Requests of one client overlap one another, on a few keys.
            Plan { pacing: open, keys: Some(4), ..busy.clone() },
            Plan { connect: Connect::Each, window: Duration::from_millis(200), ..busy.clone() },
        ] {
            let seen = || {
                let report = run(&plan);
                check(&report);
                assert_eq!((report.attempts, report.errors.len()), (report.successes, 0), "{report:?}");
                report.verified
            };
            // A machine that is busy otherwise may leave a window empty.
            assert!((0..5).any(|_| seen() > 0), "some of it is compared as a whole: {plan:?}");
        }
        // Writes that are given up may take effect or not, and late. On a slow machine all are.
        let hasty = Plan { clients: 64, timeout: Duration::from_millis(1), keys: Some(4), ..busy.clone() };
        check(&run(&Plan { preload: false, ..hasty }));
    }
}

#[test]
fn values_of_a_run_that_did_not_verify_are_no_wrong_ones() {
    let server = Server::start(|_| Reply::Store);
    let first = Plan { preload: true, ..plan(server.address, "get_popular") };
    run(&first);
    let report = run_for(20, &Plan { preload: false, verify: Verify::all(), ..first.clone() });
    assert_eq!((report.attempts, report.verified), (report.successes, 0), "{report:?}");
    // Nor are those of one that did, to one that does not.
    run(&Plan { verify: Verify::all(), ..first.clone() });
    let report = run_for(20, &Plan { preload: false, ..first });
    assert_eq!(report.attempts, report.successes, "{report:?}");
}

#[test]
fn values_too_short_for_a_mark_are_compared_and_not_called_verified() {
    let server = Server::start(|_| Reply::Store);
    let short = Plan {
        preload: true,
        value_size: Some("20".parse().unwrap()),
        verify: Verify::all(),
        ..plan(server.address, "get_popular")
    };
    let report = run_for(20, &short);
    assert_eq!((report.attempts, report.verified), (report.successes, 0), "{report:?}");
}

#[test]
fn verification_changes_nothing_of_what_is_asked_for() {
    const LENGTH: usize = 20;
    let streams = |workload: &str, verify: &str, threads| {
        let server = Server::start(|_| Reply::Store);
        let verify = verify.parse().unwrap();
        let value_size = Some("10-200".parse().unwrap());
        let plan = plan(server.address, workload);
        streams_of(&Plan { clients: 6, threads, keys: Some(50), value_size, verify, ..plan }, &server, LENGTH)
    };
    for workload in ["mixed", "put_delete_67_33", "ycsb_f"] {
        let usual = streams(workload, "none", 1);
        assert_eq!(usual, streams(workload, "all", 1));
        assert_eq!(usual, streams(workload, "10%", 3));
    }
}

#[test]
fn the_command_says_how_many_values_it_compared() {
    let server = support::Server::start("memory:", &[]);
    let url = format!("http://{}", server.address);
    let arguments = [
        &url,
        "--workload",
        "mixed",
        "--keys",
        "20",
        "--warmup",
        "10ms",
        "--window",
        "1s",
        "--verify",
        "all",
    ];
    let (output, stdout, stderr) = weir_load(&arguments);
    assert!(output.status.success(), "{stderr}");
    assert!(stdout.contains("values compared to the last byte"), "{stdout}");
    let (_, stdout, _) = weir_load(&[&arguments[..], &["--json"]].concat());
    let report: LoadReport = serde_json::from_str(&stdout).unwrap();
    assert!(report.verified > 0 && report.verify == "all" && report.errors.is_empty(), "{report:?}");
}
