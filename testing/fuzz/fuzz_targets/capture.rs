//! Capture files, pcap and pcapng.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_io::port::fuzz_capture(data));
