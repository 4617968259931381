//! The embedded store when a call of the operating system fails: every one in turn, once or from then on.

use crate::power_loss::library;
use crate::register::Register;
use crate::support::{PATIENCE, Server, is_long, until};
use rustix::io::Errno;
use std::fs;
use std::path::Path;
use std::time::Instant;

const KEYS: usize = 3;
const WRITES: usize = 24;

/// Which calls fail.
#[derive(Clone, Copy, Debug)]
struct Failure {
    from: usize,
    error: Errno,
    /// How many calls.
    calls: usize,
    /// Whether writes are done by half before they fail.
    is_short: bool,
}

/// What came of it.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// The server did not start, and said why.
    Refused,
    /// It served; so many writes were acknowledged.
    Served(u64),
}

/// Writes and reads while `failure` happens, and looks after a restart without it for what was promised.
fn attempt(library: &str, failure: Failure) -> Result<End, String> {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let url = format!("file:{}?segment=16KiB", store.display());
    let Failure { from, error, calls, is_short } = failure;
    let environment = [
        ("LD_PRELOAD", library.to_owned()),
        ("WEIR_DISK_DIR", store.display().to_string()),
        ("WEIR_DISK_FAIL", format!("{from}:{}:{calls}:{}", error.raw_os_error(), u8::from(is_short))),
    ];
    let server = match Server::start_in(&url, &[], &environment) {
        Ok(server) => server,
        Err(text) if text.contains("cannot") || text.contains("disk") => {
            // Nothing was acknowledged, and nothing is broken.
            drop(Server::start_in(&url, &[], &[])?);
            return Ok(End::Refused);
        }
        Err(text) => return Err(format!("no reason: {text:?}")),
    };
    let name = |key| format!("{key}");
    let mut registers: Vec<Register> =
        (0..KEYS).map(|key| Register::new(&name(key), server.address)).collect();
    for _ in 0..WRITES {
        for register in &mut registers {
            register.write()?;
            register.read()?;
        }
    }
    if calls == 1 {
        // It comes back by itself.
        let deadline = Instant::now() + PATIENCE;
        for register in &mut registers {
            let before = register.seen.acknowledged;
            while register.seen.acknowledged == before {
                register.write()?;
                if Instant::now() > deadline {
                    return Err("it does not come back".into());
                }
            }
            register.read()?;
        }
    }
    server.kill();
    let server = Server::start_in(&url, &[], &[])?;
    for register in &mut registers {
        register.moves_to(server.address);
        register.read_at_last()?;
    }
    Ok(End::Served(registers.iter().map(|register| register.seen.acknowledged).sum()))
}

#[test]
fn no_failing_call_makes_it_lose_or_lie() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    // A write takes two calls; some more begin segments.
    let points = 2 * KEYS * WRITES + 30;
    let step = if is_long() { 1 } else { 17 };
    let mut ends = Vec::new();
    for (error, calls, is_short) in [
        (Errno::IO, 1, false),
        (Errno::IO, 1, true),
        (Errno::IO, usize::MAX >> 1, false),
        (Errno::NOSPC, 1, false),
        (Errno::NOSPC, 1, true),
        (Errno::NOSPC, 40, true),
        (Errno::DQUOT, 1, false),
        (Errno::DQUOT, 7, false),
        (Errno::IO, 2, false),
        (Errno::IO, 5, true),
        (Errno::NOSPC, 3, false),
        (Errno::NOSPC, usize::MAX >> 1, false),
    ] {
        // Not the same ones each time.
        for from in (1 + ends.len() % step..=points).step_by(step) {
            let failure = Failure { from, error, calls, is_short };
            ends.push(attempt(&library, failure).unwrap_or_else(|error| panic!("{failure:?}: {error}")));
        }
    }
    let refused = ends.iter().filter(|end| **end == End::Refused).count();
    assert!(refused > 0 && refused < ends.len() / 4, "{refused} of {}", ends.len());
    assert!(ends.len() >= if is_long() { 2000 } else { 100 }, "{} points", ends.len());
}

/// Over a store that has rows. What one attempt does to it, the next one finds; each writes the last batch anew.
#[test]
fn no_start_that_fails_loses_a_row() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let url = |store: &Path| format!("file:{}?segment=16KiB", store.display());
    let before = directory.path().join("before");
    let server = Server::start_in(&url(&before), &[], &[]).unwrap();
    let keys = ["/kv/a", "/kv/b", "/kv/c"];
    for key in keys {
        assert_eq!(server.client().put(key, b"value").status, 201);
    }
    server.kill();
    let (mut refused, mut attempts) = (0, 0);
    // Error 0: it is killed.
    let ever = usize::MAX >> 1;
    for (error, calls, how) in [(5, 1, 0), (5, ever, 0), (28, 2, 0), (28, ever, 0), (13, ever, 2), (0, 1, 0)]
    {
        for from in (1..=24).step_by(if is_long() || how == 2 { 1 } else { 3 }) {
            let store = directory.path().join(format!("{error}-{calls}-{from}"));
            fs::create_dir(&store).unwrap();
            for file in fs::read_dir(&before).unwrap().map(Result::unwrap) {
                fs::copy(file.path(), store.join(file.file_name())).unwrap();
            }
            let environment = [
                ("LD_PRELOAD", library.clone()),
                ("WEIR_DISK_DIR", store.display().to_string()),
                ("WEIR_DISK_FAIL", format!("{from}:{error}:{calls}:{how}")),
            ];
            for _ in 0..2 {
                attempts += 1;
                match Server::start_in(&url(&store), &[], &environment) {
                    Ok(server) => server.kill(),
                    Err(_) => refused += 1,
                }
            }
            let server = Server::start_in(&url(&store), &[], &[]).unwrap();
            let found = keys.map(|key| server.client().get(key).status);
            assert_eq!(found, [200; 3], "call {from} failed with error {error} {calls} times");
        }
    }
    assert!(refused > attempts / 8 && refused < attempts, "{refused} of {attempts}");
}

/// A network file system may report a rename as failed that it has carried out. The next segment then says where the one before ends.
#[test]
fn after_a_rename_that_failed_and_was_done_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    // The second is that of the second segment.
    for clears in [false, true] {
        let store = directory.path().join(format!("store-{clears}"));
        let url = format!("file:{}?segment=16KiB", store.display());
        let environment = [
            ("LD_PRELOAD", library.clone()),
            ("WEIR_DISK_DIR", store.display().to_string()),
            ("WEIR_DISK_FAIL", format!("2:{}:1:3", Errno::IO.raw_os_error())),
        ];
        let server = Server::start_in(&url, &["--lab"], &environment).unwrap();
        let mut client = server.client();
        let mut stored = vec!["/kv/first".to_owned()];
        assert_eq!(client.put(&stored[0], b"value").status, 201);
        let failed = match clears {
            true => client.ask("DELETE", "/kv", &[], b"").unwrap(),
            false => (0..)
                .map(|key| (key, client.put(&format!("/kv/{key}"), &[7; 3000])))
                .find_map(|(key, answer)| {
                    let is_stored = answer.status == 201;
                    if is_stored {
                        stored.push(format!("/kv/{key}"));
                    }
                    (!is_stored).then_some(answer)
                })
                .unwrap(),
        };
        assert_eq!(
            (failed.status, failed.header("weir-outcome")),
            match clears {
                true => (504, Some("unknown")),
                false => (503, Some("not-applied")),
            }
        );
        // It fits into the segment before.
        until("a write is taken", || client.put("/kv/small", b"value").status == 201);
        server.kill();
        let server = Server::start_in(&url, &[], &[]).unwrap();
        let found = |path: &str| server.client().get(path).status;
        assert_eq!(found("/kv/small"), 200);
        assert!(clears || stored.iter().all(|path| found(path) == 200));
    }
}

/// Half of it was written, and the other half were zeros, which are there already: it was refused, and there after a restart.
#[test]
fn what_was_refused_is_not_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let library = library(directory.path());
    let mut failures = 0;
    for from in 1.. {
        let store = directory.path().join(from.to_string());
        let url = format!("file:{}?segment=1MiB", store.display());
        let environment = [
            ("LD_PRELOAD", library.clone()),
            ("WEIR_DISK_DIR", store.display().to_string()),
            ("WEIR_DISK_FAIL", format!("{from}:{}:{}:1", Errno::IO.raw_os_error(), usize::MAX >> 1)),
        ];
        let Ok(server) = Server::start_in(&url, &[], &environment) else { continue };
        let answer = server.client().put("/kv/zeros", &[0; 64 << 10]);
        server.kill();
        let outcome = answer.header("weir-outcome");
        let expected: &[u16] = match (answer.status, outcome) {
            (201, None) => &[200],
            (503, Some("not-applied")) => &[404],
            (504, Some("unknown")) => &[200, 404],
            other => panic!("{other:?}: {}", answer.text()),
        };
        let server = Server::start_in(&url, &[], &[]).unwrap();
        let status = server.client().get("/kv/zeros").status;
        assert!(expected.contains(&status), "call {from}: {status} after {outcome:?}");
        if answer.status == 201 {
            break;
        }
        failures += 1;
    }
    assert!(failures > 1, "a write and a flush fail");
}
