//! What making connections took, apart from the requests they were made for.

use super::client::Connection;
use super::samples::Samples;
use kv::proto::Latency;

/// The connections that attempts had to make.
#[derive(Default)]
pub(super) struct Connecting {
    /// Those that were begun, whatever became of them.
    pub(super) begun: u64,
    pub(super) made: Samples,
}

impl Connecting {
    /// Counts the connection of an attempt, if it had to be made.
    pub(super) fn record(&mut self, connection: Connection) {
        self.begun += u64::from(connection != Connection::Kept);
        if let Connection::Made(time) = connection {
            self.made.record(time.as_nanos() as u64);
        }
    }

    pub(super) fn add(&mut self, other: &Connecting) {
        self.begun += other.begun;
        self.made.add(&other.made);
    }

    /// How long it took to make those that were made; `None` where none was.
    pub(super) fn latency(&self) -> Option<Latency> {
        Some(self.made.summary()).filter(|made| made.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn connections_that_failed_were_begun_and_took_no_time_that_counts() {
        let mut connecting = Connecting::default();
        for connection in [Connection::Kept, Connection::Begun] {
            connecting.record(connection);
        }
        assert_eq!((connecting.begun, connecting.latency()), (1, None));
        connecting.record(Connection::Made(Duration::from_micros(50)));
        let mut sum = Connecting::default();
        sum.add(&connecting);
        sum.add(&connecting);
        let latency = sum.latency().unwrap();
        assert_eq!((sum.begun, latency.count, latency.us_mean), (4, 2, 50.0));
    }
}
