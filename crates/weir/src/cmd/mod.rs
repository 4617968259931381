//! The command line: one file per sub-command, and how their failures are reported.
//!
//! Only this crate prints to the terminal. A sub-command reads its flags, assembles the parts and reports; what the parts do is
//! decided in their crates.

#[cfg(feature = "lab")]
mod audit;
mod client;
#[cfg(feature = "lab")]
mod compare;
mod completions;
mod export;
#[cfg(feature = "lab")]
mod given;
mod import;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod link;
mod load;
mod load_worker;
mod man;
mod progress;
mod replica;
#[cfg(feature = "lab")]
mod report;
#[cfg(feature = "lab")]
mod selftest;
mod serve;
mod store;
mod token;
mod usage;

use clap::{Parser, Subcommand};
use kv::Error;
use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

/// A signal that comes so soon after the first is the same one: `timeout` sends it to the process and to its group.
const SAME_SIGNAL: Duration = Duration::from_secs(1);
const WRITABLE: &str = "name a file in a folder that is there and that you may write to";

/// An HTTP key-value store with a cache over a durable database, and tools that measure it.
#[derive(Parser)]
#[command(name = "weir", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The failure of a store, which says what to do behind its first semicolon.
fn of_store(error: &::store::Error) -> Error {
    let text = error.to_string();
    let (what, remedy) = text.split_once("; ").unwrap_or((&text, ""));
    let is_input = error.kind() == ::store::Kind::Config;
    if is_input { Error::input(what) } else { Error::new(what) }.hint(remedy)
}

/// The sub-commands: of each row a variant of [`Command`] and its call; the row’s file has `Args` and `run`.
macro_rules! commands {
    ($($(#[$condition:meta])* $name:ident($file:ident),)*) => {
        #[derive(Subcommand)]
        enum Command {
            $($(#[$condition])* $name(Box<$file::Args>),)*
        }

        impl Command {
            fn run(self) -> Result<(), Error> {
                match self {
                    $($(#[$condition])* Command::$name(args) => $file::run(*args),)*
                }
            }
        }
    };
}

commands! {
    Serve(serve),
    Load(load),
    #[cfg(feature = "lab")]
    Lab(lab),
    #[cfg(feature = "lab")]
    Compare(compare),
    #[cfg(feature = "lab")]
    Report(report),
    #[cfg(feature = "lab")]
    Audit(audit),
    #[cfg(feature = "lab")]
    Selftest(selftest),
    Export(export),
    Import(import),
    Token(token),
    Store(store),
    Replica(replica),
    LoadWorker(load_worker),
    Completions(completions),
    Man(man),
    #[cfg(feature = "lab")]
    Link(link),
}

/// Runs the command line of this process and gives its exit code: 0 done, 1 failed, 2 wrong input, 3 what was measured does not
/// meet a demand.
pub fn run() -> ExitCode {
    let words: Vec<OsString> = env::args_os().collect();
    let done = Cli::try_parse_from(&words)
        .map_or_else(|error| usage::usage(&error, &words), |cli| cli.command.run());
    match done.and_then(|()| said()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// Why something could not be printed, the first time: a command that did all else has failed then.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// Prints a line on standard output. A closed pipe is the reader's choice, not a failure.
pub(crate) fn say(line: impl Display) {
    write_out(format!("{line}\n").as_bytes());
}

fn write_out(bytes: &[u8]) {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => drop(UNSAID.set(error)),
        _ => {}
    }
}

/// Whether all that was printed arrived.
fn said() -> Result<(), Error> {
    let Some(why) = UNSAID.get() else { return Ok(()) };
    Err(Error::new(format_args!("cannot write to standard output: {why}")))
}

/// Prints a line on standard error.
pub(crate) fn note(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// `1 client`, `16 clients`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Prints a value as one line of JSON. Standard output is flushed at the end of every line, so that it passes a pipe at once.
pub(crate) fn say_json(value: &impl serde::Serialize) -> Result<(), Error> {
    let line = serde_json::to_string(value)
        .map_err(|error| Error::new(format_args!("cannot write the result as JSON: {error}")))?;
    say(line);
    Ok(())
}

/// Prints a document for programs: its version, and what is in it.
#[cfg(feature = "lab")]
pub(crate) fn say_document(content: &impl serde::Serialize) -> Result<(), Error> {
    #[derive(serde::Serialize)]
    struct Document<'a, T> {
        format: u32,
        #[serde(flatten)]
        content: &'a T,
    }
    say_json(&Document { format: kv::proto::FORMAT, content })
}

/// Reads what the command line names: `what` it is, and what to name instead.
pub(crate) fn read_text(path: &Path, what: &str, hint: &str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| {
        Error::input(format_args!("cannot read {what}{}: {error}", path.display())).hint(hint)
    })
}

/// `text` as a string of TOML, which is written as in JSON, but for one character.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\x7f', "\\u007f")
}

/// Sees that a file can be written there, before something is measured for it. What is in it stays.
pub(crate) fn check_writable(path: &Path) -> Result<(), Error> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| Error::input(cannot_write(path, &error)).hint(WRITABLE))
}

pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| Error::new(cannot_write(path, &error)).hint(WRITABLE))
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}

/// Prints why the command failed, without the passwords in what was given: a URL may stand where it does not belong.
fn complain(error: &Error) {
    let variables = env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_"));
    let given = env::args_os().chain(variables.map(|(_, value)| value));
    let text = given.fold(error.to_string(), |text, word| without_password(text, &word.to_string_lossy()));
    note(format_args!("error: {text}"));
}

/// `text` without the password of the URL `given`, as a whole or as a part: `--FLAG=URL`, or one of a list.
pub(crate) fn without_password(text: String, given: &str) -> String {
    let value = given.split_once('=').map(|(_, value)| value);
    // The longer ones first: a part of a part may look harmless.
    let parts = [given].into_iter().chain(value).chain(given.split(',')).chain(given.split(['=', ',']));
    parts.fold(text, |text, part| match ::store::redacted(part) {
        shown if shown != part => text.replace(part, &shown),
        _ => text,
    })
}
