//! What `weir link` says of itself when it is asked.

use serde::{Deserialize, Serialize};

/// What went through a link since it began; client-seconds count each connection once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkAccount {
    /// Towards the server.
    pub up: LinkDirection,
    /// Back from it.
    pub down: LinkDirection,
    /// Connection-seconds in which bytes waited for their turn and none were under way.
    pub waiting_secs: f64,
    /// Connection-seconds in which bytes were under way: sent at the link's rate, or delayed.
    pub serving_secs: f64,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkDirection {
    /// Bytes that came in.
    pub bytes: u64,
    /// For how long it was sending: bytes over the rate; 0 where no rate is imposed.
    pub busy_secs: f64,
}
