//! `weir link`: what `weir lab` sets between generator and server as a network. Hidden: it serves nobody else.

use super::say;
use kv::Error;
use kv::proto::{LISTENING, LinkAccount};
use kv::units::{BitRate, Span};
use lab_run::link;
use std::io::{self, BufReader};
use std::net::ToSocketAddrs;

/// Forward TCP connections to another address, with a limited rate and a delay; a line `stats` on standard input is answered with a line
/// of JSON; the process ends when standard input ends.
#[derive(clap::Args)]
#[command(hide = true)]
pub(crate) struct Args {
    /// Where to connect to
    #[arg(long, value_name = "HOST:PORT")]
    to: String,

    /// Most bits a second in each direction, over all connections, as in 10mbit [default: no limit]
    #[arg(long, value_name = "RATE")]
    rate: Option<BitRate>,

    /// How long all bytes take, in each direction
    #[arg(long, value_name = "TIME", default_value = "0s")]
    delay: Span,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let to = args.to.to_socket_addrs().ok().and_then(|mut found| found.next()).ok_or_else(|| {
        Error::input(format_args!("--to {} is no address", args.to)).hint("write HOST:PORT")
    })?;
    let failure = |error: io::Error| Error::new(format_args!("the link cannot listen: {error}"));
    // Whoever started it holds the other end of its standard input, and with that ends this process.
    let questions = BufReader::new(io::stdin());
    let listening = |address| say(format_args!("{LISTENING} {address}"));
    // Plain numbers: nothing in it can fail to be written down.
    let answer = |account: &LinkAccount| say(serde_json::to_string(account).unwrap_or_default());
    let bytes_per_sec = args.rate.map(BitRate::bytes_per_sec);
    link::run(to, bytes_per_sec, args.delay.0, questions, listening, answer).map_err(failure)
}
