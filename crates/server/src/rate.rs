//! How many requests a token may make, and how many lines are logged: a bucket that fills at a constant rate, and the fields
//! that say what is left (draft-ietf-httpapi-ratelimit-headers).

use http1::Writer;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Fewest requests per second.
pub(super) const RATE_MIN: f64 = 0.001;
/// Most requests per second, and most at once.
pub(super) const RATE_MAX: f64 = 1e6;

/// A bucket, over all connections.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// Requests per second.
    pub(super) rate: f64,
    /// Requests in a full bucket.
    pub(super) burst: u32,
    started: Instant,
    /// When the bucket will be full, in nanoseconds since then. Before now: it is.
    full_at: AtomicU64,
}

/// What the limit says of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RateState {
    /// Requests in a full bucket.
    quota: u32,
    /// Seconds that an empty bucket needs to fill.
    window: u64,
    /// Requests that could follow at once.
    remaining: u64,
    /// Seconds until it is full; of a request that was one too many, until another will not be.
    pub(super) reset: u64,
    /// Whether the request is within the limit.
    pub(super) is_within: bool,
}

impl RateLimiter {
    /// A full bucket.
    pub(super) fn new(rate: f64, burst: u32) -> RateLimiter {
        RateLimiter { rate, burst, started: Instant::now(), full_at: AtomicU64::new(0) }
    }

    /// Takes one request out of the bucket, if there is one.
    pub(super) fn take(&self, now: Instant) -> RateState {
        let now = nanos(now.saturating_duration_since(self.started));
        let each = ((1e9 / self.rate) as u64).max(1);
        let all = each.saturating_mul(u64::from(self.burst));
        // From now until the bucket is full again, if this request is taken.
        let missing = |full_at: u64| full_at.saturating_sub(now).saturating_add(each);
        let next =
            |full_at| Some(missing(full_at)).filter(|missing| *missing <= all).map(|missing| now + missing);
        let taken = self.full_at.fetch_update(Relaxed, Relaxed, next);
        let (is_within, remaining, reset) = match taken {
            Ok(full_at) => (true, (all - missing(full_at)) / each, missing(full_at)),
            Err(full_at) => (false, 0, missing(full_at) - all),
        };
        let secs = |nanos: u64| nanos.div_ceil(1_000_000_000);
        RateState {
            quota: self.burst,
            window: secs(all).max(1),
            remaining,
            reset: secs(reset).max(1),
            is_within,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl RateState {
    /// Adds the fields to a head.
    pub(super) fn write<'o>(&self, writer: Writer<'o>) -> Writer<'o> {
        let RateState { quota, window, remaining, reset, .. } = self;
        writer.lines(&format!(
            "RateLimit-Policy: \"requests\";q={quota};w={window}\r\nRateLimit: \"requests\";r={remaining};t={reset}\r\n"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_what_it_has_and_fills_again() {
        let limiter = RateLimiter::new(2.0, 4);
        let start = limiter.started;
        let check = |millis, expected: (bool, u64, u64)| {
            let state = limiter.take(start + Duration::from_millis(millis));
            assert_eq!((state.is_within, state.remaining, state.reset), expected, "at {millis} ms");
            assert_eq!((state.quota, state.window), (4, 2));
        };
        for expected in [(true, 3, 1), (true, 2, 1), (true, 1, 2), (true, 0, 2), (false, 0, 1), (false, 0, 1)]
        {
            check(0, expected);
        }
        check(499, (false, 0, 1));
        check(500, (true, 0, 2));
        check(501, (false, 0, 1));
        // No more than it holds, however long it waited.
        check(60_000, (true, 3, 1));
        // A worker whose clock was read a little earlier.
        check(59_999, (true, 1, 2));
    }

    #[test]
    fn a_slow_limit_says_how_long_to_wait() {
        let limiter = RateLimiter::new(0.1, 1);
        assert!(limiter.take(limiter.started).is_within);
        let state = limiter.take(limiter.started + Duration::from_secs(3));
        assert_eq!((state.is_within, state.reset, state.window), (false, 7, 10));
        let mut head = Vec::new();
        state.write(http1::response::write(&mut head, 429)).end();
        let head = String::from_utf8(head).unwrap();
        let fields = "\r\nRateLimit-Policy: \"requests\";q=1;w=10\r\nRateLimit: \"requests\";r=0;t=7\r\n\r\n";
        assert!(head.ends_with(fields), "{head}");
    }
}
