//! How much slower each intervention makes its resources, from what a base trial counted.

use lab_data::experiment::DATABASE;
use lab_data::results::{Change, Resource, ResourceKind, SLOWER_GENERATOR, SLOWER_SERVER, Trial};

/// What a rate or a quota is lowered to.
const LOWERED: f64 = 0.8;
/// What the server's quota is raised to.
const RAISED: f64 = 2.0;
/// PostgreSQL takes no longer `commit_delay`, in microseconds.
const COMMIT_DELAY_US_MOST: f64 = 100_000.0;

/// Counters of batches: their busy seconds and their number.
const BATCHES: [&str; 2] = ["weir_store_busy_seconds_total", "weir_store_duration_seconds_count"];
const FLUSHES: [&str; 2] = ["weir_flush_busy_seconds_total", "weir_flushes_total"];
const SYNCS: [&str; 2] = [".wal_sync_secs", ".wal_syncs"];
/// The label of batches of writes.
const WRITES: &str = "operation=\"write\"";

/// What is made slower: names of resources, and what the size is a share of.
enum Slowed {
    /// Each request, by a share of so many servers.
    Requests(Vec<String>, f64),
    /// Each batch, by a share of so many seconds.
    Batches(Vec<String>, f64),
    /// What may go through is multiplied.
    Rate(Vec<String>, f64),
}

/// What is made slower, if that was counted.
type Size = fn(&Base) -> Option<Slowed>;

/// How large each is; a row for each of [`lab_data::experiment::INTERVENTIONS`], and two more.
const SIZES: &[(&str, Size)] = &[
    (SLOWER_GENERATOR, |base| Some(base.in_use(base.generator_cpus()))),
    (SLOWER_SERVER, |base| Some(base.in_use(base.server_cpus()))),
    ("cpu", |base| {
        let (names, servers) = base.server_cpus();
        Some(Slowed::Requests(names, servers))
    }),
    ("worker", |base| Some(base.station("server workers", base.server_cpus().1))),
    // As much as of the processor: a control of the same size, and of nobody's demand.
    ("delay", |base| Some(Slowed::Requests(Vec::new(), base.server_cpus().1))),
    ("lock", |base| Some(base.station("server lock", 1.0))),
    ("store_worker", lanes),
    // Of several shards each has its own.
    ("flush", |base| {
        let names = base.named_or(|of| of.name.starts_with("store flush"), "store flush");
        base.batches(names, "", FLUSHES)
    }),
    ("commit", commit),
    ("link", |_| Some(Slowed::Rate(vec!["link".to_owned()], LOWERED))),
    ("write_cap", |base| {
        let is_cap = |of: &Resource| of.busy.iter().any(|busy| busy == "cap.busy_secs");
        Some(Slowed::Rate(base.named_or(is_cap, "write cap"), LOWERED))
    }),
    // Not the cores under it: these stay as they are.
    ("server_quota", |base| {
        let is_quota = |of: &Resource| of.servers_gauge.as_deref() == Some("server.quota_cores");
        Some(Slowed::Rate(base.named_or(is_quota, "server quota"), RAISED))
    }),
    ("database_cpu", |base| {
        // As above: of cores that are shared nothing is taken.
        let is_quota = |of: &Resource| {
            let gauge = of.servers_gauge.as_deref();
            gauge.is_some_and(|gauge| gauge.starts_with(DATABASE) && gauge.ends_with(".quota_cores"))
        };
        Some(Slowed::Rate(base.named_or(is_quota, "database CPU"), LOWERED))
    }),
];

/// A trial in which nothing was changed, and what its target is made of.
pub(super) struct Base<'a> {
    pub(super) resources: &'a [Resource],
    pub(super) trial: &'a Trial,
}

impl Base<'_> {
    /// What the intervention `name` is to change, with `strength`; `None` where the trial does not tell.
    pub(super) fn change(&self, name: &str, strength: f64) -> Option<Change> {
        let goodput = self.trial.load.as_ref().map(|load| load.goodput_rps).filter(|rate| *rate > 0.0)?;
        let (_, size) = SIZES.iter().find(|(known, _)| *known == name)?;
        let (raises, added_us, factor) = match size(self)? {
            Slowed::Requests(names, servers) => (names, strength * servers / goodput * 1e6, None),
            Slowed::Batches(names, secs) => {
                let most = if name == "commit" { COMMIT_DELAY_US_MOST } else { f64::INFINITY };
                (names, (strength * secs * 1e6).min(most), None)
            }
            Slowed::Rate(names, rate) => (names, 0.0, Some(1.0 / rate)),
        };
        Some(Change { name: name.to_owned(), raises, added_us, factor })
    }

    fn station(&self, name: &str, servers: f64) -> Slowed {
        let resource = self.resources.iter().find(|resource| resource.name == name);
        let servers = resource.map_or(servers, |resource| self.trial.servers(resource));
        Slowed::Requests(vec![name.to_owned()], servers)
    }

    /// A share of the servers that were busy in the mean. A part that hardly works is slowed by little: by much, and the other part
    /// would get single requests instead of batches, and take more time for each.
    fn in_use(&self, (names, servers): (Vec<String>, f64)) -> Slowed {
        let meant = self.resources.iter().filter(|of| names.contains(&of.name));
        let busy = meant.filter_map(|of| Some(self.trial.utilization(of)? * self.trial.servers(of)));
        let servers = busy.reduce(f64::max).unwrap_or(servers);
        Slowed::Requests(names, servers)
    }

    /// What the generator computes with.
    fn generator_cpus(&self) -> (Vec<String>, f64) {
        let is_generator = |of: &Resource| of.kind == ResourceKind::Generator;
        let known = self.resources.iter().filter(|of| is_generator(of));
        let servers = known.map(|of| self.trial.servers(of)).reduce(f64::max).unwrap_or(1.0);
        (self.named_or(is_generator, "generator CPU"), servers)
    }

    /// What the server computes with: its cores and, where it has one, its quota. What is added is a share of the one that is busier.
    fn server_cpus(&self) -> (Vec<String>, f64) {
        let computes = |of: &&Resource| {
            of.kind == ResourceKind::Station && of.busy.iter().any(|busy| busy == "server.cpu_secs")
        };
        let used = |of: &Resource| self.trial.utilization(of).unwrap_or(0.0);
        let all = self.resources.iter().filter(computes);
        let busier = all.clone().max_by(|a, b| used(a).total_cmp(&used(b)));
        let servers = busier.map_or(1.0, |resource| self.trial.servers(resource));
        (all.map(|resource| resource.name.clone()).collect(), servers)
    }

    /// Batches, and how long one took: by how much the counters of busy seconds grew together, over those of batches; of those whose
    /// names have `of` in them.
    fn batches(&self, names: Vec<String>, of: &str, [busy, count]: [&str; 2]) -> Option<Slowed> {
        let grown = |metric: &str| {
            let counters = self.trial.closed.counters.keys();
            let counters = counters.filter(|name| name.contains(metric) && name.contains(of));
            counters.filter_map(|name| self.trial.growth(name)).sum::<f64>()
        };
        let secs = grown(busy) / grown(count);
        // Nothing divided by nothing was not measured.
        (secs.is_finite() && secs > 0.0).then_some(Slowed::Batches(names, secs))
    }

    /// The names of the resources that are `meant`; `otherwise` where there is none.
    fn named_or(&self, meant: impl Fn(&Resource) -> bool, otherwise: &str) -> Vec<String> {
        let names: Vec<String> =
            self.resources.iter().filter(|of| meant(of)).map(|of| of.name.clone()).collect();
        if names.is_empty() { vec![otherwise.to_owned()] } else { names }
    }
}

/// The lanes that are busier, those that read or those that write, and how long a batch of theirs takes.
fn lanes(base: &Base) -> Option<Slowed> {
    let kinds = ["read", "write"].map(|kind| {
        let lanes = base.resources.iter().filter(|of| of.name.starts_with(&format!("store {kind} workers")));
        let used = lanes.clone().filter_map(|lanes| base.trial.utilization(lanes)).fold(0.0, f64::max);
        (kind, lanes.map(|lanes| lanes.name.clone()).collect::<Vec<_>>(), used)
    });
    let (kind, names, _) = kinds.into_iter().max_by(|(.., a), (.., b)| a.total_cmp(b))?;
    base.batches(names, &format!("operation=\"{kind}\""), BATCHES)
}

/// How long a flush of the log takes; where the database does not say, how long a batch of writes does.
fn commit(base: &Base) -> Option<Slowed> {
    // What is slowed are commits of stores; a replica writes its log when it comes to it.
    let is_sync = |of: &Resource| of.name.starts_with(DATABASE) && of.name.ends_with("WAL sync");
    let names = base.named_or(is_sync, "database WAL sync");
    let syncs = base.batches(names.clone(), DATABASE, SYNCS);
    syncs.or_else(|| base.batches(names, WRITES, BATCHES))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use kv::proto::LoadReport;
    use lab_data::experiment::INTERVENTIONS;
    use lab_data::results::Reading;

    fn resource(name: &str, busy: &str, servers: f64) -> Resource {
        Resource { name: name.into(), busy: vec![busy.into()], servers, ..Resource::default() }
    }

    /// One second in which 1000 requests were answered, with counters that grew so far.
    pub(in crate::harness) fn base(counters: &[(&str, f64)]) -> Trial {
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
            ..Trial::default()
        }
    }

    fn shown(name: &str, resources: &[Resource], trial: &Trial) -> String {
        match (Base { resources, trial }).change(name, 0.3) {
            Some(Change { raises, added_us, factor, .. }) => {
                format!("{} +{added_us:.0}us {factor:?}", raises.join(", "))
            }
            None => "not measured".into(),
        }
    }

    #[test]
    fn a_request_gets_its_share_of_the_servers_and_a_batch_of_its_own_time() {
        let lanes = |kind: &str| format!("stats.weir_store_busy_seconds_total{{operation=\"{kind}\"}}");
        let resources = [
            resource("server CPU", "server.cpu_secs", 2.0),
            resource("server workers", "stats.weir_worker_busy_seconds_total", 4.0),
            resource("store read workers", &lanes("read"), 4.0),
            resource("store write workers", &lanes("write"), 1.0),
            resource("write cap", "cap.busy_secs", 1.0),
        ];
        let trial = base(&[
            (&lanes("read"), 0.4),
            (&lanes("write"), 0.8),
            ("stats.weir_store_duration_seconds_count{operation=\"write\"}", 200.0),
            ("stats.weir_flush_busy_seconds_total", 0.5),
            ("stats.weir_flushes_total", 100.0),
            ("database.wal_sync_secs", 0.6),
            ("database.wal_syncs", 60.0),
        ]);
        for (name, expected) in [
            ("cpu", "server CPU +600us None"),
            ("worker", "server workers +1200us None"),
            ("delay", " +600us None"),
            ("lock", "server lock +300us None"),
            ("store_worker", "store write workers +1200us None"),
            ("flush", "store flush +1500us None"),
            ("commit", "database WAL sync +3000us None"),
            ("link", "link +0us Some(1.25)"),
            ("write_cap", "write cap +0us Some(1.25)"),
            ("database_cpu", "database CPU +0us Some(1.25)"),
        ] {
            assert_eq!(shown(name, &resources, &trial), expected, "{name}");
        }
        for name in ["store_worker", "flush", "commit"] {
            assert_eq!(shown(name, &resources, &base(&[])), "not measured", "{name}");
        }
        let two = base(&[
            ("database-1.wal_sync_secs", 0.3),
            ("database-1.wal_syncs", 30.0),
            ("database-2.wal_sync_secs", 0.3),
            ("database-2.wal_syncs", 30.0),
            ("replica.wal_sync_secs", 9.0),
            ("replica.wal_syncs", 9.0),
        ]);
        let syncs = ["database-1 WAL sync", "database-2 WAL sync", "replica WAL sync"];
        let syncs = syncs.map(|name| resource(name, "", 1.0));
        let stores = "database-1 WAL sync, database-2 WAL sync +3000us None";
        assert_eq!(shown("commit", &syncs, &two), stores, "a replica's flushes hold up nobody");
        let slow = base(&[("database.wal_sync_secs", 1.0), ("database.wal_syncs", 1.0)]);
        assert_eq!(
            shown("commit", &[], &slow),
            "database WAL sync +100000us None",
            "PostgreSQL takes no more"
        );
        assert_eq!(shown("cpu", &resources, &Trial { load: None, ..trial }), "not measured");
    }

    #[test]
    fn under_a_quota_a_request_gets_a_share_of_what_is_fuller() {
        let both = |quota: f64| {
            let cores = Resource {
                busy: vec!["server.cpu_secs".into(), "database.cpu_secs".into()],
                ..resource("server + database CPU", "", 1.0)
            };
            [cores, resource("server CPU", "server.cpu_secs", quota)]
        };
        let trial = base(&[("server.cpu_secs", 0.45), ("database.cpu_secs", 0.3)]);
        let names = "server + database CPU, server CPU";
        assert_eq!(shown("cpu", &both(0.5), &trial), format!("{names} +150us None"));
        assert_eq!(shown("cpu", &both(0.9), &trial), format!("{names} +300us None"));
    }

    #[test]
    fn a_slower_flush_is_one_of_every_shard() {
        let shards = ["0", "1"].map(|shard| {
            let busy = format!("stats.weir_flush_busy_seconds_total{{shard=\"{shard}\"}}");
            resource(&format!("store flush of shard {shard}"), &busy, 1.0)
        });
        let counts = shards.each_ref().map(|of| of.busy[0].replace("flush_busy_seconds", "flushes"));
        let trial = base(&[
            (&shards[0].busy[0], 0.5),
            (&shards[1].busy[0], 0.3),
            (&counts[0], 50.0),
            (&counts[1], 30.0),
        ]);
        let both = "store flush of shard 0, store flush of shard 1 +3000us None";
        assert_eq!(shown("flush", &shards, &trial), both);
    }

    #[test]
    fn a_raised_quota_raises_no_cores() {
        let cores = resource("server + link CPU", "server.cpu_secs", 1.0);
        let gauge = Some("server.quota_cores".to_owned());
        let quota = Resource { servers_gauge: gauge, ..resource("server CPU", "server.cpu_secs", 0.5) };
        let trial = base(&[("server.cpu_secs", 0.45)]);
        assert_eq!(shown("server_quota", &[cores.clone(), quota], &trial), "server CPU +0us Some(0.5)");
        assert_eq!(shown("server_quota", &[cores], &trial), "server quota +0us Some(0.5)");
    }

    #[test]
    fn every_intervention_has_a_size() {
        let sized: Vec<&str> = SIZES.iter().map(|(name, _)| *name).collect();
        let known = INTERVENTIONS.iter().map(|(name, ..)| *name).chain([SLOWER_GENERATOR, SLOWER_SERVER]);
        assert!(known.clone().all(|name| sized.contains(&name)) && sized.len() == known.count());
    }
}
