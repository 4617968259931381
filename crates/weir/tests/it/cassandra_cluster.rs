//! Three Cassandra nodes under two servers, nodes killed and paused meanwhile, and servers that come and go: nearly all of it the long
//! form only.

use crate::cassandra::{MIXED, check_at, check_until, keyspace, writes_of};
use crate::proxies::Proxy;
use crate::support::{Server, count, is_long, until};
use lab_run::harness::{CassandraCluster, DatabaseOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Operations that have to be over.
const OPERATIONS: u64 = 1_000_000;
const KILLS: usize = 20;
const KILLS_OF_ALL: usize = 5;
/// Longer than a connection lives whose node says nothing.
const PAUSE: Duration = Duration::from_secs(4);
/// Between two faults, in operations: the cluster serves meanwhile.
const CALM: u64 = 3000;

/// A cluster with one keyspace, and servers over it.
fn cluster(parameters: &str) -> (CassandraCluster, [Server; 2]) {
    let cluster = CassandraCluster::start(3, DatabaseOptions::default()).unwrap();
    let version = cluster.query(0, "SELECT release_version FROM system.local").unwrap();
    count("Cassandra", &version[0][0]);
    let url = cluster.keyspace("weir").unwrap() + parameters;
    let servers = [(); 2].map(|()| Server::start(&url, &["--store-timeout", "10s"]));
    (cluster, servers)
}

fn signal(cluster: &CassandraCluster, node: usize, signal: Signal) {
    let node = Pid::from_raw(cluster.pid(node).unwrap().cast_signed()).unwrap();
    kill_process(node, signal).unwrap();
}

/// Waits until so many more operations are over.
fn wait_for(more: u64, over: &AtomicU64) {
    let enough = over.load(Relaxed) + more;
    let deadline = Instant::now() + Duration::from_secs(300);
    while over.load(Relaxed) < enough {
        assert!(Instant::now() < deadline, "the cluster serves nobody");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Kills and pauses nodes, each time one, and at last all at once; how often it did each.
fn break_nodes(cluster: &mut CassandraCluster, over: &AtomicU64, kills: usize, kills_of_all: usize) {
    let calm = |more: u64| wait_for(more, over);
    let say = |what: &str| {
        let mut out = std::io::stderr();
        writeln!(out, "{what}, after {} operations", over.load(Relaxed)).unwrap();
    };
    for round in 0..kills {
        say(&format!("{round} nodes killed, {round} paused"));
        calm(CALM);
        let node = round % 3;
        cluster.kill(node);
        calm(CALM);
        cluster.restart(node).unwrap();
        calm(CALM);
        let other = (round + 1) % 3;
        signal(cluster, other, Signal::STOP);
        thread::sleep(PAUSE);
        signal(cluster, other, Signal::CONT);
    }
    for round in 0..kills_of_all {
        say(&format!("{kills} nodes killed, {kills} paused, {round} times all killed"));
        calm(CALM);
        (0..3).for_each(|node| cluster.kill(node));
        (0..3).for_each(|node| cluster.restart(node).unwrap());
    }
    calm(CALM);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn nodes_that_are_killed_and_paused_lose_no_acknowledged_write() {
    let (mut cluster, servers) = cluster("");
    let (over, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&is_done);
            break_nodes(&mut cluster, &over, KILLS, KILLS_OF_ALL);
        });
        check_until(&servers, MIXED, 24, 300, |now| {
            over.store(now, Relaxed);
            is_done.load(Relaxed) && now >= OPERATIONS
        })
    });
    let checked = report.linearizability.clone().unwrap();
    assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
    assert!(checked.operations >= OPERATIONS && checked.precondition_failed > 0, "{checked:?}");
}

/// The tests of linearizability can fail: what `read_consistency=one` reads is older than what was acknowledged.
#[test]
#[ignore = "takes minutes: make test-long"]
fn reads_of_one_node_are_found_to_be_stale() {
    let (cluster, servers) = cluster("?read_consistency=one");
    let (over, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&is_done);
            for node in [0, 1, 2] {
                // What it missed meanwhile comes some time after it goes on.
                signal(&cluster, node, Signal::STOP);
                thread::sleep(PAUSE);
                signal(&cluster, node, Signal::CONT);
                let enough = over.load(Relaxed) + CALM;
                until("the cluster serves", || over.load(Relaxed) > enough);
            }
        });
        check_until(&servers, "get=60,put=40", 16, 16, |now| {
            over.store(now, Relaxed);
            is_done.load(Relaxed)
        })
    });
    let checked = report.linearizability.unwrap();
    assert!(checked.violations > 0 && !checked.history.is_empty(), "{checked:?}");
}

const PROXY_FILE: &str = "haproxy-servers.cfg";

/// Servers behind HAProxy are added and removed as docs/operations.md says, while clients read and write.
#[test]
fn no_request_fails_while_servers_are_added_and_removed() {
    let cluster = is_long().then(|| cluster("").0);
    let url = cluster.as_ref().map_or_else(keyspace, |cluster| cluster.url("weir"));
    let (rounds, calm) = if is_long() { (10, CALM) } else { (1, 200) };
    let start = || {
        let server = Server::start(&url, &[]);
        until("it reaches the store", || server.client().get("/readyz").status == 200);
        server
    };
    let mut servers = vec![start(), start()];
    let addresses = |servers: &[Server]| servers.iter().map(|server| server.address).collect::<Vec<_>>();
    let proxy = Proxy::start_by("haproxy", PROXY_FILE, &addresses(&servers));
    let (over, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
    let report = thread::scope(|scope| {
        scope.spawn(|| {
            let _done = Done(&is_done);
            for _ in 0..rounds {
                wait_for(calm, &over);
                servers.push(start());
                proxy.reload(PROXY_FILE, &addresses(&servers));
                until("it has its share", || writes_of(&servers[2]) > 0.0);
                wait_for(calm, &over);
                let mut first = servers.remove(0);
                assert_eq!(proxy.command("set server weir/weir1 state drain").trim(), "");
                until("it has no requests", || requests_at_first(&proxy) == 0);
                first.terminate();
                assert!(first.wait().success());
            }
            wait_for(calm, &over);
        });
        check_at(&[proxy.address], MIXED, 16, 64, |now| {
            over.store(now, Relaxed);
            is_done.load(Relaxed)
        })
    });
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let checked = report.linearizability.unwrap();
    assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
    writeln!(std::io::stderr(), "{} operations, {rounds} servers added and removed", checked.operations)
        .unwrap();
}

/// How many requests HAProxy has at its first server.
fn requests_at_first(proxy: &Proxy) -> usize {
    let said = proxy.command("show stat");
    let line = said.lines().find(|line| line.starts_with("weir,weir1,"));
    line.unwrap_or_else(|| panic!("{said}")).split(',').nth(4).unwrap().parse().unwrap()
}

/// Sets what it holds when it is dropped: also if a test fails, its clients are to end.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
