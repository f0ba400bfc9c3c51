//! What web caches tell, as digests, queries and reports, on arbitrary bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    asterism_functions::cache_digests::fuzz::fuzz_caches(data);
});
