//! Instruments of the developers: one file or folder for each command.

mod cycles;
mod mutate;
mod score;

use clap::{Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

/// Instruments of the developers of weir.
#[derive(Parser)]
#[command(name = "xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Find files of a crate that use each other in a circle
    Cycles,
    Mutate(mutate::Args),
    Score(score::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Cycles => cycles::run(),
        Command::Mutate(args) => mutate::run(&args),
        Command::Score(args) => score::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// The paths of all files below `folder`.
fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(files_below(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    Ok(files)
}
