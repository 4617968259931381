//! Of a history that is not linearizable, few calls that show it.

use super::{Action, Call, NEVER, Outcome, Value, is_linearizable};
use std::collections::HashSet;
use std::ops::Range;

/// A part of `history` that no order explains either: as short as leaving out one stretch after the other makes it.
pub(super) fn shrink(history: &[Call], initial: Option<Value>) -> Vec<Call> {
    let is_violation = |calls: &[Call]| is_linearizable(calls, initial) == Some(false);
    let mut ends: Vec<u64> = history.iter().map(|call| call.returned).collect();
    ends.sort_unstable();
    let first = ends.partition_point(|end| !is_violation(&until(history, *end)));
    let mut calls = ends.get(first).map_or_else(|| history.to_vec(), |end| until(history, *end));
    let mut length = calls.len() / 2;
    while length > 0 {
        let mut start = 0;
        while start < calls.len() {
            let fewer = without(&calls, start..calls.len().min(start + length));
            if is_violation(&fewer) {
                calls = fewer;
            } else {
                start += length;
            }
        }
        length /= 2;
    }
    calls
}

/// What was known at this instant.
fn until(history: &[Call], end: u64) -> Vec<Call> {
    let known = |call: &Call| match call.returned > end {
        true => Call { outcome: Outcome::Unknown, ..*call },
        false => *call,
    };
    history.iter().filter(|call| call.invoked <= end).map(known).collect()
}

/// Without these, and without all whose answers they may explain: what is left is linearizable if all of it was.
///
/// All deletes write the same. One does not explain that the key is absent if a put that is left certainly came in between.
pub(super) fn without(calls: &[Call], range: Range<usize>) -> Vec<Call> {
    let mut left = [&calls[..range.start], &calls[range.end..]].concat();
    let is_write = |call: &Call| call.action != Action::Get;
    let mut gone: Vec<Call> = calls[range].iter().filter(|call| is_write(call)).copied().collect();
    let mut values: HashSet<Value> = gone.iter().map(|call| call.value).collect();
    loop {
        let before = left.len();
        let deletes = gone.iter().filter(|call| call.value == Value::ABSENT);
        let deletes = Latest::new(deletes.map(|call| (call.invoked, end(call))));
        let is_put =
            |call: &&Call| is_write(call) && call.value != Value::ABSENT && call.outcome == Outcome::Done;
        let puts = Latest::new(left.iter().filter(is_put).map(|call| (call.returned, call.invoked)));
        left.retain(|call| {
            let is_explained = match (call.outcome, call.needs()) {
                (Outcome::PreconditionFailed, _) => !gone.is_empty(),
                (_, Some(Value::ABSENT)) => {
                    let delete = deletes.before(end(call).saturating_add(1));
                    delete.is_some_and(|end| puts.before(call.invoked).is_none_or(|put| put <= end))
                }
                (_, needed) => needed.is_some_and(|needed| values.contains(&needed)),
            };
            if is_explained && is_write(call) {
                gone.push(*call);
                values.insert(call.value);
            }
            !is_explained
        });
        if left.len() == before {
            return left;
        }
    }
}

/// By when it took effect, if it did.
fn end(call: &Call) -> u64 {
    if call.outcome == Outcome::Unknown { NEVER } else { call.returned }
}

/// Of pairs of instants: the latest second one, by the first ones.
struct Latest(Vec<(u64, u64)>);

impl Latest {
    fn new(pairs: impl Iterator<Item = (u64, u64)>) -> Latest {
        let mut pairs: Vec<(u64, u64)> = pairs.collect();
        pairs.sort_unstable();
        let mut latest = 0;
        for (_, second) in &mut pairs {
            latest = latest.max(*second);
            *second = latest;
        }
        Latest(pairs)
    }

    /// Of the pairs whose first is before `instant`.
    fn before(&self, instant: u64) -> Option<u64> {
        let pairs = self.0.partition_point(|(first, _)| *first < instant);
        self.0[..pairs].last().map(|(_, latest)| *latest)
    }
}
