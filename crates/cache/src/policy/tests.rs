//! What all policies have in common, and how they compare on requests whose answer is known.

use super::*;
use crate::Limits;
use crate::shadow::ShadowPolicies;
use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// A hash that is the same in every run (the finalizer of SplitMix64).
pub(crate) fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 30).wrapping_add(0x9E37_79B9_7F4A_7C15).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

fn below(random: &mut Xoshiro256PlusPlus, end: usize) -> usize {
    (random.next_u64() % end as u64) as usize
}

#[test]
fn a_victim_is_always_held_and_no_slot_is_lost_or_doubled() {
    for row in POLICIES {
        for seed in 0..4 {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut policy, mut held, mut free) =
                ((row.new)(), BTreeSet::new(), BTreeSet::from_iter(0..200));
            let evict = |policy: &mut Box<dyn Policy>, held: &mut BTreeSet<Slot>| {
                let victim = policy.victim();
                assert!(held.remove(&victim), "{}: {victim} is not held", row.name);
                policy.on_remove(victim);
                victim
            };
            for step in 0..20_000 {
                // It fills and empties in turn, so that segments and hands meet every size.
                let inserts = if step / 1000 % 2 == 0 { 60 } else { 35 };
                let any = |random: &mut _, slots: &BTreeSet<Slot>| {
                    slots.iter().nth(below(random, slots.len())).copied().unwrap()
                };
                match below(&mut random, 100) {
                    point if point < inserts => {
                        if free.is_empty() {
                            free.insert(evict(&mut policy, &mut held));
                        }
                        let slot = any(&mut random, &free);
                        free.remove(&slot);
                        held.insert(slot);
                        policy.on_insert(slot, hash(random.next_u64() % 500));
                    }
                    _ if held.is_empty() => {}
                    point if point < 75 => policy.on_hit(any(&mut random, &held)),
                    point if point < 90 => {
                        let slot = any(&mut random, &held);
                        held.remove(&slot);
                        free.insert(slot);
                        policy.on_remove(slot);
                    }
                    _ => drop(free.insert(evict(&mut policy, &mut held))),
                }
            }
            while !held.is_empty() {
                evict(&mut policy, &mut held);
            }
        }
    }
}

/// The share of `reads` that each of [`POLICIES`] answers with room for `rows` of them; missed ones are filled.
fn hit_ratios(rows: usize, reads: impl Iterator<Item = u64>) -> impl Fn(&str) -> f64 {
    let state = SeedableRandomState::with_seed(0, SharedSeed::global_fixed());
    let limits = Limits { entries: rows, bytes: usize::MAX };
    let policies: Vec<&'static PolicyRow> = POLICIES.iter().collect();
    let mut shadows = ShadowPolicies::new(&policies, limits, 1, &state);
    reads.for_each(|key| shadows.hit(hash(key), 100));
    let counts: Vec<_> = shadows.counts().collect();
    move |name| {
        let of = counts.iter().find(|of| of.policy == name).unwrap();
        of.hits as f64 / (of.hits + of.misses) as f64
    }
}

/// Reads of `keys` keys, the `i`-th of them in proportion to `1 / i^skew`.
pub(crate) fn zipf(keys: usize, skew: f64, seed: u64) -> impl Iterator<Item = u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut total = 0.0;
    let below: Vec<f64> = (1..=keys)
        .map(|rank| {
            total += (rank as f64).powf(-skew);
            total
        })
        .collect();
    std::iter::repeat_with(move || {
        let point = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        below.partition_point(|below| *below < point) as u64
    })
}

const SKILLED: [&str; 3] = ["sieve", "s3fifo", "w-tinylfu"];

/// The papers' own comparison. On independent reads nobody can do better than to hold the most popular keys for ever.
#[test]
fn on_zipfian_reads_the_new_policies_are_ahead_of_lru_and_fifo_is_behind() {
    for (skew, seed) in [(0.9, 1), (1.0, 2)] {
        let ratio = hit_ratios(500, zipf(5000, skew, seed).take(100_000));
        let best = {
            let share = |keys: usize| (1..=keys).map(|rank| (rank as f64).powf(-skew)).sum::<f64>();
            share(500) / share(5000)
        };
        let lru = ratio("lru");
        assert!(ratio("fifo") + 0.03 < lru && lru < ratio("clock"), "{skew}: {lru}");
        for name in SKILLED {
            assert!(ratio(name) > lru + 0.05 && ratio(name) < best + 0.005, "{skew} {name}: {}", ratio(name));
        }
    }
}

/// Half of the reads go to 400 hot keys, the other half scan keys that never come again: 2000 of each in turn.
#[test]
fn a_scan_flushes_lru_and_leaves_the_others_their_hot_set() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
    let reads = (0..100_000).map(move |i| if i / 2000 % 2 == 1 { 1000 + i } else { random.next_u64() % 400 });
    let ratio = hit_ratios(500, reads);
    // Flushed, each key of the hot set is missed once in every round: 400 of 4000 reads.
    for name in ["lru", "fifo", "clock"] {
        assert!((0.39..0.41).contains(&ratio(name)), "{name}: {}", ratio(name));
    }
    for name in SKILLED {
        assert!((0.49..=0.5).contains(&ratio(name)), "{name}: {}", ratio(name));
    }
}

/// Round and round over six fifths of what there is room for: whoever evicts by age evicts what is needed next. At best
/// all but one place keep what they have.
#[test]
fn a_loop_defeats_those_that_go_by_age() {
    let ratio = hit_ratios(500, (0..100_000).map(|i| i % 600));
    for name in ["lru", "fifo", "clock", "sieve"] {
        assert_eq!(ratio(name), 0.0, "{name}");
    }
    for name in ["s3fifo", "w-tinylfu"] {
        assert!((0.6..500.0 / 600.0).contains(&ratio(name)), "{name}: {}", ratio(name));
    }
}

/// What is popular changes: whoever counts must forget.
#[test]
fn every_policy_follows_when_the_hot_set_moves() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(4);
    let reads = (0..100_000).map(move |i| i / 20_000 * 1000 + random.next_u64() % 400);
    let ratio = hit_ratios(500, reads);
    for row in POLICIES {
        // 400 of 20000 must be missed after each move; w-tinylfu takes longest to believe it.
        assert!(ratio(row.name) > 0.89, "{}: {}", row.name, ratio(row.name));
    }
}
