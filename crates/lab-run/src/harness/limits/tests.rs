//! What is written into the files of control groups, looked at in a directory that plays them.

use super::layout::Wanted;
use super::*;
use crate::sampler::parse_mounts;

const V1: &str = "40 24 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  41 24 0:34 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                  42 24 0:35 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
const ALL: Wanted = [true; 3];

#[test]
fn the_layout_is_the_one_that_can() {
    let path = |name: &str| Some(PathBuf::from(format!("/sys/fs/cgroup/{name}")));
    let layout = |mounts: &str, wanted| layout(&parse_mounts(mounts), wanted);
    let v1 = |roots| Ok(Layout { is_v2: false, roots });
    assert_eq!(layout(V1, ALL), v1([path("memory"), path("cpu,cpuacct"), path("blkio")]));
    let of_memory = V1.lines().next().unwrap();
    for (wanted, lacks) in
        [([false, true, true], "processor time and disk"), ([true, true, false], "memory and processor time")]
    {
        let why = layout(of_memory, wanted).unwrap_err().to_string();
        assert!(why.contains(&format!("no control groups for {lacks} (")) && !why.contains('\n'), "{why}");
    }
    assert_eq!(layout(of_memory, [true, false, false]), v1([path("memory"), None, None]));
    let root = tempfile::tempdir().unwrap();
    let v2 = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
    assert!(layout(&v2, ALL).is_err(), "a tree without the controllers limits nothing");
    fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
    assert_eq!(layout(&v2, ALL), Ok(v2_in(root.path())));
}

fn v2_in(root: &Path) -> Layout {
    Layout { is_v2: true, roots: [(); 3].map(|()| Some(root.to_owned())) }
}

fn part(name: &str, capped: bool, quota: Option<f64>) -> Part {
    let memory = name.starts_with("database").then_some(500_000_000);
    Part { name: name.to_owned(), capped, memory, quota, groups: Vec::new() }
}

/// Version 2 cannot be tried on a machine with version 1: what would be written is looked at instead.
#[test]
fn under_version_2_parts_are_children_of_the_group_that_is_capped() {
    let root = tempfile::tempdir().unwrap();
    let parts = vec![
        part("database-1", true, None),
        part("database-2", true, Some(0.35)),
        part("replica", false, Some(0.5)),
    ];
    let mut limits = Limits::within(v2_in(root.path()), "weir-lab-1", parts).unwrap();
    limits.cap_writes("254:0", Some(10 << 20)).unwrap();
    let shared = root.path().join("weir-lab-1");
    let read = |file: PathBuf| fs::read_to_string(file).unwrap();
    assert_eq!(read(shared.join("io.max")), "254:0 wbps=10485760");
    assert_eq!(read(shared.join("database-2/memory.max")), "500000000");
    assert_eq!(read(shared.join("database-2/cpu.max")), "35000 100000");
    assert_eq!(read(shared.join("cgroup.subtree_control")), "+cpu", "the last that was handed down");
    assert!(!shared.join("database-1/cpu.max").exists());
    let groups = |name: &str| limits.parts.iter().find(|part| part.name == name).unwrap().groups.clone();
    assert_eq!(groups("database-2"), [shared.join("database-2")]);
    assert_eq!(groups("replica"), [root.path().join("weir-lab-1-replica")]);
    limits.cap_writes("254:0", None).unwrap();
    assert_eq!(read(shared.join("io.max")), "254:0 wbps=max");
    limits.made.clear();
}

#[test]
fn under_version_1_each_controller_has_groups_of_its_own_and_only_some_parts_are_capped() {
    let root = tempfile::tempdir().unwrap();
    let [memory, blkio, cpu] = ["memory", "blkio", "cpu"].map(|name| root.path().join(name));
    [&memory, &blkio, &cpu].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let roots = [&memory, &cpu, &blkio].map(|dir| Some(dir.clone()));
    let parts = vec![
        part("database", true, Some(0.5)),
        part("replica", false, None),
        part("server", false, Some(0.2)),
    ];
    let mut limits = Limits::within(Layout { is_v2: false, roots }, "weir-lab-1", parts).unwrap();
    let own = |tree: &Path, part: &str| tree.join(format!("weir-lab-1-{part}"));
    let groups = |name: &str| limits.parts.iter().find(|part| part.name == name).unwrap().groups.clone();
    assert_eq!(
        groups("database"),
        [blkio.join("weir-lab-1"), own(&memory, "database"), own(&cpu, "database")]
    );
    assert_eq!((groups("replica"), groups("server")), (vec![], vec![own(&cpu, "server")]));
    limits.cap_writes("254:0", Some(10 << 20)).unwrap();
    let read = |file: PathBuf| fs::read_to_string(file).unwrap();
    assert_eq!(read(blkio.join("weir-lab-1/blkio.throttle.write_bps_device")), "254:0 10485760");
    assert_eq!(read(cpu.join("weir-lab-1-server/cpu.cfs_period_us")), "100000");
    assert_eq!(read(cpu.join("weir-lab-1-server/cpu.cfs_quota_us")), "20000");
    limits.made.clear();
}

#[test]
fn a_quota_is_lowered_for_some_and_then_what_it_was() {
    let root = tempfile::tempdir().unwrap();
    let roots = [None, Some(root.path().to_owned()), None];
    let parts = vec![part("database", false, Some(0.5)), part("server", false, Some(0.002))];
    let mut limits = Limits::within(Layout { is_v2: false, roots }, "weir", parts).unwrap();
    let quota =
        |part: &str| fs::read_to_string(root.path().join(format!("weir-{part}/cpu.cfs_quota_us"))).unwrap();
    assert_eq!((quota("database").as_str(), quota("server").as_str()), ("50000", "1000"));
    assert_eq!(limits.scale_quotas(|part| part == "database", 0.8), Ok(()));
    assert_eq!((quota("database").as_str(), quota("server").as_str()), ("40000", "1000"));
    assert_eq!(limits.scale_quotas(|part| part == "database", 1.0), Ok(()));
    assert_eq!(quota("database"), "50000");
    assert_eq!(limits.scale_quotas(|part| part == "replica", 0.8), Ok(()));
    limits.made.clear();
}

/// Only where this machine has control groups and lets us write them; elsewhere an experiment with quotas is refused.
#[test]
fn a_quota_holds_where_one_can_be_set() {
    let parts = vec![Part { name: "server".into(), quota: Some(0.01), ..Part::default() }];
    let Ok(limits) = Limits::new(parts, false) else { return };
    match limits.probe_quotas() {
        Ok(said) => assert!(said[0].1.starts_with("0.01 cores; a loop got 0."), "{said:?}"),
        // A few milliseconds more are no proof.
        Err(why) => {
            assert!(why.to_string().contains("; hint: ") && !why.to_string().contains("got 0.0"), "{why}");
        }
    }
}

#[test]
fn nothing_wanted_makes_nothing() {
    let limits = Limits::new(vec![Part::default()], false).unwrap();
    assert!(limits.made.is_empty() && limits.capped.is_none());
}
