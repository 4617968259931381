//! `rpc`: one route for each operation, parameters in queries and forms, answers in JSON.
//!
//! Spaces stand where the original has them. Strings are escaped, which the original does not do.

use super::Handled;
use super::call::Call;
use super::reply::Reply;
use super::statistics::Counts;
use crate::compute::{self, Full, PRIMES_MAX, TEXT_BYTES_MAX};
use crate::error::Failure;
use crate::tiered::{CacheCounts, Served};
use http1::request::Method;
use kv::Key;

const PRIMES_DEFAULT: i32 = 10;

pub(super) async fn handle(call: Call) -> Handled {
    let failed = |_: Failure| error(500, "db error");
    let full = |Full| error(503, "overloaded");
    let key = || match call.params.get("key") {
        None | Some(b"") => Err(error(400, "missing key")),
        Some(key) => Key::new(key).ok_or_else(|| error(400, "key too long")),
    };
    match (call.method, call.path.as_slice()) {
        (Method::Post, b"/kv/create") => {
            let value = call.params.get("value").ok_or_else(|| error(400, "missing key"))?;
            let key = key()?;
            let (message, overwritten) = match call.exchange(&key, value).await.map_err(failed)? {
                None => ("Key created", "false".to_owned()),
                Some(old) => ("Key overwritten", format!(r#"true, "old_value": {}"#, quoted(old.value()))),
            };
            let (key, value) = (quoted(key.as_bytes()), quoted(value));
            let text = format!(
                r#""message": "{message}", "key": {key}, "value": {value}, "overwritten": {overwritten}"#
            );
            Ok(success(201, &text))
        }
        (Method::Get, b"/kv/read") => {
            let key = key()?;
            let (row, served) = call.get(&key).await.map_err(failed)?;
            let key = quoted(key.as_bytes());
            let Some(row) = row else {
                return Err(Reply::json(404, format!(r#"{{"error": "Key not found", "key": {key}}}"#)));
            };
            let source = if served == Served::Hit { "cache" } else { "database" };
            let value = quoted(row.value());
            Ok(success(200, &format!(r#""key": {key}, "value": {value}, "source": "{source}""#)))
        }
        (Method::Delete, b"/kv/delete") => {
            let key = key()?;
            call.delete(&key).await.map_err(failed)?;
            Ok(success(200, &format!(r#""message": "Deleted", "key": {}"#, quoted(key.as_bytes()))))
        }
        (Method::Get, b"/compute/prime") => {
            let count = call.params.get("count").map_or(Some(PRIMES_DEFAULT), |count| {
                std::str::from_utf8(count).ok().and_then(|count| count.parse::<i32>().ok())
            });
            let count = count.ok_or_else(|| error(500, "internal server error"))?;
            let count = count.clamp(0, PRIMES_MAX as i32) as usize;
            let primes = call.worker.shared.compute(move || compute::primes(count)).await.map_err(full)?;
            let primes = primes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
            Ok(success(200, &format!(r#""count": {count}, "primes": "{primes}""#)))
        }
        (Method::Get, b"/compute/hash") => {
            let text = call.params.get("text").unwrap_or_default();
            match text.len() {
                0 => return Err(error(400, "missing text")),
                1..=TEXT_BYTES_MAX => {}
                _ => return Err(error(400, "text too long")),
            }
            let (hash, was_known) = call.hash(text).await.map_err(full)?;
            let (text, source) = (quoted(text), if was_known { "cache" } else { "computed" });
            Ok(success(200, &format!(r#""text": {text}, "hash": {hash}, "source": "{source}""#)))
        }
        (Method::Get, b"/status") => Ok(success(200, &status(&call))),
        (_, path) => Err(no_endpoint(call.method.as_str(), path)),
    }
}

fn success(status: u16, fields: &str) -> Reply {
    Reply::json(status, format!(r#"{{"success": true, {fields}}}"#))
}

fn status(call: &Call) -> String {
    let counts = call.counts();
    let Counts { hits, misses, hash_hits, hash_misses, hash_evictions, .. } = counts;
    let (rate, hash_rate) = (counts.hit_rate(), counts.hash_hit_rate());
    let CacheCounts { entries, evictions, .. } = call.worker.shared.tiers.cache_counts();
    let hash_entries = call.state.statistics.hashes.lock().len();
    format!(
        "\"data\": {{\"server\": \"running\", \"kv_cache_size\": {entries}, \"kv_cache_hits\": {hits}, \
         \"kv_cache_misses\": {misses}, \"kv_cache_hit_rate\": {rate:.6}, \"kv_cache_evictions\": {evictions}, \
         \"hash_cache_size\": {hash_entries}, \"hash_cache_hits\": {hash_hits}, \
         \"hash_cache_misses\": {hash_misses}, \"hash_cache_hit_rate\": {hash_rate:.6}, \
         \"hash_cache_evictions\": {hash_evictions}}}"
    )
}

fn error(status: u16, what: &str) -> Reply {
    Reply::json(status, format!(r#"{{"error": "{what}"}}"#))
}

fn no_endpoint(method: &str, path: &[u8]) -> Reply {
    let path = quoted(path);
    let text = format!(
        "{{\"error\": \"endpoint not found\", \"method\": \"{method}\", \"path\": {path}, \"status\": 404, \
         \"hint\": \"Valid endpoints: /kv/create (POST), /kv/read (GET), /kv/delete (DELETE), /compute/prime (GET), \
         /compute/hash (GET), /status (GET)\"}}"
    );
    Reply::json(404, text)
}

/// A JSON string. JSON has no bytes: what is not UTF-8 is replaced.
fn quoted(bytes: &[u8]) -> String {
    serde_json::Value::from(String::from_utf8_lossy(bytes)).to_string()
}
