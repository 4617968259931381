//! The report of `weir load` for people.

use crate::load::{self, Connect, Dialect, Plan, Verify};
use crate::proto::{AgentOutcome, Latency, LoadReport};
use crate::units::{self, Span};
use std::fmt::Write;

/// The report for people.
pub(super) fn table(plan: &Plan, report: &LoadReport) -> String {
    let mut out = String::new();
    for (name, value) in figures(plan, report) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{name:<11} {value}");
    }
    out.push('\n');
    let header = ["count", "absent", "mean", "p50", "p99", "p99.9", "max"];
    line(&mut out, "latency of", header.map(String::from));
    for operation in &report.operations {
        let name = format!("{} successes", operation.operation);
        line(&mut out, &name, cells(&operation.absent.to_string(), &operation.latency));
    }
    if report.operations.len() > 1 || report.attempts > report.successes {
        line(&mut out, "all attempts", cells("", &report.latency));
    }
    if report.latency.clipped > 0 {
        let _ =
            writeln!(out, "{} latencies are above 60 s, where the percentiles end", report.latency.clipped);
    }
    out
}

/// What there is to say besides the latencies.
fn figures<'r>(plan: &Plan, report: &'r LoadReport) -> Vec<(&'r str, String)> {
    let LoadReport { attempts, successes, clients, threads, seed, .. } = report;
    let mut figures = vec![
        ("workload", asked(plan, report)),
        (
            "load",
            format!(
                "{}, {}, window {} after {} of warm-up, seed {seed}",
                counted(*clients, "client"),
                counted(*threads, "thread"),
                Span(plan.window),
                Span(plan.warmup),
            ),
        ),
        ("goodput", format!("{} req/s", units::short(report.goodput_rps))),
        (
            "attempts",
            format!(
                "{attempts}, of which {} failed ({} %)",
                attempts - successes,
                percent(report.error_ratio)
            ),
        ),
    ];
    if !report.agents.is_empty() {
        figures.push(("agents", agents(report)));
    }
    figures.extend(report.errors.iter().map(|(class, count)| (class.as_str(), format!("{count} failed"))));
    if report.verified > 0 || plan.verify != Verify::NONE {
        figures.push(("verified", format!("{} values compared to the last byte", report.verified)));
    }
    if let Some(connect) = report.connect.filter(|_| report.connects > u64::from(*clients)) {
        let (p50, p99) = (units::micros(connect.us_p50), units::micros(connect.us_p99));
        figures.push(("connecting", format!("{} times, p50 {p50}, p99 {p99}", report.connects)));
    }
    if report.backoff_secs > 0.0 {
        figures.push(("back-off", format!("{:.2} s over all clients", report.backoff_secs)));
    }
    if let Some(residual) = load::little_residual(report) {
        // Rounded first, and zero added, so that no figure reads −0.00.
        let residual = (residual * 1e4).round() / 100.0 + 0.0;
        let law = match report.schedule {
            None => "req/s × (latency + back-off) against the number of clients; true figures give about 0",
            Some(_) => "req/s × service time against the requests in flight; true figures give about 0",
        };
        figures.push(("Little", format!("{residual:+.2} % ({law})")));
        let cpu_us = units::micros(report.cpu_secs * 1e6 / *attempts as f64);
        let busy = percent(report.cpu_secs / report.window_secs / f64::from(*threads));
        figures.push(("generator", format!("{cpu_us} of CPU per request; its threads were {busy} % busy")));
        if let Some(why) = load::generator_limit(report) {
            let least = units::short(report.goodput_rps);
            let remedy = "give it cores of its own, more --threads, or --agents";
            figures.push((
                "",
                format!("generator-limited: the target can do at least {least} req/s ({why}; {remedy})"),
            ));
        }
    }
    figures
}

/// Who drove the clients, and whose are missing.
fn agents(report: &LoadReport) -> String {
    let all = report.agents.len();
    let lost: Vec<String> = (report.agents.iter())
        .filter_map(|agent| match &agent.outcome {
            AgentOutcome::Lost(why) => Some(format!("{}: {why}", agent.address)),
            AgentOutcome::Done => None,
        })
        .collect();
    if lost.is_empty() {
        let shares: Vec<String> =
            report.agents.iter().map(|agent| format!("{} {}", agent.address, agent.clients)).collect();
        let spread = units::micros(report.start_spread_us.unwrap_or_default());
        return format!(
            "{all} with these clients: {}; each began within {spread} of the instant told",
            shares.join(", ")
        );
    }
    format!(
        "{} of {all} lost: {} of {} clients, {}: the figures are of the others only",
        lost.len(),
        report.clients_lost,
        report.clients + report.clients_lost,
        lost.join(", "),
    )
}

/// The workload, and what was stated in its place.
fn asked(plan: &Plan, report: &LoadReport) -> String {
    let mut text = format!("{} on {}", report.workload, plan.target);
    if plan.names_keys() {
        let _ = write!(text, ", {} keys of {} B", plan.keys, plan.value_size);
    }
    if plan.distribution.is_some() {
        let _ = write!(text, ", {}", report.distribution);
    }
    if plan.mix.is_some() {
        for (operation, share) in &report.mix {
            let _ = write!(text, ", {} % {operation}", percent(*share));
        }
    }
    if report.dialect != Dialect::usual().name {
        let _ = write!(text, ", dialect {}", report.dialect);
    }
    if plan.connect == Connect::Each {
        text.push_str(", a connection for each request");
    }
    text
}

fn cells(absent: &str, latency: &Latency) -> [String; 7] {
    let shown = |us: f64| if latency.count == 0 { "–".to_owned() } else { units::micros(us) };
    [
        latency.count.to_string(),
        absent.to_owned(),
        shown(latency.us_mean),
        shown(latency.us_p50),
        shown(latency.us_p99),
        shown(latency.us_p999),
        shown(latency.us_max),
    ]
}

fn line(out: &mut String, name: &str, cells: [String; 7]) {
    let _ = write!(out, "{name:<16}");
    for cell in cells {
        let _ = write!(out, " {cell:>10}");
    }
    out.push('\n');
}

fn counted(count: u32, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A share as per cent, with enough digits to tell few from none.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".into(),
        percent if percent < 0.01 => "<0.01".into(),
        percent => units::short(percent),
    }
}
