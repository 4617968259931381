//! The report in the formats of other tools: JUnit for CI, the summary of k6, text for Prometheus.

use kv::proto::{Latency, LoadReport};
use load::{Conditions, Plan};
use serde_json::{Value, json};
use std::fmt::Write;

/// A suite with a test for each condition, and one that something succeeded and the server stayed.
pub(super) fn junit(plan: &Plan, conditions: Option<&Conditions>, report: &LoadReport) -> String {
    let unusable = load::nothing_succeeded(report).or_else(|| load::server_is_gone(report));
    let mut tests = vec![("requests succeed".to_owned(), unusable.map(|why| why.to_string()))];
    tests.extend(conditions.map(|conditions| conditions.judge(report)).unwrap_or_default());
    let failed = tests.iter().filter(|(_, failure)| failure.is_some()).count();
    let urls: Vec<String> = plan.urls.iter().map(ToString::to_string).collect();
    let (name, time) = (escaped(&format!("weir load {}", urls.join(" "))), report.window_secs);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites tests=\"{}\" failures=\"{failed}\" time=\"{time:.3}\">\n  \
         <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" errors=\"0\" time=\"{time:.3}\">\n",
        tests.len(),
        tests.len()
    );
    for (test, failure) in &tests {
        // Writing to a string cannot fail, here and below.
        let _ = write!(xml, "    <testcase classname=\"weir load\" name=\"{}\"", escaped(test));
        let _ = match failure {
            None => writeln!(xml, "/>"),
            Some(why) => writeln!(xml, ">\n      <failure message=\"{}\"/>\n    </testcase>", escaped(why)),
        };
    }
    xml + "  </testsuite>\n</testsuites>\n"
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// What `k6 run --summary-export` writes, as far as it was measured. Times are milliseconds.
pub(super) fn k6_summary(report: &LoadReport) -> Value {
    let LoadReport { attempts, successes, window_secs, clients, .. } = report;
    let trend = |latency: &Latency| {
        let ms = |us: f64| us / 1e3;
        json!({
            "avg": ms(latency.us_mean), "min": ms(latency.us_min), "med": ms(latency.us_p50), "max": ms(latency.us_max),
            "p(90)": ms(latency.us_p90), "p(95)": ms(latency.us_p95), "p(99)": ms(latency.us_p99),
        })
    };
    let rate = *attempts as f64 / window_secs;
    let failed = attempts - successes;
    let mut metrics = json!({
        "http_reqs": { "count": attempts, "rate": rate },
        "iterations": { "count": attempts, "rate": rate },
        "http_req_duration": trend(report.service.as_ref().unwrap_or(&report.latency)),
        "iteration_duration": trend(&report.latency),
        // Of k6, passes are the requests for which it is true that they failed.
        "http_req_failed": { "passes": failed, "fails": successes, "value": report.error_ratio },
        "checks": { "passes": successes, "fails": failed, "value": 1.0 - report.error_ratio },
        "vus": { "value": clients, "min": clients, "max": clients },
        "vus_max": { "value": clients, "min": clients, "max": clients },
    });
    if let Some(connect) = &report.connect {
        metrics["http_req_connecting"] = trend(connect);
    }
    json!({ "metrics": metrics, "root_group": { "name": "", "path": "", "groups": {}, "checks": {} } })
}

/// Metrics in the text format of Prometheus: for the directory of its node exporter, or a push gateway.
pub(super) fn prometheus(report: &LoadReport) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, f64)]| {
        let _ = writeln!(text, "# HELP weir_load_{name} {help}\n# TYPE weir_load_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "weir_load_{name}{labels} {value}");
        }
    };
    let one = |value: f64| [(String::new(), value)];
    let label = |name: &str, value: &str| {
        format!("{{{name}=\"{}\"}}", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
    };
    family("requests", "gauge", "Requests completed in the window.", &one(report.attempts as f64));
    family("successes", "gauge", "Requests that succeeded.", &one(report.successes as f64));
    family("goodput_requests_per_second", "gauge", "Successes per second.", &one(report.goodput_rps));
    family("error_ratio", "gauge", "Failed requests over all, 0 to 1.", &one(report.error_ratio));
    family("window_seconds", "gauge", "How long was measured.", &one(report.window_secs));
    if let Some(schedule) = &report.schedule {
        let help = "Requests per second that were to be sent.";
        family("offered_requests_per_second", "gauge", help, &one(schedule.offered_rps));
    }
    let counts = |counts: &std::collections::BTreeMap<String, u64>, name: &str| -> Vec<(String, f64)> {
        counts.iter().map(|(key, count)| (label(name, key), *count as f64)).collect()
    };
    family("responses", "gauge", "Complete answers by status.", &counts(&report.statuses, "status"));
    family("failures", "gauge", "Failed requests by class.", &counts(&report.errors, "class"));
    let LoadReport { latency, .. } = report;
    let quantiles = [
        ("0.5", latency.us_p50),
        ("0.9", latency.us_p90),
        ("0.95", latency.us_p95),
        ("0.99", latency.us_p99),
        ("0.999", latency.us_p999),
        ("1", latency.us_max),
    ];
    let quantiles = quantiles.map(|(quantile, us)| (label("quantile", quantile), us / 1e6));
    let _ = writeln!(text, "# HELP weir_load_latency_seconds Latency of all attempts.");
    let _ = writeln!(text, "# TYPE weir_load_latency_seconds summary");
    for (labels, value) in quantiles {
        let _ = writeln!(text, "weir_load_latency_seconds{labels} {value}");
    }
    let sum = latency.us_mean * latency.count as f64 / 1e6;
    let _ = writeln!(
        text,
        "weir_load_latency_seconds_sum {sum}\nweir_load_latency_seconds_count {}",
        latency.count
    );
    text
}
