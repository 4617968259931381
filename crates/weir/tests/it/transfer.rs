//! `weir export` and `weir import`: copies between stores, cut short and continued, over TLS with tokens, and what is refused.

use crate::support::{Client, Server, is_long, mariadb, postgres, weir};
use crate::tls::Authority;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn run(args: &[&str]) -> Output {
    weir().args(args).output().unwrap()
}

/// The exit code, and what is said on standard error.
fn said(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), String::from_utf8(output.stderr.clone()).unwrap())
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

/// `weir export FROM | weir import TO`.
fn copy(from: &str, to: &str) {
    let mut export = weir().args(["export", from]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = export.stdout.take().unwrap();
    let import = weir().args(["import", to]).stdin(lines).output().unwrap();
    assert!(export.wait().unwrap().success());
    assert_eq!(import.status.code(), Some(0), "{:?}", said(&import));
}

/// All rows of a server by their keys, without versions.
fn rows(client: &mut Client) -> BTreeMap<String, Value> {
    listed(client, true)
}

/// The same, with their values or without.
fn listed(client: &mut Client, values: bool) -> BTreeMap<String, Value> {
    let mut rows = BTreeMap::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("/kv?values={values}&limit=10000{after}"));
        let page: Value = serde_json::from_slice(&page.body).unwrap();
        for row in page["keys"].as_array().unwrap() {
            let mut row = row.clone();
            row.as_object_mut().unwrap().remove("etag");
            let key = format!("{}{}", row["key"], row["key_b64"]);
            assert_eq!(rows.insert(key.clone(), row), None, "{key} twice");
        }
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return rows,
        }
    }
}

/// Writes `count` keys of about so many bytes.
fn fill(client: &mut Client, count: usize, value_bytes: usize) {
    let value = "v".repeat(value_bytes);
    for begin in (0..count).step_by(5000) {
        let keys = begin..count.min(begin + 5000);
        let lines: String = keys
            .map(|i| format!("{}\n", json!({"op": "put", "key": format!("key/{i:07}"), "value": value})))
            .collect();
        let answer = client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap();
        assert!(answer.text().ends_with("\"failed\":0}\n"), "{}", answer.text());
    }
}

#[test]
fn a_copy_has_all_that_the_values_had_in_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let (postgres, mariadb) = (postgres(), mariadb());
    for name in ["second", "third"] {
        postgres.query("postgres", &format!("CREATE DATABASE {name}")).unwrap();
    }
    let embedded = format!("file:{}/store", directory.path().display());
    let second = postgres.url_of("second");
    let third = postgres.url_of("third");
    let sized = ["--value-bytes", "16MiB"];
    let first = Server::start("memory:", &sized);
    let mut client = first.client();
    let put = |client: &mut Client, key: &str, headers: &[(&str, &str)], value: &[u8]| {
        assert_eq!(client.ask("PUT", &format!("/kv/{key}"), headers, value).unwrap().status, 201, "{key}");
    };
    fill(&mut client, 2500, 10);
    put(&mut client, "empty", &[], b"");
    put(&mut client, "%00%ff%0a", &[], b"\x00\xff\n");
    put(&mut client, "quote%22", &[("Content-Type", "text/plain; a=\"b\"")], "\u{1f9c0}\n\"".as_bytes());
    put(&mut client, "packed", &[("Content-Encoding", "gzip")], b"\x1f\x8b");
    put(&mut client, "an-hour", &[("TTL", "3600"), ("Content-Encoding", "br")], b"an hour");
    put(&mut client, "larger-than-a-page", &[("TTL", "7200")], &vec![0xfe; 5 << 20]);
    // With its line ends escaped it is longer than what goes into a batch.
    let large: Vec<u8> = (0..9_u32 << 20).map(|at| if at % 1000 == 0 { b'a' } else { b'\n' }).collect();
    put(
        &mut client,
        "%ff-larger-than-a-batch",
        &[("Content-Type", "image/x"), ("Content-Encoding", "x")],
        &large,
    );
    let expected = rows(&mut client);
    assert_eq!(expected.len(), 2507);
    let mut before = first;
    for (store, more) in [
        (embedded.as_str(), vec![]),
        (&postgres.url(), vec![]),
        (&mariadb.url(), vec![]),
        (&second, vec!["--store", &third]),
    ] {
        let server = Server::start(store, &[&sized[..], &more].concat());
        copy(&url(&before), &url(&server));
        let copied = rows(&mut server.client());
        for (key, row) in &expected {
            assert!(copied.get(key) == Some(row), "{store}: {key}: {:.300}", copied[key].to_string());
        }
        assert_eq!(copied.len(), expected.len(), "{store}");
        before = server;
    }
}

#[test]
fn only_keys_with_a_prefix_and_only_absent_ones_are_copied() {
    let (from, to) = (Server::start("memory:", &[]), Server::start("memory:", &[]));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let file = file.to_str().unwrap();
    for key in ["a/1", "a/2", "b/1", "a&b"] {
        from.client().put(&format!("/kv/{key}"), b"new");
    }
    to.client().put("/kv/a/2", b"old");
    assert_eq!(said(&run(&["export", &url(&from), "--prefix", "a/", file])).0, Some(0));
    let (code, text) = said(&run(&["import", &url(&to), file, "--if-absent"]));
    assert!(code == Some(0) && text.contains("imported 1 key,") && text.contains("; 1 key there"), "{text}");
    assert_eq!(rows(&mut to.client()).keys().collect::<Vec<_>>(), ["\"a/1\"null", "\"a/2\"null"]);
    assert_eq!(to.client().get("/kv/a/2").text(), "old");
    assert_eq!(said(&run(&["import", &url(&to), file])).0, Some(0));
    assert_eq!(to.client().get("/kv/a/2").text(), "new");
    // What has ended is not brought back.
    let line = json!({"op": "put", "key": "a/2", "value": "x", "expires": "2001-02-03T04:05:06.007Z"});
    fs::write(file, format!("{line}\n")).unwrap();
    assert_eq!(said(&run(&["import", &url(&to), file])).0, Some(0));
    assert_eq!(to.client().get("/kv/a/2").status, 404);
}

/// Lines that are too long for a batch do what they do in one.
#[test]
fn an_expired_or_refused_line_that_is_too_long_for_a_batch_stops_no_other() {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    let value = "x".repeat(17 << 20);
    let line = |more: Value| {
        let mut line = json!({"op": "put", "value": value});
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        format!("{line}\n")
    };
    let ended = line(json!({"key": "ended", "expires": "2001-02-03T04:05:06Z"}));
    client.put("/kv/ended", b"older");
    fs::write(&file, &ended).unwrap();
    let import = ["import", &url(&server), file.to_str().unwrap()];
    let (code, text) = said(&run(&[&import[..], &["--if-absent"]].concat()));
    assert!(code == Some(0) && client.get("/kv/ended").text() == "older", "{text}");
    let refused = line(json!({"key": "refused", "ttl": 60}));
    let last = json!({"op": "put", "key": "last", "value": "1"});
    fs::write(&file, format!("{ended}{refused}{last}\n")).unwrap();
    let (code, text) = said(&run(&import));
    assert!(
        code == Some(1) && text.contains("line 2: 400") && text.contains("unknown field `ttl`"),
        "{text}"
    );
    let statuses = ["ended", "refused", "last"].map(|key| client.get(&format!("/kv/{key}")).status);
    assert_eq!(statuses, [404, 404, 200]);
}

/// The keys of the lines of a file.
fn keys_of(file: &Path) -> Vec<String> {
    let lines = BufReader::new(fs::File::open(file).unwrap()).lines();
    let lines = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    lines.filter_map(|line| line["key"].as_str().map(str::to_owned)).collect()
}

#[test]
fn what_was_killed_is_continued_and_memory_stays_flat() {
    let count = if is_long() { 100_000 } else { 20_000 };
    let directory = tempfile::tempdir().unwrap();
    let from = Server::start(&format!("file:{}/from", directory.path().display()), &[]);
    fill(&mut from.client(), count, 100);
    let expected: Vec<String> = (0..count).map(|i| format!("key/{i:07}")).collect();
    let file = directory.path().join("keys");
    let args = ["export", &url(&from), file.to_str().unwrap()];
    // Killed at several lengths: by the kernel, when the file is so long.
    let mut flags: &[&str] = &[];
    for part in [1, 2] {
        let longest = part * 50 * count;
        let mut export = Command::new("prlimit");
        export.arg(format!("--fsize={longest}")).arg("--core=0").arg(env!("CARGO_BIN_EXE_weir"));
        let ended = export.args(args).args(flags).stderr(Stdio::null()).status().unwrap();
        assert_eq!(ended.signal(), Some(Signal::XFSZ.as_raw()));
        assert_eq!(fs::metadata(&file).unwrap().len(), longest as u64);
        // What a killed program may leave behind.
        let mut torn = fs::OpenOptions::new().append(true).open(&file).unwrap();
        torn.write_all(b"{\"op\":\"put\",\"key\":\"torn").unwrap();
        flags = &["--resume"];
    }
    // Only a part of it, and that is seen.
    // It is slow, so that an import is not over before it is killed.
    let slow = ["--lab", "--inject", "flush=50ms"];
    let to = Server::start(&format!("file:{}/to", directory.path().display()), &slow);
    let part = directory.path().join("part");
    let lines = fs::read_to_string(&file).unwrap();
    fs::write(&part, lines.lines().take(2002).map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let (code, text) = said(&run(&["import", &url(&to), part.to_str().unwrap()]));
    assert!(code == Some(1) && text.contains("ends before its last page"), "{text}");
    assert_eq!(rows(&mut to.client()).len(), 2000);
    // Also behind another export, which is whole.
    let first = lines.lines().next().unwrap();
    fs::write(&part, format!("{{\"next\":null}}\n{first}\n")).unwrap();
    let (code, text) = said(&run(&["import", &url(&to), part.to_str().unwrap()]));
    assert!(code == Some(0) && text.contains("no end of an export was seen"), "{text}");
    assert_eq!(said(&run(&[&args[..], flags].concat())).0, Some(0));
    assert!(keys_of(&file) == expected, "not each key once, in order");
    // The same once more is no error and changes nothing.
    let (code, text) = said(&run(&[&args[..], flags].concat()));
    assert!(code == Some(0) && text.contains("is complete already"), "{text}");
    // The same of a part behind a cursor, with and without a complete page. That of the file counts.
    let whole = fs::read_to_string(&file).unwrap();
    let next = |line: &str| serde_json::from_str::<Value>(line).unwrap()["next"].as_str().map(str::to_owned);
    let cursor = whole.lines().find_map(next).unwrap();
    for complete in [0, 1001] {
        let lines: Vec<&str> = whole.lines().skip(1001).take(complete).chain(["{\"op\":\"put\","]).collect();
        fs::write(&part, lines.join("\n")).unwrap();
        let resume = ["export", &url(&from), part.to_str().unwrap(), "--resume", "--after", &cursor];
        let (code, text) = said(&run(&resume));
        assert!(code == Some(0) && keys_of(&part) == expected[1000..], "{complete}: {text}");
    }
    // An import that was killed is begun again.
    let import = ["import", &url(&to), file.to_str().unwrap()];
    let mut killed = weir().args(import).stderr(Stdio::null()).spawn().unwrap();
    let mut client = to.client();
    while client.get(&format!("/kv/{}", expected[count / 3])).status != 200 {
        assert!(killed.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    let peak = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
    };
    assert!(peak(killed.id()) < 100, "the import has {} MiB", peak(killed.id()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(said(&run(&import)).0, Some(0));
    let copied = listed(&mut to.client(), false);
    assert!(copied.keys().eq(expected.iter().map(|key| format!("\"{key}\"null")).collect::<Vec<_>>().iter()));
    // Nobody reads on: it holds a page or so.
    let mut export = weir().args(["export", &url(&from)]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(export.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().nth(count / 10 * 9).unwrap().is_ok());
    assert!(peak(export.id()) < 100, "the export has {} MiB", peak(export.id()));
    drop(lines);
    assert_eq!(export.wait().unwrap().code(), Some(1), "it was cut short");
}

#[test]
fn a_server_that_is_away_or_asks_to_wait_is_waited_for() {
    let authority = Authority::new();
    let tokens = authority.file("tokens");
    let token = authority.file("token");
    let made = weir().args(["token", "copier", "--rate", "2", "--tokens"]).arg(&tokens).output().unwrap();
    fs::write(&token, made.stdout).unwrap();
    let socket = authority.file("weir.sock");
    let from = Server::start("memory:", &[]);
    fill(&mut from.client(), 5000, 10);
    let file = authority.file("keys");
    assert_eq!(said(&run(&["export", &url(&from), file.to_str().unwrap()])).0, Some(0));
    // It begins before there is a server.
    let unix = format!("unix:{}", socket.display());
    let import = weir()
        .args(["import", &unix, file.to_str().unwrap(), "--token-file", token.to_str().unwrap()])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut flags = authority.flags("server");
    let more = ["--listen", &unix, "--tokens", tokens.to_str().unwrap()];
    flags.extend(more.map(str::to_owned));
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start("memory:", &flags);
    let import = import.wait_with_output().unwrap();
    let (code, text) = said(&import);
    assert!(code == Some(0) && text.contains("imported 5000 keys"), "{text}");
    // The same by TLS, with the token in the environment.
    let https = format!("https://localhost:{}", server.address.port());
    let ca = authority.file("ca.pem");
    let export = |flags: &[&str], token: Option<&str>| {
        let mut command = weir();
        command.args(["export", &https, "--retry", "60s"]).args(flags);
        token.map(|token| command.env("WEIR_TOKEN", token));
        command.output().unwrap()
    };
    let secret = fs::read_to_string(&token).unwrap().trim().to_owned();
    // An export that fails before it has anything leaves no file, in which the next one would fail.
    let path = authority.file("export");
    let path = path.to_str().unwrap();
    assert_eq!(said(&export(&[path], Some(&secret))).0, Some(1));
    assert_eq!(said(&export(&[path, "--cacert", ca.to_str().unwrap()], Some(&secret))).0, Some(0));
    let exported = export(&["--cacert", ca.to_str().unwrap()], Some(&secret));
    assert_eq!(exported.status.code(), Some(0), "{:?}", said(&exported));
    assert!(exported.stdout == fs::read(&file).unwrap());
    for (flags, token, part) in [
        (&[][..], Some(secret.as_str()), "is signed by none of those trusted"),
        (&["--cacert", ca.to_str().unwrap()], None, "answered 401 to GET"),
        (&["--cacert", ca.to_str().unwrap()], Some("weir_wrong"), "answered 401 to GET"),
    ] {
        let (code, text) = said(&export(flags, token));
        assert!(code == Some(1) && text.contains(part) && !text.contains(&secret), "{text}");
    }
}

#[test]
fn wrong_inputs_are_named() {
    let server = Server::start("memory:", &[]);
    let server = url(&server);
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str| {
        let path = directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (empty, binary) = (file("empty", ""), file("binary", "\u{0}\n\n"));
    let good = r#"{"op":"put","key":"a","value":"1"}"#;
    let mixed = file("mixed", &format!("{good}\n{{\"op\":\"put\",\"key\":\"\",\"value\":\"1\"}}\n\n{good}"));
    let both = file(
        "both",
        "{\"op\":\"put\",\"key\":\"a\",\"value\":\"1\",\"ttl\":1,\"expires\":\"2099-01-01T00:00:00Z\"}",
    );
    let many = file("many", &"x\n".repeat(3000));
    // Nothing says that these lines are pages of an export, and the file was cut to nothing.
    let puts = file("puts", &format!("{good}\n").repeat(1500));
    let few = file("few", &format!("{good}\n"));
    let cut = file("cut", good);
    let others = file("others", &format!("{good}\n{{\"op\":\"delete\",\"key\":\"a\"}}\n"));
    let part = file("part", &format!("{good}\n{{\"next\":\"Yg\",\"prefix\":\"a\"}}\n"));
    let whole = file("whole", &format!("{good}\n{{\"next\":null}}\n"));
    let nowhere = directory.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    for (args, code, part) in [
        (&["export", "localhost:1"][..], 2, "does not begin with http:// or https://"),
        (&["export", "http://:1"], 2, "no host"),
        (&["export", "http://a:1/kv"], 2, "more than a host and a port"),
        (&["export", "http://secret@a:1"], 2, "see --token-file"),
        (&["export", &server, "--cacert", &empty], 2, "--cacert is only for https"),
        (&["export", "https://a:1", "--cacert", &empty], 2, "has no certificate"),
        (&["export", &server, "--token-file", &empty], 2, "is no token"),
        (&["export", &server, "--token-file", nowhere], 2, "cannot read the token of"),
        (&["export", &server, &mixed], 2, "continue it with --resume"),
        (&["export", &server, nowhere, "--resume"], 2, "begin without --resume"),
        (&["export", &server, &many, "--resume"], 2, "is no export"),
        (&["export", &server, &puts, "--resume"], 2, "is no export"),
        (&["export", &server, &few, "--resume"], 2, "may be no export"),
        (&["export", "http://127.0.0.1:9", &cut, "--resume"], 2, "may be no export"),
        (&["export", &server, "--resume"], 2, "required"),
        (&["export", &server, "--after", "%%"], 1, "answered 400 to GET: after is not"),
        (&["export", "http://127.0.0.1:9", "--retry", "0s"], 1, "refused"),
        (&["import", &server, nowhere], 2, "cannot read"),
        (&["import", &server, &empty], 0, "imported 0 keys"),
        (&["import", &server, &binary], 1, "line 1: 400"),
        (&["import", &server, &mixed], 1, "line 2: 400: a key has 1 to 1024 bytes"),
        (&["import", &server, &both], 1, "a put has ttl or expires, not both"),
        (&["import", &server, &many], 1, "1000 lines were refused"),
        (
            &["import", &server, &others, "--if-absent"],
            1,
            "line 2: 400: --if-absent is for puts, not for delete",
        ),
        (
            &["export", &server, &part, "--resume", "--prefix", "b"],
            2,
            "is an export with --prefix \"a\", not \"b\"",
        ),
        (&["export", &server, &part, "--resume"], 2, "continue it with the same --prefix"),
        (
            &["export", &server, &whole, "--resume", "--prefix", "a"],
            2,
            "is an export with --prefix \"\", not \"a\"",
        ),
        (&["import", &server, &part], 1, "; --after Yg --prefix 'a' gives the rest"),
    ] {
        let output = run(args);
        let (found, text) = said(&output);
        assert!(found == Some(code) && text.contains(part), "{args:?}: {found:?} {text}");
        assert!(code == 0 || text.contains("error: ") && text.lines().count() < 20, "{args:?}: {text}");
    }
    let no_server =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["export", "http://[::1]:1", "--retry", "0s"]).output();
    assert_eq!(no_server.unwrap().status.code(), Some(1));
}
