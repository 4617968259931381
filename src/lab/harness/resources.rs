//! What a request may wait for that can be counted here: cores, lanes, disks, caps.
//!
//! Pure: placements and a reading in, resources out.

use crate::lab::experiment::{DATABASE, GENERATOR, LINK, REPLICA};
use crate::lab::results::{Limit, Placement, Reading, Resource, ResourceKind};

/// Everything a request may wait for that can be counted here.
pub(super) fn resources_of(
    placements: &[Placement],
    reading: &Reading,
    device: Option<&str>,
) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    let generator = placements.iter().find(|placement| placement.part == GENERATOR);
    // On the generator's cores the link is part of the generator's load; elsewhere its cores are a resource like any other.
    let is_beside = |placement: &Placement| {
        placement.part == LINK && generator.is_some_and(|of| of.cores == placement.cores)
    };
    let targets: Vec<&Placement> =
        placements.iter().filter(|of| of.part != GENERATOR && !is_beside(of)).collect();
    let cpu = |parts: &[&str], cores: &[usize], kind| Resource {
        name: format!("{} CPU", named(parts)),
        busy: parts.iter().map(|part| format!("{part}.cpu_secs")).collect(),
        servers: cores.len() as f64,
        kind,
        ..Resource::default()
    };
    for (index, placement) in targets.iter().enumerate() {
        let together: Vec<&Placement> =
            targets.iter().copied().filter(|other| other.cores == placement.cores).collect();
        // Parts on the same cores are one resource, named where the first of them stands.
        if targets[..index].iter().all(|earlier| earlier.cores != placement.cores) {
            let parts: Vec<&str> = together.iter().map(|placement| placement.part.as_str()).collect();
            resources.push(cpu(&parts, &placement.cores, ResourceKind::Station));
        }
    }
    let lanes = reading.gauges.iter().filter_map(|(name, count)| {
        let labels = name.strip_prefix("stats.weir_store_lanes")?;
        let of = |label: &str| Some(labels.split_once(&format!("{label}=\""))?.1.split_once('"')?.0);
        let shard = of("shard").map(|shard| format!(" of shard {shard}")).unwrap_or_default();
        (*count > 0.0).then_some(())?;
        Some(Resource {
            name: format!("store {} lanes{shard}", of("lane")?),
            busy: vec![format!("stats.weir_store_busy_seconds_total{labels}")],
            servers: *count,
            servers_gauge: Some(name.clone()),
            kind: ResourceKind::Pool,
            ..Resource::default()
        })
    });
    resources.extend(lanes);
    resources.extend(device.map(|device| Resource {
        name: format!("disk {device}"),
        busy: vec![format!("disk.{device}.busy_secs")],
        servers: 1.0,
        kind: ResourceKind::Indication,
        ..Resource::default()
    }));
    resources.extend(write_cap(reading));
    resources.extend(generator.map(|placement| {
        // Sharing its cores, it is delayed by whatever else runs there: all of that is its load.
        let shared = placement.shares_with.iter().map(String::as_str);
        let parts: Vec<&str> = [GENERATOR].into_iter().chain(shared).collect();
        cpu(&parts, &placement.cores, ResourceKind::Generator)
    }));
    resources
}

/// `server + database`; several databases are one word.
fn named(parts: &[&str]) -> String {
    let is_database = |part: &&str| part.starts_with(DATABASE) || *part == REPLICA;
    let (databases, others): (Vec<&str>, Vec<&str>) = parts.iter().partition(|part| is_database(part));
    match databases.len() {
        0 | 1 => parts.join(" + "),
        _ => others.into_iter().chain(["databases"]).collect::<Vec<_>>().join(" + "),
    }
}

/// The write cap of a reading, busy for as long as its bytes take at the rate allowed.
pub(super) fn write_cap(reading: &Reading) -> Option<Resource> {
    let bytes_per_sec = reading.gauges.get("cap.bytes_per_sec")?;
    let mega = (bytes_per_sec / 1e5).round() / 10.0;
    Some(Resource {
        name: format!("write cap {mega} MB/s"),
        busy: vec!["cap.busy_secs".to_owned()],
        servers: 1.0,
        kind: ResourceKind::Cap,
        limit: Some(Limit::Bandwidth),
        ..Resource::default()
    })
}

/// Takes in a resource that a single workload has: a cap is imposed when its trials come, after all others were
/// listed. Workloads with caps of different rates have one resource, and then it is not named after a rate.
pub(super) fn take_in(resources: &mut Vec<Resource>, seen: Option<Resource>) {
    let Some(seen) = seen else { return };
    match resources.iter_mut().find(|known| known.busy == seen.busy) {
        Some(known) if known.name == seen.name => {}
        Some(known) => known.name = "write cap".to_owned(),
        None => {
            // The generator stays last.
            let generator = resources.iter().position(|of| of.kind == ResourceKind::Generator);
            resources.insert(generator.unwrap_or(resources.len()), seen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::experiment::{Cores, SERVER};
    use crate::lab::topology;
    use std::collections::BTreeMap;

    /// The resources as lines of `name: counters / servers`.
    fn shown(cores: &[usize], parts: &[&str], gauges: &[(&str, f64)], device: Option<&str>) -> Vec<String> {
        let placements = topology::plan(cores, parts, &Cores::default()).unwrap();
        let gauges = gauges.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let reading = Reading { counters: BTreeMap::new(), gauges };
        let line = |resource: Resource| {
            format!(
                "{}: {} / {} {:?}",
                resource.name,
                resource.busy.join(" "),
                resource.servers,
                resource.kind
            )
        };
        resources_of(&placements, &reading, device).into_iter().map(line).collect()
    }

    #[test]
    fn parts_on_the_same_cores_are_one_resource() {
        assert_eq!(
            shown(&[0, 1], &[SERVER, DATABASE, GENERATOR], &[], None),
            [
                "server + database CPU: server.cpu_secs database.cpu_secs / 1 Station",
                "generator CPU: generator.cpu_secs / 1 Generator"
            ]
        );
        assert_eq!(
            shown(&[0, 1, 2, 3], &[SERVER, DATABASE, GENERATOR], &[], None),
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
            shown(&[0, 1], &parts, &[], None)[0],
            "server + databases CPU: server.cpu_secs database-1.cpu_secs database-2.cpu_secs replica.cpu_secs / 1 Station"
        );
    }

    #[test]
    fn a_generator_without_cores_of_its_own_answers_for_all_on_them() {
        assert_eq!(
            shown(&[0], &[SERVER, GENERATOR], &[], None),
            [
                "server CPU: server.cpu_secs / 1 Station",
                "generator + server CPU: generator.cpu_secs server.cpu_secs / 1 Generator"
            ]
        );
    }

    #[test]
    fn lanes_and_disk_are_resources_where_they_are_counted() {
        let gauges = [
            ("stats.weir_store_lanes{lane=\"read\"}", 4.0),
            ("stats.weir_store_lanes{lane=\"write\"}", 1.0),
            ("stats.weir_cache_bytes", 9.0),
        ];
        assert_eq!(
            shown(&[0, 1], &[SERVER, GENERATOR], &gauges, Some("vda"))[1..4],
            [
                "store read lanes: stats.weir_store_busy_seconds_total{lane=\"read\"} / 4 Pool",
                "store write lanes: stats.weir_store_busy_seconds_total{lane=\"write\"} / 1 Pool",
                "disk vda: disk.vda.busy_secs / 1 Indication"
            ]
        );
    }

    #[test]
    fn a_cap_is_a_resource_as_soon_as_a_trial_has_it() {
        let reading = |bytes_per_sec: f64| Reading {
            gauges: [("cap.bytes_per_sec".to_owned(), bytes_per_sec)].into(),
            ..Reading::default()
        };
        let placements = topology::plan(&[0, 1], &[SERVER, GENERATOR], &Cores::default()).unwrap();
        let mut resources = resources_of(&placements, &Reading::default(), None);
        let names =
            |of: &[Resource]| of.iter().map(|resource| resource.name.clone()).collect::<Vec<_>>().join(", ");
        take_in(&mut resources, write_cap(&Reading::default()));
        assert_eq!(names(&resources), "server CPU, generator CPU");
        for (bytes_per_sec, name) in
            [(10e6, "write cap 10 MB/s"), (10e6, "write cap 10 MB/s"), (10_485_760.0, "write cap")]
        {
            take_in(&mut resources, write_cap(&reading(bytes_per_sec)));
            assert_eq!(names(&resources), format!("server CPU, {name}, generator CPU"));
        }
        assert_eq!(
            names(&resources_of(&placements, &reading(10_485_760.0), None)),
            "server CPU, write cap 10.5 MB/s, generator CPU"
        );
    }
}
