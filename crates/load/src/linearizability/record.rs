//! The calls of a thread's clients, written down as they are sent and answered.

use super::super::answer;
use super::super::fault::Fault;
use super::super::verify::{Mark, PRELOAD_WRITER, mix};
use super::{Action, Call, NEVER, Outcome, Value};
use rustix::time::{ClockId, clock_gettime};

/// What is written down. A call without an answer has an unknown outcome.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) calls: Vec<Call>,
}

/// Nanoseconds of the clock that all processes of a machine share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Names the clock of [`now`]: two processes with the same name can compare their times. Empty where that is not known.
pub(crate) fn clock_name() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
    if boot.is_empty() { boot } else { format!("{} {}", boot.trim(), namespace.display()) }
}

impl Record {
    /// A call is about to be sent. Its place in the record.
    pub(crate) fn invoke(&mut self, key: u64, client: u32, action: Action, value: Value) -> usize {
        let invoked = now();
        let outcome = Outcome::Unknown;
        self.calls.push(Call { key, client, invoked, returned: NEVER, action, value, outcome });
        self.calls.len() - 1
    }

    /// The call at this place is over; `found` is what a read found.
    pub(crate) fn complete(&mut self, place: usize, found: Option<Value>, result: answer::Outcome) {
        let returned = now();
        let call = &mut self.calls[place];
        call.returned = returned;
        call.value = found.unwrap_or(call.value);
        call.outcome = match result {
            Ok(answer::Success::PreconditionFailed) => Outcome::PreconditionFailed,
            Ok(_) | Err(Fault::WrongValue | Fault::StaleValue) => Outcome::Done,
            Err(Fault::Refused | Fault::Http503NotApplied) => Outcome::NotApplied,
            Err(_) if call.action == Action::Get => Outcome::NotApplied,
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
