//! What may become of a request, and in which order.
//!
//! A new kind of answer is a row of [`KINDS`]. Nothing here knows how the load generator calls a failure.

use std::fmt::Write;

/// What happens to the connection once the bytes of an answer are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// It waits for the next request.
    Keep,
    /// It is closed in order.
    Close,
    /// It is closed with a reset.
    Reset,
    /// Nothing more is said on it, until the client closes it.
    Silence,
}

/// A row of [`KINDS`].
#[derive(Debug)]
pub struct Kind {
    /// What `--faults` and the account call it.
    pub name: &'static str,
    /// What happens, in one sentence.
    pub about: &'static str,
    /// The bytes of the answer to a request for the key.
    pub(super) bytes: fn(&str) -> Vec<u8>,
    pub(super) after: After,
}

/// The place of what is done unless told otherwise.
pub(super) const GOOD: usize = 0;
/// The place of what is done where a schedule has nothing (more) to say.
pub(super) const UNSCHEDULED: usize = 1;
/// The place of what is done to those who are to be refused when they come again.
pub(super) const RESET: usize = 2;

/// Everything that may become of a request.
pub static KINDS: &[Kind] = &[
    Kind {
        name: "good",
        about: "200 with a value of the key that was asked for.",
        bytes: |key| answer("200 OK", "", &value(key)),
        after: After::Keep,
    },
    Kind {
        name: "absent",
        about: "404; the answer to whatever is not in the schedule of faults.",
        bytes: |_| answer("404 Not Found", "", ""),
        after: After::Keep,
    },
    Kind {
        name: "reset",
        about: "A reset instead of an answer.",
        bytes: |_| Vec::new(),
        after: After::Reset,
    },
    Kind {
        name: "reset_in_body",
        about: "A reset inside the body.",
        bytes: half_a_body,
        after: After::Reset,
    },
    Kind {
        name: "closed",
        about: "The connection is closed instead of an answer.",
        bytes: |_| Vec::new(),
        after: After::Close,
    },
    Kind {
        name: "closed_in_head",
        about: "The connection is closed inside the head.",
        bytes: |_| b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(),
        after: After::Close,
    },
    Kind {
        name: "closed_in_body",
        about: "The connection is closed inside the body.",
        bytes: half_a_body,
        after: After::Close,
    },
    Kind {
        name: "long_body",
        about: "The body is longer than its length says.",
        bytes: |key| [answer("200 OK", "", &value(key)), b"surplus".to_vec()].concat(),
        after: After::Silence,
    },
    Kind {
        name: "two_lengths",
        about: "The head names two lengths of the body.",
        bytes: |key| answer("200 OK", "Content-Length: 3\r\n", &value(key)),
        after: After::Silence,
    },
    Kind {
        name: "slow_body",
        about: "Head and half of a body, then nothing.",
        bytes: half_a_body,
        after: After::Silence,
    },
    Kind { name: "silence", about: "No answer.", bytes: |_| Vec::new(), after: After::Silence },
    Kind {
        name: "garbage",
        about: "Bytes that are no HTTP.",
        bytes: |_| b"\x00\x01 this is no answer\r\n\r\n".to_vec(),
        after: After::Silence,
    },
    Kind {
        name: "wrong_value",
        about: "200 with the value of another key.",
        bytes: |_| answer("200 OK", "", &value("another")),
        after: After::Keep,
    },
    Kind {
        name: "status_400",
        about: "400.",
        bytes: |_| answer("400 Bad Request", "", ""),
        after: After::Keep,
    },
    Kind {
        name: "status_403",
        about: "403.",
        bytes: |_| answer("403 Forbidden", "", "not for you"),
        after: After::Keep,
    },
    Kind {
        name: "status_429",
        about: "429.",
        bytes: |_| answer("429 Too Many Requests", "Retry-After: 1\r\n", ""),
        after: After::Keep,
    },
    Kind {
        name: "status_500",
        about: "500.",
        bytes: |_| answer("500 Internal Server Error", "", "sorry"),
        after: After::Keep,
    },
    Kind {
        name: "status_503",
        about: "503 that does not say whether anything was done.",
        bytes: |_| answer("503 Service Unavailable", "", ""),
        after: After::Keep,
    },
    Kind {
        name: "status_503_not_applied",
        about: "503 that says that nothing was done.",
        bytes: |_| answer("503 Service Unavailable", "weir-outcome: not-applied\r\n", ""),
        after: After::Keep,
    },
    Kind {
        name: "status_503_unknown",
        about: "503 that says that it may have been done.",
        bytes: |_| answer("503 Service Unavailable", "weir-outcome: unknown\r\n", ""),
        after: After::Keep,
    },
    Kind {
        name: "status_504",
        about: "504.",
        bytes: |_| answer("504 Gateway Timeout", "", ""),
        after: After::Keep,
    },
];

/// What is to become of the requests, in which order: so many of each kind, shuffled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// How many of each kind, as they were written.
    counts: Vec<(usize, u32)>,
}

impl std::str::FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Schedule, String> {
        let count = |part: &str| {
            let (name, count) = part.split_once('=').ok_or("write KIND=COUNT,KIND=COUNT")?;
            let kind = KINDS.iter().position(|kind| kind.name == name).ok_or_else(|| {
                let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                format!("there is no {name:?}; known are {}", known.join(", "))
            })?;
            let count = count.parse().map_err(|_| format!("{count:?} is no number of requests"))?;
            Ok((kind, count))
        };
        text.split(',').map(count).collect::<Result<_, String>>().map(|counts| Schedule { counts })
    }
}

impl Schedule {
    /// Kinds in a random order, of which the last is to be done first.
    pub(super) fn shuffled(&self, seed: u64) -> Vec<u8> {
        let mut kinds: Vec<u8> = (self.counts.iter())
            .flat_map(|(kind, count)| std::iter::repeat_n(*kind as u8, *count as usize))
            .collect();
        let mut state = seed;
        for last in (1..kinds.len()).rev() {
            // SplitMix64 (Steele, Lea & Flood 2014), scaled; the bias is that of 64 bits over 17.
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            kinds.swap(last, ((u128::from(mixed) * (last as u128 + 1)) >> 64) as usize);
        }
        kinds
    }
}

/// A value as the load generator writes them: it begins with its key.
fn value(key: &str) -> String {
    format!("{key}=................")
}

/// An answer that says that it is longer than it is.
fn half_a_body(key: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{}", value(key)).into_bytes()
}

fn answer(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let mut text = String::with_capacity(128);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\n\r\n{body}",
        length = body.len()
    );
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_has_what_was_asked_for_in_an_order_of_its_seed() {
        let schedule: Schedule = "good=100,reset=30,status_429=5".parse().unwrap();
        let kinds = schedule.shuffled(1);
        let count = |name: &str| {
            let place = KINDS.iter().position(|kind| kind.name == name).unwrap();
            kinds.iter().filter(|kind| usize::from(**kind) == place).count()
        };
        assert_eq!((kinds.len(), count("good"), count("reset"), count("status_429")), (135, 100, 30, 5));
        assert_eq!(kinds, schedule.shuffled(1));
        assert_ne!(kinds, schedule.shuffled(2));
        assert_ne!(kinds[..30], [2; 30], "it is not shuffled");
    }

    #[test]
    fn what_is_no_schedule_is_told() {
        for (text, complaint) in [
            ("", "write KIND=COUNT"),
            ("reset", "write KIND=COUNT"),
            ("rest=3", "there is no \"rest\"; known are good, absent, reset"),
            ("reset=many", "\"many\" is no number"),
        ] {
            let why = text.parse::<Schedule>().unwrap_err();
            assert!(why.starts_with(complaint), "{why}");
        }
    }

    #[test]
    fn the_places_that_code_names_are_those_of_the_table() {
        for (place, name) in [(GOOD, "good"), (UNSCHEDULED, "absent"), (RESET, "reset")] {
            assert_eq!(KINDS[place].name, name);
        }
    }
}
