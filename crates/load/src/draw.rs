//! Numbers drawn from a stream: bounded, skewed, and skewed but spread over a range.
//!
//! Pure: a generator in, a number out. Knows neither keys nor sizes.

use rand_xoshiro::rand_core::Rng;

/// A number below `bound` (at least 1), every one equally likely.
///
/// Source: Lemire, Fast Random Integer Generation in an Interval (2019): one multiplication, a division only in the
/// rare case that could be biased.
pub(super) fn below(random: &mut impl Rng, bound: u64) -> u64 {
    let mut wide = u128::from(random.next_u64()) * u128::from(bound);
    if (wide as u64) < bound {
        let biased_below = bound.wrapping_neg() % bound;
        while (wide as u64) < biased_below {
            wide = u128::from(random.next_u64()) * u128::from(bound);
        }
    }
    (wide >> 64) as u64
}

/// A number from 0 to below 1, in steps of 2^−53.
pub(super) fn unit(random: &mut impl Rng) -> f64 {
    (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Ranks from 0 on, rank r drawn in proportion to 1 / (r + 1)^theta.
///
/// Rejection-inversion: a draw inverts the integral H of h(x) = x^−theta and rejects the little by which the integral
/// exceeds the sum. No sum over the ranks is needed, so that making one costs the same for ten ranks as for 10^9, and
/// theta may be 1 or more. The method that is usual beside it needs the sum, and theta below 1: Gray et al., Quickly
/// Generating Billion-Record Synthetic Databases (1994).
/// Source: Hörmann & Derflinger, Rejection-Inversion to Generate Variates from Monotone Discrete Distributions (1996).
///
/// The last bits of logarithm and exponential are the math library's: a recorded stream is drawn again by the same
/// build, and nearly so by one for another platform.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    ranks: f64,
    theta: f64,
    /// H at the lower end of the first rank, moved in so that this rank needs no rejection.
    integral_low: f64,
    /// H at the upper end of the last rank.
    integral_high: f64,
    /// How far above the inverse a rank may lie to be right without a look at h.
    sure_below: f64,
}

impl Zipf {
    /// Of `ranks` ranks, at least one; `theta` above 0.
    pub(super) fn new(ranks: u64, theta: f64) -> Zipf {
        let mut zipf =
            Zipf { ranks: ranks as f64, theta, integral_low: 0.0, integral_high: 0.0, sure_below: 0.0 };
        zipf.integral_low = zipf.integral(1.5) - 1.0;
        zipf.integral_high = zipf.integral(zipf.ranks + 0.5);
        zipf.sure_below = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.height(2.0));
        zipf
    }

    pub(super) fn draw(&self, random: &mut impl Rng) -> u64 {
        loop {
            let point = self.integral_high + unit(random) * (self.integral_low - self.integral_high);
            let x = self.inverse(point);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.sure_below || point >= self.integral(rank + 0.5) - self.height(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn height(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// H(x) = (x^(1−theta) − 1) / (1 − theta), written so that it stays exact where theta is 1 or nearly so.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.theta) * log;
        if t.abs() < 1e-8 { log * (1.0 + t / 2.0) } else { log * t.exp_m1() / t }
    }

    /// The x of H(x) = `point`.
    fn inverse(&self, point: f64) -> f64 {
        // Rounding alone can lead below −1, where there is no logarithm.
        let t = ((1.0 - self.theta) * point).max(-1.0);
        (if t.abs() < 1e-8 { point * (1.0 - t / 2.0) } else { point * t.ln_1p() / t }).exp()
    }
}

/// Gives each of a range's numbers another place in it, so that ranks next to each other lie far apart.
///
/// A permutation, where YCSB takes a hash modulo the range: a hash lets some ranks share a place and leaves about a
/// third of the places empty, and the drawn distribution is then no longer the one asked for. The factor is the golden
/// section of the range, which puts the first few ranks as evenly over it as can be (Knuth, The Art of Computer
/// Programming, vol. 3, 6.4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Scatter {
    factor: u64,
    of: u64,
}

impl Scatter {
    /// Over the numbers below `of`, at least 1.
    pub(super) fn new(of: u64) -> Scatter {
        const GOLDEN: u128 = 0x9e37_79b9_7f4a_7c15;
        let mut factor = ((u128::from(of) * GOLDEN) >> 64) as u64;
        while greatest_common_divisor(factor, of) != 1 {
            factor += 1;
        }
        Scatter { factor, of }
    }

    pub(super) fn place(&self, rank: u64) -> u64 {
        (u128::from(rank) * u128::from(self.factor) % u128::from(self.of)) as u64
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The value that χ² of so many degrees of freedom stays below with p = 0.99.
///
/// Source: Wilson & Hilferty, The Distribution of Chi-Square (1931); right to three digits from ten degrees on.
#[cfg(test)]
pub(super) fn chi_squared_limit(degrees: usize) -> f64 {
    let part = 2.0 / (9.0 * degrees as f64);
    degrees as f64 * (1.0 - part + 2.326 * part.sqrt()).powi(3)
}

/// χ² of what was `seen` against what was `expected`, and the degrees of freedom. Neighbours are put together until at
/// least ten are expected of them: the law does not hold for less.
#[cfg(test)]
pub(super) fn chi_squared(seen: &[f64], expected: &[f64]) -> (f64, usize) {
    let (mut sum, mut bins, mut pending) = (0.0, 0, (0.0, 0.0));
    let mut left: f64 = expected.iter().sum();
    for (seen, expected) in seen.iter().zip(expected) {
        pending = (pending.0 + seen, pending.1 + expected);
        left -= expected;
        // What is left over is too little for a bin of its own.
        let left_over = left < 10.0 && left > 1e-6;
        if pending.1 >= 10.0 && !left_over {
            sum += (pending.0 - pending.1) * (pending.0 - pending.1) / pending.1;
            bins += 1;
            pending = (0.0, 0.0);
        }
    }
    assert!(bins > 1 && pending.1 < 1e-6, "{bins} bins, {pending:?} left");
    (sum, bins - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;
    use std::collections::HashSet;

    const DRAWS: usize = 200_000;

    #[test]
    fn bounded_numbers_are_unbiased_where_a_remainder_would_not_be() {
        // Of a bound of 3·2^62, a remainder would give the lowest third twice as often.
        let bound = 3 << 62;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
        let lowest = (0..30_000).filter(|_| below(&mut random, bound) < 1 << 62).count();
        assert!((9_700..10_300).contains(&lowest), "{lowest}");
        assert!((0..100).all(|_| below(&mut random, 1) == 0));
    }

    #[test]
    fn zipfian_ranks_pass_a_chi_squared_test() {
        for (seed, theta) in [(1, 0.5), (2, 0.99), (3, 1.0), (4, 1.2), (5, 3.0)] {
            let zipf = Zipf::new(1000, theta);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut seen = vec![0.0; 1000];
            (0..DRAWS).for_each(|_| seen[zipf.draw(&mut random) as usize] += 1.0);
            let heights: Vec<f64> = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).collect();
            let sum: f64 = heights.iter().sum();
            let expected: Vec<f64> = heights.iter().map(|height| DRAWS as f64 * height / sum).collect();
            let (found, degrees) = chi_squared(&seen, &expected);
            assert!(found < chi_squared_limit(degrees), "theta {theta}: {found} with {degrees} degrees");
        }
    }

    /// The sum of 1/r^theta for r from `first` to `last`.
    fn heights(zipf: &Zipf, first: u64, last: u64) -> f64 {
        // Beyond so many, the integral from half a rank before to half a rank behind is as good as the sum: by Euler and
        // Maclaurin the two differ by less than theta/24·r^(−theta−1) at the first rank.
        const SUMMED: u64 = 100_000;
        let summed: f64 = (first..=last.min(SUMMED)).map(|rank| (rank as f64).powf(-zipf.theta)).sum();
        let from = first.max(SUMMED + 1);
        if from > last {
            return summed;
        }
        summed + zipf.integral(last as f64 + 0.5) - zipf.integral(from as f64 - 0.5)
    }

    #[test]
    fn zipfian_ranks_of_any_skew_and_number_pass_a_chi_squared_test() {
        // In bins that double, so that the first ranks stand alone and the last thousand million are few bins.
        let mut failed = Vec::new();
        let mut tests = 0;
        for theta in [0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0, 1.1, 1.2] {
            for (place, ranks) in [10_000, 1_000_000, 100_000_000, 1_000_000_000].into_iter().enumerate() {
                let zipf = Zipf::new(ranks, theta);
                let mut random = Xoshiro256PlusPlus::seed_from_u64(100 + place as u64);
                // Where bins begin: 1, 2, 3, 4, 6, 8, 12, 16, …
                let octaves = (0..).map(|octave| 1u64 << octave).take_while(|first| *first <= ranks);
                let begins: Vec<u64> = octaves
                    .flat_map(|first| [first, first + first / 2])
                    .skip(1)
                    .filter(|first| *first <= ranks)
                    .collect();
                let mut seen = vec![0.0; begins.len()];
                for _ in 0..DRAWS {
                    let rank = zipf.draw(&mut random) + 1;
                    seen[begins.partition_point(|begin| *begin <= rank) - 1] += 1.0;
                }
                let all = heights(&zipf, 1, ranks);
                let ends = begins.iter().skip(1).map(|begin| begin - 1).chain([ranks]);
                let share = |(begin, end): (&u64, u64)| heights(&zipf, *begin, end) / all;
                let expected: Vec<f64> =
                    begins.iter().zip(ends).map(share).map(|share| DRAWS as f64 * share).collect();
                let (found, degrees) = chi_squared(&seen, &expected);
                tests += 1;
                if found >= chi_squared_limit(degrees) {
                    failed.push((theta, ranks, found, degrees));
                }
            }
        }
        // Seeds are fixed, so that this is no matter of luck from run to run.
        assert!(tests == 36 && failed.is_empty(), "{failed:?}");
    }

    #[test]
    fn a_thousand_million_ranks_cost_no_more_than_ten() {
        // Were the ranks summed up, this test would take seconds instead of none.
        let ranks = 1_000_000_000;
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let zipf = Zipf::new(ranks, theta);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(9);
            let drawn: Vec<u64> = (0..DRAWS).map(|_| zipf.draw(&mut random)).collect();
            assert!(drawn.iter().all(|rank| *rank < ranks));
            // The sum of the first ranks, then the integral in its place.
            let head: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-theta)).sum();
            let tail = zipf.integral(ranks as f64 + 0.5) - zipf.integral(100_000.5);
            for below in [10, 1000, 100_000] {
                let share = (1..=below).map(|rank| f64::from(rank).powf(-theta)).sum::<f64>() / (head + tail);
                let expected = DRAWS as f64 * share;
                let seen = drawn.iter().filter(|rank| **rank < below as u64).count() as f64;
                let sigma = (expected * (1.0 - share)).sqrt();
                assert!((seen - expected).abs() <= 3.0 * sigma + 1.0, "{theta} {below}: {seen} {expected}");
            }
        }
    }

    #[test]
    fn few_ranks_are_all_drawn_and_no_others() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        for ranks in [1, 2, 3] {
            let zipf = Zipf::new(ranks, 0.99);
            let drawn: HashSet<u64> = (0..1000).map(|_| zipf.draw(&mut random)).collect();
            assert_eq!(drawn, (0..ranks).collect());
        }
    }

    #[test]
    fn scattering_gives_every_rank_a_place_of_its_own() {
        for of in [1, 2, 3, 4, 6, 10, 997, 10_000, 65_536] {
            let scatter = Scatter::new(of);
            let places: HashSet<u64> = (0..of).map(|rank| scatter.place(rank)).collect();
            assert_eq!(places, (0..of).collect());
        }
        // The hottest ranks do not stand next to each other, also where products leave 64 bits.
        for of in [10_000, u64::MAX] {
            let scatter = Scatter::new(of);
            let mut hottest: Vec<u64> = (0..10).map(|rank| scatter.place(rank)).collect();
            hottest.sort_unstable();
            assert!(hottest.windows(2).all(|pair| pair[1] - pair[0] > of / 25), "{hottest:?}");
        }
    }
}
