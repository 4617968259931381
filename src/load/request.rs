//! Requests as bytes, and the values they carry.
//!
//! Heads are rendered once per run with gaps for the key's number and the value's length; per request only copying is
//! left. Bytes out: no sockets.

use super::keys::Ask;
use super::mix::Operation;
use super::value_size::Sizes;
use super::{Connect, Plan};
use crate::http1;
use crate::kv::Key;
use crate::proto::{COMPUTE_HASH, COMPUTE_PRIME, path_of_key};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A request ready to be sent, and what its answer must hold. Its buffers are used again and again.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Head and body.
    pub(super) bytes: Vec<u8>,
    /// What the body of an answer 200 must begin with, to a request that brings one.
    pub(super) expected: Vec<u8>,
    /// Whether the body must end there too.
    pub(super) exact: bool,
}

impl Default for Request {
    fn default() -> Request {
        Request { operation: Operation::Get, bytes: Vec::new(), expected: Vec::new(), exact: false }
    }
}

/// Writes the requests of a workload to one server.
pub(super) struct Requests {
    key_prefix: &'static str,
    sizes: Sizes,
    /// By `operation as usize`.
    heads: [Template; Operation::ALL.len()],
}

/// A rendered head around its gaps: the number or text in the target, and of a PUT the length of the value.
struct Template {
    before: Vec<u8>,
    after: Vec<u8>,
    /// What follows the length; empty where there is none.
    end: Vec<u8>,
}

impl Requests {
    /// For the workload of `plan`, over connections as `connect` says.
    pub(super) fn new(plan: &Plan, connect: Connect) -> Requests {
        let prefix = plan.workload.key_prefix;
        Requests {
            key_prefix: prefix,
            sizes: Sizes::new(plan.value_size),
            heads: Operation::ALL
                .map(|operation| Template::new(operation, prefix, plan.target.authority(), connect)),
        }
    }

    /// Makes `request` what `ask` says; of a read, the value's beginning is expected.
    pub(super) fn render(&self, request: &mut Request, ask: Ask) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(ask.number).as_bytes();
        let head = &self.heads[ask.operation as usize];
        request.operation = ask.operation;
        request.exact = false;
        request.expected.clear();
        request.bytes.clear();
        request.bytes.extend_from_slice(&head.before);
        match ask.operation {
            Operation::Get => {
                request.bytes.extend_from_slice(digits);
                request.bytes.extend_from_slice(&head.after);
                // Whatever length was written last, no value is shorter than the shortest.
                self.write_mark(&mut request.expected, digits, self.sizes.min);
            }
            Operation::Put => {
                request.bytes.extend_from_slice(digits);
                request.bytes.extend_from_slice(&head.after);
                request.bytes.extend_from_slice(itoa::Buffer::new().format(ask.value_bytes).as_bytes());
                request.bytes.extend_from_slice(&head.end);
                self.write_value(&mut request.bytes, ask.number, digits, ask.value_bytes);
            }
            Operation::Delete => {
                request.bytes.extend_from_slice(digits);
                request.bytes.extend_from_slice(&head.after);
            }
            Operation::ComputePrime => {
                request.bytes.extend_from_slice(digits);
                request.bytes.extend_from_slice(&head.after);
                request.expected.extend_from_slice(b"{\"count\":");
                request.expected.extend_from_slice(digits);
                request.expected.push(b',');
            }
            Operation::ComputeHash => {
                write_text(&mut request.bytes, ask.number);
                let hash = hash(&request.bytes[head.before.len()..]);
                request.bytes.extend_from_slice(&head.after);
                request.expected.extend_from_slice(b"{\"hash\":");
                request.expected.extend_from_slice(itoa::Buffer::new().format(hash).as_bytes());
            }
        }
    }

    /// Makes `request` the PUT of key `number` that the preload makes: its value has the length that belongs to the key.
    pub(super) fn render_preloading(&self, request: &mut Request, number: u64) {
        let value_bytes = self.sizes.of_key(number);
        self.render(request, Ask { operation: Operation::Put, number, value_bytes });
    }

    /// Makes `request` the read of key `number` that expects exactly the value that the preload wrote.
    pub(super) fn render_verifying(&self, request: &mut Request, number: u64) {
        self.render(request, Ask { operation: Operation::Get, number, value_bytes: 0 });
        request.exact = true;
        request.expected.clear();
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        self.write_value(&mut request.expected, number, digits, self.sizes.of_key(number));
    }

    /// The name of key `number`.
    pub(super) fn key(&self, number: u64) -> String {
        format!("{}{number}", self.key_prefix)
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
    const TEXT_BYTES: usize = 100;
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

impl Template {
    fn new(operation: Operation, key_prefix: &str, authority: &str, connect: Connect) -> Template {
        // Unreserved in URLs, and in no key prefix.
        const GAP: &str = "~";
        let target = match operation {
            Operation::Get | Operation::Put | Operation::Delete => {
                let key =
                    Key::new(format!("{key_prefix}{GAP}").as_bytes()).expect("prefixes are a few bytes");
                path_of_key(&key)
            }
            Operation::ComputePrime => format!("{COMPUTE_PRIME}?count={GAP}"),
            Operation::ComputeHash => format!("{COMPUTE_HASH}?text={GAP}"),
        };
        let mut head = Vec::new();
        let mut writer = http1::request::Writer::new(&mut head, operation.method(), &target, authority);
        if connect == Connect::Each {
            writer = writer.field("Connection", b"close");
        }
        let mut end = Vec::new();
        match operation {
            Operation::Put => {
                writer.end_with_length(0);
                // The length stands last of all: a single digit, and the two line ends.
                end = head.split_off(head.len() - b"\r\n\r\n".len());
                head.pop();
            }
            _ => writer.end(),
        }
        // The request line comes first and holds the whole target.
        let gap = operation.method().len() + 1 + target.len() - GAP.len();
        let after = head.split_off(gap + GAP.len());
        head.truncate(gap);
        Template { before: head, after, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(value_size: &str, connect: Connect) -> Requests {
        let plan = Plan { value_size: value_size.parse().unwrap(), ..Plan::example("mixed") };
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
}
