//! What is acknowledged is there afterwards: servers killed and databases stopped under load.

use crate::register::{Register, Seen};
use crate::support::{Server, is_long, mariadb, postgres, until};
use lab_run::harness::DatabaseServer;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const WRITERS: usize = 8;
const KEYS_PER_WRITER: usize = 4;

fn registers(server: &Server) -> Vec<Vec<Register>> {
    let name = |writer, key| format!("{writer}/{key}");
    (0..WRITERS)
        .map(|writer| {
            (0..KEYS_PER_WRITER).map(|key| Register::new(&name(writer, key), server.address)).collect()
        })
        .collect()
}

/// Ends the threads of a scope, also where a test fails: the scope waits for them.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes everywhere at once and kills the server in the middle of it.
fn write_until_killed(server: Server, registers: &mut [Vec<Register>], round: usize) {
    // Each round ends elsewhere; what the server is doing at that moment is chance.
    let enough = 150 + 37 * round as u64;
    let acknowledged = AtomicU64::new(0);
    let killed = AtomicBool::new(false);
    thread::scope(|scope| {
        for keys in registers.iter_mut() {
            scope.spawn(|| {
                'writing: loop {
                    for register in keys.iter_mut() {
                        if killed.load(Ordering::Relaxed) {
                            break 'writing;
                        }
                        let before = register.seen.acknowledged;
                        register.write().unwrap();
                        acknowledged.fetch_add(register.seen.acknowledged - before, Ordering::Relaxed);
                    }
                }
            });
        }
        let _ends = Ends(&killed);
        until("enough is acknowledged", || acknowledged.load(Ordering::Relaxed) >= enough);
        server.kill();
    });
}

/// Kills servers over one store, at most until this many keys lost an acknowledged write; how many did.
fn lost_keys(store: &str, flags: &[&str], enough: usize) -> (usize, Seen) {
    let kills = if is_long() || enough < usize::MAX { 20 } else { 6 };
    let mut server = Server::start(store, flags);
    let mut registers = registers(&server);
    let mut lost = 0;
    let mut rounds = 0;
    while rounds < kills && lost < enough {
        write_until_killed(server, &mut registers, rounds);
        rounds += 1;
        server = Server::start(store, flags);
        for register in registers.iter_mut().flatten() {
            register.moves_to(server.address);
            if register.read_at_last().is_err() {
                lost += 1;
                register.believe();
            }
        }
    }
    let mut seen = Seen::default();
    registers.iter().flatten().for_each(|register| seen += register.seen);
    assert!(seen.acknowledged >= 150 * rounds as u64 && (seen.unknown > 0 || lost > 0), "{seen:?}");
    (lost, seen)
}

fn embedded() -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}", directory.path().join("store").display());
    (directory, url)
}

#[test]
fn no_acknowledged_write_is_lost_when_the_embedded_server_is_killed() {
    let (_directory, url) = embedded();
    assert_eq!(lost_keys(&url, &[], usize::MAX).0, 0);
}

#[test]
fn no_acknowledged_write_is_lost_when_the_server_over_postgres_is_killed() {
    let postgres = postgres();
    assert_eq!(lost_keys(&postgres.url(), &[], usize::MAX).0, 0);
}

#[test]
fn no_acknowledged_write_is_lost_when_the_server_over_mariadb_is_killed() {
    let mariadb = mariadb();
    assert_eq!(lost_keys(&mariadb.url(), &[], usize::MAX).0, 0);
}

/// The tests above can fail: a server that acknowledges before it commits is caught.
#[test]
fn a_server_that_acknowledges_too_early_is_seen_to_lose_writes() {
    let (_directory, url) = embedded();
    let (lost, seen) = lost_keys(&url, &["--acknowledge-early"], 1);
    assert!(lost > 0, "{seen:?}");
}

#[test]
fn a_postgres_stopped_and_started_under_load_gives_errors_but_never_a_wrong_value() {
    check_outages(postgres());
}

#[test]
fn a_mariadb_stopped_and_started_under_load_gives_errors_but_never_a_wrong_value() {
    check_outages(mariadb());
}

/// Stops a database, and kills it, while clients write and read; both times it comes back.
fn check_outages(mut database: DatabaseServer) {
    let server = Server::start(&database.url(), &[]);
    let mut registers = registers(&server);
    for stop_gently in [true, false] {
        let ended = AtomicBool::new(false);
        let (refused, acknowledged) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for keys in &mut registers {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        for register in keys.iter_mut() {
                            let before = register.seen;
                            register.write().unwrap();
                            register.read().unwrap();
                            let now = register.seen;
                            acknowledged.fetch_add(now.acknowledged - before.acknowledged, Ordering::Relaxed);
                            refused.fetch_add(now.not_applied - before.not_applied, Ordering::Relaxed);
                        }
                    }
                });
            }
            let _ends = Ends(&ended);
            let wait_for = |counter: &AtomicU64, more: u64| {
                let enough = counter.load(Ordering::Relaxed) + more;
                until("service resumes", || counter.load(Ordering::Relaxed) >= enough);
            };
            wait_for(&acknowledged, 200);
            if stop_gently {
                database.stop();
            } else {
                database.kill();
            }
            wait_for(&refused, 200);
            database.restart().unwrap();
            wait_for(&acknowledged, 200);
        });
    }
    let mut seen = Seen::default();
    registers.iter().flatten().for_each(|register| seen += register.seen);
    assert!(seen.not_applied > 0 && seen.unread > 0 && seen.reads > 0, "{seen:?}");
    for register in registers.iter_mut().flatten() {
        register.read_at_last().unwrap();
    }
    let mut client = server.client();
    let stats: serde_json::Value = serde_json::from_slice(&client.get("/stats").body).unwrap();
    assert!(stats["weir_cache_drops_total"].as_f64().unwrap() >= 2.0, "each loss drops the cache");
}

/// A backup was restored in the place of a directory in use: the server wrote its next segment, and where its log ends, into that.
#[test]
fn a_directory_put_in_the_place_of_one_in_use_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let [here, moved] = ["here", "moved"].map(|name| folder.path().join(name));
    let url = format!("file:{}?segment=1MiB", here.display());
    let other = Server::start(&url, &[]);
    other.client().put("/kv/other", b"kept");
    drop(other);
    std::fs::rename(&here, folder.path().join("other")).unwrap();
    let mut server = Server::start(&url, &[]);
    let mut client = server.client();
    std::fs::rename(&here, &moved).unwrap();
    std::fs::rename(folder.path().join("other"), &here).unwrap();
    let second = Server::start(&url, &[]);
    let files = |of: &Path| {
        let files =
            std::fs::read_dir(of).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> = files.collect();
        files.sort();
        files
    };
    let before = files(&here);
    // Until the segment is full.
    let value = vec![b'x'; 100_000];
    let refused =
        (0..100).map(|n| client.put(&format!("/kv/{n}"), &value)).position(|answer| answer.status == 503);
    let written = refused.expect("a write that is refused");
    let refused = client.put("/kv/more", &value);
    assert_eq!(refused.header("weir-outcome"), Some("not-applied"), "{refused:?}");
    server.terminate();
    server.wait();
    assert_eq!(files(&here), before);
    assert_eq!(second.client().get("/kv/other").text(), "kept");
    drop(second);
    let server = Server::start(&format!("file:{}", moved.display()), &[]);
    assert!((0..written).all(|n| server.client().get(&format!("/kv/{n}")).body == value));
    let server = Server::start(&format!("file:{}", here.display()), &[]);
    assert_eq!(server.client().get("/kv/other").text(), "kept");
}
