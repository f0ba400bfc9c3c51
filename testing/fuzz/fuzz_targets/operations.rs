//! Operation groups and images of a member that may say anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_state::fuzz::fuzz_apply(data));
