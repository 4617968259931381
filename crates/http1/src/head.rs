//! What the heads of requests and responses have in common: line ends, field limits, and what the fields say about
//! framing and connection.
//!
//! Every refusal here is decided by the bytes up to the first offence, so that it does not depend on how the network
//! cut the stream: a prefix that is refused stays refused with the same status.

use super::{FIELDS_MAX, Framing, Reject, is_token};
use httparse::{Error, Header};

const TWO_LENGTHS: Reject = Reject::bad("two different Content-Length fields");
const TWO_CODINGS: Reject = Reject::bad("two Transfer-Encoding fields");
const LENGTH_AND_CODING: Reject = Reject::bad("both Content-Length and Transfer-Encoding");

/// Refusals of heads that say two things about where their body ends.
pub(super) const CONTRADICTIONS: [Reject; 3] = [TWO_LENGTHS, TWO_CODINGS, LENGTH_AND_CODING];

/// What the fields of a head say that its reader must act on.
#[derive(Default)]
pub(super) struct Meaning<'b> {
    /// The first `Host`.
    pub(super) host: Option<&'b [u8]>,
    /// Whether there was another.
    pub(super) host_repeated: bool,
    /// The first `Origin`.
    pub(super) origin: Option<&'b [u8]>,
    /// `Content-Length`.
    length: Option<u64>,
    /// Whether it was given again, with the same value.
    pub(super) length_repeated: bool,
    /// `Transfer-Encoding`.
    coding: Option<&'b [u8]>,
    /// `Expect: 100-continue`.
    pub(super) expects_continue: bool,
    /// `Expect` with anything else.
    pub(super) expects_other: bool,
    close: bool,
    keep_alive: bool,
}

impl<'b> Meaning<'b> {
    /// Reads all fields once. Refuses what is wrong in either kind of message.
    pub(super) fn of(fields: &[Header<'b>]) -> Result<Meaning<'b>, Reject> {
        let mut meaning = Meaning::default();
        for field in fields {
            // By length first: of the usual fields only a few get as far as a comparison.
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                4 if is("host") => match meaning.host {
                    None => meaning.host = Some(field.value),
                    Some(_) => meaning.host_repeated = true,
                },
                6 if is("origin") => meaning.origin = meaning.origin.or(Some(field.value)),
                6 if is("expect") => match field.value.eq_ignore_ascii_case(b"100-continue") {
                    true => meaning.expects_continue = true,
                    false => meaning.expects_other = true,
                },
                10 if is("connection") => {
                    for token in field.value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                        meaning.close |= token.eq_ignore_ascii_case(b"close");
                        meaning.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                14 if is("content-length") => {
                    let length = length(field.value)?;
                    if meaning.length.is_some_and(|other| other != length) {
                        return Err(TWO_LENGTHS);
                    }
                    meaning.length_repeated = meaning.length.is_some();
                    meaning.length = Some(length);
                }
                17 if is("transfer-encoding") => {
                    if meaning.coding.is_some() {
                        return Err(TWO_CODINGS);
                    }
                    meaning.coding = Some(field.value);
                }
                _ => {}
            }
        }
        Ok(meaning)
    }

    /// How the body ends, or `None` if the fields do not say. `minor` is the version's last digit.
    pub(super) fn framing(&self, minor: u8) -> Result<Option<Framing>, Reject> {
        match (self.length, self.coding) {
            (length, None) => Ok(length.map(Framing::Length)),
            (Some(_), Some(_)) => Err(LENGTH_AND_CODING),
            (None, Some(_)) if minor == 0 => Err(Reject::bad("Transfer-Encoding in HTTP/1.0")),
            (None, Some(coding)) => chunked(coding).map(|()| Some(Framing::Chunked)),
        }
    }

    /// Whether the connection outlives this message.
    pub(super) fn keep_alive(&self, minor: u8) -> bool {
        !self.close && (minor == 1 || self.keep_alive)
    }
}

/// The value of the first field called `name`, in any case.
pub(super) fn find<'b>(fields: &[Header<'b>], name: &str) -> Option<&'b [u8]> {
    fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
}

/// A `Content-Length`: digits and nothing else. What one reader takes for a number and another does not, smuggles.
fn length(value: &[u8]) -> Result<u64, Reject> {
    match std::str::from_utf8(value) {
        // `parse` alone would take a sign.
        Ok(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| Reject::bad("Content-Length is too large"))
        }
        _ => Err(Reject::bad("Content-Length is not a number")),
    }
}

/// Accepts a `Transfer-Encoding` of `chunked`. Other well-formed codings are only beyond us (501); one whose body
/// has no certain end is an error (RFC 9112, 6.1 and 6.3).
fn chunked(value: &[u8]) -> Result<(), Reject> {
    const CHUNKED: &[u8] = b"chunked";
    if value.eq_ignore_ascii_case(CHUNKED) {
        return Ok(());
    }
    let mut chunked_seen = false;
    for coding in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
        if chunked_seen {
            return Err(Reject::bad("chunked is not the last transfer coding"));
        }
        if coding.is_empty() || !coding.iter().copied().all(is_token) {
            return Err(Reject::bad("malformed Transfer-Encoding"));
        }
        chunked_seen = coding.eq_ignore_ascii_case(CHUNKED);
    }
    Err(Reject::new(501, "only the transfer coding chunked is implemented"))
}

/// Refuses a line that ends in LF without CR, which the tokenizer lets pass. `head` may still be incomplete.
pub(super) fn lines_end_in_crlf(head: &[u8]) -> Result<(), Reject> {
    for end in memchr::memchr_iter(b'\n', head) {
        if end == 0 || head[end - 1] != b'\r' {
            return Err(Reject::bad("a line ends in LF without CR"));
        }
    }
    Ok(())
}

/// The same of a whole head that the tokenizer has taken apart, by a look at the ends of its lines only. The start line
/// ends at `start_line_end`.
pub(super) fn known_lines_end_in_crlf(
    head: &[u8],
    start_line_end: usize,
    fields: &[Header<'_>],
) -> Result<(), Reject> {
    // A value is a part of the head, so its place in it is known. Behind it only blanks were cut off.
    let ends_well = |field: &Header<'_>| {
        let start = field.value.as_ptr().addr().wrapping_sub(head.as_ptr().addr());
        let rest = head.get(start.wrapping_add(field.value.len())..).unwrap_or_default();
        rest.iter().find(|&&byte| !matches!(byte, b' ' | b'\t')) == Some(&b'\r')
    };
    let all =
        head.get(start_line_end) == Some(&b'\r') && fields.iter().all(ends_well) && head.ends_with(b"\r\n");
    // Where that is in doubt, every line end decides.
    if all { Ok(()) } else { lines_end_in_crlf(head) }
}

/// The refusal for what the tokenizer stopped at. `version` is the start line from where its version should be.
pub(super) fn refusal(error: Error, head: &[u8], version: &[u8]) -> Reject {
    match error {
        Error::Version => version_refusal(version),
        // The tokenizer has read the start line and one field too many; a bare LF among those came first.
        Error::TooManyHeaders => {
            let read = memchr::memchr_iter(b'\n', head).nth(FIELDS_MAX + 1).map_or(head.len(), |end| end + 1);
            match lines_end_in_crlf(&head[..read]) {
                Ok(()) => Reject::new(431, "too many header fields"),
                Err(reject) => reject,
            }
        }
        Error::HeaderName => Reject::bad("malformed field name"),
        Error::HeaderValue => Reject::bad("malformed field value"),
        Error::NewLine => Reject::bad("CR without LF, or garbage at the end of a line"),
        Error::Token | Error::Status => Reject::bad("malformed start line"),
    }
}

/// 505 for a version of HTTP that is not ours, 400 for what is no version at all; decided by the first wrong byte,
/// as the tokenizer does.
fn version_refusal(version: &[u8]) -> Reject {
    const UNSUPPORTED: Reject = Reject::new(505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    const MALFORMED: Reject = Reject::bad("malformed HTTP version");
    let Some(number) = version.strip_prefix(b"HTTP/") else { return MALFORMED };
    match number {
        [b'1', b'.', minor, ..] if minor.is_ascii_digit() => UNSUPPORTED,
        [b'1', ..] => MALFORMED,
        [major, ..] if major.is_ascii_digit() => UNSUPPORTED,
        _ => MALFORMED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the fields say in HTTP/1.1: framing and keep-alive, or the status of the refusal.
    fn check(fields: &[(&str, &str)], expected: Result<(Option<Framing>, bool), u16>) {
        let fields: Vec<Header> =
            fields.iter().map(|(name, value)| Header { name, value: value.as_bytes() }).collect();
        let said = Meaning::of(&fields).and_then(|meaning| Ok((meaning.framing(1)?, meaning.keep_alive(1))));
        assert_eq!(said.map_err(|reject| reject.status), expected, "{fields:?}");
    }

    #[test]
    fn no_fields_say_nothing() {
        check(&[], Ok((None, true)));
    }

    #[test]
    fn names_are_known_in_any_case() {
        check(&[("content-length", "7"), ("CONNECTION", "Close")], Ok((Some(Framing::Length(7)), false)));
    }

    #[test]
    fn names_of_the_same_length_are_told_apart() {
        check(
            &[("connectiom", "close"), ("content-lengti", "x"), ("transfer-encodinh", "x")],
            Ok((None, true)),
        );
    }

    #[test]
    fn the_largest_length_is_read_and_one_more_refused() {
        check(&[("Content-Length", "18446744073709551615")], Ok((Some(Framing::Length(u64::MAX)), true)));
        check(&[("Content-Length", "18446744073709551616")], Err(400));
        check(&[("Content-Length", "99999999999999999999999")], Err(400));
    }

    #[test]
    fn no_byte_but_a_digit_is_part_of_a_length() {
        for byte in 0..=0x7f_u8 {
            let value = format!("1{}1", char::from(byte));
            let digit = u64::from(byte.wrapping_sub(b'0'));
            let expected = match byte {
                b'0'..=b'9' => Ok((Some(Framing::Length(101 + 10 * digit)), true)),
                _ => Err(400),
            };
            check(&[("Content-Length", &value)], expected);
        }
    }

    #[test]
    fn a_length_with_a_coding_is_refused_before_the_coding_is_judged() {
        check(&[("Transfer-Encoding", "gzip")], Err(501));
        check(&[("Transfer-Encoding", "gzip"), ("Content-Length", "1")], Err(400));
    }

    // The quick look must see what the search over every line end sees, wherever a CR is missing.
    #[test]
    fn a_bare_lf_in_a_whole_head_is_found_by_the_ends_of_its_lines() {
        let text = "GET /a HTTP/1.1\r\nHost: h\r\nEmpty:\r\nBlank:  \t\r\nTrailed: x \t \r\nX: y\r\n\r\n";
        let crs: Vec<usize> = text.match_indices('\r').map(|(at, _)| at).collect();
        for left_out in 0..1_usize << crs.len() {
            let mut head = text.as_bytes().to_vec();
            for (bit, at) in crs.iter().enumerate().rev() {
                if left_out & 1 << bit != 0 {
                    head.remove(*at);
                }
            }
            let mut slots = [httparse::EMPTY_HEADER; 8];
            let mut request = httparse::Request::new(&mut slots);
            assert_eq!(request.parse(&head), Ok(httparse::Status::Complete(head.len())));
            let looked = known_lines_end_in_crlf(&head, "GET /a HTTP/1.1".len(), request.headers);
            assert_eq!(looked.is_ok(), left_out == 0, "{}", head.escape_ascii());
            assert_eq!(looked.is_ok(), lines_end_in_crlf(&head).is_ok());
        }
    }

    #[test]
    fn a_bare_lf_is_found_wherever_it_is() {
        for (head, expected) in [
            (&b""[..], true),
            (b"a", true),
            (b"a\r\nb\r\n\r\n", true),
            (b"\n", false),
            (b"a\n", false),
            (b"a\r\nb\n\r\n", false),
            (b"a\r\n\n", false),
        ] {
            assert_eq!(lines_end_in_crlf(head).is_ok(), expected, "{}", head.escape_ascii());
        }
    }
}
