#![no_main]

#[path = "../bodies/rung.rs"]
mod bodies;
#[path = "../limits.rs"]
mod limits;

use limits::within;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::rung(data, limits::scratch()));
