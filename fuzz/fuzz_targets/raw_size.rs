#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| conformance::hostile::fuzz("raw_size", bytes));
