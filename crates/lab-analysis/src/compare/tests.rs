//! Targets whose truth is known, beside each other.

use super::*;
use kv::proto::LoadReport;
use lab_data::results::{Change, Intervention, Measured, Placement, SLOWER_GENERATOR};
use lab_data::simulated::tests::{model, sweep};

const GOODPUT: usize = 0;
const CPU: usize = 1;
const P50: usize = 2;
const P99: usize = 3;

/// Targets of one run by name, each with the microseconds of processor time a request takes of it. The parts are a server
/// and, of those called `split`, also a database that has a third of the work.
pub fn run(targets: &[(&str, u32)], levels: &[u32], repetitions: u32) -> Vec<Results> {
    let among: Vec<String> = targets.iter().map(|(name, _)| (*name).to_owned()).collect();
    targets.iter().map(|(name, us)| target(name, *us, &among, levels, repetitions)).collect()
}

fn target(name: &str, us: u32, among: &[String], levels: &[u32], repetitions: u32) -> Results {
    let model = model(&format!("cpu 1 {us}us, net 0 =300us"));
    let mut results = sweep(&model, &["get", "put"], levels, repetitions, "200ms");
    results.title = "Targets in turns".into();
    let durability = if name == "weir" { "after fdatasync" } else { "" };
    results.measured =
        Some(Measured { target: name.into(), durability: durability.into(), among: among.to_vec() });
    let parts: &[(&str, f64)] =
        if name == "split" { &[("server", 2.0 / 3.0), ("database", 1.0 / 3.0)] } else { &[("server", 1.0)] };
    let placed = parts.iter().map(|(part, _)| (*part, 0)).chain([("generator", 1)]);
    results.placements = placed
        .map(|(part, core)| Placement { part: part.into(), cores: vec![core], ..Placement::default() })
        .collect();
    for trial in &mut results.trials {
        let busy = trial.growth("station.cpu.busy_secs").unwrap();
        for (part, share) in parts {
            trial.opened.counters.insert(format!("{part}.cpu_secs"), 5.0);
            trial.closed.counters.insert(format!("{part}.cpu_secs"), 5.0 + share * busy);
        }
        // Nobody's but the lab's.
        trial.opened.counters.insert("generator.cpu_secs".into(), 0.0);
        trial.closed.counters.insert("generator.cpu_secs".into(), 0.1);
        let load = trial.load.as_mut().unwrap();
        load.operations[0].operation = trial.workload.clone();
    }
    results
}

fn compared(all: &[Results]) -> Comparison {
    compare(&all.iter().collect::<Vec<_>>()).unwrap()
}

/// The other side's ratio of a figure in `get` at a level.
fn ratio(comparison: &Comparison, clients: u32, other: usize, measure: usize) -> Ratio {
    side(comparison, clients, other).ratios[measure].clone().unwrap()
}

fn side(comparison: &Comparison, clients: u32, side: usize) -> SideOfLevel {
    let level = comparison.workloads[0].levels.iter().find(|level| level.clients == clients).unwrap();
    level.sides[side].clone().unwrap()
}

fn spoil(results: &mut Results, change: impl Fn(&mut LoadReport)) {
    results.trials.iter_mut().for_each(|trial| change(trial.load.as_mut().unwrap()));
}

/// Goodput follows the generator: made slower by a quarter it loses the fifth that a limit loses.
pub fn busy_generator(results: &mut Results) {
    for base in results.trials.clone().into_iter().filter(|trial| trial.level == 16) {
        let mut trial = base.clone();
        let load = trial.load.as_mut().unwrap();
        let added_us = 0.25 * load.window_secs / load.attempts as f64 * 1e6;
        load.goodput_rps *= 0.8;
        let name = SLOWER_GENERATOR.to_owned();
        let change = Change { name, raises: Vec::new(), added_us, factor: None };
        results.interventions.push(Intervention { change: None, trial: base });
        results.interventions.push(Intervention { change: Some(change), trial });
    }
}

#[test]
fn targets_of_one_run_are_compared_with_its_first_in_pairs() {
    let comparison = compared(&run(&[("weir", 50), ("slow", 100), ("split", 50)], &[1, 16], 5));
    let names: Vec<&str> = comparison.sides.iter().map(|side| side.name.as_str()).collect();
    assert_eq!((names, comparison.interleaved), (vec!["weir", "slow", "split"], true));
    for clients in [1, 16] {
        let cpu = ratio(&comparison, clients, 1, CPU);
        let (low, high) = cpu.quotient.unwrap().interval.unwrap();
        assert!(low < 2.0 && 2.0 < high && low > 1.7 && high < 2.3, "{cpu:?}");
        assert_eq!(
            (cpu.conclusion, cpu.quotient.unwrap().method, cpu.quotient.unwrap().runs),
            (Conclusion::OtherMore, Method::Paired, 5)
        );
    }
    let goodput = ratio(&comparison, 16, 1, GOODPUT);
    assert!(
        (goodput.quotient.unwrap().ratio / 0.5 - 1.0).abs() < 0.05
            && goodput.conclusion == Conclusion::FirstMore,
        "{goodput:?}"
    );
    for latency in [P50, P99] {
        assert_eq!(ratio(&comparison, 16, 1, latency).conclusion, Conclusion::OtherMore);
    }
    assert!(side(&comparison, 16, 0).ratios.iter().all(Option::is_none));
    // Four figures at two levels of two workloads on two others.
    assert_eq!(comparison.tested, 32);
}

#[test]
fn the_time_of_all_parts_is_counted_and_the_generators_is_not() {
    let mut all = run(&[("weir", 50), ("split", 50)], &[16], 5);
    let comparison = compared(&all);
    assert_eq!(comparison.sides[1].parts, ["server", "database"]);
    let cpu = side(&comparison, 16, 1).figures[CPU].clone().unwrap();
    assert!((cpu.value / 50.0 - 1.0).abs() < 0.05, "{cpu:?}");
    // A part that was not read hides the sum: without it the target would look better than it is.
    for trial in &mut all[1].trials {
        trial.closed.counters.remove("database.cpu_secs");
    }
    let comparison = compared(&all);
    assert!(
        side(&comparison, 16, 1).figures[CPU].is_none() && side(&comparison, 16, 1).ratios[CPU].is_none()
    );
    assert!(side(&comparison, 16, 1).ratios[GOODPUT].is_some());
}

#[test]
fn requests_are_all_of_them_and_goodput_is_what_succeeded() {
    let mut all = run(&[("weir", 50), ("other", 50)], &[16], 3);
    let before = side(&compared(&all), 16, 1);
    spoil(&mut all[1], |load| {
        load.successes /= 2;
        load.goodput_rps /= 2.0;
        load.error_ratio = 0.5;
    });
    let after = side(&compared(&all), 16, 1);
    let change = |measure: usize| {
        after.figures[measure].as_ref().unwrap().value / before.figures[measure].as_ref().unwrap().value
    };
    assert!((change(CPU) - 1.0).abs() < 1e-9 && (change(GOODPUT) - 0.5).abs() < 1e-3);
    for measure in [GOODPUT, CPU, P50, P99] {
        let ratio = after.ratios[measure].as_ref().unwrap();
        let seen = (ratio.conclusion, &ratio.obstacle);
        assert_eq!(
            seen,
            (Conclusion::NotComparable, &Some(Obstacle::Invalid)),
            "half of its requests failed"
        );
    }
    let failed: Vec<&str> = after.row.checks.iter().filter(|of| of.failed()).map(|of| of.id).collect();
    assert_eq!(failed, ["errors"]);
}

#[test]
fn runs_of_different_days_are_compared_by_welch_and_called_a_and_b() {
    let mut all = run(&[("weir", 50), ("weir", 51)], &[16], 3);
    all[1].started = "2026-02-03T04:05:06Z".into();
    let comparison = compared(&all);
    let names: Vec<&str> = comparison.sides.iter().map(|side| side.name.as_str()).collect();
    assert_eq!((names, comparison.interleaved), (vec!["A", "B"], false));
    assert_eq!(ratio(&comparison, 16, 1, CPU).quotient.unwrap().method, Method::Welch);
}

#[test]
fn runs_that_are_alike_show_no_difference() {
    let mut all = run(&[("weir", 50), ("weir", 50)], &[1, 4], 3);
    all[1].started = "2026-02-03T04:05:06Z".into();
    let comparison = compared(&all);
    let level = comparison.workloads.iter().flat_map(|workload| &workload.levels);
    let ratios: Vec<&Ratio> =
        level.flat_map(|level| level.sides[1].iter().flat_map(|side| side.ratios.iter().flatten())).collect();
    assert_eq!(ratios.len(), 16);
    assert!(
        ratios.iter().all(|of| of.conclusion == Conclusion::NotShown && of.quotient.unwrap().ratio == 1.0)
    );
    assert!(comparison.circumstances.is_empty(), "{:?}", comparison.circumstances);
}

#[test]
fn the_same_results_twice_are_refused_and_a_target_has_no_turns_with_itself() {
    let mut all = run(&[("weir", 50), ("weir", 50)], &[4], 2);
    let why = compare(&[&all[0], &all[1]]).unwrap_err().to_string();
    assert!(why.contains("the same results twice; hint: name") && !why.contains('\n'), "{why}");
    all[1].trials[0].elapsed_secs *= 1.01;
    let comparison = compared(&all);
    assert!(!comparison.interleaved);
    assert_eq!(ratio(&comparison, 4, 1, CPU).quotient.unwrap().method, Method::Welch);
}

#[test]
fn nothing_is_a_bound_where_a_side_is_invalid() {
    for invalid in [0, 1] {
        let mut all = run(&[("weir", 50), ("quick", 25)], &[16], 3);
        busy_generator(&mut all[1]);
        spoil(&mut all[invalid], |load| {
            load.successes /= 2;
            load.goodput_rps /= 2.0;
            load.error_ratio = 0.5;
        });
        let goodput = ratio(&compared(&all), 16, 1, GOODPUT);
        assert_eq!((goodput.conclusion, goodput.bound), (Conclusion::NotComparable, None), "{invalid}");
    }
}

#[test]
fn a_figure_of_zero_in_one_run_is_no_ratio_and_the_run_is_named() {
    let mut all = run(&[("weir", 50), ("other", 50)], &[16], 3);
    let trials = all[1].trials.iter_mut();
    let load = trials.filter_map(|trial| trial.load.as_mut().filter(|_| trial.repetition == 1));
    load.for_each(|load| load.goodput_rps = 0.0);
    let goodput = ratio(&compared(&all), 16, 1, GOODPUT);
    assert_eq!(
        (goodput.quotient, goodput.conclusion, goodput.bound),
        (None, Conclusion::NotComparable, None)
    );
    assert_eq!(goodput.obstacle, Some(Obstacle::Zero { run: 2, side: "other".to_owned() }));
}

#[test]
fn a_run_in_which_the_target_died_is_left_out_although_it_has_numbers() {
    let mut all = run(&[("weir", 50), ("other", 50)], &[16], 3);
    let died = all[1].trials.iter_mut().find(|trial| trial.workload == "get").unwrap();
    died.failure = Some("server ended".into());
    died.load.as_mut().unwrap().goodput_rps = 1.0;
    let comparison = compared(&all);
    let goodput = ratio(&comparison, 16, 1, GOODPUT).quotient.unwrap();
    assert!(goodput.runs == 2 && goodput.ratio > 0.9, "{goodput:?}");
    let side = side(&comparison, 16, 1);
    assert_eq!((side.row.runs, side.row.failures), (2, [("server ended".to_owned(), 1)].into()));
}

#[test]
fn a_busy_generator_bars_goodput_and_latency_and_spares_processor_time() {
    for (busy, bound) in [(vec![1], Some(Bound::AtLeast)), (vec![0], Some(Bound::AtMost)), (vec![0, 1], None)]
    {
        let mut all = run(&[("weir", 50), ("quick", 25)], &[16], 3);
        busy.iter().for_each(|i| busy_generator(&mut all[*i]));
        let comparison = compared(&all);
        let goodput = ratio(&comparison, 16, 1, GOODPUT);
        assert_eq!((goodput.conclusion, goodput.bound), (Conclusion::NotComparable, bound));
        assert_eq!(goodput.obstacle, Some(Obstacle::GeneratorLimited));
        assert_eq!(ratio(&comparison, 16, 1, P50).conclusion, Conclusion::NotComparable);
        let cpu = ratio(&comparison, 16, 1, CPU);
        assert_eq!((cpu.conclusion, cpu.bound), (Conclusion::FirstMore, None));
        let limited = [0, 1].map(|i| side(&comparison, 16, i).generator_limited);
        assert_eq!(limited, [0, 1].map(|i| busy.contains(&i)));
        assert_eq!(comparison.tested, 2, "what is not comparable was not tested");
    }
}

#[test]
fn one_run_makes_no_interval() {
    let comparison = compared(&run(&[("weir", 50), ("slow", 100)], &[16], 1));
    let cpu = ratio(&comparison, 16, 1, CPU);
    assert_eq!(
        (cpu.quotient.unwrap().interval, cpu.conclusion, comparison.tested),
        (None, Conclusion::NoInterval, 0)
    );
}

#[test]
fn a_repetition_that_one_side_lacks_is_no_pair() {
    let mut all = run(&[("weir", 50), ("slow", 100)], &[16], 4);
    let lost =
        all[1].trials.iter_mut().find(|trial| trial.workload == "get" && trial.repetition == 2).unwrap();
    lost.load = None;
    lost.failure = Some("it did not start".into());
    let comparison = compared(&all);
    assert_eq!(ratio(&comparison, 16, 1, CPU).quotient.unwrap().runs, 3);
    let side = side(&comparison, 16, 1);
    assert_eq!((side.row.runs, side.row.planned), (3, 4));
    assert_eq!(side.row.failures, [("it did not start".to_owned(), 1)].into());
}

#[test]
fn a_side_without_any_numbers_keeps_its_place() {
    let mut all = run(&[("weir", 50), ("dead", 100)], &[16], 2);
    all[1].trials.clear();
    let comparison = compared(&all);
    let dead = side(&comparison, 16, 1);
    assert_eq!((dead.row.excluded, dead.row.runs), (Some(Excluded::NoNumbers), 0));
    assert!(dead.figures.iter().all(Option::is_none) && dead.ratios.iter().all(Option::is_none));
}

#[test]
fn what_only_one_side_has_is_named_and_not_compared() {
    let mut all = run(&[("weir", 50), ("narrow", 50)], &[1, 4], 2);
    all[1].workloads.remove(1);
    all[1].levels = vec![4];
    let comparison = compared(&all);
    assert_eq!(comparison.workloads.len(), 1);
    let levels: Vec<u32> = comparison.workloads[0].levels.iter().map(|level| level.clients).collect();
    assert_eq!(levels, [4]);
    let clients = comparison.circumstances.iter().find(|of| of.what == "get: clients").unwrap();
    assert_eq!(clients.of, [Some("1, 4".to_owned()), Some("4".to_owned())]);

    let mut all = run(&[("weir", 50), ("a", 50), ("b", 60)], &[4], 2);
    all[0].workloads.remove(1);
    let comparison = compared(&all);
    let put = &comparison.workloads[1].levels[0];
    assert!(put.sides[0].is_none() && put.sides[2].as_ref().unwrap().ratios.iter().all(Option::is_none));
}

#[test]
fn nothing_in_common_is_told_in_one_line_with_the_remedy() {
    let (one, mut other) = (run(&[("weir", 50)], &[1], 1), run(&[("x", 50)], &[1], 1));
    other[0].levels = vec![2];
    let why = compare(&[&one[0], &other[0]]).unwrap_err().to_string();
    assert!(why.contains("in common; hint: ") && !why.contains('\n'), "{why}");
    assert!(compare(&[&one[0]]).unwrap_err().to_string().contains("; hint: name a second"));
}

#[test]
fn only_what_differs_is_listed() {
    let mut all = run(&[("weir", 50), ("nginx", 50)], &[4], 2);
    assert!(compared(&all).circumstances.is_empty(), "{:?}", compared(&all).circumstances);
    all[1].environment[0].1 = "another".into();
    all[1].environment.push(("kernel".into(), "6.1".into()));
    all[1].seed = 8;
    all[1].placements[0].cores = vec![0, 2];
    for trial in all[1].trials.iter_mut().filter(|trial| trial.workload == "put") {
        trial.load.as_mut().unwrap().value_bytes = "1000".into();
    }
    for trial in all[0].trials.iter_mut().filter(|trial| trial.workload == "put") {
        trial.load.as_mut().unwrap().value_bytes = "100".into();
    }
    let seen = compared(&all).circumstances;
    let told: Vec<String> = (seen.iter())
        .map(|of| {
            let values: Vec<&str> = of.of.iter().map(|value| value.as_deref().unwrap_or("–")).collect();
            format!("{}: {}", of.what, values.join(" / "))
        })
        .collect();
    assert_eq!(
        told,
        [
            "seed: 7 / 8",
            "placement: server on 0, generator on 1 / server on 0 2, generator on 1",
            "cpu: virtual / another",
            "kernel: – / 6.1",
            "put: value bytes: 100 / 1000"
        ]
    );
}

#[test]
fn durability_matters_where_something_is_written() {
    let comparison = compared(&run(&[("weir", 50), ("nginx", 50)], &[4], 2));
    let writes: Vec<(&str, bool)> =
        comparison.workloads.iter().map(|workload| (workload.name.as_str(), workload.writes)).collect();
    assert_eq!(writes, [("get", false), ("put", true)]);
    let told: Vec<Option<&str>> = comparison.sides.iter().map(|side| side.durability.as_deref()).collect();
    assert_eq!(told, [Some("after fdatasync"), None]);
}

fn capacity(comparison: &Comparison, workload: usize) -> CapacityRatio {
    comparison.workloads[workload].capacities[1].clone().unwrap()
}

#[test]
fn capacities_are_compared_where_both_sides_have_one() {
    let levels = &[1, 4, 16, 32, 64];
    let of = capacity(&compared(&run(&[("weir", 50), ("slow", 100)], levels, 5)), 0);
    let quotient = of.ratio.quotient.unwrap();
    assert_eq!(
        (of.at_clients, of.ratio.conclusion, quotient.method),
        (None, Conclusion::FirstMore, Method::Paired)
    );
    assert!((quotient.ratio / 0.5 - 1.0).abs() < 0.03 && of.p_holm.unwrap() < 0.01, "{of:?}");
    // Two levels make no plateau: goodput at the higher one stands in.
    let of = capacity(&compared(&run(&[("weir", 50), ("slow", 100)], &[1, 16], 5)), 0);
    assert_eq!((of.at_clients, of.ratio.conclusion), (Some(16), Conclusion::FirstMore));
}

#[test]
fn sides_that_differ_in_nothing_are_not_distinguishable() {
    let mut all = run(&[("weir", 50), ("weir", 50)], &[1, 4, 16, 32], 3);
    all[1].started = "2026-02-03T04:05:06Z".into();
    let of = capacity(&compared(&all), 0);
    assert_eq!(
        (of.ratio.conclusion, of.p_holm, of.ratio.quotient.unwrap().method),
        (Conclusion::NotShown, Some(1.0), Method::Welch)
    );
}

#[test]
fn two_repetitions_have_an_interval_and_one_has_none() {
    for repetitions in [1, 2] {
        let of = capacity(&compared(&run(&[("weir", 50), ("slow", 100)], &[1, 16], repetitions)), 0);
        assert_eq!(of.ratio.quotient.unwrap().interval.is_some(), repetitions == 2, "{of:?}");
    }
}

#[test]
fn a_generator_at_its_limit_makes_the_ratio_of_capacities_a_bound() {
    let mut all = run(&[("weir", 50), ("quick", 25)], &[1, 4, 16, 32], 3);
    busy_generator(&mut all[1]);
    let of = capacity(&compared(&all), 0);
    assert_eq!(
        (of.ratio.conclusion, of.ratio.bound, of.p_holm),
        (Conclusion::NotComparable, Some(Bound::AtLeast), None),
        "{of:?}"
    );
}

#[test]
fn the_more_is_tested_the_less_a_single_difference_counts() {
    let ratio = |ratio: f64, p: f64| {
        let interval = if p < 0.05 { (0.99 * ratio, 1.01 * ratio) } else { (0.9, 1.1) };
        let quotient =
            Quotient { ratio, interval: Some(interval), method: Method::Welch, runs: 3, p: Some(p) };
        let ratio = super::ratio(Ok(quotient), Kind::Rate, [false; 2], false);
        CapacityRatio { at_clients: None, ratio, p_holm: None }
    };
    let mut all = [ratio(1.2, 0.03), ratio(1.1, 0.01), ratio(0.9, 0.001), ratio(1.0, 0.6)];
    capacity::correct(all.iter_mut());
    let said: Vec<Conclusion> = all.iter().map(|of| of.ratio.conclusion).collect();
    assert_eq!(
        said,
        [Conclusion::NotShown, Conclusion::OtherMore, Conclusion::FirstMore, Conclusion::NotShown]
    );
    let p: Vec<f64> = all.iter().map(|of| (of.p_holm.unwrap() * 1e3).round() / 1e3).collect();
    assert_eq!(p, [0.06, 0.03, 0.004, 0.6]);
}
