//! Several generators under one coordinator: `weir agent` on each machine, `weir load --agents` on one of them.
//!
//! The coordinator sends no load. It divides the clients among its agents, starts them together, adds up what they counted
//! exactly as threads are added up in one process, and says so when an agent's share is missing. Client numbers are those
//! of the whole, so the clients ask for the same things wherever they live.
//!
//! Read on in this order: `auth` (who may talk), `wire` (lines), `words` (what is said), `order` (the plan as data), `agent`
//! (the one end), `coordinator` and `merge` (the other).

mod auth;
mod wire;
mod words;
mod order;
mod agent;
mod coordinator;
mod merge;

pub use agent::Agent;
pub use auth::Token;
pub use coordinator::run;

use std::time::Duration;

/// Version of what is said between agent and coordinator, the form of a tally included.
const PROTOCOL: u32 = 1;
/// Most agents of one coordinator.
pub const AGENTS_MAX: usize = 256;
/// How long each step of a connection's beginning may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Time between two signs of life that a coordinator asks for.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Whoever is silent for so long is gone: the machine, if the connection still stands.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// Longest time between the word to start and the start.
const START_MAX: Duration = Duration::from_secs(60);
