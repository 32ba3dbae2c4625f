//! Any text as a configuration file and as a tenant file: loaded, told about, frozen.
#![no_main]

#[path = "../bodies.rs"]
mod bodies;

static QUIET: std::sync::Once = std::sync::Once::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    // libFuzzer's own hook ends the process at every panic, also at those of the YAML parser that the loader catches.
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    bodies::load_any(data);
});
