//! The link between generator and server: a `weir link` of the lab's own.
//!
//! Known of it: its flags, the line it prints when it listens, and that it answers a line on its input with its account.

use super::process::{Listening, Process};
use crate::sampler;
use kv::proto::LinkAccount;
use kv::units::{BitRate, Span};
use std::io::{self, Write};
use std::path::Path;
use std::process::{ChildStdin, Command};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long an answer may take: longer than any that comes.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What to start.
pub(super) struct Start<'a> {
    /// The weir binary.
    pub(super) program: &'a Path,
    /// Where it goes on to: `127.0.0.1:8080`.
    pub(super) to: &'a str,
    /// Most bits a second in each direction.
    pub(super) rate: Option<BitRate>,
    /// In each direction.
    pub(super) delay: Option<Span>,
    /// Where it runs.
    pub(super) cores: &'a [usize],
    /// Where it says what goes wrong.
    pub(super) log: &'a Path,
}

/// A link that listens. Dropped, it is gone.
pub(super) struct Link {
    process: Process,
    url: String,
    asked: sampler::Link,
}

/// Both ends of a conversation.
struct Talk {
    questions: ChildStdin,
    answers: Receiver<String>,
}

impl Link {
    /// Starts it and waits until it listens.
    pub(super) fn start(start: &Start, stop: &AtomicBool) -> Result<Link, String> {
        let mut command = Command::new(start.program);
        command.args(["link", "--to", start.to]);
        command.args(start.rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.to_string()]));
        command.args(start.delay.iter().flat_map(|delay| ["--delay".to_owned(), delay.to_string()]));
        let mut started = Listening::start(&mut command, "link", start.cores, start.log, stop)?;
        let questions = started.process.stdin().ok_or("weir link has no input")?;
        let Listening { process, lines: answers, address, .. } = started;
        let talk = Mutex::new(Talk { questions, answers });
        let asked = sampler::Link {
            bytes_per_sec: start.rate.map(BitRate::bytes_per_sec),
            // One who asks at a time: whatever it was doing, who panicked has left at most an answer behind.
            ask: Arc::new(move || talk.lock().unwrap_or_else(PoisonError::into_inner).ask()),
        };
        Ok(Link { process, url: format!("http://{address}"), asked })
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

    /// How it can be asked.
    pub(super) fn asked(&self) -> sampler::Link {
        self.asked.clone()
    }
}

impl Talk {
    fn ask(&mut self) -> io::Result<LinkAccount> {
        // What came too late for whoever asked before.
        while self.answers.try_recv().is_ok() {}
        self.questions.write_all(b"stats\n")?;
        self.questions.flush()?;
        let line = self.answers.recv_timeout(ANSWER_MAX).map_err(io::Error::other)?;
        Ok(serde_json::from_str(&line)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A shell script in the link's place.
    fn start(script: &str) -> Result<Link, String> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("weir");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let start = Start {
            program: &program,
            to: "127.0.0.1:1",
            rate: Some("8mbit".parse().unwrap()),
            delay: Some("20ms".parse().unwrap()),
            cores: &[],
            log: &dir.path().join("link.log"),
        };
        Link::start(&start, &AtomicBool::new(false))
    }

    #[test]
    fn a_link_is_told_what_to_be_and_asked_what_it_did() {
        let link = start(
            "echo listening 127.0.0.1:$(echo \"$*\" | grep -c -- '^link --to 127.0.0.1:1 --rate 8mbit --delay 20ms$')\n\
             while read question; do echo '{\"up\":{\"bytes\":5,\"busy_secs\":0.5},\"down\":{\"bytes\":0,\"busy_secs\":0},\
             \"waiting_secs\":1,\"serving_secs\":2}'; done",
        );
        let link = link.unwrap();
        assert_eq!(link.url(), "http://127.0.0.1:1");
        let asked = link.asked();
        assert_eq!(asked.bytes_per_sec, Some(1e6));
        let account = (asked.ask)().unwrap();
        assert_eq!((account.up.bytes, account.waiting_secs), (5, 1.0));
        drop(link);
        assert!((asked.ask)().is_err());
    }

    #[test]
    fn a_link_that_ends_is_quoted() {
        let why = start("echo 'error: no such address' >&2; exit 2").err().unwrap();
        assert!(
            why.starts_with("weir link ended with exit status: 2: error: no such address; see "),
            "{why}"
        );
    }
}
