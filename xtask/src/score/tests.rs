//! Scores of simulated targets, whose limits are known, and of verdicts that were made up.

use super::judge::{Outcome, Tally, is_right, tally, verdict};
use super::truth::{Case, LimitVerdict, Split};
use super::*;
use lab_analysis::{Bottleneck, Evidence, Grade, findings};
use lab_data::results::{Limit, Measured, Resource, ResourceKind};
use lab_data::simulated::tests::{model, sweep};
use std::path::Path;

const LEVELS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// Results of a simulated target in which each station is a limit of that name.
fn target(name: &str, stations: &str, limits: &[(&str, Limit)]) -> Results {
    let mut results = sweep(&model(stations), &["w"], LEVELS, 1, "2s");
    for resource in &mut results.resources {
        resource.limit = limits.iter().find(|(name, _)| *name == resource.name).map(|(_, limit)| *limit);
    }
    results.measured =
        Some(Measured { target: name.into(), durability: String::new(), among: vec![name.into()] });
    results
}

/// As experiment files write it.
fn parsed(text: &str) -> LimitVerdict {
    LimitVerdict::try_from(text.to_owned()).unwrap()
}

fn imposed(target: &str, expect: &str, split: Split, reference: Option<&str>) -> Case {
    Case {
        target: target.into(),
        workload: None,
        expect: parsed(expect),
        severity: "2ms".into(),
        split,
        reference: reference.map(Into::into),
    }
}

const BOTH: &[(&str, Limit)] = &[("cpu", Limit::ServerCpu), ("lock", Limit::ServerLock)];

/// A run with a case for every outcome.
fn scored() -> Vec<judge::Case> {
    let mut refused = target("refused", "cpu 1 =1ms", BOTH);
    for trial in &mut refused.trials {
        (trial.load, trial.failure) = (None, Some("not imposed: no control groups here".into()));
    }
    let mut dark = target("dark", "cpu 1 =2ms, net 0 =2ms", BOTH);
    dark.resources.clear();
    judge(&[Run {
        name: "truth".into(),
        cases: vec![
            imposed("cpu", "server CPU", Split::HeldOut, Some("plain")),
            imposed("lock", "server CPU", Split::HeldOut, Some("plain")),
            imposed("delay", "none", Split::HeldOut, None),
            imposed("lock", "server lock", Split::Tune, Some("plain")),
            imposed("dark", "network", Split::Tune, Some("plain")),
            imposed("plain-too", "server CPU", Split::HeldOut, Some("plain")),
            imposed("refused", "server CPU (quota)", Split::HeldOut, Some("plain")),
            imposed("forgotten", "server CPU", Split::HeldOut, Some("plain")),
            imposed("cpu", "server CPU", Split::HeldOut, Some("forgotten")),
        ],
        results: vec![
            target("plain", "cpu 1 =0.5ms, lock 1 =0.2ms, net 0 =2ms", BOTH),
            target("plain-too", "cpu 1 =0.5ms, lock 1 =0.2ms, net 0 =2ms", BOTH),
            target("cpu", "cpu 1 =2ms, lock 1 =0.2ms, net 0 =2ms", BOTH),
            target("lock", "cpu 1 =0.5ms, lock 1 =2ms, net 0 =2ms", BOTH),
            target("delay", "cpu 1 =50us, net 0 =200ms", BOTH),
            refused,
            dark,
        ],
    }])
}

#[test]
fn every_case_is_right_wrong_silent_or_left_out_with_its_reason() {
    let cases = scored();
    let outcomes: Vec<(Outcome, &str)> = cases.iter().map(|case| (case.outcome, &*case.why)).collect();
    assert_eq!(
        outcomes,
        [
            (Outcome::Right, ""),
            (Outcome::Wrong, ""),
            (Outcome::Right, ""),
            (Outcome::Right, ""),
            (Outcome::NoAnswer, ""),
            (Outcome::Discarded, "no effect: without the imposed limit goodput is 1.00 × as high, not 1.3 ×"),
            (Outcome::NotImposed, "no control groups here"),
            (Outcome::Discarded, "it did not run"),
            (Outcome::Discarded, "`forgotten`, without the imposed limit, did not run"),
        ]
    );
    assert_eq!(cases[1].said, Some(parsed("server lock")));
    assert!((cases[0].binding.unwrap() / 4.0 - 1.0).abs() < 0.02);
    let held_out = tally(&cases, Split::HeldOut, judge::Case::is_right);
    assert_eq!((held_out.cases, held_out.right, held_out.abstained), (3, 2, 0));
    let Tally { cases: counted, right, abstained, .. } = tally(&cases, Split::Tune, judge::Case::is_right);
    assert_eq!((counted, right, abstained), (2, 1, 1));
}

#[test]
fn a_held_out_share_below_the_goal_is_a_shortcoming() {
    assert_eq!(shortcomings(&scored()), ["2 of 3 held-out cases right, fewer than 90 %"]);
    assert_eq!(shortcomings(&[]), ["no held-out case was scored"]);
}

#[test]
fn a_wrong_verdict_that_was_confirmed_is_a_shortcoming_however_many_are_right() {
    let mut cases = scored();
    cases[1].grade = Some(Grade::Confirmed);
    assert_eq!(cases.iter().filter(|case| case.is_confirmed_and_wrong()).count(), 1);
    assert_eq!(shortcomings(&cases)[0], "1 confirmed and wrong");
}

/// The disk of report 000: busy from the first client on, and named by whoever looks at utilizations alone.
#[test]
fn the_highest_utilization_falls_for_a_busy_disk() {
    let mut results = target("lock", "cpu 1 =0.5ms, lock 1 =2ms, net 0 =2ms", BOTH);
    results.resources.push(Resource {
        name: "disk vda".into(),
        busy: vec!["disk.vda.busy_secs".into()],
        servers: 1.0,
        kind: ResourceKind::Indication,
        ..Default::default()
    });
    for trial in &mut results.trials {
        trial.opened.counters.insert("disk.vda.busy_secs".into(), 0.0);
        trial.closed.counters.insert("disk.vda.busy_secs".into(), 1.001 * trial.elapsed_secs);
    }
    let case = |expect: &str| Run {
        name: "truth".into(),
        cases: vec![imposed("lock", expect, Split::HeldOut, None)],
        results: vec![results.clone()],
    };
    let lock = judge(&[case("server lock")]);
    assert_eq!(lock[0].outcome, Outcome::Right);
    assert_eq!(lock[0].baseline.as_ref().unwrap().resource, "disk vda");
    let right = |cases: &[judge::Case]| {
        let right = |is_right| tally(cases, Split::HeldOut, is_right).right;
        (right(judge::Case::is_right), right(judge::Case::is_baseline_right))
    };
    assert_eq!(right(&lock), (1, 0));
    // In its favour: of what a disk can be short of, it need not say which.
    assert_eq!(right(&judge(&[case("commit path")])).1, 1);
}

#[test]
fn a_verdict_is_right_only_if_it_says_what_was_imposed() {
    let said = |grade: Grade, limits: &[Limit]| {
        let results = target("x", "cpu 1 =1ms, lock 1 =1ms", BOTH);
        let found = findings(&results).workloads.remove(0).bottleneck;
        let evidence = found.named[0].clone();
        let named = limits.iter().map(|limit| Evidence { limit: Some(*limit), ..evidence.clone() });
        verdict(&Bottleneck { grade, named: named.collect(), ..found })
    };
    let (cpu, lock, pool) = (Limit::ServerCpu, Limit::ServerLock, Limit::Pool);
    for (expected, said, right) in [
        ("server CPU", said(Grade::Confirmed, &[cpu]), true),
        ("server CPU", said(Grade::Supported, &[cpu, cpu]), true),
        ("server CPU", said(Grade::Supported, &[cpu, lock]), false),
        ("server CPU", said(Grade::Supported, &[lock]), false),
        ("server CPU", said(Grade::Delay, &[]), false),
        ("server CPU", said(Grade::NotIdentified, &[]), false),
        ("shared: server CPU + server lock", said(Grade::Supported, &[lock, cpu]), true),
        ("shared: server CPU + server lock", said(Grade::Supported, &[lock, cpu, pool]), true),
        ("shared: server CPU + server lock", said(Grade::Supported, &[lock]), false),
        ("none", said(Grade::Delay, &[]), true),
        ("none", said(Grade::NotIdentified, &[]), true),
        ("none", said(Grade::Generator, &[]), false),
        ("none", said(Grade::Supported, &[cpu]), false),
        ("generator", said(Grade::Generator, &[Limit::Generator]), true),
        ("fast-fail", said(Grade::FastFail, &[]), true),
        ("fast-fail", said(Grade::NotIdentified, &[]), false),
    ] {
        assert_eq!(is_right(&parsed(expected), &said), right, "{expected}: {said}");
    }
}

#[test]
fn a_verdict_is_spelled_as_experiment_files_write_it() {
    for text in ["server CPU", "none", "fast-fail", "generator", "shared: server workers + connection pool"] {
        assert_eq!(parsed(text).to_string(), text);
    }
    assert_eq!(LimitVerdict::Limits([].into()).to_string(), "not identified");
}

#[test]
fn the_page_says_how_many_were_right_and_lists_what_does_not_count() {
    let cases = scored();
    let page = page::page(&cases);
    for said in [
        "| held-out | the lab | 2 | 3 |",
        "no effect: without the imposed limit goodput is 1.00 × as high, not 1.3 ×",
        "truth, refused (2ms): no control groups here",
    ] {
        assert!(page.contains(said), "{said}\n{page}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| truth |"));
    assert_eq!(rows.count(), cases.len());
}

const FILE: &str = r#"
name = "models"
title = "Two models"
levels = [1, 2, 4, 8, 16, 32]
repetitions = 1
warmup = "500ms"
window = "2s"
[[workload]]
name = "w"
[[target]]
name = "free"
kind = "simulated"
[[target.station]]
name = "cpu"
servers = 1
demand = "1ms"
[[target]]
name = "slow"
kind = "simulated"
[[target.station]]
name = "cpu"
servers = 1
demand = "4ms"
[[truth.case]]
target = "slow"
expect = "other"
severity = "4ms"
split = "held-out"
reference = "free"
"#;

fn save(dir: &Path, name: &str, stations: &str, toml: &str) {
    let mut results = sweep(&model(stations), &["w"], &[1, 2, 4, 8, 16, 32], 1, "2s");
    results.experiment_toml = toml.to_owned();
    results.measured = Some(Measured { target: name.into(), durability: String::new(), among: Vec::new() });
    let dir = dir.join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("results.json"), serde_json::to_vec(&results).unwrap()).unwrap();
}

fn args(dir: &Path) -> Args {
    Args { dirs: vec![dir.to_owned()], markdown: Some(dir.join("score.md")) }
}

#[test]
fn results_of_one_run_are_found_at_any_depth_and_scored_together() {
    let dir = tempfile::tempdir().unwrap();
    let run_dir = dir.path().join("truth/models");
    save(&run_dir, "free", "cpu 1 =1ms, net 0 =2ms", FILE);
    save(&run_dir, "slow", "cpu 1 =4ms, net 0 =2ms", FILE);
    let without = FILE.split("[[truth.case]]").next().unwrap();
    let older = format!("no_longer_known = 1\n{without}");
    save(&dir.path().join("others"), "slow", "cpu 1 =4ms", without);
    save(&dir.path().join("older"), "slow", "cpu 1 =4ms", &older);
    run(&args(dir.path())).unwrap();
    let told = fs::read_to_string(dir.path().join("score.md")).unwrap();
    assert!(told.contains("| held-out | the lab | 1 | 1 |"), "{told}");
}

#[test]
fn too_few_right_ones_fail_and_no_cases_are_the_callers_mistake() {
    let dir = tempfile::tempdir().unwrap();
    save(dir.path(), "free", "cpu 1 =1ms, net 0 =2ms", &FILE.replace("\"other\"", "\"commit path\""));
    save(dir.path(), "slow", "cpu 1 =4ms, net 0 =2ms", &FILE.replace("\"other\"", "\"commit path\""));
    let failure = run(&args(dir.path())).unwrap_err();
    assert_eq!(
        (failure.is_input(), failure.to_string().as_str()),
        (false, "0 of 1 held-out cases right, fewer than 90 %")
    );
    let empty = tempfile::tempdir().unwrap();
    let failure = run(&args(empty.path())).unwrap_err();
    assert!(failure.is_input() && failure.to_string().starts_with("no results with a known limit below"));
}
