//! The keeper: claims the store, and claims it anew when it was lost.
//!
//! Every loss is handled alike, a broken session, a restarted database or a failover: all sessions end, the cache
//! above is told to forget, and a new claim makes sure that nothing sent before can still take effect.

use super::{Observer, Shared, Status};
use crate::{Claim, Error, Kind, Role};
use kv::Version;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Between two attempts to claim, at first; doubled up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A claim that lasted so long was a good one.
const SETTLED: Duration = Duration::from_secs(5);

/// Starts the keeper and waits for its first claim.
pub(super) fn spawn(
    shared: &Arc<Shared>,
    observer: Arc<dyn Observer>,
    lost: mpsc::UnboundedReceiver<(u64, String)>,
) -> Result<JoinHandle<()>, Error> {
    let cannot = |error| Error::new(Kind::Config, format!("cannot start the thread weir-keeper: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let (first, first_claim) = std_mpsc::channel();
    let keeper = Keeper { shared: Arc::clone(shared), observer, lost };
    let thread = std::thread::Builder::new()
        .name("weir-keeper".into())
        .spawn(move || runtime.block_on(keeper.run(first)))
        .map_err(cannot)?;
    match first_claim.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(Error::new(Kind::Config, "the keeper ended before it claimed the store")),
    }
}

struct Keeper {
    shared: Arc<Shared>,
    observer: Arc<dyn Observer>,
    lost: mpsc::UnboundedReceiver<(u64, String)>,
}

impl Keeper {
    async fn run(mut self, first: std_mpsc::Sender<Result<(), Error>>) {
        let role = self.shared.config.role;
        let mut claim = match self.first_claim().await {
            Ok(claim) => claim,
            Err(error) if role == Role::Replica && error.kind() == Kind::Unavailable => {
                log::warn!("the server starts without the replica: {error}");
                self.announce(Status::Down(error.to_string()));
                // The receiver waits for exactly one message, and is gone after it.
                let _ = first.send(Ok(()));
                let Some(claim) = self.claim_again(PAUSE_MIN).await else { return };
                claim
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
            let epoch = claim.epoch;
            let since = Instant::now();
            self.shared.last_version.store(Version::first_of(epoch).0, Relaxed);
            self.shared.meters.claims.add(1);
            self.observer.store_up();
            self.announce(Status::Up(epoch));
            if let Some(first) = first.take() {
                // As above: only now, so that whoever starts a store may use it at once.
                let _ = first.send(Ok(()));
            }
            let Some(reason) = self.until_lost(&mut claim).await else { return };
            log::warn!("{role} is lost: {reason}");
            self.announce(Status::Down(reason));
            self.observer.store_down();
            // Our own sessions first: the next claim would wait for them.
            while self.shared.sessions.load(Relaxed) > 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(claim);
            // A store that is lost as soon as it is claimed must not be claimed in a circle: epochs are finite.
            pause = if since.elapsed() < SETTLED { (pause * 2).min(PAUSE_MAX) } else { PAUSE_MIN };
            let Some(next) = self.claim_again(pause).await else { return };
            log::info!("{role} is back");
            claim = next;
        }
    }

    /// Tells the lanes, unless they were told already or the server ends: that is the last word.
    fn announce(&self, news: Status) {
        self.shared.status.send_if_modified(|status| {
            let is_news = *status != Status::Stopped && *status != news;
            if is_news {
                *status = news;
            }
            is_news
        });
    }

    /// The reason; `None` when the server ends.
    async fn until_lost(&mut self, claim: &mut Claim) -> Option<String> {
        let mut status = self.shared.status.subscribe();
        loop {
            tokio::select! {
                reason = &mut claim.lost => return Some(reason),
                lost = self.lost.recv() => match lost {
                    Some((epoch, reason)) if epoch == claim.epoch => return Some(reason),
                    Some(_) => {} // of a claim that is gone already
                    None => return None,
                },
                _ = status.wait_for(|status| *status == Status::Stopped) => return None,
            }
        }
    }

    /// Waits only for a predecessor to let go: any other failure is better told at once.
    async fn first_claim(&self) -> Result<Claim, Error> {
        let deadline = Instant::now() + self.shared.config.claim_patience;
        loop {
            match self.claim().await {
                Err(error) if error.kind() == Kind::Taken && Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE_MIN).await;
                }
                result => return result,
            }
        }
    }

    /// `None` when the server ends.
    async fn claim_again(&self, mut pause: Duration) -> Option<Claim> {
        let mut status = self.shared.status.subscribe();
        loop {
            if tokio::time::timeout(pause, status.wait_for(|status| *status == Status::Stopped)).await.is_ok()
            {
                return None;
            }
            match self.claim().await {
                Ok(claim) => return Some(claim),
                Err(error) => {
                    log::debug!("cannot claim {}: {error}", self.shared.config.role);
                    self.announce(Status::Down(error.to_string()));
                }
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn claim(&self) -> Result<Claim, Error> {
        let claim = self.shared.store.claim(self.shared.config.role.part()).await?;
        if claim.epoch > Version::EPOCH_MAX {
            let message =
                format!("the store was claimed {} times; versions have no room for more", claim.epoch);
            return Err(Error::new(Kind::Config, message));
        }
        Ok(claim)
    }
}
