//! Conditions on what was measured: `p99>20ms,errors>0.1%,rate<1000/s`, and whether anything was measured at all.

use super::generator_limit;
use super::tally::STALLED;
use kv::proto::{Latency, LoadReport, ScheduleReport, ServerReport};
use kv::units::{self, Rate, Span, short};
use kv::{Error, named};
use std::fmt;
use std::str::FromStr;

/// Conditions, each of one figure of a report.
#[derive(Clone, Debug)]
pub struct Conditions(Vec<Condition>);

/// That a figure is above a limit, or below.
#[derive(Clone, Copy, Debug)]
struct Condition {
    /// The name of the figure.
    name: &'static str,
    kind: Kind,
    is_above: bool,
    /// Microseconds, requests per second, or a share.
    limit: f64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Latency(fn(&Latency) -> f64),
    Errors,
    Rate,
}

/// What of a report a condition can name.
const FIGURES: &[(&str, Kind)] = &[
    ("p50", Kind::Latency(|latency| latency.us_p50)),
    ("p90", Kind::Latency(|latency| latency.us_p90)),
    ("p95", Kind::Latency(|latency| latency.us_p95)),
    ("p99", Kind::Latency(|latency| latency.us_p99)),
    ("p99.9", Kind::Latency(|latency| latency.us_p999)),
    ("max", Kind::Latency(|latency| latency.us_max)),
    ("mean", Kind::Latency(|latency| latency.us_mean)),
    ("errors", Kind::Errors),
    ("rate", Kind::Rate),
];

/// Where conditions do not say how many of the attempts may fail, 0–1: refusals are quick, and a server that refuses most requests
/// would have the best latencies.
const ERROR_RATIO_MAX: f64 = 0.01;

impl Conditions {
    /// Those that hold of a report, each in words: `p99 is 31.2 ms, above 20ms`.
    pub fn met(&self, report: &LoadReport) -> Vec<String> {
        self.0.iter().filter_map(|condition| condition.met(report)).collect()
    }

    /// Each condition by its text, and in words that it holds where it does.
    pub fn judge(&self, report: &LoadReport) -> Vec<(String, Option<String>)> {
        self.0.iter().map(|condition| (condition.to_string(), condition.met(report))).collect()
    }

    /// The conditions that hold where these do not: as people write what they want, and not what they do not want.
    #[must_use]
    pub fn opposite(&self) -> Conditions {
        let turn = |condition: &Condition| Condition { is_above: !condition.is_above, ..*condition };
        Conditions(self.0.iter().map(turn).collect())
    }

    /// These without the lowest rate, and that.
    #[must_use]
    pub fn without_least_rate(&self) -> (Conditions, Option<f64>) {
        let is_rate = |of: &Condition| matches!(of.kind, Kind::Rate);
        let (rates, others): (Vec<Condition>, Vec<Condition>) = self.0.iter().partition(|of| is_rate(of));
        (Conditions(others), rates.iter().map(|of| of.limit).reduce(f64::max))
    }

    /// How many requests tell whether these hold: four are expected to be longer than the highest percentile among them.
    pub fn requests_least(&self) -> f64 {
        let shares = self.0.iter().filter_map(|of| of.name.strip_prefix('p')?.parse::<f64>().ok());
        shares.map(|percent| 4.0 / (1.0 - percent / 100.0)).fold(0.0, f64::max)
    }

    /// These, and `errors<1%` if they do not say how many of the attempts may fail; and that share, 0–1.
    #[must_use]
    pub fn with_error_ratio_max(&self) -> (Conditions, f64) {
        let mut all = self.0.clone();
        let of_errors = |of: &&Condition| matches!(of.kind, Kind::Errors) && !of.is_above;
        let said = all.iter().filter(of_errors).map(|condition| condition.limit).reduce(f64::min);
        let limit = said.unwrap_or(ERROR_RATIO_MAX);
        if said.is_none() {
            all.push(Condition { name: "errors", kind: Kind::Errors, is_above: false, limit });
        }
        (Conditions(all), limit)
    }
}

/// Conditions that have to hold, as `--find-rate` takes them: latency and errors below a limit, the rate above one.
pub fn wanted(text: &str) -> Result<Conditions, String> {
    let conditions: Conditions = text.parse()?;
    for (part, condition) in text.split(',').map(str::trim).zip(&conditions.0) {
        if condition.is_above != matches!(condition.kind, Kind::Rate) {
            let swap = |sign| match sign {
                '<' => '>',
                '>' => '<',
                _ => sign,
            };
            let swapped: String = part.chars().map(swap).collect();
            return Err(format!(
                "`{part}` holds where the server is worse; hint: write what has to hold: {swapped}"
            ));
        }
    }
    Ok(conditions)
}

impl Condition {
    fn value(&self, report: &LoadReport) -> f64 {
        match self.kind {
            Kind::Latency(of) => of(&report.latency),
            Kind::Errors => report.error_ratio,
            Kind::Rate => report.goodput_rps,
        }
    }

    fn met(&self, report: &LoadReport) -> Option<String> {
        let value = self.value(report);
        let is_met = if self.is_above { value > self.limit } else { value < self.limit };
        let side = if self.is_above { "above" } else { "below" };
        let Condition { name, kind, limit, .. } = *self;
        is_met.then(|| format!("{name} is {}, {side} {}", shown(kind, value), shown(kind, limit)))
    }
}

fn shown(kind: Kind, value: f64) -> String {
    match kind {
        Kind::Latency(_) => units::micros(value),
        Kind::Errors => format!("{} %", short(value * 100.0)),
        Kind::Rate => format!("{}/s", short(value)),
    }
}

impl FromStr for Conditions {
    type Err = String;

    fn from_str(text: &str) -> Result<Conditions, String> {
        text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map(Conditions)
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Condition, String> {
        const FORM: &str = "write a figure, < or >, and a limit such as 20ms, 0.1% or 1000/s";
        let Some(at) = text.find(['<', '>']) else {
            return Err(format!("`{text}` has no < or >; hint: {FORM}"));
        };
        let (name, limit) = (text[..at].trim(), text[at + 1..].trim());
        if limit.starts_with('=') {
            return Err(format!("`{text}` has a = behind < or >; hint: leave it out: {FORM}"));
        }
        let (name, kind) = *named(FIGURES, |(name, _)| name, name)
            .map_err(|known| format!("unknown figure `{name}`; hint: expected one of: {known}"))?;
        let fail = |what: &str| format!("`{limit}` is no {what}; hint: {FORM}");
        let limit = match kind {
            Kind::Latency(_) => {
                limit.parse().map(|Span(time)| time.as_secs_f64() * 1e6).map_err(|_| fail("duration"))?
            }
            Kind::Rate if limit == "0" || limit == "0/s" => 0.0,
            Kind::Rate => limit.parse().map(|Rate(rate)| rate).map_err(|_| fail("rate"))?,
            Kind::Errors => {
                let (number, scale) =
                    limit.strip_suffix('%').map_or((limit, 1.0), |number| (number.trim(), 100.0));
                let share = number.parse().map(|number: f64| number / scale).map_err(|_| fail("share"))?;
                match share {
                    _ if scale == 1.0 && share >= 1.0 && share.is_finite() => {
                        let percent = short(share * 100.0);
                        return Err(format!("`{limit}` would be {percent} %; hint: write {limit}%"));
                    }
                    0.0..=1.0 => share,
                    _ => return Err(fail("share")),
                }
            }
        };
        Ok(Condition { name, kind, is_above: text[at..].starts_with('>'), limit })
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Condition { name, kind, is_above, limit } = *self;
        let sign = if is_above { '>' } else { '<' };
        write!(f, "{name} {sign} {}", shown(kind, limit))
    }
}

/// How the answer of a server for TLS begins that is sent something else: the type of an alert, and the version of its record.
const TLS_ALERT: &str = "\u{15}\u{3}";

/// Why nothing succeeded, if nothing did.
pub fn nothing_succeeded(report: &LoadReport) -> Option<Error> {
    if report.successes > 0 {
        return None;
    }
    if report.attempts == 0 {
        return Some(
            Error::unmet("no request was over in the window")
                .hint("use a longer --window, or a shorter --timeout to see why"),
        );
    }
    let most = report.errors.iter().max_by_key(|(_, count)| **count);
    let class = most.map_or("", |(class, _)| class.as_str());
    let example = report.failures.iter().find(|example| example.class == class);
    let status = example.map_or(0, |example| example.status);
    let what = if status == 0 { class.to_owned() } else { format!("{class}, status {status}") };
    let received = example.map_or("", |example| example.received.as_str());
    let is_plain = report.servers.iter().all(|server| server.url.starts_with("http://"));
    let hint = match (class, status) {
        _ if received.starts_with(TLS_ALERT) => "the server speaks TLS: try https://",
        ("reset", _) if is_plain => {
            "the server ends connections without an answer: does it speak TLS? Try https://, or see its log"
        }
        ("http_4xx", 401 | 403) => "give --user, --bearer or a --header",
        ("http_4xx", 404) if report.workload == "url" => {
            "correct the path, or use --expect 404; for keys of a key-value server use --workload get_popular"
        }
        ("http_4xx", 405) => "use another --request",
        ("http_4xx", 415) => "add -H 'Content-Type: …'",
        ("http_4xx" | "http_5xx" | "unexpected_status", _) => {
            "the report has an example; say with --expect what is a success"
        }
        ("unexpected_body", _) => "the report has an example; correct --expect-body",
        ("timeout" | "slow_body", _) => "use fewer --clients or a longer --timeout",
        ("tls", _) => "does the server ask for a certificate? See --cert",
        _ => "the report has an example; see the server's log",
    };
    Some(Error::unmet(format_args!("none of {} requests succeeded ({what})", report.attempts)).hint(hint))
}

/// What the figures leave out, so that no condition can be judged by them: clients of a closed loop that were left without an
/// answer, or many requests of an open loop that were due and not sent.
pub fn left_out(report: &LoadReport) -> Option<Error> {
    let LoadReport { unanswered, clients, .. } = report;
    match &report.schedule {
        None if *unanswered > 0 => Some(
            Error::unmet(format_args!("{unanswered} of {clients} clients were left without an answer"))
                .hint("does the server serve as many connections, or has a part of it stopped? See its log, or use fewer --clients"),
        ),
        Some(ScheduleReport { over_capacity: true, sent, due, .. }) => {
            let hint = match generator_limit(report) {
                Some(_) => "the generator was at its own limit: give it more processor time",
                None => "offer less, or use more --clients if the server can take more connections",
            };
            let what = format_args!("only {sent} of the {due} requests due in the window were sent");
            Some(Error::unmet(what).hint(hint))
        }
        _ => None,
    }
}

/// Whether a server went away: in the last second, and for three times as long as between two successes before, nothing succeeded,
/// and after the last success connections failed or requests had no answer. One went away also if no request to it succeeded.
pub fn server_is_gone(report: &LoadReport) -> Option<Error> {
    report.servers.iter().find_map(|server| is_gone(server, report.window_secs))
}

fn is_gone(server: &ServerReport, window_secs: f64) -> Option<Error> {
    let ServerReport { url, successes, in_flight_at_end, .. } = server;
    let requests = server.attempts + in_flight_at_end;
    if *successes == 0 && requests > 0 {
        let what = format_args!("none of {requests} requests to {url} succeeded");
        return Some(Error::unmet(what).hint("see its log, or leave it out"));
    }
    // Both are counted from the end of the window: the shorter time is the later instant.
    let failed = server.last_connection_fault_secs.zip(server.last_success_secs);
    let has_failed = failed.is_some_and(|(fault, success)| fault < success);
    // At a low rate a second without a success is usual: three gaps between successes are not.
    let least = |silent: f64| {
        let gap = (window_secs - silent) / *successes as f64;
        (window_secs / 2.0).min(1.0).max(3.0 * gap)
    };
    let silent = server.last_success_secs.filter(|secs| *secs >= least(*secs));
    let stalled = server.stalled_secs.filter(|secs| *secs >= STALLED.as_secs_f64());
    let what = match (silent.filter(|_| has_failed), stalled) {
        (Some(secs), _) => {
            format!("{url} went away: nothing succeeded in the last {secs:.1} s of the window")
        }
        (None, Some(secs)) => format!(
            "{url} stopped answering: {in_flight_at_end} requests in flight had no answer in the last {secs:.1} s of the window"
        ),
        (None, None) => return None,
    };
    Some(Error::unmet(what).hint("see its log; the figures are of the time before, too"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::FailureExample;

    fn report() -> LoadReport {
        LoadReport {
            attempts: 1000,
            successes: 998,
            goodput_rps: 998.0,
            error_ratio: 0.002,
            window_secs: 10.0,
            latency: Latency { us_p50: 1000.0, us_p99: 20_500.0, us_max: 50_000.0, ..Latency::default() },
            ..LoadReport::default()
        }
    }

    fn example(class: &str, status: u16) -> FailureExample {
        FailureExample { class: class.to_owned(), status, ..FailureExample::default() }
    }

    #[test]
    fn conditions_say_which_of_them_hold_and_by_how_much() {
        for (text, expected) in [
            ("p99>20ms", &["p99 is 20.5 ms, above 20.0 ms"][..]),
            ("p99>21ms", &[]),
            (
                "p50 > 1ms, errors>0.1%, rate<1000/s",
                &["errors is 0.20 %, above 0.10 %", "rate is 998/s, below 1.00k/s"],
            ),
            ("errors>0.002,max<1s", &["max is 50.0 ms, below 1.00 s"]),
            ("errors>0,rate<0", &["errors is 0.20 %, above 0 %"]),
        ] {
            assert_eq!(text.parse::<Conditions>().unwrap().met(&report()), expected, "{text}");
        }
        let wanted: Conditions = "p99<20ms,errors<0.1%".parse().unwrap();
        assert_eq!(wanted.opposite().met(&report()).len(), 2);
        // Of a try at a low rate only the others can be judged.
        let wanted: Conditions = "p99<20ms,rate>1000/s".parse().unwrap();
        let (others, least) = wanted.without_least_rate();
        assert_eq!((others.to_string().as_str(), least), ("p99 < 20.0 ms", Some(1000.0)));
        for (text, all, error_ratio_max) in [
            ("p99<20ms,errors<0.1%", "p99 < 20.0 ms, errors < 0.10 %", 0.001),
            ("p99<20ms", "p99 < 20.0 ms, errors < 1.00 %", 0.01),
        ] {
            let (conditions, ratio) = text.parse::<Conditions>().unwrap().with_error_ratio_max();
            assert_eq!((conditions.to_string().as_str(), ratio), (all, error_ratio_max));
        }
        for (wrong, why) in [
            ("", "has no < or >"),
            ("p99=20ms", "has no < or >"),
            ("errors>=100%", "`errors>=100%` has a = behind < or >; hint: "),
            ("rate<= 0", "has a = behind < or >"),
            ("p98>20ms", "unknown figure `p98`; hint: expected one of: p50, p90, p95, p99"),
            ("p99>20", "`20` is no duration"),
            ("errors>1", "`1` would be 100 %; hint: write 1%"),
            ("errors>2", "`2` would be 200 %; hint: write 2%"),
            ("errors>200%", "`200%` is no share"),
            ("errors>-0.1", "`-0.1` is no share"),
            ("rate<fast", "`fast` is no rate"),
        ] {
            assert!(wrong.parse::<Conditions>().unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn what_has_to_hold_is_a_low_latency_and_a_high_rate() {
        let hint = |text: &str| wanted(text).map_or_else(|why| why, |wanted| wanted.to_string());
        assert_eq!(hint("p99<20ms,rate>100/s"), "p99 < 20.0 ms, rate > 100/s");
        for (turned, right) in [
            ("p99>20ms", "p99<20ms"),
            ("p99<20ms, errors > 0.1%", "errors < 0.1%"),
            ("rate<1000/s", "rate>1000/s"),
        ] {
            assert!(hint(turned).ends_with(&format!("; hint: write what has to hold: {right}")), "{turned}");
        }
        assert!(hint("").contains("has no < or >"));
    }

    #[test]
    fn clients_without_an_answer_and_requests_that_were_not_sent_are_left_out() {
        let text = |report: LoadReport| left_out(&report).map_or(String::new(), |error| error.to_string());
        assert_eq!(text(report()), "");
        let told = text(LoadReport { unanswered: 15, clients: 16, ..report() });
        assert!(told.starts_with("15 of 16 clients were left without an answer; hint: "), "{told}");
        let open = |over_capacity, cpu_secs| LoadReport {
            // Of an open loop these are long requests: their age is in the latency.
            unanswered: 1,
            threads: 1,
            cpu_secs,
            schedule: Some(ScheduleReport {
                due: 5000,
                sent: 970,
                over_capacity,
                ..ScheduleReport::default()
            }),
            ..report()
        };
        assert_eq!(text(open(false, 0.1)), "");
        let told = text(open(true, 0.1));
        assert!(
            told.starts_with("only 970 of the 5000 requests due in the window were sent; hint: offer less"),
            "{told}"
        );
        assert!(text(open(true, 9.9)).contains("; hint: the generator was at its own limit"));
    }

    #[test]
    fn the_status_that_is_named_is_one_of_the_class_that_is_named() {
        let told = |errors: &[(&str, u64)], failures: &[(&str, u16)]| {
            let errors = errors.iter().map(|(class, count)| ((*class).to_owned(), *count)).collect();
            let failures = failures.iter().map(|(class, status)| example(class, *status)).collect();
            nothing_succeeded(&LoadReport { successes: 0, errors, failures, ..report() }).unwrap().to_string()
        };
        let of_5xx = told(&[("http_4xx", 1), ("http_5xx", 99)], &[("http_4xx", 404), ("http_5xx", 502)]);
        assert!(of_5xx.contains("(http_5xx, status 502)"), "{of_5xx}");
        let of_none = told(&[("http_4xx", 1), ("refused", 99)], &[("http_4xx", 404), ("refused", 0)]);
        assert!(of_none.contains("(refused); hint: "), "{of_none}");
    }

    #[test]
    fn a_server_that_seems_to_speak_tls_is_tried_with_https() {
        let told = |class: &str, received: &str, url: &str| {
            let report = LoadReport {
                successes: 0,
                errors: [(class.to_owned(), 1000)].into(),
                failures: vec![FailureExample { received: received.to_owned(), ..example(class, 0) }],
                servers: vec![ServerReport { url: url.to_owned(), ..ServerReport::default() }],
                ..report()
            };
            nothing_succeeded(&report).unwrap().to_string()
        };
        let alert = told("malformed", "\u{15}\u{3}\u{3}\0\u{2}\u{2}\u{2f}", "http://a");
        assert!(alert.contains("; hint: the server speaks TLS: try https://"), "{alert}");
        assert!(told("reset", "", "http://a").contains("does it speak TLS? Try https://"));
        for other in [told("malformed", "220 mail.example", "http://a"), told("reset", "", "https://a")] {
            assert!(other.contains("; hint: the report has an example"), "{other}");
        }
    }

    #[test]
    fn a_run_without_success_and_a_server_that_went_away_are_failures() {
        assert!(nothing_succeeded(&report()).is_none() && server_is_gone(&report()).is_none());
        let failed = LoadReport {
            successes: 0,
            workload: "url".into(),
            errors: [("http_4xx".to_owned(), 1000)].into(),
            failures: vec![example("http_4xx", 401)],
            ..report()
        };
        let error = nothing_succeeded(&failed).unwrap();
        assert_eq!(error.exit_code(), 3);
        assert_eq!(
            error.to_string(),
            "none of 1000 requests succeeded (http_4xx, status 401); hint: give --user, --bearer or a --header"
        );
        let of = |url: &str, successes, silent_secs, fault_secs| ServerReport {
            url: url.to_owned(),
            attempts: 998,
            successes,
            last_success_secs: Some(silent_secs),
            last_connection_fault_secs: fault_secs,
            ..ServerReport::default()
        };
        let of_several = |servers: &[ServerReport]| {
            let error = server_is_gone(&LoadReport { servers: servers.to_vec(), ..report() });
            error.map_or(String::new(), |error| error.to_string())
        };
        let away = |silent, fault| !of_several(&[of("http://a", 998, silent, fault)]).is_empty();
        assert!(away(1.5, Some(0.1)) && !away(0.5, Some(0.1)) && !away(1.5, None));
        // That a connection failed while others still succeeded is not why nothing succeeds now.
        assert!(!away(1.5, Some(1.6)));
        // That a connection to one server failed after the last success of another says nothing of either.
        assert_eq!(of_several(&[of("http://a", 9, 1.5, None), of("http://b", 9, 0.1, Some(0.2))]), "");
        let away = of_several(&[of("http://a", 9, 0.1, None), of("http://b", 9, 5.0, Some(0.2))]);
        assert!(away.starts_with("http://b went away: nothing succeeded in the last 5.0 s"), "{away}");
        let never = ServerReport { last_success_secs: None, ..of("http://b", 0, 0.0, None) };
        let away = of_several(&[of("http://a", 9, 0.1, None), never]);
        assert_eq!(away, "none of 998 requests to http://b succeeded; hint: see its log, or leave it out");
        // With fewer clients than servers nothing is asked of some.
        assert_eq!(of_several(&[of("http://a", 9, 0.1, None), ServerReport::default()]), "");
        let stalled = |secs| {
            let server = of("http://a", 998, 0.1, None);
            of_several(&[ServerReport { stalled_secs: Some(secs), in_flight_at_end: 16, ..server }])
        };
        assert_eq!(stalled(0.9), "");
        assert_eq!(
            stalled(4.0),
            "http://a stopped answering: 16 requests in flight had no answer in the last 4.0 s of the window; \
             hint: see its log; the figures are of the time before, too"
        );
    }
}
