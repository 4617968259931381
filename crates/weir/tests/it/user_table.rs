//! Tables that others made, served as they are: what stands in them, what others write meanwhile, and what cannot work.

use crate::support::{Answer, Client, Server, mariadb, postgres, until, weir};
use lab_run::harness::DatabaseServer;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use store::{self, Kind, Part, contract};

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn url_of(database: &DatabaseServer, table: &str) -> String {
    format!("{}?table={table}&key=name&value=body", database.url())
}

/// A server over the table `settings` with these columns.
fn served(database: &DatabaseServer, columns: &str, flags: &[&str]) -> Server {
    database.ask(&format!("CREATE TABLE settings ({columns})")).unwrap();
    Server::start(&url_of(database, "settings"), flags)
}

fn etag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn put_if(client: &mut Client, path: &str, header: (&str, &str), body: &[u8]) -> u16 {
    client.ask("PUT", path, &[header], body).unwrap().status
}

#[test]
fn a_table_of_bytes_keeps_the_contract() {
    keeps_the_contract(&postgres(), "name bytea PRIMARY KEY, body bytea NOT NULL, note text DEFAULT 'x'");
}

#[test]
fn a_table_of_bytes_in_mariadb_keeps_the_contract() {
    let columns = "name VARBINARY(1024) PRIMARY KEY, body LONGBLOB NOT NULL, note VARCHAR(9) DEFAULT 'x'";
    keeps_the_contract(&mariadb(), columns);
}

fn keeps_the_contract(database: &DatabaseServer, columns: &str) {
    database.ask(&format!("CREATE TABLE things ({columns})")).unwrap();
    let url = url_of(database, "things");
    block_on(contract::all(store::open(&url).unwrap().as_ref()));
    block_on(contract::survives_reopening(|| store::open(&url).unwrap()));
    block_on(contract::keeps_events(|| store::open(&url).unwrap()));
}

#[test]
fn rows_that_were_there_are_served_and_written_and_keep_their_other_columns() {
    serves_what_was_there(
        &postgres(),
        "name text PRIMARY KEY, body text, owner text NOT NULL DEFAULT 'nobody'",
    );
}

#[test]
fn rows_that_were_there_in_mariadb_are_served_and_written_and_keep_their_other_columns() {
    serves_what_was_there(
        &mariadb(),
        "name VARCHAR(99) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT, owner VARCHAR(99) NOT NULL DEFAULT 'nobody'",
    );
}

fn serves_what_was_there(database: &DatabaseServer, columns: &str) {
    let server = served(database, columns, &[]);
    database.ask("INSERT INTO settings VALUES ('a', 'old', 'me'), ('null', NULL, 'me')").unwrap();
    let mut client = server.client();
    let old = client.get("/kv/a");
    assert_eq!((old.text().as_str(), old.header("content-type")), ("old", Some("text/plain; charset=utf-8")));
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", "\"1\""), b"no"), 412);
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", &etag(&old)), b"new"), 204);
    assert_eq!(client.ask("PUT", "/kv/b", &[("Content-Type", "a/b")], b"made").unwrap().status, 201);
    // A row without a value is none.
    assert_eq!(client.get("/kv/null").status, 404);
    assert_eq!(put_if(&mut client, "/kv/null", ("If-None-Match", "*"), b"value"), 201);
    let rows = database.ask("SELECT name, body, owner FROM settings ORDER BY name").unwrap();
    assert_eq!(rows, [["a", "new", "me"], ["b", "made", "nobody"], ["null", "value", "me"]]);
    // What weir keeps beside it outlives the server, but not a change by somebody else.
    let (a, b) = (etag(&client.get("/kv/a")), client.get("/kv/b"));
    server.kill();
    database.ask("UPDATE settings SET body = 'theirs' WHERE name = 'a'").unwrap();
    let server = Server::start(&url_of(database, "settings"), &[]);
    let mut client = server.client();
    assert_eq!(
        (client.get("/kv/b").header("content-type"), etag(&client.get("/kv/b"))),
        (Some("a/b"), etag(&b))
    );
    assert_eq!(client.ask("GET", "/kv/a", &[("If-None-Match", &a)], b"").unwrap().text(), "theirs");
    assert_eq!(client.ask("DELETE", "/kv/b", &[], b"").unwrap().status, 204);
    assert_eq!(database.ask("SELECT count(*) FROM settings").unwrap()[0][0], "2");
}

#[test]
fn what_other_programs_write_is_seen_at_once_and_decides_conditions() {
    let database = postgres();
    let columns = "name varchar(20) PRIMARY KEY, body jsonb NOT NULL";
    let server = served(&database, columns, &["--foreign-writers"]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", b"{\"n\":1}").status, 201);
    let mine = client.get("/kv/a");
    // As the database writes it.
    assert_eq!(mine.text(), "{\"n\": 1}");
    database.ask("UPDATE settings SET body = '{\"n\": 2}'").unwrap();
    let theirs = client.get("/kv/a");
    assert_eq!(theirs.text(), "{\"n\": 2}");
    assert_ne!(etag(&theirs), etag(&mine));
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", &etag(&mine)), b"3"), 412);
    // The same bytes again are the same entity.
    database.ask("UPDATE settings SET body = '{\"n\": 1}'").unwrap();
    assert_eq!(etag(&client.get("/kv/a")), etag(&mine));
    assert_eq!(put_if(&mut client, "/kv/a", ("If-Match", &etag(&mine)), b"3"), 204);
    database.ask("DELETE FROM settings").unwrap();
    assert_eq!(client.get("/kv/a").status, 404);
    database.ask("INSERT INTO settings VALUES ('a', '7')").unwrap();
    assert_eq!(put_if(&mut client, "/kv/a", ("If-None-Match", "*"), b"8"), 412);
    assert_eq!(client.get("/kv/a").text(), "7");
}

/// Both add to one number, each by its own means: none of the additions is lost.
#[test]
fn no_update_is_lost_between_weir_and_another_program() {
    let columns = "name text PRIMARY KEY, body text NOT NULL";
    loses_no_update(&postgres(), columns, "(body::int + 1)::text");
}

#[test]
fn no_update_is_lost_between_weir_and_another_program_in_mariadb() {
    let columns = "name VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT NOT NULL";
    loses_no_update(&mariadb(), columns, "body + 1");
}

fn loses_no_update(database: &DatabaseServer, columns: &str, sum: &str) {
    const EACH: usize = 50;
    let server = served(database, columns, &["--foreign-writers"]);
    server.client().put("/kv/n", b"0");
    let is_done = AtomicBool::new(false);
    let theirs = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut count = 0;
            while !is_done.load(Relaxed) {
                database.ask(&format!("UPDATE settings SET body = {sum}")).unwrap();
                count += 1;
            }
            count
        });
        let add = || {
            let mut client = server.client();
            for _ in 0..EACH {
                loop {
                    let now = client.get("/kv/n");
                    let next = (now.text().parse::<usize>().unwrap() + 1).to_string();
                    match put_if(&mut client, "/kv/n", ("If-Match", &etag(&now)), next.as_bytes()) {
                        204 => break,
                        // Rolled back more often than it is tried again.
                        412 | 503 => {}
                        status => panic!("{status}"),
                    }
                }
            }
        };
        let ours = [scope.spawn(add), scope.spawn(add)];
        ours.into_iter().for_each(|ours| ours.join().unwrap());
        is_done.store(true, Relaxed);
        other.join().unwrap()
    });
    assert!(theirs > 0);
    assert_eq!(server.client().get("/kv/n").text(), (2 * EACH + theirs).to_string());
}

/// Each statement has to find its rows by the index of the key: a collation that is not the column's would have it read all rows.
#[test]
fn a_request_reads_its_own_rows_only() {
    let database = postgres();
    let server = served(&database, "name text PRIMARY KEY, body text NOT NULL", &[]);
    database.ask("INSERT INTO settings SELECT i::text, 'x' FROM generate_series(1, 1000) i").unwrap();
    let read = |columns: &str| {
        let sql = format!("SELECT {columns} FROM pg_stat_user_tables WHERE relname = 'settings'");
        database.ask(&sql).unwrap()[0][0].parse::<u64>().unwrap()
    };
    let before = read("seq_tup_read");
    let mut client = server.client();
    let old = client.get("/kv/7");
    assert_eq!(put_if(&mut client, "/kv/7", ("If-Match", &etag(&old)), b"new"), 204);
    assert_eq!(client.put("/kv/8", b"new").status, 204);
    assert_eq!(client.ask("DELETE", "/kv/9", &[], b"").unwrap().status, 204);
    assert_eq!(client.get("/kv/10").status, 200);
    // A session tells what it did when it ends, or after a second without work.
    drop(server);
    until("the statistics are there", || read("n_tup_upd") == 2 && read("n_tup_del") == 1);
    assert!(read("seq_tup_read") - before < 1000);
}

#[test]
fn keys_and_values_that_do_not_fit_are_refused_as_the_clients_fault() {
    let database = postgres();
    database.ask("CREATE TABLE ids (name uuid UNIQUE, body varchar(3) CHECK (body <> 'bad'))").unwrap();
    let ids = Server::start(&url_of(&database, "ids"), &[]);
    let other = postgres();
    let numbers = served(&other, "name int PRIMARY KEY, body json NOT NULL", &[]);
    let uuid = "/kv/01234567-89ab-cdef-0123-456789abcdef";
    for (server, method, path, body, said) in [
        (&numbers, "GET", "/kv/abc", "", "column name of settings, which is int4"),
        (&numbers, "DELETE", "/kv/007", "", "the key does not fit"),
        (&numbers, "PUT", "/kv/2147483648", "1", "the key does not fit"),
        (&numbers, "PUT", "/kv/1", "{", "invalid input syntax for type json"),
        (&ids, "PUT", "/kv/1", "x", "which is uuid"),
        (&ids, "PUT", uuid, "long", "value too long"),
        (&ids, "PUT", uuid, "bad", "violates check constraint"),
        (&ids, "PUT", uuid, "\0", "the value does not fit"),
    ] {
        let answer = server.client().ask(method, path, &[], body.as_bytes()).unwrap();
        assert_eq!(
            (answer.status, answer.problem()["code"].as_str()),
            (400, Some("unfit")),
            "{path}: {answer:?}"
        );
        assert!(answer.text().contains(said), "{path}: {}", answer.text());
        let outcome = (method != "GET").then_some("not-applied");
        assert_eq!(answer.header("weir-outcome"), outcome, "{path}");
    }
    let mut client = numbers.client();
    assert_eq!(client.put("/kv/-12", b"[1, 2]").status, 201);
    let found = client.get("/kv/-12");
    assert_eq!((found.text().as_str(), found.status), ("[1, 2]", 200));
    assert_eq!(ids.client().put(uuid, b"abc").status, 201);
    let listed = client.get("/kv?limit=1");
    assert_eq!(listed.status, 501);
    assert!(listed.text().contains("it is int4, not bytea"), "{}", listed.text());
}

#[test]
fn tables_of_mariadb_take_what_fits_and_see_what_others_write() {
    let database = mariadb();
    let numbers = served(&database, "name INT PRIMARY KEY, body VARCHAR(3) NOT NULL", &["--foreign-writers"]);
    let mut client = numbers.client();
    for (method, path, body, said) in [
        ("GET", "/kv/abc", "", "column name of settings, which is int"),
        ("DELETE", "/kv/007", "", "the key does not fit"),
        ("PUT", "/kv/1", "long", "Data too long"),
        ("PUT", "/kv/1", "\0", "the value does not fit"),
    ] {
        let answer = client.ask(method, path, &[], body.as_bytes()).unwrap();
        assert_eq!((answer.status, answer.problem()["code"].as_str()), (400, Some("unfit")), "{answer:?}");
        assert!(answer.text().contains(said), "{path}: {}", answer.text());
    }
    assert_eq!(client.put("/kv/-12", "\u{fc}".as_bytes()).status, 201);
    let mine = client.get("/kv/-12");
    assert_eq!(mine.text(), "\u{fc}");
    database.ask("UPDATE settings SET body = 'new'").unwrap();
    assert_eq!(client.get("/kv/-12").text(), "new");
    assert_eq!(put_if(&mut client, "/kv/-12", ("If-Match", &etag(&mine)), b"3"), 412);
    database.ask("UPDATE settings SET body = '\u{fc}'").unwrap();
    assert_eq!(etag(&client.get("/kv/-12")), etag(&mine), "the same bytes again are the same entity");
    database.ask("DELETE FROM settings").unwrap();
    assert_eq!(client.get("/kv/-12").status, 404);
    database.ask("INSERT INTO settings VALUES (5, '7')").unwrap();
    assert_eq!(put_if(&mut client, "/kv/5", ("If-None-Match", "*"), b"8"), 412);
    assert_eq!(client.put("/kv/5", b"8").status, 204);
    assert_eq!(client.get("/kv?limit=1").status, 501);
    let rows = database.ask("SELECT name, body FROM settings").unwrap();
    assert_eq!(rows, [["5", "8"]]);
}

#[test]
fn a_table_of_mariadb_that_cannot_work_is_refused_with_a_remedy() {
    const BIN: &str = "name VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY";
    let database = mariadb();
    for (columns, parts) in [
        ("name VARBINARY(9), body TEXT".to_owned(), &["CREATE UNIQUE INDEX `name` ON `t` (`name`)"][..]),
        ("name TEXT COLLATE utf8mb4_bin, body TEXT, UNIQUE (name(5))".into(), &["is not unique by itself"]),
        (
            "name VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, body TEXT".into(),
            &["takes different keys as equal", "utf8mb4_general_ci", "COLLATE utf8mb4_bin"],
        ),
        (format!("{BIN}, body TEXT, must INT NOT NULL"), &["ALTER TABLE `t` ALTER `must` SET DEFAULT"]),
        (format!("{BIN}, body TEXT, other INT UNIQUE"), &["the column other of t is unique too"]),
        (format!("{BIN}, body INT"), &["body of t is int; values are varbinary"]),
        ("name FLOAT PRIMARY KEY, body TEXT".into(), &["name of t is float; keys are varbinary"]),
        ("name INT UNSIGNED PRIMARY KEY, body TEXT".into(), &["int unsigned"]),
        (format!("{BIN}, content TEXT"), &["has no column body; it has name, content"]),
        (format!("{BIN}, body TEXT AS (name) STORED"), &["body", "is generated"]),
    ] {
        database.ask("DROP TABLE IF EXISTS t").unwrap();
        database.ask(&format!("CREATE TABLE t ({columns})")).unwrap();
        check_refused(&url_of(&database, "t"), parts);
    }
    database.ask("DROP TABLE t").unwrap();
    database.ask(&format!("CREATE TABLE t ({BIN}, body TEXT) ENGINE = MyISAM")).unwrap();
    check_refused(&url_of(&database, "t"), &["MyISAM", "ALTER TABLE `t` ENGINE = InnoDB"]);
    check_refused(&url_of(&database, "nowhere"), &["there is no table nowhere"]);
    database.ask("ALTER TABLE t ENGINE = InnoDB").unwrap();
    let name = &database.ask("SELECT DATABASE()").unwrap()[0][0];
    database.ask("CREATE USER plain@localhost").unwrap();
    database.ask("CREATE USER plain@'127.0.0.1'").unwrap();
    for host in ["localhost", "127.0.0.1"] {
        database.ask(&format!("GRANT SELECT ON {name}.t TO plain@'{host}'")).unwrap();
        database.ask(&format!("GRANT CREATE ON {name}.* TO plain@'{host}'")).unwrap();
    }
    let url = url_of(&database, "t").replace("weir@", "plain@");
    check_refused(
        &url,
        &["lacks rights on the table t; run GRANT SELECT, INSERT, UPDATE, DELETE ON `t` TO `plain`@"],
    );
}

#[test]
fn a_table_that_cannot_work_is_refused_with_a_remedy() {
    let database = postgres();
    for (columns, parts) in [
        ("name text, body text", &["is not unique by itself", "CREATE UNIQUE INDEX ON \"t\" (\"name\")"][..]),
        ("name text, body text, UNIQUE (name, body)", &["is not unique by itself"]),
        ("name text UNIQUE DEFERRABLE, body text", &["is not unique by itself"]),
        (
            "name text PRIMARY KEY, body text, must int NOT NULL",
            &["column must", "ALTER TABLE \"t\" ALTER \"must\" SET DEFAULT"],
        ),
        ("name text PRIMARY KEY, body text GENERATED ALWAYS AS (name) STORED", &["body", "is generated"]),
        ("name float PRIMARY KEY, body text", &["name of t is float8; keys are bytea, text"]),
        ("name text PRIMARY KEY, body int", &["body of t is int4; values are bytea"]),
        ("name text PRIMARY KEY, body jsonb", &["jsonb", "make it json, or add --foreign-writers"]),
        ("name text PRIMARY KEY, content text", &["has no column body; it has name, content"]),
    ] {
        database.ask(&format!("DROP TABLE IF EXISTS t; CREATE TABLE t ({columns})")).unwrap();
        check_refused(&url_of(&database, "t"), parts);
    }
    check_refused(&url_of(&database, "nowhere"), &["there is no table nowhere"]);
    check_refused(&url_of(&database, "pg_class"), &["has no column name"]);
    check_refused(&format!("{}?table=t&key=name", database.url()), &["table, key and value go together"]);
    database.ask("CREATE VIEW v AS SELECT 'a' AS name, 'b' AS body").unwrap();
    check_refused(&url_of(&database, "v"), &["no plain table"]);
    // The rights, one after the other; the statements are those that the errors say.
    database
        .ask("DROP TABLE t; CREATE TABLE t (name text PRIMARY KEY, body text); CREATE ROLE plain LOGIN")
        .unwrap();
    let url = url_of(&database, "t").replace("weir@", "plain@");
    for grant in [
        "GRANT SELECT, INSERT, UPDATE, DELETE ON \"t\" TO \"plain\"",
        "GRANT CREATE ON SCHEMA \"public\" TO \"plain\"",
    ] {
        check_refused(&url, &[grant]);
        database.ask(grant).unwrap();
    }
    acquire(&url).unwrap();
}

/// Acquires a store whose last holder may have only just gone.
fn acquire(url: &str) -> Result<(), store::Error> {
    let store = store::open(url)?;
    loop {
        match block_on(store.acquire(Part::WHOLE)) {
            Err(error) if error.kind().is_taken() || error.to_string().contains("is given twice") => {}
            done => return done.map(drop),
        }
    }
}

fn check_refused(url: &str, parts: &[&str]) {
    let refused = acquire(url);
    let error = refused.expect_err(url);
    let said = error.to_string();
    assert_eq!(error.kind(), Kind::Config, "{said}");
    assert!(parts.iter().all(|part| said.contains(part)) && !said.contains('\n'), "{said}");
}

#[test]
fn foreign_writers_need_a_table_of_their_own() {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--foreign-writers"];
    let output = weir().args(serve).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("?table=NAME&key=COLUMN&value=COLUMN"), "{said}");
}
