//! What a request costs the load generator in processor time, beside wrk on the same server in turns.
//!
//! Both are billed as whole processes: user and system time of all threads from exec to exit, as the kernel tells their
//! parent, divided by the requests each says were answered. So starting, connecting and printing are in it on both
//! sides. `weir load` keeps its histograms and compares every value meanwhile; wrk does neither by operation.

use crate::support::{LOAD_CORE, SERVER_CORE, Server, load, median, on_core, weir};
use kv::proto::LoadReport;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Odd, so that the medians are rounds that were run.
const ROUNDS: usize = 9;
/// Of each side in each round; wrk knows no fractions.
const SECONDS: u64 = 2;
const CLIENTS: &str = "64";

/// How long nginx may take until it listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// Prints both sides' cost per request and their ratio, against each server there is.
pub(crate) fn run() {
    let server = Server::start(&["--store", "memory:"]);
    // Writes the keys, so that wrk too finds what it asks for.
    load(server.url(), &["--workload", "get_popular", "--warmup", "0s", "--window", "200ms"]);
    compare("weir serve, GET hit of 100 B", server.url(), "/kv/popular_1", &["--workload", "get_popular"]);
    drop(server);
    match Nginx::start() {
        // Its only value is that of the first key.
        Some(nginx) => {
            let url = format!("http://{}", nginx.address);
            compare("nginx, return 200 of 100 B", &url, "/kv/popular_0", &["--keys", "1"]);
        }
        None => println!("nginx is not installed: apt-get install nginx-light"),
    }
}

/// Runs both sides in turns.
fn compare(server: &str, url: &str, path: &str, args: &[&str]) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Whoever comes second finds the caches as the first left them, so they take turns in that as well.
        if round % 2 == 0 {
            ours.push(weir_load(url, args));
            theirs.push(wrk(&format!("{url}{path}")));
        } else {
            theirs.push(wrk(&format!("{url}{path}")));
            ours.push(weir_load(url, args));
        }
    }
    let mut ratios: Vec<f64> =
        ours.iter().zip(&theirs).map(|(ours, theirs)| ours.us() / theirs.us()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    println!("{server}: {ROUNDS} rounds of {SECONDS} s, {CLIENTS} clients, one thread; medians");
    tell("weir load", &ours);
    tell("wrk", &theirs);
    println!(
        "  weir load / wrk, processor time per request: {:.3} (quartiles {:.3} and {:.3})",
        ratios[ROUNDS / 2],
        ratios[ROUNDS / 4],
        ratios[ROUNDS - 1 - ROUNDS / 4],
    );
}

fn tell(name: &str, costs: &[Cost]) {
    let middle = |of: fn(&Cost) -> f64| median(&costs.iter().map(of).collect::<Vec<f64>>());
    println!(
        "  {name:<10}{:>8.0} req/s  {:.3} µs of processor time per request: user {:.3}, system {:.3}",
        middle(|cost| cost.requests / SECONDS as f64),
        middle(Cost::us),
        middle(|cost| cost.user_secs * 1e6 / cost.requests),
        middle(|cost| cost.system_secs * 1e6 / cost.requests),
    );
}

/// What one side took in one round.
struct Cost {
    /// Answered in time, and well.
    requests: f64,
    user_secs: f64,
    system_secs: f64,
}

impl Cost {
    /// Microseconds of processor time per request.
    fn us(&self) -> f64 {
        (self.user_secs + self.system_secs) * 1e6 / self.requests
    }
}

fn weir_load(url: &str, args: &[&str]) -> Cost {
    let window = format!("{SECONDS}s");
    let fixed =
        [weir(), "load", url, "--clients", CLIENTS, "--threads", "1", "--warmup", "0s", "--window", &window];
    let (output, user_secs, system_secs) = timed(&[&fixed[..], args, &["--no-preload", "--json"]].concat());
    let report: LoadReport = serde_json::from_str(&output).expect("weir load --json prints its report");
    assert!(report.errors.is_empty() && report.successes > 0, "weir load saw {:?}", report.errors);
    Cost { requests: report.attempts as f64, user_secs, system_secs }
}

fn wrk(url: &str) -> Cost {
    let (output, user_secs, system_secs) =
        timed(&["wrk", "-t1", &format!("-c{CLIENTS}"), &format!("-d{SECONDS}s"), url]);
    assert!(!output.contains("Non-2xx") && !output.contains("Socket errors"), "wrk saw errors:\n{output}");
    let requests = output.lines().find_map(|line| line.trim().split_once(" requests in "));
    let requests = requests.and_then(|(number, _)| number.parse().ok()).expect("wrk says how many requests");
    Cost { requests, user_secs, system_secs }
}

/// Runs a command on [`LOAD_CORE`]; what it printed, and its user and system seconds.
fn timed(command: &[&str]) -> (String, f64, f64) {
    // The shell asks the kernel for what the processes it waited for have used, to the millisecond here.
    let output = on_core(LOAD_CORE, "bash")
        .args(["-c", "TIMEFORMAT='%3U %3S'; time \"$@\"", "bash"])
        .args(command)
        .env("LC_ALL", "C")
        .output()
        .expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} failed: {said}", command[0]);
    let times = said.lines().last().and_then(|line| line.split_once(' '));
    let secs = |text: &str| text.parse::<f64>().expect("bash tells seconds");
    let (user, system) = times.expect("bash tells two times");
    (String::from_utf8_lossy(&output.stdout).into_owned(), secs(user), secs(system))
}

/// An nginx that answers everything with the value of the first key; killed when dropped.
struct Nginx {
    child: Child,
    address: SocketAddr,
    /// Its files, gone with it.
    _dir: tempfile::TempDir,
}

impl Nginx {
    /// `None` where it is not installed.
    fn start() -> Option<Nginx> {
        Command::new("nginx").arg("-v").stderr(Stdio::null()).status().ok()?;
        let dir = tempfile::tempdir().expect("a temporary folder");
        // Free at this moment; nobody else is given it so soon.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        drop(listener);
        let value = format!("{:x<100}", "popular_0=");
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|what| format!("{what}_temp_path {what};\n"))
            .concat();
        // As many requests on a connection as there may be: by default it closes after a thousand.
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nevents {{ worker_connections 1024; }}\n\
             http {{\naccess_log off;\nkeepalive_requests 1000000000;\n{temporary}\
             server {{ listen {address}; location / {{ return 200 \"{value}\"; }} }}\n}}\n"
        );
        let file = dir.path().join("nginx.conf");
        fs::write(&file, configuration).expect("the temporary folder takes a file");
        let mut command = on_core(SERVER_CORE, "nginx");
        command.arg("-p").arg(dir.path()).arg("-c").arg(&file).args(["-e", "stderr"]);
        let nginx = Nginx { child: command.spawn().expect("nginx starts"), address, _dir: dir };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < PATIENCE, "nginx does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        Some(nginx)
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The one error is that it ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
