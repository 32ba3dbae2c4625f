//! A site as large as OpenDev, lived through: the real rules of gate and capacity behind the real shells, on a durable
//! log; code review, mergers, workers and the clock are made up.
//!
//! The proportions are those published of OpenDev: some 1,000 projects with jobs, most of them in one tenant; 50,000
//! builds on a working day; 900 nodes; busy hours and quiet week-ends ([`config`], [`life`]). Nothing draws lots and
//! nothing reads a clock: the same number of events is the same history, but for the name of the site that the log draws
//! for itself.
//!
//! What is left out: changes of the configuration itself after the first, comments that ask for nothing, tags and
//! releases, images.

mod answers;
mod chance;
pub mod config;
mod forge;
mod host;
pub mod life;
mod site;

pub use chance::Chance;
pub use config::tenant_file;
pub use site::{Made, OpenDev, Progress};

use gatelog_record::{Domain, Partition};

/// The gate's partition.
pub const GATE: Partition = Partition { domain: Domain::Gate, index: 0 };
/// Capacity's partition.
pub const CAPACITY: Partition = Partition { domain: Domain::Capacity, index: 0 };
