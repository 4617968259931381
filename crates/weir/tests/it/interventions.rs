//! Experiments in which one resource after the other is made slower, and those with a link between generator and server.

use crate::support;
use lab_data::results::{Intervention, Results, SLOWER_GENERATOR, SLOWER_SERVER, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn lab(dir: &Path, experiment: &str) -> Results {
    let (file, out) = (dir.join("experiment.toml"), dir.join("out"));
    fs::write(&file, experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.arg("lab").arg(file).arg("--out").arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

/// The interventions of a round, sorted, without the one counterpart.
fn names(of: &[Intervention], round: u32) -> Vec<&str> {
    let of = of.iter().filter(|one| one.trial.repetition == round);
    let (bases, turned): (Vec<_>, Vec<_>) = of.partition(|one| one.change.is_none());
    assert_eq!(bases.len(), 1);
    let mut names: Vec<&str> = turned.iter().map(|one| one.change.as_ref().unwrap().name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn the_stations_of_a_model_are_made_slower_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"model\"\ntitle = \"Two stations\"\nlevels = [1, 16]\nrepetitions = 2\nwarmup = \"500ms\"\nwindow = \"1s\"\n\
         [target]\nkind = \"simulated\"\n[[target.station]]\nname = \"cpu\"\nservers = 1\ndemand = \"100us\"\n\
         [[target.station]]\nname = \"disk\"\nservers = 1\ndemand = \"1ms\"\n\
         [interventions]\nrounds = 2\nwindow = \"20s\"\n[[workload]]\nname = \"w\"\n",
    );
    assert_eq!(results.trials.len(), 4, "interventions are no rows");
    assert_eq!([names(&results.interventions, 0), names(&results.interventions, 1)], [["cpu", "disk"]; 2]);
    let goodput = |one: &Intervention| one.trial.load.as_ref().unwrap().goodput_rps;
    for one in &results.interventions {
        assert_eq!((one.trial.level, one.trial.load.as_ref().unwrap().window_secs), (16, 20.0));
        if one.change.as_ref().is_some_and(|change| change.name == "disk") {
            let base = results.interventions.iter().find(|one| one.change.is_none()).unwrap();
            assert!(goodput(one) < 0.85 * goodput(base), "{}", goodput(one));
        }
    }
}

/// Asserts on what was done, not on what it cost.
#[test]
fn every_run_slows_the_generator_and_the_server_at_the_level_with_the_highest_goodput() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"live\"\ntitle = \"A server\"\nlevels = [1, 4]\nrepetitions = 1\nwarmup = \"100ms\"\nwindow = \"300ms\"\n\
         selftest = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\n\
         [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"100\"]\n",
    );
    let goodput = |trial: &Trial| trial.load.as_ref().unwrap().goodput_rps;
    let best = results.trials.iter().max_by(|a, b| goodput(a).total_cmp(&goodput(b))).unwrap().level;
    for round in 0..4 {
        assert_eq!(names(&results.interventions, round), [SLOWER_GENERATOR, SLOWER_SERVER]);
    }
    for one in &results.interventions {
        assert_eq!((one.trial.level, &one.trial.failure), (best, &None));
        assert!(one.change.as_ref().is_none_or(|change| change.added_us > 0.0), "{:?}", one.change);
    }
}

/// Asserts on what was done, not on what it cost.
#[test]
fn a_server_is_made_slower_while_it_runs_and_then_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"live\"\ntitle = \"A server\"\nlevels = [2]\nrepetitions = 1\nwarmup = \"100ms\"\nwindow = \"300ms\"\n\
         selftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\n\
         link = { rate = \"100mbit\", delay = \"1ms\" }\n\
         [interventions]\nrounds = 1\nwindow = \"300ms\"\nonly = [\"cpu\", \"delay\", \"link\"]\n\
         [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"100\"]\n",
    );
    let done = &results.interventions;
    assert_eq!(names(done, 0), ["cpu", "delay", "link"]);
    for one in done {
        assert_eq!(one.trial.failure, None, "{:?}", one.change);
    }
    let of = |name: &str| {
        let one = done.iter().find(|one| one.change.as_ref().is_some_and(|change| change.name == name));
        one.and_then(|one| one.change.clone()).unwrap()
    };
    assert!(of("cpu").added_us > 0.0 && of("cpu").raises[0].contains("server"));
    assert!(of("delay").raises.is_empty() && of("delay").added_us == of("cpu").added_us);
    assert_eq!((of("link").factor, of("link").raises.as_slice()), (Some(1.25), &["link".to_owned()][..]));
    for trial in results.trials.iter().chain(done.iter().map(|one| &one.trial)) {
        assert!(trial.growth("link.down_bytes").unwrap() > 0.0, "the load goes through the link");
        let latency = trial.load.as_ref().unwrap().latency;
        assert!(latency.count == 0 || latency.us_min >= 2_000.0, "{}", latency.us_min);
    }
    let rates: Vec<f64> = done.iter().map(|one| one.trial.opened.gauges["link.bytes_per_sec"]).collect();
    assert_eq!(rates.iter().filter(|rate| **rate == 10e6).count(), 1);
    assert_eq!(rates.iter().filter(|rate| **rate == 12.5e6).count(), 3);
    let parts: Vec<&str> = results.placements.iter().map(|placement| placement.part.as_str()).collect();
    assert_eq!(parts, ["server", "link", "generator"]);
}

/// A round was once compared with a base that had been measured on the server that died.
#[test]
fn a_round_in_which_the_server_is_killed_is_dropped_and_the_next_one_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("experiment.toml"), dir.path().join("out"));
    let experiment = "name = \"live\"\ntitle = \"A server\"\nlevels = [2]\nrepetitions = 1\nwarmup = \"100ms\"\n\
         window = \"300ms\"\nselftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\n\
         [interventions]\nrounds = 2\nwindow = \"2s\"\nonly = [\"cpu\", \"delay\", \"worker\"]\n\
         [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"100\"]\n";
    fs::write(&file, experiment).unwrap();
    let mut lab = support::weir();
    let lab = lab.arg("lab").arg(file).arg("--out").arg(&out).stdout(Stdio::null()).stderr(Stdio::piped());
    let lab = lab.spawn().unwrap();
    let read =
        || -> Option<Results> { serde_json::from_slice(&fs::read(out.join("results.json")).ok()?).ok() };
    support::until("an intervention is measured", || read().is_some_and(|of| !of.interventions.is_empty()));
    let is_server = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"serve")
    };
    let server = lab_run::sampler::descendants(lab.id()).into_iter().find(is_server).unwrap();
    kill_process(Pid::from_raw(server.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let output = lab.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "interventions fail no run: {said}");
    assert!(said.contains("started anew within this round: none of it is compared"), "{said}");
    let results = read().unwrap();
    let counted = |round: u32| {
        let of = results.interventions.iter().filter(move |one| one.trial.repetition == round);
        of.filter(|one| one.trial.failure.is_none()).count()
    };
    assert_eq!((counted(0), counted(1)), (0, 4), "{said}");
}

/// What could not be taken back was once never tried again: every later trial of the repetition failed, or, where the server was
/// started anew meanwhile, was measured with the change still made.
#[test]
fn a_change_that_could_not_be_taken_back_is_taken_back_before_anything_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("experiment.toml"), dir.path().join("out"));
    let experiment = "name = \"live\"\ntitle = \"A database\"\nlevels = [2]\nrepetitions = 1\nwarmup = \"100ms\"\n\
         window = \"300ms\"\nselftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"postgres\"\n\
         [interventions]\nrounds = 100\nwindow = \"1s\"\nonly = [\"commit\"]\n\
         [[workload]]\nname = \"put_all\"\nargs = [\"--keys\", \"100\"]\n";
    fs::write(&file, experiment).unwrap();
    let mut lab = support::weir();
    let lab = lab.arg("lab").arg(file).arg("--out").arg(&out).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut lab = lab.spawn().unwrap();
    let root = lab.id();
    let data = || -> Option<PathBuf> {
        let words = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let all = lab_run::sampler::descendants(root).into_iter().map(words);
        let postgres = all.into_iter().find(|words| words.contains("/postgres\0-D\0"))?;
        postgres.split('\0').nth(2).map(PathBuf::from)
    };
    let is_delayed = || -> Option<bool> {
        Some(fs::read_to_string(data()?.join("postgresql.auto.conf")).ok()?.contains("commit_delay"))
    };
    support::until("commits are delayed", || is_delayed() == Some(true));
    // Where nothing can be written, no setting can be changed.
    let closed = data().unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    let mut said = BufReader::new(lab.stderr.take().unwrap()).lines().map(Result::unwrap);
    let why = said.find(|line| line.contains("what was changed before (commit) is still changed")).unwrap();
    assert!(why.starts_with("intervention on put_all ("), "{why}");
    assert_eq!(is_delayed(), Some(true));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let bases = || -> usize {
        let results = fs::read(out.join("results.json")).unwrap_or_default();
        let results: Option<Results> = serde_json::from_slice(&results).ok();
        let made = results.map(|results| results.interventions).unwrap_or_default();
        let failed = made.iter().position(|made| made.trial.failure.is_some()).unwrap_or(made.len());
        made[failed..].iter().filter(|made| made.change.is_none() && made.trial.failure.is_none()).count()
    };
    support::until("a base is measured again", || bases() > 0);
    kill_process(Pid::from_raw(lab.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    said.for_each(drop);
    lab.wait().unwrap();
}

#[test]
fn a_link_lets_through_no_more_than_its_rate() {
    let dir = tempfile::tempdir().unwrap();
    let results = lab(
        dir.path(),
        "name = \"narrow\"\ntitle = \"A narrow link\"\nlevels = [4]\nrepetitions = 1\nwarmup = \"100ms\"\nwindow = \"500ms\"\n\
         selftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\nlink = { rate = \"1mbit\" }\n\
         [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"20\", \"--value-size\", \"500\"]\n",
    );
    assert!(results.interventions.is_empty());
    let trial = &results.trials[0];
    assert_eq!(trial.failure, None);
    let load = trial.load.as_ref().unwrap();
    // What came through in the window, and what was under way before it: a chunk for each client.
    let most = 125_000.0 * load.window_secs + 4.0 * 1_500.0;
    assert!(load.successes as f64 * 500.0 <= most, "{} values of 500 bytes", load.successes);
    let busy = trial.growth("link.busy_secs").unwrap();
    assert!(busy > 0.0 && busy <= trial.elapsed_secs + 0.1, "{busy}");
}

/// A lower bound only: a commit waits for at least as long as it was told to.
#[test]
fn commits_of_postgres_are_delayed_until_that_is_taken_back() {
    let server = support::postgres();
    let ask = |sql: &str| server.query("postgres", sql).unwrap();
    let setting = |name: &str| ask(&format!("SHOW {name}"))[0][0].clone();
    let before = [setting("commit_delay"), setting("commit_siblings")];
    ask("CREATE TABLE t (a int)");
    server.delay_commits(30_000).unwrap();
    assert_eq!([setting("commit_delay"), setting("commit_siblings")], ["30000", "0"]);
    let start = Instant::now();
    ask("INSERT INTO t VALUES (1)");
    assert!(start.elapsed() >= Duration::from_millis(30), "{:?}", start.elapsed());
    server.delay_commits(0).unwrap();
    assert_eq!([setting("commit_delay"), setting("commit_siblings")], before);
}
