//! The commands of the binary, as a library: Cargo compiles it beside the crates it uses, where a binary waits for them.

mod cmd;

pub use cmd::run;
