//! Holds what is read to the room it says it needs: beyond that there is no memory, and the fuzzer sees the process end.

use std::alloc::System;
use std::path::PathBuf;
use std::sync::LazyLock;

use cap::Cap;

#[global_allocator]
static MEMORY: Cap<System> = Cap::new(System, usize::MAX);

/// Lets `read` take at most so many bytes of memory at once.
pub fn within<T>(most: usize, read: impl FnOnce() -> T) -> T {
    MEMORY.set_limit(MEMORY.allocated().saturating_add(most)).expect("the limit is above what is taken");
    let given = read();
    MEMORY.set_limit(usize::MAX).expect("there is no limit");
    given
}

/// A file in memory, for readers of files.
#[allow(dead_code, reason = "not every target reads files")]
pub fn scratch() -> &'static PathBuf {
    static SCRATCH: LazyLock<PathBuf> =
        LazyLock::new(|| PathBuf::from(format!("/dev/shm/gatelog-fuzz-{}", std::process::id())));
    &SCRATCH
}
