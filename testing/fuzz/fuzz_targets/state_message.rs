//! State messages of a member that may say anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_placement::replicated::fuzz_handle(data));
