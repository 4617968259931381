//! `weir compare` from outside: two runs, the targets of one, and what cannot be compared.

use lab_data::results::{Measured, Placement, Results};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const SIMULATED: &str = r#"
name = "targets"
title = "A server, in virtual time"
levels = [1, 8]
repetitions = 3
warmup = "100ms"
window = "1s"
seed = 1

[target]
kind = "simulated"
[[target.station]]
name = "cpu"
servers = 1
demand = "DEMAND"
service = "exponential"

[[workload]]
name = "mixed"
"#;

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().unwrap()
}

/// Measures a simulated target of this demand into `dir`, and counts its station's time as that of a server.
pub(crate) fn measured(dir: &Path, demand: &str, seed: &str) -> Results {
    let file = dir.join(format!("{demand}.toml"));
    fs::write(&file, SIMULATED.replace("DEMAND", demand)).unwrap();
    let out = dir.join(demand);
    let run = weir(&["lab", file.to_str().unwrap(), "--out", out.to_str().unwrap(), "--seed", seed]);
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let mut results: Results = serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap();
    results.started = "2026-01-02T03:04:05Z".into();
    results.placements = vec![Placement { part: "server".into(), cores: vec![0], ..Placement::default() }];
    for trial in &mut results.trials {
        for reading in [&mut trial.opened, &mut trial.closed] {
            let busy = reading.counters["station.cpu.busy_secs"];
            reading.counters.insert("server.cpu_secs".into(), busy);
        }
    }
    save(&out, &results);
    results
}

fn save(dir: &Path, results: &Results) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("results.json"), serde_json::to_vec(results).unwrap()).unwrap();
}

/// A run of several targets in `dir`, one directory each.
fn run_of(dir: &Path, targets: &[(&str, &Results)], among: &[&str]) {
    for (target, results) in targets {
        let mut results = (*results).clone();
        results.experiment_toml = String::new();
        results.measured = Some(Measured {
            target: (*target).to_owned(),
            durability: "after fdatasync".into(),
            among: among.iter().map(|name| (*name).to_owned()).collect(),
        });
        save(&dir.join(target), &results);
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn two_results_are_compared_by_their_directories_or_their_files() {
    let dir = tempfile::tempdir().unwrap();
    measured(dir.path(), "1ms", "1");
    measured(dir.path(), "2ms", "1");
    let (a, b) = (dir.path().join("1ms"), dir.path().join("2ms/results.json"));
    let text = said(&weir(&["compare", a.to_str().unwrap(), b.to_str().unwrap()]));
    // The sentence may break anywhere.
    let sentence = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        sentence.contains("B against A: goodput at 8 clients 0.") && sentence.contains("higher on A, p "),
        "{text}"
    );
    assert!(sentence.contains("; goodput 0.") && sentence.contains("higher on A at 2 of 2 levels"), "{text}");
    assert!(sentence.contains("CPU per request 2.0") || sentence.contains("CPU per request 1.9"), "{text}");
    assert!(text.contains("experiment file  ") && text.contains("Welch"), "{text}");
    assert_eq!(
        fs::read_dir(&a).unwrap().filter(|e| e.as_ref().unwrap().file_name() == "compare.md").count(),
        0
    );
}

#[test]
fn all_targets_of_a_run_are_compared_with_its_first_and_written_where_one_says() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, slow) = (measured(dir.path(), "1ms", "1"), measured(dir.path(), "2ms", "1"));
    let (run, out) = (dir.path().join("run"), dir.path().join("made/on/the/way"));
    run_of(&run, &[("slow", &slow), ("weir", &fast)], &["weir", "slow", "gone"]);
    let (run, files) = (run.to_str().unwrap(), out.to_str().unwrap());
    let text = said(&weir(&["compare", run, "--out", files]));
    assert!(
        text.contains("slow against weir: ") && text.contains("higher on slow at 2 of 2 levels"),
        "{text}"
    );
    assert!(text.contains("Targets without results: gone."), "{text}");
    assert!(text.ends_with(&format!("comparison: {}\n", out.join("compare.html").display())), "{text}");
    for name in ["compare.html", "compare.md", "compare.svg"] {
        let bytes = fs::read(out.join(name)).unwrap();
        assert!(!bytes.is_empty());
        weir(&["compare", run, "--out", files]);
        assert!(fs::read(out.join(name)).unwrap() == bytes, "{name} is not the same again");
    }
}

#[test]
fn programs_get_the_same_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, slow) = (measured(dir.path(), "1ms", "1"), measured(dir.path(), "2ms", "1"));
    run_of(dir.path().join("run").as_path(), &[("weir", &fast), ("slow", &slow)], &["weir", "slow"]);
    let json = said(&weir(&["compare", dir.path().join("run").to_str().unwrap(), "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["format"], &json["interleaved"], &json["tested"]),
        (&2.into(), &true.into(), &8.into())
    );
    let slow = &json["workloads"][0]["levels"][1]["sides"][1];
    let ratio = &slow["ratios"]["cpu_us_per_attempt"];
    assert_eq!(
        (&ratio["conclusion"], &ratio["quotient"]["method"]),
        (&"other_more".into(), &"paired".into())
    );
    assert!(slow["figures"]["cpu_us_per_attempt"]["value"].as_f64().unwrap() > 1800.0, "{slow}");
}

#[test]
fn what_cannot_be_compared_is_told_in_one_line_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let one = measured(dir.path(), "1ms", "1");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let mut other = one.clone();
    other.levels = vec![3];
    save(&dir.path().join("levels"), &other);
    run_of(&dir.path().join("lonely"), &[("weir", &one)], &["weir", "gone"]);
    run_of(&dir.path().join("mixed"), &[("weir", &one)], &["weir", "slow"]);
    other.started = "2027-01-01T00:00:00Z".into();
    run_of(&dir.path().join("mixed"), &[("slow", &other)], &["weir", "slow"]);
    fs::create_dir_all(dir.path().join("empty")).unwrap();
    fs::write(dir.path().join("no.json"), "{").unwrap();
    fs::write(dir.path().join("new.json"), "{\"format\": 99}").unwrap();
    let (a, levels, lonely, mixed) = (path("1ms"), path("levels"), path("lonely"), path("mixed"));
    fs::write(dir.path().join("bad.json"), "{}").unwrap();
    let (bad, toml) = (path("bad.json"), path("1ms.toml"));
    let (missing, empty, broken, new) = (path("missing"), path("empty"), path("no.json"), path("new.json"));
    for (args, complaint) in [
        (vec![&a, &missing], "hint: name the directory that `weir lab` wrote"),
        (vec![&missing], "hint: name the directory of a run of several targets"),
        (vec![&empty], "holds no results"),
        (vec![&a], "hint: name a second results directory"),
        (vec![&lonely], "holds the results of one target alone"),
        (vec![&mixed], "not of one run with the others"),
        (vec![&a, &broken], "ends in the middle; hint: measure again"),
        (vec![&toml, &a], "at line 2 column 2; hint: name the directory"),
        (vec![&toml], "is not JSON"),
        (vec![&bad, &a], "missing field `format`; hint: name the directory"),
        (vec![&a, &a], "the same results twice; hint: name those of another target or run"),
        (vec![&mixed, &mixed], "are in directories below it; hint: name one, as "),
        (vec![&a, &new], "has format 99"),
        (vec![&a, &levels], "no workload and level in common; hint: compare runs that"),
    ] {
        let args: Vec<&str> = ["compare"].into_iter().chain(args.into_iter().map(String::as_str)).collect();
        let output = weir(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{args:?}: {said}");
        assert!(said.contains(complaint) && said.trim_end().lines().count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn files_that_cannot_be_written_are_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    measured(dir.path(), "1ms", "1");
    measured(dir.path(), "2ms", "1");
    let (a, b) = (dir.path().join("1ms"), dir.path().join("2ms"));
    let (a, b) = (a.to_str().unwrap(), b.to_str().unwrap());
    let file = dir.path().join("1ms.toml");
    let output = weir(&["compare", a, b, "--out", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.contains("cannot make") && said.contains("hint: name a directory with --out"), "{said}");
}
