//! What the target counts itself: one GET of its `/stats`, a flat JSON object of name to number.
//!
//! A server without it simply has no such counters.

use super::{Context, Reading, Sampler};
use kv::proto::STATS;
use lab_data::experiment::address;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Longer than any healthy answer; a server that takes longer has no counters in this reading.
const TIMEOUT: Duration = Duration::from_secs(2);
/// No honest answer is longer.
const BYTES_MAX: u64 = 1 << 20;

/// Endings of the names that only grow.
const COUNTER_ENDINGS: [&str; 3] = ["_total", "_sum", "_count"];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let url = context.url.clone()?;
    Some(Box::new(move |into| match get(&url, STATS, TIMEOUT)? {
        (200, body) => parse(&body, into),
        (status, _) => Err(io::Error::other(format!("{url} answered {status}"))),
    }))
}

fn parse(body: &[u8], into: &mut Reading) -> io::Result<()> {
    let values: BTreeMap<String, serde_json::Value> = serde_json::from_slice(body)?;
    for (name, value) in values {
        let Some(value) = value.as_f64() else { continue };
        let metric = name.split('{').next().unwrap_or(&name);
        if COUNTER_ENDINGS.iter().any(|ending| metric.ends_with(ending)) {
            into.count(format!("stats.{name}"), value);
        } else {
            into.gauge(format!("stats.{name}"), value);
        }
    }
    Ok(())
}

/// One GET: status and body.
pub fn get(url: &str, path: &str, timeout: Duration) -> io::Result<(u16, Vec<u8>)> {
    ask("GET", url, path, timeout)
}

/// One request without a body: status and body of the answer.
pub fn ask(method: &str, url: &str, path: &str, timeout: Duration) -> io::Result<(u16, Vec<u8>)> {
    let host = address(url).ok_or_else(|| io::Error::other(format!("{url} is not http://HOST:PORT")))?;
    let addresses: Vec<SocketAddr> = host.to_socket_addrs()?.collect();
    let address = addresses.first().ok_or_else(|| io::Error::other(format!("{host} has no address")))?;
    let mut stream = TcpStream::connect_timeout(address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    // Of a method that may have a body it is said that there is none.
    let length = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{length}Connection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut answer)?;
    split(&answer).ok_or_else(|| io::Error::other(format!("{url}{path} did not answer in HTTP")))
}

/// Status and body of a whole answer. The body ends with the connection: we asked for that.
fn split(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = memchr::memmem::find(answer, b"\r\n\r\n")?;
    let status =
        std::str::from_utf8(&answer[..end]).ok()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    Some((status, answer[end + 4..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_gauges_are_told_apart_by_their_names() {
        let body = br#"{"weir_http_requests_total{method=\"get\",code=\"200\"}": 7,
            "weir_store_duration_seconds_sum": 1.5, "weir_store_duration_seconds_count": 3,
            "weir_cache_bytes": 1024, "weir_store_workers{operation=\"write\"}": 2, "version": "0.1"}"#;
        let mut reading = Reading::default();
        parse(body, &mut reading).unwrap();
        assert_eq!(reading.counters.len(), 3);
        assert_eq!(reading.counters[r#"stats.weir_http_requests_total{method="get",code="200"}"#], 7.0);
        assert_eq!(reading.gauges.len(), 2);
        assert_eq!(reading.gauges[r#"stats.weir_store_workers{operation="write"}"#], 2.0);
        assert!(parse(b"[]", &mut reading).is_err());
    }

    #[test]
    fn an_answer_is_split_at_the_empty_line() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", Some((200, b"{}".to_vec()))),
            ("HTTP/1.1 503 \r\n\r\n", Some((503, vec![]))),
            ("HTTP/1.1 200 OK\r\n", None),
            ("SSH-2.0-OpenSSH\r\n\r\n", None),
        ] {
            assert_eq!(split(answer.as_bytes()), expected, "{answer}");
        }
    }
}
