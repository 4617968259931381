//! Routes that only `--lab` opens: fill and clear the store, compute, inject faults.
//!
//! For measurements. Every client may clear the store, so `cmd` opens these routes on loopback addresses only.

use super::Shared;
use super::compute::{self, Full, PRIMES_MAX, TEXT_BYTES_MAX};
use super::error::Failure;
use super::head::{content_type, only_field, path_and_query, refuse_encoded, wrong_method};
use super::query::Params;
use super::reply::{Answer, JSON};
use crate::tiered::WriteError;
use http1::request::{Head, Method};
use kv::Key;
use kv::faults::{FAULTS, FaultSpec};
use kv::proto;
use std::borrow::Cow;

/// What such a request asks for. A preload goes into the store and not into the cache; the value is the body.
#[derive(Debug)]
pub(super) enum Action {
    Preload {
        key: Key,
        content_type: String,
    },
    Clear,
    /// The first primes, this many.
    Primes(usize),
    Hash(Vec<u8>),
    /// On top of those it was started with, in place of what was added before.
    Inject(FaultSpec),
}

impl Action {
    /// Whether it is something to be measured, and not what prepares for it.
    pub(super) fn is_work(&self) -> bool {
        matches!(self, Action::Primes(_) | Action::Hash(_))
    }
}

/// Finds the route; `None` where there is none, and the plain interface has the word.
pub(super) fn route(head: &Head<'_, '_>) -> Option<Result<Action, Failure>> {
    let (path, query) = path_and_query(head);
    let path = std::str::from_utf8(path).ok()?;
    let allow = match path {
        "/preload" => "POST",
        proto::COMPUTE_PRIME | proto::COMPUTE_HASH => "GET",
        proto::INJECT => "PUT, DELETE",
        // Other methods have this path elsewhere.
        "/kv" if head.method == Method::Delete => "DELETE",
        _ => return None,
    };
    if !allow.split(", ").any(|method| method == head.method.as_str()) {
        return Some(Err(wrong_method(allow)));
    }
    Some(action(head, path, query))
}

/// What is asked for; a mistake in the query is answered with what it should be.
fn action(head: &Head<'_, '_>, path: &str, query: Option<&[u8]>) -> Result<Action, Failure> {
    if head.method == Method::Delete {
        return match (query, path) {
            (None, "/kv") => Ok(Action::Clear),
            (None, _) => Ok(Action::Inject(FaultSpec::default())),
            // A request for a part must not remove everything.
            (Some(_), "/kv") => Err(wrong_query("this removes every key; to say so, leave the query out")),
            (Some(_), _) => Err(wrong_query("this removes all added faults; leave the query out")),
        };
    }
    let params = Params::of(query.unwrap_or_default())?;
    match path {
        "/preload" => {
            let key = params.only("key").and_then(|key| Key::new(&key)).ok_or_else(|| {
                wrong_query("write ?key=KEY and no more, with 1 to 1024 bytes; the value is the body")
            })?;
            // Nothing keeps the name of the coding, and the value would be given back without.
            let what = "a Content-Encoding is not stored; send the value without one, or leave the header out and name \
                        the format in Content-Type";
            refuse_encoded(head, what)?;
            Ok(Action::Preload { key, content_type: content_type(only_field(head, "Content-Type")?)? })
        }
        proto::COMPUTE_PRIME => {
            let count = params.only("count").and_then(|count| std::str::from_utf8(&count).ok()?.parse().ok());
            match count {
                Some(count @ 1..=PRIMES_MAX) => Ok(Action::Primes(count)),
                _ => Err(wrong_query("write ?count=N and no more, with N from 1 to 10000")),
            }
        }
        proto::COMPUTE_HASH => match params.only("text") {
            Some(text) if (1..=TEXT_BYTES_MAX).contains(&text.len()) => Ok(Action::Hash(text)),
            _ => Err(wrong_query("write ?text=TEXT and no more, with 1 to 8192 bytes")),
        },
        _ => {
            let words = params.iter().map(|(name, value)| String::from_utf8([name, b"=", value].concat()));
            let words =
                words.collect::<Result<Vec<_>, _>>().map_err(|_| wrong_query("the query is not UTF-8"))?;
            if words.is_empty() {
                let known = FAULTS.join(", ");
                return Err(wrong_query(format!("write ?NAME=VALUE&NAME=VALUE with any of {known}")));
            }
            FaultSpec::parse(&words).map(Action::Inject).map_err(|why| wrong_query(String::from(why)))
        }
    }
}

fn wrong_query(what: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(400, "bad_query", what)
}

/// Does it. `body` is the value of a preload.
pub(super) async fn perform(shared: &Shared, action: Action, body: Vec<u8>) -> Result<Answer, Failure> {
    let full = |Full| {
        let what = "too many computations wait; ask again later";
        Failure::new(503, "overloaded", what).with("Retry-After", "1")
    };
    match action {
        Action::Preload { key, content_type } => {
            let made = shared.tiers.tier_of(&key).preload(&key, &content_type, body).await;
            let made = made.map_err(Failure::of_write)?;
            let status = if made.existed { 204 } else { 201 };
            Ok(Answer::Made { status, version: Some(made.version) })
        }
        Action::Clear => {
            let cleared = shared.tiers.clear().await;
            cleared.map_err(|error| Failure::of_write(WriteError::Store(error)))?;
            Ok(Answer::Made { status: 204, version: None })
        }
        Action::Inject(spec) => {
            // Without an injector there is no such route.
            if let Some(faults) = &shared.faults {
                let added = faults.injector.add(&spec);
                added.map_err(|why| Failure::new(409, "no_effect", String::from(why)).not_applied())?;
            }
            Ok(Answer::Made { status: 204, version: None })
        }
        Action::Primes(count) => {
            let primes = shared.compute(move || compute::primes(count)).await.map_err(full)?;
            let primes: Vec<String> = primes.iter().map(u32::to_string).collect();
            let text = format!("{{\"count\":{count},\"primes\":[{}]}}\n", primes.join(","));
            Ok(Answer::page(200, JSON, text))
        }
        Action::Hash(text) => {
            let hash = shared.compute(move || compute::hash(&text)).await.map_err(full)?;
            Ok(Answer::page(200, JSON, format!("{{\"hash\":{hash}}}\n")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Slots, request};

    /// Routes a request of this start line; the action, `status detail`, or `-` where the plain interface decides.
    fn check(start: &str, expected: &str) {
        let text = format!("{start} HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut slots = Slots::default();
        let head = request::parse(text.as_bytes(), &Limits::USUAL, &mut slots).unwrap().unwrap();
        let got = match route(&head) {
            None => "-".to_owned(),
            Some(Ok(Action::Preload { key, .. })) => format!("preload {}", key.as_bytes().escape_ascii()),
            Some(Ok(Action::Hash(text))) => format!("hash {}", text.escape_ascii()),
            Some(Ok(other)) => format!("{other:?}"),
            Some(Err(failure)) => format!("{} {}", failure.status, failure.detail),
        };
        assert!(got.starts_with(expected), "{start}: {got}");
    }

    #[test]
    fn every_route_has_its_query_and_no_other() {
        check("POST /preload?key=a+b%2Bc", "preload a b+c");
        check("POST /preload?key=", "400 write ?key=KEY");
        check("POST /preload?key=%zz", "400 the query has a %");
        check("POST /preload?key=a&value=b", "400 write ?key=KEY");
        check(&format!("POST /preload?key={}", "k".repeat(1025)), "400 write ?key=KEY");
        check("PUT /preload?key=a", "405 this route takes POST");
        check("DELETE /kv", "Clear");
        check("DELETE /kv?", "400 this removes every key");
        check("DELETE /kv?prefix=a", "400 this removes every key");
        check("GET /kv", "-");
        check("PUT /kv", "-");
        check("DELETE /kv/", "-");
        check("GET /compute/prime?count=1", "Primes(1)");
        check("GET /compute/prime?count=10000", "Primes(10000)");
        for wrong in ["", "?", "?count=", "?count=0", "?count=10001", "?count=-1", "?count=1&x", "?n=1"] {
            check(&format!("GET /compute/prime{wrong}"), "400 write ?count=N");
        }
        check("GET /compute/hash?text=%ff", "hash \\xff");
        check("GET /compute/hash?text=", "400 write ?text=TEXT");
        check("HEAD /compute/hash?text=a", "405 this route takes GET");
        check("GET /compute", "-");
        check("GET /kv/preload", "-");
        check("PUT /inject?cpu=250us&fail=3", "Inject(FaultSpec([Some(250000), None");
        check("DELETE /inject", "Inject(FaultSpec([None, None, None, None, None, None, None]))");
        check("DELETE /inject?cpu=1ms", "400 this removes all added faults");
        check("GET /inject", "405 this route takes PUT, DELETE");
        check("PUT /inject", "400 write ?NAME=VALUE&NAME=VALUE with any of cpu, worker, delay,");
        check("PUT /inject?%ff=1ms", "400 the query is not UTF-8");
        check("PUT /inject?cpu", "400 cpu=: a duration is a number with");
        check("PUT /inject?cpus=1ms", "400 unknown fault \"cpus\"; hint: expected one of: cpu,");
    }
}
