#![no_main]

#[path = "../bodies/record.rs"]
mod bodies;
#[path = "../limits.rs"]
mod limits;

use limits::within;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::codec(data));
