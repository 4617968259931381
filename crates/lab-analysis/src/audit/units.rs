//! Causes that miss the law by the same factor in every row: wrong units, minutes, and figures of one client.
//!
//! The factor is X · R / N. A factor this far from 1 has no other reason that is the same at every load.

use super::{AuditedRow, Case, Found, Range, residuals};
use lab_data::distinct;

/// A factor that deviates by less is met.
const NEAR: f64 = 0.10;

/// Factors of units, and what would look so.
pub(super) const UNITS: [(f64, &str); 4] = [
    (
        1e-3,
        "N/1000, as where latencies in seconds are read as milliseconds, or milliseconds as microseconds, or in the \
         throughput a separator of thousands is read as a decimal point",
    ),
    (1e3, "1000·N, as where latencies in microseconds are read as milliseconds, or milliseconds as seconds"),
    (1e-6, "N/1,000,000, as where latencies in seconds are read as microseconds"),
    (
        1e6,
        "1,000,000·N, as where latencies in microseconds are read as seconds, or nanoseconds as milliseconds",
    ),
];

/// The same of minutes.
pub(super) const MINUTES: [(f64, &str); 2] = [
    (60.0, "60·N, as where the throughput is per minute and read as per second"),
    (1.0 / 60.0, "N/60, as where latencies in minutes are read as seconds"),
];

/// X·R is one client in all rows, of which two or more with different numbers of clients are off.
pub(super) fn of_one_client<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let mut checked = case.rows.iter().filter(|row| row.residual.is_some());
    let is_one = |row: &AuditedRow| row.printed.clients.is_some_and(|n| meets(row, 1.0 / f64::from(n)));
    let levels = distinct(case.open.iter().map(|row| row.printed.clients));
    (levels.len() > 1 && checked.all(is_one)).then(|| {
        let reason = "X·R is 1 in every row, whatever N, as where the throughput is that of one client, or where the \
                      clients send one at a time and their waiting is not timed";
        (case.open.clone(), reason.to_owned())
    })
}

/// X·R/N is one of these factors in all rows that are off, two or more.
pub(super) fn one_factor<'a>(case: &Case<'a>, factors: &[(f64, &str)]) -> Option<Found<'a>> {
    // A latency that is printed as 0.00 fits many factors.
    let surely = case.open.iter().filter(|row| factor(row).is_some_and(|of| of.low > 0.0)).count();
    let all_meet = |(factor, _): &&(f64, &str)| case.open.iter().all(|row| meets(row, *factor));
    let (_, what) = factors.iter().find(all_meet).filter(|_| surely > 1)?;
    let off = residuals(case.open.iter().copied())?;
    Some((case.open.clone(), format!("in each row that deviates ({off}) X·R is about {what}")))
}

/// X · R / N.
fn factor(row: &AuditedRow) -> Option<Range> {
    let residual = row.residual?;
    Some(Range { value: 1.0 + residual.value, low: 1.0 + residual.low, high: 1.0 + residual.high })
}

/// Whether the factor of a row is this one, as far as its printed digits say.
fn meets(row: &AuditedRow, of: f64) -> bool {
    factor(row).is_some_and(|factor| factor.low <= (1.0 + NEAR) * of && factor.high >= (1.0 - NEAR) * of)
}
