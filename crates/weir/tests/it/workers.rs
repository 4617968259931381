//! Several workers under one coordinator: real processes, and what happens when one of them does not do its part.

use crate::load::{Reply, Server as Recorded};
use crate::support::{Server, free_address, until, weir};
use kv::proto::{FORMAT, LoadEvent, LoadReport};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The command that starts a worker here.
fn worker() -> String {
    format!("exec {} load-worker", env!("CARGO_BIN_EXE_weir"))
}

/// The same, of a worker that first writes its process number into a file.
fn worker_known_by(file: &Path) -> String {
    format!("echo $$ > {}; {}", file.display(), worker())
}

/// Sends a signal to the process whose number is in the file.
fn signal(file: &Path, signal: Signal) {
    let number = fs::read_to_string(file).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(number).unwrap(), signal).unwrap();
}

/// `weir load --worker`, with further flags.
fn coordinator(server: impl ToString, workers: &[&str], flags: &[&str]) -> Command {
    let mut command = weir();
    command.args(["load", &format!("http://{}", server.to_string())]);
    for worker in workers {
        command.args(["--worker", worker]);
    }
    command.args(flags);
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

/// The error of a run that did not, without what the workers themselves said.
fn complaint(output: &Output) -> String {
    let told = text(&output.stderr);
    let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("error: ")).collect();
    assert!(lines.len() == 1 && lines[0].contains("; hint: "), "{told}");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{told}");
    lines[0].to_owned()
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
        let mut child =
            command.arg("--events").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap());
        Running { child, events }
    }

    fn until_the_window_starts(&mut self) {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        assert_eq!(serde_json::from_str(&line).ok(), Some(LoadEvent::WindowStart), "{line}");
    }

    /// Its exit code and what it said on standard error; there was no report.
    fn fails(mut self) -> String {
        let (mut events, mut told) = (String::new(), String::new());
        self.events.read_to_string(&mut events).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        assert!(!events.contains("\"report\""), "{events}");
        assert_eq!(self.child.wait().unwrap().code(), Some(1));
        told
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn what_two_workers_counted_is_what_the_server_counted() {
    let server = Server::start("memory:", &[]);
    let (first, second) = (worker(), format!("true; {}", worker()));
    let flags = "--workload put_all --clients 7 --warmup 0s --window 2s --bin 200ms --json";
    let flags: Vec<&str> = flags.split(' ').collect();
    let report = report(&coordinator(server.address, &[&first, &second], &flags).output().unwrap());

    let counted = answered(&server, "PUT") + answered(&server, "DELETE");
    // Of each client one request may have been answered a moment after the window, and one more been sent then.
    assert!((report.attempts..=report.attempts + 2 * 7).contains(&counted), "{counted}: {report:?}");
    assert!(report.successes == report.attempts && report.attempts > 0);

    assert_eq!((report.clients, report.threads), (7, 2));
    let shares: Vec<(&str, u32)> = report.workers.iter().map(|one| (&*one.command, one.clients)).collect();
    assert_eq!(shares, [(&*first, 4), (&*second, 3)]);
    assert!(report.workers.iter().all(|one| one.start_delay_us > 0.0 && one.threads == 1));
    assert_eq!(report.workers.iter().map(|one| one.attempts).sum::<u64>(), report.attempts);
    assert_eq!(report.workers.iter().map(|one| one.latency.count).sum::<u64>(), report.latency.count);
    let longest = report.workers.iter().map(|one| one.latency.us_max).fold(0.0, f64::max);
    assert_eq!(report.latency.us_max, longest);
    // What is over at the very end of the window belongs to a second that has only begun.
    let by_second: u64 = report.seconds.iter().map(|second| second.attempts).sum();
    assert!(report.seconds.len() == 2 && by_second <= report.attempts && by_second + 7 >= report.attempts);
    // Five bins make a second, whoever counted in them.
    let bins = report.bins.as_ref().unwrap();
    let seconds = bins.list.chunks_exact(5).map(|bins| bins.iter().map(|bin| bin.attempts).sum::<u64>());
    assert_eq!((bins.secs, bins.list.len()), (0.2, 10));
    assert!(seconds.eq(report.seconds.iter().map(|second| second.attempts)), "{report:?}");
    let residual = report.little_residual().unwrap();
    assert!(residual.abs() < 0.05, "{residual}");
}

#[test]
fn workers_ask_for_what_one_process_would() {
    const REQUESTS: usize = 20;
    let flags = "--workload put_all --clients 5 --keys 100 --seed 7 --warmup 0s --window 1h --quiet";
    let flags: Vec<&str> = flags.split(' ').collect();
    let streams = |workers: &[&str]| {
        let server = Recorded::start(|_| Reply::Store);
        let mut load = coordinator(server.address, workers, &flags).spawn().unwrap();
        let complete = |streams: &[Vec<String>]| {
            streams.len() == 5 && streams.iter().all(|stream| stream.len() == REQUESTS)
        };
        until("each client has sent enough", || complete(&server.streams(REQUESTS)));
        load.kill().unwrap();
        load.wait().unwrap();
        server.streams(REQUESTS)
    };
    let worker = worker();
    let alone = streams(&[]);
    assert_eq!(streams(&[&worker]), alone);
    assert_eq!(streams(&[&worker, &worker]), alone);
}

#[test]
fn a_rate_is_that_of_all_workers_together() {
    let server = Server::start("memory:", &[]);
    let worker = worker();
    let flags = [
        "--workload",
        "get_popular",
        "--clients",
        "8",
        "--rate",
        "500",
        "--warmup",
        "100ms",
        "--window",
        "1s",
        "--json",
    ];
    let report = report(&coordinator(server.address, &[&*worker; 3], &flags).output().unwrap());
    let schedule = report.schedule.unwrap();
    // Each worker has a window of its own, and an instant at its edge may fall to either side.
    assert!((497..=503).contains(&schedule.due), "{schedule:?}");
    assert_eq!((schedule.offered_rps, &*report.pacing), (500.0, "constant 500/s"));
    assert!(report.workers.iter().all(|one| one.attempts > 0));
}

#[test]
fn keys_are_preloaded_once_and_events_come_as_from_one_process() {
    let server = Server::start("memory:", &[]);
    let worker = worker();
    let flags = ["--keys", "30", "--warmup", "100ms", "--window", "200ms", "--events"];
    let output = coordinator(server.address, &[&worker, &worker], &flags).output().unwrap();
    let told = text(&output.stdout);
    let events: Vec<LoadEvent> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
}

#[test]
fn a_dialect_of_a_file_and_all_values_are_verified_as_in_one_process() {
    let server = Server::start("memory:", &[]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, "[get]\npath = \"/kv/{key}\"\n[put]\npath = \"/kv/{key}\"\nbody = \"{value}\"\n")
        .unwrap();
    let gone = format!("rm -f {}; {}", file.display(), worker());
    let flags =
        ["--workload", "get_all", "--keys", "20", "--verify", "all", "--warmup", "0s", "--window", "1s"];
    let flags = [&flags[..], &["--json", "--dialect", file.to_str().unwrap()]].concat();
    let report = report(&coordinator(server.address, &[&gone, &gone], &flags).output().unwrap());
    assert_eq!((&*report.dialect, &*report.verify), ("mine.toml", "all"));
    assert!(report.verified > 0 && report.error_ratio == 0.0, "{report:?}");
}

#[test]
fn the_table_says_who_drove_the_clients() {
    let server = Server::start("memory:", &[]);
    let worker = worker();
    let flags = ["--workload", "get_popular", "--clients", "5", "--warmup", "0s", "--window", "1s"];
    let output = coordinator(server.address, &[&worker, &worker], &flags).output().unwrap();
    let told = text(&output.stdout);
    let line = format!("workers     clients 3 by `{worker}`, 2 by `{worker}`; all began within ");
    assert!(output.status.success() && told.contains(&line), "{told}{}", text(&output.stderr));
}

/// A file in a folder of its own.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("process");
    (folder, file)
}

#[test]
fn a_worker_that_is_killed_ends_the_run_with_an_error_that_names_it() {
    let server = Server::start("memory:", &[]);
    let (_folder, process) = file();
    let (first, second) = (worker(), worker_known_by(&process));
    let flags = ["--no-preload", "--warmup", "0s", "--window", "1h"];
    for sent in [Signal::KILL, Signal::TERM] {
        let mut running = Running::start(coordinator(server.address, &[&first, &second], &flags));
        running.until_the_window_starts();
        signal(&process, sent);
        let told = running.fails();
        let number = sent.as_raw();
        let error =
            format!("error: worker `{second}`: it ended before its result was there (signal: {number} ");
        assert!(told.contains(&error) && told.contains("; hint: see its own messages"), "{told}");
        let mut client = server.client();
        until("the other one has ended, too", || client.stats()["weir_http_connections"] == 1.0);
    }
}

#[test]
fn a_worker_that_falls_silent_ends_the_run() {
    let server = Server::start("memory:", &[]);
    let (_folder, process) = file();
    let worker = worker_known_by(&process);
    let flags = ["--no-preload", "--warmup", "0s", "--window", "1h"];
    let mut running = Running::start(coordinator(server.address, &[&worker], &flags));
    running.until_the_window_starts();
    signal(&process, Signal::STOP);
    let told = running.fails();
    assert!(told.contains(&format!("worker `{worker}`: nothing came from it for 10s; hint: ")), "{told}");
}

#[test]
fn workers_end_with_their_coordinator() {
    let server = Server::start("memory:", &[]);
    let worker = worker();
    let flags = ["--no-preload", "--warmup", "0s", "--window", "1h"];
    let mut running = Running::start(coordinator(server.address, &[&worker, &worker], &flags));
    running.until_the_window_starts();
    running.child.kill().unwrap();
    let mut client = server.client();
    until("the load has stopped", || client.stats()["weir_http_connections"] == 1.0);
}

/// A shell that waits for a command was ended alone, and the command went on.
#[test]
fn what_a_lost_worker_started_ends_with_it() {
    let (_folder, process) = file();
    let command = format!("sleep 600 & echo $! > {}; echo hello; wait", process.display());
    let output = coordinator("127.0.0.1:1", &[&command], &[]).output().unwrap();
    assert!(complaint(&output).contains("`hello` is no message"), "{output:?}");
    let stat = format!("/proc/{}/stat", fs::read_to_string(&process).unwrap().trim());
    // Where nobody waits for orphans it stays as one that has ended.
    until("it has ended", || fs::read_to_string(&stat).map_or(true, |text| text.contains(") Z ")));
}

#[test]
fn what_is_no_worker_or_another_one_is_not_believed() {
    let server = Server::start("memory:", &[]);
    let hello = |version: &str, format: u32| {
        let hello = format!(r#"{{"hello":{{"version":"{version}","format":{format}}}}}"#);
        format!("echo '{hello}'; cat > /dev/null")
    };
    let version = env!("CARGO_PKG_VERSION");
    for (command, why) in [
        ("no-such-command".to_owned(), "it ended before its result was there (exit status: 127); hint: see"),
        ("exit 3".to_owned(), "it ended before its result was there (exit status: 3)"),
        (hello("9.9.9", FORMAT), "it is weir 9.9.9 (format "),
        (hello(version, 77), "it is weir 0.1.0 (format 77), and this is weir 0.1.0 (format "),
        (
            format!("echo Welcome to this machine.; {}", worker()),
            "`Welcome to this machine.` is no message of weir load-worker",
        ),
        ("printf '\\377\\n'; cat > /dev/null".to_owned(), "`\u{fffd}` is no message of weir load-worker"),
    ] {
        let output = coordinator(server.address, &[&command], &["--window", "1s"]).output().unwrap();
        let told = complaint(&output);
        assert!(told.starts_with(&format!("error: worker `{command}`: {why}")), "{told}");
    }
    let output = coordinator(server.address, &[&hello("9.9.9", 1)], &[]).output().unwrap();
    assert!(complaint(&output).ends_with("hint: use the same version on both sides"));
}

#[test]
fn a_worker_says_what_it_cannot_do() {
    let worker = worker();
    let nobody = free_address();
    let output = coordinator(nobody, &[&worker], &["--no-preload"]).output().unwrap();
    let told = complaint(&output);
    assert!(told.contains(&format!("worker `{worker}`: cannot reach http://{nobody}")), "{told}");
    assert!(told.contains("start the server, or correct the port"), "{told}");
    // A server that forgets what it was given.
    let server = Recorded::start(|_| Reply::Status(200));
    let told = complaint(
        &coordinator(server.address, &[&worker], &["--quiet", "--workload", "get_popular"]).output().unwrap(),
    );
    assert!(told.contains("cannot preload key"), "{told}");
}

#[test]
fn wrong_input_is_one_line_with_a_remedy() {
    let told = |output: Output| {
        let told = text(&output.stderr);
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        told
    };
    let command = coordinator("127.0.0.1:1", &["a", "b"], &["--clients", "1"]).output().unwrap();
    let few = told(command);
    assert!(few.contains("--clients 1 are too few for 2 workers; hint: use at least one client"), "{few}");
    let mut typed = weir().arg("load-worker").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut typed.stdin.take().unwrap(), b"start\n").unwrap();
    let typed = told(typed.wait_with_output().unwrap());
    assert!(typed.contains("`start` on standard input is no order of `weir load`; hint: name"), "{typed}");
}
