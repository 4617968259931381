//! The lab from outside: its private PostgreSQL, and whole runs on a target of which the truth is known.

use crate::support;
use kv::proto::LoadReport;
use lab_analysis::findings;
use lab_data::experiment::Engine;
use lab_data::results::{Results, Selftest};
use lab_run::harness::{DatabaseOptions, DatabaseServer};
use lab_run::sampler;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const SIMULATED: &str = r#"
name = "two-stations"
title = "A station that limits, and one that does not"
levels = [1, 2, 4, 8, 16]
repetitions = 2
warmup = "500ms"
window = "4s"

[target]
kind = "simulated"
[[target.station]]
name = "front"
servers = 1
demand = "100us"
service = "exponential"
[[target.station]]
name = "back"
servers = 1
demand = "1ms"
service = "exponential"

[[workload]]
name = "mixed"
"#;

/// Runs `weir lab` on `experiment`, with its results in `dir/out` and what it stores for later runs in `dir`.
fn lab(dir: &Path, experiment: &str, flags: &[&str]) -> (Output, PathBuf) {
    let (file, out) = (dir.join("experiment.toml"), dir.join("out"));
    fs::write(&file, experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let command = command.arg("lab").arg(file).arg("--out").arg(&out).args(flags);
    let output = command.env("XDG_CACHE_HOME", dir).output().unwrap();
    (output, out)
}

fn results(out: &Path) -> Results {
    serde_json::from_slice(&fs::read(out.join("results.json")).unwrap()).unwrap()
}

#[test]
fn a_simulated_experiment_is_measured_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), SIMULATED, &["--scale", "1", "--seed", "7", "--levels", "1,8,16,32"]);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complained}");
    assert!(
        said.lines().any(|line| line.trim_start().starts_with("limit") && line.contains("back, ")),
        "{said}"
    );
    let page = said.lines().find_map(|line| line.strip_prefix("report: ")).unwrap();
    assert!(fs::read_to_string(page).unwrap().contains("A station that limits"), "{page}");
    let results = results(&out);
    assert_eq!((results.seed, results.levels.as_slice(), results.scale), (7, &[1, 8, 16, 32][..], None));
    assert_eq!(results.trials.len(), 8);
    assert!(results.trials.iter().all(|trial| trial.failure.is_none()));
    assert_eq!(results.experiment_toml, SIMULATED);
    assert!(results.command.starts_with("weir lab ") && results.command.ends_with("--levels 1,8,16,32"));
}

/// `results.csv` once differed in the last digits: numbers were not read back to the last bit.
#[test]
fn a_report_rendered_again_is_the_same_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let (_, first) = lab(dir.path(), SIMULATED, &[]);
    let again = dir.path().join("again");
    let mut report = Command::new(env!("CARGO_BIN_EXE_weir"));
    assert!(report.arg("report").arg(&first).arg("--out").arg(&again).output().unwrap().status.success());
    // Every file, whichever writer it is of: what one process draws another draws again.
    let files = |dir: &Path| -> Vec<PathBuf> {
        let all = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        all.filter(|path| path.is_file()).collect()
    };
    let rendered = [files(&again), files(&again.join("plots"))].concat();
    let names: Vec<PathBuf> =
        rendered.iter().map(|path| path.strip_prefix(&again).unwrap().to_owned()).collect();
    for file in ["report.html", "report.md", "results.csv", "plots/mixed.svg"] {
        assert!(names.contains(&PathBuf::from(file)), "{file} is not among {names:?}");
    }
    for file in names {
        let [was, is] = [&first, &again].map(|dir| fs::read(dir.join(&file)).unwrap());
        assert!(!was.is_empty() && was == is, "{}", file.display());
    }
}

#[test]
fn an_earlier_runs_results_are_never_written_to() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("out")).unwrap();
    fs::write(dir.path().join("out/results.json"), "precious").unwrap();
    let (output, out) = lab(dir.path(), SIMULATED, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not empty"));
    assert_eq!(fs::read_to_string(out.join("results.json")).unwrap(), "precious");
}

#[test]
fn the_logs_of_a_start_that_failed_are_in_nobodys_way() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("out/file")).unwrap();
    fs::write(dir.path().join("out/file/server.log"), "error").unwrap();
    let (output, out) = lab(dir.path(), SIMULATED, &["--levels", "1", "--repetitions", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(out.join("results.json").exists());
}

#[test]
fn runs_that_begin_in_the_same_second_have_directories_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("experiment.toml"), SIMULATED).unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let command = command.args(["lab", "experiment.toml", "--levels", "1", "--repetitions", "1"]);
        command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let runs: Vec<Child> = (0..4).map(|_| start()).collect();
    runs.into_iter().for_each(|mut run| assert!(run.wait().unwrap().success()));
    assert_eq!(fs::read_dir(dir.path().join("weir-results")).unwrap().count(), 4);
}

#[test]
fn a_dialect_is_looked_for_where_the_experiment_is() {
    let dir = tempfile::tempdir().unwrap();
    let dialect = "[put]\npath = \"/kv/{key}\"\nbody = \"{value}\"\n[delete]\npath = \"/kv/{key}\"\n";
    fs::write(dir.path().join("mine.toml"), dialect).unwrap();
    let text = on_url(&agreeable_server(), "put_all", "100ms")
        .replace("\"--keys\"", "\"--dialect\", \"mine.toml\", \"--keys\"");
    let (output, _) = lab(dir.path(), &text, &["--levels", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_wrong_with_an_experiment_is_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (from, to, complaint) in [
        (
            "levels = [1, 2, 4, 8, 16]",
            "levels = [2, 1]",
            "client counts must ascend from at least 1; hint: write levels",
        ),
        ("kind = \"simulated\"", "kind = \"url\"\nurl = \"ftp://x\"", "error"),
        ("service = \"exponential\"", "service = \"quick\"", "experiment.toml: "),
        ("window = \"4s\"", "windows = \"4s\"", "unknown field `windows`"),
        ("name = \"mixed\"", "name = \"mixed\"\nargs = [\"--z\"]", "kind simulated does not run; hint: "),
        ("repetitions = 2", "repetitions = -1", "integer `-1`, expected a whole number from 0 on"),
    ] {
        let (output, _) = lab(dir.path(), &SIMULATED.replace(from, to), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(complaint) && said.trim_end().lines().count() == 1, "{said}");
    }
}

#[test]
fn printed_rows_are_read_beside_the_experiment_and_kept_with_the_results() {
    let dir = tempfile::tempdir().unwrap();
    let table = "report,workload,clients,throughput_rps,latency_ms\n007,put,1,800,1.25\n008,put,1,8,1\n";
    fs::write(dir.path().join("table.csv"), table).unwrap();
    let source = "[published]\nfile = \"table.csv\"\nreport = \"007\"\n[target]";
    let workloads = "published = \"put\"\n[[workload]]\nname = \"other\"\n";
    let named = SIMULATED.replace("[target]\n", &format!("{source}\n")) + workloads;
    let (output, out) = lab(dir.path(), &named, &["--levels", "1,2", "--repetitions", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let kept = results(&out).published;
    assert_eq!(kept.iter().map(|row| (&*row.report, row.clients)).collect::<Vec<_>>(), [("007", Some(1))]);
    assert!(fs::read_to_string(out.join("report.md")).unwrap().contains("report 007: workload put"));
    for (from, to, complaint) in [
        ("table.csv", "tables.csv", "cannot read the published results"),
        ("\"007\"", "\"7\"", "has no row of report `7`; hint: "),
        ("report = \"007\"\n", "", "in the table's column report: `007`, `008`"),
        ("published = \"put\"", "published = \"get\"", "has no workload `get` of report `007`; hint: "),
        ("published = \"put\"", "", "the experiment has `mixed`, `other`, the rows `put`; hint: "),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("table.csv"), table).unwrap();
        let (output, out) = lab(dir.path(), &named.replace(from, to), &[]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(complaint) && said.trim_end().lines().count() == 1 && !out.exists(), "{said}");
    }
    // The table may have rows for what the flags leave out.
    fs::remove_dir_all(&out).unwrap();
    let (output, out) = lab(dir.path(), &named, &["--workloads", "other", "--levels", "1"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(results(&out).published.len(), 1);
}

/// An experiment on a server that runs already.
fn on_url(address: &str, workload: &str, window: &str) -> String {
    format!(
        "name = \"url\"\nselftest = false\nheadroom = false\ntitle = \"A server that runs already\"\nlevels = [1, 2]\nrepetitions = 1\n\
         warmup = \"50ms\"\nwindow = \"{window}\"\n[target]\nkind = \"url\"\nurl = \"http://{address}\"\n\
         [[workload]]\nname = \"{workload}\"\nargs = [\"--keys\", \"10\"]\n"
    )
}

/// A server that has counters at /stats, knows no faults, says 204 to everything else, and ends no connection; its address.
fn agreeable_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Its threads end with the test program.
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || agree(&stream));
        }
    });
    address
}

fn agree(stream: &TcpStream) -> Option<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let (mut first, mut body_bytes) = (String::new(), 0);
        reader.read_line(&mut first).ok().filter(|count| *count > 0)?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let line = line.trim().to_ascii_lowercase();
            match line.strip_prefix("content-length:") {
                Some(length) => body_bytes = length.trim().parse().ok()?,
                None if line.is_empty() => break,
                None => {}
            }
        }
        reader.read_exact(&mut vec![0; body_bytes]).ok()?;
        let stats = r#"{"weir_things_total": 1, "weir_store_workers{operation=\"write\"}": 2,
            "weir_store_busy_seconds_total{operation=\"write\"}": 0.5}"#;
        let answer = match first.split(' ').nth(1)? {
            "/stats" => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{stats}", stats.len()),
            path if path.starts_with("/inject") => {
                "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned()
            }
            _ => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        };
        writer.write_all(answer.as_bytes()).ok()?;
    }
}

#[test]
fn a_server_that_runs_already_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), &on_url(&agreeable_server(), "put_all", "500ms"), &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = results(&out);
    assert_eq!(results.trials.len(), 2);
    for trial in &results.trials {
        let load = trial.load.as_ref().unwrap();
        assert!(load.goodput_rps > 0.0 && load.clients == trial.level);
        assert!(trial.elapsed_secs > 0.1, "{}", trial.elapsed_secs);
        assert!(trial.growth("generator.cpu_secs").unwrap() > 0.0);
        assert_eq!(trial.growth("stats.weir_things_total"), Some(0.0));
    }
    let names: Vec<&str> = results.resources.iter().map(|resource| resource.name.as_str()).collect();
    assert_eq!(names, ["store write workers", "generator CPU"]);
}

#[test]
fn a_server_that_knows_no_faults_has_its_headroom_rounds() {
    let dir = tempfile::tempdir().unwrap();
    let text = on_url(&agreeable_server(), "put_all", "200ms").replace("headroom = false\n", "");
    let (output, out) = lab(dir.path(), &text, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let interventions = results(&out).interventions;
    assert!(interventions.iter().any(|made| made.change.is_some()), "no generator was slowed");
    for made in interventions {
        assert_eq!(made.trial.failure, None);
    }
}

/// Asserts on the words: no figure of such a run means anything.
#[test]
fn on_one_core_with_the_server_the_generator_is_said_to_be_the_limit() {
    const ONE_CORE: &str = "name = \"shared\"\ntitle = \"One core for both\"\nlevels = [1, 4]\nrepetitions = 1\n\
        warmup = \"100ms\"\nwindow = \"500ms\"\nselftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"file\"\n\
        [cores]\nof = 2\nserver = [0]\ngenerator = [0]\n\
        [[workload]]\nname = \"get_popular\"\nargs = [\"--keys\", \"100\"]\n";
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), ONE_CORE, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let placements = results(&out).placements;
    assert!(placements.iter().all(|placed| placed.cores.len() == 1 && placed.cores == placements[0].cores));
    let read = |name| fs::read_to_string(out.join(name)).unwrap().replace('\u{a0}', " ");
    let headline = String::from_utf8(output.stdout).unwrap();
    for said in [&headline, &read("report.html"), &read("report.md")] {
        let words = "cores of the generator";
        assert!(said.contains(words), "{words:?} is missing in {said}");
    }
}

#[test]
fn what_the_generator_proved_is_told_and_kept_and_may_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let text = on_url(&agreeable_server(), "put_all", "200ms").replace("selftest = false\n", "");
    let (output, out) = lab(dir.path(), &text, &["--levels", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a claim that fails does not end the run: {said}");
    assert!(said.lines().any(|line| line.starts_with("generator selftest")), "{said}");
    // On a busy machine a claim may fail, or be tried again until there is no time left.
    let (kept, page) = (results(&out).selftest, fs::read_to_string(out.join("report.md")).unwrap());
    match &kept {
        Some(Selftest::Ran(report)) => {
            assert!(report.short && !report.checks.is_empty(), "{kept:?}");
            assert!(page.contains("ran on this machine"), "{page}");
        }
        Some(Selftest::Broke(why)) => assert!(why.contains("took more than"), "{why}"),
        other => panic!("{other:?}"),
    }

    // What passed is not tested again; on another binary or machine it would be.
    let again = tempfile::tempdir().unwrap();
    if let Ok(stored) = fs::read_dir(dir.path().join("weir")) {
        fs::create_dir(again.path().join("weir")).unwrap();
        for file in stored.flatten() {
            fs::copy(file.path(), again.path().join("weir").join(file.file_name())).unwrap();
        }
        let (_, second) = lab(again.path(), &text, &["--levels", "1"]);
        let (first, second) = (results(&out), results(&second));
        assert_eq!((first.selftest, first.selftest_at), (second.selftest, second.selftest_at));
    } else {
        assert!(!matches!(&kept, Some(Selftest::Ran(report)) if report.passed()), "{kept:?}");
    }

    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), &text, &["--levels", "1", "--no-selftest"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("generator selftest: skipped (--no-selftest, or selftest = false)"), "{said}");
    assert_eq!(results(&out).selftest, Some(Selftest::Skipped));
    assert!(results(&out).command.ends_with("--no-selftest"), "who repeats the run leaves it out, too");
}

#[test]
fn a_failed_trial_is_a_row_and_an_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), &on_url(&agreeable_server(), "get_popular", "200ms"), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: 2 of 2 trials failed, the first get_popular at "), "{said}");
    let trials = results(&out).trials;
    assert!(trials.iter().all(|trial| trial.failure.as_ref().unwrap().contains("cannot preload key ")));
}

#[test]
fn an_interrupted_run_takes_its_children_with_it() {
    // As of Ctrl-C, and as of a terminal that is closed.
    interrupt(&["env", "--default-signal=INT"], Signal::INT);
    // Whoever runs the tests under nohup has it ignored, and all they start.
    interrupt(&["env", "--default-signal=HUP"], Signal::HUP);
}

#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let status = interrupt(&["nohup"], Signal::TERM);
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap().trim();
    assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 1, 1, "SIGHUP is still ignored");
}

/// Interrupts a run, started by `before`, in its trial; gives what the kernel said of it until then.
fn interrupt(before: &[&str], signal: Signal) -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("experiment.toml");
    fs::write(&file, on_url(&agreeable_server(), "put_all", "10m")).unwrap();
    let words: Vec<&str> = before.iter().copied().chain([env!("CARGO_BIN_EXE_weir")]).collect();
    let mut command = Command::new(words[0]);
    let command = command.args(&words[1..]).arg("lab").arg(file).arg("--out").arg(dir.path().join("out"));
    let lab = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    let generator = loop {
        if let [_, generator, ..] = sampler::descendants(lab.id())[..] {
            break generator;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no generator was started");
        thread::sleep(Duration::from_millis(1));
    };
    let status = fs::read_to_string(format!("/proc/{}/status", lab.id())).unwrap();
    // As `timeout` sends it, to the process and to its group: still the first one, if it has not ended.
    let pid = Pid::from_raw(lab.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
    thread::sleep(Duration::from_millis(20));
    let _ = kill_process(pid, signal);
    let output = lab.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted before anything was measured"), "{said}");
    assert!(!Path::new(&format!("/proc/{generator}")).exists());
    status
}

/// Each once outlived its lab: nobody told it.
#[test]
fn a_lab_that_is_killed_leaves_nothing_running() {
    // Server, link and generator.
    let with_link = "kind = \"weir\"\nstore = \"memory:\"\nlink = { rate = \"100mbit\" }\n";
    leaves_nothing(with_link, &["weir", "weir", "weir"], |lab| lab.kill().unwrap());
    // Its own database, which does not end with its input as ours do.
    let with_database = "kind = \"weir\"\nstore = \"postgres\"\n";
    leaves_nothing(with_database, &["postgres", "weir", "weir"], |lab| lab.kill().unwrap());
}

#[test]
fn a_lab_that_is_interrupted_twice_ends_at_once_and_leaves_nothing_running() {
    let target = "kind = \"weir\"\nstore = \"mariadb\"\n";
    leaves_nothing(target, &["mariadbd", "weir", "weir"], |lab| {
        let pid = Pid::from_raw(lab.id().cast_signed()).unwrap();
        // It may have ended in its order by the second.
        while lab.try_wait().unwrap().is_none() {
            let _ = kill_process(pid, Signal::INT);
            thread::sleep(Duration::from_millis(20));
        }
    });
}

/// Starts a lab with this target, ends it once these programs run, and waits for their end.
fn leaves_nothing(target: &str, programs: &[&str], end: impl Fn(&mut Child)) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("experiment.toml");
    let experiment = format!(
        "name = \"long\"\ntitle = \"A long one\"\nlevels = [1]\nrepetitions = 1\nwarmup = \"1s\"\n\
        window = \"10m\"\nselftest = false\nheadroom = false\n[target]\n{target}[[workload]]\nname = \"put_all\"\n"
    );
    fs::write(&file, experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    // With a path that the kernel and a database name otherwise.
    let command = command.arg("lab").arg(file).arg("--out").arg(dir.path().join("out/../out"));
    let mut lab = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let children = || sampler::descendants(lab.id())[1..].to_vec();
    let is = |pid: &u32, program: &str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim_end() == program)
    };
    let started = || {
        let mut left = children();
        programs.iter().all(|program| {
            let at = left.iter().position(|pid| is(pid, program));
            at.map(|at| left.remove(at)).is_some()
        })
    };
    support::until("all are started", started);
    let children = children();
    let foreign: Vec<&&str> = programs.iter().filter(|program| **program != "weir").collect();
    // A session of the database may have ended since.
    let directories: Vec<PathBuf> = (children.iter())
        .filter(|pid| foreign.iter().any(|program| is(pid, program)))
        .filter_map(|pid| fs::read_link(format!("/proc/{pid}/cwd")).ok())
        .collect();
    assert_eq!(directories.is_empty(), foreign.is_empty());
    end(&mut lab);
    lab.wait().unwrap();
    let is_gone = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Dead, and perhaps not yet collected by whoever inherited it.
        stat.rsplit(") ").next().is_none_or(|state| state.is_empty() || state.starts_with('Z'))
    };
    support::until("all are gone", || children.iter().all(is_gone));
    support::until("no file is left of a database", || directories.iter().all(|dir| !dir.exists()));
}

/// A database that ended was once the reason of nothing: its trial was a row of failed requests like others.
#[test]
fn a_database_that_ends_in_a_trial_fails_it_and_is_there_again_for_the_next() {
    let with_database = "store = \"postgres\"\n";
    fails_one_of_two(with_database, "/postgres\0-D\0", "database ended with signal: 9 (SIGKILL): ");
}

#[test]
fn a_link_that_ends_in_a_trial_fails_it_and_is_there_again_for_the_next() {
    let with_link = "store = \"memory:\"\nlink = { rate = \"100mbit\" }\n";
    fails_one_of_two(with_link, "\0link\0", "link ended with signal: 9 (SIGKILL): ");
}

#[test]
fn a_server_that_ends_in_a_trial_fails_it_and_is_there_again_for_the_next() {
    let alone = "store = \"memory:\"\n";
    fails_one_of_two(alone, "\0serve\0", "server ended with signal: 9 (SIGKILL): ");
}

/// Measures `target` twice, and kills the one of its processes whose command line holds `words` while it is measured first.
fn fails_one_of_two(target: &str, words: &str, told: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("experiment.toml"), dir.path().join("out"));
    let experiment = format!(
        "name = \"dies\"\ntitle = \"One that dies\"\nlevels = [1]\nrepetitions = 2\nwarmup = \"100ms\"\nwindow = \"3s\"\n\
        selftest = false\nheadroom = false\n[target]\nkind = \"weir\"\n{target}[[workload]]\nname = \"put_all\"\nargs = [\"--keys\", \"10\"]\n"
    );
    fs::write(&file, experiment).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let command = command.arg("lab").arg(file).arg("--out").arg(&out).stdout(Stdio::null());
    let lab = command.stderr(Stdio::piped()).spawn().unwrap();
    let running = |words: &str| -> Option<u32> {
        let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        sampler::descendants(lab.id()).into_iter().find(|pid| line(pid).contains(words))
    };
    support::until("the load runs", || running("\0load\0").is_some());
    let pid = Pid::from_raw(running(words).unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let output = lab.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let failures: Vec<Option<String>> = results(&out).trials.into_iter().map(|trial| trial.failure).collect();
    let [Some(why), None] = &failures[..] else { panic!("{failures:?}: {said}") };
    assert!(why.starts_with(told) && why.contains("; hint: see "), "{why}");
}

/// The fault once failed the requests that write and read back the keys, so that nothing was measured.
#[test]
fn a_target_that_fails_requests_does_so_once_its_keys_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = "name = \"fails\"\ntitle = \"Failures\"\nlevels = [2, 4]\nrepetitions = 1\nwarmup = \"100ms\"\n\
        window = \"300ms\"\nselftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"memory:\"\n\
        args = [\"--lab\", \"--inject\", \"delay=1ms,fail=0\"]\n\
        [interventions]\nrounds = 1\nwindow = \"300ms\"\nonly = [\"cpu\"]\n\
        [[workload]]\nname = \"get_all\"\nargs = [\"--keys\", \"100\"]\n\
        [[workload]]\nname = \"put_all\"\nargs = [\"--keys\", \"100\"]\n";
    let (output, out) = lab(dir.path(), experiment, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results = results(&out);
    let made = results.interventions.iter().map(|made| &made.trial);
    let trials: Vec<_> = results.trials.iter().chain(made).collect();
    assert_eq!(trials.len(), 8);
    assert!(trials.iter().all(|trial| trial.failure.is_none()), "{trials:?}");
    // On a busy machine one trial may have fewer than ten requests.
    let loads: Vec<_> = trials.iter().map(|trial| trial.load.as_ref().unwrap()).collect();
    let sum = |of: fn(&LoadReport) -> u64| loads.iter().map(|load| of(load)).sum::<u64>();
    let (attempts, failed) = (sum(|load| load.attempts), sum(|load| load.attempts - load.successes));
    assert!(failed * 20 > attempts, "{failed} of {attempts}");
}

#[test]
fn a_target_that_is_not_there_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (output, _) = lab(dir.path(), &on_url("127.0.0.1:1", "put_all", "1s"), &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("cannot reach http://127.0.0.1:1") && said.contains("hint: start the server"),
        "{said}"
    );
}

#[test]
fn a_private_postgresql_is_pinned_survives_a_crash_and_leaves_nothing() {
    let core = kv::cores::available().unwrap()[0];
    let settings = [("shared_buffers".to_owned(), "16MB".to_owned())].into();
    let options = DatabaseOptions { cores: vec![core], settings, ..DatabaseOptions::default() };
    let mut postgres = DatabaseServer::start(Engine::Postgres, options).unwrap();
    let show =
        |postgres: &DatabaseServer, sql: &str| postgres.query("postgres", sql).unwrap().concat().concat();
    assert_eq!(show(&postgres, "SHOW shared_buffers"), "16MB");
    assert_eq!(show(&postgres, "SHOW fsync"), "on");

    let tree = sampler::descendants(postgres.pid().unwrap());
    assert!(tree.len() > 1, "the server has workers: {tree:?}");
    for pid in tree {
        // A worker may have ended meanwhile; those that live are pinned.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        assert!(allowed.is_none_or(|cores| cores.trim() == core.to_string()), "{pid}: {allowed:?}");
    }

    postgres.query("postgres", "CREATE DATABASE kept").unwrap();
    postgres.query("kept", "CREATE TABLE t AS SELECT 42 AS n").unwrap();
    let url = postgres.url_of("kept");
    postgres.kill();
    assert_eq!(postgres.pid(), None);
    assert!(postgres.query("kept", "SELECT 1").is_err());
    postgres.restart().unwrap();
    assert!(postgres.pid().is_some());
    assert_eq!(postgres.url_of("kept"), url, "clients need not be told");
    assert_eq!(postgres.query("kept", "SELECT n FROM t").unwrap().concat(), ["42"]);

    let (pid, data) = (postgres.pid().unwrap(), postgres.dir().to_owned());
    drop(postgres);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!data.exists());
}

#[test]
fn a_postgresql_that_cannot_start_says_why() {
    let settings = [("shared_buffers".to_owned(), "much".to_owned())].into();
    let why =
        DatabaseServer::start(Engine::Postgres, DatabaseOptions { settings, ..DatabaseOptions::default() })
            .unwrap_err()
            .to_string();
    assert!(why.contains("shared_buffers") && !why.contains('\n'), "{why}");
}

const LIMITED: &str = r#"
name = "limited"
title = "The highest rate under a limit, on a store in memory"
levels = [4]
repetitions = 1
warmup = "100ms"
window = "300ms"
selftest = false
headroom = false

[target]
kind = "weir"
store = "memory:"

[[workload]]
name = "get_popular"
args = ["--keys", "100"]
limit = { p99 = "20ms", trial = "250ms", most = "6s", clients = 8, goal = "20%" }
"#;

/// What it finds is the machine's business; that it ends, keeps every trial and puts its bounds in order is ours.
#[test]
fn a_search_under_a_limit_ends_with_its_bounds_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (output, out) = lab(dir.path(), LIMITED, &[]);
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{complained}");
    assert!(said.contains("with p99 ≤ 20.0 ms and errors ≤ 0.1 %: "), "{said}");
    let results = results(&out);
    let [search] = results.searches.as_slice() else { panic!("{} searches", results.searches.len()) };
    assert!(search.ended.is_some() && !search.trials.is_empty());
    for tried in &search.trials {
        let load = tried.trial.load.as_ref();
        let pacing = load.map(|load| load.pacing.as_str()).unwrap_or("poisson ");
        assert!(pacing.starts_with("poisson "), "{pacing}: {:?}", tried.trial.failure);
    }
    let found = findings(&results).workloads.remove(0).under_limit.unwrap();
    assert!(found.holds_rps.zip(found.breaks_rps).is_none_or(|(holds, breaks)| holds < breaks), "{found:?}");
    let page = fs::read_to_string(out.join("report.md")).unwrap();
    assert!(page.contains("Highest rate with p99 ≤ 20.0 ms"), "{page}");
    // The sweep is what it was.
    assert_eq!(results.trials.len(), 1);
}
