//! What a failed statement means: whether it may have happened, and whether it is sent again.

use kv::one_line;
use scylla::errors::{DbError, ExecutionError, PrepareError, RequestAttemptError, UseKeyspaceError};
use scylla::policies::retry::{RequestInfo, RetryDecision, RetryPolicy, RetrySession};
use scylla::statement::Consistency;

/// How often a statement goes to another node.
const RETRIES_MAX: usize = 4;

/// Why a statement failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) meaning: Meaning,
    pub(crate) cause: String,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// It was not sent, or the node that it was sent to did not begin.
    NotBegun,
    /// It was refused for what it is, or for who sent it.
    Refused,
    /// It may happen, also later: Paxos did not come to an end, or nobody says whether it did.
    Unknown,
}

impl From<ExecutionError> for Failed {
    fn from(error: ExecutionError) -> Failed {
        let meaning = match &error {
            ExecutionError::LastAttemptError(error) => meaning_of(error),
            ExecutionError::BadQuery(_) => Meaning::Refused,
            ExecutionError::EmptyPlan
            | ExecutionError::PrepareError(_)
            | ExecutionError::ConnectionPoolError(_) => Meaning::NotBegun,
            _ => Meaning::Unknown,
        };
        Failed { meaning, cause: said(&error) }
    }
}

impl From<PrepareError> for Failed {
    fn from(error: PrepareError) -> Failed {
        let meaning = match &error {
            PrepareError::AllAttemptsFailed { first_attempt } => meaning_of(first_attempt),
            _ => Meaning::NotBegun,
        };
        Failed { meaning, cause: said(&error) }
    }
}

impl From<UseKeyspaceError> for Failed {
    fn from(error: UseKeyspaceError) -> Failed {
        Failed { meaning: Meaning::NotBegun, cause: said(&error) }
    }
}

impl Failed {
    /// An answer that is not of the form that it has to have.
    pub(crate) fn odd(error: &dyn std::fmt::Display) -> Failed {
        Failed { meaning: Meaning::Unknown, cause: said(error) }
    }
}

/// What the driver says, in one line. What stands behind a semicolon would be taken for what can be done about it.
pub(crate) fn said(error: &dyn std::fmt::Display) -> String {
    one_line(&error.to_string()).replace("; ", ", ")
}

fn meaning_of(error: &RequestAttemptError) -> Meaning {
    match error {
        RequestAttemptError::DbError(error, _) => match error {
            // Too few replicas were up before anything was proposed; and nodes that do not serve yet. At another consistency it is
            // the commit that found too few, and what was proposed is completed later.
            DbError::Unavailable { consistency: Consistency::Serial | Consistency::LocalSerial, .. }
            | DbError::IsBootstrapping => Meaning::NotBegun,
            DbError::SyntaxError
            | DbError::Invalid
            | DbError::AlreadyExists { .. }
            | DbError::AuthenticationError
            | DbError::Unauthorized
            | DbError::ConfigError => Meaning::Refused,
            // Among them those in time, and overload: a commit may be under way.
            _ => Meaning::Unknown,
        },
        RequestAttemptError::SerializationError(_) | RequestAttemptError::CqlRequestSerialization(_) => {
            Meaning::Refused
        }
        RequestAttemptError::UnableToAllocStreamId
        | RequestAttemptError::RepreparedIdChanged { .. }
        | RequestAttemptError::RepreparedIdMissingInBatch => Meaning::NotBegun,
        _ => Meaning::Unknown,
    }
}

/// Sends a statement to the next node if it did not begin, and a read also if nobody knows.
#[derive(Debug)]
pub(crate) struct SafeRetries;

struct Tries(usize);

impl RetryPolicy for SafeRetries {
    fn new_session(&self) -> Box<dyn RetrySession> {
        Box::new(Tries(0))
    }
}

impl RetrySession for Tries {
    fn decide_should_retry(&mut self, request: RequestInfo<'_>) -> RetryDecision {
        self.0 += 1;
        let may_again = match meaning_of(request.error) {
            Meaning::NotBegun => true,
            Meaning::Refused => false,
            Meaning::Unknown => request.is_idempotent,
        };
        if may_again && self.0 <= RETRIES_MAX {
            RetryDecision::RetryNextTarget(None)
        } else {
            RetryDecision::DontRetry
        }
    }

    fn reset(&mut self) {
        self.0 = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scylla::errors::WriteType;

    #[test]
    fn what_may_have_happened_is_unknown_and_only_reads_are_sent_again() {
        let timeout = DbError::WriteTimeout {
            consistency: Consistency::Serial,
            received: 1,
            required: 2,
            write_type: WriteType::Cas,
        };
        let unavailable = |consistency| DbError::Unavailable { consistency, required: 2, alive: 1 };
        for (error, meaning) in [
            (timeout, Meaning::Unknown),
            (DbError::Overloaded, Meaning::Unknown),
            (DbError::ServerError, Meaning::Unknown),
            (unavailable(Consistency::Serial), Meaning::NotBegun),
            (unavailable(Consistency::Quorum), Meaning::Unknown),
            (DbError::IsBootstrapping, Meaning::NotBegun),
            (DbError::Invalid, Meaning::Refused),
        ] {
            let error = RequestAttemptError::DbError(error, String::new());
            assert_eq!(meaning_of(&error), meaning, "{error}");
        }
    }
}
