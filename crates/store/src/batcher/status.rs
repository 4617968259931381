//! Whether a store can be used, and why not.

use crate::{Error, Kind};
use std::time::{Instant, SystemTime};

/// Whether requests can be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The server owns the store; its epoch.
    Up(u64),
    /// It will at any moment, and requests wait for that.
    Starting,
    /// Another server owns it, and this one stands by.
    Standby {
        /// When the attempt to acquire it began that showed this.
        since: Instant,
        /// Who owns it.
        reason: String,
    },
    /// It does not, and why.
    Down(String),
    /// It was released.
    Stopped,
}

impl Status {
    /// The epoch, or why there is none.
    pub fn epoch(&self) -> Result<u64, Error> {
        let message = match self {
            Status::Up(epoch) => return Ok(*epoch),
            Status::Standby { reason, .. } => return Err(Error::new(Kind::Taken, reason)),
            Status::Starting => "the store is being acquired".to_owned(),
            Status::Down(reason) => format!("the store is unavailable: {reason}"),
            Status::Stopped => "the store was released".to_owned(),
        };
        Err(Error::new(Kind::Unavailable, message))
    }
}

/// A failure of the store itself, not of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastError {
    /// When it happened.
    pub at: SystemTime,
    /// What happened. It may name hosts and users.
    pub what: String,
}
