//! A store that other servers write, too, or that another one may have taken over.

use super::*;
use store::Writers;

fn shared(row: Option<Row>) -> World {
    world(|store| {
        row.into_iter().for_each(|row| store.hold(row));
        store.written_by(Writers::Servers)
    })
}

fn world(prepare: impl FnOnce(Scripted) -> Scripted) -> World {
    let (store, stage) = Scripted::new();
    let cache = Cache::new(Limits { entries: 1000, bytes: 1 << 20 }, 1, policy::find("lru").unwrap());
    let (store, config) = (Box::new(prepare(store)), Config::default());
    World { tiered: Arc::new(Tiered::start(cache, store, config, Duration::from_secs(30)).unwrap()), stage }
}

/// A read while `early` waits for `first` makes a call of its own.
async fn asks_on_its_own(world: &World, early: Read, first: Step) {
    let mut late = world.get().await;
    first.act(Act::Answer);
    assert_eq!(early.await.unwrap(), Ok(None));
    let second = world.call_unless_ended(&mut late).await;
    second.expect("a read of its own").act(Act::Answer);
    assert_eq!(late.await.unwrap(), Ok(None));
}

/// Its answer may be older than a write of the server that took the store over.
#[tokio::test]
async fn a_read_joins_no_earlier_one_once_the_lease_is_in_doubt() {
    let world = world(Scripted::unconfirmed);
    let early = world.get().await;
    let first = world.call();
    while world.tiered.batcher.hits_are_valid() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    asks_on_its_own(&world, early, first).await;
}

/// Another server's write may have been acknowledged after the earlier read saw the row.
#[tokio::test]
async fn a_read_of_a_shared_store_joins_no_earlier_one() {
    let world = shared(None);
    let early = world.get().await;
    let first = world.call();
    first.act(Act::Perform);
    asks_on_its_own(&world, early, first).await;
}

#[tokio::test]
async fn nothing_of_a_shared_store_is_cached() {
    let world = shared(None);
    let put = world.put("v1").await;
    world.call().act(Act::Answer);
    put.await.unwrap().unwrap();
    assert_eq!(world.cached(), None);
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!((read.await.unwrap(), world.cached()), (Ok(Some("v1".into())), None));
}

/// There is no later lease that would settle it: the store says what is so, and goes on.
#[tokio::test]
async fn an_unknown_outcome_in_a_shared_store_stops_nothing() {
    let world = shared(None);
    let put = world.put("v1").await;
    let call = world.call();
    call.act(Act::Perform);
    call.act(Act::Fail(Kind::Unknown));
    assert_eq!(put.await.unwrap(), Err(Kind::Unknown));
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("v1".into())));
    assert_eq!(world.tiered.store().status(), Status::Up(1));
}

#[tokio::test]
async fn a_write_takes_a_version_greater_than_that_of_a_server_whose_clock_is_ahead() {
    let ahead = Version(u64::MAX >> 2);
    let world = shared(Some(Row::new(&key(), "", b"theirs", ahead)));
    let put = world.put("ours").await;
    for is_read in [false, true, false] {
        let call = world.call();
        assert_eq!(!call.reads().is_empty(), is_read, "{:?}", call.writes());
        call.act(Act::Answer);
    }
    assert!(put.await.unwrap().unwrap() > ahead);
}
