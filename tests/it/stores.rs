//! The stores against the real servers: the contract, ownership, and what a dead predecessor may not do.

use crate::support::{Server, postgres, weir};
use std::process::Stdio;
use std::time::Instant;
use tokio::runtime::Runtime;
use weir::store::{self, contract};

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

#[test]
fn postgres_keeps_the_contract() {
    let postgres = postgres();
    block_on(contract::all(store::open(&postgres.url()).unwrap().as_ref()));
}

#[test]
fn rows_and_epoch_in_postgres_outlive_the_server() {
    let postgres = postgres();
    let url = postgres.url();
    block_on(contract::survives_reopening(|| store::open(&url).unwrap()));
}

#[test]
fn a_second_server_over_one_postgres_is_refused_and_told_who_holds_it() {
    let postgres = postgres();
    let _first = Server::start(&postgres.url(), &[]);
    let second =
        weir().args(["serve", "--listen", "127.0.0.1:0", "--store", &postgres.url()]).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr);
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains("another server holds the store") && said.contains("backend "), "{said}");
    assert_eq!(said.trim().lines().count(), 1, "{said}");
}

/// Race 7. The server dies while the database holds its statement; the statement must not come true later, over what
/// the next server has acknowledged, nor bring back what that one deleted.
#[test]
fn a_dead_servers_statement_does_not_overwrite_its_successors() {
    let postgres = postgres();
    let server = Server::start(&postgres.url(), &[]);
    server.client().put("/kv/a", b"old");
    server.client().put("/kv/b", b"old");
    // Somebody else holds the rows: the writes that come now wait inside the database.
    let somebody = runtime();
    let blocker = somebody.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("BEGIN; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
        client
    });
    for path in ["/kv/a", "/kv/b"] {
        let mut client = server.client();
        client
            .send(format!("PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nghost").as_bytes())
            .unwrap();
    }
    let waiting = "SELECT count(*)::int FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    let deadline = Instant::now() + crate::support::PATIENCE;
    while somebody.block_on(blocker.query_one(waiting, &[])).unwrap().get::<_, i32>(0) == 0 {
        assert!(Instant::now() < deadline, "the write never reached the database");
    }
    server.kill();

    let successor = Server::start(&postgres.url(), &[]);
    somebody.block_on(blocker.batch_execute("COMMIT")).unwrap();
    let mut client = successor.client();
    assert_eq!(
        client.get("/kv/a").text(),
        "old",
        "the ghost's statement was ended before anything was served"
    );
    assert_eq!(client.put("/kv/a", b"new").status, 204);
    assert_eq!(client.ask("DELETE", "/kv/b", &[], b"").unwrap().status, 204);
    // Asked past every cache.
    let third = {
        drop(client);
        successor.kill();
        Server::start(&postgres.url(), &[])
    };
    assert_eq!(third.client().get("/kv/a").text(), "new");
    assert_eq!(third.client().get("/kv/b").status, 404);
}

#[test]
fn a_store_that_cannot_be_reached_is_named_with_a_remedy() {
    let output = weir()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "postgres://user:secret@127.0.0.1:1/db"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("cannot reach store postgres://user@127.0.0.1:1/db") && said.contains("hint:"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
}
