//! Makes one resource after the other a little slower, and measures what that costs.
//!
//! After the last repetition of a target, for each workload: rounds of a trial with nothing changed, the base, and one for each intervention,
//! all in random order. An intervention adds a share of what its resource works on one request, or lowers a rate to four fifths; how much that is
//! is known from the last base before it, or from the repetitions. What is compared ran on one and the same server.
//!
//! First come those that show whether the generator is the limit: the generator or the server computes longer, at the level that got
//! most through.

use super::runner::{Length, Planned, WAITED_FOR};
use super::sizes::Base;
use super::{Block, Runner, shuffle};
use kv::Error;
use kv::units::Span;
use lab_data::experiment::{Experiment, Target, Workload, interventions_of};
use lab_data::results::{Intervention, Results, SLOWER_GENERATOR, SLOWER_SERVER, Trial};
use std::ops::Range;
use std::time::Duration;

/// After so many rounds it is asked whether they show that the generator is the limit, or is not …
const HEADROOM_ROUNDS: u32 = 4;
/// … and so often at most.
const HEADROOM_TRIES: u32 = 2;
/// The processor time that is added to each request there, as a share of what the part works on one.
const HEADROOM_STRENGTH: f64 = 0.2;
/// Their trials are short: they are made for every workload of every run, and what they look for is large.
const HEADROOM_WARMUP_MAX: Duration = Duration::from_millis(150);
const HEADROOM_WINDOW_MAX: Duration = Duration::from_millis(400);

/// What is to be done with one workload.
struct Rounds<'a> {
    workload: &'a Workload,
    level: u32,
    names: Vec<&'a str>,
    strength: f64,
    numbers: Range<u32>,
    /// After so many rounds no more are made if those decide it.
    in_one_try: u32,
    length: Length,
}

impl<'a> Rounds<'a> {
    /// Those that show whether the generator is the limit, at the level with the highest goodput; `None` where that shows nothing.
    fn headroom(
        experiment: &Experiment,
        workload: &'a Workload,
        names: &[&'a str],
        best_level: impl FnOnce() -> Option<u32>,
    ) -> Option<Rounds<'a>> {
        // At a rate that is offered, goodput says nothing.
        let level = if experiment.headroom && !workload.is_open() { best_level()? } else { return None };
        // The rounds of a workload are numbered through.
        let asked = experiment.interventions.as_ref().map_or(0, |of| of.rounds);
        Some(Rounds {
            workload,
            level,
            names: names.iter().filter(|name| is_headroom(name)).copied().collect(),
            strength: HEADROOM_STRENGTH,
            numbers: asked..asked + HEADROOM_ROUNDS * HEADROOM_TRIES,
            in_one_try: HEADROOM_ROUNDS,
            length: Length {
                warmup: Span(experiment.warmup.0.min(HEADROOM_WARMUP_MAX)),
                window: Span(experiment.window.0.min(HEADROOM_WINDOW_MAX)),
                adaptive: None,
            },
        })
    }

    /// Those that the experiment asks for.
    fn asked(experiment: &Experiment, workload: &'a Workload, names: &[&'a str]) -> Option<Rounds<'a>> {
        let asked = experiment.interventions.as_ref()?;
        let wanted = |name: &&&str| !is_headroom(name) && asked.wants(name);
        Some(Rounds {
            workload,
            level: asked.level.or(experiment.levels_of(workload).iter().max().copied()).unwrap_or(1),
            names: names.iter().filter(wanted).copied().collect(),
            strength: asked.strength,
            numbers: 0..asked.rounds,
            in_one_try: asked.rounds,
            length: Length { warmup: experiment.warmup, window: asked.window, adaptive: None },
        })
    }
}

/// All that can be made slower under a workload. What is there only for the headroom is first and last.
fn names_of<'t>(target: &'t Target, workload: &Workload) -> Vec<&'t str> {
    let server = matches!(target, Target::Weir { .. }).then_some(SLOWER_SERVER);
    let generator = (!matches!(target, Target::Simulated(_))).then_some(SLOWER_GENERATOR);
    server.into_iter().chain(interventions_of(target, workload)).chain(generator).collect()
}

fn is_headroom(name: &str) -> bool {
    [SLOWER_GENERATOR, SLOWER_SERVER].contains(&name)
}

impl Block<'_> {
    /// Makes every intervention of every workload, as often as it has to be made, or until the run is stopped. What fails is a failed
    /// trial; the error is that nothing can be saved.
    pub(super) fn intervene(&mut self, runner: &mut dyn Runner) -> Result<(), Error> {
        let (experiment, options) = (self.target_run.experiment, &self.target_run.options);
        // With faults a server takes no orders to be slow.
        if !experiment.faults.is_empty() || !experiment.headroom && experiment.interventions.is_none() {
            return Ok(());
        }
        for workload in &self.target_run.workloads {
            let names = names_of(&self.target_run.subject.target, workload);
            let best_level = || (options.best_level)(self.results, &workload.name);
            let headroom = Rounds::headroom(experiment, workload, &names, best_level);
            let both = [headroom, Rounds::asked(experiment, workload, &names)];
            for rounds in both.iter().flatten().filter(|rounds| !rounds.names.is_empty()) {
                self.run_rounds(rounds, runner)?;
                if options.is_stopped() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn run_rounds(&mut self, rounds: &Rounds, runner: &mut dyn Runner) -> Result<(), Error> {
        let Rounds { workload, level, ref names, strength, ref numbers, in_one_try, length } = *rounds;
        let (target, options) = (self.name(), &self.target_run.options);
        let in_round = 1 + names.len();
        let total = numbers.len() * in_round;
        let may_wait = names.iter().any(|name| WAITED_FOR.contains(name));
        let is_measured = |trial: &Trial| trial.numbers().is_some_and(|load| load.goodput_rps > 0.0);
        let is_same = |of: &&Trial| of.workload == workload.name && of.level == level && is_measured(of);
        let mut known = self.results.trials.iter().rev().find(is_same).cloned();
        for round in numbers.clone() {
            let made = round - numbers.start;
            if made > 0 && made % in_one_try == 0 && (options.is_decided)(self.results, &workload.name) {
                break;
            }
            let mut order = shuffled(names, self.target_run.experiment.seed, &workload.name, round);
            if known.is_none() {
                // Nobody knows yet how much is a share of what.
                order.sort_by_key(Option::is_some);
            }
            let mut revivals = None;
            for (place, name) in order.into_iter().enumerate() {
                let base = known.as_ref().map(|trial| Base { resources: &self.results.resources, trial });
                let change = name.map(|name| runner.change(base.as_ref()?, name, strength));
                let Some(change) = change.map_or(Some(None), |change| change.map(Some)) else { continue };
                let number = made as usize * in_round + place + 1;
                let unchanged = Planned::unchanged(workload, level, round, length);
                let planned = Planned { in_round: true, may_wait, change: change.as_ref(), ..unchanged };
                self.progress.begins(number, total, target, &planned);
                let mut trial = runner.trial(&planned);
                // An interrupted trial is no failure of the target.
                if options.is_stopped() {
                    return Ok(());
                }
                let is_revived = *revivals.get_or_insert(runner.revivals()) != runner.revivals();
                if is_revived {
                    let own = trial.failure.take().map(|why| format!("{why}; ")).unwrap_or_default();
                    trial.failure = Some(format!("{own}{REVIVED}"));
                    drop_round(self.results, &workload.name, round);
                }
                let is_lost = is_revived || (change.is_none() && !is_measured(&trial));
                if change.is_none() && !is_lost {
                    known = Some(trial.clone());
                }
                self.progress.ended(target, &planned, &trial);
                self.results.interventions.push(Intervention { change, trial });
                self.save()?;
                // What was or would be measured beside it can be compared with nothing.
                if is_lost {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Why a round is not compared: a fresh server is another one.
const REVIVED: &str =
    "something of the target had died and all was started anew within this round: none of it is compared";

/// Lets no trial of a round count.
fn drop_round(results: &mut Results, workload: &str, round: u32) {
    let trials = results.interventions.iter_mut().map(|made| &mut made.trial);
    for trial in trials.filter(|trial| trial.workload == workload && trial.repetition == round) {
        trial.failure.get_or_insert_with(|| REVIVED.to_owned());
    }
}

/// A round of `names` in its order, with `None` where nothing is changed.
fn shuffled<'k>(names: &[&'k str], seed: u64, workload: &str, round: u32) -> Vec<Option<&'k str>> {
    let mixed =
        workload.bytes().chain(round.to_le_bytes()).fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let mut order: Vec<Option<&str>> = [None].into_iter().chain(names.iter().copied().map(Some)).collect();
    shuffle(&mut order, mixed);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Options, Progress, TargetRun};
    use lab_data::experiment::{Experiment, INTERVENTIONS};
    use std::collections::BTreeSet;

    use crate::harness::sizes::tests::base;

    #[test]
    fn each_round_has_every_intervention_and_its_base_once_in_an_order_of_its_own() {
        let names: Vec<&str> = INTERVENTIONS.iter().map(|(name, ..)| *name).collect();
        let of = |round| shuffled(&names, 1, "put_all", round);
        assert_ne!(of(0), of(1));
        assert_eq!(of(0), of(0), "the seed decides");
        let sorted = |round| {
            let mut order = of(round);
            order.sort_unstable();
            order
        };
        assert_eq!((sorted(0), sorted(0).len()), (sorted(1), INTERVENTIONS.len() + 1));
        let places = (0..50).map(|round| of(round).iter().position(Option::is_none).unwrap());
        assert_eq!(places.collect::<BTreeSet<_>>().len(), INTERVENTIONS.len() + 1, "a base stands anywhere");
    }

    /// A target that is revived in some of its trials, counted from 1, or whose base fails there.
    #[derive(Default)]
    struct Mortal {
        begun: usize,
        revived_at: Vec<usize>,
        fails_at: Vec<usize>,
        revivals: u32,
    }

    impl Runner for Mortal {
        fn environment(&self) -> Vec<(String, String)> {
            Vec::new()
        }

        fn trial(&mut self, planned: &Planned) -> Trial {
            self.begun += 1;
            self.revivals += u32::from(self.revived_at.contains(&self.begun));
            match self.fails_at.contains(&self.begun) {
                true => planned.failed(Error::new("it fell over")),
                false => Trial { level: planned.level, repetition: planned.repetition, ..base(&[]) },
            }
        }

        fn revivals(&self) -> u32 {
            self.revivals
        }
    }

    #[derive(Default)]
    struct Silent;

    impl Progress for Silent {}

    /// What two rounds of three interventions left: of each round its trials, `+` for one that counts, `B` where that is the base.
    fn two_rounds(runner: &mut Mortal, is_swept: bool) -> (String, Results) {
        let dir = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(
            "name = \"m\"\ntitle = \"m\"\nlevels = [8]\nrepetitions = 1\nwarmup = \"1s\"\nwindow = \"1s\"\nheadroom = false\n\
             [target]\nkind = \"weir\"\n[interventions]\nrounds = 2\nonly = [\"cpu\", \"worker\", \"delay\"]\n[[workload]]\nname = \"w\"\n",
        );
        let experiment = experiment.unwrap();
        let options = Options::of("weir".into(), dir.path());
        let target_run = TargetRun::new(&experiment, &experiment.subjects[0], &options, &[0]).unwrap();
        let mut results = target_run.nothing_yet("now");
        results.trials.extend(is_swept.then(|| base(&[])));
        let mut block =
            Block { target_run: &target_run, repetition: 0, results: &mut results, progress: &mut Silent };
        block.intervene(runner).unwrap();
        let shown = |round| {
            let of = results.interventions.iter().filter(move |made| made.trial.repetition == round);
            of.map(|made| match (&made.trial.failure, &made.change) {
                (Some(_), _) => '-',
                (None, None) => 'B',
                (None, Some(_)) => '+',
            })
            .collect::<String>()
        };
        (format!("{} {}", shown(0), shown(1)), results)
    }

    #[test]
    fn a_base_stands_where_it_was_drawn_once_it_is_known_what_is_a_share_of_what() {
        let (shown, results) = two_rounds(&mut Mortal::default(), true);
        assert_eq!(shown, "+B++ ++B+");
        assert!(results.interventions.iter().all(|made| made.trial.failure.is_none()));
        let (shown, _) = two_rounds(&mut Mortal::default(), false);
        assert_eq!(shown, "B+++ ++B+", "in the first round nothing else tells");
    }

    /// An intervention was once compared with a base that had been measured on the server before.
    #[test]
    fn a_round_within_which_the_target_died_is_dropped_with_its_reason() {
        let (shown, results) = two_rounds(&mut Mortal { revived_at: vec![3], ..Mortal::default() }, true);
        assert_eq!(shown, "--- ++B+");
        for made in &results.interventions[..3] {
            assert_eq!(made.trial.failure.as_deref(), Some(REVIVED));
        }
        let dies = Mortal { revived_at: vec![2], fails_at: vec![2], ..Mortal::default() };
        let (_, results) = two_rounds(&mut { dies }, true);
        let why = results.interventions[1].trial.failure.as_deref().unwrap();
        assert!(why.starts_with("it fell over; ") && why.ends_with(REVIVED), "{why}");
        // Between two rounds nobody minds.
        let (shown, _) = two_rounds(&mut Mortal { revived_at: vec![1, 5], ..Mortal::default() }, true);
        assert_eq!(shown, "+B++ ++B+");
    }

    #[test]
    fn a_round_without_a_base_is_not_gone_on_with() {
        let (shown, _) = two_rounds(&mut Mortal { fails_at: vec![2], ..Mortal::default() }, true);
        assert_eq!(shown, "+- ++B+");
    }
}
