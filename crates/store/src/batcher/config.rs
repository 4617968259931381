//! How requests are batched.

use super::EventLog;
use crate::{Part, Role, Workers};
use kv::faults::FaultInjector;
use std::sync::Arc;
use std::time::Duration;

/// How requests are batched.
#[derive(Clone, Debug)]
pub struct Config {
    /// What the store is to the server.
    pub role: Role,
    /// Sessions; `None` for as many as the store says serve it best.
    pub workers: Option<Workers>,
    /// Most requests that may wait in one queue; more are refused.
    pub queue_requests: usize,
    /// A queue in which so many bytes wait takes no more requests.
    pub queue_bytes: usize,
    /// A request that has waited so long is refused.
    pub queue_wait_max: Duration,
    /// How long a start waits for another server to let go of the store.
    pub lease_wait: Duration,
    /// Whether the server starts also while the store is another server's, or away.
    pub is_standby: bool,
    /// What shares a commit.
    pub batching: Batching,
    /// Answers writes before they are committed. Loses acknowledged writes: it is how the tests of durability show
    /// that they can see a loss.
    pub acknowledge_early: bool,
    /// Faults of sessions and flushes.
    pub faults: Option<Arc<FaultInjector>>,
    /// How long the store keeps events; `None`: not at all.
    pub event_log: Option<EventLog>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            role: Role::Store(Part::WHOLE),
            workers: None,
            queue_requests: 10_000,
            queue_bytes: 256 << 20,
            queue_wait_max: Duration::from_secs(5),
            lease_wait: Duration::from_secs(10),
            is_standby: false,
            batching: Batching::On,
            acknowledge_early: false,
            faults: None,
            event_log: None,
        }
    }
}

/// What shares a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// Whatever queued while the worker's batch before was in flight; a key has one queue.
    #[default]
    On,
    /// Every request on its own, in whichever worker is free: how servers without batches use their database. Writes of
    /// one key meet in the store and may end in another order than they began, so conditional ones are refused. For
    /// comparisons only.
    Off,
}
