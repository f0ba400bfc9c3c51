//! Any bytes as the file of the embedded truth store: opened whole, or refused.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_truth_store::embedded::fuzz::fuzz_log(data));
