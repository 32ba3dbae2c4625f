//! What jobs leave in their log directories (Zuul: `zuul.executor.log_root`): kept by digest, listed in a manifest for
//! each attempt of a build, and removed by rules of age and size.
//!
//! - [`manifest`]: what was kept of an attempt, what was left out and why, what was removed and by which rule;
//! - [`collect`]: what lies in a log directory, without following anything a job may have put there;
//! - [`store`]: a directory or S3, with the same keys in both;
//! - [`keep`]: from a log directory into the store;
//! - [`retention`]: what goes next, and its removal.
//!
//! Keys of the store:
//!
//! ```text
//! files/<first two digits>/<SHA-256>    content, the same for everybody who left it
//! attempts/<build>/<attempt>.json       the manifest; written before the files it names
//! removed/<build>/<attempt>.json        when and by which rule it went; stays
//! ```
//!
//! This crate knows builds by their ids alone: nothing of the log, of Ansible, of HTTP.

pub mod collect;
mod http;
pub mod keep;
pub mod manifest;
pub mod mime;
pub mod retention;
pub mod store;

pub use collect::KeepLimits;
pub use manifest::{Digest, KeptFile, LeftOut, Manifest, Removal};
pub use retention::{Plan, Planned, Rules};
pub use store::{LogStore, S3Config, StoreError};
