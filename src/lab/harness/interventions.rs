//! Makes one resource after the other a little slower, and measures what that costs.
//!
//! After the last repetition of a target, for each workload: rounds of a trial with nothing changed and then one for each knob,
//! in random order. A knob adds a share of what its resource works on one request, or lowers a rate to four fifths.

use super::{Course, Progress, Rig, failed, save};
use crate::lab::experiment::{Interventions, Workload};
use crate::lab::results::{Change, Intervention, Reading, Resource, ResourceKind, Results, Trial};
use rand_core::{Rng as Draws, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a rate or a quota is lowered to.
pub(super) const LOWERED: f64 = 0.8;
/// PostgreSQL takes no longer `commit_delay`, in microseconds.
const COMMIT_DELAY_US_MOST: f64 = 100_000.0;

/// What a knob does to the demand of its resources.
enum Turn {
    /// Adds to each request: the share of the servers of what the name stands for.
    PerRequest(fn(&Base) -> Raised),
    /// Adds to each batch: the share of how long one takes, in seconds, if that was counted.
    PerBatch(fn(&Base) -> Option<Batches>),
    /// Lowers what may go through.
    Lower(fn(&Base) -> Vec<String>),
}

/// Resources, and how many requests they work on at once.
struct Raised {
    names: Vec<String>,
    servers: f64,
}

/// Resources, and how long they work on one batch.
struct Batches {
    names: Vec<String>,
    secs: f64,
}

/// How knobs are turned; a row for each of [`crate::lab::experiment::KNOBS`].
const TURNS: &[(&str, Turn)] = &[
    ("cpu", Turn::PerRequest(server_cpu)),
    ("worker", Turn::PerRequest(|base| base.station("server workers", server_cpu(base).servers))),
    // As much as of the processor: a control of the same size, and of nobody's demand.
    ("delay", Turn::PerRequest(|base| Raised { names: Vec::new(), ..server_cpu(base) })),
    ("lock", Turn::PerRequest(|base| base.station("server lock", 1.0))),
    ("lane", Turn::PerBatch(lanes)),
    ("flush", Turn::PerBatch(flush)),
    ("commit", Turn::PerBatch(commit)),
    ("link", Turn::Lower(|_| vec!["link".to_owned()])),
    (
        "write_cap",
        Turn::Lower(|base| {
            base.named_or(|of| of.busy.iter().any(|busy| busy == "cap.busy_secs"), "write cap")
        }),
    ),
    (
        "database_cpu",
        Turn::Lower(|base| {
            base.named_or(|of| of.name.starts_with("database") && of.name.ends_with("CPU"), "database CPU")
        }),
    ),
];

/// A trial in which nothing was changed, and what its target is made of.
pub(super) struct Base<'a> {
    pub(super) resources: &'a [Resource],
    pub(super) trial: &'a Trial,
}

impl Base<'_> {
    /// What turning `knob` is to change, with `strength`; `None` where the trial does not tell.
    pub(super) fn change(&self, knob: &str, strength: f64) -> Option<Change> {
        let goodput = self.trial.load.as_ref().map(|load| load.goodput_rps).filter(|rate| *rate > 0.0)?;
        let change = |raises, added_us, factor| Change { knob: knob.to_owned(), raises, added_us, factor };
        let (_, turn) = TURNS.iter().find(|(name, _)| *name == knob)?;
        Some(match turn {
            Turn::PerRequest(raised) => {
                let Raised { names, servers } = raised(self);
                change(names, strength * servers / goodput * 1e6, None)
            }
            Turn::PerBatch(batches) => {
                let Batches { names, secs } = batches(self)?;
                let most = if knob == "commit" { COMMIT_DELAY_US_MOST } else { f64::INFINITY };
                change(names, (strength * secs * 1e6).min(most), None)
            }
            Turn::Lower(names) => change(names(self), 0.0, Some(1.0 / LOWERED)),
        })
    }

    fn station(&self, name: &str, servers: f64) -> Raised {
        let resource = self.resources.iter().find(|resource| resource.name == name);
        let servers = resource.map_or(servers, |resource| self.trial.servers(resource));
        Raised { names: vec![name.to_owned()], servers }
    }

    /// By how much the counters whose names are `meant` grew together.
    fn grown(&self, meant: impl Fn(&str) -> bool) -> f64 {
        let names = self.trial.closed.counters.keys().filter(|name| meant(name));
        names.filter_map(|name| self.trial.growth(name)).sum()
    }

    /// The names of the resources that are `meant`; `otherwise` where there is none.
    fn named_or(&self, meant: impl Fn(&Resource) -> bool, otherwise: &str) -> Vec<String> {
        let names: Vec<String> =
            self.resources.iter().filter(|of| meant(of)).map(|of| of.name.clone()).collect();
        if names.is_empty() { vec![otherwise.to_owned()] } else { names }
    }
}

fn server_cpu(base: &Base) -> Raised {
    let computes = |of: &&Resource| {
        of.kind == ResourceKind::Station && of.busy.iter().any(|busy| busy == "server.cpu_secs")
    };
    let resource = base.resources.iter().find(computes);
    let servers = resource.map_or(1.0, |resource| base.trial.servers(resource));
    Raised { names: resource.map(|resource| resource.name.clone()).into_iter().collect(), servers }
}

/// The lanes that are busier, those that read or those that write, and how long a batch of theirs takes.
fn lanes(base: &Base) -> Option<Batches> {
    let kinds = ["read", "write"].map(|kind| {
        let lanes = base.resources.iter().filter(|of| of.name.starts_with(&format!("store {kind} lanes")));
        let used = lanes.clone().filter_map(|lanes| base.trial.utilization(lanes)).fold(0.0, f64::max);
        (kind, lanes.map(|lanes| lanes.name.clone()).collect::<Vec<_>>(), used)
    });
    let (kind, names, _) = kinds.into_iter().max_by(|(.., a), (.., b)| a.total_cmp(b))?;
    let lane = format!("lane=\"{kind}\"");
    let grown = |metric: &str| base.grown(|name| name.contains(metric) && name.contains(&lane));
    let secs = grown("weir_store_busy_seconds_total") / grown("weir_store_duration_seconds_count");
    measured(names, secs)
}

fn flush(base: &Base) -> Option<Batches> {
    let grown = |metric: &str| base.grown(|name| name.contains(metric));
    let secs = grown("weir_flush_busy_seconds_total") / grown("weir_flushes_total");
    measured(vec!["store flush".to_owned()], secs)
}

/// How long a flush of the log takes; where the database does not say, how long a batch of writes does.
fn commit(base: &Base) -> Option<Batches> {
    let names = base.named_or(|of| of.name.ends_with("WAL sync"), "database WAL sync");
    let grown = |metric: &str| base.grown(|name| name.ends_with(metric));
    let sync = measured(names.clone(), grown(".wal_sync_secs") / grown(".wal_syncs"));
    sync.or_else(|| {
        let written =
            |metric: &str| base.grown(|name| name.contains(metric) && name.contains("lane=\"write\""));
        measured(
            names,
            written("weir_store_busy_seconds_total") / written("weir_store_duration_seconds_count"),
        )
    })
}

/// Nothing divided by nothing was not measured.
fn measured(names: Vec<String>, secs: f64) -> Option<Batches> {
    (secs.is_finite() && secs > 0.0).then_some(Batches { names, secs })
}

/// The knobs that a server can turn itself, by what it has counted in `reading`.
pub(super) fn knobs_of_server(reading: &Reading) -> Vec<&'static str> {
    let counts = |metric: &str| {
        let metric = format!("stats.{metric}");
        reading.counters.keys().chain(reading.gauges.keys()).any(|name| name.starts_with(&metric))
    };
    let there_if: [(&'static str, bool); 6] = [
        ("cpu", true),
        ("worker", true),
        ("delay", true),
        ("lock", counts("weir_lock_")),
        ("lane", counts("weir_store_lanes")),
        ("flush", counts("weir_flush")),
    ];
    there_if.into_iter().filter(|(_, is_there)| *is_there).map(|(knob, _)| knob).collect()
}

/// What is to be done with one workload.
struct Rounds<'r, 'a> {
    wanted: &'r Interventions,
    workload: &'a Workload,
    level: u32,
    knobs: &'r [String],
}

impl<'a> Course<'a> {
    /// Turns every knob of every workload, as often as the experiment says, or until `stop` is set. What fails is a failed trial; the
    /// error is that nothing can be saved.
    pub(super) fn intervene(
        &'a self,
        rig: &mut (dyn Rig<'a> + 'a),
        results: &mut Results,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let Some(wanted) = &self.experiment.interventions else { return Ok(()) };
        for workload in &self.workloads {
            let level =
                wanted.level.or(self.experiment.levels_of(workload).iter().max().copied()).unwrap_or(1);
            let mut knobs = match rig.knobs(workload) {
                Ok(knobs) => knobs,
                Err(why) => {
                    let trial = failed(workload, level, 0, &why);
                    self.keep(Intervention { change: None, trial }, results, progress)?;
                    continue;
                }
            };
            knobs.retain(|knob| wanted.wants(knob));
            let rounds = Rounds { wanted, workload, level, knobs: &knobs };
            if !knobs.is_empty() {
                self.turn_all(&rounds, rig, results, progress, stop)?;
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn turn_all(
        &'a self,
        rounds: &Rounds<'_, 'a>,
        rig: &mut (dyn Rig<'a> + 'a),
        results: &mut Results,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let Rounds { wanted, workload, level, knobs } = *rounds;
        let (target, in_round) = (self.subject.name.as_deref(), 1 + knobs.len());
        let total = wanted.rounds as usize * in_round;
        for round in 0..wanted.rounds {
            let begun = round as usize * in_round + 1;
            progress.intervenes(begun, total, target, &workload.name, None);
            let base = rig.intervene(workload, level, round, None);
            // An interrupted trial is no failure of the target.
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            self.keep(Intervention { change: None, trial: base.clone() }, results, progress)?;
            for (turn, knob) in
                shuffled(knobs, self.experiment.seed, &workload.name, round).iter().enumerate()
            {
                let base = Base { resources: &results.resources, trial: &base };
                // Without a counterpart nobody knows how much is a share of what.
                let Some(change) = rig.change(&base, knob, wanted.strength) else { continue };
                progress.intervenes(begun + 1 + turn, total, target, &workload.name, Some(knob));
                let trial = rig.intervene(workload, level, round, Some(&change));
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.keep(Intervention { change: Some(change), trial }, results, progress)?;
            }
        }
        Ok(())
    }

    fn keep(
        &self,
        intervention: Intervention,
        results: &mut Results,
        progress: &mut dyn Progress,
    ) -> Result<(), String> {
        progress.intervened(self.subject.name.as_deref(), &intervention);
        results.interventions.push(intervention);
        save(results, &self.options.dir)
    }
}

/// `knobs` in the order of a round.
fn shuffled<'k>(knobs: &'k [String], seed: u64, workload: &str, round: u32) -> Vec<&'k str> {
    let mixed =
        workload.bytes().chain(round.to_le_bytes()).fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    let mut random = Xoshiro256PlusPlus::seed_from_u64(mixed);
    let mut order: Vec<&str> = knobs.iter().map(String::as_str).collect();
    // Fisher–Yates. The modulo favours low places by less than one part in 2^57 here.
    for last in (1..order.len()).rev() {
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::KNOBS;
    use crate::proto::LoadReport;

    fn resource(name: &str, busy: &str, servers: f64) -> Resource {
        Resource { name: name.into(), busy: vec![busy.into()], servers, ..Resource::default() }
    }

    /// One second in which 1000 requests were answered, with counters that grew so far.
    fn base(counters: &[(&str, f64)]) -> Trial {
        let counted = counters.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let opened = counters.iter().map(|(name, _)| ((*name).to_owned(), 0.0)).collect();
        Trial {
            workload: "w".into(),
            level: 8,
            repetition: 0,
            load: Some(LoadReport { goodput_rps: 1000.0, ..LoadReport::default() }),
            failure: None,
            elapsed_secs: 1.0,
            opened: Reading { counters: opened, ..Reading::default() },
            closed: Reading { counters: counted, ..Reading::default() },
        }
    }

    fn shown(knob: &str, resources: &[Resource], trial: &Trial) -> String {
        match (Base { resources, trial }).change(knob, 0.3) {
            Some(Change { raises, added_us, factor, .. }) => {
                format!("{} +{added_us:.0}us {factor:?}", raises.join(", "))
            }
            None => "not measured".into(),
        }
    }

    #[test]
    fn a_request_gets_its_share_of_the_servers_and_a_batch_of_its_own_time() {
        let lanes = |kind: &str| format!("stats.weir_store_busy_seconds_total{{lane=\"{kind}\"}}");
        let resources = [
            resource("server CPU", "server.cpu_secs", 2.0),
            resource("server workers", "stats.weir_worker_busy_seconds_total", 4.0),
            resource("store read lanes", &lanes("read"), 4.0),
            resource("store write lanes", &lanes("write"), 1.0),
            resource("write cap 10 MB/s", "cap.busy_secs", 1.0),
        ];
        let trial = base(&[
            (&lanes("read"), 0.4),
            (&lanes("write"), 0.8),
            ("stats.weir_store_duration_seconds_count{lane=\"write\"}", 200.0),
            ("stats.weir_flush_busy_seconds_total", 0.5),
            ("stats.weir_flushes_total", 100.0),
            ("database.wal_sync_secs", 0.6),
            ("database.wal_syncs", 60.0),
        ]);
        for (knob, expected) in [
            ("cpu", "server CPU +600us None"),
            ("worker", "server workers +1200us None"),
            ("delay", " +600us None"),
            ("lock", "server lock +300us None"),
            ("lane", "store write lanes +1200us None"),
            ("flush", "store flush +1500us None"),
            ("commit", "database WAL sync +3000us None"),
            ("link", "link +0us Some(1.25)"),
            ("write_cap", "write cap 10 MB/s +0us Some(1.25)"),
            ("database_cpu", "database CPU +0us Some(1.25)"),
        ] {
            assert_eq!(shown(knob, &resources, &trial), expected, "{knob}");
        }
        for knob in ["lane", "flush", "commit"] {
            assert_eq!(shown(knob, &resources, &base(&[])), "not measured", "{knob}");
        }
        let slow = base(&[("database.wal_sync_secs", 1.0), ("database.wal_syncs", 1.0)]);
        assert_eq!(
            shown("commit", &[], &slow),
            "database WAL sync +100000us None",
            "PostgreSQL takes no more"
        );
        assert_eq!(shown("cpu", &resources, &Trial { load: None, ..trial }), "not measured");
    }

    #[test]
    fn every_knob_can_be_turned() {
        let turned: Vec<&str> = TURNS.iter().map(|(name, _)| *name).collect();
        assert!(KNOBS.iter().all(|knob| turned.contains(&knob.name)) && turned.len() == KNOBS.len());
        assert!(KNOBS.iter().all(|knob| knob.about.ends_with('.')));
    }

    #[test]
    fn a_server_has_the_knobs_of_what_it_counts() {
        let all = |names: &[&str]| {
            let counters = names.iter().map(|name| (format!("stats.{name}"), 1.0)).collect();
            knobs_of_server(&Reading { counters, ..Reading::default() }).join(" ")
        };
        assert_eq!(all(&[]), "cpu worker delay");
        assert_eq!(
            all(&[
                "weir_lock_busy_seconds_total{lock=\"commit\"}",
                "weir_store_lanes{lane=\"read\"}",
                "weir_flushes_total"
            ]),
            "cpu worker delay lock lane flush"
        );
    }

    #[test]
    fn each_round_has_every_knob_once_in_an_order_of_its_own() {
        let knobs: Vec<String> = KNOBS.iter().map(|knob| knob.name.to_owned()).collect();
        let of = |round| shuffled(&knobs, 1, "put_all", round);
        assert_ne!(of(0), of(1));
        assert_eq!(of(0), of(0), "the seed decides");
        let sorted = |mut order: Vec<&'static str>| {
            order.sort_unstable();
            order
        };
        let names = |round: u32| {
            of(round).iter().map(|name| KNOBS.iter().find(|knob| knob.name == *name).unwrap().name).collect()
        };
        assert_eq!(sorted(names(0)), sorted(names(1)));
    }
}
