//! A child process: pinned before its first instruction, logged, and gone when its owner is.

use crate::sampler::descendants;
use kv::proto::LISTENING;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take to end when asked.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a weir may take until it says where it listens.
const LISTENING_MAX: Duration = Duration::from_secs(30);
/// How often a condition is checked that has no event to wait for.
const POLL_EVERY: Duration = Duration::from_millis(3);

/// A running child. Dropping it asks it to end, waits, and kills it if it does not.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Ends its group if we do not come to it. `None` of who ends with its input, and once it was seen to have ended.
    guard: Option<Guard>,
}

/// A shell that waits for our end, however that comes, and then ends a group of processes and removes their files.
#[derive(Debug)]
struct Guard(Child);

/// Its input ends with us. It asks group `$1` to end with signal `$2`, kills it after ten seconds, and removes directory `$3`.
const GUARD: &str = r#"read -r line
kill -s "$2" -- -"$1"
looks=0
while kill -s 0 -- -"$1" && [ $looks -lt 100 ]; do
    sleep 0.1
    looks=$((looks + 1))
done
kill -s KILL -- -"$1"
rm -rf -- "$3"
"#;

impl Guard {
    fn of(group: u32, signal: Signal, dir: &Path) -> io::Result<Guard> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", GUARD, "guard", &group.to_string(), &signal.as_raw().to_string()]).arg(dir);
        // What is gone already it cannot ask to go, and needs not say so.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        blind(&mut shell);
        Ok(Guard(shell.process_group(0).spawn()?))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The one error is that it ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts `command` on `cores`; on all that we have where that is empty.
    pub(super) fn spawn(command: &mut Command, cores: &[usize]) -> io::Result<Process> {
        blind(command);
        // In a group of its own a Ctrl-C at the terminal does not reach it: we end it, in our order.
        command.process_group(0);
        if cores.is_empty() {
            return Ok(Process { child: command.spawn()?, guard: None });
        }
        let mut mask = CpuSet::new();
        cores.iter().for_each(|&core| mask.set(core));
        // A child inherits the affinity of the thread that starts it. A thread made for this, and ending with it,
        // has the child pinned from its first instruction and leaves our own affinity alone.
        let pinned = || {
            sched_setaffinity(None, &mask).map_err(|error| {
                io::Error::other(format!("it cannot run on the cores {cores:?}: {error}"))
            })?;
            command.spawn()
        };
        let child = thread::scope(|scope| scope.spawn(pinned).join())
            .unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))?;
        Ok(Process { child, guard: None })
    }

    /// The same process, but neither it nor its files in `dir` outlive us: if we end before it, even if we are killed, its group gets
    /// `signal`. For programs that do not end with their input.
    pub(super) fn guarded(mut self, signal: Signal, dir: &Path) -> io::Result<Process> {
        self.guard = Some(Guard::of(self.pid(), signal, dir)?);
        Ok(self)
    }

    /// The same; what goes wrong is one line with the program.
    pub(super) fn start(command: &mut Command, cores: &[usize]) -> Result<Process, String> {
        Process::spawn(command, cores).map_err(|error| {
            let program = Path::new(command.get_program()).display();
            format!("cannot start {program}: {error}; is it still where it was?")
        })
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, if that is a pipe; once.
    pub(super) fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// What it prints, line by line as it comes; ends with its output. Read to the end even if nobody waits any more, so that it
    /// never blocks on a full pipe.
    pub(super) fn lines(&mut self) -> Receiver<String> {
        let (sender, receiver) = mpsc::channel();
        let stdout = self.stdout();
        thread::spawn(move || {
            // Without a pipe the dropped sender says so.
            let Some(stdout) = stdout else { return };
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // An error is that nobody waits.
                let _ = sender.send(line);
            }
        });
        receiver
    }

    /// Its standard input, if that is a pipe; once.
    pub(super) fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Writes a line to its standard input, if that is a pipe. One that has ended hears nothing any more, and its end is
    /// noticed elsewhere.
    pub(super) fn tell(&mut self, line: &str) {
        let _ = self.child.stdin.as_mut().map(|stdin| writeln!(stdin, "{line}"));
    }

    /// How it ended; `None` while it runs.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        let status = self.child.try_wait().ok().flatten()?;
        // From now on its number may be somebody else's.
        self.guard = None;
        Some(status)
    }

    /// Waits for its end, for at most `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        loop {
            match self.ended() {
                None if start.elapsed() < timeout => thread::sleep(POLL_EVERY),
                ended => return ended,
            }
        }
    }

    /// Asks it to end with `signal`, waits, and kills it if it does not.
    pub(super) fn end(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        self.signal(signal);
        if self.wait(TIMEOUT).is_none() {
            log::warn!("process {} did not end when asked and is killed", self.pid());
            self.kill();
        }
    }

    /// Kills it and waits until it is gone.
    pub(super) fn kill(&mut self) {
        // The one error is that it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// The same, and then kills whatever it has left of its own children and of its group.
    pub(super) fn end_tree(&mut self, signal: Signal) {
        let tree = descendants(self.pid());
        self.end(signal);
        kill_rest(&tree);
        self.kill_group();
    }

    /// Kills who is left in its group after its end: whoever went to the background is no longer its child, but has still
    /// its group, unless it made a session of its own.
    fn kill_group(&self) {
        let left = members(self.pid());
        let group = Pid::from_raw(self.pid().cast_signed()).filter(|_| !left.is_empty());
        if let Some(group) = group {
            log::warn!("process {} left others of its group behind; they are killed", self.pid());
            let _ = kill_process_group(group, Signal::KILL);
            wait_gone(&left);
        }
    }

    fn signal(&self, signal: Signal) {
        // Not reaped yet, so the id is still its own.
        if let Some(pid) = Pid::from_raw(self.pid().cast_signed()) {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end(Signal::TERM);
    }
}

/// A weir that was started and says where it listens.
pub(super) struct Listening {
    pub(super) process: Process,
    /// What it says after that.
    pub(super) lines: Receiver<String>,
    /// `127.0.0.1:8080`.
    pub(super) address: String,
    log: Log,
    path: PathBuf,
}

impl Listening {
    /// Starts `command`, the sub-command `name` of weir, on `cores`; it logs into the file `path`. Its input ends with us, and it with that,
    /// even if we are killed.
    pub(super) fn start(
        command: &mut Command,
        name: &str,
        cores: &[usize],
        path: &Path,
        stop: &AtomicBool,
    ) -> Result<Listening, String> {
        let (log, file) = Log::append(path)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        let mut process = Process::start(command, cores)?;
        let lines = process.lines();
        let failed = |why: &str| format!("weir {name} {why}: {}; see {}", log.tail(), path.display());
        let listening = poll_until(LISTENING_MAX, stop, || match lines.try_recv() {
            Ok(line) => Ok(line.strip_prefix(LISTENING).map(|address| address.trim().to_owned())),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => {
                // Its output is closed: it is ending, and the next moment knows how.
                let ended = process.wait(Duration::from_secs(1));
                let ended = ended.map(|status| format!("ended with {status}"));
                Err(failed(&ended.unwrap_or("closed its output".to_owned())))
            }
        })?;
        let address = listening.ok_or_else(|| failed("did not say where it listens"))?;
        Ok(Listening { process, lines, address, log, path: path.to_owned() })
    }

    /// What went wrong later, with what it said.
    pub(super) fn failed(&self, why: &str) -> String {
        format!("weir {why}: {}; see {}", self.log.tail(), self.path.display())
    }
}

/// Kills what is left of a `tree` whose root, its first, has ended, and waits until all are gone.
pub(super) fn kill_rest(tree: &[u32]) {
    let below = &tree[1.min(tree.len())..];
    for pid in below.iter().filter(|pid| !is_gone(**pid)).filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
        // Those that noticed the death of the root are gone already.
        let _ = kill_process(pid, Signal::KILL);
    }
    wait_gone(below);
}

fn wait_gone(pids: &[u32]) {
    let gone = || Ok(pids.iter().all(|pid| is_gone(*pid)).then_some(()));
    let _ = poll_until(TIMEOUT, &AtomicBool::new(false), gone);
}

/// Kills who has a working directory in `dir` and no terminal, as a server has that went to the background and made a
/// session of its own. Somebody's shell has a terminal. What we may not look at is not found.
pub(super) fn kill_within(dir: &Path) {
    // The kernel names the directory itself, not the way to it.
    let Ok(dir) = fs::canonicalize(dir) else { return };
    let is_in = |pid: &u32| {
        let within = fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&dir));
        within && stat_of(*pid).get(TERMINAL).is_some_and(|terminal| terminal == "0")
    };
    let _ = poll_until(TIMEOUT, &AtomicBool::new(false), || {
        let left: Vec<u32> = all_pids().filter(is_in).collect();
        for pid in left.iter().filter_map(|pid| Pid::from_raw(pid.cast_signed())) {
            log::warn!("process {pid} went to the background and is killed");
            let _ = kill_process(pid, Signal::KILL);
        }
        wait_gone(&left);
        Ok(left.is_empty().then_some(()))
    });
}

/// Who lives in the process group `group` of our session. The id of a group with members is given to nobody else; that of
/// an empty one may be, but hardly to one of our own session.
fn members(group: u32) -> Vec<u32> {
    let group = group.to_string();
    // Compared as the kernel prints it: where the session began outside our pid namespace it is 0, which is no id.
    let own = stat_of(std::process::id());
    let is_member = |pid: &u32| {
        let stat = stat_of(*pid);
        stat.get(GROUP) == Some(&group) && stat.get(SESSION) == own.get(SESSION) && !is_gone(*pid)
    };
    all_pids().filter(is_member).collect()
}

/// Places in what [`stat_of`] gives.
const GROUP: usize = 2;
const SESSION: usize = 3;
const TERMINAL: usize = 4;

/// What the kernel says of a process behind its name, which may have anything in it; nothing of one that is gone.
fn stat_of(pid: u32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

fn all_pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Gone, or dead and not yet collected by whoever inherited it.
fn is_gone(pid: u32) -> bool {
    stat_of(pid).first().is_none_or(|state| state == "Z")
}

/// Takes from `command` what our own environment would have weir or a database do: it is no part of the experiment.
/// What was set for the command itself stays.
pub(super) fn blind(command: &mut Command) {
    let set: Vec<OsString> =
        command.get_envs().filter(|(_, value)| value.is_some()).map(|(name, _)| name.to_owned()).collect();
    for (name, _) in std::env::vars_os().filter(|(name, _)| !set.contains(name)) {
        if ["WEIR_", "PG", "MYSQL", "MARIADB"]
            .iter()
            .any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        {
            command.env_remove(name);
        }
    }
}

/// Polls until `poll` gives something, up to `timeout` or until `stop` is set.
///
/// `Ok(None)` is a timeout; an error of `poll` ends it at once.
pub(super) fn poll_until<T>(
    timeout: Duration,
    stop: &AtomicBool,
    mut poll: impl FnMut() -> Result<Option<T>, String>,
) -> Result<Option<T>, String> {
    let start = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err("interrupted".into());
        }
        match poll()? {
            None if start.elapsed() < timeout => thread::sleep(POLL_EVERY),
            found => return Ok(found),
        }
    }
}

/// A file that takes what a process says, and what this process has said in it so far.
#[derive(Clone, Debug)]
pub(super) struct Log {
    path: PathBuf,
    start: u64,
}

impl Log {
    /// Appends to the file at `path`.
    pub(super) fn append(path: &Path) -> Result<(Log, File), String> {
        let open = || {
            let mut file = File::options().create(true).append(true).open(path)?;
            let start = file.seek(SeekFrom::End(0))?;
            Ok((Log { path: path.to_owned(), start }, file))
        };
        open().map_err(|error: io::Error| {
            format!("{}: cannot write the log: {error}; make room or rights", path.display())
        })
    }

    /// Whether `words` were said, not long ago.
    pub(super) fn says(&self, words: &str) -> bool {
        self.said().contains(words)
    }

    /// The last lines said, joined to one, for an error message.
    pub(super) fn tail(&self) -> String {
        const LINES: usize = 3;
        let said = self.said();
        let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match &lines[lines.len().saturating_sub(LINES)..] {
            [] => "it said nothing".to_owned(),
            last => last.join(" / "),
        }
    }

    /// What was said last; nothing where it cannot be read.
    fn said(&self) -> String {
        const BYTES: u64 = 16 << 10;
        let read = || {
            let mut file = File::open(&self.path)?;
            let end = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(self.start.max(end.saturating_sub(BYTES))))?;
            let mut said = Vec::new();
            file.read_to_end(&mut said)?;
            Ok::<_, io::Error>(said)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn a_child_is_pinned_and_its_starter_is_not() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let core = lab_data::topology::available().unwrap()[0];
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let mut child = Process::spawn(&mut command, &[core]).unwrap();
        let line = child.lines().recv().unwrap();
        assert_eq!(line.split_whitespace().last().unwrap(), core.to_string());
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = Process::spawn(Command::new("sleep").arg("1000"), &[]).unwrap();
        let pid = child.pid();
        drop(child);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
    }

    #[test]
    fn only_what_was_said_since_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "old\n").unwrap();
        let (log, mut file) = Log::append(&path).unwrap();
        assert_eq!(log.tail(), "it said nothing");
        write!(file, "1\n2\n\n3\n4\n").unwrap();
        assert_eq!(log.tail(), "2 / 3 / 4");
    }

    #[test]
    fn looking_ends_with_what_is_found_or_with_patience_or_when_stopped() {
        let (go, stop) = (AtomicBool::new(false), AtomicBool::new(true));
        let mut left = 3;
        let countdown = || {
            left -= 1;
            Ok((left == 0).then_some("found"))
        };
        assert_eq!(poll_until(Duration::from_secs(60), &go, countdown), Ok(Some("found")));
        assert_eq!(poll_until(Duration::ZERO, &go, || Ok(None::<()>)), Ok(None));
        assert_eq!(poll_until(Duration::ZERO, &stop, || Ok(Some(()))), Err("interrupted".into()));
    }
}
