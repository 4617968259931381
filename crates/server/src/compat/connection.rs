//! One connection of a compatibility API: requests become operations over the tiers, and what became of them answers.
//!
//! Reading, sending, limits and time-outs are those of the plain interface. What is the library's: an answer's head,
//! 100 requests to a connection, 5 idle seconds, forms of at most 8 KiB, and that a failure ends the connection.

use super::counts::{Count, Figures};
use super::reply::Reply;
use super::{Asked, CompatState, Done, Operation};
use crate::Worker;
use crate::compute::{self, Full, Pool};
use crate::error::Failure;
use crate::query::{Params, decode};
use crate::reply::Request;
use crate::routes::{name, origin_form};
use crate::tiered::{Kind, Served, WriteError};
use crate::wire::{End, UNUSED_BODY_BYTES_MAX, Wire};
use bytes::Buf;
use http1::request::{self, Head, Method};
use http1::{Framing, Reject, Slots};
use kv::{Key, Precondition, Row};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};

/// After so many answers a connection ends.
const REQUESTS_MAX: u32 = 100;
/// A connection without a request is kept for so long.
const IDLE: Duration = Duration::from_secs(5);
/// Longest form.
const FORM_BYTES_MAX: usize = 8 << 10;
/// What values are said to be where the plain interface reads them.
const CONTENT_TYPE: &str = "text/plain";
/// How often an exchange is tried on condition that no other write comes between; then it is made without. Of two writers
/// each loses half of the races, of many on one key most: enough that only a crowd ever gets here.
const EXCHANGES_MAX: usize = 64;
/// Methods that are known there, besides those with a name here, and have no route anywhere.
const FURTHER_METHODS: [&str; 4] = ["PATCH", "TRACE", "CONNECT", "PRI"];

pub(crate) struct Connection<S> {
    wire: Wire<S>,
    state: Arc<CompatState>,
    answered: u32,
}

/// What stands at the front of the input.
enum Heard {
    /// No whole head yet.
    Incomplete,
    /// A head; the body follows.
    Request { request: Request, asked: Asked, is_form: bool },
    /// Nothing that can be served, with the status that says so.
    Refused(Request, u16),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S, worker: Rc<Worker>, state: Arc<CompatState>) -> Connection<S> {
        let idle = worker.shared.options.timeouts.idle.min(IDLE);
        Connection { wire: Wire::new(stream, worker, idle), state, answered: 0 }
    }

    pub(crate) async fn run(mut self) {
        let status = match self.serve().await {
            Err(End::Slow) => 408,
            Err(End::Cut) => 400,
            Ok(()) | Err(End::Gone | End::Draining) => return,
        };
        self.answer(&nobodys_request(), &Reply::empty(status));
        if self.wire.flush().await.is_ok() {
            self.wire.linger().await;
        }
    }

    async fn serve(&mut self) -> Result<(), End> {
        loop {
            let keep_alive = match self.hear() {
                Heard::Incomplete => {
                    self.wire.flush().await?;
                    self.wire.fill_head().await?;
                    continue;
                }
                Heard::Request { request, asked, is_form } => self.work(request, asked, is_form).await?,
                Heard::Refused(request, status) => self.answer(&request, &Reply::empty(status)),
            };
            if !keep_alive {
                self.wire.flush().await?;
                self.wire.linger().await;
                return Ok(());
            }
        }
    }

    fn hear(&mut self) -> Heard {
        if self.wire.input.is_empty() {
            return Heard::Incomplete;
        }
        let mut slots = Slots::default();
        let head = match request::parse(&self.wire.input, &self.wire.worker.shared.options.limits, &mut slots)
        {
            Ok(Some(head)) => head,
            Ok(None) => return Heard::Incomplete,
            Err(reject) => return Heard::Refused(nobodys_request(), status_of(&reject)),
        };
        let mut request = Request {
            method: Some(head.method),
            framing: head.framing,
            keep_alive: head.keep_alive,
            is_http10: head.is_http10,
            expects_continue: head.expect_continue,
            started: Instant::now(),
        };
        let method_name = match head.method {
            Method::Other => further_method(&self.wire.input),
            known => Some(name(known)),
        };
        let heard = match method_name {
            Some(method_name) if has_length(&head, method_name) => {
                let is_form = head
                    .field("content-type")
                    .is_some_and(|kind| kind.starts_with(b"application/x-www-form-urlencoded"));
                Heard::Request { asked: asked(&head, method_name), request, is_form }
            }
            // What follows cannot be told from a body.
            _ => {
                request.keep_alive = false;
                Heard::Refused(request, 400)
            }
        };
        let head_bytes = head.bytes;
        self.wire.input.advance(head_bytes);
        heard
    }

    /// Reads the body, does what is asked for, and answers; whether the connection goes on.
    async fn work(&mut self, mut request: Request, mut asked: Asked, is_form: bool) -> Result<bool, End> {
        let value_bytes = self.wire.worker.shared.options.value_bytes;
        let limit = match asked.method {
            _ if is_form => FORM_BYTES_MAX.min(value_bytes),
            Method::Put | Method::Post => value_bytes,
            _ => UNUSED_BODY_BYTES_MAX,
        };
        asked.body = match self.wire.read_body(&request, limit).await? {
            Ok(body) => body,
            Err(failure) => {
                // The rest of the body would be taken for a request.
                request.keep_alive = false;
                let status = if failure.status == 413 { 413 } else { 400 };
                return Ok(self.answer(&request, &Reply::empty(status)));
            }
        };
        if is_form {
            asked.params.add(&asked.body);
        }
        let api = self.state.api;
        let reply = match (api.route)(&mut asked) {
            Ok(mut operation) => {
                // What is answered so far need not wait for the store.
                self.wire.flush().await?;
                let done = perform(&self.wire.worker, &self.state, &mut operation).await;
                (api.tell)(&operation, done)
            }
            Err(reply) => reply,
        };
        Ok(self.answer(&request, &reply))
    }

    /// Appends an answer; whether the connection goes on.
    fn answer(&mut self, request: &Request, reply: &Reply) -> bool {
        self.answered += 1;
        let worker = &self.wire.worker;
        let fails = self.state.api.failure_closes && reply.status >= 400;
        let keep_alive =
            request.keep_alive && !worker.is_draining() && self.answered < REQUESTS_MAX && !fails;
        let is_head = request.method == Some(Method::Head);
        reply.write(&mut self.wire.output, self.state.api, keep_alive, is_head);
        worker.metrics.answered(request.method, reply.status, request.started.elapsed());
        keep_alive
    }
}

/// What could not be parsed, or did not arrive.
fn nobodys_request() -> Request {
    Request {
        method: None,
        framing: Framing::Length(0),
        keep_alive: false,
        is_http10: false,
        expects_continue: false,
        started: Instant::now(),
    }
}

/// The library knows only these for what it cannot read.
fn status_of(reject: &Reject) -> u16 {
    match reject.status {
        413 | 414 => reject.status,
        _ => 400,
    }
}

/// The name of a method that [`Method`] does not tell apart.
fn further_method(input: &[u8]) -> Option<&'static str> {
    let word = input.trim_ascii_start().split(|&byte| byte == b' ').next()?;
    FURTHER_METHODS.into_iter().find(|name| name.as_bytes() == word)
}

/// Requests with a body say how long it is, even if it is empty.
fn has_length(head: &Head<'_, '_>, method_name: &str) -> bool {
    let needs = matches!(method_name, "PUT" | "POST" | "PATCH");
    !needs || head.framing != Framing::Length(0) || head.field("content-length").is_some()
}

fn asked(head: &Head<'_, '_>, method_name: &'static str) -> Asked {
    let target = origin_form(head.target);
    let path_end = memchr::memchr(b'?', target).unwrap_or(target.len());
    let mut params = Params::default();
    if let Some(query) = target.get(path_end + 1..) {
        params.add(query);
    }
    let method = if head.method == Method::Head { Method::Get } else { head.method };
    Asked { method, method_name, path: decode(&target[..path_end], false), params, body: Vec::new() }
}

/// Does what is asked for. A value that is stored leaves its operation.
async fn perform(worker: &Worker, state: &CompatState, operation: &mut Operation) -> Result<Done, Failure> {
    let shared = &worker.shared;
    let (tiers, counts) = (&shared.tiers, &state.counts);
    let since = Instant::now();
    let wrote = || counts.add_call(Count::StoreWrites, Count::StoreWriteMicros, since.elapsed());
    match operation {
        Operation::Get(key) => {
            counts.add(Count::Gets);
            let (row, served) = read(worker, state, key).await?;
            Ok(Done::Read { row, served })
        }
        Operation::Put { key, value } => {
            counts.add(Count::Puts);
            let was_cached = tiers.is_cached(key.as_bytes());
            let put = worker.put(key, CONTENT_TYPE, std::mem::take(value), Precondition::None).await;
            put.map_err(Failure::of_write)?;
            wrote();
            Ok(Done::Written { was_cached })
        }
        Operation::Exchange { key, value } => {
            counts.add(Count::Puts);
            let old = exchange(worker, key, value).await?;
            wrote();
            Ok(Done::Exchanged { old })
        }
        Operation::Delete(key) => {
            counts.add(Count::Deletes);
            let was_cached = tiers.is_cached(key.as_bytes());
            worker.delete(key, Precondition::None).await.map_err(Failure::of_write)?;
            wrote();
            Ok(Done::Written { was_cached })
        }
        Operation::Preload { key, value } => {
            let put = tiers.preload(key, CONTENT_TYPE, std::mem::take(value)).await;
            put.map_err(Failure::of_write)?;
            Ok(Done::Written { was_cached: false })
        }
        Operation::Clear => {
            let cleared = tiers.clear().await;
            cleared.map_err(|error| Failure::of_write(WriteError::Store(error)))?;
            counts.reset();
            Ok(Done::Cleared)
        }
        Operation::Primes(count) => {
            let count = *count;
            Ok(Done::Primes(compute(shared.compute.as_ref(), move || compute::primes(count)).await?))
        }
        Operation::Hash(text) => hash(shared.compute.as_ref(), state, text).await,
        Operation::Figures => Ok(Done::Figures(Figures {
            counts: counts.since_reset(),
            cache: tiers.cache_counts(),
            cache_entries_max: state.cache_entries_max,
            hashes: state.hashes.lock().counts(),
        })),
    }
}

/// The row, and who had it.
async fn read(worker: &Worker, state: &CompatState, key: &Key) -> Result<(Option<Row>, Served), Failure> {
    let (tiers, counts) = (&worker.shared.tiers, &state.counts);
    let hit = |shard: usize| {
        worker.metrics.hits[shard].add(1);
        counts.add(Count::Hits);
    };
    if let Some((row, shard)) = tiers.cached(key.as_bytes(), Row::clone) {
        hit(shard);
        return Ok((Some(row), Served::Hit));
    }
    let since = Instant::now();
    let read = tiers.get(key).await.map_err(|error| Failure::of_read(&error))?;
    if read.served == Served::Hit {
        hit(tiers.shard_of(key.as_bytes()));
    } else {
        counts.add(Count::Misses);
        counts.add_call(Count::StoreReads, Count::StoreReadMicros, since.elapsed());
    }
    Ok((read.row, read.served))
}

/// Puts a value, and gives the row it replaced.
async fn exchange(worker: &Worker, key: &Key, value: &[u8]) -> Result<Option<Row>, Failure> {
    let tiers = &worker.shared.tiers;
    for attempt in 1.. {
        let read = match tiers.cached(key.as_bytes(), Row::clone) {
            Some((row, shard)) => {
                worker.metrics.hits[shard].add(1);
                Some(row)
            }
            None => tiers.get(key).await.map_err(|error| Failure::of_read(&error))?.row,
        };
        // On condition that nothing came between. Who loses again and again writes without it: then, as there, another
        // value may have stood under the key for a moment.
        let condition = match &read {
            _ if attempt == EXCHANGES_MAX => Precondition::None,
            None => Precondition::Absent,
            Some(row) => Precondition::VersionIn(vec![row.version()]),
        };
        let is_last = condition == Precondition::None;
        match worker.put(key, CONTENT_TYPE, value.to_vec(), condition).await {
            Ok(_) => return Ok(read),
            Err(WriteError::ConditionFailed(_)) => {}
            // Without batches there are no conditions.
            Err(WriteError::Store(error)) if error.kind() == Kind::Rejected && !is_last => {
                let put = worker.put(key, CONTENT_TYPE, value.to_vec(), Precondition::None).await;
                return put.map(|_| read).map_err(Failure::of_write);
            }
            Err(error) => return Err(Failure::of_write(error)),
        }
    }
    unreachable!("the last attempt has no condition")
}

async fn hash(pool: Option<&Pool>, state: &CompatState, text: &[u8]) -> Result<Done, Failure> {
    let known = state.hashes.lock().get(text);
    if let Some(hash) = known {
        state.counts.add(Count::HashHits);
        return Ok(Done::Hash { hash, was_known: true });
    }
    state.counts.add(Count::HashMisses);
    let text = text.to_vec();
    let (hash, text) = compute(pool, move || (compute::hash(&text), text)).await?;
    state.hashes.lock().insert(text, hash);
    Ok(Done::Hash { hash, was_known: false })
}

async fn compute<T: Send + 'static>(
    pool: Option<&Pool>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    match pool {
        Some(pool) => pool.run(work).await.map_err(|Full| Failure::no_room_to_compute()),
        None => Err(Failure::no_room_to_compute()),
    }
}
