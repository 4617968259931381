//! The data of the lab: experiment files, `results.json`, the simulated target, cores. No processes, no network.

pub mod experiment;
pub mod topology;
pub mod figure;
pub mod published;
pub mod summaries;
pub mod results;
pub mod search;
pub mod simulated;

use kv::Error;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::AddAssign;

/// A mistake in what was given, that says `what` is wrong and what to do, unless a rule `holds`.
pub fn ensure(holds: bool, what: impl Display, hint: impl Display) -> Result<(), Error> {
    if holds { Ok(()) } else { Err(Error::input(what).hint(hint)) }
}

/// The sum of what stands under each name.
pub fn sums<K: Ord, N: Default + AddAssign>(all: impl IntoIterator<Item = (K, N)>) -> BTreeMap<K, N> {
    let mut sums = BTreeMap::new();
    all.into_iter().for_each(|(name, number)| *sums.entry(name).or_default() += number);
    sums
}

/// Each of `all` once, where it first stands.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for of in all {
        if !seen.contains(&of) {
            seen.push(of);
        }
    }
    seen
}
