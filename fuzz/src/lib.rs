//! The targets of the fuzzer: functions that take any bytes and panic only if something is wrong.
//!
//! Each has a file in `libfuzzer/targets/`, where bytes are made for it, and a directory in `corpora/`, whose files the test
//! below gives to it.

pub mod http1;
pub mod lab;
mod splits;

pub use load::fuzz as load;
pub use server::fuzz as server;
pub use store::fuzz as store;

/// A function that takes any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("request", http1::request),
    ("response", http1::response),
    ("answer", load::answer),
    ("dialect", load::dialect),
    ("workers", load::workers),
    ("log", store::log),
    ("segments", store::segments),
    ("experiment", lab::experiment),
    ("results", lab::results),
    ("audit", lab::audit),
    ("s3", server::s3),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn every_file_of_the_corpora_is_read_as_it_should_be() {
        for (name, target) in TARGETS {
            let mut files = 0;
            for file in fs::read_dir(Path::new("corpora").join(name)).unwrap() {
                target(&fs::read(file.unwrap().path()).unwrap());
                files += 1;
            }
            assert!(files > 0, "{name}");
        }
    }
}
