//! Makes bytes for the target `request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http1::request(data));
