//! The generator's own proof before anything is measured with it: `weir selftest` on this machine, on these cores.
//!
//! What fails does not end the experiment: it is stored with the results, and the report warns of it. What passes is stored for the
//! machine and the binary, and not tested again until one of them changes.

use super::environment::{cpu, fingerprint, kernel};
use super::process::Process;
use super::{Options, Progress, TargetRun, now};
use kv::proto::SelftestReport;
use lab_data::experiment::{GENERATOR, SERVER};
use lab_data::results::Selftest;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it may take before it is killed; a good deal more than it needs.
const LIMIT: Duration = Duration::from_secs(30);
/// How long one that has reported may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// What came of the generator's selftest.
#[derive(Clone, Deserialize, Serialize)]
pub(super) struct Proved {
    pub(super) selftest: Selftest,
    /// When it ran.
    pub(super) at: Option<String>,
    /// The cores of the generator and of the responder.
    pub(super) cores: Option<[usize; 2]>,
}

impl Proved {
    pub(super) fn not_run(selftest: Selftest) -> Proved {
        Proved { selftest, at: None, cores: None }
    }

    /// What is stored in `file`, whose name tells this binary from all others; `None` where nothing is.
    fn read(file: &Path) -> Option<Proved> {
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// Stores it if it was passed and if that is possible: else the test is repeated.
    fn store(&self, file: &Path) {
        if !matches!(&self.selftest, Selftest::Ran(report) if report.passed()) {
            return;
        }
        let made = file.parent().map_or(Ok(()), fs::create_dir_all);
        let stored = made.and_then(|()| fs::write(file, serde_json::to_vec(self)?));
        stored.unwrap_or_else(|error| log::debug!("{}: the selftest is not stored: {error}", file.display()));
    }
}

/// Has the generator prove itself, once for all targets, unless it has on this machine; `None` if stopped meanwhile. It is pinned as
/// for the first target that is no model.
pub(super) fn prove(
    target_runs: &[TargetRun],
    options: &Options,
    progress: &mut dyn Progress,
) -> Option<Proved> {
    let Some(target_run) = target_runs.iter().find(|target_run| !target_run.is_simulated()) else {
        return Some(Proved::not_run(Selftest::Simulated));
    };
    if !target_run.experiment.selftest {
        progress.proved(&Selftest::Skipped, None);
        return Some(Proved::not_run(Selftest::Skipped));
    }
    let cores = cores(target_run.cores_of(GENERATOR), target_run.cores_of(SERVER), target_run.cores);
    let file = stored_at(&options.program, cores);
    let proved = match file.as_deref().and_then(Proved::read) {
        Some(proved) => proved,
        None => {
            progress.preparing("the generator proves itself");
            let selftest = run(options, cores, LIMIT)?;
            let proved = Proved { selftest, at: Some(now()), cores };
            file.iter().for_each(|file| proved.store(file));
            proved
        }
    };
    progress.proved(&proved.selftest, proved.at.as_deref());
    Some(proved)
}

/// One core for each of the two: the generator's of the trials, and one of the server's. Where no server of ours runs, the responder
/// has another of `all`, rather one that the generator has not in the trials either, and shares the last one there is.
fn cores(generator: &[usize], server: &[usize], all: &[usize]) -> Option<[usize; 2]> {
    let own = *generator.last()?;
    let free = all.iter().find(|core| !generator.contains(core));
    let other = || all.iter().find(|core| **core != own);
    Some([own, *server.first().or(free).or_else(other).unwrap_or(&own)])
}

/// Where the test that was passed by this binary on these cores of this machine is stored; `None` where there is no place for it.
fn stored_at(program: &Path, cores: Option<[usize; 2]>) -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let mut hasher = DefaultHasher::new();
    (fingerprint(program)?, cpu(), kernel(), cores, kv::cores::available().ok()?).hash(&mut hasher);
    Some(folder.join(format!("weir/selftest-{:016x}.json", hasher.finish())))
}

/// Runs it to its end or to its time limit; `None` if that is stopped meanwhile. It chooses its cores itself where it is told none.
fn run(options: &Options, cores: Option<[usize; 2]>, limit: Duration) -> Option<Selftest> {
    let mut command = Command::new(&options.program);
    command.args(["selftest", "--short", "--json"]);
    command.args(cores.iter().flat_map(|[own, other]| ["--cores".to_owned(), format!("{own},{other}")]));
    // Pinning its parts is its own business: it has two, on different cores.
    let mut process = match Process::weir(&mut command, &[], &options.dir.join("selftest.log")) {
        Ok(process) => process,
        Err(why) => return Some(Selftest::Broke(why.into())),
    };
    let (lines, deadline, mut said) = (process.lines(), Instant::now() + limit, String::new());
    let late = format!("took more than {} s and was killed", limit.as_secs());
    let ended = loop {
        match process.hear(&lines, deadline, &late, &options.stop) {
            Ok(Some(line)) => said.push_str(&line),
            Ok(None) => break Ok(()),
            Err(why) => break Err(why),
        }
    };
    // A check that fails is an exit code of its own: what it says counts, not how it ends.
    ended.is_ok().then(|| process.wait(EXIT_TIMEOUT));
    // Its responders go with it, whatever has become of it.
    process.end_tree(Signal::KILL);
    let proved = ended.and_then(|()| parse(&said).map_err(|why| process.failed(why)));
    let selftest = proved.map_or_else(|why| Selftest::Broke(why.into()), Selftest::Ran);
    (!options.is_stopped()).then_some(selftest)
}

fn parse(said: &str) -> Result<SelftestReport, String> {
    let start: String = said.trim().chars().take(80).collect();
    if start.is_empty() {
        return Err("ended without a report".into());
    }
    serde_json::from_str(said).map_err(|error| format!("said `{start}`, which is no report ({error})"))
}

#[cfg(test)]
mod tests {
    use super::super::files::script;
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::thread;

    const REPORT: &str = r#"{"format":1,"short":true,"checks":[{"name":"delay","outcome":"pass","measured":"3 µs","bound":"5 µs","figures":{"error_us":3}},{"name":"stall","outcome":"fail","measured":"0.05","bound":"0.02","figures":{}}],"secs":4.5}"#;

    /// Runs one.
    fn proved(text: &str, cores: Option<[usize; 2]>, limit: Duration, stop: bool) -> Option<Selftest> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::of(script(dir.path(), text), dir.path());
        run(&Options { stop: Arc::new(stop.into()), ..options }, cores, limit)
    }

    fn why(script: &str) -> String {
        match proved(script, None, LIMIT, false) {
            Some(Selftest::Broke(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_report_counts_also_where_a_check_fails() {
        let selftest = proved(&format!("echo '{REPORT}'; exit 1"), None, LIMIT, false).unwrap();
        assert_eq!(selftest.failed(), ["stall"]);
        let Selftest::Ran(report) = selftest else { panic!("{selftest:?}") };
        assert_eq!((report.short, report.secs, report.checks.len()), (true, 4.5, 2));
    }

    #[test]
    fn only_what_passed_every_check_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        for (outcome, is_stored) in [("fail", false), ("not_checked", false), ("pass", true)] {
            let file = dir.path().join(outcome);
            let report = REPORT.replace("\"fail\"", &format!("\"{outcome}\""));
            let selftest = Selftest::Ran(parse(&report).unwrap());
            Proved { selftest, at: None, cores: None }.store(&file);
            assert_eq!((file.exists(), Proved::read(&file).is_some()), (is_stored, is_stored), "{outcome}");
        }
    }

    #[test]
    fn the_generator_is_pinned_to_its_cores_and_the_responder_to_the_servers() {
        let said = proved("echo \"$@\" >&2", cores(&[2, 3], &[0, 1], &[0, 1, 2, 3]), LIMIT, false);
        let Some(Selftest::Broke(why)) = said else { panic!("{said:?}") };
        assert!(why.contains("selftest --short --json --cores 3,0; hint: see "), "{why}");
        assert!(why.starts_with("selftest ended without a report: "), "{why}");
    }

    #[test]
    fn where_no_server_runs_the_responder_has_a_core_that_the_generator_leaves() {
        for (generator, all, expected) in [
            (&[1, 2][..], &[0, 1, 2][..], Some([2, 0])),
            (&[4, 5], &[4, 5], Some([5, 4])),
            (&[3], &[3], Some([3, 3])),
            (&[], &[0, 1], None),
        ] {
            assert_eq!(cores(generator, &[], all), expected, "{generator:?} of {all:?}");
        }
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        for (script, complaint) in [
            ("echo 'error: unrecognized subcommand' >&2; exit 2", "without a report: error: unrecognized"),
            ("echo hello", "said `hello`, which is no report"),
        ] {
            let said = why(script);
            assert!(said.contains(complaint) && !said.contains('\n'), "{said}");
        }
        let dir = tempfile::tempdir().unwrap();
        let said = run(&Options::of("nowhere/weir".into(), dir.path()), None, LIMIT);
        assert!(matches!(&said, Some(Selftest::Broke(why)) if why.contains("cannot start")), "{said:?}");
    }

    #[test]
    fn one_that_does_not_come_to_an_end_is_killed() {
        let said = proved("exec sleep 1000", None, Duration::ZERO, false);
        let Some(Selftest::Broke(why)) = said else { panic!("{said:?}") };
        assert!(
            why.starts_with("selftest took more than 0 s and was killed: it said nothing; hint: "),
            "{why}"
        );
    }

    #[test]
    fn one_that_is_stopped_takes_with_it_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "sleep 1000 & echo $! >&2; sleep 1000");
        let (options, log) = (Options::of(program, dir.path()), dir.path().join("selftest.log"));
        let (said, child) = thread::scope(|scope| {
            let running = scope.spawn(|| run(&options, None, LIMIT));
            let child = loop {
                // Its pid and the end of the line, or it is still being written.
                let said = fs::read_to_string(&log).unwrap_or_default();
                match said.strip_suffix('\n') {
                    Some(pid) => break pid.to_owned(),
                    None => assert!(!running.is_finished()),
                }
            };
            options.stop.store(true, Ordering::Relaxed);
            (running.join().unwrap(), child)
        });
        assert_eq!(said, None);
        // Dead is gone, though whoever inherited it may not have looked yet.
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}
