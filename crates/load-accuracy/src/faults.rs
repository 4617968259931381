//! The fault check: every fault is counted in its error class, and nothing else is.
//!
//! Many clients in a closed loop against a responder that has a shuffled schedule of faults and good answers, and answers 404
//! after its end. All counts are compared to the last one: those of the schedule do not depend on when the window ends.
//! The responder does not see connections that were refused, but each client counts in its keys.

use super::cores::{beside, longest_pause};
use super::{Setup, add, passing};
use crate::responder::{ANSWERS, Options, Record, Refusal, schedule};
use kv::proto::{AccuracyCheck, CheckOutcome, LoadReport};
use kv::units::Span;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The class of connections that were refused.
const REFUSED: &str = "refused";
/// How late a time-out may be noticed.
const LATE: Duration = Duration::from_millis(200);
/// The longest window.
const WINDOW_MAX: Duration = Duration::from_secs(100);
/// More keys than any client asks for. The n-th client begins at n times as many.
const KEYS_PER_CLIENT: u64 = 1_000_000_000;
const SEED: u64 = 1;
const BOUND: &str = "each fault counted as what it is, counts exact";

/// The size of the check.
struct Size {
    clients: u32,
    /// For how long connections are refused.
    refusal: Duration,
    /// Much longer than a busy machine lets anybody wait: a time-out then is one of the schedule.
    timeout: Duration,
    /// The first window. A machine that is too slow for it gets one of twice the length.
    window: Duration,
}

const SIZE: Size = Size {
    clients: 200,
    refusal: Duration::from_millis(300),
    timeout: Duration::from_secs(1),
    window: Duration::from_secs(6),
};
/// Fewer faults are silent than there are clients, so that most of them wait at the same time.
const SIZE_SHORT: Size = Size {
    clients: 40,
    refusal: Duration::from_millis(100),
    timeout: Duration::from_secs(2),
    window: Duration::from_millis(2700),
};

pub(super) fn run(setup: &Setup) -> Result<AccuracyCheck, String> {
    let size = if setup.options.short { SIZE_SHORT } else { SIZE };
    let mut window = size.window * setup.options.times();
    while window <= WINDOW_MAX {
        let (loaded, pause) = beside(setup.options.cores, longest_pause, || load(setup, &size, window));
        let (report, record) = loaded?;
        // The last answer of the schedule may still be waited for.
        let ends = record.schedule_secs.map(|secs| secs + (size.timeout + LATE).as_secs_f64());
        if ends.is_some_and(|secs| secs < report.window_secs) {
            let mut check = compare(&report, &record, setup.options.http2);
            // Good answers then time out, too.
            if check.outcome == CheckOutcome::Fail && pause > size.timeout / 2 {
                check.outcome = CheckOutcome::NotChecked;
                check.measured = format!("this machine stood still for {:.1} s", pause.as_secs_f64());
            }
            return Ok(check);
        }
        window *= 2;
    }
    Err("this machine is too slow for so many faults".to_owned())
}

fn load(setup: &Setup, size: &Size, window: Duration) -> Result<(LoadReport, Record), String> {
    let Size { clients, refusal, timeout, .. } = *size;
    let options = Options {
        schedule: Some(schedule(setup.options.short, setup.options.http2, SEED)),
        refusal: Some(Refusal { clients: clients as usize, length: refusal }),
        keys_per_client: Some(KEYS_PER_CLIENT),
        ..Options::default()
    };
    // Reads for which 404 is a good answer, of keys in which each client counts.
    let flags = format!(
        "--workload mixed --mix get=1 --distribution scan --keys {} --clients {clients} --timeout {}",
        u64::from(clients) * KEYS_PER_CLIENT,
        Span(timeout),
    );
    setup.load(options, [Duration::ZERO, window], &flags)
}

/// Compares the generator's report with the responder's record.
fn compare(report: &LoadReport, record: &Record, http2: bool) -> AccuracyCheck {
    let did = |kind: &str| record.answers.get(kind).copied().unwrap_or(0);
    let mut true_counts: BTreeMap<&str, u64> = BTreeMap::from([(REFUSED, record.refused)]);
    for kind in ANSWERS {
        if let Some(class) = kind.class(http2).filter(|class| !class.is_empty()) {
            *true_counts.entry(class).or_default() += did(kind.name);
        }
    }
    let mut of_faults = passing(BOUND);
    let mut wrong = Vec::new();
    let mut check = |what: &str, said: u64, from: u64, to: u64| {
        if said < from || said > to {
            let was = if from == to { from.to_string() } else { format!("{from} to {to}") };
            wrong.push(format!("{what} {said} where it was {was}"));
        }
    };

    // A class without faults has to be empty.
    let classes = true_counts.keys().copied().chain(report.errors.keys().map(String::as_str));
    let classes: BTreeSet<&str> = classes.collect();
    let (mut lacking, mut surplus) = (0, 0);
    for class in classes {
        let count = true_counts.get(class).copied().unwrap_or(0);
        let said = report.errors.get(class).copied().unwrap_or(0);
        check(class, said, count, count);
        lacking += count.saturating_sub(said);
        surplus += said.saturating_sub(count);
        of_faults.figures.insert(format!("{class}_count"), count as f64);
    }

    let absent: u64 = report.operations.iter().map(|operation| operation.absent).sum();
    let good = did("good");
    let good_said = report.successes.saturating_sub(absent);
    check("good answers", good_said, good, good);
    // These go on to the end of the window: some were in flight then, and some clients sent one more before they stopped.
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
    add(&mut of_faults, [("faults_count", faults as f64), ("misclassified_count", misclassified as f64)]);
    add(&mut of_faults, [("good_count", good as f64), ("good_said_count", good_said as f64)]);
    of_faults.measured = format!(
        "{faults} faults, each counted as what it is (timeout, reset, …); {good} good answers counted"
    );
    if !wrong.is_empty() {
        of_faults.outcome = CheckOutcome::Fail;
        of_faults.measured =
            format!("of {faults} faults {misclassified} counted as another kind: {}", wrong.join(", "));
    }
    of_faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responder::AnswerKind;
    use kv::proto::OperationReport;

    fn faults() -> impl Iterator<Item = &'static AnswerKind> {
        ANSWERS.iter().filter(|kind| kind.class(false).is_some_and(|class| !class.is_empty()))
    }

    /// What a generator says that sees everything as it is.
    fn pair() -> (LoadReport, Record) {
        let mut answers: BTreeMap<&str, u64> =
            ANSWERS.iter().map(|kind| (kind.name, u64::from(kind.count_short))).collect();
        answers.insert("absent", 500);
        let record = Record { answers, refused: 77, ..Record::default() };
        let mut errors = BTreeMap::from([(REFUSED.to_owned(), 77)]);
        for kind in faults() {
            *errors.entry(kind.class(false).unwrap().to_owned()).or_default() += u64::from(kind.count_short);
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
        (report, record)
    }

    /// What comes of the accounts after a change to the generator's.
    fn check(change: impl Fn(&mut LoadReport), complaint: &str) {
        let (mut report, record) = pair();
        change(&mut report);
        let AccuracyCheck { outcome, measured, .. } = compare(&report, &record, false);
        assert_eq!(outcome == CheckOutcome::Pass, complaint.is_empty(), "{measured}");
        assert!(measured.contains(complaint), "{measured}");
    }

    #[test]
    fn two_classes_that_change_places_are_seen() {
        let count = |kind: &AnswerKind, short: bool| if short { kind.count_short } else { kind.count };
        let sizes = [(false, SIZE.clients), (true, SIZE_SHORT.clients)];
        for ((short, clients), http2) in sizes.into_iter().flat_map(|size| [(size, false), (size, true)]) {
            // Each client is reset once more before it is refused.
            let mut totals = BTreeMap::from([("reset", clients), ("good", count(&ANSWERS[0], short))]);
            for kind in ANSWERS {
                if let Some(class) = kind.class(http2).filter(|class| !class.is_empty()) {
                    *totals.entry(class).or_default() += count(kind, short);
                }
            }
            let distinct: BTreeSet<u32> = totals.values().copied().collect();
            assert_eq!(distinct.len(), totals.len(), "{totals:?}");
            // As a rule each client is refused equally often, so that this total is a multiple of their number.
            assert!(
                totals.iter().all(|(class, total)| *class == "good" || total % clients != 0),
                "{totals:?}"
            );
        }
        assert!(faults().map(|kind| kind.count).sum::<u32>() >= 100_000);
        let silent = |kind: &&AnswerKind| ["slow_body", "silence"].contains(&kind.name);
        assert!(faults().filter(silent).map(|kind| kind.count_short).sum::<u32>() < SIZE_SHORT.clients);
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
        check(
            moved,
            "1 counted as another kind: http_429 210 where it was 211, http_4xx 364 where it was 363",
        );
        check(
            |report| *report.errors.get_mut("refused").unwrap() -= 2,
            "2 counted as another kind: refused 75",
        );
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
