//! Frames of relays from anybody.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_placement::replicated::fuzz_frame(data));
