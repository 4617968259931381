//! Events and repeated requests, against a store that does as the test says.

use super::*;

const LOG: EventLog = EventLog { age: Duration::from_secs(3600), bytes: 1 << 20 };

/// Two workers for writes.
fn start(event_log: Option<EventLog>) -> (Batcher, Stage) {
    let (store, stage) = Scripted::new();
    (over(Box::new(store), event_log), stage)
}

fn over(store: Box<dyn Store>, event_log: Option<EventLog>) -> Batcher {
    let config = Config { workers: Some(Workers { read: 1, write: 2 }), event_log, ..Config::default() };
    Batcher::start(store, config, Arc::new(())).unwrap()
}

type Answered = mpsc::Receiver<Result<Written, Error>>;

/// `a=1` puts, `a-` deletes; behind a `#` the `Idempotency-Key`.
fn write(batcher: &Batcher, text: &str) -> Answered {
    let (text, id) = text.split_once('#').unwrap_or((text, ""));
    let (name, rest) = text.split_at(1);
    let value = &rest[1..];
    let put = || Row::new(&key(name), "", value.as_bytes(), Version::default());
    let intent = if rest.starts_with('-') { Intent::Delete } else { Intent::Put(put()) };
    let idempotency = id
        .bytes()
        .next()
        .map(|id| Idempotency { id: [id; 16], digest: [value.bytes().next().unwrap_or_default(); 8] });
    let (sender, receiver) = mpsc::channel();
    let reply = Reply::new(move |result, _| drop(sender.send(result)));
    batcher.write(WriteRequest { key: key(name), intent, condition: Precondition::None, idempotency, reply });
    receiver
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The next `count` events, as `put a`.
fn events(watch: &mut Watch, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < count {
        match next(watch) {
            Next::Events(events) => found.extend(events.iter().map(shown)),
            Next::Reset(_) => found.push("reset".to_owned()),
        }
    }
    found
}

fn shown(event: &Event) -> String {
    format!("{} {}", event.kind.name(), String::from_utf8_lossy(&event.key))
}

fn next(watch: &mut Watch) -> Next {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(next) = watch.try_next() {
            return next;
        }
        assert!(Instant::now() < deadline, "an event in time");
        std::thread::yield_now();
    }
}

/// Whether nothing can be told to `watch` now.
fn is_quiet(watch: &mut Watch) -> bool {
    while watch.is_late() {
        if watch.try_next().is_some() {
            return false;
        }
    }
    watch.try_next().is_none()
}

fn watching(batcher: &Batcher, watched: Watched, since: Option<Position>) -> Watch {
    batcher.watch(watched, since, &Arc::default())
}

fn everything() -> Watched {
    Watched::Prefix((*b"").into())
}

/// Two letters whose keys are in different queues.
fn two_queues(batcher: &Batcher) -> [String; 2] {
    let is_in = |queue, letter: &char| batcher.queue_of(&batcher.writes, &key(&letter.to_string())) == queue;
    [0, 1].map(|queue| ('a'..='z').find(|letter| is_in(queue, letter)).unwrap().to_string())
}

/// Answers everything that is asked of the store, on a thread of its own.
fn answer_all(stage: Stage) {
    std::thread::spawn(move || {
        // Ends with the test.
        while let Ok(step) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| stage.next())) {
            step.act(Act::Answer);
        }
    });
}

#[test]
fn events_come_in_the_order_of_the_commits_and_each_to_who_watches_it() {
    let (batcher, stage) = start(None);
    let mut all = watching(&batcher, everything(), None);
    let mut one = watching(&batcher, Watched::Key((*b"a").into()), None);
    let mut none = watching(&batcher, Watched::Prefix((*b"ab").into()), None);
    let first = write(&batcher, "a=1");
    let in_flight = stage.next();
    // One that is replaced in the same commit has happened, too. Deleting what is not there is nothing.
    let letter = two_queues(&batcher).into_iter().find(|letter| *letter != "a").unwrap();
    let rest = ["a=2", "a-", "a-", "a=3"].map(|text| write(&batcher, text));
    in_flight.act(Act::Answer);
    first.recv().unwrap().unwrap();
    stage.next().act(Act::Answer);
    rest.iter().for_each(|answer| drop(answer.recv().unwrap().unwrap()));
    write(&batcher, &format!("{letter}=1"));
    stage.next().act(Act::Answer);
    let of_a = ["put a", "put a", "delete a", "put a"];
    assert_eq!(events(&mut all, 5), [&of_a[..], &[&format!("put {letter}")]].concat());
    assert_eq!(events(&mut one, 4), of_a);
    assert!(is_quiet(&mut none) && is_quiet(&mut one));
}

#[test]
fn nothing_is_told_before_it_is_known_what_came_before() {
    let (batcher, stage) = start(Some(LOG));
    let [early, late] = two_queues(&batcher);
    let mut watch = watching(&batcher, everything(), None);
    let first = write(&batcher, &format!("{early}=1"));
    let early_step = stage.next();
    let second = write(&batcher, &format!("{late}=1"));
    stage.next().act(Act::Answer);
    second.recv().unwrap().unwrap();
    assert!(is_quiet(&mut watch));
    early_step.act(Act::Answer);
    first.recv().unwrap().unwrap();
    assert_eq!(events(&mut watch, 2), [format!("put {early}"), format!("put {late}")]);
}

#[test]
fn after_an_unknown_outcome_the_store_says_what_happened() {
    for happened in [true, false] {
        let (batcher, stage) = start(Some(LOG));
        let mut watch = watching(&batcher, everything(), None);
        let answer = write(&batcher, "a=1");
        let step = stage.next();
        if happened {
            step.act(Act::Perform);
        }
        step.act(Act::Fail(Kind::Unknown));
        assert_eq!(answer.recv().unwrap().unwrap_err().kind(), Kind::Unknown);
        until_epoch(&batcher, 2);
        write(&batcher, "b=1");
        stage.next().act(Act::Answer);
        let expected: &[&str] = if happened { &["put a", "put b"] } else { &["put b"] };
        assert_eq!(events(&mut watch, expected.len()), expected);
    }
    // Where the store keeps none, nobody knows.
    let (batcher, stage) = start(None);
    let mut watch = watching(&batcher, everything(), None);
    write(&batcher, "a=1");
    stage.next().act(Act::Fail(Kind::Unknown));
    until_epoch(&batcher, 2);
    // Taken later, it is behind what happened until then.
    assert_eq!(events(&mut watch, 1), ["reset"]);
    write(&batcher, "b=1");
    stage.next().act(Act::Answer);
    assert_eq!(events(&mut watch, 1), ["put b"]);
}

fn until_epoch(batcher: &Batcher, epoch: u64) {
    let mut status = batcher.shared.status.subscribe();
    let up = async {
        let up = status.wait_for(|status| *status == Status::Up(epoch));
        tokio::time::timeout(Duration::from_secs(30), up).await.unwrap().unwrap();
    };
    runtime().block_on(up);
}

/// A store that several servers use, one after the other.
struct OneOfSeveral(Arc<Scripted>);

#[async_trait]
impl Store for OneOfSeveral {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        self.0.acquire(part).await
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.0.connect(epoch).await
    }

    fn workers(&self) -> Workers {
        self.0.workers()
    }
}

#[test]
fn a_position_is_good_as_long_as_no_event_behind_it_is_missing() {
    let (store, stage) = Scripted::new();
    answer_all(stage);
    let store = Arc::new(store);
    let server = |log| over(Box::new(OneOfSeveral(Arc::clone(&store))), log);
    let wrote = |batcher: &Batcher, text: &str| {
        // The answer comes before the event.
        let mut watch = watching(batcher, everything(), None);
        write(batcher, text).recv().unwrap().unwrap();
        events(&mut watch, 1);
    };
    let position = |batcher: &Batcher| watching(batcher, everything(), None).position();

    let first = server(Some(LOG));
    let at_first = position(&first);
    wrote(&first, "a=1");
    let behind_a = position(&first);
    wrote(&first, "b=1");
    drop(first);
    let second = server(Some(LOG));
    wrote(&second, "c=1");
    assert_eq!(events(&mut watching(&second, everything(), Some(at_first)), 3), ["put a", "put b", "put c"]);
    assert_eq!(events(&mut watching(&second, everything(), Some(behind_a)), 2), ["put b", "put c"]);
    let future = Position::behind(behind_a.block + (1 << 50));
    assert_eq!(events(&mut watching(&second, everything(), Some(future)), 1), ["reset"]);
    let behind_c = position(&second);
    // A backup from before it was restored: what was between the two has not happened.
    let other = Position::behind(behind_c.block - 1);
    assert_eq!(events(&mut watching(&second, everything(), Some(other)), 1), ["reset"]);
    drop(second);
    // A server that keeps no events writes, and is not seen.
    let third = server(None);
    wrote(&third, "d=1");
    let in_third = position(&third);
    assert_eq!(events(&mut watching(&third, everything(), Some(behind_c)), 1), ["reset"]);
    drop(third);
    let fourth = server(Some(LOG));
    for lost in [at_first, behind_c, in_third] {
        assert_eq!(events(&mut watching(&fourth, everything(), Some(lost)), 1), ["reset"], "{lost}");
    }
    wrote(&fourth, "e=1");
    let at_fourth = position(&fourth);
    drop(fourth);
    let fifth = server(Some(LOG));
    wrote(&fifth, "f=1");
    assert_eq!(events(&mut watching(&fifth, everything(), Some(at_fourth)), 1), ["put f"]);
}

#[test]
fn a_watcher_that_does_not_keep_up_reads_on_from_the_blocks_and_loses_nothing() {
    let (batcher, stage) = start(Some(LOG));
    answer_all(stage);
    let mut slow = watching(&batcher, everything(), None);
    for round in 0..1000 {
        write(&batcher, &format!("a={round}")).recv().unwrap().unwrap();
    }
    let mut versions = Vec::new();
    while versions.len() < 1000 {
        let Next::Events(events) = next(&mut slow) else { panic!("a reset") };
        versions.extend(events.iter().map(|event| (event.position, event.version)));
    }
    assert!(versions.is_sorted() && versions.len() == 1000);
    versions.dedup();
    assert_eq!(versions.len(), 1000);
    write(&batcher, "b=1").recv().unwrap().unwrap();
    assert_eq!(events(&mut slow, 1), ["put b"]);
}

#[test]
fn events_are_bounded_by_bytes_and_age() {
    let (batcher, stage) = start(Some(EventLog { bytes: 10_000, ..LOG }));
    answer_all(stage);
    let mut watch = watching(&batcher, everything(), None);
    let start = watch.position();
    for _ in 0..1000 {
        write(&batcher, "a=1").recv().unwrap().unwrap();
        // One by one: in the background the log is trimmed, too.
        events(&mut watch, 1);
    }
    let shared = &batcher.shared;
    let now = shared.clock.now();
    shared.events.trim(now);
    assert!(batcher.stored_event_bytes() <= 10_000);
    assert_eq!(events(&mut watching(&batcher, everything(), Some(start)), 1), ["reset"]);
    let recent = watching(&batcher, everything(), None).position();
    write(&batcher, "b=1").recv().unwrap().unwrap();
    assert!(shared.events.trim(now.after(Duration::from_secs(3601))).is_some());
    // The last one stays.
    assert_eq!(events(&mut watching(&batcher, everything(), Some(recent)), 1), ["put b"]);
}

/// The later one ended first: the store forgot both, and everyone who watched began anew.
#[test]
fn the_last_block_is_the_one_that_stays() {
    let events = Events::new(Some(LOG));
    let block = |id| crate::EventBlock { id, at: Timestamp(id), body: crate::events::body(true).into() };
    let [first, second] = [5, 6].map(|id| events.begin(|| Version(id)));
    [(second, 6), (first, 5)].into_iter().for_each(|(of, id)| of.end_with(Some(block(id)), None));
    assert_eq!(events.trim(Timestamp(u64::MAX)), Some(5));
}

#[test]
fn a_request_that_comes_again_takes_effect_once() {
    let (store, stage) = Scripted::new();
    answer_all(stage);
    let store = Arc::new(store);
    for log in [None, Some(LOG)] {
        let server = || over(Box::new(OneOfSeveral(Arc::clone(&store))), log);
        let batcher = server();
        let answer = |batcher: &Batcher, text: &str| write(batcher, text).recv().unwrap().unwrap();
        let id = if log.is_some() { "x" } else { "y" };
        drop(answer(&batcher, "a-"));
        let first = answer(&batcher, &format!("a=1#{id}"));
        let Written::Applied { version, existed: false, row: Some(_), .. } = first else {
            panic!("{first:?}")
        };
        drop(answer(&batcher, "a=2"));
        let again = Written::Applied { version, existed: false, row: None, superseded: true };
        assert_eq!(answer(&batcher, &format!("a=1#{id}")), again);
        assert_eq!(answer(&batcher, &format!("a=2#{id}")), Written::OtherRequest);
        drop(batcher);
        // Also by the next server.
        let batcher = server();
        assert_eq!(answer(&batcher, &format!("a=1#{id}")), again);
        assert_eq!(answer(&batcher, &format!("a=3#{id}")), Written::OtherRequest);
        // Deleting what is not there, too.
        drop(answer(&batcher, "b-"));
        let gone = answer(&batcher, &format!("b-#{}", if log.is_some() { "p" } else { "q" }));
        drop(answer(&batcher, "b=1"));
        let Written::Applied { version, existed: false, .. } = gone else { panic!("{gone:?}") };
        let again = answer(&batcher, &format!("b-#{}", if log.is_some() { "p" } else { "q" }));
        assert_eq!(again, Written::Applied { version, existed: false, row: None, superseded: true });
    }
}

/// It was remembered as applied, and answered so when it came again.
#[test]
fn a_write_that_finds_a_newer_row_is_refused_each_time() {
    let (store, stage) = Scripted::new();
    answer_all(stage);
    store.hold(Row::new(&key("a"), "", b"theirs", Version(u64::MAX >> 1)));
    let batcher = over(Box::new(store), None);
    for _ in 0..2 {
        let refused = write(&batcher, "a=1#x").recv().unwrap().unwrap_err();
        assert_eq!(refused.kind(), Kind::Rejected);
    }
}

#[test]
fn requests_with_one_idempotency_key_that_meet_in_a_batch_take_effect_once() {
    let (batcher, stage) = start(None);
    let first = write(&batcher, "a=0");
    let in_flight = stage.next();
    let all = ["a=1#x", "a=1#x", "a=2#x"].map(|text| write(&batcher, text));
    in_flight.act(Act::Answer);
    first.recv().unwrap().unwrap();
    let look = stage.next();
    assert_eq!(look.reads(), ["a"]);
    look.act(Act::Answer);
    let batch = stage.next();
    assert_eq!(batch.writes(), ["a=1"]);
    batch.act(Act::Answer);
    let [made, again, other] = all.map(|answer| answer.recv().unwrap().unwrap());
    let Written::Applied { version, existed: true, superseded: false, .. } = made else { panic!("{made:?}") };
    assert_eq!(again, Written::Applied { version, existed: true, row: None, superseded: true });
    assert_eq!(other, Written::OtherRequest);
}

/// What expires is an event, whether it is removed or replaced.
#[test]
fn a_row_that_expired_is_told_of_when_it_goes() {
    let (store, stage) = Scripted::new();
    answer_all(stage);
    let ended = |name: &str| {
        let attributes = kv::Attributes { expires: Some(Timestamp(1)), ..Default::default() };
        Row::with(&key(name), attributes, b"", Version(1))
    };
    store.hold(ended("a"));
    store.hold(ended("b"));
    store.hold(ended("c"));
    store.hold(ended("d"));
    store.hold(ended("e"));
    let batcher = over(Box::new(store), None);
    let mut watch = watching(&batcher, everything(), None);
    // An atomic batch looks for itself.
    let (sender, outcome) = mpsc::channel();
    let put = Intent::Put(Row::new(&key("d"), "", b"", Version::default()));
    let operation = |name, intent| AtomicOperation { key: key(name), condition: Precondition::None, intent };
    let operations = vec![operation("d", Some(put)), operation("e", Some(Intent::Delete))];
    batcher.write_atomically(operations, Reply::new(move |result, _| drop(sender.send(result))));
    outcome.recv().unwrap().unwrap();
    assert_eq!(events(&mut watch, 3), ["expire d", "put d", "expire e"]);
    batcher.shared.may_expire.store(true, Relaxed);
    write(&batcher, "b=1").recv().unwrap().unwrap();
    write(&batcher, "c-").recv().unwrap().unwrap();
    // `a` is removed in the background, and no other.
    let mut told = events(&mut watch, 4);
    told.sort();
    assert_eq!(told, ["expire a", "expire b", "expire c", "put b"]);
}

/// Without a log events were gathered only while somebody was watching when the lease began.
#[test]
fn who_was_away_when_a_lease_began_is_told_of_what_comes_then() {
    let (batcher, stage) = start(None);
    answer_all(stage);
    let mut first = watching(&batcher, everything(), None);
    write(&batcher, "a=1").recv().unwrap().unwrap();
    events(&mut first, 1);
    let begins = first.position().block;
    let mut late = watching(&batcher, everything(), Some(Position::behind(1)));
    drop(first);
    batcher.shared.events.open(Vec::new(), begins);
    assert_eq!(events(&mut late, 1), ["reset"]);
    write(&batcher, "b=1").recv().unwrap().unwrap();
    assert_eq!(events(&mut late, 1), ["put b"]);
}

/// What an atomic batch has read decides it, so no write may come in between.
#[test]
fn an_atomic_batch_and_other_writes_exclude_each_other() {
    let (batcher, stage) = start(None);
    let (sender, outcome) = mpsc::channel();
    let put = Intent::Put(Row::new(&key("a"), "", b"atomic", Version::default()));
    let condition = Precondition::Absent;
    batcher.write_atomically(
        vec![AtomicOperation { key: key("a"), condition, intent: Some(put) }],
        Reply::new(move |result, _| drop(sender.send(result))),
    );
    let look = stage.next();
    assert_eq!(look.reads(), ["a"]);
    let other = write(&batcher, "a=1");
    // It is not sent as long as the batch is decided.
    for _ in 0..100 {
        assert!(stage.is_quiet());
        std::thread::sleep(Duration::from_millis(1));
    }
    look.act(Act::Answer);
    let commit = stage.next();
    assert_eq!(commit.writes(), ["a=atomic"]);
    commit.act(Act::Answer);
    assert!(matches!(outcome.recv().unwrap(), Ok(AtomicOutcome::Applied(_))));
    stage.next().act(Act::Answer);
    assert!(matches!(other.recv().unwrap(), Ok(Written::Applied { existed: true, .. })));
}

/// What was decided before it was known would not know of it.
#[test]
fn after_an_atomic_batch_of_which_nobody_knows_nothing_is_written_until_the_next_lease() {
    let (batcher, stage) = start(None);
    let (sender, outcome) = mpsc::channel();
    let put = Intent::Put(Row::new(&key("a"), "", b"atomic", Version::default()));
    batcher.write_atomically(
        vec![AtomicOperation { key: key("a"), condition: Precondition::None, intent: Some(put) }],
        Reply::new(move |result, _| drop(sender.send(result))),
    );
    stage.next().act(Act::Answer);
    let commit = stage.next();
    assert_eq!(commit.writes(), ["a=atomic"]);
    let [one, other] = two_queues(&batcher).map(|key| write(&batcher, &format!("{key}=1")));
    // Both wait for the batch by then.
    while batcher.writes.len() > 0 {
        std::thread::yield_now();
    }
    commit.act(Act::Fail(Kind::Unknown));
    assert_eq!(outcome.recv().unwrap().unwrap_err().kind(), Kind::Unknown);
    for waiting in [one, other] {
        assert_eq!(waiting.recv().unwrap().unwrap_err().kind(), Kind::Unavailable);
    }
    assert!(stage.is_quiet());
}

/// It was told of after the reset, and was not there any more.
#[test]
fn what_a_clear_removes_is_told_of_before_it() {
    let (batcher, stage) = start(None);
    let mut watch = watching(&batcher, everything(), None);
    let written = write(&batcher, "a=1");
    let commit = stage.next();
    let (sender, cleared) = mpsc::channel();
    batcher.clear(Reply::new(move |done, _| drop(sender.send(done))));
    // Its thread and its session take a moment; where it waits, it comes only after the write.
    let deadline = Instant::now() + Duration::from_millis(200);
    while Instant::now() < deadline {
        assert!(stage.is_quiet());
    }
    commit.act(Act::Answer);
    written.recv().unwrap().unwrap();
    assert_eq!(events(&mut watch, 1), ["put a"]);
    let clearing = stage.next();
    assert!(clearing.clears());
    clearing.act(Act::Answer);
    cleared.recv().unwrap().unwrap();
    assert_eq!(events(&mut watch, 1), ["reset"]);
    assert!(is_quiet(&mut watch));
}

/// The row would be in the list, and not yet in the cache that is asked next.
#[test]
fn a_list_waits_for_the_answers_to_what_it_has_seen() {
    let (batcher, stage) = start(None);
    let written = write(&batcher, "a=1");
    let commit = stage.next();
    commit.act(Act::Perform);
    let (sender, page) = mpsc::channel();
    let listing = Listing { from: Vec::new(), until: None, limit: 9, now: Timestamp(0), expired: false };
    batcher.list(listing, false, Reply::new(move |page, _| drop(sender.send(page))));
    assert!(page.recv_timeout(Duration::from_millis(50)).is_err());
    commit.act(Act::Answer);
    written.recv().unwrap().unwrap();
    assert_eq!(page.recv().unwrap().unwrap().rows.len(), 1);
}

/// Whose row another program has locked. All lists and atomic batches waited behind it.
#[test]
fn a_write_that_does_not_end_holds_no_list_up_for_ever() {
    let (store, stage) = Scripted::new();
    let config = Config { queue_wait_max: Duration::from_millis(100), ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    let written = write(&batcher, "a=1");
    let commit = stage.next();
    let (sender, page) = mpsc::channel();
    let listing = Listing { from: Vec::new(), until: None, limit: 9, now: Timestamp(0), expired: false };
    batcher.list(listing, false, Reply::new(move |page, _| drop(sender.send(page))));
    assert_eq!(page.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err().kind(), Kind::Overloaded);
    let (sender, outcome) = mpsc::channel();
    let operation = AtomicOperation { key: key("b"), condition: Precondition::None, intent: None };
    batcher.write_atomically(vec![operation], Reply::new(move |result, _| drop(sender.send(result))));
    assert_eq!(outcome.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err().kind(), Kind::Overloaded);
    commit.act(Act::Answer);
    written.recv().unwrap().unwrap();
}

/// One row locked by another program, and nobody could begin to watch.
#[test]
fn who_begins_to_watch_waits_only_for_writes_without_events() {
    let (batcher, stage) = start(None);
    let [one, other] = two_queues(&batcher);
    let first = write(&batcher, &format!("{one}=1"));
    let without = stage.next();
    assert!(watching(&batcher, everything(), None).is_starting());
    let second = write(&batcher, &format!("{other}=1"));
    let with = stage.next();
    without.act(Act::Answer);
    first.recv().unwrap().unwrap();
    let mut watch = watching(&batcher, everything(), None);
    let deadline = Instant::now() + Duration::from_secs(30);
    while watch.is_starting() {
        assert!(Instant::now() < deadline, "a start in time");
        std::thread::yield_now();
    }
    with.act(Act::Answer);
    second.recv().unwrap().unwrap();
    assert_eq!(events(&mut watch, 1), [format!("put {other}")]);
}

/// All of the batch took the room that there is for results of such requests.
#[test]
fn what_is_beside_a_request_with_an_idempotency_key_is_told_and_not_kept() {
    let (store, stage) = Scripted::new();
    let config = Config { workers: Some(Workers { read: 1, write: 1 }), ..Config::default() };
    let batcher = Batcher::start(Box::new(store), config, Arc::new(())).unwrap();
    let mut watch = watching(&batcher, everything(), None);
    let _first = ["b=1", "a=0"].map(|text| write(&batcher, text));
    let in_flight = stage.next();
    let _rest = ["b-", "c=1#x"].map(|text| write(&batcher, text));
    in_flight.act(Act::Answer);
    answer_all(stage);
    let told: std::collections::BTreeSet<_> = events(&mut watch, 4).into_iter().collect();
    assert_eq!(told, ["delete b", "put a", "put b", "put c"].map(str::to_owned).into());
    let kept = batcher.shared.events.stored_bytes();
    let _last = write(&batcher, "d=1#y");
    assert_eq!(events(&mut watch, 1), ["put d"]);
    assert_eq!(batcher.shared.events.stored_bytes(), 2 * kept);
}

#[test]
fn a_watcher_waits_with_so_many_bytes_of_events_and_reads_the_rest_from_the_blocks() {
    let (batcher, stage) = start(Some(LOG));
    answer_all(stage);
    let mut watch = watching(&batcher, everything(), None);
    let long = |number: usize| Key::new(format!("{number:01000}").as_bytes()).unwrap();
    for number in 0..200 {
        let (sender, receiver) = mpsc::channel();
        let (key, condition) = (long(number), Precondition::None);
        let intent = Intent::Put(Row::new(&key, "", b"", Version::default()));
        let reply = Reply::new(move |result, _| drop(sender.send(result)));
        batcher.write(WriteRequest { key, intent, condition, idempotency: None, reply });
        receiver.recv().unwrap().unwrap();
    }
    let mut count = 0;
    while count < 200 {
        let Next::Events(events) = next(&mut watch) else { panic!("a reset") };
        let bytes: usize = events.iter().map(|event| event.key.len()).sum();
        assert!(bytes < 64 << 10, "{bytes} bytes at once");
        for event in events {
            assert_eq!(*event.key, *long(count).as_bytes());
            count += 1;
        }
    }
}

/// A store whose events can be read only once its lease was confirmed.
struct LongLog {
    store: Scripted,
    confirmed: Arc<tokio::sync::Semaphore>,
}

struct Confirmed(Arc<tokio::sync::Semaphore>);

#[async_trait]
impl crate::Owner for Confirmed {
    async fn confirm(&mut self) -> Answer<()> {
        self.0.close();
        Ok(())
    }

    async fn release(&mut self) -> Answer<()> {
        Ok(())
    }
}

#[async_trait]
impl Store for LongLog {
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        let owner = Confirmed(Arc::clone(&self.confirmed));
        let lease = self.store.acquire(part);
        Ok(Lease { owner: Some(Box::new(owner)), ..lease.await? })
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        // It is never given, and ends when the semaphore is closed.
        let confirmed = tokio::time::timeout(Duration::from_secs(30), self.confirmed.acquire()).await;
        confirmed.map(drop).map_err(|_| Error::new(Kind::Unavailable, "the session was idle"))?;
        self.store.connect(epoch).await
    }

    fn workers(&self) -> Workers {
        self.store.workers()
    }
}

/// The database ends a session that is silent for long, and the lease was lost before it began, again and again.
#[test]
fn a_lease_is_confirmed_while_a_long_log_is_read() {
    let (store, stage) = Scripted::new();
    answer_all(stage);
    let store = LongLog { store, confirmed: Arc::new(tokio::sync::Semaphore::new(0)) };
    let batcher = Batcher::start(Box::new(store), Config::default(), Arc::new(())).unwrap();
    write(&batcher, "a=1").recv().unwrap().unwrap();
}
