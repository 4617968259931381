//! What happened when one resource was made a little slower (docs/method.md, Limit).
//!
//! If a resource is the limit, goodput falls as its demand grows: X′ = X·D/(D + δ). If it is not, hardly anything happens. What is
//! compared ran within one round, on the same server, in an order that was drawn: of a round only its number says what belongs together.

use super::rows::{ERRORS_MAX, SATURATED, batches};
use lab_data::distinct;
use lab_data::results::{Change, Intervention, Resource, Results, SLOWER_GENERATOR, SLOWER_SERVER, Trial};
use stats::{Estimate, Interval, mean};

/// What a change did, over its rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// What was done, in the first round.
    pub change: Change,
    /// The clients it was done at.
    pub level: u32,
    /// Rounds in which both the change and its counterpart were measured.
    pub rounds: u32,
    /// Of the resources whose demand it raises the fullest, whose limit `expected_loss` speaks of; `None` of a control.
    pub of: Option<String>,
    /// The share of goodput that had to be lost if that resource were the limit, 0–1; of a control, if it were one server.
    pub expected_loss: f64,
    /// What a delay of that length would cost if nothing were limited, over `expected_loss`: of a resource that serves nearly as many as
    /// there are clients it is near 1, and the change tells nothing.
    pub as_delay: f64,
    /// The share that was lost, a trimmed mean over the rounds: what disturbs one of them is no effect.
    pub loss: Estimate,
    /// Lost over expected: about 1 at the limit, about 0 elsewhere.
    pub elasticity: Estimate,
    /// What follows for the resource.
    pub shown: Shown,
}

/// What follows from making a resource slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Goodput follows the resource: it is the limit.
    Limit,
    /// Goodput does not: it is not.
    NotLimit,
    /// The rounds are too few or too different, or any delay of that length costs as much.
    Undecided,
}

impl Shown {
    /// The same of a change that raises what may go through: what a limit gains is the mirror image of a loss. A gain that is too small
    /// tells nothing: the next limit, as the cores under a quota, may be near.
    fn of_change(loss: &Estimate, expected: f64, as_delay: f64, busy: f64) -> Shown {
        if expected >= 0.0 {
            return Shown::of(loss, expected, as_delay, busy);
        }
        let gain = Estimate { mean: -loss.mean, low: -loss.high, high: -loss.low, ..*loss };
        match Shown::of(&gain, -expected, as_delay, busy) {
            Shown::NotLimit => Shown::Undecided,
            shown => shown,
        }
    }

    /// A limit loses `expected`, what is no limit nothing: the interval of the loss lies on one side of the middle between them. Where
    /// it does not, how `busy` the resource is, 0–1, decides between the two if the interval holds that one.
    fn of(loss: &Estimate, expected: f64, as_delay: f64, busy: f64) -> Shown {
        let half = 0.5 * expected;
        let (may_be_none, may_be_all) = (loss.low <= 0.0, loss.high >= expected);
        let has_time = busy < HAS_TIME;
        match loss.interval {
            Interval::StudentT if loss.high < half || may_be_none && has_time => Shown::NotLimit,
            Interval::StudentT if has_time || as_delay >= 0.5 => Shown::Undecided,
            Interval::StudentT if loss.low >= half => Shown::Limit,
            Interval::StudentT if may_be_all && busy >= SATURATED => Shown::Limit,
            _ => Shown::Undecided,
        }
    }
}

/// A resource that is busy for less of the time is no limit, whatever was lost: others took the time, or its neighbour became slower, too.
const HAS_TIME: f64 = 0.7;

/// The effects of all changes made to `workload`, in the order in which they were first made.
pub(super) fn effects(results: &Results, workload: &str) -> Vec<Effect> {
    let made: Vec<&Intervention> =
        results.interventions.iter().filter(|made| made.trial.workload == workload).collect();
    let names = made.iter().filter_map(|made| Some((made.change.as_ref()?.name.as_str(), made.trial.level)));
    let of = |(name, level)| effect(&results.resources, &made, name, level);
    let mut all: Vec<Effect> = distinct(names).into_iter().filter_map(of).collect();
    // Cores that slow each other down, as two threads of one core do, make goodput follow both.
    let is_limit = |of: &Effect, name: &str| of.change.name == name && of.shown == Shown::Limit;
    if all.iter().any(|of| is_limit(of, SLOWER_SERVER)) {
        for of in all.iter_mut().filter(|of| is_limit(of, SLOWER_GENERATOR)) {
            of.shown = Shown::Undecided;
        }
    }
    all
}

/// Whether slowing the generator and the server of `workload` has shown which of them goodput follows.
pub fn headroom_is_decided(results: &Results, workload: &str) -> bool {
    let effects = effects(results, workload);
    let mut tried = effects.iter().filter(|of| [SLOWER_GENERATOR, SLOWER_SERVER].contains(&&*of.change.name));
    tried.all(|of| of.shown != Shown::Undecided)
}

/// What became of it when the generator was made slower; `None` where it was not.
pub(super) fn headroom(effects: &[Effect]) -> Option<&Effect> {
    effects.iter().filter(|effect| effect.change.name == SLOWER_GENERATOR).max_by_key(|effect| effect.rounds)
}

fn effect(resources: &[Resource], made: &[&Intervention], name: &str, level: u32) -> Option<Effect> {
    let changed: Vec<(&Change, &Trial)> = made
        .iter()
        .filter_map(|made| Some((made.change.as_ref()?, &made.trial)))
        .filter(|(change, trial)| change.name == name && trial.level == level)
        .collect();
    let round = |(change, trial): &(&Change, &Trial)| {
        let is_base = |of: &&&Intervention| {
            of.change.is_none() && (of.trial.repetition, of.trial.level) == (trial.repetition, level)
        };
        let base = &made.iter().find(is_base)?.trial;
        let loss = 1.0 - goodput(trial)? / goodput(base)?;
        Some((loss, Due::of(resources, change, base)?))
    };
    let (losses, due): (Vec<f64>, Vec<Due>) = changed.iter().filter_map(round).unzip();
    let ratios: Vec<f64> = losses.iter().zip(&due).map(|(loss, due)| loss / due.loss).collect();
    let expected_loss = mean(due.iter().map(|due| due.loss))?;
    let as_delay = mean(due.iter().map(|due| due.as_delay))?;
    let busy = mean(due.iter().map(|due| due.busy))?;
    let loss = Estimate::trimmed(&losses)?;
    Some(Effect {
        change: changed.first()?.0.clone(),
        level,
        rounds: losses.len() as u32,
        of: due.into_iter().find_map(|due| due.of),
        expected_loss,
        as_delay,
        loss,
        shown: Shown::of_change(&loss, expected_loss, as_delay, busy),
        elasticity: Estimate::trimmed(&ratios)?,
    })
}

/// A change that even a limit would hardly notice tells nothing.
const LOSS_LEAST: f64 = 0.02;

/// Successes per second; `None` of a trial that failed, brought nothing, or in which requests failed.
fn goodput(trial: &Trial) -> Option<f64> {
    let load = trial.numbers().filter(|load| load.error_ratio <= ERRORS_MAX)?;
    Some(load.goodput_rps).filter(|rps| *rps > 0.0)
}

/// What a change must cost.
struct Due {
    /// The resource that it is the limit of.
    of: Option<String>,
    /// The share of goodput.
    loss: f64,
    /// [`Effect::as_delay`].
    as_delay: f64,
    /// Busy share of the resource, 0–1; of none, 1.
    busy: f64,
}

impl Due {
    /// What `change` takes from the fullest of the resources it raises, if that is the limit of `base`. `None` where that is not known.
    fn of(resources: &[Resource], change: &Change, base: &Trial) -> Option<Due> {
        let load = base.numbers()?;
        let raised = resources.iter().filter(|of| change.raises.contains(&of.name));
        let full = |of: &Resource| base.utilization(of).unwrap_or(0.0);
        let raised = raised.max_by(|a, b| full(a).total_cmp(&full(b)));
        if raised.is_none() && !change.raises.is_empty() {
            return None;
        }
        // A request visits one of several servers, and which cores are the fuller ones says nothing of the others.
        let is_one_of_several = raised.is_some_and(|of| of.busy == ["server.cpu_secs"])
            && base.closed.counters.contains_key("server-2.cpu_secs");
        if is_one_of_several && change.factor.is_none() {
            return None;
        }
        let is_own_time = [SLOWER_GENERATOR, SLOWER_SERVER].contains(&&*change.name);
        let servers = raised.map_or(1.0, |of| base.servers(of) * if is_own_time { full(of) } else { 1.0 });
        let attempts_per_sec = load.attempts as f64 / load.window_secs;
        // A limit is busy all the time: what it takes of each request, or of each batch, follows from how many there were. What slows a
        // part by a share of its own time takes that share whether the part is busy or not.
        let per_sec = raised.and_then(|of| batches(of, base)).unwrap_or(attempts_per_sec);
        let demand_us = servers / per_sec * 1e6;
        let added_us = change.factor.map_or(change.added_us, |factor| demand_us * (factor - 1.0));
        let loss = added_us / (demand_us + added_us);
        // Every client's cycle is longer by it.
        let cycle_us = f64::from(base.level) / attempts_per_sec * 1e6;
        let as_delay = added_us / (cycle_us + added_us) / loss;
        // Of a control nothing is expected.
        let tells = change.raises.is_empty() || loss.abs() >= LOSS_LEAST;
        let known = loss.is_finite() && tells && as_delay.is_finite();
        let busy = raised.map_or(1.0, full);
        known.then(|| Due { of: raised.map(|of| of.name.clone()), loss, as_delay, busy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::simulated::tests::{model, sweep};

    /// The table of docs/method.md, Generator headroom: what is lost if the part is the limit is 16.7 %.
    #[test]
    fn what_a_loss_shows_is_what_the_method_says() {
        use Shown::{Limit, NotLimit, Undecided};
        for (low, high, busy, as_delay, expected) in [
            (0.10, 0.20, 0.8, 0.1, Limit),
            (0.10, 0.20, 0.8, 0.6, Undecided),
            (0.10, 0.20, 0.6, 0.1, Undecided),
            (0.01, 0.08, 0.99, 0.1, NotLimit),
            // On both sides of the middle.
            (0.005, 0.175, 0.75, 0.1, Undecided),
            (0.005, 0.175, 0.86, 0.45, Undecided),
            (0.005, 0.175, 0.96, 0.1, Limit),
            (-0.01, 0.175, 0.96, 0.1, Limit),
            (0.005, 0.15, 0.96, 0.1, Undecided),
            (-0.01, 0.175, 0.6, 0.1, NotLimit),
            (0.005, 0.175, 0.6, 0.1, Undecided),
        ] {
            let mean = (low + high) / 2.0;
            let loss = Estimate { mean, low, high, runs: 4, interval: Interval::StudentT };
            let shown = Shown::of(&loss, 1.0 / 6.0, as_delay, busy);
            assert_eq!(shown, expected, "{low} to {high}, {busy} busy, {as_delay} as a delay");
            let range = Estimate { runs: 2, interval: Interval::Range, ..loss };
            assert_eq!(Shown::of(&range, 1.0 / 6.0, as_delay, busy), Undecided);
        }
    }

    #[test]
    fn the_batches_of_a_resource_are_counted_whichever_part_it_is_of() {
        let mut trial = sweep(&model("cpu 1 1ms"), &["w"], &[1], 1, "1s").trials.remove(0);
        trial.elapsed_secs = 2.0;
        for (name, count) in [
            ("database.wal_syncs", 40.0),
            ("database-2.wal_syncs", 60.0),
            ("stats.weir_store_duration_seconds_count{operation=\"write\"}", 80.0),
            ("server.cpu_secs", 1.0),
        ] {
            trial.opened.counters.insert(name.into(), 0.0);
            trial.closed.counters.insert(name.into(), count);
        }
        let of =
            |busy: &str| batches(&Resource { busy: vec![busy.to_owned()], ..Resource::default() }, &trial);
        assert_eq!(of("database.wal_sync_secs"), Some(20.0));
        assert_eq!(of("database-2.wal_sync_secs"), Some(30.0));
        assert_eq!(of("stats.weir_store_busy_seconds_total{operation=\"write\"}"), Some(40.0));
        assert_eq!(of("server.cpu_secs"), None);
    }
}
