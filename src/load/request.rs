//! Requests as bytes, and the values they carry.
//!
//! Heads are rendered once per run with a gap for the key's number; per request only copying is left. Bytes out: no
//! sockets.

use super::workload::{Operation, Workload};
use crate::http1;
use crate::kv::Key;
use crate::proto::path_of_key;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A request ready to be sent, and what its answer must hold. Its buffers are used again and again.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) operation: Operation,
    /// Head and body.
    pub(super) bytes: Vec<u8>,
    /// What the body of a read must begin with.
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
    value_bytes: usize,
    /// By `operation as usize`.
    heads: [Template; Operation::ALL.len()],
}

/// A rendered head around the gap where the key's number goes.
struct Template {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl Requests {
    /// For `workload` against the server that calls itself `authority`, with values of `value_bytes`.
    pub(super) fn new(workload: &Workload, authority: &str, value_bytes: usize) -> Requests {
        Requests {
            key_prefix: workload.key_prefix,
            value_bytes,
            heads: Operation::ALL
                .map(|operation| Template::new(operation, workload.key_prefix, authority, value_bytes)),
        }
    }

    /// Makes `request` the `operation` on key `number`; of a read, the value's beginning is expected.
    pub(super) fn render(&self, request: &mut Request, operation: Operation, number: u64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let head = &self.heads[operation as usize];
        request.operation = operation;
        request.exact = false;
        request.expected.clear();
        request.bytes.clear();
        request.bytes.extend_from_slice(&head.before);
        request.bytes.extend_from_slice(digits);
        request.bytes.extend_from_slice(&head.after);
        match operation {
            Operation::Get => self.write_mark(&mut request.expected, digits),
            Operation::Put => self.write_value(&mut request.bytes, number, digits),
            Operation::Delete => {}
        }
    }

    /// Makes `request` the read of key `number` that expects exactly the value a PUT of it writes.
    pub(super) fn render_verifying(&self, request: &mut Request, number: u64) {
        self.render(request, Operation::Get, number);
        request.exact = true;
        request.expected.clear();
        self.write_value(&mut request.expected, number, itoa::Buffer::new().format(number).as_bytes());
    }

    /// The name of key `number`.
    pub(super) fn key(&self, number: u64) -> String {
        format!("{}{number}", self.key_prefix)
    }

    /// Appends what the value begins with: its key and `=`, or as much of that as the value has room for.
    fn write_mark(&self, out: &mut Vec<u8>, digits: &[u8]) {
        let start = out.len();
        out.extend_from_slice(self.key_prefix.as_bytes());
        out.extend_from_slice(digits);
        out.push(b'=');
        out.truncate(start + self.value_bytes);
    }

    /// Appends the value of key `number`: the mark, then printable noise that is the same on every run.
    ///
    /// Noise of its own for every key: values cut from one block would let a compressing store look better than it is.
    fn write_value(&self, out: &mut Vec<u8>, number: u64, digits: &[u8]) {
        let end = out.len() + self.value_bytes;
        self.write_mark(out, digits);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
        while out.len() < end {
            // Eight characters from `0` to `o` at a stroke: six random bits in each byte, above 0x30.
            let eight = (random.next_u64() & 0x3f3f_3f3f_3f3f_3f3f) + 0x3030_3030_3030_3030;
            out.extend_from_slice(&eight.to_le_bytes());
        }
        out.truncate(end);
    }
}

impl Template {
    fn new(operation: Operation, key_prefix: &str, authority: &str, value_bytes: usize) -> Template {
        // Unreserved in paths, and in no key prefix.
        const GAP: &str = "~";
        let key = Key::new(format!("{key_prefix}{GAP}").as_bytes()).expect("prefixes are a few bytes");
        let target = path_of_key(&key);
        let mut head = Vec::new();
        let writer = http1::request::Writer::new(&mut head, operation.method(), &target, authority);
        match operation {
            Operation::Put => writer.end_with_length(value_bytes as u64),
            Operation::Get | Operation::Delete => writer.end(),
        }
        // The request line comes first and holds the whole target.
        let gap = operation.method().len() + 1 + target.len() - GAP.len();
        let after = head.split_off(gap + GAP.len());
        head.truncate(gap);
        Template { before: head, after }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(value_bytes: usize) -> Requests {
        Requests::new(Workload::named("mixed").unwrap(), "host:1", value_bytes)
    }

    fn text(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_are_http_that_a_server_can_parse() {
        for (operation, line) in [
            (Operation::Get, "GET /kv/mixed_42 HTTP/1.1\r\n"),
            (Operation::Put, "PUT /kv/mixed_42 HTTP/1.1\r\n"),
            (Operation::Delete, "DELETE /kv/mixed_42 HTTP/1.1\r\n"),
        ] {
            let mut request = Request::default();
            requests(20).render(&mut request, operation, 42);
            assert!(text(&request.bytes).starts_with(line), "{}", text(&request.bytes));
            let mut slots = http1::Slots::default();
            let head = http1::request::parse(&request.bytes, &http1::Limits::default(), &mut slots);
            let head = head.ok().flatten().expect("a complete head");
            assert_eq!(head.field("host"), Some(&b"host:1"[..]));
            let body = &request.bytes[head.bytes..];
            assert_eq!(body.len(), if operation == Operation::Put { 20 } else { 0 });
        }
    }

    #[test]
    fn a_value_begins_with_its_key_and_goes_on_in_printable_noise() {
        let mut read = Request::default();
        for (value_bytes, expected) in [(100, "mixed_7="), (8, "mixed_7="), (3, "mix"), (0, "")] {
            let requests = requests(value_bytes);
            requests.render(&mut read, Operation::Get, 7);
            assert_eq!(text(&read.expected), expected);
            requests.render_verifying(&mut read, 7);
            assert!(text(&read.expected).starts_with(expected) && read.exact);
            assert_eq!(read.expected.len(), value_bytes);
            assert!(read.expected.iter().all(u8::is_ascii_graphic));
        }
    }

    #[test]
    fn a_read_back_expects_what_the_put_wrote() {
        let (mut put, mut read) = (Request::default(), Request::default());
        requests(1000).render(&mut put, Operation::Put, 3);
        requests(1000).render_verifying(&mut read, 3);
        assert!(put.bytes.ends_with(&read.expected));
        let three = read.expected.clone();
        requests(1000).render_verifying(&mut read, 4);
        assert_ne!(three[20..], read.expected[20..], "each key has noise of its own");
    }
}
