//! PostgreSQL while other programs work with its tables, and when it lets nobody wait.

use crate::stores::put;
use crate::support::{
    Answer, Client, PATIENCE, Server, acquire_from, block_on, postgres, postgres_with, runtime, until, weir,
};
use crate::user_table::{acquire, check_refused};
use kv::Version;
use lab_run::harness::DatabaseServer;
use store::{self, Kind, Part};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

/// Another program in the middle of a transaction, until it is dropped.
pub(crate) struct OtherProgram {
    _client: tokio_postgres::Client,
    _runtime: Runtime,
}

impl OtherProgram {
    pub(crate) fn begin(postgres: &DatabaseServer, statement: &str) -> OtherProgram {
        let runtime = runtime();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&format!("BEGIN; {statement}")).await.unwrap();
            client
        });
        OtherProgram { _client: client, _runtime: runtime }
    }
}

/// Sends a write without waiting for its answer.
pub(crate) fn begin_put(server: &Server, path: &str) -> Client {
    let mut client = server.client();
    let request = format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nv");
    client.send(request.as_bytes()).unwrap();
    client
}

pub(crate) fn is_given_up(answer: &Answer) -> bool {
    let outcome = answer.header("weir-outcome");
    answer.status == 503 && outcome == Some("not-applied") && answer.problem()["code"] == "store_refused"
}

/// In the URL; with 0, how long a write waits is for weir to say.
const LIMITS: [&str; 3] = ["lock_timeout%3D500ms", "statement_timeout%3D500ms", "lock_timeout%3D0"];
const TABLE: &str = "CREATE TABLE things (name bytea PRIMARY KEY, body bytea NOT NULL)";

/// All writes failed with it, and the server was not ready, as if PostgreSQL took no writes at all.
#[test]
fn a_write_that_timed_out_at_a_locked_row_failed_those_beside_it() {
    let postgres = postgres();
    postgres.ask(TABLE).unwrap();
    let parameters = "&table=things&key=name&value=body";
    for (parameters, rows) in [("", "weir_kv WHERE key ="), (parameters, "things WHERE name =")] {
        for limit in LIMITS {
            let url = format!("{}?options=-c%20{limit}{parameters}", postgres.url());
            let server = Server::start(&url, &["--store-write-workers", "1"]);
            let mut client = server.client();
            assert!([201, 204].contains(&client.put("/kv/locked", b"old").status));
            let other = OtherProgram::begin(&postgres, &format!("SELECT * FROM {rows} 'locked' FOR UPDATE"));
            // The second of them shares its batch with the others.
            let first = begin_put(&server, "/kv/locked");
            until("the write waits", || !postgres.ask(WAITING).unwrap().is_empty());
            let second = begin_put(&server, "/kv/locked");
            let others: Vec<Client> = (0..20).map(|n| begin_put(&server, &format!("/kv/new{n}"))).collect();
            for mut client in [first, second] {
                let answer = client.answer(false).unwrap();
                assert!(is_given_up(&answer), "{limit}: {answer:?}");
                assert_eq!(server.client().get("/readyz").status, 200, "{limit}");
            }
            for mut client in others {
                let answer = client.answer(false).unwrap();
                assert!([201, 204].contains(&answer.status), "{limit}: {answer:?}");
            }
            assert_eq!(client.get("/kv/locked").text(), "old");
            drop(other);
            until("the row is free", || client.put("/kv/locked", b"new").status == 204);
            server.kill();
        }
    }
}

pub(crate) const WAITING: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'";

/// A write that is sent again alone waits for its lock once more: as many timeouts as there are locked rows, and an unknown outcome.
#[test]
fn a_batch_of_locked_rows_is_refused_in_time() {
    let postgres = postgres();
    postgres.ask(TABLE).unwrap();
    for (parameters, table) in [("", "weir_kv"), ("&table=things&key=name&value=body", "things")] {
        let url = format!("{}?options=-c%20lock_timeout%3D2s{parameters}", postgres.url());
        let server = Server::start(&url, &["--store-write-workers", "1", "--store-read-workers", "1"]);
        // Every session is there: one that is begun while the table is locked is no part of this.
        let mut client = server.client();
        assert_eq!(client.put("/kv/a", b"old").status, 201);
        assert_eq!(client.get("/kv/none").status, 404);
        assert_eq!(client.get("/kv").status, 200);
        let other = OtherProgram::begin(&postgres, &format!("LOCK TABLE {table} IN EXCLUSIVE MODE"));
        let paths: Vec<String> = (0..30).map(|n| format!("/kv/{n}")).collect();
        for mut client in paths.iter().map(|path| begin_put(&server, path)).collect::<Vec<_>>() {
            let answer = client.answer(false).unwrap();
            assert!(is_given_up(&answer), "{answer:?}");
        }
        drop(other);
        // Waits as long as it may again.
        assert!(server.client().put("/kv/a", b"new").status == 204);
        let other = OtherProgram::begin(&postgres, &format!("SELECT * FROM {table} FOR UPDATE"));
        let mut waits = begin_put(&server, "/kv/a");
        until("the write waits", || !postgres.ask(WAITING).unwrap().is_empty());
        drop(other);
        assert_eq!(waits.answer(false).unwrap().status, 204);
        server.kill();
    }
}

/// It ended with the code of a wrong setting, after which systemd does not start a server again.
#[test]
fn a_start_at_a_full_database_is_no_wrong_setting() {
    let postgres = postgres();
    postgres
        .ask(
            "CREATE FUNCTION fill() RETURNS event_trigger LANGUAGE plpgsql AS
                 $$BEGIN RAISE 'no space left' USING ERRCODE = '53100'; END$$;
             CREATE EVENT TRIGGER full_disk ON ddl_command_start EXECUTE FUNCTION fill()",
        )
        .unwrap();
    let output =
        weir().args(["serve", "--listen", "127.0.0.1:0", "--store", &postgres.url()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("no space left (53100)") && said.contains("hint: look into"), "{said}");
    postgres.ask("DROP EVENT TRIGGER full_disk").unwrap();
    Server::start(&postgres.url(), &[]).kill();
}

/// What a role may not see of another one's session is NULL, which ended the process.
#[test]
fn a_store_that_another_role_holds_is_taken() {
    let postgres = postgres();
    postgres.ask("CREATE ROLE other LOGIN").unwrap();
    let _first = Server::start(&postgres.url(), &[]);
    let (_, at) = postgres.url().split_once('@').map(|(user, at)| (user.to_owned(), at.to_owned())).unwrap();
    let second = Server::start_in(&format!("postgres://other@{at}"), &[], &[("LC_ALL", "C".to_owned())]);
    let why = second.err().unwrap();
    assert!(why.contains("another server holds the store") && !why.contains("since"), "{why}");
}

/// It waited as long as the table was locked, and was answered as unknown.
#[test]
fn also_the_first_write_of_a_session_waits_for_no_lock_for_long() {
    let postgres = postgres();
    let server = Server::start(&postgres.url(), &[]);
    until("every session is there", || server.client().get("/readyz").status == 200);
    let other = OtherProgram::begin(&postgres, "LOCK TABLE weir_kv IN ACCESS EXCLUSIVE MODE");
    let answer = server.client().ask("PUT", "/kv/a", &[("If-None-Match", "*")], b"value").unwrap();
    assert!(is_given_up(&answer), "{answer:?}");
    drop(other);
}

/// A limit of statements that is shorter than the wait for such a session ended the attempt, again and again.
#[test]
fn a_session_of_an_earlier_server_is_ended_whatever_limit_statements_have() {
    let postgres = postgres();
    let url = format!("{}?options=-c%20statement_timeout%3D300ms", postgres.url());
    block_on(async {
        let store = store::open(&url).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        let first = lease.epoch;
        drop(lease);
        assert_eq!(acquire_from(store.as_ref()).await.unwrap().epoch, first + 1);
        let ended = session.events(0).await.unwrap_err();
        assert_eq!(ended.kind(), Kind::Unavailable, "{ended}");
    });
}

/// A server that acquires the store reads them. It waited without an end where the database did not answer.
#[test]
fn events_are_not_waited_for_longer_than_the_rest_of_a_start() {
    let postgres = postgres();
    block_on(async {
        let store = store::open(&postgres.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        assert_eq!(session.events(0).await.unwrap(), []);
        let (other, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute("BEGIN; LOCK TABLE weir_events").await.unwrap();
        let late = tokio::time::timeout(PATIENCE, session.events(0)).await.unwrap().unwrap_err();
        assert_eq!(late.kind(), Kind::Unavailable, "{late}");
    });
}

/// As after the restore of a dump: without statistics the database took every row for one that expires.
#[test]
fn a_start_over_a_table_without_statistics_read_all_of_it() {
    let postgres = postgres();
    Server::start(&postgres.url(), &[]).kill();
    postgres.ask("ALTER TABLE weir_kv SET (autovacuum_enabled = off)").unwrap();
    let rows = "INSERT INTO weir_kv SELECT convert_to('k' || i, 'UTF8'), 'v', '', 1, '', NULL
        FROM generate_series(1, 100000) i";
    postgres.ask(rows).unwrap();
    let read = || {
        let sessions = "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name LIKE 'weir %'";
        until("all sessions have ended", || postgres.ask(sessions).unwrap().is_empty());
        let read = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'weir_kv'";
        postgres.ask(read).unwrap()[0][0].parse::<u64>().unwrap()
    };
    let before = read();
    Server::start(&postgres.url(), &[]).kill();
    let read = read() - before;
    assert!(read < 1000, "{read}");
}

#[test]
fn a_table_that_was_dropped_is_not_made_anew_in_silence() {
    check_dropped(&postgres());
}

/// All rows were gone, and the server was ready.
pub(crate) fn check_dropped(database: &DatabaseServer) {
    let url = database.url();
    let server = Server::start(&url, &["--event-log", "1h"]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", b"v").status, 201);
    let epoch = || database.ask("SELECT epoch FROM weir_owner").unwrap();
    for (method, path) in [("GET", "/kv/none"), ("PUT", "/kv/b"), ("GET", "/kv")] {
        let before = epoch();
        database.ask("ALTER TABLE weir_kv RENAME TO kept").unwrap();
        let failed = client.ask(method, path, &[], b"").unwrap();
        assert_eq!(failed.status, 503, "{method} {path}: {failed:?}");
        assert_eq!(failed.header("weir-outcome"), (method == "PUT").then_some("not-applied"));
        until("the server has looked for it", || {
            client.stats().to_string().contains("has no table weir_kv") && client.get("/readyz").status == 503
        });
        assert_eq!(epoch(), before);
        database.ask("ALTER TABLE kept RENAME TO weir_kv").unwrap();
        until("the store is back", || client.get("/readyz").status == 200);
        assert_eq!(client.get("/kv/a").text(), "v");
    }
    let once = [("Idempotency-Key", "once")];
    assert_eq!(client.ask("PUT", "/kv/once", &once, b"v").unwrap().status, 201);
    database.ask("DROP TABLE weir_kv").unwrap();
    assert_eq!(client.get("/kv/none").status, 503);
    server.kill();
    let remedy =
        "restore all tables weir_… of a backup, or run DELETE FROM weir_map to begin with an empty store";
    check_refused(&url, &["has no table weir_kv, although a server has used it; ", remedy]);
    let before = epoch();
    database.ask("DELETE FROM weir_map").unwrap();
    let server = Server::start(&url, &["--event-log", "1h"]);
    let mut client = server.client();
    assert_eq!(client.get("/kv/a").status, 404);
    // What was done to the rows that are gone does not count, and no ETag comes again.
    assert_eq!(client.ask("PUT", "/kv/once", &once, b"v").unwrap().status, 201);
    assert_eq!(client.get("/kv/once").text(), "v");
    assert_ne!(epoch(), before);
    server.kill();
}

#[test]
fn tables_of_others_with_the_names_of_weirs_are_named() {
    let postgres = postgres();
    let sequence = ("CREATE SEQUENCE weir_kv", "DROP SEQUENCE weir_kv", "weir_kv");
    check_names(&postgres, &[sequence], "or another schema by ?options=-c%20search_path%3DSCHEMA");
    postgres.ask("CREATE TABLE weir_kv (id int); CREATE SCHEMA other").unwrap();
    acquire(&format!("{}?options=-c%20search_path%3Dother", postgres.url())).unwrap();
}

/// The error named a column that does not exist, and some tables had been made.
pub(crate) fn check_names(database: &DatabaseServer, more: &[(&str, &str, &str)], remedy: &str) {
    let others = [
        ("CREATE TABLE weir_kv (id int, foo text)", "DROP TABLE weir_kv", "weir_kv"),
        ("CREATE TABLE weir_owner (one int)", "DROP TABLE weir_owner", "weir_owner"),
    ];
    for (make, remove, name) in others.iter().chain(more) {
        database.ask(make).unwrap();
        let named = format!("{name} in {}", database.url());
        check_refused(&database.url(), &[&named, "is not a table of weir: it has no column ", remedy]);
        let there = "SELECT count(*) FROM information_schema.tables WHERE table_name LIKE 'weir%'";
        assert!(["0", "1"].contains(&&*database.ask(there).unwrap()[0][0]), "{make}");
        database.ask(remove).unwrap();
    }
}

/// It was ready and lost the store in turns, and each turn cost an epoch and the cache.
#[test]
fn a_server_without_all_its_sessions_is_not_ready() {
    let postgres = postgres();
    postgres.ask("CREATE ROLE app LOGIN CONNECTION LIMIT 3; GRANT ALL ON SCHEMA public TO app").unwrap();
    let url = postgres.url().replace("weir@", "app@");
    let said = check_fails(&url, "this server needs up to 7 sessions: ");
    assert!(
        said.contains("for role \"app\" (53300); hint: raise the CONNECTION LIMIT of the role, or"),
        "{said}"
    );
    postgres.ask("ALTER ROLE app CONNECTION LIMIT -1; ALTER DATABASE postgres CONNECTION LIMIT 3").unwrap();
    let said = check_fails(&url, "this server needs up to 7 sessions: ");
    assert!(said.contains("hint: raise the CONNECTION LIMIT of the database, or"), "{said}");
    postgres.ask("ALTER DATABASE postgres CONNECTION LIMIT -1; ALTER ROLE app CONNECTION LIMIT 7").unwrap();

    let server = Server::start(&url, &[]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", b"v").status, 201);
    let epoch = || postgres.ask("SELECT epoch FROM weir_owner").unwrap()[0][0].parse::<u64>().unwrap();
    let before = epoch();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'";
    postgres.ask(&format!("ALTER ROLE app CONNECTION LIMIT 3; {end}")).unwrap();
    until("the store is lost", || client.get("/readyz").status == 503);
    until("it was tried again", || {
        assert_eq!(client.put("/kv/a", b"v").status, 503);
        assert_eq!(client.get("/readyz").status, 503);
        epoch() > before + 2
    });
    assert_eq!(client.stats()["weir_store_leases_total"], 1.0);
    postgres.ask("ALTER ROLE app CONNECTION LIMIT 7").unwrap();
    until("the store is back", || client.get("/readyz").status == 200);
    assert_eq!(client.put("/kv/a", b"w").status, 204);
    assert_eq!(client.stats()["weir_store_leases_total"], 2.0);
}

/// What a server says that does not start.
pub(crate) fn check_fails(url: &str, needs: &str) -> String {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--until-stdin-ends", "--store", url];
    let failed = weir().args(serve).output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!((failed.status.code(), failed.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains(needs), "{said}");
    said
}

#[test]
fn a_session_of_its_own_is_no_other_server_and_too_few_connections_have_a_remedy() {
    let postgres = postgres_with(&[("max_connections", "4"), ("superuser_reserved_connections", "0")]);
    block_on(async {
        let store = store::open(&postgres.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        // It was called another server.
        let taken = store.acquire(Part::WHOLE).await.map(drop).unwrap_err();
        assert!(
            taken.kind() == Kind::Taken && taken.to_string().contains("session of this server"),
            "{taken}"
        );
        let mut sessions = Vec::new();
        let error = loop {
            match store.connect(lease.epoch).await {
                Ok(session) => sessions.push(session),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("(53300); raise its max_connections, or lower"), "{error}");
    });
}

#[test]
fn a_read_only_postgres_and_a_locked_row_are_told_with_what_helps() {
    let postgres = postgres();
    let read_only = format!("{}?options=-c%20default_transaction_read_only%3Don", postgres.url());
    check_fails(&read_only, "in a read-only transaction (25006); hint: use a server that takes writes");
    let host = postgres.url().split(['@', '/']).nth(3).unwrap().to_owned();
    let several = read_only.replace(&host, &format!("{host},{host}"));
    check_fails(&several, "takes writes: all are standbys or read-only; hint: promote one");
    postgres.ask(TABLE).unwrap();
    for (parameters, table) in [("", "weir_kv"), ("?table=things&key=name&value=body", "things")] {
        block_on(async {
            let store = store::open(&format!("{}{parameters}", postgres.url())).unwrap();
            let lease = acquire_from(store.as_ref()).await.unwrap();
            let mut session = store.connect(lease.epoch).await.unwrap();
            let version = Version::first_of(lease.epoch).0;
            session.write(&[put("a", b"old", version)]).await.unwrap();
            let (other, connection) = tokio_postgres::connect(&postgres.url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            other.batch_execute(&format!("BEGIN; SELECT * FROM {table} FOR UPDATE")).await.unwrap();
            let late = session.write(&[put("a", b"new", version + 1)]).await.unwrap_err().to_string();
            let why = format!(
                "(55P03): another program holds a lock, most likely of the table {table} or a row in it"
            );
            assert!(late.ends_with(&why), "{late}");
        });
    }
}
