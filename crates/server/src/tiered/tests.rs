//! The races of docs/consistency.md, each with the order of events that would show it.

mod expired;
mod shared;
mod unordered;

use super::*;
use cache::{Limits, policy};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::future::Future;
use store::contract::scripted::{Act, Scripted, Stage, Step};
use tokio::task::JoinHandle;

/// A tier over a store that waits for the test at every call.
struct World {
    tiered: Arc<Tiered>,
    stage: Stage,
}

type Read = JoinHandle<Result<Option<String>, Kind>>;
type Wrote = JoinHandle<Result<Version, Kind>>;

const KEY: &str = "k";

fn key() -> Key {
    Key::new(KEY.as_bytes()).unwrap()
}

impl Tiered {
    pub(super) async fn put(
        &self,
        key: &Key,
        value: &[u8],
        condition: Precondition,
    ) -> Result<Made, WriteError> {
        let put = Intent::Put(Row::new(key, "", value, Version::default()));
        self.write(key, put, condition.into(), Fill::IfAllowed).await
    }

    async fn delete(&self, key: &Key) -> Result<Made, WriteError> {
        self.write(key, Intent::Delete, WriteTerms::default(), Fill::IfAllowed).await
    }
}

impl World {
    fn new() -> World {
        World::with_deadline(Duration::from_secs(30))
    }

    fn with_deadline(deadline: Duration) -> World {
        World::with(Config::default(), deadline)
    }

    fn with(config: Config, deadline: Duration) -> World {
        let (store, stage) = Scripted::new();
        let cache = Cache::new(Limits { entries: 1000, bytes: 1 << 20 }, 1, policy::find("lru").unwrap());
        let tiered = Tiered::start(cache, Box::new(store), config, deadline).unwrap();
        World { tiered: Arc::new(tiered), stage }
    }

    /// Starts something and lets it run until it waits for the store.
    async fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let handle = tokio::spawn(work);
        tokio::task::yield_now().await;
        handle
    }

    async fn get(&self) -> Read {
        let tiered = Arc::clone(&self.tiered);
        self.spawn(async move {
            let read = tiered.get(&key()).await.map_err(|error| error.kind())?;
            Ok(read.row.map(|row| String::from_utf8(row.value().to_vec()).unwrap()))
        })
        .await
    }

    async fn put(&self, value: &'static str) -> Wrote {
        let tiered = Arc::clone(&self.tiered);
        self.spawn(async move {
            match tiered.put(&key(), value.as_bytes(), Precondition::None).await {
                Ok(made) => Ok(made.version),
                Err(WriteError::Store(error)) => Err(error.kind()),
                Err(other) => panic!("{other:?}"),
            }
        })
        .await
    }

    async fn delete(&self) -> Wrote {
        let tiered = Arc::clone(&self.tiered);
        self.spawn(async move {
            match tiered.delete(&key()).await {
                Ok(made) => Ok(made.version),
                Err(other) => panic!("{other:?}"),
            }
        })
        .await
    }

    /// The next call of the store.
    fn call(&self) -> Step {
        self.stage.next()
    }

    /// The next call of the store, unless `work` ends without one.
    async fn call_unless_ended<T>(&self, work: &mut JoinHandle<T>) -> Option<Step> {
        loop {
            if let Some(step) = self.stage.try_next() {
                return Some(step);
            }
            if work.is_finished() {
                return None;
            }
            tokio::task::yield_now().await;
        }
    }

    fn cached(&self) -> Option<String> {
        self.tiered.cached(KEY.as_bytes(), |row| String::from_utf8(row.value().to_vec()).unwrap())
    }

    /// Writes and waits for the acknowledgement.
    async fn put_now(&self, value: &'static str) {
        let put = self.put(value).await;
        self.call().act(Act::Answer);
        put.await.unwrap().unwrap();
    }

    /// A row in the store that the cache does not hold.
    async fn put_uncached(&self, value: &'static str) {
        self.put_now(value).await;
        self.tiered.tier.cache.clear_shard(0);
    }
}

#[tokio::test]
async fn a_miss_fills_the_cache_and_a_hit_asks_nobody() {
    let world = World::new();
    world.put_uncached("v1").await;
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.get().await.await.unwrap(), Ok(Some("v1".into())));
    assert!(world.stage.is_quiet());
}

#[tokio::test]
async fn many_misses_of_one_key_are_one_read() {
    let world = World::new();
    world.put_uncached("v1").await;
    let reads = [world.get().await, world.get().await, world.get().await];
    world.call().act(Act::Answer);
    for read in reads {
        assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    }
    assert!(world.stage.is_quiet());
    assert_eq!(world.tiered.meters().collapsed.get(), 2);
}

/// Race 1. A read that saw v1 comes back after v2 was acknowledged.
#[tokio::test]
async fn a_late_fill_does_not_undo_a_put() {
    let world = World::new();
    world.put_uncached("v1").await;
    let read = world.get().await;
    let late = world.call();
    late.act(Act::Perform);
    world.put_now("v2").await;
    late.act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())), "it began before v2 was written");
    assert_eq!(world.cached(), Some("v2".into()));
}

/// Race 1, the same with a DELETE: the key must not rise from the dead.
#[tokio::test]
async fn a_late_fill_does_not_undo_a_delete() {
    let world = World::new();
    world.put_uncached("v1").await;
    let read = world.get().await;
    let late = world.call();
    late.act(Act::Perform);
    let delete = world.delete().await;
    world.call().act(Act::Answer);
    delete.await.unwrap().unwrap();
    late.act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.cached(), None);
}

/// Race 1, while a read from after the DELETE keeps the key among those in flight.
#[tokio::test]
async fn a_late_fill_beside_a_later_read_does_not_undo_a_delete() {
    let world = World::new();
    world.put_uncached("v1").await;
    let read = world.get().await;
    let late = world.call();
    late.act(Act::Perform);
    let delete = world.delete().await;
    world.call().act(Act::Answer);
    delete.await.unwrap().unwrap();
    let later = world.get().await;
    late.act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.cached(), None);
    world.call().act(Act::Answer);
    assert_eq!(later.await.unwrap(), Ok(None));
}

/// Race 2. Two writes of a key may not reach the cache in another order than the store.
#[tokio::test]
async fn the_last_committed_of_two_writes_is_the_one_cached() {
    let world = World::new();
    let first = world.put("v1").await;
    let commit = world.call();
    let second = world.put("v2").await;
    commit.act(Act::Perform);
    commit.act(Act::Answer);
    world.call().act(Act::Answer);
    assert!(first.await.unwrap().unwrap() < second.await.unwrap().unwrap());
    assert_eq!(world.cached(), Some("v2".into()));
}

/// Race 2 inside one batch: the write that was overtaken does not pass through the cache.
#[tokio::test]
async fn a_superseded_write_never_enters_the_cache() {
    let world = World::new();
    let hold = world.put("v0").await;
    let commit = world.call();
    let (first, second) = (world.put("v1").await, world.delete().await);
    commit.act(Act::Answer);
    hold.await.unwrap().unwrap();
    let both = world.call();
    assert_eq!(both.writes(), ["k-"]);
    both.act(Act::Answer);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(world.cached(), None);
}

/// Race 2, seen by the one who was overtaken: once its write is acknowledged nobody may see what was there before.
#[tokio::test]
async fn the_end_of_a_superseded_write_takes_the_older_row_with_it() {
    let world = World::new();
    world.put_now("v0").await;
    let tier = &world.tiered.tier;
    let place = tier.cache.place(KEY.as_bytes());
    let mark = tier.begin_write(place, &key());
    let row = Some(Row::new(&key(), "", b"v1", Version(u64::MAX)));
    let end = Ok(Written::Applied { version: Version(u64::MAX), existed: true, row, superseded: true });
    tier.end_write(place, &key(), mark, &end, Fill::IfAllowed);
    assert_eq!(world.cached(), None);
}

/// Race 3. A read between the start of a delete and its commit sees the old row; it must not stay.
#[tokio::test]
async fn a_read_during_a_delete_does_not_keep_the_old_row() {
    let world = World::new();
    world.put_uncached("v1").await;
    let delete = world.delete().await;
    let commit = world.call();
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())), "not committed yet");
    assert_eq!(world.cached(), None, "a write is under way");
    commit.act(Act::Answer);
    delete.await.unwrap().unwrap();
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(None));
}

/// Race 3. Nor may a read that saw the old row then, and ends after the delete: neither the cache nor a later reader gets it.
#[tokio::test]
async fn a_read_that_began_during_a_delete_does_not_keep_the_old_row() {
    let world = World::new();
    world.put_uncached("v1").await;
    let delete = world.delete().await;
    let commit = world.call();
    let read = world.get().await;
    let late = world.call();
    late.act(Act::Perform);
    commit.act(Act::Answer);
    delete.await.unwrap().unwrap();
    let later = world.get().await;
    late.act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.cached(), None);
    world.call().act(Act::Answer);
    assert_eq!(later.await.unwrap(), Ok(None));
}

/// Race 3, its other half: until the commit a cached row is the last committed one.
#[tokio::test]
async fn a_hit_during_a_put_is_the_last_committed_row() {
    let world = World::new();
    world.put_now("v1").await;
    let put = world.put("v2").await;
    let commit = world.call();
    assert_eq!(world.cached(), Some("v1".into()));
    commit.act(Act::Answer);
    put.await.unwrap().unwrap();
    assert_eq!(world.cached(), Some("v2".into()), "switched before the acknowledgement");
}

/// Race 4 (report 002). A put of a key that is cached replaces the cached row.
#[tokio::test]
async fn a_put_on_a_cached_key_replaces_it() {
    let world = World::new();
    world.put_now("v1").await;
    world.put_now("v2").await;
    assert_eq!(world.cached(), Some("v2".into()));
}

/// Race 5 (report 002). What leaves the cache is forgotten, never written back over a newer row.
#[tokio::test]
async fn an_eviction_writes_nothing_to_the_store() {
    let world = World::new();
    world.put_now("v1").await;
    for i in 0..2000 {
        let filler = Key::new(format!("filler{i}").as_bytes()).unwrap();
        let row = Row::new(&filler, "", b"x", Version(1));
        world.tiered.tier.cache.insert(world.tiered.tier.cache.place(row.key()), row.clone());
    }
    assert_eq!(world.cached(), None, "evicted");
    assert!(world.stage.is_quiet());
}

/// Race 6. The connection is lost in the commit, which happened all the same.
#[tokio::test]
async fn after_a_lost_commit_the_cache_does_not_guess() {
    for committed in [false, true] {
        let world = World::new();
        world.put_now("v1").await;
        let put = world.put("v2").await;
        let commit = world.call();
        if committed {
            commit.act(Act::Perform);
        }
        commit.act(Act::Fail(Kind::Unknown));
        assert_eq!(put.await.unwrap(), Err(Kind::Unknown));
        // Refused until the server owns the store again, then what the store says.
        let expected = if committed { "v2" } else { "v1" };
        loop {
            assert_eq!(world.cached(), None, "unknown outcome");
            let mut read = world.get().await;
            if let Some(step) = world.call_unless_ended(&mut read).await {
                step.act(Act::Answer);
                assert_eq!(read.await.unwrap(), Ok(Some(expected.into())));
                break;
            }
            assert_eq!(read.await.unwrap(), Err(Kind::Unavailable));
        }
    }
}

/// Race 6, before the server owns the store again: the statement may still come true, so no read is answered.
#[tokio::test]
async fn a_key_with_an_unknown_outcome_is_not_read() {
    let world = World::new();
    let tier = &world.tiered.tier;
    let place = tier.cache.place(KEY.as_bytes());
    let mark = tier.begin_write(place, &key());
    tier.end_write(place, &key(), mark, &Err(Error::new(Kind::Unknown, "lost")), Fill::IfAllowed);
    let mut refused = world.get().await;
    assert!(world.call_unless_ended(&mut refused).await.is_none());
    assert_eq!(refused.await.unwrap(), Err(Kind::Unavailable));
    tier.store_down();
    tier.store_up();
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(None));
}

/// Race 8. Who comes after an acknowledgement must not be answered by a read that began before it.
#[tokio::test]
async fn a_late_joiner_does_not_get_the_old_row() {
    let world = World::new();
    world.put_uncached("v1").await;
    let early = world.get().await;
    let old_read = world.call();
    old_read.act(Act::Perform);
    world.put_now("v2").await;
    world.tiered.tier.cache.clear_shard(0); // evicted at once: the late reader has to ask
    let late = world.get().await;
    old_read.act(Act::Answer);
    assert_eq!(early.await.unwrap(), Ok(Some("v1".into())));
    world.call().act(Act::Answer);
    assert_eq!(late.await.unwrap(), Ok(Some("v2".into())));
}

/// A read that overlaps a put may see its commit before the cache does; from then on nobody may see the old row.
#[tokio::test]
async fn a_read_that_saw_a_newer_row_takes_the_cached_one_with_it() {
    let world = World::new();
    world.put_uncached("v0").await;
    let floating = world.get().await;
    let read = world.call(); // on its way, its row not read yet
    world.put_now("v1").await;
    let put = world.put("v2").await;
    let commit = world.call();
    commit.act(Act::Perform); // durable and visible, but the worker does not know yet
    read.act(Act::Answer);
    assert_eq!(floating.await.unwrap(), Ok(Some("v2".into())));
    assert_eq!(world.cached(), None, "v1 would be older than what was just answered");
    commit.act(Act::Answer);
    put.await.unwrap().unwrap();
    assert_eq!(world.cached(), Some("v2".into()));
}

/// A touch changes the end of a row, and not its version.
#[tokio::test]
async fn a_read_that_saw_another_end_takes_the_cached_row_with_it() {
    let world = World::new();
    world.put_now("v1").await;
    let tier = &world.tiered.tier;
    let place = tier.cache.place(KEY.as_bytes());
    let row = tier.cache.peek(place, KEY.as_bytes(), Row::clone).unwrap();
    tier.forget_if_older(place, &key(), Some(&row));
    assert_eq!(world.cached(), Some("v1".into()));
    tier.forget_if_older(place, &key(), Some(&row.with_expiry(&key(), Some(Timestamp(1 << 42)))));
    assert_eq!(world.cached(), None);
}

/// Race 10. The store went away and may come back with less: the cache must not be ahead of it.
#[tokio::test]
async fn a_lost_store_takes_the_whole_cache_with_it() {
    let world = World::new();
    world.put_now("v1").await;
    let tier = &world.tiered.tier;
    let place = tier.cache.place(KEY.as_bytes());
    let mark = tier.begin_write(place, &key());
    tier.store_down();
    assert_eq!(world.cached(), None);
    tier.store_up();
    // A write that was under way when the store went is not cached under the next lease.
    let row = Some(Row::new(&key(), "", b"v2", Version(9)));
    let late = Ok(Written::Applied { version: Version(9), existed: true, row, superseded: false });
    tier.end_write(place, &key(), mark, &late, Fill::IfAllowed);
    assert_eq!(world.cached(), None);
    world.put_now("v3").await;
    assert_eq!(world.cached(), Some("v3".into()));
}

/// The same for a read that was under way.
#[tokio::test]
async fn a_fill_from_before_a_loss_does_not_survive_it() {
    let world = World::new();
    world.put_uncached("v1").await;
    let read = world.get().await;
    let old_read = world.call();
    old_read.act(Act::Perform);
    world.tiered.tier.store_down();
    world.tiered.tier.store_up();
    old_read.act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.cached(), None);
}

#[tokio::test]
async fn a_client_that_stops_waiting_leaves_nothing_half_done() {
    let world = World::new();
    let put = world.put("v1").await;
    let commit = world.call();
    put.abort();
    assert!(put.await.unwrap_err().is_cancelled());
    commit.act(Act::Answer);
    world.put_now("v2").await;
    assert_eq!(world.cached(), Some("v2".into()));
    assert!(world.tiered.tier.flights[0].lock().is_idle());
}

#[tokio::test]
async fn a_write_past_its_deadline_is_unknown_and_still_counts_as_under_way() {
    let world = World::with_deadline(Duration::from_millis(20));
    let put = world.put("v1").await;
    let commit = world.call();
    assert_eq!(put.await.unwrap(), Err(Kind::Unknown));
    assert!(!world.tiered.tier.flights[0].lock().is_idle());
    commit.act(Act::Answer);
}

/// A read that begins and ends while the store is being cleared may have seen what is about to go.
#[tokio::test]
async fn a_read_during_a_clear_does_not_keep_the_old_row() {
    let world = World::new();
    world.put_uncached("v1").await;
    let tiered = Arc::clone(&world.tiered);
    let clear = world.spawn(async move { tiered.clear().await }).await;
    let clear_call = world.call();
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.cached(), None);
    clear_call.act(Act::Answer);
    clear.await.unwrap().unwrap();
    assert_eq!(world.cached(), None);
}

/// What a clear ends must not come back through the cache, whichever way it was on.
#[tokio::test]
async fn nothing_that_began_before_a_clear_enters_the_cache_after_it() {
    let world = World::new();
    let put = world.put("old").await;
    world.call().act(Act::Answer);
    put.await.unwrap().unwrap();
    world.tiered.tier.cache.clear_shard(0);
    // A read and a write have done their work in the store, but their answers are still on the way.
    let read = world.get().await;
    let reading = world.call();
    reading.act(Act::Perform);
    let put = world.put("older than the clear").await;
    let writing = world.call();
    writing.act(Act::Perform);
    let tiered = Arc::clone(&world.tiered);
    let cleared = world.spawn(async move { tiered.clear().await }).await;
    // It waits for the write.
    writing.act(Act::Answer);
    put.await.unwrap().unwrap();
    let clearing = world.call();
    assert!(clearing.clears());
    clearing.act(Act::Answer);
    cleared.await.unwrap().unwrap();
    reading.act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("old".into())));
    assert!(world.tiered.cached(KEY.as_bytes(), Row::clone).is_none());
    let after = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(after.await.unwrap(), Ok(None));
    // And what comes later is cached as ever.
    let put = world.put("new").await;
    world.call().act(Act::Answer);
    put.await.unwrap().unwrap();
    assert_eq!(world.tiered.cached(KEY.as_bytes(), Row::clone).unwrap().value(), b"new");
}

#[tokio::test]
async fn a_reader_after_a_clear_does_not_join_a_flight_from_before() {
    let world = World::new();
    let put = world.put("old").await;
    world.call().act(Act::Answer);
    put.await.unwrap().unwrap();
    let tiered = Arc::clone(&world.tiered);
    let cleared = world.spawn(async move { tiered.clear().await }).await;
    let clearing = world.call();
    // Begun while the clear is under way, and served before it takes effect.
    let early = world.get().await;
    let reading = world.call();
    reading.act(Act::Perform);
    clearing.act(Act::Answer);
    cleared.await.unwrap().unwrap();
    let late = world.get().await;
    reading.act(Act::Answer);
    assert_eq!(early.await.unwrap(), Ok(Some("old".into())));
    world.call().act(Act::Answer);
    assert_eq!(late.await.unwrap(), Ok(None));
}

#[tokio::test]
async fn a_preloaded_row_is_in_the_store_and_not_in_the_cache() {
    let world = World::new();
    let put = world.put("cached").await;
    world.call().act(Act::Answer);
    put.await.unwrap().unwrap();
    let tiered = Arc::clone(&world.tiered);
    let preload = world.spawn(async move { tiered.preload(&key(), "", b"stored".to_vec()).await }).await;
    world.call().act(Act::Answer);
    preload.await.unwrap().unwrap();
    assert!(world.tiered.cached(KEY.as_bytes(), Row::clone).is_none());
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("stored".into())));
}

/// A shadow of the real policy must see what the cache sees: reads that look twice, collapse, find nothing or are filled,
/// writes, deletes, a store that goes away, rows too large for the cache.
#[tokio::test]
async fn a_shadow_of_the_real_policy_has_the_real_hit_ratio() {
    for (row, shards) in policy::POLICIES.iter().flat_map(|row| [(row, 1), (row, 4)]) {
        let limits = Limits { entries: 64 * shards, bytes: 30_000 * shards };
        let cache = Cache::new(limits, shards, row).with_shadow_policies(&[row]);
        let store = store::open("memory:").unwrap();
        let tiered = Tiered::start(cache, store, Config::default(), Duration::from_secs(30)).unwrap();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(6);
        let (mut hits, mut misses) = (0, 0);
        for step in 0..4000 {
            // The smaller of two draws: some keys are more popular than others.
            let [one, other] =
                [random.next_u64(), random.next_u64()].map(|draw| draw % (150 * shards as u64));
            let key = one.min(other);
            let key = Key::new(key.to_string().as_bytes()).unwrap();
            match random.next_u64() % 20 {
                0 => drop(tiered.delete(&key).await.unwrap()),
                1..6 => {
                    let bytes = if step % 100 == 0 { 40_000 } else { random.next_u64() as usize % 700 };
                    tiered.put(&key, &vec![0; bytes], Precondition::None).await.unwrap();
                }
                _ if tiered.cached(key.as_bytes(), |_| ()).is_some() => hits += 1,
                _ => {
                    let (first, second) = tokio::join!(tiered.get(&key), tiered.get(&key));
                    for read in [first, second] {
                        *if read.unwrap().served == Served::Hit { &mut hits } else { &mut misses } += 1;
                    }
                }
            }
            if step == 2000 {
                (0..tiered.tier.cache.shard_count()).for_each(|shard| tiered.tier.cache.clear_shard(shard));
            }
        }
        let shadows = tiered.cache().shadow_counts();
        assert_eq!(shadows, [ShadowCounts { policy: row.name, hits, misses }], "{shards} shards");
        assert!(hits > 300 && misses > 300, "{hits} hits, {misses} misses");
        assert_eq!(tiered.meters().misses.get(), misses);
        assert!(tiered.cache().counts().evictions > 100, "{:?}", tiered.cache().counts());
    }
}
