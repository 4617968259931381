//! Makes bytes for the target `segments`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::store::segments(data));
