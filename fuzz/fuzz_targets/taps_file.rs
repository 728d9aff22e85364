#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| conformance::hostile::fuzz("taps_file", bytes));
