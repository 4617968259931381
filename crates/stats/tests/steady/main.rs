//! Verdicts on series that are drawn, and on some that are made by hand.

mod synthetic;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use stats::steady::*;
use synthetic::{KINDS, NOISES, WINDOWS, score, score_adaptive};

/// The first six kinds have to be told apart.
const KINDS_ASKED: usize = 6;

/// Goodput and nothing else.
fn goodput(bins: &[f64]) -> Verdict {
    judge(&[Series { name: "goodput", bins, limits: GOODPUT, error_least: 0.0 }])
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
fn a_window_is_checked_seldom_and_never_before_its_least() {
    let checks =
        |bins: std::ops::Range<usize>, least| bins.filter(|of| is_check(*of, least)).collect::<Vec<_>>();
    assert_eq!(checks(1..50, 10), [10, 13, 16, 20, 24, 31, 38, 48]);
    assert_eq!(checks(1..13, 1), [BINS_LEAST]);
    assert_eq!(checks(1..26, 20), [20, 25]);
}

#[test]
fn a_quiet_run_ends_at_the_first_check_and_one_that_changes_goes_on() {
    let ends = |change: &dyn Fn(usize) -> f64, is_open: bool| {
        let second = |(i, rps): (usize, &f64)| Bin {
            attempts: *rps as u64,
            successes: (rps * change(i)) as u64,
            latency_us_mean: 1e6 / rps,
        };
        let seconds: Vec<Bin> = noisy(60, 0.02).iter().enumerate().map(second).collect();
        let goal = Goal { least_secs: 20.0, goodput: 0.01, latency: 0.02, is_open };
        (1..=60).find(|length| long_enough(&seconds[..*length], 1.0, &goal))
    };
    assert_eq!(ends(&|_| 1.0, false), Some(20));
    let late = |second: usize| if second < 8 { 0.6 } else { 1.0 };
    assert_eq!(ends(&late, false), None, "the warm-up would move the mean");
    assert_eq!(ends(&late, true), Some(20), "of an open loop only latency is asked");
}

fn reached_by(verdict: &Verdict) -> &Reached {
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
    assert_eq!((reached.cut, known.bias), (0, 0.0));
    assert!((known.mean / 1000.0 - 1.0).abs() < known.interval && known.interval < 0.01, "{known:?}");
    assert!(known.drift.abs() < known.drift_interval && known.drift_interval < 0.02, "{known:?}");
    // Without any noise there is none to be careful about.
    let verdict = goodput(&[500.0; 30]);
    let known = &reached_by(&verdict).figures[0];
    assert_eq!((known.mean, known.interval, known.drift), (500.0, 0.0, 0.0));
}

#[test]
fn a_warm_up_is_cut_and_what_it_does_to_the_mean_is_told() {
    let verdict = goodput(&drawn(60, |i| if i < 9 { 0.7 } else { 1.0 }));
    let Verdict::Steady(reached) = &verdict else { panic!("{verdict:?}") };
    assert!((8..=10).contains(&reached.cut), "{reached:?}");
    let known = reached.figures[0];
    assert!((known.mean / 1000.0 - 1.0).abs() < 0.005 && (known.bias + 0.045).abs() < 0.005, "{known:?}");
    // The longest of the figures' warm-ups is cut from all of them.
    let (flat, late) = (drawn(60, |_| 1.0), drawn(60, |i| if i < 14 { 1.5 } else { 1.0 }));
    let series = |name, bins| Series { name, bins, limits: LATENCY, error_least: 0.0 };
    let verdict = judge(&[series("a", &flat), series("b", &late)]);
    assert!((13..=15).contains(&reached_by(&verdict).cut), "{verdict:?}");
}

#[test]
fn what_moves_is_not_steady_and_how_it_moves_is_told() {
    let change = |verdict: Verdict| match verdict {
        Verdict::NotSteady { figure: "goodput", change } => change,
        _ => panic!("{verdict:?}"),
    };
    let Change::Drift { share } = change(goodput(&drawn(60, |i| 1.0 - 0.1 * i as f64 / 60.0))) else {
        panic!()
    };
    assert!((share + 0.105).abs() < 0.01, "{share}");
    let stalled = drawn(60, |i| if (40..43).contains(&i) { 0.1 } else { 1.0 });
    let Change::Shift { from, to, share } = change(goodput(&stalled)) else { panic!() };
    assert!(from <= 40 && 40 < to && share < -0.2, "{from} {to} {share}");
    let settles = change(goodput(&drawn(60, |i| if i < 27 { 0.7 } else { 1.0 })));
    assert!(matches!(settles, Change::LateWarmUp { at: 26..=28 }), "{settles:?}");
    let settles = change(goodput(&drawn(60, |i| 1.0 - 0.5 * (-(i as f64) / 8.0).exp())));
    assert!(matches!(settles, Change::LateWarmUp { at: 23..=30 }), "{settles:?}");
}

#[test]
fn several_periods_are_a_steady_state_and_one_is_none() {
    let tooth = |bins: f64| move |i: usize| 1.0 - 0.2 * ((i as f64 + 3.0) / bins).fract();
    let verdict = goodput(&drawn(60, tooth(10.0)));
    let Verdict::Steady(reached) = &verdict else { panic!("{verdict:?}") };
    assert!(reached.figures[0].period == Some(10), "{reached:?}");
    assert!(matches!(goodput(&drawn(60, tooth(60.0))), Verdict::NotSteady { .. }));
}

#[test]
fn noise_that_hides_the_mean_asks_for_a_longer_window() {
    let verdict = goodput(&noisy(30, 0.2));
    let Verdict::TooShort { figure: Known { name: "goodput", .. }, reached, bins_needed } = &verdict else {
        panic!("{verdict:?}")
    };
    let known = reached.figures[0];
    assert!(known.interval > GOODPUT.interval && known.drift.abs() < GOODPUT.change, "{known:?}");
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

#[test]
fn bins_are_put_together_until_there_are_few_and_none_is_longer_than_a_second() {
    let lasts = |secs: f64, bins: usize| {
        let window = Window::of(secs, &vec![Bin { attempts: 10, successes: 9, latency_us_mean: 5.0 }; bins]);
        assert!(window.goodput_rps.iter().all(|rps| (rps * secs / 9.0 - 1.0).abs() < 1e-9), "{window:?}");
        (window.secs, window.goodput_rps.len())
    };
    for (tenths, expected) in
        [(9, (0.1, 9)), (20, (0.2, 10)), (39, (0.2, 19)), (50, (0.5, 10)), (105, (1.0, 10))]
    {
        assert_eq!(lasts(0.1, tenths), expected, "{tenths}");
    }
    assert_eq!((lasts(1.0, 300), lasts(0.25, 40), lasts(0.25, 8)), ((1.0, 300), (1.0, 10), (0.25, 8)));
}
