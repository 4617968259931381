//! One connection of a compatibility API: requests become calls, and their replies are written.
//!
//! Reading, sending, limits and timeouts are those of the plain interface. These are the library's: the heads of answers,
//! 100 requests per connection, 5 idle seconds, forms of at most 8 KiB, and that a failure closes the connection.

use super::reply::Reply;
use super::{Call, CompatState};
use crate::Worker;
use crate::access_log::Entry;
use crate::head::{is_encoded, path_and_query};
use crate::query::{Params, decode};
use crate::reply::{Request, write_failure};
use crate::timeouts::End;
use crate::wire::{Stream, UNUSED_BODY_BYTES_MAX, Wire};
use bytes::Buf;
use http1::request::{self, Head, Method};
use http1::{Limits, Slots};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Answers before a connection ends.
const REQUESTS_MAX: u32 = 100;
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(5);
/// Longest form.
const FORM_BYTES_MAX: usize = 8 << 10;

pub(crate) struct Connection<S: Stream> {
    wire: Wire<S>,
    state: Arc<CompatState>,
    answered: u32,
}

impl<S: Stream> Connection<S> {
    pub(crate) fn new(stream: S, worker: Rc<Worker>, state: Arc<CompatState>) -> Connection<S> {
        let idle = worker.shared.options.idle_timeout.min(IDLE);
        Connection { wire: Wire::new(stream, worker, idle, write_failure), state, answered: 0 }
    }

    pub(crate) async fn run(mut self) {
        let status = match self.serve().await {
            Err(End::Slow) => 408,
            Err(End::Cut) => 400,
            Ok(()) | Err(End::Gone | End::Draining | End::Failed(_)) => return,
        };
        self.answer(&Request::unparsed(&self.wire.input, Instant::now()), &Reply::empty(status));
        // The peer may have left.
        let _ = self.wire.close().await;
    }

    async fn serve(&mut self) -> Result<(), End> {
        loop {
            let Some((request, call)) = self.next_call() else {
                self.wire.fill_head().await?;
                continue;
            };
            let keep_alive = match call {
                Ok(call) => self.handle(request, call).await?,
                Err(reply) => self.answer(&request, &reply),
            };
            if !keep_alive {
                return self.wire.close().await;
            }
        }
    }

    /// What the next head asks for, or the reply to a request that cannot be served; `None`: there is no whole head yet.
    fn next_call(&mut self) -> Option<(Request, Result<Call, Reply>)> {
        let mut slots = Slots::default();
        let head = match request::parse(&self.wire.input, &Limits::USUAL, &mut slots) {
            Ok(head) => head?,
            Err(reject) => {
                // All else that it cannot read the library answers with 400.
                let status = if matches!(reject.status, 413 | 414) { reject.status } else { 400 };
                let request = Request::unparsed(&self.wire.input, Instant::now());
                return Some((request, Err(Reply::empty(status))));
            }
        };
        let request = Request::of(&head, Instant::now());
        // Of a body whose length is not given it is not known whether it follows.
        let is_unclear = match head.method {
            Method::Put | Method::Post => !head.is_framed,
            method => method == Method::Other,
        };
        let admitted = self.state.hosts.as_ref().map_or(Ok(()), |hosts| hosts.admit(&head));
        let call = match admitted {
            Err(failure) => Err(Reply::problem(&request.not_done(failure))),
            Ok(()) if is_unclear => Err(Reply::empty(400)),
            // The library would decode it.
            Ok(()) if is_encoded(&head) => Err(Reply::empty(415)),
            Ok(()) => Ok(self.call(&head)),
        };
        // What follows a request that is not read to its end is none.
        let entry = self.wire.worker.entry(&head, self.wire.bytes()).map(Entry::without_query);
        let request = Request { keep_alive: request.keep_alive && call.is_ok(), entry, ..request };
        let head_bytes = head.bytes;
        self.wire.input.advance(head_bytes);
        Some((request, call))
    }

    /// What is asked for, without the body.
    fn call(&self, head: &Head<'_, '_>) -> Call {
        let (path, query) = path_and_query(head);
        let mut params = Params::default();
        params.add(query.unwrap_or_default());
        let kind = head.field("content-type").unwrap_or_default();
        Call {
            worker: Rc::clone(&self.wire.worker),
            state: Arc::clone(&self.state),
            method: if head.method == Method::Head { Method::Get } else { head.method },
            path: decode(path, false),
            params,
            is_form: kind.starts_with(b"application/x-www-form-urlencoded"),
            body: Vec::new(),
        }
    }

    /// Reads the body, handles the request and answers; whether the connection goes on.
    async fn handle(&mut self, request: Request, mut call: Call) -> Result<bool, End> {
        let value_bytes = call.worker.shared.options.value_bytes;
        let limit = match call.method {
            _ if call.is_form => FORM_BYTES_MAX.min(value_bytes),
            Method::Put | Method::Post => value_bytes,
            _ => UNUSED_BODY_BYTES_MAX,
        };
        let worker = Rc::clone(&self.wire.worker);
        let mut reservation = worker.shared.budget.reservation();
        call.body = match self.wire.read_body(&request, limit, false, &mut reservation).await {
            Ok(body) => body,
            Err(error) => {
                let failure = error.failure()?;
                // The rest of the body would be taken for a request.
                let status = if matches!(failure.status, 408 | 413 | 503) { failure.status } else { 400 };
                return Ok(self.answer(&Request { keep_alive: false, ..request }, &Reply::empty(status)));
            }
        };
        if call.is_form {
            call.params.add(&call.body);
        }
        // Earlier answers need not wait for the store.
        self.wire.flush_and_shrink().await?;
        let reply = (self.state.api.handle)(call).await.unwrap_or_else(|reply| reply);
        Ok(self.answer(&request, &reply))
    }

    /// Appends an answer; whether the connection goes on.
    fn answer(&mut self, request: &Request, reply: &Reply) -> bool {
        self.answered += 1;
        let (worker, api) = (&self.wire.worker, self.state.api);
        let fails = api.failure_closes && reply.status >= 400;
        let keep_alive =
            request.keep_alive && !worker.is_draining() && self.answered < REQUESTS_MAX && !fails;
        reply.write(&mut self.wire.output, api, keep_alive, request.is_head());
        self.wire.answered(request, reply.status, None, None);
        keep_alive
    }
}
