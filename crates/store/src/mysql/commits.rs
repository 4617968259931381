//! Commits that were sent and are not answered yet, of all sessions of a lease.
//!
//! InnoDB shows others what a transaction did before it flushes its log, unless a binary log was flushed before. A crash in
//! between takes it back. So a read waits for the commits that it has seen, or may have seen.

use kv::{Change, Key, Version, Write};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use tokio::sync::Notify;

#[derive(Default)]
pub(super) struct Commits {
    state: Mutex<State>,
    ended: Notify,
}

#[derive(Default)]
struct State {
    /// How many began.
    begun: u64,
    /// By their numbers, with their changes, whose keys ascend; `None`: of all there are.
    in_flight: BTreeMap<u64, Option<Vec<Traced>>>,
    /// The outcome of one is unknown, so the lease is lost.
    is_lost: bool,
}

/// What of a change a read can see.
pub(super) struct Traced {
    key: Key,
    /// Of the row that was put.
    version: Option<Version>,
    /// Who finds no row may have seen it: the row was removed, or has an end, after which lists leave it out.
    hides: bool,
}

impl Traced {
    pub(super) fn of(write: &Write) -> Traced {
        let (version, hides) = match &write.change {
            Change::Put(row) => (Some(write.version), row.attributes().expires.is_some()),
            Change::Delete => (None, true),
        };
        Traced { key: write.key.clone(), version, hides }
    }

    /// Where rows have versions of their own: any row may be the one that was put.
    pub(super) fn by_any_version(write: &Write) -> Traced {
        let traced = Traced::of(write);
        Traced { version: traced.version.map(|_| Version(0)), ..traced }
    }

    /// Whether a read that found a row of this version, or none, may have seen it.
    fn is_in(&self, found: Option<Version>) -> bool {
        match found {
            // A touch keeps the version.
            Some(found) => self.version.is_some_and(|put| found >= put),
            None => self.hides,
        }
    }
}

/// A commit in flight. Its outcome is unknown if it is dropped before [`Commit::end`].
pub(super) struct Commit {
    commits: Arc<Commits>,
    number: u64,
}

impl Commits {
    /// Begins a commit of changes, whose keys ascend.
    pub(super) fn begin(self: &Arc<Self>, changes: Option<Vec<Traced>>) -> Commit {
        let mut state = self.state.lock();
        state.begun += 1;
        let number = state.begun;
        state.in_flight.insert(number, changes);
        Commit { commits: Arc::clone(self), number }
    }

    /// Waits for the commits in flight that a read may have seen; whether the outcome of all is known. `found`: the keys that it read,
    /// each with the version of its row, or none. `is_list`: every other key may have been found without a row.
    pub(super) async fn outlast(&self, found: &[(&Key, Option<Version>)], is_list: bool) -> bool {
        let last = self.state.lock().begun;
        loop {
            let mut ended = pin!(self.ended.notified());
            // Before the look: one that ends after it is noticed.
            ended.as_mut().enable();
            {
                let state = self.state.lock();
                if state.is_lost {
                    return false;
                }
                let is_seen = |changes: &Option<Vec<Traced>>| {
                    let Some(changes) = changes else { return true };
                    let change = |key: &Key| changes.binary_search_by(|change| change.key.cmp(key)).ok();
                    let is_in =
                        |(key, found): &(&Key, _)| change(key).is_some_and(|at| changes[at].is_in(*found));
                    found.iter().any(is_in) || is_list && changes.iter().any(|change| change.is_in(None))
                };
                if !state.in_flight.range(..=last).any(|(_, changes)| is_seen(changes)) {
                    return true;
                }
            }
            ended.await;
        }
    }
}

impl Commit {
    /// The database has answered: it is durable, or has not happened.
    pub(super) fn end(self) {
        self.commits.state.lock().in_flight.remove(&self.number);
        // The rest is done as it is dropped.
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        {
            let mut state = self.commits.state.lock();
            state.is_lost |= state.in_flight.remove(&self.number).is_some();
        }
        self.commits.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Waker};

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    fn put(name: &str, version: u64) -> Traced {
        Traced { key: key(name), version: Some(Version(version)), hides: false }
    }

    #[test]
    fn a_read_waits_for_the_commits_that_it_may_have_seen_and_for_no_later_ones() {
        let commits = Arc::new(Commits::default());
        let mut context = Context::from_waker(Waker::noop());
        let (a, b, d) = (key("a"), key("b"), key("d"));
        let gone = Traced { key: a.clone(), version: None, hides: true };
        let (a_b, c) = (commits.begin(Some(vec![gone, put("b", 7)])), commits.begin(Some(vec![put("c", 8)])));
        let seen = [(&b, Some(Version(7))), (&d, None)];
        let mut of_b = Box::pin(commits.outlast(&seen, false));
        assert!(of_b.as_mut().poll(&mut context).is_pending());
        // Another key; what was there before; and what was not there yet.
        for (key, version) in
            [(&d, Some(Version(9))), (&b, Some(Version(6))), (&b, None), (&a, Some(Version(1)))]
        {
            let found = [(key, version)];
            assert!(Box::pin(commits.outlast(&found, false)).as_mut().poll(&mut context).is_ready());
        }
        let of_a = [(&a, None)];
        assert!(Box::pin(commits.outlast(&of_a, false)).as_mut().poll(&mut context).is_pending());
        let none = [(&d, None)];
        assert!(Box::pin(commits.outlast(&none, true)).as_mut().poll(&mut context).is_pending());
        c.end();
        assert!(of_b.as_mut().poll(&mut context).is_pending());
        // A list may have left out a row whose end has come.
        let ends = commits.begin(Some(vec![Traced { hides: true, ..put("e", 9) }]));
        assert!(Box::pin(commits.outlast(&[], true)).as_mut().poll(&mut context).is_pending());
        ends.end();
        let later = commits.begin(Some(vec![put("b", 7)]));
        a_b.end();
        assert_eq!(of_b.as_mut().poll(&mut context), std::task::Poll::Ready(true));
        later.end();
        // All keys, and an outcome that stays unknown.
        let clear = commits.begin(None);
        let mut of_d = Box::pin(commits.outlast(&none, false));
        assert!(of_d.as_mut().poll(&mut context).is_pending());
        drop(clear);
        assert_eq!(of_d.as_mut().poll(&mut context), std::task::Poll::Ready(false));
    }
}
