//! `cargo xtask mutate`: takes each guard of the guarantees out in turn, and sees whether a test fails.

use kv::Error;
use serde::Deserialize;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};

const GUARDS: &str = include_str!("guards.toml");

/// Take each guard of the guarantees out in turn, in the files of this directory, and run the tests that have to fail then
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only guards whose name contains this
    #[arg(default_value = "")]
    name: String,
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
        let is_seen = guard.is_seen()?;
        println!("{}  {}", if is_seen { "seen    " } else { "NOT SEEN" }, guard.name);
        unseen.extend((!is_seen).then_some(guard.name.as_str()));
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
    /// Whether a test fails without it.
    fn is_seen(&self) -> Result<bool, Error> {
        let path = Path::new(&self.file);
        let unreadable = |error| Error::new(format_args!("cannot change {}: {error}", self.file));
        let text = fs::read_to_string(path).map_err(unreadable)?;
        fs::write(path, text.replace(&self.code, &self.instead)).map_err(unreadable)?;
        let ran = self
            .tests
            .iter()
            .map(|arguments| self.tests_pass(arguments))
            .collect::<Result<Vec<bool>, Error>>();
        fs::write(path, text).map_err(unreadable)?;
        Ok(ran?.contains(&false))
    }

    fn tests_pass(&self, arguments: &str) -> Result<bool, Error> {
        let cargo = |more: &[&str]| -> Result<ExitStatus, Error> {
            let mut cargo = Command::new("cargo");
            cargo.args(["test", "--locked", "--quiet"]).args(arguments.split(' ')).args(more);
            let done = cargo.output();
            done.map(|output| output.status)
                .map_err(|error| Error::new(format_args!("cannot run cargo: {error}")))
        };
        if !cargo(&["--no-run"])?.success() {
            return Err(Error::new(format_args!("without this guard it does not compile: {}", self.name)));
        }
        Ok(cargo(&[])?.success())
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
