//! `cargo xtask mutate`: takes each guard of the guarantees out in turn, and sees whether a test fails.

use kv::Error;
use serde::Deserialize;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const GUARDS: &str = include_str!("guards.toml");

/// Take each guard of the guarantees out in turn, in the files of this directory, and run the tests that have to fail then
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only guards whose name contains this
    #[arg(default_value = "")]
    name: String,

    /// How long the tests of a guard may run: tests that hang without it see it, too
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
}

/// What the tests say of a guard that was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// A test fails.
    Failed,
    /// The tests do not end.
    Hung,
    /// All tests pass: none sees it.
    Passed,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guards {
    guard: Vec<Guard>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guard {
    name: String,
    file: String,
    code: String,
    instead: String,
    /// Arguments of `cargo test`.
    tests: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let changed = Command::new("git").args(["status", "--porcelain", "crates"]).output();
    let changed = changed.map_err(|error| Error::new(format_args!("cannot run git: {error}")))?;
    if !changed.stdout.is_empty() {
        return Err(Error::input("files below crates have changes")
            .hint("commit them: guards are taken out in place"));
    }
    let Guards { guard: guards } = guards();
    let mut unseen = Vec::new();
    for guard in guards.iter().filter(|guard| guard.name.contains(&args.name)) {
        let began = Instant::now();
        let seen = guard.seen(Duration::from_secs(args.limit))?;
        println!("{:4} s  {}: {seen:?}", began.elapsed().as_secs(), guard.name);
        unseen.extend((seen == Seen::Passed).then_some(guard.name.as_str()));
    }
    match unseen.as_slice() {
        [] => Ok(()),
        _ => Err(Error::new(format_args!("no test fails without: {}", unseen.join("; ")))),
    }
}

fn guards() -> Guards {
    toml::from_str(GUARDS).expect("guards.toml is part of this program, and a test reads it")
}

impl Guard {
    /// What the tests say without it.
    fn seen(&self, limit: Duration) -> Result<Seen, Error> {
        let path = Path::new(&self.file);
        let unreadable = |error| Error::new(format_args!("cannot change {}: {error}", self.file));
        let text = fs::read_to_string(path).map_err(unreadable)?;
        fs::write(path, text.replace(&self.code, &self.instead)).map_err(unreadable)?;
        let ran = self.tests.iter().map(|arguments| self.test(arguments, limit));
        let seen = ran.collect::<Result<Vec<Seen>, Error>>();
        fs::write(path, text).map_err(unreadable)?;
        Ok(seen?.into_iter().find(|seen| *seen != Seen::Passed).unwrap_or(Seen::Passed))
    }

    fn test(&self, arguments: &str, limit: Duration) -> Result<Seen, Error> {
        let cargo = |more: &[&str]| {
            let mut cargo = Command::new("cargo");
            cargo.args(["test", "--locked", "--quiet"]).args(arguments.split(' ')).args(more);
            cargo.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
            cargo
        };
        let failed = |error| Error::new(format_args!("cannot run cargo: {error}"));
        if !cargo(&["--no-run"]).status().map_err(failed)?.success() {
            return Err(Error::new(format_args!("without this guard it does not compile: {}", self.name)));
        }
        let mut tests = cargo(&[]).spawn().map_err(failed)?;
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if let Some(status) = tests.try_wait().map_err(failed)? {
                return Ok(if status.success() { Seen::Passed } else { Seen::Failed });
            }
            thread::sleep(Duration::from_millis(100));
        }
        // With what they started: a test that is killed does not end its servers.
        let group = rustix::process::Pid::from_child(&tests);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL)
            .map_err(|error| failed(error.into()))?;
        tests.wait().map_err(failed)?;
        Ok(Seen::Hung)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guard_is_in_its_file() {
        for guard in guards().guard {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&guard.file);
            let text = fs::read_to_string(path).unwrap();
            assert!(text.contains(&guard.code), "{}: {}", guard.file, guard.code);
        }
    }
}
