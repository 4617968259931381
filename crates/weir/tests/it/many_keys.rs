//! Lists and lifetimes of many keys while others write: each key is listed once, no value is read after its end or gone before it.

use crate::support::{Client, PATIENCE, Server, is_long, mariadb, postgres, until, weir};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Sends the lines in batches; each of them is written.
fn put_all(client: &mut Client, lines: impl Iterator<Item = Value>) {
    let lines: Vec<String> = lines.map(|line| format!("{line}\n")).collect();
    for some in lines.chunks(5000) {
        let answer = client.ask("POST", "/batch", &[], some.concat().as_bytes()).unwrap();
        assert!(answer.text().ends_with("\"failed\":0}\n"), "{}", answer.text());
    }
}

/// The peak of a process's memory since this was last asked, in MiB.
fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

/// All keys of a list, page by page.
fn listed(client: &mut Client, query: &str) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), String::new());
    loop {
        let lines = [("Accept", "application/x-ndjson")];
        let page = client.ask("GET", &format!("/kv?{query}{after}"), &lines, b"").unwrap();
        assert_eq!(page.status, 200, "{}", page.text());
        let mut next = None;
        for line in page.text().lines() {
            // By hand: there are many of them, and their keys have nothing to unescape.
            match line.split_once("\"key\":\"").and_then(|(_, rest)| rest.split_once('"')) {
                Some((key, _)) => keys.push(key.to_owned()),
                None => {
                    let end: Value = serde_json::from_str(line).unwrap();
                    next = Some(end["next"].as_str().map(str::to_owned));
                }
            }
        }
        match next.expect("a page has an end") {
            Some(next) => after = format!("&after={next}"),
            None => return keys,
        }
    }
}

/// Ends the writers also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Lists so many keys that are there throughout, while they are replaced and others come and go between them.
fn check_list(stores: &[&str], count: usize) {
    let more: Vec<&str> = stores[1..].iter().flat_map(|store| ["--store", store]).collect();
    let server = Server::start(stores[0], &[&["--cache-bytes", "16MiB"], &more[..]].concat());
    let key = |number: usize| format!("key/{number:08}");
    let value = "v".repeat(300);
    put_all(&mut server.client(), (0..count).map(|n| json!({"op": "put", "key": key(n), "value": value})));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = End(&is_over);
        let mut writer = server.client();
        let (is_over, value) = (&is_over, &value);
        scope.spawn(move || {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            while !is_over.load(SeqCst) {
                let number = random.next_u64() as usize % count;
                let lines = [
                    json!({"op": "put", "key": key(number), "value": value}),
                    json!({"op": "put", "key": key(number) + "/between", "value": value}),
                    json!({"op": "delete", "key": key(random.next_u64() as usize % count) + "/between"}),
                ];
                put_all(&mut writer, lines.into_iter());
            }
        });
        let mut client = server.client();
        let mut peaks = Vec::new();
        for query in ["limit=1000&values=true", "limit=1000&values=true", "limit=10000"] {
            let keys = listed(&mut client, query);
            assert!(keys.is_sorted_by(|one, next| one < next), "not in order, or twice");
            let stable: Vec<&String> = keys.iter().filter(|key| !key.ends_with("/between")).collect();
            assert!(
                stable.iter().copied().eq(&(0..count).map(key).collect::<Vec<_>>()),
                "{query}: not each key once"
            );
            peaks.push(peak(server.pid()));
        }
        // The second list takes no more than the first one, and both far less than what is listed.
        assert!(peaks[1] < peaks[0] + 30, "MiB: {peaks:?}");
    });
}

#[test]
fn a_list_has_each_key_once_while_others_write() {
    let place = tempfile::tempdir().unwrap();
    let count = if is_long() { 1_000_000 } else { 20_000 };
    check_list(&[&format!("file:{}/store", place.path().display())], count);
}

#[test]
fn a_list_of_a_database_has_each_key_once_while_others_write() {
    let count = if is_long() { 1_000_000 } else { 20_000 };
    let postgres = postgres();
    check_list(&[&postgres.url()], count);
    postgres.query("postgres", "CREATE DATABASE second").unwrap();
    postgres.query("postgres", "CREATE DATABASE third").unwrap();
    check_list(&[&postgres.url_of("second"), &postgres.url_of("third")], 20_000);
    check_list(&[&mariadb().url()], count / 2);
}

/// What is known of a key: its last write, and when it may have begun and ended.
#[derive(Clone, Copy)]
struct Written {
    round: u64,
    sent: Instant,
    acknowledged: Instant,
    /// `None`: for ever.
    lifetime: Option<Duration>,
}

/// Instants of the store are in whole milliseconds.
const ROUNDED: Duration = Duration::from_millis(2);

impl Written {
    fn after(round: u64, sent: Instant, secs: u64) -> Written {
        let lifetime = (secs > 0).then(|| Duration::from_secs(secs));
        Written { round, sent, acknowledged: Instant::now(), lifetime }
    }

    /// Whether an answer to a request that was sent at `sent` may say that the value is there, or absent.
    fn check(&self, is_there: bool, sent: Instant, how: &str) {
        let Some(lifetime) = self.lifetime else {
            return assert!(is_there, "{how}: gone, and it has no end");
        };
        if is_there {
            let late = sent.saturating_duration_since(self.acknowledged + lifetime);
            assert!(late <= ROUNDED, "{how}: there {late:?} after its end");
        } else {
            let early = (self.sent + lifetime).saturating_duration_since(Instant::now());
            assert!(early <= ROUNDED, "{how}: gone {early:?} before its end");
        }
    }
}

const PATHS: [&str; 8] =
    ["GET", "HEAD", "If-None-Match", "If-Match", "batch", "atomic batch", "list", "list of values"];

/// Whether `key` is there, by one of the paths; its value where the path tells it.
fn look(client: &mut Client, key: &str, path: &str) -> (bool, Option<String>) {
    let target = format!("/kv/{key}");
    let of_status = |status: u16| {
        assert!([200, 304, 404, 412].contains(&status), "{path}: {status}");
        status == 200 || status == 304
    };
    let get = json!({"op": "get", "key": key}).to_string();
    let in_lines = |text: &str| {
        let answer: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        answer["value"].as_str().map(str::to_owned)
    };
    match path {
        "GET" => {
            let answer = client.get(&target);
            let is_there = of_status(answer.status);
            (is_there, is_there.then(|| answer.text()))
        }
        "HEAD" => (of_status(client.ask("HEAD", &target, &[], b"").unwrap().status), None),
        "If-None-Match" | "If-Match" => {
            (of_status(client.ask("GET", &target, &[(path, "*")], b"").unwrap().status), None)
        }
        "batch" | "atomic batch" => {
            let route = if path == "batch" { "/batch" } else { "/batch?atomic=true" };
            let value = in_lines(&client.ask("POST", route, &[], get.as_bytes()).unwrap().text());
            (value.is_some(), value)
        }
        _ => {
            let values = path == "list of values";
            let page = client.get(&format!("/kv?prefix={key}&limit=1&values={values}"));
            let page: Value = serde_json::from_slice(&page.body).unwrap();
            let row = &page["keys"][0];
            (row.is_object(), row["value"].as_str().map(str::to_owned))
        }
    }
}

/// Writes so many keys with random lifetimes, and then reads and writes them on all paths until all have ended; how many rows the
/// store has is to be zero then.
fn check_lifetimes(store: &str, count: usize, rows_left: impl Fn(Server) -> u64) {
    let server = Server::start(store, &[]);
    let begun = Instant::now();
    let key = |number: usize| format!("k{number:07}/");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut keys: Vec<Mutex<Written>> = Vec::new();
    let mut client = server.client();
    for begin in (0..count).step_by(1000) {
        let lifetimes: Vec<u64> = (0..1000).map(|_| 1 + random.next_u64() % 4).collect();
        let line = |(at, secs): (usize, &u64)| json!({"op": "put", "key": key(begin + at), "value": "1", "ttl": secs});
        let sent = Instant::now();
        put_all(&mut client, lifetimes.iter().enumerate().map(line));
        keys.extend(lifetimes.iter().map(|secs| Mutex::new(Written::after(1, sent, *secs))));
    }
    let filled = begun.elapsed();
    // As long as most of them need to end, and as long again; longer where that was too short to meet both kinds.
    let until_then = Instant::now() + Duration::from_secs(if is_long() { 60 } else { 5 });
    let met = Mutex::new([0_u64; 2]);
    let is_over = || {
        let both = met.lock().unwrap().iter().all(|count| *count > 100);
        Instant::now() >= until_then + if both { Duration::ZERO } else { PATIENCE }
    };
    thread::scope(|scope| {
        for seed in 0..2 {
            let (mut client, keys, met, is_over) = (server.client(), &keys, &met, &is_over);
            scope.spawn(move || {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(100 + seed);
                while !is_over() {
                    // Half of the time one of few keys, which are met again soon.
                    let among = if random.next_u64() % 2 == 0 { count } else { 200 };
                    let number = random.next_u64() as usize % among;
                    // Of one key there is one request at a time, so that it is known what it may find.
                    let mut written = keys[number].lock().unwrap();
                    let sent = Instant::now();
                    let choice = random.next_u64() % 16;
                    if choice < 12 {
                        let path = PATHS[choice as usize % PATHS.len()];
                        let (is_there, value) = look(&mut client, &key(number), path);
                        written.check(is_there, sent, path);
                        assert!(
                            value.is_none_or(|value| value == written.round.to_string()),
                            "{path}: an old value"
                        );
                        met.lock().unwrap()[usize::from(is_there)] += 1;
                        continue;
                    }
                    let (secs, round) = (random.next_u64() % 4, written.round + 1);
                    let lifetime = secs.to_string();
                    let mut headers = if secs > 0 { vec![("TTL", lifetime.as_str())] } else { vec![] };
                    if choice >= 14 {
                        headers.push(("If-None-Match", "*"));
                    }
                    let body = round.to_string();
                    let made = client.ask("PUT", &format!("/kv/{}", key(number)), &headers, body.as_bytes());
                    let status = made.unwrap().status;
                    // Whether there was one before is a promise, too.
                    written.check(status != 201, sent, "PUT");
                    if status != 412 {
                        assert!([201, 204].contains(&status), "{status}");
                        *written = Written::after(round, sent, secs);
                    }
                }
            });
        }
    });
    let [absent, present] = *met.lock().unwrap();
    assert!(absent > 100 && present > 100, "{absent} absent, {present} present; filled in {filled:?}");
    // What has no end is there, and is the last value. Without it all end.
    for (number, written) in keys.iter().enumerate() {
        let written = written.lock().unwrap();
        if written.lifetime.is_none() {
            assert_eq!(client.get(&format!("/kv/{}", key(number))).text(), written.round.to_string());
            client.ask("DELETE", &format!("/kv/{}", key(number)), &[], b"").unwrap();
        }
    }
    until("all have ended", || listed(&mut client, "limit=10000").is_empty());
    assert_eq!(rows_left(server), 0);
}

/// Waits until a database has no rows.
fn rows_of(count: impl Fn() -> Vec<Vec<String>>) -> u64 {
    until("rows that have ended are removed", || count()[0][0] == "0");
    0
}

#[test]
fn no_value_of_the_embedded_store_outlives_its_end() {
    let place = tempfile::tempdir().unwrap();
    let store = format!("file:{}/store", place.path().display());
    let count = if is_long() { 1_000_000 } else { 20_000 };
    let copy = place.path().join("copy");
    check_lifetimes(&store, count, |_server| {
        // Its rows are in its files: a copy of them is counted.
        until("rows that have ended are removed", || {
            let copied = weir().args(["store", "backup", &store]).arg(&copy).output().unwrap();
            assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
            fs::remove_dir_all(&copy).unwrap();
            String::from_utf8_lossy(&copied.stdout).contains(", 0 rows ")
        });
        0
    });
}

#[test]
fn no_value_of_a_postgresql_outlives_its_end() {
    let postgres = postgres();
    let count = if is_long() { 1_000_000 } else { 20_000 };
    check_lifetimes(&postgres.url(), count, |_server| {
        rows_of(|| postgres.query("postgres", "SELECT count(*) FROM weir_kv").unwrap())
    });
}

#[test]
fn no_value_of_a_mariadb_outlives_its_end() {
    let mariadb = mariadb();
    let count = if is_long() { 1_000_000 } else { 20_000 };
    check_lifetimes(&mariadb.url(), count, |_server| {
        rows_of(|| mariadb.query("weir", "SELECT count(*) FROM weir_kv").unwrap())
    });
}
