//! What lies where.
//!
//! ```text
//! <root>/gate-0/l1-r1/db/                    the database of state schema live 1, read 1
//! <root>/gate-0/l1-r1/checkpoints/<sequence>/ copies of it, each with metadata.json
//! <root>/gate-0/l1-r1/incoming/               files of it in the making
//! <root>/gate-0/rungs/<sequence>-l1.rung     live tables alone
//! ```
//!
//! Each state schema has a directory of its own, so that a new one is built beside the old one; the
//! old one goes when the new one has caught up.

use std::path::{Path, PathBuf};

use gatelog_record::Partition;

use crate::disk::{names, remove};
use crate::error::StoreError;
use crate::position::SchemaVersion;

/// The directories of one partition's projections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    home: PathBuf,
}

impl Layout {
    /// Below the root of all projections of a site.
    pub fn new(root: &Path, partition: Partition) -> Layout {
        Layout { home: root.join(format!("{}-{}", partition.domain, partition.index)) }
    }

    /// The partition's directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The directory of one state schema: what is deleted to have it built again.
    pub fn schema(&self, version: SchemaVersion) -> PathBuf {
        self.home.join(version.to_string())
    }

    /// The database of one state schema.
    pub fn database(&self, version: SchemaVersion) -> PathBuf {
        self.schema(version).join("db")
    }

    /// The checkpoints of one state schema.
    pub fn checkpoints(&self, version: SchemaVersion) -> PathBuf {
        self.schema(version).join("checkpoints")
    }

    /// Files of one state schema's database in the making. Nothing that lies here counts.
    pub fn incoming(&self, version: SchemaVersion) -> PathBuf {
        self.schema(version).join("incoming")
    }

    /// The rungs, of all versions of the live tables.
    pub fn rungs(&self) -> PathBuf {
        self.home.join("rungs")
    }

    /// The state schemas that are there.
    pub fn schemas(&self) -> Result<Vec<SchemaVersion>, StoreError> {
        let mut found: Vec<SchemaVersion> = names(&self.home)?.iter().filter_map(|name| name.parse().ok()).collect();
        found.sort();
        Ok(found)
    }

    /// Deletes the projections of every other state schema. Called when this one has caught up with
    /// the log; until then going back to the gatelog before costs nothing.
    pub fn retire_others(&self, keep: SchemaVersion) -> Result<Vec<SchemaVersion>, StoreError> {
        let others: Vec<SchemaVersion> = self.schemas()?.into_iter().filter(|found| *found != keep).collect();
        for other in &others {
            remove(&self.schema(*other))?;
        }
        Ok(others)
    }

    /// Deletes all that was folded: the projections of every state schema, and every rung. The log is
    /// not touched; from it they are made again.
    ///
    /// # Errors
    /// `System`.
    pub fn delete_all(&self) -> Result<(), StoreError> {
        remove(&self.home)
    }
}
