//! Whether the second of two services fails in more runs than the first, from pairs of runs: at any number of pairs.
//!
//! Two equal services fail in a run with the same probability q. So the second alone fails in a pair with q·(1 − q) ≤ 1/4, the first
//! alone as often, and both or neither in the rest. A stake that is multiplied by `second` if the second alone fails, by `first` if
//! the first does and else by `neither` does not grow in the mean if `neither` ≤ 1 and `first` + `second` + 2·`neither` ≤ 4.
//! By Ville's inequality it then ever reaches 1/α with a probability of at most α; so does a sum of stakes that begins with 1.
//! Source: Shafer & Vovk, Game-Theoretic Foundations for Probability and Finance (2019).

/// What a stake is multiplied by, and with which share it begins.
struct Bet {
    share: f64,
    second: f64,
    neither: f64,
    first: f64,
}

/// The second fails in each pair, in nearly each, in some of them. With the first 3 of 3 pairs are enough for 1/40.
const BETS: [Bet; 3] = [
    Bet { share: 0.625, second: 4.0, neither: 0.0, first: 0.0 },
    Bet { share: 0.125, second: 3.0, neither: 0.5, first: 0.0 },
    Bet { share: 0.25, second: 1.75, neither: 1.0, first: 0.25 },
];

/// How improbable it is that of equal services the second ever fails so much more than the first: of each pair, who failed.
pub fn p(pairs: &[[bool; 2]]) -> f64 {
    let stake = |bet: &Bet| {
        let by = pairs.iter().map(|pair| match pair {
            [false, true] => bet.second,
            [true, false] => bet.first,
            _ => bet.neither,
        });
        bet.share * by.product::<f64>()
    };
    BETS.iter().map(stake).sum::<f64>().recip().min(1.0)
}

/// The largest of the p-values `all` that is still small enough for its rank, so that with a probability of at most `alpha` there is
/// one if all services are equal; `None` where there is none.
/// Source: Benjamini & Hochberg, Controlling the False Discovery Rate (1995); for such p-values Wang & Ramdas, False Discovery Rate
/// Control with E-values (2022).
pub fn largest_small(all: &[f64], alpha: f64) -> Option<f64> {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    let is_small = |(i, p): &(usize, &f64)| **p <= alpha * (i + 1) as f64 / all.len() as f64;
    sorted.iter().enumerate().rfind(is_small).map(|(_, p)| *p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    const ALPHA: f64 = 0.025;

    /// The pairs after which it is decided that the second fails more, at one of several levels at least: looked at after each.
    fn decided(random: &mut Xoshiro256PlusPlus, levels: &[[f64; 2]], looks: &[usize]) -> Option<usize> {
        let mut fails = |q: f64| f64::from(random.next_u32()) / 2f64.powi(32) < q;
        let last = *looks.last().unwrap();
        let all: Vec<Vec<[bool; 2]>> =
            levels.iter().map(|of| (0..last).map(|_| of.map(&mut fails)).collect()).collect();
        looks.iter().copied().find(|n| {
            let ran =
                all.iter().map(|pairs| &pairs[..*n]).filter(|pairs| pairs.iter().flatten().any(|is| *is));
            largest_small(&ran.map(p).collect::<Vec<_>>(), ALPHA).is_some()
        })
    }

    #[test]
    fn equal_services_are_told_apart_in_one_of_forty_comparisons_at_most() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let looks: Vec<usize> = (1..=60).collect();
        for looks in [&looks[..], &[3], &[5]] {
            for levels in [
                &[0.02][..],
                &[0.2],
                &[0.5],
                &[0.8],
                &[0.5, 0.5, 0.5, 0.5],
                &[0.0, 0.05, 0.3, 0.5, 1.0],
                &[0.05; 12],
            ] {
                let equal: Vec<[f64; 2]> = levels.iter().map(|q| [*q, *q]).collect();
                let alarms = (0..1000).filter(|_| decided(&mut random, &equal, looks).is_some()).count();
                // 25 are expected at most; 40 are three standard deviations more.
                assert!(alarms <= 40, "{levels:?}, {} looks: {alarms} of 1000", looks.len());
            }
        }
    }

    #[test]
    fn a_service_that_fails_more_often_is_found_the_sooner_the_more_often() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
        let looks: Vec<usize> = (1..=100).collect();
        for (failing, median) in [([0.0, 1.0], 3), ([0.0, 0.9], 5), ([0.0, 0.5], 20), ([0.1, 0.6], 40)] {
            let mut pairs: Vec<usize> =
                (0..400).map(|_| decided(&mut random, &[failing], &looks).unwrap_or(1000)).collect();
            pairs.sort_unstable();
            assert!(
                pairs[200] <= median && pairs[390] <= 100,
                "{failing:?}: {} and {}",
                pairs[200],
                pairs[390]
            );
        }
    }

    #[test]
    fn one_run_or_two_decide_nothing_and_all_levels_together_as_much_as_one() {
        let all = |n| vec![[false, true]; n];
        assert!(p(&all(2)) > ALPHA && p(&all(3)) <= ALPHA && p(&[]) == 1.0);
        assert_eq!(largest_small(&[p(&all(3)); 12], ALPHA), Some(p(&all(3))));
        assert_eq!(largest_small(&[p(&all(3)), 1.0], ALPHA), None);
        assert_eq!(largest_small(&[p(&all(5)), 1.0], ALPHA), Some(p(&all(5))));
        // 9 of 10, in whatever order.
        let mut nine = all(10);
        nine[4] = [false, false];
        assert!(p(&nine) < ALPHA && p(&[[true, false]; 30]) == 1.0);
    }
}
