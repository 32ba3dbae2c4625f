#![no_main]

#[path = "../bodies/export.rs"]
mod bodies;
#[path = "../limits.rs"]
mod limits;

use limits::within;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::export(data));
