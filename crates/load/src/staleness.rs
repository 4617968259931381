//! What is known of the keys from the answers so far, and whether a value that is read may still be current.
//!
//! Sound where a server is linearizable: a value is called stale only if it was overwritten before its read was sent. A value
//! counts as overwritten by a write that was sent when the value was known to be there, and acknowledged since. Of how many keys
//! something is known is bounded; what is forgotten is not found, and nothing is found that is not so.

use super::answer::{Outcome, Success};
use super::fault::Fault;
use super::history::{KeyHistory, Watch, Watched, Write};
use super::keys::RequestSpec;
use super::linearizability::{Action, Call, Record, Value};
use super::mix::Operation;
use super::request::{Request, Requests};
use super::verify::{Mark, PRELOAD_WRITER, Verify, mix};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Keys of which something is known at once; a power of two.
const KEYS_MAX: usize = 1 << 14;
/// Bits for writes whose place among those of their own client is open; a power of two.
const UNORDERED_BITS: u64 = 1 << 20;

/// What all threads know of a run.
pub(super) struct SharedHistory {
    verify: Verify,
    /// The clients of this process, of whose writes the order is known.
    clients: Range<u32>,
    /// Ticks at every write that begins and at everything that is learned.
    clock: AtomicU64,
    /// A key's place follows from its number; the one named last has it.
    known: Box<[Mutex<KeyHistory>]>,
    /// A bit for each write that may take effect later than ones that its client began after it: whether its bit is that of
    /// another write, too, does not matter, since a value with doubts is never called stale by its number.
    is_unordered: Box<[AtomicU64]>,
}

impl SharedHistory {
    /// Of these clients in the run of `verify`; `None` where nothing is verified.
    pub(super) fn new(verify: Verify, clients: &Range<u32>) -> Option<SharedHistory> {
        verify.is_on().then(|| SharedHistory {
            verify,
            clients: clients.clone(),
            clock: AtomicU64::new(1),
            known: (0..KEYS_MAX).map(|_| Mutex::default()).collect(),
            is_unordered: (0..UNORDERED_BITS / 64).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::AcqRel)
    }

    /// The entry for key `number`, which another key may occupy.
    fn place(&self, number: u64) -> MutexGuard<'_, KeyHistory> {
        let place = mix(number) as usize & (KEYS_MAX - 1);
        // It holds numbers that are copied whole: a panic leaves none half written.
        self.known[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the value of `mark` was gone when this was known of its key.
    fn excludes(&self, known: &KeyHistory, mark: &Mark) -> bool {
        if mark.writer == PRELOAD_WRITER {
            return known.overwritten;
        }
        let later_by_number = |write: &Write| write.writer == mark.writer && write.count > mark.count;
        let settled = known.find(mark.writer, mark.count).map_or(u64::MAX, |write| write.settled);
        known.writes.iter().any(|write| write.begun > settled)
            || known.writes.iter().any(later_by_number) && !self.is_unordered(mark.writer, mark.count)
    }

    /// What is known of key `number`.
    fn history_of(&self, number: u64) -> KeyHistory {
        let known = *self.place(number);
        if known.number == number { known } else { KeyHistory { number, ..KeyHistory::default() } }
    }

    /// Takes note that the preload's value of key `number` is gone, and `write` took effect. Its tick is taken here.
    fn learn(&self, number: u64, write: Option<Write>) {
        let mut known = self.place(number);
        if known.number != number {
            *known = KeyHistory { number, ..KeyHistory::default() };
        }
        known.overwritten = true;
        if let Some(write) = write {
            known.add(Write { settled: self.tick(), ..write });
        }
    }

    fn mark_unordered(&self, writer: u32, count: u64) {
        let (word, bit) = bit_of(writer, count);
        self.is_unordered[word].fetch_or(bit, Ordering::AcqRel);
    }

    fn is_unordered(&self, writer: u32, count: u64) -> bool {
        let (word, bit) = bit_of(writer, count);
        self.is_unordered[word].load(Ordering::Acquire) & bit != 0
    }
}

/// The word and the bit of a write.
fn bit_of(writer: u32, count: u64) -> (usize, u64) {
    let place = mix(mix(u64::from(writer)) ^ count) & (UNORDERED_BITS - 1);
    ((place / 64) as usize, 1 << (place % 64))
}

/// A thread's share of the checks.
pub(super) struct StalenessChecker<'a> {
    shared: &'a SharedHistory,
    requests: &'a Requests,
    /// By their places in the thread.
    clients: Vec<ClientHistory>,
    scratch: [Vec<u8>; 2],
    /// Of all calls, where they are to be judged together at the end.
    record: Option<Record>,
}

/// What a client has asked for.
#[derive(Default)]
struct ClientHistory {
    /// Counted over all threads.
    client: u32,
    writes: u64,
    reads: u64,
    /// Of its writes that are under way, key and number. In a closed loop there is one at most.
    in_flight: Vec<(u64, u64)>,
    /// The key that was read last, and the value that was found.
    found: Option<(u64, Value)>,
    /// Of that value; empty where the answer did not say it.
    version: Vec<u8>,
}

impl<'a> StalenessChecker<'a> {
    /// For the thread of `clients`.
    pub(super) fn new(
        shared: &'a SharedHistory,
        requests: &'a Requests,
        clients: impl Iterator<Item = u32>,
        record: Option<Record>,
    ) -> StalenessChecker<'a> {
        let history = |client| ClientHistory { client, ..ClientHistory::default() };
        let clients = clients.map(history).collect();
        StalenessChecker { shared, requests, clients, scratch: Default::default(), record }
    }

    /// The calls of the thread, where they are recorded.
    pub(super) fn into_calls(self) -> Vec<Call> {
        self.record.map_or_else(Vec::new, |record| record.calls)
    }

    /// The keys that the thread's clients wrote, in their order, each once; none where no calls are recorded.
    pub(super) fn written_keys(&self) -> Vec<u64> {
        let calls = self.record.iter().flat_map(|record| &record.calls);
        let mut keys: Vec<u64> =
            calls.filter(|call| call.action != Action::Get).map(|call| call.key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Whether client `place` cannot ask this, because it did not find the version of the key.
    pub(super) fn lacks_version(&self, place: usize, ask: RequestSpec) -> bool {
        let ClientHistory { found, version, .. } = &self.clients[place];
        let has_version = !version.is_empty() && found.is_some_and(|(number, _)| number == ask.number);
        ask.operation.needs_version() && !has_version
    }

    /// Makes `request` what client `place` of the thread asks next, and watches it if something is to be learned of it.
    pub(super) fn render(&mut self, place: usize, ask: RequestSpec, request: &mut Request) {
        let RequestSpec { operation, number, value_bytes, .. } = ask;
        let history = &mut self.clients[place];
        let client = history.client;
        let (watched, action, value) = if operation.is_write() {
            if operation.needs_version() {
                request.version.clone_from(&history.version);
            }
            history.writes += 1;
            let count = history.writes;
            // The order of this write and one in flight of the same key is unknown.
            for &(_, other) in history.in_flight.iter().filter(|(other, _)| *other == number) {
                self.shared.mark_unordered(client, other);
                self.shared.mark_unordered(client, count);
            }
            history.in_flight.push((number, count));
            let mark = Mark { run: self.shared.verify.run, writer: client, count, value_bytes };
            self.requests.render(request, ask, Some(mark));
            let action = match operation {
                Operation::PutIfAbsent => Action::WriteIf(Value::ABSENT),
                _ if operation.needs_version() => {
                    Action::WriteIf(history.found.map_or(Value::OTHER, |(_, value)| value))
                }
                _ => Action::Write,
            };
            let value = if operation.has_value() { Value::written(client, count) } else { Value::ABSENT };
            (Watched::Write { count, begun: self.shared.tick() }, action, value)
        } else {
            self.requests.render(request, ask, None);
            request.watch = None;
            if operation != Operation::Get {
                return;
            }
            history.reads += 1;
            if !self.shared.verify.picks(client, history.reads) {
                return;
            }
            request.keep_all();
            (Watched::Read(Box::new(self.shared.history_of(number))), Action::Get, Value::OTHER)
        };
        let call = self.record.as_mut().map_or(0, |record| record.invoke(number, client, action, value));
        request.watch = Some(Box::new(Watch { place, number, call, watched }));
    }

    /// What a watched request that is over with `result` is to be taken for, and whether a value was compared as a whole.
    /// `body` and `version` are its answer's.
    pub(super) fn judge(
        &mut self,
        request: &Request,
        body: &[u8],
        version: &[u8],
        result: Outcome,
    ) -> (Outcome, bool) {
        let Some(watch) = &request.watch else { return (result, false) };
        let Watch { place, number, call, ref watched } = **watch;
        let history = &mut self.clients[place];
        let mut found = None;
        let (result, verified) = match watched {
            Watched::Write { count, begun } => {
                history.in_flight.retain(|(_, other)| other != count);
                if result == Ok(Success::Done) {
                    let write = Write { writer: history.client, count: *count, begun: *begun, settled: 0 };
                    self.shared.learn(number, Some(write));
                } else if result.is_err() {
                    // Whatever the failure says: if it should take effect after all, it may do so at any time.
                    self.shared.mark_unordered(history.client, *count);
                }
                (result, false)
            }
            Watched::Read(known) => match result {
                Ok(Success::Done) => match self.requests.origin(request, number, body, &mut self.scratch) {
                    Err(()) => (Err(Fault::WrongValue), true),
                    Ok(None) => (result, false),
                    Ok(Some(mark)) => {
                        found = Some(Value::of_mark(&mark, self.shared.verify.run));
                        (self.check_order(number, &mark, known), true)
                    }
                },
                Ok(_) => {
                    self.shared.learn(number, None);
                    found = Some(Value::ABSENT);
                    (result, false)
                }
                Err(fault) => (result, fault == Fault::WrongValue),
            },
        };
        if found.is_some() {
            let history = &mut self.clients[place];
            history.found = found.map(|value| (number, value));
            history.version.clear();
            history.version.extend_from_slice(version);
        }
        if let Some(record) = &mut self.record {
            record.complete(call, found, result);
        }
        (result, verified)
    }

    /// Judges a value that is right in itself.
    fn check_order(&self, number: u64, mark: &Mark, known: &KeyHistory) -> Outcome {
        // Of what other runs and other processes write and when, nothing is known.
        let is_known = mark.writer == PRELOAD_WRITER || self.shared.clients.contains(&mark.writer);
        if is_known && mark.run == self.shared.verify.run {
            if self.shared.excludes(known, mark) {
                return Err(Fault::StaleValue);
            }
            if mark.writer != PRELOAD_WRITER {
                let write = Write { writer: mark.writer, count: mark.count, begun: 0, settled: 0 };
                self.shared.learn(number, Some(write));
            }
        }
        Ok(Success::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Connect, Plan};
    use super::*;
    use crate::history::WRITES_MAX;

    const DONE: Result<Success, Fault> = Ok(Success::Done);
    const STALE: Result<Success, Fault> = Err(Fault::StaleValue);

    /// Two clients and their key.
    struct Scene {
        shared: SharedHistory,
        requests: Requests,
    }

    impl Scene {
        fn new() -> Scene {
            let plan = Plan { verify: Verify::all(), ..Plan::example("mixed") };
            Scene {
                shared: SharedHistory::new(plan.verify, &(0..2)).unwrap(),
                requests: Requests::new(&plan, Connect::Once),
            }
        }

        fn checker(&self) -> StalenessChecker<'_> {
            StalenessChecker::new(&self.shared, &self.requests, 0..2, None)
        }
    }

    impl StalenessChecker<'_> {
        fn ask(&mut self, client: usize, operation: Operation) -> Request {
            let mut request = Request::default();
            self.render(
                client,
                RequestSpec { operation, number: 7, value_bytes: 100, template: 0 },
                &mut request,
            );
            request
        }

        /// A write that is acknowledged; gives its value.
        fn write(&mut self, client: usize) -> Vec<u8> {
            let put = self.ask(client, Operation::Put);
            self.over(&put, DONE);
            value(&put)
        }

        fn over(&mut self, request: &Request, result: Result<Success, Fault>) {
            assert_eq!(self.judge(request, b"", b"", result), (result, false));
        }

        /// What a read that is sent and answered now is taken for.
        fn read(&mut self, client: usize, value: &[u8]) -> Result<Success, Fault> {
            let get = self.ask(client, Operation::Get);
            self.answered(&get, value)
        }

        fn answered(&mut self, get: &Request, value: &[u8]) -> Result<Success, Fault> {
            let (result, verified) = self.judge(get, value, b"", DONE);
            assert!(verified);
            result
        }
    }

    fn value(put: &Request) -> Vec<u8> {
        put.bytes[put.bytes.len() - 100..].to_vec()
    }

    #[test]
    fn what_a_client_has_overwritten_is_stale_for_everybody() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        let preloaded = {
            let mut put = Request::default();
            let requests = &scene.requests;
            requests.render_preload(&mut put, Operation::Put, 7);
            value(&put)
        };
        assert_eq!(checker.read(1, &preloaded), DONE);
        let first = checker.write(0);
        assert_eq!((checker.read(1, &first), checker.read(1, &preloaded)), (DONE, STALE));
        let second = checker.write(1);
        assert_eq!((checker.read(0, &second), checker.read(0, &first)), (DONE, STALE));
        let deleted = checker.ask(1, Operation::Delete);
        checker.over(&deleted, DONE);
        assert_eq!((checker.read(0, &second), checker.read(1, &first)), (STALE, STALE));
        // Another thread has the same ledger.
        let mut other = scene.checker();
        assert_eq!(other.read(0, &second), STALE);
    }

    #[test]
    fn the_preloads_value_does_not_come_back_after_a_key_was_absent() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        let mut put = Request::default();
        scene.requests.render_preload(&mut put, Operation::Put, 7);
        let get = checker.ask(0, Operation::Get);
        checker.over(&get, Ok(Success::Absent));
        assert_eq!(checker.read(1, &value(&put)), STALE);
    }

    #[test]
    fn what_was_sent_before_an_acknowledgement_may_miss_it() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        let first = checker.write(0);
        let early = checker.ask(1, Operation::Get);
        let put = checker.ask(0, Operation::Put);
        // Not acknowledged yet: either will do, and it may be seen before it is.
        assert_eq!(checker.read(1, &first), DONE);
        assert_eq!(checker.read(1, &value(&put)), DONE);
        checker.over(&put, DONE);
        assert_eq!(checker.answered(&early, &first), DONE);
        assert_eq!(checker.read(1, &first), STALE);
    }

    #[test]
    fn reads_of_one_writer_do_not_go_back() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        let first = checker.write(0);
        let put = checker.ask(0, Operation::Put);
        assert_eq!(checker.read(1, &value(&put)), DONE);
        assert_eq!(checker.read(1, &first), STALE);
    }

    #[test]
    fn writes_that_overlap_have_no_order() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        // Of one client, as in an open loop, and of two.
        for other in [0, 1] {
            let (one, two) = (checker.ask(0, Operation::Put), checker.ask(other, Operation::Put));
            checker.over(&two, DONE);
            checker.over(&one, DONE);
            for put in [&one, &two, &one] {
                assert_eq!(checker.read(1, &value(put)), DONE, "{other}");
            }
            let last = checker.write(0);
            for put in [&one, &two] {
                assert_eq!(checker.read(1, &value(put)), STALE, "{other}");
            }
            assert_eq!(checker.read(1, &last), DONE);
        }
    }

    #[test]
    fn a_write_of_unknown_outcome_may_take_effect_at_any_time() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        let lost = checker.ask(0, Operation::Put);
        checker.over(&lost, Err(Fault::Timeout));
        let next = checker.write(0);
        assert_eq!(checker.read(1, &next), DONE);
        // Late, but nobody said when it would be.
        assert_eq!(checker.read(1, &value(&lost)), DONE);
        // It was seen, so what is written now is newer.
        let last = checker.write(1);
        assert_eq!((checker.read(1, &last), checker.read(1, &value(&lost))), (DONE, STALE));
    }

    #[test]
    fn of_other_runs_nothing_is_known() {
        let (scene, other) = (Scene::new(), Scene::new());
        let theirs = other.checker().write(0);
        let mut checker = scene.checker();
        for _ in 0..2 {
            checker.write(0);
            assert_eq!(checker.read(1, &theirs), DONE);
        }
    }

    #[test]
    fn what_is_forgotten_is_never_taken_for_stale() {
        let scene = Scene::new();
        let mut checker = scene.checker();
        let values: Vec<Vec<u8>> = (0..WRITES_MAX + 2).map(|_| checker.write(0)).collect();
        let last = checker.write(1);
        assert_eq!(checker.read(1, &last), DONE);
        // By its number, though its own row is gone.
        assert_eq!(checker.read(1, &values[0]), STALE);
        for number in 0..4 * KEYS_MAX as u64 {
            scene.shared.learn(number + 8, None);
        }
        assert_eq!(checker.read(1, &values[0]), DONE);
    }

    #[test]
    fn whatever_a_linearizable_store_answers_is_never_stale() {
        use rand_xoshiro::rand_core::{Rng, SeedableRng};
        let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(5);
        let scene = Scene::new();
        let mut checker = scene.checker();
        // Each request takes effect at one instant between its sending and its answer; some writes are given up first.
        let mut stored: Option<Vec<u8>> = None;
        let mut sent: Vec<(Request, Operation)> = Vec::new();
        let mut applied: Vec<(Request, Result<Success, Fault>, Vec<u8>)> = Vec::new();
        let mut abandoned: Vec<Request> = Vec::new();
        let mut reads = 0;
        for _ in 0..200_000 {
            match random.next_u64() % 16 {
                0..=4 if sent.len() < 6 => {
                    let operation = [Operation::Get, Operation::Put, Operation::Delete, Operation::Get]
                        [random.next_u64() as usize % 4];
                    let client = random.next_u64() as usize % 2;
                    sent.push((checker.ask(client, operation), operation));
                }
                5..=9 if !sent.is_empty() => {
                    let (request, operation) = sent.swap_remove(random.next_u64() as usize % sent.len());
                    match operation {
                        Operation::Put => stored = Some(value(&request)),
                        Operation::Delete => stored = None,
                        _ => {}
                    }
                    let found = match operation == Operation::Get {
                        true => stored.clone(),
                        false => Some(Vec::new()),
                    };
                    let result = if found.is_some() { DONE } else { Ok(Success::Absent) };
                    applied.push((request, result, found.unwrap_or_default()));
                }
                10..=13 if !applied.is_empty() => {
                    let place = random.next_u64() as usize % applied.len();
                    let (request, result, body) = applied.swap_remove(place);
                    let (judged, verified) = checker.judge(&request, &body, b"", result);
                    assert_eq!(judged, result);
                    reads += u64::from(verified);
                }
                14 if !sent.is_empty() => {
                    let (request, operation) = sent.swap_remove(random.next_u64() as usize % sent.len());
                    checker.over(&request, Err(Fault::Timeout));
                    if operation == Operation::Put {
                        abandoned.push(request);
                    }
                }
                // Once at most, but whenever it likes.
                15 if !abandoned.is_empty() => {
                    let late = abandoned.swap_remove(random.next_u64() as usize % abandoned.len());
                    stored = Some(value(&late));
                }
                _ => {}
            }
        }
        assert!(reads > 5000, "{reads}");
    }
}
