//! Sides whose loss is known, judged.

use super::*;
use crate::compare;
use crate::compare::tests::{busy_generator, run};
use lab_data::results::Results;
use std::collections::BTreeMap;

/// Two targets of one run that took the same, each run with a noise of its own of about `noise`, at two levels.
fn pairs(repetitions: u32, noise: f64) -> Vec<Results> {
    let mut all = run(&[("base", 50), ("new", 50)], &[4, 16], repetitions);
    for (side, results) in all.iter_mut().enumerate() {
        for trial in &mut results.trials {
            // Of a sine, so that both signs are as frequent; no two runs have the same.
            let phase = f64::from(trial.repetition * 7 + trial.level) + 2.5 * side as f64;
            let load = trial.load.as_mut().unwrap();
            load.goodput_rps = 1000.0 * (1.0 + noise * phase.sin());
            (load.latency.us_p50, load.latency.us_p99) = (100.0, 500.0);
        }
    }
    all
}

fn judged(all: &[Results]) -> Gate {
    gate(&compare(&all.iter().collect::<Vec<_>>()).unwrap(), 0.05)
}

/// What is said of a figure of `get`.
fn standing(gate: &Gate, name: &str) -> Standing {
    let is_it = |of: &&Verdict| matches!(of.subject, Subject::Figure { figure, .. } if figure == name);
    gate.verdicts.iter().filter(|of| of.workload == "get").find(is_it).unwrap().standing
}

fn slower(results: &mut Results, share: f64) {
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        load.goodput_rps /= 1.0 + share;
    }
}

#[test]
fn one_figure_has_one_verdict_over_all_levels() {
    let gate = judged(&pairs(6, 0.005));
    // Four figures of two workloads.
    assert_eq!((gate.tested, gate.verdicts.len()), (8, 8));
    assert!(gate.is_decided() && gate.regressions().count() == 0, "{gate:#?}");
    assert_eq!(standing(&gate, "latency_us_p99"), Standing::WithinMargin);
}

#[test]
fn the_more_figures_share_the_five_per_cent_the_wider_each_interval_is() {
    let mut all = pairs(6, 0.005);
    let width = |all: &[Results]| {
        let first = &judged(all).verdicts[0];
        let Subject::Figure { figure: "goodput_rps", quotient, .. } = &first.subject else {
            panic!("{first:?}")
        };
        let (low, high) = quotient.interval.unwrap();
        high / low - 1.0
    };
    let of_eight = width(&all);
    all.iter_mut().for_each(|of| of.workloads.truncate(1));
    let of_four = width(&all);
    assert!(of_eight > 1.1 * of_four, "{of_eight} and {of_four}");
}

#[test]
fn a_loss_is_named_by_what_is_shown_and_what_is_excluded() {
    for (share, expected) in [
        (0.05, Standing::Regression),
        (0.30, Standing::Regression),
        (0.02, Standing::Worse),
        (-0.05, Standing::Better),
        (0.0, Standing::WithinMargin),
    ] {
        let mut all = pairs(8, 0.005);
        slower(&mut all[1], share);
        let gate = judged(&all);
        assert_eq!(standing(&gate, "goodput_rps"), expected, "{share}");
        assert_eq!(gate.regressions().count() > 0, expected == Standing::Regression, "{share}");
    }
}

#[test]
fn what_noise_hides_is_undecided_and_says_how_many_runs_it_takes() {
    let mut all = pairs(4, 0.04);
    slower(&mut all[1], 0.05);
    let before = judged(&all);
    let is_goodput = |of: &&Verdict| matches!(of.subject, Subject::Figure { figure: "goodput_rps", .. });
    let verdict = before.verdicts.iter().find(is_goodput).unwrap();
    let Subject::Figure { more_runs: Some(more), .. } = verdict.subject else { panic!("{verdict:?}") };
    assert!(
        verdict.standing == Standing::Undecided && !before.is_decided() && (2..100).contains(&more),
        "{verdict:?}"
    );
    let mut all = pairs(40, 0.04);
    slower(&mut all[1], 0.05);
    assert_eq!(standing(&judged(&all), "goodput_rps"), Standing::Regression);
}

#[test]
fn runs_that_ended_early_need_more_to_show_a_loss() {
    let mut all = pairs(8, 0.005);
    slower(&mut all[1], 0.05);
    let after = |pairs_run: u32, sequential: bool| {
        let mut all = all.clone();
        for of in &mut all {
            (of.sequential, of.repetitions) = (sequential, pairs_run);
            of.trials.retain(|trial| trial.repetition < pairs_run);
        }
        standing(&judged(&all), "goodput_rps")
    };
    assert_eq!((after(4, false), after(4, true)), (Standing::Regression, Standing::Undecided));
    assert_eq!(after(8, true), Standing::Regression);
}

#[test]
fn requests_that_fail_are_a_regression_and_a_single_glitch_is_not() {
    let fail = |results: &mut Results, repetitions: u32| {
        for trial in results.trials.iter_mut().filter(|of| of.level == 16 && of.repetition < repetitions) {
            let load = trial.load.as_mut().unwrap();
            load.successes -= load.attempts / 200;
            load.error_ratio = 0.005;
        }
    };
    let mut all = pairs(8, 0.001);
    fail(&mut all[1], 1);
    assert_eq!(judged(&all).regressions().count(), 0, "one of eight runs");
    fail(&mut all[1], 8);
    let gate = judged(&all);
    let first = gate.regressions().next().unwrap();
    let Subject::Level { error_ratios: [_, Some(share)], excluded, .. } = first.subject else {
        panic!("{first:?}")
    };
    assert!((share - 0.005).abs() < 5e-4 && excluded == Excluded::Errors, "{first:?}");
    // The other way round it is none.
    all.swap(0, 1);
    all.iter_mut().for_each(|of| of.measured.as_mut().unwrap().among.reverse());
    assert_eq!(judged(&all).regressions().count(), 0);
}

#[test]
fn of_early_failures_nothing_is_decided() {
    let mut all = pairs(2, 0.001);
    for results in &mut all {
        results.sequential = true;
    }
    for load in all[1].trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        (load.successes, load.error_ratio, load.errors) = (0, 1.0, BTreeMap::new());
    }
    assert!(!judged(&all).is_decided());
}

/// So many pairs of one workload at one level, of a run that ends when it has seen enough.
fn sequential(repetitions: u32) -> Vec<Results> {
    let mut all = pairs(repetitions, 0.001);
    for results in &mut all {
        results.sequential = true;
        results.workloads.truncate(1);
        results.levels = vec![16];
        results.trials.retain(|trial| trial.workload == "get" && trial.level == 16);
    }
    all
}

fn crash(results: &mut Results, repetitions: std::ops::Range<u32>) {
    for trial in results.trials.iter_mut().filter(|of| repetitions.contains(&of.repetition)) {
        (trial.load, trial.failure) = (None, Some("the service ended".into()));
    }
}

fn failing(results: &mut Results, shares: &[f64]) {
    for trial in &mut results.trials {
        let load = trial.load.as_mut().unwrap();
        let share = shares[trial.repetition as usize % shares.len()];
        load.attempts = 100_000;
        (load.successes, load.error_ratio) = ((100_000.0 * (1.0 - share)) as u64, share);
    }
}

fn over_capacity(results: &mut Results, repetitions: std::ops::Range<u32>) {
    for trial in results.trials.iter_mut() {
        let over_capacity = repetitions.contains(&trial.repetition);
        let schedule = kv::proto::ScheduleReport { offered_rps: 1000.0, over_capacity, ..Default::default() };
        trial.load.as_mut().unwrap().schedule = Some(schedule);
    }
}

#[test]
fn a_side_that_dies_in_each_run_is_a_regression_after_three_pairs() {
    for (pairs, expected) in [(1, Standing::Undecided), (2, Standing::Undecided), (3, Standing::Regression)] {
        let mut all = sequential(pairs);
        crash(&mut all[1], 0..pairs);
        let gate = judged(&all);
        let [Verdict { subject: Subject::Level { clients: 16, excluded, .. }, standing, .. }] =
            gate.verdicts[..]
        else {
            panic!("{gate:#?}")
        };
        assert_eq!((excluded, standing), (Excluded::NoNumbers, expected), "{pairs} pairs");
        // Nothing that was compared must not look green.
        assert_eq!(gate.says_something(), standing == Standing::Regression, "{pairs} pairs");
        let excluded = gate.not_compared.first().map(|of| (of.too_few_runs, of.excluded));
        let died = Some(Excluded::NoNumbers);
        let expected = (standing == Standing::Undecided).then_some((false, [None, died]));
        assert_eq!(excluded, expected, "{pairs} pairs");
        all.swap(0, 1);
        all.iter_mut().for_each(|of| of.measured.as_mut().unwrap().among.reverse());
        let gate = judged(&all);
        assert!(gate.verdicts.is_empty(), "a base that dies compares nothing");
        assert_eq!(gate.not_compared[0].excluded, [died, None]);
    }
}

/// With one repetition on each side, of a service that was five times slower nothing was shown, and the gate was green.
#[test]
fn of_too_few_runs_for_any_interval_nothing_is_compared() {
    for (repetitions, expected) in [(1, vec!["get", "put"]), (2, vec![])] {
        let mut all = pairs(repetitions, 0.001);
        slower(&mut all[1], 4.0);
        let gate = judged(&all);
        let named: Vec<&str> = gate.not_compared.iter().map(|of| of.workload.as_str()).collect();
        assert_eq!(named, expected, "{repetitions} repetitions: {gate:#?}");
        assert!(
            gate.not_compared.iter().all(|of| of.too_few_runs && of.excluded == [None, None]),
            "{gate:#?}"
        );
    }
    // Of pairs that end early it takes more: six, with four figures.
    let compared = |pairs| judged(&sequential(pairs)).not_compared.is_empty();
    assert_eq!((compared(5), compared(6)), (false, true));
}

/// The figures are those of the clients that were served: a service that leaves out half of them may look faster.
#[test]
fn a_side_that_leaves_clients_without_an_answer_is_a_regression() {
    let mut all = sequential(3);
    for load in all[1].trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        (load.unanswered, load.goodput_rps) = (8, 2.0 * load.goodput_rps);
    }
    let gate = judged(&all);
    let of = gate.regressions().next().unwrap();
    let Subject::Level { excluded: Excluded::Unanswered, excluded_runs: [0, 3], .. } = of.subject else {
        panic!("{of:?}")
    };
    // An open loop leaves requests that are due late, and counts them.
    over_capacity(&mut all[1], 0..0);
    assert_eq!(judged(&all).regressions().count(), 0);
}

#[test]
fn a_side_that_survives_one_run_of_ten_is_a_regression() {
    let mut all = sequential(10);
    crash(&mut all[1], 0..9);
    let gate = judged(&all);
    let of = gate.regressions().next().unwrap();
    let Subject::Level { runs: 10, excluded_runs: [0, 9], .. } = of.subject else { panic!("{of:?}") };
    // One crash is none, and hides no figure; two are not passed in silence.
    let mut all = sequential(10);
    crash(&mut all[1], 4..5);
    let gate = judged(&all);
    assert!(gate.is_decided() && gate.regressions().count() == 0, "{gate:#?}");
    assert_eq!(standing(&gate, "goodput_rps"), Standing::WithinMargin);
    crash(&mut all[1], 5..6);
    assert!(!judged(&all).is_decided());
}

#[test]
fn a_few_more_failed_requests_by_chance_are_no_regression() {
    let mut all = sequential(5);
    // Of both sides one in a thousand fails: pooled, one is just below the limit and the other just above it.
    failing(&mut all[0], &[0.0009, 0.0011, 0.0009, 0.0008, 0.0009]);
    failing(&mut all[1], &[0.0011, 0.0009, 0.0011, 0.0012, 0.0009]);
    assert_eq!(judged(&all).regressions().count(), 0);
    let mut all = sequential(8);
    failing(&mut all[1], &[0.002]);
    assert_eq!(judged(&all).regressions().count(), 1);
}

#[test]
fn one_run_over_its_capacity_decides_nothing_and_each_does() {
    let mut all = sequential(8);
    over_capacity(&mut all[0], 0..0);
    for (over, regressions) in [(0, 0), (1, 0), (2, 0), (8, 1)] {
        over_capacity(&mut all[1], 0..over);
        let gate = judged(&all);
        assert_eq!(gate.regressions().count(), regressions, "{over} of 8: {gate:#?}");
    }
}

#[test]
fn a_run_that_does_not_count_leaves_the_figures_of_the_others() {
    for side in [0, 1] {
        let mut all = sequential(12);
        failing(&mut all[1 - side], &[0.0]);
        failing(&mut all[side], &[0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let gate = judged(&all);
        assert_eq!(standing(&gate, "goodput_rps"), Standing::WithinMargin, "{side}");
        assert_eq!(gate.regressions().count(), 0, "{side}");
    }
}

#[test]
fn a_generator_at_its_limit_leaves_only_processor_time() {
    let mut all = pairs(6, 0.001);
    busy_generator(&mut all[1]);
    let gate = judged(&all);
    assert_eq!(standing(&gate, "goodput_rps"), Standing::NotComparable);
    assert_ne!(standing(&gate, "cpu_us_per_attempt"), Standing::NotComparable);
    assert!(gate.says_something());
}

#[test]
fn a_gate_of_which_nothing_is_comparable_says_nothing() {
    let mut all = pairs(6, 0.001);
    busy_generator(&mut all[1]);
    // As of a service whose processor time is not known.
    for trial in all.iter_mut().flat_map(|of| &mut of.trials) {
        for counters in [&mut trial.opened.counters, &mut trial.closed.counters] {
            counters.retain(|name, _| !name.ends_with(".cpu_secs"));
        }
    }
    for of in &mut all {
        of.workloads.retain(|workload| workload.name == "get");
        of.trials.retain(|trial| trial.workload == "get");
    }
    let gate = judged(&all);
    assert!(gate.verdicts.iter().all(|of| of.standing == Standing::NotComparable), "{gate:#?}");
    assert!(!gate.verdicts.is_empty() && !gate.says_something(), "{gate:#?}");
}
