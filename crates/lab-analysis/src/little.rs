//! Little's law on one run: does throughput × time account for everybody who was there?
//!
//! A closed loop has a known number of clients; an open one has none, so its requests in flight are counted instead.
//! Source: Little, A Proof for the Queuing Formula L = λW (1961).

use kv::proto::LoadReport;

/// Whether requests were sent by a schedule, whatever the answers did.
pub fn is_open(load: &LoadReport) -> bool {
    load.schedule.is_some()
}

/// Time that requests were under way in the window, all together, in seconds: what they took, and what lies on this side
/// of the window's edges of those that straddle them.
///
/// In a closed loop a request begins when its client is free to send, in an open one when it is sent: before that it waits
/// in the generator, with nobody to wait for it. Reports from before edges were kept have none.
pub fn request_secs(load: &LoadReport) -> f64 {
    let ended_us = match load.service.filter(|_| is_open(load)) {
        Some(service) => service.count as f64 * service.us_mean,
        None => load.attempts as f64 * load.latency.us_mean,
    };
    ended_us / 1e6 + load.edge_secs
}

/// How far a run is from the law, as a share of those who were there: 0.02 is 2 % too much.
///
/// In a closed loop every client is at any instant in a request, backing off or thinking, so that these times add up to
/// `clients` windows. In an open loop X·S is the mean number of requests in flight, which was counted at each change of it.
/// `None` where there was nobody, no window, or no such count.
pub fn little_residual(clients: u32, load: &LoadReport) -> Option<f64> {
    let (accounted, there) = match is_open(load) {
        true => (request_secs(load), load.in_flight_mean?),
        false => (request_secs(load) + load.backoff_secs + load.think_secs, f64::from(clients)),
    };
    let residual = (accounted / load.window_secs - there) / there;
    residual.is_finite().then_some(residual)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::{Latency, ScheduleReport};

    fn latency(count: u64, us_mean: f64) -> Latency {
        Latency { count, us_mean, ..Latency::default() }
    }

    /// A closed loop of 10 clients in a window of 2 s.
    fn closed(attempts: u64, us_mean: f64) -> LoadReport {
        LoadReport {
            attempts,
            window_secs: 2.0,
            latency: latency(attempts, us_mean),
            ..LoadReport::default()
        }
    }

    fn check(clients: u32, load: &LoadReport, expected: Option<f64>) {
        let residual = little_residual(clients, load);
        match (residual, expected) {
            (Some(residual), Some(expected)) => assert!((residual - expected).abs() < 1e-9, "{residual}"),
            _ => assert_eq!(residual, expected),
        }
    }

    #[test]
    fn every_second_of_a_client_is_in_a_request_at_an_edge_in_a_rest_or_in_thought() {
        let whole = closed(190, 90_000.0);
        let accounted = LoadReport { edge_secs: 0.4, backoff_secs: 0.5, think_secs: 2.0, ..whole.clone() };
        check(10, &accounted, Some(0.0));
        check(10, &LoadReport { edge_secs: 0.0, ..accounted.clone() }, Some(-0.02));
        check(10, &LoadReport { think_secs: 0.0, ..accounted.clone() }, Some(-0.1));
        // More began before the window than was left at its end.
        check(10, &LoadReport { edge_secs: -0.4, ..accounted }, Some(-0.04));
        check(0, &whole, None);
        check(10, &LoadReport { window_secs: 0.0, ..whole }, None);
    }

    #[test]
    fn an_open_loop_is_held_to_the_requests_in_flight_however_few_they_are() {
        // 100 requests a second of 200 µs each: 0.02 of them in flight, while 8 connections wait for work.
        let open = LoadReport {
            attempts: 200,
            window_secs: 2.0,
            latency: latency(200, 900.0),
            service: Some(latency(200, 200.0)),
            schedule: Some(ScheduleReport::default()),
            in_flight_mean: Some(0.02),
            ..LoadReport::default()
        };
        check(8, &open, Some(0.0));
        check(8, &LoadReport { edge_secs: 0.004, ..open.clone() }, Some(0.1));
        check(8, &LoadReport { in_flight_mean: Some(0.025), ..open.clone() }, Some(-0.2));
        check(8, &LoadReport { in_flight_mean: None, ..open }, None);
    }
}
