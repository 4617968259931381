//! Makes bytes for the target `log`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::store::log(data));
