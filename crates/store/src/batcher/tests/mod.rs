//! What the workers promise, against a store that does as the test says.

mod bounds;
mod events;
mod leases;

use super::*;
use crate::contract::scripted::{Act, Scripted, Stage, Step};
use crate::{Answer, Lease, Part, Session};
use async_trait::async_trait;
use std::sync::mpsc;

fn key(name: &str) -> Key {
    Key::new(name.as_bytes()).unwrap()
}

fn start() -> (Batcher, Stage) {
    let (store, stage) = Scripted::new();
    (Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap(), stage)
}

type Answered = mpsc::Receiver<(String, Result<Written, Error>)>;

/// Queues writes: `a=1` puts, `a-` deletes, `a+1` puts if absent. Their answers come out of the receiver.
fn write(batcher: &Batcher, requests: &str) -> Answered {
    let (sender, receiver) = mpsc::channel();
    for text in requests.split_whitespace() {
        let (name, rest) = text.split_at(1);
        let key = key(name);
        let value = &rest.as_bytes()[1..];
        let row = || Row::new(&key, "", value, Version::default());
        let intent = if rest.starts_with('-') { Intent::Delete } else { Intent::Put(row()) };
        let condition = if rest.starts_with('+') { Precondition::Absent } else { Precondition::None };
        let (sender, label) = (sender.clone(), text.to_owned());
        let reply = Reply::new(move |result, _| drop(sender.send((label, result))));
        batcher.write(WriteRequest { key, intent, condition, idempotency: None, reply });
    }
    receiver
}

fn applied(answers: &Answered) -> (String, bool, bool) {
    match answers.recv().unwrap() {
        (label, Ok(Written::Applied { existed, superseded, .. })) => (label, existed, superseded),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_queues_while_a_batch_is_in_flight_is_the_next_batch() {
    let (batcher, stage) = start();
    let first = write(&batcher, "a=1");
    let in_flight = stage.next();
    assert_eq!(in_flight.writes(), ["a=1"]);
    let rest = write(&batcher, "c=1 b=1 c=2 c=3");
    in_flight.act(Act::Answer);
    assert_eq!(applied(&first), ("a=1".into(), false, false));
    let batch = stage.next();
    assert_eq!(batch.writes(), ["b=1", "c=3"], "sorted, and the last of a key wins");
    batch.act(Act::Answer);
    assert_eq!(applied(&rest), ("b=1".into(), false, false));
    assert_eq!(applied(&rest), ("c=1".into(), false, true));
    assert_eq!(applied(&rest), ("c=2".into(), true, true));
    assert_eq!(applied(&rest), ("c=3".into(), true, false));
}

/// A row with a greater version is of somebody else: what queues for a key is committed in order.
#[test]
fn a_write_that_finds_a_newer_row_is_refused() {
    let (store, stage) = Scripted::new();
    store.hold(Row::new(&key("a"), "", b"theirs", Version::first_of(Version::EPOCH_MAX)));
    let batcher = Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap();
    let answers = write(&batcher, "a=1");
    stage.next().act(Act::Answer);
    let (_, refused) = answers.recv().unwrap();
    assert_eq!(refused.unwrap_err().kind(), Kind::Rejected);
}

/// A commit of one row for each of them would be the speed of the disk.
#[test]
fn sixty_four_writes_of_one_key_are_one_row_for_the_store() {
    let (batcher, stage) = start();
    let first = write(&batcher, "a=0");
    let in_flight = stage.next();
    let rest: String = (1..=64).map(|number| format!("a={number} ")).collect();
    let rest = write(&batcher, &rest);
    in_flight.act(Act::Answer);
    applied(&first);
    let batch = stage.next();
    assert_eq!(batch.writes(), ["a=64"]);
    batch.act(Act::Answer);
    let answers: Vec<_> = (1..=64).map(|_| applied(&rest)).collect();
    assert!(answers.iter().all(|(_, existed, _)| *existed));
    assert_eq!(answers.iter().filter(|(_, _, superseded)| !superseded).count(), 1);
    assert!(stage.is_quiet());
}

#[test]
fn of_two_creations_in_one_batch_one_fails_its_precondition() {
    let (batcher, stage) = start();
    let hold = write(&batcher, "x=1");
    let in_flight = stage.next();
    let rest = write(&batcher, "a+1 a+2 a- a+3");
    in_flight.act(Act::Answer);
    applied(&hold);
    stage.next().act(Act::Answer); // the read that decides the preconditions
    let batch = stage.next();
    assert_eq!(batch.writes(), ["a=3"]);
    batch.act(Act::Answer);
    assert_eq!(applied(&rest), ("a+1".into(), false, true));
    assert!(matches!(rest.recv().unwrap().1, Ok(Written::ConditionFailed(Some(_)))));
    assert_eq!(applied(&rest), ("a-".into(), true, true));
    assert_eq!(applied(&rest), ("a+3".into(), false, false));
}

#[test]
fn a_write_the_store_refuses_fails_alone() {
    let (batcher, stage) = start();
    let hold = write(&batcher, "x=1");
    let in_flight = stage.next();
    let rest = write(&batcher, "a=1 b=1");
    in_flight.act(Act::Answer);
    applied(&hold);
    stage.next().act(Act::Fail(Kind::Rejected));
    let single = stage.next();
    assert_eq!(single.writes(), ["a=1"]);
    single.act(Act::Fail(Kind::Rejected));
    stage.next().act(Act::Answer);
    assert!(matches!(rest.recv().unwrap().1, Err(error) if error.kind() == Kind::Rejected));
    assert_eq!(applied(&rest), ("b=1".into(), false, false));
}

/// Both were refused because one of them is too large.
#[test]
fn of_two_writes_of_a_key_the_store_refuses_one_alone() {
    let (batcher, stage) = start();
    let hold = write(&batcher, "x=1");
    let in_flight = stage.next();
    let rest = write(&batcher, "a=1 b=1 a=2 a+3 b=2");
    in_flight.act(Act::Answer);
    applied(&hold);
    let next = |writes: &[&str], act| {
        let step = stage.next();
        assert_eq!(step.writes(), writes);
        step.act(act);
    };
    let refused = Act::Fail(Kind::Rejected);
    // The look at the condition comes before each write of its key that has one.
    next(&[], Act::Answer);
    next(&["a=2", "b=2"], refused);
    next(&[], Act::Answer);
    next(&["a=2"], refused);
    next(&["a=1"], Act::Answer);
    assert_eq!(applied(&rest), ("a=1".into(), false, false));
    next(&["a=2"], refused);
    assert!(
        matches!(rest.recv().unwrap(), (label, Err(error)) if label == "a=2" && error.kind() == Kind::Rejected)
    );
    next(&[], Act::Answer);
    next(&[], Act::Answer); // nothing to write
    assert!(matches!(rest.recv().unwrap(), (label, Ok(Written::ConditionFailed(Some(_)))) if label == "a+3"));
    next(&["b=2"], Act::Answer);
    assert_eq!(applied(&rest), ("b=1".into(), false, true));
    assert_eq!(applied(&rest), ("b=2".into(), true, false));
}

/// It was decided by a row that the clear removed: applied, and there after the clear.
#[test]
fn a_write_whose_condition_holds_is_not_parted_from_it_by_a_clear() {
    let (store, stage) = Scripted::new();
    store.hold(Row::new(&key("a"), "", b"old", Version(1)));
    let batcher = Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap();
    let (sender, written) = mpsc::channel();
    batcher.write(WriteRequest {
        key: key("a"),
        intent: Intent::Put(Row::new(&key("a"), "", b"new", Version::default())),
        condition: Precondition::Present,
        idempotency: None,
        reply: Reply::new(move |result, _| drop(sender.send(result))),
    });
    let look = stage.next();
    assert_eq!(look.reads(), ["a"]);
    look.act(Act::Perform);
    let (sender, cleared) = mpsc::channel();
    batcher.clear(Reply::new(move |done, _| drop(sender.send(done))));
    // Its thread and its session take a moment; where it waits, it comes only after the write.
    let deadline = Instant::now() + Duration::from_millis(200);
    let mut early = None;
    while early.is_none() && Instant::now() < deadline {
        early = stage.try_next();
    }
    if let Some(clearing) = &early {
        clearing.act(Act::Answer);
    }
    look.act(Act::Answer);
    stage.next().act(Act::Answer);
    assert!(matches!(written.recv().unwrap(), Ok(Written::Applied { existed: true, .. })));
    if early.is_none() {
        let clearing = stage.next();
        assert!(clearing.clears());
        clearing.act(Act::Answer);
    }
    cleared.recv().unwrap().unwrap();
    let (sender, row) = mpsc::channel();
    batcher.read(key("a"), Reply::new(move |row, _| drop(sender.send(row))));
    stage.next().act(Act::Answer);
    assert_eq!(row.recv().unwrap().unwrap(), None, "it was written before the clear");
}

#[test]
fn a_batch_rolled_back_is_tried_again() {
    let (batcher, stage) = start();
    let answers = write(&batcher, "a=1");
    stage.next().act(Act::Fail(Kind::Retry));
    stage.next().act(Act::Answer);
    assert_eq!(applied(&answers), ("a=1".into(), false, false));
}

#[test]
fn a_lost_session_fails_its_batch_and_the_store_is_acquired_again() {
    let (batcher, stage) = start();
    let answers = write(&batcher, "a=1");
    stage.next().act(Act::Fail(Kind::Unknown));
    assert!(matches!(answers.recv().unwrap().1, Err(error) if error.kind() == Kind::Unknown));
    // Until the store is back writes are refused; then they are served, under a later epoch.
    loop {
        let answers = write(&batcher, "a=2");
        match stage.next_or(&answers) {
            Ok(step) => {
                step.act(Act::Answer);
                let version = match answers.recv().unwrap().1 {
                    Ok(Written::Applied { version, .. }) => version,
                    other => panic!("{other:?}"),
                };
                assert_eq!(version.epoch(), 2);
                return;
            }
            Err((_, refused)) => assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable),
        }
    }
}

/// A store whose first lease fails and whose next one goes on until the semaphore is closed.
struct SlowToAcquire {
    store: Scripted,
    leases: AtomicUsize,
    end: Arc<tokio::sync::Semaphore>,
    clock: Arc<Clock>,
}

#[async_trait]
impl Store for SlowToAcquire {
    async fn acquire(&self, _part: Part) -> Answer<Lease> {
        if self.leases.fetch_add(1, Relaxed) > 0 {
            // It is never given: there are no permits.
            let _ = self.end.acquire().await;
        }
        Err(Error::new(Kind::Unavailable, "not yet"))
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.store.connect(epoch).await
    }

    fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }

    fn workers(&self) -> Workers {
        Workers { read: 1, write: 0 }
    }
}

/// Readiness was answered, and the next read refused: the owner thread had announced the store, but had not come to wake the
/// worker, which took the request first. With a replica such a read is answered with an old value.
#[test]
fn who_has_seen_that_the_store_is_up_is_not_refused() {
    let (store, stage) = Scripted::new();
    let end = Arc::new(tokio::sync::Semaphore::new(0));
    let clock = Arc::default();
    let store = SlowToAcquire { store, leases: AtomicUsize::new(0), end: Arc::clone(&end), clock };
    let config = Config { role: Role::Replica, ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    let (sender, receiver) = mpsc::channel();
    let read = || {
        let sender = sender.clone();
        batcher
            .read(key("a"), Reply::new(move |row, _| drop(sender.send(row.map_err(|error| error.kind())))));
    };
    read();
    assert_eq!(receiver.recv().unwrap(), Err(Kind::Unavailable));
    // Announced, and nobody woken.
    batcher.shared.status.send_if_modified(|status| {
        *status = Status::Up(1);
        false
    });
    read();
    match stage.next_or(&receiver) {
        Ok(step) => step.act(Act::Answer),
        Err(refused) => panic!("{refused:?}"),
    }
    assert_eq!(receiver.recv().unwrap(), Ok(None));
    end.close();
}

/// An end that is counted from 1970 is past.
#[tokio::test]
async fn before_the_first_lease_nobody_knows_the_time() {
    let (store, _stage) = Scripted::new();
    let end = Arc::new(tokio::sync::Semaphore::new(0));
    let clock = Arc::new(Clock::default());
    let leases = AtomicUsize::new(0);
    let store = SlowToAcquire { store, leases, end: Arc::clone(&end), clock: Arc::clone(&clock) };
    let config = Config { is_standby: true, ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    assert_eq!(batcher.time().await.unwrap_err().kind(), Kind::Unavailable);
    // A store that says it without a new lease.
    clock.advance_to(Timestamp(1 << 50));
    assert!(batcher.time().await.unwrap() >= Timestamp(1 << 50));
    end.close();
}

#[test]
fn too_long_a_queue_is_refused_at_once() {
    let (store, stage) = Scripted::new();
    let config = Config { queue_requests: 2, ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    let first = write(&batcher, "a=1");
    let in_flight = stage.next();
    let rest = write(&batcher, "b=1 c=1 d=1");
    let (label, refused) = rest.recv().unwrap();
    assert_eq!((label.as_str(), refused.unwrap_err().kind()), ("d=1", Kind::Overloaded));
    in_flight.act(Act::Answer);
    applied(&first);
    stage.next().act(Act::Answer);
    assert_eq!(batcher.meters().write.shed.get(), 1);
}

/// What waited behind a locked table was answered as unknown, though it was never sent.
#[test]
fn what_waits_too_long_is_refused_while_the_worker_is_busy() {
    // The worker may take both together; a product that always refused would never get further.
    for _ in 0..20 {
        let (store, stage) = Scripted::new();
        let config = Config { queue_wait_max: Duration::from_millis(300), ..Config::default() };
        let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
        let refused = |answers: &Answered| {
            let (label, refused) = answers.recv_timeout(Duration::from_secs(30)).expect("an answer");
            assert_eq!(refused.unwrap_err().kind(), Kind::Overloaded, "{label}");
            label
        };
        let first = write(&batcher, "a=1");
        let in_flight = stage.next();
        let behind = write(&batcher, "a=2");
        assert_eq!(refused(&behind), "a=2");
        // The same of what the worker has taken already, but not sent: so large that nothing else is in its batch.
        let large = format!("a={}", "x".repeat(1 << 20));
        let both = write(&batcher, &format!("{large} b=1"));
        in_flight.act(Act::Answer);
        applied(&first);
        let Ok(in_flight) = stage.next_or(&both) else { continue };
        assert_eq!(in_flight.writes(), [large.as_str()]);
        assert_eq!(refused(&both), "b=1");
        in_flight.act(Act::Answer);
        assert_eq!(applied(&both).0, large);
        assert_eq!(batcher.meters().write.shed.get(), 2);
        return;
    }
    panic!("the two were never taken apart");
}

/// A store whose leases are lost at once; when they were acquired.
struct LosesLeases {
    store: Scripted,
    acquired: mpsc::Sender<Instant>,
}

#[async_trait]
impl Store for LosesLeases {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        self.acquired.send(Instant::now()).unwrap_or_default();
        let lease = self.store.acquire(part).await?;
        Ok(Lease { lost: Box::pin(std::future::ready("as the test says".to_owned())), ..lease })
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.store.connect(epoch).await
    }

    fn workers(&self) -> Workers {
        self.store.workers()
    }
}

/// Each costs an epoch, and there were two a second of them.
#[test]
fn leases_that_are_lost_at_once_become_fewer_and_fewer() {
    let (acquired, times) = mpsc::channel();
    let store = LosesLeases { store: Scripted::new().0, acquired };
    let batcher = Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap();
    let times: Vec<Instant> = times.iter().take(8).collect();
    assert!(times[7] - times[6] >= Duration::from_secs(2), "{times:?}");
    drop(batcher);
}

#[test]
fn equal_reads_in_one_batch_ask_once_and_are_all_answered() {
    let (batcher, stage) = start();
    let (sender, receiver) = mpsc::channel();
    let read = |name: &str| {
        let (sender, label) = (sender.clone(), name.to_owned());
        batcher.read(
            key(name),
            Reply::new(move |row: Result<Option<Row>, _>, _| {
                drop(sender.send((label, row.unwrap().is_some())));
            }),
        );
    };
    let created = write(&batcher, "b=1");
    stage.next().act(Act::Answer);
    applied(&created);
    read("x");
    let in_flight = stage.next();
    ["b", "a", "b"].into_iter().for_each(read);
    in_flight.act(Act::Answer);
    let batch = stage.next();
    assert_eq!(batch.reads(), ["a", "b"]);
    batch.act(Act::Answer);
    let mut answers: Vec<_> = receiver.iter().take(4).collect();
    answers.sort();
    let expected =
        [("a", false), ("b", true), ("b", true), ("x", false)].map(|(name, found)| (name.to_owned(), found));
    assert_eq!(answers, expected);
}

/// A clear that may happen yet would take what is acknowledged meanwhile with it: the store counts as lost until a new
/// lease has outlasted it.
#[test]
fn a_clear_of_which_nobody_knows_costs_the_lease() {
    let (store, stage) = Scripted::new();
    let config = Config { queue_wait_max: Duration::from_secs(1), ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    let (sender, receiver) = mpsc::channel();
    batcher.clear(Reply::new(move |done, _| drop(sender.send(done))));
    let clearing = stage.next();
    assert!(clearing.clears());
    let mut status = batcher.shared.status.subscribe();
    let first = status.borrow_and_update().clone();
    // Another waits for it, and is refused in time.
    let (second, refused) = mpsc::channel();
    batcher.clear(Reply::new(move |done, _| drop(second.send(done))));
    assert_eq!(refused.recv().unwrap().unwrap_err().kind(), Kind::Overloaded);
    clearing.act(Act::Fail(Kind::Unknown));
    assert_eq!(receiver.recv().unwrap().unwrap_err().kind(), Kind::Unknown);
    let is_new = |now: &Status| matches!(now, Status::Up(_)) && *now != first;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async {
            tokio::time::timeout(Duration::from_secs(30), status.wait_for(is_new)).await.unwrap()
        })
        .unwrap();
}

/// Two workers for writes.
fn start_two() -> (Batcher, Stage) {
    let (store, stage) = Scripted::new();
    let config = Config { workers: Some(Workers { read: 1, write: 2 }), ..Config::default() };
    (Batcher::start(Box::new(store), config, Arc::new(())).unwrap(), stage)
}

/// Two letters whose keys are in a queue.
fn letters(batcher: &Batcher, queue: usize) -> [char; 2] {
    let is_there = |letter: &char| batcher.queue_of(&batcher.writes, &key(&letter.to_string())) == queue;
    let mut letters = ('a'..='z').filter(is_there);
    [letters.next().unwrap(), letters.next().unwrap()]
}

/// Answers as a disk with slow flushes does: that time is the worker's measure.
fn slowly(step: &Step) {
    std::thread::sleep(worker::SLOW_FLUSH * 2);
    step.act(Act::Answer);
}

/// Lets the second worker commit slowly, and in company, until it would hand its queue over: after the commit that is in
/// flight now, if that is slow too.
fn about_to_hand_over(batcher: &Batcher, stage: &Stage) -> Step {
    let [a, b] = letters(batcher, 1);
    write(batcher, &format!("{a}=0"));
    let mut in_flight = stage.next();
    for _ in 0..worker::SLOW_IN_A_ROW {
        write(batcher, &format!("{a}=0 {b}=0"));
        slowly(&in_flight);
        in_flight = stage.next();
    }
    in_flight
}

/// What the first worker had taken of another's queue stayed with it when the session was lost. If the store was back before
/// it looked, the key was in its next batch and, from the queue that was given back, in one of the other worker's.
#[test]
fn a_session_lost_with_anothers_queue_in_hand_puts_no_key_into_two_batches() {
    let (batcher, stage) = start_two();
    let in_flight = about_to_hand_over(&batcher, &stage);
    let [a, b] = letters(&batcher, 1);
    // So large that nothing else is in its batch.
    let large = format!("{a}={}", "x".repeat(1 << 20));
    let first = write(&batcher, &format!("{large} {b}=1"));
    slowly(&in_flight);
    let in_flight = stage.next();
    assert_eq!(in_flight.writes(), [large.as_str()]);
    assert!(batcher.writes.is_handed_over(1));
    let second = write(&batcher, &format!("{b}=2"));
    // Lost and back before any worker has looked.
    batcher.shared.status.send_replace(Status::Up(2));
    in_flight.act(Act::Answer);
    assert_eq!(applied(&first).0, large);
    // The other worker sends both together, unless it had not heard of the loss either: then it refuses what it just took.
    match stage.next_or(&second) {
        Ok(in_flight) => {
            assert_eq!(in_flight.writes(), [format!("{b}=2")]);
            in_flight.act(Act::Answer);
            assert_eq!(applied(&first).0, format!("{b}=1"));
            assert_eq!(applied(&second).0, format!("{b}=2"));
        }
        Err((_, refused)) => {
            assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable);
            let (label, refused) = first.try_recv().expect("an answer before that of the second");
            assert_eq!((label, refused.unwrap_err().kind()), (format!("{b}=1"), Kind::Unavailable));
        }
    }
    assert!(stage.is_quiet());
}

#[test]
fn a_session_lost_while_one_worker_serves_all_leaves_nobody_unanswered() {
    let (batcher, stage) = start_two();
    let in_flight = about_to_hand_over(&batcher, &stage);
    let ([a, b], [c, d]) = (letters(&batcher, 1), letters(&batcher, 0));
    let first = write(&batcher, &format!("{a}=1"));
    slowly(&in_flight);
    let in_flight = stage.next();
    let rest = write(&batcher, &format!("{a}=2 {b}=2 {c}=2 {d}=2"));
    in_flight.act(Act::Fail(Kind::Unknown));
    assert_eq!(first.recv().unwrap().1.unwrap_err().kind(), Kind::Unknown);
    for _ in 0..4 {
        assert_eq!(rest.recv().unwrap().1.unwrap_err().kind(), Kind::Unavailable);
    }
    // Each worker has its queue again when the store is back: both are in flight at the same time.
    let in_flight = [a, c].map(|letter| {
        loop {
            let answers = write(&batcher, &format!("{letter}=3"));
            if let Ok(step) = stage.next_or(&answers) {
                return (step, answers);
            }
        }
    });
    for (step, answers) in in_flight {
        step.act(Act::Answer);
        applied(&answers);
    }
}

/// A commit that ended after the store was lost could hand its queue over to a first worker that served nothing: what came then
/// waited for the next lease.
#[test]
fn what_is_queued_after_a_late_hand_over_is_refused_while_the_store_is_lost() {
    let (batcher, stage) = start_two();
    let in_flight = about_to_hand_over(&batcher, &stage);
    let [a, _] = letters(&batcher, 1);
    let until_open = |sessions| {
        while batcher.shared.sessions.load(Relaxed) != sessions {
            std::thread::yield_now();
        }
    };
    batcher.shared.claimed.send_replace(None);
    batcher.shared.status.send_replace(Status::Down("as the test says".into()));
    until_open(1);
    slowly(&in_flight);
    until_open(0);
    let (_, refused) = write(&batcher, &format!("{a}=1")).recv().unwrap();
    assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable);
}

/// A store worker handed its queue to a first worker that had ended: what waited there was never answered.
#[test]
fn what_is_queued_when_the_first_worker_has_ended_is_answered() {
    let (batcher, stage) = start_two();
    let in_flight = about_to_hand_over(&batcher, &stage);
    let [a, b] = letters(&batcher, 1);
    let queued = write(&batcher, &format!("{a}=1 {b}=1"));
    // As dropping it begins.
    batcher.writes.close();
    let is_first = |thread: &&JoinHandle<()>| thread.thread().name() == Some("weir-write-0");
    let first = batcher.threads.iter().find(is_first).unwrap();
    while !first.is_finished() {
        std::thread::yield_now();
    }
    slowly(&in_flight);
    let in_flight = stage.next();
    assert_eq!(in_flight.writes(), [format!("{a}=1"), format!("{b}=1")]);
    in_flight.act(Act::Answer);
    applied(&queued);
    applied(&queued);
}

/// A store worker that had its queue back remembered the slow flushes of before: a single slow commit, and it was gone again.
#[test]
fn a_worker_that_has_its_queue_back_needs_as_many_slow_commits_to_hand_it_over() {
    let (batcher, stage) = start_two();
    let in_flight = about_to_hand_over(&batcher, &stage);
    let ([a, b], [c, _]) = (letters(&batcher, 1), letters(&batcher, 0));
    let alone = write(&batcher, &format!("{a}=1"));
    slowly(&in_flight);
    // The first worker commits it, in no company, and so gives the queue back, with two to share a commit.
    let in_flight = stage.next();
    let two = write(&batcher, &format!("{a}=2 {b}=2"));
    in_flight.act(Act::Answer);
    applied(&alone);
    let in_flight = stage.next();
    assert_eq!(in_flight.writes(), [format!("{a}=2"), format!("{b}=2")]);
    let last = write(&batcher, &format!("{a}=3"));
    slowly(&in_flight);
    applied(&two);
    // Both workers have a batch in flight now, each of its own queue.
    let in_flight = stage.next();
    assert_eq!(in_flight.writes(), [format!("{a}=3")]);
    let other = write(&batcher, &format!("{c}=3"));
    let beside = stage.next();
    assert_eq!(beside.writes(), [format!("{c}=3")]);
    in_flight.act(Act::Answer);
    beside.act(Act::Answer);
    applied(&last);
    applied(&other);
}
