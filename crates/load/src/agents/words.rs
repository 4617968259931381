//! What agents and their coordinator say to each other.
//!
//! The agent speaks first. Until both have proved that they hold the token, only `hello`, `refused` and `welcome` are said.

use super::merge::{SecondText, TallyText};
use super::order::Order;
use serde::{Deserialize, Serialize};

/// What a coordinator says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToAgent {
    /// The answer to the agent's `hello`: a nonce of its own, and the proof that it holds the token.
    Hello { nonce: String, proof: String },
    /// What to do, all of it. Answered by `accepted`.
    Order(Box<Order>),
    /// Write the keys and read them back. Answered by `preloaded`.
    Preload,
    /// See whether the target can be reached. Answered by `reached`.
    Reach,
    /// Say `pong` at once.
    Ping { number: u64 },
    /// Begin in so many microseconds. Answered by `starting` at once, by `tally` at the end.
    Start { in_us: u64 },
}

/// What an agent says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ToCoordinator {
    /// The first word: what it speaks, and what the coordinator's proof must be of.
    Hello { protocol: u32, version: String, format: u32, nonce: String },
    /// It goes no further, and ends the connection.
    Refused { why: String },
    /// The proof that it holds the token, too.
    Welcome { proof: String },
    /// The order makes sense here.
    Accepted,
    /// Keys are being written and read back.
    Preloading { requests: u64, of: u64 },
    /// All keys are there.
    Preloaded { keys: u64, secs: f64 },
    /// Somebody accepts connections at the target.
    Reached,
    /// The answer to `ping`.
    Pong { number: u64 },
    /// The answer to `start`, said before it is done.
    Starting,
    /// A second is over on all its threads.
    Second(SecondText),
    /// What was counted in the window.
    Tally(Box<TallyText>),
    /// What was asked for could not be done.
    Failed { why: String },
}

impl ToCoordinator {
    /// What it says, in the middle of a sentence.
    pub(super) fn name(&self) -> &'static str {
        match self {
            ToCoordinator::Hello { .. } => "hello",
            ToCoordinator::Refused { .. } => "refused",
            ToCoordinator::Welcome { .. } => "welcome",
            ToCoordinator::Accepted => "accepted",
            ToCoordinator::Preloading { .. } => "preloading",
            ToCoordinator::Preloaded { .. } => "preloaded",
            ToCoordinator::Reached => "reached",
            ToCoordinator::Pong { .. } => "pong",
            ToCoordinator::Starting => "starting",
            ToCoordinator::Second(_) => "second",
            ToCoordinator::Tally(_) => "tally",
            ToCoordinator::Failed { .. } => "failed",
        }
    }
}
