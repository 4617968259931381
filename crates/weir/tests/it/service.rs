//! What a service manager sees: states, the watchdog, and sockets that it made itself.

use crate::support::{Client, PATIENCE, Server, free_address, mariadb, postgres, until, weir};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{self, UnixDatagram, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// The next states that are sent.
fn states(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 4096];
    let bytes = socket.recv(&mut buffer).unwrap();
    String::from_utf8(buffer[..bytes].to_vec()).unwrap()
}

#[test]
fn the_manager_hears_when_the_server_is_ready_and_when_it_stops() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let abstract_name = format!("weir-test-{}", std::process::id());
    let abstract_address = net::SocketAddr::from_abstract_name(abstract_name.as_bytes()).unwrap();
    for (socket, place) in [
        (UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap().to_owned()),
        (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{abstract_name}")),
    ] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut server = Server::start_in("memory:", &[], &[("NOTIFY_SOCKET", place)]).unwrap();
        assert_eq!(states(&socket), "STATUS=opening the store");
        assert_eq!(states(&socket), "READY=1\nSTATUS=serving memory:");
        // There is nothing to read again, but a manager that asks for that does not want an end.
        let pid = rustix::process::Pid::from_raw(server.pid().cast_signed()).unwrap();
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
        assert!(states(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(states(&socket), "READY=1");
        server.terminate();
        assert_eq!(states(&socket), "STOPPING=1\nSTATUS=draining");
        assert_eq!(server.wait().code(), Some(0));
    }
    let error = Server::start_in("memory:", &[], &[("NOTIFY_SOCKET", "x".repeat(200))]).err().unwrap();
    assert!(
        error.contains("cannot be used") && error.contains("hint: it is the service manager's"),
        "{error}"
    );
}

/// Its store may take long to open. What a manager sends then is done as soon as the server runs, and an end is not waited for.
#[test]
fn signals_come_before_the_store_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let store = format!("file:{}", directory.path().join("data").display());
    let first = Server::start(&store, &[]);
    let start = || {
        let mut command = weir();
        command.args(["serve", "--listen", "127.0.0.1:0", "--lease-wait", "60s", "--store", &store]);
        let command = command.env("NOTIFY_SOCKET", &path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        assert_eq!(states(&socket), "STATUS=opening the store");
        child
    };
    let signal = |child: &Child, signal| {
        rustix::process::kill_process(rustix::process::Pid::from_child(child), signal).unwrap();
    };
    let mut ended = start();
    signal(&ended, Signal::TERM);
    assert_eq!(ended.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    let mut second = start();
    signal(&second, Signal::HUP);
    first.terminate();
    assert!(states(&socket).starts_with("READY=1"));
    assert!(states(&socket).starts_with("RELOADING=1"));
    assert_eq!(states(&socket), "READY=1");
    signal(&second, Signal::TERM);
    assert_eq!(second.wait().unwrap().code(), Some(0));
}

#[test]
fn a_watchdog_is_fed_while_all_workers_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let environment =
        [("NOTIFY_SOCKET", path.to_str().unwrap().to_owned()), ("WATCHDOG_USEC", "40000".to_owned())];
    let server = Server::start_in("memory:", &["--lab"], &environment).unwrap();
    // More than those that a start could send.
    for _ in 0..5 {
        while states(&socket) != "WATCHDOG=1" {}
    }
    // A request that stops one of the two workers: nothing is sent until it goes on.
    let mut client = server.client();
    assert_eq!(client.ask("PUT", "/inject?worker=3s", &[], b"").unwrap().status, 204);
    client.send(b"GET /kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    let mut buffer = [0; 64];
    until("silence", || socket.recv(&mut buffer).is_err());
    assert!(!client.has_answer(), "the worker was stopped for as long as nothing was sent");
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(client.answer(false).unwrap().status, 404);
    assert_eq!(states(&socket), "WATCHDOG=1");
}

#[test]
fn a_start_warns_of_nothing_but_a_misspelt_variable() {
    let directory = tempfile::tempdir().unwrap();
    let (postgres, mariadb) = (postgres(), mariadb());
    let file = format!("file:{}", directory.path().join("data").display());
    for (store, variable) in [
        // What Kubernetes sets for a service of this name.
        ("memory:", Some(("WEIR_PORT", None))),
        (&file, None),
        (&postgres.url(), None),
        (&mariadb.url(), None),
        ("memory:", Some(("WEIR_CACHE_BYTE", Some("WEIR_CACHE_BYTES")))),
        // The variable of clients.
        ("memory:", Some(("WEIR_TOKEN", Some("WEIR_TOKENS")))),
    ] {
        // Under a limit of open files as a distribution sets it.
        let mut command = Command::new("prlimit");
        command.args(["--nofile=1024:4096"]).arg(weir().get_program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--store", store]);
        command.envs(variable.map(|(name, _)| (name, "weir_secret")));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut said: Vec<String> = Vec::new();
        while !said.last().is_some_and(|line| line.contains("up to 3072 connections besides")) {
            said.push(lines.next().unwrap_or_else(|| panic!("{store}: {said:#?}")));
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        said.extend(lines);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let warnings: Vec<&String> = said.iter().filter(|line| !line.contains(" info: ")).collect();
        match (variable, &warnings[..]) {
            (None | Some((_, None)), []) => {}
            (Some((name, Some(setting))), [only])
                if only.contains(&format!(
                    "warn: the variable {name} has no effect; there is a setting {setting}"
                )) => {}
            _ => panic!("{store}: {said:#?}"),
        }
    }
}

/// A server that systemd-socket-activate starts when somebody connects to one of `sockets`.
struct Activated(Child);

impl Activated {
    fn new(sockets: &[&str], flags: &[&str]) -> Activated {
        let mut command = Command::new("systemd-socket-activate");
        command.args(sockets.iter().map(|socket| format!("--listen={socket}")));
        command.arg(weir().get_program()).args(["serve", "--store", "memory:"]).args(flags);
        Activated(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until it listens.
    fn lines(&mut self) -> impl Iterator<Item = String> + use<> {
        BufReader::new(self.0.stderr.take().unwrap()).lines().map(Result::unwrap)
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sockets_that_the_manager_made_are_used() {
    let directory = tempfile::tempdir().unwrap();
    let (tcp, path) = (free_address().to_string(), directory.path().join("socket"));
    let unix = path.to_str().unwrap().to_owned();
    let mut activated =
        Activated::new(&[&tcp, &unix], &["--listen", &tcp, "--listen", &format!("unix:{unix}")]);
    let mut lines = activated.lines();
    let listening: Vec<String> = lines.by_ref().take(2).collect();
    assert!(listening.iter().all(|line| line.starts_with("Listening on ")), "{listening:?}");
    // The first connection waits while the server starts.
    let mut client = Client::connect(tcp.parse().unwrap()).unwrap();
    assert_eq!(client.put("/kv/a", b"1").status, 201);
    // All workers accept from the same socket.
    for _ in 0..20 {
        assert_eq!(Client::connect(tcp.parse().unwrap()).unwrap().get("/kv/a").text(), "1");
    }
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /kv/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n1"), "{answer}");
    // The file is the manager's.
    let pid = rustix::process::Pid::from_child(&activated.0);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(activated.0.wait().unwrap().code(), Some(0));
    assert!(path.exists());
}

#[test]
fn a_passed_socket_that_no_flag_names_is_refused() {
    let [passed, named] = [free_address(), free_address()].map(|address| address.to_string());
    let mut activated = Activated::new(&[&passed], &["--listen", &named]);
    let mut lines = activated.lines();
    assert!(lines.next().unwrap().starts_with("Listening on "));
    let _client = Client::connect(passed.parse().unwrap()).unwrap();
    let error = lines.find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.contains(&format!("passed a socket at {passed}, which is not in use")), "{error}");
    assert_eq!(activated.0.wait().unwrap().code(), Some(2));
}
