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
/// Up to so many at once is one at a time: one alone is not always served without any delay.
const ONE: f64 = 1.5;
/// A thread that is busy for so much of the time has no more to give.
const WHOLE_THREAD: f64 = 0.9;
/// A processor that is less busy is not what anybody waits for.
const AT_WORK: f64 = 0.5;
/// So few that it is not seen what those do that are served.
const HARDLY_ANY: f64 = 0.3;
/// A pool keeps nobody waiting while it has a place left: so many of the clients are served, give or take chance.
const ALL: f64 = 0.7;

/// Where the clients of a service are.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// How sure.
    pub grade: Grade,
    /// What is seen there: `threads wait for another thread`.
    pub seen: &'static str,
    /// How many, at the most clients.
    pub count: f64,
    /// These.
    pub clients: u32,
    /// How many requests are served at once: goodput × latency of one client; `None` where one client alone was not measured.
    pub at_once: Option<f64>,
    /// What those that are served do, where that is seen.
    pub served: Option<&'static str>,
    /// Whether it could be read in which system calls threads are.
    pub may_read: bool,
}

/// A place where clients can be, in the order in which it is asked.
struct Place {
    name: &'static str,
    seen: &'static str,
    limit: Limit,
    /// Any number of clients can be there at once.
    is_delay: bool,
}

const PLACES: &[Place] = &[
    place(
        "held",
        "answers are held back until the client acknowledges their first part (Nagle, delayed ACK)",
        Limit::DelayedAck,
        true,
    ),
    place("accept_queue", "connections wait to be accepted", Limit::AcceptQueue, false),
    place("sending", "answers wait to be sent", Limit::Network, false),
    place("lock", "threads wait for another thread", Limit::ServerLock, false),
    place("disk", "threads wait for a disk", Limit::Disk, false),
    place("downstream_threads", "threads wait for another service", Limit::Downstream, true),
    place("downstream", "connections wait for another service", Limit::Downstream, true),
    place("sleep", "threads sleep", Limit::Timer, true),
];

const fn place(name: &'static str, seen: &'static str, limit: Limit, is_delay: bool) -> Place {
    Place { name, seen, limit, is_delay }
}

/// What is known of a sweep.
struct Sweep<'r> {
    low: Option<(f64, &'r Outside)>,
    clients: u32,
    high: &'r Outside,
    at_once: Option<f64>,
    /// Whether the processor is busy at all.
    computes: bool,
    /// Whether clients wait although there are no more of them than are served at once.
    waits_early: bool,
    /// Goodput of the most clients over that of the fewest, over the ratio of clients.
    linearity: Option<f64>,
}

impl Sweep<'_> {
    /// Of each client more, so many are in this place.
    fn growth(&self, name: &str) -> f64 {
        let (fewest, before) = self.low.map_or((0.0, 0.0), |(level, of)| (level, of.at(name)));
        (self.high.at(name) - before) / (f64::from(self.clients) - fewest)
    }

    fn is_linear(&self) -> bool {
        self.linearity.is_some_and(|of| of >= LINEAR)
    }

    /// What those do that are served while others wait: `None` where it is not seen.
    fn served(&self) -> Option<(&'static str, Limit)> {
        const HOLDERS: &[(&str, &str, Limit)] = &[
            ("disk", "wait for a disk", Limit::Disk),
            ("downstream", "wait for another service", Limit::Downstream),
            ("sleep", "sleep", Limit::Timer),
            ("running", "compute", Limit::OneThread),
        ];
        let may = |of: &&(&str, &str, Limit)| of.0 != "running" || self.computes;
        let most =
            HOLDERS.iter().filter(may).max_by(|a, b| self.high.at(a.0).total_cmp(&self.high.at(b.0)))?;
        (self.high.at(most.0) >= HARDLY_ANY).then_some((most.1, most.2))
    }

    fn evidence(&self, limit: Limit, blocked: Blocked) -> Evidence {
        let at_once = self.at_once.map_or(0.0, f64::round);
        let resource = match limit {
            Limit::Pool if at_once > 0.0 => format!("a pool of {at_once:.0}"),
            _ => limit.name().to_owned(),
        };
        Evidence {
            id: format!("outside: {resource}"),
            resource,
            kind: ResourceKind::Indication,
            utilization: if limit == Limit::OneThread { self.high.busiest_thread } else { 0.0 },
            limit: Some(limit),
            blocked: Some(blocked),
            ..Evidence::default()
        }
    }

    fn blocked(&self, grade: Grade, seen: &'static str, count: f64, served: Option<&'static str>) -> Blocked {
        // Of a delay any number is served at once.
        let at_once = self.at_once.filter(|_| grade != Grade::Delay);
        Blocked { grade, seen, count, clients: self.clients, at_once, served, may_read: self.high.may_read }
    }

    /// What a place says.
    fn at(&self, place: &Place) -> Option<Evidence> {
        let growth = self.growth(place.name);
        let sure = if growth >= SURE { Grade::Supported } else { Grade::Suspected };
        if growth < LIKELY {
            return None;
        }
        let count = self.high.at(place.name);
        // Goodput that grows with the clients has no limit yet.
        if self.is_linear() {
            let limit = if place.limit == Limit::ServerLock { Limit::Timer } else { place.limit };
            return Some(self.evidence(limit, self.blocked(Grade::Delay, place.seen, count, None)));
        }
        let served = self.served();
        let limit = match place.limit {
            Limit::ServerLock => self.behind_threads(served.map(|(_, limit)| limit)),
            limit => limit,
        };
        // A delay that any number can be in does not keep goodput from growing: something else does.
        let grade = if place.is_delay && place.limit == Limit::Timer { Grade::Suspected } else { sure };
        let of_lock = served.filter(|_| place.limit == Limit::ServerLock).map(|(does, _)| does);
        Some(self.evidence(limit, self.blocked(grade, place.seen, count, of_lock)))
    }

    /// What threads wait for that wait for each other, by what those do that are served meanwhile, and how many they are.
    fn behind_threads(&self, served: Option<Limit>) -> Limit {
        let is_one = self.at_once.is_none_or(|count| count < ONE);
        match (served, is_one) {
            (Some(Limit::Disk), _) => Limit::Disk,
            (Some(Limit::OneThread), true) if self.high.busiest_thread >= WHOLE_THREAD => Limit::OneThread,
            (_, false) if !self.waits_early => Limit::Pool,
            _ => Limit::ServerLock,
        }
    }

    /// What the numbers of requests alone say, where no place holds the clients: an event loop, or threads of a language's own.
    fn unseen(&self) -> Evidence {
        if self.computes && self.high.busiest_thread >= WHOLE_THREAD {
            let blocked = self.blocked(Grade::Supported, "threads compute all of the time", 1.0, None);
            return self.evidence(Limit::OneThread, blocked);
        }
        if self.is_linear() {
            let seen = "requests wait without a thread";
            return self
                .evidence(Limit::Timer, self.blocked(Grade::Delay, seen, f64::from(self.clients), None));
        }
        let waiting = f64::from(self.clients) - self.at_once.unwrap_or(0.0);
        let limit =
            if self.at_once.is_none_or(|count| count < ONE) { Limit::ServerLock } else { Limit::Pool };
        let blocked =
            self.blocked(Grade::Suspected, "requests wait without a thread", waiting.max(0.0), None);
        self.evidence(limit, blocked)
    }
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
    let growth = |row: &Row| (last.rps() / row.rps()) / (f64::from(last.level) / f64::from(row.level));
    // The most clients that could all be served at once.
    let fits = |row: &Row| row.level > 1 && at_once.is_some_and(|of| f64::from(row.level) <= of.round());
    let waits_early = seen.iter().rfind(|(row, _)| fits(row)).is_some_and(|(row, of)| {
        let served: f64 = ["disk", "downstream", "sleep", "running"].iter().map(|name| of.at(name)).sum();
        (HARDLY_ANY..ALL * f64::from(row.level)).contains(&served)
    });
    let sweep = Sweep {
        low: first.map(|(row, of)| (f64::from(row.level), *of)),
        clients: last.level,
        high,
        at_once,
        computes: known.iter().any(|of| of.is_hard && of.utilization >= AT_WORK),
        waits_early,
        linearity: first.map(|(row, _)| growth(row)),
    };
    // The place with the most clients; of two the one that is asked first.
    let likely = PLACES.iter().filter_map(|place| Some((sweep.growth(place.name), sweep.at(place)?)));
    let most = likely.reduce(|a, b| if b.0 > a.0 + LIKELY { b } else { a });
    Some(most.map_or_else(|| sweep.unseen(), |(_, evidence)| evidence))
}

#[cfg(test)]
mod tests;
