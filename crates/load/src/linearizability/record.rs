//! The calls of a thread's clients, written down as they are sent and answered.

use super::super::answer::{self, Fault};
use super::super::verify::{Mark, PRELOAD_WRITER, mix};
use super::{Action, Call, NEVER, Outcome, Value};
use std::time::Instant;

/// What is written down. A call without an answer has an unknown outcome.
pub(crate) struct Record {
    begin: Instant,
    pub(crate) calls: Vec<Call>,
}

impl Record {
    /// Of a run that began at this instant.
    pub(crate) fn new(begin: Instant) -> Record {
        Record { begin, calls: Vec::new() }
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    /// A call is about to be sent. Its place in the record.
    pub(crate) fn invoke(&mut self, key: u64, client: u32, action: Action, value: Value) -> usize {
        let invoked = self.now();
        let outcome = Outcome::Unknown;
        self.calls.push(Call { key, client, invoked, returned: NEVER, action, value, outcome });
        self.calls.len() - 1
    }

    /// The call at this place is over; `found` is what a read found.
    pub(crate) fn complete(&mut self, place: usize, found: Option<Value>, result: answer::Outcome) {
        let returned = self.now();
        let call = &mut self.calls[place];
        call.returned = returned;
        call.value = found.unwrap_or(call.value);
        call.outcome = match result {
            Ok(_) | Err(Fault::WrongValue | Fault::StaleValue) => Outcome::Done,
            Err(Fault::Refused | Fault::Http503NotApplied) => Outcome::NotApplied,
            Err(_) => Outcome::Unknown,
        };
    }
}

impl Value {
    /// The value with this mark, in a run with this number.
    pub(crate) fn of_mark(mark: &Mark, run: u32) -> Value {
        match (mark.run == run, mark.writer) {
            (true, PRELOAD_WRITER) => Value::PRELOADED,
            (true, writer) => Value::written(writer, mark.count),
            (false, writer) => {
                Value(Value::OTHERS | mix(mix(mix(mark.run.into()) ^ u64::from(writer)) ^ mark.count))
            }
        }
    }
}
