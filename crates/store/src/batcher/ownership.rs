//! The owner thread: acquires the lease of the store, and again when it was lost.
//!
//! Every loss is handled alike, a broken session, a restarted database or a failover: all sessions end, the cache
//! above is dropped, and a new lease makes sure that nothing sent before can still take effect. As long as it lasts the lease
//! is confirmed again and again, because hits in the cache depend on it.

use super::hand_over::refused;
use super::hit_lease::HITS_END;
use super::{Leaving, Observer, Shared, Status, start_thread};
use crate::{Error, EventBlock, Kind, Lease, Part, Role, Writers};
use kv::clock::boot_time;
use kv::{Timestamp, Version};
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Between two attempts to acquire the lease, at first; doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Between two attempts of a standby.
const STANDBY_PAUSE: Duration = Duration::from_millis(250);
/// How long a server with `--standby` waits before its first attempt, so that one that already stands by acquires the store first. Proxies
/// send no requests yet to a server that has just started.
const FIRST_ATTEMPT_DELAY: Duration = Duration::from_millis(500);
/// Between two confirmations of the lease, and how long the store may take for one.
const CONFIRM_PAUSE: Duration = Duration::from_millis(500);
const CONFIRM_MAX: Duration = Duration::from_secs(10);
/// How long the store may take to note that it is released.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// A lease that lasted this long was not lost at once. After one that was, the pause is doubled up to the same time: each costs
/// an epoch, and there are 2^20.
const SETTLED: Duration = Duration::from_secs(5);

/// Starts the owner thread, which does `beside` too, and waits for its first lease.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    observer: Arc<dyn Observer>,
    lost: mpsc::UnboundedReceiver<(u64, Error)>,
    workers: usize,
    beside: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>, Error> {
    let (first, first_lease) = std_mpsc::channel();
    let shared = Arc::clone(shared);
    let owner =
        Owner { shared: Arc::clone(&shared), observer, lost, workers, first: Some(first), last_epoch: None };
    let thread = start_thread("weir-owner", move |runtime| {
        runtime.spawn(beside);
        runtime.block_on(owner.run());
        shared.claimed.send_replace(None);
    })?;
    match first_lease.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(Kind::Config, "the owner thread ended before it owned the store")),
    }
}

/// What failed, without what to do about it: of one who waits, nothing.
fn without_remedy(error: &Error) -> String {
    let text = error.to_string();
    text.split("; ").next().unwrap_or_default().to_owned()
}

struct Owner {
    shared: Arc<Shared>,
    observer: Arc<dyn Observer>,
    lost: mpsc::UnboundedReceiver<(u64, Error)>,
    /// How many of them open sessions.
    workers: usize,
    /// Where it is told, once, whether the server starts.
    first: Option<std_mpsc::Sender<Result<(), Error>>>,
    /// That of the last lease under which requests were served, or of one of ours that followed it at once and served none.
    last_epoch: Option<u64>,
}

impl Owner {
    async fn run(mut self) {
        let role = self.shared.config.role;
        let since = Instant::now();
        let mut lease = match self.first_lease().await {
            Ok(lease) => lease,
            Err(error) if self.may_wait_for(&error) => {
                match role {
                    Role::Replica => log::warn!("the server starts without the replica: {error}"),
                    Role::Store(_) => log::info!("standing by: {}", without_remedy(&error)),
                }
                self.announce(self.status_after(&error, since));
                self.starts(Ok(()));
                // Else the server ends.
                let Some(lease) = self.reacquire(PAUSE_MIN).await else { return };
                log::info!("this server uses {role} now");
                lease
            }
            Err(error) => {
                self.shared.status.send_replace(Status::Stopped);
                return self.starts(Err(error));
            }
        };
        let mut pause = PAUSE_MIN;
        loop {
            let epoch = lease.epoch;
            let since = Instant::now();
            if !self.shared.is_shared() {
                self.shared.versions.begin(epoch);
            }
            // Requests that wait for the lease may have set it, too.
            self.shared.may_expire.fetch_or(lease.may_expire, Relaxed);
            self.shared.meters.leases.add(1);
            self.last_epoch = Some(epoch);
            self.observer.store_up();
            // It is not known of this lease.
            self.shared.refuses_writes.store(false, Relaxed);
            self.announce(Status::Up(epoch));
            // Only now, so that a started store can be used at once.
            self.starts(Ok(()));
            let lost = self.until_lost(&mut lease).await;
            self.shared.hit_lease.end();
            let Some(reason) = lost else { return release(&mut lease).await };
            let is_leaving = *self.shared.leaving.borrow() == Leaving::Announced;
            if !is_leaving {
                log::warn!("{role} is lost: {reason}");
            }
            // First, so that no worker opens another one.
            self.shared.claimed.send_replace(None);
            self.announce(Status::Down(reason));
            self.observer.store_down();
            self.until_sessions_end().await;
            drop(lease);
            if is_leaving {
                return;
            }
            pause = if since.elapsed() < SETTLED { (pause * 2).min(SETTLED) } else { PAUSE_MIN };
            let Some(next) = self.reacquire(pause).await else { return };
            log::info!("{role} is back");
            lease = next;
        }
    }

    /// Tells whether the server starts, the first time.
    fn starts(&mut self, result: Result<(), Error>) {
        if let Some(first) = self.first.take() {
            // Whoever waited for it may have gone.
            let _ = first.send(result);
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
        let mut confirmed = pin!(confirm(lease.owner.as_deref_mut(), &self.shared));
        loop {
            tokio::select! {
                reason = &mut lease.lost => return Some(reason),
                reason = &mut confirmed => return Some(reason),
                lost = self.lost.recv() => match lost {
                    Some((epoch, error)) if epoch == lease.epoch => return Some(error.to_string()),
                    Some(_) => {} // of a lease that is gone already
                    None => return None,
                },
                _ = status.wait_for(|status| *status == Status::Stopped) => return None,
            }
        }
    }

    /// Whether a server starts although its store cannot be acquired yet.
    fn may_wait_for(&self, error: &Error) -> bool {
        match (self.shared.config.role, error.kind()) {
            (Role::Replica, kind) => kind == Kind::Unavailable,
            (Role::Store(_), kind) => {
                self.shared.config.is_standby
                    && matches!(kind, Kind::Taken | Kind::Ending | Kind::Unavailable)
            }
        }
    }

    /// What follows from an attempt to acquire the lease that began at `since` and failed.
    fn status_after(&self, error: &Error, since: Instant) -> Status {
        match error.kind() {
            Kind::Ending => Status::Starting,
            Kind::Taken if self.shared.config.is_standby => {
                Status::Standby { since, reason: error.to_string() }
            }
            _ => Status::Down(error.to_string()),
        }
    }

    /// Waits only while another server owns the store; any other failure is reported at once.
    async fn first_lease(&mut self) -> Result<Lease, Error> {
        let wait = self.shared.config.lease_wait;
        let deadline = Instant::now() + wait;
        let mut says_so = !wait.is_zero();
        if self.shared.config.is_standby && matches!(self.shared.config.role, Role::Store(_)) {
            tokio::time::sleep(FIRST_ATTEMPT_DELAY).await;
        }
        loop {
            let result = self.acquire().await;
            match &result {
                Err(error) if self.may_wait_for(error) => return result,
                Err(error) if error.kind().is_taken() && Instant::now() < deadline => {
                    if std::mem::take(&mut says_so) {
                        log::info!("{}; waiting {} s for it", without_remedy(error), wait.as_secs());
                    }
                    tokio::time::sleep(PAUSE_MIN).await;
                }
                _ => return result,
            }
        }
    }

    /// `None` when the server ends.
    async fn reacquire(&mut self, mut pause: Duration) -> Option<Lease> {
        let mut status = self.shared.status.subscribe();
        loop {
            tokio::select! {
                _ = status.wait_for(|status| *status == Status::Stopped) => return None,
                () = tokio::time::sleep(pause) => {}
            }
            if *self.shared.leaving.borrow() != Leaving::No {
                // After this thread ends nobody refuses waiting requests, so they are refused now.
                self.announce(Status::Down(refused().to_string()));
                return None;
            }
            let since = Instant::now();
            let (lease, longest) = match self.claim().await {
                // If it is of no use, it has cost an epoch.
                Ok(lease) => (self.open(lease).await, SETTLED),
                Err(error) => (Err(error), PAUSE_MAX),
            };
            match lease {
                Ok(lease) => return Some(lease),
                Err(error) => {
                    pause = match error.kind() {
                        Kind::Ending => PAUSE_MIN,
                        Kind::Taken if self.shared.config.is_standby => STANDBY_PAUSE,
                        _ => (pause * 2).min(longest),
                    };
                    // The attempts go on several times a second, most for the same reason.
                    let status = self.status_after(&error, since);
                    let is_usual = matches!(status, Status::Starting | Status::Standby { .. });
                    if self.announce(status) && !is_usual {
                        log::warn!("cannot acquire {}: {error}", self.shared.config.role);
                    }
                }
            }
        }
    }

    async fn acquire(&mut self) -> Result<Lease, Error> {
        let lease = self.claim().await?;
        self.open(lease).await
    }

    async fn claim(&self) -> Result<Lease, Error> {
        let part = match self.shared.config.role {
            Role::Store(part) => part,
            Role::Replica => Part::WHOLE,
        };
        self.shared.store.acquire(part).await
    }

    /// Does with a new lease what has to be done before anything is served.
    async fn open(&mut self, lease: Lease) -> Result<Lease, Error> {
        let epoch = lease.epoch;
        let opened = self.try_to_open(lease).await;
        if opened.is_err() {
            self.shared.claimed.send_replace(None);
            self.until_sessions_end().await;
            if self.last_epoch.is_some_and(|last| last + 1 == epoch) {
                self.last_epoch = Some(epoch);
            }
        }
        opened
    }

    /// Our own sessions end first: the next lease would wait for them.
    async fn until_sessions_end(&self) {
        while self.shared.sessions.load(Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn try_to_open(&mut self, mut lease: Lease) -> Result<Lease, Error> {
        let acquired = Instant::now();
        // Before anything else takes time.
        self.shared.clock.advance_to(lease.now);
        if lease.epoch > Version::EPOCH_MAX {
            let message = format!(
                "the store is at epoch {}, and versions have no room for more than {} (docs/consistency.md)",
                lease.epoch,
                Version::EPOCH_MAX
            );
            return Err(Error::new(Kind::Config, message));
        }
        let shared = Arc::clone(&self.shared);
        let is_store = matches!(shared.config.role, Role::Store(_));
        let (epoch, now) = (lease.epoch, lease.now);
        {
            let mut opened = pin!(async {
                if is_store {
                    open_events(&shared, epoch, now).await?;
                }
                self.open_sessions(epoch).await
            });
            // A long log takes long, and the database would end the owner's session if that were silent meanwhile.
            loop {
                tokio::select! {
                    opened = &mut opened => break opened?,
                    () = tokio::time::sleep(CONFIRM_PAUSE) => {
                        confirm_once(lease.owner.as_deref_mut(), &shared, false).await?;
                    }
                }
            }
        }
        if is_store {
            self.wait_for_hits_to_end(&lease, acquired).await?;
        }
        // So that the first hit need not wait for the next confirmation.
        confirm_once(lease.owner.as_deref_mut(), &self.shared, true).await?;
        Ok(lease)
    }

    /// Has the workers open their sessions: a lease is of no use without all of them.
    async fn open_sessions(&mut self, epoch: u64) -> Result<(), Error> {
        let (mut opened, mut status) = (self.shared.opened.subscribe(), self.shared.status.subscribe());
        self.shared.opened.send_replace(0);
        self.shared.claimed.send_replace(Some(epoch));
        loop {
            let failed = tokio::select! {
                _ = opened.wait_for(|opened| *opened >= self.workers) => return Ok(()),
                failed = self.lost.recv() => failed,
                _ = status.wait_for(|status| *status == Status::Stopped) => None,
            };
            match failed {
                Some((of, error)) if of == epoch => {
                    // The lease has one, and that which read the events may not have ended yet.
                    let sessions = self.workers + 2;
                    let what = format!("this server needs up to {sessions} sessions: {error}");
                    return Err(Error::new(error.kind(), what));
                }
                Some(_) => {} // of a lease that is gone already
                None => return Err(ends()),
            }
        }
    }

    /// A server that owned the store before may have been paused, and answer hits until its lease of them ends.
    ///
    /// Errors: this server ends. Then it must not release the lease: the next one waits.
    async fn wait_for_hits_to_end(&self, lease: &Lease, acquired: Instant) -> Result<(), Error> {
        let is_own = self.last_epoch.is_some_and(|last| last + 1 == lease.epoch);
        let is_over = lease.was_released && !self.shared.store.sessions_may_outlive_lease();
        if is_over || is_own {
            return Ok(());
        }
        log::info!(
            "the server before did not release {}: waiting {} s until its cache hits have ended",
            self.shared.config.role,
            HITS_END.as_secs_f64()
        );
        self.announce(Status::Starting);
        let mut status = self.shared.status.subscribe();
        tokio::select! {
            _ = status.wait_for(|status| *status == Status::Stopped) => Err(ends()),
            () = tokio::time::sleep_until((acquired + HITS_END).into()) => Ok(()),
        }
    }
}

fn ends() -> Error {
    Error::new(Kind::Unavailable, "the server ends")
}

/// Reads the events that the store keeps.
async fn open_events(shared: &Shared, epoch: u64, now: Timestamp) -> Result<(), Error> {
    let Shared { store, events, .. } = shared;
    let first = Version::first_of(epoch).0;
    let mut blocks: Vec<EventBlock> = Vec::new();
    // Where other programs write, too, nothing is told of it, but what the store keeps is no longer all.
    if store.capabilities().writers != Writers::Servers {
        let mut session = store.connect(epoch).await?;
        loop {
            let more = session.events(blocks.last().map_or(0, |block| block.id)).await?;
            if more.is_empty() {
                break;
            }
            blocks.extend(more);
        }
        if let Some(marker) = events.mark(&blocks, first, now) {
            match session.write_with(&[], Some(&marker)).await {
                Ok(_) => blocks.push(marker),
                // As with a full disk: nothing that happened before can be told then, but what must not happen twice is known.
                Err(error) if !error.kind().ends_session() && events.keeps_all() => {}
                Err(error) => return Err(error),
            }
        }
    }
    events.open(blocks, first);
    Ok(())
}

/// The session of a lease, where there is one.
type LeaseOwner<'a> = Option<&'a mut (dyn crate::Owner + 'static)>;

/// Has the lease confirmed, and extends that of the hits if it `extends`.
async fn confirm_once(owner: LeaseOwner<'_>, shared: &Shared, extends: bool) -> Result<(), Error> {
    let asked = owner.is_some().then(boot_time);
    let unanswered = || format!("the store did not answer within {} s", CONFIRM_MAX.as_secs());
    if let Some(owner) = owner {
        let confirmed = tokio::time::timeout(CONFIRM_MAX, owner.confirm()).await;
        confirmed.unwrap_or_else(|_| Err(Error::new(Kind::Unavailable, unanswered())))?;
    }
    if extends {
        shared.hit_lease.extend(asked);
    }
    Ok(())
}

/// Has the lease confirmed again and again until the server hands it over, which it then says in the store. Ends with the reason
/// when it is lost.
async fn confirm(mut owner: LeaseOwner<'_>, shared: &Shared) -> String {
    let mut leaving = shared.leaving.subscribe();
    // While it serves on it needs the lease for all answers. The next owner waits for their end in any case.
    let serves_on = shared.store.sessions_may_outlive_lease();
    loop {
        tokio::select! {
            () = tokio::time::sleep(CONFIRM_PAUSE) => {}
            // The value must not stay borrowed: it is replaced below.
            () = async { drop(leaving.wait_for(|leaving| *leaving == Leaving::Asked).await) } => {
                if !serves_on {
                    shared.hit_lease.end();
                }
                match &mut owner {
                    // A commit, which may take as long as any other: requests wait meanwhile.
                    Some(owner) => match tokio::time::timeout(CONFIRM_MAX, owner.release()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => return error.to_string(),
                        Err(_) => return "the store does not answer".to_owned(),
                    },
                    None => shared.store.note_end(),
                }
                shared.leaving.send_replace(Leaving::Announced);
            }
        }
        let extends = serves_on || *leaving.borrow() == Leaving::No;
        if let Err(error) = confirm_once(owner.as_deref_mut(), shared, extends).await {
            return error.to_string();
        }
    }
}

/// Notes in the store that it is released, so that its next owner need not wait. No hits are answered any more.
async fn release(lease: &mut Lease) {
    let Some(owner) = &mut lease.owner else { return };
    // Without the note the next owner waits.
    match tokio::time::timeout(RELEASE_MAX, owner.release()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::debug!("cannot note the release: {error}"),
        Err(_) => log::debug!("cannot note the release in time"),
    }
}
