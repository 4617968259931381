//! From requests to writes and back: one write per key, also where several requests of a batch have the same key.
//!
//! Pure: requests in, at most one write per key out, then the store's answer in, every request answered. Requests of
//! one key that share a batch were concurrent, so they may take effect one after the other, in the order they queued,
//! with nothing in between: only the last change reaches the store, and all are answered.

use super::{Batching, WriteRequest, Written};
use crate::{Error, Found, Kind};
use kv::{Change, Key, Precondition, Version, Write};

/// The requests of one key, in the order they queued.
pub(super) struct Group(Vec<WriteRequest>);

/// A group with its preconditions decided.
pub(super) struct DecidedGroup {
    requests: Vec<(WriteRequest, Decision)>,
    /// The index of the last request that changes the key.
    last: Option<usize>,
    /// Whether the key was there before the batch, where that is known already.
    existed: Option<bool>,
}

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
        match groups.last_mut() {
            Some(group) if group.key() == &request.key => group.0.push(request),
            _ => groups.push(Group(vec![request])),
        }
    }
    groups
}

impl Group {
    pub(super) fn key(&self) -> &Key {
        &self.0[0].key
    }

    pub(super) fn is_conditional(&self) -> bool {
        self.0.iter().any(|request| request.condition != Precondition::None)
    }

    pub(super) fn fail(self, error: &Error) {
        self.0.into_iter().for_each(|mut request| request.reply.give(Err(error.clone())));
    }

    /// `current` is the key's version before the batch (`Some(None)`: absent; `None`: not read, no conditions).
    pub(super) fn decide(
        self,
        current: Option<Option<Version>>,
        mut next_version: impl FnMut() -> Version,
    ) -> DecidedGroup {
        let existed = current.map(|version| version.is_some());
        let mut now = current.flatten();
        let mut last = None;
        let requests = self
            .0
            .into_iter()
            .enumerate()
            .map(|(index, request)| {
                if !request.condition.holds(now) {
                    return (request, Decision::Fails(now));
                }
                let version = next_version();
                now = request.row.is_some().then_some(version);
                last = Some(index);
                (request, Decision::Applies(version))
            })
            .collect();
        DecidedGroup { requests, last, existed }
    }
}

impl DecidedGroup {
    /// The requests again, as if nothing had been decided.
    pub(super) fn undo(self) -> Group {
        Group(self.requests.into_iter().map(|(request, _)| request).collect())
    }

    /// Answers requests whose write another has overtaken on its way into the store.
    fn answer_overtaken(self) {
        for (mut request, decision) in self.requests {
            let written = match decision {
                Decision::Fails(current) => Written::ConditionFailed(current),
                Decision::Applies(version) => {
                    Written::Applied { version, existed: true, row: request.row, superseded: true }
                }
            };
            request.reply.give(Ok(written));
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
pub(super) fn writes(groups: &[DecidedGroup]) -> Vec<Write> {
    groups.iter().filter_map(DecidedGroup::write).collect()
}

/// Answers every request; `found` says of each of [`writes`] what it found.
pub(super) fn answer(groups: Vec<DecidedGroup>, found: &[Found], batching: Batching) {
    let mut found = found.iter();
    for decided in groups {
        // What was read and what the write found agree: nothing else writes the key meanwhile.
        let existed = match decided.last.and_then(|_| found.next()) {
            // The newer one is of another of our workers, and was under way at the same time: this one came just before.
            Some(Found::Newer) if batching == Batching::Off => {
                decided.answer_overtaken();
                continue;
            }
            Some(Found::Newer) => {
                let what = "the store holds a newer version of this key: something else writes it";
                decided.undo().fail(&Error::new(Kind::Rejected, what));
                continue;
            }
            Some(found) => Some(*found == Found::Present),
            None => decided.existed,
        };
        let DecidedGroup { requests, last, .. } = decided;
        let mut existed = existed.unwrap_or(false);
        for (index, (mut request, decision)) in requests.into_iter().enumerate() {
            let written = match decision {
                Decision::Fails(current) => Written::ConditionFailed(current),
                Decision::Applies(version) => {
                    let before = std::mem::replace(&mut existed, request.row.is_some());
                    Written::Applied {
                        version,
                        existed: before,
                        row: request.row.map(|row| row.with_version(version)),
                        superseded: last != Some(index),
                    }
                }
            };
            request.reply.give(Ok(written));
        }
    }
}
