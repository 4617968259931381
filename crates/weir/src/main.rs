//! The binary: hands the command line to the library and exits with what it says.

use std::process::ExitCode;

// Every request of a PUT or a miss allocates a few times, on several threads; see docs/decisions/0002-dependencies.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    weir::run()
}
