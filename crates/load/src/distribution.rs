//! Which keys requests name: distributions as values, as people write them.
//!
//! A new distribution is a row of [`DISTRIBUTIONS`] and an arm in `keys`, where keys are drawn. Knows no generator.

use std::fmt;

/// YCSB's constant.
pub(super) const THETA_DEFAULT: f64 = 0.99;

/// Which keys requests name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Every key equally likely.
    #[default]
    Uniform,
    /// Few keys often, many seldom: the r-th in proportion to r^−theta. Which keys are the frequent ones is scattered
    /// over all of them.
    Zipfian {
        /// The skew, above 0.
        theta: f64,
    },
    /// As zipfian, over the keys from the newest back. A PUT makes a new key: the next of the client's own tail.
    Latest,
    /// Some of the operations go to some of the keys, the others to the others; evenly within each.
    Hotspot {
        /// Per cent of the operations that go to the hot keys.
        operations_percent: f64,
        /// Per cent of the keys that are hot: the first ones.
        keys_percent: f64,
    },
    /// This many keys from the first on, each equally likely.
    Popular(u64),
    /// All clients walk all keys together, over and over: the n-th of N clients takes every N-th key.
    Sequence,
    /// Each client writes its own keys in sequence, over and over, and reads or deletes one of those it wrote last.
    OwnSequence,
    /// All keys in their order, over and over, each client from an offset of its own.
    Scan,
    /// The first key only.
    Single,
}

/// A row of [`DISTRIBUTIONS`].
#[derive(Debug)]
pub struct DistributionRow {
    /// How it is written: its name, and what may follow it.
    pub shape: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// From what follows the name and a colon, or says what should.
    parse: fn(Option<&str>) -> Option<Distribution>,
}

impl DistributionRow {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.shape.split(['[', ':']).next().unwrap_or_default()
    }
}

/// Every distribution of keys.
pub static DISTRIBUTIONS: &[DistributionRow] = &[
    DistributionRow {
        shape: "uniform",
        about: "Every key equally likely.",
        parse: |rest| rest.is_none().then_some(Distribution::Uniform),
    },
    DistributionRow {
        shape: "zipfian[:THETA]",
        about: "The r-th most frequent key is chosen in proportion to r^-THETA (default 0.99; above 0, at most 10); the frequent keys are scattered over all, the same ones in each run.",
        parse: |rest| {
            let theta = rest.map_or(Ok(THETA_DEFAULT), str::parse).ok()?;
            (theta > 0.0 && theta <= 10.0).then_some(Distribution::Zipfian { theta })
        },
    },
    DistributionRow {
        shape: "latest",
        about: "As zipfian, the newest keys most often; every PUT writes a new key.",
        parse: |rest| rest.is_none().then_some(Distribution::Latest),
    },
    DistributionRow {
        shape: "hotspot[:OPERATIONS/KEYS]",
        about: "A share of the operations goes to a share of the keys, both in per cent above 0 and up to 100 (default 80/20), the rest to the other keys.",
        parse: |rest| {
            let (operations, keys) = rest.unwrap_or("80/20").split_once('/')?;
            let percent =
                |text: &str| text.parse().ok().filter(|percent: &f64| *percent > 0.0 && *percent <= 100.0);
            Some(Distribution::Hotspot {
                operations_percent: percent(operations)?,
                keys_percent: percent(keys)?,
            })
        },
    },
    DistributionRow {
        shape: "popular:N",
        about: "The first N keys, at least 1, or all if there are fewer; each equally likely.",
        parse: |rest| rest?.parse().ok().filter(|count| *count > 0).map(Distribution::Popular),
    },
    DistributionRow {
        shape: "sequence",
        about: "All keys in their order, over and over; clients take turns.",
        parse: |rest| rest.is_none().then_some(Distribution::Sequence),
    },
    DistributionRow {
        shape: "own",
        about: "Each client writes its own keys in sequence, and reads or deletes one that it wrote recently.",
        parse: |rest| rest.is_none().then_some(Distribution::OwnSequence),
    },
    DistributionRow {
        shape: "scan",
        about: "All keys in their order, over and over, each client from an offset of its own.",
        parse: |rest| rest.is_none().then_some(Distribution::Scan),
    },
    DistributionRow {
        shape: "single",
        about: "The first key only.",
        parse: |rest| rest.is_none().then_some(Distribution::Single),
    },
];

impl std::str::FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let (name, rest) = match text.split_once(':') {
            Some((name, rest)) => (name, Some(rest)),
            None => (text, None),
        };
        match DISTRIBUTIONS.iter().find(|row| row.name() == name) {
            Some(row) => (row.parse)(rest)
                .ok_or_else(|| format!("write {}: {}", row.shape, row.about.trim_end_matches('.'))),
            None => {
                let known: Vec<&str> = DISTRIBUTIONS.iter().map(|row| row.shape).collect();
                Err(format!("expected one of: {}", known.join(", ")))
            }
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Zipfian { theta } => write!(f, "zipfian:{theta}"),
            Distribution::Hotspot { operations_percent, keys_percent } => {
                write!(f, "hotspot:{operations_percent}/{keys_percent}")
            }
            Distribution::Popular(count) => write!(f, "popular:{count}"),
            plain => {
                let row = DISTRIBUTIONS.iter().find(|row| (row.parse)(None) == Some(*plain));
                f.write_str(row.map_or("", DistributionRow::name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distributions_read_back_as_written() {
        for (text, shown) in [
            ("uniform", "uniform"),
            ("zipfian", "zipfian:0.99"),
            ("zipfian:1.2", "zipfian:1.2"),
            ("latest", "latest"),
            ("hotspot", "hotspot:80/20"),
            ("hotspot:99.5/0.5", "hotspot:99.5/0.5"),
            ("popular:20", "popular:20"),
            ("sequence", "sequence"),
            ("own", "own"),
            ("scan", "scan"),
            ("single", "single"),
        ] {
            let distribution: Distribution = text.parse().unwrap();
            assert_eq!(distribution.to_string(), shown);
            assert_eq!(shown.parse(), Ok(distribution));
        }
        for row in DISTRIBUTIONS {
            assert!(row.shape.starts_with(row.name()) && row.about.ends_with('.'), "{row:?}");
        }
    }

    #[test]
    fn what_is_no_distribution_says_what_is() {
        for (wrong, expected) in [
            ("normal", "expected one of: uniform, zipfian[:THETA], latest, hotspot[:OPERATIONS/KEYS]"),
            ("zipfian:0", "write zipfian[:THETA]: "),
            ("zipfian:nan", "write zipfian[:THETA]: "),
            ("zipfian:11", "write zipfian[:THETA]: "),
            ("hotspot:80", "write hotspot[:OPERATIONS/KEYS]: "),
            ("hotspot:80/0", "write hotspot[:OPERATIONS/KEYS]: "),
            ("popular", "write popular:N: "),
            ("uniform:3", "write uniform: "),
        ] {
            let why = wrong.parse::<Distribution>().unwrap_err();
            assert!(why.starts_with(expected), "{wrong}: {why}");
            assert!(!wrong.starts_with("zipfian") || why.contains("above 0, at most 10"), "{why}");
        }
    }
}
