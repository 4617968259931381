//! Scores of simulated targets, whose limits are known, and of verdicts that were made up.

use super::*;
use crate::bottleneck::Bottleneck;
use lab_data::results::{Limit, Measured as OfRun};
use lab_data::simulated::tests::{model, sweep};

const LEVELS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// Results of a simulated target in which each station is a limit of that name.
fn target(name: &str, stations: &str, limits: &[(&str, Limit)]) -> Results {
    let mut results = sweep(&model(stations), &["w"], LEVELS, 1, "2s");
    for resource in &mut results.resources {
        resource.limit = limits.iter().find(|(name, _)| *name == resource.name).map(|(_, limit)| *limit);
    }
    results.measured =
        Some(OfRun { target: name.into(), durability: String::new(), among: vec![name.into()] });
    results
}

/// As experiment files write it.
fn class(text: &str) -> Class {
    let limit = |name| Limit::of_name(name).unwrap();
    match text {
        "none" => Class::None,
        "fast-fail" => Class::FastFail,
        text => Class::of_limits(text.trim_start_matches("shared: ").split(" + ").map(limit)),
    }
}

fn imposed(target: &str, expect: &str, split: Split, reference: Option<&str>) -> Imposed {
    Imposed {
        target: target.into(),
        workload: None,
        expect: class(expect),
        severity: "2ms".into(),
        split,
        reference: reference.map(Into::into),
    }
}

const BOTH: &[(&str, Limit)] = &[("cpu", Limit::ServerCpu), ("lock", Limit::ServerLock)];

/// A run with a case for every outcome.
pub fn scored() -> Score {
    let mut refused = target("refused", "cpu 1 =1ms", BOTH);
    for trial in &mut refused.trials {
        (trial.load, trial.failure) = (None, Some("not imposed: no control groups here".into()));
    }
    let mut dark = target("dark", "cpu 1 =2ms, net 0 =2ms", BOTH);
    dark.resources.clear();
    score(&[Run {
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
    let score = scored();
    let outcomes: Vec<&Outcome> = score.cases.iter().map(|case| &case.outcome).collect();
    let discarded = |why: &str| Outcome::Discarded(why.to_owned());
    assert_eq!(
        outcomes,
        [
            &Outcome::Right,
            &Outcome::Wrong,
            &Outcome::Right,
            &Outcome::Right,
            &Outcome::Abstained,
            &discarded("not binding: without what was imposed goodput is 1.00 × as high, not 1.3 ×"),
            &Outcome::NotImposed("no control groups here".to_owned()),
            &discarded("it did not run"),
            &discarded("`forgotten`, without what was imposed, did not run"),
        ]
    );
    assert_eq!(score.cases[1].said, Some(class("server lock")));
    assert!((score.cases[0].binding.unwrap() / 4.0 - 1.0).abs() < 0.02);
    let Tally { cases, right, right_without_answer, abstained, .. } = score.held_out;
    assert_eq!((cases, right, abstained), (3, 2, 0));
    assert!(right_without_answer <= 1);
    assert_eq!((score.tune.cases, score.tune.right, score.tune.abstained), (2, 1, 1));
    assert_eq!(score.confusion.iter().map(|cell| cell.cases).sum::<u32>(), 5);
    assert_eq!(score.kinds(), [("truth", 4)].into());
}

#[test]
fn a_held_out_share_below_the_goal_is_a_shortcoming() {
    assert_eq!(scored().shortcomings(), ["2 of 3 held-out cases right, fewer than 90 %"]);
    assert_eq!(score(&[]).shortcomings(), ["no held-out case was scored"]);
}

#[test]
fn a_wrong_verdict_that_was_confirmed_is_a_shortcoming_however_many_are_right() {
    let mut score = scored();
    score.cases[1].grade = Some(Grade::Confirmed);
    assert_eq!(score.wrong_but_confirmed().count(), 1);
    assert_eq!(score.shortcomings()[0], "1 confirmed and wrong");
}

/// The disk of report 000: busy from the first client on, and named by whoever looks at utilizations alone.
#[test]
fn the_highest_utilization_falls_for_a_busy_disk() {
    let mut results = target("lock", "cpu 1 =0.5ms, lock 1 =2ms, net 0 =2ms", BOTH);
    results.resources.push(lab_data::results::Resource {
        name: "disk vda".into(),
        busy: vec!["disk.vda.busy_secs".into()],
        servers: 1.0,
        kind: lab_data::results::ResourceKind::Indication,
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
    let score_of = |expect: &str| score(&[case(expect)]);
    let lock = score_of("server lock");
    assert_eq!(lock.cases[0].outcome, Outcome::Right);
    assert_eq!(lock.cases[0].baseline.as_ref().unwrap().resource, "disk vda");
    assert_eq!((lock.held_out.right, lock.baseline_held_out.right), (1, 0));
    // In its favour: of what a disk can be short of, it need not say which.
    assert_eq!(score_of("commit path").baseline_held_out.right, 1);
}

#[test]
fn a_verdict_is_right_only_if_it_says_what_was_imposed() {
    let verdict = |grade: Grade, limits: &[Limit]| {
        let results = target("x", "cpu 1 =1ms, lock 1 =1ms", BOTH);
        let found = findings(&results).workloads.remove(0).bottleneck;
        let evidence = found.named[0].clone();
        let named =
            limits.iter().map(|limit| super::super::Evidence { limit: Some(*limit), ..evidence.clone() });
        Class::said(&Bottleneck { grade, named: named.collect(), ..found })
    };
    let (cpu, lock, pool) = (Limit::ServerCpu, Limit::ServerLock, Limit::Pool);
    for (expected, said, right) in [
        ("server CPU", verdict(Grade::Confirmed, &[cpu]), true),
        ("server CPU", verdict(Grade::Supported, &[cpu, cpu]), true),
        ("server CPU", verdict(Grade::Supported, &[cpu, lock]), false),
        ("server CPU", verdict(Grade::Supported, &[lock]), false),
        ("server CPU", verdict(Grade::Delay, &[]), false),
        ("server CPU", verdict(Grade::NotIdentified, &[]), false),
        ("shared: server CPU + server lock", verdict(Grade::Supported, &[lock, cpu]), true),
        ("shared: server CPU + server lock", verdict(Grade::Supported, &[lock, cpu, pool]), true),
        ("shared: server CPU + server lock", verdict(Grade::Supported, &[lock]), false),
        ("none", verdict(Grade::Delay, &[]), true),
        ("none", verdict(Grade::NotIdentified, &[]), true),
        ("none", verdict(Grade::Generator, &[]), false),
        ("none", verdict(Grade::Supported, &[cpu]), false),
        ("generator", verdict(Grade::Generator, &[Limit::Generator]), true),
        ("fast-fail", verdict(Grade::FastFail, &[]), true),
        ("fast-fail", verdict(Grade::NotIdentified, &[]), false),
    ] {
        assert_eq!(class(expected).is_met_by(&said), right, "{expected}: {said}");
    }
}

/// Table values: 9 of 10 is 59.6–98.2 %, 0 of 5 is 0–43.4 %.
#[test]
fn wilsons_interval_is_his() {
    assert_eq!(wilson(0, 0), None);
    for (right, cases, low, high) in [(9, 10, 0.5958, 0.9821), (0, 5, 0.0, 0.4345), (30, 30, 0.8865, 1.0)] {
        let (l, h) = wilson(right, cases).unwrap();
        assert!((l - low).abs() < 1e-3 && (h - high).abs() < 1e-3, "{right} of {cases}: {l}–{h}");
    }
}

#[test]
fn a_class_is_spelled_as_experiment_files_write_it() {
    for text in ["server CPU", "none", "fast-fail", "generator", "shared: server workers + connection pool"] {
        assert_eq!(class(text).to_string(), text);
    }
    assert_eq!(Class::of_limits([]), Class::NotIdentified);
}
