//! The measured server: a `weir serve` of the lab's own.
//!
//! Known of it: its flags, the line it prints when it listens, and that `/readyz` answers 200 once it can serve.

use super::process::{Listening, Process, poll_until};
use super::slow_flush;
use crate::sampler::get;
use kv::proto::READYZ;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long a server that listens may take to open its store and answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What to start.
pub(super) struct Start<'a> {
    /// The weir binary.
    pub(super) program: &'a Path,
    /// Store URLs; several are shards.
    pub(super) stores: &'a [String],
    /// Where reads go while a store is away.
    pub(super) replica: Option<&'a str>,
    /// Further flags.
    pub(super) args: &'a [String],
    /// Where it runs; it gets as many workers.
    pub(super) cores: &'a [usize],
    /// Where it says what goes wrong.
    pub(super) log: &'a Path,
    /// By how much its flushes are delayed, and where the library that does it is made.
    pub(super) slowed: Option<(Duration, &'a Path)>,
}

/// A server that answers.
pub(super) struct Server {
    process: Process,
    url: String,
}

impl Server {
    /// Starts it and waits until it can serve.
    pub(super) fn start(start: &Start, stop: &AtomicBool) -> Result<Server, String> {
        let mut command = Command::new(start.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--until-stdin-ends"]);
        command.args(start.stores.iter().flat_map(|store| ["--store", store]));
        command.args(start.replica.iter().flat_map(|url| ["--read-fallback", url]));
        if !start.args.iter().any(|arg| arg == "--workers" || arg.starts_with("--workers=")) {
            command.args(["--workers", &start.cores.len().to_string()]);
        }
        command.args(start.args);
        if let Some((delay, dir)) = start.slowed {
            slow_flush::preload(&mut command, delay, dir)?;
        }
        let mut started = Listening::start(&mut command, "serve", start.cores, start.log, stop)?;
        let url = format!("http://{}", started.address);
        let mut last = String::new();
        let ready = poll_until(TIMEOUT, stop, || {
            if let Some(status) = started.process.ended() {
                return Err(started.failed(&format!("serve ended with {status}")));
            }
            last = match get(&url, READYZ, Duration::from_secs(2)) {
                Ok((200, _)) => return Ok(Some(())),
                Ok((status, _)) => format!("answered {status}"),
                Err(error) => error.to_string(),
            };
            Ok(None)
        })?;
        let secs = TIMEOUT.as_secs();
        ready.ok_or_else(|| started.failed(&format!("serve was not ready within {secs} s ({last})")))?;
        start.slowed.map_or(Ok(()), |_| slow_flush::verify(started.process.pid()))?;
        Ok(Server { process: started.process, url })
    }

    /// `http://127.0.0.1:PORT`.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it still runs.
    pub(super) fn lives(&mut self) -> bool {
        self.process.ended().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Starts a shell script in the server's place; gives its complaint.
    fn complaint(script: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("weir");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let log = dir.path().join("server.log");
        let stores = ["memory:".to_owned()];
        let start = Start {
            program: &program,
            stores: &stores,
            replica: None,
            args: &[],
            cores: &[],
            log: &log,
            slowed: None,
        };
        Server::start(&start, &AtomicBool::new(false)).err().unwrap()
    }

    #[test]
    fn a_server_that_ends_is_quoted() {
        let said = complaint("echo 'error: no such store' >&2; exit 2");
        assert!(
            said.starts_with("weir serve ended with exit status: 2: error: no such store; see "),
            "{said}"
        );
    }

    #[test]
    fn a_server_that_dies_before_it_is_ready_is_not_waited_for() {
        let said = complaint("echo listening 127.0.0.1:1; echo oh >&2; exit 1");
        assert!(said.starts_with("weir serve ended with exit status: 1: oh; see "), "{said}");
    }
}
