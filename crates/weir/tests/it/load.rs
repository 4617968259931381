//! The load generator against servers written for it: what it counts must be what they did.
//!
//! The servers read HTTP with a few lines of their own rather than with the codec under test.

use super::support::{PATIENCE, free_address};
use kv::proto::{Latency, LoadEvent, LoadReport};
use load::{self, Connect, EarlyEnd, Pacing, Plan};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What a server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// As a key-value store does.
    Store,
    /// A value as the clients write them, whether it was written or not.
    Value,
    /// The same, in chunks.
    Chunks,
    /// The same, then the connection ends as announced.
    ValueThenClose,
    /// The same, with which the connection ends, without a word.
    ValueThenVanish,
    /// The same, but the connection ends a moment later.
    ValueThenLeave,
    /// The same without a length: the body ends with the connection.
    ValueUntilClose,
    /// As a key-value store does, but a read brings what was there before the last write.
    Older,
    /// As a key-value store does, but the last byte of a value is another.
    BadTail,
    /// The value of another key.
    WrongValue,
    /// This status and no body.
    Status(u16),
    /// 503, which says this of its outcome.
    Unavailable(&'static str),
    /// The connection ends inside the body.
    ShortBody,
    /// The connection is reset there.
    ShortThenReset,
    /// The body never ends.
    SlowBody,
    /// The connection ends inside the head.
    ShortHead,
    /// The body is longer than it said.
    LongBody,
    /// Two lengths, one of them right.
    TwoLengths,
    /// A value, and more behind it a moment later.
    Afterthought,
    /// The same, and then the connection ends.
    Farewell,
    /// Not HTTP.
    Garbage,
    /// The connection ends instead, cleanly.
    Close,
    /// The connection is reset instead.
    Reset,
    /// Nothing, ever.
    Silence,
}

/// A server on a port of its own, until the test process ends.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) state: Arc<Mutex<ServerState>>,
}

#[derive(Default)]
pub(super) struct ServerState {
    /// Requests so far, over all connections.
    requests: usize,
    pub(super) values: HashMap<String, Vec<u8>>,
    /// What the latest values took the place of.
    before: HashMap<String, Vec<u8>>,
    /// The request lines of each connection.
    pub(super) lines: Vec<Vec<String>>,
}

impl Server {
    /// Answers its n-th request, counted over all connections from zero, with `reply(n)`.
    pub(super) fn start(reply: impl Fn(usize) -> Reply + Clone + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&server.state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (state, reply) = (Arc::clone(&state), reply.clone());
                // A client that leaves in the middle of an answer is none of the server's business.
                thread::spawn(move || converse(stream.unwrap(), &state, reply));
            }
        });
        server
    }

    /// Every request so far, the streams of the connections sorted, each cut to `length`.
    pub(super) fn streams(&self, length: usize) -> Vec<Vec<String>> {
        let state = self.state.lock().unwrap();
        let mut streams: Vec<Vec<String>> =
            state.lines.iter().map(|lines| lines.iter().take(length).cloned().collect()).collect();
        streams.sort();
        streams
    }
}

fn converse(
    stream: TcpStream,
    state: &Mutex<ServerState>,
    reply: impl Fn(usize) -> Reply,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    let mut own = None;
    // Peeked at, not read: a connection closed over unread bytes is reset.
    while writer.peek(&mut [0])? > 0 {
        let reply = {
            let mut state = state.lock().unwrap();
            state.requests += 1;
            reply(state.requests - 1)
        };
        if reply == Reply::ShortThenReset {
            writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\npop")?;
        }
        if matches!(reply, Reply::Reset | Reply::ShortThenReset) {
            return Ok(());
        }
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut body = 0;
        loop {
            let mut field = String::new();
            reader.read_line(&mut field)?;
            match field.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    body = value.parse().unwrap();
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut value = vec![0; body];
        reader.read_exact(&mut value)?;

        let mut state = state.lock().unwrap();
        let own = *own.get_or_insert_with(|| {
            state.lines.push(Vec::new());
            state.lines.len() - 1
        });
        state.lines[own].push(line.trim_end().to_owned());
        let (method, path) = line.split_once(' ').unwrap();
        let path = path.split(' ').next().unwrap();
        if let Some(answer) = computed(path) {
            drop(state);
            writer.write_all(&ok(answer.as_bytes()))?;
            continue;
        }
        let key = path.strip_prefix("/kv/").unwrap().to_owned();
        let of_key = format!("{key}=a value");
        let of_key = of_key.as_str();
        let short = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n";
        let answer: Vec<u8> = match reply {
            Reply::Store | Reply::Older | Reply::BadTail => match method {
                "GET" => {
                    let before = state.before.get(&key).filter(|_| reply == Reply::Older);
                    let found = before.or(state.values.get(&key)).cloned();
                    found.map_or_else(
                        || status(404),
                        |mut value| {
                            if let (Reply::BadTail, Some(last)) = (reply, value.last_mut()) {
                                *last ^= 1;
                            }
                            ok(&value)
                        },
                    )
                }
                "PUT" => match state.values.insert(key.clone(), value) {
                    Some(before) => {
                        state.before.insert(key, before);
                        status(204)
                    }
                    None => status(201),
                },
                _ => status(if state.values.remove(&key).is_some() { 204 } else { 404 }),
            },
            Reply::Value
            | Reply::ValueThenVanish
            | Reply::ValueThenLeave
            | Reply::Afterthought
            | Reply::Farewell => ok(of_key.as_bytes()),
            Reply::Chunks => {
                let (start, end) = of_key.split_at(3);
                let chunk = |part: &str| format!("{:x}\r\n{part}\r\n", part.len());
                let chunks = format!("{}{}0\r\n\r\n", chunk(start), chunk(end));
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}").into()
            }
            Reply::ValueThenClose => format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{of_key}",
                of_key.len()
            )
            .into(),
            Reply::ValueUntilClose => format!("HTTP/1.1 200 OK\r\n\r\n{of_key}").into(),
            Reply::WrongValue => ok(b"of_another_key=a value"),
            Reply::Status(code) => status(code),
            Reply::Unavailable(outcome) => {
                format!("HTTP/1.1 503 So\r\nContent-Length: 0\r\nWeir-Outcome: {outcome}\r\n\r\n").into()
            }
            Reply::ShortBody | Reply::SlowBody => format!("{short}{of_key}").into(),
            Reply::ShortHead => short[..20].into(),
            Reply::LongBody => [ok(of_key.as_bytes()), b"and more".to_vec()].concat(),
            Reply::TwoLengths => {
                let lengths = format!("Content-Length: {}\r\nContent-Length: 99", of_key.len());
                format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n{of_key}").into()
            }
            Reply::Garbage => b"220 mail.example ESMTP\r\n".to_vec(),
            Reply::Close | Reply::Reset | Reply::ShortThenReset | Reply::Silence => Vec::new(),
        };
        drop(state);
        rustix::net::sockopt::set_tcp_cork(&writer, reply == Reply::ValueThenVanish)?;
        writer.write_all(&answer)?;
        if reply == Reply::Afterthought {
            writer.write_all(b"and more")?;
        }
        if reply == Reply::ValueThenLeave {
            // Long enough for the client to have the answer and to think.
            thread::sleep(Duration::from_millis(50));
        }
        if reply == Reply::Farewell {
            writer.write_all(&status(408))?;
        }
        if !matches!(
            reply,
            Reply::Store
                | Reply::Older
                | Reply::BadTail
                | Reply::Afterthought
                | Reply::Unavailable(_)
                | Reply::SlowBody
                | Reply::Value
                | Reply::Chunks
                | Reply::WrongValue
                | Reply::Status(_)
                | Reply::Silence
        ) {
            return Ok(());
        }
    }
    Ok(())
}

/// The answer of weir's lab-only routes.
fn computed(path: &str) -> Option<String> {
    if let Some(count) = path.strip_prefix("/compute/prime?count=") {
        assert!((100..=1000).contains(&count.parse::<u32>().unwrap()));
        return Some(format!("{{\"count\":{count},\"primes\":[2,3,5]}}"));
    }
    let text = path.strip_prefix("/compute/hash?text=")?;
    assert_eq!(text.len(), 100);
    let hash = text.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    Some(format!("{{\"hash\":{hash}}}"))
}

pub(super) fn ok(body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

pub(super) fn status(code: u16) -> Vec<u8> {
    let length = if code == 204 { "" } else { "Content-Length: 0\r\n" };
    format!("HTTP/1.1 {code} So\r\n{length}\r\n").into()
}

pub(super) fn plan(address: SocketAddr, workload: &str) -> Plan {
    // Far longer than any hiccup of a busy machine: only silence is to time out.
    let flags =
        "--clients 1 --warmup 0s --window 500ms --keys 10 --value-size 100 --timeout 20s --no-preload";
    let url = format!("http://{address}");
    clap::Parser::parse_from(["load", &url, "--workload", workload].into_iter().chain(flags.split(' ')))
}

pub(super) fn run(plan: &Plan) -> LoadReport {
    load::run(plan, &mut |_| {}).unwrap()
}

/// Runs `plan` with a window that ends when `is_enough` of the requests that are over in it: a slow machine only needs longer.
pub(super) fn run_until(plan: &Plan, mut is_enough: impl FnMut(u64) -> bool) -> LoadReport {
    let (early_end, mut over) = (EarlyEnd::default(), 0);
    let (window, bin) = (PATIENCE, Duration::from_millis(20));
    let report = load::run_until(&Plan { window, bin, ..plan.clone() }, &early_end, &mut |event| {
        if let LoadEvent::Bin { bin: 0.., report } = event {
            over += report.attempts;
            if is_enough(over) {
                early_end.request();
            }
        }
    });
    let report = report.unwrap();
    assert!(report.window_secs < window.as_secs_f64(), "it was never enough: {report:?}");
    report
}

/// The same, until at least so many requests are over.
pub(super) fn run_for(attempts: u64, plan: &Plan) -> LoadReport {
    run_until(plan, |over| over >= attempts)
}

/// Runs `plan` until each of its clients has sent `length` requests to `server`, and gives those.
pub(super) fn streams_of(plan: &Plan, server: &Server, length: usize) -> Vec<Vec<String>> {
    run_until(plan, |_| {
        let streams = server.streams(length);
        streams.len() == plan.clients as usize && streams.iter().all(|stream| stream.len() == length)
    });
    server.streams(length)
}

#[test]
fn what_is_injected_costs_the_generator_processor_time() {
    let server = Server::start(|_| Reply::Status(204));
    let plan = Plan { added_cpu: Duration::from_micros(300), ..plan(server.address, "put_all") };
    let report = run(&plan);
    let added_secs = 300e-6 * report.attempts as f64;
    assert!(report.attempts > 0 && report.cpu_secs >= 0.9 * added_secs, "{report:?}");
}

/// Runs one client against a server that goes through `replies` over and over: its report must say exactly what the
/// server did up to the last attempt, and classes it did not see must not be there.
fn check(replies: &'static [(Reply, Option<&str>)]) -> LoadReport {
    let server = Server::start(|number| replies[number % replies.len()].0);
    let report = run_for(2 * replies.len() as u64, &plan(server.address, "get_popular"));
    let mut errors = BTreeMap::new();
    let mut successes = 0;
    for (_, class) in replies.iter().cycle().take(report.attempts as usize) {
        match class {
            Some(class) => *errors.entry((*class).to_owned()).or_default() += 1,
            None => successes += 1,
        }
    }
    assert!(report.attempts > 0);
    assert_eq!((&report.errors, report.successes), (&errors, successes), "{replies:?}");
    assert_eq!(report.goodput_rps, successes as f64 / report.window_secs);
    assert_eq!(report.error_ratio, (report.attempts - successes) as f64 / report.attempts as f64);
    assert_eq!((report.latency.count, report.operations[0].latency.count), (report.attempts, successes));
    report
}

#[test]
fn every_fault_is_counted_in_its_class_and_never_as_goodput() {
    check(&[(Reply::Value, None)]);
    check(&[(Reply::Close, Some("reset"))]);
    check(&[(Reply::Reset, Some("reset"))]);
    check(&[(Reply::ShortBody, Some("closed_early"))]);
    check(&[(Reply::ShortHead, Some("closed_early"))]);
    check(&[(Reply::ValueUntilClose, None), (Reply::ShortHead, Some("closed_early"))]);
    check(&[(Reply::ShortThenReset, Some("reset"))]);
    check(&[(Reply::TwoLengths, Some("wrong_length"))]);
    check(&[(Reply::LongBody, Some("wrong_length"))]);
    check(&[(Reply::Garbage, Some("malformed"))]);
    check(&[(Reply::Status(302), Some("malformed"))]);
    check(&[(Reply::WrongValue, Some("wrong_value"))]);
    check(&[(Reply::Status(404), Some("http_4xx"))]);
    check(&[(Reply::Status(429), Some("http_429"))]);
    check(&[(Reply::Status(503), Some("http_5xx"))]);
    check(&[(Reply::Unavailable("not-applied"), Some("http_503_not_applied"))]);
    check(&[(Reply::Unavailable("unknown"), Some("http_503_unknown"))]);
    check(&[(Reply::Unavailable("perhaps"), Some("http_5xx"))]);
    check(&[(Reply::Status(504), Some("http_504"))]);
}

#[test]
fn faults_among_successes_are_counted_exactly() {
    let report = check(&[
        (Reply::Value, None),
        (Reply::Reset, Some("reset")),
        (Reply::Chunks, None),
        (Reply::ShortBody, Some("closed_early")),
        (Reply::Status(404), Some("http_4xx")),
        (Reply::Status(429), Some("http_429")),
        (Reply::Close, Some("reset")),
        (Reply::ValueThenClose, None),
        (Reply::LongBody, Some("wrong_length")),
        (Reply::WrongValue, Some("wrong_value")),
        (Reply::Garbage, Some("malformed")),
        (Reply::ValueUntilClose, None),
        (Reply::Status(500), Some("http_5xx")),
        (Reply::Status(503), Some("http_5xx")),
        (Reply::ShortHead, Some("closed_early")),
        (Reply::ShortThenReset, Some("reset")),
        (Reply::TwoLengths, Some("wrong_length")),
        (Reply::Unavailable("not-applied"), Some("http_503_not_applied")),
        (Reply::Unavailable("unknown"), Some("http_503_unknown")),
        (Reply::Status(504), Some("http_504")),
    ]);
    assert!(report.backoff_secs > 0.0);
}

#[test]
fn a_connection_closed_as_announced_costs_no_error_and_no_back_off() {
    let report = check(&[(Reply::ValueThenClose, None), (Reply::ValueUntilClose, None)]);
    assert!(report.attempts > 1 && report.backoff_secs == 0.0, "{report:?}");
}

#[test]
fn a_connection_that_ended_with_the_answer_is_not_used_again() {
    let server = Server::start(|_| Reply::ValueThenVanish);
    let report = run_for(2, &plan(server.address, "get_popular"));
    assert_eq!((report.errors, report.connects), (BTreeMap::new(), report.attempts));
}

#[test]
fn a_connection_closed_while_its_client_thinks_costs_no_error() {
    let server = Server::start(|_| Reply::ValueThenLeave);
    // Longer than the server stays.
    let pacing = Pacing { think: "1s".parse().unwrap(), ..Pacing::default() };
    let report = run_for(3, &Plan { pacing, ..plan(server.address, "get_popular") });
    assert_eq!((report.successes, report.errors.len()), (report.attempts, 0), "{report:?}");
    assert_eq!((report.connects, report.backoff_secs), (report.attempts, 0.0), "{report:?}");
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let server = Server::start(|_| Reply::Silence);
    let plan = Plan { timeout: Duration::from_millis(20), ..plan(server.address, "get_popular") };
    let report = run_for(3, &plan);
    assert_eq!(report.successes, 0);
    assert_eq!(report.errors, BTreeMap::from([("timeout".into(), report.attempts)]));
    assert!(report.latency.us_min >= 20_000.0, "{:?}", report.latency);
    assert_eq!(report.operations[0].latency, Latency::default());
}

#[test]
fn a_body_that_does_not_end_is_told_from_an_answer_that_does_not_begin() {
    let server = Server::start(|number| if number % 2 == 0 { Reply::SlowBody } else { Reply::Silence });
    // Long enough for a head to come on a machine that is busy otherwise.
    let timeout = Duration::from_secs(3);
    let plan = Plan { timeout, ..plan(server.address, "get_popular") };
    let report = run_for(2, &plan);
    let silent = report.attempts / 2;
    let errors = [("slow_body".to_owned(), report.attempts - silent), ("timeout".to_owned(), silent)];
    assert_eq!(report.errors, errors.into());
    assert_eq!(report.successes, 0);
    // The head of an answer is none.
    assert!(report.statuses.is_empty(), "{report:?}");
}

#[test]
fn what_comes_between_two_requests_is_not_taken_for_an_answer() {
    // Proxies say good-bye with an answer that nobody asked for.
    for reply in [Reply::Afterthought, Reply::Farewell] {
        let server = Server::start(move |_| reply);
        // Longer than the server needs for the second part.
        let pacing = Pacing { think: "1s".parse().unwrap(), ..Pacing::default() };
        let report = run_for(2, &Plan { pacing, ..plan(server.address, "get_popular") });
        // The first request fails if both parts arrive together, else the one that finds the second part there.
        let wrong = report.attempts - report.successes;
        assert!(wrong > 0, "{report:?}");
        assert_eq!(report.errors, BTreeMap::from([("wrong_length".into(), wrong)]), "{reply:?}");
    }
}

#[test]
fn a_server_that_goes_away_refuses_and_the_time_is_accounted_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let _probe = listener.accept().unwrap();
        let (mut client, _) = listener.accept().unwrap();
        // Gone before the answer, so that the client cannot get into the backlog again.
        drop(listener);
        assert!(client.read(&mut [0; 4096]).unwrap() > 0);
        client
            .write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
    });
    let report = run_for(5, &plan(address, "mixed"));
    server.join().unwrap();
    assert_eq!(
        report.errors["refused"],
        report.attempts - report.successes - report.errors.get("http_4xx").unwrap_or(&0)
    );
    assert!(report.backoff_secs > 0.0);
    assert_eq!((report.connects, report.connect.unwrap().count), (report.attempts, 1));
    // Nearly all of the window was back-off: an account of it that was off would show here most.
    let residual = report.little_residual().unwrap();
    assert!(residual.abs() < 0.001, "{residual} {report:?}");
}

#[test]
fn a_connection_for_each_request_is_never_used_twice() {
    // A server that heeds the request to close, and one that does not.
    for reply in [Reply::Value, Reply::ValueThenClose] {
        let server = Server::start(move |_| reply);
        let plan = Plan { clients: 2, connect: Connect::Each, ..plan(server.address, "get_popular") };
        let report = run_for(10, &plan);
        assert_eq!((report.attempts, report.errors.len()), (report.successes, 0), "{report:?}");
        let streams = server.streams(2);
        assert!(streams.len() as u64 >= report.attempts);
        assert!(streams.iter().all(|lines| lines.len() == 1), "{reply:?}");
        // Each took its time, and no longer than the request it was made for.
        let connect = report.connect.unwrap();
        assert_eq!((report.connects, connect.count), (report.attempts, report.attempts));
        assert!(connect.us_min > 0.0 && connect.us_mean < report.latency.us_mean, "{report:?}");
        assert_eq!(report.backoff_secs, 0.0);
    }
}

#[test]
fn clients_that_start_in_groups_all_get_their_turn() {
    let server = Server::start(|_| Reply::Value);
    let plan = Plan { clients: 150, threads: 2, ..plan(server.address, "get_popular") };
    // A client whose second request is there has the answer to its first.
    let is_served =
        |streams: Vec<Vec<String>>| streams.iter().filter(|lines| lines.len() == 2).count() == 150;
    let report = run_until(&plan, |_| is_served(server.streams(2)));
    assert_eq!((report.attempts, report.errors.len()), (report.successes, 0));
    assert_eq!((report.connects, report.connect.as_ref().unwrap().count), (150, 150));
    // The second and the later groups waited inside the window, and that is in the balance.
    let residual = report.little_residual().unwrap();
    assert!(residual.abs() < 0.001 && report.backoff_secs == 0.0, "{residual} {report:?}");
    // Three groups of each thread start 5 ms apart, in the warm-up if there is one.
    assert_eq!(report.warmup_secs, 0.0);
    let report = run_for(1, &Plan { warmup: Duration::from_millis(1), ..plan });
    assert_eq!(report.warmup_secs, 0.01);
}

#[test]
fn clients_are_always_in_a_request_or_in_a_back_off() {
    let faulty = |number: usize| if number % 100 == 99 { Reply::Close } else { Reply::Store };
    for (reply, clients) in [(None, 8), (Some(faulty), 3)] {
        let server = Server::start(move |number| reply.map_or(Reply::Store, |reply| reply(number)));
        let plan =
            Plan { clients, threads: 2, warmup: Duration::from_millis(50), ..plan(server.address, "mixed") };
        // Requests cut by an edge are in the balance, so that it is right however the machine stalls.
        let report = run_for(300, &plan);
        let residual = report.little_residual().unwrap();
        assert!(residual.abs() < 0.001, "{residual} {report:?}");
    }
}

#[test]
fn the_first_key_that_does_not_come_back_ends_the_run() {
    let no_store = "the server must store values";
    for (reply, told, hint) in [
        (Reply::Status(404), "PUT was answered 404 (http_4xx)", no_store),
        (Reply::Status(501), "PUT was answered 501 (http_5xx)", no_store),
        (Reply::Status(503), "PUT was answered 503 (http_5xx)", "see the server's log"),
        (Reply::Silence, "PUT failed (timeout)", no_store),
        (Reply::Close, "PUT failed (reset)", no_store),
        (Reply::Garbage, "PUT failed (malformed)", no_store),
        // Answers 200 to the PUT too.
        (Reply::Value, "GET was answered 200 (wrong_value)", no_store),
    ] {
        let server = Server::start(move |_| reply);
        let timeout = if reply == Reply::Silence { 50 } else { 20_000 };
        let plan = Plan {
            preload: true,
            keys: Some(1),
            timeout: Duration::from_millis(timeout),
            ..plan(server.address, "get_all")
        };
        let error = load::run(&plan, &mut |_| {}).unwrap_err();
        assert!(
            error.to_string().starts_with(&format!("cannot preload key all_0: {told}; hint: {hint}")),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_is_not_there_is_told_at_once() {
    let nobody = free_address();
    let error = load::run(&plan(nobody, "get_popular"), &mut |_| {}).unwrap_err();
    let expected = format!("cannot reach http://{nobody}: connection refused; hint: start the server");
    assert!(!error.is_input() && error.to_string().starts_with(&expected), "{error}");
}

pub(super) fn weir_load(arguments: &[&str]) -> (Output, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("load").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

#[test]
fn the_command_prints_a_table_a_document_or_events() {
    let server = Server::start(|_| Reply::Store);
    let url = format!("http://{}", server.address);
    // Less than a second, or there were an event for it.
    let short =
        [&url, "--workload", "get_popular", "--warmup", "10ms", "--window", "900ms", "--clients", "2"];

    let (output, stdout, stderr) = weir_load(&short);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    for part in ["goodput", "req/s", "2 clients, 1 thread", "p99.9", "get successes"] {
        assert!(stdout.contains(part), "{part} is missing in\n{stdout}");
    }

    let (_, stdout, stderr) = weir_load(&[&short[..], &["--json"]].concat());
    let report: LoadReport = serde_json::from_str(&stdout).unwrap();
    assert!(report.successes > 0 && stderr.is_empty());

    let (_, stdout, _) =
        weir_load(&[&short[..], &["--events", "--mix", "get=1,put=1", "--keys", "20"]].concat());
    let events: Vec<LoadEvent> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        matches!(
            events.as_slice(),
            [
                LoadEvent::Preloaded { keys: 20, .. },
                LoadEvent::WindowStart,
                LoadEvent::WindowEnd,
                LoadEvent::Report(_)
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn the_command_says_in_one_line_what_is_wrong() {
    let nobody = free_address();
    let url = format!("http://{nobody}");
    for (arguments, code, told) in [
        (&[url.as_str()][..], 1, "connection refused; hint: start the server, or correct the port"),
        (&["ftp://127.0.0.1:1"], 2, "only http and https are spoken, not ftp"),
        (&["127.0.0.1:1/x"], 2, "hint: write http://127.0.0.1:1/x"),
        (&[&url, "--workload", "get_nothing"], 2, "expected one of: get_popular, get_all, put_all, mixed"),
        (&[&url, "--clients", "0"], 2, "--clients"),
        (&[&url, "--threads", "0"], 2, "--threads"),
        (&[&url, "--window", "0s"], 2, "longer than 0s"),
        (&[&url, "--timeout", "0s"], 2, "longer than 0s"),
        (&[&url, "--window", "10"], 2, "as in 500ms"),
        (&[&url, "--window", "99h"], 2, "the most is 24h"),
        (&[&url, "--keys", "0"], 2, "--keys"),
        (&[&url, "--value-size", "65MiB"], 2, "at most 64MiB"),
        (&[&url, "--value-size", "9-1"], 2, "the shortest comes first"),
        (&[&url, "--mix", "get=50,scan=50"], 2, "unknown operation `scan`; hint: expected one of: get, put"),
        (&[&url, "--distribution", "normal"], 2, "expected one of: uniform, zipfian[:THETA]"),
        (&[&url, "--connect", "never"], 2, "[possible values: once, each]"),
        (&[&url, "--verify", "most"], 2, "write none, all, or a share"),
        (&[&url, "--json", "--events"], 2, "'--json' cannot be used with '--events'"),
    ] {
        let (output, stdout, stderr) = weir_load(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {stderr}");
        assert!(stderr.contains(told) && stderr.lines().count() == 1 && stdout.is_empty(), "{stderr}");
    }
}
