//! `weir responder`: what `weir selftest` sets the load generator against. Hidden: it serves nobody else.

use super::{Failure, say};
use kv::proto::LISTENING;
use kv::units::Span;
use load_accuracy::responder::{self, KINDS, Options, Refusal, Schedule, Stall};
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Answer any GET, PUT and DELETE, delayed or wrong where told so, until standard input ends; then say what was done.
#[derive(clap::Args)]
#[command(after_help = kinds_help())]
pub(crate) struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// From having read a request to answering it
    #[arg(long, value_name = "TIME", default_value = "0s")]
    delay: Span,

    /// Freeze once, so long after the first request and for so long, as in 1s:500ms
    #[arg(long, value_name = "AT:LENGTH", value_parser = stall)]
    stall: Option<Stall>,

    /// What is to become of the first requests, in random order, as in good=900,reset=100; the kinds are listed below
    #[arg(long, value_name = "KIND=COUNT,…")]
    faults: Option<Schedule>,

    /// What that order is drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Refuse connections for so long once so many clients have asked, as in 100:300ms; the faults begin afterwards
    #[arg(long, value_name = "CLIENTS:LENGTH", value_parser = refusal)]
    refuse: Option<Refusal>,

    /// How many keys each client counts its requests in
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys_per_client: Option<u64>,

    /// Keep when each request came
    #[arg(long)]
    arrivals: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let options = Options {
        listen: args.listen,
        delay: args.delay.0,
        stall: args.stall,
        schedule: args.faults,
        seed: args.seed,
        refusal: args.refuse,
        keys_per_client: args.keys_per_client,
        arrivals: args.arrivals,
    };
    let failure = |error: io::Error| Failure::run(format_args!("the responder cannot go on: {error}"));
    let (until, end) = UnixStream::pair().map_err(failure)?;
    // Whoever started it holds the other end of its standard input, and with them ends this process.
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        drop(end);
    });
    let truth = responder::run(&options, &until, &mut |address| say(format_args!("{LISTENING} {address}")))
        .map_err(failure)?;
    say(serde_json::to_string(&truth).map_err(|error| failure(error.into()))?);
    Ok(())
}

fn stall(text: &str) -> Result<Stall, String> {
    let (at, length) = text.split_once(':').ok_or("write AT:LENGTH, as in 1s:500ms")?;
    Ok(Stall { at: span(at)?, length: span(length)? })
}

fn refusal(text: &str) -> Result<Refusal, String> {
    let (clients, length) = text.split_once(':').ok_or("write CLIENTS:LENGTH, as in 100:300ms")?;
    let clients = clients.parse().map_err(|_| format!("{clients:?} is no number of clients"))?;
    Ok(Refusal { clients, length: span(length)? })
}

fn span(text: &str) -> Result<Duration, String> {
    text.parse().map(|Span(length)| length)
}

fn kinds_help() -> String {
    let mut text = String::from("Kinds:");
    for kind in KINDS {
        let _ = write!(text, "\n  {:<24} {}", kind.name, kind.about);
    }
    text
}
