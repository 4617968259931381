//! The load generator's test of itself: the responder does what it says, and who reports something else is caught.

use crate::support::{PATIENCE, tried, until, weir};
use kv::proto::{Claim, SelftestReport, Truth};
use load_accuracy::CLAIMS;
use load_accuracy::responder::KINDS;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Output, Stdio};
use std::time::{Duration, Instant};

/// A `weir responder`, killed when dropped.
struct Responder {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Responder {
    fn start(flags: &[&str]) -> Responder {
        let mut child =
            weir().arg("responder").args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening ").unwrap().trim().parse().unwrap();
        Responder { child, lines, address }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// What it did, by its own account, which it gives when its input ends.
    fn truth(mut self) -> Truth {
        drop(self.child.stdin.take());
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(stream: &mut TcpStream, key: &str) {
    stream.write_all(format!("GET /kv/{key} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
}

/// What comes until there is a pause or an end, and how it ended.
fn hear(stream: &mut TcpStream, patience: Duration) -> (String, &'static str) {
    stream.set_read_timeout(Some(patience)).unwrap();
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    let end = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break "closed",
            Ok(bytes) => text.extend_from_slice(&buffer[..bytes]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                break "silent";
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break "reset",
            Err(error) => panic!("{error}"),
        }
    };
    (String::from_utf8_lossy(&text).into_owned(), end)
}

#[test]
fn the_responder_answers_each_kind_as_its_table_says() {
    for (kind, begins, end) in [
        ("good", "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\nall_7=", "silent"),
        ("absent", "HTTP/1.1 404 ", "silent"),
        ("reset", "", "reset"),
        ("reset_in_body", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nall_7=", "reset"),
        ("closed", "", "closed"),
        ("closed_in_head", "HTTP/1.1 200 OK\r\nContent-Le", "closed"),
        ("closed_in_body", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nall_7=", "closed"),
        ("long_body", "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\nall_7=", "silent"),
        ("two_lengths", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 22\r\n\r\n", "silent"),
        ("slow_body", "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nall_7=", "silent"),
        ("silence", "", "silent"),
        ("garbage", "\0\u{1} this", "silent"),
        ("wrong_value", "HTTP/1.1 200 OK\r\nContent-Length: 24\r\n\r\nanother=", "silent"),
        ("status_400", "HTTP/1.1 400 ", "silent"),
        ("status_403", "HTTP/1.1 403 ", "silent"),
        ("status_429", "HTTP/1.1 429 ", "silent"),
        ("status_500", "HTTP/1.1 500 ", "silent"),
        ("status_503", "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", "silent"),
        (
            "status_503_not_applied",
            "HTTP/1.1 503 Service Unavailable\r\nweir-outcome: not-applied\r\n",
            "silent",
        ),
        ("status_503_unknown", "HTTP/1.1 503 Service Unavailable\r\nweir-outcome: unknown\r\n", "silent"),
        ("status_504", "HTTP/1.1 504 ", "silent"),
    ] {
        let responder = Responder::start(&["--faults", &format!("{kind}=1")]);
        let mut stream = responder.connect();
        ask(&mut stream, "all_7");
        // The responder does one thing after the other: once a later request is answered, all has come that will.
        let mut witness = responder.connect();
        ask(&mut witness, "all_8");
        assert!(witness.read(&mut [0; 1024]).unwrap() > 0, "{kind}");
        stream.set_nonblocking(end == "silent").unwrap();
        let (text, ended) = hear(&mut stream, PATIENCE);
        // A reset may overtake the bytes before it.
        let overtaken = end == "reset" && text.is_empty();
        assert!(text.starts_with(begins) || overtaken, "{kind}: {text:?}");
        assert_eq!(ended, end, "{kind}");
        if kind == "long_body" {
            assert!(text.ends_with("surplus"), "{text:?}");
        }
        let truth = responder.truth();
        let answers = if kind == "absent" { 2 } else { 1 };
        assert_eq!((truth.requests, truth.answers[kind]), (2, answers), "{kind}");
        assert!(KINDS.iter().any(|row| row.name == kind), "{kind}");
    }
}

#[test]
fn the_responder_waits_as_long_as_told_and_says_how_long_it_was() {
    let responder = Responder::start(&["--delay", "30ms"]);
    let mut stream = responder.connect();
    for _ in 0..3 {
        let asked = Instant::now();
        ask(&mut stream, "k");
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        assert!(asked.elapsed() >= Duration::from_millis(30));
    }
    let delay = responder.truth().delay;
    assert_eq!(delay.count, 3);
    assert!(delay.us_min >= 30_000.0 && delay.us_p50 <= delay.us_max, "{delay:?}");
}

#[test]
fn a_frozen_responder_answers_nobody_and_then_everybody() {
    let responder = Responder::start(&["--stall", "0ms:200ms", "--arrivals"]);
    let mut first = responder.connect();
    let mut second = responder.connect();
    let begun = Instant::now();
    ask(&mut first, "a");
    assert!(first.read(&mut [0; 1024]).unwrap() > 0);
    ask(&mut first, "a");
    ask(&mut second, "b");
    for stream in [&mut first, &mut second] {
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }
    let truth = responder.truth();
    let [at, length] = truth.stall_secs.unwrap();
    assert!(length >= 0.2, "{length}");
    let thawed_ns = ((at + length) * 1e9) as u64;
    assert_eq!(truth.arrivals_ns.len(), 3);
    assert!(truth.arrivals_ns[1..].iter().all(|at| *at >= thawed_ns), "{truth:?}");
}

#[test]
fn a_responder_that_refuses_knows_who_came_in_vain() {
    tried(|| {
        let responder = Responder::start(&["--refuse", "2:1s", "--keys-per-client", "1000"]);
        let mut first = responder.connect();
        ask(&mut first, "k_0");
        assert!(first.read(&mut [0; 1024]).unwrap() > 0);
        let mut second = responder.connect();
        // Now both have asked, and nobody listens any more.
        ask(&mut second, "k_1000");
        assert_eq!(hear(&mut second, PATIENCE), (String::new(), "reset"));
        let refused = TcpStream::connect(responder.address).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let mut again = None;
        until("it listens again", || {
            again = TcpStream::connect(responder.address).ok();
            again.is_some()
        });
        // Three of the second client's requests were made while nobody listened.
        let mut again = again.unwrap();
        ask(&mut again, "k_1004");
        assert!(again.read(&mut [0; 1024]).unwrap() > 0);
        let truth = responder.truth();
        assert_eq!((truth.requests, truth.never_came), (3, 3));
    });
}

/// Runs `weir selftest` and reads its report; the exit code says the same.
fn selftest(flags: &[&str]) -> SelftestReport {
    let output: Output = weir().args(["selftest", "--short", "--json"]).args(flags).output().unwrap();
    let report: SelftestReport = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    assert_eq!(output.status.code(), Some(i32::from(!report.passed())));
    report
}

fn only(report: &SelftestReport) -> &Claim {
    assert_eq!(report.claims.len(), 1);
    &report.claims[0]
}

#[test]
fn the_load_generator_classifies_every_fault() {
    tried(|| {
        let report = selftest(&["--claims", "T5"]);
        let claim = only(&report);
        assert!(claim.passed, "{}", claim.measured);
        assert_eq!((claim.figures["misclassified_count"], claim.figures["tries"]), (0.0, 1.0));
        assert_eq!(claim.figures["good_said_count"], claim.figures["good_count"]);
        assert!(claim.figures["faults_count"] > 2000.0);
        assert!(claim.figures["refused_count"] > 0.0);
    });
}

/// Whether claims about time hold depends on what else the machine does now; that they are tested and told does not.
#[test]
fn every_claim_is_a_line_with_what_was_measured_and_its_bound() {
    let output = weir().args(["selftest", "--short"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    for row in CLAIMS {
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("{} {}", row.id, row.name)), "{line}");
        assert!(line.contains("; bound: "), "{line}");
        assert!(line.contains(" ok") || line.contains(" FAILED"), "{line}");
        // A machine that has no time for it is no fault of the program.
        let why = line.split_once("could not be tested: ").map_or("", |(_, why)| why);
        assert!(
            [
                "",
                "out of time",
                "the responder's utilization",
                "hardly a request came",
                "the responder never froze"
            ]
            .iter()
            .any(|may| why.starts_with(may)),
            "{line}"
        );
    }
    let last = lines.next().unwrap();
    assert!(last.contains(&format!(" of {} claims hold here", CLAIMS.len())), "{last}");
    let failed = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.success(), !text.contains("FAILED"));
    assert_eq!(failed.contains("does not hold here"), text.contains("FAILED"), "{failed}");
}

/// A load generator that changes its flags by `words`, a case of the shell, and whose report goes through `script`, a program
/// of sed.
fn wrapper(directory: &tempfile::TempDir, words: &str, script: &str) -> PathBuf {
    let path = directory.path().join("wrapper");
    let text = format!(
        "#!/bin/sh\nfor word do shift; case $word in {words} ;; esac; set -- \"$@\" \"$word\"; done\n\
         '{}' \"$@\" | sed -E '{script}'\n",
        env!("CARGO_BIN_EXE_weir")
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// What the selftest says of a claim of it.
fn through(claim: &str, words: &str, script: &str) -> Claim {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = wrapper(&directory, words, script);
    let said = || only(&selftest(&["--claims", claim, "--load", wrapper.to_str().unwrap()])).clone();
    // A machine that has no time for it now may have some later.
    let tested = |said: &Claim| !said.measured.starts_with("could not be tested");
    [(); 3].iter().map(|()| said()).find(tested).unwrap_or_else(|| panic!("{claim} could not be tested"))
}

/// A generator that is honest in the same wrapper shows what a figure is without the lie, busy machine or not.
#[test]
fn a_load_generator_that_lies_is_caught() {
    tried(|| {
        const NO_WORDS: &str = "'') : ";
        let mut honest: Vec<Claim> = Vec::new();
        for (claim, lie, words, script, figure, moves) in [
            (
                "T2",
                "latencies in whole milliseconds",
                NO_WORDS,
                r#"s/"us_(p50|mean)":[0-9.]+/"us_\1":0.0/g"#,
                "error_10ms_us",
                5000.0,
            ),
            (
                "T2",
                "a constant that nobody sees",
                NO_WORDS,
                r#"s/"us_(p50|mean)":([0-9])/"us_\1":9\2/g"#,
                "error_10ms_us",
                500_000.0,
            ),
            (
                "T3",
                "latencies from the sending",
                NO_WORDS,
                r#"s/"all":\[.*"service":(\[(\[[^]]*\],?)*\])/"all":\1,"service":\1/"#,
                "delayed_1_clients",
                300.0,
            ),
            (
                "T3",
                "percentiles that are not those of the histogram",
                NO_WORDS,
                r#"s/"us_p99":[0-9.]+/"us_p99":1000.0/g"#,
                "percentile_off_share_1_clients",
                0.5,
            ),
            (
                "T4",
                "requests that were never made",
                NO_WORDS,
                r#"s/"attempts":([0-9]+),"successes"/"attempts":9\1,"successes"/"#,
                "low_said",
                80_000.0,
            ),
            ("T4", "another rate than was asked for", "1000) word=1002", "", "low_due_off_count", 3.0),
            ("T5", "no class for 429", NO_WORDS, r#"s/"http_429":[0-9]+,//"#, "misclassified_count", 200.0),
            (
                "T5",
                "time-outs as resets",
                NO_WORDS,
                r#"s/"timeout":/"aborted":/"#,
                "misclassified_count",
                7.0,
            ),
            (
                "T5",
                "two classes that changed places",
                NO_WORDS,
                r#"s/"slow_body":/"x":/;s/"timeout":/"slow_body":/;s/"x":/"timeout":/"#,
                "misclassified_count",
                2.0,
            ),
        ] {
            if honest.iter().all(|known| known.id != claim) {
                honest.push(through(claim, NO_WORDS, ""));
            }
            let honest = honest.iter().find(|known| known.id == claim).unwrap();
            let caught = through(claim, words, script);
            assert!(!caught.passed, "{lie}: {} {}", caught.id, caught.measured);
            // It was seen through: what the lie moves is far from where it is without it.
            let (said, true_figure) = (caught.figures[figure], honest.figures[figure]);
            assert!((said - true_figure).abs() >= moves, "{lie}: {figure} {said} and {true_figure}");
            // What a busy machine cannot change.
            match claim {
                "T3" => assert!(honest.figures["delayed_1_clients"] >= 390.0, "{}", honest.measured),
                "T4" => assert_eq!(honest.figures["low_due_off_count"], 0.0, "{}", honest.measured),
                "T5" => assert!(honest.passed, "{}", honest.measured),
                _ => {}
            }
        }
    });
}

/// The processes that `parent` started and that are still there, with their command lines.
fn children(parent: u32) -> Vec<(u32, String)> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let pids: Vec<u32> =
        lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    let told = |pid: u32| (pid, std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default());
    pids.into_iter().map(told).collect()
}

#[test]
fn a_selftest_that_is_killed_leaves_no_responder_behind() {
    let mut child = weir().args(["selftest", "--claims", "T5"]).stdout(Stdio::null()).spawn().unwrap();
    let mut responder = None;
    until("it has a responder", || {
        let of_responder = |(_, line): &(u32, String)| line.contains("\0responder\0");
        responder = children(child.id()).into_iter().find(of_responder).map(|(pid, _)| pid);
        responder.is_some()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let cmdline = format!("/proc/{}/cmdline", responder.unwrap());
    // Of one that has ended and was not asked for its code yet the line is empty.
    until("the responder has ended", || std::fs::read_to_string(&cmdline).unwrap_or_default().is_empty());
}

#[test]
fn what_cannot_be_tested_does_not_hold() {
    let report = selftest(&["--claims", "t5", "--load", "/nowhere/at/all"]);
    let claim = only(&report);
    assert_eq!((claim.id.as_str(), claim.passed), ("T5", false));
    assert!(
        claim.measured.starts_with("could not be tested: cannot start /nowhere/at/all"),
        "{}",
        claim.measured
    );
    let output = weir().args(["selftest", "--claims", "T9"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Known are T2, T3, T4, T5"));
    for cores in ["99999999999,0", "5000000,5000000"] {
        let output = weir().args(["selftest", "--cores", cores]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{cores}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("may not run on core") && stderr.lines().count() == 1, "{stderr}");
    }
}
