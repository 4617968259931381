//! What the samplers see of real databases, sockets and quotas: counters that move when they should, and sessions and
//! connections where they are.

use crate::support::{PATIENCE, count, mariadb, postgres, postgres_with};
use lab_analysis::waits::{class_of, whereabouts};
use lab_analysis::{WaitKind, Whereabouts};
use lab_data::experiment::Engine;
use lab_data::results::{Reading, Trial};
use lab_run::sampler::{Context, Database, Samplers};
use mysql_async::prelude::Queryable;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Builder;

const CLIENTS: usize = 8;
/// Enough looks at the sessions to tell where most of them are.
const LOOKS: f64 = 50.0;

fn context(engine: Engine, url: &str, pid: Option<u32>) -> Context {
    Context {
        parts: pid.map(|pid| ("database".to_owned(), pid)).into_iter().collect(),
        databases: vec![Database { part: "database".to_owned(), engine, url: url.to_owned() }],
        ..Context::default()
    }
}

/// Reads until `enough` is true of a reading.
fn read_until(samplers: &mut Samplers, enough: impl Fn(&Reading) -> bool) -> Reading {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let reading = samplers.read();
        if enough(&reading) {
            return reading;
        }
        assert!(Instant::now() < deadline, "{reading:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Samplers that have read this counter, and the reading: sessions that a busy database does not open in time are opened again.
fn samplers_with(context: &Context, counter: &str) -> (Samplers, Reading) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut samplers = Samplers::new(context);
        let reading = samplers.read();
        if reading.counters.contains_key(counter) {
            return (samplers, reading);
        }
        assert!(Instant::now() < deadline, "{reading:?}");
    }
}

/// Readings around a while in which `CLIENTS` threads do `work` with what `connect` gives each, over and over.
fn watched<C>(context: &Context, connect: impl Fn() -> C + Sync, work: impl Fn(&mut C) + Sync) -> Trial {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = connect();
                while !stop.load(Ordering::Relaxed) {
                    work(&mut client);
                }
            });
        }
        let mut samplers = Samplers::new(context);
        // The sessions of our threads come one by one, and so does the one that looks at them.
        let all = |reading: &Reading| {
            let connections = reading.gauges.get("database.connections");
            connections.is_some_and(|count| *count >= CLIENTS as f64)
                && reading.counters.contains_key("database.waits.samples")
        };
        let opened = read_until(&mut samplers, all);
        let samples = |reading: &Reading| reading.counters["database.waits.samples"];
        let closed = read_until(&mut samplers, |reading| samples(reading) >= samples(&opened) + LOOKS);
        stop.store(true, Ordering::Relaxed);
        Trial {
            workload: "one row".into(),
            level: CLIENTS as u32,
            repetition: 0,
            load: None,
            failure: None,
            elapsed_secs: 1.0,
            opened,
            closed,
            faults: Vec::new(),
        }
    })
}

fn where_they_were(trial: &Trial) -> Whereabouts {
    whereabouts(&[trial]).pop().unwrap()
}

#[test]
fn sessions_that_change_one_row_in_postgresql_wait_for_its_lock() {
    let server = postgres();
    server.query("postgres", "CREATE TABLE counter (key int PRIMARY KEY, value int)").unwrap();
    let upsert =
        "INSERT INTO counter VALUES (1, 1) ON CONFLICT (key) DO UPDATE SET value = counter.value + 1";
    let url = server.url();
    let connect = || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        });
        (runtime, client)
    };
    let context = context(Engine::Postgres, &url, server.pid());
    // Held for longer than any thread takes to come back: on a machine that is busy otherwise our threads wait for a core, and their
    // sessions for them.
    let held = format!("BEGIN; {upsert}; SELECT pg_sleep(0.02); COMMIT");
    let trial = watched(&context, connect, |(runtime, client)| {
        runtime.block_on(client.batch_execute(&held)).unwrap();
    });
    let there = where_they_were(&trial);
    let working = there.sessions.iter().find(|(state, _)| class_of(state).kind != WaitKind::Idle).unwrap();
    assert!(matches!(working.0.as_str(), "Lock:transactionid" | "Lock:tuple"), "{there:?}");
    assert!(there.in_class("row lock") >= CLIENTS as f64 / 2.0, "{there:?}");
    let total = there.sum(|_| true);
    assert!((CLIENTS as f64 - 1.0..CLIENTS as f64 + 1.0).contains(&total), "only theirs: {there:?}");
    assert!(there.samples >= LOOKS && there.cost_ratio.unwrap() < 1.0, "{there:?}");
    for grown in ["database.wal_bytes", "database.write_transactions", "database.cpu_secs"] {
        assert!(trial.growth(grown).unwrap() > 0.0, "{grown}");
    }
    for read in ["commits", "wal_syncs", "wal_sync_secs", "blocks_read", "checkpoints"] {
        assert!(trial.growth(&format!("database.{read}")).is_some(), "{read}");
    }
}

#[test]
fn the_time_commits_take_to_reach_the_disk_is_counted_unless_the_settings_say_no() {
    for (settings, is_counted) in [(&[][..], true), (&[("track_wal_io_timing", "off")], false)] {
        let server = postgres_with(settings);
        let context = context(Engine::Postgres, &server.url(), server.pid());
        let (mut samplers, before) = samplers_with(&context, "database.wal_syncs");
        let secs = |reading: &Reading| reading.counters.get("database.wal_sync_secs").copied();
        assert_eq!(secs(&before).is_some(), is_counted);
        // What a session did is handed in when it ends, at the latest.
        server.query("postgres", "CREATE TABLE written (key int)").unwrap();
        let syncs = |reading: &Reading| reading.counters.get("database.wal_syncs").copied();
        let after = read_until(&mut samplers, |reading| syncs(reading) > syncs(&before));
        assert!(!is_counted || secs(&after) > secs(&before), "{:?} {:?}", secs(&before), secs(&after));
    }
}

#[test]
fn a_checkpoint_of_postgresql_is_counted() {
    let server = postgres();
    let context = context(Engine::Postgres, &server.url(), server.pid());
    let (mut samplers, before) = samplers_with(&context, "database.checkpoints");
    let checkpoints = |reading: &Reading| reading.counters.get("database.checkpoints").copied();
    server.query("postgres", "CHECKPOINT").unwrap();
    read_until(&mut samplers, |reading| checkpoints(reading) > checkpoints(&before));
}

#[test]
fn a_database_that_ends_has_no_counters_and_takes_nothing_with_it() {
    let mut server = postgres();
    let mut samplers = Samplers::new(&context(Engine::Postgres, &server.url(), server.pid()));
    read_until(&mut samplers, |reading| reading.counters.contains_key("database.waits.samples"));
    server.kill();
    let reading =
        read_until(&mut samplers, |reading| !reading.counters.contains_key("database.waits.samples"));
    assert!(!reading.counters.contains_key("database.wal_bytes"));
    assert!(reading.counters.contains_key("memory.swap_in_pages"));
}

#[test]
fn sessions_that_change_one_row_in_mariadb_wait_for_its_lock() {
    let mariadb = mariadb();
    let url = mariadb.url();
    let runtime = || Builder::new_current_thread().enable_all().build().unwrap();
    let connect = || {
        let runtime = runtime();
        let conn = runtime.block_on(mysql_async::Conn::from_url(&url)).unwrap();
        (runtime, conn)
    };
    let (runtime, mut conn) = connect();
    for sql in ["CREATE TABLE counter (k INT PRIMARY KEY, v INT)", "INSERT INTO counter VALUES (1, 0)"] {
        runtime.block_on(conn.query_drop(sql)).unwrap();
    }
    let trial = watched(&context(Engine::MariaDb, &url, mariadb.pid()), connect, |(runtime, conn)| {
        // Held over a second statement, as a transaction of any size holds it.
        for sql in ["BEGIN", "UPDATE counter SET v = v + 1 WHERE k = 1", "DO SLEEP(0.02)", "COMMIT"] {
            runtime.block_on(conn.query_drop(sql)).unwrap();
        }
    });
    let there = where_they_were(&trial);
    assert_eq!(there.sessions[0].0, "Lock:row", "{there:?}");
    assert!(there.in_class("row lock") >= CLIENTS as f64 / 2.0, "{there:?}");
    for grown in ["commits", "wal_bytes", "syncs", "row_lock_waits"] {
        assert!(trial.growth(&format!("database.{grown}")).unwrap() > 0.0, "{grown}");
    }
}

/// Connections to a listener that reads only what it is told to, and a sampler that looks at them.
struct Sockets {
    samplers: Samplers,
    clients: Vec<TcpStream>,
    servers: Vec<TcpStream>,
}

impl Sockets {
    fn open(host: &str, count: usize) -> Sockets {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let load_urls = vec![format!("http://127.0.0.1:{port}")];
        let mut sockets = Sockets {
            samplers: Samplers::new(&Context { load_urls, ..Context::default() }),
            clients: Vec::new(),
            servers: Vec::new(),
        };
        for _ in 0..count {
            sockets.clients.push(TcpStream::connect(("127.0.0.1", port)).unwrap());
            sockets.servers.push(listener.accept().unwrap().0);
        }
        sockets
    }

    /// How many connections have something unread at the server and at the generator, once that is `expected`: exactly,
    /// for a look has all of so few.
    fn until(&mut self, expected: (f64, f64)) {
        self.until_within(expected, 2.0, 0.01);
    }

    /// The same by as many looks, give or take `error`.
    fn until_within(&mut self, expected: (f64, f64), enough: f64, error: f64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let opened = read_until(&mut self.samplers, |reading| looks(reading) > 0.0);
            let closed = read_until(&mut self.samplers, |reading| looks(reading) >= looks(&opened) + enough);
            let growth = |name: &str| {
                let name = format!("sockets.{name}_secs");
                closed.counters[&name] - opened.counters[&name]
            };
            let mean = |name: &str| growth(name) / growth("observed");
            let found = (mean("server_unread"), mean("generator_unread"));
            if (found.0 - expected.0).abs() < error && (found.1 - expected.1).abs() < error {
                return;
            }
            assert!(Instant::now() < deadline, "{found:?}, not {expected:?}");
        }
    }
}

fn looks(reading: &Reading) -> f64 {
    reading.counters.get("sockets.samples").copied().unwrap_or(0.0)
}

#[test]
fn what_nobody_reads_is_seen_at_the_end_where_it_lies() {
    // A server on both families has its end of a connection of IPv4 in the other.
    for host in ["127.0.0.1", "::"] {
        // Not every machine has IPv6.
        if TcpListener::bind((host, 0)).is_err() {
            continue;
        }
        let mut sockets = Sockets::open(host, 4);
        sockets.until((0.0, 0.0));
        sockets.clients[..3].iter_mut().for_each(|client| client.write_all(b"GET").unwrap());
        sockets.until((3.0, 0.0));
        for server in &mut sockets.servers[..2] {
            server.read_exact(&mut [0; 3]).unwrap();
            server.write_all(b"200").unwrap();
        }
        sockets.until((1.0, 2.0));
        sockets.clients[..2].iter_mut().for_each(|client| client.read_exact(&mut [0; 3]).unwrap());
        sockets.until((1.0, 0.0));
        // One that is gone waits for nobody.
        sockets.clients.remove(2);
        sockets.until((0.0, 0.0));
    }
}

#[test]
fn a_few_connections_stand_for_many() {
    let mut sockets = Sockets::open("127.0.0.1", 64);
    sockets.clients[..32].iter_mut().for_each(|client| client.write_all(b"GET").unwrap());
    sockets.servers[48..].iter_mut().for_each(|server| server.write_all(b"200").unwrap());
    // Of 64, a quarter and a half: 160 connections looked at tell them apart.
    sockets.until_within((32.0, 16.0), 40.0, 8.0);
}

#[test]
fn without_a_connection_nothing_is_said_of_sockets() {
    let mut sockets = Sockets::open("127.0.0.1", 0);
    let reading = sockets.samplers.read();
    assert!(!reading.counters.keys().any(|name| name.starts_with("sockets.")), "{reading:?}");
    // Nor where only the ends of a window are read.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let context =
        Context { load_urls: vec![format!("http://{address}")], ends_only: true, ..Context::default() };
    let mut samplers = Samplers::new(&context);
    let _client = TcpStream::connect(address).unwrap();
    let reading = samplers.read();
    assert!(!reading.counters.keys().any(|name| name.starts_with("sockets.")), "{reading:?}");
}

#[test]
fn looking_takes_little_of_a_core_however_many_connections_there_are() {
    let mut sockets = Sockets::open("127.0.0.1", 256);
    // By then it is known which ones there are, and they are no longer listed.
    let opened = read_until(&mut sockets.samplers, |reading| looks(reading) >= 20.0);
    let closed = read_until(&mut sockets.samplers, |reading| looks(reading) >= looks(&opened) + 20.0);
    let growth = |name: &str| closed.counters[name] - opened.counters[name];
    // The period follows the cost. Looks are few here, and gaps random: twice the bound is not exceeded by chance.
    let share = growth("sockets.cost_secs") / growth("sockets.observed_secs");
    assert!(share < 0.01, "{share}");
}

/// A group of version 1 or 2 with a fiftieth of a core, where this machine lets us make one: whoever computes there runs into that, however
/// little of a core there is for him.
struct FiftiethOfACore(PathBuf);

impl FiftiethOfACore {
    fn make() -> Option<FiftiethOfACore> {
        let name = format!("weir-test-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let group =
            if v1.join("cpu.cfs_quota_us").exists() { v1 } else { Path::new("/sys/fs/cgroup") }.join(name);
        fs::create_dir(&group).ok()?;
        let made = FiftiethOfACore(group);
        let set = |file: &str, value: &str| fs::write(made.0.join(file), value).is_ok();
        let is_set = set("cpu.max", "2000 100000") || set("cpu.cfs_quota_us", "2000");
        is_set.then_some(made)
    }
}

impl Drop for FiftiethOfACore {
    fn drop(&mut self) {
        // Not before the last process in it is reaped.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_quota_is_read_of_a_process_that_runs_into_it() {
    let Some(group) = FiftiethOfACore::make() else {
        count("untested", "quota");
        return;
    };
    let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let parts = vec![("server".to_owned(), busy.id())];
    let mut samplers = Samplers::new(&Context { parts, ..Context::default() });
    let before = samplers.read();
    let joins = fs::write(group.0.join("cgroup.procs"), busy.id().to_string());
    let after = joins.map(|()| {
        read_until(&mut samplers, |reading| {
            reading.counters.get("server.throttled_secs").is_some_and(|secs| *secs > 0.0)
        })
    });
    busy.kill().unwrap();
    busy.wait().unwrap();
    let after = after.unwrap();
    // Where we are limited ourselves, that need not be the tightest.
    assert!(after.gauges["server.quota_cores"] <= 0.02);
    assert!(after.gauges.get("server.quota_cores") != before.gauges.get("server.quota_cores"));
}
