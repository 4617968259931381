//! A store that stops at every call until a test says how it goes on: for races, which need an order.

use super::super::memory::list;
use super::super::{
    Answer, Capabilities, Error, EventBlock, Found, Kind, Lease, Listed, Listing, Owner, Part, Session,
    Store, Workers, Writers,
};
use async_trait::async_trait;
use kv::{Change, Key, Row, Timestamp, Write};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;
use tokio::sync::Barrier;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How a call goes on.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// It takes effect (a write commits, a read sees what is there), and waits again.
    Perform,
    /// It answers, after it took effect if it has not yet.
    Answer,
    /// It fails. What it performed stays.
    Fail(Kind),
}

/// Rows in memory, and the stage on which the calls appear.
pub struct Scripted {
    rows: Arc<Mutex<BTreeMap<Key, Row>>>,
    events: Arc<Mutex<Vec<EventBlock>>>,
    steps: mpsc::Sender<Step>,
    epoch: AtomicU64,
    writers: Writers,
    is_confirmed: bool,
    acquired_with: Option<Arc<Barrier>>,
}

/// Where a test meets the calls, in the order they come.
pub struct Stage {
    steps: mpsc::Receiver<Step>,
}

/// A call that waits.
pub struct Step {
    reads: Vec<Key>,
    writes: Vec<Write>,
    clears: bool,
    acts: UnboundedSender<Act>,
    performed: mpsc::Receiver<()>,
}

/// No call takes so long on any machine; a test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

impl Scripted {
    /// An empty store.
    pub fn new() -> (Scripted, Stage) {
        let (sender, receiver) = mpsc::channel();
        (
            Scripted {
                rows: Arc::default(),
                events: Arc::default(),
                steps: sender,
                epoch: AtomicU64::new(0),
                writers: Writers::Owner,
                is_confirmed: true,
                acquired_with: None,
            },
            Stage { steps: receiver },
        )
    }
}

impl Scripted {
    /// The same, said to be written by these.
    pub fn written_by(self, writers: Writers) -> Scripted {
        Scripted { writers, ..self }
    }

    /// The same, which does not say for long whether its lease is still held.
    pub fn unconfirmed(self) -> Scripted {
        Scripted { is_confirmed: false, ..self }
    }

    /// The same, whose lease is given once as many are asked for as the barrier is for.
    pub fn acquired_with(self, barrier: Arc<Barrier>) -> Scripted {
        Scripted { acquired_with: Some(barrier), ..self }
    }

    /// Holds a row from the start.
    pub fn hold(&self, row: Row) {
        let key = Key::new(row.key()).expect("a row's key is one");
        self.rows.lock().insert(key, row);
    }
}

impl Stage {
    /// The next call.
    pub fn next(&self) -> Step {
        self.steps.recv_timeout(PATIENCE).expect("a call of the store")
    }

    /// The next call, or what `other` receives before it.
    pub fn next_or<T>(&self, other: &mpsc::Receiver<T>) -> Result<Step, T> {
        loop {
            if let Ok(step) = self.steps.recv_timeout(Duration::from_millis(1)) {
                return Ok(step);
            }
            if let Ok(received) = other.try_recv() {
                return Err(received);
            }
        }
    }

    /// The call that waits now, if one does.
    pub fn try_next(&self) -> Option<Step> {
        self.steps.try_recv().ok()
    }

    /// Whether no call waits now.
    pub fn is_quiet(&self) -> bool {
        self.try_next().is_none()
    }
}

impl Step {
    /// Lets it go on. After [`Act::Perform`] returns, it has taken effect.
    pub fn act(&self, act: Act) {
        self.acts.send(act).expect("a call that waits");
        if matches!(act, Act::Perform) {
            self.performed.recv_timeout(PATIENCE).expect("a call that takes effect");
        }
    }

    /// The keys it reads.
    pub fn reads(&self) -> Vec<String> {
        self.reads.iter().map(|key| String::from_utf8_lossy(key.as_bytes()).into_owned()).collect()
    }

    /// Whether it removes every row.
    pub fn clears(&self) -> bool {
        self.clears
    }

    /// What it writes: `key=value` or `key-`.
    pub fn writes(&self) -> Vec<String> {
        let text = |write: &Write| {
            let key = String::from_utf8_lossy(write.key.as_bytes());
            match &write.change {
                Change::Put(row) => format!("{key}={}", String::from_utf8_lossy(row.value())),
                Change::Delete => format!("{key}-"),
            }
        };
        self.writes.iter().map(text).collect()
    }
}

/// It confirms its lease once.
#[derive(Default)]
struct Silent {
    has_confirmed: bool,
}

#[async_trait]
impl Owner for Silent {
    async fn confirm(&mut self) -> Answer<()> {
        if std::mem::replace(&mut self.has_confirmed, true) {
            return std::future::pending().await;
        }
        Ok(())
    }

    async fn release(&mut self) -> Answer<()> {
        Ok(())
    }
}

#[async_trait]
impl Store for Scripted {
    async fn acquire(&self, _part: Part) -> Answer<Lease> {
        if let Some(barrier) = &self.acquired_with {
            tokio::time::timeout(PATIENCE, barrier.wait()).await.expect("the others");
        }
        let epoch = self.epoch.fetch_add(1, Ordering::Relaxed) + 1;
        let lost = Box::pin(std::future::pending());
        let owner = (!self.is_confirmed).then(|| Box::new(Silent::default()) as Box<dyn Owner>);
        Ok(Lease { epoch, now: Timestamp(1), may_expire: false, was_released: true, lost, owner })
    }

    async fn connect(&self, _epoch: u64) -> Answer<Box<dyn Session>> {
        let (rows, events) = (Arc::clone(&self.rows), Arc::clone(&self.events));
        let session = ScriptedSession { rows, events, steps: self.steps.clone() };
        Ok(Box::new(session) as Box<dyn Session>)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { writers: self.writers, ..Capabilities::OWNED }
    }

    fn workers(&self) -> Workers {
        Workers { read: 1, write: 1 }
    }
}

struct ScriptedSession {
    rows: Arc<Mutex<BTreeMap<Key, Row>>>,
    events: Arc<Mutex<Vec<EventBlock>>>,
    steps: mpsc::Sender<Step>,
}

impl ScriptedSession {
    async fn follow<T>(
        &self,
        reads: Vec<Key>,
        writes: Vec<Write>,
        clears: bool,
        perform: impl Fn(&mut BTreeMap<Key, Row>) -> T,
    ) -> Result<T, Error> {
        let (acts, mut script): (_, UnboundedReceiver<Act>) = unbounded_channel();
        let (tell, performed) = mpsc::channel();
        // Once the test is over nobody listens: calls that are left then simply succeed.
        let _ = self.steps.send(Step { reads, writes, clears, acts, performed });
        let mut result = None;
        loop {
            match script.recv().await.unwrap_or(Act::Answer) {
                Act::Perform => {
                    result = Some(perform(&mut self.rows.lock()));
                    let _ = tell.send(());
                }
                Act::Answer => return Ok(result.unwrap_or_else(|| perform(&mut self.rows.lock()))),
                Act::Fail(kind) => return Err(Error::new(kind, "as the script says")),
            }
        }
    }
}

#[async_trait]
impl Session for ScriptedSession {
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.follow(keys.to_vec(), Vec::new(), false, |rows| {
            keys.iter().map(|key| rows.get(key).cloned()).collect()
        })
        .await
    }

    async fn value_bytes(&mut self, _keys: &[Key]) -> Answer<u64> {
        Ok(0)
    }

    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>> {
        let kept = Arc::clone(&self.events);
        if writes.is_empty() && events.is_some() {
            kept.lock().extend(events.cloned());
            return Ok(Vec::new());
        }
        let perform = move |rows: &mut BTreeMap<Key, Row>| {
            let is_newer = |rows: &BTreeMap<Key, Row>, write: &Write| {
                write.row().is_some() && rows.get(&write.key).is_some_and(|row| row.version() > write.version)
            };
            if events.is_some() && writes.iter().any(|write| is_newer(rows, write)) {
                return Err(Error::newer(Kind::Rejected));
            }
            kept.lock().extend(events.cloned());
            let apply = |write: &Write| match &write.change {
                _ if is_newer(rows, write) => Found::Newer,
                Change::Put(row) => Found::present(rows.insert(write.key.clone(), row.clone()).is_some()),
                Change::Delete => Found::present(rows.remove(&write.key).is_some()),
            };
            Ok(writes.iter().map(apply).collect())
        };
        self.follow(Vec::new(), writes.to_vec(), false, perform).await?
    }

    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>> {
        Ok(list(&self.rows.lock(), listing))
    }

    async fn events(&mut self, behind: u64) -> Answer<Vec<EventBlock>> {
        let events = self.events.lock().iter().filter(|block| block.id > behind).cloned().collect();
        Ok(events)
    }

    async fn trim_events(&mut self, until: u64) -> Answer<()> {
        self.events.lock().retain(|block| block.id > until);
        Ok(())
    }

    async fn clear(&mut self) -> Answer<()> {
        self.follow(Vec::new(), Vec::new(), true, BTreeMap::clear).await
    }
}
