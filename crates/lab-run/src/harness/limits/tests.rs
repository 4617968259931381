//! What is written into the files of control groups, looked at in a directory that plays them.

use super::*;

const V1: &str = "40 24 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                  41 24 0:34 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                  42 24 0:35 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
const ALL: Wanted = Wanted { memory: true, cpu: true, write_cap: true };

#[test]
fn the_layout_is_the_one_that_can() {
    let path = |name: &str| Some(PathBuf::from(format!("/sys/fs/cgroup/{name}")));
    let (memory, blkio, cpu) = (path("memory"), path("blkio"), path("cpu,cpuacct"));
    assert_eq!(layout(V1, ALL), Ok(Layout::V1 { memory: memory.clone(), blkio, cpu }));
    let of_memory = V1.lines().next().unwrap();
    for (wanted, lacks) in [
        (Wanted { memory: false, ..ALL }, "processor time and disk"),
        (Wanted { write_cap: false, ..ALL }, "memory and processor time"),
    ] {
        let why = layout(of_memory, wanted).unwrap_err();
        assert!(why.contains(&format!("no control groups for {lacks} (")) && !why.contains('\n'), "{why}");
    }
    let only = Wanted { cpu: false, write_cap: false, ..ALL };
    assert_eq!(layout(of_memory, only), Ok(Layout::V1 { memory, blkio: None, cpu: None }));
    let root = tempfile::tempdir().unwrap();
    let v2 = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
    assert!(layout(&v2, ALL).is_err(), "a tree without the controllers limits nothing");
    fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
    assert_eq!(layout(&v2, ALL), Ok(Layout::V2 { root: root.path().to_owned() }));
}

fn part(name: &str, capped: bool, quota: Option<f64>) -> Part {
    let memory = name.starts_with("database").then_some(500_000_000);
    Part { name: name.to_owned(), capped, memory, quota }
}

/// Version 2 cannot be tried on a machine with version 1: what would be written is looked at instead.
#[test]
fn under_version_2_parts_are_children_of_the_group_that_is_capped() {
    let root = tempfile::tempdir().unwrap();
    let mut limits = Limits::within(Layout::V2 { root: root.path().to_owned() });
    let parts =
        [part("database-1", true, None), part("database-2", true, Some(0.35)), part("replica", false, None)];
    limits.make_all("weir-lab-1", &parts, ALL).unwrap();
    limits.cap_writes("254:0", Some(10 << 20)).unwrap();
    let shared = root.path().join("weir-lab-1");
    let read = |file: PathBuf| fs::read_to_string(file).unwrap();
    assert_eq!(read(shared.join("io.max")), "254:0 wbps=10485760");
    assert_eq!(read(shared.join("database-2/memory.max")), "500000000");
    assert_eq!(read(shared.join("database-2/cpu.max")), "35000 100000");
    assert_eq!(read(shared.join("cgroup.subtree_control")), "+cpu", "the last that was handed down");
    assert!(!shared.join("database-1/cpu.max").exists());
    let doors = |part: &str| limits.member(part).unwrap().doors.clone();
    assert_eq!(doors("database-2"), [shared.join("database-2/cgroup.procs")]);
    assert_eq!(doors("replica"), [root.path().join("weir-lab-1-uncapped/replica/cgroup.procs")]);
    limits.cap_writes("254:0", None).unwrap();
    assert_eq!(read(shared.join("io.max")), "254:0 wbps=max");
    limits.made.clear();
}

#[test]
fn under_version_1_each_controller_has_groups_of_its_own_and_only_some_parts_are_capped() {
    let root = tempfile::tempdir().unwrap();
    let [memory, blkio, cpu] = ["memory", "blkio", "cpu"].map(|name| root.path().join(name));
    [&memory, &blkio, &cpu].into_iter().for_each(|dir| fs::create_dir(dir).unwrap());
    let [of_memory, of_blkio, of_cpu] = [&memory, &blkio, &cpu].map(|dir| Some(dir.clone()));
    let mut limits = Limits::within(Layout::V1 { memory: of_memory, blkio: of_blkio, cpu: of_cpu });
    let parts =
        [part("database", true, Some(0.5)), part("replica", false, None), part("server", false, Some(0.2))];
    limits.make_all("weir-lab-1", &parts, ALL).unwrap();
    let door = |tree: &Path, part: &str| tree.join(format!("weir-lab-1-{part}/cgroup.procs"));
    let doors = |part: &str| limits.member(part).unwrap().doors.clone();
    assert_eq!(
        doors("database"),
        [blkio.join("weir-lab-1/cgroup.procs"), door(&memory, "database"), door(&cpu, "database")]
    );
    assert_eq!((doors("replica"), doors("server")), (vec![], vec![door(&cpu, "server")]));
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
    let layout = Layout::V1 { memory: None, blkio: None, cpu: Some(root.path().to_owned()) };
    let mut limits = Limits::within(layout);
    let parts = [part("database", false, Some(0.5)), part("server", false, Some(0.002))];
    limits.make_all("weir", &parts, Wanted { cpu: true, ..Wanted::default() }).unwrap();
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
    let parts = [Part { name: "server".into(), quota: Some(0.2), ..Part::default() }];
    let Ok(Some(limits)) = Limits::new(&parts, false) else { return };
    match limits.probe_quotas() {
        Ok(said) => assert!(said[0].1.starts_with("0.2 cores; a loop got 0."), "{said:?}"),
        Err(why) => assert!(why.contains("; ") && !why.contains('\n'), "{why}"),
    }
}

#[test]
fn nothing_wanted_makes_nothing() {
    assert!(Limits::new(&[Part::default()], false).unwrap().is_none());
}
