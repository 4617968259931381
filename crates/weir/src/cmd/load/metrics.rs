//! The figures of a run as metrics: the text format of Prometheus, as a file or as a page while the run goes on, and OTLP.

use crate::cmd::client::{Answer, Client, Request, detail};
use kv::Error;
use kv::proto::{FORMAT, Latency, LoadEvent, LoadReport};
use load::{Plan, Target};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long a peer may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long to wait after a connection could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// No request for a page is longer.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Where a collector listens for OTLP over HTTP, and for what.
const OTLP_PORT: u16 = 4318;
const OTLP_PATH: &str = "/v1/metrics";

/// What latencies are called.
const LATENCY: (&str, &str) = ("weir_load_latency_seconds", "Latency of all attempts.");

/// Numbers with one name.
struct Family {
    name: &'static str,
    about: &'static str,
    /// In the words of UCUM, as OTLP has them.
    unit: &'static str,
    /// Each with the name and the value of its label, if it has one.
    samples: Vec<(Option<(&'static str, String)>, f64)>,
}

/// All but latencies.
fn families(report: &LoadReport) -> Vec<Family> {
    let family = |name, unit, about, samples| Family { name, about, unit, samples };
    let one = |name, unit, about, value: f64| family(name, unit, about, vec![(None, value)]);
    let counts = |counts: &BTreeMap<String, u64>, label: &'static str| {
        counts.iter().map(|(key, count)| (Some((label, key.clone())), *count as f64)).collect()
    };
    let LoadReport { statuses, errors, goodput_rps, error_ratio, window_secs, .. } = report;
    let [attempts, successes] = [report.attempts, report.successes].map(|count| count as f64);
    let mut all = vec![
        one("weir_load_requests", "{request}", "Requests completed in the window.", attempts),
        one("weir_load_successes", "{request}", "Requests that succeeded.", successes),
        one("weir_load_goodput_requests_per_second", "{request}/s", "Successes per second.", *goodput_rps),
        one("weir_load_error_ratio", "1", "Failed requests over all, 0 to 1.", *error_ratio),
        one("weir_load_window_seconds", "s", "How long was measured.", *window_secs),
    ];
    if let Some(schedule) = &report.schedule {
        let about = "Requests per second that were to be sent.";
        all.push(one("weir_load_offered_requests_per_second", "{request}/s", about, schedule.offered_rps));
    }
    let answers = counts(statuses, "status");
    all.push(family("weir_load_responses", "{response}", "Complete answers by status.", answers));
    all.push(family("weir_load_failures", "{request}", "Failed requests by class.", counts(errors, "class")));
    all
}

/// Quantiles that are known, in seconds.
fn quantiles(latency: &Latency) -> Vec<(f64, f64)> {
    let Latency { us_p50, us_p90, us_p95, us_p99, us_p999, us_max, .. } = *latency;
    let all = [(0.5, us_p50), (0.9, us_p90), (0.95, us_p95), (0.99, us_p99), (0.999, us_p999), (1.0, us_max)];
    all.into_iter().filter(|(_, us)| !us.is_nan()).map(|(quantile, us)| (quantile, us / 1e6)).collect()
}

/// The sum of all latencies, in seconds.
fn sum_secs(latency: &Latency) -> f64 {
    latency.us_mean * latency.count as f64 / 1e6
}

/// In the text format of Prometheus: for the directory of its node exporter, a push gateway, or a page.
pub(super) fn prometheus(report: &LoadReport) -> String {
    let mut text = String::new();
    let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    for Family { name, about, samples, .. } in families(report) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} gauge");
        for (label, value) in samples {
            let label = label.map(|(label, of)| format!("{{{label}=\"{}\"}}", escaped(&of)));
            let _ = writeln!(text, "{name}{} {value}", label.unwrap_or_default());
        }
    }
    let ((name, about), latency) = (LATENCY, &report.latency);
    let _ = writeln!(text, "# HELP {name} {about}\n# TYPE {name} summary");
    for (quantile, secs) in quantiles(latency) {
        let _ = writeln!(text, "{name}{{quantile=\"{quantile}\"}} {secs}");
    }
    let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", sum_secs(latency), latency.count);
    text
}

/// The figures so far, as a page for Prometheus.
pub(super) struct Page {
    text: Arc<Mutex<String>>,
    report: LoadReport,
    plan: Plan,
}

impl Page {
    /// Serves it at `address` for as long as this process runs.
    pub(super) fn serve(address: SocketAddr, plan: &Plan) -> Result<Page, Error> {
        let listener = TcpListener::bind(address).map_err(|error| {
            Error::input(format_args!("cannot listen at {address}: {error}"))
                .hint("name a free port of this machine with --prometheus-listen")
        })?;
        let report = LoadReport { format: FORMAT, ..LoadReport::default() };
        let text = Arc::new(Mutex::new(prometheus(&report)));
        let shown = Arc::clone(&text);
        thread::spawn(move || answer_all(listener.incoming(), &shown));
        Ok(Page { text, report, plan: plan.clone() })
    }

    /// Adds the seconds of the window. Percentiles are those of the last second: those of several together are not known.
    pub(super) fn hear(&mut self, event: &LoadEvent) {
        let LoadEvent::Second { second: second @ 0.., report: of, statuses } = event else { return };
        let report = &mut self.report;
        let sum_us = report.latency.us_mean * report.latency.count as f64;
        report.attempts += of.attempts;
        report.successes += of.successes;
        for (status, count) in statuses {
            *report.statuses.entry(status.clone()).or_default() += count;
        }
        report.window_secs = (second + 1) as f64;
        report.goodput_rps = report.successes as f64 / report.window_secs;
        let failed = (report.attempts - report.successes) as f64;
        report.error_ratio = failed / report.attempts.max(1) as f64;
        let since = self.plan.warmup + Duration::from_secs(second.unsigned_abs());
        let offered = self.plan.pacing.offered_rps(since, Duration::from_secs(1));
        report.schedule = offered.map(|offered_rps| kv::proto::ScheduleReport {
            offered_rps,
            ..kv::proto::ScheduleReport::default()
        });
        let sum_us = sum_us + of.latency_us_mean * of.attempts as f64;
        report.latency = Latency {
            count: report.attempts,
            us_mean: sum_us / report.attempts.max(1) as f64,
            us_p50: of.latency_us_p50,
            us_p90: f64::NAN,
            us_p95: of.latency_us_p95,
            us_p99: of.latency_us_p99,
            us_p999: f64::NAN,
            us_max: of.latency_us_max,
            ..Latency::default()
        };
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = prometheus(report);
    }
}

/// Answers each of these connections. That one could not be taken, as without a free file descriptor, is not the end.
fn answer_all(streams: impl Iterator<Item = io::Result<TcpStream>>, text: &Arc<Mutex<String>>) {
    for stream in streams {
        match stream {
            // One that sends nothing holds up no other. A client that went away asks again.
            Ok(stream) => {
                let text = Arc::clone(text);
                thread::spawn(move || drop(answer(stream, &text)));
            }
            Err(_) => thread::sleep(ACCEPT_AGAIN),
        }
    }
}

/// Answers one request.
fn answer(mut stream: TcpStream, text: &Mutex<String>) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
        let bytes = stream.read(&mut buffer)?;
        if bytes == 0 {
            return Ok(());
        }
        head.extend_from_slice(&buffer[..bytes]);
    }
    let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let (status, body) = match path.split(|byte| *byte == b'?').next() {
        Some(b"/metrics") => ("200 OK", text.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        _ => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}", body.len());
    stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n{body}").as_bytes())
}

/// Where a collector takes OTLP over HTTP.
#[derive(Clone, Debug)]
pub(super) struct Collector(Target);

impl FromStr for Collector {
    type Err = String;

    fn from_str(url: &str) -> Result<Collector, String> {
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            format!("`{url}` does not begin with http://; hint: write the address of a collector, as in http://127.0.0.1:4318")
        })?;
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // A colon inside the brackets of an IPv6 address is not the port's.
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let port = if has_port { String::new() } else { format!(":{OTLP_PORT}") };
        let server: Target = format!("http://{authority}{port}{path}").parse()?;
        if server.has_credentials() {
            return Err("the URL has a user; hint: leave out what stands before the @".to_owned());
        }
        Ok(Collector(server))
    }
}

impl Collector {
    /// Sends the figures of a run; says why if it does not take them.
    pub(super) fn send(&self, plan: &Plan, report: &LoadReport) -> Option<Error> {
        let body = otlp(plan, report, SystemTime::now()).to_string();
        let Collector(server) = self;
        let request = Request {
            method: "POST",
            target: server.path().filter(|path| *path != "/").unwrap_or(OTLP_PATH),
            fields: &[("Content-Type", "application/json")],
            body: Some(body.as_bytes()),
        };
        let why = match Client::plain(server.clone(), SILENCE_MAX).exchange(&request) {
            Err(error) => error.to_string(),
            Ok(Answer { status: 200..=299, body, .. }) => rejected(&body)?,
            Ok(Answer { status, body, .. }) => format!("it answered {status}: {}", detail(&body)),
        };
        let what = format!("cannot send metrics to {server}: {why}");
        Some(Error::new(what).hint("is this the port where a collector takes OTLP over HTTP?"))
    }
}

/// What a collector did not take although it answered 200: `partialSuccess`.
fn rejected(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let part = &answer["partialSuccess"];
    // 64-bit numbers are strings in JSON of protocol buffers; readers take both.
    let count = part["rejectedDataPoints"].as_u64();
    let count = count.or_else(|| part["rejectedDataPoints"].as_str()?.parse().ok()).unwrap_or(0);
    let why = part["errorMessage"].as_str().unwrap_or_default();
    (count > 0).then(|| format!("it rejected {count} of them: {why}"))
}

/// `ExportMetricsServiceRequest` of OTLP 1, in the JSON of protocol buffers: 64-bit numbers are strings, enumerations numbers.
fn otlp(plan: &Plan, report: &LoadReport, now: SystemTime) -> Value {
    let ns = |since: Duration| since.as_nanos().to_string();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let begun = now.saturating_sub(Duration::try_from_secs_f64(report.window_secs).unwrap_or_default());
    let (begun, now) = (ns(begun), ns(now));
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let mut metrics: Vec<Value> = Vec::new();
    for Family { name, about, unit, samples } in families(report) {
        let points = samples.into_iter().map(|(label, value)| {
            let labels: Vec<Value> = label.iter().map(|(label, of)| text(label, of)).collect();
            json!({ "startTimeUnixNano": begun, "timeUnixNano": now, "asDouble": value, "attributes": labels })
        });
        let points: Vec<Value> = points.collect();
        // A metric without data points says nothing.
        if !points.is_empty() {
            let gauge = json!({ "dataPoints": points });
            metrics.push(json!({ "name": name, "description": about, "unit": unit, "gauge": gauge }));
        }
    }
    let latency = &report.latency;
    let quantiles: Vec<Value> = (quantiles(latency).into_iter())
        .map(|(quantile, secs)| json!({ "quantile": quantile, "value": secs }))
        .collect();
    let summary = json!({
        "startTimeUnixNano": begun, "timeUnixNano": now, "count": latency.count.to_string(), "sum": sum_secs(latency), "quantileValues": quantiles,
        "attributes": [],
    });
    let (name, about) = LATENCY;
    let summary = json!({ "dataPoints": [summary] });
    metrics.push(json!({ "name": name, "description": about, "unit": "s", "summary": summary }));
    let urls: Vec<String> = plan.urls.iter().map(ToString::to_string).collect();
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        text("service.name", "weir-load"),
        text("service.version", version),
        text("url.full", &urls.join(" ")),
    ];
    json!({ "resourceMetrics": [{
        "resource": { "attributes": resource },
        "scopeMetrics": [{ "scope": { "name": "weir", "version": version }, "metrics": metrics }],
    }] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_still_served_after_a_connection_could_not_be_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let taken = listener.accept().map(|(stream, _)| stream);
        let failed = Err(io::Error::other("too many open files"));
        answer_all([failed, taken].into_iter(), &Arc::new(Mutex::new("all of it".to_owned())));
        let mut answered = String::new();
        client.read_to_string(&mut answered).unwrap();
        assert!(answered.starts_with("HTTP/1.1 200 OK\r\n") && answered.ends_with("all of it"), "{answered}");
    }
}
