//! Connections as a process runs them: what they tell goes onto the intake, what is wrong with them is known.

pub mod intake;
pub mod troubles;
