//! Offload headers and the packets they describe, as an interface or a peer may claim them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_io::port::fuzz_offload(data));
