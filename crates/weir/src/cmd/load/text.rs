//! The report of `weir load` for people.

use crate::cmd::counted;
use kv::proto::{FailureExample, Latency, LinearizabilityReport, LoadReport, ScheduleReport};
use kv::units::{self, Span};
use load::{self, Connect, Pacing, Plan, Think, Verify};
use std::fmt::Write;

/// The report for people.
pub(super) fn table(plan: &Plan, report: &LoadReport) -> String {
    let mut out = String::new();
    let figures = figures(plan, report);
    // Some classes of errors have long names.
    let width = figures.iter().map(|(name, _)| name.len()).fold(11, usize::max);
    for (name, value) in figures {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{name:<width$} {value}");
    }
    out.push('\n');
    let header = ["count", "absent", "mean", "p50", "p95", "p99", "p99.9", "max"];
    // Only reads of keys have such answers.
    let is_shown = |column: usize| column != 1 || plan.is_key_value();
    // From two instants in an open loop, from one in a closed one.
    let title = if report.service.is_some() { "from intended start" } else { "latency of" };
    let mut rows = vec![(title.to_owned(), header.map(String::from))];
    for operation in &report.operations {
        let name = format!("{} successes", operation.operation);
        rows.push((name, cells(&operation.absent.to_string(), &operation.latency)));
    }
    if report.operations.len() > 1 || report.latency.count > report.successes {
        rows.push(("all attempts".into(), cells("", &report.latency)));
    }
    if let Some(service) = &report.service {
        rows.push(("service, from the send".into(), cells("", service)));
    }
    if let Some(first_byte) = report.first_byte.filter(|_| report.attempts > 0) {
        // In a closed loop from where the latency begins.
        let label = if report.is_open() { "first byte, from the send" } else { "first byte" };
        rows.push((label.into(), cells("", &first_byte)));
    }
    let width = rows.iter().map(|(name, _)| name.chars().count()).fold(16, usize::max);
    for (name, cells) in rows {
        let cells = cells.iter().enumerate().filter(|(column, _)| is_shown(*column));
        let cells: String = cells.map(|(_, cell)| format!(" {cell:>10}")).collect();
        let _ = writeln!(out, "{name:<width$}{cells}");
    }
    if report.latency.clipped > 0 {
        let _ =
            writeln!(out, "{} latencies are above 60 s, where the percentiles end", report.latency.clipped);
    }
    if let Some(example) = most_frequent(report) {
        let _ = write!(out, "\n{}", example_text(example));
    }
    // Of a server that went away the error says more.
    let is_there = load::server_is_gone(report).is_none();
    if let Some(schedule) = report.schedule.as_ref().filter(|schedule| schedule.over_capacity && is_there) {
        let _ = write!(out, "\n{}", over_capacity(schedule, report));
    }
    if let Some(checked) = &report.linearizability {
        let _ = write!(out, "\n{}", linearizability(checked));
    }
    out
}

/// One request of the class that failed most often.
fn most_frequent(report: &LoadReport) -> Option<&FailureExample> {
    let count = |example: &&FailureExample| report.errors.get(&example.class).copied().unwrap_or_default();
    report.failures.iter().filter(|example| count(example) > 0).max_by_key(count)
}

/// A request that failed: what was sent, expected and received.
fn example_text(example: &FailureExample) -> String {
    /// Lines of a message that are shown, and signs of each.
    const LINES_MAX: usize = 12;
    const SIGNS_MAX: usize = 120;
    let FailureExample { class, request, status, expected, received } = example;
    let quoted = |text: &str, sign: char| -> String {
        let visible = |c: char| if c.is_control() { '.' } else { c };
        let line = |line: &str| {
            let text: String = line.trim_end_matches('\r').chars().map(visible).take(SIGNS_MAX).collect();
            format!("  {sign} {text}").trim_end().to_owned() + "\n"
        };
        text.split('\n').take(LINES_MAX).map(line).collect()
    };
    let got = match (received.is_empty(), status) {
        (true, 0) => "received nothing".to_owned(),
        (_, 0) if class == "malformed" || class == "wrong_length" => "received this".to_owned(),
        (_, 0) => "received no complete answer".to_owned(),
        (_, status) => format!("received status {status}"),
    };
    let received = if received.is_empty() { String::new() } else { quoted(received.trim_end(), '<') };
    let expected: String = expected.chars().take(SIGNS_MAX).collect();
    format!("example of {class}: expected {expected}, {got}\n{}{received}", quoted(request.trim_end(), '>'))
}

/// The warning for a queue that grows, and what to do.
fn over_capacity(schedule: &ScheduleReport, report: &LoadReport) -> String {
    let ScheduleReport { offered_rps, behind_secs_at_start, behind_secs_at_end, .. } = schedule;
    let remedy = match load::generator_limit(report) {
        Some(_) => {
            "The generator was at its own limit: give it more processor time to see what the server can do."
        }
        None => {
            "Offer less with --rate, or use more --clients if the server can take more\n\
             connections; without --rate the server's capacity is measured."
        }
    };
    format!(
        "warning: {} req/s were offered and {} succeeded. The longest waiting request was due {} ago when the\n\
         window began and {} ago when it ended: latency from the intended start is mostly time\n\
         in a queue that grows during the whole run; it says nothing about the server.\n{remedy}\n",
        units::short(*offered_rps),
        units::short(report.goodput_rps),
        units::micros(behind_secs_at_start * 1e6),
        units::micros(behind_secs_at_end * 1e6),
    )
}

/// What was checked, and the operations that show a violation.
fn linearizability(report: &LinearizabilityReport) -> String {
    let LinearizabilityReport { operations, keys, violations, not_decided, key, history, .. } = report;
    let (operations, keys) = (units::short_count(*operations), counted(*keys, "key"));
    let mut text = format!("linearizability: {operations} operations on {keys}: ");
    text += &match violations {
        0 => "no violation".to_owned(),
        _ => format!("violated on {}", counted(*violations, "key")),
    };
    if *not_decided > 0 {
        let _ = write!(text, "; {} not decided", counted(*not_decided, "key"));
    }
    if report.unread > 0 {
        let _ = write!(text, "; {} not read at the end", counted(report.unread, "key"));
    }
    let [done, failed, not_applied, unknown] =
        [report.done, report.precondition_failed, report.not_applied, report.unknown].map(units::short_count);
    let _ = write!(
        text,
        "\n  {done} took effect, {failed} preconditions failed, {not_applied} took no effect, {unknown} unknown\n"
    );
    if let Some(key) = key {
        let _ = writeln!(text, "\nNo order of these operations on key {key} explains their answers.");
        text += "Times are since the first operation. Value 3.17 is that of write 17 of client 3.\n";
        history.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    text
}

/// How much of the latencies may be the generator's delay before that is said.
const DELAY_MAX: f64 = 0.01;

/// The lines above the latencies.
fn figures<'r>(plan: &Plan, report: &'r LoadReport) -> Vec<(&'r str, String)> {
    let LoadReport { attempts, successes, clients, threads, seed, .. } = report;
    let mut figures = Vec::new();
    let mut add = |name: &'r str, text: String| figures.push((name, text));
    add(if plan.is_key_value() { "workload" } else { "request" }, workload_text(plan, report));
    let (driven, driving) = (counted((*clients).into(), "client"), counted((*threads).into(), "thread"));
    let (window, warmup) = (Span(plan.window), Span(plan.warmup));
    // It may have been ended before its time.
    let is_cut = report.window_secs < 0.99 * window.secs();
    let window = if is_cut { format!("{:.1} s of {window}", report.window_secs) } else { window.to_string() };
    add("load", format!("{driven}, {driving}, window {window} after {warmup} of warm-up, seed {seed}"));
    // A closed loop without think time is the default.
    let paced = plan.pacing != Pacing::default();
    if paced {
        add("pacing", report.pacing.clone());
    }
    add("goodput", format!("{} req/s", units::short(report.goodput_rps)));
    let failed = attempts - successes;
    let share = percent(failed as f64 / (*attempts).max(1) as f64);
    add("attempts", format!("{attempts}, of which {failed} failed ({share} %)"));
    if !report.workers.is_empty() {
        add("workers", workers(report));
    }
    let statuses = report.statuses.iter().map(|(status, count)| format!("{status} × {count}"));
    let statuses: Vec<String> = statuses.collect();
    if !plan.is_key_value() && !statuses.is_empty() {
        add("statuses", statuses.join(", "));
    }
    // One of a hundred is more than a server ends that stops or starts anew.
    let is_frequent = |count: u64| *successes > 0 && plan.connect == Connect::Once && count * 100 > *attempts;
    for (class, count) in &report.errors {
        let hint = match class.as_str() {
            "reset" if is_frequent(*count) => {
                "; if the server ends connections after an answer, use --connect each"
            }
            _ => "",
        };
        add(class, format!("{count} failed{hint}"));
    }
    if report.verified > 0 || plan.verify != Verify::NONE {
        add("verified", format!("{} values compared to the last byte", report.verified));
    }
    if let Some(connect) = report.connect.filter(|_| report.connects > u64::from(*clients)) {
        let (p50, p99) = (units::micros(connect.us_p50), units::micros(connect.us_p99));
        add("connecting", format!("{} times, p50 {p50}, p99 {p99}", report.connects));
    }
    let thinks = plan.pacing.think != Think::default();
    for (name, secs, is_said) in
        [("back-off", report.backoff_secs, true), ("think", report.think_secs, thinks)]
    {
        if is_said && secs > 0.0 {
            add(name, format!("{secs:.2} s over all clients"));
        }
    }
    if let Some(schedule) = &report.schedule {
        add("schedule", schedule_text(schedule, &report.latency));
        if schedule.unfinished * 100 > schedule.due {
            let text = "requests were due and had not ended when the window did; their age is in the latency";
            add("unfinished", format!("{} {text}", schedule.unfinished));
        }
        if schedule.waited > 0 {
            let mean = units::micros(schedule.waited_secs * 1e6 / schedule.waited as f64);
            add("waited", format!("{} requests for a connection, {mean} each on average", schedule.waited));
        }
    }
    let unanswered = report.unanswered;
    if unanswered > 0 {
        let text = match &report.schedule {
            None => {
                let text = "were left without an answer; the latencies are of the others";
                format!("{unanswered} of {clients} clients {text}")
            }
            Some(_) => format!(
                "{} left without an answer: with them, {} % failed",
                counted(unanswered, "request"),
                percent(report.error_ratio)
            ),
        };
        add("unanswered", text);
    }
    if let Some(mean) = report.in_flight_mean.filter(|_| paced) {
        let (mean, at_end) = (units::short(mean), report.in_flight_at_end);
        add("in flight", format!("{mean} on average, {at_end} at the end"));
    }
    let residual = report.little_residual().filter(|_| *attempts > 0);
    let Some(residual) = residual else { return figures };
    // Rounded first, and zero added, so that no figure reads −0.00.
    let residual = (residual * 1e4).round() / 100.0 + 0.0;
    let law = match report.schedule {
        None => "req/s × (latency + think time + back-off) and the number of clients",
        Some(_) => "req/s × service time and the requests in flight",
    };
    add("Little", format!("{residual:+.2} % (difference between {law}; should be about 0)"));
    let cpu_us = units::micros(report.cpu_secs * 1e6 / *attempts as f64);
    let busy = percent(report.cpu_secs / report.window_secs / f64::from(*threads));
    add("generator", format!("{cpu_us} of CPU per request; its threads were {busy} % busy"));
    if let Some(why) = load::generator_limit(report) {
        let remedy = "give it cores of its own, more --threads, or --worker";
        add("", format!("the load generator may be the limit: {why}. To rule this out, {remedy}"));
    } else if let Some(delayed) = load::generator_delay(report).filter(|share| *share > DELAY_MAX) {
        let why = "the generator waited for a core as long. Give it cores of its own";
        add("", format!("latencies are at least {:.0} % too high: {why}", delayed * 100.0));
    }
    figures
}

/// How late and how many requests of an open loop were sent.
fn schedule_text(schedule: &ScheduleReport, latency: &Latency) -> String {
    let ScheduleReport { due, sent, send_lag, .. } = schedule;
    let mut text = format!(
        "offered {} req/s, sent {sent} of the {due} due in the window",
        units::short(schedule.offered_rps)
    );
    if send_lag.count > 0 {
        let [p50, p99, max] = [send_lag.us_p50, send_lag.us_p99, send_lag.us_max].map(units::micros);
        let _ = write!(text, "; send lag mean {}", units::micros(send_lag.us_mean));
        if latency.us_mean > 0.0 {
            let share = send_lag.us_mean * send_lag.count as f64 / (latency.us_mean * latency.count as f64);
            let _ = write!(text, " ({} % of the total latency)", percent(share));
        }
        let _ = write!(text, ", p50 {p50}, p99 {p99}, max {max}");
    }
    text
}

/// Which workers drove the clients.
fn workers(report: &LoadReport) -> String {
    let shares: Vec<String> =
        report.workers.iter().map(|worker| format!("{} by `{}`", worker.clients, worker.command)).collect();
    let delay = report.workers.iter().map(|worker| worker.start_delay_us).fold(0.0, f64::max);
    format!("clients {}; all began within {}", shares.join(", "), units::micros(delay))
}

/// The workload, and what replaced its defaults.
fn workload_text(plan: &Plan, report: &LoadReport) -> String {
    let urls: Vec<String> = plan.urls.iter().map(ToString::to_string).collect();
    let urls = urls.join(", ");
    let mut text = match plan.kinds().as_slice() {
        _ if plan.is_key_value() => format!("{} on {urls}", report.workload),
        [kind] => format!("{} {urls}", kind.name.split(' ').next().unwrap_or_default()),
        kinds => format!("{} to {urls}", counted(kinds.len() as u64, "request")),
    };
    if plan.names_keys() {
        let _ = write!(text, ", {} keys of {} B", plan.keys(), plan.value_size());
    }
    if plan.distribution.is_some() {
        let _ = write!(text, ", {}", report.distribution);
    }
    if plan.mix.is_some() {
        for (operation, share) in &report.mix {
            let _ = write!(text, ", {} % {operation}", percent(*share));
        }
    }
    if !plan.dialect().is_default() {
        let _ = write!(text, ", dialect {}", report.dialect);
    }
    if plan.connect == Connect::Each {
        text.push_str(", a connection for each request");
    }
    text
}

fn cells(absent: &str, latency: &Latency) -> [String; 8] {
    let Latency { count, us_mean, us_p50, us_p95, us_p99, us_p999, us_max, .. } = *latency;
    let shown = |us: f64| if count == 0 { "–".to_owned() } else { units::micros(us) };
    let [mean, p50, p95, p99, p999, max] = [us_mean, us_p50, us_p95, us_p99, us_p999, us_max].map(shown);
    [count.to_string(), absent.to_owned(), mean, p50, p95, p99, p999, max]
}

/// A share in per cent, with enough digits to distinguish a small one from zero.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0".into(),
        percent if percent < 0.01 => "<0.01".into(),
        percent => units::short(percent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::{OperationReport, ServerReport};

    fn plan(pacing: Pacing) -> Plan {
        Plan {
            pacing,
            ..clap::Parser::parse_from([
                "load",
                "http://host:1",
                "--workload",
                "get_popular",
                "--window",
                "10s",
            ])
        }
    }

    fn latency(count: u64, us: f64) -> Latency {
        Latency {
            count,
            us_mean: us,
            us_min: us / 2.0,
            us_p50: us,
            us_p90: us * 2.0,
            us_p95: us * 3.0,
            us_p99: us * 4.0,
            us_p999: us * 8.0,
            us_max: us * 16.0,
            clipped: 0,
        }
    }

    fn constant(rate: &str) -> Pacing {
        Pacing { rate: Some(rate.parse().unwrap()), ..Pacing::default() }
    }

    /// Of an open loop at so many requests per second, all of which succeeded.
    fn open(rate: u64) -> LoadReport {
        let count = rate * 10;
        LoadReport {
            workload: "get_popular".into(),
            dialect: "weir".into(),
            clients: 16,
            threads: 1,
            seed: 1,
            window_secs: 10.0,
            attempts: count,
            successes: count,
            goodput_rps: rate as f64,
            pacing: format!("constant {rate}/s"),
            latency: latency(count, 200.0),
            service: Some(latency(count, 100.0)),
            schedule: Some(ScheduleReport {
                offered_rps: rate as f64,
                due: count,
                sent: count,
                send_lag: latency(count, 1.6),
                ..ScheduleReport::default()
            }),
            operations: vec![OperationReport {
                operation: "get".into(),
                attempts: count,
                successes: count,
                absent: 0,
                latency: latency(count, 200.0),
            }],
            in_flight_mean: Some(0.1),
            in_flight_at_end: 2,
            ..LoadReport::default()
        }
    }

    #[test]
    fn an_open_loop_tells_both_latencies_and_how_its_schedule_was_kept() {
        let text = table(&plan(constant("1000")), &open(1000));
        for line in [
            "pacing      constant 1000/s",
            "schedule    offered 1.00k req/s, sent 10000 of the 10000 due in the window; send lag mean 1.60 µs (0.80 % of the total latency), p50 1.60 µs, p99 6.40 µs, max 25.6 µs",
            "in flight   0.10 on average, 2 at the end",
            "from intended start         count     absent       mean        p50        p95        p99      p99.9        max",
            "get successes               10000          0     200 µs     200 µs     600 µs     800 µs    1.60 ms    3.20 ms",
            "service, from the send      10000                100 µs     100 µs     300 µs     400 µs     800 µs    1.60 ms",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nin\n{text}");
        }
        assert!(!text.contains("warning") && !text.contains("waited"), "{text}");
        // A server that serves four connections at a time, and leaves the others in its accept queue, once had nothing to be said.
        let report = LoadReport { unanswered: 28, clients: 32, schedule: None, ..open(1000) };
        let text = table(&plan(Pacing::default()), &report);
        assert!(text.contains("unanswered  28 of 32 clients were left without an answer"), "{text}");
    }

    #[test]
    fn what_is_offered_beyond_capacity_is_a_warning_that_says_what_latency_is_then() {
        let mut report = open(1000);
        report.schedule = Some(ScheduleReport {
            offered_rps: 5000.0,
            waited: 40_000,
            waited_secs: 120_000.0,
            behind_secs_at_start: 0.8,
            behind_secs_at_end: 8.8,
            over_capacity: true,
            ..report.schedule.unwrap()
        });
        let text = table(&plan(constant("5000")), &report);
        let gone = ServerReport { attempts: 9, ..ServerReport::default() };
        let silent = table(&plan(constant("5000")), &LoadReport { servers: vec![gone], ..report.clone() });
        assert!(!silent.contains("warning"), "{silent}");
        assert!(
            text.contains("waited      40000 requests for a connection, 3.00 s each on average"),
            "{text}"
        );
        let warning = text.split("\n\n").last().unwrap();
        assert!(warning.starts_with("warning: 5.00k req/s were offered and 1.00k succeeded."), "{text}");
        assert!(warning.contains("800 ms ago") && warning.contains("8.80 s ago"), "{text}");
        assert!(warning.contains("in a queue that grows") && warning.contains("--rate"), "{text}");
        // A generator that could not do more is not advised to offer less.
        let limited = table(&plan(constant("5000")), &LoadReport { cpu_secs: 9.5, ..report });
        assert!(
            limited.contains("The generator was at its own limit") && !limited.contains("Offer less"),
            "{limited}"
        );
        assert!(warning.lines().all(|line| line.chars().count() <= 120), "{text}");
    }

    #[test]
    fn a_generator_that_is_a_little_late_is_not_called_the_limit() {
        let text = |run_delay_secs| {
            let latency = latency(10_000, 1000.0);
            let report = LoadReport { schedule: None, latency, run_delay_secs, ..open(1000) };
            table(&plan(Pacing::default()), &report)
        };
        assert!(!text(Some(0.05)).contains("too high"), "{}", text(Some(0.05)));
        let late = text(Some(0.4));
        assert!(late.contains("latencies are at least 4 % too high: "), "{late}");
        assert!(!late.contains("limit"), "{late}");
        assert!(text(Some(1.5)).contains("may be the limit: "), "{}", text(Some(1.5)));
    }

    /// It was "8.00 unknown".
    #[test]
    fn operations_are_counted_in_whole_numbers() {
        let checked = LinearizabilityReport { unknown: 8, done: 12_345, ..LinearizabilityReport::default() };
        let text = linearizability(&checked);
        assert!(text.contains("12.3k took effect, ") && text.contains(", 8 unknown\n"), "{text}");
    }

    #[test]
    fn an_example_says_what_was_received() {
        for (class, status, received, says) in [
            ("reset", 0, "", "received nothing\n"),
            ("wrong_value", 200, "", "received status 200\n"),
            ("closed_early", 0, "HTTP/1.1 2", "received no complete answer\n"),
            ("malformed", 0, "HTTP/1.1 999 No", "received this\n"),
        ] {
            let (class, received) = (class.to_owned(), received.to_owned());
            let text = example_text(&FailureExample { class, status, received, ..FailureExample::default() });
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn columns_stand_below_one_another_however_long_their_names_are() {
        let mut report = LoadReport { service: None, schedule: None, ..open(1000) };
        report.operations[0].operation = "compute_prime".into();
        report.errors = [("http_503_not_applied".to_owned(), 7)].into();
        let text = table(&plan(Pacing::default()), &report);
        let column = |line: &str, of: &str| {
            let line = text.lines().find(|found| found.starts_with(line)).unwrap_or_else(|| panic!("{text}"));
            line.find(of).map(|at| line[..at + of.len()].chars().count())
        };
        assert_eq!(column("latency of", "count"), column("compute_prime successes", "10000"), "{text}");
        let begins = |name: &str, value: &str| column(name, value).map(|end| end - value.len());
        assert_eq!(begins("goodput ", "1.00k"), begins("http_503_not_applied ", "7 failed"), "{text}");
    }

    #[test]
    fn a_closed_loop_has_one_latency_and_its_think_time() {
        let report = LoadReport {
            pacing: "closed, think 10ms".into(),
            think_secs: 12.5,
            service: None,
            schedule: None,
            ..open(1000)
        };
        let text = table(&plan(Pacing { think: "10ms".parse().unwrap(), ..Pacing::default() }), &report);
        assert!(text.contains("pacing      closed, think 10ms\n"), "{text}");
        assert!(text.contains("think       12.50 s over all clients\n"), "{text}");
        let plain = table(&plan(Pacing::default()), &report);
        assert!(!plain.contains("pacing") && !plain.contains("in flight"), "{plain}");
        assert!(text.contains("latency of            count") && !text.contains("service"), "{text}");
    }
}
