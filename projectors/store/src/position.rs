//! Where a projection stands.

use std::fmt;
use std::str::FromStr;

use gatelog_record::event::PartitionEvent;
use gatelog_record::{ChainLink, Event, EventRecord, SiteId, Timestamp};
use gatelog_tables::DomainState;
use serde::{Deserialize, Serialize};

/// Where a state stands on its partition's history. Committed in one batch with the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The newest event folded; 0 before the first.
    pub sequence: u64,
    /// Its term.
    pub term: u64,
    /// Its link.
    pub link: ChainLink,
    /// When it was decided.
    pub recorded_at: Timestamp,
    /// The site, once a writer has named it.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
    /// The log offset to read on from. A hint: the sequence is the identity.
    pub log_offset: u64,
    /// How many records were passed over as no part of history.
    pub stale: u64,
}

impl Position {
    /// The position after folding one more event, which must be the next.
    pub fn after(&self, record: &EventRecord, link: ChainLink, log_offset: u64) -> Position {
        let mut next = Position {
            sequence: record.sequence,
            term: record.term,
            link,
            recorded_at: record.recorded_at,
            log_offset,
            ..*self
        };
        match &record.event {
            Event::Partition(PartitionEvent::WriterStarted(started)) => {
                next.site = started.site;
                next.generation = started.generation;
            }
            Event::Partition(PartitionEvent::LogRestored(restored)) => next.generation = restored.generation,
            _ => {}
        }
        next
    }
}

/// The versions of a domain's tables: live and read side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SchemaVersion {
    /// Of the live tables.
    pub live: u32,
    /// Of the temporal tables.
    pub read: u32,
}

impl SchemaVersion {
    /// What this gatelog's state has.
    pub fn of<S: DomainState>() -> SchemaVersion {
        SchemaVersion { live: S::LIVE_SCHEMA, read: S::READ_SCHEMA }
    }
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}-r{}", self.live, self.read)
    }
}

impl FromStr for SchemaVersion {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (live, read) = text.strip_prefix('l').and_then(|rest| rest.split_once("-r")).ok_or(())?;
        Ok(SchemaVersion { live: live.parse().map_err(|_| ())?, read: read.parse().map_err(|_| ())? })
    }
}
