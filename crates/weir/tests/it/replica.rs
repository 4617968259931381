//! A replica beside real primaries: how it is made, who may believe it, and that nobody else does.

use crate::support::{Answer, Client, Server, postgres, postgres_with, until, weir};
use lab_run::harness::DatabaseServer;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use store::shard_of;

/// How an answer of the replica is marked.
const OF_REPLICA: Option<&str> = Some("weir; fwd=bypass; detail=replica");

/// Primaries and what follows them.
struct World {
    primaries: Vec<DatabaseServer>,
    replica: DatabaseServer,
}

impl World {
    fn new(primaries: usize) -> World {
        // What follows looks for a primary that was away every 5 s otherwise.
        let replica = postgres_with(&[("wal_retrieve_retry_interval", "100ms")]);
        let world = World { primaries: (0..primaries).map(|_| primary()).collect(), replica };
        world.init();
        world
    }

    fn stores(&self) -> Vec<String> {
        self.primaries.iter().flat_map(|primary| ["--store".to_owned(), primary.url()]).collect()
    }

    fn init(&self) -> String {
        let (told, code) = replica("init", &self.replica.url(), &self.stores());
        assert_eq!(code, Some(0), "{told}");
        told
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let stores = self.stores();
        let more = stores[2..].iter().map(String::as_str).chain(flags.iter().copied());
        Server::start(&stores[1], &more.collect::<Vec<_>>())
    }

    fn serve_with_fallback(&self) -> Server {
        self.serve(&["--read-fallback", &self.replica.url()])
    }

    /// Waits until the replica holds this value.
    fn until_arrived(&self, key: &str, value: &str) {
        until("the value arrives", || self.replicated(key).as_deref() == Some(value));
    }

    fn replicated(&self, key: &str) -> Option<String> {
        let sql = format!("SELECT convert_from(value, 'UTF8') FROM weir_kv WHERE key = '{key}'");
        self.replica.query("postgres", &sql).unwrap().pop()?.pop()
    }
}

fn primary() -> DatabaseServer {
    postgres_with(&[("wal_level", "logical")])
}

/// Runs `weir replica ACTION`; what it says, and its exit code.
fn replica(action: &str, url: &str, stores: &[String]) -> (String, Option<i32>) {
    let output = weir().args(["replica", action, "--replica", url]).args(stores).output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&told).trim().to_owned(), output.status.code())
}

/// A key of one shard of two.
fn key_of(shard: usize) -> String {
    (0..).map(|i| format!("key-{i}")).find(|key| shard_of(key.as_bytes(), 2) == shard).unwrap()
}

/// Says that it is over when it goes, with a test that failed, too.
struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn is_of_replica(answer: &Answer) -> bool {
    answer.header("cache-status") == OF_REPLICA
}

fn lag(client: &mut Client, shard: usize) -> Option<f64> {
    client.stats().get(format!("weir_replica_lag_bytes{{shard=\"{shard}\"}}"))?.as_f64()
}

#[test]
fn while_a_primary_is_away_its_keys_are_read_from_the_replica() {
    let mut world = World::new(2);
    // Once is as good as twice.
    let told = world.init();
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(told.starts_with("shard 1 of 2, postgres://weir@127.0.0.1:"), "{told}");
    let keys = [key_of(0), key_of(1)];
    let path = |shard: usize| format!("/kv/{}", keys[shard]);

    // Who did not ask for the replica does not get it.
    let server = world.serve(&[]);
    let mut client = server.client();
    let tag = client.ask("PUT", &path(0), &[("Content-Type", "text/x")], b"first").unwrap();
    let tag = tag.header("etag").unwrap().to_owned();
    assert_eq!(client.put(&path(1), b"second").status, 201);
    world.until_arrived(&keys[0], "first");
    world.until_arrived(&keys[1], "second");
    world.primaries[0].stop();
    until("refused", || client.get(&path(0)).status == 503);
    assert_eq!(client.get(&path(0)).header("cache-status"), None);
    assert!(client.stats().get("weir_replica_up").is_none());
    world.primaries[0].restart().unwrap();
    drop((client, server));

    let server = world.serve_with_fallback();
    let mut client = server.client();
    assert_eq!(client.get(&path(0)).header("cache-status"), Some("weir; fwd=miss; stored"));
    until("both are followed", || lag(&mut client, 0).is_some() && lag(&mut client, 1).is_some());
    let (told, _) = replica("status", &world.replica.url(), &world.stores());
    assert!(
        told.lines().all(|line| line.contains(": copied, ") && line.ends_with(" bytes behind")),
        "{told}"
    );

    world.primaries[0].stop();
    until("the replica answers", || is_of_replica(&client.get(&path(0))));
    for _ in 0..3 {
        let answer = client.get(&path(0));
        assert_eq!((answer.status, answer.text().as_str()), (200, "first"));
        assert_eq!(answer.header("cache-status"), OF_REPLICA, "it is not cached");
        assert_eq!((answer.header("etag"), answer.header("content-type")), (Some(&*tag), Some("text/x")));
    }
    let head = client.ask("HEAD", &path(0), &[], b"").unwrap();
    assert_eq!((head.status, head.header("content-length"), is_of_replica(&head)), (200, Some("5"), true));
    let same = client.ask("GET", &path(0), &[("If-None-Match", &tag)], b"").unwrap();
    assert_eq!((same.status, is_of_replica(&same)), (304, true));
    let lines = format!("{{\"op\":\"get\",\"key\":\"{}\"}}\n", keys[0]);
    let batch = client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap().text();
    assert!(batch.contains("\"cache_status\":\"weir; fwd=bypass; detail=replica\""), "{batch}");
    let absent = (0..).map(|i| format!("absent-{i}")).find(|key| shard_of(key.as_bytes(), 2) == 0).unwrap();
    let absent = client.get(&format!("/kv/{absent}"));
    assert_eq!((absent.status, is_of_replica(&absent)), (404, true));
    assert_eq!(absent.problem()["code"], "absent");
    for method in ["PUT", "DELETE"] {
        let answer = client.ask(method, &path(0), &[], b"").unwrap();
        assert_eq!((answer.status, answer.header("weir-outcome")), (503, Some("not-applied")), "{method}");
    }
    // The other shard's keys are nobody else's matter.
    assert_eq!(client.put(&path(1), b"third").status, 204);
    assert_eq!(client.get(&path(1)).header("cache-status"), Some("weir; hit"));
    let stats = client.stats();
    assert_eq!(stats["weir_replica_up"], 1.0);
    assert!(stats["weir_replica_reads_total"].as_f64().unwrap() >= 6.0, "{stats:#}");
    until("nothing is said of a primary that is away", || lag(&mut client, 0).is_none());
    assert!(lag(&mut client, 1).is_some());

    // Without either, the primary's refusal stands.
    world.replica.stop();
    until("refused", || client.get(&path(0)).status == 503);
    assert_eq!(client.get(&path(0)).header("cache-status"), None);
    until("known to be away", || client.stats()["weir_replica_up"] == 0.0);
    world.replica.restart().unwrap();
    until("the replica answers again", || is_of_replica(&client.get(&path(0))));
    world.primaries[0].restart().unwrap();
    until("ready", || client.get("/readyz").status == 200);
    assert!(!is_of_replica(&client.get(&path(0))));
}

/// Race 9 (report 003): there, a replica that lags fills the cache, which then goes on to serve what was overwritten.
#[test]
fn a_replica_held_back_never_gets_its_old_value_into_the_cache() {
    const READERS: usize = 4;
    let mut world = World::new(1);
    let server = world.serve_with_fallback();
    let mut client = server.client();
    client.put("/kv/a", b"old");
    world.until_arrived("a", "old");
    world.replica.query("postgres", "ALTER SUBSCRIPTION weir_0 DISABLE").unwrap();
    let tag = client.put("/kv/a", b"new").header("etag").unwrap().to_owned();
    for i in 0..100 {
        client.put(&format!("/kv/filler-{i}"), &[b'x'; 2000]);
    }
    until("the lag grows", || lag(&mut client, 0).is_some_and(|bytes| bytes > 200_000.0));
    assert_eq!(client.get("/kv/a").text(), "new");

    world.primaries[0].kill();
    until("the replica answers", || is_of_replica(&client.get("/kv/a")));
    let stale = client.get("/kv/a");
    assert_eq!((stale.text().as_str(), is_of_replica(&stale)), ("old", true));
    let stale_tag = stale.header("etag").unwrap().to_owned();
    assert_ne!(stale_tag, tag);

    // Readers that never pause: some of their reads are under way at the instant the primary comes back.
    let (ended, returned) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _end = End(&ended);
        for _ in 0..READERS {
            scope.spawn(|| {
                let mut client = server.client();
                let mut fresh = 0;
                while !ended.load(Relaxed) {
                    let answer = client.get("/kv/a");
                    let said = (answer.status, answer.text(), is_of_replica(&answer));
                    match (answer.status, answer.text().as_str(), is_of_replica(&answer)) {
                        (503, _, false) => assert_eq!(fresh, 0, "away again: {said:?}"),
                        (200, "old", true) => assert_eq!(fresh, 0, "the primary was back: {said:?}"),
                        (200, "new", false) => {
                            fresh += 1;
                            returned.fetch_add(usize::from(fresh == 1), Relaxed);
                        }
                        _ => panic!("{said:?}"),
                    }
                }
            });
        }
        world.primaries[0].restart().unwrap();
        until("ready", || client.get("/readyz").status == 200);
        let answer = client.get("/kv/a");
        assert_eq!((answer.text().as_str(), is_of_replica(&answer)), ("new", false), "the very next read");
        until("all readers see it", || returned.load(Relaxed) == READERS);
        for _ in 0..100 {
            assert_eq!(client.get("/kv/a").text(), "new");
        }
    });
    assert_eq!(client.get("/kv/a").header("cache-status"), Some("weir; hit"));
    // The old row's tag is what it was, so who writes on its condition is refused.
    for (tag, status) in [(&stale_tag, 412), (&tag, 204)] {
        assert_eq!(client.ask("PUT", "/kv/a", &[("If-Match", tag)], b"newer").unwrap().status, status);
    }

    assert_eq!(world.replicated("a").as_deref(), Some("old"), "it was held back all the time");
    until("known again", || lag(&mut client, 0).is_some_and(|bytes| bytes > 200_000.0));
    world.replica.query("postgres", "ALTER SUBSCRIPTION weir_0 ENABLE").unwrap();
    world.until_arrived("a", "newer");
    until("the lag is gone", || lag(&mut client, 0).is_some_and(|bytes| bytes < 20_000.0));
}

#[test]
fn a_replica_that_is_away_at_the_start_is_waited_for_by_nobody() {
    let mut world = World::new(1);
    world.replica.stop();
    let server = world.serve_with_fallback();
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", b"value").status, 201);
    assert_eq!(client.stats()["weir_replica_up"], 0.0);
    assert_eq!(client.get("/readyz").status, 200);
    world.replica.restart().unwrap();
    until("the replica is found", || client.stats()["weir_replica_up"] == 1.0);
}

#[test]
fn what_cannot_be_a_replica_is_refused_with_the_remedy() {
    let (plain, logical, empty) = (postgres(), primary(), postgres());
    let store = |url: String| vec!["--store".to_owned(), url];
    logical.query("postgres", "CREATE DATABASE second").unwrap();
    for (url, stores, part) in [
        (
            empty.url(),
            store(plain.url()),
            "runs with wal_level = replica, which replicas cannot follow; hint: run ALTER SYSTEM",
        ),
        (logical.url_of("second"), store(logical.url()), "are on the same PostgreSQL server"),
        (logical.url(), store(logical.url()), "is a store itself"),
        (empty.url(), store("file:./x".into()), "only postgres:// stores can"),
        ("file:./x".into(), store(logical.url()), "only postgres:// stores can"),
    ] {
        let (told, code) = replica("init", &url, &stores);
        assert!(told.contains(part) && told.lines().count() == 1, "{told}");
        assert_eq!(code, Some(2), "{told}");
    }
    // It waited without a word: there was nobody to copy.
    let single = postgres_with(&[("max_logical_replication_workers", "1")]);
    let (told, code) = replica("init", &single.url(), &store(logical.url()));
    assert!(told.contains("max_logical_replication_workers = 2 there and restart it"), "{told}");
    assert_eq!(code, Some(2), "{told}");
    let (told, code) = replica("init", "postgres://weir@127.0.0.1:1/x", &store(logical.url()));
    assert!(told.contains("cannot reach") && code == Some(1), "{told}");

    let serve = |stores: &[String], flags: &[&str]| {
        let output =
            weir().args(["serve", "--listen", "127.0.0.1:0"]).args(stores).args(flags).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        told
    };
    let second = empty.query("postgres", "CREATE DATABASE second").map(|_| empty.url_of("second")).unwrap();
    let told = serve(&store(logical.url()), &["--read-fallback", &second]);
    assert!(told.contains("is no replica yet") && told.contains("weir replica init"), "{told}");
    let told = serve(&store("memory:".into()), &["--read-fallback", &empty.url()]);
    assert!(told.contains("only postgres:// stores can"), "{told}");

    // A replica that is one is no store, and follows nobody else.
    let (told, code) = replica("init", &empty.url(), &store(logical.url()));
    assert_eq!(code, Some(0), "{told}");
    let told = serve(&store(empty.url()), &[]);
    assert!(told.contains("is a replica: a subscription writes its table"), "{told}");
    let (told, _) = replica("init", &second, &store(logical.url()));
    assert!(told.contains("has a slot weir_0 for another replica"), "{told}");
    // That of another database of its server is none of its own.
    let other = store(logical.url_of("second"));
    let (told, code) = replica("init", &second, &other);
    assert_eq!(code, Some(0), "{told}");
    let (told, _) = replica("status", &second, &other);
    assert!(told.contains(": copied, ") && told.ends_with(" bytes behind"), "{told}");
}

/// It was told to be copied and followed, without any lag, for ever.
#[test]
fn a_replica_that_can_follow_no_more_is_said_to_be_cut_off() {
    let world = World::new(1);
    let url = world.replica.url();
    let server = world.serve(&["--read-fallback", &url]);
    let mut client = server.client();
    until("the lag is known", || lag(&mut client, 0).is_some());
    let publication =
        |change: &str| world.primaries[0].ask(&format!("ALTER PUBLICATION weir {change}")).unwrap();
    let is_cut_off = |client: &mut Client| {
        let (told, _) = replica("status", &url, &world.stores());
        assert!(told.contains("copied, cut off for good"), "{told}");
        until("no lag is told", || lag(client, 0).is_none());
        let (told, code) = replica("init", &url, &world.stores());
        assert!(code == Some(2) && told.contains("pg_drop_replication_slot('weir_0')"), "{told}");
    };
    // As after a DROP TABLE and a restore.
    publication("DROP TABLE weir_kv");
    is_cut_off(&mut client);
    publication("ADD TABLE weir_kv");
    until("the lag is known", || lag(&mut client, 0).is_some());
    world.replica.ask("ALTER SUBSCRIPTION weir_0 DISABLE").unwrap();
    let primary = &world.primaries[0];
    primary.ask("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'").unwrap();
    primary.ask("SELECT pg_reload_conf()").unwrap();
    for key in ["a", "b", "c", "d"] {
        client.put(&format!("/kv/{key}"), b"value");
        primary.ask("SELECT pg_switch_wal()").unwrap();
    }
    until("the log is gone", || {
        primary.ask("CHECKPOINT").unwrap();
        primary.ask("SELECT wal_status FROM pg_replication_slots").unwrap()[0][0] == "lost"
    });
    world.replica.ask("ALTER SUBSCRIPTION weir_0 ENABLE").unwrap();
    let (told, _) = replica("status", &url, &world.stores());
    assert!(told.contains("copied, cut off for good"), "{told}");
}

/// All shards share the replica's one table: clearing one of them must not take the rows of the others with it.
#[test]
fn a_shard_that_is_cleared_leaves_the_rows_of_the_others_on_the_replica() {
    let mut world = World::new(2);
    let (kept, gone) = (key_of(1), key_of(0));
    let url = world.replica.url();
    let server = world.serve(&["--read-fallback", &url, "--lab"]);
    let mut client = server.client();
    assert_eq!(client.put(&format!("/kv/{kept}"), b"kept").status, 201);
    assert_eq!(client.put(&format!("/kv/{gone}"), b"gone").status, 201);
    world.until_arrived(&kept, "kept");
    world.until_arrived(&gone, "gone");
    world.primaries[1].stop();
    let answer = client.ask("DELETE", "/kv", &[], b"").unwrap();
    assert!(matches!(answer.status, 503 | 504), "{answer:?}");
    until("the clear arrives", || world.replicated(&gone).is_none());
    let answer = client.get(&format!("/kv/{kept}"));
    assert_eq!((answer.text().as_str(), is_of_replica(&answer)), ("kept", true));
}
