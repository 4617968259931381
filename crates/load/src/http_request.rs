//! Requests of any HTTP service: the flags that say what is sent, and what of it counts as a success.
//!
//! Flags in, requests out. What they are on the wire is `pieces`' and `request`'s.

use super::dialect::{OperationTemplate, is_field_name};
use super::encode::write_base64;
use super::statuses::Statuses;
use super::target::Target;
use super::values::Values;
use super::variables;
use kv::Error;
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What to send to a URL.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Request")]
pub struct RequestFlags {
    /// Method [default: GET, with --data POST]
    #[arg(long = "request", short = 'X', value_name = "METHOD", value_parser = method)]
    pub method: Option<String>,

    /// Header, as in 'Accept: text/html'; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<Header>,

    /// Body, as text or as @FILE
    #[arg(long, short, value_name = "TEXT|@FILE")]
    pub data: Option<Body>,

    /// Basic authentication
    #[arg(long, short, value_name = "USER:PASSWORD", value_parser = secret, conflicts_with = "bearer")]
    pub user: Option<String>,

    /// Bearer authentication, as text or as @FILE
    #[arg(long, value_name = "TOKEN|@FILE", value_parser = secret)]
    pub bearer: Option<String>,

    /// Statuses of a success, as in 200,404 or 2xx [default: 200-399]
    #[arg(long, value_name = "STATUSES")]
    pub expect: Option<Statuses>,

    /// File of values for {{column}} in requests: CSV with a line of names, or JSON lines
    #[arg(long, value_name = "FILE")]
    pub values: Option<Values>,

    /// What the body of a success has in it: a regular expression, searched in the first MiB
    #[arg(long, value_name = "REGEX")]
    pub expect_body: Option<BodyPattern>,
}

/// A field of a head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// As it was written.
    pub name: String,
    /// Without blanks around it.
    pub value: String,
}

/// A body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body(pub Vec<u8>);

/// What a body has to have in it.
#[derive(Clone, Debug)]
pub struct BodyPattern(Regex);

/// A request to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HttpRequest {
    /// In reports: method and path.
    pub(super) name: String,
    /// How often it is sent, relative to the sum of all.
    pub(super) weight: u32,
    pub(super) method: String,
    /// With the query.
    pub(super) path: String,
    /// `Host` among them.
    pub(super) headers: Vec<Header>,
    pub(super) body: Option<Vec<u8>>,
}

impl RequestFlags {
    /// The requests to the server of `target`; at least one.
    pub(super) fn requests(&self, target: &Target) -> Result<Vec<HttpRequest>, Error> {
        let body = self.data.as_ref().map(|Body(bytes)| bytes.clone());
        let method =
            self.method.clone().unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.into());
        let path = target.path().unwrap_or("/").to_owned();
        let name = format!("{method} {path}");
        let request = HttpRequest { name, weight: 1, method, path, headers: Vec::new(), body };
        Ok(vec![self.complete(request, target)?])
    }

    /// Adds what the flags say and what is usual to a request.
    fn complete(&self, mut request: HttpRequest, target: &Target) -> Result<HttpRequest, Error> {
        for header in self.all_headers(target)? {
            if !has(&request.headers, &header.name) || self.headers.contains(&header) {
                request.headers.push(header);
            }
        }
        let mut usual = |name: &str, value: &str| {
            if !has(&request.headers, name) {
                request.headers.push(Header { name: name.to_owned(), value: value.to_owned() });
            }
        };
        usual("User-Agent", concat!("weir/", env!("CARGO_PKG_VERSION")));
        usual("Accept", "*/*");
        if let Some(body) = &request.body {
            usual("Content-Type", content_type(body));
        } else if matches!(request.method.as_str(), "PUT" | "POST" | "PATCH") {
            // Without a length a server does not know that such a request has no body.
            request.body = Some(Vec::new());
        }
        let columns = self.values.as_ref().map_or(&[][..], Values::columns);
        let headers = request.headers.iter().map(|header| header.value.as_bytes());
        let parts = [request.path.as_bytes()].into_iter().chain(headers).chain(request.body.as_deref());
        for part in parts {
            variables::check(part, columns)
                .map_err(|why| Error::input(format_args!("{}: {why}", request.name)))?;
        }
        Ok(request)
    }

    /// The fields that each request has, also one of a key-value workload: those of --header, `Host` and `Authorization`.
    pub(super) fn all_headers(&self, target: &Target) -> Result<Vec<Header>, Error> {
        let mut headers = self.headers.clone();
        if !has(&headers, "host") {
            headers.insert(0, Header { name: "Host".into(), value: target.authority() });
        }
        let basic = self.user.as_deref().or(target.credentials().filter(|_| self.bearer.is_none()));
        let basic = basic.map(|user| {
            let mut encoded = Vec::new();
            write_base64(&mut encoded, user.as_bytes());
            format!("Basic {}", String::from_utf8_lossy(&encoded))
        });
        if let Some(value) = self.bearer.as_ref().map(|token| format!("Bearer {token}")).or(basic) {
            if has(&headers, "authorization") {
                let what = "--header Authorization cannot be used with --user, --bearer or a user in the URL";
                return Err(Error::input(what).hint("leave one of them out"));
            }
            headers.push(Header { name: "Authorization".into(), value });
        }
        Ok(headers)
    }

    /// Whether anything is said that a key-value workload says itself.
    pub(super) fn says_what_is_asked(&self) -> Option<&'static str> {
        [
            (self.method.is_some(), "--request"),
            (self.data.is_some(), "--data"),
            (self.expect.is_some(), "--expect"),
            (self.expect_body.is_some(), "--expect-body"),
            (self.values.is_some(), "--values"),
        ]
        .into_iter()
        .find_map(|(is_said, flag)| is_said.then_some(flag))
    }

    /// What answers mean. It is never freed: a run has one, and all its threads use it.
    pub(super) fn rules(&self) -> &'static OperationTemplate {
        let pattern = self.expect_body.as_ref().map(|BodyPattern(pattern)| pattern.clone());
        Box::leak(Box::new(OperationTemplate {
            ok: self.expect.clone().unwrap_or_else(Statuses::usual),
            keeps_body: pattern.is_some(),
            body_pattern: pattern,
            ..OperationTemplate::default()
        }))
    }
}

fn has(headers: &[Header], name: &str) -> bool {
    headers.iter().any(|header| header.name.eq_ignore_ascii_case(name))
}

/// What a body is, if nobody says it: JSON where it is an object or a list of it, else a form, as curl has it.
fn content_type(body: &[u8]) -> &'static str {
    let is_json = matches!(body.trim_ascii(), [b'{', .., b'}'] | [b'[', .., b']']);
    if is_json { "application/json" } else { "application/x-www-form-urlencoded" }
}

pub(super) fn method(text: &str) -> Result<String, String> {
    match text {
        "CONNECT" | "TRACE" => Err("it cannot be sent under load; hint: use another method".into()),
        _ if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase()) => Ok(text.to_owned()),
        _ => Err("it is no method; hint: write it in capital letters, as in POST".into()),
    }
}

/// A text, or that of a file: one line without its end.
fn secret(text: &str) -> Result<String, String> {
    let text = match text.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?
        }
        None => text.to_owned(),
    };
    let text = text.trim();
    match text.chars().all(|c| !c.is_control()) && !text.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("it is not one line of text; hint: write it in one line".into()),
    }
}

impl FromStr for Header {
    type Err = String;

    fn from_str(text: &str) -> Result<Header, String> {
        let form = "write it as in 'Accept: text/html'";
        let Some((name, value)) = text.split_once(':') else {
            return Err(format!("it has no colon; hint: {form}"));
        };
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        if !is_field_name(&name) {
            return Err(format!("`{name}` is no legal name of a header; hint: {form}"));
        }
        let hint = match name.to_ascii_lowercase().as_str() {
            "content-length" | "transfer-encoding" => Some("leave it out: it follows from --data"),
            "connection" => Some("use --connect each for a connection per request"),
            _ => None,
        };
        if let Some(hint) = hint {
            return Err(format!("{name} is set by the generator; hint: {hint}"));
        }
        match value.chars().any(|c| c.is_control() && c != '\t') {
            true => Err(format!("the value has a control character; hint: {form}")),
            false => Ok(Header { name, value }),
        }
    }
}

impl FromStr for Body {
    type Err = String;

    fn from_str(text: &str) -> Result<Body, String> {
        match text.strip_prefix('@') {
            Some(path) => std::fs::read(path).map(Body).map_err(|error| {
                format!(
                    "cannot read {path}: {error}; hint: name a file, or write the body without @ in front"
                )
            }),
            None => Ok(Body(text.as_bytes().to_vec())),
        }
    }
}

impl FromStr for BodyPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<BodyPattern, String> {
        // As in grep, ^ and $ are the ends of a line.
        RegexBuilder::new(text).multi_line(true).build().map(BodyPattern).map_err(|error| {
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("it is no regular expression: {why}; hint: escape ( [ {{ . * + ? with a backslash")
        })
    }
}

impl fmt::Display for BodyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

kv::serde_as_text!(BodyPattern);
