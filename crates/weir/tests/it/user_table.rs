//! Tables that others made, served as they are: what stands in them, what others write meanwhile, and what cannot work.

use crate::support::{
    Answer, Client, PATIENCE, Server, acquire_from, block_on, mariadb, mariadb_version, mariadb_with,
    postgres, until, weir,
};
use lab_run::harness::DatabaseServer;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use store::{self, EventBlock, Kind, Part, contract};

pub(crate) fn url_of(database: &DatabaseServer, table: &str) -> String {
    format!("{}?table={table}&key=name&value=body", database.url())
}

/// A server over the table `settings` with these columns.
pub(crate) fn served(database: &DatabaseServer, columns: &str, flags: &[&str]) -> Server {
    database.ask(&format!("CREATE TABLE settings ({columns})")).unwrap();
    Server::start(&url_of(database, "settings"), flags)
}

pub(crate) fn etag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

pub(crate) fn put_if(client: &mut Client, path: &str, header: (&str, &str), body: &[u8]) -> u16 {
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
    for collation in ["default", "C"] {
        database.ask("DROP TABLE IF EXISTS settings").unwrap();
        let columns = format!("name text COLLATE \"{collation}\" PRIMARY KEY, body text NOT NULL");
        let server = served(&database, &columns, &[]);
        // Of fewer rows all may be read.
        database.ask("INSERT INTO settings SELECT i::text, 'x' FROM generate_series(1, 50000) i").unwrap();
        database.ask("ANALYZE settings").unwrap();
        let read = |columns: &str| {
            let sql = format!("SELECT {columns} FROM pg_stat_user_tables WHERE relname = 'settings'");
            database.ask(&sql).unwrap()[0][0].parse::<u64>().unwrap()
        };
        let rows = "seq_tup_read + idx_tup_fetch";
        let before = read(rows);
        let mut client = server.client();
        let old = client.get("/kv/7");
        assert_eq!(put_if(&mut client, "/kv/7", ("If-Match", &etag(&old)), b"new"), 204);
        assert_eq!(client.put("/kv/8", b"new").status, 204);
        assert_eq!(client.ask("DELETE", "/kv/9", &[], b"").unwrap().status, 204);
        assert_eq!(client.get("/kv/10").status, 200);
        assert_eq!(client.ask("PUT", "/kv/11", &[("TTL", "1")], b"new").unwrap().status, 204);
        until("it is removed", || client.stats()["weir_store_expired_total"] == 1.0);
        // A session tells what it did when it ends, or after a second without work.
        drop(server);
        until("the statistics are there", || read("n_tup_upd") == 3 && read("n_tup_del") == 2);
        assert!(read(rows) - before < 1000, "{collation}");
    }
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
        (
            &ids,
            "PUT",
            &uuid.to_uppercase().replace("KV", "kv"),
            "x",
            "which is uuid, in lower case with dashes",
        ),
        (&ids, "PUT", uuid, "long", "which is varchar of at most 3 characters"),
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
    let numbers = served(
        &database,
        "name INT PRIMARY KEY, body VARCHAR(3) CHARACTER SET latin1 NOT NULL",
        &["--foreign-writers"],
    );
    let mut client = numbers.client();
    for (method, path, body, said) in [
        ("GET", "/kv/abc", "", "column name of settings, which is int"),
        ("DELETE", "/kv/007", "", "the key does not fit"),
        ("PUT", "/kv/1", "long", "which is varchar of at most 3 characters"),
        // The character set is latin1.
        ("PUT", "/kv/1", "\u{4e2d}", "Incorrect string value"),
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
fn spaces_beyond_the_length_of_a_column_were_cut_off() {
    takes_no_more_spaces(&postgres(), "name varchar(3) PRIMARY KEY, body varchar(3)", "\u{fc}b ");
}

#[test]
fn spaces_beyond_the_length_of_a_column_of_mariadb_were_cut_off() {
    let collation = if mariadb_version().starts_with("MariaDB") { "nopad_bin" } else { "0900_bin" };
    let name = format!("name VARCHAR(3) COLLATE utf8mb4_{collation} PRIMARY KEY");
    takes_no_more_spaces(&mariadb(), &format!("{name}, body VARCHAR(3)"), "\u{fc}b ");
    // Which has 255 bytes.
    let columns = format!("{name}, body TINYTEXT CHARACTER SET utf8mb4");
    takes_no_more_spaces(&mariadb(), &columns, &("\u{fc}".repeat(127) + " "));
}

/// A key has three characters, and a value as many as `longest`.
fn takes_no_more_spaces(database: &DatabaseServer, columns: &str, longest: &str) {
    let server = served(database, columns, &[]);
    let mut client = server.client();
    for (path, value, status) in [
        ("/kv/a", format!("{longest} "), 400),
        ("/kv/abc%20%20", "x".to_owned(), 400),
        ("/kv/a", longest.to_owned(), 201),
        ("/kv/ab%20", "x".to_owned(), 201),
    ] {
        let answer = client.put(path, value.as_bytes());
        assert_eq!(answer.status, status, "{path}: {answer:?}");
        assert!(status != 400 || answer.problem()["code"] == "unfit", "{answer:?}");
    }
    assert_eq!(client.get("/kv/a").text(), longest);
    assert_eq!(client.get("/kv/ab%20").text(), "x");
}

#[test]
fn rows_whose_keys_are_no_bytes_were_never_removed() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for (database, kind, key) in [
        (&postgres, "text", "a"),
        (&postgres, "int", "7"),
        (&postgres, "uuid", "01234567-89ab-cdef-0123-456789abcdef"),
        (&mariadb, "VARCHAR(9) COLLATE utf8mb4_bin", "a"),
        (&mariadb, "INT", "7"),
    ] {
        database.ask("DROP TABLE IF EXISTS settings").unwrap();
        let server = served(database, &format!("name {kind} PRIMARY KEY, body text"), &[]);
        // Of an earlier table.
        database.ask("DELETE FROM weir_versions").unwrap();
        for name in ["none", "70000000000", "9999999999999999999", "0123456789", "\\xff"] {
            let row = format!("('{name}', '{}', 1, '', '', 1)", "x".repeat(32));
            database.ask(&format!("INSERT INTO weir_versions VALUES {row}")).unwrap();
        }
        let watch = TcpStream::connect(server.address).unwrap();
        watch.set_read_timeout(Some(PATIENCE)).unwrap();
        (&watch).write_all(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut lines = BufReader::new(&watch).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.starts_with("id: ")), "the events begin");
        let (path, mut client) = (format!("/kv/{key}"), server.client());
        assert_eq!(client.ask("PUT", &path, &[("TTL", "1")], b"x").unwrap().status, 201);
        assert!(lines.any(|line| line == "event: expire"), "{kind}");
        assert_eq!(database.ask("SELECT count(*) FROM settings").unwrap()[0][0], "0", "{kind}");
    }
}

#[test]
fn a_list_ended_at_a_row_whose_key_weir_does_not_have() {
    let (postgres, mariadb) = (postgres(), mariadb());
    for (database, columns) in [
        (&postgres, "name bytea PRIMARY KEY, body bytea"),
        (&mariadb, "name VARBINARY(1025) PRIMARY KEY, body BLOB"),
    ] {
        let server = served(database, columns, &[]);
        let long = "c".repeat(1025);
        let rows = ["", "a", "b", "c", &long, "d", "e"].map(|name| format!("('{name}', 'x')"));
        database.ask(&format!("INSERT INTO settings VALUES {}", rows.join(", "))).unwrap();
        let (mut client, mut keys, mut after) = (server.client(), String::new(), String::new());
        loop {
            let page = client.get(&format!("/kv?limit=2{after}")).problem();
            page["keys"].as_array().unwrap().iter().for_each(|entry| keys += entry["key"].as_str().unwrap());
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(keys, "abcde", "{columns}");
    }
}

#[test]
fn what_a_trigger_refuses_failed_the_writes_beside_it() {
    let database = postgres();
    let server = served(&database, "name text PRIMARY KEY, body text", &[]);
    for (refusal, said) in [
        ("RAISE EXCEPTION 'it is bad'", "it is bad"),
        ("RAISE EXCEPTION 'it is bad' USING ERRCODE = 'U0001'", "it is bad"),
        // These were answered as written.
        ("RETURN NULL", "a trigger left a row out"),
        ("NEW.name = 'other'", "or changed its key"),
    ] {
        database
            .ask(&format!(
                "CREATE OR REPLACE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                    IF NEW.body = 'bad' THEN {refusal}; END IF;
                    RETURN NEW;
                END $$"
            ))
            .unwrap();
        database.ask("DROP TRIGGER IF EXISTS look ON settings").unwrap();
        let trigger =
            "CREATE TRIGGER look BEFORE INSERT OR UPDATE ON settings FOR EACH ROW EXECUTE FUNCTION look()";
        database.ask(trigger).unwrap();
        writes_what_its_trigger_takes(&server, said);
        database.ask("DELETE FROM settings").unwrap();
    }
}

#[test]
fn what_a_trigger_of_mariadb_refuses_failed_the_writes_beside_it() {
    let database = mariadb();
    let server = served(&database, "name VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT", &[]);
    let trigger = "CREATE TRIGGER look BEFORE INSERT ON settings FOR EACH ROW
        IF NEW.body = 'bad' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'it is bad'; END IF";
    database.ask(trigger).unwrap();
    writes_what_its_trigger_takes(&server, "it is bad");
}

/// Its trigger refuses the value `bad`, as is `said`.
fn writes_what_its_trigger_takes(server: &Server, said: &str) {
    let put = |key: usize| {
        let value = if key == 5 { "bad" } else { "good" };
        format!("{{\"op\":\"put\",\"key\":\"{key}\",\"value\":\"{value}\"}}\n")
    };
    let lines: String = (0..10).map(put).collect();
    let answer = server.client().ask("POST", "/batch", &[], lines.as_bytes()).unwrap().text();
    let answers: Vec<serde_json::Value> =
        answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (key, line) in answers[..10].iter().enumerate() {
        assert_eq!(line["status"], if key == 5 { 400 } else { 201 }, "{key}: {answer}");
    }
    assert!(answers[5]["code"] == "unfit" && answer.contains(said), "{answer}");
}

#[test]
fn removing_a_key_removed_another_one_with_a_space_behind_it() {
    let database = mariadb();
    let server = served(&database, "name VARCHAR(9) COLLATE utf8mb4_bin PRIMARY KEY, body TEXT", &[]);
    database.ask("INSERT INTO settings VALUES ('a ', 'theirs'), ('b', 'theirs')").unwrap();
    for path in ["/kv/a", "/kv/b"] {
        server.client().ask("DELETE", path, &[], b"").unwrap();
    }
    assert_eq!(database.ask("SELECT name FROM settings").unwrap(), [["a "]]);
}

#[test]
fn events_too_large_for_mariadb_cost_the_connection() {
    let database = mariadb_with(&[("max_allowed_packet", "1048576")]);
    database.ask("CREATE TABLE things (name VARBINARY(9) PRIMARY KEY, body BLOB)").unwrap();
    let store = store::open(&url_of(&database, "things")).unwrap();
    block_on(async {
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        for (bytes, kind) in [(1 << 20, Err(Kind::Unfit)), (1 << 10, Ok(()))] {
            let block = EventBlock { id: 1, at: lease.now, body: vec![0; bytes].into() };
            let written = session.write_with(&[], Some(&block)).await;
            assert_eq!(written.map(drop).map_err(|error| error.kind()), kind);
        }
    });
}

#[test]
fn a_constraint_that_failed_at_the_commit_cost_the_store() {
    let database = postgres();
    database.ask("CREATE TABLE other (name text PRIMARY KEY)").unwrap();
    database.ask("INSERT INTO other VALUES ('there')").unwrap();
    let body = "body text REFERENCES other DEFERRABLE INITIALLY DEFERRED";
    let server = served(&database, &format!("name text PRIMARY KEY, {body}"), &[]);
    let mut client = server.client();
    let refused = client.ask("PUT", "/kv/a", &[("If-None-Match", "*")], b"nowhere").unwrap();
    assert_eq!((refused.status, refused.header("weir-outcome")), (400, Some("not-applied")), "{refused:?}");
    assert!(refused.text().contains("violates foreign key constraint"), "{}", refused.text());
    assert_eq!(put_if(&mut client, "/kv/a", ("If-None-Match", "*"), b"there"), 201);
}

/// In the night in which clocks are put back.
#[test]
fn the_time_of_a_lease_was_an_hour_wrong_where_local_time_repeats() {
    const CHANGE: u64 = 1_729_990_800;
    let database = mariadb();
    for zone in [
        "time_zone VALUES (1, 'N')".to_owned(),
        "time_zone_name VALUES ('Twice', 1)".into(),
        "time_zone_transition_type VALUES (1, 0, 7200, 1, 'S'), (1, 1, 3600, 0, 'W')".into(),
        format!("time_zone_transition VALUES (1, 0, 0), (1, {CHANGE}, 1)"),
    ] {
        database.ask(&format!("INSERT INTO mysql.{zone}")).unwrap();
    }
    // What a session begins with is not for those who may do everything.
    let name = &database.ask("SELECT DATABASE()").unwrap()[0][0];
    database.ask("CREATE USER plain@'127.0.0.1'").unwrap();
    database.ask(&format!("GRANT ALL ON {name}.* TO plain@'127.0.0.1'")).unwrap();
    database.ask("CREATE TABLE settings (name INT PRIMARY KEY, body TEXT)").unwrap();
    let url = url_of(&database, "settings").replace("weir@", "plain@");
    for now in [CHANGE - 1800, CHANGE + 1800] {
        let begin = format!("SET time_zone = 'Twice', timestamp = {now}");
        database.ask(&format!("SET GLOBAL init_connect = \"{begin}\"")).unwrap();
        assert_eq!(acquire(&url).unwrap(), now * 1000);
    }
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
        (
            "name VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin PRIMARY KEY, body TEXT".into(),
            &["cannot hold all characters", "latin1", "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"],
        ),
        (format!("{BIN}, body TEXT, must INT NOT NULL"), &["ALTER TABLE `t` ALTER `must` SET DEFAULT"]),
        (
            format!("{BIN}, body TEXT, other INT UNIQUE"),
            &["the index other of t is unique without the column name", "drop it"],
        ),
        (
            format!("{BIN}, body TEXT, x INT DEFAULT 1, y INT DEFAULT 1, UNIQUE pair (x, y)"),
            &["the index pair of t"],
        ),
        (format!("{BIN}, body TEXT, x INT DEFAULT 1, UNIQUE pair (name(5), x)"), &["the index pair of t"]),
        // Each write takes a number, also of a row that is there; in MySQL the last one is taken again.
        (
            "id INT AUTO_INCREMENT PRIMARY KEY, name VARBINARY(9) UNIQUE, body TEXT".into(),
            &["the index PRIMARY of t"],
        ),
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
        ("name int GENERATED ALWAYS AS IDENTITY UNIQUE, body text", &["name", "is generated", "BY DEFAULT"]),
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
    check_refused(&url_of(&database, "public.weir_kv"), &["is a table of weir itself: name one of another"]);
    check_refused(&url_of(&database, "t").replace("body", "name"), &["are the same column: name two"]);
    database.ask("CREATE VIEW v AS SELECT 'a' AS name, 'b' AS body").unwrap();
    check_refused(&url_of(&database, "v"), &["no plain table"]);
    database.ask("CREATE UNLOGGED TABLE u (name text PRIMARY KEY, body text)").unwrap();
    check_refused(&url_of(&database, "u"), &["a crash of the server empties it", "TABLE \"u\" SET LOGGED"]);
    database
        .ask(
            "CREATE TABLE parts (name text PRIMARY KEY, body text) PARTITION BY HASH (name);
             CREATE UNLOGGED TABLE part PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        )
        .unwrap();
    check_refused(&url_of(&database, "parts"), &["a crash of the server empties it"]);
    database.ask("CREATE TABLE p (name text PRIMARY KEY, body text)").unwrap();
    database.ask("CREATE TABLE c () INHERITS (p)").unwrap();
    check_refused(&url_of(&database, "p"), &["other tables inherit from p"]);
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

/// Acquires a store whose last holder may have only just gone; its time, in milliseconds.
pub(crate) fn acquire(url: &str) -> Result<u64, store::Error> {
    let store = store::open(url)?;
    block_on(async { acquire_from(store.as_ref()).await.map(|lease| lease.now.0) })
}

pub(crate) fn check_refused(url: &str, parts: &[&str]) {
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
