//! `weir completions`: scripts for shells, made from the command line itself.

use super::{Cli, write_out};
use clap::CommandFactory;
use clap_complete::Shell;
use kv::Error;

/// Print a script that completes the commands and flags of weir in a shell
///
/// bash: weir completions bash > ~/.local/share/bash-completion/completions/weir
/// zsh: weir completions zsh > DIRECTORY/_weir (DIRECTORY is one of $fpath)
/// fish: weir completions fish > ~/.config/fish/completions/weir.fish
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut script);
    write_out(&script);
    Ok(())
}
