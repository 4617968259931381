//! A number as it is printed in a table: with its digits, and with the unit behind it.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A number as printed: its value, and how exactly it was given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// Digits behind the point; negative where the last digit stands for tens or more, as in `1e3`.
    pub decimals: i32,
}

impl Figure {
    /// The number `text` says; `None` where it says none, or a negative one.
    pub fn parse(text: &str) -> Option<Figure> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let plain = |c: char| c.is_ascii_digit() || c == '.';
        let value: f64 = text.parse().ok().filter(|value: &f64| value.is_finite())?;
        let decimals = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
        // No table prints that many digits; it also keeps the powers of ten below finite.
        let sane = decimals <= 30 && exponent.abs() <= 30;
        (digits.chars().all(plain) && sane).then_some(Figure { value, decimals: decimals as i32 - exponent })
    }

    /// How far the true number may be from the printed one: half a unit of the last digit.
    pub fn half_unit(self) -> f64 {
        0.5 * 10f64.powi(-self.decimals)
    }

    /// The smallest number that is printed so.
    pub fn low(self) -> f64 {
        (self.value - self.half_unit()).max(0.0)
    }

    /// The largest number that is printed so.
    pub fn high(self) -> f64 {
        self.value + self.half_unit()
    }

    /// The same with its point so many places further right, or left where `places` are negative.
    pub(crate) fn shifted(self, places: i32) -> Figure {
        // Never by a power below one, which is not exact: 0.00125 s are 1.25 ms and no digit more.
        let power = 10f64.powi(places.abs());
        let value = if places < 0 { self.value / power } else { self.value * power };
        Figure { value, decimals: self.decimals - places }
    }
}

/// The number that `text` says, of which `k` are a thousand and `M` a million.
pub(crate) fn counted(text: &str) -> Option<Figure> {
    let (number, places) = match text.trim_end().strip_suffix(['k', 'K']) {
        Some(thousands) => (thousands, 3),
        None => text.trim_end().strip_suffix('M').map_or((text, 0), |millions| (millions, 6)),
    };
    Some(Figure::parse(number.trim())?.shifted(places))
}

/// The number that `text` says in milliseconds, by the unit of time behind it; without one, in `unit`, where that is not empty.
pub(crate) fn with_unit(text: &str, unit: &str) -> Option<Figure> {
    let end = text.rfind(|letter: char| letter.is_ascii_digit() || letter == '.').map_or(0, |at| at + 1);
    let (number, own) = text.split_at(end);
    let Some(figure) = Figure::parse(number) else {
        // As Go writes a time of a minute or more: 1h0m2.3s.
        return [('h', 3.6e6), ('m', 6e4)].into_iter().find_map(|(unit, ms)| {
            let (count, rest) = text.split_once(unit).filter(|_| text.ends_with('s'))?;
            // First: of a text with many of these letters the rest would be tried for each.
            let count = Figure::parse(count)?;
            let rest = with_unit(rest, "")?;
            Some(Figure { value: count.value * ms + rest.value, ..rest })
        });
    };
    Some(match if own.trim().is_empty() { unit } else { own.trim() } {
        "ns" => figure.shifted(-6),
        "us" | "µs" | "μs" => figure.shifted(-3),
        "s" | "sec" | "secs" => figure.shifted(3),
        // Rounded up to a power of ten: half a unit of the last digit is 30,000 ms / 10^decimals.
        "m" | "min" => Figure { value: figure.value * 6e4, decimals: figure.decimals - 5 },
        "ms" | "" => figure,
        _ => return None,
    })
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.*}", self.decimals.max(0) as usize, self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_their_digits_and_know_their_rounding() {
        for (text, value, half_unit, printed) in [
            ("0.4", 0.4, 0.05, "0.4"),
            ("14457.0", 14457.0, 0.05, "14457.0"),
            ("100000", 100_000.0, 0.5, "100000"),
            ("1.2e3", 1200.0, 50.0, "1200"),
            (".5", 0.5, 0.05, "0.5"),
        ] {
            let figure = Figure::parse(text).unwrap();
            assert_eq!((figure.value, figure.to_string().as_str()), (value, printed));
            assert!((figure.half_unit() / half_unit - 1.0).abs() < 1e-12, "{text}");
        }
        for wrong in ["", "-1", "1,5", "ten", "NaN", "inf", "1e99", "1e400", "+5", "."] {
            assert_eq!(Figure::parse(wrong), None, "{wrong}");
        }
        let minutes = with_unit("1.5m", "").unwrap();
        assert!(minutes.low() <= 87_000.0 && minutes.high() >= 93_000.0, "{minutes:?}");
        // It took a time that doubled with each letter.
        assert_eq!(with_unit(&("hm".repeat(50) + "s"), ""), None);
        // Of requests a letter is a power of ten, and of times it is a unit: 1.2m was 72,000 requests.
        let [requests, times] = [counted, |text: &str| with_unit(text, "")]
            .map(|read| ["1.2", "1.2k", "1.2 M", "1.2m", "1.2s"].map(|text| read(text).map(|of| of.value)));
        assert_eq!(requests, [Some(1.2), Some(1200.0), Some(1.2e6), None, None]);
        assert_eq!(times, [Some(1.2), None, None, Some(72_000.0), Some(1200.0)]);
    }
}
