//! A key and what it may hold: the judge of every test in which something breaks.
//!
//! One client at a time writes the key, so what it may hold is known exactly: after an acknowledgement one value, after
//! an error with outcome `unknown` one value more, after `not-applied` nothing new. A read must be one of them.

use crate::support::Client;
use std::net::SocketAddr;
use std::time::Duration;

pub(crate) struct Register {
    path: String,
    address: SocketAddr,
    client: Option<Client>,
    counter: u64,
    /// Never empty; `None` is absence.
    possible: Vec<Option<String>>,
    pub(crate) seen: Seen,
}

/// How the operations ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) acknowledged: u64,
    pub(crate) not_applied: u64,
    pub(crate) unknown: u64,
    pub(crate) reads: u64,
    pub(crate) unread: u64,
}

impl std::ops::AddAssign for Seen {
    fn add_assign(&mut self, other: Seen) {
        self.acknowledged += other.acknowledged;
        self.not_applied += other.not_applied;
        self.unknown += other.unknown;
        self.reads += other.reads;
        self.unread += other.unread;
    }
}

impl Register {
    /// A key that nobody else touches.
    pub(crate) fn new(name: &str, address: SocketAddr) -> Register {
        Register {
            path: format!("/kv/register/{name}"),
            address,
            client: None,
            counter: 0,
            possible: vec![None],
            seen: Seen::default(),
        }
    }

    /// Where the server is now.
    pub(crate) fn moves_to(&mut self, address: SocketAddr) {
        self.address = address;
        self.client = None;
    }

    fn ask(&mut self, method: &str, body: &[u8]) -> std::io::Result<crate::support::Answer> {
        let mut client = match self.client.take() {
            Some(client) => client,
            None => Client::connect(self.address)?,
        };
        let answer = client.ask(method, &self.path, &[], body)?;
        if answer.header("connection") != Some("close") {
            self.client = Some(client);
        }
        Ok(answer)
    }

    /// Puts the next value, or (every fifth time) deletes the key.
    pub(crate) fn write(&mut self) -> Result<(), String> {
        self.counter += 1;
        let value = (!self.counter.is_multiple_of(5)).then(|| format!("v{}", self.counter));
        let answer = match &value {
            Some(value) => self.ask("PUT", value.clone().as_bytes()),
            None => self.ask("DELETE", b""),
        };
        match answer {
            Ok(answer) if matches!(answer.status, 201 | 204) => {
                self.seen.acknowledged += 1;
                self.possible = vec![value];
            }
            Ok(answer) => match (answer.status, answer.header("weir-outcome")) {
                (503, Some("not-applied")) => self.seen.not_applied += 1,
                (504, Some("unknown")) => {
                    self.seen.unknown += 1;
                    self.possible.push(value);
                }
                other => {
                    return Err(format!("{}: a write was answered {other:?} {}", self.path, answer.text()));
                }
            },
            // The connection broke: the client cannot know either.
            Err(_) => {
                self.seen.unknown += 1;
                self.possible.push(value);
            }
        }
        Ok(())
    }

    /// Reads the key. An answer settles what was unknown: the server answers only when it is.
    pub(crate) fn read(&mut self) -> Result<(), String> {
        let answer = match self.ask("GET", b"") {
            Ok(answer) => answer,
            Err(_) => {
                self.seen.unread += 1;
                return Ok(());
            }
        };
        let value = match answer.status {
            200 => Some(answer.text()),
            404 => None,
            503 | 504 => {
                self.seen.unread += 1;
                return Ok(());
            }
            other => return Err(format!("{}: a read was answered {other} {}", self.path, answer.text())),
        };
        self.seen.reads += 1;
        if !self.possible.contains(&value) {
            return Err(format!("{} holds {value:?}, but it can only hold {:?}", self.path, self.possible));
        }
        self.possible = vec![value];
        Ok(())
    }

    /// Reads until the server answers.
    pub(crate) fn read_at_last(&mut self) -> Result<(), String> {
        let before = self.seen.reads;
        let deadline = std::time::Instant::now() + crate::support::PATIENCE;
        while self.seen.reads == before {
            if std::time::Instant::now() > deadline {
                return Err(format!("{}: no answer", self.path));
            }
            self.read()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Forgets what it may hold and takes what it holds: for servers that are allowed to lose.
    pub(crate) fn believe(&mut self) {
        if let Ok(answer) = self.ask("GET", b"") {
            self.possible = vec![(answer.status == 200).then(|| answer.text())];
        }
    }
}
