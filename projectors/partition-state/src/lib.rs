//! The tables every domain's partition has: the writer's place, dedup, marks, timers, outbox; and, for domains that ask
//! others for [`work`], what is pending of it.
//!
//! A domain's live tables hold these beside their own and call [`PartitionTables::apply`] first for
//! every event. What a partition says to another domain is put into the outbox by the domain's own
//! fold, by [`PartitionTables::send`].

pub mod work;

use gatelog_record::event::PartitionEvent;
use gatelog_record::input::Input;
use gatelog_record::{Event, EventRecord, InputId, Partition, SiteId, Timestamp};
use gatelog_tables::table::Life;
use gatelog_tables::{Backing, DomainState, FoldRefused, Table, TableDef, TableExt};
use serde::{Deserialize, Serialize};

/// The writer's place. One row.
#[derive(Debug)]
pub struct Writer;
impl TableDef for Writer {
    const ID: u16 = 1;
    const NAME: &'static str = "writer";
    const LIFE: Life = Life::Live;
    type Key = ();
    type Row = WriterRow;
}

/// Where the partition's history stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WriterRow {
    /// The newest event.
    pub sequence: u64,
    /// The newest term.
    pub term: u64,
    /// How many inputs were taken.
    pub input_sequence: u64,
    /// Where to read inputs on: the offset after the last one taken. `None` before the first.
    pub last_input_offset: Option<u64>,
    /// `recorded_at` of the newest event; the next is never less.
    pub recorded_at: Timestamp,
    /// `wall_at` of the newest event.
    pub wall_at: Timestamp,
    /// The site.
    pub site: SiteId,
    /// The log's generation.
    pub generation: u32,
    /// The level of kinds and versions that may be written.
    pub level: u32,
    /// The build that wrote the newest term.
    pub build: String,
}

/// Input ids taken lately, by which a repeat is known.
#[derive(Debug)]
pub struct Dedup;
impl TableDef for Dedup {
    const ID: u16 = 2;
    const NAME: &'static str = "dedup";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = DedupRow;
}

/// One input taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DedupRow {
    /// The first event it led to.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
}

/// The same ids by age, so that the oldest can be dropped.
#[derive(Debug)]
pub struct DedupAge;
impl TableDef for DedupAge {
    const ID: u16 = 3;
    const NAME: &'static str = "dedup-age";
    const LIFE: Life = Life::Live;
    type Key = u64;
    type Row = String;
}

/// For each sending partition: up to where its messages were taken.
#[derive(Debug)]
pub struct Marks;
impl TableDef for Marks {
    const ID: u16 = 4;
    const NAME: &'static str = "marks";
    const LIFE: Life = Life::Live;
    type Key = (u8, u32);
    type Row = (u64, u32);
}

/// Timers that are set, by name.
#[derive(Debug)]
pub struct Timers;
impl TableDef for Timers {
    const ID: u16 = 5;
    const NAME: &'static str = "timers";
    const LIFE: Life = Life::Live;
    type Key = String;
    type Row = TimerRow;
}

/// One timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerRow {
    /// When it is due.
    pub due_at: Timestamp,
    /// The key it belongs to.
    pub key: String,
}

/// Messages to other domains that are not known to have been taken: receiver, sequence, ordinal.
#[derive(Debug)]
pub struct Outbox;
impl TableDef for Outbox {
    const ID: u16 = 6;
    const NAME: &'static str = "outbox";
    const LIFE: Life = Life::Live;
    type Key = (u8, u32, u64, u32);
    type Row = OutboxRow;
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutboxRow {
    /// The receiver's key.
    pub key: String,
    /// What is said.
    pub input: Input,
}

gatelog_tables::tables! {
    /// The tables of [`crate`].
    pub struct PartitionTables {
        /// The writer's place.
        writer: Writer,
        /// Input ids taken lately.
        dedup: Dedup,
        /// The same by age.
        dedup_age: DedupAge,
        /// Up to where others' messages were taken.
        marks: Marks,
        /// Timers.
        timers: Timers,
        /// Messages to others.
        outbox: Outbox,
    }
}

/// A domain whose live tables hold these beside their own: every domain that decides.
pub trait PartitionState: DomainState {
    /// Where they are.
    fn partition<B: Backing>(live: &Self::Live<B>) -> &PartitionTables<B>;
}

/// How many input ids are remembered. Repeats of older ones are known by marks, or, for effects, by
/// their work id.
pub const DEDUP_ROWS: u64 = 100_000;

impl<B: Backing> PartitionTables<B> {
    /// Folds what every event says of its partition.
    pub fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        let newest = self.writer.get(&())?.map_or(0, |row| row.sequence);
        if record.sequence != newest + 1 {
            return Err(FoldRefused::Illegal(format!("event {} cannot follow event {newest}", record.sequence)));
        }
        if let Some(decision) = &record.decision {
            if let Some(source) = &decision.source {
                let sender = (source.partition.domain as u8, source.partition.index);
                let taken = (source.sequence, source.ordinal);
                // An input that cannot be read may come twice: the mark only rises.
                if self.marks.get(&sender)?.is_none_or(|mark| *mark < taken) {
                    self.marks.put(sender, taken)?;
                }
            }
            self.remember(&decision.input_id, decision.input_sequence, record)?;
        }
        if let Event::Partition(event) = &record.event {
            self.apply_own(record, event)?;
        }
        self.change_writer(|writer| {
            writer.sequence = record.sequence;
            writer.recorded_at = record.recorded_at;
            writer.wall_at = record.wall_at;
            if let Some(decision) = &record.decision {
                writer.input_sequence = decision.input_sequence;
                writer.last_input_offset = Some(decision.input_offset);
            }
        })
    }

    /// Changes the one row of the writer's place, which every event does: where it stands, not in a copy.
    fn change_writer(&mut self, change: impl Fn(&mut WriterRow)) -> Result<(), FoldRefused> {
        if !self.writer.change(&(), &mut |row| change(row))? {
            let mut first = WriterRow::default();
            change(&mut first);
            self.writer.put((), first)?;
        }
        Ok(())
    }

    fn remember(&mut self, id: &InputId, input_sequence: u64, record: &EventRecord) -> Result<(), FoldRefused> {
        let id = id.as_str().to_owned();
        // A repeat does not refresh the first taking: what counts is where it was decided.
        if self.dedup.get(&id)?.is_none() {
            self.dedup.put(id.clone(), DedupRow { sequence: record.sequence, at: record.recorded_at })?;
            self.dedup_age.put(input_sequence, id)?;
        }
        if let Some(oldest) = input_sequence.checked_sub(DEDUP_ROWS)
            && let Some(old) = self.dedup_age.take(&oldest)?
        {
            self.dedup.delete(&old)?;
        }
        Ok(())
    }

    fn apply_own(&mut self, record: &EventRecord, event: &PartitionEvent) -> Result<(), FoldRefused> {
        match event {
            PartitionEvent::WriterStarted(started) => {
                let term = self.writer.get(&())?.map_or(0, |row| row.term);
                if started.term <= term {
                    return Err(FoldRefused::Illegal(format!("term {} cannot follow term {term}", started.term)));
                }
                self.change_writer(|writer| {
                    writer.term = started.term;
                    writer.site = started.site;
                    writer.generation = started.generation;
                    writer.build.clone_from(&started.build);
                })?;
            }
            PartitionEvent::LogRestored(restored) => {
                self.change_writer(|writer| writer.generation = restored.generation)?;
            }
            PartitionEvent::LevelRaised(raised) => self.change_writer(|writer| writer.level = raised.level)?,
            PartitionEvent::TimerSet(set) => {
                self.timers.put(set.timer.clone(), TimerRow { due_at: set.due_at, key: record.key.clone() })?;
            }
            PartitionEvent::TimerCleared(cleared) => {
                self.timers.remove(&cleared.timer)?;
            }
            PartitionEvent::OutboxCleared(cleared) => {
                let to = (cleared.to.domain as u8, cleared.to.index);
                let from = (to.0, to.1, 0, 0);
                let up_to = (to.0, to.1, cleared.up_to.0, cleared.up_to.1);
                let done: Vec<_> = self
                    .outbox
                    .range(std::ops::Bound::Included(&from), std::ops::Bound::Included(&up_to))?
                    .map(|entry| entry.map(|(key, _)| key))
                    .collect::<Result<_, _>>()?;
                if done.is_empty() {
                    return Err(FoldRefused::missing::<Outbox>(&up_to));
                }
                for key in done {
                    self.outbox.delete(&key)?;
                }
            }
            PartitionEvent::InputTaken(_)
            | PartitionEvent::InputRefused(_)
            | PartitionEvent::ClockStepped(_)
            // Of a table whose rows only the domain knows: [`work::WorkTable::apply`].
            | PartitionEvent::WorkResent(_)
            | PartitionEvent::Sample(_)
            | PartitionEvent::SampleBegun(_)
            | PartitionEvent::SampleNoted(_)
            | PartitionEvent::SampleEnded(_) => {}
        }
        Ok(())
    }

    /// Puts a message into the outbox. Called by a domain's fold; `ordinal` counts the messages of
    /// one event from 0.
    pub fn send(
        &mut self,
        record: &EventRecord,
        ordinal: u32,
        to: Partition,
        key: impl Into<String>,
        input: impl Into<Input>,
    ) -> Result<(), FoldRefused> {
        let row = OutboxRow { key: key.into(), input: input.into() };
        self.outbox.insert((to.domain as u8, to.index, record.sequence, ordinal), row)
    }

    /// The writer's place; the default before the first event.
    pub fn place(&self) -> Result<WriterRow, FoldRefused> {
        Ok(self.writer.get(&())?.map(|row| row.into_owned()).unwrap_or_default())
    }
}
