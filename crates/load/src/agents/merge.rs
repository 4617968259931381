//! What agents counted, as text, and put together again: nothing is lost on the way.
//!
//! Histograms travel as their buckets and counts, sums as whole numbers, so that those of several agents add up to what one
//! recorder would hold. What does not add up in itself is refused.

use super::super::answer::Fault;
use super::super::measure::Tally;
use super::super::mix::Operation;
use super::super::recorder::{Open, Recorder, Window};
use super::super::samples::Samples;
use super::super::seconds::{Second, Told, whole_bins};
use super::super::{Pacing, Plan};
use super::AGENTS_MAX;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// More of anything would be too much for the sum over all agents.
const MOST: u64 = u64::MAX / AGENTS_MAX as u64;
const MOST_TIME: Duration = Duration::from_secs(MOST);

/// A [`Tally`] as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TallyText {
    threads: u32,
    cpu: Duration,
    run_delay: Option<Duration>,
    /// By operation.
    attempts: BTreeMap<String, u64>,
    successes: BTreeMap<String, SamplesText>,
    failures: SamplesText,
    /// By class.
    faults: BTreeMap<String, u64>,
    absent: u64,
    verified: u64,
    /// Connections begun, and how long those took that were made.
    connects: u64,
    connecting: SamplesText,
    backoff: Duration,
    think: Duration,
    in_flight_secs: f64,
    in_flight_at_end: u64,
    edge_secs: f64,
    open: Option<OpenText>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenText {
    service: SamplesText,
    slip: SamplesText,
    due: u64,
    sent: u64,
    waited: u64,
    waited_time: Duration,
    behind_at_start: Option<Duration>,
    behind_at_end: Duration,
}

/// [`Samples`] as text. Without samples the shortest is longer than the longest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SamplesText {
    sum: Duration,
    min_ns: u64,
    max_ns: u64,
    clipped: u64,
    /// The shortest latency of each bucket that holds any, in nanoseconds, and how many it holds.
    buckets: Vec<(u64, u64)>,
}

impl TallyText {
    pub(super) fn of(tally: &Tally) -> TallyText {
        let recorder = &tally.recorder;
        let by_name = |operation: Operation| operation.name().to_owned();
        TallyText {
            threads: tally.threads,
            cpu: tally.cpu,
            run_delay: tally.run_delay,
            attempts: Operation::ALL
                .map(|operation| (by_name(operation), recorder.attempts[operation as usize]))
                .into(),
            successes: Operation::ALL
                .map(|operation| {
                    (by_name(operation), SamplesText::of(&recorder.successes[operation as usize]))
                })
                .into(),
            failures: SamplesText::of(&recorder.failures),
            faults: Fault::ALL.map(|fault| (fault.name().to_owned(), recorder.faults[fault as usize])).into(),
            absent: recorder.absent,
            verified: recorder.verified,
            connects: recorder.connecting.begun,
            connecting: SamplesText::of(&recorder.connecting.made),
            backoff: recorder.backoff,
            think: recorder.think,
            in_flight_secs: recorder.population.secs,
            in_flight_at_end: recorder.population.at_end,
            edge_secs: recorder.population.edge_secs,
            open: recorder.open.as_ref().map(|open| OpenText {
                service: SamplesText::of(&open.service),
                slip: SamplesText::of(&open.slip),
                due: open.due,
                sent: open.sent,
                waited: open.waited,
                waited_time: open.waited_time,
                behind_at_start: open.behind_at_start,
                behind_at_end: open.behind_at_end,
            }),
        }
    }

    /// The tally again, of a run of `plan`. `Err` says what does not add up.
    pub(super) fn tally(&self, plan: &Plan) -> Result<Tally, String> {
        let mut tally = empty(plan);
        tally.threads = bounded(self.threads.into(), 1024)? as u32;
        tally.cpu = time(self.cpu)?;
        tally.run_delay = self.run_delay.map(time).transpose()?;
        let recorder = &mut tally.recorder;
        for operation in Operation::ALL {
            let place = operation as usize;
            let name = operation.name();
            let (attempts, successes) = self.attempts.get(name).zip(self.successes.get(name)).ok_or(name)?;
            recorder.attempts[place] = bounded(*attempts, MOST)?;
            recorder.successes[place] = successes.samples()?;
            if successes.count() > *attempts {
                return Err(format!("more {name} succeeded than were attempted"));
            }
        }
        recorder.failures = self.failures.samples()?;
        for fault in Fault::ALL {
            let count = self.faults.get(fault.name()).ok_or(fault.name())?;
            recorder.faults[fault as usize] = bounded(*count, MOST)?;
        }
        let failures = self.failures.count();
        let faults: u128 = self.faults.values().map(|count| u128::from(*count)).sum();
        let attempts: u128 = self.attempts.values().map(|count| u128::from(*count)).sum();
        let successes: u128 = self.successes.values().map(|samples| u128::from(samples.count())).sum();
        if faults != u128::from(failures)
            || attempts != successes + u128::from(failures)
            || attempts > u128::from(MOST)
        {
            return Err(format!("{attempts} attempts are not {successes} successes and {failures} failures"));
        }
        recorder.absent = bounded(self.absent, successes as u64)?;
        recorder.verified = bounded(self.verified, attempts as u64)?;
        recorder.connecting.begun = bounded(self.connects, attempts as u64)?;
        recorder.connecting.made = self.connecting.samples()?;
        if self.connecting.count() > self.connects {
            return Err("more connections were made than were begun".into());
        }
        recorder.backoff = time(self.backoff)?;
        recorder.think = time(self.think)?;
        recorder.population.secs = self.in_flight_secs;
        recorder.population.at_end = bounded(self.in_flight_at_end, MOST)?;
        recorder.population.edge_secs = self.edge_secs;
        if self.open.is_some() != recorder.open.is_some() {
            return Err("it is of another kind of loop".into());
        }
        recorder.open = self.open.as_ref().map(OpenText::open).transpose()?;
        Ok(tally)
    }
}

impl OpenText {
    fn open(&self) -> Result<Open, String> {
        Ok(Open {
            service: self.service.samples()?,
            slip: self.slip.samples()?,
            due: bounded(self.due, MOST)?,
            sent: bounded(self.sent, self.due)?,
            waited: bounded(self.waited, MOST)?,
            waited_time: time(self.waited_time)?,
            behind_at_start: self.behind_at_start.map(time).transpose()?,
            behind_at_end: time(self.behind_at_end)?,
        })
    }
}

impl SamplesText {
    fn of(samples: &Samples) -> SamplesText {
        SamplesText {
            sum: duration(samples.sum_ns),
            min_ns: samples.min_ns,
            max_ns: samples.max_ns,
            clipped: samples.clipped,
            buckets: samples.buckets().into_iter().map(|[from_ns, _, count]| (from_ns, count)).collect(),
        }
    }

    /// Saturated, which no tally comes near.
    fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |all: u64, (_, count)| all.saturating_add(*count))
    }

    fn samples(&self) -> Result<Samples, String> {
        let mut samples = Samples::default();
        for (ns, count) in &self.buckets {
            let kept = samples.histogram.record_n(*ns, *count);
            kept.map_err(|_| format!("no histogram has a bucket of {ns} ns"))?;
        }
        let count = bounded(self.count(), MOST)?;
        let is_empty = count == 0;
        if is_empty != (self.min_ns > self.max_ns) || self.clipped > count || is_empty && !self.sum.is_zero()
        {
            return Err("a histogram does not add up".into());
        }
        samples.sum_ns = time(self.sum)?.as_nanos();
        (samples.min_ns, samples.max_ns, samples.clipped) = (self.min_ns, self.max_ns, self.clipped);
        Ok(samples)
    }
}

/// A tally of nobody, to which others are added.
pub(super) fn empty(plan: &Plan) -> Tally {
    // At no particular time: only its length matters where all is counted already.
    let start = Instant::now();
    let window = Window { start, end: start + plan.window };
    Tally {
        recorder: Recorder::new(window, start, matches!(plan.pacing, Pacing::Open { .. }), plan.bin),
        threads: 0,
        cpu: Duration::ZERO,
        run_delay: Some(Duration::ZERO),
    }
}

fn bounded(number: u64, most: u64) -> Result<u64, String> {
    if number > most { Err(format!("{number} is more than {most}")) } else { Ok(number) }
}

/// Nanoseconds as a time, which has room for the sum of any run.
fn duration(ns: u128) -> Duration {
    const SECOND_NS: u128 = 1_000_000_000;
    Duration::new(u64::try_from(ns / SECOND_NS).unwrap_or(u64::MAX), (ns % SECOND_NS) as u32)
}

fn time(time: Duration) -> Result<Duration, String> {
    if time > MOST_TIME { Err(format!("{} s are too long", time.as_secs())) } else { Ok(time) }
}

/// A [`Second`] as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SecondText {
    number: i64,
    attempts: u64,
    successes: u64,
    sum_ns: u64,
    max_ns: u64,
    buckets: Vec<(u64, u32)>,
}

impl SecondText {
    pub(super) fn of(second: &Second) -> SecondText {
        let recorded = second.histogram.iter_recorded();
        let buckets = recorded
            .map(|at| (second.histogram.lowest_equivalent(at.value_iterated_to()), at.count_at_value()));
        SecondText {
            number: second.number,
            attempts: second.attempts,
            successes: second.successes,
            sum_ns: second.sum_ns,
            max_ns: second.max_ns,
            buckets: buckets.collect(),
        }
    }

    /// The second again, of a run of `plan`. `Err` says what does not add up.
    pub(super) fn second(&self, plan: &Plan) -> Result<Second, String> {
        let last = whole_bins(plan.window, plan.bin);
        let first = -(whole_bins(plan.warmup, plan.bin) + 1);
        if !(first..=last).contains(&self.number) {
            return Err(format!("there is no second or bin {}", self.number));
        }
        let mut second = Second::new(self.number);
        for (ns, count) in &self.buckets {
            let kept = second.histogram.record_n(*ns, *count);
            kept.map_err(|_| format!("no histogram has a bucket of {ns} ns"))?;
        }
        second.attempts = bounded(self.attempts, MOST)?;
        second.successes = bounded(self.successes, self.attempts)?;
        second.sum_ns = bounded(self.sum_ns, MOST)?;
        second.max_ns = self.max_ns;
        Ok(second)
    }
}

/// The seconds of the window of some agents together, from what each said of its own, in their order; or its bins.
pub(super) fn together(plan: &Plan, agents: &[&[SecondText]]) -> Told {
    let seconds = agents.iter().map(|seconds| seconds.len()).max().unwrap_or(0);
    let mut told = Told::new(plan);
    for number in 0..seconds {
        let mut all = Second::new(number as i64);
        // Each was read once before it was kept.
        let own = agents.iter().filter_map(|seconds| seconds.get(number)?.second(plan).ok());
        own.for_each(|own| all.add(&own));
        // Who listens heard of it when it happened.
        told.hear(&all, &mut |_| ());
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::super::answer::Success;
    use super::super::super::client::Connection;
    use super::super::super::measure;
    use super::super::super::pacing::Arrivals;
    use super::super::super::reactor::{Attempt, Launch, Rest};
    use super::super::super::recorder::Window;
    use super::super::super::schedule::{Schedule, clocks};
    use super::*;
    use kv::units::Rate;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn open_plan() -> Plan {
        let pacing = Pacing::Open { rate: Rate(1000.0), arrivals: Arrivals::Poisson };
        Plan { pacing, histogram: true, window: Duration::from_secs(3), ..Plan::example("mixed") }
    }

    fn there_and_back(tally: &Tally, plan: &Plan) -> Tally {
        let text = serde_json::to_string(&TallyText::of(tally)).unwrap();
        serde_json::from_str::<TallyText>(&text).unwrap().tally(plan).unwrap()
    }

    /// What `parties` agents counted of the same events, dealt out among them.
    fn counted(plan: &Plan, parties: usize) -> Vec<Tally> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let mut tallies: Vec<Tally> = (0..parties).map(|_| empty(plan)).collect();
        // All on one clock, whatever window each tally was made for.
        let start = Instant::now() + Duration::from_secs(1000);
        let window = Window { start, end: start + plan.window };
        for tally in &mut tallies {
            let open = tally.recorder.open.is_some();
            tally.recorder = Recorder::new(window, start, open, plan.bin);
            tally.threads = 1;
            tally.cpu = Duration::from_nanos(1_000_000_007);
            tally.run_delay = Some(Duration::from_nanos(7));
        }
        let ns = |ns: u64| Duration::from_nanos(ns);
        for event in 0..20_000 {
            // From less than the histogram's beginning to beyond its end.
            let latency = ns(((random.next_u64() >> 33).pow(2) % 70_000_000_000) >> (event % 40));
            let until = start + ns(random.next_u64() % 3_000_000_000);
            let sent = until - latency / 2;
            let result = match event % 10 {
                0 => Err(Fault::ALL[event / 10 % Fault::ALL.len()]),
                1 => Ok(Success::Absent),
                _ => Ok(Success::Done),
            };
            let operation = Operation::ALL[event % 3];
            let since = until - latency;
            let connection = match event % 7 {
                0 => Connection::Begun,
                1 => Connection::Made(latency / 3),
                _ => Connection::Kept,
            };
            let verified = event % 4 == 0;
            let attempt =
                Attempt { operation, result, status: 200, since, sent, until, connection, verified };
            let recorder = &mut tallies[event % parties].recorder;
            recorder.record(&attempt);
            recorder.launched(&Launch { intended: since, free_since: since, sent });
            recorder.rested(until, until + ns(7));
        }
        for tally in &mut tallies {
            let in_flight = vec![start + plan.window - ns(100)];
            let schedule = Schedule::new(plan.pacing, clocks(1, 1), 1, start);
            tally.recorder.ended(Rest { in_flight, schedule }, start + plan.window);
        }
        tallies
    }

    #[test]
    fn what_agents_counted_adds_up_to_what_one_recorder_would_have() {
        for plan in [open_plan(), Plan { pacing: Pacing::default(), ..open_plan() }] {
            let one = counted(&plan, 1).swap_remove(0);
            let mut merged = empty(&plan);
            for tally in counted(&plan, 3) {
                merged.merge(&there_and_back(&tally, &plan));
            }
            let mut one = measure::report(&plan, &one, Told::new(&plan));
            let merged = measure::report(&plan, &merged, Told::new(&plan));
            assert_eq!((merged.threads, merged.in_flight_at_end), (3, 3));
            assert_eq!((merged.cpu_secs, merged.run_delay_secs), (3.000000021, Some(0.000000021)));
            assert!(merged.histograms["all"].len() > 1000 && merged.latency.clipped > 0);
            // Of these there is one for each party.
            (one.threads, one.cpu_secs, one.run_delay_secs) =
                (merged.threads, merged.cpu_secs, merged.run_delay_secs);
            (one.in_flight_at_end, one.edge_secs) = (merged.in_flight_at_end, merged.edge_secs);
            if let (Some(one), Some(merged)) = (&mut one.schedule, &merged.schedule) {
                (one.due, one.behind_secs_at_start) = (merged.due, merged.behind_secs_at_start);
            }
            assert_eq!(one, merged);
        }
    }

    #[test]
    fn a_tally_keeps_its_last_digit_on_the_way() {
        let plan = open_plan();
        for tally in counted(&plan, 2) {
            let text = TallyText::of(&tally);
            assert_eq!(TallyText::of(&there_and_back(&tally, &plan)), text);
        }
        let nothing = empty(&plan);
        assert_eq!(TallyText::of(&there_and_back(&nothing, &plan)), TallyText::of(&nothing));
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        let plan = open_plan();
        let text = TallyText::of(&counted(&plan, 1)[0]);
        assert!(text.tally(&plan).is_ok());
        let check = |change: fn(&mut TallyText), why: &str| {
            let mut text = text.clone();
            change(&mut text);
            let told = text.tally(&plan).err().unwrap_or_else(|| panic!("{why}"));
            assert!(told.contains(why), "{told}");
        };
        check(|text| *text.attempts.get_mut("get").unwrap() += 1, "are not");
        check(|text| text.failures.buckets.clear(), "does not add up");
        check(|text| text.failures.buckets[0].1 = u64::MAX, "is more than");
        check(|text| text.failures.buckets[0].0 = u64::MAX, "no histogram has");
        check(|text| text.failures.sum = Duration::MAX, "are too long");
        check(|text| text.failures.clipped = u64::MAX, "does not add up");
        check(|text| text.attempts.retain(|name, _| name != "get"), "get");
        check(|text| text.faults.retain(|name, _| name != "reset"), "reset");
        check(|text| *text.attempts.get_mut("get").unwrap() = 0, "more get succeeded");
        check(|text| text.absent = u64::MAX, "is more than");
        check(|text| text.verified = u64::MAX, "is more than");
        check(|text| text.connects = u64::MAX, "is more than");
        check(|text| text.connects = 1, "more connections were made");
        check(|text| text.open = None, "another kind");
        check(|text| text.think = Duration::MAX, "too long");
        check(|text| text.threads = u32::MAX, "is more than");
        assert!(text.tally(&Plan { pacing: Pacing::default(), ..plan }).is_err());
    }

    #[test]
    fn a_second_arrives_as_it_was() {
        let plan = Plan { warmup: Duration::from_millis(1500), ..open_plan() };
        let mut second = Second::new(-2);
        for ns in (0..2000).map(|step| step * step * step * 10) {
            second.record(ns, ns % 3 == 0);
        }
        let text = SecondText::of(&second);
        let back = text.second(&plan).unwrap();
        assert_eq!((back.number, back.report()), (-2, second.report()));
        assert_eq!(SecondText::of(&back), text);
        for number in [-3, 4, i64::MIN, i64::MAX] {
            assert!(SecondText { number, ..text.clone() }.second(&plan).is_err(), "{number}");
        }
    }

    #[test]
    fn seconds_of_those_that_are_left_are_what_they_would_be_without_the_lost_one() {
        let plan = open_plan();
        let second = |number, latencies_us: &[u64]| {
            let mut second = Second::new(number);
            latencies_us.iter().for_each(|us| second.record(us * 1000, true));
            second
        };
        let (one, other) = ([second(0, &[100, 100, 300]), second(1, &[7])], [second(0, &[200, 250])]);
        let all = second(0, &[100, 100, 300, 200, 250]);
        let text = |seconds: &[Second]| seconds.iter().map(SecondText::of).collect::<Vec<_>>();
        let together = together(&plan, &[&text(&one), &text(&other)]);
        assert_eq!(together.reports(), (vec![all.report(), one[1].report()], None));
        assert_eq!(super::together(&plan, &[]).reports(), (vec![], None));
    }
}
