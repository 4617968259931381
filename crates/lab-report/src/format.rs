//! Figures as text: with their unit, with their spread where one is known, and "–" where they are not known.

use kv::units::{micros, short};
pub(super) use lab_analysis::count;
use lab_analysis::{Estimate, Interval};
use serde::Serialize;
use std::borrow::Borrow;

/// What is printed for a figure that is not known.
pub(super) const UNKNOWN: &str = "–";

/// `value` as `say` prints it, or "–".
pub(super) fn known(value: Option<f64>, say: impl Fn(f64) -> String) -> String {
    finite(value).map_or_else(|| UNKNOWN.to_owned(), say)
}

/// `value` where it is a number.
pub(super) fn finite(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite())
}

/// A latency in microseconds with its unit.
pub(super) fn latency(us: Option<f64>) -> String {
    known(us, micros)
}

/// A number of clients that need not be a whole one: `4.0`, `118`.
pub(super) fn clients(value: f64) -> String {
    if value.fract() == 0.0 || value >= 99.95 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A share in per cent with so many decimals: `93 %`, `16.7 %`.
pub(super) fn percent(share: f64, decimals: usize) -> String {
    known(Some(share), |share| number(share * 100.0, decimals) + " %")
}

/// A residual of Little's law: `+0.12 %`.
pub(super) fn residual(share: f64) -> String {
    let text = percent(share, 2);
    if text.starts_with('−') { text } else { format!("+{text}") }
}

/// With so many decimals; what reads as zero has no sign.
pub(super) fn number(value: f64, decimals: usize) -> String {
    let scale = 10f64.powi(decimals as i32);
    // Adding 0 turns −0 into 0.
    let rounded = (value * scale).round() / scale + 0.0;
    format!("{rounded:.decimals$}").replace('-', "−")
}

/// `14.6k ± 0.2k`; `14.4k–14.8k` for a range and `14.6k` for a single run.
pub(super) fn spread(of: &Estimate) -> String {
    match of.interval {
        Interval::Single => short(of.mean),
        // Two ends that read alike are no range.
        Interval::Range if short(of.low) == short(of.high) => short(of.mean),
        Interval::Range => format!("{}–{}", short(of.low), short(of.high)),
        Interval::StudentT => with_half(of.mean, (of.high - of.mean).max(of.mean - of.low)),
    }
}

/// Both with the suffix that [`short`] gives the mean, and with the same decimals: `14.6k ± 0.2k`.
fn with_half(mean: f64, half: f64) -> String {
    let short = short(mean);
    let suffix = short.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let decimals = short.trim_end_matches(suffix).split_once('.').map_or(0, |(_, digits)| digits.len());
    let scale =
        [("k", 1e3), ("M", 1e6), ("G", 1e9)].iter().find(|(s, _)| *s == suffix).map_or(1.0, |of| of.1);
    // A spread that would read as zero gets as many more digits as it needs to read as something, and the mean gets them, too.
    let says = |digits: &usize| format!("{:.digits$}", half / scale).contains(|c| ('1'..='9').contains(&c));
    let digits = (decimals..decimals + 4).find(says).unwrap_or(decimals);
    format!("{:.digits$}{suffix} ± {:.digits$}{suffix}", mean / scale, half / scale)
}

/// A mean and, where more than one run knows them, both ends of its interval: `1.02 (0.93 to 1.11)`.
pub(super) fn with_ends(of: &Estimate, say: impl Fn(f64) -> String) -> String {
    match of.interval {
        Interval::Single => say(of.mean),
        _ => format!("{} ({} to {})", say(of.mean), say(of.low), say(of.high)),
    }
}

/// `16–64 clients`, or `16 clients`.
pub(super) fn levels(levels: &[u32]) -> String {
    match levels {
        [] => UNKNOWN.to_owned(),
        [only] => count(*only, "client"),
        [first, .., last] => format!("{first}–{last} clients"),
    }
}

/// `16, 32 clients`, each level by itself.
pub(super) fn each_level(levels: &[u32]) -> String {
    let each: Vec<String> = levels.iter().map(u32::to_string).collect();
    format!("{} client{}", each.join(", "), if levels == [1] { "" } else { "s" })
}

/// A count in a table, where a zero is quieter than a figure.
pub(super) fn tally(n: u64) -> String {
    if n == 0 { "·".to_owned() } else { n.to_string() }
}

/// With a capital at its start.
pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().collect::<String>());
    first.unwrap_or_default() + letters.as_str()
}

/// `a`, `a and b` or `a, b and c`.
pub(super) fn listed(names: &[impl Borrow<str>]) -> String {
    match names.split_last() {
        None => UNKNOWN.to_owned(),
        Some((only, [])) => only.borrow().to_owned(),
        Some((last, before)) => format!("{} and {}", before.join(", "), last.borrow()),
    }
}

/// A name in at most `fits` letters. What tells it from others may be its first word or its last.
pub(super) fn shortened(name: &str, fits: usize) -> String {
    const LAST: usize = 9;
    let count = name.chars().count();
    if count <= fits {
        return name.to_owned();
    }
    let first = name.chars().take(fits - 1 - LAST);
    first.chain(['…']).chain(name.chars().skip(count - LAST)).collect()
}

/// A tick without the digits that only say how exact it is: `5.00k` is `5k`.
pub(super) fn trimmed(tick: &str) -> String {
    let end = tick.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tick.len());
    let (number, unit) = tick.split_at(end);
    match number.contains('.') {
        true => format!("{}{unit}", number.trim_end_matches('0').trim_end_matches('.')),
        false => tick.to_owned(),
    }
}

/// A name in links and file names: letters, digits, `-` and `_`; all else by its code, so that no two names become one.
pub(super) fn slug(name: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.chars().map(|c| if is_safe(c) { c.to_string() } else { format!("~{:x}~", u32::from(c)) }).collect()
}

/// The name of a variant, as in JSON.
pub(super) fn name(of: impl Serialize) -> String {
    let name = serde_json::to_value(of).expect("a variant is a word");
    name.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_scale_of_its_mean() {
        let of = |mean: f64, half: f64, interval| {
            spread(&Estimate { mean, low: mean - half, high: mean + half, runs: 3, interval })
        };
        for (mean, half, text) in [
            (14_612.0, 180.0, "14.6k ± 0.2k"),
            (14_612.0, 31.0, "14.61k ± 0.03k"),
            (500.2, 12.0, "500 ± 12"),
            (1000.4, 3.0, "1.000k ± 0.003k"),
            (7.0, 0.0, "7.00 ± 0.00"),
            (1.5e6, 2.5e4, "1.50M ± 0.03M"),
        ] {
            assert_eq!(of(mean, half, Interval::StudentT), text);
        }
        assert_eq!(of(14_612.0, 180.0, Interval::Range), "14.4k–14.8k");
        assert_eq!(of(14_612.0, 0.0, Interval::Single), "14.6k");
        let three = Estimate::of(&[14_500.0, 14_600.0, 14_700.0]).unwrap();
        assert_eq!(spread(&three), "14.6k ± 0.2k");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!((latency(None), latency(Some(f64::INFINITY))), ("–".into(), "–".into()));
        assert_eq!(
            (levels(&[]), levels(&[1]), levels(&[1, 2, 4])),
            ("–".into(), "1 client".into(), "1–4 clients".into())
        );
    }

    #[test]
    fn ticks_lose_the_digits_that_only_say_how_exact_they_are() {
        assert_eq!([trimmed("5.00k"), trimmed("1.50 ms"), trimmed("100 µs")], ["5k", "1.5 ms", "100 µs"]);
    }
}
