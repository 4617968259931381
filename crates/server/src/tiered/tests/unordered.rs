//! Without batches: writes of one key may overlap, and their order is not known.

use super::*;
use store::Batching;

fn unbatched() -> World {
    let workers = Some(Workers { read: 3, write: 2 });
    let config = Config { batching: Batching::Off, workers, ..Config::default() };
    World::with(config, Duration::from_secs(30))
}

/// With batching off two writes of a key end in any order, and only the store knows which of them it holds.
#[tokio::test]
async fn unordered_writes_that_overlap_leave_the_cache_empty() {
    let world = unbatched();
    let first = world.put("first").await;
    let first_call = world.call();
    let second = world.put("second").await;
    let second_call = world.call();
    // The later one overtakes the earlier on its way into the store, and on its way back.
    second_call.act(Act::Answer);
    second.await.unwrap().unwrap();
    first_call.act(Act::Answer);
    first.await.unwrap().unwrap();
    assert!(world.tiered.cached(KEY.as_bytes(), Row::clone).is_none());
    let read = world.get().await;
    world.call().act(Act::Answer);
    assert_eq!(read.await.unwrap(), Ok(Some("second".into())));
    // Alone again, a write is cached.
    let third = world.put("third").await;
    world.call().act(Act::Answer);
    third.await.unwrap().unwrap();
    assert_eq!(world.tiered.cached(KEY.as_bytes(), Row::clone).unwrap().value(), b"third");
}

/// Nor may the one that the store took first enter the cache because its answer comes last.
#[tokio::test]
async fn an_unordered_write_whose_answer_is_late_stays_out_of_the_cache() {
    let world = unbatched();
    let put = world.put("first").await;
    let put_call = world.call();
    put_call.act(Act::Perform);
    let delete = world.delete().await;
    world.call().act(Act::Answer);
    delete.await.unwrap().unwrap();
    put_call.act(Act::Answer);
    put.await.unwrap().unwrap();
    assert_eq!(world.cached(), None);
}

/// With batching off two reads of a key end in any order, too: one that joins the later of them must not get less than what the
/// earlier one has shown.
#[tokio::test]
async fn unordered_reads_are_not_joined_once_a_write_has_begun() {
    let world = unbatched();
    world.put_uncached("v1").await;
    let earlier = world.get().await;
    let floating = world.call(); // on its way, its row not read yet
    world.put_uncached("v2").await;
    let later = world.get().await;
    let overtaken = world.call();
    overtaken.act(Act::Perform);
    let put = world.put("v3").await;
    let commit = world.call();
    commit.act(Act::Perform); // durable and visible, but the worker does not know yet
    floating.act(Act::Answer);
    assert_eq!(earlier.await.unwrap(), Ok(Some("v3".into())));
    let mut last = world.get().await;
    overtaken.act(Act::Answer);
    assert_eq!(later.await.unwrap(), Ok(Some("v2".into())));
    if let Some(call) = world.call_unless_ended(&mut last).await {
        call.act(Act::Answer);
    }
    assert_eq!(last.await.unwrap(), Ok(Some("v3".into())));
    commit.act(Act::Answer);
    put.await.unwrap().unwrap();
}

#[tokio::test]
async fn unordered_writes_take_no_conditions() {
    let world = unbatched();
    let put = world.tiered.put(&key(), b"x", Precondition::Absent).await;
    assert!(matches!(put, Err(WriteError::Store(error)) if error.kind() == Kind::Rejected));
    // It brought back a row that was deleted meanwhile.
    let touch = Intent::Touch(None);
    let touch = world.tiered.write(&key(), touch, WriteTerms::default(), Fill::IfAllowed).await;
    assert!(matches!(touch, Err(WriteError::Store(error)) if error.kind() == Kind::Rejected));
}
