//! Makes bytes for the target `response`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::http1::response(data));
