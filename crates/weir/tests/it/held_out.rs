//! `weir lab --command` on services that were written after its rules, by their kinds alone (services/held_out); what it said of them at the
//! first run is in records/2026-11-23-held-out.md, with that of a second set (services/held_out_later). Three more sets are in
//! services/held_out_third, held_out_fourth and held_out_fifth; records/2026-11-24-held-out.md has what was said of them.

use super::foreign::said;
use crate::support::python;
use std::path::{Path, PathBuf};
use std::process::Command;

const SERVICES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/services/held_out");

/// What a service is called, how it is started from a directory with what was built, and what the line about its limit may have.
type Row = (&'static str, fn(&Path) -> String, &'static [&'static str]);

const ROWS: &[Row] = &[
    ("a thread pool in Java", |dir| java(dir, "", "Pool"), &["a pool of 3, "]),
    ("synchronized in Java", |dir| java(dir, "", "Lock"), &["server lock, "]),
    (
        "a heap that is nearly full in Java",
        |dir| java(dir, "-Xmx160m -XX:+UseSerialGC", "Pauses"),
        &["pauses of all threads, "],
    ),
    ("one thread in C", |dir| in_c(dir, "one_thread", ""), &["one thread, ", "server CPU, "]),
    ("a mutex in C", |dir| in_c(dir, "threads", "mutex"), &["server lock, "]),
    ("a mutex for a quarter of the time in C", |dir| in_c(dir, "threads", "partly"), &["server lock, "]),
    ("a sleep in C", |dir| in_c(dir, "threads", "delay"), &["a delay: sleep or timer, "]),
    ("connections with a rate, in C", |dir| in_c(dir, "threads", "bandwidth"), &["a delay: network, "]),
    ("an event loop that computes", |_| node("blocked_loop.js"), &["one thread, ", "server CPU, "]),
    (
        "a service behind two connections",
        |_| node("downstream.js"),
        &["a pool of 2, ", "downstream service, "],
    ),
    ("refusals", |_| node("fast_failure.js"), &["unknown: requests fail fast"]),
    (
        "threads that compute in Python",
        |_| in_python("gil.py"),
        &["one thread, ", "server CPU, ", "server lock, "],
    ),
    ("a journal", |_| in_python("fsync.py"), &["disk, "]),
    ("two small writes in Go", |dir| in_go(dir, "delayed-ack"), &["a delay: delayed acknowledgement, "]),
    ("a short accept queue in Go", |dir| in_go(dir, "accept-queue"), &["accept queue, "]),
];

/// Of the second set, what no rule was changed for.
const LATER: &[Row] = &[
    ("timers of asyncio", |_| later("loop.py timer"), &["a delay: sleep or timer, "]),
    ("a semaphore of asyncio", |_| later("loop.py semaphore"), &["a pool of 3, "]),
    ("threads that ask another service", |_| later("behind.py"), &["downstream service, "]),
];

/// Of the third set, the fourth and the fifth. Not those that were not named: two that wait for a disk and compute as long, two that send their answers
/// slowly by a timer, one that asks a name server once for all clients, one whose lock's holder fills the core, and one that fails under load by itself.
const MORE: &[Row] = &[
    ("edit distances in asyncio", |_| in_python("../held_out_third/scores.py"), CPU),
    ("a set of Mandelbrot", |dir| built_in_go(dir, "../held_out_third/mandel"), CPU),
    ("one printer", |_| in_python("../held_out_third/label_printer.py"), &["server lock, "]),
    ("five licences", |dir| built_in_go(dir, "../held_out_third/licences"), &["a pool of 5, "]),
    ("a timer in Node", |_| node("../held_out_third/polite.js"), &["a delay: sleep or timer, "]),
    (
        "two writes in Java",
        |dir| java(dir, "", "../held_out_third/Greeting"),
        &["a delay: delayed acknowledgement, "],
    ),
    (
        "a process behind a process",
        |dir| in_c(dir, "../held_out_third/front", ""),
        &["a delay: downstream service, "],
    ),
    ("a gate", |_| in_python("../held_out_third/gate.py"), &["accept queue, "]),
    ("three tickets", |dir| java(dir, "", "../held_out_third/Tickets"), &["unknown: requests fail fast"]),
    ("Collatz in one thread", |dir| java(dir, "", "../held_out_fourth/Collatz"), CPU),
    ("queens in worker threads", |_| node("../held_out_fourth/queens.js"), CPU),
    ("one thermometer", |dir| in_c(dir, "../held_out_fourth/thermometer", ""), &["server lock, "]),
    ("three handles", |_| in_python("../held_out_fourth/library.py"), &["a pool of 3, "]),
    ("a timer in Java", |dir| java(dir, "", "../held_out_fourth/Kettle"), &["a delay: sleep or timer, "]),
    (
        "two writes in Node",
        |_| node("../held_out_fourth/postcard.js"),
        &["a delay: delayed acknowledgement, "],
    ),
    ("a paced socket", |_| in_python("../held_out_fourth/radio.py"), &["a delay: network, "]),
    ("a turnstile", |dir| in_c(dir, "../held_out_fourth/turnstile", ""), &["accept queue, "]),
    ("two seats", |dir| built_in_go(dir, "../held_out_fourth/hotline"), &["unknown: requests fail fast"]),
    (
        "a process that sleeps as a whole",
        |_| in_python("../held_out_fourth/narcolepsy.py"),
        &["pauses of all threads, "],
    ),
    ("one engraver", |dir| java(dir, "", "../held_out_fifth/Engraver"), CPU),
    ("keys of passwords in threads", |_| in_python("../held_out_fifth/vault.py"), CPU),
    ("one ledger", |_| in_python("../held_out_fifth/ledger.py"), &["server lock, "]),
    ("four connections to a bank", |dir| built_in_go(dir, "../held_out_fifth/checkout"), &["a pool of 4, "]),
    ("answers every 90 ms", |_| node("../held_out_fifth/tram.js"), &["a delay: sleep or timer, "]),
    (
        "an answer line by line",
        |dir| in_c(dir, "../held_out_fifth/telegram", ""),
        &["a delay: delayed acknowledgement, "],
    ),
    ("direct reads", |dir| in_c(dir, "../held_out_fifth/gallery", ""), &["disk, "]),
    ("three barbers", |_| in_python("../held_out_fifth/barber.py"), &["accept queue, "]),
    (
        "a heap that is collected again and again",
        |dir| java(dir, "-Xms512m -Xmx512m -XX:+UseSerialGC", "../held_out_fifth/Attic"),
        &["pauses of all threads, "],
    ),
    ("a circuit breaker", |_| node("../held_out_fifth/grocer.js"), &["unknown: requests fail fast"]),
];

/// On the one core that a service has here, one thread that computes and several look alike.
const CPU: &[&str] = &["one thread, ", "server CPU, "];

/// Runs a command that has to succeed.
fn run(program: &str, args: &[&str], dir: &Path) {
    let output = Command::new(program).args(args).current_dir(dir).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn source(name: &str) -> PathBuf {
    Path::new(SERVICES).join(name)
}

fn java(dir: &Path, flags: &str, class: &str) -> String {
    let file = source(&format!("{class}.java"));
    run("javac", &["-d", ".", file.to_str().unwrap()], dir);
    let class = Path::new(class).file_name().unwrap().display();
    format!("java {flags} -cp {} {class} {{port}}", dir.display())
}

fn in_c(dir: &Path, program: &str, limit: &str) -> String {
    let file = source(&format!("{program}.c"));
    run("cc", &["-O2", "-pthread", "-o", "program", file.to_str().unwrap()], dir);
    format!("{} {limit} {{port}}", dir.join("program").display())
}

fn in_go(dir: &Path, limit: &str) -> String {
    run("go", &["build", "-o", "network", source("network.go").to_str().unwrap()], dir);
    format!("{} {limit} {{port}}", dir.join("network").display())
}

fn built_in_go(dir: &Path, program: &str) -> String {
    run("go", &["build", "-o", "program", source(&format!("{program}.go")).to_str().unwrap()], dir);
    format!("{} {{port}}", dir.join("program").display())
}

fn node(script: &str) -> String {
    format!("node {} {{port}}", source(script).display())
}

fn in_python(script: &str) -> String {
    format!("{} {} {{port}}", python("python3").display(), source(script).display())
}

fn later(script: &str) -> String {
    format!("{} {SERVICES}_later/{script} {{port}}", python("python3").display())
}

/// The line about the limit of a service, and whether it is what it may be.
fn named((name, command, expected): &Row, levels: &str) -> (String, bool) {
    let dir = tempfile::tempdir().unwrap();
    let (answers, _) = said(&command(dir.path()), levels);
    let line = answers.lines().find(|line| line.trim_start().starts_with("limit ")).expect(&answers).trim();
    (format!("{name}: {line}"), expected.iter().any(|part| line.contains(part)))
}

#[test]
fn some_services_that_no_rule_was_written_for_are_named() {
    for name in ["a mutex in C", "a mutex for a quarter of the time in C", "connections with a rate, in C"] {
        let row = ROWS.iter().find(|row| row.0 == name).unwrap();
        let (line, is_right) = named(row, "1,16");
        assert!(is_right, "{line}");
    }
}

/// Those of the second set that were named at the first run: the record has the others.
#[test]
#[ignore = "processors are others' too: run by make test-long"]
fn some_services_of_a_second_set_are_named() {
    for row in LATER {
        let (line, is_right) = named(row, "1,16");
        assert!(is_right, "{line}");
    }
}

#[test]
#[ignore = "processors and disks are others' too, and Java is needed: run by make test-long"]
fn of_fourteen_services_twelve_are_named_and_none_wrongly_above_suspected() {
    are_named(ROWS, 12);
}

#[test]
#[ignore = "processors and disks are others' too, and Java is needed: run by make test-long"]
fn of_twenty_nine_more_services_twenty_six_are_named_and_none_wrongly_above_suspected() {
    are_named(MORE, 26);
}

fn are_named(rows: &[Row], least: usize) {
    let all: Vec<(String, bool)> = rows.iter().map(|row| named(row, "1,4,16,64")).collect();
    let shown: Vec<&str> = all.iter().map(|(line, _)| line.as_str()).collect();
    let right = all.iter().filter(|(_, is_right)| *is_right).count();
    let is_sure = |line: &String| line.contains("(supported)") || line.contains("(confirmed)");
    assert!(right >= least && !all.iter().any(|(line, is_right)| !is_right && is_sure(line)), "{shown:#?}");
}
