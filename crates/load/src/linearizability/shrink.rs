//! Of a history that is not linearizable, few calls that show it.

use super::{Action, Call, Outcome, Value, is_linearizable};
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
fn without(calls: &[Call], range: Range<usize>) -> Vec<Call> {
    let mut left = [&calls[..range.start], &calls[range.end..]].concat();
    let written = |call: &Call| Some(call.value).filter(|_| call.action != Action::Get);
    let mut gone: HashSet<Value> = calls[range].iter().filter_map(written).collect();
    loop {
        let before = left.len();
        left.retain(|call| {
            let is_explained = match call.outcome {
                Outcome::PreconditionFailed => !gone.is_empty(),
                _ => call.needs().is_some_and(|needed| gone.contains(&needed)),
            };
            if is_explained {
                gone.extend(written(call));
            }
            !is_explained
        });
        if left.len() == before {
            return left;
        }
    }
}
