//! A PostgreSQL that fails over: Patroni on three nodes. What is acknowledged is there after the leader was killed.

use super::linearizability::Forwarder;
use super::load::{plan, run_until};
use crate::register::{Register, Seen};
use crate::support::{Server, block_on, is_long, postgres, until, weir};
use kv::proto::LinearizabilityReport;
use lab_run::harness::{Cluster, DatabaseOptions, DatabaseServer};
use load::{Check, Plan};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use store::{Kind, Part};

/// Acknowledged writes of one client before the leader is killed, and after another one has taken over.
const WRITES: u64 = 100;

fn cluster(is_synchronous: bool) -> Cluster {
    Cluster::start(DatabaseOptions::default(), is_synchronous).unwrap()
}

/// The leader, once there is one.
fn leader(cluster: &Cluster) -> usize {
    let mut found = None;
    until("there is a leader", || {
        found = cluster.leader();
        found.is_some()
    });
    found.unwrap()
}

/// Stops the Patroni of a node, or lets it go on. Its PostgreSQL is in another group, and does not know that it is replaced.
fn signal_patroni(cluster: &Cluster, node: usize, signal: Signal) {
    let group = Pid::from_raw(cluster.pid(node).unwrap().cast_signed()).unwrap();
    kill_process_group(group, signal).unwrap();
}

/// What was seen while the leader was killed.
struct Failover {
    checked: LinearizabilityReport,
    seen: Seen,
    /// The longest time without an acknowledged write.
    unavailable: Duration,
}

/// Operations on a few keys, which are checked.
fn under_check(server: SocketAddr) -> Plan {
    let mix = "get=30,put=20,delete=10,put_if_absent=10,compare_and_put=20,compare_and_delete=10";
    Plan {
        clients: 16,
        keys: Some(8),
        mix: Some(mix.parse().unwrap()),
        check_for: Some(Check::Linearizability),
        // A server without a store refuses at once.
        pacing: load::Pacing { think: "5ms".parse().unwrap(), ..load::Pacing::default() },
        ..plan(server, "mixed")
    }
}

/// Kills the leader under load, with a server over a database of its own, and starts it again once another one leads.
fn kill_leader(cluster: &mut Cluster, round: usize) -> Failover {
    let (database, node) = (format!("round_{round}"), leader(cluster));
    cluster.query(node, "postgres", &format!("CREATE DATABASE {database}")).unwrap();
    let server = Server::start(&cluster.url_of(&database), &[]);
    let mut register = Register::new("failover", server.address);
    let plan = under_check(server.address);
    let (acknowledged, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (mut enough, mut is_killed) = (WRITES, false);
    let (report, unavailable) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
            while !is_over.load(Relaxed) {
                let before = register.seen.acknowledged;
                register.write().unwrap();
                register.read().unwrap();
                if register.seen.acknowledged > before {
                    longest = longest.max(last.elapsed());
                    last = Instant::now();
                    acknowledged.fetch_add(1, Relaxed);
                }
            }
            longest
        });
        let report = run_until(&plan, |_| {
            let is_due = acknowledged.load(Relaxed) >= enough;
            if is_due && !is_killed {
                cluster.kill(node);
                (is_killed, enough) = (true, acknowledged.load(Relaxed) + WRITES);
                return false;
            }
            is_due
        });
        is_over.store(true, Relaxed);
        (report, writer.join().unwrap())
    });
    register.read_at_last().unwrap();
    assert_ne!(leader(cluster), node);
    cluster.restart(node).unwrap();
    Failover { checked: report.linearizability.unwrap(), seen: register.seen, unavailable }
}

#[test]
fn a_leader_that_is_killed_loses_no_acknowledged_write() {
    let kills = if is_long() { 20 } else { 1 };
    let mut cluster = cluster(true);
    let mut times = Vec::new();
    for round in 0..kills {
        cluster.settle().unwrap();
        let Failover { checked, seen, unavailable } = kill_leader(&mut cluster, round);
        assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
        assert!(seen.not_applied > 0 && checked.operations > WRITES, "{seen:?} {checked:?}");
        times.push(unavailable);
    }
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    if is_long() {
        let line =
            format!("leader killed {kills} times: unavailable {median:.1?} (median), {worst:.1?} (worst)");
        writeln!(std::io::stderr(), "{line}").unwrap();
    }
}

/// What a server has written to its store.
fn writes_of(server: &Server) -> f64 {
    server.client().stats()["weir_store_batch_size_sum{operation=\"write\"}"].as_f64().unwrap_or_default()
}

/// The active server is killed, a standby takes over, and goes on when the leader of its database is killed.
#[test]
#[ignore = "takes minutes: make test-long"]
fn a_standby_and_then_another_leader_take_over() {
    let mut cluster = cluster(true);
    cluster.settle().unwrap();
    let start = || Server::start(&cluster.url_of("postgres"), &["--standby"]);
    let active = start();
    let standbys = [start(), start()];
    let plan = Plan {
        urls: [&active, &standbys[0], &standbys[1]]
            .map(|server| format!("http://{}", server.address).parse().unwrap())
            .into(),
        ..under_check(active.address)
    };
    let (mut active, mut enough) = (Some(active), f64::INFINITY);
    let report = run_until(&plan, |_| {
        let written = standbys.iter().map(writes_of).sum::<f64>();
        if let Some(active) = active.take_if(|active| writes_of(active) >= WRITES as f64) {
            active.kill();
        } else if enough.is_infinite() && written >= WRITES as f64 {
            let node = leader(&cluster);
            cluster.kill(node);
            enough = written + 2.0 * WRITES as f64;
        }
        written >= enough
    });
    let checked = report.linearizability.unwrap();
    assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
    assert!(checked.operations > 3 * WRITES, "{checked:?}");
}

/// The Patroni of the leader hangs, so another node is promoted; its PostgreSQL runs on and takes writes.
#[test]
#[ignore = "takes minutes: make test-long"]
fn a_replaced_leader_that_runs_on_is_left() {
    let cluster = cluster(true);
    let old = leader(&cluster);
    let server = Server::start(&cluster.url_of("postgres"), &[]);
    let mut register = Register::new("replaced", server.address);
    let mut acknowledge = |more: u64| {
        let enough = register.seen.acknowledged + more;
        until("writes are acknowledged", || {
            register.write().unwrap();
            register.read().unwrap();
            register.seen.acknowledged >= enough
        });
    };
    acknowledge(WRITES);
    signal_patroni(&cluster, old, Signal::STOP);
    until("another node leads", || cluster.leader().is_some_and(|node| node != old));
    let is_primary = cluster.query(old, "postgres", "SELECT NOT pg_is_in_recovery()").unwrap();
    assert_eq!(is_primary, [["t"]], "the old one still takes itself for the leader");
    acknowledge(WRITES);
    register.read_at_last().unwrap();
    let new = leader(&cluster);
    let owners = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'weir owner %'";
    assert_eq!(cluster.query(new, "postgres", owners).unwrap(), [["1"]]);
    signal_patroni(&cluster, old, Signal::CONT);
}

/// As above, and another server owns the store of the new leader.
#[test]
#[ignore = "takes minutes: make test-long"]
fn a_replaced_leader_that_runs_on_answers_no_old_read() {
    let cluster = cluster(true);
    let old = leader(&cluster);
    let first = Server::start(&cluster.url_of("postgres"), &[]);
    assert_eq!(first.client().put("/kv/a", b"old").status, 201);
    signal_patroni(&cluster, old, Signal::STOP);
    until("another node leads", || cluster.leader().is_some_and(|node| node != old));
    let second = Server::start(&cluster.url_of("postgres"), &["--standby"]);
    until("the second one owns the store", || second.client().put("/kv/a", b"new").status == 204);
    let is_primary = cluster.query(old, "postgres", "SELECT NOT pg_is_in_recovery()").unwrap();
    assert_eq!(is_primary, [["t"]], "the old one still takes itself for the leader");
    let mut client = first.client();
    until("the first one has left the old leader", || {
        assert_ne!(client.get("/kv/a").text(), "old");
        client.get("/readyz").status != 200
    });
    signal_patroni(&cluster, old, Signal::CONT);
}

/// The tests above can fail.
#[test]
#[ignore = "takes minutes: make test-long"]
fn without_a_synchronous_standby_a_failover_is_seen_to_lose_writes() {
    let mut cluster = cluster(false);
    let old = leader(&cluster);
    let server = Server::start(&cluster.url_of("postgres"), &["--allow-asynchronous-failover"]);
    let mut registers: Vec<Register> =
        (0..8).map(|key| Register::new(&format!("lost/{key}"), server.address)).collect();
    // Nothing more goes to the standbys, not even into buffers.
    for row in cluster.query(old, "postgres", "SELECT pid FROM pg_stat_replication").unwrap() {
        kill_process(Pid::from_raw(row[0].parse().unwrap()).unwrap(), Signal::STOP).unwrap();
    }
    registers.iter_mut().for_each(|register| register.write().unwrap());
    assert!(registers.iter().all(|register| register.seen.acknowledged == 1));
    cluster.kill(old);
    let lost = registers.iter_mut().filter_map(|register| register.read_at_last().err()).count();
    assert!(lost > 0, "{lost} of {} writes are lost", registers.len());
}

/// The URL of a server as one of two hosts; nothing listens at the other.
fn as_one_of_two(database: &DatabaseServer) -> String {
    database.url().replace("/postgres", ",127.0.0.1:1/postgres")
}

#[test]
fn several_hosts_without_a_synchronous_standby_are_refused_unless_that_is_allowed() {
    let postgres = postgres();
    let url = as_one_of_two(&postgres);
    let allow = "--allow-asynchronous-failover";
    for (url, flags, why, code) in [
        // A standby may come back.
        (&url, &[][..], "synchronous_standby_names is empty", 1),
        (&postgres.url(), &[allow], "does not go with the store", 2),
    ] {
        let refused =
            weir().args(["serve", "--listen", "127.0.0.1:0", "--store", url]).args(flags).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(why) && said.contains(allow) && said.trim().lines().count() == 1, "{said}");
    }
    let server = Server::start(&url, &[allow]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", b"1").status, 201);
    assert_eq!(client.stats()["weir_store_asynchronous_failover"], 1.0);
}

#[test]
fn a_write_whose_wait_for_the_standby_is_cancelled_is_unknown() {
    let postgres = postgres();
    // Then warnings are not sent, unless a session wants them.
    postgres.ask("ALTER DATABASE postgres SET client_min_messages = 'error'").unwrap();
    let server = Server::start(&postgres.url(), &[]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", b"old").status, 201);
    postgres.ask("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").unwrap();
    postgres.ask("SELECT pg_reload_conf()").unwrap();
    let waiting =
        "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'weir session'";
    let mut pid = Vec::new();
    until("a write waits for a standby", || {
        client.send(b"PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nnew").unwrap();
        // Until the setting is in force it is answered.
        until("it waits or is answered", || {
            pid = postgres.ask(waiting).unwrap();
            !pid.is_empty() || client.has_answer()
        });
        if pid.is_empty() {
            assert_eq!(client.answer(false).unwrap().status, 204);
        }
        !pid.is_empty()
    });
    // The database acknowledges the commit, with a warning: no standby has it.
    postgres.ask(&format!("SELECT pg_cancel_backend({})", pid[0][0])).unwrap();
    let answer = client.answer(false).unwrap();
    assert_eq!((answer.status, answer.header("weir-outcome")), (504, Some("unknown")), "{}", answer.text());
    postgres.ask("ALTER SYSTEM RESET synchronous_standby_names").unwrap();
    postgres.ask("SELECT pg_reload_conf()").unwrap();
    until("the store is back", || server.client().get("/kv/a").text() == "new");
}

#[test]
fn a_session_with_another_server_than_the_owners_is_refused() {
    let (one, other) = (postgres(), postgres());
    let address = |of: &DatabaseServer| of.url().split(['@', '/']).nth(3).unwrap().parse().unwrap();
    let forwarder = Forwarder::start(address(&one));
    block_on(async {
        let _of_other = store::open(&other.url()).unwrap().acquire(Part::WHOLE).await.unwrap();
        let store = store::open(&format!("postgres://weir@{}/postgres", forwarder.address)).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        // Its epoch does not tell it from the owner's.
        crate::stores::ask(&other, &format!("UPDATE weir_owner SET epoch = {}", lease.epoch));
        assert!(store.connect(lease.epoch).await.is_ok());
        *forwarder.server.lock().unwrap() = address(&other);
        let refused = store.connect(lease.epoch).await.err().unwrap();
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    });
}
