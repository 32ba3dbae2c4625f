//! Steps at which a test may have the process die: [`pass`] stands between any two that must not be taken for one.
//!
//! A crash test wants to kill a process exactly between an append and its acknowledgement, between a batch and the
//! position that is published, between an effect and its answer. Such a place calls [`pass`] with a name of its own,
//! `area/step`. What happens there is for the binary to say, which installs a hook when it is asked to
//! (`GATELOG_FAILPOINTS`); this module kills nobody and knows no environment.
//!
//! In a build without debug assertions, which every release is, [`pass`] is empty, there is no hook, and the names are
//! not in the binary. `tests/it/failpoints.rs` compiles this file both ways and shows it.

#[cfg(debug_assertions)]
static HOOK: std::sync::OnceLock<fn(&'static str)> = std::sync::OnceLock::new();

/// Has every step from here on told to `hook`; the first one installed stays.
#[cfg(debug_assertions)]
pub fn install(hook: fn(&'static str)) {
    // A second hook would only be a second reader of the same wish.
    let _ = HOOK.set(hook);
}

/// A step named `area/step` is reached.
#[inline(always)]
pub fn pass(name: &'static str) {
    #[cfg(debug_assertions)]
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
