//! Makes bytes for the target `answer`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::load::answer(data));
