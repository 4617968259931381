//! Sets of HTTP statuses, as `200,204`, `2xx` or `200-299`.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Statuses, as ranges in the order they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statuses(Vec<RangeInclusive<u16>>);

impl Statuses {
    /// What usually counts as a success: 200 to 399.
    pub fn usual() -> Statuses {
        Statuses(vec![200..=399])
    }

    /// Of single statuses.
    pub(super) fn of(list: &[u16]) -> Statuses {
        Statuses(list.iter().map(|status| *status..=*status).collect())
    }

    pub(super) fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Statuses, String> {
        let fail = |part: &str| {
            format!("`{part}` is no status; hint: write 200, 2xx or 200-299, with commas between several")
        };
        let number = |text: &str| text.parse().ok().filter(|status| (200..=599).contains(status));
        let range = |part: &str| {
            let part = part.trim();
            let class = part.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok());
            let found = match (class, part.split_once('-')) {
                (Some(class @ 2..=5), _) => Some(class * 100..=class * 100 + 99),
                (_, Some((first, last))) => match number(first).zip(number(last)) {
                    Some((first, last)) if first > last => {
                        return Err(format!(
                            "`{part}`: {first} is above {last}; hint: write the smaller status first: {last}-{first}"
                        ));
                    }
                    range => range.map(|(first, last)| first..=last),
                },
                _ => number(part).map(|status| status..=status),
            };
            found.ok_or_else(|| fail(part))
        };
        text.split(',').map(range).collect::<Result<_, _>>().map(Statuses)
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, range) in self.0.iter().enumerate() {
            f.write_str(if place == 0 { "" } else { "," })?;
            let (first, last) = (range.start(), range.end());
            if first == last { write!(f, "{first}")? } else { write!(f, "{first}-{last}")? }
        }
        Ok(())
    }
}

kv::serde_as_text!(Statuses);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_single_ones_classes_and_ranges() {
        for (text, shown, within, without) in [
            ("200", "200", 200, 201),
            ("200,204", "200,204", 204, 203),
            ("2xx", "200-299", 299, 300),
            ("200-399,404", "200-399,404", 404, 400),
        ] {
            let statuses: Statuses = text.parse().unwrap();
            assert_eq!(statuses.to_string(), shown);
            assert!(statuses.contains(within) && !statuses.contains(without), "{text}");
            assert_eq!(shown.parse::<Statuses>().unwrap(), statuses);
        }
        for wrong in ["", "ok", "199", "600", "1xx", "200,"] {
            assert!(wrong.parse::<Statuses>().unwrap_err().contains("is no status"), "{wrong}");
        }
        let why = "204-200".parse::<Statuses>().unwrap_err();
        assert_eq!(why, "`204-200`: 204 is above 200; hint: write the smaller status first: 200-204");
    }
}
