//! How long a request waits, and how much is in one batch, against a store that does as the test says.

use super::*;
use crate::batcher::worker::RETRIES_MAX;

/// No machine stands still for so long.
const PATIENCE: Duration = Duration::from_secs(30);

fn over(store: Scripted) -> Batcher {
    Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap()
}

/// What is not sent after a second is refused.
fn start_in_haste() -> (Batcher, Stage) {
    let (store, stage) = Scripted::new();
    let config = Config { queue_wait_max: Duration::from_secs(1), ..Config::default() };
    (Batcher::start(Box::new(store), config, Arc::new(())).unwrap(), stage)
}

fn is_refused(answers: &Answered) -> bool {
    let (_, answer) = answers.recv_timeout(PATIENCE).expect("an answer");
    answer.is_err_and(|error| error.kind() == Kind::Overloaded)
}

type Outcome = mpsc::Receiver<Result<AtomicOutcome, Error>>;

fn put_atomically(batcher: &Batcher, name: &str) -> Outcome {
    let (sender, outcome) = mpsc::channel();
    let put = Intent::Put(Row::new(&key(name), "", b"atomic", Version::default()));
    let operation = AtomicOperation { key: key(name), condition: Precondition::None, intent: Some(put) };
    batcher.write_atomically(vec![operation], Reply::new(move |result, _| drop(sender.send(result))));
    outcome
}

fn clear(batcher: &Batcher) -> mpsc::Receiver<Result<(), Error>> {
    let (sender, cleared) = mpsc::channel();
    batcher.clear(Reply::new(move |done, _| drop(sender.send(done))));
    cleared
}

/// They were answered as unknown, though they were never sent.
#[test]
fn writes_that_wait_for_an_atomic_batch_or_a_clear_are_refused_in_time() {
    let (batcher, stage) = start_in_haste();
    let outcome = put_atomically(&batcher, "a");
    stage.next().act(Act::Answer); // the look at the row
    let commit = stage.next();
    assert!(is_refused(&write(&batcher, "b=1")));
    commit.act(Act::Answer);
    assert!(outcome.recv().unwrap().is_ok());
    let cleared = clear(&batcher);
    let clearing = stage.next();
    assert!(clearing.clears());
    assert!(is_refused(&write(&batcher, "b=2")));
    clearing.act(Act::Answer);
    cleared.recv().unwrap().unwrap();
    // Nor does a clear wait for ever, and all writes behind it.
    let written = write(&batcher, "b=3");
    let commit = stage.next();
    assert_eq!(commit.writes(), ["b=3"]);
    let refused = clear(&batcher).recv_timeout(PATIENCE).expect("an answer");
    assert_eq!(refused.unwrap_err().kind(), Kind::Overloaded);
    commit.act(Act::Answer);
    applied(&written);
    assert!(stage.is_quiet());
}

/// They were answered as unknown, though they were never sent.
#[test]
fn parts_of_a_batch_that_take_too_long_are_refused_in_time() {
    let (batcher, stage) = start_in_haste();
    let hold = write(&batcher, "x=1");
    let in_flight = stage.next();
    let batch = write(&batcher, "a=1 b=1");
    in_flight.act(Act::Answer);
    applied(&hold);
    stage.next().act(Act::Fail(Kind::Rejected));
    let first = stage.next();
    assert_eq!(first.writes(), ["a=1"]);
    // Two seconds later.
    ["c=1", "d=1"].into_iter().for_each(|later| assert!(is_refused(&write(&batcher, later))));
    first.act(Act::Answer);
    assert_eq!(applied(&batch), ("a=1".into(), false, false));
    assert!(is_refused(&batch));
    assert!(stage.is_quiet());
}

/// The second was in one batch with the first, so nobody refused it, and it was answered as unknown.
#[test]
fn an_atomic_batch_that_waits_for_another_is_refused_in_time() {
    let (batcher, stage) = start_in_haste();
    // By those before it is estimated how many go together.
    for _ in 0..25 {
        let (sender, page) = mpsc::channel();
        let listing = Listing { from: Vec::new(), until: None, limit: 9, now: Timestamp(0), expired: false };
        batcher.list(listing, false, Reply::new(move |page, _| drop(sender.send(page))));
        page.recv().unwrap().unwrap();
    }
    let first = put_atomically(&batcher, "a");
    let look = stage.next();
    let [second, third] = ["b", "c"].map(|name| put_atomically(&batcher, name));
    look.act(Act::Answer);
    stage.next().act(Act::Answer);
    assert!(first.recv().unwrap().is_ok());
    let look = stage.next();
    assert_eq!(look.reads(), ["b"]);
    let refused = third.recv_timeout(PATIENCE).expect("an answer");
    assert_eq!(refused.unwrap_err().kind(), Kind::Overloaded);
    look.act(Act::Answer);
    stage.next().act(Act::Answer);
    assert!(second.recv().unwrap().is_ok());
    assert!(stage.is_quiet());
}

/// All reads of a batch failed where one row was damaged.
#[test]
fn a_read_that_the_store_refuses_fails_alone() {
    let (batcher, stage) = start();
    let (sender, receiver) = mpsc::channel();
    let read = |name: &str| {
        let (sender, label) = (sender.clone(), name.to_owned());
        let done = move |row: Result<Option<Row>, Error>, _| {
            drop(sender.send((label, row.err().map(|error| error.kind()))));
        };
        batcher.read(key(name), Reply::new(done));
    };
    read("x");
    let in_flight = stage.next();
    ["b", "a", "c", "b"].into_iter().for_each(read);
    in_flight.act(Act::Answer);
    let refused = Act::Fail(Kind::Rejected);
    for (names, act) in
        [(&["a", "b", "c"][..], refused), (&["a"], Act::Answer), (&["b"], refused), (&["c"], Act::Answer)]
    {
        let step = stage.next();
        assert_eq!(step.reads(), names);
        step.act(act);
    }
    let mut answers: Vec<_> = receiver.iter().take(5).collect();
    answers.sort_by(|a, b| a.0.cmp(&b.0));
    let rejected = Some(Kind::Rejected);
    let expected = [("a", None), ("b", rejected), ("b", rejected), ("c", None), ("x", None)];
    assert_eq!(answers, expected.map(|(name, error)| (name.to_owned(), error)));
}

/// Its key could not be written any more once there were rows that expire.
#[test]
fn a_row_that_cannot_be_read_can_be_replaced_and_deleted() {
    let (batcher, stage) = start();
    batcher.shared.may_expire.store(true, Relaxed);
    for (text, existed) in [("a=1", false), ("a-", true)] {
        let answer = write(&batcher, text);
        let look = stage.next();
        assert_eq!(look.reads(), ["a"]);
        look.act(Act::Fail(Kind::Rejected));
        let commit = stage.next();
        assert_eq!(commit.writes().len(), 1);
        commit.act(Act::Answer);
        assert_eq!(applied(&answer), (text.into(), existed, false));
    }
    let condition = write(&batcher, "a+1");
    stage.next().act(Act::Fail(Kind::Rejected));
    assert!(condition.recv().unwrap().1.is_err_and(|error| error.kind() == Kind::Rejected));
}

/// A thousand touches of large rows were one batch: as much memory, and of more than 4 GiB a record that nobody could read again.
#[test]
fn rows_that_get_another_end_are_no_more_than_a_batch() {
    let (store, stage) = Scripted::new();
    for name in ["a", "b", "c"] {
        store.hold(Row::new(&key(name), "", &vec![b'x'; 600 << 10], Version(1)));
    }
    let batcher = over(store);
    let first = write(&batcher, "x=1");
    let in_flight = stage.next();
    let (sender, touched) = mpsc::channel();
    for name in ["c", "b", "a"] {
        let sender = sender.clone();
        batcher.write(WriteRequest {
            key: key(name),
            intent: Intent::Touch(Some(Timestamp(1 << 60))),
            condition: Precondition::None,
            idempotency: None,
            reply: Reply::new(move |result, _| drop(sender.send(result))),
        });
    }
    let put = write(&batcher, "d=1");
    in_flight.act(Act::Answer);
    applied(&first);
    for (read, written) in [(&["a", "b", "c", "d"][..], ["a=", "b="]), (&["c", "d"], ["c=", "d="])] {
        let look = stage.next();
        assert_eq!(look.reads(), read);
        look.act(Act::Answer);
        let commit = stage.next();
        assert!(commit.writes().iter().map(|write| &write[..2]).eq(written));
        commit.act(Act::Answer);
    }
    assert!(touched.iter().take(3).all(|result| matches!(result, Ok(Written::Applied { .. }))));
    assert_eq!(applied(&put), ("d=1".into(), false, false));
}

/// Only single writes had a say, and the removal of what has expired said each second that the disk has room.
#[test]
fn a_store_refuses_writes_until_it_has_taken_a_put() {
    let (batcher, stage) = start();
    let refused = put_atomically(&batcher, "a");
    stage.next().act(Act::Answer);
    stage.next().act(Act::Fail(Kind::Refused));
    assert!(refused.recv().unwrap().is_err() && batcher.refuses_writes());
    let removed = write(&batcher, "a-");
    stage.next().act(Act::Answer);
    applied(&removed);
    assert!(batcher.refuses_writes());
    let done = put_atomically(&batcher, "a");
    stage.next().act(Act::Answer);
    stage.next().act(Act::Answer);
    assert!(done.recv().unwrap().is_ok() && !batcher.refuses_writes());
}

/// A queue of ten was full of them, and every write was refused.
#[test]
fn the_removal_of_expired_rows_leaves_room_in_a_queue() {
    let (store, stage) = Scripted::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        let attributes = kv::Attributes { expires: Some(Timestamp(1)), ..Default::default() };
        store.hold(Row::with(&key(name), attributes, b"x", Version(1)));
    }
    let config = Config { queue_requests: 4, ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    let held = write(&batcher, "x=1");
    let in_flight = stage.next();
    batcher.shared.may_expire.store(true, Relaxed);
    while batcher.writes.len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let put = write(&batcher, "y=1");
    in_flight.act(Act::Answer);
    applied(&held);
    let mut left = 7;
    while left > 0 {
        let step = stage.next();
        left -= step.writes().len();
        step.act(Act::Answer);
    }
    applied(&put);
}

/// A thousand of them were read at once, whatever their size; of more than four small ones none was removed.
#[test]
fn expired_rows_are_removed_some_megabytes_at_a_time() {
    for (names, value_bytes) in [(&["a", "b", "c"][..], 3 << 20), (&["a", "b", "c", "d", "e"], 1)] {
        let (store, stage) = Scripted::new();
        for name in names {
            let attributes = kv::Attributes { expires: Some(Timestamp(1)), ..Default::default() };
            store.hold(Row::with(&key(name), attributes, &vec![b'x'; value_bytes], Version(1)));
        }
        let batcher = over(store);
        batcher.shared.may_expire.store(true, Relaxed);
        let mut left = names.iter().map(|name| format!("{name}-")).collect::<Vec<_>>();
        while !left.is_empty() {
            let look = stage.next();
            assert!(value_bytes == 1 || look.reads().len() == 1);
            look.act(Act::Answer);
            let removal = stage.next();
            assert_eq!(removal.writes(), left.drain(..look.reads().len()).collect::<Vec<_>>());
            removal.act(Act::Answer);
        }
    }
}

/// Another program wrote one key all the time: every write of the batch failed.
#[test]
fn a_write_that_others_are_faster_than_fails_alone() {
    let (batcher, stage) = start();
    let hold = write(&batcher, "x=1");
    let in_flight = stage.next();
    let rest = write(&batcher, "a=1 b=1");
    in_flight.act(Act::Answer);
    applied(&hold);
    for writes in [&["a=1", "b=1"][..], &["a=1"]] {
        for _ in 0..=RETRIES_MAX {
            let step = stage.next();
            assert_eq!(step.writes(), writes);
            step.act(Act::Fail(Kind::Retry));
        }
    }
    assert!(matches!(rest.recv().unwrap().1, Err(error) if error.kind() == Kind::Retry));
    stage.next().act(Act::Answer);
    assert_eq!(applied(&rest), ("b=1".into(), false, false));
}

/// Between two of its requests nothing of it is under way, and the store was handed over.
#[test]
fn a_batch_that_has_begun_is_served_while_the_store_is_handed_over() {
    let (store, stage) = Scripted::new();
    let batcher = over(store);
    let begun = batcher.begin_batch().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| batcher.hand_over(PATIENCE));
        let refused = loop {
            match batcher.begin_batch() {
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), Kind::Taken);
        let written = write(&batcher, "a=1");
        stage.next().act(Act::Answer);
        applied(&written);
        drop(begun);
    });
    let (_, refused) = write(&batcher, "a=2").recv_timeout(PATIENCE).unwrap();
    assert_eq!(refused.unwrap_err().kind(), Kind::Taken);
    assert!(stage.is_quiet());
}

/// Another server has it, and says that it ends soon.
struct Ending(Scripted);

#[async_trait]
impl Store for Ending {
    async fn acquire(&self, _part: Part) -> Answer<Lease> {
        Err(Error::new(Kind::Ending, "it ends soon"))
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.0.connect(epoch).await
    }

    fn workers(&self) -> Workers {
        self.0.workers()
    }
}

/// They waited for `--store-timeout`, and were answered as unknown.
#[test]
fn what_waits_for_the_store_is_refused_when_the_server_ends_before_it_has_it() {
    let config = Config { is_standby: true, ..Config::default() };
    let batcher = Batcher::start(Box::new(Ending(Scripted::new().0)), config, Arc::new(())).unwrap();
    let answers = write(&batcher, "a=1");
    batcher.hand_over(PATIENCE);
    let (_, refused) = answers.recv_timeout(PATIENCE).unwrap();
    assert_eq!(refused.unwrap_err().kind(), Kind::Unavailable);
}
