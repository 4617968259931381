//! Every check on results of which the answer is known.

use super::*;
use crate::{Capacity, Grade, Reason, Shown, WorkloadFindings, best_level, findings};
use kv::proto::{Latency, LoadReport, ScheduleReport};
use lab_data::results::{
    Change, Intervention, Limit, Placement, Resource, ResourceKind, SLOWER_GENERATOR, SLOWER_SERVER, Selftest,
};
use lab_data::simulated::tests::{model, sweep};

fn results() -> Results {
    sweep(&model("cpu 1 =2ms, disk 1 =1ms, net 0 =5ms"), &["w"], &[1, 2, 4, 8, 16], 3, "1s")
}

/// What check `id` says of these results, of all it was asked of: what failed first, else what could not be checked, else what
/// passed.
fn check(id: &str, change: impl Fn(&mut Results), expected: &str) {
    let mut results = results();
    change(&mut results);
    let found = findings(&results);
    let of_rows = found.workloads.iter().flat_map(|of| &of.rows).flat_map(|row| &row.checks);
    let all = found.checks.iter().chain(found.workloads.iter().flat_map(|of| &of.checks)).chain(of_rows);
    let all: Vec<&Checked> = all.filter(|of| of.id == id).collect();
    let first = |(outcome, name)| Some((name, *all.iter().find(|of| of.outcome == outcome)?));
    let order = [(Outcome::Fail, "failed"), (Outcome::NotChecked, "not checked"), (Outcome::Pass, "passed")];
    let (outcome, of) = order.into_iter().find_map(first).unwrap_or_else(|| panic!("no check {id}"));
    let said = format!("{outcome}: {}", of.seen);
    assert!(said.starts_with(expected), "{id}: {said:?} instead of {expected:?}");
    assert_eq!(of.remedy.is_empty(), outcome != "failed", "{id}");
}

#[test]
fn every_check_has_a_name_of_its_own_and_an_answer_for_results_without_anything() {
    let mut empty = results();
    empty.trials.clear();
    empty.workloads.clear();
    let found = findings(&empty);
    let of_run = CHECKS.iter().filter(|check| matches!(check.test, Test::Run(_))).map(|check| check.id);
    assert!(found.checks.iter().map(|of| of.id).eq(of_run));
    for (i, check) in CHECKS.iter().enumerate() {
        assert!(CHECKS[..i].iter().all(|other| other.id != check.id && other.name != check.name));
    }
}

#[test]
fn a_level_without_numbers_and_too_few_runs_are_failures() {
    check("complete", |_| {}, "passed: 15 trials");
    check(
        "complete",
        |results| results.trials.retain(|trial| trial.level != 8),
        "failed: 3 of 15 trials did not run, the first at 8 clients",
    );
    check(
        "complete",
        |results| results.trials[0].load = None,
        "failed: 1 of 15 trials failed, the first at 1 client",
    );
    check("repetitions", |_| {}, "passed: at least 3 repetitions");
    let fewer = |results: &mut Results| {
        results.trials.retain(|trial| trial.repetition < 2);
        results.repetitions = 2;
    };
    check("repetitions", fewer, "failed: 5 of 5 levels have fewer than 3 repetitions");
}

#[test]
fn a_throughput_that_may_be_half_or_double_is_not_believed() {
    check("precision", |_| {}, "passed: ±");
    let spread = |results: &mut Results| {
        for trial in results.trials.iter_mut().filter(|trial| trial.repetition == 1) {
            trial.load.as_mut().unwrap().goodput_rps *= 2.0;
        }
    };
    check("precision", spread, "failed: ±");
    let single = |results: &mut Results| {
        results.trials.retain(|trial| trial.repetition == 1);
        results.repetitions = 1;
    };
    check("precision", single, "not checked");
}

#[test]
fn accuracy_that_was_not_tested_is_not_failed() {
    check("accuracy", |_| {}, "passed: the generator is simulated");
    check("accuracy", |results| results.selftest = Some(Selftest::Skipped), "not checked");
    check("accuracy", |results| results.selftest = None, "not checked");
}

#[test]
fn a_generator_that_shares_its_core_lowers_confidence_and_deletes_nothing() {
    let share = |results: &mut Results, with: &[&str]| {
        let placement = |part: &str, core, with: &[&str]| Placement {
            part: part.to_owned(),
            cores: vec![core],
            shares_with: with.iter().map(|part| (*part).to_owned()).collect(),
            ..Placement::default()
        };
        results.placements = vec![
            placement("server", 0, &["database"]),
            placement("database", 0, &["server"]),
            placement("generator", 1, with),
        ];
    };
    check("cores", |_| {}, "passed");
    check("cores", |results| share(results, &["link"]), "passed");
    check("cores", |results| share(results, &["server"]), "failed: it shares a core with server");
    let beside = |results: &mut Results| {
        share(results, &[]);
        results.placements[2].siblings_with = vec!["database".to_owned()];
    };
    check("cores", beside, "failed: it shares a physical core (hyperthreads) with database");
    let limited = |results: &mut Results, cores: f64| {
        share(results, &[]);
        let gauges = &mut results.trials[0].closed.gauges;
        gauges.insert("generator.quota_cores".to_owned(), cores);
        gauges.insert("generator.quota_shared".to_owned(), 1.0);
    };
    let quota = "failed: it shares a quota of 1.5 cores with what it measures";
    check("cores", |results| limited(results, 1.5), quota);
    check("cores", |results| limited(results, 2.0), "passed");
    let mut shared = results();
    share(&mut shared, &["server"]);
    let found = findings(&shared).workloads.remove(0);
    assert!(matches!(found.capacity, Capacity::Reached { .. }) && found.knee.is_some());
    assert_eq!((found.bottleneck.grade, found.trust.confidence), (Grade::Supported, Low));
    assert!(found.trust.lowered_by.contains(&"cores"));
}

/// A service on the same machine that weir did not start was once counted as other load on it.
#[test]
fn of_a_target_that_the_lab_did_not_start_other_processes_and_cores_are_not_judged() {
    let read = |results: &mut Results, parts: &[&str], idle: f64, swapped: f64| {
        let placement =
            |part: &&str| Placement { part: (*part).to_owned(), cores: vec![0], ..Placement::default() };
        results.placements = parts.iter().map(placement).collect();
        for trial in &mut results.trials {
            let busy = [("core.0.busy_secs", 0.9), ("generator.cpu_secs", 0.3), ("server.cpu_secs", 0.3)];
            let still = ["core.0.steal_secs", "memory.swap_in_pages"].map(|name| (name, 0.0));
            let others = [("core.0.idle_secs", idle), ("memory.swap_out_pages", swapped)];
            let all = busy.into_iter().chain(still).chain(others);
            for (counter, grown) in all {
                trial.opened.counters.insert(counter.into(), 0.0);
                trial.closed.counters.insert(counter.into(), grown * trial.elapsed_secs);
            }
        }
    };
    let own = |results: &mut Results| read(results, &["server", "generator"], 0.1, 0.0);
    check("machine", own, "failed: other processes used 30 %");
    // The kernel's ticks count a core as busy that was idle.
    let in_step = |results: &mut Results| read(results, &["server", "generator"], 0.36, 0.0);
    check("machine", in_step, "passed: steal 0.00 %, other processes 4 %");
    check("cores", own, "passed");
    let url = |results: &mut Results| read(results, &["generator"], 0.1, 0.0);
    let said =
        "passed: steal 0.00 %, no swap; other processes do not count, as the lab did not start the target";
    check("machine", url, said);
    check("cores", url, "not checked: the lab did not start the target");
    check("machine", |results| read(results, &["generator"], 0.1, 1.0), "failed: the machine swapped");
}

/// Others had 98 % of the cores, the limit was another one minutes later, and the confidence was medium.
#[test]
fn where_others_take_most_of_the_cores_the_confidence_is_low() {
    let trust = |own: f64| {
        let mut results = results();
        results.placements =
            vec![Placement { part: "server".into(), cores: vec![0], ..Placement::default() }];
        for trial in &mut results.trials {
            let still = ["core.0.steal_secs", "memory.swap_in_pages", "memory.swap_out_pages"];
            let busy = [("core.0.busy_secs", 0.95), ("core.0.idle_secs", 0.05), ("server.cpu_secs", own)];
            for (counter, grown) in still.into_iter().map(|name| (name, 0.0)).chain(busy) {
                trial.opened.counters.insert(counter.into(), 0.0);
                trial.closed.counters.insert(counter.into(), grown * trial.elapsed_secs);
            }
        }
        findings(&results).workloads.remove(0).trust
    };
    let lowered_by = vec!["machine"];
    assert_eq!(trust(0.65), Trust { confidence: Medium, lowered_by: lowered_by.clone() });
    assert_eq!(trust(0.35), Trust { confidence: Low, lowered_by });
}

#[test]
fn wrong_answers_fail_and_unread_ones_are_not_checked() {
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
    check("values", real, "not checked: only the beginning of each value was compared");
    check("values", verified, "passed: 150 reads compared");
    let wrong = |results: &mut Results| {
        verified(results);
        results.trials[0].load.as_mut().unwrap().errors.insert("stale_value".into(), 2);
    };
    check("values", wrong, "failed: 2 of the answers");
}

#[test]
fn a_shortened_run_is_known_as_one_and_an_unknown_build_is_not_checked() {
    check("build", |_| {}, "not checked");
    check("full_length", |results| results.scale = Some(0.1), "failed: durations are shortened to 0.1");
}

#[test]
fn a_failed_check_of_any_valid_row_lowers_confidence() {
    let trust = |level: u32| {
        let mut results = results();
        results.trials.sort_by_key(|of| (of.repetition, of.level * 7 % 16));
        for trial in results.trials.iter_mut().filter(|trial| trial.level == level) {
            trial.load.as_mut().unwrap().latency.clipped = 1;
        }
        findings(&results).workloads.remove(0).trust
    };
    assert_eq!(trust(99), Trust { confidence: High, lowered_by: Vec::new() });
    for level in [1, 16] {
        assert_eq!(trust(level), Trust { confidence: Low, lowered_by: vec!["percentiles"] }, "{level}");
    }
}

/// A service that answered nothing with 1 and 32 clients was believed as far as one that did: neither level counts.
#[test]
fn a_level_that_leaves_clients_without_an_answer_lowers_confidence_whether_or_not_it_counts() {
    let trust = |spoil: fn(&mut LoadReport)| {
        let mut results = results();
        for trial in results.trials.iter_mut().filter(|trial| trial.level == 16) {
            spoil(trial.load.as_mut().unwrap());
        }
        findings(&results).workloads.remove(0).trust
    };
    let low = Trust { confidence: Low, lowered_by: vec!["errors"] };
    assert_eq!(trust(|load| (load.attempts, load.successes, load.goodput_rps) = (0, 0, 0.0)), low);
    assert_eq!(trust(|load| load.unanswered = 3), low);
    assert_eq!(trust(|load| (load.unanswered, load.error_ratio) = (3, 0.1)), low);
    // Of failures alone only that level is concerned.
    assert_eq!(trust(|load| load.error_ratio = 0.1).confidence, High);
}

#[test]
fn a_level_with_errors_is_not_the_best_whatever_got_through() {
    let mut results = results();
    assert_eq!(best_level(&results, "w"), Some(16));
    results.trials.iter_mut().find(|trial| trial.level == 16).unwrap().load.as_mut().unwrap().error_ratio =
        0.002;
    assert_eq!(best_level(&results, "w"), Some(8));
    results.trials.retain(|trial| trial.level == 16);
    assert_eq!((best_level(&results, "w"), best_level(&results, "other")), (None, None));
}

const LEVELS: &[u32] = &[1, 4, 8, 16, 32];

/// What becomes of a simple sweep in which the reports were changed.
fn found(change: impl Fn(&mut Results)) -> WorkloadFindings {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], LEVELS, 2, "1s");
    change(&mut results);
    findings(&results).workloads.remove(0)
}

fn loads(results: &mut Results) -> impl Iterator<Item = &mut LoadReport> {
    results.trials.iter_mut().filter_map(|trial| trial.load.as_mut())
}

/// Why the generator is not on time at the highest level; `None` where it is.
fn late(found: &WorkloadFindings) -> Option<&str> {
    let checks = &found.rows.last()?.checks;
    checks.iter().find(|of| of.id == "on_time" && of.failed()).map(|of| of.seen.as_str())
}

#[test]
fn waiting_for_a_core_is_read_from_the_generator_where_no_sampler_saw_it() {
    let waited = |own: f64, sampled: Option<f64>| {
        found(|results| {
            for trial in &mut results.trials {
                // Of so many clients the time of 1 s.
                let secs = own * f64::from(trial.level);
                trial.load.as_mut().unwrap().run_delay_secs = Some(secs);
                let Some(sampled) = sampled else { continue };
                trial.opened.counters.insert("generator.run_delay_secs".into(), 0.0);
                let secs = sampled * f64::from(trial.level);
                trial.closed.counters.insert("generator.run_delay_secs".into(), secs);
            }
        })
    };
    assert_eq!(late(&waited(0.009, None)), None);
    let said = "the generator waited for a core for 1.2 % of the total latency";
    assert_eq!(late(&waited(0.012, None)), Some(said));
    assert_eq!(late(&waited(0.5, Some(0.001))), None, "the sampler saw every thread to its end");
}

/// A generator that sends late measures itself, unless nobody could have done better.
#[test]
fn lateness_of_an_open_loop_fails_where_it_shows_in_the_latency() {
    let set = |load: &mut LoadReport, us_mean: f64, us_p99: f64| {
        let count = load.attempts;
        load.service = Some(load.latency);
        load.schedule = Some(ScheduleReport {
            offered_rps: load.goodput_rps,
            send_lag: Latency { count, us_mean, us_p99, ..Latency::default() },
            ..ScheduleReport::default()
        });
        // Waking up again and again is no finding where nobody waits.
        load.run_delay_secs = Some(0.5);
    };
    let lag = |us_mean: f64, us_p99: f64| {
        found(|results| loads(results).for_each(|load| set(load, us_mean, us_p99)))
    };
    // 32 clients at 1 ms each: latencies of 32 ms.
    assert_eq!(late(&lag(200.0, 900.0)), None, "0.6 % of the latency");
    assert_eq!(late(&lag(400.0, 49.0)), None, "no thread wakes sooner");
    // A run in which nobody could have done better does not hide another one.
    let both = found(|results| {
        for (i, load) in loads(results).enumerate() {
            let (us_mean, us_p99) = if i % 2 == 0 { (400.0, 900.0) } else { (500.0, 49.0) };
            set(load, us_mean, us_p99);
        }
    });
    assert!(late(&both).is_some_and(|said| said.contains("p99 900 µs")), "{:?}", late(&both));
    let found = lag(400.0, 900.0);
    let said = "send lag is 1.2 % of the latency (mean 400 µs, p99 900 µs)";
    assert_eq!(late(&found), Some(said));
    assert!(found.rows[4].usable());
}

/// A sweep on a server that is so busy and a generator that is so busy, at the highest level, in which slowing the generator by a fifth of its
/// full use lost these shares of goodput.
fn slowed(server: f64, generator: f64, losses: &[f64]) -> WorkloadFindings {
    found(|results| slow(results, server, generator, SLOWER_GENERATOR, losses))
}

fn slow(results: &mut Results, server: f64, generator: f64, name: &str, losses: &[f64]) {
    let of = |name: &str, kind, busy: &str| Resource {
        name: name.into(),
        kind,
        busy: vec![busy.to_owned()],
        servers: 1.0,
        ..Resource::default()
    };
    results.resources = vec![
        Resource {
            limit: Some(Limit::ServerCpu),
            ..of("server CPU", ResourceKind::Station, "server.cpu_secs")
        },
        of("generator CPU", ResourceKind::Generator, "generator.cpu_secs"),
    ];
    for trial in &mut results.trials {
        let share = trial.load.as_ref().unwrap().goodput_rps / 1000.0;
        for (name, busy) in [("server.cpu_secs", server), ("generator.cpu_secs", generator)] {
            trial.opened.counters.insert(name.into(), 0.0);
            trial.closed.counters.insert(name.into(), busy * share * trial.elapsed_secs);
        }
    }
    let base = results.trials.iter().find(|trial| trial.level == 32).unwrap().clone();
    for (round, loss) in losses.iter().enumerate() {
        let mut trial = base.clone();
        trial.repetition = round as u32;
        results.interventions.push(Intervention { change: None, trial: trial.clone() });
        trial.load.as_mut().unwrap().goodput_rps *= 1.0 - loss;
        let change = Change {
            name: name.into(),
            raises: vec![if name == SLOWER_GENERATOR { "generator CPU" } else { "server CPU" }.into()],
            added_us: 250.0,
            factor: None,
        };
        results.interventions.push(Intervention { change: Some(change), trial });
    }
}

fn headroom_of(found: &WorkloadFindings) -> (Outcome, &str) {
    let of = found.checks.iter().find(|of| of.id == "headroom").unwrap();
    (of.outcome, &of.seen)
}

/// A limit must lose 250 µs of 1230 or so: a fifth.
#[test]
fn the_generator_is_the_limit_if_and_only_if_goodput_follows_it() {
    let limit = slowed(0.3, 0.98, &[0.19, 0.2, 0.21]);
    let (outcome, seen) = headroom_of(&limit);
    assert_eq!(outcome, Outcome::Fail);
    assert!(
        seen.starts_with("with the generator slowed, goodput fell by 20.0 %")
            && seen.contains("half of what it would fall at a limit is 10.2 %"),
        "{seen}"
    );
    assert_eq!((limit.bottleneck.grade, limit.trust.confidence), (Grade::Generator, Low));
    assert!(limit.generator_limited());
    // However busy it is: a thread that polls uses all of its core.
    let none = slowed(0.99, 0.99, &[0.01, 0.0, -0.01]);
    assert_eq!(headroom_of(&none).0, Outcome::Pass);
    assert_eq!((none.bottleneck.grade, named(&none)), (Grade::Supported, vec!["server CPU"]));
    // A tenth is half of what a limit loses, and the intervals are wide.
    for losses in [&[0.02, 0.1, 0.18][..], &[0.2, 0.2], &[-0.3, 0.2, 0.3]] {
        let undecided = slowed(0.99, 0.8, losses);
        assert_eq!(headroom_of(&undecided).0, Outcome::NotChecked, "{losses:?}");
        assert!(!undecided.generator_limited());
        // Then the verdict names it by its utilization, and no ratio is believed.
        let named = slowed(0.3, 0.99, losses);
        assert!(named.bottleneck.grade == Grade::Generator && named.generator_limited(), "{losses:?}");
    }
}

#[test]
fn without_the_experiment_a_server_at_its_limit_is_never_called_limited_by_the_generator() {
    for generator in [0.03, 0.5, 0.99] {
        let found = slowed(0.99, generator, &[]);
        assert_eq!(
            (found.bottleneck.grade, named(&found)),
            (Grade::Supported, vec!["server CPU"]),
            "{generator}"
        );
        let expected = if generator < 0.5 { Outcome::Pass } else { Outcome::NotChecked };
        assert_eq!(headroom_of(&found).0, expected, "{generator}");
        assert!(!found.trust.lowered_by.contains(&"headroom"));
    }
    assert!(
        headroom_of(&slowed(0.99, 0.03, &[]))
            .1
            .starts_with("by utilization: goodput has levelled off with server CPU 99 % busy")
    );
    let mut one = sweep(&model("cpu 1 =1ms"), &["w"], &[32], 2, "1s");
    slow(&mut one, 0.99, 0.03, SLOWER_GENERATOR, &[]);
    let one = findings(&one).workloads.remove(0);
    assert_eq!(headroom_of(&one).0, Outcome::NotChecked, "one level levels off from nothing");
    let busy = slowed(0.3, 0.99, &[]);
    assert_eq!((busy.bottleneck.grade, headroom_of(&busy).0), (Grade::Generator, Outcome::NotChecked));
}

fn named(found: &WorkloadFindings) -> Vec<&str> {
    found.bottleneck.named.iter().map(|of| of.resource.as_str()).collect()
}

/// Two threads of one core slow each other down.
#[test]
fn where_goodput_follows_both_the_generator_is_not_called_the_limit() {
    let both = found(|results| {
        slow(results, 0.99, 0.9, SLOWER_GENERATOR, &[0.19, 0.2, 0.21]);
        slow(results, 0.99, 0.9, SLOWER_SERVER, &[0.19, 0.2, 0.21]);
    });
    assert_eq!(headroom_of(&both).0, Outcome::NotChecked);
    assert_eq!((both.bottleneck.grade, named(&both)), (Grade::Supported, vec!["server CPU"]));
}

/// Where the interval holds nothing and all that a limit loses, or neither.
#[test]
fn how_busy_the_generator_is_decides_where_its_loss_does_not() {
    let wide = [-0.02, 0.12, 0.26];
    assert_eq!(headroom_of(&slowed(0.3, 0.99, &wide)).0, Outcome::Fail);
    assert_eq!(headroom_of(&slowed(0.3, 0.8, &wide)).0, Outcome::NotChecked);
    assert_eq!(headroom_of(&slowed(0.3, 0.5, &wide)).0, Outcome::Pass);
    let between = [0.08, 0.11, 0.14];
    assert_eq!(headroom_of(&slowed(0.3, 0.99, &between)).0, Outcome::NotChecked);
    // Half of its time is left: something else holds up both.
    assert_eq!(headroom_of(&slowed(0.3, 0.5, &[0.19, 0.2, 0.21])).0, Outcome::NotChecked);
}

/// One level alone cannot tell whether a request takes as much at another; making the server slower can.
#[test]
fn where_one_level_decides_goodput_that_follows_the_server_names_it() {
    let busy_at_one_level = |busy: f64, losses: &[f64]| {
        let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[32], 2, "1s");
        slow(&mut results, busy, 0.4, SLOWER_SERVER, losses);
        findings(&results).workloads.remove(0).bottleneck
    };
    let at_one_level = |losses: &[f64]| busy_at_one_level(0.93, losses);
    let followed = at_one_level(&[0.19, 0.2, 0.21]);
    assert_eq!((followed.grade, followed.named.len()), (Grade::Supported, 1));
    assert_eq!(followed.named[0].slowed, Some(Shown::Limit));
    assert_eq!(at_one_level(&[0.01, 0.0, 0.02]).grade, Grade::NotIdentified);
    assert_eq!(at_one_level(&[]).grade, Grade::NotIdentified);
    // Below 85 % it is not named, and the report says so.
    let free = busy_at_one_level(0.8, &[0.19, 0.2, 0.21]);
    assert_eq!(free.grade, Grade::NotIdentified);
    assert!(
        matches!(&free.because[..], [.., Reason::Followed { of, is_named: false }] if of.utilization == 0.8),
        "{:?}",
        free.because
    );
}
