//! Commits that were sent and are not answered yet, of all sessions of a lease.
//!
//! InnoDB shows others what a transaction did before it flushes its log, unless a binary log was flushed before. A crash in
//! between takes it back. So a read waits for the commits of its keys that it may have seen.

use kv::Key;
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
    /// By their numbers, with their keys in ascending order; `None`: all there are.
    in_flight: BTreeMap<u64, Option<Vec<Key>>>,
    /// The outcome of one is unknown, so the lease is lost.
    is_lost: bool,
}

/// A commit in flight. Its outcome is unknown if it is dropped before [`Commit::end`].
pub(super) struct Commit {
    commits: Arc<Commits>,
    number: u64,
}

impl Commits {
    /// Begins a commit of `keys`, which ascend.
    pub(super) fn begin(self: &Arc<Self>, keys: Option<Vec<Key>>) -> Commit {
        let mut state = self.state.lock();
        state.begun += 1;
        let number = state.begun;
        state.in_flight.insert(number, keys);
        Commit { commits: Arc::clone(self), number }
    }

    /// Waits for the commits of `keys` (`None`: of any) that are in flight now; whether the outcome of all is known.
    pub(super) async fn outlast(&self, keys: Option<&[Key]>) -> bool {
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
                let is_of_these = |written: &Option<Vec<Key>>| match (written, keys) {
                    (Some(written), Some(keys)) => keys.iter().any(|key| written.binary_search(key).is_ok()),
                    _ => true,
                };
                if !state.in_flight.range(..=last).any(|(_, written)| is_of_these(written)) {
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

    fn keys(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| Key::new(name.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn a_read_waits_for_the_commits_of_its_keys_and_for_no_later_ones() {
        let commits = Arc::new(Commits::default());
        let mut context = Context::from_waker(Waker::noop());
        let (a_b, c) = (commits.begin(Some(keys(&["a", "b"]))), commits.begin(Some(keys(&["c"]))));
        let (b, d) = (keys(&["b", "d"]), keys(&["d"]));
        let mut of_b = Box::pin(commits.outlast(Some(&b)));
        assert!(of_b.as_mut().poll(&mut context).is_pending());
        assert!(Box::pin(commits.outlast(Some(&d))).as_mut().poll(&mut context).is_ready());
        c.end();
        assert!(of_b.as_mut().poll(&mut context).is_pending());
        let later = commits.begin(Some(b.clone()));
        a_b.end();
        assert_eq!(of_b.as_mut().poll(&mut context), std::task::Poll::Ready(true));
        later.end();
        // All keys, and an outcome that stays unknown.
        let clear = commits.begin(None);
        let mut of_d = Box::pin(commits.outlast(Some(&d)));
        assert!(of_d.as_mut().poll(&mut context).is_pending());
        drop(clear);
        assert_eq!(of_d.as_mut().poll(&mut context), std::task::Poll::Ready(false));
    }
}
