//! Where requests and answers lie unread: at the server, at the generator, or on their way.
//!
//! A request that nobody has read waits for the server's workers, an answer that nobody has read waits for the generator;
//! neither program can count them. A thread samples a few connections to the target, chosen at random, at random times, until the
//! sampler is dropped. Their share stands for all connections until it samples again, so the counters are connection-seconds,
//! and over the time of a window they are mean numbers of connections.
//!
//! A sample must come when it is due. Who has the core may go on for a while when somebody wakes up (EEVDF), and a thread that waits for that sees
//! others only where they stop by themselves, with empty queues. So the thread asks for real-time priority.
//!
//! A sample must be short: while it takes a core from the server or the generator, the other goes on, and what it sends lies unread.
//! So a list of all connections is taken seldom, after a sample that counts, and only to learn which ones there are. Where the
//! ends of no connection were seen, because they are on two machines or in namespaces apart, there are no counters.

mod connections;
pub(super) mod diag;
mod observed;

use super::background::{Background, Foreground};
use super::{Context, Sampler};
use connections::{Listeners, choose, places};
use diag::{Questions, Source};
use kv::clock::thread_time;
use kv::cores;
use observed::{COST_MAX_RATIO, Observed, PERIOD_MAX};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::thread::set_current_timer_slack;
use std::io;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Samples from one core before the next: to go there costs more than a sample.
const STAY: usize = 4;
/// Processor time that lists of all connections may take beyond [`COST_MAX_RATIO`]: a generator that makes its connections has to be followed.
const LISTS_SECS: f64 = 0.01;
/// Between any two samples: what the last one held up has gone its way, also after a list of all connections.
const GAP_MIN: Duration = Duration::from_millis(5);
/// How often all connections are sampled while none is known or their number changes: a generator makes its connections one by one.
const REFRESH_NEW: Duration = Duration::from_millis(50);
/// How soon again once one is gone.
const REFRESH_MIN: Duration = Duration::from_millis(200);
/// How soon in any case, for those that are new.
const REFRESH_MAX: Duration = Duration::from_secs(4);

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let loaded = Some(&context.load_urls).filter(|urls| !urls.is_empty())?;
    let servers = if context.urls.is_empty() { loaded } else { &context.urls };
    let listeners = Listeners::resolved(servers, loaded)?;
    let posts = Posts::among(&context.cores);
    // From now on, so that the first reading already knows whether there is anything to be seen.
    let sockets = Background::start(Observed::default(), move |sockets| {
        if let Err(error) = watch(&listeners, posts, sockets) {
            log::debug!("sampler sockets: {error}");
            sockets.seen.lock().live = false;
        }
    });
    Some(Box::new(move |into| {
        let mut seen = sockets.seen.lock();
        if !seen.live {
            return Err(io::Error::other("no connection to the target has both its ends here"));
        }
        if seen.is_too_late() {
            return Err(io::Error::other("connections to the target end before they can be sampled"));
        }
        // Up to this instant: a window is not observed up to its last sample only.
        seen.stand(Instant::now());
        seen.show(into);
        Ok(())
    }))
}

/// The cores to sample from. A core that samples does nothing else meanwhile, and what the others send to it lies unread: from
/// a core of the server the server's queue is too long, from one of the generator's the generator's. So it is none of theirs, or
/// one after the other.
struct Posts {
    sets: Vec<Vec<usize>>,
    samples: usize,
}

impl Posts {
    /// Those that no part runs on, together; where there are none, each of `busy`.
    fn among(busy: &[usize]) -> Posts {
        let mut free = cores::available().unwrap_or_default();
        free.retain(|core| !busy.contains(core));
        let sets = if free.is_empty() { busy.iter().map(|core| vec![*core]).collect() } else { vec![free] };
        Posts { sets, samples: 0 }
    }

    /// Before each sample: goes to the next post after some.
    fn turn(&mut self) {
        let count = self.sets.len();
        if count > 0 && self.samples.is_multiple_of(STAY) && (count > 1 || self.samples == 0) {
            // Where it is not allowed to, the thread stays where the kernel puts it.
            let _ = cores::bind(&self.sets[self.samples / STAY % count]);
        }
        self.samples += 1;
    }
}

/// Samples until nobody wants to know.
fn watch(listeners: &Listeners, mut posts: Posts, sockets: &Foreground<Observed>) -> io::Result<()> {
    let seen = &sockets.seen;
    // A timer that may be late is set off with others, and they are what is sampled.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    seen.lock().prompt = preempts();
    let mut source = Source::open()?;
    // Any seed will do: chance is there only so that nothing that repeats itself is always met in the same state.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut known = listeners.connections(&mut source)?;
    let mut refreshed = Instant::now();
    // Whether the list has become longer or shorter since the time before.
    let mut changed = true;
    // What lists have cost so far.
    let (began, mut lists_secs) = (Instant::now(), 0.0);
    seen.lock().live = !known.is_empty();
    loop {
        // Made before the wait, so that the kernel samples the first as soon as this thread runs.
        let sample = choose(&mut known, &mut rng).into_iter();
        let questions = Questions::about(sample.flat_map(|(one, other)| [(one, other), (other, one)]));
        posts.turn();
        let paid_secs = thread_time().as_secs_f64();
        let gap = {
            let mut seen = seen.lock();
            seen.cost_secs = paid_secs;
            gap(seen.period(), &mut rng)
        };
        if !sockets.goes_on_after(gap) {
            return Ok(());
        }
        let found = source.sample(&questions)?;
        let now = Instant::now();
        let (places, missing) = places(&found, known.len(), listeners);
        let met_nobody = places.connections == 0.0 && !known.is_empty();
        match met_nobody {
            true => seen.lock().miss(now),
            false => seen.lock().sample(now, places, thread_time().as_secs_f64() - paid_secs),
        }
        let rest = match (known.is_empty() || changed || met_nobody, missing) {
            (true, _) => REFRESH_NEW,
            (false, true) => REFRESH_MIN,
            (false, false) => REFRESH_MAX,
        };
        let affordable_secs = LISTS_SECS + COST_MAX_RATIO * began.elapsed().as_secs_f64();
        if refreshed.elapsed() >= if lists_secs < affordable_secs { rest } else { REFRESH_MAX } {
            let (count, before_secs) = (known.len(), thread_time().as_secs_f64());
            known = listeners.connections(&mut source)?;
            changed = known.len() != count;
            refreshed = Instant::now();
            lists_secs += thread_time().as_secs_f64() - before_secs;
        }
    }
}

/// Lets this thread run as soon as it wakes up, before any that has no real-time priority; whether that was allowed.
fn preempts() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
        .inspect_err(|error| log::debug!("sampler sockets: samples may come late: {error}"))
        .is_ok()
}

/// How long until the next sample: [`GAP_MIN`], and a time without memory that makes `mean` of it on average; less where that comes near
/// [`PERIOD_MAX`], which is the most.
fn gap(mean: Duration, rng: &mut impl Rng) -> Duration {
    // Never 0, whose logarithm is none.
    let chance = (f64::from(rng.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0);
    let rest = mean.saturating_sub(GAP_MIN);
    GAP_MIN + rest.mul_f64(-chance.ln()).min(PERIOD_MAX)
}

#[cfg(test)]
mod tests {
    use super::observed::PERIOD_MIN;
    use super::*;
    use std::thread;

    #[test]
    fn looks_come_when_they_are_due_where_that_is_allowed() {
        // Of a thread of its own: the test's others are not to have it.
        let thread = thread::spawn(|| {
            let is_prompt = preempts();
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // Field 41 of proc(5), counted behind the name; 1 is SCHED_FIFO.
            let policy = stat.rsplit(") ").next().unwrap().split(' ').nth(38).unwrap().to_owned();
            (is_prompt, policy)
        });
        let (is_prompt, policy) = thread.join().unwrap();
        assert_eq!(policy == "1", is_prompt, "{policy}");
    }

    #[test]
    fn gaps_are_as_long_as_asked_for_on_average() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let gaps: Vec<Duration> = (0..10_000).map(|_| gap(PERIOD_MIN, &mut rng)).collect();
        let mean = gaps.iter().sum::<Duration>() / 10_000;
        assert!((48.0..52.0).contains(&(mean.as_secs_f64() * 1e3)), "{mean:?}");
        assert!(gaps.iter().all(|gap| (GAP_MIN..=GAP_MIN + PERIOD_MAX).contains(gap)));
    }
}
