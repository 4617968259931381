//! A child process: pinned before its first instruction, logged, waited for, and gone when its owner is.

use super::files::cannot_write;
use super::ports::is_port_taken;
use crate::sampler::{Stat, descendants, processes};
use kv::proto::LISTENING;
use kv::{Error, cores};
use lab_data::experiment::SERVER;
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a process may take to end when asked.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a weir may take until it says where it listens.
const LISTENING_MAX: Duration = Duration::from_secs(30);
/// How often a condition is checked that has no event to wait for.
const POLL_EVERY: Duration = Duration::from_millis(3);
/// How often the stop flag is checked while a line is waited for.
const HEAR_EVERY: Duration = Duration::from_millis(50);

/// A running child. Dropping it asks it to end in order, waits, and kills it if it does not.
#[derive(Debug)]
pub(super) struct Process {
    /// That of its log, and of the part it is.
    pub(super) name: String,
    child: Child,
    log: Log,
    /// Ends its group if we do not come to it. `None` of who ends with its input, and once it was seen to have ended.
    guard: Option<Guard>,
    /// How it was started.
    command: Command,
    cores: Vec<usize>,
    /// What asks it to end in order.
    signal: Signal,
    /// The folder that its guard removes.
    guarded: Option<PathBuf>,
}

/// A shell that waits for our end, however that comes, and then ends a group of processes and removes their files.
#[derive(Debug)]
struct Guard(Child);

/// Its input ends with us. It asks group `$1` to end with signal `$2`, kills it after ten seconds, and what works in directory `$3`,
/// which it removes: processes of a database that are stopped just then do not see the first of them end.
const GUARD: &str = r#"read -r line
kill -s "$2" -- -"$1"
looks=0
while kill -s 0 -- -"$1" && [ $looks -lt 100 ]; do
    sleep 0.1
    looks=$((looks + 1))
done
kill -s KILL -- -"$1"
for cwd in /proc/[0-9]*/cwd; do
    case "$(readlink "$cwd")" in
    "$3" | "$3"/*) pid=${cwd#/proc/} && kill -s KILL "${pid%/cwd}" ;;
    esac
done
rm -rf -- "$3"
"#;

impl Guard {
    fn of(group: u32, signal: Signal, dir: &Path) -> Result<Guard, Error> {
        let mut shell = Command::new("/bin/sh");
        // As the kernel names it.
        let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        shell.args(["-c", GUARD, "guard", &group.to_string(), &signal.as_raw().to_string()]).arg(dir);
        // What is gone already it cannot ask to go, and needs not say so.
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        blind(&mut shell);
        let spawned = shell.process_group(0).spawn();
        spawned.map(Guard).map_err(|error| Error::new(format_args!("cannot start /bin/sh: {error}")))
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
    /// Starts a weir on `cores`, on all that we have where that is empty. It ends with its input, and that with us, even if we are
    /// killed. What it prints is for [`Process::lines`].
    pub(super) fn weir(command: &mut Command, cores: &[usize], log: &Path) -> Result<Process, Error> {
        let (log, file) = Log::append(log)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(file);
        for name in SECRETS {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        blind(command);
        Process::spawn(command, cores, log, Signal::TERM)
    }

    /// Starts a program that does not end with its input, and in order with `signal`. Neither it nor its files in `dir` outlive us: if
    /// we end before it, even if we are killed, its group gets that signal.
    pub(super) fn guarded(
        command: &mut Command,
        cores: &[usize],
        log: &Path,
        signal: Signal,
        dir: &Path,
    ) -> Result<Process, Error> {
        let (log, file) = Log::append(log)?;
        let (_, other) = Log::append(&log.path)?;
        command.stdin(Stdio::null()).stdout(other).stderr(file);
        let mut process = Process::spawn(command, cores, log, signal)?;
        process.guard = Some(Guard::of(process.pid(), signal, dir)?);
        process.guarded = Some(dir.to_owned());
        Ok(process)
    }

    fn spawn(command: &mut Command, cores: &[usize], log: Log, signal: Signal) -> Result<Process, Error> {
        // In a group of its own a Ctrl-C at the terminal does not reach it: we end it, in our order.
        command.process_group(0);
        let mut command = std::mem::replace(command, Command::new(""));
        let child = Process::spawn_child(&mut command, cores)?;
        let name = log.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let cores = cores.to_owned();
        Ok(Process { name, child, log, guard: None, command, cores, signal, guarded: None })
    }

    fn spawn_child(command: &mut Command, cores: &[usize]) -> Result<Child, Error> {
        cores::on(cores, || command.spawn()).map_err(|error| {
            let program = Path::new(command.get_program()).display();
            Error::new(format_args!("cannot start {program}: {error}"))
                .hint("check that it is still there, and that we may run it")
        })
    }

    /// Starts it as it was started before, after it has ended.
    pub(super) fn start_again(&mut self) -> Result<(), Error> {
        self.guard = None;
        self.child = Process::spawn_child(&mut self.command, &self.cores)?;
        if let Some(dir) = &self.guarded {
            self.guard = Some(Guard::of(self.child.id(), self.signal, dir)?);
        }
        Ok(())
    }

    /// Asks it to end as it is ended at the end of a run, and waits.
    pub(super) fn end_in_order(&mut self) {
        self.end(self.signal);
    }

    /// Sends `signal` to it and then to all that it has started.
    pub(super) fn signal_tree(&self, signal: Signal) {
        // Found before: once it is dead, they are somebody else's.
        let below = descendants(self.pid()).into_iter().skip(1);
        let all: Vec<u32> = [self.pid()].into_iter().chain(below).collect();
        all.into_iter().for_each(|pid| kill(pid, signal));
    }

    /// What it was started with in the environment variable `name`.
    pub(super) fn variable(&self, name: &str) -> Option<PathBuf> {
        self.command.get_envs().find(|(known, _)| *known == name).and_then(|(_, value)| Some(value?.into()))
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it prints, line by line as it comes; ends with its output. Read to the end even if nobody waits any more, so that it
    /// never blocks on a full pipe.
    pub(super) fn lines(&mut self) -> Receiver<String> {
        let (sender, receiver) = mpsc::channel();
        let stdout = self.child.stdout.take().map(BufReader::new);
        thread::spawn(move || {
            // Without a pipe the dropped sender says so.
            for line in stdout.into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
                // An error is that nobody waits.
                let _ = sender.send(line);
            }
        });
        receiver
    }

    /// The next of its `lines`; `None` once they have ended. If none comes until `deadline`, it is killed and has failed: `late`.
    pub(super) fn hear(
        &mut self,
        lines: &Receiver<String>,
        deadline: Instant,
        late: impl Display,
        stop: &AtomicBool,
    ) -> Result<Option<String>, Error> {
        loop {
            // Also while lines come.
            if stop.load(Ordering::Relaxed) {
                return Err(Error::new("interrupted"));
            }
            match lines.recv_timeout(HEAR_EVERY) {
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                _ if Instant::now() > deadline => {
                    self.end_tree(Signal::KILL);
                    return Err(self.failed(late));
                }
                Ok(line) => return Ok(Some(line)),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
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

    /// The same as an error.
    pub(super) fn failure(&mut self) -> Option<Error> {
        // Most programs that end well have gone to the background, where nobody could end or measure them.
        let stays = if self.guard.is_some() { "; it has to stay in the foreground" } else { "" };
        let status = self.ended()?;
        Some(self.failed(format_args!("ended with {status}{}", if status.success() { stays } else { "" })))
    }

    /// What it failed in, with what it has said.
    pub(super) fn failed(&self, what: impl Display) -> Error {
        let Log { path, .. } = &self.log;
        Error::new(format_args!("{} {what}: {}", self.name, last_lines(&self.log.said(), 3)))
            .hint(format_args!("see {}", path.display()))
    }

    /// Waits for its end, for at most `timeout`.
    pub(super) fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        poll_until(timeout, &AtomicBool::new(false), || Ok(self.ended())).ok().flatten()
    }

    /// Asks it to end with `signal`, waits, and kills it if it does not.
    fn end(&mut self, signal: Signal) {
        if self.ended().is_some() {
            return;
        }
        // Not reaped yet, so the id is still its own.
        kill(self.pid(), signal);
        // One that was stopped would not hear of it.
        kill(self.pid(), Signal::CONT);
        if self.wait(TIMEOUT).is_none() {
            log::warn!("process {} did not end when asked and is killed", self.pid());
            // The one error is that it ended already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// Asks it to end with `signal`, and then kills whatever it has left of its own children and of its group: it first, so that it does
    /// not start anew what it sees dying.
    pub(super) fn end_tree(&mut self, signal: Signal) {
        let (root, tree) = (self.pid(), descendants(self.pid()));
        let below = tree.get(1..).unwrap_or_default();
        self.end(signal);
        // Whoever went to the background is no longer its child, but has still its group, unless it made a session of its own.
        // The id of a group with members is given to nobody else; that of an empty one may be, but hardly to one of our own session.
        // Where the session began outside our pid namespace it is 0, which is no id.
        let own = Stat::of(std::process::id()).map(|stat| stat.session);
        kill_all(|stat| below.contains(&stat.pid) || stat.group == root && Some(stat.session) == own);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end_in_order();
    }
}

/// A weir that was started and says where it listens.
pub(super) struct Listening {
    pub(super) process: Process,
    /// What it says after that.
    pub(super) lines: Receiver<String>,
    /// `http://127.0.0.1:8080`.
    pub(super) url: String,
}

impl Listening {
    /// Waits until `process` says it.
    pub(super) fn wait(mut process: Process, stop: &AtomicBool) -> Result<Listening, Error> {
        let (lines, deadline) = (process.lines(), Instant::now() + LISTENING_MAX);
        while let Some(line) = process.hear(&lines, deadline, "did not say where it listens", stop)? {
            if let Some(address) = line.strip_prefix(LISTENING) {
                let url = format!("http://{}", address.trim());
                return Ok(Listening { process, lines, url });
            }
        }
        // Its output is closed: it is ending, and the next moment knows how.
        process.wait(Duration::from_secs(1));
        Err(process.failure().unwrap_or_else(|| process.failed("closed its output")))
    }
}

/// Waits until `is_ready` is no error, for at most `timeout`; fails if one of `processes` ends before.
pub(super) fn wait_ready(
    processes: &mut [Process],
    timeout: Duration,
    stop: &AtomicBool,
    mut is_ready: impl FnMut() -> Result<(), String>,
) -> Result<(), Error> {
    let mut last = String::new();
    let ready = poll_until(timeout, stop, || {
        if let Some(why) = processes.iter_mut().find_map(Process::failure) {
            return Err(why);
        }
        Ok(is_ready().map_err(|why| last = why).ok())
    })?;
    ready.ok_or_else(|| {
        // Of several it is the server that answers.
        let asked = processes.iter().find(|process| process.name == SERVER).unwrap_or(&processes[0]);
        asked.failed(format_args!("was not ready within {} s ({last})", timeout.as_secs()))
    })
}

/// Kills those that are `meant`, and waits until all are gone: dead is gone, also while nobody has collected it.
fn kill_all(meant: impl Fn(&Stat) -> bool) {
    let _ = poll_until(TIMEOUT, &AtomicBool::new(false), || {
        let mut left = processes().unwrap_or_default();
        left.retain(|stat| !stat.is_dead && meant(stat));
        for Stat { pid, .. } in &left {
            log::warn!("process {pid} was left behind and is killed");
            kill(*pid, Signal::KILL);
        }
        Ok(left.is_empty().then_some(()))
    });
}

/// Kills who has a working directory in `dir` and no terminal, as a server has that went to the background and made a
/// session of its own. Somebody's shell has a terminal. What we may not look at is not found.
pub(super) fn kill_within(dir: &Path) {
    // The kernel names the directory itself, not the way to it.
    let Ok(dir) = fs::canonicalize(dir) else { return };
    let is_within =
        |stat: &Stat| fs::read_link(format!("/proc/{}/cwd", stat.pid)).is_ok_and(|cwd| cwd.starts_with(&dir));
    kill_all(|stat| !stat.has_terminal && is_within(stat));
}

pub(super) fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Where `weir serve` finds the password of a database that an experiment names.
const SECRETS: [&str; 3] = ["PGPASSWORD", "PGPASSFILE", "MYSQL_PWD"];

/// Takes from `command` what our own environment would have weir or a database do: it is no part of the experiment.
/// What was set for the command itself stays.
pub(super) fn blind(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_meant = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
        let is_set = command.get_envs().any(|(set, value)| set == name && value.is_some());
        if !is_set && ["WEIR_", "PG", "MYSQL", "MARIADB"].iter().any(is_meant) {
            command.env_remove(name);
        }
    }
}

/// Runs `command` to its end, blind to our environment. What it said last, if it failed, is `what` went wrong.
pub(super) fn complete(command: &mut Command, what: &str) -> Result<(), Error> {
    blind(command);
    let output = command.stdin(Stdio::null()).output();
    let program = Path::new(command.get_program()).display();
    let why = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            format!("{program} failed: {}", last_lines(&String::from_utf8_lossy(&output.stderr), 2))
        }
        Err(error) => format!("cannot start {program}: {error}"),
    };
    Err(Error::new(format_args!("{what}: {why}")))
}

/// Polls until `poll` gives something, up to `timeout` or until `stop` is set.
///
/// `Ok(None)` is a timeout; an error of `poll` ends it at once.
pub(super) fn poll_until<T>(
    timeout: Duration,
    stop: &AtomicBool,
    mut poll: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    let start = Instant::now();
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::new("interrupted"));
        }
        match poll()? {
            None if start.elapsed() < timeout => thread::sleep(POLL_EVERY),
            found => return Ok(found),
        }
    }
}

/// A file that takes what a process says, and what this process has said in it so far.
#[derive(Clone, Debug)]
struct Log {
    path: PathBuf,
    start: u64,
}

impl Log {
    /// Appends to the file at `path`.
    fn append(path: &Path) -> Result<(Log, File), Error> {
        let open = || {
            let file = File::options().create(true).append(true).open(path)?;
            Ok((Log { path: path.to_owned(), start: file.metadata()?.len() }, file))
        };
        open().map_err(|error: io::Error| cannot_write(path, error))
    }

    /// Nothing where it cannot be read.
    fn said(&self) -> String {
        let all = fs::read(&self.path).unwrap_or_default();
        String::from_utf8_lossy(all.get(self.start as usize..).unwrap_or_default()).into_owned()
    }
}

/// The last lines of `said`, joined to one, for an error message; that a port is taken is never left out.
fn last_lines(said: &str, count: usize) -> String {
    let lines: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let first = lines.len().saturating_sub(count);
    let kept = lines.iter().enumerate().filter(|(at, line)| *at >= first || is_port_taken(line));
    let kept: Vec<&str> = kept.map(|(_, line)| *line).collect();
    if kept.is_empty() { "it said nothing".to_owned() } else { kept.join(" / ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::slice;

    #[test]
    fn a_child_is_pinned_and_its_starter_is_not() {
        let before = rustix::thread::sched_getaffinity(None).unwrap();
        let core = cores::available().unwrap()[0];
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        let mut child = Process::weir(&mut command, &[core], Path::new("/dev/null")).unwrap();
        let line = child.lines().recv().unwrap();
        assert_eq!(line.split_whitespace().last().unwrap(), core.to_string());
        assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_dropped_child_is_gone() {
        let child = Process::weir(Command::new("sleep").arg("1000"), &[], Path::new("/dev/null")).unwrap();
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
        assert_eq!(last_lines(&log.said(), 3), "it said nothing");
        write!(file, "1\n2\n\n3\n4\n").unwrap();
        assert_eq!(last_lines(&log.said(), 3), "2 / 3 / 4");
        write!(file, "bind: Address already in use\n5\n6\n7\n").unwrap();
        assert_eq!(last_lines(&log.said(), 2), "bind: Address already in use / 6 / 7");
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
        assert_eq!(poll_until(Duration::ZERO, &stop, || Ok(Some(()))), Err(Error::new("interrupted")));
    }
    /// Starts a shell script in a weir's place, and waits until it is ready; gives its complaint.
    fn complaint(script: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let (log, go) = (dir.path().join("server.log"), AtomicBool::new(false));
        let process = Process::weir(Command::new("sh").args(["-c", script]), &[], &log).unwrap();
        let started = Listening::wait(process, &go).and_then(|mut listening| {
            let processes = slice::from_mut(&mut listening.process);
            wait_ready(processes, Duration::from_secs(60), &go, || Err("not yet".into()))
        });
        started.unwrap_err().to_string()
    }

    #[test]
    fn one_that_ends_before_it_listens_or_is_ready_is_quoted() {
        let said = complaint("echo 'error: no such store' >&2; exit 2");
        assert!(
            said.starts_with("server ended with exit status: 2: error: no such store; hint: see "),
            "{said}"
        );
        let said = complaint("echo listening 127.0.0.1:1; echo oh >&2; exit 1");
        assert!(said.starts_with("server ended with exit status: 1: oh; hint: see "), "{said}");
    }
}
