//! The report in the formats of other tools: JUnit for CI, and the summary of k6.

use super::not_linearizable;
use kv::Error;
use kv::proto::{Latency, LoadReport};
use load::{Conditions, Plan};
use serde_json::{Value, json};
use std::fmt::Write;

/// A suite with a test for each condition, one that something succeeded and the server stayed (and, with conditions, that nothing is
/// left out), and one of what --check asks for.
pub(super) fn junit(plan: &Plan, conditions: Option<&Conditions>, report: &LoadReport) -> String {
    let unusable = load::nothing_succeeded(report).or_else(|| load::server_is_gone(report));
    let unusable = unusable.or_else(|| conditions.and_then(|_| load::left_out(report)));
    let mut tests = vec![("requests succeed".to_owned(), unusable.map(|why| why.to_string()))];
    tests.extend(report.linearizability.as_ref().map(|checked| {
        let failure = not_linearizable(checked);
        ("linearizability".to_owned(), failure.map(|why| why.to_string()))
    }));
    tests.extend(conditions.map(|conditions| conditions.judge(report)).unwrap_or_default());
    suite(plan, "failure", &tests, report.window_secs)
}

/// The same of a run that has no report: a test that requests succeed, with an error.
pub(super) fn junit_of_error(plan: &Plan, why: &Error) -> String {
    suite(plan, "error", &[("requests succeed".to_owned(), Some(why.to_string()))], 0.0)
}

/// A suite of these tests, each with why it is a `failure` or an `error`.
fn suite(plan: &Plan, kind: &str, tests: &[(String, Option<String>)], secs: f64) -> String {
    let count = tests.iter().filter(|(_, failure)| failure.is_some()).count();
    let (failed, errors) = if kind == "error" { (0, count) } else { (count, 0) };
    let urls: Vec<String> = plan.urls.iter().map(ToString::to_string).collect();
    let name = escaped(&format!("weir load {}", urls.join(" ")));
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuites tests=\"{}\" failures=\"{failed}\" errors=\"{errors}\" time=\"{secs:.3}\">\n  \
         <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\" errors=\"{errors}\" time=\"{secs:.3}\">\n",
        tests.len(),
        tests.len()
    );
    for (test, failure) in tests {
        // Writing to a string cannot fail, here and below.
        let _ = write!(xml, "    <testcase classname=\"weir load\" name=\"{}\"", escaped(test));
        let _ = match failure {
            None => writeln!(xml, "/>"),
            Some(why) => writeln!(xml, ">\n      <{kind} message=\"{}\"/>\n    </testcase>", escaped(why)),
        };
    }
    xml + "  </testsuite>\n</testsuites>\n"
}

fn escaped(text: &str) -> String {
    kv::escaped(&text.replace(char::is_control, " "))
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
    // As the share of errors counts: of an open loop, with those that were left without an answer.
    let unanswered = if report.is_open() { report.unanswered } else { 0 };
    let failed = attempts - successes + unanswered;
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
