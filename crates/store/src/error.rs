//! What can go wrong with a store, sorted by what may be done about it.

use std::fmt;

/// A store's failure: what happened, in one line, and what follows from it. What can be done about it stands behind the first `; `.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: Kind,
    message: String,
    is_divisible: bool,
}

/// What follows from a store's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The store cannot be reached, or was lost before anything was sent. Nothing has happened.
    Unavailable,
    /// Too many requests wait already. Nothing has happened.
    Overloaded,
    /// The store rolled the batch back; the same again may succeed.
    Retry,
    /// The store refuses something in this batch. Nothing has happened.
    Rejected,
    /// The store cannot do such a thing, whatever it holds. Nothing has happened.
    Unsupported,
    /// There is never a row with such a key or value in the store. Nothing has happened.
    Unfit,
    /// The store refuses every write for now, whatever is in it: its disk is full. Nothing has happened.
    Refused,
    /// The store was lost, or did not answer in time, after the batch was sent. It may have happened or happen later.
    Unknown,
    /// Another server holds the store.
    Taken,
    /// Another server holds the store, and is about to release it.
    Ending,
    /// The URL, the credentials or the store's own settings are wrong; trying again will not help.
    Config,
}

impl Kind {
    /// Whether another server holds the store.
    pub fn is_taken(self) -> bool {
        matches!(self, Kind::Taken | Kind::Ending)
    }

    /// Whether the session that failed so is of no more use.
    pub fn ends_session(self) -> bool {
        use Kind::{Overloaded, Refused, Rejected, Retry, Unfit, Unsupported};
        !matches!(self, Retry | Rejected | Unsupported | Unfit | Refused | Overloaded)
    }
}

impl Error {
    /// `message` is one line: what, why, and the remedy where there is one.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), is_divisible: false }
    }

    /// Of a refused batch of which a part may be taken, as what only removes on a full disk.
    pub(crate) fn divisible(self) -> Error {
        Error { is_divisible: true, ..self }
    }

    /// Of one that is never divided.
    pub(crate) fn whole(self) -> Error {
        Error { is_divisible: false, ..self }
    }

    pub(crate) fn is_divisible(&self) -> bool {
        self.is_divisible
    }

    /// A write found a newer row.
    pub(crate) fn newer(kind: Kind) -> Error {
        Error::new(kind, "the store holds a newer version of a key: something else writes it")
    }

    /// What follows from it.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
