//! `root`: the path is the key.

use super::Handled;
use super::call::{Call, key};
use super::reply::Reply;
use crate::error::Failure;
use crate::tiered::Served;
use http1::request::Method;

const BANNER: &str = "Synchronous KV Server with LRU Cache is running!";

pub(super) async fn handle(mut call: Call) -> Handled {
    let name = call.path.strip_prefix(b"/").unwrap_or(&call.path);
    match (call.method, name) {
        (Method::Get, b"") => Ok(Reply::text(200, BANNER)),
        (Method::Get, b"metrics") => Ok(Reply::text(200, metrics(&call))),
        (Method::Get, _) => {
            let failed = |_: Failure| Reply::text(500, "All database reads failed");
            match call.get(&key(name)?).await.map_err(failed)? {
                (Some(row), _) => Ok(Reply::value("", &row)),
                (None, Served::Replica) => Err(Reply::text(404, "Key Not Found (DB3 Fallback)")),
                (None, _) => Err(Reply::text(404, "Key Not Found")),
            }
        }
        (Method::Post | Method::Delete, b"") => Err(Reply::text(400, "Bad Request: empty key")),
        (Method::Post, _) => {
            let failed = |_: Failure| Reply::text(500, "Database error: Currently service down");
            let (key, value) = (key(name)?, std::mem::take(&mut call.body));
            call.put(&key, value).await.map_err(failed)?;
            Ok(joined(201, "Stored key: ", key.as_bytes()))
        }
        (Method::Delete, _) => {
            let failed = |failure: Failure| joined(500, "Database error: ", failure.detail.as_bytes());
            call.delete(&key(name)?).await.map_err(failed)?;
            Ok(joined(200, "Deleted key: ", name))
        }
        _ => Err(Reply::empty(404)),
    }
}

/// A key may be any bytes, and is answered unchanged.
fn joined(status: u16, words: &str, bytes: &[u8]) -> Reply {
    Reply::text(status, [words.as_bytes(), bytes].concat())
}

fn metrics(call: &Call) -> String {
    let counts = call.counts();
    let entries = call.worker.shared.tiers.cache_counts().entries;
    let lines = [
        ("Cache Hits", counts.hits.to_string()),
        ("Cache Misses", counts.misses.to_string()),
        ("Cache Hit Ratio", format!("{}%", six_digits(counts.hit_rate()))),
        ("Cache Size", format!("{entries}/{}", call.worker.shared.options.cache_entries)),
        ("Total GETs", counts.gets.to_string()),
        ("Total POSTs", counts.puts.to_string()),
        ("Total DELETEs", counts.deletes.to_string()),
        ("Total DB Reads", counts.store_reads.count.to_string()),
        ("Total DB Writes", counts.store_writes.count.to_string()),
        ("Avg DB Read Latency (ms)", six_digits(counts.store_reads.mean_millis())),
        ("Avg DB Write Latency (ms)", six_digits(counts.store_writes.mean_millis())),
    ];
    lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// A number as C++ streams print it, but for exponents: six significant digits, without zeros at the end.
fn six_digits(value: f64) -> String {
    format!("{value:.5e}").parse().unwrap_or(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits_at_most() {
        for (value, text) in [
            (0.0, "0"),
            (100.0, "100"),
            (200.0 / 3.0, "66.6667"),
            (0.5, "0.5"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_012_5, "0.0000125"),
            (123_456.7, "123457"),
            (999_999.9, "1000000"),
            (1_234_567.0, "1234570"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }
}
