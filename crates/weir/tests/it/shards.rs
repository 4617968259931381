//! A server over several stores: where keys lie, what may be given as what, and what one lost store leaves alone.

use crate::postgres::OtherProgram;
use crate::register::{Register, Seen};
use crate::support::{Client, Server, block_on, postgres, until, weir};
use lab_run::harness::DatabaseServer;
use store::{self, contract, shard_of};

/// A second database of a server, for a second shard.
fn second_database(postgres: &DatabaseServer) -> String {
    postgres.query("postgres", "CREATE DATABASE second").unwrap();
    postgres.url_of("second")
}

/// A server over `stores`, in this order.
fn serve(stores: &[&str], flags: &[&str]) -> Server {
    let more = stores[1..].iter().flat_map(|store| ["--store", store]);
    Server::start(stores[0], &more.chain(flags.iter().copied()).collect::<Vec<_>>())
}

/// What a server that does not start says, and its exit code.
fn refusal(stores: &[&str]) -> (String, Option<i32>) {
    let stores = stores.iter().flat_map(|store| ["--store", store]);
    let output = weir().args(["serve", "--listen", "127.0.0.1:0"]).args(stores).output().unwrap();
    (String::from_utf8_lossy(&output.stderr).trim().to_owned(), output.status.code())
}

/// The keys a database holds, in order.
fn keys_in(postgres: &DatabaseServer, database: &str) -> Vec<String> {
    let rows =
        postgres.query(database, "SELECT convert_from(key, 'UTF8') FROM weir_kv ORDER BY key").unwrap();
    rows.into_iter().map(|mut row| row.remove(0)).collect()
}

/// Keys of one shard of two.
fn keys_of(shard: usize) -> impl Iterator<Item = String> {
    (0..).map(|i| format!("key-{i}")).filter(move |key| shard_of(key.as_bytes(), 2) == shard)
}

#[test]
fn a_database_remembers_which_shard_it_is() {
    let postgres = postgres();
    block_on(contract::remembers_its_part(|| store::open(&postgres.url()).unwrap()));
}

#[test]
fn every_key_lies_where_its_hash_says_and_comes_back() {
    let postgres = postgres();
    let (first, second) = (postgres.url(), second_database(&postgres));
    let server = serve(&[&first, &second], &["--cache-entries", "0"]);
    let mut client = server.client();
    for i in 0..40 {
        assert_eq!(client.put(&format!("/kv/key-{i}"), i.to_string().as_bytes()).status, 201);
    }
    for (shard, database) in ["postgres", "second"].into_iter().enumerate() {
        let mut expected: Vec<String> =
            (0..40).map(|i| format!("key-{i}")).filter(|key| shard_of(key.as_bytes(), 2) == shard).collect();
        expected.sort();
        assert!(expected.len() > 10);
        assert_eq!(keys_in(&postgres, database), expected, "{database}");
    }
    for i in 0..40 {
        assert_eq!(client.get(&format!("/kv/key-{i}")).text(), i.to_string());
    }
    assert_eq!(client.ask("DELETE", "/kv/key-1", &[], b"").unwrap().status, 204);
    assert_eq!(client.get("/kv/key-1").status, 404);
    // What one keeps, the other does not: the whole cache is as large as it was told to be.
    drop(client);
    drop(server);
    let server = serve(&[&first, &second], &["--cache-entries", "4", "--cache-shards", "1"]);
    let mut client = server.client();
    (0..40).for_each(|i| drop(client.get(&format!("/kv/key-{i}"))));
    let stats = client.stats();
    for shard in ["0", "1"] {
        assert_eq!(stats[format!("weir_cache_entries{{shard=\"{shard}\"}}")], 2.0);
    }
}

#[test]
fn figures_of_several_stores_say_which() {
    let server = serve(&["memory:", "memory:"], &[]);
    let mut client = server.client();
    for (shard, count) in [(0, 3), (1, 2)] {
        for key in keys_of(shard).take(count) {
            client.put(&format!("/kv/{key}"), b"value");
            client.get(&format!("/kv/{key}"));
        }
    }
    let stats = client.stats();
    for (name, value) in [
        ("weir_cache_requests_total{result=\"hit\",shard=\"0\"}", 3.0),
        ("weir_cache_requests_total{result=\"hit\",shard=\"1\"}", 2.0),
        ("weir_cache_entries{shard=\"1\"}", 2.0),
        ("weir_store_workers{operation=\"write\",shard=\"1\"}", 1.0),
        ("weir_store_batch_size_sum{operation=\"write\",shard=\"0\"}", 3.0),
        ("weir_store_up{shard=\"0\"}", 1.0),
        ("weir_shed_total{reason=\"queue\",shard=\"1\"}", 0.0),
    ] {
        assert_eq!(stats[name], value, "{name} in {stats:#}");
    }
    let text = client.get("/metrics").text();
    assert!(
        text.contains("weir_store_duration_seconds_bucket{operation=\"read\",shard=\"1\",le=\"+Inf\"}"),
        "{text}"
    );
    assert!(!text.contains("weir_replica"), "{text}");
    // One store needs no such word.
    let alone = serve(&["memory:"], &[]);
    assert!(!alone.client().get("/metrics").text().contains("shard="));
}

#[test]
fn stores_in_another_order_or_number_are_refused() {
    let postgres = postgres();
    let (first, second) = (postgres.url(), second_database(&postgres));
    postgres.query("postgres", "CREATE DATABASE third").unwrap();
    let third = postgres.url_of("third");
    drop(serve(&[&first, &second], &[]));
    for (stores, said) in [
        (
            &[&second, &first][..],
            "/second is shard 2 of 2, but was given as shard 1 of 2; hint: give the --store URLs in",
        ),
        (&[&first], "/postgres is shard 1 of 2, but was given as the only store"),
        (&[&first, &second, &third], "/postgres is shard 1 of 2, but was given as shard 1 of 3"),
    ] {
        let stores: Vec<&str> = stores.iter().map(|url| url.as_str()).collect();
        let (told, code) = refusal(&stores);
        assert!(told.contains(said) && told.lines().count() == 1, "{told}");
        assert_eq!(code, Some(2), "{told}");
    }
    // The right order still is.
    drop(serve(&[&first, &second], &[]));
}

/// A store from before there were maps, in use: it is the whole.
#[test]
fn a_whole_store_does_not_become_a_shard() {
    let postgres = postgres();
    let (first, second) = (postgres.url(), second_database(&postgres));
    Server::start(&first, &[]).client().put("/kv/a", b"value");
    for forget in ["DELETE FROM weir_map", "DROP TABLE weir_map"] {
        postgres.query("postgres", forget).unwrap();
        let (told, code) = refusal(&[&first, &second]);
        assert!(told.contains("/postgres is a whole store, but was given as shard 1 of 2"), "{told}");
        assert_eq!(code, Some(2));
    }
    let server = Server::start(&first, &[]);
    assert_eq!(server.client().get("/kv/a").text(), "value");
}

#[test]
fn one_store_given_twice_is_refused() {
    let postgres = postgres();
    let by_name = postgres.url().replace("127.0.0.1", "localhost");
    let (told, code) = refusal(&[&postgres.url(), &by_name]);
    assert!(told.contains("is given twice") && told.lines().count() == 1, "{told}");
    assert_eq!(code, Some(2), "{told}");

    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("store").display());
    let output = weir()
        .args(["serve", "--listen", "127.0.0.1:0", "--lease-wait", "100ms"])
        .args(["--store", &url, "--store", &format!("{url}/")])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("holds the store") && told.contains("give no store twice"), "{told}");
}

#[test]
fn no_acknowledged_write_is_lost_when_a_server_over_two_shards_is_killed() {
    const ROUNDS: u64 = 6;
    let postgres = postgres();
    let second = second_database(&postgres);
    let stores = [postgres.url(), second];
    let stores = [stores[0].as_str(), stores[1].as_str()];
    let mut server = serve(&stores, &[]);
    let mut registers: Vec<Register> =
        (0..24).map(|i| Register::new(&format!("shards/{i}"), server.address)).collect();
    for round in 0..ROUNDS {
        let enough = 150 + 37 * round;
        std::thread::scope(|scope| {
            let (told, counted) = std::sync::mpsc::channel();
            for keys in registers.chunks_mut(3) {
                let told = told.clone();
                scope.spawn(move || {
                    // Nobody counts any more once the server is killed.
                    loop {
                        for register in keys.iter_mut() {
                            register.write().unwrap();
                            if told.send(()).is_err() {
                                return;
                            }
                        }
                    }
                });
            }
            assert_eq!(counted.iter().take(enough as usize).count(), enough as usize);
            server.kill();
            drop(counted);
        });
        server = serve(&stores, &[]);
        for register in &mut registers {
            register.moves_to(server.address);
            register.read_at_last().unwrap();
        }
    }
    let mut seen = Seen::default();
    registers.iter().for_each(|register| seen += register.seen);
    assert!(seen.acknowledged > ROUNDS * 100 && seen.unknown > 0, "{seen:?}");
    for database in ["postgres", "second"] {
        assert!(!keys_in(&postgres, database).is_empty(), "{database}");
    }
}

#[test]
fn a_lost_shard_leaves_the_other_alone() {
    let (mut first, second) = (postgres(), postgres());
    let server = serve(&[&first.url(), &second.url()], &[]);
    let mut client = server.client();
    let (lost, kept) = (keys_of(0).next().unwrap(), keys_of(1).take(3).collect::<Vec<_>>());
    let path = |key: &str| format!("/kv/{key}");
    for key in kept.iter().chain([&lost]) {
        assert_eq!(client.put(&path(key), b"before").status, 201);
    }
    first.stop();
    until("away", || client.get("/readyz").status == 503);
    let told = client.get("/readyz").text();
    assert_eq!(told, "shard 1 of 2 is unavailable; the server's log says why\n");
    for _ in 0..10 {
        let answer = client.put(&path(&lost), b"lost");
        assert_eq!((answer.status, answer.header("weir-outcome")), (503, Some("not-applied")));
        assert_eq!(client.get(&path(&lost)).status, 503, "nor is the cache believed");
        // The other's cache is as it was, and so is its store.
        assert_eq!(client.get(&path(&kept[0])).header("cache-status"), Some("weir; hit"));
        assert_eq!(client.put(&path(&kept[1]), b"after").status, 204);
    }
    let stats = client.stats();
    assert_eq!(stats["weir_store_up{shard=\"0\"}"], 0.0);
    assert_eq!(stats["weir_store_up{shard=\"1\"}"], 1.0);
    assert_eq!(stats["weir_cache_drops_total{shard=\"1\"}"], 0.0);
    assert_eq!(stats["weir_store_leases_total{shard=\"1\"}"], 1.0);
    first.restart().unwrap();
    until("back", || client.get("/readyz").status == 200);
    assert_eq!(client.get(&path(&lost)).text(), "before");
    assert_eq!(client.put(&path(&lost), b"again").status, 204);
}

/// Reads of batches waited for those of the other shard, and for as long as that took.
#[test]
fn a_shard_that_hangs_holds_up_no_batch_of_another() {
    const BATCHES: usize = 64;
    let postgres = postgres();
    let first = format!("{}?options=-c%20lock_timeout%3D1h", postgres.url());
    let second = second_database(&postgres);
    let stores = [first.as_str(), &second];
    let batch = |server: &Server, keys: &[String]| {
        let lines: String =
            keys.iter().map(|key| format!("{{\"op\":\"get\",\"key\":\"{key}\"}}\n")).collect();
        let mut client = server.client();
        let head =
            format!("POST /batch HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", lines.len());
        client.send(&[head.as_bytes(), lines.as_bytes()].concat()).unwrap();
        client
    };
    let (lost, kept): (Vec<String>, Vec<String>) =
        (keys_of(0).take(64 * BATCHES).collect(), keys_of(1).take(64).collect());
    for (timeout, is_refused) in [("60s", false), ("5s", true)] {
        let server = serve(&stores, &["--store-timeout", timeout]);
        let other = OtherProgram::begin(&postgres, "LOCK TABLE weir_kv");
        let mut hang: Vec<Client> = lost.chunks(64).map(|keys| batch(&server, keys)).collect();
        until("all are there", || server.client().stats()["weir_http_connections"].as_f64() >= Some(65.0));
        let answer = batch(&server, &kept).answer(false).unwrap().text();
        assert_eq!(answer.matches("\"absent\"").count(), 64, "{answer}");
        if !is_refused {
            assert!(!hang.iter_mut().any(Client::has_answer));
            drop(other);
        }
        let answers: String = hang.iter_mut().map(|client| client.answer(false).unwrap().text()).collect();
        assert_eq!(answers.contains("\"overloaded\""), is_refused, "{answers}");
    }
}

#[test]
fn stores_of_different_kinds_go_together() {
    let postgres = postgres();
    let directory = tempfile::tempdir().unwrap();
    let embedded = format!("file:{}", directory.path().join("store").display());
    let stores = [postgres.url(), embedded];
    let stores = [stores[0].as_str(), stores[1].as_str()];
    let keys: Vec<String> = (0..20).map(|i| format!("/kv/key-{i}")).collect();
    let put =
        |client: &mut Client| keys.iter().map(|key| client.put(key, key.as_bytes()).status).all(|s| s == 201);
    let server = serve(&stores, &[]);
    assert!(put(&mut server.client()));
    server.kill();
    let server = serve(&stores, &[]);
    let mut client = server.client();
    assert!(keys.iter().all(|key| client.get(key).text() == *key));
    server.kill();
    let (told, _) = refusal(&[stores[1], stores[0]]);
    assert!(told.contains("store is shard 2 of 2, but was given as shard 1 of 2"), "{told}");
}
