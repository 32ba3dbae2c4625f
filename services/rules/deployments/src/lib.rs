//! Deployment graphs: tasks, roles and nodes in, an order out; what has ended in, what may start next out. Pure.
//!
//! What is followed is Fuel's granular deployment, at the version 7.0: roles with numbers. Tasks on nodes with relations
//! across them are those of 8.0 and 9.2. Where Fuel hangs, loses order or fails by accident, [`plan`] does otherwise;
//! `docs/deployments.md` says where and why. [`oracle`] answers as Fuel does, for comparing.
//!
//! The way of a deployment: [`files`] reads lists of tasks, [`graph`] makes a graph of them and says what is wrong with
//! it, [`select`] takes a part, [`plan`] orders it for the nodes of a [`cluster`], and [`run`] says what may start next
//! whenever something has ended.
//!
//! Nothing here knows a clock, a file or a node that is real, and nothing from outside makes it panic.

pub mod cluster;
pub mod conditions;
pub mod fault;
pub mod files;
pub mod graph;
pub mod hooks;
pub mod marks;
pub mod names;
pub mod oracle;
pub mod plan;
pub mod priorities;
pub mod relations;
pub mod render;
pub mod run;
pub mod schema;
pub mod select;
pub mod task;
pub mod values;
pub mod version;

pub use cluster::{Cluster, Entry, Node};
pub use fault::Fault;
pub use graph::Graph;
pub use plan::Plan;
pub use select::Selection;
pub use task::Task;
pub use version::Version;
