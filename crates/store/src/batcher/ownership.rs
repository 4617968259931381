//! The owner thread: acquires the lease of the store, and again when it was lost.
//!
//! Every loss is handled alike, a broken session, a restarted database or a failover: all sessions end, the cache
//! above is dropped, and a new lease makes sure that nothing sent before can still take effect.

use super::{Observer, Shared, Status, start_thread};
use crate::{Error, EventBlock, EventSupport, Kind, Lease, Part, Role};
use kv::Version;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Between two attempts to acquire the lease, at first; doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A lease that lasted this long was not lost at once. After one that was, the pause is doubled up to the same time: each costs
/// an epoch, and there are 2^20.
const SETTLED: Duration = Duration::from_secs(5);

/// Starts the owner thread, which does `beside` too, and waits for its first lease.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    observer: Arc<dyn Observer>,
    lost: mpsc::UnboundedReceiver<(u64, String)>,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let (first, first_lease) = std_mpsc::channel();
    let owner = Owner { shared: Arc::clone(shared), observer, lost };
    let thread = start_thread("weir-owner", move |runtime| {
        runtime.spawn(beside);
        runtime.block_on(owner.run(first));
    })?;
    match first_lease.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(Kind::Config, "the owner thread ended before it owned the store")),
    }
}

struct Owner {
    shared: Arc<Shared>,
    observer: Arc<dyn Observer>,
    lost: mpsc::UnboundedReceiver<(u64, String)>,
}

impl Owner {
    async fn run(mut self, first: std_mpsc::Sender<Result<(), Error>>) {
        let role = self.shared.config.role;
        let mut lease = match self.first_lease().await {
            Ok(lease) => lease,
            Err(error) if role == Role::Replica && error.kind() == Kind::Unavailable => {
                log::warn!("the server starts without the replica: {error}");
                self.announce(Status::Down(error.to_string()));
                // The receiver waits for exactly one message, and is gone after it.
                let _ = first.send(Ok(()));
                let Some(lease) = self.reacquire(PAUSE_MIN).await else { return };
                lease
            }
            Err(error) => {
                self.shared.status.send_replace(Status::Stopped);
                // As above.
                let _ = first.send(Err(error));
                return;
            }
        };
        let mut first = Some(first);
        let mut pause = PAUSE_MIN;
        loop {
            let epoch = lease.epoch;
            let since = Instant::now();
            if !self.shared.is_shared() {
                self.shared.last_version.store(Version::first_of(epoch).0, Relaxed);
            }
            self.shared.clock.advance_to(lease.now);
            self.shared.may_expire.store(lease.may_expire, Relaxed);
            self.shared.meters.leases.add(1);
            self.observer.store_up();
            self.announce(Status::Up(epoch));
            if let Some(first) = first.take() {
                // As above. Only now, so that a started store can be used at once.
                let _ = first.send(Ok(()));
            }
            let Some(reason) = self.until_lost(&mut lease).await else { return };
            log::warn!("{role} is lost: {reason}");
            self.announce(Status::Down(reason));
            self.observer.store_down();
            // Our own sessions first: the next lease would wait for them.
            while self.shared.sessions.load(Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(lease);
            pause = if since.elapsed() < SETTLED { (pause * 2).min(SETTLED) } else { PAUSE_MIN };
            let Some(next) = self.reacquire(pause).await else { return };
            log::info!("{role} is back");
            lease = next;
        }
    }

    /// Announces a status to the workers, unless they know it already or the server ends; whether it was news.
    fn announce(&self, news: Status) -> bool {
        if let Status::Down(reason) = &news {
            self.shared.failed(reason.clone());
        }
        self.shared.status.send_if_modified(|status| {
            let is_news = *status != Status::Stopped && *status != news;
            if is_news {
                *status = news;
            }
            is_news
        })
    }

    /// The reason; `None` when the server ends.
    async fn until_lost(&mut self, lease: &mut Lease) -> Option<String> {
        let mut status = self.shared.status.subscribe();
        loop {
            tokio::select! {
                reason = &mut lease.lost => return Some(reason),
                lost = self.lost.recv() => match lost {
                    Some((epoch, reason)) if epoch == lease.epoch => return Some(reason),
                    Some(_) => {} // of a lease that is gone already
                    None => return None,
                },
                _ = status.wait_for(|status| *status == Status::Stopped) => return None,
            }
        }
    }

    /// Waits only while another server owns the store; any other failure is reported at once.
    async fn first_lease(&self) -> Result<Lease, Error> {
        let deadline = Instant::now() + self.shared.config.lease_wait;
        loop {
            match self.acquire().await {
                Err(error) if error.kind() == Kind::Taken && Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE_MIN).await;
                }
                result => return result,
            }
        }
    }

    /// `None` when the server ends.
    async fn reacquire(&self, mut pause: Duration) -> Option<Lease> {
        let mut status = self.shared.status.subscribe();
        loop {
            if tokio::time::timeout(pause, status.wait_for(|status| *status == Status::Stopped)).await.is_ok()
            {
                return None;
            }
            match self.acquire().await {
                Ok(lease) => return Some(lease),
                Err(error) => {
                    // The attempts go on several times a second, most for the same reason.
                    if self.announce(Status::Down(error.to_string())) {
                        log::warn!("cannot acquire {}: {error}", self.shared.config.role);
                    }
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Reads the events that the store keeps.
    async fn open_events(&self, lease: &Lease) -> Result<(), Error> {
        let Shared { store, events, .. } = &*self.shared;
        let first = Version::first_of(lease.epoch).0;
        let mut blocks: Vec<EventBlock> = Vec::new();
        if store.capabilities().events == EventSupport::Kept {
            let mut session = store.connect(lease.epoch).await?;
            loop {
                let more = session.events(blocks.last().map_or(0, |block| block.id)).await?;
                if more.is_empty() {
                    break;
                }
                blocks.extend(more);
            }
            if let Some(marker) = events.mark(&blocks, first, lease.now) {
                match session.write_with(&[], Some(&marker)).await {
                    Ok(_) => blocks.push(marker),
                    // As with a full disk: nothing that happened before can be told then.
                    Err(error) if !error.kind().ends_session() && events.keeps_all() => blocks.clear(),
                    Err(error) => return Err(error),
                }
            }
        }
        events.open(blocks, first);
        Ok(())
    }

    async fn acquire(&self) -> Result<Lease, Error> {
        let part = match self.shared.config.role {
            Role::Store(part) => part,
            Role::Replica => Part::WHOLE,
        };
        let lease = self.shared.store.acquire(part).await?;
        if lease.epoch > Version::EPOCH_MAX {
            let message = format!(
                "the store was leased {} times; versions have no room for more (docs/consistency.md)",
                lease.epoch
            );
            return Err(Error::new(Kind::Config, message));
        }
        if let Role::Store(_) = self.shared.config.role {
            self.open_events(&lease).await?;
        }
        Ok(lease)
    }
}
