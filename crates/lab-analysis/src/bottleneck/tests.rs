//! Verdicts on systems whose limit is known: simulated ones, and scenes in which the counters say where the clients are.

use super::*;
use crate::{WorkloadFindings, findings};
use lab_data::results::{Change, Intervention, Results, SLOWER_SERVER, Trial};
use lab_data::simulated::tests::{model, sweep};

pub(super) const LEVELS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];

/// Busy share of all its servers, those who wait, those it serves.
type State = (f64, Option<f64>, Option<f64>);

/// A resource in a scene: what it is, and its state for a number of clients.
struct Actor {
    name: &'static str,
    limit: Limit,
    kind: ResourceKind,
    servers: f64,
    within: &'static [&'static str],
    at: fn(f64) -> State,
}

fn actor(name: &'static str, limit: Limit, at: fn(f64) -> State) -> Actor {
    Actor { name, limit, kind: ResourceKind::Station, servers: 1.0, within: &[], at }
}

impl Actor {
    fn pool(self, servers: f64) -> Actor {
        Actor { kind: ResourceKind::Pool, servers, ..self }
    }

    fn within(self, within: &'static [&'static str]) -> Actor {
        Actor { within, ..self }
    }
}

/// A system that gets 500 requests a second through from two clients on, with these resources in it.
fn scene(actors: &[Actor]) -> Results {
    let mut results = sweep(&model("it 1 =2ms, net 0 =2ms"), &["w"], LEVELS, 2, "2s");
    results.resources = actors
        .iter()
        .map(|of| Resource {
            name: of.name.into(),
            busy: vec![format!("{}.busy", of.name)],
            servers: of.servers,
            kind: of.kind,
            limit: Some(of.limit),
            waiting: (of.at)(1.0).1.map(|_| format!("{}.waiting", of.name)).into_iter().collect(),
            serving: (of.at)(1.0).2.map(|_| format!("{}.serving", of.name)).into_iter().collect(),
            within: of.within.iter().map(|name| (*name).to_owned()).collect(),
            ..Resource::default()
        })
        .collect();
    for trial in &mut results.trials {
        let secs = trial.elapsed_secs;
        for of in actors {
            let (busy, waiting, serving) = (of.at)(f64::from(trial.level));
            let counters = [("busy", Some(busy * of.servers)), ("waiting", waiting), ("serving", serving)];
            for (what, value) in counters.into_iter().filter_map(|(what, value)| Some((what, value?))) {
                grow(trial, &format!("{}.{what}", of.name), value * secs);
            }
        }
    }
    results
}

pub(super) fn grow(trial: &mut Trial, name: &str, growth: f64) {
    trial.opened.counters.insert(name.to_owned(), 5.0);
    trial.closed.counters.insert(name.to_owned(), 5.0 + growth);
}

/// Sessions of a database by state, for a number of clients.
fn with_waits(mut results: Results, states: impl Fn(f64) -> Vec<(&'static str, f64)>) -> Results {
    for trial in &mut results.trials {
        let secs = trial.elapsed_secs;
        grow(trial, "database.waits.samples", 25.0 * secs);
        grow(trial, "database.waits.observed_secs", secs);
        for (state, sessions) in states(f64::from(trial.level)) {
            grow(trial, &format!("database.waits.{state}_secs"), sessions * secs);
        }
    }
    results
}

pub(super) fn found(results: &Results) -> WorkloadFindings {
    findings(results).workloads.remove(0)
}

/// Grade and limits of what is named.
fn verdict(results: &Results) -> (Grade, Vec<Limit>) {
    let bottleneck = found(results).bottleneck;
    (bottleneck.grade, bottleneck.named.iter().filter_map(|of| of.limit).collect())
}

/// Busy from two clients on, as the scene is: all but one wait.
fn taken(n: f64) -> State {
    (if n < 2.0 { 0.5 } else { 1.0 }, Some((n - 1.0).max(0.0)), Some(0.9))
}

/// Two sessions, both in use from two clients on.
fn two_sessions(n: f64) -> State {
    (if n < 2.0 { 0.5 } else { 1.0 }, Some((n - 2.0).max(0.0)), Some(n.min(2.0)))
}

// Report 002 named its disk; its clients waited for one mutex around one connection.
#[test]
fn a_lock_held_over_the_commit_is_a_lock_however_busy_the_disk_is_behind_it() {
    let results = scene(&[
        actor("server lock", Limit::ServerLock, |n| (taken(n).0, taken(n).1, None)),
        actor("store write workers", Limit::Pool, |_| (0.99, Some(0.0), Some(1.0))).pool(1.0),
        actor("store flush", Limit::CommitPath, |_| (0.97, Some(0.0), Some(0.97)))
            .within(&["server lock", "store write workers"]),
    ]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::ServerLock]));
    let bottleneck = found(&results).bottleneck;
    assert!(bottleneck.named[0].queue_growth.unwrap() > 0.9);
    let [Reason::Queue(growth)] = &bottleneck.because[..] else { panic!("{bottleneck:?}") };
    assert!(growth.resource == "server lock" && growth.of_each > 0.995, "{growth:?}");
}

/// Who waits for a lock has to be woken, and meanwhile nobody holds it.
#[test]
fn a_lock_that_is_handed_on_is_never_free_though_its_time_has_gaps() {
    let lock = |at| scene(&[actor("server lock", Limit::ServerLock, at)]);
    let queued = |n: f64| (if n < 2.0 { 0.5 } else { 0.92 }, Some((n - 1.0).max(0.0)), None);
    assert_eq!(verdict(&lock(queued)), (Grade::Supported, vec![Limit::ServerLock]));
    let free = |n: f64| (if n < 2.0 { 0.4 } else { 0.7 }, Some((n - 1.0).max(0.0)), None);
    assert_eq!(verdict(&lock(free)), (Grade::NotIdentified, vec![]));
    // Of workers it is their processor that may lack.
    let workers = scene(&[actor("server workers", Limit::ServerWorkers, queued)]);
    assert_eq!(verdict(&workers), (Grade::NotIdentified, vec![]));
}

/// The queue says workers, which lack a little of their time; making their processor slower says the rest.
#[test]
fn goodput_that_follows_a_nearly_saturated_processor_names_it_where_the_queue_does_not() {
    let of = |busy: fn(f64) -> State, loss: f64| {
        let mut results = scene(&[
            actor("server workers", Limit::ServerWorkers, |_| (0.8, Some(30.0), None)),
            actor("server CPU", Limit::ServerCpu, busy).within(&["server workers"]),
        ]);
        for trial in &mut results.trials {
            let waiting = 0.8 * f64::from(trial.level) * trial.elapsed_secs;
            grow(trial, "server workers.waiting", waiting);
        }
        let base = results.trials.iter().find(|trial| trial.level == 64).unwrap().clone();
        for (round, noise) in [-0.02, 0.0, 0.02].into_iter().enumerate() {
            let mut trial = Trial { repetition: round as u32, ..base.clone() };
            results.interventions.push(Intervention { change: None, trial: trial.clone() });
            trial.load.as_mut().unwrap().goodput_rps *= 1.0 - loss + noise;
            let raises = vec!["server CPU".to_owned()];
            let change = Change { name: SLOWER_SERVER.into(), raises, added_us: 250.0, factor: None };
            results.interventions.push(Intervention { change: Some(change), trial });
        }
        verdict(&results)
    };
    let busy: fn(f64) -> State = |_| (0.9, None, None);
    assert_eq!(of(busy, 0.3), (Grade::Supported, vec![Limit::ServerCpu]));
    assert_eq!(of(busy, 0.0), (Grade::NotIdentified, vec![]));
    assert_eq!(of(|_| (0.6, None, None), 0.3), (Grade::NotIdentified, vec![]), "it idles too much");
}

/// PostgreSQL flushes for all who wait: more clients get more, and all of them are at the log.
#[test]
fn a_log_that_all_wait_for_is_named_where_goodput_still_rises() {
    let mut results =
        scene(&[actor("store write workers", Limit::Pool, |n| (n / 64.0, Some(0.0), Some(n))).pool(64.0)]);
    rising(&mut results);
    let results = with_waits(results, |n| vec![("IO:WALSync", 1.0), ("LWLock:WALWrite", n - 1.0)]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::CommitPath]));
}

/// Goodput that rises with the clients: 50 requests a second for each.
fn rising(results: &mut Results) {
    with_rps(results, |clients| 50.0 * clients);
}

fn with_rps(results: &mut Results, rps: impl Fn(f64) -> f64) {
    for trial in &mut results.trials {
        let load = trial.load.as_mut().unwrap();
        let rps = rps(f64::from(trial.level));
        load.attempts = (rps * load.window_secs) as u64;
        (load.successes, load.goodput_rps) = (load.attempts, rps);
        load.latency.us_mean = 20_000.0;
        load.latency.us_max = load.latency.us_max.max(20_000.0);
        (load.edge_secs, load.mix, load.operations) = (0.0, Default::default(), Vec::new());
    }
}

#[test]
fn a_flush_done_one_at_a_time_is_named_where_the_lanes_queue_for_it() {
    let results = scene(&[
        actor("store write workers", Limit::Pool, |n| (1.0, Some((n - 16.0).max(0.0)), Some(n.min(16.0))))
            .pool(16.0),
        actor("store flush", Limit::CommitPath, |n| {
            (if n < 2.0 { 0.5 } else { 1.0 }, Some((n.min(16.0) - 1.0).max(0.0)), Some(1.0))
        })
        .within(&["store write workers"]),
    ]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::CommitPath]));
}

#[test]
fn workers_are_excused_by_a_saturated_processor_and_by_nothing_else() {
    let workers = || actor("server workers", Limit::ServerWorkers, taken);
    let cpu = |at| actor("server CPU", Limit::ServerCpu, at).within(&["server workers"]);
    let results = scene(&[workers(), cpu(|n| (taken(n).0 * 0.99, None, None))]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::ServerCpu]));
    assert_eq!(found(&results).bottleneck.next, None, "workers that wait for a core are not next");
    let results = scene(&[workers(), cpu(|n| (taken(n).0 * 0.4, None, None))]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::ServerWorkers]));
    let next = found(&results).bottleneck.next.unwrap();
    assert_eq!(next.resource, "server CPU");
    assert!((next.ceiling().unwrap().rps / 1250.0 - 1.0).abs() < 0.05);
    // As with --url: they may compute all of the time, and more of them would not help.
    let results = scene(&[workers()]);
    assert_eq!(verdict(&results), (Grade::Suspected, vec![Limit::ServerWorkers]));
    assert!(found(&results).bottleneck.because.contains(&Reason::ProcessorNotRead));
    // Of a part with a quota that is read in place of the processor.
    let quota = actor("server CPU (quota)", Limit::ServerQuota, |_| (0.3, None, None));
    let results = scene(&[workers(), quota]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::ServerWorkers]));
}

/// Of two with the same limit the longer queue may be in front of the one that is busy a little less.
#[test]
fn two_share_the_load_whichever_of_them_has_the_longer_queue() {
    let share = |first: f64, second: f64| {
        let mut results = scene(&[
            actor("server workers", Limit::ServerWorkers, |n| (1.0, Some(0.6 * (n - 1.0)), Some(1.0))),
            actor("store read workers", Limit::Pool, |n| (1.0, Some(0.3 * (n - 1.0)), Some(1.0))).pool(1.0),
            actor("server CPU", Limit::ServerCpu, |_| (0.3, None, None)),
        ]);
        for trial in &mut results.trials {
            let secs = trial.elapsed_secs * if trial.level < 2 { 0.5 } else { 1.0 };
            grow(trial, "server workers.busy", first * secs);
            grow(trial, "store read workers.busy", second * secs);
        }
        verdict(&results)
    };
    let both = (Grade::Supported, vec![Limit::ServerWorkers, Limit::Pool]);
    assert_eq!(share(1.0, 0.96), both);
    assert_eq!(share(0.94, 0.97), both);
    assert_eq!(share(0.90, 0.91), (Grade::NotIdentified, vec![]), "neither is at its limit");
}

/// A core that a worker burns, and one session that is held as long, in turns: `computing` of its time it computes itself.
fn core_and_session(computing: f64) -> Results {
    let mut results = scene(&[
        actor("server CPU", Limit::ServerCpu, |n| (if n < 2.0 { 0.5 } else { 0.99 }, None, None))
            .within(&["server workers", "store read workers"]),
        actor("server workers", Limit::ServerWorkers, |n| {
            (if n < 2.0 { 0.5 } else { 0.99 }, Some(0.7 * (n - 1.0)), Some(1.0))
        }),
        actor("store read workers", Limit::Pool, |n| {
            (if n < 2.0 { 0.5 } else { 0.945 }, Some(0.3 * (n - 1.0)), Some(0.9))
        })
        .pool(1.0),
    ]);
    results.resources[2].computing = vec!["lanes.cpu".into()];
    for trial in &mut results.trials {
        let busy = trial.growth("store read workers.busy").unwrap();
        grow(trial, "lanes.cpu", busy * computing);
    }
    results
}

#[test]
fn a_session_held_beside_a_busy_core_shares_the_load_and_one_that_computes_does_not() {
    assert_eq!(verdict(&core_and_session(0.01)), (Grade::Supported, vec![Limit::ServerCpu, Limit::Pool]));
    assert_eq!(verdict(&core_and_session(0.9)), (Grade::Supported, vec![Limit::ServerCpu]));
}

/// One that is fully busy answers when it comes to it; its own clock says how long it counted.
#[test]
fn a_server_that_answers_late_is_as_busy_as_it_says_over_its_own_time() {
    let cpu = actor("server CPU", Limit::ServerCpu, |_| (0.3, None, None));
    let mut results = scene(&[actor("server workers", Limit::ServerWorkers, taken), cpu]);
    results.resources[0].busy = vec!["stats.busy".into()];
    for trial in &mut results.trials {
        let late = [0.7, 1.0, 1.3][trial.level.ilog2() as usize % 3];
        let (busy, secs) = (trial.growth("server workers.busy").unwrap(), trial.elapsed_secs);
        grow(trial, "stats.busy", busy * late);
        trial.opened.gauges.insert("stats.weir_uptime_seconds".into(), 7.0);
        trial.closed.gauges.insert("stats.weir_uptime_seconds".into(), 7.0 + secs * late);
    }
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::ServerWorkers]));
    assert!((found(&results).bottleneck.named[0].utilization - 1.0).abs() < 1e-9);
    // Without that clock it looks busier and less busy from level to level.
    results.trials.iter_mut().for_each(|trial| trial.opened.gauges.clear());
    assert_eq!(verdict(&results).0, Grade::NotIdentified);
}

#[test]
fn the_generators_quota_is_known_from_the_trials_it_ran_in() {
    let mut results = scene(&[actor("generator CPU", Limit::Generator, |_| (0.2, None, None))]);
    results.resources[0].kind = ResourceKind::Generator;
    results.resources[0].servers_gauge = Some("generator.quota_cores".into());
    let limited = |results: &mut Results, cores: f64| {
        for trial in &mut results.trials {
            trial.opened.gauges.insert("generator.quota_cores".into(), cores);
        }
        found(results).bottleneck.grade
    };
    assert_eq!(limited(&mut results, 0.2), Grade::Generator);
    // What is left to the group above it is more than its core.
    assert_ne!(limited(&mut results, 4.0), Grade::Generator);
    assert_eq!(results.trials[0].servers(&results.resources[0]), 1.0);
}

#[test]
fn a_pool_is_excused_by_locked_rows_and_not_by_a_log_that_more_sessions_could_share() {
    let pool = || scene(&[actor("store write workers", Limit::Pool, two_sessions).pool(2.0)]);
    let of = |state: &'static str| verdict(&with_waits(pool(), |_| vec![(state, 1.9)]));
    assert_eq!(of("Lock:transactionid"), (Grade::Supported, vec![Limit::RowLock]));
    assert_eq!(of("IO:WALSync"), (Grade::Supported, vec![Limit::Pool]));
    assert_eq!(verdict(&pool()), (Grade::Supported, vec![Limit::Pool]));
}

#[test]
fn servers_in_each_others_way_are_named_also_where_requests_fail_and_only_if_nothing_else_is() {
    let conflicts = |mut results: Results, share: f64| {
        for trial in &mut results.trials {
            let is_alone = trial.level == 1;
            grow(trial, "stats.weir_store_conditional_writes_total", 100.0);
            grow(trial, "stats.weir_store_conflicts_total", if is_alone { 0.0 } else { 100.0 * share });
            trial.load.as_mut().unwrap().error_ratio = if is_alone { 0.0 } else { 0.04 };
        }
        results
    };
    let idle = || scene(&[actor("store write workers", Limit::Pool, |_| (0.1, None, None)).pool(64.0)]);
    let bottleneck = found(&conflicts(idle(), 0.3)).bottleneck;
    assert_eq!(bottleneck.grade, Grade::Suspected);
    assert_eq!((bottleneck.named[0].resource.as_str(), bottleneck.help), (CONFLICTS, None));
    assert!(bottleneck.because.contains(&Reason::Conflicts { clients: 64, share: 0.3 }));
    assert_eq!(verdict(&conflicts(idle(), 0.01)), (Grade::NotIdentified, vec![]));
}

/// More requests in each batch, and so fewer seconds for each: the lane is always busy and never the limit.
#[test]
fn a_lane_that_batches_is_no_limit_but_the_flush_it_waits_for_is() {
    let lane =
        || actor("store write workers", Limit::Pool, |n| (1.0, Some(n / 2.0), Some(n / 2.0))).pool(1.0);
    let flush = |at| actor("store flush", Limit::CommitPath, at).within(&["store write workers"]);
    let batching = |actors: &[Actor]| {
        let mut results = scene(actors);
        rising(&mut results);
        results
    };
    let results = batching(&[lane(), flush(|_| (0.9, Some(0.0), Some(0.9)))]);
    assert_eq!(verdict(&results).1, [Limit::CommitPath], "{:?}", found(&results).bottleneck);
    let results = batching(&[lane(), flush(|_| (0.2, Some(0.0), Some(0.2)))]);
    assert_eq!(verdict(&results), (Grade::NotIdentified, vec![]));
}

/// Goodput that rises by a few per cent, or is low at one level, may be noise. Whether batches grow is counted.
#[test]
fn a_lane_whose_batches_do_not_grow_is_the_limit_although_goodput_rises() {
    let verdict = |rps: fn(f64) -> f64, requests_per_batch: fn(f64) -> f64| {
        let write = |name: &str| format!("stats.weir_store_{name}{{operation=\"write\"}}");
        let mut results = scene(&[actor("store write workers", Limit::Pool, taken).pool(1.0)]);
        with_rps(&mut results, rps);
        results.resources[0].busy = vec![write("busy_seconds_total")];
        for trial in &mut results.trials {
            let (clients, secs) = (f64::from(trial.level), trial.elapsed_secs);
            let attempts = trial.load.as_ref().unwrap().goodput_rps * secs;
            grow(trial, &write("busy_seconds_total"), taken(clients).0 * secs);
            grow(trial, &write("duration_seconds_count"), attempts / requests_per_batch(clients));
        }
        verdict(&results)
    };
    let a_little = |clients: f64| 500.0 * 1.06_f64.powf(clients.log2());
    let once = |clients: f64| if clients < 8.0 { 300.0 } else { 500.0 };
    for rps in [a_little, once] {
        assert_eq!(verdict(rps, |_| 1.0), (Grade::Supported, vec![Limit::Pool]));
        assert_eq!(verdict(rps, |clients| clients), (Grade::NotIdentified, vec![]));
    }
}

#[test]
fn clients_that_pile_up_in_the_store_are_looked_for_there() {
    let lanes =
        || scene(&[actor("store write workers", Limit::Pool, |n| (n / 64.0, Some(0.0), Some(n))).pool(64.0)]);
    let of =
        |state: &'static str| verdict(&with_waits(lanes(), move |n| vec![(state, n - 1.0), ("CPU", 0.5)]));
    assert_eq!(of("Lock:tuple"), (Grade::Supported, vec![Limit::RowLock]));
    assert_eq!(of("LWLock:WALWrite"), (Grade::Supported, vec![Limit::CommitPath]));
    assert_eq!(of("Client:ClientRead"), (Grade::NotIdentified, vec![]));
    let with_quota = |n: f64| (if n < 2.0 { 0.5 } else { 0.99 }, None, None);
    let mut actors =
        vec![actor("store write workers", Limit::Pool, |n| (n / 64.0, Some(0.0), Some(n))).pool(64.0)];
    actors.push(actor("database CPU", Limit::DatabaseQuota, with_quota).within(&["store write workers"]));
    let results = with_waits(scene(&actors), |n| vec![("CPU", n)]);
    assert_eq!(verdict(&results), (Grade::Supported, vec![Limit::DatabaseQuota]));
}

/// Something limits that nobody samples: that is said, and the busiest thing around is not named in its place.
#[test]
fn clients_in_no_place_are_nobodys_queue() {
    let results = scene(&[
        actor("server workers", Limit::ServerWorkers, |_| (0.96, Some(0.1), Some(0.3))),
        actor("store read workers", Limit::Pool, |_| (0.97, Some(0.0), Some(0.4))).pool(1.0),
    ]);
    assert_eq!(verdict(&results), (Grade::NotIdentified, vec![]));
    let because = found(&results).bottleneck.because;
    let [Reason::Unaccounted(growth)] = &because[..] else { panic!("{because:?}") };
    assert!((growth.of_each - 1.0).abs() < 0.005, "{growth:?}");
}

#[test]
fn answers_that_pile_up_before_the_generator_say_nothing_of_the_target() {
    let mut results = scene(&[
        actor("server workers", Limit::ServerWorkers, |_| (0.5, Some(0.1), Some(0.5))),
        actor("generator CPU", Limit::Generator, |n| (0.6, Some((n - 2.0).max(0.0)), Some(0.6))),
    ]);
    results.resources[1].kind = ResourceKind::Generator;
    assert_eq!(verdict(&results).0, Grade::Generator);
}

#[test]
fn one_client_alone_waits_for_nobody() {
    let results = sweep(&model("cpu 1 =1ms"), &["w"], &[1], 2, "2s");
    let bottleneck = found(&results).bottleneck;
    assert_eq!((bottleneck.grade, bottleneck.named.len()), (Grade::Delay, 0));
}

/// It was called the server's.
#[test]
fn cores_that_a_further_part_has_nearly_alone_are_called_after_it() {
    let shared = |mostly: &'static str| {
        let mut results = scene(&[actor("server + redis CPU", Limit::ServerCpu, taken)]);
        let busy = ["server", "redis", "replica"].map(|part| format!("{part}.cpu_secs"));
        results.resources[0].busy = busy.to_vec();
        for trial in &mut results.trials {
            let (secs, share) = (trial.elapsed_secs, taken(f64::from(trial.level)).0);
            for name in &busy {
                let part = if name.starts_with(mostly) { 0.98 } else { 0.01 };
                grow(trial, name, part * share * secs);
            }
        }
        let bottleneck = found(&results).bottleneck;
        (bottleneck.named[0].resource.clone(), bottleneck.named[0].limit)
    };
    assert_eq!(shared("redis"), ("redis CPU".to_owned(), Some(Limit::Other)));
    assert_eq!(shared("replica"), ("replica CPU".to_owned(), Some(Limit::DatabaseCpu)));
    assert_eq!(shared("server"), ("server CPU".to_owned(), Some(Limit::ServerCpu)));
}

/// Twice a quota of nearly a core leaves no more than the core: what it gains is then far from twice as much.
#[test]
fn a_raised_quota_that_gains_little_refutes_nothing() {
    let busy = |n: f64| (if n < 2.0 { 0.5 } else { 0.99 }, Some((n - 1.0).max(0.0)), None);
    let mut results = scene(&[actor("server CPU", Limit::ServerQuota, busy)]);
    let base = results.trials.iter().find(|trial| trial.level == 64).unwrap().clone();
    for round in 0..3 {
        let mut trial = Trial { repetition: round, ..base.clone() };
        results.interventions.push(Intervention { change: None, trial: trial.clone() });
        trial.load.as_mut().unwrap().goodput_rps *= 1.25;
        let raises = vec!["server CPU".to_owned()];
        let change = Change { name: "server_quota".into(), raises, added_us: 0.0, factor: Some(0.5) };
        results.interventions.push(Intervention { change: Some(change), trial });
    }
    let bottleneck = found(&results).bottleneck;
    assert_eq!((bottleneck.grade, bottleneck.named.len()), (Grade::Supported, 1));
    assert_eq!(bottleneck.named[0].slowed, Some(Shown::Undecided));
}

/// What is added is a share of all cores: one server it would slow by much or by little, and nothing follows for the control.
#[test]
fn the_control_may_lose_a_part_of_what_a_limit_loses_whatever_the_cores() {
    let of = |servers: f64, lost: f64| {
        let mut results = scene(&[Actor { servers, ..actor("server CPU", Limit::ServerCpu, taken) }]);
        let base = results.trials.iter().find(|trial| trial.level == 64).unwrap().clone();
        let rounds = (0..3).flat_map(|round| {
            [None, Some(("cpu", 0.22)), Some(("delay", lost))].map(|made| {
                let mut trial = Trial { repetition: round, ..base.clone() };
                trial.load.as_mut().unwrap().goodput_rps *= 1.0 - made.map_or(0.0, |(_, loss)| loss);
                let change = made.map(|(name, _)| {
                    let raises = Vec::from_iter((name == "cpu").then(|| "server CPU".to_owned()));
                    let added_us = 0.3 * servers / 500.0 * 1e6;
                    Change { name: name.to_owned(), raises, added_us, factor: None }
                });
                Intervention { change, trial }
            })
        });
        results.interventions = rounds.collect();
        found(&results).bottleneck.grade
    };
    assert_eq!([8.0, 1.0, 0.2, 0.05].map(|servers| of(servers, 0.05)), [Grade::Confirmed; 4]);
    assert_eq!([8.0, 1.0, 0.2, 0.05].map(|servers| of(servers, 0.2)), [Grade::Supported; 4]);
}

#[test]
fn the_next_limit_is_never_below_the_named_one_nor_the_capacity() {
    let evidence = |rps: f64| Evidence { utilization: 0.5, ceiling_rps: Some(rps), ..Evidence::default() };
    let batching = |of: Evidence| Evidence { load_dependent: true, least_rps: of.ceiling_rps, ..of };
    let levels = [50.0, 90.0, 100.0, 101.0, 110.0, 250.0];
    for (a, b, c) in levels.iter().flat_map(|a| levels.iter().flat_map(move |b| levels.map(|c| (*a, *b, c))))
    {
        let all = [a, b, c];
        for named in [&[0][..], &[0, 1], &[0, 1, 2]] {
            let floor = all[..named.len()].iter().copied().fold(100.0, f64::max);
            let expected = all[named.len()..].iter().filter(|of| **of > 100.0 && **of >= floor);
            let expected = expected.copied().min_by(f64::total_cmp);
            let found = |of: [Evidence; 3]| next(&of, named, 100.0).and_then(|of| of.ceiling());
            let at = |bound| expected.map(|rps| Ceiling { rps, bound });
            assert_eq!(found(all.map(evidence)), at(None), "{all:?}, named {named:?}");
            let least = at(Some(Bound::AtLeast));
            assert_eq!(found(all.map(evidence).map(batching)), least, "{all:?}, named {named:?}");
        }
        assert!(next(&all.map(evidence), &[], 100.0).is_none());
    }
}

#[test]
fn what_is_hardly_busy_has_no_ceiling_and_a_demand_that_changes_with_load_a_bound() {
    let (ceiling_rps, least_rps) = (Some(100.0), Some(120.0));
    let evidence = Evidence { utilization: 0.5, ceiling_rps, least_rps, ..Evidence::default() };
    let at = |bound| Some(Ceiling { rps: 120.0, bound });
    assert_eq!(evidence.ceiling(), at(None));
    assert_eq!(Evidence { utilization: 0.01, ..evidence.clone() }.ceiling(), None);
    let batching = Evidence { load_dependent: true, ..evidence.clone() };
    assert_eq!(batching.ceiling(), at(Some(Bound::AtLeast)));
    assert_eq!(Evidence { rises: true, ..batching }.ceiling(), at(Some(Bound::AtMost)));
    assert_eq!(Evidence { kind: ResourceKind::Indication, ..evidence }.ceiling(), None);
}

#[test]
fn a_ceiling_that_may_be_higher_is_next_only_if_no_other_is_known() {
    let of = |rps: f64, load_dependent| {
        let (ceiling_rps, least_rps) = (Some(rps / 2.0), Some(rps));
        Evidence { utilization: 0.5, ceiling_rps, least_rps, load_dependent, ..Evidence::default() }
    };
    let firm = Evidence { ceiling_rps: Some(900.0), ..of(900.0, false) };
    let named = Evidence { ceiling_rps: Some(100.0), ..of(100.0, false) };
    let found = |of: &[Evidence]| next(of, &[0], 95.0).and_then(|of| of.ceiling());
    let flush = Ceiling { rps: 300.0, bound: Some(Bound::AtLeast) };
    assert_eq!(found(&[named.clone(), of(400.0, true), of(300.0, true)]), Some(flush));
    assert_eq!(found(&[named, of(300.0, true), firm]), Some(Ceiling { rps: 900.0, bound: None }));
}

/// A flush that waits for a core takes longer with more clients.
#[test]
fn the_ceiling_of_a_demand_that_rises_is_an_upper_bound() {
    let bound = |most: f64| {
        let mut results = scene(&[
            actor("server CPU", Limit::ServerCpu, |n| {
                (if n < 2.0 { 0.4 } else { 0.98 }, Some((n - 1.0).max(0.0)), None)
            }),
            actor("store flush", Limit::CommitPath, |_| (0.0, Some(0.0), None)),
        ]);
        for trial in &mut results.trials {
            let busy = if trial.level == 64 { most } else { 0.2 };
            grow(trial, "store flush.busy", busy * trial.elapsed_secs);
            // The best level is a lower one.
            if let (64, Some(load)) = (trial.level, &mut trial.load) {
                load.goodput_rps *= 0.98;
            }
        }
        let next = found(&results).bottleneck.next.unwrap();
        assert_eq!(next.resource, "store flush");
        next.ceiling().unwrap().bound
    };
    assert_eq!([0.2, 0.21, 0.6].map(bound), [None, None, Some(Bound::AtMost)]);
}

/// On a busy machine the level with the most goodput may be one below the limit.
#[test]
fn what_is_saturated_only_with_the_most_clients_is_suspected() {
    let of = |most: f64, waiting: fn(f64) -> f64| {
        let mut results = scene(&[
            actor("server workers", Limit::ServerWorkers, |_| (0.8, Some(0.0), None)),
            actor("server CPU", Limit::ServerCpu, |_| (0.0, None, None)).within(&["server workers"]),
        ]);
        for trial in &mut results.trials {
            let (clients, secs) = (f64::from(trial.level), trial.elapsed_secs);
            let busy = if trial.level == 64 { most } else { 0.3 + 0.02 * clients.min(20.0) };
            grow(trial, "server CPU.busy", busy * secs);
            grow(trial, "server workers.waiting", waiting(clients) * secs);
        }
        let bottleneck = found(&results).bottleneck;
        let said = bottleneck.named.iter().map(|of| of.resource.clone()).collect::<Vec<String>>();
        (bottleneck.grade, said.join(", "), bottleneck.because)
    };
    let (grade, named, because) = of(0.97, |n| 0.9 * n);
    assert_eq!((grade, named.as_str()), (Grade::Suspected, "server CPU"), "{because:?}");
    let why = because.last();
    let clients = |of: &Evidence| of.at_most_clients.map(|(clients, _)| clients);
    assert!(matches!(why, Some(Reason::SaturatedAtMost(of)) if clients(of) == Some(64)), "{because:?}");
    assert_eq!(of(0.93, |n| 0.9 * n).0, Grade::NotIdentified, "not saturated");
    // Somebody else has the clients.
    assert_eq!(of(0.97, |_| 0.0).0, Grade::NotIdentified, "nobody waits for what it serves");
}

/// A core of which other machines have a fifth is full at four fifths.
#[test]
fn what_the_hypervisor_takes_of_a_core_is_not_there() {
    let named = |stolen: &[&str]| {
        let busy = |n: f64| (if n < 2.0 { 0.4 } else { 0.78 }, Some((n - 1.0).max(0.0)), None);
        let mut results = scene(&[actor("server CPU", Limit::ServerCpu, busy)]);
        results.resources[0].stolen = stolen.iter().map(|name| (*name).to_owned()).collect();
        for trial in &mut results.trials {
            let secs = trial.elapsed_secs;
            grow(trial, "core.0.steal_secs", 0.2 * secs);
        }
        let bottleneck = found(&results).bottleneck;
        (bottleneck.grade, bottleneck.named.first().map(|of| (of.utilization * 1000.0).round()))
    };
    assert_eq!(named(&[]), (Grade::NotIdentified, None));
    assert_eq!(named(&["core.0.steal_secs"]), (Grade::Supported, Some(975.0)));
}
