//! Little's law on a load report: does throughput × time account for everybody who was there?
//!
//! A closed loop has a known number of clients; an open one has none, so its requests in flight are counted instead.
//! Source: Little, A Proof for the Queuing Formula L = λW (1961).

use super::LoadReport;

impl LoadReport {
    /// Whether requests were sent by a schedule, whatever the answers did.
    pub fn is_open(&self) -> bool {
        self.schedule.is_some()
    }

    /// Time that requests were under way in the window, all together, in seconds: what they took, and what lies on this side
    /// of the window's edges of those that straddle them.
    ///
    /// In a closed loop a request begins when its client is free to send, in an open one when it is sent: before that it waits
    /// in the generator, with nobody to wait for it. Reports from before edges were kept have none.
    pub fn request_secs(&self) -> f64 {
        let ended_us = match self.service.filter(|_| self.is_open()) {
            Some(service) => service.count as f64 * service.us_mean,
            None => self.attempts as f64 * self.latency.us_mean,
        };
        ended_us / 1e6 + self.edge_secs
    }

    /// Successes per second, with each request that an edge of the window cuts counted by its part within. Clients of a slow service stay
    /// in step, and end their requests all within a window or none.
    ///
    /// Of an open loop, whose requests are due by a schedule, the rate is counted. A client's part is at most its mean latency: one that
    /// waits for an answer that does not come has none.
    pub fn goodput_with_parts_rps(&self) -> f64 {
        let all = f64::from(self.clients) * self.window_secs;
        let most = (f64::from(self.clients) * self.latency.us_mean / 1e6).abs();
        let factor = all / (all - self.edge_secs.clamp(-most, most));
        if self.is_open() || !factor.is_finite() { self.goodput_rps } else { self.goodput_rps * factor }
    }

    /// How far the report is from the law, as a share of those who were there: 0.02 is 2 % too much. Anything but about zero is a
    /// fault of the measurement.
    ///
    /// In a closed loop every client is at any instant in a request, backing off or thinking, so that these times add up to
    /// `clients` windows. In an open loop X·S is the mean number of requests in flight, which was counted at each change of it.
    /// `None` where there was nobody, no window, or no such count.
    pub fn little_residual(&self) -> Option<f64> {
        let (accounted, there) = match self.is_open() {
            true => (self.request_secs(), self.in_flight_mean?),
            false => (self.request_secs() + self.backoff_secs + self.think_secs, f64::from(self.clients)),
        };
        let residual = (accounted / self.window_secs - there) / there;
        residual.is_finite().then_some(residual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Latency, ScheduleReport};

    #[test]
    fn goodput_counts_parts_of_requests() {
        // 16 clients in step, whose requests take 100 ms: of 20.5 rounds 21 or 20 end in the window.
        let of = |rounds: f64, edge_secs| LoadReport {
            clients: 16,
            window_secs: 2.05,
            attempts: 16 * rounds as u64,
            goodput_rps: 16.0 * rounds / 2.05,
            latency: latency(16 * rounds as u64, 1e5),
            edge_secs,
            ..LoadReport::default()
        };
        for report in [of(20.0, 16.0 * 0.05), of(21.0, -16.0 * 0.05)] {
            assert!((report.goodput_with_parts_rps() - 160.0).abs() < 1e-9);
            assert!(report.little_residual().unwrap().abs() < 1e-9);
        }
        // The last second had no answers, and that stays half of the goodput.
        let stalled = of(10.0, 16.0 * 1.05).goodput_with_parts_rps();
        assert!(stalled < 0.55 * 160.0, "{stalled}");
        let nothing = of(0.0, 16.0 * 2.05);
        assert_eq!(nothing.goodput_with_parts_rps(), 0.0);
    }

    fn latency(count: u64, us_mean: f64) -> Latency {
        Latency { count, us_mean, ..Latency::default() }
    }

    fn check(report: &LoadReport, expected: Option<f64>) {
        let residual = report.little_residual();
        match (residual, expected) {
            (Some(residual), Some(expected)) => assert!((residual - expected).abs() < 1e-9, "{residual}"),
            _ => assert_eq!(residual, expected),
        }
    }

    #[test]
    fn every_second_of_a_client_is_in_a_request_at_an_edge_in_a_rest_or_in_thought() {
        // A closed loop of 10 clients in a window of 2 s.
        let whole = LoadReport {
            clients: 10,
            attempts: 190,
            window_secs: 2.0,
            latency: latency(190, 90_000.0),
            ..LoadReport::default()
        };
        let accounted = LoadReport { edge_secs: 0.4, backoff_secs: 0.5, think_secs: 2.0, ..whole.clone() };
        check(&accounted, Some(0.0));
        check(&LoadReport { edge_secs: 0.0, ..accounted.clone() }, Some(-0.02));
        check(&LoadReport { backoff_secs: 0.0, ..accounted.clone() }, Some(-0.025));
        check(&LoadReport { think_secs: 0.0, ..accounted.clone() }, Some(-0.1));
        // More began before the window than was left at its end.
        check(&LoadReport { edge_secs: -0.4, ..accounted }, Some(-0.04));
        check(&LoadReport { clients: 0, ..whole.clone() }, None);
        check(&LoadReport { window_secs: 0.0, ..whole }, None);
    }

    #[test]
    fn an_open_loop_is_held_to_the_requests_in_flight_however_few_they_are() {
        // 100 requests a second of 200 µs each: 0.02 of them in flight, while 8 connections wait for work.
        let open = LoadReport {
            clients: 8,
            attempts: 200,
            window_secs: 2.0,
            latency: latency(200, 900.0),
            service: Some(latency(200, 200.0)),
            schedule: Some(ScheduleReport::default()),
            in_flight_mean: Some(0.02),
            ..LoadReport::default()
        };
        check(&open, Some(0.0));
        check(&LoadReport { edge_secs: 0.004, ..open.clone() }, Some(0.1));
        check(&LoadReport { in_flight_mean: Some(0.025), ..open.clone() }, Some(-0.2));
        check(&LoadReport { in_flight_mean: None, ..open }, None);
    }
}
