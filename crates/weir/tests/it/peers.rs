//! Several targets in turns, from outside: models, command lines, real peers, and a disk that was made slower.

use crate::support::weir;
use lab_data::results::Results;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const HEAD: &str = "name = \"turns\"\nselftest = false\nheadroom = false\ntitle = \"Several targets\"\nlevels = [1, 4]\nrepetitions = 3\n\
                    warmup = \"50ms\"\nwindow = \"200ms\"\n";

/// Runs `weir lab` on the experiment `text`, with its results in `dir/out`.
fn lab(dir: &Path, text: &str, flags: &[&str]) -> (Output, PathBuf) {
    let file = dir.join("experiment.toml");
    fs::write(&file, text).unwrap();
    lab_of(dir, &file, flags)
}

fn lab_of(dir: &Path, file: &Path, flags: &[&str]) -> (Output, PathBuf) {
    let out = dir.join("out");
    let output = weir().arg("lab").arg(file).arg("--out").arg(&out).args(flags).output().unwrap();
    (output, out)
}

fn results(out: &Path, target: &str) -> Results {
    serde_json::from_slice(&fs::read(out.join(target).join("results.json")).unwrap()).unwrap()
}

/// What it said on standard error.
fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Two models, of which the second takes twice as long.
fn models() -> String {
    let model = |name: &str, demand: &str, more: &str| {
        format!(
            "[[target]]\nname = \"{name}\"\nkind = \"simulated\"\n{more}\
             [[target.station]]\nname = \"cpu\"\nservers = 1\ndemand = \"{demand}\"\n"
        )
    };
    let slow = model("slow", "2ms", "workloads = [\"put\"]\ndurability = \"by post\"\n");
    let workloads = "[[workload]]\nname = \"get\"\nworkload = \"get_popular\"\n\
                     [[workload]]\nname = \"put\"\nworkload = \"put_all\"\n";
    format!("{HEAD}{}{slow}{workloads}", model("fast", "1ms", "")).replace("200ms", "4s")
}

#[test]
fn each_of_several_targets_has_its_own_results_and_report() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), &models(), &[]);
    assert!(output.status.success(), "{}", complaint(&output));
    let (fast, slow) = (results(&out, "fast"), results(&out, "slow"));
    assert_eq!((fast.trials.len(), slow.trials.len()), (12, 6));
    let measured = slow.measured.unwrap();
    assert_eq!((&*measured.target, &*measured.durability), ("slow", "by post"));
    assert_eq!(measured.among, ["fast", "slow"]);
    assert_eq!(slow.workloads.iter().map(|of| &*of.name).collect::<Vec<_>>(), ["put"]);
    assert_eq!(slow.experiment_toml, models(), "each can be repeated from its results alone");
    assert!(out.join("slow/report.html").exists() && !out.join("results.json").exists());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("slow:\nput ") && said.contains("slow/report.html"), "{said}");
}

#[test]
fn some_of_the_targets_can_be_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), &models(), &["--targets", "slow", "--levels", "2"]);
    assert!(output.status.success(), "{}", complaint(&output));
    assert!(!out.join("fast").exists());
    let slow = results(&out, "slow");
    assert_eq!((slow.measured.unwrap().among, slow.levels), (vec!["slow".to_owned()], vec![2]));
}

#[test]
fn targets_that_cannot_be_compared_are_measured_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let text = models().replace("name = \"fast\"", "name = \"fast\"\nworkloads = [\"get\"]");
    let (output, out) = lab(dir.path(), &text, &[]);
    let said = complaint(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no comparison: "), "{said}");
    assert!(out.join("fast/report.html").exists() && out.join("slow/report.html").exists());
}

#[test]
fn what_was_measured_before_a_target_failed_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let broken = "[[target]]\nname = \"broken\"\nkind = \"command\"\n[[target.process]]\n\
                  part = \"server\"\ncommand = [\"sh\", \"-c\", \"echo no luck; exit 3\"]\n[[workload]]";
    let (output, out) = lab(dir.path(), &models().replacen("[[workload]]", broken, 1), &[]);
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: target `broken`: server ended with exit status: 3: no luck"), "{said}");
    assert!(said.contains("ended after 6 of "), "{said}");
    assert!(out.join("fast/report.html").exists() && out.join("compare.html").exists());
}

#[test]
fn a_try_without_a_program_or_a_dialect_does_not_block_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (diary(dir.path(), "a"), diary(dir.path(), "b"));
    let text = |second: &str| format!("{HEAD}{first}{second}[[workload]]\nname = \"get_popular\"\n");
    let dialect = second.replacen("ready", "load = [\"--dialect\", \"klingon\"]\nready", 1);
    let flags = ["--levels", "1", "--repetitions", "1"];
    for (wrong, code, why) in [
        (second.replace("\"sh\"", "\"no-such-shell\""), 1, "target `b`: there is no program no-such-shell"),
        (dialect, 2, "expected one of: weir, fixed, "),
    ] {
        let (output, _) = lab(dir.path(), &text(&wrong), &flags);
        let said = complaint(&output);
        assert!(output.status.code() == Some(code) && said.contains(why), "{said}");
    }
    let (output, _) = lab(dir.path(), &text(&second), &flags);
    assert!(output.status.success(), "{}", complaint(&output));
}

#[test]
fn a_target_can_be_started_anew_for_each_trial() {
    let dir = tempfile::tempdir().unwrap();
    let target = diary(dir.path(), "a").replacen("ready", "fresh = \"trial\"\nready", 1);
    let text = format!("{HEAD}{target}[[workload]]\nname = \"get_popular\"\n");
    let (output, _) = lab(dir.path(), &text, &["--repetitions", "2"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let noted = fs::read_to_string(dir.path().join("diary")).unwrap();
    assert_eq!(noted, "a begins\na ends\n".repeat(4));
}

/// Every process notes its start and its end in one file; so it shows who was there when.
fn diary(dir: &Path, name: &str) -> String {
    let script = dir.join("noted.sh");
    let text = "echo \"$2 begins\" >> \"$1\"; trap 'kill $child; wait $child; echo \"$2 ends\" >> \"$1\"; exit' TERM\n\
                \"$3\" serve --store memory: --listen \"$4\" & child=$!; wait $child\n";
    fs::write(&script, text).unwrap();
    let words =
        ["sh", script.to_str().unwrap(), dir.join("diary").to_str().unwrap(), name].map(str::to_owned);
    format!(
        "[[target]]\nname = \"{name}\"\nkind = \"command\"\nready = \"/readyz\"\n[[target.process]]\n\
         part = \"server\"\ncommand = [\"{}\", \"{{weir_dir}}/weir\", \"127.0.0.1:{{port}}\"]\n",
        words.join("\", \"")
    )
}

#[test]
fn no_target_is_there_while_another_is_measured_and_none_is_always_first() {
    let dir = tempfile::tempdir().unwrap();
    let targets: String = ["a", "b", "c"].iter().map(|name| diary(dir.path(), name)).collect();
    let text = format!("{HEAD}{targets}[[workload]]\nname = \"get_popular\"\n");
    let (output, out) = lab(dir.path(), &text, &["--levels", "1"]);
    assert!(output.status.success(), "{}", complaint(&output));
    let noted = fs::read_to_string(dir.path().join("diary")).unwrap();
    let expected: String = ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
        .iter()
        .map(|name| format!("{name} begins\n{name} ends\n"))
        .collect();
    assert_eq!(noted, expected);
    let results = results(&out, "b");
    assert!(results.trials.iter().all(|trial| trial.growth("server.cpu_secs").unwrap() > 0.0));
    let fact = |name: &str| results.environment.iter().find(|(known, _)| known == name).unwrap().1.clone();
    assert!(fact("server command").ends_with("{weir_dir}/weir 127.0.0.1:{port}"), "as in the file");
    let left: Vec<_> =
        fs::read_dir(out.join("b")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("target-")), "{left:?}");
}

#[test]
fn a_target_that_cannot_be_started_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("{HEAD}{}[[workload]]\nname = \"get_popular\"\n", diary(dir.path(), "a"));
    for (from, to, why) in [
        ("\"sh\"", "\"no-such-shell\"", "target `a`: there is no program no-such-shell in PATH or /usr/sbin"),
        ("{weir_dir}/weir", "{weir_dir}/wier", "target `a`: server ended with exit status: 127: "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (output, _) = lab(dir.path(), &text.replace(from, to), &[]);
        let said = complaint(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("error: ") && last.contains(why), "{said}");
    }
}

/// A lower bound: a flush that takes 20 ms longer is in every durable write of a lone client.
#[test]
fn a_delayed_flush_is_in_every_write() {
    let dir = tempfile::tempdir().unwrap();
    let target = |store: &str| {
        format!(
            "[[target]]\nname = \"{store}\"\nkind = \"weir\"\nstore = \"{store}\"\nflush_delay = \"20ms\"\n"
        )
    };
    let targets: String = ["postgres", "file"].map(target).concat();
    let text = format!("{HEAD}{targets}[[workload]]\nname = \"put_only\"\nargs = [\"--keys\", \"100\"]\n");
    let flags = ["--levels", "1", "--repetitions", "1", "--window", "3s"];
    let (output, out) = lab(dir.path(), &text, &flags);
    assert!(output.status.success(), "{}", complaint(&output));
    for store in ["postgres", "file"] {
        let results = results(&out, store);
        let latency = &results.trials[0].load.as_ref().unwrap().latency;
        assert!(latency.count > 0 && latency.us_p50 >= 20e3, "{store}: {latency:?}");
        let (name, fact) = results.environment.last().unwrap();
        assert_eq!((&**name, fact.starts_with("20ms added")), ("flush delay", true));
    }
}

/// `cargo test` builds the examples; a single test of it does not.
fn build_floor() {
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    let dir = weir.parent().unwrap();
    if dir.join("examples/floor").exists() {
        return;
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--locked", "--offline", "--example", "floor"]);
    cargo.args(dir.ends_with("release").then_some("--release"));
    assert!(cargo.status().unwrap().success());
}

#[test]
fn the_peers_are_measured_for_real() {
    build_floor();
    let dir = tempfile::tempdir().unwrap();
    let flags = [
        "--no-selftest",
        "--no-headroom",
        "--repetitions",
        "1",
        "--levels",
        "4",
        "--warmup",
        "100ms",
        "--window",
        "600ms",
    ];
    let (output, out) = lab_of(dir.path(), Path::new("../../experiments/peers.toml"), &flags);
    assert!(output.status.success(), "{}", complaint(&output));
    for (target, workloads) in [
        ("weir", &["get_hit", "put"][..]),
        ("floor", &["get_hit"][..]),
        ("nginx", &["get_hit"][..]),
        ("webdis", &["get_hit", "put"][..]),
        ("etcd", &["get_hit", "put"][..]),
    ] {
        let results = results(&out, target);
        let mut measured: Vec<&str> = results.trials.iter().map(|trial| &*trial.workload).collect();
        measured.sort_unstable();
        assert_eq!(measured, workloads, "{target}");
        for trial in &results.trials {
            let load = trial.load.as_ref().unwrap();
            // A flush may take longer than the window where other tests write to the same disk.
            assert!(load.successes > 0 || load.in_flight_at_end > 0, "{target}: {load:?}");
            assert!(load.errors.is_empty() && load.successes == load.attempts, "{target}: {load:?}");
            assert!(trial.growth("server.cpu_secs").unwrap() > 0.0, "{target}");
        }
    }
}
