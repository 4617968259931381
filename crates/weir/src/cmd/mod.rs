//! The command line: one file per sub-command, and how their failures are told.
//!
//! The only floor that prints to the terminal. A sub-command reads its flags, assembles the parts and reports;
//! what the parts do is decided below.

#[cfg(feature = "lab")]
mod audit;
#[cfg(feature = "lab")]
mod compare;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod link;
mod load;
mod load_worker;
mod replica;
#[cfg(feature = "lab")]
mod report;
#[cfg(feature = "lab")]
mod score;
#[cfg(feature = "lab")]
mod selftest;
mod serve;
mod usage;

use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::fmt::{self, Display};
use std::process::ExitCode;

/// An HTTP key-value store in tiers, and the instrument that measures it.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Serve(Box<serve::Args>),
    Load(load::Args),
    LoadWorker(load_worker::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    Replica(replica::Args),
    #[cfg(feature = "lab")]
    Report(report::Args),
    #[cfg(feature = "lab")]
    Compare(compare::Args),
    #[cfg(feature = "lab")]
    Audit(audit::Args),
    #[cfg(feature = "lab")]
    Score(score::Args),
    #[cfg(feature = "lab")]
    Selftest(selftest::Args),
    #[cfg(feature = "lab")]
    #[command(hide = true)]
    Link(link::Args),
}

/// Why a command ends without having done what was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What, where, why: one line.
    message: String,
    /// What to do about it.
    hint: Option<String>,
    code: u8,
}

impl Failure {
    /// The caller's mistake: a flag, a file, a URL, the environment. Exit code 2.
    pub(crate) fn input(message: impl Display) -> Failure {
        Failure { message: message.to_string(), hint: None, code: 2 }
    }

    /// Something that did not work although it was asked for rightly. Exit code 1.
    pub(crate) fn run(message: impl Display) -> Failure {
        Failure { message: message.to_string(), hint: None, code: 1 }
    }

    /// Says whose it is.
    fn of(self, whose: &str) -> Failure {
        Failure { message: format!("{whose}: {}", self.message), ..self }
    }

    /// Adds the remedy.
    pub(crate) fn hint(mut self, hint: impl Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }
}

impl Display for Failure {
    /// What `weir` says of it, after `error: `.
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, " | hint: {hint}"))
    }
}

/// Runs the command line `args` (the program's name first) and gives the process's exit code: 0 done, 1 failed,
/// 2 wrong input.
pub(crate) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = args.into_iter().collect();
    let done = match Cli::try_parse_from(&words) {
        Ok(cli) => match cli.command {
            Command::Serve(args) => serve::run(*args),
            Command::Load(args) => load::run(args),
            Command::LoadWorker(args) => load_worker::run(args),
            #[cfg(feature = "lab")]
            Command::Lab(args) => lab::run(args),
            Command::Replica(args) => replica::run(args),
            #[cfg(feature = "lab")]
            Command::Report(args) => report::run(args),
            #[cfg(feature = "lab")]
            Command::Compare(args) => compare::run(args),
            #[cfg(feature = "lab")]
            Command::Audit(args) => audit::run(args),
            #[cfg(feature = "lab")]
            Command::Score(args) => score::run(args),
            #[cfg(feature = "lab")]
            Command::Selftest(args) => selftest::run(args),
            #[cfg(feature = "lab")]
            Command::Link(args) => link::run(args),
        },
        Err(error) => usage::usage(&error, &words),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            complain(&failure);
            ExitCode::from(failure.code)
        }
    }
}

/// The floors below put the remedy behind a semicolon; here it becomes the hint.
pub(crate) fn with_hint(why: String, failure: fn(String) -> Failure) -> Failure {
    match why.rsplit_once("; ") {
        Some((what, remedy)) => {
            let mut letters = remedy.chars();
            let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
            let rest = letters.as_str();
            let stop = if rest.ends_with(['?', '.']) { "" } else { "." };
            failure(what.to_owned()).hint(format_args!("{first}{rest}{stop}"))
        }
        None => failure(why),
    }
}

/// Prints a line on standard output. A closed pipe is the reader's choice, not a failure.
pub(crate) fn say(line: impl Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Prints a line on standard error.
pub(crate) fn note(line: impl Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn complain(failure: &Failure) {
    note(format_args!("error: {failure}"));
}
