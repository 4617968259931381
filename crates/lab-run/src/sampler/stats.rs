//! What the target counts itself: one GET of its `/stats`, a flat JSON object of name to number. Of several servers these are sums, but for the clock.
//!
//! A server without it simply has no such counters.

use super::{Context, Reading, Sampler};
use crate::http::ask;
use kv::proto::STATS;
use lab_data::experiment::HTTPS;
use lab_data::results::SERVERS_CLOCK;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// Longer than any healthy answer; a server that takes longer has no counters in this reading.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Endings of the names that only grow.
const COUNTER_ENDINGS: [&str; 3] = ["_total", "_sum", "_count"];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    // Over TLS nobody is asked.
    let urls: Vec<String> = context.urls.iter().filter(|url| !url.starts_with(HTTPS)).cloned().collect();
    (!urls.is_empty()).then(|| -> Sampler {
        Box::new(move |into| {
            let mut sum = Reading::default();
            for url in &urls {
                match ask("GET", url, STATS, TIMEOUT)? {
                    (200, body) => parse(&body, &mut sum)?,
                    (status, _) => return Err(io::Error::other(format!("{url} answered {status}"))),
                }
            }
            into.counters.append(&mut sum.counters);
            into.gauges.append(&mut sum.gauges);
            Ok(())
        })
    })
}

fn parse(body: &[u8], into: &mut Reading) -> io::Result<()> {
    let values: BTreeMap<String, serde_json::Value> = serde_json::from_slice(body)?;
    for (name, value) in values {
        let Some(value) = value.as_f64() else { continue };
        let metric = name.split('{').next().unwrap_or(&name);
        if metric.ends_with("_bucket") {
            // The load generator measures latencies itself, and better.
            continue;
        }
        if COUNTER_ENDINGS.iter().any(|ending| metric.ends_with(ending)) {
            *into.counters.entry(format!("stats.{name}")).or_default() += value;
        } else {
            let name = format!("stats.{name}");
            let is_clock = name == SERVERS_CLOCK;
            let known = into.gauges.entry(name).or_default();
            // A sum of clocks runs too fast, and every rate by it would be too low.
            *known = if is_clock { known.max(value) } else { *known + value };
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::results::Trial;

    #[test]
    fn counters_and_gauges_are_told_apart_by_their_names() {
        let body = br#"{"weir_http_requests_total{method=\"get\",code=\"200\"}": 7,
            "weir_store_duration_seconds_sum": 1.5, "weir_store_duration_seconds_count": 3,
            "weir_cache_bytes": 1024, "weir_store_workers{operation=\"write\"}": 2, "version": "0.1",
            "weir_http_request_duration_seconds_bucket{le=\"1\"}": 3}"#;
        let mut reading = Reading::default();
        parse(body, &mut reading).unwrap();
        assert_eq!(reading.counters.len(), 3);
        assert_eq!(reading.counters[r#"stats.weir_http_requests_total{method="get",code="200"}"#], 7.0);
        assert_eq!(reading.gauges.len(), 2);
        assert_eq!(reading.gauges[r#"stats.weir_store_workers{operation="write"}"#], 2.0);
        parse(br#"{"weir_cache_bytes": 1, "weir_store_duration_seconds_count": 2}"#, &mut reading).unwrap();
        let name = "stats.weir_store_duration_seconds_count";
        assert_eq!((reading.counters[name], reading.gauges["stats.weir_cache_bytes"]), (5.0, 1025.0));
        assert!(parse(b"[]", &mut reading).is_err());
    }

    #[test]
    fn the_clocks_of_two_servers_are_one_and_rates_are_of_both() {
        let page = |uptime: u32, count: u32| {
            format!("{{\"weir_uptime_seconds\": {uptime}, \"weir_writes_total\": {count}}}")
        };
        let both = |uptime, count| {
            let mut reading = Reading::default();
            (0..2).for_each(|_| parse(page(uptime, count).as_bytes(), &mut reading).unwrap());
            reading
        };
        let trial = Trial { elapsed_secs: 2.0, opened: both(7, 0), closed: both(9, 2), ..Trial::default() };
        assert_eq!(trial.per_sec("stats.weir_writes_total"), Some(2.0));
    }
}
