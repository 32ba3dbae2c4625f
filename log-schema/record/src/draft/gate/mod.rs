//! The gate's own words: tenants, changes, items, buildsets, builds, reports.

mod access;
mod builds;
mod configuration;
mod holds;
mod leases;
mod leaving;
pub mod older;
mod preparing;
mod queueing;
mod returned;
mod subjects;
mod timers;
mod triggers;

pub use access::*;
pub use builds::*;
pub use configuration::*;
pub use holds::*;
pub use leases::*;
pub use leaving::*;
pub use preparing::*;
pub use queueing::*;
pub use returned::*;
pub use subjects::*;
pub use timers::*;
pub use triggers::*;
