//! What the fuzzer calls with bytes of its own: answers, dialects, and the lines that a coordinator and its workers exchange.

use super::answer::{Answer, Outcome};
use super::fault::Fault;
use super::keys::RequestSpec;
use super::measure::Collector;
use super::mix::Operation;
use super::request::{Request, Requests};
use super::workers::{FromWorker, ToWorker};
use super::{Connect, DIALECTS, Dialect, Plan};
use clap::Parser;
use http1::{Framing, Limits, Slots};
use kv::proto::LoadEvent;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::LazyLock;
use std::time::Instant;

/// Any plan: what a request looks like does not depend on more of it.
static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let flags = ["load", "http://host:1", "--workload", "mixed", "--value-size", "10", "--verify", "all"];
    Plan::parse_from(flags)
});

/// An answer to a request of a built-in dialect.
///
/// The first two bytes choose the request, and whether its key may be absent. However the others are split, they mean the same, also behind another answer.
pub fn answer(data: &[u8]) {
    let [dialect, choice, bytes @ ..] = data else { return };
    let dialect = &DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let Some(mut request) = request(dialect, *choice) else { return };
    request.may_be_absent = choice & 16 == 16;
    let (whole, used) = read(&mut Answer::default(), bytes.chunks(1), &request);
    // What comes behind an answer belongs to the next one if it comes later, and is an error if it comes at once.
    let (own, next) = bytes.split_at(used);
    for pieces in [own.len().max(1), 2, 3, 7] {
        assert_eq!(read(&mut Answer::default(), own.chunks(pieces), &request), (whole, used));
    }
    let middle = own.len() / 2;
    let halves = [&own[..middle], &own[middle..]];
    let mut answer = Answer::default();
    let again = read(&mut answer, halves.into_iter().filter(|piece| !piece.is_empty()), &request);
    assert_eq!(again, (whole, used));
    if let End::Complete { keeps_alive, .. } = whole {
        let mut first = Answer::default();
        let surplus = read(&mut first, [bytes].into_iter().filter(|bytes| !bytes.is_empty()), &request).0;
        assert!(if next.is_empty() { surplus == whole } else { surplus == End::Failed(Fault::WrongLength) });
        if keeps_alive {
            // By the head of this answer the next one is known: it must mean what it means alone.
            answer.reset();
            let (after, _) = read(&mut answer, next.chunks(next.len().max(1)), &request);
            let (alone, _) = read(&mut Answer::default(), next.chunks(next.len().max(1)), &request);
            assert_eq!(after, alone);
        }
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Complete {
        status: u16,
        keeps_alive: bool,
        verdict: Outcome,
    },
    Failed(Fault),
    /// What it means if no more comes because the connection ended, or because time is up.
    Part {
        ended: Result<Option<Outcome>, Fault>,
        late: Fault,
    },
}

/// Reads an answer, and says how many bytes it took.
fn read<'b>(answer: &mut Answer, pieces: impl Iterator<Item = &'b [u8]>, request: &Request) -> (End, usize) {
    let mut used = 0;
    for piece in pieces {
        used += piece.len();
        match answer.take(piece, request) {
            Ok(false) => {}
            Ok(true) => {
                let (status, keeps_alive) = (answer.status, answer.keeps_alive());
                return (End::Complete { status, keeps_alive, verdict: answer.verdict(request) }, used);
            }
            Err(fault) => return (End::Failed(fault), used),
        }
    }
    let ended = answer.end().map(|()| (answer.status >= 200).then(|| answer.verdict(request)));
    (End::Part { ended, late: answer.late() }, used)
}

/// A request of `dialect`; `None` if it has none of this kind.
fn request(dialect: &'static Dialect, choice: u8) -> Option<Request> {
    let operation = Operation::ALL[usize::from(choice) % 8 % Operation::ALL.len()];
    let requests = Requests::new(&Plan { dialect: Some(dialect), ..PLAN.clone() }, Connect::Once);
    let mut request = Request::default();
    match (choice & 8, operation) {
        (8, Operation::Get | Operation::Put) => requests.render_preload(&mut request, operation, 7),
        _ => requests.render(
            &mut request,
            RequestSpec { operation, number: 7, value_bytes: 10, template: 0 },
            None,
        ),
    }
    dialect.supports(operation).then_some(request)
}

/// A dialect's file: it is refused in one line, or every request it makes is one that can be read in one way.
pub fn dialect(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let dialect = match Dialect::of_file("fuzz.toml", text) {
        Ok(dialect) => dialect,
        Err(why) => return assert!(!why.is_empty() && !why.contains('\n'), "{why}"),
    };
    let kinds = Operation::ALL.len() as u8;
    for choice in (0..kinds).chain(8..8 + kinds) {
        let Some(request) = request(dialect, choice) else { continue };
        let form = &request.form.request;
        // So many fields are no fault of a dialect.
        if form.headers.len() + 4 > http1::FIELDS_MAX {
            continue;
        }
        let wide = Limits { target_bytes: 1 << 24, head_bytes: 1 << 24 };
        let mut slots = Slots::default();
        let head = http1::request::parse(&request.bytes, &wide, &mut slots);
        let shown = request.bytes.escape_ascii();
        let Ok(Some(head)) = head else { panic!("{head:?}: {shown}") };
        let Framing::Length(body_bytes) = head.framing else { panic!("{head:?}: {shown}") };
        assert_eq!(head.bytes as u64 + body_bytes, request.bytes.len() as u64, "{shown}");
        assert!(head.keep_alive && request.bytes.starts_with(form.method.as_bytes()), "{shown}");
        let fields = head.fields().count();
        assert_eq!(fields, 1 + form.headers.len() + usize::from(form.body.is_some()), "{shown}");
    }
}

/// A line between a coordinator and a worker, or between `weir load --events` and the lab: what is read is written again as
/// it was, and can be counted.
pub fn workers(data: &[u8]) {
    same_again::<LoadEvent>(data);
    if let Some(ToWorker::Prepare { plan, .. }) = same_again(data) {
        let _ = plan.check();
    }
    if let Some(FromWorker::Thread(_, message)) = same_again(data) {
        let mut collector = Collector::new(&PLAN, Instant::now(), 1);
        collector.add(0, message, &mut |_| {});
    }
}

/// Checks that `line`, if it is a message of this type, means the same after it was written anew.
fn same_again<T: DeserializeOwned + Serialize>(line: &[u8]) -> Option<T> {
    let message: T = serde_json::from_slice(line).ok()?;
    let written = serde_json::to_vec(&message).expect("what was read can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("what was read can be written"), written);
    Some(message)
}
