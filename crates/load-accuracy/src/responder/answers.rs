//! The answers of the responder, good and faulty: one row each, with the error class that the load generator has to report.

use Then::{Close, GoAway, Hang, Keep, Reset, ResetStream};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::iter::repeat_n;

/// What happens to the connection once the bytes of an answer are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// It waits for the next request.
    Keep,
    /// It is closed in order.
    Close,
    /// It is closed with a reset.
    Reset,
    /// It stays open, and nothing more is sent on it.
    Hang,
    /// Of HTTP/2: the stream of the request is reset.
    ResetStream,
    /// Of HTTP/2: GOAWAY calls all its requests not begun, and it is closed.
    GoAway,
}

/// A row of [`ANSWERS`].
#[derive(Debug)]
pub struct AnswerKind {
    /// What the record calls it.
    pub name: &'static str,
    /// The error class over HTTP/1.1 and over HTTP/2; empty where the answer is good.
    classes: [&'static str; 2],
    /// The bytes of the answer to a request for the key, as HTTP/1.1.
    pub(super) bytes: fn(&str) -> Vec<u8>,
    pub(super) then: Then,
    /// How many are in the schedule of the fault check.
    pub count: u32,
    /// How many are in that of its short form.
    pub count_short: u32,
}

impl AnswerKind {
    /// The error class; empty where the answer is good. `None` if this protocol has no such answer.
    pub fn class(&self, http2: bool) -> Option<&'static str> {
        let is_of_http2 = matches!(self.then, ResetStream | GoAway);
        (http2 || !is_of_http2).then_some(self.classes[usize::from(http2)])
    }

    /// The same row with another class over HTTP/2.
    const fn over_http2(mut self, class: &'static str) -> AnswerKind {
        self.classes[1] = class;
        self
    }
}

const fn row(
    name: &'static str,
    class: &'static str,
    bytes: fn(&str) -> Vec<u8>,
    then: Then,
    [count, count_short]: [u32; 2],
) -> AnswerKind {
    AnswerKind { name, classes: [class, class], bytes, then, count, count_short }
}

/// The place of the good answer in [`ANSWERS`].
pub(super) const GOOD: usize = 0;
/// The place of the answer before a refusal and after the schedule.
pub(super) const ABSENT: usize = 1;
/// The place of the answer to clients that are refused when they connect again.
pub(super) const RESET: usize = 2;

/// Every kind of answer.
///
/// Clients pause after a broken connection and wait for what never comes, so most faults in the schedule keep the
/// connection. No two classes have the same total: a generator that confuses them is noticed.
pub static ANSWERS: &[AnswerKind] = &[
    row("good", "", good, Keep, [60_000, 2000]),
    row("absent", "", |_| head("404 Not Found", "", ""), Keep, [0, 0]),
    row("reset", "reset", nothing, Reset, [1001, 41]),
    row("reset_in_body", "reset", half_a_body, Reset, [501, 21]),
    row("closed", "reset", nothing, Close, [1001, 41]),
    row("closed_in_head", "closed_early", |_| b"HTTP/1.1 200 OK\r\nContent-Le".to_vec(), Close, [1003, 41])
        .over_http2("reset"),
    row("closed_in_body", "closed_early", half_a_body, Close, [1006, 44]),
    row("long_body", "wrong_length", |key| [good(key), b"surplus".to_vec()].concat(), Hang, [1007, 46])
        .over_http2("malformed"),
    row("two_lengths", "wrong_length", two_lengths, Hang, [1012, 51]).over_http2("malformed"),
    row("garbage", "malformed", |_| b"\x00\x01 not HTTP\r\n\r\n".to_vec(), Hang, [1013, 43]),
    row("slow_body", "slow_body", half_a_body, Hang, [251, 5]),
    row("silence", "timeout", nothing, Hang, [263, 7]),
    row("wrong_value", "wrong_value", |_| good("another"), Keep, [12_001, 201]),
    row("status_400", "http_4xx", |_| head("400 Bad Request", "", ""), Keep, [10_003, 181]),
    row("status_403", "http_4xx", |_| head("403 Forbidden", "", "not for you"), Keep, [10_004, 182]),
    row("status_429", "http_429", |_| head("429 Too Many Requests", "", ""), Keep, [12_011, 211]),
    row("status_500", "http_5xx", |_| head("500 Internal Server Error", "", "sorry"), Keep, [12_021, 203]),
    row("status_503", "http_5xx", |_| unavailable(""), Keep, [6002, 124]),
    row("status_503_not_applied", "http_503_not_applied", |_| unavailable(NOT_APPLIED), Keep, [10_013, 207]),
    row("status_503_unknown", "http_503_unknown", |_| unavailable(UNKNOWN), Keep, [10_033, 219]),
    row("status_504", "http_504", |_| head("504 Gateway Timeout", "", ""), Keep, [10_051, 223]),
    row("stream_reset", "stream_reset", nothing, ResetStream, [5003, 107]),
    row("stream_reset_in_body", "stream_reset", half_a_body, ResetStream, [5009, 109]),
    row("goaway_in_body", "goaway", half_a_body, GoAway, [1021, 47]),
];

/// Places in [`ANSWERS`] in a random order: of each kind of the protocol as many as it says for the fault check or for its
/// short form.
pub(crate) fn schedule(short: bool, http2: bool, seed: u64) -> Vec<u8> {
    let count = |kind: &AnswerKind| match kind.class(http2) {
        None => 0,
        Some(_) if short => kind.count_short as usize,
        Some(_) => kind.count as usize,
    };
    let mut places: Vec<u8> =
        ANSWERS.iter().zip(0..).flat_map(|(kind, place)| repeat_n(place, count(kind))).collect();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for last in (1..places.len()).rev() {
        places.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    places
}

/// What a 503 says of its outcome.
const NOT_APPLIED: &str = "weir-outcome: not-applied\r\n";
const UNKNOWN: &str = "weir-outcome: unknown\r\n";

/// A value as the load generator writes them: it begins with its key.
fn value(key: &str) -> String {
    format!("{key}=................")
}

fn good(key: &str) -> Vec<u8> {
    head("200 OK", "", &value(key))
}

fn nothing(_: &str) -> Vec<u8> {
    Vec::new()
}

fn half_a_body(key: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{}", value(key)).into_bytes()
}

fn two_lengths(key: &str) -> Vec<u8> {
    head("200 OK", "Content-Length: 3\r\n", &value(key))
}

fn unavailable(fields: &str) -> Vec<u8> {
    head("503 Service Unavailable", fields, "")
}

/// A whole answer with its length.
fn head(status: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_has_what_was_asked_for_in_an_order_of_its_seed() {
        let seeded = |seed| schedule(true, true, seed);
        let places = seeded(1);
        let over_http1 = schedule(true, false, 1);
        for (place, kind) in ANSWERS.iter().enumerate() {
            let count = |places: &[u8]| places.iter().filter(|one| usize::from(**one) == place).count();
            assert_eq!(count(&places), kind.count_short as usize, "{}", kind.name);
            let expected = kind.class(false).map_or(0, |_| kind.count_short);
            assert_eq!(count(&over_http1), expected as usize, "{}", kind.name);
        }
        assert_eq!(places, seeded(1));
        assert_ne!(places, seeded(2));
        assert_ne!(places[..30], [GOOD as u8; 30], "it is not shuffled");
    }

    #[test]
    fn the_places_that_code_names_are_those_of_the_table() {
        for (place, name) in [(GOOD, "good"), (ABSENT, "absent"), (RESET, "reset")] {
            assert_eq!(ANSWERS[place].name, name);
        }
    }
}
