//! `weir man`: manual pages, made from the command line itself.

use super::Cli;
use clap::CommandFactory;
use kv::Error;
use std::fs;
use std::path::PathBuf;

/// Write the manual pages (weir.1, weir-serve.1, …)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write them
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let directory = &args.directory;
    // Those of hidden commands are not written.
    let written =
        fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(Cli::command(), directory));
    written.map_err(|error| {
        Error::new(format!("cannot write manual pages to {}: {error}", directory.display()))
            .hint("name a directory that this user may write to")
    })
}
