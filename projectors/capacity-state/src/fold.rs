//! How capacity's events change the live tables.

use std::ops::Bound;

use gatelog_record::draft::capacity::{
    LeaseEnded, LeaseGranted, LeaseHeld, LeaseLost, LeaseOwner, LeasePaused, LeaseQueued, LeaseRefused, LeaseResumed,
    LeaseRevoked, LeaseWaitChanged, PauseChanged, ReleaseNoted, WorkerJoined, WorkerLost, WorkerSeen,
};
use gatelog_record::event::CapacityEvent;
use gatelog_record::input::PartitionInput;
use gatelog_record::{Event, EventRecord, LeaseId};
use gatelog_tables::{Backing, FoldRefused, LiveTables, Table, TableExt};

use crate::live::{
    CapacityLive, CapacityTables, Grant, LeaseRow, LeaseState, Pause, PauseRow, TurnRow, Wait, WorkerRow, owner_key,
    pause_key,
};

impl<B: Backing> LiveTables<B> for CapacityLive<B> {
    fn apply(&mut self, record: &EventRecord) -> Result<(), FoldRefused> {
        self.partition.apply(record)?;
        match &record.event {
            Event::Partition(_) => gatelog_partition_state::work::has_none(&record.event),
            Event::Capacity(event) => self.apply_own(record, event),
            _ => Err(FoldRefused::Illegal(format!("{} is not an event of capacity", record.event.name()))),
        }
    }
}

impl<B: Backing> CapacityLive<B> {
    fn apply_own(&mut self, record: &EventRecord, event: &CapacityEvent) -> Result<(), FoldRefused> {
        match event {
            CapacityEvent::WorkerJoined(joined) => self.own.joined(record, joined),
            CapacityEvent::WorkerLost(lost) => self.own.lost(lost),
            CapacityEvent::LeaseQueued(queued) => self.own.queued(record, queued),
            CapacityEvent::LeaseGranted(granted) => self.own.granted(record, granted),
            CapacityEvent::LeaseRevoked(revoked) => self.own.revoked(revoked),
            CapacityEvent::ReleaseNoted(noted) => self.own.released(noted),
            CapacityEvent::WaitChanged(changed) => self.own.waits(changed),
            CapacityEvent::LeaseHeld(held) => self.own.held(held),
            CapacityEvent::LeasePaused(paused) => self.own.paused(paused),
            CapacityEvent::LeaseResumed(resumed) => self.own.resumed(resumed),
            CapacityEvent::PauseChanged(changed) => self.own.pause_changed(record, changed),
            CapacityEvent::LeaseEnded(ended) => {
                let lease = self.own.ended(ended)?;
                if ended.tell_owner {
                    self.tell(record, lease.ask.owner, false, &ended.reason, &ended.message)?;
                }
                Ok(())
            }
            CapacityEvent::LeaseRefused(LeaseRefused { ask, code, message }) => {
                self.tell(record, ask.owner.clone(), true, code, message)
            }
        }
    }

    /// Tells an owner that it has no lease.
    fn tell(
        &mut self,
        record: &EventRecord,
        owner: LeaseOwner,
        refused: bool,
        code: &str,
        message: &str,
    ) -> Result<(), FoldRefused> {
        let (to, key) = (owner.partition, owner.key.clone());
        let told = LeaseLost { owner, refused, code: code.to_owned(), message: message.to_owned() };
        self.partition.send(record, 0, to, key, PartitionInput::LeaseLost(told))
    }
}

impl<B: Backing> CapacityTables<B> {
    fn joined(&mut self, record: &EventRecord, joined: &WorkerJoined) -> Result<(), FoldRefused> {
        let offer = &joined.offer;
        let row = match self.workers.get(&offer.worker)?.map(|row| row.into_owned()) {
            None => {
                self.keeps(offer)?;
                WorkerRow { offer: offer.clone(), used: 0, joined_at: record.recorded_at }
            }
            Some(row) if row.offer.incarnation == offer.incarnation => WorkerRow { offer: offer.clone(), ..row },
            Some(row) => {
                return Err(FoldRefused::Illegal(format!(
                    "worker {} joins as {} while {} is not lost",
                    offer.worker, offer.incarnation, row.offer.incarnation
                )));
            }
        };
        Ok(self.workers.put(offer.worker.clone(), row)?)
    }

    fn pause_changed(&mut self, record: &EventRecord, changed: &PauseChanged) -> Result<(), FoldRefused> {
        let asked = &changed.asked;
        let key = pause_key(asked.role, &asked.component);
        if !asked.paused {
            return self.pauses.remove(&key).map(|_| ());
        }
        let (reason, since) = (asked.reason.clone(), record.recorded_at);
        self.pauses.insert(key, PauseRow { reason, by: record.actor, since, event: record.sequence })
    }

    /// What was kept when a worker was lost is this start's from here on.
    fn keeps(&mut self, offer: &WorkerSeen) -> Result<(), FoldRefused> {
        let from = (offer.worker.clone(), LeaseId([0; 16]));
        let to = (offer.worker.clone(), LeaseId([255; 16]));
        let kept: Vec<_> = self
            .by_worker
            .range(Bound::Included(&from), Bound::Included(&to))?
            .map(|entry| entry.map(|(key, _)| key))
            .collect::<Result<_, _>>()?;
        for key in kept {
            let mut row = self.leases.need(&key.1)?.into_owned();
            if let Some(grant) = &mut row.grant {
                grant.incarnation.clone_from(&offer.incarnation);
            }
            self.leases.put(key.1, row)?;
            self.by_worker.put(key, offer.incarnation.clone())?;
        }
        Ok(())
    }

    fn lost(&mut self, lost: &WorkerLost) -> Result<(), FoldRefused> {
        let row = self.workers.remove(&lost.worker)?;
        if row.offer.incarnation != lost.incarnation {
            return Err(FoldRefused::Illegal(format!(
                "worker {} is lost as {} but is here as {}",
                lost.worker, lost.incarnation, row.offer.incarnation
            )));
        }
        Ok(())
    }

    fn queued(&mut self, record: &EventRecord, queued: &LeaseQueued) -> Result<(), FoldRefused> {
        let ask = &queued.ask;
        self.by_owner.insert(owner_key(ask.owner.partition, &ask.owner.subject), queued.lease)?;
        self.queue.insert((ask.priority, ask.share.clone(), record.sequence), queued.lease)?;
        self.leases.insert(
            queued.lease,
            LeaseRow {
                ask: ask.clone(),
                queued: record.sequence,
                asked_at: record.recorded_at,
                state: LeaseState::Queued,
                wait: None,
                grant: None,
                released: false,
                end_reason: None,
                held: None,
                pause: Pause::None,
            },
        )?;
        let mut turn = self.turns.get(&ask.share)?.map(|row| *row).unwrap_or_default();
        turn.queued += 1;
        Ok(self.turns.put(ask.share.clone(), turn)?)
    }

    fn granted(&mut self, record: &EventRecord, granted: &LeaseGranted) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&granted.lease)?.into_owned();
        if row.state != LeaseState::Queued {
            return Err(FoldRefused::Illegal(format!("lease {} is granted but does not wait", granted.lease)));
        }
        let worker = self.workers.need(&granted.worker)?.into_owned();
        if worker.offer.incarnation != granted.incarnation {
            return Err(FoldRefused::Illegal(format!(
                "lease {} is granted to {} as {}, which is here as {}",
                granted.lease, granted.worker, granted.incarnation, worker.offer.incarnation
            )));
        }
        self.workers.put(granted.worker.clone(), WorkerRow { used: worker.used + 1, ..worker })?;
        self.by_worker.insert((granted.worker.clone(), granted.lease), granted.incarnation.clone())?;
        self.queue.remove(&(row.ask.priority, row.ask.share.clone(), row.queued))?;
        for semaphore in &row.ask.semaphores {
            self.semaphores.put((semaphore.name.clone(), granted.lease), 1)?;
        }
        self.turns.update(&row.ask.share, |turn| {
            turn.last_grant = record.sequence;
            turn.queued = turn.queued.saturating_sub(1);
            turn.held += 1;
        })?;
        row.state = LeaseState::Granted;
        row.wait = None;
        row.grant = Some(Grant {
            worker: granted.worker.clone(),
            incarnation: granted.incarnation.clone(),
            nodes: granted.nodes.clone(),
            granted_at: record.recorded_at,
            event: record.sequence,
        });
        Ok(self.leases.put(granted.lease, row)?)
    }

    fn revoked(&mut self, revoked: &LeaseRevoked) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&revoked.lease)?.into_owned();
        if !matches!(row.state, LeaseState::Granted | LeaseState::Held) {
            return Err(FoldRefused::Illegal(format!("lease {} is revoked but not granted", revoked.lease)));
        }
        row.state = LeaseState::Revoked;
        row.end_reason = Some(revoked.reason.clone());
        Ok(self.leases.put(revoked.lease, row)?)
    }

    fn released(&mut self, noted: &ReleaseNoted) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&noted.released.lease)?.into_owned();
        if row.state != LeaseState::Granted || row.released {
            return Err(FoldRefused::Illegal(format!("lease {} is let go but not held", noted.released.lease)));
        }
        row.released = true;
        Ok(self.leases.put(noted.released.lease, row)?)
    }

    fn held(&mut self, event: &LeaseHeld) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&event.lease)?.into_owned();
        if row.state != LeaseState::Granted || row.released {
            return Err(FoldRefused::Illegal(format!("lease {} is to be kept but not held", event.lease)));
        }
        for semaphore in &row.ask.semaphores {
            self.semaphores.delete(&(semaphore.name.clone(), event.lease))?;
        }
        self.gives_back(&row)?;
        row.state = LeaseState::Held;
        row.held = Some(event.hold.clone());
        Ok(self.leases.put(event.lease, row)?)
    }

    fn paused(&mut self, event: &LeasePaused) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&event.lease)?.into_owned();
        if row.state != LeaseState::Granted || row.released || row.pause != Pause::None {
            return Err(FoldRefused::Illegal(format!("lease {} pauses but nothing runs under it", event.lease)));
        }
        self.gives_back(&row)?;
        row.pause = Pause::Waits;
        Ok(self.leases.put(event.lease, row)?)
    }

    fn resumed(&mut self, event: &LeaseResumed) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&event.lease)?.into_owned();
        if row.state != LeaseState::Granted || row.pause != Pause::Waits {
            return Err(FoldRefused::Illegal(format!("lease {} goes on but does not pause", event.lease)));
        }
        row.pause = Pause::Over;
        self.changes_used(&row, |used| used.saturating_add(1))?;
        Ok(self.leases.put(event.lease, row)?)
    }

    /// A slot of a lease's worker is free again, unless it was given back when the attempt paused.
    fn gives_back(&mut self, row: &LeaseRow) -> Result<(), FoldRefused> {
        if row.pause == Pause::Waits {
            return Ok(());
        }
        self.changes_used(row, |used| used.saturating_sub(1))
    }

    fn changes_used(&mut self, row: &LeaseRow, change: impl FnOnce(u32) -> u32) -> Result<(), FoldRefused> {
        let Some(grant) = &row.grant else { return Ok(()) };
        // A lost worker's row is gone, or is that of another start: its slots went with it.
        if let Some(worker) = self.workers.get(&grant.worker)?.map(|row| row.into_owned())
            && worker.offer.incarnation == grant.incarnation
        {
            let used = change(worker.used);
            self.workers.put(grant.worker.clone(), WorkerRow { used, ..worker })?;
        }
        Ok(())
    }

    fn waits(&mut self, changed: &LeaseWaitChanged) -> Result<(), FoldRefused> {
        let mut row = self.leases.need(&changed.lease)?.into_owned();
        if row.state != LeaseState::Queued {
            return Err(FoldRefused::Illegal(format!("lease {} waits but is not queued", changed.lease)));
        }
        row.wait = Some(Wait {
            code: changed.code.clone(),
            subject: changed.subject.clone(),
            detail: changed.detail.clone(),
            since: changed.since,
        });
        Ok(self.leases.put(changed.lease, row)?)
    }

    fn ended(&mut self, ended: &LeaseEnded) -> Result<LeaseRow, FoldRefused> {
        let row = self.leases.remove(&ended.lease)?;
        self.by_owner.remove(&owner_key(row.ask.owner.partition, &row.ask.owner.subject))?;
        let mut turn: TurnRow = *self.turns.need(&row.ask.share)?;
        match &row.grant {
            None => {
                self.queue.remove(&(row.ask.priority, row.ask.share.clone(), row.queued))?;
                turn.queued = turn.queued.saturating_sub(1);
            }
            Some(grant) => {
                self.by_worker.remove(&(grant.worker.clone(), ended.lease))?;
                for semaphore in &row.ask.semaphores {
                    self.semaphores.delete(&(semaphore.name.clone(), ended.lease))?;
                }
                // What was kept gave its slot back then.
                if row.held.is_none() {
                    self.gives_back(&row)?;
                }
                turn.held = turn.held.saturating_sub(1);
            }
        }
        if turn.queued == 0 && turn.held == 0 {
            self.turns.remove(&row.ask.share)?;
        } else {
            self.turns.put(row.ask.share.clone(), turn)?;
        }
        Ok(row)
    }
}
