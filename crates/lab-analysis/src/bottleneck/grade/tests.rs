//! Grades of what was made slower, on simulated systems.

use super::super::tests::{LEVELS, found, grow};
use super::*;
use crate::bottleneck::Reason;
use lab_data::results::{Change, Intervention, Limit, Resource, ResourceKind, Results};
use lab_data::simulated::tests::{Interventions, interventions, model, sweep};

/// A sweep of `stations` with interventions at its highest level.
fn intervened(stations: &str) -> Results {
    let model = model(stations);
    let mut results = sweep(&model, &["w"], LEVELS, 2, "3s");
    let wanted = Interventions { level: 64, rounds: 3, strength: 0.3 };
    let (warmup, window) = ("500ms".parse().unwrap(), "3s".parse().unwrap());
    results.interventions = interventions(&model, wanted, "w", 7, warmup, window);
    results
}

#[test]
fn what_costs_what_a_limit_must_cost_is_confirmed() {
    let found = found(&intervened("cpu 1 1ms, disk 2 3ms, net 0 5ms"));
    let bottleneck = &found.bottleneck;
    assert_eq!((bottleneck.grade, bottleneck.named[0].resource.as_str()), (Grade::Confirmed, "disk"));
    let of = |name: &str| found.effects.iter().find(|effect| effect.change.name == name).unwrap();
    assert!((of("disk").elasticity.mean - 1.0).abs() < 0.25, "{:?}", of("disk"));
    assert!((of("disk").expected_loss - 0.3 / 1.3).abs() < 0.01);
    assert!(of("cpu").elasticity.mean < 0.3 && of("net").elasticity.mean < 0.3, "{:?}", found.effects);
    assert_eq!(of("net").rounds, 3);
}

/// The smallest and the largest of two rounds are no interval: with one round more it may be anywhere.
#[test]
fn two_rounds_confirm_nothing() {
    let mut results = intervened("cpu 1 1ms, disk 2 3ms, net 0 5ms");
    results.interventions.retain(|made| made.trial.repetition < 2);
    let bottleneck = found(&results).bottleneck;
    assert_eq!((bottleneck.grade, bottleneck.named[0].resource.as_str()), (Grade::Supported, "disk"));
}

/// Two of the same height: whichever is made slower is then the lower one, and costs what a limit costs.
#[test]
fn of_two_that_share_the_load_each_has_to_cost_what_a_limit_costs() {
    let mut results = intervened("it 1 =2ms, net 0 =2ms");
    let twin = |name: &str| Resource { name: name.into(), limit: Some(Limit::Pool), ..Resource::default() };
    let it = results.resources.iter().position(|of| of.name == "it").unwrap();
    let twin = Resource {
        kind: ResourceKind::Pool,
        servers: 1.0,
        busy: results.resources[it].busy.clone(),
        ..twin("twin")
    };
    results.resources.insert(it + 1, Resource { waiting: vec!["twin.waiting".into()], ..twin });
    for trial in &mut results.trials {
        let waiting = trial.elapsed_secs * f64::from(trial.level) / 10.0;
        grow(trial, "twin.waiting", waiting);
    }
    let both = |results: &Results| {
        let bottleneck = found(results).bottleneck;
        (bottleneck.grade, bottleneck.named.len())
    };
    assert_eq!(both(&results), (Grade::Supported, 2), "only one of them was made slower");
    let turned: Vec<Intervention> = results.interventions.clone();
    for made in turned.into_iter().filter(|made| made.change.as_ref().is_some_and(|of| of.name == "it")) {
        let change = Change { name: "twin".into(), raises: vec!["twin".into()], ..made.change.unwrap() };
        results.interventions.push(Intervention { change: Some(change), ..made });
    }
    assert_eq!(both(&results), (Grade::Confirmed, 2));
}

#[test]
fn a_quota_that_held_nobody_back_is_not_confirmed() {
    let mut results = intervened("it 1 =2ms, net 0 =2ms");
    let graded = |results: &mut Results, secs: f64| {
        for trial in &mut results.trials {
            let elapsed = trial.elapsed_secs;
            grow(trial, "server.throttled_secs", secs * elapsed);
        }
        let bottleneck = found(results).bottleneck;
        (bottleneck.grade, bottleneck.named[0].throttled)
    };
    let named = results.resources.iter().position(|of| of.name == "it").unwrap();
    results.resources[named].limit = Some(Limit::ServerQuota);
    let (grade, throttled) = graded(&mut results, 0.6);
    assert_eq!(grade, Grade::Confirmed);
    assert!((throttled.unwrap() - 0.6).abs() < 1e-6, "{throttled:?}");
    assert_eq!(graded(&mut results, 0.01).0, Grade::Supported);
}

#[test]
fn what_costs_nothing_is_not_named_however_busy_it_is() {
    let mut results = intervened("cpu 1 1ms, disk 2 3ms, net 0 5ms");
    // The disk is slowed in the file's words, and something else in truth.
    let swap = |change: &mut Change| match change.name.as_str() {
        "disk" => change.raises = vec!["cpu".into()],
        "cpu" => change.raises = vec!["disk".into()],
        _ => {}
    };
    results.interventions.iter_mut().filter_map(|made| made.change.as_mut()).for_each(swap);
    let bottleneck = found(&results).bottleneck;
    assert_eq!((bottleneck.grade, bottleneck.named.len()), (Grade::NotIdentified, 0));
    assert!(matches!(bottleneck.because.last(), Some(Reason::NotFollowed(_))), "{:?}", bottleneck.because);
}

#[test]
fn an_intervention_that_failed_counts_in_no_round() {
    let mut results = intervened("cpu 1 =1ms");
    let broken = |made: &&mut Intervention| made.change.is_some() && made.trial.repetition == 0;
    results.interventions.iter_mut().filter(broken).for_each(|made| made.trial.load = None);
    let effects = found(&results).effects;
    assert_eq!(effects[0].rounds, 2);
}
