//! Histories made by hand and at random; the random ones are judged a second time by trying all orders.

use super::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::time::Instant;

const ABSENT: Value = Value::ABSENT;
const IF_ABSENT: Action = Action::WriteIf(ABSENT);

fn call(invoked: u64, returned: u64, action: Action, value: u64) -> Call {
    let outcome = Outcome::Done;
    Call { key: 0, client: 1, invoked, returned, action, value: Value(value), outcome }
}

fn put(invoked: u64, returned: u64, value: u64) -> Call {
    call(invoked, returned, Action::Write, value)
}

fn delete(invoked: u64, returned: u64) -> Call {
    put(invoked, returned, 0)
}

fn get(invoked: u64, returned: u64, value: u64) -> Call {
    call(invoked, returned, Action::Get, value)
}

fn put_if(invoked: u64, returned: u64, expected: u64, value: u64) -> Call {
    call(invoked, returned, Action::WriteIf(Value(expected)), value)
}

fn ending(outcome: Outcome, call: Call) -> Call {
    Call { outcome, ..call }
}

fn unknown(call: Call) -> Call {
    ending(Outcome::Unknown, call)
}

fn refused(call: Call) -> Call {
    ending(Outcome::PreconditionFailed, call)
}

/// Whether a key that was absent may have had this history.
fn judge(history: &[Call]) -> bool {
    let mut history = history.to_vec();
    history.sort_by_key(|call| call.invoked);
    is_linearizable(&history, Some(ABSENT)).unwrap()
}

#[test]
fn each_kind_of_violation_is_found() {
    for (name, history) in [
        ("stale read", vec![put(0, 1, 1), put(2, 3, 2), get(4, 5, 1)]),
        ("stale read after a read", vec![put(0, 9, 1), put(0, 9, 2), get(10, 11, 1), get(12, 13, 2)]),
        ("absent after a put", vec![put(0, 1, 1), get(2, 3, 0)]),
        ("lost update", vec![put(0, 1, 1), put_if(2, 9, 1, 2), put_if(3, 8, 1, 3)]),
        ("resurrected delete", vec![put(0, 1, 1), delete(2, 3), get(4, 5, 1)]),
        ("resurrected delete, seen both ways", vec![put(0, 1, 1), delete(2, 9), get(3, 4, 0), get(5, 6, 1)]),
        (
            "reordered conditional writes",
            vec![put(0, 1, 1), put_if(2, 3, 2, 3), put_if(4, 5, 1, 2), get(6, 7, 2)],
        ),
        ("two writes if absent", vec![call(0, 5, IF_ABSENT, 1), call(1, 6, IF_ABSENT, 2)]),
        ("a precondition that held", vec![put(0, 1, 1), refused(put_if(2, 3, 1, 2))]),
        ("a value that nobody wrote", vec![put(0, 1, 1), get(2, 3, 9)]),
        ("a value from the future", vec![get(0, 1, 1), put(2, 3, 1)]),
        ("a write that was not applied", vec![ending(Outcome::NotApplied, put(0, 1, 1)), get(2, 3, 1)]),
        (
            "an unknown write that comes and goes",
            vec![put(0, 1, 1), unknown(put(2, NEVER, 2)), get(3, 4, 2), get(5, 6, 1)],
        ),
    ] {
        assert!(!judge(&history), "{name}");
    }
}

#[test]
fn odd_histories_that_have_an_order_pass() {
    for (name, history) in [
        ("nothing", vec![]),
        ("two writes at once, in this order", vec![put(0, 9, 1), put(0, 9, 2), get(10, 11, 1)]),
        ("two writes at once, in that order", vec![put(0, 9, 1), put(0, 9, 2), get(10, 11, 2)]),
        ("a read at once with a write, before it", vec![put(0, 1, 1), put(2, 9, 2), get(3, 8, 1)]),
        (
            "an unknown write is seen late",
            vec![unknown(put(0, 1, 1)), put(2, 3, 2), get(4, 5, 2), get(6, 7, 1)],
        ),
        ("an unknown write is never seen", vec![put(0, 1, 1), unknown(put(2, NEVER, 2)), get(3, 4, 1)]),
        (
            "an unknown delete is seen late",
            vec![put(0, 1, 1), unknown(delete(2, 3)), get(4, 5, 1), get(6, 7, 0)],
        ),
        (
            "an unknown put makes a condition fail",
            vec![unknown(put(0, 1, 1)), refused(call(2, 3, IF_ABSENT, 2))],
        ),
        (
            "an unknown write if absent is deleted",
            vec![unknown(call(0, 1, IF_ABSENT, 1)), delete(2, 3), call(4, 5, IF_ABSENT, 2)],
        ),
        (
            "unknown conditional writes one after the other",
            vec![
                unknown(put(0, 1, 1)),
                unknown(put_if(2, 3, 1, 2)),
                unknown(put_if(4, 5, 2, 3)),
                get(6, 7, 3),
            ],
        ),
        (
            "a delete hides no put from a condition",
            vec![put(0, 1, 1), delete(2, 9), put(2, 9, 2), get(3, 4, 0), refused(call(5, 6, IF_ABSENT, 3))],
        ),
    ] {
        assert!(judge(&history), "{name}");
    }
}

#[test]
fn what_was_there_before_may_be_anything_unless_it_is_known() {
    for initial in [None, Some(Value::PRELOADED)] {
        let known = initial.is_some();
        for (expected, history) in [
            (true, vec![get(0, 1, Value::PRELOADED.0), put(2, 3, 1)]),
            (!known, vec![get(0, 1, 0), put(2, 3, 1)]),
            (!known, vec![get(0, 1, Value::OTHER.0), put(2, 3, 1)]),
            (true, vec![refused(call(0, 1, IF_ABSENT, 1))]),
            (!known, vec![call(0, 1, IF_ABSENT, 1)]),
            (false, vec![put(0, 1, 1), get(2, 3, Value::OTHER.0)]),
            (false, vec![ending(Outcome::NotApplied, put(0, 1, 1)), get(2, 3, 1)]),
            (false, vec![refused(call(0, 1, IF_ABSENT, 1)), get(2, 3, 1)]),
        ] {
            assert_eq!(is_linearizable(&history, initial), Some(expected), "{initial:?} {history:?}");
        }
    }
}

/// Whether the calls of `left` can follow one another from `value` on, by trying all orders.
fn has_order(calls: &[Call], left: u32, value: Value) -> bool {
    let is_left = |at: &usize| left >> at & 1 == 1;
    let all = || (0..calls.len()).filter(is_left);
    if all().all(|at| calls[at].outcome == Outcome::Unknown) {
        return true;
    }
    let ends = |call: &Call| if call.outcome == Outcome::Unknown { NEVER } else { call.returned };
    all().any(|at| {
        let call = &calls[at];
        let holds = match call.action {
            Action::Get => value == call.value || call.outcome == Outcome::Unknown,
            Action::Write => true,
            Action::WriteIf(expected) => (value == expected) == (call.outcome != Outcome::PreconditionFailed),
        };
        let next = if call.writes() { call.value } else { value };
        holds
            && all().all(|other| ends(&calls[other]) >= call.invoked)
            && has_order(calls, left & !(1 << at), next)
    })
}

/// Calls that a register answered, or (if it `lies`) some of them otherwise.
fn random_history(random: &mut Xoshiro256PlusPlus, lies: bool) -> Vec<Call> {
    let mut below = |limit: u64| random.next_u64() % limit;
    let mut holds = ABSENT;
    let mut calls: Vec<Call> = Vec::new();
    for number in 1..=3 + below(6) {
        // It takes effect somewhere in the middle, and calls overlap.
        let at = number * 4;
        let (invoked, returned) = (at - below(10).min(at), at + 1 + below(10));
        let written = Value(if below(4) == 0 { 0 } else { number });
        let expected = Value(below(number));
        let (action, value) = match below(6) {
            0 | 1 => (Action::Get, if lies && below(4) == 0 { Value(below(number)) } else { holds }),
            2 | 3 => (Action::Write, written),
            4 => (IF_ABSENT, written),
            _ => (Action::WriteIf(expected), written),
        };
        let mut outcome = Outcome::Done;
        let condition = if let Action::WriteIf(expected) = action { expected == holds } else { true };
        if !condition || lies && action != Action::Get && action != Action::Write && below(8) == 0 {
            outcome = Outcome::PreconditionFailed;
        }
        if below(5) == 0 {
            outcome = Outcome::Unknown;
        } else if below(12) == 0 {
            outcome = Outcome::NotApplied;
        }
        let applies = match outcome {
            Outcome::Unknown => condition && below(2) == 0,
            _ => outcome == Outcome::Done && condition,
        };
        if applies && action != Action::Get && !(lies && below(8) == 0) {
            holds = value;
        }
        calls.push(Call { outcome, ..call(invoked, returned, action, value.0) });
    }
    calls.sort_by_key(|call| call.invoked);
    calls
}

#[test]
fn verdicts_on_random_histories_are_those_of_trying_all_orders() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(14);
    let mut violations = 0;
    for round in 0..30_000 {
        let history = random_history(&mut random, round % 2 == 0);
        let kept: Vec<Call> =
            history.iter().filter(|call| call.outcome != Outcome::NotApplied).copied().collect();
        let expected = has_order(&kept, (1 << kept.len()) - 1, ABSENT);
        let lines: Vec<String> = history.iter().map(Call::to_string).collect();
        assert_eq!(is_linearizable(&history, Some(ABSENT)), Some(expected), "{}", lines.join("\n"));
        assert!(expected || round % 2 == 0, "{}", lines.join("\n"));
        // Nothing may be called a violation that was explained by what is left out.
        for call in 0..if expected { history.len() } else { 0 } {
            let fewer = shrink::without(&history, call..call + 1);
            assert_ne!(is_linearizable(&fewer, Some(ABSENT)), Some(false), "{}", lines.join("\n"));
        }
        if !expected {
            violations += 1;
            let few = shrink::shrink(&history, Some(ABSENT));
            assert!(!has_order(&few, (1 << few.len()) - 1, ABSENT) && few.len() <= history.len());
        }
    }
    assert!(violations > 2_000, "{violations}");
}

/// What `clients` saw of a register under each of `keys` keys, and were told in time, but for a few.
fn long_history(random: &mut Xoshiro256PlusPlus, calls: u64, keys: u64, clients: u64) -> Vec<Call> {
    let mut below = |limit: u64| random.next_u64() % limit;
    let mut holds = vec![ABSENT; keys as usize];
    let call = |number: u64| {
        // About as many overlap as there are clients.
        let at = (number + clients) * 100;
        let (invoked, returned) = (at - below(50 * clients), at + 1 + below(50 * clients));
        let (key, client) = (below(keys), (number % clients) as u32);
        let held = &mut holds[key as usize];
        let (action, value) = match below(10) {
            0..5 => (Action::Get, *held),
            5..8 => (Action::Write, Value::written(client, number + 1)),
            _ => (Action::Write, ABSENT),
        };
        let is_lost = action != Action::Get && below(5_000) == 0;
        if action != Action::Get {
            *held = value;
        }
        let outcome = if is_lost { Outcome::Unknown } else { Outcome::Done };
        Call { key, client, invoked, returned, action, value, outcome }
    };
    (0..calls).map(call).collect()
}

#[test]
fn long_histories_are_judged_and_a_violation_in_them_is_shown_in_few_lines() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    for (calls, keys, clients) in [(20_000, 20, 32), (3_000, 1, 16), (5_000, 1, 4)] {
        let mut history = long_history(&mut random, calls, keys, clients);
        let judged = |history: &[Call]| check(history.to_vec(), |_| Some(ABSENT), |key| format!("key_{key}"));
        let report = judged(&history);
        assert_eq!(
            (report.operations, report.keys, report.violations, report.not_decided),
            (calls, keys, 0, 0)
        );
        let is_old = |call: &&Call| call.key == 0 && call.action == Action::Write && call.value != ABSENT;
        let old = history.iter().find(is_old).unwrap().value;
        let late = history.iter().map(|call| call.returned).max().unwrap() + 1;
        history.push(get(late, late + 1, old.0));
        let report = judged(&history);
        assert_eq!((report.violations, report.key.as_deref()), (1, Some("key_0")));
        assert!((2..=6).contains(&report.history.len()), "{:#?}", report.history);
    }
}

#[test]
fn deletes_that_do_not_explain_a_read_are_not_shown() {
    let deleted = |start: u64| [put(start, start + 1, start + 1), delete(start + 2, start + 3)];
    let mut history: Vec<Call> = (0..400).step_by(4).flat_map(deleted).collect();
    history.extend([put(400, 401, 401), get(402, 403, 0), delete(404, 405)]);
    assert_eq!(shrink::shrink(&history, None), history[200..202]);
}

#[test]
fn a_call_takes_the_memory_that_the_reference_says() {
    assert_eq!(size_of::<Call>(), 56);
}

#[test]
fn a_call_is_a_line_with_its_times() {
    let lines = [get(1_500_000, 2_500_000, 0), unknown(put_if(0, NEVER, 0, Value::written(3, 17).0))];
    assert_eq!(
        lines.map(|call| call.to_string()),
        [
            "   0.001500 s to    0.002500 s  client 1   get: absent",
            "   0.000000 s to         never  client 1   put value 3.17 if absent: outcome unknown",
        ]
    );
}

/// `cargo test --release -p load -- --ignored --nocapture million`
#[test]
#[ignore = "a measurement"]
fn a_million_calls_of_a_thousand_keys_take_less_than_a_minute() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    let calls = long_history(&mut random, 1_000_000, 1_000, 64);
    let begun = Instant::now();
    let report = check(calls, |_| Some(ABSENT), |key| key.to_string());
    let took = begun.elapsed();
    assert_eq!((report.keys, report.violations, report.not_decided), (1_000, 0, 0));
    assert!(took.as_secs() < 60, "{took:?}");
    std::io::Write::write_all(&mut std::io::stderr(), format!("judged in {took:?}\n").as_bytes()).unwrap();
}
