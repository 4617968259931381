//! Message bodies: by length, in chunks, or until the connection closes.
//!
//! The decoder holds a few words of state and no bytes: data stays in the caller's buffer, and the stream may be cut
//! anywhere. Chunk extensions and trailers are checked and read past, within bounds.

use super::{Reject, is_token};
use std::ops::Range;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After this many bytes; zero for no body.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// With the connection (responses only).
    UntilClose,
}

/// Takes a body out of a byte stream. Feed it what has arrived; it says what of that is data.
///
/// Call it until it consumes nothing: each call ends where a run of data does.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
    /// How much more data is allowed.
    allowance_bytes: u64,
    /// How much more of chunk extensions is allowed, over all chunks.
    extension_allowance_bytes: u16,
}

/// What [`Decoder::decode`] made of its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which part of the input is body data (may be empty).
    pub data: Range<usize>,
    /// How many bytes of the input are used up, framing included. Zero: more input is needed, or the body is complete.
    pub consumed: usize,
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Data, this much of it and then the end.
    Length(u64),
    /// Data without end.
    UntilClose,
    /// The digits of a chunk's size.
    Size { size: u64, digits: u8 },
    /// What follows them up to CR. `bytes` counts the line so far.
    Extension { size: u64, part: ExtensionPart, bytes: u16 },
    /// LF behind a chunk's size.
    SizeEnd { size: u64 },
    /// Data of a chunk, this much of it.
    Chunk(u64),
    /// CR behind a chunk's data.
    ChunkEnd,
    /// LF behind that.
    ChunkEndLf,
    /// The trailer section after the last chunk.
    Trailer { part: Part, bytes: u16, lines: u16 },
    /// All is read.
    Done,
}

/// What was read last of a chunk's extensions (RFC 9112, 7.1.1).
#[derive(Clone, Copy, Debug)]
enum ExtensionPart {
    /// A blank ahead of a semicolon.
    Blank,
    /// A semicolon, and blanks.
    Semicolon,
    Name,
    /// A blank behind a name.
    NameBlank,
    /// An equals sign, and blanks.
    Equals,
    Value,
    /// An opening quote, and what is between the quotes.
    Quoted,
    /// A backslash there.
    Backslash,
    /// The closing quote.
    Unquoted,
}

impl ExtensionPart {
    /// The part after one more byte; `None` if it may not stand there.
    fn after(self, byte: u8) -> Option<ExtensionPart> {
        use ExtensionPart::{Backslash, Blank, Equals, Name, NameBlank, Quoted, Semicolon, Unquoted, Value};
        match (self, byte) {
            (Quoted, b'"') => Some(Unquoted),
            (Quoted, b'\\') => Some(Backslash),
            (Quoted | Backslash, _) if is_text(byte) => Some(Quoted),
            (Quoted | Backslash, _) => None,

            (Semicolon | Equals, b' ' | b'\t') => Some(self),
            (Semicolon | Name, _) if is_token(byte) => Some(Name),
            (Equals, b'"') => Some(Quoted),
            (Equals | Value, _) if is_token(byte) => Some(Value),

            (Name | NameBlank, b' ' | b'\t') => Some(NameBlank),
            (Name | NameBlank, b'=') => Some(Equals),
            (Blank | Value | Unquoted, b' ' | b'\t') => Some(Blank),
            (Blank | Name | NameBlank | Value | Unquoted, b';') => Some(Semicolon),
            _ => None,
        }
    }

    /// Whether the line may end behind it.
    fn is_complete(self) -> bool {
        matches!(self, ExtensionPart::Name | ExtensionPart::Value | ExtensionPart::Unquoted)
    }
}

/// Where in a trailer line.
#[derive(Clone, Copy, Debug)]
enum Part {
    Start,
    Name,
    Value,
    /// LF behind a trailer field.
    Lf,
    /// LF behind the empty line that ends it all.
    LastLf,
}

/// Most digits of a chunk's size: a u64 holds no more.
const SIZE_DIGITS_MAX: u8 = 16;
/// Longest line of a chunk's size with its extensions, in bytes without the line end.
const SIZE_LINE_BYTES_MAX: u16 = 256;
/// Longest extensions of all chunks of a body together, in bytes.
const EXTENSION_BYTES_MAX: u16 = 16 << 10;
/// Longest trailer section, in bytes.
const TRAILER_BYTES_MAX: u16 = 4 << 10;
/// Most trailer fields.
const TRAILER_LINES_MAX: u16 = 64;

const TOO_LARGE: Reject = Reject::new(413, "the body is larger than the server takes");
const BAD_SIZE: Reject = Reject::bad("malformed chunk size");
const BAD_EXTENSION: Reject = Reject::bad("malformed or too long chunk extension");
const TOO_MUCH_EXTENSION: Reject = Reject::bad("too much in chunk extensions");
const BAD_TRAILER: Reject = Reject::bad("malformed trailer");

impl Decoder {
    /// A decoder for a body of at most `limit_bytes` of data; 413 at once if its length is known to be more.
    pub fn new(framing: Framing, limit_bytes: u64) -> Result<Decoder, Reject> {
        let state = match framing {
            Framing::Length(bytes) if bytes > limit_bytes => return Err(TOO_LARGE),
            Framing::Length(0) => State::Done,
            Framing::Length(bytes) => State::Length(bytes),
            Framing::Chunked => State::Size { size: 0, digits: 0 },
            Framing::UntilClose => State::UntilClose,
        };
        let extension_allowance_bytes = EXTENSION_BYTES_MAX;
        Ok(Decoder { state, allowance_bytes: limit_bytes, extension_allowance_bytes })
    }

    /// Consumes from the front of `input`. 400 for bad chunks, 413 above the limit, 431 for too much in trailers.
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, Reject> {
        let mut at = 0;
        while at < input.len() {
            let ready = (input.len() - at) as u64;
            let data = match self.state {
                State::Done => break,
                State::Length(left) => {
                    let data = ready.min(left);
                    self.state = if data == left { State::Done } else { State::Length(left - data) };
                    data
                }
                State::Chunk(left) => {
                    let data = ready.min(left);
                    self.state = if data == left { State::ChunkEnd } else { State::Chunk(left - data) };
                    data
                }
                State::UntilClose => {
                    self.allowance_bytes = self.allowance_bytes.checked_sub(ready).ok_or(TOO_LARGE)?;
                    ready
                }
                framing => {
                    self.state = self.after(framing, input[at])?;
                    at += 1;
                    continue;
                }
            };
            // No more than `input.len()`, so the cast is exact.
            let end = at + data as usize;
            return Ok(Step { data: at..end, consumed: end });
        }
        Ok(Step { data: at..at, consumed: at })
    }

    /// Whether the whole body has been decoded. Never true of [`Framing::UntilClose`].
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// The state after one byte of framing.
    fn after(&mut self, state: State, byte: u8) -> Result<State, Reject> {
        match (state, byte) {
            (State::Size { digits: 0, .. }, b'\r' | b';') => Err(BAD_SIZE),
            (State::Size { size, .. }, b'\r') => Ok(State::SizeEnd { size }),
            (State::Size { size, digits: digits @ 1.. }, b' ' | b'\t' | b';') => {
                self.extension(size, ExtensionPart::Blank, u16::from(digits), byte)
            }
            (State::Size { size, digits }, _) => match char::from(byte).to_digit(16) {
                Some(digit) if digits < SIZE_DIGITS_MAX => {
                    Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
                }
                _ => Err(BAD_SIZE),
            },

            (State::Extension { size, part, .. }, b'\r') if part.is_complete() => Ok(State::SizeEnd { size }),
            (State::Extension { size, part, bytes }, _) => self.extension(size, part, bytes, byte),

            (State::SizeEnd { size: 0 }, b'\n') => {
                Ok(State::Trailer { part: Part::Start, bytes: 0, lines: 0 })
            }
            (State::SizeEnd { size }, b'\n') => {
                self.allowance_bytes = self.allowance_bytes.checked_sub(size).ok_or(TOO_LARGE)?;
                Ok(State::Chunk(size))
            }
            (State::SizeEnd { .. }, _) => Err(BAD_SIZE),

            (State::ChunkEnd, b'\r') => Ok(State::ChunkEndLf),
            (State::ChunkEndLf, b'\n') => Ok(State::Size { size: 0, digits: 0 }),
            (State::ChunkEnd | State::ChunkEndLf, _) => Err(Reject::bad("no line end behind a chunk")),

            (State::Trailer { part, bytes, lines }, _) => after_trailer(part, bytes, lines, byte),

            (State::Length(_) | State::UntilClose | State::Chunk(_) | State::Done, _) => Ok(state),
        }
    }

    /// The state after one byte of a chunk's extensions, behind `bytes` bytes of the line.
    fn extension(&mut self, size: u64, part: ExtensionPart, bytes: u16, byte: u8) -> Result<State, Reject> {
        let part = part.after(byte).filter(|_| bytes < SIZE_LINE_BYTES_MAX).ok_or(BAD_EXTENSION)?;
        self.extension_allowance_bytes =
            self.extension_allowance_bytes.checked_sub(1).ok_or(TOO_MUCH_EXTENSION)?;
        Ok(State::Extension { size, part, bytes: bytes + 1 })
    }
}

/// The state after one byte of the trailer section, behind `bytes` bytes and `lines` fields of it.
fn after_trailer(part: Part, bytes: u16, mut lines: u16, byte: u8) -> Result<State, Reject> {
    if let (Part::LastLf, b'\n') = (part, byte) {
        return Ok(State::Done);
    }
    let part = match (part, byte) {
        (Part::Start, b'\r') => Part::LastLf,
        (Part::Start, _) if is_token(byte) => {
            lines += 1;
            Part::Name
        }
        (Part::Name, b':') => Part::Value,
        (Part::Name, _) if is_token(byte) => Part::Name,
        (Part::Value, b'\r') => Part::Lf,
        (Part::Value, _) if is_text(byte) => Part::Value,
        (Part::Lf, b'\n') => Part::Start,
        _ => return Err(BAD_TRAILER),
    };
    if bytes >= TRAILER_BYTES_MAX || lines > TRAILER_LINES_MAX {
        return Err(Reject::new(431, "too much in trailers"));
    }
    Ok(State::Trailer { part, bytes: bytes + 1, lines })
}

/// Whether a byte may stand in an extension or a field value: no control character but the tab.
const fn is_text(byte: u8) -> bool {
    matches!(byte, b'\t' | 0x20..=0x7e | 0x80..)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Decodes `input` in pieces of every size: the data, how many bytes it took and whether it is done, or the
    /// status of the refusal.
    fn check(framing: Framing, limit_bytes: u64, input: &[u8], expected: Result<(&[u8], usize, bool), u16>) {
        // Byte by byte, in a few pieces, and whole.
        for piece_bytes in [1, 2, 3, 7, input.len().max(1)] {
            let decoded = decode(framing, limit_bytes, input, piece_bytes).map_err(|reject| reject.status);
            let expected = expected.map(|(data, consumed, done)| (data.to_vec(), consumed, done));
            assert_eq!(decoded, expected, "{} in pieces of {piece_bytes}", input.escape_ascii());
        }
    }

    fn decode(
        framing: Framing,
        limit_bytes: u64,
        input: &[u8],
        piece_bytes: usize,
    ) -> Result<(Vec<u8>, usize, bool), Reject> {
        let mut decoder = Decoder::new(framing, limit_bytes)?;
        let (mut data, mut at) = (Vec::new(), 0);
        for end in (0..input.len()).step_by(piece_bytes).map(|start| (start + piece_bytes).min(input.len())) {
            loop {
                let step = decoder.decode(&input[at..end])?;
                data.extend_from_slice(&input[at..end][step.data]);
                at += step.consumed;
                if step.consumed == 0 {
                    break;
                }
            }
        }
        Ok((data, at, decoder.is_done()))
    }

    #[test]
    fn no_body_is_done_at_once() {
        check(Framing::Length(0), 0, b"GET", Ok((b"", 0, true)));
    }

    #[test]
    fn a_body_by_length_ends_there() {
        check(Framing::Length(5), 5, b"hello GET", Ok((b"hello", 5, true)));
        check(Framing::Length(5), 5, b"hell", Ok((b"hell", 4, false)));
        check(Framing::Length(6), 5, b"", Err(413));
    }

    #[test]
    fn a_body_until_close_never_ends() {
        check(Framing::UntilClose, 5, b"hello", Ok((b"hello", 5, false)));
        check(Framing::UntilClose, 5, b"hello!", Err(413));
    }

    #[test]
    fn chunks_are_put_together() {
        let input = b"3\r\nabc\r\n0a;x=\"\t\xff\"\r\n0123456789\r\n00\r\nT: v\r\n\r\nGET";
        check(Framing::Chunked, 13, input, Ok((b"abc0123456789", input.len() - 3, true)));
        check(Framing::Chunked, 12, input, Err(413));
    }

    #[test]
    fn a_chunk_over_the_limit_is_refused_before_its_data() {
        check(Framing::Chunked, 4, b"5\r\n", Err(413));
        check(Framing::Chunked, u64::MAX, b"ffffffffffffffff\r\n", Ok((b"", 18, false)));
        check(Framing::Chunked, u64::MAX, b"1\r\nx\r\nffffffffffffffff\r\n", Err(413));
    }

    #[test]
    fn a_size_has_sixteen_hexadecimal_digits_at_most_and_nothing_else() {
        check(Framing::Chunked, 9, b"0000000000000001\r\nx", Ok((b"x", 19, false)));
        check(Framing::Chunked, 9, b"00000000000000001\r\nx", Err(400));
        for byte in (0..=u8::MAX).filter(|byte| !byte.is_ascii_hexdigit() && !matches!(byte, b'\r' | b';')) {
            check(Framing::Chunked, 9, &[b'1', byte, b'1', b'\r', b'\n'], Err(400));
            check(Framing::Chunked, 9, &[byte, b'1', b'\r', b'\n'], Err(400));
        }
    }

    #[test]
    fn a_size_line_has_256_bytes_at_most() {
        let line = |bytes: usize| [b"1;", &vec![b'x'; bytes - 2][..], b"\r\n"].concat();
        check(Framing::Chunked, 9, &line(256), Ok((b"", 258, false)));
        check(Framing::Chunked, 9, &line(257), Err(400));
    }

    #[test]
    fn extensions_are_names_with_or_without_values() {
        for (extension, legal) in [
            (&b";a"[..], true),
            (b" ;a", true),
            (b"\t ; a", true),
            (b";a=b", true),
            (b"; a = b ; c", true),
            (b";a=\"\"", true),
            (b";a=\"; b=\\\"c\\\\\" ;d", true),
            (b";a=\"\xff\t\"", true),
            (b" ", false),
            (b";", false),
            (b";a;", false),
            (b";a=", false),
            (b";=b", false),
            (b";a ", false),
            (b";a=b ", false),
            (b";a b", false),
            (b";a==b", false),
            (b";a=b=c", false),
            (b";a=b\"c\"", false),
            (b";a=\"b\"c", false),
            (b";a=\"b", false),
            (b";a=\"\\\"", false),
            (b";a=\"\x01\"", false),
            (b";a=\"\\\x01\"", false),
            (b";\"a\"", false),
            (b";a/b", false),
            (b";\xff", false),
            (b" a", false),
            (b"=a", false),
        ] {
            let input = [b"1", extension, b"\r\nx"].concat();
            let expected = if legal { Ok((&b"x"[..], input.len(), false)) } else { Err(400) };
            check(Framing::Chunked, 9, &input, expected);
        }
    }

    #[test]
    fn extensions_of_all_chunks_have_16_kib_at_most() {
        // 64 bytes of extension each.
        let chunk = [b"1;", &vec![b'x'; 63][..], b"\r\ny\r\n"].concat();
        let body = |count: usize, more: &[u8]| [&chunk.repeat(count), more, b"\r\n\r\n"].concat();
        let (data, most) = (vec![b'y'; 256], body(256, b"0"));
        check(Framing::Chunked, 999, &most, Ok((&data, most.len(), true)));
        check(Framing::Chunked, 999, &body(256, b"0;a"), Err(400));
    }

    #[test]
    fn trailers_have_4_kib_and_64_lines_at_most() {
        let trailer = |bytes: usize| [b"0\r\nT:", &vec![b'x'; bytes - 5][..], b"\r\n\r\n"].concat();
        // 4096 bytes are the field, its line end and the CR of the last line.
        check(Framing::Chunked, 0, &trailer(4096), Ok((b"", 3 + 4097, true)));
        check(Framing::Chunked, 0, &trailer(4097), Err(431));
        let lines = |count: usize| [b"0\r\n", "T:\r\n".repeat(count).as_bytes(), b"\r\n"].concat();
        check(Framing::Chunked, 0, &lines(64), Ok((b"", 3 + 256 + 2, true)));
        check(Framing::Chunked, 0, &lines(65), Err(431));
    }
}
