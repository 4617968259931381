//! Tables that others made: which row a write makes, and which one it replaces.

use super::user_table::{acquire, check_refused, etag, put_if, served, url_of};
use crate::postgres::WAITING;
use crate::support::{PATIENCE, Server, block_on, mariadb, postgres, runtime, until, weir};
use kv::{Change, Key, Row, Version, Write};
use lab_run::harness::DatabaseServer;
use std::time::Instant;
use store::{Kind, Part};

/// A write that was repeated was "done" before, and nothing was written: it was done to rows that are served no more.
#[test]
fn what_was_done_to_the_rows_of_another_table_does_not_count() {
    counts_what_was_done_to_its_own_rows(&postgres(), "name text PRIMARY KEY, body text");
}

#[test]
fn what_was_done_to_the_rows_of_another_table_of_mariadb_does_not_count() {
    let columns = "name VARCHAR(99) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT";
    counts_what_was_done_to_its_own_rows(&mariadb(), columns);
}

fn counts_what_was_done_to_its_own_rows(database: &DatabaseServer, columns: &str) {
    database.ask(&format!("CREATE TABLE settings ({columns})")).unwrap();
    let (own, table) = (database.url(), url_of(database, "settings"));
    for (url, names) in [(&own, &["a"][..]), (&table, &["a", "b"]), (&table, &[]), (&own, &["b"])] {
        let server = Server::start(url, &[]);
        let mut client = server.client();
        for name in names {
            let path = format!("/kv/{name}");
            assert_eq!(put_if(&mut client, &path, ("Idempotency-Key", name), b"v"), 201, "{url}");
            assert_eq!(put_if(&mut client, &path, ("Idempotency-Key", name), b"v"), 201, "{url}");
            assert_eq!(client.get(&path).text(), "v", "{url}");
        }
        server.kill();
    }
}

/// PostgreSQL does not say of a row in a partition by which transaction it was replaced.
#[test]
fn no_new_row_could_be_made_in_a_partitioned_table() {
    let database = postgres();
    let partitioned = "name text PRIMARY KEY, body text) PARTITION BY HASH (name";
    let server = served(&database, partitioned, &[]);
    database.ask("CREATE TABLE one PARTITION OF settings FOR VALUES WITH (MODULUS 1, REMAINDER 0)").unwrap();
    database.ask("INSERT INTO settings VALUES ('null', NULL)").unwrap();
    let mut client = server.client();
    // A row without a value is none.
    for (path, status) in [("/kv/a", 201), ("/kv/a", 204), ("/kv/null", 201), ("/kv/null", 204)] {
        let answer = client.put(path, b"v");
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    assert_eq!(put_if(&mut client, "/kv/b", ("If-None-Match", "*"), b"v"), 201);
    assert_eq!(put_if(&mut client, "/kv/b", ("If-None-Match", "*"), b"v"), 412);
    assert_eq!(client.ask("DELETE", "/kv/a", &[], b"").unwrap().status, 204);
    let rows = database.ask("SELECT name, body FROM one ORDER BY name").unwrap();
    assert_eq!(rows, [["b", "v"], ["null", "v"]]);
}

/// Each write of it took one. Once there was none left, every write failed, the table's other programs' too.
#[test]
fn a_row_that_was_replaced_took_a_number_of_a_sequence() {
    let database = postgres();
    database.ask("CREATE SEQUENCE numbers MAXVALUE 5").unwrap();
    let columns = "id int DEFAULT nextval('numbers') PRIMARY KEY, name text UNIQUE, body text";
    let server = served(&database, columns, &[]);
    let mut client = server.client();
    for (n, status) in [201].into_iter().chain([204; 9]).enumerate() {
        let answer = client.put("/kv/a", n.to_string().as_bytes());
        assert_eq!(answer.status, status, "{answer:?}");
    }
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", "*"), b"10"), 204);
    // One that is there and one that is new, together.
    let lines = ["b", "a"].map(|key| format!("{{\"op\":\"put\",\"key\":\"{key}\",\"value\":\"11\"}}\n"));
    let written = client.ask("POST", "/batch", &[], lines.concat().as_bytes()).unwrap().text();
    assert!(written.ends_with("\"failed\":0}\n"), "{written}");
    let rows = database.ask("SELECT id, name, body FROM settings ORDER BY id").unwrap();
    assert_eq!(rows, [["1", "a", "11"], ["2", "b", "11"]]);
}

/// A row that is not there cannot be locked.
#[test]
fn what_another_program_makes_meanwhile_is_not_replaced() {
    let database = postgres();
    let server = served(&database, "name text PRIMARY KEY, body text", &["--foreign-writers"]);
    block_on(async {
        let (other, connection) =
            tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        other.batch_execute("BEGIN; INSERT INTO settings VALUES ('a', 'theirs')").await.unwrap();
        let mut client = server.client();
        let put =
            "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: *\r\nContent-Length: 4\r\n\r\nours";
        client.send(put.as_bytes()).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while other.query(WAITING, &[]).await.unwrap().is_empty() {
            assert!(Instant::now() < deadline, "the write never reached the database");
            // In a transaction it is the same all the time.
            other.batch_execute("SELECT pg_stat_clear_snapshot()").await.unwrap();
        }
        other.batch_execute("COMMIT").await.unwrap();
        assert_eq!(client.answer(false).unwrap().status, 412);
        assert_eq!(client.get("/kv/a").text(), "theirs");
    });
}

/// It failed, and with it all that were read in the same batch.
#[test]
fn a_key_with_characters_that_the_database_does_not_have_is_absent() {
    let database = postgres();
    let of = "TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'";
    database.ask(&format!("CREATE DATABASE latin {of}")).unwrap();
    database.query("latin", "CREATE TABLE settings (name text PRIMARY KEY, body text)").unwrap();
    let url = url_of(&database, "settings").replace("/postgres?", "/latin?");
    block_on(async {
        let store = store::open(&url).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        let keys = ["\u{20ac}", "\u{fc}"].map(|name| Key::new(name.as_bytes()).unwrap());
        let row = Row::new(&keys[1], "", b"v", Version(1));
        let put =
            |key: &Key| Write { key: key.clone(), version: Version(1), change: Change::Put(row.clone()) };
        session.write(&[put(&keys[1])]).await.unwrap();
        // Not known, and no failure: they are read one by one.
        assert_eq!((session.value_bytes(&keys).await, session.value_bytes(&keys[1..]).await), (Ok(0), Ok(1)));
        let mut rows = Vec::new();
        while rows.len() < keys.len() {
            rows.extend(session.read(&keys[rows.len()..]).await.unwrap());
        }
        assert!(rows[0].is_none() && rows[1].as_ref().is_some_and(|row| row.value() == b"v"));
        assert_eq!(session.write(&[put(&keys[0])]).await.unwrap_err().kind(), Kind::Unfit);
    });
}

#[test]
fn the_key_0_became_the_next_number() {
    let database = mariadb();
    let server = served(&database, "name INT AUTO_INCREMENT PRIMARY KEY, body TEXT", &[]);
    assert_eq!(server.client().put("/kv/0", b"x").status, 201);
    assert_eq!(database.ask("SELECT name FROM settings").unwrap(), [["0"]]);
}

#[test]
fn what_others_wrote_had_the_lifetime_of_an_earlier_value() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for (database, kind) in [(&postgres, "text"), (&mariadb, "VARCHAR(9) COLLATE utf8mb4_bin")] {
        let columns = format!("name {kind} PRIMARY KEY, body text");
        let server = served(database, &columns, &["--foreign-writers"]);
        let mut client = server.client();
        assert_eq!(client.ask("PUT", "/kv/a", &[("TTL", "1")], b"x").unwrap().status, 201);
        // A few of them at a time took minutes.
        let line = |key| format!("{{\"op\":\"put\",\"key\":\"{key}\",\"value\":\"x\",\"ttl\":1}}\n");
        let lines: String = (0..1000).map(line).collect();
        assert!(
            client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap().text().ends_with("\"failed\":0}\n")
        );
        database.ask("DELETE FROM settings").unwrap();
        let noted = || database.ask("SELECT count(expires) FROM weir_versions").unwrap()[0][0] != "0";
        until("the lifetime is forgotten", || !noted());
        // The same value again.
        database.ask("INSERT INTO settings VALUES ('a', 'x')").unwrap();
        assert_eq!(client.get("/kv/a").text(), "x", "{kind}");
    }
}

/// The same value under the same key of another table had the lifetime, too: its row was removed with all its columns.
#[test]
fn what_is_noted_of_one_table_is_not_of_another() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for (database, key) in [(&postgres, "key"), (&mariadb, "`key`")] {
        for table in ["sessions", "flags"] {
            let columns = "name int PRIMARY KEY, body varchar(9)";
            database.ask(&format!("CREATE TABLE {table} ({columns})")).unwrap();
        }
        let [sessions, flags] = ["sessions", "flags"].map(|table| url_of(database, table));
        let server = Server::start(&sessions, &["--lab"]);
        let mut client = server.client();
        // What the notes are of is not cleared with them.
        assert_eq!(client.ask("DELETE", "/kv", &[], b"").unwrap().status, 204);
        assert_eq!(client.ask("PUT", "/kv/7", &[("TTL", "1")], b"1").unwrap().status, 201);
        server.kill();
        database.ask("INSERT INTO flags VALUES (7, '1')").unwrap();
        let unmark = format!("DELETE FROM weir_versions WHERE {key} = ''");
        check_refused(&flags, &["is of another table, or other columns, than flags", &unmark]);
        // An earlier version did not say it.
        database.ask(&unmark).unwrap();
        acquire(&sessions).unwrap();
        check_refused(
            &flags,
            &["; a database is one store: use another one", "run DELETE FROM weir_versions, which"],
        );
        database.ask("DELETE FROM weir_versions").unwrap();
        let server = Server::start(&flags, &[]);
        assert_eq!(server.client().get("/kv/7").text(), "1");
    }
}

/// A table of weir's was made, without rows, and the others were out of sight.
#[test]
fn a_store_over_a_table_of_others_was_served_without_it() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for database in [&postgres, &mariadb] {
        database.ask("CREATE TABLE flags (name int PRIMARY KEY, body varchar(9))").unwrap();
        let flags = url_of(database, "flags");
        acquire(&flags).unwrap();
        let remedy = "add table=NAME&key=COLUMN&value=COLUMN to its URL";
        check_refused(&database.url(), &["has used it with a table that already exists; ", remedy]);
        let made = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'weir_kv'";
        assert_eq!(database.ask(made).unwrap()[0][0], "0");
        acquire(&flags).unwrap();
        // Without it lifetimes are gone.
        database.ask("DROP TABLE weir_versions").unwrap();
        check_refused(&flags, &["has no table weir_versions", "run DELETE FROM weir_map"]);
    }
}

#[test]
fn a_cache_over_a_table_of_others_is_told_at_the_start() {
    let postgres = postgres();
    postgres.ask("CREATE TABLE flags (name text PRIMARY KEY, body text)").unwrap();
    for (flag, lines) in [(None, 1), (Some("--foreign-writers"), 0)] {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--until-stdin-ends", "--store"];
        let served = weir().args(serve).arg(url_of(&postgres, "flags")).args(flag).output().unwrap();
        let said = String::from_utf8_lossy(&served.stderr);
        assert!(served.status.success(), "{said}");
        let told = "what other programs write to flags is not noticed while the value before is cached; with --foreign";
        assert_eq!(said.matches(told).count(), lines, "{said}");
    }
}

#[test]
fn a_write_to_a_session_that_had_ended_was_unknown() {
    let database = postgres();
    database.ask("CREATE TABLE settings (name bytea PRIMARY KEY, body bytea)").unwrap();
    let url = url_of(&database, "settings");
    block_on(async {
        let store = store::open(&url).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        std::thread::scope(|scope| {
            let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'weir session'";
            scope.spawn(|| database.ask(end).unwrap());
        });
        let (key, version) = (Key::new(b"a").unwrap(), Version(1));
        let write = [Write { key, version, change: Change::Delete }];
        let deadline = Instant::now() + PATIENCE;
        // One may have been on its way.
        while !session.write(&write).await.is_err_and(|error| error.kind() == Kind::Unavailable) {
            assert!(Instant::now() < deadline, "it is still unknown");
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    });
}

/// Requests that wait for the lease are not checked when they come: the table is not known then. A database takes 007 for 7.
#[test]
fn a_session_refuses_a_key_that_the_table_has_under_another_name() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for database in [&postgres, &mariadb] {
        database.ask("CREATE TABLE numbers (name int PRIMARY KEY, body varchar(9))").unwrap();
        database.ask("INSERT INTO numbers VALUES (7, 'seven')").unwrap();
        let store = store::open(&url_of(database, "numbers")).unwrap();
        let key = Key::new(b"007").unwrap();
        block_on(async {
            let lease = store.acquire(Part::WHOLE).await.unwrap();
            let mut session = store.connect(lease.epoch).await.unwrap();
            let version = Version::first_of(lease.epoch);
            let writes = [Write { key: key.clone(), version, change: Change::Delete }];
            let read = session.read(std::slice::from_ref(&key)).await.err().unwrap();
            let written = session.write(&writes).await.err().unwrap();
            assert_eq!([read.kind(), written.kind()], [Kind::Unfit; 2]);
        });
        assert_eq!(database.ask("SELECT body FROM numbers").unwrap(), [["seven"]]);
    }
}

/// What was acknowledged was gone after a crash of the database, or could not be rolled back.
#[test]
fn tables_of_weir_that_were_made_less_durable_are_refused() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for (database, make, remedy) in [
        (&postgres, "ALTER TABLE weir_kv SET UNLOGGED", "ALTER TABLE weir_kv SET LOGGED"),
        (&mariadb, "ALTER TABLE weir_kv ENGINE = Aria", "ALTER TABLE weir_kv ENGINE = InnoDB"),
    ] {
        acquire(&database.url()).unwrap();
        database.ask(make).unwrap();
        check_refused(&database.url(), &[remedy]);
        database.ask(remedy).unwrap();
        acquire(&database.url()).unwrap();
    }
}

/// Once a row had a lifetime, whether another had expired was read before each write: what was read decided it then.
#[test]
fn a_write_without_a_condition_replaces_what_changed_since_it_was_read() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for database in [&postgres, &mariadb] {
        database.ask("CREATE TABLE numbers (name int PRIMARY KEY, body varchar(9))").unwrap();
        let store = store::open(&url_of(database, "numbers")).unwrap();
        let keys = [Key::new(b"7").unwrap()];
        let runtime = runtime();
        let lease = runtime.block_on(store.acquire(Part::WHOLE)).unwrap();
        let mut session = runtime.block_on(store.connect(lease.epoch)).unwrap();
        for (by, expected) in [(&[][..], Ok(())), (&keys, Err(Kind::Retry))] {
            database.ask("INSERT INTO numbers VALUES (7, 'old')").unwrap();
            session.begin_decision(false, by);
            runtime.block_on(session.read(&keys)).unwrap();
            database.ask("UPDATE numbers SET body = 'theirs'").unwrap();
            let version = Version::first_of(lease.epoch);
            let change = Change::Put(Row::new(&keys[0], "", b"ours", version));
            let writes = [Write { key: keys[0].clone(), version, change }];
            let written = runtime.block_on(session.write(&writes));
            assert_eq!(written.map(drop).map_err(|error| error.kind()), expected);
            database.ask("DELETE FROM numbers").unwrap();
        }
    }
}

/// Without the flag it is not seen, but a condition is decided by it: who then reads anew must get it, or would never succeed.
#[test]
fn a_condition_that_failed_shows_what_another_program_wrote() {
    let database = postgres();
    let server = served(&database, "name varchar(20) PRIMARY KEY, body text NOT NULL", &[]);
    let mut client = server.client();
    client.put("/kv/a", b"5");
    let tag = etag(&client.get("/kv/a"));
    database.ask("UPDATE settings SET body = '6'").unwrap();
    assert_eq!(client.get("/kv/a").text(), "5", "cached");
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", &tag), b"7"), 412);
    let theirs = client.get("/kv/a");
    assert_eq!(theirs.text(), "6");
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", &etag(&theirs)), b"7"), 204);
    database.ask("DELETE FROM settings").unwrap();
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", "*"), b"8"), 412);
    assert_eq!(client.get("/kv/a").status, 404);
}
