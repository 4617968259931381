//! Atomic batches beside single requests: every key stays linearizable, and no batch is seen in part.

use crate::support::{Answer, Client, Server, is_long, mariadb, postgres, until};
use lab_run::harness::DatabaseServer;
use load::linearizability::{Action, Call, NEVER, Outcome, Value, check};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::{Value as Json, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const CLIENTS: u32 = 12;
/// Keys of single requests and of batches; and two that only batches write, always both.
const KEYS: u64 = 5;
const PAIR: [u64; 2] = [100, 101];

struct AtomicClient {
    client: Client,
    number: u32,
    written: u64,
    begin: Instant,
    calls: Vec<Call>,
}

impl AtomicClient {
    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn value(&mut self) -> Value {
        self.written += 1;
        Value::written(self.number, self.written)
    }

    fn record(&mut self, invoked: u64, key: u64, (action, value, outcome): (Action, Value, Outcome)) {
        let returned = if outcome == Outcome::Unknown { NEVER } else { self.now() };
        self.calls.push(Call { key, client: self.number, invoked, returned, action, value, outcome });
    }

    fn single(&mut self, key: u64, kind: u64) {
        let path = format!("/kv/key{key}");
        let invoked = self.now();
        let (action, value, answer) = match kind {
            0 => (Action::Get, Value::ABSENT, self.client.get(&path)),
            1 => {
                let value = self.value();
                (Action::Write, value, self.client.put(&path, value.0.to_string().as_bytes()))
            }
            _ => (Action::Write, Value::ABSENT, self.client.ask("DELETE", &path, &[], b"").unwrap()),
        };
        let found = if action == Action::Get { value_of(&answer) } else { value };
        self.record(invoked, key, (action, found, outcome_of(&answer)));
    }

    /// A batch of `lines`, each with its key and what it does; the values that its gets found.
    fn batch(&mut self, lines: &[(u64, Action, Value)]) -> Vec<Value> {
        let text: String = lines
            .iter()
            .map(|(key, action, value)| {
                let mut line = match (action, *value) {
                    (Action::Get, _) => json!({ "op": "get", "key": format!("key{key}") }),
                    (_, Value::ABSENT) => json!({ "op": "delete", "key": format!("key{key}") }),
                    (_, Value(value)) => {
                        json!({ "op": "put", "key": format!("key{key}"), "value": value.to_string() })
                    }
                };
                if *action == Action::WriteIf(Value::ABSENT) {
                    line["if_none_match"] = "*".into();
                }
                format!("{line}\n")
            })
            .collect();
        let invoked = self.now();
        let answer = self.client.ask("POST", "/batch?atomic=true", &[], text.as_bytes()).unwrap();
        let failed = (answer.status == 412).then(|| {
            let problem = answer.problem();
            let detail = problem["detail"].as_str().unwrap();
            let line = detail.split("line ").nth(1).and_then(|rest| rest.split([' ', ':', ',']).next());
            line.and_then(|line| line.parse::<usize>().ok()).unwrap_or_else(|| panic!("{detail}")) - 1
        });
        let text = answer.text();
        let mut answers = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        let mut found = Vec::new();
        for (index, &(key, action, value)) in lines.iter().enumerate() {
            let outcome = match failed {
                Some(failed) if failed == index => Outcome::PreconditionFailed,
                Some(_) => Outcome::NotApplied,
                None => outcome_of(&answer),
            };
            let value = match (action, outcome) {
                (Action::Get, Outcome::Done) => {
                    let value =
                        answers.next().unwrap()["value"].as_str().map_or(0, |text| text.parse().unwrap());
                    found.push(Value(value));
                    Value(value)
                }
                (_, Outcome::Done) => {
                    answers.next();
                    value
                }
                _ => value,
            };
            // A read that failed says nothing.
            if action != Action::Get || outcome == Outcome::Done {
                self.record(invoked, key, (action, value, outcome));
            }
        }
        found
    }
}

fn outcome_of(answer: &Answer) -> Outcome {
    match answer.status {
        200 | 201 | 204 | 404 => Outcome::Done,
        412 => Outcome::PreconditionFailed,
        _ if answer.header("weir-outcome") == Some("unknown") => Outcome::Unknown,
        _ => Outcome::NotApplied,
    }
}

fn value_of(answer: &Answer) -> Value {
    if answer.status == 404 { Value::ABSENT } else { Value(answer.text().parse().unwrap()) }
}

fn check_store(store: &str) {
    let server = Server::start(store, &[]);
    let begin = Instant::now();
    let operations = if is_long() { 20_000 } else { 200 };
    let clients: Vec<_> = (1..=CLIENTS)
        .map(|number| {
            let client = server.client();
            std::thread::spawn(move || {
                let mut client = AtomicClient { client, number, written: 0, begin, calls: Vec::new() };
                let mut random = Xoshiro256PlusPlus::seed_from_u64(u64::from(number));
                for _ in 0..operations {
                    let mut below = |most: u64| random.next_u64() % most;
                    let (one, other) = (below(KEYS), below(KEYS - 1));
                    let other = (one + 1 + other) % KEYS;
                    match below(10) {
                        0..4 => client.single(one, below(3)),
                        4 => drop(
                            client.batch(&[(one, Action::Get, Value(1)), (other, Action::Get, Value(1))]),
                        ),
                        5 => {
                            let value = client.value();
                            client.batch(&[
                                (one, Action::Write, Value::ABSENT),
                                (other, Action::Write, value),
                                (other, Action::Get, Value(1)),
                            ]);
                        }
                        6 | 7 => {
                            let (first, second) = (client.value(), client.value());
                            client.batch(&[
                                (other, Action::Write, first),
                                (one, Action::WriteIf(Value::ABSENT), second),
                            ]);
                        }
                        8 => {
                            let value = client.value();
                            client.batch(&PAIR.map(|key| (key, Action::Write, value)));
                        }
                        _ => {
                            let pair = client.batch(&PAIR.map(|key| (key, Action::Get, Value(1))));
                            // It is empty if the batch failed.
                            assert!(matches!(pair.len(), 0 | 2), "{pair:?}");
                            assert!(pair.first() == pair.last(), "a batch was seen in part: {pair:?}");
                        }
                    }
                }
                client.calls
            })
        })
        .collect();
    let calls: Vec<Call> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    let report = check(calls, |_| Some(Value::ABSENT), |key| format!("key{key}"));
    let asked = u64::from(CLIENTS) * operations;
    assert!(report.operations > asked && report.done > asked / 2, "{store}: {report:?}");
    assert!(report.precondition_failed > 0, "{store}: {report:?}");
    assert_eq!((report.violations, report.not_decided), (0, 0), "{store}: {}", report.history.join("\n"));
}

#[test]
fn atomic_batches_keep_every_key_linearizable() {
    let directory = tempfile::tempdir().unwrap();
    let (postgres, mariadb) = (postgres(), mariadb());
    let embedded = format!("file:{}/store", directory.path().display());
    for store in ["memory:", &embedded, &postgres.url(), &mariadb.url()] {
        check_store(store);
    }
}

/// Over a database all of them were read, whatever memory that took.
#[test]
fn a_batch_of_rows_that_are_too_large_together_is_refused_by_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let (postgres, mariadb) = (postgres(), mariadb());
    let with_table = |database: &DatabaseServer, columns: &str| {
        database.ask("CREATE DATABASE shop").unwrap();
        database.query("shop", &format!("CREATE TABLE things ({columns})")).unwrap();
        format!("{}?table=things&key=name&value=body", database.url_of("shop"))
    };
    for store in [
        "memory:",
        &format!("file:{}/store", directory.path().display()),
        &postgres.url(),
        &mariadb.url(),
        &with_table(&postgres, "name bytea PRIMARY KEY, body bytea"),
        &with_table(&mariadb, "name VARBINARY(9) PRIMARY KEY, body LONGBLOB"),
    ] {
        let server = Server::start(store, &[]);
        let mut client = server.client();
        for key in 0..12 {
            assert_eq!(client.put(&format!("/kv/{key}"), &vec![7; 6 << 20]).status, 201, "{store}");
        }
        let lines: String = (0..12).map(|key| format!("{{\"op\":\"get\",\"key\":\"{key}\"}}\n")).collect();
        let answer = client.ask("POST", "/batch?atomic=true", &[], lines.as_bytes()).unwrap();
        assert_eq!((answer.status, &answer.problem()["code"]), (400, &"unfit".into()), "{store}");
    }
}

/// Kills the server again and again while clients write both keys of a pair; after each restart both have the same value.
fn pairs_over_kills(store: &str) {
    let (kills, enough) = if is_long() { (50, 1000) } else { (5, 100) };
    let mut server = Server::start(store, &[]);
    for life in 0..kills {
        let (address, written) = (server.address, AtomicU64::new(0));
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let written = &written;
                scope.spawn(move || {
                    let mut client = Client::connect(address).unwrap();
                    for count in 0.. {
                        let value = format!("{life} {number} {count}");
                        // So many keys between the two that without atomic=true most kills would part them.
                        let keys = [PAIR[0]].into_iter().chain(200..400).chain([PAIR[1]]);
                        let line = |key| json!({ "op": "put", "key": format!("key{key}"), "value": value });
                        let lines: String = keys.map(|key: u64| format!("{}\n", line(key))).collect();
                        match client.ask("POST", "/batch?atomic=true", &[], lines.as_bytes()) {
                            Ok(answer) if answer.status == 200 => drop(written.fetch_add(1, Relaxed)),
                            Ok(_) => {}
                            // The server is gone.
                            Err(_) => return,
                        }
                    }
                });
            }
            until("pairs are written", || written.load(Relaxed) >= enough);
            server.kill();
        });
        server = Server::start(store, &[]);
        let mut client = server.client();
        let [one, other] = PAIR.map(|key| client.get(&format!("/kv/key{key}")).text());
        assert_eq!(one, other, "{store}: a batch was done in part");
        assert!(one.starts_with(&format!("{life} ")), "{store}: acknowledged batches are lost: {one}");
    }
}

/// To the lines behind it as to anybody later.
#[test]
fn a_value_that_has_ended_before_it_is_written_is_absent() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    for (key, query) in [("a", ""), ("b", "?atomic=true")] {
        let lines = [
            json!({ "op": "put", "key": key, "value": "1", "expires": "2020-01-01T00:00:00Z" }),
            json!({ "op": "get", "key": key }),
            json!({ "op": "put", "key": key, "value": "2", "if_none_match": "*" }),
            json!({ "op": "get", "key": key }),
        ];
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let answer = client.ask("POST", &format!("/batch{query}"), &[], text.as_bytes()).unwrap();
        let status = |line: &str| serde_json::from_str::<Json>(line).unwrap()["status"].as_u64();
        let said: Vec<_> = answer.text().lines().take(4).map(status).collect();
        assert_eq!(said, [Some(201), Some(404), Some(201), Some(200)], "{query}: {answer:?}");
    }
}

#[test]
fn no_kill_leaves_a_part_of_an_atomic_batch() {
    let directory = tempfile::tempdir().unwrap();
    pairs_over_kills(&format!("file:{}/store", directory.path().display()));
    pairs_over_kills(&postgres().url());
}
