//! From requests to writes and back: one write per key, also where several requests of a batch have the same key.
//!
//! Pure: requests in, at most one write per key out, then the store's answer in, every request answered. Requests of
//! one key that share a batch were concurrent, so they may take effect one after the other, in the order they queued,
//! with nothing in between: only the last change reaches the store, and all are answered.

use super::{Batching, WriteRequest, Written};
use crate::{Error, Found, Kind};
use kv::{Change, Key, Precondition, Version, Write};

/// The requests of one key, in the order they queued, with their preconditions decided once [`Group::decide`] was called.
pub(super) struct Group {
    requests: Vec<(WriteRequest, Decision)>,
    /// The index of the last request that changes the key.
    last: Option<usize>,
    /// Whether the key was there before the batch, where that is known already.
    existed: Option<bool>,
}

#[derive(Clone, Copy)]
enum Decision {
    Applies(Version),
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
        self.requests.iter().any(|(request, _)| request.condition != Precondition::None)
    }

    pub(super) fn fail(self, error: &Error) {
        self.requests.into_iter().for_each(|(mut request, _)| request.reply.give(Err(error.clone())));
    }

    /// `current` is the key's version before the batch (`Some(None)`: absent; `None`: not read, no conditions).
    pub(super) fn decide(
        &mut self,
        current: Option<Option<Version>>,
        mut next_version: impl FnMut() -> Version,
    ) {
        self.existed = current.map(|version| version.is_some());
        self.last = None;
        let mut now = current.flatten();
        for (index, (request, decision)) in self.requests.iter_mut().enumerate() {
            *decision = Decision::Fails(now);
            if request.condition.holds(now) {
                let version = next_version();
                now = request.row.is_some().then_some(version);
                self.last = Some(index);
                *decision = Decision::Applies(version);
            }
        }
    }

    fn write(&self) -> Option<Write> {
        let (request, decision) = &self.requests[self.last?];
        let Decision::Applies(version) = *decision else { return None };
        let change = match &request.row {
            Some(row) => Change::Put(row.clone().with_version(version)),
            None => Change::Delete,
        };
        Some(Write { key: request.key.clone(), version, change })
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
        // What was read and what the write found agree: nothing else writes the key meanwhile.
        let mut existed = found.map_or(group.existed.unwrap_or(false), |found| *found != Found::Absent);
        for (index, (mut request, decision)) in group.requests.into_iter().enumerate() {
            let written = match decision {
                Decision::Fails(current) => Written::ConditionFailed(current),
                Decision::Applies(version) => Written::Applied {
                    version,
                    existed: std::mem::replace(&mut existed, request.row.is_some()),
                    row: request.row.map(|row| row.with_version(version)),
                    superseded: is_overtaken || group.last != Some(index),
                },
            };
            request.reply.give(Ok(written));
        }
    }
}
