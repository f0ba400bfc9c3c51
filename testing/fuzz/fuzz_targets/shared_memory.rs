//! Memory shared with a hostile process: greetings, indices, descriptors.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_io::port::fuzz_shared_memory(data));
