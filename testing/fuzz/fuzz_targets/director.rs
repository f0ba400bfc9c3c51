//! Frames, commands and time for a director on ports in memory: every frame is counted once.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_director::fuzz::fuzz_director(data));
