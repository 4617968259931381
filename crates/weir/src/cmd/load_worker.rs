//! `weir load-worker`: its share of the load of a `weir load` that started it.

use kv::Error;
use load::workers;
use std::io;

/// Put on a share of a load: what `weir load --worker` starts, here or on another machine.
///
/// The plan comes on standard input, and the result leaves on standard output. The load ends when standard input does.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<(), Error> {
    workers::work(io::stdin().lock(), io::stdout()).map_err(|line| {
        Error::input(format_args!("`{line}` on standard input is no order of `weir load`"))
            .hint("name this command in `weir load --worker`, which starts it")
    })
}
