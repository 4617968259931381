//! The HTTP codec in both directions.
//!
//! Every split of the bytes gives the same messages. What is accepted is read as a plain reader reads it, who knows only lines,
//! and as the same again after it was written anew.

use super::splits::splits;
use http1::request::Method;
use http1::response::Familiar;
use http1::{Decoder, Framing, Limits, Reject, Slots, request, response};
use std::ops::Range;

/// So small that short inputs reach them.
const LOW: Limits = Limits { target_bytes: 48, head_bytes: 512 };
const BODY_BYTES_MAX: u64 = 1 << 10;

/// Requests as the server decodes them. The first byte chooses the limits.
pub fn request(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    check(Reader::Server(if choice & 1 == 0 { Limits::USUAL } else { LOW }), bytes);
}

/// Responses as a client decodes them. The first byte says whether its requests are HEAD.
pub fn response(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    check(Reader::Client { to_head: choice & 1 != 0 }, bytes);
}

/// Which end of the connection reads.
#[derive(Clone, Copy)]
enum Reader {
    Server(Limits),
    Client { to_head: bool },
}

/// A message as it was decoded.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    start: Start,
    /// Of a request.
    fields: Vec<(String, Vec<u8>)>,
    framing: Framing,
    keep_alive: bool,
    data: Vec<u8>,
    /// Where head and body are in the stream.
    head: Range<usize>,
    body: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
enum Start {
    Request { method: Method, target: Vec<u8>, is_plain: bool, is_http10: bool, expect_continue: bool },
    Response { status: u16 },
}

/// What the bytes end in.
#[derive(Debug, PartialEq)]
enum End {
    /// Between two messages.
    Open,
    /// The last message said so.
    Closed,
    /// A part of a head, or of a body with this head and data.
    Part(Option<Message>),
    /// With this status, and whether the head said two things about its end.
    Refused(u16, bool),
}

fn check(reader: Reader, bytes: &[u8]) {
    let (messages, end) = decode(reader, bytes, &[]);
    for cuts in splits(bytes) {
        let split = decode(reader, bytes, &cuts);
        assert_eq!((&messages, &end), (&split.0, &split.1), "cut at {cuts:?}");
    }
    for message in &messages {
        read_plainly(reader, bytes, message);
        write_anew(reader, bytes, message);
    }
}

/// Reads what arrives in pieces that end at `cuts`.
fn decode(reader: Reader, bytes: &[u8], cuts: &[usize]) -> (Vec<Message>, End) {
    let mut messages = Vec::new();
    let mut body: Option<(Message, Decoder)> = None;
    let mut familiar = Familiar::default();
    let mut at = 0;
    for &arrived in cuts.iter().chain([&bytes.len()]) {
        loop {
            let input = &bytes[at..arrived];
            let (mut message, mut decoder) = match body.take() {
                Some(body) => body,
                None => match head(reader, input, at, &mut familiar) {
                    Ok(Some(begun)) => {
                        at = begun.0.head.end;
                        begun
                    }
                    Ok(None) => break,
                    Err(reject) => return (messages, refused(reject)),
                },
            };
            let input = &bytes[at..arrived];
            match decoder.decode(input) {
                Ok(step) => {
                    assert!(step.data.end <= step.consumed && step.consumed <= input.len());
                    message.data.extend_from_slice(&input[step.data]);
                    at += step.consumed;
                    message.body.end = at;
                    if decoder.is_done() {
                        let is_last = !message.keep_alive;
                        messages.push(message);
                        if is_last {
                            return (messages, End::Closed);
                        }
                    } else {
                        body = Some((message, decoder));
                        if step.consumed == 0 {
                            break;
                        }
                    }
                }
                Err(reject) => return (messages, refused(reject)),
            }
        }
    }
    let end = match body {
        Some((message, _)) if message.framing == Framing::UntilClose => {
            messages.push(message);
            End::Closed
        }
        Some((message, _)) => End::Part(Some(message)),
        None if at == bytes.len() => End::Open,
        None => End::Part(None),
    };
    (messages, end)
}

fn refused(reject: Reject) -> End {
    End::Refused(reject.status, reject.is_contradiction())
}

/// The head at the front of `input`, which begins at `at` of the stream.
fn head(
    reader: Reader,
    input: &[u8],
    at: usize,
    familiar: &mut Familiar,
) -> Result<Option<(Message, Decoder)>, Reject> {
    let mut slots = Slots::default();
    let (start, fields, framing, keep_alive, head_bytes) = match reader {
        Reader::Server(limits) => {
            let Some(head) = request::parse(input, &limits, &mut slots)? else { return Ok(None) };
            let start = Start::Request {
                method: head.method,
                target: head.target.to_vec(),
                is_plain: head.is_plain,
                is_http10: head.is_http10,
                expect_continue: head.expect_continue,
            };
            let fields: Vec<_> =
                head.fields().map(|(name, value)| (name.to_owned(), value.to_vec())).collect();
            let first = |name: &str| {
                let same = |(of, _): &&(String, Vec<u8>)| of.eq_ignore_ascii_case(name);
                fields.iter().find(same).map(|(_, value)| &value[..])
            };
            assert_eq!((head.host, head.origin), (first("host"), first("origin")));
            assert_eq!(head.is_framed, first("content-length").or(first("transfer-encoding")).is_some());
            assert!(request::begins_as_head(input) == (head.method == Method::Head));
            (start, fields, head.framing, head.keep_alive, head.bytes)
        }
        Reader::Client { to_head } => {
            let parsed =
                response::parse(input, to_head, &mut slots).map(|head| head.map(|head| head.outline));
            if !to_head {
                assert_eq!(familiar.parse(input), parsed);
            }
            let Some(outline) = parsed? else { return Ok(None) };
            let start = Start::Response { status: outline.status };
            (start, Vec::new(), outline.framing, outline.keep_alive, outline.bytes)
        }
    };
    let decoder = Decoder::new(framing, BODY_BYTES_MAX)?;
    let end = at + head_bytes;
    let (head, body, data) = (at..end, end..end, Vec::new());
    Ok(Some((Message { start, fields, framing, keep_alive, data, head, body }, decoder)))
}

/// Checks `message` by what its lines say.
fn read_plainly(reader: Reader, bytes: &[u8], message: &Message) {
    let mut head = &bytes[message.head.clone()];
    while let Some(rest) = head.strip_prefix(b"\r\n") {
        head = rest;
    }
    let lines = lines(head.strip_suffix(b"\r\n\r\n").expect("a head ends in an empty line"));
    let (start, fields) = lines.split_first().expect("it has a start line");
    let fields: Vec<(&[u8], &[u8])> = fields.iter().map(|line| field(line)).collect();
    let all = |name: &str| -> Vec<&[u8]> {
        let same = |(of, _): &&(&[u8], &[u8])| of.eq_ignore_ascii_case(name.as_bytes());
        fields.iter().filter(same).map(|(_, value)| *value).collect()
    };
    let codings = all("transfer-encoding");
    let lengths: Vec<u64> = all("content-length").into_iter().map(number).collect();
    assert!(codings.is_empty() || lengths.is_empty());
    assert!(codings.len() <= 1 && codings.iter().all(|coding| coding.eq_ignore_ascii_case(b"chunked")));
    assert!(lengths.windows(2).all(|two| two[0] == two[1]));
    let closes = all("connection").iter().any(|value| {
        value.split(|byte| *byte == b',').any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"))
    });
    assert!(!closes || !message.keep_alive);
    let framed = match (codings.len(), lengths.first()) {
        (1, _) => Some(Framing::Chunked),
        (_, length) => length.copied().map(Framing::Length),
    };
    let framing = match (reader, &message.start) {
        (Reader::Server(limits), Start::Request { target, is_http10, .. }) => {
            let words: Vec<&[u8]> = start.split(|byte| *byte == b' ').collect();
            assert!(words.len() == 3 && words[1] == target, "{}", start.escape_ascii());
            let is_http1 = words[2].len() == 8 && words[2].starts_with(b"HTTP/1.");
            assert!(is_http1 && *is_http10 == (words[2][7] == b'0'));
            assert!(target.len() <= limits.target_bytes && message.head.len() <= limits.head_bytes);
            assert!(lengths.len() <= 1 && (codings.is_empty() || !*is_http10));
            assert!(all("host").len() == 1 || *is_http10 && all("host").is_empty());
            let found: Vec<(&[u8], &[u8])> =
                message.fields.iter().map(|(name, value)| (name.as_bytes(), &value[..])).collect();
            assert_eq!(found, fields);
            framed.unwrap_or(Framing::Length(0))
        }
        (Reader::Client { to_head }, Start::Response { status }) => {
            assert!(start.starts_with(b"HTTP/1.") && start[9..12] == status.to_string().as_bytes()[..]);
            match to_head || matches!(status, 100..=199 | 204 | 304) {
                true => Framing::Length(0),
                false => framed.unwrap_or(Framing::UntilClose),
            }
        }
        _ => unreachable!("a server reads requests, a client responses"),
    };
    assert_eq!(message.framing, framing);
    let body = &bytes[message.body.clone()];
    match framing {
        Framing::Chunked => assert_eq!(unchunked(body), message.data),
        Framing::Length(length) => assert!(body == message.data && body.len() as u64 == length),
        Framing::UntilClose => assert_eq!(body, message.data),
    }
}

/// The lines of a head without its last two line ends.
fn lines(mut head: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    while let Some(end) = memchr::memmem::find(head, b"\r\n") {
        lines.push(&head[..end]);
        head = &head[end + 2..];
    }
    lines.push(head);
    for line in &lines {
        let is_text = |byte: &u8| matches!(byte, b'\t' | 0x20..=0x7e | 0x80..);
        assert!(line.iter().all(is_text), "{}", line.escape_ascii());
    }
    lines
}

fn field(line: &[u8]) -> (&[u8], &[u8]) {
    let end = line.iter().position(|byte| *byte == b':').expect("a field has a colon");
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    assert!(end > 0 && line[..end].iter().all(is_token), "{}", line.escape_ascii());
    (&line[..end], line[end + 1..].trim_ascii())
}

fn number(text: &[u8]) -> u64 {
    assert!(text.iter().all(u8::is_ascii_digit));
    str::from_utf8(text).ok().and_then(|text| text.parse().ok()).expect("it is a number")
}

/// The data of a whole body in chunks.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let line = |body: &mut &[u8]| {
        let end = memchr::memmem::find(body, b"\r\n").expect("the line ends");
        let line = body[..end].to_vec();
        *body = &body[end + 2..];
        line
    };
    let mut data = Vec::new();
    loop {
        let size = line(&mut body);
        let digits = size.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        assert!(matches!(size.get(digits), None | Some(b';' | b' ' | b'\t')), "{}", size.escape_ascii());
        let digits = str::from_utf8(&size[..digits]).expect("digits are text");
        let size = usize::from_str_radix(digits, 16).expect("a size is a number");
        if size == 0 {
            while !line(&mut body).is_empty() {}
            assert!(body.is_empty());
            return data;
        }
        data.extend_from_slice(&body[..size]);
        assert_eq!(body[size..size + 2], *b"\r\n");
        body = &body[size + 2..];
    }
}

/// Writes `message` as the other end would, and checks that it is decoded as the same.
fn write_anew(reader: Reader, bytes: &[u8], message: &Message) {
    const FRAMING: [&str; 3] = ["host", "content-length", "transfer-encoding"];
    let mut out = Vec::new();
    match &message.start {
        Start::Request { target, .. } => {
            // A host and a length may be added, and a field may have been without either.
            if message.fields.len() + 2 > http1::FIELDS_MAX {
                return;
            }
            let head = &bytes[message.head.clone()];
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it is ASCII");
            let method = head.split(|byte| *byte == b' ').next().unwrap_or_default();
            let named = |name: &str| {
                let mut same = message.fields.iter().filter(|(of, _)| of.eq_ignore_ascii_case(name));
                same.next().map_or(String::new(), |(_, value)| text(value))
            };
            let method = text(method.trim_ascii_start());
            let mut writer = request::write(&mut out, &method, &text(target), &named("host"));
            for (name, value) in &message.fields {
                if !FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
                    writer = writer.field(name, value);
                }
            }
            writer.end_with_length(message.data.len() as u64);
        }
        Start::Response { status } => {
            let writer = response::write(&mut out, *status);
            match message.framing {
                Framing::Length(0) => writer.end(),
                _ => writer.end_with_length(message.data.len() as u64),
            }
        }
    }
    out.extend_from_slice(&message.data);
    let wide = Limits { target_bytes: 1 << 20, head_bytes: 1 << 20 };
    let reader = match reader {
        Reader::Server(_) => Reader::Server(wide),
        // A response without a length has no body only because of the request or its status.
        Reader::Client { to_head } => {
            Reader::Client { to_head: to_head || message.framing == Framing::Length(0) }
        }
    };
    let (again, _) = decode(reader, &out, &[]);
    let [again] = &again[..] else { panic!("{again:?} of {}", out.escape_ascii()) };
    assert_eq!(again.data, message.data);
    match (&again.start, &message.start) {
        (Start::Response { .. }, _) => assert_eq!(again.start, message.start),
        (
            Start::Request { method, target, is_plain, .. },
            Start::Request { method: of, target: asked, is_plain: plain, is_http10, .. },
        ) => {
            assert_eq!((method, target, is_plain), (of, asked, plain));
            assert!(*is_http10 || again.keep_alive == message.keep_alive);
            let others = |message: &Message| -> Vec<(String, Vec<u8>)> {
                let fields = message.fields.iter();
                let other = |(name, _): &&(String, Vec<u8>)| {
                    !FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing))
                };
                fields.filter(other).cloned().collect()
            };
            assert_eq!(others(again), others(message));
        }
        _ => unreachable!("both are requests"),
    }
}
