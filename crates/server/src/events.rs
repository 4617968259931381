//! `GET /watch`: events as they happen, as server-sent events (HTML standard, 9.2); and waiting for a key to change.

use super::connection::Connection;
use super::error::Failure;
use super::head::ReadCondition;
use super::json;
use super::reply::{Request, write_events_head};
use super::timeouts::End;
use super::tokens::Verb;
use super::watch_query::{WatchQuery, bad_cursor, push_cursor};
use super::wire::{Stream, Wire};
use crate::tiered::{Read, Tiered, Tiers};
use kv::Key;
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use store::{Event, EventKind, Next, Position, Status, Watch, Watched};
use tokio::sync::Notify;

/// How often a GET that waits for a change looks at the key while a write that began before it is under way: such a one may have no
/// event. And where there are no events at all.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// A client that hears nothing for longer may take the connection for dead; so may a proxy, those of packaging/proxies after 15 s.
/// Once this server has not owned a store for so long, there is nothing that it could tell.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Sends to all clients in a second: many events cost about as much as one. A client that had none for a while has its next at once.
const SENDS_PER_SEC: u32 = 1000;
/// Least and most time between two sends to a client. Sends to several are made together, at multiples of the least: that costs less
/// than to wake up for each.
const SEND_INTERVALS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];
/// Sent at once; the rest comes next.
const SEND_BYTES_MAX: usize = 64 << 10;

/// The watches of all stores, as one.
struct Watches {
    watches: Vec<Watch>,
    /// Where the client is.
    positions: Vec<Position>,
    /// The one that the next call of [`Watches::collect`] asks first.
    first: usize,
    news: Arc<Notify>,
}

impl Watches {
    fn new(tiers: &Tiers, WatchQuery { prefix, since }: WatchQuery) -> Result<Watches, Failure> {
        if tiers.shards.iter().any(|tier| !tier.store().has_events()) {
            let what = "this server does not see all writes of its store, so it cannot tell of them; it does where it \
                        writes the store alone, with batches";
            return Err(Failure::new(501, "not_implemented", what));
        }
        let since = match since {
            Some(since) if since.len() != tiers.shards.len() => return Err(bad_cursor()),
            Some(since) => since.into_iter().map(Some).collect(),
            None => vec![None; tiers.shards.len()],
        };
        let news = Arc::new(Notify::new());
        let prefix: Box<[u8]> = prefix.into();
        let watch = |(tier, since): (&Tiered, Option<Position>)| {
            tier.store().watch(Watched::Prefix(prefix.clone()), since, &news)
        };
        let watches: Vec<Watch> = tiers.shards.iter().zip(since).map(watch).collect();
        let positions = watches.iter().map(Watch::position).collect();
        Ok(Watches { watches, positions, first: 0, news })
    }

    /// Writes down what happened; whether there may be more at once.
    fn collect(&mut self, text: &mut Vec<u8>) -> bool {
        let mut has_more = false;
        let stores = self.watches.len();
        for index in (self.first..self.first + stores).map(|index| index % stores) {
            if text.len() > SEND_BYTES_MAX {
                self.first = index;
                return true;
            }
            let next = self.watches[index].try_next();
            if stores > 1 && next.is_some() {
                // The client must not fall behind in a store in which nothing happens that it watches.
                self.advance();
            }
            match next {
                Some(Next::Events(events)) => {
                    for event in events {
                        self.positions[index] = event.position;
                        push_event(text, &self.positions, &event);
                    }
                }
                Some(Next::Reset(position)) => {
                    self.positions[index] = position;
                    push_start(text, "reset", &self.positions);
                    text.extend_from_slice(b"data: {}\n\n");
                }
                None => {}
            }
            has_more |= self.watches[index].is_late();
        }
        has_more
    }

    /// Where the client is when nothing happened that it watches.
    fn heartbeat(&mut self, text: &mut Vec<u8>) {
        let before = self.positions.clone();
        self.advance();
        if before == self.positions {
            text.extend_from_slice(b":\n\n");
        } else {
            push_id(text, &self.positions);
        }
    }

    /// Moves the client behind what happened and is not watched.
    fn advance(&mut self) {
        for (position, watch) in self.positions.iter_mut().zip(&self.watches) {
            *position = watch.position().max(*position);
        }
    }
}

/// An id without an event: the client remembers it.
fn push_id(text: &mut Vec<u8>, positions: &[Position]) {
    text.extend_from_slice(b"id: ");
    push_cursor(text, positions);
    text.extend_from_slice(b"\n\n");
}

fn push_start(text: &mut Vec<u8>, kind: &str, positions: &[Position]) {
    text.extend_from_slice(b"event: ");
    text.extend_from_slice(kind.as_bytes());
    text.extend_from_slice(b"\nid: ");
    push_cursor(text, positions);
    text.push(b'\n');
}

fn push_event(text: &mut Vec<u8>, positions: &[Position], event: &Event) {
    push_start(text, event.kind.name(), positions);
    text.extend_from_slice(b"data: {");
    json::push_bytes(text, "key", &event.key);
    if event.kind == EventKind::Put {
        // Memory takes everything.
        let _ = write!(text, ",\"etag\":\"\\\"{}\\\"\"", event.version);
    }
    text.extend_from_slice(b"}\n\n");
}

impl<S: Stream> Connection<S> {
    /// Tells of events until the client leaves, does not keep up, or the server ends.
    pub(super) async fn watch(&mut self, request: &Request, query: WatchQuery) -> Result<bool, End> {
        let worker = Rc::clone(&self.wire.worker);
        let prefix = query.prefix.clone();
        let tiers = &worker.shared.tiers;
        // What was before is known with the lease.
        self.wait_while(|| tiers.statuses().any(|status| status == Status::Starting)).await?;
        let owned = tiers.statuses().try_for_each(|status| status.epoch().map(|_| ()));
        let watches =
            owned.map_err(|error| Failure::of_read(&error)).and_then(|()| Watches::new(tiers, query));
        let mut watches = match watches {
            Ok(watches) => watches,
            Err(failure) => return Ok(self.wire.answer_failure(request, &failure)),
        };
        // What is acknowledged from now on is told. Once the store is lost, everyone who watches begins anew.
        self.wait_while(|| {
            let mut of = tiers.shards.iter().zip(&watches.watches);
            let is_up = |tier: &Tiered| matches!(tier.store().status(), Status::Up(_));
            of.any(|(tier, watch)| watch.is_starting() && is_up(tier))
        })
        .await?;
        write_events_head(&mut self.wire.output, request);
        self.wire.answered(request, 200, None, None);
        if request.is_head() {
            return Ok(false);
        }
        let watchers = &worker.shared.metrics.watchers;
        watchers.fetch_add(1, Relaxed);
        let ended = self.tell(&mut watches, &prefix).await;
        watchers.fetch_sub(1, Relaxed);
        ended.map(|()| false)
    }

    /// Waits until this no longer holds, or the server ends. Thousands may wait at once: they look less and less often.
    async fn wait_while(&mut self, holds: impl Fn() -> bool) -> Result<(), End> {
        let mut pause = Duration::from_millis(1);
        while holds() && !self.wire.worker.is_draining() {
            self.wait(None, Instant::now() + pause).await?;
            pause = (2 * pause).min(LOOK_PAUSES[0]);
        }
        Ok(())
    }

    async fn tell(&mut self, watches: &mut Watches, prefix: &[u8]) -> Result<(), End> {
        let worker = Rc::clone(&self.wire.worker);
        let started = worker.shared.metrics.started;
        let is_owner = || worker.shared.tiers.statuses().all(|status| is_owned(&status));
        // Since it was seen that the store is not owned.
        let mut away = None;
        push_id(&mut self.wire.output, &watches.positions);
        // Once it does not, the client that comes again is told so.
        while self.access.still_permits(&self.state, Verb::Watch, prefix).is_ok() {
            if is_owner() {
                away = None;
            } else if away.get_or_insert_with(Instant::now).elapsed() >= HEARTBEAT {
                break;
            }
            let has_more = watches.collect(&mut self.wire.output);
            if !self.wire.output.is_empty() {
                self.wire.flush_and_shrink().await?;
                let watchers = self.wire.worker.shared.metrics.watchers.load(Relaxed) as u32;
                let [least, most] = SEND_INTERVALS;
                let pause = (Duration::from_secs(1) / SENDS_PER_SEC * watchers).clamp(least, most);
                let next = started.elapsed() + pause;
                let late = Duration::from_nanos((next.as_nanos() % least.as_nanos()) as u64);
                self.wait(None, started + next - late).await?;
            } else if has_more {
                tokio::task::yield_now().await;
            } else if !self.wait(Some(&watches.news), Instant::now() + HEARTBEAT).await? && is_owner() {
                watches.heartbeat(&mut self.wire.output);
            }
            if self.wire.worker.is_draining() {
                break;
            }
        }
        self.wire.flush().await
    }

    /// The row under `key`. If it is as the client knows it, or absent and the client knows none, a change is waited for, unless the
    /// client's token ends meanwhile. The request has `started` later by as much: that is no time that it took.
    pub(super) async fn get_changed(
        &mut self,
        key: &Key,
        condition: &ReadCondition,
        wait: Duration,
        started: &mut Instant,
    ) -> Result<Read, End> {
        let worker = Rc::clone(&self.wire.worker);
        let tiers = &worker.shared.tiers;
        let until = Instant::now() + wait;
        let mut waited = Duration::ZERO;
        let news = Arc::new(Notify::new());
        // Before the look: what changes after it is told.
        let store = tiers.tier_of(key).store();
        let mut watch = store.watch(Watched::Key(key.as_bytes().into()), None, &news);
        let can_wait = store.has_events();
        // A client that sends that much wants the next answers, and whether it is there is not seen any more.
        let is_over =
            |wire: &Wire<S>| Instant::now() >= until || wire.worker.is_draining() || wire.has_full_head();
        loop {
            // A write that began before may have no event. Asked before the look, which sees it once it is over.
            let pause = match (can_wait, watch.is_starting()) {
                (true, true) => LOOK_PAUSES[0],
                (true, false) => HEARTBEAT,
                (false, _) => LOOK_PAUSES[1],
            };
            let read = tiers.get(key).await;
            let row = read.as_ref().map(|read| read.row.as_ref());
            let is_known = match (&row, &condition.unless) {
                (Ok(Some(row)), Some(unless)) => unless.holds(Some(row.version())),
                (Ok(None), unless) => unless.is_none(),
                _ => false,
            };
            if !is_known || is_over(&self.wire) {
                *started += waited;
                return Ok(worker.counted(key, read)?);
            }
            // It is in no budget, and thousands may wait.
            drop(read);
            let since = Instant::now();
            let (mut has_news, mut away) = (false, None);
            loop {
                // What was told when the store was lost is looked at once it is owned again.
                let pause = if has_news { LOOK_PAUSES[0] } else { pause };
                has_news |= self.wait(Some(&news), until.min(Instant::now() + pause)).await?;
                self.access.still_permits(&self.state, Verb::Read, key.as_bytes())?;
                // Nothing is told of what another server writes meanwhile.
                let is_away = !is_owned(&store.status());
                away = away.filter(|_| is_away).or_else(|| is_away.then(Instant::now));
                let is_lost = away.is_some_and(|since| since.elapsed() >= HEARTBEAT);
                if is_lost || !is_away && (has_news || pause < HEARTBEAT) || is_over(&self.wire) {
                    break;
                }
            }
            waited += since.elapsed();
            // What happened is seen in the row.
            while watch.try_next().is_some() || watch.is_late() {}
        }
    }

    /// Waits for `news`, and not longer than `until`; whether there are any. An error: the client has left.
    async fn wait(&mut self, news: Option<&Notify>, until: Instant) -> Result<bool, End> {
        let told = async {
            match news {
                Some(news) => news.notified().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = told => Ok(true),
            // Exact to a millisecond, unlike the timeouts of connections.
            () = tokio::time::sleep_until(until.into()) => Ok(false),
            end = self.wire.until_closed(until + HEARTBEAT) => match end {
                // The answer comes first, or the end of the stream.
                End::Slow | End::Draining => Ok(false),
                End::Gone | End::Cut | End::Failed(_) => Err(End::Gone),
            },
        }
    }
}

/// Whether this server has the store, or is about to.
fn is_owned(status: &Status) -> bool {
    matches!(status, Status::Up(_) | Status::Starting)
}
