//! The memory budget: clients that take all of it, and do not give it back.

use crate::hostile::{request, server, started};
use crate::support::{Client, Server, is_long, until, weir};
use kv::units::Size;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Stdio};

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn gauge(client: &mut Client, name: &str) -> f64 {
    client.stats()[name].as_f64().unwrap()
}

fn until_reserved(client: &mut Client, bytes: f64) {
    until("the reserved memory", || gauge(client, "weir_memory_reserved_bytes") == bytes);
}

/// Memory of a process, in KiB: `VmRSS`, or `VmHWM`, the most it has had.
fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// As many open files as this process may have.
fn raise_limit_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Announces a value of so many bytes. The server has read that, and waits for the value.
fn announced(server: &Server, bytes: usize) -> Client {
    let mut client = server.client();
    let fields = format!("Expect: 100-continue\r\nContent-Length: {bytes}\r\n");
    assert_eq!(client.exchange(&request("PUT /kv/announced", &fields)).status, 100);
    client
}

/// The same, and sends all of it but the last byte.
fn begun(server: &Server, bytes: usize) -> Client {
    let mut client = announced(server, bytes);
    client.send(&vec![b'x'; bytes - 1]).unwrap();
    client
}

/// Two of them took the budget from everybody else.
#[test]
fn a_length_that_is_announced_takes_no_memory() {
    const MANY: usize = 1000;
    const LARGE: usize = 64 << 20;
    raise_limit_of_files();
    let flags = ["--memory-budget", "128MiB", "--value-bytes", "64MiB", "--head-timeout", "1h"];
    let server = server(&flags);
    let mut client = server.client();
    let value = vec![b'x'; 100_000];
    assert_eq!(client.put("/kv/a", &value).status, 201);
    let before = memory_kib(server.pid(), "VmRSS");
    let mut hostile: Vec<Client> = (0..MANY).map(|_| announced(&server, LARGE)).collect();
    hostile.iter_mut().for_each(|client| client.send(b"x").unwrap());
    assert_eq!(client.put("/kv/a", &value).status, 204);
    assert_eq!(client.get("/kv/a").body, value);
    until_reserved(&mut client, 0.0);
    let grown = memory_kib(server.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB");
}

/// Each kept its buffer for answers, half a MiB, for as long as it waited.
#[test]
fn connections_that_wait_keep_no_large_buffers() {
    const MANY: usize = 100;
    const ANSWERS: usize = 30;
    let server = server(&["--head-timeout", "1h"]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![b'x'; 16 << 10]).status, 201);
    let etag = client.get("/kv/a").header("etag").unwrap().to_owned();
    let for_change = request("GET /kv/a", &format!("Prefer: wait=600\r\nIf-None-Match: {etag}\r\n"));
    let answered = request("GET /kv/a", "").repeat(ANSWERS);
    let before = memory_kib(server.pid(), "VmRSS");
    let waiting = [b"GET /".to_vec(), for_change].into_iter().flat_map(|last| {
        let (server, answered) = (&server, &answered);
        (0..MANY).map(move |_| {
            let mut client = server.client();
            client.send(&[&answered[..], &last].concat()).unwrap();
            for _ in 0..ANSWERS {
                assert_eq!(client.answer(false).unwrap().status, 200);
            }
            client
        })
    });
    let _waiting: Vec<Client> = waiting.collect();
    let grown = memory_kib(server.pid(), "VmRSS").saturating_sub(before) as usize;
    assert!(grown < 2 * MANY * 128, "{grown} KiB");
}

/// Each held the value that it had found, of which the budget knew nothing.
#[test]
fn requests_that_wait_hold_no_values() {
    const VALUE: usize = 4 << 20;
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().display());
    // None of them fits into a part of the cache.
    let server = Server::start(&store, &["--cache-bytes", "1MiB"]);
    let mut client = server.client();
    let wait = |key: String| {
        assert_eq!(client.put(&key, &vec![b'x'; VALUE]).status, 201);
        let etag = client.get(&key).header("etag").unwrap().to_owned();
        let fields = format!("Prefer: wait=300\r\nIf-None-Match: {etag}\r\n");
        (request(&format!("GET {key}"), &fields), server.client())
    };
    let mut waiting: Vec<(Vec<u8>, Client)> = (0..24).map(|i| format!("/kv/{i}")).map(wait).collect();
    let mut client = server.client();
    let before = memory_kib(server.pid(), "VmRSS");
    for (request, client) in &mut waiting {
        client.send(request).unwrap();
    }
    let reads = 2 * waiting.len();
    until("they have looked", || {
        gauge(&mut client, "weir_store_batch_size_sum{operation=\"read\"}") == reads as f64
    });
    until_reserved(&mut client, 0.0);
    let grown = (memory_kib(server.pid(), "VmRSS").saturating_sub(before) << 10) as usize;
    assert!(grown < waiting.len() * VALUE / 2, "{grown} bytes");
}

#[test]
fn a_value_that_does_not_fit_into_memory_is_refused_before_it_is_sent() {
    const VALUE: usize = 1 << 20;
    let flags = ["--memory-budget", "4MiB", "--value-bytes", "1MiB", "--head-timeout", "1h"];
    let server = server(&[&flags[..], &["--compat", "put-kv=127.0.0.1:0"]].concat());
    let mut client = server.client();
    assert_eq!(gauge(&mut client, "weir_memory_budget_bytes"), (4 * VALUE) as f64);
    let mut late = announced(&server, VALUE);
    let mut hostile: Vec<Client> = (0..4).map(|_| begun(&server, VALUE)).collect();
    until_reserved(&mut client, (4 * VALUE) as f64);
    // It fitted when it was announced.
    late.send(&vec![b'x'; 60_000]).unwrap();
    let answer = late.answer(false).unwrap();
    assert_eq!((answer.status, answer.header("weir-outcome")), (503, Some("not-applied")));
    late.finish_sending();
    assert!(late.is_closed());
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut refused = server.client();
        let head = request("PUT /kv/b", &format!("{expect}Content-Length: {VALUE}\r\n"));
        let answer = refused.exchange(&head);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
        assert_eq!(answer.problem()["code"], "overloaded");
        refused.finish_sending();
        assert!(refused.is_closed());
    }
    let mut refused = server.client();
    let mut bytes = request("PUT /kv/b", "Transfer-Encoding: chunked\r\n");
    bytes.extend(format!("{VALUE:x}\r\n{}", "x".repeat(60_000)).into_bytes());
    assert_eq!(refused.exchange(&bytes).status, 503, "its length is not announced");
    let mut refused = Client::connect(server.compat("put-kv")).unwrap();
    assert_eq!(refused.exchange(&request("POST /b", &format!("Content-Length: {VALUE}\r\n"))).status, 503);
    assert!(gauge(&mut client, "weir_shed_total{reason=\"memory\"}") >= 4.0);

    assert_eq!(client.put("/kv/small", &[b'x'; 36 << 10]).status, 201, "there is room for small ones");
    assert_eq!(client.get("/kv/b").status, 404);

    // One is given up and one is completed.
    drop(hostile.pop());
    until_reserved(&mut client, (3 * VALUE) as f64);
    let mut complete = hostile.pop().unwrap();
    assert_eq!(complete.exchange(b"x").status, 201);
    until_reserved(&mut client, (2 * VALUE) as f64);
    assert_eq!(client.put("/kv/b", &vec![b'x'; VALUE]).status, 201);
    // Two chunks that fit, and one that is malformed.
    let mut bytes = request("PUT /kv/b", "Transfer-Encoding: chunked\r\n");
    bytes.extend(format!("ea60\r\n{}\r\nnone\r\n", "x".repeat(60_000)).into_bytes());
    assert_eq!(server.client().exchange(&bytes).status, 400);
    drop(hostile);
    until_reserved(&mut client, 0.0);
    let whole: Vec<Client> = (0..4).map(|_| begun(&server, VALUE)).collect();
    until_reserved(&mut client, (4 * VALUE) as f64);
    drop(whole);
}

/// Of a value that the cache drops meanwhile, nobody else knows.
#[test]
fn an_answer_counts_until_it_is_sent() {
    // More than the sockets take.
    const VALUE: usize = 32 << 20;
    let flags = ["--memory-budget", "48MiB", "--value-bytes", "32MiB", "--head-timeout", "1h"];
    // The cache has room for it.
    let server = server(&[&flags[..], &["--cache-bytes", "4GiB"]].concat());
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![b'x'; VALUE]).status, 201);
    let mut slow = server.client();
    slow.send(&request("GET /kv/a", "")).unwrap();
    until_reserved(&mut client, VALUE as f64);
    let refused = client.get("/kv/a");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(
        (refused.problem()["code"].as_str(), refused.header("weir-outcome")),
        (Some("overloaded"), None)
    );
    assert_eq!(client.ask("HEAD", "/kv/a", &[], b"").unwrap().status, 200, "nothing of it is sent");
    assert_eq!(slow.answer(false).unwrap().body.len(), VALUE);
    until_reserved(&mut client, 0.0);
    assert_eq!(client.get("/kv/a").body.len(), VALUE);
    // Nobody reads it, and then its client is gone.
    let mut gone = server.client();
    gone.send(&request("GET /kv/a", "")).unwrap();
    until_reserved(&mut client, VALUE as f64);
    drop(gone);
    until_reserved(&mut client, 0.0);
}

/// Those of compatibility APIs are copied, and those to several requests.
#[test]
fn copied_answers_count_while_nobody_reads_them() {
    const VALUE: usize = 32 << 20;
    let flags = ["--memory-budget", "48MiB", "--value-bytes", "32MiB", "--head-timeout", "1h"];
    let more = ["--cache-bytes", "4GiB", "--compat", "put-kv=127.0.0.1:0"];
    let server = server(&[&flags[..], &more].concat());
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![b'x'; VALUE]).status, 201);
    let slow = || {
        let mut slow = Client::connect(server.compat("put-kv")).unwrap();
        slow.send(&request("GET /kv/a", "")).unwrap();
        slow
    };
    let first = slow();
    until("the answer counts", || gauge(&mut client, "weir_memory_reserved_bytes") >= VALUE as f64);
    let mut second = slow();
    until("it does not fit", || gauge(&mut client, "weir_shed_total{reason=\"memory\"}") >= 1.0);
    assert!(second.answer(false).is_err(), "the connection is closed in the middle");
    drop(first);
    until_reserved(&mut client, 0.0);
}

/// What an atomic batch writes is written, also if the rows that it reads do not fit.
#[test]
fn rows_of_an_atomic_batch_count_while_nobody_reads_its_answers() {
    const VALUE: usize = 16 << 20;
    let flags = ["--memory-budget", "48MiB", "--value-bytes", "16MiB", "--head-timeout", "1h"];
    let server = server(&flags);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![b'x'; VALUE]).status, 201);
    let reads = "{\"op\":\"get\",\"key\":\"a\"}\n".repeat(2);
    let mut slow = server.client();
    let length = format!("Content-Length: {}\r\n", reads.len());
    slow.send(&[request("POST /batch?atomic=true", &length), reads.clone().into_bytes()].concat()).unwrap();
    until("its rows count", || gauge(&mut client, "weir_memory_reserved_bytes") >= 2.0 * VALUE as f64);
    let lines = reads + "{\"op\":\"put\",\"key\":\"b\",\"value\":\"1\"}\n";
    let answer = client.ask("POST", "/batch?atomic=true", &[], lines.as_bytes()).unwrap().text();
    assert_eq!(answer.matches("\"code\":\"overloaded\"").count(), 2, "{answer}");
    assert_eq!(client.get("/kv/b").text(), "1");
    drop(slow);
    until_reserved(&mut client, 0.0);
}

/// A batch of reads held a thousand values side by side and all its answers, and a list a page.
#[test]
fn batches_and_lists_that_nobody_reads_stay_within_the_budget() {
    const VALUE: usize = 2 << 20;
    const KEYS: usize = 64;
    const MANY: usize = 200;
    /// The rows of one atomic batch, batches of reads, and what each connection has.
    const BESIDES: u64 = (64 << 20) + (16 << 20) + (MANY as u64) * (128 << 10);
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}/store", directory.path().display());
    let flags = ["--memory-budget", "64MiB", "--cache-entries", "0", "--head-timeout", "1h"];
    let server = Server::start(&store, &flags);
    let mut client = server.client();
    let value = vec![b'x'; VALUE];
    (0..KEYS).for_each(|i| assert_eq!(client.put(&format!("/kv/{i:02}"), &value).status, 201));
    client.put("/kv/small", b"value");
    let batch = |query: &str, lines: usize| {
        let line = |i| format!("{{\"op\":\"get\",\"key\":\"{:02}\"}}\n", i % KEYS);
        let lines: String = (0..lines).map(line).collect();
        let length = format!("Content-Length: {}\r\n", lines.len());
        [request(&format!("POST /batch{query}"), &length), lines.into_bytes()].concat()
    };
    let list = request("GET /kv?values=true", "");
    // The most so far is of now.
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
    let before = memory_kib(server.pid(), "VmHWM") << 10;
    let mut hostile: Vec<Client> = Vec::new();
    for i in 0..MANY {
        let mut client = server.client();
        let asked = match i % 8 {
            0 => batch("?atomic=true", 16),
            1..=4 => batch("", 1000),
            _ => list.clone(),
        };
        client.send(&asked).unwrap();
        hostile.push(client);
    }
    for (i, hostile) in hostile.iter_mut().enumerate() {
        until("it is answered or refused", || hostile.has_answer());
        // The others are served meanwhile.
        assert_eq!(client.get("/kv/small").text(), "value");
        assert_eq!(client.put(&format!("/kv/other-{i}"), b"value").status, 201);
        let line = b"{\"op\":\"get\",\"key\":\"small\"}\n";
        assert!(client.ask("POST", "/batch", &[], line).unwrap().text().contains("\"value\":\"value\""));
        let page = client.get("/kv?prefix=small&values=true");
        assert!(page.status == 200 && page.text().contains("\"value\":\"value\""), "{}", page.text());
    }
    assert!(gauge(&mut client, "weir_shed_total{reason=\"memory\"}") > 0.0, "more than fit");
    let most = memory_kib(server.pid(), "VmHWM") << 10;
    let grown = most.saturating_sub(before);
    assert!(grown < (64 << 20) + BESIDES, "{grown} bytes");
    drop(hostile);
    until_reserved(&mut client, 0.0);
    let lines = client.exchange(&batch("", KEYS)).text();
    assert_eq!(lines.lines().filter(|line| line.len() > VALUE).count(), KEYS);
}

/// All of them were in memory together.
#[test]
fn rows_that_decide_writes_are_read_some_at_a_time() {
    const VALUE: usize = 2 << 20;
    const KEYS: usize = 100;
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}/store?segment=4MiB", directory.path().display());
    let server = Server::start(&store, &["--cache-entries", "0"]);
    let mut client = server.client();
    let value = vec![b'x'; VALUE];
    (0..KEYS).for_each(|i| assert_eq!(client.put(&format!("/kv/{i}"), &value).status, 201));
    // The most so far is of now.
    std::fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
    let before = memory_kib(server.pid(), "VmHWM") << 10;
    let line = |i| format!("{{\"op\":\"delete\",\"key\":\"{i}\",\"if_match\":\"*\"}}\n");
    let lines: String = (0..KEYS).map(line).collect();
    let answer = client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap().text();
    assert_eq!(answer.matches("\"status\":204").count(), KEYS, "{answer}");
    let grown = (memory_kib(server.pid(), "VmHWM") << 10).saturating_sub(before);
    // 64 lines of a batch are done side by side.
    assert!(grown < 32 * VALUE as u64, "{grown} bytes");
}

/// Of a batch its lines are copied, and each copy counts.
#[test]
fn a_line_of_a_batch_that_does_not_fit_is_not_applied() {
    let server = server(&["--memory-budget", "5MiB", "--value-bytes", "4MiB"]);
    let mut client = server.client();
    let large = "x".repeat(3 << 20);
    let lines = format!(
        "{{\"op\":\"put\",\"key\":\"a\",\"value\":\"{large}\"}}\n{{\"op\":\"put\",\"key\":\"b\",\"value\":\"1\"}}\n"
    );
    let answer = client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap().text();
    let answers: Vec<serde_json::Value> =
        answer.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&answers[0]["code"], &answers[0]["outcome"]), (&"overloaded".into(), &"not-applied".into()));
    assert_eq!(answers[1]["status"], 201);
    let refused = client.ask("POST", "/batch?atomic=true", &[], lines.as_bytes()).unwrap();
    // It never will: that counts three times.
    assert_eq!((refused.status, refused.header("weir-outcome")), (413, Some("not-applied")));
    assert_eq!(client.get("/kv/a").status, 404);
    let refused = client.ask("POST", "/batch", &[], lines.repeat(2).as_bytes()).unwrap();
    assert_eq!((refused.status, refused.header("weir-outcome")), (413, Some("not-applied")));
    until_reserved(&mut server.client(), 0.0);
}

#[test]
fn a_value_that_the_store_refuses_counts_no_longer() {
    let flags = ["--memory-budget", "9MiB", "--lab", "--inject", "store_worker=500ms"];
    let server = server(&[&flags[..], &["--store-timeout", "50ms"]].concat());
    let mut client = server.client();
    let status = client.put("/kv/a", &vec![b'x'; 1 << 20]).status;
    assert!(status >= 500, "{status}");
    until_reserved(&mut client, 0.0);
}

/// What was sent quickly bought one second of silence for each KiB.
#[test]
fn a_client_that_trickles_is_ended_whatever_it_sent_before() {
    const VALUE: usize = 8 << 20;
    let server = server(&["--head-timeout", "500ms"]);
    let mut client = server.client();
    let mut slow = announced(&server, VALUE);
    // On a machine that stalls it may be too late already.
    let _ = slow.send(&vec![b'x'; VALUE - 100_000]);
    // Each byte in time after the one before, which was enough for hours.
    let pause = std::time::Duration::from_millis(100);
    let answered = (0..600).any(|_| {
        std::thread::sleep(pause);
        slow.send(b"x").is_err() || slow.has_answer()
    });
    assert!(answered, "it goes on");
    assert_eq!(gauge(&mut client, "weir_http_requests_total{method=\"PUT\",code=\"408\"}"), 1.0);
    until_reserved(&mut client, 0.0);
}

/// 18,976 of the connections fit where a process may have 20,000 files; the others are refused.
#[test]
fn hostile_connections_take_no_more_memory_than_the_server_said() {
    const VALUE: usize = 8 << 20;
    /// So many large values fit.
    const LARGE: usize = 16;
    /// It is not counted.
    const SMALL: usize = 32 << 10;
    let many = if is_long() { 19_000 } else { 1_000 };
    raise_limit_of_files();
    let mut command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "2", "--store", "memory:"]);
    command.args(["--memory-budget", "128MiB", "--cache-bytes", "64MiB"]);
    command.args(["--head-timeout", "1h", "--idle-timeout", "1h"]);
    let (child, port) = started(command.stderr(Stdio::piped()));
    let mut server = Killed(child);
    let said = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = said.take(100).find(|line| line.contains("memory: ")).unwrap();
    let size = |before: &str| {
        let text = said.split_once(before).unwrap().0.rsplit(' ').next().unwrap();
        text.parse::<Size>().unwrap().0
    };
    let (budget, each) = (size(" for request bodies"), size(" for each of up to"));
    assert_eq!(budget, (LARGE * VALUE) as u64);

    let connect = || Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap();
    let mut normal = connect();
    assert_eq!(normal.put("/kv/large", &vec![b'x'; VALUE]).status, 201);
    assert_eq!(normal.get("/kv/large").body.len(), VALUE);
    let before = memory_kib(server.0.id(), "VmRSS") << 10;
    // Half of the budget: a large body is sent but for its end.
    let head = request("PUT /kv/large-too", &format!("Content-Length: {VALUE}\r\n"));
    let mut hostile: Vec<Client> = (0..LARGE / 2).map(|_| connect()).collect();
    for client in &mut hostile {
        client.send(&[&head[..], &vec![b'x'; VALUE - 1]].concat()).unwrap();
    }
    until_reserved(&mut normal, (LARGE / 2 * VALUE) as f64);
    // The other half: a large answer is not read.
    let get = request("GET /kv/large", "");
    for _ in 0..LARGE / 2 {
        let mut client = connect();
        client.send(&get).unwrap();
        hostile.push(client);
    }
    until_reserved(&mut normal, (LARGE * VALUE) as f64);
    // All others are refused that, and go on to take what they get without.
    let small =
        [&get[..], &request("PUT /kv/small", &format!("Content-Length: {SMALL}\r\n")), &[b'x'; SMALL - 1]]
            .concat();
    let mut refused = 0;
    while hostile.len() < many {
        let mut client = connect();
        if hostile.len().is_multiple_of(100) {
            assert_eq!(client.exchange(&head).status, 503);
            client = connect();
        }
        // One above the limit of connections may be closed by now.
        refused += u32::from(client.send(&small).is_err());
        hostile.push(client);
        if hostile.len().is_multiple_of(100) {
            assert_eq!(normal.put("/kv/a", b"value").status, if hostile.len() == 100 { 201 } else { 204 });
            assert_eq!(normal.get("/kv/a").text(), "value");
        }
    }
    // Those that were not refused have all arrived if each can be completed.
    let mut completed = 0;
    for client in hostile.iter_mut().skip(LARGE) {
        let answers = client.answer(false).and_then(|refusal| {
            assert_eq!(refusal.status, 503);
            client.send(b"x")?;
            client.answer(false)
        });
        match answers {
            Ok(answer) => {
                assert!(matches!(answer.status, 201 | 204));
                completed += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(completed >= many * 9 / 10, "{completed} were completed, {refused} refused");
    assert_eq!(gauge(&mut normal, "weir_memory_reserved_bytes"), (LARGE * VALUE) as f64);
    let grown = (memory_kib(server.0.id(), "VmHWM") << 10).saturating_sub(before);
    let most = budget + many as u64 * each;
    assert!(grown <= most, "{many} connections take {grown} bytes, more than {most}");
}
