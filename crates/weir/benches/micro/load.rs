//! The load generator's own work for a request: which key, and how long it took.

use crate::runner::{Run, Side};
use load::{DISTRIBUTIONS, Plan, Samples};
use std::hint::black_box;

/// Numbers of keys below `keys`, as `--distribution zipfian` draws them.
pub(crate) fn zipfian(keys: usize, seed: u64) -> impl Iterator<Item = u64> {
    key_numbers("zipfian:0.99", keys as u64, seed)
}

/// Numbers of the keys below `keys` that one client reads.
fn key_numbers(distribution: &str, keys: u64, seed: u64) -> impl Iterator<Item = u64> + use<> {
    let flags = format!(
        "load http://host:1 --mix get=1 --distribution {distribution} --keys {keys} --seed {seed} --clients 1"
    );
    let plan: Plan = clap::Parser::parse_from(flags.split(' '));
    load::key_numbers(&plan)
}

/// Every distribution there is, with what has to be said of it left out where it may be.
pub(crate) fn keys(run: &Run) {
    let draws = run.at_most(1 << 18);
    let keys = run.at_most(1_000_000) as u64;
    let side = |name: &'static str| {
        let written = if name == "popular" { "popular:100" } else { name };
        let mut numbers = key_numbers(written, keys, 1);
        Side::new(name, move || {
            numbers.by_ref().take(draws).filter(|number| black_box(*number) < keys).count()
        })
    };
    let sides = DISTRIBUTIONS.iter().map(|row| side(row.name())).collect();
    run.compare(&format!("a key of {keys}"), draws, sides);
}

/// Latencies around 100 µs, and from 1 µs to 1 s.
pub(crate) fn record(run: &Run) {
    let records = run.at_most(1 << 18);
    let side = |name, spread: u32| {
        // Drawn beforehand: only keeping them is measured.
        let latencies: Vec<u64> = (0..records as u64)
            .map(|i| {
                let bits = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                100_000 + (bits >> 40 << (bits % u64::from(spread)))
            })
            .collect();
        Side::new(name, move || {
            let mut samples = Samples::default();
            latencies.iter().for_each(|ns| samples.record(*ns));
            samples.summary().count as usize
        })
    };
    run.compare("a latency", records, vec![side("near each other", 1), side("far apart", 8)]);
}
