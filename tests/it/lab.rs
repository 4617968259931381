//! The lab from outside: its private PostgreSQL, and whole runs on a target of which the truth is known.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir::lab::harness::{Postgres, PostgresOptions};
use weir::lab::results::Results;
use weir::lab::{sampler, topology};

const SIMULATED: &str = r#"
name = "two-stations"
title = "A station that limits, and one that does not"
levels = [1, 2, 4, 8, 16]
repetitions = 2
warmup = "500ms"
window = "4s"

[target]
kind = "simulated"
[[target.station]]
name = "front"
servers = 1
demand = "100us"
service = "exponential"
[[target.station]]
name = "back"
servers = 1
demand = "1ms"
service = "exponential"

[[workload]]
name = "mixed"
"#;

/// Runs `weir lab` on `experiment`, with its results in `dir/out`.
fn lab(dir: &Path, experiment: &str, flags: &[&str]) -> (Output, PathBuf) {
    let (file, out) = (dir.join("experiment.toml"), dir.join("out"));
    fs::write(&file, experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.arg("lab").arg(file).arg("--out").arg(&out).args(flags).output().unwrap();
    (output, out)
}

fn results(out: &Path) -> Results {
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

#[test]
fn a_simulated_experiment_is_measured_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), SIMULATED, &["--seed", "7", "--levels", "1,8,32"]);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complained}");
    assert!(said.contains("report: "), "{said}");
    let results = results(&out);
    assert_eq!((results.seed, results.levels.as_slice()), (7, &[1, 8, 32][..]));
    assert_eq!(results.trials.len(), 6);
    assert!(results.trials.iter().all(|trial| trial.failure.is_none()));
    assert_eq!(results.experiment_toml, SIMULATED);
    assert!(results.command.starts_with("weir lab ") && results.command.ends_with("--levels 1,8,32"));
}

#[test]
fn an_earlier_runs_results_are_never_written_to() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    fs::write(dir.path().join("out/results.json"), "precious").unwrap();
    let (output, out) = lab(dir.path(), SIMULATED, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
    assert_eq!(fs::read_to_string(out.join("results.json")).unwrap(), "precious");
}

#[test]
fn what_is_wrong_with_an_experiment_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (from, to, complaint) in [
        (
            "levels = [1, 2, 4, 8, 16]",
            "levels = [2, 1]",
            "client counts must ascend from at least 1 | hint: Write levels",
        ),
        ("kind = \"simulated\"", "kind = \"url\"\nurl = \"ftp://x\"", "error"),
        ("service = \"exponential\"", "service = \"quick\"", "experiment.toml: "),
        ("window = \"4s\"", "windows = \"4s\"", "unknown field `windows`"),
    ] {
        let (output, _) = lab(dir.path(), &SIMULATED.replace(from, to), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(complaint) && said.trim_end().lines().count() == 1, "{said}");
    }
}

#[test]
fn a_target_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let start = SIMULATED.find("[target]").unwrap();
    let end = SIMULATED.find("[[workload]]").unwrap();
    let target = "[target]\nkind = \"url\"\nurl = \"http://127.0.0.1:1\"\n";
    let experiment = [&SIMULATED[..start], target, &SIMULATED[end..]].concat();
    let (output, _) = lab(dir.path(), &experiment, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("cannot reach http://127.0.0.1:1") && said.contains("hint: Start the server"),
        "{said}"
    );
}

#[test]
fn a_private_postgresql_is_pinned_survives_a_crash_and_leaves_nothing() {
    let core = topology::available().unwrap()[0];
    let settings = [("shared_buffers".to_owned(), "16MB".to_owned())].into();
    let options = PostgresOptions { cores: vec![core], settings, ..PostgresOptions::default() };
    let mut postgres = Postgres::start(options).unwrap();
    let show = |postgres: &Postgres, sql: &str| postgres.query("postgres", sql).unwrap().concat().concat();
    assert_eq!(show(&postgres, "SHOW shared_buffers"), "16MB");
    assert_eq!(show(&postgres, "SHOW fsync"), "on");

    let tree = sampler::descendants(postgres.pid().unwrap());
    assert!(tree.len() > 1, "the server has workers: {tree:?}");
    for pid in tree {
        // A worker may have ended meanwhile; those that live are pinned.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert!(allowed.is_none_or(|cores| cores.trim() == core.to_string()), "{pid}: {allowed:?}");
    }

    postgres.query("postgres", "CREATE DATABASE kept").unwrap();
    postgres.query("kept", "CREATE TABLE t AS SELECT 42 AS n").unwrap();
    let url = postgres.url_of("kept");
    postgres.kill();
    assert_eq!(postgres.pid(), None);
    assert!(postgres.query("kept", "SELECT 1").is_err());
    postgres.restart().unwrap();
    assert_eq!(postgres.url_of("kept"), url, "clients need not be told");
    assert_eq!(postgres.query("kept", "SELECT n FROM t").unwrap().concat(), ["42"]);

    let (pid, data) = (postgres.pid().unwrap(), postgres.data().to_owned());
    drop(postgres);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!data.exists());
}

#[test]
fn a_postgresql_that_cannot_start_says_why() {
    let settings = [("shared_buffers".to_owned(), "much".to_owned())].into();
    let why = Postgres::start(PostgresOptions { settings, ..PostgresOptions::default() }).unwrap_err();
    assert!(why.contains("shared_buffers") && !why.contains('\n'), "{why}");
}
