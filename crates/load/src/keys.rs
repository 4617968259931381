//! The operation stream of each client: what it asks for, and of which key, from a seed.
//!
//! A stream belongs to a client, never to a thread, so the same seed gives the same streams however many threads
//! share the clients. Pure: no clock, no sockets.

use super::Plan;
use super::distribution::{Distribution, THETA_DEFAULT};
use super::draw::{Scatter, Zipf, below, unit};
use super::header::HttpRequest;
use super::mix::{MixEntry, Operation, Step};
use super::value_size::Sizes;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// How many primes a request may ask for, first and last.
const PRIMES: (u64, u64) = (100, 1000);

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestSpec {
    pub(super) operation: Operation,
    /// Of its key; of primes how many; of a text what it is drawn from; of any other request its own, counted over all clients.
    pub(super) number: u64,
    /// How long the value of a PUT is; of anything else nothing.
    pub(super) value_bytes: usize,
    /// Of requests that are no operation on keys: which of them.
    pub(super) template: usize,
}

/// What is the same for all clients of a run, ready to draw from.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    mix_entries: Vec<WeightedEntry>,
    /// How many keys there are; at least one.
    keys: u64,
    scatter: Scatter,
    /// Where a sequence of all clients begins. It is the seed's, so that a run after it finds new keys where there are enough.
    first: u64,
    /// How many clients share the keys; at least one.
    clients: u64,
    sizes: Sizes,
}

/// An entry of the mix.
#[derive(Clone, Debug)]
struct WeightedEntry {
    /// Drawn by every point below it that is not below the one before.
    below: u64,
    steps: &'static [Step],
    distribution: Distribution,
    /// Of distributions with a skew.
    zipf: Zipf,
    /// Of a hotspot: how many keys are hot, the first ones.
    hot_keys: u64,
}

impl KeySpace {
    pub(super) fn new(plan: &Plan) -> KeySpace {
        const REQUEST: &[Step] = &[Step { operation: Operation::Request, first_key: false }];
        let (keys, entries): (_, Vec<(u32, _, _)>) = if plan.is_key_value() {
            let entry = |entry: &MixEntry| (entry.weight, entry.steps, plan.distribution_of(entry));
            (plan.keys(), plan.mix_entries().iter().map(entry).collect())
        } else {
            // They name no keys: they are drawn by their weights, and numbered.
            let entry = |request: &HttpRequest| (request.weight, REQUEST, Distribution::default());
            (u64::MAX, plan.requests().iter().map(entry).collect())
        };
        let mut drawn_below = 0;
        let mix_entries = entries.into_iter().map(|(weight, steps, distribution)| {
            drawn_below += u64::from(weight);
            let (theta, hot_percent) = match distribution {
                Distribution::Zipfian { theta } => (theta, 0.0),
                Distribution::Hotspot { keys_percent, .. } => (THETA_DEFAULT, keys_percent),
                _ => (THETA_DEFAULT, 0.0),
            };
            let hot_keys = ((keys as f64 * hot_percent / 100.0).round() as u64).clamp(1, keys);
            WeightedEntry { below: drawn_below, steps, distribution, zipf: Zipf::new(keys, theta), hot_keys }
        });
        KeySpace {
            mix_entries: mix_entries.collect(),
            keys,
            scatter: Scatter::new(keys),
            first: below(&mut Xoshiro256PlusPlus::seed_from_u64(plan.seed), keys),
            clients: u64::from(plan.clients),
            sizes: Sizes::new(plan.value_size()),
        }
    }
}

/// The requests of one client, one after the other, without end.
#[derive(Clone, Debug)]
pub(super) struct OperationStream {
    random: Xoshiro256PlusPlus,
    /// Which client's, counted over all threads.
    client: u64,
    taken: Taken,
    /// The steps left of the entry begun: its place and that of the next step.
    pending: Option<(usize, usize)>,
    /// The key of its first step.
    first_key: u64,
    /// Whether the last request inserts a new key.
    inserts: bool,
}

/// What a client has taken in sequence so far, of each distribution by itself: a mix may have several.
#[derive(Clone, Debug, Default)]
struct Taken {
    /// PUTs of new keys.
    inserts: u64,
    /// PUTs of its own keys.
    own: u64,
    /// Steps of the walk of all clients together.
    sequence: u64,
    /// Steps of its own walk.
    scan: u64,
    requests: u64,
}

/// The next number of a count.
fn take(count: &mut u64) -> u64 {
    *count += 1;
    *count - 1
}

/// One stream per client, in their order.
///
/// They are stretches of one generator, 2^128 steps apart, and so cannot overlap: seeding each client by itself could
/// only promise that it is unlikely.
pub(super) fn streams(seed: u64, clients: u32) -> Vec<OperationStream> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..u64::from(clients))
        .map(|client| {
            let own = random.clone();
            random.jump();
            let (taken, pending) = (Taken::default(), None);
            OperationStream { random: own, client, taken, pending, first_key: 0, inserts: false }
        })
        .collect()
}

/// The numbers of the keys that the first client of `plan` asks for, without end.
pub fn key_numbers(plan: &Plan) -> impl Iterator<Item = u64> + use<> {
    let space = KeySpace::new(plan);
    let mut client = streams(plan.seed, 1).swap_remove(0);
    std::iter::repeat_with(move || client.next(&space).number)
}

impl OperationStream {
    /// Which client's it is, counted over all threads.
    pub(super) fn client(&self) -> u32 {
        self.client as u32
    }

    /// The next request.
    pub(super) fn next(&mut self, space: &KeySpace) -> RequestSpec {
        let (place, at) = self.pending.take().unwrap_or_else(|| {
            let weights = space.mix_entries.last().map_or(1, |last| last.below);
            let point = below(&mut self.random, weights);
            (space.mix_entries.partition_point(|entry| entry.below <= point), 0)
        });
        let entry = &space.mix_entries[place];
        let Step { operation, first_key } = entry.steps[at];
        let number = match operation {
            Operation::ComputePrime => PRIMES.0 + below(&mut self.random, PRIMES.1 - PRIMES.0 + 1),
            Operation::ComputeHash => self.random.next_u64(),
            Operation::Request => {
                let sequence = take(&mut self.taken.requests);
                self.interleaved(sequence, space)
            }
            _ if first_key => self.first_key,
            _ => self.key(operation, entry, space),
        };
        self.inserts = entry.distribution == Distribution::Latest && operation.has_value() && !first_key;
        if at == 0 {
            self.first_key = number;
        }
        self.pending = (at + 1 < entry.steps.len()).then_some((place, at + 1));
        let value_bytes = if operation.has_value() { space.sizes.draw(&mut self.random) } else { 0 };
        RequestSpec { operation, number, value_bytes, template: place }
    }

    /// The last request, which has ended before another was drawn, failed: a key that it was to insert is not read, and inserted again.
    pub(super) fn failed(&mut self) {
        self.taken.inserts -= u64::from(std::mem::take(&mut self.inserts));
    }

    fn key(&mut self, operation: Operation, entry: &WeightedEntry, space: &KeySpace) -> u64 {
        let random = &mut self.random;
        match entry.distribution {
            Distribution::Uniform => below(random, space.keys),
            Distribution::Popular(count) => below(random, count.min(space.keys)),
            Distribution::Zipfian { .. } => space.scatter.place(entry.zipf.draw(random)),
            Distribution::Latest if operation.has_value() => {
                let sequence = take(&mut self.taken.inserts);
                self.inserted(sequence, space)
            }
            Distribution::Latest => {
                // From the newest back: first what this client inserted, then the keys that were there before. Always
                // over so many ranks as there were keys at first, so that the skew stays as it is while keys are added.
                let age = entry.zipf.draw(random);
                match self.taken.inserts.checked_sub(age + 1) {
                    Some(sequence) => self.inserted(sequence, space),
                    None => space.keys - 1 - (age - self.taken.inserts),
                }
            }
            Distribution::Hotspot { operations_percent, .. } => {
                let (hot_keys, cold_keys) = (entry.hot_keys, space.keys - entry.hot_keys);
                // Without cold keys there is nowhere else to go.
                if unit(random) < operations_percent / 100.0 || cold_keys == 0 {
                    below(random, hot_keys)
                } else {
                    hot_keys + below(random, cold_keys)
                }
            }
            Distribution::Sequence => {
                let sequence = take(&mut self.taken.sequence);
                let steps = self.interleaved(sequence, space);
                ((u128::from(space.first) + u128::from(steps)) % u128::from(space.keys)) as u64
            }
            Distribution::OwnSequence => self.own_key(operation, space),
            Distribution::Scan => {
                let offset = u128::from(space.keys) * u128::from(self.client) / u128::from(space.clients);
                ((offset + u128::from(take(&mut self.taken.scan))) % u128::from(space.keys)) as u64
            }
            Distribution::Single => 0,
        }
    }

    /// The key of a PUT is the client's next one; that of anything else is one of the client's latest, so that
    /// deletes (but for a first one) name keys that were written.
    fn own_key(&mut self, operation: Operation, space: &KeySpace) -> u64 {
        let sequence = match operation {
            _ if operation.has_value() => take(&mut self.taken.own),
            _ if self.taken.own == 0 => 0,
            _ => {
                let own = space.keys.div_ceil(space.clients);
                self.taken.own - 1 - below(&mut self.random, self.taken.own.min(own))
            }
        };
        self.interleaved(sequence, space)
    }

    /// Interleaved rather than in slabs: clients stay apart when they divide the keys, and every key gets its share when
    /// they do not.
    fn interleaved(&self, sequence: u64, space: &KeySpace) -> u64 {
        sequence.wrapping_mul(space.clients).wrapping_add(self.client) % space.keys
    }

    /// The key of the client's insert number `sequence`: behind those that were there, and no other client's.
    fn inserted(&self, sequence: u64, space: &KeySpace) -> u64 {
        space.keys + sequence * space.clients + self.client
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::{chi_squared, chi_squared_limit};
    use crate::{Mix, WORKLOADS, mix};
    use std::collections::HashSet;

    const DRAWS: usize = 200_000;

    fn space(workload: &str, keys: u64, clients: u32) -> KeySpace {
        KeySpace::new(&Plan { keys: Some(keys), clients, ..Plan::example(workload) })
    }

    fn stated(mix: &str, distribution: &str, keys: u64, clients: u32) -> KeySpace {
        let mix: Mix = mix.parse().unwrap();
        let distribution = Some(distribution.parse().unwrap());
        KeySpace::new(&Plan {
            mix: Some(mix),
            distribution,
            keys: Some(keys),
            clients,
            ..Plan::example("get_all")
        })
    }

    fn first(count: usize, seed: u64, client: usize, space: &KeySpace) -> Vec<(Operation, u64)> {
        let mut stream = streams(seed, space.clients as u32)[client].clone();
        (0..count).map(|_| stream.next(space)).map(|ask| (ask.operation, ask.number)).collect()
    }

    fn numbers(count: usize, seed: u64, client: usize, space: &KeySpace) -> Vec<u64> {
        first(count, seed, client, space).into_iter().map(|(_, number)| number).collect()
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
        for (workload, keys, expected) in [
            ("get_popular", 10, [5, 8, 8, 0, 8, 8, 5, 3]),
            ("get_all", 10_000, [5384, 8903, 8005, 181, 8157, 8122, 5358, 3166]),
            ("put_all", 100, [1, 3, 5, 7, 9, 11, 13, 15]),
            ("get_zipfian", 10_000, [6136, 6181, 8543, 2916, 8543, 8543, 8498, 5776]),
            ("ycsb_d", 10_000, [9943, 9998, 9996, 1563, 9996, 9996, 9941, 9503]),
        ] {
            assert_eq!(numbers(8, 1, 1, &space(workload, keys, 2)), expected, "{workload}");
        }
    }

    #[test]
    fn uniform_keys_pass_a_chi_squared_test() {
        let mut hits = vec![0.0; 1000];
        for key in numbers(DRAWS, 7, 0, &space("get_all", 1000, 1)) {
            hits[key as usize] += 1.0;
        }
        let (found, degrees) = chi_squared(&hits, &vec![DRAWS as f64 / 1000.0; 1000]);
        // Not too good either: p < 0.99.
        assert!(degrees == 999 && (898.0..chi_squared_limit(degrees)).contains(&found), "{found}");
    }

    #[test]
    fn zipfian_keys_pass_a_chi_squared_test_wherever_they_are_scattered() {
        for (seed, theta) in [(1, 0.5), (2, 0.99), (3, 1.2)] {
            let mut hits = vec![0.0; 1000];
            for key in numbers(DRAWS, seed, 0, &stated("get=1", &format!("zipfian:{theta}"), 1000, 1)) {
                hits[key as usize] += 1.0;
            }
            // In the order of the ranks, so that it is the seldom ones that are put together.
            let scatter = Scatter::new(1000);
            let seen: Vec<f64> = (0..1000).map(|rank| hits[scatter.place(rank) as usize]).collect();
            let heights: Vec<f64> = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).collect();
            let sum: f64 = heights.iter().sum();
            let expected: Vec<f64> = heights.iter().map(|height| DRAWS as f64 * height / sum).collect();
            let (found, degrees) = chi_squared(&seen, &expected);
            assert!(found < chi_squared_limit(degrees), "theta {theta}: {found} with {degrees} degrees");
        }
    }

    #[test]
    fn hotspot_keys_pass_a_chi_squared_test() {
        for (percents, hot_share, hot_keys) in
            [("80/20", 0.8, 200), ("99.5/0.5", 0.995, 5), ("30/100", 1.0, 1000)]
        {
            let mut hits = vec![0.0; 1000];
            for key in numbers(DRAWS, 4, 0, &stated("get=1", &format!("hotspot:{percents}"), 1000, 1)) {
                hits[key as usize] += 1.0;
            }
            let each = |share: f64, keys: usize| vec![DRAWS as f64 * share / keys as f64; keys];
            let expected = [each(hot_share, hot_keys), each(1.0 - hot_share, 1000 - hot_keys)].concat();
            let (found, degrees) = chi_squared(&hits, &expected);
            assert!(found < chi_squared_limit(degrees), "{percents}: {found} with {degrees} degrees");
        }
    }

    /// Reads of it were failures, several for each insert that a server refused.
    #[test]
    fn a_key_whose_insert_failed_is_inserted_again_and_not_read_before() {
        let space = stated("get=1,put=1", "latest", 10, 4);
        let mut stream = streams(6, 4).swap_remove(2);
        let mut there: HashSet<u64> = (0..10).collect();
        let mut refused = 0;
        for nth in 0..1000 {
            let RequestSpec { operation, number, .. } = stream.next(&space);
            match operation {
                Operation::Put if nth % 3 == 0 => {
                    stream.failed();
                    refused += 1;
                }
                Operation::Put => assert!(there.insert(number), "{number}"),
                _ => {
                    assert!(there.contains(&number), "{number}");
                    if nth % 3 == 0 {
                        stream.failed();
                    }
                }
            }
        }
        assert!(refused > 100);
        assert_eq!(there.iter().max(), Some(&(10 + (there.len() as u64 - 11) * 4 + 2)), "none is left out");
    }

    #[test]
    fn the_latest_keys_are_the_most_frequent_and_every_insert_is_a_new_key() {
        let space = stated("get=95,put=5", "latest", 1000, 4);
        let mut inserted = Vec::new();
        let mut reads_by_age = vec![0.0; 1000];
        for (operation, key) in first(DRAWS, 6, 2, &space) {
            if operation == Operation::Put {
                assert!(
                    key >= 1000
                        && key % 4 == (1000 + 2) % 4
                        && inserted.last().is_none_or(|last| key > *last)
                );
                inserted.push(key);
                continue;
            }
            // A key that is read was there from the start, or this client has written it before.
            let age = match inserted.binary_search(&key) {
                Ok(place) => inserted.len() - 1 - place,
                Err(_) => inserted.len() + 999 - key as usize,
            };
            reads_by_age[age] += 1.0;
        }
        assert!((9_000..11_000).contains(&inserted.len()));
        let reads: f64 = reads_by_age.iter().sum();
        let heights: Vec<f64> = (1..=1000).map(|rank| f64::from(rank).powf(-THETA_DEFAULT)).collect();
        let sum: f64 = heights.iter().sum();
        let expected: Vec<f64> = heights.iter().map(|height| reads * height / sum).collect();
        let (found, degrees) = chi_squared(&reads_by_age, &expected);
        assert!(found < chi_squared_limit(degrees), "{found} with {degrees} degrees");
    }

    /// They shared a count: of an own key that another distribution had counted there was no PUT.
    #[test]
    fn each_distribution_of_a_mix_counts_by_itself() {
        let mix: Mix =
            "get@latest=1,put@latest=1,get@own=1,put@own=1,get@scan=1,get@sequence=1".parse().unwrap();
        let space =
            KeySpace::new(&Plan { mix: Some(mix), keys: Some(1000), clients: 3, ..Plan::example("get_all") });
        let drawn = first(2000, 5, 1, &space);
        let inserts = drawn.iter().filter(|(of, key)| *of == Operation::Put && *key >= 1000);
        let expected = (0..).map(|sequence| 1000 + 3 * sequence + 1);
        assert!(inserts.clone().map(|(_, key)| *key).eq(expected.take(inserts.count())));
        let mut there: HashSet<u64> = (0..1000).collect();
        for (operation, key) in drawn {
            match operation {
                Operation::Put => drop(there.insert(key)),
                _ => assert!(there.contains(&key), "{key}"),
            }
        }
    }

    fn first_of(space: &KeySpace, seed: u64) -> u64 {
        streams(seed, 1)[0].clone().next(space).number
    }

    #[test]
    fn walks_take_every_key_in_its_turn() {
        let sequence = space("put_sequential", 10, 3);
        let first = numbers(1, 1, 0, &sequence)[0];
        assert_eq!(numbers(4, 1, 0, &sequence), [0, 3, 6, 9].map(|step| (first + step) % 10));
        assert_eq!(numbers(4, 1, 1, &sequence), [1, 4, 7, 0].map(|step| (first + step) % 10));
        let begins = |seed| {
            let plan = Plan { seed, ..Plan::example("put_all_big") };
            first_of(&KeySpace::new(&plan), seed)
        };
        assert!(begins(1).abs_diff(begins(2)) > 1_000_000, "another run writes other keys");
        let scan = space("get_scan", 10, 4);
        assert_eq!(numbers(11, 1, 0, &scan), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0]);
        assert_eq!(numbers(4, 1, 3, &scan), [7, 8, 9, 0]);
        assert_eq!(numbers(3, 1, 0, &stated("put=1", "single", 10, 1)), [0; 3]);
        assert!(numbers(1000, 1, 0, &stated("get=1", "popular:20", 1000, 1)).iter().all(|key| *key < 20));
    }

    #[test]
    fn the_observed_mix_is_the_one_asked_for() {
        for workload in WORKLOADS.iter() {
            let drawn = first(100_000, 3, 0, &space(&workload.name, 1000, 1));
            for (operation, share) in mix::shares(&workload.mix.entries) {
                let seen = drawn.iter().filter(|(drawn, _)| *drawn == operation).count() as f64;
                let sigma = (100_000.0 * share * (1.0 - share)).sqrt();
                assert!((seen - 100_000.0 * share).abs() <= 3.0 * sigma + 1.0, "{} {seen}", workload.name);
            }
        }
    }

    #[test]
    fn a_turn_is_asked_to_its_end_before_the_next_is_drawn() {
        let drawn = first(6, 1, 1, &space("put_delete_67_33", 1000, 2));
        let (put, delete) = (Operation::Put, Operation::Delete);
        assert_eq!(drawn, [(put, 1), (put, 3), (delete, 1), (put, 5), (put, 7), (delete, 5)]);
        let mut read = None;
        for (operation, key) in first(1000, 1, 0, &space("ycsb_f", 1000, 2)) {
            if operation == put {
                assert_eq!(read, Some(key), "what is written was read just before");
            }
            read = (operation == Operation::Get).then_some(key);
        }
    }

    #[test]
    fn computations_stay_within_their_bounds() {
        let counts = numbers(10_000, 1, 0, &space("compute_prime", 1, 1));
        assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&100), Some(&1000)));
        let texts: HashSet<u64> = numbers(1000, 1, 0, &space("compute_hash", 1, 1)).into_iter().collect();
        assert_eq!(texts.len(), 1000);
    }

    #[test]
    fn lengths_are_drawn_for_writes_only_and_only_where_they_vary() {
        let of = |value_size: &str| {
            let plan = Plan { value_size: Some(value_size.parse().unwrap()), ..Plan::example("mixed") };
            let mut stream = streams(1, 1)[0].clone();
            let space = KeySpace::new(&plan);
            (0..1000).map(|_| stream.next(&space)).collect::<Vec<RequestSpec>>()
        };
        for ask in of("10-20") {
            let range = if ask.operation == Operation::Put { 10..=20 } else { 0..=0 };
            assert!(range.contains(&ask.value_bytes), "{ask:?}");
        }
        let keys =
            |asks: Vec<RequestSpec>| asks.iter().map(|ask| (ask.operation, ask.number)).collect::<Vec<_>>();
        assert_eq!(keys(of("100")), keys(of("20000")));
        assert_eq!(keys(of("100")), first(1000, 1, 0, &space("mixed", 10_000, 1)));
    }

    #[test]
    fn own_sequences_share_the_keys_without_meeting() {
        let space = space("put_all", 60, 3);
        let mut all = HashSet::new();
        for client in 0..3 {
            let own: HashSet<u64> = numbers(500, 1, client, &space).into_iter().collect();
            assert_eq!(own.len(), 20);
            assert!(own.iter().all(|key| all.insert(*key)));
        }
        assert_eq!(all.len(), 60);
    }

    #[test]
    fn deletes_name_keys_that_were_written() {
        let mut written = HashSet::new();
        for (operation, key) in first(5000, 1, 2, &space("put_all", 100_000, 4)) {
            match operation {
                Operation::Put => assert!(written.insert(key) && key < 100_000),
                _ => assert!(written.is_empty() || written.contains(&key)),
            }
        }
        assert!(numbers(100, 1, 0, &space("put_all", 1, 4)).iter().all(|key| *key == 0));
    }
}
