//! What code-review systems sent, and the tables by which it is routed.

use serde::{Deserialize, Serialize};

use crate::draft::gate::TenantLoaded;
use crate::id::BlobHash;
use crate::sealed::Sealed;
use crate::value::Value;

/// An event of a code-review system, in the fields rules need; the rest is under seal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForgeEvent {
    /// The connection it came by.
    pub connection: String,
    /// The project's canonical name (`host/path`).
    pub project: String,
    /// The event's name in the driver's terms (`change-proposed`, `change-approved`, `ref-updated`, …).
    pub event: String,
    /// The branch, where there is one.
    pub branch: Option<String>,
    /// The full ref.
    pub git_ref: String,
    /// The change, by its id within the project.
    pub change: Option<String>,
    /// The patchset.
    pub patchset: Option<String>,
    /// The commit the ref now names.
    pub commit: Option<String>,
    /// The commit it named before.
    pub old_commit: Option<String>,
    /// What only this driver knows.
    pub attributes: Value,
    /// The delivery: repeats carry the same.
    pub delivery: String,
    /// The body as it came.
    pub raw: Option<Sealed>,
}

/// A tenant file came into force: from here on, events are routed by it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenantFile {
    /// Its version, from 1; named by each routed input.
    pub version: u64,
    /// The file itself.
    pub file: BlobHash,
    /// What it says of each tenant, in its order.
    pub tenants: Vec<TenantLoaded>,
}
