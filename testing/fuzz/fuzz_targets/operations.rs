//! Operation groups and images of a member that may say anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| asterism_function::testkit::fuzz_apply(data));
