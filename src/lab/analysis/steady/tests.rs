//! Verdicts on series that are drawn, and on some that are made by hand.

use super::synthetic::{KINDS, KINDS_ASKED, NOISES, WINDOWS, score};
use super::*;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Goodput and nothing else.
fn goodput(bins: &[f64]) -> Verdict {
    judge(&[Series { name: "goodput", bins, limits: GOODPUT }])
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

/// 200 series of each kind in each case. The whole table is `cargo bench --bench micro -- steady`.
#[test]
fn of_series_whose_truth_is_known_at_least_95_in_100_verdicts_are_right() {
    let [_, quiet, _, as_measured] = NOISES else { panic!() };
    let [short, usual, long] = WINDOWS else { panic!() };
    for (i, kind) in KINDS.iter().enumerate() {
        for (bins, noise) in [(short, quiet), (usual, quiet), (usual, as_measured), (long, quiet)] {
            let score = score(judge, kind, *bins, *noise, 200, 1);
            let least = if i < KINDS_ASKED { 190 } else { 180 };
            assert!(score.right >= least, "{} in {bins} bins with {noise:?}: {score:?}", kind.name);
        }
    }
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
    let series = |name, bins| Series { name, bins, limits: LATENCY };
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
