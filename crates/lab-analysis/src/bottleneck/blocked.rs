//! What limits a service of which nothing is known but what it shows from outside.
//!
//! Where clients are that are added tells what they wait for, as with queues that are counted. How many are served at once is goodput
//! times the latency of one client alone, who waits for nobody (Little's law).

use super::{Evidence, Grade};
use crate::outside::Outside;
use crate::rows::{Row, usable};
use lab_data::results::{Limit, ResourceKind};

/// Of each client more so many are there: that is where they are.
const SURE: f64 = 0.6;
/// Of each client more at least so many are there: less says nothing.
const LIKELY: f64 = 0.25;
/// Goodput that grows by less than this share of the growth of clients has a limit.
const LINEAR: f64 = 0.7;
/// The same where most of the clients think.
const NEARLY_LINEAR: f64 = 0.95;
/// Up to so many at once is one at a time: one alone is not always served without any delay.
const ONE: f64 = 1.5;
/// A thread that is busy for so much of the time has no more to give.
const WHOLE_THREAD: f64 = 0.9;
/// A processor that is less busy is not what anybody waits for; nor is a thread on a core of its own.
const AT_WORK: f64 = 0.5;
/// Threads that compute for so much of the time beside the busiest one do its work, too.
const BESIDE: f64 = 0.5;
/// If so many of those who wait for a thread wait for a mutex, all do: it is given on while they are counted.
const MOSTLY: f64 = 0.5;
/// A thread that wants more than it gets computes at least so much itself: else it only waits for a core, and others are the limit.
const AT_LEAST: f64 = 0.25;
/// A collector that is busy for so much of the time, or pauses that take so much of it, cost that share of the throughput.
const HALF: f64 = 0.5;
/// So much of the time in pauses shows that what the collector does stops the others.
const PAUSED: f64 = 0.25;
/// A gap between two answers that is so many times the mean is no chance.
const NO_CHANCE: f64 = 8.0;
/// Requests that are served at the same time end at the same time: a gap is none of theirs if it is so many times as long as they take.
const LONGER: f64 = 4.0;
/// Two numbers that were found in two ways say the same if they differ by no more.
const AGREE: f64 = 0.25;
/// Fewer than this count as none.
const HARDLY_ANY: f64 = 0.3;
/// A pool keeps nobody waiting while it has a place left: so many of the clients are served, give or take chance.
const ALL: f64 = 0.7;

/// Where the clients of a service are.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// How sure; [`Grade::NotIdentified`] where a level of one client is missing that would tell a lock from a pool or a delay.
    pub grade: Grade,
    /// What is seen there: `threads wait for another thread`.
    pub seen: &'static str,
    /// How many, at the most clients; `None` where what is seen is no number of clients or threads.
    pub count: Option<f64>,
    /// These.
    pub clients: u32,
    /// How many requests are served at once: goodput × latency of one client; `None` of a delay, where that is nearly none, and where
    /// one client alone was not measured.
    pub at_once: Option<f64>,
    /// Whether threads are seen to wait for each other: their stacks show where.
    pub in_threads: bool,
    /// What those that are served do, where that is seen.
    pub served: Option<&'static str>,
    /// Whether it could be read in which system calls threads are.
    pub may_read: bool,
    /// The name of the thread that is meant, or of the one that is busiest.
    pub thread: Option<String>,
}

/// A place where clients can be, in the order in which it is asked.
struct Place {
    name: &'static str,
    seen: &'static str,
    limit: Limit,
}

const PLACES: &[Place] = &[
    place(
        "held",
        "answers are held back until the client acknowledges their first part (Nagle, delayed ACK)",
        Limit::DelayedAck,
    ),
    place("accept_queue", "connections wait to be accepted", Limit::AcceptQueue),
    place("sending", "answers wait to be sent", Limit::Network),
    place("lock", "threads wait for another thread", Limit::ServerLock),
    place("disk", "threads wait for a disk", Limit::Disk),
    place("downstream_threads", "threads wait for another service", Limit::Downstream),
    place("downstream", "connections wait for another service", Limit::Downstream),
    place("sleep", "threads sleep", Limit::Timer),
];

/// What is seen of threads that wait for another one where several requests are served at once.
const POOL_OR_LOCK: &str =
    "threads wait for a place in a pool, or for a lock that each request holds for a part of its time";

/// What is seen where one request is served at a time, and no thread of the others.
const ONE_AT_A_TIME: &str = "requests wait without a thread, and one is served at a time (behind a lock, by one worker, or by a rate limit)";

/// What is seen where connections wait to be accepted by workers that compute.
const COMPUTE: &str = "connections wait to be accepted, and those that accept them compute, or wait for a core, nearly all of the time";

/// What clients wait for if a lock, a pool and a delay would look the same.
const UNCLEAR: &str = "a lock, a pool or a delay";

const fn place(name: &'static str, seen: &'static str, limit: Limit) -> Place {
    Place { name, seen, limit }
}

/// What is known of a sweep.
struct Sweep<'r> {
    /// How many clients were there at the fewest, that do not think.
    low: Option<(f64, &'r Outside)>,
    clients: u32,
    /// How many of these do not think.
    there: f64,
    high: &'r Outside,
    at_once: Option<f64>,
    /// How busy the processor is.
    processor: f64,
    /// How many cores the service has, and how many it uses.
    cores: f64,
    used: f64,
    /// A gap between two answers, in milliseconds, that is no chance at the most clients, nor the time that answers take.
    long_gap_ms: f64,
    /// Whether clients wait although there are no more of them than are served at once.
    waits_early: bool,
    /// Goodput of the most clients over that of the fewest, over the ratio of clients.
    linearity: Option<f64>,
}

impl Sweep<'_> {
    /// Of each client more, so many are in this place.
    fn growth(&self, name: &str) -> f64 {
        let (fewest, before) = self.low.map_or((0.0, 0.0), |(there, of)| (there, of.at(name)));
        (self.high.at(name) - before) / (self.there - fewest)
    }

    /// Whether the processor is busy enough to be waited for.
    fn computes(&self) -> bool {
        self.processor >= AT_WORK
    }

    fn is_linear(&self) -> bool {
        self.linearity.is_some_and(|of| of >= LINEAR)
    }

    /// How many are here that are served, at the most clients. More than clients are here at the fewest are threads of the language's own.
    fn served_at(&self, name: &str) -> f64 {
        let own = self.low.map_or(0.0, |(there, of)| (of.at(name) - there).max(0.0));
        (self.high.at(name) - own).max(0.0)
    }

    /// What those do that are served while others wait: `None` where it is not seen.
    fn served(&self) -> Option<(&'static str, Limit, f64)> {
        const HOLDERS: &[(&str, &str, Limit)] = &[
            ("disk", "waiting for a disk", Limit::Disk),
            ("downstream", "waiting for another service", Limit::Downstream),
            ("sleep", "sleeping, not computing", Limit::Timer),
            ("running", "computing", Limit::OneThread),
        ];
        let may = |of: &&(&str, &str, Limit)| of.0 != "running" || self.computes();
        let most =
            HOLDERS.iter().filter(may).max_by(|a, b| self.served_at(a.0).total_cmp(&self.served_at(b.0)))?;
        let count = self.served_at(most.0);
        (count >= HARDLY_ANY).then_some((most.1, most.2, count))
    }

    /// Those that are seen at work, where threads are also seen to wait, or as many as goodput and latency say.
    fn counted(&self) -> Option<f64> {
        let counted =
            self.served().filter(|(_, limit, _)| *limit != Limit::OneThread).map(|(.., count)| count);
        counted.filter(|count| self.growth("lock") >= LIKELY || self.agrees(*count))
    }

    /// How many are served at once: those that are counted, else as goodput and latency say. Where others disturb the one client that was
    /// measured alone, those say too many, and what is counted is often too few: of two that agree it is the mean.
    fn size(&self) -> Option<f64> {
        let mean =
            |count| self.at_once.filter(|_| self.agrees(count)).map_or(count, |of| f64::midpoint(count, of));
        self.counted().map(mean).or(self.at_once)
    }

    /// Whether as many as goodput and latency say.
    fn agrees(&self, count: f64) -> bool {
        self.at_once.is_some_and(|of| (count - of).abs() <= AGREE * of)
    }

    /// Whether that is one at a time; `None` where nothing says how many it is.
    fn serves_one(&self) -> Option<bool> {
        self.counted().or(self.at_once).map(|count| count < ONE)
    }

    /// What is seen where clients are: how many are there, and what those do that are served meanwhile.
    fn evidence(
        &self,
        limit: impl Into<Option<Limit>>,
        grade: Grade,
        seen: &'static str,
        count: Option<f64>,
        served: Option<&'static str>,
    ) -> Evidence {
        let limit = limit.into();
        let resource = match (limit, self.size()) {
            (Some(Limit::Pool), Some(size)) => format!("a pool of {size:.0}"),
            _ => limit.map_or(UNCLEAR, Limit::name).to_owned(),
        };
        Evidence {
            id: format!("outside: {resource}"),
            resource,
            kind: ResourceKind::Indication,
            utilization: match limit {
                Some(Limit::OneThread) => self.high.busiest_thread,
                // How many threads want it is its count.
                Some(Limit::ServerCpu) => self.processor,
                Some(Limit::Pauses) => self.high.collector.max(self.silent()),
                _ => 0.0,
            },
            limit,
            blocked: Some(Blocked {
                grade,
                seen,
                count,
                clients: self.clients,
                // Of a delay any number is served at once; where pauses hold up half of the requests, the median says too few.
                at_once: self.at_once.filter(|of| grade != Grade::Delay && *of >= HARDLY_ANY),
                in_threads: self.growth("lock") >= LIKELY,
                served,
                may_read: self.high.may_read,
                thread: self.high.busiest_thread_is.clone(),
            }),
            ..Evidence::default()
        }
    }

    /// The share of the time that is spent in gaps between answers that are no chance.
    fn silent(&self) -> f64 {
        self.high.silent(self.long_gap_ms)
    }

    /// All threads stand still for a good part of the time.
    fn pauses(&self) -> Option<Evidence> {
        let silent = self.silent();
        let (grade, seen) = match self.high.collector {
            share if share >= HALF => {
                let grade = if silent >= PAUSED { Grade::Supported } else { Grade::Suspected };
                (grade, "the garbage collector computes for at least half of the time")
            }
            // Threads that wait for a core answer nobody, either.
            _ if silent >= HALF && !self.is_linear() && !self.wants_all() => {
                (Grade::Suspected, "long gaps between answers take at least half of the time")
            }
            _ => return None,
        };
        Some(self.evidence(Limit::Pauses, grade, seen, None, None))
    }

    /// Whether its threads together want all of the cores nearly all of the time.
    fn wants_all(&self) -> bool {
        self.high.computing >= WHOLE_THREAD * self.cores
    }

    /// The same, and they do not get it: others compute, too.
    fn full_processor(&self) -> Option<Evidence> {
        (self.wants_all() && self.processor >= AT_LEAST).then(|| {
            let seen = "threads compute or wait for a core";
            self.evidence(Limit::ServerCpu, Grade::Suspected, seen, Some(self.high.computing), None)
        })
    }

    /// One thread has no more to give. On a busy machine it gets less of a core than it wants. Where others compute, too, all of them may only
    /// wait for a core.
    fn full_thread(&self) -> Option<Evidence> {
        let grade = if self.used >= AT_WORK { Grade::Supported } else { Grade::Suspected };
        let is_alone = self.high.computing < self.high.busiest_thread + BESIDE;
        (self.high.busiest_thread >= WHOLE_THREAD && self.used >= AT_LEAST && is_alone).then(|| {
            let seen = "one thread computes, or waits for a core, nearly all of the time";
            self.evidence(Limit::OneThread, grade, seen, None, None)
        })
    }

    /// What a place says.
    fn at(&self, place: &Place) -> Option<Evidence> {
        let growth = self.growth(place.name);
        let sure = if growth >= SURE { Grade::Supported } else { Grade::Suspected };
        if growth < LIKELY {
            return None;
        }
        let count = Some(self.high.at(place.name));
        // Goodput that grows with the clients has no limit yet.
        if self.is_linear() {
            let limit = if place.limit == Limit::ServerLock { Limit::Timer } else { place.limit };
            // Threads that have nothing to do look the same.
            let may_be = limit == place.limit || !self.computes();
            return may_be.then(|| self.evidence(limit, Grade::Delay, place.seen, count, None));
        }
        let served = self.served();
        // Nobody accepts while those that do it compute, or wait for a core: all of them, or some workers of more cores.
        if place.limit == Limit::AcceptQueue {
            let workers = || self.evidence(Limit::Pool, Grade::Suspected, COMPUTE, count, None);
            let may = self.high.busiest_thread >= WHOLE_THREAD && self.agrees(self.high.computing);
            let some = || may.then(workers);
            let busy = self.full_thread().or_else(|| self.full_processor()).or_else(some);
            if busy.is_some() {
                return busy;
            }
        }
        let limit = match place.limit {
            Limit::ServerLock => self.behind_threads(served.map(|(_, limit, _)| limit)),
            limit => Some(limit),
        };
        let (grade, seen) = match limit {
            None => (Grade::NotIdentified, place.seen),
            // A delay that any number can be in does not keep goodput from growing: something else does.
            Some(Limit::Timer) => (Grade::Suspected, place.seen),
            // Three at once are let through by a lock, too, that each of them holds for a third of its time.
            Some(Limit::Pool) => (Grade::Suspected, POOL_OR_LOCK),
            _ => (sure, place.seen),
        };
        let of_lock = served.filter(|_| place.limit == Limit::ServerLock).map(|(does, ..)| does);
        Some(self.evidence(limit, grade, seen, count, of_lock))
    }

    /// What threads wait for that wait for each other, by what those do that are served meanwhile, and how many they are; `None` where
    /// it depends on that number, and nobody knows it.
    fn behind_threads(&self, served: Option<Limit>) -> Option<Limit> {
        Some(match (served, self.serves_one()) {
            (Some(Limit::Disk), _) => Limit::Disk,
            (Some(Limit::OneThread), None | Some(true)) if self.high.busiest_thread >= WHOLE_THREAD => {
                Limit::OneThread
            }
            (_, None) if !self.is_mutex() => return None,
            (_, Some(false)) if !self.waits_early && !self.is_mutex() => Limit::Pool,
            _ => Limit::ServerLock,
        })
    }

    /// Whether threads that wait for each other wait for those that hold a mutex.
    fn is_mutex(&self) -> bool {
        self.growth("mutex") >= MOSTLY * self.growth("lock")
    }

    /// What the numbers of requests alone say, where no place holds the clients: an event loop, or threads of a language's own.
    fn unseen(&self) -> Option<Evidence> {
        if let Some(found) = self.full_thread().filter(|_| self.computes() || !self.is_linear()) {
            return Some(found);
        }
        let seen = "requests wait without a thread";
        if self.is_linear() {
            let all = Some(self.there);
            return (!self.computes()).then(|| self.evidence(Limit::Timer, Grade::Delay, seen, all, None));
        }
        if let Some(found) = self.full_processor() {
            return Some(found);
        }
        let waiting = self.at_once.map(|of| (self.there - of).max(0.0));
        let served = self.served();
        let limit = match (served, self.serves_one()) {
            // One thread does all, and mostly waits for it.
            (Some((_, Limit::Disk, _)), _) => Some(Limit::Disk),
            (_, is_one) => is_one.map(|is_one| if is_one { Limit::ServerLock } else { Limit::Pool }),
        };
        // As many are seen at work as goodput and latency say: two ways to the same number.
        let is_seen =
            limit != Some(Limit::ServerLock) && served.is_some_and(|(.., count)| self.agrees(count));
        let grade = match limit {
            None => Grade::NotIdentified,
            Some(_) if is_seen => Grade::Supported,
            Some(_) => Grade::Suspected,
        };
        let does = served.map(|(does, ..)| does).filter(|_| is_seen);
        let seen = if limit == Some(Limit::ServerLock) { ONE_AT_A_TIME } else { seen };
        Some(self.evidence(limit, grade, seen, waiting, does))
    }
}

/// How many of a row's clients do not think, by Little's law.
fn there(row: &Row) -> f64 {
    let share = row.latency_us_mean.zip(row.cycle_us()).map_or(1.0, |(latency, cycle)| latency / cycle);
    f64::from(row.level) * if share > 0.0 { share } else { 1.0 }
}

/// Where the clients of a foreign service are; `None` where nobody looked.
pub(super) fn evidence(rows: &[Row], known: &[Evidence]) -> Option<Evidence> {
    let seen: Vec<(&Row, &Outside)> =
        usable(rows).filter_map(|row| Some((row, row.outside.as_ref()?))).collect();
    let (last, high) = *seen.last()?;
    let first = seen.first().filter(|(row, _)| row.level < last.level);
    let best = usable(rows).map(Row::rps).fold(0.0, f64::max);
    // Half of the requests are not disturbed by what else the machine does.
    let alone_us = usable(rows).find(|row| row.level == 1).and_then(|row| row.latency_us_p50);
    let at_once = alone_us.map(|us| best * us / 1e6);
    let growth = |row: &Row| (last.rps() / row.rps()) / (there(last) / there(row));
    // The most clients that could all be served at once.
    let fits = |row: &Row| row.level > 1 && at_once.is_some_and(|of| there(row) <= of.round());
    let waits_early = seen.iter().rfind(|(row, _)| fits(row)).is_some_and(|(row, of)| {
        let served: f64 = ["disk", "downstream", "sleep", "running"].iter().map(|name| of.at(name)).sum();
        (HARDLY_ANY..ALL * there(row)).contains(&served)
    });
    // What other parts compute, none of its threads does.
    let processors = known.iter().filter(|of| of.is_hard && of.limit != Some(Limit::Other));
    let busiest = processors.clone().max_by(|a, b| a.utilization.total_cmp(&b.utilization));
    let of_service = |of: &&Evidence| matches!(of.limit, Some(Limit::ServerCpu | Limit::ServerQuota));
    let own = processors.filter(of_service);
    let cores = own.clone().map(|of| of.servers).fold(1.0, f64::max);
    let used = own.map(|of| of.utilization * of.servers).reduce(f64::max);
    let sweep = Sweep {
        low: first.map(|(row, of)| (there(row), *of)),
        clients: last.level,
        there: there(last),
        high,
        at_once,
        processor: busiest.map_or(0.0, |of| of.utilization),
        cores,
        used: used.unwrap_or(busiest.map_or(0.0, |of| of.utilization)),
        long_gap_ms: (NO_CHANCE * 1e3 / last.rps()).max(alone_us.map_or(0.0, |us| LONGER * us / 1e3)),
        waits_early,
        linearity: first.map(|(row, _)| growth(row)),
    };
    if let Some(found) = sweep.pauses() {
        return Some(found);
    }
    // Of those that are added nearly all think: that the others are somewhere says nothing.
    let (level, fewest) = first.map_or((0.0, 0.0), |(row, _)| (f64::from(row.level), there(row)));
    if sweep.there - fewest < LIKELY * (f64::from(last.level) - level) {
        let of_clients = first.map(|(row, _)| last.rps() / row.rps() * level / f64::from(last.level));
        let has_limit = of_clients.is_some_and(|of| of < NEARLY_LINEAR);
        return sweep.full_thread().or_else(|| sweep.full_processor()).filter(|_| has_limit);
    }
    // The place with the most clients; of two the one that is asked first.
    let likely = PLACES.iter().filter_map(|place| Some((sweep.growth(place.name), sweep.at(place)?)));
    let most = likely.reduce(|a, b| if b.0 > a.0 + LIKELY { b } else { a });
    let found = most.map_or_else(|| sweep.unseen(), |(_, evidence)| Some(evidence));
    // One client alone waits for no other.
    let is_for_others =
        |of: &Evidence| matches!(of.limit, Some(Limit::ServerLock | Limit::Pool | Limit::AcceptQueue));
    found.filter(|of| last.level > 1 || !is_for_others(of))
}

#[cfg(test)]
mod tests;
