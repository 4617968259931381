//! `weir load-worker`: its share of the load of a `weir load` that started it.

use kv::Error;
use load::workers;
use std::io;

/// Send a share of a load; `weir load --worker` starts it, here or on another machine.
///
/// It reads the plan from standard input and writes the result to standard output. It ends when standard input is closed.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: Args) -> Result<(), Error> {
    workers::work(io::stdin().lock(), io::stdout()).map_err(|line| {
        Error::input(format_args!("`{line}` on standard input is no order of `weir load`"))
            .hint("name this command in `weir load --worker`, which starts it")
    })
}
