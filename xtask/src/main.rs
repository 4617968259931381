//! Instruments of the developers: `cargo run -p xtask -- COMMAND`.

mod cycles;

use std::process::ExitCode;

/// Every command, with what it does.
const COMMANDS: &[(&str, &str, fn() -> Result<(), String>)] =
    &[("cycles", "find files of a crate that use each other in a circle", cycles::run)];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let done = match COMMANDS.iter().find(|(known, ..)| *known == name) {
        Some((_, _, run)) => run(),
        None => {
            let known = COMMANDS.iter().map(|(name, about, _)| format!("\n  {name}  {about}"));
            Err(format!("unknown command {name:?}; the commands are:{}", known.collect::<String>()))
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}
