//! Pending work: what a domain asked of the outside, and what was not answered yet.
//!
//! Every domain may have such a table. What its work is stands in one type of its own, which says of each kind how long an
//! answer is waited for, whose duty it is, and which connections it asks ([`Work`]). The rest is the same for all: a row is
//! made by the event that asks ([`WorkTable::ask`]), may be sent out again ([`WorkTable::apply`]), and leaves with its first
//! outcome or with what it was for ([`WorkTable::close`]). Nobody here does the work: whoever does implements [`Perform`],
//! be it in the world, in a simulation or from what is on record.

use std::fmt::Debug;
use std::marker::PhantomData;

use gatelog_record::draft::partition::WorkResent;
use gatelog_record::event::PartitionEvent;
use gatelog_record::{Event, EventRecord, Timestamp, WorkId};
use gatelog_tables::table::Life;
use gatelog_tables::{Backing, FoldRefused, LiveTables, Table, TableDef, TableExt};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::PartitionTables;

/// Work that does not get into another's way. Each process does that of its roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Merging and reading repositories.
    Merge,
    /// What is computed from what is there: layouts, frozen jobs.
    Compute,
    /// Merging for real.
    Submit,
    /// Asking code-review systems, and reporting to them.
    Review,
}

/// What holds for every piece of work of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The kind's name, as people read it.
    pub kind: &'static str,
    /// Whose it is.
    pub duty: Duty,
    /// How long an answer to one sending is waited for, in milliseconds. Only rules read it: what they make of it stands
    /// in their events.
    pub deadline_ms: i64,
    /// How often it is sent before it is given up, at least 1.
    pub attempts_max: u32,
    /// The steps at which a crash test lets a process die: before the work is done, before its outcome is appended, after.
    pub steps: [&'static str; 3],
}

/// Work of one domain: a value is one piece of it, with everything needed to do it.
pub trait Work: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What holds for its kind.
    fn terms(&self) -> &'static Terms;

    /// The connections to other systems it talks to, each once, in their order. Work of one connection never waits for
    /// work of another.
    fn connections(&self) -> Vec<&str> {
        Vec::new()
    }

    /// What whoever does it keeps warm, such as a repository: of several who could do it, the same one does all of a
    /// place. `None`: any of them.
    fn place(&self) -> Option<&str> {
        None
    }

    /// The kind's name.
    fn kind(&self) -> &'static str {
        self.terms().kind
    }
}

/// Work that was asked for and not answered.
pub struct PendingWork<W>(PhantomData<fn() -> W>);

impl<W> Debug for PendingWork<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PendingWork")
    }
}

impl<W: Work> TableDef for PendingWork<W> {
    const ID: u16 = 7;
    const NAME: &'static str = "pending-work";
    const LIFE: Life = Life::Live;
    type Key = WorkId;
    type Row = PendingRow<W>;
}

/// One piece of work that was asked for and not answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PendingRow<W> {
    /// What is to be done.
    pub work: W,
    /// The key its outcome comes under, such as a tenant.
    pub key: String,
    /// Which sending of it this is, from 1.
    pub attempt: u32,
    /// The sequence of the event that asked for it.
    pub requested: u64,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// Not to be begun before this moment; its deadline is counted from here.
    pub not_before: Timestamp,
}

impl<W: Work> PendingRow<W> {
    /// By when this sending of it is to be answered.
    pub fn deadline(&self) -> Timestamp {
        self.not_before.plus_millis(self.work.terms().deadline_ms)
    }

    /// Whether it may not be sent once more.
    pub fn is_last_attempt(&self) -> bool {
        self.attempt >= self.work.terms().attempts_max
    }

    /// This sending of it.
    pub fn sending(&self, work: WorkId) -> Sending<'_> {
        Sending { work, attempt: self.attempt, key: &self.key, requested: self.requested }
    }
}

/// Which sending of which work an outcome is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending<'r> {
    /// The work.
    pub work: WorkId,
    /// Which sending of it.
    pub attempt: u32,
    /// The key its outcome comes under.
    pub key: &'r str,
    /// The sequence of the event that asked for it.
    pub requested: u64,
}

/// Does work of one domain. Done twice it is done once: whoever implements it sees to that.
pub trait Perform<W: Work> {
    /// The outcome: an input of the domain.
    type Outcome;
    /// Why there is none.
    type Error;

    /// Does one piece of work. That it failed is an outcome too.
    ///
    /// # Errors
    /// When there is nothing to be said of it: it is sent again when its deadline passes.
    fn perform(&mut self, sending: Sending<'_>, work: &W) -> Result<Self::Outcome, Self::Error>;
}

/// Live tables with pending work among them.
pub trait HasWork<B: Backing>: LiveTables<B> {
    /// What its work is.
    type Work: Work;

    /// The table of it.
    fn pending_work(&self) -> &B::Table<PendingWork<Self::Work>>;

    /// What every partition has.
    fn partition(&self) -> &PartitionTables<B>;
}

/// What folds do to a table of pending work.
pub trait WorkTable<W: Work>: Table<PendingWork<W>> {
    /// Work was asked for.
    ///
    /// # Errors
    /// When work of this id is pending already.
    fn ask(&mut self, record: &EventRecord, id: WorkId, key: &str, work: W) -> Result<(), FoldRefused> {
        self.insert(
            id,
            PendingRow {
                work,
                key: key.to_owned(),
                attempt: 1,
                requested: record.sequence,
                requested_at: record.recorded_at,
                not_before: record.recorded_at,
            },
        )
    }

    /// Work was answered, or is not wanted any more; the row is given. Whatever comes of it later is of nothing.
    ///
    /// # Errors
    /// When it is not pending.
    fn close(&mut self, id: WorkId) -> Result<PendingRow<W>, FoldRefused> {
        self.remove(&id)
    }

    /// Work is sent out once more, or its deadline begins anew.
    ///
    /// # Errors
    /// When it is not pending, or was sent more often already.
    fn resend(&mut self, event: &WorkResent) -> Result<(), FoldRefused> {
        let attempt = self.need(&event.work)?.attempt;
        if event.attempt < attempt {
            let message = format!("work {} was sent {attempt} times and goes back to {}", event.work, event.attempt);
            return Err(FoldRefused::Illegal(message));
        }
        self.update(&event.work, |row| {
            row.attempt = event.attempt;
            row.not_before = event.not_before;
        })
    }

    /// Folds what a partition's event says of its work. To be called with each.
    ///
    /// # Errors
    /// As [`WorkTable::resend`].
    fn apply(&mut self, event: &PartitionEvent) -> Result<(), FoldRefused> {
        match event {
            PartitionEvent::WorkResent(event) => self.resend(event),
            _ => Ok(()),
        }
    }
}

impl<W: Work, T: Table<PendingWork<W>> + ?Sized> WorkTable<W> for T {}

/// Refuses events about pending work, for the fold of a domain that has none.
///
/// # Errors
/// When it is one.
pub fn has_none(event: &Event) -> Result<(), FoldRefused> {
    match event {
        Event::Partition(PartitionEvent::WorkResent(event)) => {
            Err(FoldRefused::Illegal(format!("work {} is sent again where there is no work", event.work)))
        }
        _ => Ok(()),
    }
}
