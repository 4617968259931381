//! Strains: slowdowns that the lab imposes on a server, to see which of them it feels.
//!
//! What a server was started with stays; what is added while it runs is taken back again. Knows neither HTTP nor stores: the
//! server and the lanes ask here how long to take, and say with [`compute`] and [`block`] how a thread does.

use crate::units::Span;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A slowdown, by what it takes the time from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strain {
    /// From the processor that a worker computes on.
    Cpu,
    /// From a worker, but not from its processor.
    Worker,
    /// From nobody but the client.
    Delay,
    /// From the lock that all writes hold.
    Lock,
    /// From a lane's session.
    Lane,
    /// From the flush of the embedded store.
    Flush,
    /// None: requests fail at once.
    Fail,
}

/// What a strain's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// As [`Span`] writes it, up to [`TIME_MAX`].
    Time,
    /// A whole number.
    Count,
}

/// One strain.
#[derive(Debug)]
pub struct StrainRow {
    /// As it is written.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// What its value is.
    pub unit: Unit,
    /// Which one it is.
    pub strain: Strain,
}

/// Every strain there is, in the order of [`Strain`].
pub const STRAINS: &[StrainRow] = &[
    StrainRow {
        name: "cpu",
        about: "each request makes its worker compute for so long, in processor time",
        unit: Unit::Time,
        strain: Strain::Cpu,
    },
    StrainRow {
        name: "worker",
        about: "each request makes its worker sleep for so long",
        unit: Unit::Time,
        strain: Strain::Worker,
    },
    StrainRow {
        name: "delay",
        about: "each request waits for so long before it is worked on, and holds nothing meanwhile",
        unit: Unit::Time,
        strain: Strain::Delay,
    },
    StrainRow {
        name: "lock",
        about: "every write holds the one lock of the server until it is committed, and for so long after; only from the start",
        unit: Unit::Time,
        strain: Strain::Lock,
    },
    StrainRow {
        name: "lane",
        about: "each batch holds its lane's session for so much longer",
        unit: Unit::Time,
        strain: Strain::Lane,
    },
    StrainRow {
        name: "flush",
        about: "each flush of the embedded store takes so much longer, one flush at a time",
        unit: Unit::Time,
        strain: Strain::Flush,
    },
    StrainRow {
        name: "fail",
        about: "while more than so many requests are in the server, every tenth is answered 500 at once",
        unit: Unit::Count,
        strain: Strain::Fail,
    },
];

const COUNT: usize = STRAINS.len();

/// Longest time of one strain: a slip of the pen must not stop a server for good.
pub const TIME_MAX: Duration = Duration::from_secs(10);

/// The names of all strains, for messages.
pub fn names() -> String {
    STRAINS.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// What somebody asks to be strained, and how much: nanoseconds or a count, in the order of [`STRAINS`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted([Option<u64>; COUNT]);

impl Wanted {
    /// From `name=value` pairs. Errors: one line that names the pair, with a remedy.
    pub fn of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        for (name, value) in pairs {
            let row = STRAINS
                .iter()
                .find(|row| row.name == name)
                .ok_or_else(|| format!("{name} is no strain; known are {}", names()))?;
            let amount =
                match row.unit {
                    Unit::Time => {
                        let time = value.parse::<Span>().map_err(|why| format!("{name}={value}: {why}"))?.0;
                        if time > TIME_MAX {
                            return Err(format!("{name}={value} is too long; at most {}", Span(TIME_MAX)));
                        }
                        time.as_nanos() as u64
                    }
                    // Less than `NONE`.
                    Unit::Count => u64::from(value.parse::<u32>().map_err(|_| {
                        format!("{name}={value}: a count is a whole number, as in {name}=40")
                    })?),
                };
            if wanted.0[row.strain as usize].replace(amount).is_some() {
                return Err(format!("{name} is given twice; give it once"));
            }
        }
        Ok(wanted)
    }

    /// From `name=value` words, as a flag has them. Errors: as [`Wanted::of`].
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Wanted, String> {
        let pairs = words.iter().map(|word| {
            let word = word.as_ref().trim();
            word.split_once('=').ok_or_else(|| match STRAINS.iter().find(|row| row.name == word) {
                Some(row) => format!("{word} has no value; write {word}={}", row.unit.example()),
                None => format!("{word} is no strain; known are {}", names()),
            })
        });
        Wanted::of(pairs.collect::<Result<Vec<_>, _>>()?)
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// What is asked for, as it is written.
    pub fn words(&self) -> Vec<String> {
        let word = |(row, amount): (&StrainRow, &Option<u64>)| {
            let amount = (*amount)?;
            Some(match row.unit {
                Unit::Time => format!("{}={}", row.name, Span(Duration::from_nanos(amount))),
                Unit::Count => format!("{}={amount}", row.name),
            })
        };
        STRAINS.iter().zip(&self.0).filter_map(word).collect()
    }

    fn get(&self, strain: Strain) -> Option<u64> {
        self.0[strain as usize]
    }
}

impl Unit {
    fn example(self) -> &'static str {
        match self {
            Unit::Time => "250us",
            Unit::Count => "40",
        }
    }
}

/// What a server is strained by now.
#[derive(Debug)]
pub struct Strains {
    base: Wanted,
    /// Nanoseconds or a count, in the order of [`STRAINS`]; [`NONE`] for nothing. While they change, old and new ones may be
    /// seen side by side.
    now: [AtomicU64; COUNT],
    /// Whether there is any for the requests of a connection.
    on_requests: AtomicBool,
}

/// No time is so long, and no count so large.
const NONE: u64 = u64::MAX;

impl Strains {
    /// With what is there from the start, for good.
    pub fn new(base: Wanted) -> Strains {
        let strains = Strains {
            base,
            now: std::array::from_fn(|_| AtomicU64::new(NONE)),
            on_requests: AtomicBool::new(false),
        };
        strains.set(&Wanted::default());
        strains
    }

    /// What was there from the start.
    pub fn base(&self) -> &Wanted {
        &self.base
    }

    /// Adds to what was there from the start, in place of what was added before. Times add up; of two counts the smaller holds.
    ///
    /// Errors: a lock is asked for that is not there, in one line with a remedy. Nothing is changed then.
    pub fn add(&self, added: &Wanted) -> Result<(), String> {
        if added.get(Strain::Lock).is_some() && !self.has_lock() {
            return Err("this server has no lock to hold longer; start it with --strain lock=0s".into());
        }
        self.set(added);
        Ok(())
    }

    /// Takes back all that was added.
    pub fn take_back(&self) {
        self.set(&Wanted::default());
    }

    /// Whether writes hold a lock: given at the start, or never.
    pub fn has_lock(&self) -> bool {
        self.base.get(Strain::Lock).is_some()
    }

    /// Whether connections have to ask what their requests are strained by.
    pub fn are_on_requests(&self) -> bool {
        self.on_requests.load(Relaxed)
    }

    /// How long `strain` makes it take; zero where there is none. Not of [`Strain::Fail`].
    pub fn time(&self, strain: Strain) -> Duration {
        match self.now[strain as usize].load(Relaxed) {
            NONE => Duration::ZERO,
            nanos => Duration::from_nanos(nanos),
        }
    }

    /// More requests than so many in the server, and every tenth fails.
    pub fn fail_above(&self) -> Option<u64> {
        match self.now[Strain::Fail as usize].load(Relaxed) {
            NONE => None,
            count => Some(count),
        }
    }

    fn set(&self, added: &Wanted) {
        for row in STRAINS {
            let both = (self.base.get(row.strain), added.get(row.strain));
            let amount = match (both, row.unit) {
                ((Some(base), Some(added)), Unit::Time) => base + added,
                ((Some(base), Some(added)), Unit::Count) => base.min(added),
                ((base, added), _) => base.or(added).unwrap_or(NONE),
            };
            self.now[row.strain as usize].store(amount, Relaxed);
        }
        let times = [Strain::Cpu, Strain::Worker, Strain::Delay];
        let any = times.iter().any(|strain| !self.time(*strain).is_zero()) || self.fail_above().is_some();
        self.on_requests.store(any, Relaxed);
    }
}

/// Shorter computations are added up and made together: reading the clock takes some tenths of a microsecond.
const COMPUTED_LEAST_NANOS: i64 = 10_000;

thread_local! {
    /// What this thread still has to compute; negative if the last computation took too long.
    static OWED_NANOS: Cell<i64> = const { Cell::new(0) };
}

/// Computes for `time` in the mean of many calls, counted in processor time of this thread: time without a processor does not count.
pub fn compute(time: Duration) {
    let owed = OWED_NANOS.get() + time.as_nanos() as i64;
    let mut computed = 0;
    if owed >= COMPUTED_LEAST_NANOS {
        let began = processor_time();
        while computed < owed {
            std::hint::spin_loop();
            computed = (processor_time() - began).as_nanos() as i64;
        }
    }
    OWED_NANOS.set(owed - computed);
}

fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

thread_local! {
    /// By how much the sleeps of this thread were too long so far; `None` before the first.
    static OVERSLEPT: Cell<Option<Duration>> = const { Cell::new(None) };
}

/// More than this is no timer's fault: somebody else had the processor.
const OVERSLEPT_MAX: Duration = Duration::from_millis(1);

/// Blocks this thread for `time`. No sleep ends on the dot: what one is too long, the next ones are shorter, so that many
/// of them take as long as they should.
pub fn block(time: Duration) {
    if time.is_zero() {
        return;
    }
    let overslept = OVERSLEPT.get().unwrap_or_else(|| {
        // The kernel may be late by 50 µs unless it is asked not to be. Where it cannot be asked, the others make up for it.
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

    fn wanted(text: &str) -> Wanted {
        Wanted::parse(&text.split(',').collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn every_strain_has_its_row_and_its_place() {
        for (place, row) in STRAINS.iter().enumerate() {
            assert_eq!(row.strain as usize, place, "{}", row.name);
            assert!(row.about.len() > 20 && !row.about.ends_with('.'), "{}", row.name);
            let word = format!("{}={}", row.name, row.unit.example());
            assert_eq!(wanted(&word).words(), [word]);
        }
    }

    #[test]
    fn wrong_strains_are_refused_with_a_remedy() {
        for (text, part) in [
            ("cpus=1ms", "cpus is no strain; known are cpu, worker, delay, lock, lane, flush, fail"),
            ("cpu", "cpu has no value; write cpu=250us"),
            ("fail", "fail has no value; write fail=40"),
            ("disk", "disk is no strain; known are"),
            ("", " is no strain; known are"),
            ("=1ms", " is no strain; known are"),
            ("cpu=", "cpu=: a duration is a number with us, ms, s, m or h"),
            ("cpu=5", "cpu=5: a duration is a number with"),
            ("worker=-1ms", "worker=-1ms: a duration is a number with"),
            ("lane=11s", "lane=11s is too long; at most 10s"),
            ("fail=1ms", "fail=1ms: a count is a whole number, as in fail=40"),
            ("fail=-1", "fail=-1: a count"),
            ("fail=4294967296", "fail=4294967296: a count"),
            ("cpu=1ms,worker=1ms,cpu=2ms", "cpu is given twice"),
        ] {
            let why = Wanted::parse(&text.split(',').collect::<Vec<_>>()).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn what_is_added_comes_on_top_replaces_what_was_and_goes() {
        let strains = Strains::new(wanted("cpu=1ms,fail=10"));
        let now = || (strains.time(Strain::Cpu).as_micros(), strains.time(Strain::Lane).as_micros());
        assert_eq!((now(), strains.fail_above()), ((1000, 0), Some(10)));
        strains.add(&wanted("cpu=250us,lane=2ms,fail=20")).unwrap();
        assert_eq!((now(), strains.fail_above()), ((1250, 2000), Some(10)));
        strains.add(&wanted("cpu=0.5ms,fail=0")).unwrap();
        assert_eq!((now(), strains.fail_above()), ((1500, 0), Some(0)));
        strains.take_back();
        assert_eq!((now(), strains.fail_above()), ((1000, 0), Some(10)));
    }

    #[test]
    fn connections_need_not_ask_where_no_request_is_strained() {
        for (text, asks) in [
            ("lock=1ms,lane=1ms,flush=1ms", false),
            ("cpu=0s,worker=0s,delay=0s", false),
            ("cpu=1us", true),
            ("worker=1us", true),
            ("delay=1us", true),
            ("fail=0", true),
        ] {
            assert_eq!(Strains::new(wanted(text)).are_on_requests(), asks, "{text}");
        }
        let strains = Strains::new(Wanted::default());
        strains.add(&wanted("cpu=1ms")).unwrap();
        assert!(strains.are_on_requests());
        strains.take_back();
        assert!(!strains.are_on_requests());
    }

    #[test]
    fn a_lock_is_there_from_the_start_or_never() {
        let strains = Strains::new(wanted("cpu=1ms"));
        let why = strains.add(&wanted("lock=1ms,cpu=1ms")).unwrap_err();
        assert!(why.contains("start it with --strain lock=0s"), "{why}");
        assert_eq!(strains.time(Strain::Cpu), Duration::from_millis(1), "nothing is changed");
        let strains = Strains::new(wanted("lock=0s"));
        assert!(strains.has_lock());
        strains.add(&wanted("lock=1ms")).unwrap();
        assert_eq!(strains.time(Strain::Lock), Duration::from_millis(1));
    }

    #[test]
    fn computing_takes_processor_time_and_blocking_takes_time() {
        let before = processor_time();
        compute(Duration::from_millis(2));
        assert!(processor_time() - before >= Duration::from_millis(2));
        let before = processor_time();
        (0..10_000).for_each(|_| compute(Duration::from_nanos(300)));
        assert!(processor_time() - before >= Duration::from_micros(2_900), "short ones are added up");
        let began = Instant::now();
        for _ in 0..100 {
            block(Duration::from_micros(100));
        }
        // What is overslept last is made up for by the next.
        let least = Duration::from_millis(10) - OVERSLEPT_MAX;
        assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    }
}
