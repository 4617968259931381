//! Answers of HTTP/1.1: bytes in, however they are split.

use super::Answer;
use crate::fault::Fault;
use crate::request::Request;
use http1::response;
use http1::{Decoder, Framing, Reject, Slots};

impl Answer {
    /// Whether another request may follow on the connection of this complete answer.
    pub(crate) fn keeps_alive(&self) -> bool {
        self.keep_alive && !self.until_close
    }

    /// Takes what has arrived (not nothing); `Ok(true)` when the answer is complete.
    pub(crate) fn take(&mut self, input: &[u8], request: &Request) -> Result<bool, Fault> {
        self.begun = true;
        if self.held.is_empty() {
            let used = self.consume(input, request)?;
            self.held.extend_from_slice(&input[used..]);
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(input);
            let used = self.consume(&held, request)?;
            held.drain(..used);
            self.held = held;
        }
        let complete = self.body.as_ref().is_some_and(Decoder::is_done);
        // Surplus bytes: it is not certain where this answer ended.
        if complete && !self.held.is_empty() { Err(Fault::WrongLength) } else { Ok(complete) }
    }

    /// The peer has ended the connection in order. `Ok` when that is how this answer ends.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        match (self.begun, self.until_close) {
            (false, _) => Err(Fault::Reset),
            (true, true) => Ok(()),
            (true, false) => Err(Fault::ClosedEarly),
        }
    }

    /// Uses what it can of the front of `input`, and says how much that was.
    fn consume(&mut self, input: &[u8], request: &Request) -> Result<usize, Fault> {
        let mut used = 0;
        while self.body.is_none() {
            let head = match request.is_head {
                false => self.familiar.parse(&input[used..]),
                true => response::parse(&input[used..], true, &mut Slots::default())
                    .map(|head| head.map(|head| head.outline)),
            };
            let head = head.map_err(|reject| self.refused(reject))?;
            let Some(head) = head else { return Ok(used) };
            self.learn(head.status, request, |name| field(&input[used..], name));
            used += head.bytes;
            if head.status >= 200 {
                self.status = head.status;
                self.keep_alive = head.keep_alive;
                self.until_close = head.framing == Framing::UntilClose;
                // Nothing of it is kept, so any length will do.
                self.body = Some(Decoder::new(head.framing, u64::MAX).map_err(|_| Fault::Malformed)?);
            }
        }
        let Some(body) = &mut self.body else { return Ok(used) };
        loop {
            let step = match body.decode(&input[used..]) {
                Ok(step) => step,
                Err(reject) => return Err(self.refused(reject)),
            };
            if step.consumed == 0 {
                return Ok(used);
            }
            let data = &input[used..][step.data];
            self.content.take(data, request);
            used += step.consumed;
        }
    }

    /// The class of an answer that the parser refused; why, is kept.
    #[cold]
    fn refused(&mut self, reject: Reject) -> Fault {
        self.refusal = Some(reject.detail);
        if reject.is_contradiction() { Fault::WrongLength } else { Fault::Malformed }
    }
}

/// The field `name` of the head at the front of `input`. Parsed once more: what is known of heads that were seen before does
/// not hold their fields.
fn field(input: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut slots = Slots::default();
    let head = response::parse(input, false, &mut slots).ok().flatten()?;
    head.field(name).map(<[u8]>::to_vec)
}
