//! Less of an experiment: some of its workloads, some of its targets, or all of it in less time.

use super::check::is_one_of;
use super::{Adaptive, Engine, Experiment, Fault};
use crate::ensure;
use kv::Error;
use kv::units::Span;
use std::time::Duration;

/// A scaled window is no shorter: it needs some hundred requests even of a slow store.
const WINDOW_LEAST: Duration = Duration::from_secs(2);
/// A scaled warm-up is no shorter: a server that was just started again has sessions to open.
const WARMUP_LEAST: Duration = Duration::from_secs(1);
/// Scaled below this share, levels are left out, too.
const THINNED_BELOW: f64 = 0.1;
/// How many are left: enough for a plateau of three, the rise and the knee.
const LEVELS_THINNED: usize = 7;

impl Experiment {
    /// Leaves only the workloads called `names`, and the targets that take part in one of them.
    pub fn keep(&mut self, names: &[String]) -> Result<(), Error> {
        let all: Vec<&str> = self.workloads.iter().map(|workload| workload.name.as_str()).collect();
        names.iter().try_for_each(|name| is_one_of("--workloads", name, &all))?;
        self.workloads.retain(|workload| names.contains(&workload.name));
        for of in self.subjects.iter_mut().filter_map(|subject| subject.workloads.as_mut()) {
            of.retain(|name| names.contains(name));
        }
        self.subjects.retain(|subject| subject.workloads.as_ref().is_none_or(|of| !of.is_empty()));
        self.forget();
        Ok(())
    }

    /// Leaves only the targets called `names`, and the workloads that one of them takes part in.
    pub fn keep_targets(&mut self, names: &[String]) -> Result<(), Error> {
        let all: Vec<&str> = self.subjects.iter().filter_map(|subject| subject.name.as_deref()).collect();
        let unnamed = "--targets: the experiment has one target, without a name";
        ensure(!all.is_empty(), unnamed, "leave the flag out")?;
        names.iter().try_for_each(|name| is_one_of("--targets", name, &all))?;
        self.subjects.retain(|subject| subject.name.as_ref().is_some_and(|name| names.contains(name)));
        let subjects = &self.subjects;
        self.workloads.retain(|workload| subjects.iter().any(|subject| subject.takes_part(workload)));
        self.forget();
        Ok(())
    }

    /// Leaves out what was said of parts that are no longer there.
    fn forget(&mut self) {
        let parts = self.parts();
        self.cores.parts.retain(|part, _| parts.contains(part));
        self.faults.retain(|fault| parts.contains(&fault.part));
        let engines: Vec<Engine> = self.databases().map(|database| database.engine).collect();
        self.postgres.take_if(|_| !engines.contains(&Engine::Postgres));
        self.mariadb.take_if(|_| !engines.contains(&Engine::MariaDb));
        self.limits.memory.take_if(|_| engines.is_empty());
        let mut interventions = self.interventions.take();
        // Stations of a model that is gone, and the like.
        self.interventions = interventions.take_if(|interventions| interventions.narrow(self));
    }

    /// Shortens warm-up and window to `share` of themselves, but not below what still says something, and faults with the window. Below a
    /// tenth it also thins out levels: of more than seven, seven are left, the first and the last among them.
    pub fn scale(&mut self, share: f64) {
        // Whole milliseconds: nobody wants to read more of it.
        let scaled = |span: Span, share| Duration::from_millis(span.0.mul_f64(share).as_millis() as u64);
        let shorter = |span: Span, least: Duration| Span(scaled(span, share).max(least.min(span.0)));
        self.warmup = shorter(self.warmup, WARMUP_LEAST);
        let whole = self.window;
        self.window = shorter(whole, WINDOW_LEAST);
        for Fault { at, length, every, .. } in &mut self.faults {
            for span in [at, length].into_iter().chain(every) {
                *span = Span(scaled(*span, self.window.secs() / whole.secs()));
            }
        }
        if let Some(interventions) = &mut self.interventions {
            interventions.window = shorter(interventions.window, WINDOW_LEAST);
        }
        for limit in self.workloads.iter_mut().filter_map(|workload| workload.limit.as_mut()) {
            limit.most = shorter(limit.most, limit.shortest());
        }
        if let Some(adaptive) = &mut self.adaptive {
            adaptive.most = shorter(adaptive.most, self.window.0.max(Adaptive::LEAST.0));
        }
        if share < THINNED_BELOW {
            let own = self.workloads.iter_mut().filter_map(|workload| workload.levels.as_mut());
            own.chain([&mut self.levels]).for_each(thin);
        }
    }
}

/// Leaves [`LEVELS_THINNED`] levels, evenly spread from the first to the last.
fn thin(levels: &mut Vec<u32>) {
    let last = levels.len().saturating_sub(1);
    if last >= LEVELS_THINNED {
        let gaps = LEVELS_THINNED - 1;
        *levels = (0..=gaps).map(|i| levels[(i * last + gaps / 2) / gaps]).collect();
    }
}
