//! `weir serve` (to be written)

use super::Failure;

/// To be written.
#[derive(clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: Args) -> Result<(), Failure> {
    Ok(())
}
