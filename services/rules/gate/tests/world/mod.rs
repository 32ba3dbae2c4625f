//! A world that answers the gate's pending work.

pub mod answers;
pub mod forge;
pub mod laws;
pub mod operators;
pub mod rarer;
pub mod script;
pub mod shell;
