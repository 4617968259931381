//! Makes bytes for the target `experiment`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::lab::experiment(data));
