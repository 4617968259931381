//! `rpc`: one route for each operation, parameters in queries and forms, answers in JSON.
//!
//! Spaces stand where they stand there. Strings are escaped, which there they are not.

use super::counts::{Count, Figures};
use super::reply::Reply;
use super::{Asked, Done, Operation, percent};
use crate::compute::{PRIMES_MAX, TEXT_BYTES_MAX};
use crate::error::Failure;
use crate::tiered::Served;
use http1::request::Method;
use kv::Key;

const PRIMES_DEFAULT: usize = 10;

pub(super) fn route(asked: &mut Asked) -> Result<Operation, Reply> {
    let key = || match asked.params.get("key") {
        None | Some(b"") => Err(error(400, "missing key")),
        Some(key) => Key::new(key).ok_or_else(|| error(400, "key too long")),
    };
    match (asked.method, asked.path.as_slice()) {
        (Method::Post, b"/kv/create") => {
            let value = asked.params.get("value").ok_or_else(|| error(400, "missing key"))?.to_vec();
            Ok(Operation::Exchange { key: key()?, value })
        }
        (Method::Get, b"/kv/read") => Ok(Operation::Get(key()?)),
        (Method::Delete, b"/kv/delete") => Ok(Operation::Delete(key()?)),
        (Method::Get, b"/compute/prime") => match asked.params.get("count") {
            None => Ok(Operation::Primes(PRIMES_DEFAULT)),
            Some(count) => {
                match std::str::from_utf8(count).ok().and_then(|count| count.parse::<i32>().ok()) {
                    // No primes are asked for by a number below zero.
                    Some(count) => Ok(Operation::Primes(count.clamp(0, PRIMES_MAX as i32) as usize)),
                    None => Err(error(500, "internal server error")),
                }
            }
        },
        (Method::Get, b"/compute/hash") => match asked.params.get("text") {
            None | Some(b"") => Err(error(400, "missing text")),
            Some(text) if text.len() > TEXT_BYTES_MAX => Err(error(400, "text too long")),
            Some(text) => Ok(Operation::Hash(text.to_vec())),
        },
        (Method::Get, b"/status") => Ok(Operation::Figures),
        (_, path) => Err(no_endpoint(asked.method_name, path)),
    }
}

pub(super) fn tell(operation: &Operation, done: Result<Done, Failure>) -> Reply {
    match (operation, done) {
        (Operation::Primes(_) | Operation::Hash(_), Err(_)) => error(503, "overloaded"),
        (_, Err(_)) => error(500, "db error"),
        (Operation::Get(key), Ok(Done::Read { row: Some(row), served })) => {
            let source = if served == Served::Hit { "cache" } else { "database" };
            let (key, value) = (quoted(key.as_bytes()), quoted(row.value()));
            let text = format!(
                "{{\"success\": true, \"key\": {key}, \"value\": {value}, \"source\": \"{source}\"}}"
            );
            Reply::json(200, text)
        }
        (Operation::Get(key), Ok(_)) => {
            Reply::json(404, format!("{{\"error\": \"Key not found\", \"key\": {}}}", quoted(key.as_bytes())))
        }
        (Operation::Exchange { key, value }, Ok(Done::Exchanged { old })) => {
            let (message, overwritten) = match old {
                None => ("Key created", "false".to_owned()),
                Some(old) => ("Key overwritten", format!("true, \"old_value\": {}", quoted(old.value()))),
            };
            let (key, value) = (quoted(key.as_bytes()), quoted(value));
            let text = format!(
                "{{\"success\": true, \"message\": \"{message}\", \"key\": {key}, \"value\": {value}, \
                 \"overwritten\": {overwritten}}}"
            );
            Reply::json(201, text)
        }
        (Operation::Delete(key), Ok(_)) => {
            let key = quoted(key.as_bytes());
            Reply::json(200, format!("{{\"success\": true, \"message\": \"Deleted\", \"key\": {key}}}"))
        }
        (Operation::Primes(count), Ok(Done::Primes(primes))) => {
            let primes: Vec<String> = primes.iter().map(u32::to_string).collect();
            let primes = primes.join(",");
            Reply::json(200, format!("{{\"success\": true, \"count\": {count}, \"primes\": \"{primes}\"}}"))
        }
        (Operation::Hash(text), Ok(Done::Hash { hash, was_known })) => {
            let (text, source) = (quoted(text), if was_known { "cache" } else { "computed" });
            let text = format!(
                "{{\"success\": true, \"text\": {text}, \"hash\": {hash}, \"source\": \"{source}\"}}"
            );
            Reply::json(200, text)
        }
        (_, Ok(Done::Figures(figures))) => Reply::json(200, status(&figures)),
        _ => error(500, "internal server error"),
    }
}

fn status(figures: &Figures) -> String {
    let (hash_hits, hash_misses) = (figures.of(Count::HashHits), figures.of(Count::HashMisses));
    let (hash_size, hash_evictions) = figures.hashes;
    format!(
        "{{\"success\": true, \"data\": {{\"server\": \"running\", \"kv_cache_size\": {}, \"kv_cache_hits\": {}, \
         \"kv_cache_misses\": {}, \"kv_cache_hit_rate\": {:.6}, \"kv_cache_evictions\": {}, \
         \"hash_cache_size\": {hash_size}, \"hash_cache_hits\": {hash_hits}, \"hash_cache_misses\": {hash_misses}, \
         \"hash_cache_hit_rate\": {:.6}, \"hash_cache_evictions\": {hash_evictions}}}}}",
        figures.cache.entries,
        figures.of(Count::Hits),
        figures.of(Count::Misses),
        figures.hit_rate(),
        figures.cache.evictions,
        percent(hash_hits, hash_hits + hash_misses),
    )
}

fn error(status: u16, what: &str) -> Reply {
    Reply::json(status, format!("{{\"error\": \"{what}\"}}"))
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
