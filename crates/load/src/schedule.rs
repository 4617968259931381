//! What pacing means for each client of a thread: how long it thinks, or when its requests are to be sent.
//!
//! A schedule belongs to a client, never to a thread or a connection: however many threads share the clients, the same
//! seed asks at the same instants. Pure: instants in, instants out; reads no clock.

use super::draw::unit;
use super::pacing::{Arrivals, Pacing, Think};
use super::stages::Stages;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// The clocks of some clients.
#[derive(Debug)]
pub(super) struct Schedule {
    pacing: Pacing,
    offered: Option<Stages>,
    /// What the instants are counted from.
    begun: Instant,
    /// How many clients share the rate.
    of: u64,
    clients: Vec<Clock>,
    /// By server: the next instant of each of its clients, in nanoseconds, earliest first; empty in a closed loop.
    ///
    /// No more than that: what is due and not sent is here as its client's next instant, so that a queue of any length
    /// takes no room.
    due: Vec<BinaryHeap<Reverse<(u64, usize)>>>,
}

/// How many instants that will not be used are drawn at most, to be counted, over all clients.
const DRAWN_MAX: u64 = 10_000_000;
/// In how many parts the others are counted.
const STEPS: u64 = 100;

/// What one client's instants are drawn from.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    random: Xoshiro256PlusPlus,
    /// Which client's, counted over all.
    client: u64,
    /// The place of the server that its requests go to.
    pub(super) server: usize,
    /// Instants taken so far.
    taken: u64,
    /// Of a Poisson process: the sum of the gaps so far, in requests offered.
    sum: f64,
}

/// One clock for each client, in their order, all of the first server.
///
/// As with `keys::streams` they are stretches of one generator; it begins 2^192 steps from where those begin, so that no
/// instant has to do with any key.
pub(super) fn clocks(seed: u64, clients: u32) -> Vec<Clock> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    random.long_jump();
    (0..u64::from(clients))
        .map(|client| {
            let own = random.clone();
            random.jump();
            Clock { random: own, client, server: 0, taken: 0, sum: 0.0 }
        })
        .collect()
}

impl Schedule {
    /// For some of `of` clients, whose instants are counted from `begun`.
    pub(super) fn new(pacing: Pacing, clients: Vec<Clock>, of: u32, begun: Instant) -> Schedule {
        let servers = clients.iter().map(|clock| clock.server + 1).max().unwrap_or(0);
        let due = vec![BinaryHeap::new(); servers];
        let mut schedule =
            Schedule { pacing, offered: pacing.offered(), begun, of: u64::from(of), clients, due };
        if schedule.is_open() {
            for index in 0..schedule.clients.len() {
                schedule.advance(index);
            }
        }
        schedule
    }

    /// Of a closed loop without think time.
    pub(super) fn none() -> Schedule {
        Schedule::new(Pacing::default(), Vec::new(), 0, Instant::now())
    }

    /// Whether instants are fixed beforehand.
    pub(super) fn is_open(&self) -> bool {
        self.offered.is_some()
    }

    /// Whether there are instants to wait for that are not a socket's: those deserve a timer finer than a millisecond.
    pub(super) fn is_timed(&self) -> bool {
        self.pacing != Pacing::default()
    }

    /// How long client `index` of a closed loop thinks this time.
    pub(super) fn think(&mut self, index: usize) -> Duration {
        let Think { mean, exponential: true } = self.pacing.think else { return self.pacing.think.mean };
        mean.mul_f64(exponential(&mut self.clients[index].random))
    }

    /// When the next request of an open loop is to be sent to this server, be it in the past.
    pub(super) fn next_at(&self, server: usize) -> Option<Instant> {
        let Reverse((ns, _)) = self.due.get(server)?.peek()?;
        Some(self.begun + Duration::from_nanos(*ns))
    }

    /// The same of all servers.
    pub(super) fn first_at(&self) -> Option<Instant> {
        (0..self.due.len()).filter_map(|server| self.next_at(server)).min()
    }

    /// Takes the next request to this server: when it was to be sent, and which client's it is.
    pub(super) fn take(&mut self, server: usize) -> Option<(Instant, usize)> {
        let Reverse((ns, index)) = self.due.get_mut(server)?.pop()?;
        self.advance(index);
        Some((self.begun + Duration::from_nanos(ns), index))
    }

    /// Calls `with` for the requests that were to be sent before `until` and were not taken: when, and how many. Instants
    /// beyond [`DRAWN_MAX`] are not drawn: as many are counted as are to be expected, spread evenly in [`STEPS`].
    pub(super) fn untaken(self, until: Instant, mut with: impl FnMut(Instant, u64)) {
        let (Some(offered), Pacing { arrivals, .. }) = (self.offered, self.pacing) else { return };
        let until = until.saturating_duration_since(self.begun).as_nanos() as u64;
        let due = |ns: u64| offered.due(ns as f64 / 1e9) / self.of as f64;
        let instant = |ns: u64| self.begun + Duration::from_nanos(ns);
        let drawn_max = DRAWN_MAX / self.clients.len().max(1) as u64;
        for Reverse((next, index)) in self.due.into_iter().flatten() {
            let mut clock = self.clients[index].clone();
            let (mut at, mut drawn) = (next, 0);
            while at < until && drawn < drawn_max {
                with(instant(at), 1);
                at = clock.next_ns(arrivals, self.of, &offered);
                drawn += 1;
            }
            if at < until {
                let left = (due(until) - due(at)).max(0.0).ceil() as u64;
                let part = |whole: u64, step: u64| whole / STEPS * step + whole % STEPS * step / STEPS;
                for step in 0..STEPS {
                    with(instant(at + part(until - at, step)), part(left, step + 1) - part(left, step));
                }
            }
        }
    }

    /// Fixes the next instant of client `index`.
    fn advance(&mut self, index: usize) {
        let Some(offered) = &self.offered else { return };
        let clock = &mut self.clients[index];
        let ns = clock.next_ns(self.pacing.arrivals, self.of, offered);
        self.due[clock.server].push(Reverse((ns, index)));
    }
}

impl Clock {
    /// The next instant of one of `of` clients that share what is offered, in nanoseconds.
    fn next_ns(&mut self, arrivals: Arrivals, of: u64, offered: &Stages) -> u64 {
        let number = self.taken;
        self.taken += 1;
        let count = match arrivals {
            // From whole numbers, so that no error adds up. The clients take turns, and each keeps its place.
            Arrivals::Constant => (number * of + self.client) as f64,
            // One of rate 1, in time that passes as fast as requests are offered. Poisson processes of all clients, laid over
            // each other, are one of the sum of their rates.
            Arrivals::Poisson => {
                self.sum += exponential(&mut self.random) * of as f64;
                self.sum
            }
        };
        (offered.at(count) * 1e9).round() as u64
    }
}

/// Exponentially distributed with mean 1.
fn exponential(random: &mut Xoshiro256PlusPlus) -> f64 {
    // One less the number, which may be 0: its logarithm is finite.
    -(1.0 - unit(random)).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::units::Rate;

    fn open(rate: f64, arrivals: Arrivals) -> Pacing {
        Pacing { rate: Some(Rate(rate)), arrivals, ..Pacing::default() }
    }

    /// The first `count` instants of `clients` clients dealt to `threads` threads, in nanoseconds, sorted.
    fn instants(pacing: Pacing, seed: u64, clients: u32, threads: usize, count: usize) -> Vec<(u64, u64)> {
        let begun = Instant::now();
        let clocks = clocks(seed, clients);
        let mut all = Vec::new();
        for thread in 0..threads {
            let own: Vec<Clock> = clocks.iter().skip(thread).step_by(threads).cloned().collect();
            let numbers: Vec<u64> = own.iter().map(|clock| clock.client).collect();
            let mut schedule = Schedule::new(pacing, own, clients, begun);
            for _ in 0..count {
                let (at, index) = schedule.take(0).unwrap();
                all.push((at.duration_since(begun).as_nanos() as u64, numbers[index]));
            }
        }
        all.sort_unstable();
        all.truncate(count);
        all
    }

    #[test]
    fn a_constant_rate_is_even_from_first_to_last() {
        let all = instants(open(1000.0, Arrivals::Constant), 1, 7, 1, 100_000);
        for (place, (ns, client)) in all.iter().enumerate() {
            assert_eq!((*ns, *client), (place as u64 * 1_000_000, place as u64 % 7));
        }
        // A rate whose gap is no whole number of nanoseconds does not drift.
        let (last, _) = instants(open(30_000.0, Arrivals::Constant), 1, 3, 1, 300_001)[300_000];
        assert_eq!(last, 10_000_000_000);
    }

    #[test]
    fn the_same_seed_sends_at_the_same_instants_with_any_number_of_threads() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let one = instants(open(5000.0, arrivals), 7, 14, 1, 5000);
            for threads in [2, 7] {
                assert_eq!(instants(open(5000.0, arrivals), 7, 14, threads, 5000), one, "{threads} threads");
            }
            let other = instants(open(5000.0, arrivals), 8, 14, 1, 5000);
            assert_eq!(other == one, arrivals == Arrivals::Constant);
        }
    }

    /// By how much gaps differ from an exponential distribution of which the mean is known: Anderson and Darling's A².
    fn anderson_darling(mut gaps: Vec<f64>, mean: f64) -> f64 {
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len();
        let below = |gap: f64| (1.0 - (-gap / mean).exp()).clamp(1e-300, 1.0 - 1e-16);
        let sum: f64 = (0..n)
            .map(|i| (2 * i + 1) as f64 * (below(gaps[i]).ln() + (1.0 - below(gaps[n - 1 - i])).ln()))
            .sum();
        -(n as f64) - sum / n as f64
    }

    #[test]
    fn gaps_of_a_poisson_process_pass_anderson_and_darling() {
        // Source: Anderson & Darling, A Test of Goodness of Fit (1954): 3.857 at 1 % where nothing is estimated.
        const LIMIT: f64 = 3.857;
        for (seed, clients) in [(1, 1), (2, 16), (3, 1000)] {
            let all = instants(open(1000.0, Arrivals::Poisson), seed, clients, 1, 20_000);
            let gaps: Vec<f64> = all.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
            let found = anderson_darling(gaps, 1e6);
            assert!(found < LIMIT, "{clients} clients: {found}");
        }
        // The test can fail: even gaps are no Poisson process.
        assert!(anderson_darling(vec![1e6; 1000], 1e6) > LIMIT);
    }

    #[test]
    fn thoughts_have_the_mean_they_were_given() {
        let ms = Duration::from_millis(10);
        let mean_ms = |mean: Duration, exponential: bool| {
            let pacing = Pacing { think: Think { mean, exponential }, ..Pacing::default() };
            let mut schedule = Schedule::new(pacing, clocks(1, 1), 1, Instant::now());
            (0..10_000).map(|_| schedule.think(0).as_secs_f64()).sum::<f64>() / 10.0
        };
        assert_eq!(mean_ms(Duration::ZERO, false), 0.0);
        assert!((mean_ms(ms, false) - 10.0).abs() < 1e-6);
        // Three standard deviations of the mean of so many.
        assert!((mean_ms(ms, true) - 10.0).abs() < 0.3);
    }

    #[test]
    fn what_was_not_taken_is_counted_where_it_was_due() {
        let pacing = open(1000.0, Arrivals::Constant);
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut schedule = Schedule::new(pacing, clocks(1, 3), 3, begun);
        for _ in 0..100 {
            schedule.take(0);
        }
        assert_eq!(schedule.first_at(), Some(at(100)));
        let untaken = |schedule: Schedule, from: Instant, until: Instant| {
            let mut count = 0;
            schedule.untaken(until, |at, of| count += if at >= from { of } else { 0 });
            count
        };
        assert_eq!(untaken(schedule, at(50), at(200)), 100);
        let schedule = Schedule::new(pacing, clocks(1, 3), 3, begun);
        assert_eq!(untaken(schedule, at(50), at(200)), 150);

        // However many there are: an hour of a thousand million a second.
        let hour = begun + Duration::from_secs(3600);
        let many = |arrivals| Schedule::new(open(1e9, arrivals), clocks(1, 7), 7, begun);
        assert_eq!(untaken(many(Arrivals::Constant), begun, hour), 3_600_000_000_000);
        let about = untaken(many(Arrivals::Poisson), begun, hour) as f64;
        assert!((about / 3.6e12 - 1.0).abs() < 1e-3, "{about}");
        // Drawn one by one as long as that is quick.
        let mut one_by_one = Schedule::new(open(1e5, Arrivals::Poisson), clocks(1, 7), 7, begun);
        let other = Schedule::new(open(1e5, Arrivals::Poisson), clocks(1, 7), 7, begun);
        let counted = untaken(other, at(50), at(200));
        let instants = std::iter::from_fn(|| one_by_one.take(0).filter(|(due, _)| *due < at(200)));
        assert_eq!(instants.filter(|(due, _)| *due >= at(50)).count() as u64, counted);
    }
}
