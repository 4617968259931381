//! Several generators under one coordinator: real agents, a real coordinator, and what happens when one of them is not as
//! it should be.

use crate::load::{Reply, Server as Recorded};
use crate::support::{PATIENCE, Server, tried, until, weir};
use kv::proto::{AgentOutcome, LoadEvent, LoadReport};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use tempfile::TempDir;

const TOKEN: &str = "a token for tests only";

/// A file with a token in it.
struct TokenFile(TempDir);

impl TokenFile {
    fn new(token: &str) -> TokenFile {
        let file = TokenFile(tempfile::tempdir().unwrap());
        fs::write(file.path(), format!("{token}\n")).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("token")
    }
}

/// `weir agent` on a free port, killed when dropped.
struct Agent {
    child: Child,
    address: String,
}

impl Agent {
    fn start(token: &TokenFile) -> Agent {
        let mut child = weir()
            .args(["agent", "--listen", "127.0.0.1:0", "--token-file"])
            .arg(token.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening ").unwrap_or_else(|| panic!("{line:?}"));
        Agent { child, address: address.trim_end().to_owned() }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    fn connect(&self) -> (TcpStream, BufReader<TcpStream>) {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        (stream.try_clone().unwrap(), BufReader::new(stream))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `weir load --agents`, with further flags.
fn coordinator(server: impl ToString, agents: &[&str], token: &TokenFile, flags: &[&str]) -> Command {
    let mut command = weir();
    command
        .args(["load", &format!("http://{}", server.to_string()), "--agents", &agents.join(",")])
        .arg("--token-file")
        .arg(token.path())
        .args(flags);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The report of a run that went well.
fn report(output: &Output) -> LoadReport {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(&output.stdout)))
}

/// The one line of a run that did not.
fn complaint(output: &Output) -> String {
    let told = text(&output.stderr);
    assert_eq!(told.lines().count(), 1, "{told}");
    assert!(told.contains(" | hint: "), "{told}");
    told
}

/// How many requests of this method the server says it has answered.
fn answered(server: &Server, method: &str) -> u64 {
    let begins = format!("weir_http_requests_total{{method=\"{method}\"");
    let stats = server.client().stats();
    let counts = stats.as_object().unwrap().iter().filter(|(name, _)| name.starts_with(&begins));
    counts.map(|(_, count)| count.as_f64().unwrap() as u64).sum()
}

/// A run that has begun, told event by event.
struct Running {
    child: Child,
    events: BufReader<std::process::ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        Running { child, events }
    }

    fn next(&mut self) -> Option<LoadEvent> {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    fn until_the_window_starts(&mut self) {
        while self.next().unwrap_or_else(|| panic!("{}", self.stderr())) != LoadEvent::WindowStart {}
    }

    fn stderr(&mut self) -> String {
        let mut told = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        told
    }

    /// Its exit code, what it said on standard error, and the report that was its last word.
    fn end(mut self) -> (Option<i32>, String, Option<LoadReport>) {
        let mut report = None;
        while let Some(event) = self.next() {
            if let LoadEvent::Report(last) = event {
                report = Some(*last);
            }
        }
        let told = self.stderr();
        (self.child.wait().unwrap().code(), told, report)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_two_agents_counted_is_what_the_server_counted() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agents = [Agent::start(&token), Agent::start(&token)];
        let names = [&*agents[0].address, &*agents[1].address];
        let flags = [
            "--workload",
            "put_all",
            "--clients",
            "7",
            "--warmup",
            "0s",
            "--window",
            "2s",
            "--bin",
            "200ms",
            "--json",
        ];
        let report = report(&coordinator(server.address, &names, &token, &flags).output().unwrap());

        let counted = answered(&server, "PUT") + answered(&server, "DELETE");
        // Of each client one request may have been answered a moment after the window, and one more been sent then.
        assert!((report.attempts..=report.attempts + 2 * 7).contains(&counted), "{counted}: {report:?}");
        assert!(report.successes == report.attempts && report.attempts > 100);

        assert_eq!((report.clients, report.clients_lost, report.threads), (7, 0, 2));
        let shares: Vec<(&str, u32)> = report.agents.iter().map(|one| (&*one.address, one.clients)).collect();
        assert_eq!(shares, [(names[0], 4), (names[1], 3)]);
        assert!(report.agents.iter().all(|one| one.outcome == AgentOutcome::Done && one.round_trip_us > 0.0));
        assert_eq!(report.agents.iter().map(|one| one.attempts).sum::<u64>(), report.attempts);
        assert_eq!(report.agents.iter().map(|one| one.latency.count).sum::<u64>(), report.latency.count);
        let longest = report.agents.iter().map(|one| one.latency.us_max).fold(0.0, f64::max);
        assert_eq!(report.latency.us_max, longest);
        // What is over at the very end of the window belongs to a second that has only begun.
        let by_second: u64 = report.seconds.iter().map(|second| second.attempts).sum();
        assert!(
            report.seconds.len() == 2 && by_second <= report.attempts && by_second + 7 >= report.attempts
        );
        check_bins(&report);
        assert!(report.start_spread_us.is_some_and(|spread| spread > 0.0));
        let residual = load::little_residual(&report).unwrap();
        assert!(residual.abs() < 0.05, "{residual}");
    });
}

#[test]
fn agents_ask_for_what_one_process_would() {
    tried(|| {
        let flags =
            ["--workload", "put_all", "--clients", "5", "--keys", "100", "--seed", "7", "--warmup", "0s"];
        let flags = [&flags[..], &["--window", "1s", "--json"]].concat();
        let token = TokenFile::new(TOKEN);
        let agents = [Agent::start(&token), Agent::start(&token)];
        let names = [&*agents[0].address, &*agents[1].address];
        let streams = |agents: &[&str]| {
            let server = Recorded::start(|_| Reply::Store);
            let mut alone = weir();
            let url = format!("http://{}", server.address);
            let output = match agents {
                [] => alone.args(["load", &url]).args(&flags).output().unwrap(),
                _ => coordinator(server.address, agents, &token, &flags).output().unwrap(),
            };
            report(&output);
            let streams = server.streams(20);
            assert!(streams.len() == 5 && streams.iter().all(|stream| stream.len() == 20), "{streams:?}");
            streams
        };
        let alone = streams(&[]);
        assert_eq!(streams(&names[..1]), alone);
        assert_eq!(streams(&names), alone);
    });
}

#[test]
fn a_rate_is_that_of_all_agents_together() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agents = [Agent::start(&token), Agent::start(&token), Agent::start(&token)];
        let names: Vec<&str> = agents.iter().map(|agent| &*agent.address).collect();
        let flags = ["--clients", "8", "--rate", "500", "--warmup", "100ms", "--window", "1s", "--json"];
        let report = report(&coordinator(server.address, &names, &token, &flags).output().unwrap());
        let schedule = report.schedule.unwrap();
        // Each agent has a window of its own, and an instant at its edge may fall to either side.
        assert!((497..=503).contains(&schedule.due), "{schedule:?}");
        assert_eq!((schedule.offered_rps, &*report.pacing), (500.0, "constant 500/s"));
        assert!(report.agents.iter().all(|one| one.attempts > 0));
    });
}

#[test]
fn keys_are_preloaded_once_and_events_come_as_from_one_process() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agents = [Agent::start(&token), Agent::start(&token)];
        let names = [&*agents[0].address, &*agents[1].address];
        let flags = ["--keys", "30", "--warmup", "100ms", "--window", "200ms", "--events"];
        let output = coordinator(server.address, &names, &token, &flags).output().unwrap();
        let events: Vec<LoadEvent> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(
            matches!(
                events.as_slice(),
                [
                    LoadEvent::Preloaded { keys: 30, .. },
                    LoadEvent::WindowStart,
                    LoadEvent::WindowEnd,
                    LoadEvent::Report(report)
                ] if report.error_ratio == 0.0
            ),
            "{events:?}: {}",
            text(&output.stderr)
        );
        assert_eq!(answered(&server, "PUT"), 30);
    });
}

/// Five bins make a second, whoever counted in them.
fn check_bins(report: &LoadReport) {
    let bins = report.bins.as_ref().unwrap();
    let seconds = bins.list.chunks_exact(5).map(|bins| bins.iter().map(|bin| bin.attempts).sum::<u64>());
    assert_eq!((bins.secs, bins.list.len()), (0.2, 10));
    assert!(seconds.eq(report.seconds.iter().map(|second| second.attempts)), "{report:?}");
}

#[test]
fn the_share_of_an_agent_that_was_killed_is_said_to_be_missing() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let mut agents = [Agent::start(&token), Agent::start(&token)];
        let names = agents.each_ref().map(|agent| agent.address.clone());
        let flags = ["--clients", "9", "--warmup", "0s", "--window", "2s", "--bin", "200ms", "--events"];
        let names = names.each_ref().map(String::as_str);
        let mut running = Running::start(coordinator(server.address, &names, &token, &flags));
        running.until_the_window_starts();
        agents[1].child.kill().unwrap();
        let (code, told, report) = running.end();
        assert_eq!(code, Some(1));
        assert!(told.contains(&format!("4 of 9 clients are in no figure ({}: ", names[1])), "{told}");
        let report = report.unwrap();
        assert_eq!((report.clients, report.clients_lost, report.threads), (5, 4, 1));
        assert!(
            matches!(&report.agents[1].outcome, AgentOutcome::Lost(why) if why == "the connection ended")
        );
        assert_eq!((report.agents[1].attempts, report.agents[0].attempts), (0, report.attempts));
        assert!(report.attempts > 0 && report.seconds.len() == 2);
        assert!(report.seconds.iter().map(|second| second.attempts).sum::<u64>() <= report.attempts);
        check_bins(&report);
        // The law holds for the clients that were there.
        let residual = load::little_residual(&report).unwrap();
        assert!(residual.abs() < 0.05, "{residual}");

        // With the same dead agent nothing is even begun.
        let output = coordinator(server.address, &names, &token, &["--window", "100ms"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = complaint(&output);
        assert!(told.contains(&format!("agent {}: cannot reach it: connection refused", names[1])), "{told}");
        assert!(output.stdout.is_empty());
    });
}

#[test]
fn the_table_says_whose_figures_are_missing() {
    tried(|| {
        let server = Recorded::start(|_| Reply::Value);
        let token = TokenFile::new(TOKEN);
        let agents = [Agent::start(&token), Agent::start(&token)];
        let names = [&*agents[0].address, &*agents[1].address];
        let flags = ["--no-preload", "--clients", "64", "--warmup", "0s", "--window", "2s"];
        let mut command = coordinator(server.address, &names, &token, &flags);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the load begins", || !server.streams(1).is_empty());
        agents[0].signal(rustix::process::Signal::KILL);
        let output = child.wait_with_output().unwrap();
        let told = text(&output.stdout);
        let line = format!("agents      1 of 2 lost: 32 of 64 clients, {}: the connection ended", names[0]);
        assert!(told.contains(&format!("{line}: the figures are of the others only\n")), "{told}");
        assert!(told.contains("load        32 clients, "), "{told}");
        assert_eq!(output.status.code(), Some(1));
    });
}

#[test]
fn an_agent_that_falls_silent_is_lost_and_without_any_there_is_no_report() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agent = Agent::start(&token);
        let flags = ["--warmup", "0s", "--window", "60s", "--events"];
        let mut running = Running::start(coordinator(server.address, &[&agent.address], &token, &flags));
        running.until_the_window_starts();
        agent.signal(rustix::process::Signal::STOP);
        let (code, told, report) = running.end();
        assert_eq!((code, report), (Some(1), None));
        assert!(told.contains(&format!("agent {}: it fell silent | hint: ", agent.address)), "{told}");
    });
}

#[test]
fn an_agent_that_is_told_to_end_says_so() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let mut agent = Agent::start(&token);
        let flags = ["--warmup", "0s", "--window", "60s", "--events"];
        let mut running = Running::start(coordinator(server.address, &[&agent.address], &token, &flags));
        running.until_the_window_starts();
        agent.signal(rustix::process::Signal::TERM);
        assert_eq!(agent.child.wait().unwrap().code(), Some(0));
        let (code, told, _) = running.end();
        assert_eq!(code, Some(1));
        assert!(told.contains("it was told to end"), "{told}");
    });
}

#[test]
fn an_agent_whose_coordinator_vanished_stops_and_serves_the_next() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agent = Agent::start(&token);
        let names = [&*agent.address];
        for _ in 0..2 {
            let long = ["--warmup", "0s", "--window", "1h", "--events"];
            let mut running = Running::start(coordinator(server.address, &names, &token, &long));
            running.until_the_window_starts();
            running.child.kill().unwrap();
            assert_eq!(running.child.wait().unwrap().signal(), Some(9));
            let mut client = server.client();
            let mut connections = || client.stats()["weir_http_connections"].as_f64().unwrap();
            until("its load has stopped", || connections() == 1.0);
            let flags = ["--warmup", "0s", "--window", "500ms", "--json"];
            let report = report(&coordinator(server.address, &names, &token, &flags).output().unwrap());
            assert!(report.attempts > 0 && report.error_ratio == 0.0);
        }
    });
}

#[test]
fn a_second_coordinator_is_told_that_the_agent_is_busy() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agent = Agent::start(&token);
        let names = [&*agent.address];
        let long = ["--warmup", "0s", "--window", "1h", "--events"];
        let mut running = Running::start(coordinator(server.address, &names, &token, &long));
        running.until_the_window_starts();
        let output = coordinator(server.address, &names, &token, &["--window", "1s"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = complaint(&output);
        assert!(
            told.contains("busy with another coordinator | hint: Wait until that run is over."),
            "{told}"
        );
        assert!(running.child.try_wait().unwrap().is_none());
    });
}

#[test]
fn who_does_not_hold_the_token_is_refused_and_the_next_is_served() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let (right, wrong) = (TokenFile::new(TOKEN), TokenFile::new("another token for tests"));
        let agent = Agent::start(&right);
        let names = [&*agent.address];
        let flags = ["--warmup", "0s", "--window", "500ms", "--json"];
        let output = coordinator(server.address, &names, &wrong, &flags).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = complaint(&output);
        assert!(told.contains("the tokens differ | hint: Give both the same --token-file."), "{told}");
        let report = report(&coordinator(server.address, &names, &right, &flags).output().unwrap());
        assert!(report.attempts > 0);
    });
}

/// Somebody at the port of an agent who answers each line with the next of these.
fn impostor(lines: Vec<String>) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, heard) = mpsc::channel();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines {
            stream.write_all(line.as_bytes()).unwrap();
            stream.write_all(b"\n").unwrap();
            match answers.next() {
                Some(Ok(answer)) => sender.send(answer).unwrap(),
                _ => break,
            }
        }
    });
    (address, heard)
}

#[test]
fn who_is_no_agent_or_another_one_is_not_believed() {
    let server = Server::start("memory:", &[]);
    let token = TokenFile::new(TOKEN);
    let version = env!("CARGO_PKG_VERSION");
    let hello = |version: &str, format: u32, nonce: &str| {
        format!(r#"{{"hello":{{"protocol":1,"version":"{version}","format":{format},"nonce":"{nonce}"}}}}"#)
    };
    let nonce = "0123456789abcdef".repeat(4);
    for (lines, why) in [
        (vec![hello("9.9.9", 1, &nonce)], "it is weir 9.9.9 (protocol 1, format 1), this is "),
        (vec![hello(version, 77, &nonce)], "hint: Use the same program on both sides."),
        (vec![hello(version, 1, "short")], "its hello makes no sense"),
        (
            vec![hello(version, 1, &nonce), format!(r#"{{"welcome":{{"proof":"{nonce}"}}}}"#)],
            "it does not hold the token, and was told nothing",
        ),
        (vec!["SSH-2.0-OpenSSH_9.7".into()], "and is no agent"),
        (vec!["x".repeat(10_000)], "a line of more than 4096 bytes, and is no agent"),
    ] {
        let (address, heard) = impostor(lines);
        let output = coordinator(server.address, &[&address], &token, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let told = complaint(&output);
        assert!(told.contains(why) && told.contains(&format!("agent {address}: ")), "{told}");
        assert!(heard.try_iter().all(|line| !line.contains(TOKEN)));
    }
}

#[test]
fn the_token_is_never_sent_and_what_was_overheard_is_of_no_use() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let agent = Agent::start(&token);
        // Between the two stands somebody who takes down all that is said.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = listener.local_addr().unwrap().to_string();
        let (to_agent, mut from_agent) = agent.connect();
        let spy = thread::spawn(move || {
            let (mut to_coordinator, _) = listener.accept().unwrap();
            let mut from_coordinator = to_coordinator.try_clone().unwrap();
            let back = thread::spawn(move || {
                let mut said = Vec::new();
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = from_agent.read(&mut piece) {
                    said.extend_from_slice(&piece[..read]);
                    to_coordinator.write_all(&piece[..read]).unwrap();
                }
                said
            });
            let mut said = Vec::new();
            let mut piece = [0; 4096];
            while let Ok(read @ 1..) = from_coordinator.read(&mut piece) {
                said.extend_from_slice(&piece[..read]);
                (&to_agent).write_all(&piece[..read]).unwrap();
            }
            to_agent.shutdown(std::net::Shutdown::Both).unwrap();
            (text(&said), text(&back.join().unwrap()))
        });
        let flags = ["--warmup", "0s", "--window", "500ms", "--json"];
        report(&coordinator(server.address, &[&between], &token, &flags).output().unwrap());
        let (by_coordinator, by_agent) = spy.join().unwrap();
        assert!(by_agent.contains("\"tally\"") && by_coordinator.contains("\"start\""));
        assert!(!by_agent.contains(TOKEN) && !by_coordinator.contains(TOKEN));

        // The agent's own proof, said back to it, and the coordinator's, said again.
        let hello = by_coordinator.lines().next().unwrap();
        let welcome = by_agent.lines().nth(1).unwrap();
        let proof =
            |line: &str| line.split("\"proof\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let reflected = hello.replace(&proof(hello), &proof(welcome));
        for overheard in [hello, &reflected] {
            let (mut mouth, mut ear) = agent.connect();
            let mut line = String::new();
            ear.read_line(&mut line).unwrap();
            assert!(line.starts_with("{\"hello\""), "{line}");
            mouth.write_all(format!("{overheard}\n").as_bytes()).unwrap();
            line.clear();
            ear.read_line(&mut line).unwrap();
            assert!(line.contains("refused") && line.contains("the tokens differ"), "{line}");
            line.clear();
            assert_eq!(ear.read_line(&mut line).unwrap_or(0), 0, "{line}");
        }
    });
}

#[test]
fn an_agent_outlives_whatever_comes_to_its_port() {
    tried(|| {
        let server = Server::start("memory:", &[]);
        let token = TokenFile::new(TOKEN);
        let mut agent = Agent::start(&token);
        let long = "x".repeat(100_000);
        for garbage in [
            &b""[..],
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"\x00\xff\xfe\n",
            b"{}\n",
            b"{\"start\":{\"in_us\":1}}\n",
            b"\"preload\"\n",
            b"{\"hello\":{\"nonce\":\"\",\"proof\":\"\"}}\n",
            b"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n",
            long.as_bytes(),
        ] {
            let (mut mouth, mut ear) = agent.connect();
            // It may be refused before all is said.
            let _ = mouth.write_all(garbage);
            let _ = mouth.shutdown(std::net::Shutdown::Write);
            let mut told = Vec::new();
            let _ = ear.read_to_end(&mut told);
            assert!(told.starts_with(b"{\"hello\""), "{}", text(&told));
            assert!(!text(&told).contains("welcome"));
        }
        // Nor do those who say nothing stand in the way of others.
        let _silent: Vec<_> = (0..10).map(|_| agent.connect()).collect();
        let flags = ["--warmup", "0s", "--window", "500ms", "--json"];
        let report =
            report(&coordinator(server.address, &[&agent.address], &token, &flags).output().unwrap());
        assert!(report.attempts > 0);
        assert!(agent.child.try_wait().unwrap().is_none());
    });
}

#[test]
fn an_agent_says_what_it_cannot_do() {
    tried(|| {
        let token = TokenFile::new(TOKEN);
        let agent = Agent::start(&token);
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let output = coordinator(nobody, &[&agent.address], &token, &["--no-preload"]).output().unwrap();
        let told = complaint(&output);
        assert_eq!(output.status.code(), Some(1));
        assert!(told.contains(&format!("agent {}: cannot reach http://{nobody}", agent.address)), "{told}");
        assert!(told.contains("hint: The server must be reachable from the agent's machine."), "{told}");
        // A server that forgets what it was given.
        let server = Recorded::start(|_| Reply::Status(200));
        let output = coordinator(server.address, &[&agent.address], &token, &[]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("cannot preload key"), "{}", text(&output.stderr));
    });
}

#[test]
fn wrong_input_is_one_line_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, token: &str| {
        let path = directory.path().join(name);
        fs::write(&path, token).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (short, empty, good) = (file("short", "0123456789"), file("empty", "\n"), file("good", TOKEN));
    let missing = directory.path().join("missing").to_str().unwrap().to_owned();
    let folder = directory.path().to_str().unwrap().to_owned();
    let load = |agents: &str, flags: &[&str]| -> Vec<String> {
        let words = [&["load", "http://127.0.0.1:1", "--agents", agents], flags].concat();
        words.into_iter().map(str::to_owned).collect()
    };
    let agent = |flags: &[&str]| -> Vec<String> {
        [&["agent"], flags].concat().into_iter().map(str::to_owned).collect()
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (words, why) in [
        (agent(&[]), "need a token that they share"),
        (agent(&["--token-file", &missing]), "no such file"),
        (agent(&["--token-file", &folder]), "cannot read the token in"),
        (agent(&["--token-file", &short]), "shorter than 16 characters"),
        (agent(&["--token-file", &empty]), "the token is empty"),
        (agent(&["--token-file", &good, "--listen", &taken]), "cannot listen on"),
        (
            agent(&["--token-file", &good, "--listen", "everywhere"]),
            "--listen everywhere is no address with a port",
        ),
        (agent(&["--token", TOKEN]), "weir agent has no flag --token"),
        (load("127.0.0.1:1", &[]), "need a token that they share"),
        (load("127.0.0.1:1", &["--token-file", &short]), "shorter than 16 characters"),
        (load("127.0.0.1", &["--token-file", &good]), "an agent is a host and a port"),
        (load("127.0.0.1:1,", &["--token-file", &good]), "an agent is a host and a port"),
        (load("a:1,b:1,a:1", &["--token-file", &good]), "--agents has a:1 twice"),
        (load("a:1,b:1", &["--token-file", &good, "--clients", "1"]), "too few for 2 agents"),
        (["load", "http://127.0.0.1:1", "--token-file", &good].map(str::to_owned).to_vec(), "--agents"),
    ] {
        let output = weir().args(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output.stderr));
        let told = complaint(&output);
        assert!(told.contains(why), "{words:?}: {told}");
    }
    // From the environment it is the token itself.
    let output = weir().args(agent(&[])).env("WEIR_AGENT_TOKEN", "0123456789").output().unwrap();
    assert!(complaint(&output).contains("WEIR_AGENT_TOKEN: the token is shorter"));
}
