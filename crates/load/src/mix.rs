//! The mix of operations: entries of one request or several, drawn by weight.
//!
//! Knows neither keys nor bytes on the wire, only that a step's key may be that of the entry's first step.

use super::distribution::Distribution;
use std::fmt;
use std::str::FromStr;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read.
    Get,
    /// Create or replace.
    Put,
    /// Remove.
    Delete,
    /// Have the server compute primes; no key.
    ComputePrime,
    /// Have the server hash a text; no key.
    ComputeHash,
}

impl Operation {
    /// All of them, in the order of reports; an operation's place here is `operation as usize`.
    pub const ALL: [Operation; 5] =
        [Operation::Get, Operation::Put, Operation::Delete, Operation::ComputePrime, Operation::ComputeHash];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        ["get", "put", "delete", "compute_prime", "compute_hash"][self as usize]
    }

    /// Its method on the wire, unless a dialect has another.
    pub fn method(self) -> &'static str {
        ["GET", "PUT", "DELETE", "GET", "GET"][self as usize]
    }

    /// Whether it names a key.
    pub fn has_key(self) -> bool {
        matches!(self, Operation::Get | Operation::Put | Operation::Delete)
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
    /// How often it is drawn, relative to the sum of all weights; at least 1.
    pub weight: u32,
    /// At least one.
    pub steps: &'static [Step],
    /// Which keys it names, where not those of the workload.
    pub distribution: Option<Distribution>,
}

/// A single read.
pub(super) const GET: &[Step] = &[step(Operation::Get)];
/// A single write.
pub(super) const PUT: &[Step] = &[step(Operation::Put)];
/// A single removal.
pub(super) const DELETE: &[Step] = &[step(Operation::Delete)];
/// Primes, once.
pub(super) const COMPUTE_PRIME: &[Step] = &[step(Operation::ComputePrime)];
/// A hash, once.
pub(super) const COMPUTE_HASH: &[Step] = &[step(Operation::ComputeHash)];
/// A read, then a write of the same key.
pub(super) const READ_MODIFY_WRITE: &[Step] =
    &[step(Operation::Get), Step { operation: Operation::Put, first_key: true }];
/// Two writes, then the first of them undone: one of two keys stays.
pub(super) const PUT_PUT_DELETE: &[Step] =
    &[step(Operation::Put), step(Operation::Put), Step { operation: Operation::Delete, first_key: true }];

/// What a mix may be made of, by the names of `--mix`.
pub static MIX_ENTRIES: &[(&str, &[Step])] = &[
    ("get", GET),
    ("put", PUT),
    ("delete", DELETE),
    ("read_modify_write", READ_MODIFY_WRITE),
    ("put_put_delete", PUT_PUT_DELETE),
    ("compute_prime", COMPUTE_PRIME),
    ("compute_hash", COMPUTE_HASH),
];

const fn step(operation: Operation) -> Step {
    Step { operation, first_key: false }
}

/// `steps`, drawn by `weight`.
pub(super) const fn turn(weight: u32, steps: &'static [Step]) -> MixEntry {
    MixEntry { weight, steps, distribution: None }
}

/// What each operation makes of all requests, in the order in which the turns name them.
pub(super) fn shares(mix_entries: &[MixEntry]) -> Vec<(Operation, f64)> {
    let mut counts: Vec<(Operation, u64)> = Vec::new();
    for turn in mix_entries {
        for step in turn.steps {
            match counts.iter_mut().find(|(operation, _)| *operation == step.operation) {
                Some((_, count)) => *count += u64::from(turn.weight),
                None => counts.push((step.operation, u64::from(turn.weight))),
            }
        }
    }
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    counts.into_iter().map(|(operation, count)| (operation, count as f64 / all as f64)).collect()
}

/// A mix as people write it: `get=50,put=30,delete=20`. The weights need not add up to anything.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    /// At least one, each with a weight.
    pub mix_entries: Vec<MixEntry>,
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, turn) in self.mix_entries.iter().enumerate() {
            let row = MIX_ENTRIES.iter().find(|(_, steps)| *steps == turn.steps);
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", row.map_or("", |(name, _)| name), turn.weight)?;
        }
        Ok(())
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Mix, String> {
        const SHAPE: &str = "write weights, as in get=50,put=30,delete=20";
        // More would be no weight that anybody can see in a run.
        const WEIGHT_MAX: u32 = 1_000_000;
        let mut mix_entries: Vec<MixEntry> = Vec::new();
        for part in text.split(',') {
            let Some((name, weight)) = part.split_once('=') else {
                return Err(format!("`{part}` has no weight; hint: {SHAPE}"));
            };
            let Some((_, steps)) = MIX_ENTRIES.iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = MIX_ENTRIES.iter().map(|(name, _)| *name).collect();
                return Err(format!(
                    "unknown operation `{name}`; hint: expected one of: {}",
                    known.join(", ")
                ));
            };
            if mix_entries.iter().any(|turn| turn.steps == *steps) {
                return Err(format!("{name} is given twice; hint: {SHAPE}"));
            }
            match weight.parse() {
                Ok(weight @ 1..=WEIGHT_MAX) => mix_entries.push(turn(weight, steps)),
                _ => {
                    return Err(format!(
                        "`{weight}` is no weight from 1 to {WEIGHT_MAX}; hint: leave out what is not wanted"
                    ));
                }
            }
        }
        Ok(Mix { mix_entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_what_was_written() {
        let mix: Mix = "get=50,put=30,delete=20".parse().unwrap();
        assert_eq!(mix.mix_entries, [turn(50, GET), turn(30, PUT), turn(20, DELETE)]);
        assert_eq!(mix.to_string(), "get=50,put=30,delete=20");
        for (name, steps) in MIX_ENTRIES {
            assert_eq!(format!("{name}=7").parse::<Mix>().unwrap().mix_entries, [turn(7, steps)]);
        }
        for (wrong, told) in [
            ("", "has no weight"),
            ("get", "has no weight"),
            ("get=1,", "has no weight"),
            ("scan=1", "expected one of: get, put"),
            ("get=0", "no weight from 1"),
            ("get=-1", "no weight from 1"),
            ("get=1,get=2", "twice"),
        ] {
            let why = wrong.parse::<Mix>().unwrap_err();
            assert!(why.contains(told), "{wrong}: {why}");
        }
    }

    #[test]
    fn shares_are_of_requests_not_of_turns() {
        let third = 1.0 / 3.0;
        for (mix, expected) in [
            ("put=1,get=3", vec![(Operation::Put, 0.25), (Operation::Get, 0.75)]),
            ("get=50,read_modify_write=50", vec![(Operation::Get, 2.0 * third), (Operation::Put, third)]),
            ("put_put_delete=1", vec![(Operation::Put, 2.0 * third), (Operation::Delete, third)]),
        ] {
            assert_eq!(shares(&mix.parse::<Mix>().unwrap().mix_entries), expected, "{mix}");
        }
    }

    #[test]
    fn an_operations_place_among_all_is_its_number() {
        for (place, operation) in Operation::ALL.into_iter().enumerate() {
            assert_eq!(operation as usize, place);
        }
    }
}
