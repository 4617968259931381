//! A load on a server, with the server's processor time in the very window, and the checks.

use crate::support::{LOAD_CORE, Server, median, on_core, weir};
use kv::proto::{LoadEvent, LoadReport};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Windows behind each figure.
pub(super) const WINDOWS: usize = 3;
/// Little's law may be off by this.
const LITTLE_MAX: f64 = 0.02;
/// Above this share of its core the generator may be what is measured.
const GENERATOR_MAX: f64 = 0.7;

/// One window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    cpu_us: f64,
    user_ticks: f64,
    kernel_ticks: f64,
    server_share: f64,
    goodput_rps: f64,
    us_p50: f64,
    us_p99: f64,
    little: f64,
    error_ratio: f64,
    generator_share: f64,
}

/// Medians over some windows; of the checks the worst.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loaded {
    /// Of the server, user and system, for a request.
    pub(super) cpu_us: f64,
    /// Of that time, 0–1.
    pub(super) kernel_share: f64,
    /// Of its core.
    pub(super) server_share: f64,
    pub(super) goodput_rps: f64,
    /// Of values.
    pub(super) mb_per_sec: f64,
    pub(super) us_p50: f64,
    pub(super) us_p99: f64,
    pub(super) little: f64,
    pub(super) error_ratio: f64,
    /// Of its core.
    pub(super) generator_share: f64,
    pub(super) windows: f64,
}

impl Loaded {
    /// Of these windows, with values of so many bytes.
    pub(super) fn of(windows: &[Window], value_bytes: u64) -> Loaded {
        let middle = |of: fn(&Window) -> f64| median(&windows.iter().map(of).collect::<Vec<_>>());
        let worst = |of: fn(&Window) -> f64| windows.iter().map(of).fold(0.0, f64::max);
        let sum = |of: fn(&Window) -> f64| windows.iter().map(of).sum::<f64>();
        let goodput_rps = middle(|window| window.goodput_rps);
        let kernel = sum(|window| window.kernel_ticks);
        Loaded {
            cpu_us: middle(|window| window.cpu_us),
            kernel_share: kernel / (kernel + sum(|window| window.user_ticks)).max(1.0),
            server_share: middle(|window| window.server_share),
            goodput_rps,
            mb_per_sec: goodput_rps * value_bytes as f64 / 1e6,
            us_p50: middle(|window| window.us_p50),
            us_p99: middle(|window| window.us_p99),
            little: worst(|window| window.little.abs()),
            error_ratio: worst(|window| window.error_ratio),
            generator_share: middle(|window| window.generator_share),
            windows: windows.len() as f64,
        }
    }

    /// What the checks say.
    pub(super) fn standing(&self) -> &'static str {
        match () {
            () if self.little > LITTLE_MAX || self.error_ratio > 0.0 => "invalid",
            () if self.generator_share > GENERATOR_MAX => "generator-limited",
            () => "valid",
        }
    }
}

/// Puts load on `server`, with these flags of `weir load`.
pub(super) fn window(server: &Server, args: &[&str]) -> Window {
    window_of(server, "1s", args)
}

/// The same with a window of this length: in a short one, long requests under way at its edges are what is seen.
pub(super) fn window_of(server: &Server, length: &str, args: &[&str]) -> Window {
    let mut command = on_core(LOAD_CORE, weir());
    command.args(["load", server.url(), "--events", "--warmup", "300ms", "--window", length]).args(args);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the load generator starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
    let (mut before, mut after, mut report) = (None, None, None);
    for line in output.lines().map_while(Result::ok) {
        match serde_json::from_str(&line).expect("an event is JSON") {
            LoadEvent::WindowStart => before = Some(spent(server)),
            LoadEvent::WindowEnd => after = Some(spent(server)),
            LoadEvent::Report(said) => report = Some(*said),
            LoadEvent::Preloading { .. }
            | LoadEvent::Preloaded { .. }
            | LoadEvent::Second { .. }
            | LoadEvent::Bin { .. } => {}
        }
    }
    assert!(child.wait().is_ok_and(|status| status.success()), "weir load failed: {args:?}");
    let report: LoadReport = report.expect("the last event is the report");
    let (before, after) = before.zip(after).expect("the window begins and ends");
    let cpu_secs = after.0 - before.0;
    Window {
        cpu_us: cpu_secs * 1e6 / report.attempts.max(1) as f64,
        user_ticks: after.1 - before.1,
        kernel_ticks: after.2 - before.2,
        server_share: cpu_secs / report.window_secs,
        goodput_rps: report.goodput_rps,
        us_p50: report.latency.us_p50,
        us_p99: report.latency.us_p99,
        little: report.little_residual().unwrap_or(1.0),
        error_ratio: report.error_ratio,
        generator_share: report.cpu_secs / report.window_secs,
    }
}

/// Processor time of a server so far in seconds, exactly, and the ticks that met it in user and in kernel mode.
fn spent(server: &Server) -> (f64, f64, f64) {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("the server runs");
    // Behind the name, which may contain anything.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0.0);
    (server.cpu().as_secs_f64(), ticks(11), ticks(12))
}
