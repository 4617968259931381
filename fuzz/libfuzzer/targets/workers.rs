//! Makes bytes for the target `workers`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::load::workers(data));
