//! The operation stream of each client: what it asks for, and of which key, from a seed.
//!
//! A stream belongs to a client, never to a thread, so the same seed gives the same streams however many threads
//! share the clients. Pure: no clock, no sockets.

use super::workload::{Distribution, Operation, Workload};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Whom the streams serve: what is the same for all clients of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Space {
    pub(super) workload: &'static Workload,
    /// How many keys there are; at least one.
    pub(super) keys: u64,
    /// How many clients share them; at least one.
    pub(super) clients: u64,
}

/// The requests of one client, one after the other, without end.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    random: Xoshiro256PlusPlus,
    /// Which client's, counted over all threads.
    client: u64,
    /// PUTs so far.
    puts: u64,
}

/// One stream per client, in their order.
///
/// They are stretches of one generator, 2^128 steps apart, and so cannot overlap: seeding each client by itself could
/// only promise that it is unlikely.
pub(super) fn streams(seed: u64, clients: u32) -> Vec<Stream> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..u64::from(clients))
        .map(|client| {
            let own = random.clone();
            random.jump();
            Stream { random: own, client, puts: 0 }
        })
        .collect()
}

impl Stream {
    /// The next operation, and the number of its key.
    pub(super) fn next(&mut self, space: &Space) -> (Operation, u64) {
        let operation = space.workload.operation_at(below(&mut self.random, 100));
        let key = match space.workload.distribution {
            Distribution::Uniform => below(&mut self.random, space.keys),
            Distribution::OwnSequence => self.own_key(operation, space),
        };
        (operation, key)
    }

    /// The key of a PUT is the client's next one; that of anything else is one of the client's latest, so that
    /// deletes (but for a first one) name keys that were written.
    fn own_key(&mut self, operation: Operation, space: &Space) -> u64 {
        let sequence = match operation {
            Operation::Put => {
                self.puts += 1;
                self.puts - 1
            }
            _ if self.puts == 0 => 0,
            _ => {
                let own = space.keys.div_ceil(space.clients);
                self.puts - 1 - below(&mut self.random, self.puts.min(own))
            }
        };
        // Interleaved rather than in slabs: clients stay apart when they divide the keys, and every key gets its
        // share when they do not.
        sequence.wrapping_mul(space.clients).wrapping_add(self.client) % space.keys
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn space(workload: &str, keys: u64, clients: u64) -> Space {
        Space { workload: Workload::named(workload).unwrap(), keys, clients }
    }

    fn first(count: usize, seed: u64, client: usize, space: &Space) -> Vec<(Operation, u64)> {
        let mut stream = streams(seed, space.clients as u32)[client].clone();
        (0..count).map(|_| stream.next(space)).collect()
    }

    #[test]
    fn a_stream_depends_on_seed_and_client_only() {
        let few = space("mixed", 1000, 4);
        let many = space("mixed", 1000, 9);
        assert_eq!(first(100, 1, 3, &few), first(100, 1, 3, &many));
        assert_ne!(first(100, 1, 3, &few), first(100, 1, 2, &few));
        assert_ne!(first(100, 1, 3, &few), first(100, 2, 3, &few));
    }

    #[test]
    fn streams_stay_the_same_over_versions() {
        // A recorded run can be repeated only while this holds; a change here belongs in the changelog.
        let drawn = first(4, 1, 1, &space("mixed", 10_000, 2));
        let expected = [
            (Operation::Delete, 5384),
            (Operation::Put, 8903),
            (Operation::Delete, 8005),
            (Operation::Put, 181),
        ];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn uniform_keys_pass_a_chi_squared_test() {
        let space = space("get_all", 1000, 1);
        let mut hits = vec![0f64; 1000];
        for (_, key) in first(200_000, 7, 0, &space) {
            hits[key as usize] += 1.0;
        }
        let expected = 200.0;
        let chi_squared: f64 = hits.iter().map(|hit| (hit - expected) * (hit - expected) / expected).sum();
        // 999 degrees of freedom: p > 0.01 below 1105.9, p < 0.99 above 898.
        assert!((898.0..1105.9).contains(&chi_squared), "{chi_squared}");
    }

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
    fn the_observed_mix_is_the_one_asked_for() {
        for workload in super::super::workload::WORKLOADS {
            let drawn = first(100_000, 3, 0, &space(workload.name, 1000, 1));
            for &(operation, percent) in workload.mix {
                let share = f64::from(percent) / 100.0;
                let seen = drawn.iter().filter(|(drawn, _)| *drawn == operation).count() as f64;
                let sigma = (100_000.0 * share * (1.0 - share)).sqrt();
                assert!((seen - 100_000.0 * share).abs() <= 3.0 * sigma, "{} {seen}", workload.name);
            }
        }
    }

    #[test]
    fn own_sequences_share_the_keys_without_meeting() {
        let space = space("put_all", 60, 3);
        let mut all = HashSet::new();
        for client in 0..3 {
            let own: HashSet<u64> = first(500, 1, client, &space).into_iter().map(|(_, key)| key).collect();
            assert_eq!(own.len(), 20);
            assert!(own.iter().all(|key| all.insert(*key)));
        }
        assert_eq!(all.len(), 60);
    }

    #[test]
    fn deletes_name_keys_that_were_written() {
        let space = space("put_all", 100_000, 4);
        let mut written = HashSet::new();
        for (operation, key) in first(5000, 1, 2, &space) {
            match operation {
                Operation::Put => assert!(written.insert(key) && key < space.keys),
                _ => assert!(written.is_empty() || written.contains(&key)),
            }
        }
        assert!(first(100, 1, 0, &Space { keys: 1, ..space }).iter().all(|(_, key)| *key == 0));
    }
}
