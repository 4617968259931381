//! Intervals that hold at every number of runs at once, so that a run may end as soon as its interval says enough.
//!
//! The mean of normal values whose variance is not known: the interval holds every mean μ that a mixture of alternatives does not
//! outweigh. Against the values' mean, in standard deviations, being drawn from a normal distribution of variance [`SPREAD`] the
//! likelihood ratio of Student's t is
//!
//! ```text
//! B(μ) = (1 + n·g)^−½ · ((1 + x) / (1 + x / (1 + n·g)))^(n/2),  x = n·(mean − μ)² / ((n − 1)·s²)
//! ```
//!
//! At the true μ it is a martingale with mean 1, so by Ville's inequality it ever exceeds 1/α with a probability of at most α.
//! Source: Lai, On Confidence Sequences (Annals of Statistics 4, 1976); Wang & Ramdas, Anytime-valid t-tests and confidence
//! sequences for Gaussian means with unknown variance (Sequential Analysis 44, 2025).

/// g: how far means are expected to be from what is tested, in standard deviations of one run, squared. Whatever it is, the
/// interval holds; with 1 it is narrow after ten to twenty runs.
const SPREAD: f64 = 1.0;

/// How many standard errors the interval of the mean of `runs` values reaches to either side; infinite where they are too few.
pub(crate) fn critical(runs: usize, alpha: f64) -> f64 {
    let n = runs as f64;
    let r = 1.0 + n * SPREAD;
    let k = (r.sqrt() / alpha).powf(2.0 / n);
    // Even a value without any spread is not improbable enough.
    if runs < 2 || k >= r { f64::INFINITY } else { ((n - 1.0) * (k - 1.0) / (1.0 - k / r)).sqrt() }
}

/// How improbable a mean of `runs` values is that lies `t` standard errors from what is tested, whenever that is asked: 1/B.
pub(crate) fn p(t: f64, runs: usize) -> f64 {
    let n = runs as f64;
    let (r, x) = (1.0 + n * SPREAD, t * t / (n - 1.0));
    // An infinite t: the limit of the quotient.
    let quotient = if x.is_finite() { (1.0 + x) / (1.0 + x / r) } else { r };
    (r.sqrt() * quotient.powf(-n / 2.0)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::{Method, paired};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Noise of a pair, as a share.
    #[derive(Clone, Copy, Debug)]
    enum Noise {
        Normal,
        /// Student's t with three degrees of freedom: now and then a pair is far off.
        HeavyTail,
        /// The machine gets slower from run to run; the order of a pair alternates.
        Drift,
        /// A seventh of the runs is disturbed.
        Bursts,
    }

    struct Source {
        random: Xoshiro256PlusPlus,
    }

    impl Source {
        fn uniform(&mut self) -> f64 {
            f64::from(self.random.next_u32()) / 2f64.powi(32)
        }

        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }

        /// The logarithm of the ratio of pair `i` without a difference, with a standard deviation near 1.
        fn of(&mut self, noise: Noise, i: usize) -> f64 {
            match noise {
                Noise::Normal => self.normal(),
                Noise::HeavyTail => {
                    let chi: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
                    self.normal() / (chi / 3.0).sqrt() / 3f64.sqrt()
                }
                Noise::Drift => self.normal() + if i.is_multiple_of(2) { 0.5 } else { -0.5 },
                Noise::Bursts => {
                    let mut side = || if self.uniform() < 1.0 / 7.0 { 2.0 } else { 0.0 };
                    let burst = side() - side();
                    0.5 * self.normal() + burst
                }
            }
        }
    }

    /// What a run of at most 100 pairs ends with that looks at its interval after each: whether a loss of 5 % was found, and the pairs
    /// it took. `None`: the time was over.
    fn run(source: &mut Source, noise: Noise, deviation: f64, loss: f64) -> (Option<bool>, usize) {
        let mut pairs = Vec::new();
        for i in 0..100 {
            let log = loss.ln() + deviation * source.of(noise, i);
            pairs.push((1.0, log.exp()));
            let of = paired(&pairs, Method::Sequential, 0.0, 0.05 / 4.0).unwrap();
            match of.interval {
                Some((_, high)) if high < 1.05 => return (Some(false), i + 1),
                Some((low, _)) if low > 1.0 => return (Some(true), i + 1),
                _ => {}
            }
        }
        (None, 100)
    }

    const NOISES: [Noise; 4] = [Noise::Normal, Noise::HeavyTail, Noise::Drift, Noise::Bursts];

    /// One of four figures, which share 5 % of false alarms.
    #[test]
    fn looking_after_each_pair_raises_no_false_alarms_and_finds_a_loss() {
        let mut source = Source { random: Xoshiro256PlusPlus::seed_from_u64(1) };
        for noise in NOISES {
            for deviation in [0.01, 0.03, 0.05] {
                let mut count = |loss: f64, found: Option<bool>| {
                    (0..400).filter(|_| run(&mut source, noise, deviation, loss).0 == found).count()
                };
                let (alarms, losses) = (count(1.0, Some(true)), count(1.05, Some(true)));
                assert!(
                    alarms <= 5 && losses >= 390,
                    "{noise:?} {deviation}: {alarms} alarms, {losses} losses of 400"
                );
            }
        }
    }

    /// What the interval is for: that of Student's t, looked at after each pair, misses far more often than once in twenty.
    #[test]
    fn the_interval_holds_the_truth_at_all_times_and_students_does_not() {
        let mut source = Source { random: Xoshiro256PlusPlus::seed_from_u64(2) };
        let mut ever_missed = |method: Method| {
            let missed = (0..400).filter(|_| {
                let pairs: Vec<(f64, f64)> =
                    (0..100).map(|i| (1.0, (0.03 * source.of(Noise::Normal, i)).exp())).collect();
                (2..=100).any(|n| {
                    let of = paired(&pairs[..n], method, 0.0, 0.05).unwrap();
                    of.interval.is_some_and(|(low, high)| low > 1.0 || high < 1.0)
                })
            });
            missed.count()
        };
        let (sequential, student) = (ever_missed(Method::Sequential), ever_missed(Method::Paired));
        assert!(sequential <= 20 && student >= 80, "{sequential} and {student} of 400");
    }

    #[test]
    fn the_probability_is_at_its_limit_where_the_interval_ends() {
        for (runs, alpha) in [(5, 0.05), (12, 0.05), (12, 0.0125), (80, 0.001)] {
            let p = p(critical(runs, alpha), runs);
            assert!((p / alpha - 1.0).abs() < 1e-9, "{runs}: {p}");
        }
        assert_eq!((critical(4, 0.05), p(0.0, 9)), (f64::INFINITY, 1.0));
        assert!(p(f64::INFINITY, 20) < 1e-6);
    }
}
