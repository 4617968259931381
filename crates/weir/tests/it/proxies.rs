//! The configurations of proxies in packaging/proxies, with real proxies: what they pass on, refuse, keep, and send once.

use crate::support::{Client, Server, free_address, is_long, postgres, until};
use lab_run::harness::free_ports;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const PROXIES: [&str; 3] = ["nginx", "haproxy", "varnishd"];

/// A proxy in a process of its own; ended when dropped.
pub(crate) struct Proxy {
    child: Child,
    pub(crate) address: SocketAddr,
    directory: tempfile::TempDir,
}

/// Where HAProxy takes commands, in its file.
const ADMIN_SOCKET: &str = "/run/haproxy/admin.sock";

impl Proxy {
    /// Starts `program` by its file, in front of `server`.
    fn start(program: &str, server: SocketAddr) -> Proxy {
        let file = match program {
            "nginx" => "nginx.conf",
            "haproxy" => "haproxy.cfg",
            _ => "varnish.vcl",
        };
        Proxy::start_by(program, file, &[server])
    }

    /// Starts `program` by a file, in front of `servers`.
    pub(crate) fn start_by(program: &str, file: &str, servers: &[SocketAddr]) -> Proxy {
        let directory = tempfile::tempdir().unwrap();
        // Free a moment ago; these programs cannot choose one themselves.
        let address = free_address();
        let text = fs::read_to_string(format!("../../packaging/proxies/{file}")).unwrap();
        let text = servers.iter().zip(8080..).fold(text, |text, (server, port)| match program {
            "varnishd" => text.replace(&format!("\"{port}\""), &format!("\"{}\"", server.port())),
            _ => text.replace(&format!("127.0.0.1:{port}"), &server.to_string()),
        });
        let text = text.replace("127.0.0.1:8443", &address.to_string());
        let text = text.replace(ADMIN_SOCKET, directory.path().join("admin.sock").to_str().unwrap());
        let path = directory.path().join(file);
        fs::write(&path, text).unwrap();
        let mut command = Command::new(program);
        match program {
            "nginx" => {
                command.args(["-e", "stderr", "-g", "daemon off; pid nginx.pid;", "-p", ".", "-c", file])
            }
            // With a master, which reads the file again when it is told to.
            "haproxy" => command.args(["-W", "-db", "-f", file]),
            _ => command
                .args(["-F", "-j", "none", "-s", "default,32m", "-n"])
                .arg(directory.path().join("work"))
                .args(["-a", &address.to_string(), "-f"])
                .arg(&path),
        };
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let command = command.env("PATH", path).current_dir(directory.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup.sh installs it"));
        let proxy = Proxy { child, address, directory };
        until(program, || Client::connect(proxy.address).is_ok());
        proxy
    }

    fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// Writes these servers into HAProxy's file, in the place of those there, and has it read the file again.
    pub(crate) fn reload(&self, file: &str, servers: &[SocketAddr]) {
        let path = self.directory.path().join(file);
        let text = fs::read_to_string(&path).unwrap();
        let (servers_before, others): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with("    server "));
        let (_, flags) = servers_before[0].split_once(" check ").unwrap();
        let server = |(at, address): (usize, &SocketAddr)| {
            format!("    server weir{} {address} check {flags}", at + 1)
        };
        let servers: Vec<String> = servers.iter().enumerate().map(server).collect();
        fs::write(&path, others.join("\n") + "\n" + &servers.join("\n") + "\n").unwrap();
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::USR2).unwrap();
    }

    /// Gives HAProxy a command; its answer, empty while it reads its file again.
    pub(crate) fn command(&self, command: &str) -> String {
        let Ok(mut socket) = UnixStream::connect(self.directory.path().join("admin.sock")) else {
            return String::new();
        };
        let _ = socket.write_all(format!("{command}\n").as_bytes());
        std::io::read_to_string(socket).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // SIGTERM: these programs have processes of their own to end.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn values_pass_and_what_is_too_large_or_not_for_all_does_not() {
    for program in PROXIES {
        let server = Server::start("memory:", &[]);
        let proxy = Proxy::start(program, server.address);
        let mut client = proxy.client();
        until("its check of weir", || proxy.client().get("/readyz").status == 200);
        // Keys with escapes, slashes in a row and letters of both cases.
        for path in ["/kv/a%2Fb", "/kv/a//b", "/kv/A%20b", "/kv/%FF"] {
            assert_eq!(proxy.client().put(path, path.as_bytes()).status, 201, "{program} {path}");
            assert_eq!(client.get(path).text(), path, "{program} {path}");
            assert_eq!(server.client().get(path).text(), path, "{program} {path}");
        }
        let big = vec![b'x'; 8 << 20];
        assert_eq!(proxy.client().put("/kv/big", &big).status, 201, "{program}");
        assert!(client.get("/kv/big").body == big, "{program}");
        let larger = vec![b'x'; (8 << 20) + 1];
        // It may close before all is sent.
        if let Ok(answer) = proxy.client().ask("PUT", "/kv/larger", &[], &larger) {
            assert_eq!(answer.status, 413, "{program}");
        }
        assert_eq!(server.client().get("/kv/larger").status, 404, "{program}");
        // A batch may be larger than a value.
        let line = format!("{{\"op\":\"put\",\"key\":\"batch\",\"value\":\"{}\"}}\n", "x".repeat(3 << 20));
        let batch = proxy.client().ask("POST", "/batch", &[], line.repeat(3).as_bytes()).unwrap();
        assert!(batch.status == 200 && batch.text().ends_with("{\"done\":3,\"failed\":0}\n"), "{program}");
        for path in ["/metrics", "/stats", "/dashboard", "/metrics?x"] {
            assert_eq!(client.get(path).status, 403, "{program} {path}");
            for scheme in ["http", "https"] {
                let answer = proxy.client().get(&format!("{scheme}://localhost{path}"));
                assert!((400..500).contains(&answer.status), "{program} {scheme} {path}: {}", answer.status);
            }
        }
        // Also one that is not what its coding says.
        let coded = [("Content-Encoding", "gzip")];
        assert_eq!(proxy.client().ask("PUT", "/kv/coded", &coded, b"packed").unwrap().status, 201);
        let direct = server.client().get("/kv/coded");
        for _ in 0..2 {
            let answer = client.get("/kv/coded");
            assert_eq!((answer.status, answer.text().as_str()), (200, "packed"), "{program}");
            for name in ["content-encoding", "etag"] {
                assert!(direct.header(name).is_some(), "{name}");
                assert_eq!(answer.header(name), direct.header(name), "{program}");
            }
        }
        let tag = client.get("/kv/A%20b").header("etag").unwrap().to_owned();
        let same = client.ask("GET", "/kv/A%20b", &[("If-None-Match", &tag)], b"").unwrap();
        assert_eq!(same.status, 304, "{program}");
        let failed = proxy.client().ask("PUT", "/kv/A%20b", &[("If-Match", "\"0\"")], b"x").unwrap();
        assert_eq!((failed.status, failed.header("weir-outcome")), (412, Some("not-applied")), "{program}");
        drop(server);
        until("an answer for a lost server", || {
            let answer = proxy.client().get("/kv/a%2Fb");
            // Varnish answers 503, too: it never uses a value without asking.
            matches!(answer.status, 502 | 503)
        });
        // Of Varnish once its check has found that; before, it may close without an answer.
        until("an answer for a write to a lost server", || {
            let answer = proxy.client().ask("PUT", "/kv/a", &[], b"x");
            answer.is_ok_and(|answer| matches!(answer.status, 502 | 503))
        });
    }
}

/// What changed is never answered from a proxy's memory, and what did not is: weir sends no value then.
#[test]
fn a_cache_in_front_asks_before_it_answers() {
    let server = Server::start("memory:", &[]);
    let proxy = Proxy::start("varnishd", server.address);
    let mut client = proxy.client();
    until("its check of weir", || proxy.client().get("/readyz").status == 200);
    for round in 0..20 {
        let value = format!("{round}").repeat(1000);
        server.client().put("/kv/a", value.as_bytes());
        assert!(client.get("/kv/a").text() == value, "round {round}");
        assert!(client.get("/kv/a").text() == value, "round {round}");
        let none = proxy.client().ask("DELETE", "/kv/a", &[], b"").unwrap();
        assert_eq!((none.status, client.get("/kv/a").status), (204, 404), "round {round}");
    }
    server.client().put("/kv/a", b"kept");
    (0..10).for_each(|_| assert_eq!(client.get("/kv/a").text(), "kept"));
    // A client that waits for a change holds up nobody, and a condition reaches weir.
    let tag = client.get("/kv/a").header("etag").unwrap().to_owned();
    let mut waiting = proxy.client();
    let wait = format!("Host: localhost\r\nIf-None-Match: {tag}\r\nPrefer: wait=14");
    waiting.send(format!("GET /kv/a HTTP/1.1\r\n{wait}\r\n\r\n").as_bytes()).unwrap();
    thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    assert_eq!(client.get("/kv/a").text(), "kept");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let other = client.ask("GET", "/kv/a", &[("If-Match", "\"0\"")], b"").unwrap();
    assert_eq!(other.status, 412);
    server.client().put("/kv/a", b"changed");
    assert_eq!(waiting.answer(false).unwrap().text(), "changed");
    let stats = server.client().stats();
    let not_modified = stats["weir_http_requests_total{method=\"GET\",code=\"304\"}"].as_f64();
    assert!(not_modified >= Some(9.0), "{not_modified:?}");
}

/// Passes connections on to `server`; holds the first answer after `holds` is set to true, until it is true again.
fn relay(server: SocketAddr, holds: &Arc<AtomicBool>, held: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (holds, held) = (Arc::clone(holds), Arc::clone(held));
    thread::spawn(move || {
        for near in listener.incoming() {
            let (mut near, far) = (near.unwrap(), TcpStream::connect(server));
            let Ok(mut far) = far else { continue };
            let (mut requests, mut to_server) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut requests, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Write);
            });
            let (holds, held) = (Arc::clone(&holds), Arc::clone(&held));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = far.read(&mut buffer) {
                    let is_check = buffer[..bytes].windows(17).any(|part| part == b"Connection: close");
                    if !is_check && holds.swap(false, SeqCst) {
                        held.store(true, SeqCst);
                        until("the end of the hold", || holds.load(SeqCst));
                    }
                    let _ = near.write_all(&buffer[..bytes]);
                }
                let _ = near.shutdown(Shutdown::Write);
            });
        }
    });
    address
}

/// Varnish would have a second request for a key wait for the first one's answer, and answer it with that: what was written since was not seen.
#[test]
fn no_answer_through_a_cache_is_older_than_its_request() {
    let server = Server::start("memory:", &[]);
    let (holds, held) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let proxy = Proxy::start("varnishd", relay(server.address, &holds, &held));
    until("its check of weir", || proxy.client().get("/readyz").status == 200);
    for path in ["/kv/kept", "/kv/new"] {
        server.client().put(path, b"old");
    }
    assert_eq!(proxy.client().get("/kv/kept").text(), "old");
    for path in ["/kv/kept", "/kv/new"] {
        held.store(false, SeqCst);
        holds.store(true, SeqCst);
        let mut first = proxy.client();
        first.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).unwrap();
        until("an answer on its way", || held.load(SeqCst));
        server.client().put(path, b"new");
        assert_eq!(proxy.client().get(path).text(), "new", "{path}");
        holds.store(true, SeqCst);
        assert_eq!(first.answer(false).unwrap().text(), "old", "{path}");
        holds.store(false, SeqCst);
        assert_eq!(proxy.client().get(path).text(), "new", "{path}");
    }
}

/// Where nothing happens the server says so more often than these proxies lose patience.
#[test]
#[ignore = "takes 20 seconds"]
fn a_watch_of_what_does_not_change_goes_on() {
    let server = Server::start("memory:", &[]);
    let proxies = PROXIES.map(|program| Proxy::start(program, server.address));
    let watching = proxies.each_ref().map(|proxy| {
        until("its check of weir", || proxy.client().get("/readyz").status == 200);
        let mut client = proxy.client();
        client.send(b"GET /watch HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        client
    });
    thread::sleep(Duration::from_secs(20));
    server.client().put("/kv/a", b"1");
    for (client, program) in watching.into_iter().zip(PROXIES) {
        let mut lines = BufReader::new(client.stream()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "event: put"), "{program}");
    }
}

/// A server that reads whole requests, answers the first of each connection, and closes at the second; how many it read of `method`.
fn treacherous(method: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, count) = (stream.unwrap(), Arc::clone(&counted));
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    let text = String::from_utf8_lossy(&buffer[..bytes]).into_owned();
                    if text.starts_with(method) {
                        count.fetch_add(1, Relaxed);
                        return;
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                    // As checks of health ask for.
                    if text.contains("Connection: close") {
                        return;
                    }
                }
            });
        }
    });
    (address, count)
}

#[test]
fn a_write_without_an_answer_is_sent_once() {
    for program in PROXIES {
        for method in ["PUT", "DELETE"] {
            let (address, count) = treacherous(method);
            let proxy = Proxy::start(program, address);
            until("its check of weir", || proxy.client().get("/readyz").status == 200);
            // A connection to the server that is kept, and breaks at the write.
            let mut client = proxy.client();
            for _ in 0..3 {
                assert_eq!(client.get("/kv/a").status, 200, "{program}");
            }
            let answer = client.ask(method, "/kv/a", &[], b"");
            assert!(answer.as_ref().map_or(true, |answer| answer.status >= 500), "{program}: {answer:?}");
            // Whether another comes is seen at the latest when later requests have come.
            for _ in 0..3 {
                until("the next answer", || proxy.client().get("/kv/b").status == 200);
            }
            assert_eq!(count.load(Relaxed), 1, "{program} {method}");
        }
    }
}

/// A pair of servers over one store behind a proxy, each at an address that it has again after a restart.
struct Pair {
    store: String,
    addresses: [SocketAddr; 2],
    servers: [Option<Server>; 2],
}

impl Pair {
    fn start(store: &str) -> Pair {
        let ports = free_ports(2).unwrap();
        let addresses = [0, 1].map(|index| (Ipv4Addr::LOCALHOST, ports[index]).into());
        let mut pair = Pair { store: store.to_owned(), addresses, servers: [None, None] };
        (0..2).for_each(|index| pair.start_server(index));
        pair
    }

    fn start_server(&mut self, index: usize) {
        let address = self.addresses[index].to_string();
        let server = Server::start(&self.store, &["--standby", "--listen", &address]);
        until("it answers", || server.client().get("/healthz").status == 200);
        self.servers[index] = Some(server);
    }

    /// Which of the two owns the store.
    fn active(&self) -> usize {
        let is_active = |server: &Option<Server>| {
            server.as_ref().is_some_and(|server| server.client().get("/readyz").status == 200)
        };
        let mut active = None;
        until("one owns the store", || {
            active = self.servers.iter().position(is_active);
            active.is_some()
        });
        active.unwrap()
    }
}

/// What clients saw that wrote and read through a proxy, each its own keys, one request after the other.
#[derive(Default)]
struct Traffic {
    requests: usize,
    failures: Vec<String>,
    longest: Duration,
}

impl Traffic {
    /// Sends requests through `proxy` until `ends`.
    fn send(proxy: SocketAddr, client: usize, ends: &AtomicBool) -> Traffic {
        let mut traffic = Traffic::default();
        let mut connection = Client::connect(proxy).unwrap();
        for round in 0.. {
            let (path, value) = (format!("/kv/{client}-{}", round % 10), format!("{client} {round}"));
            for method in ["PUT", "GET", "GET", "DELETE"] {
                if ends.load(Relaxed) {
                    return traffic;
                }
                let body = if method == "PUT" { value.as_bytes() } else { b"" };
                let began = Instant::now();
                let length = body.len();
                let head = format!(
                    "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
                );
                let mut sent = connection.send(head.as_bytes());
                if length > 0 {
                    // In a packet of its own, as curl and most clients send it.
                    thread::sleep(Duration::from_millis(1));
                    sent = sent.and_then(|()| connection.send(body));
                }
                let answer = sent.and_then(|()| connection.answer(false));
                traffic.longest = traffic.longest.max(began.elapsed());
                traffic.requests += 1;
                match answer {
                    Ok(answer) if answer.status < 300 && (method != "GET" || answer.text() == value) => {}
                    answer => {
                        traffic.failures.push(format!("{method} {path} {value}: {answer:?}"));
                        connection = Client::connect(proxy).unwrap();
                    }
                }
            }
        }
        traffic
    }
}

const STANDBY_PROXIES: [(&str, &str); 2] =
    [("nginx", "nginx-standby.conf"), ("haproxy", "haproxy-standby.cfg")];

/// Both servers are replaced one after the other while clients write and read.
#[test]
fn no_request_fails_while_both_servers_are_restarted() {
    let postgres = postgres();
    write!(std::io::stderr(), "{}", check_restarts(&postgres.url())).unwrap();
}

#[test]
fn no_request_fails_while_both_servers_over_an_embedded_store_are_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().join("store").display());
    write!(std::io::stderr(), "{}", check_restarts(&store)).unwrap();
}

/// What was seen, in words.
fn check_restarts(store: &str) -> String {
    let mut said = String::new();
    for (program, file) in STANDBY_PROXIES {
        let mut pair = Pair::start(store);
        let proxy = Proxy::start_by(program, file, &pair.addresses);
        pair.active();
        until("an answer", || proxy.client().get("/kv/none").status == 404);
        let ends = AtomicBool::new(false);
        let (address, restarts) = (proxy.address, if is_long() { 10 } else { 2 });
        let traffic = thread::scope(|scope| {
            let start = |client| {
                scope.spawn({
                    let ends = &ends;
                    move || Traffic::send(address, client, ends)
                })
            };
            let clients: Vec<_> = (0..8).map(start).collect();
            // Also if something fails: the clients are waited for.
            let restarted = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                for _ in 0..restarts {
                    let active = pair.active();
                    let mut ending = pair.servers[active].take().unwrap();
                    ending.terminate();
                    assert!(ending.wait().success());
                    // At once: the one that stands by goes first nevertheless.
                    pair.start_server(active);
                    assert_eq!(pair.active(), 1 - active);
                }
            }));
            ends.store(true, Relaxed);
            let traffic = clients.into_iter().map(|client| client.join().unwrap()).collect::<Vec<_>>();
            restarted.unwrap();
            traffic
        });
        let failures: Vec<&String> = traffic.iter().flat_map(|client| &client.failures).collect();
        let requests: usize = traffic.iter().map(|client| client.requests).sum();
        assert!(failures.is_empty(), "{program}: {} of {requests}: {:?}", failures.len(), failures[0]);
        let longest = traffic.iter().map(|client| client.longest).max();
        said +=
            &format!("{program}: {requests} requests over {restarts} restarts, the longest {longest:?}\n");
    }
    said
}

/// Half of the requests come to the standby first, or find nobody there.
#[test]
fn requests_of_all_kinds_pass_to_the_server_that_owns_the_store() {
    let postgres = postgres();
    for (program, file) in STANDBY_PROXIES {
        let mut pair = Pair::start(&postgres.url());
        let proxy = Proxy::start_by(program, file, &pair.addresses);
        let active = pair.active();
        let large = vec![b'x'; 200_000];
        // HAProxy asks both in turn until it has seen once which one owns the store.
        let passes = || proxy.client().put("/kv/large", &large).status < 300;
        until("large values", || (0..4).all(|_| passes()));
        check_kinds(program, &proxy, &large);
        pair.servers[1 - active].take().unwrap().kill();
        check_kinds(program, &proxy, &large);
    }
}

fn check_kinds(program: &str, proxy: &Proxy, large: &[u8]) {
    for round in 0..10 {
        let mut client = proxy.client();
        let key = format!("/kv/{}{round}", "k".repeat(1000));
        assert_eq!(client.put(&key, b"1").status, 201, "{program}");
        let line = |value: &str| format!("{{\"op\":\"put\",\"key\":\"{round}\",\"value\":\"{value}\"}}\n");
        let (put, puts) = (line("2"), line(&"2".repeat(100_000)).repeat(20));
        for (method, path, body) in [
            ("PUT", "/kv/large", large),
            // As large as HAProxy can still repeat, and more.
            ("PUT", &key, &large[..48_000]),
            ("PUT", &key, &large[..64_000]),
            ("POST", &format!("{key}?touch"), b""),
            ("POST", "/batch", put.as_bytes()),
            ("POST", "/batch?atomic=false", put.as_bytes()),
            ("POST", "/batch?atomic=true", put.as_bytes()),
            ("POST", "/batch?atomic=true", puts.as_bytes()),
            ("DELETE", &key, b""),
        ] {
            let answer = client.ask(method, path, &[("TTL", "60")], body).unwrap();
            assert!(answer.status < 300, "{program} {method} {path}: {answer:?}");
            assert!(!answer.text().contains("outcome"), "{program} {method} {path}: {answer:?}");
        }
    }
}

/// One server breaks off, the other one refuses: what the first one did is not known.
#[test]
fn behind_nginx_the_outcome_of_a_lost_answer_is_unknown_whatever_a_standby_says() {
    let postgres = postgres();
    let _owner = Server::start(&postgres.url(), &["--standby"]);
    let standby = Server::start(&postgres.url(), &["--standby"]);
    until("it stands by", || standby.client().put("/kv/a", b"1").header("weir-outcome").is_some());
    for method in ["PUT", "DELETE"] {
        let (address, count) = treacherous(method);
        let proxy = Proxy::start_by("nginx", "nginx-standby.conf", &[address, standby.address]);
        for round in 1..10 {
            let mut client = proxy.client();
            // Connections to the server are kept, and break at the write.
            for _ in 0..3 {
                assert_eq!(client.get("/kv/a").status, 200, "{method}");
            }
            let answer = client.ask(method, "/kv/a", &[], b"").unwrap();
            assert!(count.load(Relaxed) >= round, "{method}");
            assert!(answer.status >= 500, "{method} {answer:?}");
            assert_eq!(answer.header("weir-outcome"), Some("unknown"), "{method} {answer:?}");
        }
    }
}

/// How long no write succeeds when the active server is killed.
#[test]
#[ignore = "takes two minutes"]
fn the_time_until_a_killed_server_is_replaced() {
    let postgres = postgres();
    for (program, file) in STANDBY_PROXIES {
        let mut pair = Pair::start(&postgres.url());
        let proxy = Proxy::start_by(program, file, &pair.addresses);
        let mut times = Vec::new();
        for round in 0..20 {
            let active = pair.active();
            let value = format!("{round}");
            until("an acknowledged write", || proxy.client().put("/kv/a", value.as_bytes()).status < 300);
            pair.servers[active].take().unwrap().kill();
            let killed = Instant::now();
            let mut answer = None;
            until("an answer", || {
                answer =
                    proxy.client().ask("GET", "/kv/a", &[], b"").ok().filter(|answer| answer.status == 200);
                answer.is_some()
            });
            times.push(killed.elapsed());
            assert_eq!(answer.unwrap().text(), value, "{program}");
            pair.start_server(active);
        }
        times.sort_unstable();
        writeln!(
            std::io::stderr(),
            "{program}: unavailable for {:?} (median), {:?} (worst of 20)",
            times[10],
            times[19]
        )
        .unwrap();
    }
}
