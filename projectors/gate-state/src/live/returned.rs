//! Blobs with what builds returned, from the outcome that names them to their removal.

use gatelog_record::draft::gate::ReturnedBlob;
use gatelog_record::{BuildId, Timestamp};
use gatelog_tables::TableDef;
use gatelog_tables::table::Life;
use serde::{Deserialize, Serialize};

/// Builds of which something is in blobs of their own. A row leaves when these are removed: as many rows as the site's
/// setting keeps.
#[derive(Debug)]
pub struct Returned;
impl TableDef for Returned {
    const ID: u16 = 40;
    const NAME: &'static str = "returned";
    const LIFE: Life = Life::Live;
    type Key = BuildId;
    type Row = ReturnedRow;
}

/// What a build returned beyond what its records carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReturnedRow {
    /// The tenant.
    pub tenant: String,
    /// The blobs of all its attempts, each once.
    pub blobs: Vec<ReturnedBlob>,
    /// How far they are.
    pub state: ReturnedState,
}

/// How far the blobs with what a build returned are in their life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReturnedState {
    /// The build is there: jobs that need it read them.
    InUse,
    /// Its item left, or its buildset was given up.
    Unused {
        /// When.
        since: Timestamp,
    },
    /// Nobody reads them any more; they are to be removed.
    Dropped {
        /// Since when.
        at: Timestamp,
    },
}
