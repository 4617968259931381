//! From requests to writes and back: one write per key, also where several requests of a batch have the same key.
//!
//! Pure: requests in, at most one write per key out, then the store's answer in, every request answered. Requests of
//! one key that share a batch were concurrent, so they may take effect one after the other, in the order they queued,
//! with nothing in between: only the last change reaches the store, and all are answered.

use super::{Batching, Intent, WriteRequest, Written};
use crate::{Error, Found, Kind};
use kv::{Change, Clock, Key, Precondition, Row, Version, Write};

/// The requests of one key, in the order they queued, with their preconditions decided once [`Group::decide`] was called.
pub(super) struct Group {
    requests: Vec<(WriteRequest, Decision)>,
    /// The index of the last request that changes the key.
    last: Option<usize>,
    /// Whether the key was there before the batch, where that is known already.
    existed: Option<bool>,
}

enum Decision {
    /// The row after it.
    Applies(Version, Option<Row>),
    Fails(Option<Version>),
}

/// Sorts a batch by key: the store locks rows in this order, and others may write the table too.
pub(super) fn group(mut batch: Vec<WriteRequest>) -> Vec<Group> {
    // Stable: the requests of a key keep their order.
    batch.sort_by(|a, b| a.key.cmp(&b.key));
    let mut groups: Vec<Group> = Vec::with_capacity(batch.len());
    for request in batch {
        let same = groups.last_mut().filter(|group| group.key() == &request.key);
        let undecided = (request, Decision::Fails(None));
        match same {
            Some(group) => group.requests.push(undecided),
            None => groups.push(Group { requests: vec![undecided], last: None, existed: None }),
        }
    }
    groups
}

/// What is to be sent one after the other where the store refuses something of `groups` together: each group alone, or each
/// request of a single one. Gives back what cannot be divided.
pub(super) fn divide(mut groups: Vec<Group>) -> Result<Vec<Group>, Vec<Group>> {
    match &mut groups[..] {
        [Group { requests, .. }] if requests.len() > 1 => {
            let alone = |request| Group { requests: vec![request], last: None, existed: None };
            Ok(requests.drain(..).map(alone).collect())
        }
        [_] => Err(groups),
        _ => Ok(groups),
    }
}

impl Group {
    pub(super) fn key(&self) -> &Key {
        &self.requests[0].0.key
    }

    pub(super) fn is_conditional(&self) -> bool {
        self.requests.iter().any(|(request, _)| {
            request.condition != Precondition::None
                || matches!(request.intent, Intent::Touch(_) | Intent::RemoveExpired)
        })
    }

    pub(super) fn fail(self, error: &Error) {
        self.requests.into_iter().for_each(|(mut request, _)| request.reply.give(Err(error.clone())));
    }

    /// `current` is the key's row before the batch (`Some(None)`: absent; `None`: not read, no conditions), which counts as absent
    /// once it has expired by `clock`.
    pub(super) fn decide(
        &mut self,
        current: Option<Option<Row>>,
        clock: &Clock,
        mut next_version: impl FnMut() -> Version,
    ) {
        let was_read = current.is_some();
        let stored = current.flatten();
        let mut now = stored.clone().filter(|row| !row.is_expired(clock));
        let has_expired = stored.is_some() && now.is_none();
        self.existed = was_read.then_some(now.is_some());
        self.last = None;
        for (index, (request, decision)) in self.requests.iter_mut().enumerate() {
            let version_now = now.as_ref().map(Row::version);
            *decision = Decision::Fails(version_now);
            if !request.condition.holds(version_now) {
                continue;
            }
            let next = match (&request.intent, &now) {
                (Intent::Put(row), _) => Some(row.clone().with_version(next_version())),
                (Intent::Delete, _) => None,
                (Intent::Touch(expires), Some(row)) => Some(row.with_expiry(&request.key, *expires)),
                (Intent::RemoveExpired, None) if has_expired && self.last.is_none() => None,
                (Intent::Touch(_) | Intent::RemoveExpired, _) => continue,
            };
            let version = next.as_ref().map_or_else(&mut next_version, Row::version);
            if next != now || next.is_none() {
                self.last = Some(index);
            }
            now = next.clone();
            *decision = Decision::Applies(version, next);
        }
    }

    fn write(&self) -> Option<Write> {
        let (request, decision) = &self.requests[self.last?];
        let Decision::Applies(version, row) = decision else { return None };
        let change = row.clone().map_or(Change::Delete, Change::Put);
        Some(Write { key: request.key.clone(), version: *version, change })
    }
}

/// At most one write for each group.
pub(super) fn writes(groups: &[Group]) -> Vec<Write> {
    groups.iter().filter_map(Group::write).collect()
}

/// Answers every request; `found` says of each of [`writes`] what it found.
pub(super) fn answer(groups: Vec<Group>, found: &[Found], batching: Batching) {
    let mut found = found.iter();
    for group in groups {
        let found = group.last.and_then(|_| found.next());
        let is_overtaken = found == Some(&Found::Newer);
        // Without batches the newer one is of another of our workers, and was under way at the same time: this one came
        // just before.
        if is_overtaken && batching == Batching::On {
            let what = "the store holds a newer version of this key: something else writes it";
            group.fail(&Error::new(Kind::Rejected, what));
            continue;
        }
        // What was read and what the write found agree, but for a row that has expired: nothing else writes the key meanwhile.
        let mut existed = group.existed.unwrap_or(found.is_some_and(|found| *found != Found::Absent));
        for (index, (mut request, decision)) in group.requests.into_iter().enumerate() {
            let written = match decision {
                Decision::Fails(current) => Written::ConditionFailed(current),
                Decision::Applies(version, row) => Written::Applied {
                    version,
                    existed: std::mem::replace(&mut existed, row.is_some()),
                    row,
                    superseded: is_overtaken || group.last != Some(index),
                },
            };
            request.reply.give(Ok(written));
        }
    }
}
