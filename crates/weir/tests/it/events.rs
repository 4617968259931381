//! Events of keys: `/watch`, waiting for a key, and requests that are sent again.

use crate::support::{Answer, Client, Server, is_long, mariadb, postgres, until};
use lab_run::harness::DatabaseServer;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An event as it came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Event {
    kind: String,
    id: String,
    data: String,
}

impl Event {
    fn key(&self) -> String {
        let data: serde_json::Value = serde_json::from_str(&self.data).unwrap();
        data["key"].as_str().unwrap_or_default().to_owned()
    }

    /// As `put a`.
    fn shown(&self) -> String {
        format!("{} {}", self.kind, self.key())
    }
}

/// A client of `/watch`, as the HTML standard says.
struct Watcher {
    lines: BufReader<TcpStream>,
    last_id: String,
}

impl Watcher {
    /// Watches; `None` if the server is not there.
    fn try_start(address: SocketAddr, query: &str, last_id: &str) -> Option<Watcher> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let id = if last_id.is_empty() { String::new() } else { format!("Last-Event-ID: {last_id}\r\n") };
        let head = format!("GET /watch{query} HTTP/1.1\r\nHost: localhost\r\n{id}\r\n");
        (&stream).write_all(head.as_bytes()).ok()?;
        let mut watcher = Watcher { lines: BufReader::new(stream), last_id: last_id.to_owned() };
        let status = watcher.line()?;
        assert!(status.starts_with("HTTP/1.1 200"), "{status}");
        let mut fields = Vec::new();
        loop {
            match watcher.line()? {
                end if end.is_empty() => break,
                field => fields.push(field.to_ascii_lowercase()),
            }
        }
        assert!(fields.contains(&"content-type: text/event-stream".to_owned()), "{fields:?}");
        Some(watcher)
    }

    /// Watches, and has its first id.
    fn start(server: &Server, query: &str) -> Watcher {
        Watcher::after(server, query, "")
    }

    fn after(server: &Server, query: &str, last_id: &str) -> Watcher {
        let mut watcher = Watcher::try_start(server.address, query, last_id).unwrap();
        let first = watcher.message().unwrap();
        assert!(first.kind.is_empty() && !first.id.is_empty(), "{first:?}");
        watcher
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let bytes = self.lines.read_line(&mut line).ok()?;
        (bytes > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// What comes next, also an id alone.
    fn message(&mut self) -> Option<Event> {
        let mut event = Event::default();
        loop {
            let line = self.line()?;
            match line.split_once(": ") {
                _ if line.is_empty() => break,
                Some(("event", kind)) => event.kind = kind.to_owned(),
                Some(("id", id)) => event.id = id.to_owned(),
                Some(("data", data)) => event.data = data.to_owned(),
                _ => {}
            }
        }
        if !event.id.is_empty() {
            self.last_id = event.id.clone();
        }
        Some(event)
    }

    /// The next event; `None` at the end of the stream.
    fn next(&mut self) -> Option<Event> {
        loop {
            let message = self.message()?;
            if !message.kind.is_empty() {
                return Some(message);
            }
        }
    }

    fn take(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next().unwrap().shown()).collect()
    }
}

fn ask(client: &mut Client, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
    client.ask(method, path, fields, body).unwrap()
}

fn delete(client: &mut Client, path: &str) {
    assert_eq!(ask(client, "DELETE", path, &[], b"").status, 204);
}

/// An id kept where the other stores were when the client came, and the first store was sent in full before the others.
#[test]
fn an_id_says_how_far_all_stores_have_come_and_all_are_told_of_in_turn() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = ["a", "b"].map(|name| format!("file:{}/{name}", directory.path().display()));
    let server = Server::start(&first, &["--store", &second, "--event-log", "1h"]);
    let mut client = server.client();
    let mut watcher = Watcher::start(&server, "?prefix=watched");
    let start = watcher.last_id.clone();
    let parts = |id: &str| id.split('.').map(str::to_owned).collect::<Vec<_>>();
    for key in 0..20 {
        client.put(&format!("/kv/other-{key}"), b"value");
    }
    client.put("/kv/watched", b"value");
    let id = watcher.next().unwrap().id;
    assert!(parts(&start).iter().zip(parts(&id)).all(|(before, after)| *before != after), "{start} {id}");
    let lines = |key| format!("{{\"op\":\"put\",\"key\":\"watched behind {key}\",\"value\":\"\"}}\n");
    for from in (0..4000).step_by(500) {
        let batch: String = (from..from + 500).map(lines).collect();
        assert_eq!(ask(&mut client, "POST", "/batch", &[], batch.as_bytes()).status, 200);
    }
    // What a client gets that was away.
    let mut watcher = Watcher::after(&server, "?prefix=watched", &start);
    let ids: Vec<Vec<String>> = (0..1500).map(|_| parts(&watcher.next().unwrap().id)).collect();
    assert!((0..2).all(|store| ids.iter().any(|id| id[store] != ids[0][store])));
}

#[test]
fn a_watcher_is_told_of_its_keys_in_their_order_on_every_store() {
    let (postgres, mariadb) = (postgres(), mariadb());
    postgres.query("postgres", "CREATE DATABASE second").unwrap();
    postgres.query("postgres", "CREATE DATABASE third").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let embedded = format!("file:{}/store", directory.path().display());
    let third = postgres.url_of("third");
    for (store, more) in [
        ("memory:", vec![]),
        (&embedded, vec![]),
        (&embedded, vec!["--event-log", "1h"]),
        (&postgres.url(), vec!["--event-log", "1h"]),
        (&mariadb.url(), vec!["--event-log", "1h"]),
        (&postgres.url_of("second"), vec!["--store", &third, "--event-log", "1h"]),
    ] {
        let server = Server::start(store, &more);
        let mut client = server.client();
        let mut watcher = Watcher::start(&server, "?prefix=a%2F");
        let etag = client.put("/kv/a/1", b"1").header("etag").unwrap().to_owned();
        client.put("/kv/b/1", b"1");
        client.put("/kv/a/1", b"2");
        delete(&mut client, "/kv/a/1");
        // What is not there is not removed.
        delete(&mut client, "/kv/a/1");
        assert_eq!(ask(&mut client, "PUT", "/kv/a/1", &[("TTL", "1")], b"").status, 201);
        let first = watcher.next().unwrap();
        assert_eq!(first.shown(), "put a/1", "{store}");
        assert!(
            first.data.contains(&format!("\"etag\":\"{}\"", etag.replace('"', "\\\""))),
            "{first:?} {etag}"
        );
        let rest = watcher.take(4);
        assert_eq!(rest, ["put a/1", "delete a/1", "put a/1", "expire a/1"], "{store}");
        // From behind the first one.
        assert_eq!(Watcher::after(&server, "?prefix=a/", &first.id).take(4), rest, "{store}");
        let since = format!("?prefix=a/&since={}", first.id);
        assert_eq!(Watcher::start(&server, &since).take(1), ["put a/1"]);
        // Atomic batches are seen, too.
        if more.first() != Some(&"--store") {
            let lines =
                b"{\"op\":\"put\",\"key\":\"a/2\",\"value\":\"\"}\n{\"op\":\"delete\",\"key\":\"a/2\"}\n";
            let answer = ask(&mut client, "POST", "/batch?atomic=true", &[], lines);
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(watcher.take(2), ["put a/2", "delete a/2"], "{store}");
        }
    }
}

/// What a server with other writers wrote was not told, and no reset said so.
#[test]
fn the_log_is_not_whole_once_others_may_have_written() {
    let database = postgres();
    database.ask("CREATE TABLE settings (name text PRIMARY KEY, body text)").unwrap();
    let url = crate::user_table::url_of(&database, "settings");
    let log = ["--event-log", "1h"];
    let server = Server::start(&url, &log);
    let last_id = Watcher::start(&server, "").last_id;
    server.client().put("/kv/a", b"1");
    server.kill();
    let server = Server::start(&url, &log);
    assert_eq!(Watcher::after(&server, "", &last_id).take(1), ["put a"]);
    server.kill();
    let server = Server::start(&url, &["--foreign-writers"]);
    server.client().put("/kv/b", b"1");
    server.kill();
    let server = Server::start(&url, &log);
    assert_eq!(Watcher::after(&server, "", &last_id).next().unwrap().kind, "reset");
}

#[test]
fn wrong_watches_are_refused() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    for (path, code) in [
        ("/watch?since=x", "bad_cursor"),
        ("/watch?since=1.2", "bad_cursor"),
        ("/watch?prefx=a", "bad_query"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.problem()["code"].as_str()), (400, Some(code)), "{path}");
    }
    assert_eq!(ask(&mut client, "POST", "/watch", &[], b"").status, 405);
    // An id of another store, or of another start of this one.
    let mut lost = Watcher::after(&server, "", "123456789");
    assert_eq!(lost.next().unwrap().kind, "reset");
    // A watch ends with the server.
    server.terminate();
    assert_eq!(lost.next(), None);
}

/// Another server may write: a stream that goes on would say that nothing happens.
#[test]
fn a_server_that_does_not_own_its_store_tells_no_events() {
    let mut postgres = postgres();
    let flags = ["--standby", "--event-log", "1h"];
    let first = Server::start(&postgres.url(), &flags);
    let second = Server::start(&postgres.url(), &flags);
    let mut watcher = Watcher::start(&first, "");
    assert_eq!(first.client().put("/kv/a", b"1").status, 201);
    assert_eq!(watcher.take(1), ["put a"]);
    let refused = ask(&mut second.client(), "GET", "/watch", &[("Last-Event-ID", &watcher.last_id)], b"");
    assert_eq!((refused.status, &refused.problem()["code"]), (503, &"standby".into()), "{refused:?}");

    // The client goes on where it was.
    first.terminate();
    until("the second server writes", || second.client().put("/kv/b", b"1").status == 201);
    let mut watcher = Watcher::after(&second, "", &watcher.last_id);
    assert_eq!(watcher.take(1), ["put b"]);
    postgres.stop();
    // To its end, not to the time limit of the client.
    watcher.lines.read_to_string(&mut String::new()).unwrap();
    assert_eq!(ask(&mut second.client(), "GET", "/watch", &[], b"").status, 503);
}

/// Nobody has watched before, so a write that began earlier has no event.
#[test]
fn a_key_that_is_being_written_is_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().join("data").display());
    let server = Server::start(&store, &["--lab", "--inject", "flush=3s"]);
    let began = Instant::now();
    let mut writer = server.client();
    writer.send(b"PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n1").unwrap();
    let waited = ask(&mut server.client(), "GET", "/kv/a", &[("Prefer", "wait=60")], b"");
    assert_eq!((waited.status, waited.text().as_str()), (200, "1"));
    assert!(began.elapsed() < Duration::from_secs(50));
}

/// The server looks at the key, then.
#[test]
fn a_key_is_waited_for_where_there_are_no_events() {
    let server = Server::start("memory:", &["--lab", "--batching", "off", "--cache-entries", "0"]);
    let waiting = {
        let mut client = server.client();
        std::thread::spawn(move || ask(&mut client, "GET", "/kv/a", &[("Prefer", "wait=60")], b""))
    };
    let mut client = server.client();
    let read = "weir_store_batch_size_count{operation=\"read\"}";
    until("it has looked", || client.stats()[read].as_f64() >= Some(1.0));
    assert_eq!(client.put("/kv/a", b"1").status, 201);
    assert_eq!(waiting.join().unwrap().text(), "1");
    assert_eq!(ask(&mut client, "GET", "/kv/b", &[("Prefer", "wait=1")], b"").status, 404);
    // What it waits is not time of the store.
    let etag = client.get("/kv/a").header("etag").unwrap().to_owned();
    let fields = [("Prefer", "wait=1"), ("If-None-Match", &*etag), ("Weir-Timing", "1")];
    let unchanged = ask(&mut client, "GET", "/kv/a", &fields, b"");
    let store = unchanged.header("server-timing").unwrap().split("store;dur=").nth(1).unwrap();
    assert!(unchanged.status == 304 && store.parse::<f64>().unwrap() < 1000.0, "{unchanged:?}");
}

#[test]
fn a_key_is_waited_for() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    let etag = client.put("/kv/a", b"1").header("etag").unwrap().to_owned();
    let wait = |path: &str, etag: Option<&str>, seconds: &str| {
        let mut client = server.client();
        let prefer = format!("wait={seconds}");
        let mut fields = vec![("Prefer", prefer.as_str())];
        fields.extend(etag.map(|etag| ("If-None-Match", etag)));
        let answer = ask(&mut client, "GET", path, &fields, b"");
        (answer.status, answer.text())
    };
    // At once, if it is another already, or for a wait of no time.
    assert_eq!(wait("/kv/a", Some("\"1\""), "30"), (200, "1".to_owned()));
    assert_eq!(wait("/kv/a", Some(&etag), "0").0, 304);
    assert_eq!(wait("/kv/a", Some(&etag), "1").0, 304);
    assert_eq!(wait("/kv/none", Some(&etag), "30").0, 404);
    let waiting = |count: usize| {
        let mut client = server.client();
        until("clients wait", move || client.stats()["weir_http_connections"].as_f64() >= Some(count as f64));
    };
    std::thread::scope(|scope| {
        let changed = scope.spawn(|| wait("/kv/a", Some(&etag), "30"));
        let created = scope.spawn(|| wait("/kv/b", None, "30"));
        let removed = scope.spawn(|| wait("/kv/a", Some(&etag), "30"));
        waiting(4);
        client.put("/kv/b", b"new");
        client.put("/kv/ab", b"another");
        delete(&mut client, "/kv/a");
        assert_eq!(created.join().unwrap(), (200, "new".to_owned()));
        assert_eq!(changed.join().unwrap().0, 404);
        assert_eq!(removed.join().unwrap().0, 404);
    });
}

/// One that had sent more kept its connection until the end of the wait.
#[test]
fn a_client_that_waits_and_leaves_is_seen_whatever_it_sent() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    let mut until_open = |count: f64| {
        until("connections open", || client.stats()["weir_http_connections"].as_f64() == Some(count));
    };
    let waiting = |behind: &[u8]| {
        let mut waiting = server.client();
        let get = b"GET /kv/a HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=300\r\n\r\n";
        waiting.send(&[get, behind].concat()).unwrap();
        waiting
    };
    // The last is more than a head: the wait ends, so that the rest can be read.
    for bytes in [1, 15 << 10, 40 << 10] {
        let gone = waiting(&vec![b'G'; bytes]);
        until_open(2.0);
        drop(gone);
        until_open(1.0);
    }
    let mut answered = waiting(b"GET /kv/b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    until_open(2.0);
    server.client().put("/kv/a", b"1");
    assert_eq!(answered.answer(false).unwrap().text(), "1");
    assert_eq!(answered.answer(false).unwrap().status, 404, "the request behind it");
}

#[test]
fn a_request_that_is_sent_again_takes_effect_once() {
    let (postgres, mariadb) = (postgres(), mariadb());
    let directory = tempfile::tempdir().unwrap();
    let embedded = format!("file:{}/store", directory.path().display());
    // A table that was there, in a database of its own.
    let with_table = |database: &DatabaseServer, columns: &str| {
        database.ask("CREATE DATABASE shop").unwrap();
        database.query("shop", &format!("CREATE TABLE things ({columns})")).unwrap();
        format!("{}?table=things&key=name&value=body", database.url_of("shop"))
    };
    let table = with_table(&postgres, "name text PRIMARY KEY, body text");
    let mariadb_table = with_table(&mariadb, "name VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT");
    for store in ["memory:", &embedded, &postgres.url(), &mariadb.url(), &table, &mariadb_table] {
        let server = Server::start(store, &[]);
        let mut client = server.client();
        let fields = [("Idempotency-Key", "order-1"), ("If-None-Match", "*")];
        let first = ask(&mut client, "PUT", "/kv/a", &fields, b"1");
        let etag = first.header("etag").unwrap().to_owned();
        assert_eq!(first.status, 201, "{}", first.text());
        client.put("/kv/a", b"2");
        let again = |client: &mut Client| {
            let again = ask(client, "PUT", "/kv/a", &fields, b"1");
            assert_eq!((again.status, again.header("etag")), (201, Some(etag.as_str())), "{store}");
            assert_eq!(client.get("/kv/a").text(), "2");
            let other = ask(client, "PUT", "/kv/a", &fields, b"3");
            assert_eq!(
                (other.status, other.header("weir-outcome")),
                (422, Some("not-applied")),
                "{}",
                other.text()
            );
            assert_eq!(other.problem()["code"], "idempotency_key_reused");
        };
        again(&mut client);
        // It belongs to its key.
        assert_eq!(ask(&mut client, "PUT", "/kv/b", &fields, b"1").status, 201);
        let removal = [("Idempotency-Key", "removal")];
        assert_eq!(ask(&mut client, "DELETE", "/kv/b", &removal, b"").status, 204);
        client.put("/kv/b", b"new");
        assert_eq!(ask(&mut client, "DELETE", "/kv/b", &removal, b"").status, 204);
        assert_eq!(client.get("/kv/b").text(), "new");
        // What did not take effect may be tried again.
        let late = [("Idempotency-Key", "late"), ("If-None-Match", "*")];
        assert_eq!(ask(&mut client, "PUT", "/kv/b", &late, b"1").status, 412);
        delete(&mut client, "/kv/b");
        assert_eq!(ask(&mut client, "PUT", "/kv/b", &late, b"1").status, 201);
        // Each line of a batch has its own, also where two are alike.
        let lines = "{\"op\":\"put\",\"key\":\"c\",\"value\":\"1\"}\n{\"op\":\"delete\",\"key\":\"c\"}\n{\"op\":\"put\",\"key\":\"c\",\"value\":\"1\"}\n";
        let batch = |client: &mut Client, lines: &str| {
            ask(client, "POST", "/batch", &[("Idempotency-Key", "batch")], lines.as_bytes()).text()
        };
        let first = batch(&mut client, lines);
        assert!(first.ends_with("{\"done\":3,\"failed\":0}\n"), "{store}: {first}");
        client.put("/kv/c", b"new");
        let batch_again = |client: &mut Client| {
            assert_eq!(batch(client, lines), first, "{store}");
            let other = batch(client, &lines.replace("value\":\"1", "value\":\"2"));
            assert_eq!(other.matches("idempotency_key_reused").count(), 3, "{store}: {other}");
            // In other places, too.
            let other = batch(client, &format!("{{\"op\":\"get\",\"key\":\"c\"}}\n{lines}"));
            assert_eq!(other.matches("idempotency_key_reused").count(), 3, "{store}: {other}");
            assert_eq!(client.get("/kv/c").text(), "new", "{store}");
        };
        batch_again(&mut client);
        if store != "memory:" {
            server.kill();
            let server = Server::start(store, &[]);
            again(&mut server.client());
            batch_again(&mut server.client());
        }
    }
}

/// Kills the server again and again under load; of each write that was acknowledged there is one event, and in each key's
/// order. Returns how many events there were.
fn events_over_kills(store: &str, kills: usize, writers: usize) -> usize {
    // Every fifth write is a DELETE, and each key has some.
    const KEYS: usize = 21;
    let flags = ["--event-log", "1h"];
    let server = Server::start(store, &flags);
    let address = Arc::new(Mutex::new(server.address));
    let done = Arc::new(AtomicBool::new(false));
    let written = Arc::new(AtomicUsize::new(0));
    // What is acknowledged, by key.
    let writer = |number: usize| {
        let (address, done) = (Arc::clone(&address), Arc::clone(&done));
        let written = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut acknowledged: Vec<(String, Option<String>)> = Vec::new();
            // Keys that have a value: a DELETE of another one may be no event.
            let mut present = BTreeSet::new();
            let mut client = None;
            let mut count = 0;
            while !done.load(Relaxed) {
                let at = *address.lock().unwrap();
                if client.is_none() {
                    client = Client::connect(at).ok();
                }
                let Some(open) = client.as_mut() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                count += 1;
                // A key has one writer, so its acknowledged versions have an order.
                let key = format!("w{number}-{}", count % KEYS);
                let is_delete = count.is_multiple_of(5);
                let was_present = present.remove(&key);
                let method = if is_delete { "DELETE" } else { "PUT" };
                match open.ask(method, &format!("/kv/{key}"), &[], if is_delete { b"" } else { b"x" }) {
                    Ok(answer) if matches!(answer.status, 201 | 204) => {
                        written.fetch_add(1, Relaxed);
                        if !is_delete {
                            present.insert(key.clone());
                        }
                        if !is_delete || was_present {
                            acknowledged.push((key, answer.header("etag").map(str::to_owned)));
                        }
                    }
                    Ok(_) => {}
                    Err(_) => client = None,
                }
            }
            acknowledged
        })
    };
    let mut watcher = Watcher::start(&server, "");
    let writers: Vec<_> = (0..writers).map(writer).collect();
    let watching = {
        let (address, done) = (Arc::clone(&address), Arc::clone(&done));
        std::thread::spawn(move || {
            let mut events = Vec::new();
            loop {
                match watcher.next() {
                    Some(event) => {
                        if event.key() == "end" {
                            return events;
                        }
                        events.push(event);
                    }
                    // The server is gone: go on where it was.
                    None => loop {
                        assert!(!done.load(Relaxed) || !events.is_empty());
                        let at = *address.lock().unwrap();
                        if let Some(next) = Watcher::try_start(at, "", &watcher.last_id) {
                            watcher = next;
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(1));
                    },
                }
            }
        })
    };
    let mut server = server;
    let mut client = server.client();
    for _ in 0..kills {
        // Some writes in every life.
        let version = |client: &mut Client| client.get("/kv/w0-1").header("etag").map(str::to_owned);
        let before = version(&mut client);
        until("a write", || version(&mut client) != before);
        let enough = written.load(Relaxed) + if is_long() { 10_000 } else { 100 };
        until("more writes", || written.load(Relaxed) >= enough);
        server.kill();
        server = Server::start(store, &flags);
        *address.lock().unwrap() = server.address;
        client = server.client();
    }
    done.store(true, Relaxed);
    // The ETags of its writes; `None` of a DELETE.
    let mut acknowledged: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    for writer in writers {
        for (key, etag) in writer.join().unwrap() {
            acknowledged.entry(key).or_default().push(etag);
        }
    }
    client.put("/kv/end", b"");
    let events = watching.join().unwrap();
    let count = events.len();
    let deletes = events.iter().filter(|event| event.kind == "delete").count();
    assert!(deletes > count / 20, "{deletes} of {count}");
    let mut told: BTreeMap<String, Vec<Option<String>>> = BTreeMap::new();
    for event in &events {
        let data: serde_json::Value = serde_json::from_str(&event.data).unwrap();
        let etag = data["etag"].as_str().map(str::to_owned);
        assert_eq!(event.kind, if etag.is_some() { "put" } else { "delete" });
        told.entry(event.key()).or_default().push(etag);
    }
    for (key, etags) in &acknowledged {
        let told = &told[key];
        let number = |etag: &String| etag.trim_matches('"').parse::<u64>().unwrap();
        let numbers = told.iter().flatten().map(number);
        assert!(numbers.is_sorted_by(|one, next| one < next), "{key} is out of order");
        let mut rest = told.iter();
        for etag in etags {
            assert!(rest.any(|event| event == etag), "{key} {etag:?} was acknowledged, and is no event");
        }
    }
    // The last event of a key is what is stored.
    for (key, etags) in &told {
        let answer = client.get(&format!("/kv/{key}"));
        assert_eq!(answer.header("etag"), etags.last().unwrap().as_deref(), "{key}");
    }
    count
}

#[test]
fn no_event_is_lost_or_out_of_order_when_the_embedded_server_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}/store", directory.path().display());
    let count = events_over_kills(&store, if is_long() { 100 } else { 5 }, 16);
    assert!(count >= if is_long() { 1_000_000 } else { 500 }, "{count}");
}

#[test]
fn no_event_is_lost_or_out_of_order_when_the_server_over_postgres_is_killed() {
    let postgres = postgres();
    let count = events_over_kills(&postgres.url(), if is_long() { 100 } else { 3 }, 16);
    assert!(count >= if is_long() { 1_000_000 } else { 300 }, "{count}");
}

#[test]
fn no_event_is_lost_or_out_of_order_when_the_server_over_mariadb_is_killed() {
    let mariadb = mariadb();
    let count = events_over_kills(&mariadb.url(), if is_long() { 20 } else { 3 }, 16);
    assert!(count >= if is_long() { 200_000 } else { 300 }, "{count}");
}
