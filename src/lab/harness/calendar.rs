//! An instant as a date and a time of day in UTC.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// A second of the calendar. Shown as RFC 3339: `2026-01-31T23:59:59Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utc {
    year: u64,
    month: u64,
    day: u64,
    second: u64,
}

impl Utc {
    /// The second that holds `time`; 1970 for anything earlier.
    ///
    /// Source: Howard Hinnant, chrono-Compatible Low-Level Date Algorithms, `civil_from_days`.
    pub fn at(time: SystemTime) -> Utc {
        let secs = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // Years counted from March, so that the odd day of a leap year comes last; 719468 days lie before 1970.
        let days = secs / 86_400 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Utc {
            year: year_of_era + era * 400 + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            second: secs % 86_400,
        }
    }

    /// The same fit for a file name, and in order by name: `20260131-235959`.
    pub fn compact(&self) -> String {
        let Utc { year, month, day, second } = self;
        format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", second / 3600, second / 60 % 60, second % 60)
    }
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Utc { year, month, day, second } = self;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn seconds_become_dates() {
        for (secs, date, compact) in [
            (0, "1970-01-01T00:00:00Z", "19700101-000000"),
            (951_782_399, "2000-02-28T23:59:59Z", "20000228-235959"),
            (951_782_400, "2000-02-29T00:00:00Z", "20000229-000000"),
            (1_709_251_199, "2024-02-29T23:59:59Z", "20240229-235959"),
            (1_709_251_200, "2024-03-01T00:00:00Z", "20240301-000000"),
            (4_107_542_400, "2100-03-01T00:00:00Z", "21000301-000000"),
        ] {
            let utc = Utc::at(UNIX_EPOCH + Duration::from_secs(secs));
            assert_eq!((utc.to_string().as_str(), utc.compact().as_str()), (date, compact));
        }
    }
}
