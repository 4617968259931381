//! Requests as bytes, and the values they carry.
//!
//! Of the dialect's templates, cut into `pieces` once per run, only copying is left. Bytes out: no sockets. What a value in an
//! answer says is `origin`'s.

mod origin;

use super::dialect::{KEPT_BYTES_MAX, OperationTemplate};
use super::encode::{base64_bytes, write_base64, write_percent};
use super::history::Watch;
use super::keys::RequestSpec;
use super::mix::Operation;
use super::piece::{Piece, Placeholder};
use super::pieces::CompiledTemplate;
use super::value_size::Sizes;
use super::values::Values;
use super::variables::{self, UUID_BYTES};
use super::verify::{MARK_BYTES, Mark, PRELOAD_WRITER, Verify};
use super::{Connect, Plan};
use kv::VALUE_BYTES_MAX;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// How long a text to be hashed is.
const TEXT_BYTES: usize = 100;

/// A request ready to be sent, and what its answer must hold. Its buffers are used again and again.
#[derive(Debug, Default)]
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Which of the servers it goes to.
    pub(super) server: usize,
    /// What it is counted as.
    pub(super) kind: usize,
    /// Whether its answer has no body.
    pub(super) is_head: bool,
    /// Head and body.
    pub(super) bytes: Vec<u8>,
    /// What the body of a good answer must begin with, or hold where the rule says so.
    pub(super) expected: Vec<u8>,
    /// Whether the body must end there too.
    pub(super) exact: bool,
    /// How much of the answer's body is to be kept until it is complete, in bytes.
    pub(super) keeps_bytes: usize,
    /// Whether it is a good answer that there is no such key.
    pub(super) may_be_absent: bool,
    /// How to judge the answer.
    pub(super) form: &'static OperationTemplate,
    /// What is encoded before it is written.
    pub(super) scratch: Vec<u8>,
    /// Where the value begins in `expected`.
    pub(super) value_at: usize,
    /// The version that a conditional write names.
    pub(super) version: Vec<u8>,
    /// Whether the version in its answer is to be kept.
    pub(super) keeps_version: bool,
    /// What is to be learned of its answer, where values are verified.
    pub(super) watch: Option<Box<Watch>>,
}

impl Request {
    /// Has the answer's body kept as far as the longest value could reach.
    pub(super) fn keep_all(&mut self) {
        self.keeps_bytes = self.expected.len() + KEPT_BYTES_MAX + base64_bytes(VALUE_BYTES_MAX);
    }
}

/// Writes the requests of a workload to one server.
pub(super) struct Requests {
    key_prefix: &'static str,
    sizes: Sizes,
    /// Whether values carry marks, and of which run.
    verify: Verify,
    /// Whether any request names a version.
    keeps_versions: bool,
    /// Of each server: by `operation as usize`, `None` for what the dialect has no words for; of requests that are no operation
    /// on keys in their order.
    forms: Vec<Vec<Option<CompiledTemplate>>>,
    /// What the variables of requests are drawn from, and the rows of their file.
    seed: u64,
    values: Values,
    /// How many kinds of requests are told apart.
    kinds: usize,
    /// From which key on a read may find nothing.
    absent_from: u64,
}

/// One rendering: what goes into the gaps.
#[derive(Clone, Copy)]
struct SlotValues<'d> {
    number: u64,
    digits: &'d [u8],
    version: &'d [u8],
    value_bytes: usize,
    /// Of a value that is long enough for it.
    mark: Option<Mark>,
    body_bytes: usize,
}

impl Requests {
    /// For the workload of `plan`, over connections as `connect` says.
    pub(super) fn new(plan: &Plan, connect: Connect) -> Requests {
        let rules = plan.http.rules();
        let values = plan.http.values.clone().unwrap_or_default();
        let forms = plan.urls.iter().map(|target| match plan.is_key_value() {
            true => Operation::ALL
                .map(|operation| plan.dialect().form(operation))
                .map(|form| form.map(|form| CompiledTemplate::of_operation(form, plan, target, connect)))
                .into(),
            false => {
                // The plan was checked.
                let requests = plan.http.requests(target).unwrap_or_default();
                let cut = |request| CompiledTemplate::of_request(rules, request, &values.columns, connect);
                requests.iter().map(|request| Some(cut(request))).collect()
            }
        });
        Requests {
            forms: forms.collect(),
            seed: plan.seed,
            kinds: plan.kind_count(),
            absent_from: plan.absent_from(),
            values,
            key_prefix: &plan.workload().key_prefix,
            sizes: Sizes::new(plan.value_size()),
            verify: plan.verify,
            keeps_versions: plan.asks(Operation::needs_version),
        }
    }

    /// Makes `request` what `ask` says; of a read, the value's beginning is expected. `mark`: of the value to be written.
    pub(super) fn render(&self, request: &mut Request, ask: RequestSpec, mark: Option<Mark>) {
        self.write(request, ask, false, mark);
    }

    /// Makes `request` the PUT of key `number` that the preload makes, or the GET that expects exactly this value. Its length
    /// belongs to the key.
    pub(super) fn render_preload(&self, request: &mut Request, operation: Operation, number: u64) {
        let value_bytes = self.sizes.of_key(number);
        let run = self.verify.run;
        let mark = self.verify.is_on().then_some(Mark { run, writer: PRELOAD_WRITER, count: 0, value_bytes });
        let ask = RequestSpec { operation, number, value_bytes, template: 0 };
        self.write(request, ask, operation == Operation::Get, mark);
    }

    /// The name of key `number`.
    pub(super) fn key(&self, number: u64) -> String {
        format!("{}{number}", self.key_prefix)
    }

    /// Makes `request` what `ask` says. `exact`: the value of a read is known to its end. `mark`: its own, or the one of the
    /// value to be written.
    fn write(&self, request: &mut Request, ask: RequestSpec, exact: bool, mark: Option<Mark>) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(ask.number).as_bytes();
        let Request { bytes, expected, scratch, version, .. } = request;
        bytes.clear();
        expected.clear();
        // No run begins that asks for what its dialect lacks.
        let place = if ask.operation == Operation::Request { ask.template } else { ask.operation as usize };
        let Some(template) = &self.forms[request.server][place] else { return };
        // What is not told apart is the last kind.
        request.kind = place.min(self.kinds - 1);
        let RequestSpec { number, value_bytes, .. } = ask;
        let mut values = SlotValues { number, digits, version, value_bytes, mark, body_bytes: 0 };
        if ask.operation == Operation::ComputeHash {
            // Drawn once, to be written and to be hashed; nothing else of such a request is encoded.
            scratch.clear();
            write_text(scratch, ask.number);
        }
        let lengths = template.body_placeholders.iter().map(|placeholder| self.length(*placeholder, values));
        values.body_bytes = template.body_bytes + lengths.sum::<usize>();
        for piece in &template.bytes {
            self.fill(bytes, scratch, piece, values);
        }
        for piece in &template.proof {
            match piece.placeholder {
                Some(placeholder @ (Placeholder::Value | Placeholder::ValueBase64)) => {
                    request.value_at = expected.len() + piece.text.len();
                    if exact {
                        self.fill(expected, scratch, piece, values);
                        continue;
                    }
                    expected.extend_from_slice(&piece.text);
                    self.write_known(expected, scratch, placeholder, digits);
                    break;
                }
                _ => self.fill(expected, scratch, piece, values),
            }
        }
        request.operation = ask.operation;
        request.keeps_version = self.keeps_versions && ask.operation == Operation::Get;
        request.form = template.form;
        request.is_head = template.is_head;
        request.may_be_absent = !exact && number >= self.absent_from;
        request.exact = exact && request.form.whole;
        request.keeps_bytes =
            if request.form.keeps_body { request.expected.len() + request.form.kept_bytes() } else { 0 };
    }

    #[inline]
    fn fill(&self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, piece: &Piece, values: SlotValues) {
        let SlotValues { digits, body_bytes, .. } = values;
        out.extend_from_slice(&piece.text);
        let start = out.len();
        match piece.placeholder {
            None => {}
            Some(Placeholder::Key | Placeholder::Count) => out.extend_from_slice(digits),
            Some(Placeholder::KeyBase64) => {
                scratch.clear();
                scratch.extend_from_slice(self.key_prefix.as_bytes());
                scratch.extend_from_slice(digits);
                write_base64(out, scratch);
            }
            Some(Placeholder::Value) => self.write_value(out, values),
            Some(Placeholder::ValueBase64) => {
                scratch.clear();
                self.write_value(scratch, values);
                write_base64(out, scratch);
            }
            Some(Placeholder::Text) => out.extend_from_slice(scratch),
            Some(Placeholder::Version) => out.extend_from_slice(values.version),
            Some(Placeholder::Hash) => {
                out.extend_from_slice(itoa::Buffer::new().format(hash(scratch)).as_bytes());
            }
            Some(Placeholder::BodyBytes) => {
                out.extend_from_slice(itoa::Buffer::new().format(body_bytes).as_bytes());
            }
            Some(Placeholder::Column(column)) => {
                out.extend_from_slice(self.values.cell(values.number, column));
            }
            Some(Placeholder::Uuid(drawn)) => variables::write_uuid(out, self.seed, values.number, drawn),
            Some(Placeholder::Int(low, high, drawn)) => {
                let int = variables::int(self.seed, values.number, (low, high, drawn));
                out.extend_from_slice(itoa::Buffer::new().format(int).as_bytes());
            }
        }
        if piece.percent {
            scratch.clear();
            scratch.extend_from_slice(&out[start..]);
            out.truncate(start);
            write_percent(out, scratch);
        }
    }

    /// How many bytes [`Requests::fill`] makes of a gap in a body.
    fn length(&self, placeholder: Placeholder, values: SlotValues<'_>) -> usize {
        match placeholder {
            Placeholder::Key | Placeholder::Count => values.digits.len(),
            Placeholder::KeyBase64 => base64_bytes(self.key_prefix.len() + values.digits.len()),
            Placeholder::Value => values.value_bytes,
            Placeholder::ValueBase64 => base64_bytes(values.value_bytes),
            Placeholder::Text => TEXT_BYTES,
            Placeholder::Version => values.version.len(),
            Placeholder::Column(column) => self.values.cell(values.number, column).len(),
            Placeholder::Uuid(_) => UUID_BYTES,
            Placeholder::Int(low, high, drawn) => {
                let int = variables::int(self.seed, values.number, (low, high, drawn));
                itoa::Buffer::new().format(int).len()
            }
            // Neither occurs in a body.
            Placeholder::Hash | Placeholder::BodyBytes => 0,
        }
    }

    /// Appends as much of a value as is known of it, whichever length was written last: no value is shorter than the
    /// shortest.
    fn write_known(&self, out: &mut Vec<u8>, scratch: &mut Vec<u8>, placeholder: Placeholder, digits: &[u8]) {
        if placeholder == Placeholder::Value {
            return self.write_start(out, digits, self.sizes.min);
        }
        scratch.clear();
        self.write_start(scratch, digits, self.sizes.min);
        let start = out.len();
        write_base64(out, scratch);
        // Six bits to a character: what also hangs on the bytes that follow is left out.
        out.truncate(start + scratch.len() * 8 / 6);
    }

    /// Appends what a value of `value_bytes` begins with: its key and `=`, or as much of that as it has room for.
    fn write_start(&self, out: &mut Vec<u8>, digits: &[u8], value_bytes: usize) {
        let start = out.len();
        out.extend_from_slice(self.key_prefix.as_bytes());
        out.extend_from_slice(digits);
        out.push(b'=');
        out.truncate(start + value_bytes);
    }

    /// Appends a value: its beginning, the mark if it has one and room for it, then printable noise. Without a mark it is
    /// the same on every run.
    ///
    /// Noise of its own for every key: values cut from one block would let a compressing store look better than it is.
    fn write_value(&self, out: &mut Vec<u8>, values: SlotValues<'_>) {
        let SlotValues { number, digits, value_bytes, mark, .. } = values;
        let end = out.len() + value_bytes;
        self.write_start(out, digits, value_bytes);
        let mut seed = number;
        if let Some(mark) = mark.filter(|_| end - out.len() >= MARK_BYTES) {
            mark.write(out, number);
            seed = mark.seed(number);
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    fn requests(value_size: &str, connect: Connect) -> Requests {
        requests_in("weir", value_size, connect)
    }

    fn requests_in(dialect: &str, value_size: &str, connect: Connect) -> Requests {
        let dialect = Some(dialect.parse().unwrap());
        let plan = Plan { dialect, value_size: Some(value_size.parse().unwrap()), ..Plan::example("mixed") };
        Requests::new(&plan, connect)
    }

    fn ask(operation: Operation, number: u64, value_bytes: usize) -> RequestSpec {
        RequestSpec { operation, number, value_bytes, template: 0 }
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
                requests.render(&mut request, ask(Operation::Put, 7, 1234), None);
                requests.render(&mut request, ask(operation, 42, 20), None);
                assert!(text(&request.bytes).starts_with(line), "{}", text(&request.bytes));
                let mut slots = http1::Slots::default();
                let head = http1::request::parse(&request.bytes, &http1::Limits::USUAL, &mut slots);
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
            requests.render(&mut read, ask(Operation::Get, 7, 0), None);
            assert_eq!(text(&read.expected), expected);
            requests.render_preload(&mut read, Operation::Get, 7);
            assert!(text(&read.expected).starts_with(expected) && read.exact);
            assert_eq!(read.expected.len(), value_bytes);
            assert!(read.expected.iter().all(u8::is_ascii_graphic));
        }
        // Where lengths vary, a read cannot know more of the mark than the shortest value holds.
        requests("5-100", Connect::Once).render(&mut read, ask(Operation::Get, 7, 0), None);
        assert_eq!(text(&read.expected), "mixed");
    }

    #[test]
    fn a_read_back_expects_what_the_preload_wrote() {
        for value_size in ["1000", "500-1000", "zipfian:500-1000"] {
            let requests = requests(value_size, Connect::Once);
            let (mut put, mut read) = (Request::default(), Request::default());
            requests.render_preload(&mut put, Operation::Put, 3);
            requests.render_preload(&mut read, Operation::Get, 3);
            let length = format!("Content-Length: {}\r\n\r\n", read.expected.len());
            let body = [length.as_bytes(), &read.expected].concat();
            assert!(put.bytes.ends_with(&body) && read.expected.len() >= 500);
            let three = read.expected.clone();
            requests.render_preload(&mut read, Operation::Get, 4);
            assert_ne!(three[20..400], read.expected[20..400], "each key has noise of its own");
        }
    }

    #[test]
    fn the_answer_of_a_computation_is_known_beforehand() {
        // As report 004's server wrote it.
        assert_eq!(hash(b"hello"), 99_162_322);
        let mut request = Request::default();
        let requests = requests("100", Connect::Once);
        requests.render(&mut request, ask(Operation::ComputePrime, 100, 0), None);
        assert_eq!(text(&request.expected), "{\"count\":100,");
        requests.render(&mut request, ask(Operation::ComputeHash, 1, 0), None);
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
                requests.render(&mut request, ask(Operation::Get, 123, 0), None);
                requests.render(&mut request, asked, None);
                assert_eq!(parts(&request), (line, body, expected));
                assert_eq!(text(&request.bytes).contains("Connection: close\r\n"), connect == Connect::Each);
            }
        }
        let (mut read, mut put) = (Request::default(), Request::default());
        let requests = requests_in("etcd", "100", Connect::Once);
        requests.render_preload(&mut put, Operation::Put, 7);
        requests.render_preload(&mut read, Operation::Get, 7);
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
        let requests =
            Requests::new(&Plan { dialect: Some(dialect), ..Plan::example("mixed") }, Connect::Once);
        let mut request = Request::default();
        for value_bytes in [0, 1, 9, 10, 11, 999] {
            requests.render(&mut request, ask(Operation::Put, 10, value_bytes), None);
            parts(&request);
        }
        requests.render(&mut request, ask(Operation::Put, 10, 9), None);
        let (line, body, _) = parts(&request);
        assert_eq!(line, "POST /mixed_10/mixed_10%3D/bWl4ZWRfMTA%3D?of=bWl4ZWRfMTA9");
        let expected = "key=mixed_10&again=mixed_10&bWl4ZWRfMTA=&value=mixed_10=&bWl4ZWRfMTA9.";
        assert_eq!(body, expected);
        assert!(text(&request.bytes).contains("\r\nX-Key: <mixed_10>\r\nX-Value: bWl4ZWRfMTA9\r\n"));
        requests.render(&mut request, ask(Operation::Delete, 1, 0), None);
        assert_eq!(parts(&request).0, "PUT /mixed_1mixed_1");
        assert!(text(&request.bytes).ends_with("\r\nContent-Length: 0\r\n\r\n"));
        // A flag replaces what the file says.
        let plan = Plan { dialect: Some(dialect), ..Plan::of_flags(&["-H", "x-key: 1"]) };
        let requests = Requests::new(&plan, Connect::Once);
        requests.render(&mut request, ask(Operation::Put, 10, 9), None);
        let head = text(&request.bytes);
        assert!(head.contains("\r\nx-key: 1\r\nX-Value: ") && !head.contains("X-Key"), "{head}");
    }

    /// A server's answer that holds the value of `put`, as `dialect` has it.
    fn answer_of(dialect: &'static Dialect, put: &Request) -> Vec<u8> {
        let (_, body, _) = parts(put);
        match dialect.name.as_str() {
            "etcd" => format!("{{\"kvs\":[{{{}]}}", body.split_once(',').unwrap().1),
            "holds" => format!("{{\"is\":\"{body}\",\"of\":7}}"),
            "begins" => format!("v={body}, and more"),
            _ => body.to_owned(),
        }
        .into_bytes()
    }

    #[test]
    fn a_marked_value_is_known_to_its_last_byte_wherever_it_stands() {
        let put = "[put]\npath = \"/{key}\"\nbody = \"{value}\"\n[get]\npath = \"/{key}\"\n";
        let holds = Dialect::of_file("holds", &format!("{put}holds = '\"is\":\"{{value}}\"'")).unwrap();
        let begins = Dialect::of_file("begins", &format!("{put}begins = 'v={{value}}, '")).unwrap();
        let named = |name: &str| -> &'static Dialect { name.parse().unwrap() };
        for dialect in [named("weir"), named("webdis"), named("etcd"), holds, begins] {
            for size in ["100", "33-200", "1-200"] {
                let plan = Plan {
                    dialect: Some(dialect),
                    verify: Verify::all(),
                    value_size: Some(size.parse().unwrap()),
                    ..Plan::example("mixed")
                };
                let requests = Requests::new(&plan, Connect::Once);
                let (mut put, mut get) = (Request::default(), Request::default());
                let mut scratch = Default::default();
                requests.render(&mut get, ask(Operation::Get, 7, 0), None);
                let mut origin = |body: &[u8]| requests.origin(&get, 7, body, &mut scratch);
                let mark = Mark { run: plan.verify.run, writer: 3, count: 9, value_bytes: 100 };
                requests.render(&mut put, ask(Operation::Put, 7, 100), Some(mark));
                let body = answer_of(dialect, &put);
                assert_eq!(origin(&body), Ok(Some(mark)), "{}", text(&body));

                let start = memchr::memmem::find(&body, &get.expected).unwrap() + get.expected.len();
                let whole = matches!(dialect.name.as_str(), "weir" | "webdis");
                let value_end = if dialect.name == "etcd" { start + 120 } else { start + 85 };
                for place in start..value_end.min(body.len()) {
                    let mut other = body.clone();
                    other[place] ^= 1;
                    // Where short values have no mark and their end is not to be seen, this could be one of those.
                    let open = size == "1-200" && dialect.name == "begins" && place < start + MARK_BYTES;
                    assert!(origin(&other) == Err(()) || open, "{place} of {}", text(&other));
                }
                if whole {
                    assert_eq!(origin(&[&body, &b"x"[..]].concat()), Err(()));
                    assert_eq!(origin(&body[..body.len() - 1]), Err(()));
                    assert_eq!(origin(&body[..40]), Err(()), "{size}");
                }

                // A run that verifies nothing writes values without marks, and so does one that has no room for them.
                requests.render(&mut put, ask(Operation::Put, 7, 100), None);
                let plain = origin(&answer_of(dialect, &put));
                assert_eq!(plain, Ok(None));
                let mark = Mark { value_bytes: 31, ..mark };
                requests.render(&mut put, ask(Operation::Put, 7, 31), Some(mark));
                let short = origin(&answer_of(dialect, &put));
                assert_eq!(short, if size == "1-200" { Ok(None) } else { Err(()) }, "{}", dialect.name);
                let mark = Mark { value_bytes: 32, ..mark };
                requests.render(&mut put, ask(Operation::Put, 7, 32), Some(mark));
                let marked = origin(&answer_of(dialect, &put));
                assert_eq!(marked, Ok(Some(mark)));
            }
        }
    }

    #[test]
    fn without_verification_values_are_the_same_on_every_run() {
        let requests = requests("100", Connect::Once);
        let (mut one, mut two) = (Request::default(), Request::default());
        requests.render(&mut one, ask(Operation::Put, 7, 100), None);
        requests.render_preload(&mut two, Operation::Put, 7);
        assert_eq!(one.bytes, two.bytes);
        let plan = Plan { verify: Verify::all(), ..Plan::example("mixed") };
        let verified = Requests::new(&plan, Connect::Once);
        verified.render_preload(&mut two, Operation::Put, 7);
        assert_eq!(one.bytes.len(), two.bytes.len());
        assert!(two.bytes.is_ascii() && one.bytes != two.bytes);
    }
}
