//! The accuracy checks of the load generator: the test server does what its table says, and a generator that reports something
//! else is caught.

use crate::support::{PATIENCE, until, weir};
use kv::proto::{AccuracyCheck, CheckOutcome, SelftestReport};
use load_accuracy::CHECKS;
use load_accuracy::responder::{ANSWERS, Options, Refusal, Responder};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Output;
use std::time::{Duration, Instant};

fn connect(responder: &Responder) -> TcpStream {
    let stream = TcpStream::connect(responder.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
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
        ("garbage", "\0\u{1} not HTTP", "silent"),
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
        let place = ANSWERS.iter().position(|row| row.name == kind).unwrap();
        let schedule = Some(vec![place as u8]);
        let responder = Responder::start(Options { schedule, ..Options::default() }, None).unwrap();
        let mut stream = connect(&responder);
        ask(&mut stream, "all_7");
        // The responder does one thing after the other: once a later request is answered, all has come that will.
        let mut later = connect(&responder);
        ask(&mut later, "all_8");
        assert!(later.read(&mut [0; 1024]).unwrap() > 0, "{kind}");
        stream.set_nonblocking(end == "silent").unwrap();
        let (text, ended) = hear(&mut stream, PATIENCE);
        // A reset may overtake the bytes before it.
        let overtaken = end == "reset" && text.is_empty();
        assert!(text.starts_with(begins) || overtaken, "{kind}: {text:?}");
        assert_eq!(ended, end, "{kind}");
        if kind == "long_body" {
            assert!(text.ends_with("surplus"), "{text:?}");
        }
        let record = responder.stop().unwrap();
        let answers = if kind == "absent" { 2 } else { 1 };
        assert_eq!((record.requests, record.answers[kind]), (2, answers), "{kind}");
    }
}

#[test]
fn the_responder_waits_as_long_as_told_and_says_how_long_it_was() {
    let delay = Duration::from_millis(30);
    let responder = Responder::start(Options { delay, ..Options::default() }, None).unwrap();
    let mut stream = connect(&responder);
    for _ in 0..3 {
        let asked = Instant::now();
        ask(&mut stream, "k");
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        assert!(asked.elapsed() >= delay);
    }
    let delays_ns = responder.stop().unwrap().delays_ns;
    assert_eq!(delays_ns.len(), 3);
    assert!(delays_ns.iter().all(|ns| *ns >= 30_000_000), "{delays_ns:?}");
}

#[test]
fn a_frozen_responder_answers_nobody_and_then_everybody() {
    let stall = Some([Duration::ZERO, Duration::from_millis(200)]);
    let responder = Responder::start(Options { stall, ..Options::default() }, None).unwrap();
    let mut first = connect(&responder);
    let mut second = connect(&responder);
    let begun = Instant::now();
    ask(&mut first, "a");
    assert!(first.read(&mut [0; 1024]).unwrap() > 0);
    ask(&mut first, "a");
    ask(&mut second, "b");
    for stream in [&mut first, &mut second] {
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        assert!(begun.elapsed() >= Duration::from_millis(200));
    }
    let record = responder.stop().unwrap();
    let [at, length] = record.stall_secs.unwrap();
    assert!(length >= 0.2, "{length}");
    let thawed_ns = ((at + length) * 1e9) as u64;
    assert_eq!(record.arrivals_ns.len(), 3);
    assert!(record.arrivals_ns[1..].iter().all(|at| *at >= thawed_ns), "{record:?}");
}

/// A responder that refuses for `length`, once two clients have asked; both have.
fn refusing(length: Duration) -> Responder {
    let refusal = Some(Refusal { clients: 2, length });
    let options = Options { refusal, keys_per_client: Some(1000), ..Options::default() };
    let responder = Responder::start(options, None).unwrap();
    let mut first = connect(&responder);
    ask(&mut first, "k_0");
    assert!(first.read(&mut [0; 1024]).unwrap() > 0);
    let mut second = connect(&responder);
    ask(&mut second, "k_1000");
    assert_eq!(hear(&mut second, PATIENCE), (String::new(), "reset"));
    responder
}

#[test]
fn a_responder_that_refuses_does_not_listen() {
    let responder = refusing(PATIENCE);
    let refused = TcpStream::connect(responder.address).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_responder_that_refused_knows_how_often() {
    let responder = refusing(Duration::from_millis(10));
    let mut again = None;
    until("it listens again", || {
        again = TcpStream::connect(responder.address).ok();
        again.is_some()
    });
    // Three of the second client's requests were made while nobody listened.
    let mut again = again.unwrap();
    ask(&mut again, "k_1004");
    assert!(again.read(&mut [0; 1024]).unwrap() > 0);
    let record = responder.stop().unwrap();
    assert_eq!((record.requests, record.refused), (3, 3));
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

fn only(report: &SelftestReport) -> &AccuracyCheck {
    assert_eq!(report.checks.len(), 1);
    &report.checks[0]
}

/// The check with these flags; again where other tests keep the machine too busy for it.
fn checked(flags: &[&str], is_done: impl Fn(&AccuracyCheck) -> bool) -> AccuracyCheck {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let check = only(&selftest(flags)).clone();
        if is_done(&check) {
            return check;
        }
        assert!(Instant::now() < deadline, "{}: not checked: {}", check.name, check.measured);
    }
}

#[test]
fn the_load_generator_classifies_every_fault() {
    let check = checked(&["--checks", "faults"], |check| check.outcome != CheckOutcome::NotChecked);
    assert_eq!(check.outcome, CheckOutcome::Pass, "{}", check.measured);
    assert_eq!((check.figures["misclassified_count"], check.figures["tries"]), (0.0, 1.0));
    assert_eq!(check.figures["good_said_count"], check.figures["good_count"]);
    assert!(check.figures["faults_count"] > 2000.0);
    assert!(check.figures["refused_count"] > 0.0);
}

#[test]
fn it_does_so_over_tls_and_over_http2() {
    for flags in [&["--tls"][..], &["--http2"], &["--tls", "--http2"]] {
        let all = [&["--checks", "faults"], flags].concat();
        let check = checked(&all, |check| check.outcome != CheckOutcome::NotChecked);
        assert_eq!(check.outcome, CheckOutcome::Pass, "{flags:?}: {}", check.measured);
        assert!(check.figures["faults_count"] > 2000.0 && check.figures["refused_count"] > 0.0, "{flags:?}");
        let resets = check.figures.get("stream_reset_count").copied();
        assert_eq!(resets, flags.contains(&"--http2").then_some(216.0), "{flags:?}");
    }
}

#[test]
fn every_check_is_a_line_with_what_was_measured_and_its_bound() {
    every_check_is_a_line(&[]);
}

#[test]
fn the_same_checks_are_made_over_http2_in_tls() {
    every_check_is_a_line(&["--tls", "--http2"]);
}

/// Whether checks of times pass depends on what else the machine does now; that they are made and reported does not.
fn every_check_is_a_line(flags: &[&str]) {
    let output = weir().args(["selftest", "--short"]).args(flags).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    for row in CHECKS {
        let line = lines.next().unwrap();
        let outcome = line.strip_prefix(row.name).unwrap().trim_start();
        assert!(line.contains("; bound: "), "{line}");
        let reason = outcome.strip_prefix("not checked").and_then(|at_try| Some(at_try.split_once(": ")?.1));
        assert!(outcome.starts_with("pass") || outcome.starts_with("fail") || reason.is_some(), "{line}");
        // All that a slow machine may be the reason of.
        let slow = [
            "out of time",
            "the test server's utilization",
            "the test server rec",
            "the test server never froze",
            "this machine",
        ];
        assert!(reason.is_none_or(|reason| slow.iter().any(|may| reason.starts_with(may))), "{line}");
    }
    let last = lines.next().unwrap();
    assert!(last.contains(&format!(" of {} checks passed", CHECKS.len())), "{last}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let failed = text.lines().any(|line| line.contains(" fail"));
    let unchecked = text.contains("not checked");
    assert_eq!(output.status.success(), !failed && !unchecked);
    assert_eq!(
        (stderr.contains("checks that fail"), stderr.contains("not checked")),
        (failed, unchecked),
        "{stderr}"
    );
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

/// The check called so, of such a generator; `check` may have flags behind it.
fn through(check: &str, figure: &str, words: &str, script: &str) -> AccuracyCheck {
    let directory = tempfile::tempdir().unwrap();
    let wrapper = wrapper(&directory, words, script);
    let words: Vec<&str> = check.split(' ').collect();
    checked(&[&["--load", wrapper.to_str().unwrap(), "--checks"], &words[..]].concat(), |check| {
        check.figures.contains_key(figure)
    })
}

const NO_WORDS: &str = "'') : ";

/// A lie of a load generator: what it says, how it does that ([`wrapper`]), and what the figure that shows it is at least,
/// on a busy machine too.
struct Lie {
    about: &'static str,
    words: &'static str,
    script: &'static str,
    figure: &'static str,
    least: f64,
}

/// One in the report alone: the generator gets its own flags.
const fn lie(about: &'static str, script: &'static str, figure: &'static str, least: f64) -> Lie {
    Lie { about, words: NO_WORDS, script, figure, least }
}

/// Asserts that `check` catches all `lies`, and gives what it says of each.
fn catches(check: &str, lies: &[Lie]) -> Vec<AccuracyCheck> {
    let catch = |Lie { about, words, script, figure, least }: &Lie| {
        let caught = through(check, figure, words, script);
        assert_ne!(caught.outcome, CheckOutcome::Pass, "{about}: {check} {}", caught.measured);
        let said = caught.figures[*figure];
        assert!(said.abs() >= *least, "{about}: {figure} {said}");
        caught
    };
    lies.iter().map(catch).collect()
}

#[test]
fn a_generator_that_lies_about_latency_is_caught() {
    let error = "error_10ms_us";
    let whole_ms = r#"s/"us_(p50|mean)":[0-9.]+/"us_\1":0.0/g"#;
    let constant = r#"s/"us_(p50|mean)":([0-9])/"us_\1":9\2/g"#;
    let lies = [
        lie("latencies in whole milliseconds", whole_ms, error, 5000.0),
        lie("a constant that nobody sees", constant, error, 500_000.0),
    ];
    catches("delay", &lies);
}

#[test]
fn a_generator_that_leaves_out_a_stall_is_caught() {
    let from_send = r#"s/"all":\[.*"service":(\[(\[[^]]*\],?)*\])/"all":\1,"service":\1/"#;
    let p99 = r#"s/"us_p99":[0-9.]+/"us_p99":1000.0/g"#;
    let lies = [
        lie("latencies from the sending", from_send, "delayed_1_clients", 1.0),
        lie("percentiles that are not those of the histogram", p99, "percentile_off_share_1_clients", 0.5),
    ];
    let caught = catches("stall", &lies);
    let delayed = |check: &AccuracyCheck| {
        ["delayed_1_clients", "uncorrected_delayed_1_clients"].map(|figure| check.figures[figure])
    };
    let [corrected, uncorrected] = delayed(&caught[0]);
    assert_eq!(corrected, uncorrected, "{}", caught[0].measured);
    // The other leaves the histograms alone: requests that waited before they were sent are among the delayed.
    let [corrected, uncorrected] = delayed(&caught[1]);
    assert!(corrected > uncorrected, "{}", caught[1].measured);
    // Also of one that lasts to the end of the window, where some of what is delayed has not ended.
    let honest = through("stall", "delayed_1_clients_at_end", NO_WORDS, "");
    assert!(!honest.measured.contains("disagree with the histogram"), "{}", honest.measured);
}

#[test]
fn a_generator_that_lies_about_its_rate_is_caught() {
    let attempts = r#"s/"attempts":([0-9]+),"successes"/"attempts":9\1,"successes"/"#;
    let rate = lie("another rate than was asked for", "", "low_due_off_count", 3.0);
    let lies = [
        lie("requests that were never made", attempts, "low_said", 80_000.0),
        Lie { words: "1000) word=1002", ..rate },
    ];
    let caught = catches("rate", &lies);
    // The first kept the rate.
    assert_eq!(caught[0].figures["low_due_off_count"], 0.0, "{}", caught[0].measured);
}

#[test]
fn a_generator_that_misnames_faults_is_caught() {
    let misnames = |about, script, least| lie(about, script, "misclassified_count", least);
    let swapped = r#"s/"slow_body":/"x":/;s/"timeout":/"slow_body":/;s/"x":/"timeout":/"#;
    let lies = [
        misnames("no class for 429", r#"s/"http_429":[0-9]+,//"#, 200.0),
        misnames("time-outs as resets", r#"s/"timeout":/"aborted":/"#, 7.0),
        misnames("two classes that changed places", swapped, 2.0),
    ];
    catches("faults", &lies);
    let resets =
        misnames("streams that were reset as connections", r#"s/"stream_reset":/"aborted":/"#, 216.0);
    catches("faults --http2", &[resets]);
    let honest = through("faults", "misclassified_count", NO_WORDS, "");
    assert_ne!(honest.outcome, CheckOutcome::Fail, "{}", honest.measured);
}

#[test]
fn what_cannot_be_run_is_not_checked() {
    let report = selftest(&["--checks", "faults", "--load", "/nowhere/at/all"]);
    let check = only(&report);
    assert_eq!((check.name.as_str(), check.outcome), ("faults", CheckOutcome::NotChecked));
    assert!(check.measured.starts_with("cannot start /nowhere/at/all"), "{}", check.measured);
    let output = weir().args(["selftest", "--checks", "speed"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(CHECKS.iter().all(|row| stderr.contains(row.name)), "{stderr}");
    for cores in ["99999999999,0", "5000000,5000000"] {
        let output = weir().args(["selftest", "--cores", cores]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{cores}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("may not run on core") && stderr.lines().count() == 1, "{stderr}");
    }
}
