//! What led a rule to its conclusion, beside the figures of the resources themselves.

use super::{Blocked, Evidence};
use crate::outside::Outside;
use crate::rows::{FastFail, Row};

/// What led to a conclusion.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The highest levels fail fast.
    FailsFast(FastFail),
    /// There was never more than one client.
    OneClient,
    /// Hardly anybody waits, and each client gets what one alone gets.
    NobodyWaits {
        /// The highest level.
        clients: u32,
        /// Of its clients, those that wait, 0–1.
        waiting: f64,
        /// What each gets, over what one alone gets.
        each: f64,
    },
    /// Clients that are added wait for a resource.
    Queue(Growth),
    /// Clients that are added are in the store, in the pool named.
    InStore(Growth),
    /// Clients that are added are in no place that was read; `resource` is empty.
    Unaccounted(Growth),
    /// Goodput fell as a limit's must when a resource was made slower.
    Followed {
        /// The resource.
        of: Evidence,
        /// Whether it is busy enough to be named.
        is_named: bool,
    },
    /// This one is saturated with the most clients, and nothing else names anything.
    SaturatedAtMost(Evidence),
    /// There is a queue for this one, and it is not busy enough to explain that.
    NotBusy(Evidence),
    /// Workers are busy, and it was not read whether with computing.
    ProcessorNotRead,
    /// This one is busy, but what a request takes of it differs between levels, or one level decides.
    DemandVaries(Evidence),
    /// A resource takes more requests at once the more there are, so that being busy is not its limit.
    Batches {
        /// The resource.
        of: Evidence,
        /// Whether it spends most of that time in what is named.
        waits: bool,
    },
    /// Servers write the same rows of their store.
    Conflicts {
        /// The highest level.
        clients: u32,
        /// Of their statements, those that were in each other's way, 0–1.
        share: f64,
    },
    /// What a service shows from outside.
    Blocked(Blocked),
    /// What else a service shows from outside that costs time.
    Seen(Outside),
    /// Goodput does not follow the resource that all else speaks for.
    NotFollowed(Evidence),
}

/// More than this in a second is worth a word.
const EVENTS_MIN: f64 = 0.5;
/// More than this of the time, too.
const TIME_MIN: f64 = 0.1;

/// More than this share of the statements in each other's way, too.
const CONFLICTS_MIN: f64 = 0.05;

impl Reason {
    /// Whether servers are in each other's way at the most clients, also where too many requests failed for any other finding.
    pub(super) fn conflicts(rows: &[Row]) -> Option<Reason> {
        let (clients, share) = rows.iter().filter_map(|row| Some((row.level, row.conflicts?))).next_back()?;
        (share >= CONFLICTS_MIN).then_some(Reason::Conflicts { clients, share })
    }

    /// What a service shows at the most clients, where something was lost or stood still; also where it answered too little to be measured.
    pub(super) fn seen(rows: &[Row]) -> Option<Reason> {
        let of = rows.iter().filter_map(|row| row.outside.as_ref()).next_back()?;
        let events = ["retransmits", "accept_overflows"].iter().any(|name| of.at(name) >= EVENTS_MIN);
        let costs = of.at("window_closed") >= TIME_MIN || of.collector >= TIME_MIN;
        (events || costs).then(|| Reason::Seen(of.clone()))
    }
}

/// Of each client added between two levels, so many are somewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// The resource.
    pub resource: String,
    /// So many of each.
    pub of_each: f64,
    /// The lower level.
    pub low: u32,
    /// The higher one.
    pub high: u32,
}
