//! What the findings say of targets whose truth is known, and of figures that cannot be true.

use super::*;
use Capacity::NotReached;
use lab_data::results::ResourceKind;
use lab_data::simulated::tests::{model, sweep};

const LEVELS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// Findings of the only workload on a simulated target.
fn found(stations: &str, levels: &[u32]) -> WorkloadFindings {
    findings(&sweep(&model(stations), &["w"], levels, 3, "4s")).workloads.remove(0)
}

/// The names of the resources a bottleneck names.
fn named(found: &WorkloadFindings) -> Vec<&str> {
    found.bottleneck.named.iter().map(|of| of.resource.as_str()).collect()
}

fn check_limit(found: &WorkloadFindings, name: &str, rps: f64, knee: f64) {
    let Capacity::Reached { rps: seen, .. } = &found.capacity else { panic!("{:?}", found.capacity) };
    assert!((seen.mean / rps - 1.0).abs() < 0.03, "{seen:?} instead of {rps}");
    let clients = found.knee.as_ref().unwrap().clients;
    assert!((clients / knee - 1.0).abs() < 0.05, "{clients} instead of {knee}");
    assert_eq!((found.bottleneck.grade, named(found)), (Grade::Supported, vec![name]));
}

#[test]
fn a_processor_that_limits_is_named_with_what_is_next() {
    let found = found("cpu 1 =2ms, disk 1 =1ms, net 0 =5ms", LEVELS);
    check_limit(&found, "cpu", 500.0, 4.0);
    let bottleneck = &found.bottleneck;
    assert_eq!(bottleneck.levels, [8, 16, 32, 64]);
    let next = bottleneck.next.as_ref().unwrap();
    assert_eq!(next.resource, "disk");
    assert!((next.ceiling().unwrap().rps / 1000.0 - 1.0).abs() < 0.02);
    assert!((bottleneck.named[0].demand_us.unwrap() / 2000.0 - 1.0).abs() < 0.02);
    assert!(found.rows.iter().all(|row| row.usable() && row.runs == 3));
    assert!(found.knee.as_ref().unwrap().sharp && found.decline.is_none());
}

#[test]
fn a_disk_that_limits_is_named() {
    check_limit(&found("cpu 2 1ms, disk 1 2ms, net 0 8ms", &[1, 4, 16, 32, 64, 128]), "disk", 500.0, 5.5);
}

#[test]
fn two_stations_of_equal_demand_share_the_limit() {
    let found = found("cpu 1 1ms, disk 1 =1ms", &[1, 16, 64, 96, 128]);
    assert_eq!((found.bottleneck.grade, named(&found)), (Grade::Supported, vec!["cpu", "disk"]));
}

#[test]
fn a_pure_delay_has_no_bottleneck_and_no_capacity() {
    let found = found("net 0 20ms, cpu 1 50us", &[1, 2, 4, 8, 16]);
    assert!(matches!(found.capacity, NotReached { level: 16, .. }), "{:?}", found.capacity);
    assert_eq!((found.knee, found.bottleneck.grade), (None, Grade::Delay));
}

/// From 64 to 256 clients a server that batches may get through some 20 % more; where it bends is known all the same.
#[test]
fn goodput_that_hardly_rises_over_two_doublings_has_a_knee() {
    let with_top = |share: f64| {
        let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1, 64, 256], 3, "1s");
        for trial in results.trials.iter_mut().filter(|trial| trial.level == 256) {
            trial.load.as_mut().unwrap().goodput_rps *= share;
        }
        findings(&results).workloads.remove(0)
    };
    let NotReached { level: 256, rising: false, .. } = with_top(1.2).capacity else { panic!() };
    assert!(with_top(1.2).knee.is_some());
    let NotReached { level: 256, rising: true, .. } = with_top(1.6).capacity else { panic!() };
    assert!(with_top(1.6).knee.is_none());
}

#[test]
fn goodput_that_grows_by_more_than_15_percent_as_clients_double_is_still_rising() {
    let rises = |share: f64| {
        let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1, 64, 128], 3, "1s");
        for trial in results.trials.iter_mut().filter(|trial| trial.level == 128) {
            trial.load.as_mut().unwrap().goodput_rps *= share;
        }
        matches!(findings(&results).workloads[0].capacity, NotReached { rising: true, .. })
    };
    assert_eq!((rises(1.14), rises(1.16)), (false, true));
}

#[test]
fn a_level_that_was_disturbed_makes_no_rise_of_the_next() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1, 4, 8, 16, 32], 1, "1s");
    for trial in results.trials.iter_mut().filter(|trial| trial.level == 16) {
        trial.load.as_mut().unwrap().goodput_rps *= 0.8;
    }
    let found = findings(&results).workloads.remove(0);
    let NotReached { rising: false, .. } = found.capacity else { panic!("{:?}", found.capacity) };
    assert!(found.knee.is_some());
}

#[test]
fn a_busy_generator_says_nothing_of_the_target() {
    let found = found("generator 1 =1ms, cpu 1 =0.5ms", LEVELS);
    assert_eq!((found.bottleneck.grade, named(&found)), (Grade::Generator, vec!["generator"]));
}

#[test]
fn an_indication_is_never_named() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], LEVELS, 1, "2s");
    results.resources[0].kind = ResourceKind::Indication;
    let found = findings(&results).workloads.remove(0);
    assert_eq!((found.bottleneck.grade, found.bottleneck.next), (Grade::NotIdentified, None));
}

// Report 000 named a disk that was 93 % busy at one client already, while throughput still grew 3.4×.
#[test]
fn a_disk_that_is_busy_from_the_start_is_load_dependent() {
    let mut results = sweep(&model("cpu 1 =1ms, net 0 =3ms"), &["w"], LEVELS, 3, "2s");
    results.resources.push(results.resources[0].clone());
    results.resources[1].name = "disk".into();
    results.resources[1].busy = vec!["disk.busy_secs".into()];
    for trial in &mut results.trials {
        trial.opened.counters.insert("disk.busy_secs".into(), 5.0);
        trial.closed.counters.insert("disk.busy_secs".into(), 5.0 + 0.97 * trial.elapsed_secs);
    }
    let found = findings(&results).workloads.remove(0);
    assert_eq!(named(&found), ["cpu"]);
    assert_eq!(found.bottleneck.load_dependent[0].resource, "disk");
}

/// One repetition of a simple sweep, spoiled at level 8, and what becomes of that row.
fn spoiled(spoil: impl Fn(&mut kv::proto::LoadReport)) -> (Row, WorkloadFindings) {
    let mut results = sweep(&model("cpu 1 =1ms, net 0 =3ms"), &["w"], LEVELS, 1, "2s");
    results.trials.iter_mut().filter(|trial| trial.level == 8).for_each(|t| spoil(t.load.as_mut().unwrap()));
    let found = findings(&results).workloads.remove(0);
    (found.rows[3].clone(), found)
}

/// What a check says of a row.
fn said<'a>(row: &'a Row, id: &str) -> &'a Checked {
    row.checks.iter().find(|checked| checked.id == id).unwrap()
}

fn failed(row: &Row) -> Vec<&str> {
    row.checks.iter().filter(|checked| checked.failed()).map(|checked| checked.id).collect()
}

// 36 of 61 printed rows of five reports break this law; among the causes: whole milliseconds, lost samples.
#[test]
fn latencies_cut_to_whole_milliseconds_break_littles_law() {
    let (row, _) = spoiled(|load| load.latency.us_mean -= 500.0);
    assert_eq!(failed(&row), ["little"]);
    assert!((row.little_residual.unwrap() + 0.0625).abs() < 0.01, "{:?}", row.little_residual);
}

#[test]
fn time_spent_backing_off_counts_for_littles_law() {
    let (row, _) = spoiled(|load| {
        load.latency.us_mean *= 0.75;
        load.operations.clear();
        load.backoff_secs = 2.0 * load.window_secs;
    });
    assert_eq!(failed(&row), Vec::<&str>::new());
}

// Without them one stall at an edge of the window failed the check, and a wrong account of them would hide one.
#[test]
fn edges_of_the_window_are_in_the_account_and_a_doctored_one_is_not() {
    let (row, _) = spoiled(|_| {});
    assert!(row.little_residual.unwrap().abs() < 1e-9, "{:?}", row.little_residual);
    for sign in [1.0, -1.0] {
        let (row, _) = spoiled(|load| load.edge_secs += sign * 0.03 * 8.0 * load.window_secs);
        assert_eq!(failed(&row), ["little"]);
    }
}

/// A sweep as an open loop would report it that asked for `offered_rps` at every level.
fn opened(offered_rps: f64) -> Results {
    let mut results = sweep(&model("cpu 2 =1ms, net 0 =2ms"), &["w"], &[1, 4, 8, 16, 32], 2, "1s");
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        let over_capacity = load.goodput_rps < 0.99 * offered_rps;
        load.pacing = "poisson 1000/s".into();
        load.service = Some(load.latency);
        load.schedule = Some(kv::proto::ScheduleReport {
            offered_rps,
            over_capacity,
            behind_secs_at_end: if over_capacity { 0.75 } else { 0.0 },
            ..Default::default()
        });
    }
    results
}

/// The table said 0 % of a level that was left out for its errors.
#[test]
fn the_errors_of_an_open_loop_include_what_was_left_without_an_answer() {
    let mut results = opened(1300.0);
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        (load.unanswered, load.error_ratio) = (load.attempts / 9, 0.1);
    }
    let rows = findings(&results).workloads.remove(0).rows;
    assert!(rows.iter().all(|row| (row.error_ratio.unwrap() - 0.1).abs() < 1e-3));
}

/// Three levels within 3 % of each other are what was asked for, not what the target can do.
#[test]
fn of_an_open_loop_neither_capacity_nor_knee_nor_bottleneck_is_concluded() {
    let found = findings(&opened(1300.0)).workloads.remove(0);
    let Capacity::Offered { rps, kept, over } = &found.capacity else { panic!("{:?}", found.capacity) };
    assert_eq!((*rps, &kept[..], &over[..]), (1300.0, &[4, 8, 16, 32][..], &[1][..]));
    assert_eq!((&found.knee, found.bottleneck.grade), (&None, Grade::NotIdentified));
    assert!(found.bottleneck.named.is_empty() && found.bottleneck.next.is_none());
    assert_eq!(found.pacing.as_deref(), Some("poisson 1000/s"));
}

#[test]
fn a_queue_that_grows_is_not_steady() {
    let found = findings(&opened(1300.0)).workloads.remove(0);
    assert_eq!(failed(&found.rows[0]), ["steady"]);
    assert_eq!(found.rows[0].excluded, Some(Excluded::OverCapacity));
    let why = &said(&found.rows[0], "steady").seen;
    assert!(why.starts_with("over capacity: latency is a queue’s length"), "{why}");
    assert!(why.contains("1.30k req/s offered, 333 went through"), "{why}");
    assert_eq!(said(&found.rows[1], "steady").outcome, Outcome::NotChecked);
}

#[test]
fn an_open_loop_is_held_to_what_was_in_flight_not_to_its_connections() {
    let verdict = |in_flight: fn(f64) -> Option<f64>| {
        let mut results = opened(300.0);
        for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
            load.clients = 1000;
            load.in_flight_mean = in_flight(load.in_flight_mean.unwrap());
        }
        said(&findings(&results).workloads[0].rows[2], "little").clone()
    };
    assert_eq!(verdict(Some).outcome, Outcome::Pass);
    assert_eq!(verdict(|_| None).outcome, Outcome::NotChecked);
    assert_eq!(
        verdict(|mean| Some(mean / 2.0)).seen,
        "attempts per second × service time account for 100.0 % more requests in flight than the 4.000 counted"
    );
}

/// N* = X·(R + Z): who thinks does not load the target meanwhile.
#[test]
fn think_time_moves_the_knee() {
    let mut results = sweep(&model("cpu 1 =1ms, net 0 =9ms"), &["w"], &[1, 4, 16, 32, 64], 1, "2s");
    let before = findings(&results).workloads[0].knee.clone().unwrap().clients;
    for trial in &mut results.trials {
        // The delay at the client's end is thought, not latency.
        let load = trial.load.as_mut().unwrap();
        let thought_us = 9000.0;
        load.think_secs = load.attempts as f64 * thought_us / 1e6;
        load.latency.us_mean -= thought_us;
        load.latency.us_min = 0.0;
    }
    let found = findings(&results).workloads.remove(0);
    assert_eq!(failed(&found.rows[0]), Vec::<&str>::new());
    assert!((found.knee.unwrap().clients / before - 1.0).abs() < 1e-6);
}

#[test]
fn percentiles_out_of_order_or_clipped_fail_for_every_operation() {
    for spoil in [
        (|load| load.latency.us_p99 = load.latency.us_max * 2.0) as fn(&mut kv::proto::LoadReport),
        |load| load.operations[0].latency.us_min = load.operations[0].latency.us_max * 2.0,
        |load| load.latency.clipped = 1,
    ] {
        assert_eq!(failed(&spoiled(spoil).0), ["percentiles"]);
    }
}

#[test]
fn a_row_with_errors_enters_neither_capacity_nor_knee() {
    let (row, found) = spoiled(|load| {
        load.goodput_rps *= 3.0;
        load.error_ratio = 0.02;
        load.operations.clear();
    });
    assert_eq!((failed(&row), row.excluded), (vec!["errors"], Some(Excluded::Errors)));
    assert_eq!(found.capacity.levels(), [16, 32, 64]);
    // It is no error that some clients have no answer, but the latencies are only of the others.
    let (row, _) = spoiled(|load| load.unanswered = 3);
    assert_eq!((failed(&row), row.excluded), (vec!["errors"], None));
}

#[test]
fn errors_that_answer_sooner_than_successes_are_called_fast_fail() {
    let (row, _) = spoiled(|load| {
        load.error_ratio = 0.5;
        load.operations[0].latency.count /= 2;
        load.operations[0].latency.us_mean *= 1.9;
    });
    let why = &said(&row, "errors").seen;
    assert!(why.contains("50.00 %") && why.contains("fast-fail"), "{why}");
    assert!(matches!(row.fast_fail, Some(FastFail::Sooner { .. })), "{:?}", row.fast_fail);
}

#[test]
fn more_attempts_and_less_goodput_are_a_fast_fail_unless_failures_take_longer_than_successes() {
    let of = |successes: f64| {
        let (row, _) = spoiled(|load| {
            (load.error_ratio, load.attempts, load.goodput_rps) =
                (0.5, 2 * load.attempts, 0.3 * load.goodput_rps);
            load.operations[0].latency.count /= 2;
            load.operations[0].latency.us_mean *= successes;
        });
        row.fast_fail
    };
    assert_eq!((of(1.1), of(0.9)), (Some(FastFail::MoreAttempts), None));
}

#[test]
fn operations_in_other_shares_than_asked_for_fail_the_workload() {
    /// The verdict on 8 clients' 10,000 attempts: so many of them PUT, the others GET.
    fn verdict(puts: u64, mix: &[(&str, f64)]) -> Checked {
        let (row, _) = spoiled(|load| {
            let get = load.operations[0].clone();
            load.attempts = 10_000;
            load.mix = mix.iter().map(|(name, share)| ((*name).to_owned(), *share)).collect();
            load.operations = [("get", 10_000 - puts), ("put", puts)]
                .map(|(name, attempts)| kv::proto::OperationReport {
                    operation: name.into(),
                    attempts,
                    ..get.clone()
                })
                .into();
        });
        said(&row, "mix").clone()
    }
    let mix = [("get", 0.7), ("put", 0.3)];
    // One sigma is 46 requests here, and each of the 8 clients is cut off somewhere.
    for (puts, fits) in [(3000, true), (3190, true), (2810, true), (3200, false), (2800, false)] {
        assert_eq!(verdict(puts, &mix).failed(), !fits, "{puts}");
    }
    assert_eq!(verdict(5000, &mix).seen, "50.0 % of the requests were get, the mix asks for 70.0 %");
    // What is missing altogether, and what nobody asked for.
    assert!(verdict(3000, &[("get", 0.5), ("delete", 0.5)]).failed());
    assert!(verdict(1, &[("get", 1.0)]).failed());
    assert_eq!(verdict(0, &[("get", 1.0)]).outcome, Outcome::Pass);
}

#[test]
fn what_cannot_be_read_is_not_checked() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1], 1, "1s");
    let verdict = |results: &Results, id: &str| said(&findings(results).workloads[0].rows[0], id).clone();
    for id in ["steady", "machine", "mix", "checkpoints", "on_time"] {
        assert_eq!(verdict(&results, id).outcome, Outcome::NotChecked, "{id}");
    }
    // With the counters of all our cores, of our processes and of the machine the check passes; a single one is not enough.
    results.placements =
        vec![lab_data::results::Placement { part: "server".into(), cores: vec![3], ..Default::default() }];
    for (counter, missing) in [
        ("core.3.steal_secs", "steal of the cores"),
        ("memory.swap_in_pages", "whether the machine swapped"),
        ("memory.swap_out_pages", "whether the machine swapped"),
        ("core.3.busy_secs", "the processor time of other processes"),
        ("server.cpu_secs", "the processor time of other processes"),
    ] {
        let Checked { outcome, seen, .. } = verdict(&results, "machine");
        assert_eq!(outcome, Outcome::NotChecked);
        assert_eq!(seen, format!("{missing} was not read"), "before {counter}");
        results.trials[0].opened.counters.insert(counter.into(), 0.0);
        results.trials[0].closed.counters.insert(counter.into(), 0.0);
    }
    assert_eq!(verdict(&results, "machine").outcome, Outcome::Pass);
    results.trials[0].opened.counters.insert("core.3.steal_secs".into(), 1.0);
    // One or two ticks of the kernel's clock are no finding, three are.
    for (closed, fails) in [(1.001, false), (1.02, false), (1.04, true), (1.0, false)] {
        results.trials[0].closed.counters.insert("core.3.steal_secs".into(), closed);
        assert_eq!(verdict(&results, "machine").failed(), fails, "{closed}");
    }
    // Nor may others use our cores, or the machine swap.
    for (counter, closed) in [("core.3.busy_secs", 0.9), ("server.cpu_secs", 0.5)] {
        results.trials[0].closed.counters.insert(counter.into(), closed);
    }
    let why = verdict(&results, "machine").seen;
    assert!(why.contains("other processes used 40 %"), "{why}");
}

/// Rows of unequal runs once printed a mean throughput beside a median latency: together they broke Little's law.
#[test]
fn a_row_closes_littles_law_whatever_its_runs_are() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[8], 2, "1s");
    let load = results.trials[0].load.as_mut().unwrap();
    // The same clients on a machine five times slower.
    load.attempts /= 5;
    load.successes /= 5;
    load.goodput_rps /= 5.0;
    load.latency.count /= 5;
    load.latency.us_mean *= 5.0;
    let row = &findings(&results).workloads[0].rows[0];
    let clients = row.goodput_rps.unwrap().mean * row.latency_us_mean.unwrap() / 1e6;
    assert!((clients / 8.0 - 1.0).abs() < 0.02, "{clients}");
}

#[test]
fn failed_and_missing_trials_stay_in_the_table() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[2, 1, 4], 2, "1s");
    results.trials.retain(|trial| trial.level != 4);
    results.trials.sort_by_key(|trial| trial.level);
    let [_, with_numbers, without, _] = &mut results.trials[..] else { panic!("two trials of each level") };
    (without.load, without.failure) = (None, Some("the server died".into()));
    // What was seen of a target while it died once was a run like others, and the best of all.
    with_numbers.load.as_mut().unwrap().goodput_rps *= 100.0;
    with_numbers.failure = Some("the server died, too".into());
    let findings = findings(&results);
    let rows = &findings.workloads[0].rows;
    assert_eq!(rows.iter().map(|row| (row.level, row.runs)).collect::<Vec<_>>(), [(1, 1), (2, 1), (4, 0)]);
    assert_eq!((rows[0].failures["the server died, too"], rows[1].failures["the server died"]), (1, 1));
    assert!(rows[0].goodput_rps.unwrap().mean < 2000.0);
    assert_eq!((rows[2].failures["did not run"], rows[2].excluded), (2, Some(Excluded::NoNumbers)));
    assert_eq!((findings.planned, findings.ran), (6, 2));
}

#[test]
fn a_decline_is_claimed_only_where_the_intervals_are_apart() {
    let declined = |noise: f64| {
        let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1, 2, 4, 8], 3, "1s");
        for trial in results.trials.iter_mut().filter(|trial| trial.level == 8) {
            let load = trial.load.as_mut().unwrap();
            load.goodput_rps *= 0.9 + noise * (f64::from(trial.repetition) - 1.0);
        }
        findings(&results).workloads[0].decline
    };
    let decline = declined(0.0).unwrap();
    assert!(decline.level == 8 && (decline.share - 0.1).abs() < 0.01);
    assert_eq!(declined(0.2), None);
}

#[test]
fn methods_that_disagree_mean_that_there_is_no_sharp_knee() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], LEVELS, 1, "1s");
    for trial in &mut results.trials {
        let load = trial.load.as_mut().unwrap();
        // A curve that bends slowly: 1000 · N / (N + 7) requests per second below a long flat end.
        let n = f64::from(trial.level);
        load.goodput_rps = if trial.level > 8 { 900.0 } else { 1000.0 * n / (n + 7.0) };
        load.latency.us_mean = n / load.goodput_rps * 1e6 / 4.0;
        load.latency.us_max = load.latency.us_max.max(load.latency.us_mean);
        load.backoff_secs = n * load.window_secs - load.attempts as f64 * load.latency.us_mean / 1e6;
    }
    let found = findings(&results).workloads.remove(0);
    assert!(!found.knee.unwrap().sharp);
}

#[test]
fn results_without_anything_in_them_have_findings_too() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[], 1, "1s");
    let empty = findings(&results);
    assert_eq!((empty.workloads[0].capacity.clone(), empty.planned), (Capacity::Unknown, 0));
    results.workloads.clear();
    assert!(findings(&results).workloads.is_empty());
    // No window, no clients, no attempts: nothing divides by zero into the findings.
    let mut odd = sweep(&model("cpu 1 =1ms"), &["w"], &[0, 1], 1, "1s");
    for trial in &mut odd.trials {
        let load = trial.load.as_mut().unwrap();
        (load.window_secs, load.attempts, load.latency.count, trial.elapsed_secs) = (0.0, 0, 0, 0.0);
    }
    assert_eq!(findings(&odd).workloads[0].rows[1].little_residual, None);
}

/// A sweep in which a station that nobody reads limits at 500 requests per second, and a database in which the sessions
/// are as `states` says for a number of clients.
fn waiting(pool: Option<f64>, states: impl Fn(f64) -> Vec<(&'static str, f64)>) -> Results {
    let mut results = sweep(&model("row 1 =2ms, net 0 =4ms"), &["w"], LEVELS, 2, "2s");
    results.resources.clear();
    for trial in &mut results.trials {
        let secs = trial.elapsed_secs;
        let mut grow = |name: &str, growth: f64| {
            trial.opened.counters.insert(format!("database.{name}"), 3.0);
            trial.closed.counters.insert(format!("database.{name}"), 3.0 + growth);
        };
        grow("waits.samples", 25.0 * secs);
        grow("waits.observed_secs", secs);
        grow("waits.cost_secs", 0.01 * secs);
        for (state, sessions) in states(f64::from(trial.level)) {
            grow(&format!("waits.{state}_secs"), sessions * secs);
        }
        if let Some(servers) = pool {
            grow("lanes_secs", secs * servers.min(f64::from(trial.level)));
        }
    }
    results.resources.extend(pool.map(|servers| lab_data::results::Resource {
        name: "store write workers".into(),
        busy: vec!["database.lanes_secs".into()],
        servers,
        kind: ResourceKind::Pool,
        ..Default::default()
    }));
    results
}

fn of_waiting(pool: Option<f64>, states: impl Fn(f64) -> Vec<(&'static str, f64)>) -> WorkloadFindings {
    findings(&waiting(pool, states)).workloads.remove(0)
}

#[test]
fn a_row_lock_that_holds_most_clients_is_named_with_its_wait_events() {
    let found = of_waiting(None, |clients| {
        vec![("Lock:tuple", clients - 2.0), ("Lock:transactionid", 1.0), ("IO:WALSync", 0.8), ("idle", 1.2)]
    });
    assert_eq!((found.bottleneck.grade, named(&found)), (Grade::Supported, vec!["database row lock"]));
    let waiting = found.bottleneck.named[0].waiting.as_ref().unwrap();
    assert_eq!((waiting.places, waiting.pooled), (64.0, false));
    assert!((waiting.sessions - 63.0).abs() < 1e-9, "{waiting:?}");
    let dominant = &found.waits[0];
    assert_eq!(dominant.states[0].0, "Lock:tuple");
    assert_eq!((dominant.class, dominant.idle, dominant.part.as_str()), ("row lock", false, "database"));
    assert_eq!(dominant.levels, found.bottleneck.levels);
}

#[test]
fn an_idle_database_is_never_the_limit() {
    for idle in ["idle", "Client:ClientRead", "idle_in_transaction"] {
        let found = of_waiting(None, |clients| vec![(idle, clients), ("IO:WALSync", 0.1)]);
        assert_eq!((found.bottleneck.grade, named(&found)), (Grade::NotIdentified, vec![]), "{idle}");
        assert!(found.waits[0].idle && found.waits[0].in_class > 8.0, "{:?}", found.waits);
    }
    // Sessions that compute do not wait; their processor is for the utilization law.
    let found = of_waiting(None, |clients| vec![("CPU", clients)]);
    assert_eq!((found.bottleneck.grade, found.waits[0].class), (Grade::NotIdentified, "processor"));
}

#[test]
fn a_wait_must_hold_half_of_the_clients_at_every_level_that_decides() {
    let found = of_waiting(None, |clients| vec![("Lock:tuple", if clients > 32.0 { 31.0 } else { clients })]);
    assert_eq!(found.bottleneck.grade, Grade::NotIdentified);
}

/// Two sessions cannot hold sixty-four clients: these queue for the sessions, and the sessions for the log.
#[test]
fn a_full_pool_is_excused_by_what_its_sessions_wait_for() {
    let states = |_| vec![("IO:WALSync", 1.4), ("LWLock:WALWrite", 0.3), ("CPU", 0.2), ("idle", 3.1)];
    let found = of_waiting(Some(2.0), states);
    assert_eq!((found.bottleneck.grade, named(&found)), (Grade::Supported, vec!["database commit path"]));
    let waiting = found.bottleneck.named[0].waiting.as_ref().unwrap();
    assert!(waiting.pooled && waiting.places == 2.0 && (waiting.sessions - 1.7).abs() < 1e-9);
    assert_eq!(found.bottleneck.next, None, "the pool has no ceiling of its own");
    // Sessions that work are no excuse.
    let found = of_waiting(Some(3.0), |_| vec![("CPU", 2.9), ("idle", 3.1)]);
    assert_eq!(named(&found), ["store write workers"]);
}

#[test]
fn a_saturated_processor_comes_before_any_wait() {
    let mut results = waiting(None, |clients| vec![("Lock:tuple", clients)]);
    results.resources.push(lab_data::results::Resource {
        name: "database CPU".into(),
        busy: vec!["database.cpu_secs".into()],
        servers: 1.0,
        kind: ResourceKind::Station,
        ..Default::default()
    });
    for trial in &mut results.trials {
        trial.opened.counters.insert("database.cpu_secs".into(), 0.0);
        let busy = if trial.level < 4 { 0.5 } else { 0.99 };
        trial.closed.counters.insert("database.cpu_secs".into(), busy * trial.elapsed_secs);
    }
    assert_eq!(named(&findings(&results).workloads[0]), ["database CPU"]);
}

#[test]
fn states_are_sorted_into_the_first_class_that_has_them() {
    for (state, class) in [
        ("Lock:transactionid", "row lock"),
        ("Lock:relation", "lock"),
        ("State:Waiting for table metadata lock", "lock"),
        ("LWLock:WALWrite", "commit path"),
        ("LWLock:LockManager", "internal lock"),
        ("IO:DataFileRead", "reads"),
        ("IO:DataFileExtend", "data writes"),
        ("Client:ClientRead", "idle"),
        ("Client:ClientWrite", "client"),
        ("State:Commit", "commit path"),
        ("State:Sending data", "statement"),
        ("Extension:Extension", "other"),
    ] {
        assert_eq!(waits::class_of(state).name, class, "{state}");
    }
}

#[test]
fn exactly_one_checkpoint_in_a_window_is_marked() {
    let verdict = |grown: [Option<f64>; 2]| {
        let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[1], 2, "1s");
        for (trial, grown) in results.trials.iter_mut().zip(grown) {
            let Some(grown) = grown else { continue };
            trial.opened.counters.insert("database.checkpoints".into(), 4.0);
            trial.closed.counters.insert("database.checkpoints".into(), 4.0 + grown);
        }
        let row = findings(&results).workloads[0].rows[0].clone();
        assert!(row.usable(), "it is marked, not thrown away");
        said(&row, "checkpoints").clone()
    };
    assert_eq!(verdict([Some(0.0), Some(3.0)]).outcome, Outcome::Pass);
    assert_eq!(verdict([Some(0.0), None]).outcome, Outcome::NotChecked);
    let why = verdict([Some(1.0), Some(2.0)]).seen;
    assert!(why.contains("1 of 2 trials"), "{why}");
}

#[test]
fn figures_are_rates_over_the_window_and_absent_where_unread() {
    let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[4], 2, "2s");
    for trial in &mut results.trials {
        for (name, growth) in
            [("disk.vda.written_bytes", 20e6), ("disk.vda.queue_secs", 3.0), ("database.wal_bytes", 8e6)]
        {
            trial.opened.counters.insert(name.into(), 100.0);
            trial.closed.counters.insert(name.into(), 100.0 + growth);
        }
        let attempts = trial.load.as_ref().unwrap().attempts as f64;
        trial.opened.counters.insert("server.switches".into(), 0.0);
        trial.closed.counters.insert("server.switches".into(), 3.0 * attempts);
        trial.opened.gauges.insert("server.threads".into(), 5.0);
        trial.closed.gauges.insert("server.threads".into(), 7.0);
    }
    // One run without a reading does not hide the other.
    results.trials[0].closed.counters.remove("database.wal_bytes");
    let row = findings(&results).workloads[0].rows[0].clone();
    let read: Vec<(&str, &str, f64)> =
        row.figures.iter().map(|of| (of.figure, of.of.as_str(), of.value)).collect();
    assert_eq!(
        read,
        [
            ("written_mb_per_sec", "disk vda", 10.0),
            ("queue_mean", "disk vda", 1.5),
            ("wal_mb_per_sec", "database", 4.0),
            ("threads", "server", 6.0),
            ("switches_per_request", "server", 3.0),
        ]
    );
}

#[test]
fn a_knee_has_an_interval_over_runs_and_of_two_their_range() {
    let model = model("cpu 1 2ms, disk 1 1ms, net 0 5ms");
    for repetitions in [1, 2, 5] {
        let results = sweep(&model, &["w"], LEVELS, repetitions, "4s");
        let knee = findings(&results).workloads.remove(0).knee.unwrap();
        let (low, high) = knee.ends;
        assert!(
            low <= knee.clients * 1.001 && knee.clients <= high * 1.001,
            "{low}–{high}: {}",
            knee.clients
        );
        assert_eq!(low < high, repetitions > 1);
        assert!(high / low < 1.5, "{low}–{high}");
    }
}
