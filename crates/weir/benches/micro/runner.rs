//! Runs the sides of a comparison in turn and prints what an operation took.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::time::Instant;

/// Rounds of every side.
const ROUNDS: usize = 11;
/// The most operations of a round, and the most keys, when nothing is measured.
const SMALL: usize = 300;

/// How much is done: what it takes to measure, or a little.
pub(crate) struct Run {
    is_measured: bool,
}

/// One way to do the work.
pub(crate) struct Side<'a> {
    name: String,
    /// Does the operations of one round; how many came out as they should.
    round: Box<dyn FnMut() -> usize + 'a>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(name: impl Into<String>, round: impl FnMut() -> usize + 'a) -> Side<'a> {
        Side { name: name.into(), round: Box::new(round) }
    }
}

/// The quartiles of some figures.
struct Quartiles([f64; 3]);

impl Quartiles {
    fn of(mut figures: Vec<f64>) -> Quartiles {
        figures.sort_by(f64::total_cmp);
        let at = |share: f64| figures[((figures.len() - 1) as f64 * share).round() as usize];
        Quartiles([at(0.25), at(0.5), at(0.75)])
    }

    fn told(&self, digits: usize) -> String {
        let Quartiles([low, middle, high]) = self;
        format!("{middle:.digits$} ({low:.digits$}–{high:.digits$})")
    }
}

impl Run {
    pub(crate) fn new(is_measured: bool) -> Run {
        Run { is_measured }
    }

    /// So many operations or keys, or few when nothing is measured.
    pub(crate) fn at_most(&self, count: usize) -> usize {
        if self.is_measured { count } else { count.min(SMALL) }
    }

    /// Runs the sides in turn, `operations` each in every round, and prints their times and their ratios to the first.
    ///
    /// A round in which not every operation came out as it should ends the program.
    pub(crate) fn compare(&self, title: &str, operations: usize, mut sides: Vec<Side<'_>>) {
        // Given back at the end: how many cores there seem to be decides how many shards quick_cache takes.
        let free = sched_getaffinity(None);
        pin(0);
        let rounds = if self.is_measured { ROUNDS } else { 1 };
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
        // The first round warms up and does not count, unless it is the only one.
        for round in 0..rounds + usize::from(self.is_measured) {
            for (side, times) in sides.iter_mut().zip(&mut times) {
                let start = Instant::now();
                let right = (side.round)();
                let ns = start.elapsed().as_nanos() as f64 / operations as f64;
                assert_eq!(right, operations, "{title}: {} of round {round}", side.name);
                if round > 0 || !self.is_measured {
                    times.push(ns);
                }
            }
        }
        if let Ok(cores) = free {
            let _ = sched_setaffinity(None, &cores);
        }
        if !self.is_measured {
            println!("{title}: {} sides, {operations} operations each, as they should be", sides.len());
            return;
        }
        println!("{title}");
        println!("  {:<22} {:>24} {:>26}", "", "ns/op (quartiles)", "ratio to the first");
        for (side, own) in sides.iter().zip(&times) {
            let ratios = own.iter().zip(&times[0]).map(|(own, first)| own / first).collect();
            println!(
                "  {:<22} {:>24} {:>26}",
                side.name,
                Quartiles::of(own.clone()).told(1),
                Quartiles::of(ratios).told(3)
            );
        }
    }
}

/// Keeps this thread on one core; where that is not allowed it stays free.
pub(crate) fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    let _ = sched_setaffinity(None, &cores);
}
