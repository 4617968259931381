//! `weir agent`: a load generator that waits for `weir load --agents`, until it is told to end.

use super::serve::{end, start_log};
use super::{Failure, note, say, with_hint};
use load::agents::{Agent, Token};
use std::env::{self, VarError};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the token stands if no file is named. Never a flag: command lines can be read by everybody on the machine.
const TOKEN_VARIABLE: &str = "WEIR_AGENT_TOKEN";

/// Put load on servers when a coordinator asks for it: `weir load --agents` on this machine or another.
///
/// Serves one coordinator at a time, and goes on after each. Whoever holds the token can have it put load on anything that
/// this machine reaches. What is said is not encrypted: between machines, take `ssh -L`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,

    /// The file with the token that coordinators must hold, at least 16 characters [env: WEIR_AGENT_TOKEN has the token itself]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let token = token(args.token_file.as_deref())?;
    start_log();
    let agent = Agent::start(args.listen, token).map_err(|error| {
        Failure::input(format!("cannot listen on {}: {error}", args.listen))
            .hint("Stop what listens there, or choose another port; --listen 127.0.0.1:0 takes a free one.")
    })?;
    // Before anybody is told: whoever reads the address may end the agent at once.
    let wait_for_end = end()?;
    say(format_args!("{} {}", kv::proto::LISTENING, agent.address()));
    if !agent.address().ip().is_loopback() {
        note(
            "warning: other machines can reach this agent, and what is said is not encrypted; better take ssh -L",
        );
    }
    wait_for_end();
    agent.say_goodbye();
    Ok(())
}

/// The token in `file`, or else in the environment.
pub(super) fn token(file: Option<&Path>) -> Result<Token, Failure> {
    let token = match file {
        Some(file) => Token::of_file(file),
        None => match env::var(TOKEN_VARIABLE) {
            Ok(token) => Token::new(&token).map_err(|why| format!("{TOKEN_VARIABLE}: {why}")),
            Err(VarError::NotPresent) => {
                return Err(Failure::input("agents and coordinators need a token that they share").hint(
                    format_args!("Give both the same --token-file FILE, or set {TOKEN_VARIABLE} for both."),
                ));
            }
            Err(VarError::NotUnicode(_)) => Err(format!("{TOKEN_VARIABLE} is no text")),
        },
    };
    token.map_err(|why| with_hint(why, Failure::input))
}
