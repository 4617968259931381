//! The rules that name a bottleneck.

use super::queues::Queues;
use super::{CONFLICTS, Evidence, Grade, Reason};
use crate::interventions::Shown;
use crate::rows::{FastFail, SATURATED};
use lab_data::results::{Limit, ResourceKind};

/// A queue that takes at least so many of each client more is where they pile up.
const PILES_UP: f64 = 0.5;
/// Two resources share the load if both are saturated and their ceilings are no further apart than this: which of them has the
/// longer queue is then chance.
const SHARED_CEILING: f64 = 0.05;
/// A generator busy for less of the time has nobody waiting for it for long.
const AT_WORK: f64 = 0.5;
/// A target with a resource that is busier may be at its own limit.
const BUSY: f64 = 0.9;
/// Nearly saturated: the limit may be this one, too.
const CLOSE: f64 = 0.85;
/// So much of a session's time that is computed with makes the processor the session's business.
const COMPUTES: f64 = 0.3;
/// So much of a lane's busy time in the flush means that the lane waits for it.
const MOSTLY: f64 = 0.6;
/// Each client gets at least so much of what one alone gets: nobody is in anybody's way.
const LINEAR: f64 = 0.8;
/// Held back for so much of the time by its quota, a service is mostly its quota's business.
const STOPPED: f64 = 0.25;
/// So few of the clients wait that no queue says anything.
const HARDLY_ANY: f64 = 0.2;

/// A rule that may name the bottleneck.
pub struct Rule {
    /// A few words.
    pub name: &'static str,
    /// Concludes from the case; `None` where the rule does not apply.
    pub apply: fn(&Case) -> Option<Conclusion>,
}

/// What a rule concludes.
pub struct Conclusion {
    /// How sure, before interventions are asked.
    pub grade: Grade,
    /// The resources named, as indices into the evidence.
    pub named: Vec<usize>,
    /// What led to it.
    pub because: Vec<Reason>,
    /// Whether a queue that grows, or a wait that holds most clients, carries it, with a demand that is the same at all levels. Only
    /// then can interventions confirm it.
    pub is_firm: bool,
}

impl Conclusion {
    pub(super) fn of(grade: Grade, named: Vec<usize>) -> Conclusion {
        Conclusion { grade, named, because: Vec::new(), is_firm: false }
    }

    fn firm(self, is_firm: bool) -> Conclusion {
        Conclusion { is_firm, ..self }
    }

    pub(super) fn why(mut self, reason: Reason) -> Conclusion {
        self.because.push(reason);
        self
    }

    /// The queue stands before what follows from it.
    fn because_of(mut self, queue: Reason) -> Conclusion {
        self.because.insert(0, queue);
        self
    }
}

/// What a rule sees.
pub struct Case {
    /// Every resource that could be read at the levels in question, and last the class of database waits that holds most
    /// of the clients, where one does.
    pub evidence: Vec<Evidence>,
    /// Where clients pile up; `None` where nobody counted.
    pub queues: Option<Queues>,
    /// What slowing the generator shows; `None` where it was not made slower.
    pub headroom: Option<Shown>,
    /// How the highest levels fail fast.
    pub fails_fast: Option<FastFail>,
    /// Whether the loop was open.
    pub is_open: bool,
    /// Whether there was never more than one client.
    pub is_alone: bool,
}

/// The rules in the order they are asked; the first that applies decides.
pub const RULES: &[Rule] = &[
    Rule {
        name: "fast-fail",
        apply: |case| {
            Some(Conclusion::of(Grade::FastFail, Vec::new()).why(Reason::FailsFast(case.fails_fast?)))
        },
    },
    Rule {
        name: "generator",
        apply: |case| {
            let busiest = case.busiest(|of| of.kind == ResourceKind::Generator);
            let limits = match case.headroom {
                Some(Shown::Limit) => true,
                Some(Shown::NotLimit) => false,
                Some(Shown::Undecided) | None => case.generator_looks_limiting(&case.evidence[busiest?]),
            };
            limits.then(|| Conclusion::of(Grade::Generator, Vec::from_iter(busiest)))
        },
    },
    Rule { name: "queue", apply: |case| case.queue() },
    Rule { name: "store", apply: |case| case.store() },
    Rule { name: "seen from outside", apply: |case| case.seen_from_outside() },
    Rule {
        name: "delay",
        apply: |case| {
            let found = Conclusion::of(Grade::Delay, Vec::new());
            // However busy what serves it is.
            if case.waits_for_nobody() {
                return Some(found.why(Reason::OneClient));
            }
            let queues = case.queues.as_ref().filter(|_| !case.is_open)?;
            let saturated = case.evidence.iter().any(|of| of.is_hard && of.saturated());
            let each = queues.linearity.filter(|each| *each >= LINEAR)?;
            let waiting = queues.waiting_share;
            (queues.high > 1 && waiting <= HARDLY_ANY && !saturated)
                .then(|| found.why(Reason::NobodyWaits { clients: queues.high, waiting, each }))
        },
    },
    Rule {
        name: "database wait",
        apply: |case| {
            let firm = |of: &Evidence| matches!(of.kind, ResourceKind::Station | ResourceKind::Cap);
            let saturated = |of: &Evidence| firm(of) && of.saturated();
            let wait = case.wait().filter(|_| case.queues.is_none());
            wait.filter(|_| !case.evidence.iter().any(saturated))
                .map(|i| Conclusion::of(Grade::Supported, vec![i]))
        },
    },
    Rule {
        name: "one or more saturated",
        apply: |case| {
            let named: Vec<usize> = case.all(|of| of.limits() && (case.queues.is_none() || of.is_hard));
            (!named.is_empty()).then(|| Conclusion::of(Grade::Supported, named))
        },
    },
    Rule { name: "slowed", apply: |case| case.slowed().filter(|found| found.grade == Grade::Supported) },
    Rule { name: "suspected", apply: |case| case.suspected() },
    Rule {
        name: "conflicts",
        apply: |case| {
            let at = case.index(CONFLICTS)?;
            Some(Conclusion::of(Grade::Suspected, vec![at]))
        },
    },
    Rule {
        name: "none",
        apply: |case| {
            let found = Conclusion::of(Grade::NotIdentified, Vec::new());
            let lost = case.queues.as_ref().filter(|queues| queues.unaccounted >= PILES_UP);
            Some(match lost {
                Some(queues) => found.why(Reason::Unaccounted(queues.growth("", queues.unaccounted))),
                None => found,
            })
        },
    },
];

impl Case {
    /// What the first rule that applies concludes. Where it names nothing, what was made slower is asked; where that names nothing
    /// either, it may say why.
    pub(super) fn conclude(&self) -> Conclusion {
        let first = RULES.iter().find_map(|rule| (rule.apply)(self));
        let first = first.unwrap_or_else(|| Conclusion::of(Grade::NotIdentified, Vec::new()));
        [Case::slowed, Case::suspected].into_iter().fold(first, |found, ask| match ask(self) {
            Some(more) if found.grade == Grade::NotIdentified => {
                Conclusion { because: [found.because, more.because].concat(), ..more }
            }
            _ => found,
        })
    }

    /// Whether there was never more than one client, who sends when the last answer is there.
    fn waits_for_nobody(&self) -> bool {
        self.is_alone && !self.is_open
    }

    /// What is saturated only with the most clients: on a busy machine the levels that decide may be the wrong ones.
    fn suspected(&self) -> Option<Conclusion> {
        let queues = self.queues.as_ref().filter(|of| !self.is_open && of.unaccounted < PILES_UP)?;
        let holder = match queues.outer().first() {
            Some((name, growth)) if *growth >= PILES_UP => Some(&self.evidence[self.index(name)?]),
            _ => None,
        };
        let may = |of: &Evidence| {
            let is_its_queue = holder.is_none_or(|holder| of.id == holder.id || is_inside(of, holder));
            of.is_hard && of.can_limit() && of.slowed != Some(Shown::NotLimit) && is_its_queue
        };
        let is_full = |of: &Evidence| of.at_most_clients.is_some_and(|(_, busy)| busy >= SATURATED);
        let at = *self.all(|of| may(of) && is_full(of)).first()?;
        let why = Reason::SaturatedAtMost(self.evidence[at].clone());
        Some(Conclusion::of(Grade::Suspected, vec![at]).why(why))
    }

    /// What a foreign service shows, where no processor explains enough.
    fn seen_from_outside(&self) -> Option<Conclusion> {
        let is_seen = |of: &Evidence| of.blocked.is_some() && !self.waits_for_nobody();
        let at = self.evidence.iter().position(is_seen)?;
        let blocked = self.evidence[at].blocked.clone()?;
        let hard = |of: &Evidence| of.is_hard && of.can_limit() && of.utilization >= CLOSE;
        let is_thread = self.evidence[at].limit == Some(Limit::OneThread);
        let says_more = is_thread || self.evidence[at].limit == Some(Limit::Pauses);
        let is_quota = |at: usize| self.evidence[at].limit == Some(Limit::ServerQuota);
        // Nor is it on a core as often as its quota allows where others take that, too; and what others wait for waits for it.
        let stops = |of: &Evidence| {
            of.limit == Some(Limit::ServerQuota) && of.throttled.is_some_and(|share| share >= STOPPED)
        };
        match self.busiest(hard) {
            // A thread that a quota does not let onto a core looks as one that computes.
            Some(busy) if is_quota(busy) && self.evidence[busy].limits() => return None,
            // All cores are full. Whether one thread had more to give on more of them is not seen: some languages start as many as there are.
            // Of one core, a thread that computes all of the time and the core are the same limit.
            Some(busy)
                if is_thread && (self.evidence[busy].limits() || self.evidence[busy].is_one_core()) =>
            {
                return Some(Conclusion::of(Grade::Supported, vec![busy]).why(Reason::Blocked(blocked)));
            }
            busy if self.evidence.iter().any(stops)
                && busy.is_none_or(|busy| !self.evidence[busy].limits()) =>
            {
                return Some(Conclusion::of(Grade::Suspected, self.all(stops)).why(Reason::Blocked(blocked)));
            }
            // It says more than that some processor is busy.
            _ if says_more => {}
            Some(busy) if self.evidence[busy].limits() => return None,
            Some(busy) => {
                let found = Conclusion::of(Grade::Suspected, vec![busy]);
                let is_same = self.evidence[busy].limit == self.evidence[at].limit;
                return Some(if is_same { found.why(Reason::Blocked(blocked)) } else { found });
            }
            None if self.is_open => return None,
            None => {}
        }
        let named = if blocked.grade == Grade::NotIdentified { Vec::new() } else { vec![at] };
        Some(Conclusion::of(blocked.grade, named).why(Reason::Blocked(blocked)))
    }

    fn slowed(&self) -> Option<Conclusion> {
        let follows = |of: &Evidence| of.is_hard && of.can_limit() && of.slowed == Some(Shown::Limit);
        let of = self.evidence[self.busiest(follows)?].clone();
        let named = self.all(|of| follows(of) && of.utilization >= CLOSE);
        let grade = if named.is_empty() { Grade::NotIdentified } else { Grade::Supported };
        let is_named = !named.is_empty();
        Some(Conclusion::of(grade, named).why(Reason::Followed { of, is_named }))
    }

    fn all(&self, which: impl Fn(&Evidence) -> bool) -> Vec<usize> {
        (0..self.evidence.len()).filter(|i| which(&self.evidence[*i])).collect()
    }

    fn busiest(&self, among: impl Fn(&Evidence) -> bool) -> Option<usize> {
        let among = self.all(among).into_iter();
        among.max_by(|a, b| self.evidence[*a].utilization.total_cmp(&self.evidence[*b].utilization))
    }

    /// Whether the generator is saturated or has a queue, and nothing in the target is near its limit.
    fn generator_looks_limiting(&self, generator: &Evidence) -> bool {
        // Looking at sockets itself holds up whoever has the core: a generator that is mostly idle has no queue.
        let piles_up = generator.queue_growth >= Some(PILES_UP) && generator.utilization >= AT_WORK;
        let target_is_busy = self.evidence.iter().any(|of| of.can_limit() && of.utilization >= BUSY);
        (generator.saturated() || piles_up) && !target_is_busy
    }

    /// The class of database waits that holds at least half of those who can be there.
    fn wait(&self) -> Option<usize> {
        self.evidence.iter().position(|of| of.waiting.is_some())
    }

    fn index(&self, resource: &str) -> Option<usize> {
        self.evidence.iter().position(|of| of.id == resource)
    }

    /// A conclusion that names what is saturated, whoever uses it: cores, quotas and rates that are used by those whom `holder`
    /// serves. A processor that has a name of its own part counts for all who use it.
    fn by_what_is_inside(&self, holder: &Evidence) -> Option<Conclusion> {
        let inside =
            self.all(|of| of.is_hard && of.saturated() && (of.id == holder.id || is_inside(of, holder)));
        let is_firm = inside.iter().all(|i| self.evidence[*i].limits());
        (!inside.is_empty()).then(|| Conclusion::of(Grade::Supported, inside).firm(is_firm))
    }

    /// Whether something hard inside `holder` is nearly saturated: with a few per cent more it would be named instead.
    fn is_close(&self, holder: &Evidence) -> bool {
        let mut inside = self.evidence.iter().filter(|of| of.is_hard && is_inside(of, holder));
        inside.any(|of| of.utilization >= CLOSE)
    }

    /// Follows the queue that grows, and the one beside it if both resources are at their limit.
    fn queue(&self) -> Option<Conclusion> {
        let queues = self.queues.as_ref()?;
        // Answers that wait for the generator are not the target's business.
        let is_generator =
            |name: &str| self.index(name).is_some_and(|i| self.evidence[i].kind == ResourceKind::Generator);
        let mut outer = queues.outer().into_iter().filter(|(name, _)| !is_generator(name));
        let (first, growth) = outer.next()?;
        let both = outer.find_map(|(second, _)| self.shares(self.index(first)?, self.index(second)?));
        if growth < PILES_UP && both.is_none() {
            return None;
        }
        let found = self.held_up(self.index(first)?);
        let mut found = match both {
            // The one with the longer queue may be the one that is not quite saturated.
            Some((one, _)) if found.named.is_empty() => {
                Conclusion::of(Grade::Supported, vec![one]).firm(!self.is_close(&self.evidence[one]))
            }
            _ => found,
        };
        found.named.extend(both.map(|(_, other)| other));
        found.is_firm &= growth >= PILES_UP;
        Some(found.because_of(Reason::Queue(queues.growth(first, growth))))
    }

    /// What limits behind the queues of resources `first` and `second`, if the one is as near to its limit as the other, and one of them is
    /// there. A lock is held over all that a write does in the store: that is inside it, and not beside it.
    fn shares(&self, first: usize, second: usize) -> Option<(usize, usize)> {
        let is_over = self.evidence[first].limit == Some(Limit::ServerLock);
        if is_over && self.evidence[second].kind == ResourceKind::Pool {
            return None;
        }
        let limit = |at: usize| match self.held_up(at).named[..] {
            [named] => Some(named),
            // Of two that let the same through one has the queue, and the other now and then nothing to do.
            [] if self.evidence[at].nearly_limits() => Some(at),
            _ => None,
        };
        let (one, other) = limit(first).zip(limit(second))?;
        let ceilings = self.evidence[one].ceiling_rps.zip(self.evidence[other].ceiling_rps);
        let near = ceilings.is_some_and(|(a, b)| (a / b - 1.0).abs() <= SHARED_CEILING);
        let at_limit = self.evidence[one].saturated() || self.evidence[other].saturated();
        (one != other && near && at_limit).then_some((one, other))
    }

    /// What limits, if clients pile up in front of resource `at`: itself, or what those are held up by that it serves.
    fn held_up(&self, at: usize) -> Conclusion {
        let holder = &self.evidence[at];
        if let Some(found) = self.by_what_is_inside(holder) {
            return found;
        }
        if holder.kind == ResourceKind::Pool {
            if holder.load_dependent {
                return self.batches(holder);
            }
            // Rows that are locked go one after the other however many sessions wait for them. A log is flushed for all who
            // wait, so that more sessions get more: there the sessions are the limit.
            let serial = |i: &usize| self.evidence[*i].limit == Some(Limit::RowLock);
            if let Some(wait) = self.wait().filter(serial) {
                return Conclusion::of(Grade::Supported, vec![wait]).firm(true);
            }
        }
        if let Some(found) = self.by_queued_flush(holder) {
            return found;
        }
        if holder.limits_with_queue() {
            // Workers that wait for a core, or compute, are busy, too.
            let of_server = |of: &Evidence| matches!(of.limit, Some(Limit::ServerCpu | Limit::ServerQuota));
            let may_compute =
                holder.limit == Some(Limit::ServerWorkers) && !self.evidence.iter().any(of_server);
            return match may_compute {
                true => Conclusion::of(Grade::Suspected, vec![at]).why(Reason::ProcessorNotRead),
                false => Conclusion::of(Grade::Supported, vec![at]).firm(!self.is_close(holder)),
            };
        }
        // What takes more or less of a request from level to level is busy, too, and no limit.
        let why = if holder.saturated() { Reason::DemandVaries } else { Reason::NotBusy };
        Conclusion::of(Grade::NotIdentified, Vec::new()).why(why(holder.clone()))
    }

    /// A lane that takes more requests at once the more there are: it is no limit itself, but what it waits for may be.
    fn batches(&self, lane: &Evidence) -> Conclusion {
        let inner = |of: &Evidence| {
            of.limit == Some(Limit::CommitPath)
                && of.within.contains(&lane.id)
                && of.utilization >= MOSTLY * lane.utilization
        };
        let flush = self.busiest(inner).or_else(|| self.wait());
        match flush {
            Some(flush) => Conclusion::of(Grade::Supported, vec![flush]),
            None => Conclusion::of(Grade::NotIdentified, Vec::new()),
        }
        .why(Reason::Batches { of: lane.clone(), waits: flush.is_some() })
    }

    /// A conclusion that names the flush that most of those whom `holder` serves queue for: one at a time, and no batch shares it.
    fn by_queued_flush(&self, holder: &Evidence) -> Option<Conclusion> {
        let queues = self.queues.as_ref()?;
        let served = holder.demand_us.zip(holder.ceiling_rps).map_or(1.0, |(us, rps)| us * rps / 1e6);
        let flush = self.evidence.iter().position(|of| {
            let queued = queues.place(&of.id).map_or(0.0, |place| place.waiting_at_high);
            of.limit == Some(Limit::CommitPath)
                && of.kind == ResourceKind::Station
                && of.saturated()
                && of.within.contains(&holder.id)
                && queued >= 0.5 * served * holder.utilization
                && queued >= 0.5
        })?;
        Some(Conclusion::of(Grade::Supported, vec![flush]).firm(self.evidence[flush].limits()))
    }

    /// What limits inside the store, where clients pile up without waiting for a session.
    fn store(&self) -> Option<Conclusion> {
        let queues = self.queues.as_ref()?;
        let pools = self.evidence.iter().filter(|of| of.kind == ResourceKind::Pool);
        let grows = |of: &&Evidence| {
            let all = queues.waiting(&of.id).unwrap_or(0.0) + queues.serving(&of.id).unwrap_or(0.0);
            all >= PILES_UP
        };
        let pool = pools.filter(grows).max_by(|a, b| a.utilization.total_cmp(&b.utilization))?;
        let growth = queues.serving(&pool.id).unwrap_or(0.0);
        let piles = Reason::InStore(queues.growth(&pool.resource, growth));
        let wait = || Some(Conclusion::of(Grade::Supported, vec![self.wait()?]).firm(true));
        let batches = || (pool.load_dependent && pool.saturated()).then(|| self.batches(pool));
        let found = self.by_what_is_inside(pool).or_else(wait).or_else(|| self.by_queued_flush(pool));
        Some(found.or_else(batches)?.because_of(piles))
    }
}

/// Whether `of` is used while `holder` is held, for a good part of the time. Sessions whose threads hardly compute, and do not wait for a
/// core either, are held for something else, whoever keeps the server's processor busy.
fn is_inside(of: &Evidence, holder: &Evidence) -> bool {
    let is_servers = matches!(of.limit, Some(Limit::ServerCpu | Limit::ServerQuota));
    let beside = is_servers && holder.computing.is_some_and(|share| share < COMPUTES);
    of.within.contains(&holder.id) && !beside
}
