//! Whether the answers of a run are linearizable: whether each operation can have taken effect at one instant between its request
//! and its answer.
//!
//! Keys are judged one by one: a history is linearizable if the history of each key is (Herlihy & Wing, Linearizability, 1990). A key
//! is a register with put, delete and conditional writes. Each write has a value of its own, so the value also stands for the
//! version. A write of unknown outcome may take effect at any later time or never. Data in, a verdict out: no clock, no sockets.

mod record;
mod search;
mod shrink;

pub(super) use record::{Record, clock_name};

use kv::proto::LinearizabilityReport;
use search::{Entry, Need, search};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;

/// An instant that never comes.
pub const NEVER: u64 = u64::MAX;

/// What a key holds: the value of one certain write, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Value(pub u64);

impl Value {
    /// There is no such key. A delete writes this.
    pub const ABSENT: Value = Value(0);
    /// What the preload wrote.
    pub const PRELOADED: Value = Value(u64::MAX);
    /// Any value that nobody in the history wrote.
    pub const OTHER: Value = Value(u64::MAX - 1);
    /// Values from here on are none of this run's clients.
    const OTHERS: u64 = 1 << 63;
    const COUNT_BITS: u32 = 36;

    /// The value of a client's write with this number, from 1 on.
    pub fn written(client: u32, count: u64) -> Value {
        Value(u64::from(client) << Value::COUNT_BITS | count)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::ABSENT => f.write_str("absent"),
            Value::PRELOADED => f.write_str("the preloaded value"),
            Value(other) if other >= Value::OTHERS => f.write_str("a value of no client"),
            Value(own) => {
                let count = own & ((1 << Value::COUNT_BITS) - 1);
                write!(f, "value {}.{count}", own >> Value::COUNT_BITS)
            }
        }
    }
}

/// What a call asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// A read.
    Get,
    /// A put, or a delete if its value is [`Value::ABSENT`].
    Write,
    /// The same if the key holds this: `If-Match`, and `If-None-Match: *` with [`Value::ABSENT`].
    WriteIf(Value),
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It took effect. Of a read: it found the value.
    Done,
    /// The key held something else than the condition names.
    PreconditionFailed,
    /// It took no effect.
    NotApplied,
    /// It may take effect at any later time, or never.
    Unknown,
}

/// An operation on a key, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Which key, by its number.
    pub key: u64,
    /// Which client.
    pub client: u32,
    /// When it was sent, in nanoseconds.
    pub invoked: u64,
    /// When its answer was there, or [`NEVER`].
    pub returned: u64,
    /// What it asked for.
    pub action: Action,
    /// What it wrote or found.
    pub value: Value,
    /// How it ended.
    pub outcome: Outcome,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs =
            |ns: u64| if ns == NEVER { "never".to_owned() } else { format!("{:.6} s", ns as f64 / 1e9) };
        let (invoked, returned) = (secs(self.invoked), secs(self.returned));
        write!(f, "{invoked:>13} to {returned:>13}  client {:<3} ", self.client)?;
        match (self.action, self.value) {
            (Action::Get, value) => return write!(f, "get: {value}"),
            (_, Value::ABSENT) => f.write_str("delete")?,
            (_, value) => write!(f, "put {value}")?,
        }
        if let Action::WriteIf(expected) = self.action {
            write!(f, " if {expected}")?;
        }
        f.write_str(match self.outcome {
            Outcome::Done => ": done",
            Outcome::PreconditionFailed => ": precondition failed",
            Outcome::NotApplied => ": not applied",
            Outcome::Unknown => ": outcome unknown",
        })
    }
}

/// Judges all calls of a run. `initial` is what a key held before, if that is known; `name` names it.
pub fn check(
    mut calls: Vec<Call>,
    initial: impl Fn(u64) -> Option<Value>,
    name: impl Fn(u64) -> String,
) -> LinearizabilityReport {
    calls.sort_unstable_by_key(|call| (call.key, call.invoked));
    let begun = calls.iter().map(|call| call.invoked).min().unwrap_or(0);
    let mut report = LinearizabilityReport { operations: calls.len() as u64, ..Default::default() };
    for call in &mut calls {
        call.invoked -= begun;
        if call.returned != NEVER {
            call.returned -= begun;
        }
        *match call.outcome {
            Outcome::Done => &mut report.done,
            Outcome::PreconditionFailed => &mut report.precondition_failed,
            Outcome::NotApplied => &mut report.not_applied,
            Outcome::Unknown => &mut report.unknown,
        } += 1;
    }
    for history in calls.chunk_by(|one, other| one.key == other.key) {
        let number = history[0].key;
        report.keys += 1;
        match is_linearizable(history, initial(number)) {
            Some(true) => {}
            None => report.not_decided += 1,
            Some(false) => {
                if report.violations == 0 {
                    let calls = shrink::shrink(history, initial(number));
                    report.key = Some(name(number));
                    report.history = calls.iter().map(Call::to_string).collect();
                }
                report.violations += 1;
            }
        }
    }
    report
}

/// Whether there is an order of these calls of one key, sorted by `invoked`, that explains all answers; `None` if that takes too long
/// to find out. `initial` is what the key held before, if that is known.
pub fn is_linearizable(history: &[Call], initial: Option<Value>) -> Option<bool> {
    // What no client of this run wrote was there before. A value of theirs was not, even if its write was refused.
    let others = || {
        let mut found =
            history.iter().filter(|call| call.action == Action::Get && call.outcome == Outcome::Done);
        found.find_map(|call| Some(call.value).filter(|value| value.0 >= Value::OTHERS))
    };
    let judge = |initial| search(entries(history, initial));
    match initial.or_else(others) {
        Some(initial) => judge(initial),
        None => match judge(Value::ABSENT) {
            Some(false) => judge(Value::OTHER),
            decided => decided,
        },
    }
}

impl Call {
    /// Whether it may have written its value.
    fn writes(&self) -> bool {
        self.action != Action::Get && matches!(self.outcome, Outcome::Done | Outcome::Unknown)
    }

    /// The value that the key must have held if this call took effect, if there is only one.
    fn needs(&self) -> Option<Value> {
        match self.action {
            _ if self.outcome == Outcome::PreconditionFailed => None,
            Action::Get => Some(self.value),
            Action::Write => None,
            Action::WriteIf(expected) => Some(expected),
        }
    }
}

/// The values that calls name other than by writing them: the number of each, and by when a call had returned that found it.
struct Named(HashMap<Value, (u32, u64)>);

impl Named {
    /// Adds what was found by then. Whether that is sooner than what was known.
    fn add(&mut self, value: Value, found_by: u64) -> bool {
        let number = search::FIRST_NAMED + self.0.len() as u32;
        let (_, known) = self.0.entry(value).or_insert((number, NEVER));
        // A delete need not be the one that was found.
        let sooner = value != Value::ABSENT && found_by < *known;
        *known = if sooner { found_by } else { *known };
        sooner
    }

    fn number(&self, value: Value) -> u32 {
        match value {
            Value::ABSENT => search::ABSENT,
            _ => self.0.get(&value).map_or(search::NOT_NAMED, |(number, _)| *number),
        }
    }

    /// By when a call took effect, if it did.
    fn returned(&self, call: &Call) -> u64 {
        match call.outcome {
            Outcome::Unknown => self.0.get(&call.value).map_or(NEVER, |(_, found_by)| *found_by),
            _ => call.returned,
        }
    }
}

/// The calls that say something about a key that held `initial`, and the number of that value.
///
/// A write of unknown outcome whose value was found had taken effect by then. One whose value nobody names changes no answer, unless a
/// precondition failed, and is left out.
fn entries(history: &[Call], initial: Value) -> (Vec<Entry>, u32) {
    let has_failed = |call: &Call| call.outcome == Outcome::PreconditionFailed;
    let is_found = |call: &Call| call.action == Action::Get && call.outcome == Outcome::Done;
    let calls: Vec<&Call> =
        history.iter().filter(|call| call.writes() || is_found(call) || has_failed(call)).collect();
    let any_failed = calls.iter().any(|call| has_failed(call));
    let mut named = Named(HashMap::new());
    for call in &calls {
        if let (true, Action::WriteIf(expected)) = (has_failed(call), call.action) {
            named.add(expected, NEVER);
        }
    }
    // Again, as a conditional write that was found had found another's value.
    let mut sooner = true;
    while sooner {
        sooner = false;
        for call in &calls {
            sooner |= call.needs().is_some_and(|needed| named.add(needed, named.returned(call)));
        }
    }
    let entry = |call: &&Call| {
        let need = match (has_failed(call), call.action) {
            (true, Action::WriteIf(expected)) => Need::Not(named.number(expected)),
            _ => call.needs().map_or(Need::Nothing, |needed| Need::Is(named.number(needed))),
        };
        let makes = call.writes().then(|| named.number(call.value));
        Entry { invoked: call.invoked, returned: named.returned(call), need, makes }
    };
    let matters =
        |entry: &Entry| entry.returned != NEVER || entry.makes != Some(search::NOT_NAMED) || any_failed;
    (calls.iter().map(entry).filter(matters).collect(), named.number(initial))
}

#[cfg(test)]
mod tests;
