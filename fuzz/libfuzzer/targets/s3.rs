//! Makes bytes for the target `s3`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::server::s3(data));
