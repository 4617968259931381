//! Runs the load generator as a process and reads its report.
//!
//! Knows its command line and its JSON, nothing else of it.

use super::cores::on_core;
use super::{OUT_OF_TIME, Setup};
use kv::proto::LoadReport;
use std::io::Read;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How long it may take beyond the window it was given.
const GRACE: Duration = Duration::from_secs(20);

/// Puts load on `address` for about `length` as `flags` say, and returns the report.
pub(super) fn load(
    setup: &Setup,
    address: SocketAddr,
    length: Duration,
    flags: &str,
) -> Result<LoadReport, String> {
    let mut command = Command::new(&setup.options.load);
    command.arg("load").arg(format!("http://{address}")).arg("--json").args(flags.split_whitespace());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // The settings of this environment are not part of the check.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_")) {
        command.env_remove(name);
    }
    let mut child =
        on_core(setup.options.cores.map(|cores| cores.generator), || command.spawn().map(Running))
            .map_err(|error| format!("cannot start {}: {error}", setup.options.load.display()))?;
    let mut stdout = child.0.stdout.take().ok_or("the load generator has no output")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        // The receiver is gone if this was too late.
        let _ = sender.send(read.map(|_| text));
    });
    let limit = (length + GRACE).min(setup.deadline.saturating_duration_since(Instant::now()));
    let text = receiver
        .recv_timeout(limit)
        .map_err(|_| match Instant::now() >= setup.deadline {
            true => OUT_OF_TIME.to_owned(),
            false => "the load generator does not end".to_owned(),
        })?
        .unwrap_or_default();
    serde_json::from_str(&text).map_err(|error| match text.trim().is_empty() {
        true => format!("the load generator prints no report: {}", child.stderr()),
        false => format!("the load generator's report cannot be read: {error}"),
    })
}

/// A process that is killed when dropped.
struct Running(Child);

impl Running {
    /// What it said on standard error, once it has ended.
    fn stderr(&mut self) -> String {
        self.end();
        let mut text = String::new();
        let _ = self.0.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
        match text.trim() {
            "" => "it does not say why".to_owned(),
            text => text.to_owned(),
        }
    }

    fn end(&mut self) {
        // Fails only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}
