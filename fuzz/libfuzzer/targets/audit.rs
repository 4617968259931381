//! Makes bytes for the target `audit`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::lab::audit(data));
