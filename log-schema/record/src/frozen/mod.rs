//! Released shapes. A file here never changes again: `tests/frozen.rs` holds it against its hash in
//! `frozen.lock`. A new version is a new file, and `From` of the version before it brings old bodies
//! up without borrowing anything from live code.

pub mod sample;
