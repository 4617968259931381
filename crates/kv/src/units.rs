//! Durations, sizes and rates as people write and read them.
//!
//! One spelling for flags, environment, TOML files and reports: `500ms`, `2s`, `64MiB`, `14.6k`.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A length of time, written `250us`, `500ms`, `1.5s`, `2m` or `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Span {
    /// The same in seconds.
    pub fn secs(self) -> f64 {
        self.0.as_secs_f64()
    }
}

/// A hundred years.
const SPAN_MAX: Duration = Duration::from_secs(36525 * 24 * 3600);
const TIMES: &[(&str, f64)] = &[("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6)];

impl FromStr for Span {
    type Err = Error;

    fn from_str(text: &str) -> Result<Span, Error> {
        let secs = scaled(text, TIMES)
            .ok_or_else(|| wrong("a duration is a number with us, ms, s, m or h", "500ms or 24h"))?;
        // Added to any instant it is one.
        let span = Duration::try_from_secs_f64(secs).ok().filter(|span| *span <= SPAN_MAX);
        span.map(Span).ok_or_else(|| Error::input("this duration is longer than 100 years"))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_zero() { f.write_str("0s") } else { write_scaled(f, self.secs(), &TIMES[2..]) }
    }
}

/// Events per second, written `500`, `500/s`, `20k` or `1.5M`; from a thousandth to a thousand million.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Rate, Error> {
        const UNITS: &[(&str, f64)] = &[("k", 1e3), ("M", 1e6), ("", 1.0)];
        let rate = scaled(text.strip_suffix("/s").unwrap_or(text), UNITS);
        // Within what its text keeps the digits of.
        let rate = rate.filter(|rate| (1e-3..=1e9).contains(rate));
        rate.map(Rate).ok_or_else(|| wrong("a rate is a number per second from 0.001 up", "500 or 20k"))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/s", trimmed(self.0))
    }
}

/// Bits per second, written `10mbit`, `500kbit` or `1gbit`, as network people do; from 1 up to 1 Tbit.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct BitRate(pub f64);

impl BitRate {
    /// The same in bytes.
    pub fn bytes_per_sec(self) -> f64 {
        self.0 / 8.0
    }
}

const BIT_RATES: &[(&str, f64)] = &[("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];

impl FromStr for BitRate {
    type Err = Error;

    fn from_str(text: &str) -> Result<BitRate, Error> {
        let rate = scaled(text, BIT_RATES).filter(|rate| (1.0..=1e12).contains(rate));
        rate.map(BitRate)
            .ok_or_else(|| wrong("a bit rate is a number with bit, kbit, mbit or gbit", "10mbit"))
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_scaled(f, self.0, BIT_RATES)
    }
}

/// A number of bytes, written `1024`, `64KiB`, `8MiB`, `1GiB` or with the decimal `kB`, `MB`, `GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Size, Error> {
        const UNITS: &[(&str, f64)] = &[
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
            ("TiB", 1099511627776.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("B", 1.0),
            ("", 1.0),
        ];
        let bytes = scaled(text, UNITS)
            .ok_or_else(|| wrong("a size is a number of bytes, or one with KiB, MiB, GiB", "64MiB"))?;
        // 4.1 × 10⁹ is a little less in binary.
        let whole = bytes.round();
        if bytes > 9e18 || (bytes - whole).abs() > 4.0 * f64::EPSILON * bytes {
            return Err(Error::input("this size is not a whole number of bytes below 2^63"));
        }
        Ok(Size(whole as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was written in decimal units is a whole number of these, and a long fraction of the others.
        const BINARY: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        const DECIMAL: [(&str, u64); 2] = [("GB", 1_000_000_000), ("MB", 1_000_000)];
        let whole = |(_, bytes): &&(&str, u64)| self.0 >= *bytes && self.0.is_multiple_of(*bytes);
        let quarters = |(_, bytes): &&(&str, u64)| self.0 >= *bytes && self.0.is_multiple_of(bytes / 4);
        if let Some((name, bytes)) = DECIMAL.iter().find(whole).or_else(|| BINARY.iter().find(quarters)) {
            return write!(f, "{}{name}", trimmed(self.0 as f64 / *bytes as f64));
        }
        write!(f, "{}", self.0)
    }
}

/// A figure in three significant digits with `k`, `M` or `G`, as in `14.6k`.
pub fn short(value: f64) -> String {
    let (scale, suffix) = match value.abs() {
        v if v >= 999.5e6 => (1e9, "G"),
        v if v >= 999.5e3 => (1e6, "M"),
        v if v >= 999.5 => (1e3, "k"),
        _ => (1.0, ""),
    };
    let scaled = value / scale;
    let decimals = match scaled.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$}{suffix}")
}

/// A count in three significant digits; below a thousand as it is.
pub fn short_count(count: u64) -> String {
    if count < 1000 { count.to_string() } else { short(count as f64) }
}

/// Microseconds as a person reads them: `85.2 µs`, `1.37 ms`, `2.05 s`.
pub fn micros(us: f64) -> String {
    match us.abs() {
        v if v >= 999_500.0 => format!("{} s", short(us / 1e6)),
        v if v >= 999.5 => format!("{} ms", short(us / 1e3)),
        _ => format!("{} µs", short(us)),
    }
}

/// Parses a non-negative number with one of `units` behind it.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    let unit = text[end..].trim_start();
    units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| number * factor)
}

fn wrong(what: &str, example: &str) -> Error {
    Error::input(what).hint(format_args!("write it as in {example}"))
}

/// Writes `value` with the largest of `units` that it reaches, or with the last, which is the smallest.
fn write_scaled(f: &mut fmt::Formatter<'_>, value: f64, units: &[(&str, f64)]) -> fmt::Result {
    let unit = units.iter().find(|(_, factor)| value >= *factor).or(units.last());
    unit.map_or(Ok(()), |(name, factor)| write!(f, "{}{name}", trimmed(value / factor)))
}

/// A number with at most three decimals and no trailing zeros.
fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Serializes types by what they display, and reads them back by `FromStr`.
#[macro_export]
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as ::serde::Deserialize>::deserialize(deserializer)?.parse().map_err(::serde::de::Error::custom)
            }
        }
    )*};
}

serde_as_text!(Span, Size, Rate, BitRate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_back_as_written() {
        for (text, micros, shown) in [
            ("250us", 250, "250us"),
            ("1.5s", 1_500_000, "1.5s"),
            ("2m", 120_000_000, "120s"),
            ("0s", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_micros(), span.to_string().as_str()), (micros, shown));
        }
        for wrong in ["", "5", "s", "-1s", "5 parsecs", "1e99h", "1..5s"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_read_back_as_written() {
        for (text, bytes, shown) in [
            ("64MiB", 64 << 20, "64MiB"),
            ("1000", 1000, "1000"),
            ("1.5 KiB", 1536, "1.5KiB"),
            ("2kB", 2000, "2000"),
            ("4.1GB", 4_100_000_000, "4100MB"),
            ("2.01MB", 2_010_000, "2010000"),
        ] {
            let size: Size = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, shown));
        }
        for wrong in ["", "MiB", "-1", "1.5", "1.0001kB", "99999999999TiB"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rates_read_back_as_written() {
        for (text, rate, shown) in [
            ("500", 500.0, "500/s"),
            ("20k", 20e3, "20000/s"),
            ("1.5M/s", 1.5e6, "1500000/s"),
            ("0.5/s", 0.5, "0.5/s"),
        ] {
            let parsed: Rate = text.parse().unwrap();
            assert_eq!((parsed.0, parsed.to_string().as_str()), (rate, shown));
        }
        for wrong in ["", "0", "-1", "fast", "1/m", "/s", "2G", "1e9"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn bit_rates_read_back_as_written() {
        for (text, rate, shown) in [
            ("10mbit", 10e6, "10mbit"),
            ("1.5 Mbit", 1.5e6, "1.5mbit"),
            ("500kbit", 500e3, "500kbit"),
            ("1gbit", 1e9, "1gbit"),
            ("64bit", 64.0, "64bit"),
        ] {
            let parsed: BitRate = text.parse().unwrap();
            assert_eq!((parsed.0, parsed.to_string().as_str()), (rate, shown));
        }
        assert_eq!(BitRate(8e6).bytes_per_sec(), 1e6);
        for wrong in ["", "10", "10MB", "mbit", "-1mbit", "0bit", "2000gbit", "10mbits"] {
            assert!(wrong.parse::<BitRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn figures_keep_three_digits() {
        for (value, text) in
            [(0.0, "0"), (7.0, "7.00"), (14_571.2, "14.6k"), (999.6, "1.00k"), (123_456_789.0, "123M")]
        {
            assert_eq!(short(value), text);
        }
        assert_eq!(
            (micros(85.21), micros(1370.0), micros(2_050_000.0)),
            ("85.2 µs".into(), "1.37 ms".into(), "2.05 s".into())
        );
    }
}
