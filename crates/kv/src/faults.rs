//! Fault injection: known delays and failures that a server for measurements adds to its own work.
//!
//! Faults given at the start stay; those added while the server runs can be removed. This module knows neither HTTP nor stores:
//! the server and the store workers ask it for the delay, and [`compute`] and [`block`] spend it on the calling thread.

use crate::Error;
use crate::clock::thread_time;
use crate::units::Span;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A fault, by the resource it loads. Each is the index of its name in [`FAULTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The processor of the worker that handles the request.
    Cpu,
    /// That worker's thread, but not its processor.
    Worker,
    /// No resource: only the client waits.
    Delay,
    /// The lock that all writes hold. It is there from the start or never.
    Lock,
    /// The session of a store worker.
    StoreWorker,
    /// The flush of the embedded store.
    Flush,
    /// No resource: requests fail at once. The only one whose value is a count; the others' are times up to [`TIME_MAX`].
    Fail,
}

/// Every fault as written after `--inject`, in the order of [`Fault`].
pub const FAULTS: [&str; 7] = ["cpu", "worker", "delay", "lock", "store_worker", "flush", "fail"];

/// Longest injected delay, so that a typing error does not block a server for hours.
pub const TIME_MAX: Duration = Duration::from_secs(10);

fn is_count(index: usize) -> bool {
    index == Fault::Fail as usize
}

/// Faults to inject: nanoseconds or a count for each, in the order of [`FAULTS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultSpec([Option<u64>; FAULTS.len()]);

impl FaultSpec {
    /// From `name=value` words. Errors: one line that names the word, with a remedy.
    pub fn parse(words: &[impl AsRef<str>]) -> Result<FaultSpec, Error> {
        let mut spec = FaultSpec::default();
        for word in words.iter().map(|word| word.as_ref().trim()) {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            let index = FAULTS.iter().position(|known| *known == name).ok_or_else(|| {
                Error::input(format_args!("unknown fault \"{name}\""))
                    .hint(format_args!("expected one of: {}", FAULTS.join(", ")))
            })?;
            let value = value.ok_or_else(|| {
                let example = if is_count(index) { "40" } else { "250us" };
                Error::input(format_args!("{name} has no value")).hint(format_args!("write {name}={example}"))
            })?;
            let amount = if is_count(index) {
                // Less than `NONE`.
                let count = value.parse::<u32>().map_err(|_| "a count is a whole number, as in fail=40");
                count.map_err(|why| Error::input(why).at(word))?.into()
            } else {
                let time = value.parse::<Span>().map_err(|why| why.at(word))?.0;
                if time > TIME_MAX {
                    let most = format_args!("at most {}", Span(TIME_MAX));
                    return Err(Error::input(format_args!("{word} is too long")).hint(most));
                }
                time.as_nanos() as u64
            };
            if spec.0[index].replace(amount).is_some() {
                return Err(Error::input(format_args!("{name} is given twice")).hint("give it once"));
            }
        }
        Ok(spec)
    }

    /// As `name=value` words.
    pub fn words(&self) -> Vec<String> {
        let word = |(index, amount): (usize, &Option<u64>)| {
            let (name, amount) = (FAULTS[index], (*amount)?);
            let time = Span(Duration::from_nanos(amount));
            Some(if is_count(index) { format!("{name}={amount}") } else { format!("{name}={time}") })
        };
        self.0.iter().enumerate().filter_map(word).collect()
    }
}

/// The faults that a server injects now.
#[derive(Debug)]
pub struct FaultInjector {
    base: FaultSpec,
    /// Nanoseconds or a count, in the order of [`FAULTS`]; [`NONE`] for nothing. A reader may see old and new values together
    /// while they change.
    now: [AtomicU64; FAULTS.len()],
    /// Whether a store of this process flushes.
    flushes: AtomicBool,
}

/// No time is so long, and no count so large.
const NONE: u64 = u64::MAX;

impl FaultInjector {
    /// Injects `base` until the process ends.
    pub fn new(base: FaultSpec) -> FaultInjector {
        let injector = FaultInjector { base, now: Default::default(), flushes: AtomicBool::new(false) };
        injector.set(&FaultSpec::default());
        injector
    }

    /// The faults given at the start.
    pub fn base(&self) -> &FaultSpec {
        &self.base
    }

    /// Injects `added` on top of the faults given at the start, in place of what was added before: nothing removes that. Times
    /// add up; of two counts the smaller is used.
    ///
    /// Errors: `added` has the lock, and the server was started without it; or a delay of flushes, and no store of this process
    /// flushes. Nothing changes then.
    pub fn add(&self, added: &FaultSpec) -> Result<(), Error> {
        if added.0[Fault::Lock as usize].is_some() && !self.has_lock() {
            return Err(
                Error::input("this server has no lock to hold longer").hint("start it with --inject lock=0s")
            );
        }
        if added.0[Fault::Flush as usize].is_some() && !self.flushes.load(Relaxed) {
            let what = "only the embedded store flushes in this process";
            return Err(Error::input(what).hint("use --store file:DIRECTORY, or the fault store_worker"));
        }
        self.set(added);
        Ok(())
    }

    /// A store of this process flushes.
    pub fn has_flushes(&self) {
        self.flushes.store(true, Relaxed);
    }

    /// Whether writes hold a lock. It is there from the start or never.
    pub fn has_lock(&self) -> bool {
        self.base.0[Fault::Lock as usize].is_some()
    }

    /// Whether faults can delay or fail requests, so that these leave the fast path.
    pub fn may_hold_requests(&self) -> bool {
        let times = [Fault::Worker, Fault::Delay];
        times.iter().any(|fault| !self.time(*fault).is_zero()) || self.fail_above().is_some()
    }

    /// The injected delay of `fault`; zero where there is none. Not of [`Fault::Fail`].
    pub fn time(&self, fault: Fault) -> Duration {
        match self.now[fault as usize].load(Relaxed) {
            NONE => Duration::ZERO,
            nanos => Duration::from_nanos(nanos),
        }
    }

    /// While more requests than this are in the server, every tenth fails.
    pub fn fail_above(&self) -> Option<u64> {
        Some(self.now[Fault::Fail as usize].load(Relaxed)).filter(|count| *count != NONE)
    }

    fn set(&self, added: &FaultSpec) {
        for (index, now) in self.now.iter().enumerate() {
            let amount = match (self.base.0[index], added.0[index]) {
                (Some(base), Some(added)) if is_count(index) => base.min(added),
                (Some(base), Some(added)) => base + added,
                (base, added) => base.or(added).unwrap_or(NONE),
            };
            now.store(amount, Relaxed);
        }
    }
}

/// Shorter computations are added up and made together: reading the clock takes some tenths of a microsecond.
const COMPUTED_LEAST_NANOS: i64 = 10_000;

thread_local! {
    /// What this thread still has to compute; negative if the last computation took too long.
    static OWED_NANOS: Cell<i64> = const { Cell::new(0) };
}

/// Computes until this thread has used `time` of a processor, in the mean of many calls.
pub fn compute(time: Duration) {
    let owed = OWED_NANOS.get() + time.as_nanos() as i64;
    let mut computed = 0;
    if owed >= COMPUTED_LEAST_NANOS {
        let began = thread_time();
        while computed < owed {
            std::hint::spin_loop();
            computed = (thread_time() - began).as_nanos() as i64;
        }
    }
    OWED_NANOS.set(owed - computed);
}

thread_local! {
    /// How much too long the sleeps of this thread were so far; `None` before the first.
    static OVERSLEPT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// A longer oversleep is not due to the timer: another thread had the processor.
const OVERSLEPT_MAX: Duration = Duration::from_millis(1);

/// Blocks this thread for `time`. What one sleep takes too long is subtracted from the next ones, so that the mean is right.
pub fn block(time: Duration) {
    if time.is_zero() {
        return;
    }
    let overslept = OVERSLEPT.get().unwrap_or_else(|| {
        // Without this the kernel may wake the thread 50 µs late. If it fails, the next sleeps are shorter instead.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        Duration::ZERO
    });
    let Some(left) = time.checked_sub(overslept) else {
        return OVERSLEPT.set(Some(overslept - time));
    };
    let began = Instant::now();
    std::thread::sleep(left);
    OVERSLEPT.set(Some(began.elapsed().saturating_sub(left).min(OVERSLEPT_MAX)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> FaultSpec {
        FaultSpec::parse(&text.split(',').collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn every_fault_has_its_row_and_its_place() {
        use Fault::{Cpu, Delay, Fail, Flush, Lock, StoreWorker, Worker};
        let all = [Cpu, Worker, Delay, Lock, StoreWorker, Flush, Fail];
        for (fault, name) in all.iter().zip(FAULTS) {
            assert_eq!(format!("{fault:?}").to_lowercase(), name.replace('_', ""));
            let word = format!("{name}={}", if *fault == Fail { "40" } else { "250us" });
            assert_eq!(spec(&word).words(), [word]);
        }
    }

    #[test]
    fn wrong_faults_are_refused_with_a_remedy() {
        for (text, part) in [
            (
                "cpus=1ms",
                "unknown fault \"cpus\"; hint: expected one of: cpu, worker, delay, lock, store_worker, flush, fail",
            ),
            ("cpu", "cpu has no value; hint: write cpu=250us"),
            ("fail", "fail has no value; hint: write fail=40"),
            ("disk", "unknown fault \"disk\"; hint: expected one of"),
            ("", "unknown fault \"\"; hint: expected one of"),
            ("=1ms", "unknown fault \"\"; hint: expected one of"),
            ("cpu=", "cpu=: a duration is a number with us, ms, s, m or h"),
            ("cpu=5", "cpu=5: a duration is a number with"),
            ("worker=-1ms", "worker=-1ms: a duration is a number with"),
            ("store_worker=11s", "store_worker=11s is too long; hint: at most 10s"),
            ("fail=1ms", "fail=1ms: a count is a whole number, as in fail=40"),
            ("fail=-1", "fail=-1: a count"),
            ("fail=4294967296", "fail=4294967296: a count"),
            ("cpu=1ms,worker=1ms,cpu=2ms", "cpu is given twice"),
        ] {
            let why = FaultSpec::parse(&text.split(',').collect::<Vec<_>>()).unwrap_err();
            assert!(why.to_string().contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn added_faults_add_to_the_base_replace_earlier_ones_and_can_be_removed() {
        let injector = FaultInjector::new(spec("cpu=1ms,fail=10"));
        let now = || (injector.time(Fault::Cpu).as_micros(), injector.time(Fault::StoreWorker).as_micros());
        assert_eq!((now(), injector.fail_above()), ((1000, 0), Some(10)));
        injector.add(&spec("cpu=250us,store_worker=2ms,fail=20")).unwrap();
        assert_eq!((now(), injector.fail_above()), ((1250, 2000), Some(10)));
        injector.add(&spec("cpu=0.5ms,fail=0")).unwrap();
        assert_eq!((now(), injector.fail_above()), ((1500, 0), Some(0)));
        injector.add(&FaultSpec::default()).unwrap();
        assert_eq!((now(), injector.fail_above()), ((1000, 0), Some(10)));
    }

    #[test]
    fn requests_need_not_wait_where_they_only_compute_longer() {
        for (text, asks) in [
            ("lock=1ms,store_worker=1ms,flush=1ms", false),
            ("cpu=0s,worker=0s,delay=0s", false),
            ("cpu=1us", false),
            ("worker=1us", true),
            ("delay=1us", true),
            ("fail=0", true),
        ] {
            assert_eq!(FaultInjector::new(spec(text)).may_hold_requests(), asks, "{text}");
        }
        let injector = FaultInjector::new(FaultSpec::default());
        injector.add(&spec("delay=1ms")).unwrap();
        assert!(injector.may_hold_requests());
        injector.add(&FaultSpec::default()).unwrap();
        assert!(!injector.may_hold_requests());
    }

    #[test]
    fn a_lock_is_there_from_the_start_or_never() {
        let injector = FaultInjector::new(spec("cpu=1ms"));
        let why = injector.add(&spec("lock=1ms,cpu=1ms")).unwrap_err();
        assert!(why.to_string().contains("start it with --inject lock=0s"), "{why}");
        assert_eq!(injector.time(Fault::Cpu), Duration::from_millis(1), "nothing is changed");
        let injector = FaultInjector::new(spec("lock=0s"));
        assert!(injector.has_lock());
        injector.add(&spec("lock=1ms")).unwrap();
        assert_eq!(injector.time(Fault::Lock), Duration::from_millis(1));
    }

    #[test]
    fn computing_takes_processor_time_and_blocking_takes_time() {
        let before = thread_time();
        compute(Duration::from_millis(2));
        assert!(thread_time() - before >= Duration::from_millis(2));
        let before = thread_time();
        (0..10_000).for_each(|_| compute(Duration::from_nanos(300)));
        assert!(thread_time() - before >= Duration::from_micros(2_900), "short ones are added up");
        let began = Instant::now();
        for _ in 0..100 {
            block(Duration::from_micros(100));
        }
        // What is overslept last is made up for by the next.
        let least = Duration::from_millis(10) - OVERSLEPT_MAX;
        assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    }
}
