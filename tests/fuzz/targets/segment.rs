#![no_main]

#[path = "../limits.rs"]
mod limits;

use gatelog_log_embedded::fuzzing;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::segment(data, limits::scratch(), &|most, read| limits::within(
    most, read
)));
