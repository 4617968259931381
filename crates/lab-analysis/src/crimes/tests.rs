//! Every rule on results of which the answer is known.

use super::*;
use crate::findings;
use lab_data::simulated::tests::{model, sweep};

fn results() -> Results {
    sweep(&model("cpu 1 =2ms, disk 1 =1ms, net 0 =5ms"), &["w"], &[1, 2, 4, 8, 16], 3, "1s")
}

/// What rule `name` says of these results.
fn plea(name: &str, change: impl Fn(&mut Results)) -> Plea {
    let mut results = results();
    change(&mut results);
    let judged = crimes(&results, &findings(&results));
    judged.into_iter().find(|of| of.name == name).unwrap_or_else(|| panic!("no rule {name}")).plea
}

fn check(name: &str, change: impl Fn(&mut Results), expected: &str) {
    let plea = plea(name, change);
    let said = match &plea {
        Held(why) => format!("held: {why}"),
        Broken(why) => format!("broken: {why}"),
        NotChecked(why) => format!("not checked: {why}"),
    };
    assert!(said.starts_with(expected), "{name}: {said:?} instead of {expected:?}");
}

#[test]
fn every_rule_has_an_answer_for_results_without_anything() {
    let mut empty = results();
    empty.trials.clear();
    empty.workloads.clear();
    let judged = crimes(&empty, &findings(&empty));
    assert_eq!(judged.len(), CRIMES.len());
    let rule = |name: &str| judged.iter().find(|of| of.name == name).unwrap().plea.clone();
    assert!(matches!(rule("nothing left out"), NotChecked(_)));
    assert!(matches!(rule("steady"), NotChecked(_)));
}

#[test]
fn a_level_that_delivered_nothing_is_printed_all_the_same() {
    check("nothing left out", |_| {}, "held: all 5 levels are shown; every planned run");
    check(
        "nothing left out",
        |results| results.trials.retain(|trial| trial.level != 8),
        "held: all 5 levels are shown; 3 runs delivered no numbers",
    );
    check(
        "nothing left out",
        |results| results.levels.retain(|level| *level != 8),
        "broken: 1 level measured and not shown, w at 8 first",
    );
}

#[test]
fn two_runs_are_no_interval() {
    check("spread given", |_| {}, "held: at least 3 runs");
    let fewer = |results: &mut Results| {
        results.trials.retain(|trial| trial.repetition < 2);
        results.repetitions = 2;
    };
    check("spread given", fewer, "broken: 5 of 5 levels have fewer than 3 runs");
}

#[test]
fn sweeps_that_go_up_are_not_in_random_order() {
    check("random order", |_| {}, "broken: 3 of 3 sweeps");
    let shuffle = |results: &mut Results| results.trials.sort_by_key(|of| (of.repetition, of.level * 7 % 16));
    check("random order", shuffle, "held: none of 3 sweeps");
    check("random order", |results| results.trials.retain(|trial| trial.level < 3), "not checked");
}

#[test]
fn a_generator_is_proven_by_its_selftest_alone() {
    check("generator proven", |_| {}, "held: nothing to prove");
    check("generator proven", |results| results.selftest = Some(Selftest::Skipped), "not checked");
    check("generator proven", |results| results.selftest = None, "not checked");
    check("generator apart", |_| {}, "held");
}

#[test]
fn wrong_answers_break_the_rule_and_unread_ones_are_not_checked() {
    let real = |results: &mut Results| {
        results.selftest = Some(Selftest::Skipped);
        for trial in &mut results.trials {
            trial.load.as_mut().unwrap().operations[0].operation = "get".into();
        }
    };
    let verified = |results: &mut Results| {
        real(results);
        results.trials.iter_mut().for_each(|trial| trial.load.as_mut().unwrap().verified = 10);
    };
    check("answers checked under load", real, "not checked: no read was compared");
    check("answers checked under load", verified, "held: 150 reads compared");
    let wrong = |results: &mut Results| {
        verified(results);
        results.trials[0].load.as_mut().unwrap().errors.insert("stale_value".into(), 2);
    };
    check("answers checked under load", wrong, "broken: 2 of the answers");
}

#[test]
fn what_cannot_be_repeated_says_what_is_missing() {
    check("can be repeated", |_| {}, "broken: missing: the kernel, the hash of the binary");
    let whole = |results: &mut Results| {
        let facts = [("kernel", "6.1"), ("binary", "9 bytes, SHA-256 00")];
        results.environment.extend(facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
    };
    check("can be repeated", whole, "held: all of it, and seed 7");
    check("optimized build", whole, "not checked");
    check("in full length", |results| results.scale = Some(0.1), "broken: durations are shortened to 0.1");
}

#[test]
fn failures_are_excluded_and_said() {
    let failing = |results: &mut Results| {
        for trial in results.trials.iter_mut().filter(|trial| trial.level == 16) {
            let load = trial.load.as_mut().unwrap();
            load.errors.insert("timeout".into(), 30);
            load.error_ratio = 0.06;
        }
    };
    check("failures are no throughput", failing, "held: 1 level above the limit, in no capacity");
    check("steady", |_| {}, "not checked");
    check("time accounted for", |_| {}, "held: at all 5 levels");
}
