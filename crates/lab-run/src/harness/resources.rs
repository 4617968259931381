//! What a request may wait for that can be counted here: workers, lanes, locks, cores, disks, caps; and who waits there.
//!
//! Pure: placements and a reading in, resources out.

use lab_data::experiment::{DATABASE, GENERATOR, LINK, REPLICA, SERVER};
use lab_data::results::{Limit, Placement, Reading, Resource, ResourceKind};

/// A resource that the server counts itself: one for each set of labels that its busy seconds have.
struct Row {
    /// In it `{operation}` stands for a label, `{shard}` for the shard where there are several.
    name: &'static str,
    kind: ResourceKind,
    limit: Limit,
    /// How its counters begin. Where `_busy_seconds_total` is not read, there is no such resource.
    counters: &'static str,
    /// Gauge of how many requests it works on at once; of one at a time there is none.
    servers: Option<&'static str>,
    /// Client-seconds of those who wait before its queue, if they are counted.
    unread: Option<&'static str>,
    /// The counter that is client-seconds of those who are served, if one is.
    serving: Option<&'static str>,
    /// What these are called that may be held meanwhile; they stand above it in the table.
    within: &'static [Limit],
}

/// What rows have that say nothing else.
const ROW: Row = Row {
    name: "",
    kind: ResourceKind::Station,
    limit: Limit::ServerWorkers,
    counters: "",
    servers: None,
    unread: None,
    serving: Some("_busy_seconds_total"),
    within: &[],
};

/// In the order of a request.
const ROWS: &[Row] = &[
    Row {
        name: "server workers",
        counters: "stats.weir_worker",
        servers: Some("stats.weir_workers"),
        // A request that no worker has read yet lies in its socket; an answer of the store waits for the worker that asked.
        unread: Some(SERVER_UNREAD),
        ..ROW
    },
    Row {
        name: "compute threads",
        kind: ResourceKind::Pool,
        counters: "stats.weir_compute",
        servers: Some("stats.weir_compute_threads"),
        ..ROW
    },
    // Who holds it is in a lane, and counted there.
    Row { name: "server lock", limit: Limit::ServerLock, counters: "stats.weir_lock", serving: None, ..ROW },
    Row {
        name: "store {operation} workers{shard}",
        kind: ResourceKind::Pool,
        limit: Limit::Pool,
        counters: "stats.weir_store",
        servers: Some("stats.weir_store_workers"),
        serving: Some("_request_seconds_total"),
        ..ROW
    },
    Row {
        name: "store flush{shard}",
        limit: Limit::CommitPath,
        counters: "stats.weir_flush",
        within: &[Limit::Pool, Limit::ServerLock],
        ..ROW
    },
];

/// Counted while a generator is connected, so in no reading from before.
const SERVER_UNREAD: &str = "sockets.server_unread_secs";
const GENERATOR_UNREAD: &str = "sockets.generator_unread_secs";
/// Of each database.
const WAL_SYNC: &str = ".wal_sync_secs";

/// What is held while a store's disk works.
const LANES: &[Limit] = &[Limit::Pool];
/// What is held while the server computes.
const THREADS: &[Limit] = &[Limit::ServerWorkers, Limit::Pool];

/// Everything a request may wait for that can be counted here.
pub(super) fn resources_of(placements: &[Placement], reading: &Reading) -> Vec<Resource> {
    let mut own: Vec<Resource> = Vec::new();
    for row in ROWS {
        own.extend(row.resources(reading, &own));
    }
    let mut resources = processors(placements, reading, &own);
    let lanes = names_of(&own, LANES);
    resources.extend(own);
    resources.extend(link(reading));
    let synced = reading.counters.keys().filter_map(|busy| {
        let part = busy.strip_suffix(WAL_SYNC)?;
        Some(one(format!("{part} WAL sync"), busy, ResourceKind::Indication, Some(Limit::CommitPath)))
    });
    let disk = reading.counters.keys().filter_map(|busy| {
        let device = busy.strip_prefix("disk.")?.strip_suffix(".busy_secs")?;
        Some(one(format!("disk {device}"), busy, ResourceKind::Indication, None))
    });
    let held = synced.chain(disk).chain(write_cap(reading));
    resources.extend(held.map(|of| Resource { within: lanes.clone(), ..of }));
    let generator = placements.iter().find(|placement| placement.part == GENERATOR);
    resources.extend(generator.map(|placement| generator_of(placement, reading)));
    resources
}

/// One that works on one request at a time.
fn one(name: String, busy: &str, kind: ResourceKind, limit: Option<Limit>) -> Resource {
    Resource { name, busy: vec![busy.to_owned()], servers: 1.0, kind, limit, ..Resource::default() }
}

impl Row {
    /// One for each set of labels; `above` are those of the rows above it.
    fn resources(&self, reading: &Reading, above: &[Resource]) -> Vec<Resource> {
        let busy = format!("{}_busy_seconds_total", self.counters);
        let labels = reading.counters.keys().filter_map(|counter| counter.strip_prefix(&busy));
        let labels = labels.filter(|labels| labels.is_empty() || labels.starts_with('{'));
        labels.filter_map(|labels| self.resource(labels, reading, above)).collect()
    }

    fn resource(&self, labels: &str, reading: &Reading, above: &[Resource]) -> Option<Resource> {
        let servers_gauge = self.servers.map(|name| format!("{name}{labels}"));
        let servers = servers_gauge.as_ref().map_or(Some(1.0), |name| reading.gauges.get(name).copied());
        let is_read = |name: &String| reading.counters.contains_key(name);
        let counter = |what: &str| Some(format!("{}{what}{labels}", self.counters)).filter(is_read);
        let queue = ["_queue_seconds_total", "_queue_seconds_sum"].into_iter().filter_map(counter);
        let (operation, shard) = (label(labels, "operation"), label(labels, "shard"));
        // Threads are named after the operation. Where several shards have them together, their counters are nobody's.
        let threads = operation.filter(|_| shard.is_none()).map(|name| format!("{SERVER}.threads.{name}"));
        let computing =
            threads.map(|name| ["cpu_secs", "run_delay_secs"].map(|what| format!("{name}.{what}")));
        let shard = shard.map(|shard| format!(" of shard {shard}")).unwrap_or_default();
        let name = self.name.replace("{operation}", operation.unwrap_or_default());
        Some(Resource {
            stolen: Vec::new(),
            name: name.replace("{shard}", &shard),
            busy: counter("_busy_seconds_total").into_iter().collect(),
            // What the server has none of is not in use.
            servers: servers.filter(|servers| *servers > 0.0)?,
            servers_gauge,
            kind: self.kind,
            limit: Some(self.limit),
            waiting: self.unread.map(str::to_owned).into_iter().chain(queue).collect(),
            serving: self.serving.and_then(counter).into_iter().collect(),
            computing: computing.filter(|names| names.iter().all(is_read)).map(Vec::from).unwrap_or_default(),
            within: names_of(above, self.within),
        })
    }
}

/// The value of label `name` in `{operation="read",shard="1"}`.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    Some(labels.split_once(&format!("{name}=\""))?.1.split_once('"')?.0)
}

/// The names of those that are called one of `limits`.
fn names_of(resources: &[Resource], limits: &[Limit]) -> Vec<String> {
    let held = resources.iter().filter(|of| of.limit.is_some_and(|limit| limits.contains(&limit)));
    held.map(|resource| resource.name.clone()).collect()
}

/// The cores of all parts but the generator, and the quotas that leave less than these.
fn processors(placements: &[Placement], reading: &Reading, own: &[Resource]) -> Vec<Resource> {
    let generator = placements.iter().find(|placement| placement.part == GENERATOR);
    // On the generator's cores a link is part of the generator's load; elsewhere its cores are a resource like any other.
    let is_load = |of: &Placement| {
        of.part == GENERATOR
            || of.part == LINK && generator.is_some_and(|generator| generator.cores == of.cores)
    };
    // Parts on the same cores are one resource, named where the first of them stands.
    let mut shared: Vec<(&[usize], Vec<&str>)> = Vec::new();
    for Placement { part, cores, .. } in placements.iter().filter(|of| !is_load(of)) {
        match shared.iter_mut().find(|(known, _)| known == cores) {
            Some((_, parts)) => parts.push(part),
            None => shared.push((cores, vec![part])),
        }
    }
    let mut resources: Vec<Resource> = Vec::new();
    for (own_cores, parts) in shared {
        let cores = own_cores.len() as f64;
        let under_quota = |part: &&str| {
            let gauge = format!("{part}.quota_cores");
            let quota = reading.gauges.get(&gauge).filter(|quota| **quota < cores)?;
            Some(Resource { servers_gauge: Some(gauge), ..cpu(&[part], *quota, &[], own) })
        };
        let quotas: Vec<Resource> = parts.iter().filter_map(under_quota).collect();
        // Alone on its cores it can use no more of them than its quota.
        let is_whole = parts.len() > 1 || quotas.is_empty();
        resources.extend(is_whole.then(|| cpu(&parts, cores, own_cores, own)));
        resources.extend(quotas);
    }
    resources
}

/// The processor time of `servers` cores: these `cores`, or none of their own where it is a quota. What clients hold while `parts`
/// compute is among `own`; its queue is the scheduler's, and nobody counts whose it is.
fn cpu(parts: &[&str], servers: f64, cores: &[usize], own: &[Resource]) -> Resource {
    let is_server = parts.iter().any(is_server);
    let limit = match (is_server, parts.iter().any(is_database), cores.is_empty()) {
        (true, _, false) => Limit::ServerCpu,
        (true, _, true) => Limit::ServerQuota,
        (false, true, false) => Limit::DatabaseCpu,
        (false, true, true) => Limit::DatabaseQuota,
        (false, false, _) => Limit::Other,
    };
    Resource {
        name: format!("{} CPU", named(parts)),
        busy: parts.iter().map(|part| format!("{part}.cpu_secs")).collect(),
        servers,
        kind: ResourceKind::Station,
        limit: Some(limit),
        within: names_of(own, if is_server { THREADS } else { LANES }),
        stolen: cores.iter().map(|core| format!("core.{core}.steal_secs")).collect(),
        ..Resource::default()
    }
}

/// The generator's cores. Sharing them, it is delayed by whatever else runs there: all of that is its load.
fn generator_of(placement: &Placement, reading: &Reading) -> Resource {
    let shared = placement.shares_with.iter().map(String::as_str);
    let parts: Vec<&str> = [GENERATOR].into_iter().chain(shared).collect();
    let cores = placement.cores.len() as f64;
    let gauge = format!("{GENERATOR}.quota_cores");
    let quota = reading.gauges.get(&gauge).filter(|quota| **quota < cores && parts.len() == 1);
    let (servers, cores) = quota.map_or((cores, &placement.cores[..]), |quota| (*quota, &[][..]));
    Resource {
        // It is started for each trial, so that only its trials tell.
        servers_gauge: (parts.len() == 1).then_some(gauge),
        kind: ResourceKind::Generator,
        limit: Some(Limit::Generator),
        // An answer that it has not read yet lies in its socket.
        waiting: vec![GENERATOR_UNREAD.to_owned()],
        serving: vec![format!("{GENERATOR}.cpu_secs")],
        ..cpu(&parts, servers, cores, &[])
    }
}

/// The link between generator and server, where one is imposed.
fn link(reading: &Reading) -> Option<Resource> {
    reading.gauges.get("link.bytes_per_sec")?;
    let counted = |what: &str| format!("{LINK}.{what}_secs");
    Some(Resource {
        waiting: vec![counted("waiting")],
        serving: vec![counted("serving")],
        ..one(LINK.to_owned(), &counted("busy"), ResourceKind::Cap, Some(Limit::Network))
    })
}

/// `server + database`; several servers or databases are one word.
fn named(parts: &[&str]) -> String {
    let mut names: Vec<&str> = parts.to_vec();
    for (is_one, word) in [(is_server as fn(&&str) -> bool, "servers"), (is_database, "databases")] {
        let place = names.iter().position(is_one);
        if let Some(place) = place.filter(|_| names.iter().filter(|part| is_one(part)).count() > 1) {
            names.retain(|part| !is_one(part));
            names.insert(place.min(names.len()), word);
        }
    }
    names.join(" + ")
}

fn is_server(part: &&str) -> bool {
    *part == SERVER || part.strip_prefix(SERVER).is_some_and(|rest| rest.starts_with('-'))
}

fn is_database(part: &&str) -> bool {
    part.starts_with(DATABASE) || *part == REPLICA
}

/// The write cap of a reading, busy for as long as its bytes take at the rate allowed. Workloads with different caps have one resource.
fn write_cap(reading: &Reading) -> Option<Resource> {
    reading.gauges.get("cap.bytes_per_sec")?;
    Some(one("write cap".to_owned(), "cap.busy_secs", ResourceKind::Cap, Some(Limit::Bandwidth)))
}

/// Takes in what a trial has shown: a single workload may have a cap, or a lock that the flags of its server ask for.
pub(super) fn take_in(resources: &mut Vec<Resource>, seen: Vec<Resource>) {
    for seen in seen {
        match resources.iter_mut().find(|known| known.name == seen.name) {
            // What is new may be held meanwhile.
            Some(known) => {
                let held = seen.within.into_iter().filter(|name| !known.within.contains(name));
                let held: Vec<String> = held.collect();
                known.within.extend(held);
            }
            None => insert(resources, seen),
        }
    }
}

/// The generator stays last.
fn insert(resources: &mut Vec<Resource>, seen: Resource) {
    let generator = resources.iter().position(|of| of.kind == ResourceKind::Generator);
    resources.insert(generator.unwrap_or(resources.len()), seen);
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::experiment::Cores;
    use lab_data::topology;

    /// The resources as lines of `name: counters / servers`.
    fn shown(cores: &[usize], parts: &[&str]) -> Vec<String> {
        let placements = topology::plan(cores, &[], parts, &Cores::default()).unwrap();
        let line = |resource: Resource| {
            format!(
                "{}: {} / {} {:?}",
                resource.name,
                resource.busy.join(" "),
                resource.servers,
                resource.kind
            )
        };
        resources_of(&placements, &Reading::default()).into_iter().map(line).collect()
    }

    #[test]
    fn parts_on_the_same_cores_are_one_resource() {
        assert_eq!(
            shown(&[0, 1], &[SERVER, DATABASE, GENERATOR]),
            [
                "server + database CPU: server.cpu_secs database.cpu_secs / 1 Station",
                "generator CPU: generator.cpu_secs / 1 Generator"
            ]
        );
        assert_eq!(
            shown(&[0, 1, 2, 3], &[SERVER, DATABASE, GENERATOR]),
            [
                "server CPU: server.cpu_secs / 2 Station",
                "database CPU: database.cpu_secs / 1 Station",
                "generator CPU: generator.cpu_secs / 1 Generator"
            ]
        );
    }

    #[test]
    fn several_databases_on_the_same_cores_are_one_word() {
        let parts = [SERVER, "database-1", "database-2", "replica", GENERATOR];
        assert_eq!(
            shown(&[0, 1], &parts)[0],
            "server + databases CPU: server.cpu_secs database-1.cpu_secs database-2.cpu_secs replica.cpu_secs / 1 Station"
        );
    }

    #[test]
    fn a_generator_without_cores_of_its_own_answers_for_all_on_them() {
        assert_eq!(
            shown(&[0], &[SERVER, GENERATOR]),
            [
                "server CPU: server.cpu_secs / 1 Station",
                "generator + server CPU: generator.cpu_secs server.cpu_secs / 1 Generator"
            ]
        );
    }

    /// What a server with everything counts, on an embedded store with a lock and on two cores.
    fn whole_reading() -> Reading {
        let counters = [
            "stats.weir_worker_busy_seconds_total",
            "stats.weir_worker_queue_seconds_total",
            "stats.weir_compute_busy_seconds_total",
            "stats.weir_compute_queue_seconds_sum",
            "stats.weir_lock_busy_seconds_total{lock=\"commit\"}",
            "stats.weir_lock_queue_seconds_total{lock=\"commit\"}",
            "stats.weir_store_busy_seconds_total{operation=\"read\"}",
            "stats.weir_store_busy_seconds_total{operation=\"write\"}",
            "stats.weir_store_queue_seconds_sum{operation=\"read\"}",
            "stats.weir_store_queue_seconds_sum{operation=\"write\"}",
            "stats.weir_store_request_seconds_total{operation=\"write\"}",
            "stats.weir_flush_busy_seconds_total",
            "stats.weir_flush_queue_seconds_total",
            "database.wal_sync_secs",
            "disk.vda.busy_secs",
        ];
        let gauges = [
            ("stats.weir_workers", 1.0),
            ("stats.weir_compute_threads", 2.0),
            ("stats.weir_store_workers{operation=\"read\"}", 4.0),
            ("stats.weir_store_workers{operation=\"write\"}", 1.0),
            ("link.bytes_per_sec", 1e6),
        ];
        Reading {
            counters: counters.iter().map(|name| ((*name).to_owned(), 0.0)).collect(),
            gauges: gauges.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        }
    }

    #[test]
    fn each_place_says_who_waits_there_who_is_served_and_what_is_held_meanwhile() {
        let placements =
            topology::plan(&[0, 1], &[], &[SERVER, DATABASE, GENERATOR], &Cores::default()).unwrap();
        let line = |resource: Resource| {
            let list = |names: &[String]| {
                names.iter().map(|name| name.replace("stats.weir_", "")).collect::<Vec<_>>().join(", ")
            };
            let Resource { name, servers, kind, limit, .. } = &resource;
            let limit = limit.map_or("-", Limit::name);
            let (waiting, serving) = (list(&resource.waiting), list(&resource.serving));
            // Only what computes has cores that can be stolen.
            assert_eq!(resource.stolen.is_empty(), !name.ends_with("CPU"), "{name}");
            format!("{name}|{servers}|{kind:?}|{limit}|{waiting}|{serving}|{}", list(&resource.within))
        };
        let resources = resources_of(&placements, &whole_reading());
        let lines: Vec<String> = resources.into_iter().map(line).collect();
        assert_eq!(
            lines,
            [
                "server + database CPU|1|Station|server CPU|||server workers, compute threads, store read workers, store write workers",
                "server workers|1|Station|server workers|sockets.server_unread_secs, worker_queue_seconds_total|worker_busy_seconds_total|",
                "compute threads|2|Pool|server workers|compute_queue_seconds_sum|compute_busy_seconds_total|",
                "server lock|1|Station|server lock|lock_queue_seconds_total{lock=\"commit\"}||",
                "store read workers|4|Pool|connection pool|store_queue_seconds_sum{operation=\"read\"}||",
                "store write workers|1|Pool|connection pool|store_queue_seconds_sum{operation=\"write\"}|store_request_seconds_total{operation=\"write\"}|",
                "store flush|1|Station|commit path|flush_queue_seconds_total|flush_busy_seconds_total|server lock, store read workers, store write workers",
                "link|1|Cap|network|link.waiting_secs|link.serving_secs|",
                "database WAL sync|1|Indication|commit path|||store read workers, store write workers",
                "disk vda|1|Indication|-|||store read workers, store write workers",
                "generator CPU|1|Generator|generator|sockets.generator_unread_secs|generator.cpu_secs|",
            ]
        );
    }

    #[test]
    fn the_stores_of_shards_are_told_apart() {
        let names = [
            "stats.weir_store_busy_seconds_total{operation=\"read\",shard=\"1\"}",
            "stats.weir_flush_busy_seconds_total{shard=\"1\"}",
        ];
        let reading = Reading {
            counters: names.iter().map(|name| ((*name).to_owned(), 0.0)).collect(),
            gauges: [("stats.weir_store_workers{operation=\"read\",shard=\"1\"}".to_owned(), 4.0)].into(),
        };
        let resources = resources_of(&[], &reading);
        let names: Vec<&str> = resources.iter().map(|resource| resource.name.as_str()).collect();
        assert_eq!(names, ["store read workers of shard 1", "store flush of shard 1"]);
        assert_eq!(resources[1].within, ["store read workers of shard 1"], "of those that there are");
    }

    #[test]
    fn a_server_that_counts_little_has_few_resources() {
        // As before lanes had names for all that waits; and lanes that are not there.
        let reading = Reading {
            counters: [("stats.weir_store_busy_seconds_total{operation=\"read\"}".to_owned(), 0.0)].into(),
            gauges: [("stats.weir_store_workers{operation=\"read\"}".to_owned(), 0.0)].into(),
        };
        assert_eq!(resources_of(&[], &reading), []);
    }

    #[test]
    fn a_quota_takes_the_place_of_the_cores_it_leaves_idle() {
        let quota = |part: &str, cores: f64| (format!("{part}.quota_cores"), cores);
        let check = |cores: &[usize], quotas: &[(String, f64)], expected: &[&str]| {
            let placements =
                topology::plan(cores, &[], &[SERVER, DATABASE, GENERATOR], &Cores::default()).unwrap();
            let reading = Reading { gauges: quotas.iter().cloned().collect(), ..Reading::default() };
            let line = |resource: Resource| {
                let limit = resource.limit.map_or("-", Limit::name);
                let gauge = resource.servers_gauge.unwrap_or_default();
                // Of a quota the hypervisor takes nothing.
                assert_eq!(resource.stolen.is_empty(), resource.servers < 1.0, "{}", resource.name);
                format!("{}: {} {limit} {gauge}", resource.name, resource.servers).trim_end().to_owned()
            };
            let lines: Vec<String> = resources_of(&placements, &reading).into_iter().map(line).collect();
            assert_eq!(lines, expected);
        };
        let all = [quota(SERVER, 0.2), quota(DATABASE, 4.0), quota(GENERATOR, 0.5)];
        check(
            &[0, 1, 2, 3],
            &all,
            &[
                "server CPU: 0.2 server CPU (quota) server.quota_cores",
                "database CPU: 1 database CPU",
                "generator CPU: 0.5 generator generator.quota_cores",
            ],
        );
        // On shared cores either may be the limit.
        check(
            &[0, 1],
            &[quota(DATABASE, 0.35)],
            &[
                "server + database CPU: 1 server CPU",
                "database CPU: 0.35 database CPU (quota) database.quota_cores",
                "generator CPU: 1 generator generator.quota_cores",
            ],
        );
    }

    #[test]
    fn a_cap_is_a_resource_as_soon_as_a_trial_has_it() {
        let placements = topology::plan(&[0, 1], &[], &[SERVER, GENERATOR], &Cores::default()).unwrap();
        let mut resources = Vec::new();
        for (bytes_per_sec, expected) in [
            (None, "server CPU, generator CPU"),
            (Some(10e6), "server CPU, write cap, generator CPU"),
            (Some(20e6), "server CPU, write cap, generator CPU"),
        ] {
            let gauges = bytes_per_sec.map(|rate| ("cap.bytes_per_sec".to_owned(), rate));
            let reading = Reading { gauges: gauges.into_iter().collect(), ..Reading::default() };
            take_in(&mut resources, resources_of(&placements, &reading));
            let names: Vec<&str> = resources.iter().map(|of| of.name.as_str()).collect();
            assert_eq!(names.join(", "), expected);
        }
    }

    #[test]
    fn a_lock_that_only_one_workload_asks_for_is_a_resource() {
        let placements = topology::plan(&[0, 1], &[], &[SERVER, GENERATOR], &Cores::default()).unwrap();
        let counted = |names: &[&str]| {
            let counters = names.iter().map(|name| (format!("stats.weir_{name}_busy_seconds_total"), 1.0));
            let reading = Reading { counters: counters.collect(), ..Reading::default() };
            resources_of(&placements, &reading)
        };
        let mut resources = counted(&["flush"]);
        take_in(&mut resources, counted(&["flush", "lock"]));
        take_in(&mut resources, counted(&["flush"]));
        let names: Vec<&str> = resources.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["server CPU", "store flush", "server lock", "generator CPU"]);
        assert_eq!(resources[1].within, ["server lock"]);
    }
}
