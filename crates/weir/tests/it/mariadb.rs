//! Batches of writes over MariaDB: one packet with its commit, and what reads see of them meanwhile.

use crate::postgres::{begin_put, check_dropped, check_fails, check_names, is_given_up};
use crate::stores::{ask, put, value_of, waiting_in_mariadb};
use crate::support::{Client, Server, block_on, mariadb, mariadb_version, mariadb_with, weir};
use kv::{Timestamp, Version};
use mysql_async::prelude::Queryable;
use store::{self, Found, Kind, Listing, Part};

/// What waits for a row that another program has locked holds up no read, not even of its own keys.
#[test]
fn reads_of_mariadb_do_not_wait_for_a_write_that_waits() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let version = Version::first_of(lease.epoch).0;
        let mut writer = store.connect(lease.epoch).await.unwrap();
        let mut reader = store.connect(lease.epoch).await.unwrap();
        writer.write(&[put("a", b"old", version + 1)]).await.unwrap();
        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        somebody.query_drop("START TRANSACTION; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
        let writes = [put("a", b"new", version + 2), put("b", b"new", version + 3)];
        let under_way = tokio::spawn(async move { writer.write(&writes).await });
        while waiting_in_mariadb(&mut somebody).await == 0 {}
        assert_eq!(value_of(reader.as_mut(), "a").await, Some(b"old".to_vec()));
        assert_eq!(value_of(reader.as_mut(), "b").await, None);
        assert!(!under_way.is_finished());
        somebody.query_drop("COMMIT").await.unwrap();
        assert_eq!(under_way.await.unwrap().unwrap(), [Found::Present, Found::Absent]);
        assert_eq!(value_of(reader.as_mut(), "b").await, Some(b"new".to_vec()));
    });
}

/// A batch goes to MariaDB as one packet with its commit. What the database refuses of it was not written, and the session goes on.
#[test]
fn what_mariadb_refuses_of_a_batch_is_known_not_to_have_happened() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let version = Version::first_of(lease.epoch).0;
        let mut session = store.connect(lease.epoch).await.unwrap();
        let trigger = "CREATE TRIGGER no BEFORE INSERT ON weir_kv FOR EACH ROW
            IF NEW.`key` = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF";
        ask(&mariadb, trigger);
        for writes in
            [vec![put("bad", b"1", version)], vec![put("a", b"1", version), put("bad", b"1", version)]]
        {
            let refused = session.write(&writes).await.unwrap_err();
            assert_eq!(refused.kind(), Kind::Rejected, "{refused}");
        }
        assert_eq!(value_of(session.as_mut(), "a").await, None);
        session.write(&[put("a", b"2", version + 1), put("b", b"2", version + 2)]).await.unwrap();

        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        somebody.query_drop("START TRANSACTION; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
        // In vain, for the two seconds that a statement waits for a lock.
        for writes in [
            vec![put("a", b"3", version + 3)],
            vec![put("a", b"3", version + 3), put("c", b"3", version + 4)],
        ] {
            let late = session.write(&writes).await.unwrap_err();
            assert_eq!(late.kind(), Kind::Rejected, "{late}");
            assert!(
                late.to_string().ends_with("a lock, most likely of the table weir_kv or a row in it"),
                "{late}"
            );
        }
        somebody.query_drop("COMMIT").await.unwrap();
        assert_eq!(value_of(session.as_mut(), "a").await, Some(b"2".to_vec()));
        session.write(&[put("a", b"4", version + 5)]).await.unwrap();
        assert_eq!(value_of(session.as_mut(), "a").await, Some(b"4".to_vec()));
    });
}

/// All writes failed with it, after it had been tried four times for five seconds each.
#[test]
fn a_write_of_mariadb_that_waits_for_a_locked_row_fails_alone() {
    let mariadb = mariadb();
    mariadb.ask("CREATE TABLE things (name VARBINARY(255) PRIMARY KEY, body LONGBLOB NOT NULL)").unwrap();
    let table = format!("{}?table=things&key=name&value=body", mariadb.url());
    for (url, row) in [(mariadb.url(), "weir_kv WHERE `key` ="), (table, "things WHERE name =")] {
        let server = Server::start(&url, &["--store-write-workers", "1"]);
        let mut client = server.client();
        assert_eq!(client.put("/kv/locked", b"old").status, 201);
        block_on(async {
            let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
            let lock = format!("START TRANSACTION; SELECT * FROM {row} 'locked' FOR UPDATE");
            somebody.query_drop(lock).await.unwrap();
            // The second of them shares its batch with the others.
            let first = begin_put(&server, "/kv/locked");
            while waiting_in_mariadb(&mut somebody).await == 0 {}
            let second = begin_put(&server, "/kv/locked");
            let others: Vec<Client> = (0..20).map(|n| begin_put(&server, &format!("/kv/new{n}"))).collect();
            for mut client in [first, second] {
                let answer = client.answer(false).unwrap();
                assert!(is_given_up(&answer), "{answer:?}");
            }
            for mut client in others {
                let answer = client.answer(false).unwrap();
                assert_eq!(answer.status, 201, "{answer:?}");
            }
            assert_eq!(server.client().get("/readyz").status, 200);
            somebody.query_drop("COMMIT").await.unwrap();
        });
        // Waits as long as it may again.
        assert_eq!(client.put("/kv/locked", b"new").status, 204);
        server.kill();
    }
}

/// Each waits for its lock again, in MySQL for a second.
#[test]
fn a_batch_of_locked_rows_in_mariadb_is_refused_in_time() {
    let mariadb = mariadb();
    let server = Server::start(&mariadb.url(), &["--store-write-workers", "1"]);
    let mut client = server.client();
    let paths: Vec<String> = (0..15).map(|n| format!("/kv/{n}")).collect();
    for path in &paths {
        assert_eq!(client.put(path, b"old").status, 201);
    }
    block_on(async {
        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        somebody.query_drop("START TRANSACTION; SELECT * FROM weir_kv FOR UPDATE").await.unwrap();
        for mut client in paths.iter().map(|path| begin_put(&server, path)).collect::<Vec<_>>() {
            let answer = client.answer(false).unwrap();
            let outcome = answer.header("weir-outcome");
            assert_eq!((answer.status, outcome), (503, Some("not-applied")), "{answer:?}");
        }
    });
    assert_eq!(client.get("/kv/0").text(), "old");
}

/// As dumps and backups lock it. A write waited until the lease was lost, and the store was away until the dump had ended.
#[test]
fn a_lock_of_all_tables_of_mariadb_fails_writes_alone() {
    let mariadb = mariadb();
    mariadb.ask("CREATE TABLE things (name VARBINARY(255) PRIMARY KEY, body LONGBLOB NOT NULL)").unwrap();
    let table = format!("{}?table=things&key=name&value=body", mariadb.url());
    for (url, tables) in [(mariadb.url(), "weir_kv READ"), (table, "things READ, weir_versions READ")] {
        let tables = format!("LOCK TABLES {tables}, weir_owner READ, weir_events READ");
        let mut locks = vec![(&*tables, "UNLOCK TABLES"), ("FLUSH TABLES WITH READ LOCK", "UNLOCK TABLES")];
        if mariadb_version().starts_with("MariaDB") {
            // It lets writes begin, and keeps their commits back.
            locks.push(("BACKUP STAGE START; BACKUP STAGE BLOCK_COMMIT", "BACKUP STAGE END"));
        }
        // Old events are removed meanwhile.
        let server = Server::start(&url, &["--event-log", "1s", "--store-write-workers", "1"]);
        let mut client = server.client();
        assert_eq!(client.put("/kv/a", b"old").status, 201);
        assert_eq!(client.put("/kv/b", b"old").status, 201);
        block_on(async {
            let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
            for (lock, unlock) in locks {
                somebody.query_drop(lock).await.unwrap();
                for _ in 0..2 {
                    let answer = client.put("/kv/a", b"new");
                    assert!(is_given_up(&answer), "{lock}: {answer:?}");
                }
                assert_eq!(client.get("/readyz").status, 200, "{lock}");
                assert_eq!(client.get("/kv/a").text(), "old", "{lock}");
                assert_eq!(client.get("/kv/none").status, 404, "{lock}");
                somebody.query_drop(unlock).await.unwrap();
                assert_eq!(client.put("/kv/b", b"new").status, 204, "{lock}");
            }
        });
        assert_eq!(client.stats()["weir_store_leases_total"], 1.0);
        server.kill();
    }
}

/// The driver took no larger packet than the server does. So reading the row cost the lease, again and again.
#[test]
fn a_row_larger_than_todays_packets_of_mariadb_is_read() {
    let mariadb = mariadb_with(&[("max_allowed_packet", "33554432")]);
    mariadb.ask("CREATE TABLE things (name VARBINARY(1024) PRIMARY KEY, body LONGBLOB NOT NULL)").unwrap();
    let flags = ["--value-bytes", "24MiB", "--cache-bytes", "0"];
    let large = vec![b'v'; 20 << 20];
    for url in [mariadb.url(), format!("{}?table=things&key=name&value=body", mariadb.url())] {
        mariadb.ask("SET GLOBAL max_allowed_packet = 33554432").unwrap();
        let server = Server::start(&url, &flags);
        let mut client = server.client();
        assert_eq!(client.put("/kv/large", &large).status, 201);
        assert_eq!(client.put("/kv/small", b"v").status, 201);
        server.kill();
        mariadb.ask("SET GLOBAL max_allowed_packet = 1048576").unwrap();
        let server = Server::start(&url, &flags);
        let mut client = server.client();
        let epoch = || mariadb.ask("SELECT epoch FROM weir_owner").unwrap();
        let before = epoch();
        let found = client.get("/kv/large");
        assert_eq!(found.status, 200);
        assert!(found.body == large);
        // What is sent must fit as before.
        let refused = client.put("/kv/large", &large[..2 << 20]);
        assert_eq!((refused.status, refused.problem()["code"].as_str()), (400, Some("unfit")));
        assert!(refused.text().contains("max_allowed_packet is 1048576"), "{refused:?}");
        assert_eq!(client.ask("DELETE", "/kv/large", &[], b"").unwrap().status, 204);
        assert_eq!(client.put("/kv/small", b"w").status, 204);
        assert_eq!(epoch(), before);
    }
}

/// It was waited for as long as for a server that is gone, and the lease was lost.
#[test]
fn a_list_of_mariadb_that_takes_too_long_fails_alone() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        session.write(&[put("a", b"v", Version::first_of(lease.epoch).0)]).await.unwrap();
        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        somebody.query_drop("LOCK TABLES weir_kv WRITE").await.unwrap();
        let [live, expired] = [false, true].map(|expired| Listing {
            from: Vec::new(),
            until: None,
            limit: 9,
            now: Timestamp(0),
            expired,
        });
        for listing in [&live, &expired] {
            let late = session.list(listing).await.unwrap_err();
            assert_eq!(late.kind(), Kind::Rejected, "{late}");
        }
        somebody.query_drop("UNLOCK TABLES").await.unwrap();
        assert_eq!(session.list(&live).await.unwrap().len(), 1);
    });
}

/// A page of 4 MiB asked for the lengths of 1001 values, and MariaDB reads a value for its length.
#[test]
fn a_list_with_values_read_values_that_are_not_on_its_page() {
    let mariadb = mariadb();
    let server = Server::start(&mariadb.url(), &[]);
    let rows =
        "INSERT INTO weir_kv WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 64)
        SELECT CONCAT('k', LPAD(i, 2, '0')), REPEAT('v', 524288), '', 1, '', NULL FROM n";
    mariadb.ask(rows).unwrap();
    let read = || {
        let read = "SHOW GLOBAL STATUS WHERE variable_name IN ('Handler_read_key', 'Handler_read_next')";
        mariadb.ask(read).unwrap().iter().map(|row| row[1].parse::<f64>().unwrap()).sum::<f64>()
    };
    let (mut client, mut path, mut pages) = (server.client(), "/kv?values=true".to_owned(), 0);
    loop {
        let before = read();
        let page = client.get(&path);
        let read = read() - before;
        assert!(read < 40.0, "page {pages}: {read}");
        pages += 1;
        let Some(link) = page.header("link") else { break };
        path = link.split(['<', '>']).nth(1).unwrap().to_owned();
    }
    assert_eq!(pages, 10);
}

/// One statement removed all of them, however many. If that took longer than a statement may, the lease was lost, again and again.
#[test]
fn old_events_in_mariadb_are_removed_in_parts() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        let mut somebody = mysql_async::Conn::from_url(&mariadb.url()).await.unwrap();
        somebody
            .query_drop(
                "INSERT INTO weir_events
                WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 249)
                SELECT a.i * 100 + b.i + 1, 1, 'e' FROM n a, n b WHERE b.i < 100",
            )
            .await
            .unwrap();
        // Parts are told apart by when their statements began.
        somebody.query_drop("CREATE TABLE parts (at DATETIME(6), id BIGINT)").await.unwrap();
        let note = "CREATE TRIGGER note BEFORE DELETE ON weir_events FOR EACH ROW
            INSERT INTO parts VALUES (NOW(6), OLD.id)";
        somebody.query_drop(note).await.unwrap();
        let left = "SELECT MIN(id) FROM weir_events";
        // As often as it takes.
        while somebody.query_first::<u64, _>(left).await.unwrap() != Some(24001) {
            session.trim_events(24000).await.unwrap();
        }
        let parts = "SELECT COUNT(*) FROM parts GROUP BY at ORDER BY at";
        assert_eq!(somebody.query::<u64, _>(parts).await.unwrap(), [10_000, 10_000, 4000]);
    });
}

#[test]
fn a_table_of_mariadb_that_was_dropped_is_not_made_anew_in_silence() {
    check_dropped(&mariadb());
}

#[test]
fn tables_of_others_in_mariadb_with_the_names_of_weirs_are_named() {
    check_names(&mariadb(), &[], "use another database");
}

#[test]
fn a_server_over_mariadb_without_all_its_sessions_does_not_start() {
    let mariadb = mariadb();
    let name = &mariadb.ask("SELECT DATABASE()").unwrap()[0][0];
    for host in ["localhost", "127.0.0.1"] {
        mariadb.ask(&format!("CREATE USER app@'{host}' WITH MAX_USER_CONNECTIONS 3")).unwrap();
        mariadb.ask(&format!("GRANT ALL ON {name}.* TO app@'{host}'")).unwrap();
    }
    let url = mariadb.url().replace("weir@", "app@");
    let said = check_fails(&url, "this server needs up to 6 sessions: ");
    assert!(said.contains("(1226); hint: raise max_user_connections, or lower"), "{said}");
    for host in ["localhost", "127.0.0.1"] {
        mariadb.ask(&format!("ALTER USER app@'{host}' WITH MAX_USER_CONNECTIONS 6")).unwrap();
    }
    assert_eq!(Server::start(&url, &[]).client().put("/kv/a", b"v").status, 201);
}

/// As PostgreSQL, which waits for the client. The hint was about a synchronous standby, after 15 s.
#[test]
fn what_does_not_greet_is_no_mariadb() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mysql://user@{}/db", silent.local_addr().unwrap());
    let started = std::time::Instant::now();
    let failed = weir().args(["serve", "--listen", "127.0.0.1:0", "--store", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(failed.status.code() == Some(1) && started.elapsed().as_secs() < 15, "{said}");
    assert!(said.contains("hint: MySQL and MariaDB speak at once, so check host and port"), "{said}");
}
