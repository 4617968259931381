//! From requests to writes and back: one write per key, also where several requests of a batch have the same key.
//!
//! Pure: requests in, at most one write per key out, then the store's answer in, every request answered. Requests of
//! one key that share a batch were concurrent, so they may take effect one after the other, in the order they queued,
//! with nothing in between: only the last change reaches the store, and all are answered.

use super::events::Repeat;
use super::worker::Request;
use super::{Batching, Intent, WriteRequest, Written};
use crate::events::{self, EventKind, Record};
use crate::{Error, Found, Idempotency, Kind};
use kv::{Change, Clock, Key, Precondition, Row, Version, Write};

/// The requests of one key, in the order they queued, with their preconditions decided once [`Group::decide`] was called.
pub(super) struct Group {
    requests: Vec<(WriteRequest, Decision)>,
    /// The index of the last request that changes the key.
    last: Option<usize>,
    /// Whether the key was there before the batch, where that is known already.
    existed: Option<bool>,
    /// Whether a row was there that had expired.
    has_expired: bool,
}

enum Decision {
    /// The row after it, and whether the key is there then: the row's end may be past.
    Applies(Version, Option<Row>, bool),
    /// It changes nothing, and this is its answer.
    Answered(Written),
}

/// Sorts a batch by key: the store locks rows in this order, and others may write the table too.
pub(super) fn group(mut batch: Vec<WriteRequest>) -> Vec<Group> {
    // Stable: the requests of a key keep their order.
    batch.sort_by(|a, b| a.key.cmp(&b.key));
    let mut groups: Vec<Group> = Vec::with_capacity(batch.len());
    for request in batch {
        let same = groups.last_mut().filter(|group| group.key() == &request.key);
        let undecided = (request, Decision::Answered(Written::ConditionFailed(None)));
        match same {
            Some(group) => group.requests.push(undecided),
            None => groups.push(Group::new(undecided)),
        }
    }
    groups
}

/// What is to be sent one after the other where the store refuses something of `groups` together: each group alone, or each
/// request of a single one. Gives back what cannot be divided.
pub(super) fn divide(mut groups: Vec<Group>) -> Result<Vec<Group>, Vec<Group>> {
    match &mut groups[..] {
        [Group { requests, .. }] if requests.len() > 1 => Ok(requests.drain(..).map(Group::new).collect()),
        [_] => Err(groups),
        _ => Ok(groups),
    }
}

impl Group {
    fn new(request: (WriteRequest, Decision)) -> Group {
        Group { requests: vec![request], last: None, existed: None, has_expired: false }
    }

    pub(super) fn key(&self) -> &Key {
        &self.requests[0].0.key
    }

    pub(super) fn is_conditional(&self) -> bool {
        self.requests.iter().any(|(request, _)| {
            request.condition != Precondition::None
                || matches!(request.intent, Intent::Touch(_) | Intent::RemoveExpired)
        })
    }

    /// Whether it has to be known before the commit if the key is there. `is_stored`: what is removed is written down with it.
    pub(super) fn asks_if_present(&self, keeps_events: bool) -> bool {
        self.requests.iter().any(|(request, _)| {
            request.idempotency.is_some() || keeps_events && request.intent == Intent::Delete
        })
    }

    /// How many of its requests a client waits for.
    pub(super) fn of_clients(&self) -> usize {
        self.requests.iter().filter(|(request, _)| !request.is_own()).count()
    }

    /// Whether one of its requests may come again.
    pub(super) fn is_idempotent(&self) -> bool {
        self.requests.iter().any(|(request, _)| request.idempotency.is_some())
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
        repeat: impl Fn(&Idempotency) -> Option<Repeat>,
        mut next_version: impl FnMut() -> Version,
    ) {
        let was_read = current.is_some();
        let stored = current.flatten();
        let mut now = stored.clone().filter(|row| !row.is_expired(clock));
        self.has_expired = stored.is_some() && now.is_none();
        let mut made: Vec<([u8; 16], Repeat)> = Vec::new();
        self.existed = was_read.then_some(now.is_some());
        self.last = None;
        for (index, (request, decision)) in self.requests.iter_mut().enumerate() {
            if let Some(idempotency) = &request.idempotency {
                let here = made.iter().find(|(id, _)| *id == idempotency.id).map(|(_, repeat)| *repeat);
                if let Some(Repeat { digest, version, existed }) = here.or_else(|| repeat(idempotency)) {
                    *decision = Decision::Answered(match digest == idempotency.digest {
                        // The row may be another by now.
                        true => Written::Applied { version, existed, row: None, superseded: true },
                        false => Written::OtherRequest,
                    });
                    continue;
                }
            }
            let version_now = now.as_ref().map(Row::version);
            *decision = Decision::Answered(Written::ConditionFailed(version_now));
            if !request.condition.holds(version_now) {
                continue;
            }
            let next = match (&request.intent, &now) {
                (Intent::Put(row), _) => Some(row.clone().with_version(next_version())),
                (Intent::Delete, _) => None,
                (Intent::Touch(expires), Some(row)) => Some(row.with_expiry(&request.key, *expires)),
                (Intent::RemoveExpired, None) if self.has_expired && self.last.is_none() => None,
                (Intent::Touch(_) | Intent::RemoveExpired, _) => continue,
            };
            let version = next.as_ref().map_or_else(&mut next_version, Row::version);
            if next != now || next.is_none() {
                self.last = Some(index);
            }
            if let Some(Idempotency { id, digest }) = request.idempotency {
                made.push((id, Repeat { digest, version, existed: now.is_some() }));
            }
            now = next.clone().filter(|row| !row.is_expired(clock));
            *decision = Decision::Applies(version, next, now.is_some());
        }
        // Lifetimes that were changed, and changed back.
        if now.is_some() && now == stored {
            self.last = None;
        }
    }

    /// Writes down what it does: all of it, or of requests that may come again what came of them. `existed`: whether the key was there
    /// before, where that was not read.
    fn record(&self, existed: bool, is_complete: bool, body: &mut Vec<u8>) {
        let mut existed = self.existed.unwrap_or(existed);
        let mut has_expired = self.has_expired;
        for (WriteRequest { key, intent, idempotency, .. }, decision) in &self.requests {
            let Decision::Applies(version, row, is_there) = decision else { continue };
            let (key, version) = (key.as_bytes(), *version);
            if std::mem::take(&mut has_expired) && is_complete {
                let event = Some(EventKind::Expire);
                Record { event, key, version, existed: true, idempotency: None }.add_to(body);
            }
            let event = match (intent, row) {
                (Intent::Touch(_) | Intent::RemoveExpired, _) => None,
                (_, Some(_)) => Some(EventKind::Put),
                (_, None) => existed.then_some(EventKind::Delete),
            };
            if is_complete && event.is_some() || idempotency.is_some() {
                Record { event, key, version, existed, idempotency: *idempotency }.add_to(body);
            }
            has_expired = row.is_some() && !is_there;
            existed = *is_there;
        }
    }

    /// Bytes of a row that gets another end: it came with no request.
    pub(super) fn bytes_again(&self) -> usize {
        match self.last.map(|last| &self.requests[last]) {
            Some((WriteRequest { intent: Intent::Touch(_), .. }, Decision::Applies(_, Some(row), _))) => {
                row.bytes()
            }
            _ => 0,
        }
    }

    fn write(&self) -> Option<Write> {
        let (request, decision) = &self.requests[self.last?];
        let Decision::Applies(version, row, _) = decision else { return None };
        let change = row.clone().map_or(Change::Delete, Change::Put);
        Some(Write { key: request.key.clone(), version: *version, change })
    }
}

/// At most one write for each group.
pub(super) fn writes(groups: &[Group]) -> Vec<Write> {
    groups.iter().filter_map(Group::write).collect()
}

/// The body of a block that says what the groups do, all of it or what came of requests that may come again; `found` says of each of
/// [`writes`] what it found. Without it, what it would say has been read.
pub(super) fn record(groups: &[Group], found: Option<&[Found]>, is_complete: bool) -> Vec<u8> {
    let (mut found, mut body) = (found.unwrap_or_default().iter(), events::body(is_complete));
    for group in groups {
        match group.last.and_then(|_| found.next()) {
            // It was not applied.
            Some(Found::Newer) => {}
            found => group.record(found == Some(&Found::Present), is_complete, &mut body),
        }
    }
    body
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
            group.fail(&Error::newer(Kind::Rejected));
            continue;
        }
        // What was read and what the write found agree, but for a row that has expired: nothing else writes the key meanwhile.
        let mut existed = group.existed.unwrap_or(found.is_some_and(|found| *found != Found::Absent));
        for (index, (mut request, decision)) in group.requests.into_iter().enumerate() {
            let written = match decision {
                Decision::Answered(written) => written,
                Decision::Applies(version, row, is_there) => Written::Applied {
                    version,
                    existed: std::mem::replace(&mut existed, is_there),
                    row,
                    superseded: is_overtaken || group.last != Some(index),
                },
            };
            request.reply.give(Ok(written));
        }
    }
}
