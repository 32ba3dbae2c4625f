//! The local cloud: nodes are sandboxes on this host.
//!
//! A node is a directory named by its node id. It becomes the home of whatever a build runs on it;
//! the sandbox itself is made by the executor for each playbook and shows this directory and nothing
//! of other nodes. So a node costs nothing while nothing runs on it, and survives a restart.
//!
//! [`contract`] is what gatelog asks of any cloud; [`LocalCloud`] is this one.

pub mod contract;
mod local;

pub use contract::{Capacity, Cloud, CloudError, NodeConnection, NodeFound, NodeReady, NodeRequest};
pub use local::{Label, LocalCloud, LocalCloudConfig, SweepReport};
