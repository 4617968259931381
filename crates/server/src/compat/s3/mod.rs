//! `s3`: a subset of the interface of Amazon S3. One bucket, whose keys are weir's.
//!
//! A connection of its own, as heads, failures and bodies differ from those of the other APIs; TLS as in the plain interface.

mod answer;
mod body;
mod credentials;
#[cfg(feature = "test-support")]
#[path = "../../../tests/fuzz/mod.rs"]
pub mod fuzz;
mod request;
mod signature;
mod times;

pub use credentials::S3Credentials;
pub(crate) use times::Times;

use crate::Worker;
use crate::change::Change;
use crate::error::Failure;
use crate::hosts::Hosts;
use crate::list;
use crate::reply::Request;
use crate::tiered::WriteError;
use crate::timeouts::End;
use crate::wire::{OUTPUT_BYTES_MAX, Stream, UNUSED_BODY_BYTES_MAX, Wire};
use answer::Answer;
use bytes::Buf;
use http1::request as head;
use http1::{Limits, Slots};
use kv::Key;
use request::{Asked, Operation};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

pub(crate) use answer::write_failure;

/// What the workers share of the API at one of its addresses.
pub(crate) struct S3State {
    pub(crate) credentials: Arc<S3Credentials>,
    /// Those that its listener answers for.
    pub(crate) hosts: Option<Hosts>,
}

pub(crate) struct S3Connection<S: Stream> {
    wire: Wire<S>,
    state: Arc<S3State>,
}

impl<S: Stream> S3Connection<S> {
    pub(crate) fn new(stream: S, worker: Rc<Worker>, state: Arc<S3State>) -> S3Connection<S> {
        let idle = worker.shared.options.idle_timeout;
        S3Connection { wire: Wire::new(stream, worker, idle, write_failure), state }
    }

    pub(crate) async fn run(mut self) {
        let ended = self.serve().await;
        self.wire.end(ended).await;
    }

    async fn serve(&mut self) -> Result<(), End> {
        loop {
            let Some((request, asked)) = self.next_request() else {
                self.wire.fill_head().await?;
                continue;
            };
            let keep_alive = match asked {
                Ok(asked) => {
                    let keep_alive = self.perform(request, *asked).await?;
                    // Requests that arrived with it could not begin earlier.
                    self.wire.arrived = Instant::now();
                    keep_alive
                }
                Err(failure) => self.wire.refuse(&request, failure).await?,
            };
            if !keep_alive {
                return self.wire.close().await;
            }
            if self.wire.output.len() >= OUTPUT_BYTES_MAX {
                self.wire.flush().await?;
            }
        }
    }

    /// What the next head asks for, or why that is refused; `None`: there is no whole head yet.
    fn next_request(&mut self) -> Option<(Request, Result<Box<Asked>, Failure>)> {
        let mut slots = Slots::default();
        let head = match head::parse(&self.wire.input, &Limits::USUAL, &mut slots) {
            Ok(head) => head?,
            Err(reject) => {
                let request = Request::unparsed(&self.wire.input, self.wire.arrived);
                return Some((request, Err(reject.into())));
            }
        };
        let mut request = Request::of(&head, self.wire.arrived);
        request.keep_alive &= !self.wire.worker.is_draining();
        request.entry = self.wire.worker.entry(&head, self.wire.bytes());
        let admitted = self.state.hosts.as_ref().map_or(Ok(()), |hosts| hosts.admit(&head));
        let table = self.state.credentials.0.current();
        let asked = admitted.and_then(|()| request::asked(&head, &table, SystemTime::now()));
        let head_bytes = head.bytes;
        self.wire.input.advance(head_bytes);
        Some((request, asked.map(Box::new)))
    }

    /// Reads the body, does what is asked and answers; whether the connection goes on.
    async fn perform(&mut self, mut request: Request, asked: Asked) -> Result<bool, End> {
        let Asked { credential, operation, payload, checksums } = asked;
        let worker = Rc::clone(&self.wire.worker);
        let value_bytes = worker.shared.options.value_bytes;
        let is_put = operation.is_put();
        let limit = match &payload {
            _ if !is_put => UNUSED_BODY_BYTES_MAX,
            signature::Payload::Chunks { .. } => body::with_chunks(value_bytes),
            _ => value_bytes,
        };
        // Until the answer: also while the value waits for the store.
        let mut reservation = worker.shared.budget.reservation();
        let body = match self.wire.read_body(&request, limit, is_put, &mut reservation).await {
            Ok(body) => body,
            Err(error) => return self.wire.refuse(&request, error.failure()?.closing()).await,
        };
        // Earlier answers need not wait for the store.
        self.wire.flush_and_shrink().await?;
        // The file may have changed while the body was sent.
        let checked = match self.state.credentials.0.current().current(&credential) {
            Some(credential) => operation.check(credential),
            None => Err(signature::unknown_access_key()),
        };
        let answer = match checked.and_then(|()| checksums.open(body, payload, value_bytes)) {
            Ok(value) => self.answer(operation, value).await,
            Err(failure) => Err(request.not_done(failure)),
        };
        request.keep_alive &= !worker.is_draining();
        match answer {
            Ok(answer) => self.send(&request, answer).await,
            Err(failure) => Ok(self.wire.answer_failure(&request, &failure)),
        }
    }

    async fn answer(&self, operation: Operation, value: Vec<u8>) -> Result<Answer, Failure> {
        let worker = &self.wire.worker;
        let tiers = &worker.shared.tiers;
        let bucket = || self.state.credentials.0.current().bucket.clone();
        if let Operation::Get(key, _) | Operation::Write(key, ..) = &operation {
            worker.metrics.prefixes.count(key.as_bytes());
        }
        match operation {
            Operation::ListBuckets => {
                Ok(Answer::Xml(answer::buckets(&bucket(), worker.shared.times.started)))
            }
            Operation::HeadBucket => Ok(Answer::Empty { status: 200, etag: None }),
            Operation::Location => Ok(Answer::Xml(answer::location())),
            Operation::CreateBucket => {
                let what = "the bucket is there: it is named in the file of credentials";
                Err(Failure::new(409, "BucketAlreadyOwnedByYou", what).not_applied())
            }
            Operation::List(list) => {
                let mut reservation = worker.shared.budget.reservation();
                let page = match list.query.limit {
                    0 => list::Entries::default(),
                    _ => list
                        .query
                        .entries(tiers, &mut reservation)
                        .await
                        .map_err(|error| Failure::of_read(&error))?,
                };
                let now = SystemTime::now();
                let times = &worker.shared.times;
                let seen = |key: &[u8], version| times.of(tiers.shard_of(key), version, now);
                answer::list(&bucket(), &list, &page, seen).map(Answer::Xml)
            }
            Operation::Get(key, condition) => {
                let (row, served) = worker.read(&key).await?;
                let row = row.ok_or_else(Failure::absent)?;
                if !condition.admits(row.version()) {
                    let what = "If-Match does not have the ETag of the value";
                    return Err(Failure::new(412, "PreconditionFailed", what));
                }
                let modified = self.modified(&key, row.version());
                Ok(Answer::Row { row, condition, modified, served })
            }
            Operation::Write(key, change, condition) => {
                let is_put = matches!(change, Change::Put { .. });
                let made = worker.write(&key, change.with_body(value), condition).await;
                let made = made.map_err(|error| match error {
                    // Only If-Match of a put fails because of that.
                    WriteError::ConditionFailed(None) if is_put => Failure::absent().not_applied(),
                    other => Failure::of_write(other),
                })?;
                if !is_put {
                    return Ok(Answer::Empty { status: 204, etag: None });
                }
                self.modified(&key, made.version);
                Ok(Answer::Empty { status: 200, etag: Some(made.version) })
            }
        }
    }

    fn modified(&self, key: &Key, version: kv::Version) -> SystemTime {
        let shared = &self.wire.worker.shared;
        shared.times.of(shared.tiers.shard_of(key.as_bytes()), version, SystemTime::now())
    }

    async fn send(&mut self, request: &Request, answer: Answer) -> Result<bool, End> {
        let head_at = self.wire.output.len();
        let (status, part) = match answer.write_head(&mut self.wire.output, request) {
            Ok(written) => written,
            Err(failure) => return Ok(self.wire.answer_failure(request, &failure)),
        };
        let mut sent = Ok(());
        if !request.is_head() {
            let body = answer.body();
            match self.wire.push_value(head_at, &body[part], body.len()).await {
                Ok(pushed) => sent = pushed,
                Err(full) => return Ok(self.wire.answer_failure(request, &full.into())),
            }
        }
        let served = match answer {
            Answer::Row { served, .. } => Some(served),
            Answer::Empty { .. } | Answer::Xml(_) => None,
        };
        // Also if the client has left meanwhile.
        self.wire.answered(request, status, served, None);
        sent.map(|()| request.keep_alive)
    }
}
