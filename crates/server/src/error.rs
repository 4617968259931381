//! Failures as answers: which status, which code, whether the write happened.

use crate::tiered::{Error, Kind, WriteError};
use http1::{Reject, Writer, response};
use kv::proto::{self, Problem};
use kv::{Outcome, Version};
use std::borrow::Cow;

/// An answer that is no success. The problem's body is made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) detail: Cow<'static, str>,
    /// Of a write.
    pub(super) outcome: Option<Outcome>,
    /// What the answer needs besides.
    pub(super) extra: Extra,
    /// Whether the connection ends with this answer: the rest of the request is not worth reading, or not to be
    /// trusted.
    pub(super) closes: bool,
}

/// A header that belongs to some failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    None,
    /// `Allow`, on 405.
    Allow(&'static str),
    /// `ETag`, on 412: the version the key has instead.
    Version(Version),
    /// `Retry-After`, on 503, in seconds.
    RetryAfter(u32),
    /// `Cache-Status`, on a 404 that is not the store's word.
    CacheStatus(&'static str),
}

impl Failure {
    pub(super) fn new(status: u16, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, code, detail: detail.into(), outcome: None, extra: Extra::None, closes: false }
    }

    /// The same about a write that was not made.
    pub(super) fn not_applied(mut self) -> Failure {
        self.outcome = Some(Outcome::NotApplied);
        self
    }

    pub(super) fn with(mut self, extra: Extra) -> Failure {
        self.extra = extra;
        self
    }

    pub(super) fn closing(mut self) -> Failure {
        self.closes = true;
        self
    }

    pub(super) fn absent() -> Failure {
        Failure::new(404, "absent", "no value is stored under this key")
    }

    pub(super) fn no_room_to_compute() -> Failure {
        Failure::new(503, "overloaded", "too many computations wait; ask again later")
            .with(Extra::RetryAfter(1))
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let problem = Problem {
            kind: "about:blank".into(),
            title: response::reason(self.status).into(),
            status: self.status,
            detail: self.detail.clone(),
            code: self.code.into(),
            outcome: self.outcome.map(|outcome| outcome.as_str().into()),
        };
        // Strings and numbers cannot fail to serialize.
        let mut body = serde_json::to_vec(&problem).unwrap_or_default();
        body.push(b'\n');
        body
    }

    pub(super) fn write_head(&self, writer: Writer<'_>, body_bytes: usize) {
        let writer = writer.field("Content-Type", b"application/problem+json");
        let writer = match self.extra {
            Extra::None => writer,
            Extra::Allow(methods) => writer.field("Allow", methods.as_bytes()),
            Extra::Version(version) => writer.field("ETag", format!("\"{version}\"").as_bytes()),
            Extra::RetryAfter(secs) => writer.field_number("Retry-After", u64::from(secs)),
            Extra::CacheStatus(status) => writer.field("Cache-Status", status.as_bytes()),
        };
        let writer = match self.outcome {
            Some(outcome) => writer.field("Weir-Outcome", outcome.as_str().as_bytes()),
            None => writer,
        };
        debug_assert!("Weir-Outcome".eq_ignore_ascii_case(proto::OUTCOME));
        writer.end_with_length(body_bytes as u64);
    }
}

impl From<Reject> for Failure {
    fn from(reject: Reject) -> Failure {
        let code = match reject.status {
            413 => "value_too_large",
            414 => "target_too_long",
            417 => "expectation",
            431 => "head_too_large",
            501 => "not_implemented",
            505 => "version",
            _ => "malformed",
        };
        Failure::new(reject.status, code, reject.detail).not_applied().closing()
    }
}

impl Failure {
    /// A read that the store did not answer. What the store said is for the log: it names hosts and users.
    pub(super) fn of_read(error: &Error) -> Failure {
        let kind = error.kind();
        let (code, detail) = match kind {
            // A read may be asked again whatever became of it.
            Kind::Unknown => return Failure::new(504, "store_timeout", "the store did not answer in time"),
            Kind::Overloaded => ("overloaded", "too many requests wait for the store; ask again later"),
            Kind::Rejected => ("store_refused", "the store refuses this; the server's log says why"),
            Kind::Refused => {
                ("store_refused", "the store refuses every write now; the server's log says why")
            }
            Kind::Retry => ("store_conflict", "the store rolled this back; ask again"),
            Kind::Taken | Kind::Config | Kind::Unavailable => {
                ("store_unavailable", "the store cannot be asked now; the server's log says why")
            }
        };
        if matches!(kind, Kind::Rejected | Kind::Refused) {
            log::warn!("{error}");
        }
        Failure::new(503, code, detail).with(Extra::RetryAfter(1))
    }

    /// A write that was not made, or whose outcome is unknown.
    pub(super) fn of_write(error: WriteError) -> Failure {
        match error {
            WriteError::ConditionFailed(current) => {
                let detail = match current {
                    Some(version) => format!("the key has version {version}"),
                    None => "the key is absent".to_owned(),
                };
                let failure = Failure::new(412, "precondition_failed", detail).not_applied();
                current.map_or(failure.clone(), |version| failure.with(Extra::Version(version)))
            }
            WriteError::Store(error) if error.kind() == Kind::Unknown => {
                log::warn!("a write may or may not have happened: {error}");
                let detail = "the store was lost, or did not answer in time, after the write was sent";
                let mut failure = Failure::new(504, "store_unknown", detail);
                failure.outcome = Some(Outcome::Unknown);
                failure
            }
            WriteError::Store(error) => Failure::of_read(&error).not_applied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failed_write_says_whether_it_happened() {
        for (kind, status, outcome) in [
            (Kind::Unavailable, 503, Outcome::NotApplied),
            (Kind::Overloaded, 503, Outcome::NotApplied),
            (Kind::Retry, 503, Outcome::NotApplied),
            (Kind::Rejected, 503, Outcome::NotApplied),
            (Kind::Refused, 503, Outcome::NotApplied),
            (Kind::Taken, 503, Outcome::NotApplied),
            (Kind::Unknown, 504, Outcome::Unknown),
        ] {
            let failure = Failure::of_write(WriteError::Store(Error::new(kind, "x")));
            assert_eq!((failure.status, failure.outcome), (status, Some(outcome)), "{kind:?}");
            assert_eq!(failure.outcome, Some(kind.outcome()));
            assert_eq!(matches!(failure.extra, Extra::RetryAfter(_)), status == 503);
        }
    }

    #[test]
    fn a_problem_is_one_line_of_json() {
        let body = Failure::of_write(WriteError::ConditionFailed(Some(Version(7)))).body();
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "{\"type\":\"about:blank\",\"title\":\"Precondition Failed\",\"status\":412,\"detail\":\"the key has version 7\",\
             \"code\":\"precondition_failed\",\"outcome\":\"not-applied\"}\n"
        );
    }
}
