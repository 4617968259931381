//! Tokens: what each allows, how refusals look, files that change, and that no token is shown anywhere.

use crate::support::{Answer, Client, Server, until, weir};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A file of tokens, and the tokens.
pub(crate) struct Tokens {
    directory: TempDir,
}

impl Tokens {
    pub(crate) fn new() -> Tokens {
        Tokens { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("tokens.toml")
    }

    /// Makes one by the command line; `flags` are separated by blanks.
    pub(crate) fn add(&self, name: &str, flags: &str) -> String {
        let made = weir()
            .args(["token", name, "--tokens"])
            .arg(self.file())
            .args(flags.split_whitespace())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap().trim_end().to_owned()
    }

    pub(crate) fn serve(&self, flags: &[&str]) -> Server {
        let file = self.file();
        Server::start("memory:", &[&["--tokens", file.to_str().unwrap()], flags].concat())
    }
}

/// Asks with a token.
fn ask(client: &mut Client, token: &str, method: &str, path: &str) -> Answer {
    let body: &[u8] = if matches!(method, "PUT" | "POST") { b"value" } else { b"" };
    client.ask(method, path, &[("Authorization", &format!("Bearer {token}"))], body).unwrap()
}

/// Gives a key another end, with a token.
fn touch(client: &mut Client, token: &str, path: &str) -> Answer {
    let fields = [("Authorization", &*format!("Bearer {token}")), ("TTL", "1000")];
    client.ask("POST", &format!("{path}?touch"), &fields, b"").unwrap()
}

#[track_caller]
fn check(answer: &Answer, status: u16, code: &str, challenge: Option<&str>) {
    let found = (answer.status, answer.problem()["code"].as_str().unwrap().to_owned());
    assert_eq!(found, (status, code.to_owned()), "{}", answer.text());
    assert_eq!(answer.header("www-authenticate"), challenge);
}

const ASKED: Option<&str> = Some("Bearer realm=\"weir\"");

#[test]
fn a_token_allows_its_verbs_for_its_keys() {
    let tokens = Tokens::new();
    let reader = tokens.add("reader", "--verbs read --prefix app/");
    let writer = tokens.add("writer", "--verbs read,write");
    let admin = tokens.add("admin", "--verbs admin");
    let server = tokens.serve(&["--lab"]);
    let mut client = server.client();
    assert_eq!(ask(&mut client, &writer, "PUT", "/kv/app/a").status, 201);
    assert_eq!(ask(&mut client, &writer, "PUT", "/kv/b").status, 201);
    // Twice: the second time the connection knows the token.
    for _ in 0..2 {
        assert_eq!(ask(&mut client, &reader, "GET", "/kv/app/a").text(), "value");
        assert_eq!(ask(&mut client, &reader, "GET", "/kv/app%2Fa").text(), "value");
        let other = ask(&mut client, &reader, "GET", "/kv/b");
        check(&other, 403, "forbidden_key", Some("Bearer realm=\"weir\", error=\"insufficient_scope\""));
        let write = ask(&mut client, &reader, "PUT", "/kv/app/a");
        let challenge = "Bearer realm=\"weir\", error=\"insufficient_scope\", scope=\"write\"";
        check(&write, 403, "forbidden_verb", Some(challenge));
        assert_eq!(write.header("weir-outcome"), Some("not-applied"));
        assert_eq!(ask(&mut client, &reader, "DELETE", "/kv/app/a").status, 403);
        check(&touch(&mut client, &reader, "/kv/app/a"), 403, "forbidden_verb", Some(challenge));
        assert_eq!(touch(&mut client, &writer, "/kv/app/a").status, 204);
        assert_eq!(ask(&mut client, &writer, "GET", "/kv/b").text(), "value");
        assert_eq!(ask(&mut client, &admin, "GET", "/kv/b").status, 403);
        for (token, expected) in [(&admin, 200), (&writer, 403)] {
            assert_eq!(ask(&mut client, token, "GET", "/stats").status, expected);
            assert_eq!(ask(&mut client, token, "GET", "/metrics").status, expected);
            assert_eq!(ask(&mut client, token, "GET", "/compute/prime?count=3").status, expected);
        }
        let challenge = "Bearer realm=\"weir\", error=\"insufficient_scope\", scope=\"admin\"";
        for (method, path) in [
            ("POST", "/preload?key=b"),
            ("PUT", "/inject?delay=1ms"),
            ("DELETE", "/inject"),
            ("DELETE", "/kv"),
        ] {
            for token in [&reader, &writer] {
                check(&ask(&mut client, token, method, path), 403, "forbidden_verb", Some(challenge));
            }
        }
    }
    assert_eq!(ask(&mut client, &admin, "POST", "/preload?key=b").status, 204);
    assert_eq!(ask(&mut client, &admin, "DELETE", "/inject").status, 204);
    assert_eq!(ask(&mut client, &admin, "DELETE", "/kv").status, 204);
}

#[test]
fn lists_and_lines_of_batches_are_permitted_one_by_one() {
    let tokens = Tokens::new();
    let (all, part) = (tokens.add("all", ""), tokens.add("part", "--verbs list,write --prefix app/"));
    let watcher = tokens.add("watcher", "--verbs watch --prefix app/");
    let server = tokens.serve(&[]);
    let mut client = server.client();
    for path in ["/kv/app/a", "/kv/b"] {
        ask(&mut client, &all, "PUT", path);
    }
    for (token, path, code) in [
        (&part, "/watch?prefix=app/", "forbidden_verb"),
        (&watcher, "/watch?prefix=ap", "forbidden_key"),
        (&watcher, "/watch", "forbidden_key"),
        (&watcher, "/kv?prefix=app/", "forbidden_verb"),
        (&watcher, "/kv/app/a", "forbidden_verb"),
    ] {
        let answer = ask(&mut client, token, "GET", path);
        assert_eq!((answer.status, answer.problem()["code"].as_str()), (403, Some(code)), "{path}");
    }
    let other = touch(&mut client, &part, "/kv/b");
    assert_eq!((other.status, other.problem()["code"].as_str()), (403, Some("forbidden_key")));
    let mut watching = server.client();
    let head = format!(
        "GET /watch?prefix=app/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {watcher}\r\n\r\n"
    );
    watching.send(head.as_bytes()).unwrap();
    let first = BufReader::new(watching.stream()).lines().next().unwrap().unwrap();
    assert!(first.contains("200"), "{first}");
    for (query, code) in [
        ("?prefix=app/", None),
        ("?prefix=app/a", None),
        ("?prefix=app/&values=true", Some("forbidden_verb")),
        ("?prefix=ap", Some("forbidden_key")),
        ("", Some("forbidden_key")),
    ] {
        let answer = ask(&mut client, &part, "GET", &format!("/kv{query}"));
        assert_eq!(answer.problem()["code"].as_str(), code, "{query}: {}", answer.text());
    }
    let lines = concat!(
        "{\"op\":\"put\",\"key\":\"app/new\",\"value\":\"1\"}\n",
        "{\"op\":\"put\",\"key\":\"b\",\"value\":\"1\"}\n",
        "{\"op\":\"get\",\"key\":\"app/a\"}\n"
    );
    let admin = format!("Bearer {}", tokens.add("admin", "--verbs admin"));
    until("the new token is known", || {
        let refused = client.ask("POST", "/batch", &[("Authorization", &admin)], lines.as_bytes()).unwrap();
        refused.status == 403 && refused.problem()["code"] == "forbidden_verb"
    });
    let field = format!("Bearer {part}");
    for (path, stored) in [("/batch?atomic=true", 404), ("/batch", 200)] {
        let answer = client.ask("POST", path, &[("Authorization", &field)], lines.as_bytes()).unwrap();
        let text = answer.text();
        assert!(text.contains("forbidden_key"), "{path}: {text}");
        assert_eq!(text.contains("forbidden_verb"), stored == 200, "{path}: {text}");
        assert_eq!(ask(&mut client, &all, "GET", "/kv/app/new").status, stored, "{path}: {text}");
        assert_eq!(ask(&mut client, &all, "GET", "/kv/b").text(), "value");
    }
}

#[test]
fn without_a_good_token_only_health_is_told() {
    let tokens = Tokens::new();
    let token = tokens.add("a", "");
    let old = tokens.add("old", "--expires 2020-01-01T00:00:00Z");
    let server = tokens.serve(&[]);
    let mut client = server.client();
    assert_eq!(
        (client.get("/healthz").text(), client.get("/readyz").text()),
        ("alive\n".into(), "ready\n".into())
    );
    for path in ["/kv/a", "/stats", "/metrics", "/nowhere", "/kv", "/kv/a?token=x"] {
        check(&client.get(path), 401, "unauthorized", ASKED);
    }
    let write = client.put("/kv/a", b"value");
    check(&write, 401, "unauthorized", ASKED);
    assert_eq!(write.header("weir-outcome"), Some("not-applied"));
    let invalid =
        |why| format!("Bearer realm=\"weir\", error=\"invalid_token\", error_description=\"{why}\"");
    check(
        &ask(&mut client, "wrong", "GET", "/kv/a"),
        401,
        "unauthorized",
        Some(&invalid("the token is not known")),
    );
    check(
        &ask(&mut client, &old, "GET", "/kv/a"),
        401,
        "unauthorized",
        Some(&invalid("the token has expired")),
    );
    let basic = client.ask("GET", "/kv/a", &[("Authorization", "Basic YTpi")], b"").unwrap();
    check(&basic, 401, "unauthorized", ASKED);
    let both = format!("Bearer {token}");
    let twice = [("Authorization", both.as_str()), ("Authorization", &both)];
    let twice = client.ask("GET", "/kv/a", &twice, b"").unwrap();
    check(&twice, 400, "bad_header", Some("Bearer realm=\"weir\", error=\"invalid_request\""));
    // The scheme is known in any case, and what was refused before spoils nothing.
    let lower = client.ask("GET", "/kv/a", &[("authorization", &format!("bearer {token}"))], b"").unwrap();
    assert_eq!((lower.status, lower.problem()["code"].as_str()), (404, Some("absent")));
    assert_eq!(client.get("/kv/a").status, 401, "a connection is not a token");
}

#[test]
fn a_token_ends_while_its_connection_is_open() {
    let tokens = Tokens::new();
    let token = tokens.add("short", "--expires 10s");
    let server = tokens.serve(&[]);
    let mut client = server.client();
    assert_eq!(ask(&mut client, &token, "GET", "/kv/a").status, 404);
    until("it has expired", || ask(&mut client, &token, "GET", "/kv/a").status == 401);
}

#[test]
fn a_rate_is_told_and_kept_over_connections_and_reloads() {
    let tokens = Tokens::new();
    let token = tokens.add("slow", "--rate 0.01 --burst 3");
    let free = tokens.add("free", "");
    let server = tokens.serve(&[]);
    let (mut client, mut other) = (server.client(), server.client());
    ask(&mut client, &free, "PUT", "/kv/a");
    assert_eq!(ask(&mut client, &free, "GET", "/kv/a").header("ratelimit"), None);
    let limits = |answer: &Answer| {
        assert_eq!(answer.header("ratelimit-policy"), Some("\"requests\";q=3;w=300"));
        let limit = answer.header("ratelimit").unwrap().to_owned();
        let (remaining, reset) = limit.strip_prefix("\"requests\";r=").unwrap().split_once(";t=").unwrap();
        (answer.status, remaining.parse::<u64>().unwrap(), reset.parse::<u64>().unwrap())
    };
    assert_eq!(limits(&ask(&mut client, &token, "GET", "/kv/a")), (200, 2, 100));
    let absent = limits(&ask(&mut other, &token, "GET", "/kv/b"));
    assert!(absent.0 == 404 && absent.1 == 1 && (150..=200).contains(&absent.2), "{absent:?}");
    let second = tokens.add("second", "");
    server.signal(Signal::HUP);
    until("the file is read again", || ask(&mut client, &second, "GET", "/kv/a").status == 200);
    assert_eq!(limits(&ask(&mut client, &token, "HEAD", "/kv/a")).1, 0);
    for path in ["/kv/a", "/kv/b", "/stats"] {
        let refused = ask(&mut client, &token, "GET", path);
        check(&refused, 429, "rate_limited", None);
        let (_, remaining, reset) = limits(&refused);
        assert_eq!((remaining, refused.header("retry-after").unwrap()), (0, reset.to_string().as_str()));
        assert!((50..=100).contains(&reset));
    }
    assert_eq!(ask(&mut client, &token, "PUT", "/kv/a").header("weir-outcome"), Some("not-applied"));
    assert_eq!(ask(&mut client, &free, "GET", "/kv/a").status, 200);
}

/// The head of such a request is looked at again when its faults are over, which once counted twice.
#[test]
fn a_request_with_faults_counts_once() {
    let tokens = Tokens::new();
    let token = tokens.add("slow", "--rate 0.01 --burst 2");
    let server = tokens.serve(&["--lab", "--inject", "delay=1ms"]);
    let mut client = server.client();
    let status = |_| ask(&mut client, &token, "GET", "/kv/a").status;
    assert_eq!([0; 3].map(status), [404, 404, 429]);
}

#[test]
fn a_changed_file_counts_and_a_broken_one_does_not() {
    let tokens = Tokens::new();
    let (first, admin) = (tokens.add("first", ""), tokens.add("admin", "--verbs admin"));
    let server = tokens.serve(&[]);
    let mut client = server.client();
    assert_eq!(ask(&mut client, &first, "GET", "/kv/a").status, 404);
    let second = tokens.add("second", "");
    until("the new token is known", || ask(&mut client, &second, "GET", "/kv/a").status == 404);
    let failed = || {
        let stats = ask(&mut server.client(), &admin, "GET", "/stats");
        stats.problem()["weir_reload_failed{files=\"tokens\"}"].as_f64().unwrap()
    };
    let whole = fs::read_to_string(tokens.file()).unwrap();
    // Half of a file, in the middle of an entry; then an empty one.
    for broken in [&whole[..whole.len() - 20], ""] {
        fs::write(tokens.file(), broken).unwrap();
        server.signal(Signal::HUP);
        until("it is noticed", || failed() == 1.0);
        for token in [&first, &second] {
            assert_eq!(ask(&mut client, token, "GET", "/kv/a").status, 404);
        }
    }
    // The first one is taken out: an open connection that used it is refused.
    let entries: Vec<&str> = whole.split("[[token]]").filter(|entry| !entry.contains("\"first\"")).collect();
    fs::write(tokens.file(), entries.join("[[token]]")).unwrap();
    until("it is forbidden", || ask(&mut client, &first, "GET", "/kv/a").status == 401);
    assert_eq!((ask(&mut client, &second, "GET", "/kv/a").status, failed()), (404, 0.0));
}

#[test]
fn what_waits_ends_with_its_token() {
    let tokens = Tokens::new();
    let (reader, writer) =
        (tokens.add("reader", "--verbs read,watch"), tokens.add("writer", "--verbs write,admin"));
    let server = tokens.serve(&[]);
    let mut client = server.client();
    let etag = ask(&mut client, &writer, "PUT", "/kv/a").header("etag").unwrap().to_owned();
    let field = format!("Bearer {reader}");
    let mut watching = server.client();
    let head = format!("GET /watch HTTP/1.1\r\nHost: localhost\r\nAuthorization: {field}\r\n\r\n");
    watching.send(head.as_bytes()).unwrap();
    let watchers =
        |client: &mut Client| ask(client, &writer, "GET", "/stats").problem()["weir_watchers"].as_f64();
    until("it watches", || watchers(&mut client) == Some(1.0));
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let fields = [("Authorization", &*field), ("If-None-Match", &*etag), ("Prefer", "wait=300")];
            let mut client = server.client();
            // The token is looked at again after 5 s.
            client.stream().set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
            client.ask("GET", "/kv/a", &fields, b"").unwrap()
        });
        until("it waits", || watchers(&mut client) == Some(1.0) && connections(&mut client, &writer) == 3.0);
        let text = fs::read_to_string(tokens.file()).unwrap();
        let left: Vec<&str> = text.split("[[token]]").filter(|entry| !entry.contains("\"reader\"")).collect();
        fs::write(tokens.file(), left.join("[[token]]")).unwrap();
        server.signal(Signal::HUP);
        until("it is forbidden", || ask(&mut server.client(), &reader, "GET", "/kv/a").status == 401);
        waiting.join().unwrap()
    });
    assert_eq!(ask(&mut client, &writer, "PUT", "/kv/a").status, 204);
    check(&waiting, 401, "unauthorized", waiting.header("www-authenticate"));
    // Up to its end, or to what it may not be told.
    let lines = BufReader::new(watching.stream()).lines().map(Result::unwrap);
    let told: Vec<String> = lines.take_while(|line| *line != "event: put").collect();
    assert!(told[0].contains("200"), "{told:?}");
    assert!(watching.stream().read(&mut [0]).is_ok_and(|bytes| bytes == 0), "the stream goes on");
}

/// A body may take its time: it is looked at again when it is there.
#[test]
fn a_token_that_ends_while_a_body_is_sent_writes_nothing() {
    let tokens = Tokens::new();
    let (short, reader) = (tokens.add("short", "--expires 3s"), tokens.add("reader", ""));
    let server = tokens.serve(&[]);
    let line = "{\"op\":\"put\",\"key\":\"a\",\"value\":\"value\"}\n";
    let slow: Vec<Client> = [("PUT", "/kv/a", "value"), ("POST", "/batch", line), ("GET", "/kv", "unused")]
        .into_iter()
        .map(|(method, path, body)| {
            let (begin, _) = body.split_at(1);
            let mut client = server.client();
            let fields =
                format!("Host: localhost\r\nAuthorization: Bearer {short}\r\nContent-Length: {}", body.len());
            client.send(format!("{method} {path} HTTP/1.1\r\n{fields}\r\n\r\n{begin}").as_bytes()).unwrap();
            client
        })
        .collect();
    until("it has expired", || ask(&mut server.client(), &short, "GET", "/kv/a").status == 401);
    for (mut client, rest) in slow.into_iter().zip(["alue", &line[1..], "nused"]) {
        client.send(rest.as_bytes()).unwrap();
        assert_eq!(client.answer(false).unwrap().status, 401);
    }
    assert_eq!(ask(&mut server.client(), &reader, "GET", "/kv/a").status, 404);
}

/// The lines of a batch are done while the client reads its answer.
#[test]
fn a_token_that_ends_while_an_answer_is_read_writes_nothing_more() {
    let tokens = Tokens::new();
    let (short, all) = (tokens.add("short", "--expires 10s"), tokens.add("all", ""));
    let server = tokens.serve(&[]);
    let field = format!("Bearer {all}");
    let big = vec![b'x'; 8 << 20];
    server.client().ask("PUT", "/kv/big", &[("Authorization", &field)], &big).unwrap();
    // More than what the sockets hold.
    let lines = "{\"op\":\"get\",\"key\":\"big\"}\n".repeat(4)
        + "{\"op\":\"put\",\"key\":\"late\",\"value\":\"1\"}\n";
    let fields =
        format!("Host: localhost\r\nAuthorization: Bearer {short}\r\nContent-Length: {}", lines.len());
    let mut client = server.client();
    client.send(format!("POST /batch HTTP/1.1\r\n{fields}\r\n\r\n{lines}").as_bytes()).unwrap();
    until("it has expired", || ask(&mut server.client(), &short, "GET", "/kv/a").status == 401);
    let answer = client.answer(false).unwrap();
    let text = answer.text();
    let line = text.lines().nth(4).unwrap_or_default();
    assert!(answer.status == 200 && line.contains("the token \\\"short\\\" has expired"), "{line}");
    assert_eq!(ask(&mut client, &all, "GET", "/kv/late").status, 404);
}

fn connections(client: &mut Client, token: &str) -> f64 {
    ask(client, token, "GET", "/stats").problem()["weir_http_connections"].as_f64().unwrap()
}

#[test]
fn pages_have_an_address_of_their_own() {
    let tokens = Tokens::new();
    let token = tokens.add("a", "");
    let path = tokens.directory.path().join("ops.sock");
    let ops = format!("unix:{}", path.display());
    for with_tokens in [false, true] {
        let server = match with_tokens {
            true => tokens.serve(&["--ops-listen", &ops]),
            false => Server::start("memory:", &["--ops-listen", &ops]),
        };
        let mut client = server.client();
        let mut page = |path| ask(&mut client, &token, "GET", path);
        for gone in ["/metrics", "/stats", "/dashboard"] {
            check(&page(gone), 404, "no_route", None);
        }
        assert_eq!((page("/healthz").status, page("/readyz").status, page("/kv/a").status), (200, 200, 404));
        // No token is needed here, and no value is.
        let mut operations = Client::over(UnixStream::connect(&path).unwrap());
        for page in ["/metrics", "/stats", "/dashboard", "/healthz", "/readyz"] {
            assert_eq!(operations.get(page).status, 200, "{page}");
        }
        let data = operations.get("/kv/a");
        check(&data, 404, "no_route", None);
    }
}

/// Everything that a client, a log reader or another user of the machine sees.
#[test]
fn no_token_is_shown_anywhere() {
    let tokens = Tokens::new();
    let good = tokens.add("good", "--rate 50");
    let admin = tokens.add("admin", "--verbs admin");
    let old = tokens.add("old", "--expires 2020-01-01T00:00:00Z");
    let wrong = format!("{}0", &good[..good.len() - 1]);
    let secrets = [&good, &admin, &old, &wrong];
    let mut child = weir()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--until-stdin-ends", "--tokens"])
        .arg(tokens.file())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut seen = String::new();
    output.read_line(&mut seen).unwrap();
    let address = seen.trim_end().strip_prefix("listening ").unwrap().parse().unwrap();
    for token in secrets {
        for (method, path) in [
            ("GET", "/kv/a"),
            ("PUT", "/kv/a"),
            ("GET", "/kv/%zz"),
            ("GET", "/stats"),
            ("GET", "/metrics"),
            ("GET", "/readyz"),
            ("POST", "/nowhere"),
        ] {
            let mut client = Client::connect(address).unwrap();
            for field in [format!("Bearer {token}"), format!("Basic {token}"), format!("Bearer {token} x")] {
                let answer = client.ask(method, path, &[("Authorization", &field)], b"").unwrap();
                seen += &format!("{:?} {}", answer.headers, answer.text());
            }
        }
        // Where it does not belong.
        for request in [
            format!("GET /nowhere?access_token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
            format!("GET /kv/a HTTP/1.1\r\nHost: localhost\r\nAuthorization Bearer {token}\r\n\r\n"),
            format!("GET /kv/a HTTP/1.1\r\nAuthorization: Bearer {token}\r\n\r\n"),
        ] {
            let answer = Client::connect(address).unwrap().exchange(request.as_bytes());
            seen += &format!("{:?} {}", answer.headers, answer.text());
        }
    }
    // A file that has a token in place of its hash is refused without showing it.
    let pid = child.id();
    for (from, to) in [("sha256 = \"", format!("sha256 = \"{good}")), ("name = ", format!("{good} = "))] {
        let text = fs::read_to_string(tokens.file()).unwrap();
        fs::write(tokens.file(), text.replacen(from, &to, 1)).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::HUP).unwrap();
        let mut stats = || {
            let answer = ask(&mut Client::connect(address).unwrap(), &admin, "GET", "/stats");
            seen += &answer.text();
            answer.problem()["weir_reload_failed{files=\"tokens\"}"] == 1.0
        };
        until("the file is refused", &mut stats);
        fs::write(tokens.file(), text).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::HUP).unwrap();
        until("the file is read again", || !stats());
    }
    for file in ["cmdline", "environ", "comm"] {
        seen += &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap());
    }
    seen += &fs::read_to_string(tokens.file()).unwrap();
    drop(child.stdin.take());
    output.read_to_string(&mut seen).unwrap();
    let mut log = String::new();
    child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(log.contains("tokens: what was read before stays in use"), "{log}");
    seen += &log;
    for token in secrets {
        assert!(!seen.contains(token.as_str()), "a token is shown");
        // Nor most of one.
        assert!(!seen.contains(&token[..40]), "a part of a token is shown");
    }
}

/// The link became a file of its own, of which the server that has the other one knew nothing.
#[test]
fn a_token_is_added_to_the_file_that_a_link_leads_to() {
    let tokens = Tokens::new();
    let real = tokens.directory.path().join("real");
    fs::write(&real, "").unwrap();
    std::os::unix::fs::symlink("real", tokens.file()).unwrap();
    tokens.add("a", "--verbs read");
    assert!(fs::read_to_string(&real).unwrap().contains("\"a\""));
    assert!(tokens.file().is_symlink());
}

#[test]
fn weir_token_prints_a_token_once_and_its_entry() {
    let made = weir()
        .args(["token", "ci \"x\"", "--verbs", "read", "--rate", "2", "--expires", "1h"])
        .output()
        .unwrap();
    let text = String::from_utf8(made.stdout).unwrap();
    let (token, entry) = text.split_once("\n\n").unwrap();
    assert!(token.starts_with("weir-") && token.len() == 69, "{token}");
    assert!(!entry.contains(token));
    let file = Tokens::new();
    fs::write(file.file(), entry).unwrap();
    let server = file.serve(&[]);
    assert_eq!(ask(&mut server.client(), token, "GET", "/kv/a").status, 404);
    for (flags, part) in [
        (&["token", "a", "--verbs", "raed"][..], "invalid value 'raed'"),
        (&["token", "a", "--expires", "soon"], "it is no instant and no time from now"),
        (&["token", "a", "--burst", "2"], "--rate"),
        (&["token", "a", "--rate", "0"], "the entry, token \"a\": rate is 0.001 to 1000000"),
        (&["token", "a", "--rate", "10", "--burst", "0"], "and burst 1 to 1000000"),
        (&["token", ""], "a value is required for '<NAME>'"),
    ] {
        let refused = weir().args(flags).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.status.code() == Some(2) && said.contains(part), "{said}");
    }
    let past = weir().args(["token", "a", "--expires", "2020-01-01T00:00:00Z"]).output().unwrap();
    assert!(past.status.success() && String::from_utf8_lossy(&past.stderr).contains("has expired already"));
    // What the server would refuse is not written.
    let before = fs::read(file.file()).unwrap();
    let twice = weir().args(["token", "ci \"x\"", "--tokens"]).arg(file.file()).output().unwrap();
    assert!(!twice.status.success());
    assert_eq!(fs::read(file.file()).unwrap(), before);
    let broken = file.file().with_extension("broken");
    fs::write(&broken, "[[token]\n").unwrap();
    let refused = weir().args(["token", "a", "--tokens"]).arg(&broken).output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("tokens.broken, line 1: "), "{refused:?}");
    fs::remove_file(&broken).unwrap();
    // Whatever the file is called.
    let other = file.file().with_extension("new");
    fs::write(&other, &before).unwrap();
    let twice = weir().args(["token", "ci \"x\"", "--tokens"]).arg(&other).output().unwrap();
    assert!(!twice.status.success());
    assert_eq!(fs::read(&other).unwrap(), before);
    // The file keeps its owner, and nothing stays beside it, also if it cannot be written.
    let by_shell = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(weir().get_program()).arg(file.file());
        let output = shell.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    fs::remove_file(&other).unwrap();
    let may_chown = std::os::unix::fs::chown(file.file(), Some(1234), Some(1234)).is_ok();
    file.add("second", "");
    let found = fs::metadata(file.file()).unwrap();
    assert!(!may_chown || (found.uid(), found.gid()) == (1234, 1234));
    let (is_added, said) = by_shell("trap '' XFSZ; ulimit -f 0; exec \"$1\" token third --tokens \"$2\"");
    assert!(!is_added && said.contains("File too large"), "{said}");
    assert_eq!(fs::read_dir(file.directory.path()).unwrap().count(), 1);
    let (is_added, said) = by_shell("touch \"$2.new\"; exec \"$1\" token third --tokens \"$2\"");
    assert!(!is_added && said.contains(".new: File exists") && said.contains("remove it"), "{said}");
    // Of several commands at once each adds its entry or fails.
    fs::remove_file(file.file().with_added_extension("new")).unwrap();
    let add = |name: &str| weir().args(["token", name, "--tokens"]).arg(file.file()).spawn().unwrap();
    let names: Vec<String> = (0..8).map(|index| format!("parallel-{index}")).collect();
    let started: Vec<_> = names.iter().map(|name| add(name)).collect();
    let added = started.into_iter().map(|mut command| command.wait().unwrap().success());
    let added: Vec<bool> = added.collect();
    let text = fs::read_to_string(file.file()).unwrap();
    let stored: Vec<bool> = names.iter().map(|name| text.contains(&format!("\"{name}\""))).collect();
    assert!(added == stored && added.contains(&true), "{added:?} {stored:?}");
}
