//! The two processes of a test: the responder and the load generator, each on a core of its own where there are two.
//!
//! Knows their command lines and their JSON, nothing else of them. Whatever happens, neither is left behind.

use kv::proto::{LISTENING, LoadReport, Truth};
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// What is said when the time for all claims together is over.
pub(super) const OUT_OF_TIME: &str = "out of time";
/// How long a child may take beyond what it was told to.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a test needs to start its children.
#[derive(Clone, Debug)]
pub struct Programs {
    /// This program, for the responder.
    pub weir: PathBuf,
    /// The load generator under test: its first argument is `load`.
    pub load: PathBuf,
    /// Where they run; `None`: wherever the kernel puts them.
    pub cores: Option<Cores>,
}

/// A core each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The load generator's.
    pub generator: usize,
    /// The responder's.
    pub responder: usize,
}

impl Cores {
    /// Those that this process may use; none where the kernel does not say.
    pub fn available() -> Vec<usize> {
        let ours = sched_getaffinity(None);
        ours.map(|ours| (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core)).collect()).unwrap_or_default()
    }

    /// The last two that this process may use, or one for both.
    pub fn usual() -> Option<Cores> {
        let ours = Cores::available();
        let generator = *ours.last()?;
        Some(Cores { generator, responder: ours.len().checked_sub(2).map_or(generator, |place| ours[place]) })
    }
}

/// A running `weir responder`. Dropping it kills it.
pub(super) struct Responder {
    child: Running,
    /// Its end is the responder's.
    stdin: Option<ChildStdin>,
    /// What it says, line by line, read in a thread of its own so that nobody waits for ever.
    lines: mpsc::Receiver<io::Result<String>>,
    deadline: Instant,
    pub(super) address: SocketAddr,
}

impl Responder {
    /// Starts one that does what `flags` say; returns when it listens, or when it has not by `deadline`.
    pub(super) fn start(
        programs: &Programs,
        deadline: Instant,
        flags: &[String],
    ) -> Result<Responder, String> {
        let mut command = Command::new(&programs.weir);
        command
            .arg("responder")
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(command, programs.cores.map(|cores| cores.responder))
            .map_err(|error| format!("cannot start the responder: {error}"))?;
        let stdin = child.0.stdin.take();
        let stdout = child.0.stdout.take().ok_or("the responder has no output")?;
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            // Nobody hears what comes too late.
            BufReader::new(stdout).lines().try_for_each(|line| sender.send(line))
        });
        let line = next_line(&lines, deadline);
        let address = line.as_ref().ok().and_then(|line| line.strip_prefix(LISTENING)?.trim().parse().ok());
        match (line, address) {
            (Ok(_), Some(address)) => Ok(Responder { child, stdin, lines, deadline, address }),
            (Err(why), _) if why == OUT_OF_TIME => Err(why),
            _ => Err(format!("the responder does not listen: {}", child.complaint())),
        }
    }

    /// Ends it and gives its account.
    pub(super) fn truth(mut self) -> Result<Truth, String> {
        drop(self.stdin.take());
        let truth = next_line(&self.lines, self.deadline)
            .and_then(|line| serde_json::from_str(&line).map_err(|_| format!("it said {line:?}")));
        truth.map_err(|why| match why == OUT_OF_TIME {
            true => why,
            false => format!("the responder gives no account: {why}: {}", self.child.complaint()),
        })
    }
}

/// Waits for a line of a child.
fn next_line(lines: &mpsc::Receiver<io::Result<String>>, deadline: Instant) -> Result<String, String> {
    match lines.recv_timeout(patience(deadline, Duration::ZERO)) {
        Ok(line) => line.map_err(|error| error.to_string()),
        Err(RecvTimeoutError::Disconnected) => Err("it said nothing".to_owned()),
        Err(RecvTimeoutError::Timeout) if Instant::now() >= deadline => Err(OUT_OF_TIME.to_owned()),
        Err(RecvTimeoutError::Timeout) => Err(format!("it said nothing for {} s", PATIENCE.as_secs())),
    }
}

/// How long to wait for what takes `length`.
fn patience(deadline: Instant, length: Duration) -> Duration {
    (length + PATIENCE).min(deadline.saturating_duration_since(Instant::now()))
}

/// Puts load on `responder` for about `length` as `flags` say, and gives the report.
pub(super) fn load(
    programs: &Programs,
    responder: &Responder,
    length: Duration,
    flags: &[String],
) -> Result<LoadReport, String> {
    let mut command = Command::new(&programs.load);
    command.arg("load").arg(format!("http://{}", responder.address)).arg("--json").args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(command, programs.cores.map(|cores| cores.generator))
        .map_err(|error| format!("cannot start {}: {error}", programs.load.display()))?;
    let mut stdout = child.0.stdout.take().ok_or("the load generator has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        // Nobody hears it if it came too late.
        let _ = sender.send(read.map(|_| text));
    });
    let text = receiver
        .recv_timeout(patience(responder.deadline, length))
        .map_err(|_| match Instant::now() >= responder.deadline {
            true => OUT_OF_TIME.to_owned(),
            false => "the load generator does not come to an end".to_owned(),
        })?
        .map_err(|error| format!("the load generator's report cannot be read: {error}"))?;
    serde_json::from_str(&text).map_err(|error| match text.trim().is_empty() {
        true => format!("the load generator gives no report: {}", child.complaint()),
        false => format!("the load generator's report cannot be read: {error}"),
    })
}

/// A child that does not outlive its owner.
struct Running(Child);

impl Running {
    /// What it said on standard error, once it has ended.
    fn complaint(&mut self) -> String {
        self.end();
        let mut text = String::new();
        let stderr: Option<ChildStderr> = self.0.stderr.take();
        let _ = stderr.map(|mut stderr| stderr.read_to_string(&mut text));
        match text.trim() {
            "" => "it does not say why".to_owned(),
            text => text.to_owned(),
        }
    }

    fn end(&mut self) {
        // The one error is that it ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Starts `command` on `core`.
fn spawn(mut command: Command, core: Option<usize>) -> io::Result<Running> {
    // Nothing of this environment's settings: the test is of the programs.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
        command.env_remove(name);
    }
    on_core(core, move || command.spawn().map(Running))?
}

/// Does `what` in a thread that runs on `core` and nowhere else; children it starts inherit that.
pub(super) fn on_core<T: Send>(core: Option<usize>, what: impl FnOnce() -> T + Send) -> io::Result<T> {
    let pinned = || {
        if let Some(core) = core {
            // The set of the kernel has an end, beyond which there is no asking.
            if core >= CpuSet::MAX_CPU {
                return Err(io::Error::other(format!("there is no core {core}")));
            }
            let mut mask = CpuSet::new();
            mask.set(core);
            sched_setaffinity(None, &mask)
                .map_err(|error| io::Error::other(format!("it cannot run on core {core}: {error}")))?;
        }
        Ok(what())
    };
    thread::scope(|scope| scope.spawn(pinned).join())
        .unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")))
}

/// Keeps both cores from going to sleep, as long as it lives.
///
/// A core that sleeps takes time to wake up, the more the longer it slept (in a virtual machine some 100 µs). Whoever waits
/// 10 ms for an answer would then see more on top of them than who waits for none, whatever the load generator does.
pub(super) struct Awake {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Awake {
    /// Until dropped.
    pub(super) fn keep(cores: Option<Cores>) -> Awake {
        let stop = Arc::new(AtomicBool::new(false));
        let mut cores: Vec<usize> =
            cores.into_iter().flat_map(|cores| [cores.generator, cores.responder]).collect();
        cores.dedup();
        let keep = |core: usize| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                // Without the least priority it would be in the way of those it is there for.
                let humble = setpriority_process(None, 19).is_ok();
                let mut mask = CpuSet::new();
                if core < CpuSet::MAX_CPU {
                    mask.set(core);
                }
                if humble && sched_setaffinity(None, &mask).is_ok() {
                    while !stop.load(Ordering::Relaxed) {
                        thread::yield_now();
                    }
                }
            })
        };
        Awake { threads: cores.into_iter().map(keep).collect(), stop }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
