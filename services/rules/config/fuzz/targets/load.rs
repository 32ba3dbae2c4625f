//! Any text as a configuration file and as a tenant file: loaded, told about, frozen.
#![no_main]

#[path = "../bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::load_any(data));
