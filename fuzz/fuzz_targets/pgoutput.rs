#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| millpond_fuzz::run("pgoutput", bytes));
