//! The link between generator and server: a `weir link` of the lab's own.
//!
//! Known of it: its flags, the line it prints when it listens, and that it answers a line on its input with its account.

use super::Options;
use super::process::{Listening, Process};
use crate::sampler;
use kv::Error;
use kv::proto::LinkAccount;
use kv::units::BitRate;
use lab_data::experiment::Link as Wanted;
use parking_lot::Mutex;
use std::io::{self, Write};
use std::process::{ChildStdin, Command};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// How long an answer may take: longer than any that comes.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A link that listens. Dropped, it is gone.
pub(super) struct Link {
    pub(super) process: Process,
    /// `http://127.0.0.1:PORT`.
    pub(super) url: String,
    /// How it can be asked.
    pub(super) asked: sampler::Link,
}

impl Link {
    /// Starts one as `wanted` on the way to `to`, as in `127.0.0.1:8080`, and waits until it listens.
    pub(super) fn start(options: &Options, to: &str, wanted: Wanted, cores: &[usize]) -> Result<Link, Error> {
        let mut command = Command::new(&options.program);
        command.args(["link", "--to", to]);
        command.args(wanted.rate.iter().flat_map(|rate| ["--rate".to_owned(), rate.to_string()]));
        command.args(wanted.delay.iter().flat_map(|delay| ["--delay".to_owned(), delay.to_string()]));
        let process = Process::weir(&mut command, cores, &options.dir.join("link.log"))?;
        let Listening { mut process, lines: answers, url } = Listening::wait(process, &options.stop)?;
        let questions = process.stdin().ok_or_else(|| process.failed("has no input"))?;
        // Both ends of a conversation.
        let talk = Mutex::new((questions, answers));
        let asked = sampler::Link {
            bytes_per_sec: wanted.rate.map(BitRate::bytes_per_sec),
            ask: Arc::new(move || ask(&mut talk.lock())),
        };
        Ok(Link { process, url, asked })
    }
}

fn ask((questions, answers): &mut (ChildStdin, Receiver<String>)) -> io::Result<LinkAccount> {
    // What came too late for whoever asked before.
    while answers.try_recv().is_ok() {}
    questions.write_all(b"stats\n")?;
    let line = answers.recv_timeout(ANSWER_MAX).map_err(io::Error::other)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shell script in the link's place.
    fn start(script: &str) -> Result<Link, Error> {
        let dir = tempfile::tempdir().unwrap();
        let program = super::super::files::script(dir.path(), script);
        let wanted = Wanted { rate: Some("8mbit".parse().unwrap()), delay: Some("20ms".parse().unwrap()) };
        Link::start(&Options::of(program, dir.path()), "127.0.0.1:1", wanted, &[])
    }

    #[test]
    fn a_link_is_told_what_to_be_and_asked_what_it_did() {
        let link = start(
            "echo listening 127.0.0.1:$(echo \"$*\" | grep -c -- '^link --to 127.0.0.1:1 --rate 8mbit --delay 20ms$')\n\
             while read question; do echo '{\"up\":{\"bytes\":5,\"busy_secs\":0.5},\"down\":{\"bytes\":0,\"busy_secs\":0},\
             \"waiting_secs\":1,\"serving_secs\":2}'; done",
        );
        let link = link.unwrap();
        assert_eq!(link.url, "http://127.0.0.1:1");
        let asked = link.asked.clone();
        assert_eq!(asked.bytes_per_sec, Some(1e6));
        let account = (asked.ask)().unwrap();
        assert_eq!((account.up.bytes, account.waiting_secs), (5, 1.0));
        drop(link);
        assert!((asked.ask)().is_err());
    }

    #[test]
    fn a_link_that_ends_is_quoted() {
        let why = start("echo 'error: no such address' >&2; exit 2").err().unwrap().to_string();
        assert!(
            why.starts_with("link ended with exit status: 2: error: no such address; hint: see "),
            "{why}"
        );
    }
}
