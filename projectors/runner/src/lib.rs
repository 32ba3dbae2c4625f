//! Feeding a projection from the log: read, check, fold, commit, publish.
//!
//! - [`folder`]: [`Folder`], one step after the other, for whoever has a thread of their own;
//!   [`rebuild`] is a folder that begins anew.
//! - [`ahead`]: how a folder goes while the log is far ahead: reading and writing on threads of their own.
//! - [`runner`]: [`Runner`], the same on a thread for each partition, following the log.
//! - [`published`]: [`Published`], where the fold stands, with waits for those who block and for
//!   those who are futures.
//! - [`Fold`]: a partition as it is folded, whatever its domain; [`Folded`], of one that is known.
//!
//! What cannot be folded stops that partition's fold at a position, by name and for all to see
//! ([`Health`]); nothing else suffers. This crate never decides, appends or knows what a row means.

pub mod ahead;
mod error;
mod folded;
pub mod folder;
pub mod published;
pub mod runner;

pub use ahead::Ahead;
pub use error::RunnerError;
pub use folded::{Fold, Folded, Mark, folded};
pub use folder::{Folder, RunnerConfig, Stepped, rebuild};
pub use published::{Health, Published, Subscription, WaitError};
pub use runner::{Runner, Status};
