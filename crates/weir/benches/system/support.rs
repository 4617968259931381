//! What these benchmarks start: a server on one core, load from another.

use kv::proto::LoadReport;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where the server runs.
pub(crate) const SERVER_CORE: usize = 0;
/// Where the load comes from.
pub(crate) const LOAD_CORE: usize = 1;

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command pinned to `core`.
pub(crate) fn on_core(core: usize, program: &str) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string(), program]).stdin(Stdio::null());
    command
}

/// The weir that was built with these benchmarks.
pub(crate) fn weir() -> &'static str {
    env!("CARGO_BIN_EXE_weir")
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts `weir serve` with one worker on [`SERVER_CORE`], with `args` beside, and waits until it is ready.
    pub(crate) fn start(args: &[&str]) -> Server {
        let mut command = on_core(SERVER_CORE, weir());
        command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]).args(args);
        Server::listening(command)
    }

    /// The same by a command of the caller's that says `listening ADDRESS` as `weir serve` does.
    pub(crate) fn listening(mut command: Command) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the server starts");
        let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let mut lines = output.lines().map_while(Result::ok);
        let listening = lines.find_map(|line| line.strip_prefix("listening ").map(str::to_owned));
        // It must never wait for somebody to read what it says.
        thread::spawn(move || lines.for_each(drop));
        let url = format!("http://{}", listening.expect("the server says where it listens"));
        let server = Server { child, url };
        let start = Instant::now();
        while !server.is_ready() {
            assert!(start.elapsed() < PATIENCE, "the server is not ready");
            thread::sleep(Duration::from_millis(5));
        }
        server
    }

    fn is_ready(&self) -> bool {
        self.get("/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The answer to a GET, head and body.
    fn get(&self, path: &str) -> std::io::Result<String> {
        let mut peer = TcpStream::connect(self.url.trim_start_matches("http://"))?;
        peer.write_all(
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes(),
        )?;
        let mut answer = String::new();
        peer.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// `http://ADDRESS`.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// What it counts.
    pub(crate) fn stats(&self) -> serde_json::Value {
        let page = self.get("/stats").expect("the server answers");
        serde_json::from_str(page.split_once("\r\n\r\n").map_or("", |(_, body)| body))
            .expect("/stats is JSON")
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end, and waits until it has: callgrind writes its counts then.
    pub(crate) fn end(&mut self) {
        let asked = Command::new("kill").arg(self.pid().to_string()).status();
        assert!(asked.is_ok_and(|status| status.success()), "the server takes a signal");
        self.child.wait().expect("the server ends");
    }

    /// Processor time of all its threads so far, user and system.
    pub(crate) fn cpu(&self) -> Duration {
        cpu_of(self.pid())
    }

    /// Memory it has in use now, in bytes (`VmRSS`).
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("the server runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux says VmRSS");
        let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        kib.expect("VmRSS is a number of kB") * 1024
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The one error is that it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Processor time of the threads of `pid` so far, to the nanosecond; of threads that ended, none.
pub(crate) fn cpu_of(pid: u32) -> Duration {
    let tasks = Path::new("/proc").join(pid.to_string()).join("task");
    let of = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let tasks = std::fs::read_dir(tasks).expect("the process runs");
    Duration::from_nanos(tasks.map_while(Result::ok).filter_map(of).sum())
}

/// Puts load on `url` from [`LOAD_CORE`], with these flags of `weir load`.
pub(crate) fn load(url: &str, args: &[&str]) -> LoadReport {
    let mut command = on_core(LOAD_CORE, weir());
    let output =
        command.args(["load", url, "--json"]).args(args).output().expect("the load generator starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "weir load failed: {said}");
    serde_json::from_slice(&output.stdout).expect("weir load --json prints its report")
}

/// The middle of `values`; of an even number of them, the mean of both.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

/// The median of `values` and, in brackets, their quartiles.
pub(crate) fn spread(values: &[f64], digits: usize) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    // The halves on both sides of the middle, without it.
    let half = sorted.len() / 2;
    let (low, high) = (median(&sorted[..half.max(1)]), median(&sorted[sorted.len() - half.max(1)..]));
    format!("{:.digits$} [{low:.digits$}, {high:.digits$}]", median(values))
}

/// Runs `what` with this thread, and those it starts, on `core`.
pub(crate) fn pinned<T>(core: usize, what: impl FnOnce() -> T) -> T {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let before = sched_getaffinity(None).expect("the thread knows its cores");
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).expect("the machine has this core");
    let done = what();
    sched_setaffinity(None, &before).expect("it had them before");
    done
}
