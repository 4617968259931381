//! The access log as an operator reads it: lines of JSON in a file that may be moved away, or on standard output.

use crate::support::{Server, until, weir};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may be on its way.
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn server(path: &Path, flags: &[&str]) -> Server {
    Server::start("memory:", &[&["--access-log", path.to_str().unwrap()], flags].concat())
}

#[test]
fn every_request_is_a_line_that_says_what_became_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let mut server = server(&path, &["--compat", "crud=127.0.0.1:0", "--timing"]);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut client = server.client();
    let port = client.port();
    let secret = [("Authorization", "Bearer hush"), ("X-Request-Id", "mine")];
    client.ask("PUT", "/kv/a%2Fb", &secret, b"a value").unwrap();
    let traced = [("traceparent", &*format!("00-{trace}-00f067aa0ba902b7-01")), ("X-Request-Id", "mine")];
    client.ask("GET", "/kv/a%2Fb", &traced, b"").unwrap();
    let big = vec![b'x'; 100_000];
    client.put("/kv/big", &big);
    client.get("/kv/big");
    client.get("/kv/none");
    let failed = client.put("/kv/a?b", b"");
    let mut compat = crate::support::Client::connect(server.compat("crud")).unwrap();
    compat.get("/none?value=a+value");
    client.send(b"nonsense\r\n\r\n").unwrap();
    client.answer(false).unwrap();
    drop((client, compat));
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));

    let mut lines = lines(&path);
    // Each worker hands its lines on for itself.
    lines.sort_by_key(|line| line["time"].to_string());
    let of = |index: usize| &lines[index];
    assert_eq!(lines.len(), 8, "{lines:?}");
    let put = of(0);
    assert_eq!((put["method"].as_str(), put["path"].as_str()), (Some("PUT"), Some("/kv/a%2Fb")));
    assert_eq!((put["status"].as_u64(), put["outcome"].as_str()), (Some(201), Some("applied")));
    assert_eq!(put["request_id"], "mine");
    assert_eq!(put["client"].as_str(), Some(&*format!("127.0.0.1:{port}")));
    assert!(put["bytes_in"].as_u64().unwrap() > 100 && put["bytes_out"].as_u64().unwrap() > 50, "{put}");
    assert_eq!((&of(1)["request_id"], &of(1)["cache"]), (&trace.into(), &"hit".into()));
    for (index, field) in [(2, "bytes_in"), (3, "bytes_out")] {
        let bytes = of(index)[field].as_u64().unwrap();
        assert!((100_050..100_600).contains(&bytes), "{}", of(index));
    }
    assert_eq!((&of(4)["status"], &of(4)["code"]), (&404.into(), &"absent".into()));
    let refused = of(5);
    assert_eq!((&refused["query"], &refused["code"]), (&"b".into(), &"bad_query".into()));
    assert_eq!(refused["outcome"], "not-applied");
    // Who gets a failure can say which it was.
    assert_eq!(failed.header("x-request-id"), refused["request_id"].as_str());
    assert_eq!((&of(6)["path"], &of(6)["query"]), (&"/none".into(), &Value::Null));
    assert_eq!((&of(7)["status"], &of(7)["path"]), (&400.into(), &Value::Null));
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hush") && !text.contains("a value") && !text.contains("a+value"), "{text}");
}

/// Its line named neither the key nor the request.
#[test]
fn a_request_whose_body_breaks_off_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let mut server = server(&path, &[]);
    let mut client = server.client();
    client
        .send(b"PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine\r\nContent-Length: 5\r\n\r\nval")
        .unwrap();
    client.finish_sending();
    let answer = client.answer(false).unwrap();
    assert_eq!((answer.status, answer.header("x-request-id")), (400, Some("mine")));
    server.terminate();
    server.wait();
    let line = &lines(&path)[0];
    assert_eq!((&line["request_id"], &line["path"]), (&"mine".into(), &"/kv/a".into()));
    assert_eq!((&line["code"], &line["outcome"]), (&"incomplete".into(), &"not-applied".into()));
}

#[test]
fn a_log_that_was_moved_away_goes_on_under_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let [path, old] = ["access.log", "access.log.1"].map(|name| directory.path().join(name));
    let server = server(&path, &[]);
    let mut client = server.client();
    client.get("/kv/before");
    until("the line", || lines(&path).len() == 1);
    fs::rename(&path, &old).unwrap();
    until("the new file", || {
        client.get("/kv/after");
        lines(&path).iter().any(|line| line["path"] == "/kv/after")
    });
    assert!(lines(&old).iter().any(|line| line["path"] == "/kv/before"));
    // What logrotate's copytruncate does: lines follow each other from the start again.
    fs::File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
    until("a line in the same file", || {
        client.get("/kv/again");
        lines(&path).iter().any(|line| line["path"] == "/kv/again")
    });
    assert!(!fs::read(&path).unwrap().contains(&0));
}

#[test]
fn only_failures_are_logged_where_nothing_else_is_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let mut server = server(&path, &["--access-log-sample", "0"]);
    let mut client = server.client();
    client.put("/kv/a", b"1");
    client.get("/kv/a");
    client.get("/kv/none");
    assert_eq!(client.get("/nowhere").status, 404);
    assert_eq!(client.ask("POST", "/kv/a", &[], b"").unwrap().status, 405);
    drop(client);
    server.terminate();
    server.wait();
    let statuses: Vec<_> = lines(&path).iter().map(|line| line["status"].as_u64()).collect();
    assert_eq!(statuses, [Some(405)]);
}

#[test]
fn what_is_not_logged_is_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("access.log");
    let server = server(&path, &["--access-log-rate", "1"]);
    let mut client = server.client();
    until("a dropped line", || {
        (0..100).for_each(|_| drop(client.get("/kv/a")));
        lines(&path).iter().any(|line| line["dropped"].as_u64() > Some(0))
    });
    let stats = client.stats();
    assert!(stats["weir_access_log_dropped_total"].as_f64() > Some(0.0), "{stats}");
    assert!(stats["weir_access_log_lines_total"].as_f64() > Some(0.0), "{stats}");
}

#[test]
fn a_disk_that_takes_nothing_holds_nobody_up() {
    let server = Server::start("memory:", &["--access-log", "/dev/full"]);
    let mut client = server.client();
    until("lines that could not be written", || {
        assert_eq!(client.get("/kv/a").status, 404);
        client.stats()["weir_access_log_dropped_total"].as_f64() > Some(0.0)
    });
}

/// What was written was counted as well as the notes that could not be, and the file told of the last of them only.
#[test]
fn lines_that_found_a_full_disk_are_each_counted_once_and_told_when_there_is_room() {
    let small = tempfile::tempdir().unwrap();
    let script =
        "mount -t tmpfs -o size=64k tmpfs \"$1\"; head -c 1m /dev/zero > \"$1/full\"; shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(small.path()).arg(weir().get_program());
    let path = small.path().join("log");
    // Failures only: the statistics are asked for, too.
    let flags = ["--access-log-sample", "0", "--access-log", path.to_str().unwrap()];
    let server = Server::start_by(command, "memory:", &flags, &[]).unwrap();
    // Where the server sees the disk.
    let seen = PathBuf::from(format!("/proc/{}/root{}", server.pid(), path.display()));
    let mut client = server.client();
    for dropped in [1.0, 2.0] {
        client.ask("POST", "/kv/a", &[], b"").unwrap();
        until("it is counted", || client.stats()["weir_access_log_dropped_total"] == dropped);
        // Time for a note of it.
        std::thread::sleep(Duration::from_millis(1200));
    }
    assert_eq!(client.stats()["weir_access_log_dropped_total"], 2.0);
    fs::remove_file(seen.with_file_name("full")).unwrap();
    until("the file tells of them", || {
        fs::read_to_string(&seen).is_ok_and(|text| text.contains("\"dropped\":2}"))
    });
}

#[test]
fn a_log_can_go_to_standard_output() {
    let mut command: Command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--access-log", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let address = output.next().unwrap().strip_prefix("listening ").unwrap().parse().unwrap();
    crate::support::Client::connect(address).unwrap().get("/kv/a");
    let line: Value = serde_json::from_str(&output.next().unwrap()).unwrap();
    assert_eq!(line["path"], "/kv/a");
    child.kill().unwrap();
    child.wait().unwrap();
    // A path that cannot be written is known at the start.
    let output = weir().args(["serve", "--access-log", "/nowhere/log"]).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(error.contains("cannot write --access-log /nowhere/log: No such file"), "{error}");
}
