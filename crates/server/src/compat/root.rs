//! `root`: the path is the key.

use super::counts::{Count, Figures};
use super::reply::Reply;
use super::{Asked, Done, Operation, key};
use crate::error::Failure;
use crate::tiered::Served;
use http1::request::Method;

const BANNER: &str = "Synchronous KV Server with LRU Cache is running!";

pub(super) fn route(asked: &mut Asked) -> Result<Operation, Reply> {
    let name = asked.path.strip_prefix(b"/").unwrap_or(&asked.path);
    match (asked.method, name) {
        (Method::Get, b"") => Err(Reply::text(200, BANNER)),
        (Method::Get, b"metrics") => Ok(Operation::Figures),
        (Method::Get, _) => Ok(Operation::Get(key(name)?)),
        (Method::Post | Method::Delete, b"") => Err(Reply::text(400, "Bad Request: empty key")),
        (Method::Post, _) => Ok(Operation::Put { key: key(name)?, value: std::mem::take(&mut asked.body) }),
        (Method::Delete, _) => Ok(Operation::Delete(key(name)?)),
        _ => Err(Reply::empty(404)),
    }
}

pub(super) fn tell(operation: &Operation, done: Result<Done, Failure>) -> Reply {
    match (operation, done) {
        (_, Ok(Done::Figures(figures))) => Reply::text(200, metrics(&figures)),
        (_, Ok(Done::Read { row: Some(row), .. })) => Reply::value("", row),
        (_, Ok(Done::Read { row: None, served: Served::Replica })) => {
            Reply::text(404, "Key Not Found (DB3 Fallback)")
        }
        (_, Ok(Done::Read { row: None, .. })) => Reply::text(404, "Key Not Found"),
        (Operation::Put { key, .. }, Ok(_)) => said(201, "Stored key: ", key.as_bytes()),
        (Operation::Delete(key), Ok(_)) => said(200, "Deleted key: ", key.as_bytes()),
        (Operation::Delete(_), Err(failure)) => said(500, "Database error: ", failure.detail.as_bytes()),
        (Operation::Put { .. }, Err(_)) => Reply::text(500, "Database error: Currently service down"),
        _ => Reply::text(500, "All database reads failed"),
    }
}

/// A key may be any bytes, and comes back as it was.
fn said(status: u16, words: &str, bytes: &[u8]) -> Reply {
    Reply::bytes(status, [words.as_bytes(), bytes].concat())
}

fn metrics(figures: &Figures) -> String {
    let count = |count: Count| figures.of(count).to_string();
    let mean = |calls, micros| six_digits(figures.mean_millis(calls, micros));
    let lines = [
        ("Cache Hits", count(Count::Hits)),
        ("Cache Misses", count(Count::Misses)),
        ("Cache Hit Ratio", format!("{}%", six_digits(figures.hit_rate()))),
        ("Cache Size", format!("{}/{}", figures.cache.entries, figures.cache_entries_max)),
        ("Total GETs", count(Count::Gets)),
        ("Total POSTs", count(Count::Puts)),
        ("Total DELETEs", count(Count::Deletes)),
        ("Total DB Reads", count(Count::StoreReads)),
        ("Total DB Writes", count(Count::StoreWrites)),
        ("Avg DB Read Latency (ms)", mean(Count::StoreReads, Count::StoreReadMicros)),
        ("Avg DB Write Latency (ms)", mean(Count::StoreWrites, Count::StoreWriteMicros)),
    ];
    lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect()
}

/// A number as C++ streams print it: six significant digits, without zeros at the end.
fn six_digits(value: f64) -> String {
    let scientific = format!("{value:.5e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |digits: &str| match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => digits.to_owned(),
    };
    if (-4..6).contains(&exponent) {
        return short(&format!("{value:.*}", (5 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(digits), exponent.abs())
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
            (0.000_012_5, "1.25e-05"),
            (123_456.7, "123457"),
            (999_999.9, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
        ] {
            assert_eq!(six_digits(value), text);
        }
    }
}
