//! What packaging/ has for Prometheus and Grafana, with the real programs: metrics, alert rules, and the queries of the dashboard.

use crate::support::{Load, Server, free_address, postgres, until};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const RULES: &str = "../../packaging/prometheus/weir-rules.yml";
const RULE_TESTS: &str = "../../packaging/prometheus/weir-rules-test.yml";
const GRAFANA: &str = "../../packaging/grafana/weir.json";

/// Runs promtool with `input`; what it says if it is not content.
fn promtool(args: &[&str], input: &[u8]) -> Result<(), String> {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().unwrap_or_else(|error| panic!("promtool: {error}; run scripts/setup.sh prometheus"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    // Of metrics it says what is unusual, and calls only some of that an error.
    let is_content = output.status.success() && (args[1] != "metrics" || said.is_empty());
    if is_content { Ok(()) } else { Err(String::from_utf8_lossy(&said).into_owned()) }
}

/// A Prometheus that scrapes one server every second, killed when dropped.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one with these rules; returns when it answers.
    fn start(target: SocketAddr, rules: &str) -> Prometheus {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("rules.yml"), rules).unwrap();
        let config = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [rules.yml]\n\
             scrape_configs: [{{job_name: weir, static_configs: [{{targets: ['{target}']}}]}}]\n"
        );
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        // It does not say which port it took, so it is given a free one. If another process is quicker, it ends.
        loop {
            let address = free_address();
            let at = |name: &str| folder.path().join(name).display().to_string();
            let mut child = Command::new("prometheus")
                .arg(format!("--config.file={}", at("prometheus.yml")))
                .arg(format!("--storage.tsdb.path={}", at("data")))
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| panic!("prometheus: {error}; run scripts/setup.sh prometheus"));
            let mut has_ended = false;
            until("Prometheus answers", || {
                has_ended = child.try_wait().unwrap().is_some();
                has_ended || get(address, "/-/ready").is_ok_and(|(status, _)| status == 200)
            });
            if !has_ended {
                return Prometheus { child, address, _folder: folder };
            }
        }
    }

    /// What its HTTP API answers.
    fn ask(&self, path: &str) -> Value {
        let (status, body) = get(self.address, path).unwrap();
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((status, &answer["status"]), (200, &"success".into()), "{path}: {answer}");
        answer["data"].clone()
    }

    /// The values of a query, now.
    fn query(&self, query: &str) -> Vec<f64> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let data = self.ask(&format!("/api/v1/query?query={encoded}"));
        let rows = data["result"].as_array().unwrap().iter();
        rows.map(|row| row["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }

    /// Whether an alert of this name fires.
    fn fires(&self, name: &str) -> bool {
        let alerts = self.ask("/api/v1/alerts");
        let is_it = |alert: &Value| alert["labels"]["alertname"] == name && alert["state"] == "firing";
        alerts["alerts"].as_array().unwrap().iter().any(is_it)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A GET by HTTP/1.0, so that the body ends with the connection: status and body.
fn get(address: SocketAddr, path: &str) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = memchr::memmem::find(&answer, b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.get(9..12).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    Ok((status, answer.split_off(end + 4)))
}

/// The queries of the Grafana dashboard, by the titles of their panels, as Grafana sends them.
fn grafana_queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(GRAFANA).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| {
        panel["targets"].as_array().unwrap().iter().map(|target| {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "4s");
            let query = query.replace("$job", "weir").replace("$instance", ".*");
            assert!(!query.contains('$'), "{query}");
            (panel["title"].as_str().unwrap().to_owned(), query)
        })
    });
    queries.collect()
}

#[test]
fn the_alert_rules_do_what_their_tests_say_and_the_docs_list_them() {
    promtool(&["check", "rules", RULES], b"").unwrap();
    promtool(&["test", "rules", RULE_TESTS], b"").unwrap();
    let rules = fs::read_to_string(RULES).unwrap();
    let tests = fs::read_to_string(RULE_TESTS).unwrap();
    let docs = fs::read_to_string("../../docs/monitoring.md").unwrap();
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 10);
    for name in names {
        assert!(tests.contains(name), "no test of {name}");
        assert!(docs.contains(&format!("| `{name}` |")), "docs/monitoring.md lacks {name}");
    }
    assert!(Path::new(GRAFANA).exists() && grafana_queries().len() >= 20);
}

#[test]
fn a_real_prometheus_sees_the_server_and_alerts_when_its_store_is_away() {
    let postgres = postgres();
    let server = Server::start(&postgres.url(), &["--shadow-policies", "fifo"]);
    let flags = ["--clients", "2", "--keys", "100", "--mix", "get=80,put=20", "--rate", "500"];
    let _load = Load::start(&server, &flags);
    // Rules as they are, but for how long something has to last.
    let rules = fs::read_to_string(RULES).unwrap();
    let rules: Vec<&str> = rules.lines().filter(|line| !line.trim().starts_with("for: ")).collect();
    let prometheus = Prometheus::start(server.address, &rules.join("\n"));
    until("a rate", || {
        prometheus.query("sum(rate(weir_http_requests_total[4s]))").first().is_some_and(|rate| *rate > 300.0)
    });
    for (panel, query) in grafana_queries() {
        until(&format!("{panel}: {query} returns data"), || {
            prometheus.query(&query).iter().any(|value| value.is_finite())
        });
    }
    promtool(&["check", "metrics"], &server.client().get("/metrics").body).unwrap();
    assert!(!prometheus.fires("WeirStoreDown"));
    drop(postgres);
    until("an alert", || prometheus.fires("WeirStoreDown"));
}

#[test]
fn a_real_prometheus_scrapes_a_load_while_it_runs() {
    let server = Server::start("memory:", &[]);
    let page = free_address();
    let listen = format!("--prometheus-listen={page}");
    let _load = Load::start(&server, &["--clients=2", "--keys=100", "--rate=200", &listen]);
    until("a page", || get(page, "/metrics").is_ok_and(|(status, _)| status == 200));
    assert_eq!(get(page, "/").unwrap().0, 404);
    let prometheus = Prometheus::start(page, "groups: []");
    for (query, least) in [
        ("weir_load_requests", 100.0),
        ("rate(weir_load_requests[4s])", 50.0),
        ("weir_load_successes", 100.0),
        ("weir_load_goodput_requests_per_second", 50.0),
        ("weir_load_offered_requests_per_second", 200.0),
        ("weir_load_responses{status=\"200\"}", 100.0),
        ("weir_load_window_seconds", 1.0),
        ("weir_load_latency_seconds_count", 100.0),
        ("weir_load_latency_seconds{quantile=\"0.99\"}", 1e-6),
    ] {
        until(query, || prometheus.query(query).iter().any(|value| *value >= least));
    }
    assert_eq!(prometheus.query("weir_load_error_ratio"), [0.0]);
    promtool(&["check", "metrics"], &get(page, "/metrics").unwrap().1).unwrap();
}
