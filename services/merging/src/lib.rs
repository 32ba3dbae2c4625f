//! Bare mirrors and merges in memory: what a change looks like on top of what is ahead of it.
//!
//! A synchronous library. It knows repositories, branches, commits and files; it must never know
//! the log, pipelines, jobs, tenants or how a change was found. The caller decides when to ask and
//! records what it was told.
//!
//! - [`Mirrors`] keeps one bare mirror for each repository of each connection.
//! - [`Mirrors::prepare`] puts a chain of changes on top of each other without a work tree
//!   (Zuul: the merger's `merge` job).
//! - [`Mirrors::read_files`], [`Mirrors::repo_state`] and [`Mirrors::branches_containing`] answer
//!   questions (Zuul: `cat`, `refstate`); which files a change changes comes with its preparing.
//! - [`Mirrors::clone_workspace`] and [`Mirrors::materialize`] give an executor files to work with.
//!
//! # What is promised
//!
//! The same request gives the same commit ids, on any machine: identity comes from the configuration, dates from the
//! request, nothing from the clock, or from what the machine or its user has configured for git (but for what `sealed`
//! says of files that are written). A commit that exists in a mirror has all its history and files there. A process that
//! dies at any moment leaves a mirror that the next one can use or redoes.
//!
//! # What is not promised
//!
//! Power loss may leave a mirror damaged; it is then a named error and [`Mirrors::discard`] lets the
//! next fetch build a new one. What nobody needs any more is never removed from a mirror; its loose objects are only
//! gathered into packs now and then, when a workspace is made.

mod error;
mod fetch;
mod files;
mod kept;
mod known;
mod line;
mod mirrors;
mod names;
mod objects;
pub mod pick;
mod place;
mod prepare;
mod program;
mod rebase;
mod remote;
mod sealed;
mod seen;
mod state;
mod store;
mod trees;
mod workspace;

pub use error::MergeError;
pub use fetch::Fetched;
pub use files::{FileFilter, SourceFile, State};
pub use mirrors::{Aging, Identity, Limits, Mirrors, MirrorsConfig, Openings};
pub use names::{BranchKey, ProjectKey};
pub use pick::{MergeMode, Tally};
pub use prepare::{
    ChangedFiles, Conflict, FrozenBase, MergeItem, PrepareOutcome, PrepareRequest, Prepared, PreparedBranch,
    PreparedItem,
};
pub use remote::Access;
pub use seen::Moment;
pub use state::{RefState, RepoState};
pub use workspace::{BranchState, ObjectSharing, WorkspaceRequest};
