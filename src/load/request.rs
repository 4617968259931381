//! Requests as bytes, and the values they carry.
//!
//! What a dialect has as templates is cut into pieces once per run: bytes, and what comes behind them. Per request only
//! copying is left. Bytes out: no sockets.

use super::dialect::{self, Dialect, Form, Gap, Rule};
use super::keys::Ask;
use super::mix::Operation;
use super::value_size::Sizes;
use super::{Connect, Plan};
use crate::http1;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How long a text to be hashed is.
const TEXT_BYTES: usize = 100;

/// A request ready to be sent, and what its answer must hold. Its buffers are used again and again.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Head and body.
    pub(super) bytes: Vec<u8>,
    /// What the body of a good answer must begin with, or hold where the rule says so.
    pub(super) expected: Vec<u8>,
    /// Whether the body must end there too.
    pub(super) exact: bool,
    /// How to judge the answer.
    pub(super) rule: &'static Rule,
    /// What is encoded before it is written.
    pub(super) scratch: Vec<u8>,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            operation: Operation::Get,
            bytes: Vec::new(),
            expected: Vec::new(),
            exact: false,
            rule: Rule::none(),
            scratch: Vec::new(),
        }
    }
}

/// Writes the requests of a workload to one server.
pub(super) struct Requests {
    key_prefix: &'static str,
    sizes: Sizes,
    /// By `operation as usize`; `None` for what the dialect has no words for.
    forms: [Option<Pieces>; Operation::ALL.len()],
}

/// A form of the dialect, cut up.
struct Pieces {
    rule: &'static Rule,
    whole: bool,
    /// Head and body.
    bytes: Vec<Piece>,
    /// What of the body is the same in every request, in bytes.
    body_bytes: usize,
    /// What is not.
    body_fills: Vec<Fill>,
    proof: Vec<Piece>,
}

/// Bytes, and what follows them.
#[derive(Debug)]
struct Piece {
    text: Vec<u8>,
    fill: Fill,
    /// Whether what follows is percent-encoded.
    percent: bool,
}

/// What follows a piece's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    Nothing,
    /// The key's number behind its prefix, which is text; or how many primes.
    Number,
    KeyBase64,
    Value,
    ValueBase64,
    Text,
    Hash,
    /// How long the body is.
    BodyBytes,
}

/// One rendering: what goes into the gaps.
#[derive(Clone, Copy)]
struct Filling<'d> {
    number: u64,
    digits: &'d [u8],
    value_bytes: usize,
    body_bytes: usize,
}

impl Requests {
    /// For the workload of `plan`, over connections as `connect` says.
    pub(super) fn new(plan: &Plan, connect: Connect) -> Requests {
        let prefix = plan.workload.key_prefix;
        let dialect: &'static Dialect = plan.dialect;
        let cut = |form| Pieces::new(form, prefix, plan.target.authority(), connect);
        Requests {
            key_prefix: prefix,
            sizes: Sizes::new(plan.value_size),
            forms: Operation::ALL.map(|operation| dialect.form(operation).map(cut)),
        }
    }

    /// Makes `request` what `ask` says; of a read, the value's beginning is expected.
    pub(super) fn render(&self, request: &mut Request, ask: Ask) {
        self.write(request, ask, false);
    }

    /// Makes `request` the PUT of key `number` that the preload makes: its value has the length that belongs to the key.
    pub(super) fn render_preloading(&self, request: &mut Request, number: u64) {
        let value_bytes = self.sizes.of_key(number);
        self.render(request, Ask { operation: Operation::Put, number, value_bytes });
    }

    /// Makes `request` the read of key `number` that expects exactly the value that the preload wrote.
    pub(super) fn render_verifying(&self, request: &mut Request, number: u64) {
        let value_bytes = self.sizes.of_key(number);
        self.write(request, Ask { operation: Operation::Get, number, value_bytes }, true);
    }

    /// The name of key `number`.
    pub(super) fn key(&self, number: u64) -> String {
        format!("{}{number}", self.key_prefix)
    }

    /// Makes `request` what `ask` says. `exact`: the value of a read is known to its end.
    fn write(&self, request: &mut Request, ask: Ask, exact: bool) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(ask.number).as_bytes();
        let Request { bytes, expected, scratch, .. } = request;
        bytes.clear();
        expected.clear();
        // No run begins that asks for what its dialect lacks.
        let Some(form) = &self.forms[ask.operation as usize] else { return };
        let mut filling = Filling { number: ask.number, digits, value_bytes: ask.value_bytes, body_bytes: 0 };
        if ask.operation == Operation::ComputeHash {
            // Drawn once, to be written and to be hashed; nothing else of such a request is encoded.
            scratch.clear();
            write_text(scratch, ask.number);
        }
        let lengths = form.body_fills.iter().map(|fill| self.length(*fill, filling));
        filling.body_bytes = form.body_bytes + lengths.sum::<usize>();
        for piece in &form.bytes {
            self.fill(bytes, scratch, piece, filling);
        }
        for piece in &form.proof {
            match piece.fill {
                Fill::Value | Fill::ValueBase64 if !exact => {
                    expected.extend_from_slice(&piece.text);
                    self.write_known(expected, scratch, piece.fill, digits);
                    break;
                }
                _ => self.fill(expected, scratch, piece, filling),
            }
        }
        request.operation = ask.operation;
        request.exact = exact && form.whole;
        request.rule = form.rule;
    }

    #[inline]
    fn fill(&self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, piece: &Piece, filling: Filling) {
        let Filling { number, digits, value_bytes, body_bytes } = filling;
        out.extend_from_slice(&piece.text);
        let start = out.len();
        match piece.fill {
            Fill::Nothing => {}
            Fill::Number => out.extend_from_slice(digits),
            Fill::KeyBase64 => {
                scratch.clear();
                scratch.extend_from_slice(self.key_prefix.as_bytes());
                scratch.extend_from_slice(digits);
                write_base64(out, scratch);
            }
            Fill::Value => self.write_value(out, number, digits, value_bytes),
            Fill::ValueBase64 => {
                scratch.clear();
                self.write_value(scratch, number, digits, value_bytes);
                write_base64(out, scratch);
            }
            Fill::Text => out.extend_from_slice(scratch),
            Fill::Hash => out.extend_from_slice(itoa::Buffer::new().format(hash(scratch)).as_bytes()),
            Fill::BodyBytes => out.extend_from_slice(itoa::Buffer::new().format(body_bytes).as_bytes()),
        }
        if piece.percent {
            scratch.clear();
            scratch.extend_from_slice(&out[start..]);
            out.truncate(start);
            write_percent(out, scratch);
        }
    }

    /// How many bytes [`Requests::fill`] makes of a gap in a body.
    fn length(&self, fill: Fill, filling: Filling<'_>) -> usize {
        let base64 = |bytes: usize| bytes.div_ceil(3) * 4;
        match fill {
            Fill::Number => filling.digits.len(),
            Fill::KeyBase64 => base64(self.key_prefix.len() + filling.digits.len()),
            Fill::Value => filling.value_bytes,
            Fill::ValueBase64 => base64(filling.value_bytes),
            Fill::Text => TEXT_BYTES,
            // Neither stands in a body.
            Fill::Nothing | Fill::Hash | Fill::BodyBytes => 0,
        }
    }

    /// Appends as much of a value as is known of it, whichever length was written last: no value is shorter than the
    /// shortest.
    fn write_known(&self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, fill: Fill, digits: &[u8]) {
        if fill == Fill::Value {
            return self.write_mark(out, digits, self.sizes.min);
        }
        scratch.clear();
        self.write_mark(scratch, digits, self.sizes.min);
        let start = out.len();
        write_base64(out, scratch);
        // Six bits to a character: what also hangs on the bytes that follow is left out.
        out.truncate(start + scratch.len() * 8 / 6);
    }

    /// Appends what a value of `value_bytes` begins with: its key and `=`, or as much of that as it has room for.
    fn write_mark(&self, out: &mut Vec<u8>, digits: &[u8], value_bytes: usize) {
        let start = out.len();
        out.extend_from_slice(self.key_prefix.as_bytes());
        out.extend_from_slice(digits);
        out.push(b'=');
        out.truncate(start + value_bytes);
    }

    /// Appends a value of key `number`: the mark, then printable noise that is the same on every run.
    ///
    /// Noise of its own for every key: values cut from one block would let a compressing store look better than it is.
    fn write_value(&self, out: &mut Vec<u8>, number: u64, digits: &[u8], value_bytes: usize) {
        let end = out.len() + value_bytes;
        self.write_mark(out, digits, value_bytes);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
        while out.len() < end {
            // Eight characters from `0` to `o` at a stroke: six random bits in each byte, above 0x30.
            let eight = (random.next_u64() & 0x3f3f_3f3f_3f3f_3f3f) + 0x3030_3030_3030_3030;
            out.extend_from_slice(&eight.to_le_bytes());
        }
        out.truncate(end);
    }
}

/// Appends a text to be hashed, drawn from `seed`: characters that need no encoding in a URL.
fn write_text(out: &mut Vec<u8>, seed: u64) {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let end = out.len() + TEXT_BYTES;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    while out.len() < end {
        let eight = random.next_u64().to_le_bytes();
        out.extend(eight.map(|byte| CHARACTERS[usize::from(byte & 63)]));
    }
    out.truncate(end);
}

/// What the server must make of `text`: h = 31·h + byte in 32 bits, from 0.
fn hash(text: &[u8]) -> u32 {
    text.iter().fold(0, |hash: u32, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

/// Appends `bytes` in base64 (RFC 4648, section 4), padded.
fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for three in bytes.chunks(3) {
        let byte = |place: usize| three.get(place).copied().unwrap_or(0);
        let word = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        let sign = |place: usize| SIGNS[(word >> (18 - 6 * place)) as usize & 63];
        // So many bytes take one character more.
        out.extend((0..4).map(|place| if place <= three.len() { sign(place) } else { b'=' }));
    }
}

/// Appends `bytes` with all but unreserved characters percent-encoded.
fn write_percent(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ => out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
    }
}

impl Pieces {
    fn new(form: &'static Form, key_prefix: &str, authority: &str, connect: Connect) -> Pieces {
        // The placeholders stand in the head until it is cut.
        let mut head = Vec::new();
        let mut writer = http1::request::Writer::new(&mut head, &form.method, &form.path, authority);
        for (name, value) in &form.headers {
            writer = writer.field(name, value.as_bytes());
        }
        if connect == Connect::Each {
            writer = writer.field("Connection", b"close");
        }
        const LINE_ENDS: &str = "\r\n\r\n";
        match form.body {
            Some(_) => {
                writer.end_with_length(0);
                // The length stands last of all: a single digit, and the two line ends.
                head.truncate(head.len() - "0".len() - LINE_ENDS.len());
            }
            None => writer.end(),
        }
        let head = String::from_utf8(head).expect("heads are made of texts");
        let (line, fields) = head.split_at(form.method.len() + " ".len() + form.path.len());
        let mut bytes = cut(line, key_prefix, true);
        bytes.extend(cut(fields, key_prefix, false));
        let body = form.body.as_deref().map_or_else(Vec::new, |body| cut(body, key_prefix, false));
        let body_bytes = body.iter().map(|piece| piece.text.len()).sum();
        let body_fills = body.iter().map(|piece| piece.fill).filter(|fill| *fill != Fill::Nothing).collect();
        if form.body.is_some() {
            // Templates end in text without a gap, and this one with the length's name.
            if let Some(last) = bytes.last_mut() {
                last.fill = Fill::BodyBytes;
            }
            bytes.push(Piece { text: LINE_ENDS.into(), fill: Fill::Nothing, percent: false });
        }
        bytes.extend(body);
        Pieces {
            rule: &form.rule,
            whole: form.whole,
            bytes: without_seams(bytes),
            body_bytes,
            body_fills,
            proof: without_seams(cut(&form.proof, key_prefix, false)),
        }
    }
}

/// The same bytes in as few pieces as can be.
fn without_seams(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut fewer: Vec<Piece> = Vec::new();
    for piece in pieces {
        match fewer.last_mut().filter(|last| last.fill == Fill::Nothing) {
            Some(last) => {
                last.text.extend_from_slice(&piece.text);
                (last.fill, last.percent) = (piece.fill, piece.percent);
            }
            None => fewer.push(piece),
        }
    }
    fewer.pop_if(|last| last.text.is_empty() && last.fill == Fill::Nothing);
    fewer
}

/// Cuts a template. In a `target` what is no number is percent-encoded; prefixes of keys need no encoding.
fn cut(template: &str, key_prefix: &str, target: bool) -> Vec<Piece> {
    let pieces = dialect::pieces(template).into_iter().map(|(text, gap)| {
        let fill = match gap {
            None => Fill::Nothing,
            Some(Gap::Key | Gap::Count) => Fill::Number,
            Some(Gap::KeyBase64) => Fill::KeyBase64,
            Some(Gap::Value) => Fill::Value,
            Some(Gap::ValueBase64) => Fill::ValueBase64,
            Some(Gap::Text) => Fill::Text,
            Some(Gap::Hash) => Fill::Hash,
        };
        let prefix = if gap == Some(Gap::Key) { key_prefix } else { "" };
        let percent = target && matches!(fill, Fill::KeyBase64 | Fill::Value | Fill::ValueBase64);
        Piece { text: format!("{text}{prefix}").into(), fill, percent }
    });
    pieces.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(value_size: &str, connect: Connect) -> Requests {
        requests_in("weir", value_size, connect)
    }

    fn requests_in(dialect: &str, value_size: &str, connect: Connect) -> Requests {
        let dialect = Dialect::named(dialect).unwrap();
        let plan = Plan { dialect, value_size: value_size.parse().unwrap(), ..Plan::example("mixed") };
        Requests::new(&plan, connect)
    }

    fn ask(operation: Operation, number: u64, value_bytes: usize) -> Ask {
        Ask { operation, number, value_bytes }
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_are_http_that_a_server_can_parse() {
        // Ten of the hundred characters.
        let text_of_42 = "fo2EPN2QR3";
        for (operation, line) in [
            (Operation::Get, "GET /kv/mixed_42 HTTP/1.1\r\n"),
            (Operation::Put, "PUT /kv/mixed_42 HTTP/1.1\r\n"),
            (Operation::Delete, "DELETE /kv/mixed_42 HTTP/1.1\r\n"),
            (Operation::ComputePrime, "GET /compute/prime?count=42 HTTP/1.1\r\n"),
            (Operation::ComputeHash, &format!("GET /compute/hash?text={text_of_42}")),
        ] {
            for connect in [Connect::Once, Connect::Each] {
                // Rendered over what was there before, as in a run.
                let mut request = Request::default();
                let requests = requests("0-2000", connect);
                requests.render(&mut request, ask(Operation::Put, 7, 1234));
                requests.render(&mut request, ask(operation, 42, 20));
                assert!(text(&request.bytes).starts_with(line), "{}", text(&request.bytes));
                let mut slots = http1::Slots::default();
                let head = http1::request::parse(&request.bytes, &http1::Limits::default(), &mut slots);
                let head = head.ok().flatten().expect("a complete head");
                assert_eq!(head.field("host"), Some(&b"host:1"[..]));
                assert_eq!(head.keep_alive, connect == Connect::Once);
                let body = &request.bytes[head.bytes..];
                let is_put = operation == Operation::Put;
                assert_eq!(body.len(), if is_put { 20 } else { 0 });
                assert_eq!(head.field("content-length"), is_put.then_some(&b"20"[..]));
            }
        }
    }

    #[test]
    fn a_value_begins_with_its_key_and_goes_on_in_printable_noise() {
        let mut read = Request::default();
        for (value_bytes, expected) in [(100, "mixed_7="), (8, "mixed_7="), (3, "mix"), (0, "")] {
            let requests = requests(&value_bytes.to_string(), Connect::Once);
            requests.render(&mut read, ask(Operation::Get, 7, 0));
            assert_eq!(text(&read.expected), expected);
            requests.render_verifying(&mut read, 7);
            assert!(text(&read.expected).starts_with(expected) && read.exact);
            assert_eq!(read.expected.len(), value_bytes);
            assert!(read.expected.iter().all(u8::is_ascii_graphic));
        }
        // Where lengths vary, a read cannot know more of the mark than the shortest value holds.
        requests("5-100", Connect::Once).render(&mut read, ask(Operation::Get, 7, 0));
        assert_eq!(text(&read.expected), "mixed");
    }

    #[test]
    fn a_read_back_expects_what_the_preload_wrote() {
        for value_size in ["1000", "500-1000", "zipfian:500-1000"] {
            let requests = requests(value_size, Connect::Once);
            let (mut put, mut read) = (Request::default(), Request::default());
            requests.render_preloading(&mut put, 3);
            requests.render_verifying(&mut read, 3);
            let length = format!("Content-Length: {}\r\n\r\n", read.expected.len());
            let body = [length.as_bytes(), &read.expected].concat();
            assert!(put.bytes.ends_with(&body) && read.expected.len() >= 500);
            let three = read.expected.clone();
            requests.render_verifying(&mut read, 4);
            assert_ne!(three[20..400], read.expected[20..400], "each key has noise of its own");
        }
    }

    #[test]
    fn the_answer_of_a_computation_is_known_beforehand() {
        // As report 004's server told it.
        assert_eq!(hash(b"hello"), 99_162_322);
        let mut request = Request::default();
        let requests = requests("100", Connect::Once);
        requests.render(&mut request, ask(Operation::ComputePrime, 100, 0));
        assert_eq!(text(&request.expected), "{\"count\":100,");
        requests.render(&mut request, ask(Operation::ComputeHash, 1, 0));
        let line = text(&request.bytes).split(' ').nth(1).unwrap().to_owned();
        let asked = line.strip_prefix("/compute/hash?text=").unwrap();
        assert_eq!(asked.len(), 100);
        assert_eq!(text(&request.expected), format!("{{\"hash\":{}", hash(asked.as_bytes())));
    }

    /// The request line, what lies behind the head, and what is expected of the answer.
    fn parts(request: &Request) -> (&str, &str, &str) {
        let (head, body) = text(&request.bytes).split_once("\r\n\r\n").unwrap();
        let length = head.split("\r\nContent-Length: ").nth(1);
        assert_eq!(length.unwrap_or("0"), body.len().to_string(), "{head}");
        (head.split(" HTTP/1.1\r\n").next().unwrap(), body, text(&request.expected))
    }

    #[test]
    fn every_dialect_asks_in_its_own_words() {
        let range = "POST /v3/kv/range";
        for (dialect, asked, line, body, expected) in [
            ("fixed", ask(Operation::Get, 7, 0), "GET /", "", ""),
            ("webdis", ask(Operation::Get, 7, 0), "GET /GET/mixed_7.txt", "", "mixed_7="),
            ("webdis", ask(Operation::Put, 7, 8), "PUT /SET/mixed_7", "mixed_7=", "{\"SET\":[true,"),
            ("webdis", ask(Operation::Delete, 7, 0), "GET /DEL/mixed_7", "", "{\"DEL\":"),
            // Of the mark's eight bytes ten characters are known: the eleventh also hangs on the ninth byte.
            (
                "etcd",
                ask(Operation::Get, 7, 0),
                range,
                "{\"key\":\"bWl4ZWRfNw==\"}",
                "\"value\":\"bWl4ZWRfNz",
            ),
            (
                "etcd",
                ask(Operation::Put, 7, 8),
                "POST /v3/kv/put",
                "{\"key\":\"bWl4ZWRfNw==\",\"value\":\"bWl4ZWRfNz0=\"}",
                "",
            ),
            (
                "etcd",
                ask(Operation::Delete, 7, 0),
                "POST /v3/kv/deleterange",
                "{\"key\":\"bWl4ZWRfNw==\"}",
                "",
            ),
        ] {
            for connect in [Connect::Once, Connect::Each] {
                let mut request = Request::default();
                let requests = requests_in(dialect, "8-2000", connect);
                requests.render(&mut request, ask(Operation::Get, 123, 0));
                requests.render(&mut request, asked);
                assert_eq!(parts(&request), (line, body, expected));
                assert_eq!(text(&request.bytes).contains("Connection: close\r\n"), connect == Connect::Each);
            }
        }
        let (mut read, mut put) = (Request::default(), Request::default());
        let requests = requests_in("etcd", "100", Connect::Once);
        requests.render_preloading(&mut put, 7);
        requests.render_verifying(&mut read, 7);
        assert!(text(&put.bytes).ends_with(&format!("{}}}", text(&read.expected))) && !read.exact);
        assert_eq!(read.expected.len(), "\"value\":\"\"".len() + 136);
    }

    #[test]
    fn gaps_may_stand_anywhere_and_the_length_follows_them() {
        let file = r#"
            [put]
            method = "POST"
            path = "/{key}/{value}/{key_base64}?of={value_base64}"
            headers = { X-Key = "<{key}>", X-Value = "{value_base64}" }
            body = "key={key}&again={key}&{key_base64}&value={value}&{value_base64}."
            [delete]
            method = "PUT"
            path = "/{key}{key}"
        "#;
        let dialect = Dialect::of_file("a.toml", file).unwrap();
        let requests = Requests::new(&Plan { dialect, ..Plan::example("mixed") }, Connect::Once);
        let mut request = Request::default();
        for value_bytes in [0, 1, 9, 10, 11, 999] {
            requests.render(&mut request, ask(Operation::Put, 10, value_bytes));
            parts(&request);
        }
        requests.render(&mut request, ask(Operation::Put, 10, 9));
        let (line, body, _) = parts(&request);
        assert_eq!(line, "POST /mixed_10/mixed_10%3D/bWl4ZWRfMTA%3D?of=bWl4ZWRfMTA9");
        let told = "key=mixed_10&again=mixed_10&bWl4ZWRfMTA=&value=mixed_10=&bWl4ZWRfMTA9.";
        assert_eq!(body, told);
        assert!(text(&request.bytes).contains("\r\nX-Key: <mixed_10>\r\nX-Value: bWl4ZWRfMTA9\r\n"));
        requests.render(&mut request, ask(Operation::Delete, 1, 0));
        assert_eq!(parts(&request).0, "PUT /mixed_1mixed_1");
        assert!(text(&request.bytes).ends_with("\r\nContent-Length: 0\r\n\r\n"));
    }

    #[test]
    fn base64_is_that_of_everybody() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("~~~?", "fn5+Pw=="),
        ] {
            let mut out = Vec::new();
            write_base64(&mut out, bytes.as_bytes());
            assert_eq!(text(&out), expected);
        }
    }
}
