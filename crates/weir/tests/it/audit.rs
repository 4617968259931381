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
    assert_eq!(said.lines().last(), Some("36 of 61 rows off by more than 5 %"));
    for line in [
        "        2        18.70       136.55     2.55  +27.67 %  off: above N, impossible within one run",
        "consistent with whole-millisecond samples: 23, of which 20 off",
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
fn a_table_that_cannot_be_read_is_wrong_input() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("table.csv");
    let path = path.to_str().unwrap();
    for (csv, complaint) in [
        (None, "cannot read the table"),
        (Some("clients,rps\n"), "line 1: there is no column throughput_rps; hint: name the column so"),
        (Some("clients,throughput_rps,latency_ms\n1,fast,3\n"), "line 2, column throughput_rps: `fast`"),
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
    assert_eq!(said.lines().last(), Some("0 of 1 rows off by more than 5 %"));
}
