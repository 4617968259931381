//! Instruments of the developers: one file or folder for each command.

mod cycles;
mod score;

use clap::{Parser, Subcommand};
use kv::Error;
use std::process::ExitCode;

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
    Score(score::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Cycles => cycles::run().map_err(Error::new),
        Command::Score(args) => score::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(if error.is_input() { 2 } else { 1 })
        }
    }
}
