//! The five reports' experiments, on the databases they name: short, but complete.

use crate::support::{mariadb_version, postgres_version, weir};
use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};

/// Runs an experiment of `experiments/reports/` with two levels and short windows; its process, what it said, and its report.
fn measure(report: &str) -> (u32, Output, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../experiments/reports/{report}.toml"));
    let lab = weir()
        .arg("lab")
        .arg(file)
        .args([
            "--no-selftest",
            "--no-headroom",
            "--window",
            "300ms",
            "--warmup",
            "100ms",
            "--levels",
            "1,4",
            "--repetitions",
            "1",
            "--out",
        ])
        .arg(dir.path().join("out"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (pid, output) = (lab.id(), lab.wait_with_output().unwrap());
    (pid, output, fs::read_to_string(dir.path().join("out/report.md")).unwrap_or_default())
}

/// Every trial delivered numbers, the database is named as it was started, and the published rows stand beside. Gives the
/// process that measured, and the report.
fn check(report: &str, database: &str, workloads: &[&str]) -> (u32, String) {
    let (pid, output, page) = measure(report);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let trials = 2 * workloads.len();
    assert!(page.contains(&format!("{trials} trials of {trials} gave a result")), "{page}");
    assert!(page.contains(database), "{database} is not named: {page}");
    assert!(page.contains("Published beside measured"), "{page}");
    for workload in workloads {
        let title = format!("\n## {}\n", workload.replace('_', "\\_"));
        assert!(page.contains(&title), "{workload} is missing: {page}");
    }
    (pid, page)
}

#[test]
fn report_000_runs_on_a_real_postgresql() {
    check("000", &postgres_version(), &["get_popular", "put_all"]);
}

#[test]
#[ignore = "long: make test-long"]
fn report_001_runs_on_a_real_postgresql() {
    check("001", &postgres_version(), &["get_popular", "get_all", "put_all", "mixed"]);
}

#[test]
#[ignore = "long: make test-long"]
fn report_002_runs_on_a_real_postgresql() {
    check("002", &postgres_version(), &["get_popular", "put_all"]);
}

/// Its limits need control groups that we may write: elsewhere it must say so instead of measuring without them.
#[test]
#[ignore = "long: make test-long"]
fn report_003_runs_on_two_real_shards_and_a_replica_under_its_limits() {
    let may_limit = rustix::process::geteuid().is_root()
        && ["/sys/fs/cgroup/blkio/cgroup.procs", "/sys/fs/cgroup/cgroup.subtree_control"]
            .iter()
            .any(|file| fs::OpenOptions::new().append(true).open(file).is_ok());
    if !may_limit {
        let (_, output, _) = measure("003");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("remove the limits"), "{said}");
        return;
    }
    let workloads = [
        "get_popular",
        "put_all_capped",
        "put_all",
        "put_all_big_capped",
        "put_all_big",
        "put_key_1",
        "put_key_1_unbatched",
    ];
    let (pid, _) = check("003", &postgres_version(), &workloads);
    // Nothing of it stays: neither its groups nor its cap.
    let groups = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup/memory", "/sys/fs/cgroup"];
    for entry in groups.iter().filter_map(|root| fs::read_dir(root).ok()).flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        let whose = name.strip_prefix("weir-lab-").and_then(|rest| rest.split('-').next());
        assert!(whose != Some(&*pid.to_string()), "{name} stays behind");
    }
}

#[test]
#[ignore = "long: make test-long"]
fn report_004_runs_on_a_real_mariadb_and_no_write_fails() {
    let workloads =
        ["get_all", "put_all", "get_popular", "mixed", "compute_prime", "compute_hash", "compute_mixed"];
    let (_, page) = check("004", &mariadb_version(), &workloads);
    assert!(!page.contains("Failed attempts by class"), "{page}");
}
