//! Sealed datagrams and handshakes from anybody.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_secure_channel::fuzz_open(data));
