//! Verdicts on series that are drawn, and on some that are made by hand.

use super::stop::{is_look, looks};
use super::synthetic::{KINDS, KINDS_ASKED, NOISES, WINDOWS, score, score_adaptive};
use super::window::Window;
use super::*;
use crate::{Checked, Outcome, findings};
use kv::proto::{Bins, ScheduleReport, SecondReport};
use lab_data::results::Results;
use lab_data::simulated::tests::{model, sweep};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::time::Duration;

/// Goodput and nothing else.
fn goodput(bins: &[f64]) -> Verdict {
    judge(&[Series { name: "goodput", bins, limits: GOODPUT, explained: 0.0 }])
}

/// So many bins of about 1000, changed by `change`, with a little noise.
fn drawn(bins: usize, change: impl Fn(usize) -> f64) -> Vec<f64> {
    noisy(bins, 0.01).iter().enumerate().map(|(i, bin)| bin * change(i)).collect()
}

/// So many bins of about 1000 that spread evenly over this share of it.
fn noisy(bins: usize, share: f64) -> Vec<f64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let mut even = || f64::from(random.next_u32()) / f64::from(u32::MAX) - 0.5;
    (0..bins).map(|_| 1000.0 * (1.0 + share * even())).collect()
}

/// At once, or within what may be a warm-up.
#[test]
fn what_stops_is_not_steady_however_soon_it_does() {
    for served in [1, 5, 10, 14, 20] {
        let bins = drawn(30, |i| if i < served { 1.0 } else { 0.0 });
        let verdict = goodput(&bins);
        assert!(matches!(verdict, Verdict::NotSteady { .. }), "{served} of 30: {verdict:?}");
    }
}

/// 200 series of each kind in each case. The whole table is `cargo bench --bench micro -- steady`.
#[test]
fn of_series_whose_truth_is_known_at_least_95_in_100_verdicts_are_right() {
    let [_, quiet, _, as_measured] = NOISES else { panic!() };
    let [short, usual, long] = WINDOWS else { panic!() };
    for (i, kind) in KINDS.iter().enumerate() {
        for (bins, noise) in [(short, quiet), (usual, quiet), (usual, as_measured), (long, quiet)] {
            let score = score(judge, kind, *bins, *noise, 200, 2);
            let least = if i < KINDS_ASKED { 190 } else { 180 };
            assert!(score.right >= least, "{} in {bins} bins with {noise:?}: {score:?}", kind.name);
        }
    }
}

/// Who ends as soon as an interval is narrow enough ends with those that are narrow by luck: here they still hold the mean.
#[test]
fn of_flat_series_that_end_once_they_are_known_the_interval_holds_the_mean_in_93_of_100() {
    let [flat, ..] = KINDS else { panic!() };
    for noise in NOISES {
        let score = score_adaptive(flat, (3, 60), noise.variation, 300, 4);
        assert!(score.right >= 285, "{noise:?}: {score:?}");
        assert!(score.held * 100 >= score.holdable * 93, "{noise:?}: {score:?}");
    }
}

#[test]
fn what_ends_early_is_as_often_called_what_it_is() {
    let [_, quiet, ..] = NOISES else { panic!() };
    for kind in KINDS {
        let score = score_adaptive(kind, (3, 60), quiet.variation, 200, 2);
        assert!(score.right >= 190, "{}: {score:?}", kind.name);
    }
}

#[test]
fn a_window_is_looked_at_seldom_and_never_before_its_least() {
    assert_eq!(looks(10).take(8).collect::<Vec<_>>(), [10, 13, 16, 20, 24, 31, 38, 48]);
    assert_eq!(looks(1).next(), Some(BINS_LEAST));
    assert_eq!((19..26).filter(|bins| is_look(*bins, 20)).collect::<Vec<_>>(), [20, 25]);
}

#[test]
fn a_quiet_run_ends_at_the_first_look_and_one_that_moves_goes_on() {
    let ends = |change: &dyn Fn(usize) -> f64, is_open: bool| {
        let second = |(i, rps): (usize, &f64)| SecondReport {
            attempts: *rps as u64,
            successes: (rps * change(i)) as u64,
            latency_us_mean: 1e6 / rps,
            ..SecondReport::default()
        };
        let seconds: Vec<SecondReport> = noisy(60, 0.02).iter().enumerate().map(second).collect();
        let wanted = Wanted { least: Duration::from_secs(20), goodput: 0.01, latency: 0.02, is_open };
        (1..=60).find(|length| enough(&seconds[..*length], 1.0, &wanted))
    };
    assert_eq!(ends(&|_| 1.0, false), Some(20));
    let late = |second: usize| if second < 8 { 0.6 } else { 1.0 };
    assert_eq!(ends(&late, false), None, "the warm-up would move the mean");
    assert_eq!(ends(&late, true), Some(20), "of an open loop only latency is asked");
}

fn reached(verdict: &Verdict) -> &Reached {
    match verdict {
        Verdict::Steady(reached) | Verdict::TooShort { reached, .. } => reached,
        _ => panic!("{verdict:?}"),
    }
}

#[test]
fn what_does_not_move_is_steady_and_its_mean_known() {
    let verdict = goodput(&drawn(60, |_| 1.0));
    let Verdict::Steady(reached) = &verdict else { panic!("{verdict:?}") };
    let known = reached.figures[0];
    assert_eq!((reached.cut, known.moved_by_cut), (0, 0.0));
    assert!((known.mean / 1000.0 - 1.0).abs() < known.interval && known.interval < 0.01, "{known:?}");
    assert!(known.trend.abs() < known.trend_interval && known.trend_interval < 0.02, "{known:?}");
    assert!(known.effective > 10.0);
    // Without any noise there is none to be careful about.
    let verdict = goodput(&[500.0; 30]);
    let known = &self::reached(&verdict).figures[0];
    assert_eq!((known.mean, known.interval, known.effective, known.trend), (500.0, 0.0, 30.0, 0.0));
}

#[test]
fn a_warm_up_is_cut_and_what_it_does_to_the_mean_is_told() {
    let verdict = goodput(&drawn(60, |i| if i < 9 { 0.7 } else { 1.0 }));
    let Verdict::Steady(reached) = &verdict else { panic!("{verdict:?}") };
    assert!((8..=10).contains(&reached.cut), "{reached:?}");
    let known = reached.figures[0];
    assert!(
        (known.mean / 1000.0 - 1.0).abs() < 0.005 && (known.moved_by_cut + 0.045).abs() < 0.005,
        "{known:?}"
    );
    // The longest of the figures' warm-ups is cut from all of them.
    let (flat, late) = (drawn(60, |_| 1.0), drawn(60, |i| if i < 14 { 1.5 } else { 1.0 }));
    let series = |name, bins| Series { name, bins, limits: LATENCY, explained: 0.0 };
    let verdict = judge(&[series("a", &flat), series("b", &late)]);
    assert!((13..=15).contains(&self::reached(&verdict).cut), "{verdict:?}");
}

#[test]
fn what_moves_is_not_steady_and_how_it_moves_is_told() {
    let change = |verdict: Verdict| match verdict {
        Verdict::NotSteady { figure: "goodput", change } => change,
        _ => panic!("{verdict:?}"),
    };
    let Change::Trend { share } = change(goodput(&drawn(60, |i| 1.0 - 0.1 * i as f64 / 60.0))) else {
        panic!()
    };
    assert!((share + 0.105).abs() < 0.01, "{share}");
    let stalled = drawn(60, |i| if (40..43).contains(&i) { 0.1 } else { 1.0 });
    let Change::Apart { from, to, share } = change(goodput(&stalled)) else { panic!() };
    assert!(from <= 40 && 40 < to && share < -0.2, "{from} {to} {share}");
    let settles = change(goodput(&drawn(60, |i| if i < 27 { 0.7 } else { 1.0 })));
    assert!(matches!(settles, Change::Settles { at: 26..=28 }), "{settles:?}");
    let settles = change(goodput(&drawn(60, |i| 1.0 - 0.5 * (-(i as f64) / 8.0).exp())));
    assert!(matches!(settles, Change::Settles { at: 23..=30 }), "{settles:?}");
}

#[test]
fn several_periods_are_a_steady_state_and_one_is_none() {
    let tooth = |bins: f64| move |i: usize| 1.0 - 0.2 * ((i as f64 + 3.0) / bins).fract();
    let verdict = goodput(&drawn(60, tooth(10.0)));
    let Verdict::Steady(reached) = &verdict else { panic!("{verdict:?}") };
    assert!((reached.figures[0].period.unwrap() - 10.0).abs() < 0.2, "{reached:?}");
    assert!(matches!(goodput(&drawn(60, tooth(60.0))), Verdict::NotSteady { .. }));
}

#[test]
fn noise_that_hides_the_mean_asks_for_a_longer_window() {
    let verdict = goodput(&noisy(30, 0.2));
    let Verdict::TooShort { figure: "goodput", reached, bins_needed } = &verdict else {
        panic!("{verdict:?}")
    };
    let known = reached.figures[0];
    assert!(known.interval > GOODPUT.interval && known.trend.abs() < GOODPUT.moves, "{known:?}");
    let expected = 30.0 * (known.interval / GOODPUT.interval).powi(2);
    assert!((bins_needed / expected - 1.0).abs() < 1e-9, "{bins_needed} instead of {expected}");
    let verdict = goodput(&noisy((expected * 2.0) as usize, 0.2));
    assert!(matches!(verdict, Verdict::Steady(_)), "{verdict:?}");
}

#[test]
fn of_too_few_bins_and_of_nothing_nothing_is_said() {
    assert_eq!(goodput(&drawn(BINS_LEAST - 1, |_| 1.0)), Verdict::TooFew);
    assert_ne!(goodput(&drawn(BINS_LEAST, |_| 1.0)), Verdict::TooFew);
    for nothing in [vec![], vec![0.0; 60], vec![f64::NAN; 60]] {
        assert_eq!(goodput(&nothing), Verdict::TooFew);
    }
    assert_eq!(judge(&[]), Verdict::TooFew);
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
    // That run is the one whose course is shown.
    let course = findings(&results).workloads[0].course.clone().unwrap();
    assert_eq!((course.repetition, course.goodput_rps.len(), course.cut_secs), (1, 30, 0.0));
    assert_eq!(course.said, format!("Not steady: {why}."));
}

#[test]
fn a_warm_up_in_the_window_fails_only_if_it_moves_a_mean() {
    let (why, remedy) = failed(&swept(|_, second| if second < 6 { 0.7 } else { 1.0 }));
    assert_eq!(why, "the first 6 of 30 s still belong to the warm-up, and move goodput by -6.0 %");
    assert!(remedy.contains("s or more (--warmup"), "{remedy}");
    // Also where the rest is too noisy to be known well.
    let noise = noisy(30, 0.1);
    let warming = |second: usize| if second < 6 { 0.5 } else { 1.0 };
    let (why, _) = failed(&swept(|_, second| noise[second] / 1000.0 * warming(second)));
    assert!(why.starts_with("the first 6 of 30 s still belong to the warm-up"), "{why}");
    // A twentieth off for one second moves the mean by less than it is known to.
    let results = swept(|_, second| if second < 1 { 0.95 } else { 1.0 });
    assert_eq!(check(&results).outcome, Outcome::Pass);
    assert_eq!(findings(&results).workloads[0].course.as_ref().unwrap().cut_secs, 1.0);
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
    let course = findings(&results).workloads[0].course.clone().unwrap();
    assert_eq!((course.goodput_rps[12], course.latency_us_mean[12]), (0.0, None));
    assert!(course.latency_us_mean[13].is_some());
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
    let course = findings(&results).workloads[0].course.clone().unwrap();
    assert_eq!((course.bin_secs, course.goodput_rps.len()), (0.2, 15));
    assert!(course.goodput_rps.iter().all(|rps| (rps / 10_000.0 - 1.0).abs() < 0.02), "{course:?}");
    assert!(course.said.contains("independent bins of 0.2 s"), "{}", course.said);

    let results = in_tenths(|tenth| if tenth < 6 { 0.7 } else { 1.0 });
    let (why, remedy) = failed(&results);
    assert_eq!(why, "the first 0.6 of 3 s still belong to the warm-up, and move goodput by -6.0 %");
    assert!(remedy.contains("s or more (--warmup"), "{remedy}");
    let cut_secs = findings(&results).workloads[0].course.as_ref().unwrap().cut_secs;
    assert!((cut_secs - 0.6).abs() < 1e-9, "{cut_secs}");

    let results = in_tenths(|tenth| if (16..20).contains(&tenth) { 0.3 } else { 1.0 });
    let (why, remedy) = failed(&results);
    assert!(why.starts_with("goodput from second ") && why.contains(" of 3 lies "), "{why}");
    assert!(remedy.contains("--window 12s"), "{remedy}");
}

#[test]
fn bins_are_put_together_until_there_are_few_and_none_is_longer_than_a_second() {
    let told = |secs: f64, bins: usize| {
        let bin =
            SecondReport { attempts: 10, successes: 9, latency_us_mean: 5.0, ..SecondReport::default() };
        let window = Window::told(secs, &vec![bin; bins]);
        assert!(window.goodput_rps.iter().all(|rps| (rps * secs / 9.0 - 1.0).abs() < 1e-9), "{window:?}");
        (window.secs, window.goodput_rps.len())
    };
    for (tenths, lasts) in
        [(9, (0.1, 9)), (20, (0.2, 10)), (39, (0.2, 19)), (50, (0.5, 10)), (105, (1.0, 10))]
    {
        assert_eq!(told(0.1, tenths), lasts, "{tenths}");
    }
    assert_eq!((told(1.0, 300), told(0.25, 40), told(0.25, 8)), ((1.0, 300), (1.0, 10), (0.25, 8)));
}
