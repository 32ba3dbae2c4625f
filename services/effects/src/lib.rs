//! The reconcilers: they read work that the gate's fold left pending, do it in the world, and append
//! the outcome as a new input.
//!
//! Nothing here decides. An effect may be done twice (after a crash, after a lost acknowledgement)
//! and must then be done once: commits come out the same, a branch moves only from where it was, a
//! report carries its id, a node is named after its id.

pub mod artifacts;
pub mod chain;
mod checkouts;
pub mod config_read;
pub mod connection;
pub mod dispatch;
pub mod freeze;
pub mod git;
mod given;
mod handing_on;
pub mod layout;
pub mod nodes;
mod patience;
mod pins;
pub mod prepare;
pub mod returned;
pub mod review;
mod room;
pub mod secrets;
pub mod share;
pub mod sources;
pub mod spec;
mod together;
pub mod tokens;
pub mod used;
mod vars_file;
pub mod worker;
pub mod workspace;
