//! The tiers of a server: one for every store it divides its keys among, and a replica to ask when one is unavailable.
//!
//! A key's hash says which shard holds it. Each shard is a whole tier of its own (cache, flights, workers, owner thread), so a
//! batch is always of one store, a store that is lost disturbs no other, and the one rule stays what it is. Knows no HTTP.

use super::{CacheCounts, Error, Kind, Read, Replica, Status, Tiered};
use crate::budget::Budget;
use cache::Cache;
use kv::{Key, Row};
use std::sync::Arc;
use std::time::Duration;
use store::{Config, LIST_BYTES_MAX, Listed, Listing, Page, Part, Role, SHARDS_MAX, Store, shard_of};

/// What one shard is made of.
pub struct Shard {
    /// Its share of the cache.
    pub cache: Cache,
    /// Where its keys are kept.
    pub store: Box<dyn Store>,
    /// How its requests are gathered; the role is set by its place.
    pub config: Config,
}

/// One tier or several, and what the server asks of them.
pub struct Tiers {
    /// One to [`SHARDS_MAX`].
    pub shards: Box<[Tiered]>,
    /// Asked for what a store cannot answer.
    pub replica: Option<Replica>,
}

impl Tiers {
    /// Acquires the first store, and then all others at the same time: of two servers that start, only one gets as far. No request
    /// waits longer than `deadline` for its store.
    ///
    /// Errors: as [`Tiered::start`], of the first store that fails in their order; the leases of the others are released.
    pub fn start(shards: Vec<Shard>, deadline: Duration) -> Result<Tiers, Error> {
        let of = shards.len();
        if !(1..=SHARDS_MAX).contains(&of) {
            return Err(Error::new(Kind::Config, format!("{of} stores; give 1 to {SHARDS_MAX}")));
        }
        let start = |(index, Shard { cache, store, config })| {
            let config = Config { role: Role::Store(Part { index, of }), ..config };
            Tiered::start(cache, store, config, deadline).map_err(|error| match (index, error.kind()) {
                // Not every store can tell one server from another.
                (1.., Kind::Taken) => {
                    Error::new(Kind::Taken, format!("{error}; and give no store twice, however spelled"))
                }
                _ => error,
            })
        };
        let mut shards = shards.into_iter().enumerate();
        let first = shards.next().map(start).transpose()?;
        let others: Result<Vec<Tiered>, Error> = std::thread::scope(|scope| {
            let threads: Vec<_> = shards.map(|shard| scope.spawn(move || start(shard))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a start does not panic")).collect()
        });
        Ok(Tiers { shards: first.into_iter().chain(others?).collect(), replica: None })
    }

    /// From now on rows that come from the stores are counted in `budget` until the requests have them.
    pub(crate) fn count_in(&self, budget: &Arc<Budget>) {
        for tier in &self.shards {
            // Once only.
            let _ = tier.tier.budget.set(Arc::clone(budget));
        }
    }

    /// Which shard holds `key`. With one there is nothing to compute.
    pub fn shard_of(&self, key: &[u8]) -> usize {
        match self.shards.len() {
            1 => 0,
            of => shard_of(key, of),
        }
    }

    /// The tier that holds `key`.
    pub fn tier_of(&self, key: &Key) -> &Tiered {
        &self.shards[self.shard_of(key.as_bytes())]
    }

    /// What `look` makes of the row under `key`, if its shard's cache holds it, and which shard that is. Never waits; `look`
    /// must be short, for it runs under a lock of the cache.
    pub fn cached<R>(&self, key: &[u8], look: impl FnOnce(&Row) -> R) -> Option<(R, usize)> {
        let shard = self.shard_of(key);
        Some((self.shards[shard].cached(key, look)?, shard))
    }

    /// The row under `key`, from its shard, or from the replica while the shard's store is unavailable.
    ///
    /// The row of the replica answers this request only: it enters no cache and joins no flight. A store that
    /// hangs first and then is unavailable costs its deadline and the replica's.
    pub async fn get(&self, key: &Key) -> Result<Read, Error> {
        let tier = self.tier_of(key);
        let Some(replica) = &self.replica else { return tier.get(key).await };
        let refused = match tier.store().status() {
            // Known to be away: a worker may hang in its last batch for a while, and this read behind it.
            Status::Down(reason) => {
                Error::new(Kind::Unavailable, format!("the store is unavailable: {reason}"))
            }
            Status::Up(_) | Status::Starting | Status::Standby { .. } | Status::Stopped => {
                match tier.get(key).await {
                    Err(error) if error.kind() == Kind::Unavailable || is_away(tier) => error,
                    answered => return answered,
                }
            }
        };
        // What the replica's own failure is says nothing about the store.
        replica.read(key).await.or(Err(refused))
    }

    /// A part of a list over all shards, in the order of the keys. Each row is as its store has it when that is asked. `count` is
    /// called with how many bytes are held after each shard was asked, and may refuse them. That is a page at most, and the next
    /// shard's comes to it.
    pub async fn list(
        &self,
        listing: &Listing,
        with_values: bool,
        mut count: impl FnMut(usize) -> Result<(), Error>,
    ) -> Result<Page, Error> {
        let mut all = Page { rows: Vec::new(), next: None };
        for tier in &self.shards {
            // Behind where the page of one shard ends, that shard may have more.
            let until = all.next.clone().or_else(|| listing.until.clone());
            let page = tier.list(Listing { until, ..listing.clone() }, with_values).await?;
            all.rows.extend(page.rows);
            all.next = page.next.or(all.next);
            if self.shards.len() > 1 {
                end_page(&mut all, listing.limit, with_values);
            }
            count(all.rows.iter().map(|listed| listed.row.bytes()).sum())?;
        }
        Ok(all)
    }

    /// Removes every row, shard after shard. A shard that fails ends it: those behind are left as they are.
    pub async fn clear(&self) -> Result<(), Error> {
        for (index, tier) in self.shards.iter().enumerate() {
            tier.clear().await.map_err(|error| match index {
                0 => error,
                // Something was removed, so this must not sound as if nothing was.
                _ => Error::new(
                    Kind::Unknown,
                    format!("{index} of {} shards are cleared; then {error}", self.shards.len()),
                ),
            })?;
        }
        Ok(())
    }

    /// How each store is.
    pub fn statuses(&self) -> impl Iterator<Item = Status> {
        self.shards.iter().map(|tier| tier.store().status())
    }

    /// Hands the stores over to a server that stands by, as [`store::Batcher::hand_over`] says.
    pub fn hand_over(&self, most: Duration) {
        for tier in &self.shards {
            tier.store().hand_over(most);
        }
    }

    /// What the caches hold together.
    pub fn cache_counts(&self) -> CacheCounts {
        self.shards.iter().map(|tier| tier.cache().counts()).sum()
    }
}

/// Makes a page of rows of several shards: those before its end, in their order, as many as it may have.
fn end_page(Page { rows, next }: &mut Page, limit: usize, with_values: bool) {
    rows.sort_unstable_by(|a, b| a.row.key().cmp(b.row.key()));
    rows.truncate(
        rows.partition_point(|listed| next.as_ref().is_none_or(|next| listed.row.key() < next.as_slice())),
    );
    let mut bytes = 0;
    let is_room = |listed: &&Listed| {
        let is_first = bytes == 0;
        bytes += listed.row.bytes();
        is_first || bytes <= LIST_BYTES_MAX
    };
    let most = if with_values { rows.iter().take_while(is_room).count() } else { rows.len() };
    if let Some(behind) = rows.get(most.min(limit)) {
        *next = Some(behind.row.key().to_vec());
        rows.truncate(most.min(limit));
    }
}

fn is_away(tier: &Tiered) -> bool {
    matches!(tier.store().status(), Status::Down(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiered::Served;
    use cache::{Limits, policy};
    use kv::{Precondition, Version};
    use store::contract::scripted::{Act, Scripted, Stage, Step};
    use store::replica::Lag;
    use tokio::sync::Barrier;

    const DEADLINE: Duration = Duration::from_secs(30);

    fn shard(store: Scripted) -> Shard {
        let cache = Cache::new(Limits { entries: 1000, bytes: 1 << 20 }, 1, policy::find("lru").unwrap());
        Shard { cache, store: Box::new(store), config: Config::default() }
    }

    /// `count` shards over stores that wait for the test at every call.
    fn start(count: usize) -> (Tiers, Vec<Stage>) {
        let (stores, stages): (Vec<_>, Vec<_>) = (0..count).map(|_| Scripted::new()).unzip();
        (Tiers::start(stores.into_iter().map(shard).collect(), DEADLINE).unwrap(), stages)
    }

    /// One shard and a replica that holds `k=old`; the store's stage and the replica's.
    fn with_replica() -> (Arc<Tiers>, Stage, Stage) {
        let (store, stage) = Scripted::new();
        store.hold(Row::new(&key("k"), "", b"old", Version(1)));
        let lag = Lag::watch(&[] as &[&str]).unwrap();
        let replica = Replica::start(Box::new(store), lag, Config::default(), DEADLINE).unwrap();
        let (tiers, mut stages) = start(1);
        (Arc::new(Tiers { replica: Some(replica), ..tiers }), stages.remove(0), stage)
    }

    type Reading = tokio::task::JoinHandle<Result<(Option<String>, Served), Kind>>;

    async fn get(tiers: &Arc<Tiers>, name: &'static str) -> Reading {
        let tiers = Arc::clone(tiers);
        spawn(async move {
            let read = tiers.get(&key(name)).await.map_err(|error| error.kind())?;
            Ok((read.row.map(|row| String::from_utf8_lossy(row.value()).into_owned()), read.served))
        })
        .await
    }

    /// The next call on a stage; meanwhile whoever is to make it goes on.
    async fn call(stage: &Stage) -> Step {
        loop {
            match stage.try_next() {
                Some(step) => return step,
                None => tokio::task::yield_now().await,
            }
        }
    }

    /// Fails the store's next call, so that it is lost; its lease will be acquired again at once.
    async fn lose(store: &Stage) {
        call(store).await.act(Act::Fail(Kind::Unavailable));
    }

    async fn until_back(tiers: &Tiers) {
        while tiers.shards[0].store().status() != Status::Up(2) {
            tokio::task::yield_now().await;
        }
    }

    /// What the key holds in the store and in the cache from here on.
    async fn put_now(tiers: &Arc<Tiers>, store: &Stage, value: &'static str) {
        let putting = Arc::clone(tiers);
        let put = spawn(async move {
            putting.tier_of(&key("k")).put(&key("k"), value.as_bytes(), Precondition::None).await
        });
        let put = put.await;
        call(store).await.act(Act::Answer);
        put.await.unwrap().unwrap();
    }

    fn key(name: &str) -> Key {
        Key::new(name.as_bytes()).unwrap()
    }

    async fn spawn<T: Send + 'static>(
        work: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        let handle = tokio::spawn(work);
        tokio::task::yield_now().await;
        handle
    }

    #[tokio::test]
    async fn a_key_goes_to_its_shard_and_to_no_other() {
        let (tiers, stages) = start(3);
        let tiers = Arc::new(tiers);
        for name in ["a", "key-2", "key-10000000", "popular_0"] {
            let expected = shard_of(name.as_bytes(), 3);
            let (putting, name_put) = (Arc::clone(&tiers), key(name));
            let put =
                spawn(
                    async move { putting.tier_of(&name_put).put(&name_put, b"v", Precondition::None).await },
                );
            let put = put.await;
            let step = stages[expected].next();
            assert_eq!(step.writes(), [format!("{name}=v")]);
            step.act(Act::Answer);
            put.await.unwrap().unwrap();
            let (row, shard) = tiers.cached(name.as_bytes(), Row::clone).unwrap();
            assert_eq!((row.value(), shard), (&b"v"[..], expected));
            assert!(stages.iter().all(Stage::is_quiet));
        }
    }

    /// Race 9 (report 003). What a replica says is not what the store says: it must never be cached.
    #[tokio::test]
    async fn what_the_replica_says_never_enters_the_cache() {
        let (tiers, store, replica) = with_replica();
        let read = get(&tiers, "k").await;
        lose(&store).await;
        call(&replica).await.act(Act::Answer);
        assert_eq!(read.await.unwrap(), Ok((Some("old".into()), Served::Replica)));
        assert!(tiers.cached(b"k", |_| ()).is_none());
        until_back(&tiers).await;
        let read = get(&tiers, "k").await;
        call(&store).await.act(Act::Answer);
        assert_eq!(
            read.await.unwrap(),
            Ok((None, Served::Miss { stored: false })),
            "the store is asked again"
        );
        assert!(replica.is_quiet());
    }

    /// Race 9 over the store's return: a read of the replica is answered after the key was written anew.
    #[tokio::test]
    async fn a_late_answer_of_the_replica_does_not_undo_a_put() {
        let (tiers, store, replica) = with_replica();
        let read = get(&tiers, "k").await;
        lose(&store).await;
        let late = call(&replica).await;
        late.act(Act::Perform);
        until_back(&tiers).await;
        put_now(&tiers, &store, "new").await;
        let after = get(&tiers, "k").await;
        assert_eq!(
            after.await.unwrap(),
            Ok((Some("new".into()), Served::Hit)),
            "it does not join the replica's"
        );
        late.act(Act::Answer);
        assert_eq!(read.await.unwrap(), Ok((Some("old".into()), Served::Replica)));
        assert_eq!(tiers.cached(b"k", Row::clone).unwrap().0.value(), b"new");
    }

    #[tokio::test]
    async fn a_replica_that_fails_leaves_the_stores_own_refusal() {
        let (tiers, store, replica) = with_replica();
        let read = get(&tiers, "k").await;
        lose(&store).await;
        call(&replica).await.act(Act::Fail(Kind::Rejected));
        assert_eq!(read.await.unwrap(), Err(Kind::Unavailable));
    }

    #[tokio::test]
    async fn a_store_that_answers_is_believed_whatever_it_says() {
        let (tiers, store, replica) = with_replica();
        let read = get(&tiers, "k").await;
        call(&store).await.act(Act::Fail(Kind::Rejected));
        assert_eq!(read.await.unwrap(), Err(Kind::Rejected));
        assert!(replica.is_quiet() && tiers.replica.as_ref().unwrap().reads.get() == 0);
    }

    #[tokio::test]
    async fn with_one_store_every_key_is_the_firsts() {
        let (tiers, _stages) = start(1);
        assert!((0..100_u8).all(|i| tiers.shard_of(&[i]) == 0));
    }

    /// After a crash each of them takes 2 s.
    #[test]
    fn all_stores_but_the_first_are_acquired_at_the_same_time() {
        let barrier = Arc::new(Barrier::new(2));
        let others = (0..2).map(|_| Scripted::new().0.acquired_with(Arc::clone(&barrier)));
        let stores = std::iter::once(Scripted::new().0).chain(others);
        Tiers::start(stores.map(shard).collect(), DEADLINE).unwrap();
        // Of several failures it is the first by their order.
        let mut shards: Vec<Shard> = (0..4).map(|_| shard(Scripted::new().0)).collect();
        for index in [2, 3] {
            shards[index].store = store::open(&format!("file:/dev/null/{index}")).unwrap();
        }
        let failure = Tiers::start(shards, DEADLINE).err().unwrap().to_string();
        assert!(failure.contains("/dev/null/2"), "{failure}");
    }

    #[tokio::test]
    async fn no_stores_and_too_many_are_refused() {
        for count in [0, SHARDS_MAX + 1] {
            let shards = (0..count).map(|_| shard(Scripted::new().0)).collect();
            assert_eq!(Tiers::start(shards, DEADLINE).err().unwrap().kind(), Kind::Config);
        }
    }
}
