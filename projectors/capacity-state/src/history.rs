//! The temporal tables: every lease there ever was. A row says from which event on it holds and, once
//! replaced, until which; reading as of an event filters by that.

use std::ops::Bound;

use gatelog_record::draft::capacity::{LeaseDescription, LeaseOwner, LeaseSubject};
use gatelog_record::event::CapacityEvent;
use gatelog_record::{Event, EventRecord, LeaseId, Partition, SubjectId, Timestamp};
use gatelog_tables::table::Life;
use gatelog_tables::{Backing, FoldRefused, ReadTables, Table, TableDef, TableError};
use serde::{Deserialize, Serialize};

use crate::live::{CapacityLive, OwnerKey, owner_key};

/// What became of leases: lease, the event from which the row holds.
#[derive(Debug)]
pub struct LeaseHistory;
impl TableDef for LeaseHistory {
    const ID: u16 = 40;
    const NAME: &'static str = "lease-history";
    const LIFE: Life = Life::Temporal;
    type Key = (LeaseId, u64);
    type Row = LeaseHistoryRow;
}

/// How far a lease was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeasePhase {
    /// It waited.
    Queued,
    /// A worker had it.
    Granted,
    /// Its owner had asked for its end.
    Revoked,
    /// The worker had let go of it, its owner had not asked for its end.
    Released,
    /// It was over.
    Ended,
    /// Its attempt was over, and its nodes were kept.
    Held,
    /// Its attempt waited for other jobs: its nodes were its, its worker's slot was free.
    Paused,
}

/// A lease over a stretch of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseHistoryRow {
    /// The event from which this holds.
    pub from: u64,
    /// The event from which it no longer does.
    pub until: Option<u64>,
    /// How far it was.
    pub phase: LeasePhase,
    /// Whose it was.
    pub owner: LeaseOwner,
    /// Whose share it was of, such as a tenant's.
    pub share: String,
    /// What people read of it.
    pub description: LeaseDescription,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// When it was granted, once it was.
    pub granted_at: Option<Timestamp>,
    /// When it ended, once it had.
    pub ended_at: Option<Timestamp>,
    /// Who had it, once somebody did.
    pub worker: String,
    /// While it waited: the code of what for. Later: why its end was asked for or came.
    pub reason: String,
    /// The same for people.
    pub detail: String,
}

/// The leases of an owner's subject: one, unless it was asked for again after its end. By the event that queued them.
#[derive(Debug)]
pub struct LeaseOfOwner;
impl TableDef for LeaseOfOwner {
    const ID: u16 = 42;
    const NAME: &'static str = "lease-of-owner";
    const LIFE: Life = Life::Temporal;
    type Key = (OwnerKey, u64);
    type Row = LeaseId;
}

gatelog_tables::tables! {
    /// Capacity's temporal tables.
    pub struct CapacityRead {
        /// What became of leases.
        history: LeaseHistory,
        /// By their owners, and the event that queued them.
        of_owner: LeaseOfOwner,
    }
}

impl LeaseHistoryRow {
    /// Which attempt of its owner's it is for.
    pub fn attempt(&self) -> u32 {
        self.owner.subject.attempt
    }
}

impl<B: Backing> ReadTables<B> for CapacityRead<B> {
    type Live = CapacityLive<B>;

    fn apply(&mut self, _: &CapacityLive<B>, record: &EventRecord) -> Result<(), FoldRefused> {
        let Event::Capacity(event) = &record.event else { return Ok(()) };
        match event {
            CapacityEvent::LeaseQueued(queued) => {
                let ask = &queued.ask;
                let key = owner_key(ask.owner.partition, &ask.owner.subject);
                self.of_owner.put((key, record.sequence), queued.lease)?;
                self.history.put(
                    (queued.lease, record.sequence),
                    LeaseHistoryRow {
                        from: record.sequence,
                        until: None,
                        phase: LeasePhase::Queued,
                        owner: ask.owner.clone(),
                        share: ask.share.clone(),
                        description: ask.description.clone(),
                        asked_at: record.recorded_at,
                        granted_at: None,
                        ended_at: None,
                        worker: String::new(),
                        reason: String::new(),
                        detail: String::new(),
                    },
                )?;
                Ok(())
            }
            CapacityEvent::WaitChanged(changed) => self.next(record, changed.lease, |row| {
                row.reason = changed.code.clone();
                row.detail = changed.detail.clone();
            }),
            CapacityEvent::LeaseGranted(granted) => self.next(record, granted.lease, |row| {
                row.phase = LeasePhase::Granted;
                row.granted_at = Some(record.recorded_at);
                row.worker = granted.worker.clone();
                row.reason.clear();
                row.detail.clear();
            }),
            CapacityEvent::LeaseRevoked(revoked) => self.next(record, revoked.lease, |row| {
                row.phase = LeasePhase::Revoked;
                row.reason = revoked.reason.clone();
            }),
            CapacityEvent::ReleaseNoted(noted) => {
                self.next(record, noted.released.lease, |row| row.phase = LeasePhase::Released)
            }
            CapacityEvent::LeaseHeld(held) => self.next(record, held.lease, |row| {
                row.phase = LeasePhase::Held;
                row.detail.clone_from(&held.hold.reason);
            }),
            CapacityEvent::LeasePaused(paused) => self.next(record, paused.lease, |row| row.phase = LeasePhase::Paused),
            CapacityEvent::LeaseResumed(resumed) => {
                self.next(record, resumed.lease, |row| row.phase = LeasePhase::Granted)
            }
            CapacityEvent::LeaseEnded(ended) => self.next(record, ended.lease, |row| {
                row.phase = LeasePhase::Ended;
                row.ended_at = Some(record.recorded_at);
                row.reason = ended.reason.clone();
                row.detail = ended.message.clone();
            }),
            CapacityEvent::WorkerJoined(_)
            | CapacityEvent::WorkerLost(_)
            | CapacityEvent::PauseChanged(_)
            | CapacityEvent::LeaseRefused(_) => Ok(()),
        }
    }
}

impl<B: Backing> CapacityRead<B> {
    /// The lease as of an event; `None` if it was not there yet.
    pub fn lease_at(&self, lease: LeaseId, sequence: u64) -> Result<Option<LeaseHistoryRow>, TableError> {
        let (from, to) = ((lease, 0), (lease, sequence));
        let mut rows = self.history.range_back(Bound::Included(&from), Bound::Included(&to))?;
        Ok(rows.next().transpose()?.map(|(_, row)| row.into_owned()))
    }

    /// The leases of every attempt at something of an owner's, in their order, as of an event; at most so many.
    pub fn leases_of(
        &self,
        partition: Partition,
        (kind, id): (&str, SubjectId),
        sequence: u64,
        most: usize,
    ) -> Result<Vec<(LeaseId, LeaseHistoryRow)>, TableError> {
        let at = |attempt| owner_key(partition, &LeaseSubject { kind: kind.to_owned(), id, attempt });
        let (first, last) = ((at(0), 0), (at(u32::MAX), u64::MAX));
        let mut found = Vec::new();
        for entry in self.of_owner.range(Bound::Included(&first), Bound::Included(&last))?.take(most) {
            let lease = *entry?.1;
            found.extend(self.lease_at(lease, sequence)?.map(|row| (lease, row)));
        }
        Ok(found)
    }

    /// Closes the row that holds and opens the next.
    fn next(
        &mut self,
        record: &EventRecord,
        lease: LeaseId,
        change: impl FnOnce(&mut LeaseHistoryRow),
    ) -> Result<(), FoldRefused> {
        let mut row = self
            .lease_at(lease, record.sequence)?
            .ok_or_else(|| FoldRefused::missing::<LeaseHistory>(&(lease, record.sequence)))?;
        let closed = LeaseHistoryRow { until: Some(record.sequence), ..row.clone() };
        self.history.put((lease, closed.from), closed)?;
        row.from = record.sequence;
        row.until = None;
        change(&mut row);
        self.history.put((lease, record.sequence), row)?;
        Ok(())
    }
}
