//! The mix of operations: entries of one request or several, drawn by weight.
//!
//! Knows neither keys nor bytes on the wire, only that a step's key may be that of the entry's first step.

use super::distribution::Distribution;
use kv::{named, named_enum};
use std::fmt;
use std::str::FromStr;

named_enum! {
    /// A kind of request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum Operation {
        /// Read.
        #[default]
        Get = "get",
        /// Create or replace.
        Put = "put",
        /// Remove.
        Delete = "delete",
        /// Have the server compute primes; no key.
        ComputePrime = "compute_prime",
        /// Have the server hash a text; no key.
        ComputeHash = "compute_hash",
        /// Create, if there is no such key.
        PutIfAbsent = "put_if_absent",
        /// Replace, if the key still has the version that the client found.
        PutIfMatch = "put_if_match",
        /// Remove, on the same condition.
        DeleteIfMatch = "delete_if_match",
        /// Whatever is asked of a service that is no key-value store.
        Request = "request",
    }
}

impl Operation {
    /// Its method on the wire, unless a dialect has another.
    pub fn method(self) -> &'static str {
        ["GET", "PUT", "DELETE", "GET", "GET", "PUT", "PUT", "DELETE", "GET"][self as usize]
    }

    /// Whether it names a key.
    pub fn has_key(self) -> bool {
        self == Operation::Get || self.is_write()
    }

    /// Whether it changes a key.
    pub fn is_write(self) -> bool {
        self.has_value() || matches!(self, Operation::Delete | Operation::DeleteIfMatch)
    }

    /// Whether it brings a value along.
    pub fn has_value(self) -> bool {
        matches!(self, Operation::Put | Operation::PutIfAbsent | Operation::PutIfMatch)
    }

    /// Whether it is done only if its key is as it says.
    pub fn is_conditional(self) -> bool {
        self == Operation::PutIfAbsent || self.needs_version()
    }

    /// Whether it names the version that its client found.
    pub fn needs_version(self) -> bool {
        matches!(self, Operation::PutIfMatch | Operation::DeleteIfMatch)
    }
}

/// One request of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is asked.
    pub operation: Operation,
    /// Whether it names the key of the entry's first step instead of one of its own.
    pub first_key: bool,
}

/// Requests that a client sends one after the other, each counted as one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MixEntry {
    /// What `--mix` calls it.
    pub name: &'static str,
    /// At least one.
    pub steps: &'static [Step],
    /// Which keys it names, where not those of the workload.
    pub distribution: Option<Distribution>,
    /// How often it is drawn, relative to the sum of all weights; at least 1.
    pub weight: u32,
}

/// What a mix may be made of, by the names of `--mix`.
pub static MIX_ENTRIES: &[(&str, &[Step])] = &[
    ("get", &[step(Operation::Get)]),
    ("put", &[step(Operation::Put)]),
    ("delete", &[step(Operation::Delete)]),
    // A read, then a write of the same key.
    ("read_modify_write", &[step(Operation::Get), with_first_key(Operation::Put)]),
    // Two writes, then the first of them undone: one of two keys stays.
    ("put_put_delete", &[step(Operation::Put), step(Operation::Put), with_first_key(Operation::Delete)]),
    ("put_if_absent", &[step(Operation::PutIfAbsent)]),
    // A read, then a write of the same key if nothing happened in between. Left out where nothing was found.
    ("compare_and_put", &[step(Operation::Get), with_first_key(Operation::PutIfMatch)]),
    ("compare_and_delete", &[step(Operation::Get), with_first_key(Operation::DeleteIfMatch)]),
    ("compute_prime", &[step(Operation::ComputePrime)]),
    ("compute_hash", &[step(Operation::ComputeHash)]),
];

const fn step(operation: Operation) -> Step {
    Step { operation, first_key: false }
}

const fn with_first_key(operation: Operation) -> Step {
    Step { operation, first_key: true }
}

/// What each operation makes of all requests, in the order in which the entries name them.
pub(super) fn shares(mix_entries: &[MixEntry]) -> Vec<(Operation, f64)> {
    let mut counts: Vec<(Operation, u64)> = Vec::new();
    for entry in mix_entries {
        for step in entry.steps {
            match counts.iter_mut().find(|(operation, _)| *operation == step.operation) {
                Some((_, count)) => *count += u64::from(entry.weight),
                None => counts.push((step.operation, u64::from(entry.weight))),
            }
        }
    }
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    counts.into_iter().map(|(operation, count)| (operation, count as f64 / all as f64)).collect()
}

/// A mix as people write it: `get=50,put=30,delete=20`. The weights need not add up to anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// At least one.
    pub entries: Vec<MixEntry>,
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries: Vec<String> = self.entries.iter().map(MixEntry::to_string).collect();
        f.write_str(&entries.join(","))
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        let mut entries: Vec<MixEntry> = Vec::new();
        let drawn = |entry: &MixEntry| (entry.name, entry.distribution);
        for part in text.split(',') {
            let entry: MixEntry = part.parse()?;
            if entries.iter().any(|other| drawn(other) == drawn(&entry)) {
                return Err(format!("{} is given twice; hint: {SHAPE}", entry.name));
            }
            entries.push(entry);
        }
        Ok(Mix { entries })
    }
}

const SHAPE: &str = "write weights, as in get=50,put=30,delete=20";
/// More would be no weight that anybody can see in a run.
pub(super) const WEIGHT_MAX: u32 = 1_000_000;

impl fmt::Display for MixEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        if let Some(distribution) = self.distribution {
            write!(f, "@{distribution}")?;
        }
        write!(f, "={}", self.weight)
    }
}

impl FromStr for MixEntry {
    type Err = String;

    /// `get=50`, or `get@popular:20=50` with a distribution of its own.
    fn from_str(text: &str) -> Result<MixEntry, String> {
        let (name, weight) =
            text.split_once('=').ok_or_else(|| format!("`{text}` has no weight; hint: {SHAPE}"))?;
        let (name, distribution) = match name.split_once('@') {
            Some((name, distribution)) => (name, Some(distribution.parse()?)),
            None => (name, None),
        };
        let (name, steps) = named(MIX_ENTRIES, |(name, _)| name, name)
            .map_err(|known| format!("unknown operation `{name}`; hint: expected one of: {known}"))?;
        match weight.parse() {
            Ok(weight @ 1..=WEIGHT_MAX) => Ok(MixEntry { name, steps, distribution, weight }),
            _ => Err(format!(
                "`{weight}` is no weight from 1 to {WEIGHT_MAX}; hint: leave out what is not wanted"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_what_was_written() {
        for text in ["get=50,put=30,delete=20", "get@popular:20=21,get=49,put=20"] {
            assert_eq!(text.parse::<Mix>().unwrap().to_string(), text);
        }
        let mix: Mix = "get=50,put@scan=30".parse().unwrap();
        assert_eq!(mix.entries[1].distribution, Some(Distribution::Scan));
        for (name, steps) in MIX_ENTRIES {
            let expected = MixEntry { name, steps, distribution: None, weight: 7 };
            assert_eq!(format!("{name}=7").parse::<Mix>().unwrap().entries, [expected]);
        }
        for (wrong, expected) in [
            ("", "has no weight"),
            ("get", "has no weight"),
            ("get=1,", "has no weight"),
            ("scan=1", "expected one of: get, put"),
            ("get=0", "no weight from 1"),
            ("get=-1", "no weight from 1"),
            ("get=1,get=2", "twice"),
            ("get@normal=1", "expected one of: uniform"),
        ] {
            let why = wrong.parse::<Mix>().unwrap_err();
            assert!(why.contains(expected), "{wrong}: {why}");
        }
    }

    #[test]
    fn shares_are_of_requests_not_of_entries() {
        let third = 1.0 / 3.0;
        for (mix, expected) in [
            ("put=1,get=3", vec![(Operation::Put, 0.25), (Operation::Get, 0.75)]),
            ("get=50,read_modify_write=50", vec![(Operation::Get, 2.0 * third), (Operation::Put, third)]),
            ("put_put_delete=1", vec![(Operation::Put, 2.0 * third), (Operation::Delete, third)]),
        ] {
            assert_eq!(shares(&mix.parse::<Mix>().unwrap().entries), expected, "{mix}");
        }
    }

    #[test]
    fn an_operations_place_among_all_is_its_number() {
        for (place, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, place);
        }
    }
}
