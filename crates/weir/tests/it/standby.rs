//! Two servers over one store: the second one stands by, takes over, and what the first one has in its cache is never stale.

use crate::support::{Client, PATIENCE, Server, acquire_from, block_on, is_long, mariadb, postgres, until};
use kv::Key;
use lab_run::harness::DatabaseServer;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use store::{Kind, Part};

fn is_ready(server: &Server) -> bool {
    server.client().get("/readyz").status == 200
}

#[test]
fn a_standby_over_the_embedded_store_takes_over() {
    let directory = tempfile::tempdir().unwrap();
    check_hand_over(&format!("file:{}/data", directory.path().display()));
}

#[test]
fn a_standby_over_postgres_takes_over() {
    let postgres = postgres();
    check_hand_over(&postgres.url());
}

#[test]
fn a_standby_over_mariadb_takes_over() {
    let mariadb = mariadb();
    check_hand_over(&mariadb.url());
}

fn check_hand_over(store: &str) {
    let first = Server::start(store, &["--standby"]);
    assert!(is_ready(&first), "{store}");
    assert_eq!(first.client().put("/kv/a", b"1").status, 201);
    let mut second = Server::start(store, &["--standby"]);
    let mut client = second.client();
    let ready = client.get("/readyz");
    assert!(
        ready.status == 503 && ready.text().contains("standby: another server owns the store"),
        "{ready:?}"
    );
    assert_eq!(client.get("/healthz").status, 200);
    for (server, standby) in [(&first, 0.0), (&second, 1.0)] {
        assert_eq!(server.client().stats()["weir_store_standby"], standby, "{store}");
    }
    for refused in [client.get("/kv/a"), client.put("/kv/a", b"2")] {
        assert_eq!((refused.status, &refused.problem()["code"]), (503, &"standby".into()), "{refused:?}");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    assert_eq!(client.put("/kv/a", b"2").header("weir-outcome"), Some("not-applied"));
    // A line that nobody could do leaves the others to the server that can.
    let batch = client.ask("POST", "/batch", &[], b"{\"op\":\"get\",\"key\":\"a\"}\nwrong\n").unwrap();
    assert_eq!((batch.status, &batch.problem()["code"]), (503, &"standby".into()), "{batch:?}");
    assert_eq!(client.ask("POST", "/batch", &[], b"wrong\n").unwrap().status, 200);

    // Handed over: what comes meanwhile is answered by one of the two, and nothing waits for the end of old hits.
    let ends = Instant::now();
    first.terminate();
    let mut written = 0;
    // Also where the hand-over is over at the first look, something is written.
    while written == 0 || !is_ready(&second) {
        for server in [&first, &second] {
            // The first one may have gone already.
            let Ok(mut client) = Client::connect(server.address) else { continue };
            if let Ok(answer) = client.ask("PUT", "/kv/b", &[("TTL", "3600")], b"x")
                && answer.status < 300
            {
                written += 1;
                break;
            }
        }
    }
    assert!(written > 0 && ends.elapsed() < Duration::from_secs(30));
    assert_eq!(client.get("/kv/a").text(), "1", "{store}");
    // What came before the store's time was known does not end in 1970.
    assert_eq!(client.get("/kv/b").text(), "x", "{store}");
    assert_eq!(client.put("/kv/a", b"2").status, 204);
    drop(first);

    // Killed: nobody said that the hits have ended, so they are waited for.
    let third = Server::start(store, &["--standby"]);
    second.signal(Signal::KILL);
    second.wait();
    let mut client = third.client();
    let hour = [("TTL", "3600")];
    until("the third server writes", || client.ask("PUT", "/kv/ends", &hour, b"x").unwrap().status == 201);
    assert_eq!(client.get("/kv/ends").text(), "x", "{store}");
    assert!(is_ready(&third));
    assert_eq!(third.client().get("/kv/a").text(), "2", "{store}");
}

/// A store that is away is waited for, too.
#[test]
fn a_standby_waits_for_its_database() {
    let mut postgres = postgres();
    let url = postgres.url();
    postgres.stop();
    let server = Server::start(&url, &["--standby"]);
    let away = server.client().get("/kv/a");
    assert_eq!((away.status, &away.problem()["code"]), (503, &"store_unavailable".into()));
    postgres.restart().unwrap();
    until("the store is there", || is_ready(&server));
    assert_eq!(server.client().put("/kv/a", b"1").status, 201);
    // Another server may write meanwhile: who waits for a key waited to the end, and was told of nothing.
    let mut waiting = server.client();
    waiting.send(b"GET /kv/none HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=300\r\n\r\n").unwrap();
    postgres.stop();
    assert_eq!(waiting.answer(false).unwrap().status, 503);
}

/// It was refused at once.
#[test]
fn a_wait_for_a_key_outlasts_a_short_loss_of_the_store() {
    let postgres = postgres();
    let server = Server::start(&postgres.url(), &[]);
    let (mut client, mut waiting) = (server.client(), server.client());
    waiting.send(b"GET /kv/a HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=300\r\n\r\n").unwrap();
    let read = "weir_store_batch_size_count{operation=\"read\"}";
    until("it has looked", || client.stats()[read].as_f64() == Some(1.0));
    end_postgres_sessions(&postgres);
    until("it is lost", || !is_ready(&server));
    until("it is back", || is_ready(&server));
    assert_eq!(client.put("/kv/a", b"1").status, 201);
    let answer = waiting.answer(false).unwrap();
    assert_eq!((answer.status, answer.text().as_str()), (200, "1"));
}

/// Connections to a database that can be cut off without either end noticing.
struct Wire {
    address: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

impl Wire {
    fn to(server: SocketAddr) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Wire { address: listener.local_addr().unwrap(), is_cut: Arc::default() };
        let is_cut = Arc::clone(&wire.is_cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(server).unwrap();
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let is_cut = Arc::clone(&is_cut);
                    thread::spawn(move || pass_on(from, to, &is_cut));
                }
            }
        });
        wire
    }
}

/// Passes on what comes. Once the wire is cut nothing does, and neither end learns what became of the other.
fn pass_on(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = [0; 1 << 16];
    loop {
        let read = from.read(&mut bytes).unwrap_or_default();
        if is_cut.load(Relaxed) {
            // Held open for as long as the test lasts.
            thread::sleep(Duration::from_secs(3600));
        }
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            let _ = to.shutdown(Shutdown::Both);
            return;
        }
    }
}

#[test]
fn a_server_cut_off_from_its_postgres_answers_no_stale_hit() {
    let postgres = postgres();
    check_cut_off(&postgres, end_postgres_sessions);
}

#[test]
fn a_server_cut_off_from_its_mariadb_answers_no_stale_hit() {
    let mariadb = mariadb();
    check_cut_off(&mariadb, end_mariadb_sessions);
}

/// As an operator would whose server does not answer.
fn end_postgres_sessions(postgres: &DatabaseServer) {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name LIKE 'weir %' AND pid <> pg_backend_pid()";
    postgres.query("postgres", end).unwrap();
}

fn end_mariadb_sessions(mariadb: &DatabaseServer) {
    let sessions =
        "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'weir'";
    for id in mariadb.query("weir", sessions).unwrap().iter().flatten() {
        // It may have ended by itself.
        let _ = mariadb.query("weir", &format!("KILL {id}"));
    }
}

/// The first server goes on answering, and does not know that another one owns its store.
fn check_cut_off(database: &DatabaseServer, end_sessions: fn(&DatabaseServer)) {
    let url = database.url();
    // mysql://user@HOST:PORT/database
    let address = url.split(['@', '/']).find(|part| part.starts_with("127.")).unwrap();
    let wire = Wire::to(address.parse().unwrap());
    let through = url.replace(address, &wire.address.to_string());
    let first = Server::start(&through, &["--store-timeout", "5s"]);
    let mut client = first.client();
    assert_eq!(client.put("/kv/a", b"old").status, 201);
    until("a hit", || {
        client.get("/kv/a").header("cache-status").is_some_and(|status| status.contains("hit"))
    });

    wire.is_cut.store(true, Relaxed);
    end_sessions(database);
    // Until the second server says that it has written, the old value is right.
    let second = Server::start(&url, &[]);
    assert_eq!(second.client().put("/kv/a", b"new").status, 204);
    let answer = client.get("/kv/a");
    assert!(answer.status >= 500, "{answer:?}");
}

#[test]
fn a_server_paused_over_postgres_answers_no_stale_hit() {
    let postgres = postgres();
    check_paused(&postgres, end_postgres_sessions);
}

#[test]
fn a_server_paused_over_mariadb_answers_no_stale_hit() {
    let mariadb = mariadb();
    check_paused(&mariadb, end_mariadb_sessions);
}

/// What waits in the sockets of a server when it goes on is answered before it can learn anything.
fn check_paused(database: &DatabaseServer, end_sessions: fn(&DatabaseServer)) {
    const CLIENTS: usize = 50;
    const ROUND: usize = 10;
    let (pauses, reads): (&[u64], usize) = if is_long() { (&[1, 3, 10], 100_000) } else { (&[3], 5_000) };
    let url = database.url();
    for pause in pauses {
        let (old, new) = (format!("old {pause}"), format!("new {pause}"));
        let first = Server::start(&url, &[]);
        assert!(first.client().put("/kv/a", old.as_bytes()).status < 300);
        let mut clients: Vec<Client> = (0..CLIENTS).map(|_| first.client()).collect();
        for client in &mut clients {
            assert_eq!(client.get("/kv/a").text(), old);
        }
        first.signal(Signal::STOP);
        end_sessions(database);
        let second = thread::spawn({
            let (url, new) = (url.clone(), new.clone());
            move || {
                let server = Server::start(&url, &[]);
                assert_eq!(server.client().put("/kv/a", new.as_bytes()).status, 204);
                server
            }
        });
        thread::sleep(Duration::from_secs(*pause));
        if *pause < 2 {
            // Before the second one has written.
            first.signal(Signal::CONT);
        }
        let _second = second.join().unwrap();
        for _ in 0..reads.div_ceil(CLIENTS * ROUND) {
            for client in &mut clients {
                client.send(&b"GET /kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(ROUND)).unwrap();
            }
            // Only the first time it has to.
            first.signal(Signal::CONT);
            for client in &mut clients {
                for _ in 0..ROUND {
                    let answer = client.answer(false).unwrap();
                    assert!(answer.status == 503, "{answer:?}");
                }
            }
        }
    }
}

/// What it reads may be a commit that its server has not flushed yet, and whose older row that one answers from its cache.
#[test]
fn a_session_with_mariadb_read_on_when_another_server_owned_the_store() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let first = store.acquire(Part::WHOLE).await.unwrap();
        let mut late = store.connect(first.epoch).await.unwrap();
        drop(first);
        let _second = acquire_from(store.as_ref()).await.unwrap();
        // The second one may serve two seconds from now.
        let (key, deadline) = ([Key::new(b"a").unwrap()], Instant::now() + PATIENCE);
        let refused = loop {
            assert!(Instant::now() < deadline);
            if let Err(refused) = late.read(&key).await {
                break refused;
            }
        };
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
        assert!(refused.to_string().contains("taken over by another server"), "{refused}");
    });
}
