//! Makes bytes for the target `results`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::lab::results(data));
