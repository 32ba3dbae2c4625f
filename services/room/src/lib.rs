//! Whether this host has room, and who waits for it.
//!
//! A full disk, a file system without inodes or one that is read-only, no file descriptors, no memory, no process
//! numbers: that this server cannot write, open or start something says nothing of a change. [`Lack`] is the one place
//! that tells such a failure from others; [`Room`] knows what waits until there is room, for health and for the server's
//! log; [`Measure`](measure) says how much there is. What a change's author reads names no path of this server:
//! [`without_paths`].

mod lack;
pub mod measure;
mod paths;
mod waiting;

pub use lack::Lack;
pub use paths::without_paths;
pub use waiting::{Pause, Room, Trouble, Waiting};
