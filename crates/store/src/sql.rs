//! What the drivers of database servers share: how a step may fail, and what follows from it.

use super::{Error, Kind};
use std::fmt;
use std::time::Duration;

/// Most time to acquire a lease or to start a session.
const SETUP_MAX: Duration = Duration::from_secs(15);

/// The database ends the session of an owner that asks nothing for so long, so that another server can own the store.
pub(super) const OWNER_SILENCE_MAX: Duration = Duration::from_secs(10);

/// What helps where the `limit` of connections is reached. Each worker has one.
pub(super) fn more_connections(limit: &str) -> String {
    format!("; raise {limit}, or lower --store-read-workers or --store-write-workers")
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// It has been explained already.
    Known(Error),
    /// The database or its connection failed: what that means, and the reason on one line.
    Database(Meaning, String),
}

/// What a failure says about the next try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The connection is of no more use.
    Ended,
    /// The server accepts neither this user nor this database, or both ends do not agree on TLS.
    Login,
    /// The server takes no writes; another may.
    ReadOnly,
    /// The server rolled the transaction back, because of another one.
    RolledBack,
    /// A timeout of the database cut the statement short, as where another program has locked a row: one may be at fault for all.
    TimedOut,
    /// Something in the statement: one row may be at fault for all.
    Unfit,
    /// The server lacks room or memory, or has a fault of its own: that may pass.
    Faulty,
    /// Something with the server's settings or the tables.
    Refused,
}

/// What a step was for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'w> {
    /// What a connection begins with; the text completes "cannot … in".
    Setup(&'w str),
    Read,
    /// Before the commit: whatever fails, nothing has happened.
    Write,
    Commit,
}

/// A step of the setup.
pub(super) type Setup<T> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Known(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Known(error) => error.fmt(f),
            Failure::Database(_, cause) => f.write_str(cause),
        }
    }
}

impl Failure {
    /// Whether trying again does not help.
    pub(super) fn is_config(&self) -> bool {
        match self {
            Failure::Known(error) => error.kind() == Kind::Config,
            Failure::Database(meaning, _) => *meaning == Meaning::Login,
        }
    }

    /// The same, of a connection that is of no more use after it.
    pub(super) fn and_ended(self) -> Failure {
        match self {
            Failure::Database(_, cause) => Failure::Database(Meaning::Ended, cause),
            known => known,
        }
    }

    /// The same, of a wait for a lock in `table`.
    pub(super) fn locked(self, table: &str) -> Failure {
        match self {
            Failure::Database(meaning, cause) => {
                let why = format!(
                    "{cause}: another program holds a lock, most likely of the table {table} or a row in it"
                );
                Failure::Database(meaning, why)
            }
            known => known,
        }
    }

    /// The error of the store `shown`, where `step` failed so.
    pub(super) fn of(self, shown: &str, step: Step) -> Error {
        let (meaning, cause) = match self {
            Failure::Known(error) => return error,
            Failure::Database(meaning, cause) => (meaning, cause),
        };
        let (kind, what) = match (step, meaning) {
            // Trying again does not help, unless the server is away or busy.
            (Step::Setup(what), Meaning::ReadOnly | Meaning::Faulty | Meaning::Unfit | Meaning::Refused) => {
                let what = format!("cannot {what} in {shown}: {cause}");
                return match meaning {
                    Meaning::ReadOnly => {
                        let remedy = "use a server that takes writes, or end its read-only mode";
                        Error::new(Kind::Unavailable, format!("{what}; {remedy}"))
                    }
                    Meaning::Faulty => {
                        let remedy = "look into the database's log; its disk may be full";
                        Error::new(Kind::Unavailable, format!("{what}; {remedy}"))
                    }
                    _ => Error::new(Kind::Config, what),
                };
            }
            (Step::Setup(_), _) => {
                let kind = if meaning == Meaning::Login { Kind::Config } else { Kind::Unavailable };
                return Error::new(kind, format!("cannot reach store {shown}: {cause}"));
            }
            (Step::Read, Meaning::Ended) => (Kind::Unavailable, "was lost while reading"),
            (Step::Read, _) => (Kind::Rejected, "refused to read"),
            (Step::Write, Meaning::Ended) => (Kind::Unavailable, "was lost before a commit"),
            (Step::Commit, Meaning::Ended) => (Kind::Unknown, "was lost during a commit"),
            (_, Meaning::ReadOnly) => (Kind::Unavailable, "takes no writes now"),
            (_, Meaning::RolledBack) => (Kind::Retry, "rolled a write back"),
            (_, Meaning::TimedOut) => (Kind::Rejected, "gave a write up"),
            (_, Meaning::Unfit) => (Kind::Rejected, "refused a write"),
            (_, Meaning::Login | Meaning::Faulty | Meaning::Refused) => (Kind::Refused, "refuses to write"),
        };
        Error::new(kind, format!("the store {shown} {what}: {cause}"))
    }
}

/// Runs a step of the setup of the store `shown`. A server that does not answer counts as unavailable.
pub(super) async fn setup<T>(
    shown: &str,
    what: &str,
    step: impl Future<Output = Setup<T>>,
) -> Result<T, Error> {
    in_setup_time(shown, async { step.await.map_err(|failure| failure.of(shown, Step::Setup(what))) }).await
}

/// Runs a step of the setup of the store `shown` for at most 15 s: then the store is unavailable.
pub async fn in_setup_time<T>(shown: &str, step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let silent = |_| {
        let message = format!("the store {shown} does not answer within {} s", SETUP_MAX.as_secs());
        let check = match shown.starts_with("postgres") {
            true => {
                "check its host and port, and whether its synchronous standby, if it has one, is connected"
            }
            false => "check its host and port",
        };
        Err(Error::new(Kind::Unavailable, format!("{message}; {check}")))
    };
    tokio::time::timeout(SETUP_MAX, step).await.unwrap_or_else(silent)
}

/// Another server owns the store; `holder` names it, if it is known.
pub(super) fn taken(shown: &str, holder: &str) -> Error {
    let what = format!("another server holds the store {shown}{holder}");
    let message =
        format!("{what}; stop it, or use another database; with --standby this server waits for it");
    Error::new(Kind::Taken, message)
}

/// Another server owns the store, and has said that it ends.
pub(super) fn ending(shown: &str) -> Error {
    Error::new(Kind::Ending, format!("another server is about to release the store {shown}"))
}

/// A newer lease exists.
pub(super) fn overtaken(shown: &str) -> Error {
    Error::new(Kind::Unavailable, format!("the store {shown} was taken over by another server meanwhile"))
}

/// A table of weir has columns of other types than weir gave them; `cause` says which.
pub(super) fn foreign_table(cause: &str) -> Failure {
    let why = format!("a table is not as weir makes it: {cause}; restore its columns");
    Failure::Database(Meaning::Refused, why)
}
