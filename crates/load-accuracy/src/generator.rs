//! Runs the load generator as a process and reads its report.
//!
//! Knows its command line and its JSON, nothing else of it.

use super::{OUT_OF_TIME, Options, Setup};
use kv::cores::on;
use kv::proto::LoadReport;
use rustix::process::{Pid, Signal, kill_process};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take beyond the window it was given.
const GRACE: Duration = Duration::from_secs(20);

/// Runs `weir load` on `address` for about `length` as `flags` say, and returns the report.
pub(super) fn load(
    setup: &Setup,
    address: SocketAddr,
    length: Duration,
    flags: &str,
) -> Result<LoadReport, String> {
    let mut command = Command::new(&setup.options.load);
    let Options { tls, http2, .. } = *setup.options;
    let scheme = if tls { "https" } else { "http" };
    command.arg("load").arg(format!("{scheme}://{address}")).arg("--json").args(flags.split_whitespace());
    command.args(tls.then_some("--insecure")).args(http2.then_some("--http2"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The settings of this environment are not part of the check.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
        command.env_remove(name);
    }
    let core = setup.options.cores.map(|cores| cores.generator);
    let child = on(core.as_slice(), || command.spawn())
        .map_err(|error| format!("cannot start {}: {error}", setup.options.load.display()))?;
    let process = Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    // The receiver is gone if this was too late.
    thread::spawn(move || drop(sender.send(child.wait_with_output())));
    let limit = (length + GRACE).min(setup.deadline.saturating_duration_since(Instant::now()));
    let Ok(output) = receiver.recv_timeout(limit) else {
        // Fails only if it has ended just now.
        let _ = kill_process(process, Signal::KILL);
        let is_late = Instant::now() >= setup.deadline;
        return Err(if is_late { OUT_OF_TIME } else { "the load generator does not end" }.to_owned());
    };
    let Output { stdout, stderr, .. } =
        output.map_err(|error| format!("the load generator's output cannot be read: {error}"))?;
    serde_json::from_slice(&stdout).map_err(|error| match stdout.trim_ascii() {
        b"" => format!("the load generator prints no report: {}", String::from_utf8_lossy(&stderr).trim()),
        _ => format!("the load generator's report cannot be read: {error}"),
    })
}
