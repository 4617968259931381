//! Methods and header fields as people write them, and requests of them.

use http::HeaderName;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// A field of a head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// As it was written.
    pub name: String,
    /// Without blanks around it.
    pub value: String,
}

/// A request, as it is before the values of its variables are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HttpRequest {
    /// In reports: method and path.
    pub(super) name: String,
    /// How often it is sent, relative to the sum of all.
    pub(super) weight: u32,
    pub(super) method: String,
    /// With the query. A file of requests may have a URL here.
    pub(super) path: String,
    pub(super) headers: Vec<Header>,
    /// `None` where it has neither a body nor a length.
    pub(super) body: Option<Vec<u8>>,
    /// Why it cannot be sent as a file has it, if so.
    pub(super) incomplete: Option<String>,
}

impl HttpRequest {
    /// What may have variables in it.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let headers = self.headers.iter().map(|header| header.value.as_bytes());
        [self.path.as_bytes()].into_iter().chain(headers).chain(self.body.as_deref())
    }
}

/// Whether one of these headers is called so.
pub(super) fn has(headers: &[Header], name: &str) -> bool {
    headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
}

/// Whether a header may be called so.
pub(super) fn is_field_name(name: &str) -> bool {
    HeaderName::from_bytes(name.as_bytes()).is_ok()
}

/// A method in capital letters.
pub(super) fn method(text: &str) -> Result<String, String> {
    match text {
        "CONNECT" | "TRACE" => Err("it cannot be sent under load; hint: use another method".into()),
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()) => Ok(text.to_owned()),
        _ => Err("it is no method; hint: write it in capital letters, as in POST".into()),
    }
}

const FORM: &str = "write it as in 'Accept: text/html'";

impl Header {
    /// One that a person may set.
    pub(super) fn new(name: &str, value: &str) -> Result<Header, String> {
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if !is_field_name(&name) {
            return Err(format!("`{name}` is no legal name of a header; hint: {FORM}"));
        }
        let hint = match name.to_ascii_lowercase().as_str() {
            "content-length" | "transfer-encoding" => Some("leave it out: it follows from the body"),
            "connection" => Some("use --connect each for a connection per request"),
            _ => None,
        };
        if let Some(hint) = hint {
            return Err(format!("{name} is set by the generator; hint: {hint}"));
        }
        match value.chars().any(|c| c.is_control() && c != '\t') {
            true => Err(format!("the value has a control character; hint: {FORM}")),
            false => Ok(Header { name, value }),
        }
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Header, String> {
        let parts = text.split_once(':').ok_or_else(|| format!("it has no colon; hint: {FORM}"));
        parts.and_then(|(name, value)| Header::new(name, value))
    }
}
