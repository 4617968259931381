//! `POST /batch`: many operations in one request, a line of JSON each, and a line for each answer.

use crate::access::Access;
use crate::error::Failure;
use crate::head::{content_encoding, content_type, ttl};
use crate::reply::{Answer, NDJSON};
use crate::routes::{if_match, unless};
use crate::tiered::{Served, Tiered, WriteError};
use crate::tokens::Verb;
use crate::{Worker, json};
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use kv::{Attributes, Key, Precondition, Row, Version};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use store::{AtomicAnswer, AtomicOperation, AtomicOutcome, Intent, Written};

/// Most bytes of a request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 20;
/// Most lines of a request.
const LINES_MAX: usize = 10_000;
/// Values are left out of an answer once it has so many bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Operations that are under way at the same time.
const IN_FLIGHT_MAX: usize = 1024;

/// A line of the request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'l> {
    op: &'l str,
    #[serde(borrow)]
    key: Option<Cow<'l, str>>,
    #[serde(borrow)]
    key_b64: Option<Cow<'l, str>>,
    #[serde(borrow)]
    value: Option<Cow<'l, str>>,
    #[serde(borrow)]
    value_b64: Option<Cow<'l, str>>,
    #[serde(borrow, rename = "type")]
    content_type: Option<Cow<'l, str>>,
    #[serde(borrow)]
    encoding: Option<Cow<'l, str>>,
    ttl: Option<u64>,
    #[serde(borrow)]
    if_match: Option<Cow<'l, str>>,
    #[serde(borrow)]
    if_none_match: Option<Cow<'l, str>>,
}

/// What a line asks for.
pub(super) struct Operation {
    pub(super) key: Key,
    pub(super) what: What,
}

pub(super) enum What {
    Get {
        only_if: Precondition,
        unless: Option<Precondition>,
    },
    Put {
        content_type: String,
        encoding: String,
        ttl: Option<Duration>,
        value: Vec<u8>,
        condition: Precondition,
    },
    Delete {
        condition: Precondition,
    },
}

impl What {
    fn is_get(&self) -> bool {
        matches!(self, What::Get { .. })
    }
}

/// The answer to a line.
type Answered = Result<Map<String, Value>, Failure>;

/// Performs the operations of `body` that `access` permits.
pub(super) async fn perform(
    worker: &Rc<Worker>,
    access: &Access,
    is_atomic: bool,
    body: &[u8],
) -> Result<Answer, Failure> {
    let lines: Vec<&[u8]> =
        body.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).collect();
    if lines.len() > LINES_MAX {
        let what = format!("a batch has at most {LINES_MAX} lines, this one has {}", lines.len());
        return Err(Failure::new(413, "batch_too_large", what).not_applied());
    }
    let value_bytes_max = worker.shared.options.value_bytes;
    let operations = lines.iter().map(|line| {
        let operation = operation(line, value_bytes_max)?;
        let verb = if operation.what.is_get() { Verb::Read } else { Verb::Write };
        access.permit(verb, operation.key.as_bytes()).map_err(Failure::not_applied)?;
        Ok(operation)
    });
    let answers = Answers { body: Vec::with_capacity(64 * lines.len()), done: 0, failed: 0 };
    if is_atomic {
        return together(worker, operations.collect(), answers).await;
    }
    let mut answers = answers;
    let mut in_flight = FuturesOrdered::new();
    // Keys of lines before that may not be done, and whether one of those writes: then this one waits, as a write does anyway.
    let mut pending: HashMap<Key, bool> = HashMap::new();
    for operation in operations {
        let follows = operation.as_ref().is_ok_and(|Operation { key, what }| {
            pending.get(key).is_some_and(|is_written| *is_written || !what.is_get())
        });
        while in_flight.len() >= IN_FLIGHT_MAX || follows && !in_flight.is_empty() {
            let Some(answer) = in_flight.next().await else { break };
            answers.push(answer);
        }
        if in_flight.is_empty() {
            pending.clear();
        }
        if let Ok(Operation { key, what }) = &operation {
            // What the cache has needs no future.
            if let (What::Get { only_if, unless }, true) = (what, in_flight.is_empty())
                && let Some((row, shard)) = worker.shared.tiers.cached(key.as_bytes(), Row::clone)
            {
                worker.metrics.hits[shard].add(1);
                answers.push(shown(&row, only_if, unless.as_ref()));
                continue;
            }
            *pending.entry(key.clone()).or_default() |= !what.is_get();
        }
        in_flight.push_back(async move {
            match operation {
                Ok(operation) => one(worker, operation).await,
                Err(failure) => Err(failure),
            }
        });
    }
    while let Some(answer) = in_flight.next().await {
        answers.push(answer);
    }
    Ok(answers.finish())
}

/// Performs all of them or none.
async fn together(
    worker: &Worker,
    operations: Vec<Result<Operation, Failure>>,
    mut answers: Answers,
) -> Result<Answer, Failure> {
    let tiers = &worker.shared.tiers;
    let [tier] = &*tiers.shards else {
        let what =
            "keys of several stores cannot be written in one transaction; send the batch without atomic=true";
        return Err(Failure::new(501, "not_implemented", what).not_applied());
    };
    let at_line = |index: usize, failure: Failure| {
        let detail = format!("line {}: {}; nothing of the batch was done", index + 1, failure.detail);
        Failure { detail: detail.into(), ..failure }.not_applied()
    };
    let mut asked = Vec::with_capacity(operations.len());
    let mut unknown = Vec::with_capacity(operations.len());
    for (index, operation) in operations.into_iter().enumerate() {
        let Operation { key, what } = operation.map_err(|failure| at_line(index, failure))?;
        let (condition, intent, unless) = match what {
            What::Get { only_if, unless } => (only_if, None, unless),
            What::Put { content_type, encoding, ttl, value, condition } => {
                let attributes = attributes(tier, &content_type, &encoding, ttl);
                (condition, Some(Intent::Put(Row::with(&key, attributes, &value, Version::default()))), None)
            }
            What::Delete { condition } => (condition, Some(Intent::Delete), None),
        };
        unknown.push(unless);
        asked.push(AtomicOperation { key, condition, intent });
    }
    if asked.is_empty() {
        return Ok(answers.finish());
    }
    let outcome = worker.locked(tier.write_atomically(asked)).await;
    match outcome.map_err(|error| Failure::of_write(WriteError::Store(error)))? {
        AtomicOutcome::ConditionFailed(index, version) => {
            Err(at_line(index, Failure::of_write(WriteError::ConditionFailed(version))))
        }
        AtomicOutcome::Applied(applied) => {
            for (answer, unless) in applied.into_iter().zip(unknown) {
                answers.push(match answer {
                    AtomicAnswer::Read(Some(row)) => shown(&row, &Precondition::None, unless.as_ref()),
                    AtomicAnswer::Read(None) => Err(Failure::absent()),
                    AtomicAnswer::Written(Written::Applied { version, existed, row: Some(_), .. }) => {
                        Ok(written(if existed { 204 } else { 201 }, Some(version)))
                    }
                    AtomicAnswer::Written(_) => Ok(written(204, None)),
                });
            }
            Ok(answers.finish())
        }
    }
}

struct Answers {
    body: Vec<u8>,
    done: usize,
    failed: usize,
}

impl Answers {
    fn push(&mut self, answer: Answered) {
        let is_full = self.body.len() > ANSWER_BYTES_MAX;
        let answer = match answer {
            Ok(object) if is_full && (object.contains_key("value") || object.contains_key("value_b64")) => {
                let what = "the answers before this one are 64 MiB already; read this key on its own";
                Err(Failure::new(413, "answer_too_large", what))
            }
            other => other,
        };
        self.done += 1;
        match answer {
            Ok(object) => json::push_line(&mut self.body, object),
            Err(failure) => {
                self.failed += 1;
                self.body.extend_from_slice(&failure.body());
            }
        }
    }

    fn finish(mut self) -> Answer {
        let end = [("done", self.done), ("failed", self.failed)];
        let end = end.into_iter().map(|(name, count)| (name.to_owned(), count.into()));
        json::push_line(&mut self.body, end.collect());
        Answer::Data { content_type: NDJSON, body: self.body, link: None }
    }
}

/// What a line asks for; it is refused as a whole, so nothing of it has happened.
fn operation(line: &[u8], value_bytes_max: usize) -> Result<Operation, Failure> {
    let bad = |what: String| Failure::new(400, "bad_line", what).not_applied();
    let line: Line<'_> =
        serde_json::from_slice(line).map_err(|error| bad(format!("the line is no operation: {error}")))?;
    let key = json::key_of(line.key.as_deref(), line.key_b64.as_deref()).map_err(bad)?;
    let precondition = |may_create| match (line.if_match.as_deref(), line.if_none_match.as_deref()) {
        (None, None) => Ok(Precondition::None),
        (Some(list), None) => if_match(&[list.as_bytes()]).map_err(|what| bad(what.to_owned())),
        (None, Some("*")) if may_create => Ok(Precondition::Absent),
        (None, Some(_)) => Err(bad("if_none_match of a put is *, and of a delete nothing".to_owned())),
        (Some(_), Some(_)) => Err(bad("a write has if_match or if_none_match, not both".to_owned())),
    };
    let is_put = line.op == "put";
    let has_more = line.value.is_some()
        || line.value_b64.is_some()
        || line.content_type.is_some()
        || line.encoding.is_some()
        || line.ttl.is_some();
    if has_more && !is_put {
        return Err(bad(format!("a {} has no value, type, encoding or ttl", line.op)));
    }
    let what = match line.op {
        "get" => What::Get {
            only_if: match line.if_match.as_deref() {
                Some(list) => if_match(&[list.as_bytes()]).map_err(|what| bad(what.to_owned()))?,
                None => Precondition::None,
            },
            unless: line.if_none_match.as_deref().and_then(|list| unless(&[list.as_bytes()])),
        },
        "put" => {
            let value = json::bytes_of(line.value.as_deref(), line.value_b64.as_deref());
            let value = value.map_err(|why| bad(format!("the value {why}")))?;
            let value =
                value.ok_or_else(|| bad("a put needs a value, as \"value\" or \"value_b64\"".to_owned()))?;
            if value.len() > value_bytes_max {
                let what =
                    format!("a value has at most {value_bytes_max} bytes, this one has {}", value.len());
                return Err(Failure::new(413, "value_too_large", what).not_applied());
            }
            What::Put {
                content_type: content_type(line.content_type.as_ref().map(|text| text.as_bytes()))?,
                encoding: content_encoding(&[line.encoding.as_deref().unwrap_or_default().as_bytes()])?,
                ttl: line.ttl.map(|seconds| ttl(seconds.to_string().as_bytes())).transpose()?,
                value,
                condition: precondition(true)?,
            }
        }
        "delete" => What::Delete { condition: precondition(false)? },
        other => {
            return Err(bad(format!("an operation is get, put or delete, not {}", other.escape_debug())));
        }
    };
    Ok(Operation { key, what })
}

async fn one(worker: &Rc<Worker>, Operation { key, what }: Operation) -> Answered {
    let tiers = &worker.shared.tiers;
    match what {
        What::Get { only_if, unless } => {
            let read = tiers.get(&key).await.map_err(|error| Failure::of_read(&error))?;
            if read.served == Served::Hit {
                worker.metrics.hits[tiers.shard_of(key.as_bytes())].add(1);
            }
            let row = read.row.ok_or_else(Failure::absent)?;
            shown(&row, &only_if, unless.as_ref())
        }
        What::Put { content_type, encoding, ttl, value, condition } => {
            let tier = tiers.tier_of(&key);
            let attributes = attributes(tier, &content_type, &encoding, ttl);
            let made = worker.locked(tier.put(&key, attributes, value, condition)).await;
            let made = made.map_err(Failure::of_write)?;
            Ok(written(if made.existed { 204 } else { 201 }, Some(made.version)))
        }
        What::Delete { condition } => {
            let delete = tiers.tier_of(&key).delete(&key, condition);
            worker.locked(delete).await.map_err(Failure::of_write)?;
            Ok(written(204, None))
        }
    }
}

fn attributes<'a>(
    tier: &Tiered,
    content_type: &'a str,
    content_encoding: &'a str,
    ttl: Option<Duration>,
) -> Attributes<'a> {
    Attributes { content_type, content_encoding, expires: ttl.map(|ttl| tier.clock().now().after(ttl)) }
}

/// The answer to a get of a row that is there.
fn shown(row: &Row, only_if: &Precondition, unless: Option<&Precondition>) -> Answered {
    let version = Some(row.version());
    if !only_if.holds(version) {
        return Err(Failure::other_version(row.version()));
    }
    if unless.is_some_and(|condition| condition.holds(version)) {
        return Ok(written(304, version));
    }
    let mut object = Map::from_iter([("status".to_owned(), 200.into())]);
    json::insert_attributes(&mut object, row.attributes(), row.version());
    json::insert_bytes(&mut object, "value", row.value());
    Ok(object)
}

fn written(status: u16, version: Option<Version>) -> Map<String, Value> {
    let mut object = Map::from_iter([("status".to_owned(), status.into())]);
    if let Some(version) = version {
        object.insert("etag".to_owned(), json::etag(version));
    }
    object
}
