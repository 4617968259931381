//! T5: every fault falls into its class, and nothing else does.
//!
//! Many clients in a closed loop against a responder that has a shuffled schedule of faults and good answers, and answers 404
//! to whatever comes after its end. All counts are compared to the last one: those of the schedule do not depend on when
//! the window ends. Connections that were refused leave no trace with the responder, but each client counts in its keys.

use super::{Bench, Outcome};
use kv::proto::{LoadReport, Truth};
use kv::units::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A kind of answer of the responder, and the load generator's class of it.
struct Kind {
    name: &'static str,
    class: &'static str,
    /// How many.
    count: u32,
    count_short: u32,
}

const fn kind(name: &'static str, class: &'static str, count: u32, count_short: u32) -> Kind {
    Kind { name, class, count, count_short }
}

/// What is in the schedule. Each client rests after a broken connection, and waits for what never comes, so most faults are
/// of those that keep the connection. No two classes have the same total: two that change places do not go unseen.
const KINDS: &[Kind] = &[
    kind("reset", "reset", 1001, 41),
    kind("reset_in_body", "reset", 501, 21),
    kind("closed", "reset", 1001, 41),
    kind("closed_in_head", "closed_early", 1003, 41),
    kind("closed_in_body", "closed_early", 1006, 44),
    kind("long_body", "wrong_length", 1007, 46),
    kind("two_lengths", "wrong_length", 1012, 51),
    kind("garbage", "malformed", 1013, 43),
    kind("slow_body", "slow_body", 251, 5),
    kind("silence", "timeout", 263, 7),
    kind("wrong_value", "wrong_value", 12_001, 201),
    kind("status_400", "http_4xx", 10_003, 181),
    kind("status_403", "http_4xx", 10_004, 182),
    kind("status_429", "http_429", 12_011, 211),
    kind("status_500", "http_5xx", 12_021, 203),
    kind("status_503", "http_5xx", 6002, 124),
    kind("status_503_not_applied", "http_503_not_applied", 10_013, 207),
    kind("status_503_unknown", "http_503_unknown", 10_033, 219),
    kind("status_504", "http_504", 10_051, 223),
];
/// Good answers among them.
const GOOD: u32 = 60_000;
const GOOD_SHORT: u32 = 2000;
/// The class of connections that nobody took.
const REFUSED: &str = "refused";

const CLIENTS: u32 = 200;
const CLIENTS_SHORT: u32 = 40;
/// For how long nobody listens.
const REFUSAL: Duration = Duration::from_millis(300);
const REFUSAL_SHORT: Duration = Duration::from_millis(100);
/// Much longer than anybody is kept waiting by a busy machine: a time-out then is one of the schedule.
const TIMEOUT: Duration = Duration::from_secs(1);
/// In the short form there are fewer silent faults than clients, so that most of them wait at the same time.
const TIMEOUT_SHORT: Duration = Duration::from_secs(2);
/// How late a time-out may be noticed.
const LATE: Duration = Duration::from_millis(200);
/// The first window. A machine that cannot do so much in it gets one of twice the length.
const WINDOW: Duration = Duration::from_secs(6);
const WINDOW_SHORT: Duration = Duration::from_millis(2700);
const WINDOW_MAX: Duration = Duration::from_secs(100);
/// More keys than any client asks for. The n-th client begins at n times as many.
const KEYS_PER_CLIENT: u64 = 1_000_000_000;

const BOUND: &str = "none, exact";

/// Runs it.
pub(super) fn run(bench: &Bench) -> Result<Outcome, String> {
    let mut window = if bench.short { WINDOW_SHORT } else { WINDOW };
    loop {
        let (report, truth) = load(bench, window)?;
        // What was handed out last may still be waited for.
        let timeout = if bench.short { TIMEOUT_SHORT } else { TIMEOUT };
        let ends = truth.schedule_secs.map(|secs| secs + (timeout + LATE).as_secs_f64());
        if ends.is_some_and(|secs| secs < report.window_secs) {
            return Ok(compare(&report, &truth));
        }
        window *= 2;
        if window > WINDOW_MAX {
            return Err("the faults do not come to their end on this machine".to_owned());
        }
    }
}

fn load(bench: &Bench, window: Duration) -> Result<(LoadReport, Truth), String> {
    let short = bench.short;
    let (clients, refusal, timeout) = match short {
        true => (CLIENTS_SHORT, REFUSAL_SHORT, TIMEOUT_SHORT),
        false => (CLIENTS, REFUSAL, TIMEOUT),
    };
    let mut schedule = format!("good={}", if short { GOOD_SHORT } else { GOOD });
    for kind in KINDS {
        schedule += &format!(",{}={}", kind.name, if short { kind.count_short } else { kind.count });
    }
    let flags = format!(
        "--faults {schedule} --refuse {clients}:{} --keys-per-client {KEYS_PER_CLIENT}",
        Span(refusal)
    );
    let flags: Vec<String> = flags.split(' ').map(str::to_owned).collect();
    let responder = bench.responder(&flags)?;
    // Reads for which 404 is a good answer, of keys in which each client counts.
    let flags = format!(
        "--workload mixed --mix get=1 --distribution scan --keys {} --no-preload --clients {clients} --threads 1 \
         --warmup 0s --window {} --timeout {}",
        u64::from(clients) * KEYS_PER_CLIENT,
        Span(window),
        Span(timeout),
    );
    let report = bench.load(&responder, window, &flags)?;
    Ok((report, responder.truth()?))
}

/// The generator's account beside the responder's.
fn compare(report: &LoadReport, truth: &Truth) -> Outcome {
    let did = |kind: &str| truth.answers.get(kind).copied().unwrap_or(0);
    let mut true_counts: BTreeMap<&str, u64> = BTreeMap::from([(REFUSED, truth.never_came)]);
    for kind in KINDS {
        *true_counts.entry(kind.class).or_default() += did(kind.name);
    }
    let mut outcome = Outcome::new(BOUND);
    let mut wrong = Vec::new();
    let mut check = |what: &str, said: u64, from: u64, to: u64| {
        if said < from || said > to {
            let was = if from == to { from.to_string() } else { format!("{from} to {to}") };
            wrong.push(format!("{what} {said} where it was {was}"));
        }
    };

    // A class that nothing should fall into has to be empty.
    let classes = true_counts.keys().copied().chain(report.errors.keys().map(String::as_str));
    let classes: BTreeSet<&str> = classes.collect();
    let (mut lacking, mut surplus) = (0, 0);
    for class in classes {
        let count = true_counts.get(class).copied().unwrap_or(0);
        let said = report.errors.get(class).copied().unwrap_or(0);
        check(class, said, count, count);
        lacking += count.saturating_sub(said);
        surplus += said.saturating_sub(count);
        outcome.figure(&format!("{class}_count"), count as f64);
    }

    let absent: u64 = report.operations.iter().map(|operation| operation.absent).sum();
    let good = did("good");
    check("good answers", report.successes.saturating_sub(absent), good, good);
    // These go on to the end of the window: some were on their way then, and some clients sent one more before they stopped.
    let clients = u64::from(report.clients);
    let late = did("absent").saturating_sub(report.in_flight_at_end + clients);
    check("answers after the schedule", absent, late, did("absent"));
    // More would excuse any number of answers that were lost.
    check("requests in flight at the end", report.in_flight_at_end, 0, clients);
    let failed: u64 = report.errors.values().sum();
    check("attempts", report.attempts, report.successes + failed, report.successes + failed);
    let goodput = (report.goodput_rps * report.window_secs).round() as u64;
    check("goodput × window", goodput, report.successes, report.successes);

    let faults: u64 = true_counts.values().sum();
    let misclassified = lacking.max(surplus);
    outcome.holds(wrong.is_empty());
    outcome.figure("faults_count", faults as f64);
    outcome.figure("misclassified_count", misclassified as f64);
    outcome.figure("good_count", good as f64);
    outcome.figure("good_said_count", report.successes.saturating_sub(absent) as f64);
    outcome.measured = match wrong.is_empty() {
        true => format!("{faults} faults, none misclassified, {good} good answers counted as such"),
        false => format!("of {faults} faults {misclassified} misclassified: {}", wrong.join(", ")),
    };
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::OperationReport;

    /// What a generator says that sees everything as it is.
    fn accounts() -> (LoadReport, Truth) {
        let mut answers: BTreeMap<String, u64> =
            KINDS.iter().map(|kind| (kind.name.to_owned(), u64::from(kind.count_short))).collect();
        answers.extend([("good".to_owned(), 2000), ("absent".to_owned(), 500)]);
        let truth = Truth { answers, never_came: 77, ..Truth::default() };
        let mut errors = BTreeMap::from([(REFUSED.to_owned(), 77)]);
        for kind in KINDS {
            *errors.entry(kind.class.to_owned()).or_default() += u64::from(kind.count_short);
        }
        // Ten of the answers after the schedule were on their way at the end.
        let report = LoadReport {
            attempts: 2490 + errors.values().sum::<u64>(),
            successes: 2490,
            goodput_rps: 1245.0,
            window_secs: 2.0,
            clients: 5,
            in_flight_at_end: 5,
            operations: vec![OperationReport { absent: 490, ..OperationReport::default() }],
            errors,
            ..LoadReport::default()
        };
        (report, truth)
    }

    /// What comes of the accounts after a change to the generator's.
    fn check(change: impl Fn(&mut LoadReport), complaint: &str) {
        let (mut report, truth) = accounts();
        change(&mut report);
        let Outcome { passed, measured, .. } = compare(&report, &truth);
        assert_eq!(passed, complaint.is_empty(), "{measured}");
        assert!(measured.contains(complaint), "{measured}");
    }

    #[test]
    fn two_classes_that_change_places_are_seen() {
        let count = |kind: &Kind, short: bool| if short { kind.count_short } else { kind.count };
        for (short, clients, good) in [(false, CLIENTS, GOOD), (true, CLIENTS_SHORT, GOOD_SHORT)] {
            // Each client is reset once more before it is refused.
            let mut totals = BTreeMap::from([("reset", clients), ("good", good)]);
            for kind in KINDS {
                *totals.entry(kind.class).or_default() += count(kind, short);
            }
            let distinct: BTreeSet<u32> = totals.values().copied().collect();
            assert_eq!(distinct.len(), totals.len(), "{totals:?}");
            // As a rule each client is refused equally often, so that this total is a multiple of their number.
            assert!(
                totals.iter().all(|(class, total)| *class == "good" || total % clients != 0),
                "{totals:?}"
            );
        }
        assert!(KINDS.iter().map(|kind| kind.count).sum::<u32>() >= 100_000);
        let silent = |kind: &&Kind| ["slow_body", "silence"].contains(&kind.name);
        assert!(KINDS.iter().filter(silent).map(|kind| kind.count_short).sum::<u32>() < CLIENTS_SHORT);
        let swapped = |report: &mut LoadReport| {
            let [slow, timeout] = ["slow_body", "timeout"].map(|class| report.errors[class]);
            report.errors.extend([("slow_body".to_owned(), timeout), ("timeout".to_owned(), slow)]);
        };
        check(swapped, "slow_body 7 where it was 5, timeout 5 where it was 7");
    }

    #[test]
    fn accounts_that_agree_pass_and_others_do_not() {
        check(|_| {}, "");
        let moved = |report: &mut LoadReport| {
            *report.errors.get_mut("http_429").unwrap() -= 1;
            *report.errors.get_mut("http_4xx").unwrap() += 1;
        };
        check(moved, "1 misclassified: http_429 210 where it was 211, http_4xx 364 where it was 363");
        check(|report| *report.errors.get_mut("refused").unwrap() -= 2, "2 misclassified: refused 75");
        check(
            |report| {
                report.errors.remove("slow_body");
            },
            "slow_body 0 where it was 5",
        );
        check(
            |report| {
                report.errors.insert("stale_value".to_owned(), 3);
            },
            "stale_value 3 where it was 0",
        );
    }

    #[test]
    fn goodput_is_compared_to_the_last_answer() {
        check(|report| report.successes -= 1, "good answers 1999 where it was 2000");
        check(|report| report.operations[0].absent += 11, "answers after the schedule 501");
        check(|report| report.in_flight_at_end = 4, "answers after the schedule 490 where it was 491");
        check(|report| report.in_flight_at_end = 6, "in flight at the end 6 where it was 0 to 5");
        check(|report| report.attempts += 1, "attempts ");
        check(|report| report.goodput_rps *= 1.01, "goodput × window 2515 where it was 2490");
    }
}
