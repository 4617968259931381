//! Which prefixes of keys are asked for most, from a sample of the requests.
//!
//! Each worker samples its own requests into a table of fixed size, by Space-Saving (Metwally, Agrawal and El Abbadi, 2005). A
//! server with few requests samples all of them; a busy one every 251st, which is a prime, so that a client that asks for its
//! keys in turns is not always met at the same one.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Prefixes that a worker counts.
const ROWS: usize = 64;
/// A longer prefix is cut.
const PREFIX_BYTES_MAX: usize = 64;
/// How many requests one sample may stand for.
const INTERVALS: [u32; 8] = [1, 3, 7, 13, 31, 61, 127, 251];
/// The interval is as long as it takes for samples to be this far apart.
const SPACING: Duration = Duration::from_micros(500);
/// After so much time without a sample, the next request is one.
const QUIET: Duration = Duration::from_millis(200);

/// What one worker sampled.
#[derive(Debug, Default)]
pub(super) struct PrefixSampler {
    /// Requests before the next sample. Only the worker counts them.
    left: AtomicU32,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    rows: Vec<Row>,
    /// Index of the interval that the next sample stands for.
    interval: usize,
    sampled: Option<Instant>,
}

#[derive(Debug)]
struct Row {
    prefix: Box<[u8]>,
    /// At most so many requests had it.
    requests: u64,
    /// Those of other prefixes among them, at most.
    error: u64,
}

impl PrefixSampler {
    /// Counts a request for `key`.
    pub(super) fn count(&self, key: &[u8]) {
        match self.left.load(Relaxed) {
            0 => self.sample(key),
            left => self.left.store(left - 1, Relaxed),
        }
    }

    #[cold]
    fn sample(&self, key: &[u8]) {
        let mut table = self.table.lock();
        let stands_for = INTERVALS[table.interval];
        table.add(prefix_of(key), u64::from(stands_for));
        let now = Instant::now();
        let took = table.sampled.replace(now).map_or(QUIET, |last| now - last);
        let fitting = u128::from(stands_for) * SPACING.as_nanos() / took.as_nanos().max(1);
        let fits = INTERVALS.iter().rposition(|interval| u128::from(*interval) <= fitting).unwrap_or(0);
        // One step up at a time: requests that arrive together say little about the rate.
        table.interval = fits.min(table.interval + 1);
        self.left.store(INTERVALS[table.interval] - 1, Relaxed);
    }

    /// Adds the requests of each prefix to `total`: at least so many.
    pub(super) fn add_to(&self, total: &mut BTreeMap<String, u64>) {
        let mut table = self.table.lock();
        for row in &table.rows {
            let prefix = String::from_utf8_lossy(&row.prefix);
            *total.entry(prefix.into_owned()).or_default() += row.requests - row.error;
        }
        if table.sampled.is_some_and(|last| last.elapsed() > QUIET) {
            // The worker may overwrite this, and is asked again next time.
            table.interval = 0;
            self.left.store(0, Relaxed);
        }
    }
}

impl Table {
    fn add(&mut self, prefix: &[u8], requests: u64) {
        if let Some(row) = self.rows.iter_mut().find(|row| *row.prefix == *prefix) {
            row.requests += requests;
            return;
        }
        let mut row = Row { prefix: prefix.into(), requests, error: 0 };
        if self.rows.len() < ROWS {
            return self.rows.push(row);
        }
        if let Some(least) = self.rows.iter_mut().min_by_key(|row| row.requests) {
            row.error = least.requests;
            row.requests += least.requests;
            *least = row;
        }
    }
}

/// A key up to its first `/`, which is part of it; nothing where there is none.
fn prefix_of(key: &[u8]) -> &[u8] {
    let end = memchr::memchr(b'/', key).map_or(0, |slash| slash + 1);
    &key[..end.min(PREFIX_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(sampler: &PrefixSampler) -> BTreeMap<String, u64> {
        let mut total = BTreeMap::new();
        sampler.add_to(&mut total);
        total
    }

    #[test]
    fn a_prefix_ends_with_the_first_slash() {
        let long = [&[b'x'; 100][..], b"/y"].concat();
        for (key, expected) in [
            (&b"user/17/name"[..], &b"user/"[..]),
            (b"/a", b"/"),
            (b"user:17", b""),
            (b"", b""),
            (&long, &long[..PREFIX_BYTES_MAX]),
        ] {
            assert_eq!(prefix_of(key), expected, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_quiet_server_counts_every_request() {
        let sampler = PrefixSampler::default();
        for key in ["a/1", "b/1", "a/2", "plain"] {
            // As if nothing had come for a while.
            sampler.table.lock().sampled = Instant::now().checked_sub(QUIET * 2);
            sampler.count(key.as_bytes());
        }
        let expected = [("", 1), ("a/", 2), ("b/", 1)].map(|(name, count)| (name.to_owned(), count));
        assert_eq!(counts(&sampler), BTreeMap::from(expected));
    }

    #[test]
    fn a_busy_server_samples_and_its_counts_are_still_right() {
        let sampler = PrefixSampler::default();
        const REQUESTS: u64 = 1_000_000;
        for i in 0..REQUESTS {
            // A client that asks in turns: three of four are of one prefix.
            let key = if i % 4 == 0 { "rare/x" } else { "often/x" };
            sampler.count(key.as_bytes());
        }
        let counts = counts(&sampler);
        let sum: u64 = counts.values().sum();
        let often = counts["often/"];
        assert!(REQUESTS - sum <= 251 * 2 && sum <= REQUESTS + 251, "{counts:?}");
        assert!((often as f64 / sum as f64 - 0.75).abs() < 0.05, "{counts:?}");
    }

    #[test]
    fn heavy_prefixes_stay_when_the_table_is_full() {
        let mut table = Table::default();
        for i in 0..100_000_u32 {
            let light = format!("light-{i}/");
            table.add(if i % 4 == 0 { b"heavy/" } else { light.as_bytes() }, 1);
        }
        assert_eq!(table.rows.len(), ROWS);
        let sure = |row: &Row| row.requests - row.error;
        let most = table.rows.iter().max_by_key(|row| sure(row)).unwrap();
        assert_eq!((&*most.prefix, sure(most)), (&b"heavy/"[..], 25_000));
        let light = table.rows.iter().map(sure).filter(|count| *count > 2).count();
        assert_eq!(light, 1, "only the heavy one is shown with many");
    }
}
