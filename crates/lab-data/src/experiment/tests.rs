//! What is read from a file, what is refused with which words, and what flags leave of it.

use super::*;

const SMALL: &str = r#"
name = "small"
title = "A small one"
levels = [1, 4]
repetitions = 2
warmup = "300ms"
window = "1s"
[target]
kind = "weir"
store = "postgres"
args = ["--cache-entries", "10"]
[postgres]
settings = { shared_buffers = "128MB", fsync = true, max_connections = 50 }
[cores]
server = [0]
[[workload]]
name = "get_popular"
args = ["--keys", "1000"]
[[workload]]
name = "put_rare"
"#;

#[test]
fn an_experiment_reads_as_written() {
    let experiment = Experiment::parse(SMALL).unwrap();
    assert_eq!((experiment.name.as_str(), experiment.seed), ("small", 1));
    assert_eq!(experiment.levels, [1, 4]);
    assert_eq!(experiment.subjects[0].target.parts(), [SERVER, DATABASE, GENERATOR]);
    assert_eq!(experiment.toml, SMALL);
    assert!(experiment.selftest, "who says nothing has the generator prove itself");
    let settings = experiment.postgres.unwrap().settings;
    let settings: Vec<_> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(settings, [("fsync", "on"), ("max_connections", "50"), ("shared_buffers", "128MB")]);
}

#[test]
fn a_cluster_has_nodes_and_cassandra_has_any_number_of_servers() {
    let of = |target: &str| {
        let text = SMALL.replace("store = \"postgres\"", target);
        let text = text.replace(
            "[postgres]\nsettings = { shared_buffers = \"128MB\", fsync = true, max_connections = 50 }\n",
            "",
        );
        Experiment::parse(&text)
    };
    let parts = |target: &str| of(target).unwrap().subjects[0].target.parts();
    assert_eq!(
        parts("store = \"cassandra\"\nservers = 2"),
        [SERVER, "server-2", "database-1", "database-2", "database-3", GENERATOR]
    );
    assert_eq!(
        parts("store = \"patroni\""),
        [SERVER, "database-1", "database-2", "database-3", ETCD, GENERATOR]
    );
    for (target, complaint) in [
        ("store = \"patroni\"\nservers = 2", "target.servers 2: only Cassandra is shared by servers"),
        ("store = \"cassandra\"\nservers = 0", "target.servers 0"),
        ("store = [\"cassandra\", \"memory:\"]", "a cluster is no shard"),
        ("store = \"cassandra\"\nflush_delay = \"1ms\"", "target.flush_delay"),
        ("store = \"cassandre\"", "target.store `cassandre` is unknown"),
    ] {
        let said = of(target).unwrap_err().to_string();
        assert!(said.contains(complaint), "{said}");
    }
    let fault = "[[fault]]\nkind = \"disk_full\"\npart = \"database-2\"\nat = \"0s\"\nfor = \"1s\"\n";
    let [cassandra, patroni] =
        ["cassandra", "patroni"].map(|store| of(&format!("store = \"{store}\"")).unwrap().toml);
    for broken in [format!("{cassandra}{fault}"), format!("{patroni}{}", fault.replace("database-2", ETCD))] {
        let said = Experiment::parse(&broken).unwrap_err().to_string();
        assert!(said.contains("the disk of a cluster cannot be broken"), "{said}");
    }
    // That of another target beside it can.
    let of_other = fault.replace("database-2", "database");
    let other = "[[target]]\nname = \"other\"\nkind = \"weir\"\nstore = \"postgres\"\n";
    let both = cassandra.replacen("[target]", &format!("{other}[[target]]\nname = \"first\""), 1);
    Experiment::parse(&format!("{both}{of_other}")).unwrap();
    let kill = "[[fault]]\nkind = \"kill\"\npart = \"server\"\nat = \"0s\"\n";
    for (injected, is_kept) in [("delay=1ms", true), ("delay=1ms,fail=4", false)] {
        let injected = format!("args = [\"--inject\", \"{injected}\", ");
        let failing = cassandra.replacen("args = [", &injected, 1);
        let parsed = Experiment::parse(&format!("{failing}{kill}"));
        assert_eq!(parsed.is_ok(), is_kept, "{injected}: {:?}", parsed.err());
    }
    // Each of their trials failed, or was no longer what it was to be.
    for (line, complaint) in [
        ("args = [\"--check\", \"linearizability\"]", "--check is there with faults anyway"),
        ("write_cap = \"10MiB\"", "workload.write_cap does not hold"),
        ("url = \"/orders/1\"", "workload.url: with faults, keys and values are judged"),
    ] {
        let workload = format!("[[workload]]\nname = \"get_all\"\n{line}\n");
        let said = Experiment::parse(&format!("{SMALL}{workload}{kill}")).unwrap_err().to_string();
        assert!(said.contains(complaint), "{said}");
    }
}

#[test]
fn a_window_may_go_on_until_its_means_are_known() {
    let read = |section: &str| {
        let text = SMALL.replace("[target]", &format!("[adaptive]\n{section}\n[target]"));
        Experiment::parse(&text)
    };
    assert_eq!(read("most = \"60s\"").unwrap().adaptive.unwrap().goodput, 0.01);
    let mut experiment = read("most = \"60s\"\ngoodput = 0.03").unwrap();
    assert_eq!(experiment.adaptive.unwrap().goodput, 0.03);
    experiment.scale(0.1);
    assert_eq!(experiment.adaptive.unwrap().most.to_string(), "6s");
    for (section, complaint) in [
        ("most = \"900ms\"", "adaptive.most 900ms is below window 1s"),
        ("most = \"2s\"", "adaptive.most 2s is below 3s, the least; lengthen it"),
        ("most = \"9s\"\ngoodput = 3", "adaptive.goodput 3 is no share of a mean"),
        ("most = \"9s\"\ngoodput = 0.0", "adaptive.goodput 0 is no share of a mean"),
        ("most = \"9s\"\nleast = \"1s\"", "unknown field"),
    ] {
        let said = read(section).unwrap_err().to_string().replace("; hint: ", "; ");
        assert!(said.contains(complaint), "{said}");
    }
    // Its window would always be the longest.
    let remote = |from: &str, to: &str| {
        let text = SMALL.replacen("[target]", "[adaptive]\nmost = \"9s\"\n[target]", 1).replacen(from, to, 1);
        Experiment::parse(&text).unwrap_err().to_string()
    };
    let said = "adaptive: the window of `put_rare` cannot end early with --worker; hint: remove [adaptive]";
    let own = remote("name = \"put_rare\"", "name = \"put_rare\"\nargs = [\"--worker=weir load-worker\"]");
    assert!(own.contains(said), "{own}");
    let of_target = remote("kind = \"weir\"", "kind = \"weir\"\nload = [\"--worker\", \"weir load-worker\"]");
    assert!(of_target.contains("cannot end early with --worker"), "{of_target}");
}

#[test]
fn every_private_store_and_the_replica_are_parts() {
    let parts = |store: &str| {
        let text = SMALL.replace("store = \"postgres\"", store).replace("[postgres]", "[mariadb]");
        Experiment::parse(&text).map(|experiment| experiment.subjects[0].target.parts().join(" "))
    };
    for (store, expected) in [
        ("store = \"mariadb\"", Ok("server database generator")),
        ("store = [\"mariadb\", \"file\", \"mariadb\"]", Ok("server database-1 database-2 generator")),
    ] {
        assert_eq!(parts(store), expected.map(str::to_owned), "{store}");
    }
    let followed =
        SMALL.replace("store = \"postgres\"", "store = [\"postgres\", \"postgres\"]\nreplica = true");
    let parts = Experiment::parse(&followed).unwrap().subjects[0].target.parts();
    assert_eq!(parts, ["server", "database-1", "database-2", "replica", "generator"]);
}

#[test]
fn a_scaled_experiment_is_shorter_and_still_has_its_first_and_last_level() {
    let text = SMALL.replace("levels = [1, 4]", "levels = [1, 2, 3, 4, 5, 6, 8, 10, 16]");
    let mut experiment = Experiment::parse(&text.replace("window = \"1s\"", "window = \"60s\"")).unwrap();
    experiment.scale(0.5);
    assert_eq!(
        (experiment.warmup.to_string(), experiment.window.to_string()),
        ("300ms".into(), "30s".into())
    );
    assert_eq!(experiment.levels.len(), 9);
    experiment.scale(0.02);
    assert_eq!(
        (experiment.window.to_string(), experiment.levels.clone()),
        ("2s".into(), vec![1, 2, 4, 5, 6, 10, 16])
    );
    assert!(experiment.check().is_ok());
}

#[test]
fn a_part_of_the_workloads_can_be_chosen() {
    let mut experiment = Experiment::parse(SMALL).unwrap();
    assert!(
        experiment
            .keep(&["put_common".into()])
            .unwrap_err()
            .to_string()
            .contains("use one of get_popular, put_rare")
    );
    experiment.keep(&["put_rare".into()]).unwrap();
    assert_eq!((experiment.workloads.len(), experiment.trials()), (1, 4));
}

#[test]
fn faults_are_left_out_with_their_part_and_shortened_with_the_window() {
    let others = "[[target]]\nname = \"other\"\nkind = \"weir\"\n[[target]]\nname = \"ours\"\n";
    let faults = "[[fault]]\nkind = \"kill\"\npart = \"database\"\nat = \"1s\"\n\
        [[fault]]\nkind = \"pause\"\nat = \"8s\"\nfor = \"500ms\"\nevery = \"5s\"\n";
    let text = SMALL.replace("[target]\n", others).replace("window = \"1s\"", "window = \"20s\"") + faults;
    let mut experiment = Experiment::parse(&text).unwrap();
    experiment.keep_targets(&["other".to_owned()]).unwrap();
    // As far as the window, which is not shortened below 2 s.
    experiment.scale(0.05);
    experiment.check().unwrap();
    let [fault] = &experiment.faults[..] else { panic!("{:?}", experiment.faults) };
    let times = [fault.at, fault.length, fault.every.unwrap()].map(|span| span.to_string());
    assert_eq!(times, ["800ms", "50ms", "500ms"]);
}

/// [`SMALL`] with three targets in place of its one.
fn several() -> String {
    let (head, rest) = SMALL.split_once("[target]").unwrap();
    let (_, tail) = rest.split_once("[postgres]").unwrap();
    format!(
        r#"{head}
[[target]]
name = "ours"
kind = "weir"
store = "postgres"
durability = "fsync"
[[target]]
name = "theirs"
kind = "command"
workloads = ["get_popular"]
load = ["--timeout", "1s"]
ready = "/health"
[target.files]
"a.conf" = "{{ listen {{port}}; }} # {{port:store}} {{dir}}"
[[target.process]]
part = "store"
command = ["store", "{{dir}}/a.conf", "{{cores}}"]
[[target.process]]
part = "server"
command = ["{{weir_dir}}/server"]
version = ["server", "-v"]
[[target]]
name = "model"
kind = "simulated"
workloads = ["put_rare"]
[[target.station]]
name = "one"
servers = 1
demand = "1ms"
[postgres]{tail}"#
    )
}

#[test]
fn several_targets_have_workloads_and_parts_of_their_own() {
    let experiment = Experiment::parse(&several()).unwrap();
    let shown = |subject: &Subject| {
        let own = experiment.workloads_of(subject);
        let own = own.iter().map(|workload| format!("{}{:?}", workload.name, workload.args));
        let own = own.collect::<Vec<_>>().join(" ").replace('"', "");
        format!("{}: {own}; {}", subject.name.as_deref().unwrap(), subject.target.parts().join(" "))
    };
    assert_eq!(
        experiment.subjects.iter().map(shown).collect::<Vec<_>>(),
        [
            "ours: get_popular[--keys, 1000] put_rare[]; server database generator",
            "theirs: get_popular[--keys, 1000, --timeout, 1s]; server store generator",
            "model: put_rare[]; ",
        ]
    );
    assert_eq!(experiment.subjects[0].durability, "fsync");
    assert!(experiment.subjects[0].sampling, "who says nothing is looked at");
    let unwatched = several().replacen("durability = \"fsync\"", "sampling = false", 1);
    assert!(!Experiment::parse(&unwatched).unwrap().subjects[0].sampling);
    // Two levels, two repetitions.
    assert_eq!(experiment.trials(), (2 + 1 + 1) * 4);
}

#[test]
fn a_part_of_the_targets_can_be_chosen_and_takes_what_is_said_of_it() {
    let chosen = |targets: &[&str], workloads: &[&str]| {
        let [targets, workloads] =
            [targets, workloads].map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        let mut experiment = Experiment::parse(&several()).unwrap();
        if !targets.is_empty() {
            experiment.keep_targets(&targets)?;
        }
        if !workloads.is_empty() {
            experiment.keep(&workloads)?;
        }
        experiment.check()?;
        let targets: Vec<&str> = experiment.subjects.iter().filter_map(|of| of.name.as_deref()).collect();
        let workloads: Vec<&str> = experiment.workloads.iter().map(|of| &*of.name).collect();
        Ok(format!("{}: {} {}", targets.join(" "), workloads.join(" "), experiment.postgres.is_some()))
    };
    for (targets, workloads, left) in [
        (&["model", "theirs"][..], &[][..], Ok("theirs model: get_popular put_rare false")),
        (&["theirs"][..], &[][..], Ok("theirs: get_popular false")),
        (&[][..], &["put_rare"][..], Ok("ours model: put_rare true")),
        (&["their"][..], &[][..], Err("--targets `their` is unknown; hint: use one of ours, theirs, model")),
    ] {
        assert_eq!(chosen(targets, workloads), left.map(str::to_owned).map_err(str::to_owned));
    }
    let why = Experiment::parse(SMALL)
        .unwrap()
        .keep_targets(&["ours".to_owned()])
        .unwrap_err()
        .to_string()
        .replace("; hint: ", "; ");
    assert!(why.contains("leave the flag out"), "{why}");
}

#[test]
fn what_is_wrong_with_one_of_several_targets_is_named_with_it() {
    for (from, to, complaint) in [
        ("name = \"theirs\"", "name = \"ours\"", "target.name `ours` stands twice"),
        ("name = \"theirs\"", "name = \"a/b\"", "target.name `a/b`: a name is lower-case letters"),
        ("name = \"theirs\"\n", "", "in a [[target]]: missing field `name`"),
        ("ready = ", "raedy = ", "target `theirs`: unknown field `raedy`"),
        ("ready = \"/health\"", "ready = \"health\"", "target `theirs`: target.ready `health` is no path"),
        (
            "[\"get_popular\"]",
            "[\"get_hot\"]",
            "target `theirs`: workloads: `get_hot` is unknown; use one of",
        ),
        ("[\"get_popular\"]", "[]", "target `theirs`: workloads names none"),
        ("\"--timeout\"", "\"--seed\"", "target.load has --seed, which the lab sets itself"),
        ("\"a.conf\"", "\"../a.conf\"", "target.files `../a.conf`: a file name without folders"),
        ("{port:store}", "{prot}", "target.files `a.conf` has {prot}, which stands for nothing; use {dir}, "),
        ("\"{cores}\"", "\"{core}\"", "target.process `store` has {core}, which stands for nothing"),
        ("part = \"server\"", "part = \"sever\"", "target.process: none is the server"),
        ("part = \"server\"", "part = \"store\"", "target.process.part `store` stands twice"),
        ("part = \"store\"", "part = \"generator\"", "target.process.part `generator` is the lab's own"),
        ("part = \"store\"", "part = \"load\"", "target.process.part `load` is the lab's own"),
        ("[\"store\", \"{dir}/a.conf\", \"{cores}\"]", "[]", "target.process `store`: command is empty"),
        (
            "args = [\"--keys\"",
            "serve = [\"--lab\"]\nargs = [\"--keys\"",
            "need a target of kind weir; remove them",
        ),
        (
            "durability = \"fsync\"",
            "workloads = [\"put_rare\"]\nflush_delay = \"0ms\"",
            "target.flush_delay 0s: it must be longer than zero",
        ),
        (
            "store = \"postgres\"",
            "store = \"memory:\"\nflush_delay = \"2ms\"",
            "target `ours`: target.flush_delay: only stores of the lab's own",
        ),
    ] {
        let text = several().replacen(from, to, 1);
        assert_ne!(text, several(), "{from}");
        let error = Experiment::parse(&text).unwrap_err().to_string().replace("; hint: ", "; ");
        assert!(error.contains(complaint) && !error.contains('\n'), "{to}: {error}");
    }
    let idle = several().replacen("durability = \"fsync\"", "workloads = [\"get_popular\"]", 1);
    let idle = idle.replacen("workloads = [\"put_rare\"]", "workloads = [\"get_popular\"]", 1);
    let why = Experiment::parse(&idle).unwrap_err().to_string().replace("; hint: ", "; ");
    assert!(why.contains("workload `put_rare`: no target takes part in it"), "{why}");
}

#[test]
fn a_flush_delay_is_of_a_store_of_the_labs_own() {
    let slow = SMALL.replace("store = \"postgres\"", "store = \"postgres\"\nflush_delay = \"2ms\"");
    let delay = Experiment::parse(&slow).unwrap().subjects[0].target.flush_delay();
    assert_eq!(delay.map(|delay| delay.to_string()), Some("2ms".to_owned()));
}

#[test]
fn a_target_may_have_quotas_and_a_link() {
    let keys = "store = \"postgres\"\nquota = { server = 0.2, database = 0.35 }\nlink = { rate = \"10mbit\", delay = \"20ms\" }";
    let experiment = Experiment::parse(&SMALL.replace("store = \"postgres\"", keys)).unwrap();
    let target = &experiment.subjects[0].target;
    assert_eq!(target.quota(), Quota { server: Some(0.2), generator: None, database: Some(0.35) });
    assert_eq!(target.link().unwrap().rate.unwrap().bytes_per_sec(), 1.25e6);
    assert_eq!(target.parts(), [SERVER, DATABASE, LINK, GENERATOR]);
    assert_eq!(Experiment::parse(SMALL).unwrap().subjects[0].target.quota(), Quota::default());
    let key = "store = \"postgres\"";
    for (keys, complaint) in [
        ("quota = { server = 0 }", "target.quota.server 0: at least 0.01 cores’ worth of processor time"),
        ("quota = { generator = -1.0 }", "target.quota.generator -1: "),
        ("quota = { sever = 0.1 }", "unknown field `sever`"),
        ("link = {}", "target.link does nothing; write link = "),
        ("link = { rate = \"10kbit\" }", "target.link.rate 10kbit: at least 100kbit"),
        ("link = { rate = \"10MB\" }", "a bit rate is a number with bit"),
    ] {
        let why = Experiment::parse(&SMALL.replace(key, &format!("{key}\n{keys}")))
            .unwrap_err()
            .to_string()
            .replace("; hint: ", "; ");
        assert!(why.contains(complaint) && !why.contains('\n'), "{keys}: {why}");
    }
    let bare = SMALL.replace(key, "store = \"file\"\nquota = { database = 0.5 }").replace("[postgres]", "");
    let why = Experiment::parse(&bare.replace("settings = ", "#"))
        .unwrap_err()
        .to_string()
        .replace("; hint: ", "; ");
    assert!(why.contains("target.quota.database: the lab starts no database here"), "{why}");
}

#[test]
fn interventions_have_a_measure_each_of_which_can_be_chosen() {
    let parsed = |section: &str| Experiment::parse(&format!("{SMALL}\n[interventions]\n{section}"));
    let of = parsed("").unwrap().interventions.unwrap();
    assert_eq!((of.level, of.rounds, of.strength, of.window.secs()), (None, 3, 0.3, 2.0));
    assert!(INTERVENTIONS.iter().all(|(name, ..)| of.wants(name)));
    let of = parsed("level = 32\nonly = [\"cpu\", \"delay\"]").unwrap().interventions.unwrap();
    assert_eq!((of.level, of.wants("cpu"), of.wants("lock")), (Some(32), true, false));
    assert!(Experiment::parse(SMALL).unwrap().interventions.is_none());
    for (section, complaint) in [
        ("level = 0", "interventions.level 0"),
        ("rounds = 0", "interventions.rounds 0"),
        ("strength = 0.0", "interventions.strength 0: a share from 0.01"),
        ("window = \"0s\"", "interventions.window 0s"),
        ("only = []", "interventions.only names none"),
        ("only = [\"turbo\"]", "interventions.only `turbo` is unknown; use one of cpu, worker, delay"),
        ("level = 3\nhow = 4", "unknown field `how`"),
        (
            "only = [\"cpu\", \"link\"]",
            "interventions.only `link` changes nothing: no target has a link with a rate; add link = { rate = \"100mbit\" } to it, or",
        ),
        ("only = [\"lock\"]", "`lock` changes nothing: no target has a lock; add \"--lab\""),
        ("only = [\"flush\"]", "`flush` changes nothing: no target flushes a store of its own; set"),
        ("only = [\"write_cap\"]", "`write_cap` changes nothing: no target has a workload with"),
        (
            "only = [\"database_cpu\"]",
            "`database_cpu` changes nothing: no target has databases with a quota; add",
        ),
    ] {
        let why = parsed(section).unwrap_err().to_string().replace("; hint: ", "; ");
        assert!(why.contains(complaint) && !why.contains('\n'), "{section}: {why}");
    }
    // Each with what its intervention needs.
    let full = SMALL
        .replace(
            "args = [\"--cache-entries\", \"10\"]",
            "args = [\"--inject\", \"cpu=1us,lock=0s\"]\nlink = { rate = \"1mbit\" }",
        )
        .replace("store = \"postgres\"", "store = [\"postgres\", \"file:x\"]\nquota = { database = 0.5 }");
    // A workload of a weir may have a cap, and a command a quota.
    let elsewhere = ["write_cap", "server_quota"];
    let names = INTERVENTIONS.iter().map(|(name, ..)| *name);
    let all: Vec<&str> = names.filter(|name| !elsewhere.contains(name)).collect();
    Experiment::parse(&format!("{full}\n[interventions]\nonly = {all:?}")).unwrap();
    let of = |text: &str| {
        let Experiment { subjects, workloads, .. } = Experiment::parse(text).unwrap();
        interventions_of(&subjects[0].target, &workloads[0]).join(" ")
    };
    assert_eq!(
        of(SMALL),
        "cpu worker delay store_worker commit",
        "what a server does not have is not slowed"
    );
    assert_eq!(of(&full), "cpu worker delay lock store_worker flush link commit database_cpu");
    let strange = SMALL.replace("kind = \"weir\"\nstore = \"postgres\"\nargs = [\"--cache-entries\", \"10\"]\n[postgres]\nsettings = { shared_buffers = \"128MB\", fsync = true, max_connections = 50 }\n[cores]\nserver = [0]", "kind = \"url\"\nurl = \"http://127.0.0.1:1\"");
    let why = Experiment::parse(&format!("{strange}\n[interventions]\nonly = [\"cpu\"]"))
        .unwrap_err()
        .to_string()
        .replace("; hint: ", "; ");
    assert!(why.contains("`cpu` changes nothing: no target is a weir of the lab’s own"), "{why}");
    let why = Experiment::parse(&format!("{strange}\n[interventions]\nlevel = 4")).unwrap_err().to_string();
    assert!(why.contains("interventions: nothing of these targets can be made slower"), "{why}");
    let model = several() + "[interventions]\nonly = [\"one\"]";
    let mut experiment = Experiment::parse(&model).unwrap();
    assert!(experiment.interventions.as_ref().unwrap().wants("one"), "a model's only are its stations");
    experiment.keep_targets(&["ours".to_owned()]).unwrap();
    assert!(experiment.interventions.is_none() && experiment.check().is_ok());
}

#[test]
fn a_reference_is_a_target_that_no_case_is_of() {
    let case = "[[truth.case]]\ntarget = \"ours\"";
    let experiment = Experiment::parse(&format!("{}\n{case}", several())).unwrap();
    let references = experiment.subjects.iter().filter(|subject| experiment.is_reference(subject));
    let names: Vec<&str> = references.map(|subject| subject.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["theirs", "model"]);
    let experiment = Experiment::parse(&several()).unwrap();
    assert!(!experiment.is_reference(&experiment.subjects[0]), "without cases nothing is compared");
}

#[test]
fn what_is_wrong_is_named_in_one_line() {
    for (from, to, complaint) in [
        ("levels = [1, 4]", "levels = []", "levels []"),
        ("levels = [1, 4]", "levels = [4, 1]", "levels [4, 1]"),
        ("levels = [1, 4]", "levels = [0, 1]", "levels [0, 1]"),
        ("levels = [1, 4]", "levels = [1, 1]", "levels [1, 1]"),
        ("levels = [1, 4]", "levels = [1, 200000]", "levels: 200000 clients; the most are 100000"),
        ("levels = [1, 4]", "lvels = [1]", "line 4: unknown field `lvels`"),
        ("levels = [1, 4]", "", "missing field `levels`; add it, see docs/reference.md#experiment-files"),
        ("repetitions = 2", "repetitions = 0", "repetitions 0"),
        ("window = \"1s\"", "window = \"0s\"", "window 0s"),
        ("warmup = \"300ms\"", "warmup = \"soon\"", "a duration is a number with us, ms, s"),
        ("name = \"put_rare\"", "name = \"get_popular\"", "workload.name `get_popular` stands twice"),
        ("name = \"put_rare\"", "name = \"put rare\"", "workload.name `put rare`"),
        ("store = \"postgres\"", "store = \"redis\"", "target.store `redis` is unknown; use one of file"),
        ("store = \"postgres\"", "store = \"file\"", "postgres: the target does not use"),
        ("server = [0]", "kitchen = [0]", "cores: part `kitchen` is unknown; use one of server"),
        ("args = [\"--cache-entries\", \"10\"]", "replica = 3", "line 8"),
        (
            "store = \"postgres\"",
            "store = [\"postgres\", \"file\"]\nreplica = true",
            "target.replica: not all stores are",
        ),
        ("store = \"postgres\"", "store = []", "target.store has none"),
        ("name = \"put_rare\"", "name = \"put_rare\"\nlevels = [2, 1]", "workload.levels [2, 1]"),
        (
            "name = \"put_rare\"",
            "name = \"put_rare\"\nwrite_cap = \"1B\"",
            "workload.write_cap of `put_rare` is below",
        ),
        ("kind = \"weir\"", "kind = \"weird\"", "line 9: unknown variant `weird`"),
        ("store = \"postgres\"", "stor = \"postgres\"", "line 10: unknown field `stor`"),
        ("store = \"postgres\"", "get_popular = 1", "line 8: unknown field `get_popular`"),
        ("--cache-entries", "--listen", "target.args has --listen, which the lab sets itself"),
        ("\"--keys\"", "\"--seed=3\"", "workload.args has --seed, which the lab sets itself; use seed"),
        ("\"--keys\"", "\"--inject=cpu=1us\"", "workload.args has --inject, which the lab sets itself"),
        ("name = \"small\"", "name = \"a/b\"", "name `a/b`"),
        (
            "name = \"put_rare\"",
            "name = \"x\"\nworkload = \"mixed\"\nurl = \"/ok\"",
            "workload `x` has both url and workload",
        ),
        ("name = \"put_rare\"", "name = \"x\"\npublished = \"y\"", "workload.published of `x`: no table"),
        ("[cores]", "[published]\nrow = \"000\"\n[cores]", "unknown field `row`"),
    ] {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "{from}");
        let error = Experiment::parse(&text).unwrap_err().to_string().replace("; hint: ", "; ");
        assert!(error.contains(complaint) && !error.contains('\n'), "{to}: {error}");
    }
}
