//! Parse, accessors, edits and builders of `asterism-packet` on arbitrary frames.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_packet::fuzz::fuzz_packet(data));
