//! The check and the time series of runs whose seconds are known.

use crate::checks::{Checked, Outcome};
use crate::findings;
use kv::proto::{Bins, ScheduleReport, SecondReport};
use lab_data::results::Results;
use lab_data::simulated::tests::{model, sweep};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// So many bins of about 1000 that spread evenly over this share of it.
fn noisy(bins: usize, share: f64) -> Vec<f64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut even = || f64::from(random.next_u32()) / f64::from(u32::MAX) - 0.5;
    (0..bins).map(|_| 1000.0 * (1.0 + share * even())).collect()
}

/// A sweep in windows of 30 s whose goodput and latency change as `change` says for a second of a repetition.
fn swept(change: impl Fn(u32, usize) -> f64) -> Results {
    let mut results = sweep(&model("cpu 1 =10ms"), &["w"], &[1, 4], 2, "30s");
    for trial in &mut results.trials {
        let load = trial.load.as_mut().unwrap();
        for (i, second) in load.seconds.iter_mut().enumerate() {
            let times = change(trial.repetition, i);
            second.successes = (second.successes as f64 * times) as u64;
            second.latency_us_mean /= times;
        }
    }
    results
}

/// What the check says of four clients.
fn check(results: &Results) -> Checked {
    let row = &findings(results).workloads[0].rows[1];
    assert!(row.usable(), "it is marked, not thrown away");
    row.checks.iter().find(|of| of.id == "steady").unwrap().clone()
}

/// What was seen and what to do, where it fails.
fn failed(results: &Results) -> (String, String) {
    let Checked { outcome: Outcome::Fail, seen, remedy, .. } = check(results) else { panic!() };
    (seen, remedy)
}

#[test]
fn the_worst_run_of_a_row_decides_and_the_row_is_marked_not_thrown_away() {
    assert_eq!(check(&swept(|_, _| 1.0)).outcome, Outcome::Pass);
    let results = swept(|run, second| if run == 1 && second >= 20 { 0.8 } else { 1.0 });
    let (why, remedy) = failed(&results);
    assert_eq!(why, "goodput from second 21 to 30 of 30 lies 14.3 % below the mean");
    assert!(remedy.contains("--window 120s"), "{remedy}");
    // That run is the one whose time series is shown.
    let series = findings(&results).workloads[0].time_series.clone().unwrap();
    assert_eq!((series.repetition, series.goodput_rps.len(), series.cut_secs), (1, 30, 0.0));
    assert_eq!(series.said, format!("Not steady: {why}."));
}

#[test]
fn a_warm_up_in_the_window_fails_only_if_it_moves_a_mean() {
    let (why, remedy) = failed(&swept(|_, second| if second < 6 { 0.7 } else { 1.0 }));
    assert_eq!(
        why,
        "the first 6 of 30 s still belong to the warm-up, and change goodput by -6.0 % on average"
    );
    assert!(remedy.contains("s or more (--warmup"), "{remedy}");
    // Also where the rest is too noisy to be known well.
    let noise = noisy(30, 0.1);
    let warming = |second: usize| if second < 6 { 0.5 } else { 1.0 };
    let (why, _) = failed(&swept(|_, second| noise[second] / 1000.0 * warming(second)));
    assert!(why.starts_with("the first 6 of 30 s still belong to the warm-up"), "{why}");
    // A twentieth off for one second moves the mean by less than it is known to.
    let results = swept(|_, second| if second < 1 { 0.95 } else { 1.0 });
    assert_eq!(check(&results).outcome, Outcome::Pass);
    assert_eq!(findings(&results).workloads[0].time_series.as_ref().unwrap().cut_secs, 1.0);
}

#[test]
fn noise_in_the_window_is_no_failure_but_says_how_long_it_should_be() {
    let noise = noisy(30, 0.2);
    let Checked { outcome: Outcome::NotChecked, seen, .. } =
        check(&swept(|_, second| noise[second] / 1000.0))
    else {
        panic!()
    };
    assert!(seen.contains("goodput is known to ±") && seen.contains("takes a window of about"), "{seen}");
}

#[test]
fn the_goodput_of_an_open_loop_may_be_as_uneven_as_its_arrivals() {
    let noise = noisy(30, 0.2);
    let mut results = swept(|_, _| 1.0);
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        load.schedule = Some(ScheduleReport::default());
        load.seconds.iter_mut().zip(&noise).for_each(|(second, noise)| second.successes = *noise as u64);
    }
    assert_eq!(check(&results).outcome, Outcome::Pass);
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        load.seconds.iter_mut().skip(24).for_each(|second| second.latency_us_mean *= 1.5);
    }
    let (why, _) = failed(&results);
    assert!(why.starts_with("mean latency "), "{why}");
}

#[test]
fn seconds_in_which_nothing_ended_have_no_latency_of_zero() {
    let mut results = swept(|_, _| 1.0);
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        load.seconds[12] = SecondReport::default();
    }
    let (why, _) = failed(&results);
    assert!(why.starts_with("goodput from second 12 to 15 of 30 lies 31"), "{why}");
    let series = findings(&results).workloads[0].time_series.clone().unwrap();
    assert_eq!((series.goodput_rps[12], series.latency_us_mean[12]), (0.0, None));
    assert!(series.latency_us_mean[13].is_some());
}

/// Runs of three seconds that were told in tenths, changed as `change` says for a tenth.
fn in_tenths(change: impl Fn(usize) -> f64) -> Results {
    let mut results = sweep(&model("cpu 1 =10ms"), &["w"], &[1, 4], 2, "3s");
    let noise = noisy(30, 0.01);
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        let bin = |i: usize| {
            let successes = (noise[i] * change(i)) as u64;
            SecondReport {
                attempts: successes,
                successes,
                latency_us_mean: 1e7 / successes as f64,
                ..SecondReport::default()
            }
        };
        load.bins = Some(Bins { secs: 0.1, list: (0..30).map(bin).collect() });
    }
    results
}

#[test]
fn what_was_told_in_tenths_of_a_second_is_judged_and_shown_in_seconds() {
    let results = in_tenths(|_| 1.0);
    assert_eq!(check(&results).outcome, Outcome::Pass);
    let series = findings(&results).workloads[0].time_series.clone().unwrap();
    assert_eq!((series.bin_secs, series.goodput_rps.len()), (0.2, 15));
    assert!(series.goodput_rps.iter().all(|rps| (rps / 10_000.0 - 1.0).abs() < 0.02), "{series:?}");
    assert!(series.said.starts_with("Steady: goodput is known to ±"), "{}", series.said);

    let results = in_tenths(|tenth| if tenth < 6 { 0.7 } else { 1.0 });
    let (why, remedy) = failed(&results);
    assert_eq!(
        why,
        "the first 0.6 of 3 s still belong to the warm-up, and change goodput by -6.0 % on average"
    );
    assert!(remedy.contains("s or more (--warmup"), "{remedy}");
    let cut_secs = findings(&results).workloads[0].time_series.as_ref().unwrap().cut_secs;
    assert!((cut_secs - 0.6).abs() < 1e-9, "{cut_secs}");

    let results = in_tenths(|tenth| if (16..20).contains(&tenth) { 0.3 } else { 1.0 });
    let (why, remedy) = failed(&results);
    assert!(why.starts_with("goodput from second ") && why.contains(" of 3 lies "), "{why}");
    assert!(remedy.contains("--window 12s"), "{remedy}");
}
