//! Adapters: each driver behind what effects and intake ask of a connection.

pub mod git;
pub mod troubles;
