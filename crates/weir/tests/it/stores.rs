//! The stores against the real servers: the contract, ownership, and what a dead predecessor may not do.

use crate::support::{
    Client, PATIENCE, Server, acquire_from, block_on, mariadb, mariadb_with, postgres, runtime, until, weir,
};
use kv::{Change, Key, Row, Timestamp, Version, Write};
use lab_data::experiment::Engine;
use lab_run::harness::{DatabaseOptions, DatabaseServer};
use mysql_async::prelude::Queryable;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::{Duration, Instant};
use store::{self, EventBlock, Found, Kind, Part, Session, Store, contract};
use tokio::runtime::Runtime;

#[test]
fn postgres_keeps_the_contract() {
    let postgres = postgres();
    block_on(contract::all(store::open(&postgres.url()).unwrap().as_ref()));
}

#[test]
fn rows_and_epoch_in_postgres_outlive_the_server() {
    let postgres = postgres();
    let url = postgres.url();
    block_on(contract::keeps_events(|| store::open(&url).unwrap()));
    block_on(contract::survives_reopening(|| store::open(&url).unwrap()));
}

#[test]
fn mariadb_keeps_the_contract() {
    let mariadb = mariadb();
    block_on(contract::all(store::open(&mariadb.url()).unwrap().as_ref()));
}

#[test]
fn rows_and_epoch_in_mariadb_outlive_the_server() {
    let mariadb = mariadb();
    let url = mariadb.url();
    block_on(contract::keeps_events(|| store::open(&url).unwrap()));
    block_on(contract::survives_reopening(|| store::open(&url).unwrap()));
}

#[test]
fn a_second_server_over_one_postgres_is_refused_and_told_who_holds_it() {
    check_second(&postgres(), "(backend ");
}

#[test]
fn a_second_server_over_one_mariadb_is_refused_and_told_who_holds_it() {
    check_second(&mariadb(), " of weir from 127.0.0.1");
}

fn check_second(database: &DatabaseServer, holder: &str) {
    let _first = Server::start(&database.url(), &[]);
    let second =
        weir().args(["serve", "--listen", "127.0.0.1:0", "--store", &database.url()]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another server holds the store") && said.contains(holder), "{said}");
    let [waits, error] = said.trim().lines().collect::<Vec<_>>().try_into().unwrap();
    assert!(waits.ends_with("; waiting 10 s for it"), "{said}");
    assert!(error.contains("; hint: stop it, or use another database; with --standby"), "{said}");
}

/// Somebody else, who holds every row of the table until told to let go.
trait Blocker {
    /// How many statements wait for it.
    fn waiting(&mut self) -> i64;
    fn release(self);
}

struct PostgresBlocker(Runtime, tokio_postgres::Client);

impl PostgresBlocker {
    fn new(url: &str) -> PostgresBlocker {
        let runtime = runtime();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute("BEGIN; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
            client
        });
        PostgresBlocker(runtime, client)
    }
}

impl Blocker for PostgresBlocker {
    fn waiting(&mut self) -> i64 {
        // In a transaction it is the same all the time.
        self.0.block_on(self.1.batch_execute("SELECT pg_stat_clear_snapshot()")).unwrap();
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        self.0.block_on(self.1.query_one(waiting, &[])).unwrap().get(0)
    }

    fn release(self) {
        self.0.block_on(self.1.batch_execute("COMMIT")).unwrap();
    }
}

struct MariaDbBlocker(Runtime, mysql_async::Conn);

impl MariaDbBlocker {
    fn new(url: &str) -> MariaDbBlocker {
        let runtime = runtime();
        let connection = runtime.block_on(async {
            let mut connection = mysql_async::Conn::from_url(url).await.unwrap();
            connection.query_drop("START TRANSACTION; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
            connection
        });
        MariaDbBlocker(runtime, connection)
    }
}

impl Blocker for MariaDbBlocker {
    fn waiting(&mut self) -> i64 {
        self.0.block_on(waiting_in_mariadb(&mut self.1))
    }

    fn release(mut self) {
        self.0.block_on(self.1.query_drop("COMMIT")).unwrap();
    }
}

pub(crate) async fn waiting_in_mariadb(connection: &mut mysql_async::Conn) -> i64 {
    // Not innodb_trx: it shows what it showed before to whoever asks more than ten times a second.
    let waiting = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";
    let (_, waiting): (String, i64) = connection.query_first(waiting).await.unwrap().unwrap();
    waiting
}

#[test]
fn a_dead_servers_statement_does_not_overwrite_its_successors() {
    check_stale_writer(&postgres(), PostgresBlocker::new);
}

#[test]
fn a_dead_servers_statement_in_mariadb_does_not_overwrite_its_successors() {
    check_stale_writer(&mariadb(), MariaDbBlocker::new);
}

/// Race 7. The server dies while the database holds its statement; the statement must not come true later, over what
/// the next server has acknowledged, nor bring back what that one deleted.
fn check_stale_writer<B: Blocker>(database: &DatabaseServer, hold_rows: impl FnOnce(&str) -> B) {
    let server = Server::start(&database.url(), &[]);
    server.client().put("/kv/a", b"old");
    server.client().put("/kv/b", b"old");
    // Somebody else holds the rows: the writes that come now wait inside the database.
    let mut blocker = hold_rows(&database.url());
    for path in ["/kv/a", "/kv/b"] {
        let mut client = server.client();
        client
            .send(
                format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nghost")
                    .as_bytes(),
            )
            .unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while blocker.waiting() == 0 {
        assert!(Instant::now() < deadline, "the write never reached the database");
    }
    server.kill();

    let successor = Server::start(&database.url(), &[]);
    blocker.release();
    let mut client = successor.client();
    assert_eq!(
        client.get("/kv/a").text(),
        "old",
        "the dead server's statement was ended before anything was served"
    );
    assert_eq!(client.put("/kv/a", b"new").status, 204);
    assert_eq!(client.ask("DELETE", "/kv/b", &[], b"").unwrap().status, 204);
    // Asked past every cache.
    let third = {
        drop(client);
        successor.kill();
        Server::start(&database.url(), &[])
    };
    assert_eq!(third.client().get("/kv/a").text(), "new");
    assert_eq!(third.client().get("/kv/b").status, 404);
}

pub(crate) fn put(name: &str, value: &[u8], version: u64) -> Write {
    let (key, version) = (Key::new(name.as_bytes()).unwrap(), Version(version));
    let row = Row::new(&key, "", value, version);
    Write { key, version, change: Change::Put(row) }
}

pub(crate) async fn value_of(session: &mut dyn Session, name: &str) -> Option<Vec<u8>> {
    let rows = session.read(&[Key::new(name.as_bytes()).unwrap()]).await.unwrap();
    rows[0].as_ref().map(|row| row.value().to_vec())
}

/// The row in `weir_owner` is what keeps an earlier lease's writes out, whether its connections live or not.
#[test]
fn a_session_in_mariadb_that_outlived_its_claim_writes_nothing() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let first = store.acquire(Part::WHOLE).await.unwrap();
        let mut late = store.connect(first.epoch).await.unwrap();
        let version = Version::first_of(first.epoch).0;
        late.write(&[put("a", b"old", version + 1)]).await.unwrap();
        drop(first);
        let second = acquire_from(store.as_ref()).await.unwrap();
        for late_writes in [
            vec![put("a", b"late", version + 2)],
            vec![put("a", b"late", version + 3), put("b", b"", version + 4)],
        ] {
            let refused = late.write(&late_writes).await.unwrap_err();
            assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
            assert!(refused.to_string().contains("taken over by another server"), "{refused}");
            let mut session = store.connect(second.epoch).await.unwrap();
            assert_eq!(value_of(session.as_mut(), "a").await, Some(b"old".to_vec()));
        }
    });
}

/// A lease returns only when a write that is in the middle of its transaction has ended, though its server is alive and
/// would commit it.
#[test]
fn a_claim_of_mariadb_outlasts_a_write_that_is_under_way() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let first = store.acquire(Part::WHOLE).await.unwrap();
        let mut late = store.connect(first.epoch).await.unwrap();
        let version = Version::first_of(first.epoch).0;
        late.write(&[put("a", b"old", version + 1)]).await.unwrap();
        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        somebody.query_drop("START TRANSACTION; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
        let under_way = tokio::spawn(async move { late.write(&[put("a", b"late", version + 2)]).await });
        let deadline = Instant::now() + PATIENCE;
        while waiting_in_mariadb(&mut somebody).await == 0 {
            assert!(Instant::now() < deadline, "the write never reached the database");
        }
        drop(first);
        let second = acquire_from(store.as_ref()).await.unwrap();
        somebody.query_drop("COMMIT").await.unwrap();
        // Its commit was sent with it, and its connection is gone.
        let ended = under_way.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), Kind::Unknown, "{ended}");
        let mut session = store.connect(second.epoch).await.unwrap();
        assert_eq!(value_of(session.as_mut(), "a").await, Some(b"old".to_vec()));
    });
}

/// A server that was cut off between two statements of a write: the database waits for it, its successor does not.
#[test]
fn a_claim_of_mariadb_ends_a_write_that_stopped_in_the_middle() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        drop(store.acquire(Part::WHOLE).await.unwrap());
        let mut stopped = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        let tag =
            "SELECT GET_LOCK(CONCAT('weir.', LEFT(SHA2(DATABASE(), 256), 32), '.', CONNECTION_ID()), 0)";
        assert_eq!(stopped.query_first(tag).await.unwrap(), Some(1));
        let middle = "START TRANSACTION; SELECT epoch FROM weir_owner LOCK IN SHARE MODE;
            INSERT INTO weir_kv VALUES ('a', 'ghost', '', 1, '', NULL)";
        stopped.query_drop(middle).await.unwrap();
        let lease = acquire_from(store.as_ref()).await.unwrap();
        assert!(stopped.query_drop("COMMIT").await.is_err());
        let mut session = store.connect(lease.epoch).await.unwrap();
        assert_eq!(value_of(session.as_mut(), "a").await, None);
    });
}

#[test]
fn the_end_of_the_owners_connection_to_mariadb_is_noticed() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let mut lease = store.acquire(Part::WHOLE).await.unwrap();
        let held = lease.owner.as_mut().unwrap();
        held.confirm().await.unwrap();
        let owner =
            "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'weir'";
        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        let owner: u64 = somebody.query_first(owner).await.unwrap().unwrap();
        somebody.query_drop(format!("KILL {owner}")).await.unwrap();
        let noticed = async { while held.confirm().await.is_ok() {} };
        tokio::time::timeout(PATIENCE, noticed).await.unwrap();
    });
}

#[test]
fn a_newer_row_in_postgres_stays_and_is_reported() {
    check_newer_row(&postgres());
}

#[test]
fn a_newer_row_in_mariadb_stays_and_is_reported() {
    check_newer_row(&mariadb());
}

/// Alone, in a batch of puts, and beside a delete: each is a statement of its own.
fn check_newer_row(database: &DatabaseServer) {
    block_on(async {
        let store = store::open(&database.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        session.write(&[put("b", b"newer", 10)]).await.unwrap();
        assert_eq!(session.write(&[put("b", b"older", 9)]).await.unwrap(), [Found::Newer]);
        session.write(&[put("c", b"c", 8)]).await.unwrap();
        let batch = [put("a", b"a", 9), put("b", b"older", 9), put("c", b"again", 9)];
        assert_eq!(session.write(&batch).await.unwrap(), [Found::Absent, Found::Newer, Found::Present]);
        assert_eq!(value_of(session.as_mut(), "b").await, Some(b"newer".to_vec()));
        assert_eq!(value_of(session.as_mut(), "c").await, Some(b"again".to_vec()));
        let gone = Key::new(b"c").unwrap();
        let batch =
            [put("b", b"older", 9), Write { key: gone, version: Version(11), change: Change::Delete }];
        assert_eq!(session.write(&batch).await.unwrap(), [Found::Newer, Found::Present]);
        assert_eq!(value_of(session.as_mut(), "b").await, Some(b"newer".to_vec()));
        // Events would say that it was replaced.
        let events = EventBlock { id: 1, at: Timestamp(1), body: b"events".to_vec().into() };
        let batch = [put("a", b"later", 12), put("b", b"older", 9)];
        for writes in [&batch[1..], &batch] {
            let refused = session.write_with(writes, Some(&events)).await.unwrap_err();
            let is_told = refused.to_string().contains("a newer version");
            assert!(refused.kind() == Kind::Rejected && is_told, "{refused}");
        }
        assert_eq!(value_of(session.as_mut(), "a").await, Some(b"a".to_vec()));
        assert_eq!(session.events(0).await.unwrap(), []);
        assert_eq!(session.write_with(&batch[..1], Some(&events)).await.unwrap(), [Found::Present]);
        assert_eq!(session.events(0).await.unwrap(), [events]);
    });
}

/// A packet of the protocol ends at 16 MiB, the server's own limit wherever it was set.
#[test]
fn values_that_fit_into_mariadbs_packets_are_kept_and_others_refused_with_the_setting() {
    let mariadb = mariadb_with(&[("max_allowed_packet", "33554432")]);
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        let large = |fill: u8, mib: usize| vec![fill; mib << 20];
        // Together more than a packet, and one of them more than the protocol's.
        let batch = [put("a", &large(1, 14), 1), put("b", &large(2, 20), 1), put("c", &large(3, 14), 1)];
        session.write(&batch).await.unwrap();
        for (name, fill, mib) in [("a", 1, 14), ("b", 2, 20), ("c", 3, 14)] {
            assert!(value_of(session.as_mut(), name).await == Some(large(fill, mib)), "{name}");
        }
        let refused = session.write(&[put("a", b"", 2), put("d", &large(4, 40), 2)]).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unfit, "{refused}");
        assert!(refused.to_string().contains("max_allowed_packet is 33554432"), "{refused}");
        session.write(&[put("a", b"small", 2)]).await.unwrap();
    });
}

#[test]
fn a_mariadb_that_does_not_flush_is_warned_of() {
    let mariadb = mariadb_with(&[("innodb_flush_log_at_trx_commit", "2")]);
    let mut server = weir()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", &mariadb.url()])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    let warning = said.into_iter().find(|line| line.contains("innodb_flush_log_at_trx_commit = 2"));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(warning.is_some_and(|line| line.contains("set it to 1")));
}

#[test]
fn a_wrong_password_or_database_is_told_at_once() {
    let mariadb = mariadb();
    for (url, why) in [
        (mariadb.url().replace("weir@", "weir:secret@"), "Access denied"),
        (mariadb.url_of("nowhere"), "Unknown database 'nowhere'"),
    ] {
        let error = block_on(store::open(&url).unwrap().acquire(Part::WHOLE)).err().unwrap();
        assert_eq!(error.kind(), Kind::Config, "{error}");
        assert!(error.to_string().contains(why) && !error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_store_that_cannot_be_reached_is_named_with_a_remedy() {
    for (scheme, other_host) in [("postgres", ""), ("mysql", ""), ("postgres", ",127.0.0.1:2")] {
        let url = format!("{scheme}://user:secret@127.0.0.1:1{other_host}/db");
        let output = weir()
            .args(["serve", "--listen", "127.0.0.1:0", "--store", &url])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let named = format!(" {scheme}://user@127.0.0.1:1{other_host}/db");
        assert!(said.contains(&named) && said.contains("hint: start it"), "{said}");
        assert!(said.contains("with --standby") && !said.contains("secret"), "{said}");
    }
}

/// Anybody may ask whether the server is ready; who and where its database is, is for the log.
#[test]
fn why_a_store_is_unavailable_is_for_the_log_alone() {
    let mut postgres = postgres();
    let url = postgres.url();
    let mut command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", &url]);
    // Other machines reach its pages, unlike its values.
    command.args(["--ops-listen", "0.0.0.0:0", "--insecure"]);
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut port = |word: &str| -> u16 {
        let line = lines.next().unwrap();
        let address: SocketAddr = line.strip_prefix(word).unwrap().parse().unwrap();
        address.port()
    };
    let [mut client, mut pages] = ["listening ", "operations "]
        .map(|word| Client::connect((Ipv4Addr::LOCALHOST, port(word)).into()).unwrap());
    postgres.stop();
    until("away", || client.get("/readyz").status == 503);
    // It may say first that it was lost, and then that it cannot be reached.
    for _ in 0..100 {
        assert_eq!(client.get("/readyz").text(), "the store is unavailable; the server's log says why\n");
    }
    let place = url.split('@').next_back().unwrap().split('/').next().unwrap();
    let failed = "weir_store_last_error_timestamp_seconds{reason=\\\"the server's log says why\\\"}";
    until("the failure", || pages.get("/stats").text().contains(failed));
    assert!(!pages.get("/stats").text().contains(place));
    let mut said = BufReader::new(server.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("cannot acquire the store: ") && line.contains(place)));
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn without_its_owner_table_a_postgres_goes_on_above_its_rows() {
    check_owner_table_missing(&postgres());
}

#[test]
fn without_its_owner_table_a_mariadb_goes_on_above_its_rows() {
    check_owner_table_missing(&mariadb());
}

/// A dump that is restored without `weir_owner`, a replica that becomes the store: the epoch began at 1, below the versions of the
/// rows, so every PUT of an old key was refused and ETags came again.
fn check_owner_table_missing(database: &DatabaseServer) {
    let put = |server: Server| {
        let answer = server.client().put("/kv/a", b"v");
        assert!([201, 204].contains(&answer.status), "{answer:?}");
        server.kill();
        answer.header("etag").unwrap().trim_matches('"').parse::<u64>().unwrap()
    };
    let (mut last, mut epochs) = (0, Vec::new());
    for loss in ["DELETE FROM weir_owner", "DROP TABLE weir_owner", "DROP TABLE weir_owner", "SELECT 1"] {
        let version = put(Server::start(&database.url(), &[]));
        assert!(version > last, "{version} after {last}");
        last = version;
        epochs.push(Version(version).epoch());
        database.ask(loss).unwrap();
    }
    // Each start is one epoch and no more.
    assert_eq!(epochs[3], epochs[0] + 3);
}

#[test]
fn a_start_that_cannot_listen_takes_no_epoch() {
    let (postgres, other) = (postgres(), Server::start("memory:", &[]));
    Server::start(&postgres.url(), &[]).kill();
    let epoch = || postgres.ask("SELECT epoch FROM weir_owner").unwrap()[0][0].clone();
    let before = epoch();
    for workers in ["1", "2"] {
        let failed = weir()
            .args(["serve", "--listen", &other.address.to_string(), "--workers", workers])
            .args(["--store", &postgres.url()])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&failed.stderr);
        assert!(said.contains("cannot listen on") && said.contains("; hint: stop what listens"), "{said}");
    }
    assert_eq!(epoch(), before);
}

/// Asks a database from a thread that has no runtime yet.
pub(crate) fn ask(database: &DatabaseServer, sql: &str) {
    std::thread::scope(|scope| scope.spawn(|| database.ask(sql).unwrap()).join()).unwrap();
}

/// The driver's `get` panics, and that ended the server.
#[test]
fn columns_of_other_types_in_postgres_are_errors() {
    let postgres = postgres();
    block_on(async {
        let store = store::open(&postgres.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let first = Version::first_of(lease.epoch).0;
        let connect = async || store.connect(lease.epoch).await.unwrap();
        connect().await.write(&[put("a", b"1", first + 1), put("b", b"2", first + 1)]).await.unwrap();
        let keys = ["a", "b"].map(|name| Key::new(name.as_bytes()).unwrap());
        for (change, back, writes) in [
            ("ALTER version TYPE numeric", "ALTER version TYPE bigint", false),
            ("ALTER content_type TYPE varchar(9)", "ALTER content_type TYPE text", true),
            ("ALTER value DROP NOT NULL", "ALTER value SET NOT NULL", true),
        ] {
            ask(&postgres, &format!("ALTER TABLE weir_kv {change}"));
            if change.contains("NULL") {
                ask(&postgres, "UPDATE weir_kv SET value = NULL");
            }
            let mut session = connect().await;
            for keys in [&keys[..], &keys[..1]] {
                match session.read(keys).await {
                    Ok(_) => assert!(change.contains("varchar"), "{change}"),
                    Err(error) => {
                        assert_eq!(error.kind(), Kind::Rejected, "{change}: {error}");
                        assert!(error.to_string().contains("is not as weir makes it"), "{error}");
                    }
                }
            }
            let written = session.write(&[put("c", b"3", first + 2)]).await;
            assert_eq!(written.is_ok(), writes, "{change}: {written:?}");
            assert!(written.is_err_and(|error| error.kind() == Kind::Refused) != writes, "{change}");
            if change.contains("NULL") {
                ask(&postgres, "UPDATE weir_kv SET value = ''");
            }
            ask(&postgres, &format!("ALTER TABLE weir_kv {back}"));
        }
        drop(lease);
        ask(&postgres, "ALTER TABLE weir_owner ALTER epoch TYPE numeric");
        check_refused_owner(store.as_ref()).await;
    });
}

#[test]
fn columns_of_other_types_in_mariadb_are_errors() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        session.write(&[put("a", b"1", 1)]).await.unwrap();
        ask(&mariadb, "ALTER TABLE weir_kv MODIFY version BIGINT NULL");
        ask(&mariadb, "UPDATE weir_kv SET version = NULL");
        let refused = session.read(&[Key::new(b"a").unwrap()]).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Rejected, "{refused}");
        assert!(refused.to_string().contains("is not as weir makes it"), "{refused}");
        ask(&mariadb, "ALTER TABLE weir_owner MODIFY epoch DOUBLE");
        ask(&mariadb, "UPDATE weir_owner SET epoch = 0.5");
        // The next lease finds out why.
        let refused = session.write(&[put("a", b"2", 2)]).await.unwrap_err();
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
        drop(lease);
        check_refused_owner(store.as_ref()).await;
    });
}

async fn check_refused_owner(store: &dyn Store) {
    let refused = acquire_from(store).await.map(|lease| lease.epoch).unwrap_err();
    assert_eq!(refused.kind(), Kind::Config, "{refused}");
    assert!(refused.to_string().contains("is not as weir makes it"), "{refused}");
}

#[test]
fn what_waits_behind_a_locked_postgres_is_refused_and_not_unknown() {
    check_queue(&postgres(), PostgresBlocker::new);
}

#[test]
fn what_waits_behind_a_locked_mariadb_is_refused_and_not_unknown() {
    check_queue(&mariadb(), MariaDbBlocker::new);
}

/// A write waits in the database, and another of the key behind it in the server: that one was never sent.
fn check_queue<B: Blocker>(database: &DatabaseServer, hold_rows: impl FnOnce(&str) -> B) {
    let server = Server::start(&database.url(), &["--store-timeout", "2s"]);
    server.client().put("/kv/a", b"old");
    let mut blocker = hold_rows(&database.url());
    let mut first = server.client();
    first.send(b"PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nfirst").unwrap();
    until("the write is in the database", || blocker.waiting() > 0);
    let second = server.client().put("/kv/a", b"second");
    assert_eq!(
        (second.status, second.header("weir-outcome")),
        (503, Some("not-applied")),
        "{}",
        second.text()
    );
    assert_eq!(second.problem()["code"], "overloaded");
    blocker.release();
    let first = first.answer(false).unwrap();
    assert!([204, 504].contains(&first.status), "{first:?}");
    until("the first write is there", || server.client().get("/kv/a").text() == "first");
}

/// InnoDB shows a commit before it has flushed it, where there is no binary log: a crash then takes back what a read has answered.
#[test]
fn a_read_of_mariadb_waits_for_the_flush_of_what_it_saw() {
    let delay = Duration::from_millis(200);
    let options = DatabaseOptions { flush_delay: Some(delay), ..DatabaseOptions::default() };
    let mariadb = DatabaseServer::start(Engine::MariaDb, options).unwrap();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        // It may take longer than a lease may; what it has made then stays.
        let lease = loop {
            match store.acquire(Part::WHOLE).await {
                Ok(lease) => break lease,
                Err(error) => {
                    assert!(error.kind().is_taken() || error.kind() == Kind::Unavailable, "{error}");
                }
            }
        };
        let mut writer = store.connect(lease.epoch).await.unwrap();
        let mut reader = store.connect(lease.epoch).await.unwrap();
        for write in [
            put("a", b"v", 1),
            Write { key: Key::new(b"a").unwrap(), version: Version(2), change: Change::Delete },
        ] {
            let is_put = matches!(write.change, Change::Put(_));
            let start = Instant::now();
            let writing = async { writer.write(&[write]).await.unwrap() };
            let reading = async {
                while value_of(reader.as_mut(), "a").await.is_some() != is_put {}
                start.elapsed()
            };
            let (_, seen) = tokio::join!(writing, reading);
            assert!(seen >= delay, "seen after {seen:?}");
        }
    });
}
