//! The events of a store in their order, who waits for them, and the requests that must not take effect twice.
//!
//! Batches are committed side by side. Each takes its place in the order *before* it is sent, and its events are published when
//! all batches before it are known to have happened or not. If the outcome of one is unknown, nothing behind it is published: the
//! store is lost then. With the next lease the events are what the store has kept; if it keeps none, everyone who watches
//! begins anew.

use crate::events::{self, EventBlock, EventKind, Idempotency, Position};
use kv::{Timestamp, Version};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Kept in memory for watchers that come back, in bytes, where the store keeps none.
const RECENT_BYTES_MAX: usize = 4 << 20;
/// How long requests with an `Idempotency-Key` are remembered, where the store keeps no other events; and in how many bytes.
const REPEATS: EventLog = EventLog { age: Duration::from_secs(24 * 3600), bytes: 64 << 20 };
/// A watcher for which more bytes of events wait reads on from the blocks.
const WAITING_BYTES_MAX: usize = 48 << 10;
/// Blocks that a watcher looks through at once.
const BLOCKS_AT_ONCE: usize = 64;

/// How long the store keeps events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLog {
    /// Older ones are removed.
    pub age: Duration,
    /// So are the oldest if all together have more bytes. As many are held in memory.
    pub bytes: usize,
}

/// The events of a store.
pub(super) struct Events {
    log: Option<EventLog>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether events are gathered: the store keeps them, or somebody has watched.
    gathers: bool,
    /// The last batch that had begun when that began: up to it some have no events.
    ungathered: u64,
    /// Batches in their order, with their blocks once it is known whether they happened.
    pending: VecDeque<(u64, Settled)>,
    /// All events behind this are in `recent`.
    since: Position,
    /// The last block, or where they begin.
    last: u64,
    recent: VecDeque<EventBlock>,
    recent_bytes: usize,
    /// What the store keeps, and the requests in it that must not take effect twice.
    stored: VecDeque<(u64, Timestamp, usize, Vec<[u8; 16]>)>,
    stored_bytes: usize,
    repeats: HashMap<[u8; 16], Repeat>,
    watchers: Watchers,
}

enum Settled {
    NotYet,
    /// Or nobody asks.
    DidNotHappen,
    Happened(EventBlock),
}

/// What came of a request that may come again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeat {
    pub digest: [u8; 8],
    pub version: Version,
    pub existed: bool,
}

impl Events {
    pub(super) fn new(log: Option<EventLog>) -> Events {
        let state = State { gathers: log.is_some(), since: Position::behind(0), ..State::default() };
        Events { log, state: Mutex::new(state) }
    }

    /// Whether the store keeps all events.
    pub(super) fn keeps_all(&self) -> bool {
        self.log.is_some()
    }

    /// A place in the order for a batch that is about to be sent. `id` is greater than all before.
    pub(super) fn begin(&self, id: impl FnOnce() -> Version) -> Ticket<'_> {
        let mut state = self.state.lock();
        let id = id().0;
        state.pending.push_back((id, Settled::NotYet));
        Ticket { events: self, id, gathers: state.gathers }
    }

    /// The last batch that has begun.
    pub(super) fn begun(&self) -> u64 {
        self.state.lock().begun()
    }

    /// Whether not all batches up to this one are answered.
    pub(super) fn is_under_way(&self, begun: u64) -> bool {
        self.state.lock().pending.front().is_some_and(|(id, _)| *id <= begun)
    }

    /// What is to be stored before anything else, where it is `first` that is given the id: it says that from now on all writes
    /// are in blocks, or that not all are.
    pub(super) fn mark(&self, stored: &[EventBlock], id: u64, at: Timestamp) -> Option<EventBlock> {
        let was_complete = stored.last().is_some_and(|block| events::is_complete(&block.body));
        let is_complete = self.keeps_all();
        (was_complete != is_complete).then(|| EventBlock { id, at, body: events::body(is_complete).into() })
    }

    /// A lease began: nothing that was sent before it is under way any more. `stored` is what the store keeps, the marker of
    /// this lease included; `first` is less than all ids to come.
    pub(super) fn open(&self, stored: Vec<EventBlock>, first: u64) {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.pending.clear();
        (state.stored, state.stored_bytes, state.repeats) = Default::default();
        for block in &stored {
            state.store(block);
        }
        let incomplete = stored.iter().rposition(|block| !events::is_complete(&block.body));
        let whole = stored.get(incomplete.map_or(0, |index| index + 1)..).unwrap_or_default();
        let begin = whole.first().filter(|_| self.keeps_all());
        // If it keeps what was told last, it keeps all before it.
        let is_continued =
            begin.is_some() && whole.binary_search_by_key(&state.last, |block| block.id).is_ok();
        if is_continued {
            for block in whole.iter().filter(|block| block.id > state.last).cloned().collect::<Vec<_>>() {
                state.publish(block, &self.log);
            }
            return;
        }
        state.recent = if begin.is_some() { whole.to_vec().into() } else { VecDeque::new() };
        state.recent_bytes = state.recent.iter().map(bytes_of).sum();
        state.last = state.recent.back().map_or(first, |block| block.id);
        state.since = match state.recent.front() {
            Some(block) => Position { block: block.id, records: 0 },
            None => Position::behind(first),
        };
        // Once somebody has watched, for ever: who fell behind is no watcher until it comes back.
        state.gathers |= self.keeps_all() || state.watchers.count > 0;
        state.watchers.reset();
    }

    /// All rows were removed, and all events with them. `marker` is stored.
    pub(super) fn cleared(&self, id: u64, marker: Option<&EventBlock>) {
        let mut state = self.state.lock();
        (state.stored, state.stored_bytes, state.repeats) = Default::default();
        (state.recent, state.recent_bytes) = Default::default();
        marker.into_iter().for_each(|block| state.store(block));
        (state.last, state.since) = (id, Position::behind(id));
        state.watchers.reset();
    }

    /// What came of the request with this id, if it was made.
    pub(super) fn repeat(&self, id: &[u8; 16]) -> Option<Repeat> {
        self.state.lock().repeats.get(id).copied()
    }

    /// Forgets what is too old or too much by `now`; up to which block the store is to forget, if any.
    pub(super) fn trim(&self, now: Timestamp) -> Option<u64> {
        let mut state = self.state.lock();
        let EventLog { age, bytes } = self.log.unwrap_or(REPEATS);
        let oldest = Timestamp(now.0.saturating_sub(age.as_millis() as u64));
        let mut until = None;
        // What is not decided yet may be stored in front of what is: without it a client would miss what was behind it.
        let undecided = state.pending.front().map_or(u64::MAX, |(id, _)| *id);
        // The last one stays: it says which events are there.
        while state.stored.len() > 1
            && let Some((id, at, block_bytes, _)) = state.stored.front()
            && *id < undecided
            && (*at < oldest || state.stored_bytes > bytes)
        {
            let (id, block_bytes) = (*id, *block_bytes);
            until = Some(id);
            state.stored_bytes -= block_bytes;
            for id in state.stored.pop_front().into_iter().flat_map(|(.., repeats)| repeats) {
                state.repeats.remove(&id);
            }
        }
        if let (Some(until), Some(_)) = (until, self.log) {
            while state.recent.front().is_some_and(|block| block.id <= until) {
                state.forget_oldest();
            }
        }
        until
    }

    /// How many bytes of events the store keeps.
    pub(super) fn stored_bytes(&self) -> u64 {
        self.state.lock().stored_bytes as u64
    }
}

fn bytes_of(block: &EventBlock) -> usize {
    block.body.len() + size_of::<EventBlock>()
}

/// The place of a batch in the order. Dropped, its outcome is unknown, and nothing behind it is published under this lease.
pub(super) struct Ticket<'e> {
    events: &'e Events,
    id: u64,
    /// Whether anybody asks for its events.
    pub gathers: bool,
}

impl Ticket<'_> {
    /// The block of the batch, if anything is in it.
    pub(super) fn block(&self, at: Timestamp, body: Vec<u8>) -> Option<EventBlock> {
        events::has_records(&body).then(|| EventBlock { id: self.id, at, body: body.into() })
    }

    /// The batch did not happen, or changed nothing.
    pub(super) fn end_without(self) {
        self.settle(Settled::DidNotHappen);
    }

    /// It happened. Of its blocks the store keeps one, and the other is told.
    pub(super) fn end_with(self, stored: Option<EventBlock>, told: Option<EventBlock>) {
        if let Some(block) = &stored {
            // At once: the request may come again before the batches before this one are known.
            self.events.state.lock().store(block);
        }
        self.settle(told.filter(|_| self.gathers).map_or(Settled::DidNotHappen, Settled::Happened));
    }

    fn settle(&self, settled: Settled) {
        let mut state = self.events.state.lock();
        // Absent: it is of an earlier lease.
        let Some(entry) = state.pending.iter_mut().find(|(id, _)| *id == self.id) else { return };
        entry.1 = settled;
        while state.pending.front().is_some_and(|(_, settled)| !matches!(settled, Settled::NotYet)) {
            if let Some((_, Settled::Happened(block))) = state.pending.pop_front() {
                state.publish(block, &self.events.log);
            }
        }
    }
}

impl State {
    fn begun(&self) -> u64 {
        self.pending.back().map_or(0, |(id, _)| *id)
    }

    fn behind(&self) -> Position {
        Position::behind(self.last)
    }

    /// Whether a block with this id is in memory, or is the one that `since` is behind.
    fn knows(&self, id: u64) -> bool {
        id == self.since.block || self.recent.binary_search_by_key(&id, |block| block.id).is_ok()
    }

    fn store(&mut self, block: &EventBlock) {
        let mut ids = Vec::new();
        for record in events::records(&block.body) {
            let Some(Idempotency { id, digest }) = record.idempotency else { continue };
            self.repeats.insert(id, Repeat { digest, version: record.version, existed: record.existed });
            ids.push(id);
        }
        self.stored_bytes += bytes_of(block);
        // Sorted by id, because the store removes blocks by id. Batches end in any order.
        let at = self.stored.partition_point(|(id, ..)| *id < block.id);
        self.stored.insert(at, (block.id, block.at, bytes_of(block), ids));
    }

    fn publish(&mut self, block: EventBlock, log: &Option<EventLog>) {
        self.last = block.id;
        if self.watchers.count > 0 {
            self.watchers.tell(&block);
        }
        self.recent_bytes += bytes_of(&block);
        self.recent.push_back(block);
        // What the store keeps is forgotten with it.
        while log.is_none() && self.recent_bytes > RECENT_BYTES_MAX {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        if let Some(block) = self.recent.pop_front() {
            self.recent_bytes -= bytes_of(&block);
            self.since = Position::behind(block.id);
        }
    }
}

/// An event, and where a client is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Behind it.
    pub position: Position,
    /// What happened.
    pub kind: EventKind,
    /// To which key.
    pub key: Box<[u8]>,
    /// The version of the write.
    pub version: Version,
}

impl Event {
    fn bytes(&self) -> usize {
        size_of::<Event>() + self.key.len()
    }
}

/// Which keys are watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// This one.
    Key(Box<[u8]>),
    /// Those that begin so.
    Prefix(Box<[u8]>),
}

impl Watched {
    fn holds(&self, key: &[u8]) -> bool {
        match self {
            Watched::Key(watched) => **watched == *key,
            Watched::Prefix(prefix) => key.starts_with(prefix),
        }
    }
}

/// What a [`Watch`] gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// These, in their order.
    Events(Vec<Event>),
    /// Events before this may be missing.
    Reset(Position),
}

/// Somebody who waits for events.
pub struct Watch {
    events: Arc<Events>,
    watcher: Arc<Watcher>,
    position: Position,
    /// Whether it is told of events as they come. Else it looks through the blocks.
    is_told: bool,
    /// The last batch that may have no events.
    ungathered: u64,
}

/// What is told to a [`Watch`].
struct Watcher {
    watched: Watched,
    told: Mutex<Told>,
    news: Arc<Notify>,
}

#[derive(Default)]
struct Told {
    events: Vec<Event>,
    /// Of the events.
    bytes: usize,
    /// Too many: it is not told any more.
    is_behind: bool,
    is_reset: bool,
}

impl Watch {
    /// Watches from behind `since`, or from now on.
    pub(super) fn new(
        events: &Arc<Events>,
        watched: Watched,
        since: Option<Position>,
        news: &Arc<Notify>,
    ) -> Watch {
        let news = Arc::clone(news);
        let watcher = Arc::new(Watcher { watched, told: Mutex::default(), news });
        let mut state = events.state.lock();
        if !state.gathers {
            state.gathers = true;
            state.ungathered = state.begun();
            state.last = state.last.max(state.ungathered);
            state.since = state.behind();
        }
        let position = since.unwrap_or_else(|| state.behind());
        let is_told = since.is_none();
        if is_told {
            state.watchers.add(&watcher);
        }
        let ungathered = state.ungathered;
        drop(state);
        Watch { events: Arc::clone(events), watcher, position, is_told, ungathered }
    }

    /// Whether a write that began before it may still be acknowledged, without an event.
    pub fn is_starting(&self) -> bool {
        self.events.is_under_way(self.ungathered)
    }

    /// Where it is: all events before this were given.
    pub fn position(&self) -> Position {
        if self.is_told {
            let state = self.events.state.lock();
            let told = self.watcher.told.lock();
            if told.events.is_empty() && !told.is_behind && !told.is_reset {
                return state.behind();
            }
        }
        self.position
    }

    /// The next events, if there are any now.
    pub fn try_next(&mut self) -> Option<Next> {
        if self.is_told { self.take() } else { self.look() }
    }

    /// Whether it is worth trying again at once: it looks through what happened before.
    pub fn is_late(&self) -> bool {
        !self.is_told
    }

    /// What it was told.
    fn take(&mut self) -> Option<Next> {
        let mut told = self.watcher.told.lock();
        let Told { events, is_behind, is_reset, .. } = std::mem::take(&mut *told);
        if is_reset {
            self.is_told = !is_behind;
            drop(told);
            let state = self.events.state.lock();
            // Told before it came here.
            let mut told = self.watcher.told.lock();
            (told.events, told.bytes) = Default::default();
            drop(told);
            self.position = state.behind();
            return Some(Next::Reset(self.position));
        }
        self.is_told = !is_behind;
        self.position = events.last()?.position;
        Some(Next::Events(events))
    }

    /// Some of what the blocks say behind its position. At their end it is told of the rest.
    fn look(&mut self) -> Option<Next> {
        let events = Arc::clone(&self.events);
        let blocks: Vec<EventBlock> = {
            let mut state = events.state.lock();
            if self.position < state.since || !state.knows(self.position.block) {
                // No block has this id: the position may be from before a backup was restored.
                self.position = state.behind();
                self.tell(&mut state);
                return Some(Next::Reset(self.position));
            }
            let from = state.recent.partition_point(|block| Position::behind(block.id) <= self.position);
            if from == state.recent.len() {
                self.position = state.behind();
                self.tell(&mut state);
                return None;
            }
            state.recent.range(from..).take(BLOCKS_AT_ONCE).cloned().collect()
        };
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (kind, position, record) in blocks.iter().flat_map(seen) {
            if position > self.position && self.watcher.watched.holds(record.key) {
                let event = Event { position, kind, key: record.key.into(), version: record.version };
                bytes += event.bytes();
                if bytes > WAITING_BYTES_MAX {
                    self.position = found.last().map_or(self.position, |last: &Event| last.position);
                    return Some(Next::Events(found));
                }
                found.push(event);
            }
        }
        self.position = blocks.last().map_or(self.position, |block| Position::behind(block.id));
        (!found.is_empty()).then_some(Next::Events(found))
    }

    fn tell(&mut self, state: &mut State) {
        *self.watcher.told.lock() = Told::default();
        state.watchers.add(&self.watcher);
        self.is_told = true;
    }
}

/// What is seen of a block: each event, and where a client is behind it.
fn seen(block: &EventBlock) -> impl Iterator<Item = (EventKind, Position, events::Record<'_>)> {
    events::records(&block.body).enumerate().filter_map(|(index, record)| {
        Some((record.event?, Position { block: block.id, records: index as u32 + 1 }, record))
    })
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.events.state.lock().watchers.remove(&self.watcher);
    }
}

type ByBytes = HashMap<Box<[u8]>, Vec<Arc<Watcher>>, foldhash::fast::RandomState>;

/// Everyone who is told of events, by what they watch.
#[derive(Default)]
struct Watchers {
    keys: ByBytes,
    /// By the length of the prefix.
    prefixes: BTreeMap<usize, ByBytes>,
    count: usize,
}

impl Watchers {
    fn add(&mut self, watcher: &Arc<Watcher>) {
        let (map, bytes) = match &watcher.watched {
            Watched::Key(key) => (&mut self.keys, key),
            Watched::Prefix(prefix) => (self.prefixes.entry(prefix.len()).or_default(), prefix),
        };
        map.entry(bytes.clone()).or_default().push(Arc::clone(watcher));
        self.count += 1;
    }

    fn remove(&mut self, watcher: &Arc<Watcher>) {
        let (map, bytes) = match &watcher.watched {
            Watched::Key(key) => (&mut self.keys, key),
            Watched::Prefix(prefix) => (self.prefixes.entry(prefix.len()).or_default(), prefix),
        };
        if let Some(watchers) = map.get_mut(bytes) {
            let before = watchers.len();
            watchers.retain(|other| !Arc::ptr_eq(other, watcher));
            self.count -= before - watchers.len();
            if watchers.is_empty() {
                map.remove(bytes);
            }
        }
        self.prefixes.retain(|_, watchers| !watchers.is_empty());
    }

    /// Tells everyone of those events of `block` that they watch.
    fn tell(&mut self, block: &EventBlock) {
        let mut behind = Vec::new();
        for (kind, position, record) in seen(block) {
            let prefixes = self.prefixes.range(..=record.key.len());
            let by_prefix = prefixes.filter_map(|(length, watchers)| watchers.get(&record.key[..*length]));
            for watcher in self.keys.get(record.key).into_iter().chain(by_prefix).flatten() {
                let event = Event { position, kind, key: record.key.into(), version: record.version };
                if !watcher.tell(event) {
                    behind.push(Arc::clone(watcher));
                }
            }
        }
        behind.iter().for_each(|watcher| self.remove(watcher));
    }

    /// Tells everyone that events may be missing.
    fn reset(&mut self) {
        let everyone = self.keys.values().chain(self.prefixes.values().flat_map(HashMap::values)).flatten();
        for watcher in everyone {
            watcher.told.lock().is_reset = true;
            watcher.news.notify_one();
        }
    }
}

impl Watcher {
    /// Whether it can be told of more.
    fn tell(&self, event: Event) -> bool {
        let mut told = self.told.lock();
        if told.is_behind {
            return false;
        }
        if told.events.is_empty() {
            self.news.notify_one();
        }
        told.bytes += event.bytes();
        if told.bytes > WAITING_BYTES_MAX {
            told.is_behind = true;
            return false;
        }
        told.events.push(event);
        true
    }
}
