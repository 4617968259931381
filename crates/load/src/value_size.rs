//! How long the values are: a distribution as people write it, and lengths drawn from it.
//!
//! A length is drawn for each PUT from its client's stream. What the preload writes is derived from the key instead,
//! so that the read-back knows to the byte what must come.

use super::distribution::THETA_DEFAULT;
use super::draw::{Zipf, below};
use kv::VALUE_BYTES_MAX;
use kv::units::Size;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::fmt;
use std::str::FromStr;

/// Lengths of values in bytes, written `100`, `100-1000` or `zipfian:100-100000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSize {
    /// The shortest.
    pub min: u64,
    /// The longest.
    pub max: u64,
    /// The shorter the likelier: the n-th length in proportion to n^−0.99. Otherwise every length is equally likely.
    pub zipfian: bool,
}

impl Default for ValueSize {
    fn default() -> ValueSize {
        ValueSize { min: 100, max: 100, zipfian: false }
    }
}

impl FromStr for ValueSize {
    type Err = String;

    fn from_str(text: &str) -> Result<ValueSize, String> {
        const SHAPE: &str = "write a size, as in 100, or a range, as in 100-1000 or zipfian:100-100000";
        let (zipfian, range) = match text.split_once(':') {
            Some(("zipfian", range)) => (true, range),
            Some((other, _)) => return Err(format!("`{other}` is no distribution of sizes; hint: {SHAPE}")),
            None => (false, text),
        };
        let bytes = |text: &str| -> Result<u64, String> {
            let Size(bytes) = text.parse().map_err(|why| format!("{why}; hint: {SHAPE}"))?;
            if bytes > VALUE_BYTES_MAX as u64 {
                return Err(format!("values have at most {}", Size(VALUE_BYTES_MAX as u64)));
            }
            Ok(bytes)
        };
        let (min, max) = match range.split_once('-') {
            None if zipfian => return Err(format!("zipfian takes a range; hint: {SHAPE}")),
            None => (bytes(range)?, bytes(range)?),
            Some((min, max)) => (bytes(min)?, bytes(max)?),
        };
        if min > max {
            return Err(format!("{min} is more than {max}: the shortest comes first"));
        }
        Ok(ValueSize { min, max, zipfian })
    }
}

impl fmt::Display for ValueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ValueSize { min, max, zipfian: false } if min == max => write!(f, "{min}"),
            ValueSize { min, max, zipfian: false } => write!(f, "{min}-{max}"),
            ValueSize { min, max, zipfian: true } => write!(f, "zipfian:{min}-{max}"),
        }
    }
}

/// A [`ValueSize`], ready to draw from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// No value is shorter, in bytes.
    pub(super) min: usize,
    /// The number of lengths, from the shortest on.
    lengths: u64,
    zipf: Option<Zipf>,
}

impl Sizes {
    pub(super) fn new(ValueSize { min, max, zipfian }: ValueSize) -> Sizes {
        let lengths = max - min + 1;
        Sizes { min: min as usize, lengths, zipf: zipfian.then(|| Zipf::new(lengths, THETA_DEFAULT)) }
    }

    /// The next value's length. Where there is nothing to draw, nothing is drawn, and the stream goes on unchanged.
    pub(super) fn draw(&self, random: &mut impl Rng) -> usize {
        let more = match &self.zipf {
            _ if self.lengths == 1 => 0,
            None => below(random, self.lengths),
            Some(zipf) => zipf.draw(random),
        };
        self.min + more as usize
    }

    /// The length of the value that the preload writes under key `number`.
    pub(super) fn of_key(&self, number: u64) -> usize {
        // Not the seed of the key's noise: length and content have nothing to do with each other.
        self.draw(&mut Xoshiro256PlusPlus::seed_from_u64(!number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{chi_squared, chi_squared_limit};

    #[test]
    fn sizes_read_back_as_written() {
        for (text, size) in [
            ("100", ValueSize::default()),
            ("0", ValueSize { min: 0, max: 0, zipfian: false }),
            ("100-1000", ValueSize { min: 100, max: 1000, zipfian: false }),
            ("zipfian:100-100000", ValueSize { min: 100, max: 100_000, zipfian: true }),
        ] {
            assert_eq!((text.parse(), size.to_string().as_str()), (Ok(size), text));
        }
        assert_eq!("1KiB-1MiB".parse(), Ok(ValueSize { min: 1024, max: 1 << 20, zipfian: false }));
        for (wrong, expected) in [
            ("", "a size is a number"),
            ("100-", "a size is a number"),
            ("9-1", "the shortest comes first"),
            ("zipfian:9", "takes a range"),
            ("normal:1-9", "no distribution of sizes"),
            ("1-65MiB", "at most 64MiB"),
        ] {
            let why = wrong.parse::<ValueSize>().unwrap_err();
            assert!(why.contains(expected), "{wrong}: {why}");
        }
    }

    #[test]
    fn lengths_pass_a_chi_squared_test() {
        for (text, theta) in [("100-300", 0.0), ("zipfian:100-300", THETA_DEFAULT)] {
            let sizes = Sizes::new(text.parse().unwrap());
            let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
            let mut seen = vec![0.0; 201];
            (0..100_000).for_each(|_| seen[sizes.draw(&mut random) - 100] += 1.0);
            let heights: Vec<f64> = (1..=201).map(|rank| f64::from(rank).powf(-theta)).collect();
            let sum: f64 = heights.iter().sum();
            let expected: Vec<f64> = heights.iter().map(|height| 100_000.0 * height / sum).collect();
            let (found, degrees) = chi_squared(&seen, &expected);
            assert!(found < chi_squared_limit(degrees), "{text}: {found} with {degrees} degrees");
        }
    }

    #[test]
    fn a_key_always_has_the_same_length_in_the_preload() {
        let sizes = Sizes::new("100-1000".parse().unwrap());
        let lengths: Vec<usize> = (0..100).map(|number| sizes.of_key(number)).collect();
        assert_eq!(lengths, (0..100).map(|number| sizes.of_key(number)).collect::<Vec<_>>());
        assert!(lengths.iter().all(|bytes| (100..=1000).contains(bytes)) && lengths[0] != lengths[1]);
    }
}
