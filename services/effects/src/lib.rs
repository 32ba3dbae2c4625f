//! The reconcilers: they read work that a domain's fold left pending, do it in the world, and append
//! the outcome as a new input. [`dispatch`] is the same for every domain; [`perform`] does the gate's.
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
mod lanes;
pub mod layout;
pub mod nodes;
mod patience;
pub mod perform;
mod pins;
pub mod prepare;
mod resting;
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
