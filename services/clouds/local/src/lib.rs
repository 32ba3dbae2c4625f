//! The local cloud: nodes are sandboxes on this host.
//!
//! A node is a directory named by its node id. It becomes the home of whatever a build runs on it;
//! the sandbox itself is made by the executor for each playbook and shows this directory and nothing
//! of other nodes. So a node costs nothing while nothing runs on it, and survives a restart. It is there as soon as it
//! was asked for.
//!
//! [`DRIVER`] is this cloud in the list of clouds; [`LocalCloud`] is the cloud itself.

mod error;
mod local;
mod settings;

pub use error::LocalError;
pub use local::{Label, LocalCloud, LocalCloudConfig, SweepReport};
pub use settings::{DRIVER, LocalSettings};
