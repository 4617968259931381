//! Makes bytes for the target `dialect`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::load::dialect(data));
