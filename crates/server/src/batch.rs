//! `POST /batch`: many operations in one request, a line of JSON each, and a line for each answer.

use crate::budget::{Budget, Full, Reservation};
use crate::change::{Change, Expiry};
use crate::data::DataWriter;
use crate::error::Failure;
use crate::head::{ReadCondition, content_encoding, content_type, ttl};
use crate::json::{self, Etag, Members};
use crate::reply::mark;
use crate::routes::{if_match, unless};
use crate::tiered::{Error, Kind, Read, RowReservation, WriteError, WriteTerms};
use crate::timeouts::End;
use crate::tokens::Verb;
use crate::wire::Stream;
use crate::{Shared, Worker, idempotency};
use futures_util::future::join_all;
use kv::units::Size;
use kv::{Key, Precondition, Row, Timestamp, Version};
use serde::Deserialize;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Deref;
use std::rc::Rc;
use store::{AtomicAnswer, AtomicOperation, AtomicOutcome, Idempotency, Written};

/// Most bytes of a request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Most lines of a request.
const LINES_MAX: usize = 10_000;
/// Lines that are done side by side at most. With more a few batches of writes would fill the store's queue, and reads are no faster.
const ROUND_LINES_MAX: usize = 64;
/// Rows and values that a batch holds at most, or one that is larger.
const HELD_BYTES_MAX: usize = 4 << 20;
/// What is said of a line that is refused may quote it.
const DETAIL_BYTES_MAX: usize = 300;
/// The codes of lines that found no store.
const AWAY: [&str; 2] = ["standby", "store_unavailable"];
/// Of `if_match` and `if_none_match`: as long as the head of a request.
const TAGS_BYTES_MAX: usize = 16 << 10;

/// A line of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'l> {
    op: &'l str,
    #[serde(borrow)]
    key: Option<Text<'l>>,
    key_b64: Option<Text<'l>>,
    value: Option<Text<'l>>,
    value_b64: Option<Text<'l>>,
    #[serde(rename = "type")]
    content_type: Option<String>,
    encoding: Option<String>,
    ttl: Option<u64>,
    expires: Option<String>,
    if_match: Option<String>,
    if_none_match: Option<String>,
}

/// Copied only if it has escapes.
#[derive(Deserialize)]
struct Text<'l>(#[serde(borrow)] Cow<'l, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// What a line asks for.
pub(super) struct Operation {
    pub(super) key: Key,
    pub(super) what: What,
    /// By what a write is known if the batch comes again.
    idempotency: Option<Idempotency>,
}

pub(super) enum What {
    Get(ReadCondition),
    Write(Change, Precondition),
}

impl What {
    fn is_get(&self) -> bool {
        matches!(self, What::Get(_))
    }

    /// Of the value that it carries.
    fn bytes(&self) -> usize {
        if let What::Write(Change::Put { value, .. }, _) = self { value.len() } else { 0 }
    }
}

/// What came of a line.
type Answered<'h> = Result<LineAnswer<'h>, Failure>;

struct LineAnswer<'h> {
    status: u16,
    version: Option<Version>,
    row: Option<Row>,
    mark: Mark,
    /// What it holds until it is sent.
    _part: Option<Part<'h>>,
}

/// How a read was served that may be old.
type Mark = Option<Cow<'static, str>>;

/// An operation, or why its line is refused.
type Checked = Result<Operation, Failure>;

/// What became of a line of a round.
enum Done<'h> {
    /// The line is refused for itself: nobody was asked.
    Refused(Failure),
    Answered(Answered<'h>),
    /// A get whose row has no room until the answers before it are sent.
    Deferred(Key, ReadCondition),
}

/// Rows and values that a batch holds. The reservation is as large as the most of them so far.
struct Held<'b> {
    bytes: Cell<usize>,
    reservation: RefCell<Reservation<&'b Budget>>,
    /// The largest of them.
    largest: Cell<usize>,
}

/// A part of it, given back when dropped.
struct Part<'h> {
    sum: &'h Cell<usize>,
    bytes: usize,
}

impl Held<'_> {
    /// Takes so much, if there is memory for it.
    fn take(&self, bytes: usize) -> Result<Part<'_>, Failure> {
        let sum = self.bytes.get() + bytes;
        self.reservation.borrow_mut().raise(sum)?;
        self.bytes.set(sum);
        self.largest.set(self.largest.get().max(bytes));
        Ok(Part { sum: &self.bytes, bytes })
    }

    /// The answer to a get of a row, which is held until it is sent.
    fn shown(&self, row: Row, mark: Mark, condition: &ReadCondition) -> Answered<'_> {
        let part = self.take(row.bytes())?;
        shown(row, mark, condition, Some(part))
    }

    /// Whether so much is more than a batch holds, besides the first.
    fn is_above_share(&self, bytes: usize) -> bool {
        self.bytes.get() > 0 && self.bytes.get() + bytes > HELD_BYTES_MAX
    }

    /// How many lines may be done side by side, by what their rows may be large.
    fn lines(&self) -> usize {
        (HELD_BYTES_MAX / self.largest.get().max(1)).clamp(1, ROUND_LINES_MAX)
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.sum.set(self.sum.get() - self.bytes);
    }
}

/// Performs the operations of `body` and writes their answers. Each is permitted shortly before it is done: the client may take its
/// time with the answers, and its token end meanwhile.
pub(super) async fn perform<S: Stream>(
    worker: &Rc<Worker>,
    mut permit: impl FnMut(Verb, &[u8]) -> Result<(), Failure>,
    is_atomic: bool,
    idempotency_key: Option<&[u8]>,
    body: &[u8],
    out: DataWriter<'_, S>,
) -> Result<(), End> {
    let lines = numbered(body);
    let count = lines.clone().count();
    if count > LINES_MAX {
        let what = format!("a batch has at most {LINES_MAX} lines, this one has {count}");
        return Err(Failure::new(413, "batch_too_large", what).not_applied().into());
    }
    let value_bytes_max = worker.shared.options.value_bytes;
    let repeated = idempotency_key.map(|given| (given, idempotency::digest(&[body])));
    // How often each key was written so far: by that a write is known also in another place of another body.
    let mut writes: HashMap<[u8; 16], usize> = HashMap::new();
    let operations = lines.map(|(_, line)| -> Checked {
        let mut operation = operation(line, value_bytes_max).map_err(Failure::not_applied)?;
        if let Some((given, digest)) = repeated.filter(|_| !operation.what.is_get()) {
            let key = operation.key.as_bytes();
            let count = writes.entry(idempotency::digest(&[key])).or_default();
            *count += 1;
            operation.idempotency =
                Some(Idempotency { id: idempotency::id_of_line(given, key, *count), digest });
        }
        Ok(operation)
    });
    let mut permitted = |operation: Operation| -> Checked {
        let verb = if operation.what.is_get() { Verb::Read } else { Verb::Write };
        permit(verb, operation.key.as_bytes()).map_err(Failure::not_applied)?;
        Ok(operation)
    };
    let held = Held {
        bytes: Cell::default(),
        reservation: RefCell::new(worker.shared.budget.reservation()),
        largest: Cell::default(),
    };
    let mut answers = Answers { out, done: 0, failed: 0 };
    if is_atomic {
        // What is written is copied, and once more for the store.
        let (copies, most) = (2 * body.len(), worker.shared.budget.bytes);
        if body.len() + copies > most {
            let most = Size(most as u64);
            let what = format!("an atomic batch counts three times in --memory-budget, which is {most}");
            return Err(Failure::new(413, "batch_too_large", what).not_applied().into());
        }
        let raised = held.reservation.borrow_mut().raise(copies);
        raised.map_err(|full| Failure::from(full).not_applied())?;
        let checked = operations.map(|operation| operation.and_then(&mut permitted));
        // The rows count until the answers are sent.
        let (applied, _reservation) = together(worker, checked, body).await?;
        for answer in applied {
            answers.push(answer).await?;
        }
        return answers.finish().await;
    }
    let begun: Result<Vec<_>, _> =
        worker.shared.tiers.shards.iter().map(|tier| tier.store().begin_batch()).collect();
    let _begun = begun.map_err(|error| Failure::of_write(WriteError::Store(error)).not_applied())?;
    let mut round: Vec<Result<(Operation, Part<'_>), Failure>> = Vec::new();
    // The keys of the round, and whether it writes them: then what follows waits, as a write does anyway.
    let mut keys: HashMap<Key, bool> = HashMap::new();
    for operation in operations {
        let follows = operation.as_ref().is_ok_and(|Operation { key, what, .. }| {
            keys.get(key).is_some_and(|is_written| *is_written || !what.is_get())
        });
        let bytes = operation.as_ref().map_or(0, |operation| operation.what.bytes());
        if follows || round.len() >= held.lines() || held.is_above_share(bytes) {
            answers.push_round(worker, &held, &mut round).await?;
            keys.clear();
        }
        let operation = operation.and_then(&mut permitted);
        if let (true, Ok(Operation { key, what: What::Get(condition), .. })) = (round.is_empty(), &operation)
            // What the cache has needs no future.
            && let Some((row, shard)) = worker.shared.tiers.cached(key.as_bytes(), Row::clone)
        {
            worker.metrics.hits[shard].add(1);
            answers.push(held.shown(row, None, condition)).await?;
            continue;
        }
        if let Ok(Operation { key, what, .. }) = &operation {
            *keys.entry(key.clone()).or_default() |= !what.is_get();
        }
        let part = |operation| Ok((operation, held.take(bytes).map_err(Failure::not_applied)?));
        round.push(operation.and_then(part));
    }
    answers.push_round(worker, &held, &mut round).await?;
    answers.finish().await
}

/// The lines of a request that are not blank, with their numbers.
fn numbered(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> + Clone {
    (1..).zip(body.split(|byte| *byte == b'\n')).filter(|(_, line)| !line.trim_ascii().is_empty())
}

/// Performs all of them or none; the answers, and the memory that is reserved for their rows. They are the lines of `body`.
async fn together(
    worker: &Worker,
    operations: impl Iterator<Item = Checked>,
    body: &[u8],
) -> Result<(Vec<Answered<'static>>, RowReservation), Failure> {
    let tiers = &worker.shared.tiers;
    let [tier] = &*tiers.shards else {
        let what =
            "keys of several stores cannot be written in one transaction; send the batch without atomic=true";
        return Err(Failure::new(501, "not_implemented", what).not_applied());
    };
    let at_line = |index: usize, failure: Failure| {
        let line = numbered(body).nth(index).map_or(index, |(line, _)| line);
        let detail = format!("line {line}: {}; nothing of the batch was done", failure.detail);
        Failure { detail: detail.into(), ..failure }.not_applied()
    };
    let (mut asked, mut unknown) = (Vec::new(), Vec::new());
    for (index, operation) in operations.enumerate() {
        let Operation { key, what, .. } = operation.map_err(|failure| at_line(index, failure))?;
        let (condition, intent, unless) = match what {
            What::Get(ReadCondition { only_if, unless, .. }) => (only_if, None, unless),
            What::Write(change, condition) => {
                let expires = change.expires(tier).await;
                let expires = expires.map_err(|error| at_line(index, Failure::of_write(error)))?;
                (condition, Some(change.intent(&key, expires)), None)
            }
        };
        unknown.push(unless);
        asked.push(AtomicOperation { key, condition, intent });
    }
    if asked.is_empty() {
        return Ok((Vec::new(), None));
    }
    let outcome = worker.locked(tier.write_atomically(asked)).await;
    match outcome.map_err(|error| Failure::of_write(WriteError::Store(error)))? {
        (AtomicOutcome::ConditionFailed(index, version), _) => {
            Err(at_line(index, Failure::of_write(WriteError::ConditionFailed(version))))
        }
        (AtomicOutcome::Applied(applied), reservation) => {
            let answer = |(answer, unless): (AtomicAnswer, Option<Precondition>)| match answer {
                AtomicAnswer::Read(Some(row)) => {
                    shown(row, None, &ReadCondition { unless, ..ReadCondition::default() }, None)
                }
                AtomicAnswer::Read(None) => Err(Failure::absent()),
                AtomicAnswer::Dropped => Err(Full.into()),
                AtomicAnswer::Written(Written::Applied { version, existed, row: Some(_), .. }) => {
                    Ok(written(if existed { 204 } else { 201 }, Some(version)))
                }
                AtomicAnswer::Written(_) => Ok(written(204, None)),
            };
            Ok((applied.into_iter().zip(unknown).map(answer).collect(), reservation))
        }
    }
}

struct Answers<'c, S: Stream> {
    out: DataWriter<'c, S>,
    done: usize,
    failed: usize,
}

impl<S: Stream> Answers<'_, S> {
    async fn push(&mut self, answer: Answered<'_>) -> Result<(), End> {
        self.done += 1;
        match answer {
            Ok(LineAnswer { status, version, row, mark, _part }) => {
                let of_row = row.as_ref().map(Members::of).unwrap_or_default();
                let (status, etag) = (Some(status), version.map(Etag));
                let members = Members { status, etag, cache_status: mark.as_deref(), ..of_row };
                self.out.push_object(&members, row.as_ref().map(Row::value)).await?;
                self.out.push(b"\n").await
            }
            Err(failure) => {
                self.failed += 1;
                self.out.push(&failure.body()).await
            }
        }
    }

    /// Performs the lines of a round side by side. None of them is under way while the client takes its time with the answers.
    ///
    /// The error refuses the batch, of which nothing was done: the store is away. So whoever sent it, or a proxy, tries another server.
    async fn push_round(
        &mut self,
        worker: &Rc<Worker>,
        held: &Held<'_>,
        round: &mut Vec<Result<(Operation, Part<'_>), Failure>>,
    ) -> Result<(), End> {
        let done = join_all(round.drain(..).map(async |line| match line {
            Ok((operation, part)) => one(worker, held, operation, part).await,
            Err(failure) => Done::Refused(failure),
        }));
        let done = done.await;
        let asked = done.iter().filter(|done| !matches!(done, Done::Refused(_)));
        let away = |done| match done {
            &Done::Answered(Err(ref failure)) if AWAY.contains(&failure.code) => Some(failure),
            _ => None,
        };
        if self.done == 0
            && let Some(Some(failure)) = asked.map(away).reduce(Option::and)
        {
            return Err(failure.clone().not_applied().into());
        }
        for done in done {
            match done {
                Done::Refused(failure) => self.push(Err(failure)).await?,
                Done::Answered(answer) => self.push(answer).await?,
                Done::Deferred(key, condition) => {
                    let read = read(worker, &key).await;
                    self.push(read.and_then(|(row, mark)| held.shown(row, mark, &condition))).await?;
                }
            }
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(), End> {
        let end = format!("{{\"done\":{},\"failed\":{}}}\n", self.done, self.failed);
        self.out.push(end.as_bytes()).await?;
        self.out.finish().await
    }
}

/// What a line asks for; it is refused as a whole, so nothing of it has happened.
fn operation(line: &[u8], value_bytes_max: usize) -> Result<Operation, Failure> {
    let bad = |mut what: String| {
        if what.len() > DETAIL_BYTES_MAX {
            // A new one, as what is cut off would stay in memory.
            what = format!("{}…", &what[..what.floor_char_boundary(DETAIL_BYTES_MAX)]);
        }
        Failure::new(400, "bad_line", what)
    };
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| match line.trim_ascii_start() {
        // Line 1 of this line is another one of the batch, or of the file it comes from.
        [b'{', ..] => {
            bad(format!("the line is no operation: {error}").replacen(" at line 1 column ", ", byte ", 1))
        }
        // What the parser says of these is about Rust.
        _ => bad(r#"the line is no JSON object, as in {"op":"get","key":"a"}; a batch has one in each line"#
            .to_owned()),
    })?;
    let key = json::key_of(line.key.as_deref(), line.key_b64.as_deref()).map_err(bad)?;
    let tags_bytes = [&line.if_match, &line.if_none_match].map(|list| list.as_ref().map_or(0, String::len));
    if tags_bytes.iter().any(|bytes| *bytes > TAGS_BYTES_MAX) {
        return Err(bad(format!("if_match and if_none_match have at most {TAGS_BYTES_MAX} bytes")));
    }
    let precondition = |may_create| match (line.if_match.as_deref(), line.if_none_match.as_deref()) {
        (None, None) => Ok(Precondition::None),
        (Some(list), None) => if_match(&[list.as_bytes()]).map_err(|what| bad(what.to_owned())),
        (None, Some("*")) if may_create => Ok(Precondition::Absent),
        (None, Some(_)) => Err(bad("if_none_match of a put is *, and of a delete nothing".to_owned())),
        (Some(_), Some(_)) => Err(bad("a write has if_match or if_none_match, not both".to_owned())),
    };
    let has_more = line.value.is_some()
        || line.value_b64.is_some()
        || line.content_type.is_some()
        || line.encoding.is_some()
        || line.ttl.is_some()
        || line.expires.is_some();
    if has_more && matches!(line.op, "get" | "delete") {
        return Err(bad("only a put has value, type, encoding, ttl or expires".to_owned()));
    }
    let what = match line.op {
        "get" => What::Get(ReadCondition {
            only_if: match line.if_match.as_deref() {
                Some(list) => if_match(&[list.as_bytes()]).map_err(|what| bad(what.to_owned()))?,
                None => Precondition::None,
            },
            unless: line.if_none_match.as_deref().and_then(|list| unless(&[list.as_bytes()])),
            ..ReadCondition::default()
        }),
        "put" => {
            let value = json::bytes_of(line.value.as_deref(), line.value_b64.as_deref());
            let value = value.map_err(|why| bad(format!("the value {why}")))?;
            let value =
                value.ok_or_else(|| bad("a put needs a value, as \"value\" or \"value_b64\"".to_owned()))?;
            if value.len() > value_bytes_max {
                let what =
                    format!("a value has at most {value_bytes_max} bytes, this one has {}", value.len());
                return Err(Failure::new(413, "value_too_large", what));
            }
            let put = Change::Put {
                content_type: content_type(line.content_type.as_ref().map(String::as_bytes))?,
                content_encoding: content_encoding(&[line
                    .encoding
                    .as_deref()
                    .unwrap_or_default()
                    .as_bytes()])?,
                expiry: match (line.ttl, line.expires.as_deref()) {
                    (None, None) => None,
                    (Some(seconds), None) => Some(Expiry::After(ttl(seconds.to_string().as_bytes())?)),
                    (None, Some(text)) => {
                        let at = humantime::parse_rfc3339(text).map_err(|why| {
                            bad(format!("expires is no instant as in 2027-01-31T00:00:00.000Z: {why}"))
                        })?;
                        // Zero would be a value without end.
                        Some(Expiry::At(Timestamp::from(at).max(Timestamp(1))))
                    }
                    (Some(_), Some(_)) => return Err(bad("a put has ttl or expires, not both".to_owned())),
                },
                value: value.into_owned(),
            };
            What::Write(put, precondition(true)?)
        }
        "delete" => What::Write(Change::Delete, precondition(false)?),
        other => {
            let shown = other[..other.floor_char_boundary(DETAIL_BYTES_MAX)].escape_debug();
            return Err(bad(format!("an operation is get, put or delete, not {shown}")));
        }
    };
    Ok(Operation { key, what, idempotency: None })
}

/// Performs an operation; a write holds its `part` until it is done.
async fn one<'h>(
    worker: &Rc<Worker>,
    held: &'h Held<'_>,
    Operation { key, what, idempotency }: Operation,
    part: Part<'h>,
) -> Done<'h> {
    match what {
        What::Get(condition) => {
            let read = read(worker, &key).await;
            if read.as_ref().is_ok_and(|(row, _)| held.is_above_share(row.bytes())) {
                return Done::Deferred(key, condition);
            }
            Done::Answered(read.and_then(|(row, mark)| held.shown(row, mark, &condition)))
        }
        What::Write(change, condition) => {
            let is_put = matches!(change, Change::Put { .. });
            let made = worker.write(&key, change, WriteTerms { condition, idempotency }).await;
            drop(part);
            let answer = made.map(|made| match is_put {
                true => written(if made.existed { 204 } else { 201 }, Some(made.version)),
                false => written(204, None),
            });
            Done::Answered(answer.map_err(Failure::of_write))
        }
    }
}

async fn read(worker: &Rc<Worker>, key: &Key) -> Result<(Row, Mark), Failure> {
    let Shared { tiers, batch_reads, .. } = &*worker.shared;
    let store = tiers.tier_of(key).store();
    let permit = batch_reads[tiers.shard_of(key.as_bytes())].acquire();
    // It is never closed.
    let Ok(_permit) = tokio::time::timeout(store.queue_wait_max(), permit).await else {
        store.meters().read.shed.add(1);
        return Err(Failure::of_read(&Error::new(Kind::Overloaded, "too many reads of batches")));
    };
    let Read { row, served, .. } = worker.get(key).await?;
    let mark = mark(served);
    match row {
        Some(row) => Ok((row, mark)),
        None => Err(Failure::absent().marked(mark)),
    }
}

/// The answer to a get of a row that is there.
fn shown<'h>(row: Row, mark: Mark, condition: &ReadCondition, part: Option<Part<'h>>) -> Answered<'h> {
    let version = row.version();
    if !condition.admits(version) {
        return Err(Failure::other_version(version).marked(mark));
    }
    let (status, row) = if condition.is_known(version) { (304, None) } else { (200, Some(row)) };
    Ok(LineAnswer { status, version: Some(version), row, mark, _part: part })
}

fn written(status: u16, version: Option<Version>) -> LineAnswer<'static> {
    LineAnswer { status, version, row: None, mark: None, _part: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_refused_is_quoted_in_part() {
        let long = "\x7f".repeat(100_000);
        for line in [
            format!(r#"{{"op":"{long}","key":"a"}}"#),
            format!(r#"{{"op":"get","key":"a","{long}":1}}"#),
            format!(r#"{{"op":"put","key":"a","value":"","ttl":"{long}"}}"#),
            format!(r#"{{"op":"put","key":"a","value":"","encoding":"{}"}}"#, "a,".repeat(100_000)),
        ] {
            let Err(failure) = operation(line.as_bytes(), 1000) else { panic!("{line}") };
            let Cow::Owned(detail) = failure.detail else { continue };
            assert!(detail.capacity() < 2000, "{} bytes", detail.capacity());
        }
    }

    #[test]
    fn an_unknown_operation_is_named_whatever_else_its_line_has() {
        let Err(failure) = operation(br#"{"op":"PUT","key":"a","value":"x"}"#, 1000) else {
            panic!("no put")
        };
        assert_eq!(failure.detail, "an operation is get, put or delete, not PUT");
    }

    #[test]
    fn an_array_of_operations_is_told_what_a_batch_is() {
        for line in [r#"[{"op":"get","key":"a"}]"#, "nothing"] {
            let Err(failure) = operation(line.as_bytes(), 1000) else { panic!("{line}") };
            assert!(failure.detail.contains("a batch has one in each line"), "{}", failure.detail);
        }
    }

    #[test]
    fn of_a_line_that_is_cut_off_its_place_in_the_line_is_told() {
        let Err(failure) = operation(br#"{"op":"get","key":"#, 1000) else { panic!("it is no operation") };
        assert_eq!(failure.detail, "the line is no operation: EOF while parsing a value, byte 18");
    }

    #[test]
    fn a_line_has_as_many_tags_as_a_head() {
        for op in [r#""op":"get""#, r#""op":"put","value":"""#, r#""op":"delete""#] {
            let check = |tags: usize| {
                let list = r#"\"1\","#.repeat(tags);
                operation(format!(r#"{{{op},"key":"a","if_match":"{list}"}}"#).as_bytes(), 1000).is_ok()
            };
            assert!(check(4096) && !check(4097), "{op}");
        }
    }
}
