//! Requests to keep nodes, and what they keep.

use gatelog_record::draft::capacity::LeaseEndAsked;
use gatelog_record::draft::gate::{AutoholdEnded, AutoholdSet, HoldEnded, NodesHeld, build_owner};
use gatelog_record::input::CapacityInput;
use gatelog_record::{BuildId, EventRecord};
use gatelog_tables::{Backing, FoldRefused, Table, TableExt};

use super::building::{CAPACITY, MAIN};
use crate::live::{AutoholdRow, GateLive, GateTables, HeldBuild};

impl<B: Backing> GateLive<B> {
    pub(super) fn ask_for_hold(&mut self, record: &EventRecord, event: &NodesHeld) -> Result<(), FoldRefused> {
        self.partition.send(record, 0, CAPACITY, MAIN, CapacityInput::LeaseHoldAsked(event.hold.clone()))
    }

    pub(super) fn end_hold(&mut self, record: &EventRecord, event: &HoldEnded) -> Result<(), FoldRefused> {
        let owner = build_owner(&event.tenant, event.build, event.attempt);
        let asked = LeaseEndAsked { owner, reason: event.code.clone() };
        self.partition.send(record, 0, CAPACITY, MAIN, CapacityInput::LeaseEndAsked(asked))
    }
}

impl<B: Backing> GateTables<B> {
    pub(super) fn autohold_set(&mut self, record: &EventRecord, event: &AutoholdSet) -> Result<(), FoldRefused> {
        let row = AutoholdRow {
            asked: event.asked.clone(),
            asked_at: record.recorded_at,
            actor: record.actor,
            count: 0,
            held: Vec::new(),
        };
        self.autoholds.insert((event.asked.tenant.clone(), event.request), row)
    }

    pub(super) fn nodes_held(&mut self, record: &EventRecord, event: &NodesHeld) -> Result<(), FoldRefused> {
        let key = (event.tenant.clone(), event.request);
        if self.autoholds.need(&key)?.held.iter().any(|one| is(one, event.build, event.attempt)) {
            return Err(FoldRefused::Illegal(format!(
                "request {} keeps attempt {} of build {} already",
                event.request, event.attempt, event.build
            )));
        }
        let build = self.builds.get(&event.build)?.map(|row| (row.lease, row.worker.clone()));
        let (lease, worker) = build.unwrap_or_default();
        self.autoholds.update(&key, |row| {
            row.count = event.count;
            row.held.push(HeldBuild {
                build: event.build,
                attempt: event.attempt,
                hold: event.hold.clone(),
                lease,
                worker: worker.clone(),
                item: event.item,
                since: record.recorded_at,
            });
        })
    }

    pub(super) fn hold_ended(&mut self, event: &HoldEnded) -> Result<(), FoldRefused> {
        let key = (event.tenant.clone(), event.request);
        if !self.autoholds.need(&key)?.held.iter().any(|one| is(one, event.build, event.attempt)) {
            return Err(FoldRefused::Illegal(format!(
                "request {} does not keep attempt {} of build {}",
                event.request, event.attempt, event.build
            )));
        }
        self.autoholds.update(&key, |row| row.held.retain(|one| !is(one, event.build, event.attempt)))
    }

    pub(super) fn autohold_ended(&mut self, event: &AutoholdEnded) -> Result<(), FoldRefused> {
        let row = self.autoholds.remove(&(event.tenant.clone(), event.request))?;
        if row.held.is_empty() {
            return Ok(());
        }
        Err(FoldRefused::Illegal(format!("request {} ends while it keeps nodes", event.request)))
    }
}

fn is(held: &HeldBuild, build: BuildId, attempt: u32) -> bool {
    held.build == build && held.attempt == attempt
}
