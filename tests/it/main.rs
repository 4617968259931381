//! The integration tests: one binary, one module per subject, each through a public interface.

mod http1;
mod lab;
mod load;
