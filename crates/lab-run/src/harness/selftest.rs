//! The generator's own proof before anything is measured with it: `weir selftest` on this machine, on these cores.
//!
//! What fails does not end the experiment: it is stored with the results, and the report warns of it. What passes is stored for the
//! machine and the binary, and not tested again until one of them changes.

use super::environment::{cpu, fingerprint, kernel};
use super::process::{Log, Process};
use kv::proto::{FORMAT, SelftestReport};
use lab_data::results::Selftest;
use lab_data::topology;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take before it is killed; a good deal more than it needs.
pub(super) const LIMIT: Duration = Duration::from_secs(30);
/// How long one that has reported may take to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the stop flag is checked.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// What to run.
pub(super) struct Proof<'a> {
    /// The weir binary.
    pub(super) program: &'a Path,
    /// The generator's core and the responder's; it chooses itself where it is told none.
    pub(super) cores: Option<[usize; 2]>,
    /// Where it says what goes wrong.
    pub(super) log: &'a Path,
    /// When to give it up.
    pub(super) limit: Duration,
}

/// One core for each of the two: the generator's of the trials, and one of the server's. Where no server of ours runs, the responder
/// has another of `all`, rather one that the generator has not in the trials either, and shares the last one there is.
pub(super) fn cores(generator: &[usize], server: &[usize], all: &[usize]) -> Option<[usize; 2]> {
    let own = *generator.last()?;
    let free = all.iter().find(|core| !generator.contains(core));
    let other = || all.iter().find(|core| **core != own);
    Some([own, *server.first().or(free).or_else(other).unwrap_or(&own)])
}

/// A test that was passed, and when.
#[derive(Deserialize, Serialize)]
pub(super) struct Passed {
    pub(super) at: String,
    pub(super) report: SelftestReport,
}

/// Where the test that was passed by this binary on these cores of this machine is stored; `None` where there is no place for it.
pub(super) fn stored_at(program: &Path, cores: Option<[usize; 2]>) -> Option<PathBuf> {
    let folder = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = folder.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let mut hasher = DefaultHasher::new();
    (fingerprint(program)?, cpu(), kernel(), cores, topology::available().ok()?).hash(&mut hasher);
    Some(folder.join(format!("weir/selftest-{:016x}.json", hasher.finish())))
}

impl Passed {
    /// What is stored in `file`; `None` where nothing is, or nothing of this version.
    pub(super) fn read(file: &Path) -> Option<Passed> {
        let passed: Passed = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        (passed.report.format == FORMAT).then_some(passed)
    }

    /// Stores it, if that is possible: else the test is repeated.
    pub(super) fn store(&self, file: &Path) {
        let Ok(text) = serde_json::to_vec(self) else { return };
        let made = file.parent().map_or(Ok(()), std::fs::create_dir_all);
        let stored = made.and_then(|()| std::fs::write(file, text));
        stored.unwrap_or_else(|error| log::debug!("{}: the selftest is not stored: {error}", file.display()));
    }
}

impl Proof<'_> {
    /// Runs it to its end or to its time limit; `None` if `stop` is set meanwhile.
    pub(super) fn run(&self, stop: &AtomicBool) -> Option<Selftest> {
        let (log, file) = match Log::append(self.log) {
            Ok(opened) => opened,
            Err(why) => return Some(Selftest::Broke(why)),
        };
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
        // Pinning its parts is its own business: it has two, on different cores.
        let mut process = match Process::start(&mut command, &[]) {
            Ok(process) => process,
            Err(why) => return Some(Selftest::Broke(why)),
        };
        let said = output_of(&mut process);
        let proved = self.follow(&said, &log, stop);
        if matches!(proved, Some(Selftest::Ran(_))) {
            process.wait(EXIT_TIMEOUT);
        }
        // Its responders go with it, whatever has become of it.
        process.end_tree(Signal::KILL);
        proved
    }

    fn follow(&self, said: &Receiver<String>, log: &Log, stop: &AtomicBool) -> Option<Selftest> {
        let deadline = Instant::now() + self.limit;
        loop {
            match said.recv_timeout(POLL_EVERY) {
                _ if stop.load(Ordering::Relaxed) => return None,
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout) => {
                    let secs = self.limit.as_secs_f64();
                    return Some(broke(&format!("it took more than {secs:.0} s and was killed"), log));
                }
                // A check that fails is an exit code of its own: what it says counts, not how it ends.
                Ok(said) => return Some(parse(&said).map_or_else(|why| broke(&why, log), Selftest::Ran)),
                Err(RecvTimeoutError::Disconnected) => return Some(broke("it ended without a report", log)),
            }
        }
    }

    /// The one place that knows its command line.
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(["selftest", "--short", "--json"]);
        if let Some([generator, responder]) = self.cores {
            command.arg("--cores").arg(format!("{generator},{responder}"));
        }
        command
    }
}

fn broke(why: &str, log: &Log) -> Selftest {
    Selftest::Broke(format!("weir selftest: {why}: {}", log.tail()))
}

fn parse(said: &str) -> Result<SelftestReport, String> {
    let start: String = said.trim().chars().take(80).collect();
    if start.is_empty() {
        return Err("it ended without a report".into());
    }
    let report: SelftestReport = serde_json::from_str(said)
        .map_err(|error| format!("it said `{start}`, which is no report ({error})"))?;
    match report.format <= FORMAT {
        true => Ok(report),
        false => Err(format!("its report has format {}, and this weir knows up to {FORMAT}", report.format)),
    }
}

/// All it prints, once it prints no more.
fn output_of(process: &mut Process) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let stdout = process.stdout();
    thread::spawn(move || {
        let mut said = String::new();
        // Output that is no text, or breaks off, is no report either.
        let _ = stdout.map(|mut stdout| stdout.read_to_string(&mut said));
        let _ = sender.send(said);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    const REPORT: &str = r#"{"format":1,"short":true,"checks":[{"name":"delay","outcome":"pass","measured":"3 µs","bound":"5 µs","figures":{"error_us":3}},{"name":"stall","outcome":"fail","measured":"0.05","bound":"0.02","figures":{}}],"secs":4.5}"#;

    /// A shell script that stands in weir's place.
    fn script(dir: &Path, text: &str) -> PathBuf {
        let program = dir.join("weir");
        std::fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// Runs one.
    fn proved(text: &str, cores: Option<[usize; 2]>, limit: Duration, stop: bool) -> Option<Selftest> {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), text);
        let log = dir.path().join("selftest.log");
        Proof { program: &program, cores, log: &log, limit }.run(&AtomicBool::new(stop))
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
    fn the_generator_is_pinned_to_its_cores_and_the_responder_to_the_servers() {
        let said = proved("echo \"$@\" >&2", cores(&[2, 3], &[0, 1], &[0, 1, 2, 3]), LIMIT, false);
        let Some(Selftest::Broke(why)) = said else { panic!("{said:?}") };
        assert!(why.ends_with("selftest --short --json --cores 3,0"), "{why}");
        assert!(why.starts_with("weir selftest: it ended without a report: "), "{why}");
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
            ("echo hello", "it said `hello`, which is no report"),
            (
                &*format!("echo '{REPORT}' | sed s/:1,/:9,/"),
                "its report has format 9, and this weir knows up to",
            ),
        ] {
            let said = why(script);
            assert!(said.contains(complaint) && !said.contains('\n'), "{said}");
        }
        let nowhere = Proof {
            program: Path::new("nowhere/weir"),
            cores: None,
            log: Path::new("/dev/null"),
            limit: LIMIT,
        };
        let said = nowhere.run(&AtomicBool::new(false));
        assert!(matches!(&said, Some(Selftest::Broke(why)) if why.contains("cannot start")), "{said:?}");
    }

    #[test]
    fn one_that_does_not_come_to_an_end_is_killed() {
        let said = proved("exec sleep 1000", None, Duration::ZERO, false);
        let why = "weir selftest: it took more than 0 s and was killed: it said nothing";
        assert_eq!(said, Some(Selftest::Broke(why.into())));
    }

    #[test]
    fn one_that_is_stopped_takes_with_it_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let program = script(dir.path(), "sleep 1000 & echo $! >&2; sleep 1000");
        let log = dir.path().join("selftest.log");
        let proof = Proof { program: &program, cores: None, log: &log, limit: LIMIT };
        let stop = AtomicBool::new(false);
        let (said, child) = thread::scope(|scope| {
            let running = scope.spawn(|| proof.run(&stop));
            let child = loop {
                // Its pid and the end of the line, or it is still being written.
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                match said.strip_suffix('\n') {
                    Some(pid) => break pid.to_owned(),
                    None => assert!(!running.is_finished()),
                }
            };
            stop.store(true, Ordering::Relaxed);
            (running.join().unwrap(), child)
        });
        assert_eq!(said, None);
        // Dead is gone, though whoever inherited it may not have looked yet.
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}
