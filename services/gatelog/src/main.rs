//! The program: the library's command line, with its allocator.

/// A site allocates small texts without end, in many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    gatelog::run(&gatelog::Parts::default())
}
