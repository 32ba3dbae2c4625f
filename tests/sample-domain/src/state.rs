//! The tables: the newest note of each subject, and every note there ever was.

use gatelog_partition_state::{PartitionState, PartitionTables};
use gatelog_record::domains::sample::SampleEvent;
use gatelog_record::{Domain, Event, EventRecord, Timestamp};
use gatelog_tables::table::Life;
use gatelog_tables::{
    Backing, DomainState, Factory, FoldRefused, LiveTables, Maps, Overlay, ReadTables, Table, TableDef, TableError,
    TableSet, TableVisitor, TableVisitorMut,
};
use serde::{Deserialize, Serialize};

/// The domain `sample`.
#[derive(Clone, Copy, Debug)]
pub struct Sample;

impl DomainState for Sample {
    const DOMAIN: Domain = Domain::Sample;
    const LIVE_SCHEMA: u32 = 1;
    const READ_SCHEMA: u32 = 1;
    type Live<B: Backing> = SampleLive<B>;
    type Read<B: Backing> = SampleRead<B>;

    fn overlay(live: &SampleLive<Maps>) -> SampleLive<Overlay<'_>> {
        SampleLive { partition: live.partition.overlay(), own: live.own.overlay() }
    }
}

impl PartitionState for Sample {
    fn partition<B: Backing>(live: &SampleLive<B>) -> &PartitionTables<B> {
        &live.partition
    }
}

/// Subjects, with what was noted of them last.
#[derive(Debug)]
pub struct Subjects;
impl TableDef for Subjects {
    const ID: u16 = 20;
    const NAME: &'static str = "subjects";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = SubjectRow;
}

/// One subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubjectRow {
    /// Its newest note.
    pub note: String,
    /// How many there are.
    pub count: u64,
    /// Since when it is the newest.
    pub since: Timestamp,
}

/// Every note there ever was, by the event that said it.
#[derive(Debug)]
pub struct Notes;
impl TableDef for Notes {
    const ID: u16 = 40;
    const NAME: &'static str = "notes";
    const LIFE: Life = Life::Temporal;
    type Key = u64;
    type Row = (String, String);
}

gatelog_tables::tables! {
    /// The live tables of its own.
    pub struct SampleTables {
        /// Subjects.
        subjects: Subjects,
    }
}

gatelog_tables::tables! {
    /// The temporal tables.
    pub struct SampleRead {
        /// Every note.
        notes: Notes,
    }
}

/// Everything the writer holds.
pub struct SampleLive<B: Backing> {
    /// What every partition has.
    pub partition: PartitionTables<B>,
    /// Its own.
    pub own: SampleTables<B>,
}

impl<B: Backing> TableSet<B> for SampleLive<B> {
    fn open(factory: &mut impl Factory<B>) -> Result<Self, TableError> {
        Ok(SampleLive { partition: PartitionTables::open(factory)?, own: SampleTables::open(factory)? })
    }

    fn visit(&self, visitor: &mut impl TableVisitor<B>) -> Result<(), TableError> {
        self.partition.visit(visitor)?;
        self.own.visit(visitor)
    }

    fn visit_mut(&mut self, visitor: &mut impl TableVisitorMut<B>) -> Result<(), TableError> {
        self.partition.visit_mut(visitor)?;
        self.own.visit_mut(visitor)
    }
}

impl<B: Backing> LiveTables<B> for SampleLive<B> {
    fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        self.partition.apply(record)?;
        match &record.event {
            Event::Partition(_) => Ok(()),
            Event::Sample(SampleEvent::Noted(noted)) => {
                let row = SubjectRow { note: noted.note.clone(), count: noted.nth, since: record.recorded_at };
                Ok(self.own.subjects.put(noted.subject.clone(), row)?)
            }
            _ => Err(FoldRefused::Illegal(format!("{} is not an event of this domain", record.event.name()))),
        }
    }
}

impl<B: Backing> ReadTables<B> for SampleRead<B> {
    type Live = SampleLive<B>;

    fn apply(&mut self, _: &SampleLive<B>, record: &EventRecord) -> Result<(), FoldRefused> {
        let Event::Sample(SampleEvent::Noted(noted)) = &record.event else { return Ok(()) };
        Ok(self.notes.put(record.sequence, (noted.subject.clone(), noted.note.clone()))?)
    }
}
