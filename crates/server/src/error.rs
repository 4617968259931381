//! Failures as answers: which status, which code, whether the write happened.

use crate::budget::Full;
use crate::throttle::Throttle;
use crate::tiered::{Error, Kind, WriteError};
use http1::{Reject, Writer, response};
use kv::{Outcome, Version, proto};
use parking_lot::Mutex;
use serde::Serialize;
use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Instant;

/// The content type of such an answer.
pub(super) const PROBLEM: &str = "application/problem+json";

/// Requests that were refused because a store takes no writes: on a full disk each of them would log the same line.
static REFUSALS: LazyLock<Mutex<Throttle>> = LazyLock::new(Mutex::default);

/// An answer that is no success. The problem's body is made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) detail: Cow<'static, str>,
    /// Of a write.
    pub(super) outcome: Option<Outcome>,
    /// Headers that the answer needs besides: their names and values.
    pub(super) headers: Vec<(&'static str, Cow<'static, str>)>,
    /// Whether the connection ends with this answer: the rest of the request is not worth reading, or not to be
    /// trusted.
    pub(super) closes: bool,
}

/// The body of an answer that failed: problem details (RFC 9457).
#[derive(Serialize)]
struct Problem<'f> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: &'f str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    // Lines of batches have no header.
    #[serde(skip_serializing_if = "Option::is_none")]
    etag: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_status: Option<&'f str>,
}

impl Failure {
    pub(super) fn new(status: u16, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Failure {
        Failure { status, code, detail: detail.into(), outcome: None, headers: Vec::new(), closes: false }
    }

    /// The same about a write that was not made.
    pub(super) fn not_applied(mut self) -> Failure {
        self.outcome = Some(Outcome::NotApplied);
        self
    }

    pub(super) fn with(mut self, header: &'static str, value: impl Into<Cow<'static, str>>) -> Failure {
        self.headers.push((header, value.into()));
        self
    }

    pub(super) fn closing(mut self) -> Failure {
        self.closes = true;
        self
    }

    pub(super) fn absent() -> Failure {
        Failure::new(404, "absent", "no value is stored under this key")
    }

    /// The same of a read that may be old, if it has a mark.
    pub(super) fn marked(mut self, mark: Option<Cow<'static, str>>) -> Failure {
        self.headers.extend(mark.map(|mark| ("Cache-Status", mark)));
        self
    }

    /// A precondition that does not hold of the version that the key has.
    pub(super) fn other_version(version: Version) -> Failure {
        let failure = Failure::new(412, "precondition_failed", format!("the key has version {version}"));
        failure.with("ETag", format!("\"{version}\""))
    }

    pub(super) fn body(&self) -> Vec<u8> {
        let header = |of: &str| self.headers.iter().find(|(name, _)| *name == of).map(|(_, value)| &**value);
        let problem = Problem {
            kind: "about:blank",
            title: response::reason(self.status),
            status: self.status,
            detail: &self.detail,
            code: self.code,
            outcome: self.outcome.map(Outcome::name),
            etag: header("ETag"),
            cache_status: header("Cache-Status"),
        };
        // Strings and numbers cannot fail to serialize.
        let mut body = serde_json::to_vec(&problem).unwrap_or_default();
        body.push(b'\n');
        body
    }

    pub(super) fn write_head(&self, writer: Writer<'_>, body_bytes: usize) {
        let mut writer = writer.field("Content-Type", PROBLEM.as_bytes());
        for (name, value) in &self.headers {
            writer = writer.field(name, value.as_bytes());
        }
        if let Some(outcome) = self.outcome {
            writer = writer.field("Weir-Outcome", outcome.name().as_bytes());
        }
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

impl From<Full> for Failure {
    fn from(_: Full) -> Failure {
        Failure::new(503, "overloaded", Full::WHAT).with("Retry-After", "1")
    }
}

impl Failure {
    /// A read that the store did not answer. What the store said is for the log: it names hosts and users.
    pub(super) fn of_read(error: &Error) -> Failure {
        const REFUSED: &str = "store_refused";
        let (code, detail) = match error.kind() {
            // A read may be asked again whatever became of it.
            Kind::Unknown => return Failure::new(504, "store_timeout", "the store did not answer in time"),
            Kind::Unsupported => return Failure::new(501, "not_implemented", error.to_string()),
            Kind::Unfit => return Failure::new(400, "unfit", error.to_string()),
            Kind::Overloaded => (
                "overloaded",
                "the server has no room for more requests to the store, or for their rows; ask again later",
            ),
            Kind::Rejected => (REFUSED, "the store refuses this; the server's log says why"),
            Kind::Refused => {
                (REFUSED, "the store refuses writes for now, as with a full disk; the server's log says why")
            }
            Kind::Retry => ("store_conflict", "the store rolled this back; ask again"),
            Kind::Taken | Kind::Ending => {
                ("standby", "another server owns the store; send the request to that one, or again later")
            }
            Kind::Config | Kind::Unavailable => {
                ("store_unavailable", "the store cannot be asked now; the server's log says why")
            }
        };
        // With a full disk every request says the same.
        if error.kind() == Kind::Refused {
            if let Some(count) = REFUSALS.lock().count(Instant::now()) {
                log::warn!("{error} (refused requests since the last such line: {count})");
            }
        } else if code == REFUSED {
            log::warn!("{error}");
        }
        Failure::new(503, code, detail).with("Retry-After", "1")
    }

    /// A write that was not made, or whose outcome is unknown.
    pub(super) fn of_write(error: WriteError) -> Failure {
        match error {
            WriteError::ConditionFailed(None) => {
                Failure::new(412, "precondition_failed", "the key is absent").not_applied()
            }
            WriteError::ConditionFailed(Some(version)) => Failure::other_version(version).not_applied(),
            WriteError::OtherRequest => {
                let what = "this Idempotency-Key came with another request before; give every request one of its own";
                Failure::new(422, "idempotency_key_reused", what).not_applied()
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
            (Kind::Unsupported, 501, Outcome::NotApplied),
            (Kind::Unfit, 400, Outcome::NotApplied),
            (Kind::Unknown, 504, Outcome::Unknown),
        ] {
            let failure = Failure::of_write(WriteError::Store(Error::new(kind, "x")));
            assert_eq!((failure.status, failure.outcome), (status, Some(outcome)), "{kind:?}");
            let is_repeatable = failure.headers.iter().any(|(name, _)| *name == "Retry-After");
            assert_eq!(is_repeatable, status == 503);
        }
    }

    #[test]
    fn a_problem_is_one_line_of_json() {
        let body = Failure::of_write(WriteError::ConditionFailed(Some(Version(7)))).body();
        assert_eq!(
            String::from_utf8(body).unwrap(),
            "{\"type\":\"about:blank\",\"title\":\"Precondition Failed\",\"status\":412,\"detail\":\"the key has version 7\",\
             \"code\":\"precondition_failed\",\"outcome\":\"not-applied\",\"etag\":\"\\\"7\\\"\"}\n"
        );
    }

    /// A read that may be old says so also where it fails.
    #[test]
    fn a_version_that_may_be_old_is_marked() {
        let failure = Failure::other_version(Version(7)).marked(Some("weir; detail=replica".into()));
        let mut head = Vec::new();
        failure.write_head(response::write(&mut head, failure.status), 0);
        let head = String::from_utf8(head).unwrap();
        assert!(
            head.contains("ETag: \"7\"\r\n") && head.contains("Cache-Status: weir; detail=replica\r\n"),
            "{head}"
        );
        let body = String::from_utf8(failure.body()).unwrap();
        assert!(body.contains("\"cache_status\":\"weir; detail=replica\""), "{body}");
    }
}
