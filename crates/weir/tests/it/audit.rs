//! `weir audit` from outside: the rows that five reports printed, and tables that are none.

use std::fs;
use std::process::{Command, Output};

const PRINTED: &str = "../../experiments/reports/printed.csv";

fn audit(flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("audit").args(flags).output().unwrap()
}

#[test]
fn of_the_printed_rows_more_than_half_are_off() {
    let output = audit(&[PRINTED]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    assert_eq!(said.lines().last(), Some("36 of 61 rows deviate by more than 5 %"));
    for line in [
        "        2        18.70       136.55     2.55  +27.67 %  deviates: above N, impossible within one run",
        "consistent with whole-millisecond samples: 23, of which 20 deviate",
        "rows with clients, throughput and latency: 61; without: 4",
    ] {
        assert!(said.lines().any(|of| of == line), "{line:?} is missing in {said}");
    }
}

#[test]
fn programs_get_the_same_as_json() {
    let output = audit(&[PRINTED, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["format"], &json["off"], &json["checked"]), (&2.into(), &36.into(), &61.into()));
    let runs = &json["sweeps"][1]["findings"][0];
    assert_eq!((&runs["cause"], &runs["clients"][0]), (&"rows from different runs".into(), &2.into()));
}

#[test]
fn what_people_have_is_read_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrk = "Running 10s test @ http://a/\n  2 threads and 16 connections\n    Latency     1.00ms  100.00us   5.00ms   80.00%\n\
               Requests/sec:  16000.00\n";
    let oha = "Summary:\n  Success rate: 100.00%\n  Average: 0.0010 secs\n  Requests/sec: 16000.5\n";
    for (text, flags, off) in [
        (wrk, &[][..], "0 of 1"),
        (oha, &["--clients", "16"], "0 of 1"),
        // Half of the time between requests is nobody's latency.
        (oha, &["--clients", "32"], "1 of 1"),
        ("Users;Req/s;Mean\n16;16.000,5;1,00\n", &["--columns", "clients=Users,latency_ms=Mean"], "0 of 1"),
        ("connections\trps\tmean_ms\n16\t16,000\t1.3\n", &[], "1 of 1"),
    ] {
        let file = file("it", text);
        let output = audit(&[&[file.as_str()], flags].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        let last = format!("{off} rows deviate by more than 5 %");
        assert_eq!(
            said.lines().last(),
            Some(last.as_str()),
            "{text}{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let rounded = file("rounded", "clients,throughput_rps,latency_ms\n8,5000,2\n");
    let said = String::from_utf8(audit(&[&rounded]).stdout).unwrap();
    assert!(said.contains("+25.00 %  deviates: above N; the printed digits do not decide\n"), "{said}");
    assert!(!said.contains("impossible"), "{said}");
    // As a program writes it.
    let long = file("long", "clients,throughput_rps,latency_ms\n8,1516.7,5.2746058571428573\n");
    let said = String::from_utf8(audit(&[&long]).stdout).unwrap();
    assert!(said.contains("       5.2746 ") && !said.contains("5.27460"), "{said}");
    // An error that no row shows is the cause of nothing.
    let failed = file("failed", "clients,rps,latency_ms,success_share\n20,1000,20,0.8\n");
    let said = String::from_utf8(audit(&[&failed]).stdout).unwrap();
    assert!(said.contains("  no row deviates\n  also: consistent with errors counted as"), "{said}");
    let (one, other) = (file("one", wrk), file("other", wrk));
    let said = String::from_utf8(audit(&[&one, &other]).stdout).unwrap();
    assert_eq!(said.lines().last(), Some("0 of 2 rows deviate by more than 5 %"));
    assert!(said.starts_with("wrk\n"), "{said}");
    // A latency at one client says nothing of what others measured.
    let sweep = |name: &str, rows: &str| file(name, &format!("clients,throughput_rps,latency_ms\n{rows}"));
    let (slow, fast) =
        (sweep("slow.csv", "1,100,10\n10,1000,10\n"), sweep("fast.csv", "1,10000,0.1\n10,20000,0.5\n"));
    let said = String::from_utf8(audit(&[&slow, &fast, &one]).stdout).unwrap();
    assert!(!said.contains("Throughput is above"), "{said}");
    let headings: Vec<&str> = said.lines().filter(|line| line.ends_with(".csv") || *line == "wrk").collect();
    assert_eq!(headings, [slow.as_str(), fast.as_str(), "wrk"], "{said}");
}

#[test]
fn what_cannot_be_printed_is_a_failure() {
    for command in [&["audit", PRINTED][..], &["audit", PRINTED, "--json"], &["completions", "bash"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(command).stdout(full).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.starts_with("error: cannot write to standard output: No space left"), "{told}");
    }
}

#[test]
fn a_table_that_cannot_be_read_is_wrong_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.csv");
    let path = path.to_str().unwrap();
    for (csv, complaint) in [
        (None, "cannot read the table"),
        (
            Some("clients,speed\n"),
            "line 1: there is no column throughput_rps; hint: name the column so, or say",
        ),
        (Some("clients,throughput_rps,latency_ms\n1,fast,3\n"), "line 2, column throughput_rps: `fast`"),
        (
            Some("clients,attempts_rps,little_residual_ratio\n32,380,0\n"),
            "this is results.csv of weir, whose rows weir has checked; hint: its column little_residual_ratio",
        ),
        (
            Some("{\"servers\":1.0,\"stores\":1.0}"),
            "this JSON is no table of clients, throughput and latency; hint: name a CSV table",
        ),
        (
            Some(
                "Running 30s test @ http://a/\n  2 threads and 16 connections\n  Thread calibration: mean lat.: 1.0ms, rate \
                 sampling interval: 10ms\n    Latency     1.00ms  100.00us   5.00ms   80.00%\nRequests/sec:  2000.00\n",
            ),
            "this is of wrk2, whose latencies count from when a request was due; hint: audit what a closed loop printed, as that of wrk",
        ),
        (
            Some(
                "  * spike: Up to 2000.00 iterations/s for 1m0s over 2 stages (maxVUs: 100-500, gracefulStop: 30s)\n\
                 http_req_duration....: avg=2ms\nhttp_reqs....: 100 10/s\nvus......: 100 min=100 max=100\n",
            ),
            "this is of k6 with an arrival rate, where some VUs are idle; hint: audit what a closed loop printed",
        ),
    ] {
        if let Some(csv) = csv {
            fs::write(path, csv).unwrap();
        }
        let output = audit(&[path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{said}");
        assert!(said.contains(complaint) && said.trim_end().lines().count() == 1, "{said}");
    }
}

#[test]
fn columns_that_mean_nothing_here_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.csv");
    fs::write(&path, "clients,throughput_rps,latency_us,p95_ms\n1,1000,1000,3\n").unwrap();
    let said = String::from_utf8(audit(&[path.to_str().unwrap()]).stdout).unwrap();
    assert!(said.contains("columns not used: p95_ms"), "{said}");
    assert_eq!(said.lines().last(), Some("0 of 1 rows deviate by more than 5 %"));
}
