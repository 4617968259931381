//! The body of an error answer: problem details (RFC 9457) on one line.

use crate::Outcome;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Why a request failed, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Always `about:blank`: the kind of problem is in `code`.
    #[serde(rename = "type")]
    pub kind: Cow<'static, str>,
    /// The status's reason phrase.
    pub title: Cow<'static, str>,
    /// The HTTP status.
    pub status: u16,
    /// What went wrong with this request, and what to do.
    pub detail: Cow<'static, str>,
    /// One word that programs may test for.
    pub code: Cow<'static, str>,
    /// On a write: whether it happened, `not-applied` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<Cow<'static, str>>,
}

impl Outcome {
    /// The word for it on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::NotApplied => "not-applied",
            Outcome::Unknown => "unknown",
        }
    }
}
