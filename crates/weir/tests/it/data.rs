//! What is done with values besides storing them whole and for ever: lists, batches, lifetimes, ranges, codings.

use crate::support::{Answer, Client, Server, mariadb, postgres, until};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};

/// A server over each kind of store, and what has to live as long as it.
fn each_store(check: impl Fn(&mut Client, &str)) {
    let directory = tempfile::tempdir().unwrap();
    let (postgres, mariadb) = (postgres(), mariadb());
    let second = {
        postgres.query("postgres", "CREATE DATABASE second").unwrap();
        postgres.url_of("second")
    };
    postgres.query("postgres", "CREATE DATABASE third").unwrap();
    let third = postgres.url_of("third");
    let embedded = format!("file:{}/store", directory.path().display());
    for (store, more) in [
        ("memory:", vec![]),
        (&embedded, vec![]),
        (&postgres.url(), vec![]),
        (&mariadb.url(), vec![]),
        (&second, vec!["--store", &third]),
    ] {
        let name = store.split(':').next().unwrap_or_default();
        let server = Server::start(store, &more);
        check(&mut server.client(), name);
    }
}

fn document(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

/// The keys and prefixes of a whole list, page by page.
fn list(client: &mut Client, query: &str) -> Vec<String> {
    let mut path = format!("/kv?{query}");
    let mut names = Vec::new();
    loop {
        let answer = client.get(&path);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = document(&answer);
        let mut entries: Vec<String> = page["keys"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["key"].as_str().map_or(row["key_b64"].to_string(), str::to_owned))
            .collect();
        let prefixes = page["prefixes"].as_array().into_iter().flatten();
        entries.extend(prefixes.map(|prefix| prefix["prefix"].as_str().unwrap().to_owned()));
        entries.sort();
        names.extend(entries);
        let link = answer.header("link").map(str::to_owned);
        assert_eq!(link.is_some(), page["next"].is_string());
        match link {
            Some(link) => path = link.strip_prefix('<').unwrap().split('>').next().unwrap().to_owned(),
            None => return names,
        }
    }
}

#[test]
fn keys_are_listed_in_order_a_page_at_a_time() {
    each_store(|client, store| {
        let mut names: Vec<String> = (0..25).map(|i| format!("a/{}/{i}", i % 4)).collect();
        names.extend(["a", "a/", "b", "B", "\u{fc}", "z/1"].map(str::to_owned));
        for name in &names {
            let path = format!("/kv/{name}").replace('\u{fc}', "%C3%BC");
            assert_eq!(client.put(&path, name.as_bytes()).status, 201, "{store}: {name}");
        }
        names.sort();
        for limit in [1, 3, 7, 31, 1000] {
            assert_eq!(list(client, &format!("limit={limit}")), names, "{store}, {limit} a page");
            let under: Vec<&String> = names.iter().filter(|name| name.starts_with("a/")).collect();
            assert!(list(client, &format!("prefix=a/&limit={limit}")).iter().eq(under), "{store}");
            let mut rolled = list(client, &format!("delimiter=/&limit={limit}"));
            rolled.sort();
            assert_eq!(rolled, ["B", "a", "a/", "b", "z/", "\u{fc}"], "{store}, {limit} a page");
            let mut rolled = list(client, &format!("prefix=a/&delimiter=/&limit={limit}"));
            rolled.sort();
            assert_eq!(rolled, ["a/", "a/0/", "a/1/", "a/2/", "a/3/"], "{store}, {limit} a page");
        }
        assert!(list(client, "prefix=c").is_empty());
        let page = document(&client.get("/kv?prefix=a/1/&values=true&limit=2"));
        assert_eq!((&page["keys"][0]["key"], &page["keys"][0]["value"]), (&json!("a/1/1"), &json!("a/1/1")));
        let lines = client.ask("GET", "/kv?prefix=z", &[("Accept", "application/x-ndjson")], b"").unwrap();
        assert_eq!(lines.header("content-type"), Some("application/x-ndjson"));
        let text = lines.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains("\"key\":\"z/1\"") && lines[1] == "{\"next\":null}", "{store}: {text}");
        // What is deleted is gone, and a key that is no text is in base64.
        client.ask("DELETE", "/kv/z/1", &[], b"").unwrap();
        assert!(list(client, "prefix=z").is_empty(), "{store}");
        client.put("/kv/%ff%00", b"\xff");
        let page = document(&client.get("/kv?prefix=%ff&values=true"));
        assert_eq!(
            (&page["keys"][0]["key_b64"], &page["keys"][0]["value_b64"]),
            (&json!("/wA="), &json!("/w=="))
        );
        assert_eq!(client.ask("HEAD", "/kv", &[], b"").unwrap().status, 200);
    });
}

/// The store is asked for each prefix of many keys, and the page went on until it had as many as were asked for.
#[test]
fn a_list_that_takes_long_ends_with_what_it_has() {
    let server = Server::start("memory:", &["--lab", "--inject", "store_worker=500ms"]);
    let mut client = server.client();
    let line = |i| format!("{{\"op\":\"put\",\"key\":\"{}/{i}\",\"value\":\"\"}}\n", i / 10);
    let lines: String = (0..100).map(line).collect();
    client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap();
    let page = document(&client.get("/kv?delimiter=/&limit=10"));
    assert!((1..10).contains(&page["prefixes"].as_array().unwrap().len()) && page["next"].is_string());
    let expected: Vec<String> = (0..10).map(|i| format!("{i}/")).collect();
    assert_eq!(list(&mut client, "delimiter=/&limit=10"), expected);
}

#[test]
fn a_list_with_large_values_has_small_pages() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    for i in 0..9 {
        client.put(&format!("/kv/{i}"), &vec![b'x'; 1 << 20]);
    }
    let first = document(&client.get("/kv?values=true"));
    assert_eq!(first["keys"].as_array().unwrap().len(), 3);
    assert_eq!(list(&mut client, "values=true").len(), 9);
    // Of several stores it had as much of each: of nine, an export read no page with their largest values.
    let directory = tempfile::tempdir().unwrap();
    let [one, two, three] = [1, 2, 3].map(|number| format!("file:{}/{number}", directory.path().display()));
    // And all were held at the same time, which was refused for ever: two pages have to do.
    let server = Server::start(&one, &["--store", &two, "--store", &three, "--memory-budget", "17MiB"]);
    let mut client = server.client();
    for i in 0..9 {
        client.put(&format!("/kv/{i}"), &vec![b'x'; 8 << 20]);
    }
    let first = document(&client.get("/kv?values=true"));
    assert_eq!(first["keys"].as_array().unwrap().len(), 1);
    assert_eq!(list(&mut client, "values=true").len(), 9);
    assert_eq!(list(&mut client, "limit=2").len(), 9);
}

/// What is longer than 32 KiB is sent in chunks; clients of HTTP/1.0 know none.
#[test]
fn a_long_answer_is_the_same_in_chunks_and_without() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    let text: String = ('\u{1}'..'\u{800}').cycle().take(100_000).collect();
    let bytes: Vec<u8> = (0..100_000_u32).map(|i| (i * 7) as u8).collect();
    client.put("/kv/bytes", &bytes);
    client.put("/kv/text", text.as_bytes());
    let gets: Vec<Value> = ["bytes", "text", "none"].map(|key| json!({"op": "get", "key": key})).into();
    let lines: String = gets.iter().map(|line| format!("{line}\n")).collect();
    for atomic in ["", "?atomic=true"] {
        let answers = batch(&mut client, atomic, &gets);
        assert_eq!(STANDARD.decode(answers[0]["value_b64"].as_str().unwrap()).unwrap(), bytes);
        assert_eq!((&answers[1]["value"], &answers[2]["status"]), (&json!(text), &json!(404)));
        assert_eq!(answers[3], json!({"done": 3, "failed": 1}));
    }
    for (path, body) in [("GET /kv?values=true", ""), ("POST /batch", lines.as_str())] {
        let ask = |version: &str| {
            let length = body.len();
            let text =
                format!("{path} {version}\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
            text.into_bytes()
        };
        let chunked = client.exchange(&ask("HTTP/1.1"));
        assert_eq!(chunked.header("transfer-encoding"), Some("chunked"));
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        stream.write_all(&ask("HTTP/1.0")).unwrap();
        let mut whole = Vec::new();
        stream.read_to_end(&mut whole).unwrap();
        assert!(whole.ends_with(&chunked.body) && whole.starts_with(b"HTTP/1.1 200 "), "{path}");
        assert!(!whole[..1000].windows(9).any(|part| part.eq_ignore_ascii_case(b"transfer-")));
    }
    let page = document(&client.get("/kv?values=true"));
    assert_eq!((&page["keys"][1]["value"], &page["next"]), (&json!(text), &Value::Null));
    assert_eq!(client.ask("HEAD", "/kv?values=true", &[], b"").unwrap().status, 200);
    let lines = client.ask("GET", "/kv?values=true", &[("Accept", "application/x-ndjson")], b"").unwrap();
    assert_eq!(lines.text().lines().count(), 3);
}

#[test]
fn a_wrong_list_is_refused() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    for (query, code) in [
        ("limit=0", "bad_query"),
        ("what=1", "bad_query"),
        ("after=*", "bad_cursor"),
        ("after=%%", "bad_query"),
        ("values=x", "bad_query"),
    ] {
        let answer = client.get(&format!("/kv?{query}"));
        assert_eq!((answer.status, answer.problem()["code"].as_str()), (400, Some(code)), "{query}");
    }
}

#[test]
fn a_value_that_is_too_large_is_told_the_limit() {
    let server = Server::start("memory:", &["--value-bytes", "1000"]);
    let refused = server.client().put("/kv/a", &[b'x'; 1001]);
    let detail = refused.problem()["detail"].to_string();
    assert!(
        refused.status == 413 && detail.contains("than the server takes; the limit is 1000 bytes"),
        "{detail}"
    );
}

/// The lines of the answer to a batch.
fn batch(client: &mut Client, query: &str, lines: &[Value]) -> Vec<Value> {
    let body: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let answer = client.ask("POST", &format!("/batch{query}"), &[], body.as_bytes()).unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_batch_answers_every_line_in_order() {
    each_store(|client, store| {
        let answers = batch(
            client,
            "",
            &[
                json!({"op": "get", "key": "a"}),
                json!({"op": "put", "key": "a", "value": "1", "type": "text/plain"}),
                json!({"op": "get", "key": "a"}),
                json!({"op": "put", "key": "a", "value_b64": "/w==", "encoding": "gzip"}),
                json!({"op": "put", "key": "a", "value": "no", "if_none_match": "*"}),
                json!({"op": "delete", "key": "a", "if_match": "\"1\""}),
                json!({"op": "get", "key": "a"}),
                json!({"op": "delete", "key": "a"}),
                json!({"op": "get", "key": "a"}),
                json!({"op": "drop", "key": "a"}),
                json!({"op": "put", "key": "a"}),
                json!({"op": "put", "key": "", "value": ""}),
                json!({"op": "get", "key": "a", "valeu": ""}),
            ],
        );
        let statuses: Vec<i64> = answers[..13].iter().map(|line| line["status"].as_i64().unwrap()).collect();
        assert_eq!(statuses, [404, 201, 200, 204, 412, 412, 200, 204, 404, 400, 400, 400, 400], "{store}");
        assert_eq!((&answers[2]["value"], &answers[2]["type"]), (&json!("1"), &json!("text/plain")));
        assert_eq!((&answers[6]["value_b64"], &answers[6]["encoding"]), (&json!("/w=="), &json!("gzip")));
        assert_eq!(answers[2]["etag"], answers[1]["etag"]);
        assert_eq!(
            (&answers[4]["code"], &answers[4]["outcome"]),
            (&json!("precondition_failed"), &json!("not-applied"))
        );
        assert_eq!(answers[13], json!({"done": 13, "failed": 8}), "{store}");
        let many: Vec<Value> =
            (0..2000).map(|i| json!({"op": "put", "key": format!("k{i}"), "value": i.to_string()})).collect();
        assert_eq!(batch(client, "", &many)[2000], json!({"done": 2000, "failed": 0}), "{store}");
        let many: Vec<Value> = (0..2000).map(|i| json!({"op": "get", "key": format!("k{i}")})).collect();
        let answers = batch(client, "", &many);
        assert!((0..2000).all(|i| answers[i]["value"] == json!(i.to_string())), "{store}");
    });
}

#[test]
fn an_atomic_batch_does_all_or_nothing() {
    each_store(|client, store| {
        if store == "postgres"
            && client.stats().as_object().unwrap().keys().any(|name| name.contains("shard="))
        {
            let answer = client
                .ask("POST", "/batch?atomic=true", &[], b"{\"op\":\"delete\",\"key\":\"a\"}\n")
                .unwrap();
            return assert_eq!((answer.status, answer.header("weir-outcome")), (501, Some("not-applied")));
        }
        client.put("/kv/a", b"1");
        let answers = batch(
            client,
            "?atomic=true",
            &[
                json!({"op": "put", "key": "b", "value": "2", "if_none_match": "*"}),
                json!({"op": "get", "key": "a"}),
                json!({"op": "delete", "key": "a", "if_match": "*"}),
                json!({"op": "get", "key": "a"}),
                json!({"op": "put", "key": "b", "value": "3", "if_match": "*"}),
                json!({"op": "get", "key": "b"}),
            ],
        );
        let statuses: Vec<i64> = answers[..6].iter().map(|line| line["status"].as_i64().unwrap()).collect();
        assert_eq!(statuses, [201, 200, 204, 404, 204, 200], "{store}");
        assert_eq!((&answers[1]["value"], &answers[5]["value"]), (&json!("1"), &json!("3")));
        let b = client.get("/kv/b");
        assert_eq!((client.get("/kv/a").status, b.text().as_str()), (404, "3"), "{store}");
        assert_eq!(answers[5]["etag"], b.header("etag").unwrap(), "{store}");
        for (wrong, status, code) in [
            (json!({"op": "put", "key": "a", "value": "", "if_match": "*"}), 412, "precondition_failed"),
            (json!({"op": "what", "key": "a"}), 400, "bad_line"),
            (json!({"op": "put", "key": "a", "value": "", "type": "a\u{1}"}), 400, "bad_header"),
            (json!({"op": "put", "key": "a", "value": "", "encoding": "\0"}), 400, "bad_header"),
        ] {
            let body = format!("{}\n\n{wrong}\n", json!({"op": "put", "key": "b", "value": "4"}));
            let answer = client.ask("POST", "/batch?atomic=true", &[], body.as_bytes()).unwrap();
            let problem = answer.problem();
            assert_eq!((answer.status, problem["code"].as_str()), (status, Some(code)), "{store}");
            assert!(problem["detail"].as_str().unwrap().starts_with("line 3: "), "{problem}");
            assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
            assert_eq!(client.get("/kv/b").text(), "3", "{store}");
        }
    });
}

#[test]
fn a_value_with_a_lifetime_ends() {
    each_store(|client, store| {
        let put = |client: &mut Client, key: &str, ttl: &str| {
            client.ask("PUT", &format!("/kv/{key}"), &[("TTL", ttl)], b"value").unwrap()
        };
        assert_eq!(put(client, "long", "1000").status, 201, "{store}");
        assert_eq!(put(client, "short", "1").status, 201);
        until("a value is replaced before it ends", || {
            put(client, "kept", "1");
            client.put("/kv/kept", b"for ever").status == 204
        });
        let touch = |client: &mut Client, key: &str| {
            client.ask("POST", &format!("/kv/{key}?touch"), &[("TTL", "1000")], b"").unwrap()
        };
        let mut tag = String::new();
        until("a value is touched before it ends", || {
            tag = put(client, "touched", "1").header("etag").unwrap().to_owned();
            let touched = touch(client, "touched");
            assert!(touched.status == 404 || touched.header("etag") == Some(&*tag), "{store}");
            touched.status == 204
        });
        assert_eq!(touch(client, "absent").status, 404);
        let answer = client.get("/kv/touched");
        assert_eq!((answer.header("etag"), answer.text().as_str()), (Some(&*tag), "value"));
        let end = httpdate_secs(answer.header("expires").unwrap());
        let date = httpdate_secs(answer.header("date").unwrap());
        assert!((995..=1001).contains(&(end - date)), "{store}: {end} {date}");
        assert_eq!(client.get("/kv/kept").header("expires"), None);
        until("the value ends", || client.get("/kv/short").status == 404);
        // Absent on every path at once, and created by the next write.
        let listed: BTreeSet<String> = list(client, "").into_iter().collect();
        assert!(!listed.contains("short") && listed.contains("long") && listed.contains("kept"), "{store}");
        let condition = [("If-Match", "*")];
        assert_eq!(client.ask("PUT", "/kv/short", &condition, b"x").unwrap().status, 412, "{store}");
        assert_eq!(touch(client, "short").status, 404);
        assert_eq!(client.put("/kv/short", b"again").status, 201, "{store}");
        assert_eq!(client.get("/kv/short").text(), "again");
        assert_eq!(client.get("/kv/touched").status, 200, "{store}");
        assert_eq!(client.get("/kv/kept").text(), "for ever");
        // Its space is given back, also in the cache.
        let sum = |client: &mut Client, metric: &str| {
            let stats = client.stats();
            let all = stats.as_object().unwrap().iter().filter(|(name, _)| name.starts_with(metric));
            all.filter_map(|(_, count)| count.as_f64()).sum::<f64>()
        };
        let [removed, entries] =
            ["weir_store_expired_total", "weir_cache_entries"].map(|metric| sum(client, metric));
        assert_eq!(put(client, "swept", "1").status, 201);
        until("the row is removed", || sum(client, "weir_store_expired_total") > removed);
        assert_eq!(sum(client, "weir_cache_entries"), entries, "{store}");
    });
}

fn httpdate_secs(date: &str) -> i64 {
    let at = httpdate::parse_http_date(date).unwrap();
    at.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn lifetimes_outlive_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let postgres = postgres();
    for store in [format!("file:{}/store", directory.path().display()), postgres.url()] {
        let server = Server::start(&store, &[]);
        let mut client = server.client();
        for (key, ttl) in [("short", "1"), ("long", "1000")] {
            client
                .ask("PUT", &format!("/kv/{key}"), &[("TTL", ttl), ("Content-Encoding", "br")], b"v")
                .unwrap();
        }
        server.kill();
        let server = Server::start(&store, &[]);
        let mut client = server.client();
        let long = client.get("/kv/long");
        assert_eq!((long.status, long.header("content-encoding")), (200, Some("br")));
        assert!(long.header("expires").is_some());
        until("the value ends", || client.get("/kv/short").status == 404);
        assert_eq!(list(&mut client, ""), ["long"]);
    }
}

#[test]
fn a_part_of_a_value_is_sent_on_request() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    client.put("/kv/a", b"0123456789");
    let large: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
    client.put("/kv/large", &large);
    let tag = client.get("/kv/a").header("etag").unwrap().to_owned();
    let get = |client: &mut Client, path: &str, fields: &[(&str, &str)]| {
        let answer = client.ask("GET", path, fields, b"").unwrap();
        let range = answer.header("content-range").unwrap_or_default().to_owned();
        (answer.status, range, answer.body)
    };
    assert_eq!(
        get(&mut client, "/kv/a", &[("Range", "bytes=2-4")]),
        (206, "bytes 2-4/10".into(), b"234".into())
    );
    assert_eq!(
        get(&mut client, "/kv/a", &[("Range", "bytes=-1")]),
        (206, "bytes 9-9/10".into(), b"9".into())
    );
    let (status, range, body) = get(&mut client, "/kv/large", &[("Range", "bytes=50000-")]);
    assert_eq!((status, range.as_str()), (206, "bytes 50000-99999/100000"));
    assert!(body == large[50_000..]);
    let answer = client.ask("GET", "/kv/a", &[("Range", "bytes=10-")], b"").unwrap();
    assert_eq!((answer.status, answer.header("content-range")), (416, Some("bytes */10")));
    assert_eq!(get(&mut client, "/kv/a", &[("Range", "bytes=0-0"), ("If-Range", &tag)]).0, 206);
    assert_eq!(get(&mut client, "/kv/a", &[("Range", "bytes=0-0"), ("If-Range", "\"1\"")]).0, 200);
    for range in ["bytes=0-0", "bytes=10-"] {
        assert_eq!(get(&mut client, "/kv/a", &[("Range", range), ("If-None-Match", &tag)]).0, 304);
    }
    assert_eq!(get(&mut client, "/kv/a", &[("Range", "bytes=0-0,2-3")]).2, b"0123456789");
}
