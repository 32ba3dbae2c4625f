//! The integration tests live in `main.rs` beside this; there is nothing here to call.
