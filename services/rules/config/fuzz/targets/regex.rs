//! Any text as a regular expression, and as what it is matched with.
#![no_main]

#[path = "../bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::regex_any(data));
