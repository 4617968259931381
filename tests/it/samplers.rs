//! What the samplers see of real databases: counters that move when they should, and sessions where they are.

use crate::support::{PATIENCE, mariadb, postgres};
use mysql_async::prelude::Queryable;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use tokio::runtime::Builder;
use weir::lab::analysis::waits::{class_of, whereabouts};
use weir::lab::analysis::{WaitKind, Whereabouts};
use weir::lab::results::{Reading, Trial};
use weir::lab::sampler::{Context, Database, Engine, Samplers};

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
        thread::yield_now();
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
    let trial = watched(&context, connect, |(runtime, client)| {
        runtime.block_on(client.execute(upsert, &[])).unwrap();
    });
    // On a machine that is busy otherwise our threads wait for a core, and their sessions for them.
    let there = where_they_were(&trial);
    let working = there.sessions.iter().find(|(state, _)| class_of(state).kind != WaitKind::Idle).unwrap();
    assert!(matches!(working.0.as_str(), "Lock:transactionid" | "Lock:tuple"), "{there:?}");

    // With the lock held for longer than any thread takes to come back, that no longer matters.
    let held = format!("BEGIN; {upsert}; SELECT pg_sleep(0.02); COMMIT");
    let trial = watched(&context, connect, |(runtime, client)| {
        runtime.block_on(client.batch_execute(&held)).unwrap();
    });
    let there = where_they_were(&trial);
    assert!(there.in_class("row lock") >= CLIENTS as f64 / 2.0, "{there:?}");
    let total = there.sum(|_| true);
    assert!((CLIENTS as f64 - 1.0..CLIENTS as f64 + 1.0).contains(&total), "only theirs: {there:?}");
    assert!(there.samples >= LOOKS && there.cost_ratio.unwrap() < 1.0, "{there:?}");
    for grown in ["database.wal_bytes", "database.write_transactions", "database.cpu_secs"] {
        assert!(trial.growth(grown).unwrap() > 0.0, "{grown}");
    }
    for read in ["database.commits", "database.wal_syncs", "database.blocks_hit", "database.checkpoints"] {
        assert!(trial.growth(read).is_some(), "{read}");
    }
    assert!(!trial.closed.counters.contains_key("database.wal_sync_secs"), "its clock is off by default");
}

#[test]
fn a_checkpoint_of_postgresql_is_counted() {
    let server = postgres();
    let mut samplers = Samplers::new(&context(Engine::Postgres, &server.url(), server.pid()));
    let checkpoints = |reading: &Reading| reading.counters["database.checkpoints"];
    let before = checkpoints(&samplers.read());
    server.query("postgres", "CHECKPOINT").unwrap();
    read_until(&mut samplers, |reading| checkpoints(reading) >= before + 1.0);
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
    assert!(reading.gauges.contains_key("memory.available_bytes"));
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
    for sql in
        ["CREATE OR REPLACE TABLE counter (k INT PRIMARY KEY, v INT)", "INSERT INTO counter VALUES (1, 0)"]
    {
        runtime.block_on(conn.query_drop(sql)).unwrap();
    }
    let trial = watched(&context(Engine::Mysql, &url, mariadb.pid()), connect, |(runtime, conn)| {
        // Held over a second statement, as a transaction of any size holds it.
        for sql in ["BEGIN", "UPDATE counter SET v = v + 1 WHERE k = 1", "DO SLEEP(0.02)", "COMMIT"] {
            runtime.block_on(conn.query_drop(sql)).unwrap();
        }
    });
    let there = where_they_were(&trial);
    assert_eq!(there.sessions[0].0, "Lock:row", "{there:?}");
    assert!(there.in_class("row lock") >= CLIENTS as f64 / 2.0, "{there:?}");
    for grown in ["commits", "commit_statements", "wal_bytes", "syncs", "questions", "row_lock_waits"] {
        assert!(trial.growth(&format!("database.{grown}")).unwrap() > 0.0, "{grown}");
    }
}
