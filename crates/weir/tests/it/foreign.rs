//! `weir lab --command`: what limits small services in other languages, of which the lab knows nothing.

use crate::support::{PATIENCE, free_address, python, until};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::time::Instant;

const SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/services");

/// What the lab says of a service that `command` starts: its answers, and its report.
pub(super) fn said(command: &str, levels: &str) -> (String, String) {
    said_with(command, levels, "1s", &[])
}

fn said_with(command: &str, levels: &str, window: &str, flags: &[&str]) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let length = ["--levels", levels, "--repetitions", "1", "--warmup", "200ms", "--window", window];
    let output = lab(command, &out, &[&length, flags].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = fs::read_to_string(out.join("report.md")).unwrap();
    (String::from_utf8(output.stdout).unwrap(), report)
}

fn lab(command: &str, out: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["lab", "--command", command, "--url", "/", "--no-selftest", "--no-headroom", "--out"])
        .arg(out)
        .args(flags)
        .output()
        .unwrap()
}

/// The line about the limit of a service with `limit`; with one client, and with several.
fn limit(program: &str, limit: &str, more: &str) -> String {
    let (answers, _) = said(&format!("{program} {limit} {{port}} {more}"), "1,4,16");
    answers.lines().find(|line| line.trim_start().starts_with("limit ")).expect(&answers).trim().to_owned()
}

fn in_python(of: &str) -> String {
    limit(&format!("{} {SERVICES}/limits.py", python("python3").display()), of, "")
}

fn in_node(of: &str) -> String {
    limit(&format!("node {SERVICES}/event_loop.js"), of, "")
}

/// As of `docker run`: what was sampled and pinned was a process that does nothing.
#[test]
fn a_server_that_is_no_child_of_the_command_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let serve = format!("{} {SERVICES}/limits.py lock {{port}}", python("python3").display());
    let output = lab(&format!("({serve} &); sleep 987"), &dir.path().join("run"), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let error = said.trim_end().lines().last().unwrap();
    assert!(error.contains(" is not a child process of the command; hint: "), "{said}");
}

#[test]
fn a_lock_is_named_by_the_threads_that_wait_for_another() {
    let said = in_python("lock");
    assert!(said.contains("server lock, ") && said.contains("of 16 clients"), "{said}");
}

#[test]
fn a_pool_that_is_too_small_is_named_with_its_size() {
    let said = in_python("pool");
    // Beside other tests one client alone is slower than it is by itself, and then the pool looks larger.
    assert!(said.contains("a pool of "), "{said}");
}

// Beside other tests more clients may get no more, and then it is not called a delay.
#[test]
fn threads_that_sleep_are_named() {
    let said = in_python("sleep");
    assert!(said.contains("sleep or timer, "), "{said}");
}

#[test]
fn a_delayed_acknowledgement_is_told_from_other_delays() {
    let said = in_python("delayed-ack");
    assert!(said.contains("delayed acknowledgement, "), "{said}");
}

#[test]
fn connections_that_nobody_accepts_are_named() {
    let said = in_python("accept-queue");
    assert!(said.contains("accept queue, "), "{said}");
}

/// A process that is killed at the end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn another_service_behind_it_is_named() {
    let port = free_address().port().to_string();
    let script = Path::new(SERVICES).join("limits.py");
    let behind = Command::new(python("python3")).arg(&script).args(["behind", &port]).spawn().unwrap();
    let _behind = Killed(behind);
    until("it listens", || TcpStream::connect(format!("127.0.0.1:{port}")).is_ok());
    let said = limit(&format!("{} {}", python("python3").display(), script.display()), "downstream", &port);
    assert!(said.contains("downstream service, "), "{said}");
}

#[test]
fn what_an_event_loop_hides_is_only_suspected() {
    let said = in_node("pool");
    assert!(said.contains("a pool of ") && said.contains("(suspected)"), "{said}");
}

#[test]
#[ignore = "processors and disks are others' too: run by make test-long"]
fn a_thread_a_processor_a_disk_and_delays_are_named_where_nothing_else_runs() {
    for said in [in_python("sleep"), in_node("timer")] {
        assert!(said.contains("a delay: sleep or timer, "), "{said}");
    }
    let said = in_python("pool");
    assert!(said.contains("a pool of 4, "), "{said}");
    let said = in_node("cpu");
    assert!(said.contains("one thread, ") || said.contains("server CPU, "), "{said}");
    let said = in_python("cpu");
    assert!(said.contains("server CPU, ") || said.contains("one thread, "), "{said}");
    let said = in_python("disk");
    assert!(said.contains("disk, "), "{said}");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("lock");
    let built =
        Command::new("go").args(["build", "-o"]).arg(&program).arg(format!("{SERVICES}/lock.go")).status();
    assert!(built.unwrap().success());
    let said = limit(&program.display().to_string(), "", "");
    assert!(said.contains("server lock, ") && said.contains("(suspected)"), "{said}");
}

#[test]
fn the_report_says_what_was_seen_and_how_many_are_served_at_once() {
    let (_, report) =
        said(&format!("{} {SERVICES}/limits.py lock {{port}}", python("python3").display()), "1,8");
    let seen = "At 8 clients threads wait for another thread: ";
    assert!(
        report.contains(seen) && report.contains("The requests being served are sleeping, not computing."),
        "{report}"
    );
}

/// For how much of the time its quota stopped the service at the highest level.
fn stopped_percent(report: &str) -> f64 {
    let table = report.split("server: throttled, % of the time |").nth(1).unwrap_or_default();
    let last = table.lines().skip(1).take_while(|line| line.starts_with('|')).last();
    let cell = last.and_then(|line| line.trim_end_matches(" |").rsplit("| ").next());
    cell.and_then(|cell| cell.parse().ok()).unwrap_or(0.0)
}

#[test]
fn a_quota_is_named_and_the_report_says_what_twice_as_much_brought() {
    let command = format!("{} {SERVICES}/limits.py cpu {{port}}", python("python3").display());
    // Little, so that it is the limit also where other tests take most of the cores. Where they leave it even less, it is not: then the
    // kernel hardly ever stops the service.
    let deadline = Instant::now() + 3 * PATIENCE;
    let (answers, report) = loop {
        let (answers, report) = said_with(&command, "1,4", "2s", &["--quota", "0.05"]);
        if stopped_percent(&report) > 50.0 || Instant::now() > deadline {
            break (answers, report);
        }
    };
    let limit = answers.lines().find(|line| line.trim_start().starts_with("limit ")).expect(&answers);
    assert!(limit.contains("server CPU (quota), "), "{limit}\n{report}");
    // Of a service that computes all of the time it is 100 %; other work on the machine takes some of it.
    let tried = report.split("Tried: doubling the CPU quota raised goodput by ").nth(1).expect(&report);
    let gain: f64 = tried.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{tried}"));
    assert!(gain > 20.0, "{tried}");
}
