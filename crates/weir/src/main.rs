//! The binary: hands the command line to [`cmd`] and exits with what it says.

mod cmd;

use std::process::ExitCode;

// Every request of a PUT or a miss allocates a few times, on several threads; see docs/decisions/0002-dependencies.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cmd::run(std::env::args_os())
}
