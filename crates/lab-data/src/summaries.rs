//! What other load generators print at the end of a run, read into [`PublishedRow`]s: wrk, k6, oha, and tables in JSON as of HttpArena.
//!
//! Pure: text in, rows out. Each is known by words that only it prints.

use crate::ensure;
use crate::figure::{Figure, with_unit};
use crate::published::{PublishedRow, Table, table};
use kv::Error;
use serde_json::Value;

/// How lines begin that wrk2 prints and wrk does not.
const WRK2: [&str; 2] = ["Thread calibration:", "Latency Distribution (HdrHistogram"];
/// What k6 says of a scenario that begins iterations at a rate, constant or not: `500.00 iterations/s for 30s`.
const K6_AT_RATE: &str = " iterations/s for ";
/// What k6 calls the number of requests, and their rate behind it.
const K6_REQUESTS: &str = "http_reqs";

/// Reads a table with the names of its columns, or what wrk, k6 or oha print at the end. `names` are pairs of a column here and its name
/// there; `clients` are those of rows that have none.
pub fn read(text: &str, names: &[(String, String)], clients: Option<u32>) -> Result<Table, Error> {
    // Of a closed loop the law holds, and wrk2 sends at a fixed rate.
    let is_wrk2 = WRK2.iter().any(|only| text.lines().any(|line| line.trim_start().starts_with(only)));
    let hint = "audit what a closed loop printed, as that of wrk";
    ensure(!is_wrk2, "this is of wrk2, whose latencies count from when a request was due", hint)?;
    let is_at_rate = is_k6(text) && text.contains(K6_AT_RATE);
    ensure(!is_at_rate, "this is of k6 with an arrival rate, where some VUs are idle", hint)?;
    let known = rows(text).map(|rows| Table { rows, ignored: Vec::new(), unread: None });
    let is_json = text.trim_start().starts_with(['{', '[']);
    let hint = "name a CSV table, or JSON that k6, oha or HttpArena printed";
    ensure(known.is_some() || !is_json, "this JSON is no table of clients, throughput and latency", hint)?;
    let mut table = match known {
        Some(table) => table,
        None => table(text, names, clients.is_some())?,
    };
    table.rows.iter_mut().for_each(|row| row.clients = row.clients.or(clients));
    let is_without = table.rows.iter().any(|row| row.clients.is_none() && row.system == "oha");
    let hint = "oha does not print them: name them with --clients";
    ensure(!is_without, "the summary does not say how many clients there were", hint)?;
    Ok(table)
}

/// The rows of a summary; `None` where the text is none that is known. What a tool does not print is left out: oha the clients.
fn rows(text: &str) -> Option<Vec<PublishedRow>> {
    if let Ok(json) = serde_json::from_str::<Value>(text) {
        return of_json(&json);
    }
    // Several runs may stand in one file.
    let runs = |begin: &str, read: fn(&str) -> PublishedRow| -> Vec<PublishedRow> {
        let starts: Vec<usize> = text.match_indices(begin).map(|(at, _)| at).collect();
        // The first line may be cut off.
        let first = starts.is_empty().then_some(0);
        let ends: Vec<usize> = first.into_iter().chain(starts).chain([text.len()]).collect();
        ends.windows(2).map(|pair| read(&text[pair[0]..pair[1]])).collect()
    };
    let has = |words: &str| text.contains(words);
    match () {
        () if has("Requests/sec:") && has(" connections") => Some(runs("Running ", of_wrk)),
        () if is_k6(text) => Some(vec![of_k6(text)]),
        () if has("Requests/sec:") && has("Success rate:") => Some(runs("Summary:", of_oha)),
        () => None,
    }
}

/// Whether it is what k6 prints: a table may have such a column, too.
fn is_k6(text: &str) -> bool {
    words(text, K6_REQUESTS).is_some_and(|words| words.get(1).is_some_and(|rate| rate.ends_with("/s")))
}

/// The words of the first line that begins with `name` and has more, without dots and colons between. k6 names thresholds before figures, also those of a part: `http_reqs{scenario:a}`.
fn words<'t>(text: &'t str, name: &str) -> Option<Vec<&'t str>> {
    let named = text.lines().filter_map(|line| line.trim_start_matches(['✓', '✗', ' ']).strip_prefix(name));
    let rest = named
        .map(|rest| rest.trim_start_matches(['.', ':', ' ']))
        .find(|rest| !rest.is_empty() && !rest.starts_with('{'))?;
    Some(rest.split_ascii_whitespace().collect())
}

fn of_wrk(text: &str) -> PublishedRow {
    let mut row = PublishedRow { system: "wrk".to_owned(), ..PublishedRow::default() };
    let connections = text.lines().find(|line| line.contains(" connections"));
    row.clients = connections.and_then(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        words[words.iter().position(|word| word.starts_with("connections"))?.checked_sub(1)?].parse().ok()
    });
    let first = |name: &str| words(text, name).and_then(|words| words.first().copied());
    row.latency_ms = first("Latency").and_then(|word| with_unit(word, "ms"));
    row.throughput_rps = first("Requests/sec").and_then(Figure::parse);
    row.p99_ms = first("99%").and_then(|word| with_unit(word, "ms"));
    let failed = first("Non-2xx or 3xx responses").and_then(|word| word.parse::<f64>().ok());
    let all = text.lines().find_map(|line| line.split_once(" requests in ")?.0.trim().parse::<f64>().ok());
    row.success_share =
        failed.zip(all).filter(|(_, all)| *all > 0.0).map(|(failed, all)| share(1.0 - failed / all));
    row
}

fn of_k6(text: &str) -> PublishedRow {
    let mut row = PublishedRow { system: "k6".to_owned(), ..PublishedRow::default() };
    let named =
        |name: &str, part: &str| words(text, name)?.into_iter().find_map(|word| word.strip_prefix(part));
    row.latency_ms = named("http_req_duration", "avg=").and_then(|word| with_unit(word, "ms"));
    row.p50_ms = named("http_req_duration", "med=").and_then(|word| with_unit(word, "ms"));
    row.p99_ms = named("http_req_duration", "p(99)=").and_then(|word| with_unit(word, "ms"));
    let rate = words(text, K6_REQUESTS).and_then(|words| words.get(1).copied());
    row.throughput_rps = rate.and_then(|rate| Figure::parse(rate.strip_suffix("/s")?));
    // Where the load has stages the number of clients is no constant, and the law says nothing of the mean.
    let ends = ["min=", "max="].map(|end| named("vus", end).and_then(|count| count.parse::<u32>().ok()));
    let looping: Vec<&str> =
        text.lines().filter_map(|line| Some(line.split_once(" looping VUs for ")?.0)).collect();
    let looping = match looping[..] {
        [of] if !of.contains("Up to ") => of.rsplit([' ', ':']).next().and_then(|count| count.parse().ok()),
        _ => None,
    };
    row.clients = looping.or(ends[0].filter(|least| ends[1] == Some(*least)));
    let failed =
        words(text, "http_req_failed").and_then(|words| with_unit(words.first()?.strip_suffix('%')?, ""));
    row.success_share = failed.map(|failed| share(1.0 - failed.value / 100.0));
    row
}

fn of_oha(text: &str) -> PublishedRow {
    let mut row = PublishedRow { system: "oha".to_owned(), ..PublishedRow::default() };
    let first = |name: &str| words(text, name).and_then(|words| words.first().copied());
    let latency = words(text, "Average").map(|words| words[..words.len().min(2)].concat());
    row.latency_ms = latency.and_then(|text| with_unit(&text.replace("secs", "s").replace("sec", "s"), "s"));
    row.throughput_rps = first("Requests/sec").and_then(Figure::parse);
    let success = first("Success rate").and_then(|word| Figure::parse(word.strip_suffix('%')?));
    row.success_share = success.map(|percent| share(percent.value / 100.0));
    row
}

fn of_json(json: &Value) -> Option<Vec<PublishedRow>> {
    if let Value::Array(all) = json {
        let is_known = |of: &Value| of.get("rps").is_some() && of.get("connections").is_some();
        return (!all.is_empty() && all.iter().all(is_known)).then(|| all.iter().map(of_table).collect());
    }
    let figure = |value: &Value| Figure::parse(&value.as_f64()?.to_string());
    let mut row = PublishedRow::default();
    if let Some(metrics) = json.get("metrics").filter(|metrics| metrics.get(K6_REQUESTS).is_some()) {
        row.system = "k6".to_owned();
        // The summary of a script has them one level deeper.
        let of = |metric: &str, figure: &str| {
            let metric = metrics.get(metric)?;
            metric.get("values").unwrap_or(metric).get(figure)
        };
        row.throughput_rps = of(K6_REQUESTS, "rate").and_then(figure);
        row.latency_ms = of("http_req_duration", "avg").and_then(figure);
        row.p50_ms = of("http_req_duration", "med").and_then(figure);
        row.p99_ms = of("http_req_duration", "p(99)").and_then(figure);
        let ends = ["min", "max"].map(|end| of("vus", end).and_then(Value::as_u64));
        row.clients = ends[0].filter(|least| ends[1] == Some(*least)).and_then(|count| count.try_into().ok());
        let failed = of("http_req_failed", "value").or(of("http_req_failed", "rate")).and_then(Value::as_f64);
        row.success_share = failed.map(|failed| share(1.0 - failed));
        return Some(vec![row]);
    }
    let summary = json.get("summary").filter(|summary| summary.get("requestsPerSec").is_some())?;
    row.system = "oha".to_owned();
    row.throughput_rps = summary.get("requestsPerSec").and_then(figure);
    let secs = summary.get("average").and_then(figure);
    row.latency_ms = secs.map(|secs| secs.shifted(3));
    row.success_share = summary.get("successRate").and_then(Value::as_f64).map(share);
    Some(vec![row])
}

/// A row of a table in JSON, with units in its latencies.
fn of_table(json: &Value) -> PublishedRow {
    let text = |name: &str| json.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let count = |name: &str| json.get(name).and_then(Value::as_f64);
    let statuses: Vec<f64> =
        ["2xx", "3xx", "4xx", "5xx"].iter().filter_map(|of| count(&format!("status_{of}"))).collect();
    let all: f64 = statuses.iter().sum();
    PublishedRow {
        system: text("framework"),
        workload: text("framework"),
        clients: count("connections").map(|count| count as u32).filter(|count| *count > 0),
        throughput_rps: count("rps").and_then(|rps| Figure::parse(&rps.to_string())),
        latency_ms: with_unit(&text("avg_latency"), ""),
        p99_ms: with_unit(&text("p99_latency"), ""),
        success_share: (statuses.len() == 4 && all > 0.0).then(|| share((statuses[0] + statuses[1]) / all)),
        note: text("language"),
        ..PublishedRow::default()
    }
}

/// A share of requests, to the fourth digit.
fn share(of: f64) -> Figure {
    Figure { value: (of * 1e4).round() / 1e4, decimals: 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let figure = |of: Option<Figure>| of.map_or("-".to_owned(), |of| of.to_string());
        let row = |row: PublishedRow| {
            let clients = row.clients.map_or("-".to_owned(), |clients| clients.to_string());
            let figures = [row.throughput_rps, row.latency_ms, row.p99_ms, row.success_share].map(figure);
            format!("{} {clients} {}", row.system, figures.join(" "))
        };
        rows(text).unwrap().into_iter().map(row).collect()
    }

    #[test]
    fn the_summary_of_wrk_is_read_also_several_in_one_file() {
        let wrk = "Running 10s test @ http://127.0.0.1:8080/\n  2 threads and 16 connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
             Latency   312.50us  100.00us   5.00ms   80.00%\n    Req/Sec    25.60k     1.00k   30.00k    70.00%\n  Latency Distribution\n     \
             50%  300.00us\n     99%    1.20ms\n  512000 requests in 10.00s, 60.00MB read\n  Non-2xx or 3xx responses: 5120\nRequests/sec:  51200.00\n";
        assert_eq!(shown(wrk), ["wrk 16 51200.00 0.31250 1.20 0.9900"]);
        assert_eq!(shown(&wrk.repeat(2)).len(), 2);
    }

    #[test]
    fn the_summary_of_k6_is_read_as_text_and_as_json() {
        let text = "  scenarios: (100.00%) 1 scenario, 30 max VUs, 1m30s max duration (incl. graceful stop):\n           \
             * default: 30 looping VUs for 1m0s (gracefulStop: 30s)\n     ✓ http_req_duration..............: avg=450.23µs min=0s med=505.7µs \
             max=26.5ms p(90)=1ms p(95)=1.09ms\n       { expected_response:true }...: avg=1ms\n     http_req_failed................: 0.25% ✓ 0\n     \
             http_reqs......................: 3012451 50206.965562/s\n";
        assert_eq!(shown(text), ["k6 30 50206.965562 0.45023 - 0.9975"]);
        let thresholds = "  █ THRESHOLDS\n\n    http_req_duration{expected_response:true}\n    ✓ 'p(95)<200' p(95)=1.09ms\n\n    http_req_failed\n    \
             ✓ 'rate<0.01' rate=0.25%\n\n    http_reqs\n    ✓ 'rate>100' rate=50206.965562/s\n\n  █ TOTAL RESULTS\n\n";
        assert_eq!(shown(&format!("{thresholds}{text}")), shown(text));
        let stages =
            "http_req_duration....: avg=2ms p(99)=4ms\nhttp_reqs....: 10 5/s\nvus......: 3 min=1 max=5\n";
        assert_eq!(shown(stages), ["k6 - 5 2 4 -"], "their number is no constant");
        let up_to =
            format!("  * default: Up to 5 looping VUs for 1m0s over 2 stages (gracefulStop: 30s)\n{stages}");
        assert_eq!(shown(&up_to), ["k6 - 5 2 4 -"]);
        let slow = "http_req_duration....: avg=1m2.3s p(99)=1h0m2s\nhttp_reqs....: 10 5/s\n";
        assert_eq!(shown(slow), ["k6 - 5 62300 3602000 -"]);
        let json = r#"{"metrics":{"http_reqs":{"count":10,"rate":100.5},"http_req_duration":{"avg":9.5,"med":9,"p(99)":20},
            "vus":{"value":1,"min":1,"max":1},"http_req_failed":{"value":0.5}}}"#;
        assert_eq!(shown(json), ["k6 1 100.5 9.5 20 0.5000"]);
    }

    #[test]
    fn the_summary_of_oha_has_no_clients() {
        let text = "Summary:\n  Success rate: 100.00%\n  Total:        48.0969 secs\n  Average:      2.3804 secs\n  Requests/sec: 20.7913\n";
        assert_eq!(shown(text), ["oha - 20.7913 2380.4 - 1.0000"]);
        let now = "Summary:\n  Success rate:\t99.00%\n  Average:\t1.2500 ms\n  Requests/sec:\t12800.0000\n";
        assert_eq!(shown(now), ["oha - 12800.0000 1.2500 - 0.9900"]);
        let json = r#"{"summary":{"successRate":1.0,"average":0.00125,"requestsPerSec":12800.5}}"#;
        assert_eq!(shown(json), ["oha - 12800.5 1.25 - 1.0000"]);
    }

    #[test]
    fn a_table_in_json_is_a_row_for_each_system() {
        let json = r#"[{"framework":"a","rps":100000,"avg_latency":"1.12ms","p99_latency":"4ms","connections":512,
            "status_2xx":99,"status_3xx":0,"status_4xx":1,"status_5xx":0}]"#;
        assert_eq!(shown(json), ["a 512 100000 1.12 4 0.9900"]);
        assert_eq!(rows("[{}]"), None);
        assert_eq!(rows("clients,throughput_rps\n1,2\n"), None);
    }
}
