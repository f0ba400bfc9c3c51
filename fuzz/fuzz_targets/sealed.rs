//! Sealed datagrams and handshakes from anybody.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_placement::seal::fuzz_open(data));
