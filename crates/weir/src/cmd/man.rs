//! `weir man`: manual pages, made from the command line itself.

use super::{Cli, counted, say};
use clap::CommandFactory;
use kv::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Write the manual pages (weir.1, weir-serve.1, …)
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to write them
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let directory = &args.directory;
    let pages = write(directory).map_err(|error| {
        Error::new(format!("cannot write manual pages to {}: {error}", directory.display()))
            .hint("name a directory that this user may write to")
    })?;
    say(format_args!("{}: {}", directory.display(), counted(pages, "page")));
    Ok(())
}

/// How many there are.
fn write(directory: &Path) -> io::Result<u64> {
    fs::create_dir_all(directory)?;
    // Those of hidden commands are not written.
    clap_mangen::generate_to(Cli::command(), directory)?;
    let is_page = |file: &fs::DirEntry| file.file_name().to_string_lossy().starts_with("weir");
    let files = fs::read_dir(directory)?.filter_map(Result::ok).filter(is_page);
    Ok(files.count() as u64)
}
